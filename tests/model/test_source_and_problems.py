"""Locations in source texts, and the text of problems."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules_engine.model.problems.problem import (
    MAX_CANDIDATES,
    MAX_COLUMNS,
    MAX_NAME,
    MIN_COLUMNS,
    Problem,
    ProblemLayout,
    Severity,
    did_you_mean,
    render_problem,
    render_snippet,
    sort_problems,
)
from rules_engine.model.problems.source import Location, SourceText

SHOWN = MAX_COLUMNS - len("    1 | ")
"""Columns of a source line that are shown in a file."""


def terminal_columns(text: str) -> int:
    """Return the columns of a text without tabs, for the characters that these tests use."""
    wide = sum(character in "中\U0001f600" for character in text)
    return len(text) + wide - text.count("\u0301")


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

    def test_lines_and_columns_restart_after_a_break(self) -> None:
        text = SourceText("ab\ncd", "f", ((0, 7, 5), (3, 8, 5), (4, 8, 7)))
        assert [str(text.at(offset)) for offset in range(6)] == ["f:7:5", "f:7:6", "f:7:7", "f:8:5", "f:8:7", "f:8:8"]

    @given(st.text(alphabet="ab\n"))
    def test_an_inline_text_counts_its_own_lines(self, text: str) -> None:
        source = SourceText.inline(text)
        for offset in range(len(text) + 1):
            before = text[:offset]
            line, column = before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1
            assert source.at(offset) == Location("<expression>", line, column)


class TestProblem:
    def test_a_problem_is_rendered_in_one_line(self) -> None:
        assert str(problem(14, 23)) == "a.yaml:14:23: error: wrong [some-code]"
        assert str(problem(severity=Severity.WARNING)) == "a.yaml:1:1: warning: wrong [some-code]"

    @pytest.mark.parametrize(
        ("name", "candidates", "clause"),
        [
            ("objct", ["oldObject", "object", "request"], " (did you mean 'object'?)"),
            ("resourc", {"resource"}, " (did you mean 'resource'?)"),
            ("zzz", ["object"], ""),
            ("a", [], ""),
            ("naem1", (f"name{number}" for number in range(MAX_CANDIDATES)), " (did you mean 'name1'?)"),
            ("naem1", (f"name{number}" for number in range(MAX_CANDIDATES + 1)), ""),
            ("b" + "a" * (MAX_NAME - 1), ["a" * MAX_NAME], f" (did you mean '{'a' * MAX_NAME}'?)"),
            ("b" + "a" * MAX_NAME, ["a" * MAX_NAME], ""),
            ("b" + "a" * (MAX_NAME - 1), ["a" * (MAX_NAME + 1)], ""),
        ],
    )
    def test_the_nearest_name_is_suggested(self, name: str, candidates: Iterable[str], clause: str) -> None:
        assert did_you_mean(name, candidates) == clause

    def test_the_line_is_rendered_with_a_caret_and_a_span(self) -> None:
        line = "    - expression: objct.spec.containers.size() > 0"
        assert render_problem(problem(14, 19, length=5), {"a.yaml": [""] * 13 + [line]}) == (
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
        assert render_snippet(problem(1, column, length=length), line) == f"    1 | {line}\n      | {marks}"

    def test_control_characters_are_escaped(self) -> None:
        assert render_snippet(problem(1, 3), "\x1b\u202ex") == "    1 | \ufffd\ufffdx\n      |   ^"

    @pytest.mark.parametrize(
        ("line", "column", "text", "caret"),
        [
            ("x" * SHOWN, 1, "x" * SHOWN, 0),
            ("x" * SHOWN, SHOWN, "x" * SHOWN, SHOWN - 1),
            ("x" * 500, 1, f"{'x' * (SHOWN - 1)}…", 0),
            ("x" * 500, 250, f"…{'x' * (SHOWN - 2)}…", SHOWN // 2),
            ("x" * 500, 500, f"…{'x' * (SHOWN - 1)}", SHOWN - 1),
            ("x" * 500, 501, f"…{'x' * (SHOWN - 2)}", SHOWN - 1),
            ("x" * 1_000_000, 500_000, f"…{'x' * (SHOWN - 2)}…", SHOWN // 2),
        ],
    )
    def test_a_long_line_is_truncated_around_the_location(self, line: str, column: int, text: str, caret: int) -> None:
        assert render_snippet(problem(1, column), line) == f"    1 | {text}\n      | {' ' * caret}^"

    def test_a_span_ends_with_the_truncated_line(self) -> None:
        marks = render_snippet(problem(1, 10, length=900), "x" * 999).partition("\n")[2]
        assert marks == f"      | {' ' * 9}^{'~' * (SHOWN - 11)}"

    def test_a_span_gets_more_room_than_the_text_before_it(self) -> None:
        line = f"{'a' * 40}{'b' * 30}{'c' * 40}"
        assert render_snippet(problem(1, 41, length=30), line, ProblemLayout(columns=60)).splitlines() == [
            f"    1 | …{'a' * 20}{'b' * 30}…",
            f"      | {' ' * 21}^{'~' * 29}",
        ]

    @pytest.mark.parametrize(
        ("encoding", "cut", "end"),
        [("utf-8", "…", "é中e\u0301:x"), ("latin-1", "...", "é?e?:x"), ("ascii", "...", "??e?:x")],
    )
    def test_characters_that_the_encoding_lacks_keep_the_caret_right(self, encoding: str, cut: str, end: str) -> None:
        line = f"{'a' * 100}é中e\u0301:x"
        shown, marks = render_snippet(
            problem(1, len(line)), line, ProblemLayout(columns=40, encoding=encoding)
        ).splitlines()
        assert shown == f"    1 | {cut}{'a' * (32 - terminal_columns(cut + end))}{end}"
        assert marks == f"      | {' ' * 31}^"
        assert shown.encode(encoding)

    @given(st.data())
    def test_a_frame_fits_the_page_and_the_caret_is_below_its_character(self, data: st.DataObject) -> None:
        around = st.text(st.sampled_from("ab é中\u0301\U0001f600-\x1b"), max_size=300)
        line = f"{data.draw(around)}!{data.draw(around)}"
        columns = data.draw(st.integers(MIN_COLUMNS, 200))
        length = data.draw(st.integers(1, 200))
        page = ProblemLayout(columns=columns, encoding=data.draw(st.sampled_from(["utf-8", "ascii"])))
        shown, marks = render_snippet(problem(1, line.index("!") + 1, length=length), line, page).splitlines()
        assert max(terminal_columns(shown), terminal_columns(marks)) <= min(columns, MAX_COLUMNS)
        assert terminal_columns(shown[: shown.index("!")]) == terminal_columns(marks[: marks.index("^")])

    def test_a_tab_stays_a_tab_and_takes_its_columns(self) -> None:
        line = "\t\t" + "x" * 100
        shown, marks = render_snippet(problem(1, 3), line, ProblemLayout(columns=60)).splitlines()
        assert (shown, marks) == (f"    1 | \t\t{'x' * 35}…", "      | \t\t^")

    def test_control_characters_of_the_message_and_the_file_name_are_escaped(self) -> None:
        hostile = problem(file="a\nb.yaml", message="unknown '\x1b[31m\n::error::x'")
        assert render_problem(hostile, {}) == "a\\nb.yaml:1:1: error: unknown '\\x1b[31m\\n::error::x' [some-code]"

    @pytest.mark.parametrize("sources", [{}, {"b.yaml": ["x"]}, {"a.yaml": []}, {"a.yaml": [" "]}])
    def test_without_a_source_line_there_is_no_snippet(self, sources: dict[str, list[str]]) -> None:
        assert render_problem(problem(), sources) == str(problem())

    def test_problems_are_distinct_and_in_file_order(self) -> None:
        first, second, third, other = problem(2, 9), problem(10, 1), problem(10, 2), problem(1, 1, file="b.yaml")
        mixed = [third, other, first, second, first]
        assert sort_problems(mixed) == (first, second, third, other)
        assert sort_problems(mixed, ["b.yaml", "a.yaml"]) == (other, first, second, third)
        assert sort_problems(mixed, ["b.yaml"]) == (other, first, second, third)

    def test_problems_at_one_location_are_ordered_by_code_and_message(self) -> None:
        assert sort_problems([problem(message="b"), problem(message="a")]) == (
            problem(message="a"),
            problem(message="b"),
        )
