"""Pods of lower priority make room, as kube-scheduler chooses them."""

from collections.abc import Sequence
from fractions import Fraction
from math import ceil
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules_engine.cluster.nodes import numbers_of
from rules_engine.cluster.scheduling.cycle import Bound, BoundPod, SchedulablePod, SchedulingCycle
from rules_engine.cluster.scheduling.preemption import CACHED_PRIORITIES, MAX_DRY_RUNS
from rules_engine.model.kubernetes.cluster_objects import ClusterObjects
from tests.support.api import GPU, NOW, Object, budget, node, pod
from tests.support.clusters import HOSTNAME, Generator
from tests.support.cycles import cycle
from tests.support.naive_preemption import Cluster, Running, best_candidates
from tests.support.scheduling import REQUIRED

PRIORITIES = (-10, 0, 5, 10)
MOST_NODES = 12
X = {"app": "x"}


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
    cluster = Cluster(
        nodes, running, namespaces, [_random_budget(random, running) for _ in range(random.randint(0, 2))]
    )
    for _ in range(3):
        subject = cycle(nodes, namespaces, seed=random.randint(0, 9), budgets=cluster.budgets)
        for one in running:
            _bind(subject, nodes, one)
        subject.budgets.use_statuses()
        made = generator.pending(nodes)
        made["spec"]["priority"] = random.choice(PRIORITIES)
        _check(subject, cluster, made, 9)


def _random_budget(random: Random, running: Sequence[Running]) -> Object:
    labels = {key: random.choice(("x", "y")) for key in ("app", "tier") if random.random() < 0.6}
    disrupted = {one.pod["metadata"]["name"]: NOW.isoformat() for one in running if random.random() < 0.1}
    status = {"disruptionsAllowed": random.choice((0, 0, 1, 2)), "disruptedPods": disrupted}
    made = budget(labels, {"minAvailable": random.randint(0, 5)}, status=status)
    made["metadata"]["namespace"] = random.choice(["ml", *(one.pod["metadata"]["namespace"] for one in running)])
    return made


def _computed(spec: Object, running: int, expected: int) -> Object:
    """Return the budget of all pods with the status that its controller would compute."""
    (share,) = spec.values()
    number = share if isinstance(share, int) else ceil(Fraction(share.rstrip("%")) * expected / 100)
    desired = number if "minAvailable" in spec else max(0, expected - number)
    return budget(X, spec, status={"disruptionsAllowed": max(0, running - desired)})


