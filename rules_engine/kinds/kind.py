"""Kind: the functions of a kind of rule that other packages call."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rules_engine.evaluation.context import Context
from rules_engine.evaluation.rule_set.compiled import CompiledRule
from rules_engine.evaluation.rule_set.compiler import Compiler
from rules_engine.loading.schemas import SCHEMAS
from rules_engine.loading.yaml.nodes import MapNode
from rules_engine.model.json.edits import Edits
from rules_engine.model.kubernetes.cluster import Cluster
from rules_engine.model.problems.codes import ProblemCode
from rules_engine.model.problems.problem import Problem, Problems
from rules_engine.model.rules.admission import Endpoint
from rules_engine.model.rules.decision import RulePart, Step
from rules_engine.model.rules.rule import Rule, Setting
from rules_engine.native.policy import Scope, StaysError, Translate, Translation


def nothing(*_: object) -> Iterator[Any]:
    """Yield nothing: the kind has no warnings, no parts but conditions, or no settings but scalar and common fields."""
    return iter(())


def untranslated(compiled: CompiledRule[Rule], _: Scope) -> Translation:
    """Raise StaysError: the kind has no translation into policies of the API server."""
    raise StaysError(f"rules of the kind {compiled.rule.kind} are not exported")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of rule: the functions that evaluate (`RuleKind`), read, check and explain its rules.

    `value`: the class of its rules. `read` reads a rule from a validated document. `compile` and `apply` are for
    evaluation. `analyse` yields warnings about all its rules, in the order of evaluation, and `analyse_on` warnings for
    one cluster. `codes` has the codes of its problems, and the TOML file `problems` the reference of each. `parts`
    yields the parts of a rule that test cases should cover, except its conditions. `effective` yields the settings of a
    rule in a namespace, except scalar fields and fields of every kind. `native` translates a compiled rule into parts
    of the API server's policies. `schemas` is the folder of its JSON Schema. Parameters are typed Any, since only the
    kind knows the class of its rules.
    """

    value: type[Rule]
    endpoint: Endpoint
    read: Callable[[MapNode, Problems], Rule]
    compile: Callable[[Any, Compiler], CompiledRule[Rule]]
    apply: Callable[[Sequence[Any], Context], tuple[tuple[Step, ...], Edits]]
    codes: type[ProblemCode]
    problems: Path
    analyse: Callable[[Sequence[Any]], Iterator[Problem]] = nothing
    analyse_on: Callable[[Sequence[Any], Cluster], Iterator[Problem]] = nothing
    parts: Callable[[Any], Iterator[RulePart]] = nothing
    effective: Callable[[Any, str], Iterator[Setting]] = nothing
    native: Translate = untranslated
    schemas: Path = SCHEMAS

    @property
    def name(self) -> str:
        """The kind of its documents."""
        return self.value.kind
