"""Compiled rules, and kinds of rules."""

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from rules_engine.language.cel import NamedProgram, Program
from rules_engine.model.json.edits import Edits
from rules_engine.model.kubernetes.cluster import Cluster
from rules_engine.model.kubernetes.pod import Pod
from rules_engine.model.problems.codes import ProblemCode
from rules_engine.model.problems.problem import Problem, Problems
from rules_engine.model.rules.admission import Endpoint
from rules_engine.model.rules.decision import RulePart, Step
from rules_engine.model.rules.rule import Rule, Setting
from rules_engine.rules.rule_set.compiler import Compiler
from rules_engine.rules.rule_set.context import Context

R_co = TypeVar("R_co", bound=Rule, covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledRule(Generic[R_co]):
    """A rule with the compiled expressions that every kind has. It never changes."""

    rule: R_co
    variables: Mapping[str, NamedProgram]
    """By their names in expressions, in order: each may read the variables before it."""
    conditions: tuple[NamedProgram, ...]

    @property
    def programs(self) -> tuple[Program, ...]:
        """The expressions that may change a decision; expressions of messages may not."""
        return (*(item.program for item in (*self.variables.values(), *self.conditions)), *self.own_programs)

    @property
    def own_programs(self) -> tuple[Program, ...]:
        """The `programs` that only this kind has."""
        return ()

    @property
    def messages(self) -> tuple[Program, ...]:
        """The expressions of messages."""
        return ()

    @property
    def reads_nodes(self) -> bool:
        """True if a decision depends on the nodes of the cluster."""
        # The whole rule counts: a variable may be the cluster, and another expression may call it.
        return any("cluster" in program.reads for program in (*self.programs, *self.messages))

    @property
    def reads_available(self) -> bool:
        """True if a decision depends on free amounts, and so on the pods admitted before."""
        # The whole rule counts: a variable may be the cluster. No expression reads free amounts without this word.
        programs = (*self.programs, *self.messages)
        return any("cluster" in program.reads for program in programs) and any(
            "available" in program.source.text for program in programs
        )

    @property
    def reads_classes(self) -> bool:
        """True if a decision depends on the PriorityClasses and RuntimeClasses of the cluster."""
        return False

    def replacements(self, title: str) -> Sequence["Replacement"]:  # noqa: ARG002 - of ladders
        """Return a ladder's rungs other than the one with this title, the nearest lower ones first."""
        return ()


class Replacement(NamedTuple):
    """A resource in place of another one: its number of devices × numerator ÷ denominator, rounded up.

    `title`: the rung, if it is one. `pool`: words for its pool. `place`: the edits of a pod that select its pool.
    """

    resource: str
    numerator: int = 1
    denominator: int = 1
    title: str = ""
    pool: str = ""
    place: Callable[[Pod], Edits] = lambda _pod: {}


def nothing(*_: object) -> Iterator[Any]:
    """Yield nothing: the kind has no warnings, no parts but conditions, or no settings but scalar and common fields."""
    return iter(())


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleKind:
    """A kind of rule: the functions that read, evaluate, check and explain its rules.

    `value`: the class of its rules. `read` reads a rule from a validated document. `apply` evaluates compiled rules in
    order, and returns their steps and their edits of the context's pod. `native` translates a compiled rule into parts
    of the API server's policies (`rules_engine.rules.native`). `foresee` returns what its rules will change of a pod's
    placement, for the kinds before it. `analyse` yields warnings about all its rules, in the
    order of evaluation, `analyse_on` warnings for one cluster, and `analyse_quotas` for its quotas: the names of the
    resources that they limit, by namespace. `codes` has the codes of its problems, and the TOML file `problems` the
    reference of each. `parts` yields the parts of a rule that test cases should cover, except its
    conditions. `effective` yields the settings of a rule in a namespace, except scalar fields and fields of every kind.
    `schemas` is the folder of its JSON Schema, if it has one of its own. Parameters are typed Any, since only the kind
    knows the class of its rules.
    """

    value: type[Rule]
    endpoint: Endpoint
    read: Callable[[Any, Problems], Rule]
    compile: Callable[[Any, Compiler], CompiledRule[Rule]]
    apply: Callable[[Sequence[Any], Context], tuple[tuple[Step, ...], Edits]]
    native: Callable[[Any, Any], Any]
    codes: type[ProblemCode]
    problems: Path
    foresee: Callable[[Sequence[Any], Context], Edits] | None = None
    analyse: Callable[[Sequence[Any]], Iterator[Problem]] = nothing
    analyse_on: Callable[[Sequence[Any], Cluster], Iterator[Problem]] = nothing
    analyse_quotas: Callable[[Sequence[Any], Cluster, Mapping[str, Set[str]]], Iterator[Problem]] = nothing
    parts: Callable[[Any], Iterator[RulePart]] = nothing
    effective: Callable[[Any, str], Iterator[Setting]] = nothing
    schemas: Path | None = None

    @property
    def name(self) -> str:
        """The kind of its documents."""
        return self.value.kind
