"""Comparison of webhook configurations with the rules: its results and logs, and that nothing waits for it."""

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rules_engine.exports.configuration import build_configurations
from rules_engine.exports.policies import NativeObjects
from rules_engine.exports.settings import Service, Settings
from rules_engine.model.kubernetes.cluster import Cluster
from rules_engine.model.rules.rule import Match
from rules_engine.rules.evaluation import RuleSet
from rules_engine.rules.native.policy import translate_rules
from rules_engine.server.cluster.connection import Connection
from rules_engine.server.http.probes import rules_page
from rules_engine.server.state import ServedRules, WebhookComparison
from rules_engine.server.telemetry.drift_monitor import PERIOD_SECONDS, SETTLE_SECONDS, DriftMonitor
from rules_engine.server.telemetry.metrics import Metrics
from tests.support.apiserver import ApiServer, Body, Reset, Silence, Status
from tests.support.evaluation import GPU, MIG1, compiled, ladder, validation
from tests.support.loading import rule
from tests.support.operating import METRICS, fetched, metrics_url, rules_report, until, until_ended
from tests.support.server import started
from tests.support.states import state_of
from tests.support.telemetry import counted

PATHS = {
    endpoint: f"/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations/gpu-rules"
    for endpoint, kind in (("mutate", "mutating"), ("validate", "validating"))
}
SETTINGS = Settings(server=Service("gpu-rules", "gpu", 443), namespace="gpu")
FIRST = compiled(ladder(GPU))
SECOND = compiled(ladder(GPU, MIG1))


def configure(api: ApiServer, rule_set: RuleSet) -> None:
    """Put the configurations derived from a rule set into the API server."""
    for path, made in zip(PATHS.values(), build_configurations(rule_set, SETTINGS), strict=True):
        api.single[path] = made


class Monitored:
    """A server's state and its drift monitor, whose clock stands still."""

    def __init__(self, api: ApiServer, rule_set: RuleSet = FIRST, *, audit: bool = False) -> None:
        def host(configuration: Any) -> None:
            configuration.host = api.url

        self.now = 0.0
        self.state = state_of(rule_set, Cluster())
        self.state.audit, self.state.namespaces = audit, ("ml",) if audit else ()
        self.monitor = DriftMonitor(
            Connection(host), "gpu-rules", self.state, clock=lambda: self.now, random=lambda: 0.5
        )

    def adopt(self, rule_set: RuleSet) -> None:
        """Put other active rules."""
        served = self.state.served
        self.state.served = ServedRules(rule_set=rule_set, generation=served.generation + 1)
        self.monitor.compare_soon()

    def compare(self, after: float = 0.0) -> float:
        self.now += after
        return self.monitor.compare()

    @property
    def found(self) -> dict[str, WebhookComparison]:
        return dict(self.state.webhooks or {})

    @property
    def read(self) -> dict[str, float]:
        return counted(Metrics(self.state), "gpu_rules_webhook_read")

    @property
    def drift(self) -> dict[str, float]:
        return counted(Metrics(self.state), "gpu_rules_webhook_drift")


