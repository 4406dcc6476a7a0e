"""Bounds on expressions, the cost budget of a request, and the errors of CEL.

Why charges follow time: the budget limits how long a request occupies a thread, so a unit stands for about the same
time everywhere. A node of the tree is one unit; an operation that reads a text, compiles a pattern or parses an address
is charged for its size before it starts. bench.cel and `make fuzz` compare every operation's time with its charge.
Kubernetes estimates cost when a policy is created (k8s.io/apiserver/pkg/apis/cel/config.go: PerCallLimit 1,000,000 and
RuntimeCELCostBudget 10,000,000 units), which needs declared maximum sizes; counting during evaluation needs none.

Why one limit for a request: the time of a request is what the API server waits for, whichever rule uses it. Limits for
single expressions would add up over the rules.

Why the interpreter decides what exceeds the limit: that must not depend on whether an expression has generated code.
Generated code counts a short loop before it starts, which may be too much but never too little. If that exceeds
the limit, `rewind` refunds it and the interpreter, which counts exactly, decides.
"""

from rules_engine.model.problems.problem import Problem
from rules_engine.model.problems.source import Location

MAX_EXPRESSION_LENGTH = 20_000
"""Characters in one expression: 40 times the longest rule we know; parsing that much takes about 0.1 s."""

MAX_NESTING = 100
"""Levels of an expression: the interpreter uses up to five Python frames for a level, and Python allows 1,000."""

MAX_RESULT_ITEMS = 100_000
"""Elements of a list or map made by an expression: no object that the API server stores has as many fields."""

MAX_RESULT_CHARACTERS = 1_000_000
"""Characters of a string made by an expression: the API server limits an object to 1.5 MiB."""

REQUEST_COST = 1_000_000
"""Cost units of all expressions of one request: about a second of the interpreter, 0.1 s of generated code.

In Kubernetes, one expression may cost as much (PerCallLimit).
"""

CHARACTERS_PER_UNIT = 10
"""Characters of a string read for one unit of cost (cel-go, common.StringTraversalCostFactor)."""


class EvaluationError(Exception):
    """Failure of an expression on a value. `message` names the sub-expression and types, never a value.

    Functions and the activations of other layers raise it without a location; the evaluation raises a new error of the
    same class with one. So an instance may be kept and raised again, and a subclass has the same constructor.
    """

    def __init__(self, message: str, location: Location | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.location = location

    def __str__(self) -> str:
        return f"{self.location}: {self.message}" if self.location else self.message


class CostExceeded(EvaluationError):  # noqa: N818
    """Used-up budget or too large a result. Unlike other errors, || and && do not absorb it."""


class CelProblems(Exception):  # noqa: N818
    """All problems of an expression that does not compile, in order of place."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems


class Budget:
    """Remaining cost units of one request or Diagnostic; one object for all its expressions, used by one thread.

    `left` is counted down, by generated code as well; below zero, `more` grants more or raises. So a subclass may grant
    the limit in parts, and check a deadline before each.
    """

    __slots__ = ("kept", "left", "limit", "of", "returnable", "withheld")

    def __init__(self, limit: int = REQUEST_COST, of: str = "one request") -> None:
        self.limit = limit
        self.of = of
        """Whose cost is limited, for the message."""
        self.left = limit
        self.withheld = 0
        """Units not yet granted by `more`."""
        self.kept = 0
        """Units that no `rewind` refunds."""
        self.returnable = limit
        """Units that `rewind` may still refund: a request does at most the work of twice the limit."""

    @property
    def mark(self) -> int:
        """Argument of `rewind` and `keep`: the units that would be left if kept work had cost nothing."""
        return self.left + self.withheld + self.kept

    def spend(self, units: int) -> None:
        """Count `units` of work before it is done. Raises CostExceeded if the budget does not suffice."""
        self.left -= units
        if self.left < 0:
            self.more()

    def more(self) -> None:
        """Grant the withheld units. Raises CostExceeded if they do not suffice; then nothing is left."""
        self.left += self.withheld
        self.withheld = 0
        if self.left < 0:
            self.left = 0
            raise CostExceeded(f"the cost limit of {self.limit} for {self.of} is used up")

    def rewind(self, mark: int) -> None:
        """Refund the units spent since the mark, except for kept ones; all units left must be granted again.

        The interpreter does not always spend what generated code spent before it failed: it may fail earlier.
        """
        left = self.left + self.withheld
        returned = min(mark - self.kept - left, self.returnable)
        self.returnable -= returned
        self.left = 0
        self.withheld = left + returned

    def keep(self, mark: int) -> None:
        """Exclude the units spent since the mark from refunds: their result is kept and not evaluated again."""
        self.kept = mark - self.left - self.withheld
