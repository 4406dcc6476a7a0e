"""Pods with two or three causes start on a real control plane after the last was lifted, and not before.

    KUBECONFIG=… pytest -m cluster tests/questions/doctor

It needs kube-scheduler and kube-controller-manager, and no kubelets.
"""

from collections.abc import Iterator, Sequence
from itertools import count
from random import Random

import pytest

from rules_engine.cluster.scheduling import scheduler_of
from rules_engine.questions.doctor.pending import pending_pods
from tests.support.naive_causes import Cause, World, WorldGenerator, lift_all, minimal_causes
from tests.support.real import REAL
from tests.support.real_causes import RealWorld
from tests.support.real_scheduler import RealScheduler, real_scheduler

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
        print(run_seed, number, reasons, seen)
        by_reasons = {tuple(step[0].reason for step in each): each for each in map(_steps, minimal_causes(world))}
        assert tuple(reasons) in by_reasons
        *steps, last = by_reasons[tuple(reasons)]
        for step in steps:
            world = lift_all(world, step)
            control_plane.change(world)
            print("lifted", step[0].reason, control_plane.waits())
        control_plane.change(lift_all(world, last))
        print("lifted", last[0].reason, control_plane.starts())


def _world(seed: str, prefix: str) -> World:
    """Return a world whose pod has two or three causes."""
    print(f"seed {seed}")
    random = Random(seed)
    generator = WorldGenerator(random, prefix, real=True)
    worlds = (generator.world(random.randint(2, 3)) for _ in count())
    return next(world for world in worlds if {len(_steps(each)) for each in minimal_causes(world)} & {2, 3})


def _steps(causes: Sequence[Cause]) -> list[list[Cause]]:
    """Return causes by group and reason: several resources have one."""
    steps: dict[tuple[int, str], list[Cause]] = {}
    for cause in causes:
        steps.setdefault((cause.group, cause.reason), []).append(cause)
    return [*steps.values()]
