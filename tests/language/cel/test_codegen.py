"""Generated code returns no value that the interpreter would not return."""

import io
import keyword
import re
import threading
import tokenize
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules_engine.language.cel import Budget, CelProblems, Environment, EvaluationError, compile_expression, types
from rules_engine.language.cel.codegen.runtime import RUNTIME
from rules_engine.language.cel.program import Program
from rules_engine.language.cel.values.runtime_values import type_of
from rules_engine.model.problems.source import SourceText
from tests.language.cel.conformance import cases, program, same, value_of
from tests.language.cel.evaluating import environment, evaluate, failure
from tests.language.cel.expressions import ENVIRONMENT, activations, expressions


def _generated(compiled: Program, activation: Any) -> tuple[bool, Any]:
    """Return whether generated code returns a value for this activation, and the value."""
    assert compiled.generated is not None
    try:
        return True, compiled.generated.run(activation, Budget())
    except Exception:
        return False, None


@given(expressions(), st.lists(activations(), min_size=1, max_size=3), st.booleans())
def test_generated_code_and_the_interpreter_agree(expression: str, values: list[Any], checked: bool) -> None:
    try:
        compiled = program(expression, ENVIRONMENT, checked=checked)
    except CelProblems:
        return
    if compiled.generated is None:
        return
    for activation in values:
        has_value, value = _generated(compiled, activation)
        if has_value:
            assert same(value, compiled.interpret(activation, Budget())), expression


@given(expressions(depth=3), activations())
def test_evaluation_is_the_same_twice(expression: str, activation: Any) -> None:
    compiled = program(expression, ENVIRONMENT, checked=False)

    def outcome() -> tuple[bool, Any]:
        try:
            return True, compiled.evaluate(activation, Budget())
        except EvaluationError as error:
            return False, str(error)

    first, second = outcome(), outcome()
    assert first[0] == second[0]
    assert same(first[1], second[1])


def test_generated_code_agrees_on_the_specification() -> None:
    for case in cases("cel-spec-cases.json"):
        if "cel.block" in case["expr"] or "cel.iterVar" in case["expr"]:
            continue
        bindings = {name: value_of(value) for name, value in case.get("bindings", {}).items()}
        compiled = program(case["expr"], Environment(dict.fromkeys(bindings, types.DYN)), checked=False)
        if compiled.generated is not None:
            has_value, value = _generated(compiled, bindings)
            if has_value:
                assert same(value, compiled.interpret(bindings, Budget())), case["expr"]


@given(expressions(), activations())
def test_the_value_has_the_checked_type(expression: str, activation: Any) -> None:
    try:
        compiled = program(expression, ENVIRONMENT)
        value = compiled.evaluate(activation, Budget())
    except (CelProblems, EvaluationError):
        return
    # A null may replace a list, a map, an optional or a time.
    assert compiled.result == types.DYN or value is None or type_of(value).name == compiled.result.name


HOSTILE = [
    "__import__('os').system('true')",
    "'); __import__('os').system('true') #",
    '"""',
    "\\",
    "a\nimport os",
    "{x}",
    "{0.__class__}",
    "%s",
    "evaluate",
    "budget",
    "c1",
    "\x00",
    "é🐱",
]

_MADE = re.compile(r"[ctx][0-9]+")


def _assert_only_allowed_tokens(source: str) -> None:
    """Assert that every token is a number, operator, keyword, runtime global, allowed attribute or generated name."""
    allowed = {
        *RUNTIME,
        "evaluate",
        "activation",
        "budget",
        "left",
        "more",
        "get",
        "keys",
        "present",
        "value",
        "append",
        "type",
    }
    allowed |= {"startswith", "endswith"}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        assert token.type != tokenize.STRING, token
        if token.type == tokenize.NAME:
            assert keyword.iskeyword(token.string) or token.string in allowed or _MADE.fullmatch(token.string), token


