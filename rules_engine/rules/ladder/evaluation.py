"""Fallback ladders: they replace a requested GPU resource that no node offers."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from rules_engine.accelerators.resources import short_name
from rules_engine.cluster.nodes import Demand, NodeQuery, Offered, is_extended_resource
from rules_engine.cluster.nodes.offers import AMOUNTS_PER_UNIT, CostlyOfferError, Offers, Reach, UnknownOfferError
from rules_engine.language.cel import Budget, CostExceeded, NamedProgram, Program
from rules_engine.language.cel.program import constant_texts
from rules_engine.model.json.edits import Edits, merge_edits
from rules_engine.model.kubernetes.names import QUEUE_LABEL
from rules_engine.model.kubernetes.pod import ANNOTATIONS, changes_placement
from rules_engine.model.kubernetes.quantity import Quantity
from rules_engine.model.problems.source import Field
from rules_engine.model.rules.decision import Action, Attempt, ContainerRequest, ResourceDecision, Step, resource_of
from rules_engine.model.rules.rule import Mode, OptOut, RuleId
from rules_engine.rules.evaluation.applicability import (
    MAX_CONTAINERS,
    amount_problem,
    check_applicability,
    container_count_error,
)
from rules_engine.rules.evaluation.steps import Details, failure_step, patch_size_error, rule_step, skip_step
from rules_engine.rules.ladder.counts import DeviceCounts, edits_between
from rules_engine.rules.ladder.pools import PodPool, pool_text, pool_words, select_pool
from rules_engine.rules.ladder.value import (
    Counts,
    Direction,
    FallbackLadder,
    LadderCode,
    PoolLabels,
    Queued,
    Rung,
    Unplaced,
    WhenExhausted,
)
from rules_engine.rules.rule_set.compiled import CompiledRule, Replacement
from rules_engine.rules.rule_set.compiler import Compiler
from rules_engine.rules.rule_set.context import Context, ExpressionScope

WHEN_EFFECTS = "nothing moves to this rung", "it has no effect"
"""Effects of a `when` that is always false, and always true."""


@dataclass(frozen=True, slots=True)
class CompiledRung:
    """A rung and its `when`, with the field of that."""

    rung: Rung
    when: Program | None
    when_field: Field | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledLadder(CompiledRule[FallbackLadder]):
    """A compiled ladder.

    `resources`: the resources of the rungs, in order. `query` finds the nodes that offer them. `rung_fields`: the field
    of each rung by its title. `pool_keys`: the keys of the labels that all its pools have; none without pools.
    """

    rungs: tuple[CompiledRung, ...]
    resources: tuple[str, ...] = field(repr=False, compare=False)
    query: NodeQuery = field(repr=False, compare=False)
    rung_fields: Mapping[str, Field] = field(repr=False, compare=False)
    pool_keys: tuple[str, ...] = field(repr=False, compare=False)

    @property
    def own_programs(self) -> tuple[Program, ...]:
        return tuple(rung.when for rung in self.rungs if rung.when is not None)

    @property
    def reads_nodes(self) -> bool:
        return True

    @property
    def reads_available(self) -> bool:
        offered = self.rule.offered
        return offered is Offered.AVAILABLE or super(CompiledLadder, self).reads_available

    def replacements(self, title: str) -> Sequence[Replacement]:
        position = next((index for index, rung in enumerate(self.rule.rungs) if rung.title == title), None)
        if position is None:
            return ()
        rungs = self.rule.rungs
        return [
            self.replacement(rungs[position], to)._replace(
                title=to.title, pool=pool_words(to), place=partial(select_pool, to)
            )
            for to in (*rungs[position + 1 :], *reversed(rungs[:position]))
        ]

    def replacement(self, source: Rung, target: Rung) -> Replacement:
        """Return the ratio of devices when a request moves from one rung to another."""
        scaled = self.rule.counts is Counts.SCALE
        return Replacement(target.resource, *((source.weight or 1, target.weight or 1) if scaled else ()))


def compile_ladder(rule: FallbackLadder, compiler: Compiler) -> CompiledLadder:
    """Compile the conditions of the rungs. Warns of a match condition that reads amounts."""
    for condition in compiler.conditions:
        if _reads_amounts(condition.program, tuple(compiler.variables.items())):
            message = (
                f"the match condition {condition.name} reads amounts, which ladders change: the result of this ladder "
                "may not match it, and a later ladder may move it again"
            )
            compiler.warn(LadderCode.CONDITION_READS_AMOUNTS, message, condition.program)
    return CompiledLadder(
        rule=rule,
        variables=compiler.variables,
        conditions=compiler.conditions,
        rungs=tuple(
            CompiledRung(
                rung,
                compiler.condition(rung.when, WHEN_EFFECTS),
                next(iter(rule.fields.get(f"rungs[{index}].when", ())), None),
            )
            for index, rung in enumerate(rule.rungs)
        ),
        resources=rule.resources,
        query=rule.query,
        rung_fields={rung.title: Field(f"rungs[{index}]", rung.location) for index, rung in enumerate(rule.rungs)},
        pool_keys=rule.pool_keys,
    )


def _reads_amounts(program: Program, variables: Sequence[tuple[str, NamedProgram]]) -> bool:
    """Return True if an expression, or a variable that it reads, has a member named limits or requests.

    A variable reads only earlier variables, so that one pass from the last to the first finds all that are read.
    """
    programs, reads = [program], set(program.reads)
    for path, variable in reversed(variables):
        if path in reads or "variables" in reads:
            programs.append(variable.program)
            reads |= variable.program.reads
    return any(not _AMOUNT_MEMBERS.isdisjoint(constant_texts(reader.checked.expression)) for reader in programs)


_AMOUNT_MEMBERS = frozenset({"limits", "requests"})


class Claims(Struct, frozen=True):
    """The decisions of the enforcing ladders of one admission so far.

    `winners`: the ladder that decided or assigned each resource. `ladders`: all ladders that applied, even without a
    request to decide: in a second admission of the result, each is evaluated before later ladders; with each, the
    `offered` before it. `pool_keys`: the keys of the pools of ladders that decided a resource: later ladders see these
    labels as fixed. `offered`: the resources that ladders gave or left because nodes offer them.
    """

    winners: Mapping[str, RuleId] = {}
    ladders: tuple[tuple[CompiledLadder, frozenset[str]], ...] = ()
    pool_keys: frozenset[str] = frozenset()
    offered: frozenset[str] = frozenset()

    def after(self, ladder: CompiledLadder, step: Step) -> "Claims":
        titles = [name for decision in step.resources for name in (decision.resource, decision.to) if name]
        assumed = next((rung.title for rung in ladder.rule.rungs if rung.assume), "")
        given = [each.given for each in step.resources if each.reason in _OFFERED_REASONS and each.given != assumed]
        return Claims(
            {**dict.fromkeys(map(resource_of, titles), ladder.rule.id), **self.winners},
            (*self.ladders, (ladder, self.offered)),
            self.pool_keys.union(ladder.pool_keys) if titles else self.pool_keys,
            self.offered.union(map(resource_of, given)),
        )


_OFFERED_REASONS = frozenset({"moved", "offered", "placed"})
"""Reasons of decisions by which a pod gets a rung that nodes offer, unless the rung is assumed."""


def apply_ladders(ladders: Sequence[CompiledLadder], context: Context) -> tuple[tuple[Step, ...], Edits]:
    """Evaluate every ladder in order, each on the result of the earlier ladders. Return their steps and edits."""
    steps: list[Step] = []
    claims = Claims()
    edits: Edits = {}
    pending: Edits = {}
    for ladder in ladders:
        # The pod is edited only when another ladder reads it.
        if pending:
            context, pending = context.edited(pending), {}
        applies = check_applicability(ladder, context)
        if isinstance(applies, Step):
            steps.append(applies)
            continue
        try:
            step, new_edits = _decide(ladder, context, applies.scope, applies.warnings, claims)
        except Exception as error:
            # A failed ladder, by a bug too, leaves the pod unchanged for the next one; its failurePolicy decides.
            steps.append(failure_step(ladder.rule, error))
            continue
        if new_edits and (excess := patch_size_error(merge_edits(context.pod.edits, new_edits))) is not None:
            steps.append(failure_step(ladder.rule, excess))
            continue
        steps.append(step)
        # Later ladders decide as if a ladder in audit mode did not exist.
        if ladder.rule.mode is Mode.ENFORCE:
            edits, pending = merge_edits(edits, new_edits), new_edits
            claims = claims.after(ladder, step)
    return tuple(steps), edits


@dataclass(frozen=True, slots=True, kw_only=True)
class _Requests:
    """One pod's requests of a ladder's rungs.

    `own`: the index of the rung that the pod is on, by requested resource. `before`: the devices of all resources of
    the ladder that it requests: a move adds to what a container requests of its target. `decided`: the resources that
    earlier ladders decided. `others`: nanos of each other extended resource that the pod's node must offer.
    `pod_pool`: the pod's pool, if the rungs have pools. `unplaced`: the pod is treated as on the first rung's pool, and
    does not select it. `reaches`: the pod's reach, by the titles of the rungs to which it moves. `offers`: the nodes'
    offers, by pool and reach.
    """

    ladder: CompiledLadder
    context: Context
    scope: ExpressionScope
    claims: Claims
    budget: Budget
    own: Mapping[str, int]
    before: DeviceCounts
    decided: Sequence[str]
    others: Demand
    pod_pool: PodPool | None
    unplaced: bool
    reaches: dict[tuple[str, ...], Reach] = field(default_factory=dict)
    offers: dict[tuple[PoolLabels, Reach], Offers] = field(default_factory=dict)

    @property
    def undecided(self) -> list[str]:
        return [name for name in self.own if name not in self.claims.winners]

    def title(self, resource: str) -> str:
        return self.ladder.rule.rungs[self.own[resource]].title

    def fields(self, resources: Iterable[str]) -> tuple[Field, ...]:
        """Return the fields of the rungs that the pod is on with these resources."""
        return tuple(self.ladder.rung_fields[self.title(name)] for name in resources)

    def by_container(self, resources: Sequence[str]) -> tuple[ContainerRequest, ...]:
        """Return the requests of these resources, by container."""
        return tuple(
            ContainerRequest(container.name, self.title(name), counts[name])
            for container, counts in zip(self.context.pod.containers, self.before.by_container, strict=True)
            for name in resources
            if name in counts
        )

    def arrivals(self, choice: "_ChosenRungs") -> tuple[Rung, ...]:
        """Return the rungs to which requests move; a pod that selects no pool moves to its own."""
        rungs = self.ladder.rungs
        return tuple(to.rung for index, to in choice.items() if self.unplaced or to is not rungs[index])

    def moved(self, choice: "_ChosenRungs", undecided: Iterable[str] = ()) -> DeviceCounts:
        """Return the counts of the pod on these rungs, without the requests that are not decided yet."""
        moves: dict[str, Replacement | None] = dict.fromkeys(undecided)
        for index, target in choice.items():
            own = self.ladder.rungs[index]
            if target is own:
                moves.pop(own.rung.resource, None)
            else:
                moves[own.rung.resource] = self.ladder.replacement(own.rung, target.rung)
        return self.before.moved(moves)

    def edits_to(self, choice: "_ChosenRungs") -> Edits:
        """Return the edits that place the pod: node labels, tolerations, runtime class and annotations."""
        rungs = self.arrivals(choice)
        return self.pod_pool.edits_to(rungs) if self.pod_pool is not None and rungs else {}

    def reach_on(self, choice: "_ChosenRungs") -> Reach:
        """Return the reach of the pod as it would be on these rungs."""
        arrivals = self.arrivals(choice)
        foresees = self.context.foresee is not None and self.ladder.query.by_pod
        if not arrivals or (self.pod_pool is None and not foresees):
            return self.context.reach
        key = tuple(rung.title for rung in arrivals)
        if foresees:
            # Other kinds may add to the pod what depends on all of its resources.
            key = tuple(f"{index} {to.rung.title}" for index, to in choice.items())
        if key not in self.reaches:
            if self.pod_pool is None or foresees:
                self.budget.spend(self.context.reach.placement.size)
                self.reaches[key] = self.context.edited({**self.moved(choice).edits, **self.edits_to(choice)}).reach
            else:
                self.reaches[key] = self.context.reach.moved(self.pod_pool.placement_on(arrivals))
        return self.reaches[key]

    def offers_on(self, choice: "_ChosenRungs") -> Offers:
        """Return the offers of the rungs' pool to the pod as it would be on these rungs."""
        pool, reach = next((to.rung.pool for to in choice.values()), ()), self.reach_on(choice)
        if (pool, reach) not in self.offers:
            query, cluster = self.ladder.query, self.context.cluster
            self.offers[pool, reach] = Offers(query, reach, cluster, self.budget, pool, self.others)
        return self.offers[pool, reach]


