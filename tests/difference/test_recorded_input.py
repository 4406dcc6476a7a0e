"""Recorded admissions: each pod of a decision log is decided once, as it was submitted, on the view of its decision."""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules_engine.devices.offers import with_device_offers
from rules_engine.difference.comparison import compare_outcomes
from rules_engine.difference.decisions import NOT_TOGETHER
from rules_engine.difference.grouping import RecordedTotals
from rules_engine.difference.outcomes import Outcomes
from rules_engine.difference.reading import recorded_input, recorded_views
from rules_engine.difference.reading.object_stream import ObjectFile
from rules_engine.difference.reading.recorded_input import (
    NO_DECISION,
    NO_FIELDS,
    NO_JSON,
    NOT_RECORDED,
    ONLY_CREATED,
    TOO_LONG,
    UNREADABLE,
    RecordedInput,
    RecordedSide,
    Replay,
    is_decision_log,
)
from rules_engine.difference.values import Kind, Submitted, Workload
from rules_engine.evaluation.nodes import NodeFilter, NodeRequirement, Offered
from rules_engine.model.kubernetes.cluster import Cluster
from rules_engine.model.problems.problem import Problems
from rules_engine.model.rules.rule import ConditionKind, LabelRequirement, LabelSelector, Match, Mode, Operation, Rule
from rules_engine.recording import views
from rules_engine.recording.fields import MAX_LINE_BYTES
from server.state import State
from tests.support.devices import device, devices_of, kind_class, part
from tests.support.evaluation import GPU, MIG1, MIG3, asks, cluster, compiled, ladder, node, rung, validation
from tests.support.recorded import DIGEST, Call, recorded_log, recording

FALLS = ladder(MIG3, rung(GPU, assume=True))
CREATED_OR_UPDATED = Match(operations=(Operation.CREATE, Operation.UPDATE))
NO_ROOT = validation("object.metadata.?labels.?app.orValue('') != 'root'", match=CREATED_OR_UPDATED)
ON = cluster(node("a", {GPU: 2}), node("b", {MIG1: 1, GPU: 1}))


def owned(made: Any, owner: str = "rs", name: str = "") -> Any:
    """Return a pod of a ReplicaSet; /validate gets the name that the API server makes."""
    reference = {"kind": "ReplicaSet", "name": owner, "controller": True}
    metadata = {key: value for key, value in made["metadata"].items() if key != "name"}
    metadata |= {"generateName": f"{owner}-", "ownerReferences": [reference]}
    return {**made, "metadata": metadata | ({"name": name} if name else {})}


def served(*rules: Rule, on: Cluster = ON, digest: str = DIGEST) -> State:
    return recording(*rules, on=on, digest=digest)


def log(path: Path, state: State, *calls: Call, **fields: Any) -> Path:
    return recorded_log(path, state, calls, **fields)


def replayed(
    *paths: Path, old: Sequence[Rule] = (FALLS,), new: Sequence[Rule] = (FALLS,)
) -> tuple[list[tuple[Submitted, Cluster]], RecordedTotals, list[str]]:
    """Return the pods of logs with their views, the totals and the problems."""
    sides = {"--old": compiled(*old), "--new": compiled(*new)}
    problems, found = Problems(), RecordedInput()
    replay = Replay(
        sides=[RecordedSide.of(option, side) for option, side in sides.items()],
        decide=Outcomes(sides["--old"]).decision,
        digest=DIGEST,
    )
    with ExitStack() as stack:
        for path in paths:
            file = stack.enter_context(ObjectFile(path))
            assert is_decision_log(file)
            found.add(file, problems)
        pods = list(found.pods(replay, problems))
    return pods, found.totals, [str(problem).replace(f"{paths[0].parent}/", "") for problem in problems.items]


def lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)


