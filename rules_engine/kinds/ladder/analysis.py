"""Problems of ladders that are valid each on their own."""

from collections.abc import Iterator, Sequence
from itertools import combinations

from rules_engine.kinds.ladder.problem_codes import LadderCode
from rules_engine.kinds.ladder.value import Direction, FallbackLadder, WhenExhausted
from rules_engine.kinds.overlap import always_first, precedence
from rules_engine.model.problems import Problem, warning


def analyse(ladders: Sequence[FallbackLadder]) -> Iterator[Problem]:
    """Yield warnings about ladders that are loaded together, in the order of evaluation."""
    for ladder in ladders:
        yield from _idle_rungs(ladder)
    for earlier, later in combinations(ladders, 2):
        yield from _taken_resources(earlier, later)


def _idle_rungs(ladder: FallbackLadder) -> Iterator[Problem]:
    if len(ladder.rungs) == 1 and ladder.when_exhausted is WhenExhausted.KEEP:
        rung = ladder.rungs[0]
        message = f"a ladder with one rung moves nothing: it has no other rung for {rung.resource}"
        yield warning(LadderCode.SINGLE_RUNG, message, rung.location, rung.resource)
        return
    for index, rung in enumerate(ladder.rungs):
        if rung.when is not None and not _sources(ladder, index):
            message = (
                f"this is never evaluated: with direction {ladder.direction.value} nothing moves to {rung.resource}"
            )
            yield warning(LadderCode.UNUSED_WHEN, message, rung.when.location, rung.when.text.partition("\n")[0])


def _sources(ladder: FallbackLadder, index: int) -> int:
    """Return the number of rungs that may move to the rung at `index`."""
    above, below = index, len(ladder.rungs) - index - 1
    return {Direction.DOWN: above, Direction.UP: below, Direction.DOWN_THEN_UP: above + below}[ladder.direction]


def _targets(ladder: FallbackLadder, index: int) -> int:
    """Return the number of rungs that the rung at `index` may move to."""
    above, below = index, len(ladder.rungs) - index - 1
    return {Direction.DOWN: below, Direction.UP: above, Direction.DOWN_THEN_UP: above + below}[ladder.direction]


def _taken_resources(earlier: FallbackLadder, later: FallbackLadder) -> Iterator[Problem]:
    """Warn of rungs of a later ladder whose requests an earlier one always decides."""
    if not always_first(earlier, later):
        return
    named = {rung.resource for rung in earlier.rungs}
    for index, rung in enumerate(later.rungs):
        # No warning for a rung that cannot move anyway.
        if rung.resource in named and not rung.assume and _targets(later, index):
            message = (
                f"requests for {rung.resource} are decided by {earlier.id} ({earlier.location}) instead, "
                f"which comes first by {precedence(earlier, later)}"
            )
            yield warning(LadderCode.UNREACHABLE_RUNG, message, rung.location, rung.resource)
