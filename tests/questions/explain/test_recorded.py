"""`gpu-rules explain --from-log`: decisions that a server recorded."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from rules_engine.cli.schema import load_schema
from rules_engine.language.log_lines import MAX_LINE_BYTES
from rules_engine.model.rules.rule import FailurePolicy, Rule
from rules_engine.questions.explain.recorded import MAX_RECORDS, PodName
from rules_engine.server.telemetry.decision_log import encode_line
from tests.support.authoring import cli
from tests.support.evaluation import (
    GPU,
    MIG1,
    MIG2,
    asks,
    check,
    container,
    injection,
    ladder,
    pod,
    pod_defaults,
    rung,
    validation,
)
from tests.support.telemetry import admission_record

FALLS = ladder(MIG2, rung(MIG1, when="1 > 2"), rung(GPU, assume=True))
INJECTS = injection({"cpu": 4}, gpu_type=None)
DENIES = validation(check("1 > 2", "no"), check("3 > 4", "never"))


def logged(endpoint: str, made: Any, *rules: Rule, second: int = 0, **fields: Any) -> bytes:
    """Return the line of a decision at a second of a minute."""
    record = admission_record(endpoint, made, *rules, **fields)
    assert record.decision is not None
    at = datetime(2026, 11, 22, 1, 2, second, 5, tzinfo=UTC)
    return encode_line(record, record.decision, id="a-1", at=at, view=1).text


def write_log(folder: Path, *lines: bytes) -> Path:
    path = folder / "log.jsonl"
    path.write_bytes(b"".join(lines))
    return path


def test_a_member_that_was_replaced_is_shown(tmp_path: Path) -> None:
    adds = pod_defaults("{onConflict: Overwrite, pod: {metadata: {labels: {team: ml}}}}")
    path = write_log(tmp_path, logged("/mutate", pod(container(), labels={"team": "own"}), adds))
    result = cli("explain", "--from-log", path, "--pod", "ml/job")
    assert "changed: adds labels  x.yaml:1:107 pod\n        └── labels team=ml (replaced)\n" in result.stdout


def test_a_recorded_decision_is_shown_like_an_explained_one(tmp_path: Path) -> None:
    path = write_log(tmp_path, logged("/mutate", asks({MIG2: 2}), FALLS, INJECTS))
    result = cli("explain", "--from-log", path, "--pod", "ml/job")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == (
        """\
ml/job at 2026-11-22T01:02:00.000005Z by system:admin
└── mutate
    ├── FallbackLadder/ladder  changed: nvidia.com/mig-2g.20gb → nvidia.com/gpu  rules.yaml:1:1 rungs[2]
    │   ├── main requests 2 of nvidia.com/mig-2g.20gb
    │   ├── nvidia.com/mig-2g.20gb → nvidia.com/gpu
    │   │   ├── ✗ nvidia.com/mig-2g.20gb: requested, but no node offers 2
    │   │   ├── ✗ nvidia.com/mig-1g.10gb: its condition is false  <expression>:1:1 rungs[1].when
    │   │   └── ✓ nvidia.com/gpu: assumed: nothing else is offered
    │   └── annotation gpurules.io/fallback: 2g.20gb->gpu
    └── ResourceInjection/injection  changed: 2 × nvidia.com/gpu  rules.yaml:1:1
        ├── main requests 2 of nvidia.com/gpu
        └── main  cpu: none → 8

