"""`gpu-rules audit`: what rules in audit mode would have done, by decision logs."""

import json
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from rules_engine.cli.schema import load_schema
from rules_engine.language.log_lines import MAX_LINE_BYTES
from rules_engine.model.kubernetes.api_defaults import without_generated_end
from rules_engine.model.rules.decision import Action, Decision
from rules_engine.model.rules.rule import FailurePolicy, Mode, Rule
from rules_engine.questions import audit
from rules_engine.questions.audit import AuditAnswer, audit_logs
from rules_engine.rules.ladder.value import WhenExhausted
from rules_engine.rules.validation.value import ValidationAction
from rules_engine.server.http.admission_record import AdmissionRecord
from rules_engine.server.telemetry.decision_log import encode_line
from tests.support.authoring import cli
from tests.support.evaluation import (
    GPU,
    MIG1,
    MIG2,
    MIG3,
    asks,
    check,
    cluster,
    compiled,
    container,
    injection,
    ladder,
    pod,
    pod_defaults,
    rung,
    validation,
)
from tests.support.states import state_of
from tests.support.telemetry import admission_record

AUDIT: Any = {"mode": Mode.AUDIT}
FALLS = ladder(MIG2, rung(GPU, assume=True), **AUDIT)
DENIES = validation(check("has(object.metadata.labels)", "no label"), **AUDIT)


def line(record: AdmissionRecord, decision: Decision, second: int = 0) -> bytes:
    """Return the line of a decision at a second of a minute."""
    at = datetime(2026, 11, 22, 1, 2, second, 5, tzinfo=UTC)
    return encode_line(record, decision, id="a-1", at=at, view=1).text


def logged(endpoint: str, made: Any, *rules: Rule, second: int = 0, **fields: Any) -> bytes:
    record = admission_record(endpoint, made, *rules, **fields)
    assert record.decision is not None
    return line(record, record.decision, second)


def owned(made: Any, kind: str, name: str) -> Any:
    """Return a pod of a controller, before the API server generates its name."""
    reference = {"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": "1", "controller": True}
    metadata = {key: value for key, value in made["metadata"].items() if key != "name"}
    return {**made, "metadata": {**metadata, "generateName": f"{name}-", "ownerReferences": [reference]}}


def log(folder: Path, *lines: bytes, name: str = "log.jsonl") -> Path:
    path = folder / name
    path.write_bytes(b"".join(lines))
    return path


def read(*paths: Path) -> AuditAnswer:
    return audit_logs(paths)


def test_results_are_grouped_by_rule_outcome_namespace_and_owner(tmp_path: Path) -> None:
    serves = [owned(asks({MIG2: 1}, labels={}), "ReplicaSet", f"serve-{end}") for end in ("6d9f7c5b8d", "7f8b9c6d54")]
    trains = owned(asks({MIG2: 2}), "Job", "train-29123456")
    notebook = asks({GPU: 1}, name="notebook")
    path = log(
        tmp_path,
        *(logged("/mutate", made, FALLS, second=second) for second, made in enumerate(serves)),
        logged("/mutate", trains, FALLS, namespace="research", second=2),
        logged("/mutate", notebook, FALLS, second=3),
        *(logged("/validate", made, DENIES, second=4) for made in (*serves, notebook)),
        logged("/validate", trains, DENIES, namespace="research", second=5),
    )
    result = cli("audit", path)
    assert (result.exit_code, result.stderr) == (1, "")
    assert result.stdout.replace(str(path), "LOG") == (
        """\
Audit
  LOG
  8 decisions, by rules in audit mode: 3 changed, 2 denied, 1 unchanged
  from 2026-11-22T01:02:00Z to 2026-11-22T01:02:05Z

Results  3 results
  FallbackLadder/ladder  changed: nvidia.com/mig-2g.20gb → nvidia.com/gpu  3 decisions
    NAMESPACE  OWNER               DECISIONS  NEWEST                POD
    ml         ReplicaSet serve-*          2  2026-11-22T01:02:01Z  serve-7f8b9c6d54-*
    research   Job train-*                 1  2026-11-22T01:02:02Z  train-29123456-*

  Validation/validation  denied  2 decisions
    message: no label
    NAMESPACE  OWNER         DECISIONS  NEWEST                POD
    ml         Pod notebook          1  2026-11-22T01:02:04Z  notebook
    research   Job train-*           1  2026-11-22T01:02:05Z  train-29123456-*

  FallbackLadder/ladder  unchanged  1 decision
    message: nvidia.com/gpu is assumed
    NAMESPACE  OWNER         DECISIONS  NEWEST                POD
    ml         Pod notebook          1  2026-11-22T01:02:03Z  notebook
"""
    )


