"""Calls of the webhooks by the API server: generated rules and pods, and the pods that are sent."""

from dataclasses import replace
from functools import lru_cache
from typing import Any

from hypothesis import strategies as st

from rules_engine.exports.configuration import Calls
from rules_engine.language.cel import Budget, Program, compile_expression, types
from rules_engine.model.json.lenient import as_mapping
from rules_engine.model.json.patch import Json
from rules_engine.model.rules.decision import Action, Decision
from rules_engine.model.rules.rule import LabelSelector, Match, Mode, Operation, OptOut, Rule
from rules_engine.rules.pod_defaults.value import DefaultsEntry, PodDefaults
from rules_engine.rules.pod_members.value import FIELDS, Member
from tests.support.conditions import CONDITIONS, KUBERNETES, SELECTORS
from tests.support.evaluation import HERE, cel, common, validation
from tests.support.laws import injections, ladders, pods


@st.composite
def matches(draw: st.DrawFn, *, update: bool = False) -> Match:
    return Match(
        namespaces=draw(st.sampled_from([("*",), ("*",), ("ml",), ("m?", "x-*"), ("prod", "*-ml"), ()])),
        exclude_namespaces=draw(st.sampled_from([(), (), ("ml",), ("x-*",)])),
        namespace_selector=draw(st.sampled_from([LabelSelector(), LabelSelector(), SELECTORS[2]])),
        object_selector=draw(st.sampled_from(SELECTORS)),
        operations=draw(st.sampled_from([(Operation.CREATE,), (Operation.UPDATE,), tuple(Operation)]))
        if update
        else (Operation.CREATE,),
    )


@st.composite
def rule_fields(draw: st.DrawFn, /, **more: Any) -> dict[str, Any]:
    chosen = draw(st.lists(st.sampled_from(CONDITIONS), max_size=2, unique=True))
    return {
        "match": draw(matches(**more)),
        "match_conditions": {f"c{index}": text for index, text in enumerate(chosen)},
        "variables": {"team": "object.metadata.?labels.team.orValue('ml')"},
        "mode": draw(st.sampled_from([Mode.ENFORCE, Mode.ENFORCE, Mode.AUDIT])),
        "opt_out": draw(st.sampled_from(OptOut)),
    }


@st.composite
def changing_rules(draw: st.DrawFn) -> list[Rule]:
    found: list[Rule] = []
    for index in range(draw(st.integers(0, 2))):
        found.append(draw(ladders(f"l{index}", **draw(rule_fields()))))
    for index in range(draw(st.integers(0, 2))):
        made = draw(injections(f"i{index}", **draw(rule_fields())))
        found.append(
            replace(made, gpu_type=draw(st.sampled_from([None, "T4", "", "a'b\\"])), gpu_type_annotation="a/b")
        )
    return found


@st.composite
def checking_rules(draw: st.DrawFn) -> list[Rule]:
    number = draw(st.integers(0, 3))
    return [
        validation("object.metadata.?labels.team.orValue('') == 'ml'", name=f"v{i}", **draw(rule_fields(update=True)))
        for i in range(number)
    ]


@st.composite
def labelled_pods(draw: st.DrawFn) -> dict[str, Json]:
    """Pods as the API server sends them, with any labels, annotations and GPUs."""
    made: Any = draw(pods())
    labels = draw(st.sampled_from([None, {}, {"team": "ml"}, {"team": "batch"}, {"team": "", "x'\\/y": ""}]))
    annotations = draw(st.sampled_from([None, {}, {"a/b": "T4"}, {"a/b": "a'b\\", "gpurules.io/skip": "true"}]))
    for key, value in (("labels", labels), ("annotations", annotations)):
        made["metadata"].pop(key, None)
        if value is not None:
            made["metadata"][key] = value
    checked: dict[str, Json] = made
    return checked


NAMESPACES = st.sampled_from(["ml", "x-ml", "prod", "mx"])


def sent(calls: Calls, made: Json, *, namespace: str = "ml", operation: str = "CREATE") -> bool:
    """True if the API server would call the webhook: an expression that fails is not forgiven."""
    results = [holds(text, made, namespace, operation) for text in condition_texts(calls)]
    return operation in calls.operations and all(results)


def condition_texts(calls: Calls) -> list[str]:
    return [str(as_mapping(each)["expression"]) for each in calls.match_conditions]


def holds(text: str, made: Json, namespace: str, operation: str) -> bool:
    variables = {"object": made, "request": {"operation": operation, "namespace": namespace}}
    value = _condition(text).evaluate(variables, Budget())
    assert isinstance(value, bool)
    return value


@lru_cache(100)
def _condition(text: str) -> Program:
    return compile_expression(cel(text), KUBERNETES, result=types.BOOL)


def relevant_rules(decision: Decision) -> set[str]:
    assert decision.refusal is None
    return {step.rule for step in decision.trace if step.action is not Action.SKIP}


def unconditional(rule: Rule) -> Rule:
    """The rule without parts that can fail."""
    return replace(rule, match_conditions=(), match=replace(rule.match, namespace_selector=LabelSelector()))


def pod_defaults(name: str = "defaults", **fields: Any) -> PodDefaults:
    """PodDefaults of an annotation, which apply to every pod that they match."""
    annotation = Member(field=FIELDS["annotations"], name="example.com/a", value="b", location=HERE)
    default = DefaultsEntry(location=HERE, pod=(annotation,))
    return PodDefaults(name=name, location=HERE, default=default, **common(fields))
