"""What a function is: a name, the types it takes and gives, and the Python that does it."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from rules_engine.cel.budget import CHARACTERS_PER_UNIT, Budget, EvaluationError
from rules_engine.cel.values.runtime_values import check_int, type_of
from rules_engine.cel.values.types import PARAMETERS, Type

Implementation = TypeVar("Implementation", bound=Callable[..., Any])


KUBERNETES = "1.36"
"""The version of Kubernetes whose functions are known: what is newer is marked where it is declared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overload:
    """One signature of a function. A method's receiver is its first parameter.

    `budgeted`: the implementation takes the budget first, for work that the length of its arguments does not bound.
    `constant`: the work does not grow with its arguments, so that only the call is counted.
    `newer`: Kubernetes has it in no version up to KUBERNETES, but later.
    `cost`: units that a call takes beside that, for work of several microseconds.
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


class Library:
    """Overloads as they are declared, in a module of functions that belong together."""

    def __init__(self) -> None:
        self.overloads: list[Overload] = []

    def function(
        self, name: str, *parameters: Type, gives: Type, budgeted: bool = False, constant: bool = False, cost: int = 0
    ) -> Callable[[Implementation], Implementation]:
        """Declare a function called as name(…); the name may have dots."""
        return self._declare(name, False, parameters, gives, budgeted, constant, cost)

    def method(
        self,
        name: str,
        *parameters: Type,
        gives: Type,
        budgeted: bool = False,
        constant: bool = False,
        newer: bool = False,
        cost: int = 0,
    ) -> Callable[[Implementation], Implementation]:
        """Declare a function called as receiver.name(…); the receiver is the first of `parameters`."""
        return self._declare(name, True, parameters, gives, budgeted, constant, cost, newer)

    def _declare(
        self,
        name: str,
        method: bool,
        parameters: tuple[Type, ...],
        gives: Type,
        budgeted: bool,
        constant: bool,
        cost: int,
        newer: bool = False,
    ) -> Callable[[Implementation], Implementation]:
        def declare(implementation: Implementation) -> Implementation:
            overload = Overload(
                name=name,
                method=method,
                parameters=parameters,
                result=gives,
                implementation=implementation,
                budgeted=budgeted,
                constant=constant,
                newer=newer,
                cost=cost,
            )
            self.overloads.append(overload)
            return implementation

        return declare


class Functions:
    """All overloads, found by name and way of calling."""

    def __init__(self, overloads: Iterable[Overload]) -> None:
        self._found: dict[tuple[str, bool], tuple[Overload, ...]] = {}
        for overload in overloads:
            key = (overload.name, overload.method)
            self._found[key] = (*self._found.get(key, ()), overload)

    def named(self, name: str, *, method: bool) -> tuple[Overload, ...]:
        """The overloads of a name; none if there are none."""
        return self._found.get((name, method), ())

    def names(self, *, method: bool) -> frozenset[str]:
        """All names that are called in one of the two ways."""
        return frozenset(name for name, is_method in self._found if is_method == method)


class Dispatch:
    """The overloads that one call may mean, and which of them fits the classes of its arguments.

    What was found for some classes is kept: there are few of them, and two threads that find it at once find the same.
    """

    __slots__ = ("_found", "name", "overloads")

    def __init__(self, name: str, overloads: tuple[Overload, ...]) -> None:
        self.name = name
        self.overloads = overloads
        self._found: dict[tuple[type, ...], tuple[Overload, tuple[int, ...]]] = {}

    def __call__(self, budget: Budget, *arguments: Any) -> Any:
        """Call the overload that fits. Raises EvaluationError when none does, and what the function raises."""
        classes = tuple(map(type, arguments))
        found = self._found.get(classes)
        if found is None:
            found = self._found[classes] = self._chosen(arguments)
        overload, measured = found
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

    def _chosen(self, arguments: tuple[Any, ...]) -> tuple[Overload, tuple[int, ...]]:
        """The overload that fits, and the places of arguments whose range or length is looked at."""
        overload = self.fitting([type_of(argument) for argument in arguments])
        if overload is None:
            raise no_overload(f"{self.name}()", *arguments)
        measured = {int} if overload.constant else {int, str, bytes, list}
        return overload, tuple(place for place, argument in enumerate(arguments) if type(argument) in measured)

    def fitting(self, found: Sequence[Type]) -> Overload | None:
        """The overload that takes arguments of these types."""
        for overload in self.overloads:
            if all(map(takes, overload.parameters, found)):
                return overload
        return None


def no_overload(operator: str, *values: object) -> EvaluationError:
    """The error of an operator or function that these types do not have."""
    shown = ", ".join(type_of(value).name for value in values)
    return EvaluationError(f"no such overload: {operator} applied to ({shown})")


def takes(parameter: Type, found: Type) -> bool:
    """Whether a parameter takes a run-time value of this type; element types are not looked at."""
    return parameter.name == found.name or parameter.name == "dyn" or parameter in PARAMETERS
