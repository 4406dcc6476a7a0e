"""CEL in Kubernetes' dialect: compile an expression once, evaluate it on plain JSON values many times."""

from rules_engine.language.cel.budget import Budget, CelProblems, CostExceeded, EvaluationError
from rules_engine.language.cel.check.environment import Environment
from rules_engine.language.cel.program import Program, compile_expression
from rules_engine.language.cel.scope import LazyScope, NamedProgram, VariableCompiler
from rules_engine.language.cel.values import types
from rules_engine.language.cel.values.runtime_values import CelCluster, Duration, Optional, Timestamp, Uint
from rules_engine.language.cel.values.types import Type

__all__ = [
    "Budget",
    "CelCluster",
    "CelProblems",
    "CostExceeded",
    "Duration",
    "Environment",
    "EvaluationError",
    "LazyScope",
    "NamedProgram",
    "Optional",
    "Program",
    "Timestamp",
    "Type",
    "Uint",
    "VariableCompiler",
    "compile_expression",
    "types",
]
