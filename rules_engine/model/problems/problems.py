"""Problems: the collected problems of one run."""

from rules_engine.model.problems.codes import ProblemCode
from rules_engine.model.problems.problem import Problem, Severity
from rules_engine.model.problems.source import Location


class Problems:
    """Collects problems; the only mutable state while files are read."""

    def __init__(self) -> None:
        self.items: list[Problem] = []

    def error(self, code: ProblemCode, message: str, location: Location, length: int = 1) -> None:
        self.items.append(Problem(code=code, message=message, location=location, length=length))

    def warning(self, code: ProblemCode, message: str, location: Location, length: int = 1) -> None:
        severity = Severity.WARNING
        self.items.append(Problem(code=code, message=message, location=location, length=length, severity=severity))

    @property
    def failed(self) -> bool:
        return any(problem.severity is Severity.ERROR for problem in self.items)