_ChosenRungs: TypeAlias = Mapping[int, CompiledRung]
"""The rungs that requests take, by the index of the rung that the pod is on."""

_Attempts: TypeAlias = Mapping[int, list[Attempt]]
"""The rungs tried for each request, by the index of its rung."""


class _LeftAlone(Struct, frozen=True):
    """The reason why a pod is left alone. `evades`: it selects by the keys of pools, in a form that names no pool."""

    reason: str
    evades: bool = False


def _read_requests(
    ladder: CompiledLadder, context: Context, scope: ExpressionScope, claims: Claims, budget: Budget
) -> _Requests | _LeftAlone:
    """Return the pod's requests. Raises EvaluationError if it requests a rung and has too many containers."""
    rule, keys = ladder.rule, ladder.pool_keys
    names = [name for name in ladder.resources if name in context.pod.resources]
    pod_pool, pool, unplaced = None, PoolLabels(), False
    if names and keys:
        if rule.queued is Queued.IGNORE and QUEUE_LABEL in context.pod.labels:
            return _LeftAlone("the pod is in a queue of Kueue (queued: Ignore)")
        pod_pool = PodPool.of(context.pod, context.reach.placement, keys)
        pool = tuple((key, pod_pool.labels.get(key)) for key in keys)
        if pod_pool.problem:
            undecided = any(name not in claims.winners for name in names)
            # A pod that names its node is not scheduled, so it evades no pool.
            return _LeftAlone(pod_pool.problem, evades=undecided and not pod_pool.placement.node_name)
        if not any(rung.pool == pool for rung in rule.rungs):
            if pod_pool.labels:
                return _LeftAlone(f"the pod selects {pool_text(pool)}, which is no pool of the ladder")
            if rule.unplaced is not Unplaced.FIRST:
                return _LeftAlone(f"the pod does not select nodes by {' or '.join(keys)} (unplaced: Ignore)")
            pool, unplaced = rule.rungs[0].pool, True
    indexes = {rung.resource: index for index, rung in enumerate(rule.rungs) if rung.pool == pool} if names else {}
    own = {name: indexes[name] for name in names if name in indexes}
    # A pod that requests no rung may have any number of containers.
    if own and len(context.pod.containers) > MAX_CONTAINERS:
        raise container_count_error(context.pod)
    before = DeviceCounts.read(context.pod, names if own else [])
    return _Requests(
        ladder=ladder,
        context=context,
        scope=scope,
        claims=claims,
        budget=budget,
        own=own,
        before=before,
        decided=[name for name in own if name in claims.winners and name in before.resources],
        others={} if claims.winners.keys() >= own.keys() else _read_others(ladder, context, claims, budget),
        pod_pool=pod_pool,
        unplaced=unplaced,
    )


