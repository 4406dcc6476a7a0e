"""Admission endpoints: read a review, decide, build the response."""

import logging
from collections.abc import Sequence
from functools import partial
from http import HTTPStatus
from time import perf_counter
from typing import NamedTuple

from rules_engine.model.kubernetes.kept_fields import RESERVATION
from rules_engine.model.rules.admission import Endpoint
from rules_engine.model.rules.decision import Decision
from rules_engine.server.http.admission_record import AdmissionRecord, Callers, Observer
from rules_engine.server.http.deadline import Deadline
from rules_engine.server.http.limits import MIB, PARSED_BYTES
from rules_engine.server.http.review import (
    RefusedObjectError,
    ReviewError,
    StatusReason,
    parse_review,
    respond_decision,
    respond_error,
    takes_too_much_memory,
    too_large,
    uid_of,
)
from rules_engine.server.state import ServerState

ENDPOINTS = {path: each.path[1:] for each in Endpoint for path in (each.path, each.native_path)}
"""Endpoints by path."""

_NATIVE = frozenset(each.native_path for each in Endpoint)

DECISIONS = 3
"""Decisions of one pod at most: again if another thread has reserved its devices meanwhile."""

_log = logging.getLogger(__name__)


class HttpRequest(NamedTuple):
    """An HTTP request to an endpoint. `authenticated`: the client presented a verified certificate."""

    path: str
    content_type: str
    body: bytes
    authenticated: bool = False


class Response(NamedTuple):
    """The HTTP status and body of a response."""

    status: int
    body: bytes


class AdmissionEndpoint:
    """`POST /mutate`, `POST /validate`, and their paths for rules that stay with the webhooks."""

    def __init__(
        self, state: ServerState, *, callers: Callers = Callers.AUTHENTICATED, observers: Sequence[Observer] = ()
    ) -> None:
        self._state = state
        self._callers = callers
        self._observers = tuple(observers)

    def answer(self, http_request: HttpRequest, deadline: Deadline) -> Response:
        """Answer a request. Raises TakesLonger if the deadline does, and nothing else."""
        record = AdmissionRecord(ENDPOINTS[http_request.path], authenticated=http_request.authenticated)
        begin = perf_counter()
        try:
            response = Response(HTTPStatus.OK, self._decide(http_request, record, deadline))
        except ReviewError as error:
            response = _error_response(error, record)
        except Exception:
            # A bug is logged and answered with 500, never with a decision.
            _log.exception("unexpected error while answering request %s", record.uid or "without a uid")
            response = _error_response(ReviewError(StatusReason.INTERNAL_ERROR, INTERNAL_ERROR, record.uid), record)
        record.seconds = perf_counter() - begin
        self._observe(record)
        return response

    def refuse(self, http_request: HttpRequest, refusal: ReviewError) -> Response:
        """Answer a request that must not be decided; its body may be incomplete."""
        record = AdmissionRecord(ENDPOINTS[http_request.path])
        response = _error_response(ReviewError(refusal.reason, refusal.message, uid_of(http_request.body)), record)
        self._observe(record)
        return response

    def _decide(self, http_request: HttpRequest, record: AdmissionRecord, deadline: Deadline) -> bytes:
        """Return the body of the response. Raises ReviewError."""
        state = self._state
        media_type = http_request.content_type.partition(";")[0].strip().lower()
        if media_type != "application/json":
            message = f"the content type must be application/json, not {media_type or 'absent'}"
            raise ReviewError(StatusReason.UNSUPPORTED_MEDIA_TYPE, message, uid_of(http_request.body))
        try:
            if takes_too_much_memory(http_request.body):
                uid = uid_of(http_request.body)
                # Without a uid, the API server accepts no denial: the call fails.
                if uid is None:
                    raise ReviewError(StatusReason.TOO_LARGE, _TOO_MUCH_MEMORY)
                raise RefusedObjectError(uid, too_large(_TOO_MUCH_MEMORY))
            request = parse_review(http_request.body)
        except RefusedObjectError as error:
            record.uid, record.decision = error.uid, error.decision.audited if state.audit else error.decision
            return respond_decision(error.uid, record.decision)
        record.uid, record.request = request.uid, request
        if state.namespaces and request.namespace not in state.namespaces:
            record.decision = Decision(object=request.object)
            return respond_decision(request.uid, record.decision)
        source, reserves = state.source, self._callers.include(record) and not state.audit
        created = record.endpoint == "validate"
        served = state.served
        rule_set = (served.without_exported if http_request.path in _NATIVE else served).rule_set
        enforce = rule_set.validate if created else rule_set.mutate
        decide = partial(rule_set.audit, created=created) if state.audit else enforce
        budget = partial(deadline, request.object)
        # Another thread may reserve the devices first: then decide again, on the newer view.
        for _ in range(DECISIONS):
            cluster = source.view_for(request) if reserves and not created else source.current()
            decision = decide(request, cluster, indexed=True, budget=budget)
            reservation = source.reserve(request, decision, budget, created=created) if reserves else ""
            if reservation is not None or cluster is source.current():
                break
        record.served, record.cluster, record.decision = served, cluster, decision
        return respond_decision(request.uid, decision, {RESERVATION: reservation} if reservation else {})

    def _observe(self, record: AdmissionRecord) -> None:
        for observe in self._observers:
            try:
                observe(record)
            except Exception:
                _log.exception("unexpected error in an observer of request %s", record.uid or "without a uid")


def _error_response(error: ReviewError, record: AdmissionRecord) -> Response:
    """Return the response to a request without a decision, and record the error in its admission record."""
    record.uid, record.error = error.uid, error.reason
    return Response(error.reason.code, respond_error(error))


INTERNAL_ERROR = "unexpected error; see the server's log"

_TOO_MUCH_MEMORY = f"the body would take more than {PARSED_BYTES // MIB} MiB of memory"
