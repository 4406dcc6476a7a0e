"""Request handlers: ordinary admissions run in the event loop, everything else in threads."""

import asyncio
import logging
from asyncio import AbstractEventLoop, Future
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from time import perf_counter
from typing import TYPE_CHECKING

from server.http import wsgi
from server.http.admission import ENDPOINTS, Admission, takes_too_much_memory
from server.http.connections import Exceeded
from server.http.deadline import TakesLonger
from server.http.errors import refused
from server.http.limits import (
    LARGE_BODY_BYTES,
    LARGE_QUEUE,
    PAGE_THREADS,
    PATIENCE_SECONDS,
    SLOW_THREADS,
    Limit,
)
from server.http.messages import INTERNAL_ERROR, STOPPING, Refusal, Request, Response
from server.state import Slots

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

_log = logging.getLogger(__name__)


class PageHandler:
    """Handler that calls a WSGI application in threads. `server`: host and port; `scheme`: http or https."""

    def __init__(
        self, loop: AbstractEventLoop, application: "WSGIApplication", server: tuple[str, int], scheme: str
    ) -> None:
        self._loop = loop
        self._application = application
        self._server = server
        self._scheme = scheme
        self._threads = ThreadPoolExecutor(PAGE_THREADS, f"{scheme}-page")

    def __call__(self, request: Request) -> Response | Future[Response]:
        try:
            future = self._threads.submit(self._call, request)
        except RuntimeError:  # the executor is shut down
            return refused(Refusal(HTTPStatus.SERVICE_UNAVAILABLE, STOPPING))
        return asyncio.wrap_future(future, loop=self._loop)

    def refuse(self, refusal: Refusal, path: str) -> Response:  # noqa: ARG002 - see Handler
        return refused(refusal)

    def stop(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _call(self, request: Request) -> Response:
        try:
            return wsgi.call(self._application, request, self._server, self._scheme)
        except Exception:
            _log.exception("unexpected error in the application")
            return refused(Refusal(HTTPStatus.INTERNAL_SERVER_ERROR, INTERNAL_ERROR))


class AdmissionHandler:
    """Handler of admissions; other requests go to `pages`.

    A decision starts in the event loop and restarts in a thread if it takes longer than PATIENCE_SECONDS. Measured
    beside it: with every decision in a thread, throughput is 0.65 times as high; with none, other requests wait for
    as long as the slowest decision takes. Large bodies are parsed and decided in one thread, one at a time.
    """

    def __init__(self, loop: AbstractEventLoop, admission: Admission, pages: PageHandler, exceeded: Exceeded) -> None:
        self._loop = loop
        self._admission = admission
        self._pages = pages
        self._exceeded = exceeded
        self._slow = ThreadPoolExecutor(SLOW_THREADS, "slow-admission")
        self._large = ThreadPoolExecutor(1, "large-admission")
        self._large_slots = Slots(LARGE_QUEUE)

    def __call__(self, request: Request) -> Response | Future[Response]:
        if request.path not in ENDPOINTS or request.method != "POST":
            return self._pages(request)
        if len(request.body) > LARGE_BODY_BYTES:
            return self._decide_large(request)
        admission = self._admission
        if not admission.slots.take():
            return self._busy(request, Limit.DECISIONS, self._admission.too_many)
        try:
            response = admission.answer(request, admission.deadline(request, perf_counter() + PATIENCE_SECONDS))
        except TakesLonger:
            return self._submit(request, self._slow, (admission.slots,))
        admission.slots.release()
        return response

    def refuse(self, refusal: Refusal, path: str) -> Response:
        return self._admission.refuse(path, refusal)

    def stop(self) -> None:
        """Submit no more work to the threads."""
        for threads in (self._slow, self._large):
            threads.shutdown(wait=False, cancel_futures=True)
        self._pages.stop()

    def _decide_large(self, request: Request) -> Response | Future[Response]:
        if not self._large_slots.take():
            return self._busy(request, Limit.LARGE_QUEUE, _LARGE_QUEUE_FULL)
        if not self._admission.slots.take():
            self._large_slots.release()
            return self._busy(request, Limit.DECISIONS, self._admission.too_many)
        return self._submit(request, self._large, (self._admission.slots, self._large_slots))

    def _submit(
        self, request: Request, threads: ThreadPoolExecutor, slots: Sequence[Slots]
    ) -> Response | Future[Response]:
        """Answer in a thread; release the slots when it finishes or is cancelled."""

        def done(_future: object) -> None:
            for taken in slots:
                taken.release()

        try:
            future = threads.submit(self._answer, request)
        except RuntimeError:  # the executor is shut down
            done(None)
            return self._admission.busy(request, STOPPING)
        future.add_done_callback(done)
        return asyncio.wrap_future(future, loop=self._loop)

    def _answer(self, request: Request) -> Response:
        deadline = self._admission.deadline(request)
        if deadline.is_over():
            return self._busy(request, Limit.REQUEST_TIME, _TOO_LATE)
        if takes_too_much_memory(request.body):
            self._exceeded.count(Limit.PARSED_BYTES, request.peer)
            return self._admission.too_large(request)
        return self._admission.answer(request, deadline)

    def _busy(self, request: Request, limit: Limit, message: str) -> Response:
        self._exceeded.count(limit, request.peer)
        return self._admission.busy(request, message)


_LARGE_QUEUE_FULL = f"{LARGE_QUEUE} bodies over {LARGE_BODY_BYTES // 1024} KiB wait for a decision: try again"

_TOO_LATE = "the request waited longer than its timeout (--request-timeout, or 0.8 × timeoutSeconds): try again"
