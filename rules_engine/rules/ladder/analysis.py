"""Problems of valid ladders, alone, together and on a cluster."""

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import pairwise

from rules_engine.accelerators.mig import cards_of, common_cards, compute_slices, find_profiles, real_cards
from rules_engine.accelerators.nodes import lacking_cards, product_of
from rules_engine.cluster.nodes import REPELLING_EFFECTS, Offered, Tolerated
from rules_engine.cluster.state_taints import state_of
from rules_engine.model.kubernetes.cluster import Cluster, Node, Taint
from rules_engine.model.kubernetes.placement import Toleration
from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.problem import Problem, warning
from rules_engine.model.wording import join_names
from rules_engine.rules.ladder.pools import pool_text
from rules_engine.rules.ladder.value import FallbackLadder, LadderCode, PoolLabels, Rung, Unplaced, WhenExhausted
from rules_engine.rules.overlap import EarlierRules, always_first, may_match, precedence_basis
from rules_engine.rules.pod_members.analysis import label_hint, useless_tolerations
from rules_engine.rules.pod_members.value import toleration_text, tolerations_in
from rules_engine.rules.resource_names import name_warnings

AUTOSCALER_LABEL = "karpenter.sh/nodepool"
"""The label of nodes that Karpenter creates. Other autoscalers leave no mark on nodes."""


def analyse(ladders: Sequence[FallbackLadder]) -> Iterator[Problem]:
    """Yield warnings about ladders that are loaded together, in the order of evaluation."""
    for ladder in ladders:
        yield from _warn_idle_rungs(ladder)
        for rung in ladder.rungs:
            yield from name_warnings(rung.resource, ladder.resources, rung.location, rung.resource)
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
    """Yield warnings about what no node has, neither an existing one nor one that an autoscaler may add.

    A rung is offered by a node even if its devices are in use; an assumed rung needs no node.
    """
    for ladder in ladders:
        nodes = [node for node in cluster.nodes if ladder.query.counts(node)]
        yield from _warn_unoffered_rungs(ladder, nodes)
        if ladder.pool_keys:
            yield from _warn_pools(ladder, nodes)


def analyse_quotas(
    ladders: Sequence[FallbackLadder], cluster: Cluster, limited: Mapping[str, AbstractSet[str]]
) -> Iterator[Problem]:
    """Yield warnings about moves by which pods leave the ResourceQuotas of their namespace."""
    for ladder in ladders:
        names, selector = [name for name in limited if may_match(ladder.match, name)], ladder.match.namespace_selector
        if selector:
            names = [name for name in names if (labels := cluster.namespace_labels(name)) and selector.matches(labels)]
        offered = _offered_rungs(ladder, [node for node in cluster.nodes if ladder.query.counts(node)])
        for index, rung in enumerate(ladder.rungs):
            targets = [ladder.rungs[target] for target in ladder.targets(index)]
            for resource in dict.fromkeys(each.resource for each in targets if each.title in offered):
                limit, other = f"requests.{rung.resource}", f"requests.{resource}"
                if left := [name for name in names if limit in limited[name] and other not in limited[name]]:
                    message = (
                        f"a ResourceQuota limits {rung.resource} and none limits {resource} in the "
                        f"namespace{'s' * (len(left) > 1)} {join_names(left)}: moved pods leave the quota"
                    )
                    yield warning(LadderCode.LEAVES_QUOTA, message, rung.location, rung.resource)


def _offered_rungs(ladder: FallbackLadder, nodes: Sequence[Node]) -> AbstractSet[str]:
    """Return the titles of the rungs that are assumed or offered by one of `nodes`, which count for the ladder."""
    return {
        rung.title
        for rung in ladder.rungs
        if rung.assume or any(node.allocatable.get(rung.resource) for node in _nodes_of(rung.pool, nodes))
    }


def _warn_unoffered_rungs(ladder: FallbackLadder, nodes: Sequence[Node]) -> Iterator[Problem]:
    """Warn of rungs that no node offers; `nodes`: the nodes that count for the ladder."""
    offered = _offered_rungs(ladder, nodes)
    for index, rung in enumerate(ladder.rungs):
        if rung.title not in offered:
            if _is_target(ladder, index):
                effect = "nothing moves to this rung"
            elif offered:
                effect = "each request for it must move"
            else:
                effect = "each request for it must move, and no node offers another rung"
            if nodes:
                message = f"no node offers {rung.title}{_pool_clause(rung, ladder, nodes)}: {effect}"
                lacking = lacking_cards(rung.resource, (product_of(node.labels) for node in nodes))
                message += "".join(f"; {line}" for line in lacking)
            else:
                message = f"no node counts for {ladder.id}, so that none offers {rung.title}: {effect}"
            yield warning(LadderCode.RUNG_NOT_OFFERED, message, rung.location, rung.resource)


