"""Values are immutable at run time, not only for mypy."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from importlib import import_module
from inspect import isabstract, isclass
from pkgutil import walk_packages
from typing import Any

import pytest
from msgspec import Struct

import rules_engine.model
import rules_engine.rules.injection
import rules_engine.rules.ladder
import rules_engine.rules.validation
from rules_engine.rules.evaluation import applicability
from rules_engine.rules.rule_set import context
from tests.support.evaluation import GPU, asks, cluster, compiled, ladder, request, rung


def values() -> Iterator[type[Any]]:
    """Yield every value type of the model, of the kinds, and of the evaluation of a request."""
    packages = (
        rules_engine.model,
        rules_engine.rules.injection,
        rules_engine.rules.ladder,
        rules_engine.rules.validation,
    )
    names = [item.name for package in packages for item in walk_packages(package.__path__, f"{package.__name__}.")]
    for module in (*map(import_module, names), applicability, context):
        for value in vars(module).values():
            is_value = isclass(value) and (is_dataclass(value) or issubclass(value, Struct))
            if is_value and not isabstract(value) and value.__module__ == module.__name__:
                yield value


@pytest.mark.parametrize("cls", list(values()), ids=lambda cls: cls.__name__)
def test_fields_cannot_be_assigned_or_deleted(cls: type[Any]) -> None:
    names = cls.__struct_fields__ if issubclass(cls, Struct) else [field.name for field in fields(cls)]
    value = cls(**dict.fromkeys(names)) if issubclass(cls, Struct) else object.__new__(cls)
    for name in names:
        with pytest.raises(AttributeError):
            setattr(value, name, None)
        with pytest.raises(AttributeError):
            delattr(value, name)


def test_a_decision_and_its_steps_cannot_be_changed() -> None:
    decision = compiled(ladder(GPU, rung("a/b", assume=True))).mutate(request(asks({GPU: 1})), cluster())
    [step] = decision.trace
    for value, name in ((decision, "trace"), (step, "action"), (step.resources[0], "to"), (decision.patch[0], "path")):
        with pytest.raises(AttributeError):
            setattr(value, name, None)
