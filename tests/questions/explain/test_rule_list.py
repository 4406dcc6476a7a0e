"""`gpu-rules list`: rules and their digest, or what applies in a namespace, each value with its place."""

import json
from pathlib import Path
from typing import Any

import pytest

from rules_engine.model.kubernetes.cluster import Cluster
from rules_engine.model.rules.admission import pod_request
from rules_engine.model.rules.rule import ConditionKind, LabelRequirement, LabelSelector
from rules_engine.questions.explain.rule_list import list_rules
from rules_engine.rules.sources.documents import load_documents
from rules_engine.rules.sources.rule_files import read_rules
from tests.support.authoring import cli, injection, ladder, place, validation, write
from tests.support.diagnostics import document
from tests.support.loading import rule

GPU = "nvidia.com/gpu"


def rules(folder: Path) -> Path:
    files = {
        "a.yaml": validation("v", "'true'", mode="Audit"),
        "b.yaml": f"{ladder('second', GPU)}---\n{ladder('first', GPU, mode='Off', priority='7')}",
        "c.yaml": injection("i"),
    }
    return write(folder, files)


def test_rules_are_listed_by_kind_in_order_of_evaluation(tmp_path: Path) -> None:
    folder = rules(tmp_path)
    result = cli("list", folder)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert [line.split() for line in lines[:-1]] == [
        ["KIND", "NAME", "MODE", "PRIORITY", "PLACE"],
        ["FallbackLadder", "first", "Off", "7", f"{folder}/b.yaml:10:18"],
        ["FallbackLadder", "second", "Enforce", "0", f"{folder}/b.yaml:3:18"],
        ["ResourceInjection", "i", "Enforce", "0", f"{folder}/c.yaml:3:18"],
        ["Validation", "v", "Audit", "0", f"{folder}/a.yaml:3:18"],
    ]
    assert lines[-1] == f"digest {load_documents([folder]).digest}"


def test_diagnostics_are_listed_after_the_rules_and_are_not_in_the_digest(tmp_path: Path) -> None:
    folder = rules(tmp_path)
    digest = load_documents([folder]).digest
    (folder / "d.yaml").write_text(document("severity: Info\nreason: NodeCordoned", "cordoned"))
    *_, diagnostic, last = cli("list", folder).stdout.splitlines()
    assert diagnostic.split() == ["Diagnostic", "cordoned", "-", "-", f"{folder}/d.yaml:3:18"]
    assert last == f"digest {digest}"
    (found,) = json.loads(cli("list", "--output", "json", folder / "d.yaml").stdout)["diagnostics"]
    assert (found["name"], found["source"]) == ("cordoned", place(f"{folder}/d.yaml:3:18"))


def test_diagnostics_with_errors_are_not_listed(tmp_path: Path) -> None:
    (tmp_path / "d.yaml").write_text(document("when: object.spec.?unschedulabel.orValue(false)"))
    result = cli("list", tmp_path)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "[cel-field]" in result.stderr


def test_files_without_rules_fail(tmp_path: Path) -> None:
    folder = write(tmp_path, {"pod.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n"})
    result = cli("list", folder)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"{folder}:1:1: error: no rule found [no-rules]\n"


def test_standard_input_is_read() -> None:
    result = cli("list", "-", stdin=ladder("a", "nvidia.com/gpu"))
    assert "<stdin>:3:18" in result.stdout
    assert result.exit_code == 0


INJECTION = """\
apiVersion: gpurules.io/v1
kind: ResourceInjection
metadata: {name: v100}
spec:
  coefficients: {cpu: 4000m, memory: 8Gi}
  annotations: {net: eni}
  namespaces:
    replaces: {coefficients: {cpu: 6000m, x.y/shm: 1}}
    inherits:
      inherit: Merge
      coefficients: {memory: 4Gi}
    sandbox: {}
"""
CLUSTER = rule("ClusterInventory", "{nodes: [], namespaces: {ml: {team: ml}}}", "site")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(write(tmp_path, {"rules/injection.yaml": INJECTION, "cluster.yaml": CLUSTER}))
    return tmp_path


def shown(*arguments: str) -> Any:
    """Return the answer about a namespace."""
    result = cli("list", "rules", *arguments, "--output", "json")
    assert (result.stderr, result.exit_code) == ("", 0)
    return json.loads(result.stdout)


def settings(view: Any, rule: int = 0) -> dict[str, Any]:
    return {setting["name"]: setting for setting in view["rules"][rule]["settings"]}


