"""Admission endpoints: read a review, decide, build the response. The event loop and Flask call the same code."""

import logging
from collections.abc import Sequence
from functools import partial
from http import HTTPStatus
from math import inf
from time import perf_counter

from rules_engine.model.kubernetes.kept_fields import RESERVATION
from rules_engine.model.rules.admission import Endpoint
from rules_engine.model.rules.decision import Decision
from server.http.admission_record import AdmissionRecord, Callers, Observer
from server.http.deadline import Deadline
from server.http.limits import MIB, PARSED_BYTES, REQUEST_SECONDS
from server.http.messages import INTERNAL_ERROR, JSON, RETRY, Refusal, Request, Response, refusal_response
from server.http.review import (
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
from server.state import Slots, State

ENDPOINTS = {path: each.path[1:] for each in Endpoint for path in (each.path, each.native_path)}
"""Endpoints by path."""

_NATIVE = frozenset(each.native_path for each in Endpoint)

DECISIONS = 3
"""Decisions of one pod at most: again if another thread has reserved its devices meanwhile."""

_log = logging.getLogger(__name__)


class Admission:
    """`POST /mutate`, `POST /validate`, and their paths for rules that stay with the webhooks."""

    def __init__(
        self,
        state: State,
        *,
        max_concurrent: int,
        callers: Callers = Callers.AUTHENTICATED,
        observers: Sequence[Observer] = (),
        request_seconds: float = REQUEST_SECONDS,
    ) -> None:
        self.slots = state.decisions = Slots(max_concurrent)
        self._state = state
        self._callers = callers
        self._observers = tuple(observers)
        self._request_seconds = request_seconds

    def deadline(self, request: Request, patient_until: float = inf) -> Deadline:
        """Return the deadline of a request."""
        return Deadline(request.arrived, request.query, self._request_seconds, patient_until)

    def admit(self, request: Request) -> Response:
        """Answer in the calling thread; 413 or 503 if a limit is exceeded."""
        if takes_too_much_memory(request.body):
            return self.too_large(request)
        if not self.slots.take():
            return self.busy(request, self.too_many)
        try:
            return self.answer(request, self.deadline(request))
        finally:
            self.slots.release()

    def answer(self, request: Request, deadline: Deadline) -> Response:
        """Answer a request. Raises TakesLonger if the deadline does, and nothing else."""
        record = AdmissionRecord(ENDPOINTS[request.path], authenticated=request.authenticated)
        begin = perf_counter()
        try:
            response = Response(HTTPStatus.OK, self._decide(request, record, deadline))
        except ReviewError as error:
            response = _error_response(error, record)
        except Exception:
            # A bug is logged and answered with 500, never with a decision.
            _log.exception("unexpected error while answering request %s", record.uid or "without a uid")
            response = _error_response(ReviewError(StatusReason.INTERNAL_ERROR, INTERNAL_ERROR, record.uid), record)
        record.seconds = perf_counter() - begin
        self._observe(record, self._observers)
        return response

    def too_large(self, request: Request) -> Response:
        """Return the response to a body that would take too much memory: a denial if its uid can be read."""
        message = f"the body would take more than {PARSED_BYTES // MIB} MiB of memory"
        uid = uid_of(request.body)
        if uid is None:
            return self.refuse(request.path, Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, message))
        record = AdmissionRecord(ENDPOINTS[request.path], authenticated=request.authenticated)
        record.uid, record.decision = uid, Decision(refusal=too_large(message))
        self._observe(record, self._observers)
        return Response(HTTPStatus.OK, respond_decision(uid, record.decision))

    @property
    def too_many(self) -> str:
        """Message of a response when no slot is free."""
        return f"{self.slots.limit} decisions are in progress (--max-concurrent): try again"

    def busy(self, request: Request, message: str) -> Response:
        """Return a 503 response."""
        return self._fail(request.path, ReviewError(StatusReason.UNAVAILABLE, message, uid_of(request.body)))

    def refuse(self, path: str, refusal: Refusal) -> Response:
        """Return the response to a request that was not received completely or is too large, and record it."""
        reason = _REASONS.get(refusal.status)
        if path in ENDPOINTS and reason is not None:
            return self._fail(path, ReviewError(reason, refusal.message))
        return refusal_response(refusal)

    def _fail(self, path: str, error: ReviewError) -> Response:
        record = AdmissionRecord(ENDPOINTS[path])
        response = _error_response(error, record)
        self._observe(record, self._observers)
        return response

    def _decide(self, request: Request, record: AdmissionRecord, deadline: Deadline) -> bytes:
        """Return the body of the response. Raises ReviewError."""
        media_type = request.content_type
        if media_type != "application/json":
            media_type = media_type.partition(";")[0].strip().lower()
            if media_type != "application/json":
                message = f"the content type must be application/json, not {media_type or 'absent'}"
                raise ReviewError(StatusReason.UNSUPPORTED_MEDIA_TYPE, message, uid_of(request.body))
        try:
            admission = parse_review(request.body)
        except RefusedObjectError as error:
            record.uid, record.decision = error.uid, error.decision
            return respond_decision(error.uid, error.decision)
        record.uid, record.request = admission.uid, admission
        source, reserves = self._state.source, self._callers.include(record)
        created = record.endpoint == "validate"
        served = self._state.served
        rules = served.without_exported if request.path in _NATIVE else served
        decide = rules.validate if created else rules.mutate
        budget = partial(deadline, admission.object)
        for _ in range(DECISIONS):
            cluster = source.view_for(admission) if reserves and not created else source.current()
            decision = decide(admission, cluster, budget=budget)
            reservation = source.reserve(admission, decision, budget, created=created) if reserves else ""
            if reservation is not None or cluster is source.current():
                break
        record.served, record.cluster, record.decision = served, cluster, decision
        return respond_decision(admission.uid, decision, {RESERVATION: reservation} if reservation else {})

    def _observe(self, record: AdmissionRecord, observers: Sequence[Observer]) -> None:
        for observe in observers:
            try:
                observe(record)
            except Exception:
                _log.exception("unexpected error in an observer of request %s", record.uid or "without a uid")


def _error_response(error: ReviewError, record: AdmissionRecord) -> Response:
    """Return the response to a request without a decision, and record the error in its admission record."""
    record.uid, record.error = error.uid, error.reason
    headers = RETRY if error.reason is StatusReason.UNAVAILABLE else JSON
    return Response(error.reason.code, respond_error(error), headers)


_REASONS = {reason.code: reason for reason in StatusReason}
