"""Depth of the lists and maps that an expression makes: only they can contain one value many times."""

from collections.abc import Iterable, Mapping

from rules_engine.cel.check.checker import Checked
from rules_engine.cel.syntax import tree

_KEEPS = frozenset({tree.Fold.FILTER, tree.Fold.SORT_BY})
_ADDS = frozenset({tree.Fold.MAP, tree.Fold.TRANSFORM_LIST, tree.Fold.TRANSFORM_MAP})

_SCALARS = frozenset(
    {"bool", "bytes", "double", "duration", "int", "string", "timestamp", "uint", "kubernetes.Quantity"}
)
"""Types whose values contain no other values."""


def container_levels(checked: Checked) -> int:
    """Return the number of the value's upper levels that may be lists and maps made by the expression.

    Below them are parts of the activation, and lists of such parts, which are no larger than their source. An optional
    does not count as a level.
    """
    return _LevelCounter(checked).levels(checked.expression, {})


class _LevelCounter:
    def __init__(self, checked: Checked) -> None:
        self._checked = checked

    def levels(self, node: tree.Expression, names: Mapping[str, int]) -> int:
        match node:
            case tree.Name() if node not in self._checked.references:
                return names.get(node.name, 0)
            case tree.Select(operand=operand) | tree.Index(operand=operand) if node not in self._checked.references:
                return _member_levels(self.levels(operand, names))
            case tree.Binary(operator="+", left=left, right=right) | tree.Conditional(then=left, otherwise=right):
                return self._most((left, right), names)
            case tree.ListLiteral(elements=elements) if elements:
                return 1 + self._most((element.value for element in elements), names)
            case tree.MapLiteral(entries=entries) if entries:
                return 1 + self._most((entry.value for entry in entries), names)
            case tree.Call():
                return self._call(node, names)
            case tree.Comprehension():
                return self._comprehension(node, names)
            case tree.Bind(name=name, value=value, body=body) | tree.OptionalMap(name=name, target=value, body=body):
                return self.levels(body, {**names, name: self.levels(value, names)})
        return 0

    def _most(self, nodes: Iterable[tree.Expression], names: Mapping[str, int]) -> int:
        return max((self.levels(node, names) for node in nodes), default=0)

    def _call(self, node: tree.Call, names: Mapping[str, int]) -> int:
        """Return the most levels of an argument: functions return arguments or their parts, and never nest them."""
        overloads = self._checked.calls[node].overloads
        if all(overload.result.name in _SCALARS for overload in overloads):
            return 0
        target = () if node.target is None or node in self._checked.namespaced else (node.target,)
        return self._most((*target, *node.arguments), names)

    def _comprehension(self, node: tree.Comprehension, names: Mapping[str, int]) -> int:
        target = self.levels(node.target, names)
        if node.fold in _KEEPS:
            return target
        if node.fold in _ADDS or node.fold is tree.Fold.TRANSFORM_MAP_ENTRY:
            variables = dict.fromkeys(filter(None, (node.first, node.second)), _member_levels(target))
            return self.levels(node.body, {**names, **variables}) + (node.fold in _ADDS)
        return 0


def _member_levels(levels: int) -> int:
    """Return the number of levels of a list's or map's members."""
    return max(0, levels - 1)
