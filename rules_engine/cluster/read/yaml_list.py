"""Kubernetes objects in YAML: documents, and the items of lists in block style, which are composed one by one.

So a list may exceed the composer's bounds, which apply to each item.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from msgspec import structs

from rules_engine.cluster.read.manifests import manifest_json
from rules_engine.language.files import SourceFile
from rules_engine.language.yaml.documents import Dialect, DocumentText, read_documents, split_documents
from rules_engine.model.json.patch import Json
from rules_engine.model.problems.problem import Problems
from rules_engine.model.problems.source import Location

_ITEMS = re.compile(r"^items:[ \t]*\r?\n(?=( *)- )", re.MULTILINE)
"""The beginning of a list as kubectl writes it, with the indentation of its items."""

_VERSION = re.compile(r"^apiVersion:(?=\s)", re.MULTILINE)

PlacedValues = Iterator[tuple[Location, Json]]
"""Values with their places in a file."""


def read_yaml_objects(source: SourceFile, problems: Problems) -> Iterator[tuple[Location, Json, PlacedValues | None]]:
    """Yield each document of a text with its place; report and leave out documents and items with errors.

    Third is None, or, for a list in block style, its items, which the document then lacks.
    """
    # Outputs of kubectl that were appended without a document marker: each begins with its apiVersion.
    for part in (
        part
        for each in split_documents(source.text)
        for part in _cut(each, [0, *[match.start() for match in _VERSION.finditer(each.text)][1:], len(each.text)])
    ):
        match = _ITEMS.search(part.text)
        if match is None:
            yield from ((place, value, None) for place, value in _compose_values(source.name, part, problems))
            continue
        begin = match.end()
        end, starts = _list_extent(part.text, begin, match[1])
        # The list's own members are before and after its items.
        around = DocumentText(part.text[: match.start()] + part.text[end:], part.line)
        items = _list_items(source.name, part, [*starts, end], len(match[1]), problems)
        for place, value in _compose_values(source.name, around, problems):
            yield place, value, items


def _cut(part: DocumentText, bounds: Sequence[int]) -> Iterator[DocumentText]:
    """Yield the texts between offsets of a text."""
    line = part.line + part.text.count("\n", 0, bounds[0])
    for begin, end in pairwise(bounds):
        yield DocumentText(part.text[begin:end], line)
        line += part.text.count("\n", begin, end)


def _list_items(
    name: str, part: DocumentText, bounds: Sequence[int], indentation: int, problems: Problems
) -> PlacedValues:
    """Compose the items of a list, whose texts are between offsets."""
    for item in _cut(part, bounds):
        without_dash = " " * (indentation + 2) + item.text[indentation + 2 :]
        yield from _compose_values(name, DocumentText(without_dash, item.line), problems)


def _compose_values(name: str, part: DocumentText, to: Problems) -> PlacedValues:
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
