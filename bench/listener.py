"""The listener with idle, excessive and misbehaving clients (python -m bench.listener [SCENARIO …]).

Each scenario has its own server process. Clients connect over TLS on loopback from several addresses of 127.0.0.0/8,
since room for a new one is made in the address with the most. Memory is that of the server (VmRSS, and VmHWM for the
peak).

idle: the maximum number of idle connections. flood: 2,000 connections that send headers just under the limit and most
of a body at once. large: ten pods of about 3 MiB at once, with small pods meanwhile. burst: 1,000 reviews at once, each
on a new connection of one address, beside the same server that allows every review without a decision; then 3,000,
which try again after a 503 as an API server does. certificates: the certificate changes under load. sigterm: the server
is stopped under load. hostile: stalled handshakes, slow clients, half-closes, resets. files: more connections than file
descriptors.

A request is lost if it was sent and not answered, or its connection was reset; a refused connection is not a loss. The
exit code is 1 if a promise is not kept.
"""

import argparse
import asyncio
import http.client
import multiprocessing
import resource
import selectors
import signal
import socket
import ssl
import struct
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, sleep
from typing import Any
from urllib.parse import urlsplit

import uvloop

from bench.process import memory_mib, running
from bench.promise import Promise, exit_code
from bench.reviews import MIG, job_pods, review, training_pod
from rules_engine.server.http.limits import CONNECTIONS, HEADER_BYTES, RETRY_AFTER_SECONDS
from tests.support.operating import Load, Mounted, saying
from tests.support.server import Running, certificate_files, started

IDLE_KIB = 64.0
"""RSS of an idle connection."""
CALLER_SECONDS = 1.0
"""Time for a new caller, including the handshake."""

FLOOD_CONNECTIONS = 2000
FLOOD_BODY_BYTES = 65_000
FLOOD_PEAK_MIB = 300.0
FLOOD_SECONDS = 12.0
"""Time until those connections are closed: longer than the limit for a body."""
KEPT_MIB = 40.0
"""Memory that need not be released."""

LARGE_PODS, TOLERATIONS = 10, 98_000
LARGE_SECONDS = 5.0
LARGE_PEAK_MIB = 350.0
SMALL_SECONDS = 0.5

BURST, LARGE_BURST = 1000, 3000
BURST_KIB = range(6, 31)
"""Sizes of its reviews."""
BURST_SECONDS = 10.0
"""The API server's default timeoutSeconds, connection and handshake included."""
LARGE_BURST_SECONDS = 30.0
"""The largest timeoutSeconds: the clients, which share two cores with the server, take 9 s of it."""
BURST_ROUNDS = 3
BURST_RATIO = 2.0
FLOODED_CALLER_SECONDS = 2.0
"""Slowest response, to the server that allows every review; of the fastest rounds."""

CHANGES = 20
CHANGE_PAUSE_SECONDS = 0.5
REQUESTS = 50_000
ENOUGH_SECONDS = 180.0
"""Maximum duration of these requests."""
CALLERS = ((2, 3), (3, 2))
"""By process: callers that keep their connection, and callers that open a connection per request."""

STOPS = 10
"""Number of stops under load, every second one with --drain-seconds 0."""
STOP_SECONDS = 4.0

HOSTILE = 200
"""Connections of each kind."""
PUMP_SECONDS = 4.0
"""Duration for which clients that read nothing send as many requests as possible."""

FILES = 64
"""Limit of file descriptors, for FILES_CONNECTIONS connections."""
FILES_CONNECTIONS = 16
FILES_SECONDS = 12.0
"""Time for a caller meanwhile: those that stall are closed after 5 seconds, eight at a time."""

SETTLE_SECONDS = 15.0
"""Time between a load and the measurement of memory: longer than the limit for a body, since the server does not notice
the end of a connection that it does not read."""

TIMEOUT_SECONDS = 30.0

SMALL = review(training_pod())
_PROCESSES = multiprocessing.get_context("spawn")


def head(length: int, path: str = "/mutate", padding: int = 0) -> bytes:
    """Return the head of a POST. `padding`: length of an additional header in bytes."""
    more = b"X-Padding: %b\r\n" % (b"x" * padding) if padding else b""
    fixed = b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%b\r\n"
    return fixed % (path.encode(), length, more)


