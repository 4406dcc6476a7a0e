"""Problems of marks that are valid each on their own."""

from collections.abc import Iterator, Sequence

from rules_engine.model.problems.problem import Problem, warning
from tests.rules.toy.value import Mark, MarkCode


def analyse(marks: Sequence[Mark]) -> Iterator[Problem]:
    """Yield a warning for each mark but the last of a resource, which overwrites the others."""
    for index, mark in enumerate(marks):
        if any(mark.resource == later.resource for later in marks[index + 1 :]):
            yield warning(MarkCode.OVERWRITTEN_MARK, f"{mark.id} is overwritten", mark.location, mark.name)
