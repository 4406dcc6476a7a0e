"""Fields of a request that are recorded: all that decisions read, except values of environment variables."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from hashlib import blake2s

from msgspec import DecodeError
from msgspec.json import Encoder

from rules_engine.evaluation.fields_read import fields_read
from rules_engine.evaluation.rule_set.compiled import CompiledRule
from rules_engine.loading.json_list import CHUNK_BYTES, Readable
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.kept_fields import (
    LAST_APPLIED,
    NO_FIELDS,
    Kept,
    merge_fields,
    missing_paths,
    reduce_value,
)
from rules_engine.model.rules.admission import AdmissionRequest
from rules_engine.model.rules.rule import Rule

MAX_LEVELS = 64
"""Levels of nested members in a record; a Pod has fewer."""

_REQUEST_FIELDS: Kept = dict.fromkeys(("uid", "kind", "name", "namespace", "operation", "subResource", "dryRun"))
_BASE_FIELDS = merge_fields(_REQUEST_FIELDS, {"object": {"metadata": {"name": None, "generateName": None}}})
"""Members of every request that are recorded even if no decision reads them."""

_encode = Encoder(order="sorted").encode


class Unrecorded(Enum):
    """Reasons why a decision cannot be repeated from its line."""

    REDACTED = "redacted"
    SIZE = "size"
    MALFORMED = "malformed"
    VIEW = "view"


@dataclass(frozen=True, slots=True)
class RecordedFields:
    """The members of requests that are recorded; members of pods are below `object` and `oldObject`.

    A request with a value of an environment variable or a last applied configuration in these members is not recorded.
    """

    kept: Kept
    name: str = field(init=False, compare=False)

    def __post_init__(self) -> None:
        name = blake2s(_encode(self.to_json()), digest_size=4).hexdigest()
        object.__setattr__(self, "name", name)

    @classmethod
    def of(cls, rules: Iterable[CompiledRule[Rule]]) -> "RecordedFields":
        """Return the fields that these rules read, except fields that only their messages read."""
        return cls(merge_fields(_BASE_FIELDS, fields_read(rules, messages=False)))

    @classmethod
    def parse(cls, members: Mapping[str, Json]) -> "RecordedFields":
        """Parse the JSON of `to_json`; members of other types count as not recorded."""
        return cls(_parse_kept(members.get("members", {}), MAX_LEVELS))

    def to_json(self) -> dict[str, Json]:
        return {"members": _kept_json(self.kept)}

    def missing(self, read: "RecordedFields") -> Iterator[str]:
        """Yield the fields that other rules read (`read`) and that requests with these fields may lack."""
        for path in missing_paths(self.kept, read.kept):
            root, *names = path if path[:1] in (("object",), ("oldObject",)) else ("request", *path)
            yield root + "".join(f".{name}" if name.isidentifier() else f"[{name!r}]" for name in names)

    def reduce_request(self, request: AdmissionRequest) -> "Json | Unrecorded":
        """Return the recorded fields of a decided request, as JSON that shares the values of the request."""
        fields = reduce_value(request.raw, self.kept if request.is_pod or request.is_resize else _REQUEST_FIELDS)
        return Unrecorded.REDACTED if _has_secret(fields) else fields


def _parse_kept(value: Json, levels: int) -> Kept:
    if value is None:
        return None
    if not isinstance(value, dict) or not levels:
        return NO_FIELDS
    return {name: _parse_kept(member, levels - 1) for name, member in value.items()}


def _kept_json(kept: Kept) -> Json:
    return None if kept is None else {name: _kept_json(kept[name]) for name in sorted(kept)}


def _has_secret(value: Json) -> bool:
    """Return True if a value contains a value of an environment variable, or the last applied configuration."""
    if isinstance(value, list):
        return any(map(_has_secret, value))
    if not isinstance(value, dict):
        return False
    variables = value.get("env")
    if isinstance(variables, list) and any(isinstance(item, dict) and "value" in item for item in variables):
        return True
    return LAST_APPLIED in value or any(map(_has_secret, value.values()))


MAX_LINE_BYTES = 128 * 1024
"""Longest line that is read: the server writes up to 30 KiB, and programs that forward logs add to the lines."""

RECORD_KINDS = ("fields", "view")
"""Values of `record` in lines of recorded requests; a line of a decision has no such member."""

LINE_ERRORS = (DecodeError, UnicodeDecodeError, RecursionError)
"""Errors of decoding a line that is cut or not JSON."""


def log_lines(file: Readable) -> Iterator[bytes | None]:
    """Yield the lines without their ends; None for a line of more than MAX_LINE_BYTES. Raises OSError."""
    # The beginning of a line whose end is in a later chunk; b"" if it is already too long.
    begin = b""
    too_long = False
    while chunk := file.read(CHUNK_BYTES):
        *ended, last = chunk.split(b"\n")
        if ended:
            ended[0] = begin + ended[0]
            if too_long:
                yield None
                del ended[0]
            begin, too_long = b"", False
            for line in ended:
                yield line if len(line) <= MAX_LINE_BYTES else None
        begin = b"" if too_long else begin + last
        if len(begin) > MAX_LINE_BYTES:
            begin, too_long = b"", True
    if too_long:
        yield None
    elif begin:
        yield begin
