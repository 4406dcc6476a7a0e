"""Partial decoding of reviews: answers are those for a review decoded as a whole, but for what is skipped."""

import copy
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.reviews import job_pods
from bench.reviews import review as from_api_server
from rules_engine.evaluation import RuleSet, mutate, validate
from rules_engine.evaluation.fields_read import FieldsRead, fields_read
from rules_engine.model.admission import AdmissionRequest, Endpoint
from rules_engine.model.cluster import Cluster
from rules_engine.model.decision import Decision
from rules_engine.model.json.patch import Json
from server.http.admission_record import AdmissionRecord
from server.http.limits import MAX_DEPTH
from server.http.review import RefusedObjectError, ReviewError, parse
from server.partial_review import CONTAINER_DEPTH, MEMBER_BRACKETS, decoder
from server.rules.sources import Sources, prepare
from server.state import Served
from server.telemetry.decision_log import line
from server.telemetry.events import events
from tests.evaluation.test_decision_cache import FULL, changed, requests, rule_sets
from tests.server.http.test_app import PATHS, TEMPLATE, WRONG_TYPES, with_value
from tests.support.evaluation import check, compiled, validation
from tests.support.laws import clusters, law
from tests.support.server import UID, encoded, review

NOTHING = FieldsRead(request=frozenset(), pod=frozenset(), metadata=frozenset(), spec=frozenset())


