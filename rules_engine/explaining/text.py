"""Results of the commands for authors of rules, as text: trees, lines and problems."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from rules_engine.checking.check import NOTHING_CHECKED, CheckResult
from rules_engine.evaluation.admission import Admission
from rules_engine.explaining.effective import EffectiveRule, EffectiveRules
from rules_engine.explaining.explain import Explanation
from rules_engine.explaining.recorded import LoggedDecision
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.cluster import NAMESPACE_NAME_LABEL
from rules_engine.model.problems.excerpt import truncate
from rules_engine.model.problems.problem import Severity
from rules_engine.model.problems.source import Field, Location
from rules_engine.model.rules.decision import Action, Amount, Decision, ResourceDecision, Step
from rules_engine.model.rules.rule import Setting
from rules_engine.model.wording import format_count
from rules_engine.report.text import Screen
from rules_engine.report.values import Block, Lines, Span, Tone, Tree, Words
from rules_engine.sources.rule_files import DEFAULT_CLUSTER, DEFAULT_RULES
from rules_engine.testing.rule_tests import CaseResult, Result, TestRun

MAX_VALUE = 120
"""Characters of a value in the text of `effective`: the location beside it leads to the whole value."""

_INDENT = 6
"""Indentation of the lines below the name of a failed case."""

_WORDS: Mapping[Action, tuple[str, Tone]] = {
    Action.SKIP: ("skipped", Tone.QUIET),
    Action.KEEP: ("unchanged", Tone.INFO),
    Action.PASS: ("passed", Tone.GOOD),
    Action.CHANGE: ("changed", Tone.CHANGED),
    Action.DENY: ("denied", Tone.BAD),
    Action.WARN: ("warned", Tone.WARNING),
    Action.RECORD: ("recorded", Tone.WARNING),
    Action.IGNORE: ("ignored", Tone.WARNING),
}


_SKIPPED: Mapping[str, str] = {
    "operation": "for other operations",
    "namespace": "for other namespaces",
    "namespace-selector": "for namespaces with other labels",
    "object-selector": "for pods with other labels",
    "resources": "for other resources",
    "no-request": "for other resources",
    "gpu-type": "for other types of GPUs",
    "opt-out": "by the pod's annotation",
    "condition": "by a match condition",
    "already-decided": "since an earlier rule decided",
}
"""Reasons of skipped rules, in words."""


def check_summary(checked: CheckResult) -> Words:
    """Return the numbers of files that `check` read and of their problems."""
    ignored = len(checked.ignored)
    warnings = checked.warnings + ignored
    counts = [
        *([format_count(checked.errors, "error")] if checked.errors else []),
        *([format_count(warnings, "warning")] if warnings else []),
    ]
    if ignored:
        counts[-1] += f" ({ignored} ignored)"
    parts = [
        f"{format_count(checked.files, 'file')} checked",
        *([f"{len(checked.passed_over)} skipped"] if checked.passed_over else []),
        *(counts or ["no problems" if checked.files else NOTHING_CHECKED]),
    ]
    warned = checked.warnings or not checked.files
    return Span(", ".join(parts), Tone.BAD if checked.errors else Tone.WARNING if warned else Tone.GOOD)


def print_tests(run: TestRun, screen: Screen, *, quiet: bool = False) -> None:
    """Print each case with its mismatches, then the totals. `quiet`: omit the cases that passed."""
    screen.problems(run.problems, run.sources)
    for first, number in run.not_run_groups:
        name = str(first.name) if number == 1 else f"{first.name.test}: {format_count(number, 'case')}"
        since = f"  {name}, since {first.obstacle}"
        screen.line((Span("not run", Tone.BAD), since, _place_span(first.name.case.location)))
    for result in run.results:
        if not (quiet and result.passed):
            _print_case(result, screen)
    if quiet and run.succeeded:
        return
    errors = sum(problem.severity is Severity.ERROR for problem in run.problems)
    parts = [
        f"{len(run.results) - run.failures} passed",
        *([f"{run.failures} failed"] if run.failures else []),
        *([f"{len(run.not_run)} not run"] if run.not_run else []),
        *([f"{run.deselected} deselected"] if run.deselected else []),
        *([format_count(errors, "error")] if errors else []),
    ]
    screen.line(Span(", ".join(parts), Tone.GOOD if run.succeeded else Tone.BAD))


def _print_case(result: Result, screen: Screen) -> None:
    mark = Span("pass", Tone.GOOD) if result.passed else Span("FAIL", Tone.BAD)
    place = () if result.passed else (_place_span(result.name.case.location),)
    screen.line((mark, f"  {result.name}", *place))
    if result.passed:
        return
    for mismatch in result.mismatches:
        screen.line(Span(mismatch.what, Tone.STRONG), _INDENT)
        screen.line(Span(f"- expected {mismatch.expected}", Tone.BAD), _INDENT + 2)
        screen.line(Span(f"+ actual   {mismatch.actual}", Tone.GOOD), _INDENT + 2)
    if isinstance(result, CaseResult):
        screen.tree(_trace_tree(result.admission, Span("why", Tone.QUIET), skipped=True), _INDENT)


def default_inputs(*, rules: bool, cluster: bool = False) -> Lines:
    """Return lines about the packaged rules and inventory that are used as defaults."""
    lines: list[Words] = []
    if rules:
        lines.append(Span(f"rules: the packaged set {DEFAULT_RULES.name} (use --rules for others)", Tone.QUIET))
    if cluster:
        text = f"cluster: the packaged inventory {DEFAULT_CLUSTER.stem} (use --cluster for another one)"
        lines.append(Span(text, Tone.QUIET))
    return Lines(lines=[*lines, ""] if lines else [], whole=True)


def explanation_blocks(explanation: Explanation, *, skipped: bool = False) -> Iterator[Block]:
    """Yield the trace as a tree, the changes as a diff, the warnings and the outcome.

    `skipped`: show each skipped rule; else several are shown as one line with their number.
    """
    admission = explanation.admission
    yield _trace_tree(admission, Span(explanation.title, Tone.STRONG), skipped=skipped)
    diff = ["", *map(_diff_line, explanation.diff)] if admission.mutation.patch else []
    outcome: Words = (Span("denied", Tone.BAD), f": {admission.message}")
    if admission.allowed:
        outcome = _outcome_words(changed=bool(admission.mutation.patch))
    if explanation.unknown:
        reads = "; ".join(f"{rule} reads {', '.join(names)}" for rule, names in explanation.unknown.items())
        outcome = Span("unknown", Tone.WARNING), f": this pod lost values when it was captured, and {reads}"
    yield Lines(lines=[*diff, "", *_warning_lines(admission.warnings), outcome], whole=True)


def decision_blocks(record: LoggedDecision, *, skipped: bool = False) -> Iterator[Block]:
    """Yield a logged decision in the form of `explanation_blocks`, but with the patch: the log has no pod."""
    title = (Span(record.pod, Tone.STRONG), f" {record.title}")
    yield Tree(line=title, children=[_decision_tree(record.endpoint, record.decision, skipped=skipped)])
    lines: list[Words] = ["", *map(_patch_line, record.patch), *_warning_lines(record.decision.warnings)]
    if record.truncated:
        lines.append(Span(f"shortened in the log: {', '.join(record.truncated)}", Tone.WARNING))
    if record.outcome in ("Allowed", "Changed"):
        lines.append(_outcome_words(changed=record.outcome == "Changed"))
    else:
        message = f": {record.message}" if record.message else ""
        lines.append((Span(record.outcome.lower(), Tone.BAD), message))
    yield Lines(lines=lines, whole=True)


def effective_blocks(effective: EffectiveRules) -> Iterator[Block]:
    """Yield the rules that can apply in a namespace as a tree, then the rules that cannot."""
    labels = f", {_labels_text('namespace', effective.labels)}, {_labels_text('pod', effective.pod_labels)}"
    branches: dict[str, list[Tree]] = {}
    for item in effective.rules:
        branches.setdefault(item.endpoint.name.lower(), []).append(_rule_tree(item))
    children = [Tree(line=Span(name, Tone.STRONG), children=rules) for name, rules in branches.items()]
    none = [Tree(line=Span("no rule can apply", Tone.QUIET))]
    yield Tree(line=(Span(f"namespace {effective.namespace}", Tone.STRONG), labels), children=children or none)
    if effective.others:
        lines = [(f"  {other.rule.id}: {other.field}", _place_span(other.location)) for other in effective.others]
        yield Lines(lines=["", "cannot apply here", *lines], whole=True)


def _warning_lines(warnings: Sequence[str]) -> Sequence[Words]:
    return [(Span("warning: ", Tone.WARNING), warning) for warning in warnings]


def _diff_line(line: str) -> Words:
    if line.startswith(("---", "+++")):
        return Span(line, Tone.STRONG)
    tone = {"-": Tone.BAD, "+": Tone.GOOD, "@": Tone.INFO}.get(line[:1])
    return line if tone is None else Span(line, tone)


def _patch_line(line: str) -> Words:
    return Span(line, Tone.BAD if line.startswith("remove") else Tone.GOOD)


def _outcome_words(*, changed: bool) -> Words:
    return Span("allowed", Tone.GOOD), f", {'changed' if changed else 'unchanged'}"


def _trace_tree(admission: Admission, title: Words, *, skipped: bool) -> Tree:
    if admission.validation is None:
        validation = Tree(line=Span("validate: skipped, since the pod is already denied", Tone.QUIET))
    else:
        validation = _decision_tree("validate", admission.validation, skipped=skipped)
    return Tree(line=title, children=[_decision_tree("mutate", admission.mutation, skipped=skipped), validation])


def _decision_tree(name: str, decision: Decision, *, skipped: bool) -> Tree:
    children: list[Tree] = []
    if decision.refusal is not None:
        children.append(Tree(line=Span(f"refused: {decision.refusal.message}", Tone.BAD)))
    elif not decision.trace:
        children.append(Tree(line=Span("no rule was evaluated", Tone.QUIET)))
    reasons = Counter(_SKIPPED.get(step.reason, step.reason) for step in decision.trace if step.action is Action.SKIP)
    folded = not skipped and reasons.total() > 1
    children += [_step_tree(step) for step in decision.trace if not (folded and step.action is Action.SKIP)]
    if folded:
        by_reason = ", ".join(f"{count} {reason}" for reason, count in reasons.most_common())
        line = f"{format_count(reasons.total(), 'rule')} skipped: {by_reason} (--all shows each)"
        children.append(Tree(line=Span(line, Tone.QUIET)))
    return Tree(line=Span(name, Tone.STRONG), children=children)


def _step_tree(step: Step) -> Tree:
    word, tone = _WORDS[step.action]
    if step.audit and step.action not in (Action.SKIP, Action.PASS):
        word = f"{word} (audit mode)"
    text = ", ".join(map(str, step.fields)) or str(step.location)
    place = step.fields[0].location if step.fields else step.location
    line = (
        Span(step.rule, Tone.QUIET if step.action is Action.SKIP else Tone.STRONG),
        "  ",
        Span(word, tone),
        f": {step.message or step.reason}" if step.action is not Action.PASS else "",
        Span(f"  {text}", Tone.QUIET, place),
    )
    requests = (f"{request.container} requests {request.count} of {request.resource}" for request in step.requests)
    further: list[Words] = [
        *map(_amount_words, step.amounts),
        *(f"annotation {key}: {value}" for key, value in step.annotations.items()),
        *(Span(f"note: {note}", Tone.QUIET) for note in step.notes),
        # Most warnings repeat the message of the step.
        *(
            Span(f"warning: {warning}", Tone.WARNING)
            for warning in step.warnings
            if not step.message or step.message not in warning
        ),
    ]
    children = [*map(Tree, requests), *map(_resource_tree, step.resources), *map(Tree, further)]
    return Tree(line=line, children=children)


def _resource_tree(decision: ResourceDecision) -> Tree:
    if decision.reason == "placed":
        outcome = f"{decision.resource}: the pod gets the labels of its pool"
    else:
        outcome = decision.resource + (f" → {decision.to}" if decision.to else f" stays: {decision.reason}")
    attempts: list[Words] = [
        (
            Span("✓ ", Tone.GOOD) if attempt.taken else Span("✗ ", Tone.BAD),
            f"{attempt.resource}: {attempt.reason}",
            _field_span(attempt.field),
        )
        for attempt in decision.attempts
    ]
    return Tree(line=outcome, children=[*map(Tree, attempts)])


def _amount_words(amount: Amount) -> Words:
    before = amount.before if amount.before is not None else "none"
    return f"{amount.container}  {amount.resource}: {before} → {amount.after}", _field_span(amount.field)


def _field_span(field: Field | None) -> Span:
    return Span("", Tone.QUIET) if field is None else Span(f"  {field}", Tone.QUIET, field.location)


def _labels_text(of: str, labels: Mapping[str, str] | None) -> str:
    if labels is None:
        return f"any {of} labels"
    pairs = ",".join(f"{key}={value}" for key, value in sorted(labels.items()) if key != NAMESPACE_NAME_LABEL)
    return f"{of} labels {pairs}" if pairs else f"no {of} labels"


def _place_span(location: Location) -> Span:
    return Span(f"  {location}", Tone.QUIET, location)


def _rule_tree(item: EffectiveRule) -> Tree:
    rule = item.rule
    lines: list[Words] = []
    for first in item.preceded_by:
        when = "always decided" if first.always else "if both match, decided"
        names = ", ".join(first.resources)
        text = f"{names}: {when} by {first.rule.id}, which comes first by {first.by}"
        lines.append((Span(text, Tone.WARNING), _place_span(first.rule.location)))
    if item.more_preceding:
        lines.append(Span("more earlier rules may decide first", Tone.WARNING))
    lines += [_setting_words(setting, setting.location) for setting in item.settings if setting.location is not None]
    defaults = [setting for setting in item.settings if setting.location is None]
    if defaults:
        values = ", ".join(f"{setting.name} {_value_text(setting.value)}" for setting in defaults)
        lines.append(Span(f"defaults: {values}", Tone.QUIET))
    return Tree(
        line=(Span(rule.id, Tone.STRONG), _place_span(rule.location)),
        children=[*map(Tree, lines)],
    )


def _setting_words(setting: Setting, location: Location) -> Words:
    inherited = [Span(" (inherited)", Tone.QUIET)] if setting.inherited else []
    overridden = setting.overrides
    overrides = (
        [Span(f", overrides {_value_text(overridden.value)}", Tone.WARNING), _place_span(overridden.location)]
        if overridden is not None and overridden.location is not None
        else []
    )
    return (f"{setting.name}: ", _value_text(setting.value), _place_span(location), *inherited, *overrides)


def _value_text(value: Json) -> str:
    """Return a value as text in one line, at most MAX_VALUE characters."""
    match value:
        case None:
            text = "none"
        case str():
            text = " ".join(line.strip() for line in value.splitlines()) or '""'
        case [*items]:
            text = ", ".join(map(_value_text, items)) or "[]"
        case _:
            text = json.dumps(value, ensure_ascii=False)
    return truncate(text, MAX_VALUE)