def test_a_pod_is_decided_once_as_it_was_submitted(tmp_path: Path) -> None:
    submitted, mutated = owned(asks({MIG3: 1})), owned(asks({GPU: 1}), name="rs-x2b5n")
    path = log(tmp_path / "log", served(FALLS, NO_ROOT), ("/mutate", submitted), ("/validate", mutated))
    ((found, view),), totals, problems = replayed(path, old=[FALLS, NO_ROOT], new=[NO_ROOT])
    assert found.workload == Workload(namespace="ml", kind="ReplicaSet", name="rs")
    spec: Any = found.request.object
    assert spec["spec"]["containers"][0]["resources"]["limits"] == {MIG3: "1"}
    assert not found.user_unknown
    assert [item.name for item in view.nodes] == ["a", "b"]
    assert (totals.lines, totals.admissions, totals.replayed, totals.later_calls) == (4, 2, 1, 1)
    assert (totals.differing, totals.other_rules, totals.not_replayable) == (0, 0, {})
    assert problems == []


def test_a_pod_that_only_validate_was_called_for_is_decided_by_both_endpoints(tmp_path: Path) -> None:
    state = served(FALLS, NO_ROOT, on=cluster({MIG1: 1}))
    calls = [("/mutate", owned(asks({MIG3: 1}))), ("/validate", owned(asks({GPU: 1}), "other", "other-x2b5n"))]
    pods, totals, _ = replayed(log(tmp_path / "log", state, *calls), old=[FALLS, NO_ROOT])
    assert [found.workload.name for found, _ in pods] == ["rs", "other"]
    assert (totals.replayed, totals.later_calls) == (2, 0)
    outcomes = Outcomes(compiled(ladder(GPU, rung(MIG1, assume=True))))
    assert [amount.resource for amount in outcomes.of(*pods[1]).resources] == [MIG1]


def test_an_update_is_decided_by_validate_alone(tmp_path: Path) -> None:
    made = asks({MIG3: 1}, labels={"app": "root"})
    path = log(tmp_path / "log", served(FALLS, NO_ROOT), ("/validate", made), operation="UPDATE")
    ((found, view),), totals, _ = replayed(path, old=[FALLS, NO_ROOT])
    outcome = Outcomes(compiled(FALLS, NO_ROOT)).of(found, view)
    assert (outcome.allowed, outcome.fallbacks) == (False, ())
    assert totals.replayed == 1


def test_an_update_at_mutate_is_not_decided(tmp_path: Path) -> None:
    path = log(tmp_path / "log", served(FALLS), ("/mutate", asks({MIG3: 1})), operation="UPDATE")
    pods, totals, _ = replayed(path)
    assert (pods, totals.not_replayable) == ([], {ONLY_CREATED: 1})


def test_lines_of_other_rules_and_of_other_decisions_are_counted(tmp_path: Path) -> None:
    path = log(tmp_path / "log", served(FALLS), ("/mutate", asks({MIG3: 1})), ("/mutate", asks({GPU: 1}, name="b")))
    _, totals, _ = replayed(path, old=[])
    assert (totals.differing, totals.other_rules) == (1, 0)
    path = log(tmp_path / "other", served(FALLS, digest="e"), ("/mutate", asks({MIG3: 1})))
    _, totals, _ = replayed(path, old=[])
    assert (totals.differing, totals.other_rules) == (0, 1)


def test_an_outcome_is_unknown_if_it_depends_on_devices_that_fit_together(tmp_path: Path) -> None:
    parts = (device("whole", "card", {"g/a": 2}), device("half", "part", {"g/a": 1}))
    slices = (part("0", counts={"g/a": 2}, slice_count=2), part("1", *parts, slice_count=2))
    devices = devices_of((kind_class("card", GPU), kind_class("part", MIG1)), *slices)
    on = with_device_offers(replace(cluster(node("a")), devices=devices))
    calls = [("/mutate", asks(amounts)) for amounts in ({GPU: 1, MIG1: 1}, {MIG3: 1}, {GPU: 1})]
    old, new = ladder(MIG3, GPU, MIG1), ladder(MIG3, MIG1, GPU)
    pods, totals, _ = replayed(log(tmp_path / "log", served(old, on=on), *calls), old=[old], new=[new])
    # The first pod got what is left of the card, which is not recorded.
    assert (totals.replayed, totals.differing) == (3, 0)
    before, after = ([Outcomes(compiled(rule)).of(*each) for each in pods] for rule in (old, new))
    assert [outcome.unknown for outcome in before] == [NOT_TOGETHER, "", ""]
    changes = [compare_outcomes(*both) for both in zip(before, after, strict=True)]
    assert [change.kinds if change else set() for change in changes] == [{Kind.UNKNOWN}, {Kind.RUNG}, set()]
    audited = Outcomes(compiled(replace(old, mode=Mode.AUDIT))).of(*pods[0])
    assert (audited.unknown, audited.allowed) == ("", True)
    assert compare_outcomes(before[0], Outcomes(compiled(old)).of(*pods[0])) is None


