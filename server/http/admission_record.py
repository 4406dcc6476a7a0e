"""Admission record: one request and its outcome, as metrics, decision log and Events receive it."""

from collections.abc import Callable
from enum import Enum
from typing import TypeAlias

from rules_engine.model.json.lenient import as_mapping, text_member
from rules_engine.model.kubernetes.cluster import Cluster
from rules_engine.model.rules.admission import AdmissionRequest
from rules_engine.model.rules.decision import Decision
from rules_engine.server.http.review import StatusReason
from rules_engine.server.state import ServedRules


class AdmissionRecord:
    """Request, decision and outcome; filled in while the request is answered, and constant once observers receive it.

    `seconds` is from the end of the body to the response, without the time of a slow client. Unknown members are None:
    `uid` of a request that could not be parsed, `decision` of one that failed. `authenticated`: the client presented a
    verified certificate.
    """

    __slots__ = ("authenticated", "cluster", "decision", "endpoint", "error", "request", "seconds", "served", "uid")

    def __init__(self, endpoint: str, *, authenticated: bool = False) -> None:
        self.endpoint = endpoint
        self.authenticated = authenticated
        self.seconds = 0.0
        self.uid: str | None = None
        self.request: AdmissionRequest | None = None
        self.decision: Decision | None = None
        self.served: ServedRules | None = None
        self.cluster: Cluster | None = None
        self.error: StatusReason | None = None

    @property
    def outcome(self) -> str:
        """The outcome of the decision, or the reason why there is none."""
        if self.error is not None or self.decision is None:
            return (self.error or StatusReason.INTERNAL_ERROR).text
        return self.decision.outcome

    @property
    def pod(self) -> str:
        """The pod's name, else its generateName and "*", which no name contains; "" without either."""
        request = self.request
        if request is None or not (request.is_pod or request.is_resize):
            return ""
        metadata = as_mapping(as_mapping(request.object).get("metadata"))
        name = text_member(metadata, "name") or request.name
        if name:
            return name
        generated = text_member(metadata, "generateName")
        return f"{generated}*" if generated else ""

    @property
    def user(self) -> str:
        """Name of the user, as authenticated by the API server; "" if absent."""
        return "" if self.request is None else text_member(as_mapping(self.request.raw.get("userInfo")), "username")

    @property
    def dry_run(self) -> bool:
        """True for a request that must have no side effects."""
        return self.request is not None and self.request.dry_run


Observer: TypeAlias = Callable[[AdmissionRecord], None]
"""Called with every admission record, in the thread that answers the request: must be quick, and must not block."""


class Callers(Enum):
    """The callers whose requests change state: reservations and Events."""

    AUTHENTICATED = "authenticated"
    """Callers that presented a certificate of --client-ca. Anybody who reaches the port can send a review of a pod that
    does not exist."""
    ALL = "all"

    def include(self, record: AdmissionRecord) -> bool:
        """Return True if a request is of these callers."""
        return record.authenticated or self is Callers.ALL

    def only(self, observer: Observer) -> Observer:
        """Return an observer of these callers' requests only."""

        def observe(record: AdmissionRecord) -> None:
            if self.include(record):
                observer(record)

        return observe