def test_a_configuration_without_differences_is_not_logged(api: ApiServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    configure(api, FIRST)
    monitored = Monitored(api)

    assert monitored.compare() == PERIOD_SECONDS
    assert not caplog.records
    assert {name: comparison.differences for name, comparison in monitored.found.items()} == {
        "mutate": (),
        "validate": (),
    }
    assert monitored.read == {"{endpoint=mutate}": 1, "{endpoint=validate}": 1}
    assert monitored.drift == {"{endpoint=mutate}": 0, "{endpoint=validate}": 0}


def test_a_server_in_audit_expects_webhooks_of_audit(api: ApiServer) -> None:
    rule_set = compiled(ladder(GPU), validation("true", match=Match(resources=(MIG1,))))
    monitored = Monitored(api, rule_set, audit=True)
    narrowed = replace(SETTINGS, audit=True, namespaces=("ml",))
    for path, made in zip(PATHS.values(), build_configurations(rule_set, narrowed), strict=True):
        api.single[path] = made
    monitored.compare()
    assert monitored.drift == {"{endpoint=mutate}": 0, "{endpoint=validate}": 0}

    configure(api, rule_set)
    monitored.compare()
    assert monitored.drift == {"{endpoint=mutate}": 1, "{endpoint=validate}": 1}
    assert " --mode Audit --namespaces ml |" in str(monitored.found["mutate"].fix_command)


def test_rules_that_changed_alone_are_logged_once_with_the_fix(
    api: ApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    configure(api, FIRST)
    monitored = Monitored(api)
    monitored.compare()
    monitored.adopt(SECOND)
    monitored.compare()
    monitored.monitor.compare_soon()
    monitored.compare()

    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.getMessage() == (
        "MutatingWebhookConfiguration gpu-rules: mutate.gpurules.io has another match condition "
        "requests-a-resource-of-a-rule than these rules need: pods of a rule may not be sent; fix: "
        "gpu-rules webhook-config --rules FOLDER --name gpu-rules --namespace gpu | kubectl apply -f -, "
        "with the options of its last use, such as --url and --failure-policy"
    )
    assert record.members == {"endpoint": "/mutate", "generation": 2}  # type: ignore[attr-defined]
    assert monitored.drift == {"{endpoint=mutate}": 1, "{endpoint=validate}": 0}
    _, page = rules_page(monitored.state)
    assert page["webhooks"]["mutate"]["differences"][0] in record.getMessage()

    configure(api, SECOND)
    monitored.compare(PERIOD_SECONDS)
    assert caplog.messages[1:] == ["MutatingWebhookConfiguration gpu-rules agrees with the rules again"]
    assert monitored.drift == {"{endpoint=mutate}": 0, "{endpoint=validate}": 0}


def test_configurations_newer_than_the_rules_are_logged_late(api: ApiServer, caplog: pytest.LogCaptureFixture) -> None:
    configure(api, FIRST)
    monitored = Monitored(api)
    monitored.compare()
    configure(api, SECOND)
    monitored.compare(PERIOD_SECONDS)
    assert monitored.drift["{endpoint=mutate}"] == 1, "the drift is a metric at once"
    assert not caplog.records
    monitored.compare(SETTLE_SECONDS)
    assert "has another match condition" in caplog.text
    monitored.compare(SETTLE_SECONDS)
    assert len(caplog.records) == 1


def test_a_missing_configuration_is_drift_if_rules_need_it(api: ApiServer, caplog: pytest.LogCaptureFixture) -> None:
    monitored = Monitored(api)
    monitored.compare()
    monitored.compare(PERIOD_SECONDS)

    (record,) = caplog.records
    assert "MutatingWebhookConfiguration gpu-rules: not found: /mutate is never called" in record.getMessage()
    assert monitored.found["validate"].differences == ()
    assert monitored.found["mutate"].problem is None


def test_a_forbidden_read_is_logged_once_with_its_permission(api: ApiServer, caplog: pytest.LogCaptureFixture) -> None:
    configure(api, FIRST)
    api.forbidden = set(PATHS.values())
    monitored = Monitored(api)
    for _ in range(3):
        assert 0 < monitored.compare() < PERIOD_SECONDS
        monitored.adopt(SECOND)

    (text,) = caplog.messages
    assert text.startswith(
        "MutatingWebhookConfiguration gpu-rules and ValidatingWebhookConfiguration gpu-rules cannot be compared with "
        "the rules: 403: "
    )
    assert text.endswith(
        "; the server needs the permission to get mutatingwebhookconfigurations and validatingwebhookconfigurations "
        "named gpu-rules"
    )
    assert monitored.drift == {}, "no result yet"
    assert monitored.read == {"{endpoint=mutate}": 0, "{endpoint=validate}": 0}
    assert "is forbidden" in monitored.found["mutate"].problem  # type: ignore[operator]

    api.forbidden = set()
    monitored.compare()
    assert "has another match condition" in caplog.messages[1], "a difference that the reload could not find"


@pytest.mark.parametrize(
    ("fault", "problem"),
    [
        (Reset(), "cannot be compared with the rules: "),
        (Status(500), "500: as the test wants it"),
        (Body(b"<html>"), "not JSON: "),
        (Body(b"[]"), "not a JSON object"),
    ],
)
def test_a_failed_read_keeps_the_last_result_and_is_retried(
    api: ApiServer, caplog: pytest.LogCaptureFixture, fault: Any, problem: str
) -> None:
    configure(api, SECOND)
    monitored = Monitored(api)
    monitored.compare()
    before = monitored.found["mutate"]
    caplog.clear()
    api.fail(PATHS["mutate"], fault, fault)

    assert monitored.compare(PERIOD_SECONDS) < PERIOD_SECONDS
    monitored.compare()
    assert len(caplog.messages) == 1
    assert problem in caplog.text
    comparison = monitored.found["mutate"]
    assert comparison.problem
    assert (comparison.differences, comparison.at) == (before.differences, before.at)
    assert monitored.compare() == PERIOD_SECONDS
    assert monitored.found["mutate"].problem is None


def test_retry_after_is_honored(api: ApiServer) -> None:
    configure(api, FIRST)
    api.fail(PATHS["validate"], Status(429, headers={"Retry-After": "7"}))

    assert Monitored(api).compare() == 7


def test_an_unexpected_error_does_not_end_the_monitor(
    api: ApiServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(api, FIRST)
    monkeypatch.setattr("rules_engine.server.telemetry.drift_monitor.derive_calls", lambda _: 1 / 0)
    monitored = Monitored(api)
    monitored.monitor.start()
    until(lambda: "unexpected error while the webhook configurations were compared" in caplog.text, "the trace")
    monkeypatch.undo()
    monitored.monitor.compare_soon()
    until(lambda: len(monitored.found) == 2, "the next comparison")
    monitored.monitor.stop()
    until_ended("drift-monitor")


# The server as a process.

RULES = rule("FallbackLadder", "{rungs: [{resource: nvidia.com/gpu}%s]}")


def differences(report: dict[str, Any]) -> list[str]:
    comparison: list[str] = ((report["webhooks"] or {}).get("mutate") or {}).get("differences") or []
    return comparison


def test_configurations_are_compared_at_start_and_after_reload(api: ApiServer, tmp_path: Path) -> None:
    configure(api, FIRST)
    rules = tmp_path / "rules.yaml"
    rules.write_text(RULES % "")
    arguments = ("--rules", rules, "--cluster", "kubeconfig", "--webhook-name", "gpu-rules", "--log-format", "json")
    with started(tmp_path, *arguments, *METRICS, KUBECONFIG=str(api.kubeconfig(tmp_path))) as running:
        until(lambda: "validate" in (rules_report(running)["webhooks"] or {}), "the first comparison")
        assert differences(rules_report(running)) == []
        rules.write_text(RULES % ", {resource: nvidia.com/mig-1g.10gb}")
        until(lambda: differences(rules_report(running)), "the difference")
        assert 'gpu_rules_webhook_drift{endpoint="mutate"} 1.0' in fetched(f"{metrics_url(running)}/metrics")[1]
        until(lambda: "; fix: " in running.logged(), "the warning")
        (line,) = [line for line in running.logged().splitlines() if "; fix: " in line]
        assert json.loads(line)["generation"] == 2


def test_a_silent_api_server_delays_no_readiness_reload_or_end(api: ApiServer, tmp_path: Path) -> None:
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


def test_without_a_name_nothing_is_compared(api: ApiServer, tmp_path: Path) -> None:
    with started(tmp_path, *METRICS) as running:
        assert rules_report(running)["webhooks"] is None


def test_failures_with_different_causes_are_logged_separately(api: ApiServer, caplog: pytest.LogCaptureFixture) -> None:
    rule_set = compiled(ladder(GPU), validation("true"))
    configure(api, rule_set)
    api.forbidden = {PATHS["validate"]}
    api.fail(PATHS["mutate"], Status(500))
    Monitored(api, rule_set).compare()

    assert [text.partition(" ")[0] for text in caplog.messages] == [
        "MutatingWebhookConfiguration",
        "ValidatingWebhookConfiguration",
    ]


def test_match_conditions_of_the_operator_are_logged_once(api: ApiServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    configure(api, FIRST)
    (webhook,) = api.single[PATHS["mutate"]]["webhooks"]
    webhook["matchConditions"].append({"name": "not-ours", "expression": "true"})
    monitored = Monitored(api)
    monitored.compare()
    monitored.compare(PERIOD_SECONDS)
    assert caplog.messages == [
        "MutatingWebhookConfiguration gpu-rules has match conditions of its own, which may keep pods away: not-ours"
    ]
    assert monitored.drift == {"{endpoint=mutate}": 0, "{endpoint=validate}": 0}


def test_policies_are_compared_where_the_configuration_leaves_their_rules_out(api: ApiServer) -> None:
    native = translate_rules(FIRST)
    documents = [*NativeObjects(native, "", Settings()).policies()]
    for path, made in zip(
        PATHS.values(), build_configurations(native.remaining(FIRST), replace(SETTINGS, native=True)), strict=True
    ):
        api.single[path] = made
    monitored = Monitored(api)
    monitored.compare()
    assert monitored.found["mutate"].differences == (
        "MutatingAdmissionPolicy gpu-rules: not found",
        "MutatingAdmissionPolicyBinding gpu-rules: not found",
    )

    api.single["/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies/gpu-rules"] = documents[1]
    api.single["/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings/gpu-rules"] = documents[2]
    monitored.compare()
    assert not monitored.found["mutate"].differences
