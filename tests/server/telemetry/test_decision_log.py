"""The decision log: decisions and their traces, without anything of a pod that no rule names."""

import fcntl
import json
import os
import resource
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from io import FileIO
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from rules_engine.model.kubernetes.cluster import Cluster, Freshness
from rules_engine.model.rules.rule import Mode, Rule
from rules_engine.rules.validation.value import ValidationAction
from rules_engine.server.http.admission_record import AdmissionRecord
from rules_engine.server.state import ServedRules
from rules_engine.server.telemetry.decision_log import (
    MAX_LINE_BYTES,
    MAX_QUEUED_BYTES,
    MAX_TEXT,
    DecisionLog,
    encode_line,
    pod_owner,
)
from rules_engine.server.telemetry.observers import Telemetry
from tests.support.evaluation import asks, check, cluster, compiled, container, injection, ladder, pod, rung, validation
from tests.support.operating import until
from tests.support.server import UID, encoded, review
from tests.support.states import state_of
from tests.support.telemetry import admission_record, series

MIG = "nvidia.com/mig-2g.20gb"
GPU = "nvidia.com/gpu"
FALLS = ladder(MIG, rung(GPU, assume=True))


def log_lines(folder: Path, *records: AdmissionRecord, messages: bool = False) -> list[dict[str, Any]]:
    """Return the lines logged for records."""
    path = folder / "decisions.jsonl"
    path.unlink(missing_ok=True)
    log = DecisionLog(path, messages=messages)
    log.start()
    for record in records:
        log(record)
    log.stop()
    lines = path.read_text().splitlines()
    assert log.sent == len(lines)
    return [json.loads(line) for line in lines]


def test_a_line_has_the_decision_its_inputs_and_its_trace(tmp_path: Path) -> None:
    state = state_of(ServedRules(rule_set=compiled(FALLS), generation=3, digest="abc"), cluster=cluster())
    made: Any = asks({MIG: 2})
    made["metadata"]["ownerReferences"] = [
        {"kind": "Node", "name": "no-controller"},
        {"kind": "Job", "name": "train", "controller": True},
    ]
    record = admission_record("/mutate", made, state=state)
    assert record.seconds > 0
    record.seconds = 0.00123456
    [line] = log_lines(tmp_path, record)
    assert line.pop("time").endswith("Z")
    assert line.pop("id").endswith("-1")
    [step] = line.pop("trace")
    assert (step["rule"], step["action"], step["annotations"]) == (
        "FallbackLadder/ladder",
        "change",
        {"gpurules.io/fallback": "2g.20gb->gpu"},
    )
    assert {operation["op"] for operation in line.pop("patch")} == {"add", "remove"}
    assert line == {
        "uid": UID,
        "endpoint": "mutate",
        "operation": "CREATE",
        "namespace": "ml",
        "pod": "job",
        "user": "system:admin",
        "owner": {"kind": "Job", "name": "train"},
        "dryRun": False,
        "outcome": "Changed",
        "rules": {"digest": "abc", "generation": 3},
        "inventory": {"version": 1, "freshness": "synced"},
        "seconds": 0.001235,
    }


def test_a_step_has_the_location_of_the_deciding_expression(tmp_path: Path) -> None:
    several = validation(check("1 > 2"), check("3 > 4"))
    [line] = log_lines(tmp_path, admission_record("/validate", asks({MIG: 2}), several))
    [step] = line["trace"]
    assert (step["source"], step["field"]) == ("<expression>:1:1", "validations[0].expression")
    assert step["furtherFields"] == [{"source": "<expression>:1:1", "field": "validations[1].expression"}]


def test_the_time_of_a_line_is_in_utc() -> None:
    record = admission_record("/mutate", asks({MIG: 1}), FALLS)
    assert record.decision is not None
    at = datetime(2026, 11, 22, 1, 2, 3, 40, tzinfo=timezone(timedelta(hours=1)))
    encoded = encode_line(record, record.decision, id="a-1", at=at.astimezone(UTC), view=1)
    assert json.loads(encoded.text)["time"] == "2026-11-22T00:02:03.000040Z"


def test_each_decision_has_an_id_and_dry_runs_are_marked(tmp_path: Path) -> None:
    record = admission_record("/mutate", asks({MIG: 1}), FALLS, dryRun=True)
    lines = log_lines(tmp_path, record, record)
    assert len({line["id"] for line in lines}) == 2
    assert [line["dryRun"] for line in lines] == [True, True]