def _nodes_of(pool: PoolLabels, nodes: Sequence[Node]) -> Sequence[Node]:
    return [node for node in nodes if all(node.labels.get(key) == value for key, value in pool)]


def _pool_clause(rung: Rung, ladder: FallbackLadder, nodes: Sequence[Node]) -> str:
    """Return a clause with the label of a pool that no node has, and the nearest one; "" if a node is in the pool."""
    if _nodes_of(rung.pool, nodes):
        return ""
    for key, value in rung.pool:
        if value is not None and not _nodes_of(((key, value),), nodes):
            others = {label for other in ladder.rungs for label in other.pool}
            return f", since none has {key}={value}{label_hint(key, value, nodes, others)}"
    return f", since none is in its pool {pool_text(rung.pool)}"


def _common_taints(nodes: Sequence[Node]) -> AbstractSet[Taint]:
    """Return the taints by which all nodes repel pods, without taints for a node's state."""
    sets = [
        {taint for taint in node.taints if taint.effect in REPELLING_EFFECTS and state_of(taint.key) is None}
        for node in nodes
    ]
    return sets[0].intersection(*sets) if sets else set()


def _warn_pools(ladder: FallbackLadder, nodes: Sequence[Node]) -> Iterator[Problem]:
    """Warn of taints and tolerations that do not match, and of pools that an autoscaler enlarges."""
    for index, rung in enumerate(ladder.rungs):
        pool = _nodes_of(rung.pool, nodes)
        tolerations = tolerations_in(rung.place)
        tolerated = Tolerated(tolerations)
        for taint in sorted(_common_taints(pool), key=str) if _is_target(ladder, index) else ():
            # The API server adds a toleration of the resource's name (ExtendedResourceToleration).
            if not (tolerated.includes(taint) or taint.key == rung.resource):
                text = toleration_text(Toleration(key=taint.key, operator="", value=taint.value, effect=taint.effect))
                message = f"each node of the pool {rung.name} has a taint that 'place' does not tolerate: {text}"
                yield warning(LadderCode.UNTOLERATED_POOL, message, rung.location, rung.resource)
        for toleration in useless_tolerations(tolerations, pool) if pool else ():
            text = toleration_text(toleration)
            message = f"no node of the pool {rung.name} has a taint that this tolerates: {text}"
            yield warning(Code.USELESS_TOLERATION, message, rung.origin["place"], "place")
        created = any(AUTOSCALER_LABEL in node.labels for node in pool) and not any(node.scalable for node in pool)
        if created and ladder.offered is Offered.AVAILABLE:
            message = (
                f"an autoscaler creates nodes of the pool {rung.name}, but only existing ones count: pods move when no "
                "device of them is free; declare a node that it can create (scalable: true)"
            )
            yield warning(LadderCode.AUTOSCALED_POOL, message, rung.location, rung.resource)


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
    return " or ".join(sorted(real_cards(cards) or cards))


def _warn_idle_rungs(ladder: FallbackLadder) -> Iterator[Problem]:
    # With unplaced: First, it gives a pod what `place` has.
    gives = ladder.unplaced is Unplaced.FIRST and ladder.rungs[0].pool
    if len(ladder.rungs) == 1 and ladder.when_exhausted is WhenExhausted.KEEP and not gives:
        rung = ladder.rungs[0]
        message = f"a ladder with one rung moves nothing: it has no other rung for {rung.resource}"
        yield warning(LadderCode.SINGLE_RUNG, message, rung.location, rung.resource)
        return
    for index, rung in enumerate(ladder.rungs):
        if rung.when is not None and not _is_target(ladder, index):
            message = (
                f"this is never evaluated: with direction {ladder.direction.value} nothing moves to {rung.resource}"
            )
            yield warning(LadderCode.UNUSED_WHEN, message, rung.when.location, rung.when.text.partition("\n")[0])


def _is_target(ladder: FallbackLadder, index: int) -> bool:
    return any(index in ladder.targets(source) for source in range(len(ladder.rungs)))


def _warn_unreachable_rungs(earlier: FallbackLadder, later: FallbackLadder) -> Iterator[Problem]:
    """Warn of rungs of a later ladder whose requests an earlier ladder always decides."""
    if not always_first(earlier, later):
        return
    # A ladder with pools decides only requests of pods on its rungs.
    decided = {(rung.resource, rung.pool) for rung in earlier.rungs}
    for index, rung in enumerate(later.rungs):
        identity = rung.resource, rung.pool if earlier.pool_keys else ()
        # No warning for a rung that cannot move anyway.
        if identity in decided and not rung.assume and later.targets(index):
            message = (
                f"requests for {rung.resource} are decided by {earlier.id} ({earlier.location}) instead, "
                f"which comes first by {precedence_basis(earlier, later)}"
            )
            yield warning(LadderCode.UNREACHABLE_RUNG, message, rung.location, rung.resource)