def test_the_json_has_every_group_with_its_newest_example(tmp_path: Path) -> None:
    made = owned(asks({MIG2: 1}), "Job", "train-x7k2p")
    late, early = (logged("/mutate", made, FALLS, second=second) for second in (9, 1))
    path = log(tmp_path, late, early)
    result = cli("audit", path, "-o", "json")
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    Draft202012Validator(load_schema("audit")).validate(document)
    assert document["groups"] == [
        {
            "rule": "FallbackLadder/ladder",
            "action": "change",
            "failed": False,
            "namespace": "ml",
            "kind": "Job",
            "name": "train-*",
            "decisions": 2,
            "time": "2026-11-22T01:02:09Z",
            "pod": "train-x7k2p-*",
            "message": f"{MIG2} → {GPU}",
        }
    ]
    assert (document["first"], document["last"]) == ("2026-11-22T01:02:01Z", "2026-11-22T01:02:09Z")


@pytest.mark.parametrize("output", ["html", "markdown"])
def test_a_page_and_a_comment_have_the_results(tmp_path: Path, output: str) -> None:
    path = log(tmp_path, logged("/validate", asks({GPU: 1}, name="a-b"), DENIES))
    page = tmp_path / "page"
    assert cli("audit", path, "-o", f"{output}={page}").exit_code == 1
    assert all(text in page.read_text() for text in ("Validation/validation", "no label", "Pod a-b"))


def test_results_of_other_rules_and_skipped_rules_do_not_count(tmp_path: Path) -> None:
    enforced = validation(check("1 > 2", "no"), name="enforced")
    passes = validation("2 > 1", name="passes", **AUDIT)
    skipped = validation("1 > 2", name="skipped", match_conditions={"never": "1 > 2"}, **AUDIT)
    path = log(tmp_path, logged("/validate", asks({GPU: 1}), enforced, passes, skipped))
    result = cli("audit", path)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines()[2] == "  1 decision, by rules in audit mode: no result"
    assert "Results" not in result.stdout


@pytest.mark.parametrize(
    ("policy", "outcome", "code"),
    [(FailurePolicy.FAIL, "denied, since it failed", 1), (FailurePolicy.IGNORE, "ignored, since it failed", 0)],
)
def test_a_rule_that_fails_is_reported_with_its_reason(
    tmp_path: Path, policy: FailurePolicy, outcome: str, code: int
) -> None:
    fails = validation(check("object.spec.priority > 0"), failure_policy=policy, **AUDIT)
    result = cli("audit", log(tmp_path, logged("/validate", asks({GPU: 1}), fails)))
    assert result.exit_code == code
    assert f"  Validation/validation  {outcome}  1 decision\n    message: " in result.stdout
    assert "object.spec.priority: no such key" in result.stdout


def test_several_logs_are_added_and_each_is_read_once(tmp_path: Path) -> None:
    text = logged("/mutate", asks({MIG2: 1}), FALLS)
    paths = [log(tmp_path, text, text, name="a"), log(tmp_path, text, name="b")]
    document = json.loads(cli("audit", *paths, paths[0], "-", "-o", "json", stdin=text).stdout)
    assert (document["decisions"], document["groups"][0]["decisions"]) == (4, 4)
    assert document["logs"] == [*map(str, paths), "<stdin>"]


