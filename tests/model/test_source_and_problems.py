"""Locations in source texts, and the text of problems."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules_engine.model.problems import MAX_SHOWN, Problem, Severity, did_you_mean, in_file_order, render, snippet
from rules_engine.model.source import Location, SourceText
from tests.support.laws import law


def problem(
    line: int = 1, column: int = 1, *, file: str = "a.yaml", message: str = "wrong", **fields: object
) -> Problem:
    return Problem(code="some-code", message=message, location=Location(file, line, column), **fields)  # type: ignore[arg-type]


class TestSourceText:
    def test_a_text_of_one_line(self) -> None:
        text = SourceText("abc", "f", ((0, 4, 10),))
        assert text.location == Location("f", 4, 10)
        assert text.at(2) == Location("f", 4, 12)
        assert text.at(3) == Location("f", 4, 13)
        assert str(text) == "abc"

    def test_after_a_break_lines_and_columns_start_anew(self) -> None:
        text = SourceText("ab\ncd", "f", ((0, 7, 5), (3, 8, 5), (4, 8, 7)))
        assert [str(text.at(offset)) for offset in range(6)] == ["f:7:5", "f:7:6", "f:7:7", "f:8:5", "f:8:7", "f:8:8"]

    @law
    @given(st.text(alphabet="ab\n"))
    def test_a_text_without_a_file_has_its_own_lines(self, text: str) -> None:
        source = SourceText.inline(text)
        for offset in range(len(text) + 1):
            before = text[:offset]
            line, column = before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1
            assert source.at(offset) == Location("<expression>", line, column)


class TestProblem:
    def test_it_is_rendered_in_one_line(self) -> None:
        assert str(problem(14, 23)) == "a.yaml:14:23: error: wrong [some-code]"
        assert str(problem(severity=Severity.WARNING)) == "a.yaml:1:1: warning: wrong [some-code]"

    @pytest.mark.parametrize(
        ("name", "candidates", "clause"),
        [
            ("objct", ["oldObject", "object", "request"], " (did you mean 'object'?)"),
            ("resourc", {"resource"}, " (did you mean 'resource'?)"),
            ("zzz", ["object"], ""),
            ("a", [], ""),
        ],
    )
    def test_the_nearest_name_is_offered(self, name: str, candidates: list[str], clause: str) -> None:
        assert did_you_mean(name, candidates) == clause

    def test_the_line_is_rendered_with_a_caret_and_a_span(self) -> None:
        line = "    - expression: objct.spec.containers.size() > 0"
        assert render(problem(14, 19, length=5), {"a.yaml": [""] * 13 + [line]}) == (
            "a.yaml:14:19: error: wrong [some-code]\n"
            "   14 |     - expression: objct.spec.containers.size() > 0\n"
            "      |                   ^~~~~"
        )

    @pytest.mark.parametrize(
        ("line", "column", "length", "marks"),
        [
            ("abc", 1, 1, "^"),
            ("abc", 2, 99, " ^~"),
            ("abc", 4, 1, "   ^"),
            ("abc", 99, 5, "   ^"),
            ("abc", 1, 0, "^"),
            ("\tab\tc", 5, 1, "\t  \t^"),
            ("é→x", 3, 1, "  ^"),
            ("日本x", 3, 1, "    ^"),
            ("日本x", 1, 2, "^~~~"),
            ("e\u0301x", 3, 1, " ^"),
        ],
    )
    def test_the_caret_stays_within_the_line_and_under_its_place(
        self, line: str, column: int, length: int, marks: str
    ) -> None:
        assert snippet(problem(1, column, length=length), line) == f"    1 | {line}\n      | {marks}"

    def test_control_characters_are_escaped(self) -> None:
        assert snippet(problem(1, 3), "\x1b\u202ex") == "    1 | \ufffd\ufffdx\n      |   ^"

    @pytest.mark.parametrize(
        ("line", "column", "text", "caret"),
        [
            ("x" * MAX_SHOWN, 1, "x" * MAX_SHOWN, 0),
            ("x" * 500, 1, f"{'x' * MAX_SHOWN}…", 0),
            ("x" * 500, 250, f"…{'x' * MAX_SHOWN}…", MAX_SHOWN // 2 + 1),
            ("x" * 500, 500, f"…{'x' * MAX_SHOWN}", MAX_SHOWN),
            ("x" * 500, 501, f"…{'x' * MAX_SHOWN}", MAX_SHOWN + 1),
        ],
    )
    def test_a_long_line_is_truncated_around_the_location(self, line: str, column: int, text: str, caret: int) -> None:
        assert snippet(problem(1, column), line) == f"    1 | {text}\n      | {' ' * caret}^"

    def test_a_span_ends_with_the_truncated_line(self) -> None:
        marks = snippet(problem(1, 10, length=900), "x" * 999).partition("\n")[2]
        assert marks == f"      | {' ' * 9}^{'~' * (MAX_SHOWN - 10)}"

    @pytest.mark.parametrize("sources", [{}, {"b.yaml": ["x"]}, {"a.yaml": []}, {"a.yaml": [" "]}])
    def test_without_a_source_line_there_is_no_snippet(self, sources: dict[str, list[str]]) -> None:
        assert render(problem(), sources) == str(problem())

    def test_problems_are_distinct_and_in_file_order(self) -> None:
        first, second, third, other = problem(2, 9), problem(10, 1), problem(10, 2), problem(1, 1, file="b.yaml")
        mixed = [third, other, first, second, first]
        assert in_file_order(mixed) == (first, second, third, other)
        assert in_file_order(mixed, ["b.yaml", "a.yaml"]) == (other, first, second, third)
        assert in_file_order(mixed, ["b.yaml"]) == (other, first, second, third)

    def test_problems_at_one_location_are_ordered_by_code_and_message(self) -> None:
        assert in_file_order([problem(message="b"), problem(message="a")]) == (
            problem(message="a"),
            problem(message="b"),
        )
