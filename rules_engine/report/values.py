"""Report: an answer for people, as data that every format renders.

Texts are those of pods and files as they are: each renderer escapes what its format interprets. Rows and items come in
the order in which they are shown; a renderer shows as many as its format can take, and counts the others.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction


class Tone(StrEnum):
    """What a text says beside its words: its colour."""

    STRONG = "strong"
    QUIET = "quiet"
    GOOD = "good"
    INFO = "info"
    WARNING = "warning"
    BAD = "bad"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class Span:
    """A part of a line with its tone."""

    text: str
    tone: Tone


Words = str | Span | tuple[str | Span, ...]
"""A line, or a cell of a table."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A share of a whole, in a cell; None if it is not known. A share above 1 is more than there is."""

    share: Fraction | None


Cell = Words | Bar


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of cells; `noun` names a row that is not shown.

    Columns of `numbers`, by their heads, are on the right. `names`: heads that are names, such as those of clusters.
    """

    heads: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    numbers: Collection[str] = ()
    names: Collection[str] = ()
    noun: str = "row"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """Sentences of their own. `whole`: all are shown, as of a diff of one pod."""

    lines: Sequence[Words]
    noun: str = "line"
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Field:
    """A named value of an item; a `command` is a line for a shell, or several, which is never wrapped or cut."""

    name: str
    value: Words
    command: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One of several answers: a finding, or a change. `objects`: the names of all that it is about; some are shown."""

    title: Words = ()
    tone: Tone = Tone.INFO
    lines: Sequence[Words] = ()
    fields: Sequence[Field] = ()
    objects: Sequence[str] = ()
    table: Table | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Items:
    """Items; `noun` names one that is not shown."""

    items: Sequence[Item]
    noun: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """A line with those below it."""

    line: Words
    children: Sequence["Tree"] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """The use of a resource over time: means of parts of equal length, and the time at the end."""

    name: str
    means: Sequence[Fraction]
    capacity: int
    end: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves:
    """Curves that a reader compares."""

    curves: Sequence[Curve]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A rectangle of a drawing, or, without a width, a line from its top to its bottom."""

    x: str
    text: str
    css: str = "mark"
    y: int = 0
    width: str = ""
    height: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """Shapes over time, WIDTH wide; `area` is the path of one. Only pages have drawings."""

    name: str
    text: str
    height: int
    shapes: Sequence[Shape]
    area: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawings:
    """Drawings with one time axis. `legend`: text by CSS class; `more`: those that are not drawn."""

    drawings: Sequence[Drawing]
    ticks: Sequence[str]
    legend: Sequence[tuple[str, str]]
    more: int


Block = Table | Lines | Items | Tree | Curves | Drawings


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A part of a report. `summary`: its number or sentence. `folded`: read last, so that Markdown folds it."""

    title: str
    summary: str = ""
    blocks: Sequence[Block] = ()
    sections: Sequence["Section"] = ()
    folded: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """An answer. `about`: what was asked. `answer`: the result, in a sentence or a few. `notices`: what to mind."""

    title: str
    about: Sequence[str] = ()
    answer: Sequence[str] = ()
    sections: Sequence[Section] = ()
    notices: Sequence[str] = ()


BLOCKS = ("Table", "Lines", "Items", "Tree", "Curves", "Drawings", "Bar", "Span")
"""The classes that a template tells apart."""


WIDTH = 1000
"""Width of a drawing, from the beginning to the end."""


def area(means: Sequence[Fraction], capacity: int, height: int) -> str:
    """Return the path of an area of steps of equal width; the capacity has the whole height."""
    points = [f"M0,{height}"]
    last = ""
    for number, mean in enumerate(means):
        level = height - float(min(mean / capacity, Fraction(1))) * height if capacity else height
        y = f"{level:.4g}"
        if y != last:
            points.append(f"H{number * WIDTH / len(means):.5g}V{y}")
        last = y
    return f"{''.join(points)}H{WIDTH}V{height}Z"
