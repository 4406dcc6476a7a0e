"""The best layouts, against brute force over all layouts with the naive simulator; and bounds, against plays."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import combinations_with_replacement
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules_engine.evaluation import RuleSet
from rules_engine.evaluation.nodes import Offered
from rules_engine.kinds.ladder.value import Counts, Direction
from rules_engine.model.gpu.mig import card_share
from rules_engine.model.gpu.placements import PLACEMENTS, Layout, card_layouts
from rules_engine.model.kubernetes.pod import Pod
from rules_engine.model.kubernetes.quantity import NANOS
from rules_engine.model.rules.simulation import Arrival, Distribution, Simulation
from rules_engine.planning.cluster import Candidate, count_devices, plan_cluster
from rules_engine.planning.demand import Bounds, possible_resources, read_demands
from rules_engine.planning.plan import Plan, PlanError, make_plan
from rules_engine.planning.report import plan_report
from rules_engine.planning.search import Search
from rules_engine.planning.space import Space
from rules_engine.simulation.figures import By, Figures, GpuHours, Key, compute_figures
from rules_engine.simulation.play import play_simulation
from tests.support.api import GPU, node, pod
from tests.support.evaluation import check, compiled, injection, ladder, rung, validation
from tests.support.naive_simulation import NaivePod, NaiveSimulation
from tests.support.placements import largest_layouts
from tests.support.simulation import NO_RULES, load, simulation, template

SMALL, MIDDLE, LARGE = (f"nvidia.com/mig-{profile}" for profile in ("1g.6gb", "2g.12gb", "4g.24gb"))
EVERY = frozenset({"1g.6gb", "1g.6gb+me", "2g.12gb", "2g.12gb+me", "4g.24gb"})
LADDER = ladder(LARGE, MIDDLE, SMALL, rung(GPU, assume=True), direction=Direction.DOWN_THEN_UP)
SCALED = ladder(
    *(rung(name, weight=weight) for name, weight in ((GPU, 4), (MIDDLE, 2), (SMALL, 1))),
    counts=Counts.SCALE,
    offered=Offered.AVAILABLE,
)
READING = validation(check("cluster.available('nvidia.com/gpu') > 0 || !has(object.metadata.labels)", "no"))
RULE_SETS: dict[str, tuple[RuleSet, frozenset[str]]] = {
    "none": (NO_RULES, frozenset()),
    "ladder": (compiled(LADDER), frozenset({LARGE, MIDDLE, SMALL, GPU})),
    "scaled": (compiled(SCALED), frozenset({MIDDLE, SMALL, GPU})),
}
"""Rules, and the resources of their rungs."""

OTHER_RULES = (
    compiled(READING),
    compiled(injection({MIDDLE: "1"}, gpu_type=None, gpu_resource=SMALL)),
    compiled(injection({"cpu": "1"}, gpu_type=None, gpu_resource=SMALL)),
)


def draw_load(random: Random) -> Simulation:
    """Draw a load of up to a dozen pods on no nodes."""
    arrivals = [draw_arrival(random, number) for number in range(random.randint(1, 3))]
    until = random.choice((None, None, 20_000, 60_000))
    return simulation([], *arrivals, seed=random.randint(0, 9), until=until)


def draw_arrival(random: Random, number: int) -> Arrival:
    requests = {random.choice((SMALL, MIDDLE, LARGE, GPU)): str(random.choice((1, 1, 1, 2)))}
    priority = {"priority": 5} if random.random() < 0.1 else {}
    return load(
        random.choice((f"p{number}", f"p{number}", "p")),
        pod=template(0, {"cpu": random.choice(("1", "60")), **requests}, **priority),
        controlled=random.random() < 0.4,
        parallel=random.randint(1, 2),
        total=random.randint(2, 3),
        at=random.choice((0, 0, 5000)),
        every=random.choice((0, 4000)),
        count=random.randint(1, 3),
        run_for=random.choice((None, 3000, 10_000, Distribution(least=1000, most=60_000), 30_000)),
    )


def brute_force(
    load: Simulation, rules: RuleSet, wanted: frozenset[str], nodes: int, cards: int, by: By
) -> tuple[Key, bool]:
    """Play all layouts of all cards with the naive simulator; return the least key, and whether any pod ever ran."""
    profiles = frozenset(name for name in EVERY if f"nvidia.com/mig-{name.replace('+', '.')}" in wanted)
    layouts = [dict(each) for each in largest_layouts("A30", profiles) if each]
    offers = [{f"nvidia.com/mig-{name}": count for name, count in layout.items()} for layout in layouts]
    offers += [{GPU: 1}] if GPU in wanted else []
    ordered = sorted(offers, key=lambda offer: sorted(Counter(offer).elements()) if GPU not in offer else [])
    plans = [sum(map(Counter, chosen), Counter[str]()) for chosen in combinations_with_replacement(ordered, cards)]
    keys, ran = [], False
    for chosen in combinations_with_replacement(plans, nodes):
        amounts = [{name: str(count) for name, count in plan.items()} for plan in chosen]
        objects = [
            node(f"gpu-{number}", {"cpu": "128", "memory": "1Ti", "pods": None, **each})
            for number, each in enumerate(amounts, 1)
        ]
        naive = NaiveSimulation(simulation(objects, *load.arrivals, seed=load.seed, until=load.until), rules)
        keys.append(naive_key(naive, load, by))
        ran |= any(pod.bound is not None for pod in naive.pods)
    return min(keys, default=()), ran


def naive_key(naive: NaiveSimulation, load: Simulation, by: By) -> Key:
    pods = naive.play()
    end = naive.now if load.until is None else load.until
    never = [pod for pod in pods if pod.bound is None]
    # Without an end, later pods of a Job whose first ones wait never arrive.
    total = sum(arrival.pods for arrival in load.arrivals) + sum(bool(pod.replaces) for pod in pods)
    missing = total - len(pods) if load.until is None else 0
    match by:
        case By.UNSERVED:
            return (len(never) + missing,)
        case By.WAITING:
            waited = sum(pod.bound - pod.arrived for pod in pods if pod.bound is not None)
            if load.until is None:
                return len(never) + missing, Fraction(waited, total)
            return 0, Fraction(waited + sum(end - pod.arrived for pod in never), len(pods))
    return (-sum(useful_hours(pod, max(end, 1)) for pod in pods),)


def useful_hours(pod: NaivePod, end: int) -> Fraction:
    """Return the GPU-hours that a pod was given and had requested."""
    if pod.bound is None or pod.batch.group is None:
        return Fraction(0)
    wanted = Pod.parse(dict(pod.batch.group.pod)).effective_requests()
    held, asked = (
        sum(card_share(name) * Fraction(nanos, NANOS) for name, nanos in amounts.items() if "nvidia.com" in name)
        for amounts in (pod.given, wanted)
    )
    return min(held, asked) * Fraction((end if pod.ended is None else pod.ended) - pod.bound, 3_600_000)


def planned(load: Simulation, rules: RuleSet, nodes: int, cards: int, by: By = By.WAITING) -> Plan:
    cluster = plan_cluster(load, (), nodes, {})
    return make_plan(
        cluster, rules, "rules", (cards, "A30"), by, expired=lambda: False, progress=lambda _done, _total: None
    )


@given(st.integers(0, 2**32), st.sampled_from([*RULE_SETS]), st.sampled_from([(1, 1), (1, 2), (2, 1)]))
def test_the_best_is_that_of_brute_force(seed: int, name: str, size: tuple[int, int]) -> None:
    load, (rules, rungs), by = draw_load(Random(seed)), RULE_SETS[name], [*By][seed % 3]
    requested = {
        resource
        for arrival in load.arrivals
        for resource in Pod.parse(dict(arrival.groups[0].pod)).effective_requests()
        if "nvidia.com" in resource
    }
    wanted = frozenset(requested | (rungs if requested & rungs else set()))

    expected, ran = brute_force(load, rules, wanted, *size, by)
    if not ran:
        with pytest.raises(PlanError, match=r"^no layout of A30 serves (Pod|Job)"):
            planned(load, rules, *size, by)
        return
    plan = planned(load, rules, *size, by)
    assert by.key(plan.choices[0].figures) == expected
    assert plan.gap == ()


@given(st.integers(0, 2**32), st.sampled_from([*OTHER_RULES, *(rules for rules, _ in RULE_SETS.values())]))
def test_no_play_surpasses_its_bound(seed: int, rules: RuleSet) -> None:
    random = Random(seed)
    load = draw_load(random)
    kept = [node("kept", {"cpu": "99", SMALL: "2", GPU: "1"})] if random.random() < 0.4 else []
    pods = [pod(f"there-{n}", {SMALL: "1"}, on="kept", priority=random.choice((0, -1))) for n in range(2)]
    for each in pods:
        each["metadata"]["ownerReferences"] = [{"kind": "ReplicaSet", "name": "there", "controller": True}]
    load = simulation(kept, *load.arrivals, pods=pods if kept else [], seed=load.seed, until=load.until)
    cluster = plan_cluster(load, ("kept",), random.randint(1, 2), {})
    layouts = [(), *card_layouts("A30", EVERY)]
    candidate = tuple(tuple(random.choices(layouts, k=random.randint(1, 3))) for _ in cluster.nodes)
    devices = count_devices(candidate) + Counter({SMALL: 2, GPU: 1} if kept else {})
    bounds = Bounds(cluster.base, read_demands(cluster.base, rules))
    figures = compute_figures(play_simulation(cluster.simulation_on(candidate), rules, "rules"))
    for by in By:
        assert bounds.key(by, devices) <= by.key(figures)


@given(st.integers(0, 2**64))
def test_run_times_of_pods_with_one_name_are_no_bound(seed: int) -> None:
    first = load("p", pod=template(0, {SMALL: "1"}), at=1, run_for=Distribution(least=1000, most=60_000))
    others = [load("p", pod=template(0, {SMALL: "1"}), run_for=3000)]
    others.append(load("q", pod=template(0, {SMALL: "1"}), at=2, count=4, run_for=100_000))
    cluster = plan_cluster(simulation([], first, *others, seed=seed), (), 1, {})
    candidate: Candidate = ((("1g.6gb",),),)
    bound = Bounds(cluster.base, read_demands(cluster.base, NO_RULES)).key(By.WAITING, count_devices(candidate))
    figures = compute_figures(play_simulation(cluster.simulation_on(candidate), NO_RULES, "rules"))

    assert bound <= By.WAITING.key(figures)


def test_a_layout_whose_bound_is_just_better_is_played() -> None:
    pods = [
        load(f"p{count}", pod=template(0, {name: "1"}), count=count, run_for=1000)
        for name, count in ((SMALL, 6), (MIDDLE, 2))
    ]
    plan = planned(simulation([], *pods), NO_RULES, 1, 2)

    assert plan.choices[0].candidate == ((("1g.6gb",) * 4, ("1g.6gb", "1g.6gb", "2g.12gb")),)


def interrupted(calls: int) -> Plan:
    """Plan for four cards until the progress was reported `calls` times."""
    arrivals = [
        load(f"p{number}", pod=template(0, {name: "1"}), run_for=1000, count=2)
        for number, name in enumerate((SMALL, MIDDLE, LARGE))
    ]
    reports = iter(range(calls))

    def progress(_done: int, _total: int) -> None:
        if next(reports, None) is None:
            raise KeyboardInterrupt

    cluster = plan_cluster(simulation([], *arrivals), (), 1, {})
    return make_plan(cluster, NO_RULES, "rules", (4, "A30"), By.WAITING, expired=lambda: False, progress=progress)


def test_an_interrupt_ends_with_the_best_so_far() -> None:
    plan = interrupted(2)

    assert plan.interrupted
    assert (plan.simulated, len(plan.choices)) == (2, 2)
    assert plan.gap


def test_an_interrupt_before_the_first_result_has_no_answer() -> None:
    with pytest.raises(KeyboardInterrupt):
        interrupted(0)


def test_an_injected_device_may_be_any() -> None:
    assert possible_resources(frozenset({SMALL}), OTHER_RULES[1]) is None
    assert possible_resources(frozenset({GPU}), OTHER_RULES[1]) == frozenset({GPU})
    assert possible_resources(frozenset({SMALL}), OTHER_RULES[2]) == frozenset({SMALL})
    assert possible_resources(frozenset({SMALL}), RULE_SETS["ladder"][0]) == RULE_SETS["ladder"][1]


@pytest.mark.parametrize(
    ("by", "bound", "text"),
    [
        (By.WAITING, (0, Fraction(90_000)), "no other one is better"),
        (By.WAITING, (0, Fraction(30_500)), "another one may have up to 59s500ms less mean waiting time"),
        (By.WAITING, (-2, Fraction(90_000)), "with another one up to 2 more pods may run"),
        (By.GIVEN, (Fraction(-3, 2),), "another one may give up to 1.50 GPU-hours more"),
        (By.UNSERVED, (-1,), "with another one up to 1 more pod may run"),
    ],
)
def test_the_gap_is_described_by_its_figure(by: By, bound: Key, text: str) -> None:
    hours = GpuHours(**dict.fromkeys(("capacity", "requested", "given", "lost", "short", "stranded"), Fraction()))
    figures = Figures(pods=1, ran=1, waited=90_000, never_will_run=0, hours=hours)
    plan = replace(interrupted(1), by=by, bound=bound)
    plan = replace(plan, choices=[replace(plan.choices[0], figures=figures)])

    assert plan_report(plan).about[1] == f"interrupted: simulated 1 of 25 candidates: {text}"


def test_nodes_that_differ_are_not_interchangeable() -> None:
    layouts = card_layouts("A30", frozenset({"1g.6gb", "2g.12gb"}))
    equal = plan_cluster(simulation([]), (), 2, {}).nodes
    other = [equal[0], replace(equal[1], labels={"pool": "b"})]

    assert [Space(nodes, 1, layouts).size for nodes in (equal, other)] == [6, 9]
    assert len({*Space(other, 1, layouts)}) == 9


class TestSearch:
    """Searches with a made-up key: each device has a value. A bound is better than the key by `slack`."""

    nodes = plan_cluster(simulation([]), (), 2, {}).nodes
    few = card_layouts("A30", frozenset({"1g.6gb", "2g.12gb"}))
    many = card_layouts("A100-80GB", frozenset(PLACEMENTS["A100-80GB"]))
    least: Key = (-(10**9),)

    def search(self, layouts: Sequence[Layout], plays: int, slack: int) -> tuple[Search, Space]:
        space = Space(self.nodes, 3, layouts)
        search = Search(
            space, key, lambda each: (key(each)[0] - slack,), lambda: len(search.simulated) >= plays, Random(1)
        )
        return search, space

    def test_all_are_played_unless_their_bound_is_no_better(self) -> None:
        search, space = self.search(self.few, 10_000, slack=1)

        assert search.run(self.least) == min(map(key, space)) == search.simulated[search.ranked[0]]
        assert len(search.simulated) < space.size

    def test_the_time_ends_a_listed_search_with_the_best_bound_left(self) -> None:
        search, space = self.search(self.few, 4, slack=50)

        limit = search.run(self.least)

        assert len(search.simulated) == 4
        assert limit == min((key(each)[0] - 50,) for each in space if each not in search.simulated)

    def test_walks_find_better_neighbours_where_all_are_too_many(self) -> None:
        search, space = self.search(self.many, 400, slack=30)

        assert not space.listed
        assert search.run(self.least) == self.least
        assert len(search.simulated) == 400
        assert search.simulated[search.ranked[0]] == min(map(key, space.uniform()))

    def test_a_walk_ends_at_the_bound_of_all(self) -> None:
        search, space = self.search(self.many, 400, slack=0)
        least = min(map(key, space.uniform()))

        assert search.run(least) == least
        assert len(search.simulated) < 400


def key(candidate: Candidate) -> Key:
    return (sum((ord(name[-3]) % 5 - 2) * count for name, count in count_devices(candidate).items()),)