def test_the_inventory_version_changes_with_its_nodes_only(tmp_path: Path) -> None:
    nodes = cluster({GPU: 1}).nodes
    views = [Cluster(nodes=nodes), Cluster(nodes=nodes, freshness=Freshness.STALE), cluster({GPU: 2})]
    lines = log_lines(tmp_path, *(admission_record("/mutate", asks({GPU: 1}), FALLS, on=view) for view in views))
    assert [(line["inventory"]["version"], line["inventory"]["freshness"]) for line in lines] == [
        (1, "synced"),
        (1, "stale"),
        (2, "synced"),
    ]


def test_a_request_without_a_decision_is_not_logged(tmp_path: Path) -> None:
    assert log_lines(tmp_path, admission_record("/mutate", b"{", FALLS)) == []


SECRET = "correct-horse-battery-staple"


def pod_full_of_secrets() -> Any:
    main: Any = {
        **container("main", {MIG: 1}),
        "image": f"registry/{SECRET}",
        "env": [{"name": "PASSWORD", "value": SECRET}, {"name": f"{SECRET}-name", "value": "x1"}],
        "args": [SECRET],
        "command": [SECRET],
        "volumeMounts": [{"name": "v", "mountPath": f"/{SECRET}"}],
    }
    made: Any = pod(main, annotations={"mine": SECRET, f"{SECRET}/key": "x"}, labels={"team": SECRET})
    made["metadata"]["name"] = "job"
    made["spec"]["initContainers"] = [{"name": "init", "env": [{"name": "TOKEN", "value": SECRET}]}]
    made["spec"]["volumes"] = [{"name": "v", "secret": {"secretName": SECRET}}]
    made["spec"]["nodeSelector"] = {"pool": SECRET}
    return made


RULES: tuple[Rule, ...] = (
    FALLS,
    injection({"cpu": "4"}, gpu_type=None, annotations={"a/b": "from the rule"}),
    validation("false", name="static", validation_actions=frozenset({ValidationAction.WARN})),
    validation("object.metadata.annotations['mine'] == object.metadata.labels['absent']", name="fails"),
    validation(
        check("false", message_expression="'the value is ' + object.spec.containers[0].env[0].value"), name="denies"
    ),
    validation(
        check("false", "a secret", message_expression="'it is ' + object.spec.containers[0].env[0].value"),
        name="warns",
        validation_actions=frozenset({ValidationAction.WARN}),
    ),
)


@pytest.mark.parametrize("path", ["/mutate", "/validate"])
def test_only_values_that_rules_name_are_logged(tmp_path: Path, path: str) -> None:
    made = pod_full_of_secrets()
    [line] = log_lines(tmp_path, admission_record(path, made, *RULES))
    text = (tmp_path / "decisions.jsonl").read_text()
    assert SECRET not in text
    assert '"mine"' not in text
    if path == "/validate":
        messages = {step["rule"]: step.get("message") for step in line["trace"]}
        assert messages["Validation/denies"] == messages["Validation/static"] == "failed expression: false"
        assert messages["Validation/warns"] == "a secret"
        warned = [step["warnings"] for step in line["trace"] if step["rule"] == "Validation/warns"]
        assert warned == [["Validation/warns: a secret"]]
    else:
        assert line["outcome"] == "Changed"


QUOTES = validation(
    check("false", "static", message_expression="'quoted: ' + object.metadata.annotations['mine']"),
    check("object.spec.containers == []", message_expression="''"),
)


@pytest.mark.parametrize("action", ValidationAction)
@pytest.mark.parametrize("mode", [Mode.ENFORCE, Mode.AUDIT])
def test_results_of_message_expressions_are_logged_only_if_enabled(
    tmp_path: Path, action: ValidationAction, mode: Mode
) -> None:
    rule = replace(QUOTES, validation_actions=frozenset({action}), mode=mode)
    record = admission_record("/validate", pod(container("main"), annotations={"mine": SECRET}), rule)
    failed = "failed expression: object.spec.containers == []"
    for messages, expected in ((False, "static"), (True, f"quoted: {SECRET}")):
        [line] = log_lines(tmp_path, record, messages=messages)
        [step] = line["trace"]
        assert step["message"] == f"{expected}; {failed}"
        warned = [f"{rule.id}: {expected}", f"{rule.id}: {failed}"] if action is ValidationAction.WARN else []
        assert step.get("warnings", []) == warned
        assert (SECRET in (tmp_path / "decisions.jsonl").read_text()) == messages


