"""Recorded admissions: the requests in lines of a decision log, without the members that a server leaves out.

The API server calls /mutate, and then /validate with the mutated pod. Each pod is decided once, by its first call: the
recorded rules have already changed the pod of /validate. Each call has a uid of its own, so only names tell which calls
are for the same pod.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from hashlib import sha256
from pathlib import Path
from typing import Any

from msgspec import DecodeError, Raw, Struct, ValidationError, field
from msgspec.json import Decoder

from rules_engine.language.files import STDIN, report_unreadable, standard_input
from rules_engine.language.log_lines import MAX_LINE_BYTES, log_lines
from rules_engine.model.json.lenient import as_mapping, text_member
from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.problem import Problems
from rules_engine.model.problems.source import Location
from rules_engine.model.rules.admission import AdmissionRequest, Endpoint
from rules_engine.model.rules.logged_decision import LEFT_OUT
from rules_engine.questions.diff.values import RecordedAdmissions, SubmittedPods, WorkloadName, largest_first

MAX_LINE_WARNINGS = 3
"""Unreadable lines of one file with a warning of their own: the others are counted."""

MUTATE, VALIDATE = (endpoint.path[1:] for endpoint in Endpoint)

TOO_LONG = f"longer than {MAX_LINE_BYTES:,} bytes"
NO_JSON = "cut, or not JSON"
NO_DECISION = "not a line of a decision log"
NOT_A_LOG = "no decision: is it a decision log?"

NOT_RECORDED = "the request was not recorded, or too long for a line"
UNREADABLE = "the recorded request cannot be read"

_DECODE_ERRORS = (DecodeError, UnicodeDecodeError, RecursionError)


class _DecisionLine(Struct, frozen=True):
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


def _parse_line(text: bytes) -> _DecisionLine | str:
    """Return a line of a decision, or the reason why it is none."""
    try:
        return _decode_line(text)
    except ValidationError:
        return NO_DECISION
    except _DECODE_ERRORS:
        return NO_JSON


_decode_line = Decoder(_DecisionLine).decode
_decode_request = Decoder(dict[str, Any]).decode


class RecordedInput:
    """A decision log."""

    def __init__(self, path: Path, problems: Problems) -> None:
        self._lines = self._replayed = self._later_calls = 0
        self._not_replayable = Counter[str]()
        self._unreadable = Counter[str]()
        self._path = path
        self._problems = problems
        self._calls = set[bytes]()
        """The digests of the calls of /mutate: names may be long."""
        self._waiting: list[bytes] = []
        """Lines of /validate whose call of /mutate may follow, since lines of several replicas may be mixed."""

    def pods(self) -> Iterator[SubmittedPods]:
        """Yield each pod once, as it was submitted. Unreadable lines are counted; the first ones get a warning each."""
        try:
            with nullcontext(standard_input()) if self._path == STDIN else self._path.open("rb") as file:
                yield from filter(None, self._read(log_lines(file)))
        except OSError as error:
            report_unreadable(self._path, error, self._problems)
            return
        left_out = self._unreadable.total()
        if left_out > MAX_LINE_WARNINGS:
            lines = "line is" if left_out == MAX_LINE_WARNINGS + 1 else "lines are"
            self._warn(f"{left_out - MAX_LINE_WARNINGS:,} more {lines} left out", 1)
        if left_out == self._lines:
            self._problems.error(Code.NOT_A_POD, NOT_A_LOG, Location(str(self._path), 1, 1))

    @property
    def totals(self) -> RecordedAdmissions:
        """The numbers of its lines, once `pods` has read them."""
        return RecordedAdmissions(
            lines=self._lines,
            admissions=self._lines - self._unreadable.total(),
            replayed=self._replayed,
            later_calls=self._later_calls,
            not_replayable=largest_first(self._not_replayable),
            unreadable=largest_first(self._unreadable),
        )

    def _warn(self, message: str, number: int) -> None:
        self._problems.warning(Code.UNREAD_OBJECT, message, Location(str(self._path), number, 1))

    def _read(self, lines: Iterable[bytes | None]) -> Iterator[SubmittedPods | None]:
        """Yield the pod of each line that is decided again."""
        for number, text in enumerate(lines, start=1):
            if text is not None and not text.strip():
                continue
            self._lines += 1
            line = TOO_LONG if text is None else _parse_line(text)
            if isinstance(line, str):
                self._unreadable[line] += 1
                if self._unreadable.total() <= MAX_LINE_WARNINGS:
                    self._warn(f"the line is left out: {line}", number)
            else:
                yield self._submit(line, text or b"")
        for text in self._waiting:
            yield self._submit(_decode_line(text))

    def _submit(self, line: _DecisionLine, text: bytes = b"") -> SubmittedPods | None:
        """Return the pod of a line if it is decided again; with its `text`, it may be decided after all others."""
        if line.endpoint == MUTATE:
            self._calls.add(line.call(line.pod))
        if not bytes(line.request) or line.left_out is None:
            self._not_replayable[NOT_RECORDED] += 1
            return None
        try:
            request = AdmissionRequest.parse(_decode_request(line.request))
            missing = {name: LEFT_OUT[name] for name in line.left_out}
        except (KeyError, *_DECODE_ERRORS):
            self._not_replayable[UNREADABLE] += 1
            return None
        if line.endpoint == VALIDATE and self._was_called(line, request):
            self._later_calls += 1
            return None
        if line.endpoint == VALIDATE and text:
            self._waiting.append(text)
            return None
        self._replayed += 1
        kind, name = line.owner.get("kind", "Pod"), line.owner.get("name", line.pod)
        return SubmittedPods(workload=WorkloadName.of("", line.namespace, kind, name), request=request, missing=missing)

    def _was_called(self, line: _DecisionLine, request: AdmissionRequest) -> bool:
        """Return True if /mutate was called for the pod, or for a pod of its workload."""
        generated = text_member(as_mapping(as_mapping(request.object).get("metadata")), "generateName")
        return any(line.call(pod) in self._calls for pod in (line.pod, f"{generated}*"))
