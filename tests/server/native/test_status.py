"""Status of `serve --native` at /readyz and /rules, in metrics and alerts, and rules that it refuses at start."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from server.http.probes import readiness_page, rules_page
from server.settings import Settings
from server.state import NativeStatus
from server.telemetry.metrics import Metrics
from tests.support.apiserver import api_server, kubeconfig
from tests.support.evaluation import cluster
from tests.support.failed_starts import failed_start
from tests.support.states import state_of

NOW = datetime(2026, 1, 2, tzinfo=UTC)
STATUS = NativeStatus(
    writer="pod_1",
    writes=True,
    active="a.1",
    wanted="a.1",
    offers_at=NOW - timedelta(seconds=7),
    exported=3,
    staying=1,
    problem=None,
)
SHOWN = {
    "writer": "pod_1", "writes": True, "active": "a.1", "wanted": "a.1", "offersAt": "2026-01-01T23:59:53Z",
    "exported": 3, "staying": 1, "problem": None,
}  # fmt: skip


def test_the_writer_and_the_age_of_offers_are_shown() -> None:
    state = state_of(cluster=cluster({}))
    assert "native" not in readiness_page(state)[1]
    assert rules_page(state)[1]["native"] is None
    state.native = STATUS
    assert readiness_page(state)[1] == {"status": "ok", "cluster": "synced", "native": SHOWN}
    assert rules_page(state)[1]["native"] == SHOWN
    state.native = replace(STATUS, problem="403: no", offers_at=None)
    code, page = readiness_page(state)
    assert (code, page["native"]["offersAt"]) == (200, None)
    assert page["warnings"] == ["policies or offers cannot be written: 403: no"]


def samples(status: NativeStatus | None) -> dict[str, Any]:
    state = state_of(cluster=cluster({}))
    state.native = status
    collected = Metrics(state, now=lambda: NOW).collect()
    found = {sample.name: sample.value for family in collected for sample in family.samples}
    return {name.removeprefix("gpu_rules_native_"): value for name, value in found.items() if "_native_" in name}


def test_metrics_and_alerts() -> None:
    assert samples(None) == {}
    assert samples(STATUS) == {"writer": 1, "active": 1, "problem": 0, "offers_age_seconds": 7}
    other = replace(STATUS, writes=False, wanted="b.1", offers_at=None, problem="403")
    assert samples(other) == {"writer": 0, "active": 0, "problem": 1}
    alerts = [
        alert["expr"]
        for group in yaml.safe_load(Path("deploy/prometheus-rules.yaml").read_text())["groups"]
        for alert in group["rules"]
    ]
    for name in ("active", "problem", "offers_age_seconds"):
        assert any(f"gpu_rules_native_{name}" in expression for expression in alerts)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (Settings(native=("ns", "x")), "--native needs a live cluster"),
        (Settings(native_only=True), "--native-only needs --native"),
    ],
)
def test_conflicts_of_options(settings: Settings, message: str) -> None:
    assert message in (settings.conflict() or "")


def test_a_server_does_not_start_with_rules_that_must_be_exported_but_cannot(tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text("""{apiVersion: gpurules.io/v1, kind: FallbackLadder, metadata: {name: a}, spec: {
        offered: Available, rungs: [{resource: a.b/c}, {resource: a.b/d}]}}""")
    line = ("--rules", rules, "--cluster", "kubeconfig", "--native", "ns/x", "--listen", "127.0.0.1:0")
    with api_server() as server:
        config = kubeconfig(tmp_path, server.url)
        text = failed_start(*line, "--native-only", KUBECONFIG=str(config))
    assert f"{rules}:2:9: FallbackLadder/a cannot be exported: offered: Available" in text
