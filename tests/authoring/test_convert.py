"""Conversion of gpuinjector's configuration: the rules, and every reported difference."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules_engine.converting.convert import Conversion, convert_text
from rules_engine.documents.registry import load_documents
from rules_engine.model.problems.problem import render_problem
from tests.support.authoring import write

CPU4 = [{"name": "cpu", "coefficient": 4000, "unit": "m"}]


def converted(**configuration: Any) -> Conversion:
    return convert_text(json.dumps(configuration))


def one_text(**item: Any) -> str:
    """A configuration with one entry of one item."""
    return json.dumps({"resourceMap": {"V100": {"nvidia.com/gpu": {"resourceList": [item]}}}})


def one(**item: Any) -> Conversion:
    return convert_text(one_text(**item))


def codes(conversion: Conversion) -> list[str]:
    return [finding.code for finding in conversion.findings]


def messages(conversion: Conversion) -> str:
    return "\n".join(render_problem(finding, conversion.sources) for finding in conversion.findings)


def test_each_gpu_type_and_resource_becomes_one_document() -> None:
    conversion = converted(
        resourceMap={
            "V100": {
                "nvidia.com/gpu": {
                    "resourceList": [*CPU4, {"name": "memory", "coefficient": 8, "unit": "Gi"}],
                    "annotations": {"tke.cloud.tencent.com/networks": "tke-route-eni"},
                }
            }
        },
        namespaceResourceMap={
            "gpu-training": {"V100": {"nvidia.com/gpu": {"resourceList": [{"name": "cpu", "coefficient": 1.5}]}}},
            "gpu-sandbox": {"V100": {"nvidia.com/gpu": {}}},
            "ml": {"T4": {"tencent.com/vcuda-core": {"annotations": {"a": "b"}}}},
        },
        namespaceWhiteList=["kube-system", "ops", "ops"],
    )
    assert conversion.text == (
        """\
apiVersion: gpurules.io/v1
kind: ResourceInjection
metadata:
  name: v100
spec:
  gpuType: V100
  gpuTypeAnnotation: task.bkbcs.tencent.com/gpu-type
  gpuResource: nvidia.com/gpu
  match:
    excludeNamespaces:
      - kube-system
      - ops
  coefficients:
    cpu: 4000m
    memory: 8Gi
  annotations:
    tke.cloud.tencent.com/networks: tke-route-eni
  namespaces:
    gpu-training:
      coefficients:
        cpu: "1.5"
    gpu-sandbox: {}
---
apiVersion: gpurules.io/v1
kind: ResourceInjection
metadata:
  name: t4
spec:
  gpuType: T4
  gpuTypeAnnotation: task.bkbcs.tencent.com/gpu-type
  gpuResource: tencent.com/vcuda-core
  match:
    excludeNamespaces:
      - kube-system
      - ops
  namespaces:
    ml:
      annotations:
        a: b
