"""Comments of YAML files, distinguished from `#` in values by the positions of the scanner."""

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import yaml

from rules_engine.language.files import LINE_END
from rules_engine.language.yaml import documents
from rules_engine.language.yaml.documents import DocumentText
from rules_engine.language.yaml.positions import Mark


@dataclass(frozen=True, slots=True, kw_only=True)
class Comment:
    """A comment; `found` is the match in its line, and lines count from 1.

    `target` is the line that the comment applies to: its own, or the first line below comments on lines of their own.
    """

    found: re.Match[str]
    line: int
    target: int


@dataclass(frozen=True, slots=True)
class Comments:
    """The comments of a file. `first_lines` maps each further line of a value to the line where the value begins."""

    found: tuple[Comment, ...]
    first_lines: Mapping[int, int]

    def about(self, comment: Comment, line: int) -> bool:
        """Return True if a comment applies to a line, or to another line of the same value."""
        return self.first_lines.get(comment.target, comment.target) == self.first_lines.get(line, line)


@dataclass(frozen=True, slots=True)
class _MarkedScalar:
    """A scalar with its marks; `text` is after the indicator of a block scalar, which a comment may follow."""

    start: Mark
    text: Mark
    end: Mark


def find_comments(lines: Sequence[str], pattern: re.Pattern[str]) -> Comments:
    """Find the comments of a file that match a pattern, which begins with `#`.

    It finds no comments after a syntax error in their document, and none inside other comments.
    """
    comments: list[Comment] = []
    first_lines: dict[int, int] = {}
    text = "\n".join(lines)
    for part in documents.split_documents(text) if pattern.search(text) else ():
        if pattern.search(part.text):
            values = [*_scan_values(part)]
            comments.extend(_match_comments(part, values, pattern))
            for value in values:
                for line in range(value.start[0] + 1, value.end[0] + (value.end[1] > 0)):
                    first_lines.setdefault(line + 1, value.start[0] + 1)
    return Comments(tuple(comments), first_lines)


def _scan_values(part: DocumentText) -> Iterator[_MarkedScalar]:
    end: Mark = (part.line, 0)
    try:
        for token in yaml.scan(part.text, Loader=documents.LOADER):
            end = (part.line + token.end_mark.line, token.end_mark.column)
            if isinstance(token, yaml.ScalarToken):
                start = (part.line + token.start_mark.line, token.start_mark.column)
                yield _MarkedScalar(start, (start[0] + 1, 0) if token.style in ("|", ">") else start, end)
    except yaml.YAMLError:
        yield _MarkedScalar(end, end, (part.line + len(LINE_END.split(part.text)), 0))


def _match_comments(part: DocumentText, values: Sequence[_MarkedScalar], pattern: re.Pattern[str]) -> Iterator[Comment]:
    alone: list[tuple[re.Match[str], int]] = []
    for line, text in enumerate(LINE_END.split(part.text), part.line):
        # Try each #: a match that begins in a value may reach into the comment after it.
        matches = (pattern.match(text, mark.start()) for mark in re.finditer("#", text))
        match = next((m for m in matches if m and _is_comment(text, line, m.start(), values)), None)
        if match is not None and not text[: match.start()].strip():
            alone.append((match, line))
            continue
        yield from (Comment(found=above, line=number + 1, target=line + 1) for above, number in alone)
        alone = []
        if match is not None:
            yield Comment(found=match, line=line + 1, target=line + 1)
    yield from (Comment(found=above, line=number + 1, target=number + 1) for above, number in alone)


def _is_comment(text: str, line: int, column: int, values: Sequence[_MarkedScalar]) -> bool:
    before = text[:column]
    if before and (before[-1] not in " \t" or before.lstrip().startswith("#")):
        return False
    index = bisect_right(values, (line, column), key=lambda value: value.text) - 1
    return index < 0 or (line, column) >= values[index].end
