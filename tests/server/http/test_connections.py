"""The connections of one listener: which are closed to make room, what all of them may hold, and what is logged."""

import asyncio
import logging
from asyncio import Future
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from itertools import count
from math import inf
from pathlib import Path
from socket import socket, socketpair
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from server.http import limits
from server.http.connections import Connection, Connections, Occurrences
from server.http.limits import (
    BODY_BYTES,
    FREE_BYTES,
    HELD_BYTES,
    LOG_SECONDS,
    MIB,
    READ_BYTES,
    RETRY_AFTER_SECONDS,
    SPARE_BYTES,
    STALE_SECONDS,
    Limit,
)
from server.http.listener import Listener
from server.http.messages import Request, Response
from server.http.protocol import HttpProtocol
from tests.support.listener import Reachable, Recorder, reachable, reply
from tests.support.operating import until


def exceeded_by(exceeded: Occurrences[Limit]) -> dict[Limit, int]:
    """The limits that were exceeded, and how often."""
    return {limit: count for limit, count in exceeded.counts.items() if count}


ORDER = count(1.0)
"""When connections are accepted and answered, and their requests begin, one after the other."""


class Clock:
    """A clock that stands still."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Fake:
    """A connection that notes what is done to it, and behaves like a real one."""

    def __init__(self, connections: Connections, peer: str = "10.0.0.1") -> None:
        self.peer = peer
        self.since = next(ORDER)
        self.answered = False
        self.deadline = inf
        self.under_way = False
        self.receiving = False
        self.paused = False
        self.aborted = False
        self.was_overdue = False
        self.refused = False
        self.hung_up = False
        self.held_bytes = 0
        self._connections = connections
        connections.add(self)

    @property
    def idle(self) -> bool:
        return not self.receiving

    def receive(self, size: int) -> None:
        self.receiving, self.since = True, next(ORDER)
        self.held_bytes += size
        self._connections.hold(self, size)

    def begin(self) -> None:
        """Begin to decide what it received."""
        self.receiving, self.under_way = False, True

    def answer(self) -> None:
        self.receiving, self.under_way = False, False
        self.since, self.answered = next(ORDER), True
        self.release()

    def lost(self) -> None:
        self.receiving, self.under_way = False, False
        self._connections.remove(self)
        self.release()

    def release(self) -> None:
        held, self.held_bytes = self.held_bytes, 0
        if held:
            self._connections.release(self, held)

    def overdue(self) -> None:
        self.was_overdue = True
        self.deadline = inf

    def finish(self) -> None:
        """Nothing is under way."""

    def abort(self) -> None:
        self.aborted = True

    def pause(self) -> None:
        assert not self.paused
        self.paused = True

    def resume(self) -> None:
        assert self.paused
        self.paused = False

    def has_hung_up(self) -> bool:
        assert self.paused
        return self.hung_up

    def make_room(self) -> None:
        if self.receiving:
            self.refused = True
            self.answer()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def connections(clock: Clock) -> Connections:
    """Room for forty."""
    return Connections("test", 40, clock)


def used(connections: Connections, peer: str) -> Fake:
    """A connection that has completed a request."""
    connection = Fake(connections, peer)
    connection.answer()
    return connection


def peers(count: int) -> list[str]:
    return [f"10.0.0.{index}" for index in range(count)]


def aborted(*connections: Fake) -> list[bool]:
    return [connection.aborted for connection in connections]


# Which connections are closed to make room.


def test_there_is_room_up_to_the_limit(connections: Connections) -> None:
    for peer in peers(connections.limit):
        assert connections.make_room(peer)
        Fake(connections, peer)
    assert len(connections) == connections.limit
    assert not exceeded_by(connections.exceeded)


def test_idle_connections_are_closed_before_unfinished_requests_oldest_first(
    connections: Connections,
) -> None:
    slow, new, other_slow, again = (Fake(connections) for _ in range(4))
    slow.receive(1)
    again.answer()
    other_slow.receive(1)
    again.answer()
    for closed in (new, again, slow, other_slow):
        assert not closed.aborted
        assert connections.close_some()
        assert closed.aborted
    assert not connections.close_some()


def test_room_is_made_in_the_address_with_the_most_that_can_be_closed(connections: Connections) -> None:
    calling = [Fake(connections, "10.0.0.1") for _ in range(20)]
    for connection in calling:
        connection.begin()
    idle = [used(connections, "10.0.0.2") for _ in range(9)]
    others = [used(connections, f"10.0.1.{index}") for index in range(11)]
    for closed in idle:
        assert len(connections) == connections.limit
        assert connections.make_room("10.0.0.1")
        assert closed.aborted
        Fake(connections, "10.0.0.1").begin()
    assert not any(aborted(*calling, *others))
    assert exceeded_by(connections.exceeded) == {Limit.CONNECTIONS: 9}


def test_among_equal_addresses_one_without_a_request_gives_way(connections: Connections) -> None:
    all_of_them = [used(connections, "10.0.0.1"), Fake(connections, "10.0.0.2"), Fake(connections, "10.0.0.3")]
    for closed in (all_of_them[1], all_of_them[2], all_of_them[0]):
        assert connections.close_some()
        assert closed.aborted


def test_a_request_that_was_received_completely_is_never_closed(connections: Connections) -> None:
    all_of_them = [Fake(connections, peer) for peer in peers(connections.limit)]
    for connection in all_of_them:
        connection.begin()
    assert not connections.make_room("10.0.0.9")
    all_of_them[5].answer()
    assert connections.make_room("10.0.0.9")
    assert [connection for connection in all_of_them if connection.aborted] == [all_of_them[5]]


def test_a_connection_that_was_closed_is_no_longer_counted(connections: Connections) -> None:
    connection, other = Fake(connections), Fake(connections)
    assert connections.close_some()
    assert (connection.aborted, list(connections)) == (True, [other])
    connection.lost()
    assert list(connections) == [other]
    other.lost()
    other.lost()
    assert (len(connections), list(connections)) == (0, [])


# What is exceeded.


def test_a_limit_is_logged_once_a_minute_with_its_count(caplog: pytest.LogCaptureFixture) -> None:
    exceeded = Occurrences(Limit, "test listener: limit %s exceeded (%d in all%s)")
    exceeded.log(0.0)
    lines = []
    for now in (0.0, 1.0, LOG_SECONDS - 0.1, LOG_SECONDS, LOG_SECONDS + 1.0, 2 * LOG_SECONDS, 3 * LOG_SECONDS):
        if now != 3 * LOG_SECONDS:
            exceeded.count(Limit.BODY_TIME)
        exceeded.log(now)
        lines.append([record.getMessage() for record in caplog.records])
        caplog.clear()
    text = "test listener: limit body-time exceeded ({} in all)"
    assert lines == [[text.format(1)], [], [], [text.format(4)], [], [text.format(6)], []]
    assert exceeded_by(exceeded) == {Limit.BODY_TIME: 6}


def test_limits_are_logged_independently(caplog: pytest.LogCaptureFixture, clock: Clock) -> None:
    connections = Connections("test", 40, clock)
    connections.exceeded.count(Limit.BODY_TIME, "10.0.0.1")
    connections.sweep()
    connections.exceeded.count(Limit.FILES)
    connections.sweep()
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [
        (logging.WARNING, "test listener: limit body-time exceeded (1 in all, last by 10.0.0.1)"),
        (logging.WARNING, "test listener: limit files exceeded (1 in all)"),
    ]


def test_every_limit_has_a_name_of_its_own() -> None:
    assert len({limit.value for limit in Limit}) == len(Limit)


# When the time of a connection is over.


def test_connections_whose_time_is_over_are_ended(connections: Connections, clock: Clock) -> None:
    past, now, future, never = (Fake(connections, peer) for peer in peers(4))
    past.deadline, now.deadline, future.deadline = clock.now - 1, clock.now, clock.now + 1
    connections.sweep()
    assert [connection.was_overdue for connection in (past, now, future, never)] == [True, True, False, False]


def test_a_connection_may_end_another_when_its_time_is_over(connections: Connections, clock: Clock) -> None:
    class Ending(Fake):
        def overdue(self) -> None:
            super().overdue()
            self.lost()

    all_of_them = [Ending(connections, peer) for peer in peers(3)]
    for connection in all_of_them:
        connection.deadline = clock.now
    connections.sweep()
    assert (len(connections), [connection.was_overdue for connection in all_of_them]) == (0, [True] * 3)


# What they hold.


def test_reading_pauses_where_all_together_hold_too_much(connections: Connections) -> None:
    first, second, third = (Fake(connections, peer) for peer in peers(3))
    first.receive(HELD_BYTES)
    before = first.paused  # just at the limit
    second.receive(FREE_BYTES)
    after = [first.paused, second.paused]  # an ordinary review is read even now
    third.receive(FREE_BYTES + 1)
    second.receive(1)
    assert (before, after) == (False, [True, False])
    assert (first.paused, second.paused, third.paused) == (True, True, True)
    assert exceeded_by(connections.exceeded) == {Limit.HELD_BYTES: 3}


def test_a_paused_connection_that_holds_more_is_paused_once(connections: Connections) -> None:
    connection = Fake(connections)
    for _ in range(3):
        connection.receive(HELD_BYTES)
    assert connection.paused
    assert exceeded_by(connections.exceeded) == {Limit.HELD_BYTES: 1}


def test_reading_resumes_for_as_many_as_have_room(connections: Connections) -> None:
    large = Fake(connections)
    large.receive(HELD_BYTES - 2 * READ_BYTES)
    paused = [Fake(connections, peer) for peer in peers(4)]
    for connection in paused:
        connection.receive(READ_BYTES)
    assert [large.paused, *[connection.paused for connection in paused]] == [True] * 5
    paused[3].answer()
    assert [large.paused, *[connection.paused for connection in paused]] == [True] * 4 + [False], (
        "there is no room for others"
    )
    paused[2].answer()
    assert [large.paused, *[connection.paused for connection in paused]] == [True, True, True, False, False]
    paused[1].answer()
    assert [large.paused, paused[0].paused] == [True, False], "those that hold least are read first"
    large.answer()
    assert not large.paused
    assert connections.held_bytes == READ_BYTES


def test_a_connection_that_releases_its_bytes_is_read_again(connections: Connections) -> None:
    first, second = (Fake(connections, peer) for peer in peers(2))
    first.receive(HELD_BYTES)
    second.receive(2 * FREE_BYTES)
    before = second.paused
    second.answer()
    assert (before, second.paused) == (True, False)
    assert connections.held_bytes == HELD_BYTES


def test_a_connection_that_ends_is_never_read_again(connections: Connections) -> None:
    connection = Fake(connections)
    connection.receive(2 * HELD_BYTES)
    assert connection.paused
    connection.lost()
    assert connection.paused
    assert connections.held_bytes == 0


def test_a_request_that_is_received_too_slowly_makes_room(connections: Connections, clock: Clock) -> None:
    stale, decided, fresh = (Fake(connections, peer) for peer in peers(3))
    stale.receive(HELD_BYTES // 2)
    decided.receive(HELD_BYTES // 2)
    decided.begin()
    clock.now += STALE_SECONDS
    fresh.receive(2 * FREE_BYTES)
    before = fresh.paused
    connections.sweep()
    assert (stale.refused, decided.refused, fresh.refused) == (True, False, False)
    assert (before, fresh.paused) == (True, False)
    assert connections.held_bytes == HELD_BYTES // 2 + 2 * FREE_BYTES


def test_no_more_requests_are_refused_than_make_room(connections: Connections, clock: Clock) -> None:
    all_of_them = [Fake(connections, peer) for peer in peers(4)]
    for connection in all_of_them:
        connection.receive(HELD_BYTES // 3)
        clock.now += 0.1
    clock.now += STALE_SECONDS
    connections.sweep()
    assert [connection.refused for connection in all_of_them] == [True, True, False, False]
    assert HELD_BYTES // 3 < connections.held_bytes <= HELD_BYTES - SPARE_BYTES


def test_a_fresh_request_does_not_make_room(connections: Connections, clock: Clock) -> None:
    connection = Fake(connections)
    connection.receive(2 * HELD_BYTES)
    clock.now += STALE_SECONDS / 2
    connections.sweep()
    assert (connection.refused, connection.paused) == (False, True)


def test_a_paused_connection_whose_client_has_gone_is_closed(connections: Connections) -> None:
    connection, other = (Fake(connections, peer) for peer in peers(2))
    for it in (connection, other):
        it.receive(HELD_BYTES)
    connection.hung_up = True
    connections.sweep()
    assert aborted(connection, other) == [True, False]


class Accounts(RuleBasedStateMachine):
    """Any sequence of events, of connections that behave like real ones."""

    @initialize(limit=st.integers(1, 40))
    def begin(self, limit: int) -> None:
        self.clock = Clock()
        self.connections = Connections("test", limit, self.clock)
        self.open: list[Fake] = []

    def one_of(self, index: int) -> Fake:
        return self.open[index % len(self.open)]

    @rule(peer=st.integers(1, 5), hung_up=st.booleans())
    def accept(self, peer: int, hung_up: bool) -> None:
        open_ones = [connection for connection in self.open if not connection.aborted]
        peers = Counter(connection.peer for connection in open_ones if not connection.under_way)
        if self.connections.make_room(f"10.0.0.{peer}"):
            self.open.append(Fake(self.connections, f"10.0.0.{peer}"))
            self.open[-1].hung_up = hung_up
        else:
            assert not peers
        for closed in (connection for connection in open_ones if connection.aborted):
            assert not closed.under_way
            assert peers[closed.peer] == max(peers.values())

    @precondition(lambda self: self.open)
    @rule(index=st.integers(0, 20), size=st.sampled_from([1, FREE_BYTES, 2 * FREE_BYTES, 5 * MIB, 20 * MIB]))
    def receive(self, index: int, size: int) -> None:
        connection = self.one_of(index)
        if not connection.paused:
            connection.receive(size)

    @precondition(lambda self: self.open)
    @rule(index=st.integers(0, 20), later=st.booleans())
    def receive_all(self, index: int, later: bool) -> None:
        connection = self.one_of(index)
        if connection.receiving and not connection.aborted:
            connection.begin() if later else connection.answer()

    @precondition(lambda self: self.open)
    @rule(index=st.integers(0, 20))
    def answer(self, index: int) -> None:
        connection = self.one_of(index)
        if connection.under_way:
            connection.answer()

    @precondition(lambda self: self.open)
    @rule(index=st.integers(0, 20))
    def end(self, index: int) -> None:
        connection = self.one_of(index)
        self.open.remove(connection)
        connection.lost()

    @rule(seconds=st.sampled_from([0.0, 0.25, STALE_SECONDS]))
    def pass_time(self, seconds: float) -> None:
        self.clock.now += seconds
        self.connections.sweep()

    @rule()
    def make_room_for_files(self) -> None:
        idle = [connection for connection in self.open if not connection.under_way and not connection.aborted]
        assert self.connections.close_some() == bool(idle)

    @invariant()
    def bounds_are_kept(self) -> None:
        open_ones: list[Connection] = list(self.connections)
        assert len(self.connections) == len(open_ones) <= self.connections.limit
        assert {id(connection) for connection in open_ones} <= {id(connection) for connection in self.open}

    @invariant()
    def what_is_held_is_counted(self) -> None:
        assert self.connections.held_bytes == sum(connection.held_bytes for connection in self.open)
        if self.connections.held_bytes <= HELD_BYTES // 2:
            assert not any(connection.paused for connection in self.open if not connection.aborted)

    def teardown(self) -> None:
        for connection in getattr(self, "open", []):
            connection.lost()
        if hasattr(self, "connections"):
            assert self.connections.held_bytes == 0
            assert len(self.connections) == 0
            self.connections.sweep()


TestAccounts = Accounts.TestCase
TestAccounts.machine = Accounts  # type: ignore[attr-defined]


# Real connections: without sockets first.


class Wire(asyncio.Transport):
    """A transport that reads when it is told to, and whose client reads when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.closing = False
        self.paused = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """It is sent."""

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """The test says when it is too much."""

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True

    def abort(self) -> None:
        self.closing = True

    def pause_reading(self) -> None:
        assert not self.paused
        self.paused = True

    def resume_reading(self) -> None:
        assert self.paused
        self.paused = False


GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
PIECES = [
    GET, GET * 3, GET * 20, b"GET / HTTP/1.1\r\nConnection: close\r\nHost: x\r\n\r\n", b"GET / HTTP/1.0\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: x\r\n", b"Content-Length: 20000\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n",
    b"x" * 5_000, b"1388\r\n" + b"x" * 5_000 + b"\r\n", b"0\r\n\r\n", b"Expect: 100-continue\r\n", b"\0", b"\r\n",
]  # fmt: skip


class Events(RuleBasedStateMachine):
    """Any sequence of events of real connections, as an event loop would bring them."""

    @initialize(limit=st.integers(1, 8))
    def begin(self, limit: int) -> None:
        self.stack = ExitStack()
        self.futures: list[Future[Response]] = []
        bound = self.stack.enter_context(socket())
        self.socket, client = map(self.stack.enter_context, socketpair())
        self.client = client
        self.clock = Clock()
        self.listener = Listener("test", bound, lambda _: Recorder(self.decide), connections=limit)
        self.stack.callback(self.listener.loop.close)
        self.listener.now = self.clock
        self.connections = self.listener.connections = Connections("test", limit, self.clock)
        self.open: list[tuple[HttpProtocol, Wire]] = []

    def decide(self, request: Request) -> Response | Future[Response]:
        if request.method == "POST":
            return Response(200, b"")
        self.futures.append(self.listener.loop.create_future())
        return self.futures[-1]

    @rule()
    def settle(self) -> None:
        """The loop turns."""
        self.listener.loop.run_until_complete(asyncio.sleep(0))

    def one_of(self, index: int) -> tuple[HttpProtocol, Wire]:
        return self.open[index % len(self.open)]

    @rule(peer=st.integers(1, 3))
    def accept(self, peer: int) -> None:
        if self.connections.make_room(str(peer)):
            protocol, wire = HttpProtocol(self.listener, self.socket, str(peer), None), Wire()
            self.connections.add(protocol)
            protocol.connection_made(wire)
            self.open.append((protocol, wire))

    @precondition(lambda self: self.open)
    @rule(index=st.integers(0, 20), pieces=st.lists(st.sampled_from(PIECES), min_size=1, max_size=5))
    def receive(self, index: int, pieces: list[bytes]) -> None:
        protocol, wire = self.one_of(index)
        for piece in pieces:
            if not (wire.closing or wire.paused):
                protocol.get_buffer(-1)[: len(piece)] = piece
                protocol.buffer_updated(len(piece))

    @precondition(lambda self: self.open)
    @rule(index=st.integers(0, 20), reads=st.booleans())
    def client_reads_or_not(self, index: int, reads: bool) -> None:
        protocol, _ = self.one_of(index)
        protocol.resume_writing() if reads else protocol.pause_writing()
        self.settle()

    @rule()
    def answer(self) -> None:
        for future in self.futures:
            if not future.done():
                future.set_result(Response(200, b"{}"))
        self.futures.clear()
        self.settle()

    @precondition(lambda self: self.open)
    @rule(index=st.integers(0, 20), action=st.sampled_from(["finish", "make_room", "overdue", "abort"]))
    def act(self, index: int, action: str) -> None:
        getattr(self.one_of(index)[0], action)()

    @rule(seconds=st.sampled_from([0.1, 1.0, 15.0, 200.0]))
    def pass_time(self, seconds: float) -> None:
        self.clock.now += seconds
        self.connections.sweep()

    @precondition(lambda self: self.open)
    @rule(index=st.integers(0, 20))
    def end(self, index: int) -> None:
        protocol, _ = connection = self.one_of(index)
        self.open.remove(connection)
        protocol.connection_lost(None)
        self.settle()

    @invariant()
    def nothing_is_lost(self) -> None:
        assert self.connections.held_bytes >= 0
        if not self.open:
            assert self.connections.held_bytes == 0
            assert len(self.connections) == 0

    @invariant()
    def every_open_connection_ends_at_some_time(self) -> None:
        for protocol, wire in self.open:
            assert protocol.deadline < inf or protocol.under_way or wire.closing, (protocol, wire)

    def teardown(self) -> None:
        if hasattr(self, "stack"):
            with self.stack:
                while self.open:
                    self.end(0)
                self.nothing_is_lost()


