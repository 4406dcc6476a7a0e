"""Documents → rules."""

from pathlib import Path

import pytest

from rules_engine.cluster.nodes import NodeFilter, NodeRequirement, Offered
from rules_engine.cluster.read.inventory import Inventory
from rules_engine.model.kubernetes.quantity import Quantity
from rules_engine.model.problems.source import Location
from rules_engine.model.rules.rule import (
    ConditionKind,
    FailurePolicy,
    LabelRequirement,
    LabelSelector,
    Match,
    Mode,
    Operation,
    OptOut,
)
from rules_engine.rules.injection.value import InitContainers, InjectionEntry, OnConflict, ResourceInjection
from rules_engine.rules.ladder.value import Counts, Direction, FallbackLadder, Rung, WhenExhausted
from rules_engine.rules.sources.documents import load_documents
from rules_engine.rules.validation.value import Check, Reason, Validation, ValidationAction
from tests.support.loading import codes, load_text, rule

LADDER = """\
apiVersion: gpurules.io/v1
kind: FallbackLadder
metadata:
  name: mig-80gb
  labels: {owner: platform}
  annotations: {example.com/note: any text}
spec:
  description: Down to the whole card.
  mode: Audit
  priority: -5
  match:
    namespaces: ["team-*", ml]
    excludeNamespaces: [team-ci]
    namespaceSelector: {matchLabels: {tier: gpu}}
    objectSelector: {matchExpressions: [{key: app, operator: NotIn, values: [a, b]}, {key: x, operator: Exists}]}
    operations: [CREATE]
  params: {team: batch, limits: [1, 2.5, {deep: null}], on: "yes"}
  variables:
    - {name: team, expression: "object.metadata.name"}
  matchConditions:
    - name: example.com/not-batch
      expression: >-
        variables.team
        != params.team
  failurePolicy: Ignore
  optOut: Forbidden
  offered: Available
  nodes: {selector: {matchLabels: {pool: big}}, require: [Ready, MatchesPod]}
  direction: DownThenUp
  counts: Scale
  rungs:
    - {resource: nvidia.com/mig-3g.40gb, weight: 3}
    - {resource: nvidia.com/gpu, weight: 7, when: "true", assume: true}
  whenExhausted: Deny
  annotation: ""
"""


def only(folder: Path, text: str) -> FallbackLadder | ResourceInjection | Validation:
    loaded = load_text(folder, text.replace('on: "yes"', '"on": "yes"'))
    assert loaded.problems == ()
    (found,) = loaded.rules
    assert isinstance(found, FallbackLadder | ResourceInjection | Validation)
    return found


def test_every_field_of_a_ladder_is_read(tmp_path: Path) -> None:
    ladder = only(tmp_path, LADDER)
    assert isinstance(ladder, FallbackLadder)
    file = str(tmp_path / "x.yaml")
    assert ladder.id == "FallbackLadder/mig-80gb"
    assert ladder.location == Location(file, 4, 9)
    assert (ladder.labels, ladder.annotations) == ({"owner": "platform"}, {"example.com/note": "any text"})
    assert (ladder.description, ladder.mode, ladder.priority) == ("Down to the whole card.", Mode.AUDIT, -5)
    assert ladder.match == Match(
        namespaces=("team-*", "ml"),
        exclude_namespaces=("team-ci",),
        namespace_selector=LabelSelector((LabelRequirement("tier", ConditionKind.IN, ("gpu",)),)),
        object_selector=LabelSelector(
            (LabelRequirement("app", ConditionKind.NOT_IN, ("a", "b")), LabelRequirement("x", ConditionKind.EXISTS))
        ),
    )
    assert ladder.params == {"team": "batch", "limits": [1, 2.5, {"deep": None}], "on": "yes"}
    assert [(named.name, named.expression.text) for named in (*ladder.variables, *ladder.match_conditions)] == [
        ("team", "object.metadata.name"),
        ("example.com/not-batch", "variables.team != params.team"),
    ]
    condition = ladder.match_conditions[0].expression
    assert condition.at(condition.text.index("!=")) == Location(file, 24, 9)
    assert (ladder.failure_policy, ladder.opt_out) == (FailurePolicy.IGNORE, OptOut.FORBIDDEN)
    assert ladder.offered is Offered.AVAILABLE
    assert ladder.nodes == NodeFilter(
        LabelSelector((LabelRequirement("pool", ConditionKind.IN, ("big",)),)),
        frozenset({NodeRequirement.READY, NodeRequirement.MATCHES_POD}),
    )
    assert (ladder.direction, ladder.counts) == (Direction.DOWN_THEN_UP, Counts.SCALE)
    assert (ladder.when_exhausted, ladder.annotation) == (WhenExhausted.DENY, "")
    first, second = ladder.rungs
    assert first == Rung(resource="nvidia.com/mig-3g.40gb", location=Location(file, 32, 18), weight=3)
    assert (second.weight, second.assume, str(second.when)) == (7, True, "true")


