"""Digest of rules: equal for the same rule documents, however their files are named, ordered and formatted.

The canonical form has maps sorted by key, numbers by their exact value (0.5, 0.50 and 5e-1 are equal; 1 and 1.0 are
not, an int and a double in CEL) and texts as they are: "0.5" and "0.50" differ, also where they are quantities.
"""

import json
from collections.abc import Iterable
from decimal import Decimal, DecimalException
from hashlib import sha256

from rules_engine.loading.yaml.nodes import ListNode, Node, ScalarNode
from rules_engine.model.json.patch import Json


def digest(documents: Iterable[tuple[str, str, Node]]) -> str:
    """Return a SHA-256, in hexadecimal, of rule documents in any order, each with its kind and name.

    Documents are hashed with the fields that they have, without the defaults of others: a release that changes a
    default has another version, and its rules are the same.
    """
    known: dict[int, str] = {}
    return _hashed(sorted([kind, name, _digest(root, known)] for kind, name, root in documents))


def _digest(node: Node, known: dict[int, str]) -> str:
    """Return the digest of a value, made from those of its members.

    Each is hashed once, and then `known` by its id: aliases may repeat a long text many times.
    """
    found = known.get(id(node))
    if found is None:
        known[id(node)] = found = _hashed(_content(node, known))
    return found


def _content(node: Node, known: dict[int, str]) -> Json:
    if isinstance(node, ScalarNode):
        return {"float": _exact(node.source.text)} if isinstance(node.value, float) else node.value
    if isinstance(node, ListNode):
        return [_digest(item, known) for item in node.items]
    return {name: _digest(value, known) for name, (_, value) in node.members.items()}


def _exact(text: str) -> str:
    """Return the digits and exponent of a fraction, which is exact as a quantity, and is not as a float."""
    try:
        sign, digits, exponent = Decimal(text).as_tuple()
    except DecimalException:  # an exponent that Decimal does not have: a float below all others
        return text
    significant = "".join(map(str, digits)).rstrip("0")
    zeros = len(digits) - len(significant)
    return f"{'-' * sign}{significant}e{int(exponent) + zeros}" if significant else f"{'-' * sign}0"


def _hashed(value: object) -> str:
    """Hash a value as JSON with sorted keys."""
    return sha256(json.dumps(value, sort_keys=True).encode("ascii")).hexdigest()
