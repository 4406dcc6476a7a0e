"""Pending GPU pods: a recorded cluster for each reason, and a near miss for which it is not the reason."""

import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules_engine.cluster.nodes import NodeFilter, NodeRequirement
from rules_engine.cluster.scheduling import scheduler, scheduler_of
from rules_engine.model.kubernetes.names import ObjectName
from rules_engine.model.kubernetes.placement import Toleration
from rules_engine.model.rules.finding import Certainty, Finding, FindingSeverity, Risk
from rules_engine.model.rules.rule import ConditionKind, LabelRequirement, LabelSelector, Match, Mode
from rules_engine.questions.doctor.pending import PendingPod, conflicts, pending_pods
from rules_engine.questions.doctor.reasons import PendingReason
from rules_engine.rules.evaluation import RuleSet
from rules_engine.rules.ladder.value import Unplaced, WhenExhausted
from tests.questions.doctor.test_pending_devices import DEVICE_REASONS
from tests.support.api import GPU, MIG1, MIG3, NOW, Object, ago, api_object, cluster, event, node, pod, volume_claim
from tests.support.cluster_files import CONTAINER
from tests.support.evaluation import compiled, ladder, rung, rung_place
from tests.support.remedies import has_its_risk

RDMA = "rdma/hca"
STRATEGY = "nvidia.com/mig.strategy"
PRODUCT = "nvidia.com/gpu.product"
LAYOUT = {STRATEGY: "none", "nvidia.com/mig.config": "all-1g.5gb", "nvidia.com/mig.config.state": "success"}
ON_ZONE: Object = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]
        }
    }
}
APART: Object = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchLabels": {"app": "train"}}, "topologyKey": "kubernetes.io/hostname"}
        ]
    }
}
DATA = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
_ZONE_B = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]}]}
BOUND = (
    {**volume_claim("data", "Bound"), "spec": {"volumeName": "pv-b"}},
    api_object(
        "PersistentVolume",
        "pv-b",
        spec={"claimRef": {"namespace": "ml", "name": "data"}, "nodeAffinity": {"required": _ZONE_B}},
    ),
)
ONE_POD = {**volume_claim("data", "Bound"), "spec": {"accessModes": ["ReadWriteOncePod"]}}
SCRATCH = [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}]
CLAIMS = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
A = ObjectName("Node", "a")
NO_NODE = "0/1 nodes are available:"
GATES = [{"name": "kueue.x-k8s.io/admission"}]
TOLERATES = [{"key": "nvidia.com/gpu", "operator": "Exists"}]
TAINTED = ["nvidia.com/gpu=present:NoSchedule"]
NOT_READY = "node.kubernetes.io/not-ready:NoExecute"


def answers(*objects: Object, rules: RuleSet | None = None, absent: Sequence[str] = ()) -> tuple[PendingPod, ...]:
    recorded = cluster(*objects, absent=absent)
    return pending_pods(recorded, scheduler_of(recorded), rules)


def answer(*objects: Object, rules: RuleSet | None = None, absent: Sequence[str] = ()) -> PendingPod:
    (pending,) = answers(*objects, rules=rules, absent=absent)
    return pending


def reason(*objects: Object, **options: Any) -> str:
    return answer(*objects, **options).finding.reason


POSITIVE: dict[str, tuple[PendingReason, list[Object]]] = {
    "a profile that no card is split into": (
        PendingReason.RESOURCE_ON_NO_NODE,
        [node("a", {GPU: 4}), node("b", {MIG1: 7}), pod("p", {MIG3: 1})],
    ),
    "a profile whose devices are all unhealthy": (
        PendingReason.RESOURCE_ON_NO_NODE,
        [node("a", {MIG3: 0}, capacity={MIG3: 2}), pod("p", {MIG3: 1})],
    ),
    "a cluster without nodes": (PendingReason.RESOURCE_ON_NO_NODE, [pod("p", {GPU: 1})]),
    "a profile on no node beside one of another strategy": (
        PendingReason.RESOURCE_ON_NO_NODE,
        [
            node("a", {GPU: 7}, labels={STRATEGY: "single", PRODUCT: "A100-SXM4-40GB-MIG-1g.5gb"}),
            pod("p", {MIG1: 1, MIG3: 1}),
        ],
    ),
    "a profile by name where the strategy is single": (
        PendingReason.WRONG_MIG_STRATEGY,
        [node("a", {GPU: 7}, labels={STRATEGY: "single", PRODUCT: "A100-SXM4-40GB-MIG-1g.5gb"}), pod("p", {MIG1: 1})],
    ),
    "a profile by name where the strategy is none": (
        PendingReason.WRONG_MIG_STRATEGY,
        [node("a", {GPU: 1}, labels=LAYOUT), pod("p", {MIG1: 1})],
    ),
    "a whole card where the strategy is mixed": (
        PendingReason.WRONG_MIG_STRATEGY,
        [node("a", {GPU: 0, MIG1: 7}, labels={STRATEGY: "mixed"}), pod("p", {GPU: 1})],
    ),
    "a taint on each node with GPUs": (
        PendingReason.TAINT,
        [node("a", {GPU: 4}, taints=TAINTED), node("b"), pod("p", {GPU: 1})],
    ),
    "a node selector that matches only a node without GPUs": (
        PendingReason.SELECTOR_OR_AFFINITY,
        [
            node("a", {GPU: 4}, labels={"zone": "b"}),
            node("b", labels={"zone": "a"}),
            pod("p", {GPU: 1}, nodeSelector={"zone": "a"}),
        ],
    ),
    "required affinity that matches no node with GPUs": (
        PendingReason.SELECTOR_OR_AFFINITY,
        [node("a", {GPU: 4}, labels={"zone": "b"}), pod("p", {GPU: 1}, affinity=ON_ZONE)],
    ),
    "a cordoned node": (PendingReason.CORDON, [node("a", {GPU: 4}, cordoned=True), pod("p", {GPU: 1})]),
    "a node that has just been cordoned": (
        PendingReason.CORDON,
        [node("a", {GPU: 4}, unschedulable=True), pod("p", {GPU: 1})],
    ),
    "a node that is not Ready": (
        PendingReason.NOT_READY,
        [node("a", {GPU: 4}, ready=False, taints=[NOT_READY]), pod("p", {GPU: 1})],
    ),
    "all devices held by other pods": (
        PendingReason.ALL_ALLOCATED,
        [node("a", {GPU: 2}), pod("x", {GPU: 1}, on="a"), pod("y", {GPU: 1}, on="a"), pod("p", {GPU: 1})],
    ),
    "two resources, each free on another node": (
        PendingReason.ON_NO_SINGLE_NODE,
        [
            node("a", {MIG1: 1, MIG3: 1}),
            node("b", {MIG1: 1, MIG3: 1}),
            pod("x", {MIG1: 1}, on="a"),
            pod("y", {MIG3: 1}, on="b"),
            pod("p", {MIG1: 1, MIG3: 1}),
        ],
    ),
    "more than any node has": (
        PendingReason.ON_NO_SINGLE_NODE,
        [node("a", {GPU: 4}), node("b", {GPU: 4}), pod("p", {GPU: 8})],
    ),
    "more than all nodes have": (PendingReason.ON_NO_SINGLE_NODE, [node("a", {GPU: 4}), pod("p", {GPU: 8})]),
    "free GPUs without cpu beside them": (
        PendingReason.OTHER_RESOURCES,
        [node("a", {GPU: 4}), pod("x", {"cpu": 30}, on="a"), pod("p", {GPU: 1, "cpu": 4})],
    ),
    "more memory than any node has": (
        PendingReason.OTHER_RESOURCES,
        [node("a", {GPU: 4}), pod("p", {GPU: 1, "memory": "200Gi"})],
    ),
    "no RDMA devices on the nodes with GPUs": (
        PendingReason.OTHER_RESOURCES,
        [node("a", {GPU: 4}), node("b", {RDMA: 4}), pod("p", {GPU: 1, RDMA: 1})],
    ),
    "RDMA devices on no node": (PendingReason.OTHER_ON_NO_NODE, [node("a", {GPU: 4}), pod("p", {GPU: 1, RDMA: 1})]),
    "more cpu than a node has beside its DaemonSets": (
        PendingReason.OTHER_RESOURCES,
        [node("a", {GPU: 4}), pod("x", {"cpu": 1}, on="a", owner=("DaemonSet", "x")), pod("p", {GPU: 1, "cpu": 4})],
    ),
    "a bound volume of another zone": (
        PendingReason.VOLUME_ELSEWHERE,
        [node("a", {GPU: 4}), *BOUND, pod("p", {GPU: 1}, volumes=DATA)],
    ),
    "a claim for one pod at a time": (
        PendingReason.CLAIM_IN_USE,
        [node("a", {GPU: 4}), ONE_POD, pod("x", on="a", volumes=DATA), pod("p", {GPU: 1}, volumes=DATA)],
    ),
    "pressure": (
        PendingReason.UNDER_PRESSURE,
        [node("a", {GPU: 4}, taints=["node.kubernetes.io/disk-pressure:NoSchedule"]), pod("p", {GPU: 1})],
    ),
    "a node that the autoscaler removes": (
        PendingReason.BEING_REMOVED,
        [node("a", {GPU: 4}, taints=["ToBeDeletedByClusterAutoscaler=1:NoSchedule"]), pod("p", {GPU: 1})],
    ),
    "a node whose network agent has not started": (
        PendingReason.NOT_INITIALIZED,
        [node("a", {GPU: 4}, taints=["node.cilium.io/agent-not-ready:NoSchedule"]), pod("p", {GPU: 1})],
    ),
    "a resource that only another scheduler knows": (
        PendingReason.SCHEDULER_UNSET,
        [node("a", {GPU: 4}), pod("p", {GPU: 1, "nvidia.com/gpumem": 3000})],
    ),
    "as many pods as a node may have": (
        PendingReason.OTHER_RESOURCES,
        [node("a", {GPU: 4, "pods": "1"}), pod("x", on="a"), pod("p", {GPU: 1, "cpu": 1})],
    ),
    "anti-affinity with a running pod": (
        PendingReason.OTHER_FILTERS,
        [
            node("a", {GPU: 4}),
            pod("x", {GPU: 1}, on="a", labels={"app": "train"}),
            pod("p", {GPU: 1}, labels={"app": "train"}, affinity=APART),
        ],
    ),
    "scheduling gates": (
        PendingReason.SCHEDULING_GATES,
        [node("a", {GPU: 4}), pod("p", {GPU: 1}, schedulingGates=GATES)],
    ),
    "a volume claim that does not exist": (
        PendingReason.VOLUME_CLAIMS,
        [node("a", {GPU: 4}), pod("p", {GPU: 1}, volumes=DATA)],
    ),
    "a volume claim that is Pending": (
        PendingReason.VOLUME_CLAIMS,
        [node("a", {GPU: 4}), volume_claim("data", "Pending"), pod("p", {GPU: 1}, volumes=DATA)],
    ),
    "a volume claim whose volume is lost": (
        PendingReason.VOLUME_CLAIMS,
        [node("a", {GPU: 4}), volume_claim("data", "Lost"), pod("p", {GPU: 1}, volumes=DATA)],
    ),
    "a volume claim that is being deleted": (
        PendingReason.VOLUME_CLAIMS,
        [
            node("a", {GPU: 4}),
            volume_claim("data", "Bound", deletionTimestamp=ago(hours=1)),
            pod("p", {GPU: 1}, volumes=DATA),
        ],
    ),
    "the volume claim of an ephemeral volume": (
        PendingReason.VOLUME_CLAIMS,
        [node("a", {GPU: 4}), pod("p", {GPU: 1}, volumes=SCRATCH)],
    ),
    "a claim that waits for its first consumer, whose provisioner does not run": (
        PendingReason.SCHEDULER_MESSAGE,
        [
            node("a", {GPU: 4}),
            volume_claim("data", "Pending"),
            event(volume_claim("data", "Pending"), "WaitForFirstConsumer", "waiting for first consumer to be created"),
            event(
                volume_claim("data", "Pending"), "ExternalProvisioning", "waiting for the provisioner example.com/none"
            ),
            pod(
                "p", {GPU: 1}, volumes=DATA, message='running PreBind plugin "VolumeBinding": binding volumes: timeout'
            ),
        ],
    ),
    "a volume of another zone": (
        PendingReason.SCHEDULER_MESSAGE,
        [
            node("a", {GPU: 4}),
            volume_claim("data", "Bound"),
            pod(
                "p",
                {GPU: 1},
                volumes=DATA,
                message=f"{NO_NODE} 1 node(s) didn't match PersistentVolume's node affinity.",
            ),
        ],
    ),
    "a resource claim that no device serves": (
        PendingReason.SCHEDULER_MESSAGE,
        [node("a"), pod("p", resourceClaims=CLAIMS, message=f"{NO_NODE} 1 cannot allocate all claims.")],
    ),
    "a GPU that is kept for a nominated pod": (
        PendingReason.SCHEDULER_MESSAGE,
        [
            node("a", {GPU: 1}),
            pod("other", {"cpu": 1}, status={"nominatedNodeName": "a"}),
            pod("p", {GPU: 1}, message=f"{NO_NODE} 1 Insufficient {GPU}."),
        ],
    ),
    "a scheduler that does not run": (
        PendingReason.NO_SCHEDULER_MESSAGE,
        [node("a", {GPU: 4}), pod("p", {GPU: 1}, schedulerName="gang")],
    ),
}


