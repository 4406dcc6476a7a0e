"""Source locations of values in rule files, and excerpts of texts in messages."""

import re
from bisect import bisect_right
from dataclasses import dataclass
from typing import Annotated, Any

from msgspec import Meta, Struct


class Location(Struct, frozen=True, order=True, forbid_unknown_fields=True):
    """A location in a file."""

    file: str
    line: Annotated[int, Meta(description="Counts from 1.")]
    column: Annotated[int, Meta(description="Counts characters from 1.")]

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"

    @classmethod
    def parse(cls, text: str) -> "Location | None":
        """Return the location that a text names; None if it names none. The name of a file may have colons."""
        place = _LOCATION.fullmatch(text)
        return cls(place[1], int(place[2]), int(place[3])) if place else None


_LOCATION = re.compile(r"(.+):([0-9]{1,9}):([0-9]{1,9})", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a rule: its path below `spec`, such as `namespaces.team-b` or `rungs[2].when`, and its location."""

    path: str
    location: Location

    def to_json(self) -> dict[str, Any]:
        """Return its members in a decision."""
        return {"source": str(self.location), "field": self.path}


@dataclass(frozen=True, slots=True)
class SourceText:
    """A string read from a file, with the location of each of its characters.

    `breaks` holds (offset, line, column) triples in order of offset, the first at offset 0: from each offset to the
    next, one character of `text` is one column of the file. Plain and quoted scalars have one break and one
    more per escape or fold; block scalars have one per line.
    """

    text: str
    file: str
    breaks: tuple[tuple[int, int, int], ...]

    @classmethod
    def inline(cls, text: str, file: str = "<expression>") -> "SourceText":
        """Return a text that is not in a file, with locations that count from its own start."""
        breaks = [(0, 1, 1)]
        for offset, character in enumerate(text):
            if character == "\n":
                breaks.append((offset + 1, len(breaks) + 1, 1))
        return cls(text, file, tuple(breaks))

    @property
    def location(self) -> Location:
        """The location of the first character."""
        return self.at(0)

    def at(self, offset: int) -> Location:
        """Return the location of the character at `offset`; one past the end is allowed."""
        start, line, column = self.breaks[bisect_right(self.breaks, offset, key=lambda entry: entry[0]) - 1]
        return Location(self.file, line, column + offset - start)

    def __str__(self) -> str:
        return self.text


MAX_EXCERPT = 60
"""Characters of a value or an expression that a message quotes: enough to recognize it, and to fit on one line."""

MAX_REMEDY = 100
"""Characters of YAML that a message tells the author to write: nobody copies more from a message."""


def truncate(text: str, limit: int = MAX_EXCERPT) -> str:
    """Shorten a text that a message quotes."""
    return text if len(text) <= limit else f"{text[:limit]}…"


def escape_controls(text: str) -> str:
    """Escape control characters in text from pods and files: a terminal or a CI log would interpret them."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
