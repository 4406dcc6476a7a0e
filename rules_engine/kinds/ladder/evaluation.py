"""Fallback ladders: they replace a requested GPU resource that no node offers."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from rules_engine.cel import CostExceeded, Program
from rules_engine.cel.program import constant_texts
from rules_engine.evaluation.applicability import (
    MAX_CONTAINERS,
    amount_problem,
    check_applicability,
    container_count_error,
)
from rules_engine.evaluation.context import Context, NamedProgram, Scope
from rules_engine.evaluation.nodes import Demand, NodeQuery, Offered
from rules_engine.evaluation.nodes.offers import AMOUNTS_PER_UNIT, CostlyOfferError, Offers, Reach, UnknownOfferError
from rules_engine.evaluation.rule_set.compiled import CompiledRule, Replacement
from rules_engine.evaluation.rule_set.compiler import Compiler
from rules_engine.evaluation.steps import Details, failure_step, patch_size_error, rule_step, skip_step
from rules_engine.kinds.ladder.counts import DeviceCounts, edits_between
from rules_engine.kinds.ladder.pools import PodPool, pool_text, pool_words, select_pool
from rules_engine.kinds.ladder.problem_codes import LadderCode
from rules_engine.kinds.ladder.value import (
    QUEUE_LABEL,
    Counts,
    Direction,
    FallbackLadder,
    Pool,
    Queued,
    Rung,
    Unplaced,
    WhenExhausted,
)
from rules_engine.model.gpu.resources import short_name
from rules_engine.model.json.edits import Edits, merge_edits
from rules_engine.model.kubernetes.pod import ANNOTATIONS, changes_placement
from rules_engine.model.kubernetes.quantity import Quantity
from rules_engine.model.problems.source import Field
from rules_engine.model.rules.decision import (
    Action,
    Attempt,
    ContainerRequest,
    ResourceDecision,
    Step,
    resource_of,
)
from rules_engine.model.rules.rule import Mode, OptOut, RuleId

WHEN_EFFECTS = "nothing moves to this rung", "it has no effect"
"""Effects of a `when` that is always false, and always true."""


@dataclass(frozen=True, slots=True)
class CompiledRung:
    """A rung and its `when`, with the field of each."""

    rung: Rung
    when: Program | None
    field: Field
    when_field: Field | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledLadder(CompiledRule[FallbackLadder]):
    """A compiled ladder.

    `resources`: the resources of the rungs, in order. `query` finds the nodes that offer them. `rung_fields`: the field
    of each rung by its title. `pool_keys`: the keys of the labels that all its pools have; none without pools.
    """

    rungs: tuple[CompiledRung, ...]
    resources: tuple[str, ...] = field(init=False, repr=False, compare=False)
    query: NodeQuery = field(init=False, repr=False, compare=False)
    rung_fields: Mapping[str, Field] = field(init=False, repr=False, compare=False)
    pool_keys: tuple[str, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "rung_fields", {rung.rung.title: rung.field for rung in self.rungs})
        object.__setattr__(self, "pool_keys", self.rule.pool_keys)
        object.__setattr__(self, "resources", self.rule.resources)
        object.__setattr__(self, "query", self.rule.query)

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
        """Return the replacement of the devices of a rung by another rung, without what only `replacements` has."""
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
                Field(f"rungs[{index}]", rung.location),
                next(iter(rule.fields.get(f"rungs[{index}].when", ())), None),
            )
            for index, rung in enumerate(rule.rungs)
        ),
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
    request to decide: in a second admission of the result, each is evaluated before later ladders. `pool_keys`: the
    keys of the pools of ladders that decided a resource: later ladders see these labels as fixed.
    """

    winners: Mapping[str, RuleId] = {}
    ladders: tuple[CompiledLadder, ...] = ()
    pool_keys: frozenset[str] = frozenset()

    def after(self, ladder: CompiledLadder, step: Step) -> "Claims":
        titles = [name for decision in step.resources for name in (decision.resource, decision.to) if name]
        return Claims(
            {**dict.fromkeys(map(resource_of, titles), ladder.rule.id), **self.winners},
            (*self.ladders, ladder),
            self.pool_keys.union(ladder.pool_keys) if titles else self.pool_keys,
        )


