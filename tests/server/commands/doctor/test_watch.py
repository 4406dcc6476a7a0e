"""`doctor --watch` on a stand-in API server: metrics, Events, failures, changed rules, signals."""

import json
import logging
import re
import signal
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rules_engine.model.kubernetes.cluster_objects import FINDINGS
from rules_engine.questions.doctor.scope import Scope
from rules_engine.rules.sources.rule_sources import PathSource
from rules_engine.server.cluster.connection import Connection
from rules_engine.server.commands.doctor import preparation
from rules_engine.server.commands.doctor.command import doctor
from rules_engine.server.commands.doctor.finding_events import QUIET_SECONDS
from rules_engine.server.commands.doctor.preparation import PreparedDoctor, prepare_diagnosis
from rules_engine.server.commands.doctor.watch import RETRY_SECONDS, RepeatedDiagnosis, WatchSettings, readiness_page
from rules_engine.server.option_types import Address
from rules_engine.server.telemetry.events import Events
from rules_engine.server.telemetry.finding_metrics import FindingMetrics
from tests.support.apiserver import PATIENCE_SECONDS, ApiServer, Silence, Status, bound, namespace, node
from tests.support.cluster import Clock, plain
from tests.support.cluster_files import SECRET
from tests.support.diagnostics import document
from tests.support.doctor import CURIOUS, add_secrets, watching
from tests.support.operating import until
from tests.support.server import command, environment
from tests.support.telemetry import series

MIG = "nvidia.com/mig-1g.5gb"
INTERVAL = 120.0
DIAGNOSTIC = document("reason: %s\nmessageExpression: \"'node ' + object.metadata.name\"", "ours")


@pytest.fixture
def api(api: ApiServer) -> ApiServer:
    api.put("nodes", node("one", {"pods": 110}))
    api.put("namespaces", namespace("ml"))
    return api


@dataclass
class Watched:
    """Repeated diagnoses in this thread."""

    repeated: RepeatedDiagnosis
    clock: Clock

    def findings(self) -> dict[str, float]:
        """Return the number of objects by reason."""
        samples = series(FindingMetrics(lambda: self.repeated.state, None))
        matches = {name: re.search(r"doctor_findings.*\{reason=(\w+)\}", name) for name in samples}
        return {match[1]: samples[name] for name, match in matches.items() if match}

    @property
    def ready(self) -> tuple[int, Any]:
        status, report = readiness_page(self.repeated.state)
        return int(status), dict(report)

    @property
    def diagnosed(self) -> str:
        """The time of the last diagnosis, once there is one."""
        return str(self.ready[1].get("diagnosed"))


PREPARE = cache(prepare_diagnosis)
"""Compiles the packaged Diagnostics once for all tests; rules that change are prepared by the test."""


def watched(
    api: ApiServer,
    rules: tuple[Path, ...] = (),
    events: Events | None = None,
    prepared: PreparedDoctor | None = None,
    **scope: Any,
) -> Watched:
    settings = WatchSettings(
        rules=tuple(map(PathSource, rules)),
        scope=Scope(**scope),
        interval_seconds=INTERVAL,
        timeout_seconds=PATIENCE_SECONDS,
        metrics_listen=Address("127.0.0.1", 0),
        events=events is not None,
        log_format="line",
    )
    clock = Clock()
    connection = Connection(plain(api))
    return Watched(
        RepeatedDiagnosis(settings, prepared or PREPARE(settings.rules), connection, events, clock=clock), clock
    )


def test_metrics_show_the_findings_of_the_last_diagnosis(api: ApiServer) -> None:
    watch = watched(api)
    api.put("pods", bound("train", "", {MIG: 1}))
    assert watch.repeated.step() == INTERVAL
    assert watch.findings() == {"GPUResourceOnNoNode": 1}
    api.delete("pods", "train", "ml")
    watch.repeated.step()
    assert watch.findings() == {}


def test_only_the_namespace_of_the_scope_is_reported(api: ApiServer) -> None:
    for name in ("ml", "team"):
        api.put("pods", bound("train", "", {MIG: 1}, namespace=name))
    watch = watched(api, namespace="team")
    watch.repeated.step()
    assert watch.findings() == {"GPUResourceOnNoNode": 1}