@pytest.mark.parametrize("name", POSITIVE)
def test_the_reason_of_a_pending_pod(name: str) -> None:
    expected, objects = POSITIVE[name]
    finding = answer(*objects).finding
    assert finding.reason == expected
    assert all(remedy.text.endswith(".") and has_its_risk(remedy) for remedy in finding.remedies)


def test_every_reason_has_a_recorded_cluster() -> None:
    assert {expected for expected, _ in POSITIVE.values()} == set(PendingReason) - DEVICE_REASONS


NEAR_MISSES: dict[str, tuple[PendingReason, list[Object]]] = {
    "one device of the profile is allocatable": (
        PendingReason.RESOURCE_ON_NO_NODE,
        [node("a", {MIG3: 1}), pod("x", {MIG3: 1}, on="a"), pod("p", {MIG3: 1})],
    ),
    "the strategy is single, with another profile": (
        PendingReason.WRONG_MIG_STRATEGY,
        [node("a", {GPU: 7}, labels={STRATEGY: "single", PRODUCT: "A100-SXM4-40GB-MIG-3g.20gb"}), pod("p", {MIG1: 1})],
    ),
    "the layout is still pending where the strategy is none": (
        PendingReason.WRONG_MIG_STRATEGY,
        [node("a", {GPU: 1}, labels={**LAYOUT, "nvidia.com/mig.config.state": "pending"}), pod("p", {MIG1: 1})],
    ),
    "the strategy is mixed, and no device is split off": (
        PendingReason.WRONG_MIG_STRATEGY,
        [node("a", labels={STRATEGY: "mixed"}), pod("p", {GPU: 1})],
    ),
    "another vendor's resource has no strategy": (
        PendingReason.WRONG_MIG_STRATEGY,
        [node("a", {MIG1: 7}, labels={STRATEGY: "mixed"}), pod("p", {"amd.com/gpu": 1})],
    ),
    "the pod tolerates the taint": (
        PendingReason.TAINT,
        [node("a", {GPU: 4}, taints=TAINTED), pod("p", {GPU: 1}, tolerations=TOLERATES)],
    ),
    "the affinity is only preferred": (
        PendingReason.SELECTOR_OR_AFFINITY,
        [
            node("a", {GPU: 4}),
            pod("p", {GPU: 1}, affinity={"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}),
        ],
    ),
    "another node is not cordoned": (
        PendingReason.CORDON,
        [node("a", {GPU: 4}, cordoned=True), node("b", {GPU: 4}), pod("p", {GPU: 1})],
    ),
    "the pod tolerates nodes that are not Ready": (
        PendingReason.NOT_READY,
        [
            node("a", {GPU: 4}, ready=False, taints=[NOT_READY]),
            pod("p", {GPU: 1}, tolerations=[{"operator": "Exists"}]),
        ],
    ),
    "the pods with the devices have ended": (
        PendingReason.ALL_ALLOCATED,
        [
            node("a", {GPU: 1}),
            pod("x", {GPU: 1}, on="a", status={"phase": "Succeeded"}),
            pod("y", {GPU: 1}, on="a", status={"phase": "Failed"}),
            pod("p", {GPU: 1}),
        ],
    ),
    "the amounts of the other pod are malformed": (
        PendingReason.ALL_ALLOCATED,
        [node("a", {GPU: 1}), pod("x", {GPU: "one"}, on="a"), pod("p", {GPU: 1})],
    ),
    "a node that the pod could use has enough": (
        PendingReason.ON_NO_SINGLE_NODE,
        [node("a", {GPU: 4}), node("b", {GPU: 4}), pod("x", {GPU: 2}, on="a"), pod("p", {GPU: 3})],
    ),
    "the cpu is free": (
        PendingReason.OTHER_RESOURCES,
        [node("a", {GPU: 4, "cpu": 32}), pod("x", {"cpu": 28}, on="a"), pod("p", {GPU: 1, "cpu": 4})],
    ),
    "the other pod has another label": (
        PendingReason.OTHER_FILTERS,
        [
            node("a", {GPU: 4}),
            pod("x", {GPU: 1}, on="a", labels={"app": "serve"}),
            pod("p", {GPU: 1}, labels={"app": "train"}, affinity=APART),
        ],
    ),
    "the gates have been removed": (
        PendingReason.SCHEDULING_GATES,
        [node("a", {GPU: 4}), pod("p", {GPU: 1}, schedulingGates=[])],
    ),
    "the claim is bound": (
        PendingReason.VOLUME_CLAIMS,
        [node("a", {GPU: 4}), volume_claim("data", "Bound"), pod("p", {GPU: 1}, volumes=DATA)],
    ),
    "the claim waits for the pod": (
        PendingReason.VOLUME_CLAIMS,
        [
            node("a", {GPU: 4}),
            volume_claim("data", "Pending"),
            event(volume_claim("data", "Pending"), "WaitForFirstConsumer", "waiting for first consumer to be created"),
            pod("p", {GPU: 1}, volumes=DATA),
        ],
    ),
    "another reason is true, whatever the message": (
        PendingReason.SCHEDULER_MESSAGE,
        [node("a"), pod("p", {GPU: 1}, message=f"{NO_NODE} 1 node(s) had volume node affinity conflict.")],
    ),
    "the scheduler has recorded a message": (
        PendingReason.NO_SCHEDULER_MESSAGE,
        [node("a", {GPU: 4}), pod("p", {GPU: 1}, schedulerName="gang", message="the gang is not complete")],
    ),
    "another resource is on another node with GPUs": (
        PendingReason.OTHER_ON_NO_NODE,
        [node("a", {GPU: 4}), node("b", {GPU: 4, RDMA: 1}), pod("x", {RDMA: 1}, on="b"), pod("p", {GPU: 1, RDMA: 1})],
    ),
    "the volume is in the zone of a node": (
        PendingReason.VOLUME_ELSEWHERE,
        [node("a", {GPU: 4}, labels={"zone": "b"}), *BOUND, pod("p", {GPU: 1}, volumes=DATA)],
    ),
    "the pod that used the claim has ended": (
        PendingReason.CLAIM_IN_USE,
        [
            node("a", {GPU: 4}),
            ONE_POD,
            pod("x", on="a", volumes=DATA, status={"phase": "Succeeded"}),
            pod("p", {GPU: 1}, volumes=DATA),
        ],
    ),
    "the pod tolerates pressure": (
        PendingReason.UNDER_PRESSURE,
        [
            node("a", {GPU: 4}, taints=["node.kubernetes.io/disk-pressure:NoSchedule"]),
            pod("p", {GPU: 1}, tolerations=[{"operator": "Exists"}]),
        ],
    ),
    "the autoscaler prefers to remove the node": (
        PendingReason.BEING_REMOVED,
        [node("a", {GPU: 4}, taints=["DeletionCandidateOfClusterAutoscaler=1:PreferNoSchedule"]), pod("p", {GPU: 1})],
    ),
    "a node whose agent has started": (PendingReason.NOT_INITIALIZED, [node("a", {GPU: 4}), pod("p", {GPU: 1})]),
    "the scheduler that knows the resource": (
        PendingReason.SCHEDULER_UNSET,
        [node("a", {GPU: 4}), pod("p", {GPU: 1, "nvidia.com/gpumem": 3000}, schedulerName="hami-scheduler")],
    ),
    "a device plugin offers the resource": (
        PendingReason.SCHEDULER_UNSET,
        [node("a", {GPU: 4, "nvidia.com/gpumem": 9000}), pod("p", {GPU: 1, "nvidia.com/gpumem": 3000})],
    ),
    "the volume has no claim": (
        PendingReason.VOLUME_CLAIMS,
        [node("a", {GPU: 4}), pod("p", {GPU: 1}, volumes=[{"name": "tmp", "emptyDir": {}}])],
    ),
}


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_a_near_miss_has_another_reason_or_none(name: str) -> None:
    missed, objects = NEAR_MISSES[name]
    assert reason(*objects) != missed


def test_every_reason_has_a_near_miss() -> None:
    assert {missed for missed, _ in NEAR_MISSES.values()} == set(PendingReason) - DEVICE_REASONS


def test_claims_are_not_judged_if_they_were_not_read() -> None:
    objects = [node("a", {GPU: 4}), pod("p", {GPU: 1}, volumes=DATA)]
    assert reason(*objects, absent=["PersistentVolumeClaim"]) == PendingReason.NO_SCHEDULER_MESSAGE


def test_pods_are_not_judged_if_nodes_were_not_read() -> None:
    pending = answer(pod("p", {GPU: 1}, message=f"{NO_NODE} 1 Insufficient cpu."), absent=["Node"])
    assert pending.finding.evidence == ("not evaluated: nodes were not read",)
    assert pending.finding.reason == PendingReason.SCHEDULER_MESSAGE
    assert pending.finding.message == f"default-scheduler: {NO_NODE} 1 Insufficient cpu."
    assert pending.finding.since == NOW - timedelta(hours=3)


@pytest.mark.parametrize(
    "other",
    [
        pod("p", {"cpu": 1}),
        pod("p", {GPU: 0}),
        pod("p", {GPU: 1}, on="a"),
        pod("p", {GPU: 1}, status={"phase": "Failed"}),
        pod("p", {GPU: 1}, metadata={"deletionTimestamp": ago(minutes=1)}),
        pod("p", {RDMA: 1}),
    ],
    ids=["without GPUs", "no device", "bound", "failed", "being deleted", "RDMA alone"],
)
def test_other_pods_are_no_pending_gpu_pods(other: Object) -> None:
    assert answers(node("a"), other) == ()


def test_a_pod_that_should_be_scheduled_soon_has_possibly_no_scheduler() -> None:
    pending = answer(node("a", {GPU: 4}), node("b", {GPU: 4}), pod("p", {GPU: 1}))
    assert pending.finding.message == "default-scheduler: no message is recorded"
    assert (pending.finding.severity, pending.finding.certainty) == (FindingSeverity.WARNING, Certainty.POSSIBLE)
    assert pending.finding.evidence == ("nodes that pass all filters: a and b",)


def test_taints_of_nodes_that_match_the_pod_are_evidence_with_a_remedy() -> None:
    matching = node("a", {GPU: 4}, labels={"zone": "a"}, taints=TAINTED)
    finding = answer(matching, node("b", {GPU: 4}), pod("p", {GPU: 1}, nodeSelector={"zone": "a"})).finding
    assert finding.reason == PendingReason.SELECTOR_OR_AFFINITY
    assert finding.evidence[-1] == "nodes that match have the taint nvidia.com/gpu=present:NoSchedule: a"
    assert finding.remedies[0].text.startswith("Add tolerations for nvidia.com/gpu=present:NoSchedule to the pod")


def test_a_malformed_pod_is_not_evaluated() -> None:
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": 3}}}
    pending = answer(node("a", {GPU: 4}), pod("p", {GPU: 1}, affinity=affinity))
    assert pending.finding.reason == PendingReason.NO_SCHEDULER_MESSAGE
    (line,) = pending.finding.evidence
    assert line.startswith("not evaluated: the pod was not evaluated: /spec/affinity/nodeAffinity/")


def test_a_pod_whose_affinity_costs_too_much_is_not_evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "MAX_COMPARISONS", 0)
    objects = cluster(
        node("a", {GPU: 4}),
        pod("q", on="a", labels={"app": "train"}),
        pod("p", {GPU: 1}, affinity=APART),
        pod("r", {GPU: 8}),
    )
    apart, other = pending_pods(objects, scheduler_of(objects), None)
    assert apart.finding.evidence == (
        "not evaluated: the pod was not evaluated: the cost limit of 0 for topology spread and pod affinity is used up",
    )
    assert other.finding.reason == PendingReason.ON_NO_SINGLE_NODE


class TestMessages:
    """The message that the scheduler recorded."""

    FULL = (node("a", {GPU: 1}), node("b", taints=["dedicated=infra:NoSchedule"]), pod("x", {GPU: 1}, on="a"))
    MESSAGE = "0/2 nodes are available: 1 Insufficient nvidia.com/gpu, 1 node(s) had untolerated taint(s)."
    GATED = "Scheduling is blocked due to non-empty scheduling gates"

    def evidence(self, *objects: Object) -> Sequence[str]:
        finding = answer(*self.FULL, *objects).finding
        assert finding.reason == PendingReason.ALL_ALLOCATED
        return finding.evidence

    def test_it_is_evidence(self) -> None:
        assert f"the scheduler's message: {self.MESSAGE}" in self.evidence(pod("p", {GPU: 1}, message=self.MESSAGE))

    def test_a_gated_pod_has_no_other_message(self) -> None:
        finding = answer(*self.FULL, pod("p", {GPU: 1}, message=self.GATED, schedulingGates=GATES)).finding
        assert finding.reason == PendingReason.SCHEDULING_GATES
        assert finding.evidence == (
            "kueue.x-k8s.io/admission is removed by Kueue, once it admits the Workload",
            f"the scheduler's message: {self.GATED}",
        )
        assert [each.reason for each in finding.remaining] == ["GPUsAllocated"]

    @pytest.mark.parametrize(
        ("message", "fields", "certainty"),
        [
            ("0/1 nodes are available: 1 Insufficient cpu.", {}, Certainty.POSSIBLE),
            ("0/1 nodes are available: 1 Insufficient cpu.", {"schedulerName": "volcano"}, Certainty.CERTAIN),
            ("0/1 nodes are available: 1 X.", {"volumes": DATA}, Certainty.CERTAIN),
            ("binding volumes: context deadline exceeded", {}, Certainty.CERTAIN),
        ],
        ids=["a node passes all filters now", "another scheduler", "filters that are not modelled", "no filters"],
    )
    def test_as_the_reason_it_is_possible_if_the_cluster_has_changed(
        self, message: str, fields: Object, certainty: Certainty
    ) -> None:
        bound = volume_claim("data", "Bound")
        finding = answer(node("a", {GPU: 1}), bound, pod("p", {GPU: 1}, message=message, **fields)).finding
        assert (finding.reason, finding.certainty) == (PendingReason.SCHEDULER_MESSAGE, certainty)
        assert not any("scheduler's message" in line for line in finding.evidence)

    def test_it_is_read_from_the_last_event_without_a_condition(self) -> None:
        waiting = pod("p", {GPU: 1}, status={"conditions": []})
        old = event(waiting, "FailedScheduling", "0/1 nodes are available: 1 Too many pods.", last=ago(hours=1))
        new = event(waiting, "FailedScheduling", self.MESSAGE, last=ago(minutes=1))
        other = event(waiting, "Preempted", "by another pod", last=ago(seconds=1))
        assert self.evidence(waiting, new, old, other)[-1] == f"the scheduler's message: {self.MESSAGE}"

    def test_events_of_an_earlier_pod_of_the_same_name_are_not_read(self) -> None:
        earlier = pod("p", {GPU: 1}, metadata={"uid": "1"}, status={"conditions": []})
        waiting = pod("p", {GPU: 1}, metadata={"uid": "2"}, status={"conditions": []})
        old = event(earlier, "FailedScheduling", self.MESSAGE, last=ago(minutes=1))
        assert not any(self.MESSAGE in line for line in self.evidence(waiting, old))


def test_only_pods_of_the_scope_are_returned() -> None:
    recorded = cluster(node("a"), pod("p", {GPU: 1}), pod("q", {GPU: 1}, namespace="other"))
    entries = pending_pods(recorded, scheduler_of(recorded), None, lambda item: item.namespace == "other")
    assert [str(entry.finding.object) for entry in entries] == ["Pod/other/q"]


@given(st.permutations([pod(name, {GPU: count}) for name, count in (("p", 1), ("q", 1), ("r", 2), ("s", 9))]))
def test_the_order_of_pods_does_not_matter(pods: list[Object]) -> None:
    nodes = [node("a", {GPU: 4}), node("b", {GPU: 2}, taints=TAINTED), pod("x", {GPU: 4}, on="a")]
    found = {entry.finding.object.name: entry.finding for entry in answers(*nodes, *pods)}
    assert found == {entry.finding.object.name: entry.finding for entry in answers(*nodes, *sorted(pods, key=str))}


class TestFindings:
    """Texts of findings: what the objects show, and what helps."""

    def test_a_profile_on_no_node_names_what_is_offered(self) -> None:
        finding = answer(node("a", {GPU: 4}), node("b", {GPU: 2, MIG1: 7}), pod("p", {MIG3: 1})).finding
        assert finding.message == f"no node offers {MIG3}"
        assert finding.severity is FindingSeverity.ERROR
        assert finding.certainty is Certainty.CERTAIN
        assert finding.evidence == (f"allocatable on 2 nodes: 6 {GPU}, 7 {MIG1}",)
        assert finding.remedies[0].command.startswith("kubectl get nodes ")

    def test_a_profile_of_no_card_is_named_as_such(self) -> None:
        finding = answer(node("a", {GPU: 4}), pod("p", {"nvidia.com/mig-3g.21gb": 1})).finding
        assert any("no known card has the MIG profile '3g.21gb'" in line for line in finding.evidence)

    def test_capacity_without_allocatable_is_evidence(self) -> None:
        broken = node("a", {GPU: 0}, capacity={GPU: 8})
        malformed = node("b", capacity={GPU: 8})
        malformed["status"]["capacity"][GPU] = "many"
        finding = answer(broken, malformed, pod("p", {GPU: 1})).finding
        assert f"capacity of {GPU}: 8 on a, of which 0 are allocatable" in finding.evidence
        assert finding.remedies[0].text.startswith("Look at the device plugin")

    def test_the_strategy_of_nodes_is_evidence(self) -> None:
        labels = {STRATEGY: "single", PRODUCT: "A100-SXM4-40GB-MIG-1g.5gb"}
        finding = answer(node("a", {GPU: 7}, labels=labels), pod("p", {MIG1: 1})).finding
        assert finding.evidence == (f"{STRATEGY}=single, with {GPU}, on a",)
        assert finding.remedies[1].command == f"kubectl get node a -L {STRATEGY},{PRODUCT},nvidia.com/mig.config"

    def test_a_selector_that_excludes_all_tainted_nodes_is_evidence_with_a_remedy(self) -> None:
        nodes = [node("a", {GPU: 4}, labels={"zone": "a"}, taints=TAINTED), node("b", {GPU: 4}, taints=TAINTED)]
        both = answer(*nodes, pod("p", {GPU: 1}, nodeSelector={"zone": "b"})).finding
        assert [both.reason, *(each.reason for each in both.remaining)] == [
            "NodeSelectorOrAffinity",
            "UntoleratedTaint",
        ]
        assert both.evidence[-1] == "node selector zone=b: matches 0 of 2; they have zone=a"
        assert "Correct the node selector or the required node affinity of the pod." in [r.text for r in both.remedies]
        taint = answer(*nodes, pod("p", {GPU: 1}, nodeSelector={"zone": "a"})).finding
        assert "selector" not in f"{taint.message} {taint.remedies}"

    def test_taints_are_evidence_with_their_nodes(self) -> None:
        nodes = [node("a", {GPU: 4}, taints=TAINTED), node("b", {GPU: 4}, taints=["team:NoExecute"])]
        finding = answer(*nodes, pod("p", {GPU: 1})).finding
        assert sorted(finding.evidence) == [
            f"nodes that offer 1 {GPU}: a and b",
            "nvidia.com/gpu=present:NoSchedule on a",
            "team:NoExecute on b",
        ]

    def test_labels_that_do_not_match_are_evidence(self) -> None:
        nodes = [
            node("a", {GPU: 4}, labels={"zone": "b", "disk": "ssd"}),
            node("b", {GPU: 4}, labels={"zone": "c", "disk": "ssd"}),
            node("c", {GPU: 4}, taints=TAINTED),
        ]
        wanted = {"zone": "a", "disk": "ssd", "rack": "1"}
        finding = answer(*nodes, pod("p", {GPU: 1}, nodeSelector=wanted, affinity=ON_ZONE)).finding
        assert finding.evidence == (
            f"nodes that offer 1 {GPU}: a, b and c",
            "excluded by its node selector or affinity: c",
            "node selector zone=a: matches 0 of 2; they have zone=b and zone=c",
            "node selector rack=1: matches 0 of 2; they have no such label",
            "required node affinity zone In a: matches 0 of 2",
        )

    def test_affinity_that_matches_is_not_blamed(self) -> None:
        in_zone = node("a", {GPU: 4}, labels={"zone": "a"})
        finding = answer(in_zone, pod("p", {GPU: 1}, nodeSelector={"disk": "ssd"}, affinity=ON_ZONE)).finding
        assert finding.evidence[1:] == ("node selector disk=ssd: matches 0 of 1; they have no such label",)

    def test_cordons_are_lifted_by_a_command(self) -> None:
        finding = answer(node("a", {GPU: 4}, cordoned=True), pod("p", {GPU: 1})).finding
        assert finding.severity is FindingSeverity.WARNING
        assert [(remedy.command, remedy.risk) for remedy in finding.remedies] == [("kubectl uncordon a", Risk.MEDIUM)]

    @pytest.mark.parametrize(
        ("taints", "certainty"), [([NOT_READY], Certainty.CERTAIN), ([], Certainty.POSSIBLE)], ids=["tainted", "new"]
    )
    def test_a_node_that_is_not_ready_is_only_possible_without_its_taint(
        self, taints: list[str], certainty: Certainty
    ) -> None:
        finding = answer(node("a", {GPU: 4}, ready=False, taints=taints), pod("p", {GPU: 1})).finding
        assert (finding.reason, finding.certainty) == (PendingReason.NOT_READY, certainty)

    @pytest.mark.parametrize(
        ("taints", "certainty"), [([NOT_READY], Certainty.CERTAIN), ([], Certainty.POSSIBLE)], ids=["tainted", "new"]
    )
    def test_a_later_reason_is_only_possible_if_the_scheduler_may_choose_such_a_node(
        self, taints: list[str], certainty: Certainty
    ) -> None:
        nodes = [node("a", {GPU: 1}), node("b", {GPU: 1}, ready=False, taints=taints)]
        finding = answer(*nodes, pod("x", {GPU: 1}, on="a"), pod("p", {GPU: 1})).finding
        assert (finding.reason, finding.certainty) == (PendingReason.ALL_ALLOCATED, certainty)
        assert "excluded by the condition Ready: b" in finding.evidence

    def test_a_reason_is_only_possible_if_the_scheduler_may_choose_a_node_that_is_not_ready(self) -> None:
        # Without the node's condition, the pod would run there.
        nodes = [node("a", {GPU: 1}), node("b", {GPU: 1}, ready=False)]
        finding = answer(*nodes, pod("x", {GPU: 1}, on="a"), pod("p", {GPU: 1, "cpu": 2})).finding
        assert (finding.reason, finding.certainty) == (PendingReason.ALL_ALLOCATED, Certainty.POSSIBLE)

    def test_holders_are_named_with_their_devices_and_times(self) -> None:
        holders = [
            pod("small", {GPU: 1}, on="a"),
            pod("large", {GPU: 4}, on="a", metadata={"deletionTimestamp": ago(minutes=5)}),
            *(pod(f"one-{number}", {GPU: 1}, on="b") for number in range(5)),
            pod("none", {"cpu": 1}, on="b"),
        ]
        started = pod("early", {GPU: 2}, on="b", status={"conditions": [{"type": "Ready"}], "startTime": ago(days=1)})
        nodes = [
            node("a", {GPU: 5, MIG1: 2}),
            node("b", {GPU: 7}),
            node("c", {GPU: 4}, taints=TAINTED),
            pod("y", {MIG1: 1}, on="a"),
        ]
        finding = answer(*nodes, *holders, started, pod("p", {GPU: 1})).finding
        assert finding.message == f"all {GPU} on the 2 nodes that the pod could use are allocated"
        assert finding.evidence == (
            f"nodes that offer 1 {GPU}: a, b and c",
            "excluded by taints that the pod does not tolerate: c",
            f"{GPU}: 1 requested; of 12 on 2 nodes, 0 are free, at most 0 on one node (a)",
            f"ml/large holds 4 {GPU} on a since 2026-11-23T09:00:00Z, and is being deleted",
            f"ml/early holds 2 {GPU} on b since 2026-11-22T12:00:00Z",
            f"ml/one-0 holds 1 {GPU} on b since 2026-11-23T09:00:00Z",
            f"ml/one-1 holds 1 {GPU} on b since 2026-11-23T09:00:00Z",
            f"ml/one-2 holds 1 {GPU} on b since 2026-11-23T09:00:00Z",
            f"3 other pods hold 3 {GPU}",
            f"free on these nodes: 1 {MIG1}",
        )

    def test_the_best_node_lacks_the_fewest_devices(self) -> None:
        nodes = [node(name, {GPU: 8}) for name in "abc"]
        holders = [pod(f"x-{name}", {GPU: count}, on=name) for name, count in zip("abc", (6, 3, 5), strict=True)]
        finding = answer(*nodes, *holders, pod("p", {GPU: 8})).finding
        assert (
            finding.message == f"3 nodes have enough free {GPU} together, but none has enough alone; b lacks the fewest"
        )
        assert finding.evidence[1:] == (
            f"{GPU}: 8 requested; of 24 on 3 nodes, 10 are free, at most 5 on one node (b)",
            f"ml/x-b holds 3 {GPU} on b since 2026-11-23T09:00:00Z",
        )

    def test_a_request_beyond_each_node_is_an_error_with_the_most_of_a_node(self) -> None:
        finding = answer(node("a", {GPU: 4}), node("b", {GPU: 4}), pod("p", {GPU: 8})).finding
        assert finding.message == f"no node has 8 {GPU}, even when empty"
        assert finding.evidence == (f"{GPU}: 8 requested, at most 4 on one node (a), 8 on all nodes",)
        assert finding.severity is FindingSeverity.ERROR

    def test_other_resources_are_named_with_what_is_free(self) -> None:
        room: Object = {GPU: 4, "cpu": 32, "memory": "128Gi"}
        nodes = [node("a", room), node("b", {**room, "pods": 1})]
        busy = [pod("x", {"cpu": "30500m", "memory": "100Gi"}, on="a"), pod("y", on="b")]
        finding = answer(nodes[0], busy[0], pod("p", {GPU: 1, "cpu": 2, "memory": "64Gi"})).finding
        assert finding.severity is FindingSeverity.WARNING
        assert finding.message == f"too little cpu and memory is free on the 1 node that could give the pod 1 {GPU}"
        assert finding.evidence[1:] == (
            "cpu: 2 requested, free on 0 of 1 node; at most 1500m on one (a)",
            "memory: 64Gi requested, free on 0 of 1 node; at most 28Gi on one (a)",
        )
        absent = answer(*nodes, *busy, pod("p", {GPU: 1, "cpu": 2, "memory": "64Gi", RDMA: 1})).finding
        assert (absent.reason, absent.message) == (PendingReason.OTHER_ON_NO_NODE, f"no node offers {RDMA}")
        assert [each.message for each in absent.remaining] == [
            f"too little room for pods is free on the 1 node that could give the pod 1 {GPU}"
        ]

    def test_claims_that_the_scheduler_names_are_certain(self) -> None:
        message = "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims."
        waiting = pod("p", {GPU: 1}, message=message, volumes=DATA)
        finding = answer(node("a", {GPU: 4}), volume_claim("data", "Pending"), waiting).finding
        assert finding.certainty is Certainty.CERTAIN

    def test_claims_that_may_be_bound_later_are_possible(self) -> None:
        unknown = [{"name": "new", "persistentVolumeClaim": {"claimName": "new"}}]
        made = [node("a", {GPU: 4}), volume_claim("data", "Pending"), volume_claim("new", "")]
        finding = answer(*made, pod("p", {GPU: 1}, volumes=[*DATA, *unknown])).finding
        assert (finding.certainty, finding.severity) == (Certainty.POSSIBLE, FindingSeverity.WARNING)
        assert finding.evidence == ("data is Pending", "new is not bound")
        assert finding.remedies[0].command == "kubectl describe persistentvolumeclaim -n ml data"
        made[2] = volume_claim("new", "Lost")
        finding = answer(*made, pod("p", {GPU: 1}, volumes=[*DATA, *unknown])).finding
        assert (finding.certainty, finding.severity) == (Certainty.CERTAIN, FindingSeverity.ERROR)

    def test_pods_are_no_resource_to_request_less_of(self) -> None:
        full = [node("a", {GPU: 4, "pods": "1"}), pod("x", on="a")]
        busy = pod("x", {"cpu": 3}, on="a")
        alone, with_cpu = (
            answer(*objects, pod("p", {GPU: 1, "cpu": 2})).finding for objects in (full, [full[0], busy])
        )
        assert alone.message == f"too little room for pods is free on the 1 node that could give the pod 1 {GPU}"
        move = "Move pods without GPUs off these nodes."
        assert [remedy.text for remedy in alone.remedies[1:]] == [move]
        assert [remedy.text for remedy in with_cpu.remedies[1:]] == ["Request less cpu.", move]

    def test_amounts_that_a_limit_range_set_are_evidence(self) -> None:
        annotation = {"kubernetes.io/limit-ranger": "LimitRanger plugin set: cpu request for container main"}
        nodes = [node("a", {GPU: 4}), pod("x", {"cpu": 30}, on="a")]
        waiting = pod("p", {GPU: 1, "cpu": 4}, metadata={"annotations": annotation})
        line = f"a LimitRange of the namespace set amounts of the pod: {annotation['kubernetes.io/limit-ranger']}"
        finding = answer(*nodes, waiting).finding
        assert (finding.severity, line in finding.evidence) == (FindingSeverity.WARNING, True)
        assert line not in answer(node("a"), waiting).finding.evidence

    def test_the_node_that_affinity_demands_is_evidence(self) -> None:
        terms = [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b"]}]},
            {
                "matchExpressions": [
                    {"key": "disk", "operator": "Exists"},
                    {"key": "zone", "operator": "Gt", "values": ["3"]},
                ]
            },
        ]
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
        finding = answer(node("a", {GPU: 4}), node("b"), pod("p", {GPU: 1}, affinity=affinity)).finding
        assert finding.evidence[-1] == (
            "required node affinity metadata.name In b or disk Exists, zone Gt 3: matches 0 of 1"
        )

    def test_the_spread_constraint_is_evidence(self) -> None:
        constraint = {
            "maxSkew": 1,
            "topologyKey": "zone",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "train"}},
        }
        zones = [node("a", {GPU: 4}, labels={"zone": "a"}), node("b", labels={"zone": "b"})]
        running = pod("x", {"cpu": 1}, on="a", labels={"app": "train"})
        waiting = pod("p", {GPU: 1}, labels={"app": "train"}, topologySpreadConstraints=[constraint])
        finding = answer(*zones, running, waiting).finding
        assert finding.reason == PendingReason.OTHER_FILTERS
        assert finding.cause == "The scheduler's PodTopologySpread keeps the pod off these nodes."
        assert finding.evidence[1] == "topology spread constraint: maxSkew 1 over zone, of pods with app in (train)"

    def test_names_are_quoted_in_commands(self) -> None:
        finding = answer(node("$(reboot)", {GPU: 4}, taints=TAINTED), pod("p", {GPU: 1})).finding
        assert "'$(reboot)'" in finding.remedies[1].command


