"""Codes of problems of a Diagnostic."""

from rules_engine.model.problems.codes import ProblemCode


class DiagnosticCode(ProblemCode):
    """Codes of problems of a Diagnostic."""

    MISSING_COMMAND = "missing-command"
