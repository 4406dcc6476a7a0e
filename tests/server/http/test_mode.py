"""Mode Audit and the namespaces of a server: the rules are evaluated as they are declared, and nothing takes effect."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.api_defaults import with_default_members, with_default_requests
from rules_engine.model.kubernetes.cluster import Cluster
from rules_engine.model.rules.rule import Match, Operation, Rule
from rules_engine.server.http.admission_record import AdmissionRecord
from rules_engine.server.settings import ServerSettings
from rules_engine.server.state import ServerState
from rules_engine.server.telemetry.events import admission_events
from tests.support.apiserver import ApiServer, bound, node
from tests.support.authoring import ladder, validation
from tests.support.evaluation import GPU, MIG2, asks, cluster, compiled, container, limited, pod, rung
from tests.support.evaluation import ladder as ladder_of
from tests.support.evaluation import validation as validation_of
from tests.support.laws import GPUS, clusters
from tests.support.operating import METRICS, fetched, metrics_url, rules_report, saying, until
from tests.support.patching import apply_json
from tests.support.server import Answer, Running, application, call, encoded, review, started
from tests.support.states import state_of
from tests.support.webhooks import NAMESPACES, changing_rules, checking_rules, labelled_pods, pod_defaults

RULES = f"""\
{ladder("mig", MIG2, f"{{resource: {GPU}, assume: true}}")}
---
apiVersion: gpurules.io/v1
kind: PodDefaults
metadata: {{name: taints}}
spec: {{match: {{resources: ["nvidia.com/*"]}}, pod: {{spec: {{tolerations: [{{key: gpu, operator: Exists}}]}}}}}}
---
apiVersion: gpurules.io/v1
kind: ResourceInjection
metadata: {{name: cpus}}
spec: {{coefficients: {{cpu: "4"}}}}
---
{validation("tag", "object.spec.containers.all(c, !c.image.endsWith(':latest'))", match=f"{{resources: [{GPU}]}}")}
---
{validation("warned", "object.spec.containers.all(c, !has(c.resources.requests))", validationActions="[Warn]")}
"""
"""Rules of every kind, each of which reads what those before it change."""


def stored(made: Any) -> Any:
    """Return a pod as the API server sends it."""
    return with_default_members(with_default_requests(made))


def admitted(running: Running, made: Json, **request: Any) -> list[Answer]:
    """Return the answers for a pod of /mutate and, if it is allowed, of /validate for the changed pod."""
    answers = [running.send("POST", "/mutate", encoded(review(made, **request)))]
    if answers[0].response["allowed"]:
        changed = apply_json(made, answers[0].patch) if "patch" in answers[0].response else made
        answers.append(running.send("POST", "/validate", encoded(review(stored(changed), **request))))
    return answers


def lines(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def steps(log: Path) -> list[tuple[str, ...]]:
    return [
        (line["namespace"], step["rule"], step["action"], step["reason"])
        for line in lines(log)
        for step in line.get("trace", ())
    ]


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    (tmp_path / "rules.yaml").write_text(RULES)
    return tmp_path / "rules.yaml"


def test_a_server_in_audit_changes_denies_and_warns_of_nothing(rules: Path, tmp_path: Path) -> None:
    made = [
        stored(limited(amounts, image)) for amounts in ({MIG2: "1"}, {GPU: "2"}, {}) for image in ("a:1", "a:latest")
    ]
    logs = tmp_path / "enforce.log", tmp_path / "audit.log"
    with started(tmp_path, "--rules", rules, "--decision-log", logs[0]) as running:
        enforced = [answer.response for each in made for answer in admitted(running, each)]
    with started(tmp_path, "--rules", rules, "--decision-log", logs[1], "--mode", "Audit") as running:
        audited = [answer.response for each in made for answer in admitted(running, each)]
        assert "; mode: Audit, nothing takes effect; " in running.logged()

    assert {key for each in enforced for key in each} >= {"patch", "warnings", "status"}
    assert all(each["allowed"] for each in audited)
    assert {key for each in audited for key in each} == {"uid", "allowed", "auditAnnotations"}
    assert steps(logs[0]) == steps(logs[1])
    assert {action for _, _, action, _ in steps(logs[1])} >= {"change", "deny", "warn"}
    assert all(step["audit"] for line in lines(logs[1]) for step in line.get("trace", ()))
    assert {line["outcome"] for line in lines(logs[1])} == {"Allowed"}
    assert not any("patch" in line for line in lines(logs[1]))


def records(state: ServerState, path: str, made: Json, **request: Any) -> tuple[AdmissionRecord, dict[str, Any]]:
    """Return the record and the response of a request."""
    seen: list[AdmissionRecord] = []
    answer = call(application(state, observers=[seen.append]), path, encoded(review(made, **request)))
    return seen[0], answer.response


READING_RESULTS = (
    validation_of("false", name="moved", match=Match(resources=(GPUS,))),
    validation_of("!('example.com/a' in object.metadata.?annotations.orValue({}))", name="defaulted"),
    validation_of("object.spec.containers.all(c, !has(c.resources.requests))", name="requesting"),
)
"""Validations of what rules at /mutate write."""


@given(
    labelled_pods(),
    changing_rules(),
    st.lists(st.sampled_from([pod_defaults(), *READING_RESULTS]), unique_by=lambda rule: rule.id),
    checking_rules(),
    clusters(),
    NAMESPACES,
)
def test_the_steps_of_a_server_in_audit_are_those_of_one_that_enforces(
    made: Any, changing: list[Rule], reading: list[Rule], checking: list[Rule], on: Cluster, namespace: str
) -> None:
    rule_set = compiled(*changing, *reading, *checking)
    enforcing, auditing = state_of(rule_set, on), state_of(rule_set, on)
    auditing.audit = True
    sent = stored(made)
    first, response = records(enforcing, "/mutate", sent, namespace=namespace)
    enforced = [first]
    if response["allowed"]:
        assert first.decision is not None
        result = stored(first.decision.result) if first.decision.patch else sent
        enforced.append(records(enforcing, "/validate", result, namespace=namespace)[0])
    audited = [records(auditing, path, sent, namespace=namespace) for path in ("/mutate", "/validate")]

    assert traced(enforced) == traced([record for record, _ in audited])
    for record, answer in audited:
        assert answer["allowed"]
        assert answer.keys() <= {"uid", "allowed", "auditAnnotations"}
        assert record.decision is not None
        assert all(step.audit and (step.static is None or step.static.audit) for step in record.decision.trace)
        assert not [*admission_events(record)]


def traced(found: Sequence[AdmissionRecord]) -> list[tuple[str, ...]]:
    return [
        (step.rule, step.action.value, step.reason, record.request.namespace)
        for record in found
        if record.decision is not None and record.request is not None
        for step in record.decision.trace
    ]


def test_an_update_is_validated_as_it_is() -> None:
    update = validation_of("false", match=Match(operations=(Operation.UPDATE,), resources=(GPU,)))
    state = state_of(compiled(ladder_of(MIG2, GPU), update))
    state.audit = True

    for amounts, expected in ({GPU: 1}, ["deny"]), ({MIG2: 1}, ["skip"]):
        record, response = records(state, "/validate", asks(amounts), operation="UPDATE", oldObject=asks(amounts))
        assert response["allowed"]
        assert record.decision is not None
        assert [step.action.value for step in record.decision.trace] == expected


def test_lists_within_lists_are_decided_however_deep() -> None:
    falls = ladder_of(MIG2, rung(GPU, assume=True))
    state = state_of(compiled(falls, validation_of("false", match=Match(resources=(GPU,)))), cluster())
    state.audit = True
    body = encoded(review(pod(container("c", {MIG2: 1}), volumes="DEEP"))).replace(b'"DEEP"', b"[" * 900 + b"]" * 900)
    answer = call(application(state), "/validate", body)
    assert (answer.status, answer.response["allowed"]) == (200, True)
    assert "deny" in str(answer.response["auditAnnotations"])


def test_a_pod_that_cannot_be_read_is_allowed_in_audit_and_logged(tmp_path: Path, rules: Path) -> None:
    log = tmp_path / "log"
    malformed = pod(container("c", {GPU: "much"}))
    with started(tmp_path, "--rules", rules, "--mode", "Audit", "--decision-log", log) as running:
        for path in ("/mutate", "/validate"):
            assert running.send("POST", path, encoded(review(malformed))).response["allowed"]
        deep = encoded(review()).replace(b'"app:1"', b"[" * 100_000 + b"]" * 100_000)
        uid_first = deep.replace(b'{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", ', b"{")
        assert running.send("POST", "/mutate", uid_first).response["allowed"]
    # A pod that /mutate would refuse does not reach /validate.
    assert [line.get("status", {}).get("code") for line in lines(log)] == [422, None, 413]
    assert {line["outcome"] for line in lines(log)} == {"Allowed"}


def test_only_pods_of_the_namespaces_are_decided_also_after_a_reload(tmp_path: Path, rules: Path) -> None:
    log = tmp_path / "log"
    made = stored(limited({MIG2: "1"}))
    narrowed = ("--namespaces", "ml", "nlp", *METRICS)
    with started(tmp_path, "--rules", rules, "--decision-log", log, *narrowed) as running:
        assert "; mode: Enforce; namespaces: ml, nlp; " in running.logged()
        for _ in range(2):
            report = rules_report(running)
            assert (report["mode"], report["namespaces"]) == ("Enforce", ["ml", "nlp"])
            for namespace in ("other", "ml-x"):
                for answer in admitted(running, made, namespace=namespace):
                    assert answer.response.keys() == {"uid", "allowed"}
                    assert answer.response["allowed"]
            assert "patch" in admitted(running, made, namespace="nlp")[0].response
            rules.write_text(RULES + "---\n" + saying("reloaded"))
            until(lambda: rules_report(running)["generation"] == 2, "the reload")
        metrics = fetched(f"{metrics_url(running)}/metrics")[1]
        assert 'gpu_rules_requests_total{dry_run="false",endpoint="mutate",outcome="Allowed"} 4.0' in metrics
    assert {line["namespace"] for line in lines(log)} == {"nlp"}


def test_audit_holds_after_a_reload(tmp_path: Path, rules: Path) -> None:
    with started(tmp_path, "--rules", rules, "--mode", "Audit", *METRICS) as running:
        rules.write_text(saying("reloaded"))
        until(lambda: rules_report(running)["generation"] == 2, "the reload")
        assert rules_report(running)["mode"] == "Audit"
        answer = running.send("POST", "/validate", encoded(review())).response
        assert answer["allowed"]
        assert answer["auditAnnotations"] == {"validation.told-apart": "deny: reloaded"}


def test_no_devices_are_reserved_in_audit(api: ApiServer, tmp_path: Path) -> None:
    api.put("nodes", node("one", {MIG2: 1}))
    file = tmp_path / "rules.yaml"
    file.write_text(ladder("mig", MIG2, f"{{resource: {GPU}, assume: true}}", offered="Available"))
    arguments = ("--rules", file, "--cluster", "kubeconfig", "--mode", "Audit", *METRICS)
    variables = {"KUBECONFIG": str(api.kubeconfig(tmp_path)), "GPU_RULES_RESERVE_FOR": "all"}
    with started(tmp_path, *arguments, **variables) as running:
        until(lambda: running.send("GET", "/readyz").status == 200, "being ready")
        for number in range(3):
            for answer in admitted(running, bound(f"p{number}", "", {MIG2: 1})):
                assert answer.response["allowed"]
                assert "patch" not in answer.response
                assert "change" not in str(answer.response.get("auditAnnotations"))
        assert "gpu_rules_cluster_reservations 0.0" in fetched(f"{metrics_url(running)}/metrics")[1]


def test_exported_policies_do_not_go_with_audit_or_namespaces() -> None:
    for narrowed in (ServerSettings(offers="x", mode="Audit"), ServerSettings(offers="x", namespaces=("ml",))):
        assert "--offers " in (narrowed.conflict() or "")


def test_nothing_is_promised_in_audit() -> None:
    state = state_of(compiled(validation_of("cluster.available('nvidia.com/gpu') > 0")))
    state.reserves = False
    assert state.overpromises
    state.audit = True
    assert not state.overpromises