BROKEN: dict[str, tuple[list[Object], Object]] = {
    "a node without a device plugin": ([node("a", labels={"nvidia.com/gpu.present": "true"})], pod("p", {GPU: 1})),
    "a plugin that stopped, whose devices count as lost": (
        [node("a", {GPU: 0}, capacity={GPU: 8})],
        pod("p", {GPU: 8}),
    ),
    "one unhealthy device": ([node("a", {GPU: 7}, capacity={GPU: 8}), pod("x", {GPU: 7}, on="a")], pod("p", {GPU: 1})),
    "a layout with the profile that is being applied": (
        [node("a", {GPU: 1}, labels={"nvidia.com/mig.config": "all-3g.20gb"})],
        pod("p", {MIG3: 1}),
    ),
    "a layout whose profiles are not known": (
        [node("a", {GPU: 1}, labels={"nvidia.com/mig.config": "ours"})],
        pod("p", {MIG3: 1}),
    ),
    "a node that is not Ready": ([node("a", {GPU: 1}, ready=False, taints=[NOT_READY])], pod("p", {GPU: 1})),
    "beside a node that the selector excludes": (
        [node("a", labels={"nvidia.com/gpu.present": "true", "zone": "a"}), node("b", {GPU: 1})],
        pod("p", {GPU: 1}, nodeSelector={"zone": "a"}),
    ),
    "beside a full node": (
        [node("a", labels={"nvidia.com/gpu.present": "true"}), node("b", {GPU: 1}), pod("x", {GPU: 1}, on="b")],
        pod("p", {GPU: 1}),
    ),
}
NOT_BROKEN: dict[str, tuple[list[Object], Object]] = {
    "a node that can serve the pod": ([node("a", {GPU: 7}, capacity={GPU: 8})], pod("p", {GPU: 1})),
    "more than the healthy node has": ([node("a", {GPU: 7}, capacity={GPU: 8})], pod("p", {GPU: 9})),
    "devices that other pods hold": (
        [node("a", {GPU: 7}, capacity={GPU: 8}), pod("x", {GPU: 7}, on="a")],
        pod("p", {GPU: 2}),
    ),
    "another profile": ([node("a", {GPU: 1}, labels={"nvidia.com/mig.config": "all-1g.5gb"})], pod("p", {MIG3: 1})),
    "no layout": ([node("a", {GPU: 1})], pod("p", {MIG3: 1})),
    "a node without GPUs": ([node("a")], pod("p", {GPU: 1})),
    "another vendor": ([node("a", labels={"nvidia.com/gpu.present": "true"})], pod("p", {"amd.com/gpu": 1})),
    "a taint": ([node("a", taints=TAINTED, labels={"nvidia.com/gpu.present": "true"})], pod("p", {GPU: 1})),
    "a cordon": ([node("a", labels={"nvidia.com/gpu.present": "true"}, cordoned=True)], pod("p", {GPU: 1})),
    "a selector": ([node("a", labels={PRODUCT: "L4"})], pod("p", {GPU: 1}, nodeSelector={"zone": "b"})),
    "too little cpu": ([node("a", labels={PRODUCT: "L4"})], pod("p", {GPU: 1, "cpu": 64})),
}