def test_a_failure_keeps_the_last_findings_and_is_retried(api: ApiServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "rules_engine.server")
    watch = watched(api)
    assert watch.ready == (503, {"status": "not ready", "reason": "the first diagnosis is under way"})
    api.put("pods", bound("train", "", {MIG: 1}))
    api.fail("nodes", *[Status(500, "etcd is down")] * 2)
    for _ in range(2):
        assert watch.repeated.step() == RETRY_SECONDS
    assert watch.ready == (503, {"status": "not ready", "reason": "cannot list nodes: 500: etcd is down"})
    watch.repeated.step()
    at = watch.diagnosed
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", at)
    api.fail("pods", Status(500, "etcd is down"))
    watch.repeated.step()
    assert watch.findings() == {"GPUResourceOnNoNode": 1}
    assert watch.ready == (200, {"status": "ok", "diagnosed": at, "failure": "cannot list pods: 500: etcd is down"})
    assert (watch.repeated.state.failures, watch.repeated.state.failure is None) == (3, False)
    assert [record.message for record in caplog.records] == [
        "no diagnosis: cannot list nodes: 500: etcd is down",
        "diagnosed again",
        "no diagnosis: cannot list pods: 500: etcd is down",
    ]


def test_credentials_are_read_again_after_they_were_refused(api: ApiServer, tmp_path: Path) -> None:
    config = api.kubeconfig(tmp_path, {"token": "old"})
    api.tokens = {"new"}
    watch = watched(api)

    def configure(configuration: Any) -> None:
        from kubernetes import config as loader

        loader.load_kube_config(str(config), client_configuration=configuration, persist_config=False)  # type: ignore[no-untyped-call]

    watch.repeated._connection = Connection(configure)
    watch.repeated.step()
    assert watch.repeated.state.failure == "cannot list nodes: 401: Unauthorized"
    api.kubeconfig(tmp_path, {"token": "new"})
    watch.repeated.step()
    assert watch.repeated.state.failure is None


