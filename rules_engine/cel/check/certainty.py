"""Certain parts of an expression, which every evaluation evaluates, and the depth of an evaluation.

The value of a cel.bind is evaluated when its name is used (cel-go, interpreter/planner.go: the accumulator of a fold).
If every evaluation uses the name, the value may be evaluated first, which needs no further level.
"""

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType

from rules_engine.cel.syntax import tree


def certain_parts(
    node: tree.Expression, namespaced: Collection[tree.Call], certain: Collection[tree.Bind]
) -> tuple[tree.Expression, ...]:
    """Return the parts of a node that every evaluation of it evaluates."""
    parts = tree.child_nodes(node)
    if isinstance(node, tree.Bind):
        return parts if node in certain else (node.body,)
    if isinstance(node, tree.Logic | tree.Conditional | tree.Comprehension | tree.OptionalMap) or (
        isinstance(node, tree.Call) and node.function in ("or", "orValue")
    ):
        return parts[:1]
    if isinstance(node, tree.Call) and node in namespaced:
        return node.arguments
    return parts


def certain_binds(
    binds: Iterable[tree.Bind], references: Collection[tree.Expression], namespaced: Collection[tree.Call]
) -> frozenset[tree.Bind]:
    """Return the binds whose name is used by every evaluation of their body. `binds`: inner ones first."""
    certain: set[tree.Bind] = set()

    def uses(node: tree.Expression, name: str) -> bool:
        if isinstance(node, tree.Name):
            return node.name == name and node not in references
        parts = certain_parts(node, namespaced, certain)
        if isinstance(node, tree.Bind) and node.name == name:
            parts = parts[:-1]
        return any(uses(part, name) for part in parts)

    for bind in binds:
        if uses(bind.body, bind.name):
            certain.add(bind)
    return frozenset(certain)


def evaluation_depth(
    node: tree.Expression,
    certain: Collection[tree.Bind],
    levels: Mapping[str, int] = MappingProxyType({}),
    names: Collection[tree.Expression] = (),
) -> int:
    """Return the number of levels of an evaluation. `levels`: levels of lazy bind values, by name.

    A macro's variable of the same name counts as many levels. `names`: names with dots, one level each.
    """
    if node in names:
        return 1
    match node:
        case tree.Name(name=name):
            return 1 + levels.get(name, 0)
        case tree.Bind(name=name, value=value, body=body):
            below = evaluation_depth(value, certain, levels, names)
            if node in certain:
                return 1 + max(below, evaluation_depth(body, certain, {**levels, name: 0}, names))
            return 1 + evaluation_depth(body, certain, {**levels, name: below}, names)
    return 1 + max((evaluation_depth(part, certain, levels, names) for part in tree.child_nodes(node)), default=0)
