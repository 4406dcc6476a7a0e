"""Start, stop and failures to start, as an operator sees them."""

import resource
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import CliRunner

from rules_engine.server.commands import main
from rules_engine.server.http.limits import MIB, SMALL_BYTES
from tests.support.failed_starts import failed_start
from tests.support.operating import until
from tests.support.server import LADDER, MIG_POD, PATIENCE_SECONDS, Running, encoded, environment, review, started

BROKEN = """\
apiVersion: gpurules.io/v1
kind: FallbackLadder
metadata: {name: broken}
spec:
  matchConditions:
    - {name: typo, expression: "objct.metadata.name == 'x'"}
  rungs:
    - {resource: nvidia.com/gpu}
---
apiVersion: gpurules.io/v1
kind: FallbackLadder
metadata: {name: also-broken}
spec:
  rung: []
"""


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "rules.yaml"
    path.write_text(LADDER)
    return path


def test_the_handler_of_interrupts_is_set_before_most_imports() -> None:
    """Before that, Ctrl-C prints a traceback. The script of pip has imported re."""
    program = (
        "import re, signal, sys\n"
        "before = {*sys.modules}\n"
        "from rules_engine.server.__main__ import main\n"
        "print(*sorted({*sys.modules} - before))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], env=environment(), capture_output=True, check=True)
    assert done.stdout == b"rules_engine rules_engine.server rules_engine.server.__main__\n"


OTHER_DOCUMENTS = """
---
apiVersion: gpurules.io/v1
kind: Diagnostic
metadata: {name: with-an-error}
spec: {}
---
apiVersion: gpurules.io/v1
kind: RuleTest
metadata: {name: of-no-pod}
spec: {cases: [{name: no file, podFile: absent.yaml, expect: {allowed: true}}]}
---
apiVersion: gpurules.io/v1
kind: Simulation
metadata: {name: of-no-cluster}
spec: {arrivals: []}
"""


def test_a_server_reads_rules_only(tmp_path: Path, rules: Path) -> None:
    """Documents of other kinds are passed over by name: their errors are `check`'s, and their modules not loaded."""
    rules.write_text(LADDER + OTHER_DOCUMENTS)
    with started(tmp_path, "--rules", rules, PYTHONPROFILEIMPORTTIME="1") as running:
        assert running.send("POST", "/mutate", encoded(review(MIG_POD))).response["patch"]
        imported = {line.rpartition("|")[2].strip() for line in running.logged().splitlines()}
    assert "rules_engine.rules.ladder" in imported
    packages = ("rules_engine.cluster.scheduling", "rules_engine.questions.doctor", "rules_engine.questions.simulate")
    assert [name for name in imported if name.startswith(packages)] == []


def children(running: Running) -> str:
    """Return the server's child processes, of which there must be none."""
    return Path(f"/proc/{running.process.pid}/task/{running.process.pid}/children").read_text()


def reachable(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_everything_with_exit_code_0(tmp_path: Path, rules: Path, number: int) -> None:
    with started(tmp_path, "--rules", rules, "--drain-seconds", "0") as running:
        assert running.send("GET", "/readyz").status == 200
        assert not children(running)
        assert running.stop(number) == 0
        assert not reachable(running.port)
        _, line = running.logged().splitlines()
        name = signal.Signals(number).name
        assert line.endswith(f" INFO rules_engine.server.serve: {name}: stopping, requests in progress get up to 10 s")


def stack_limit(mib: int, *more: str) -> tuple[str, ...]:
    """Return a command that runs another one, each of whose threads needs some memory for its stack."""
    return ("sh", "-c", "; ".join([f"ulimit -s {mib * 1024}", *more, 'exec "$@"']), "sh")


def test_without_memory_for_another_thread_requests_are_answered(tmp_path: Path, rules: Path) -> None:
    body = encoded(review(MIG_POD, userInfo={"username": "x" * 2 * SMALL_BYTES}))
    with started(tmp_path, "--rules", rules, prefix=stack_limit(64)) as running:
        used = resource.getpagesize() * int(Path(f"/proc/{running.process.pid}/statm").read_text().split()[0])
        most = used + 32 * MIB
        resource.prlimit(running.process.pid, resource.RLIMIT_AS, (most, most))
        assert running.send("POST", "/mutate", body).response["patch"]
        assert running.send("GET", "/healthz").status == 200


def test_without_memory_for_threads_nothing_starts(tmp_path: Path, rules: Path) -> None:
    limit = stack_limit(2048, f"ulimit -v {2048 * 1024}")
    assert failed_start("--tls-dir", tmp_path, "--rules", rules, prefix=limit) == "can't start new thread\n"


def test_after_sigterm_requests_are_answered_until_drained(tmp_path: Path, rules: Path) -> None:
    with started(tmp_path, "--rules", rules, "--drain-seconds", "600") as running:
        assert running.send("GET", "/readyz").status == 200
        running.process.send_signal(signal.SIGTERM)
        until(lambda: running.send("GET", "/readyz").status != 200, "not being ready")
        answer = running.send("GET", "/readyz")
        assert (answer.status, answer.body["reason"]) == (503, "the server is stopping")
        assert running.send("POST", "/mutate", encoded(review(MIG_POD))).response["allowed"] is True
        assert running.send("GET", "/healthz").headers["connection"] == "close"
        # A second signal ends the draining.
        assert running.stop(signal.SIGTERM) == 0
        _, draining, stopping = running.logged().splitlines()
        assert draining.endswith("SIGTERM: not ready, requests are answered for another 600 s")
        assert "SIGTERM: stopping" in stopping


def test_a_pending_request_is_answered_before_the_end(tmp_path: Path, rules: Path) -> None:
    body = encoded(review(MIG_POD))
    with started(tmp_path, "--rules", rules, "--drain-seconds", "0") as running:
        plain = socket.create_connection(("127.0.0.1", running.port), timeout=PATIENCE_SECONDS)
        with plain, running.context().wrap_socket(plain, server_hostname="localhost") as secure:
            secure.sendall(b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n")
            secure.sendall(b"Content-Length: %d\r\n\r\n" % len(body) + body[:100])
            assert running.send("GET", "/readyz").status == 200
            running.process.send_signal(signal.SIGTERM)
            until(lambda: not reachable(running.port), "the end of the listener")
            secure.sendall(body[100:])
            assert secure.recv(100).startswith(b"HTTP/1.1 200 ")
        assert running.process.wait(PATIENCE_SECONDS) == 0


def test_the_start_up_line_names_addresses_and_sources(tmp_path: Path, rules: Path) -> None:
    with started(tmp_path, "--rules", rules) as running:
        assert running.logged() == (
            f"gpu-rules serves at https://127.0.0.1:{running.port}; 1 FallbackLadder, 1 Validation from {rules}; "
            f"mode: Enforce; cluster: the packaged inventory two-workers; CA: {running.ca}\n"
        )


def test_all_broken_rules_are_printed_and_prevent_the_start(tmp_path: Path) -> None:
    path = tmp_path / "broken.yaml"
    path.write_text(BROKEN)
    output = failed_start("--rules", path, "--listen", "127.0.0.1:0")
    assert f"{path}:6:33: error: " in output
    assert "(did you mean 'object'?)" in output
    assert "    6 |     - {name: typo, expression: \"objct.metadata.name == 'x'\"}\n      |" in output
    assert f"{path}:14:3: error: " in output
    assert output.count("objct") == 2
    assert "serves at" not in output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--listen", "8443"], "'8443' is not HOST:PORT with a port of 0 to 65535"),
        (["--listen", "localhost:65536"], "is not HOST:PORT"),
        (["--listen", "localhost:"], "is not HOST:PORT"),
        (["--listen", "::1:8443"], "an IPv6 address needs brackets"),
        (["--rules", "/does/not/exist"], "'/does/not/exist' does not exist"),
        (["/"], "Got unexpected extra argument (/)"),
        (["--cluster", "incluster"], "'incluster' is neither in-cluster nor kubeconfig, and no such file exists"),
        (["--tls-service", "https://a.b.svc"], "'https://a.b.svc' is not a DNS name, such as gpu-rules.gpu-rules.svc"),
        (["--declare", __file__], "--declare needs a live cluster"),
        *(
            (
                ["--cluster", place],
                "needs --rules, such as the sets that gpu-rules sets suggest --cluster kubeconfig prints",
            )
            for place in ("in-cluster", "kubeconfig")
        ),
        (["--tls-cert", "a"], "--tls-cert and --tls-key need each other"),
        (["--tls-service", "a.b.svc"], "--tls-service needs --tls-bootstrap"),
        (["--decision-log-messages"], "--decision-log-messages needs --decision-log"),
        (["--decision-log-requests"], "--decision-log-requests needs --decision-log"),
        *(
            ([option, "nan"], "'nan' is not a number of seconds")
            for option in ("--receive-seconds", "--request-timeout", "--drain-seconds", "--max-staleness")
        ),
        (["--tls-cert", "a", "--tls-key", "b", "--tls-dir", "c"], "--tls-dir is for a generated certificate"),
        (["--tls-bootstrap", "ns"], "'ns' is not NAMESPACE/SECRET"),
        (["--tls-bootstrap", "ns/.."], "'ns/..' is not NAMESPACE/SECRET"),
        (["--webhook-name", "a/b"], "'a/b' is not a valid object name"),
        (["--tls-bootstrap", "ns/s"], "--tls-bootstrap needs --tls-service and --webhook-name"),
        (["--tls-bootstrap", "ns/s", "--tls-dir", "d"], "--tls-bootstrap issues a certificate"),
        (["--metrics-listen", "9090"], "'9090' is not HOST:PORT"),
        (["--request-timeout", "31"], "31.0 is not in the range"),
        (["--max-concurrent", "0"], "0 is not in the range"),
        (["--client-cas", "f"], "No such option"),
    ],
)
def test_wrong_usage_has_exit_code_2_and_a_message(arguments: list[str], message: str) -> None:
    done = CliRunner().invoke(main, ["serve", *arguments])
    assert done.exit_code == 2
    assert message in done.stderr


@pytest.mark.parametrize("name", main.commands)
def test_help_describes_values_rather_than_types_of_the_parser(name: str) -> None:
    help = CliRunner().invoke(main, [name, "--help"]).output
    assert help.startswith(f"Usage: main {name} ")
    assert " RANGE" not in help
    assert "Without:" not in help


def test_plain_http_gets_no_decision_and_one_line_of_log(server: Running) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_SECONDS) as plain:
        plain.sendall(b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
        with suppress(ConnectionResetError):
            assert b"HTTP" not in plain.recv(100)
    assert server.send("GET", "/readyz").status == 200
    until(
        lambda: "admission listener: TLS handshake failed: not-tls (1 in all, last by 127.0.0.1)" in server.logged(),
        "the line",
    )
    assert server.logged().count("\n") == 2, server.logged()
