"""Builders of the objects of a live cluster, as the API server shows them."""

import copy
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rules_engine.model.json.patch import Json


def template(pod: Any) -> dict[str, Any]:
    """Return the template that makes a pod."""
    labels = {"app": "train", **pod["metadata"].get("labels", {})}
    annotations = pod["metadata"].get("annotations")
    metadata = {"labels": labels, **({"annotations": annotations} if annotations else {})}
    return {"metadata": metadata, "spec": pod["spec"]}


def controller(kind: str, name: str, pod: Any, *, owner: tuple[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    """Return a controller with a template, owned by a kind and name."""
    metadata: dict[str, Any] = {"name": name, "namespace": "ml", "uid": f"uid-{name}"}
    if owner is not None:
        metadata["ownerReferences"] = [reference(*owner)]
    version = "v1" if kind == "ReplicationController" else "batch/v1" if kind == "Job" else "apps/v1"
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": {**spec, "template": template(pod)}}


def reference(kind: str, name: str) -> dict[str, Any]:
    return {"kind": kind, "name": name, "uid": f"uid-{name}", "controller": True}


def live(
    pod: Any, owner: tuple[str, str] | None = None, *, name: str = "train-1", on: str = "", **members: Any
) -> dict[str, Any]:
    """Return an admitted pod as it runs: with what controllers, the API server and the scheduler write."""
    made: dict[str, Any] = {
        **copy.deepcopy(pod["metadata"]),
        "name": name,
        "namespace": "ml",
        "uid": f"uid-{name}",
        "resourceVersion": "7",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        **members,
    }
    if owner is not None:
        made |= {"generateName": f"{owner[1]}-", "ownerReferences": [reference(*owner)]}
    spec = {**pod["spec"], **({"nodeName": on} if on else {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": made, "spec": spec, "status": {"phase": "Running"}}


def node_object(name: str, allocatable: Mapping[str, str]) -> dict[str, Any]:
    return {"kind": "Node", "metadata": {"name": name, "uid": f"uid-{name}"}, "status": {"allocatable": allocatable}}


def write_list(path: Path, items: Sequence[Json], *, indent: int | None = 4) -> Path:
    """Write a list as kubectl does."""
    path.write_text(json.dumps({"apiVersion": "v1", "items": items, "kind": "List"}, indent=indent))
    return path
