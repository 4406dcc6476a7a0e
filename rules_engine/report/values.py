"""Report: the result of a command for people, as data that every format renders.

Texts of pods and files are not escaped: each renderer escapes what its format interprets. Rows and items are in the
order of display; a renderer shows as many as fit its format, and counts the others.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from rules_engine.model.problems.source import Location


class Tone(StrEnum):
    """The emphasis of a text, shown as a colour."""

    STRONG = "strong"
    QUIET = "quiet"
    GOOD = "good"
    INFO = "info"
    WARNING = "warning"
    BAD = "bad"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class Span:
    """A part of a line with its tone. `place`: the location in a file that the text names."""

    text: str
    tone: Tone
    place: Location | None = None


Words = str | Span | tuple[str | Span, ...]
"""A line, or a cell of a table."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A share of a capacity, as a cell; None if unknown. Requests beyond the capacity make a share above 1."""

    share: Fraction | None


Cell = Words | Bar


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of cells; `noun` is the word for a row, to count the omitted rows.

    Columns with a head in `numbers` are right-aligned. `names`: heads that are names, such as names of clusters: their
    letter case is kept.
    """

    heads: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    numbers: Collection[str] = ()
    names: Collection[str] = ()
    noun: str = "row"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """Separate sentences. `whole`: show all lines, as in the diff of a pod."""

    lines: Sequence[Words]
    noun: str = "line"
    whole: bool = False


@dataclass(frozen=True, slots=True)
class ItemField:
    """A named value of an item; `command` is one or more lines for a shell, which are never wrapped or cut."""

    name: str
    value: Words
    command: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One of several results: a finding or a change. `objects`: the names of all affected objects; some are shown."""

    title: Words = ()
    tone: Tone = Tone.INFO
    lines: Sequence[Words] = ()
    fields: Sequence[ItemField] = ()
    objects: Sequence[str] = ()
    table: Table | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Items:
    """Items; `noun` is the word for an item, to count the omitted items."""

    items: Sequence[Item]
    noun: str


@dataclass(frozen=True, slots=True)
class Tree:
    """A line with its child lines."""

    line: Words
    children: Sequence["Tree"] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """The use of a resource over time: means of intervals of equal length, as shares of the capacity; and the end."""

    name: str
    means: Sequence[Fraction]
    end: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves:
    """Curves with one time axis, for comparison."""

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
    """Shapes over time, WIDTH wide, and the SVG path of an area behind them. Only HTML pages have drawings."""

    name: str
    text: str
    height: int
    shapes: Sequence[Shape]
    area: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawings:
    """Drawings with one time axis. `legend`: text by CSS class; `more`: the number of omitted drawings."""

    drawings: Sequence[Drawing]
    ticks: Sequence[str]
    legend: Sequence[tuple[str, str]]
    more: int


Block = Table | Lines | Items | Tree | Curves | Drawings


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A part of a report. `summary`: a number or sentence after the title. `folded`: Markdown folds it, at the end."""

    title: str
    summary: str = ""
    blocks: Sequence[Block] = ()
    sections: Sequence["Section"] = ()
    folded: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A report. `about`: the inputs. `answer`: the result in a few sentences. `notices`: caveats of the result."""

    title: str
    about: Sequence[str] = ()
    answer: Sequence[str] = ()
    sections: Sequence[Section] = ()
    notices: Sequence[str] = ()


BLOCKS = ("Table", "Lines", "Items", "Tree", "Curves", "Drawings", "Bar", "Span")
"""Classes for which templates have tests."""

WIDTH = 1000
"""Width of a drawing, from the first to the last time."""


def area_path(means: Sequence[Fraction], capacity: int | float, height: int) -> str:
    """Return the SVG path of an area with steps of equal width; the capacity has the full height."""
    points = [f"M0,{height}"]
    last = ""
    for number, mean in enumerate(means):
        level = height - min(float(mean / Fraction(capacity)), 1) * height if capacity else height
        y = f"{level:.4g}"
        if y != last:
            points.append(f"H{number * WIDTH / len(means):.5g}V{y}")
        last = y
    return f"{''.join(points)}H{WIDTH}V{height}Z"
