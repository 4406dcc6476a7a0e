"""Recorded admissions: lines of decision logs with the fields of requests and of the cluster that rules could read.

The API server calls /mutate, and then /validate with the mutated pod. Each pod is decided once, by its first call: the
recorded rules have already changed the pod of /validate. Each call has a uid of its own, so only names tell which calls
are for the same pod.
"""

from collections.abc import Callable, Container, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

from msgspec import Struct, ValidationError, field
from msgspec.json import Decoder, decode

from rules_engine.difference.decisions import depends_on_devices
from rules_engine.difference.grouping import RecordedTotals
from rules_engine.difference.reading.object_stream import ObjectFile
from rules_engine.difference.reading.recorded_views import RecordedViews
from rules_engine.difference.values import Submitted, Workload
from rules_engine.documents.workloads import pod_count
from rules_engine.evaluation import RuleSet
from rules_engine.loading.files import report_unreadable
from rules_engine.loading.kubernetes.manifests import Manifest
from rules_engine.model.json.lenient import as_mapping, object_items, text_member
from rules_engine.model.json.patch import Json
from rules_engine.model.json.strict import PodError
from rules_engine.model.kubernetes.cluster import Cluster
from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.excerpt import escape_controls
from rules_engine.model.problems.problem import Problems
from rules_engine.model.problems.source import Location
from rules_engine.model.rules.admission import AdmissionRequest, Endpoint, pod_request
from rules_engine.model.rules.decision import Decision
from rules_engine.model.rules.rule import Operation
from rules_engine.recording.fields import (
    LINE_ERRORS,
    MAX_LINE_BYTES,
    RECORD_KINDS,
    RecordedFields,
    Unrecorded,
    log_lines,
)
from rules_engine.recording.views import ViewFields

HEAD_BYTES = MAX_LINE_BYTES
"""Bytes of the beginning of a file by which a decision log is recognized."""

MAX_FIELDS = 64
"""Lists of fields that are kept, the most recent ones: each rule set has one."""

MAX_LINE_WARNINGS = 3
"""Unreadable lines of one file with a warning of their own: the others are counted."""

MUTATE, VALIDATE = (endpoint.path[1:] for endpoint in Endpoint)

TOO_LONG = f"longer than {MAX_LINE_BYTES:,} bytes"
NO_JSON = "cut, or not JSON"
NO_DECISION = "not a line of a decision log"

NOT_RECORDED = "the server did not record requests (--decision-log-requests)"
NO_FIELDS = "the list of recorded fields was not found in the log"
UNREADABLE = "the recorded request cannot be read"
ONLY_CREATED = "/mutate decides only pods that are created"
_UNRECORDED: Mapping[str, str] = {
    Unrecorded.REDACTED.value: "rules read values of environment variables or the last applied configuration",
    Unrecorded.SIZE.value: "the line would have been too long to be recorded",
    Unrecorded.MALFORMED.value: "the pod is malformed",
    Unrecorded.VIEW.value: "the view of the cluster was not recorded: views changed too fast, or it was too large",
}

Decide = Callable[[Endpoint, AdmissionRequest, Cluster], Decision]
"""A function that returns the decision of an endpoint under the old rules."""


class _Head(Struct, frozen=True):
    """The members of a line that identify its pod."""

    record: str = ""
    endpoint: str = ""
    outcome: str = ""
    operation: str = ""
    namespace: str = ""
    pod: str = ""
    owner: dict[str, str] = field(default_factory=dict)
    rules: dict[str, Any] = field(default_factory=dict)

    @property
    def logged(self) -> bool:
        """True for a line of a decision log."""
        return self.record in RECORD_KINDS if self.record else bool(self.endpoint and self.outcome)

    def names(self, pod: str) -> str:
        """Return the key of a pod, or of its workload's pods (`pod`: "prefix*"), under the rules that decided it."""
        names = (
            text_member(self.rules, "digest"),
            self.namespace,
            self.owner.get("kind", ""),
            self.owner.get("name", ""),
            pod,
        )
        return "\0".join(names)


class _Line(_Head, frozen=True):
    """A line of a decision."""

    request: dict[str, Any] | None = None
    fields: str = ""
    view: str = ""
    unrecorded: str = ""
    patch: list[Any] = field(default_factory=list)
    truncated: list[str] = field(default_factory=list)


_RECORD = b'"record"'

_decode_head = Decoder(_Head).decode
_decode_line = Decoder(_Line).decode


class RecordedSide(Struct, frozen=True):
    """The fields and the parts of a view that the rules of one side read. `option` names the side in messages."""

    option: str
    fields: RecordedFields
    view: ViewFields

    @classmethod
    def of(cls, option: str, rule_set: RuleSet) -> "RecordedSide":
        return cls(option, RecordedFields.of(rule_set.rules), ViewFields.of(rule_set))


