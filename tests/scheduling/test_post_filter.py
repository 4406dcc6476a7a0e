"""The end of the scheduler's message: claims and preemption. The texts were recorded of a kube-scheduler 1.36."""

from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules_engine.model.kubernetes.cluster_objects import ClusterObjects, PodObject
from rules_engine.scheduling import PostFilter, post_filter, scheduler_of
from tests.support.api import GPU, NOW, Object, by_kind, card_with_partitions, cards, device_class, node, pod
from tests.support.clusters import Generator
from tests.support.naive_preemption import _LASTING, Cluster, Running
from tests.support.scheduling import REQUIRED

GPUS = device_class("gpu", "example.com/gpu", "gpu")
BAD = device_class("bad", "example.com/bad", "device.attributes['gpu.nvidia.com'].nope == 'gpu'")
DRIVEN = "example.com/gpu"
PORT = [{"containerPort": 80, "hostPort": 80}]


def end(subject: Object, nodes: Sequence[Object], pods: Sequence[Object] = (), *drivers: Object, **options: Any) -> str:
    """Return the end of the message for a pod with a priority of 100."""
    subject["spec"].setdefault("priority", 100)
    objects = ClusterObjects({"Node": nodes, "Pod": pods, **by_kind(*drivers)}, now=NOW)
    scheduler = scheduler_of(objects)
    answer = scheduler.explain(subject)
    made = PostFilter(objects, scheduler).message(PodObject(subject), answer, **options)
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
    assert end(pod(requests={"cpu": "2"}), nodes, pods, claims=False).startswith("preemption: 0/2 nodes")


def test_pods_that_end_may_be_too_few() -> None:
    nodes = [node("a", {"pods": "2"})]
    same = pod("same", {"cpu": "3"}, on="a", priority=100)
    assert end(pod(requests={"cpu": "2"}), nodes, [same, low("x", "a")]).endswith(": 1 Insufficient cpu.")
    assert end(pod(requests={"cpu": "1"}), nodes, [same, low("x", "a")]) == ""


def test_equal_requests_have_equal_answers() -> None:
    objects = ClusterObjects(
        {"Node": [node("a")], "Pod": [pod("same", {"cpu": "3"}, on="a", priority=100), low("x", "a")]}, now=NOW
    )
    scheduler = scheduler_of(objects)
    subject = PostFilter(objects, scheduler)
    for name in "pq":
        made = pod(name, {"cpu": "2"}, priority=100)
        assert subject.message(PodObject(made), scheduler.explain(made)).endswith(": 1 Insufficient cpu.")


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
    assert end(pod(affinity=affinity), [node("a")], claims=False) == ""


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
        assert end(subject, self.NODES).startswith("still not schedulable, preemption: ")


def test_nothing_is_added_where_too_many_nodes_need_all_filters(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = pod(requests={"cpu": "4", DRIVEN: "1"})
    nodes, pods = TestDevices.NODES, TestDevices.PODS
    monkeypatch.setattr(post_filter, "MAX_DRY_RUNS", 2)
    assert end(subject, nodes, pods, GPUS) == ""


def test_nothing_is_added_where_too_many_labels_would_be_compared() -> None:
    labels = {"app": "x"}
    selector = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": labels}}
    subject = pod(requests={"cpu": "1"}, affinity={"podAntiAffinity": {REQUIRED: [selector]}}, priority=100)
    pods = [pod("x", labels=labels, on="a"), pod("y", labels=labels, on="b", priority=100)]
    kinds = {"Node": [node("a"), node("b")], "Pod": pods}
    answer = scheduler_of(ClusterObjects(kinds, now=NOW)).explain(subject)
    objects = ClusterObjects(kinds, now=NOW)
    scheduler = scheduler_of(objects)
    scheduler._budget.left = 0
    assert PostFilter(objects, scheduler).message(PodObject(subject), answer) == ""


@given(st.randoms(use_true_random=True))
def test_the_end_agrees_with_a_second_implementation(random: Random) -> None:
    generator = Generator(random)
    nodes = generator.nodes()
    bound = generator.bound(nodes)
    for each in bound:
        each["spec"]["priority"] = random.choice((-1, 0))
    subject = generator.pending(nodes)
    namespaces = generator.namespace_objects()
    objects = ClusterObjects({"Node": nodes, "Pod": bound, "Namespace": namespaces}, now=NOW)
    answer = scheduler_of(objects).explain(subject)
    if answer.feasible or answer.rejected:
        return
    made = PostFilter(objects, scheduler_of(objects)).message(PodObject(subject), answer, claims=False)
    assert made == naive_end(subject, Cluster(nodes, [Running(each, 0) for each in bound], namespaces))


def naive_end(subject: Object, cluster: Cluster) -> str:
    """Return the end of the message by running all filters on each node again."""
    counts: Counter[str] = Counter()
    for each in cluster.nodes:
        name = each["metadata"]["name"]
        why = cluster.reasons(subject)[name]
        assert why
        if any(reason in _LASTING for reason in why) or _exceeds(subject, each, why):
            counts["Preemption is not helpful for scheduling"] += 1
            continue
        lower = [
            other
            for other in cluster.running
            if other.pod["spec"]["nodeName"] == name and other.priority < subject["spec"].get("priority", 0)
        ]
        left = cluster.reasons(subject, lower)[name] if lower else ["No preemption victims found for incoming pod"]
        if not left:
            return ""
        counts.update(left)
    counted = ", ".join(sorted(f"{count} {why}" for why, count in counts.items()))
    return f"preemption: 0/{len(cluster.nodes)} nodes are available: {counted}."


def _exceeds(subject: Object, each: Object, why: Sequence[str]) -> bool:
    """Return True if a pod lacks a resource of which it requests more than the node has."""
    empty = Cluster([each], [], []).reasons(
        {
            **subject,
            "spec": {
                "containers": subject["spec"]["containers"],
                **{
                    member: subject["spec"][member]
                    for member in ("initContainers", "resources", "tolerations")
                    if member in subject["spec"]
                },
            },
        }
    )[each["metadata"]["name"]]
    return any(reason.startswith("Insufficient ") and reason in why for reason in empty)
