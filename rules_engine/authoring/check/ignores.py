"""Comments that ignore warnings: `# gpu-rules: ignore[code] reason`."""

import os
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from rules_engine.authoring.check.problem_reference import nearest_code, reference_entries
from rules_engine.language.files import STDIN, SUFFIXES
from rules_engine.language.yaml.comments import Comment, find_comments
from rules_engine.model.json.output import Output
from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.problem import Problem, Severity, warning
from rules_engine.model.problems.source import Location, truncate
from rules_engine.rules.sources.rule_files import has_errors

_ATTEMPT = re.compile(r"#[ \t]*gpu-?rules[ \t]*:?[ \t]*(?:ignore\b|\w+[ \t]*\[).*", re.IGNORECASE)
"""A comment that is probably meant to ignore a warning, also if misspelt."""

_FORM = re.compile(r"# *gpu-rules: *ignore\[([^\[\]]*)\](.*)")
_CODE = re.compile(r"[^\s,]+")
_REASON = re.compile(r"\w.*")

_entries_by_code = cache(reference_entries)
"""Cached entries of all codes, since a rule file may have thousands of comments."""


class IgnoredWarning(Output, frozen=True, kw_only=True):
    """A warning that a comment ignores."""

    problem: Problem
    reason: Annotated[str, Meta(description="In the comment.")]


def apply_ignores(
    problems: Sequence[Problem], sources: Mapping[str, Sequence[str]], files: Sequence[str], *, on_cluster: bool = False
) -> tuple[tuple[Problem, ...], tuple[IgnoredWarning, ...]]:
    """Return the remaining problems, including problems of comments, and the ignored warnings.

    A comment that ignores nothing is a warning, unless the warning it is for may be missing for another reason: errors
    hide warnings, and `files`, the files checked, may lack a file of the same folder whose rules cause it.
    `on_cluster`: the rules were checked on a cluster, which some warnings need.
    """
    ignored: dict[Problem, IgnoredWarning] = {}
    wrong: list[Problem] = []
    unused: list[Problem] = []
    by_file: defaultdict[str, list[Problem]] = defaultdict(list)
    for problem in problems:
        by_file[problem.location.file].append(problem)
    for name, lines in sources.items():
        run = _FileComments(name, lines, by_file[name], on_cluster=on_cluster)
        ignored.update(run.ignored)
        wrong.extend(run.wrong)
        if run.unused and name in files and (name == str(STDIN) or _has_all_files(Path(name).parent, files)):
            unused.extend(run.unused)
    kept = [*(problem for problem in problems if problem not in ignored), *wrong]
    if not has_errors(kept):
        kept.extend(unused)
    return tuple(kept), tuple(ignored.values())


class _FileComments:
    """The comments of one file, applied to its problems."""

    def __init__(self, name: str, lines: Sequence[str], problems: Sequence[Problem], *, on_cluster: bool) -> None:
        self.ignored: dict[Problem, IgnoredWarning] = {}
        self.wrong: list[Problem] = []
        self.unused: list[Problem] = []
        self._name = name
        self._on_cluster = on_cluster
        comments = find_comments(lines, _ATTEMPT)
        for comment in comments.found:
            self._apply(comment, [each for each in problems if comments.about(comment, each.location.line)])

    def _apply(self, comment: Comment, problems: Sequence[Problem]) -> None:
        text, start = comment.found.group(), comment.found.start()
        form = _FORM.fullmatch(text)
        codes = [*_CODE.finditer(form[1])] if form else []
        if form is None or not codes:
            self._error("write # gpu-rules: ignore[CODE] and the reason", comment, start, len(text.rstrip()))
            return
        reason_match = _REASON.search(form[2])
        if reason_match is None:
            message = "an ignored warning needs a reason: write it after the bracket"
            self._error(message, comment, start, len(text.rstrip()))
        reason = reason_match.group().strip() if reason_match else ""
        entries = _entries_by_code()
        by_name = {str(code): code for code in entries}
        for match in codes:
            name, column = match.group(), start + form.start(1) + match.start()
            length = len(name)
            code = by_name.get(name)
            if code is None:
                hint = nearest_code(name, by_name)
                self._error(f"unknown code '{truncate(name)}'{hint}", comment, column, length)
                continue
            same = [problem for problem in problems if problem.code == code]
            warnings = [problem for problem in same if problem.severity is Severity.WARNING]
            for problem in warnings:
                self.ignored[problem] = IgnoredWarning(problem=problem, reason=reason)
            if not warnings and (same or entries[code].severity is Severity.ERROR):
                self._error(f"{code} is an error: only warnings can be ignored", comment, column, length)
            elif not warnings and (self._on_cluster or not entries[code].needs_cluster):
                message = f"line {comment.target} has no warning {code}: delete it from this comment"
                place = Location(self._name, comment.line, column + 1)
                self.unused.append(warning(Code.UNUSED_IGNORE, message, place, code))

    def _error(self, message: str, comment: Comment, column: int, length: int) -> None:
        place = Location(self._name, comment.line, column + 1)
        self.wrong.append(Problem(code=Code.BAD_IGNORE, message=message, location=place, length=length))


def _has_all_files(folder: Path, files: Sequence[str]) -> bool:
    """Return True if `files` has all rule files of a folder; True for a folder that cannot be read."""
    checked = {os.path.realpath(file) for file in files}
    try:
        return all(
            os.path.realpath(path) in checked
            for path in folder.iterdir()
            if path.suffix in SUFFIXES and not path.name.startswith(".")
        )
    except OSError:
        return True
