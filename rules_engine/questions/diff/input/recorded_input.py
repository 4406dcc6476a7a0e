"""Recorded admissions: the requests in lines of a decision log, without the members that a server leaves out.

The API server calls /mutate, and then /validate with the mutated pod. Each pod is decided once, by its first call: the
recorded rules have already changed the pod of /validate. Each call has a uid of its own, so only names tell which calls
are for the same pod.
"""

from collections import Counter
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

from msgspec import DecodeError, Raw, Struct, field
from msgspec.json import Decoder

from rules_engine.model.json.lenient import as_mapping, text_member
from rules_engine.model.problems.problem import Problems
from rules_engine.model.rules.admission import AdmissionRequest, Endpoint
from rules_engine.model.rules.logged_decision import LEFT_OUT
from rules_engine.questions.decision_log import DecisionLogReader
from rules_engine.questions.diff.values import RecordedAdmissions, SubmittedPods, WorkloadName, largest_first

MUTATE, VALIDATE = (endpoint.path[1:] for endpoint in Endpoint)

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


_decode_request = Decoder(dict[str, Any]).decode


class RecordedInput:
    """A decision log."""

    def __init__(self, path: Path, problems: Problems) -> None:
        self._log = DecisionLogReader(path, _DecisionLine, problems)
        self._replayed = self._later_calls = 0
        self._not_replayable = Counter[str]()
        self._calls = set[bytes]()
        """The digests of the calls of /mutate: names may be long."""
        self._waiting: list[_DecisionLine] = []
        """Lines of /validate whose call of /mutate may follow, since lines of several replicas may be mixed."""

    def pods(self) -> Iterator[SubmittedPods]:
        """Yield each pod once, as it was submitted. Lines that are no decisions are problems."""
        yield from filter(None, (self._submit(line, wait=True) for line in self._log))
        yield from filter(None, (self._submit(line, wait=False) for line in self._waiting))

    @property
    def totals(self) -> RecordedAdmissions:
        """The numbers of its lines, once `pods` has read them."""
        return RecordedAdmissions(
            lines=self._log.lines,
            admissions=self._log.decisions,
            replayed=self._replayed,
            later_calls=self._later_calls,
            not_replayable=largest_first(self._not_replayable),
            unreadable=largest_first(self._log.unreadable),
        )

    def _submit(self, line: _DecisionLine, *, wait: bool) -> SubmittedPods | None:
        """Return the pod of a line if it is decided again; with `wait`, it may be decided after all others."""
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
        if line.endpoint == VALIDATE and wait:
            self._waiting.append(line)
            return None
        self._replayed += 1
        kind, name = line.owner.get("kind", "Pod"), line.owner.get("name", line.pod)
        return SubmittedPods(workload=WorkloadName.of("", line.namespace, kind, name), request=request, missing=missing)

    def _was_called(self, line: _DecisionLine, request: AdmissionRequest) -> bool:
        """Return True if /mutate was called for the pod, or for a pod of its workload."""
        generated = text_member(as_mapping(as_mapping(request.object).get("metadata")), "generateName")
        return any(line.call(pod) in self._calls for pod in (line.pod, f"{generated}*"))
