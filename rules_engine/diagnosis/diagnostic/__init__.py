"""The kind Diagnostic: finds problems of objects of the cluster. It is not evaluated at admission."""

from pathlib import Path

from rules_engine.diagnosis.diagnostic.evaluation import (
    CompiledDiagnostic,
    Evaluation,
    adviser,
    compile_diagnostics,
    compiler,
    environment,
    evaluate,
    kept_by,
)
from rules_engine.diagnosis.diagnostic.problem_codes import DiagnosticCode
from rules_engine.diagnosis.diagnostic.reading import read
from rules_engine.diagnosis.diagnostic.value import Diagnostic, ForEach

PROBLEMS = Path(__file__).with_name("problems.toml")
"""The reference of the codes of its problems."""

__all__ = [
    "PROBLEMS",
    "CompiledDiagnostic",
    "Diagnostic",
    "DiagnosticCode",
    "Evaluation",
    "ForEach",
    "adviser",
    "compile_diagnostics",
    "compiler",
    "environment",
    "evaluate",
    "kept_by",
    "read",
]
