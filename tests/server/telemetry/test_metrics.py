"""Metrics of decisions and of the state, with bounded labels."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from platform import python_version
from threading import Thread
from typing import Any

import promql_parser
import pytest
import yaml

from rules_engine.model.kubernetes.cluster import UNKNOWN_CLUSTER, Cluster, Freshness
from rules_engine.model.rules.decision import ALLOWED, CHANGED, DENIED, INVALID, Action
from rules_engine.model.rules.finding import Certainty, FindingSeverity
from rules_engine.model.rules.rule import SKIP_ANNOTATION, FailurePolicy, Mode, Rule
from rules_engine.questions.doctor.never_created import OWN_WEBHOOKS
from rules_engine.rules.validation.value import ValidationAction
from rules_engine.server.cluster.source import FixedCluster, Health
from rules_engine.server.http.review import StatusReason
from rules_engine.server.state import ListenerCounts, Reload, ServedRules
from rules_engine.server.telemetry.families import Family, MetricType
from rules_engine.server.telemetry.finding_metrics import FAMILIES as FINDING_FAMILIES
from rules_engine.server.telemetry.metrics import FAMILIES, Metrics
from rules_engine.server.telemetry.observers import Telemetry
from tests.support.evaluation import asks, cluster, compiled, container, injection, ladder, pod, rung, validation
from tests.support.server import ROOT, application, call, encoded, review
from tests.support.states import state_of
from tests.support.telemetry import admission_record, counted, series
from tools.metric_reference import exposed_name

GPU = "nvidia.com/gpu"
MIG = "nvidia.com/mig-2g.20gb"
FALLS = ladder(MIG, rung(GPU, assume=True))
ENFORCED = "{mode=enforce}"

OUTCOMES = {ALLOWED, CHANGED, DENIED, INVALID, *(reason.text for reason in StatusReason)}
"""Values of the label `outcome`."""


def metrics_after(path: str, object: Any, *rules: Rule, on: Cluster = cluster(), **request: Any) -> Metrics:  # noqa: B008 - immutable
    """Return metrics that have counted one request."""
    state = state_of(compiled(*rules), on)
    metrics = Metrics(state)
    metrics(admission_record(path, object, state=state, **request))
    return metrics


def test_a_fallback_is_counted_by_requested_and_given_resource() -> None:
    metrics = metrics_after("/mutate", asks({MIG: 1}), FALLS)
    assert counted(metrics, "gpu_rules_ladder_fallbacks_total") == {
        f"{{from={MIG}}}{ENFORCED}{{rule=FallbackLadder/ladder}}{{to={GPU}}}": 1
    }
    assert counted(metrics, "gpu_rules_rule_steps_total") == {
        f"{{action=change}}{ENFORCED}{{rule=FallbackLadder/ladder}}": 1
    }
    assert counted(metrics, "gpu_rules_requests_total") == {"{dry_run=false}{endpoint=mutate}{outcome=Changed}": 1}


def test_audit_mode_is_counted_separately_and_changes_nothing() -> None:
    metrics = metrics_after("/mutate", asks({MIG: 1}), ladder(MIG, rung(GPU, assume=True), mode=Mode.AUDIT))
    assert list(counted(metrics, "gpu_rules_ladder_fallbacks_total")) == [
        f"{{from={MIG}}}{{mode=audit}}{{rule=FallbackLadder/ladder}}{{to={GPU}}}"
    ]
    assert counted(metrics, "gpu_rules_requests_total") == {"{dry_run=false}{endpoint=mutate}{outcome=Allowed}": 1}


def test_an_injection_is_counted_once_for_each_resource() -> None:
    two = pod(container("a", {GPU: 1}), container("b", {GPU: 1}))
    metrics = metrics_after("/mutate", two, injection({"cpu": "4", "memory": "8Gi"}, gpu_type=None))
    assert counted(metrics, "gpu_rules_injections_total") == {
        f"{ENFORCED}{{resource={name}}}{{rule=ResourceInjection/injection}}": 1 for name in ("cpu", "memory")
    }


def test_denials_errors_and_opt_outs_are_counted_by_rule() -> None:
    metrics = metrics_after("/validate", pod(), validation("false"))
    assert counted(metrics, "gpu_rules_denials_total") == {
        f"{ENFORCED}{{reason=invalid}}{{rule=Validation/validation}}": 1
    }
    assert list(counted(metrics, "gpu_rules_requests_total")) == ["{dry_run=false}{endpoint=validate}{outcome=Denied}"]

    broken = validation("1 / 0 == 1", failure_policy=FailurePolicy.IGNORE)
    metrics = metrics_after("/validate", pod(), broken)
    assert counted(metrics, "gpu_rules_evaluation_errors_total") == {
        f"{{action=ignore}}{ENFORCED}{{rule=Validation/validation}}": 1
    }
    assert counted(metrics, "gpu_rules_denials_total") == {}

    metrics = metrics_after("/mutate", asks({MIG: 1}, annotations={SKIP_ANNOTATION: "true"}), FALLS)
    assert counted(metrics, "gpu_rules_opt_outs_total") == {"{rule=FallbackLadder/ladder}": 1}
    assert counted(metrics, "gpu_rules_rule_steps_total") == {}

    metrics = metrics_after("/mutate", asks({MIG: 1}), FALLS, on=UNKNOWN_CLUSTER)
    assert counted(metrics, "gpu_rules_cluster_unknown_total") == {f"{ENFORCED}{{rule=FallbackLadder/ladder}}": 1}
    assert counted(metrics, "gpu_rules_cluster_fresh") == {"": 0}


def test_actions_that_only_warn_or_record_are_no_denials() -> None:
    actions = frozenset({ValidationAction.WARN})
    metrics = metrics_after("/validate", pod(), validation("false", validation_actions=actions))
    assert counted(metrics, "gpu_rules_denials_total") == {}
    assert list(counted(metrics, "gpu_rules_rule_steps_total")) == [
        f"{{action=warn}}{ENFORCED}{{rule=Validation/validation}}"
    ]


@pytest.mark.parametrize(
    ("body", "outcome"),
    [
        (b"{", "BadRequest"),
        (encoded(review({"spec": {"containers": "none"}})), "Invalid"),
        (encoded(review()), "Allowed"),
    ],
)
def test_requests_are_counted_by_outcome(body: bytes, outcome: str) -> None:
    state = state_of(compiled(FALLS), cluster())
    metrics = Metrics(state)
    metrics(admission_record("/mutate", body, state=state))
    assert counted(metrics, "gpu_rules_requests_total") == {
        f"{{dry_run=false}}{{endpoint=mutate}}{{outcome={outcome}}}": 1
    }
    assert outcome in OUTCOMES


def test_a_dry_run_is_marked() -> None:
    metrics = metrics_after("/mutate", asks({GPU: 1}), FALLS, dryRun=True)
    assert list(counted(metrics, "gpu_rules_requests_total")) == ["{dry_run=true}{endpoint=mutate}{outcome=Allowed}"]


def test_the_histogram_counts_every_request_once_cumulatively() -> None:
    state = state_of(compiled(FALLS), cluster())
    metrics = Metrics(state)
    for seconds in (0.0004, 0.0005, 0.3, 60.0):
        record = admission_record("/mutate", pod(), state=state)
        record.seconds = seconds
        metrics(record)
    metrics(admission_record("/validate", pod(), state=state))
    samples = series(metrics)
    name = "gpu_rules_request_seconds"
    buckets = [value for key, value in samples.items() if key.startswith(f"{name}_bucket{{endpoint=mutate}}")]
    assert buckets == sorted(buckets)
    assert samples[f"{name}_bucket{{endpoint=mutate}}{{le=0.0005}}"] == 2  # bounds are inclusive
    assert samples[f"{name}_bucket{{endpoint=mutate}}{{le=0.5}}"] == 3
    assert samples[f"{name}_bucket{{endpoint=mutate}}{{le=+Inf}}"] == 4
    assert samples[f"{name}_count{{endpoint=mutate}}"] == 4
    assert samples[f"{name}_count{{endpoint=validate}}"] == 1
    assert samples[f"{name}_sum{{endpoint=mutate}}"] == pytest.approx(60.3009)


def test_nothing_is_lost_between_threads() -> None:
    state = state_of(compiled(FALLS), cluster())
    metrics = Metrics(state)
    record = admission_record("/mutate", asks({MIG: 1}), state=state)

    def count() -> None:
        for _ in range(500):
            metrics(record)

    threads = [Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert list(counted(metrics, "gpu_rules_ladder_fallbacks_total").values()) == [2000]
    assert series(metrics)["gpu_rules_request_seconds_count{endpoint=mutate}"] == 2000


def test_series_of_former_rules_are_deleted() -> None:
    state = state_of(compiled(FALLS), cluster())
    metrics = Metrics(state)
    for _ in range(2):
        metrics(admission_record("/mutate", asks({MIG: 1}), state=state))
    assert counted(metrics, "gpu_rules_ladder_fallbacks_total")
    state.served = ServedRules(rule_set=compiled(ladder(MIG, GPU, name="other")), generation=2, digest="new")
    assert counted(metrics, "gpu_rules_rules_info") == {"{digest=new}": 1}
    assert counted(metrics, "gpu_rules_ladder_fallbacks_total") == {}
    assert counted(metrics, "gpu_rules_rule_steps_total") == {}
    assert counted(metrics, "gpu_rules_requests_total")
    assert counted(metrics, "gpu_rules_rules_generation") == {"": 2}


NODES = Health(name="nodes", synced=True, contact=90.0, failure=None, counts={"lists": 2, "gone": 1})


class Live(FixedCluster):
    """Cluster with collections, one of which was never read."""

    health = (NODES, replace(NODES, name="pods", synced=False, counts={}))
    reservations = 3


class Listening:
    """Listener with connections, one of which is receiving."""

    name = "admission"
    counts = ListenerCounts(
        open_connections=3,
        held_bytes=700,
        waiting=5,
        exceeded={"idle-time": 4, "body-bytes": 0},
        handshakes_failed={"not-tls": 2},
    )


def test_gauges_are_read_from_the_state_on_each_scrape() -> None:
    at = datetime(2026, 1, 2, tzinfo=UTC)
    served = ServedRules(rule_set=compiled(FALLS), generation=7, digest="abc", listed=(FALLS,), since=at, kept=True)
    state = state_of(served, cluster=Live(cluster()))
    state.certificate_not_after = at
    state.last_reload = Reload(at=at, refused=("rules.yaml:1:1: error [a]",))
    state.reloads_refused, state.certificates_refused = 2, 1
    state.listeners = (Listening(),)
    samples = series(Metrics(state, clock=lambda: 100.0, now=lambda: at))
    expected = {
        f"build_info{{python={python_version()}}}{{version={version('gpu-rules')}}}": 1,
        "ready": 1,
        "requests_in_flight": 5,
        "http_connections{listener=admission}": 3,
        "http_held_bytes{listener=admission}": 700,
        "http_limits_exceeded_total{limit=idle-time}{listener=admission}": 4,
        "http_limits_exceeded_total{limit=body-bytes}{listener=admission}": 0,
        "http_handshakes_failed_total{listener=admission}{reason=not-tls}": 2,
        "rules{kind=FallbackLadder}": 1,
        "rules_info{digest=abc}": 1,
        "rules_generation": 7,
        "rules_kept": 1,
        "rules_since_timestamp_seconds": at.timestamp(),
        "rules_last_reload_successful": 0,
        "rules_last_reload_timestamp_seconds": at.timestamp(),
        "rules_reloads_refused_total": 2,
        "cluster_fresh": 1,
        "cluster_synced{collection=nodes}": 1,
        "cluster_synced{collection=pods}": 0,
        "cluster_age_seconds{collection=nodes}": 10,
        "cluster_reads_total{collection=nodes}{what=lists}": 2,
        "cluster_reads_total{collection=nodes}{what=gone}": 1,
        "cluster_reservations": 3,
        "cluster_overpromises": 0,
        "certificate_expiry_timestamp_seconds": at.timestamp(),
        "certificates_refused_total": 1,
    }
    assert {
        key.removeprefix("gpu_rules_"): value for key, value in samples.items() if key.startswith("gpu_rules_")
    } == expected


@pytest.mark.parametrize("freshness", Freshness)
def test_only_a_synced_view_is_fresh(freshness: Freshness) -> None:
    state = state_of(compiled(FALLS), Cluster(freshness=freshness))
    assert counted(Metrics(state), "gpu_rules_cluster_fresh") == {"": freshness is Freshness.SYNCED}


def test_metrics_exist_before_the_cluster_is_read() -> None:
    samples = series(Metrics(state_of()))
    assert samples["gpu_rules_ready"] == 0
    assert samples["gpu_rules_cluster_fresh"] == 0


def test_metrics_of_one_server_know_nothing_of_another() -> None:
    one = metrics_after("/mutate", asks({MIG: 1}), FALLS)
    assert counted(one, "gpu_rules_requests_total")
    assert counted(Metrics(state_of()), "gpu_rules_requests_total") == {}


def test_an_observer_that_fails_is_logged_and_changes_no_answer(caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: Any) -> None:
        raise RuntimeError("of the observer")

    seen: list[Any] = []
    app = application(state_of(compiled(FALLS), cluster()), observers=[fail, seen.append])
    answer = call(app, "/mutate", encoded(review(asks({MIG: 1}))))
    assert answer.patch
    assert len(seen) == 1
    assert "of the observer" in caplog.text


def test_enabled_telemetry_observes_and_is_counted(tmp_path: Path) -> None:
    state = state_of(compiled(FALLS), cluster())
    telemetry = Telemetry(state, tmp_path / "log", None)
    telemetry.start()
    record = admission_record("/mutate", asks({MIG: 1}), state=state)
    for observe in telemetry.observers:
        observe(record)
    telemetry.stop()
    samples = series(telemetry.metrics)
    assert samples["gpu_rules_decision_log_lines_total"] == 1
    assert samples["gpu_rules_decision_log_dropped_total"] == 0
    assert "gpu_rules_events_total" not in samples


# Dashboard, alerts and document name existing metrics.


BY_NAME = {
    exposed_name(family): family for family in (*FAMILIES, *FINDING_FAMILIES) if family.kind is not MetricType.HISTOGRAM
}
FAIL_OPEN = Family(
    name="apiserver_admission_webhook_fail_open_count",
    kind=MetricType.GAUGE,
    help="The API server's.",
    labels=("name", "type"),
)
"""Kubernetes, staging/src/k8s.io/apiserver/pkg/admission/metrics/metrics.go; a counter in spite of its name."""

BY_NAME |= {FAIL_OPEN.name: FAIL_OPEN}
BY_NAME |= {
    f"{family.name}{suffix}": family
    for family in FAMILIES
    if family.kind is MetricType.HISTOGRAM
    for suffix in ("_bucket", "_sum", "_count")
}
ADDED = {"pod", "namespace", "le"}
"""Labels that Prometheus adds, and that of a histogram's buckets."""