TestEvents = Events.TestCase
TestEvents.machine = Events  # type: ignore[attr-defined]


# Real connections, on loopback.


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reachable]:
    """Room for forty connections. What is held is little and is noticed soon."""
    monkeypatch.setattr(limits, "SWEEP_SECONDS", 0.01)
    monkeypatch.setattr(limits, "HELD_BYTES", 256 * 1024)
    with reachable(tmp_path, Recorder(), secure=False, connections=40) as found:
        yield found
        connections = found.listener.connections
        until(lambda: not connections and not connections.held_bytes, "the connections end")


def ended(connection: Any) -> bool:
    """Wait until the other side ends it; return True if it does."""
    try:
        return not connection.recv(1)
    except ConnectionResetError:
        return True


def test_new_connections_are_not_closed_for_idle_clients_of_other_addresses(server: Reachable) -> None:
    """Five addresses hold answered connections, then an API server connects, then ten clients only connect."""
    with ExitStack() as stack:

        def opened(count: int, source: str, sent: bytes = b"") -> list[socket]:
            return [stack.enter_context(closing(server.open(sent, source=source))) for _ in range(count)]

        for index in range(5):
            assert {reply(connection).status for connection in opened(7, f"127.0.0.{index + 2}", GET)} == {200}
        new = opened(3, "127.0.0.1")
        opened(10, "127.0.0.9")
        until(lambda: server.listener.connections.exceeded.counts[Limit.CONNECTIONS] == 8, "all are accepted")
        for connection in new:
            connection.sendall(GET)
            assert reply(connection).status == 200


