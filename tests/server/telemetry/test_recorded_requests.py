"""Recorded requests in the decision log: from its lines alone, the same rules decide as the server did."""

import json
from pathlib import Path
from typing import Any

import pytest

from rules_engine.evaluation import mutate, validate
from rules_engine.model.kubernetes.cluster import Cluster
from rules_engine.model.kubernetes.kept_fields import keeps_path
from rules_engine.model.rules.admission import AdmissionRequest
from rules_engine.model.rules.rule import Rule
from rules_engine.recording.fields import RecordedFields
from rules_engine.recording.views import ViewFields, read_view
from server.http.admission_record import AdmissionRecord
from server.state import ServedRules, State
from server.telemetry import recorded_requests
from server.telemetry.decision_log import MAX_LINE_BYTES, DecisionLog
from server.telemetry.metrics import Metrics
from server.telemetry.recorded_requests import Headers, NewView, Recorder
from tests.support.evaluation import asks, check, cluster, compiled, container, ladder, node, pod, rung, validation
from tests.support.operating import until
from tests.support.states import state_of
from tests.support.telemetry import admission_record, counted

MIG, GPU = "nvidia.com/mig-2g.20gb", "nvidia.com/gpu"
FALLS = ladder(MIG, rung(GPU, assume=True))
RICH = cluster(node("a", {GPU: 2}), node("b", {MIG: 1, GPU: 1}))
LINE_BYTES = 4096


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def read(path: Path) -> list[dict[str, Any]]:
    content = path.read_bytes()
    assert all(len(line) < MAX_LINE_BYTES for line in content.splitlines())
    return [json.loads(line) for line in content.splitlines()]


def logged(path: Path, *records: AdmissionRecord) -> list[dict[str, Any]]:
    log = DecisionLog(path, requests=True)
    log.start()
    for record in records:
        log(record)
    log.stop()
    recorded = read(path)
    assert log.sent == len(recorded)
    return recorded


def views(lines: list[dict[str, Any]]) -> dict[str, Cluster]:
    """Return the views by name, read from the lines in order."""
    parts: dict[str, list[dict[str, Any]]] = {}
    for line in lines:
        if line.get("record") == "view":
            parts[line["view"]] = parts[line["same"]] if "same" in line else [*parts.get(line["view"], []), line]
    return {name: read_view(recorded) for name, recorded in parts.items()}


def test_the_same_rules_decide_a_recorded_request_alike(tmp_path: Path) -> None:
    rules: list[Rule] = [FALLS, validation("object.metadata.labels.app == 'a'", "cluster.total('cpu') == 0")]
    state = state_of(compiled(*rules), RICH)
    pods: list[Any] = [asks({MIG: 1}), asks({MIG: 2}), pod(container("main", limits={MIG: "1"}), labels={"app": "a"})]
    records = [admission_record(path, made, state=state) for made in pods for path in ("/mutate", "/validate")]
    lines = logged(tmp_path / "log", *records)
    fields, known = {line["fields"]: line for line in lines if line.get("record") == "fields"}, views(lines)
    decisions = [line for line in lines if "outcome" in line]
    assert [line["outcome"] for line in decisions] == ["Allowed", "Denied", "Changed", "Denied", "Allowed", "Allowed"]
    assert len(fields) == 1
    assert len(known) == 1
    for line, record in zip(decisions, records, strict=True):
        decide = mutate if line["endpoint"] == "mutate" else validate
        decision = decide(compiled(*rules), AdmissionRequest.parse(line["request"]), known[line["view"]])
        assert [operation.to_json() for operation in decision.patch] == line.get("patch", [])
        assert record.decision is not None
        assert decision.allowed == record.decision.allowed
        assert RecordedFields.parse(fields[line["fields"]]).name == line["fields"]


def test_a_view_precedes_all_decisions_that_name_it(tmp_path: Path) -> None:
    log = DecisionLog(tmp_path / "log", requests=True)
    state = state_of(compiled(FALLS), RICH)
    second = admission_record("/mutate", asks({MIG: 2}), state=state)

    class Overtaken(AdmissionRecord):
        """A record whose line is encoded while another thread records a request."""

        __slots__ = ()

        @property
        def user(self) -> str:
            log(second)
            return ""

    first = Overtaken("mutate")
    for name in AdmissionRecord.__slots__:
        setattr(first, name, getattr(second, name))
    log.start()
    log(first)
    log.stop()
    lines = read(tmp_path / "log")
    assert [line.get("record") for line in lines] == ["fields", "view", None, None]
    assert [line["view"] for line in lines[1:]] == [lines[1]["view"]] * 3


def test_no_request_is_recorded_by_default(tmp_path: Path) -> None:
    log = DecisionLog(tmp_path / "log")
    log.start()
    log(admission_record("/mutate", asks({MIG: 2}), FALLS))
    log.stop()
    [line] = read(tmp_path / "log")
    assert not {"request", "fields", "view", "unrecorded"} & line.keys()


