"""How deep a value may be made of lists and maps that its expression makes: only they can hold one value many times."""

from collections.abc import Iterable, Mapping

from rules_engine.cel.check.checker import Checked
from rules_engine.cel.syntax.tree import (
    Binary,
    Bind,
    Call,
    Comprehension,
    Conditional,
    Expression,
    Fold,
    Index,
    ListLiteral,
    MapLiteral,
    Name,
    OptionalMap,
    Select,
)

_KEEPS = frozenset({Fold.FILTER, Fold.SORT_BY})
_ADDS = frozenset({Fold.MAP, Fold.TRANSFORM_LIST, Fold.TRANSFORM_MAP})

_SCALARS = frozenset(
    {"bool", "bytes", "double", "duration", "int", "string", "timestamp", "uint", "kubernetes.Quantity"}
)
"""Types whose values hold no others."""


def levels(checked: Checked) -> int:
    """The levels at the top of the value that may be lists and maps made by the expression.

    What is below is parts of the activation and lists that hold no made ones: it is no larger than what they are
    made of. An optional is no level.
    """
    return _Builder(checked).levels(checked.expression, {})


class _Builder:
    def __init__(self, checked: Checked) -> None:
        self._checked = checked

    def levels(self, node: Expression, names: Mapping[str, int]) -> int:
        match node:
            case Name() if node not in self._checked.references:
                return names.get(node.name, 0)
            case Select(operand=operand) | Index(operand=operand) if node not in self._checked.references:
                return _inside(self.levels(operand, names))
            case Binary(operator="+", left=left, right=right) | Conditional(then=left, otherwise=right):
                return self._most((left, right), names)
            case ListLiteral(elements=elements) if elements:
                return 1 + self._most((element.value for element in elements), names)
            case MapLiteral(entries=entries) if entries:
                return 1 + self._most((entry.value for entry in entries), names)
            case Call():
                return self._call(node, names)
            case Comprehension():
                return self._comprehension(node, names)
            case Bind():
                return self.levels(node.body, {**names, node.name: self.levels(node.value, names)})
            case OptionalMap():
                return self.levels(node.body, {**names, node.name: self.levels(node.target, names)})
        return 0

    def _most(self, nodes: Iterable[Expression], names: Mapping[str, int]) -> int:
        return max((self.levels(node, names) for node in nodes), default=0)

    def _call(self, node: Call, names: Mapping[str, int]) -> int:
        """No function puts its arguments into a list or map: some give them, or parts of them, in another order."""
        overloads = self._checked.calls[node].overloads
        if all(overload.result.name in _SCALARS for overload in overloads):
            return 0
        target = () if node.target is None or node in self._checked.namespaced else (node.target,)
        return self._most((*target, *node.arguments), names)

    def _comprehension(self, node: Comprehension, names: Mapping[str, int]) -> int:
        target = self.levels(node.target, names)
        if node.fold in _KEEPS:
            return target
        if node.fold in _ADDS or node.fold is Fold.TRANSFORM_MAP_ENTRY:
            variables = dict.fromkeys(filter(None, (node.first, node.second)), _inside(target))
            return self.levels(node.body, {**names, **variables}) + (node.fold in _ADDS)
        return 0


def _inside(levels: int) -> int:
    """Of what a list or map with so many levels holds."""
    return max(0, levels - 1)
