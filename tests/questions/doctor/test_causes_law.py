"""The causes of a waiting pod equal those found by removing them one at a time until a naive scheduler starts it."""

from random import Random

from hypothesis import event as noted
from hypothesis import given
from hypothesis import strategies as st

from rules_engine.cluster.scheduling import scheduler_of
from rules_engine.questions.doctor.pending import pending_pods
from rules_engine.questions.doctor.reasons import PendingReason
from tests.support.api import cluster
from tests.support.naive_causes import lift_all, minimal_causes, steps_of
from tests.support.waiting_worlds import World, WorldGenerator

NO_CAUSE = {(PendingReason.SCHEDULER_MESSAGE,), (PendingReason.NO_SCHEDULER_MESSAGE,)}


@given(st.randoms(use_true_random=False), st.integers(0, 3))
def test_the_causes_are_those_found_by_removing_them_one_at_a_time(random: Random, number: int) -> None:
    world = WorldGenerator(random).world(number)
    expected = minimal_causes(world)
    noted(f"{len(expected[0]) if expected else 0} causes")
    reasons = causes_of(world)
    assert any(steps_of(each, reasons) for each in expected) if expected else reasons in NO_CAUSE


@given(st.randoms(use_true_random=False), st.integers(0, 3))
def test_a_pod_starts_once_its_causes_are_lifted(random: Random, number: int) -> None:
    world = WorldGenerator(random).world(number)
    found = minimal_causes(world)
    assert bool(found) is not bool(world.starting_nodes())
    assert all(lift_all(world, causes).starting_nodes() for causes in found)


def causes_of(world: World) -> tuple[str, ...]:
    """Return the reasons of the finding about the waiting pod."""
    recorded = cluster(*world.objects)
    (entry,) = pending_pods(recorded, scheduler_of(recorded), None)
    return (entry.finding.reason, *(each.reason for each in entry.finding.remaining))
