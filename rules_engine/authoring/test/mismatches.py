"""Mismatches between expected and actual values, of decisions and of the findings of Diagnostics."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Annotated

from msgspec import Meta

from rules_engine.model.json.output import Output
from rules_engine.model.json.patch import Json
from rules_engine.model.json.strict import PodError
from rules_engine.model.kubernetes.pod import Container, Pod
from rules_engine.model.kubernetes.quantity import Quantity, QuantityError
from rules_engine.model.problems.source import truncate
from rules_engine.model.rules.decision import Action, Step
from rules_engine.model.rules.finding import Finding
from rules_engine.model.rules.logged_decision import LoggedStep
from rules_engine.model.rules.rule import RuleId
from rules_engine.model.rules.rule_test import (
    AmountsByContainer,
    Expectation,
    ExpectedAudit,
    ExpectedDiagnosis,
    ExpectedRule,
)
from rules_engine.rules.diagnostic.evaluation import Evaluation
from rules_engine.rules.evaluation.admission import Admission

MAX_DIFFERENCES = 20
"""Differences of a whole pod that are listed: with more, it is a different pod."""

MAX_VALUE = 100
"""Characters of a value in a mismatch; only whole maps and lists are longer."""

_NONE = Quantity(0)
_AMOUNTS = frozenset({"requests", "limits", "overhead"})
"""Members of a pod that contain amounts, which are compared as quantities."""


class Mismatch(Output, frozen=True):
    """A value that differs from the expected one."""

    what: Annotated[str, Meta(description="Name or path of the value.")]
    expected: str
    actual: str

    def __str__(self) -> str:
        return f"{self.what}: expected {self.expected}, actual {self.actual}"


def admission_mismatches(expect: Expectation, admission: Admission) -> Iterator[Mismatch]:
    """Yield each value of an admission that differs from the expected one."""
    if expect.allowed is not None and expect.allowed is not admission.allowed:
        why = f" ({admission.message})" if admission.message else ""
        yield Mismatch("allowed", str(expect.allowed).lower(), f"{str(admission.allowed).lower()}{why}")
    if expect.message is not None and expect.message not in admission.message:
        yield Mismatch("message", f"a text with '{expect.message}'", _quote_texts([admission.message]))
    if expect.warnings is not None:
        yield from _warning_mismatches(expect.warnings, admission.warnings)
    try:
        pod = Pod.parse(admission.result)
    except PodError as error:
        if expect.containers or expect.requests or expect.limits or expect.annotations or expect.pod is not None:
            yield Mismatch("pod", "a well-formed pod", str(error))
    else:
        yield from _amount_mismatches("containers", expect.containers, pod, Container.limit_or_request)
        yield from _amount_mismatches("requests", expect.requests, pod, lambda each, name: each.requests.get(name))
        yield from _amount_mismatches("limits", expect.limits, pod, lambda each, name: each.limits.get(name))
        yield from _annotation_mismatches("annotations", expect.annotations, pod.annotations)
        if expect.pod is not None:
            yield from _first_mismatches("pod", _value_mismatches(expect.pod, admission.result, "pod", amounts=False))
    if expect.decided_by is not None:
        yield from _decider_mismatches(expect.decided_by, admission.trace)
    if expect.audited is not None:
        yield from _audit_mismatches(expect.audited, admission.trace)


def _warning_mismatches(expected: Sequence[str], actual: Sequence[str]) -> Iterator[Mismatch]:
    if not expected and actual:
        yield Mismatch("warnings", "none", _quote_texts(actual))
    for text in expected:
        if not any(text in warning for warning in actual):
            yield Mismatch("warnings", f"one with '{text}'", _quote_texts(actual))


def _amount_mismatches(
    what: str, expected: AmountsByContainer, pod: Pod, amount_of: Callable[[Container, str], Quantity | None]
) -> Iterator[Mismatch]:
    by_name: dict[str, Container] = {container.name: container for container in pod.all_containers}
    for name, amounts in expected.items():
        container = by_name.get(name)
        if container is None:
            yield Mismatch(f"{what}.{name}", "a container", f"the pod has {', '.join(by_name) or 'none'}")
            continue
        for resource, amount in amounts.items():
            actual = amount_of(container, resource)
            if amount != (actual or _NONE):
                text = str(actual) if actual is not None else f"none ({_requests_text(container)})"
                yield Mismatch(f"{what}.{name}.{resource}", str(amount), text)


def _requests_text(container: Container) -> str:
    amounts = sorted({**container.requests, **container.limits}.items())
    return f"it requests {', '.join(f'{key}: {value}' for key, value in amounts) or 'nothing'}"


def _annotation_mismatches(
    what: str, expected: Mapping[str, str | None] | Mapping[str, str], actual: Mapping[str, str]
) -> Iterator[Mismatch]:
    for key, value in expected.items():
        if actual.get(key) != value:
            yield Mismatch(f"{what}.{key}", _or_none(value), _or_none(actual.get(key)))


def _or_none(text: str | None) -> str:
    return "none" if text is None else f"'{text}'"


def _quote_texts(texts: Sequence[str]) -> str:
    return ", ".join(f"'{text}'" for text in texts if text) or "none"


def _first_mismatches(what: str, mismatches: Iterable[Mismatch]) -> Iterator[Mismatch]:
    """Yield at most MAX_DIFFERENCES, and the number of the others."""
    differences = [*mismatches]
    yield from differences[:MAX_DIFFERENCES]
    if len(differences) > MAX_DIFFERENCES:
        yield Mismatch(what, "no other difference", f"{len(differences) - MAX_DIFFERENCES} more")


def _value_mismatches(expected: Json, actual: Json, path: str, *, amounts: bool) -> Iterator[Mismatch]:
    """Yield the innermost values that differ; a null member equals an absent one."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        for name in dict.fromkeys([*expected, *actual]):
            step = f".{name}" if name.isidentifier() else f"[{json.dumps(name, ensure_ascii=False)}]"
            yield from _value_mismatches(
                expected.get(name), actual.get(name), path + step, amounts=name in _AMOUNTS or amounts
            )
    elif isinstance(expected, list) and isinstance(actual, list):
        for index, (left, right) in enumerate(zip_longest(expected, actual)):
            yield from _value_mismatches(
                left, right, f"{path}[{_item_name(left) or _item_name(right) or index}]", amounts=False
            )
    elif expected != actual and not (amounts and _equal_amounts(expected, actual)):
        yield Mismatch(path, _json_text(expected), _json_text(actual))


