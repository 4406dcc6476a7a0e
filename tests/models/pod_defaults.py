"""A second implementation of PodDefaults, written from their specification alone.

Rules, pods and clusters are plain JSON in the terms of the documents; no code of the engine is used. Expressions are
looked up in a table. Everything is computed on whole objects; nothing is a patch.
"""

import copy
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from fractions import Fraction
from math import ceil
from typing import Any

from tests.models.quantities import read

MAX_CONTAINERS = 256
DEFAULT_SCHEDULER = "default-scheduler"
GPUS = frozenset(
    {
        "nvidia.com/gpu",
        "nvidia.com/mig-1g.10gb",
        "nvidia.com/mig-2g.20gb",
        "nvidia.com/mig-3g.40gb",
        "amd.com/gpu",
        "amd.com/mig-x",
    }
)
"""The GPU resources of generated pods."""

LABEL_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
SUBDOMAIN = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*")


class Failure(Exception):  # noqa: N818 - as in "a failure of the rule"
    """A rule that cannot be evaluated."""


@dataclass
class World:
    """The cluster. `default_classes`: names of PriorityClasses that are the default; None if they were not read.

    `runtime_classes`: the `scheduling` of each RuntimeClass.
    """

    namespace: str
    labels: Mapping[str, str] | None
    default_classes: frozenset[str] | None = frozenset()
    runtime_classes: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class Outcome:
    """Result for a pod. `failed`: enforcing rules that could not be evaluated; `unknown`: rules that needed the
    PriorityClasses; `claimed`: keys that rules decided; `volumes`: volumes that the pod gets, each if it needs no mount
    or some container mounts it."""

    pod: Any
    allowed: bool = True
    failed: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    claimed: set[Any] = field(default_factory=set)
    volumes: dict[str, tuple[Any, bool]] = field(default_factory=dict)


@dataclass
class Scope:
    """The values of names in the expressions of a rule."""

    pod: Any
    rule: Any
    world: World

    def call(self, text: str) -> Any:
        return EXPRESSIONS[text](self)

    def label(self, name: str) -> str:
        return str(found(of(self.pod["metadata"], "labels"), name))

    def annotation(self, name: str) -> str:
        return str(found(of(self.pod["metadata"], "annotations"), name))

    def namespace_label(self, name: str, default: str) -> str:
        return str(namespace_labels(self.world).get(name, default))

    def param(self, name: str) -> Any:
        return found(self.rule.get("params", {}), name)

    def variable(self, name: str) -> Any:
        return self.call(next(item["expression"] for item in self.rule.get("variables", []) if item["name"] == name))

    def requested(self, resource: str) -> int:
        return requested(self.pod, resource)


def found(members: Mapping[str, Any], name: str) -> Any:
    if name not in members:
        raise Failure(f"no such key: {name}")
    return members[name]


EXPRESSIONS: Mapping[str, Callable[[Scope], Any]] = {
    "string(requested('nvidia.com/gpu') * 8) + 'Gi'": lambda s: f"{s.requested('nvidia.com/gpu') * 8}Gi",
    "string(requested('memory') / 1048576) + 'Mi'": lambda s: f"{s.requested('memory') // 1048576}Mi",
    "string(requested('cpu'))": lambda s: str(s.requested("cpu")),
    "'n' + string(requested('nvidia.com/mig-1g.10gb'))": lambda s: f"n{s.requested('nvidia.com/mig-1g.10gb')}",
    "namespaceObject.metadata.?labels[?'team'].orValue('none')": lambda s: s.namespace_label("team", "none"),
    "namespaceObject.metadata.name": lambda s: (namespace_labels(s.world), s.world.namespace)[1],
    "params.pool": lambda s: s.param("pool"),
    "params.classes[namespaceObject.metadata.name]": lambda s: found(
        s.param("classes"), (namespace_labels(s.world), s.world.namespace)[1]
    ),
    "variables.team": lambda s: s.variable("team"),
    "object.metadata.labels['app']": lambda s: s.label("app"),
    "object.metadata.labels['team']": lambda s: s.label("team"),
    "object.metadata.annotations['size']": lambda s: s.annotation("size"),
    "object.metadata.?annotations[?'note'].orValue('hello world')": lambda s: of(s.pod["metadata"], "annotations").get(
        "note", "hello world"
    ),
    "requested('nvidia.com/gpu') > 1": lambda s: s.requested("nvidia.com/gpu") > 1,
    "requested('nvidia.com/mig-1g.10gb') > 0": lambda s: s.requested("nvidia.com/mig-1g.10gb") > 0,
    "object.metadata.labels['app'] == 'train'": lambda s: s.label("app") == "train",
    "namespaceObject.metadata.?labels[?'team'].orValue('none') == 'research'": lambda s: (
        s.namespace_label("team", "none") == "research"
    ),
    "variables.team == 'research'": lambda s: s.variable("team") == "research",
    "'note' in object.metadata.?annotations.orValue({})": lambda s: "note" in of(s.pod["metadata"], "annotations"),
}
"""Expressions of generated rules, with their values."""


