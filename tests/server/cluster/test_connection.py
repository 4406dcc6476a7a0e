"""Connections to the API server, configured like kubectl or by a service account."""

import json
import socket
import ssl
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from threading import Thread
from typing import Any, cast

import pytest

from rules_engine.server.cluster.connection import (
    MAX_MESSAGE_CHARACTERS,
    ApiError,
    ApiResponse,
    Cause,
    Connection,
    api_path,
    as_kubectl,
    in_cluster,
    load_kubeconfig,
    missing_in_cluster,
)
from rules_engine.server.tls import identity as tls
from tests.support.apiserver import ApiServer, Body, Reset, Status, api_server, node
from tests.support.cluster import NODES, names, plain, viewing
from tests.support.server import environment


@pytest.fixture
def api(api: ApiServer) -> ApiServer:
    api.put("nodes", node("one"))
    return api


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[tuple[ApiServer, Path]]:
    """API server with TLS, and its CA."""
    files = tls.localhost_files(tmp_path / "tls", now=datetime.now(UTC))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files.certificate, files.key)
    with api_server(context) as server:
        server.put("nodes", node("one"))
        assert files.ca is not None
        yield server, files.ca


def error_of(connection: Connection) -> ApiError:
    with pytest.raises(ApiError) as caught:
        connection.get("/api/v1/nodes", {})
    return caught.value


