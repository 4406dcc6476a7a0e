"""Reports as text."""

from collections import Counter
from fractions import Fraction
from io import StringIO

import pytest
from rich.cells import cell_len

from rules_engine.cli.program import ENCODING_ERRORS
from rules_engine.report.text import MAX_FIELDS, MAX_ROWS, MAX_TEXT, MIN_ROWS, Screen
from rules_engine.report.values import (
    Bar,
    Block,
    Curve,
    Curves,
    Drawings,
    Item,
    ItemField,
    Items,
    Lines,
    Report,
    Section,
    Span,
    Table,
    Tone,
    Tree,
)


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def shown(*blocks: Block, stream: StringIO | None = None) -> list[str]:
    """Return the lines of a section with these blocks."""
    stream = stream or StringIO()
    Screen(stream).report(Report(title="Answer", sections=[Section(title="Part", blocks=blocks)]))
    head, *lines = stream.getvalue().split("\nPart\n")[-1].split("\n")
    return [head, *lines][:-1]


def table(rows: int) -> Table:
    return Table(heads=("name", "size"), rows=[(f"r-{n}", f"{n}") for n in range(rows)], numbers=("size",))


def test_a_report_has_its_title_its_answer_its_sections_and_last_its_notices() -> None:
    stream = StringIO()
    inner = Section(title="Inner", summary="none")
    Screen(stream).report(
        Report(
            title="Answer",
            about=("what was asked",),
            answer=("yes",),
            sections=[Section(title="Outer", sections=[inner])],
            notices=["half was not read"],
        )
    )
    assert stream.getvalue() == "Answer\n  what was asked\n  yes\n\nOuter\n\nInner  none\n\n  half was not read\n"


def test_numbers_are_on_the_right_and_wide_characters_have_two_columns() -> None:
    rows = [("中文", "5", Bar(Fraction(1, 2))), ("\x1b", "1,000", Bar(None)), ("b", "7", Bar(Fraction(3, 2)))]
    lines = shown(Table(heads=("name", "size", "East"), rows=rows, numbers=("size",), names=("East",)))
    assert lines == [
        "  NAME   SIZE  East",
        "  中文      5  █████░░░░░  50%",
        "  \\x1b  1,000  ░░░░░░░░░░    -",
        "  b         7  ██████████ 150%",
    ]
    assert shown(Table(heads=("a",), rows=())) == []


def test_a_curve_has_columns_of_equal_time_and_only_idle_ones_are_empty() -> None:
    def curve(*means: int) -> str:
        parts = [Fraction(mean, 8) for mean in means]
        (line,) = shown(Curves(curves=[Curve(name="gpu", means=parts, end="1h", text="")]))
        return line

    assert curve(0, 1, 4, 8) == "  gpu  0s ▕ ▁▄█▏ 1h"
    assert curve(9) == "  gpu  0s ▕█▏ 1h"
    assert curve(*[0] * 60, *[8] * 60) == f"  gpu  0s ▕{' ' * 20}{'█' * 20}▏ 1h"
    assert shown(Drawings(drawings=(), ticks=(), legend=(), more=0)) == []


def test_long_parts_are_cut_and_the_rest_is_counted() -> None:
    over = MAX_ROWS + 2
    assert shown(table(over))[-1] == "  and 2 more rows (--output json has all)"
    assert shown(Lines(lines=["a"] * over))[-1] == "  and 2 more lines (--output json has all)"
    assert len(shown(Lines(lines=["a"] * over, whole=True))) == over
    items = shown(Items(items=[Item(title="a")] * over, noun="thing"))
    assert items[-1] == "  and 2 more things (--output json has all)"
    fields = shown(Items(items=[Item(title="a", fields=[ItemField("b", "c")] * (MAX_FIELDS + 1))], noun="thing"))
    assert fields[-1] == "    and 1 more line (--output json has all)"
    assert shown(Lines(lines=["x" * 999])) == [f"  {'x' * MAX_TEXT}…"]


def test_items_share_the_rows_of_their_tables() -> None:
    for number, rows in ((1, MAX_ROWS), (2, MAX_ROWS // 2), (MAX_ROWS, MIN_ROWS)):
        lines = shown(Items(items=[Item(title="a", table=table(100))] * number, noun="thing"))
        assert sum(line.startswith("    r-") for line in lines) == number * rows


def test_an_item_has_its_objects_lines_fields_and_commands() -> None:
    field = ItemField(
        "remedy", ("Drain it. ", Span("(risk: High)", Tone.BAD)), command="kubectl drain a\nkubectl get a"
    )
    objects = [f"Node {n}" for n in range(5)]
    assert shown(
        Items(items=[Item(title="Bad", lines=("why",), fields=[field], objects=objects), Item()], noun="x")
    ) == [
        "  Bad  Node 0, Node 1, Node 2 and 2 more",
        "    why",
        "    remedy: Drain it. (risk: High)",
        "        kubectl drain a",
        "        kubectl get a",
        "",
        "",
    ]


@pytest.mark.parametrize("columns", [20, 40, 60, 200])
def test_lines_are_wrapped_at_word_ends_to_the_width(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("NO_COLOR", "1")
    words = " ".join(["word"] * 30)
    tree = Tree(line="root", children=[Tree(line=words, children=[Tree(line=words)]), Tree(line=words)])
    lines = shown(Lines(lines=[words]), tree, stream=Terminal())
    assert max(map(cell_len, lines)) <= max(columns, 40)
    text = " ".join(lines)
    assert text.count("word") == 120
    assert set(text.split()) == {"word", "root", "├──", "└──", "│"}
    assert (len(lines) == 5) is (columns == 200)
    assert all(line.startswith("    ") for line in lines[1 : lines.index("  root")])


def test_tones_are_colours_of_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("NO_COLOR", raising=False)
    line = Lines(lines=[(Span("bad", Tone.BAD), " and ", Span("good", Tone.GOOD))])
    assert shown(line) == ["  bad and good"]
    stream = Terminal()
    Screen(stream).block(line)
    assert stream.getvalue() == "  \x1b[31mbad\x1b[0m and \x1b[32mgood\x1b[0m\n"


def test_every_sign_has_an_ascii_replacement_of_one_column() -> None:
    signs = "✓✗→×−…▕▏░█▁▂▃▄▅▆▇│├└─"
    encoded = signs.encode("ascii", ENCODING_ERRORS)
    assert len(encoded) == len(signs) == cell_len(signs)
    assert b"?" not in encoded


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_a_table_fits_the_terminal_and_loses_nothing(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("NO_COLOR", "1")
    cells = (
        "gpu-node-" + "x" * 50,
        "the node has too few GPUs",
        "1,234",
        "excluded by the taint " * 4,
        Bar(Fraction(1, 2)),
    )
    heads = ("node", "why", "pods", "note", "in use")
    lines = shown(Table(heads=heads, rows=[cells], numbers=("pods",)), stream=Terminal())
    assert max(map(cell_len, lines)) <= columns
    texts = "".join(map(str, cells[:4])).replace(" ", "")
    assert Counter(texts) <= Counter("".join(lines))
    assert "█████░░░░░  50%" in "\n".join(lines)
    assert any("1,234" in line for line in lines)
    assert len(shown(Table(heads=heads, rows=[cells]))) == 2, "in a pipe, a row is a line"
