"""Names that the API server generates for objects that have a generateName (k8s.io/apiserver/pkg/storage/names)."""

import re

MAX_BASE = 58
"""Characters of a generateName that are used: five random ones follow, and a label has at most 63."""

_RANDOM = re.compile("[bcdfghjklmnpqrstvwxz2456789]{5}")


def generated_name(base: str) -> str:
    """Return a name that the API server may generate."""
    return f"{base[:MAX_BASE]}xxxxx"


def is_generated(name: str, base: str) -> bool:
    """Return True if the API server may have generated a name. Pods of StatefulSets have another one and a base."""
    base = base[:MAX_BASE]
    return bool(base) and name.startswith(base) and _RANDOM.fullmatch(name, len(base)) is not None
