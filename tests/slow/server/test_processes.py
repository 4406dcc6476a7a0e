"""Start, stop and failures to start of one server each."""

import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography.x509.oid import ExtendedKeyUsageOID

from rules_engine.server.http.limits import UNREAD_SECONDS
from rules_engine.server.option_types import Address
from rules_engine.server.serve import _bind_address
from rules_engine.server.timing import rfc3339
from tests.support.certificates import DAY, certified
from tests.support.failed_starts import failed_start
from tests.support.operating import METRICS, fetched, metrics_url, until
from tests.support.server import (
    LADDER,
    MIG_POD,
    PATIENCE_SECONDS,
    Running,
    certificate_files,
    command,
    encoded,
    environment,
    review,
    started,
)


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "rules.yaml"
    path.write_text(LADDER)
    return path


def test_an_interrupt_during_the_imports_ends_the_command() -> None:
    program = (
        "import os, signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from rules_engine.server.__main__ import main\n"
        "class Interrupts:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'rules_engine.server.commands': os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupts())\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], env=environment(), capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, b"", b"")


def test_ctrl_c_on_a_terminal_ends_everything_with_exit_code_0(tmp_path: Path, rules: Path) -> None:
    with started(tmp_path, "--rules", rules, prefix=["setsid"]) as running:
        assert running.send("GET", "/readyz").status == 200
        # A terminal sends SIGINT to every process of its foreground group at once.
        os.killpg(running.process.pid, signal.SIGINT)
        assert running.process.wait(PATIENCE_SECONDS) == 0
        _, line = running.logged().splitlines()
        assert "SIGINT: stopping" in line


def test_draining_ends_after_its_time(tmp_path: Path, rules: Path) -> None:
    with started(tmp_path, "--rules", rules, "--drain-seconds", "0.2") as running:
        assert running.stop(signal.SIGTERM) == 0
        assert "drained: stopping" in running.logged()


@pytest.mark.parametrize(
    ("own_rules", "checked"),
    [(True, "checking for changes of certificate, rules"), (False, "checking for changes of certificate")],
)
def test_sighup_is_logged_with_what_is_checked(tmp_path: Path, rules: Path, own_rules: bool, checked: str) -> None:
    arguments: list[str | Path] = ["--rules", rules] if own_rules else []
    with started(tmp_path, *arguments) as running:
        running.process.send_signal(signal.SIGHUP)
        until(lambda: f"SIGHUP: {checked}\n" in running.logged(), "the line that says so")


def test_open_connections_are_answered_without_draining(tmp_path: Path, rules: Path) -> None:
    with started(tmp_path, "--rules", rules, "--drain-seconds", "0") as running:
        plain = socket.create_connection(("127.0.0.1", running.port), timeout=PATIENCE_SECONDS)
        assert running.send("GET", "/readyz").status == 200
        running.process.send_signal(signal.SIGTERM)
        with plain, running.context().wrap_socket(plain, server_hostname="localhost") as secure:
            secure.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert secure.recv(100).startswith(b"HTTP/1.1 200 ")
        assert running.process.wait(PATIENCE_SECONDS) == 0


def test_decisions_for_disconnected_clients_do_not_delay_the_end(tmp_path: Path) -> None:
    rules = tmp_path / "slow.yaml"
    rules.write_text(
        "---\n".join(
            f"apiVersion: gpurules.io/v1\nkind: Validation\nmetadata: {{name: slow-{number}}}\nspec:\n"
            '  variables: [{name: many, expression: "lists.range(700)"}]\n  validations:\n'
            '    - expression: "variables.many.all(a, variables.many.all(b, a + b < size(object.spec) * 9999))"\n'
            for number in range(400)
        )
    )
    timing = ("--drain-seconds", "0", "--grace-seconds", "1", "--request-timeout", "30")
    with started(tmp_path, "--rules", rules, *timing, *METRICS) as running:
        body = encoded(review())
        with ExitStack() as stack:
            for _ in range(16):
                plain = stack.enter_context(socket.create_connection(("127.0.0.1", running.port)))
                secure = stack.enter_context(running.context().wrap_socket(plain, server_hostname="localhost"))
                secure.sendall(b"POST /validate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n")
                secure.sendall(b"Content-Length: %d\r\n\r\n" % len(body) + body)
            in_flight = "gpu_rules_requests_in_flight 16.0"
            until(lambda: in_flight in fetched(f"{metrics_url(running)}/metrics")[1], "all of them")
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(PATIENCE_SECONDS / 6) == 0, "all of them take longer"


def test_sighup_during_the_start_does_not_end_it(tmp_path: Path) -> None:
    pipe = tmp_path / "cluster.yaml"
    os.mkfifo(pipe)
    process = subprocess.Popen(command("serve", "--cluster", pipe), env=environment(), stderr=subprocess.PIPE)
    try:
        with pipe.open("wb"):  # blocks until the server opens it, which then waits for text
            process.send_signal(signal.SIGHUP)
        _, output = process.communicate(timeout=PATIENCE_SECONDS)
        assert (process.returncode, b"[not-a-cluster]" in output) == (1, True)
    finally:
        process.kill()
        process.wait()


def test_unread_connections_end_and_no_answer_is_delayed() -> None:
    with _bind_address(Address("127.0.0.1", 0)) as listener:
        listener.listen()
        with socket.create_connection(listener.getsockname()), listener.accept()[0] as accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == UNREAD_SECONDS * 1000
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_decision_log_pipe_without_reader_is_one_clear_error(tmp_path: Path, rules: Path) -> None:
    pipe = tmp_path / "log"
    os.mkfifo(pipe)
    output = failed_start("--rules", rules, "--decision-log", pipe)
    assert output == f"gpu-rules serve: the decision log {pipe} cannot be written: No such device or address\n"


def test_a_stalled_client_does_not_keep_the_server_from_ending(tmp_path: Path, rules: Path) -> None:
    """Only the grace period can end the request here."""
    with started(tmp_path, "--rules", rules, "--grace-seconds", "1", "--receive-seconds", "600") as running:
        plain = socket.create_connection(("127.0.0.1", running.port))
        with plain, running.context().wrap_socket(plain, server_hostname="localhost") as secure:
            secure.sendall(b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")
            assert running.send("GET", "/readyz").status == 200
            assert running.stop(signal.SIGINT) == 0
        assert "stopped with 1 connections open" in running.logged()


def test_defaults_are_the_packaged_rules_and_a_logged_ca(tmp_path: Path) -> None:
    process = subprocess.Popen(
        command("serve", "--listen", "localhost:0"),
        env=environment(TMPDIR=str(tmp_path)),
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        found = re.fullmatch(
            r"gpu-rules serves at (https://127\.0\.0\.1:\d+); (.+) from the packaged set gpu-allocation; "
            r"mode: Enforce; cluster: the packaged inventory two-workers; CA: (.+)\n",
            line,
        )
        assert found, line
        running = Running(process, found[1], Path(found[3]), tmp_path / "none")  # type: ignore[arg-type]
        assert re.sub("[0-9 ]", "", found[2]) == "FallbackLadder,ResourceInjection,Validation"
        assert running.ca.is_relative_to(tmp_path)
        assert [*running.ca.parent.iterdir()] == [running.ca]  # a killed process leaves no key
        assert running.send("POST", "/mutate", encoded(review(MIG_POD))).patch
        assert running.stop(signal.SIGINT) == 0
        assert not running.ca.parent.exists()
    finally:
        process.kill()
        process.communicate()


def test_a_certificate_in_tls_dir_survives_a_restart(tmp_path: Path, rules: Path) -> None:
    authorities = []
    for _ in range(2):
        with started(tmp_path, "--rules", rules) as running:
            assert running.send("GET", "/readyz").status == 200
            authorities.append(running.ca.read_bytes())
    assert authorities[0] == authorities[1]


def test_given_tls_files_are_served(tmp_path: Path, rules: Path) -> None:
    now = datetime.now(UTC)
    certificate, key = certificate_files(tmp_path, now, now + timedelta(days=1))
    with started(tmp_path, "--rules", rules, "--tls-cert", certificate, "--tls-key", key) as running:
        running.ca = certificate
        assert running.send("GET", "/readyz").status == 200
        assert f"certificate: {certificate}, valid until {rfc3339(now + timedelta(days=1))}" in running.logged()


def test_every_option_can_be_an_environment_variable(tmp_path: Path, rules: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(LADDER.replace("name: mig", "name: mig-2").replace("name: no-latest", "name: no-latest-2"))
    inventory = tmp_path / "cluster.yaml"
    inventory.write_text("apiVersion: gpurules.io/v1\nkind: ClusterInventory\nmetadata: {name: c}\nspec: {nodes: []}\n")
    variables = {"GPU_RULES_RULES": f"{rules}:{other}", "GPU_RULES_CLUSTER": str(inventory)}
    with started(tmp_path, **variables) as running:
        assert (
            f"2 FallbackLadder, 2 Validation from {rules} {other}; mode: Enforce; cluster: {inventory};"
            in running.logged()
        )


def test_one_rules_option_accepts_several_paths(tmp_path: Path, rules: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(LADDER.replace("name: mig", "name: mig-2").replace("name: no-latest", "name: no-latest-2"))
    with started(tmp_path, "--rules", rules, other) as running:
        assert "2 FallbackLadder" in running.logged()


def test_a_warning_is_printed_and_does_not_prevent_the_start(tmp_path: Path, rules: Path) -> None:
    rules.write_text(f"{LADDER}---\n")
    with started(tmp_path, "--rules", rules) as running:
        assert running.send("GET", "/readyz").status == 200
        assert running.logged().startswith(f"{rules}:")
        assert ": warning: the document is empty " in running.logged()


def test_a_broken_cluster_file_is_printed_and_prevents_the_start(tmp_path: Path, rules: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text("apiVersion: gpurules.io/v1\nkind: ClusterInventory\nmetadata: {name: c}\nspec: {knots: []}\n")
    output = failed_start("--rules", rules, "--cluster", path)
    assert f"{path}:4:8: error: " in output


def test_no_rules_at_all_is_an_error(tmp_path: Path) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    assert str(folder) in failed_start("--rules", folder)
    (folder / "cluster.yaml").write_text(
        "apiVersion: gpurules.io/v1\nkind: ClusterInventory\nmetadata: {name: c}\nspec: {nodes: []}\n"
    )
    assert failed_start("--rules", folder) == (
        f"gpu-rules serve: no rules in {folder}: a server without rules admits every pod\n"
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_during_the_start_ends_it_with_exit_code_0(tmp_path: Path, number: int) -> None:
    pipe = tmp_path / "cluster.yaml"
    os.mkfifo(pipe)
    process = subprocess.Popen(command("serve", "--cluster", pipe), env=environment(), stderr=subprocess.PIPE)
    try:
        with pipe.open("wb"):  # blocks until the server opens it, which then waits for text
            stat = Path(f"/proc/{process.pid}/stat")
            # A signal between opening and waiting would only be noticed after text.
            until(lambda: " S " in stat.read_text(), "a server that waits")
            process.send_signal(number)
            _, output = process.communicate(timeout=PATIENCE_SECONDS)
        assert (process.returncode, output) == (0, b"")
    finally:
        process.kill()
        process.wait()


def test_a_port_in_use_is_one_clear_error(tmp_path: Path, rules: Path) -> None:
    with started(tmp_path, "--rules", rules) as running:
        output = failed_start("--rules", rules, "--listen", f"127.0.0.1:{running.port}")
        assert output == f"gpu-rules serve: cannot listen on 127.0.0.1:{running.port}: Address already in use\n"
        assert running.send("GET", "/readyz").status == 200


def test_in_cluster_outside_of_a_cluster_is_one_clear_error(rules: Path) -> None:
    output = failed_start(
        "--rules", rules, "--cluster", "in-cluster", "--listen", "127.0.0.1:0", KUBERNETES_SERVICE_HOST=""
    )
    assert output == (
        "gpu-rules serve: --cluster in-cluster: this is not a pod of a cluster: KUBERNETES_SERVICE_HOST is not set; "
        "--cluster kubeconfig reads a cluster from outside of it\n"
    )


def test_a_host_that_does_not_exist_is_one_clear_error(rules: Path) -> None:
    output = failed_start("--rules", rules, "--listen", "no.such.host.invalid:0")
    assert output.startswith("gpu-rules serve: cannot listen on no.such.host.invalid:0: ")
    assert output.count("\n") == 1


def test_an_address_of_another_machine_is_one_clear_error(rules: Path) -> None:
    output = failed_start("--rules", rules, "--listen", "192.0.2.1:0")
    assert output == "gpu-rules serve: cannot listen on 192.0.2.1:0: Cannot assign requested address\n"


def invalid_files(folder: Path, broken: str) -> tuple[list[Path], str]:
    """Yield a certificate, its key and client CAs, one of them invalid, with the message."""
    good = certified("good")
    certificate, key = good.write(folder)
    cas = folder / "ca.crt"
    cas.write_bytes(certified("ca", ca=True).certificate)
    why = ""
    if broken == "expired":
        certificate, key = certified("old", end=datetime.now(UTC) - DAY).write(folder)
        why = f"{certificate}: the certificate expired at "
    elif broken == "missing":
        key = folder / "missing"
        why = f"{key}: cannot be read: No such file or directory\n"
    elif broken == "another key":
        _, key = certified("other").write(folder)
        why = f"{key}: this key does not belong to the certificate in {certificate}\n"
    elif broken == "for clients":
        certificate, key = certified("client", usage=ExtendedKeyUsageOID.CLIENT_AUTH).write(folder)
        why = f"{certificate}: the certificate cannot be served: clients refuse it: unsuitable certificate purpose\n"
    elif broken == "no CA":
        cas.write_bytes(b"nonsense")
        why = f"{cas}: no certificate in PEM format\n"
    return [certificate, key, cas], why


@pytest.mark.parametrize("broken", ["expired", "missing", "another key", "for clients", "no CA"])
def test_bad_tls_files_are_one_clear_error(tmp_path: Path, rules: Path, broken: str) -> None:
    (certificate, key, cas), why = invalid_files(tmp_path, broken)
    files = ("--tls-cert", certificate, "--tls-key", key, "--client-ca", cas)
    output = failed_start("--rules", rules, *files, *METRICS, "--listen", "127.0.0.1:0")
    assert output.startswith(f"gpu-rules serve: {why}")
    assert output.count("\n") == 1


def test_ipv6_and_all_addresses_can_be_listened_on(tmp_path: Path, rules: Path) -> None:
    with started(tmp_path, "--rules", rules, "--listen", ":0") as running:
        assert running.url.startswith("https://0.0.0.0:")
        assert running.send("GET", "/readyz").status == 200
    if socket.has_ipv6 and Path("/proc/net/if_inet6").exists() and Path("/proc/net/if_inet6").read_text():
        with started(tmp_path, "--rules", rules, "--listen", "[::1]:0") as running:
            assert running.url.startswith("https://[::1]:")
