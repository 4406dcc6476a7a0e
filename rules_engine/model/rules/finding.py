"""Findings of a diagnosis: the problem of an object of the cluster, its cause, and steps against it."""

from dataclasses import dataclass
from enum import StrEnum

from rules_engine.model.kubernetes.names import ObjectName
from rules_engine.model.problems.source import Location


class FindingSeverity(StrEnum):
    """The severity of a finding, worst first."""

    ERROR = "Error"
    WARNING = "Warning"
    INFO = "Info"


class Certainty(StrEnum):
    """The certainty of a finding: the objects show it, or they only make it possible."""

    CERTAIN = "Certain"
    POSSIBLE = "Possible"


class Risk(StrEnum):
    """The risk of a remedy. High: drain the node first."""

    NONE = "None"
    MEDIUM = "Medium"
    HIGH = "High"


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """A step against a finding; `command` is the line to run, or "" if there is none."""

    text: str
    command: str = ""
    risk: Risk = Risk.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One finding about one object.

    `source`: the Diagnostic (`Diagnostic/name`), or "" for a built-in reason. `location`: where the Diagnostic is.
    `evidence`: facts that the objects show, a line each. `cause`: the reason behind them. `caused_by`: reasons of other
    findings that cause this finding if they are about the same object. `on_host`: the API cannot show the cause; the
    commands of the remedies inspect the node itself.
    """

    reason: str
    severity: FindingSeverity
    object: ObjectName
    message: str
    certainty: Certainty = Certainty.CERTAIN
    cause: str = ""
    caused_by: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    remedies: tuple[Remedy, ...] = ()
    on_host: bool = False
    source: str = ""
    location: Location | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NotEvaluated:
    """A Diagnostic, or a built-in reason, that was not evaluated for some objects, with the reason in `why`."""

    source: str
    why: str
    objects: int
    first: ObjectName | None = None
