"""Which nodes a pod may run on: as the scheduler's filters have it."""

from typing import Any

import pytest

from rules_engine.model.cluster import Node, Taint
from rules_engine.model.placement import Placement
from rules_engine.model.reading import PodError


def node(name: str = "n", taints: tuple[Taint, ...] = (), **labels: str) -> Node:
    return Node(name=name, labels=labels, taints=taints)


def fits(spec: dict[str, Any], on: Node) -> bool:
    return Placement.parse(spec).matches(on)


def requiring(*terms: Any) -> dict[str, Any]:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return {"affinity": {"nodeAffinity": required}}


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def test_a_pod_that_demands_nothing_fits_everywhere() -> None:
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
def test_operators(operator: str, values: list[str], fitting: set[str | None]) -> None:
    labels: dict[str | None, dict[str, str]] = {"5": {"k": "5"}, "10": {"k": "10"}, "x": {"k": "x"}, None: {}}
    spec = requiring(expression("k", operator, *values))
    assert {value for value, on in labels.items() if fits(spec, node("n", (), **on))} == fitting


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


def test_an_operator_that_does_not_exist_is_an_error_with_its_path() -> None:
    with pytest.raises(PodError) as caught:
        Placement.parse(requiring(expression("a", "Near")))
    assert caught.value.path == (
        "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution"
        "/nodeSelectorTerms/0/matchExpressions/0/operator"
    )
    assert str(caught.value).endswith("must be one of DoesNotExist, Exists, Gt, In, Lt, NotIn")
