"""AdmissionReviews, bytes in and bytes out."""

import json
import re
import tracemalloc
from base64 import b64decode
from http import HTTPStatus
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules_engine.model.json.patch import Json, PatchOperation
from rules_engine.model.kubernetes.pod import Pod
from rules_engine.model.kubernetes.quantity import parse_quantity
from rules_engine.model.problems.source import Location
from rules_engine.model.rules.admission import MAX_UID, GroupVersionKind
from rules_engine.model.rules.decision import Action, Decision, HttpRefusal, Step
from rules_engine.model.rules.rule import RuleId
from rules_engine.server.http import review as reviews
from rules_engine.server.http.limits import BODY_BYTES, MIB, PARSED_BYTES, PARSED_BYTES_PER_TOKEN
from rules_engine.server.http.review import (
    MAX_AUDIT_VALUE,
    MAX_MESSAGE,
    MAX_WARNING,
    MAX_WARNINGS_BYTES,
    RefusedObjectError,
    ReviewError,
    StatusReason,
    count_tokens,
    parse_review,
    respond_decision,
    respond_error,
    respond_status,
    takes_too_much_memory,
    uid_of,
)
from tests.support.evaluation import limited
from tests.support.laws import jsons
from tests.support.server import UID, encoded, review

NOT_V1 = "the body must be an AdmissionReview of admission.k8s.io/v1"
PLACE = Location("rules.yaml", 1, 1)


def step(action: Action, **members: Any) -> Step:
    return Step(rule=RuleId("Validation/v"), location=PLACE, action=action, reason="r", **members)


def response(decision: Decision) -> dict[str, Any]:
    body = json.loads(respond_decision(UID, decision))
    assert (body["apiVersion"], body["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    assert body["response"].pop("uid") == UID
    answer: dict[str, Any] = body["response"]
    return answer


def refused(document: Any) -> ReviewError:
    body = document if isinstance(document, bytes) else encoded(document)
    with pytest.raises(ReviewError) as caught:
        parse_review(body)
    assert caught.value.reason is StatusReason.BAD_REQUEST
    return caught.value


def test_a_request_is_read_with_all_its_members() -> None:
    document = review(
        limited(),
        operation="UPDATE",
        name="p",
        subResource="status",
        dryRun=True,
        oldObject={"metadata": {}},
        kind={"group": "apps", "version": "v2", "kind": "Thing"},
    )
    request = parse_review(encoded(document))
    assert (request.uid, request.operation, request.namespace, request.name) == (UID, "UPDATE", "ml", "p")
    assert request.kind == GroupVersionKind(group="apps", version="v2", kind="Thing")
    assert (request.sub_resource, request.dry_run) == ("status", True)
    assert (request.object, request.old_object) == (limited(), {"metadata": {}})
    assert request.raw == document["request"]


def test_absent_and_null_members_are_empty() -> None:
    request = parse_review(encoded(review(namespace=..., dryRun=None, object=None, userInfo=..., options=None)))
    assert (request.namespace, request.name, request.dry_run, request.old_object) == ("", "", False, None)


def test_the_last_of_duplicate_keys_counts() -> None:
    body = encoded(review()).replace(b'"namespace": "ml"', b'"namespace": "other", "namespace": "ml"')
    assert parse_review(body).namespace == "ml"


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"not json", b"NaN", b'{"a": NaN}', b'{"a": Infinity}', b'"\\ud800"', b"\xff", b"\xef\xbb\xbf{}"],
)
def test_a_body_that_is_not_json_is_refused(body: bytes) -> None:
    error = refused(body)
    assert error.message.startswith("the body is not JSON: ")
    assert error.uid is None


@pytest.mark.parametrize("text", ["ascii", "é"])
def test_a_value_that_nothing_reads_may_be_nested_deeply(text: str) -> None:
    inner: Any = text
    for _ in range(900):
        inner = [inner]
    assert parse_review(encoded(review({"deep": inner}))).uid == UID


@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
def test_nesting_without_end_is_refused_and_not_followed(opening: bytes) -> None:
    assert refused(opening * 1_000_000).message == "the body is nested too deeply"


