"""The real server over HTTPS on loopback."""

import http.client
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import pytest

from rules_engine.server.http.limits import BODY_BYTES
from tests.support.evaluation import limited
from tests.support.expensive import SLOW_RULE
from tests.support.patching import apply_json
from tests.support.server import MIG_POD, UID, Answer, Running, encoded, review, started


def test_a_pod_falls_back_over_https(server: Running) -> None:
    answer = server.send("POST", "/mutate", encoded(review(MIG_POD)))
    assert (answer.status, answer.response["uid"], answer.response["allowed"]) == (200, UID, True)
    changed = apply_json(MIG_POD, answer.patch)
    assert changed["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "1"}
    assert changed["metadata"]["annotations"] == {"gpurules.io/fallback": "2g.20gb->gpu"}


def test_a_pod_is_denied_over_https(server: Running) -> None:
    answer = server.send("POST", "/validate", encoded(review(limited(image="app:latest"))))
    assert (answer.status, answer.response["allowed"]) == (200, False)
    assert "an image must have a tag" in answer.response["status"]["message"]


def test_probes_answer(server: Running) -> None:
    assert server.send("GET", "/healthz").body == {"status": "ok"}
    assert server.send("GET", "/readyz").body == {"status": "ok", "cluster": "synced"}


def pieces(content: bytes) -> Iterator[bytes]:
    for start in range(0, len(content), 65536):
        yield content[start : start + 65536]


def sent(server: Running, content: bytes, *, chunked: bool) -> Answer:
    headers = {"Content-Type": "application/json"}
    if chunked:
        return server.send("POST", "/mutate", pieces(content), headers, encode_chunked=True)
    return server.send("POST", "/mutate", content, headers)


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_is_read_with_and_without_a_content_length(server: Running, chunked: bool) -> None:
    assert sent(server, encoded(review(MIG_POD)), chunked=chunked).response["allowed"] is True
    padding = b" " * (BODY_BYTES - len(encoded(review())))
    assert sent(server, encoded(review()) + padding, chunked=chunked).response["allowed"] is True


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("size", [BODY_BYTES + 1, BODY_BYTES + 5_000_000])
def test_a_body_over_8_mib_is_413_even_without_content_length(server: Running, chunked: bool, size: int) -> None:
    answer = sent(server, b" " * size, chunked=chunked)
    assert (answer.status, answer.body["reason"]) == (413, "RequestEntityTooLarge")


def test_tls_1_2_is_the_minimum(server: Running) -> None:
    def version(least: ssl.TLSVersion, most: ssl.TLSVersion) -> str | None:
        context = server.context()
        context.minimum_version, context.maximum_version = least, most
        context.set_ciphers("DEFAULT:@SECLEVEL=0")  # otherwise OpenSSL refuses an old version
        plain = socket.create_connection(("127.0.0.1", server.port))
        with plain, context.wrap_socket(plain, server_hostname="localhost") as secure:
            return secure.version()

    assert version(ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2) == "TLSv1.2"
    assert version(ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.MAXIMUM_SUPPORTED) == "TLSv1.3"
    with pytest.warns(DeprecationWarning, match="TLSv1_1"), pytest.raises((ssl.SSLError, ConnectionResetError)):
        version(ssl.TLSVersion.TLSv1_1, ssl.TLSVersion.TLSv1_1)


def test_the_certificate_is_for_localhost_and_signed_by_the_ca(server: Running) -> None:
    for host in ("localhost", "127.0.0.1"):
        connection = http.client.HTTPSConnection(host, server.port, context=server.context(), timeout=30)
        connection.request("GET", "/healthz")
        assert connection.getresponse().status == 200
        connection.close()
    connection = http.client.HTTPSConnection("localhost", server.port, timeout=30)
    with pytest.raises(ssl.SSLCertVerificationError):
        connection.request("GET", "/healthz")


def test_clients_that_stop_halfway_do_not_block_the_server(server: Running) -> None:
    with ExitStack() as stack:
        for _ in range(30):
            plain = stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            secure = stack.enter_context(server.context().wrap_socket(plain, server_hostname="localhost"))
            secure.sendall(
                b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"
            )
        for _ in range(10):
            # A connection without a request.
            stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
        assert server.send("POST", "/mutate", encoded(review())).response["allowed"] is True
    assert server.send("GET", "/readyz").status == 200


def test_no_request_of_this_module_caused_a_server_error(server: Running) -> None:
    first, *others = server.logged().splitlines()
    assert first.startswith("gpu-rules serves at https://127.0.0.1:")
    expected = ("limit body-bytes exceeded", "TLS handshake failed: not-tls", "TLS handshake failed: other")
    assert [line for line in others if not any(f"admission listener: {text}" in line for text in expected)] == []


def test_requests_over_the_concurrency_bound_get_503_and_uid(tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text(SLOW_RULE)
    with started(tmp_path, "--rules", rules, "--max-concurrent", "2") as running:
        together = Barrier(24)
        answers: list[Any] = []

        def ask(number: int) -> None:
            together.wait()
            answers.append((number, running.send("POST", "/validate", encoded(review(uid=f"uid-{number}")))))

        threads = [Thread(target=ask, args=(number,)) for number in range(24)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(answers) == 24
        assert {answer.status for _, answer in answers} == {200, 503}
        for number, answer in answers:
            assert answer.response["uid"] == f"uid-{number}"
            assert answer.response["allowed"] is (answer.status == 200)
        assert running.send("POST", "/validate", encoded(review())).response["allowed"] is True