def test_the_caller_and_the_audit_log_get_results_of_message_expressions() -> None:
    audited = replace(QUOTES, validation_actions=frozenset({ValidationAction.DENY, ValidationAction.AUDIT}))
    decision = admission_record("/validate", pod(container("main"), annotations={"mine": SECRET}), audited).decision
    assert decision is not None
    assert decision.status is not None
    assert f"quoted: {SECRET}" in decision.status.message
    assert [f"quoted: {SECRET}" in text for text in decision.audit_annotations.values()] == [True]


def test_errors_of_expressions_are_logged(tmp_path: Path) -> None:
    rule = validation(check("false", "static"), check("object.spec.containers[9] == null"))
    [line] = log_lines(tmp_path, admission_record("/validate", pod(), rule))
    [step] = line["trace"]
    assert "index out of range" in step["message"]


def test_the_namespace_comes_from_the_pod_or_else_from_the_request(tmp_path: Path) -> None:
    elsewhere: Any = asks({MIG: 1})
    elsewhere["metadata"]["namespace"] = "elsewhere"
    nowhere: Any = asks({MIG: 1})
    nowhere["metadata"].pop("namespace", None)
    lines = log_lines(
        tmp_path, *(admission_record("/mutate", made, FALLS, namespace="ml") for made in (elsewhere, nowhere))
    )
    assert [line["namespace"] for line in lines] == ["elsewhere", "ml"]


def test_the_reason_of_an_unreadable_pod_is_not_logged(tmp_path: Path) -> None:
    made = pod_full_of_secrets()
    made["spec"]["containers"][0]["resources"]["limits"]["cpu"] = SECRET
    body = encoded(review(made)).replace(b'"x1"', b"12345678901234567890123")
    lines = log_lines(tmp_path, admission_record("/mutate", made, FALLS), admission_record("/mutate", body, FALLS))
    assert [(line["outcome"], line["status"]) for line in lines] == [
        ("Invalid", {"code": 422, "reason": "Invalid"}),
        ("Invalid", {"code": 422, "reason": "Invalid"}),
    ]
    text = (tmp_path / "decisions.jsonl").read_text()
    assert SECRET not in text
    assert "123456789" not in text


def test_what_exceeds_16_mib_is_dropped_and_counted(tmp_path: Path) -> None:
    state = state_of(compiled(), cluster())
    telemetry = Telemetry(state, tmp_path / "log", None, requests=True)
    record = admission_record("/mutate", asks({}, nodeSelector={"a": "b" * (MAX_LINE_BYTES - 2000)}), state=state)
    most = MAX_QUEUED_BYTES // (MAX_LINE_BYTES - 2000)
    for _ in range(most + 3):
        for observe in telemetry.observers:
            observe(record)  # the thread is not started
    dropped = series(telemetry.metrics)["gpu_rules_decision_log_dropped_total"]
    assert 3 <= dropped < most / 10
    telemetry.start()
    telemetry.stop()
    assert MAX_QUEUED_BYTES - MAX_LINE_BYTES < (tmp_path / "log").stat().st_size <= MAX_QUEUED_BYTES
    assert series(telemetry.metrics)["gpu_rules_decision_log_lines_total"] == most + 3 - dropped


def test_a_full_pipe_delays_no_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rules_engine.server.telemetry.decision_log.MAX_QUEUED_BYTES", 16_384)
    path = tmp_path / "log"
    os.mkfifo(path)
    log = DecisionLog(path)
    with FileIO(os.open(path, os.O_RDONLY | os.O_NONBLOCK)) as pipe:
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, 4096)
        log.start()
        record = admission_record("/mutate", asks({MIG: 1}), FALLS)
        while not log.dropped:
            log(record)
        os.set_blocking(pipe.fileno(), True)
        waiting = Thread(target=log.stop)
        waiting.start()
        lines = b"".join(iter(lambda: pipe.read(4096), b"")).splitlines()
        waiting.join()
    assert 16_384 // 1500 < len(lines) == log.sent
    assert {json.loads(line)["outcome"] for line in lines} == {"Changed"}


