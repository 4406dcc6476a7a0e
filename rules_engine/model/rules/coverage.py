"""Parts of rules that test cases cover."""

from collections.abc import Callable
from dataclasses import dataclass

from rules_engine.model.problems.source import Location
from rules_engine.model.rules.decision import Step


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of a rule that a case covers by an event, such as a rung that is requested.

    `reached`: True if a step of the rule, for a pod in a namespace, has the event.
    """

    name: str
    event: str
    location: Location
    reached: Callable[[Step, str], bool]
