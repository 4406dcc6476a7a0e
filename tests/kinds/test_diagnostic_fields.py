"""The members that Diagnostics read: with them alone, their results are the same."""

import json
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from rules_engine.diagnosis.diagnostic import (
    CompiledDiagnostic,
    Diagnostic,
    compile_diagnostics,
    evaluate_diagnostics,
    fields_of_diagnostics,
)
from rules_engine.diagnosis.reading.reduction import Reducer
from rules_engine.documents.registry import load_documents
from rules_engine.model.kubernetes.cluster_objects import ClusterObjects
from rules_engine.model.kubernetes.kept_fields import Kept, merge_fields
from rules_engine.scheduling import FIELDS_READ
from tests.support.api import GPU, NOW, api_object, by_kind, event, node, pod
from tests.support.diagnostics import diagnostic
from tests.support.documents import REPOSITORY

NAMES: Kept = {"metadata": {"name": None, "namespace": None}}
EVENTS: Kept = {"involvedObject": {"kind": None, "namespace": None, "name": None, "uid": None}}


def nested(*path: str) -> Kept:
    """Return a tree of one member."""
    fields: Kept = None
    for name in reversed(path):
        fields = {name: fields}
    return fields


def with_names(*kept: Kept) -> Kept:
    fields = NAMES
    for other in kept:
        fields = merge_fields(fields, other)
    return fields


def kept(expression: str, tmp_path: Path, for_each: str = "Node", variables: str = "[]") -> Mapping[str, Kept]:
    spec = f"forEach: {for_each}\nvariables: {variables}\nwhen: |-\n  {expression}\n"
    return fields_of_diagnostics([diagnostic(spec, tmp_path)])


CONDITION = ("status", "conditions")
CONTAINERS = ("spec", "containers")

OF_PODS: list[tuple[str, Kept]] = [
    ("object.metadata.name == 'x'", {}),
    ("object.metadata.labels['a'] == 'x'", nested("metadata", "labels", "a")),
    ("object.metadata.labels[object.metadata.name] == 'x'", nested("metadata", "labels")),
    ("has(object.metadata.labels.a)", nested("metadata", "labels", "a")),
    ("has(object.metadata.labels)", {"metadata": {"labels": {}}}),
    ("object.metadata.?labels.optMap(l, true).orValue(false)", {"metadata": {"labels": {}}}),
    ("object.spec.?initContainers.optMap(c, true).orValue(false)", {"spec": {"initContainers": {}}}),
    ("cel.bind(c, object.spec.initContainers, true)", {"spec": {"initContainers": {}}}),
    ("optional.of(cluster).hasValue()", {}),
    ("'a' in object.metadata.labels", nested("metadata", "labels", "a")),
    ("object.metadata.labels.exists(k, k == 'a')", nested("metadata", "labels")),
    ("object.metadata.labels.exists(k, v, v == 'a')", nested("metadata", "labels")),
    ("object.metadata.?labels[?'a'].orValue('') == 'x'", nested("metadata", "labels", "a")),
    ("has(object.status)", {"status": {}}),
    ("has(object.status.conditions)", {"status": {"conditions": {}}}),
    ("has(object.status.phase)", nested("status", "phase")),
    ("object.status.conditions.size() > 1", {"status": {"conditions": {}}}),
    ("size(object.status.conditions) > 1", {"status": {"conditions": {}}}),
    ("object.status.?conditions.hasValue()", {"status": {"conditions": {}}}),
    ("object.status.phase.size() > 1", nested("status", "phase")),
    ("object.status.conditions.exists(c, c.type == 'Ready')", nested(*CONDITION, "type")),
    ("object.status.conditions.exists(i, c, i > 0 && c.type == 'Ready')", nested(*CONDITION, "type")),
    ("object.status.conditions[0].type == 'x'", nested(*CONDITION, "type")),
    ("object.status.conditions.first().value().type == 'x'", nested(*CONDITION, "type")),
    ("object.status.conditions.filter(c, c.type == 'x')[0].status == 'y'",
     merge_fields(nested(*CONDITION, "type"), nested(*CONDITION, "status"))),
    ("object.status.conditions.sortBy(c, c.type)[0].status == 'y'",
     merge_fields(nested(*CONDITION, "type"), nested(*CONDITION, "status"))),
    ("object.status.conditions.map(c, c.reason).exists(r, r == 'x')", nested(*CONDITION, "reason")),
    ("object.status.conditions.map(c, c.type == 'x', c.reason)[0] == 'y'",
     merge_fields(nested(*CONDITION, "type"), nested(*CONDITION, "reason"))),
    ("object.status.conditions.transformList(i, c, c.reason)[0] == 'y'", nested(*CONDITION, "reason")),
    ("object.status.conditions.transformMap(i, c, c.reason)[0] == 'y'", nested(*CONDITION, "reason")),
    ("object.status.conditions.exists(c, c == c)", nested(*CONDITION)),
    ("object.status.conditions.all(c, c.all(k, k != 'x'))", nested(*CONDITION)),
    ("object.status.conditions.slice(0, 1)[0].type == 'x'", nested(*CONDITION)),
    ("(object.spec.containers + object.spec.?initContainers.orValue([])).exists(c, c.image == 'x')",
     merge_fields(nested(*CONTAINERS, "image"), nested("spec", "initContainers", "image"))),
    ("[object.spec.containers, object.spec.?initContainers.orValue([])][0][0].image == 'x'",
     merge_fields(nested(*CONTAINERS, "image"), nested("spec", "initContainers", "image"))),
    ("[object.spec.containers[0]][0].image == 'x'", nested(*CONTAINERS, "image")),
    ("{'a': object.spec.containers[0]}.a.image == 'x'", nested(*CONTAINERS)),
    ("[object.spec.containers, object.spec.containers.map(c, c.?ports.orValue([]))] == []", nested(*CONTAINERS)),
    ("dyn(object.spec.containers).image == 'x'", nested(*CONTAINERS)),
    ("(object.spec.nodeName == '' ? object.spec.containers : object.spec.initContainers)[0].image == 'x'",
     merge_fields(nested("spec", "nodeName"),
            merge_fields(nested(*CONTAINERS, "image"), nested("spec", "initContainers", "image")))),
    ("(object.spec.priority > 9 ? object.spec.containers : dyn(0)).image == 'x'",
     merge_fields(nested("spec", "priority"), nested(*CONTAINERS))),
    ("cel.bind(c, object.spec.containers, c[0].image == 'x')", nested(*CONTAINERS, "image")),
    ("object.spec.?initContainers.optMap(c, c[0].image).orValue('') == 'x'", nested("spec", "initContainers", "image")),
    ("optional.of(object.spec.containers).value()[0].image == 'x'", nested(*CONTAINERS, "image")),
    ("[object.spec.?containers].unwrapOpt()[0][0].image == 'x'", nested(*CONTAINERS, "image")),
    ("math.greatest(object.spec.priority, 1) > 0", nested("spec", "priority")),
    ("object.spec.containers[0].resources.limits['nvidia.com/gpu'] == '1'",
     nested(*CONTAINERS, "resources", "limits", "nvidia.com/gpu")),
    ("object.spec.containers[0].env.exists(e, e.name == 'x')", nested(*CONTAINERS, "env", "name")),
]  # fmt: skip


