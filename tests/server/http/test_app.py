"""The WSGI application, called as a server calls it."""

import io
import json
import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Any, ClassVar

import flask
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules_engine.model.kubernetes.cluster import UNKNOWN_CLUSTER, Cluster, Freshness
from rules_engine.rules.evaluation import RuleSet
from rules_engine.rules.kinds import compile_rules
from rules_engine.rules.sources.documents import load_documents
from rules_engine.server.http.admission_record import AdmissionRecord
from rules_engine.server.http.app import create_metrics_app
from rules_engine.server.http.environ import CLIENT_VERIFIED, REFUSAL
from rules_engine.server.http.limits import BODY_BYTES, MIB, STALLED_SECONDS
from rules_engine.server.http.probes import readiness_page
from rules_engine.server.http.review import ReviewError, StatusReason
from rules_engine.server.state import ServedRules, ServerState
from tests.support.evaluation import limited
from tests.support.server import LADDER, MIG_POD, UID, Answer, application, call, encoded, review
from tests.support.states import state_of


@pytest.fixture(scope="module")
def rule_set(tmp_path_factory: pytest.TempPathFactory) -> RuleSet:
    path = tmp_path_factory.mktemp("rules") / "rules.yaml"
    path.write_text(LADDER)
    loaded = load_documents([path])
    assert loaded.problems == ()
    compiled, problems = compile_rules(loaded.rules)
    assert problems == ()
    return compiled


@pytest.fixture(scope="module")
def app(rule_set: RuleSet) -> Any:
    return application(state_of(rule_set, Cluster()))


class Endless:
    """A body without an end, which counts what was read of it."""

    def __init__(self) -> None:
        self.read_bytes = 0

    def read(self, size: int) -> bytes:
        self.read_bytes += size
        return b"x" * size


class Trickle:
    """A body that comes in small pieces, whatever is asked for."""

    def __init__(self, content: bytes, piece: int) -> None:
        self._stream = io.BytesIO(content)
        self._piece = piece

    def read(self, size: int) -> bytes:
        return self._stream.read(min(size, self._piece))


def refusal(answer: Answer, code: int, reason: str, *, uid: str | None) -> str:
    """The message of an answer that is no decision, once everything about it is as promised."""
    assert answer.status == code
    if uid is None:
        assert (answer.body["kind"], answer.body["status"]) == ("Status", "Failure")
        status = answer.body
    else:
        assert answer.response["uid"] == uid
        assert answer.response["allowed"] is False
        assert "patch" not in answer.response
        status = answer.response["status"]
    assert (status["code"], status["reason"]) == (code, reason)
    message: str = status["message"]
    return message


def test_mutate_answers_with_the_patch_and_the_uid(app: Any) -> None:
    answer = call(app, "/mutate", encoded(review(MIG_POD)))
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["content-length"] == str(len(json.dumps(answer.body, separators=(",", ":"))))
    assert (answer.response["uid"], answer.response["allowed"]) == (UID, True)
    assert answer.response["patchType"] == "JSONPatch"
    assert {"/metadata/annotations"} <= {operation["path"] for operation in answer.patch}


def test_a_pod_that_no_rule_changes_gets_no_patch(app: Any) -> None:
    assert call(app, "/mutate", encoded(review(limited()))).response == {"uid": UID, "allowed": True}


def test_validate_denies_with_http_200_and_a_status(app: Any) -> None:
    answer = call(app, "/validate", encoded(review(limited(image="app:latest"))))
    assert answer.status == 200
    assert answer.response["uid"] == UID
    assert answer.response["allowed"] is False
    assert answer.response["status"]["code"] == 422
    assert "an image must have a tag" in answer.response["status"]["message"]
    assert call(app, "/validate", encoded(review(limited()))).response["allowed"] is True