@pytest.mark.parametrize("rotation", ["rename", "rename and create", "remove"])
def test_a_rotated_log_is_created_again(tmp_path: Path, rotation: str) -> None:
    path, record = tmp_path / "log", admission_record("/mutate", asks({MIG: 1}), FALLS)
    log = DecisionLog(path)
    log.start()
    log(record)
    until(lambda: log.sent == 1, "the first line")
    if rotation == "remove":
        path.unlink()
    else:
        path.rename(tmp_path / "log.1")
    if rotation == "rename and create":
        path.touch(0o600)
    log(record)
    log.stop()
    assert json.loads(path.read_text())["id"].endswith("-2")
    assert path.stat().st_mode & 0o777 & ~0o640 == 0


def test_an_unwritable_log_is_reported_once_and_written_again_when_it_can(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "logs" / "log"
    path.parent.mkdir()
    record = admission_record("/mutate", asks({MIG: 1}), FALLS)
    log = DecisionLog(path)
    log.start()
    for rounds in (1, 2):
        path.unlink()
        path.parent.rmdir()
        log(record)
        log(record)
        until(lambda: log.dropped == 2 * rounds, "two lines are dropped")  # noqa: B023 - called in this round
        path.parent.mkdir()
        log(record)
        until(lambda: log.sent == rounds, "a line is written")  # noqa: B023 - called in this round
        assert len(path.read_text().splitlines()) == 1
        assert caplog.text.count("the decision log cannot be written: No such file or directory") == rounds
    log.stop()


def test_a_partly_written_line_corrupts_no_other(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * 1000 + b"\n")
    record = admission_record("/mutate", asks({MIG: 1}), FALLS)
    log = DecisionLog(path)
    log.start()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1100, hard))
    try:
        log(record)
        until(lambda: log.dropped == 1, "a line was dropped")
        assert path.stat().st_size == 1100
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    log(record)
    log(record)
    log.stop()
    _, cut_off, *others = path.read_text().splitlines()
    assert len(cut_off) == 99
    assert [json.loads(line)["outcome"] for line in others] == ["Changed", "Changed"]
    assert (log.sent, log.dropped) == (2, 1)
    assert caplog.text.count("cannot be written: File too large") == 1


