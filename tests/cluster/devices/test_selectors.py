"""Selectors of DeviceClasses: CEL on `device`, as the scheduler evaluates them."""

from typing import Any

import pytest

from rules_engine.cluster.devices import selectors
from rules_engine.cluster.devices.offers import ANSWER_COST
from rules_engine.cluster.devices.selectors import DEVICE, ENVIRONMENT, CostlyError, SelectorError, class_matches
from rules_engine.language.cel import Budget, CelProblems, EvaluationError, compile_expression
from rules_engine.model.kubernetes.devices import Device, DeviceClass, Version
from rules_engine.model.kubernetes.quantity import Quantity
from rules_engine.model.problems.source import SourceText

DRIVER = "gpu.nvidia.com"

CARD = Device(
    name="gpu-0",
    attributes={
        DRIVER: {
            "type": "gpu",
            "index": 3,
            "healthy": True,
            "driverVersion": Version("580.65.6"),
            "cudaComputeCapability": Version("8.0.0"),
        },
        "resource.kubernetes.io": {"pcieRoot": "pci0000:00"},
    },
    capacity={DRIVER: {"memory": Quantity.parse("40192Mi"), "multiprocessors": Quantity.parse("98")}},
)


def outcome(expression: str, device: Device = CARD) -> object:
    """Return the value of an expression, or the message of its error: the same from code and interpreter."""
    activation = selectors._activation(device, DRIVER)
    outcomes: list[object] = []
    for generated in (True, False):
        program = compile_expression(SourceText.inline(expression), ENVIRONMENT, generated=generated)
        assert (program.generated is not None) == generated
        try:
            outcomes.append(program.evaluate(activation, Budget()))
        except EvaluationError as error:
            outcomes.append(f"error: {error.message}")
    first, second = outcomes
    assert (type(first), first) == (type(second), second)
    return first


def matches(*expressions: str, device: Device = CARD, cost: int = 2 * ANSWER_COST) -> bool:
    """Return whether a device matches a class of these selectors."""
    return class_matches(DeviceClass(name="c", selectors=expressions), device, DRIVER, Budget(cost))


def failure(*expressions: str, device: Device = CARD) -> str:
    with pytest.raises(SelectorError) as caught:
        matches(*expressions, device=device)
    return str(caught.value)


@pytest.mark.parametrize(
    "expression",
    [
        "device.driver == 'gpu.nvidia.com'",
        "device.attributes['gpu.nvidia.com'].type == 'gpu'",
        "device.attributes['gpu.nvidia.com']['type'] == 'gpu'",
        "device.attributes['gpu.nvidia.com'].index == 3",
        "device.attributes['gpu.nvidia.com'].index > 2.5",
        "device.attributes['gpu.nvidia.com'].index != '3'",
        "device.attributes['gpu.nvidia.com'].healthy",
        "device.attributes['gpu.nvidia.com'].?type == optional.of('gpu')",
        "device.attributes['resource.kubernetes.io'].pcieRoot.startsWith('pci')",
        "device.attributes['gpu.nvidia.com'].type.matches('^g')",
        "device.attributes['gpu.nvidia.com'].type in ['gpu', 'mig']",
        "cel.bind(own, device.attributes[device.driver], own.type == 'gpu' && own.index == 3)",
        "cel.bind(d, device, d.driver == 'gpu.nvidia.com')",
        "!device.allowMultipleAllocations",
        "has(device.allowMultipleAllocations) && has(device.attributes)",
    ],
)
def test_attributes_and_the_driver_are_read(expression: str) -> None:
    assert outcome(expression) is True
    assert matches(expression)


@pytest.mark.parametrize(
    "expression",
    [
        "!('x' in device.attributes) && !('x' in device.capacity)",
        "'gpu.nvidia.com' in device.attributes && 'gpu.nvidia.com' in device.capacity",
        "device.attributes['x'] == {} && device.attributes.x.size() == 0",
        "!('type' in device.attributes['x'])",
        "!has(device.attributes['x'].type)",
        "device.attributes['x'].?type.orValue('none') == 'none'",
        "!device.capacity['x'].?memory.hasValue()",
        "device.attributes['x'].all(name, false) && !device.attributes['x'].exists(name, true)",
        "device.attributes['x'].map(name, name) == []",
        "size(device.attributes) == 2",
        "device.attributes.exists(domain, domain == 'resource.kubernetes.io')",
        "device.attributes.exists_one(domain, members, domain.startsWith('gpu') && members.type == 'gpu')",
        "device.attributes.filter(domain, domain == 'x') == []",
        "!(dyn(1) in device.attributes) && !(dyn([1]) in device.attributes)",
        "device.attributes != {'x': {}} && device.attributes == device.attributes",
        "type(device.attributes) == map",
    ],
)
def test_a_missing_domain_is_an_empty_map(expression: str) -> None:
    assert outcome(expression) is True


@pytest.mark.parametrize(
    "expression",
    [
        "has(device.attributes.x)",
        "device.attributes.?x.hasValue()",
        "device.attributes[?'x'].hasValue()",
        "device.attributes.?x.?y.orValue(true)",
    ],
)
def test_presence_tests_find_every_domain(expression: str) -> None:
    assert outcome(expression) is True