@pytest.mark.parametrize("members", ['"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1",', ""])
@pytest.mark.parametrize("depth", [20_000, 500_000])
def test_an_object_that_is_nested_too_deeply_is_denied(members: str, depth: int) -> None:
    """A failed call would admit it under failurePolicy: Ignore."""
    body = f'{{{members}"request":{{"uid":"{UID}","object":{"[" * depth}{"]" * depth}}}}}'.encode()
    with pytest.raises(RefusedObjectError) as caught:
        parse_review(body)
    assert caught.value.uid == UID
    assert caught.value.decision.refusal == HttpRefusal(413, "RequestEntityTooLarge", "the object is nested too deeply")


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], NOT_V1),
        (None, NOT_V1),
        ({}, NOT_V1),
        ({**review(), "apiVersion": "admission.k8s.io/v1beta1"}, NOT_V1),
        ({**review(), "kind": ["AdmissionReview"]}, NOT_V1),
        ({**review(), "request": None}, "request: Object missing required field `uid`"),
        ({**review(), "request": []}, "request: Object missing required field `uid`"),
        (review(uid=...), "request: Object missing required field `uid`"),
        (review(uid=""), "request.uid: Expected `str` of length >= 1"),
        (review(uid=7), "request.uid: Expected `str`, got `int`"),
        (review(operation=...), "request: Object missing required field `operation`"),
        (review(operation="create"), "request.operation: Invalid enum value 'create'"),
        (review(kind=None), "request: Object missing required field `kind`"),
        (review(kind={"kind": "Pod"}), "request.kind: Object missing required field `version`"),
        (review(kind={"version": "v1", "kind": ["Pod"]}), "request.kind.kind: Expected `str`, got `array`"),
        (review(namespace=["ml"]), "request.namespace: Expected `str`, got `array`"),
        (review(subResource=True), "request.subResource: Expected `str`, got `bool`"),
        (review(dryRun="false"), "request.dryRun: Expected `bool`, got `str`"),
        (review(userInfo="root"), "request.userInfo: Expected `object | null`, got `str`"),
    ],
)
def test_a_review_of_the_wrong_shape_is_refused_with_the_reason(document: Any, message: str) -> None:
    error = refused(document)
    assert error.message == message
    request = document.get("request") if isinstance(document, dict) else None
    uid = request.get("uid") if isinstance(request, dict) else None
    assert error.uid == (UID if uid == UID else None)


@pytest.mark.parametrize(
    ("number", "quantity"),
    [
        ("18446744073709551616", "18446744073709551616"),
        ("0.1234567890123456789", "123456790n"),
        ("1e3", "1e3"),
        ("1.50", "1500m"),
        ("1e-400", "1n"),
    ],
)
def test_a_quantity_that_is_a_number_is_read_exactly(number: str, quantity: str) -> None:
    body = encoded(review(limited({"nvidia.com/gpu": "N"}))).replace(b'"N"', number.encode())
    read = Pod.parse(parse_review(body).object)
    assert read.containers[0].limits == {"nvidia.com/gpu": parse_quantity(quantity)}


@given(st.integers(-(2**64), 2**64 - 1))
def test_every_integer_is_read_as_it_is(number: int) -> None:
    assert parse_review(encoded(review({"n": number}))).object == {"n": number}


@pytest.mark.parametrize(
    ("body", "uid"),
    [
        (encoded(review()), UID),
        (encoded(review(...))[:-1], UID),
        (encoded(review()).replace(b" ", b""), UID),
        (b'{"request": {"uid": "u"', "u"),
        (b'{"request": {"uid": ""}}', None),
        (b'{"request": {"uid": 1}}', None),
        (b'{"request": {"object": {"uid": "u"}}}', None),
        (b"[]", None),
    ],
)
def test_a_uid_is_found_where_api_servers_write_it(body: bytes, uid: str | None) -> None:
    assert uid_of(body) == uid


def test_an_allow_without_a_change_says_nothing_else() -> None:
    assert response(Decision()) == {"allowed": True}


def test_a_patch_is_base64_of_json_patch_with_its_type() -> None:
    answer = response(
        Decision(patch=(PatchOperation("add", "/metadata/annotations", {"a": "é"}), PatchOperation("remove", "/x")))
    )
    assert answer["patchType"] == "JSONPatch"
    assert json.loads(b64decode(answer["patch"], validate=True)) == [
        {"op": "add", "path": "/metadata/annotations", "value": {"a": "é"}},
        {"op": "remove", "path": "/x"},
    ]


def test_a_denial_has_a_status_and_no_patch() -> None:
    answer = response(Decision(trace=(step(Action.DENY, code=422, status_reason="Invalid", message="no"),)))
    assert answer == {"allowed": False, "status": {"code": 422, "reason": "Invalid", "message": "Validation/v: no"}}
    both = Decision(refusal=HttpRefusal(422, "Invalid", "no"), patch=(PatchOperation("remove", "/x"),))
    assert response(both) == {"allowed": False, "status": {"code": 422, "reason": "Invalid", "message": "no"}}


def test_a_message_is_cut_and_stays_text() -> None:
    message = response(Decision(refusal=HttpRefusal(422, "Invalid", "\ud800" + "x" * 10_000)))["status"]["message"]
    assert len(message) == MAX_MESSAGE
    assert message.startswith("?x")
    assert message.endswith("x…")


def warned(*warnings: str) -> list[str]:
    answer: list[str] = response(Decision(trace=(step(Action.WARN, warnings=warnings),)))["warnings"]
    return answer


def test_warnings_are_passed_on_in_order() -> None:
    assert warned("b", "a") == ["b", "a"]