def test_absent_fields_of_a_ladder_have_the_models_defaults(tmp_path: Path) -> None:
    ladder = only(tmp_path, rule("FallbackLadder", "{rungs: [{resource: nvidia.com/gpu}]}"))
    assert ladder == FallbackLadder(
        name="x",
        location=ladder.location,
        rungs=(Rung(resource="nvidia.com/gpu", location=Location(str(tmp_path / "x.yaml"), 4, 27)),),
    )


def test_absent_fields_of_an_injection_have_the_models_defaults(tmp_path: Path) -> None:
    injection = only(tmp_path, rule("ResourceInjection", "{coefficients: {}}"))
    assert injection == ResourceInjection(
        name="x", location=injection.location, default=InjectionEntry(location=Location(str(tmp_path / "x.yaml"), 4, 8))
    )


def test_absent_fields_of_a_validation_have_the_models_defaults(tmp_path: Path) -> None:
    validation = only(tmp_path, rule("Validation", "{validations: [{expression: 'true'}]}"))
    assert isinstance(validation, Validation)
    assert validation == Validation(name="x", location=validation.location, validations=validation.validations)
    (check,) = validation.validations
    assert check == Check(expression=check.expression, location=check.location)
    assert validation.opt_out is OptOut.FORBIDDEN


def test_every_field_of_a_validation_is_read(tmp_path: Path) -> None:
    validation = only(
        tmp_path,
        rule(
            "Validation",
            "{match: {operations: [UPDATE, CREATE]}, validationActions: [Warn, Audit], optOut: Allowed, "
            "validations: [{expression: 'a', message: m, messageExpression: 'b', reason: Forbidden}]}",
        ),
    )
    assert isinstance(validation, Validation)
    assert validation.match.operations == (Operation.UPDATE, Operation.CREATE)
    assert validation.validation_actions == {ValidationAction.WARN, ValidationAction.AUDIT}
    assert validation.opt_out is OptOut.ALLOWED
    (check,) = validation.validations
    assert (check.expression.text, check.message, str(check.message_expression)) == ("a", "m", "b")
    assert check.reason is Reason.FORBIDDEN


INJECTION = """\
apiVersion: gpurules.io/v1
kind: ResourceInjection
metadata: {name: v100}
spec:
  gpuType: V100
  gpuTypeAnnotation: example.com/type
  gpuResource: example.com/gpu
  onConflict: Raise
  initContainers: Inject
  coefficients: {cpu: 4000m, memory: 8Gi}
  annotations: {a: default, b: default}
  namespaces:
    training: {coefficients: {cpu: 6}}
    inference:
      inherit: Merge
      coefficients: {memory: 4Gi}
      annotations: {b: own}
    sandbox: {}
"""


def test_every_field_of_an_injection_is_read(tmp_path: Path) -> None:
    injection = only(tmp_path, INJECTION)
    assert isinstance(injection, ResourceInjection)
    assert (injection.gpu_type, injection.gpu_type_annotation) == ("V100", "example.com/type")
    assert (injection.gpu_resource, injection.on_conflict) == ("example.com/gpu", OnConflict.RAISE)
    assert injection.init_containers is InitContainers.INJECT
    assert injection.default.coefficients == {"cpu": Quantity.of(4), "memory": Quantity.parse("8Gi")}
    assert str(injection.default.location).endswith(":10:3")


