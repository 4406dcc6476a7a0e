"""Expressions over every library that are true, and expressions that fail, with their errors."""

from pathlib import Path

import pytest

from rules_engine.language.cel.library.network import parse_ip
from tests.language.cel.evaluating import evaluate, failure, unchecked

TRUE = Path(__file__).with_name("true_expressions.txt")
INTEGERS = Path(__file__).with_name("quantity_integers.txt")

FAILURES = [
    ("int(dyn('1_0'))", "the string is not an int"),
    ("9223372036854775807 + 1", "1:1: 9223372036854775807 + 1: integer overflow"),
    ("18446744073709551615u + 1u", "1:1: 18446744073709551615u + 1u: unsigned integer overflow"),
    ("0u - 1u", "1:1: 0u - 1u: unsigned integer overflow"),
    ("-9223372036854775808 / -1", "1:1: -9223372036854775808 / -1: integer overflow"),
    ("-(-9223372036854775808)", "1:1: -(-9223372036854775808): integer overflow"),
    ("1 / 0", "1:1: 1 / 0: division by zero"),
    ("1 % 0", "1:1: 1 % 0: modulus by zero"),
    ("1u / 0u", "1:1: 1u / 0u: division by zero"),
    ("1.0 < double('nan')", "1:1: 1.0 < double('nan'): NaN cannot be ordered"),
    ("timestamp('9999-12-31T23:59:59Z') + duration('1s')", "timestamp out of range"),
    ("timestamp('9999-12-31T23:59:59Z') - timestamp('0001-01-01T00:00:00Z')", "duration out of range"),
    ("string(b'\\xff')", "1:1: string(b'\\xff'): the bytes are not valid UTF-8"),
    ("timestamp(0).getHours('Nowhere/At_All')", "1:14: timestamp(0).getHours('Nowhere/At_All'): unknown time zone"),
    ("timestamp(0).getHours('12:60')", "unknown time zone"),
    ("timestamp(0).getHours('5:+30')", "unknown time zone"),
    ("timestamp(0).getHours('../etc/passwd')", "unknown time zone"),
    ("timestamp('0001-01-01T00:00:00Z').getHours('-23:00')", "timestamp out of range"),
    ("[1][1]", "1:1: [1][1]: index out of range"),
    ("[1][-1]", "1:1: [1][-1]: index out of range"),
    ("[1][dyn(0.5)]", "1:1: [1][dyn(0.5)]: a list has no index of type double"),
    ("[1][dyn('a')]", "1:1: [1][dyn('a')]: a list has no index of type string"),
    ("{'a': 1}['b']", "1:1: {'a': 1}['b']: no such key (.? and [?…] read what may be absent)"),
    ("{'a': 1}.b", "1:10: {'a': 1}.b: no such key (.? and [?…] read what may be absent)"),
    ("dyn(1).b", "1:8: dyn(1).b: type int has no fields"),
    ("has(dyn(1).b)", "1:1: has(dyn(1).b): type int has no fields"),
    ("dyn(1)[0]", "1:1: dyn(1)[0]: type int cannot be indexed"),
    ("{'a': 1, 'a': 2}", "1:1: {'a': 1, 'a': 2}: the map has the same key twice"),
    ("{dyn(1.5): 1}", "1:1: {dyn(1.5): 1}: a map cannot have a key of type double"),
    ("optional.none().value()", "1:17: optional.none().value(): the optional has no value"),
    ("[?dyn(1)]", "1:1: [?dyn(1)]: an optional is required, not int"),
    ("{?'a': dyn(1)}", "1:1: {?'a': dyn(1)}: an optional is required, not int"),
    ("optional.of(1).optFlatMap(x, dyn(x))", "an optional is required, not int"),
    ("dyn(1).optMap(x, x)", "an optional is required, not int"),
    ("optional.none().or(dyn(1))", "no such overload: or() applied to (optional_type, int)"),
    (
        "dyn(1).or(optional.none())",
        "1:8: dyn(1).or(optional.none()): no such overload: or() applied to (int, optional_type)",
    ),
    ("dyn(1).all(x, true)", "1:1: dyn(1).all(x, true): all() needs a list or a map, not int"),
    ("dyn(1).exists(i, x, true)", "1:1: dyn(1).exists(i, x, true): exists() needs a list or a map, not int"),
    ("[1].all(x, dyn(x))", "1:12: dyn(x): all() needs a bool, not int"),
    ("[1].filter(x, dyn(x))", "1:15: dyn(x): filter() needs a bool, not int"),
    ("[1].exists_one(x, dyn(x))", "1:19: dyn(x): exists_one() needs a bool, not int"),
    ("[1].map(x, dyn(x), x)", "1:12: dyn(x): map() needs a bool, not int"),
    ("[1].transformMapEntry(i, x, dyn(x))", "transformMapEntry() needs a map, not int"),
    ("['a', 'a'].transformMap(i, x, x).transformMapEntry(k, v, {v: k})", "the map has the same key twice"),
    ("[1].map(x, x / 0)", "1:12: x / 0: division by zero"),
    ("!dyn(1)", "1:1: !dyn(1): no such overload: ! applied to (int)"),
    ("-dyn('a')", "1:1: -dyn('a'): no such overload: - applied to (string)"),
    ("dyn(1) && true", "1:1: dyn(1): no such overload: && applied to (int)"),
    ("dyn(1) ? 1 : 2", "1:1: dyn(1) ? 1 : 2: no such overload: ?: applied to (int)"),
    ("dyn(1) + 'a'", "1:1: dyn(1) + 'a': no such overload: + applied to (int, string)"),
    ("dyn(null) + null", "no such overload: + applied to (null_type, null_type)"),
    ("dyn(1) - dyn('a')", "no such overload: - applied to (int, string)"),
    ("dyn('a') - dyn('a')", "no such overload: - applied to (string, string)"),
    ("dyn(1) * dyn('a')", "no such overload: * applied to (int, string)"),
    ("dyn('a') * dyn('a')", "no such overload: * applied to (string, string)"),
    ("dyn(1) / dyn('a')", "no such overload: / applied to (int, string)"),
    ("dyn('a') / dyn('a')", "no such overload: / applied to (string, string)"),
    ("dyn(1.0) % dyn(1.0)", "no such overload: % applied to (double, double)"),
    ("dyn(1) < 'a'", "no such overload: < applied to (int, string)"),
    ("dyn(null) < null", "no such overload: < applied to (null_type, null_type)"),
    ("1 in dyn('a')", "no such overload: in applied to (int, string)"),
    ("size(dyn(1))", "1:1: size(dyn(1)): no such overload: size() applied to (int)"),
    ("dyn(1).startsWith('a')", "no such overload: startsWith() applied to (int, string)"),
    ("dyn(-9223372036854775808) % -1", "integer overflow"),
    ("'a'.charAt(5)", "index out of range"),
    ("'a'.indexOf('a', 5)", "index out of range"),
    ("'a'.lastIndexOf('a', 5)", "index out of range"),
    ("'abc'.indexOf('', -5)", "index out of range"),
    ("'abc'.indexOf('', 4)", "index out of range"),
    ("'abc'.lastIndexOf('', -1)", "index out of range"),
    ("'abc'.lastIndexOf('a', -1)", "index out of range"),
    ("'abc'.substring(2, 1)", "the substring ends before it starts"),
    ("'abc'.substring(-1, 1)", "index out of range"),
    ("[1].map(x, dyn(x)).join()", "no such overload: join() applied to (list, int)"),
    ("'%s'.format([])", "the format has more clauses than its 0 arguments"),
    ("'%a'.format([1])", "the format has an unknown clause"),
    ("'%'.format([1])", "the format has an unknown clause"),
    ("'%.2s'.format([1])", "the format has an unknown clause"),
    ("'%.9999f'.format([1.0])", "the precision of a format is at most 1000"),
    ("'%f'.format(['a'])", "%f cannot write a value of type string"),
    ("'%d'.format(['a'])", "%d cannot write a value of type string"),
    ("'%b'.format(['a'])", "%b cannot write a value of type string"),
    ("'%o'.format([true])", "%o cannot write a value of type bool"),
    ("'%x'.format([1.0])", "%x cannot write a value of type double"),
    ("'%s'.format([quantity('1')])", "%s cannot write a value of type kubernetes.Quantity"),
    ("[dyn(1)].unwrapOpt()", "no such overload: unwrapOpt() applied to (list, int)"),
    ("base64.decode('*')", "the string is not base64"),
    ("math.greatest([])", "math.greatest() of an empty list"),
    ("math.least('a')", "no such overload: math.least() applied to (string)"),
    ("math.bitShiftLeft(1, -1)", "the shift is negative"),
    ("math.abs(-9223372036854775808)", "integer overflow"),
    ("dyn([]).min()", "min() of an empty list"),
    ("dyn([[1]]).max()", "no such overload: max() applied to (list)"),
    ("dyn(['a']).sum()", "no such overload: sum() applied to (string)"),
    ("[1].slice(0, 2)", "the slice is out of range"),
    ("[1].flatten(-1)", "the depth is negative"),
    ("dyn([[1]]).sort()", "values of type list have no order"),
    ("dyn([1, 'a']).sort()", "values of different types have no order"),
    ("lists.range(-1)", "the size is negative"),
    ("'a'.matches(dyn('('))", "invalid regular expression"),
    ("'a'.find(dyn('('))", "invalid regular expression"),
    ("url(dyn(':'))", "the string is not a URL"),
    ("ip(dyn('x'))", "the string is not an IP address"),
    ("cidr(dyn('10.0.0.0/99'))", "the string is not a CIDR: the prefix is too long"),
    ("semver('18446744073709551615.9223372036854775808.0').major()", "integer out of range"),
    ("semver(dyn('1-a'), true)", "a short version cannot have a pre-release or build"),
    ("quantity('1.5').asInteger()", "the quantity is not stored as an integer of 64 bits"),
    ("quantity('1').div(0)", "division by zero"),
    ("quantity('1').div(0, 2)", "division by zero"),
    ("quantity('1').divInt(0)", "division by zero"),
    ("quantity('1').div(2, 11)", "the digits of a quotient are 0 to 10"),
    ("quantity('1').div(2, -1)", "the digits of a quotient are 0 to 10"),
    ("quantity('1e50').mul(quantity('1e50'))", "quantity out of range"),
    ("google.protobuf.Int32Value{value: 2147483648}", "integer out of range"),
    ("google.protobuf.UInt32Value{value: 4294967296u}", "unsigned integer out of range"),
    ("google.protobuf.Int32Value{value: dyn('a')}", "field 'value' takes int, not string"),
    ("uint(dyn(-1))", "unsigned integer out of range"),
    ("int(dyn(1e19))", "integer out of range"),
    ("int(dyn(9223372036854775808u))", "integer out of range"),
    ("bool(dyn('x'))", "the string is not a bool"),
    ("uint(dyn('-1'))", "the string is not a uint"),
    ("double(dyn('x'))", "the string is not a double"),
    ("quantity(dyn('x'))", "the string is not a quantity"),
    ("duration(dyn('1'))", "the string is not a duration"),
    ("timestamp(dyn('2024-01-01t00:00:00z'))", "the string is not a timestamp of RFC 3339"),
    ("timestamp(dyn('2024-01-01T00:00:00+24:00'))", "the string is not a timestamp of RFC 3339"),
    ("timestamp(dyn('x'))", "the string is not a timestamp of RFC 3339"),
    ("timestamp(dyn('2023-02-29T00:00:00Z'))", "timestamp out of range"),
]