def test_lines_that_are_no_decisions_are_counted_and_named(tmp_path: Path) -> None:
    good = logged("/mutate", asks({MIG2: 1}), FALLS)
    long = b'{"endpoint": "' + b"x" * MAX_LINE_BYTES + b'"}\n'
    path = log(tmp_path, good, b"{}\n", b"started\n", b"\n", long, b"{}\n", b"{}\n", good[:99])
    result = cli("audit", path)
    assert result.exit_code == 0
    assert result.stderr == (
        f"{path}:2:1: warning: 3 lines left out: not a line of a decision log [unread-object]\n"
        f"{path}:3:1: warning: 2 lines left out: cut, or not JSON [unread-object]\n"
        f"{path}:5:1: warning: 1 line left out: longer than 131,072 bytes [unread-object]\n"
    )
    answer = read(path)
    assert (answer.decisions, len(answer.problems)) == (1, 3)


@pytest.mark.parametrize("content", [b"", b"\0\xff\n", b"kind: Pod\n"], ids=["empty", "binary", "manifest"])
def test_a_file_without_a_decision_is_exit_code_2(tmp_path: Path, content: bytes) -> None:
    paths = log(tmp_path, logged("/mutate", asks({MIG2: 1}), FALLS)), log(tmp_path, content, name="other")
    result = cli("audit", *paths)
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"{paths[1]}:1:1: error: no decision: no pod was sent, or this is no decision log" in result.stderr
    document = json.loads(cli("audit", *paths, "-o", "json").stdout)
    assert document.keys() == {"problems"}


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/proc/self/mem", "/proc/self/mem:1:1: error: cannot be read: "),
        ("none.jsonl", "File 'none.jsonl' does not exist."),
    ],
)
def test_a_log_that_cannot_be_read_is_exit_code_2(path: str, message: str) -> None:
    result = cli("audit", path)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr


def test_what_an_outlined_line_lacks_is_reported(tmp_path: Path) -> None:
    many = pod(*[container(f"c{number:050}", limits={GPU: 1}) for number in range(200)])
    text = logged("/mutate", many, injection({"cpu": 4}, gpu_type=None, **AUDIT))
    assert json.loads(text)["truncated"] == ["trace"]
    result = cli("audit", log(tmp_path, text))
    assert "\n  ResourceInjection/injection  changed  1 decision\n" in result.stdout
    assert result.stdout.endswith(
        "\n  1 decision too long for a line: without changes and messages, perhaps without some results\n"
    )


@pytest.mark.parametrize("audit", [True, False])
def test_pods_that_a_server_in_audit_cannot_read_are_counted(tmp_path: Path, audit: bool) -> None:
    state = state_of(compiled(FALLS))
    state.audit = audit
    malformed = pod(container("c", limits={GPU: "much"}))
    path = log(tmp_path, *(logged(endpoint, malformed, state=state) for endpoint in ("/mutate", "/validate")))
    result = cli("audit", path)
    # A server in mode Enforce has denied it, and reports that itself.
    assert result.exit_code == int(audit)
    notice = "\n  1 decision about a pod that the server cannot read: mode Enforce denies it\n"
    assert result.stdout.endswith(notice) is audit


def test_beyond_a_number_of_groups_results_are_counted_by_rule_and_action(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "MAX_GROUPS", 2)
    path = log(tmp_path, *(logged("/validate", asks({GPU: 1}, name=name), DENIES) for name in "abcdb"))
    answer = read(path)
    assert [(each.namespace, each.kind, each.name, each.decisions) for each in answer.groups] == [
        ("ml", "Pod", "b", 2),
        ("", "", "", 2),
        ("ml", "Pod", "a", 1),
    ]
    text = cli("audit", path).stdout
    assert "    others " in text
    assert text.endswith("\n  results beyond 2 groups are counted by rule and action only\n")


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("serve-6d9f7c5b8d", "serve-*"),  # a ReplicaSet
        ("train-x7k2p", "train-*"),  # generateName
        ("nightly-29123456", "nightly-*"),  # a CronJob's Job
        ("train-*", "train-*"),
        ("web-0", "web-0"),
        ("llama-batch", "llama-batch"),
        ("x7k2p", "x7k2p"),
        ("resnet-50", "resnet-50"),
    ],
)
def test_generated_ends_of_names_are_cut(name: str, shown: str) -> None:
    assert without_generated_end(name) == shown


