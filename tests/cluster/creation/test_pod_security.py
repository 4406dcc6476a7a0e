"""Pod Security refuses pods with the messages of the API server 1.36."""

from typing import Any

import pytest

from rules_engine.cluster.creation.pod_creation import PodCreation, RefusedError
from rules_engine.cluster.creation.pod_security import ENFORCE, validate
from rules_engine.model.kubernetes.cluster_objects import ClusterObjects

CLEAN: Any = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""A security context that restricted allows."""


def refusal(pod: Any, **labels: str) -> str:
    """Return why a namespace with these labels refuses a pod; "" if it does not."""
    named = {f"pod-security.kubernetes.io/{name.replace('_', '-')}": value for name, value in labels.items()}
    namespace: Any = {"metadata": {"name": "ml", "labels": named}}
    creation = PodCreation(pod=pod, namespace="ml", objects=ClusterObjects({"Namespace": [namespace]}))
    try:
        validate(creation)
    except RefusedError as error:
        return str(error)
    return ""


def violation(spec: Any, level: str, version: str = "latest", **metadata: Any) -> str:
    """Return what of a pod violates a level."""
    message = refusal({"metadata": metadata, "spec": spec}, enforce=level, enforce_version=version)
    start, _, violations = message.partition(f'violates PodSecurity "{level}:{version}": ')
    assert start == ""
    return violations


def containers(*contexts: Any, **members: Any) -> Any:
    """Return containers a, b and so on, with their security contexts and other members."""
    items = zip("abc", contexts, strict=False)
    return [{"name": name, "securityContext": {**CLEAN, **context}, **members} for name, context in items]


def spec(*contexts: Any, own: Any = None, **members: Any) -> Any:
    return {"containers": containers(*(contexts or ({},))), "securityContext": own or {}, **members}


def with_members(**members: Any) -> Any:
    return {"containers": containers({}, **members)}


APP_ARMOR = "container.apparmor.security.beta.kubernetes.io/"
SYSCTLS = [{"name": name} for name in ("net.ipv4.tcp_rmem", "net.ipv4.tcp_syncookies", "vm.swappiness")]
HOST = {"httpGet": {"host": "h"}}


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (spec(own={"appArmorProfile": {"type": "Localhost"}}), ""),
        (
            spec({"appArmorProfile": {"type": "Unconfined"}}, own={"appArmorProfile": {"type": "Unconfined"}}),
            'forbidden AppArmor profile (pod and container "a" must not set AppArmor profile type to "Unconfined")',
        ),
        (spec({"capabilities": {"drop": ["ALL"], "add": ["CHOWN"]}}), ""),
        (
            spec(*[{"capabilities": {"add": ["NET_RAW", "SYS_ADMIN", "KILL"]}}] * 2),
            (
                'non-default capabilities (containers "a", "b" must not include "NET_RAW", "SYS_ADMIN" '
                "in securityContext.capabilities.add)"
            ),
        ),
        (spec(hostNetwork=False, hostIPC=True, hostPID=True), "host namespaces (hostPID=true, hostIPC=true)"),
        (
            spec(volumes=[{"name": "v", "hostPath": {"path": "/"}}, {"name": "n", "nfs": {}}, {"name": "e"}]),
            'hostPath volumes (volume "v")',
        ),
        (
            spec(volumes=[{"name": name, "hostPath": {}} for name in "vw"]),
            'hostPath volumes (volumes "v", "w")',
        ),
        (with_members(ports=[{"hostPort": 0}, {"containerPort": 80}]), ""),
        (
            with_members(ports=[{"hostPort": 9}, {"hostPort": 80}, {"hostPort": 9}]),
            'hostPort (container "a" uses hostPorts 80, 9)',
        ),
        (
            {"containers": containers({}, {}, ports=[{"hostPort": 80}])},
            'hostPort (containers "a", "b" use hostPort 80)',
        ),
        (
            {**with_members(ports=[{"hostPort": 80}]), "hostNetwork": True},
            'host namespaces (hostNetwork=true), hostPort (container "a" uses hostPort 80)',
        ),
        (
            with_members(livenessProbe={"tcpSocket": {"host": ""}}, lifecycle={"preStop": HOST}),
            'probe or lifecycle host (container "a" uses probe or lifecycle host "h")',
        ),
        (
            {"containers": containers({}, {}, startupProbe={"tcpSocket": {"host": "i"}}, readinessProbe=HOST)},
            'probe or lifecycle host (containers "a", "b" use probe or lifecycle hosts "h", "i")',
        ),
        (spec({"privileged": False}), ""),
        (
            spec({"privileged": True}),
            'privileged (container "a" must not set securityContext.privileged=true)',
        ),
        (
            spec({"procMount": "Unmasked"}),
            'procMount (container "a" must not set securityContext.procMount to "Unmasked")',
        ),
        (spec({"procMount": "Unmasked"}, hostUsers=False), ""),
        (spec(own={"seLinuxOptions": {"type": "container_engine_t", "level": "s0"}}), ""),
        (
            spec({"seLinuxOptions": {"user": "u"}}, own={"seLinuxOptions": {"type": "spc_t", "role": "r"}}),
            (
                'seLinuxOptions (pod and container "a" set forbidden securityContext.seLinuxOptions: type "spc_t"; '
                "user may not be set; role may not be set)"
            ),
        ),
        (spec(own={"seccompProfile": {"type": "Localhost"}}), ""),
        (
            spec({"seccompProfile": {"type": "Unconfined"}}),
            'seccompProfile (container "a" must not set securityContext.seccompProfile.type to "Unconfined")',
        ),
        (spec(own={"sysctls": SYSCTLS}), "forbidden sysctls (vm.swappiness)"),
        (
            spec(own={"windowsOptions": {"hostProcess": True}}),
            "hostProcess (pod must not set securityContext.windowsOptions.hostProcess=true)",
        ),
    ],
)
def test_baseline(raw: Any, expected: str) -> None:
    assert violation(raw, "baseline") == expected


def test_annotations_of_app_armor() -> None:
    def found(raw: Any, **values: str) -> str:
        return violation(raw, "baseline", annotations={f"{APP_ARMOR}{name}": value for name, value in values.items()})

    text = f'must not set AppArmor profile type to "Unconfined", "{APP_ARMOR}a="unconfined"")'
    assert found(spec(), a="runtime/default", b="localhost/x") == ""
    assert found(spec(), a="unconfined") == f'forbidden AppArmor profiles (container "a" and annotation {text}'
    own = {"appArmorProfile": {"type": "Unconfined"}}
    assert found(spec(own=own), a="unconfined") == f"forbidden AppArmor profiles (pod and annotation {text}"
    assert found(spec({"appArmorProfile": {"type": "Localhost"}}), b="unconfined") == (
        f'forbidden AppArmor profile (annotation must not set AppArmor profile type to "{APP_ARMOR}b="unconfined"")'
    )


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (spec(), ""),
        (
            spec({"allowPrivilegeEscalation": None}, {}, {"allowPrivilegeEscalation": True}),
            (
                'allowPrivilegeEscalation != false (containers "a", "c" must set '
                "securityContext.allowPrivilegeEscalation=false)"
            ),
        ),
        (
            spec({"capabilities": {}}, {"capabilities": {"drop": ["ALL"], "add": ["CHOWN", "NET_BIND_SERVICE"]}}),
            (
                'unrestricted capabilities (container "a" must set securityContext.capabilities.drop=["ALL"]; '
                'container "b" must not include "CHOWN" in securityContext.capabilities.add)'
            ),
        ),
        (
            spec({"procMount": "Unmasked"}, hostUsers=False),
            'procMount (container "a" must not set securityContext.procMount to "Unmasked")',
        ),
        (spec(volumes=[{"name": "v", "configMap": {}}, {"name": "e"}]), ""),
        (
            spec(volumes=[{"name": "v", "hostPath": {}}]),
            'restricted volume types (volume "v" uses restricted volume type "hostPath")',
        ),
        (
            spec(volumes=[{"name": "v", "nfs": {}}, {"name": "w", "hostPath": {}}]),
            'restricted volume types (volumes "v", "w" use restricted volume types "hostPath", "nfs")',
        ),
        (
            spec({"runAsNonRoot": False}, own={"runAsNonRoot": False}),
            'runAsNonRoot != true (pod and container "a" must not set securityContext.runAsNonRoot=false)',
        ),
        (spec({"runAsNonRoot": None}, own={"runAsNonRoot": True}), ""),
        (
            spec({"runAsNonRoot": None}),
            'runAsNonRoot != true (pod or container "a" must set securityContext.runAsNonRoot=true)',
        ),
        (spec({"runAsNonRoot": None, "runAsUser": 0}, hostUsers=False), ""),
        (
            spec({"runAsUser": 0}, {"runAsUser": 1}, own={"runAsUser": 0}),
            'runAsUser=0 (pod and container "a" must not set runAsUser=0)',
        ),
        (spec({"seccompProfile": None}, own={"seccompProfile": {"type": "RuntimeDefault"}}), ""),
        (
            spec({"seccompProfile": None}, {"seccompProfile": {"type": "Unconfined"}}),
            'seccompProfile (container "b" must not set securityContext.seccompProfile.type to "Unconfined")',
        ),
        (
            spec({"seccompProfile": None}),
            (
                'seccompProfile (pod or container "a" must set securityContext.seccompProfile.type to "RuntimeDefault" '
                'or "Localhost")'
            ),
        ),
        ({"containers": [{"name": "a", "securityContext": {"runAsNonRoot": True}}], "os": {"name": "windows"}}, ""),
    ],
)
def test_restricted(raw: Any, expected: str) -> None:
    assert violation(raw, "restricted") == expected


def test_violations_are_listed_in_the_order_of_the_checks() -> None:
    raw = {"initContainers": [{"name": "i"}], "containers": [{"name": "a"}], "hostPID": True}
    assert violation(raw, "restricted") == (
        "host namespaces (hostPID=true), "
        'allowPrivilegeEscalation != false (containers "i", "a" must set '
        "securityContext.allowPrivilegeEscalation=false), "
        'unrestricted capabilities (containers "i", "a" must set securityContext.capabilities.drop=["ALL"]), '
        'runAsNonRoot != true (pod or containers "i", "a" must set securityContext.runAsNonRoot=true), '
        'seccompProfile (pod or containers "i", "a" must set securityContext.seccompProfile.type to "RuntimeDefault" '
        'or "Localhost")'
    )


def test_a_check_applies_from_a_version_on() -> None:
    raw = with_members(lifecycle={"postStart": HOST})
    assert violation(raw, "baseline", "v1.33") == ""
    assert violation(raw, "baseline", "v1.34") != ""
    assert violation(raw, "baseline", "v1.999") != ""


@pytest.mark.parametrize(
    ("raw", "level", "since"),
    [
        (spec(own={"sysctls": SYSCTLS[:1]}), "baseline", 32),
        (spec(own={"seLinuxOptions": {"type": "container_engine_t"}}), "baseline", 31),
        (spec({"procMount": "Unmasked"}, hostUsers=False), "baseline", 35),
        (spec({"runAsNonRoot": None}, hostUsers=False), "restricted", 35),
    ],
)
def test_a_check_is_relaxed_from_a_version_on(raw: Any, level: str, since: int) -> None:
    assert violation(raw, level, f"v1.{since - 1}") != ""
    assert violation(raw, level, f"v1.{since}") == ""


def test_a_version_before_25_is_unknown() -> None:
    labels = {ENFORCE: "baseline", f"{ENFORCE}-version": "v1.24"}
    namespace: Any = {"metadata": {"name": "ml", "labels": labels}}
    creation = PodCreation(pod={"spec": spec()}, namespace="ml", objects=ClusterObjects({"Namespace": [namespace]}))
    validate(creation)
    assert creation.unknown == ["PodSecurity, which is not evaluated for version v1.24"]


def test_labels_of_namespaces() -> None:
    pod = {"spec": spec(hostPID=True)}
    assert refusal(pod) == refusal(pod, enforce="privileged") == ""
    text = "host namespaces (hostPID=true)"
    assert refusal(pod, enforce="Baseline") == f'violates PodSecurity "restricted:latest": {text}'
    assert refusal(pod, enforce="baseline", enforce_version="1.25") == f'violates PodSecurity "baseline:latest": {text}'


@pytest.mark.parametrize("spec", [{"containers": 1}, {"containers": [{"name": "a" * 9, "ports": [{}] * 10**5}] * 10}])
def test_a_pod_that_cannot_be_checked_is_unknown(spec: Any) -> None:
    namespace: Any = {"metadata": {"name": "ml", "labels": {"pod-security.kubernetes.io/enforce": "baseline"}}}
    creation = PodCreation(pod={"spec": spec}, namespace="ml", objects=ClusterObjects({"Namespace": [namespace]}))
    validate(creation)
    (text,) = creation.unknown
    assert text.startswith("PodSecurity, which is not evaluated: ")
