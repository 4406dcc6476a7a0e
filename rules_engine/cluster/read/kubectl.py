"""Output of kubectl in any form → objects of the API, one by one.

Forms: a list, single objects, a YAML stream, several outputs in one file, JSON lines, an array. Text that a terminal
adds around them is skipped with a warning.
"""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import UNSET, MsgspecError, Raw, Struct, UnsetType, ValidationError, structs
from msgspec.json import Decoder

from rules_engine.cluster.read.yaml_list import read_yaml_objects
from rules_engine.language.files import LINE_END, SourceFile, decode_source, not_utf_8
from rules_engine.language.yaml.documents import TOO_DEEP
from rules_engine.model.json.lenient import Object, as_mapping, decode_lenient, text_member
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.cluster_objects import API_KINDS, AUTOSCALER_STATUS, STATUS_NAME
from rules_engine.model.kubernetes.device_objects import DEVICE_KINDS
from rules_engine.model.kubernetes.names import ObjectName
from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.problem import Problems
from rules_engine.model.problems.source import Location, escape_controls, truncate

_JSON = re.compile(rb'^[ \t]*[\[{](?=\s*["\[{\]}])', re.MULTILINE)
"""The beginning of a line with a value in JSON."""

_JSON_IN_LINE = re.compile(rb'[\[{](?=\s*["\[{\]}])')

_NEXT_JSON = re.compile(rb"\s*[\[{]")
"""The beginning of a value directly after another one."""

_YAML = re.compile(
    rb"""^(?:(?:[ \t]*\{\s*)?(["']?)(?:apiVersion|kind|items|metadata|spec|status)\1[ \t]*:(?=\s)|---)""", re.MULTILINE
)
"""The beginning of a document in YAML, which may be in flow style."""

_AFTER_YAML = re.compile(
    r"^(?:Error from|[IWEF]\d{4} |```|\[?[\w.-]{1,64}@[\w.-]{1,64}[^\n]{0,256}?[$#%>] |[$%❯➜] |PS [A-Z]:\\).*$",
    re.MULTILINE,
)
"""A line that kubectl, klog, Markdown or a shell writes after an output in YAML."""

_NO_NOISE = re.compile(r"\{|apiVersion|kind:|\A[\s,{}\[\]]*\Z")
"""Text that a terminal does not add: it may be a part of the output."""

MAX_NOISE = 100
"""Pieces of noise in a file: nobody reads more warnings."""

_TRAILING = re.compile(r"trailing characters \(byte (\d+)\)")
"""The error of msgspec that says where a value ends: after this byte, counted from 1, another one begins."""


@dataclass(frozen=True, slots=True)
class ListedObject:
    """An object, or with the value None a list. `kind`: the kind of the list's items, "" if they may have any.

    `metadata`: of the list.
    """

    kind: str
    value: Json
    place: Callable[[], Location]
    metadata: Json = None


class OutputError(Exception):
    """An output that cannot be read any further."""

    def __init__(self, code: Code, message: str, place: Location) -> None:
        super().__init__(message)
        self.code = code
        self.place = place


def read_output(path: Path, data: bytes, problems: Problems) -> Iterator[ListedObject]:
    """Yield the objects and the lists of an output in UTF-8. Raises OutputError.

    Documents and items of lists in YAML with errors are reported and left out.
    """
    line = _JSON.search(data)
    yaml = _YAML.search(data, 0, line.start() if line else len(data))
    begin = None if yaml else _JSON_IN_LINE.search(data)
    if begin is not None:
        return _read_json(_JsonSource(str(path), data), begin.start(), problems)
    return _read_yaml(path, data, yaml.start() if yaml else 0, problems)


class _KubectlOutput(Struct, rename="camel"):
    """A value in JSON: a list of the API, or an object without items."""

    api_version: Any = ""
    kind: Any = ""
    metadata: Any = None
    items: list[Raw] | UnsetType | None = UNSET


_decode_output = Decoder(_KubectlOutput).decode
_decode_array = Decoder(list[Raw]).decode
_raw_decode = json.JSONDecoder().raw_decode