# In audit mode, the log has what the same rules do when they are enforced

PODS = 500
RULES = (
    ladder(MIG3, MIG2, GPU, when_exhausted=WhenExhausted.DENY),
    pod_defaults("{match: {resources: [nvidia.com/*]}, pod: {metadata: {labels: {pool: gpu}}}}"),
    injection({"cpu": 4}, gpu_type=None),
    validation(check("object.metadata.?labels.?team.orValue('') != 'x'", "no team x"), name="team"),
    validation(
        check("object.metadata.?labels.?team.orValue('') != ''", "no team"),
        name="label",
        validation_actions=frozenset({ValidationAction.WARN}),
    ),
)

Effects = Counter[tuple[str, str, str]]
"""Numbers of pods by rule, effect and namespace."""


def generated_pods() -> Iterator[tuple[Any, str]]:
    """Yield pods with their namespaces."""
    random = Random(69)
    for number in range(PODS):
        amounts = {random.choice([MIG3, MIG2, MIG1, GPU, "cpu"]): random.choice([1, 2, 9])}
        team = random.choice(["", "x", "a", "b"])
        labels = {key: value for key, value in {"team": team, "pool": random.choice(["", "gpu"])}.items() if value}
        made = asks(amounts, name=f"p{number}", labels=labels)
        owner = random.choice(["a", "b-x7k2p"])
        yield owned(made, "Job", owner) if random.random() < 0.7 else made, random.choice(["ml", "research", "web"])


def effects_of(before: Any, mutation: Decision, validation: Decision | None) -> Iterator[tuple[str, str]]:
    """Yield rules with what they did to a pod, by the pod as it is stored and the responses to it."""
    after: Any = mutation.result
    if not mutation.allowed:  # the response does not have what other rules changed
        yield from ((step.rule, "change") for step in mutation.trace if step.action is Action.CHANGE)
    else:
        (had,), (has,) = (
            [name for name in made["spec"]["containers"][0]["resources"]["limits"] if name.startswith("nvidia.com/")]
            or [""]
            for made in (before, after)
        )
        if had != has:
            yield "FallbackLadder/ladder", f"change: {had} → {has}"
        if "pool" not in before["metadata"]["labels"] and "pool" in after["metadata"]["labels"]:
            yield "PodDefaults/defaults", "change"
        if has and "cpu" in after["spec"]["containers"][0]["resources"]["limits"]:
            yield "ResourceInjection/injection", "change"
    for decision in filter(None, (mutation, validation)):
        if decision.status is not None:
            yield decision.status.message.partition(":")[0], "deny"
        for warning in decision.warnings:
            if "no team" in warning:
                yield "Validation/label", "warn"


def test_a_server_in_audit_reports_what_it_would_do_in_enforce(tmp_path: Path) -> None:
    rules, nodes = compiled(*RULES), cluster({GPU: 8, MIG2: 1})
    state, shadow = state_of(rules, nodes), state_of(rules, nodes)
    shadow.audit = True
    enforced, lines = Effects(), list[bytes]()
    for made, namespace in generated_pods():
        mutation = admission_record("/mutate", made, state=state, namespace=namespace).decision
        assert mutation is not None
        stored = mutation.result
        validation = (
            admission_record("/validate", stored, state=state, namespace=namespace).decision
            if mutation.allowed
            else None
        )
        for rule, effect in effects_of(made, mutation, validation):
            enforced[rule, effect, namespace] += 1
        for path in ("/mutate", "/validate"):
            record = admission_record(path, made, state=shadow, namespace=namespace)
            assert record.decision is not None
            assert (record.decision.allowed, record.decision.patch) == (True, ())
            lines.append(line(record, record.decision))
    audited = Effects()
    for group in read(log(tmp_path, *lines)).groups:
        if group.action is not Action.KEEP:
            moved = group.rule.startswith("FallbackLadder") and group.action is Action.CHANGE and group.message
            move = f": {moved}" if moved else ""
            audited[group.rule, f"{group.action.value}{move}", group.namespace] += group.decisions
    assert audited == enforced
    assert len({(rule, effect) for rule, effect, _ in enforced}) >= 7
