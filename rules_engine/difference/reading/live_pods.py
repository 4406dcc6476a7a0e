"""Live pods → pods as they were submitted. Rules have already changed their resources and annotations."""

from collections.abc import Iterator, Mapping

from rules_engine.model.json.lenient import Object, controller, mapping, objects, strings, text
from rules_engine.model.json.patch import Json
from rules_engine.model.json.strict import PodError
from rules_engine.model.pod import Container, Pod

_LATER_METADATA = frozenset(
    {
        "creationTimestamp",
        "deletionGracePeriodSeconds",
        "deletionTimestamp",
        "generation",
        "managedFields",
        "resourceVersion",
        "selfLink",
        "uid",
    }
)
"""Members of metadata that the API server writes after the admission of a pod."""

_CONTROLLERS_ANNOTATIONS = ("batch.kubernetes.io/job-completion-index", "kubernetes.io/config.mirror")
"""Annotations that a controller or a kubelet adds to the template's before it submits a pod, and that are no one's
else: those of static pods follow from the first of them."""

_LISTS = ("containers", "initContainers")


def as_it_is(pod: dict[str, Json]) -> dict[str, Json]:
    """Return a live pod as if it were submitted now: without what the API server, the scheduler and kubelets write."""
    metadata = {name: value for name, value in mapping(pod.get("metadata")).items() if name not in _LATER_METADATA}
    if metadata.get("generateName"):
        # The API server makes the name after the admission.
        metadata.pop("name", None)
    later = {"ephemeralContainers"} if _is_static(pod) else {"ephemeralContainers", "nodeName"}
    spec = {name: value for name, value in mapping(pod.get("spec")).items() if name not in later}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _is_static(pod: dict[str, Json]) -> bool:
    """Return True for a static pod, which a kubelet submits for its own node."""
    owner = controller(pod)
    return owner is not None and text(owner, "kind") == "Node"


def turned_back(pod: dict[str, Json], template: Object) -> dict[str, Json] | None:
    """Return a live pod with the resources and annotations of its controller's template; None if it is of another one.

    All else stays as it is: labels, tolerations and the priority, which controllers and the API server add before
    webhooks are called, and containers that other webhooks inject.
    """
    found = as_it_is(pod)
    metadata, spec = dict(mapping(found["metadata"])), dict(mapping(found["spec"]))
    own, written = mapping(template.get("metadata")), mapping(template.get("spec"))
    observed = strings(metadata.get("annotations"))
    added = {name: observed[name] for name in _CONTROLLERS_ANNOTATIONS if name in observed}
    annotations: dict[str, Json] = {**strings(own.get("annotations")), **added}
    _replace(metadata, "annotations", annotations or None)
    _replace(spec, "resources", written.get("resources"))
    for member in _LISTS:
        templates = {text(container, "name"): container for container in objects(written.get(member))}
        containers = objects(spec.get(member))
        if not templates.keys() <= {text(container, "name") for container in containers}:
            return None
        if containers:
            spec[member] = [_with_resources(container, templates) for container in containers]
    return {**found, "metadata": metadata, "spec": spec}


def _with_resources(container: Object, templates: Mapping[str, Object]) -> Json:
    template = templates.get(text(container, "name"))
    if template is None:
        return dict(container)
    found = dict(container)
    _replace(found, "resources", template.get("resources"))
    return found


def _replace(members: dict[str, Json], name: str, value: Json) -> None:
    if value is None:
        members.pop(name, None)
    else:
        members[name] = value


def makes(admitted: Json, observed: Object) -> bool:
    """Return True if an admitted pod has the resources of a live one, whose requests the API server has defaulted."""
    try:
        made, live = Pod.parse(admitted), Pod.parse(dict(observed))
    except PodError:
        return False
    return (
        dict(_amounts(made)) == dict(_amounts(live))
        and made.limits == live.limits
        # Requests of the whole pod are defaulted to those of its containers (KEP-2837).
        and all(live.requests.get(name) == amount for name, amount in made.requests.items())
    )


def _amounts(pod: Pod) -> Iterator[tuple[tuple[bool, str], tuple[dict[str, int], dict[str, int]]]]:
    """Yield the requests and limits of each container that names some, in nanos."""
    for container in pod.containers:
        yield (container.path[1] == _LISTS[1], container.name), _of(container)


def _of(container: Container) -> tuple[dict[str, int], dict[str, int]]:
    limits = {name: amount.nanos for name, amount in container.limits.items()}
    requests = {name: amount.nanos for name, amount in container.requests.items()}
    return {**limits, **requests}, limits
