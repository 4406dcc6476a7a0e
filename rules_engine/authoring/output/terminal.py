"""Results as text, on a terminal or in a pipe."""

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TextIO

from rich.style import Style
from rich.text import Text
from rich.tree import Tree

from rules_engine.authoring.check import NOTHING_CHECKED, Checked
from rules_engine.authoring.effective import Effective, EffectiveRule
from rules_engine.authoring.eval import Evaluated, Failure
from rules_engine.authoring.explain import Explanation
from rules_engine.authoring.recorded import Record
from rules_engine.authoring.rule_files import DEFAULT_CLUSTER, DEFAULT_RULES
from rules_engine.authoring.rule_tests import CaseResult, Result, TestRun
from rules_engine.documents.references import Sources
from rules_engine.evaluation.admission import Admission
from rules_engine.model.cluster import NAMESPACE_NAME_LABEL
from rules_engine.model.decision import Action, Amount, Decision, ResourceDecision, Step
from rules_engine.model.effective import Setting
from rules_engine.model.excerpt import truncate, visible
from rules_engine.model.json.patch import Json
from rules_engine.model.problems import MAX_COLUMNS, Page, Problem, Severity, render
from rules_engine.model.source import Location
from rules_engine.terminal import WIDTH, console

MAX_VALUE = 120
"""Characters of a value in the text of `effective`: the place beside it has the whole value, and JSON too."""

MIN_TRACE = 40
"""Minimum width of a trace in columns: the frame of its innermost lines takes 16, and words must fit beside it."""

_INDENT = " " * 6
"""Indentation of what is written below the name of a failed case."""

_NONE = Style.null()
_BOLD = Style(bold=True)
_DIM = Style(dim=True)
_RED = Style(color="red")
_GREEN = Style(color="green")
_YELLOW = Style(color="yellow")
_CYAN = Style(color="cyan")

_WORDS: dict[Action, tuple[str, Style]] = {
    Action.SKIP: ("skipped", _DIM),
    Action.KEEP: ("unchanged", _CYAN),
    Action.PASS: ("passed", _GREEN),
    Action.CHANGE: ("changed", _YELLOW),
    Action.DENY: ("denied", _RED),
    Action.WARN: ("warned", _YELLOW),
    Action.RECORD: ("recorded", _YELLOW),
    Action.IGNORE: ("ignored", _YELLOW),
}


