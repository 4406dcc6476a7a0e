"""Requests in the decision log: as they came, without what often holds secrets."""

import json
from pathlib import Path
from typing import Any

import pytest

from rules_engine.model.kubernetes.kept_fields import LAST_APPLIED
from rules_engine.server.http.admission_record import AdmissionRecord
from rules_engine.server.telemetry.decision_log import MAX_LINE_BYTES, DecisionLog
from rules_engine.server.telemetry.metrics import Metrics
from tests.support.evaluation import asks, cluster, compiled
from tests.support.states import state_of
from tests.support.telemetry import admission_record, counted

STATE = state_of(compiled(), cluster())
HANDLER: Any = {
    "exec": {"command": ["secret"]},
    "httpGet": {"port": 80, "httpHeaders": [{"name": "N", "value": "secret"}]},
}
CONTAINER: Any = {
    "name": "main",
    "image": "app",
    "command": ["secret"],
    "args": ["secret"],
    "env": [{"name": "A", "value": "secret"}, {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
    **{f"{name}Probe": {"periodSeconds": 9, **HANDLER} for name in ("liveness", "readiness", "startup")},
    "lifecycle": {"postStart": HANDLER, "preStop": HANDLER},
}
LISTS = ("containers", "initContainers", "ephemeralContainers")
POD: Any = {
    "metadata": {
        "name": "a",
        "labels": {"command": "kept", "args": "kept"},
        "annotations": {LAST_APPLIED: "secret", "b": "kept"},
        "managedFields": [{"manager": "secret"}],
    },
    "spec": {"priority": 1, **{name: [CONTAINER] for name in LISTS}},
}


def logged(path: Path, *records: AdmissionRecord, requests: bool = True) -> tuple[list[dict[str, Any]], DecisionLog]:
    log = DecisionLog(path, requests=requests)
    log.start()
    for record in records:
        log(record)
    log.stop()
    return [json.loads(line) for line in path.read_bytes().splitlines()], log


def test_a_request_is_recorded_without_secrets(tmp_path: Path) -> None:
    user = {"username": "ada", "groups": ["a"]}
    record = admission_record("/validate", POD, state=STATE, operation="UPDATE", oldObject=POD, userInfo=user)
    [line], _ = logged(tmp_path / "log", record)
    assert "secret" not in json.dumps(line)
    assert record.request is not None
    recorded = line["request"]
    assert {**recorded, "object": POD, "oldObject": POD} == record.request.raw
    handler = {"exec": {}, "httpGet": {"port": 80, "httpHeaders": [{"name": "N"}]}}
    kept = {
        "name": "main",
        "image": "app",
        "env": [{"name": "A"}, CONTAINER["env"][1]],
        **{f"{name}Probe": {"periodSeconds": 9, **handler} for name in ("liveness", "readiness", "startup")},
        "lifecycle": {"postStart": handler, "preStop": handler},
    }
    for member in ("object", "oldObject"):
        metadata, spec = recorded[member]["metadata"], recorded[member]["spec"]
        assert metadata == {"name": "a", "labels": POD["metadata"]["labels"], "annotations": {"b": "kept"}}
        assert spec == {"priority": 1, **{name: [kept] for name in LISTS}}
        names = [name.removeprefix(f"{member}.") for name in line["leftOut"] if name.startswith(f"{member}.")]
        assert names[:2] == [f"metadata.annotations.{LAST_APPLIED}", "metadata.managedFields"]
        assert "spec.initContainers.lifecycle.preStop.httpGet.httpHeaders.value" in names
        assert len(names) == 2 + 3 * (3 + 2 * 5)


@pytest.mark.parametrize("made", [asks({}), {"spec": {"containers": [1, {"env": 2}]}}])
def test_a_request_with_nothing_to_leave_out_is_recorded_whole(tmp_path: Path, made: Any) -> None:
    record = admission_record("/mutate", made, state=STATE)
    [line], log = logged(tmp_path / "log", record)
    assert record.request is not None
    assert (line["request"], line["leftOut"], log.unrecorded) == (record.request.raw, [], 0)


@pytest.mark.parametrize(
    ("options", "fields"),
    [({"requests": False}, {}), ({}, {"kind": {"group": "", "version": "v1", "kind": "PodTemplate"}})],
)
def test_requests_of_pods_are_recorded_only_if_enabled(
    tmp_path: Path, options: dict[str, bool], fields: dict[str, Any]
) -> None:
    [line], log = logged(tmp_path / "log", admission_record("/validate", POD, state=STATE, **fields), **options)
    assert not {"request", "leftOut"} & line.keys()
    assert log.unrecorded == 0


def test_requests_that_are_too_long_or_deep_are_counted(tmp_path: Path) -> None:
    deep: Any = {}
    lists: Any = []
    for _ in range(300):
        deep, lists = {"a": deep}, [[[lists]]]
    long = asks({}, nodeSelector={"a": "b" * MAX_LINE_BYTES})
    pods = [long, asks({}, deep=deep), asks({}, ephemeralContainers=lists), asks({})]
    lines, log = logged(tmp_path / "log", *(admission_record("/mutate", made, state=STATE) for made in pods))
    assert ["request" in line for line in lines] == [False, False, False, True]
    assert max(map(len, (tmp_path / "log").read_bytes().splitlines())) < MAX_LINE_BYTES
    assert counted(Metrics(STATE, decision_log=log), "gpu_rules_decision_log_unrecorded_total") == {"": 3}
