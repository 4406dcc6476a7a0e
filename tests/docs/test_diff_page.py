"""docs/how-to/compare.md: kinds of change, options, exit codes and the bound are those of the command."""

import re

import click

from rules_engine.questions.diff.comparison import MAX_LINES
from rules_engine.questions.diff.values import Kind
from rules_engine.server.commands import main
from tools.documents import REPOSITORY

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


def test_the_bound_in_the_text_is_that_of_the_command() -> None:
    assert f"the {MAX_LINES:,} lines that are kept" in re.sub(r"\s+", " ", TEXT)