def test_a_namespace_entry_replaces_the_default_whole(tmp_path: Path) -> None:
    injection = only(tmp_path, INJECTION)
    assert isinstance(injection, ResourceInjection)
    entry = injection.entry("training")
    assert (entry.coefficients, entry.annotations) == ({"cpu": Quantity.of(6)}, {})
    assert not injection.entry("sandbox")
    assert injection.entry("elsewhere") is injection.default


def test_an_inheriting_entry_is_merged_with_the_origin_of_each_part(tmp_path: Path) -> None:
    injection = only(tmp_path, INJECTION)
    assert isinstance(injection, ResourceInjection)
    entry = injection.entry("inference")
    assert entry.coefficients == {"cpu": Quantity.of(4), "memory": Quantity.parse("4Gi")}
    assert entry.annotations == {"a": "default", "b": "own"}
    assert {key: location.line for key, location in entry.origin.items()} == {
        ("coefficients", "cpu"): 10,
        ("coefficients", "memory"): 16,
        ("annotations", "a"): 11,
        ("annotations", "b"): 17,
    }


@pytest.mark.parametrize("written", ["0.29", "0.1", "1e3", "4000m", "12345678901234567890", "0.000000001"])
def test_a_quantity_is_read_from_its_text_and_never_through_a_float(tmp_path: Path, written: str) -> None:
    quoted = f'"{written}"' if len(written) > 19 else written
    injection = only(tmp_path, rule("ResourceInjection", f"{{coefficients: {{hugepages-2Mi: {quoted}}}}}"))
    assert isinstance(injection, ResourceInjection)
    assert injection.default.coefficients["hugepages-2Mi"] == Quantity.parse(written)


@pytest.mark.parametrize("written", ["Off", '"Off"'])
def test_a_plain_off_disables_a_rule(tmp_path: Path, written: str) -> None:
    ladder = only(tmp_path, rule("FallbackLadder", f"{{mode: {written}, rungs: [{{resource: a.b/c}}]}}"))
    assert ladder.mode is Mode.OFF


@pytest.mark.parametrize(
    "params", ["{mode: off}", "{mod: Off}", "{a: mode, Off: 1}", "[mode, a, Off]", "[[mode], Off]"]
)
def test_the_word_off_is_a_surprise_anywhere_else(tmp_path: Path, params: str) -> None:
    text = rule("FallbackLadder", f"{{params: {{a: {params}}}, rungs: [{{resource: a.b/c}}]}}")
    assert set(codes(load_text(tmp_path, text).problems)) <= {"yaml-boolean", "yaml-key"} != set()


def test_a_name_that_ends_in_a_line_end_is_no_name(tmp_path: Path) -> None:
    text = rule("FallbackLadder", "{rungs: [{resource: nvidia.com/gpu}]}").replace("{name: x}", '{name: "x\\n"}')
    assert codes(load_text(tmp_path, text).problems) == ["wrong-form"]


def test_a_document_with_an_error_is_a_draft_and_the_others_load(tmp_path: Path) -> None:
    good = rule("Validation", "{validations: [{expression: 'true'}]}")
    bad = rule("Validation", "{validations: [{expression: 'object.'}], mode: Of}", name="bad")
    loaded = load_text(tmp_path, f"{bad}---\n{good}")
    assert [item.name for item in loaded.rules] == ["x"]
    assert [item.name for item in loaded.drafts] == ["bad"]
    assert codes(loaded.problems) == ["wrong-value"]


def test_a_draft_holds_no_expression_that_is_known_to_be_none(tmp_path: Path) -> None:
    spec = "{variables: [{name: a, expression: ''}, {name: b, expression: c}], validations: [{expression: 3}]}"
    (draft,) = load_text(tmp_path, rule("Validation", spec)).drafts
    assert isinstance(draft, Validation)
    assert [variable.name for variable in draft.variables] == ["b"]
    assert draft.validations == ()