def test_idle_clients_of_many_addresses_make_room_for_another(server: Reachable) -> None:
    with ExitStack() as stack:
        busy = stack.enter_context(closing(server.open(GET, source="127.0.1.1")))
        assert reply(busy).status == 200
        idle = [stack.enter_context(closing(server.open(source=f"127.0.0.{index // 10 + 2}"))) for index in range(39)]
        until(lambda: len(server.listener.connections) == 40, "all are accepted")
        for at in range(3):
            new = stack.enter_context(closing(server.open(GET, source=f"127.0.2.{at + 1}")))
            assert reply(new).status == 200
            assert ended(idle[10 * at]), "each in another of the addresses with the most"
        busy.sendall(GET)
        assert reply(busy).status == 200
        assert exceeded_by(server.listener.connections.exceeded) == {Limit.CONNECTIONS: 3}


def begun(server: Reachable, received: int, source: str = "127.0.0.1") -> Any:
    """A connection that sends its body slowly."""
    head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % BODY_BYTES
    return closing(server.open(head + b"x" * received, source))


def wait_for(server: Reachable, limit: Limit) -> Callable[[], object]:
    return lambda: server.listener.connections.exceeded.counts[limit]


def test_small_requests_are_answered_while_slow_ones_hold_bytes(
    server: Reachable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "STALE_SECONDS", inf)
    with begun(server, 300 * 1024) as slow:
        until(wait_for(server, Limit.HELD_BYTES), "the limit is exceeded")
        body = b"x" * (FREE_BYTES - 100)
        with closing(server.open(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body))) as ordinary:
            for at in range(0, len(body), 1000):
                ordinary.sendall(body[at : at + 1000])
            assert reply(ordinary).body == str(len(body)).encode()
        assert server.listener.connections.held_bytes > 256 * 1024
        monkeypatch.setattr(limits, "STALE_SECONDS", 0.0)
        assert reply(slow).status == 503


