"""Diagnostic, as loaded."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from rules_engine.model.problems.codes import ProblemCode
from rules_engine.model.problems.source import SourceText
from rules_engine.model.rules.finding import Certainty, FindingSeverity, Risk
from rules_engine.model.rules.rule import ExpressionDocument
from rules_engine.rules.diagnostic.catalogue import Entry


class DiagnosticCode(ProblemCode):
    """Codes of problems of a Diagnostic."""

    MISSING_COMMAND = "missing-command"
    FINDING_SLOTS = "finding-slots"


class ForEach(StrEnum):
    """The objects for which a Diagnostic is evaluated one by one: the objects of a kind, or the cluster as a whole."""

    NODE = "Node"
    POD = "Pod"
    DAEMON_SET = "DaemonSet"
    CLUSTER = "Cluster"


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenRemedy:
    """A remedy as written; `command` is an expression of the line to run."""

    text: str
    command: SourceText | None = None
    risk: Risk = Risk.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostic(ExpressionDocument):
    """A rule for findings: each object for which `when` is true gets one.

    `entry`: that of the reason in the catalogue, without the texts that the Diagnostic replaces; None if the catalogue
    lacks the reason. `case`: an expression of the name of its case, "" for none. `slots`: expressions of the values of
    the entry's slots. `message` stands in for a message expression that is absent, empty or fails. `caused_by`: reasons
    of other findings that cause this one if they are about the same object. `evidence`: expressions of lines of
    evidence, which are left out if empty. `on_host`: True if the API cannot show the cause, so that the commands of the
    remedies look on the node itself.
    """

    kind = "Diagnostic"

    for_each: ForEach
    when: SourceText
    reason: str
    severity: FindingSeverity
    entry: Entry | None = None
    case: SourceText | None = None
    slots: Mapping[str, SourceText] = field(default_factory=dict)
    message: str = ""
    message_expression: SourceText | None = None
    certainty: Certainty = Certainty.CERTAIN
    cause: str = ""
    caused_by: tuple[str, ...] = ()
    evidence: tuple[SourceText, ...] = ()
    on_host: bool = False
    remedies: tuple[WrittenRemedy, ...] = ()
