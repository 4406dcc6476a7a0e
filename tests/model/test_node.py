"""Nodes, read from their JSON; the readers of kubectl's output and of the API server have tests of their own."""

from typing import Any

from rules_engine.model.kubernetes.cluster import Node, Taint
from rules_engine.model.kubernetes.node import read_node
from rules_engine.model.kubernetes.quantity import Quantity, QuantityError


def test_malformed_amounts_are_omitted_and_reported() -> None:
    amounts: dict[str, Any] = {"cpu": 4, "memory": "64Gi", "a": "much", "b": True, "c": None, "d": {"e": []}}
    reported: list[tuple[str, str]] = []

    def unread(name: str, resource: str, error: QuantityError) -> None:
        reported.append((name, resource))

    node = read_node({"metadata": {"name": "n"}, "status": {"allocatable": amounts}}, unread)
    assert node.allocatable == {"cpu": Quantity.parse("4"), "memory": Quantity.parse("64Gi")}
    assert reported == [("n", resource) for resource in "abcd"]


def test_members_of_another_type_count_as_absent() -> None:
    def unread(*_: object) -> None:
        raise AssertionError

    node = Node(name="", taints=(Taint(key="", effect=""),))
    assert read_node({"metadata": [], "spec": {"taints": [{"key": 1}, 2], "unschedulable": "yes"}}, unread) == node
    assert not read_node({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}, unread).ready
