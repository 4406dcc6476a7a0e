"""Messages of the scheduler: wordings of releases, and the comparison of recorded ones with recomputed answers."""

import pytest

from rules_engine.model.kubernetes.cluster_objects import ClusterObjects
from rules_engine.scheduling import Wording, messages_agree, parse_recorded_message, scheduler_of
from rules_engine.scheduling.message import RecordedMessage
from tests.support.api import GPU, NOW, by_kind, cards, device_class, node, pod
from tests.support.scheduling import scheduled

TAINTED = [
    node("cp", taints=["node-role.kubernetes.io/control-plane:NoSchedule", "a=b:NoSchedule"]),
    node("b", taints=["a=b:NoExecute"]),
    node("c", taints=["a=b:NoSchedule"]),
    node("d"),
]
ALL = "0/4 nodes are available: 1 Insufficient nvidia.com/gpu, 3 node(s) had untolerated taint(s)."
EACH = (
    "0/4 nodes are available: 1 Insufficient nvidia.com/gpu, "
    "1 node(s) had untolerated taint {node-role.kubernetes.io/control-plane: }, "
    "2 node(s) had untolerated taint {a: b}."
)
PREEMPTION = " preemption: 0/4 nodes are available: 4 Preemption is not helpful for scheduling."


def test_earlier_releases_name_the_first_taint_that_is_not_tolerated() -> None:
    answer = scheduled(pod(requests={GPU: "1"}), TAINTED)
    assert answer.message() == ALL
    assert answer.message(Wording.EACH_TAINT) == EACH
    tolerating = pod(tolerations=[{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}])
    assert scheduled(tolerating, TAINTED).counts(Wording.EACH_TAINT) == {"node(s) had untolerated taint {a: b}": 3}


def test_a_taint_behind_an_earlier_filter_is_not_counted() -> None:
    answer = scheduled(pod(), [node("a", taints=["a=b:NoSchedule"], unschedulable=True), TAINTED[0]])
    assert answer.counts(Wording.EACH_TAINT) == {
        "node(s) were unschedulable": 1,
        "node(s) had untolerated taint {node-role.kubernetes.io/control-plane: }": 1,
    }


@pytest.mark.parametrize("text", [ALL, EACH])
@pytest.mark.parametrize("rest", ["", PREEMPTION, f" no new claims to deallocate,{PREEMPTION}"])
def test_recorded_messages_agree_in_both_wordings(text: str, rest: str) -> None:
    recorded = parse_recorded_message(text + rest)
    assert recorded is not None
    assert messages_agree(recorded, scheduled(pod(requests={GPU: "1"}), TAINTED))
    assert not messages_agree(recorded, scheduled(pod(requests={GPU: "1"}), TAINTED[1:]))
    assert not messages_agree(recorded, scheduled(pod(), TAINTED))
    assert not messages_agree(recorded, scheduled(pod(requests={"cpu": "99"}), TAINTED))


def test_a_pod_that_a_filter_rejects_before_it_looks_at_nodes_has_no_counts() -> None:
    recorded = parse_recorded_message("0/2 nodes are available: pod affinity terms conflict. preemption: not eligible.")
    assert recorded == RecordedMessage(nodes=2, reasons={}, rejected="pod affinity terms conflict", claims=False)


def test_failures_agree_whichever_node_fails_first() -> None:
    text = 'running "DynamicResources" filter plugin: class gpu: selector #0: CEL runtime error: no such key: type'
    recorded = parse_recorded_message(text)
    assert recorded == RecordedMessage(nodes=0, reasons={}, failed=True)
    nodes, drivers = [node("a")], [device_class("gpu", GPU, "device.attributes['x.example.com'].type == 'gpu'")]
    failing = ClusterObjects({"Node": nodes, **by_kind(*drivers, cards("a", 1))}, now=NOW)
    answer = scheduler_of(failing).explain(pod(requests={GPU: "1"}))
    assert messages_agree(recorded, answer)
    assert not messages_agree(recorded, scheduled(pod(requests={GPU: "1"}), nodes))
    counted = parse_recorded_message("0/1 nodes are available: 1 Insufficient nvidia.com/gpu.")
    assert counted is not None
    assert not messages_agree(counted, answer)


def test_messages_without_counts_are_read() -> None:
    assert parse_recorded_message("no nodes available to schedule pods") == RecordedMessage(nodes=0, reasons={})
    empty = parse_recorded_message("no nodes available to schedule pods")
    assert empty is not None
    assert messages_agree(empty, scheduled(pod(), []))
    unbound = parse_recorded_message("0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims.")
    assert unbound is not None
    assert unbound.rejected == "pod has unbound immediate PersistentVolumeClaims"


@pytest.mark.parametrize(
    "text", ["", "Scheduling is blocked due to non-empty scheduling gates", "1/3 nodes are available"]
)
def test_other_texts_are_no_messages_of_the_filters(text: str) -> None:
    assert parse_recorded_message(text) is None


def test_reasons_of_older_releases_may_have_commas() -> None:
    recorded = parse_recorded_message(
        "0/2 nodes are available: 1 node(s) had taint {a: b}, that the pod didn't tolerate, 1 X."
    )
    assert recorded is not None
    assert recorded.reasons == {"node(s) had taint {a: b}, that the pod didn't tolerate": 1, "X": 1}
