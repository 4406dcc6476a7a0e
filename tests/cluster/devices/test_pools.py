"""Pools: the devices that reach a node, complete and in the scheduler's order."""

from typing import Any

import pytest

from rules_engine.cluster.devices.pools import Pool, Pools, pool_devices, reaches
from rules_engine.model.kubernetes.cluster import Node
from rules_engine.model.kubernetes.devices import Device, NodeSelection, ResourceSlice
from rules_engine.model.kubernetes.placement import NodeExpression, NodeTerm
from tests.support.devices import counters, device, devices_of, on, part

A = Node(name="a", labels={"zone": "x", "size": "7"})
B = Node(name="b", labels={"zone": "y"})


def pools(*slices: ResourceSlice, node: Node = A) -> list[Pool]:
    return list(Pools(devices_of((), *slices)).reaching(node))


def names(*slices: ResourceSlice, node: Node = A) -> list[str]:
    """Return the names of the devices that reach a node, in order."""
    return [item.name for _, item in pool_devices(pools(*slices, node=node))]


def problem(*slices: ResourceSlice, node: Node = A) -> str:
    """Return the problem of the only pool, which has no devices."""
    (found,) = pools(*slices, node=node)
    assert found.problem
    assert (found.devices, found.others, found.counters) == ((), (), {})
    return found.problem


def selecting(*expressions: tuple[str, str, tuple[str, ...]], fields: bool = False) -> NodeSelection:
    """Return a selection by one term."""
    read = tuple(NodeExpression(*expression) for expression in expressions)
    return NodeSelection(terms=(NodeTerm((), read) if fields else NodeTerm(read, ()),))


class TestNodes:
    def test_a_slice_of_a_node_reaches_that_node_only(self) -> None:
        one = part("s", device("d"), nodes=on("a"))
        assert names(one) == ["d"]
        assert pools(one, node=B) == []

    def test_a_slice_of_all_nodes_reaches_every_node(self) -> None:
        assert names(part("s", device("d")), node=B) == ["d"]

    def test_a_slice_with_a_selector_reaches_the_nodes_that_match(self) -> None:
        one = part("s", device("d"), nodes=selecting(("zone", "In", ("x",))))
        assert names(one) == ["d"]
        assert pools(one, node=B) == []

    def test_each_device_may_have_its_own_nodes(self) -> None:
        devices = [
            device("named", nodes=on("a")),
            device("other", nodes=on("b")),
            device("every", nodes=NodeSelection(every=True)),
            device("zone", nodes=selecting(("zone", "In", ("y",)))),
            device("none"),
        ]
        one = part("s", *devices, nodes=None)
        assert names(one) == ["named", "every"]
        assert names(one, node=B) == ["other", "every", "zone"]
        assert pools(part("s", device("named", nodes=on("a")), device("none"), nodes=None), node=B) == []

    def test_devices_of_a_slice_with_nodes_need_none_of_their_own(self) -> None:
        assert names(part("s", device("d", nodes=on("b")), nodes=on("a"))) == ["d"]

    @pytest.mark.parametrize(
        ("key", "operator", "values", "expected"),
        [
            ("zone", "In", ("x", "y"), True),
            ("zone", "In", ("y",), False),
            ("none", "In", ("y",), False),
            ("zone", "NotIn", ("y",), True),
            ("zone", "NotIn", ("x",), False),
            ("none", "NotIn", ("x",), True),
            ("zone", "Exists", (), True),
            ("none", "Exists", (), False),
            ("none", "DoesNotExist", (), True),
            ("zone", "DoesNotExist", (), False),
            ("size", "Gt", ("6",), True),
            ("size", "Gt", ("7",), False),
            ("size", "Lt", ("8",), True),
            ("size", "Lt", ("7",), False),
            ("size", "Lt", ("8", "9"), False),
            ("size", "Lt", (), False),
            ("size", "Lt", ("x",), False),
            ("zone", "Gt", ("6",), False),
            ("none", "Gt", ("6",), False),
        ],
    )
    def test_operators_of_selectors(self, key: str, operator: str, values: tuple[str, ...], expected: bool) -> None:
        assert reaches(selecting((key, operator, values)), A) == expected

    def test_fields_are_the_name_of_the_node(self) -> None:
        assert reaches(selecting(("metadata.name", "In", ("a",)), fields=True), A)
        assert not reaches(selecting(("metadata.name", "In", ("a",)), fields=True), B)
        assert not reaches(selecting(("metadata.uid", "In", ("a",)), fields=True), A)
        assert not reaches(selecting(("metadata.name", "In", ("a",))), A)

    def test_expressions_hold_together_and_terms_are_alternatives(self) -> None:
        x, sized = ("zone", "In", ("x",)), ("size", "Exists", ())
        assert reaches(selecting(x, sized), A)
        assert not reaches(selecting(x, ("size", "DoesNotExist", ())), A)
        both = NodeSelection(terms=(*selecting(("zone", "In", ("q",))).terms, *selecting(x).terms))
        assert reaches(both, A)
        assert not reaches(both, B)
        assert not reaches(NodeSelection(), A)


