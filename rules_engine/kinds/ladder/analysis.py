"""Problems of valid ladders, alone, together and on a cluster."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from rules_engine.kinds.ladder.problem_codes import LadderCode
from rules_engine.kinds.ladder.value import Direction, FallbackLadder, Rung, WhenExhausted
from rules_engine.kinds.overlap import EarlierRules, always_first, precedence_basis
from rules_engine.kinds.resource_names import name_warnings
from rules_engine.model.gpu.mig import SIMULATED, cards_of, common_cards, compute_slices, find_profiles
from rules_engine.model.kubernetes.cluster import Cluster, Node
from rules_engine.model.problems.problem import Problem, warning


def analyse(ladders: Sequence[FallbackLadder]) -> Iterator[Problem]:
    """Yield warnings about ladders that are loaded together, in the order of evaluation."""
    for ladder in ladders:
        yield from _warn_idle_rungs(ladder)
        yield from _warn_unlikely_names(ladder)
        # Pools may have different cards, each with its MIG devices.
        if not ladder.pool_keys:
            yield from _warn_mixed_cards(ladder)
            yield from _warn_unsorted_rungs(ladder)
    before = EarlierRules[FallbackLadder]()
    for later in ladders:
        for earlier in before.matching(later.match.namespaces[0]):
            yield from _warn_unreachable_rungs(earlier, later)
        before.add(later)


def analyse_on(ladders: Sequence[FallbackLadder], cluster: Cluster) -> Iterator[Problem]:
    """Yield warnings about rungs that no node of a cluster offers, even if in use; an assumed rung needs no node."""
    for ladder in ladders:
        nodes = [node for node in cluster.nodes if ladder.query.counts(node)]
        offered = {rung.title for rung in ladder.rungs if any(_has_rung(node, rung) for node in nodes)}
        for index, rung in enumerate(ladder.rungs):
            if rung.title not in offered and not rung.assume:
                if _source_count(ladder, index):
                    effect = "nothing moves to this rung"
                elif any(other.assume or other.title in offered for other in ladder.rungs):
                    effect = "each request for it must move"
                else:
                    effect = "each request for it must move, and no node offers another rung"
                if nodes:
                    message = f"no node offers {rung.title}: {effect}"
                else:
                    message = f"no node counts for {ladder.id}, so that none offers {rung.title}: {effect}"
                yield warning(LadderCode.RUNG_NOT_OFFERED, message, rung.location, rung.resource)


def _has_rung(node: Node, rung: Rung) -> bool:
    """Return True if a node of the rung's pool has its resource, even if in use."""
    return bool(node.allocatable.get(rung.resource)) and all(node.labels.get(key) == value for key, value in rung.pool)


def _warn_unlikely_names(ladder: FallbackLadder) -> Iterator[Problem]:
    for rung in ladder.rungs:
        yield from name_warnings(rung.resource, ladder.resources, rung.location, rung.resource)


def _warn_mixed_cards(ladder: FallbackLadder) -> Iterator[Problem]:
    """Warn of the first rung with a MIG profile that no card has together with the profiles above it."""
    profiles = find_profiles(ladder.resources)
    above: list[str] = []
    for rung in ladder.rungs:
        if rung.resource in profiles:
            profile = profiles[rung.resource]
            if above and not common_cards([*above, profile]):
                message = (
                    f"no card has {profile} beside {', '.join(above)}: "
                    f"it is a profile of {_card_names(cards_of(profile))}, "
                    f"and those above it are of {_card_names(common_cards(above))}"
                )
                yield warning(LadderCode.MIXED_CARDS, message, rung.location, rung.resource)
                return
            above.append(profile)


def _warn_unsorted_rungs(ladder: FallbackLadder) -> Iterator[Problem]:
    """Warn of the first MIG device at which the sizes, downwards, change from falling to rising or the reverse."""
    devices = [(size, rung) for rung in ladder.rungs if (size := compute_slices(rung.resource)) is not None]
    orders = set[bool]()
    for (above, _), (size, rung) in pairwise(devices):
        if size != above:
            orders.add(size > above)
        if len(orders) > 1:
            message = f"{rung.resource} is not in the order of the rungs above it: sort MIG devices by their size"
            yield warning(LadderCode.RUNG_ORDER, message, rung.location, rung.resource)
            return


def _card_names(cards: frozenset[str]) -> str:
    return " or ".join(sorted(cards - {SIMULATED} or cards))


def _warn_idle_rungs(ladder: FallbackLadder) -> Iterator[Problem]:
    if len(ladder.rungs) == 1 and ladder.when_exhausted is WhenExhausted.KEEP:
        rung = ladder.rungs[0]
        message = f"a ladder with one rung moves nothing: it has no other rung for {rung.resource}"
        yield warning(LadderCode.SINGLE_RUNG, message, rung.location, rung.resource)
        return
    for index, rung in enumerate(ladder.rungs):
        if rung.when is not None and not _source_count(ladder, index):
            message = (
                f"this is never evaluated: with direction {ladder.direction.value} nothing moves to {rung.resource}"
            )
            yield warning(LadderCode.UNUSED_WHEN, message, rung.when.location, rung.when.text.partition("\n")[0])


def _source_count(ladder: FallbackLadder, index: int) -> int:
    """Return the number of rungs that may move to the rung at `index`."""
    above, below = index, len(ladder.rungs) - index - 1
    return {Direction.DOWN: above, Direction.UP: below, Direction.DOWN_THEN_UP: above + below}[ladder.direction]


def _target_count(ladder: FallbackLadder, index: int) -> int:
    """Return the number of rungs that the rung at `index` may move to."""
    above, below = index, len(ladder.rungs) - index - 1
    return {Direction.DOWN: below, Direction.UP: above, Direction.DOWN_THEN_UP: above + below}[ladder.direction]


def _warn_unreachable_rungs(earlier: FallbackLadder, later: FallbackLadder) -> Iterator[Problem]:
    """Warn of rungs of a later ladder whose requests an earlier ladder always decides."""
    if not always_first(earlier, later):
        return
    # A ladder with pools decides only requests of pods on its rungs.
    decided = {(rung.resource, rung.pool) for rung in earlier.rungs}
    for index, rung in enumerate(later.rungs):
        identity = rung.resource, rung.pool if earlier.pool_keys else ()
        # No warning for a rung that cannot move anyway.
        if identity in decided and not rung.assume and _target_count(later, index):
            message = (
                f"requests for {rung.resource} are decided by {earlier.id} ({earlier.location}) instead, "
                f"which comes first by {precedence_basis(earlier, later)}"
            )
            yield warning(LadderCode.UNREACHABLE_RUNG, message, rung.location, rung.resource)