def test_a_patch_that_the_log_omits_is_not_compared(tmp_path: Path) -> None:
    path = log(tmp_path / "log", served(FALLS), ("/mutate", asks({MIG3: 1})))
    *first, last = lines(path)
    members = json.loads(last)
    assert members.pop("patch")
    for truncated, differing in (([], 1), (["patch"], 0)):
        path.write_bytes(b"".join(first) + json.dumps(members | {"truncated": truncated}).encode())
        assert replayed(path)[1].differing == differing


READS_OTHERS: Mapping[str, tuple[Rule, str]] = {
    "field": (validation("object.spec.priority == 1"), "object.spec.priority"),
    "label": (validation("object.metadata.labels.team == 'a'"), "object.metadata.labels.team"),
    "annotation": (validation("object.metadata.annotations.team == 'a'"), "object.metadata.annotations.team"),
    "user": (validation("request.userInfo.username == 'a'"), "request.userInfo.username"),
    "free": (ladder(MIG3, GPU, offered=Offered.AVAILABLE), "amounts in use"),
    "native": (ladder(MIG3, "cpu"), "amounts of cpu of nodes"),
    "any": (validation("cluster.total(object.spec.nodeName) > 1"), "amounts of any resource of nodes"),
    "namespaces": (validation("namespaceObject.metadata.name == 'a'"), "labels of namespaces"),
}


@pytest.mark.parametrize(("rule", "read"), READS_OTHERS.values(), ids=READS_OTHERS)
def test_rules_that_read_unrecorded_fields_decide_nothing(tmp_path: Path, rule: Rule, read: str) -> None:
    path = log(tmp_path / "log", served(FALLS), ("/mutate", asks({MIG3: 1})))
    for option, old, new in (("--old", [rule], []), ("--new", [FALLS], [FALLS, rule])):
        pods, totals, _ = replayed(path, old=old, new=new)
        assert pods == []
        assert totals.not_replayable == {f"the rules of {option} read {read}, which was not recorded": 1}
    path = log(tmp_path / "other", served(FALLS, rule), ("/mutate", asks({MIG3: 1})))
    assert replayed(path, new=[FALLS, rule])[1].not_replayable == {}


