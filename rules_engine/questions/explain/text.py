"""Decisions and rules as text: trees, lines and problems."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from msgspec import UNSET

from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.cluster import NAMESPACE_NAME_LABEL
from rules_engine.model.problems.source import Location, truncate
from rules_engine.model.rules.decision import Action
from rules_engine.model.rules.logged_decision import (
    LoggedAmount,
    LoggedDecision,
    LoggedMember,
    LoggedOperation,
    LoggedResource,
    LoggedStep,
)
from rules_engine.model.rules.rule import Setting
from rules_engine.model.wording import format_count
from rules_engine.questions.explain.explain import Explanation, Verdict
from rules_engine.questions.explain.recorded import LogLine
from rules_engine.questions.explain.rule_list import ListedRule, RuleList
from rules_engine.report.text import WITHOUT_RULES, Screen
from rules_engine.report.values import Block, Lines, Span, Table, Tone, Tree, Words
from rules_engine.rules.sources.rule_files import DEFAULT_CLUSTER

MAX_VALUE = 120
"""Characters of a value in the text of `list`: the location that follows it leads to the whole value."""

ACTION_WORDS: Mapping[Action, tuple[str, Tone]] = {
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


def default_inputs(*, rules: bool, cluster: bool) -> Lines:
    """Return lines about inputs that are not given: no rules, and the packaged inventory."""
    packaged = f"cluster: the packaged inventory {DEFAULT_CLUSTER.stem} (use --cluster for another one)"
    lines: list[Words] = [*[WITHOUT_RULES] * rules, *[Span(packaged, Tone.QUIET)] * cluster]
    return Lines(lines=[*lines, ""] if lines else [], whole=True)


def explanation_blocks(explanation: Explanation, *, skipped: bool = False) -> Iterator[Block]:
    """Yield the trace as a tree, the changes as a diff, the warnings and the outcome.

    `skipped`: show each skipped rule; else several are shown as one line with their number.
    """
    answer = explanation.answer
    yield trace_tree(answer.mutation, answer.validation, Span(explanation.title, Tone.STRONG), skipped=skipped)
    changed = bool(answer.mutation.patch)
    diff = ["", *map(_diff_line, explanation.diff)] if changed else []
    outcome: Words
    match answer.verdict:
        case Verdict.ALLOWED:
            outcome = _allowed_words(changed=changed)
        case Verdict.DENIED:
            outcome = Span("denied", Tone.BAD), f": {answer.message}"
        case Verdict.REFUSED:
            outcome = Span("refused", Tone.BAD), f" by the API server itself: {answer.message}"
        case Verdict.UNKNOWN:
            reads = "; ".join(f"{each.rule} reads {', '.join(each.reads)}" for each in answer.unknown)
            outcome = Span("unknown", Tone.WARNING), f": {reads}, which the input lacks"
    not_read = [(Span("not known", Tone.WARNING), f": {each}") for each in answer.not_read]
    yield Lines(lines=[*diff, "", *_warning_lines(answer.warnings), *not_read, outcome], whole=True)


def decision_blocks(line: LogLine, *, skipped: bool = False) -> Iterator[Block]:
    """Yield a logged decision in the form of `explanation_blocks`, but with the patch: few logs have the pod."""
    by = f" by {line.user}" if line.user else ""
    digest = f", rules {line.rules.digest[:12]}" if line.rules is not None and line.rules.digest else ""
    dry_run = ", dry run" if line.dry_run else ""
    title = (Span(f"{line.namespace}/{line.pod}", Tone.STRONG), f" at {line.time}{by}{digest}{dry_run}")
    refused = "" if line.trace or line.status is None else line.message
    yield Tree(line=title, children=[_decision_tree(line.endpoint, line.trace, refused, skipped=skipped)])
    lines: list[Words] = ["", *map(_operation_line, line.patch), *_warning_lines(line.warnings)]
    if line.truncated:
        lines.append(Span(f"shortened in the log: {', '.join(line.truncated)}", Tone.WARNING))
    if line.outcome in ("Allowed", "Changed"):
        lines.append(_allowed_words(changed=line.outcome == "Changed"))
    else:
        message = f": {line.message}" if line.message else ""
        lines.append((Span(line.outcome.lower(), Tone.BAD), message))
    yield Lines(lines=lines, whole=True)


def print_rules(listing: RuleList, screen: Screen) -> None:
    """Print a table of the rules and Diagnostics, and the digest; or the rules that can apply in a namespace."""
    if listing.namespace is not None:
        screen.blocks(_applicable_blocks(listing, listing.namespace))
        return
    rules = [(each.kind, each.name, each.mode.value, str(each.priority), str(each.source)) for each in listing.rules]
    diagnostics = [("Diagnostic", each.name, "-", "-", str(each.source)) for each in listing.diagnostics]
    rows = [*rules, *diagnostics]
    screen.table(Table(heads=("kind", "name", "mode", "priority", "place"), rows=rows), 0, len(rows))
    screen.line(f"digest {listing.digest}")


def _applicable_blocks(listing: RuleList, namespace: str) -> Iterator[Block]:
    labels = f", {_labels_text('namespace', listing.labels)}, {_labels_text('pod', listing.pod_labels)}"
    branches: dict[str, list[Tree]] = {}
    for rule in listing.rules:
        branches.setdefault(rule.endpoint, []).append(_rule_tree(rule))
    children = [Tree(line=Span(name, Tone.STRONG), children=rules) for name, rules in branches.items()]
    none = [Tree(line=Span("no rule can apply", Tone.QUIET))]
    yield Tree(line=(Span(f"namespace {namespace}", Tone.STRONG), labels), children=children or none)
    if listing.excluded:
        lines = [(f"  {each.rule}: {each.field}", place_span(each.source)) for each in listing.excluded]
        yield Lines(lines=["", "cannot apply here", *lines], whole=True)


def _warning_lines(warnings: Sequence[str]) -> Sequence[Words]:
    return [(Span("warning: ", Tone.WARNING), warning) for warning in warnings]


def _diff_line(line: str) -> Words:
    if line.startswith(("---", "+++")):
        return Span(line, Tone.STRONG)
    tone = {"-": Tone.BAD, "+": Tone.GOOD, "@": Tone.INFO}.get(line[:1])
    return line if tone is None else Span(line, tone)


def _operation_line(operation: LoggedOperation) -> Words:
    value = "" if operation.value is UNSET else f" {json.dumps(operation.value, ensure_ascii=False)}"
    tone = Tone.BAD if operation.op == "remove" else Tone.GOOD
    return Span(f"{operation.op} {operation.path}{value}", tone)


def _allowed_words(*, changed: bool) -> Words:
    return Span("allowed", Tone.GOOD), f", {'changed' if changed else 'unchanged'}"


def trace_tree(mutation: LoggedDecision, validation: LoggedDecision | None, title: Words, *, skipped: bool) -> Tree:
    if validation is None:
        second = Tree(line=Span("validate: skipped, since the pod is already denied", Tone.QUIET))
    else:
        second = _decision_tree("validate", validation.trace, validation.refused, skipped=skipped)
    first = _decision_tree("mutate", mutation.trace, mutation.refused, skipped=skipped)
    return Tree(line=title, children=[first, second])


def _decision_tree(name: str, trace: Sequence[LoggedStep], refused: str, *, skipped: bool) -> Tree:
    children: list[Tree] = []
    if refused:
        children.append(Tree(line=Span(f"refused: {refused}", Tone.BAD)))
    elif not trace:
        children.append(Tree(line=Span("no rule was evaluated", Tone.QUIET)))
    reasons = Counter(_SKIPPED.get(step.reason, step.reason) for step in trace if step.action is Action.SKIP)
    folded = not skipped and reasons.total() > 1
    children += [_step_tree(step) for step in trace if not (folded and step.action is Action.SKIP)]
    if folded:
        by_reason = ", ".join(f"{count} {reason}" for reason, count in reasons.most_common())
        line = f"{format_count(reasons.total(), 'rule')} skipped: {by_reason} (--all shows each)"
        children.append(Tree(line=Span(line, Tone.QUIET)))
    return Tree(line=Span(name, Tone.STRONG), children=children)


def _step_tree(step: LoggedStep) -> Tree:
    word, tone = ACTION_WORDS[step.action]
    if step.audit and step.action not in (Action.SKIP, Action.PASS):
        word = f"{word} (audit mode)"
    further_fields = "".join(f", {each.source} {each.field}" for each in step.further_fields)
    line = (
        Span(step.rule, Tone.QUIET if step.action is Action.SKIP else Tone.STRONG),
        "  ",
        Span(word, tone),
        f": {step.message or step.reason}" if step.action is not Action.PASS else "",
        _field_span(step.source, f"{step.field}{further_fields}"),
    )
    requests = (f"{request.container} requests {request.count} of {request.resource}" for request in step.requests)
    further: list[Words] = [
        *map(_amount_words, step.amounts),
        *(f"annotation {key}: {value}" for key, value in step.annotations.items()),
        *_member_lines(step.members),
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


def _resource_tree(decision: LoggedResource) -> Tree:
    if decision.reason == "placed":
        outcome = f"{decision.resource}: the pod gets the labels of its pool"
    else:
        outcome = decision.resource + (f" → {decision.to}" if decision.to else f" stays: {decision.reason}")
    attempts: list[Words] = [
        (
            Span("✓ ", Tone.GOOD) if attempt.taken else Span("✗ ", Tone.BAD),
            f"{attempt.resource}: {attempt.reason}",
            _field_span(attempt.source, attempt.field),
        )
        for attempt in decision.attempts
    ]
    return Tree(line=outcome, children=[*map(Tree, attempts)])


def _amount_words(amount: LoggedAmount) -> Words:
    before = amount.before if amount.before is not None else "none"
    words = f"{amount.container}  {amount.resource}: {before} → {amount.after}"
    return words, _field_span(amount.source, amount.field)


def _member_lines(members: Sequence[LoggedMember]) -> Iterator[str]:
    """Yield a line for each member; containers with the same one share a line."""
    containers: dict[str, list[str]] = {}
    for each in members:
        field, _, name = each.member.partition(".")
        text = f"{field} {'='.join(filter(None, (name, each.text)))}{' (replaced)' if each.replaced else ''}"
        containers.setdefault(text, []).append(each.container)
    yield from (f"{', '.join(names)}: {text}" if names[0] else text for text, names in containers.items())


def _field_span(source: str, field: str) -> Span:
    return Span(f"  {source} {field}".rstrip(), Tone.QUIET, Location.parse(source))


def _labels_text(of: str, labels: Mapping[str, str] | None) -> str:
    if labels is None:
        return f"any {of} labels"
    pairs = ",".join(f"{key}={value}" for key, value in sorted(labels.items()) if key != NAMESPACE_NAME_LABEL)
    return f"{of} labels {pairs}" if pairs else f"no {of} labels"


def place_span(location: Location) -> Span:
    return Span(f"  {location}", Tone.QUIET, location)


def _rule_tree(rule: ListedRule) -> Tree:
    settings = rule.settings or ()
    lines = [_setting_words(setting, setting.location) for setting in settings if setting.location is not None]
    defaults = [setting for setting in settings if setting.location is None]
    if defaults:
        values = ", ".join(f"{setting.name} {_value_text(setting.value)}" for setting in defaults)
        lines.append(Span(f"defaults: {values}", Tone.QUIET))
    return Tree(
        line=(Span(f"{rule.kind}/{rule.name}", Tone.STRONG), place_span(rule.source)), children=[*map(Tree, lines)]
    )


def _setting_words(setting: Setting, location: Location) -> Words:
    inherited = [Span(" (inherited)", Tone.QUIET)] if setting.inherited else []
    overridden = setting.overrides
    overrides = (
        [Span(f", overrides {_value_text(overridden.value)}", Tone.WARNING), place_span(overridden.location)]
        if overridden is not None and overridden.location is not None
        else []
    )
    return (f"{setting.name}: ", _value_text(setting.value), place_span(location), *inherited, *overrides)


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
