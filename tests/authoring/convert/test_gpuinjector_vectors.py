"""Responses of gpuinjector to 89 inputs, compared with those of converted rules.

Both agree on everything but EXCEPTIONS; each of these names the row of "Where the reference is wrong" in the
description of gpuinjector that it comes from, and says exactly what is answered instead.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rules_engine.authoring.convert import convert_text
from rules_engine.model.kubernetes.cluster import Cluster
from rules_engine.model.rules.admission import pod_request
from rules_engine.model.rules.decision import Action, Decision
from rules_engine.rules.kinds import compile_rules
from tests.support.patching import apply_as_api_server, apply_json, operations

VECTORS: dict[str, dict[str, Any]] = {
    vector["name"]: vector
    for vector in json.loads((Path(__file__).parents[2] / "data" / "gpuinjector-vectors.json").read_text())
}

USELESS_FIELDS = "unknown or useless fields are load errors with their line"
CHECKED_AT_LOAD = "nothing is validated at load: here everything is checked at load"
EXACT_DECIMALS = "binary floats: here exact decimals"
NO_FLOOR = "floor on the pod's total: here exact"
WHOLE_CPU_AND_BYTES = "memory in thousandths of a byte: here whole bytes, rounded down"
ANY_SIZE = "int64 wrap-around: here exact integers of any size"
ZERO_GPUS = "a container that requests 0 GPUs counts as one with GPUs, and N = 0 denies: not here"
SIDECARS = "native sidecars are ignored: here their requests count as those of a plain container"
WHOLE_DEVICES = "a fraction of an extended resource, which no API server takes: here whole numbers, rounded down"


@dataclass(frozen=True, kw_only=True)
class Instead:
    """A different response: an error at load, a container's resources, a denial or an unchanged pod."""

    reason: str
    load_error: str = ""
    resources: dict[str, dict[str, str]] = field(default_factory=dict)
    message: str = ""


EXCEPTIONS = {
    "arith/value field": Instead(reason=USELESS_FIELDS, load_error="'value' is never read"),
    "config/misspelled field": Instead(reason=USELESS_FIELDS, load_error="unknown field"),
    "config/no name in list": Instead(reason=CHECKED_AT_LOAD, load_error="needs a name"),
    "arith/negative coefficient": Instead(reason=CHECKED_AT_LOAD, load_error="a negative coefficient"),
    "arith/unit GiB": Instead(reason=CHECKED_AT_LOAD, load_error="is not a quantity"),
    "arith/ext unit bad": Instead(reason=CHECKED_AT_LOAD, load_error="is not a quantity"),
    "arith/unit cores": Instead(reason=CHECKED_AT_LOAD, load_error="is not a quantity"),
    "arith/bad unit on unused rule": Instead(reason=CHECKED_AT_LOAD, load_error="is not a quantity"),
    "anno/escape": Instead(reason=CHECKED_AT_LOAD, load_error="in the converted rule"),
    "arith/1.5Gi one gpu": Instead(reason=NO_FLOOR, resources={"gpu-container": {"memory": "1536Mi"}}),
    "arith/half a Ki": Instead(reason=NO_FLOOR, resources={"gpu-container": {"memory": "512"}}),
    "arith/tenth of a core x 3": Instead(reason=NO_FLOOR, resources={"gpu-container": {"cpu": "300m"}}),
    "arith/1.5Gi three gpus": Instead(reason=NO_FLOOR, resources={"gpu-container": {"memory": "4608Mi"}}),
    "arith/float 4.35 x 100": Instead(reason=EXACT_DECIMALS, resources={"gpu-container": {"cpu": "435"}}),
    "arith/float ext 0.29 x 100": Instead(
        reason=EXACT_DECIMALS, resources={"gpu-container": {"tke.cloud.tencent.com/qgpu-core": "29"}}
    ),
    # 55 GiB left for seven GPUs: 8436542902 whole bytes each; cpu is as it was, in whole millicores.
    "arith/remainder over seven gpus, 4+2+1": Instead(
        reason=WHOLE_CPU_AND_BYTES,
        resources={
            "a": {"cpu": "15428m", "memory": "33746171608"},
            "b": {"cpu": "7714m", "memory": "16873085804"},
            "c": {"cpu": "3857m", "memory": "8436542902"},
        },
    ),
    # 16 GiB less 1.1 GiB is 15998753177.6 bytes: 7999376588 for each of two GPUs.
    "arith/sidecar 1.1Gi": Instead(reason=WHOLE_CPU_AND_BYTES, resources={"gpu-container": {"memory": "15998753176"}}),
    "arith/overflow 16Pi": Instead(reason=ANY_SIZE, resources={"gpu-container": {"ephemeral-storage": "16Pi"}}),
    "arith/overflow 10 PB decimal": Instead(reason=ANY_SIZE, resources={"gpu-container": {"ephemeral-storage": "10P"}}),
    "arith/coefficient 1e30": Instead(reason=ANY_SIZE, resources={"gpu-container": {"cpu": "1000000000000E"}}),
    "arith/coefficient 1e15 Gi": Instead(reason=ANY_SIZE, resources={"gpu-container": {"memory": "976562500000Ti"}}),
    "arith/ext 1500m": Instead(
        reason=WHOLE_DEVICES, resources={"gpu-container": {"tke.cloud.tencent.com/qgpu-core": "1"}}
    ),
    "shape/native sidecar": Instead(reason=SIDECARS, resources={"gpu-container": {"cpu": "3", "memory": "7Gi"}}),
    "shape/native sidecar too large": Instead(
        reason=SIDECARS, message="pod testns/test-gpu-pod resource cpu too large"
    ),
    # The helper keeps what it has, and that is taken from the GPU container's share.
    "shape/container with zero gpus beside one with two": Instead(
        reason=ZERO_GPUS, resources={"gpu-container": {"cpu": "7", "memory": "15Gi"}}
    ),
    "shape/gpu null": Instead(reason=ZERO_GPUS),
    "shape/annotations only, zero gpus": Instead(reason=ZERO_GPUS),
    "choose/generateName": Instead(reason=ZERO_GPUS),
}


