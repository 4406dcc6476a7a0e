"""The playground's pages and its protection, over HTTP on loopback."""

import io
import re
import zipfile
from collections.abc import Iterator
from typing import Any

import pytest

from rules_engine.server.commands.playground.answer import EXAMPLES, FILES, POD_FILE, RULES_FILE, TEST_FILE
from rules_engine.server.commands.playground.app import MAX_BODY_BYTES, MAX_TEXT_BYTES
from tests.support.playground_server import Playground, running_playground

START = dict(EXAMPLES[0]["texts"])


@pytest.fixture(scope="module")
def playground() -> Iterator[Playground]:
    with running_playground({RULES_FILE: "# from --rules\n"}) as running:
        yield running


def test_the_page_runs_only_its_own_script_and_has_a_new_nonce_each_time(playground: Playground) -> None:
    nonces = set()
    for _ in range(2):
        page = playground.get("/")
        [nonce] = re.findall(r'<meta name="style-nonce" content="([\w-]{20,})">', page.body.decode())
        nonces.add(nonce)
        policy = dict(part.split(" ", 1) for part in page.headers["Content-Security-Policy"].split("; "))
        assert policy == {
            "default-src": "'none'",
            "script-src": "'self'",
            "connect-src": "'self'",
            "img-src": "'self'",
            "style-src": f"'self' 'nonce-{nonce}'",
            "base-uri": "'none'",
            "form-action": "'none'",
            "frame-ancestors": "'none'",
        }
        assert "<style" not in page.body.decode()
        assert re.findall(r"<script[^>]*>([^<]*)<", page.body.decode()) == [""]
    assert len(nonces) == 2


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/static/playground.js", "text/javascript"),
        ("/static/codemirror.js", "text/javascript"),
        ("/static/playground.css", "text/css"),
        ("/static/icon.svg", "image/svg+xml"),
        ("/report.css", "text/css"),
        ("/examples.json", "application/json"),
    ],
)
def test_files_of_the_page_are_served_with_their_type(path: str, kind: str, playground: Playground) -> None:
    reply = playground.get(path)

    assert reply.status == 200
    assert reply.headers["Content-Type"].startswith(kind)
    assert reply.headers["X-Content-Type-Options"] == "nosniff"
    assert reply.headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert "style-src 'self';" in reply.headers["Content-Security-Policy"]
    assert "Server" not in reply.headers


def test_the_start_has_given_texts_and_those_of_an_example(playground: Playground) -> None:
    material = playground.get("/examples.json").json

    assert material["start"] == {**START, RULES_FILE: "# from --rules\n"}
    assert material["maxBytes"] == MAX_TEXT_BYTES
    assert {each["group"] for each in material["examples"]} == {
        "README",
        "Ladders",
        "Recipes",
        "PodDefaults",
        "Packaged sets",
        "Clusters",
    }


def test_an_answer_has_problems_decisions_and_the_start_of_pods(playground: Playground) -> None:
    reply = playground.post("/answer", START)

    assert reply.status == 200
    assert reply.json["explain"]["verdict"] == "Allowed"
    assert reply.json["preflight"]["workloads"][0]["verdict"] == "Starts"


def test_saved_files_are_the_texts_and_a_test(playground: Playground) -> None:
    reply = playground.post("/save", START)

    with zipfile.ZipFile(io.BytesIO(reply.body)) as archive:
        assert archive.namelist() == [*FILES, TEST_FILE]
        assert archive.read(POD_FILE).decode() == START[POD_FILE]
        assert archive.read(TEST_FILE).decode().startswith("apiVersion: gpurules.io/v1\nkind: RuleTest\n")


def test_texts_without_a_decision_are_not_saved(playground: Playground) -> None:
    reply = playground.post("/save", {**START, RULES_FILE: ""})

    assert (reply.status, reply.json) == (422, {"error": "there is no decision to test"})


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1:1", "localhost.evil.example", "[::1]:80"])
@pytest.mark.parametrize("path", ["/", "/examples.json", "/static/playground.js"])
def test_a_name_that_was_rebound_to_loopback_gets_nothing(host: str, path: str, playground: Playground) -> None:
    reply = playground.get(path, Host=host)

    assert (reply.status, reply.json) == (421, {"error": "this host is not served here"})
    assert playground.post("/answer", START, Host=host, Origin=f"http://{host}").status == 421


def test_localhost_is_a_host_of_a_loopback_address(playground: Playground) -> None:
    host = playground.host.replace("127.0.0.1", "localhost")

    assert playground.get("/", Host=host).status == 200
    assert playground.post("/answer", START, Host=host, Origin=f"http://{host}").status == 200


@pytest.mark.parametrize("origin", ["", "null", "https://evil.example", "http://127.0.0.1", "http://localhost:1"])
@pytest.mark.parametrize("path", ["/answer", "/save"])
def test_a_request_of_another_origin_is_refused(origin: str, path: str, playground: Playground) -> None:
    reply = playground.post(path, START, Origin=origin)

    assert (reply.status, reply.json) == (403, {"error": "requests of other origins are refused"})


@pytest.mark.parametrize("kind", ["", "text/plain", "application/x-www-form-urlencoded", "application/json-seq"])
def test_a_request_that_a_form_could_send_is_refused(kind: str, playground: Playground) -> None:
    assert playground.post("/answer", START, Content_Type=kind).status == 415


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[" * 100_000,
        b"[]",
        b"{}",
        b'{"rules.yaml": "\\ud800", "pod.yaml": "", "cluster.yaml": ""}',
        {**START, "more.yaml": ""},
        {**START, POD_FILE: 1},
        {"../rules.yaml": "", POD_FILE: "", "cluster.yaml": ""},
    ],
)
def test_a_body_other_than_the_three_texts_is_refused(body: Any, playground: Playground) -> None:
    assert playground.post("/answer", body).status == 400


@pytest.mark.parametrize("size", [MAX_TEXT_BYTES + 1, MAX_BODY_BYTES + 1, 10 * 1024 * 1024])
def test_too_much_text_is_refused(size: int, playground: Playground) -> None:
    assert playground.post("/answer", {**START, POD_FILE: "x" * size}).status == 413


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/answer", 405), ("PUT", "/", 405), ("GET", "/static/../app.py", 404), ("GET", "/nothing", 404)],
)
def test_other_requests_are_errors_in_json(method: str, path: str, status: int, playground: Playground) -> None:
    reply = playground.request(method, path, None, {})

    assert reply.status == status
    assert reply.json["error"]