def test_a_warning_does_not_keep_a_rule_from_use(tmp_path: Path) -> None:
    loaded = load_text(tmp_path, rule("ResourceInjection", "{coefficients: {memory: 8}}"))
    assert codes(loaded.problems) == ["unlikely-unit"]
    assert len(loaded.rules) == 1


def test_one_run_reports_all_problems_in_file_order(tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_text(rule("FallbackLadder", "{rungs: []}"), encoding="utf-8")
    loaded = load_text(
        tmp_path,
        rule("FallbackLadder", "{prioritty: 1, mode: no, rungs: [{resource: a.b/c}, {resource: a.b/c}]}"),
        name="a.yaml",
    )
    assert codes(loaded.problems) == ["unknown-field", "wrong-value", "duplicate-rung"]
    both = load_documents([tmp_path])
    assert codes(both.problems) == [*codes(loaded.problems), "duplicate-document", "wrong-count"]


def test_names_may_repeat_over_kinds_but_not_over_files(tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_text(rule("Validation", "{validations: [{expression: 'true'}]}"), encoding="utf-8")
    (tmp_path / "a.yaml").write_text(
        rule("FallbackLadder", "{rungs: [{resource: a.b/c}]}")
        + "---\n"
        + rule("Validation", "{validations: [{expression: 'true'}]}"),
        encoding="utf-8",
    )
    loaded = load_documents([tmp_path])
    assert codes(loaded.problems) == ["duplicate-document"]
    assert f"{tmp_path}/a.yaml:8:18" in loaded.problems[0].message
    assert [item.id for item in loaded.rules] == ["FallbackLadder/x", "Validation/x"]


MALFORMED = [
    "{}",
    "[]",
    "3",
    "{rungs: 3, coefficients: 3, validations: 3, cases: 3, nodes: 3}",
    "{rungs: [3], coefficients: {cpu: []}, validations: [3], cases: [3], nodes: [3]}",
    "{rungs: [{}], namespaces: {a: 3}, validations: [{}], cases: [{}], nodes: [{}]}",
    "{variables: [{name: [], expression: {}}], matchConditions: {}, match: {namespaceSelector: 3, operations: 4}}",
    "{match: {objectSelector: {matchExpressions: [{}, 3, {key: 3, operator: x, values: {}}]}}, priority: x, mode: []}",
    "{cases: [{name: 3, pod: 3, expect: 3, request: 3}, {podFile: 3, expect: {containers: 3, decidedBy: [3, {}]}}]}",
    "{cluster: 3, rules: [3], description: [], pods: [3], namespaces: {a: {b: []}}, params: 3}",
    "{cluster: {file: 3}, nodes: [{name: 3, count: x, taints: [3], allocatable: {a/b: {}}, cards: x}]}",
    "{variables: [{name: a, expression: ''}], validations: [{expression: ''}, 3]}",
    "{rungs: [{resource: a.b/c, when: ''}], namespaces: {a: {b: []}}, coefficients: {}}",
]


@pytest.mark.parametrize("kind", ["FallbackLadder", "ResourceInjection", "Validation", "RuleTest", "ClusterInventory"])
@pytest.mark.parametrize("spec", MALFORMED)
def test_malformed_rules_are_reported_and_nothing_raises(tmp_path: Path, kind: str, spec: str) -> None:
    loaded = load_text(tmp_path, rule(kind, spec))
    assert loaded.problems
    assert (loaded.rules, loaded.tests, loaded.of(Inventory)) == ((), (), ())


def test_a_mistyped_operator_is_the_only_problem_of_its_requirement(tmp_path: Path) -> None:
    match = "{objectSelector: {matchExpressions: [{key: a, operator: in, values: [b]}]}}"
    loaded = load_text(tmp_path, rule("FallbackLadder", f"{{match: {match}, rungs: [{{resource: a.b/c}}]}}"))
    assert codes(loaded.problems) == ["wrong-value"]