def text_of(vector: dict[str, Any]) -> str:
    return vector["configRaw"] if "configRaw" in vector else json.dumps(vector["config"])


def decide(vector: dict[str, Any]) -> Decision:
    conversion = convert_text(text_of(vector))
    assert not [finding for finding in conversion.findings if finding.severity.value == "error"]
    rule_set, problems = compile_rules(conversion.rules)
    assert not problems
    request = vector.get("request", {})
    namespace = request.get("namespace") or vector["pod"]["metadata"].get("namespace", "")
    admission_request = pod_request(vector["pod"], namespace=namespace, operation=request.get("operation", "CREATE"))
    decision = rule_set.mutate(admission_request, Cluster())
    patch = [operation.to_json() for operation in decision.patch]
    assert apply_json(vector["pod"], patch) == decision.result
    return decision


@pytest.mark.parametrize("name", [name for name in VECTORS if name not in EXCEPTIONS])
def test_converted_rules_answer_as_gpuinjector_did(name: str) -> None:
    vector = VECTORS[name]
    reference = vector["reference"]
    if reference["loadError"] is not None:
        conversion = convert_text(text_of(vector))
        assert any(finding.severity.value == "error" for finding in conversion.findings)
        assert (conversion.rules, conversion.text) == ((), "")
        return
    decision = decide(vector)
    assert decision.allowed is reference["allowed"]
    assert decision.result == apply_as_api_server(vector["pod"], operations(reference["patch"]))
    if not decision.allowed:
        assert decision.status is not None
        assert meaning(decision.status.message) == meaning(reference["message"])