@pytest.mark.parametrize(("expression", "expected"), OF_PODS, ids=[expression for expression, _ in OF_PODS])
def test_members_of_a_pod(expression: str, expected: Kept, tmp_path: Path) -> None:
    assert kept(expression, tmp_path, "Pod") == {"Pod": with_names(expected)}


def test_a_whole_object_is_kept(tmp_path: Path) -> None:
    assert kept("object == object", tmp_path, "Pod") == {"Pod": None}
    assert kept("cluster.nodes == []", tmp_path, "Cluster") == {"Node": None}
    assert kept("cluster.nodes.size() > 0", tmp_path, "Cluster") == {"Node": NAMES}
    every = dict.fromkeys(("Node", "Pod", "DaemonSet", "Event", "RuntimeClass", "Namespace"))
    for expression in ("object == cluster", "cluster.exists(k, k == 'x')", "cluster[string(now)].size() > 0"):
        assert kept(expression, tmp_path, "Cluster") == every


def test_members_that_variables_read_are_kept(tmp_path: Path) -> None:
    variables = "[{name: labels, expression: object.metadata.labels}, {name: own, expression: object.spec}]"
    path = "variables.labels.a == 'x'"
    assert kept(path, tmp_path, "Pod", variables) == {"Pod": with_names(nested("metadata", "labels", "a"))}
    both = with_names(nested("metadata", "labels"), nested("spec"))
    assert kept("variables == {}", tmp_path, "Pod", variables) == {"Pod": both}


def test_functions_keep_what_they_read(tmp_path: Path) -> None:
    node_name = nested("spec", "nodeName")
    bound = merge_fields(merge_fields(node_name, nested("status", "phase")), nested("metadata", "ownerReferences"))
    assert kept("object.node().value().metadata.name == 'x'", tmp_path, "Pod") == {
        "Node": NAMES,
        "Pod": with_names(node_name),
    }
    assert kept("object.pods()[0].spec.priority > 1", tmp_path) == {
        "Node": NAMES,
        "Pod": with_names(bound, nested("spec", "priority")),
    }
    assert kept("object.events()[0].reason == 'x'", tmp_path) == {
        "Node": NAMES,
        "Event": with_names(EVENTS, nested("reason")),
    }
    amounts = kept("object.allocated('nvidia.com/gpu') > 0", tmp_path)
    assert amounts["Node"] == with_names(nested("status", "allocatable"))
    assert kept("cluster.total(string(now)) > 0", tmp_path, "Cluster") == amounts
    assert kept("object.waitingFor().size() > 0", tmp_path, "Pod") == {
        kind: with_names(fields) for kind, fields in FIELDS_READ.items()
    }


