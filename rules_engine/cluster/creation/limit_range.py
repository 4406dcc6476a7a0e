"""LimitRanger: default amounts of containers, and bounds of containers and pods.

Source: kubernetes/plugin/pkg/admission/limitranger/admission.go (mergePodResourceRequirements, PodValidateLimitFunc).
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from rules_engine.cluster.creation.pod_creation import PodCreation, RefusedError, aggregate, read_amounts
from rules_engine.model.json.lenient import Object, as_mapping, object_items, text_member
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.api_defaults import with_containers
from rules_engine.model.kubernetes.cluster_objects import ApiObject
from rules_engine.model.kubernetes.pod import Pod
from rules_engine.model.kubernetes.quantity import NANOS, Quantity

LIMIT_RANGER_ANNOTATION = "kubernetes.io/limit-ranger"
"""The annotation in which LimitRanger records the amounts that it set."""

MAX_AMOUNTS = 1000
"""Amounts of a LimitRange, which are compared for each container of each pod: a LimitRange has some ten."""

UNKNOWN_ORDER = "the LimitRange"
"""The beginning of what is unknown if several LimitRanges set different amounts. It may also let a pod start."""

_TITLES = {"containers": "container", "initContainers": "init container"}

Amounts = Mapping[str, Quantity]

Defaults = Mapping[str, Mapping[str, str]]
"""Amounts of `requests` and `limits` by resource."""


def _container_defaults(item: ApiObject) -> Defaults:
    """Return the default `requests` and `limits` of containers (pkg/apis/core/v1, SetDefaults_LimitRangeItem)."""
    limits: dict[str, str] = {}
    requests: dict[str, str] = {}
    for bounds in object_items(item.spec.get("limits")):
        if text_member(bounds, "type") == "Container":
            own = {**_texts(bounds, "max"), **_texts(bounds, "default")}
            limits |= own
            requests |= {**_texts(bounds, "min"), **own, **_texts(bounds, "defaultRequest")}
    return {"requests": requests, "limits": limits}


def _texts(bounds: Object, member: str) -> dict[str, str]:
    return {name: str(amount) for name, amount in as_mapping(bounds.get(member)).items()}


def mutate(creation: PodCreation) -> None:
    """Set the amounts that containers lack, and record them in an annotation."""
    every = [_container_defaults(item) for item in _read_items(creation)]
    _note_order(creation, every)
    for defaults in every:
        added: list[str] = []
        with_amounts = partial(_with_amounts, defaults, added)
        creation.add_to_spec(**with_containers(creation.spec, with_amounts))
        if added:
            recorded = {LIMIT_RANGER_ANNOTATION: f"LimitRanger plugin set: {'; '.join(added)}"}
            annotations = {**as_mapping(creation.metadata.get("annotations")), **recorded}
            creation.pod = {**creation.pod, "metadata": {**creation.metadata, "annotations": annotations}}


def amounts_set(annotations: Mapping[str, str]) -> frozenset[tuple[str, str, str]]:
    """Return what LimitRanger has set in a pod: a container's list and name, limits or requests, and the resource."""
    _, _, parts = annotations.get(LIMIT_RANGER_ANNOTATION, "").partition(": ")
    members = {title: member for member, title in _TITLES.items()}
    found: list[tuple[str, str, str]] = []
    for part in parts.split("; "):
        names, _, owner = part.partition(" for ")
        title, _, container = owner.rpartition(" ")
        resources, _, kind = names.rpartition(" ")
        place = f"{members.get(title, '')}/{container}"
        found += [(place, f"{kind}s", name) for name in resources.split(", ")]
    return frozenset(found)


def _read_items(creation: PodCreation) -> Sequence[ApiObject]:
    """Return the LimitRanges of the namespace, but those with too many amounts, which are noted as unknown."""
    items = creation.in_namespace("LimitRange")
    bounds = {item.name: object_items(item.spec.get("limits")) for item in items}
    amounts = {name: [as_mapping(part) for each in limits for part in each.values()] for name, limits in bounds.items()}
    large = [item for item in items if len(bounds[item.name]) + sum(map(len, amounts[item.name])) > MAX_AMOUNTS]
    creation.unknown += [f"LimitRange {item.name}, which has more than {MAX_AMOUNTS:,} amounts" for item in large]
    return [item for item in items if item not in large]


