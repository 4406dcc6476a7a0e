"""Reconstruction of live pods as they were submitted: rules have already changed their resources and other members."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from rules_engine.cluster.creation.limit_range import LIMIT_RANGER_ANNOTATION
from rules_engine.model.json.lenient import (
    Object,
    as_list,
    as_mapping,
    as_string_map,
    controller_reference,
    object_items,
    text_member,
)
from rules_engine.model.json.patch import Json
from rules_engine.model.json.strict import PodError
from rules_engine.model.kubernetes import api_defaults
from rules_engine.model.kubernetes.api_defaults import CONTAINER_LISTS
from rules_engine.model.kubernetes.pod import Pod
from rules_engine.model.kubernetes.removed_values import MemberPath, without_mark
from rules_engine.rules.evaluation.rule_reads import missing_members

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
"""Members of metadata that the API server writes after admission."""

_KEPT_ANNOTATIONS = (
    "batch.kubernetes.io/job-completion-index",
    "batch.kubernetes.io/job-index-failure-count",
    "batch.kubernetes.io/job-index-ignored-failure-count",
    LIMIT_RANGER_ANNOTATION,
)
"""Annotations that the Job controller and LimitRanger add to a pod before webhooks are called."""

_STRIPPED = frozenset({*_LATER_METADATA, "ephemeralContainers"})
"""Members of metadata and of the spec that no rule sees."""

_TOPOLOGY_LABELS = frozenset({"topology.kubernetes.io/region", "topology.kubernetes.io/zone"})
"""Labels that a pod gets from its node when it is bound (KEP-4742)."""

_POD_AFFINITIES = ("podAffinity", "podAntiAffinity")

_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def strip_live_fields(pod: dict[str, Json], *, on_node: bool = False) -> dict[str, Json]:
    """Return a live pod as if it were submitted now: without the fields of the API server, scheduler and kubelets.

    `on_node`: it is submitted with the name of its node, as static pods are.
    """
    admitted = as_mapping(without_mark(pod).get("metadata"))
    metadata = {name: value for name, value in admitted.items() if name not in _LATER_METADATA}
    if api_defaults.is_generated_name(text_member(metadata, "name"), text_member(metadata, "generateName")):
        # The API server makes the name after the admission.
        del metadata["name"]
    spec = {name: value for name, value in as_mapping(pod.get("spec")).items() if name != "ephemeralContainers"}
    if not on_node and not is_static_pod(pod) and spec.pop("nodeName", None):
        labels = {
            name: value for name, value in as_mapping(metadata.get("labels")).items() if name not in _TOPOLOGY_LABELS
        }
        _set_member(metadata, "labels", labels or None)
    _separate_match_label_keys(spec)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def missing_values(pod: Object) -> Mapping[str, MemberPath]:
    """Return the members of a request for a live pod that are unknown, by their names."""
    return {name: path for name, path in missing_members(pod).items() if _STRIPPED.isdisjoint(path)}


def is_static_pod(pod: dict[str, Json]) -> bool:
    """Return True for a static pod, which a kubelet submits for its own node."""
    owner = controller_reference(pod)
    return owner is not None and text_member(owner, "kind") == "Node"


def _separate_match_label_keys(spec: dict[str, Json]) -> None:
    """Undo the merge of matchLabelKeys into selectors, which follows a pod's admission (KEP-3633, KEP-3243)."""
    constraints = as_list(spec.get("topologySpreadConstraints"))
    if constraints:
        spec["topologySpreadConstraints"] = [_separate_selector(constraint) for constraint in constraints]
    affinity = as_mapping(spec.get("affinity"))
    if not affinity.keys().isdisjoint(_POD_AFFINITIES):
        separated = {name: _separate_terms(as_mapping(affinity[name])) for name in _POD_AFFINITIES if name in affinity}
        spec["affinity"] = {**affinity, **separated}


def _separate_terms(affinity: Object) -> Json:
    separated: dict[str, Json] = dict(affinity)
    if _REQUIRED in separated:
        separated[_REQUIRED] = [_separate_selector(term) for term in as_list(separated[_REQUIRED])]
    if _PREFERRED in separated:
        separated[_PREFERRED] = [
            {**term, "podAffinityTerm": _separate_selector(term.get("podAffinityTerm"))}
            for term in object_items(affinity[_PREFERRED])
        ]
    return separated


