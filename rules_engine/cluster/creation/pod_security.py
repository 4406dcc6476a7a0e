"""Pod Security: the checks of the level that a namespace enforces.

Source: k8s.io/pod-security-admission 1.36 (admission/admission.go; policy/registry.go and checks; api/helpers.go).
Left out: exemptions and the default level, which are in the API server's configuration; annotations of seccomp, which
only levels before v1.19 check; and the fields that the API server copies from annotations of AppArmor, which it names,
too.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from rules_engine.cluster.creation.pod_creation import PodCreation, RefusedError
from rules_engine.model.json.lenient import (
    Object,
    as_list,
    as_mapping,
    as_string_map,
    integer_member,
    object_items,
    text_member,
)
from rules_engine.model.json.patch import Json

ENFORCE = "pod-security.kubernetes.io/enforce"
"""The label of a namespace with its level, and the start of the label with the version of the level."""

_LATEST = 10**9
_VERSION = re.compile(r"v1\.(0|[1-9][0-9]{0,8})")

_CONTAINERS = ("initContainers", "containers", "ephemeralContainers")
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")

_PROFILES = ("RuntimeDefault", "Localhost")
"""Types of profiles of AppArmor and seccomp that are allowed."""

_APP_ARMOR = "container.apparmor.security.beta.kubernetes.io/"

_CAPABILITIES = frozenset(
    {
        *("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE"),
        *("SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"),
    }
)

_VOLUMES = frozenset(
    {
        *("configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim", "projected"),
        "secret",
    }
)

_SYSCTLS: Mapping[str, int] = {
    "kernel.shm_rmid_forced": 0,
    "net.ipv4.ip_local_port_range": 0,
    "net.ipv4.tcp_syncookies": 0,
    "net.ipv4.ping_group_range": 0,
    "net.ipv4.ip_unprivileged_port_start": 0,
    "net.ipv4.ip_local_reserved_ports": 27,
    "net.ipv4.tcp_keepalive_time": 29,
    "net.ipv4.tcp_fin_timeout": 29,
    "net.ipv4.tcp_keepalive_intvl": 29,
    "net.ipv4.tcp_keepalive_probes": 29,
    "net.ipv4.tcp_rmem": 32,
    "net.ipv4.tcp_wmem": 32,
}
"""Allowed sysctls, with the minor version from which each is allowed."""

_SE_LINUX_TYPES: Mapping[str, int] = {
    "": 0,
    "container_t": 0,
    "container_init_t": 0,
    "container_kvm_t": 0,
    "container_engine_t": 31,
}
"""Allowed types of SELinux, with the minor version from which each is allowed."""


def validate(creation: PodCreation) -> None:
    """Refuse a pod that violates the level of its namespace."""
    labels = creation.namespace_labels
    level, version = labels.get(ENFORCE, "privileged"), labels.get(f"{ENFORCE}-version", "latest")
    if level == "privileged":
        return
    parsed = _VERSION.fullmatch(version)
    pod = _Pod(creation.pod, int(parsed[1]) if parsed else _LATEST)
    checks = [check for check in _BASELINE if check.since <= pod.minor]
    if level != "baseline":  # an unknown level counts as restricted
        level = "restricted"
        restricted = [check for check in _RESTRICTED if check.since <= pod.minor]
        replaced = {check.replaces for check in restricted}
        checks = [*(check for check in checks if check.find not in replaced), *restricted]
    violations = [text for check in checks if not check.passes(pod) and (text := check.find(pod))]
    if violations:
        name = f"{level}:{version if parsed else 'latest'}"
        raise RefusedError(f'violates PodSecurity "{name}": {", ".join(violations)}')


_Member = tuple[str, Json]
"""A value with the name of the container that sets it; "" if the pod does."""


@dataclass(frozen=True, slots=True)
class _Pod:
    """A pod under the checks of a minor version."""

    raw: Object
    minor: int

    @property
    def spec(self) -> Object:
        return as_mapping(self.raw.get("spec"))

    def of_containers(self, *path: str) -> Sequence[_Member]:
        """Return a member of each container; None where it is absent."""
        containers = (item for member in _CONTAINERS for item in object_items(self.spec.get(member)))
        return [(text_member(item, "name"), _member_at(item, *path)) for item in containers]

    def of_contexts(self, path: str) -> Sequence[_Member]:
        """Return a member of the security contexts of the pod and its containers; None where it is absent."""
        at = ("securityContext", *path.split("."))
        return [("", _member_at(self.raw, "spec", *at)), *self.of_containers(*at)]

    def is_for_windows(self) -> bool:
        return self.minor >= 25 and _member_at(self.raw, "spec", "os", "name") == "windows"

    def has_own_users(self) -> bool:
        """Return True if the pod has a user namespace of its own, with which some checks pass."""
        return self.minor >= 35 and self.spec.get("hostUsers") is False


def _never(_pod: _Pod) -> bool:
    return False


def _member_at(members: Object, *path: str) -> Json:
    *parents, last = path
    for name in parents:
        members = as_mapping(members.get(name))
    return members.get(last)


def _quoted(items: Iterable[object]) -> str:
    return ", ".join(f'"{item}"' for item in items)


def _plural(noun: str, items: Collection[object]) -> str:
    return noun if len(items) == 1 else f"{noun}s"


def _named(names: Sequence[str], noun: str = "container") -> str:
    return f"{_plural(noun, names)} {_quoted(names)}"


def _using(names: Sequence[str], used: str, noun: str = "container") -> str:
    return f"{_named(names, noun)} {'uses' if len(names) == 1 else 'use'} {used}"


def _setters(members: Iterable[_Member]) -> Sequence[str]:
    """Return who sets values, such as `pod` and `containers "a", "b"`."""
    names = [name for name, _ in members]
    containers = [name for name in names if name]
    return [*(["pod"] if "" in names else []), *([_named(containers)] if containers else [])]


def _sorted_texts(members: Iterable[_Member]) -> Sequence[str]:
    return sorted({str(value) for _, value in members})


# Each check returns the reason and details of a violation; "" if there is none.
_Find = Callable[[_Pod], str]


def _forbidden(reason: str, path: str, text: str, is_bad: Callable[[Json], bool]) -> _Find:
    """Return a check of a member of the security contexts. `text`: with `{}` for the forbidden values."""

    def find(pod: _Pod) -> str:
        bad = [(name, value) for name, value in pod.of_contexts(path) if value is not None and is_bad(value)]
        detail = f"{' and '.join(_setters(bad))} must not set {text.format(_quoted(_sorted_texts(bad)))}"
        return f"{reason} ({detail})" if bad else ""

    return find


def _required(forbidden: _Find, reason: str, path: str, text: str, allowed: Sequence[Json]) -> _Find:
    """Return a check of a member that the pod or each container must set, and that no one may set to other values."""

    def find(pod: _Pod) -> str:
        (_, own), *members = pod.of_contexts(path)
        missing = [name for name, value in members if value is None and own not in allowed]
        detail = f"pod or {_named(missing)} must set {text}"
        return forbidden(pod) or (f"{reason} ({detail})" if missing else "")

    return find


def _app_armor(pod: _Pod) -> str:
    types = pod.of_contexts("appArmorProfile.type")
    bad = [(name, value) for name, value in types if value is not None and value not in _PROFILES]
    annotations = [
        f'{key}="{value}"'
        for key, value in sorted(as_string_map(_member_at(pod.raw, "metadata", "annotations")).items())
        if key.startswith(_APP_ARMOR) and value not in ("", "runtime/default") and not value.startswith("localhost/")
    ]
    values = [*_sorted_texts(bad), *annotations]
    setters = [*_setters(bad), *([_plural("annotation", annotations)] if annotations else [])]
    detail = f"{' and '.join(setters)} must not set AppArmor profile type to {_quoted(values)}"
    return f"{_plural('forbidden AppArmor profile', values)} ({detail})" if values else ""


def _added_capabilities(pod: _Pod, allowed: Collection[str]) -> str:
    added = [
        (name, text)
        for name, texts in pod.of_containers("securityContext", "capabilities", "add")
        for text in as_list(texts)
        if text not in allowed
    ]
    names = [*dict.fromkeys(name for name, _ in added)]
    values = _quoted(_sorted_texts(added))
    return f"{_named(names)} must not include {values} in securityContext.capabilities.add" if added else ""


def _default_capabilities(pod: _Pod) -> str:
    text = _added_capabilities(pod, _CAPABILITIES)
    return f"non-default capabilities ({text})" if text else ""


def _restricted_capabilities(pod: _Pod) -> str:
    dropped = pod.of_containers("securityContext", "capabilities", "drop")
    missing = [name for name, texts in dropped if "ALL" not in as_list(texts)]
    texts = [f'{_named(missing)} must set securityContext.capabilities.drop=["ALL"]'] if missing else []
    texts += filter(None, [_added_capabilities(pod, ("NET_BIND_SERVICE",))])
    return f"unrestricted capabilities ({'; '.join(texts)})" if texts else ""


def _escalation(pod: _Pod) -> str:
    members = pod.of_containers("securityContext", "allowPrivilegeEscalation")
    names = [name for name, value in members if value is not False]
    detail = f"{_named(names)} must set securityContext.allowPrivilegeEscalation=false"
    return f"allowPrivilegeEscalation != false ({detail})" if names else ""


def _host_namespaces(pod: _Pod) -> str:
    names = [f"{name}=true" for name in ("hostNetwork", "hostPID", "hostIPC") if pod.spec.get(name) is True]
    return f"host namespaces ({', '.join(names)})" if names else ""


def _volumes(pod: _Pod, allowed: Callable[[str], bool]) -> Sequence[_Member]:
    """Return volumes whose source is not allowed, with its kind. A volume without a source is an emptyDir."""
    sources = {
        text_member(item, "name"): [kind for kind, value in item.items() if kind != "name" and value is not None]
        for item in object_items(pod.spec.get("volumes"))
    }
    return [(name, kinds[0]) for name, kinds in sources.items() if kinds and not allowed(kinds[0])]


def _host_paths(pod: _Pod) -> str:
    bad = _volumes(pod, lambda kind: kind != "hostPath")
    return f"hostPath volumes ({_named([name for name, _ in bad], 'volume')})" if bad else ""


def _restricted_volumes(pod: _Pod) -> str:
    bad = _volumes(pod, _VOLUMES.__contains__)
    names, kinds = [name for name, _ in bad], _sorted_texts(bad)
    detail = _using(names, _named(kinds, "restricted volume type"), "volume")
    return f"restricted volume types ({detail})" if bad else ""


def _host_ports(pod: _Pod) -> str:
    # The API server writes the ports of a pod on the node's network as hostPort (SetDefaults_Pod).
    own = "containerPort" if pod.spec.get("hostNetwork") is True else "hostPort"
    used = [
        (name, number)
        for name, ports in pod.of_containers("ports")
        for port in object_items(ports)
        if (number := integer_member(port, "hostPort") or integer_member(port, own))
    ]
    names, numbers = [*dict.fromkeys(name for name, _ in used)], _sorted_texts(used)
    detail = _using(names, f"{_plural('hostPort', numbers)} {', '.join(numbers)}")
    return f"hostPort ({detail})" if used else ""


def _probe_hosts(pod: _Pod) -> str:
    handlers = [*((probe,) for probe in _PROBES), ("lifecycle", "postStart"), ("lifecycle", "preStop")]
    hosts = [
        (name, host)
        for handler in handlers
        for kind in ("httpGet", "tcpSocket")
        for name, host in pod.of_containers(*handler, kind, "host")
        if host
    ]
    reason = "probe or lifecycle host"
    return (
        f"{reason} ({_using(sorted({name for name, _ in hosts}), _named(_sorted_texts(hosts), reason))})"
        if hosts
        else ""
    )


def _se_linux(pod: _Pod) -> str:
    options = [(name, as_mapping(value)) for name, value in pod.of_contexts("seLinuxOptions")]
    kinds = [(name, text_member(members, "type")) for name, members in options]
    types = [(name, kind) for name, kind in kinds if _SE_LINUX_TYPES.get(kind, _LATEST + 1) > pod.minor]
    details, bad = [_named(_sorted_texts(types), "type")] if types else [], dict(types)
    for member in ("user", "role"):
        setters = {name: member for name, members in options if members.get(member)}
        details += [f"{member} may not be set"] if setters else []
        bad |= setters
    setting = " and ".join(_setters((name, "") for name, _ in options if name in bad))
    detail = f"{setting} set forbidden securityContext.seLinuxOptions: {'; '.join(details)}"
    return f"seLinuxOptions ({detail})" if bad else ""


def _sysctls(pod: _Pod) -> str:
    listed = object_items(_member_at(pod.raw, "spec", "securityContext", "sysctls"))
    names = [text_member(item, "name") for item in listed]
    bad = [name for name in names if _SYSCTLS.get(name, _LATEST + 1) > pod.minor]
    return f"forbidden sysctls ({', '.join(bad)})" if bad else ""


_seccomp = _forbidden(
    "seccompProfile",
    "seccompProfile.type",
    "securityContext.seccompProfile.type to {}",
    lambda value: value not in _PROFILES,
)
_root = _forbidden(
    "runAsNonRoot != true", "runAsNonRoot", "securityContext.runAsNonRoot=false", lambda value: value is False
)
_proc_mount = _forbidden("procMount", "procMount", "securityContext.procMount to {}", lambda value: value != "Default")


@dataclass(frozen=True, slots=True)
class _Check:
    """A check, which applies from a minor version on. `replaces`: a check of baseline that it covers."""

    find: _Find
    since: int = 0
    passes: Callable[[_Pod], bool] = _never
    replaces: _Find | None = None


_BASELINE = (
    _Check(_app_armor),
    _Check(_default_capabilities),
    _Check(_host_namespaces),
    _Check(_host_paths),
    _Check(_host_ports),
    _Check(_probe_hosts, 34),
    _Check(_forbidden("privileged", "privileged", "securityContext.privileged=true", lambda value: value is True)),
    _Check(_proc_mount, passes=_Pod.has_own_users),
    _Check(_se_linux),
    _Check(_seccomp, 19),
    _Check(_sysctls),
    _Check(
        _forbidden(
            "hostProcess",
            "windowsOptions.hostProcess",
            "securityContext.windowsOptions.hostProcess=true",
            lambda value: value is True,
        )
    ),
)
"""The checks of baseline in the order of their ids, as the API server evaluates them."""

_RESTRICTED = (
    _Check(_escalation, 8, _Pod.is_for_windows),
    _Check(_restricted_capabilities, 22, _Pod.is_for_windows, _default_capabilities),
    _Check(_proc_mount, 35, replaces=_proc_mount),
    _Check(_restricted_volumes, replaces=_host_paths),
    _Check(
        _required(_root, "runAsNonRoot != true", "runAsNonRoot", "securityContext.runAsNonRoot=true", (True,)),
        passes=_Pod.has_own_users,
    ),
    _Check(_forbidden("runAsUser=0", "runAsUser", "runAsUser=0", lambda value: value == 0), 23, _Pod.has_own_users),
    _Check(
        _required(
            _seccomp,
            "seccompProfile",
            "seccompProfile.type",
            'securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost"',
            _PROFILES,
        ),
        19,
        _Pod.is_for_windows,
        _seccomp,
    ),
)
