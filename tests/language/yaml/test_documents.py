"""YAML of rule files and of manifests."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import assume, example, given
from hypothesis import strategies as st

from rules_engine.language.yaml import documents as reading
from rules_engine.language.yaml.documents import MAX_DEPTH, Dialect
from rules_engine.language.yaml.nodes import ListNode, MapNode, ScalarNode
from rules_engine.language.yaml.scalars import resolve_scalar
from rules_engine.model.json.patch import Json
from tests.support.loading import codes, documents


def value(text: str, dialect: Dialect = Dialect.RULES) -> Json:
    """The only document of a text without problems, as JSON."""
    (document,), problems = documents(text, dialect)
    assert problems == []
    return document.root.json()


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("~", None),
        ("null", None),
        ("true", True),
        ("False", False),
        ("0", 0),
        ("-12", -12),
        ("+5", 5),
        ("9223372036854775807", 2**63 - 1),
        ("1.5", 1.5),
        ("-.5", -0.5),
        ("1e3", 1000.0),
        ("1.e-2", 0.01),
        ("4000m", "4000m"),
        ("'yes'", "yes"),
        ('"010"', "010"),
        ("1.2.3", "1.2.3"),
        ("12:5x", "12:5x"),
        ("2024-1", "2024-1"),
        ("yesterday", "yesterday"),
        ("|\n  1", "1\n"),
    ],
)
def test_scalars_are_read_as_in_yaml_1_2_and_json(text: str, meant: Json) -> None:
    root = value(f"a: {text}\n")
    assert root == {"a": meant}
    assert isinstance(root, dict)
    assert type(root["a"]) is type(meant)


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text().filter(lambda text: not re.fullmatch(r"[-+]?[0-9.]+[eE][-+]?[0-9]+", text)),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(min_size=1), inner, max_size=4),
    max_leaves=20,
)


@given(json_values)
def test_pyyaml_output_round_trips(meant: Json) -> None:
    text = yaml.safe_dump({"value": meant}, allow_unicode=False)
    (document,), problems = documents(text)
    # PyYAML leaves y, n, 08 and 0o7 plain, which not all readers take for text.
    assert set(codes(problems)) <= {"yaml-boolean", "yaml-number", "yaml-key"}
    if not problems:
        assert document.root.json() == {"value": meant}


@given(st.from_regex(r"[-+]?[0-9._:eExXoObB+-]{1,12}|[yYnNoOtTfF~][a-zA-Z]{0,4}|\.[a-zA-Z]{3}|=", fullmatch=True))
@example(".0_")
@example("1_0.5e+3")
@example("0_7")
@example("0b1_")
@example("1_0:30")
@example("0:30.5")
@example("1_.")
@example("-.5e3")
def test_a_value_that_yaml_1_1_reads_differently_is_a_surprise(text: str) -> None:
    meant, surprise = resolve_scalar(text)
    assume(not re.fullmatch("[-+]?0[bx]_+", text))  # PyYAML takes them for numbers and then fails to read them
    loader: Any = yaml.SafeLoader("")
    older = loader.resolve(yaml.ScalarNode, text, (True, False)).rpartition(":")[2]
    ours = {"NoneType": "null"}.get(type(meant).__name__, type(meant).__name__)
    if surprise is None and older != ours:
        # PyYAML misses exponents without a point or a sign, which YAML 1.1 and JSON both have.
        assert (older, ours) == ("str", "float")
        assert float(text) == meant


def test_every_value_has_its_line_and_column() -> None:
    (document,), _ = documents("a:\n  - b: {c: 1}\n  - [x, 'y']\n")
    root = document.root
    assert isinstance(root, MapNode)
    items = root.get("a")
    assert isinstance(items, ListNode)
    assert (items.location.line, items.location.column) == (2, 3)
    first, second = items.items
    assert isinstance(first, MapNode)
    assert isinstance(second, ListNode)
    inner = first.get("b")
    assert inner is not None
    assert (inner.location.line, inner.location.column, inner.length) == (2, 8, 6)
    quoted = second.items[1]
    assert isinstance(quoted, ScalarNode)
    assert (quoted.location.line, quoted.location.column, quoted.length) == (3, 10, 1)


def test_a_byte_order_mark_and_windows_line_ends_change_no_place() -> None:
    (document,), problems = documents("a: 1\r\nb:\r\n  c: 2\r\n")
    assert problems == []
    assert document.root.json() == {"a": 1, "b": {"c": 2}}


@pytest.mark.parametrize(
    "broken",
    [
        "b: [",
        "b: 'x",
        'b: "\\ud83d"',
        "b: c: d",
        "\tb: 1",
        "{b: 1} c",
        "b: 1\n}",
        "b: \u0007",
        "[" * (MAX_DEPTH + 1),
        "? [\n- a",
        "b: |\n  ---\nc\n - d",
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("loader", [yaml.SafeLoader, reading.LOADER])
def test_a_syntax_error_hides_no_other_document(
    broken: str, end: str, loader: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "LOADER", loader)
    text = f"a: 1\n---\n{broken}\n--- # the last\nc:\n  - !t d\n  - 'e\n\n    f'\n"
    roots, problems = documents(text.replace("\n", end))
    assert [document.root.json() for document in roots] == [{"a": 1}, {"c": ["d", "e\nf"]}]
    assert codes(problems)[1:] == ["yaml-tag"]
    assert 3 <= problems[0].location.line <= 3 + broken.count("\n")
    last = roots[1].root
    assert isinstance(last, MapNode)
    items = last.get("c")
    assert isinstance(items, ListNode)
    lines = 5 + broken.count("\n")
    assert [item.location.line for item in (last, items, *items.items)] == [line + lines for line in (0, 1, 1, 2)]
    assert problems[1].location.line == lines + 1
    quoted = items.items[1]
    assert isinstance(quoted, ScalarNode)
    assert (quoted.source.at(2).line, quoted.source.at(2).column) == (lines + 4, 5)


def test_each_document_with_a_syntax_error_is_reported() -> None:
    roots, problems = documents("a: [\n---\nb: 1\n...\n%YAML 1.1\n---\nc: 'd\n---\n{\n")
    assert [document.root.json() for document in roots] == [{"b": 1}]
    assert [(problem.code, problem.location.line) for problem in problems] == [
        ("yaml-syntax", 1),
        ("yaml-syntax", 7),
        ("yaml-syntax", 9),
    ]


def test_an_unclosed_quote_is_reported_where_it_begins_even_before_another_document() -> None:
    _, (problem,) = documents("a: 1\nb: 'x\n---\nc: 1\n")
    assert str(problem) == "x.yaml:2:4: error: the quote is not closed: write 'x' [yaml-syntax]"


def test_many_syntax_errors_are_read_in_linear_time() -> None:
    parts = 2000
    roots, problems = documents("a: [\n---\nb: 1\n---\n" * parts)
    assert codes(problems) == ["yaml-syntax"] * parts
    assert len(roots) == parts + 1


def test_too_many_values_end_the_file_after_a_syntax_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MAX_NODES", 10)
    roots, problems = documents("a: [\n---\n[1,2,3,4]\n---\n[1,2,3,4,5,6]\n---\n[\n")
    assert codes(problems) == ["yaml-syntax", "yaml-too-many-values"]
    assert len(roots) == 1


def test_the_anchors_of_a_document_end_with_it() -> None:
    _, problems = documents("a: &x 1\nb: *x\n---\nc: *x\n")
    assert codes(problems) == ["yaml-alias"]


def test_an_alias_repeats_its_value() -> None:
    assert value("a: &x {b: [1]}\nc: [*x, *x]\n") == {"a": {"b": [1]}, "c": [{"b": [1]}, {"b": [1]}]}


@pytest.mark.parametrize("opening", ["[", "- ", "{a: ", "? "])
def test_excessive_depth_is_a_problem_not_a_crash(opening: str) -> None:
    _, problems = documents(opening * 100_000)
    assert codes(problems) == ["yaml-too-deep"]


@pytest.mark.parametrize("text", ["1" * 10_000, "1e" + "9" * 10_000, "{%s: 1, %s: 1}", "*%s", "!%s x"])
def test_no_message_repeats_a_long_value(text: str) -> None:
    _, problems = documents(text.replace("%s", "a" * 10_000))
    assert problems
    assert all(len(problem.message) < 200 for problem in problems)


def test_the_greatest_depth_is_still_read() -> None:
    _, problems = documents("[" * MAX_DEPTH + "]" * MAX_DEPTH)
    assert problems == []


def test_as_many_values_as_allowed_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MAX_NODES", 100)
    text = "[" + "1," * 99 + "]"
    assert documents(text)[1] == []
    assert codes(documents(text.replace("[", "[1,"))[1]) == ["yaml-too-many-values"]


def test_the_values_of_all_documents_of_a_file_count_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MAX_NODES", 100)
    _, problems = documents(f"---\n[{'1,' * 50}]\n---\n[{'1,' * 50}]\n")
    assert codes(problems) == ["yaml-too-many-values"]


def test_an_alias_in_a_key_stands_for_text() -> None:
    assert value("a: &x name\n*x : 1\n") == {"a": "name", "name": 1}


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("yes", True),
        ("off", False),
        ("010", 8),
        ("-010", -8),
        ("0x10", 16),
        ("0b11", 3),
        ("1_000", 1000),
        ("0o17", 15),
        ("08", 8),
        ("1:30", "1:30"),
        ("2024-01-01", "2024-01-01"),
        ("=", "="),
        (".inf", ".inf"),
    ],
)
def test_manifests_are_read_as_kubectl_reads_them(text: str, meant: Json) -> None:
    assert value(f"a: {text}\n", Dialect.MANIFESTS) == {"a": meant}


def test_all_keys_of_manifests_are_text() -> None:
    assert value("1: a\ntrue: b\non: c\n", Dialect.MANIFESTS) == {"1": "a", "true": "b", "on": "c"}


def test_manifests_may_merge_maps_and_own_members_win() -> None:
    text = "a: &a {x: 1, y: 1}\nb: &b {y: 2, z: 2}\nc: {<<: [*a, *b], x: 3}\nd: {<<: *b, '<<': 4}\ne: {<<: 5}\n"
    assert value(text, Dialect.MANIFESTS) == {
        "a": {"x": 1, "y": 1},
        "b": {"y": 2, "z": 2},
        "c": {"x": 3, "y": 1, "z": 2},
        "d": {"y": 2, "z": 2, "<<": 4},
        "e": {},
    }


def test_json_may_be_indented_by_tabs() -> None:
    (document,), problems = documents('{\n\t"a":\t"b\\tc"\n}\n', is_json=True)
    assert problems == []
    assert document.root.json() == {"a": "b\tc"}


@pytest.mark.parametrize(
    "text",
    [
        "a: &x\n  # c\n  'q'\nb: !!str 010\nc: [*x, yes]\n",
        "a: b: c\n",
        "\ta: 1\n",
        "a: 'x\n",
        'a: [1, "x" y]\n',
        "- a\nb: 1\n",
    ],
)
def test_without_libyaml_the_same_problems_are_found(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _, fast = documents(text)
    monkeypatch.setattr(reading, "LOADER", yaml.SafeLoader)
    _, pure = documents(text)
    assert [(p.code, p.location) for p in pure] == [(p.code, p.location) for p in fast]


def test_the_first_character_that_yaml_forbids_is_located(tmp_path: Path) -> None:
    _, problems = documents("a: b\r\nc: \u2028\n")
    assert [str(problem.location) for problem in problems] == ["x.yaml:2:4"]


@pytest.mark.parametrize("loader", [yaml.SafeLoader, reading.LOADER])
def test_a_lone_surrogate_is_a_syntax_error(loader: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "LOADER", loader)
    assert codes(documents('a: "\\ud83d"\n')[1]) == ["yaml-syntax"]
