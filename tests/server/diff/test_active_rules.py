"""Active rules at a server."""

from pathlib import Path

import pytest

from rules_engine.difference.answer import ActiveRules, ActiveSide
from rules_engine.model.kubernetes.cluster import Cluster
from rules_engine.sources.rule_files import DEFAULT_RULES
from server.diff.active_rules import ActiveRulesError, read_active_rules
from server.http.app import create_metrics_app
from server.http.messages import Response
from server.rules.sources import prepare_rules
from server.state import ServedRules
from tests.support.apiserver import Silence, api_server
from tests.support.listener import Recorder, pages, reachable
from tests.support.states import state_of

OLD, NEW = "0" * 64, "1" * 64


def error_of(url: str, ca: Path | None = None, seconds: float = 30) -> str:
    with pytest.raises(ActiveRulesError) as caught:
        read_active_rules(url, OLD, NEW, ca=ca, seconds=seconds, rule_sets={})
    return str(caught.value)


@pytest.mark.parametrize("secure", [True, False])
def test_the_digest_and_side_of_the_active_rules(tmp_path: Path, secure: bool) -> None:
    rules = prepare_rules([DEFAULT_RULES])
    state = state_of(rules.rule_set, Cluster())
    state.served = ServedRules(rule_set=rules.rule_set, digest=rules.digest, listed=rules.listed)
    application = create_metrics_app(state, lambda: (b"", "text/plain"))
    with reachable(tmp_path, pages(application), secure=secure) as server:
        url = f"{'https' if secure else 'http'}://localhost:{server.port}"
        ca = tmp_path / "ca.crt" if secure else None
        sets = {rules.digest: rules.rule_set}
        for digests, side in (
            ((rules.digest, NEW), ActiveSide.OLD),
            ((OLD, rules.digest), ActiveSide.NEW),
            ((rules.digest, rules.digest), ActiveSide.BOTH),
            ((OLD, NEW), ActiveSide.NEITHER),
            ((OLD, OLD), ActiveSide.NEITHER),
        ):
            expected = ActiveRules(url=url, digest=rules.digest, side=side)
            for path in ("", "/", "/rules"):
                assert read_active_rules(f"{url}{path}", *digests, ca=ca, seconds=30, rule_sets=sets) == expected


def test_a_certificate_of_an_unknown_ca(tmp_path: Path) -> None:
    with reachable(tmp_path, Recorder()) as server:
        assert "CERTIFICATE_VERIFY_FAILED" in error_of(f"https://localhost:{server.port}")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"<html>", "the response: not JSON"),
        (b"[]", "the response: not a JSON object"),
        (b"{}", "the response has no digest: is this a gpu-rules server?"),
        (b'{"digest": 1}', "the response has no digest: is this a gpu-rules server?"),
        (b'{"digest": "' + b"x" * 64 + b'"}', "the response has no digest: is this a gpu-rules server?"),
        (b" " * (4 * 2**20 + 1), "the response is larger than 4194304 bytes"),
    ],
)
def test_a_response_that_is_none_of_gpu_rules(tmp_path: Path, body: bytes, message: str) -> None:
    with reachable(tmp_path, Recorder(lambda _request: Response(200, body)), secure=False) as server:
        url = f"http://localhost:{server.port}"
        assert error_of(url).startswith(f"{url}/rules: {message}")


def test_a_server_that_does_not_answer() -> None:
    with api_server() as api:
        api.single["/rules"] = {}
        api.fail("/rules", Silence())
        assert "timed out" in error_of(api.url, seconds=0.2)
        url = api.url
    assert "refused" in error_of(url)


@pytest.mark.parametrize(
    "url",
    [
        "localhost:8443",
        "ftp://localhost",
        "https://",
        "https://localhost:",
        "https://localhost?x=1",
        "https://localhost?",
        "https://localhost#x",
        "https://local host",
        "https://localhost/\x1b[m",
    ],
)
def test_a_text_that_is_no_url_of_a_server(url: str) -> None:
    message = error_of(url)
    assert message.endswith(": not the URL of a server, such as http://localhost:9090")
    assert message.isprintable()


@pytest.mark.parametrize("url", ["https://localhost:x", "https://localhost:70000", "https://[::1"])
def test_a_url_that_cannot_be_parsed(url: str) -> None:
    assert error_of(url).startswith(f"{url}: ")


def test_a_password_is_refused_and_not_shown() -> None:
    assert "secret" not in error_of("https://me:secret@localhost")


def test_a_ca_needs_https(tmp_path: Path) -> None:
    assert error_of("http://localhost", tmp_path / "ca.crt") == "http://localhost: a CA needs https"


def test_a_file_without_the_certificate_of_a_ca(tmp_path: Path) -> None:
    ca = tmp_path / "ca.crt"
    assert error_of("https://localhost", ca) == f"{ca}: No such file or directory"
    assert error_of("https://localhost", tmp_path) == f"{tmp_path}: Is a directory"
    for text in ("", "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n"):
        ca.write_text(text, encoding="utf-8")
        assert error_of("https://localhost", ca) == f"{ca}: no certificate in PEM format"


def test_a_redirection_is_not_followed(tmp_path: Path) -> None:
    found = Recorder(lambda _request: Response(200, b"{}"))
    with reachable(tmp_path, found, secure=False) as other:
        headers = (("Location", f"http://localhost:{other.port}/rules"),)
        with reachable(tmp_path, Recorder(lambda _request: Response(302, b"", headers)), secure=False) as server:
            url = f"http://localhost:{server.port}"
            assert error_of(url).startswith(f"{url}/rules: 302")
    assert found.requests == []