def document(raw: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": raw}


def outputs(request: AdmissionRequest, decision: Decision, endpoint: Endpoint) -> Any:
    """Return all that the server writes for a request: response, line of the decision log, Events."""
    record = AdmissionRecord(endpoint.path[1:])
    record.uid, record.request, record.decision = request.uid, request, decision
    written = line(record, decision, id="1", at=datetime(2026, 1, 1, tzinfo=UTC), view=1, messages=True)
    return decision.trace, decision.patch, decision.refusal, b"".join(written.parts), list(events(record))


def answers(body: bytes, served: Served, on: Cluster, *, partial: bool) -> list[Any]:
    found: list[Any] = []
    for endpoint, decide in ((Endpoint.MUTATE, mutate), (Endpoint.VALIDATE, validate)):
        try:
            request = parse(body, served.decoders.get(endpoint.path) if partial else None)
        except (ReviewError, RefusedObjectError) as error:
            found.append((type(error), str(error), error.uid))
        else:
            found.append(outputs(request, decide(served.rule_set, request, on), endpoint))
    return found


@pytest.mark.no_cover
@law
@given(st.data(), rule_sets(), requests(), clusters())
def test_no_answer_depends_on_how_a_review_is_decoded(
    data: st.DataObject, rule_set: RuleSet, raw: dict[str, Any], on: Cluster
) -> None:
    served = Served(rule_set=rule_set)
    for _ in range(3):
        body = orjson.dumps(document(raw))
        assert answers(body, served, on, partial=True) == answers(body, served, on, partial=False)
        raw = data.draw(changed(raw))


PREPARED, _ = prepare(Sources())
SERVED = Served(rule_set=PREPARED.rules.rule_set)


@pytest.mark.parametrize("path", PATHS, ids=lambda path: "/".join(map(str, path)) or "whole")
def test_values_of_a_wrong_type_are_answered_alike(path: tuple[str | int, ...]) -> None:
    served, on = SERVED, PREPARED.cluster
    for value in WRONG_TYPES:
        body = encoded(with_value(TEMPLATE, path, value))
        assert answers(body, served, on, partial=True) == answers(body, served, on, partial=False)


@pytest.mark.parametrize("endpoint", Endpoint)
def test_a_pod_as_the_api_server_sends_it_is_decoded_in_part(endpoint: Endpoint) -> None:
    for pod in job_pods("nvidia.com/gpu", 3):
        decoded: Any = SERVED.decoders[endpoint.path](from_api_server(pod))
        assert "managedFields" not in decoded["request"]["object"]["metadata"]


def spec(**members: Any) -> bytes:
    return encoded(review({"metadata": {"name": "p"}, "spec": members}))


def test_each_member_that_decisions_and_the_log_read_is_decoded() -> None:
    """FULL has all members that decisions read; a part of them alone would make the same decision of most pods."""
    owner: Json = {"apiVersion": "batch/v1", "kind": "Job", "name": "a", "uid": "1", "controller": True}
    full = copy.deepcopy(FULL)
    full["object"]["metadata"] |= {
        "name": "a", "generateName": "a-", "uid": "1", "deletionTimestamp": "2026-01-01T00:00:00Z",
        "ownerReferences": [owner],
    }  # fmt: skip
    full["object"]["spec"] |= {"nodeName": "n"}
    full |= {"subResource": "resize", "requestSubResource": "resize", "options": {"kind": "CreateOptions"}}
    read = copy.deepcopy(full)
    for name in ("priority", "securityContext"):
        del read["object"]["spec"][name]
    del read["object"]["spec"]["containers"][0]["image"]
    del read["oldObject"]["spec"]["priority"]
    del read["options"]["kind"]
    assert decoder(NOTHING)(encoded(document(full))) == document(read)
    everything = replace(NOTHING, request=frozenset({"options"}), spec=frozenset(full["object"]["spec"]))
    assert decoder(everything)(encoded(document(full))) == document(full)


def test_what_no_rule_reads_is_skipped() -> None:
    decode = decoder(NOTHING)
    container = {"name": "main", "env": [{"name": "A"}], "resources": {"limits": {"cpu": "1"}, "claims": []}}
    decoded: Any = decode(spec(containers=[container], volumes=[1]))
    expected = {"containers": [{"name": "main", "resources": {"limits": {"cpu": "1"}}}]}
    assert decoded["request"]["object"] == {"metadata": {"name": "p"}, "spec": expected}


def test_a_number_beyond_a_double_is_accepted_where_it_is_skipped() -> None:
    body = spec(volumes=1).replace(b"1}", b"1e999}")
    assert parse(body, decoder(NOTHING)).operation == "CREATE"
    with pytest.raises(ReviewError, match="infinity"):
        parse(body)


@pytest.mark.parametrize(
    "body",
    [
        spec(nodeName=1),
        spec(containers=[1]),
        spec(overhead={"cpu": 1}),
        spec(tolerations=[{"tolerationSeconds": 2**63}]),
        spec(initContainers=[{"resources": {"limits": {"cpu": 2**64}}}]),
        spec(initContainers=orjson.loads("[" * (CONTAINER_DEPTH + 1) + "]" * (CONTAINER_DEPTH + 1))),
        spec(priority=1).replace(b"1}", b"1e999}"),
        spec(volumes="\N{LATIN SMALL LETTER E WITH ACUTE}").replace(b"\\u00e9", b"\xe9"),
        spec(volumes=1).replace(b"1}", b"[" * 5000 + b"]" * 5000 + b"}"),
        b"",
        b"[]",
        b"null",
    ],
)
def test_any_other_body_is_decoded_as_a_whole(body: bytes) -> None:
    assert decoder(replace(NOTHING, spec=frozenset({"priority", "initContainers"})))(body) is None


TOKEN: Json = {
    "name": "kube-api-access-x2x4k",
    "projected": {
        "sources": [
            {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
        ]
    },
}
"""The volume of a service account's token, which nearly every pod has."""


@pytest.mark.parametrize("value", [[TOKEN], 2**63, 2**64, -(2**70), 1.0, "\ud83d\ude00", None, [None], True])
def test_what_expressions_read_is_decoded_as_in_a_whole_body(value: Json) -> None:
    names = frozenset({"volumes"})
    pod: Json = {"volumes": value, "metadata": {"volumes": value}, "spec": {"volumes": value}}
    body = encoded(document({"options": value, "object": pod, "oldObject": pod}))
    decode = decoder(FieldsRead(request=frozenset({"options"}), pod=names, metadata=names, spec=names))
    assert repr(decode(body)) == repr(orjson.loads(body))


def test_nesting_is_bounded_in_what_is_read() -> None:
    decode = decoder(replace(NOTHING, spec=frozenset({"volumes"})))
    nested = spec(volumes=1).replace(b"1}", b"[" * MAX_DEPTH + b"]" * MAX_DEPTH + b"}")
    with pytest.raises(ReviewError, match="nested more than"):
        parse(nested, decode)
    assert parse(nested.replace(b"volumes", b"other"), decode).uid == UID


def test_a_member_of_any_type_is_decoded_with_so_many_brackets_at_most() -> None:
    decode = decoder(replace(NOTHING, spec=frozenset({"volumes"})))
    assert decode(spec(volumes=[{}] * (MEMBER_BRACKETS - 1))) is not None
    assert decode(spec(volumes=[{}] * MEMBER_BRACKETS)) is None
    # review, request, object and spec
    assert 4 + max(MEMBER_BRACKETS, CONTAINER_DEPTH) <= MAX_DEPTH


def test_fields_of_expressions_and_messages_are_read() -> None:
    rule_set = compiled(
        validation(
            check(
                "object.spec.?priority.orValue(0) == 0 && !has(object.metadata.finalizers) && request.dryRun == false",
                message_expression="'no: ' + object.status.phase + oldObject.spec.hostname",
            )
        )
    )
    assert fields_read(rule_set.rules_at(Endpoint.VALIDATE)) == FieldsRead(
        request=frozenset({"dryRun"}),
        pod=frozenset({"status"}),
        metadata=frozenset({"finalizers"}),
        spec=frozenset({"priority", "hostname"}),
    )
    assert fields_read(rule_set.rules_at(Endpoint.MUTATE)) == NOTHING


@pytest.mark.parametrize(
    "expression",
    [
        "object == oldObject",
        "object.metadata == object.metadata",
        "has(object.spec) && object['spec'] != {}",
        "request == request",
        "cel.bind(spec, object.spec, spec.containers.size() > 1)",
    ],
)
def test_a_rule_that_reads_a_whole_pod_has_all_decoded(expression: str) -> None:
    rule_set = compiled(validation(check(expression, "no")))
    assert fields_read(rule_set.rules_at(Endpoint.VALIDATE)) is None
    assert set(Served(rule_set=rule_set).decoders) == {"/mutate"}
