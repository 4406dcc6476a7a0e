"""Diagnostics: their findings, what they read, and what they cannot say."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from textwrap import dedent, indent
from typing import cast

import pytest

from rules_engine.language.cel import Type
from rules_engine.language.cel.values.types import ObjectType
from rules_engine.model.kubernetes.cluster_objects import ApiObject, ClusterObjects
from rules_engine.model.kubernetes.kept_fields import Kept
from rules_engine.model.kubernetes.names import ObjectName
from rules_engine.model.kubernetes.removed_values import POD as REMOVED
from rules_engine.model.kubernetes.removed_values import field_paths
from rules_engine.model.rules.finding import Certainty, Finding, FindingSeverity, NotEvaluated, Remedy, Risk
from rules_engine.rules.diagnostic import evaluation as diagnostic_evaluation
from rules_engine.rules.diagnostic.evaluation import (
    MAX_COMMAND,
    MAX_TEXT,
    CompiledDiagnostic,
    Evaluation,
    compile_diagnostics,
    diagnostic_compiler,
    evaluate_diagnostics,
)
from rules_engine.rules.diagnostic.library import POD
from rules_engine.rules.diagnostic.value import Diagnostic
from rules_engine.rules.kinds import compile_rules
from rules_engine.rules.sources.documents import load_documents
from tests.support import api
from tests.support.api import DRIVER, GPU, api_object, cards, cluster, event, node, pod, taint_rule
from tests.support.diagnostics import diagnostic


def every(_: ApiObject) -> bool:
    return True


def run(compiled: CompiledDiagnostic, objects: ClusterObjects) -> Evaluation:
    return evaluate_diagnostics([compiled], objects, every)


def findings(spec: str, objects: ClusterObjects, tmp_path: Path) -> tuple[Finding, ...]:
    evaluation = run(diagnostic(spec, tmp_path), objects)
    assert evaluation.not_evaluated == ()
    return evaluation.findings


def messages(expression: str, objects: ClusterObjects, tmp_path: Path, for_each: str = "Node") -> list[str]:
    """The message of each finding, which is the value of an expression."""
    spec = f"forEach: {for_each}\nmessageExpression: |-\n  string({expression})\n"
    return [finding.message for finding in findings(spec, objects, tmp_path)]


def test_a_finding_has_all_fields_of_its_diagnostic(tmp_path: Path) -> None:
    spec = """
        forEach: Node
        params: {label: nvidia.com/mig.config.state}
        variables: [{name: state, expression: "object.metadata.?labels[?params.label].orValue('')"}]
        when: variables.state == 'pending'
        severity: Error
        certainty: Possible
        reason: MIGLayoutPending
        messageExpression: "'the layout of ' + object.metadata.name + ' is ' + variables.state"
        cause: Pods use the GPUs.
        evidence: ["'state: ' + variables.state", "''", "'at ' + string(now)"]
        onHost: true
        remedies:
          - {text: Wait.}
          - {text: Drain the node., command: "'kubectl drain ' + object.metadata.name", risk: High}
    """
    labels = {"nvidia.com/mig.config.state": "pending"}
    (finding,) = findings(spec, cluster(node("a"), node("b", labels=labels)), tmp_path)
    assert finding == Finding(
        reason="MIGLayoutPending",
        severity=FindingSeverity.ERROR,
        object=ObjectName("Node", "b"),
        message="the layout of b is pending",
        certainty=Certainty.POSSIBLE,
        cause="Pods use the GPUs.",
        evidence=("state: pending", "at 2026-11-23T12:00:00Z"),
        remedies=(Remedy(text="Wait."), Remedy(text="Drain the node.", command="kubectl drain b", risk=Risk.HIGH)),
        on_host=True,
        diagnostic="Diagnostic/one",
        source=finding.source,
    )
    assert str(finding.source).endswith("one.yaml:3:18")


def test_it_is_evaluated_for_the_concerned_objects_of_its_kind(tmp_path: Path) -> None:
    objects = cluster(node("a"), pod("p", {GPU: 1}), pod("q", {GPU: 1}), api_object("DaemonSet", "d", "n"))
    for for_each, names in (
        ("Node", ["Node/a"]),
        ("Pod", ["Pod/ml/p", "Pod/ml/q"]),
        ("DaemonSet", ["DaemonSet/n/d"]),
        ("Cluster", ["Cluster"]),
    ):
        objects_found = [str(finding.object) for finding in findings(f"forEach: {for_each}", objects, tmp_path)]
        assert objects_found == names
    compiled = diagnostic("forEach: Pod", tmp_path)
    evaluation = evaluate_diagnostics([compiled], objects, lambda item: item.name == "q")
    assert [str(finding.object) for finding in evaluation.findings] == ["Pod/ml/q"]


def test_a_taint_of_a_rule_is_one_of_the_devices_that_it_matches(tmp_path: Path) -> None:
    ignored = taint_rule("other", effect="None")
    objects = cluster(node("a"), node("b"), cards("a", 2), cards("b", 1), taint_rule("r", device="gpu-1"), ignored)
    expression = "object.deviceTaints().map(t, [t.device, t.key, t.value, t.effect].join(' ')).join()"
    assert messages(expression, objects, tmp_path) == [f"{DRIVER}/a/gpu-1 drain yes NoSchedule", ""]


def test_diagnostics_are_evaluated_by_name(tmp_path: Path) -> None:
    made = [diagnostic("reason: B", tmp_path, "b").diagnostic, diagnostic("reason: A", tmp_path, "a").diagnostic]
    compiled, _ = compile_diagnostics(made)
    assert [finding.reason for finding in evaluate_diagnostics(compiled, cluster(node()), every).findings] == ["A", "B"]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("object.allocated('nvidia.com/gpu')", "3"),
        ("object.available('nvidia.com/gpu')", "1"),
        ("object.allocated('cpu')", "2"),  # 1500m
        ("object.allocated('example.com/none')", "0"),
        ("object.available('example.com/none')", "0"),
        ("object.pods().size()", "2"),
        ("object.pods().map(p, p.metadata.name).join(' ')", "p q"),
        ("object.events()[0].reason", "SystemOOM"),
        ("object.pods()[0].node().value() == object", "true"),
        ("object.pods()[0].events().size()", "0"),
        ("cluster.allocatable('nvidia.com/gpu')", "4"),
        ("cluster.available('nvidia.com/gpu')", "1"),
        ("cluster.total('nvidia.com/gpu')", "4"),
        ("dyn(object).available('nvidia.com/gpu')", "1"),
        ("dyn(cluster).available('nvidia.com/gpu')", "1"),
        ("dyn(cluster).total('nvidia.com/gpu')", "4"),
        ("dyn(cluster).allocatable('nvidia.com/gpu')", "4"),
        ("object.gpus().?knownFrom.orValue('') + object.gpus().?product.orValue('')", "nvidia.com/gpu"),
        ("object.gpus().optMap(g, g.offered && g.profiles.size() == 0 && g.vendor == '').orValue(false)", "true"),
        ("object.devicePlugins().map(p, p.metadata.name).join(' ')", ""),
        ("object.texts('XidError').size() + object.badConditions().size()", "0"),
        ("cluster.pods.map(p, p.texts('ContainerToolkitFailed').size()).sum()", "0"),
        ("cluster.nodes.size()", "1"),
        ("cluster.pods.filter(p, !p.node().hasValue()).size()", "3"),
        ("cluster.pods.filter(p, !has(p.spec.nodeName)).map(p, p.metadata.name).join(' ')", "r big"),
        ("cluster.daemonSets[0].pods().size()", "1"),
        ("cluster.daemonSets[0].events()[0].reason", "FailedCreate"),
        ("cluster.events.size()", "2"),
        ("cluster.pods.map(p, p.waitingFor().join()).join(',')", ",,,,nvidia.com/gpu,"),
        ("cluster.runtimeClasses.exists(c, c.handler == 'nvidia')", "true"),
        ("cluster.namespaces.map(n, n.metadata.name).join(' ')", "ml"),
        ("now - timestamp(object.metadata.creationTimestamp) > duration('1h')", "true"),
        ("has(cluster.nodes) && cluster.size() == 6 && 'pods' in cluster", "true"),
        ("cluster.all(name, name.size() > 3) && type(cluster) == type(cluster)", "true"),
    ],
)
def test_functions_of_objects(expression: str, expected: str, tmp_path: Path) -> None:
    owners = [{"kind": "Job", "name": "d", "controller": False}, api.reference("DaemonSet", "d")]
    objects = cluster(
        node("worker", {GPU: 4}, metadata={"creationTimestamp": api.ago(hours=2)}),
        pod("p", {GPU: "1", "cpu": "1500m"}, on="worker", metadata={"ownerReferences": owners}),
        pod("q", {GPU: "2"}, on="worker"),
        pod("done", {GPU: 1}, on="worker", phase="Succeeded"),
        pod("r", {GPU: 1}),
        pod("big", {GPU: "2"}),
        pod("lost", {GPU: 1}, on="gone"),
        event(node("worker"), "SystemOOM"),
        event(api_object("DaemonSet", "d", "ml"), "FailedCreate"),
        api_object("DaemonSet", "d", "ml"),
        api_object("RuntimeClass", "nvidia", handler="nvidia"),
        api_object("Namespace", "ml"),
    )
    assert messages(expression, objects, tmp_path) == [expected]


@pytest.mark.parametrize(
    ("expression", "error"),
    [
        ("dyn({}).pods().size()", "no such overload: pods() applied to (map)"),
        ("dyn({}).waitingFor().size()", "no such overload: waitingFor() applied to (map)"),
        ("dyn({}).events().size()", "no such overload: events() applied to (map)"),
        ("dyn({}).node().hasValue()", "no such overload: node() applied to (map)"),
        ("dyn({}).allocated('x')", "no such overload: allocated() applied to (map, string)"),
        ("dyn({}).available('x')", "no such overload: available() applied to (map, string)"),
        ("dyn({}).total('x')", "no such overload: total() applied to (map, string)"),
        ("dyn({}).allocatable('x')", "no such overload: allocatable() applied to (map, string)"),
        ("object.metadata.labels.x", "no such key (.? and [?…] read what may be absent)"),
    ],
)
def test_an_error_is_counted_with_its_first_object(expression: str, error: str, tmp_path: Path) -> None:
    compiled = diagnostic(f'messageExpression: "string({expression})"', tmp_path)
    evaluation = run(compiled, cluster(node("a"), node("b", labels={"x": "y"}), node("c")))
    (failed,) = evaluation.not_evaluated
    assert (failed.diagnostic, failed.first) == ("Diagnostic/one", ObjectName("Node", "a"))
    assert failed.why.endswith(error)
    assert len(evaluation.findings) + failed.objects == 3


def test_a_malformed_pod_waits_for_nothing_that_can_be_evaluated(tmp_path: Path) -> None:
    compiled = diagnostic('forEach: Pod\nmessageExpression: "object.waitingFor().join()"', tmp_path)
    evaluation = run(compiled, cluster(node("a"), pod("p", {"cpu": "much"})))
    (failed,) = evaluation.not_evaluated
    assert "waitingFor() of a pod that cannot be scheduled: /spec/containers/0/resources" in failed.why


def test_conditions_and_texts_of_another_type_are_errors(tmp_path: Path) -> None:
    labelled = cluster(node("a", labels={"x": "y"}))
    for spec, error in (
        ("params: {on: [1]}\nwhen: 'dyn(object.metadata.name)'", "the condition is not a bool"),
        ("messageExpression: 'dyn(object.metadata.labels)'", "the expression is not a string"),
    ):
        (failed,) = run(diagnostic(spec.replace("params: {on: [1]}\n", ""), tmp_path), labelled).not_evaluated
        assert failed.why.endswith(error)


def test_a_kind_that_was_not_read_is_not_treated_as_empty(tmp_path: Path) -> None:
    compiled = diagnostic("when: cluster.daemonSets.size() == 0", tmp_path)
    objects = cluster(node("a"), node("b"), absent=["DaemonSet", "Event"])
    evaluation = run(compiled, objects)
    assert evaluation == Evaluation(
        findings=(),
        not_evaluated=(
            NotEvaluated(diagnostic="Diagnostic/one", why="daemonsets were not read", unread=True, objects=2),
        ),
    )
    assert run(compiled, cluster(node("a"))).findings
    # There is nothing to evaluate in a scope without nodes, but nothing is known of nodes that were not read.
    assert evaluate_diagnostics([compiled], objects, lambda _: False).not_evaluated == ()
    assert run(compiled, cluster(absent=["DaemonSet", "Node"])).not_evaluated[0].objects == 0
    # Without the pods of other namespaces, the pods on a node are unknown, but each pod is known.
    some = ClusterObjects({"Node": [node("a")], "Pod": [pod("p", {GPU: 1}, on="a")]}, partial={"Pod": ""}, now=api.NOW)
    on_node = run(diagnostic("forEach: Node\nwhen: object.pods().size() < 2", tmp_path), some)
    assert (on_node.findings, on_node.not_evaluated[0].why) == ((), "pods of other namespaces were not read")
    assert run(diagnostic("forEach: Pod\nwhen: object.node().hasValue()", tmp_path), some).findings
    # Evidence may be incomplete, and is not made up.
    told = diagnostic(
        "evidence: ['string(object.events().size())', object.metadata.name, string(cluster.daemonSets.size())]",
        tmp_path,
    )
    assert [finding.evidence for finding in run(told, cluster(node("a"), absent=["DaemonSet"])).findings] == [
        ("0", "a", "daemonsets were not read")
    ]


def test_a_case_of_the_entry_gives_cause_and_remedies(tmp_path: Path) -> None:
    spec = """
        forEach: Pod
        reason: ContainerToolkitFailed
        case: object.metadata.name
        slots: {node: "'n'"}
    """
    compiled = written(spec, tmp_path)
    evaluation = run(compiled, cluster(pod("CDIDeviceMissing"), pod("unknown")))
    (finding,) = evaluation.findings
    assert "CDI" in finding.message + finding.cause
    assert [remedy.risk for remedy in finding.remedies] == [Risk.NONE, Risk.MEDIUM]
    (failed,) = evaluation.not_evaluated
    assert failed.why.endswith("the finding ContainerToolkitFailed has no case of this name")


def test_texts_of_a_diagnostic_win_over_those_of_a_case(tmp_path: Path) -> None:
    spec = """
        forEach: Pod
        reason: ContainerToolkitFailed
        case: object.metadata.name
        message: mine
        cause: Mine.
        remedies: [{text: Mine.}]
    """
    (finding,) = run(written(spec, tmp_path), cluster(pod("CDIDeviceMissing"))).findings
    assert (finding.message, finding.cause, [each.text for each in finding.remedies]) == ("mine", "Mine.", ["Mine."])


def written(spec: str, tmp_path: Path) -> CompiledDiagnostic:
    """Return a Diagnostic of no more than these fields and a condition that is true."""
    head = "apiVersion: gpurules.io/v1\nkind: Diagnostic\nmetadata: {name: one}\nspec:\n  when: 'true'\n"
    file = tmp_path / "written.yaml"
    file.write_text(head + indent(dedent(spec), "  "))
    loaded = load_documents([file])
    (compiled,), problems = compile_diagnostics(loaded.of(Diagnostic))
    assert (loaded.problems, problems) == ((), ())
    return compiled


def test_over_its_budget_a_diagnostic_is_not_evaluated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnostic_evaluation, "DIAGNOSTIC_COST", 1_000)
    compiled = diagnostic("forEach: Node\nwhen: cluster.nodes.filter(n, n == object).size() == 1", tmp_path)
    cheap = diagnostic("forEach: Node\nwhen: object.metadata.name == 'n1'", tmp_path, "two")
    evaluation = evaluate_diagnostics([compiled, cheap], cluster(*(node(f"n{index}") for index in range(100))), every)
    (failed,) = evaluation.not_evaluated
    assert failed.why.endswith("the cost limit of 1000 for one Diagnostic is used up")
    first = len(evaluation.findings) - 1  # findings until then remain
    assert (failed.objects, failed.first) == (100 - first, ObjectName("Node", f"n{first}"))
    assert evaluation.findings[-1].diagnostic == "Diagnostic/two"


def test_a_result_that_is_too_large_fails_for_its_object_alone(tmp_path: Path) -> None:
    long = node("long", metadata={"annotations": {"x": "y" * 90_000}})
    expression = "object.metadata.?annotations.x.orValue('z').replace('', '0123456789012').size() > 0"
    evaluation = run(diagnostic(f"when: {expression}", tmp_path), cluster(long, node("short")))
    assert [finding.object.name for finding in evaluation.findings] == ["short"]
    assert [failed.first for failed in evaluation.not_evaluated] == [ObjectName("Node", "long")]


def test_texts_are_bounded_and_commands_are_never_cut(tmp_path: Path) -> None:
    objects = cluster(node(labels={"x": "y" * (MAX_COMMAND + 1)}))
    text = "object.metadata.labels.x"
    (finding,) = findings(f"messageExpression: {text}\nevidence: [{text}]", objects, tmp_path)
    assert finding.message == finding.evidence[0] == "y" * MAX_TEXT + "…"
    (failed,) = run(diagnostic(f"remedies: [{{text: Run., command: {text}}}]", tmp_path), objects).not_evaluated
    assert failed.why.endswith(f"the command has more than {MAX_COMMAND} characters")


def test_no_expression_has_a_field_for_a_value_that_is_removed() -> None:
    for *parents, field in field_paths(cast("Mapping[str, Kept]", REMOVED)).values():
        shape: Type = POD
        for name in parents:
            shape = cast("ObjectType", shape).fields[name]
            while shape.name == "list":
                (shape,) = shape.parameters
        assert not isinstance(shape, ObjectType) or field not in shape.fields, field


def problems(spec: str, tmp_path: Path) -> list[str]:
    file = tmp_path / "wrong.yaml"
    file.write_text(f"apiVersion: gpurules.io/v1\nkind: Diagnostic\nmetadata: {{name: one}}\nspec: {spec}\n")
    loaded = load_documents([file])
    _, problems_found = compile_diagnostics((*loaded.of(Diagnostic), *loaded.of(Diagnostic, valid=False)))
    return [f"{problem.code}: {problem.message}" for problem in (*loaded.problems, *problems_found)]


SPEC = "{forEach: Pod, when: 'true', severity: Error, reason: R, messageExpression: \"'x'\""


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("evidence: ['1']", ["cel-result-type: the expression must be string, not int (write string(…))"]),
        (
            "remedies: [{text: Run., command: nothing}]",
            ["cel-undeclared: command is an expression, and its text needs quotes: write \"'nothing'\""],
        ),
        (
            "remedies: [{text: Run., command: kubectl drain x}]",
            ["cel-syntax: command is an expression, and its text needs quotes: write \"'kubectl drain x'\""],
        ),
        (
            "remedies: [{text: Run., command: echo 'a b'}]",
            ["cel-syntax: command is an expression, and its text needs quotes"],
        ),
        (
            "remedies: [{text: Run., command: object.metadata.nam}]",
            ["cel-field: ObjectMeta has no field 'nam' (did you mean 'name'?)"],
        ),
        ("evidence: ['object.spec.containers[0].env[0].value']", ["cel-field: EnvVar has no field 'value'"]),
        ("evidence: ['object.spec.containers[0].args.join()']", ["cel-field: Container has no field 'args'"]),
        (
            "evidence: ['string(object.spec.containers[0].envFrom.size())']",
            ["cel-field: Container has no field 'envFrom' (did you mean 'env'?)"],
        ),
        (
            "evidence: ['string(object.pods().size())']",
            ["cel-type: there is no Pod.pods(), only DaemonSet.pods(), Node.pods()"],
        ),
        ("evidence: [request.namespace]", ["cel-undeclared: undeclared reference to 'request'"]),
        ("mode: Audit", ["unknown-field: Diagnostic spec has no field 'mode'"]),
        ("certainty: Sure", ["wrong-value: 'Sure' is not one of Certain, Possible"]),
        ("remedies: [{command: a.b}]", ["missing-field: remedy needs 'text'"]),
        ("onHost: true", ["missing-command: no remedy has a command that looks on the node"]),
        ("onHost: true, remedies: [{text: Look., command: object.metadata.name}]", []),
    ],
)
def test_problems_of_a_diagnostic(more: str, expected: list[str], tmp_path: Path) -> None:
    assert problems(f"{SPEC}, {more}}}", tmp_path) == expected


def test_the_expressions_of_a_diagnostic_with_errors_are_checked(tmp_path: Path) -> None:
    wrong = SPEC.replace("'true'", "object.x == 1").replace("\"'x'\"", "object.y")
    assert problems(f"{wrong}, mode: Audit, evidence: [object.z]}}", tmp_path) == [
        "unknown-field: Diagnostic spec has no field 'mode'",
        "cel-field: Pod has no field 'x'",
        "cel-field: Pod has no field 'y'",
        "cel-field: Pod has no field 'z'",
    ]
    assert sorted(problems("{when: object.x}", tmp_path)) == [
        f"missing-field: Diagnostic spec needs '{name}'" for name in ("forEach", "reason")
    ]


@pytest.mark.parametrize(
    ("fields", "messages"),
    [
        ("message: fixed", ["fixed", "fixed"]),
        ("message: fixed\nmessageExpression: object.metadata.?labels.x.orValue('')", ["fixed", "y"]),
        ("message: fixed\nmessageExpression: object.metadata.labels.x", ["fixed", "y"]),
        ("messageExpression: object.metadata.labels.x", ["y"]),
    ],
)
def test_a_message_stands_in_for_an_expression_that_is_empty_or_fails(
    fields: str, messages: list[str], tmp_path: Path
) -> None:
    objects = cluster(node("a"), node("b", labels={"x": "y"}))
    assert [finding.message for finding in run(diagnostic(fields, tmp_path), objects).findings] == messages


def test_advice_is_the_same_as_for_rules(tmp_path: Path) -> None:
    spec = "params: {unused: 1}\nvariables: [{name: also, expression: '1'}]\nwhen: 1 == 1"
    _, warnings = compile_diagnostics(
        [diagnostic(spec, tmp_path).diagnostic], partial(diagnostic_compiler, advice=True)
    )
    assert [problem.code for problem in warnings] == ["constant-condition", "unused-variable", "unused-param"]
    assert "it is found for every object" in warnings[0].message


def test_the_functions_and_lists_do_not_exist_at_admission(tmp_path: Path) -> None:
    file = tmp_path / "rule.yaml"
    for expression in ("object.node().hasValue()", "cluster.nodes.size() > 0", "now > timestamp(0)"):
        file.write_text(
            "apiVersion: gpurules.io/v1\nkind: Validation\nmetadata: {name: one}\n"
            f"spec: {{validations: [{{expression: {expression}}}]}}\n"
        )
        _, warnings = compile_rules(load_documents([file]).rules)
        assert len(warnings) == 1, expression
