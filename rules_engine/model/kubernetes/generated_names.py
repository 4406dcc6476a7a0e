"""Names of pods, as the API server generates them from a generateName (k8s.io/apiserver/pkg/storage/names)."""

import re

from rules_engine.model.json.lenient import mapping, text
from rules_engine.model.json.patch import Json

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


def submitted_names(kind: str, owner: str) -> dict[str, Json]:
    """Return the names in the metadata of the first pod that the controller of an object submits.

    The controller of a StatefulSet names its pods by their ordinals; other names are generated after /mutate.
    """
    return {"generateName": f"{owner}-", **({"name": f"{owner}-0"} if kind == "StatefulSet" else {})}


def with_generated_name(pod: Json) -> Json:
    """Return a pod with the name that the API server generates for one that has a generateName only."""
    metadata = mapping(mapping(pod).get("metadata"))
    base = text(metadata, "generateName")
    if not base or text(metadata, "name"):
        return pod
    return {**mapping(pod), "metadata": {**metadata, "name": generated_name(base)}}
