"""Calls of a WSGI application (PEP 3333) for the requests of a listener, which uvicorn's protocol receives (ASGI)."""

import asyncio
from asyncio import CancelledError
from collections.abc import Awaitable, Callable, MutableMapping
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from io import BytesIO
from itertools import count
from queue import PriorityQueue
from threading import Thread
from time import perf_counter, thread_time
from typing import Any, TypeAlias
from wsgiref.types import WSGIApplication

from werkzeug.wrappers import Response

from rules_engine.server.http import limits
from rules_engine.server.http.connection import HttpConnection
from rules_engine.server.http.deadline import Deadline, TakesLonger
from rules_engine.server.http.environ import CLIENT_VERIFIED, DEADLINE, REFUSAL, Environ, Headers, make_environ
from rules_engine.server.http.limits import Limit
from rules_engine.server.http.review import ReviewError, StatusReason, body_too_large

AsgiMessage: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[AsgiMessage]]
Send: TypeAlias = Callable[[AsgiMessage], Awaitable[None]]


class WsgiCaller:
    """ASGI application that calls a WSGI application.

    Small bodies are answered in the event loop, others in one thread, the smallest first: threads that compute compete
    with the event loop for the interpreter. An answer in the event loop that takes longer than PATIENCE_SECONDS leaves
    the application by TakesLonger, and starts again in the thread. `waiting`: requests that wait for the thread or are
    answered in it, at most `max_waiting`.
    """

    def __init__(
        self, application: WSGIApplication, server: tuple[str, int], *, request_seconds: float, max_waiting: int
    ) -> None:
        self._application = application
        self._server = server
        self._request_seconds = request_seconds
        self._max_waiting = max_waiting
        self._queue: PriorityQueue[tuple[float, int, HttpConnection, Environ, Future[Response]]] = PriorityQueue()
        self._arrivals = count()
        self.waiting = 0

    def start(self) -> None:
        """Start the thread."""
        Thread(target=self._answer_queued, name="large-requests", daemon=True).start()

    async def __call__(self, scope: AsgiMessage, receive: Receive, send: Send) -> None:
        connection: HttpConnection = scope["state"]["connection"]
        connection.task = asyncio.current_task()
        with suppress(CancelledError):  # the client has left
            response = await self._answer(scope, receive, connection)
            headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in response.headers]
            if connection.ends:
                headers.append((b"connection", b"close"))
            await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
            await send({"type": "http.response.body", "body": response.get_data()})
        connection.end_request()

    async def _answer(self, scope: AsgiMessage, receive: Receive, connection: HttpConnection) -> Response:
        arrived = perf_counter()
        headers = tuple(scope["headers"])  # without trailers, which uvicorn adds
        body = await _receive_body(headers, receive, connection)
        verified = "SUCCESS" if connection.authenticated else "NONE"
        environ = make_environ(scope, headers, len(body), self._server)
        environ |= {"REMOTE_ADDR": connection.peer, CLIENT_VERIFIED: verified}
        deadline = partial(Deadline, arrived, environ["QUERY_STRING"], self._request_seconds)
        if connection.refusal is not None:
            return self._call(environ, body, REFUSAL, connection.refusal)
        if len(body) <= limits.SMALL_BYTES:
            with suppress(TakesLonger):
                return self._call(environ, body, DEADLINE, deadline(thread_time() + limits.PATIENCE_SECONDS))
        if self.waiting >= self._max_waiting:
            connection.count(Limit.DECISIONS)
            message = f"{self._max_waiting} decisions are in progress (--max-concurrent): try again"
            return self._call(environ, body, REFUSAL, ReviewError(StatusReason.UNAVAILABLE, message))
        environ |= {"wsgi.input": BytesIO(body), DEADLINE: deadline()}
        # Small ones go first, but large ones get their turn.
        turn = arrived + limits.REQUEST_SECONDS * min(len(body) / limits.LARGE_BODY_BYTES, 1)
        future = Future[Response]()
        self._queue.put((turn, next(self._arrivals), connection, environ, future))
        self.waiting += 1
        try:
            return await asyncio.wrap_future(future)
        finally:
            self.waiting -= 1
            environ.pop("wsgi.input")  # if the client has left, it would be kept until its turn

    def _answer_queued(self) -> None:
        while True:
            *_, connection, environ, future = self._queue.get()
            if future.set_running_or_notify_cancel():
                if environ[DEADLINE].is_over():
                    connection.count(Limit.REQUEST_TIME)
                    environ[REFUSAL] = ReviewError(StatusReason.UNAVAILABLE, _TOO_LATE)
                try:
                    future.set_result(Response.from_app(self._application, environ, buffered=True))
                except Exception as error:  # a bug: uvicorn logs it, and answers 500
                    future.set_exception(error)
            del connection, environ, future

    def _call(self, environ: Environ, body: bytes, member: str, value: object) -> Response:
        environ |= {"wsgi.input": BytesIO(body), member: value}
        return Response.from_app(self._application, environ, buffered=True)


async def _receive_body(headers: Headers, receive: Receive, connection: HttpConnection) -> bytes:
    """Receive a body, or the beginning of one that is refused. Raises CancelledError if the client has left.

    A body that is too large is read to its end, since clients may not read the response before.
    """
    length = max((int(value) for name, value in headers if name == b"content-length"), default=0)
    body, received, more = bytearray(), 0, True
    while True:
        if connection.refusal is None and max(length, received) > limits.BODY_BYTES:
            connection.refuse(body_too_large(), Limit.BODY_BYTES)
        if connection.refusal is not None:
            del body[limits.KEPT_BYTES :]
        if not more:
            return bytes(body)
        if received > limits.DISCARDED_BYTES:
            connection.abort()
        try:
            message = await receive()
        except CancelledError:
            if connection.refusal is None:
                raise
            return bytes(body[: limits.KEPT_BYTES])
        if message["type"] == "http.disconnect":
            raise CancelledError
        body += message["body"]
        received += len(message["body"])
        more = message["more_body"]
        del message  # while the next one is awaited


_TOO_LATE = "the request waited longer than its timeout (--request-timeout, or 0.8 × timeoutSeconds): try again"