class Screen:
    """A stream for text for people, without other characters than ASCII's in the C locale.

    Source lines are cut to the width of a terminal and traces are wrapped within their frame; all other text is left to
    the terminal to wrap.
    """

    def __init__(self, stream: TextIO) -> None:
        self._console = console(stream)
        self._page = Page(columns=_terminal_columns(stream), encoding=stream.encoding or "utf-8")
        self._trace_columns = self._page.columns if stream.isatty() else WIDTH

    def problems(self, problems: Iterable[Problem | Failure], sources: Sources) -> None:
        """Print each problem with its source line and a caret."""
        for problem in problems:
            head, *below = render(problem, sources, self._page).split("\n")
            color = _RED if problem.severity is Severity.ERROR else _YELLOW
            place = visible(f"{problem.location}: ")
            line = Text.assemble(
                (place, _BOLD),
                (f"{problem.severity.value}: ", color + _BOLD),
                head.removeprefix(f"{place}{problem.severity.value}: "),
            )
            self._line(line)
            for index, text in enumerate(below):
                self._line(Text(text, style=color if index else _NONE))

    def checked(self, checked: Checked) -> None:
        """Print the problems that `check` found, and their number."""
        self.problems(checked.problems, checked.sources)
        ignored = len(checked.ignored)
        warnings = checked.warnings + ignored
        given = [
            *([_count(checked.errors, "error")] if checked.errors else []),
            *([_count(warnings, "warning")] if warnings else []),
        ]
        if ignored:
            given[-1] += f" ({ignored} ignored)"
        parts = [
            f"{_count(checked.files, 'file')} checked",
            *([f"{len(checked.passed_over)} passed over"] if checked.passed_over else []),
            *(given or ["no problems" if checked.files else NOTHING_CHECKED]),
        ]
        style = _RED if checked.errors else _YELLOW if checked.warnings or not checked.files else _GREEN
        self._line(Text(", ".join(parts), style=style + _BOLD))

    def tests(self, run: TestRun, *, quiet: bool = False) -> None:
        """Print each case with its mismatches, then the totals. `quiet`: nothing about cases that passed."""
        self.problems(run.problems, run.sources)
        for first, number in run.not_run_together:
            name = str(first.name) if number == 1 else f"{first.name.test}: {number} cases"
            self._line(
                Text.assemble(
                    ("not run", _RED + _BOLD),
                    f"  {visible(name)}, since {first.obstacle}",
                    (f"  {visible(str(first.name.case.location))}", _DIM),
                )
            )
        for result in run.results:
            if not (quiet and result.passed):
                self._case(result)
        if quiet and run.succeeded:
            return
        passed = len(run.results) - run.failures
        errors = sum(problem.severity is Severity.ERROR for problem in run.problems)
        parts = [
            f"{passed} passed",
            *([f"{run.failures} failed"] if run.failures else []),
            *([f"{len(run.not_run)} not run"] if run.not_run else []),
            *([f"{run.deselected} deselected"] if run.deselected else []),
            *([_count(errors, "error")] if errors else []),
        ]
        self._line(Text(", ".join(parts), style=(_GREEN if run.succeeded else _RED) + _BOLD))

    def assumed(self, *, rules: bool, cluster: bool = False) -> None:
        """Print that the packaged rules and the packaged cluster are used, where the user named none."""
        if rules:
            self._line(Text(f"rules: the packaged set {DEFAULT_RULES.name} (--rules names others)", style=_DIM))
        if cluster:
            text = f"cluster: the packaged inventory {DEFAULT_CLUSTER.stem} (--cluster names another one)"
            self._line(Text(text, style=_DIM))
        if rules or cluster:
            self.gap()

    def explained(self, explanation: Explanation, *, skipped: bool = False) -> None:
        """Print the trace as a tree, the changes as a diff, the warnings and the outcome.

        `skipped`: each rule that was skipped is in the tree; else only their number, if there are several.
        """
        title = Text.assemble((explanation.manifest.title, _BOLD), f" in namespace {visible(explanation.namespace)}")
        self._tree(_trace(explanation.admission, title, skipped=skipped))
        if explanation.admission.mutation.patch:
            self._line(Text())
            for line in explanation.diff:
                self._line(Text(line, style=_diff_style(line)))
        self._line(Text())
        self._warnings(explanation.admission.warnings)
        self._line(_outcome(explanation.admission))

    def recorded(self, record: Record, *, skipped: bool = False) -> None:
        """Print a decision of a decision log as `explained` does; the log has the patch, and not the pod."""
        tree = Tree(Text.assemble((record.pod, _BOLD), f" {record.title}"), guide_style=_DIM)
        _decision(tree, record.endpoint, record.decision, skipped=skipped)
        self._tree(tree)
        self._line(Text())
        for change in record.patch:
            self._line(Text(change, style=_RED if change.startswith("remove") else _GREEN))
        self._warnings(record.decision.warnings)
        if record.truncated:
            self._line(Text(f"shortened in the log: {', '.join(record.truncated)}", style=_YELLOW))
        self._line(_recorded_outcome(record))

    def effective(self, effective: Effective) -> None:
        """Print the rules that can apply in a namespace as a tree, then those that cannot."""
        title = Text.assemble(
            (f"namespace {effective.namespace}", _BOLD),
            f", {_labels('namespace', effective.labels)}, {_labels('pod', effective.pod_labels)}",
        )
        tree = Tree(title, guide_style=_DIM)
        branches: dict[str, Tree] = {}
        for item in effective.rules:
            name = item.endpoint.name.lower()
            if name not in branches:
                branches[name] = tree.add(Text(name, style=_BOLD))
            _effective_rule(branches[name], item)
        if not effective.rules:
            tree.add(Text("no rule can apply", style=_DIM))
        self._tree(tree)
        if effective.others:
            self.gap()
            self._line(Text("cannot apply here"))
        for other in effective.others:
            self._line(Text.assemble(f"  {other.rule.id}: {other.field}", _place(other.location)))

    def evaluated(self, evaluated: Evaluated) -> None:
        """Print the value of an expression, and its type."""
        self._line(Text.assemble(evaluated.value, (f" : {evaluated.type}", _DIM)))

    def gap(self) -> None:
        """Print an empty line between results."""
        self._line(Text())

    def _case(self, result: Result) -> None:
        mark = ("pass", _GREEN) if result.passed else ("FAIL", _RED + _BOLD)
        place = "" if result.passed else f"  {visible(str(result.name.case.location))}"
        self._line(Text.assemble(mark, f"  {visible(str(result.name))}", (place, _DIM)))
        if result.passed:
            return
        for mismatch in result.mismatches:
            self._line(Text(f"{_INDENT}{visible(mismatch.what)}", style=_BOLD))
            self._line(Text(f"{_INDENT}  - expected {visible(mismatch.expected)}", style=_RED))
            self._line(Text(f"{_INDENT}  + actual   {visible(mismatch.actual)}", style=_GREEN))
        if isinstance(result, CaseResult):
            self._tree(_trace(result.admission, Text("why", style=_DIM), skipped=True), _INDENT)

    def _warnings(self, warnings: Iterable[str]) -> None:
        for warning in warnings:
            self._line(Text.assemble(("warning: ", _YELLOW + _BOLD), visible(warning)))

    def _tree(self, tree: Tree, indent: str = "") -> None:
        """Print a tree. Lines that are too long for the terminal continue within its frame."""
        options = self._console.options.update(width=max(self._trace_columns - len(indent), MIN_TRACE))
        for line in self._console.render_lines(tree, options, pad=False):
            self._line(Text.assemble(indent, *((part.text, part.style or _NONE) for part in line)))

    def _line(self, text: Text) -> None:
        self._console.print(text)


