"""Selectors of DeviceClasses: CEL on `device`.

Source: k8s.io/dynamic-resource-allocation/cel (compile.go), and its use by the allocator.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache

from rules_engine.language.cel import (
    Budget,
    CelProblems,
    CostExceeded,
    Environment,
    EvaluationError,
    Program,
    compile_expression,
)
from rules_engine.language.cel.library.semver import parse_strictly
from rules_engine.language.cel.values.runtime_values import DefaultMap
from rules_engine.language.cel.values.types import BOOL, DYN, QUANTITY, STRING, map_of, object_of
from rules_engine.model.json.patch import EMPTY
from rules_engine.model.kubernetes.devices import Attribute, Device, DeviceClass, Version
from rules_engine.model.problems.problem import Problem
from rules_engine.model.problems.source import SourceText

MAX_PROGRAMS = 1_000
"""Compiled selectors that are cached: clusters have a handful of classes."""

DEVICE = object_of(
    "kubernetes.DRADevice",
    {
        "driver": STRING,
        "attributes": map_of(STRING, map_of(STRING, DYN)),
        "capacity": map_of(STRING, map_of(STRING, QUANTITY)),
        "allowMultipleAllocations": BOOL,
    },
)

ENVIRONMENT = Environment({"device": DEVICE})


class SelectorError(Exception):
    """A selector that fails on a device: the scheduler then gives up the pod. The message names class and device."""


class CostlyError(Exception):
    """An answer about devices that is unknown, since it costs too much to find."""


def class_matches(device_class: DeviceClass, device: Device, driver: str, budget: Budget) -> bool:
    """Return True if all selectors of a class, or of a claim, which has no name, are true for a device of a driver.

    Raises SelectorError and CostlyError.
    """
    if not device_class.selectors:
        return True
    of = f"DeviceClass {device_class.name}" if device_class.name else "the claim"
    try:
        activation = _activation(device, driver)
        for selector in device_class.selectors:
            value = _compile(selector).evaluate(activation, budget)
            if type(value) is not bool:
                raise EvaluationError("the selector is neither true nor false")
            if not value:
                return False
    except CelProblems as error:
        messages = "; ".join(f"{problem.message} [{problem.code}]" for problem in error.problems)
        raise SelectorError(f"a selector of {of} does not compile: {messages}") from None
    except CostExceeded:
        raise CostlyError from None
    except EvaluationError as error:
        message = f"a selector of {of} fails on device {device.name} of {driver}"
        raise SelectorError(f"{message}: {error.message}") from None
    return True


def selector_problems(selector: SourceText) -> Sequence[Problem]:
    """Return why a selector does not compile."""
    try:
        compile_expression(selector, ENVIRONMENT, result=BOOL)
    except CelProblems as error:
        return error.problems
    return ()


@lru_cache(MAX_PROGRAMS)
def _compile(selector: str) -> Program:
    return compile_expression(SourceText.inline(selector, "<selector>"), ENVIRONMENT, result=BOOL)


def _activation(device: Device, driver: str) -> Mapping[str, object]:
    attributes = {
        domain: {name: _attribute_value(name, value) for name, value in members.items()}
        for domain, members in device.attributes.items()
    }
    return {
        "device": {
            "driver": driver,
            "attributes": DefaultMap(attributes, EMPTY),
            "capacity": DefaultMap(device.capacity, EMPTY),
            "allowMultipleAllocations": device.shared,
        }
    }


def _attribute_value(name: str, value: Attribute) -> object:
    if value is None:
        raise EvaluationError(f"the value of the attribute {name} is not supported")
    return parse_strictly(value.text) if isinstance(value, Version) else value