def test_a_warning_is_one_line_without_control_characters() -> None:
    assert warned("a\nb\r\n\tc\x00d\x7f\x85e") == ["a b c d e"]


def test_a_warning_is_cut_below_256_characters() -> None:
    assert warned("é" * 255) == ["é" * 255]
    assert warned("é" * 256) == ["é" * (MAX_WARNING - 1) + "…"]


def test_omitted_warnings_are_announced_by_the_last_warning() -> None:
    answer = warned(*(f"{n:02}" + "x" * 198 for n in range(30)))
    assert answer == [*(f"{n:02}" + "x" * 198 for n in range(20)), "further warnings are omitted"]


@given(st.lists(st.text(max_size=400), min_size=1, max_size=80, unique=True))
def test_warnings_together_stay_below_the_api_servers_bound(warnings: list[str]) -> None:
    answer = warned(*warnings)
    assert sum(len(line.encode()) for line in answer) <= MAX_WARNINGS_BYTES
    assert all(len(line) <= MAX_WARNING for line in answer)
    assert len(answer) == len(warnings) or answer[-1] == "further warnings are omitted"


def test_audit_annotations_are_passed_on_and_bounded() -> None:
    answer = response(Decision(trace=(step(Action.DENY, audit=True, message="m" * 20_000),)))["auditAnnotations"]
    assert list(answer) == ["validation.v"]
    assert len(answer["validation.v"]) == MAX_AUDIT_VALUE


@pytest.mark.parametrize("reason", StatusReason)
def test_an_error_with_a_uid_is_a_review_that_does_not_allow(reason: StatusReason) -> None:
    body = json.loads(respond_error(ReviewError(reason, "why", "u")))
    status = {"code": reason.code, "reason": reason.text, "message": "why"}
    assert body == {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {"uid": "u", "allowed": False, "status": status},
    }


@pytest.mark.parametrize("reason", StatusReason)
def test_the_reason_of_a_status_is_the_one_that_kubernetes_has(reason: StatusReason) -> None:
    status = json.loads(respond_status(HTTPStatus(reason.code), "why"))
    assert (status["code"], status["reason"], status["message"]) == (reason.code, reason.text, "why")


def test_a_status_without_a_kubernetes_reason_has_its_phrase() -> None:
    status = json.loads(respond_status(HTTPStatus.REQUEST_TIMEOUT, "why"))
    assert (status["status"], status["code"], status["reason"]) == ("Failure", 408, "RequestTimeout")


def test_an_error_without_a_uid_is_a_kubernetes_status() -> None:
    assert json.loads(respond_error(ReviewError(StatusReason.BAD_REQUEST, "why"))) == {
        "apiVersion": "v1",
        "kind": "Status",
        "status": "Failure",
        "code": 400,
        "reason": "BadRequest",
        "message": "why",
    }


MOST_TOKENS = PARSED_BYTES // PARSED_BYTES_PER_TOKEN

LARGE = (b'"",', b'"a",', b"{},", b"[],", b",", b'"', b'\\"', b"\\", b"\\\\,", b'"\\",')
"""Parts of bodies of which each byte costs most."""


@pytest.mark.parametrize("part", LARGE)
@pytest.mark.parametrize("before", [b"", b'"'])
def test_an_estimate_takes_little_memory_for_any_body(part: bytes, before: bytes) -> None:
    body = before + part * (BODY_BYTES // len(part))
    tracemalloc.start()
    try:
        count_tokens(body, len(body))
        takes_too_much_memory(body)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak <= 8 * MIB


def test_tokens_outside_of_strings_are_estimated() -> None:
    for text in (b'"' + b'\\"' * 2 * MOST_TOKENS, b"," * 2 * MOST_TOKENS + b'"' + b"\\" * 2 * MOST_TOKENS):
        assert takes_too_much_memory(b"{" * (MOST_TOKENS + 1) + text)
        assert not takes_too_much_memory(text.replace(b",", b""))
    assert not takes_too_much_memory(b"{" * MOST_TOKENS + b'"' + b"," * MOST_TOKENS + b'"')


@given(jsons() | st.text('"\\,[a'), st.integers(1, 9))
def test_windows_of_any_size_have_all_tokens(value: Json, size: int) -> None:
    body = json.dumps([value, value]).encode()
    outside = re.sub(rb'"([^"\\]|\\.)*"', b"", body)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(reviews, "WINDOW_BYTES", size)
        assert count_tokens(body, len(body)) == sum(map(outside.count, (b"{", b"[", b",", b":")))
        assert count_tokens(body, 1) > 1


def test_a_uid_is_repeated_up_to_a_length() -> None:
    assert parse_review(encoded(review(uid="u" * MAX_UID))).uid == "u" * MAX_UID
    with pytest.raises(ReviewError) as caught:
        parse_review(encoded(review(uid="u" * (MAX_UID + 1))))
    assert caught.value.uid is None