class TestGenerations:
    def test_the_newest_generation_of_a_node_counts(self) -> None:
        old, new = part("s0", device("old"), generation=1), part("s1", device("new"), generation=2)
        assert names(old, new) == ["new"]
        assert names(new, old) == ["new"]

    def test_a_pool_that_is_newer_elsewhere_is_left_out(self) -> None:
        old = part("s0", device("old"), nodes=on("a"), slice_count=2)
        assert pools(old, part("s1", nodes=on("b"), generation=2)) == []

    def test_a_complete_old_generation_stays_where_no_newer_slice_reaches(self) -> None:
        old = part("s0", device("old"), nodes=on("a"))
        assert names(old, part("s1", nodes=on("b"), generation=2)) == ["old"]

    def test_an_incomplete_new_generation_hides_the_old_one(self) -> None:
        old, new = part("s0", device("old")), part("s1", device("new"), generation=2, slice_count=2)
        assert problem(old, new) == "it has 1 of 2 slices of generation 2"


class TestCompleteness:
    def test_a_pool_with_a_missing_slice_has_no_devices(self) -> None:
        assert problem(part("s", device("d"), slice_count=2)) == "it has 1 of 2 slices of generation 1"

    def test_a_pool_with_too_many_slices_has_no_devices(self) -> None:
        assert problem(part("s0", device("d")), part("s1", device("e"))) == "it has 2 of 1 slices of generation 1"

    def test_slices_of_other_nodes_complete_a_pool(self) -> None:
        slices = [part(f"s{name}", device(f"d{name}"), nodes=on(name), slice_count=2) for name in "ab"]
        assert names(*slices) == ["da"]
        assert names(*slices, node=B) == ["db"]

    def test_pools_are_of_one_driver_and_one_name(self) -> None:
        slices = [part("s0", device("d")), part("s1", device("e"), pool="q"), part("s2", device("f"), driver="other")]
        assert names(*slices) == ["d", "e", "f"]


class TestValidity:
    @pytest.mark.parametrize(
        ("slices", "expected"),
        [
            ([part("s0", device("d"), slice_count=2), part("s1", device("d"), slice_count=2)], "it has two devices d"),
            (
                [part(name, counts={"g/c": 1}, slice_count=3) for name in ("s0", "s1")]
                + [part("s2", device("d"), slice_count=3)],
                "it has two counter sets g",
            ),
            (
                [part("s0", device("d", consumes={"g/c": 1}))],
                "device d consumes the counter g/c, which it does not have",
            ),
            (
                [
                    part("s0", counts={"g/c": 1}, slice_count=2),
                    part("s1", device("d", consumes={"g/other": 1}), slice_count=2),
                ],
                "device d consumes the counter g/other, which it does not have",
            ),
            (
                [
                    part("s0", device("d"), nodes=on("a"), slice_count=2),
                    part("s1", device("e", consumes={"g/c": 1}), nodes=on("b"), slice_count=2),
                ],
                "device e consumes the counter g/c, which it does not have",
            ),
        ],
    )
    def test_an_invalid_pool_has_no_devices(self, slices: list[ResourceSlice], expected: str) -> None:
        assert problem(*slices) == expected

    def test_devices_of_one_name_on_different_nodes_are_valid(self) -> None:
        slices = [part(f"s{name}", device("d"), nodes=on(name), slice_count=2) for name in "ab"]
        assert names(*slices) == ["d"]

    def test_nodes_see_the_counters_of_pools_that_are_invalid_elsewhere(self) -> None:
        consuming = part("s1", device("d", consumes={"g/other": 1}), nodes=on("b"), slice_count=2)
        counting = part("s0", counts={"g/c": 1}, nodes=on("b"), slice_count=2)
        key = ("gpu.nvidia.com", "p")
        assert Pools(devices_of((), counting, consuming)).invalid_elsewhere == [key]
        assert Pools(devices_of((), consuming)).invalid_elsewhere == []
        valid = part("s1", device("d", consumes={"g/c": 1}), nodes=on("b"), slice_count=2)
        assert Pools(devices_of((), counting, valid)).invalid_elsewhere == []
        newer = part("s2", device("d"), nodes=on("b"), generation=2)
        assert Pools(devices_of((), counting, consuming, newer)).invalid_elsewhere == []
        assert names(counting, consuming) == []

    def test_one_invalid_pool_does_not_harm_others(self) -> None:
        assert names(part("s0", device("d", consumes={"g/c": 1})), part("s1", device("e"), pool="q")) == ["e"]


