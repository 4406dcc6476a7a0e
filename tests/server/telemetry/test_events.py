"""Events on fallbacks and denials: contents, rate limits, failures."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import SimpleQueue
from threading import Thread
from typing import Any

import pytest

from rules_engine.model.kubernetes.names import MAX_SUBDOMAIN
from rules_engine.model.rules.rule import Mode
from rules_engine.server.cluster.connection import Connection
from rules_engine.server.http.admission_record import Callers
from rules_engine.server.telemetry.events import (
    BURST,
    MAX_MESSAGE,
    MAX_QUEUED,
    NAMESPACE_BURST,
    NAMESPACE_PER_SECOND,
    QUIET_SECONDS,
    Events,
    admission_events,
)
from rules_engine.server.telemetry.observers import Telemetry
from tests.support.evaluation import asks, cluster, compiled, ladder, pod, rung, validation
from tests.support.operating import until
from tests.support.server import PATIENCE_SECONDS
from tests.support.states import state_of
from tests.support.telemetry import admission_record, series

MIG = "nvidia.com/mig-2g.20gb"
GPU = "nvidia.com/gpu"
FALLS = ladder(MIG, rung(GPU, assume=True))
DENIES = validation("false", name="denies")


class Api:
    """API server that accepts or refuses all Events; each request is put into a queue."""

    def __init__(self) -> None:
        self.status = 201
        self.requests: SimpleQueue[tuple[str, Any]] = SimpleQueue()

    def next(self) -> tuple[str, Any]:
        return self.requests.get(timeout=PATIENCE_SECONDS)


@pytest.fixture
def api() -> Iterator[tuple[Api, Connection]]:
    found = Api()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            found.requests.put((self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
            body = json.dumps({"kind": "Status", "message": "no", "code": found.status}).encode()
            self.send_response(found.status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()

    def configure(configuration: Any) -> None:
        configuration.host = f"http://127.0.0.1:{server.server_port}"

    yield found, Connection(configure)
    server.shutdown()
    thread.join()
    server.server_close()


def controlled(amounts: dict[str, int], name: str = "train") -> Any:
    made: Any = asks(amounts)
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": "u-1", "controller": True}
    made["metadata"]["ownerReferences"] = [{"kind": "Other", "name": "other"}, reference]
    return made


def test_the_event_of_a_fallback_refers_to_the_controller(api: tuple[Api, Connection]) -> None:
    server, connection = api
    sender = Events(connection)
    sender.start()
    sender(admission_record("/mutate", controlled({MIG: 1}), FALLS))
    path, event = server.next()
    sender.stop()
    assert path.rstrip("?") == "/api/v1/namespaces/ml/events"
    assert event["metadata"]["namespace"] == "ml"
    assert event["metadata"]["name"].startswith("train.")
    assert event["involvedObject"] == {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": "train",
        "uid": "u-1",
        "namespace": "ml",
    }
    assert (event["kind"], event["type"], event["reason"], event["count"]) == ("Event", "Normal", "GPUFallback", 1)
    assert event["message"] == (
        f"pod job, user system:admin: given other GPUs than requested: {MIG} → {GPU} (FallbackLadder/ladder)"
    )
    assert event["firstTimestamp"] == event["lastTimestamp"]
    assert sender.sent == 1


def test_a_denial_names_rules_and_reasons_without_the_message() -> None:
    [event] = admission_events(admission_record("/validate", pod(), DENIES))
    assert (event.type, event.reason) == ("Warning", "GPURulesDenied")
    document: Any = event.to_json(datetime.now(UTC), "0")
    assert document["message"] == "pod job, user system:admin: denied by Validation/denies (invalid)"
    assert dict(event.about) == {"apiVersion": "v1", "kind": "Pod", "name": "job"}


@pytest.mark.parametrize(
    ("path", "made", "rules", "request_"),
    [
        ("/mutate", asks({MIG: 1}), (FALLS,), {"dryRun": True}),
        ("/mutate", asks({MIG: 1}), (ladder(MIG, rung(GPU, assume=True), mode=Mode.AUDIT),), {}),
        ("/mutate", asks({GPU: 1}), (FALLS,), {}),
        ("/validate", pod(), (validation("false", mode=Mode.AUDIT),), {}),
        ("/validate", pod(), (validation("true"),), {}),
        ("/validate", pod(name=""), (DENIES,), {}),
        ("/validate", pod(), (DENIES,), {"namespace": ""}),
        ("/validate", pod(), (DENIES,), {"namespace": "x/../../apis/apps/v1/namespaces/x"}),
        ("/validate", pod(), (DENIES,), {"namespace": "x%2f.."}),
        ("/validate", pod(), (DENIES,), {"namespace": "."}),
        ("/validate", pod(), (DENIES,), {"namespace": "x" * 64}),
        ("/validate", pod(), (DENIES,), {"namespace": "ml\n"}),
        ("/validate", pod(name="p?dryRun=All"), (DENIES,), {}),
        ("/validate", pod(name="p" * 254), (DENIES,), {}),
    ],
)
def test_no_event_without_an_effect_or_a_valid_name(path: str, made: Any, rules: Any, request_: dict[str, Any]) -> None:
    assert list(admission_events(admission_record(path, made, *rules, **request_))) == []


def test_an_unreadable_request_causes_no_event() -> None:
    assert list(admission_events(admission_record("/mutate", b"{", FALLS))) == []


def test_names_and_messages_respect_the_limits_of_the_api() -> None:
    rules = [validation("false", name=f"{'n' * 40}-{number}") for number in range(40)]
    made: Any = pod(name="p" * 250 + ".x")
    [event] = admission_events(admission_record("/validate", made, *rules))
    assert len(event.message) == MAX_MESSAGE
    document: Any = event.to_json(datetime.now(UTC), "0123456789abcdef")
    assert len(document["metadata"]["name"]) <= MAX_SUBDOMAIN
    assert ".." not in document["metadata"]["name"]


def test_a_pod_without_a_name_is_named_by_its_generate_name() -> None:
    made: Any = pod(name="")
    made["metadata"]["generateName"] = "train-"
    [event] = admission_events(admission_record("/validate", made, DENIES, userInfo={}))
    document: Any = event.to_json(datetime.now(UTC), "0")
    assert (document["metadata"]["name"], document["involvedObject"]["name"]) == ("train.0", "train-*")
    assert document["message"] == "pod train-*: denied by Validation/denies (invalid)"


def test_the_names_in_an_event_are_truncated() -> None:
    made = controlled({MIG: 1}, "j" * 253)
    made["metadata"] |= {"name": "p" * 1_000_000}
    [event] = admission_events(admission_record("/mutate", made, FALLS, userInfo={"username": "u" * 1_000_000}))
    document: Any = event.to_json(datetime.now(UTC), "0")
    assert len(json.dumps(document)) < 4000
    assert len(document["message"]) <= MAX_MESSAGE


def test_pods_of_one_controller_cause_one_event(api: tuple[Api, Connection]) -> None:
    server, connection = api
    sender = Events(connection)
    sender.start()
    for number in range(3):
        made = controlled({MIG: 1})
        made["metadata"]["name"] = f"train-{number}"
        sender(admission_record("/mutate", made, FALLS))
    assert sent_names(sender, server) == ["train"]
    sender.stop()


class Clock:
    """Clock that only a test advances."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def sent_names(sender: Events, server: Api) -> list[str]:
    """Return the names of objects of which Events were sent; a last Event marks the end of the queue."""
    sender(admission_record("/validate", pod(name="last"), DENIES))
    names = []
    while (name := server.next()[1]["involvedObject"]["name"]) != "last":
        names.append(name)
    return names