def _item_name(item: Json) -> str:
    """Return the name of an item such as a container or a volume; "" if it has none."""
    name = item.get("name") if isinstance(item, dict) else None
    return name if isinstance(name, str) else ""


def _equal_amounts(left: Json, right: Json) -> bool:
    try:
        return Quantity.parse(str(left)) == Quantity.parse(str(right))
    except QuantityError:
        return False


def _json_text(value: Json) -> str:
    if value is None:
        return "none"
    return truncate(json.dumps(value, ensure_ascii=False), MAX_VALUE)


def _decider_mismatches(expected: Sequence[ExpectedRule], trace: Sequence[Step]) -> Iterator[Mismatch]:
    """Yield the mismatches of the rules that contributed to the decision, in any order, and of their rungs."""
    rungs: dict[RuleId, list[str]] = {}
    for decider in expected:
        rungs.setdefault(decider.rule, []).extend([decider.rung] if decider.rung else [])
    deciders = {step.rule: step for step in trace if step.decides}
    yield from _rule_mismatches("decidedBy", rungs, deciders, trace)


def _rule_mismatches(
    what: str, expected: Mapping[RuleId, Sequence[str]], actual: Mapping[RuleId, Step], trace: Sequence[Step]
) -> Iterator[Mismatch]:
    """Yield the rules that are missing, have another rung, or are not expected."""
    steps = {step.rule: step for step in trace}
    for rule, rungs in expected.items():
        step = actual.get(rule)
        if step is None:
            yield Mismatch(f"{what}.{rule}", "a decision", step_outcome(steps.get(rule)))
            continue
        actual_rungs = [decision.given for decision in step.resources]
        for rung in rungs:
            if rung not in actual_rungs:
                yield Mismatch(f"{what}.{rule}.rung", rung, ", ".join(actual_rungs) or "none")
    for rule, step in actual.items():
        if rule not in expected:
            yield Mismatch(f"{what}.{rule}", "no decision", step_outcome(step))