def _note_order(creation: PodCreation, every: Sequence[Defaults]) -> None:
    """Note the amounts that depend on the order of LimitRanges, which the API server has from an unordered cache."""
    for container in [each for member in _TITLES for each in object_items(creation.spec.get(member))]:
        for kind in ("limits", "requests"):
            own = as_mapping(as_mapping(container.get("resources")).get(kind))
            for name in sorted({name for defaults in every for name in defaults[kind] if name not in own}):
                texts = sorted({defaults[kind][name] for defaults in every if name in defaults[kind]})
                if len(texts) > 1:
                    of = f"{kind}.{name} of container {text_member(container, 'name')}"
                    creation.unknown.append(f"{UNKNOWN_ORDER} that sets {of}: {' or '.join(texts)}")


def _with_amounts(defaults: Defaults, added: list[str], member: str, container: Object) -> Json:
    resources = dict(as_mapping(container.get("resources")))
    for kind, amounts in defaults.items():
        own = as_mapping(resources.get(kind))
        lacking = {name: amount for name, amount in amounts.items() if name not in own}
        if lacking:
            resources[kind] = {**own, **lacking}
            name = f"{kind[:-1]} for {_TITLES[member]} {text_member(container, 'name')}"
            added.append(f"{', '.join(sorted(lacking))} {name}")
    return {**container, "resources": resources}


def validate(creation: PodCreation) -> None:
    """Refuse amounts outside of the bounds of a LimitRange."""
    items = _read_items(creation)
    if not items:
        return
    pod = Pod.parse(dict(creation.pod))
    for item in items:
        # Equal errors of several containers are one (apimachinery, pkg/util/errors, aggregate.Error).
        errors = dict.fromkeys(
            error
            for bounds in object_items(item.spec.get("limits"))
            for requests, limits in _bounded(text_member(bounds, "type"), pod)
            for error in _errors(bounds, requests, limits)
        )
        if errors:
            text = ", ".join(errors)
            raise RefusedError(text if len(errors) == 1 else f"[{text}]")


def _bounded(kind: str, pod: Pod) -> Sequence[tuple[Amounts, Amounts]]:
    """Return the requests and limits of what a LimitRange of a type bounds: each container, or the pod as a whole."""
    if kind == "Container":
        return [(container.requests, container.limits) for container in pod.all_containers]
    requests = [container.requests for container in pod.containers]
    limits = [container.limits for container in pod.containers]
    whole = (_aggregate(pod, requests, pod.requests), _aggregate(pod, limits, pod.limits))
    return [whole] if kind == "Pod" else []


def _aggregate(pod: Pod, amounts: Sequence[Amounts], level: Amounts) -> Amounts:
    names = dict.fromkeys(name for each in amounts for name in each)
    return {**{name: aggregate(pod, [each.get(name) for each in amounts]) for name in names}, **level}


def _errors(bounds: Object, requests: Amounts, limits: Amounts) -> Iterator[str]:
    kind, by_word = text_member(bounds, "type"), {"request": requests, "limit": limits}
    for bound_word, words, sign in (("minimum", ("request", "limit"), 1), ("maximum", ("limit", "request"), -1)):
        for name, bound in read_amounts(bounds.get(bound_word[:3])).items():
            text = f"{bound_word} {name} usage per {kind} is {bound}"
            amounts = {word: by_word[word][name] for word in words if name in by_word[word]}
            outside = [word for word, amount in amounts.items() if (amount.nanos - bound.nanos) * sign < 0]
            if words[0] not in amounts:
                yield f"{text}.  No {words[0]} is specified"
            elif outside:
                yield f"{text}, but {outside[0]} is {amounts[outside[0]]}"
    for name, bound in read_amounts(bounds.get("maxLimitRequestRatio")).items():
        text = f"{name} max limit to request ratio per {kind} is {bound}, but"
        missing = [word for word, each in by_word.items() if not each.get(name)]
        if missing:
            yield f"{text} no {missing[0]} is specified or {missing[0]} is 0"
        elif limits[name].nanos * NANOS > bound.nanos * requests[name].nanos:
            yield f"{text} provided ratio is {limits[name].nanos / requests[name].nanos:f}"
