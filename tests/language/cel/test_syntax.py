"""Syntax trees, spans, and the problems of invalid syntax."""

from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules_engine.language.cel import CelProblems, Environment, compile_expression, types
from rules_engine.language.cel.budget import MAX_EXPRESSION_LENGTH, MAX_NESTING
from rules_engine.language.cel.syntax import parser
from rules_engine.language.cel.syntax.parser import parse_expression
from rules_engine.language.cel.syntax.tree import Logic, Select
from rules_engine.model.problems.source import SourceText
from tests.language.cel.evaluating import evaluate, problems
from tools import cel_tables

EVERYTHING = Environment({"a": types.DYN, "b": types.DYN, "object": types.DYN})

BROKEN = [
    ("", "1:1: the expression ends too early [cel-syntax]"),
    ("1 +", "1:3: the expression ends too early [cel-syntax]"),
    ("a $ b", "1:3: unexpected '$' [cel-syntax]"),
    ("a b", "1:3: unexpected 'b' [cel-syntax]"),
    ("a.(b)", "1:3: unexpected '(' [cel-syntax]"),
    ("a 'a string that is longer than twenty'", "1:3: unexpected ''a string that is lo…' [cel-syntax]"),
    ("'abc", "1:1: the string is not closed [cel-syntax]"),
    ("'\\q'", "1:2: unknown escape sequence \\q (write \\\\q for a backslash) [cel-syntax]"),
    ("'ab\\x4'", "1:4: unknown escape sequence \\x (write \\\\x for a backslash) [cel-syntax]"),
    ("'\\08'", "1:2: unknown escape sequence \\0 (write \\\\0 for a backslash) [cel-syntax]"),
    ("'\\777'", "1:2: an octal escape is at most \\377 [cel-syntax]"),
    ("'\\ud800'", "1:2: the escape is no Unicode character [cel-syntax]"),
    ("b'\\u00e9'", "1:3: \\u is not allowed in bytes [cel-syntax]"),
    ("b'\ud800'", "1:1: the literal has a lone surrogate [cel-syntax]"),
    ("9223372036854775808", "1:1: the int literal does not fit into 64 bits [cel-syntax]"),
    ("-9223372036854775809", "1:1: the int literal does not fit into 64 bits [cel-syntax]"),
    ("18446744073709551616u", "1:1: the uint literal does not fit into 64 bits [cel-syntax]"),
    ("1" * 9000, "1:1: the int literal does not fit into 64 bits [cel-syntax]"),
    ("1" * 9000 + "u", "1:1: the uint literal does not fit into 64 bits [cel-syntax]"),
    ("1e999", "1:1: the double literal does not fit into 64 bits [cel-syntax]"),
    ("namespace", "1:1: 'namespace' is a reserved word [cel-syntax]"),
    (".package", "1:2: 'package' is a reserved word [cel-syntax]"),
    ("if(a)", "1:1: 'if' is a reserved word (write … ? … : …) [cel-syntax]"),
    (".for(a)", "1:2: 'for' is a reserved word (write ….map(x, …) or ….filter(x, …)) [cel-syntax]"),
    ("a.true", "1:3: unexpected 'true' [cel-syntax]"),
    ("a.in()", "1:3: unexpected 'in' [cel-syntax]"),
    ("has(a)", "1:5: has() takes a field selection such as has(a.b) [cel-syntax]"),
    ("[1].map(a.b, 1)", "1:9: a macro's variable is a simple name [cel-syntax]"),
    ("[1].map(.a, 1)", "1:9: a macro's variable is a simple name [cel-syntax]"),
    ("[1].all(x, x, true)", "1:12: the two variables need different names [cel-syntax]"),
    ("[1]{a: 1}", "1:4: unexpected '{' [cel-syntax]"),
    ("a.?b{c: 1}", "1:5: unexpected '{' [cel-syntax]"),
]


@pytest.mark.parametrize(("expression", "problem"), BROKEN)
def test_broken_syntax_is_reported_with_its_place(expression: str, problem: str) -> None:
    assert problems(expression, EVERYTHING) == [problem]


