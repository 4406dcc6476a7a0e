"""Nodes that a pod may run on, by the scheduler's filters, found by an index."""

import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules_engine.cluster.nodes import NodeIndex, matching_nodes
from rules_engine.language.cel import Budget
from rules_engine.model.kubernetes.cluster import Node, NodeUpdate, Taint
from rules_engine.model.kubernetes.placement import Placement
from tests.support.budgets import units_spent
from tests.support.placing import expression, requiring, takes


def node(name: str = "n", taints: tuple[Taint, ...] = (), **labels: str) -> Node:
    return Node(name=name, labels=labels, taints=taints)


def reachable_nodes(index: NodeIndex, placement: Placement) -> list[str]:
    """The names of the nodes that the index finds, in order."""
    nodes = matching_nodes(index, placement, Budget())
    return sorted(node.name for number, node in index.nodes.items() if nodes >> number & 1)


def fits(spec: dict[str, Any], on: Node) -> bool:
    return bool(reachable_nodes(NodeIndex.of([on]), Placement.parse(spec)))


def test_a_pod_without_requirements_fits_everywhere() -> None:
    assert fits({}, node())
    assert fits({"affinity": None, "nodeSelector": None, "tolerations": None}, node())
    assert fits({"affinity": {"nodeAffinity": {}, "podAffinity": {}}}, node())


def test_all_labels_of_the_node_selector_must_be_there() -> None:
    assert fits({"nodeSelector": {"a": "1", "b": "2"}}, node(a="1", b="2", c="3"))
    assert not fits({"nodeSelector": {"a": "1", "b": "2"}}, node(a="1"))
    assert not fits({"nodeSelector": {"a": "1"}}, node(a="2"))


@pytest.mark.parametrize(
    ("operator", "values", "fitting"),
    [
        ("In", ["5", "y"], {"5"}),
        ("NotIn", ["5", "x"], {"10", None}),
        ("Exists", [], {"5", "x", "10"}),
        ("DoesNotExist", [], {None}),
        ("Gt", ["5"], {"10"}),
        ("Lt", ["10"], {"5"}),
        ("Gt", ["x"], set()),
        ("Gt", [], set()),
        ("Gt", ["1", "2"], set()),
        ("Lt", ["99999999999999999999999"], set()),
        ("In", [], set()),
    ],
)
def test_operators_match_label_values(operator: str, values: list[str], fitting: set[str | None]) -> None:
    labels: dict[str | None, dict[str, str]] = {"5": {"k": "5"}, "10": {"k": "10"}, "x": {"k": "x"}, None: {}}
    spec = requiring(expression("k", operator, *values))
    assert {value for value, on in labels.items() if fits(spec, node("n", (), **on))} == fitting


@pytest.mark.parametrize("most", [str(2**63 - 1), "0" * 40 + str(2**63 - 1)])
def test_comparisons_are_of_64_bits(most: str) -> None:
    numbers = ["-9223372036854775809", str(-(2**63)), "+7", "00000000000000000000000007", most, str(2**63), "9" * 63]
    texts = ["1_0", " 7", "7 ", "٧", "７", "0x7", "7.0", "--7", "", "1" * 5000]
    fitting = {text for text in (*numbers, *texts) if fits(requiring(expression("k", "Lt", most)), node(k=text))}
    assert fitting == {str(-(2**63)), "+7", "00000000000000000000000007"}
    assert fits(requiring(expression("k", "Gt", str(-(2**63)))), node(k=most))
    for bound in (str(2**63), "-9223372036854775809", *texts):
        assert not any(fits(requiring(expression("k", operator, bound)), node(k="7")) for operator in ("Gt", "Lt"))


def test_terms_are_alternatives_and_their_expressions_hold_together() -> None:
    a, b = expression("a", "Exists"), expression("b", "Exists")
    together = {"matchExpressions": [*a["matchExpressions"], *b["matchExpressions"]]}
    assert fits(requiring(a, b), node(b="1"))
    assert not fits(requiring(together), node(b="1"))
    assert fits(requiring(together), node(a="1", b="1"))