def affine(key: str) -> dict[str, Any]:
    terms = [{"matchExpressions": [{"key": key, "operator": "Exists"}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"affinity": {"nodeAffinity": required}}


@pytest.mark.parametrize(
    ("fields", "decided"),
    [
        ({}, True),
        ({"nodeSelector": {"zone": "a"}}, True),
        (affine("zone"), True),
        ({"nodeSelector": {"serial": "1"}}, False),
        (affine("serial"), False),
    ],
)
def test_a_pod_that_selects_nodes_by_a_label_that_is_not_in_the_view_is_counted(
    tmp_path: Path, fields: dict[str, Any], decided: bool
) -> None:
    matching = ladder(MIG3, GPU, nodes=NodeFilter(require=frozenset({NodeRequirement.MATCHES_POD})))
    nodes = [node(f"n{number}", {GPU: 1}, labels={"serial": str(number), "zone": "a"}) for number in range(70)]
    path = log(tmp_path / "log", served(matching, on=cluster(*nodes)), ("/mutate", asks({MIG3: 1}, **fields)))
    reason = "the pod selects nodes by the label serial, which was not recorded"
    _, totals, _ = replayed(path, old=[matching], new=[matching])
    assert (totals.replayed, totals.not_replayable) == ((1, {}) if decided else (0, {reason: 1}))
    selecting = ladder(MIG3, GPU, nodes=NodeFilter(LabelSelector((LabelRequirement("serial", ConditionKind.EXISTS),))))
    _, totals, _ = replayed(path, old=[matching], new=[selecting])
    assert totals.not_replayable == {"the rules of --new read the label serial of nodes, which was not recorded": 1}


def test_a_line_without_a_request_has_the_reason(tmp_path: Path) -> None:
    environment = validation("object.spec.containers.all(c, c.env.all(e, e.value != 'b'))")
    secret: Any = asks({})
    secret["spec"]["containers"][0]["env"] = [{"name": "A", "value": "secret"}]
    long = asks({}, nodeSelector={"a": "b" * MAX_LINE_BYTES})
    malformed: Any = {**asks({}), "spec": {"containers": [1]}}
    calls = [("/mutate", made) for made in (secret, long, malformed)]
    path = log(tmp_path / "log", served(environment), *calls)
    unrecorded = log(tmp_path / "unrecorded", served(), ("/mutate", asks({})), requests=False)
    assert replayed(path, unrecorded, old=[environment], new=[])[1].not_replayable == {
        "rules read values of environment variables or the last applied configuration": 1,
        "the line would have been too long to be recorded": 1,
        "the pod is malformed": 1,
        NOT_RECORDED: 1,
    }


def changed(content: bytes, **members: Any) -> bytes:
    return json.dumps(json.loads(content) | members).encode() + b"\n"


def two(path: Path) -> list[bytes]:
    """Return the lines of fields, view and a decision."""
    found = lines(log(path, served(FALLS), ("/mutate", asks({MIG3: 1}))))
    assert len(found) == 3
    return found


def in_a_circle(view: bytes) -> list[bytes]:
    """Return lines of two views that equal each other, in place of one."""
    return [changed(view, same="x", parts=0), changed(view, view="x", same=json.loads(view)["view"], parts=0)]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda fields, view, line: [fields, line], recorded_views.NOT_FOUND),
        (lambda fields, view, line: [view, line], NO_FIELDS),
        (lambda fields, view, line: [changed(fields, omitted=True), view, line], NO_FIELDS),
        (lambda fields, view, line: [fields, changed(view, omitted=True), line], recorded_views.OMITTED),
        (lambda fields, view, line: [fields, changed(view, parts=2), line], recorded_views.NOT_FOUND),
        (lambda fields, view, line: [fields, changed(view, same="x", parts=0), line], recorded_views.NOT_FOUND),
        (lambda fields, view, line: [fields, *in_a_circle(view), line], recorded_views.NOT_FOUND),
        (
            lambda fields, view, line: [fields, changed(view, nodes=[{"names": ["a"], "used": {"a": "b"}}]), line],
            recorded_views.UNREADABLE,
        ),
        (
            lambda fields, view, line: [fields, view.replace(b'"nodes":[', b'"nodes":["\xff",'), line],
            recorded_views.NOT_FOUND,
        ),
        (lambda fields, view, line: [fields, view, changed(line, request={"uid": 1})], UNREADABLE),
        (lambda fields, view, line: [fields, view, changed(line, request=1)], UNREADABLE),
        (
            lambda fields, view, line: [fields, view, changed(line, unrecorded="view")],
            "the view of the cluster was not recorded: views changed too fast, or it was too large",
        ),
        (lambda fields, view, line: [fields, view, changed(line, unrecorded="x")], NOT_RECORDED),
    ],
)
def test_a_line_that_cannot_be_decided_again_is_counted(
    tmp_path: Path, change: Callable[..., list[bytes]], reason: str
) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"".join(change(*two(path))))
    pods, totals, problems = replayed(path)
    assert (pods, totals.not_replayable, totals.replayed, totals.admissions) == ([], {reason: 1}, 0, 1)
    assert problems == []


@pytest.mark.parametrize("bound", ["MAX_NODES", "MAX_LABELS"])
def test_a_view_of_too_many_nodes_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str) -> None:
    """A few bytes of a line are a node, each with a copy of the labels of its class."""
    fields, view, line = two(tmp_path / "log")
    nodes = [{"names": ["a", "b", "c"], "labels": {"a": "1"}, "hostnames": True}]
    path = tmp_path / "log"
    path.write_bytes(fields + changed(view, nodes=nodes) + line)
    monkeypatch.setattr(views, bound, 3 if bound == "MAX_NODES" else 6)
    assert replayed(path)[1].not_replayable == {}
    monkeypatch.setattr(views, bound, 2 if bound == "MAX_NODES" else 5)
    assert replayed(path)[1].not_replayable == {recorded_views.TOO_LARGE: 1}


