"""Typed decoder of AdmissionReviews for the fields that the rules of an endpoint read.

No rule reads most of a pod: environment variables, volumes, probes, managedFields. Making objects of all that takes
half of the time of a cached decision, so it is skipped, with only its syntax checked: numbers beyond a double and any
nesting are accepted there. What is read has the types that the API server writes, or any type if only expressions read
it. Any other body is not decoded here but as a whole, so that no other error depends on this module.
"""

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Annotated, Any, TypeAlias, TypedDict, Union

import msgspec
import orjson

from rules_engine.evaluation.fields_read import FieldsRead
from rules_engine.model.json.patch import Json

Decode: TypeAlias = Callable[[bytes], Json]
"""Function from a body to the part of the review that is read; None if the body must be decoded as a whole."""

CONTAINER_DEPTH = 7
"""Nesting of the containers if they are read as a whole: hooks with HTTP headers. A pod with deeper ones is decoded as
a whole. Each level doubles the time to make a decoder: 10 ms with this depth."""

MEMBER_BRACKETS = 200
"""Objects and lists in a member of any type, and so its nesting. A pod with more is decoded as a whole, which checks
the nesting: counting the brackets of a whole review takes half as long as its partial decoding."""


class _NestedError(Exception):
    """A member that may be nested too deeply."""


@lru_cache(maxsize=8)
def decoder(fields: FieldsRead) -> Decode:
    """Return a decoder of reviews for rules that read these fields; the members that decisions read are included."""
    decode = msgspec.json.Decoder(_review(fields)).decode

    def read(body: bytes) -> Json:
        if not body.isascii():  # UTF-8 is not checked in texts that are skipped
            return None
        try:
            review: Json = decode(body)
            _decode_members(review, fields)
        except (msgspec.DecodeError, RecursionError, orjson.JSONDecodeError, _NestedError):
            return None
        return review

    return read


def _decode_members(review: Any, fields: FieldsRead) -> None:
    """Decode, in place, the members of any type. Raises JSONDecodeError and _NestedError."""
    request = None if review is None else review.get("request")
    if request is None:
        return
    _decode(request, fields.request)
    for name in ("object", "oldObject"):
        pod = request.get(name)
        if pod is not None:
            _decode(pod, fields.pod)
            _decode(pod.get("metadata"), fields.metadata)
            _decode(pod.get("spec"), fields.spec)


def _decode(members: dict[str, Any] | None, names: Iterable[str]) -> None:
    if members is not None:
        for name in names:
            value = members.get(name)
            if type(value) is msgspec.Raw:
                text = bytes(value)
                if text.count(b"{") + text.count(b"[") > MEMBER_BRACKETS:
                    raise _NestedError
                members[name] = orjson.loads(text)


_Integer = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_Scalar: TypeAlias = bool | _Integer | float | str | None
_Text: TypeAlias = str | None
_Texts: TypeAlias = dict[str, str] | None


def _nested(depth: int) -> Any:
    """Return the type of a JSON value nested up to `depth` levels: Any would include integers over 64 bits."""
    found: Any = _Scalar
    for _ in range(depth):
        found = Union[_Scalar, list[found], dict[str, found]]  # noqa: UP007 - the operand is a value
    return found


_typed_dict: Any = TypedDict  # type checkers know only calls with constant members


def _object(**members: Any) -> Any:
    """Return the type of an object whose other members are skipped; null counts as absent."""
    return Union[_typed_dict("Object", members, total=False), None]  # noqa: UP007


def _list(item: Any) -> Any:
    return Union[list[item], None]  # noqa: UP007


def _review(fields: FieldsRead) -> Any:
    """Return the type of a review. In each object the members that expressions read replace those read in part."""
    amounts = _object(requests=_Texts, limits=_Texts)
    containers = _list(_object(name=_Text, restartPolicy=_Text, resources=amounts))
    read_containers = _nested(CONTAINER_DEPTH)  # faster than Raw, by a fifth of a typical review
    expressions = _list(_object(key=_Text, operator=_Text, values=_list(str)))
    terms = _list(_object(matchExpressions=expressions, matchFields=expressions))
    required = _object(requiredDuringSchedulingIgnoredDuringExecution=_object(nodeSelectorTerms=terms))
    scalars = _list(dict[str, _Scalar])
    metadata = {
        **dict.fromkeys(fields.metadata, msgspec.Raw),
        **dict.fromkeys(("name", "generateName", "namespace", "uid", "deletionTimestamp"), _Text),
        **dict.fromkeys(("labels", "annotations"), _Texts),
        "ownerReferences": scalars,
    }
    spec = {
        "affinity": _object(nodeAffinity=required),
        "resources": amounts,
        **dict.fromkeys(fields.spec, msgspec.Raw),
        **{name: read_containers if name in fields.spec else containers for name in ("containers", "initContainers")},
        "nodeName": _Text,
        **dict.fromkeys(("nodeSelector", "overhead"), _Texts),
        "tolerations": scalars,
    }
    pod = _object(**dict.fromkeys(fields.pod, msgspec.Raw), metadata=_object(**metadata), spec=_object(**spec))
    request = {
        "userInfo": _object(username=_Text),
        "options": _object(),
        **dict.fromkeys(fields.request, msgspec.Raw),
        **dict.fromkeys(("uid", "operation", "namespace", "name", "subResource", "requestSubResource"), _Text),
        **dict.fromkeys(("kind", "resource", "requestKind", "requestResource"), _Texts),
        "dryRun": bool | None,
        **dict.fromkeys(("object", "oldObject"), pod),
    }
    return _object(apiVersion=_Text, kind=_Text, request=_object(**request))
