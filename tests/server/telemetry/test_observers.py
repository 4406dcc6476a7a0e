"""Telemetry of a real server."""

import fcntl
import json
import logging
import os
import signal
import subprocess
import sys
from io import FileIO
from logging.config import DictConfigurator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from rules_engine.server.http.limits import BODY_BYTES, Limit
from rules_engine.server.rules.sources import prepare_rules
from rules_engine.server.telemetry.process_log import JsonFormatter, LineFormatter, logging_config
from tests.support.operating import METRICS, fetched, metrics_url, saying, until
from tests.support.server import LADDER, MIG_POD, PATIENCE_SECONDS, command, encoded, environment, review, started


def test_every_decision_of_a_server_is_logged_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    with started(tmp_path, "--decision-log", path, "--metrics-listen", "127.0.0.1:0", "--drain-seconds", "0") as server:
        for endpoint in ("/mutate", "/validate", "/mutate"):
            assert server.send("POST", endpoint, encoded(review(MIG_POD))).response["allowed"]
        _, content = fetched(f"{metrics_url(server)}/metrics")
        families = {family.name: family for family in text_string_to_metric_families(content)}
        assert server.stop(signal.SIGTERM) == 0
    counts = {sample.labels["endpoint"]: sample.value for sample in families["gpu_rules_requests"].samples}
    assert counts == {"mutate": 2, "validate": 1}
    assert families["gpu_rules_ready"].samples[0].value == 1
    assert families["process_resident_memory_bytes"].samples[0].value > 1e7
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["endpoint"] for line in lines] == ["mutate", "validate", "mutate"]
    assert {line["rules"]["digest"] for line in lines} == {prepare_rules(()).digest}


def test_decisions_just_before_the_end_are_logged(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    with started(tmp_path, "--decision-log", path) as server:
        assert server.send("POST", "/mutate", encoded(review(MIG_POD))).patch
        assert server.stop(signal.SIGINT) == 0
    assert len(path.read_text().splitlines()) == 1


def test_a_full_pipe_does_not_keep_the_server_from_ending(tmp_path: Path) -> None:
    path = tmp_path / "log"
    os.mkfifo(path)
    with FileIO(os.open(path, os.O_RDONLY | os.O_NONBLOCK)) as pipe:
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, 4096)
        with started(tmp_path, "--decision-log", path) as server:
            for _ in range(5):
                assert server.send("POST", "/mutate", encoded(review(MIG_POD))).patch
            assert server.stop(signal.SIGINT) == 0
        assert 0 < pipe.readall().count(b"\n") < 5


def test_decisions_of_a_server_can_be_logged_to_standard_output(tmp_path: Path) -> None:
    with started(tmp_path, "--decision-log", "-") as server:
        assert server.send("POST", "/mutate", encoded(review(MIG_POD))).patch
        until(lambda: '"outcome":"Changed"' in server.logged(), "the line")
    [line] = [line for line in server.logged().splitlines() if line.startswith("{")]
    assert json.loads(line)["endpoint"] == "mutate"


