"""Functions of CEL: overloads, their declaration, and the choice of one at run time."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict, TypeVar, Unpack

from rules_engine.language.cel.budget import CHARACTERS_PER_UNIT, Budget, EvaluationError
from rules_engine.language.cel.values.runtime_values import check_int, type_of
from rules_engine.language.cel.values.types import PARAMETERS, ObjectType, Type

Implementation = TypeVar("Implementation", bound=Callable[..., Any])

KUBERNETES = "1.36"
"""Newest version of Kubernetes that is compared: functions that it lacks are declared with `newer`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overload:
    """One signature of a function. A method's receiver is its first parameter.

    `budgeted`: the implementation takes the budget first, since the length of its arguments does not bound its work.
    `constant`: the work does not grow with the arguments, so only the call is counted.
    `newer`: Kubernetes has it only in versions after KUBERNETES.
    `cost`: additional units of a call, for work of several microseconds.
    """

    name: str
    method: bool
    parameters: tuple[Type, ...]
    result: Type
    implementation: Callable[..., Any]
    budgeted: bool = False
    constant: bool = False
    newer: bool = False
    cost: int = 0

    def __str__(self) -> str:
        names = [str(parameter) for parameter in self.parameters]
        if self.method:
            return f"{names[0]}.{self.name}({', '.join(names[1:])})"
        return f"{self.name}({', '.join(names)})"


class Options(TypedDict, total=False):
    """Optional attributes of an Overload."""

    budgeted: bool
    constant: bool
    newer: bool
    cost: int


class Library:
    """Declared overloads of one module."""

    def __init__(self) -> None:
        self.overloads: list[Overload] = []

    def function(
        self, name: str, *parameters: Type, gives: Type, method: bool = False, **options: Unpack[Options]
    ) -> Callable[[Implementation], Implementation]:
        """Declare a function called as name(…); the name may have dots."""

        def declare(implementation: Implementation) -> Implementation:
            overload = Overload(
                name=name, method=method, parameters=parameters, result=gives, implementation=implementation, **options
            )
            self.overloads.append(overload)
            return implementation

        return declare

    def method(
        self, name: str, *parameters: Type, gives: Type, **options: Unpack[Options]
    ) -> Callable[[Implementation], Implementation]:
        """Declare a function called as receiver.name(…); the receiver is the first of `parameters`."""
        return self.function(name, *parameters, gives=gives, method=True, **options)


class Functions:
    """All overloads, by name and kind: function or method."""

    def __init__(self, overloads: Iterable[Overload]) -> None:
        self._overloads: dict[tuple[str, bool], tuple[Overload, ...]] = {}
        for overload in overloads:
            key = (overload.name, overload.method)
            self._overloads[key] = (*self._overloads.get(key, ()), overload)

    def named(self, name: str, *, method: bool) -> tuple[Overload, ...]:
        """Return the overloads of a name; an unknown name has none."""
        return self._overloads.get((name, method), ())

    def names(self, *, method: bool) -> frozenset[str]:
        """Return the names of all methods, or of all functions that are not methods."""
        return frozenset(name for name, is_method in self._overloads if is_method == method)


class Dispatch:
    """Overloads of one call, and the choice between them by the classes of the arguments.

    Choices are cached by classes: there are few, and threads that choose at the same time make the same choice.
    """

    __slots__ = ("_choices", "name", "overloads")

    def __init__(self, name: str, overloads: tuple[Overload, ...]) -> None:
        self.name = name
        self.overloads = overloads
        self._choices: dict[tuple[type, ...], tuple[Overload, tuple[int, ...]]] = {}

    def __call__(self, budget: Budget, *arguments: Any) -> Any:
        """Call the overload that fits. Raises EvaluationError if none fits, and the errors of the function."""
        classes = tuple(map(type, arguments))
        choice = self._choices.get(classes)
        if choice is None:
            choice = self._choices[classes] = self._choose_overload(arguments)
        overload, measured = choice
        for place in measured:
            argument = arguments[place]
            kind = classes[place]
            if kind is int:
                check_int(argument)
            elif kind is list:
                budget.spend(len(argument))
            elif len(argument) >= CHARACTERS_PER_UNIT:
                budget.spend(len(argument) // CHARACTERS_PER_UNIT)
        if overload.cost:
            budget.spend(overload.cost)
        if overload.budgeted:
            return overload.implementation(budget, *arguments)
        return overload.implementation(*arguments)

    def _choose_overload(self, arguments: tuple[Any, ...]) -> tuple[Overload, tuple[int, ...]]:
        """Return the overload that fits, and the positions of arguments whose range or length is checked."""
        overload = self.fitting([type_of(argument) for argument in arguments])
        if overload is None:
            raise no_overload(f"{self.name}()", *arguments)
        measured = {int} if overload.constant else {int, str, bytes, list}
        return overload, tuple(place for place, argument in enumerate(arguments) if type(argument) in measured)

    def fitting(self, kinds: Sequence[Type]) -> Overload | None:
        """Return the first overload that accepts arguments of these types, or None."""
        for overload in self.overloads:
            if all(map(_accepts_type, overload.parameters, kinds)):
                return overload
        return None


def no_overload(operator: str, *values: object) -> EvaluationError:
    """Return the error of an operator or function that has no overload for these values."""
    shown = ", ".join(type_of(value).name for value in values)
    return EvaluationError(f"no such overload: {operator} applied to ({shown})")


def parse_test(parse: Callable[..., object]) -> Callable[..., bool]:
    """Return the function that tells whether `parse` accepts its arguments."""

    def test(*arguments: object) -> bool:
        try:
            parse(*arguments)
        except EvaluationError:
            return False
        return True

    return test


def _accepts_type(parameter: Type, kind: Type) -> bool:
    """Return whether a parameter accepts a run-time value of this type; element types are not compared.

    An object is a map at run time: a function of objects must check its argument itself.
    """
    return (
        parameter.name in (kind.name, "dyn")
        or parameter in PARAMETERS
        or (isinstance(parameter, ObjectType) and kind.name == "map")
    )
