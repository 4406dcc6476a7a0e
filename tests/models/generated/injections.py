"""Injections and pods for the model of injections, and the comparison of its outcome with the engine's."""

from typing import Any

from hypothesis import strategies as st

from rules_engine.model.rules.rule import Mode
from rules_engine.rules.injection.value import InitContainers, OnConflict, ResourceInjection
from tests.models import injections as model
from tests.models.quantities import read, write
from tests.support.evaluation import container, entry, injection, mutated, pod
from tests.support.patching import same

GPUS = ("nvidia.com/gpu", "amd.com/gpu")
AMOUNTS = ("0", "1", "2", "3", "7", "100m", "1500m", "333m", "1Gi", "8Gi", "1025Mi", "1Ki", "1G", "0.1", "1e3", "12e-1")
COEFFICIENTS = (*AMOUNTS, "1n", "1500u", "10Ei", "999E", "1Ki", "4000m")
NAMES = ("cpu", "memory", "ephemeral-storage", "nvidia.com/shm", "hugepages-2Mi")
TYPE = "task.bkbcs.tencent.com/gpu-type"


def cases() -> st.SearchStrategy[Any]:
    """Return a strategy of rules, a pod and the namespace of the request."""
    several = st.lists(rules(), min_size=1, max_size=3, unique_by=lambda rule: rule["name"])
    return st.fixed_dictionaries({"rules": several, "pod": _pods(), "namespace": st.sampled_from(["ml", "other"])})


def check(case: Any) -> None:
    """Compare the engine's decision with the model's."""
    expected = model.mutate(case["pod"], case["rules"], case["namespace"])
    decision = mutated(case["pod"], *map(rule_of, case["rules"]), namespace=case["namespace"])
    assert decision.allowed == expected.allowed, decision.trace
    if not expected.allowed:
        assert decision.status
        assert decision.status.code == 403
        assert all(word in decision.status.message for word in expected.words), decision.status
        return
    assert same(settled(decision.result, case["pod"], expected.pod), expected.pod), (decision.result, expected.pod)
    assert bool(decision.warnings) == expected.warned, decision.warnings
    assert all(word in "".join(decision.warnings) for word in expected.words), decision.warnings


def settled(found: Any, before: Any, expected: Any) -> Any:
    """Return the pod with equal amounts in the model's text, if they are unchanged or canonical."""
    if isinstance(found, dict) and isinstance(expected, dict):
        old = before if isinstance(before, dict) else {}
        return {key: settled(value, old.get(key), expected.get(key)) for key, value in found.items()}
    if isinstance(found, list) and isinstance(expected, list) and len(found) == len(expected):
        items = before if isinstance(before, list) else []
        olds = [*items, *found[len(items) :]][: len(found)]
        return [settled(*each) for each in zip(found, olds, expected, strict=True)]
    if isinstance(found, str) and isinstance(expected, str) and found != expected:
        left, right = read(found), read(expected)
        if left and right and left.value == right.value:
            canonical = {write(left.value, family) for family in ("decimal", "binary", "exponent")}
            return expected if found == before or found in canonical else found
    return found


def _rarely(usual: Any, *others: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from([usual] * 5 * len(others) + [*others])


def _amounts(texts: tuple[str, ...], most: int) -> st.SearchStrategy[dict[str, str]]:
    return st.dictionaries(st.sampled_from(NAMES), st.sampled_from(texts), max_size=most)


def _entries() -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {},
        optional={
            "inherit": st.just("Merge"),
            "coefficients": _amounts(COEFFICIENTS, 3),
            "annotations": st.sampled_from([{"a/b": "entry"}, {"c": "entry"}]),
        },
    )


def rules() -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(
        {
            "name": st.sampled_from("abc"),
            "priority": st.integers(0, 1),
            "mode": _rarely("Enforce", "Audit", "Off"),
            "gpuType": st.sampled_from([None, "V100", "V100", "T4"]),
            "gpuTypeAnnotation": _rarely(TYPE, "a/b"),
            "gpuResource": st.sampled_from([GPUS[0], GPUS[0], GPUS[1]]),
            "onConflict": st.sampled_from(["Overwrite", "Keep", "Raise"]),
            "initContainers": st.sampled_from(["Ignore", "Inject", "Deny", "Inject"]),
            "coefficients": _amounts(COEFFICIENTS, 4),
            "annotations": st.sampled_from([{}, {}, {"a/b": "default"}, {"d": "default"}]),
            "namespaces": st.dictionaries(st.just("ml"), _entries()),
        }
    )


def rule_of(spec: Any) -> ResourceInjection:
    own = {name: model.entry(spec, name) for name in spec["namespaces"]}
    return injection(
        spec["coefficients"],
        name=spec["name"],
        priority=spec["priority"],
        mode=Mode(spec["mode"]),
        gpu_type=spec["gpuType"],
        gpu_type_annotation=spec["gpuTypeAnnotation"],
        gpu_resource=spec["gpuResource"],
        on_conflict=OnConflict(spec["onConflict"]),
        init_containers=InitContainers(spec["initContainers"]),
        annotations=spec["annotations"],
        namespaces={name: entry(*found) for name, found in own.items()},
    )


@st.composite
def _containers(draw: st.DrawFn, name: str, init: bool) -> Any:
    sections: dict[str, dict[str, str]] = {"limits": {}, "requests": {}}
    for gpu in draw(st.sampled_from([(), GPUS[:1], GPUS[:1], GPUS[:1], GPUS[1:], GPUS])):
        count = draw(_rarely("1", "2", "3", "0", "1k", "2000m", "1500m", "-1"))
        for section in draw(st.sampled_from([("limits", "requests"), ("limits",), ("requests",)])):
            sections[section][gpu] = count
        if draw(st.integers(0, 29)) == 29:
            sections["requests"][gpu] = "4"
    for section in sections:
        sections[section] |= draw(_amounts(AMOUNTS, 2))
    return container(name, **sections, sidecar=init and draw(st.booleans()))


@st.composite
def _pods(draw: st.DrawFn) -> Any:
    made: Any = pod(
        *[draw(_containers(f"c{index}", False)) for index in range(draw(st.integers(1, 3)))],
        init=[draw(_containers(f"i{index}", True)) for index in range(draw(st.sampled_from([0, 0, 1, 2])))],
        annotations=draw(st.sampled_from([{TYPE: "V100"}, {TYPE: "V100"}, {TYPE: "T4"}, {"a/b": "V100"}, None])),
    )
    if draw(st.integers(0, 4)) == 4:
        made["metadata"]["namespace"] = "ml"
    if draw(st.integers(0, 3)) == 3:
        level = st.dictionaries(st.sampled_from(NAMES[:2]), st.sampled_from(AMOUNTS), max_size=2)
        made["spec"]["resources"] = draw(st.fixed_dictionaries({}, optional={"limits": level, "requests": level}))
    return made
