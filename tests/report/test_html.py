"""Reports as one HTML page."""

import re
from fractions import Fraction
from io import StringIO

import pytest

from rules_engine.report.html import MAX_ROWS, MAX_TEXT, UNFOLDED, render_html
from rules_engine.report.text import Screen
from rules_engine.report.values import (
    Bar,
    Block,
    Curve,
    Curves,
    Drawing,
    Drawings,
    Item,
    ItemField,
    Items,
    Lines,
    Report,
    Section,
    Shape,
    Span,
    Table,
    Tone,
    Tree,
    area_path,
)
from tests.support.html_pages import Page, page_of

EVIL = '<script>alert("1")</script>\x1b\u202e'


def table(rows: int, text: str = "r") -> Table:
    return Table(heads=("name", "size"), rows=[(text, Bar(Fraction(1, 2)))] * rows, numbers=("size",))


def blocks(text: str = "x") -> list[Block]:
    span = Span(text, Tone.BAD)
    shapes = [Shape(x="1", text=text, y=2, width="3", height=4, css="k1"), Shape(x="5", text=text)]
    return [
        table(1, text),
        Lines(lines=[(text, span)]),
        Items(
            items=[Item(title=span, lines=(text,), fields=[ItemField(text, text, text)], table=table(1))], noun="item"
        ),
        Items(items=[Item(objects=[f"{text} {n}" for n in range(5)])], noun="item"),
        Tree(line=text, children=[Tree(line=span)]),
        Curves(curves=[Curve(name=text, means=[Fraction(1, 2)], end="1h", text=text)]),
        Drawings(
            drawings=[Drawing(name=text, text=text, height=10, shapes=shapes, area="M0,0Z")],
            ticks=("0s", "1h"),
            legend=[("k1", text)],
            more=2,
        ),
    ]


def report(*found: Block, title: str = "x") -> Report:
    sections = [Section(title=f"First {title}", summary=title, blocks=found), Section(title="Second")]
    return Report(title=title, about=(title,), answer=(title,), sections=sections, notices=(title,))


def page(*found: Block) -> Page:
    return page_of(report(*found))


def test_the_page_needs_no_other_file_and_runs_nothing() -> None:
    rendered = page(*blocks())
    for tag, attributes in rendered.elements:
        assert tag not in ("script", "link", "img", "iframe", "object", "form")
        assert "src" not in attributes
        assert (attributes.get("href") or "#").startswith("#")
        assert not [name for name in attributes if name.startswith("on")]
    assert "url(" not in render_html(report(*blocks()))
    policy = next(attributes for _, attributes in rendered.elements if attributes.get("http-equiv"))
    assert policy["content"] == "default-src 'none'; style-src 'unsafe-inline'"


def test_every_link_leads_to_a_section() -> None:
    rendered = page()
    links = [attributes["href"] for tag, attributes in rendered.elements if tag == "a"]
    assert links == ["#first-x", "#second"]
    assert {str(link)[1:] for link in links} <= {attributes.get("id") for _, attributes in rendered.elements}


def test_the_page_has_a_light_and_a_dark_scheme() -> None:
    source = render_html(report())
    light, dark = re.findall(r":root \{(.*?)\}", source, re.DOTALL)
    assert "@media (prefers-color-scheme: dark)" in source
    assert '<meta name="color-scheme" content="light dark">' in source
    assert re.findall(r"(--\w+):", light) == re.findall(r"(--\w+):", dark)
    assert set(re.findall(r"var\((--\w+)\)", source)) == set(re.findall(r"(--\w+):", light))


def test_markup_and_control_characters_are_escaped() -> None:
    source = render_html(report(*blocks(EVIL), title=EVIL))
    assert "<script" not in source
    assert not {"\x1b", "\u202e"} & set(source)
    assert source.count("&lt;script&gt;alert(&#34;1&#34;)&lt;/script&gt;\\x1b\\u202e") > 25
    stream = StringIO()
    Screen(stream).report(report(*blocks(EVIL), title=EVIL))
    assert not {"\x1b", "\u202e"} & set(stream.getvalue())
    assert stream.getvalue().count("\\x1b\\u202e") > 15


def test_every_block_is_rendered() -> None:
    text = page(*blocks("word")).text
    assert text.count("word") == 25
    assert "word 0, word 1, word 2 and 2 more all 5 word 0 word 1" in text
    assert "and 2 more nodes (--output json has all)" in text
    labels = [each["aria-label"] for each in page(*blocks()).having("bar")]
    assert labels == ["50% used", "50% used"]


def test_long_paths_are_drawn_whole() -> None:
    means = [Fraction(number % 7, 7) for number in range(200)]
    curves = Curves(curves=[Curve(name="x", means=means, end="1h", text="")])
    path = area_path(means, 1, 40)
    drawing = Drawing(name="x", text="x", height=40, shapes=(), area=path)
    drawn = page(curves, Drawings(drawings=[drawing], ticks=(), legend=(), more=0)).having("area")
    assert len(path) > MAX_TEXT
    assert [each["d"] for each in drawn] == [path, path]


def test_long_parts_are_cut_and_folded() -> None:
    over = MAX_ROWS + 3
    items = [Item(title="a", table=table(over), objects=["b"] * over)]
    text = page(table(over), Lines(lines=["x" * 9_999] * over), Items(items=items * over, noun="item")).text
    assert "and 3 more rows (--output json has all)" in text
    assert "and 3 more lines (--output json has all)" in text
    assert "and 3 more items (--output json has all)" in text
    assert "and 3 more objects (--output json has all)" in text
    assert f"{over - UNFOLDED} more name size" in text
    assert f"{'x' * MAX_TEXT}…" in text


@pytest.mark.parametrize(
    ("means", "capacity", "path"),
    [
        ([0, 4, 4, 8], 8, "M0,40H0V40H250V20H750V0H1000V40Z"),
        ([9], 8, "M0,40H0V0H1000V40Z"),
        ([1], 0, "M0,40H0V40H1000V40Z"),
    ],
)
def test_an_area_has_a_step_for_each_change(means: list[int], capacity: int, path: str) -> None:
    assert area_path([Fraction(mean) for mean in means], capacity, 40) == path


def test_long_cells_wrap() -> None:
    rendered = page(table(1, "x" * 41), table(1, "x" * 40))

    assert len(rendered.having("long")) == 1
