"""Diagnostics for tests."""

from pathlib import Path
from textwrap import dedent, indent

from rules_engine.rules.diagnostic.evaluation import CompiledDiagnostic, compile_diagnostics
from rules_engine.rules.diagnostic.value import Diagnostic
from rules_engine.rules.sources.documents import load_documents

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
