"""The requirements of a pod that kube-scheduler's filters read, as a value that never changes."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product

from msgspec import Struct

from rules_engine.cluster.devices.requests import ExtendedResourceRequest, read_container_requests
from rules_engine.cluster.scheduling.amounts import scheduler_amounts
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
from rules_engine.model.json.strict import TooLargeError
from rules_engine.model.kubernetes.cluster import Node, Taint
from rules_engine.model.kubernetes.cluster_objects import PodObject, requests_of
from rules_engine.model.kubernetes.names import DEFAULT_NAMESPACE
from rules_engine.model.kubernetes.placement import NodeTerm, Placement, read_node_terms
from rules_engine.model.kubernetes.pod import Pod
from rules_engine.model.kubernetes.pod_claims import PodClaim, read_pod_claims
from rules_engine.model.rules.rule import ConditionKind, LabelRequirement, LabelSelector

DEFAULT_SCHEDULER = "default-scheduler"
ALL_ADDRESSES = "0.0.0.0"  # noqa: S104 - compared, never listened on
VOLUME_CLAIMS = "persistent volume claims"
LIMITS_OF_VOLUMES = "limits of volumes"

NODE_NAME = "metadata.name"

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"

MAX_TERMS = 100
"""Topology spread constraints, and terms of required pod affinity and anti-affinity, of a pod: people write a few. Each
is compared with the labels of all bound pods."""

CLAIM_VOLUMES = ("persistentVolumeClaim", "ephemeral")
LIMITED_VOLUMES = ("csi", "awsElasticBlockStore", "azureDisk", "cinder", "gcePersistentDisk", "iscsi", "rbd")
"""Volumes without a claim that the filters VolumeRestrictions and NodeVolumeLimits read."""

POD_VOLUME = "podVolume"
"""Member of a pod's volume that no Pod of the API has: a PodVolume in JSON, in place of the claim."""


class HostPort(Struct, frozen=True):
    """A port of the node that a pod uses."""

    address: str
    protocol: str
    number: int


class SpreadConstraint(Struct, frozen=True, kw_only=True):
    """A topology spread constraint; `selector` None matches no pod. `min_domains` is read if it must hold."""

    topology_key: str
    max_skew: int
    min_domains: int
    selector: LabelSelector | None
    honors_affinity: bool
    honors_taints: bool


class AffinityTerm(Struct, frozen=True, kw_only=True):
    """A term of pod affinity or anti-affinity; a selector that is None matches nothing."""

    topology_key: str
    selector: LabelSelector | None
    namespaces: frozenset[str]
    namespace_selector: LabelSelector | None

    def matches_labels(self, labels: Mapping[str, str]) -> bool:
        return self.selector is not None and self.selector.matches(labels)


class PodVolume(Struct, frozen=True):
    """A volume of a pod by a claim.

    `claim`: its name; "" if no other pod has it. `candidates`: the volumes that may be bound to it, the first choice
    first, each with its nodes; "": one that is bound or will be provisioned. `otherwise`: why nodes without one are
    excluded, or the pod is rejected if all are.
    """

    claim: str
    candidates: tuple[tuple[str, tuple[NodeTerm, ...] | None], ...]
    otherwise: str


class Footprint(Struct, frozen=True, kw_only=True):
    """A bound pod as the filters see it: amounts in the scheduler's units, ports, labels, required anti-affinity.

    `terminating`: it is being deleted, and topology spread does not count it.
    """

    namespace: str
    labels: Mapping[str, str]
    requests: Mapping[str, int]
    ports: tuple[HostPort, ...]
    anti_affinity: tuple[AffinityTerm, ...]
    terminating: bool = False
    volumes: tuple[PodVolume, ...] = ()

    @classmethod
    def read(cls, pod: PodObject) -> "Footprint":
        """Read a bound pod; malformed fields are ignored."""
        spec, metadata = as_mapping(pod.get("spec")), as_mapping(pod.get("metadata"))
        namespace, labels = text_member(metadata, "namespace"), as_string_map(metadata.get("labels"))
        namespace = namespace or DEFAULT_NAMESPACE
        return Footprint(
            namespace=namespace,
            labels=labels,
            requests=scheduler_amounts(requests_of(pod)),
            ports=host_ports(spec),
            anti_affinity=_read_terms(spec, "podAntiAffinity", namespace, labels) if "affinity" in spec else (),
            terminating=bool(metadata.get("deletionTimestamp")),
        )


