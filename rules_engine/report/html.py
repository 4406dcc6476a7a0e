"""Reports as a self-contained HTML page without scripts. The only module that imports jinja2."""

from itertools import islice
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from rules_engine.model.problems.source import escape_controls, truncate
from rules_engine.model.wording import MAX_NAMES, format_count, format_names, format_percent
from rules_engine.report import values
from rules_engine.report.values import WIDTH, Report, area_path

MAX_ROWS = 200
"""Rows of a table, items of a section, and names of an item. A page with more opens slowly, and JSON has all."""

UNFOLDED = 10
"""Rows of an item's table that are shown without a click."""

MAX_TEXT = 1_000
"""Characters of a text of a pod or a file."""

CURVE_HEIGHT = 40


def render_html(report: Report) -> str:
    """Return the report as an HTML page. Markup and control characters in texts are escaped."""
    environment = Environment(
        loader=FileSystemLoader([Path(__file__).parent]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_escape_text,
    )
    environment.tests |= {name.lower(): _type_test(getattr(values, name)) for name in values.BLOCKS}
    return environment.get_template("report.html").render(
        report=report,
        max_rows=MAX_ROWS,
        unfolded=UNFOLDED,
        width=WIDTH,
        curve_height=CURVE_HEIGHT,
        counted=format_count,
        names=format_names,
        max_names=MAX_NAMES,
        percent=format_percent,
        parts=lambda cell: cell if isinstance(cell, tuple) else (cell,),
        area=area_path,
        first=lambda items: list(islice(items, MAX_ROWS)),
    )


def _type_test(kind: type) -> Any:
    """Return a test for templates, such as `block is table`: Jinja has no isinstance."""
    return lambda value: isinstance(value, kind)


def _escape_text(value: object) -> object:
    """Escape control characters of a text, and cut it; HTML, such as the result of a macro, is left unchanged."""
    return (
        truncate(escape_controls(value), MAX_TEXT)
        if isinstance(value, str) and not hasattr(value, "__html__")
        else value
    )
