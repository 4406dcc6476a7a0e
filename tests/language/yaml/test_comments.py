"""Comments of YAML files, apart from `#` in values."""

import re

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from rules_engine.language.files import SourceFile
from rules_engine.language.yaml import documents as reading
from rules_engine.language.yaml.comments import Comments, find_comments

PATTERN = re.compile("# me.*")


def comments(text: str) -> Comments:
    return find_comments(SourceFile("x.yaml", text).lines, PATTERN)


def places(text: str) -> list[tuple[int, int, str]]:
    """Return line, target and text of each comment."""
    return [(comment.line, comment.target, comment.found.group()) for comment in comments(text).found]


@pytest.mark.parametrize("loader", [yaml.SafeLoader, reading.LOADER])
@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a: 1 # me", [(1, 1, "# me")]),
        ("# me\na: 1", [(1, 2, "# me")]),
        ("  # me 1\n# me 2\na: 1", [(1, 3, "# me 1"), (2, 3, "# me 2")]),
        ("# me\n\na: 1", [(1, 2, "# me")]),
        ("a: 1\n# me", [(2, 2, "# me")]),
        ("a: 1 # you # me", [(1, 1, "# me")]),
        ("# a: 1 # me", []),
        ("a: 1# me", []),
        ("a: '# me'", []),
        ("a: '# me' # me too", [(1, 1, "# me too")]),
        ('a: "x\n  # me\n  y" # me too', [(3, 3, "# me too")]),
        ("a: |\n  # me\n\n  # me", []),
        ("a: >- # me\n  # me too", [(1, 1, "# me")]),
        ("a: |\n  x\n# me\nb: 1", [(3, 4, "# me")]),
        ("a: |\n# me\nb: 1", [(2, 3, "# me")]),
        ("a: {b: [c, # me\n d # me too\n]}", [(1, 1, "# me"), (2, 2, "# me too")]),
        ("a: b\n  c # me", [(2, 2, "# me")]),
        ("- &a # me\n  x\n- *a # me", [(1, 1, "# me"), (3, 3, "# me")]),
        ("a: 1 # me\n---\n- [ # me\n- 'x # me\n--- # me\nb: 1 # me", [(n, n, "# me") for n in (1, 3, 5, 6)]),
        ("%YAML 1.1 # me\n---\na: 1", [(1, 1, "# me")]),
    ],
)
def test_comments_are_distinguished_from_values(
    text: str, found: list[tuple[int, int, str]], loader: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "LOADER", loader)
    for end in ("\n", "\r\n", "\r"):
        assert places(text.replace("\n", end)) == found


@pytest.mark.parametrize(
    ("text", "about"),
    [
        ("a: | # me\n  b\n  c\nd: 1\n", [1, 2, 3]),
        ("# me\na: 'b\n\n  c'\nd: 1\n", [2, 3, 4]),
        ("a: 'b\n  c' # me\nd: 1\n", [1, 2]),
        ("a: 1 # me\nb: 2\n", [1]),
        ("x: 1\n---\n# me\na: |\n  b\n\n\nc: 1\n", [4, 5, 6, 7]),
    ],
)
def test_a_comment_applies_to_all_lines_of_a_value(text: str, about: list[int]) -> None:
    read = comments(text)
    (comment,) = read.found
    assert [line for line in range(1, 10) if read.about(comment, line)] == about


pieces = ["# me", " # me", "\n# me", "a", "'", '"', ": ", "\\", "\t# me", "---"]
strings = st.lists(st.sampled_from(pieces)).map("".join)


@given(st.recursive(strings, lambda inner: st.lists(inner) | st.dictionaries(strings, inner)), st.booleans())
def test_no_value_is_a_comment(value: object, flow: bool) -> None:
    for style in (None, '"', "|", ">", "'"):
        text = yaml.safe_dump({"a": value}, default_flow_style=flow, default_style=style, width=20)
        assert comments(text).found == ()
        assert [comment.line for comment in comments(f"{text}# me\n").found] == [text.count("\n") + 1]
