"""Recorded admissions: each pod of a decision log is decided once, as it was submitted."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules_engine.language.log_lines import MAX_LINE_BYTES
from rules_engine.model.kubernetes.cluster import Cluster
from rules_engine.model.kubernetes.kept_fields import LAST_APPLIED
from rules_engine.model.problems.problem import Problems
from rules_engine.model.rules.admission import AdmissionRequest, pod_request
from rules_engine.model.rules.logged_decision import LEFT_OUT, reduce_request
from rules_engine.model.rules.rule import FailurePolicy, Match, Operation, Rule
from rules_engine.questions.decision_log import NO_DECISION, NO_JSON, TOO_LONG
from rules_engine.questions.diff.comparison import compare_outcomes
from rules_engine.questions.diff.input.recorded_input import NOT_RECORDED, UNREADABLE, RecordedInput
from rules_engine.questions.diff.outcomes import Outcomes
from rules_engine.questions.diff.values import Kind, RecordedAdmissions, SubmittedPods, WorkloadName
from rules_engine.server.state import ServerState
from tests.support.evaluation import GPU, MIG1, MIG3, asks, check, cluster, compiled, ladder, rung, validation
from tests.support.recorded import Call, recorded_log, recording

FALLS = ladder(MIG3, rung(GPU, assume=True))
CREATED_OR_UPDATED = Match(operations=(Operation.CREATE, Operation.UPDATE))
NO_ROOT = validation("object.metadata.?labels.?app.orValue('') != 'root'", match=CREATED_OR_UPDATED)
ON = cluster({GPU: 2})


def owned(made: Any, owner: str = "rs", name: str = "") -> Any:
    """Return a pod of a ReplicaSet; /validate gets the name that the API server makes."""
    reference = {"kind": "ReplicaSet", "name": owner, "controller": True}
    metadata = {key: value for key, value in made["metadata"].items() if key != "name"}
    metadata |= {"generateName": f"{owner}-", "ownerReferences": [reference]}
    return {**made, "metadata": metadata | ({"name": name} if name else {})}


def log(path: Path, *calls: Call, state: ServerState = recording(FALLS, NO_ROOT, on=ON), **fields: Any) -> Path:  # noqa: B008
    return recorded_log(path, state, calls, **fields)


def replayed(path: Path, *others: Path) -> tuple[list[SubmittedPods], RecordedAdmissions, list[str]]:
    """Return the pods of a log, to which the others are appended, the totals and the problems."""
    path.write_bytes(b"".join(each.read_bytes() for each in (path, *others)))
    problems = Problems()
    found = RecordedInput(path, problems)
    pods = list(found.pods())
    return pods, found.totals, [str(problem).replace(f"{path.parent}/", "") for problem in problems.items]


def lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)


def test_a_pod_is_decided_once_as_it_was_submitted(tmp_path: Path) -> None:
    submitted, mutated = owned(asks({MIG3: 1})), owned(asks({GPU: 1}), name="rs-x2b5n")
    user = {"username": "ada"}
    # The log of one server may follow that of another.
    paths = [log(tmp_path / "b", ("/validate", mutated)), log(tmp_path / "a", ("/mutate", submitted), userInfo=user)]
    (found,), totals, problems = replayed(*paths)
    assert found.workload == WorkloadName(namespace="ml", kind="ReplicaSet", name="rs")
    assert (found.request.object, found.request.raw["userInfo"]) == (submitted, user)
    assert found.missing == {}
    assert (totals.lines, totals.admissions, totals.replayed, totals.later_calls) == (2, 2, 1, 1)
    assert (totals.not_replayable, totals.unreadable, problems) == ({}, {}, [])


@given(data=st.data())
def test_lines_in_any_order_are_the_same_pods(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("logs") / "log"
    named = [(endpoint, asks({GPU: 1}, name=name)) for name in "ab" for endpoint in ("/mutate", "/validate")]
    calls = [("/mutate", owned(asks({MIG3: 1}))), ("/validate", owned(asks({GPU: 1}), name="rs-x2b5n"))]
    alone = ("/validate", owned(asks({GPU: 1}), "other", "other-x2b5n"))
    whole = lines(log(path, *named, *calls, alone))
    path.write_bytes(b"".join(whole[number] for number in data.draw(st.permutations(range(len(whole))))))
    pods, totals, _ = replayed(path)
    assert sorted(found.workload.name for found in pods) == ["a", "b", "other", "rs"]
    assert (totals.replayed, totals.later_calls) == (4, 3)


def test_a_pod_with_a_name_is_decided_once(tmp_path: Path) -> None:
    pods, totals, _ = replayed(log(tmp_path / "log", ("/mutate", asks({MIG3: 1})), ("/validate", asks({GPU: 1}))))
    assert [found.workload.kind for found in pods] == ["Pod"]
    assert totals.later_calls == 1


def test_a_pod_that_only_validate_was_called_for_is_decided_by_both_endpoints(tmp_path: Path) -> None:
    calls = [("/mutate", owned(asks({MIG3: 1}))), ("/validate", owned(asks({GPU: 1}), "other", "other-x2b5n"))]
    pods, totals, _ = replayed(log(tmp_path / "log", *calls))
    assert [found.workload.name for found in pods] == ["rs", "other"]
    assert (totals.replayed, totals.later_calls) == (2, 0)
    outcomes = Outcomes(compiled(ladder(GPU, rung(MIG1, assume=True))))
    assert [amount.resource for amount in outcomes.of(pods[1], cluster({MIG1: 1})).resources] == [MIG1]


def test_pods_of_other_rules_are_other_pods(tmp_path: Path) -> None:
    logs = [
        log(tmp_path / endpoint, (f"/{endpoint}", asks({MIG3: 1})), state=recording(on=ON, digest=endpoint))
        for endpoint in ("mutate", "validate")
    ]
    assert replayed(*logs)[1].replayed == 2


@pytest.mark.parametrize("endpoints", [("/validate",), ("/mutate", "/validate")])
def test_an_update_is_decided_once_by_validate_alone(tmp_path: Path, endpoints: tuple[str, ...]) -> None:
    made = asks({MIG3: 1}, labels={"app": "root"})
    created = ("/mutate", made)
    path = log(tmp_path / "log", created)
    updated = log(tmp_path / "updated", *((endpoint, made) for endpoint in endpoints), operation="UPDATE")
    (_, found), totals, _ = replayed(path, updated)
    outcome = Outcomes(compiled(FALLS, NO_ROOT)).of(found, ON)
    assert (outcome.allowed, outcome.fallbacks) == (False, ())
    assert totals.replayed == 2


# What is left out

READS_COMMAND = validation("object.spec.containers.all(c, !has(c.command))", name="command")


def test_a_rule_that_reads_what_was_left_out_makes_the_pod_unknown(tmp_path: Path) -> None:
    bare: Any = asks({}, name="bare")
    secret: Any = asks({}, name="secret")
    secret["spec"]["containers"][0] |= {"command": ["run"], "env": [{"name": "A", "value": "b"}]}
    plain, reduced = replayed(log(tmp_path / "log", ("/mutate", bare), ("/mutate", secret)))[0]
    assert reduced.missing == {name: LEFT_OUT[name] for name in reduced.missing}
    assert [*reduced.missing] == ["object.spec.containers.command", "object.spec.containers.env.value"]
    rules = Outcomes(compiled(READS_COMMAND, NO_ROOT))
    assert (rules.of(plain, ON).unknown, rules.of(plain, ON).allowed) == ("", True)
    outcome = rules.of(reduced, ON)
    assert outcome.unknown == f"{READS_COMMAND.id} reads object.spec.containers.command"
    assert compare_outcomes(outcome, rules.of(reduced, ON)) is None
    change = compare_outcomes(Outcomes(compiled(NO_ROOT)).of(reduced, ON), outcome)
    assert change is not None
    assert change.kinds == (Kind.UNKNOWN,)
    both = validation("object.spec == oldObject.spec", name="both")
    assert Outcomes(compiled(both)).of(reduced, ON).unknown == (
        f"{both.id} reads object.spec.containers.command, object.spec.containers.env.value"
    )


EXPRESSIONS = (
    "has(object.spec.containers[0].command)",
    "object.spec.containers.all(c, c.?env.orValue([]).all(e, e.?value.orValue('') != 'a'))",
    "object.spec.containers.all(c, c.?env.orValue([]).all(e, e.name != 'a'))",
    "object.spec.containers.all(c, c.size() > 2)",
    "object.spec.containers.size() > 1",
    "object.spec.containers[0].image == 'a'",
    "object.spec.?initContainers.orValue([]).all(c, c.?args.orValue([]).size() < 2)",
    "size(object.metadata.annotations) > 1",
    "'a' in object.metadata.annotations",
    f"'{LAST_APPLIED}' in object.metadata.annotations",
    "object.metadata.?managedFields.orValue([]).size() > 0",
    "request.userInfo.username == 'ada'",
    "variables.first.?command.orValue([]).size() > 0",
    "object.metadata.name == 'p'",
)


@st.composite
def made_pods(draw: st.DrawFn) -> Any:
    """Generate pods with secrets and without."""
    value = st.sampled_from(["a", "b"])
    optional = {
        "image": value,
        "args": st.lists(value, max_size=2),
        "command": st.lists(value, max_size=1),
        "env": st.lists(st.fixed_dictionaries({"name": value}, optional={"value": value}), max_size=2),
    }
    containers = st.lists(st.fixed_dictionaries({"name": value}, optional=optional), min_size=1, max_size=2)
    spec = st.fixed_dictionaries({"containers": containers}, optional={"initContainers": containers})
    annotations = st.dictionaries(st.sampled_from(["a", "b", LAST_APPLIED]), value, max_size=2)
    metadata = {"name": st.just("p"), "annotations": annotations}
    fields = st.fixed_dictionaries(metadata, optional={"managedFields": st.just([{"manager": "a"}])})
    return draw(st.fixed_dictionaries({"metadata": fields, "spec": spec}))


@st.composite
def rules(draw: st.DrawFn) -> list[Rule]:
    expression = st.sampled_from(EXPRESSIONS)
    return [
        validation(
            check(draw(expression), draw(st.sampled_from(["no", "never"]))),
            name=f"v{number}",
            variables={"first": "object.spec.containers[0]"},
            match_conditions=draw(st.dictionaries(st.sampled_from("xy"), expression, max_size=1)),
            failure_policy=draw(st.sampled_from(FailurePolicy)),
        )
        for number in range(draw(st.integers(1, 3)))
    ]


@given(st.data(), made_pods(), rules(), rules())
def test_a_known_outcome_is_that_of_the_whole_request(
    data: st.DataObject, made: Any, pool: list[Rule], others: list[Rule]
) -> None:
    workload, on = WorkloadName(namespace="ml", kind="Pod", name="p"), Cluster()
    whole = SubmittedPods(workload=workload, request=pod_request(made, namespace="ml"), missing={})
    reduced, names = reduce_request(whole.request.raw)
    request = AdmissionRequest.parse(orjson.loads(orjson.dumps(reduced)))
    recorded = SubmittedPods(workload=workload, request=request, missing={name: LEFT_OUT[name] for name in names})
    chosen = [compiled(*data.draw(st.lists(st.sampled_from(pool), unique_by=lambda rule: rule.id))), compiled(*others)]
    old, new = map(Outcomes, chosen)
    outcomes = [sides.of(recorded, on) for sides in (old, new)]
    for sides, outcome in zip((old, new), outcomes, strict=True):
        if not outcome.unknown:
            assert outcome == sides.of(whole, on)
    if compare_outcomes(*outcomes) is None:
        assert compare_outcomes(old.of(whole, on), new.of(whole, on)) is None


# Lines


def changed(content: bytes, **members: Any) -> bytes:
    found = json.loads(content) | members
    return json.dumps({name: value for name, value in found.items() if value is not ...}).encode() + b"\n"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda line: changed(line, request=...), NOT_RECORDED),
        (lambda line: changed(line, leftOut=...), NOT_RECORDED),
        (lambda line: changed(line, leftOut=["object.spec"]), UNREADABLE),
        (lambda line: changed(line, request={"uid": 1}), UNREADABLE),
        (lambda line: changed(line, request=1), UNREADABLE),
        (lambda line: line.replace(b'"request":{"', b'"request":{"\xff'), UNREADABLE),
    ],
)
def test_a_line_that_cannot_be_decided_again_is_counted(
    tmp_path: Path, change: Callable[[bytes], bytes], reason: str
) -> None:
    path = log(tmp_path / "log", ("/mutate", asks({MIG3: 1})))
    [line] = lines(path)
    path.write_bytes(change(line))
    pods, totals, problems = replayed(path)
    assert (pods, totals.not_replayable, totals.replayed, totals.admissions) == ([], {reason: 1}, 0, 1)
    assert problems == []


def test_requests_that_were_not_recorded_or_too_long_are_counted(tmp_path: Path) -> None:
    long = asks({}, nodeSelector={"a": "b" * MAX_LINE_BYTES})
    path = log(tmp_path / "log", ("/mutate", long))
    unrecorded = log(tmp_path / "unrecorded", ("/mutate", asks({})), requests=False)
    assert replayed(path, unrecorded)[1].not_replayable == {NOT_RECORDED: 2}


@pytest.mark.parametrize("content", [b"", b"{}\n", b"kind: Pod\n"])
def test_a_file_without_a_decision_is_an_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "log").write_bytes(content)
    *_, problem = replayed(tmp_path / "log")[2]
    assert problem == "log:1:1: error: no decision: no pod was sent, or this is no decision log [not-a-pod]"


def test_a_log_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    problems = Problems()
    assert list(RecordedInput(tmp_path, problems).pods()) == []
    assert [problem.message for problem in problems.items] == ["cannot be read: Is a directory"]


def test_the_log_of_several_servers_may_be_mixed_and_have_other_lines(tmp_path: Path) -> None:
    logs = [
        lines(log(tmp_path / name, *(("/mutate", asks({MIG3: 1}, name=f"{name}-{n}")) for n in range(5))))
        for name in "ab"
    ]
    path = tmp_path / "log"
    other = [b"started\n", b"\n", b'{"level": "info"}\n', b"[1]\n", b'{"endpoint": 1, "outcome": 2}\n']
    mixed = [line for pair in zip(*logs, strict=True) for line in pair]
    path.write_bytes(b"".join([*other, *mixed, b"x" * (MAX_LINE_BYTES + 1) + b"\n", logs[0][-1][:500]]))
    pods, totals, problems = replayed(path)
    assert len(pods) == totals.replayed == 10
    assert totals.lines == 16
    assert totals.unreadable == {NO_JSON: 2, NO_DECISION: 3, TOO_LONG: 1}
    assert problems == [
        "log:1:1: warning: 2 lines left out: cut, or not JSON [unread-object]",
        "log:3:1: warning: 3 lines left out: not a line of a decision log [unread-object]",
        "log:16:1: warning: 1 line left out: longer than 131,072 bytes [unread-object]",
    ]


@pytest.fixture(scope="module")
def whole_log(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """Write a log with denials."""
    calls = [("/mutate", owned(asks({MIG3: 1}))), ("/validate", owned(asks({GPU: 1}), name="rs-x2b5n"))]
    calls += [(endpoint, asks({MIG1: 1}, labels={"app": "root"})) for endpoint in ("/mutate", "/validate")]
    return lines(log(tmp_path_factory.mktemp("logs") / "log", *calls))


@given(data=st.data())
def test_any_bytes_are_read_or_counted(
    data: st.DataObject, whole_log: list[bytes], tmp_path_factory: pytest.TempPathFactory
) -> None:
    content = bytearray(b"".join(data.draw(st.permutations([*whole_log, *whole_log]))))
    for _ in range(data.draw(st.integers(0, 8))):
        begin = data.draw(st.integers(0, len(content)))
        end = min(begin + data.draw(st.sampled_from([0, 1, 7, 300, 5000])), len(content))
        content[begin:end] = data.draw(st.binary(max_size=3) | st.sampled_from([b"\n", b"null", b"[" * 3000]))
    path = tmp_path_factory.getbasetemp() / "any-bytes"
    path.write_bytes(bytes(content))
    pods, totals, _ = replayed(path)
    assert totals.lines == sum(1 for line in content.split(b"\n") if line.strip())
    assert totals.lines == totals.admissions + sum(totals.unreadable.values())
    assert totals.admissions == totals.replayed + totals.later_calls + sum(totals.not_replayable.values())
    assert totals.replayed == len(pods)
    outcomes = Outcomes(compiled(FALLS, NO_ROOT))
    for submitted in pods:
        outcomes.of(submitted, ON)
