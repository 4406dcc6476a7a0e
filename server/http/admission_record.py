"""One request and what became of it: what everything that watches the server from outside is told."""

from collections.abc import Callable
from enum import Enum
from typing import TypeAlias

from rules_engine.model.admission import AdmissionRequest
from rules_engine.model.cluster import Cluster
from rules_engine.model.decision import Decision
from rules_engine.model.json.lenient import mapping, text
from server.http.review import StatusReason
from server.state import Served

ALLOWED, CHANGED, DENIED, INVALID = "Allowed", "Changed", "Denied", "Invalid"
"""Outcomes of a decision; Invalid: a pod that cannot be read."""

OUTCOMES = (ALLOWED, CHANGED, DENIED, INVALID, *(reason.text for reason in StatusReason))


class AdmissionRecord:
    """Filled in while the request is answered, and not changed any more once observers get it.

    `seconds` is from the end of the body to the answer: what a slow client takes is its own. What never became known
    is None: of a request that could not be read there is no uid, and of one that failed, no decision. `authenticated`:
    the client showed a certificate that was verified.
    """

    __slots__ = ("authenticated", "cluster", "decision", "endpoint", "error", "request", "seconds", "served", "uid")

    def __init__(self, endpoint: str, *, authenticated: bool = False) -> None:
        self.endpoint = endpoint
        self.authenticated = authenticated
        self.seconds = 0.0
        self.uid: str | None = None
        self.request: AdmissionRequest | None = None
        self.decision: Decision | None = None
        self.served: Served | None = None
        self.cluster: Cluster | None = None
        self.error: StatusReason | None = None

    @property
    def outcome(self) -> str:
        """One of OUTCOMES."""
        if self.error is not None or self.decision is None:
            return (self.error or StatusReason.INTERNAL_ERROR).text
        return self.decision.once(_outcome)

    @property
    def pod(self) -> str:
        """The pod's name; without one, its generateName and "*", which no name has; "" without either."""
        request = self.request
        if request is None or not (request.is_pod or request.is_resize):
            return ""
        metadata = mapping(mapping(request.object).get("metadata"))
        name = text(metadata, "name") or request.name
        if name:
            return name
        generated = text(metadata, "generateName")
        return f"{generated}*" if generated else ""

    @property
    def user(self) -> str:
        """Who makes the request, as the API server authenticated it; "" where the request does not say."""
        return "" if self.request is None else text(mapping(self.request.raw.get("userInfo")), "username")

    @property
    def dry_run(self) -> bool:
        """Whether nothing may come of the request but its answer."""
        return self.request is not None and self.request.dry_run


def _outcome(decision: Decision) -> str:
    if decision.refusal is not None:
        return INVALID
    if not decision.allowed:
        return DENIED
    return CHANGED if decision.patch else ALLOWED


Observer: TypeAlias = Callable[[AdmissionRecord], None]
"""Is told of every exchange, in the thread that answers it: it must be quick, and must not wait."""


class Callers(Enum):
    """The callers whose requests change state: reservations and Events."""

    AUTHENTICATED = "authenticated"
    """Those that showed a certificate of --client-ca. Anybody who reaches the port can send a review of a pod that does
    not exist."""
    ALL = "all"

    def only(self, observer: Observer) -> Observer:
        """Return an observer of these callers' requests only."""
        if self is Callers.ALL:
            return observer

        def observe(record: AdmissionRecord) -> None:
            if record.authenticated:
                observer(record)

        return observe
