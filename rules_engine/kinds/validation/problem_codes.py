"""Codes of problems of a Validation."""

from rules_engine.model.problems.codes import ProblemCode


class ValidationCode(ProblemCode):
    """Codes of problems of a Validation."""

    CONFLICTING_ACTIONS = "conflicting-actions"
