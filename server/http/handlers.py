"""Request handlers: small admissions run in the event loop, everything else in threads."""

import asyncio
import concurrent.futures
import logging
from asyncio import AbstractEventLoop, Future
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from itertools import count
from queue import PriorityQueue
from threading import Event
from time import thread_time
from typing import TYPE_CHECKING

from server.http import wsgi
from server.http.admission import ENDPOINTS, Admission
from server.http.connections import Occurrences
from server.http.deadline import TakesLonger
from server.http.limits import LARGE_BODY_BYTES, PAGE_THREADS, PATIENCE_SECONDS, REQUEST_SECONDS, SMALL_BYTES, Limit
from server.http.messages import INTERNAL_ERROR, STOPPING, Refusal, Request, Response, refusal_response
from server.http.review import takes_too_much_memory

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
        self._threads = _start_threads(PAGE_THREADS, f"{scheme}-page")

    def __call__(self, request: Request) -> Response | Future[Response]:
        try:
            future = self._threads.submit(self._call, request)
        except RuntimeError:  # the executor is shut down
            return refusal_response(Refusal(HTTPStatus.SERVICE_UNAVAILABLE, STOPPING))
        return asyncio.wrap_future(future, loop=self._loop)

    def refuse(self, refusal: Refusal, path: str) -> Response:  # noqa: ARG002 - see Handler
        return refusal_response(refusal)

    def stop(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _call(self, request: Request) -> Response:
        try:
            return wsgi.call_application(self._application, request, self._server, self._scheme)
        except Exception:
            _log.exception("unexpected error in the application")
            return refusal_response(Refusal(HTTPStatus.INTERNAL_SERVER_ERROR, INTERNAL_ERROR))


class AdmissionHandler:
    """Handler of admissions; other requests go to `pages`.

    Small bodies are decided in the event loop, others in one thread, the smallest first: threads that compute compete
    with the event loop for the interpreter. Measured: with every decision in a thread, throughput is 0.65 times as
    high. A decision in the event loop that takes longer than PATIENCE_SECONDS starts again in the thread.
    """

    def __init__(
        self, loop: AbstractEventLoop, admission: Admission, pages: PageHandler, exceeded: Occurrences[Limit]
    ) -> None:
        self._loop = loop
        self._admission = admission
        self._pages = pages
        self._exceeded = exceeded
        self._thread = _start_threads(1, "slow-admission")
        self._waiting: PriorityQueue[tuple[float, int, Request, concurrent.futures.Future[Response]]] = PriorityQueue()
        self._arrivals = count()

    def __call__(self, request: Request) -> Response | Future[Response]:
        if request.path not in ENDPOINTS or request.method != "POST":
            return self._pages(request)
        if len(request.body) > SMALL_BYTES:
            return self._enqueue(request)
        admission = self._admission
        try:
            return admission.answer(request, admission.deadline(request, thread_time() + PATIENCE_SECONDS))
        except TakesLonger:
            return self._enqueue(request)

    def refuse(self, refusal: Refusal, path: str) -> Response:
        return self._admission.refuse(path, refusal)

    def stop(self) -> None:
        """Submit no more work to the threads."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        self._pages.stop()

    def _enqueue(self, request: Request) -> Response | Future[Response]:
        """Answer in the thread; the slot is released when that is done, or when the client has left."""
        slots = self._admission.slots

        def done(_future: object) -> None:
            slots.release()
            request.body = b""  # which would be kept until its turn

        if not slots.take():
            return self._busy(request, Limit.DECISIONS, self._admission.too_many)
        future = concurrent.futures.Future[Response]()
        future.add_done_callback(done)
        # Small ones go first, but large ones get their turn.
        turn = request.arrived + REQUEST_SECONDS * min(len(request.body) / LARGE_BODY_BYTES, 1)
        self._waiting.put((turn, next(self._arrivals), request, future))
        try:
            self._thread.submit(self._answer_next)
        except RuntimeError:  # the executor is shut down
            response = self._admission.busy(request, STOPPING)
            future.cancel()
            return response
        return asyncio.wrap_future(future, loop=self._loop)

    def _answer_next(self) -> None:
        *_, request, future = self._waiting.get_nowait()
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(self._answer(request))
            except Exception as error:  # a bug, for the connection to log
                future.set_exception(error)

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


_TOO_LATE = "the request waited longer than its timeout (--request-timeout, or 0.8 × timeoutSeconds): try again"


def _start_threads(count: int, name: str) -> ThreadPoolExecutor:
    """Return an executor whose threads all run: later there may be no memory for one. Raises RuntimeError."""
    threads = ThreadPoolExecutor(count, name)
    started = Event()
    try:
        for _ in range(count):
            threads.submit(started.wait)  # an idle thread would keep the next one from being started
    finally:
        started.set()
    return threads