@pytest.mark.parametrize("path", ["/mutate", "/validate"])
@pytest.mark.parametrize(
    "malformed",
    [
        "a string",
        ["a list"],
        7,
        True,
        {"metadata": []},
        {"spec": "no"},
        {"spec": {"containers": {}}},
        {"spec": {"containers": [None, 3]}},
        limited({"nvidia.com/gpu": "two"}),
        limited({"nvidia.com/gpu": True}),
    ],
)
def test_a_malformed_pod_is_denied_with_422_and_http_200(app: Any, path: str, malformed: Any) -> None:
    answer = call(app, path, encoded(review(malformed)))
    assert answer.status == 200
    assert (answer.response["uid"], answer.response["allowed"]) == (UID, False)
    assert answer.response["status"]["code"] == 422


@pytest.mark.parametrize("absent", [..., None])
def test_a_create_without_an_object_is_denied(app: Any, absent: Any) -> None:
    document = review()
    document["request"] = {k: v for k, v in document["request"].items() if k != "object"}
    if absent is None:
        document["request"]["object"] = None
    answer = call(app, "/mutate", encoded(document))
    assert (answer.status, answer.response["allowed"], answer.response["status"]["code"]) == (200, False, 422)


@pytest.mark.parametrize(
    "request_members",
    [
        {"operation": "DELETE"},
        {"operation": "CONNECT"},
        {"subResource": "status"},
        {"kind": {"version": "v1", "kind": "Node"}},
    ],
)
def test_requests_other_than_pod_creations_are_allowed_unchanged(app: Any, request_members: dict[str, Any]) -> None:
    for path in ("/mutate", "/validate"):
        body = encoded(review(limited({"nvidia.com/mig-2g.20gb": "1"}, image="app:latest"), **request_members))
        assert call(app, path, body).response == {"uid": UID, "allowed": True}


def test_a_body_that_is_no_review_is_400(app: Any) -> None:
    assert "not JSON" in refusal(call(app, "/mutate", b"{"), 400, "BadRequest", uid=None)
    assert "uid" in refusal(call(app, "/mutate", encoded(review(uid=5))), 400, "BadRequest", uid=None)
    assert "dryRun" in refusal(call(app, "/mutate", encoded(review(dryRun=1))), 400, "BadRequest", uid=UID)


@pytest.mark.parametrize("content_type", ["application/json", "Application/JSON", "application/json; charset=utf-8"])
def test_json_is_taken_whatever_its_parameters(app: Any, content_type: str) -> None:
    assert call(app, "/mutate", encoded(review()), content_type=content_type).status == 200


@pytest.mark.parametrize("content_type", [None, "", "text/json", "application/json-patch+json", "application/yaml"])
def test_any_other_content_type_is_415_with_the_uid(app: Any, content_type: str | None) -> None:
    answer = call(app, "/mutate", encoded(review()), content_type=content_type)
    assert "application/json" in refusal(answer, 415, "UnsupportedMediaType", uid=UID)
    refusal(call(app, "/mutate", b"a: b", content_type=content_type), 415, "UnsupportedMediaType", uid=None)


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"])
def test_admission_takes_post_only(app: Any, method: str) -> None:
    answer = call(app, "/mutate", method=method)
    if method == "HEAD":
        assert (answer.status, answer.body) == (405, b"")
    else:
        refusal(answer, 405, "MethodNotAllowed", uid=None)
    assert answer.headers["allow"] == "POST"


def plain(state: ServerState) -> Any:
    """The application of the plain listener."""
    return create_metrics_app(state, lambda: (b"{}", "application/json"))


@pytest.mark.parametrize("made", [application, plain])
@pytest.mark.parametrize("path", ["/", "/mutate/", "/healthz/", "/static/x"])
def test_other_paths_are_404_as_a_status(made: Callable[[ServerState], Any], path: str) -> None:
    for method in ("GET", "POST"):
        answer = call(made(state_of()), path, method=method)
        refusal(answer, 404, "NotFound", uid=None)
        assert answer.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    ("made", "path"),
    [(application, "/healthz"), (plain, "/healthz"), (application, "/readyz"), (plain, "/metrics"), (plain, "/rules")],
)
def test_pages_take_get_only_and_other_methods_are_405(made: Callable[[ServerState], Any], path: str) -> None:
    answer = call(made(state_of()), path)
    refusal(answer, 405, "MethodNotAllowed", uid=None)
    assert set(answer.headers["allow"].split(", ")) == {"GET", "HEAD", "OPTIONS"}
    assert answer.headers["content-type"] == "application/json"


