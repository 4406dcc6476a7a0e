"""Pods of manifests, one part of a file at a time: kubectl's lists may be far larger than a file of rules.

A list of more than MAX_FILE_BYTES is read object by object, as JSON. A problem has the place of its object.
"""

import codecs
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from rules_engine.documents.load import Sources, pods_below, pods_in
from rules_engine.loading.diagnostics import Diagnostics
from rules_engine.loading.files import (
    MAX_CLUSTER_BYTES,
    MAX_FILE_BYTES,
    STDIN,
    decoded,
    report_too_large,
    report_unreadable,
    standard_input,
)
from rules_engine.loading.kubernetes.manifests import Manifest
from rules_engine.loading.yaml.documents import MAX_DEPTH
from rules_engine.loading.yaml.nodes import ListNode, MapNode, Node, ScalarNode
from rules_engine.model.excerpt import truncate
from rules_engine.model.json.patch import Json
from rules_engine.model.problem_codes import Code
from rules_engine.model.problems import Problem, in_file_order
from rules_engine.model.source import Location, SourceText

CHUNK_BYTES = 1024 * 1024
"""Bytes that are read at once."""

TOKEN_CHARACTERS = 16
"""Characters of the longest token that is not text, a number of any length apart: an error so near to the end of the
text may be that of a cut token."""

_BLANKS = " \t\r\n"


@dataclass(frozen=True, slots=True)
class PodPart:
    """The pods of a part of a file, with its problems; no pods if a problem is an error."""

    pods: tuple[Manifest, ...]
    problems: tuple[Problem, ...]
    sources: Sources


def stream_pods(path: Path, limit: int = MAX_CLUSTER_BYTES) -> Iterator[PodPart]:
    """Yield the pods of a file of manifests: all at once, or those of a large list in JSON one by one.

    Memory is bounded by MAX_FILE_BYTES, whatever the size of the list, which may have `limit` bytes.
    """
    diagnostics = Diagnostics()
    try:
        with nullcontext(standard_input()) if path == STDIN else path.open("rb") as file:
            head = file.read(MAX_FILE_BYTES + 1)
            if len(head) > MAX_FILE_BYTES and head.removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"{"):
                yield from _List(str(path), head, file, limit).parts()
                return
    except OSError as error:
        report_unreadable(path, error, diagnostics)
        yield PodPart((), tuple(diagnostics.problems), {})
        return
    if len(head) > MAX_FILE_BYTES:
        report_too_large(str(path), MAX_FILE_BYTES, diagnostics)
        yield PodPart((), tuple(diagnostics.problems), {})
        return
    source = decoded(path, head, diagnostics)
    pods = pods_in(source, diagnostics) if source is not None else ()
    lines = {} if source is None else {source.name: source.lines}
    yield PodPart(pods, in_file_order(diagnostics.problems), lines)