REQUEST = head(len(SMALL)) + SMALL


class Client:
    """Connections to a server, from several addresses in turn."""

    def __init__(self, port: int, context: ssl.SSLContext) -> None:
        self._port = port
        self._context = context

    def plain(self, number: int = 0) -> socket.socket:
        """Open a TCP connection. `number`: 0 for the address of new callers, else one of eight others."""
        source = f"127.0.0.{2 + number % 8 if number else 1}"
        return socket.create_connection(("127.0.0.1", self._port), TIMEOUT_SECONDS, (source, 0))

    def secure(self, number: int = 0) -> ssl.SSLSocket:
        return self._context.wrap_socket(self.plain(number), server_hostname="localhost")

    def many(self, count: int, make: Callable[[int], socket.socket | None]) -> list[socket.socket]:
        """Open connections with `make`, four at a time, and return those that succeed."""

        def one(number: int) -> socket.socket | None:
            with suppress(OSError, http.client.HTTPException):
                return make(number)
            return None

        with ThreadPoolExecutor(4) as threads:
            return [made for made in threads.map(one, range(1, count + 1)) if made is not None]

    def caller_seconds(self) -> float:
        """Return the time for a pod on a new connection."""
        begin = monotonic()
        with self.secure() as connection:
            status = send(connection)
            if status != 200:
                raise SystemExit(f"bench.listener: a new caller got {status}")
        return monotonic() - begin


def send(connection: socket.socket, request: bytes = REQUEST) -> int:
    """Send a request on a connection, and return the status of the response."""
    connection.sendall(request)
    response = http.client.HTTPResponse(connection)
    response.begin()
    response.read()
    return response.status


@contextmanager
def serving(folder: Path, *arguments: str | Path, **more: Any) -> Iterator[tuple[Running, Client]]:
    """Run a server that has answered some requests. Yields it and its client."""
    with started(folder, *arguments, **more) as server:
        client = Client(server.port, server.context())
        for _ in range(20):
            client.caller_seconds()
        yield server, client


def idle(folder: Path) -> list[Promise]:
    with serving(folder) as (server, client):

        def used(number: int) -> socket.socket:
            connection = client.secure(number)
            send(connection)
            return connection

        before = memory_mib(server.process.pid)
        connections = client.many(CONNECTIONS, used)
        sleep(1)
        each = (memory_mib(server.process.pid) - before) * 1024 / len(connections)
        seconds = client.caller_seconds()
        close(connections)
        sleep(SETTLE_SECONDS)
        kept = memory_mib(server.process.pid) - before
    return [
        Promise("idle: connections", len(connections), CONNECTIONS, least=True),
        Promise("idle: RSS of each", each, IDLE_KIB, unit=" KiB"),
        Promise("idle: time for a new caller", seconds, CALLER_SECONDS, unit=" s"),
        Promise("idle: RSS kept afterwards", kept, KEPT_MIB, unit=" MiB"),
    ]


def flood(folder: Path) -> list[Promise]:
    sent = head(FLOOD_BODY_BYTES + 1000, padding=HEADER_BYTES - 300) + b" " * FLOOD_BODY_BYTES
    with serving(folder) as (server, client), small_pods(server, anew=True) as small:
        before = memory_mib(server.process.pid)
        connections = client.many(FLOOD_CONNECTIONS, client.secure)
        opened = memory_mib(server.process.pid)
        outcome = send_at_once(connections, sent, FLOOD_SECONDS)
        latencies, failed = small()
        peak = memory_mib(server.process.pid, "VmHWM")
        close(connections)
        sleep(SETTLE_SECONDS)
        kept = memory_mib(server.process.pid) - before
    print(
        f"  flood: RSS {before:.0f} MiB, {opened:.0f} with {len(connections)} connections; {outcome},"
        " by status of the response"
    )
    return [
        Promise("flood: connections", len(connections), FLOOD_CONNECTIONS, least=True),
        Promise("flood: peak RSS", peak, FLOOD_PEAK_MIB, unit=" MiB"),
        Promise("flood: RSS kept afterwards", kept, KEPT_MIB, unit=" MiB"),
        Promise("flood: slowest new caller meanwhile", max(latencies), FLOODED_CALLER_SECONDS, unit=" s"),
        Promise("flood: new callers not answered 200", failed, 0),
    ]


