"""PodDefaults: members that pods get, merged with their own.

For each key, such as a label or an environment variable of a container, the first rule that applies and names the key
decides it.
"""

from collections.abc import Iterator, Mapping, Sequence, Set
from copy import copy
from dataclasses import dataclass, field, replace
from typing import NamedTuple, cast

from rules_engine.accelerators.resources import requests_gpus_by_annotation
from rules_engine.language.cel import EvaluationError, Program
from rules_engine.language.cel.values.types import REQUESTED
from rules_engine.model.json.edits import Edits, merge_edits
from rules_engine.model.json.lenient import as_mapping, object_items, text_member
from rules_engine.model.json.patch import Json
from rules_engine.model.json.strict import JsonPath, read_list, read_mapping
from rules_engine.model.kubernetes.api_defaults import CONTAINER_LISTS
from rules_engine.model.kubernetes.quantity import Quantity, QuantityError, parse_quantity
from rules_engine.model.rules.decision import Action, AddedMember, Step
from rules_engine.model.rules.rule import Mode, RuleId
from rules_engine.rules.evaluation.applicability import AMOUNTS_PER_UNIT, MAX_CONTAINERS, Applies, check_applicability
from rules_engine.rules.evaluation.steps import Details, failure_step, patch_size_error, rule_step
from rules_engine.rules.pod_defaults.value import DefaultsEntry, OnConflict, PodDefaults
from rules_engine.rules.pod_members.value import FIELDS, Computed, Form, Member, PodField, value_with
from rules_engine.rules.pod_members.writing import MemberWriter, Present, identity_of
from rules_engine.rules.rule_set.compiled import CompiledRule
from rules_engine.rules.rule_set.compiler import Compiler
from rules_engine.rules.rule_set.context import Context, ExpressionScope

DEFAULT_SCHEDULER = "default-scheduler"
"""The name that the API server sets in pods without a scheduler."""

_VOLUMES, _MOUNTS = FIELDS["volumes"], FIELDS["volumeMounts"]
_TYPES = {"int": int, "bool": bool}
"""Types of computed values; all others are strings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledPodDefaults(CompiledRule[PodDefaults]):
    """Compiled PodDefaults. `values`: the expressions of computed values by their places.

    `places`: the rule may change the nodes that a pod may run on.
    """

    values: Mapping[str, Program] = field(repr=False)
    places: bool

    @property
    def own_programs(self) -> tuple[Program, ...]:
        return tuple(self.values.values())

    @property
    def reads_classes(self) -> bool:
        """True if a pod may get a PriorityClass or a RuntimeClass."""
        return self.rule.adds("priorityClassName", "runtimeClassName")


def compile_pod_defaults(rule: PodDefaults, compiler: Compiler) -> CompiledPodDefaults:
    """Compile the expressions of values; an inherited one is compiled once."""
    compiler.environment = compiler.environment.with_variables(requested=REQUESTED)
    groups = ((entry.pod, *(group.members for group in entry.containers)) for entry in rule.entries)
    parts = {
        str(part.expression.location): part
        for members in groups
        for each in members
        for member in each
        for part in member.computed
    }
    values: dict[str, Program] = {}
    for place, part in parts.items():
        compiled = compiler.expression if part.shape in _TYPES else compiler.text
        if program := compiled(part.expression):
            values[place] = program
    return CompiledPodDefaults(
        rule=rule,
        variables=compiler.variables,
        conditions=compiler.conditions,
        values=values,
        places=rule.adds("tolerations", "nodeSelector", "runtimeClassName"),
    )


class _Key(NamedTuple):
    """Key that one rule decides alone: a member of the pod, or of the container at `where`."""

    where: JsonPath
    field: str
    name: str


def apply_pod_defaults(rules: Sequence[CompiledPodDefaults], context: Context) -> tuple[tuple[Step, ...], Edits]:
    """Evaluate all PodDefaults in order. Return their steps, and the edits of those that enforce."""
    facts = _Facts(_requests_by_annotation(context))
    steps, edits, unmounted = _apply(rules, context, facts)
    # What is written decides which containers are Requesting, and which volumes are mounted, as it will the next time.
    after = context.edited(edits) if edits else context
    needed = _lacking_volumes(after) & unmounted if unmounted else frozenset[str]()
    found = _Facts(_requests_by_annotation(after), needed)
    return _apply(rules, context, found)[:2] if found != facts else (steps, edits)


class _Facts(NamedTuple):
    """Facts of the pod after all rules: it requests GPUs by an annotation; volumes that it mounts and does not have."""

    by_annotation: bool
    needed: frozenset[str] = frozenset()


def _requests_by_annotation(context: Context) -> bool:
    return bool(requests_gpus_by_annotation(read_mapping(context.pod.raw, ())))


def _lacking_volumes(context: Context) -> frozenset[str]:
    """Return the volumes that some container mounts and the pod does not have."""
    spec = as_mapping(read_mapping(context.pod.raw, ()).get("spec"))
    containers = (each for member in CONTAINER_LISTS for each in object_items(spec.get(member)))
    mounts = (mount for each in containers for mount in object_items(each.get("volumeMounts")))
    present = {text_member(volume, "name") for volume in object_items(spec.get("volumes"))}
    return frozenset(text_member(mount, "name") for mount in mounts) - present


def _apply(
    rules: Sequence[CompiledPodDefaults], context: Context, facts: _Facts
) -> tuple[tuple[Step, ...], Edits, Set[str]]:
    """Return the steps, the edits, and the volumes that were not added since their rule's mounts were not."""
    unmounted: set[str] = set()
    steps: list[Step] = []
    writer = MemberWriter(read_mapping(context.pod.raw, ()))
    claimed: dict[_Key, RuleId] = {}
    for compiled in rules:
        applies = check_applicability(compiled, context)
        if isinstance(applies, Step):
            steps.append(applies)
            continue
        try:
            merge = _Merge(compiled, context, applies, claimed, writer, facts)
            merge.run()
            excess = patch_size_error(context.pod.edits, merge.writer.bytes)
        except Exception as error:
            # Its failurePolicy decides; an ignored rule changes nothing, not even in part.
            steps.append(failure_step(compiled.rule, error))
            continue
        if excess is not None:
            steps.append(failure_step(compiled.rule, excess))
            continue
        steps.append(merge.step())
        if compiled.rule.mode is Mode.ENFORCE:
            writer = merge.writer
            claimed.update(dict.fromkeys(merge.keys, compiled.rule.id))
            unmounted |= merge.unmounted
    return tuple(steps), writer.edits, unmounted