@pytest.mark.parametrize(
    "expression",
    [
        "device.attributes['gpu.nvidia.com'].profile == '1g.5gb'",
        "device.attributes['gpu.nvidia.com']['profile'] == '1g.5gb'",
        "device.attributes['x'].type == 'gpu'",
        "device.capacity['x'].memory.isGreaterThan(quantity('1Gi'))",
        "device.attributes[dyn(1)] == {}",
        "true && device.attributes['x'].type == 'gpu'",
        "false || device.attributes['x'].type == 'gpu'",
    ],
)
def test_an_unknown_name_fails(expression: str) -> None:
    assert ": no such key" in str(outcome(expression))
    message = failure(expression)
    assert message.startswith("a selector of DeviceClass c fails on device gpu-0 of gpu.nvidia.com: ")
    assert ": no such key" in message


def test_logic_absorbs_errors() -> None:
    error = "device.attributes['x'].type == 'gpu'"
    assert outcome(f"false && {error}") is False
    assert outcome(f"{error} && false") is False
    assert outcome(f"true || {error}") is True
    assert outcome(f"{error} || true") is True
    assert outcome(f"[1, 2].exists(n, n == 2 || {error})") is True


@pytest.mark.parametrize(
    "expression",
    [
        "device.attributes['gpu.nvidia.com'].driverVersion.isGreaterThan(semver('580.65.5'))",
        "device.attributes['gpu.nvidia.com'].driverVersion.compareTo(semver('580.65.06', true)) == 0",
        "device.attributes['gpu.nvidia.com'].driverVersion == semver('580.65.6')",
        "device.attributes['gpu.nvidia.com'].cudaComputeCapability.isLessThan(semver('8.6.0'))",
        "device.attributes['gpu.nvidia.com'].cudaComputeCapability.major() == 8",
        "device.attributes['gpu.nvidia.com'].cudaComputeCapability != '8.0.0'",
        "device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('40Gi')) == -1",
        "device.capacity['gpu.nvidia.com'].memory.isGreaterThan(quantity('39Gi'))",
        "device.capacity['gpu.nvidia.com'].memory == quantity('40192Mi')",
        "device.capacity['gpu.nvidia.com'].multiprocessors.asInteger() == 98",
        "device.capacity['gpu.nvidia.com'].multiprocessors.sub(8).isLessThan(quantity('91'))",
    ],
)
def test_versions_and_capacities_have_their_methods(expression: str) -> None:
    assert outcome(expression) is True


def test_a_version_that_is_none_fails_every_selector() -> None:
    device = Device(name="d", attributes={DRIVER: {"v": Version("1.0")}})
    for selector in ("device.driver == 'x'", "false"):
        assert failure(selector, device=device).endswith("the string is not a semantic version")


def test_a_list_attribute_fails_every_selector() -> None:
    device = Device(name="d", attributes={DRIVER: {"type": "gpu"}, "x": {"many": None}})
    message = "a selector of DeviceClass c fails on device d of gpu.nvidia.com: the value of the attribute many is not"
    assert failure("true", device=device) == f"{message} supported"
    assert failure("false", "true", device=device) == f"{message} supported"


def test_a_class_without_selectors_has_every_device() -> None:
    assert matches(device=Device(name="d", attributes={"x": {"many": None, "v": Version("?")}}))


def test_a_device_for_several_claims_says_so() -> None:
    selector = "device.allowMultipleAllocations"
    assert matches(selector, device=Device(name="d", shared=True))
    assert not matches(selector)


def test_all_selectors_must_be_true_and_the_first_false_one_ends() -> None:
    error = "device.attributes['x'].type == 'gpu'"
    assert matches("true", "device.driver == 'gpu.nvidia.com'")
    assert not matches("true", "false")
    assert not matches("false", error)
    assert failure(error, "false")


@pytest.mark.parametrize(
    ("selector", "problem"),
    [
        ("device.driver ==", "cel-syntax"),
        ("", "cel-syntax"),
        ("device.name == 'x'", "kubernetes.DRADevice has no field 'name'"),
        ("object.driver == 'x'", "cel-undeclared"),
        ("device.driver", "the expression must be bool, not string"),
        ("device.attributes", "the expression must be bool, not map(string, map(string, dyn))"),
        ("device.capacity['a'].b > quantity('1')", "cel-type"),
        ("device.attributes['a'].b.nothing()", "nothing"),
    ],
)
def test_a_selector_that_does_not_compile_fails(selector: str, problem: str) -> None:
    message = failure(selector)
    assert message.startswith("a selector of DeviceClass c does not compile: ")
    assert problem in message


@pytest.mark.parametrize("attribute", ["gpu", 3, Version("1.0.0")])
def test_a_value_that_is_no_bool_fails(attribute: Any) -> None:
    device = Device(name="d", attributes={DRIVER: {"flag": attribute}})
    message = failure("device.attributes['gpu.nvidia.com'].flag", device=device)
    assert message.endswith("the selector is neither true nor false")


def test_operands_of_other_types_fail() -> None:
    assert "type" in failure("device.attributes['gpu.nvidia.com'].type > 3")
    assert failure("device.attributes['gpu.nvidia.com'].type && true")


def test_what_a_costly_selector_matches_is_unknown() -> None:
    numbers = ", ".join(map(str, range(20)))
    selector = f"[{numbers}].all(a, [{numbers}].all(b, a + b >= 0))"
    assert matches(selector)
    with pytest.raises(CostlyError):
        matches(selector, cost=100)


def test_only_the_four_fields_of_devices_are_declared() -> None:
    assert str(DEVICE) == "kubernetes.DRADevice"
    for name in ("driver", "attributes", "capacity", "allowMultipleAllocations"):
        compile_expression(SourceText.inline(f"has(device.{name})"), ENVIRONMENT)
    with pytest.raises(CelProblems):
        compile_expression(SourceText.inline("has(device.taints)"), ENVIRONMENT)