def test_a_kubeconfig_is_used(secure: tuple[ApiServer, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    api, ca = secure
    api.tokens = {"letmein"}
    path = api.kubeconfig(tmp_path, {"token": "letmein"}, {"certificate-authority": str(ca)})
    before = path.read_bytes()
    monkeypatch.setenv("KUBECONFIG", str(path))
    with viewing(api, NODES, configure=load_kubeconfig) as view:
        assert names(view.synced()) == ["one"]
        api.wait_for(lambda: api.watching("nodes"))
        api.put("nodes", node("two"))
        view.until(lambda cluster: names(cluster) == ["one", "two"])
    assert path.read_bytes() == before


def test_a_certificate_of_an_unknown_issuer_is_refused(
    secure: tuple[ApiServer, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api, ca = secure
    monkeypatch.setenv("KUBECONFIG", str(api.kubeconfig(tmp_path)))
    error = error_of(Connection(load_kubeconfig))
    assert error.cause is Cause.UNREACHABLE
    assert "CERTIFICATE_VERIFY_FAILED" in str(error)
    data = b64encode(ca.read_bytes()).decode()
    monkeypatch.setenv("KUBECONFIG", str(api.kubeconfig(tmp_path, {}, {"certificate-authority-data": data})))
    assert b"NodeList" in Connection(load_kubeconfig).get("/api/v1/nodes", {})


def test_refused_credentials_of_a_plugin_are_requested_again(
    api: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = tmp_path / "token"
    token.write_text("first")
    program = (
        "import json, pathlib; print(json.dumps({'apiVersion': 'client.authentication.k8s.io/v1', "
        f"'kind': 'ExecCredential', 'status': {{'token': pathlib.Path({str(token)!r}).read_text()}}}}))"
    )
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": sys.executable,
        "args": ["-c", program],
        "interactiveMode": "Never",
    }
    monkeypatch.setenv("KUBECONFIG", str(api.kubeconfig(tmp_path, {"exec": plugin})))
    api.tokens = {"first"}
    connection = Connection(load_kubeconfig)
    assert b"NodeList" in connection.get("/api/v1/nodes", {})
    api.tokens = {"second"}
    token.write_text("second")
    assert error_of(connection).cause is Cause.UNAUTHORIZED
    connection.renew()
    assert b"NodeList" in connection.get("/api/v1/nodes", {})


def test_a_service_account_token_that_is_replaced_is_read_again(
    secure: tuple[ApiServer, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api, ca = secure
    (tmp_path / "ca.crt").write_bytes(ca.read_bytes())
    (tmp_path / "token").write_text("first")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", api.url.rpartition(":")[2])
    api.tokens = {"first"}
    with viewing(api, NODES, configure=in_cluster(tmp_path)) as view:
        view.synced()
        api.wait_for(lambda: api.watching("nodes"))
        (tmp_path / "token").write_text("second")
        api.tokens = {"second"}
        api.put("nodes", node("two"), announce=False)
        api.compact()
        api.send("nodes", Reset())
        view.until(lambda cluster: names(cluster) == ["one", "two"])
        assert view.health("nodes").counts["unauthorized"] >= 1
    assert [request.token for request in api.requests][-1] == "second"


def test_an_unreadable_token_is_an_ordinary_failure(api: ApiServer, tmp_path: Path) -> None:
    def configure(configuration: Any) -> None:
        plain(api)(configuration)
        configuration.api_key["authorization"] = "Bearer token"
        configuration.refresh_api_key_hook = lambda _: (tmp_path / "token").read_text()

    error = error_of(Connection(configure))
    assert (error.cause, "No such file" in str(error)) == (Cause.CONFIGURATION, True)
    assert api.requests == []


def test_a_start_without_credentials_recovers_once_they_exist(
    api: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "kubeconfig"
    monkeypatch.setenv("KUBECONFIG", str(path))
    with viewing(api, NODES, configure=load_kubeconfig) as view:
        view.counted("nodes", "configuration")
        assert view.live.problems == [f"cannot list and watch nodes: kubeconfig {path} not found"]
        api.kubeconfig(tmp_path)
        view.synced()


@pytest.mark.parametrize("text", ["", "[", "{}", "clusters: 7"])
def test_a_broken_kubeconfig_is_a_failure_like_any_other(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(text)
    monkeypatch.setenv("KUBECONFIG", str(path))
    error = error_of(Connection(load_kubeconfig))
    assert error.cause is Cause.CONFIGURATION
    assert str(error).startswith(f"kubeconfig {path}: ")
    assert "\n" not in str(error)


def test_a_missing_kubeconfig_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    expected = "kubeconfig ~/.kube/config not found, and KUBECONFIG is not set"
    assert str(error_of(Connection(load_kubeconfig))) == expected
    monkeypatch.setenv("KUBECONFIG", "/nope:~/neither")
    assert str(error_of(Connection(load_kubeconfig))) == "kubeconfig /nope:~/neither not found"


def test_without_a_kubeconfig_the_service_account_of_the_pod_is_used(
    secure: tuple[ApiServer, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api, ca = secure
    for name in ("ca.crt", "token"):
        (tmp_path / name).write_bytes(ca.read_bytes() if name == "ca.crt" else b"ours")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    expected = "kubeconfig ~/.kube/config not found, and KUBECONFIG is not set"
    assert str(error_of(Connection(as_kubectl(tmp_path)))) == expected
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", api.url.rpartition(":")[2])
    assert b"NodeList" in Connection(as_kubectl(tmp_path)).get("/api/v1/nodes", {})
    assert [request.token for request in api.requests] == ["ours"]
    monkeypatch.setenv("KUBECONFIG", "/nope")
    assert str(error_of(Connection(as_kubectl(tmp_path)))) == "kubeconfig /nope not found"


def test_outside_of_a_cluster_there_is_no_service_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)
        error = error_of(Connection(in_cluster(tmp_path)))
        message = f"this is not a pod of a cluster: {name} is not set"
        assert (error.cause, str(error)) == (Cause.CONFIGURATION, message)
        monkeypatch.setenv(name, "1")
    token = tmp_path / "token"
    message = f"the pod has no token of a service account (automountServiceAccountToken): {token} does not exist"
    assert str(error_of(Connection(in_cluster(tmp_path)))) == message
    token.write_text("token")
    assert missing_in_cluster(tmp_path) is None


def test_the_message_of_a_status_is_kept(api: ApiServer) -> None:
    api.fail("nodes", Status(418, "I am a teapot"))
    error = error_of(Connection(plain(api)))
    assert (error.cause, str(error)) == (Cause.REFUSED, "418: I am a teapot")


def test_control_characters_of_a_message_are_escaped(api: ApiServer) -> None:
    api.fail("nodes", Status(500, "\x1b[31mred\a\n and\u202eback"))
    assert str(error_of(Connection(plain(api)))) == r"500: \x1b[31mred\x07 and\u202eback"


def test_the_message_of_a_server_that_does_not_speak_http_is_cut() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"no HTTP" * 5000 + b"\r\n")

        Thread(target=answer, daemon=True).start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        error = error_of(Connection(lambda configuration: setattr(configuration, "host", url)))
    assert (error.cause, len(str(error))) == (Cause.UNREACHABLE, MAX_MESSAGE_CHARACTERS)


@pytest.mark.parametrize("body", [b"<html>bad gateway</html>", b'{"message": 7}', b"[]"])
def test_a_refusal_without_a_status_has_its_reason(api: ApiServer, body: bytes) -> None:
    api.fail("nodes", Body(body, code=502))
    error = error_of(Connection(plain(api)))
    assert (error.cause, str(error)) == (Cause.REFUSED, "502: Bad Gateway")


def test_a_response_that_is_too_large_is_not_read_to_its_end(api: ApiServer) -> None:
    api.fail("nodes", Body(json.dumps({"items": ["x" * 1000]}).encode()))
    with pytest.raises(ApiError) as caught:
        Connection(plain(api)).get("/api/v1/nodes", {}, 100)
    assert (caught.value.cause, str(caught.value)) == (Cause.TOO_LARGE, "the response is larger than 100 bytes")


class Dribble:
    """Endless response of one byte for each read."""

    def read1(self, _: int) -> bytes:
        return b"x"

    def close(self) -> None:
        pass


def test_a_response_that_arrives_byte_by_byte_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = count(0.0, 50.0)
    monkeypatch.setattr("rules_engine.server.cluster.connection.monotonic", lambda: next(seconds))
    with pytest.raises(ApiError) as caught, ApiResponse(cast(Any, Dribble())) as answer:
        b"".join(answer.parts(10_000))
    assert (caught.value.cause, str(caught.value)) == (Cause.TIMED_OUT, "the response takes longer than 120 s")


@pytest.mark.parametrize(("body", "problem"), [(b"<html>", "not JSON: "), (b"[]", "not a JSON object")])
def test_a_response_that_is_no_object_is_malformed(api: ApiServer, body: bytes, problem: str) -> None:
    api.fail("nodes", Body(body))
    with pytest.raises(ApiError) as caught:
        Connection(plain(api)).object("/api/v1/nodes")
    assert caught.value.cause is Cause.MALFORMED
    assert str(caught.value).startswith(f"/api/v1/nodes: {problem}")


def test_a_response_that_has_ended_can_be_interrupted(api: ApiServer) -> None:
    answer = Connection(plain(api)).watch("/api/v1/nodes", {}, 1.0)
    with answer:
        assert b"".join(answer.parts(10_000)).startswith(b"{")
        answer.interrupt()
    answer.interrupt()


FIRST_USES = """
import sys
from threading import Event, Thread
from rules_engine.server.cluster.connection import ApiError, Connection

class Midway:
    def find_spec(self, name, path, target=None):
        if name == "kubernetes.config.kube_config":
            midway.set()

def configure(configuration):
    configuration.host = "http://127.0.0.1:1"

def use():
    try:
        Connection(configure).get("/", {})
    except ApiError as error:
        causes.append(error.cause.value)

midway, causes = Event(), []
sys.meta_path.insert(0, Midway())
first = Thread(target=use)
first.start()
midway.wait()
use()
first.join()
print(*causes)
"""


def test_two_threads_can_import_the_client_at_once() -> None:
    done = subprocess.run([sys.executable, "-c", FIRST_USES], capture_output=True, text=True, env=environment())
    assert (done.stdout.split(), done.stderr) == (["unreachable"] * 2, "")


def test_a_path_consists_of_group_namespace_and_name() -> None:
    assert api_path("nodes") == "/api/v1/nodes"
    assert api_path("secrets", namespace="gpu", name="tls.x") == "/api/v1/namespaces/gpu/secrets/tls.x"
    assert api_path("things", group="x.k8s.io", name="a") == "/apis/x.k8s.io/v1/things/a"
    assert api_path("a/b") == "/api/v1/a%2Fb"


ODD = ["", ".", "..", "x/../../apis", "x%2F..", "x?y", "x#y", "X", "-x", "x-", "x\n", "ü", "x" * 254]


@pytest.mark.parametrize("odd", [*ODD, "a.b", "x" * 64])
def test_no_path_leads_out_of_a_namespace(odd: str) -> None:
    with pytest.raises(ApiError) as caught:
        api_path("events", namespace=odd)
    assert (caught.value.cause, str(caught.value)) == (Cause.INVALID, f"{odd[:63]!r} is not a valid namespace")


@pytest.mark.parametrize("odd", ODD)
def test_no_path_leads_to_another_object(odd: str) -> None:
    with pytest.raises(ApiError) as caught:
        api_path("secrets", namespace="gpu", name=odd)
    assert (caught.value.cause, str(caught.value)) == (Cause.INVALID, f"{odd[:63]!r} is not a valid object name")