def test_a_log_may_grow_while_it_is_read(tmp_path: Path) -> None:
    path = log(tmp_path / "log", served(FALLS), ("/mutate", asks({MIG3: 1})))
    with ObjectFile(path) as file:
        first = file.read(MAX_LINE_BYTES)
        assert (file.read(1), file.read(1)) == (b"", b"")
        with path.open("ab") as stream:
            stream.write(first)
        file.rewind()
        assert (file.read(MAX_LINE_BYTES), file.read(1)) == (first, b"")


def test_a_log_that_becomes_shorter_is_an_error(tmp_path: Path) -> None:
    path = log(tmp_path / "log", served(FALLS), ("/mutate", asks({MIG3: 1})))
    rules = compiled(FALLS)
    replay = Replay(sides=[RecordedSide.of("--old", rules)], decide=Outcomes(rules).decision, digest=DIGEST)
    problems, found = Problems(), RecordedInput()
    with ObjectFile(path) as file:
        found.add(file, problems)
        path.write_text("")
        assert list(found.pods(replay, problems)) == []
    message = "cannot be read: it was made shorter while it was read"
    assert [problem.message for problem in problems.items] == [message]


def test_a_view_in_parts_and_an_equal_one_are_found(tmp_path: Path) -> None:
    fields, view, line = two(tmp_path / "log")
    members = json.loads(view)
    first, second = (
        {**members, "parts": 2, "part": part, "nodes": [item]} for part, item in enumerate(members["nodes"], 1)
    )
    del second["freshness"]
    same = {"record": "view", "view": "same", "same": members["view"]}
    path = tmp_path / "log"
    path.write_bytes(
        fields
        + b"".join(json.dumps(part).encode() + b"\n" for part in (second, first, first, same))
        + line
        + changed(line, view="same")
    )
    pods, totals, _ = replayed(path)
    assert [len(on.nodes) for _, on in pods] == [2, 2]
    assert pods[0][1] is pods[1][1]
    assert totals.differing == 0


def test_the_parts_of_a_view_that_equals_an_earlier_one_count_in_the_next_file(tmp_path: Path) -> None:
    fields, view, line = two(tmp_path / "log")
    known = json.loads(view)["view"]
    names = {known: "gone", "later": known}
    earlier, later = (json.dumps({"record": "view", "view": name, "same": names[name]}).encode() for name in names)
    (tmp_path / "log").write_bytes(b"\n".join([earlier, fields + view + later, line + changed(line, view="later")]))
    pods, totals, _ = replayed(tmp_path / "log")
    assert (len(pods), totals.not_replayable) == (2, {})


def test_a_view_is_kept_as_long_as_others_equal_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded_views, "MAX_VIEWS", 4)
    fields, view, line = two(tmp_path / "log")
    same = [{"record": "view", "view": f"same-{n}", "same": json.loads(view)["view"]} for n in range(9)]
    path = tmp_path / "log"
    path.write_bytes(
        fields
        + view
        + b"".join(json.dumps(members).encode() + b"\n" for members in same)
        + changed(line, view="same-8")
    )
    pods, totals, _ = replayed(path)
    assert (len(pods), totals.not_replayable) == (1, {})


def test_a_decision_may_have_a_record_in_a_member(tmp_path: Path) -> None:
    *records, line = two(tmp_path / "log")
    path = tmp_path / "log"
    path.write_bytes(b"".join([*records, changed(line, forwarded={"record": "view"})]))
    assert replayed(path)[1].replayed == 1


def test_few_views_and_lists_of_fields_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded_input, "MAX_FIELDS", 1)
    monkeypatch.setattr(recorded_views, "MAX_VIEWS", 2)
    monkeypatch.setattr(recorded_views, "MAX_CLUSTERS", 1)
    fields, view, line = two(tmp_path / "log")
    views = {name: changed(view, view=name, nodes=[{"names": [name, 1]}]) for name in "abc"}
    at = {name: changed(line, view=name) for name in "abc"}
    others = changed(fields, fields="others")
    path = tmp_path / "log"
    written = [fields, views["a"], views["b"], at["a"], at["b"], at["a"], views["c"], at["a"], at["b"], others, at["b"]]
    path.write_bytes(b"".join(written))
    pods, totals, _ = replayed(path)
    assert [[each.name for each in on.nodes] for _, on in pods] == [["a"], ["b"], ["a"], ["b"]]
    assert totals.not_replayable == {recorded_views.NOT_FOUND: 1, NO_FIELDS: 1}


