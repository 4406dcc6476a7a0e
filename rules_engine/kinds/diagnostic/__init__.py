"""The kind Diagnostic: what is wrong with an object of the cluster. It is not evaluated at admission."""

from rules_engine.kinds.diagnostic.evaluation import (
    CompiledDiagnostic,
    Evaluation,
    compile_diagnostics,
    evaluate,
    kept_by,
)
from rules_engine.kinds.diagnostic.reading import read
from rules_engine.kinds.diagnostic.value import Diagnostic, ForEach

__all__ = [
    "CompiledDiagnostic",
    "Diagnostic",
    "Evaluation",
    "ForEach",
    "compile_diagnostics",
    "evaluate",
    "kept_by",
    "read",
]
