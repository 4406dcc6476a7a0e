"""`audit`: the results of rules in audit mode, from the decision logs of servers.

Only the groups of results are kept in memory, and at most MAX_GROUPS of them.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

from msgspec import Meta
from msgspec.structs import replace

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


class AuditGroup(Output, frozen=True, kw_only=True):
    """The decisions in which a rule would have had one result for the pods of one owner; an example is the newest."""

    rule: Annotated[str, Meta(description="Kind and name.")]
    action: Action
    failed: Annotated[bool, Meta(description="The rule could not be evaluated, and its failurePolicy acts.")]
    namespace: Annotated[str, Meta(description="Empty: all results beyond the other groups.")] = ""
    kind: Annotated[str, Meta(description="Of the pods' controller; Pod without one.")] = ""
    name: Annotated[str, Meta(description="Of the controller or pod, with `*` for its generated end.")] = ""
    decisions: Annotated[int, Meta(description="Number of decisions.")] = 0
    time: Annotated[str, Meta(description="Of the example.")] = ""
    pod: Annotated[str, Meta(description="Of the example: its name, or its generateName and `*`.")] = ""
    message: Annotated[str, Meta(description="Of the example, or the change; empty if the log lacks it.")] = ""


class AuditAnswer(Answer, frozen=True, kw_only=True):
    """The results of rules in audit mode for the pods of decision logs."""

    logs: Annotated[tuple[str, ...], Meta(description="Files.")]
    decisions: Annotated[int, Meta(description="Lines of decisions: each is one call for one pod.")]
    refused: Annotated[int, Meta(description="About a pod that the server cannot read: mode Enforce denies it.")]
    outlined: Annotated[int, Meta(description="Decisions too long for a line, which lacks changes and messages.")]
    first: Annotated[str, Meta(description="Time of the first decision.")]
    last: Annotated[str, Meta(description="Time of the last decision.")]
    actions: Annotated[Mapping[Action, int], Meta(description="Decisions by action; one may have several.")]
    groups: Annotated[tuple[AuditGroup, ...], Meta(description="The largest first.")]


def audit_logs(paths: Sequence[Path]) -> AuditAnswer:
    """Return the results of rules in audit mode. An error is a log that cannot be read, or has no decision."""
    groups, newest = Counter[AuditGroup](), dict[AuditGroup, tuple[str, str, str]]()
    actions = Counter[Action]()
    first, last, decisions, refused, outlined, problems = "", "", 0, 0, 0, Problems()
    for path in paths:
        log = DecisionLogReader(path, LogLine, problems)
        for line in log:
            time = f"{line.time[:19]}Z"  # without the fraction of the second
            first, last = min(first or time, time), max(last, time)
            refused += line.status is not None and line.outcome == ALLOWED
            outlined += "trace" in line.truncated
            steps = [step for step in line.trace if step.audit and step.action not in (Action.SKIP, Action.PASS)]
            actions.update({step.action for step in steps})
            for step in steps:
                group = _group_of(line, step)
                if group not in groups and len(groups) >= MAX_GROUPS:
                    group = AuditGroup(rule=group.rule, action=group.action, failed=group.failed)
                groups[group] += 1
                example = time, line.pod, truncate(step.message, MAX_TEXT)
                newest[group] = max(newest.get(group, example), example)
        decisions += log.decisions
    return AuditAnswer(
        problems=(*problems.items,),
        logs=tuple(map(str, paths)),
        decisions=decisions,
        refused=refused,
        outlined=outlined,
        first=first,
        last=last,
        actions=dict(actions.most_common()),
        groups=tuple(
            replace(group, decisions=count, time=time, pod=pod, message=message)
            for group, count in groups.most_common()
            for time, pod, message in [newest[group]]
        ),
    )


def _group_of(line: LogLine, step: LoggedStep) -> AuditGroup:
    kind, name = (line.owner.kind, line.owner.name) if line.owner else ("Pod", line.pod)
    return AuditGroup(
        rule=step.rule,
        action=step.action,
        failed=step.reason == EVALUATION_ERROR,
        namespace=line.namespace,
        kind=kind,
        name=without_generated_end(name),
        # Other messages may quote the pod, and would make a group for each.
        message=truncate(step.message, MAX_TEXT) if step.action is Action.CHANGE else "",
    )


def audit_report(answer: AuditAnswer) -> Report:
    """Return the report of an answer: the numbers, then each result with its owners."""
    results: dict[tuple[object, ...], list[AuditGroup]] = {}
    for group in answer.groups:
        change = group.action is Action.CHANGE and group.message
        results.setdefault((group.rule, group.action, group.failed, change), []).append(group)
    largest = sorted(results.values(), key=lambda groups: -sum(each.decisions for each in groups))
    items = Items(items=[*map(_result_item, largest)], noun="result")
    section = Section(title="Results", summary=format_count(len(largest), "result"), blocks=(items,))
    actions = ", ".join(f"{count:,} {ACTION_WORDS[action][0]}" for action, count in answer.actions.items())
    notices = []
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
        answer=[
            f"{format_count(answer.decisions, 'decision')}, by rules in audit mode: {actions or 'no result'}",
            f"from {answer.first} to {answer.last}",
        ],
        sections=[section] if results else [],
        notices=notices,
    )


def _result_item(groups: Sequence[AuditGroup]) -> Item:
    first, count = groups[0], sum(each.decisions for each in groups)
    word, tone = ACTION_WORDS[first.action]
    change = f": {first.message}" if first.action is Action.CHANGE and first.message else ""
    rows = [
        (each.namespace or "others", f"{each.kind} {each.name}", f"{each.decisions:,}", each.time, each.pod)
        for each in groups
    ]
    heads = ("namespace", "owner", "decisions", "newest", "pod")
    outcome = Span(f"{word}{', since it failed' * first.failed}{change}", tone)
    return Item(
        title=(f"{first.rule}  ", outcome, f"  {format_count(count, 'decision')}"),
        tone=tone,
        fields=[ItemField("message", first.message)] if first.message and not change else [],
        table=Table(heads=heads, rows=rows, numbers=("decisions",), noun="owner"),
    )