def test_a_log_that_cannot_be_written_at_all_is_an_error_at_once(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        DecisionLog(tmp_path / "none" / "log").start()


def test_lines_can_go_to_standard_output(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    log = DecisionLog(None)
    log.start()
    log(admission_record("/mutate", asks({MIG: 1}), FALLS))
    log.stop()
    [line] = capfdbinary.readouterr().out.splitlines()
    assert json.loads(line)["outcome"] == "Changed"


@pytest.mark.parametrize(
    "made",
    [
        None,
        [],
        {},
        {"metadata": {"ownerReferences": {}}},
        {"metadata": {"ownerReferences": [None, {"controller": True, "kind": 1, "name": "x"}]}},
        {"metadata": {"ownerReferences": [{"controller": "true", "kind": "Job", "name": "x"}]}},
    ],
)
def test_a_pod_without_a_controller_has_no_owner(made: Any) -> None:
    assert pod_owner(made) is None


def test_nothing_is_left_open(tmp_path: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    log_lines(tmp_path, *[admission_record("/mutate", asks({MIG: 1}), FALLS)] * 3)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


# A pod may be as large as a request, but not a line.


def pod_of(count: int, prefix: str = "container") -> Any:
    """Build a pod whose containers request GPUs that the cluster lacks."""
    return pod(
        *(container(f"{prefix}-{number}", {MIG: 1}) for number in range(count)),
        annotations={"task.bkbcs.tencent.com/gpu-type": "V100"},
    )


INJECTS = injection({"cpu": "4", "memory": "16Gi"})


@pytest.mark.parametrize(
    ("metadata", "request_", "name"),
    [
        ({"name": "one", "generateName": "g-"}, {"name": "other"}, "one"),
        ({"generateName": "g-"}, {"name": "other"}, "other"),
        ({"generateName": "g-"}, {}, "g-*"),
        ({}, {}, None),
        ({"name": "one"}, {"subResource": "binding"}, None),
        ({"name": "one"}, {"subResource": "resize", "operation": "UPDATE"}, "one"),
    ],
)
def test_a_line_names_the_pod_or_its_generate_name(
    tmp_path: Path, metadata: Any, request_: dict[str, Any], name: str | None
) -> None:
    made: Any = asks({MIG: 1})
    made["metadata"] = metadata
    [line] = log_lines(tmp_path, admission_record("/mutate", made, FALLS, **request_))
    assert line.get("pod") == name


def test_a_line_names_the_user_as_the_api_server_knows_it(tmp_path: Path) -> None:
    users: list[dict[str, Any]] = [{"username": "jane"}, {"username": 1}, {}]
    lines = log_lines(tmp_path, *(admission_record("/mutate", asks({MIG: 1}), FALLS, userInfo=user) for user in users))
    assert [line.get("user") for line in lines] == ["jane", None, None]


@pytest.mark.parametrize("character", ["x", "\x01", "😀"])
def test_a_line_is_bounded_however_long_the_names_of_a_pod_are(tmp_path: Path, character: str) -> None:
    long = character * 100_000
    made = pod_of(40)
    made["metadata"] |= {
        "name": long,
        "namespace": long,
        "ownerReferences": [{"kind": long, "name": long, "controller": True}],
    }
    record = admission_record("/mutate", made, FALLS, userInfo={"username": long})
    record.uid = long  # a review with such a uid is refused
    [line] = log_lines(tmp_path, record)
    assert (tmp_path / "decisions.jsonl").stat().st_size <= MAX_LINE_BYTES
    assert line["truncated"] == ["namespace", "uid", "pod", "user", "owner"]
    assert {len(line[name]) for name in ("uid", "pod", "user", "namespace")} == {MAX_TEXT}
    assert {len(name) for name in line["owner"].values()} == {MAX_TEXT}
    assert line["patch"]


def test_a_decision_that_is_too_long_is_outlined(tmp_path: Path) -> None:
    state = state_of(ServedRules(rule_set=compiled(FALLS, INJECTS), generation=1, digest="abc"), cluster=cluster())
    whole, outlined = log_lines(tmp_path, *(admission_record("/mutate", pod_of(n), state=state) for n in (10, 100)))
    assert "truncated" not in whole
    assert outlined["truncated"] == ["patch", "trace"]
    assert outlined["trace"] == [{name: step[name] for name in ("rule", "action", "reason")} for step in whole["trace"]]
    differing = {"time", "id", "seconds", "trace", "patch", "truncated"}
    assert {**outlined, **dict.fromkeys(differing)} == {**whole, **dict.fromkeys(differing)}


def test_rules_with_an_effect_stay_in_an_outlined_line(tmp_path: Path) -> None:
    rules = [validation("true", name=f"{'holds':->50}-{number}") for number in range(2000)]
    audits = validation("false", name="audits", mode=Mode.AUDIT)
    [line] = log_lines(
        tmp_path, admission_record("/validate", pod(), *rules, audits, validation("false", name="denies"))
    )
    assert (tmp_path / "decisions.jsonl").stat().st_size <= MAX_LINE_BYTES
    assert line["truncated"] == ["trace"]
    assert line["trace"][-2:] == [
        {"rule": "Validation/audits", "action": "deny", "reason": "invalid", "audit": True},
        {"rule": "Validation/denies", "action": "deny", "reason": "invalid"},
    ]
    assert len(line["trace"]) > 100


@pytest.mark.parametrize("messages", [False, True])
def test_results_of_message_expressions_are_not_in_outlined_lines(tmp_path: Path, messages: bool) -> None:
    made = pod(container("main"), annotations={"mine": SECRET})
    others = [validation(check("false", "y" * 2000), name=f"{number:0>60}") for number in range(20)]
    [line] = log_lines(tmp_path, admission_record("/validate", made, QUOTES, *others), messages=messages)
    assert line["truncated"] == ["trace"]
    assert SECRET not in (tmp_path / "decisions.jsonl").read_text()


def test_truncated_lines_are_counted(tmp_path: Path) -> None:
    state = state_of(compiled(FALLS), cluster())
    telemetry = Telemetry(state, tmp_path / "log", None)
    for made in (asks({MIG: 1}), pod_of(100), pod_of(101)):
        record = admission_record("/mutate", made, state=state)
        for observe in telemetry.observers:
            observe(record)
    assert series(telemetry.metrics)["gpu_rules_decision_log_truncated_total"] == 2
