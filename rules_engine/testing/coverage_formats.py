"""Coverage of rules as text, JSON and a tracefile of lcov."""

from collections.abc import Iterator
from itertools import groupby

from rules_engine.model.json.patch import Json
from rules_engine.model.problems.excerpt import escape_controls
from rules_engine.report.documents import field_members, location_members
from rules_engine.testing.coverage import Coverage, CoverageItem

_LINE_ENDS = str.maketrans({"\r": r"\r", "\n": r"\n"})
"""Escapes for names of files. Tracefiles define none, and a name with a line end could add records."""


def coverage_table(coverage: Coverage, minimum: float = 0) -> Iterator[str]:
    """Yield a table of the uncovered items, and the total, with the minimum if it is not reached."""
    rows = [
        (escape_controls(str(item.location)), escape_controls(item.name), f"never {item.event}")
        for item in coverage.uncovered
    ]
    if rows:
        place, name = (max(len(row[column]) for row in rows) for column in (0, 1))
        yield "not covered"
        yield from (f"  {row[0]:{place}}  {row[1]:{name}}  {row[2]}" for row in rows)
    low = "" if coverage.reaches(minimum) else f", less than {minimum:g} %"
    yield f"coverage {coverage.percent:g} %: {coverage.covered} of {len(coverage.items)}{low}"


def coverage_json(coverage: Coverage) -> Json:
    """Return the coverage in the document of `test --output json`."""
    return {
        **field_members(coverage, "percent covered"),
        "total": len(coverage.items),
        "uncovered": [
            {"rule": item.rule, **location_members(item.location), "name": item.name, "never": item.event}
            for item in coverage.uncovered
        ],
    }


def lcov_lines(coverage: Coverage) -> Iterator[str]:
    """Yield the lines of a tracefile (geninfo(1)). Outcomes of conditions are branches, all other items are lines.

    The hits of a line are the fewest of any item in it, so that a covered line has no uncovered item. A condition has
    as many hits as it was evaluated.
    """
    for file, file_items in groupby(coverage.items, key=lambda item: item.location.file):
        items = tuple(file_items)
        yield "TN:"
        yield f"SF:{file.translate(_LINE_ENDS)}"
        taken = [branch for line in _items_by_line(items) for branch in _branch_records(*line)]
        yield from (f"BRDA:{line},{block},{branch},{hits}" for line, block, branch, hits in taken)
        yield f"BRF:{len(taken)}"
        yield f"BRH:{sum(hits not in ('-', '0') for *_, hits in taken)}"
        counts = [(line, _line_hits(line_items)) for line, line_items in _items_by_line(items)]
        yield from (f"DA:{line},{count}" for line, count in counts)
        yield f"LF:{len(counts)}"
        yield f"LH:{sum(count > 0 for _, count in counts)}"
        yield "end_of_record"


def _items_by_line(items: tuple[CoverageItem, ...]) -> Iterator[tuple[int, list[CoverageItem]]]:
    for line, line_items in groupby(items, key=lambda item: item.location.line):
        yield line, list(line_items)


def _line_hits(items: list[CoverageItem]) -> int:
    others = [item.hits for item in items if item.outcome is None]
    evaluated = [sum(item.hits for item in outcomes) for outcomes in _items_by_condition(items)]
    return min([*others, *evaluated])


def _branch_records(line: int, items: list[CoverageItem]) -> Iterator[tuple[int, int, int, str]]:
    """Yield line, number of the condition in it, number of the outcome, and its hits; "-": never evaluated."""
    for block, outcomes in enumerate(_items_by_condition(items)):
        evaluated = any(item.covered for item in outcomes)
        for branch, item in enumerate(outcomes):
            yield line, block, branch, str(item.hits) if evaluated else "-"


def _items_by_condition(items: list[CoverageItem]) -> Iterator[list[CoverageItem]]:
    outcomes = [item for item in items if item.outcome is not None]
    for _, condition in groupby(outcomes, key=lambda item: item.location):
        yield list(condition)