class Requirements(Footprint, frozen=True, kw_only=True):
    """A pod's requirements of its node, and its footprint there. Without a name: equal pods share one value.

    `node_names`: the nodes to which required node affinity restricts the pod by name; None: it does not. `devices`:
    what containers request of extended resources. `claims`: for devices. `not_modelled`: features that the pod uses and
    only other filters read.
    """

    priority: int
    placement: Placement
    node_names: frozenset[str] | None
    spread: tuple[SpreadConstraint, ...]
    affinity: tuple[AffinityTerm, ...]
    devices: tuple[ExtendedResourceRequest, ...] = ()
    claims: tuple[PodClaim, ...] = ()
    not_modelled: tuple[str, ...]

    @classmethod
    def of(cls, raw: Object) -> "Requirements":
        """Read a pod. Raises PodError if it is malformed, and TooLargeError if it is beyond a bound."""
        pod = Pod.parse(dict(raw))
        spec = as_mapping(raw.get("spec"))
        namespace = pod.namespace or DEFAULT_NAMESPACE
        spread = tuple(read_spread_constraints(spec, pod.labels, "DoNotSchedule"))
        affinity, anti_affinity = [
            _read_terms(spec, member, namespace, pod.labels) for member in ("podAffinity", "podAntiAffinity")
        ]
        count = len(spread) + len(affinity) + len(anti_affinity)
        if count > MAX_TERMS:
            raise TooLargeError(("spec",), count, "constraints of topology spread and terms of pod affinity", MAX_TERMS)
        return cls(
            namespace=namespace,
            labels=pod.labels,
            priority=priority_of(spec),
            placement=Placement.parse(dict(spec)),
            node_names=_affinity_node_names(spec),
            volumes=tuple(_read_volumes(spec)),
            ports=host_ports(spec),
            requests=scheduler_amounts(pod.effective_requests()),
            spread=spread,
            affinity=affinity,
            devices=tuple(read_container_requests(pod)),
            claims=tuple(read_pod_claims(raw)),
            anti_affinity=anti_affinity,
            terminating=bool(as_mapping(raw.get("metadata")).get("deletionTimestamp")),
            not_modelled=tuple(_find_not_modelled(raw, spec)),
        )


def host_ports(spec: Object) -> tuple[HostPort, ...]:
    """Return the node's ports that a pod uses while it runs (pkg/scheduler/util/utils.go, GetHostPorts)."""
    # A pod on the node's network uses its containers' ports, which the API server writes as hostPort.
    own = "containerPort" if spec.get("hostNetwork") is True else "hostPort"
    sidecars = (
        init_container
        for init_container in object_items(spec.get("initContainers"))
        if init_container.get("restartPolicy") == "Always"
    )
    return tuple(
        HostPort(text_member(port, "hostIP") or ALL_ADDRESSES, text_member(port, "protocol") or "TCP", number)
        for container in (*sidecars, *object_items(spec.get("containers")))
        for port in object_items(container.get("ports"))
        if (number := integer_member(port, "hostPort") or integer_member(port, own)) > 0
    )


def priority_of(spec: Object) -> int:
    """Return a pod's priority; one without has priority 0 (component-helpers/scheduling/corev1, PodPriority)."""
    return integer_member(spec, "priority")


def _affinity_node_names(spec: Object) -> frozenset[str] | None:
    """Return the union over terms of the intersections of names; a term without names allows all nodes.

    Source: plugins/nodeaffinity/node_affinity.go (PreFilter). Empty terms count here, though they match no node.
    """
    required = as_mapping(as_mapping(spec.get("affinity")).get("nodeAffinity")).get(REQUIRED)
    allowed: frozenset[str] | None = None
    for term in object_items(as_mapping(required).get("nodeSelectorTerms")):
        names: frozenset[str] | None = None
        for field in object_items(term.get("matchFields")):
            if field.get("key") == NODE_NAME and field.get("operator") == "In":
                values = frozenset(_strings(field.get("values")))
                names = values if names is None else names & values
        # One term without names allows every node, whatever the other terms name.
        if names is None:
            return None
        allowed = names if allowed is None else allowed | names
    return allowed


def _read_volumes(spec: Object) -> Iterator[PodVolume]:
    for volume in object_items(spec.get("volumes")):
        raw = as_mapping(volume.get(POD_VOLUME))
        if "candidates" in raw:
            candidates = [
                (name, None if selector is None else read_node_terms(selector, ("spec", "volumes")))
                for name, selector in as_mapping(raw["candidates"]).items()
            ]
            yield PodVolume(text_member(raw, "claim"), tuple(candidates), text_member(raw, "otherwise"))


def read_spread_constraints(spec: Object, labels: Mapping[str, str], action: str) -> Iterator[SpreadConstraint]:
    """Yield a pod's topology spread constraints that have this action in `whenUnsatisfiable`."""
    for raw in object_items(spec.get("topologySpreadConstraints")):
        if raw.get("whenUnsatisfiable") != action:
            continue
        yield SpreadConstraint(
            topology_key=text_member(raw, "topologyKey"),
            max_skew=max(integer_member(raw, "maxSkew", 1), 1),
            min_domains=max(integer_member(raw, "minDomains", 1), 1),
            selector=_merge_selector(raw, labels),
            honors_affinity=raw.get("nodeAffinityPolicy") != "Ignore",
            honors_taints=raw.get("nodeTaintsPolicy") == "Honor",
        )


def _read_terms(spec: Object, member: str, namespace: str, labels: Mapping[str, str]) -> tuple[AffinityTerm, ...]:
    raw = as_mapping(as_mapping(spec.get("affinity")).get(member)).get(REQUIRED)
    return tuple(read_affinity_term(term, namespace, labels) for term in object_items(raw))


