"""Conversion of gpuinjector's configuration: the rules, and every reported difference."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules_engine.authoring.convert import Conversion, convert_text
from rules_engine.rules.sources.documents import load_documents
from tests.support.authoring import write

CPU4 = [{"name": "cpu", "coefficient": 4000, "unit": "m"}]


def converted(**configuration: Any) -> Conversion:
    return convert_text(json.dumps(configuration))


def one_text(**item: Any) -> str:
    """A configuration with one entry of one item."""
    return json.dumps({"resourceMap": {"V100": {"nvidia.com/gpu": {"resourceList": [item]}}}})


def one(**item: Any) -> Conversion:
    return convert_text(one_text(**item))


def messages(conversion: Conversion) -> str:
    return "\n".join(map(str, conversion.findings))


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
    exact, empty = conversion.findings
    assert str(exact) == (
        "gpuinjector.conf:1:1: warning: $.namespaceResourceMap.gpu-training.V100.nvidia.com/gpu.resourceList[0]: "
        "1.5 is now computed exactly; gpuinjector rounded the pod's total down to whole units [gpuinjector-different]"
    )
    assert empty.message.startswith(
        "$.namespaceResourceMap.gpu-sandbox.V100.nvidia.com/gpu: an empty entry injects nothing"
    )


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


def test_fractions_are_reported_as_they_were_rounded_or_truncated() -> None:
    assert "gpuinjector rounded the pod's total down" in messages(one(name="memory", coefficient=1.5, unit="Gi"))
    assert "gpuinjector truncated each container's share down" in messages(one(name="x.y/z", coefficient=10.5))
    assert messages(one(name="memory", coefficient=3, unit="Gi")) == ""


ENTRY = "$.resourceMap.V100.nvidia.com/gpu"


@pytest.mark.parametrize(
    ("configuration", "message"),
    [
        ("", "Expecting value: line 1 column 1 (char 0) [json-syntax]"),
        ('{"a": NaN}', "NaN is not JSON"),
        ("[" * 100_000, "[json-syntax]"),
        ('{"resourceMap": {"V100": {}, "V100": {}}}', "duplicate key 'V100'"),
        ("[]", "error: $: must be an object"),
        ('{"resourceMaps": {}}', "$: unknown field 'resourceMaps' (did you mean 'resourceMap'?): gpuinjector "),
        ('{"resourceMap": {}, "RESOURCEMAP": {}}', "$: duplicate key 'resourceMap'"),
        ('{"resourceMap": []}', "$.resourceMap: must be an object"),
        ('{"resourceMap": {"V100": 1}}', "$.resourceMap.V100: must be an object"),
        ('{"resourceMap": {"V100": {"a/b": "x"}}}', "$.resourceMap.V100.a/b: must be an object"),
        ('{"resourceMap": {"V100": {"a/b": {"x": 1}}}}', "$.resourceMap.V100.a/b: unknown field 'x'"),
        ('{"resourceMap": {"V100": {"a/b": {"resourceList": {}}}}}', "V100.a/b.resourceList: must be a list"),
        ('{"resourceMap": {"V100": {"a/b": {"annotations": {"k": 1}}}}}', "a/b.annotations.k: must be a string"),
        ('{"namespaceWhiteList": "a"}', "$.namespaceWhiteList: must be a list"),
        ('{"namespaceWhiteList": [1]}', "$.namespaceWhiteList[0]: must be a string"),
        ('{"resourceMap": {"V100": {"gpu": {"annotations": {"a": "b"}}}}}', "in the converted rule v100: 'gpu' is "),
        (one_text(coefficient=1), f"{ENTRY}.resourceList[0]: needs a name"),
        (one_text(name=None), "needs a name"),
        (one_text(name=5), f"{ENTRY}.resourceList[0].name: must be a string"),
        (one_text(name="cpu", coefficient="4"), f"{ENTRY}.resourceList[0].coefficient: must be a number"),
        (one_text(name="cpu", coefficient=-1), "a negative coefficient"),
        (one_text(name="cpu", coefficient=4, unit="cores"), "'4cores' is not a quantity"),
        (one_text(name="cpu", coefficient=4, unit="5"), "the unit '5' is not a suffix of a quantity"),
        (one_text(name="cpu", coefficient=1e300), "a quantity has at most 64 characters"),
        (one_text(name="cpu", coefficient="1e999").replace('"1e999"', "1e999"), "'Infinity' is not a quantity"),
        (one_text(name="cpu", coefficient=1, unit="e99"), "[gpuinjector-invalid]"),
        (one_text(name="cpu", value="4"), f"error: {ENTRY}.resourceList[0]: 'value' is never read"),
        (one_text(name="\ud800", coefficient=1), "in the converted rule v100: "),
    ],
)
def test_what_cannot_be_converted_is_an_error_with_its_path(configuration: str, message: str) -> None:
    conversion = convert_text(configuration)
    assert message in messages(conversion)
    assert conversion == Conversion(findings=conversion.findings)


@pytest.mark.parametrize(
    ("configuration", "message"),
    [
        ({"resourceMap": {"": {"nvidia.com/gpu": {"resourceList": CPU4}}}}, "an empty GPU type never matches a pod"),
        ({"namespaceResourceMap": {"*": {"V100": {}}}}, "'*' is not a valid namespace name"),
        ({"namespaceWhiteList": [" a "]}, "$.namespaceWhiteList[0]: ' a ' is not a valid namespace name"),
        ({"namespaceWhiteList": [None]}, "'' is not a valid namespace name"),
        ({"resourceMap": {"V100": {"nvidia.com/gpu": {}}}}, f"{ENTRY}: an empty entry injects nothing"),
        ({"resourceMap": {"V100": {"nvidia.com/gpu": None}}}, f"{ENTRY}: an empty entry injects nothing"),
        ({"ResourceMap": {}}, "'ResourceMap' is read as 'resourceMap': Go's JSON reader ignores letter case"),
    ],
)
def test_members_without_effect_are_omitted_with_a_warning(configuration: dict[str, Any], message: str) -> None:
    conversion = converted(**configuration)
    [finding] = conversion.findings
    assert (finding.severity.value, conversion.rules) == ("warning", ())
    assert message in finding.message


@pytest.mark.parametrize(
    ("items", "message", "amount"),
    [
        ([{"name": "cpu", "coefficient": 4, "value": "8"}], "'value' is never read by gpuinjector", "4"),
        ([*CPU4, {"name": "cpu", "coefficient": 2}], "resourceList[1]: 'cpu' occurs twice in this list", "2"),
        ([{"name": "cpu"}], "cpu has no coefficient: 0 is injected", "0"),
        ([{"name": "cpu", "coefficient": 4, "unit": "0"}], "the unit '0' is appended to the number", "40"),
    ],
)
def test_items_that_mean_something_else_are_warnings(items: list[Any], message: str, amount: str) -> None:
    conversion = converted(resourceMap={"V100": {"nvidia.com/gpu": {"resourceList": items}}})
    [finding] = conversion.findings
    assert message in finding.message
    assert [str(rule.default.coefficients["cpu"]) for rule in conversion.rules] == [amount]


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


CONFIG_MAP = """\
kind: Service
---
kind: ConfigMap
data:
  a.conf: x
  gpuinjector.conf: |
    {"resourceMap": {"V100": {"nvidia.com/gpu": {"annotations": {"a": "b"}}}}}
"""


@pytest.mark.parametrize("text", [CONFIG_MAP, CONFIG_MAP.replace("  a.conf: x\n  gpuinjector.conf", "  settings")])
def test_a_config_map_has_the_configuration_by_name_or_alone(text: str) -> None:
    (rule,) = convert_text(text).rules
    assert rule.default.annotations == {"a": "b"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (CONFIG_MAP.replace("gpuinjector", "b"), "not one key of the ConfigMap names gpuinjector: a.conf, b.conf"),
        ('{"kind": "ConfigMap"}', "not one key of the ConfigMap names gpuinjector: it has no data"),
        ('{"ConfigMap": {}}', "$: unknown field 'ConfigMap'"),
        ("kind: [ConfigMap", "Expecting value"),
    ],
)
def test_a_text_without_a_configuration_is_an_error(text: str, message: str) -> None:
    assert message in messages(convert_text(text))


@given(st.text(max_size=60) | st.text(alphabet='{}[]",:01.eE-+ \nresourceMap', max_size=60))
def test_any_text_gives_rules_or_findings(text: str) -> None:
    conversion = convert_text(text)
    assert conversion.rules or conversion.findings or not conversion.text
