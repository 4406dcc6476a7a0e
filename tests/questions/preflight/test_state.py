"""Workloads played on a cluster leave no trace, and run where a simulation runs them."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

from hypothesis import assume, event, example, given
from hypothesis import strategies as st

from rules_engine.model.rules.simulation import Arrival, Distribution, Gang, Simulation
from rules_engine.questions.preflight.state import ClusterState, PodsByWorkload
from rules_engine.questions.simulate.play import play_simulation
from rules_engine.questions.simulate.record import State
from tests.support.generated_simulations import SimulationGenerator, full_cluster
from tests.support.simulation import NO_RULES

SEEDS = st.integers(0, 2**32)


def drawn_simulation(random: Random, **members: Any) -> Simulation:
    """Draw a cluster at which all workloads arrive at once, and never end."""
    generator = SimulationGenerator(random)
    for each in generator.nodes:
        each["status"].pop("conditions", None)  # nothing is evicted
    drawn = generator.draw()
    arrivals = [replace(each, at=0, count=1, every=Distribution(), run_for=None) for each in drawn.arrivals]
    return replace(drawn, arrivals=tuple(arrivals), events=(), running_for=None, until=0, **members)


def with_gangs(random: Random, arrivals: Sequence[Arrival]) -> list[Arrival]:
    gangs = [Gang(minimum=random.choice((0, 1, 2, 4)), number=random.choice((1, 1, 2))) for _ in arrivals]
    return [replace(each, gang=gang) for each, gang in zip(arrivals, gangs, strict=True)]


def outcome(workloads: PodsByWorkload) -> list[list[tuple[Any, ...]]]:
    return [[(each.name, each.verdict, each.node, each.victims, each.message) for each in pods] for pods in workloads]


def whole_state(state: ClusterState) -> tuple[Any, ...]:
    """Return all that a play may change."""
    cycle, view = state.play.cycle, state.play.view
    scheduler = cycle.scheduler
    resources = sorted({name for each in scheduler.nodes for name in each.allocatable})
    free = [[scheduler.free(number, name) for name in (*resources, "pods")] for number in range(len(scheduler.nodes))]
    victims = [sorted(pods) for pods in cycle._preemption._pods]
    available = [{name: each.available(name) for name in resources} for each in view.cluster.nodes]
    allowed = [each.allowed for each in cycle.budgets._budgets]
    claims = sorted((name, sorted(users)) for name, users in cycle.devices._users.items() if users)
    return (
        free,
        victims,
        allowed,
        sorted(cycle.devices.offers.allocated.items()),
        claims,
        available,
        state.play.node_of_pod,
    )


@given(SEEDS, st.booleans())
def test_a_play_leaves_no_trace(seed: int, ending: bool) -> None:
    random = Random(seed)
    generator = SimulationGenerator(random)
    drawn, rule_set = drawn_simulation(random), generator.rules()
    state, arrivals = ClusterState(drawn, rule_set), with_gangs(random, drawn.arrivals)
    before = whole_state(state)
    with state.simulated(arrivals, ending=0 if ending else None) as plays:
        first = outcome(plays)
        state.could_hold_together([*{pod.name: pod for pods in plays for pod in pods}.values()])
    assert whole_state(state) == before
    with state.simulated(arrivals, ending=0 if ending else None) as plays:
        assert outcome(plays) == first


@given(SEEDS)
def test_a_gang_that_does_not_start_changes_nothing_for_others(seed: int) -> None:
    random = Random(seed)
    generator = SimulationGenerator(random)
    drawn, rule_set = drawn_simulation(random), generator.rules()
    state, arrivals = ClusterState(drawn, rule_set), with_gangs(random, drawn.arrivals)
    with state.simulated(arrivals) as plays:
        first = outcome(plays)
        stopped = [bool(pods) and all(pod.alone for pod in pods) for pods in plays]
    assert not any(node for pods, stops in zip(first, stopped, strict=True) if stops for _, _, node, *_ in pods)
    others = [replace(each, groups=()) if stops else each for each, stops in zip(arrivals, stopped, strict=True)]
    with state.simulated(others) as plays:
        assert outcome(plays) == [[] if stops else pods for pods, stops in zip(first, stopped, strict=True)]
    event(f"{sum(stopped)} of {len(stopped)} stopped")


@given(SEEDS)
def test_a_play_leaves_no_trace_in_budgets(seed: int) -> None:
    drawn = full_cluster(Random(seed))
    state = ClusterState(drawn, NO_RULES)
    before = whole_state(state)
    with state.simulated(drawn.arrivals) as plays:
        first = outcome(plays)
    assert whole_state(state) == before
    with state.simulated(drawn.arrivals) as plays:
        assert outcome(plays) == first


@given(SEEDS)
@example(seed=1764)
def test_pods_run_where_a_simulation_runs_them(seed: int) -> None:
    random = Random(seed)
    generator = SimulationGenerator(random)
    drawn, rule_set = drawn_simulation(random), generator.rules()
    bound = [
        {**each, "metadata": {**each.metadata, "ownerReferences": []}} for each in drawn.objects.pods if each.node_name
    ]
    objects = type(drawn.objects)(
        {"Node": drawn.objects.nodes, "Pod": bound, "Namespace": drawn.objects.of("Namespace")}, now=drawn.objects.now
    )
    drawn = replace(drawn, objects=objects, cluster=objects.view)
    record = play_simulation(drawn, rule_set, "rules")
    assume(not any(each.replaces for each in record.pods))  # controllers replace victims only in a simulation
    arrived = [each for each in record.pods if each.arrival is not None]
    expected = {f"{each.namespace}/{each.name}": each.node * (each.state is State.RUNNING) for each in arrived}
    state = ClusterState(drawn, rule_set)
    with state.simulated(drawn.arrivals) as plays:
        found = {each.name: each.node for pods in plays for each in pods}
    assert found == {name: expected[name] for name in found}