def test_a_profile_that_no_card_of_the_nodes_has_is_evidence() -> None:
    labels = {PRODUCT: "NVIDIA-A100-SXM4-80GB"}
    assert (
        answer(node("a", {GPU: 8}, labels=labels), pod("p", {MIG1: 1}))
        .finding.evidence[1]
        .startswith("NVIDIA-A100-SXM4-80GB does not have the MIG profile 1g.5gb, but 1g.10gb, ")
    )
    (line,) = answer(node("a", {GPU: 8}, labels=labels), pod("p", {"nvidia.com/mig-1g.10gb": 1})).finding.evidence
    assert line == "allocatable on 1 node: 8 nvidia.com/gpu"


class TestBrokenNodes:
    """Nodes that could serve a pod but for findings about them."""

    def answer(self, nodes: list[Object], waiting: Object, **fields: Any) -> PendingPod:
        recorded = cluster(*nodes, waiting)
        about = Finding(**{"reason": "Broken", "severity": FindingSeverity.ERROR, "message": "", **fields}, object=A)
        (pending,) = pending_pods(recorded, scheduler_of(recorded), None, findings=[about])
        return pending

    @pytest.mark.parametrize("name", BROKEN)
    def test_their_remedy_is_first(self, name: str) -> None:
        pending = self.answer(*BROKEN[name])
        assert [each.object for each in pending.blocking] == [A]
        assert (
            "these nodes could run the pod once their own problems are solved: a (Broken)" in pending.finding.evidence
        )
        assert pending.finding.remedies[0].text == "Look at the findings about a first."

    @pytest.mark.parametrize("name", NOT_BROKEN)
    def test_nodes_that_could_not_serve_the_pod_do_not_count(self, name: str) -> None:
        assert self.answer(*NOT_BROKEN[name]).blocking == ()

    def test_neither_another_request_nor_another_layout_is_advised(self) -> None:
        for name in BROKEN:
            text = str(self.answer(*BROKEN[name]).finding.remedies)
            assert not re.search("that a node offers|MIG layout|Request|Correct", text)

    def test_infos_do_not_count(self) -> None:
        pending = self.answer(*BROKEN["a node without a device plugin"], severity=FindingSeverity.INFO)
        assert pending.blocking == ()