def test_only_the_plain_listener_has_metrics_and_no_admissions() -> None:
    refusal(call(plain(state_of()), "/mutate", encoded(review())), 404, "NotFound", uid=None)
    refusal(call(application(state_of()), "/metrics", method="GET"), 404, "NotFound", uid=None)


def test_hooks_of_flask_see_admissions_and_their_responses(rule_set: RuleSet) -> None:
    app = application(state_of(rule_set, Cluster()))
    requests: list[tuple[str, str]] = []
    responses: list[int] = []

    @app.before_request
    def see() -> None:
        requests.append((flask.request.method, flask.request.path))

    @app.after_request
    def see_response(response: flask.Response) -> flask.Response:
        responses.append(response.status_code)
        return response

    for path in ("/mutate", "/validate"):
        call(app, path, encoded(review(MIG_POD)))
        call(app, path, b"{")
        call(app, path, method="GET")
        assert requests == [("POST", path), ("POST", path), ("GET", path)]
        assert responses == [200, 400, 405]
        requests.clear()
        responses.clear()
    call(app, "/readyz", method="GET")
    assert (requests, responses) == ([("GET", "/readyz")], [200])


def test_the_test_client_of_flask_gets_decisions(rule_set: RuleSet) -> None:
    client = application(state_of(rule_set, Cluster())).test_client()
    answer = client.post("/mutate?timeout=10s", json=review(MIG_POD))
    assert (answer.status_code, answer.get_json()["response"]["uid"]) == (200, UID)
    assert answer.get_json()["response"]["patch"]


def padded(size: int) -> bytes:
    body = encoded(review())
    return body + b" " * (size - len(body))


@pytest.mark.parametrize("length", ["", None])
def test_a_body_of_8_mib_is_read_and_one_byte_more_is_413(app: Any, length: str | None) -> None:
    assert call(app, "/mutate", padded(BODY_BYTES), length=length).status == 200
    answer = call(app, "/mutate", padded(BODY_BYTES + 1), length=length)
    message = refusal(answer, 413, "RequestEntityTooLarge", uid=UID)
    assert message == f"the body is larger than {BODY_BYTES // MIB} MiB"


@pytest.mark.parametrize("length", [None, "9999999999", "9" * 400])
def test_a_body_without_end_is_read_up_to_a_bound(app: Any, length: str | None) -> None:
    body = Endless()
    refusal(call(app, "/mutate", body, length=length), 413, "RequestEntityTooLarge", uid=None)
    assert body.read_bytes <= BODY_BYTES + 1


@pytest.mark.parametrize("length", ["-1", "1e3", "abc", "²"])
def test_a_content_length_that_is_no_number_is_400(app: Any, length: str) -> None:
    body = Endless()
    refusal(call(app, "/mutate", body, length=length, terminated=False), 400, "BadRequest", uid=None)
    assert body.read_bytes == 0


def test_a_body_that_ends_early_is_400(app: Any) -> None:
    message = refusal(call(app, "/mutate", encoded(review()), length="100000"), 400, "BadRequest", uid=UID)
    assert message == "the body is shorter than its Content-Length"


@pytest.mark.parametrize("with_length", [True, False])
def test_a_body_in_pieces_is_put_together(app: Any, with_length: bool) -> None:
    body = encoded(review(MIG_POD))
    answer = call(app, "/mutate", Trickle(body, 7), length=str(len(body)) if with_length else None)
    assert answer.response["allowed"] is True
    assert answer.patch


def test_without_a_length_nothing_is_read_from_an_endless_stream(app: Any) -> None:
    body = Endless()
    refusal(call(app, "/mutate", body, length=None, terminated=False), 400, "BadRequest", uid=None)
    assert body.read_bytes == 0