def test_the_log_of_several_servers_may_be_mixed_and_have_other_lines(tmp_path: Path) -> None:
    logs = [
        lines(
            log(tmp_path / name, served(FALLS), *(("/mutate", asks({MIG3: 1}, name=f"{name}-{n}")) for n in range(5)))
        )
        for name in "ab"
    ]
    path = tmp_path / "log"
    other = [b"started\n", b"\n", b'{"level": "info"}\n', b"[1]\n", b'{"endpoint": 1, "outcome": 2}\n']
    mixed = [line for pair in zip(*logs, strict=True) for line in pair]
    path.write_bytes(b"".join([*other, *mixed, b"x" * (MAX_LINE_BYTES + 1) + b"\n", logs[0][-1][:500]]))
    pods, totals, problems = replayed(path)
    assert len(pods) == totals.replayed == 10
    assert totals.lines == 20
    assert totals.unreadable == {NO_JSON: 2, NO_DECISION: 3, TOO_LONG: 1}
    assert problems == [
        "log:1:1: warning: the line is left out: cut, or not JSON [unread-object]",
        "log:3:1: warning: the line is left out: not a line of a decision log [unread-object]",
        "log:4:1: warning: the line is left out: not a line of a decision log [unread-object]",
        "log:1:1: warning: 3 more lines are left out [unread-object]",
    ]


@pytest.mark.parametrize("content", ["", "{}\n", '{"kind": "List", "items": []}', "a: b\n", "{", '{"record": "x"}'])
def test_other_files_are_no_logs(tmp_path: Path, content: str) -> None:
    path = tmp_path / "file"
    path.write_text(content)
    with ObjectFile(path) as file:
        assert not is_decision_log(file)


@pytest.fixture(scope="module")
def whole_logs(tmp_path_factory: pytest.TempPathFactory) -> list[list[bytes]]:
    """Write the logs of two servers, with denials, updates and a view in parts."""
    folder = tmp_path_factory.mktemp("logs")
    on = cluster(*(node(f"node-{n}", {GPU: n, MIG1: 1}, labels={"a": "b" * n}) for n in range(300)))
    calls = [("/mutate", owned(asks({MIG3: 1}))), ("/validate", owned(asks({GPU: 1}), name="rs-x2b5n"))]
    calls += [(endpoint, asks({MIG1: 1}, labels={"app": "root"})) for endpoint in ("/mutate", "/validate")]
    return [lines(log(folder / name, served(FALLS, NO_ROOT, on=on), *calls)) for name in "ab"]


@given(data=st.data())
def test_any_bytes_are_read_or_counted(
    data: st.DataObject, whole_logs: list[list[bytes]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    first, second = whole_logs
    mixed = data.draw(st.permutations([*first, *second])) if data.draw(st.booleans()) else [*first, *second]
    content = bytearray(b"".join(mixed))
    for _ in range(data.draw(st.integers(0, 8))):
        begin = data.draw(st.integers(0, len(content)))
        end = min(begin + data.draw(st.sampled_from([0, 1, 7, 300, 5000])), len(content))
        content[begin:end] = data.draw(
            st.binary(max_size=3) | st.sampled_from([b"\n", b'"record"', b"null", b"[" * 3000])
        )
    path = tmp_path_factory.getbasetemp() / "any-bytes"
    path.write_bytes(bytes(content))
    with ObjectFile(path) as file:
        if not is_decision_log(file):
            return
    rules = [FALLS, NO_ROOT]
    pods, totals, _ = replayed(path, old=rules, new=rules)
    assert totals.lines == sum(1 for line in content.split(b"\n") if line.strip())
    assert totals.admissions == totals.replayed + totals.later_calls + totals.not_replayable.total()
    assert totals.replayed == len(pods)
    assert totals.lines >= totals.admissions + totals.unreadable.total()
    outcomes = Outcomes(compiled(*rules))
    for submitted, view in pods:
        outcomes.of(submitted, view)
