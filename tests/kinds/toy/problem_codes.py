"""Codes of problems of a Mark."""

from rules_engine.model.problems.codes import ProblemCode


class MarkCode(ProblemCode):
    """Codes of problems of a Mark."""

    OVERWRITTEN_MARK = "overwritten-mark"
