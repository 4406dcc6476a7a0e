"""Pods of lower priority make room, as kube-scheduler chooses them."""

from collections.abc import Sequence
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rules_engine.cluster.nodes import numbers_of
from rules_engine.cluster.scheduling.cycle import Bound, BoundPod, SchedulablePod, SchedulingCycle
from rules_engine.cluster.scheduling.preemption import CACHED_PODS, CACHED_PRIORITIES, MAX_DRY_RUNS
from rules_engine.model.kubernetes.cluster_objects import ClusterObjects
from tests.support.api import GPU, NOW, Object, node, pod
from tests.support.clusters import HOSTNAME, Generator
from tests.support.cycles import cycle
from tests.support.naive_preemption import Cluster, Running, best_candidates
from tests.support.scheduling import REQUIRED

PRIORITIES = (-10, 0, 5, 10)
MOST_NODES = 12


def _bind(subject: SchedulingCycle, nodes: Sequence[Object], running: Running) -> BoundPod:
    (number,) = [at for at, one in enumerate(nodes) if one["metadata"]["name"] == running.pod["spec"]["nodeName"]]
    bound = BoundPod(running.name, SchedulablePod.of(running.pod), number, running.start)
    subject.bind(bound)
    return bound


def _check(subject: SchedulingCycle, cluster: Cluster, made: Object, now: int) -> Bound | None:
    """Schedule a pod and compare the answer with that of the second implementation."""
    schedulable = SchedulablePod.of(made)
    names = [one["metadata"]["name"] for one in cluster.nodes]
    feasible = {names[number] for number in numbers_of(subject.feasible(schedulable))}
    before = subject.explain(schedulable)
    binding = subject.schedule(f"{made['metadata']['namespace']}/{made['metadata']['name']}", schedulable, now)
    if feasible:
        assert binding is not None
        assert names[binding.node] in feasible
        assert not binding.victims
        return binding
    candidates = {} if before.rejected else best_candidates(made, cluster)
    if binding is None:
        assert not candidates
        assert subject.explain(schedulable) == before
        return None
    assert [victim.name for victim in binding.victims] == candidates[names[binding.node]]
    assert all(victim.pod.priority < schedulable.priority for victim in binding.victims)
    assert binding.waits is not _suits(cluster, made, names[binding.node], {victim.name for victim in binding.victims})
    return binding


def _suits(cluster: Cluster, made: Object, node: str, ended: set[str]) -> bool:
    """Return True if a pod can run on a node once others have ended."""
    left = [one for one in cluster.running if one.name not in ended]
    return not Cluster(cluster.nodes, left, cluster.namespaces).reasons(made)[node]


@given(st.randoms(use_true_random=True))
def test_victims_agree_with_a_second_implementation(random: Random) -> None:
    generator = Generator(random, most_nodes=MOST_NODES)
    nodes, namespaces = generator.nodes(), generator.namespace_objects()
    running: list[Running] = []
    for made in (*generator.bound(nodes), *generator.bound(nodes)):
        made["metadata"]["name"] += str(len(running))
        made["spec"]["priority"] = random.choice(PRIORITIES)
        running.append(Running(made, random.randint(-3, 3)))
    cluster = Cluster(nodes, running, namespaces)
    for _ in range(3):
        subject = cycle(nodes, namespaces, seed=random.randint(0, 9))
        for one in running:
            _bind(subject, nodes, one)
        made = generator.pending(nodes)
        made["spec"]["priority"] = random.choice(PRIORITIES)
        _check(subject, cluster, made, 9)


