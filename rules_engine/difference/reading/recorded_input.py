"""Recorded admissions: the requests in lines of a decision log, without the members that a server leaves out.

The API server calls /mutate, and then /validate with the mutated pod. Each pod is decided once, by its first call: the
recorded rules have already changed the pod of /validate. Each call has a uid of its own, so only names tell which calls
are for the same pod.
"""

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

from msgspec import DecodeError, Raw, Struct, ValidationError, field
from msgspec.json import Decoder

from rules_engine.difference.grouping import RecordedTotals
from rules_engine.difference.reading.object_stream import ObjectFile
from rules_engine.difference.values import Submitted, Workload
from rules_engine.loading.files import report_unreadable
from rules_engine.loading.log_lines import MAX_LINE_BYTES, log_lines
from rules_engine.model.json.lenient import as_mapping, text_member
from rules_engine.model.json.strict import PodError
from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.problem import Problems
from rules_engine.model.problems.source import Location
from rules_engine.model.rules.admission import AdmissionRequest, Endpoint
from rules_engine.model.rules.recorded_request import LEFT_OUT

MAX_LINE_WARNINGS = 3
"""Unreadable lines of one file with a warning of their own: the others are counted."""

MUTATE, VALIDATE = (endpoint.path[1:] for endpoint in Endpoint)

TOO_LONG = f"longer than {MAX_LINE_BYTES:,} bytes"
NO_JSON = "cut, or not JSON"
NO_DECISION = "not a line of a decision log"

NOT_RECORDED = "the request was not recorded, or too long for a line"
UNREADABLE = "the recorded request cannot be read"

_DECODE_ERRORS = (DecodeError, UnicodeDecodeError, RecursionError)


class _Line(Struct, frozen=True):
    """A line of a decision."""

    endpoint: str
    outcome: str
    operation: str = ""
    namespace: str = ""
    pod: str = ""
    owner: dict[str, str] = field(default_factory=dict)
    rules: dict[str, Any] = field(default_factory=dict)
    request: Raw = field(default_factory=Raw)
    left_out: list[str] | None = field(default=None, name="leftOut")

    def call(self, pod: str) -> bytes:
        """Return a digest of a call for a pod, or for a workload's pods (`pod`: "prefix*"), under its rules."""
        owner = self.owner.get("kind", ""), self.owner.get("name", "")
        names = text_member(self.rules, "digest"), self.operation, self.namespace, *owner, pod
        return sha256("\0".join(names).encode()).digest()


_decode_line = Decoder(_Line).decode
_decode_request = Decoder(dict[str, Any]).decode


class RecordedInput:
    """A decision log, which is read in two passes: first the names of pods, then the pods.

    `totals`: the numbers of its lines.
    """

    def __init__(self, file: ObjectFile, problems: Problems) -> None:
        """Read the first pass. Unreadable lines are counted; the first ones get a warning each. Raises OSError."""
        self.totals = RecordedTotals()
        self.file = file
        self._calls = set[bytes]()
        """The digests of the calls of /mutate: names may be long."""
        for number, line in enumerate(log_lines(file), start=1):
            if line is not None and not line.strip():
                continue
            self.totals.lines += 1
            reason = self._first_pass(line)
            if reason:
                self.totals.unreadable[reason] += 1
                left_out = self.totals.unreadable.total()
                if left_out <= MAX_LINE_WARNINGS:
                    message = f"the line is left out: {reason}"
                    problems.warning(Code.UNREAD_OBJECT, message, Location(file.name, number, 1))
        left_out = self.totals.unreadable.total()
        if left_out > MAX_LINE_WARNINGS:
            lines = "line is" if left_out == MAX_LINE_WARNINGS + 1 else "lines are"
            message = f"{left_out - MAX_LINE_WARNINGS:,} more {lines} left out"
            problems.warning(Code.UNREAD_OBJECT, message, Location(file.name, 1, 1))

    def _first_pass(self, text: bytes | None) -> str:
        """Keep the pod of a call of /mutate; return the reason why a line is unreadable, or ""."""
        if text is None:
            return TOO_LONG
        try:
            line = _decode_line(text)
        except ValidationError:
            return NO_DECISION
        except _DECODE_ERRORS:
            return NO_JSON
        if line.endpoint == MUTATE:
            self._calls.add(line.call(line.pod))
        return ""

    def pods(self, problems: Problems) -> Iterator[Submitted]:
        """Read the second pass: yield each pod once, as it was submitted."""
        self.file.rewind()
        try:
            for text in log_lines(self.file):
                submitted = self._second_pass(text or b"")
                if submitted is not None:
                    yield submitted
        except OSError as error:
            report_unreadable(Path(self.file.name), error, problems)

    def _second_pass(self, text: bytes) -> Submitted | None:
        """Return the pod of a line if it is decided again."""
        try:
            line = _decode_line(text)
        except _DECODE_ERRORS:
            return None
        totals = self.totals
        totals.admissions += 1
        if not bytes(line.request) or line.left_out is None:
            totals.not_replayable[NOT_RECORDED] += 1
            return None
        try:
            request = AdmissionRequest.parse(_decode_request(line.request))
            missing = {name: LEFT_OUT[name] for name in line.left_out}
        except (PodError, KeyError, *_DECODE_ERRORS):
            totals.not_replayable[UNREADABLE] += 1
            return None
        if line.endpoint == VALIDATE and self._was_called(line, request):
            totals.later_calls += 1
            return None
        totals.replayed += 1
        kind, name = line.owner.get("kind", "Pod"), line.owner.get("name", line.pod)
        return Submitted(workload=Workload.of("", line.namespace, kind, name), request=request, missing=missing)

    def _was_called(self, line: _Line, request: AdmissionRequest) -> bool:
        """Return True if /mutate was called for the pod, or for a pod of its workload."""
        generated = text_member(as_mapping(as_mapping(request.object).get("metadata")), "generateName")
        return any(line.call(pod) in self._calls for pod in (line.pod, f"{generated}*"))
