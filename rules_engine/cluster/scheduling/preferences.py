"""The preferences of a pod that kube-scheduler's score plugins read, as a value that never changes."""

from collections.abc import Iterator, Mapping
from typing import Self

from msgspec import Struct
from msgspec.structs import replace

from rules_engine.cluster.scheduling.amounts import scheduler_amounts
from rules_engine.cluster.scheduling.requirements import (
    MAX_TERMS,
    AffinityTerm,
    Requirements,
    SpreadConstraint,
    read_affinity_term,
    read_spread_constraints,
)
from rules_engine.model.json.lenient import Object, as_mapping, integer_member, object_items
from rules_engine.model.json.strict import TooLargeError
from rules_engine.model.kubernetes.placement import PreferredTerm, read_preferred_terms
from rules_engine.model.kubernetes.pod import Pod
from rules_engine.model.kubernetes.quantity import NANOS
from rules_engine.model.rules.rule import LabelSelector

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"

_DEFAULT_REQUESTS: Mapping[str, int] = {"cpu": NANOS // 10, "memory": 200 * 2**20 * NANOS}
"""Amounts that score plugins count for a container that requests none (pkg/scheduler/util/pod_resources.go)."""

_SYSTEM_DEFAULTS = ((HOSTNAME, 3), (ZONE, 5))
"""Topology keys and maximum skews of the default constraints (plugins/podtopologyspread/plugin.go)."""

PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


class WeightedTerm(Struct, frozen=True):
    """A term of pod affinity, or of anti-affinity with a negative weight."""

    weight: int
    term: AffinityTerm


class Preferences(Struct, frozen=True, kw_only=True):
    """A pod's preferences among the nodes that its requirements leave.

    `non_zero`: requests with default amounts for containers that request no cpu or memory, in the scheduler's units;
    `scored`: the same without requests at pod level, as NodeResourcesFit scores nodes for the pod.
    `spread`: constraints with ScheduleAnyway; `by_default`: the system's constraints, for a pod of a controller that
    has none of its own. `pod_affinity`: preferred terms.
    """

    requirements: Requirements
    non_zero: Mapping[str, int]
    scored: Mapping[str, int]
    node_affinity: tuple[PreferredTerm, ...] | None = None
    spread: tuple[SpreadConstraint, ...] = ()
    by_default: bool = False
    pod_affinity: tuple[WeightedTerm, ...] = ()

    @classmethod
    def of(cls, raw: Object, requirements: Requirements, selector: LabelSelector | None = None) -> Self:
        """Read a pod; `selector`: the selector of its ReplicaSet, StatefulSet or ReplicationController.

        Raises PodError if it is malformed, and TooLargeError if it is beyond a bound.
        """
        spec, pod = as_mapping(raw.get("spec")), Pod.parse(dict(raw))
        by_default = not spec.get("topologySpreadConstraints")
        spread = tuple(
            _default_constraints(selector)
            if by_default
            else read_spread_constraints(spec, requirements.labels, "ScheduleAnyway")
        )
        pod_affinity = tuple(_pod_affinity_terms(spec, requirements.namespace, requirements.labels))
        count = len(spread) + len(pod_affinity)
        if count > MAX_TERMS:
            what = "constraints of topology spread and terms of pod affinity that are preferred"
            raise TooLargeError(("spec",), count, what, MAX_TERMS)
        return cls(
            requirements=requirements,
            non_zero=_non_zero_requests(pod),
            # Its scorer has no enablePodLevelResources (plugins/noderesources/fit.go, NewFit).
            scored=scheduler_amounts(replace(pod, requests={}, limits={}).effective_requests(_DEFAULT_REQUESTS)),
            node_affinity=read_preferred_terms(spec),
            spread=spread,
            by_default=by_default,
            pod_affinity=pod_affinity,
        )


def _default_constraints(selector: LabelSelector | None) -> Iterator[SpreadConstraint]:
    if selector:
        for key, skew in _SYSTEM_DEFAULTS:
            yield SpreadConstraint(
                topology_key=key,
                max_skew=skew,
                min_domains=1,
                selector=selector,
                honors_affinity=True,
                honors_taints=False,
            )


def _pod_affinity_terms(spec: Object, namespace: str, labels: Mapping[str, str]) -> Iterator[WeightedTerm]:
    affinity = as_mapping(spec.get("affinity"))
    for member, sign in (("podAffinity", 1), ("podAntiAffinity", -1)):
        for raw in object_items(as_mapping(affinity.get(member)).get(PREFERRED)):
            term = read_affinity_term(as_mapping(raw.get("podAffinityTerm")), namespace, labels)
            yield WeightedTerm(sign * integer_member(raw, "weight"), term)


def _non_zero_requests(pod: Pod) -> Mapping[str, int]:
    """Return the requests with amounts for containers that request no cpu or memory.

    So do resources that a pod with resources at pod level does not name (pkg/scheduler/framework/types.go,
    getNonMissingContainerRequests).
    """
    effective_requests = pod.effective_requests()
    named = (*pod.requests, *pod.limits)
    at_pod_level = any(name in _DEFAULT_REQUESTS or name.startswith("hugepages-") for name in named)
    missing = {
        name: amount for name, amount in _DEFAULT_REQUESTS.items() if not (at_pod_level and name in effective_requests)
    }
    return scheduler_amounts(pod.effective_requests(missing))