@pytest.mark.parametrize("text", HOSTILE)
def test_generated_source_has_no_text_of_the_expression(text: str) -> None:
    written = "".join(f"\\U{ord(character):08x}" for character in text)
    fields = [name for name in HOSTILE if re.fullmatch(r"[a-zA-Z0-9_.\-/ ]+", name)]
    selections = " && ".join(f"has(object.`{name}`)" for name in fields)
    expression = (
        f"object['{written}'] == '{written}' && '{written}' in object && object.exists(k, k.startsWith('{written}'))"
        f" && {{'{written}': 1}}['{written}'] == 1 && object.map(k, '{written}').size() > 0 && ({selections} || true)"
    )
    compiled = program(expression, environment(object=0))
    assert compiled.generated is not None
    _assert_only_allowed_tokens(compiled.generated.source)
    assert compiled.evaluate({"object": {text: text}}, Budget()) is True


def test_generated_source_has_no_macro_variable() -> None:
    compiled = program("[1].all(__builtins__, __builtins__ == 1) && cel.bind(exec, 1, exec == 1)", Environment({}))
    assert compiled.generated is not None
    _assert_only_allowed_tokens(compiled.generated.source)
    assert "exec" not in compiled.generated.source
    assert compiled.evaluate({}, Budget()) is True


@given(expressions())
def test_any_expression_generates_only_allowed_tokens(expression: str) -> None:
    try:
        compiled = program(expression, ENVIRONMENT)
    except CelProblems:
        return
    if compiled.generated is not None:
        _assert_only_allowed_tokens(compiled.generated.source)


WRONG_TYPES = [
    ("object.a.startsWith('x')", [1, ["x"], {"a": 1}, None, b"x"]),
    ("object.a.contains('x')", [["x"], {"x": 1}, None]),
    ("object.a.matches('^x')", [["x"], 1]),
    ("object.a.matches('x+')", [["x"], 1]),
    ("object.a.size()", [1, None, True]),
    ("'x' in object.a", ["xyz", 1, None]),
    ("object.a in ['x', 'y'] || object.a in ['x', 1]", []),
    ("has(object.a.b)", ["b", ["b"], 1, None]),
    ("object.a > 0", [True, "1", None, [1]]),
    ("object.a == 1", []),
    ("object.a ? 1 : 2", [1, "x", None]),
    ("!object.a", [1, "", None]),
    ("object.a && true", [1, "x", None]),
    ("object.a.all(x, x)", ["abc", 1, [1]]),
    ("object.a.exists(i, x, x)", ["abc", 1, [1]]),
    ("object.a[0]", ["abc", 1, None]),
    ("object.a['b']", ["abc", [1], None]),
    ("object.a.?b.orValue(1)", ["abc", [1], None]),
    ("object.?a.b.orValue(1)", ["abc", [1]]),
    ("object.?a.orValue(1) + 1", ["abc", [1], None]),
    ("object.a.orValue(1)", ["abc", 1]),
    ("object.a.hasValue()", ["abc", 1]),
    ("object.a.value()", ["abc", 1]),
    ("object.a.or(optional.of(1))", ["abc", 1]),
    ("object.a.optMap(x, x)", ["abc", 1]),
    ("int(object.a)", [None, [], "x"]),
    ("object.?a.?b.orValue(1)", ["abc", [1], None]),
    ("object.?a.?b.optMap(x, x)", ["abc", [1], None]),
    ("object.?a.?b.hasValue()", ["abc", [1], None]),
    ("[object.?a.?b]", ["abc", [1], None]),
    ("object.?a[?'b'].value()", ["abc", [1], {"c": 1}, {}]),
    ("optional.of(object).a.?b.orValue(1)", ["abc", [1]]),
    ("object.a[object.k]", ["abc", [1], None]),
    ("[object.a].exists(x, x.contains('a') || x.contains('b'))", [["a"], ["b"], {"a": 1}, 1]),
    ("[object.a].exists(x, x in ['a'] || x.contains('b'))", [["b"], {"b": 1}, 1]),
    ("cel.bind(x, object.a, [1].exists(y, x.contains('a')) || x.contains('a'))", [["a"], {"a": 1}]),
    ("cel.bind(x, object.a, x.contains('b') == [1].exists(y, x.contains('a')))", [["a"], {"a": 1}]),
    ("cel.bind(x, object.a, x.matches('^a') && x.startsWith('b') || x.endsWith('a'))", [["a"], 1]),
    ("cel.bind(x, object.a, (x ? 1 : 2) + (x ? 1 : 2))", ["abc", 1, None]),
    # Code that does not run proves nothing about the class of x.
    ("cel.bind(x, object.a, (object.k == '' && x.contains('a')) || x.contains('b'))", [["b"], {"b": 1}]),
    ("cel.bind(x, object.a, (object.k == '' ? x.contains('a') : false) || x.contains('b'))", [["b"], {"b": 1}]),
    ("cel.bind(x, object.a, object.?c.orValue([]).exists(y, x.contains('a')) || x.contains('b'))", [["b"]]),
    ("cel.bind(x, object.a, object.?c.optMap(y, x.contains('a')).orValue(false) || x.contains('b'))", [["b"]]),
    ("cel.bind(x, object.a, object.?k.orValue(x.contains('a') ? '' : '') == '' || x.contains('b'))", [["b"]]),
    ("string(object.a)", [["a"], {"a": 1}, None]),
    ("quantity(string(object.a)).isInteger()", ["x", "1" * 100, True, [1], None]),
    ("quantity(object.a).compareTo(quantity('1')) > 0", ["x", 1, None]),
    ("object.a.startsWith(object.k)", [1, ["key"], None]),
]