HINTS = [
    ("a = b", "1:3: unexpected '=' (write ==)"),
    ("a == 'x' && b = 'y'", "1:15: unexpected '=' (write ==)"),
    ("a =-1", "1:3: unexpected '=' (write ==)"),
    ("a === b", "1:3: unexpected '===' (write ==)"),
    ("a !== b", "1:3: unexpected '!==' (write !=)"),
    ("a <> b", "1:3: unexpected '<>' (write !=)"),
    ("a =< b", "1:3: unexpected '=<' (write <=)"),
    ("a =~ 'x'", "1:3: unexpected '=~' (write ….matches('…'))"),
    ("a & b", "1:3: unexpected '&' (write &&)"),
    ("a | b", "1:3: unexpected '|' (write ||)"),
    ("a ?? b", "1:3: unexpected '??' (write ….orValue(…))"),
    ("a.exists(x => x > 1)", "1:12: unexpected '=>' (write ,)"),
    ("a.exists(x -> x > 1)", "1:12: unexpected '->' (write ,)"),
    ("a => 1", "1:3: unexpected '=>' (write >=)"),
    ("a == '?.' || a?.b", "1:15: unexpected '?.' (write .?)"),
    ("a and b", "1:3: unexpected 'and' (write &&)"),
    ("a OR b", "1:3: unexpected 'OR' (write ||)"),
    ("not a", "1:1: unexpected 'not' (write !)"),
    ("a && not b.c", "1:6: unexpected 'not' (write !)"),
    ("a not  in b", "1:3: unexpected 'not in' (write !(… in …))"),
    ("a is null", "1:3: unexpected 'is' (write ==)"),
    ("a is not null", "1:3: unexpected 'is not' (write !=)"),
    ("if a then b else a", "1:1: unexpected 'if' (write … ? … : …)"),
    ("a if b else a", "1:3: unexpected 'if' (write … ? … : …)"),
    ("a.map(lambda x: x)", "1:7: unexpected 'lambda' (write x, …)"),
    ("[x for x in a]", "1:4: unexpected 'for' (write ….map(x, …) or ….filter(x, …))"),
    ("a in ('x', 'y')", "1:10: unexpected ',' (write … in [a, b])"),
    ("a == b;", "1:7: unexpected ';' (delete it)"),
    ("return a", "1:1: unexpected 'return' (delete it)"),
    ("a == “x”", "1:6: unexpected '“x”' (write 'x')"),
    ("a.'b/c' == 1", "1:2: unexpected '.'b/c'' (write ['b/c'])"),
    ("a < 64Gi", "1:5: unexpected '64Gi' (write quantity('64Gi'))"),
    ('a["b"] < 1.5k', "1:10: unexpected '1.5k' (write quantity(\"1.5k\"))"),
    ("a[*].b == 1", "1:2: unexpected '[*]' (write ….all(x, …) or ….exists(x, …))"),
    ("a[].b == 1", "1:2: unexpected '[]' (write ….all(x, …) or ….exists(x, …))"),
    ("{{ object.metadata.name }} == 'x'", "1:1: unexpected '{{ object.metadata.n…' (write object.metadata.name)"),
    ("{{ request.object.spec }} == a", "1:1: unexpected '{{ request.object.sp…' (write object.spec)"),
    ("{{ .Values.name }} == 'x'", "1:1: unexpected '{{ .Values.name }}' (write the value: templates are not expanded)"),
    ("a == ${params.b}", "1:6: unexpected '${params.b}' (write params.b)"),
    ("has(a['b'])", "1:1: has() takes a field selection such as has(a.b) (write 'b' in a)"),
    ("b && has(a['b'])", "1:6: has() takes a field selection such as has(a.b) (write 'b' in a)"),
    ("has(a[b])", "1:1: has() takes a field selection such as has(a.b) (write b in a)"),
    (
        "b && has(object.metadata.labels.b/c)",
        "1:6: has() takes a field selection such as has(a.b) (write 'b/c' in object.metadata.?labels.orValue({}))",
    ),
    ("has(a + b)", "1:1: has() takes a field selection such as has(a.b)"),
    ("has(a)", "1:5: has() takes a field selection such as has(a.b)"),
    # No hint.
    ("a == 64Giga", "1:8: unexpected 'Giga'"),
    ("a == b1 Gi", "1:9: unexpected 'Gi'"),
    ("a + b[* 2]", "1:7: unexpected '*'"),
    ("a = b {{ c }}", "1:3: unexpected '=' (write ==)"),
    ("a ==\xa0b", "1:5: unexpected '\\xa0'"),
    ("[] b", "1:4: unexpected 'b'"),
    ("a == 'x or ' b", "1:14: unexpected 'b'"),
    ("a.exists(x ~> x > 1)", "1:12: unexpected '~'"),
    ("a; b", "1:2: unexpected ';'"),
    ("a == == b", "1:6: unexpected '=='"),
    ("a && && b", "1:6: unexpected '&&'"),
    ("a += 1", "1:4: unexpected '='"),
    ("a &&& b", "1:5: unexpected '&'"),
    ("object.not b", "1:12: unexpected 'b'"),
    ("a isnt b", "1:3: unexpected 'isnt'"),
    ("a, b", "1:2: unexpected ','"),
    ("a == 'b?.c' &&", "1:14: the expression ends too early"),
]