def read_affinity_term(raw: Object, namespace: str, labels: Mapping[str, str]) -> AffinityTerm:
    """Read a term of pod affinity or anti-affinity of a pod with these labels in a namespace."""
    namespaces = frozenset(_strings(raw.get("namespaces")))
    namespace_selector = read_selector(raw.get("namespaceSelector"))
    if not namespaces and namespace_selector is None:
        namespaces = frozenset((namespace,))
    return AffinityTerm(
        topology_key=text_member(raw, "topologyKey"),
        selector=_merge_selector(raw, labels),
        namespaces=namespaces,
        namespace_selector=namespace_selector,
    )


def _merge_selector(raw: Object, labels: Mapping[str, str]) -> LabelSelector | None:
    """Return a labelSelector together with the pod's own labels by matchLabelKeys and mismatchLabelKeys.

    The API server merges them when it stores a pod (pkg/registry/core/pod/strategy.go); a second time changes nothing.
    """
    selector = read_selector(raw.get("labelSelector"))
    if selector is None:
        return None
    own = [
        LabelRequirement(key, kind, (labels[key],))
        for member, kind in (("matchLabelKeys", ConditionKind.IN), ("mismatchLabelKeys", ConditionKind.NOT_IN))
        for key in _strings(raw.get(member))
        if key in labels
    ]
    return LabelSelector((*own, *selector.requirements))


def _find_not_modelled(raw: Object, spec: Object) -> Iterator[str]:
    scheduler = text_member(spec, "schedulerName")
    if scheduler not in ("", DEFAULT_SCHEDULER):
        yield f"scheduler {scheduler}"
    volumes = {member for volume in object_items(spec.get("volumes")) for member in volume}
    if not volumes.isdisjoint(CLAIM_VOLUMES):
        yield VOLUME_CLAIMS
    if not volumes.isdisjoint(LIMITED_VOLUMES) or any(each.candidates for each in _read_volumes(spec)):
        yield LIMITS_OF_VOLUMES
    if as_mapping(raw.get("status")).get("extendedResourceClaimStatus"):
        yield "a claim for extended resources that exists already"
    if spec.get("schedulingGroup"):
        yield "scheduling groups"
    if _needs_features(spec):
        yield "features that nodes declare"


def _needs_features(spec: Object) -> bool:
    """Return True if the filter NodeDeclaredFeatures reads the pod (component-helpers/nodedeclaredfeatures)."""
    if spec.get("hostUsers") is False and spec.get("hostNetwork") is True:
        return True
    return any(
        rule.get("action") == "RestartAllContainers"
        for member in ("containers", "initContainers")
        for container in object_items(spec.get(member))
        for rule in object_items(container.get("restartPolicyRules"))
    )


_OPERATORS = {kind.value: kind for kind in ConditionKind}


def read_selector(raw: Json) -> LabelSelector | None:
    """Read a selector. An absent one is None, which matches nothing; an empty one matches everything."""
    if not isinstance(raw, dict):
        return None
    labels = as_string_map(raw.get("matchLabels"))
    expressions = [
        LabelRequirement(text_member(each, "key"), operator, tuple(_strings(each.get("values"))))
        for each in object_items(raw.get("matchExpressions"))
        if (operator := _OPERATORS.get(text_member(each, "operator")))
    ]
    equal = [LabelRequirement(key, ConditionKind.IN, (value,)) for key, value in labels.items()]
    return LabelSelector((*equal, *expressions))


def _strings(raw: Json) -> list[str]:
    return [each for each in as_list(raw) if isinstance(each, str)]


UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"
"""Taints of nodes that are cordoned or not Ready (k8s.io/api/core/v1, well_known_taints.go)."""

CORDON = Taint(key=UNSCHEDULABLE, effect="NoSchedule")
"""The taint of a cordoned node; a pod that tolerates it may run there."""

_EFFECTS = ("NoSchedule", "NoExecute")
_STATE_TAINTS = {(CORDON.key, CORDON.effect), *product((NOT_READY, UNREACHABLE), _EFFECTS)}


def with_state_taints(node: Node) -> Node:
    """Return a node with the taints that the node lifecycle controller sets for its state, and no other state taints.

    A node that is not Ready stays unreachable if it has that taint; its other fields do not show this.
    """
    wanted = [CORDON] if node.unschedulable else []
    if not node.ready:
        key = UNREACHABLE if any(taint.key == UNREACHABLE for taint in node.taints) else NOT_READY
        wanted += [Taint(key=key, effect=effect) for effect in _EFFECTS]
    places = {(taint.key, taint.effect) for taint in wanted}
    others = _STATE_TAINTS - places
    kept = [taint for taint in node.taints if (taint.key, taint.effect) not in others]
    present = {(taint.key, taint.effect) for taint in kept}
    taints = (*kept, *(taint for taint in wanted if (taint.key, taint.effect) not in present))
    return node if taints == node.taints else replace(node, taints=taints)