@dataclass(slots=True)
class _JsonSource:
    """A text in JSON, with the name of its file. Places are quick to find in their order."""

    name: str
    data: bytes
    _at: int = 0
    _line: int = 1
    """The offset of the last place, and its line."""

    def place(self, offset: int) -> Location:
        """Return the place of a byte."""
        if offset < self._at:
            self._at, self._line = 0, 1
        self._line += self.data.count(b"\n", self._at, offset)
        self._at = offset
        begin = self.data.rfind(b"\n", 0, offset) + 1
        return Location(self.name, self._line, len(self.data[begin:offset].decode("utf-8", "replace")) + 1)

    def find(self, encoded: Raw, after: int) -> Location:
        """Return the place of an item that begins after an offset."""
        item = bytes(encoded)
        offset = self.data.find(item, max(after, self._at))
        return self.place(offset if offset >= 0 else self.data.find(item, after))

    def skip(self, begin: int, end: int, problems: Problems) -> None:
        """Warn of text that is not read."""
        noise = self.data[begin:end].strip()
        if noise:
            _warn_of_noise(noise.decode("utf-8", "replace"), self.place(self.data.index(noise, begin)), problems)


def _warn_of_noise(text: str, place: Location, problems: Problems) -> None:
    """Warn of text that is skipped. Raises OutputError if it may be a part of the output, or there is too much."""
    if _NO_NOISE.search(text):
        raise OutputError(Code.JSON_SYNTAX, "here the output is not what kubectl writes: write it again", place)
    if len(problems.items) >= MAX_NOISE:
        raise OutputError(Code.JSON_SYNTAX, "too much text that is not kubectl's: write the output again", place)
    problems.warning(
        Code.UNREAD_OBJECT, f"this text is skipped: {truncate(escape_controls(LINE_END.split(text)[0]))}", place
    )


def _read_json(text: _JsonSource, begin: int, problems: Problems) -> Iterator[ListedObject]:
    end = 0
    while True:
        text.skip(end, begin, problems)
        try:
            value, end = _next_value(text.data, begin)
            yield from _expand(value, "", partial(text.place, begin), partial(text.find, after=begin))
        except UnicodeDecodeError as error:
            raise OutputError(Code.NOT_UTF_8, not_utf_8(error), text.place(begin + error.start)) from None
        except json.JSONDecodeError as error:
            ends = error.msg.startswith("Unterminated") or not error.doc[error.pos :].strip()
            message = "the text ends: is the file cut?" if ends else f"the text is not JSON: {error.msg.lower()}"
            offset = begin + len(error.doc[: error.pos].encode("utf-8", "surrogatepass"))
            raise OutputError(Code.JSON_SYNTAX, message, text.place(offset)) from None
        except RecursionError:
            raise OutputError(Code.YAML_TOO_DEEP, TOO_DEEP, text.place(begin)) from None
        except ValueError:  # of int
            raise OutputError(Code.JSON_SYNTAX, "a number has too many digits", text.place(begin)) from None
        following = _NEXT_JSON.match(text.data, end) or _JSON.search(text.data, end)
        if following is None:
            text.skip(end, len(text.data), problems)
            return
        begin = following.end() - 1


def _next_value(data: bytes, begin: int) -> tuple[Any, int]:
    """Return the value at an offset, with the items of a list as raw JSON, and the offset of its end.

    Raises json.JSONDecodeError, UnicodeDecodeError and RecursionError.
    """
    decode: Callable[[Any], Any] = _decode_array if data[begin : begin + 1] == b"[" else _decode_output
    view, end = memoryview(data), len(data)
    while True:
        try:
            value = decode(view[begin:end])
        except ValidationError:
            break
        except MsgspecError as error:
            trailing = _TRAILING.search(str(error))
            if trailing is None:  # an error, whose place the other parser knows, or half of a surrogate pair
                break
            end = begin + int(trailing[1]) - 1
        else:
            single = isinstance(value, _KubectlOutput) and value.items is UNSET
            return decode_lenient(data[begin:end]) if single else value, end
    text = data[begin:].decode()
    _, length = _raw_decode(text)
    return decode_lenient(text[:length]), begin + len(text[:length].encode("utf-8", "surrogatepass"))


