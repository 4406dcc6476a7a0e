"""The server beside its webhook configurations: what it says of them, and that nothing waits for it."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rules_engine.evaluation import RuleSet
from rules_engine.model.cluster import Cluster
from rules_engine.webhooks.configuration import Service, Settings, configurations
from server.cluster.connection import Connection
from server.http.probes import rules as rules_page
from server.state import Compared, Served, State
from server.telemetry.drift_monitor import LOOK_SECONDS, SETTLE_SECONDS, Comparing
from server.telemetry.metrics import Metrics
from tests.support.apiserver import ApiServer, Body, Reset, Silence, Status, api_server
from tests.support.evaluation import GPU, MIG1, compiled, ladder, validation
from tests.support.observing import counted
from tests.support.operating import METRICS, fetched, metrics_url, rules_report, until, until_ended
from tests.support.server import started

PATHS = {
    endpoint: f"/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations/gpu-rules"
    for endpoint, kind in (("mutate", "mutating"), ("validate", "validating"))
}
SETTINGS = Settings(server=Service("gpu-rules", "gpu", 443), namespace="gpu")
FIRST = compiled(ladder(GPU))
SECOND = compiled(ladder(GPU, MIG1))


@pytest.fixture
def api() -> Iterator[ApiServer]:
    with api_server() as server:
        yield server


def configure(api: ApiServer, rule_set: RuleSet) -> None:
    """Have the configurations that are made for rules."""
    for path, made in zip(PATHS.values(), configurations(rule_set, SETTINGS), strict=True):
        api.single[path] = made


class Beside:
    """A server's state and what compares it, whose clock stands still."""

    def __init__(self, api: ApiServer, rule_set: RuleSet = FIRST) -> None:
        def host(configuration: Any) -> None:
            configuration.host = api.url

        self.now = 0.0
        self.state = State(rule_set, Cluster())
        self.comparing = Comparing(
            Connection(host), "gpu-rules", self.state, clock=lambda: self.now, random=lambda: 0.5
        )

    def adopt(self, rule_set: RuleSet) -> None:
        """Other rules come into force."""
        served = self.state.served
        assert served is not None
        self.state.served = Served(rule_set=rule_set, generation=served.generation + 1)
        self.comparing.look_soon()

    def look(self, after: float = 0.0) -> float:
        self.now += after
        return self.comparing.look()

    @property
    def found(self) -> dict[str, Compared]:
        return dict(self.state.webhooks or {})

    @property
    def read(self) -> dict[str, float]:
        return counted(Metrics(self.state), "gpu_rules_webhook_read")

    @property
    def drift(self) -> dict[str, float]:
        return counted(Metrics(self.state), "gpu_rules_webhook_drift")