def values(view: Any, rule: int = 0) -> dict[str, Any]:
    return {name: setting["value"] for name, setting in settings(view, rule).items()}


def test_the_entry_of_a_namespace_overrides_the_default_and_removes_what_it_does_not_name(folder: Path) -> None:
    result = cli("list", "-n", "replaces", "rules")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("namespace replaces, any namespace labels, any pod labels\n└── mutate\n")
    for line in (
        "entry: namespaces.replaces  rules/injection.yaml:8:5, overrides default  rules/injection.yaml:5:3\n",
        "coefficients.x.y/shm: 1  rules/injection.yaml:8:43\n",
        "coefficients.memory: none  rules/injection.yaml:8:5, overrides 8Gi  rules/injection.yaml:5:30\n",
        "annotations.net: none  rules/injection.yaml:8:5, overrides eni  rules/injection.yaml:6:17\n",
    ):
        assert f"├── {line}" in result.stdout


def test_an_entry_that_inherits_merges_the_default_by_name(folder: Path) -> None:
    by_name = settings(shown("-n", "inherits"))
    assert by_name["coefficients.cpu"] == {
        "name": "coefficients.cpu",
        "value": "4",
        "field": "coefficients.cpu",
        "source": place("rules/injection.yaml:5:18"),
        "inherited": True,
        "overrides": None,
    }
    memory = by_name["coefficients.memory"]
    assert (memory["value"], memory["field"]) == ("4Gi", "namespaces.inherits.coefficients.memory")
    assert memory["source"] == place("rules/injection.yaml:11:22")
    assert (memory["overrides"]["value"], memory["overrides"]["source"]) == ("8Gi", place("rules/injection.yaml:5:30"))
    assert (by_name["annotations.net"]["value"], by_name["annotations.net"]["inherited"]) == ("eni", True)
    text = cli("list", "-n", "inherits", "rules").stdout
    assert "coefficients.cpu: 4  rules/injection.yaml:5:18 (inherited)\n" in text


def test_an_empty_entry_removes_all_and_other_namespaces_have_the_default(folder: Path) -> None:
    sandbox = values(shown("-n", "sandbox"))
    assert [sandbox[name] for name in ("coefficients.cpu", "coefficients.memory", "annotations.net")] == [None] * 3
    other = settings(shown("-n", "other"))
    assert (other["entry"]["value"], other["entry"]["overrides"]) == ("default", None)
    assert (other["coefficients.cpu"]["value"], other["coefficients.cpu"]["inherited"]) == ("4", False)


def test_an_entry_without_a_default_overrides_nothing(folder: Path) -> None:
    only = "  namespaces: {ml: {coefficients: {cpu: 1}}}\n"
    write(folder, {"rules/injection.yaml": INJECTION.partition("  coefficients")[0] + only})
    by_name = settings(shown("-n", "ml"))
    assert (by_name["entry"]["overrides"], by_name["coefficients.cpu"]["overrides"]) == (None, None)


def test_every_field_of_a_rule_has_its_place_or_is_a_default(folder: Path) -> None:
    first = "{resource: x.y/a, weight: 2}"
    second = "{resource: x.y/b, weight: 1, assume: true, when: \"params.team == 'ml'\"}"
    write(
        folder,
        {
            "rules/injection.yaml": ladder(
                "mig",
                first,
                second,
                direction="Up",
                params="{team: ml}",
                nodes="{selector: {matchLabels: {pool: a}}, require: [Schedulable, Ready]}",
                match="{excludeNamespaces: [x-*], objectSelector: {matchExpressions: [{key: a, operator: Exists}]}}",
                variables='[{name: team, expression: "params.team"}]',
                matchConditions="[{name: ml, expression: \"variables.team != 'x'\"}]",
            )
        },
    )
    view = shown("-n", "ml")
    by_name = settings(view)
    assert values(view) == {
        "match.namespaces": ["*"],
        "match.excludeNamespaces": ["x-*"],
        "match.objectSelector": "a",
        "mode": "Enforce",
        "priority": 0,
        "failurePolicy": "Fail",
        "optOut": "Allowed",
        "params.team": "ml",
        "variables.team": "params.team",
        "matchConditions.ml": "variables.team != 'x'",
        "offered": "Allocatable",
        "direction": "Up",
        "counts": "Keep",
        "whenExhausted": "Keep",
        "unplaced": "Ignore",
        "queued": "Ignore",
        "annotation": "gpurules.io/fallback",
        "rungs[0]": "x.y/a",
        "rungs[0].weight": 2,
        "rungs[1]": "x.y/b",
        "rungs[1].weight": 1,
        "rungs[1].when": "params.team == 'ml'",
        "rungs[1].assume": True,
        "nodes.selector": "pool in (a)",
        "nodes.require": ["Ready", "Schedulable"],
    }
    assert {name for name, setting in by_name.items() if setting["source"] is None} == {
        "match.namespaces",
        "mode",
        "priority",
        "failurePolicy",
        "optOut",
        "offered",
        "counts",
        "whenExhausted",
        "unplaced",
        "queued",
        "annotation",
    }
    assert by_name["rungs[1]"]["source"] == place("rules/injection.yaml:7:18")
    lines = (folder / "rules/injection.yaml").read_text().splitlines()
    for name, setting in by_name.items():
        if setting["source"] is not None:
            line, column = setting["source"]["line"], setting["source"]["column"]
            field = name.rpartition(".")[2]
            value = {"rungs[0]": "x.y/a", "rungs[1]": "x.y/b", "variables.team": "params.team"}.get(name, field)
            expression = values(view)[name] if field in ("when", "ml") else value
            assert lines[line - 1][column - 1 :].startswith(expression)