def send_at_once(connections: Sequence[socket.socket], data: bytes, seconds: float) -> str:
    """Send data on all connections, read the responses, and return a summary of the outcomes."""
    selector = selectors.DefaultSelector()
    outcomes: Counter[str] = Counter()
    for one in connections:
        one.setblocking(False)
        selector.register(one, selectors.EVENT_READ | selectors.EVENT_WRITE)
    sending = set(connections)
    end = monotonic() + seconds
    while selector.get_map() and monotonic() < end:
        for key, events in selector.select(0.1):
            connection = key.fileobj
            assert isinstance(connection, socket.socket)
            try:
                if events & selectors.EVENT_WRITE and connection in sending:
                    connection.send(data)
                    sending.discard(connection)
                    selector.modify(connection, selectors.EVENT_READ)
                if events & selectors.EVENT_READ:
                    answer = connection.recv(65536)
                    outcomes[answer[9:12].decode() or "end"] += 1
                    if not answer:
                        selector.unregister(connection)
            except (ssl.SSLWantWriteError, ssl.SSLWantReadError, BlockingIOError):
                continue
            except OSError as error:
                outcomes[type(error).__name__] += 1
                selector.unregister(connection)
    outcomes["not sent completely"] = len(sending)
    selector.close()
    return ", ".join(f"{count} {what}" for what, count in sorted(outcomes.items()))


def large(folder: Path) -> list[Promise]:
    pod = training_pod()
    pod["spec"]["tolerations"] = [{"operator": "Exists", "key": f"{n:05}"} for n in range(TOLERATIONS)]
    body = review(pod)
    request = head(len(body)) + body
    statuses: Counter[int] = Counter()
    with serving(folder, "--rules", RULES) as (server, client), small_pods(server) as small:
        before = memory_mib(server.process.pid)
        barrier = threading.Barrier(LARGE_PODS)

        def one(number: int) -> float:
            with client.secure(number) as connection:
                barrier.wait()
                begin = monotonic()
                statuses[send(connection, request)] += 1
                return monotonic() - begin

        with ThreadPoolExecutor(LARGE_PODS) as threads:
            seconds = list(threads.map(one, range(1, LARGE_PODS + 1)))
        latencies, failed = small()
        peak = memory_mib(server.process.pid, "VmHWM")
        sleep(SETTLE_SECONDS)
        kept = memory_mib(server.process.pid) - before
    print(
        f"  large: {len(body) / 1024 / 1024:.1f} MiB each, answered in {min(seconds):.1f} to {max(seconds):.1f} s:"
        f" {dict(statuses)}; {len(latencies)} small pods meanwhile, {failed} of them not answered 200"
    )
    return [
        Promise("large: answered 200 or 503", statuses[200] + statuses[503], LARGE_PODS, least=True),
        Promise("large: decided", statuses[200], 1, least=True),
        Promise("large: time until all are answered", max(seconds), LARGE_SECONDS, unit=" s"),
        Promise("large: peak RSS", peak, LARGE_PEAK_MIB, unit=" MiB"),
        Promise("large: RSS kept afterwards", kept, KEPT_MIB, unit=" MiB"),
        Promise("large: slowest small pod meanwhile", max(latencies), SMALL_SECONDS, unit=" s"),
        Promise("large: small pods not answered 200", failed, 0),
    ]