"""
    )
    assert [rule.name for rule in conversion.rules] == ["v100", "t4"]
    assert codes(conversion) == ["gpuinjector-exact", "gpuinjector-empty-entry"]


def test_the_text_loads_to_the_rules(tmp_path: Path) -> None:
    conversion = converted(
        resourceMap={"V100": {"nvidia.com/gpu": {"resourceList": CPU4}, "x.y/z": {"annotations": {"k": "v"}}}}
    )
    loaded = load_documents([write(tmp_path, {"rules.yaml": conversion.text})])
    assert loaded.problems == ()
    assert [rule.name for rule in loaded.rules] == [rule.name for rule in conversion.rules] == ["v100-gpu", "v100-z"]
    first = conversion.rules[0]
    assert {name: str(amount) for name, amount in first.default.coefficients.items()} == {"cpu": "4"}


def test_names_are_unique_whatever_the_types_are_called() -> None:
    entry = {"nvidia.com/gpu": {"resourceList": CPU4}}
    conversion = converted(resourceMap={"V100": entry, "v100": entry, "V 100": entry, "卡": entry, "_": entry})
    assert [rule.name for rule in conversion.rules] == ["v100", "v100-2", "v-100", "gpu", "gpu-2"]
    assert [rule.gpu_type for rule in conversion.rules] == ["V100", "v100", "V 100", "卡", "_"]


@pytest.mark.parametrize(
    ("item", "written"),
    [
        ({"coefficient": 4, "unit": "Gi"}, "4Gi"),
        ({"coefficient": 4.350}, "4.35"),
        ({"coefficient": 0.29, "unit": "k"}, "0.29k"),
        ({"coefficient": 1e3, "unit": "m"}, "1000m"),
        ({"coefficient": 8, "unit": "e9"}, "8e9"),
        ({"coefficient": 2, "unit": "E"}, "2E"),
        ({"coefficient": 2, "unit": "Ei"}, "2Ei"),
        ({"coefficient": 4, "unit": "0"}, "40"),
        ({"coefficient": 1.5, "unit": "00Mi"}, "150Mi"),
        ({"coefficient": 4, "unit": ".0Gi"}, "4Gi"),
        ({"coefficient": -0.0, "unit": "Gi"}, "0Gi"),
        ({"coefficient": None, "unit": None}, "0"),
        ({}, "0"),
    ],
)
def test_a_coefficient_and_its_unit_are_one_exact_quantity(item: dict[str, Any], written: str) -> None:
    conversion = one(name="cpu", **item)
    line = next(line for line in conversion.text.split("\n") if line.startswith("    cpu: "))
    assert line.removeprefix("    cpu: ").strip('"') == written


@given(st.integers(0, 10**15), st.integers(0, 8), st.sampled_from(["", "m", "k", "Mi", "Gi"]))
def test_coefficients_never_go_through_binary_floats(digits: int, decimals: int, unit: str) -> None:
    text = f"{digits / 1:.0f}" if not decimals else f"{digits // 10**decimals}.{digits % 10**decimals:0{decimals}d}"
    # The number is put in as text: json.dumps would write a float.
    whole = one_text(name="x.y/z", coefficient="NUMBER", unit=unit)
    (rule,) = convert_text(whole.replace('"NUMBER"', text)).rules
    factor = {"": 10**9, "m": 10**6, "k": 10**12, "Mi": 2**20 * 10**9, "Gi": 2**30 * 10**9}[unit]
    assert rule.default.coefficients["x.y/z"].nanos == -(-digits * factor // 10**decimals)


def test_more_decimals_than_a_quantity_holds_are_reported() -> None:
    conversion = one(name="x.y/z", coefficient=2.357142857142857)
    assert "2.357142857142857 has more than nine decimals: it is rounded up, to 2357142858n" in messages(conversion)
    assert "gpuinjector-rounded" in codes(one(name="cpu", coefficient=1, unit="e-10"))
    assert "gpuinjector-rounded" not in codes(one(name="cpu", coefficient=1, unit="e-9"))


def test_fractions_are_reported_as_they_were_rounded_or_truncated() -> None:
    assert "rounded the pod's total down" in messages(one(name="memory", coefficient=1.5, unit="Gi"))
    assert "truncated each container's share" in messages(one(name="x.y/z", coefficient=1.5, unit="Gi"))
    assert codes(one(name="memory", coefficient=3, unit="Gi")) == []


def test_a_negative_coefficient_is_reported_as_it_was_denied_or_injected() -> None:
    assert "gpuinjector denies every pod with 'memory too large'" in messages(one(name="memory", coefficient=-1))
    assert "gpuinjector injects the negative amount of x.y/z, and the API server rejects the pod" in messages(
        one(name="x.y/z", coefficient=-1)
    )


def test_problems_have_the_line_of_the_configuration() -> None:
    conversion = convert_text(
        '{"resourceMap": {"V100":\n  {"nvidia.com/gpu": {"resourceList": [\n    {"name": "cpu", "value": "8"}]}}}}'
    )
    assert messages(conversion) == (
        "gpuinjector.conf:3:30: error: 'value' is never read by gpuinjector: write the amount per GPU as coefficient "
        "and unit [gpuinjector-unknown-field]\n"
        '    3 |     {"name": "cpu", "value": "8"}]}}}}\n'
        "      |                              ^~~"
    )


@pytest.mark.parametrize(
    ("configuration", "code", "message"),
    [
        ("", "json-syntax", "unexpected end"),
        ("[]", "gpuinjector-wrong-type", "the configuration must be an object"),
        ('{"resourceMaps": {}}', "gpuinjector-unknown-field", "did you mean 'resourceMap'?"),
        ('{"resourceMap": []}', "gpuinjector-wrong-type", "a map of GPU types must be an object"),
        ('{"resourceMap": {"V100": 1}}', "gpuinjector-wrong-type", "a map of GPU resources must be an object"),
        ('{"resourceMap": {"V100": {"a/b": "x"}}}', "gpuinjector-wrong-type", "an entry must be an object"),
        ('{"resourceMap": {"V100": {"a/b": {"x": 1}}}}', "gpuinjector-unknown-field", "an entry has no field 'x'"),
        ('{"resourceMap": {"V100": {"a/b": {"resourceList": {}}}}}', "gpuinjector-wrong-type", "must be a list"),
        ('{"resourceMap": {"V100": {"a/b": {"annotations": {"k": 1}}}}}', "gpuinjector-wrong-type", "must be a string"),
        ('{"resourceMap": {}, "RESOURCEMAP": {}}', "gpuinjector-duplicate-key", "duplicate key 'resourceMap'"),
        ('{"resourceMap": {"V100": {}, "V100": {}}}', "gpuinjector-duplicate-key", "duplicate key 'V100'"),
        ('{"namespaceWhiteList": "a"}', "gpuinjector-wrong-type", "must be a list"),
        ('{"namespaceWhiteList": [1]}', "gpuinjector-wrong-type", "a namespace must be a string"),
        ('{"resourceMap": {"V100": {"gpu": {"annotations": {"a": "b"}}}}}', "wrong-form", "in the converted rule: "),
    ],
)
def test_members_that_cannot_be_converted_are_errors(configuration: str, code: str, message: str) -> None:
    conversion = convert_text(configuration)
    errors = [finding for finding in conversion.findings if finding.severity.value == "error"]
    assert [finding.code for finding in errors] == [code]
    assert message in errors[0].message
    assert (conversion.text, conversion.rules) == ("", ())


@pytest.mark.parametrize(
    ("item", "code"),
    [
        ({"coefficient": 1}, "gpuinjector-no-name"),
        ({"name": None, "coefficient": 1}, "gpuinjector-no-name"),
        ({"name": "", "coefficient": 1}, "gpuinjector-no-name"),
        ({"name": 5}, "gpuinjector-wrong-type"),
        ({"name": "cpu", "coefficient": "4"}, "gpuinjector-wrong-type"),
        ({"name": "cpu", "coefficient": -1}, "gpuinjector-negative"),
        ({"name": "cpu", "coefficient": 4, "unit": "cores"}, "gpuinjector-bad-unit"),
        ({"name": "cpu", "coefficient": 4, "unit": "5"}, "gpuinjector-bad-unit"),
        ({"name": "cpu", "coefficient": 1e300}, "gpuinjector-bad-quantity"),
        ({"name": "cpu", "coefficient": 1e-300}, "gpuinjector-bad-quantity"),
        ({"name": "cpu", "coefficient": 1, "unit": "e99"}, "gpuinjector-bad-quantity"),
        ({"name": "cpu", "coefficient": 4, "values": 1}, "gpuinjector-unknown-field"),
        ({"name": "cpu", "value": "4"}, "gpuinjector-unknown-field"),
    ],
)
def test_an_item_that_means_nothing_is_an_error(item: dict[str, Any], code: str) -> None:
    conversion = one(**item)
    assert code in codes(conversion)
    assert (conversion.text, conversion.rules) == ("", ())


def test_a_value_beside_a_coefficient_is_reported_and_the_rest_converted() -> None:
    conversion = one(name="cpu", coefficient=4, value="8")
    assert codes(conversion) == ["gpuinjector-unknown-field"]
    assert "warning: 'value' is never read by gpuinjector" in messages(conversion)
    assert 'cpu: "4"' in conversion.text


def test_one_run_reports_every_error_in_file_order() -> None:
    entry = {"resourceList": [{"name": "cpu", "unit": "x"}, {"name": "memory", "coefficient": -1}, {"nome": "a"}]}
    conversion = converted(a=1, resourceMap={"V100": {"n.d/g": entry}})
    reported = [code for code in codes(conversion) if code != "gpuinjector-x"]
    assert reported == [
        "gpuinjector-unknown-field",
        "gpuinjector-no-coefficient",
        "gpuinjector-bad-unit",
        "gpuinjector-negative",
        "gpuinjector-no-name",
        "gpuinjector-unknown-field",
    ]


@pytest.mark.parametrize(
    ("configuration", "code"),
    [
        ({"resourceMap": {"": {"nvidia.com/gpu": {"resourceList": CPU4}}}}, "gpuinjector-never-matches"),
        ({"namespaceResourceMap": {"*": {"V100": {}}}}, "gpuinjector-never-matches"),
        ({"namespaceWhiteList": [" a "]}, "gpuinjector-never-matches"),
        ({"namespaceWhiteList": [None]}, "gpuinjector-never-matches"),
        ({"resourceMap": {"V100": {"nvidia.com/gpu": {}}}}, "gpuinjector-empty-entry"),
        ({"resourceMap": {"V100": {"nvidia.com/gpu": None}}}, "gpuinjector-empty-entry"),
        ({"ResourceMap": {}}, "gpuinjector-letter-case"),
    ],
)
def test_members_without_effect_are_omitted_with_a_warning(configuration: dict[str, Any], code: str) -> None:
    conversion = converted(**configuration)
    assert codes(conversion) == [code]
    assert conversion.rules == ()


def test_null_counts_as_absent() -> None:
    conversion = converted(resourceMap=None, namespaceResourceMap=None, namespaceWhiteList=None)
    assert (conversion.findings, conversion.rules) == ((), ())


def test_an_annotation_that_is_null_is_empty_text() -> None:
    (rule,) = converted(resourceMap={"V100": {"nvidia.com/gpu": {"annotations": {"a": None}}}}).rules
    assert rule.default.annotations == {"a": ""}


def test_text_that_yaml_cannot_represent_is_an_error() -> None:
    conversion = converted(resourceMap={"V100": {"nvidia.com/gpu": {"annotations": {"a" * 2000: "b"}}}})
    assert {finding.severity.value for finding in conversion.findings} == {"error"}
    assert conversion.rules == ()


def test_the_last_of_two_items_with_one_name_counts() -> None:
    entry = {"resourceList": [*CPU4, {"name": "cpu", "coefficient": 2}]}
    conversion = converted(resourceMap={"V100": {"nvidia.com/gpu": entry}})
    assert codes(conversion) == ["gpuinjector-duplicate-name"]
    assert [str(rule.default.coefficients["cpu"]) for rule in conversion.rules] == ["2"]


@given(st.text(max_size=60) | st.text(alphabet='{}[]",:01.eE-+ \nresourceMap', max_size=60))
def test_any_text_gives_rules_or_findings(text: str) -> None:
    conversion = convert_text(text)
    assert conversion.rules or conversion.findings or not conversion.text