def card_node(card: str, count: int = 1, **fields: Any) -> Object:
    return node(card, {GPU: count}, labels={"card": card}, **fields)


class TestLadders:
    """The resources that the active ladders would give."""

    PENDING = (node("a", {GPU: 4, MIG1: 2}), pod("p", {MIG3: 1}))

    def evidence(self, rules: RuleSet, *objects: Object) -> tuple[str, ...]:
        finding = answer(*(objects or self.PENDING), rules=rules).finding
        return finding.evidence[1:]

    def test_a_ladder_would_give_another_resource(self) -> None:
        rules = compiled(ladder(MIG3, MIG1, GPU, name="down"))
        finding = answer(*self.PENDING, rules=rules).finding
        assert finding.evidence[1:] == (f"FallbackLadder/down would give the pod {MIG1} in place of {MIG3}",)
        assert finding.remedies[0].text == f"Create the pod again: the active ladders then give it {MIG1}."
        assert finding.remedies[0].command == ""

    def test_a_pod_of_a_controller_is_deleted_to_get_another_resource(self) -> None:
        owned = pod("p", {MIG3: 1}, metadata={"ownerReferences": [{"kind": "Job", "name": "j", "controller": True}]})
        finding = answer(self.PENDING[0], owned, rules=compiled(ladder(MIG3, GPU))).finding
        assert finding.remedies[0].command == "kubectl delete pod -n ml p"

    def test_a_ladder_keeps_what_no_rung_can_serve(self) -> None:
        rules = compiled(ladder(MIG3, "nvidia.com/mig-2g.10gb", name="down"))
        assert self.evidence(rules) == (f"FallbackLadder/down would keep {MIG3}: exhausted",)

    def test_a_ladder_denies_what_no_rung_can_serve(self) -> None:
        rules = compiled(ladder(MIG3, "nvidia.com/mig-2g.10gb", name="down", when_exhausted=WhenExhausted.DENY))
        (line,) = self.evidence(rules)
        assert line.startswith("FallbackLadder/down would deny the pod: no rung can serve")

    def test_a_ladder_in_audit_mode_gives_nothing(self) -> None:
        rules = compiled(ladder(MIG3, GPU, name="down", mode=Mode.AUDIT))
        finding = answer(*self.PENDING, rules=rules).finding
        assert finding.evidence[1:] == (
            f"FallbackLadder/down would, if it were enforced, give the pod {GPU} in place of {MIG3}",
        )
        assert not finding.remedies[0].text.startswith("Create")

    def test_a_ladder_of_other_namespaces_skips_the_pod(self) -> None:
        rules = compiled(ladder(MIG3, GPU, name="down", match=Match(namespaces=("batch",))))
        (line,) = self.evidence(rules)
        assert line.startswith("FallbackLadder/down would skip the pod")

    def test_a_ladder_that_cannot_be_evaluated_is_named(self) -> None:
        broken = ladder(MIG3, rung(GPU, when="object.spec.containers[7].name == 'x'"), name="down")
        (line,) = self.evidence(compiled(broken))
        assert line.startswith("FallbackLadder/down was not applied: could not be evaluated: ")

    @pytest.mark.parametrize("mode", [Mode.ENFORCE, Mode.AUDIT])
    @pytest.mark.parametrize(
        ("condition", "hidden"),
        [
            (
                "object.spec.containers.all(c, c.?env.orValue([]).all(e, e.?value.orValue('') != 'off'))",
                "object.spec.containers.env.value",
            ),
            ("object.spec.containers.all(c, c.args.size() > 1)", "object.spec.containers.args"),
            (
                "has(object.spec.containers[0].livenessProbe.httpGet.httpHeaders[0].value)",
                "object.spec.containers.livenessProbe.httpGet.httpHeaders.value",
            ),
            ("request.userInfo.?username.orValue('') != 'batch'", "request.userInfo"),
        ],
    )
    def test_a_ladder_that_reads_what_is_not_known_gives_nothing(self, condition: str, hidden: str, mode: Mode) -> None:
        rules = compiled(ladder(MIG3, GPU, name="down", match_conditions={"hidden": condition}, mode=mode))
        waiting = pod("waiting", {MIG3: 1})
        waiting["spec"]["containers"][0] |= CONTAINER
        finding = answer(node("a", {GPU: 4}), waiting, rules=rules).finding
        assert finding.evidence[1:] == (f"the decision of FallbackLadder/down is not known: it reads {hidden}",)
        assert not finding.remedies[0].text.startswith("Create")

    @pytest.mark.parametrize(
        "condition",
        [
            "!object.spec.?initContainers.orValue([]).exists(c, has(c.command))",
            "!has(object.spec.containers[0].envFrom)",
            "object.spec.containers[0].env[0].name == 'PASSWORD'",
            "!object.metadata.?annotations.orValue({}).exists(name, name != 'a')",
            "!has(object.metadata.annotations)",
        ],
    )
    def test_a_ladder_that_reads_other_members_than_those_removed_is_evaluated(self, condition: str) -> None:
        rules = compiled(ladder(MIG3, GPU, name="down", match_conditions={"known": condition}))
        waiting = pod("waiting", {MIG3: 1})
        waiting["spec"]["containers"][0] |= CONTAINER
        finding = answer(node("a", {GPU: 4}), waiting, rules=rules).finding
        assert finding.evidence[1:] == (f"FallbackLadder/down would give the pod {GPU} in place of {MIG3}",)

    def test_only_an_unknown_decision_that_counts_leaves_it_open_what_a_pod_gets(self) -> None:
        condition = {"hidden": "has(object.spec.containers[0].args)"}
        waiting = pod("waiting", {MIG3: 1})
        waiting["spec"]["containers"][0] |= CONTAINER
        for mode, gets in ((Mode.AUDIT, True), (Mode.ENFORCE, False)):
            unknown = ladder(MIG3, GPU, name="a", match_conditions=condition, mode=mode)
            rules = compiled(unknown, ladder(MIG3, GPU, name="b"))
            finding = answer(node("a", {GPU: 4}), waiting, rules=rules).finding
            assert finding.remedies[0].text.startswith("Create") == gets
            assert finding.evidence[2] == f"FallbackLadder/b would give the pod {GPU} in place of {MIG3}"

    def test_a_condition_that_is_false_skips_a_ladder_whatever_else_it_reads(self) -> None:
        conditions = {"other": "object.metadata.name == 'x'", "hidden": "object.spec.containers[0].args == []"}
        rules = compiled(ladder(MIG3, GPU, name="down", match_conditions=conditions))
        waiting = pod("waiting", {MIG3: 1})
        waiting["spec"]["containers"][0] |= CONTAINER
        finding = answer(node("a", {GPU: 4}), waiting, rules=rules).finding
        assert finding.evidence[1].startswith("FallbackLadder/down would skip the pod: ")

    def test_a_ladder_that_reads_names_of_environment_variables_is_evaluated(self) -> None:
        condition = "object.spec.containers.all(c, c.?env.orValue([]).all(e, e.name != 'OFF'))"
        rules = compiled(ladder(MIG3, GPU, name="down", match_conditions={"named": condition}))
        assert self.evidence(rules) == (f"FallbackLadder/down would give the pod {GPU} in place of {MIG3}",)

    def test_a_ladder_that_needs_labels_of_namespaces_is_not_evaluated_without_them(self) -> None:
        match = Match(namespace_selector=LabelSelector((LabelRequirement("team", ConditionKind.IN, ("a",)),)))
        rules = compiled(ladder(MIG3, GPU, name="down", match=match))
        finding = answer(*self.PENDING, rules=rules, absent=["Namespace"]).finding
        assert finding.evidence[1:] == (
            "FallbackLadder/down was not applied: could not be evaluated: namespace 'ml' not found",
        )
        assert self.evidence(rules)[0].startswith("FallbackLadder/down would skip the pod: ")

    def test_a_missing_ladder_for_the_resource_is_evidence(self) -> None:
        rules = compiled(ladder("nvidia.com/mig-2g.10gb", GPU))
        assert self.evidence(rules) == (f"no active ladder has a rung for {MIG3}",)

    def test_evidence_has_only_the_resource_that_the_pod_waits_for(self) -> None:
        rules = compiled(ladder(MIG3, GPU, name="down"))
        objects = [node("a", {GPU: 4}), pod("p", {MIG3: 1, GPU: 1})]
        assert self.evidence(rules, *objects) == (f"FallbackLadder/down would give the pod {GPU} in place of {MIG3}",)

    def test_ladders_are_not_evaluated_for_reasons_that_they_do_not_help_with(self) -> None:
        rules = compiled(ladder(MIG3, GPU, name="down"))
        finding = answer(node("a", {MIG3: 4}, taints=TAINTED), pod("p", {MIG3: 1}), rules=rules).finding
        assert not any("Ladder" in line for line in finding.evidence)

    TOLERATED = Toleration(key="nvidia.com/gpu", operator="Exists", value="", effect="")
    RUNGS = (
        rung(GPU, name="H100", pool=(("card", "h100"),)),
        rung(GPU, name="A100", pool=(("card", "a100"),), place=rung_place(tolerations=(TOLERATED,))),
    )
    POOLS = ladder(*RUNGS, name="cards", nodes=NodeFilter(require=frozenset(NodeRequirement)), unplaced=Unplaced.FIRST)
    ON_H100 = pod("p", {GPU: 1}, nodeSelector={"card": "h100"})

    @pytest.mark.parametrize(
        ("nodes", "reason"),
        [
            ((card_node("a100"),), "NodeSelectorOrAffinity"),
            ((card_node("h100", taints=TAINTED), card_node("a100")), "NodeSelectorOrAffinity"),
            ((card_node("h100", taints=TAINTED), card_node("a100", taints=TAINTED)), "UntoleratedTaint"),
            ((card_node("h100", cordoned=True), card_node("a100")), "NodesCordoned"),
            ((card_node("h100", ready=False), card_node("a100")), "NodesNotReady"),
            ((card_node("h100", count=0), card_node("a100", taints=TAINTED)), "NodeSelectorOrAffinity"),
        ],
    )
    def test_a_ladder_would_give_another_pool(self, nodes: Sequence[Object], reason: str) -> None:
        finding = answer(*nodes, self.ON_H100, rules=compiled(self.POOLS)).finding
        line = f"FallbackLadder/cards would give the pod {GPU}@A100 in place of {GPU}@H100"
        assert (finding.reason, finding.evidence[-1]) == (reason, line)
        assert finding.remedies[0].text == f"Create the pod again: the active ladders then give it {GPU}@A100."

    def test_a_ladder_would_give_a_pod_of_no_pool_the_first_one(self) -> None:
        nodes = (card_node("h100"), pod("holder", {GPU: 1}, on="h100"))
        rules = compiled(self.POOLS)
        assert self.evidence(rules, *nodes, pod("p", {GPU: 1}))[-1] == (
            f"FallbackLadder/cards would give the pod the pool of {GPU}@H100"
        )

    def test_a_ladder_says_why_it_leaves_the_pool_of_a_pod(self) -> None:
        waiting = pod("p", {GPU: 1}, nodeSelector={"card": "x"})
        evidence = self.evidence(compiled(self.POOLS), card_node("a100"), waiting)
        assert evidence[-1] == (
            "FallbackLadder/cards would skip the pod: the pod selects card=x, which is no pool of the ladder"
        )


