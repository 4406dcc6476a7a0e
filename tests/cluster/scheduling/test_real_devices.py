"""Allocation of devices agrees with a real kube-scheduler of Kubernetes 1.36, pod by pod.

KUBECONFIG=… CLUSTERS=300 pytest -m cluster tests/cluster/scheduling/test_real_devices.py
"""

import os
from collections.abc import Iterator, Sequence
from random import Random

import pytest

from rules_engine.cluster.nodes import NodeFilter, NodeRequirement, Offered
from rules_engine.cluster.scheduling import Scheduling, scheduler_of
from rules_engine.cluster.scheduling.cycle import BoundPod, SchedulablePod, SchedulingCycle
from rules_engine.cluster.scheduling.scheduler import MANY_STEPS
from rules_engine.cluster.scheduling.scheduling import FAILURE_START, TOO_MANY_PODS
from rules_engine.model.kubernetes.cluster_objects import ClusterObjects, PodObject
from rules_engine.model.kubernetes.devices import DeviceKey
from rules_engine.model.rules.admission import pod_request
from rules_engine.model.rules.simulation import SchedulerOptions
from rules_engine.questions.doctor.drivers import drivers_of
from tests.support.api import GPU, NOW
from tests.support.device_clusters import MIG, DeviceGenerator
from tests.support.evaluation import compiled, ladder, rung
from tests.support.post_filter import message_end
from tests.support.real import REAL
from tests.support.real_devices import RealDevices, real_devices
from tests.support.real_scheduler import Attempt, Object

pytestmark = REAL

CLUSTERS = int(os.environ.get("CLUSTERS", "20"))
BATCH = 10
"""Clusters of one test; a failure names its seed."""
PODS = 3

OTHER = "nvidia.com/other"
PLACES = NodeFilter(require=frozenset({NodeRequirement.SCHEDULABLE, NodeRequirement.MATCHES_POD}))
LADDERS = {
    (resource, offered): compiled(
        ladder(rung(resource), rung(OTHER, assume=True), offered=offered, nodes=PLACES, name="ladder")
    )
    for resource in (GPU, MIG)
    for offered in Offered
}


@pytest.fixture(scope="module")
def real() -> Iterator[RealDevices]:
    with real_devices() as made:
        yield made


@pytest.mark.parametrize("first", range(0, CLUSTERS, BATCH))
def test_devices_and_messages_agree_with_kube_scheduler(real: RealDevices, first: int) -> None:
    for seed in range(first, min(first + BATCH, CLUSTERS)):
        generator = DeviceGenerator(Random(seed), f"s{seed}-", real.low)
        nodes, classes = generator.nodes(), generator.classes()
        slices = generator.slices(nodes)
        holders, bound = generator.holders(nodes, slices), generator.bound(nodes)
        with real.cluster(nodes, bound, classes, slices, holders, f"s{seed}"):
            cycle = _cycle(real.objects())
            for number in range(PODS):
                subject = real.placed(generator.pending(f"p{number}", classes))
                if not _agree(real, cycle, subject, f"seed {seed}, pod {number}"):
                    break


def _agree(real: RealDevices, cycle: SchedulingCycle, subject: Object, case: str) -> bool:
    """Compare the decisions on a pod, in a cycle as well; return False if the cycle then differs from the cluster."""
    objects = real.objects()
    scheduler = scheduler_of(objects)
    answer = scheduler.explain(subject)
    attempt = real.attempt(subject)
    if MANY_STEPS in answer.not_modelled:
        return False
    assert cycle.explain(SchedulablePod.of(subject)).message() == answer.message(), case
    _compare_ladders(subject, objects, attempt, answer, case)
    if attempt.node and not attempt.message:
        assert attempt.node in answer.feasible_nodes, f"{case}: bound to {attempt.node}\n{answer.message()}"
        number = next(number for number, node in enumerate(scheduler.nodes) if node.name == attempt.node)
        assert real.devices_of(subject["metadata"]["name"]) == _bind(cycle, subject, number), case
        return True
    end = message_end(objects, scheduler, PodObject(attempt.pod), answer)
    try:
        _compare_message(attempt.message, f"{answer.message()} {end}" if end else answer.message(), answer, case)
    finally:
        real.scheduler.delete(attempt.pod)
    return bool(end or answer.failure)


def _cycle(objects: ClusterObjects) -> SchedulingCycle:
    """Return a cycle as a simulation makes it of a cluster."""
    view = objects.view
    made = SchedulingCycle(view.nodes, view.namespaces, SchedulerOptions(), 1, objects.devices)
    numbers = {node.name: number for number, node in enumerate(view.nodes)}
    for pod in objects.pods:
        if pod.node_name:
            made.bind(BoundPod(f"{pod.namespace}/{pod.name}", SchedulablePod.of(pod), numbers[pod.node_name], 0))
    return made


def _bind(cycle: SchedulingCycle, subject: Object, number: int) -> Sequence[DeviceKey]:
    """Bind a pod in a cycle, and return its devices."""
    allocated = cycle.devices.offers.allocated
    before = {*allocated}
    cycle.bind(BoundPod(subject["metadata"]["name"], SchedulablePod.of(subject), number, 0))
    return tuple(key for key in allocated if key not in before)


def _compare_message(recorded: str, recomputed: str, answer: Scheduling, case: str) -> None:
    assert not answer.feasible, f"{case}: {recorded}\nfeasible: {answer.feasible_nodes}"
    if FAILURE_START in recomputed:
        # Of several nodes, a random one fails; and the errors of CEL have other words.
        (ours, _, _), (theirs, failed, _) = (text.partition(FAILURE_START) for text in (recomputed, recorded))
        assert failed, f"{case}: {recorded}\n{recomputed}"
        assert theirs == ours, case
    else:
        assert recorded == recomputed, case


def _compare_ladders(subject: Object, objects: ClusterObjects, attempt: Attempt, answer: Scheduling, case: str) -> None:
    """Compare a ladder with the scheduler, for a pod with one resource on nodes with room for everything else."""
    requests = [each["resources"]["requests"] for each in subject["spec"]["containers"]]
    if len(requests) > 1 or len(requests[0]) != 1 or "initContainers" in subject["spec"]:
        return
    (resource,) = requests[0]
    if (resource, Offered.AVAILABLE) not in LADDERS:
        return
    if TOO_MANY_PODS in answer.reasons:
        return
    kinds = ("Node", "DeviceClass", "ResourceSlice")
    empty = ClusterObjects({kind: [dict(each) for each in objects.of(kind)] for kind in kinds}, now=NOW)
    could = bool(scheduler_of(empty).explain(subject).feasible)
    stays = {offered: _stays(subject, resource, offered, objects) for offered in Offered}
    bound = bool(attempt.node) and not attempt.message
    assert stays == {Offered.AVAILABLE: bound, Offered.ALLOCATABLE: could}, f"{case}: {attempt}"


def _stays(subject: Object, resource: str, offered: Offered, objects: ClusterObjects) -> bool:
    """Return True if a ladder keeps the resource of a pod."""
    made = {"apiVersion": "v1", "kind": "Pod", "metadata": subject["metadata"], "spec": subject["spec"]}
    decision = LADDERS[resource, offered].mutate(pod_request(made, namespace="ml"), drivers_of(objects).view)
    return not decision.patch