class _StreamError(Exception):
    """A list that cannot be read any further."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code


class _List:
    """Reader of a list in JSON: its text from the current object on, and the place of that."""

    def __init__(self, name: str, head: bytes, file: BinaryIO, limit: int) -> None:
        self._name = name
        self._file = file
        self._left = limit - len(head)
        self._limit = limit
        self._decode = codecs.getincrementaldecoder("utf-8-sig")()
        self._value = json.JSONDecoder(parse_float=str, object_pairs_hook=_members).raw_decode
        self._ended = False
        self._line, self._column, self._mark = 1, 1, 0
        """The last place that was computed, and its offset in the text."""
        self._at = 0
        """The offset of the next value in the text."""
        self._text = ""
        self._head = head

    def parts(self) -> Iterator[PodPart]:
        """Yield the pods of each object; a problem of the list itself is that of the last part."""
        diagnostics = Diagnostics()
        found = False
        try:
            for place, value in self._items():
                part = _part(value, place)
                found = found or bool(part.pods or part.problems)
                yield part
            if not found:
                diagnostics.error(Code.NOT_A_POD, "no pod and no object with a pod template found", self._here())
        except UnicodeDecodeError as error:
            message = f"byte 0x{error.object[error.start]:02X} is not UTF-8: save the file as UTF-8"
            diagnostics.error(Code.NOT_UTF_8, message, self._here())
        except _StreamError as error:
            diagnostics.error(error.code, str(error), self._here())
        if diagnostics.problems:
            yield PodPart((), tuple(diagnostics.problems), {})

    def _items(self) -> Iterator[tuple[Location, Json]]:
        """Yield the items of the list, each with its place."""
        self._feed(self._head)
        self._head = b""
        self._expect("{")
        listed = False
        while True:
            name = self._next()
            self._expect(":")
            if name == "items" and self._peek() == "[":
                self._expect("[")
                listed = True
                while self._peek() != "]":
                    place = self._here()
                    yield place, self._next()
                    if self._peek() != "]":
                        self._expect(",")
                self._expect("]")
            else:
                self._next()
            if self._peek() == "}":
                break
            self._expect(",")
        self._expect("}")
        if not listed:
            raise _StreamError(Code.FILE_TOO_LARGE, _too_large("an object that is not a list"))
        if self._peek():
            raise _StreamError(Code.JSON_SYNTAX, "the text continues after the end of the list")

    def _peek(self) -> str:
        """Return the next character that is not blank; "" at the end."""
        while True:
            while self._at < len(self._text):
                if self._text[self._at] not in _BLANKS:
                    return self._text[self._at]
                self._at += 1
            if not self._more():
                return ""

    def _expect(self, character: str) -> None:
        found = self._peek()
        if found != character:
            given = f"not '{found}'" if found else "but the text ends: is the file cut?"
            raise _StreamError(Code.JSON_SYNTAX, f"expected '{character}', {given}")
        self._at += 1

    def _next(self) -> Json:
        """Read a value. It may be cut at the end of the text so far, until this has more than the largest value."""
        self._peek()
        while True:
            try:
                value, end = self._value(self._text, self._at)
                if end < len(self._text) or self._ended:
                    self._at = end
                    found: Json = value
                    return found
            except RecursionError:
                raise _too_deep() from None
            except json.JSONDecodeError as error:
                cut = error.msg.startswith("Unterminated") or error.pos + TOKEN_CHARACTERS > len(self._text)
                if self._ended or not cut:
                    self._at = error.pos
                    message = "the text is not JSON, or it is cut" if cut else "the text is not JSON"
                    raise _StreamError(Code.JSON_SYNTAX, message) from None
            except ValueError:  # of int(): sys.get_int_max_str_digits
                raise _StreamError(Code.JSON_SYNTAX, "a number has too many digits") from None
            if len(self._text) - self._at > MAX_FILE_BYTES:
                raise _StreamError(Code.FILE_TOO_LARGE, _too_large("an object of the list"))
            self._more()

    def _more(self) -> bool:
        """Read more text; return False at the end."""
        if self._ended:
            return False
        chunk = self._file.read(min(CHUNK_BYTES, self._left + 1))
        if len(chunk) > self._left:
            raise _StreamError(Code.FILE_TOO_LARGE, f"the file is larger than {self._limit // 2**20} MiB")
        self._left -= len(chunk)
        self._feed(chunk)
        return True

    def _feed(self, chunk: bytes) -> None:
        """Replace the text that was read by the next one."""
        self._drop()
        self._ended = not chunk
        self._text += self._decode.decode(chunk, self._ended)

    def _drop(self) -> None:
        """Drop the text before the next value."""
        self._here()
        self._text, self._at, self._mark = self._text[self._at :], 0, 0

    def _here(self) -> Location:
        """Return the place of the next value, or of the blanks before it."""
        lines = self._text.count("\n", self._mark, self._at)
        if lines:
            self._line += lines
            self._column, self._mark = 1, self._text.rindex("\n", self._mark, self._at) + 1
        self._column += self._at - self._mark
        self._mark = self._at
        return Location(self._name, self._line, self._column)


def _members(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    """Return the members of an object. Raises _StreamError if two have one name."""
    members = dict(pairs)
    if len(members) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        repeated = next(name for name, count in counts.items() if count > 1)
        raise _StreamError(Code.YAML_DUPLICATE_KEY, f"'{truncate(repeated)}' is set twice in an object")
    return members


def _too_large(what: str) -> str:
    return f"{what} is larger than {MAX_FILE_BYTES // 2**20} MiB"


def _too_deep() -> _StreamError:
    return _StreamError(Code.YAML_TOO_DEEP, f"more than {MAX_DEPTH} levels of lists and maps")


def _part(value: Json, place: Location) -> PodPart:
    diagnostics = Diagnostics()
    pods = pods_below(_node(value, place, MAX_DEPTH), diagnostics)
    return PodPart(() if diagnostics.failed else pods, in_file_order(diagnostics.problems), {})


def _node(value: Json, place: Location, depth: int) -> Node:
    """Return a value as a tree whose nodes all have the same place. Raises _StreamError if it is too deep."""
    if not depth:
        raise _too_deep()
    if isinstance(value, Mapping):
        members = {name: (_scalar(name, place), _node(member, place, depth - 1)) for name, member in value.items()}
        return MapNode(members=members, location=place)
    if isinstance(value, list):
        return ListNode(items=tuple(_node(item, place, depth - 1) for item in value), location=place)
    return _scalar(value, place)


def _scalar(value: Json, place: Location) -> ScalarNode:
    plain = value if isinstance(value, bool | int | float | str) else None
    text = plain if isinstance(plain, str) else json.dumps(plain)
    return ScalarNode(value=plain, source=SourceText(text, place.file, ((0, place.line, place.column),)), quoted=True)