def test_nobody_is_told_to_apply_the_layout_that_a_node_has() -> None:
    layout = {"nvidia.com/mig.config": "all-3g.20gb", "nvidia.com/mig.config.state": "success"}
    with_layout, without = (answer(node("a", labels=labels), pod("p", {MIG3: 1})).finding for labels in (layout, {}))
    assert "the MIG layout of a has such devices, which are not offered" in with_layout.evidence
    assert any("Change the MIG layout" in remedy.text for remedy in without.remedies)
    assert not any("Change the MIG layout" in remedy.text for remedy in with_layout.remedies)


def test_pods_in_the_way_are_named() -> None:
    port = [{"containerPort": 80, "hostPort": 80}]
    nodes = [node("a", {GPU: 4}), pod("x", on="a", ports=port), pod("y", on="a", labels={"app": "train"})]
    by_port = answer(*nodes, pod("p", {GPU: 1}, ports=port)).finding
    near = answer(*nodes, pod("p", {GPU: 1}, labels={"app": "train"}, affinity=APART)).finding
    assert (by_port.reason, near.reason) == (PendingReason.OTHER_FILTERS, PendingReason.OTHER_FILTERS)
    assert (by_port.evidence[-1], near.evidence[-1]) == ("in its way on a: ml/x", "in its way on a: ml/y")
    held = [node("a", {GPU: 1}), pod("z", {GPU: 1}, on="a", ports=port), pod("p", {GPU: 1}, ports=port)]
    assert answer(*held).finding.remaining == ()


