"""Type inference: assignment and join with type variables (cel-go, checker/types.go)."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from rules_engine.language.cel.values import types
from rules_engine.language.cel.values.functions import Overload
from rules_engine.language.cel.values.types import DYN, NULL, PARAMETERS, ObjectType, Type

_VARIABLE = "?"

NULLABLE = frozenset({types.TIMESTAMP.name, types.DURATION.name, types.OPTIONAL.name, "map", "list"})
"""Types other than objects that accept null: in JSON, null may replace any absent value."""


@dataclass(slots=True)
class Inference:
    """Type variables of one expression and the types that are inferred for them."""

    _inferred: dict[str, Type] = field(default_factory=dict)
    _trail: list[tuple[str, Type | None]] = field(default_factory=list)
    _count: int = 0

    def new_variable(self) -> Type:
        """Return a new type variable."""
        self._count += 1
        return Type(f"{_VARIABLE}{self._count}")

    def resolve(self, kind: Type) -> Type:
        """Return the type with its variables replaced by inferred types."""
        kind = self._follow(kind)
        if not kind.parameters:
            return kind
        return Type(kind.name, tuple(self.resolve(parameter) for parameter in kind.parameters))

    def settle(self, kind: Type) -> Type:
        """Return the type with its variables replaced by inferred types, or by dyn if nothing is inferred."""
        kind = self.resolve(kind)
        if _is_variable(kind):
            return DYN
        if not kind.parameters:
            return kind
        return Type(kind.name, tuple(self.settle(parameter) for parameter in kind.parameters))

    def fits(self, wanted: Type, actual: Type) -> bool:
        """Return whether a value of type `actual` is accepted where `wanted` is expected, and learn variables.

        A variable that has a type and meets dyn becomes dyn, since its values may have another type.
        """
        variable = wanted if _is_variable(wanted) else None
        wanted, actual = self._follow(wanted), self._follow(actual)
        if not self._fits(wanted, actual):
            return False
        if variable is not None and actual == DYN != wanted and not _is_variable(wanted):
            self._learn(variable, DYN)
        return True

    def _fits(self, wanted: Type, actual: Type) -> bool:
        if wanted == actual:
            return True
        if _is_variable(wanted) or _is_variable(actual):
            return self._bind(wanted, actual)
        if DYN in (wanted, actual):
            for parameter in wanted.parameters:
                self.fits(parameter, DYN)
            return True
        if NULL in (wanted, actual):
            other = actual if wanted == NULL else wanted
            return isinstance(other, ObjectType) or other.name in NULLABLE
        if isinstance(wanted, ObjectType) or isinstance(actual, ObjectType):
            return self._object_fits(wanted, actual)
        if wanted.name != actual.name or len(wanted.parameters) != len(actual.parameters):
            return False
        return all(self.fits(*pair) for pair in zip(wanted.parameters, actual.parameters, strict=True))

    def _follow(self, kind: Type) -> Type:
        """Return a variable's inferred type, whose parameters may be variables; other types unchanged."""
        while kind.name in self._inferred:
            kind = self._inferred[kind.name]
        return kind

    def _bind(self, left: Type, right: Type) -> bool:
        variable, other = (left, right) if _is_variable(left) else (right, left)
        if _mentions_variable(self.resolve(other), variable):
            return False
        self._learn(variable, other)
        return True

    def _learn(self, variable: Type, kind: Type) -> None:
        self._trail.append((variable.name, self._inferred.get(variable.name)))
        self._inferred[variable.name] = kind

    def _object_fits(self, left: Type, right: Type) -> bool:
        """Return whether an object fits a map with string keys; two objects of different names do not fit."""
        other = right if isinstance(left, ObjectType) else left
        if isinstance(other, ObjectType) or other.name != "map":
            return False
        return self.fits(other.parameters[0], types.STRING) and self.fits(other.parameters[1], DYN)

    def fits_all(self, wanted: Sequence[Type], actual: Sequence[Type]) -> bool:
        """Return whether all types fit; otherwise no variable is learned."""
        mark = self.mark()
        if all(self.fits(*pair) for pair in zip(wanted, actual, strict=True)):
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
                del self._inferred[name]
            else:
                self._inferred[name] = before

    def join(self, kinds: Sequence[Type]) -> Type:
        """Return the common type of these types: dyn where they differ."""
        if not kinds:
            return self.new_variable()
        common = kinds[0]
        for other in kinds[1:]:
            common = self._join_pair(common, other)
        return common

    def _join_pair(self, left: Type, right: Type) -> Type:
        left, right = self.resolve(left), self.resolve(right)
        if DYN in (left, right):
            return DYN
        if NULL in (left, right):
            other = right if left == NULL else left
            return other if self.fits(other, NULL) else DYN
        if left.name == right.name and len(left.parameters) == len(right.parameters) and left.parameters:
            pairs = zip(left.parameters, right.parameters, strict=True)
            return Type(left.name, tuple(self._join_pair(*pair) for pair in pairs))
        return left if self.fits_all([left], [right]) else DYN

    def instantiate(self, overload: Overload) -> tuple[list[Type], Type]:
        """Return an overload's parameters and result, with new variables for its type parameters."""
        names: dict[str, Type] = {}
        return [
            self._replace_parameters(parameter, names) for parameter in overload.parameters
        ], self._replace_parameters(overload.result, names)

    def _replace_parameters(self, kind: Type, names: dict[str, Type]) -> Type:
        if kind in PARAMETERS:
            if kind.name not in names:
                names[kind.name] = self.new_variable()
            return names[kind.name]
        if not kind.parameters:
            return kind
        return Type(kind.name, tuple(self._replace_parameters(parameter, names) for parameter in kind.parameters))


def _is_variable(kind: Type) -> bool:
    return kind.name.startswith(_VARIABLE)


def _mentions_variable(kind: Type, variable: Type) -> bool:
    return kind == variable or any(_mentions_variable(parameter, variable) for parameter in kind.parameters)
