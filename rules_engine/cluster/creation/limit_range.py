"""LimitRanger: default amounts of containers, and bounds of containers and pods.

Source: kubernetes/plugin/pkg/admission/limitranger/admission.go (mergePodResourceRequirements, PodValidateLimitFunc).
"""

from collections.abc import Callable, Iterator, Mapping

from rules_engine.cluster.creation.pod_creation import PodCreation, RefusedError
from rules_engine.model.json.lenient import Object, as_mapping, object_items, text_member
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.cluster_objects import ApiObject
from rules_engine.model.kubernetes.pod import Pod
from rules_engine.model.kubernetes.quantity import Quantity, QuantityError

LIMIT_RANGER_ANNOTATION = "kubernetes.io/limit-ranger"
"""The annotation in which LimitRanger records the amounts that it set."""

PREFIX = "LimitRanger plugin set: "

_LISTS = {"containers": "container", "initContainers": "init container"}

Amounts = Mapping[str, Quantity]


def container_defaults(item: ApiObject) -> Mapping[str, Mapping[str, str]]:
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
    for item in creation.in_namespace("LimitRange"):
        defaults, added = container_defaults(item), []
        for member, title in _LISTS.items():
            containers: list[Json] = []
            for container in object_items(creation.spec.get(member)):
                resources = dict(as_mapping(container.get("resources")))
                for kind, amounts in defaults.items():
                    own = as_mapping(resources.get(kind))
                    lacking = {name: amount for name, amount in amounts.items() if name not in own}
                    if lacking:
                        resources[kind] = {**own, **lacking}
                        name = f"{kind[:-1]} for {title} {text_member(container, 'name')}"
                        added.append(f"{', '.join(sorted(lacking))} {name}")
                containers.append({**container, "resources": resources})
            if containers:
                creation.add_to_spec(**{member: containers})
        if added:
            creation.add_annotation(LIMIT_RANGER_ANNOTATION, PREFIX + "; ".join(added))


def validate(creation: PodCreation) -> None:
    """Refuse amounts outside of the bounds of a LimitRange."""
    items = creation.in_namespace("LimitRange")
    pod = Pod.parse(dict(creation.pod)) if items else None
    for item in items:
        errors = [
            error
            for bounds in object_items(item.spec.get("limits"))
            for requests, limits in _bounded(text_member(bounds, "type"), pod)
            for error in _errors(bounds, requests, limits)
        ]
        if errors:
            raise RefusedError(errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]")


def _bounded(kind: str, pod: Pod | None) -> Iterator[tuple[Amounts, Amounts]]:
    """Yield the requests and limits of what a LimitRange of a type bounds: each container, or the pod as a whole."""
    if pod is not None and kind == "Container":
        yield from ((container.requests, container.limits) for container in pod.all_containers)
    elif pod is not None and kind == "Pod":
        requests = [container.requests for container in pod.containers]
        limits = [container.limits for container in pod.containers]
        yield _aggregate(pod, requests, pod.requests), _aggregate(pod, limits, pod.limits)


def _aggregate(pod: Pod, amounts: list[Amounts], level: Amounts) -> Amounts:
    zero = Quantity(0)
    sums = {
        name: Quantity(
            pod.aggregate([each.get(name, zero).nanos for each in amounts]),
            next(each[name].format for each in amounts if name in each),
        )
        for name in dict.fromkeys(name for each in amounts for name in each)
    }
    return {**sums, **level}


def _errors(bounds: Object, requests: Amounts, limits: Amounts) -> Iterator[str]:
    checks: Mapping[str, Callable[..., str]] = {
        "min": _minimum_error,
        "max": _maximum_error,
        "maxLimitRequestRatio": _ratio_error,
    }
    kind = text_member(bounds, "type")
    for member, check in checks.items():
        for name, text in _texts(bounds, member).items():
            try:
                bound = Quantity.parse(text)
            except QuantityError:  # which the API server stores none of
                continue
            error = check(f"{name} usage per {kind} is", name, kind, bound, requests.get(name), limits.get(name))
            if error:
                yield error


def _minimum_error(
    text: str, _name: str, _kind: str, bound: Quantity, request: Quantity | None, limit: Quantity | None
) -> str:
    if request is None:
        return f"minimum {text} {bound}.  No request is specified"
    if request < bound:
        return f"minimum {text} {bound}, but request is {request}"
    return f"minimum {text} {bound}, but limit is {limit}" if limit is not None and limit < bound else ""


def _maximum_error(
    text: str, _name: str, _kind: str, bound: Quantity, request: Quantity | None, limit: Quantity | None
) -> str:
    if limit is None:
        return f"maximum {text} {bound}.  No limit is specified"
    if bound < limit:
        return f"maximum {text} {bound}, but limit is {limit}"
    return f"maximum {text} {bound}, but request is {request}" if request is not None and bound < request else ""


def _ratio_error(
    _text: str, name: str, kind: str, bound: Quantity, request: Quantity | None, limit: Quantity | None
) -> str:
    text = f"{name} max limit to request ratio per {kind} is {bound}, but"
    if not request:
        return f"{text} no request is specified or request is 0"
    if not limit:
        return f"{text} no limit is specified or limit is 0"
    exceeds = limit.nanos * 10**9 > bound.nanos * request.nanos
    return f"{text} provided ratio is {limit.nanos / request.nanos:f}" if exceeds else ""