@pytest.mark.parametrize(("expression", "problem"), HINTS)
def test_syntax_of_other_languages_has_a_hint(expression: str, problem: str) -> None:
    assert problems(expression, EVERYTHING) == [f"{problem} [cel-syntax]"]


def test_a_declared_name_has_no_hint() -> None:
    assert problems("not && or.and == None", Environment(dict.fromkeys(("not", "or", "None"), types.DYN))) == []


LITERALS = [
    ("0x1F", 31),
    ("-0x10", -16),
    ("1.5e3", 1500.0),
    (".5", 0.5),
    ("-2.5", -2.5),
    ("1e-2", 0.01),
    ("'a\\n\\t\\x41\\u00e9\\U0001F431\\101\\'\\\"\\`\\?\\\\'", "a\n\tAé🐱A'\"`?\\"),
    ('"""a"b\n"""', 'a"b\n'),
    ("'''a'b'''", "a'b"),
    ("r'\\n'", "\\n"),
    ('R"""\\n"""', "\\n"),
    ("''", ""),
    ("b'\\xff\\377é'", b"\xff\xff\xc3\xa9"),
    ("br'\\n'", b"\\n"),
    ("b'''a'''", b"a"),
    ("true", True),
    ("null", None),
    ("[1, 2,]", [1, 2]),
    ("{'a': 1,}", {"a": 1}),
    ("[]", []),
    ("{}", {}),
    ("(1)", 1),
    ("1 // a comment", 1),
    ("1 -1", 0),
    ("--1", 1),
    ("- 1", -1),
]


@pytest.mark.parametrize(("expression", "value"), LITERALS)
def test_literals_have_the_specified_values(expression: str, value: object) -> None:
    assert evaluate(expression) == value


def test_reserved_words_may_be_fields() -> None:
    assert evaluate("object.metadata.namespace", object={"metadata": {"namespace": "ml"}}) == "ml"


def test_a_field_of_any_characters_is_written_in_backticks() -> None:
    assert evaluate("object.`nvidia.com/gpu`", object={"nvidia.com/gpu": 1}) == 1
    assert evaluate("object.?`nvidia.com/gpu`.orValue(2)", object={}) == 2


def test_chains_of_and_and_or_do_not_nest() -> None:
    tree = parse_expression(SourceText.inline("(" + " && ".join(["true"] * 500) + ") && (true && false)"))
    assert isinstance(tree, Logic)
    assert len(tree.operands) == 501
    assert tree.depth < 5
    assert evaluate(" || ".join(["false"] * 500)) is False


def test_parentheses_do_not_nest() -> None:
    assert evaluate("(" * 1000 + "1" + ")" * 1000) == 1


def test_nesting_is_bounded() -> None:
    assert evaluate("!" * (MAX_NESTING - 1) + "true") is (MAX_NESTING % 2 == 1)
    too_deep = "!" * MAX_NESTING + "true"
    assert problems(too_deep, EVERYTHING) == [
        f"1:1: the expression is nested more than {MAX_NESTING} levels deep [cel-too-deep]"
    ]


def _nested_binds(count: int) -> str:
    """Return nested binds whose values are lazy, and so evaluated inside of each other."""
    expression = f"a || x{count}"
    for place in range(count, 0, -1):
        expression = f"cel.bind(x{place}, !(a || x{place - 1}), {expression})"
    return f"cel.bind(x0, !a, {expression})"


