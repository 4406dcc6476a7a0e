"""Fallback ladders: they replace a requested GPU resource that no node offers."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec import Struct

from rules_engine.cel import Program
from rules_engine.cel.program import constant_texts
from rules_engine.evaluation.applicability import (
    MAX_CONTAINERS,
    amount_problem,
    check_applicability,
    container_count_error,
)
from rules_engine.evaluation.context import Context, NamedProgram, Scope
from rules_engine.evaluation.nodes import Demand, NodeQuery, Offered
from rules_engine.evaluation.nodes.offers import AMOUNTS_PER_UNIT, Offers, UnknownOfferError
from rules_engine.evaluation.rule_set.compiled import CompiledRule
from rules_engine.evaluation.rule_set.compiler import Compiler
from rules_engine.evaluation.steps import Details, failure_step, patch_size_error, rule_step, skip_step
from rules_engine.kinds.ladder.counts import DeviceCounts, edits_between
from rules_engine.kinds.ladder.problem_codes import LadderCode
from rules_engine.kinds.ladder.value import Counts, Direction, FallbackLadder, Rung, WhenExhausted
from rules_engine.model.gpu.resources import short_name
from rules_engine.model.json.edits import Edits, merge_edits
from rules_engine.model.kubernetes.pod import ANNOTATIONS
from rules_engine.model.kubernetes.quantity import Quantity
from rules_engine.model.problems.source import Field
from rules_engine.model.rules.decision import Action, Attempt, ContainerRequest, ResourceDecision, Step
from rules_engine.model.rules.rule import Mode, RuleId

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
    of each rung by its resource.
    """

    rungs: tuple[CompiledRung, ...]
    resources: tuple[str, ...] = field(init=False, repr=False, compare=False)
    query: NodeQuery = field(init=False, repr=False, compare=False)
    rung_fields: Mapping[str, Field] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "rung_fields", {rung.rung.resource: rung.field for rung in self.rungs})
        object.__setattr__(self, "resources", self.rule.rung_resources)
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
    request to decide: in a second admission of the result, each is evaluated before later ladders.
    """

    winners: Mapping[str, RuleId] = {}
    ladders: tuple[CompiledLadder, ...] = ()

    def after(self, ladder: CompiledLadder, step: Step) -> "Claims":
        resources = [name for decision in step.resources for name in (decision.resource, decision.to) if name]
        return Claims({**dict.fromkeys(resources, ladder.rule.id), **self.winners}, (*self.ladders, ladder))


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
            step, new_edits = _LadderRun(ladder, context, applies.scope, applies.warnings, claims).outcome()
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
        self, ladder: CompiledLadder, context: Context, scope: Scope, warnings: tuple[str, ...], claims: Claims
    ) -> None:
        self._ladder = ladder
        self._rule = ladder.rule
        self._context = context
        self._scope = scope
        self._warnings = warnings
        self._claims = claims
        self._offers = self._offers_to(ladder)
        self._requested = [name for name in ladder.resources if name in context.pod.resources]
        if self._requested and len(context.pod.containers) > MAX_CONTAINERS:
            raise container_count_error(context.pod)
        self._before = DeviceCounts.read(context.pod, self._requested)
        self._counts = self._before
        self._already_decided = [
            name for name in self._requested if name in claims.winners and name in self._before.resources
        ]
        """Resources that earlier ladders decided."""
        self._settled = list(self._already_decided)
        """Decided resources of the changed pod: one node must offer them all together."""

    def outcome(self) -> tuple[Step, Edits]:
        """Return the step and the edits of the pod. Raises EvaluationError."""
        winners, requested = self._claims.winners, self._requested
        undecided = [name for name in requested if name not in winners]
        notes = tuple([f"{name} was decided by {winners[name]}" for name in self._already_decided])
        # Without a resource to decide, no container is checked: there may be 60,000.
        containers = self._context.pod.containers if undecided else ()
        errors = [text for item in containers for name in requested if (text := amount_problem(item, name))]
        if errors:
            return self._keep_all(undecided, "malformed", "; ".join(errors)), {}
        indexes = [self._ladder.resources.index(name) for name in undecided if name in self._before.resources]
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
            return self._keep_all(undecided, "cluster-unknown", str(error)), {}
        return self._final_step(decisions, notes)

    def _decide_requests(self, indexes: Sequence[int]) -> list[ResourceDecision]:
        """Decide the requests of the rungs at `indexes`. The order matters in two ways."""
        # Direction Up: from the first rung to the last. Down, and DownThenUp, which searches downwards first: from the
        # last rung to the first. So nothing moves onto a rung whose own request then moves away.
        ordered = indexes if self._rule.direction is Direction.UP else indexes[::-1]
        # In every direction, requests that stay are settled before any request moves: a target must be on a node that
        # offers all settled resources together, since the pod runs on one node.
        staying: list[int] = []
        for index in ordered:
            if self._stays(index, [self._rule.rungs[each].resource for each in staying]):
                staying.append(index)
        moving = [index for index in ordered if index not in staying]
        return [*[self._keep_request(index) for index in staying], *[self._move_request(index) for index in moving]]

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
        self._context.budget_of(self._rule).spend(work // AMOUNTS_PER_UNIT)

    def _keep_all(self, resources: Sequence[str], reason: str, message: str) -> Step:
        """Return the step of a ladder that moves nothing, with a warning."""
        unknown = reason == "cluster-unknown"
        return rule_step(
            self._rule,
            Action.KEEP,
            reason,
            message,
            warnings=(*self._warnings, f"{self._rule.id} left the pod as it is: {message}"),
            resources=tuple(ResourceDecision(resource=name, to=None, reason=reason) for name in resources),
            cluster_unknown=unknown,
            requests=self._requests(resources) if unknown else (),
            fields=self._fields(resources),
        )

    def _requests(self, resources: Sequence[str]) -> tuple[ContainerRequest, ...]:
        """Return the requests of these resources, by container."""
        return tuple(
            [
                ContainerRequest(container.name, name, counts[name])
                for container, counts in zip(self._context.pod.containers, self._before.by_container, strict=True)
                for name in resources
                if name in counts
            ]
        )

    def _fields(self, resources: Iterable[str]) -> tuple[Field, ...]:
        """Return the fields of the rungs of these resources."""
        return tuple([self._ladder.rung_fields[name] for name in resources])

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
        source = self._rule.rungs[index]
        if self._rule.counts is Counts.KEEP:
            return self._counts.move_resource(source.resource, target.rung.resource, 1, 1)
        return self._counts.move_resource(
            source.resource, target.rung.resource, source.weight or 1, target.rung.weight or 1
        )

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
            if not self._would_keep(earlier, resource, after):
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

    def _offers_to(self, ladder: CompiledLadder) -> Offers:
        """Return the offers of nodes to a ladder, at the cost of this ladder's budget."""
        context = self._context
        return Offers(ladder.query, context.reach, context.cluster, context.budget_of(self._rule))

    def _final_step(self, decisions: Sequence[ResourceDecision], notes: tuple[str, ...]) -> tuple[Step, Edits]:
        exhausted = [decision.resource for decision in decisions if decision.reason == "exhausted"]
        moves = {decision.resource: decision.to for decision in decisions if decision.to is not None}
        common: Details = {
            "requests": self._requests([decision.resource for decision in decisions]),
            "resources": tuple(decisions),
            "notes": notes,
            "warnings": self._warnings,
        }
        if exhausted and self._rule.when_exhausted is WhenExhausted.DENY:
            message = f"no rung can serve {', '.join(exhausted)} for pod {self._context.display}"
            common["fields"] = self._rule.fields.get("whenExhausted", ())
            return rule_step(self._rule, Action.DENY, "exhausted", message, **common), {}
        if not moves:
            message = ", ".join(f"{decision.resource} is {decision.reason}" for decision in decisions)
            common["fields"] = self._fields([decision.resource for decision in decisions])
            return rule_step(self._rule, Action.KEEP, decisions[0].reason, message, **common), {}
        message = ", ".join(f"{source} → {target}" for source, target in moves.items())
        annotations = self._annotations(moves)
        edits = edits_between(self._before, self._counts, moves)
        if annotations:
            edits = {**edits, ANNOTATIONS: annotations}
        common["annotations"] = annotations
        common["fields"] = self._fields(dict.fromkeys(moves.values()))
        return rule_step(self._rule, Action.CHANGE, "moved", message, **common), edits

    def _annotations(self, moves: Mapping[str, str]) -> Mapping[str, str]:
        """Return the rule's annotation: its present value, then each distinct fall, by container and rung."""
        key = self._rule.annotation
        if not key:
            return {}
        present = self._context.pod.annotations.get(key, "")
        falls = [
            f"{short_name(rung.resource)}->{short_name(moves[rung.resource])}"
            for counts in self._before.by_container
            for rung in self._rule.rungs
            if rung.resource in counts and rung.resource in moves
        ]
        new = [fall for fall in dict.fromkeys(falls) if fall not in present.split(",")]
        return {key: ",".join([present, *new] if present else new)}
