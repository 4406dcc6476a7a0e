"""Findings of a diagnosis: the problem of an object of the cluster, its cause, and steps against it."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated

from msgspec import Meta

from rules_engine.model.json.output import Output
from rules_engine.model.kubernetes.names import ObjectName
from rules_engine.model.problems.source import Location


class FindingSeverity(StrEnum):
    """The severity of a finding, the worst first: Error, Warning, Info."""

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


class Remedy(Output, frozen=True, kw_only=True):
    """A step against a finding."""

    text: str
    command: Annotated[str, Meta(description='The lines to run, with names filled in; "" if there are none.')] = ""
    risk: Risk = Risk.NONE


class FurtherCause(Output, frozen=True, kw_only=True):
    """Cause of a waiting pod that remains after the causes before it are removed."""

    reason: str
    message: str
    remedies: tuple[Remedy, ...] = ()


class Finding(Output, frozen=True, kw_only=True):
    """One finding about one object."""

    reason: str
    severity: FindingSeverity
    object: Annotated[
        ObjectName, Meta(description="The object of message, evidence and commands; the cluster as a whole is Cluster.")
    ]
    message: str
    certainty: Certainty = Certainty.CERTAIN
    cause: Annotated[str, Meta(description='The reason behind the message; may be "".')] = ""
    evidence: Annotated[tuple[str, ...], Meta(description="What the objects show.")] = ()
    remedies: tuple[Remedy, ...] = ()
    remaining: Annotated[
        tuple[FurtherCause, ...],
        Meta(description="What keeps a pod waiting when this cause is gone, in the order in which it must go."),
    ] = ()
    on_host: Annotated[
        bool, Meta(description="The API cannot show the cause: the commands look on the node itself.")
    ] = False
    since: Annotated[
        datetime | None, Meta(description="The creation of a pod that waits, of several the oldest; null for others.")
    ] = None
    diagnostic: Annotated[str, Meta(description='Diagnostic/NAME; "" for a built-in reason.')] = ""
    source: Annotated[Location | None, Meta(description="The Diagnostic; null for a built-in reason.")] = None


class NotEvaluated(Output, frozen=True, kw_only=True):
    """A Diagnostic that was not evaluated for some objects."""

    diagnostic: str
    why: str
    unread: Annotated[bool, Meta(description="Objects that it needs were not read. False: it failed.")] = False
    objects: Annotated[int, Meta(description="The number of objects for which it was not evaluated.")]
    first: Annotated[ObjectName | None, Meta(description="The first of the objects for which it failed.")] = None
