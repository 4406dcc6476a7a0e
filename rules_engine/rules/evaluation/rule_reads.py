"""Rules that read members that a request lacks: the user who created a live pod, and values that were removed."""

from collections.abc import Collection, Iterable, Mapping
from functools import reduce
from types import MappingProxyType

from rules_engine.language.cel import Program
from rules_engine.language.cel.reads import ReadPath, Reads
from rules_engine.language.cel.values.types import ADMISSION_REQUEST, POD
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.kept_fields import NO_FIELDS, Kept, keeps_path, merge_fields
from rules_engine.model.kubernetes.removed_values import MemberPath, removed_values
from rules_engine.model.problems.source import Field
from rules_engine.model.rules.decision import UNMET_CONDITION, Action, Step
from rules_engine.model.rules.rule import Rule, RuleId
from rules_engine.rules.evaluation.applicability import UNMATCHED_REASONS
from rules_engine.rules.rule_set.compiled import CompiledRule
from rules_engine.rules.rule_set.rule_set import RuleSet

USER: Mapping[str, MemberPath] = MappingProxyType({"request.userInfo": ("userInfo",)})
"""The user: neither manifests nor live pods say who submitted them."""

_ROOTS = {
    "request": ReadPath("request", ADMISSION_REQUEST),
    **{name: ReadPath("request", POD, (name,)) for name in ("object", "oldObject")},
}


def fields_read_by(compiled: CompiledRule[Rule], programs: Iterable[Program]) -> Kept:
    """Return the members of a request that expressions of a rule read, directly or by its variables."""
    variables = {name: variable.program.checked for name, variable in compiled.variables.items()}
    reads = Reads(_ROOTS, variables, compiled.rule.params)
    for program in programs:
        reads.add(program.checked)
    return reads.kept.get("request", NO_FIELDS)


def missing_members(pod: Mapping[str, Json]) -> Mapping[str, MemberPath]:
    """Return paths of the members of a request that a pod of a cluster lacks, by name."""
    return {**USER, **removed_members(pod)}


def removed_members(pod: Mapping[str, Json]) -> Mapping[str, MemberPath]:
    """Return paths of the members of a request that were removed from its pod, by name."""
    return {f"object.{name}": ("object", *path) for name, path in removed_values(pod).items()}


class RuleReads:
    """The members of requests that the rules of a set read."""

    def __init__(self, rule_set: RuleSet) -> None:
        self._reads = {compiled.rule.id: fields_read_by(compiled, compiled.programs) for compiled in rule_set.rules}
        self._all_reads = reduce(merge_fields, self._reads.values(), NO_FIELDS)
        self._condition_reads: dict[tuple[RuleId, tuple[Field, ...]], Kept] = {
            (compiled.rule.id, condition.fields): fields_read_by(compiled, (condition.program,))
            for compiled in rule_set.rules
            for condition in compiled.conditions
        }

    def dependent_rules(
        self, trace: Iterable[Step], missing: Mapping[str, MemberPath]
    ) -> Mapping[RuleId, Collection[str]]:
        """Return the rules that may decide differently with the missing members, in the order of evaluation.

        `missing`: paths of members, by name. Each rule comes with the names of the members that it reads, and with
        "cluster" if it could not decide without what was not read of the cluster.
        """
        missing = {name: path for name, path in missing.items() if keeps_path(self._all_reads, *path)}
        names_by_rule = {}
        for step in trace:
            reads = self._reads_of(step) if missing else NO_FIELDS
            names = [name for name, path in missing.items() if keeps_path(reads, *path)]
            names += ["cluster"] if step.cluster_unknown and not step.audit else []
            if names:
                names_by_rule[step.rule] = names
        return names_by_rule

    def _reads_of(self, step: Step) -> Kept:
        """Return the members on which a step depends.

        A rule that does not match evaluates no expression. One false condition skips a rule, whatever the others.
        """
        if step.action is Action.SKIP and step.reason in UNMATCHED_REASONS:
            return NO_FIELDS
        if step.reason == UNMET_CONDITION:
            return self._condition_reads.get((step.rule, step.fields), NO_FIELDS)
        return self._reads.get(step.rule, NO_FIELDS)