def test_an_empty_term_matches_no_node_and_neither_does_no_term() -> None:
    assert not fits(requiring({}), node())
    assert not fits(requiring(), node())
    assert not fits(requiring(None), node())
    assert fits(requiring({}, expression("a", "DoesNotExist")), node())


def test_fields_select_by_name_as_for_daemon_sets() -> None:
    by_name = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
    assert fits(requiring(by_name), node("n1"))
    assert not fits(requiring(by_name), node("n2"))
    assert not fits(requiring({**by_name, **expression("a", "Exists")}), node("n1"))


def test_node_selector_and_affinity_hold_together() -> None:
    spec = {"nodeSelector": {"a": "1"}, **requiring(expression("b", "Exists"))}
    assert not fits(spec, node(a="1"))
    assert fits(spec, node(a="1", b="1"))


def test_a_pod_that_names_its_node_fits_there_alone() -> None:
    spec = {"nodeName": "n1", "nodeSelector": {"a": "1"}}
    assert fits(spec, node("n1", (Taint(key="k", effect="NoSchedule"),)))
    assert not fits(spec, node("n2", a="1"))


GPU = Taint(key="gpu", value="yes", effect="NoSchedule")


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        ({"key": "gpu", "operator": "Exists"}, True),
        ({"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}, True),
        ({"key": "gpu", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "gpu", "operator": "Equal", "value": "yes"}, True),
        ({"key": "gpu", "value": "yes"}, True),
        ({"key": "gpu", "value": "no"}, False),
        ({"key": "gpu"}, False),
        ({"operator": "Exists"}, True),
        ({"operator": "Exists", "effect": "NoExecute"}, False),
        ({"value": "yes"}, False),
        ({"key": "other", "operator": "Exists"}, False),
        ({"key": "gpu", "operator": "Odd", "value": "yes"}, False),
        (None, False),
    ],
)
def test_tolerations(toleration: Any, tolerated: bool) -> None:
    assert fits({"tolerations": [toleration]}, node("n", (GPU,))) == tolerated


def test_every_repelling_taint_must_be_tolerated() -> None:
    taints = (GPU, Taint(key="own", effect="NoExecute"))
    spec: dict[str, Any] = {"tolerations": [{"key": "gpu", "operator": "Exists"}]}
    assert not fits(spec, node("n", taints))
    spec["tolerations"].append({"key": "own", "operator": "Exists"})
    assert fits(spec, node("n", taints))


def test_a_taint_that_only_prefers_does_not_repel() -> None:
    assert fits({}, node("n", (Taint(key="k", effect="PreferNoSchedule"),)))


KEYS = ("zone", "pool", "size")
NAMES = string.ascii_lowercase
VALUES = ("a", "b", "", "1", "2", "-3", "+4", "05", "99999999999999999999")
TAINTS = [
    Taint(key=key, value=value, effect=effect)
    for key in ("gpu", "own")
    for value in ("", "yes")
    for effect in ("NoSchedule", "NoExecute", "PreferNoSchedule")
]

labels = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES))
taints = st.lists(st.sampled_from(TAINTS), max_size=2).map(tuple)
names = st.sampled_from(NAMES)


def nodes_named(name: str) -> st.SearchStrategy[Node]:
    return st.builds(Node, name=st.just(name), labels=labels, taints=taints)


@st.composite
def clusters(draw: st.DrawFn) -> list[Node]:
    """Up to 30 nodes; now and then two have one name, as a declared node may."""
    chosen = draw(st.lists(names | st.just("1"), max_size=30))
    return [draw(nodes_named(name)) for name in chosen]


expressions = st.fixed_dictionaries(
    {
        "key": st.sampled_from((*KEYS, "none", "metadata.name")),
        "operator": st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]),
        "values": st.lists(st.sampled_from((*VALUES, *NAMES[:6])), max_size=3),
    }
)
some = st.lists(expressions, max_size=2)
terms = st.fixed_dictionaries({"matchExpressions": some, "matchFields": some})
tolerations = st.fixed_dictionaries(
    {},
    optional={
        "key": st.sampled_from(["gpu", "own", ""]),
        "operator": st.sampled_from(["Exists", "Equal", "", "Odd"]),
        "value": st.sampled_from(["yes", ""]),
        "effect": st.sampled_from(["NoSchedule", "NoExecute", "PreferNoSchedule", ""]),
    },
)