def test_the_parts_of_rungs_and_checks_have_their_own_lines(folder: Path) -> None:
    rungs = ladder("mig", "{resource: x.y/a,\n       weight: 2}", "{resource: x.y/b,\n       assume: true}")
    check = validation("named", "'true'") + "      message: m\n      reason: Invalid\n"
    write(folder, {"rules/injection.yaml": f"{rungs}---\n{check}"})
    view = shown("-n", "ml")
    by_name = settings(view) | settings(view, 1)
    parts = ("rungs[0].weight", "rungs[1].assume", "validations[0].message", "validations[0].reason")
    places = [(by_name[name]["source"]["line"], by_name[name]["source"]["column"]) for name in parts]
    assert places == [(7, 8), (9, 8), (17, 7), (18, 7)]


def test_the_checks_of_a_validation_have_their_messages(folder: Path) -> None:
    more = "      message: m\n      messageExpression: \"'x'\"\n      reason: Forbidden\n    - expression: 'false'\n"
    rule = validation("named", '"has(object.metadata.name)"') + more + "  description: Names.\n"
    write(folder, {"rules/injection.yaml": rule})
    view = shown("-n", "ml")
    assert (view["rules"][0]["endpoint"], view["rules"][0]["description"]) == ("validate", "Names.")
    by_name = values(view)
    assert [(name, by_name[name]) for name in by_name if name.startswith("validation")] == [
        ("validationActions", ["Deny"]),
        ("validations[0].expression", "has(object.metadata.name)"),
        ("validations[0].message", "m"),
        ("validations[0].messageExpression", "'x'"),
        ("validations[0].reason", "Forbidden"),
        ("validations[1].expression", "false"),
    ]


def test_expressions_have_the_fields_that_explain_names(folder: Path) -> None:
    expression = "object.metadata.name == ''"
    common = {
        "variables": f'[{{name: empty, expression: "{expression}"}}]',
        "matchConditions": f'[{{name: filled, expression: "!variables.empty && {expression}"}}]',
    }
    rungs = ("x.y/a", f'{{resource: x.y/b, when: "{expression}"}}')
    texts = (ladder("a", *rungs, **common), validation("a", expression, **common))
    write(folder, {"rules/injection.yaml": "---\n".join(texts)})
    view = shown("-n", "ml")
    for index, found in enumerate(read_rules([Path("rules")]).loaded.rules):
        places = {setting["field"]: setting["source"] for setting in settings(view, index).values()}
        assert len(found.expressions) == 3
        expected = {field: place(str(text.location)) for field, text in found.expressions.items()}
        assert {field: places[field] for field in expected} == expected


def test_operations_are_shown_as_they_are_written(folder: Path) -> None:
    write(folder, {"rules/injection.yaml": validation("v", "'true'", match="{operations: [CREATE, UPDATE]}")})
    assert "match.operations: CREATE, UPDATE  rules/" in cli("list", "-n", "ml", "rules").stdout
    assert values(shown("-n", "ml"))["match.operations"] == ["CREATE", "UPDATE"]


