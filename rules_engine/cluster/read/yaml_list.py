"""Kubernetes objects in YAML: documents, and the items of lists in block style, which are composed one by one.

So a list may exceed the composer's bounds, which apply to each item.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain, pairwise, repeat

from msgspec import structs

from rules_engine.cluster.read.manifests import manifest_json
from rules_engine.language.files import SourceFile
from rules_engine.language.yaml.documents import Dialect, DocumentText, read_documents, split_documents
from rules_engine.model.json.lenient import as_mapping
from rules_engine.model.json.patch import Json
from rules_engine.model.problems.problem import Problems
from rules_engine.model.problems.source import Location

_ITEMS = re.compile(r"^items:[ \t]*\r?\n(?=( *)- )", re.MULTILINE)
"""The beginning of a list as kubectl writes it, with the indentation of its items."""


_VERSION = re.compile(r"^apiVersion:(?=\s)", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class YamlObjects:
    """A document: an object, or a list with its items, which are read while they are iterated.

    `members`: the members of the object or list, without its items. A value that is not an object is a list's item.
    """

    place: Location
    members: Mapping[str, Json]
    items: Iterator[tuple[Location, Json]] | None = None


def read_yaml_objects(source: SourceFile, problems: Problems) -> Iterator[YamlObjects]:
    """Read the documents of a text; report and leave out documents and items of lists with errors."""
    for part in chain.from_iterable(map(_split_outputs, split_documents(source.text))):
        match = _ITEMS.search(part.text)
        if match is None:
            yield from _read_objects(source.name, part, problems)
            continue
        begin = match.end()
        end, starts = _list_extent(part.text, begin, match[1])
        lines = part.text.count("\n", 0, begin)
        # The list's own members are before and after its items.
        around = DocumentText(part.text[: match.start()] + part.text[end:], part.line)
        listed = _ListItems(source.name, part, problems, [*starts, end], part.line + lines)
        for document in _read_objects(source.name, around, problems):
            yield replace(document, items=listed.read(len(match[1])))


def _split_outputs(part: DocumentText) -> Iterator[DocumentText]:
    """Split outputs of kubectl that were appended without a document marker: each begins with its apiVersion."""
    bounds = [0, *[match.start() for match in _VERSION.finditer(part.text)][1:], len(part.text)]
    line = part.line
    for begin, end in pairwise(bounds):
        yield DocumentText(part.text[begin:end], line)
        line += part.text.count("\n", begin, end)


def _read_objects(name: str, part: DocumentText, problems: Problems) -> Iterator[YamlObjects]:
    for place, value in _compose_values(name, part, problems):
        members = as_mapping(value)
        listed = members.get("items") if isinstance(value, dict) else [value]
        if isinstance(listed, list):
            members = {member: members[member] for member in members if member != "items"}
            yield YamlObjects(place=place, members=members, items=zip(repeat(place), listed))
        else:
            yield YamlObjects(place=place, members=members)


def _compose_values(name: str, part: DocumentText, to: Problems) -> Iterator[tuple[Location, Json]]:
    """Compose the documents of a text, with their places in the file."""
    stream_problems = Problems()
    documents = read_documents(SourceFile(name, part.text), stream_problems, Dialect.MANIFESTS)
    problems = [*stream_problems.items, *(problem for document in documents for problem in document.problems.items)]
    for problem in problems:
        to.items.append(structs.replace(problem, location=_shift_lines(problem.location, part.line)))
    for document in documents:
        if not document.empty and not document.problems.failed:
            yield _shift_lines(document.root.location, part.line), manifest_json(document.root)


def _shift_lines(place: Location, lines: int) -> Location:
    return structs.replace(place, line=place.line + lines)


def _list_extent(text: str, begin: int, indentation: str) -> tuple[int, list[int]]:
    """Return the end of a list in block style, and the beginnings of its items.

    Everything inside an item is indented further than its dash (YAML 1.2.2, section 8.2.1).
    """
    starts: list[int] = []
    at = begin
    while at < len(text):
        after = (text.find("\n", at) + 1) or len(text)
        if text.startswith(f"{indentation}- ", at):
            starts.append(at)
        elif not text.startswith((f"{indentation} ", "#"), at) and text[at:after].strip():
            return at, starts
        at = after
    return at, starts


@dataclass(frozen=True, slots=True)
class _ListItems:
    """The items of a list: `bounds` are their offsets and the end of the last, `line` the number of lines before."""

    name: str
    part: DocumentText
    problems: Problems
    bounds: list[int]
    line: int

    def read(self, indentation: int) -> Iterator[tuple[Location, Json]]:
        """Compose the items."""
        line = self.line
        for begin, end in zip(self.bounds, self.bounds[1:], strict=False):
            text = self.part.text[begin:end]
            item = " " * (indentation + 2) + text[indentation + 2 :]  # without its dash
            yield from _compose_values(self.name, DocumentText(item, line), self.problems)
            line += text.count("\n")
