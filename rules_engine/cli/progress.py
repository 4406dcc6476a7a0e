"""Progress bar on standard error, while that is a terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

Reported = Callable[[str, int, int], None]
"""A function that gets a text, the amount that is done and the total; 0 if that is not known."""

Column = Literal["count", "elapsed", "remaining"]
"""Columns after the bar: the amounts, the time since the start, the time left."""


@contextmanager
def progress_bar(*columns: Column) -> Iterator[Reported]:
    """Show a progress bar while the block runs; yield the function that moves it."""
    if not sys.stderr.isatty():
        yield lambda _text, _done, _total: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    from rules_engine.model.problems.source import escape_controls

    kinds: dict[Column, type[ProgressColumn]] = {
        "count": MofNCompleteColumn,
        "elapsed": TimeElapsedColumn,
        "remaining": TimeRemainingColumn,
    }
    shown = TextColumn("{task.description}", markup=False), BarColumn(), *(kinds[column]() for column in columns)
    with Progress(*shown, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)

        def show(text: str, done: int, total: int) -> None:
            description = escape_controls(text)
            # Each text is shown, also if it is for less time than between two refreshes.
            is_new = description != bar.tasks[0].description
            bar.update(task, description=description, completed=done, total=total or None, refresh=is_new)

        yield show