def test_an_unexpected_error_is_a_failed_diagnosis(api: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError

    monkeypatch.setattr("rules_engine.server.commands.doctor.watch.doctor", broken)
    watch = watched(api)
    with pytest.raises(RuntimeError):
        watch.repeated.step()
    assert watch.ready == (503, {"status": "not ready", "reason": "unexpected error"})
    assert watch.repeated.state.failures == 1


def test_a_collection_that_may_not_be_listed_is_logged_once(api: ApiServer, caplog: pytest.LogCaptureFixture) -> None:
    api.forbidden = {"jobs"}
    watch = watched(api)
    for _ in range(2):
        watch.repeated.step()
    last = watch.repeated.state.last
    assert last is not None
    assert last.absent == ("jobs",)
    assert "jobs" not in last.objects
    (record,) = caplog.records
    assert record.message.startswith("diagnosed without it: cannot list jobs: 403: ")


def test_with_rights_in_one_namespace_its_pods_are_diagnosed(api: ApiServer, caplog: pytest.LogCaptureFixture) -> None:
    api.forbidden = {"nodes", "pods"}
    api.single["/api/v1/namespaces/ml/pods"] = {"metadata": {"resourceVersion": "1"}, "items": [bound("a", "")]}
    watch = watched(api, namespace="ml")
    watch.repeated.step()
    assert watch.repeated.state.last is not None
    assert watch.repeated.state.last.absent == ("nodes", "pods of other namespaces")
    (record,) = caplog.records
    assert "cannot list nodes; only pods of namespace ml are read: 403: " in record.message


def test_changed_rules_are_read_before_the_next_diagnosis(
    api: ApiServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "rules_engine.server")
    path = tmp_path / "ours.yaml"
    path.write_text(DIAGNOSTIC % "First")
    watch = watched(api, (tmp_path,))
    watch.repeated.step()
    assert watch.findings() == {"First": 1}
    path.write_text(DIAGNOSTIC % "SecondReason")
    watch.repeated.step()
    assert watch.findings() == {"SecondReason": 1}
    assert caplog.records[-1].message == "changed rules read"


def test_rules_that_change_while_the_process_starts_are_read(api: ApiServer, tmp_path: Path) -> None:
    path = tmp_path / "ours.yaml"
    path.write_text(DIAGNOSTIC % "First")
    prepared = prepare_diagnosis([PathSource(tmp_path)])
    path.write_text(DIAGNOSTIC % "SecondReason")
    watch = watched(api, (tmp_path,), prepared=prepared)
    watch.repeated.step()
    assert watch.findings() == {"SecondReason": 1}


def test_changed_rules_with_errors_are_refused(
    api: ApiServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "ours.yaml"
    path.write_text(DIAGNOSTIC % "First")
    watch = watched(api, (tmp_path,))
    path.write_text((DIAGNOSTIC % "Second").replace("object.", "objct."))
    for _ in range(2):
        watch.repeated.step()
    assert watch.findings() == {"First": 1}
    assert watch.repeated.state.reloads_refused == 1
    assert watch.repeated.state.refused is not None
    (record,) = caplog.records
    assert record.message.startswith("changed rules refused:\n")
    assert "undeclared reference to 'objct'" in record.message
    path.write_text(DIAGNOSTIC % "Third")
    watch.repeated.step()
    assert watch.findings() == {"Third": 1}
    assert watch.repeated.state.refused is None


def test_findings_are_sent_as_events_once(api: ApiServer, tmp_path: Path) -> None:
    api.put("pods", bound("train", "", {MIG: 1}))
    events = Events(Connection(plain(api)), quiet_seconds=QUIET_SECONDS)
    events.start()
    watch = watched(api, events=events)
    for _ in range(2):
        watch.repeated.step()
    api.put("pods", bound("later", "", {MIG: 7}))
    watch.repeated.step()
    api.wait_for(lambda: any(event["involvedObject"]["name"] == "later" for _, event in api.events))
    events.stop()
    assert [
        (space, event["involvedObject"]["name"], event["involvedObject"]["uid"]) for space, event in api.events
    ] == [("ml", "train", "uid-of-train"), ("ml", "later", "uid-of-later")]
    assert {event["reason"] for _, event in api.events} == {"GPUResourceOnNoNode"}


def test_no_secret_is_in_a_metric_an_event_or_the_log(
    api: ApiServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    api.put("pods", add_secrets(bound("train", "", {MIG: 1})))
    rules = tmp_path / "curious.yaml"
    rules.write_text(CURIOUS)
    events = Events(Connection(plain(api)), quiet_seconds=QUIET_SECONDS)
    events.start()
    watch = watched(api, (rules,), events)
    watch.repeated.step()
    api.wait_for(lambda: {"Curious", "GPUResourceOnNoNode"} <= {event["reason"] for _, event in api.events})
    events.stop()
    assert watch.findings() == {"Curious": 1, "GPUResourceOnNoNode": 1}
    samples = series(FindingMetrics(lambda: watch.repeated.state, events))
    assert SECRET not in f"{samples} {api.events} {caplog.text}"


# The process.


def test_the_process_serves_metrics_and_sends_events(api: ApiServer, tmp_path: Path) -> None:
    api.put("pods", bound("train", "", {MIG: 1}))
    with watching(tmp_path, api.kubeconfig(tmp_path), "--events", "--log-format", "json") as process:
        until(lambda: process.get("/readyz")[0] == 200, "the first diagnosis")
        api.wait_for(lambda: api.events)
        until(lambda: process.samples()["gpu_rules_events_total"] == 1, "the sent Event")
        samples = process.samples()
        assert (samples["gpu_rules_doctor_pending_pods"], samples["gpu_rules_doctor_findings"]) == (1, 1)
        assert json.loads(process.get("/healthz")[1]) == {"status": "ok"}
        assert process.get("/rules")[0] == 404
        assert process.process.poll() is None
        process.process.send_signal(signal.SIGTERM)
        assert process.process.wait(PATIENCE_SECONDS) == 0
    ((space, event),) = api.events
    assert (space, event["source"]) == ("ml", {"component": FINDINGS})
    for line in process.log.read_text().splitlines():
        assert json.loads(line)["level"] == "INFO"


def test_the_process_ends_during_a_diagnosis(api: ApiServer, tmp_path: Path) -> None:
    api.fail("nodes", Silence())
    with watching(tmp_path, api.kubeconfig(tmp_path)) as process:
        api.wait_for(lambda: api.lists("nodes"))
        assert process.get("/readyz")[0] == 503
        process.process.send_signal(signal.SIGINT)
        assert process.process.wait(PATIENCE_SECONDS) == 0


def test_an_address_in_use_is_unusable(api: ApiServer, tmp_path: Path) -> None:
    address = api.url.removeprefix("http://").replace("localhost", "127.0.0.1")
    line = command("doctor", "--watch", "--metrics-listen", address)
    ended = subprocess.run(
        line, env=environment(KUBECONFIG=str(api.kubeconfig(tmp_path))), capture_output=True, text=True, check=False
    )
    assert ended.returncode == 2
    assert ended.stderr == f"gpu-rules doctor: cannot listen on {address}: Address already in use\n"


def test_rules_with_errors_are_refused_at_the_start(api: ApiServer, tmp_path: Path) -> None:
    path = tmp_path / "ours.yaml"
    path.write_text((DIAGNOSTIC % "First").replace("object.", "objct."))
    line = command("doctor", "--watch", "--metrics-listen", "127.0.0.1:0", "--rules", path)
    ended = subprocess.run(
        line, env=environment(KUBECONFIG=str(api.kubeconfig(tmp_path))), capture_output=True, text=True, check=False
    )
    assert ended.returncode == 2
    assert "undeclared reference to 'objct'" in ended.stderr


def test_sigterm_ends_the_process_while_rules_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def ended(_: object) -> None:
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(preparation, "prepare_diagnosis", ended)
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        result = CliRunner().invoke(doctor, ["--watch", "--metrics-listen", "127.0.0.1:0"])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert (result.exit_code, result.output) == (0, "")
