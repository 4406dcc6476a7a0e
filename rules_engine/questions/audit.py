"""`audit`: what rules in audit mode would have done, by the decision logs of servers.

Only the groups of results are kept in memory, and at most MAX_GROUPS of them.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated

from msgspec import Meta
from msgspec.structs import asdict

from rules_engine.language.files import report_unreadable
from rules_engine.model.json.output import Output
from rules_engine.model.kubernetes.api_defaults import without_generated_end
from rules_engine.model.problems.problem import Problems
from rules_engine.model.problems.source import truncate
from rules_engine.model.rules.decision import ALLOWED, EVALUATION_ERROR, Action
from rules_engine.model.rules.logged_decision import LoggedStep
from rules_engine.model.wording import format_count
from rules_engine.questions.decision_log import DecisionLogReader
from rules_engine.questions.explain.recorded import LogLine
from rules_engine.questions.explain.text import ACTION_WORDS
from rules_engine.report.answer import Answer
from rules_engine.report.values import Item, ItemField, Items, Report, Section, Span, Table

MAX_GROUPS = 10_000
"""Groups with a namespace and an owner, some 10 MB. Results of further ones are grouped by rule and action only."""

MAX_TEXT = 300
"""Characters of a message that are kept."""

_SHOWN_ACTIONS = (Action.DENY, Action.CHANGE, Action.WARN, Action.RECORD, Action.IGNORE, Action.KEEP)


class AuditResult(Output, frozen=True, kw_only=True):
    """What a rule would have done to the pods of one owner."""

    rule: Annotated[str, Meta(description="Kind and name.")]
    action: Action
    failed: Annotated[bool, Meta(description="The rule could not be evaluated, and its failurePolicy acts.")]
    change: Annotated[str, Meta(description="Of the action change; empty if the log lacks it.")] = ""
    namespace: Annotated[str, Meta(description="Empty: all results beyond the other groups.")] = ""
    kind: Annotated[str, Meta(description="Of the pods' controller; Pod without one.")] = ""
    name: Annotated[str, Meta(description="Of the controller or pod, with `*` for its generated end.")] = ""


class AuditGroup(AuditResult, frozen=True, kw_only=True):
    """The decisions with a result, and the newest of them as an example."""

    decisions: Annotated[int, Meta(description="With this result.")]
    time: Annotated[str, Meta(description="Of the example.")]
    pod: Annotated[str, Meta(description="Of the example: its name, or its generateName and `*`.")]
    message: Annotated[str, Meta(description="Of the example; empty if the log lacks it.")]


class AuditAnswer(Answer, frozen=True, kw_only=True):
    """What rules in audit mode would have done to the pods of decision logs."""

    logs: Annotated[tuple[str, ...], Meta(description="Files.")]
    lines: Annotated[int, Meta(description="Lines that were read.")]
    unreadable: Annotated[Mapping[str, int], Meta(description="Lines that are not decisions, by reason.")]
    decisions: Annotated[int, Meta(description="Lines of decisions: each is one call for one pod.")]
    refused: Annotated[int, Meta(description="About a pod that the server cannot read: mode Enforce denies it.")]
    outlined: Annotated[int, Meta(description="Decisions too long for a line, which lacks changes and messages.")]
    first: Annotated[str, Meta(description="Time of the first decision.")]
    last: Annotated[str, Meta(description="Time of the last decision.")]
    audited: Annotated[int, Meta(description="Decisions with a result of a rule in audit mode.")]
    actions: Annotated[Mapping[Action, int], Meta(description="These by action; a decision may have several.")]
    groups: Annotated[tuple[AuditGroup, ...], Meta(description="The largest first.")]


def audit_logs(paths: Sequence[Path], problems: Problems) -> AuditAnswer:
    """Return the results of rules in audit mode. An error is a log that cannot be read, or has no decision."""
    logs = [DecisionLogReader(path, LogLine) for path in paths]
    actions, groups, newest = Counter[Action](), Counter[AuditResult](), dict[AuditResult, tuple[str, str, str]]()
    first, last, refused, outlined, audited = "", "", 0, 0, 0
    for line in _decisions(logs, problems):
        first, last = min(first or line.time, line.time), max(last, line.time)
        refused += line.status is not None and line.outcome == ALLOWED
        outlined += "trace" in line.truncated
        steps = [step for step in line.trace if step.audit and step.action in _SHOWN_ACTIONS]
        audited += bool(steps)
        actions.update({step.action for step in steps})
        for step in steps:
            result = _result(line, step)
            if result not in groups and len(groups) >= MAX_GROUPS:
                result = AuditResult(rule=result.rule, action=result.action, failed=result.failed)
            groups[result] += 1
            example = line.time, line.pod, truncate(step.message, MAX_TEXT)
            newest[result] = max(newest.get(result, example), example)
    unreadable = sum((log.unreadable for log in logs), Counter[str]())
    lines = sum(log.lines for log in logs)
    return AuditAnswer(
        logs=tuple(map(str, paths)),
        lines=lines,
        unreadable=dict(unreadable.most_common()),
        decisions=lines - unreadable.total(),
        refused=refused,
        outlined=outlined,
        first=first,
        last=last,
        audited=audited,
        actions={action: actions[action] for action in _SHOWN_ACTIONS if action in actions},
        groups=tuple(
            AuditGroup(**asdict(result), decisions=count, time=time, pod=pod, message=message)
            for result, count in groups.most_common()
            for time, pod, message in [newest[result]]
        ),
    )


def _decisions(logs: Iterable[DecisionLogReader[LogLine]], problems: Problems) -> Iterator[LogLine]:
    for log in logs:
        try:
            yield from (line for line, _ in log.decisions(problems))
        except OSError as error:
            report_unreadable(log.path, error, problems)


def _result(line: LogLine, step: LoggedStep) -> AuditResult:
    kind, name = (line.owner.kind, line.owner.name) if line.owner else ("Pod", line.pod)
    return AuditResult(
        rule=step.rule,
        action=step.action,
        failed=step.reason == EVALUATION_ERROR,
        # Other messages may quote the pod, and would make a group for each.
        change=truncate(step.message, MAX_TEXT) if step.action is Action.CHANGE else "",
        namespace=line.namespace,
        kind=kind,
        name=without_generated_end(name),
    )


def audit_report(answer: AuditAnswer) -> Report:
    """Return the report of an answer: the numbers, then each result with its owners."""
    results: dict[tuple[object, ...], list[AuditGroup]] = {}
    for group in answer.groups:
        results.setdefault((group.rule, group.action, group.failed, group.change), []).append(group)
    largest = sorted(results.values(), key=lambda groups: -sum(each.decisions for each in groups))
    actions = ", ".join(f"{count:,} {ACTION_WORDS[action][0]}" for action, count in answer.actions.items())
    items = Items(items=[*map(_result_item, largest)], noun="result")
    section = Section(title="Results", summary=format_count(len(largest), "result"), blocks=(items,))
    decisions = format_count(answer.decisions, "decision")
    found = (
        f"audit results in {answer.audited:,} of {decisions}: {actions}"
        if actions
        else f"no audit results in {decisions}"
    )
    notices = [f"{format_count(count, 'line')} left out: {reason}" for reason, count in answer.unreadable.items()]
    if answer.refused:
        refused = format_count(answer.refused, "decision")
        notices.append(f"{refused} about a pod that the server cannot read: mode Enforce denies it")
    if answer.outlined:
        outlined = format_count(answer.outlined, "decision")
        notices.append(f"{outlined} too long for a line: without changes and messages, perhaps without some results")
    if len(answer.groups) > MAX_GROUPS:
        notices.append(f"results beyond {MAX_GROUPS:,} groups are counted by rule and action only")
    return Report(
        title="Audit",
        about=answer.logs,
        answer=[found, f"from {_second(answer.first)} to {_second(answer.last)}"],
        sections=[section] if results else [],
        notices=notices,
    )


def _result_item(groups: Sequence[AuditGroup]) -> Item:
    first, count = groups[0], sum(each.decisions for each in groups)
    word, tone = ACTION_WORDS[first.action]
    outcome = f"{word}{', since it failed' if first.failed else ''}{first.change and f': {first.change}'}"
    owners = [
        (each.namespace or "others", f"{each.kind} {each.name}", f"{each.decisions:,}", _second(each.time), each.pod)
        for each in groups
    ]
    return Item(
        title=(f"{first.rule}  ", Span(outcome, tone), f"  {format_count(count, 'decision')}"),
        tone=tone,
        fields=[ItemField("message", first.message)] if first.message not in ("", first.change) else [],
        table=Table(
            heads=("namespace", "owner", "decisions", "newest", "pod"),
            rows=owners,
            numbers=("decisions",),
            noun="owner",
        ),
    )


def _second(time: str) -> str:
    """Return a time of a log without the fraction of its second."""
    return f"{time[:19]}Z"
