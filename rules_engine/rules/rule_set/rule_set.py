"""Rule sets: compiled rules of every kind, in the order of evaluation. They never change."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rules_engine.model.problems.problem import Problem, sort_problems
from rules_engine.model.rules.admission import Endpoint
from rules_engine.model.rules.rule import Mode, Operation, Rule
from rules_engine.rules.rule_set.compiled import CompiledRule, Kind
from rules_engine.rules.rule_set.compiler import Compiler
from rules_engine.rules.rule_set.index import RuleIndex

GENERATED_FIELDS = frozenset(("object", "metadata", name) for name in ("creationTimestamp", "name", "uid"))
"""Fields that a new pod may lack at /mutate: the API server sets them, and generates names, after the mutating webhooks
(k8s.io/apiserver, registry/generic/registry/store.go)."""


@dataclass(frozen=True, slots=True)
class KindRules:
    """The rules of one kind, in the order of evaluation, and their index."""

    kind: Kind
    rules: tuple[CompiledRule[Rule], ...]
    index: RuleIndex = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "index", RuleIndex(self.rules))


@dataclass(frozen=True, slots=True)
class RuleSet:
    """Compiled rules by kind, in the order of evaluation. Rules that are Off are not in it."""

    kinds: tuple[KindRules, ...] = ()
    _at: Mapping[Endpoint, tuple[KindRules, ...]] = field(init=False, repr=False, compare=False)
    validated_operations: frozenset[str] = field(init=False, repr=False, compare=False)
    """CREATE, and the operations that some rule at /validate matches: pods at other operations are not parsed."""

    @property
    def rules(self) -> tuple[CompiledRule[Rule], ...]:
        """The rules of every kind."""
        return tuple(rule for group in self.kinds for rule in group.rules)

    def rules_at(self, endpoint: Endpoint) -> tuple[CompiledRule[Rule], ...]:
        """Return the rules that are evaluated at an endpoint."""
        return tuple(rule for group in self.kinds_at(endpoint) for rule in group.rules)

    def without(self, ids: Collection[str]) -> "RuleSet":
        """Return the rule set without some rules."""
        return RuleSet(
            tuple(
                KindRules(group.kind, tuple(each for each in group.rules if each.rule.id not in ids))
                for group in self.kinds
            )
        )

    def kinds_at(self, endpoint: Endpoint) -> tuple[KindRules, ...]:
        """Return the kinds that are evaluated at an endpoint, in this order."""
        return self._at[endpoint]

    def __post_init__(self) -> None:
        at = {
            endpoint: tuple(group for group in self.kinds if group.kind.endpoint is endpoint) for endpoint in Endpoint
        }
        object.__setattr__(self, "_at", at)
        operations = {
            operation.value for rule in self.rules_at(Endpoint.VALIDATE) for operation in rule.rule.match.operations
        }
        object.__setattr__(self, "validated_operations", frozenset({Operation.CREATE.value, *operations}))


def compile_rules(
    rules: Iterable[Rule], kinds: Sequence[Kind], compiler_of: Callable[[Rule], Compiler] = Compiler
) -> tuple[RuleSet, tuple[Problem, ...]]:
    """Compile every expression of every rule, also of rules that are Off, so that they stay valid.

    Kinds are evaluated in the order given, and rules of a kind by their `order`. A rule with a problem is not in the
    rule set: the caller decides whether to use the others. `compiler_of` makes the compiler of a rule. Raises
    ValueError for a rule of none of the kinds, and for two kinds of one name.
    """
    problems: list[Problem] = []
    by_kind: dict[str, list[CompiledRule[Rule]]] = {kind.name: [] for kind in kinds}
    kinds_by_name = {kind.name: kind for kind in kinds}
    if len(kinds_by_name) < len(kinds):
        raise ValueError(f"two kinds have the same name: {', '.join(kind.name for kind in kinds)}")
    for rule in sorted(rules, key=lambda rule: rule.order):
        if rule.kind not in kinds_by_name:
            raise ValueError(f"{rule.id} is of none of the kinds {', '.join(kinds_by_name)}")
        compiler = compiler_of(rule)
        compiled = kinds_by_name[rule.kind].compile(rule, compiler)
        absent = GENERATED_FIELDS if kinds_by_name[rule.kind].endpoint is Endpoint.MUTATE else ()
        problems.extend((*compiler.problems, *compiler.find_unguarded_members(absent), *compiler.unused()))
        if not compiler.failed and rule.mode is not Mode.OFF:
            by_kind[rule.kind].append(compiled)
    rule_set = RuleSet(tuple(KindRules(kind, tuple(by_kind[kind.name])) for kind in kinds))
    return rule_set, sort_problems(problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRequirements:
    """The collections that rules read; pods require nodes. `devices`: classes, slices and claims."""

    nodes: bool = False
    pods: bool = False
    namespaces: bool = False
    devices: bool = False


def cluster_requirements(rule_set: RuleSet) -> ClusterRequirements:
    """Return the collections that the rules read, including rules in audit mode."""
    rules = rule_set.rules
    pods = any(rule.reads_available for rule in rules)
    nodes = pods or any(rule.reads_nodes for rule in rules)
    return ClusterRequirements(
        nodes=nodes,
        devices=nodes,
        pods=pods,
        namespaces=any(rule.rule.match.namespace_selector for rule in rules)
        or any("namespaceObject" in program.reads for rule in rules for program in (*rule.programs, *rule.messages)),
    )