def test_a_request_beyond_each_node_never_waits_for_others() -> None:
    """A pod that wants 128 cpu where no node has more than 96, on a full cluster."""
    full = [node("a", {GPU: 8, "cpu": 96}), pod("x", {GPU: 8, "cpu": 8}, on="a")]
    finding = answer(*full, pod("p", {GPU: 1, "cpu": 128})).finding
    assert (finding.reason, finding.severity) == (PendingReason.OTHER_RESOURCES, FindingSeverity.ERROR)
    assert finding.message.endswith("has as much cpu as it requests, even when empty")
    assert not any("Wait" in remedy.text for remedy in finding.remedies)
    assert [each.reason for each in finding.remaining] == [PendingReason.ALL_ALLOCATED]


def test_a_cordoned_node_that_is_also_too_small_is_not_the_cause() -> None:
    nodes = [node("a", {GPU: 2}, cordoned=True), node("b", {GPU: 4}), pod("x", {GPU: 4}, on="b")]
    finding = answer(*nodes, pod("p", {GPU: 3})).finding
    assert (finding.reason, finding.remaining) == (PendingReason.ALL_ALLOCATED, ())


def test_no_state_of_a_node_is_to_be_tolerated() -> None:
    taints = ["node.kubernetes.io/disk-pressure:NoSchedule", "dedicated=ml:NoSchedule"]
    finding = answer(node("a", {GPU: 1}, taints=taints), pod("p", {GPU: 1})).finding
    assert finding.message.endswith("dedicated=ml:NoSchedule")
    (pressure,) = finding.remaining
    assert (pressure.reason, pressure.message.rpartition(": ")[2]) == ("NodesUnderPressure", "a has DiskPressure")
    assert "pressure" not in "".join(remedy.text for remedy in finding.remedies)


