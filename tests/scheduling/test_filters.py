"""Each filter of the scheduler's model, its reasons, and the order in which filters decide."""

from tests.support.scheduling import GPU, node, pod, scheduled

CONTROL_PLANE = "node-role.kubernetes.io/control-plane:NoSchedule"


def test_two_gpus_are_missing_behind_a_tainted_control_plane() -> None:
    nodes = [node("cp", taints=[CONTROL_PLANE]), node("a", allocatable={GPU: "1"}), node("b")]
    found = scheduled(pod(requests={GPU: "2"}), nodes)
    assert found.message() == (
        "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient nvidia.com/gpu."
    )
    assert found.by_node(f"Insufficient {GPU}") == ("a", "b")
    assert found.waiting_for == (GPU,)
    assert found.feasible == 0