def namespace_labels(world: World) -> Mapping[str, str]:
    if world.labels is None:
        raise Failure("namespace not found")
    return {**world.labels, "kubernetes.io/metadata.name": world.namespace}


def mutate(pod: Any, rules: Sequence[Any], world: World) -> Outcome:
    """Evaluate all PodDefaults on a pod. `rules`: documents."""
    outcome = Outcome(copy.deepcopy(pod))
    world = World(
        pod["metadata"].get("namespace") or world.namespace, world.labels, world.default_classes, world.runtime_classes
    )
    for document in sorted(rules, key=lambda each: (-each["spec"].get("priority", 0), each["metadata"]["name"])):
        rule = document["spec"]
        if rule.get("mode", "Enforce") != "Enforce":
            continue
        scope = Scope(pod, rule, world)
        try:
            entry = compute(entry_of(rule, world.namespace), scope) if applies(scope) else None
        except Failure:
            outcome.failed.append(document["metadata"]["name"])
            outcome.allowed &= rule.get("failurePolicy", "Fail") == "Ignore"
            continue
        if entry is not None:
            merge(outcome, document, entry, world)
    mounted = {mount["name"] for _, mount in all_mounts(outcome.pod)}
    added = [volume for name, (volume, needs_mount) in outcome.volumes.items() if name in mounted or not needs_mount]
    if added:
        outcome.pod["spec"]["volumes"] = [*items(outcome.pod["spec"], "volumes"), *added]
    return outcome


# Matching


def applies(scope: Scope) -> bool:
    """Return whether the rule matches the pod, is not opted out of, and its conditions hold. Raises Failure."""
    rule, pod, namespace = scope.rule, scope.pod, scope.world.namespace
    match = rule.get("match", {})
    if not any(fnmatchcase(namespace, glob) for glob in match.get("namespaces", ["*"])):
        return False
    if any(fnmatchcase(namespace, glob) for glob in match.get("excludeNamespaces", [])):
        return False
    if not selects(match.get("objectSelector", {}), of(pod["metadata"], "labels")):
        return False
    globs = match.get("resources", [])
    if globs and not any(fnmatchcase(name, glob) for name in names_of(pod) for glob in globs):
        return False
    if match.get("namespaceSelector") and not selects(match["namespaceSelector"], namespace_labels(scope.world)):
        return False
    skip = of(pod["metadata"], "annotations").get("gpurules.io/skip")
    if skip == "true" and rule.get("optOut", "Allowed") == "Allowed":
        return False
    failure = None
    for condition in rule.get("matchConditions", []):
        try:
            if not scope.call(condition["expression"]):
                return False
        except Failure as error:
            failure = error
    if failure:
        raise failure
    return True


def selects(selector: Any, labels: Mapping[str, str]) -> bool:
    """Return whether a LabelSelector matches labels."""
    for key, value in selector.get("matchLabels", {}).items():
        if labels.get(key) != value:
            return False
    for line in selector.get("matchExpressions", []):
        value = labels.get(line["key"])
        holds = {
            "In": value is not None and value in line.get("values", ()),
            "NotIn": value not in line.get("values", ()),
            "Exists": value is not None,
            "DoesNotExist": value is None,
        }
        if not holds[line["operator"]]:
            return False
    return True


# Pods


def of(parent: Any, name: str) -> dict[str, Any]:
    """Return a map; null counts as absent."""
    return parent.get(name) or {}


def items(parent: Any, name: str) -> list[Any]:
    """Return a list; null counts as absent."""
    return parent.get(name) or []


def all_containers(pod: Any) -> list[Any]:
    return [*items(pod["spec"], "containers"), *items(pod["spec"], "initContainers")]


