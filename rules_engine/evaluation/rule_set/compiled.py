"""Compiled rules, and the protocol of kinds of rules."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from rules_engine.cel import Program
from rules_engine.evaluation.context import Context, NamedProgram
from rules_engine.evaluation.rule_set.compiler import Compiler
from rules_engine.model.json.edits import Edits
from rules_engine.model.kubernetes.pod import Pod
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

    def replacements(self, title: str) -> Sequence["Replacement"]:  # noqa: ARG002 - of ladders
        """Return the rungs that a ladder has beside the one with a title, the nearest lower ones first."""
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

    def native(self, compiled: Any, scope: Any) -> Any:
        """Translate a compiled rule into parts of the API server's policies: `rules_engine.native`."""