def _read_others(ladder: CompiledLadder, context: Context, claims: Claims, budget: Budget) -> Demand:
    """Return the pod's requests of other extended resources, without those that rules may still change."""
    pod = context.pod
    names = {name for name in pod.resources.union(pod.overhead) if is_extended_resource(name)}
    names -= {*ladder.resources} - claims.winners.keys()
    if names:
        names -= context.given(context.namespace) - claims.offered
    if not names:
        return {}
    budget.spend(1 + pod.amount_count // AMOUNTS_PER_UNIT)
    requests = pod.effective_requests()
    return {name: requests[name] for name in sorted(names) if requests[name] > 0}


def _decide(
    ladder: CompiledLadder,
    context: Context,
    scope: ExpressionScope,
    warnings: tuple[str, ...],
    claims: Claims,
    *,
    again: bool = False,
) -> tuple[Step, Edits]:
    """Return a ladder's step and its edits of the pod. `again`: it decided before. Raises EvaluationError."""
    rule = ladder.rule
    requests = _read_requests(ladder, context, scope, claims, context.budget_of(rule))
    if isinstance(requests, _LeftAlone):
        # A ladder that must hold denies the pod: an unclear selection would otherwise be a way around it.
        if requests.evades and rule.when_exhausted is WhenExhausted.DENY and rule.opt_out is OptOut.FORBIDDEN:
            message = f"pod {context.display} selects no pool of the ladder: {requests.reason}"
            fields = rule.fields.get("whenExhausted", ())
            return rule_step(rule, Action.DENY, "pool", message, warnings=warnings, fields=fields), {}
        return skip_step(rule, "pool", requests.reason, rule.fields.get("rungs", ())), {}
    undecided = requests.undecided
    # Without a resource to decide, no container is checked: there may be 60,000.
    containers = context.pod.containers if undecided else ()
    errors = [text for item in containers for name in requests.before.names if (text := amount_problem(item, name))]
    if errors:
        return _keep_all(requests, "malformed", "; ".join(errors), warnings), {}
    indexes = sorted([requests.own[name] for name in undecided if name in requests.before.resources])
    notes = tuple(f"{name} was decided by {claims.winners[name]}" for name in requests.decided)
    if not indexes and notes:
        return skip_step(rule, "already-decided", "; ".join(notes), requests.fields(requests.decided)), {}
    if not indexes:
        return skip_step(rule, "no-request", "the pod requests none of its resources", rule.fields.get("rungs", ())), {}
    # The assumed rung counts as offered on any cluster.
    if not context.cluster.known and not all(rule.rungs[index].assume for index in indexes):
        return _keep_all(requests, "cluster-unknown", context.cluster.freshness.unknown, warnings), {}
    # Direction Up: from the first rung to the last. Down, and DownThenUp, which searches downwards first: from the last
    # rung to the first. So nothing moves onto a rung whose own request then moves away.
    ordered = indexes if rule.direction is Direction.UP else indexes[::-1]
    attempts: _Attempts = {index: [] for index in ordered}
    try:
        choice, exhausted = (_decide_together if ladder.pool_keys else _decide_alone)(requests, ordered, attempts)
    except UnknownOfferError as error:
        # A pod must not pass a ladder that denies by the combination of devices that it requests.
        if isinstance(error, CostlyOfferError) and rule.when_exhausted is WhenExhausted.DENY:
            raise CostExceeded(str(error)) from None
        return _keep_all(requests, "cluster-unknown", str(error), warnings), {}
    decisions = [
        _decision(requests, index, choice, attempts[index], exhausted=index in exhausted) for index in choice or ordered
    ]
    step, edits = _final_step(requests, choice, decisions, notes, warnings)
    placed = _edits_in_place(requests, choice) if exhausted and not again else {}
    if placed:
        # The pod may have a rung with what it gets where it is, such as tolerations: decide as the next call.
        context = context.edited(placed)
        applies = check_applicability(ladder, context)
        if not isinstance(applies, Step):
            moved, more_edits = _decide(ladder, context, applies.scope, warnings, claims, again=True)
            left = [each for each in moved.resources if each.reason == "exhausted"]
            if moved.reason == "moved" and len(left) < len(exhausted):
                added = _added_annotations(placed)
                return replace(moved, annotations={**added, **moved.annotations}), merge_edits(placed, more_edits)
    return step, edits


def _edits_in_place(requests: _Requests, choice: _ChosenRungs) -> Edits:
    """Return how later kinds, and the pool if the pod selects none, place a pod without a rung for all requests."""
    context, placed = requests.context, requests.edits_to(choice)
    if context.foresee is None or not requests.ladder.query.by_pod:
        return placed
    return merge_edits(placed, context.foresee(context.edited({**requests.moved(choice).edits, **placed})))


def _decide_alone(
    requests: _Requests, ordered: Sequence[int], attempts: _Attempts
) -> tuple[_ChosenRungs, Collection[int]]:
    """Settle the requests that stay, then let each other one take the first rung without an obstacle.

    A target must be on a node that offers all settled resources together, since the pod runs on one node.
    """
    rungs = requests.ladder.rungs
    choice = {index: rungs[index] for index in _find_staying(requests, ordered)}
    exhausted = []
    for index in [index for index in ordered if index not in choice]:
        own = rungs[index]
        attempts[index].append(Attempt(own.rung.title, False, _leaving_reason(requests, index, choice)))
        for target in _targets(requests, index):
            attempts[index].append(_try_rung(requests, index, target, choice))
            if attempts[index][-1].taken:
                choice[index] = target
                break
        else:
            # Its devices stay, and later requests must fit together with them.
            choice[index] = own
            exhausted.append(index)
    return choice, exhausted


def _decide_together(
    requests: _Requests, ordered: Sequence[int], attempts: _Attempts
) -> tuple[_ChosenRungs, Collection[int]]:
    """Let all requests stay in the pod's pool, or move to one pool. The first takes a rung, and the others follow it.

    Each takes its own rung if that is in the pool, else the first rung in the pool without an obstacle; if a request
    has none, the next rung of the first request is tried.
    """
    rungs, lead = requests.ladder.rungs, ordered[0]
    # The lead's own rung comes first: if all requests fit in its pool, none leaves it.
    for target in (rungs[lead], *_targets(requests, lead)):
        choice = _follow(requests, ordered, target, attempts)
        if choice:
            return choice, ()
    own = {index: rungs[index] for index in ordered}
    # Without a rung, a pod that selects no pool gets the first one nevertheless.
    if requests.unplaced and not (_place_obstacle(requests, own) or _claims_obstacle(requests, own)):
        return own, ordered
    return {}, ordered


def _follow(requests: _Requests, ordered: Sequence[int], first: CompiledRung, attempts: _Attempts) -> _ChosenRungs:
    """Return the rungs of all requests if the first request takes this rung; none if one of them has no rung."""
    choice: dict[int, CompiledRung] = {}
    for index in ordered:
        options = (requests.ladder.rungs[index], *_targets(requests, index)) if choice else (first,)
        for option in options:
            if option.rung.pool == first.rung.pool:
                attempts[index].append(_try_rung(requests, index, option, choice))
                if attempts[index][-1].taken:
                    choice[index] = option
                    break
        else:
            return {}
    return choice


def _decision(
    requests: _Requests, index: int, choice: _ChosenRungs, attempts: Sequence[Attempt], *, exhausted: bool
) -> ResourceDecision:
    own = requests.ladder.rungs[index]
    taken = choice.get(index, own)
    stays = "placed" if requests.unplaced else "assumed" if own.rung.assume else "offered"
    reason = "exhausted" if exhausted else stays if taken is own else "moved"
    to, tried = None if taken is own else taken.rung.title, () if reason is stays else tuple(attempts)
    return ResourceDecision(resource=own.rung.title, to=to, reason=reason, attempts=tried)


def _find_staying(requests: _Requests, indexes: Iterable[int]) -> list[int]:
    """Return the indexes of the requests that can stay, each given the ones that stay before it."""
    rungs = requests.ladder.rule.rungs
    staying: list[int] = []
    for index in indexes:
        if _stays(requests, index, [rungs[each].resource for each in staying]):
            staying.append(index)
    return staying


def _stays(requests: _Requests, index: int, others: Iterable[str]) -> bool:
    """Return True if a request can stay: one node offers it together with `others`.

    The assumed rung may be on any node.
    """
    rungs, effective = requests.ladder.rule.rungs, requests.before.effective
    if rungs[index].assume:
        return True
    names = [rungs[index].resource, *(name for name in others if not rungs[requests.own[name]].assume)]
    requests.budget.spend(len(requests.before.by_container) * len(names) // AMOUNTS_PER_UNIT)
    return requests.offers_on({}).cover({name: effective(name) for name in names})


def _targets(requests: _Requests, index: int) -> Sequence[CompiledRung]:
    return [requests.ladder.rungs[target] for target in requests.ladder.rule.targets(index)]


def _try_rung(requests: _Requests, index: int, option: CompiledRung, before: _ChosenRungs) -> Attempt:
    """Try a rung, given the rungs already taken.

    `when` is evaluated first: its errors must not depend on the cluster.
    """
    title, moves = option.rung.title, option is not requests.ladder.rungs[index]
    if moves and option.when is not None and not requests.scope.holds(option.when):
        return Attempt(title, False, "its condition is false", option.when_field)
    choice = {**before, index: option}
    changes = bool(requests.arrivals(choice))
    obstacle = (
        (changes and _place_obstacle(requests, choice))
        or _nodes_obstacle(requests, choice)
        or (changes and _claims_obstacle(requests, choice))
    )
    if obstacle:
        return Attempt(title, False, obstacle)
    return Attempt(title, True, "assumed: nothing else is offered" if option.rung.assume else "offered")


def _place_obstacle(requests: _Requests, choice: _ChosenRungs) -> str:
    """Return the reason why the pod cannot move to these rungs whatever the nodes offer, or ""."""
    pod_pool = requests.pod_pool
    if pod_pool is None:
        return ""
    for key, value in next(iter(choice.values())).rung.pool:
        if key in requests.claims.pool_keys and pod_pool.labels.get(key) != value:
            return f"an earlier ladder decided {key}"
    named = pod_pool.runtime_class
    for rung in requests.arrivals(choice):
        wanted = rung.runtime_class
        if wanted and named and wanted != named:
            return f"the pod names the runtime class {named}, not {wanted}"
        named = named or wanted
    return ""


def _nodes_obstacle(requests: _Requests, choice: _ChosenRungs) -> str:
    """Return the amounts of these rungs that no single node offers, or "". The last rung is being decided."""
    demand = _demand(requests, choice)
    offers = requests.offers_on(choice)
    if not demand or offers.cover(demand):
        return ""
    missing = " and ".join(f"{Quantity(nanos)} of {name}" for name, nanos in demand.items())
    if other := offers.excluding_request(demand):
        missing += f" together with {other}"
    if requests.pod_pool is None:
        return f"no node offers {missing}{_failure_clause(offers, demand)}"
    *_, index = choice
    start = "requested, but " if choice[index] is requests.ladder.rungs[index] and not requests.unplaced else ""
    which = " that the pod may run on" if requests.ladder.query.by_pod else ""
    return f"{start}no node of its pool{which} offers {missing}"


def _demand(requests: _Requests, choice: _ChosenRungs) -> Demand:
    """Return what one node must offer for these rungs; nothing for the assumed one. The last rung is being decided.

    Alone, requests that are not decided yet stay in the counts of their resources; together, they are removed.
    """
    if requests.pod_pool is None:
        *settled, last = [to.rung for to in choice.values()]
        after = requests.moved(choice)
        names = () if last.assume else (last.resource, *requests.decided, *(rung.resource for rung in settled))
    else:
        after = requests.moved(choice, requests.undecided)
        # The pod may request a resource that has a rung in this pool and none in its present one.
        pool, requested = next(iter(choice.values())).rung.pool, after.resources
        needed = [
            rung.resource
            for rung in requests.ladder.rule.rungs
            if rung.pool == pool and not rung.assume and rung.resource in requested
        ]
        names = (*needed, *requests.decided) if needed else ()
    together = dict.fromkeys(names)
    # Without the cost of counting, many resources in many containers would take minutes.
    work = len(after.by_container) * len(together) // AMOUNTS_PER_UNIT
    requests.budget.spend(work if requests.pod_pool is None else 1 + work)
    return {name: after.effective(name) for name in together}


def _claims_obstacle(requests: _Requests, choice: _ChosenRungs) -> str:
    """Return the reason why a second admission would change the pod on these rungs, or ""."""
    if not requests.claims.ladders:
        return ""
    edits = {**requests.moved(choice).edits, **requests.edits_to(choice)}
    moves_pod = changes_placement(edits)
    resources = [to.rung.resource for to in choice.values()]
    alone = requests.pod_pool is None
    after = requests.context.edited(edits, requests.reach_on(choice))
    for earlier, offered in requests.claims.ladders:
        # Alone, the other resources were tried before.
        own = [name for name in (resources[-1:] if alone else resources) if name in earlier.resources]
        affected = not alone and (earlier.pool_keys or (moves_pod and earlier.query.by_pod))
        only = own[0] if alone and own and not earlier.pool_keys else ""
        if (own or affected) and not _keeps(earlier, after, requests, offered, only):
            return f"{earlier.rule.id} would move it on"
    return ""


def _keeps(earlier: CompiledLadder, context: Context, later: _Requests, offered: frozenset[str], only: str) -> bool:
    """Return True if an earlier ladder would leave this pod's requests where they are, on the budget of the later one.

    `offered`: the resources that were offered before the earlier ladder. `only`: check this resource, given the ones
    that ladders found offered; "" for all.
    """
    # Without winners: each earlier ladder is checked on its own.
    requests = _read_requests(earlier, context, later.scope, Claims(offered=offered), later.budget)
    if isinstance(requests, _LeftAlone):
        return True
    if only:
        beside = [name for name in requests.own if name != only and name in later.claims.offered]
        return _stays(requests, requests.own[only], beside)
    indexes = [index for name, index in requests.own.items() if name in requests.before.resources]
    if earlier.pool_keys:
        choice = {index: earlier.rungs[index] for index in indexes}
        return not choice or (not requests.unplaced and not _nodes_obstacle(requests, choice))
    return len(_find_staying(requests, indexes)) == len(indexes)


def _leaving_reason(requests: _Requests, index: int, choice: _ChosenRungs) -> str:
    """Return the reason why a request cannot stay on its rung."""
    resource, offers = requests.ladder.rungs[index].rung.resource, requests.offers_on({})
    demand = {resource: requests.moved(choice).effective(resource)}
    other = "the requests that stay" if offers.cover(demand) else offers.excluding_request(demand)
    together = other and f" together with {other}"
    return f"requested, but no node offers {Quantity(demand[resource])}{together}{_failure_clause(offers, demand)}"


def _failure_clause(offers: Offers, demand: Demand) -> str:
    """Return a clause with the reason why the scheduler would reject the pod on all nodes; "" if it would not."""
    failure = offers.failure(demand)
    return failure and f": the scheduler rejects the pod on all nodes, since {failure}"


def _keep_all(requests: _Requests, reason: str, message: str, warnings: tuple[str, ...]) -> Step:
    """Return the step of a ladder that moves nothing, with a warning."""
    unknown = reason == "cluster-unknown"
    rule, resources = requests.ladder.rule, requests.undecided
    return rule_step(
        rule,
        Action.KEEP,
        reason,
        message,
        warnings=(*warnings, f"{rule.id} left the pod as it is: {message}"),
        resources=tuple(ResourceDecision(resource=requests.title(name), to=None, reason=reason) for name in resources),
        cluster_unknown=unknown,
        requests=requests.by_container(resources) if unknown else (),
        fields=requests.fields(resources),
    )


def _final_step(
    requests: _Requests,
    choice: _ChosenRungs,
    decisions: Sequence[ResourceDecision],
    notes: tuple[str, ...],
    warnings: tuple[str, ...],
) -> tuple[Step, Edits]:
    rule = requests.ladder.rule
    exhausted = [decision.resource for decision in decisions if decision.reason == "exhausted"]
    resources = [resource_of(decision.resource) for decision in decisions]
    moves = {decision.resource: decision.to for decision in decisions if decision.to is not None}
    common: Details = {
        "requests": requests.by_container(resources),
        "resources": tuple(decisions),
        "notes": notes,
        "warnings": warnings,
    }
    if exhausted and rule.when_exhausted is WhenExhausted.DENY:
        message = f"no rung can serve {', '.join(exhausted)} for pod {requests.context.display}"
        common["fields"] = rule.fields.get("whenExhausted", ())
        return rule_step(rule, Action.DENY, "exhausted", message, **common), {}
    # A pod that selects no pool may get one without a move (unplaced: First).
    placed = requests.edits_to(choice)
    annotations = common["annotations"] = _added_annotations(placed)
    if not moves:
        if placed:
            message = f"the pod gets the pool of {decisions[0].resource}"
        else:
            message = ", ".join(f"{decision.resource} is {decision.reason}" for decision in decisions)
        common["fields"] = requests.fields(resources)
        action = Action.CHANGE if placed else Action.KEEP
        return rule_step(rule, action, decisions[0].reason, message, **common), placed
    message = ", ".join(f"{source} → {target}" for source, target in moves.items())
    annotations |= _fall_annotations(requests, moves)
    by_resource = {resource_of(source): resource_of(target) for source, target in moves.items()}
    edits = {**placed, **edits_between(requests.before, requests.moved(choice), by_resource)}
    if annotations:
        edits = {**edits, ANNOTATIONS: annotations}
    common["fields"] = tuple(requests.ladder.rung_fields[title] for title in dict.fromkeys(moves.values()))
    return rule_step(rule, Action.CHANGE, "moved", message, **common), edits


def _added_annotations(edits: Edits) -> dict[str, str]:
    return {key: text for key, text in edits.get(ANNOTATIONS, {}).items() if text is not None}


def _fall_annotations(requests: _Requests, moves: Mapping[str, str]) -> Mapping[str, str]:
    """Return the pod's history: its present value, then each distinct fall, by container and rung."""
    rule = requests.ladder.rule
    if not rule.annotation:
        return {}
    annotations = requests.context.pod.annotations
    key = next((name for name in rule.histories if name in annotations), rule.annotation)
    present = annotations.get(key, "")
    falls = [
        f"{short_name(rung.title)}->{short_name(moves[rung.title])}"
        for counts in requests.before.by_container
        for rung in rule.rungs
        if rung.resource in counts and rung.title in moves
    ]
    # A second admission must not record the same fall again.
    new = [fall for fall in dict.fromkeys(falls) if fall not in present.split(",")]
    return {key: ",".join([present, *new] if present else new)}