def step_outcome(step: Step | LoggedStep | None) -> str:
    """Return the action of a rule, with the reason in brackets."""
    if step is None:
        return "not evaluated"
    mode = " in audit mode" if step.audit and step.action is not Action.SKIP else ""
    return f"{step.action.value}{mode} ({step.message or step.reason})"


def _audit_mismatches(expected: Sequence[ExpectedAudit], trace: Sequence[Step]) -> Iterator[Mismatch]:
    """Yield the mismatches of the rules in audit mode that would have contributed to the decision, in any order."""
    steps = {step.rule: step for step in trace if step.would_decide}
    yield from _rule_mismatches(
        "audited", {audited.rule: [audited.rung] if audited.rung else [] for audited in expected}, steps, trace
    )
    for audited in expected:
        if audited.rule in steps:
            yield from _audit_step_mismatches(audited, steps[audited.rule])


def _audit_step_mismatches(expected: ExpectedAudit, step: Step) -> Iterator[Mismatch]:
    what = f"audited.{step.rule}"
    if expected.action is not None and expected.action is not step.action:
        yield Mismatch(f"{what}.action", expected.action.value, step_outcome(step))
    if expected.message is not None and expected.message not in step.message:
        yield Mismatch(f"{what}.message", f"a text with '{expected.message}'", _quote_texts([step.message]))
    actual_amounts = {(amount.container, amount.resource): amount.after for amount in step.amounts}
    for container, amounts in expected.containers.items():
        for resource, amount in amounts.items():
            actual = actual_amounts.get((container, resource))
            if amount != (Quantity.parse(actual) if actual else _NONE):
                yield Mismatch(f"{what}.containers.{container}.{resource}", str(amount), actual or "none")
    yield from _annotation_mismatches(f"{what}.annotations", expected.annotations, step.annotations)


def diagnosis_mismatches(diagnosis: ExpectedDiagnosis, evaluation: Evaluation) -> Iterator[Mismatch]:
    """Return each finding that is missing, not expected or has another message, and each Diagnostic that failed."""
    return _first_mismatches("findings", _finding_mismatches(diagnosis, evaluation))


def _finding_mismatches(diagnosis: ExpectedDiagnosis, evaluation: Evaluation) -> Iterator[Mismatch]:
    unmatched: dict[str, list[Finding]] = {}
    for finding in evaluation.findings:
        unmatched.setdefault(f"{finding.reason} of {finding.object}", []).append(finding)
    # The longest text first: "a" also matches the finding "ab", and must not take it from the expectation "ab".
    for expected in sorted(diagnosis.expect, key=lambda expected: -len(expected.message)):
        name = f"{expected.reason} of {expected.object}"
        candidates = unmatched.get(name, [])
        messages = [finding.message for finding in candidates]
        match = next((finding for finding in candidates if expected.message in finding.message), None)
        if not candidates:
            yield Mismatch(name, "a finding", "none")
        elif match is None:
            yield Mismatch(f"{name}, message", f"a text with '{expected.message}'", _quote_texts(messages))
        if candidates:
            candidates.remove(match or candidates[0])
    for name, findings in unmatched.items():
        for finding in findings:
            yield Mismatch(name, "no finding", f"'{truncate(finding.message, MAX_VALUE)}'")
    for failed in evaluation.not_evaluated:
        first = f", the first of them {failed.first}" if failed.first is not None else ""
        objects = f"{failed.objects} object{'s' if failed.objects != 1 else ''}{first}"
        yield Mismatch(failed.diagnostic, "a result", f"not evaluated for {objects}: {failed.why}")
