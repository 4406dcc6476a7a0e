"""Reconstruction of live pods as they were submitted: rules have already changed their resources and other members."""

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy

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
from rules_engine.rules.pod_members.value import FIELDS, Form, PodField
from rules_engine.rules.pod_members.writing import REPLACED_BY_CLASS, identity_of

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

_OF_CLASSES = {"priorityClassName": REPLACED_BY_CLASS, "runtimeClassName": ("overhead",)}
"""Members that the API server computes from a class, by the field that names the class."""

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


def restore_from_template(pod: dict[str, Json], template: Object) -> dict[str, Json] | None:
    """Return a live pod with the resources and annotations of its controller's template; None if that is another one's.

    All else is unchanged: labels, tolerations and the priority, which controllers and the API server add before
    webhooks are called, and containers that other webhooks inject. Amounts that LimitRanger set are left out.
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
    return {**submitted, "metadata": metadata, "spec": spec}


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


def restore_members(pod: dict[str, Json], template: Object, mutated: Callable[[Json], Json]) -> dict[str, Json]:
    """Return a pod without the members that rules wrote: those that `mutated` adds to the pod of the template.

    Members that controllers, the API server and other webhooks added stay.
    """
    restored, bare, templates = deepcopy(pod), deepcopy(pod), {("metadata", ""): {}, **_owners(template)}
    owners, submitted = (
        {place: own for place, own in _owners(each).items() if place in templates} for each in (restored, bare)
    )
    for place, owner in submitted.items():
        owner.update({field.name: templates[place].get(field.name) for field in _fields_of(place)})
    made = _owners(as_mapping(mutated(bare)))
    for place in owners.keys() & made.keys():
        for field in _fields_of(place):
            own, before, after = (_items(field, each[place]) for each in (owners, submitted, made))
            if before != after:
                kept = {name: item for name, item in own.items() if before.get(name) == after.get(name)}
                items = kept | {name: item for name, item in before.items() if item != after.get(name)}
                value: Json = [*items.values()] if field.form is Form.LIST else items
                _set_member(owners[place], field.name, items.get("") if field.form is Form.SCALAR else value or None)
                for name in _OF_CLASSES.get(field.name, ()):
                    _set_member(owners[place], name, templates[place].get(name))
    return restored


def _owners(pod: Object) -> dict[tuple[str, str], dict[str, Json]]:
    """Return the metadata, the spec and the containers of a pod, by the names of their lists and their own."""
    found: dict[tuple[str, str], Json | Object] = {(part, ""): pod.get(part) for part in ("metadata", "spec")}
    for part in CONTAINER_LISTS:
        found |= {
            (part, text_member(each, "name")): each for each in object_items(as_mapping(pod.get("spec")).get(part))
        }
    return {place: owner for place, owner in found.items() if isinstance(owner, dict)}


def _fields_of(place: tuple[str, str]) -> Iterator[PodField]:
    return (each for each in FIELDS.values() if each.parent == (() if place[1] else place[:1]))


def _items(field: PodField, owner: Object) -> dict[str, Json]:
    """Return the items of a field by what identifies them."""
    value = owner.get(field.name)
    if field.form is Form.LIST:
        return {identity_of(field, {**item}): {**item} for item in object_items(value)}
    return {**as_mapping(value)} if field.form is Form.MAP else {"": value} if value else {}


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