class Replay(Struct, frozen=True, kw_only=True):
    """The rules under which recorded admissions are decided again: the fields that they read, and the old rules.

    `digest`: of the old rules. `column`: the cluster in the workloads of recorded pods.
    """

    sides: Sequence[RecordedSide]
    decide: Decide
    digest: str
    column: str = ""


class RecordedInput:
    """Decision logs, which are read in two passes: first the names of pods, then the pods.

    `totals`: the numbers of their lines.
    """

    def __init__(self) -> None:
        self.totals = RecordedTotals()
        self.files: list[ObjectFile] = []
        self._calls = set[str]()
        """The keys of the pods for which /mutate was called."""

    def add(self, file: ObjectFile, problems: Problems) -> None:
        """Read the first pass over a log. Unreadable lines are counted; the first ones get a warning each.

        Raises OSError.
        """
        self.files.append(file)
        file.rewind()
        left_out = 0
        for number, line in enumerate(log_lines(file), start=1):
            if line is not None and not line.strip():
                continue
            self.totals.lines += 1
            reason = self._first_pass(line)
            if reason:
                self.totals.unreadable[reason] += 1
                left_out += 1
                if left_out <= MAX_LINE_WARNINGS:
                    message = f"the line is left out: {reason}"
                    problems.warning(Code.UNREAD_OBJECT, message, Location(file.name, number, 1))
        if left_out > MAX_LINE_WARNINGS:
            lines = "line is" if left_out == MAX_LINE_WARNINGS + 1 else "lines are"
            message = f"{left_out - MAX_LINE_WARNINGS:,} more {lines} left out"
            problems.warning(Code.UNREAD_OBJECT, message, Location(file.name, 1, 1))

    def _first_pass(self, line: bytes | None) -> str:
        """Keep the pod of a call of /mutate; return the reason why a line is unreadable, or ""."""
        if line is None:
            return TOO_LONG
        try:
            head = _decode_head(line)
        except ValidationError:
            return NO_DECISION
        except LINE_ERRORS:
            return NO_JSON
        if not head.logged:
            return NO_DECISION
        if head.endpoint == MUTATE:
            self._calls.add(head.names(head.pod))
        return ""

    def pods(self, replay: Replay, problems: Problems) -> Iterator[tuple[Submitted, Cluster]]:
        """Read the second pass: yield each pod as it was submitted, with the view of its decision."""
        reader = _Reader(replay, self.totals, self._calls)
        for file in self.files:
            file.rewind()
            try:
                for line in log_lines(file):
                    if line:
                        admission = reader.read(line)
                        if admission is not None:
                            yield admission
            except OSError as error:
                report_unreadable(Path(file.name), error, problems)