def amounts(container: Any, name: str) -> list[Fraction]:
    """Return limit and request of a resource, as far as the container has them."""
    resources = of(container, "resources")
    texts = [of(resources, section).get(name) for section in ("limits", "requests")]
    return [value_of(text) for text in texts if text is not None]


def value_of(text: str) -> Fraction:
    quantity = read(str(text))
    assert quantity
    return quantity.value


def names_of(pod: Any) -> set[str]:
    """Return the resources that containers name, whatever the amounts."""
    sections = [section for item in all_containers(pod) for section in of(item, "resources").values()]
    return {name for section in sections for name in section or ()}


def requested(pod: Any, resource: str) -> int:
    """Return the pod's effective request: of what runs together, or the most that an init container needs before."""

    def own(container: Any) -> Fraction:
        return next(iter(amounts(container, resource)), Fraction(0))

    started = peak = Fraction(0)
    for container in items(pod["spec"], "initContainers"):
        if container.get("restartPolicy") == "Always":
            started += own(container)
        else:
            peak = max(peak, started + own(container))
    running = started + sum((own(container) for container in pod["spec"]["containers"]), Fraction(0))
    return ceil(max(running, peak))


def chooses(which: Any, rule: Any, container: Any) -> bool:
    """Return whether an item of `containers` is about a container."""
    if isinstance(which, dict):
        return bool(container["name"] in which["names"])
    if which == "All":
        return True
    globs = rule.get("match", {}).get("resources", [])
    requests = any(
        any(fnmatchcase(name, glob) for glob in globs) if globs else name in GPUS
        for name in names_of({"spec": {"containers": [container]}})
        if any(amount > 0 for amount in amounts(container, name))
    )
    return requests is (which == "Requesting")


# Entries of namespaces


def entry_of(rule: Any, namespace: str) -> Any:
    """Return what the rule adds in a namespace: `pod` and `containers`."""
    default = {"pod": rule.get("pod", {}), "containers": rule.get("containers", [])}
    own = rule.get("namespaces", {}).get(namespace)
    if own is None:
        return default
    if own.get("inherit") != "Merge":
        return own
    return {
        "pod": {
            "metadata": inherit_members(
                default["pod"].get("metadata", {}), own.get("pod", {}).get("metadata", {}), ("labels", "annotations")
            ),
            "spec": inherit_spec(default["pod"].get("spec", {}), own.get("pod", {}).get("spec", {})),
        },
        "containers": inherit_containers(default["containers"], own.get("containers", [])),
    }


def inherit_members(default: Any, own: Any, maps: Sequence[str]) -> Any:
    """Merge maps; a key that is computed in one and plain in the other has the form of the namespace's entry."""
    result = {}
    for name in maps:
        computed = f"{name}Expression"
        keys = {*own.get(name, {}), *own.get(computed, {})}
        for form in (name, computed):
            kept = {key: value for key, value in default.get(form, {}).items() if key not in keys}
            result[form] = {**kept, **own.get(form, {})}
    return result


def inherit_spec(default: Any, own: Any) -> Any:
    result = inherit_members(default, own, ("nodeSelector",))
    for name in ("runtimeClassName", "priorityClassName", "schedulerName"):
        computed = f"{name}Expression"
        source = own if name in own or computed in own else default
        result |= {form: source[form] for form in (name, computed) if form in source}
    result["tolerations"] = [*default.get("tolerations", [])]
    for toleration in own.get("tolerations", []):
        if toleration not in result["tolerations"]:
            result["tolerations"].append(toleration)
    for name in ("imagePullSecrets", "volumes"):
        result[name] = inherit_items(default.get(name, []), own.get(name, []), lambda item: item["name"])
    return result


def inherit_items(default: Sequence[Any], own: Sequence[Any], key: Callable[[Any], str]) -> list[Any]:
    """Merge lists by key: items of the namespace's entry replace those of the default in place, others follow."""
    result = [next((new for new in own if key(new) == key(old)), old) for old in default]
    return [*result, *(new for new in own if key(new) not in {key(old) for old in default})]


def inherit_containers(default: Sequence[Any], own: Sequence[Any]) -> list[Any]:
    result = copy.deepcopy([*default])
    for new in own:
        old = next((item for item in result if item["which"] == new["which"]), None)
        if old is None:
            result.append(new)
            continue
        old["env"] = inherit_items(old.get("env", []), new.get("env", []), lambda item: item["name"])
        old["volumeMounts"] = inherit_items(old.get("volumeMounts", []), new.get("volumeMounts", []), path_of)
    return result