VALUES = {
    "outcome": OUTCOMES,
    "mode": {"audit", "enforce"},
    "dry_run": {"true", "false"},
    "endpoint": {"mutate", "validate"},
    "action": {action.value for action in Action},
    "name": OWN_WEBHOOKS,
    "severity": {*FindingSeverity},
    "certainty": {*Certainty},
}


def dashboard() -> Iterator[tuple[str, str]]:
    for panel in json.loads((ROOT / "deploy/grafana-dashboard.json").read_text())["panels"]:
        for target in panel["targets"]:
            yield target["expr"], target["legendFormat"]


def alerts() -> list[dict[str, Any]]:
    groups = yaml.safe_load((ROOT / "deploy/prometheus-rules.yaml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def test_overpromises_have_a_metric_and_an_alert() -> None:
    for expressions in ([expression for expression, _ in dashboard()], [alert["expr"] for alert in alerts()]):
        assert any("gpu_rules_cluster_overpromises" in expression for expression in expressions)


def selected(node: Any) -> Iterator[str]:
    """Yield the names of all series that a parsed expression selects."""
    if isinstance(node, promql_parser.VectorSelector):
        yield node.name or ""
    for member in ("expr", "lhs", "rhs", "param", "args", "vector_selector"):
        child = getattr(node, member, None)
        for part in child if isinstance(child, list) else [child]:
            if part is not None:
                yield from selected(part)


def families(expression: str) -> list[Family]:
    """Return the metrics of an expression. Raises KeyError for an unknown name, ValueError for invalid PromQL."""
    names = list(selected(promql_parser.parse(expression.replace("$__rate_interval", "5m"))))
    assert names, expression
    process = set(re.findall(r"^process_\w+", Metrics(state_of()).exposition()[0].decode(), re.MULTILINE))
    return [BY_NAME[name] for name in names if name not in process]


def wrong_labels(expression: str, template: str = "") -> set[str]:
    """Return labels that an expression or its template uses but its metrics lack."""
    labels = ADDED.union(*(family.labels for family in families(expression)))
    grouped = {name.strip() for group in re.findall(r"\bby \(([^)]*)\)", expression) for name in group.split(",")}
    matchers = re.findall(r'(\w+)\s*(?:=~|!~|!=|=)\s*"([^"]*)"', expression)
    for name, value in matchers:
        assert set(value.split("|")) <= VALUES[name], (name, value)
    braces = set(re.findall(r"\{\{\s*(?:\$labels\.)?(\w+)\s*\}\}", template))
    return (grouped | {name for name, _ in matchers} | braces) - labels


@pytest.mark.parametrize(("expression", "legend"), list(dashboard()))
def test_the_dashboard_names_metrics_and_labels_that_exist(expression: str, legend: str) -> None:
    assert wrong_labels(expression, legend) == set()
    grouped = {name.strip() for group in re.findall(r"\bby \(([^)]*)\)", expression) for name in group.split(",")}
    legend_labels = set(re.findall(r"\{\{(\w+)\}\}", legend))
    assert not grouped or legend_labels <= grouped, "the legend uses labels that were summed away"


@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: alert["alert"])
def test_alerts_name_metrics_and_labels_that_exist(alert: dict[str, Any]) -> None:
    text = " ".join(alert["annotations"].values())
    assert wrong_labels(alert["expr"], text) == set()
    assert alert["labels"]["severity"] in ("critical", "warning")
    for name in re.findall(r"gpu_rules_\w+", text):
        assert name in BY_NAME


@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: alert["alert"])
def test_alerts_count_the_first_event_of_a_series(alert: dict[str, Any]) -> None:
    """A series that begins at 1 has not increased, so alerts also match new series."""
    expression = " ".join(alert["expr"].split())
    for name, matchers in re.findall(r"increase\((\w+)(\{.*?\})?", expression):
        series = f"{name}{matchers}"
        assert not BY_NAME[name].labels or f"(({series} unless {series} offset 15m) or increase(" in expression