POOL = api_object("NodePool", "gpu")


class TestDeciders:
    """Pods of other schedulers, and clusters with an autoscaler."""

    FULL = (node("a", {GPU: 1}), pod("x", {GPU: 1}, on="a"))

    def test_causes_of_another_scheduler_are_possible(self) -> None:
        finding = answer(*self.FULL, pod("p", {GPU: 1}, schedulerName="gang")).finding
        assert (finding.reason, finding.certainty) == (PendingReason.ALL_ALLOCATED, Certainty.POSSIBLE)

    def test_another_scheduler_decides_by_its_own_words(self) -> None:
        waiting = pod("p", {GPU: 1}, schedulerName="kai-scheduler")
        said = event(waiting, "Unschedulable", "OverLimit", source={"component": "kai-scheduler"})
        finding = answer(*self.FULL, waiting, said).finding
        assert (finding.reason, finding.message) == (PendingReason.SCHEDULER_MESSAGE, "kai-scheduler: OverLimit")
        assert "by the rules of default-scheduler: GPUsAllocated" in finding.evidence

    def test_of_a_resource_of_another_scheduler_nothing_is_said(self) -> None:
        waiting = pod("p", {"nvidia.com/gpumem": 1}, schedulerName="hami-scheduler", message="CardInsufficient")
        finding = answer(*self.FULL, waiting).finding
        assert finding.message == "hami-scheduler: CardInsufficient"
        assert finding.cause == "This scheduler decides by rules and queues of its own, which are not evaluated."
        assert finding.remedies[0].command == "kubectl describe pod -n ml p"
        assert not any("by the rules" in line for line in finding.evidence)

    def test_a_pod_with_a_fraction_of_a_gpu_is_a_gpu_pod(self) -> None:
        fraction = {"annotations": {"gpu-fraction": "0.5"}}
        finding = answer(*self.FULL, pod("p", schedulerName="kai-scheduler", metadata=fraction)).finding
        assert (finding.reason, finding.certainty) == (PendingReason.NO_SCHEDULER_MESSAGE, Certainty.POSSIBLE)

    def test_what_a_new_node_would_cure_is_possible_where_an_autoscaler_may_add_one(self) -> None:
        finding = answer(*self.FULL, POOL, pod("p", {GPU: 1})).finding
        assert (finding.reason, finding.certainty) == (PendingReason.ALL_ALLOCATED, Certainty.POSSIBLE)
        assert any(line.startswith("an autoscaler may add such a node (NodePool gpu): ") for line in finding.evidence)

    def test_a_gate_is_no_cause_that_a_new_node_would_cure(self) -> None:
        finding = answer(*self.FULL, POOL, pod("p", {GPU: 1}, schedulingGates=GATES)).finding
        assert (finding.reason, finding.certainty) == (PendingReason.SCHEDULING_GATES, Certainty.CERTAIN)

    def test_an_autoscaler_that_refused_adds_no_node(self) -> None:
        waiting, words = pod("p", {GPU: 1}), "pod didn't trigger scale-up: 1 max node group size reached"
        said = event(waiting, "NotTriggerScaleUp", words, source={"component": "cluster-autoscaler"})
        finding = answer(*self.FULL, waiting, said).finding
        assert (finding.reason, finding.certainty) == (PendingReason.ALL_ALLOCATED, Certainty.CERTAIN)
        assert f"cluster-autoscaler: {words}" in finding.evidence


def test_the_words_of_karpenter_are_not_the_message_of_the_scheduler() -> None:
    waiting = pod("p", {GPU: 1}, status={"conditions": []})
    said = event(waiting, "FailedScheduling", "no instance type fits", source={"component": "karpenter"})
    finding = answer(node("a", {GPU: 1}), pod("x", {GPU: 1}, on="a"), waiting, said).finding
    assert not any("the scheduler's message" in line for line in finding.evidence)
    assert "karpenter: no instance type fits" in finding.evidence


def test_the_severity_is_that_of_the_worst_cause() -> None:
    gated = pod("p", {GPU: 9}, schedulingGates=GATES)
    finding = answer(node("a", {GPU: 8}), gated).finding
    assert (finding.reason, finding.severity) == (PendingReason.SCHEDULING_GATES, FindingSeverity.ERROR)
    (never,) = finding.remaining
    assert never.message == f"no node has 9 {GPU}, even when empty"


def test_comparing_with_many_terms_ends_early(monkeypatch: pytest.MonkeyPatch) -> None:
    values = [{"key": "app", "operator": "In", "values": [*map(str, range(100))]}]
    terms = [{"labelSelector": {"matchExpressions": values}, "topologyKey": "kubernetes.io/hostname"}]
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    objects = (node("a", {GPU: 4}), pod("x", on="a", labels={"app": "7"}), pod("p", {GPU: 1}, affinity=affinity))
    assert answer(*objects).finding.evidence[-1] == "in its way on a: ml/x"
    monkeypatch.setattr(conflicts, "MAX_COMPARED", 100)
    assert "in its way" not in answer(*objects).finding.evidence[-1]


def test_pods_of_daemon_sets_that_are_deleted_end() -> None:
    times = {"deletionTimestamp": ago(minutes=1)}
    held = pod("x", {GPU: 4}, on="a", owner=("DaemonSet", "x"), metadata=times)
    assert answer(node("a", {GPU: 4}), held, pod("p", {GPU: 1})).finding.reason == PendingReason.ALL_ALLOCATED


def test_devices_of_daemon_sets_are_not_absent() -> None:
    """Devices that DaemonSets hold are allocatable: the device plugin is not the cause."""
    offered = {GPU: 4, RDMA: 1}
    held = pod("x", offered, on="a", owner=("DaemonSet", "x"))
    finding = answer(node("a", offered, capacity=offered), held, pod("p", {GPU: 1})).finding
    assert (finding.reason, finding.message) == (
        PendingReason.ON_NO_SINGLE_NODE,
        f"no node has 1 {GPU}, even when empty",
    )
    assert finding.evidence[0].endswith("0 on all nodes, beside 4 that DaemonSets hold")
    rdma = answer(node("a", offered), node("b", {GPU: 1}), held, pod("p", {GPU: 1, RDMA: 1})).finding
    assert rdma.reason == PendingReason.OTHER_RESOURCES


def test_affinity_to_what_was_not_read_is_possible() -> None:
    term = {**APART["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0]}
    for selector, certainty in ({"matchLabels": {"team": "a"}}, Certainty.POSSIBLE), (None, Certainty.CERTAIN):
        affinity = {"requiredDuringSchedulingIgnoredDuringExecution": [{**term, "namespaceSelector": selector}]}
        waiting = pod("p", {GPU: 1}, affinity={"podAffinity": affinity})
        finding = answer(node("a", {GPU: 1}), waiting, absent=["Namespace"]).finding
        assert (finding.reason, finding.certainty) == (PendingReason.OTHER_FILTERS, certainty)
        assert any("not evaluated" in line for line in finding.evidence) is (certainty is Certainty.POSSIBLE)


def test_a_pod_that_is_pinned_to_a_node_has_the_causes_of_that_node() -> None:
    fields = [{"key": "metadata.name", "operator": "In", "values": ["a"]}]
    pinned = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": fields}]}
        }
    }
    finding = answer(node("a", {GPU: 4}), node("b", {GPU: 8}), pod("p", {GPU: 8}, affinity=pinned)).finding
    assert finding.reason == PendingReason.ON_NO_SINGLE_NODE


def test_one_autoscaler_of_two_may_add_a_node() -> None:
    waiting = pod("p", {GPU: 1})
    refused = event(waiting, "NotTriggerScaleUp", "max size reached", source={"component": "cluster-autoscaler"})
    backoff = event(waiting, "NotTriggerScaleUp", "1 in backoff", source={"component": "cluster-autoscaler"})
    full = [node("a", {GPU: 1}), pod("x", {GPU: 1}, on="a"), waiting]
    by_certainty = [answer(*full, *more).finding.certainty for more in ((refused,), (refused, POOL), (backoff,))]
    assert by_certainty == [Certainty.CERTAIN, Certainty.POSSIBLE, Certainty.POSSIBLE]