# Computed values


def compute(entry: Any, scope: Scope) -> Any:
    """Return the entry with values in place of all expressions. Raises Failure."""
    metadata, spec = entry.get("pod", {}).get("metadata", {}), entry.get("pod", {}).get("spec", {})
    if entry.get("containers") and len(all_containers(scope.pod)) > MAX_CONTAINERS:
        raise Failure("too many containers")
    return {
        "labels": computed_map(metadata, "labels", scope, label_value),
        "annotations": computed_map(metadata, "annotations", scope, text_value),
        "nodeSelector": computed_map(spec, "nodeSelector", scope, label_value),
        **{
            name: computed(spec, name, scope, subdomain)
            for name in ("runtimeClassName", "priorityClassName", "schedulerName")
        },
        "tolerations": [computed_member(item, "value", scope, label_value) for item in spec.get("tolerations", [])],
        "imagePullSecrets": spec.get("imagePullSecrets", []),
        "volumes": [computed_volume(item, scope) for item in spec.get("volumes", [])],
        "containers": [
            {
                "which": item["which"],
                "env": [
                    computed_member(variable, "value", scope, text_value)
                    for variable in item.get("env", [])
                    if is_used(entry["containers"][:index], item, variable["name"], scope)
                ],
                "volumeMounts": item.get("volumeMounts", []),
            }
            for index, item in enumerate(entry.get("containers", []))
        ],
    }


def is_used(before: Sequence[Any], item: Any, name: str, scope: Scope) -> bool:
    """Return whether some container gets a variable from this item; the expressions of others are not evaluated."""
    return any(
        chooses(item["which"], scope.rule, container)
        and not any(
            chooses(other["which"], scope.rule, container) and name in [each["name"] for each in other.get("env", [])]
            for other in before
        )
        for container in all_containers(scope.pod)
    )


def computed(members: Any, name: str, scope: Scope, check: Callable[[Any], Any]) -> Any:
    if f"{name}Expression" in members:
        return check(scope.call(members[f"{name}Expression"]))
    return members.get(name)


def computed_map(members: Any, name: str, scope: Scope, check: Callable[[Any], Any]) -> dict[str, str]:
    expressions = members.get(f"{name}Expression", {})
    return {**members.get(name, {}), **{key: check(scope.call(text)) for key, text in expressions.items()}}


def computed_member(item: Any, name: str, scope: Scope, check: Callable[[Any], Any]) -> Any:
    """Return an item of a list with the value of its expression, which stays where it is written."""
    expression = f"{name}Expression"
    return {
        (name if key == expression else key): (check(scope.call(value)) if key == expression else value)
        for key, value in item.items()
    }


def computed_volume(volume: Any, scope: Scope) -> Any:
    if "emptyDir" not in volume:
        return volume
    return {**volume, "emptyDir": computed_member(volume["emptyDir"], "sizeLimit", scope, quantity_text)}


def text_value(value: Any) -> str:
    if not isinstance(value, str):
        raise Failure("not a string")
    return value


def label_value(value: Any) -> str:
    if not LABEL_VALUE.fullmatch(text_value(value)):
        raise Failure(f"no label value: {value}")
    return str(value)


def subdomain(value: Any) -> str:
    if len(text_value(value)) > 253 or not SUBDOMAIN.fullmatch(value):
        raise Failure(f"no DNS subdomain: {value}")
    return str(value)


def quantity_text(value: Any) -> str:
    if read(text_value(value)) is None:
        raise Failure(f"no quantity: {value}")
    return str(value)


# Merging


def claims(outcome: Outcome, *key: Any) -> bool:
    """Return whether no rule named the key before; from now on this one decides it."""
    if key in outcome.claimed:
        return False
    outcome.claimed.add(key)
    return True


