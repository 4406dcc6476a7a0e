"""The suites of the CEL specification and of Kubernetes hold."""

from typing import Any

import pytest

from rules_engine.language.cel import Budget, CelProblems, Environment, EvaluationError, types
from tests.language.cel.conformance import cases, holds, program, same, value_of

NO_BLOCK = "cel.block is written by cel-go's optimizer, not by people"
NO_FUNCTIONS = "an environment declares variables, not functions"
LOST_BACKSLASH = "the data's expression lacks the backslashes that its expected value has"
NEWER_FORMAT = "Kubernetes pins an older %e, which writes 3.14×10⁰⁰; ours is the specification's"

CORE = {
    *(
        "basic",
        "comparisons",
        "conversions",
        "dynamic",
        "fields",
        "fp_math",
        "integer_math",
        "lists",
        "logic",
        "macros",
    ),
    *("namespace", "parse", "plumbing", "proto2", "string", "timestamps"),
}

KNOWN_FAILURES = {
    ("parse", "triple_single_quoted_unescaped_punctuation"): LOST_BACKSLASH,
    ("parse", "triple_double_quoted_unescaped_punctuation"): LOST_BACKSLASH,
    ("type_deduction", "function_result_type"): NO_FUNCTIONS,
    ("type_deduction", "multiple_parameters_generality"): NO_FUNCTIONS,
    ("type_deduction", "multiple_parameters_generality_2"): NO_FUNCTIONS,
    ("type_deduction", "multiple_parameters_parameterized_ovl"): NO_FUNCTIONS,
    ("type_deduction", "multiple_parameters_parameterized_ovl_2"): NO_FUNCTIONS,
    **dict.fromkeys(
        [
            ("block_ext", name)
            for name in (
                *("int_add", "size_1", "size_2", "size_3", "size_4", "timestamp", "map_index"),
                *("nested_map_construction", "nested_list_construction", "multiple_macros_1", "multiple_macros_2"),
                *("multiple_macros_3", "nested_macros_1", "nested_macros_2", "adjacent_macros"),
                *("macro_shadowed_variable_1", "macro_shadowed_variable_2", "inclusion_list", "inclusion_map"),
                *("presence_test", "presence_test_2", "optional_list", "optional_map", "optional_map_chained", "call"),
            )
        ],
        NO_BLOCK,
    ),
}
"""Reasons of the cases of the specification that do not hold, by file and name."""

KNOWN_KUBERNETES_FAILURES = {"'%e'.format([3.14]) == '3.140000×10⁰⁰'": NEWER_FORMAT}
"""Reasons of the cases of Kubernetes that do not hold, by expression."""


def _bad_name(case: Any) -> tuple[str, str]:
    return case["file"], case["name"]


def test_all_specification_cases_hold_but_those_listed() -> None:
    suite = cases("cel-spec-cases.json")
    # Some names occur twice in a file, for bytes and for strings.
    failed = {_bad_name(case): reason for case in suite if (reason := holds(case)) is not None}
    assert set(failed) == set(KNOWN_FAILURES), failed


def test_enough_of_the_specification_holds() -> None:
    suite = cases("cel-spec-cases.json")
    core = [holds(case) is None for case in suite if case["file"] in CORE]
    everything = [holds(case) is None for case in suite]
    assert len(core) == 1105
    assert sum(core) >= 1100
    assert sum(everything) >= 0.95 * len(everything)


def _kubernetes_holds(case: Any) -> bool:
    variables = {"self": value_of(case["self"])} if "self" in case else {}
    environment = Environment(dict.fromkeys(variables, types.DYN))
    try:
        compiled = program(case["expr"], environment)
        value: Any = compiled.evaluate(variables, Budget())
    except CelProblems:
        return "error" in case
    except EvaluationError:
        return case.get("phase") == "runtime" or "error" in case
    if "error" in case:
        return False
    expected = case["value"]
    if "opaque" in expected:
        return _behaves(case["expr"], str(expected["opaque"]))
    if "tolerance" in expected:
        return bool(abs(value - float(expected["double"])) <= float(expected["tolerance"]))
    return same(value, value_of(expected))


OPAQUE = {
    "quantity": ("kubernetes.Quantity", "{0} == quantity('12Mi')"),
    "ip": ("net.IP", "string({0}) in ['192.168.0.1', '192.168.0.0']"),
    "cidr": ("net.CIDR", "string({0}) == '2001:db8::/32'"),
    "semver": ("kubernetes.Semver", "{0} == semver('1.2.3')"),
}


def _behaves(expression: str, opaque: str) -> bool:
    """Return whether a value that the data cannot write has the expected behavior."""
    kind = next(kind for kind in OPAQUE if kind.lower() in opaque.split("{")[0].lower())
    name, test = OPAQUE[kind]
    checks = [f"type({expression}) == {name}", test.format(expression)]
    return all(program(check, Environment({})).evaluate({}, Budget()) is True for check in checks)


def test_all_kubernetes_cases_hold_but_those_listed() -> None:
    suite = cases("cel-kubernetes-cases.json")["cases"]
    failed = {case["expr"] for case in suite if not _kubernetes_holds(case)}
    assert failed == set(KNOWN_KUBERNETES_FAILURES)


def test_a_missing_data_file_skips_the_test() -> None:
    with pytest.raises(pytest.skip.Exception, match=r"no\.json is not in .*: set GPU_RULES_TEST_DATA"):
        cases("no.json")
