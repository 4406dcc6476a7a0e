"""Diagnostics and objects for tests."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from textwrap import dedent, indent
from typing import Any

from rules_engine.diagnosis.diagnostic import CompiledDiagnostic, Diagnostic, compile_diagnostics
from rules_engine.documents.registry import load_documents
from rules_engine.model.kubernetes.cluster_objects import ClusterObjects

GPU = "nvidia.com/gpu"
NOW = datetime(2026, 11, 23, 2, tzinfo=UTC)

_PLAIN = {
    "forEach": "forEach: Node",
    "severity": "severity: Warning",
    "reason": "reason: Unwell",
    "messageExpression": "messageExpression: \"'unwell'\"",
    "when": "when: 'true'",
}


def document(spec: str, name: str = "one") -> str:
    """Return the document of a Diagnostic; fields that `spec` lacks have plain values, a message for an expression."""
    spec = dedent(spec)
    has_message = spec.startswith("message:")
    missing = [
        line
        for field, line in _PLAIN.items()
        if f"{field}:" not in spec and not (has_message and field == "messageExpression")
    ]
    head = f"apiVersion: gpurules.io/v1\nkind: Diagnostic\nmetadata: {{name: {name}}}\nspec:\n"
    return head + indent("\n".join([*missing, spec]), "  ").rstrip() + "\n"


def diagnostic(spec: str, tmp_path: Path, name: str = "one") -> CompiledDiagnostic:
    """Return a Diagnostic that compiles without a problem."""
    file = tmp_path / f"{name}.yaml"
    file.write_text(document(spec, name))
    loaded = load_documents([file])
    assert loaded.problems == ()
    (compiled,), problems = compile_diagnostics(loaded.of(Diagnostic))
    assert problems == ()
    return compiled


def node(name: str = "worker", allocatable: Mapping[str, str] | None = None, **metadata: Any) -> dict[str, Any]:
    return {
        "kind": "Node",
        "metadata": {"name": name, **metadata},
        "spec": {},
        "status": {
            "allocatable": {GPU: "4"} if allocatable is None else dict(allocatable),
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def pod(name: str = "train", on: str = "", amounts: Mapping[str, str] | None = None, **metadata: Any) -> dict[str, Any]:
    limits = {GPU: "1"} if amounts is None else dict(amounts)
    spec: dict[str, Any] = {"containers": [{"name": "main", "resources": {"limits": limits}}]}
    if on:
        spec["nodeName"] = on
    return {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "ml", **metadata},
        "spec": spec,
        "status": {"phase": "Running" if on else "Pending"},
    }


def daemon_set(name: str = "plugin", namespace: str = "gpu") -> dict[str, Any]:
    return {"kind": "DaemonSet", "metadata": {"name": name, "namespace": namespace}}


def event(kind: str, name: str, reason: str, namespace: str = "") -> dict[str, Any]:
    involved = {"kind": kind, "name": name, "namespace": namespace}
    return {"kind": "Event", "metadata": {"name": f"{name}.1"}, "involvedObject": involved, "reason": reason}


def cluster(*found: dict[str, Any], absent: Iterable[str] = ()) -> ClusterObjects:
    by_kind: dict[str, list[dict[str, Any]]] = {}
    for item in found:
        by_kind.setdefault(item["kind"], []).append(item)
    return ClusterObjects(by_kind, absent=frozenset(absent), now=NOW)
