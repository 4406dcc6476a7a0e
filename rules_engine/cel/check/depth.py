"""Depth of an evaluation.

The value of a cel.bind is evaluated when its name is used (cel-go, interpreter/planner.go: the accumulator of a fold).
"""

from collections.abc import Collection, Mapping
from types import MappingProxyType

from rules_engine.cel.syntax import tree


def evaluation_depth(
    node: tree.Expression,
    names: Collection[tree.Expression],
    levels: Mapping[str, int] = MappingProxyType({}),
) -> int:
    """Return the number of levels of an evaluation. `names`: names with dots, one level each.

    `levels`: levels of the values of binds, by name. A macro's variable of the same name counts as many levels.
    """
    if node in names:
        return 1
    match node:
        case tree.Name(name=name):
            return 1 + levels.get(name, 0)
        case tree.Bind(name=name, value=value, body=body):
            return 1 + evaluation_depth(body, names, {**levels, name: evaluation_depth(value, names, levels)})
    return 1 + max((evaluation_depth(part, names, levels) for part in tree.child_nodes(node)), default=0)