class TestCounters:
    def test_counters_of_any_node_count(self) -> None:
        slices = [
            part("s0", counts={"g/c": 3, "h/c": 1}, nodes=on("b"), slice_count=2),
            part("s1", device("d", consumes={"g/c": 1}), nodes=on("a"), slice_count=2),
        ]
        (pool,) = pools(*slices)
        assert pool.counters == counters({"g/c": 3, "h/c": 1})
        assert [each.name for each in pool.devices] == ["d"]

    def test_devices_in_a_slice_of_counters_do_not_count(self) -> None:
        slices = [part("s0", device("ignored"), counts={"g/c": 1}, slice_count=2), part("s1", slice_count=2)]
        assert names(*slices) == []

    def test_a_pool_of_counters_alone_is_left_out(self) -> None:
        counts = part("s0", counts={"g/c": 1}, nodes=on("a"), slice_count=2)
        assert pools(counts) == []
        assert pools(counts, part("s1", device("d"), nodes=on("b"), slice_count=2)) == []
        assert pools(counts, part("s1", device("d", nodes=on("b")), nodes=None, slice_count=2)) == []

    def test_counters_that_are_newer_than_the_devices_hide_them(self) -> None:
        assert names(part("s0", device("d")), part("s1", counts={"g/c": 1}, generation=2)) == []

    def test_devices_of_other_nodes_that_consume_counters_are_known(self) -> None:
        slices = [
            part("s0", counts={"g/c": 3}, slice_count=3),
            part(
                "s1",
                device("mine", consumes={"g/c": 1}, nodes=on("a")),
                device("theirs", consumes={"g/c": 1}, nodes=on("b")),
                device("nobody's", consumes={"g/c": 1}),
                device("free", nodes=on("b")),
                nodes=None,
                slice_count=3,
            ),
            part("s2", device("remote", consumes={"g/c": 1}), device("free-2"), nodes=on("b"), slice_count=3),
        ]
        (pool,) = pools(*slices)
        assert [each.name for each in pool.devices] == ["mine"]
        assert [each.name for each in pool.others] == ["theirs", "nobody's", "remote"]


class TestOrder:
    def test_pools_come_by_driver_and_name_slices_by_name_and_devices_as_listed(self) -> None:
        slices = [
            part("s9", device("z"), device("y"), driver="b", pool="p", slice_count=2),
            part("s10", device("x"), driver="b", pool="p", slice_count=2),
            part("s0", device("w"), driver="b", pool="o"),
            part("s1", device("v"), driver="a", pool="q"),
        ]
        expected = ["v", "w", "x", "z", "y"]
        assert names(*slices) == expected
        assert names(*reversed(slices)) == expected

    def test_pools_with_conditional_devices_come_last(self) -> None:
        slices = [
            part("s0", device("a"), device("b", conditional=True), pool="a"),
            part("s1", device("c"), pool="b"),
            part("s2", device("d", conditional=True), pool="c"),
            part("s3", device("e"), pool="d"),
        ]
        assert names(*slices) == ["c", "e", "a", "b", "d"]

    def test_a_conditional_device_of_another_node_counts_in_a_slice_that_reaches_the_node(self) -> None:
        conditional = device("b", conditional=True, nodes=on("b"))
        slices = [part("s0", device("a", nodes=on("a")), conditional, nodes=None, pool="a"), part("s1", device("c"))]
        assert names(*slices) == ["c", "a"]

    def test_a_device_is_known_by_driver_pool_and_name(self) -> None:
        made: Device = device("d")
        (pool,) = pools(part("s", made))
        expected: Any = ("gpu.nvidia.com", "p", "d")
        assert pool.key(made) == expected
