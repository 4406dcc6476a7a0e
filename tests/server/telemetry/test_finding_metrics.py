"""Metrics of findings, with bounded labels."""

import re
from dataclasses import replace
from datetime import UTC, datetime

from msgspec import structs

from rules_engine.model.kubernetes.names import ObjectName
from rules_engine.model.rules.finding import Certainty, FindingSeverity, NotEvaluated
from rules_engine.questions.doctor.values import UnreadKind
from rules_engine.server.cluster.connection import Connection
from rules_engine.server.commands.doctor.watch import count_findings
from rules_engine.server.telemetry.events import Events
from rules_engine.server.telemetry.finding_metrics import FAMILIES, FindingMetrics, WatchState
from tests.support.reports import empty_report, group, pod_name, reported_finding, whole_report
from tests.support.telemetry import series
from tools.metric_reference import DOCUMENT, exposed_name


def values(state: WatchState, events: Events | None = None) -> dict[str, float]:
    """Return the samples of gpu-rules without those of the build and the process."""
    samples = series(FindingMetrics(lambda: state, events))
    return {
        name.removeprefix("gpu_rules_"): value
        for name, value in samples.items()
        if name.startswith("gpu_rules_") and not name.startswith("gpu_rules_build_info")
    }


def test_findings_are_counted_in_objects_by_reason() -> None:
    nodes = [ObjectName("Node", f"worker-{number}") for number in range(3)]
    possible = reported_finding(certainty=Certainty.POSSIBLE, severity=FindingSeverity.INFO)
    groups = (
        group(reported_finding(), nodes),
        group(reported_finding(message="x", object=pod_name("p"))),
        structs.replace(group(possible), effects=(structs.replace(possible, reason="NoDevices"),)),
    )
    last = count_findings(empty_report(findings=groups), 1.5)

    samples = values(WatchState(last=last))

    assert {name: value for name, value in samples.items() if name.startswith("doctor_findings")} == {
        "doctor_findings{certainty=Certain}{reason=MIGLayoutNotApplied}{severity=Error}": 4,
        "doctor_findings{certainty=Possible}{reason=MIGLayoutNotApplied}{severity=Info}": 1,
        "doctor_findings{certainty=Possible}{reason=NoDevices}{severity=Info}": 1,
    }
    assert samples["doctor_last_success_duration_seconds"] == 1.5


def test_a_diagnosis_has_its_time_its_objects_and_its_gaps() -> None:
    gap = NotEvaluated(diagnostic="Diagnostic/a", why="too expensive", objects=9)
    jobs = UnreadKind(objects="jobs", unknown="")
    report = whole_report(findings=(), not_read=(jobs,), not_evaluated=(gap, gap))
    last = replace(count_findings(report, 0.0), at=datetime(2026, 11, 23, tzinfo=UTC), objects={"nodes": 3, "pods": 12})

    assert values(WatchState(last=last)) == {
        "doctor_absent{collection=jobs}": 1,
        "doctor_failures_total": 0,
        "doctor_last_diagnosis_successful": 1,
        "doctor_last_success_duration_seconds": 0,
        "doctor_last_success_timestamp_seconds": 1795392000,
        "doctor_not_evaluated": 1,
        "doctor_objects{collection=nodes}": 3,
        "doctor_objects{collection=pods}": 12,
        "doctor_pending_pods": 7,
        "rules_last_reload_successful": 1,
        "rules_reloads_refused_total": 0,
    }


def test_a_failure_keeps_the_findings_of_the_last_diagnosis() -> None:
    last = count_findings(whole_report(), 0.0)
    state = WatchState(last=last, failure="timed out", failures=2, refused="an error", reloads_refused=1)

    events = Events(Connection(lambda _: None))
    events.sent, events.dropped = 3, 1
    samples = values(state, events)

    assert samples["doctor_last_diagnosis_successful"] == 0
    assert samples["doctor_failures_total"] == 2
    assert samples["rules_last_reload_successful"] == 0
    assert samples["rules_reloads_refused_total"] == 1
    assert (samples["events_total"], samples["events_dropped_total"]) == (3, 1)
    assert any(name.startswith("doctor_findings") for name in samples)


def test_before_the_first_diagnosis_there_is_nothing_to_report() -> None:
    assert values(WatchState()).keys() == {
        "doctor_failures_total",
        "rules_last_reload_successful",
        "rules_reloads_refused_total",
    }
    assert values(WatchState(failure="timed out", failures=1))["doctor_last_diagnosis_successful"] == 0


def test_every_metric_is_in_the_exposition_and_in_the_document() -> None:
    content = FindingMetrics(WatchState, None).exposition()[0].decode()
    document = DOCUMENT.read_text().partition("\n## Findings\n")[2]
    for family in FAMILIES:
        assert f"# HELP {exposed_name(family)} {family.help}\n" in content
    assert set(re.findall(r"`(gpu_rules_\w+)`", document)) == {exposed_name(family) for family in FAMILIES}