def test_reading_resumes_once_there_is_room(server: Reachable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "STALE_SECONDS", inf)
    body = b"x" * 200 * 1024
    sent = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    with begun(server, 200 * 1024):
        until(lambda: server.listener.connections.held_bytes > 200 * 1024, "the first body is held")
        [slow] = server.listener.connections
        with closing(server.open(sent, "127.0.0.2")) as other:
            until(wait_for(server, Limit.HELD_BYTES), "the limit is exceeded")
            server.listener.loop.call_soon_threadsafe(slow.abort)
            assert reply(other).body == str(len(body)).encode()


@pytest.mark.parametrize("secure", [False, True])
def test_a_slow_request_gets_503_if_others_need_its_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, secure: bool
) -> None:
    monkeypatch.setattr(limits, "SWEEP_SECONDS", 0.01)
    monkeypatch.setattr(limits, "HELD_BYTES", 256 * 1024)
    monkeypatch.setattr(limits, "STALE_SECONDS", 0.1)
    recorder = Recorder()
    with reachable(tmp_path, recorder, secure=secure) as server, begun(server, 200 * 1024) as slow:
        until(lambda: server.listener.connections.held_bytes > 200 * 1024, "the first body is held")
        with begun(server, 100 * 1024, "127.0.0.2"):
            answer = reply(slow)
            assert (answer.status, answer.headers["retry-after"]) == (503, str(RETRY_AFTER_SECONDS))
            assert answer.ends
            until(lambda: server.listener.connections.held_bytes <= 256 * 1024, "there is room")
    assert recorder.requests == []


def test_the_protocol_is_a_connection(tmp_path: Path) -> None:
    def satisfies(_: Connection) -> None:
        """Checked by mypy."""

    with reachable(tmp_path, Recorder(), secure=False) as server, closing(server.open(GET)) as one:
        assert reply(one).status == 200
        [connection] = server.listener.connections
        satisfies(connection)
        assert connection.peer == "127.0.0.1"
