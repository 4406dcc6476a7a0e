"""The kind Diagnostic: finds problems of objects of the cluster. It is not evaluated at admission."""

from pathlib import Path

from rules_engine.rules.diagnostic.catalogue import Entry, Slots, new_finding, read_catalogue
from rules_engine.rules.diagnostic.evaluation import (
    CompiledDiagnostic,
    Evaluation,
    compile_diagnostics,
    diagnostic_compiler,
    diagnostic_environment,
    evaluate_diagnostics,
)
from rules_engine.rules.diagnostic.reading import read_diagnostic
from rules_engine.rules.diagnostic.value import Diagnostic, DiagnosticCode, ForEach

PROBLEMS = Path(__file__).with_name("problems.toml")
"""The reference of the codes of its problems."""

__all__ = [
    "PROBLEMS",
    "CompiledDiagnostic",
    "Diagnostic",
    "DiagnosticCode",
    "Entry",
    "Evaluation",
    "ForEach",
    "Slots",
    "compile_diagnostics",
    "diagnostic_compiler",
    "diagnostic_environment",
    "evaluate_diagnostics",
    "new_finding",
    "read_catalogue",
    "read_diagnostic",
]
