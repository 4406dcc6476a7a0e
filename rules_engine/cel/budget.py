"""What an expression may cost, and how it fails.

Kubernetes bounds a policy's expressions by estimated cost (k8s.io/apiserver/pkg/apis/cel/config.go:
PerCallLimit 1,000,000 and RuntimeCELCostBudget 10,000,000 units); here cost is counted while evaluating.
"""

from rules_engine.model.problems import Problem
from rules_engine.model.source import Location

MAX_EXPRESSION_LENGTH = 20_000
"""Characters in one expression: 40 times the longest rule we know; parsing that much takes about 0.1 s."""

MAX_NESTING = 100
"""Levels of an expression: the interpreter uses up to five Python frames a level, of the 1,000 that Python allows."""

MAX_RESULT_ITEMS = 100_000
"""Elements of a list or map that an expression may make: more than any object the API server stores has fields."""

MAX_RESULT_CHARACTERS = 1_000_000
"""Characters of a string that an expression may make: the API server's own bound on an object is 1.5 MiB."""

REQUEST_COST = 1_000_000
"""Cost units of all expressions of one request, about a second of the interpreter and a tenth of that generated.

The same number as Kubernetes' PerCallLimit, which one expression may cost there.
"""

CHARACTERS_PER_UNIT = 10
"""Characters of a string that are read for one unit of cost (cel-go, common.StringTraversalCostFactor)."""


class EvaluationError(Exception):
    """An expression that fails on a value. `message` names the sub-expression and types, never a value.

    Raised without a location by functions and by other layers' activations: what comes out is a new error of the same
    class with the place. So an instance may be kept and raised again, and a subclass has the same constructor.
    """

    def __init__(self, message: str, location: Location | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.location = location

    def __str__(self) -> str:
        return f"{self.location}: {self.message}" if self.location else self.message


class CostExceeded(EvaluationError):  # noqa: N818
    """The budget is used up or a result is too large. Unlike other errors, || and && do not absorb it."""


class CelProblems(Exception):  # noqa: N818
    """An expression that does not compile, with all its problems in order of place."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems


class Budget:
    """What the expressions of one request may still cost; one object for all of them, used by one thread.

    `left` is counted down, by generated code as well; below zero, `more` says whether there is more to spend. So a
    subclass may grant the limit in parts, and look at something else before each.
    """

    __slots__ = ("kept", "left", "limit", "returnable", "withheld")

    def __init__(self, limit: int = REQUEST_COST) -> None:
        self.limit = limit
        self.left = limit
        self.withheld = 0
        """Units that `more` has yet to grant."""
        self.kept = 0
        """Units that no `rewind` gives back."""
        self.returnable = limit
        """Units that `rewind` may yet give back: in all, no more work is done than for twice the limit."""

    @property
    def spent(self) -> int:
        return self.limit - self.left - self.withheld

    @property
    def mark(self) -> int:
        """A place to rewind to, or to keep from: what would be left if nothing that is kept had cost anything."""
        return self.left + self.withheld + self.kept

    def spend(self, units: int) -> None:
        """Count `units` of work that is about to be done. Raises CostExceeded when that is too much."""
        self.left -= units
        if self.left < 0:
            self.more()

    def more(self) -> None:
        """Grant what is withheld. Raises CostExceeded where that is not enough; then nothing is left."""
        self.left += self.withheld
        self.withheld = 0
        if self.left < 0:
            self.left = 0
            raise CostExceeded(f"the cost limit of {self.limit} for one request is used up")

    def rewind(self, mark: int) -> None:
        """Give back what was spent since the mark, but for what is kept; all that is left has to be granted anew.

        What generated code spends before it fails, the interpreter does not always spend again: it may fail earlier.
        """
        left = self.left + self.withheld
        returned = min(mark - self.kept - left, self.returnable)
        self.returnable -= returned
        self.left = 0
        self.withheld = left + returned

    def keep(self, mark: int) -> None:
        """Let no rewind give back what was spent since the mark: what came of it stays, and is not evaluated anew."""
        self.kept = mark - self.left - self.withheld