@pytest.mark.parametrize("member", [{}, {"restartPolicy": "Always"}], ids=["init", "sidecar"])
@pytest.mark.parametrize(
    "name",
    [
        name
        for name, vector in VECTORS.items()
        if vector["reference"]["loadError"] is None and not (name in EXCEPTIONS and EXCEPTIONS[name].load_error)
    ],
)
def test_a_gpu_in_an_init_container_makes_no_difference_but_a_warning(name: str, member: dict[str, Any]) -> None:
    vector = VECTORS[name]
    alone = decide(vector)
    resources = {section: {"nvidia.com/gpu": "1"} for section in ("limits", "requests")}
    helper = {"name": "helper", **member, "resources": resources}
    spec = vector["pod"]["spec"]
    beside = {**spec, "initContainers": [*spec.get("initContainers", []), helper]}
    decision = decide({**vector, "pod": {**vector["pod"], "spec": beside}})
    assert decision.allowed is alone.allowed
    result: Any = decision.result
    expected: Any = alone.result
    assert result["spec"]["initContainers"].pop() == helper
    assert (result["metadata"], {**result["spec"], "initContainers": spec.get("initContainers", [])}) == (
        expected["metadata"],
        {**expected["spec"], "initContainers": spec.get("initContainers", [])},
    )
    touched = any(step.action is Action.CHANGE and " nvidia.com/gpu" in step.message for step in decision.trace)
    assert any("injects nothing into" in text for text in decision.warnings) or not touched


def meaning(message: str) -> tuple[str, ...]:
    """Words and sorted resources of a denial, which both messages must have."""
    if "quantities must match" in message or "is not a quantity" in message:
        return ("no quantity",)
    pod = message.partition("pod ")[2].partition(" ")[0]
    if "has different gpu resource" in message:
        # Both rules deny, each in its own words; the reference has one message.
        gpu_resources = message.partition("has different gpu resource ")[2].partition("; ")[0]
        gpu_resources = gpu_resources.removeprefix("map[").removesuffix("]")
        return (pod, "different", *sorted(gpu_resources.replace(":true", "").replace(",", "").split()))
    resources, words, _ = message.partition(" resource ")[2].partition(" too large")
    assert words, message
    return (pod, "too large", *sorted(resources.split(", ")))


@pytest.mark.parametrize("name", EXCEPTIONS)
def test_converted_rules_answer_better_than_gpuinjector(name: str) -> None:
    vector, exception = VECTORS[name], EXCEPTIONS[name]
    if exception.load_error:
        conversion = convert_text(text_of(vector))
        messages = [finding.message for finding in conversion.findings if finding.severity.value == "error"]
        assert messages
        assert all(exception.load_error in message for message in messages)
        assert (conversion.rules, conversion.text) == ((), "")
        return
    decision = decide(vector)
    assert decision.allowed is not bool(exception.message)
    if exception.message:
        assert decision.status is not None
        assert exception.message in decision.status.message
    assert decision.result == with_resources(vector["pod"], exception.resources)
    reference = vector["reference"]
    theirs = apply_as_api_server(vector["pod"], operations(reference["patch"]))
    assert (decision.allowed, decision.result) != (reference["allowed"], theirs), "this is no exception"


def with_resources(pod: dict[str, Any], resources: dict[str, dict[str, str]]) -> dict[str, Any]:
    """The pod with amounts in requests and limits of its containers, by their names."""
    containers = [
        {
            **container,
            "resources": {
                which: {**container["resources"][which], **resources.get(container["name"], {})}
                for which in container["resources"]
            },
        }
        for container in pod["spec"]["containers"]
    ]
    return {**pod, "spec": {**pod["spec"], "containers": containers}}


def test_every_exception_is_one_of_the_vectors() -> None:
    assert len(VECTORS) == 89
    assert EXCEPTIONS.keys() <= VECTORS.keys()


def test_annotations_with_a_slash_are_written_where_they_belong() -> None:
    # The vector anno/escape uses keys that no API server takes; the only character to escape in others is the slash.
    vector = VECTORS["anno/escape"]
    entry = {"annotations": {"p.q/r": "3", "a": "1"}}
    decision = decide({**vector, "config": {"resourceMap": {"V100": {"nvidia.com/gpu": entry}}}})
    assert [operation.path for operation in decision.patch] == [
        "/metadata/annotations/a",
        "/metadata/annotations/p.q~1r",
    ]