@pytest.mark.parametrize(
    "expression",
    [
        "sum(rate(gpu_rules_request_total[5m]))",
        "gpu_rules_requests",
        "gpu_rules_ready == 1 and other_ready > 0",
        "max by (pod) (process_resident_bytes)",
        "gpu_rules_ready / scalar(sum(missing_total offset 5m))",
    ],
)
def test_an_unknown_metric_is_detected(expression: str) -> None:
    with pytest.raises(KeyError):
        families(expression)


@pytest.mark.parametrize("expression", ["rate(gpu_rules_ready)", "sum(gpu_rules_ready", "gpu_rules_ready by x"])
def test_invalid_promql_is_detected(expression: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        families(expression)


def test_an_unknown_label_is_detected() -> None:
    assert wrong_labels("sum by (node) (gpu_rules_ready)") == {"node"}
    assert wrong_labels('sum(gpu_rules_requests_total{mode="audit"})') == {"mode"}
    assert wrong_labels("gpu_rules_ready", "{{rule}}") == {"rule"}


def test_alerts_cover_missing_replicas_and_pods_admitted_unseen() -> None:
    expressions = [" ".join(alert["expr"].split()) for alert in alerts()]
    assert "absent(gpu_rules_ready)" in expressions
    (fail_open,) = (text for text in expressions if FAIL_OPEN.name in text)
    names = re.findall(r'name=~"([^"]*)"', fail_open)
    assert [set(name.split("|")) for name in names] == [VALUES["name"]] * 3


def test_an_expired_certificate_is_not_ready() -> None:
    at = datetime(2026, 1, 2, tzinfo=UTC)
    state = state_of(compiled(FALLS), cluster())
    state.certificate_not_after = at
    for seconds, ready in ((-1, 1), (1, 0)):
        metrics = Metrics(state, now=lambda seconds=seconds: at + timedelta(seconds=seconds))  # type: ignore[misc]
        assert series(metrics)["gpu_rules_ready"] == ready


def test_build_info_has_the_versions_of_gpu_rules_and_python() -> None:
    labels = f"{{python={python_version()}}}{{version={version('gpu-rules')}}}"
    assert counted(Metrics(state_of()), "gpu_rules_build_info") == {labels: 1}


def test_every_metric_is_in_the_exposition() -> None:
    content = Metrics(state_of()).exposition()[0].decode()
    for family in FAMILIES:
        assert f"# HELP {exposed_name(family)} {family.help}\n" in content