def merge(outcome: Outcome, document: Any, entry: Any, world: World) -> None:
    """Merge what a rule adds into the pod, all but its volumes."""
    pod, overwrite = outcome.pod, document["spec"].get("onConflict", "Keep") == "Overwrite"
    for parent, name in (("metadata", "labels"), ("metadata", "annotations"), ("spec", "nodeSelector")):
        for key, value in entry[name].items():
            old = of(pod[parent], name).get(key)
            if claims(outcome, name, key) and (old is None or (overwrite and old != value)):
                pod[parent][name] = {**of(pod[parent], name), key: value}
    spec = pod["spec"]
    if entry["runtimeClassName"] and claims(outcome, "runtimeClassName") and not spec.get("runtimeClassName"):
        spec["runtimeClassName"] = entry["runtimeClassName"]
    if entry["schedulerName"] and claims(outcome, "schedulerName"):
        own = spec.get("schedulerName") or DEFAULT_SCHEDULER
        if spec.get("schedulerName") != entry["schedulerName"] and (own == DEFAULT_SCHEDULER or overwrite):
            spec["schedulerName"] = entry["schedulerName"]
    if entry["priorityClassName"] and claims(outcome, "priorityClassName"):
        merge_priority(outcome, document, entry["priorityClassName"], world)
    for toleration in entry["tolerations"]:
        present = items(spec, "tolerations")
        if not any(toleration_key(old) == toleration_key(toleration) for old in present):
            spec["tolerations"] = [*present, toleration]
    for secret in entry["imagePullSecrets"]:
        present = items(spec, "imagePullSecrets")
        if claims(outcome, "secret", secret["name"]) and all(old.get("name") != secret["name"] for old in present):
            spec["imagePullSecrets"] = [*present, secret]
    usable = {volume["name"]: is_usable(outcome, volume, overwrite) for volume in entry["volumes"]}
    for number, container in enumerate(all_containers(pod)):
        for chosen in entry["containers"]:
            if chooses(chosen["which"], document["spec"], container):
                merge_container(outcome, usable, chosen, number, container, overwrite)
    for volume in entry["volumes"]:
        names = [mount["name"] for item in entry["containers"] for mount in item["volumeMounts"]]
        mounted = is_mounted(outcome, document, entry, volume["name"])
        if volume["name"] in names and usable[volume["name"]] and not mounted:
            # The rule decides nothing, but mounts of other rules may lack the volume.
            if volume_of(outcome, volume["name"]) is None:
                outcome.volumes.setdefault(volume["name"], (volume, True))
        elif claims(outcome, "volume", volume["name"]):
            merge_volume(outcome, volume, overwrite)


def is_mounted(outcome: Outcome, document: Any, entry: Any, name: str) -> bool:
    """Return whether a container mounts a volume where an item of the rule that chooses the container says so."""
    wanted = [
        (id(container), name, path_of(mount))
        for container in all_containers(outcome.pod)
        for item in entry["containers"]
        if chooses(item["which"], document["spec"], container)
        for mount in item["volumeMounts"]
        if mount["name"] == name
    ]
    return any((id(each), mount["name"], path_of(mount)) in wanted for each, mount in all_mounts(outcome.pod))


def merge_priority(outcome: Outcome, document: Any, wanted: str, world: World) -> None:
    spec, overwrite = outcome.pod["spec"], document["spec"].get("onConflict", "Keep") == "Overwrite"
    name = spec.get("priorityClassName") or ""
    if name == wanted:
        return
    if name and not overwrite:
        if world.default_classes is None:
            outcome.unknown.append(document["metadata"]["name"])
            return
        if name not in world.default_classes:
            return
    spec["priorityClassName"] = wanted
    spec.pop("priority", None)
    spec.pop("preemptionPolicy", None)


def merge_container(
    outcome: Outcome, usable: Mapping[str, bool], chosen: Any, number: int, container: Any, overwrite: bool
) -> None:
    for variable in chosen["env"]:
        if claims(outcome, "env", number, variable["name"]):
            put(container, "env", variable, lambda item: str(item["name"]), plain_env, overwrite)
    for mount in chosen["volumeMounts"]:
        if claims(outcome, "mount", number, path_of(mount)) and usable.get(mount["name"], True):
            put(container, "volumeMounts", mount, path_of, plain_mount, overwrite)


def put(
    parent: Any, name: str, new: Any, key: Callable[[Any], str], plain: Callable[[Any], Any], overwrite: bool
) -> None:
    """Add an item to a list, or replace the item of the same key."""
    present = items(parent, name)
    places = [index for index, old in enumerate(present) if key(old) == key(new)]
    if not places:
        parent[name] = [*present, new]
    elif overwrite and plain(present[places[-1]]) != plain(new):  # of several variables of a name, the last counts
        present[places[-1]] = new


def all_mounts(pod: Any) -> list[tuple[Any, Any]]:
    """Return the mounts of all containers, each with its container."""
    return [(container, mount) for container in all_containers(pod) for mount in items(container, "volumeMounts")]