def _terminal_columns(stream: TextIO) -> int:
    """Return the columns of a terminal, of COLUMNS if it is set; MAX_COLUMNS for files and pipes."""
    if not stream.isatty():
        return MAX_COLUMNS
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns):
        return int(columns)
    # 0 columns: the terminal does not know, as over a serial line.
    return os.get_terminal_size(stream.fileno()).columns or MAX_COLUMNS


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _diff_style(line: str) -> Style:
    if line.startswith(("---", "+++")):
        return _BOLD
    return {"-": _RED, "+": _GREEN, "@": _CYAN}.get(line[:1], _NONE)


def _outcome(admission: Admission) -> Text:
    if not admission.allowed:
        return Text.assemble(("denied: ", _RED + _BOLD), visible(admission.message))
    return _allowed(changed=bool(admission.mutation.patch))


def _recorded_outcome(record: Record) -> Text:
    if record.outcome in ("Allowed", "Changed"):
        return _allowed(changed=record.outcome == "Changed")
    message = f": {record.message}" if record.message else ""
    return Text.assemble((record.outcome.lower(), _RED + _BOLD), message)


def _allowed(*, changed: bool) -> Text:
    return Text.assemble(("allowed", _GREEN + _BOLD), f", {'changed' if changed else 'unchanged'}")


def _trace(admission: Admission, title: Text, *, skipped: bool) -> Tree:
    tree = Tree(title, guide_style=_DIM)
    _decision(tree, "mutate", admission.mutation, skipped=skipped)
    if admission.validation is None:
        tree.add(Text("validate: skipped, since the pod is already denied", style=_DIM))
    else:
        _decision(tree, "validate", admission.validation, skipped=skipped)
    return tree


def _decision(tree: Tree, name: str, decision: Decision, *, skipped: bool) -> None:
    branch = tree.add(Text(name, style=_BOLD))
    if decision.refusal is not None:
        branch.add(Text(visible(f"refused: {decision.refusal.message}"), style=_RED))
    elif not decision.trace:
        branch.add(Text("no rule was evaluated", style=_DIM))
    reasons = Counter(step.reason for step in decision.trace if step.action is Action.SKIP)
    folded = not skipped and reasons.total() > 1
    for step in decision.trace:
        if not (folded and step.action is Action.SKIP):
            _step(branch, step)
    if folded:
        by_reason = ", ".join(f"{count} {reason}" for reason, count in reasons.most_common())
        branch.add(Text(f"{reasons.total()} rules skipped: {by_reason} (--all shows each)", style=_DIM))