def test_a_configuration_that_fits_is_said_nowhere_but_when_asked(
    api: ApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    configure(api, FIRST)
    beside = Beside(api)

    assert beside.look() == LOOK_SECONDS
    assert not caplog.records
    assert {name: found.differences for name, found in beside.found.items()} == {"mutate": (), "validate": ()}
    assert beside.read == {
        "{endpoint=mutate}": 1,
        "{endpoint=validate}": 1,
    }
    assert beside.drift == {"{endpoint=mutate}": 0, "{endpoint=validate}": 0}


def test_rules_that_changed_alone_are_warned_of_once_with_what_is_missed_and_what_mends_it(
    api: ApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    configure(api, FIRST)
    beside = Beside(api)
    beside.look()
    beside.adopt(SECOND)
    beside.look()
    beside.comparing.look_soon()
    beside.look()

    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.getMessage() == (
        "MutatingWebhookConfiguration gpu-rules: mutate.gpurules.io does not send pods that FallbackLadder/ladder must "
        f"be evaluated on, such as a pod in namespace default that requests {MIG1}, at CREATE; what mends it: "
        "gpu-rules webhook-config --rules FOLDER --name gpu-rules --namespace gpu | kubectl apply -f -"
    )
    assert record.members == {"endpoint": "/mutate", "generation": 2}  # type: ignore[attr-defined]
    assert beside.drift == {"{endpoint=mutate}": 1, "{endpoint=validate}": 0}
    _, page = rules_page(beside.state)
    assert page["webhooks"]["mutate"]["differences"][0] in record.getMessage()

    configure(api, SECOND)
    beside.look(LOOK_SECONDS)
    assert caplog.messages[1:] == ["MutatingWebhookConfiguration gpu-rules fits the rules again"]
    assert beside.drift == {"{endpoint=mutate}": 0, "{endpoint=validate}": 0}


def test_configurations_that_come_before_their_rules_are_no_news_until_the_rules_had_time_to_come(
    api: ApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    configure(api, FIRST)
    beside = Beside(api)
    beside.look()
    configure(api, SECOND)
    beside.look(LOOK_SECONDS)
    assert beside.drift["{endpoint=mutate}"] == 1, "it is there to be seen"
    assert not caplog.records
    beside.look(SETTLE_SECONDS)
    assert "sends pods that no rule applies to" in caplog.text
    beside.look(SETTLE_SECONDS)
    assert len(caplog.records) == 1


def test_a_configuration_that_is_not_there_is_drift_where_rules_need_it(
    api: ApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    beside = Beside(api)
    beside.look()
    beside.look(LOOK_SECONDS)

    (record,) = caplog.records
    assert "MutatingWebhookConfiguration gpu-rules: not found: /mutate is never called" in record.getMessage()
    assert beside.found["validate"].differences == ()
    assert beside.found["mutate"].problem is None


def test_what_may_not_be_read_is_said_once_with_the_right_that_it_takes(
    api: ApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    configure(api, FIRST)
    api.forbidden = set(PATHS.values())
    beside = Beside(api)
    for _ in range(3):
        assert 0 < beside.look() < LOOK_SECONDS
        beside.adopt(SECOND)

    (text,) = caplog.messages
    assert text.startswith(
        "MutatingWebhookConfiguration gpu-rules and ValidatingWebhookConfiguration gpu-rules cannot be compared with "
        "the rules: 403: "
    )
    assert text.endswith(
        "; it needs the right to get mutatingwebhookconfigurations and validatingwebhookconfigurations named gpu-rules"
    )
    assert beside.drift == {}, "nothing is known"
    assert beside.read == {
        "{endpoint=mutate}": 0,
        "{endpoint=validate}": 0,
    }
    assert "is forbidden" in beside.found["mutate"].problem  # type: ignore[operator]

    api.forbidden = set()
    beside.look()
    assert "does not send pods that FallbackLadder/ladder" in caplog.messages[1], "what the reload did not tell"


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (Reset(), "cannot be compared with the rules: "),
        (Status(500), "500: as the test wants it"),
        (Body(b"<html>"), "not JSON: "),
        (Body(b"[]"), "not a JSON object"),
    ],
)
def test_whatever_the_api_server_answers_what_was_found_stands_and_it_is_asked_again(
    api: ApiServer, caplog: pytest.LogCaptureFixture, fault: Any, said: str
) -> None:
    configure(api, SECOND)
    beside = Beside(api)
    beside.look()
    before = beside.found["mutate"]
    caplog.clear()
    api.fail(PATHS["mutate"], fault, fault)

    assert beside.look(LOOK_SECONDS) < LOOK_SECONDS
    beside.look()
    assert len(caplog.messages) == 1
    assert said in caplog.text
    found = beside.found["mutate"]
    assert found.problem
    assert (found.differences, found.at) == (before.differences, before.at)
    assert beside.look() == LOOK_SECONDS
    assert beside.found["mutate"].problem is None


def test_a_server_that_asks_for_time_gets_it(api: ApiServer) -> None:
    configure(api, FIRST)
    api.fail(PATHS["validate"], Status(429, headers={"Retry-After": "77"}))

    assert Beside(api).look() == 77


def test_before_there_are_rules_nothing_is_asked(api: ApiServer) -> None:
    beside = Beside(api)
    beside.state.served = None

    assert beside.look() == LOOK_SECONDS
    assert not api.requests


def test_an_error_of_ours_ends_nothing(
    api: ApiServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(api, FIRST)
    monkeypatch.setattr("server.telemetry.drift_monitor.derive", lambda _: 1 / 0)
    beside = Beside(api)
    beside.comparing.start()
    until(lambda: "unexpected error while the webhook configurations were compared" in caplog.text, "the trace")
    monkeypatch.undo()
    beside.comparing.look_soon()
    until(lambda: len(beside.found) == 2, "the next look")
    beside.comparing.stop()
    until_ended("comparing")


# The server as a process.

RULES = """\
apiVersion: gpurules.io/v1
kind: FallbackLadder
metadata: {name: ladder}
spec: {rungs: [{resource: nvidia.com/gpu}%s]}
"""


def differences(report: dict[str, Any]) -> list[str]:
    found: list[str] = ((report["webhooks"] or {}).get("mutate") or {}).get("differences") or []
    return found


def test_a_server_compares_at_its_start_and_after_a_reload(api: ApiServer, tmp_path: Path) -> None:
    configure(api, FIRST)
    rules = tmp_path / "rules.yaml"
    rules.write_text(RULES % "")
    arguments = ("--rules", rules, "--cluster", "kubeconfig", "--webhook-name", "gpu-rules", "--log-format", "json")
    with started(tmp_path, *arguments, *METRICS, KUBECONFIG=str(api.kubeconfig(tmp_path))) as running:
        until(lambda: "validate" in (rules_report(running)["webhooks"] or {}), "the first look")
        assert differences(rules_report(running)) == []
        rules.write_text(RULES % ", {resource: nvidia.com/mig-1g.10gb}")
        until(lambda: differences(rules_report(running)), "the difference")
        assert 'gpu_rules_webhook_drift{endpoint="mutate"} 1.0' in fetched(f"{metrics_url(running)}/metrics")[1]
        until(lambda: "what mends it" in running.logged(), "the warning")
        (line,) = [line for line in running.logged().splitlines() if "what mends it" in line]
        assert json.loads(line)["generation"] == 2


def test_an_api_server_that_never_answers_delays_neither_readiness_nor_reload_nor_the_end(
    api: ApiServer, tmp_path: Path
) -> None:
    api.fail(PATHS["mutate"], *[Silence()] * 10)
    rules = tmp_path / "rules.yaml"
    rules.write_text(RULES % "")
    arguments = ("--rules", rules, "--cluster", "kubeconfig", "--webhook-name", "gpu-rules")
    with started(tmp_path, *arguments, *METRICS, KUBECONFIG=str(api.kubeconfig(tmp_path))) as running:
        api.wait_for(lambda: api.lists(PATHS["mutate"]))
        until(lambda: running.send("GET", "/readyz").status == 200, "readiness")
        rules.write_text(RULES % ", {resource: nvidia.com/mig-1g.10gb}")
        until(lambda: rules_report(running)["generation"] == 2, "the reload")
        assert rules_report(running)["webhooks"] == {}
        assert running.stop(2) == 0


def test_a_name_without_an_api_server_is_refused(tmp_path: Path) -> None:
    with (
        pytest.raises(AssertionError, match="--webhook-name needs a live cluster or --tls-bootstrap"),
        started(tmp_path, "--webhook-name", "gpu-rules"),
    ):
        pass


def test_without_a_name_nothing_is_said(api: ApiServer, tmp_path: Path) -> None:
    with started(tmp_path, *METRICS) as running:
        assert rules_report(running)["webhooks"] is None


def test_other_endpoints_of_other_names_are_other_problems(api: ApiServer, caplog: pytest.LogCaptureFixture) -> None:
    rule_set = compiled(ladder(GPU), validation("true"))
    configure(api, rule_set)
    api.forbidden = {PATHS["validate"]}
    api.fail(PATHS["mutate"], Status(500))
    Beside(api, rule_set).look()

    assert [text.partition(" ")[0] for text in caplog.messages] == [
        "MutatingWebhookConfiguration",
        "ValidatingWebhookConfiguration",
    ]
