"""The end of the scheduler's message: claims and preemption. The texts were recorded of a kube-scheduler 1.36."""

from collections.abc import Sequence

from rules_engine.cluster.scheduling import scheduler_of
from rules_engine.model.kubernetes.cluster_objects import ClusterObjects, PodObject
from tests.support.api import (
    GPU,
    NOW,
    Object,
    by_kind,
    card_with_partitions,
    cards,
    claim_spec,
    device_class,
    node,
    pod,
    resource_claim,
)
from tests.support.post_filter import message_end
from tests.support.scheduling import REQUIRED

GPUS = device_class("gpu", "example.com/gpu", "gpu")
BAD = device_class("bad", "example.com/bad", "device.attributes['gpu.nvidia.com'].nope == 'gpu'")
DRIVEN = "example.com/gpu"
PORT = [{"containerPort": 80, "hostPort": 80}]


def end(subject: Object, nodes: Sequence[Object], pods: Sequence[Object] = (), *drivers: Object) -> str:
    """Return the end of the message for a pod with a priority of 100."""
    subject["spec"].setdefault("priority", 100)
    objects = ClusterObjects({"Node": nodes, "Pod": pods, **by_kind(*drivers)}, now=NOW)
    scheduler = scheduler_of(objects)
    answer = scheduler.explain(subject)
    made = message_end(objects, scheduler, PodObject(subject), answer)
    assert scheduler.explain(subject) == answer
    return made


def low(name: str, on: str, **requests: str) -> Object:
    return pod(f"{name}-{on}", requests, on=on)


def test_a_request_beyond_every_node_is_not_helped() -> None:
    assert end(pod(requests={GPU: "2"}), [node("a"), node("b", {GPU: "1"})], [low("x", "b")]) == (
        "no new claims to deallocate, preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
    )


def test_a_node_without_the_label_of_a_constraint_is_not_helped() -> None:
    spread = {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
    assert end(pod(topologySpreadConstraints=[spread]), [node("a")], [low("x", "a")]).endswith(
        ": 1 Preemption is not helpful for scheduling."
    )


def test_nodes_without_pods_of_lower_priority_have_no_victims() -> None:
    nodes = [node("a"), node("b", taints=["x:NoSchedule"])]
    pods = [pod("same", {"cpu": "3"}, on="a", priority=100)]
    assert end(pod(requests={"cpu": "2"}), nodes, pods) == (
        "no new claims to deallocate, preemption: 0/2 nodes are available: 1 No preemption victims found for incoming "
        "pod, 1 Preemption is not helpful for scheduling."
    )


def test_pods_that_end_may_be_too_few() -> None:
    nodes = [node("a", {"pods": "2"})]
    same = pod("same", {"cpu": "3"}, on="a", priority=100)
    assert end(pod(requests={"cpu": "2"}), nodes, [same, low("x", "a")]).endswith(": 1 Insufficient cpu.")
    assert end(pod(requests={"cpu": "1"}), nodes, [same, low("x", "a")]) == ""


def test_a_pod_that_does_not_preempt_is_not_eligible() -> None:
    subject = pod(requests={"cpu": "9"}, preemptionPolicy="Never")
    assert end(subject, [node("a")]) == (
        "no new claims to deallocate, preemption: not eligible due to preemptionPolicy=Never."
    )


def test_nothing_is_added_for_pods_that_fit_or_preempt_and_without_nodes() -> None:
    assert end(pod(), [node("a")]) == ""
    assert end(pod(requests={"cpu": "3"}), [node("a")], [low("x", "a", cpu="3")]) == ""
    assert end(pod(), []) == ""
    assert end(pod(requests={"example.com/bad": "1"}), [node("a")], [], BAD, cards("a", 1)) == ""


def test_a_pod_that_is_rejected_on_all_nodes_is_not_found() -> None:
    fields = [{"key": "metadata.name", "operator": "In", "values": [name]} for name in "ab"]
    affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchFields": fields}]}}}
    assert end(pod(affinity=affinity), [node("a")]) == "not found"


def test_ports_are_free_once_their_pod_ends() -> None:
    nodes = [node("a")]
    assert end(pod(ports=PORT), nodes, [pod("x", on="a", ports=PORT)]) == ""
    taken = pod("x", on="a", ports=PORT, priority=100)
    assert end(pod(ports=PORT), nodes, [taken, low("y", "a")]).endswith(
        ": 1 node(s) didn't have free ports for the requested pod ports."
    )


class TestDevices:
    NODES = (node("n0"), node("n1"), node("n2"))
    PODS = (low("x", "n0", cpu="3"), low("x", "n1", cpu="1"), low("x", "n2", cpu="3"))

    def test_victims_do_not_free_devices(self) -> None:
        subject = pod(requests={"cpu": "4", DRIVEN: "3"})
        assert end(subject, self.NODES, self.PODS, GPUS, cards("n2", 2)) == (
            "still not schedulable, preemption: 0/3 nodes are available: 3 cannot allocate all claims."
        )

    def test_pods_end_where_devices_are_free(self) -> None:
        assert end(pod(requests={"cpu": "4", DRIVEN: "2"}), self.NODES, self.PODS, GPUS, cards("n2", 2)) == ""

    def test_a_failing_selector_ends_the_attempt(self) -> None:
        subject = pod(requests={"cpu": "4", "example.com/bad": "1"})
        made = end(subject, self.NODES, self.PODS, BAD, cards("n2", 2))
        assert made.startswith('preemption: running "DynamicResources" filter plugin: ')

    def test_devices_in_use_are_not_freed(self) -> None:
        subject = pod(requests={DRIVEN: "9"})
        assert end(subject, self.NODES, (), GPUS, *card_with_partitions("n0")) == (
            "still not schedulable, preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."
        )

    def test_a_named_claim_counts(self) -> None:
        subject = pod(requests={"cpu": "9"}, resourceClaims=[{"name": "r", "resourceClaimName": "x"}])
        claim = resource_claim("x", spec=claim_spec(1))
        assert end(subject, self.NODES, (), device_class("gpu"), claim).startswith(
            "still not schedulable, preemption: "
        )
