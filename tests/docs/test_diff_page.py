"""docs/how-to/compare.md: kinds of change, options, exit codes and bounds are those of the command."""

import re

import click
import pytest

from rules_engine.difference.grouping import MAX_LINES
from rules_engine.difference.reading.usage import MAX_ENTRIES, MAX_NODES
from rules_engine.difference.values import Kind
from server.cli import main
from tests.support.documents import REPOSITORY

TEXT = (REPOSITORY / "docs/how-to/compare.md").read_text(encoding="utf-8")
COMMAND = main.commands["diff"]


def section(title: str) -> str:
    return TEXT.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def first_cells(text: str) -> list[str]:
    return re.findall(r"^\| `([^`|]+)` \|", text, re.MULTILINE)


def test_the_kinds_of_change_are_listed_in_order() -> None:
    assert first_cells(section("The answer")) == [kind.value for kind in Kind]


def test_the_help_lists_the_kinds_of_change() -> None:
    *kinds, last = Kind
    [allow] = [option for option in COMMAND.params if option.name == "allow"]

    assert isinstance(allow, click.Option)
    assert f": {', '.join(kinds)} or {last}. " in (allow.help or "")


def test_every_option_is_documented() -> None:
    options = {max(option.opts, key=len) for option in COMMAND.params if isinstance(option, click.Option)}

    assert {name for name in options if f"`{name}" not in TEXT} == set()


@pytest.mark.parametrize(
    "text",
    [
        f"the {MAX_LINES:,} lines that are kept",
        f"{MAX_NODES:,} nodes, as many namespaces",
        f"{MAX_ENTRIES:,} labels, taints and amounts of them are read",
    ],
)
def test_bounds_in_the_text_match_the_command(text: str) -> None:
    assert text in re.sub(r"\s+", " ", TEXT)
