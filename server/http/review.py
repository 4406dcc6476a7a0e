"""Parser and encoder of AdmissionReview v1, without I/O.

Source: k8s.io/api/admission/v1 (types.go); k8s.io/apiserver/pkg/admission/plugin/webhook (use of responses).
"""

import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from http import HTTPStatus

import msgspec
import orjson

from rules_engine.model.json.edits import merge_edits, patch_operations
from rules_engine.model.json.lenient import as_mapping, text_member
from rules_engine.model.json.patch import EMPTY, Json
from rules_engine.model.kubernetes.pod import ANNOTATIONS
from rules_engine.model.rules.admission import MAX_UID, AdmissionRequest
from rules_engine.model.rules.decision import Decision, HttpRefusal
from rules_engine.server.http.limits import BODY_BYTES, MIB, PARSED_BYTES, PARSED_BYTES_PER_TOKEN

API_VERSION = "admission.k8s.io/v1"
KIND = "AdmissionReview"

MAX_WARNING = 255
"""Characters of one warning: the API server cuts at 256 when all of them are long (warning.go, truncateItemRunes)."""

MAX_WARNINGS_BYTES = 4096
"""Bytes of all warnings: the API server drops the rest (warning.go, truncateAtTotalRunes)."""

MAX_MESSAGE = 4096
"""Characters of a denial's message, which may quote the pod, whose names may be as long as the request."""

MAX_AUDIT_VALUE = 10 * 1024
"""Characters of an audit annotation, as for Kubernetes' own policies (ValidatingAdmissionPolicy, auditAnnotations)."""


class StatusReason(Enum):
    """Reasons of metav1.Status in error responses (apimachinery, meta/v1/types.go)."""

    BAD_REQUEST = "BadRequest", HTTPStatus.BAD_REQUEST
    METHOD_NOT_ALLOWED = "MethodNotAllowed", HTTPStatus.METHOD_NOT_ALLOWED
    TOO_LARGE = "RequestEntityTooLarge", HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    UNSUPPORTED_MEDIA_TYPE = "UnsupportedMediaType", HTTPStatus.UNSUPPORTED_MEDIA_TYPE
    INTERNAL_ERROR = "InternalError", HTTPStatus.INTERNAL_SERVER_ERROR
    UNAVAILABLE = "ServiceUnavailable", HTTPStatus.SERVICE_UNAVAILABLE

    @property
    def text(self) -> str:
        return self.value[0]

    @property
    def code(self) -> int:
        return int(self.value[1])