def test_an_expression_of_several_lines_is_one_line_of_text(folder: Path) -> None:
    rule = validation("named", "|\n        has(object.metadata)\n          && true", params="{a: {b: 1}, c: '', d: []}")
    write(folder, {"rules/injection.yaml": rule})
    out = cli("list", "-n", "ml", "rules").stdout
    assert "validations[0].expression: has(object.metadata) && true  rules/" in out
    assert 'params.a: {"b": 1}  rules/' in out
    assert 'params.c: ""  rules/' in out
    assert "params.d: []  rules/" in out


def test_long_values_are_cut_and_control_characters_escaped(folder: Path) -> None:
    rule = validation("named", "'true'", params=f'{{a: "\\e[1m", b: {"x" * 200}}}')
    write(folder, {"rules/injection.yaml": "", "rules/a\x1b.yaml": rule})
    (folder / "rules/injection.yaml").unlink()
    out = cli("list", "-n", "ml", "rules").stdout
    assert "\x1b" not in out
    assert "params.a: \\x1b[1m  rules/a\\x1b.yaml:" in out
    assert f"params.b: {'x' * 120}…  rules/" in out
    assert values(shown("-n", "ml"))["params.b"] == "x" * 200


def test_rules_are_in_the_order_of_evaluation_and_excluded_rules_have_the_field(folder: Path) -> None:
    write(
        folder,
        {
            "rules/injection.yaml": "---\n".join(
                (
                    validation("last", "'true'"),
                    injection("b", priority="1", gpuResource="x.y/gpu"),
                    injection("a"),
                    ladder("first", "x.y/a", "x.y/b"),
                    injection("idle", mode='"Off"'),
                    injection("elsewhere", match='{namespaces: ["web-*"]}'),
                    injection("excluded", match="{excludeNamespaces: [ml]}"),
                    injection("selected", match="{namespaceSelector: {matchLabels: {team: web}}}"),
                    injection("labelled", match="{objectSelector: {matchLabels: {app: web}}}"),
                )
            )
        },
    )
    view = shown("-n", "ml", "--labels", "team=ml", "--pod-labels", "app=train")
    assert [rule["name"] for rule in view["rules"]] == ["first", "b", "a", "last"]
    assert {other["rule"].partition("/")[2]: other["field"] for other in view["excluded"]} == {
        "idle": "mode",
        "elsewhere": "match.namespaces",
        "excluded": "match.excludeNamespaces",
        "selected": "match.namespaceSelector",
        "labelled": "match.objectSelector",
    }
    out = cli("list", "-n", "ml", "rules", "--labels", "team=ml", "--pod-labels", "").stdout
    assert out.startswith("namespace ml, namespace labels team=ml, no pod labels\n├── mutate\n")
    assert "\ncannot apply here\n" in out
    assert "  ResourceInjection/idle: mode  rules/injection.yaml:" in out
    any_labels = shown("-n", "ml")
    assert {"selected", "labelled"} <= {rule["name"] for rule in any_labels["rules"]}


def test_the_label_with_the_name_of_a_namespace_is_always_known(folder: Path) -> None:
    selector = "{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: web}}}"
    write(folder, {"rules/injection.yaml": injection("a", match=selector)})
    assert shown("-n", "ml")["rules"] == []
    assert "no rule can apply" in cli("list", "-n", "ml", "rules").stdout
    assert len(shown("-n", "web")["rules"]) == 1
    assert len(shown("-n", "web", "--labels", "")["rules"]) == 1
    assert len(shown("-n", "web", "--labels", "kubernetes.io/metadata.name=web")["rules"]) == 1


def test_a_selector_that_no_labels_match_excludes_its_rule(folder: Path) -> None:
    match = "{objectSelector: {matchLabels: {a: b}, matchExpressions: [{key: a, operator: DoesNotExist}]}}"
    write(folder, {"rules/injection.yaml": injection("a", match=match)})
    (other,) = json.loads(cli("list", "-n", "ml", "rules", "--output", "json").stdout)["excluded"]
    assert other["field"] == "match.objectSelector"


def test_the_labels_of_a_namespace_come_from_the_cluster_unless_given(folder: Path) -> None:
    rule = injection("a", match="{namespaceSelector: {matchLabels: {team: ml}}}")
    write(folder, {"rules/injection.yaml": rule})
    assert len(shown("-n", "ml", "--cluster", "cluster.yaml")["rules"]) == 1
    assert shown("-n", "web", "--cluster", "cluster.yaml", "--labels", "")["rules"] == []
    assert shown("-n", "ml", "--cluster", "cluster.yaml", "--labels", "team=web")["rules"] == []


