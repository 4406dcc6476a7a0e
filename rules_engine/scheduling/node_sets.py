"""Members of sets of nodes of any size."""

from collections.abc import Sequence

from rules_engine.evaluation.nodes import NodeSet


def numbers_of(nodes: NodeSet) -> Sequence[int]:
    """Return the nodes of a set, in order."""
    # As text, since a shift of a set of 5,000 nodes for each of them takes ten times as long.
    digits = bin(nodes)[:1:-1]
    found = []
    number = digits.find("1")
    while number >= 0:
        found.append(number)
        number = digits.find("1", number + 1)
    return found