@pytest.mark.parametrize("path", ["/mutate", "/validate/native"])
def test_a_request_that_the_server_refuses_is_answered_with_its_uid(rule_set: RuleSet, path: str) -> None:
    seen: list[AdmissionRecord] = []
    app = application(state_of(rule_set, Cluster()), observers=[seen.append])

    def refusing(environ: dict[str, Any], start_response: Any) -> Any:
        busy = ReviewError(StatusReason.UNAVAILABLE, "try again")
        return app({**environ, REFUSAL: busy}, start_response)

    answer = call(refusing, path, encoded(review()))
    assert refusal(answer, 503, "ServiceUnavailable", uid=UID) == "try again"
    assert answer.headers["retry-after"] == "1"
    refusal(call(refusing, path, padded(BODY_BYTES)), 503, "ServiceUnavailable", uid=UID)
    refusal(call(refusing, path, b"{"), 503, "ServiceUnavailable", uid=None)
    assert [record.outcome for record in seen] == ["ServiceUnavailable"] * 3


def test_a_request_without_a_deadline_gets_the_applications(rule_set: RuleSet) -> None:
    app = application(state_of(rule_set, Cluster()), request_seconds=0.0)
    answer = call(app, "/validate", encoded(review(MIG_POD)))
    assert answer.response["status"]["code"] == 500
    assert "the time of 0 s for one request is used up" in answer.response["status"]["message"]
    answer = call(application(state_of(rule_set, Cluster())), "/validate", encoded(review()), query="timeout=0s")
    assert "the time of 0 s" in answer.response["status"]["message"]


def test_a_certificate_that_the_server_verified_authenticates(rule_set: RuleSet) -> None:
    seen: list[AdmissionRecord] = []
    app = application(state_of(rule_set, Cluster()), observers=[seen.append])
    for verified in ("SUCCESS", "NONE", "FAILED"):
        call(lambda environ, start: app({**environ, CLIENT_VERIFIED: verified}, start), "/mutate", encoded(review()))  # noqa: B023
    call(app, "/mutate", encoded(review()))
    assert [record.authenticated for record in seen] == [True, False, False, False]


def test_bodies_that_are_not_received_are_recorded(rule_set: RuleSet) -> None:
    seen: list[AdmissionRecord] = []
    app = application(state_of(rule_set, Cluster()), observers=[seen.append])
    call(app, "/validate", padded(BODY_BYTES + 1))
    call(app, "/mutate", b"{}", length="100")
    assert [(record.endpoint, record.outcome) for record in seen] == [
        ("validate", "RequestEntityTooLarge"),
        ("mutate", "BadRequest"),
    ]


class Broken(RuleSet):
    """Rules whose evaluation raises an unexpected error, once they are served."""

    __slots__ = ()
    served: ClassVar[bool] = False

    def __getattribute__(self, name: str) -> Any:
        if name == "kinds_at" and Broken.served:
            raise RuntimeError("the secret of the pod")
        return super(RuleSet, self).__getattribute__(name)


def test_rules_that_change_during_a_decision_apply_to_the_next(rule_set: RuleSet) -> None:
    later = ServedRules(rule_set=RuleSet(), generation=2)
    served: list[ServedRules] = []

    class Overtaken(RuleSet):
        """Rules that are not active any more as soon as they are asked."""

        __slots__ = ()

        def __getattribute__(self, name: str) -> Any:
            if name == "kinds_at" and served:
                state.served = later
            return super(RuleSet, self).__getattribute__(name)

    said: list[AdmissionRecord] = []
    now = ServedRules(rule_set=Overtaken(rule_set.kinds))
    served.append(now)
    state = state_of(cluster=Cluster())
    app = application(state, observers=[said.append])
    body = encoded(review(limited({"nvidia.com/mig-2g.20gb": "1"}, image="a:latest")))
    for path in ("/mutate", "/validate"):
        state.served = now
        first, second = (call(app, path, body) for _ in range(2))
        assert (first.response["allowed"], "patch" in first.response) == (path == "/mutate", path == "/mutate")
        assert second.response == {"uid": UID, "allowed": True}
    # What is said of a decision, in the log too, is said of the rules that made it.
    assert [record.served for record in said] == [now, later] * 2