add /metadata/annotations {"gpurules.io/fallback": "2g.20gb->gpu"}
add /spec/containers/0/resources/limits/cpu "8"
add /spec/containers/0/resources/limits/nvidia.com~1gpu "2"
remove /spec/containers/0/resources/limits/nvidia.com~1mig-2g.20gb
add /spec/containers/0/resources/requests/cpu "8"
add /spec/containers/0/resources/requests/nvidia.com~1gpu "2"
remove /spec/containers/0/resources/requests/nvidia.com~1mig-2g.20gb
allowed, changed
"""
    )


def test_a_recorded_denial_has_its_message_and_each_expression(tmp_path: Path) -> None:
    path = write_log(tmp_path, logged("/validate", asks({GPU: 1}), DENIES, dryRun=True))
    out = cli("explain", "--from-log", path, "--pod", "ml/job").stdout
    assert "by system:admin, dry run\n└── validate\n" in out
    places = "<expression>:1:1 validations[0].expression, <expression>:1:1 validations[1].expression"
    assert f"Validation/validation  denied: no; never  {places}\n" in out
    assert out.endswith("\ndenied: Validation/validation: no; never\n")


def test_a_recorded_warning_is_shown(tmp_path: Path) -> None:
    ignored = validation(check("object.spec.priority > 0"), failure_policy=FailurePolicy.IGNORE)
    path = write_log(tmp_path, logged("/validate", asks({GPU: 1}), ignored))
    out = cli("explain", "--from-log", path, "--pod", "ml/job").stdout
    assert "\nwarning: Validation/validation was ignored: " in out
    assert out.endswith("\nallowed, unchanged\n")


def test_an_unreadable_pod_and_a_shortened_line_are_shown(tmp_path: Path) -> None:
    many = pod(*[container(f"c{number}", limits={GPU: 1}) for number in range(200)])
    malformed: Any = {"metadata": {"name": "job"}, "spec": 3}
    path = write_log(tmp_path, logged("/mutate", malformed), logged("/mutate", many, INJECTS, second=1))
    out = cli("explain", "--from-log", path, "--pod", "ml/job").stdout
    assert "\nshortened in the log: patch, trace\nallowed, changed\n\nml/job at" in out
    assert out.endswith("└── mutate\n    └── refused: Invalid\n\ninvalid: Invalid\n")


def test_decisions_are_shown_newest_first_and_others_are_not(tmp_path: Path) -> None:
    seconds = (3, 1, 2)
    lines = [logged("/mutate", asks({MIG2: 1}), FALLS, second=second) for second in seconds]
    other = logged("/mutate", asks({MIG2: 1}, name="other"), FALLS)
    elsewhere = logged("/mutate", asks({MIG2: 1}), FALLS, namespace="other")
    path = write_log(tmp_path, other, *lines, elsewhere)
    out = cli("explain", "--from-log", path, "--pod", "ml/job").stdout
    assert [line[27:29] for line in out.splitlines() if line.startswith("ml/job at")] == ["03", "02", "01"]
    document = json.loads(cli("explain", "--from-log", path, "--pod", "ml/job", "--output", "json").stdout)
    assert (document["found"], document["logged"]) == (3, 5)
    assert document["decisions"] == [json.loads(lines[0]), json.loads(lines[2]), json.loads(lines[1])]
    validator = Draft202012Validator(load_schema("explain-from-log"))
    validator.validate(document)
    document["decisions"][0]["patch"][0]["op"] = "move"
    assert not validator.is_valid(document)


def test_skipped_rules_are_folded_unless_all_are_shown(tmp_path: Path) -> None:
    rules = [validation(check("1 > 2"), name=name, match_conditions={"c": "3 > 4"}) for name in ("a", "b")]
    path = write_log(tmp_path, logged("/validate", asks({GPU: 1}), *rules))
    short, whole = (cli("explain", "--from-log", path, "--pod", "ml/job", *more).stdout for more in ((), ("--all",)))
    assert "└── 2 rules skipped: 2 by a match condition (--all shows each)\n" in short
    assert "Validation/b  skipped: the match condition c is false  <expression>:1:1 matchConditions[0]" in whole


@pytest.mark.parametrize(
    ("name", "logged", "matches"),
    [
        ("train", "train", True),
        ("train", "train-1", False),
        ("train-x7k2p", "train-*", True),
        ("train-", "train-*", True),
        ("train-*", "train-*", True),
        ("train", "train-*", False),
        ("train-x7k2p", "train-x7k2p", True),
        ("train-sets-x7k2p", "train-*", False),
        ("other-x7k2p", "train-*", False),
        ("train-abcde", "train-*", False),
        (f"{'n' * 58}x7k2p", f"{'n' * 60}-*", True),
    ],
)
def test_a_name_matches_itself_and_its_generate_name(name: str, logged: str, matches: bool) -> None:
    assert PodName("ml", name).matches(logged) is matches


def test_only_the_newest_of_many_decisions_are_shown(tmp_path: Path) -> None:
    first: dict[str, Any] = json.loads(logged("/mutate", asks({MIG2: 1}), FALLS))
    lines = [json.dumps({**first, "time": f"{number:05}"}).encode() + b"\n" for number in range(MAX_RECORDS + 1)]
    result = cli("explain", "--from-log", write_log(tmp_path, *lines), "--pod", "ml/job")
    assert result.stdout.count("ml/job at 0") == MAX_RECORDS
    assert "ml/job at 00000" not in result.stdout
    assert result.stderr.endswith(f"the newest {MAX_RECORDS} of {MAX_RECORDS + 1} decisions are shown\n")


def test_lines_that_are_not_decisions_are_counted(tmp_path: Path) -> None:
    good = logged("/mutate", asks({MIG2: 1}), FALLS)
    long = b'{"endpoint": "' + b"x" * MAX_LINE_BYTES + b'", "outcome": ""}\n'
    for lines, warned in (
        ((b"\xff\n",), "1 line left out: cut, or not JSON"),
        ((b"3\n", long, b"\n", b"4\n", good[:99]), "2 lines left out: not a line of a decision log"),
    ):
        result = cli("explain", "--from-log", write_log(tmp_path, good, *lines), "--pod", "ml/job")
        assert result.exit_code == 0
        assert f":2:1: warning: {warned} [" in result.stderr


def test_members_of_a_newer_server_are_ignored_and_values_of_other_types_are_no_decision(tmp_path: Path) -> None:
    made = json.loads(logged("/mutate", asks({MIG2: 1}), FALLS))
    made["trace"][0] |= {"newer": 1, "source": "C:\\rules", "field": "f"}
    newer = {**made, "newer": {}, "outcome": "Late\x1b"}
    others: list[Any] = [{**made, "time": 1}, {**made, "trace": [{"rule": "a/b", "action": "x", "reason": ""}]}]
    path = write_log(tmp_path, *(f"{json.dumps(line)}\n".encode() for line in (newer, *others)))
    result = cli("explain", "--from-log", path, "--pod", "ml/job")
    assert "  C:\\rules f\n" in result.stdout
    assert result.stdout.endswith("late\\x1b\n")
    assert "2 lines left out: not a line of a decision log" in result.stderr


def test_a_log_may_come_from_standard_input(tmp_path: Path) -> None:
    stdin = logged("/mutate", asks({MIG2: 1}), FALLS)
    assert "allowed, changed" in cli("explain", "--from-log", "-", "--pod", "ml/job", stdin=stdin).stdout


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "log.jsonl:1:1: error: no decision: no pod was sent, or this is no decision log"),
        (b"\0\xff\n", "log.jsonl:1:1: error: no decision: no pod was sent, or this is no decision log"),
        (logged("/mutate", asks({MIG2: 1}), FALLS), "no decision for pod ml/none among 1\n"),
    ],
    ids=["empty", "binary", "other"],
)
def test_a_log_without_the_pod_is_exit_code_2(tmp_path: Path, content: bytes, message: str) -> None:
    result = cli("explain", "--from-log", write_log(tmp_path, content), "--pod", "ml/none")
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr


def test_control_characters_in_names_are_escaped(tmp_path: Path) -> None:
    log = tmp_path / "a\x1b.jsonl"
    log.write_bytes(logged("/mutate", asks({MIG2: 1}), FALLS))
    result = cli("explain", "--from-log", log, "--pod", "ml/\x07")
    name = str(log).replace("\x1b", "\\x1b")
    assert result.stderr == f"gpu-rules explain: {name}: no decision for pod ml/\\x07 among 1\n"


def test_a_log_that_cannot_be_read_is_exit_code_2() -> None:
    result = cli("explain", "--from-log", "/proc/self/mem", "--pod", "ml/none")
    assert result.exit_code == 2
    assert "/proc/self/mem:1:1: error: cannot be read: " in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--from-log", "LOG"], "--from-log requires --pod"),
        (["--pod", "ml/job"], "--pod requires --from-log"),
        (["--from-log", "LOG", "--pod", "job"], "--pod must be NAMESPACE/NAME, not 'job'"),
        (["--from-log", "LOG", "--pod", "ml/job", "-f", "LOG"], "--filename cannot be used with --from-log"),
        (["--from-log", "LOG", "--pod", "ml/job", "--rules", "LOG"], "--rules cannot be used with --from-log"),
        (["--from-log", "none.jsonl", "--pod", "ml/job"], "'none.jsonl' does not exist"),
        ([], "Missing option '-f'"),
    ],
)
def test_wrong_options_are_usage_errors(tmp_path: Path, arguments: list[str], message: str) -> None:
    path = str(write_log(tmp_path, b""))
    result = cli("explain", *[path if argument == "LOG" else argument for argument in arguments])
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr


def test_a_log_without_the_pod_leaves_problems_alone_in_json(tmp_path: Path) -> None:
    log = write_log(tmp_path, logged("/mutate", asks({MIG2: 2}), ladder(MIG2, MIG1)))
    result = cli("explain", "--from-log", str(log), "--pod", "ml/other", "-o", "json")
    assert (result.exit_code, result.stderr) == (2, "")
    answer = json.loads(result.stdout)
    assert [(each["code"], each["source"]["file"]) for each in answer["problems"]] == [("no-answer", str(log))]
    assert answer.keys() == {"problems"}
