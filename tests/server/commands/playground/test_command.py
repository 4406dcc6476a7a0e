"""`gpu-rules playground` as a process, and its usage errors."""

import signal
import socket
import subprocess
import sys
import webbrowser
from pathlib import Path
from queue import Queue

import pytest
from click.testing import CliRunner
from waitress.server import BaseWSGIServer

from rules_engine.server.commands import main
from rules_engine.server.commands.playground.app import MAX_TEXT_BYTES
from tests.support.playground_server import Playground
from tests.support.server import PATIENCE_SECONDS, ROOT


def test_the_command_serves_the_given_texts_until_it_is_interrupted(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("# a", encoding="utf-8")
    (tmp_path / "b.yaml").write_text("# b\n", encoding="utf-8")
    (tmp_path / "c.yaml").write_text("# c\n", encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "rules_engine.server",
        "playground",
        "--no-open",
        "--listen",
        "127.0.0.1:0",
        "--rules",
        "a.yaml",
        "b.yaml",
    ]
    process = subprocess.Popen(
        [*command, "--cluster", "c.yaml"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        url, _, hint = process.stdout.readline().strip().partition(" ")
        playground = Playground(url.removesuffix("/"))
        start = playground.get("/examples.json").json["start"]
        assert playground.post("/answer", start).status == 200
    finally:
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=PATIENCE_SECONDS)

    assert hint == "(rules: a.yaml b.yaml; Ctrl-C ends it)"
    assert (start["rules.yaml"], start["cluster.yaml"]) == ("# a\n---\n# b\n", "# c\n")
    assert (process.returncode, rest) == (0, "")


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["playground", *arguments])
    return result.exit_code, result.output


@pytest.mark.parametrize("address", ["0.0.0.0:0", ":0", "192.0.2.1:0", "example.com:0"])
def test_only_loopback_addresses_are_listened_on(address: str) -> None:
    code, output = run("--no-open", "--listen", address)

    assert code == 2
    assert "is not a loopback address" in output


def test_too_much_text_is_a_usage_error(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text("# " + "x" * MAX_TEXT_BYTES, encoding="utf-8")

    code, output = run("--no-open", "--rules", str(file))

    assert code == 2
    assert "the rules and the cluster have more than 256 KiB" in output


def test_a_file_that_is_not_text_is_a_usage_error(tmp_path: Path) -> None:
    file = tmp_path / "bytes.yaml"
    file.write_bytes(b"\xff")

    for option in ("--rules", "--cluster"):
        code, output = run("--no-open", option, str(file))
        assert code == 2
        assert "bytes.yaml" in output


def test_a_used_port_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as bound:
        port = bound.getsockname()[1]
        code, output = run("--no-open", "--listen", f"127.0.0.1:{port}")

    assert code == 2
    assert output == f"gpu-rules playground: cannot listen on 127.0.0.1:{port}: Address already in use\n"


@pytest.mark.parametrize("address", ["localhost:0", "[::1]:0"])
def test_the_browser_is_opened_at_the_address(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: Queue[str] = Queue()
    monkeypatch.setattr(webbrowser, "open", opened.put)
    monkeypatch.setattr(BaseWSGIServer, "run", lambda _: None)

    code, output = run("--listen", address)

    assert code == 0
    assert output == f"{opened.get(timeout=PATIENCE_SECONDS)} (rules: the example 'A first rule'; Ctrl-C ends it)\n"