def test_an_unforeseen_error_is_500_logged_and_never_an_allow(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = application(state_of(Broken(), Cluster()))
    monkeypatch.setattr(Broken, "served", True)
    for path in ("/mutate", "/validate"):
        with caplog.at_level(logging.ERROR):
            answer = call(app, path, encoded(review(MIG_POD)))
        message = refusal(answer, 500, "InternalError", uid=UID)
        assert "secret" not in message
        assert f"unexpected error while answering request {UID}" in caplog.text
        assert "RuntimeError" in caplog.text
        caplog.clear()


@pytest.mark.parametrize("length", [None, "100"])
def test_a_body_that_ends_early_is_400_without_a_decision(app: Any, length: str | None) -> None:
    class Torn:
        def read(self, size: int) -> bytes:
            raise OSError("connection lost")

    refusal(call(app, "/mutate", Torn(), length=length), 400, "BadRequest", uid=None)


@pytest.mark.parametrize("made", [application, plain])
def test_healthz_answers_as_soon_as_the_server_runs(made: Callable[[ServerState], Any]) -> None:
    answer = call(made(state_of()), "/healthz", method="GET")
    assert (answer.status, answer.body) == (200, {"status": "ok"})


@pytest.mark.parametrize("made", [application, plain])
def test_healthz_fails_if_the_event_loop_is_blocked_for_5_s(made: Callable[[ServerState], Any]) -> None:
    state = state_of()
    app = made(state)
    state.last_heartbeat = lambda: monotonic() - STALLED_SECONDS + 1
    assert call(app, "/healthz", method="GET").status == 200
    state.last_heartbeat = lambda: monotonic() - STALLED_SECONDS - 0.1
    answer = call(app, "/healthz", method="GET")
    assert (answer.status, answer.body["status"]) == (503, "stalled")
    assert answer.body["reason"] == "the event loop has been blocked for more than 5 s"
    state.last_heartbeat = monotonic
    assert call(app, "/healthz", method="GET").status == 200


@pytest.mark.parametrize(
    ("state", "status", "body"),
    [
        (
            state_of(RuleSet(), UNKNOWN_CLUSTER),
            503,
            {"status": "not ready", "reason": "the cluster has not been read yet"},
        ),
        (state_of(RuleSet(), Cluster()), 200, {"status": "ok", "cluster": "synced"}),
        (state_of(RuleSet(), Cluster(freshness=Freshness.STALE)), 200, {"status": "ok", "cluster": "stale"}),
        (
            state_of(RuleSet(), Cluster(), stopping=True),
            503,
            {"status": "not ready", "reason": "the server is stopping"},
        ),
    ],
)
def test_readyz_says_whether_requests_should_come_here(state: ServerState, status: int, body: dict[str, str]) -> None:
    answer = call(application(state), "/readyz", method="GET")
    assert (answer.status, answer.body) == (status, body)


def test_readyz_fails_once_the_serving_certificate_has_expired() -> None:
    state, end = state_of(RuleSet(), Cluster()), datetime(2026, 3, 1, 12, 30, tzinfo=UTC)
    state.certificate_not_after = end
    assert readiness_page(state, clock=lambda: end)[0] == 200
    status, report = readiness_page(state, clock=lambda: end + timedelta(seconds=1))
    assert (status, report["reason"]) == (503, "the certificate expired at 2026-03-01T12:30:00Z")
    state.certificate_not_after = datetime.now(UTC) - timedelta(seconds=1)
    assert call(application(state), "/readyz", method="GET").status == 503
    state.certificate_not_after = datetime.now(UTC) + timedelta(hours=1)
    assert call(application(state), "/readyz", method="GET").status == 200


def test_a_stopping_server_still_answers(rule_set: RuleSet) -> None:
    app = application(state_of(rule_set, Cluster(), stopping=True))
    assert call(app, "/mutate", encoded(review(MIG_POD))).response["allowed"] is True


# What follows is volume: bodies of every kind, of which none may cause a 5xx, and none that is malformed an allow.

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)

