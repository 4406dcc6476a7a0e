"""The model of the scheduler agrees with a real kube-scheduler of Kubernetes 1.36, pod by pod.

KUBECONFIG=… pytest -m cluster tests/cluster/scheduling
"""

from collections.abc import Iterator
from random import Random

import pytest

from rules_engine.cluster.scheduling import scheduler_of
from rules_engine.model.kubernetes.cluster_objects import PodObject
from tests.support.clusters import Generator
from tests.support.post_filter import message_end
from tests.support.real import REAL
from tests.support.real_scheduler import RealScheduler, real_scheduler

pytestmark = REAL

CLUSTERS = 200
BATCH = 20
"""Clusters of one test; a failure names its seed."""
PODS = 3


@pytest.fixture(scope="module")
def real() -> Iterator[RealScheduler]:
    with real_scheduler() as made:
        yield made


@pytest.mark.parametrize("first", range(0, CLUSTERS, BATCH))
def test_counts_agree_with_the_message_of_kube_scheduler(real: RealScheduler, first: int) -> None:
    for seed in range(first, first + BATCH):
        generator = Generator(Random(seed), f"{real.kube.name}-")
        nodes = generator.nodes()
        with real.cluster(nodes, generator.bound(nodes), f"s{seed}"):
            for number in range(PODS):
                subject = generator.pending(nodes)
                subject["metadata"]["name"] = f"p{number}"
                objects = real.objects()
                answer = scheduler_of(objects).explain(subject)
                attempt = real.attempt(subject)
                if attempt.node:
                    assert attempt.node in answer.feasible_nodes, seed
                    continue
                end = message_end(objects, scheduler_of(objects), PodObject(attempt.pod), answer)
                assert attempt.message == f"{answer.message()} {end}", f"seed {seed}, pod {number}"
