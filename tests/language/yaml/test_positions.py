"""Positions of the characters of YAML scalars."""

import json
from collections.abc import Iterator

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from rules_engine.language.files import SourceFile
from rules_engine.language.yaml.nodes import MapNode, ScalarNode
from rules_engine.language.yaml.scalars import resolve_scalar
from rules_engine.model.problems.source import SourceText
from tests.support.loading import documents

PLAIN = "abcXYZ.é😀('=)"
"""Characters that stand for themselves in every style."""


def scalar(text: str) -> SourceText:
    """The value of `k` in the only document of a text."""
    roots, problems = documents(text)
    assert not problems
    root = roots[0].root
    assert isinstance(root, MapNode)
    node = root.get("k")
    assert isinstance(node, ScalarNode)
    return node.source


def assert_found(text: str, source: SourceText, written_elsewhere: str = " \n") -> None:
    """Assert that each character, except those of line folding and escapes, is at its reported position."""
    lines = SourceFile("x.yaml", text).lines
    for offset, character in enumerate(source.text):
        if character not in written_elsewhere:
            place = source.at(offset)
            assert lines[place.line - 1][place.column - 1] == character, (text, source, offset)


words = st.text(PLAIN, min_size=1, max_size=6).filter(lambda word: word[0] not in "'=")
spaces = st.sampled_from(["", " ", "  "])
gaps = st.one_of(spaces, st.just("\t"))


@st.composite
def folded_lines(draw: st.DrawFn, gaps: st.SearchStrategy[str] = gaps) -> str:
    """Words over several lines, with empty lines, indentation and blanks before the ends of lines."""
    parts = [draw(words)]
    for _ in range(draw(st.integers(0, 4))):
        if draw(st.booleans()):
            parts.append(" " * draw(st.integers(1, 3)))
        else:
            parts.append(draw(gaps) + "\n" + (draw(gaps) + "\n") * draw(st.integers(0, 2)) + "  " + draw(gaps))
        parts.append(draw(words))
    return "".join(parts)


properties = st.sampled_from(["", "&a ", "&a\n  ", "&a # comment\n\n  # more\n  "])


@given(text=folded_lines(spaces), before=properties)
def test_every_character_of_a_plain_scalar_is_found(text: str, before: str) -> None:
    document = f"# é\nk: {before}({text}\nend: 1\n"
    assert_found(document, scalar(document))


@given(text=folded_lines(), before=properties, lead=gaps, trail=gaps)
def test_every_character_of_a_single_quoted_scalar_is_found(text: str, before: str, lead: str, trail: str) -> None:
    quoted = text.replace("'", "''")
    document = f"k: {before}'{lead}{quoted}{trail}' # end\n"
    source = scalar(document)
    assert_found(document, source, " \n\t")


ESCAPES = [r"\"", r"\\", r"\n", r"\t", r"\x41", r"\u00e9", r"\U0001F600", r"\ ", r"\/"]


@st.composite
def escaped_lines(draw: st.DrawFn) -> str:
    """Text for double quotes, escapes and escaped line ends among it."""
    parts = [draw(words)]
    for _ in range(draw(st.integers(0, 5))):
        parts.append(draw(st.sampled_from([*ESCAPES, " ", "\n  ", "\\\n  ", " \\\n\n  ", "\\ \n ", "\n\n  "])))
        parts.append(draw(words))
    return "".join(parts)


@given(text=escaped_lines(), before=properties)
@example(text="a\\\n   \\  b", before="")
@example(text="\n a", before="")
@example(text="a\n\n  ", before="")
def test_every_character_of_a_double_quoted_scalar_is_found(text: str, before: str) -> None:
    document = f'k: {before}"{text}"\n'
    assert_found(document, scalar(document), ' \n\t"\\AéÉ😀/')


block_lines = st.lists(
    st.one_of(st.just(""), st.just("  "), st.just("      "), words, words.map(" {}".format), words.map("\t{}".format)),
    max_size=6,
)