PATHS: list[tuple[str | int, ...]] = []


def _paths(node: Any, path: tuple[str | int, ...]) -> None:
    PATHS.append(path)
    members = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in members:
        _paths(value, (*path, key))


TEMPLATE = review(
    {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "ml", "labels": {"a": "b"}, "annotations": {"a": "b"}},
        "spec": {
            "containers": [
                {
                    "name": "main",
                    "image": "app:1",
                    "resources": {"limits": {"nvidia.com/mig-2g.20gb": "1"}, "requests": {"cpu": "1"}},
                }
            ],
            "initContainers": [{"name": "init", "restartPolicy": "Always", "resources": {"limits": {"cpu": "1"}}}],
            "tolerations": [{"key": "a", "operator": "Exists"}],
            "nodeSelector": {"a": "b"},
            "overhead": {"cpu": "1m"},
        },
    },
    oldObject=None,
    name="p",
    options={"kind": "CreateOptions"},
)
_paths(TEMPLATE, ())

WRONG_TYPES: list[Any] = [None, True, 0, -1, 2**64, 1.5, "", "x", [], [[]], {}, {"a": {}}]


def with_value(node: Any, path: tuple[str | int, ...], value: Any) -> Any:
    if not path:
        return value
    copy: Any = dict(node) if isinstance(node, dict) else list(node)
    copy[path[0]] = with_value(node[path[0]], path[1:], value)
    return copy


def uid_in(document: Any) -> str | None:
    request = document.get("request") if isinstance(document, dict) else None
    uid = request.get("uid") if isinstance(request, dict) else None
    return str(uid) if isinstance(uid, str | float) and uid else None  # fractions are read as their text


def check_answer(answer: Answer, document: Any) -> None:
    """A decision or a 400, with the uid in either wherever there is one."""
    uid = uid_in(document)
    if answer.status == 400:
        refusal(answer, 400, "BadRequest", uid=uid)
    else:
        assert answer.status == 200
        assert answer.response["uid"] == uid
        # A denial's own code is 500 where an expression of a rule fails on such a pod.
        assert answer.response["allowed"] is True or answer.response["status"]["code"] in (422, 500)


@pytest.mark.parametrize("path", PATHS, ids=lambda path: "/".join(map(str, path)) or "whole")
def test_a_value_of_any_wrong_type_is_never_a_server_error(app: Any, path: tuple[str | int, ...]) -> None:
    for value in WRONG_TYPES:
        document = with_value(TEMPLATE, path, value)
        for endpoint in ("/mutate", "/validate"):
            check_answer(call(app, endpoint, encoded(document)), document)


@given(path=st.sampled_from(PATHS), value=JSON)
def test_any_json_anywhere_is_never_a_server_error(app: Any, path: tuple[str | int, ...], value: Any) -> None:
    document = with_value(TEMPLATE, path, value)
    for endpoint in ("/mutate", "/validate"):
        check_answer(call(app, endpoint, encoded(document)), document)


@given(body=st.binary(max_size=200) | JSON.map(encoded))
def test_a_body_that_is_no_review_is_never_allowed(app: Any, body: bytes) -> None:
    answer = call(app, "/mutate", body)
    assert answer.status == 400
    refusal(answer, 400, "BadRequest", uid=None)


@given(cut=st.integers(0, 900), at=st.integers(0, 900), byte=st.integers(0, 255))
def test_a_review_with_a_byte_changed_or_cut_short_is_answered(app: Any, cut: int, at: int, byte: int) -> None:
    body = bytearray(encoded(TEMPLATE))
    body[at] = byte
    answer = call(app, "/mutate", bytes(body))
    assert answer.status in (200, 400)
    shortened = encoded(TEMPLATE)[:cut]
    refusal(call(app, "/mutate", shortened), 400, "BadRequest", uid=None)
