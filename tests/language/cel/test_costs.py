"""The charge of each operation covers its time. No test measures time; `make fuzz` does."""

import resource
import subprocess
import sys
import tracemalloc

import pytest
import re2
from hypothesis import given
from hypothesis import strategies as st

from rules_engine.language.cel import Budget, CostExceeded, EvaluationError
from rules_engine.language.cel.interpreter import FAILURE_COST
from rules_engine.language.cel.values.regex import MAX_PROGRAM
from tests.language.cel.conformance import program
from tests.language.cel.evaluating import environment, evaluate, failure, problems
from tests.support.budgets import units_spent

CPU_SECONDS = 20
"""A hundred times the time of the process below, and a tenth of its time with quadratic searches."""

HOSTILE = """
from rules_engine.language.cel import Budget, EvaluationError
from tests.language.cel.conformance import program
from tests.language.cel.evaluating import environment

text, part = "a" * 750_000 + "b" + "a" * 750_000, "b" + "a" * 600_000 + "b"
for expression, variables in (
    ("x.lastIndexOf(y)", {"x": text, "y": part[::-1]}),
    ("x.lastIndexOf(y, 1400000)", {"x": text, "y": part}),
    ("x.findAll('a.*c|a')", {"x": text}),
    ("x.matches(y)", {"x": text, "y": "(a?){500}c"}),
    ("double(x)", {"x": "1" * 1_000_000 + "x"}),
):
    try:
        print(program(expression, environment(**variables)).evaluate(variables, Budget()))
    except EvaluationError as error:
        print(error.message.rpartition(": ")[2])
"""


def test_long_searches_take_linear_time() -> None:
    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))

    done = subprocess.run(
        [sys.executable, "-c", HOSTILE], capture_output=True, text=True, check=True, preexec_fn=limited
    )
    used_up = f"the cost limit of {Budget().limit} for one request is used up"
    assert done.stdout.splitlines() == ["-1", "-1", used_up, used_up, "the string is not a double"]


def spent(expression: str, **variables: object) -> int:
    """Return the cost of the evaluation of an expression."""
    compiled = program(expression, environment(**variables))
    budget = Budget()
    compiled.evaluate(variables, budget)
    return units_spent(budget)