def test_equal_events_are_sent_once_within_a_time(api: tuple[Api, Connection]) -> None:
    server, connection = api
    clock = Clock()
    sender = Events(connection, clock=clock)
    sender.start()
    for _ in range(3):
        sender(admission_record("/mutate", controlled({MIG: 1}), FALLS))
    assert sent_names(sender, server) == ["train"]
    clock.now = QUIET_SECONDS
    sender(admission_record("/mutate", controlled({MIG: 1}), FALLS))
    assert sent_names(sender, server) == ["train"]
    sender.stop()
    assert sender.dropped == 0


def test_the_oldest_sent_events_are_forgotten_first(
    api: tuple[Api, Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rules_engine.server.telemetry.events.MAX_SENT", 3)
    server, connection = api
    sender = Events(connection)
    sender.start()
    for name in ("a", "b", "c", "c", "d", "b", "a"):
        sender(admission_record("/mutate", controlled({MIG: 1}, name), FALLS))
    assert sent_names(sender, server) == ["a", "b", "c", "d", "a"]
    sender.stop()


def test_a_dropped_event_is_sent_when_it_occurs_again(
    api: tuple[Api, Connection], caplog: pytest.LogCaptureFixture
) -> None:
    server, connection = api
    clock = Clock()
    sender = Events(connection, clock=clock)
    sender.start()
    train = admission_record("/mutate", controlled({MIG: 1}), FALLS)
    server.status = 503
    sender(train)
    server.next()
    until(lambda: sender.dropped == 1, "the refusal")
    server.status = 201
    for number in range(BURST - 1):
        sender(admission_record("/mutate", controlled({MIG: 1}, f"other-{number}"), FALLS, namespace=f"n{number}"))
        server.next()
    sender(train)
    until(lambda: sender.dropped == 2, "one too many")
    clock.now = 2.0
    sender(train)
    assert sent_names(sender, server) == ["train"]
    sender.stop()


def test_a_flood_of_events_is_limited_and_counted(api: tuple[Api, Connection], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rules_engine.server.telemetry.events.MAX_NAMESPACES", 2)
    server, connection = api
    clock = Clock()
    sender = Events(connection, clock=clock)
    clock.now = 3600.0  # dropped Events are not sent later
    for number in range(BURST + 20):
        sender(admission_record("/mutate", controlled({MIG: 1}, f"train-{number}"), FALLS, namespace=f"n{number}"))
    sender.start()
    sent = [server.next()[1]["involvedObject"]["name"] for _ in range(BURST)]
    assert sent == [f"train-{number}" for number in range(BURST)]
    until(lambda: sender.dropped == 20, "the end of the flood")  # no other signal of dropped Events
    clock.now += 2.0
    sender(admission_record("/mutate", controlled({MIG: 1}, "later"), FALLS))
    assert sent_names(sender, server) == ["later"]
    sender.stop()
    assert (sender.sent, sender.dropped) == (BURST + 2, 20)
    assert len(sender._namespaces) == 2


def test_a_flood_of_one_namespace_leaves_room_for_others(api: tuple[Api, Connection]) -> None:
    server, connection = api
    clock = Clock()
    sender = Events(connection, clock=clock)
    for number in range(NAMESPACE_BURST + 5):
        sender(admission_record("/mutate", controlled({MIG: 1}, f"flood-{number}"), FALLS, namespace="loud"))
    sender(admission_record("/mutate", controlled({MIG: 1}, "quiet"), FALLS, namespace="quiet"))
    sender.start()
    flood = [f"flood-{number}" for number in range(NAMESPACE_BURST)]
    assert sent_names(sender, server) == [*flood, "quiet"]
    assert sender.dropped == 5
    clock.now += 1 / NAMESPACE_PER_SECOND
    for name in ("again", "too-many"):
        sender(admission_record("/mutate", controlled({MIG: 1}, name), FALLS, namespace="loud"))
    assert server.next()[1]["involvedObject"]["name"] == "again"
    until(lambda: sender.dropped == 6, "one too many")
    sender.stop()


def test_what_exceeds_the_queue_is_dropped_and_counted(api: tuple[Api, Connection]) -> None:
    _, connection = api
    sender = Events(connection)
    record = admission_record("/mutate", controlled({MIG: 1}), FALLS)
    for _ in range(MAX_QUEUED + 3):
        sender(record)  # the thread is not started
    assert sender.dropped == 3
    sender.stop()


def test_refused_events_are_logged_once_and_counted(
    api: tuple[Api, Connection], caplog: pytest.LogCaptureFixture
) -> None:
    server, connection = api
    server.status = 403
    sender = Events(connection)
    sender.start()
    for name in ("one", "two"):
        sender(admission_record("/mutate", controlled({MIG: 1}, name), FALLS))
        server.next()
    sender.stop()
    assert (sender.sent, sender.dropped) == (0, 2)
    assert caplog.text.count("Events cannot be sent") == 1


def test_events_are_sent_only_if_enabled(api: tuple[Api, Connection]) -> None:
    server, connection = api
    state = state_of(compiled(FALLS), cluster())
    assert len(Telemetry(state, None, None).observers) == 1
    telemetry = Telemetry(state, None, connection, callers=Callers.ALL)
    telemetry.start()
    for observe in telemetry.observers:
        observe(admission_record("/mutate", controlled({MIG: 1}), state=state))
    server.next()
    telemetry.stop()
    assert series(telemetry.metrics)["gpu_rules_events_total"] == 1


def test_events_are_sent_for_authenticated_callers_or_for_all(api: tuple[Api, Connection]) -> None:
    server, connection = api
    state = state_of(compiled(FALLS), cluster())
    telemetry = Telemetry(state, None, connection)
    telemetry.start()
    for name, authenticated in (("stranger", False), ("known", True)):
        record = admission_record("/mutate", controlled({MIG: 1}, name), state=state)
        record.authenticated = authenticated
        for observe in telemetry.observers:
            observe(record)
    assert server.next()[1]["involvedObject"]["name"] == "known"
    telemetry.stop()
    assert series(telemetry.metrics)["gpu_rules_events_total"] == 1