@given(st.randoms(use_true_random=True))
def test_victims_agree_while_pods_come_and_go(random: Random) -> None:
    nodes = [node(f"n{number}", {GPU: random.choice(("2", "4"))}) for number in range(random.randint(1, 9))]
    subject = cycle(nodes)
    bound: dict[str, tuple[Running, BoundPod]] = {}
    for now in range(40):
        if bound and random.random() < 0.2:
            _, ended = bound.pop(random.choice(sorted(bound)))
            subject.release(ended)
            continue
        made = _gpus(f"p{now}", random.choice((0, 1, 1, 2)), priority=random.choice(PRIORITIES))
        cluster = Cluster(nodes, [running for running, _ in bound.values()], [])
        binding = _check(subject, cluster, made, now // 4)
        if binding is None:
            continue
        for victim in binding.victims:
            del bound[victim.name]
        placed = _gpus(f"p{now}", 0) | {"spec": {**made["spec"], "nodeName": f"n{binding.node}"}}
        bound[f"ml/p{now}"] = (
            Running(placed, now // 4),
            BoundPod(f"ml/p{now}", SchedulablePod.of(made), binding.node, now // 4),
        )


@given(st.randoms(use_true_random=True))
def test_the_order_of_nodes_changes_nothing(random: Random) -> None:
    generator = Generator(random, most_nodes=MOST_NODES)
    nodes, namespaces = generator.nodes(), generator.namespace_objects()
    shuffled = random.sample(nodes, len(nodes))
    subjects = [(cycle(order, namespaces), order) for order in (nodes, shuffled)]
    for now in range(30):
        made = generator.pending(nodes)
        made["spec"]["priority"] = random.choice(PRIORITIES)
        schedulable = SchedulablePod.of(made)
        binding = [subject.schedule(f"ml/p{now}", schedulable, now // 3) for subject, _ in subjects]
        one, other = [
            bound and (order[bound.node]["metadata"]["name"], [victim.name for victim in bound.victims])
            for bound, (_, order) in zip(binding, subjects, strict=True)
        ]
        assert one == other


def _gpus(name: str, count: int, **spec: Any) -> Object:
    return pod(name, {GPU: str(count), "cpu": "500m"}, **spec)


def _full(*priorities: int, gpus: int = 1, **options: Any) -> tuple[SchedulingCycle, list[BoundPod]]:
    """Return a cycle with a pod of each priority on a node of its own, which it fills."""
    subject = cycle([node(f"n{number}", {GPU: str(gpus)}) for number in range(len(priorities))], **options)
    bound = [
        BoundPod(f"ml/low-{number}", SchedulablePod.of(_gpus("low", gpus, priority=priority)), number, number)
        for number, priority in enumerate(priorities)
    ]
    for one in bound:
        subject.bind(one)
    return subject, bound


def test_a_pod_that_never_preempts_waits() -> None:
    subject, _ = _full(1)
    made = _gpus("p", 1, priority=5, preemptionPolicy="Never")
    assert subject.schedule("ml/p", SchedulablePod.of(made), 9) is None


def test_no_pod_preempts_without_preemption() -> None:
    subject, _ = _full(1, preemption=False)
    assert subject.schedule("ml/p", SchedulablePod.of(_gpus("p", 1, priority=5)), 9) is None


def test_more_important_pods_are_reprieved() -> None:
    subject = cycle([node("a", {GPU: "4"})])
    bound = {
        name: BoundPod(f"ml/{name}", SchedulablePod.of(_gpus(name, gpus, priority=priority)), 0, start)
        for name, gpus, priority, start in (("old", 1, 1, 0), ("new", 1, 1, 1), ("high", 1, 2, 2), ("low", 1, 0, 0))
    }
    for one in bound.values():
        subject.bind(one)
    binding = subject.schedule("ml/p", SchedulablePod.of(_gpus("p", 2, priority=5)), 9)
    assert binding == Bound(0, (bound["new"], bound["low"]))


def test_victims_may_be_pods_that_the_pod_must_not_run_with() -> None:
    subject = cycle([node("a"), node("b", taints=["x=y:NoSchedule"])])
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "x"}}}
    anti_affinity = {"podAntiAffinity": {REQUIRED: [term]}}
    for names, made in (
        ("own", pod("p", labels={"app": "y"}, priority=1, affinity=anti_affinity)),
        ("other", pod("p", labels={"app": "x"}, priority=1)),
    ):
        other = (
            pod("low", labels={"app": "x"})
            if names == "own"
            else pod("low", labels={"app": "y"}, affinity=anti_affinity)
        )
        low = BoundPod(f"ml/{names}", SchedulablePod.of(other), 0, 0)
        stays = BoundPod(f"ml/{names}-stays", SchedulablePod.of(pod("stays")), 0, 0)
        subject.bind(low)
        subject.bind(stays)
        assert subject.schedule(f"ml/p-{names}", SchedulablePod.of(made), 9) == Bound(0, (low,))
        subject.release(BoundPod(f"ml/p-{names}", SchedulablePod.of(made), 0, 9))
        subject.release(stays)


def test_topology_spread_gains_nothing_from_victims_that_are_being_deleted() -> None:
    subject = cycle([node("a"), node("b", taints=["x=y:NoSchedule"])])
    labels = {"stays": {"app": "x"}, "ends": {"app": "x"}, "deleted": {"app": "x", "tier": "y"}}
    raw = {name: pod(name, labels=labels[name], priority=0 if name == "deleted" else 5) for name in labels}
    raw["deleted"]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    bound = {name: BoundPod(f"ml/{name}", SchedulablePod.of(made), 0, 0) for name, made in raw.items()}
    for one in bound.values():
        subject.bind(one)
    ours, theirs = (
        {"topologyKey": HOSTNAME, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}
        for selector in ({"matchLabels": {"app": "x"}}, {"matchExpressions": [{"key": "app", "operator": "Exists"}]})
    )
    first = SchedulablePod.of(pod("p", labels={"app": "x"}, priority=5, topologySpreadConstraints=[ours]))
    assert subject.schedule("ml/p", first, 9) is None
    subject.release(bound["ends"])
    # Another selector, so that the pods are counted again after the dry run.
    spread = SchedulablePod.of(pod("p", labels={"app": "x"}, priority=5, topologySpreadConstraints=[theirs]))
    assert subject.schedule("ml/p", spread, 9) == Bound(0, (bound["deleted"],), waits=True)
    assert subject.schedule("ml/p", spread, 9) is None
    subject.release(bound["stays"])
    assert subject.schedule("ml/p", spread, 9) == Bound(0, equal=0b1)


def test_more_priorities_than_are_cached_change_no_answer() -> None:
    priorities = range(2 * CACHED_PRIORITIES)
    subject, bound = _full(*priorities)
    for priority in (*priorities[1:], *priorities[1:]):
        high = SchedulablePod.of(_gpus("p", 1, priority=priority))
        assert subject.schedule("ml/p", high, 9) == Bound(0, (bound[0],))
        subject.release(BoundPod("ml/p", high, 0, 9))
        subject.bind(bound[0])


def test_the_lowest_priority_of_all_nodes_is_found() -> None:
    priorities = [1] * (3 * MAX_DRY_RUNS)
    priorities[MAX_DRY_RUNS] = 0
    subject, bound = _full(*priorities)
    high = SchedulablePod.of(_gpus("p", 1, priority=5))
    assert subject.schedule("ml/p", high, 999) == Bound(MAX_DRY_RUNS, (bound[MAX_DRY_RUNS],))
    binding = subject.schedule("ml/q", high, 999)
    assert binding is not None
    assert binding.victims == (bound[binding.node],)


def test_a_node_with_other_amounts_is_considered_as_it_is() -> None:
    nodes = [node(name, {GPU: "1"}) for name in ("a", "b")]
    subject = cycle(nodes)
    for number, priority in enumerate((1, 2)):
        subject.bind(BoundPod(f"ml/low-{number}", SchedulablePod.of(_gpus("low", 1, priority=priority)), number, 0))
    high = SchedulablePod.of(_gpus("p", 2, priority=5))
    assert subject.schedule("ml/p", high, 9) is None
    (larger,) = ClusterObjects({"Node": [node("b", {GPU: "2"})]}, now=NOW).view.nodes
    subject.change_node(1, larger)
    assert subject.may_fit(high, 1)
    binding = subject.schedule("ml/p", high, 9)
    assert binding is not None
    assert (binding.node, [victim.name for victim in binding.victims]) == (1, ["ml/low-1"])


def test_a_cordon_keeps_what_is_known_of_amounts() -> None:
    subject, bound = _full(1, 2)
    high = SchedulablePod.of(_gpus("p", 1, priority=5))
    (cordoned,) = ClusterObjects({"Node": [node("n0", {GPU: "1"}, unschedulable=True)]}, now=NOW).view.nodes
    subject.change_node(0, cordoned)
    assert subject.schedule("ml/p", high, 9) == Bound(1, (bound[1],))


def test_equal_pods_that_preempt_one_after_the_other_have_other_victims() -> None:
    subject = cycle([node("n", {GPU: "2"})])
    low, high = (SchedulablePod.of(_gpus("p", 1, priority=priority)) for priority in (1, 9))
    bound = [BoundPod(f"ml/low-{number}", low, 0, number) for number in range(2)]
    for one in bound:
        subject.bind(one)
    assert subject.schedule("ml/first", high, 9) == Bound(0, (bound[1],))
    assert subject.schedule("ml/second", high, 9) == Bound(0, (bound[0],))


def test_more_pods_than_are_cached_change_no_answer() -> None:
    subject, pods = _full(*range(CACHED_PODS + 2))
    for number, victim in enumerate(pods):
        binding = subject.schedule(f"high-{number}", SchedulablePod.of(_gpus("high", 1, priority=99 + number)), 10)
        assert binding is not None
        assert [other.name for other in binding.victims] == [victim.name]
