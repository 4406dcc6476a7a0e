"""The best layouts, against brute force over all layouts with the naive simulator; and the choice of candidates."""

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from itertools import combinations_with_replacement, islice
from math import comb, inf
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules_engine.accelerators.mig import card_layouts, placements
from rules_engine.accelerators.resources import card_share
from rules_engine.cluster.nodes import Offered
from rules_engine.model.kubernetes.pod import Pod
from rules_engine.model.kubernetes.quantity import NANOS
from rules_engine.model.rules.simulation import Arrival, Distribution, Simulation
from rules_engine.questions.plan.plan import PlanAnswer, PlanError, plan, possible_resources
from rules_engine.questions.plan.report import plan_report
from rules_engine.questions.plan.space import MAX_TRIED, Candidate, Space, count_devices, plan_cluster
from rules_engine.questions.simulate.figures import By, FigureKey
from rules_engine.rules.evaluation import RuleSet
from rules_engine.rules.ladder.value import Counts, Direction
from tests.support.api import GPU, node
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
) -> tuple[FigureKey, bool]:
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


def naive_key(naive: NaiveSimulation, load: Simulation, by: By) -> FigureKey:
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
                return len(never) + missing, Fraction(waited, 1000 * total)
            return 0, Fraction(waited + sum(end - pod.arrived for pod in never), 1000 * len(pods))
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


def planned(load: Simulation, rules: RuleSet, nodes: int, cards: int, by: By = By.WAITING) -> PlanAnswer:
    return plan(rules, load, (cards, "A30"), nodes=nodes, by=by, seconds=inf)


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
    answer = planned(load, rules, *size, by)
    assert by.key(answer.choices[0]) == expected
    assert answer.complete


def interrupted(calls: int) -> PlanAnswer:
    """Plan for four cards until the progress was reported `calls` times."""
    arrivals = [
        load(f"p{number}", pod=template(0, {name: "1"}), run_for=1000, count=2)
        for number, name in enumerate((SMALL, MIDDLE, LARGE))
    ]
    reports = iter(range(calls))

    def progress(_done: int, _total: int) -> None:
        if next(reports, None) is None:
            raise KeyboardInterrupt

    return plan(NO_RULES, simulation([], *arrivals), (4, "A30"), seconds=inf, progress=progress)


def test_an_interrupt_ends_with_the_best_so_far() -> None:
    answer = interrupted(2)

    assert answer.interrupted
    assert (answer.simulated, len(answer.choices)) == (2, 2)
    assert plan_report(answer).about[1] == (
        "interrupted: simulated 2 of 25 candidates in a seeded search: another one may be better"
    )


def test_an_interrupt_before_the_first_result_has_no_answer() -> None:
    with pytest.raises(KeyboardInterrupt):
        interrupted(0)


def test_the_end_of_the_time_ends_with_the_best_so_far() -> None:
    workload = simulation([], load("p", pod=template(0, {GPU: "1"})))
    answer = plan(OTHER_RULES[0], workload, (4, "A30"), seconds=0)

    assert (answer.simulated, answer.complete, answer.interrupted) == (1, False, False)


def test_rules_say_which_devices_pods_may_get() -> None:
    assert possible_resources(frozenset({SMALL, "cpu"}), NO_RULES) == frozenset({SMALL})
    assert possible_resources(frozenset({SMALL}), OTHER_RULES[1]) == frozenset({SMALL, MIDDLE})
    assert possible_resources(frozenset({GPU}), OTHER_RULES[1]) == frozenset({GPU})
    assert possible_resources(frozenset({SMALL}), OTHER_RULES[2]) == frozenset({SMALL})
    assert possible_resources(frozenset({SMALL}), RULE_SETS["ladder"][0]) == RULE_SETS["ladder"][1]


def test_nodes_that_differ_are_not_interchangeable() -> None:
    layouts = card_layouts("A30", frozenset({"1g.6gb", "2g.12gb"}))
    equal = plan_cluster(simulation([]), (), 2, {}).nodes
    other = [equal[0], replace(equal[1], labels={"pool": "b"})]

    assert [Space(nodes, 1, layouts).size for nodes in (equal, other)] == [6, 9]
    assert len({*Space(other, 1, layouts)}) == 9


def test_plans_that_are_too_many_to_compare_are_all_counted() -> None:
    layouts = card_layouts("A100-80GB", frozenset(placements("A100-80GB")))
    (one,) = plan_cluster(simulation([]), (), 1, {}).nodes

    assert Space([one], 16, layouts).size == comb(len(layouts) + 15, 16)


class TestChoice:
    """Choices with a made-up key."""

    nodes = plan_cluster(simulation([]), (), 2, {}).nodes

    def choose(self, space: Space, plays: int) -> dict[Candidate, FigureKey]:
        keys: dict[Candidate, FigureKey] = {}
        for candidate in islice(space.choose(keys, Random(1)), plays):
            assert candidate not in keys
            keys[candidate] = key(candidate)
        return keys

    def test_few_candidates_are_all_chosen(self) -> None:
        space = Space(self.nodes, 3, card_layouts("A30", frozenset({"1g.6gb", "2g.12gb"})))

        assert self.choose(space, 10_000).keys() == {*space}

    def test_walks_find_better_neighbours_of_many(self) -> None:
        layouts = card_layouts("A100-80GB", frozenset(placements("A100-80GB")))
        space = Space(self.nodes, 3, layouts)

        keys = self.choose(space, MAX_TRIED)

        assert len(keys) == MAX_TRIED < space.size
        assert min(keys.values()) < min(key(((layout,) * 3,) * 2) for layout in layouts)

    def test_a_walk_leaves_known_neighbours(self) -> None:
        nodes = plan_cluster(simulation([]), (), 9, {}).nodes
        space = Space(nodes, 8, [("1g.6gb",) * 4, ("4g.24gb",)])

        assert len(self.choose(space, MAX_TRIED)) == MAX_TRIED


def key(candidate: Candidate) -> FigureKey:
    """Return how far the numbers of two devices are from those that are wanted."""
    devices = count_devices(candidate)
    return (abs(devices["nvidia.com/mig-1g.10gb"] - 13) + abs(devices["nvidia.com/mig-2g.20gb"] - 9),)
