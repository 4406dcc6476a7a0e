"""Laws of the reasons of pending pods, on generated clusters: they agree with the scheduler's filters."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rules_engine.cluster.scheduling import scheduler_of
from rules_engine.model.kubernetes.cluster_objects import requests_of
from rules_engine.model.rules.finding import Certainty
from rules_engine.questions.doctor.pending import pending_pods
from rules_engine.questions.doctor.reasons import PendingReason
from tests.support.api import GPU, MIG1, Object, cluster, node, pod

NOT_READY = "node.kubernetes.io/not-ready:NoExecute"
WITHOUT_NODES = {
    PendingReason.SCHEDULING_GATES,
    PendingReason.VOLUME_CLAIMS,
    PendingReason.SCHEDULER_MESSAGE,
    PendingReason.NO_SCHEDULER_MESSAGE,
}
"""Reasons that do not depend on what nodes offer."""

_requests = st.fixed_dictionaries(
    {GPU: st.integers(0, 4)}, optional={MIG1: st.integers(0, 2), "cpu": st.integers(1, 40)}
)
_zones = st.sampled_from(["a", "b"])


@st.composite
def nodes(draw: st.DrawFn, name: str) -> Object:
    return node(
        name,
        {
            **draw(st.dictionaries(st.sampled_from([GPU, MIG1]), st.integers(0, 4))),
            "pods": draw(st.sampled_from(["2", "110"])),
        },
        labels={"zone": draw(_zones)},
        taints=draw(st.lists(st.sampled_from(["gpu:NoSchedule", "soft:PreferNoSchedule", NOT_READY]), unique=True)),
        ready=draw(st.booleans()),
    )


@st.composite
def pods(draw: st.DrawFn, name: str, on: str = "") -> Object:
    spec: dict[str, Any] = {}
    if draw(st.booleans()):
        spec["nodeSelector"] = {"zone": draw(_zones)}
    keys = draw(st.lists(st.sampled_from(["gpu", "node.kubernetes.io/unschedulable", "node.kubernetes.io/not-ready"])))
    spec["tolerations"] = [{"key": key, "operator": "Exists"} for key in keys]
    if draw(st.integers(0, 9)) == 0:
        spec["schedulingGates"] = [{"name": "queue"}]
    return pod(name, draw(_requests), on=on, **spec)


@st.composite
def clusters(draw: st.DrawFn) -> list[Object]:
    names = [f"node-{number}" for number in range(draw(st.integers(0, 4)))]
    bound = [draw(pods(f"bound-{number}", draw(st.sampled_from(names)))) for number in range(4) if names]
    waiting = [draw(pods(f"waiting-{number}")) for number in range(3)]
    return [*(draw(nodes(name)) for name in names), *bound, *waiting]


@given(clusters())
def test_a_pod_has_a_reason_of_nodes_exactly_if_no_node_passes_all_filters(objects: list[Object]) -> None:
    recorded = cluster(*objects)
    scheduler = scheduler_of(recorded)
    for entry in pending_pods(recorded, scheduler, None):
        waiting = recorded.find("Pod", entry.finding.object.name, entry.finding.object.namespace)
        assert waiting is not None
        feasible = scheduler.explain(waiting).feasible
        finding = entry.finding
        if finding.reason is PendingReason.SCHEDULING_GATES:
            assert bool(finding.remaining) or feasible
        elif not feasible:
            assert finding.reason not in WITHOUT_NODES
        elif finding.reason not in WITHOUT_NODES:
            # A node that is not Ready passes the filters until it is tainted.
            assert finding.certainty is Certainty.POSSIBLE


@given(clusters())
def test_every_pending_gpu_pod_has_one_answer(objects: list[Object]) -> None:
    recorded = cluster(*objects)
    entries = pending_pods(recorded, scheduler_of(recorded), None)
    names = [entry.finding.object for entry in entries]
    expected = {
        each.object_name for each in recorded.pods if not each.node_name and {GPU, MIG1} & _positive(requests_of(each))
    }
    assert len(names) == len(set(names))
    assert set(names) == expected


def _positive(amounts: Any) -> set[str]:
    return {name for name, nanos in amounts.items() if nanos}
