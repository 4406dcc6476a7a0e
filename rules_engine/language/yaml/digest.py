"""Digest of rules: equal for the same rule documents, however their files are named, ordered and formatted.

The canonical form sorts maps by key, compares numbers by their exact value (0.5, 0.50 and 5e-1 are equal; 1 and 1.0, an
int and a double in CEL, are not) and texts as they are: "0.5" and "0.50" differ, even as quantities.
"""

import json
from collections.abc import Iterable
from decimal import Decimal, DecimalException
from hashlib import sha256

from rules_engine.language.yaml.nodes import ListNode, ScalarNode, YamlNode
from rules_engine.model.json.patch import Json


def digest_documents(documents: Iterable[tuple[str, str, YamlNode]]) -> str:
    """Return the hexadecimal SHA-256 of rule documents, each with its kind and name, whatever their order.

    Only fields that a document sets are hashed, not defaults: a release that changes a default has another version,
    but the same rules.
    """
    digests: dict[int, str] = {}
    return _hash_json(sorted([kind, name, _node_digest(root, digests)] for kind, name, root in documents))


def _node_digest(node: YamlNode, digests: dict[int, str]) -> str:
    """Return the digest of a value, computed from the digests of its members.

    `digests`, by id, hash each node once: aliases may repeat a long text many times.
    """
    digest = digests.get(id(node))
    if digest is None:
        digests[id(node)] = digest = _hash_json(_node_content(node, digests))
    return digest


def _node_content(node: YamlNode, digests: dict[int, str]) -> Json:
    if isinstance(node, ScalarNode):
        return {"float": _exact_decimal(node.source.text)} if isinstance(node.value, float) else node.value
    if isinstance(node, ListNode):
        return [_node_digest(item, digests) for item in node.items]
    return {name: _node_digest(value, digests) for name, (_, value) in node.members.items()}


def _exact_decimal(text: str) -> str:
    """Return the significant digits and exponent of a fraction: quantities are exact, floats are not."""
    try:
        sign, digits, exponent = Decimal(text).as_tuple()
    except DecimalException:  # an exponent beyond Decimal's range: the float underflows
        return text
    significant = "".join(map(str, digits)).rstrip("0")
    zeros = len(digits) - len(significant)
    return f"{'-' * sign}{significant}e{int(exponent) + zeros}" if significant else f"{'-' * sign}0"


def _hash_json(value: object) -> str:
    """Hash a value as JSON with sorted keys."""
    return sha256(json.dumps(value, sort_keys=True).encode("ascii")).hexdigest()