@st.composite
def placements(draw: st.DrawFn) -> Placement:
    spec: dict[str, Any] = {"tolerations": draw(st.lists(tolerations, max_size=3))}
    if draw(st.booleans()):
        spec |= requiring(*draw(st.lists(terms, max_size=3)))
    if draw(st.integers(0, 3)) == 0:
        spec["nodeSelector"] = draw(st.dictionaries(st.sampled_from((*KEYS, "none")), st.sampled_from(VALUES)))
    if draw(st.integers(0, 9)) == 0:
        spec["nodeName"] = draw(names)
    return Placement.parse(spec)


@given(clusters(), st.lists(placements(), min_size=1, max_size=8))
def test_an_index_finds_the_nodes_that_a_search_of_all_finds(on: list[Node], wanted: list[Placement]) -> None:
    index = NodeIndex.of(on).with_places()
    for placement in wanted:
        assert reachable_nodes(index, placement) == sorted(one.name for one in on if takes(one, placement))


@given(st.data(), clusters(), st.lists(placements(), min_size=1, max_size=4))
def test_an_updated_index_finds_the_nodes_that_exist(
    data: st.DataObject, on: list[Node], wanted: list[Placement]
) -> None:
    index = NodeIndex.of(on).with_places()
    there = list(on)
    for _ in range(3):
        changes: list[NodeUpdate] = []
        for name in data.draw(st.lists(names, unique=True, max_size=6)):
            old = next((one for one in there if one.name == name), None)
            new = data.draw(st.none() | nodes_named(name))
            if old is not None:
                there.remove(old)
            if new is not None:
                there.append(new)
            changes.append((old, new))
        index = index.after(changes)
        assert sorted(node.name for node in index.nodes.values()) == sorted(node.name for node in there)
        assert index.every.bit_length() <= len(on) + 18
        for placement in wanted:
            assert reachable_nodes(index, placement) == sorted(one.name for one in there if takes(one, placement))
    assert index.places.labels.keys() == {key for one in there for key in one.labels}


@given(st.lists(st.integers(-50, 400), max_size=400), st.integers(-60, 410), st.sampled_from(["Gt", "Lt"]))
def test_a_comparison_does_not_read_every_value_of_a_label(numbers: list[int], bound: int, operator: str) -> None:
    on = [node(f"n{index:03}", number=str(number)) for index, number in enumerate(numbers)]
    placement = Placement.parse(requiring(expression("number", operator, str(bound))))
    assert reachable_nodes(NodeIndex.of(on), placement) == [one.name for one in on if takes(one, placement)]


def test_a_node_that_is_renamed_has_its_new_name() -> None:
    index = NodeIndex.of([node("a")]).after([(node("a"), node("b"))])
    assert reachable_nodes(index, Placement.parse({"nodeName": "b"})) == ["b"]
    assert reachable_nodes(index, Placement.parse({"nodeName": "a"})) == []


def test_a_number_is_reused() -> None:
    index = NodeIndex.of([node("a"), node("b")])
    for name in NAMES[2:]:
        index = index.after([(node("a"), None), (None, node(name))])
        index = index.after([(node(name), None), (None, node("a"))])
    assert set(index.nodes) == {0, 1}


def test_fields_other_than_the_name_are_on_no_node() -> None:
    other = {"key": "metadata.uid", "operator": "DoesNotExist"}
    assert fits(requiring({"matchFields": [other]}), node())
    assert not fits(requiring({"matchFields": [{**other, "operator": "Exists"}]}), node())


def test_taints_are_not_read_for_a_pod_that_matches_no_node() -> None:
    index = NodeIndex.of([node("n", (GPU,))])
    budget = Budget()
    assert matching_nodes(index, Placement.parse({"nodeSelector": {"a": "1"}, **requiring({})}), budget) == 0
    assert units_spent(budget) == 2