class _Target(NamedTuple):
    """A pod, or a container: its path in the pod, and its name; both are empty for a pod."""

    where: JsonPath = ()
    name: str = ""

    def title(self, member: Member) -> str:
        return f"{self.name}.{member.title}" if self.name else member.title


class _Merge:
    """The members of one rule in one pod. `keys`: what the rule decides. `before`: what earlier rules have written."""

    def __init__(
        self,
        compiled: CompiledPodDefaults,
        context: Context,
        applies: Applies,
        claimed: Mapping[_Key, RuleId],
        before: MemberWriter,
        facts: _Facts,
    ) -> None:
        self._rule = compiled.rule
        self._values = compiled.values
        self._by_annotation = facts.by_annotation and not compiled.rule.match.resources
        self._needed = facts.needed
        self._context = context
        self._scope: ExpressionScope = applies.scope
        self._warnings = applies.warnings
        self._claimed = claimed
        self._budget = context.budget_of(self._rule)
        self._entry: DefaultsEntry = self._rule.entry(context.namespace)
        self._notes: list[str] = []
        self._added: list[AddedMember] = []
        self._cluster_unknown = False
        self.keys: set[_Key] = set()
        self.unmounted: set[str] = set()
        self._computed: dict[int, Json] = {}
        """Values of members by their ids: one member may be for many containers."""
        self.writer = copy(before)
        self.writer.detach(self._budget.spend)

    def run(self) -> None:
        """Write all members. Raises EvaluationError and PodError."""
        targets = [*self._chosen()] if self._entry.containers else []
        pod = [(member, self._value(member)) for member in self._entry.pod]
        containers = [(target, member, self._value(member)) for target, member in targets]
        # A volume that the pod does not get, or that stays another one, must not be mounted.
        kept = {
            member.name
            for member, value in pod
            if member.field is _VOLUMES and not self._may_write_volume(member, value)
        }
        mounted: set[str] = set()
        in_memory = {member.name: size for member, value in pod if (size := _memory_size(value)) is not None}
        for target, member, value in containers:
            volume = self._volume_of(member, value)
            if volume in kept:
                self._notes.append(f"{target.title(member)} is not added: the pod does not get this volume {volume}")
                self.keys.add(_Key(target.where, member.field.name, member.name))
            elif self._merge(target, member, value) or (volume and volume == self._volume_at(target, value)):
                mounted.add(volume)
                if volume in in_memory:
                    self._warn_of_size(target, volume, in_memory[volume])
        named = {self._volume_of(each, each.value) for group in self._entry.containers for each in group.members}
        for member, value in pod:
            if member.field is _VOLUMES and member.name in named - mounted - kept - self._needed:
                self.unmounted.add(member.name)
                self._notes.append(f"{member.title} is not added: no container mounts it")
            else:
                self._merge(_Target(), member, value)

    def _warn_of_size(self, target: _Target, volume: str, size: Quantity) -> None:
        """Warn of a volume in memory that is larger than its container's limit, which no injection will change."""
        limits = (each.limits.get("memory") for each in self._context.pod.containers if each.path == target.where)
        limit = next(limits, None)
        if limit is not None and limit < size and "memory" not in self._context.given(self._context.namespace):
            warning = (
                f"the volume {volume} may hold {size} in memory, which counts for {target.name}: its limit is {limit}"
            )
            self._warnings = (*self._warnings, f"{self._rule.id}: {warning}")

    def _volume_of(self, member: Member, value: Json) -> str:
        """Return the volume that a mount names; "" for other members."""
        return str(read_mapping(value, ()).get("name")) if member.field is _MOUNTS else ""

    def _volume_at(self, target: _Target, mount: Json) -> str:
        """Return the volume that a container mounts at the path of a mount; "" for none."""
        present = self.writer.value(_MOUNTS, identity_of(_MOUNTS, mount), target.where)
        return text_member(as_mapping(present), "name")

    def _may_write_volume(self, member: Member, value: Json) -> bool:
        present = self.writer.compare(member.field, member.name, value)
        if present is Present.EQUAL or _Key((), member.field.name, member.name) in self._claimed:
            return present is Present.EQUAL
        return present is Present.ABSENT or self._rule.on_conflict is OnConflict.OVERWRITE

    def _chosen(self) -> Iterator[tuple[_Target, Member]]:
        """Yield the members of each container, the first one of each key."""
        parsed = {container.path: container for container in self._context.pod.containers}
        spec = read_mapping(self.writer.pod.get("spec"), ("spec",))
        lists = {name: read_list(spec.get(name), ("spec", name)) for name in CONTAINER_LISTS}
        count = sum(map(len, lists.values()))
        if count > MAX_CONTAINERS:
            message = f"/spec/containers: {count} containers and init containers, more than {MAX_CONTAINERS}"
            raise EvaluationError(message)
        self._budget.spend(count + self._context.pod.amount_count // AMOUNTS_PER_UNIT)
        for owner, items in lists.items():
            for index, raw in enumerate(items):
                path: JsonPath = ("spec", owner, index)
                container = parsed.get(path)
                amounts = {} if container is None else {**container.requests, **container.limits}
                # Which container uses GPUs that an annotation requests is not known.
                requesting = self._by_annotation or any(
                    amount.nanos > 0 and self._rule.counts(name) for name, amount in amounts.items()
                )
                name = str(read_mapping(raw, path).get("name") or "")
                members: dict[tuple[str, str], Member] = {}
                for group in self._entry.containers:
                    if group.chooses(name, requesting=requesting):
                        self._budget.spend(len(group.members))
                        for member in group.members:
                            members.setdefault((member.field.name, member.name), member)
                yield from ((_Target(path, name), member) for member in members.values())

    def _value(self, member: Member) -> Json:
        """Return the value of a member with its computed parts. Raises EvaluationError."""
        if id(member) in self._computed:
            return self._computed[id(member)]
        value = member.value
        for part in member.computed:
            computed = self._scope.value(self._values[str(part.expression.location)])
            if problem := _computed_problem(member.field, part, computed):
                raise EvaluationError(f"the value of {member.title} {problem}", part.expression.at(0))
            value = value_with(value, part.path, cast(Json, computed))
        self._computed[id(member)] = value
        return value

    def _merge(self, target: _Target, member: Member, value: Json) -> bool:
        """Write a member unless another rule decides it, or the pod keeps its own. Return True if the pod has it."""
        field, title = member.field, target.title(member)
        name = identity_of(field, value) if field.form is Form.LIST else member.name
        key = _Key(target.where, field.name, name)
        self.keys.add(key)
        present = self.writer.compare(field, name, value, target.where)
        if present is Present.EQUAL:
            return True
        if (winner := self._claimed.get(key)) is not None:
            self._notes.append(f"{title} is decided by {winner}")
            return False
        own = self.writer.value(field, name, target.where)
        replaced = present is Present.OTHER and not self._is_default(field, own)
        if replaced and (reason := self._reason_to_keep(field, own)):
            self._notes.append(f"{title} stays: {reason}")
            return False
        self.writer.write(field, name, value, target.where)
        self._added.append(
            AddedMember(
                container=target.name, member=replace(member, value=value).title, value=value, replaced=replaced
            )
        )
        return True

    def _reason_to_keep(self, field: PodField, own: Json) -> str:
        """Return why the pod's own value stays, or ""."""
        if field.name == "runtimeClassName":
            return f"the pod names the runtime class {own}, whose settings are merged already"
        if self._rule.on_conflict is OnConflict.OVERWRITE:
            return ""
        if field.name == "priorityClassName" and self._context.cluster.classes.priority is None:
            self._cluster_unknown = True
            return "it is not known whether that is the default class, since PriorityClasses were not read"
        return "onConflict Keep"

    def _is_default(self, field: PodField, own: Json) -> bool:
        """Return True for a value that the API server sets in pods without one."""
        if field.name == "priorityClassName":
            return (self._context.cluster.classes.priority or {}).get(str(own), False)
        return field.name == "schedulerName" and own == DEFAULT_SCHEDULER

    def step(self) -> Step:
        """Return the step of the rule."""
        rule = self._rule
        common: Details = {
            "warnings": self._warnings,
            "fields": self._entry.fields,
            "notes": tuple(self._notes),
            "cluster_unknown": self._cluster_unknown,
        }
        if not self._entry:
            return rule_step(
                rule, Action.KEEP, "empty-entry", f"adds nothing in the namespace {self._context.namespace}", **common
            )
        if not self._added:
            return rule_step(rule, Action.KEEP, "present", self._unchanged_message(), **common)
        common["members"] = tuple(self._added)
        names = dict.fromkeys(each.member.partition(".")[0] for each in self._added)
        return rule_step(rule, Action.CHANGE, "added", f"adds {', '.join(names)}", **common)

    def _unchanged_message(self) -> str:
        if not self.keys:
            return "`which` chooses no container"
        first, *others = self._notes or ["the pod has all of it"]
        return f"{first}, and {len(others)} more" if others else first


def _memory_size(volume: Json) -> Quantity | None:
    """Return the size of a volume in memory; None for another one, and without a limit."""
    empty_dir = as_mapping(as_mapping(volume).get("emptyDir"))
    try:
        return parse_quantity(text_member(empty_dir, "sizeLimit")) if empty_dir.get("medium") == "Memory" else None
    except QuantityError:
        return None


def _computed_problem(field: PodField, part: Computed, value: object) -> str:
    """Return why a computed value cannot be written; "" if it can."""
    if type(value) is not _TYPES.get(part.shape, str):
        return f"is not of type {part.shape}"
    if part.shape == "quantity":
        try:
            parse_quantity(str(value))
        except QuantityError:
            return "is no quantity"
    return "" if part.path else field.problem(str(value))


def foresee_placement(rules: Sequence[CompiledPodDefaults], context: Context) -> Edits:
    """Return what rules will change of a pod's placement, its runtime class included, for ladders to decide with."""
    placing = [each for each in rules if each.places and each.rule.mode is Mode.ENFORCE]
    _, edits = apply_pod_defaults(placing, context)
    context.budget.spend(1)  # raises if rules failed since the budget is used up
    writer = MemberWriter(read_mapping(context.edited(edits).pod.raw, ()), context.budget.spend)
    name, classes = writer.value(FIELDS["runtimeClassName"], ""), context.cluster.classes.runtime or {}
    if scheduling := classes.get(str(name)):
        selector, tolerations = FIELDS["nodeSelector"], FIELDS["tolerations"]
        members: list[tuple[PodField, str, Json]]
        members = [(selector, key, value) for key, value in scheduling.node_selector.items()]
        members += [(tolerations, identity_of(tolerations, {**each}), {**each}) for each in scheduling.tolerations]
        for field, key, value in members:
            if writer.compare(field, key, value) is Present.ABSENT:
                writer.write(field, key, value)
    return merge_edits(edits, writer.edits)
