"""Text → YAML documents with positioned values.

The tree is composed here from PyYAML's events: PyYAML's own composer recurses in C, so that a document of 100,000
opening brackets ends the process.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

from rules_engine.language.files import LINE_END, SourceFile
from rules_engine.language.yaml import positions
from rules_engine.language.yaml.nodes import ListNode, MapNode, ScalarNode, YamlNode
from rules_engine.language.yaml.scalars import resolve_scalar
from rules_engine.language.yaml.syntax_remedies import find_remedy, template_message
from rules_engine.model.json.patch import Json
from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.problem import Problems, did_you_mean
from rules_engine.model.problems.source import Location, SourceText, truncate

MAX_DEPTH = 64
"""Levels of nested lists and maps: a pod in a RuleTest has about 20; functions on the tree recurse this far."""

TOO_DEEP = f"more than {MAX_DEPTH} levels of lists and maps"

MAX_NODES = 500_000
"""Values in a file, including repetitions by aliases: an inventory of 10,000 nodes has some 300,000."""

LOADER: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's parser if PyYAML was built with it: about ten times as fast."""

_NOT_ALLOWED = re.compile("[^\t\n\r\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
"""Characters that YAML forbids, or (U+0085, U+2028, U+2029) that end a line in YAML but in no editor."""

_MARKER = re.compile(r"(?:\A|(?<=[\r\n]))(?:%[^\r\n]*(?:\r\n|\n|\r)){0,9}---(?=[ \t\r\n]|\Z)")
"""The start of a document, with its directives: no value has it in the first column (YAML 1.2.2, section 9.1.2)."""

_BLOCKS = ("|", ">")

_SURROGATE = re.compile("[\ud800-\udfff]")
_NEGATION = re.compile(r"!(?:\s*\(|\s*\w+[.(])")
"""The beginning of an expression, which YAML reads as a tag."""

_ANCHOR = re.compile(r"(?:&[A-Za-z0-9_-]+)?(?:\s+|#.*)*")


class Dialect(Enum):
    """Strictness of scalars: strict in rule files, and as kubectl reads them in manifests."""

    RULES = "rules"
    MANIFESTS = "manifests"


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One document of a stream, with the problems found while reading it."""

    root: YamlNode
    problems: Problems

    @property
    def empty(self) -> bool:
        return isinstance(self.root, ScalarNode) and self.root.value is None


def read_documents(source: SourceFile, problems: Problems, dialect: Dialect = Dialect.RULES) -> tuple[Document, ...]:
    """Read documents; report and leave out each with a syntax error or a character that YAML forbids."""
    composer = _Composer(source, dialect)
    # In JSON a tab can only be between values, where YAML does not allow it.
    text = source.text.replace("\t", " ") if source.is_json else source.text
    if not _NOT_ALLOWED.search(text):
        try:
            composer.read(text)
            return tuple(composer.documents)
        except (yaml.MarkedYAMLError, _StopError):
            # A syntax error stops the parser, often far from its cause. So all documents are read again, one by one.
            composer = _Composer(source, dialect)
    for part in split_documents(text):
        try:
            _refuse_characters(part, source.name)
            composer.read(part.text, part.line)
        except yaml.MarkedYAMLError as error:
            problems.error(*_syntax_problem(error, source, part))
        except _StopError as stop:
            problems.error(stop.code, stop.message, stop.location)
            if stop.code is Code.YAML_TOO_MANY_VALUES:
                break
    return tuple(composer.documents)


def read_data(path: Path) -> Json:
    """Return the content of a packaged file, which has one valid document."""
    (document,) = read_documents(SourceFile(path.name, path.read_text(encoding="utf-8")), Problems())
    return document.root.json()


@dataclass(frozen=True, slots=True)
class DocumentText:
    """The text from one document marker to the next; `line` is the number of lines before it."""

    text: str
    line: int


def split_documents(text: str) -> Iterator[DocumentText]:
    """Split a text before each document marker in the first column."""
    starts = sorted({0, *(marker.start() for marker in _MARKER.finditer(text)), len(text)})
    line = 0
    for start, end in pairwise(starts):
        part = DocumentText(text[start:end], line)
        yield part
        line += len(LINE_END.findall(part.text))


def _refuse_characters(part: DocumentText, name: str) -> None:
    character = _NOT_ALLOWED.search(part.text)
    if character is not None:
        before = LINE_END.split(part.text[: character.start()])
        raise _StopError(
            Code.YAML_CHARACTER,
            f"character U+{ord(character.group()):04X} is not allowed in YAML: write it as an escape in double quotes",
            Location(name, part.line + len(before), len(before[-1]) + 1),
        )


_HINTS = (
    ("mapping values are not allowed", "a second ': ' on this line: put the value in quotes, or use a block (|)"),
    ("cannot start any token", "a value cannot begin with this character: put it in quotes"),
    ("unexpected end of stream", "the quote is never closed"),
    ("invalid Unicode", "an escape is half of a surrogate pair: write the character itself, or \\U and eight digits"),
    ("unknown escape character", "no such escape: in double quotes write \\\\ for a backslash, or use single quotes"),
    ("expected ',' or ']'", "the list is not closed: expected ',' or ']'"),
    ("expected ',' or '}'", "the map is not closed: expected ',' or '}'"),
    ("expected '-' indicator", "expected another '- ' item or the end of this list"),
    ("could not find expected ':'", "expected ':' after a key"),
    ("expected <block end>", "expected a key, or the end of this block: is the indentation right, and text in quotes?"),
    ("expected key", "expected a key, or the end of this block: is the indentation right, and text in quotes?"),
)


def _syntax_problem(
    error: yaml.MarkedYAMLError, source: SourceFile, part: DocumentText
) -> tuple[Code, str, Location, int]:
    problem = str(error.problem)
    message = next((hint for words, hint in _HINTS if words in problem), problem)
    # An unclosed value is reported where it begins.
    mark: Any = error.context_mark if "end of stream" in problem else error.problem_mark
    line, column = part.line + mark.line, mark.column
    if "nesting depth" in problem:  # libyaml's own bound, which its search for a key can reach before ours
        return Code.YAML_TOO_DEEP, TOO_DEEP, Location(source.name, line + 1, column + 1), 1
    # An error at the end of the part is reported at its last line with text: the next one begins another document.
    last = part.line + len(LINE_END.findall(part.text.rstrip()))
    if line > last:
        line, column = last, len(source.lines[last])
    if source.lines[line][column:].startswith("\t"):
        message = "a tab cannot indent in YAML: use spaces"
    elif not source.is_json:
        fix = find_remedy(LINE_END.split(part.text), line - part.line, column, LOADER, part.line)
        if fix is not None:
            place = Location(source.name, part.line + fix.line + 1, fix.column + 1)
            return Code.YAML_SYNTAX, fix.message, place, max(1, fix.length)
    return Code.YAML_SYNTAX, message, Location(source.name, line + 1, column + 1), 1


@dataclass(slots=True)
class _StopError(Exception):
    """Error that stops reading: a bound is exceeded, or a text is malformed."""

    code: Code
    message: str
    location: Location


@dataclass(slots=True)
class _Open:
    """A list or map that is being read."""

    event: Any
    location: Location
    nodes: list[YamlNode] = field(default_factory=list)
    size: int = 1
    depth: int = 1


@dataclass(frozen=True, slots=True)
class _Sized:
    """A finished node with the number and the depth of its values, aliases included."""

    node: YamlNode
    size: int
    depth: int


class _Composer:
    """Composer of trees from events. It has its own stack, and counts values each time an alias repeats them."""

    def __init__(self, source: SourceFile, dialect: Dialect) -> None:
        self.documents: list[Document] = []
        self._source = source
        self._strict = dialect is Dialect.RULES
        self._problems = Problems()
        self._stack: list[_Open] = []
        self._anchors: dict[str, _Sized | None] = {}
        self._count = 0
        self._first = 0

    def read(self, text: str, first: int = 0) -> None:
        """Read the documents of a text that begins after `first` lines of the file; none of them on an error."""
        self._first = first
        self._stack = []
        before = len(self.documents)
        try:
            for event in yaml.parse(text, Loader=LOADER):
                self.take(event)
        except (yaml.MarkedYAMLError, _StopError):
            del self.documents[before:]
            raise

    def take(self, event: Any) -> None:
        """Process one of PyYAML's events; a document is complete with its root."""
        if isinstance(event, yaml.ScalarEvent):
            self._tag(event)
            self._finish(_Sized(self._scalar(event), 1, 0), event)
        elif isinstance(event, yaml.CollectionStartEvent):
            self._tag(event)
            self._open(event)
        elif isinstance(event, yaml.CollectionEndEvent):
            self._close(event)
        elif isinstance(event, yaml.AliasEvent):
            self._finish(self._target(event), None)
        elif isinstance(event, yaml.DocumentStartEvent):
            self._problems = Problems()
            self._anchors = {}

    def _at(self, mark: Any) -> Location:
        return Location(self._source.name, self._first + mark.line + 1, mark.column + 1)

    def _open(self, event: Any) -> None:
        self._count_values(1, event.start_mark)
        self._stack.append(_Open(event, self._at(event.start_mark)))
        if len(self._stack) > MAX_DEPTH:
            self._too_deep(event.start_mark)
        if event.anchor:
            self._anchors[event.anchor] = None

    def _close(self, event: Any) -> None:
        done = self._stack.pop()
        start, end = done.event.start_mark, event.end_mark
        length = max(1, end.column - start.column) if done.event.flow_style and start.line == end.line else 1
        if isinstance(done.event, yaml.SequenceStartEvent):
            node: YamlNode = ListNode(items=tuple(done.nodes), location=done.location, length=length)
        else:
            node = self._map(done, length)
        self._finish(_Sized(node, done.size, done.depth), done.event)

    def _finish(self, done: _Sized, event: Any) -> None:
        if event is not None and event.anchor:
            self._anchors[event.anchor] = done
        if not self._stack:
            self.documents.append(Document(root=done.node, problems=self._problems))
            return
        above = self._stack[-1]
        above.nodes.append(done.node)
        above.size += done.size
        above.depth = max(above.depth, done.depth + 1)

    def _count_values(self, size: int, mark: Any) -> None:
        self._count += size
        if self._count > MAX_NODES:
            message = f"more than {MAX_NODES:,} values, those that aliases repeat included"
            raise _StopError(Code.YAML_TOO_MANY_VALUES, message, self._at(mark))

    def _target(self, event: Any) -> _Sized:
        name = event.anchor
        length = len(name) + 1
        if name not in self._anchors:
            advice = did_you_mean(name, self._anchors) or f': write "*{truncate(name)}" for the text'
            message = f"no anchor '{truncate(name)}' precedes this alias{advice}"
        else:
            target = self._anchors[name]
            if target is not None:
                if len(self._stack) + target.depth > MAX_DEPTH:
                    self._too_deep(event.start_mark)
                self._count_values(target.size, event.start_mark)
                return target
            message = f"'{truncate(name)}' is an alias inside its own anchor"
        self._problems.error(Code.YAML_ALIAS, message, self._at(event.start_mark), length)
        place = self._at(event.start_mark)
        return _Sized(ScalarNode(value="", source=SourceText("", place.file, ((0, place.line, place.column),))), 1, 0)

    def _too_deep(self, mark: Any) -> None:
        raise _StopError(Code.YAML_TOO_DEEP, TOO_DEEP, self._at(mark))

    def _tag(self, event: Any) -> None:
        if event.tag is None:
            return
        number = self._first + event.start_mark.line
        line = self._source.lines[number]
        column = max(line.find("!", event.start_mark.column), event.start_mark.column)
        tag = re.split(r"[\s,\]}]", line[column:])[0]
        if _NEGATION.match(line, column) and self._key():
            tag = line[column:].rstrip()
            message = f"text cannot begin with !, which is for tags: write {json.dumps(tag, ensure_ascii=False)}"
        else:
            message = (
                f"{truncate(tag)} is a tag, and tags are not supported: put text in quotes, write the rest plainly"
            )
        self._problems.error(Code.YAML_TAG, message, Location(self._source.name, number + 1, column + 1), len(tag))

    def _scalar(self, event: Any) -> ScalarNode:
        self._count_values(1, event.start_mark)
        text: str = event.value
        if event.style == '"' and _SURROGATE.search(text):
            message = "an escape is half of a surrogate pair: write the character itself, or \\U and eight digits"
            raise _StopError(Code.YAML_SYNTAX, message, self._at(event.start_mark))
        source = SourceText(text, self._source.name, self._breaks(event))
        if not text and not event.style and event.tag is not None:
            # The whole value was read as a tag.
            return ScalarNode(value=event.tag, source=replace(source, text=event.tag), quoted=True)
        if event.style or event.tag in ("!", "tag:yaml.org,2002:str"):
            return ScalarNode(value=text, source=source, quoted=True)
        if self._strict and text == "Off" and self._key() == "mode":
            # `Off` of a rule's mode, where no boolean can be meant.
            return ScalarNode(value=text, source=source)
        value, surprise = resolve_scalar(text)
        if self._strict and surprise is not None and surprise.number is not None:
            value = surprise.number
        node = ScalarNode(value=value, source=source, surprise=surprise if self._strict else None)
        if self._strict and self._is_key() and (surprise is not None or not isinstance(value, str)):
            self._problems.error(Code.YAML_KEY, f'a key must be text: write "{truncate(text)}"', node)
        elif self._strict and surprise is not None:
            self._problems.error(surprise.code, surprise.message(surprise.spellings), node)
        return node

    def _key(self) -> str | None:
        """Return the key of the next value; None if it is not a member of a map, or its key is not a text."""
        above = self._stack[-1] if self._stack else None
        if above is None or not isinstance(above.event, yaml.MappingStartEvent) or len(above.nodes) % 2 == 0:
            return None
        key = above.nodes[-1]
        return key.source.text if isinstance(key, ScalarNode) else None

    def _is_key(self) -> bool:
        above = self._stack[-1] if self._stack else None
        return above is not None and isinstance(above.event, yaml.MappingStartEvent) and len(above.nodes) % 2 == 0

    def _breaks(self, event: Any) -> positions.Breaks:
        lines = self._source.lines
        line, column = self._first + event.start_mark.line, event.start_mark.column
        end = (self._first + event.end_mark.line, event.end_mark.column)
        if event.tag is not None:
            # A tag is an error, so the position of the tag is enough.
            return ((0, line + 1, column + 1),)
        if not event.value and not event.style:
            return ((0, end[0] + 1, end[1] + 1),)
        if event.anchor:
            # The event begins with its anchor.
            line, column = self._after_anchor(line, column)
        quotes = 1 if event.style else 0
        if line == end[0] and event.style not in _BLOCKS and end[1] - column == len(event.value) + 2 * quotes:
            # On one line, without an escape: the text is in the file as it is.
            return ((0, line + 1, column + quotes + 1),)
        if event.style in _BLOCKS:
            return positions.block_breaks(lines, (line, column), event.value, folded=event.style == ">")
        return positions.flow_breaks(lines, (line, column + quotes), (end[0], end[1] - quotes), event.style)

    def _after_anchor(self, line: int, column: int) -> tuple[int, int]:
        """Return the position after an anchor, and after the comments and empty lines that may follow it."""
        while True:
            text = self._source.lines[line]
            column = len(text) - len(_ANCHOR.sub("", text[column:], count=1))
            if column < len(text):
                return line, column
            line, column = line + 1, 0

    def _map(self, done: _Open, length: int) -> MapNode:
        members: dict[str, tuple[ScalarNode, YamlNode]] = {}
        merged: list[YamlNode] = []
        for key, value in zip(done.nodes[::2], done.nodes[1::2], strict=True):
            if not isinstance(key, ScalarNode):
                self._complex_key(key, done)
                continue
            name = key.source.text
            if name == "<<" and not key.quoted:
                if self._strict:
                    message = (
                        "<< merges another map in YAML 1.1 and is an ordinary key in YAML 1.2: write the members out"
                    )
                    self._problems.error(Code.YAML_MERGE, message, key)
                merged.extend(value.items if isinstance(value, ListNode) else [value])
                continue
            if name in members:
                first = members[name][0].location
                self._problems.error(
                    Code.YAML_DUPLICATE_KEY,
                    f"'{truncate(name)}' is already set in line {first.line}",
                    key.location,
                    key.length,
                )
                continue
            members[name] = (key, value)
        for node in merged:
            for name, member in node.members.items() if isinstance(node, MapNode) else ():
                members.setdefault(name, member)
        return MapNode(members=members, location=done.location, length=length)

    def _complex_key(self, key: YamlNode, done: _Open) -> None:
        start = done.event.start_mark
        remaining = self._source.lines[done.location.line - 1][start.column :]
        if remaining.startswith("{{"):
            # The map around it has no meaning, either.
            expression = remaining.partition("}}")[0] + "}}"
            message = template_message(expression, self._key())
            self._problems.error(Code.YAML_KEY, message, done.location, len(expression))
        else:
            self._problems.error(Code.YAML_KEY, "a key must be text, not a list or a map", key)