class ReviewError(Exception):
    """A request that gets no decision. `uid`: of the request, if it could be parsed."""

    def __init__(self, reason: StatusReason, message: str, uid: str | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.uid = uid


class RefusedObjectError(Exception):
    """A request whose object is nested too deeply: a denial, not a failed call, which might admit it."""

    def __init__(self, uid: str, refusal: HttpRefusal) -> None:
        super().__init__(refusal.message)
        self.uid = uid
        self.decision = Decision(refusal=refusal)


# The API server writes quantities, the only fractions in pods, as strings: a number of another client is read as its
# text, since a float might be another amount.
_decode = msgspec.json.Decoder(float_hook=str).decode


def parse_review(body: bytes) -> AdmissionRequest:
    """Parse an AdmissionReview v1. Raises ReviewError (always BAD_REQUEST) and RefusedObjectError.

    Of duplicate keys the last one counts, as in the API server. Numbers with a fraction or an exponent become strings.
    """
    try:
        review = as_mapping(_decode(body))
    except RecursionError:
        uid = uid_of(body)
        if uid is not None:
            raise RefusedObjectError(uid, too_large("the object is nested too deeply")) from None
        raise ReviewError(StatusReason.BAD_REQUEST, "the body is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ReviewError(StatusReason.BAD_REQUEST, f"the body is not JSON: {error}") from None
    request = as_mapping(review.get("request"))
    uid = text_member(request, "uid")
    uid = uid if 0 < len(uid) <= MAX_UID else None
    if review.get("apiVersion") != API_VERSION or review.get("kind") != KIND:
        raise ReviewError(StatusReason.BAD_REQUEST, f"the body must be an {KIND} of {API_VERSION}", uid)
    try:
        return AdmissionRequest.parse(request)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at `$")
        raise ReviewError(StatusReason.BAD_REQUEST, f"request{path[:-1]}: {message}", uid) from None


def takes_too_much_memory(body: bytes) -> bool:
    """Return True if the parsed body would take more than PARSED_BYTES, estimated from its text."""
    most = PARSED_BYTES // PARSED_BYTES_PER_TOKEN
    # Strings, such as a configuration in an environment variable, are left out only if they matter: it takes longer.
    return len(body) > most and _count_tokens(body) > most and count_tokens(body, most) > most


def count_tokens(body: bytes, most: int) -> int:
    """Return the number of `{`, `[`, `,` and `:` outside the strings of JSON, or some number above `most`.

    The text is read in windows, which take little memory, and between which other threads run.
    """
    count = start = inside = 0
    while start < len(body) and count <= most:
        window = body[start : start + WINDOW_BYTES]
        if (len(window) - len(window.rstrip(b"\\"))) % 2:  # the next byte is escaped
            window = body[start : start + WINDOW_BYTES + 1]
        start += len(window)
        parts = window.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        count += _count_tokens(b"".join(parts[inside::2]))
        inside ^= len(parts) % 2 ^ 1
    return count


def _count_tokens(text: bytes) -> int:
    return sum(map(text.count, (b"{", b"[", b",", b":")))


WINDOW_BYTES = 64 * 1024
"""Bytes whose tokens are counted at a time, which takes a millisecond or two at most."""

_BEFORE_OBJECT = re.compile(
    rb"""\s*\{ (?: \s* "(?:kind|apiVersion)" \s*:\s* "[\w./]*" \s*, ){0,2}
    \s* "request" \s*:\s* \{ \s* "uid" \s*:\s* "([\w-]{1,64})" """,
    re.VERBOSE,
)
"""Beginning of a review as API servers write it, with the uid."""


def uid_of(body: bytes) -> str | None:
    """Return the uid at the beginning of a review, where API servers write it, or None. Nothing else is read."""
    match = _BEFORE_OBJECT.match(body)
    return match and match[1].decode()


def body_too_large() -> ReviewError:
    """Return the refusal of a body larger than BODY_BYTES."""
    return ReviewError(StatusReason.TOO_LARGE, f"the body is larger than {BODY_BYTES // MIB} MiB")


def too_large(message: str) -> HttpRefusal:
    """Return the denial of an object that cannot be decoded for its size or depth."""
    return HttpRefusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, StatusReason.TOO_LARGE.text, message)


def respond_decision(uid: str, decision: Decision, annotations: Mapping[str, str] = EMPTY) -> bytes:
    """Return the AdmissionReview with the response to a request; the pod also gets `annotations`."""
    if annotations:
        edits = merge_edits(decision.edits, {ANNOTATIONS: annotations})
        decision = Decision(trace=decision.trace, patch=patch_operations(decision.object, edits))
    response: dict[str, Json] = {"uid": uid, "allowed": decision.allowed}
    status = decision.status
    if status is not None:
        response["status"] = _status_json(status.code, status.reason, status.message)
    elif decision.patch:
        patch = orjson.dumps([operation.to_json() for operation in decision.patch])
        response["patchType"] = "JSONPatch"
        response["patch"] = b64encode(patch).decode("ascii")
    if decision.warnings:
        response["warnings"] = list(_warning_lines(decision.warnings))
    if decision.audit_annotations:
        response["auditAnnotations"] = {
            key: _truncate_text(value, MAX_AUDIT_VALUE) for key, value in decision.audit_annotations.items()
        }
    return _encode_review(response)


def respond_error(error: ReviewError) -> bytes:
    """Return the response to a request without a decision, which never allows.

    With a uid it is an AdmissionReview; without, a metav1.Status, whose message the API server's client reports.
    """
    status = _status_json(error.reason.code, error.reason.text, error.message)
    if error.uid is not None:
        return _encode_review({"uid": error.uid, "allowed": False, "status": status})
    return _failure_status(status)


def respond_status(status: HTTPStatus, message: str) -> bytes:
    """Return a metav1.Status, the response to a request that is not an admission."""
    reason = _REASONS.get(status.value) or status.phrase.replace(" ", "")
    return _failure_status(_status_json(status.value, reason, message))


_REASONS = {reason.code: reason.text for reason in StatusReason}


def _failure_status(status: dict[str, Json]) -> bytes:
    return orjson.dumps({"apiVersion": "v1", "kind": "Status", "status": "Failure", **status})


def _encode_review(response: dict[str, Json]) -> bytes:
    return orjson.dumps({"apiVersion": API_VERSION, "kind": KIND, "response": response})


def _status_json(code: int, reason: str, message: str) -> dict[str, Json]:
    return {"code": code, "reason": reason, "message": _truncate_text(message, MAX_MESSAGE)}


def _warning_lines(warnings: Iterable[str]) -> Iterator[str]:
    """Yield warnings of one line each, as many as fit; the last one states that more were omitted."""
    size = 0
    for warning in warnings:
        line = _truncate_text(" ".join(warning.translate(_CONTROL).split()), MAX_WARNING)
        size += len(line.encode())
        if size > MAX_WARNINGS_BYTES - len(_OMITTED_WARNING):
            yield _OMITTED_WARNING
            return
        yield line


_OMITTED_WARNING = "further warnings are omitted"

# The API server drops a warning with a control character in it (apimachinery, util/net/http.go, NewWarningHeader).
_CONTROL = dict.fromkeys([*range(0x20), *range(0x7F, 0xA0)], " ")


def _truncate_text(text: str, length: int) -> str:
    """Truncate to `length` characters, and replace surrogates, which UTF-8 cannot encode."""
    if len(text) > length:
        text = text[: length - 1] + "…"
    return text.encode(errors="replace").decode()