@given(st.randoms(use_true_random=True))
def test_victims_agree_while_pods_come_and_go(random: Random) -> None:
    nodes = [node(f"n{number}", {GPU: random.choice(("2", "4"))}) for number in range(random.randint(1, 9))]
    spec = {random.choice(("minAvailable", "maxUnavailable")): random.choice((0, 1, 3, 8, "25%", "50%"))}
    subject = cycle(nodes, budgets=[budget(X, spec)])
    expected = 0
    bound: dict[str, tuple[Running, BoundPod]] = {}
    for now in range(40):
        if bound and random.random() < 0.2:
            _, ended = bound.pop(random.choice(sorted(bound)))
            subject.release(ended)
            if ended.pod.requirements.labels == X:
                subject.budgets.count_expected(ended.pod.requirements, -1, scaled=True)
                expected -= 1
            continue
        labels = {"app": random.choice(("x", "y"))}
        made = _gpus(f"p{now}", random.choice((0, 1, 1, 2)), labels=labels, priority=random.choice(PRIORITIES))
        running = [running for running, _ in bound.values()]
        protected = sum(one.pod["metadata"]["labels"] == X for one in running)
        if labels == X:
            subject.budgets.count_expected(SchedulablePod.of(made).requirements, 1, scaled=True)
            expected += 1
        cluster = Cluster(nodes, running, [], [_computed(spec, protected, expected)])
        binding = _check(subject, cluster, made, now // 4)
        if binding is None:
            continue
        for victim in binding.victims:
            del bound[victim.name]
        placed = _gpus(f"p{now}", 0, labels=labels) | {"spec": {**made["spec"], "nodeName": f"n{binding.node}"}}
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


def _low(number: int, *, gpus: int = 1, node: int = 0, **options: Any) -> BoundPod:
    made = _gpus(f"low-{number}", gpus, **options)
    return BoundPod(f"ml/low-{number}", SchedulablePod.of(made), node, number)


def _victims(pods: Sequence[BoundPod], *budgets: Object, gpus: int = 1, nodes: int = 1) -> list[str]:
    """Return the victims of a pod of high priority on nodes that are full."""
    used = [sum(dict(one.pod.amounts).get(GPU, 0) for one in pods if one.node == number) for number in range(nodes)]
    subject = cycle([node(f"n{number}", {GPU: str(amount)}) for number, amount in enumerate(used)], budgets=budgets)
    for one in pods:
        subject.bind(one)
    subject.budgets.use_statuses()
    bound = subject.schedule("ml/p", SchedulablePod.of(_gpus("p", gpus, priority=99)), 9)
    assert bound is not None
    return [victim.name.removeprefix("ml/low-") for victim in bound.victims]


NONE_ALLOWED = {"disruptionsAllowed": 0}


class TestBudgets:
    def test_a_pod_of_a_budget_without_disruptions_stays_while_another_can_end(self) -> None:
        pods = [_low(0, priority=1), _low(1, labels=X, node=1)]
        assert _victims(pods, nodes=2) == ["1"]
        assert _victims(pods, budget(X, {"minAvailable": 1}, status=NONE_ALLOWED), nodes=2) == ["0"]

    def test_it_ends_if_no_other_helps(self) -> None:
        assert _victims([_low(0, labels=X)], budget(X, {"minAvailable": 1}, status=NONE_ALLOWED)) == ["0"]

    def test_its_pods_are_reprieved_before_more_important_ones(self) -> None:
        pods = [_low(0, priority=2), _low(1, priority=1), _low(2, labels=X)]
        assert _victims(pods, gpus=2) == ["1", "2"]
        assert _victims(pods, budget(X, {"minAvailable": 1}, status=NONE_ALLOWED), gpus=2) == ["0", "1"]

    def test_reprieved_pods_count_against_the_budget(self) -> None:
        """kube-scheduler counts the candidates by importance, whether they stay or not."""
        pods = [_low(0, labels=X, priority=2), _low(1, labels=X, priority=1), _low(2, priority=3)]
        one = budget(X, {"minAvailable": 1}, status={"disruptionsAllowed": 1})
        assert _victims(pods, one) == ["0"]

    def test_of_two_nodes_that_of_fewer_exceeding_pods_is_chosen(self) -> None:
        pods = [_low(0, labels=X), _low(1, labels=X), _low(2, labels=X, gpus=2, priority=5, node=1)]
        assert _victims(pods, budget(X, {"minAvailable": 3}, status=NONE_ALLOWED), gpus=2, nodes=2) == ["2"]

    @pytest.mark.parametrize("labels", [None, {}, {"app": "y"}])
    def test_an_absent_or_empty_selector_and_other_labels_match_nothing(self, labels: dict[str, str] | None) -> None:
        pods = [_low(0, priority=1), _low(1, labels=X, node=1)]
        assert _victims(pods, budget(labels, {"minAvailable": 1}, status=NONE_ALLOWED), nodes=2) == ["1"]

    def test_a_budget_of_another_namespace_matches_nothing(self) -> None:
        made = budget(X, {"minAvailable": 1}, status=NONE_ALLOWED)
        made["metadata"]["namespace"] = "other"
        assert _victims([_low(0, priority=1), _low(1, labels=X, node=1)], made, nodes=2) == ["1"]

    def test_a_pod_without_labels_matches_no_budget(self) -> None:
        made = budget(None, {"minAvailable": 1}, status=NONE_ALLOWED)
        made["spec"]["selector"] = {"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}
        pods = [_low(0, priority=1, labels={"app": "y"}), _low(1, labels={}, node=1)]
        assert _victims(pods, made, nodes=2) == ["1"]

    def test_a_pod_whose_eviction_was_counted_exceeds_nothing(self) -> None:
        status = {"disruptionsAllowed": 0, "disruptedPods": {"low-1": "2026-11-23T12:00:00Z"}}
        pods = [_low(0, labels=X, priority=1), _low(1, labels=X, node=1)]
        assert _victims(pods, budget(X, {"minAvailable": 1}, status=status), nodes=2) == ["1"]

    def test_all_nodes_are_tried_for_one_that_exceeds_no_budget(self) -> None:
        last = 2 * MAX_DRY_RUNS
        pods = [_low(number, labels=X, node=number) for number in range(last)] + [_low(last, priority=9, node=last)]
        pods[last] = _low(last, priority=9, labels={"app": "y"}, node=last)
        budgets = [
            budget(X, {"minAvailable": last}, status=NONE_ALLOWED),
            budget({"app": "y"}, {"minAvailable": 0}, "other"),
        ]
        assert _victims(pods, *budgets, nodes=last + 1) == [str(last)]