@pytest.mark.parametrize(
    ("expression", "variables", "least"),
    [
        ("x.findAll('a.*b|a')", {"x": "a" * 100}, 100 * 50 // 10),
        ("x.findAll('')", {"x": "a" * 100}, 100 * 50 // 10),
        ("x.matches('(a?){500}b')", {"x": "a" * 100}, 100 * 250 // 10),
        ("x.matches('(a?){500}b')", {"x": "é" * 100}, 200 * 250 // 10),
        ("x.find('(a?){500}b')", {"x": "a" * 9}, 9 * 250 // 10),
        ("x.matches('(?P<a>a?)(?P<b>a?)(?P<c>a?)')", {"x": "a" * 1000}, 1000 * 10 // 10),
        ("[0, 0, 0].all(e, 1 / e == 1 || true)", {}, 3 * FAILURE_COST),
        ("url(x).getQuery() == {}", {"x": f"https://e/?{'a=b&' * 100}"}, 100 * 5),
        ("url(x).getEscapedPath() == ''", {"x": f"https://e/{'a' * 1000}"}, 1000 // 4),
        ("url(x).getHostname() == ''", {"x": f"https://{'a' * 1000}"}, 2 * 1000 // 10),
        ("url(x).getPort() == ''", {"x": f"https://{'a' * 1000}"}, 2 * 1000 // 10),
        ("url(x) == url(x)", {"x": f"https://e/{'a' * 1000}"}, 3 * 1000 // 10),
        ("semver(x).isLessThan(semver(x))", {"x": f"1.0.0-{'1.' * 99}1"}, 200),
        ("semver(x).isGreaterThan(semver(x))", {"x": f"1.0.0-{'1.' * 99}1"}, 200),
        ("semver(x).compareTo(semver(x)) == 0", {"x": f"1.0.0-{'1.' * 99}1"}, 200),
        ("semver(x) == semver(x)", {"x": f"1.0.0-{'1.' * 99}1"}, 100),
        ("x == y", {"x": b"a" * 1000, "y": b"a" * 1000}, 100),
        ("x[y] == 1", {"x": {"a" * 1000: 1}, "y": "a" * 1000}, 1000 // 10),
        ("x[string(y)] == 1", {"x": {"a" * 1000: 1}, "y": "a" * 1000}, 2 * 1000 // 10),
        ("x[?y].hasValue()", {"x": {"a" * 1000: 1}, "y": "a" * 1000}, 1000 // 10),
        ("y in x", {"x": {"a" * 1000: 1}, "y": "a" * 1000}, 1000 // 10),
        ("string(y) in x", {"x": {"a" * 1000: 1}, "y": "a" * 1000}, 2 * 1000 // 10),
        ("x == y", {"x": {"a" * 1000: 1}, "y": {"a" * 1000: 1}}, 1000 // 10),
        ("x.distinct() == []", {"x": ["a" * 1000] * 10}, 10 * 100),
        ("'%%%%%%'.format([])", {}, 3 * 2),
        ("ip(x).isLoopback()", {"x": "::1"}, 30),
        ("timestamp('2024-01-01T00:00:00Z').getHours(x) == 0", {"x": "Europe/Berlin"}, 100),
    ],
)
def test_the_cost_grows_with_the_work(expression: str, variables: dict[str, object], least: int) -> None:
    assert spent(expression, **variables) >= least


def test_a_plain_pattern_in_a_short_text_is_cheap() -> None:
    assert spent("x.matches('^gpu')", x="gpu-a100") < 5
    assert spent("x.find('[0-9]+g')", x="mig-3g.40gb") < 10
    assert spent("x.findAll('[0-9]+')", x="mig-3g.40gb") < 20


def test_a_computed_pattern_has_a_bounded_program() -> None:
    message = f"a regular expression has at most {MAX_PROGRAM} instructions"
    assert message in failure("'a'.matches(p)", p="a{1000}" * 11)
    assert problems(f"'a'.matches('{'a{1000}' * 11}')", environment()) == [f"1:13: {message} [cel-constant]"]
    assert evaluate("'a'.matches(p)", p="a{1000}") is False


def test_a_computed_pattern_is_charged_for_its_length() -> None:
    assert 10_000 < spent("'a'.matches(p)", p="a") < 11_000
    assert spent("'a'.matches(p)", p="a" * 1000) > 60_000
    budget = Budget()
    with pytest.raises(EvaluationError, match="at most 1000 characters"):
        program("'a'.matches(p)", environment(p="")).interpret({"p": "a" * 1_000_000}, budget)
    assert units_spent(budget) < 200_000


def test_a_refused_pattern_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compile_pattern, patterns = re2.compile, []

    def counted(pattern: bytes, options: object) -> object:
        patterns.append(pattern)
        return compile_pattern(pattern, options)

    monkeypatch.setattr(re2, "compile", counted)
    assert "invalid regular expression" in failure("'a'.matches(p)", p="(?i)refused once(")
    assert patterns == [b"(?i)refused once("]


@pytest.mark.parametrize("function", ["find", "findAll", "matches"])
def test_a_pattern_of_single_bytes_is_refused(function: str) -> None:
    message = "a regular expression cannot match a single byte with \\C"
    assert message in failure(f"'é'.{function}(p)", p="\\C")
    assert problems(f"'é'.{function}(r'\\C')", environment()) == [f"1:{6 + len(function)}: {message} [cel-constant]"]
    assert message in failure("'é'.find(p)", p="\\Qa\\E\\C")


def test_a_pattern_may_have_an_escaped_backslash_before_c() -> None:
    assert evaluate(r"'é\\C'.find(p)", p="\\\\C") == "\\C"
    assert evaluate(r"'é\\C'.find(p)", p="\\Q\\C\\E") == "\\C"
    assert evaluate("'é'.findAll(p)", p="\\pC") == []
    assert evaluate("'éa'.findAll(p)", p="\\B") == [""]


@given(st.text("ab", min_size=12), st.text("ab", min_size=1, max_size=3), st.integers(0, 11))
def test_last_index_of_finds_the_last_occurrence(text: str, part: str, start: int) -> None:
    assert evaluate("x.lastIndexOf(y)", x=text, y=part) == text.rfind(part)
    assert evaluate("x.lastIndexOf(y, z)", x=text, y=part, z=start) == text.rfind(part, 0, start + len(part))


def test_a_long_host_is_matched_in_little_memory() -> None:
    compiled = program("isURL(x)", environment(x=""))
    tracemalloc.start()
    try:
        assert compiled.evaluate({"x": "https://" + "a" * 1_000_000}, Budget()) is True
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


def test_a_host_may_escape_characters_beyond_ascii_only() -> None:
    for host in ("%C3%A9", "a%c3%a9b", "é"):
        assert evaluate("isURL(x)", x=f"https://{host}/") is True
    for host in ("%C3%A", "%", "%zz", "a%41", "%25"):
        assert evaluate("isURL(x)", x=f"https://{host}/") is False


def test_a_long_name_of_a_zone_is_refused() -> None:
    assert "unknown time zone" in failure("timestamp(0).getHours(x)", x="a/" * 1000 + "b")


def test_case_conversion_changes_ascii_only() -> None:
    assert evaluate("x.lowerAscii()", x="AÉzZ\ud800") == "aÉzz\ud800"
    assert evaluate("x.upperAscii()", x="aézZ\ud800") == "AéZZ\ud800"
    assert evaluate("strings.quote(x)", x='\\"\a\b\f\n\r\t\vé') == '"\\\\\\"\\a\\b\\f\\n\\r\\t\\vé"'


def test_an_error_shows_the_start_of_a_long_expression() -> None:
    expression = f"dyn(true ? 1 : {' ' * 300}2) + 'a'"
    assert failure(expression).startswith("1:1: dyn(true ? 1 :…: no such overload")
    assert failure(f"dyn([{'1, ' * 200}1]) + 'a'").startswith(f"1:1: dyn([{'1, ' * 18}…: no such overload")


def test_an_absorbed_failure_can_use_up_the_budget() -> None:
    compiled = program("[0, 0, 0].all(e, 1 / e == 1 || true)", environment())
    with pytest.raises(CostExceeded):
        compiled.evaluate({}, Budget(2 * FAILURE_COST))