def apply_ladders(ladders: Sequence[CompiledLadder], context: Context) -> tuple[tuple[Step, ...], Edits]:
    """Evaluate every ladder in order, each on the result of the earlier ladders. Return their steps and edits."""
    steps: list[Step] = []
    claims = Claims()
    edits: Edits = {}
    pending: Edits = {}
    for ladder in ladders:
        if pending:
            context, pending = context.edited(pending), {}
        applies = check_applicability(ladder, context)
        if isinstance(applies, Step):
            steps.append(applies)
            continue
        try:
            run = _run_of(ladder)(ladder, context, applies.scope, applies.warnings, claims)
            step, new_edits = run.outcome()
        except Exception as error:
            steps.append(failure_step(ladder.rule, error))
            continue
        if new_edits and (excess := patch_size_error(merge_edits(context.pod.edits, new_edits))) is not None:
            steps.append(failure_step(ladder.rule, excess))
            continue
        steps.append(step)
        if ladder.rule.mode is Mode.ENFORCE:
            edits, pending = merge_edits(edits, new_edits), new_edits
            claims = claims.after(ladder, step)
    return tuple(steps), edits


class _LadderRun:
    """One ladder's run on one pod. Raises EvaluationError if the pod requests a rung and has too many containers."""

    def __init__(
        self,
        ladder: CompiledLadder,
        context: Context,
        scope: Scope,
        warnings: tuple[str, ...],
        claims: Claims,
        payer: FallbackLadder | None = None,
    ) -> None:
        """Take the ladder whose budget the run spends, if it is another one."""
        self._ladder = ladder
        self._rule = ladder.rule
        self._budget = context.budget_of(payer or ladder.rule)
        self._context = context
        self._scope = scope
        self._warnings = warnings
        self._claims = claims
        self._offers = self._offers_to(ladder)
        self._requested = self._find_requests()
        if self._requested and len(context.pod.containers) > MAX_CONTAINERS:
            raise container_count_error(context.pod)
        # All resources of the ladder that the pod requests: a move adds to what a container requests of its target.
        names = [name for name in ladder.resources if name in context.pod.resources] if self._requested else []
        self._before = DeviceCounts.read(context.pod, names)
        self._counts = self._before
        self._already_decided = [
            name for name in self._requested if name in claims.winners and name in self._before.resources
        ]
        """Resources that earlier ladders decided."""
        self._settled = list(self._already_decided)
        """Decided resources of the changed pod: one node must offer them all together."""

    def _find_requests(self) -> list[str]:
        """Return the resources that the pod requests of the ladder's rungs."""
        return [name for name in self._ladder.resources if name in self._context.pod.resources]

    def _rung_index(self, resource: str) -> int:
        """Return the index of the rung that the pod is on with a resource."""
        return self._ladder.resources.index(resource)

    def _title(self, resource: str) -> str:
        return self._rule.rungs[self._rung_index(resource)].title

    def outcome(self) -> tuple[Step, Edits]:
        """Return the step and the edits of the pod. Raises EvaluationError."""
        winners, requested = self._claims.winners, self._requested
        undecided = [name for name in requested if name not in winners]
        notes = tuple([f"{name} was decided by {winners[name]}" for name in self._already_decided])
        # Without a resource to decide, no container is checked: there may be 60,000.
        containers = self._context.pod.containers if undecided else ()
        errors = [text for item in containers for name in self._before.names if (text := amount_problem(item, name))]
        if errors:
            return self._keep_all(undecided, "malformed", "; ".join(errors)), {}
        indexes = sorted([self._rung_index(name) for name in undecided if name in self._before.resources])
        if not indexes:
            if notes:
                return skip_step(
                    self._rule, "already-decided", "; ".join(notes), self._fields(self._already_decided)
                ), {}
            message = "the pod requests none of its resources"
            return skip_step(self._rule, "no-request", message, self._rule.fields.get("rungs", ())), {}
        if not self._context.cluster.known and not all(self._rule.rungs[index].assume for index in indexes):
            return self._keep_all(undecided, "cluster-unknown", self._context.cluster.freshness.unknown), {}
        try:
            decisions = self._decide_requests(indexes)
        except UnknownOfferError as error:
            # A pod must not pass a ladder that denies by the combination of devices that it requests.
            if isinstance(error, CostlyOfferError) and self._rule.when_exhausted is WhenExhausted.DENY:
                raise CostExceeded(str(error)) from None
            return self._keep_all(undecided, "cluster-unknown", str(error)), {}
        return self._final_step(decisions, notes)

    def _decide_requests(self, indexes: Sequence[int]) -> list[ResourceDecision]:
        """Decide the requests of the rungs at `indexes`. The order matters in two ways."""
        # Direction Up: from the first rung to the last. Down, and DownThenUp, which searches downwards first: from the
        # last rung to the first. So nothing moves onto a rung whose own request then moves away.
        ordered = indexes if self._rule.direction is Direction.UP else indexes[::-1]
        # In every direction, requests that stay are settled before any request moves: a target must be on a node that
        # offers all settled resources together, since the pod runs on one node.
        staying = self._find_staying(ordered)
        moving = [index for index in ordered if index not in staying]
        return [*[self._keep_request(index) for index in staying], *[self._move_request(index) for index in moving]]

    def _find_staying(self, indexes: Sequence[int]) -> list[int]:
        """Return the rungs of the requests that stay, each beside those before."""
        staying: list[int] = []
        for index in indexes:
            if self._stays(index, [self._rule.rungs[each].resource for each in staying]):
                staying.append(index)
        return staying

    def _stays(self, index: int, staying: Sequence[str]) -> bool:
        """Return True if a request stays beside others of the ladder."""
        rung = self._rule.rungs[index]
        return rung.assume or self._is_offered(rung.resource, staying, self._counts.effective, self._ladder)

    def _is_offered(
        self, resource: str, others: Iterable[str], effective: Callable[[str], int], ladder: CompiledLadder
    ) -> bool:
        """Return True if a node offers a resource to a ladder; of devices of drivers, beside other requests.

        Two parts of a card may each be offered though they do not fit together. The assumed rung may be on any node.
        """
        offers = self._offers if ladder is self._ladder else self._offers_to(ladder)
        demand = {resource: effective(resource)}
        if not offers.cover(demand):
            return False
        if not offers.may_be_served(resource):
            return True
        for name in others:
            assumed = any(rung.rung.assume for rung in ladder.rungs if rung.rung.resource == name)
            if offers.may_be_served(name) and not assumed and (nanos := effective(name)):
                self._spend(1)
                demand[name] = nanos
        return len(demand) == 1 or offers.cover(demand)

    def _spend(self, resources: int) -> None:
        """Spend the cost of counting resources in all containers; without it, many of both would take minutes."""
        work = len(self._before.by_container) * resources
        self._budget.spend(work // AMOUNTS_PER_UNIT)

    def _keep_all(self, resources: Sequence[str], reason: str, message: str) -> Step:
        """Return the step of a ladder that moves nothing, with a warning."""
        unknown = reason == "cluster-unknown"
        return rule_step(
            self._rule,
            Action.KEEP,
            reason,
            message,
            warnings=(*self._warnings, f"{self._rule.id} left the pod as it is: {message}"),
            resources=tuple(ResourceDecision(resource=self._title(name), to=None, reason=reason) for name in resources),
            cluster_unknown=unknown,
            requests=self._requests(resources) if unknown else (),
            fields=self._fields(resources),
        )

    def _requests(self, resources: Sequence[str]) -> tuple[ContainerRequest, ...]:
        """Return the requests of these resources, by container."""
        return tuple(
            [
                ContainerRequest(container.name, self._title(name), counts[name])
                for container, counts in zip(self._context.pod.containers, self._before.by_container, strict=True)
                for name in resources
                if name in counts
            ]
        )

    def _fields(self, resources: Iterable[str]) -> tuple[Field, ...]:
        """Return the fields of the rungs that the pod is on with these resources."""
        return tuple([self._ladder.rung_fields[self._title(name)] for name in resources])

    def _keep_request(self, index: int) -> ResourceDecision:
        rung = self._rule.rungs[index]
        self._settled.append(rung.resource)
        return ResourceDecision(resource=rung.resource, to=None, reason="assumed" if rung.assume else "offered")

    def _move_request(self, index: int) -> ResourceDecision:
        """Move a request that cannot stay to the first rung that can serve it."""
        resource = self._rule.rungs[index].resource
        nanos = self._counts.effective(resource)
        alone = self._offers.may_be_served(resource) and self._offers.cover({resource: nanos})
        beside = " beside the requests that stay" if alone else ""
        reason = f"requested, but no node offers {Quantity(nanos)}{beside}{self._failure_clause({resource: nanos})}"
        attempts = [Attempt(resource, False, reason)]
        for target in self._targets(index):
            after = self._counts_after(index, target)
            attempt = self._attempt(target, after)
            attempts.append(attempt)
            if attempt.taken:
                self._counts = after
                self._settled.append(target.rung.resource)
                return ResourceDecision(
                    resource=resource, to=target.rung.resource, reason="moved", attempts=tuple(attempts)
                )
        self._settled.append(resource)
        return ResourceDecision(resource=resource, to=None, reason="exhausted", attempts=tuple(attempts))

    def _targets(self, index: int) -> Iterator[CompiledRung]:
        """Yield the rungs to which the request at `index` may move, in the order of attempts; the assumed rung last."""
        lower = self._ladder.rungs[index + 1 :]
        higher = self._ladder.rungs[:index][::-1]
        match self._rule.direction:
            case Direction.DOWN:
                targets = lower
            case Direction.UP:
                targets = higher
            case _:
                targets = (*lower, *higher)
        yield from [target for target in targets if not target.rung.assume]
        yield from [target for target in targets if target.rung.assume]

    def _counts_after(self, index: int, target: CompiledRung) -> DeviceCounts:
        return self._counts.moved({self._rule.rungs[index].resource: self._replacement(index, target)})

    def _replacement(self, index: int, target: CompiledRung) -> Replacement:
        return self._ladder.replacement(self._rule.rungs[index], target.rung)

    def _attempt(self, target: CompiledRung, after: DeviceCounts) -> Attempt:
        """Try a target. `when` is evaluated first: its errors must not depend on the cluster."""
        resource = target.rung.resource
        if target.when is not None and not self._scope.holds(target.when):
            return Attempt(resource, False, "its condition is false", target.when_field)
        together = dict.fromkeys((resource, *self._settled))
        self._spend(len(together))
        demand = {name: after.effective(name) for name in together}
        if not target.rung.assume and not self._offers.cover(demand):
            missing = " and ".join(f"{Quantity(demand[name])} of {name}" for name in together)
            return Attempt(resource, False, f"no node offers {missing}{self._failure_clause(demand)}")
        for earlier in self._claims.ladders:
            if earlier.pool_keys:
                kept = resource not in earlier.resources or self._keeps(earlier, after.edits)
            else:
                kept = self._would_keep(earlier, resource, after)
            if not kept:
                return Attempt(resource, False, f"{earlier.rule.id} would move it on")
        return Attempt(resource, True, "assumed: nothing else is offered" if target.rung.assume else "offered")

    def _failure_clause(self, demand: Demand) -> str:
        """Return a clause with the reason why the scheduler would reject the pod on all nodes; "" if it would not."""
        failure = self._offers.failure(demand)
        return failure and f": the scheduler rejects the pod on all nodes, since {failure}"

    def _would_keep(self, earlier: CompiledLadder, resource: str, after: DeviceCounts) -> bool:
        """Return True if an earlier ladder keeps the resource, so that a second admission does not change the pod."""

        def effective(name: str) -> int:
            own = name in self._ladder.resources
            return (after if own else DeviceCounts.read(self._context.pod, (name,))).effective(name)

        for rung in earlier.rule.rungs:
            if rung.resource == resource:
                others = (name for name in earlier.resources if name != resource)
                return rung.assume or self._is_offered(resource, others, effective, earlier)
        return True

    def _keeps(self, earlier: CompiledLadder, edits: Edits, reach: Reach | None = None) -> bool:
        """Return True if an earlier ladder, evaluated on the edited pod, would keep all requests as they are."""
        context = self._context.edited(edits, reach)
        return _run_of(earlier)(earlier, context, self._scope, (), Claims(), self._rule).keeps()

    def keeps(self) -> bool:
        """Return True if each request of the pod stays."""
        indexes = [self._rung_index(name) for name in self._requested if name in self._before.resources]
        return len(self._find_staying(indexes)) == len(indexes)

    def _offers_to(self, ladder: CompiledLadder) -> Offers:
        """Return the offers of nodes to a ladder, at the cost of this ladder's budget."""
        context = self._context
        return Offers(ladder.query, context.reach, context.cluster, self._budget)

    def _final_step(self, decisions: Sequence[ResourceDecision], notes: tuple[str, ...]) -> tuple[Step, Edits]:
        exhausted = [decision.resource for decision in decisions if decision.reason == "exhausted"]
        resources = [resource_of(decision.resource) for decision in decisions]
        moves = {decision.resource: decision.to for decision in decisions if decision.to is not None}
        common: Details = {
            "requests": self._requests(resources),
            "resources": tuple(decisions),
            "notes": notes,
            "warnings": self._warnings,
        }
        if exhausted and self._rule.when_exhausted is WhenExhausted.DENY:
            message = f"no rung can serve {', '.join(exhausted)} for pod {self._context.display}"
            common["fields"] = self._rule.fields.get("whenExhausted", ())
            return rule_step(self._rule, Action.DENY, "exhausted", message, **common), {}
        placed = self._place_edits()
        annotations = self._added_annotations(placed)
        if not moves:
            if placed:
                message = f"the pod gets the pool of {decisions[0].resource}"
            else:
                message = ", ".join(f"{decision.resource} is {decision.reason}" for decision in decisions)
            common["fields"] = self._fields(resources)
            common["annotations"] = annotations
            action = Action.CHANGE if placed else Action.KEEP
            return rule_step(self._rule, action, decisions[0].reason, message, **common), placed
        message = ", ".join(f"{source} → {target}" for source, target in moves.items())
        annotations |= self._annotations(moves)
        by_resource = {resource_of(source): resource_of(target) for source, target in moves.items()}
        edits = {**placed, **edits_between(self._before, self._counts, by_resource)}
        if annotations:
            edits = {**edits, ANNOTATIONS: annotations}
        common["annotations"] = annotations
        common["fields"] = tuple(self._ladder.rung_fields[title] for title in dict.fromkeys(moves.values()))
        return rule_step(self._rule, Action.CHANGE, "moved", message, **common), edits

    def _place_edits(self) -> Edits:
        """Return the edits that move the pod to another pool."""
        return {}

    @staticmethod
    def _added_annotations(edits: Edits) -> dict[str, str]:
        return {key: text for key, text in edits.get(ANNOTATIONS, {}).items() if text is not None}

    def _annotations(self, moves: Mapping[str, str]) -> Mapping[str, str]:
        """Return the pod's history: its present value, then each distinct fall, by container and rung."""
        if not self._rule.annotation:
            return {}
        annotations = self._context.pod.annotations
        key = next((name for name in self._rule.histories if name in annotations), self._rule.annotation)
        present = annotations.get(key, "")
        falls = [
            f"{short_name(rung.title)}->{short_name(moves[rung.title])}"
            for counts in self._before.by_container
            for rung in self._rule.rungs
            if rung.resource in counts and rung.title in moves
        ]
        new = [fall for fall in dict.fromkeys(falls) if fall not in present.split(",")]
        return {key: ",".join([present, *new] if present else new)}


class _PoolRun(_LadderRun):
    """The run of a ladder whose rungs have pools: all requests stay in the pod's pool, or move to one pool together."""

    def _find_requests(self) -> list[str]:
        """Return the requested resources of rungs of the pod's pool; none if the pod is left alone."""
        self._left_alone = ""
        """The reason why the pod is left alone."""
        self._unreadable = False
        """True for a pod to decide that selects by the keys of the pools, in a form that names no pool."""
        self._unplaced = False
        """True for a pod that is treated as on the first rung's pool, and does not select it."""
        self._chosen: Mapping[int, CompiledRung] = {}
        self._own_indexes: Mapping[str, int] = {}
        """The rungs of the pod's pool, by resource."""
        self._reaches: dict[tuple[str, ...], Reach] = {(): self._context.reach}
        """Reaches of the pod by the titles of the rungs that it moves to."""
        self._offers_by_reach: dict[tuple[Pool, Reach], Offers] = {}
        names, keys = super()._find_requests(), self._ladder.pool_keys
        if not names:
            return []
        if self._rule.queued is Queued.IGNORE and QUEUE_LABEL in self._context.pod.labels:
            self._left_alone = "the pod is in a queue of Kueue (queued: Ignore)"
            return []
        self._pod_pool = pod_pool = PodPool.of(self._context.pod, self._context.reach.placement, keys)
        pool = tuple((key, pod_pool.labels.get(key)) for key in keys)
        if pod_pool.problem:
            self._left_alone = pod_pool.problem
            undecided = [name for name in names if name not in self._claims.winners]
            self._unreadable = bool(undecided) and not pod_pool.placement.node_name
        elif not any(rung.pool == pool for rung in self._rule.rungs):
            self._unplaced = not pod_pool.labels and self._rule.unplaced is Unplaced.FIRST
            if self._unplaced:
                pool = self._rule.rungs[0].pool
            elif pod_pool.labels:
                self._left_alone = f"the pod selects {pool_text(pool)}, which is no pool of the ladder"
            else:
                self._left_alone = f"the pod does not select nodes by {' or '.join(keys)} (unplaced: Ignore)"
        if self._left_alone:
            return []
        self._own_indexes = {rung.resource: index for index, rung in enumerate(self._rule.rungs) if rung.pool == pool}
        return [name for name in names if name in self._own_indexes]

    def _rung_index(self, resource: str) -> int:
        return self._own_indexes[resource]

    def outcome(self) -> tuple[Step, Edits]:
        rule = self._rule
        if self._unreadable and rule.when_exhausted is WhenExhausted.DENY and rule.opt_out is OptOut.FORBIDDEN:
            message = f"pod {self._context.display} selects no pool of the ladder: {self._left_alone}"
            fields = rule.fields.get("whenExhausted", ())
            return rule_step(rule, Action.DENY, "pool", message, warnings=self._warnings, fields=fields), {}
        if self._left_alone:
            return skip_step(self._rule, "pool", self._left_alone, self._rule.fields.get("rungs", ())), {}
        step, edits = super().outcome()
        placed = self._place_edits() if step.reason == "exhausted" else {}
        if placed:
            # The pod may have a rung with what the first one gives it, such as tolerations: decide as the next call.
            context = self._context.edited(placed)
            applies = check_applicability(self._ladder, context)
            if not isinstance(applies, Step):
                run = _PoolRun(self._ladder, context, applies.scope, self._warnings, self._claims)
                moved, more_edits = run.outcome()
                if moved.reason == "moved":
                    added = self._added_annotations(placed)
                    return replace(moved, annotations={**added, **moved.annotations}), merge_edits(placed, more_edits)
        return step, edits

    def keeps(self) -> bool:
        indexes = [self._rung_index(name) for name in self._requested if name in self._before.resources]
        rungs = self._ladder.rungs
        return not indexes or (not self._unplaced and self._cover({index: rungs[index] for index in indexes})[0])

    def _decide_requests(self, indexes: Sequence[int]) -> list[ResourceDecision]:
        """Decide all requests together. The first takes its own rung or another one; the others follow it.

        They are decided in the order of other ladders. Each takes its own rung if that is in the pool, else the first
        rung in the pool that one node offers together with those before; if a request has none, the next rung of the
        first request is tried.
        """
        lead, *_ = ordered = indexes if self._rule.direction is Direction.UP else indexes[::-1]
        attempts: dict[int, list[Attempt]] = {index: [] for index in ordered}
        for target in (self._ladder.rungs[lead], *self._targets(lead)):
            chosen = self._follow(ordered, target, attempts)
            if chosen:
                break
        own = {index: self._ladder.rungs[index] for index in ordered}
        reason = "moved" if chosen else "exhausted"
        # Without a rung, a pod that selects no pool gets the first one nevertheless.
        if not chosen and self._unplaced and not (self._fixed_obstacle(own) or self._claims_obstacle(own)):
            chosen = own
        self._chosen, self._counts = chosen, self._moved(chosen)
        return [self._decision(index, chosen.get(index), attempts[index], reason) for index in ordered]

    def _decision(
        self, index: int, taken: CompiledRung | None, attempts: Sequence[Attempt], reason: str
    ) -> ResourceDecision:
        rung = self._rule.rungs[index]
        to = None if taken is None or taken.rung is rung else taken.rung.title
        if to is None and reason == "moved":
            reason = "placed" if self._unplaced else "assumed" if rung.assume else "offered"
            attempts = ()
        return ResourceDecision(resource=rung.title, to=to, reason=reason, attempts=tuple(attempts))

    def _follow(
        self, ordered: Sequence[int], first: CompiledRung, attempts: Mapping[int, list[Attempt]]
    ) -> Mapping[int, CompiledRung]:
        """Return the rungs of all requests if the first request takes this rung; none if one of them has no rung."""
        chosen: dict[int, CompiledRung] = {}
        for index in ordered:
            options = (self._ladder.rungs[index], *self._targets(index)) if chosen else (first,)
            for option in options:
                if option.rung.pool != first.rung.pool:
                    continue
                attempt = self._try_option(index, option, chosen)
                attempts[index].append(attempt)
                if attempt.taken:
                    chosen[index] = option
                    break
            else:
                return {}
        return chosen

    def _try_option(self, index: int, option: CompiledRung, before: Mapping[int, CompiledRung]) -> Attempt:
        """Try a rung beside those that the requests decided before take."""
        title, stays = option.rung.title, option is self._ladder.rungs[index]
        if not stays and option.when is not None and not self._scope.holds(option.when):
            return Attempt(title, False, "its condition is false", option.when_field)
        chosen = {**before, index: option}
        changes = bool(self._arrivals(chosen))
        obstacle = self._fixed_obstacle(chosen) if changes else ""
        if obstacle:
            return Attempt(title, False, obstacle)
        covered, missing = self._cover(chosen)
        if not covered:
            start = "requested, but " if stays and not self._unplaced else ""
            which = " that the pod may run on" if self._ladder.query.by_pod else ""
            return Attempt(title, False, f"{start}no node of its pool{which} offers {missing}")
        obstacle = self._claims_obstacle(chosen) if changes else ""
        if obstacle:
            return Attempt(title, False, obstacle)
        return Attempt(title, True, "assumed: nothing else is offered" if option.rung.assume else "offered")

    def _fixed_obstacle(self, chosen: Mapping[int, CompiledRung]) -> str:
        """Return the reason why the pod cannot move to these rungs whatever the nodes offer, or ""."""
        pod_pool = self._pod_pool
        for key, value in next(iter(chosen.values())).rung.pool:
            if key in self._claims.pool_keys and pod_pool.labels.get(key) != value:
                return f"an earlier ladder decided {key}"
        named = pod_pool.runtime_class
        for rung in self._arrivals(chosen):
            wanted = rung.place.runtime_class_name
            if wanted and named and wanted != named:
                return f"the pod names the runtime class {named}, not {wanted}"
            named = named or wanted
        return ""

    def _claims_obstacle(self, chosen: Mapping[int, CompiledRung]) -> str:
        """Return the reason why a second admission would change the pod on these rungs, or ""."""
        if not self._claims.ladders:
            return ""
        edits = {**self._moved(chosen).edits, **self._edits_to(chosen)}
        moves_pod = changes_placement(edits)
        resources = {target.rung.resource for target in chosen.values()}
        reach = self._reach_on(chosen)
        for earlier in self._claims.ladders:
            affected = earlier.pool_keys or (moves_pod and earlier.query.by_pod)
            if (affected or not resources.isdisjoint(earlier.resources)) and not self._keeps(earlier, edits, reach):
                return f"{earlier.rule.id} would move it on"
        return ""

    def _moved(self, chosen: Mapping[int, CompiledRung], undecided: Iterable[str] = ()) -> DeviceCounts:
        """Return the counts of the pod on these rungs, without the requests that are not decided yet."""
        moves: dict[str, Replacement | None] = dict.fromkeys(undecided)
        for index, target in chosen.items():
            if target is self._ladder.rungs[index]:
                moves.pop(target.rung.resource, None)
            else:
                moves[self._rule.rungs[index].resource] = self._replacement(index, target)
        return self._before.moved(moves)

    def _cover(self, chosen: Mapping[int, CompiledRung]) -> tuple[bool, str]:
        """Return True if one node of the rungs' pool offers all of their devices together, and the devices in words."""
        undecided = [name for name in self._requested if name not in self._claims.winners]
        after = self._moved(chosen, undecided)
        # The pod may request a resource that has a rung in this pool and none in its present one.
        pool, requested = next(iter(chosen.values())).rung.pool, after.resources
        needed = [
            rung.resource
            for rung in self._rule.rungs
            if rung.pool == pool and not rung.assume and rung.resource in requested
        ]
        together = dict.fromkeys([*needed, *self._already_decided]) if needed else {}
        work = 1 + len(after.by_container) * len(together)
        self._budget.spend(work)
        demand = {name: after.effective(name) for name in together}
        missing = " and ".join(f"{Quantity(nanos)} of {name}" for name, nanos in demand.items())
        return not demand or self._offers_on(chosen).cover(demand), missing

    def _offers_on(self, chosen: Mapping[int, CompiledRung]) -> Offers:
        """Return the offers of the rungs' pool to the pod as it would be on these rungs."""
        pool = next(iter(chosen.values())).rung.pool
        reach = self._reach_on(chosen)
        key = pool, reach
        if key not in self._offers_by_reach:
            self._offers_by_reach[key] = Offers(self._ladder.query, reach, self._context.cluster, self._budget, pool)
        return self._offers_by_reach[key]

    def _reach_on(self, chosen: Mapping[int, CompiledRung]) -> Reach:
        """Return the reach of the pod as it would be on these rungs."""
        arrivals = self._arrivals(chosen)
        key = tuple([rung.title for rung in arrivals])
        if key not in self._reaches:
            self._reaches[key] = self._context.reach.moved(self._pod_pool.placement_on(arrivals))
        return self._reaches[key]

    def _arrivals(self, chosen: Mapping[int, CompiledRung]) -> tuple[Rung, ...]:
        """Return the rungs to which requests move; a pod that selects no pool moves to its own."""
        rungs = self._ladder.rungs
        return tuple([to.rung for index, to in chosen.items() if self._unplaced or to is not rungs[index]])

    def _edits_to(self, chosen: Mapping[int, CompiledRung]) -> Edits:
        """Return the edits of the pod beside its resources."""
        rungs = self._arrivals(chosen)
        return self._pod_pool.edits_to(rungs) if rungs else {}

    def _place_edits(self) -> Edits:
        return self._edits_to(self._chosen)


def _run_of(ladder: CompiledLadder) -> type[_LadderRun]:
    return _PoolRun if ladder.pool_keys else _LadderRun