@pytest.mark.parametrize(
    "expression", [line for line in TRUE.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
)
def test_expression_is_true(expression: str) -> None:
    assert evaluate(expression) is True


@pytest.mark.parametrize("line", INTEGERS.read_text(encoding="utf-8").splitlines())
def test_quantities_are_integers_as_in_kubernetes(line: str) -> None:
    """The file has the results of k8s.io/apiserver/pkg/cel/library 1.36.2; "none" is not an integer."""
    expression, _, integer = map(str.strip, line.partition("//"))
    assert evaluate(f"{expression}.isInteger()") is (integer != "none")
    if integer != "none":
        assert evaluate(f"{expression}.asInteger()") == int(integer)


@pytest.mark.parametrize(("expression", "message"), FAILURES)
def test_expression_fails_with_a_reason(expression: str, message: str) -> None:
    assert message in failure(expression)


def test_an_unknown_field_of_a_message_fails_at_run_time() -> None:
    assert "undefined field 'x'" in unchecked("google.protobuf.Int32Value{x: 1}")
    assert "undeclared message type 'Nothing'" in unchecked("Nothing{}")


def test_lone_surrogates_cannot_become_bytes() -> None:
    assert "lone surrogate" in failure("bytes(text)", text="\ud800")
    assert "lone surrogate" in failure("text.matches('a')", text="\ud800")


def test_a_computed_pattern_is_bounded() -> None:
    assert "a regular expression has at most 1000 characters" in failure("'a'.matches(text)", text="a" * 1001)


def test_equal_addresses_have_the_same_hash() -> None:
    assert len({parse_ip("::ffff:c0a8:1"), parse_ip("192.168.0.1")}) == 1
