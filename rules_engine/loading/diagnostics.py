"""Diagnostics: the collected problems of one run."""

from dataclasses import dataclass, field

from rules_engine.model.problem_codes import ProblemCode
from rules_engine.model.problems import Problem, Severity
from rules_engine.model.source import Location


@dataclass(slots=True)
class Diagnostics:
    """Collects problems; the only mutable state while files are read."""

    problems: list[Problem] = field(default_factory=list)

    def error(self, code: ProblemCode, message: str, location: Location, length: int = 1) -> None:
        self.problems.append(Problem(code=code, message=message, location=location, length=length))

    def warning(self, code: ProblemCode, message: str, location: Location, length: int = 1) -> None:
        self.problems.append(
            Problem(code=code, message=message, location=location, length=length, severity=Severity.WARNING)
        )

    @property
    def failed(self) -> bool:
        return any(problem.severity is Severity.ERROR for problem in self.problems)