def test_a_line_has_the_reason_why_its_request_is_not_recorded(tmp_path: Path) -> None:
    state = state_of(compiled(FALLS, validation("object.spec.containers.all(c, c.env.all(e, e.value != 'b'))")), RICH)
    secret: Any = pod(container("main"))
    secret["spec"]["containers"][0]["env"] = [{"name": "A", "value": "secret"}]
    long: Any = asks({MIG: 1})
    long["spec"]["nodeSelector"] = {"a": "b" * MAX_LINE_BYTES}
    malformed: Any = asks({MIG: 1})
    malformed["spec"]["containers"] = [1]
    records = [
        admission_record("/validate", secret, state=state),
        admission_record("/mutate", long, state=state),
        admission_record("/mutate", malformed, state=state),
    ]
    lines = [line for line in logged(tmp_path / "log", *records) if "outcome" in line]
    assert [line["unrecorded"] for line in lines] == ["redacted", "size", "malformed"]
    assert "secret" not in (tmp_path / "log").read_text()
    assert not any("request" in line for line in lines)


def test_unrecorded_requests_are_counted_by_reason(tmp_path: Path) -> None:
    log = DecisionLog(tmp_path / "log", requests=True)
    log.start()
    for made in (
        asks({MIG: 1}),
        asks({MIG: 1}, nodeSelector={"a": "b" * MAX_LINE_BYTES}),
        {"spec": {"containers": [1]}},
    ):
        log(admission_record("/mutate", made, state=state_of(compiled(FALLS), RICH)))
    log.stop()
    assert log.unrecorded == {"redacted": 0, "size": 1, "malformed": 1, "view": 0}
    recorded = counted(Metrics(state_of(), decision_log=log), "gpu_rules_decision_log_unrecorded_total")
    assert recorded == {"{reason=redacted}": 0, "{reason=size}": 1, "{reason=malformed}": 1, "{reason=view}": 0}


def test_requests_on_a_view_that_is_too_large_are_not_recorded(tmp_path: Path) -> None:
    log = DecisionLog(tmp_path / "log", requests=True)
    log.start()
    large = state_of(compiled(FALLS), cluster(node("a", {GPU: 1}, labels={"a": "b" * MAX_LINE_BYTES})))
    log(admission_record("/mutate", asks({MIG: 1}), state=large))
    until(lambda: log.sent == 3, "the view is omitted")
    log(admission_record("/mutate", asks({MIG: 1}), state=large))
    log.stop()
    _, view, first, second = read(tmp_path / "log")
    assert view["omitted"] is True
    assert "unrecorded" not in first
    assert second["unrecorded"] == "view"


def test_a_new_file_begins_with_fields_and_view(tmp_path: Path) -> None:
    state = state_of(compiled(FALLS), RICH)
    record = admission_record("/mutate", asks({MIG: 2}), state=state)
    path = tmp_path / "log"
    log = DecisionLog(path, requests=True)
    log.start()
    log(record)
    until(lambda: log.sent == 3, "3 lines are written")
    path.rename(tmp_path / "rotated")

    # The log keeps the file that was moved open for a short time.
    def written() -> bool:
        log(record)
        return path.exists()

    until(written, "a new file is written")
    log.stop()
    for name in ("rotated", "log"):
        fields, view, line = read(tmp_path / name)[:3]
        assert (fields["record"], view["record"], line["outcome"]) == ("fields", "view", "Changed")
        assert (fields["fields"], view["view"]) == (line["fields"], line["view"])


def test_fields_and_view_are_repeated_after_a_failed_write(tmp_path: Path) -> None:
    record = admission_record("/mutate", asks({MIG: 2}), state=state_of(compiled(FALLS), RICH))
    path = tmp_path / "folder" / "log"
    path.parent.mkdir()
    log = DecisionLog(path, requests=True)
    log.start()
    path.unlink()
    path.mkdir()
    log(record)
    until(lambda: log.dropped == 3, "3 lines are dropped")
    path.rmdir()
    log(record)
    log.stop()
    assert [line.get("record") for line in read(path)] == ["fields", "view", None]


def named(recorder: Recorder, state: State, made: Any = None) -> tuple[str | None, list[str]]:
    """Return the view of a request, and the kinds of what is announced with it."""
    recorded = recorder(admission_record("/mutate", made or asks({MIG: 2}), state=state))
    return recorded.members.get("view"), [type(one).__name__ for one in recorder.take_announced()]


