"""Type inference: assignment and join with type variables (cel-go, checker/types.go)."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from rules_engine.cel.values import types
from rules_engine.cel.values.functions import Overload
from rules_engine.cel.values.types import DYN, NULL, PARAMETERS, ObjectType, Type

_VARIABLE = "?"

NULLABLE = frozenset({types.TIMESTAMP.name, types.DURATION.name, types.OPTIONAL.name, "map", "list"})
"""Types other than objects that accept null: in JSON, null may replace any absent value."""


@dataclass(slots=True)
class Inference:
    """Type variables of one expression and their known types."""

    _known: dict[str, Type] = field(default_factory=dict)
    _trail: list[tuple[str, Type | None]] = field(default_factory=list)
    _made: int = 0

    def variable(self) -> Type:
        """Return a new type variable."""
        self._made += 1
        return Type(f"{_VARIABLE}{self._made}")

    def resolved(self, found: Type) -> Type:
        """Return the type with known variables replaced."""
        found = self._known_as(found)
        if not found.parameters:
            return found
        return Type(found.name, tuple(self.resolved(parameter) for parameter in found.parameters))

    def settled(self, found: Type) -> Type:
        """Return the type with known variables replaced, and dyn for the others."""
        found = self.resolved(found)
        if _is_variable(found):
            return DYN
        if not found.parameters:
            return found
        return Type(found.name, tuple(self.settled(parameter) for parameter in found.parameters))

    def fits(self, wanted: Type, found: Type) -> bool:
        """Return whether a value of type `found` is accepted where `wanted` is expected, and learn variables.

        A variable with a known type that meets dyn becomes dyn, since its values may have another type.
        """
        variable = wanted if _is_variable(wanted) else None
        wanted, found = self._known_as(wanted), self._known_as(found)
        if not self._fits(wanted, found):
            return False
        if variable is not None and found == DYN != wanted and not _is_variable(wanted):
            self._learn(variable, DYN)
        return True

    def _fits(self, wanted: Type, found: Type) -> bool:
        if wanted == found:
            return True
        if _is_variable(wanted) or _is_variable(found):
            return self._bind(wanted, found)
        if DYN in (wanted, found):
            for parameter in wanted.parameters:
                self.fits(parameter, DYN)
            return True
        if NULL in (wanted, found):
            other = found if wanted == NULL else wanted
            return isinstance(other, ObjectType) or other.name in NULLABLE
        if isinstance(wanted, ObjectType) or isinstance(found, ObjectType):
            return self._object_fits(wanted, found)
        if wanted.name != found.name or len(wanted.parameters) != len(found.parameters):
            return False
        return all(self.fits(one, two) for one, two in zip(wanted.parameters, found.parameters, strict=True))

    def _known_as(self, found: Type) -> Type:
        """Return a variable's known type, whose parameters may be variables; other types unchanged."""
        while found.name in self._known:
            found = self._known[found.name]
        return found

    def _bind(self, one: Type, two: Type) -> bool:
        variable, other = (one, two) if _is_variable(one) else (two, one)
        if _mentions(self.resolved(other), variable):
            return False
        self._learn(variable, other)
        return True

    def _learn(self, variable: Type, known: Type) -> None:
        self._trail.append((variable.name, self._known.get(variable.name)))
        self._known[variable.name] = known

    def _object_fits(self, one: Type, two: Type) -> bool:
        """Return whether an object fits a map with string keys; two objects of different names do not fit."""
        other = two if isinstance(one, ObjectType) else one
        if isinstance(other, ObjectType) or other.name != "map":
            return False
        return self.fits(other.parameters[0], types.STRING) and self.fits(other.parameters[1], DYN)

    def fits_all(self, wanted: Sequence[Type], found: Sequence[Type]) -> bool:
        """Return whether all types fit; otherwise no variable is learned."""
        mark = self.mark()
        if all(self.fits(one, two) for one, two in zip(wanted, found, strict=True)):
            return True
        self.undo(mark)
        return False

    def mark(self) -> int:
        """Return a mark for undo()."""
        return len(self._trail)

    def undo(self, mark: int) -> None:
        """Forget everything learned since the mark."""
        while len(self._trail) > mark:
            name, before = self._trail.pop()
            if before is None:
                del self._known[name]
            else:
                self._known[name] = before

    def joined(self, found: Sequence[Type]) -> Type:
        """Return the common type of these types: dyn where they differ."""
        if not found:
            return self.variable()
        common = found[0]
        for other in found[1:]:
            common = self._join(common, other)
        return common

    def _join(self, one: Type, two: Type) -> Type:
        one, two = self.resolved(one), self.resolved(two)
        if DYN in (one, two):
            return DYN
        if NULL in (one, two):
            other = two if one == NULL else one
            return other if self.fits(other, NULL) else DYN
        if one.name == two.name and len(one.parameters) == len(two.parameters) and one.parameters:
            pairs = zip(one.parameters, two.parameters, strict=True)
            return Type(one.name, tuple(self._join(left, right) for left, right in pairs))
        return one if self.fits_all([one], [two]) else DYN

    def instance(self, overload: Overload) -> tuple[list[Type], Type]:
        """Return an overload's parameters and result, with new variables for its type parameters."""
        names: dict[str, Type] = {}
        return [self._fresh(parameter, names) for parameter in overload.parameters], self._fresh(overload.result, names)

    def _fresh(self, found: Type, names: dict[str, Type]) -> Type:
        if found in PARAMETERS:
            if found.name not in names:
                names[found.name] = self.variable()
            return names[found.name]
        if not found.parameters:
            return found
        return Type(found.name, tuple(self._fresh(parameter, names) for parameter in found.parameters))


def _is_variable(found: Type) -> bool:
    return found.name.startswith(_VARIABLE)


def _mentions(found: Type, variable: Type) -> bool:
    return found == variable or any(_mentions(parameter, variable) for parameter in found.parameters)