def _expand(
    value: Any, kind: str, place: Callable[[], Location], find: Callable[[Raw], Location] | None = None
) -> Iterator[ListedObject]:
    """Yield the objects and lists of a value. `find` returns the place of an item that is raw JSON."""
    if isinstance(value, _KubectlOutput):
        members = {"apiVersion": value.api_version, "kind": value.kind, "metadata": value.metadata}
        value = {**members, "items": value.items}
    items = value
    if isinstance(value, dict) and isinstance(value.get("items", ""), list | None):
        kind, items = list_kind(value), value["items"] or []
        yield ListedObject(kind, None, place, value.get("metadata"))
    if not isinstance(items, list):
        yield ListedObject(kind, value, place)
        return
    for item in items:
        each, at = item, place
        if isinstance(item, Raw) and find is not None:
            each, at = decode_lenient(item), partial(find, item)
        if isinstance(each, dict):
            yield from _expand(each, kind, at)
        else:
            yield ListedObject(kind, each, at)


def list_kind(members: Object) -> str:
    """Return the kind of the items of a list; "" if they may have any."""
    kind = text_member(members, "kind")
    return "" if kind == "List" else kind_name(text_member(members, "apiVersion"), kind.removesuffix("List"))


def object_kind(value: Object) -> str:
    """Return the name of an object's kind, as `kind_name`; the only ConfigMap that is read has a kind of its own."""
    kind, metadata = text_member(value, "kind"), as_mapping(value.get("metadata"))
    if ObjectName(kind, text_member(metadata, "name"), text_member(metadata, "namespace")) == STATUS_NAME:
        return AUTOSCALER_STATUS
    return kind_name(text_member(value, "apiVersion"), kind)


def kind_name(version: str, kind: str) -> str:
    """Return the key of a kind, or its name with the version if its API group is not that of the kind that is read."""
    group = version.rpartition("/")[0]
    if f"{kind}.{group}" in API_KINDS:
        return f"{kind}.{group}"
    api_kind = API_KINDS.get(kind)
    if api_kind is not None and kind in DEVICE_KINDS and not api_kind.optional:  # earlier versions have other members
        is_read = version in ("", api_kind.api_version)
    else:
        # In other groups, these kinds are other objects, as OpenShift's Node.
        is_event = (kind, group) == ("Event", "events.k8s.io")
        is_read = not version or api_kind is None or group == api_kind.group or is_event
    return kind if is_read else f"{kind} of {version}"


def _read_yaml(path: Path, data: bytes, begin: int, problems: Problems) -> Iterator[ListedObject]:
    source = decode_source(path, data, problems)
    if source is None:
        return
    yaml_problems = Problems()
    text = _without_noise(source, len(data[:begin].decode("utf-8", "replace")), yaml_problems)
    cut: Location | None = None
    for place, value, items in read_yaml_objects(SourceFile(source.name, text), yaml_problems):
        if items is None:
            yield from _expand(value, "", partial(_same, place))
            continue
        members = as_mapping(value)
        if members and "kind" not in members:
            cut = place  # kubectl writes the kind after the items
        kind = list_kind(members)
        yield ListedObject(kind, None, partial(_same, place), members.get("metadata"))
        for at, item in items:
            yield from _expand(item, kind, partial(_same, at))
    if cut is not None and not yaml_problems.failed:
        yaml_problems.error(Code.NOT_A_CLUSTER, "the list has no kind: is the file cut?", cut)
    for problem in yaml_problems.items:
        is_own = problem.code in (Code.UNREAD_OBJECT, Code.NOT_A_CLUSTER)
        # Others quote the file, which may be secret.
        message = problem.message if is_own else "the YAML is malformed here: write the output again"
        problems.items.append(structs.replace(problem, message=message))


def _same(place: Location) -> Location:
    return place


def _without_noise(source: SourceFile, begin: int, problems: Problems) -> str:
    """Return the text with empty lines in place of noise, of which it warns. `begin`: of the first document."""
    lines = LINE_END.split(source.text[:begin])
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.startswith(("#", "%")):
            _warn_of_noise(line, Location(source.name, number, 1), problems)
            lines[number - 1] = ""
    text, at, number = "\n".join(lines) + source.text[begin:], 0, 1
    for line_after in _AFTER_YAML.finditer(text):
        number += len(LINE_END.findall(text, at, line_after.start()))
        at = line_after.start()
        _warn_of_noise(line_after[0], Location(source.name, number, 1), problems)
    return _AFTER_YAML.sub("", text)