@pytest.mark.parametrize(("name", "meant"), [("web", ""), ("mll", " (did you mean 'ml'?)")])
def test_a_namespace_that_the_cluster_does_not_list_has_no_labels(folder: Path, name: str, meant: str) -> None:
    result = cli("list", "-n", name, "rules", "--cluster", "cluster.yaml")
    assert result.exit_code == 0
    assert result.stderr == f"warning: namespace {name} is not in cluster.yaml{meant}: it has no labels there\n"
    assert result.stdout.startswith(f"namespace {name}, no namespace labels, any pod labels\n")


@pytest.mark.parametrize("namespace", ["ml", "web-1", "kube-system"])
@pytest.mark.parametrize("labels", [{}, {"team": "ml"}, {"team": "web"}])
@pytest.mark.parametrize("pod_labels", [{}, {"app": "train"}])
def test_the_rules_that_can_apply_are_the_rules_that_decisions_evaluate(
    tmp_path: Path, namespace: str, labels: dict[str, str], pod_labels: dict[str, str]
) -> None:
    matches = (
        "{}",
        '{namespaces: [ml, "web-?"]}',
        '{namespaces: ["w*"], excludeNamespaces: [web-1]}',
        "{excludeNamespaces: [kube-system]}",
        "{namespaceSelector: {matchLabels: {team: ml}}}",
        "{namespaceSelector: {matchExpressions: [{key: team, operator: NotIn, values: [ml]}]}}",
        "{objectSelector: {matchExpressions: [{key: app, operator: DoesNotExist}]}}",
    )
    text = "---\n".join(validation(f"r{index}", "'true'", match=match) for index, match in enumerate(matches))
    files = read_rules([write(tmp_path, {"rules.yaml": text})])
    assert files.problems == ()
    view = list_rules(files.loaded, namespace=namespace, labels=labels, pod_labels=pod_labels)
    pod: Any = {"metadata": {"labels": pod_labels}, "spec": {"containers": [{"name": "c"}]}}
    request = pod_request(pod, namespace=namespace)
    trace = files.rule_set.validate(request, Cluster(namespaces={namespace: labels})).trace
    assert {f"{rule.kind}/{rule.name}" for rule in view.rules} == {step.rule for step in trace if step.applies}
    assert {other.rule for other in view.excluded} == {step.rule for step in trace if not step.applies}


def test_selectors_have_the_syntax_of_kubectl() -> None:
    selector = LabelSelector(
        (
            LabelRequirement("a", ConditionKind.IN, ("1", "2")),
            LabelRequirement("b", ConditionKind.NOT_IN, ("1",)),
            LabelRequirement("c", ConditionKind.EXISTS),
            LabelRequirement("d", ConditionKind.DOES_NOT_EXIST),
        )
    )
    assert str(selector) == "a in (1, 2), b notin (1), c, !d"
    assert str(LabelSelector()) == ""


@pytest.mark.parametrize(
    ("option", "given", "message"),
    [
        ("--labels", "team", "'team' is not a label: write KEY=VALUE, separated by commas"),
        ("--labels", "=ml", "'=ml' is not a label"),
        ("--labels", "a/b/c=1", "'a/b/c=1' is not a label"),
        ("--labels", "/a=1", "'/a=1' is not a label"),
        ("--pod-labels", "a=b c", "'a=b c' is not a label"),
        ("--pod-labels", f"a={'x' * 64}", "is not a label"),
        ("--labels", "a=1,a=2", "the label a has two values"),
        ("--labels", "kubernetes.io/metadata.name=web", "kubernetes.io/metadata.name of the namespace ml is its name"),
        ("-n", "Not_A_Name", "'Not_A_Name' is not a valid namespace name"),
    ],
)
def test_labels_and_names_that_kubernetes_refuses_are_usage_errors(
    folder: Path, option: str, given: str, message: str
) -> None:
    result = cli("list", "-n", "ml", "rules", option, given)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr


def test_valid_labels_are_accepted(folder: Path) -> None:
    labels = shown("-n", "ml", "--pod-labels", "example.com/a_b.C=x-1,empty=,a=1,a=1")["podLabels"]
    assert labels == {"example.com/a_b.C": "x-1", "empty": "", "a": "1"}


@pytest.mark.parametrize("option", ["--labels=a=b", "--pod-labels=a=b", "--cluster=cluster.yaml"])
def test_options_of_a_namespace_require_one(folder: Path, option: str) -> None:
    result = cli("list", "rules", option)
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"{option.partition('=')[0]} requires --namespace" in result.stderr
