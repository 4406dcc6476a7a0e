"""The taints that the node lifecycle controller keeps for a node's state."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules_engine.cluster.scheduling.requirements import with_state_taints
from rules_engine.model.kubernetes.cluster import Node, Taint

CORDON = "node.kubernetes.io/unschedulable:NoSchedule"
NOT_READY = ("node.kubernetes.io/not-ready:NoSchedule", "node.kubernetes.io/not-ready:NoExecute")
UNREACHABLE = ("node.kubernetes.io/unreachable:NoSchedule", "node.kubernetes.io/unreachable:NoExecute")
OTHERS = (
    "spot:NoSchedule",
    "node.kubernetes.io/unschedulable:NoExecute",
    "node.kubernetes.io/not-ready:PreferNoSchedule",
)


def tainted_node(taints: tuple[str, ...], *, ready: bool = True, cordoned: bool = False) -> Node:
    pairs = [text.split(":") for text in taints]
    node_taints = tuple(Taint(key=key, effect=effect) for key, effect in pairs)
    return Node(name="a", taints=node_taints, ready=ready, unschedulable=cordoned)


@pytest.mark.parametrize(
    ("before", "state", "after"),
    [
        (OTHERS, {}, OTHERS),
        (("spot:NoSchedule",), {"cordoned": True}, ("spot:NoSchedule", CORDON)),
        ((CORDON, "spot:NoSchedule"), {"cordoned": True}, (CORDON, "spot:NoSchedule")),
        ((CORDON, "spot:NoSchedule"), {}, ("spot:NoSchedule",)),
        ((), {"ready": False}, NOT_READY),
        (NOT_READY[1:], {"ready": False}, NOT_READY[::-1]),
        ((*NOT_READY, *UNREACHABLE), {}, ()),
        (UNREACHABLE[:1], {"ready": False, "cordoned": True}, (UNREACHABLE[0], CORDON, UNREACHABLE[1])),
        ((NOT_READY[0], UNREACHABLE[0]), {"ready": False}, UNREACHABLE),
    ],
)
def test_taints_follow_the_state(before: tuple[str, ...], state: dict[str, bool], after: tuple[str, ...]) -> None:
    assert with_state_taints(tainted_node(before, **state)).taints == tainted_node(after).taints


@given(
    st.lists(st.sampled_from([CORDON, *NOT_READY, *UNREACHABLE, *OTHERS]), unique=True), st.booleans(), st.booleans()
)
def test_a_node_with_the_taints_of_its_state_is_left_as_it_is(taints: list[str], ready: bool, cordoned: bool) -> None:
    once = with_state_taints(tainted_node(tuple(taints), ready=ready, cordoned=cordoned))
    assert with_state_taints(once) is once