@given(
    lines=block_lines,
    style=st.sampled_from("|>"),
    chomping=st.sampled_from(["", "-", "+"]),
    explicit=st.booleans(),
    indent=st.integers(1, 4),
    before=properties.filter(lambda text: "\n" not in text),
    end=st.sampled_from(["end: 1\n", "", "# comment\nend: 1\n"]),
)
def test_every_character_of_a_block_scalar_is_found(
    lines: list[str], style: str, chomping: str, explicit: bool, indent: int, before: str, end: str
) -> None:
    explicit = explicit or any(line[:1] in (" ", "\t") for line in lines)
    body = "".join((" " * indent + line if line.strip() else line) + "\n" for line in lines)
    header = f"{style}{indent if explicit else ''}{chomping}"
    document = f"k: {before}{header} # comment\n{body}{end}"
    source = scalar(document)
    assert_found(document, source, "\n ")
    # A space is where it is said to be as well, unless it stands for the end of a line.
    last = [source.at(offset) for offset in range(len(source.text) + 1)]
    assert last == sorted(last)


@given(st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"]), max_size=30))
@example("a\u2028b")
@example("\x85")
def test_every_letter_of_a_json_string_is_found(text: str) -> None:
    document = json.dumps({"k": text})
    source = scalar(document)
    assert source.text == text
    assert_found(document, source, "".join(c for c in text if not (c.isascii() and c.isalnum())))


@given(
    value=st.text(st.characters(codec="utf-8", exclude_categories=["Cs"], exclude_characters="\x85\u2028\u2029")),
    style=st.sampled_from([None, "'", '"', "|", ">"]),
    width=st.sampled_from([10, 40, 200]),
)
def test_whatever_pyyaml_writes_is_found(value: str, style: str, width: int) -> None:
    document = yaml.safe_dump({"k": value}, default_style=style, width=width, allow_unicode=True)
    _, problems = documents(document)
    if problems:
        # PyYAML leaves y, n, 08 and 0o7 plain, which not all readers take for text.
        assert {problem.code for problem in problems} <= {"yaml-character", "yaml-boolean", "yaml-number"}
        return
    source = scalar(document)
    assert source.text == value
    plain = {character for character in value if character.isalnum()}
    lines = SourceFile("x.yaml", document).lines
    for offset, character in enumerate(value):
        place = source.at(offset)
        character_there = lines[place.line - 1][place.column - 1 : place.column]
        assert character not in plain or character_there in (character, "\\"), (document, offset)


def test_an_offset_just_past_the_end_is_after_the_last_character() -> None:
    assert str(scalar("k: abc\n").at(3)) == "x.yaml:1:7"
    assert str(scalar('k: "a\\tc" # x\n').at(3)) == "x.yaml:1:9"


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("k:\n", ["1:3"]),
        ("k: &a\nl: 1\n", ["1:6"]),
        ("k: ''\n", ["1:5"]),
        ("k: |\n", ["1:4"]),
        ("k: |", ["1:4"]),
        ("k: |+\n\n\n", ["2:1", "3:1", "3:2"]),
        ("k: >\n  a\n  b\n", ["2:3", "2:4", "3:3", "3:4", "3:5"]),
        ("k: >\n  a\n\n\n  b\n", ["2:3", "3:1", "4:1", "5:3", "5:4", "5:5"]),
        ("k: >\n  a\n   b\n", ["2:3", "2:4", "3:3", "3:4", "3:5", "3:6"]),
        ("k: |2\n   a\n", ["2:3", "2:4", "2:5", "2:6"]),
        ("k: 'a''b'\n", ["1:5", "1:6", "1:8", "1:9"]),
        ('k: "a\\\n  b"\n', ["1:5", "2:3", "2:4"]),
        ("k: a\n\n  b\n", ["1:4", "2:1", "3:3", "3:4"]),
        ("k: a\r\n  b\r\n", ["1:4", "1:5", "2:3", "2:4"]),
    ],
)
def test_positions_match_the_editor(text: str, places: list[str]) -> None:
    source = scalar(text)
    assert [str(source.at(offset)).removeprefix("x.yaml:") for offset in range(len(source.text) + 1)] == places


def test_plain_words_are_no_surprises() -> None:
    def surprises() -> Iterator[object]:
        for word in ("object.spec", "nvidia.com/gpu", "1g.10gb", "8Gi", "4000m", "-x", "1.2.3", "+", "-", ".", "12:5x"):
            value, surprise = resolve_scalar(word)
            assert value == word
            yield surprise

    assert not any(surprises())