def _separate_selector(term: Json) -> Json:
    """Return a term with its selector as submitted, where it must not use the keys of matchLabelKeys."""
    members = as_mapping(term)
    keys = [*as_list(members.get("matchLabelKeys")), *as_list(members.get("mismatchLabelKeys"))]
    if not keys:
        return term
    selector = dict(as_mapping(members.get("labelSelector")))
    expressions = [item for item in object_items(selector.get("matchExpressions")) if item.get("key") not in keys]
    _set_member(selector, "matchExpressions", [dict(item) for item in expressions] or None)
    return {**members, "labelSelector": selector}


def restore_from_template(
    pod: dict[str, Json], template: Object, writes: Iterable[Sequence[str]] = ()
) -> dict[str, Json] | None:
    """Return a live pod with the resources and annotations of its controller's template; None if that is another one's.

    It also has the template's members at `writes`, the paths that rules write. All else is unchanged: labels,
    tolerations and the priority, which controllers and the API server add before webhooks are called, and containers
    that other webhooks inject. Amounts that LimitRanger set are left out.
    """
    template_metadata, template_spec = as_mapping(template.get("metadata")), as_mapping(template.get("spec"))
    submitted = strip_live_fields(pod, on_node=bool(text_member(template_spec, "nodeName")))
    metadata, spec = dict(as_mapping(submitted["metadata"])), dict(as_mapping(submitted["spec"]))
    observed = as_string_map(metadata.get("annotations"))
    added = {name: observed[name] for name in _KEPT_ANNOTATIONS if name in observed}
    annotations: dict[str, Json] = {**as_string_map(template_metadata.get("annotations")), **added}
    _set_member(metadata, "annotations", annotations or None)
    labels = {
        key: value for key, value in as_string_map(template_metadata.get("labels")).items() if key in _TOPOLOGY_LABELS
    }
    if labels:
        metadata["labels"] = {**as_mapping(metadata.get("labels")), **labels}
    _set_member(spec, "resources", api_defaults.default_pod_resources(template_spec, as_mapping(spec.get("resources"))))
    for member in CONTAINER_LISTS:
        templates = {text_member(container, "name"): container for container in object_items(template_spec.get(member))}
        containers = object_items(spec.get(member))
        if not templates.keys() <= {text_member(container, "name") for container in containers}:
            return None
        if containers:
            spec[member] = [_with_resources(container, templates) for container in containers]
    restored = {**submitted, "metadata": metadata, "spec": spec}
    for path in writes:
        restored = _with_member(restored, template, path)
    return restored


def _with_resources(container: Object, templates: Mapping[str, Object]) -> Json:
    template = templates.get(text_member(container, "name"))
    if template is None:
        return dict(container)
    restored = dict(container)
    _set_member(restored, "resources", api_defaults.default_container_resources(template.get("resources")))
    return restored


def _set_member(members: dict[str, Json], name: str, value: Json) -> None:
    if value is None:
        members.pop(name, None)
    else:
        members[name] = value


def _with_member(own: Object, template: Object, path: Sequence[str]) -> dict[str, Json]:
    """Return an object whose member at a path is that of a template; items of lists are found by their names."""
    name, below = path[0], path[1:]
    mine, value = own.get(name), template.get(name)
    if below and isinstance(mine, list):
        named = {text_member(item, "name"): item for item in object_items(value)}
        items = ((item, named.get(text_member(item, "name"))) for item in object_items(mine))
        value = [dict(item) if model is None else _with_member(item, model, below) for item, model in items]
    elif below:
        value = _with_member(as_mapping(mine), as_mapping(value), below) or None
    changed = dict(own)
    _set_member(changed, name, value)
    return changed


def has_equal_resources(admitted: Json, observed: Object) -> bool:
    """Return True if an admitted pod has the resources of a live pod, whose requests the API server has defaulted."""
    try:
        made, live = Pod.parse(admitted), Pod.parse(dict(observed))
    except PodError:
        return False
    return (
        dict(_container_amounts(made)) == dict(_container_amounts(live))
        and made.limits == live.limits
        # Requests of the whole pod default to the sums of its containers (KEP-2837).
        and all(live.requests.get(name) == amount for name, amount in made.requests.items())
    )


def _container_amounts(pod: Pod) -> Iterator[tuple[tuple[bool, str], tuple[dict[str, int], dict[str, int]]]]:
    """Yield the requests and limits of each container with resources, in nanos."""
    for container in pod.containers:
        limits = {name: amount.nanos for name, amount in container.limits.items()}
        requests = {name: amount.nanos for name, amount in container.requests.items()}
        yield (container.path[1] == CONTAINER_LISTS[1], container.name), ({**limits, **requests}, limits)