@pytest.mark.parametrize(("expression", "values"), WRONG_TYPES)
def test_values_of_unexpected_types_are_errors(expression: str, values: list[Any]) -> None:
    for value in values:
        failure(expression, object={"a": value, "k": "key"})


EDGES = [
    ("a == 1", {"a": True}, False),
    ("a == 1", {"a": 1.0}, True),
    ("a == 0", {"a": False}, False),
    ("1 == a", {"a": 1}, True),
    ("a != 1", {"a": 2}, True),
    ("a == b", {"a": [1], "b": [True]}, False),
    ("a == b", {"a": [1], "b": [1.0]}, True),
    ("a == true", {"a": 1}, False),
    ("a == null", {"a": 0}, False),
    ("'1' == a", {"a": 1}, False),
    ("1 in a", {"a": [True]}, False),
    ("a in b", {"a": True, "b": [1]}, False),
    ("'x' in a", {"a": ["x"]}, True),
    ("a in ['x']", {"a": 1}, False),
    ("a in ['x', 'y']", {"a": "y"}, True),
    ("a in ['x', 1]", {"a": 1}, True),
    ("a in ['x', a]", {"a": 1}, True),
    ("a in [?optional.of('x')]", {"a": "x"}, None),
    ("a > 1", {"a": 1.5}, True),
    ("1 < a", {"a": 2}, True),
    ("2 >= a", {"a": 2.5}, False),
    ("a + b", {"a": 1, "b": 2}, 3),
    ("size(a) + 1 == 3", {"a": "é🐱"}, True),
    ("size(a) * 2 - 1", {"a": [1]}, 1),
    ("size(a) == size(b)", {"a": "x", "b": [1]}, True),
    ("size(a) < size(b)", {"a": "", "b": [1]}, True),
    ("size(a) / 2", {"a": [1, 2, 3]}, 1),
    ("-size(a)", {"a": [1]}, -1),
    ("(a == 1) == (a == 2)", {"a": 3}, True),
    ("a ? [1].map(x, x) : [2].map(x, x)", {"a": False}, [2]),
    ("a && [1].all(x, x > 0) && [2].all(x, x > 0)", {"a": True}, True),
    ("a || [1].all(x, x > 1) || [2].all(x, x > 2)", {"a": False}, False),
    ("a.?b.orValue([1].map(x, x))", {"a": {}}, [1]),
    ("a.?b.orValue([1].map(x, x))", {"a": {"b": 2}}, 2),
    ("optional.of(a).orValue(5)", {"a": 2}, 2),
    ("optional.of(a).or(optional.of([1].map(x, x)))", {"a": 2}, None),
    ("optional.none().orValue(a)", {"a": 2}, 2),
    ("(a.?b.orValue(n) == true) ? 1 : 2", {"a": {}, "n": 2**64}, 2),
    ("a.?b.hasValue() || a[?'c'].d.hasValue()", {"a": {"c": {"d": 1}}}, True),
    ("a.b.?c.hasValue()", {"a": {"b": {}}}, False),
    ("optional.of(a).?b.hasValue()", {"a": {"b": 1}}, True),
    ("a[?b].orValue(3)", {"a": {}, "b": "x"}, 3),
    ("a.map(k, k)", {"a": {"x": 1}}, ["x"]),
    ("a.transformList(i, x, i)", {"a": {"x": 1}}, ["x"]),
    ("a.map(x, [x].all(y, y > 0), x)", {"a": [1, -1]}, [1]),
    ("a.filter(x, [x].all(y, y > 0))", {"a": [1, -1]}, [1]),
    ("a.exists_one(x, [x].all(y, y > 0))", {"a": [1, -1]}, True),
    ("[1, 2].map(x, optional.of(x).optMap(y, [y].map(z, z)).orValue([]))", {}, [[1], [2]]),
    ("[1, 2].map(x, optional.of(x).optFlatMap(y, optional.of(y)).value())", {}, [1, 2]),
    ("optional.none().optMap(y, y).hasValue()", {}, False),
    (
        "a.matches('^ab') && a.matches('bc$') && a.matches('b') && a.matches('^abc$') && a.matches('')",
        {"a": "abc"},
        True,
    ),
    ("a.matches('^ab$')", {"a": "abé"}, False),
    ("a.startsWith(b) && a.endsWith(b)", {"a": "x", "b": "x"}, True),
    ("{a: 1}[a]", {"a": "k"}, 1),
    ("{'a': 1, 'b': 2}.size()", {}, 2),
    ("type(a) == int", {"a": 1}, True),
    ("a + 'x' == 'yx' && 'x' + a == 'xy'", {"a": "y"}, True),
    ("(a + [1]) + [2]", {"a": [0]}, [0, 1, 2]),
    ("int('5') + int(a)", {"a": 1.0}, 6),
    ("cel.bind(x, a + 1, x * x)", {"a": 2}, 9),
    ("matches(a, 'x+')", {"a": "xx"}, True),
    ("a[0] + a[1]", {"a": [1, 2]}, 3),
    ("a.contains(b)", {"a": "abc", "b": "c"}, True),
    ("a.contains(b)", {"a": "a" * 20, "b": "c"}, False),
    ("a[size(b)]", {"a": {1: 2}, "b": "x"}, None),
    ("size(a) in [1, 2] && (a == 'x') in [true] && !(size(a) in dyn({'x': 1}))", {"a": "x"}, True),
    ("a in b", {"a": "x", "b": {"x": 1}}, True),
    ("a in b", {"a": 1, "b": {"x": 1}}, False),
    ("a in b", {"a": ["x"], "b": [["x"]]}, True),
    (f"[{', '.join(['a'] * 65)}].exists(x, x)", {"a": True}, True),
    ("a.?b.?c.orValue(5)", {"a": {"b": {"c": 1}}}, 1),
    ("a.?b.?c.orValue(5)", {"a": {"b": {}}}, 5),
    ("a.?b.c.?d[?'e'].f.orValue(5)", {"a": {"b": {"c": {"d": {"e": {"f": 1}}}}}}, 1),
    ("a.?b.c.?d[?'e'].f.orValue(5)", {"a": {}}, 5),
    ("[a.?b.?c, a.?b.d].map(x, x.orValue(0))", {"a": {"b": {"d": 2}}}, [0, 2]),
    ("a.?b.?c.optMap(x, x + 1).orValue(0)", {"a": {"b": {"c": 1}}}, 2),
    ("a.?b.?c.optMap(x, x + 1).orValue(0)", {"a": {}}, 0),
    ("a.?b.c.value()", {"a": {"b": {"c": 1}}}, 1),
    ("optional.of(a).?b.?c.hasValue()", {"a": {"b": {"c": 1}}}, True),
    ("optional.none().?b.?c.hasValue()", {}, False),
    ("a[b]", {"a": {"x": 1}, "b": "x"}, 1),
    ("a[b]", {"a": [1, 2], "b": 1}, 2),
    ("a.exists(x, x.contains('/') && !x.contains('//') && x in b)", {"a": ["c", "a/b"], "b": {"a/b": 1}}, True),
    ("a.contains('b') || a.contains('c')", {"a": "x" * 200 + "c"}, True),
    ("a.exists(x, x > 1)", {"a": {}}, False),
    ("a.all(i, x, x > i)", {"a": [1, 2]}, True),
    ("a.all(i, x, x > i)", {"a": []}, True),
    ("a.map(x, x * 2).size()", {"a": list(range(1000))}, 1000),
    ("a.exists_one(x, x == 999)", {"a": list(range(1000))}, True),
    ("a.exists(i, x, x == 999 && i == 999)", {"a": list(range(1000))}, True),
    ("a.filter(k, k.endsWith('9')).size()", {"a": {str(place): place for place in range(1000)}}, 100),
    ("quantity(string(a)).compareTo(quantity(string(b))) == 0", {"a": 4, "b": "4"}, True),
    ("quantity(string(a)).isInteger()", {"a": "1500000000"}, True),
    ("quantity(a).isGreaterThan(quantity('0')) && quantity('1').isLessThan(quantity('2'))", {"a": "1"}, True),
    ("string(a) == '1.5' && string(b) == 'long enough to count'", {"a": 1.5, "b": "long enough to count"}, True),
    ("a.startsWith(b)", {"a": "a long text", "b": "a long te"}, True),
    ("math.greatest(-1, -2) + -(1 + 2) == a", {"a": -4}, True),
    ("(1 / 0 == 1 || a) && duration('1h') > duration('1m')", {"a": True}, None),
    ("'a,b'.split(',') == [a, 'b'] && 'abc'.charAt(1) == b", {"a": "a", "b": "b"}, True),
]