def test_views_are_named_at_a_limited_rate() -> None:
    clock = Clock()
    recorder = Recorder("p", clock)
    rules = compiled(FALLS)
    first, second = state_of(rules, RICH), state_of(rules, cluster({GPU: 9}))
    second.served = first.served
    assert named(recorder, first) == ("p-1", ["RecordedFields", "NewView"])
    assert named(recorder, first) == ("p-1", [])
    assert named(recorder, second) == (None, [])
    recorder.allow_next_view(recorded_requests.VIEW_BYTES_PER_SECOND, 0.0)
    assert named(recorder, second) == (None, [])
    clock.now = 1.0
    assert named(recorder, second) == ("p-2", ["NewView"])
    recorder.allow_next_view(1, 1.0)
    clock.now = 20.0
    assert named(recorder, first) == (None, [])
    clock.now = 21.0
    assert named(recorder, first) == ("p-3", ["NewView"])


def test_changed_rules_begin_new_fields_and_views() -> None:
    recorder = Recorder("p")
    state = state_of(compiled(FALLS), RICH)
    assert named(recorder, state) == ("p-1", ["RecordedFields", "NewView"])
    recorder.allow_next_view(0, 0.0)
    state.served = ServedRules(rule_set=compiled(FALLS))
    assert named(recorder, state) == ("p-1", ["RecordedFields"])
    state.served = ServedRules(rule_set=compiled())
    assert named(recorder, state) == ("p-2", ["RecordedFields", "NewView"])


def headers(clock: Clock | None = None) -> Headers:
    return Headers(Recorder("p"), LINE_BYTES, clock or Clock())


ALL = ViewFields.of(compiled(validation("cluster.total('cpu') == 0")))


def test_an_equal_view_is_not_written_again() -> None:
    lines = headers()
    assert b'"nodes"' in lines.of(NewView("p-1", RICH, ALL))[0]
    for name in ("p-2", "p-3"):
        [line] = lines.of(NewView(name, RICH, ALL))
        assert json.loads(line)["same"] == "p-1"
    [line] = lines.lines_to_repeat((1, 1), empty=True)
    assert json.loads(line)["view"] == "p-3"
    [line] = lines.of(NewView("p-4", RICH, ALL))
    assert json.loads(line)["same"] == "p-3"


def test_lines_are_repeated_in_a_new_file_after_many_bytes_and_after_an_hour() -> None:
    clock = Clock()
    lines = headers(clock)
    assert lines.lines_to_repeat((1, 1), empty=True) == []
    lines.of(NewView("p-1", RICH, ALL))
    assert lines.lines_to_repeat((1, 1), empty=False) == []
    assert lines.lines_to_repeat((1, 1), empty=True)
    assert lines.lines_to_repeat((1, 2), empty=False)
    lines.count(recorded_requests.REPEAT_BYTES)
    assert lines.lines_to_repeat((1, 2), empty=False)
    assert lines.lines_to_repeat((1, 2), empty=False) == []
    clock.now = recorded_requests.REPEAT_SECONDS
    assert lines.lines_to_repeat((1, 2), empty=False)
    assert lines.lines_to_repeat((1, 2), empty=False) == []


def test_a_large_view_has_several_lines() -> None:
    many = Cluster(nodes=tuple(node(f"node-{n}", {GPU: 1}) for n in range(1000)))
    lines = headers().of(NewView("p-1", many, ALL))
    assert max(map(len, lines)) <= LINE_BYTES
    recorded = [json.loads(line) for line in lines]
    assert [line["part"] for line in recorded] == [*range(1, len(recorded) + 1)]
    assert {line["parts"] for line in recorded} == {len(recorded)}
    assert views(recorded) == {"p-1": many}


@pytest.mark.parametrize(
    "view",
    [cluster(node("a", labels={"a": "b" * LINE_BYTES})), cluster(node("\ud800"))],
)
def test_a_view_that_cannot_be_written_is_omitted(view: Cluster) -> None:
    [line] = headers().of(NewView("p-1", view, ALL))
    assert json.loads(line)["omitted"] is True


def test_a_list_of_fields_that_is_too_long_is_omitted() -> None:
    lines = headers()
    fields = RecordedFields({"a" * LINE_BYTES: None})
    [line] = lines.of(fields)
    assert json.loads(line) == {"record": "fields", "fields": fields.name, "omitted": True} | {
        "time": json.loads(line)["time"]
    }


def test_the_newest_fields_of_both_endpoints_are_repeated() -> None:
    lines = headers()
    for label in "abcb":
        lines.of(RecordedFields({label: None}))
    repeated = lines.lines_to_repeat((1, 1), empty=True)
    assert [json.loads(line)["members"] for line in repeated] == [{"c": None}, {"b": None}]


def test_an_expression_in_a_message_is_not_recorded() -> None:
    rules = compiled(validation(check("false", "no", message_expression="object.spec.priorityClassName")))
    assert not keeps_path(RecordedFields.of(rules.rules).kept, "object", "spec", "priorityClassName")
