"""Mark, as loaded."""

from dataclasses import dataclass

from rules_engine.model.problems.codes import ProblemCode
from rules_engine.model.rules.rule import Interests, Rule


class MarkCode(ProblemCode):
    """Codes of problems of a Mark."""

    OVERWRITTEN_MARK = "overwritten-mark"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark(Rule):
    """Annotates each pod that requests a resource."""

    kind = "Mark"

    resource: str
    annotation: str = "example.com/mark"

    @property
    def interests(self) -> Interests:
        return Interests(resources=frozenset({self.resource}))

    @property
    def can_deny(self) -> bool:
        return False