def burst(folder: Path) -> list[Promise]:
    requests = []
    for number, pod in enumerate(job_pods(MIG, LARGE_BURST)):
        missing = BURST_KIB[number % len(BURST_KIB)] * 1024 - len(SMALL)
        pod["spec"]["containers"][0]["env"] += [
            {"name": f"MORE_{n:04}", "value": "x" * 21} for n in range(missing // 50)
        ]
        body = review(pod)
        requests.append(head(len(body), "/mutate?timeout=10s") + body)
    outcomes: dict[str | None, Counter[str]] = {"allow": Counter(), None: Counter()}
    seconds: dict[str | None, list[float]] = {"allow": [], None: []}
    for _ in range(BURST_ROUNDS):
        for fixed, counts in outcomes.items():
            with running(folder, ("--rules", str(RULES)), fixed=fixed) as server:
                port = urlsplit(server.url).port
                found = uvloop.run(call_at_once(port, requests[:BURST], BURST_SECONDS))
            counts.update(outcome for outcome, _ in found)
            seconds[fixed].append(max(taken for _, taken in found))
    for fixed, counts in outcomes.items():
        slowest = ", ".join(f"{taken:.2f}" for taken in seconds[fixed])
        print(f"  burst: {fixed or 'this server'}: slowest {slowest} s: {dict(counts)}")
    with running(folder, ("--rules", str(RULES))) as server:
        port = urlsplit(server.url).port
        found = uvloop.run(call_at_once(port, requests, LARGE_BURST_SECONDS, again=True))
    answered = [taken for outcome, taken in found if outcome == "200"]
    print(f"  burst of {LARGE_BURST}: {dict(Counter(outcome for outcome, _ in found))}, slowest {max(answered):.2f} s")
    return [
        Promise(f"burst of {LARGE_BURST}: answered 200", len(answered), LARGE_BURST, least=True),
        Promise(f"burst: answered 200 in {BURST_SECONDS:g} s", outcomes[None]["200"], BURST_ROUNDS * BURST, least=True),
        Promise("burst: slowest, to a server that allows all", min(seconds[None]) / min(seconds["allow"]), BURST_RATIO),
    ]


async def call_at_once(
    port: int | None, requests: Sequence[bytes], seconds: float, *, again: bool = False
) -> list[tuple[str, float]]:
    """Send each request on a new connection; return the status or the error, and the seconds, of each.

    `again`: after a 503, as client-go does after its Retry-After.
    """
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

    async def call(request: bytes) -> tuple[str, float]:
        begin = monotonic()
        try:
            async with asyncio.timeout(seconds):
                while True:
                    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
                    writer.write(request)
                    outcome = (await reader.readuntil(b"}"))[9:12].decode()
                    writer.close()
                    if outcome != "503" or not again:
                        break
                    await asyncio.sleep(RETRY_AFTER_SECONDS)
        except (OSError, EOFError, TimeoutError) as error:
            outcome = type(error).__name__
        return outcome, monotonic() - begin

    return await asyncio.gather(*map(call, requests))


RULES = Path(__file__).parents[1] / "rules" / "gpu-allocation"


@contextmanager
def small_pods(server: Running, *, anew: bool = False) -> Iterator[Callable[[], tuple[list[float], int]]]:
    """Send small pods from another process until the yielded function is called.

    It returns the seconds of each, and the number of failures. `anew`: each on a new connection.
    """
    mine, its = _PROCESSES.Pipe()
    process = _PROCESSES.Process(target=_small_pods, args=(its, server.port, server.ca, anew), daemon=True)
    process.start()
    its.close()
    mine.recv()

    def result() -> tuple[list[float], int]:
        mine.send(None)
        found: tuple[list[float], int] = mine.recv()
        return found

    yield result
    process.join()


def _small_pods(pipe: Pipe, port: int, ca: Path, anew: bool) -> None:
    client = Client(port, ssl.create_default_context(cafile=str(ca)))
    latencies: list[float] = []
    failed = 0
    connection: ssl.SSLSocket | None = None
    pipe.send("ready")
    while not pipe.poll():
        begin = monotonic()
        try:
            connection = connection or client.secure()
            failed += send(connection) != 200
            if anew:
                connection.close()
                connection = None
        except (OSError, http.client.HTTPException):
            failed += 1
            connection = None
        latencies.append(monotonic() - begin)
        sleep(0.05 if anew else 0.002)
    if connection is not None:
        connection.close()
    pipe.send((latencies, failed))


class Callers:
    """Callers in other processes, half of which open a new connection per request."""

    def __init__(self, port: int, trusted: str, stack: ExitStack) -> None:
        self._pipes: list[Pipe] = []
        for kept, fresh in CALLERS:
            mine, its = _PROCESSES.Pipe()
            process = _PROCESSES.Process(target=_callers, args=(its, port, trusted, kept, fresh), daemon=True)
            process.start()
            stack.callback(process.join)
            its.close()
            self._pipes.append(mine)
        for pipe in self._pipes:
            pipe.recv()

    def answered(self) -> int:
        for pipe in self._pipes:
            pipe.send("count")
        return sum(pipe.recv() for pipe in self._pipes)

    def end(self) -> tuple[int, Counter[str]]:
        """End the callers, and return the number of answered requests and the errors of lost ones."""
        for pipe in self._pipes:
            pipe.send("end")
        answers, lost = 0, Counter[str]()
        for pipe in self._pipes:
            answers += pipe.recv()
            lost += pipe.recv()
        return answers, lost


def _callers(pipe: Pipe, port: int, trusted: str, kept: int, fresh: int) -> None:
    """Send "ready", the number of answers at each "count", and at the end that number and the lost requests."""
    died: list[str] = []
    threading.excepthook = lambda arguments: died.append(f"died: {arguments.exc_value!r}")
    load = Load(port, ssl.create_default_context(cadata=trusted))
    with load.running(kept, fresh):
        pipe.send("ready")
        while pipe.recv() == "count":
            pipe.send(load.answers.total())
    pipe.send(load.answers.total())
    lost = {what: count for what, count in load.failures.items() if "ConnectionRefusedError" not in what}
    pipe.send(Counter(lost) + Counter(died))


def certificates(folder: Path) -> list[Promise]:
    now = datetime.now(UTC)
    pairs = []
    for number in range(CHANGES + 1):
        files = certificate_files(folder / f"pair-{number}", now - timedelta(hours=1), now + timedelta(days=9))
        pairs.append({"tls.crt": files[0].read_bytes(), "tls.key": files[1].read_bytes()})
    trusted = "".join(pair["tls.crt"].decode() for pair in pairs)
    mounted = Mounted(folder / "secret", pairs[0])
    given = ("--tls-cert", mounted.folder / "tls.crt", "--tls-key", mounted.folder / "tls.key")
    changes = 0
    with started(folder, *given, "--rules", denying(folder)) as server, ExitStack() as stack:
        begin = monotonic()
        callers = Callers(server.port, trusted, stack)
        for pair in pairs[1:]:
            mounted.swap(pair)
            end = monotonic() + TIMEOUT_SECONDS
            while ssl.get_server_certificate(("127.0.0.1", server.port)).encode() != pair["tls.crt"]:
                if monotonic() > end:
                    raise SystemExit(f"bench.listener: new certificate not served: {server.logged()}")
                sleep(0.02)
            changes += 1
            sleep(CHANGE_PAUSE_SECONDS)
        while callers.answered() < REQUESTS and monotonic() < begin + ENOUGH_SECONDS:
            sleep(0.1)
        answered, lost = callers.end()
        seconds = monotonic() - begin
    print(f"  certificates: {answered:,} requests in {seconds:.0f} s; lost: {dict(lost)}")
    return [
        Promise("certificates: changes", changes, CHANGES, least=True),
        Promise("certificates: requests answered", answered, REQUESTS, least=True),
        Promise("certificates: requests lost", lost.total(), 0),
    ]


def denying(folder: Path) -> Path:
    """Write a rule that denies pods, since Load reads the message of a denial, and return its file."""
    rules = folder / "rules.yaml"
    rules.write_text(saying("denied"))
    return rules


def sigterm(folder: Path) -> list[Promise]:
    answers, lost, codes = 0, Counter[str](), Counter[int | None]()
    longest = 0.0
    for number in range(STOPS):
        drain = ("--drain-seconds", "0" if number % 2 else "1")
        place = folder / str(number)
        place.mkdir()
        with started(place, "--rules", denying(place), *drain) as server, ExitStack() as stack:
            callers = Callers(server.port, server.ca.read_text(), stack)
            sleep(1)
            begin = monotonic()
            codes[server.stop(signal.SIGTERM)] += 1
            longest = max(longest, monotonic() - begin)
            more, failed = callers.end()
            answers += more
            lost += failed
    print(f"  sigterm: {STOPS} stops, {answers:,} requests; exit codes {dict(codes)}; lost: {dict(lost)}")
    return [
        Promise("sigterm: requests lost", lost.total(), 0),
        Promise("sigterm: stops with exit code 0", codes[0], STOPS, least=True),
        Promise("sigterm: slowest stop", longest, STOP_SECONDS, unit=" s"),
    ]


def hostile(folder: Path) -> list[Promise]:
    promises = []
    with serving(folder) as (server, client):
        held: list[socket.socket] = []

        def partial(data: bytes) -> Callable[[int], socket.socket]:
            def make(number: int) -> socket.socket:
                connection = client.secure(number)
                connection.sendall(data)
                return connection

            return make

        def stalled(number: int) -> socket.socket:
            connection = client.plain(number)
            connection.sendall(b"\x16\x03\x01\x02")  # the first bytes of a ClientHello
            return connection

        def half_closed(number: int) -> socket.socket:
            connection = client.secure(number)
            connection.sendall(REQUEST)
            connection.shutdown(socket.SHUT_WR)
            return connection

        def reset(number: int) -> None:
            connection = client.secure(number)
            connection.sendall(REQUEST[: 200 if number % 2 else len(REQUEST)])
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()

        for name, make in (
            ("stalled handshakes", stalled),
            ("slow bodies", partial(REQUEST[:-100])),
            ("slow headers", partial(REQUEST[:50])),
            ("half-closes", half_closed),
            ("resets", reset),
        ):
            held += client.many(HOSTILE, make)
            promises.append(
                Promise(f"hostile: caller after {HOSTILE} {name}", client.caller_seconds(), CALLER_SECONDS, unit=" s")
            )
        readers = client.many(HOSTILE, client.secure)
        with small_pods(server, anew=True) as small:
            pump(readers, REQUEST * 8, PUMP_SECONDS)
            latencies, failed = small()
        promises += [
            Promise(f"hostile: slowest caller while {HOSTILE} read nothing", max(latencies), CALLER_SECONDS, unit=" s"),
            Promise("hostile: callers not answered 200 meanwhile", failed, 0),
            Promise("hostile: time for a caller after all", client.caller_seconds(), CALLER_SECONDS, unit=" s"),
        ]
        close([*held, *readers])
    return promises


def pump(connections: Sequence[socket.socket], data: bytes, seconds: float) -> None:
    """Send as much as possible on all connections for some seconds, and read nothing."""
    with selectors.DefaultSelector() as selector:
        for one in connections:
            one.setblocking(False)
            selector.register(one, selectors.EVENT_WRITE)
        end = monotonic() + seconds
        while selector.get_map() and monotonic() < end:
            for key, _ in selector.select(0.1):
                connection = key.fileobj
                assert isinstance(connection, socket.socket)
                try:
                    connection.send(data)
                except (ssl.SSLWantWriteError, BlockingIOError):
                    continue
                except OSError:
                    selector.unregister(connection)


def files(folder: Path) -> list[Promise]:
    limited = ("sh", "-c", f'ulimit -n {FILES}; exec "$@"', "sh")
    with serving(folder, prefix=limited) as (_, client):
        connections = client.many(FILES_CONNECTIONS, client.plain)
        during = client.caller_seconds()
        close(connections)
        sleep(1)
        after = client.caller_seconds()
    return [
        Promise(f"files: time for a caller during {FILES_CONNECTIONS} connections", during, FILES_SECONDS, unit=" s"),
        Promise("files: time for a caller after them", after, CALLER_SECONDS, unit=" s"),
    ]


def close(connections: Sequence[socket.socket]) -> None:
    for connection in connections:
        connection.close()


SCENARIOS: dict[str, Callable[[Path], list[Promise]]] = {
    scenario.__name__: scenario for scenario in (idle, flood, large, burst, certificates, sigterm, hostile, files)
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.listener", description=__doc__)
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=", ".join(SCENARIOS))
    arguments = parser.parse_args()
    if unknown := set(arguments.scenarios) - set(SCENARIOS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 2 * CONNECTIONS:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(2 * CONNECTIONS, hard), hard))
    codes = []
    for name in arguments.scenarios or SCENARIOS:
        with TemporaryDirectory(prefix="gpu-rules-bench-") as folder:
            codes.append(exit_code(SCENARIOS[name](Path(folder))))
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