@pytest.mark.parametrize(("expression", "variables", "value"), EDGES)
def test_generated_code_returns_the_values_of_cel(expression: str, variables: dict[str, Any], value: Any) -> None:
    result = evaluate(expression, **variables)
    assert value is None or same(result, value)
    compiled = program(expression, environment(**variables))
    if value is not None:
        assert _generated(compiled, variables)[0]


NOT_GENERATED = [
    "google.protobuf.Int32Value{value: 1} == 1",
    "[3].sortBy(x, x) == [3]",
    "[?optional.of(1)] == [1]",
    "{?'a': optional.of(1)}.a == 1",
    "has(optional.of({'a': 1}).a)",
    "optional.of(1).or([1].map(x, optional.of(x))[0]).hasValue()",
    " + ".join(["[1]"] * 90) + " != []",
    "[1].all(a, " * 25 + "true" + ")" * 25,
]


@pytest.mark.parametrize("expression", NOT_GENERATED)
def test_expressions_without_generated_code_are_interpreted(expression: str) -> None:
    assert evaluate(expression) is True


def test_rare_expressions_have_no_generated_code() -> None:
    for expression in NOT_GENERATED[:5]:
        assert program(expression, Environment({})).generated is None
    for expression in ("x", "f(1)", "''.f()", "[1].all(x, .x == 1)", "''.matches('(')"):
        compiled = program(expression, Environment({}), checked=False)
        assert compiled.generated is None or expression == "''.matches('(')"
        with pytest.raises(EvaluationError):
            compiled.evaluate({}, Budget())


def test_threads_share_a_program() -> None:
    compiled = compile_expression(
        SourceText.inline(
            "object.items.exists(x, x.size() > 2) && object.name.startsWith('a') && has(object.missing.b)"
        ),
        Environment({"object": types.DYN}),
    )
    wrong: list[object] = []

    def work(number: int) -> None:
        good = {"object": {"items": ["a", "abc"], "name": f"a{number}", "missing": {"b": 1}}}
        bad = {"object": {"items": ["a"], "name": f"a{number}", "missing": {"b": 1}}}
        broken = {"object": {"items": ["abc"], "name": f"a{number}"}}
        for _ in range(300):
            if compiled.evaluate(good, Budget()) is not True or compiled.evaluate(bad, Budget()) is not False:
                wrong.append(number)
            try:
                wrong.append(compiled.evaluate(broken, Budget()))
            except EvaluationError as error:
                if "object.missing: no such key" not in error.message:
                    wrong.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