class _Reader:
    """The second pass, with the lists of fields and the views that were read so far."""

    def __init__(self, replay: Replay, totals: RecordedTotals, calls: Container[str]) -> None:
        self._replay = replay
        self._totals = totals
        self._calls = calls
        self._views = RecordedViews(self._missing_view_reason)
        self._fields: dict[str, str] = {}
        """Reasons why requests cannot be decided again, by the name of their list of fields; "" if they can."""

    def read(self, line: bytes) -> tuple[Submitted, Cluster] | None:
        """Return the pod of a line if it is decided again."""
        if _RECORD in line and self._read_record(line):
            return None
        return self._read_decision(line)

    def _read_record(self, line: bytes) -> bool:
        """Keep fields or a view. Return False for a line that may be a decision."""
        try:
            record = _decode_head(line).record
            if record not in RECORD_KINDS:
                return False
            members = decode(line)
        except LINE_ERRORS:
            return True
        if record == "view":
            self._views.take(line, members)
        else:
            name = text_member(members, "fields")
            self._fields.pop(name, None)
            while len(self._fields) >= MAX_FIELDS:
                del self._fields[next(iter(self._fields))]
            self._fields[name] = self._missing_field_reason(members)
        return True

    def _missing_field_reason(self, members: Mapping[str, Any]) -> str:
        if members.get("omitted") is True:
            return NO_FIELDS
        recorded = RecordedFields.parse(members)
        missing = ((side, path) for side in self._replay.sides for path in recorded.missing(side.fields))
        return next((_not_recorded_reason(side, path) for side, path in missing), "")

    def _missing_view_reason(self, recorded: ViewFields) -> str:
        missing = ((side, part) for side in self._replay.sides for part in recorded.missing(side.view))
        return next((_not_recorded_reason(side, part) for side, part in missing), "")

    def _read_decision(self, line: bytes) -> tuple[Submitted, Cluster] | None:
        totals = self._totals
        try:
            decision_line = _decode_line(line)
        except LINE_ERRORS:
            if _is_log_line(line):
                totals.admissions += 1
                totals.not_replayable[UNREADABLE] += 1
            return None
        if not decision_line.logged:
            return None
        totals.admissions += 1
        if self._is_later(decision_line):
            totals.later_calls += 1
            return None
        replayed = self._replay_line(decision_line)
        if isinstance(replayed, str):
            totals.not_replayable[replayed] += 1
            return None
        totals.replayed += 1
        return replayed

    def _is_later(self, line: _Line) -> bool:
        """Return True for a call of /validate if /mutate was called for the pod, or for a pod of its workload."""
        if line.endpoint != VALIDATE or line.operation != Operation.CREATE.value:
            return False
        metadata = as_mapping(as_mapping(as_mapping(line.request).get("object")).get("metadata"))
        generated = text_member(metadata, "generateName")
        return line.names(line.pod) in self._calls or (bool(generated) and line.names(f"{generated}*") in self._calls)

    def _replay_line(self, line: _Line) -> tuple[Submitted, Cluster] | str:
        """Return the pod of a decision and its view, or the reason why it cannot be decided again."""
        if line.unrecorded:
            return _UNRECORDED.get(line.unrecorded, NOT_RECORDED)
        if line.request is None:
            return NOT_RECORDED
        refused = self._fields.get(line.fields, NO_FIELDS)
        if refused:
            return refused
        view = self._views.of(line.view)
        if isinstance(view, str):
            return view
        try:
            request = AdmissionRequest.parse(line.request)
        except PodError:
            return UNREADABLE
        if line.endpoint == MUTATE and request.operation != Operation.CREATE.value:
            return ONLY_CREATED
        unknown = sorted(view.omitted & _node_labels(request.object)) if view.omitted else ()
        if unknown:
            return f"the pod selects nodes by the label {escape_controls(unknown[0])}, which was not recorded"
        self._compare(line, request, view.cluster)
        kind, name = line.owner.get("kind", "Pod"), line.owner.get("name", line.pod)
        workload = Workload.of(self._replay.column, line.namespace, kind, name)
        return Submitted(workload=workload, request=request, user_unknown=False), view.cluster

    def _compare(self, line: _Line, request: AdmissionRequest, view: Cluster) -> None:
        """Count a line of other rules, or a line that the old rules now decide differently."""
        if text_member(line.rules, "digest") != self._replay.digest:
            self._totals.other_rules += 1
            return
        endpoint = Endpoint.MUTATE if line.endpoint == MUTATE else Endpoint.VALIDATE
        decision = self._replay.decide(endpoint, request, view)
        patch = [operation.to_json() for operation in decision.patch]
        if depends_on_devices(decision.trace, view):
            return
        if decision.outcome != line.outcome or (patch != line.patch and "patch" not in line.truncated):
            self._totals.differing += 1


def _node_labels(pod: Json) -> Set[str]:
    """Return the keys of the labels by which a pod selects nodes."""
    spec = as_mapping(as_mapping(pod).get("spec"))
    affinity = as_mapping(as_mapping(spec.get("affinity")).get("nodeAffinity"))
    required = as_mapping(affinity.get("requiredDuringSchedulingIgnoredDuringExecution"))
    terms = object_items(required.get("nodeSelectorTerms"))
    expressions = (expression for term in terms for expression in object_items(term.get("matchExpressions")))
    return {*as_mapping(spec.get("nodeSelector")), *(text_member(expression, "key") for expression in expressions)}


def _not_recorded_reason(side: RecordedSide, field: str) -> str:
    return f"the rules of {side.option} read {escape_controls(field)}, which was not recorded"


def is_decision_log(file: ObjectFile) -> bool:
    """Return True if a line near the beginning of a file comes from a decision log. Raises OSError."""
    file.rewind()
    head = file.read(HEAD_BYTES)
    return any(map(_is_log_line, head.split(b"\n")))


def _is_log_line(line: bytes) -> bool:
    try:
        return line.lstrip().startswith(b"{") and _decode_head(line).logged
    except LINE_ERRORS:
        return False


def submit_manifest(manifest: Manifest, default_namespace: str, cluster_name: str, problems: Problems) -> Submitted:
    """Return the pods of a manifest, as its controller submits them.

    `default_namespace`: for an object without a namespace. A workload that is scaled to zero counts as one pod, or
    its changes would not count. A malformed number of pods is a problem.
    """
    namespace = manifest.namespace or default_namespace
    workload = Workload.of(cluster_name, namespace, manifest.kind, manifest.name)
    request = pod_request(manifest.submitted(), namespace=namespace)
    return Submitted(workload=workload, request=request, count=max(1, pod_count(manifest, problems)))