def test_members_that_no_condition_needs_may_be_absent(tmp_path: Path) -> None:
    compiled = diagnostic("forEach: Pod\nwhen: object.waitingFor().size() > 0\nevidence: ['string(now)']", tmp_path)
    assert compiled.needs == {"Node", "Pod"}
    told = diagnostic("evidence: ['string(cluster.events.size())']", tmp_path)
    assert told.needs == {"Node"}
    assert "Event" in told.kept


def objects() -> list[dict[str, Any]]:
    """Objects with many members."""
    labels = {"a": "x", "team": "ml"}
    rich = pod(
        "p", {GPU: "2", "cpu": "1500m"}, on="worker", labels=labels, namespace="gpu", owner=("DaemonSet", "plugin")
    )
    rich["spec"] |= {
        "initContainers": [{"name": "init", "image": "x", "restartPolicy": "Always"}],
        "priority": 3,
        "tolerations": [{"operator": "Exists"}],
        "overhead": {"cpu": "100m"},
    }
    rich["spec"]["containers"][0] |= {"image": "x", "env": [{"name": "x", "value": "secret"}], "args": ["a", "b"]}
    rich["status"]["conditions"] = [
        {"type": "Ready", "status": "True", "reason": "x"},
        {"type": "x", "status": "y", "reason": "y"},
    ]
    waiting = pod("waiting", {GPU: "3"}, labels={"a": "y"})
    waiting["spec"]["nodeSelector"] = {"pool": "a"}
    spare = node("worker", labels={"pool": "a", "kubernetes.io/hostname": "worker"})
    spare["status"]["capacity"] = {GPU: "8"}
    return [
        spare,
        node("other", {"cpu": "4"}, labels=labels),
        rich,
        waiting,
        api_object("DaemonSet", "plugin", "gpu"),
        event(node("worker"), "SystemOOM"),
        event(api_object("Pod", "p", "gpu"), "x"),
        api_object("RuntimeClass", "nvidia", handler="nvidia"),
        api_object("Namespace", "ml", metadata={"labels": labels}),
    ]


def read(kept_members: Mapping[str, Kept] | None) -> ClusterObjects:
    """Return the objects of a cluster: whole, or only with some members."""
    found = by_kind(*deepcopy(objects()))
    if kept_members is None:
        return ClusterObjects(found, now=NOW)
    reducers = {kind: Reducer(kind, kept_members.get(kind, {})) for kind in found}
    return ClusterObjects(
        {kind: [reducers[kind].decode(json.dumps(each)) for each in found[kind]] for kind in found}, now=NOW
    )


def assert_same(compiled: CompiledDiagnostic) -> None:
    whole, reduced = (
        evaluate_diagnostics([compiled], read(members), lambda _: True)
        for members in (None, fields_of_diagnostics([compiled]))
    )
    assert whole == reduced


FUNCTIONS = [
    "object.waitingFor() == ['nvidia.com/gpu']",
    "object.node().?metadata.name.orValue('') == 'worker'",
    "object.node().?status.?capacity[?'nvidia.com/gpu'].orValue('') == '8'",
    "object.events().exists(e, e.reason == 'x')",
    "cluster.nodes.exists(n, n.allocated('cpu') == 2 && n.available('nvidia.com/gpu') == 2)",
    "cluster.nodes.exists(n, n.pods().exists(p, p.spec.priority == 3))",
    "cluster.daemonSets[0].pods()[0].metadata.labels.a == 'x'",
    "cluster.available('nvidia.com/gpu') == 2",
    "cluster.events.exists(e, e.involvedObject.name == 'worker')",
    "cluster.runtimeClasses.exists(c, c.handler == 'nvidia')",
    "cluster.namespaces.exists(n, n.metadata.labels.team == 'ml')",
    "cluster.pods.filter(p, p.spec.containers.exists(c, has(c.image)))[0] == object",
]


@pytest.mark.parametrize("expression", [*(expression for expression, _ in OF_PODS), *FUNCTIONS])
def test_results_are_the_same_with_the_kept_members_alone(expression: str, tmp_path: Path) -> None:
    for negated in ("", "!"):
        assert_same(diagnostic(f"forEach: Pod\nwhen: |-\n  {negated}({expression})\n", tmp_path))


def test_packaged_diagnostics_find_the_same_with_the_kept_members_alone() -> None:
    compiled, _ = compile_diagnostics(load_documents([REPOSITORY / "rules" / "diagnostics"]).of(Diagnostic))
    assert compiled
    for packaged in compiled:
        assert_same(packaged)