def _step(tree: Tree, step: Step) -> None:
    word, style = _WORDS[step.action]
    if step.audit and step.action not in (Action.SKIP, Action.PASS):
        word = f"{word} (audit mode)"
    details = step.message or step.reason
    branch = tree.add(
        Text.assemble(
            (step.rule, _DIM if step.action is Action.SKIP else _BOLD),
            "  ",
            (word, style),
            f": {visible(details)}" if step.action is not Action.PASS else "",
            (f"  {visible(', '.join(map(str, step.fields)) or str(step.location))}", _DIM),
        )
    )
    for request in step.requests:
        branch.add(Text(f"{visible(request.container)} requests {request.count} of {request.resource}"))
    for resource in step.resources:
        _resource(branch, resource)
    for amount in step.amounts:
        branch.add(_amount(amount))
    for key, value in step.annotations.items():
        branch.add(Text(f"annotation {key}: {visible(value)}"))
    for note in step.notes:
        branch.add(Text(f"note: {visible(note)}", style=_DIM))
    for warning in step.warnings:
        # Most warnings repeat the message of the step.
        if not step.message or step.message not in warning:
            branch.add(Text(f"warning: {visible(warning)}", style=_YELLOW))


def _resource(tree: Tree, decision: ResourceDecision) -> None:
    outcome = f"{decision.resource} → {decision.to}" if decision.to else f"{decision.resource} stays: {decision.reason}"
    branch = tree.add(Text(outcome))
    for attempt in decision.attempts:
        mark = ("✓ ", _GREEN) if attempt.taken else ("✗ ", _RED)
        place = f"  {attempt.field}" if attempt.field is not None else ""
        branch.add(Text.assemble(mark, f"{attempt.resource}: {attempt.reason}", (place, _DIM)))


def _amount(amount: Amount) -> Text:
    before = amount.before if amount.before is not None else "none"
    change = f"{visible(amount.container)}  {amount.resource}: {before} → {amount.after}"
    return Text.assemble(change, (f"  {amount.field}" if amount.field is not None else "", _DIM))


def _labels(of: str, labels: Mapping[str, str] | None) -> str:
    if labels is None:
        return f"any {of} labels"
    written = ",".join(f"{key}={value}" for key, value in sorted(labels.items()) if key != NAMESPACE_NAME_LABEL)
    return f"{of} labels {visible(written)}" if written else f"no {of} labels"


def _place(location: Location) -> tuple[str, Style]:
    return visible(f"  {location}"), _DIM


def _effective_rule(tree: Tree, item: EffectiveRule) -> None:
    rule = item.rule
    branch = tree.add(Text.assemble((rule.id, _BOLD), _place(rule.location)))
    for first in item.preceded_by:
        when = "always decided" if first.always else "if both match, decided"
        names = ", ".join(first.resources)
        text = f"{names}: {when} by {first.rule.id}, which comes first by {first.by}"
        branch.add(Text.assemble((text, _YELLOW), _place(first.rule.location)))
    if item.more_preceding:
        branch.add(Text("more earlier rules may decide first", style=_YELLOW))
    for setting in item.settings:
        if setting.location is not None:
            branch.add(_setting(setting, setting.location))
    defaults = [setting for setting in item.settings if setting.location is None]
    if defaults:
        values = ", ".join(f"{setting.name} {_value(setting.value)}" for setting in defaults)
        branch.add(Text(f"defaults: {values}", style=_DIM))


def _setting(setting: Setting, location: Location) -> Text:
    text = Text.assemble(f"{visible(setting.name)}: ", _value(setting.value), _place(location))
    if setting.inherited:
        text.append(" (inherited)", _DIM)
    overridden = setting.overrides
    if overridden is not None and overridden.location is not None:
        text.append(f", overrides {_value(overridden.value)}", _YELLOW)
        text.append(*_place(overridden.location))
    return text


def _value(value: Json) -> str:
    """Return a value as text in one line, an expression of several lines too; a long one is cut."""
    match value:
        case None:
            text = "none"
        case str():
            text = " ".join(line.strip() for line in value.splitlines()) or '""'
        case [*items]:
            text = ", ".join(map(_value, items)) or "[]"
        case _:
            text = json.dumps(value, ensure_ascii=False)
    return visible(truncate(text, MAX_VALUE))
