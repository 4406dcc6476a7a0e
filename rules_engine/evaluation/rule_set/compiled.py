"""Compiled rules, and the protocol of kinds of rules."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from rules_engine.cel import Program
from rules_engine.evaluation.context import Context, NamedProgram
from rules_engine.evaluation.rule_set.compiler import Compiler
from rules_engine.model.json.edits import Edits
from rules_engine.model.rules.admission import Endpoint
from rules_engine.model.rules.decision import Step
from rules_engine.model.rules.rule import Rule

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


class RuleKind(Protocol):
    """A kind of rule: each package of `rules_engine.kinds` has one."""

    @property
    def name(self) -> str:
        """The kind of its documents."""

    @property
    def endpoint(self) -> Endpoint:
        """The endpoint at which its rules are evaluated."""

    def compile(self, rule: Any, compiler: Compiler) -> CompiledRule[Rule]:
        """Return a rule of this kind with its compiled expressions."""

    def apply(self, rules: Sequence[Any], context: Context) -> tuple[tuple[Step, ...], Edits]:
        """Evaluate compiled rules of this kind in order. Return their steps and their edits of the context's pod."""
