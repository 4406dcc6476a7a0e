"""Pods with two or three causes start on a real control plane after the last was lifted, and not before.

    KUBECONFIG=… pytest -m cluster tests/questions/doctor

It needs kube-scheduler and kube-controller-manager, and no kubelets.
"""

from collections.abc import Iterator
from random import Random

import pytest

from rules_engine.cluster.scheduling import scheduler_of
from rules_engine.questions.doctor.pending import pending_pods
from tests.support.naive_causes import lift_all, minimal_causes, steps_of
from tests.support.real import REAL
from tests.support.real_causes import RealWorld
from tests.support.real_scheduler import RealScheduler, real_scheduler
from tests.support.waiting_worlds import World, WorldGenerator

pytestmark = REAL

PODS = 25


@pytest.fixture(scope="module")
def real() -> Iterator[RealScheduler]:
    with real_scheduler() as made:
        yield made


@pytest.mark.parametrize("number", range(PODS))
def test_the_pod_starts_after_the_last_cause_and_not_before(real: RealScheduler, run_seed: int, number: int) -> None:
    world = _world(f"{run_seed}-{number}", f"{real.kube.name}-{number}-")
    control_plane = RealWorld(real, world)
    with control_plane.created():
        seen = control_plane.waits()
        recorded = control_plane.objects()
        (entry,) = pending_pods(recorded, scheduler_of(recorded), None)
        reasons = [entry.finding.reason, *(each.reason for each in entry.finding.remaining)]
        print(f"seed {run_seed}-{number}", reasons, seen)
        expected = minimal_causes(world)
        steps = next(filter(None, (steps_of(each, reasons) for each in expected)), [])
        assert steps, expected
        for step in steps[:-1]:
            world = lift_all(world, step)
            control_plane.change(world)
            print("without", step[0].reason, control_plane.waits())
        control_plane.change(lift_all(world, steps[-1]))
        print("without", steps[-1][0].reason, control_plane.starts())


def _world(seed: str, prefix: str) -> World:
    """Return a world whose pod has two or three causes."""
    random = Random(seed)
    generator = WorldGenerator(random, prefix, real=True)
    while True:
        world = generator.world(random.randint(2, 3))
        if any(len({(cause.group, cause.reason) for cause in each}) in (2, 3) for each in minimal_causes(world)):
            return world