def test_reloads_have_metrics(tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text(saying("first"))
    with started(tmp_path, "--rules", rules, *METRICS) as server:

        def found() -> tuple[float, ...]:
            _, content = fetched(f"{metrics_url(server)}/metrics")
            values = {family.name: family.samples for family in text_string_to_metric_families(content)}
            names = ("generation", "last_reload_successful", "reloads_refused")
            return tuple(values[f"gpu_rules_rules_{name}"][0].value for name in names)

        assert found() == (1, 1, 0)
        rules.write_text("kind: Nothing\n")
        until(lambda: found() == (1, 0, 1), "the refusal")
        rules.write_text(saying("second"))
        until(lambda: found() == (2, 1, 1), "the change")


def test_connections_and_limits_of_both_listeners_are_counted(tmp_path: Path) -> None:
    with started(tmp_path, *METRICS) as server:
        kept = server.connect()
        kept.connect()
        assert server.send("POST", "/mutate", b" " * (BODY_BYTES + 1)).status == 413
        _, content = fetched(f"{metrics_url(server)}/metrics")
        kept.close()
    families = {family.name: family.samples for family in text_string_to_metric_families(content)}
    connections = {sample.labels["listener"]: sample.value for sample in families["gpu_rules_http_connections"]}
    assert connections["admission"] >= 1
    assert connections["metrics"] == 1
    exceeded = {tuple(sorted(s.labels.values())): s.value for s in families["gpu_rules_http_limits_exceeded"]}
    assert exceeded.keys() == {
        tuple(sorted((name, limit.value))) for name in ("admission", "metrics") for limit in Limit
    }
    assert {key for key, value in exceeded.items() if value} == {("admission", "body-bytes")}


def run_serve(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command("serve", "--listen", "127.0.0.1:0", *arguments),
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


def test_an_unwritable_decision_log_prevents_the_start(tmp_path: Path) -> None:
    done = run_serve("--decision-log", tmp_path / "none" / "log")
    assert done.returncode == 1
    assert "none/log cannot be written: No such file or directory" in done.stderr
    assert "serves at" not in done.stderr


def test_events_need_a_live_cluster() -> None:
    done = run_serve("--events")
    assert done.returncode == 2
    assert "--events needs a live cluster" in done.stderr


def test_every_line_of_the_log_can_be_json(tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    rules.mkdir()
    (rules / "rules.yaml").write_text(f"{LADDER}---\n")  # with a warning: the last document is empty
    with started(tmp_path, "--rules", rules, "--log-format", "json", "--drain-seconds", "0") as server:
        (rules / "more.yaml").write_text("kind: Nothing\n")
        server.process.send_signal(signal.SIGHUP)
        until(lambda: "changed rules refused" in server.logged(), "the refusal")
        server.stop(signal.SIGTERM)
    records = [json.loads(line) for line in server.logged().splitlines()]
    assert sorted(record["level"] for record in records) == ["ERROR", "INFO", "INFO", "INFO", "WARNING"]
    assert records[1]["message"].startswith("gpu-rules serves at https://")
    assert all(set(record) >= {"time", "level", "logger", "message"} for record in records)


def test_a_failure_to_start_is_logged_as_json_if_the_log_is_json(tmp_path: Path) -> None:
    done = run_serve("--log-format", "json", "--decision-log", tmp_path / "none" / "log")
    assert done.returncode == 1
    record = json.loads(done.stderr)
    assert (record["level"], "cannot be written" in record["message"]) == ("ERROR", True)


def test_an_exception_stays_within_its_line() -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError:
        record = logging.LogRecord("server", logging.ERROR, "", 0, "what %s", ("happened",), sys.exc_info())
    line = JsonFormatter().format(record)
    assert "\n" not in line
    members = json.loads(line)
    assert (members["message"], members["level"], members["logger"]) == ("what happened", "ERROR", "server")
    assert members["exception"].endswith("ValueError")


@pytest.mark.parametrize("form", ["line", "json"])
def test_an_unexpected_error_is_logged_without_its_message(form: str) -> None:
    secret = "of the pod"
    try:
        try:
            raise KeyError(secret)
        except KeyError as error:
            raise ValueError(secret) from error
    except ValueError:
        record = logging.LogRecord("server", logging.ERROR, "", 0, "unexpected", (), sys.exc_info())
    written = DictConfigurator(configuration := logging_config(form)).configure_formatter(
        configuration["formatters"][form]
    )
    line = written.format(record)
    assert secret not in line
    assert "unexpected" in line
    assert line.index("ValueError") < line.index("KeyError")
    assert line.count("test_observers.py") == 2


def test_system_errors_are_logged_with_their_reason() -> None:
    try:
        Path("/none/of/a/pod").read_text()
    except OSError:
        record = logging.LogRecord("server", logging.ERROR, "", 0, "unexpected", (), sys.exc_info())
    line = JsonFormatter().format(record)
    assert "FileNotFoundError: No such file or directory" in line
    assert "[Errno" not in line


def test_the_help_names_the_options_of_telemetry() -> None:
    done = subprocess.run(
        command("serve", "--help"), env=environment(), capture_output=True, text=True, timeout=60, check=True
    )
    for option in ("--decision-log", "--events", "--log-format", "--metrics-listen"):
        assert option in done.stdout


def test_times_in_lines_of_text_and_of_json_are_rfc_3339_in_utc() -> None:
    record = logging.makeLogRecord({"msg": "x", "name": "server", "levelname": "INFO", "created": 1795351523.5})
    lines = LineFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    assert lines.format(record) == "2026-11-22T12:45:23.500Z INFO server: x"
    assert json.loads(JsonFormatter().format(record))["time"] == "2026-11-22T12:45:23.500Z"