def volume_of(outcome: Outcome, name: str) -> Any:
    """Return the volume that a mount gets, as far as rules have decided; None if there is none yet."""
    volume, needs_mount = outcome.volumes.get(name, (None, False))
    if volume and not needs_mount:
        return volume
    return next((old for old in items(outcome.pod["spec"], "volumes") if old["name"] == name), None)


def is_usable(outcome: Outcome, volume: Any, overwrite: bool) -> bool:
    """Return whether a rule's mounts of its volume would get this volume."""
    old = volume_of(outcome, volume["name"])
    decides = ("volume", volume["name"]) not in outcome.claimed
    return old is None or plain_volume(old) == plain_volume(volume) or (decides and overwrite)


def merge_volume(outcome: Outcome, volume: Any, overwrite: bool) -> None:
    name, spec = volume["name"], outcome.pod["spec"]
    old = volume_of(outcome, name)
    if old is None:
        outcome.volumes.pop(name, None)
        outcome.volumes[name] = volume, False
    elif overwrite and plain_volume(old) != plain_volume(volume):
        spec["volumes"] = [volume if each is old else each for each in spec["volumes"]]


# Equality after the API server's defaults


def toleration_key(toleration: Any) -> Any:
    return (
        toleration.get("key") or "",
        toleration.get("operator") or "Equal",
        toleration.get("value") or "",
        toleration.get("effect") or "",
        toleration.get("tolerationSeconds"),
    )


def path_of(mount: Any) -> str:
    return str(mount["mountPath"]).rstrip("/")


DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "configMap": {"defaultMode": 420},
    "secret": {"defaultMode": 420},
    "projected": {"defaultMode": 420},
    "downwardAPI": {"defaultMode": 420},
    "fieldRef": {"apiVersion": "v1"},
    "resourceFieldRef": {"divisor": "0"},
    "serviceAccountToken": {"expirationSeconds": 3600},
    "image": {"pullPolicy": "IfNotPresent"},
    "spec": {"volumeMode": "Filesystem"},
}
"""Members that the API server sets in the members of these names.

Sources of projected volumes have no `defaultMode`; it makes no difference there, where nobody can write one. Images of
generated volumes have versions.
"""


def plain(value: Any, below: str = "") -> Any:
    """Return a value with the API server's defaults, and without null, false and "", which are not stored."""
    if isinstance(value, dict):
        kept = {key: plain(item, key) for key, item in value.items() if item not in (None, "", False)}
        return {**DEFAULTS.get(below, {}), **kept}
    return [plain(item) for item in value] if isinstance(value, list) else value


def plain_env(variable: Any) -> Any:
    return plain(variable)


def plain_mount(mount: Any) -> Any:
    return {**plain(mount), "mountPath": path_of(mount)}


def plain_volume(volume: Any) -> Any:
    result = plain(volume)
    if "sizeLimit" in result.get("emptyDir", {}):
        result["emptyDir"]["sizeLimit"] = value_of(result["emptyDir"]["sizeLimit"])
    if "ephemeral" in result:
        requests = result["ephemeral"]["volumeClaimTemplate"]["spec"]["resources"]["requests"]
        requests["storage"] = value_of(requests["storage"])
    return result if len(result) > 1 else {**result, "emptyDir": {}}


# The pod as it will be


def placed(pod: Any, rules: Sequence[Any], world: World) -> Any:
    """Return a pod with the tolerations, node selector and runtime class of its PodDefaults, for ladders.

    The API server adds what the class requires, if it has not already.
    """
    after = mutate(pod, rules, world).pod["spec"]
    result = copy.deepcopy(pod)
    for name in ("tolerations", "nodeSelector", "runtimeClassName"):
        if name in after:
            result["spec"][name] = after[name]
    spec = result["spec"]
    if spec.get("runtimeClassName"):
        scheduling = world.runtime_classes.get(spec["runtimeClassName"], {})
        selector = of(spec, "nodeSelector")
        for key, value in scheduling.get("nodeSelector", {}).items():
            # A pod that selects another value would be refused: no node has both.
            selector = {**selector, key: value if selector.get(key, value) == value else "no node"}
        if selector:
            spec["nodeSelector"] = selector
        spec["tolerations"] = [*items(spec, "tolerations"), *scheduling.get("tolerations", [])]
    return result