def test_lazy_bind_values_count_for_nesting() -> None:
    assert evaluate(_nested_binds(22), a=False) is True
    assert problems(_nested_binds(40), EVERYTHING) == [
        f"1:1: with its cel.bind the expression is nested more than {MAX_NESTING} levels deep [cel-too-deep]"
    ]


def test_length_is_bounded() -> None:
    assert problems(" " * (MAX_EXPRESSION_LENGTH - 1) + "1", EVERYTHING) == []
    expression = " " * MAX_EXPRESSION_LENGTH + "1"
    (problem,) = problems(expression, EVERYTHING)
    assert problem == "1:1: the expression has 20001 characters; 20000 are allowed [cel-too-long]"


def test_a_selection_has_the_span_of_its_field() -> None:
    tree = parse_expression(SourceText.inline("object . spec"))
    assert isinstance(tree, Select)
    assert (tree.name_span.start, tree.name_span.end) == (9, 13)
    assert (tree.span.start, tree.span.end) == (0, 13)


def test_locations_are_in_the_yaml_file() -> None:
    # A folded scalar: the second line's text follows the first's after one blank.
    source = SourceText("object.a &&\nobjct.b", "rule.yaml", ((0, 7, 11), (12, 8, 11)))
    with pytest.raises(CelProblems) as caught:
        compile_expression(source, EVERYTHING)
    (problem,) = caught.value.problems
    assert str(problem) == (
        "rule.yaml:8:11: error: undeclared reference to 'objct' (did you mean 'object'?) [cel-undeclared]"
    )
    assert problem.length == 5
    assert str(caught.value) == str(problem)


def test_a_missing_grammar_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(RuntimeError, match="cel-python is not installed"):
        parser._load_parser.__wrapped__()


@pytest.mark.skipif(cel_tables.installed() != cel_tables.LIBRARIES, reason="written with other versions of libraries")
def test_the_saved_parser_matches_the_grammar() -> None:
    """To write it again: python -m tools.cel_tables."""
    tables = parser.TABLES.read_bytes()
    assert tables[:32] == parser.parser_digest(parser.grammar_folder(), tables[32:])


def test_the_saved_and_the_built_parser_agree(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    expressions = (Path(__file__).parent / "true_expressions.txt").read_text().splitlines()
    # Each with half of itself: most halves are syntax errors.
    texts = [part for line in expressions for part in (line, line[: len(line) // 2])]

    def results(tables: bytes) -> list[str]:
        (tmp_path / "tables.bin").write_bytes(tables)
        monkeypatch.setattr(parser, "TABLES", tmp_path / "tables.bin")
        monkeypatch.setattr(parser, "_load_parser", cache(parser._load_parser.__wrapped__))
        trees = []
        for text in texts:
            try:
                trees.append(repr(parse_expression(SourceText.inline(text))))
            except CelProblems as problems:
                trees.append(str(problems))
        return trees

    shipped, saved = parser.TABLES.read_bytes(), cel_tables.saved()
    built = results(b"of another version of lark")

    assert results(shipped) == built
    assert results(saved) == built
    for damaged in (b"", saved[:20], saved[:-1], saved + b"\0", saved.replace(b"IDENT", b"INDET", 1)):
        assert results(damaged) == built
    assert any("[cel-syntax]" in result for result in built)


PIECES = [
    "object",
    ".",
    "?",
    "[",
    "]",
    "(",
    ")",
    "{",
    "}",
    "'",
    '"',
    "`",
    "r",
    "b",
    "u",
    "1",
    "0x",
    "1.5",
    "e",
    "-",
    "!",
]
PIECES += [
    "&&",
    "||",
    ":",
    ",",
    "in",
    "true",
    "has",
    "all",
    "map",
    "cel",
    "bind",
    "\\",
    "\n",
    " ",
    "//",
    "==",
    "é",
    "a.b",
]


@given(st.one_of(st.text(max_size=30), st.lists(st.sampled_from(PIECES), max_size=12).map("".join)))
def test_any_text_compiles_or_has_problems_in_its_range(text: str) -> None:
    source = SourceText.inline(text)
    try:
        compile_expression(source, EVERYTHING)
    except CelProblems as error:
        lines = text.split("\n")
        for problem in error.problems:
            assert 1 <= problem.location.line <= len(lines)
            assert 1 <= problem.location.column <= len(lines[problem.location.line - 1]) + 1
            assert problem.length >= 1
