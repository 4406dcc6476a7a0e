"""Recorded requests in the decision log: the fields of each request that rules read, and the views of the cluster.

Requests are reduced by the thread that answers them. Views are encoded by the thread that writes the log, since a view
of thousands of nodes takes tens of milliseconds.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from math import inf
from threading import Lock
from time import monotonic
from typing import NamedTuple

import orjson

from rules_engine.model.kubernetes.cluster import Cluster
from rules_engine.recording.fields import RecordedFields, Unrecorded
from rules_engine.recording.views import ViewFields, view_parts
from server.http.admission_record import AdmissionRecord
from server.state import ServedRules

VIEW_BYTES_PER_SECOND = 256 * 1024
"""Bytes of views on average: a cluster of 5,000 nodes whose free devices change all the time gets a view per second."""

VIEW_SHARE = 1 / 20
"""Share of the time in which views are encoded, at most: meanwhile no request is answered."""

REPEAT_BYTES = 8 * 1024 * 1024
"""Bytes of lines after which the view is repeated: kubelets rotate a container's log at 10 MiB by default."""

REPEAT_SECONDS = 3600.0
"""Time after which the view is repeated, for logs that are rotated hourly."""

REPEATED_FIELDS = 2
"""Lists of fields that are repeated: decisions of the last rules may be in progress while others come into force."""

MARGIN_BYTES = 512
"""Bytes of a line beside the part of a view: names, numbers and time."""


class NewView(NamedTuple):
    """A view that decisions begin to name."""

    name: str
    cluster: Cluster
    fields: ViewFields


Announced = NewView | RecordedFields
"""A view, or a list of fields, that decisions begin to name."""


class Recorded(NamedTuple):
    """The recorded members of a line, and the request encoded."""

    members: Mapping[str, str]
    request: bytes | None = None


class _Reads(NamedTuple):
    """The fields that the rules of one generation read."""

    served: ServedRules
    requests: RecordedFields
    view: ViewFields

    @classmethod
    def of(cls, served: ServedRules) -> "_Reads":
        rules = served.rule_set
        # A pod for which /mutate is not called may be admitted again by rules that change it.
        return cls(served, RecordedFields.of(rules.rules), ViewFields.of(rules))


class Recorder:
    """Names of fields and views. Safe for use from several threads."""

    def __init__(self, process: str, clock: Callable[[], float] = monotonic) -> None:
        self._process = process
        self._clock = clock
        self._lock = Lock()
        self._reads: _Reads | None = None
        self._announced: list[Announced] = []
        self._last: NewView | None = None
        self._omitted: NewView | None = None
        """The last view, if it was too large to be written."""
        self._count = 0
        self._next_view = -inf
        """Earliest time of another view; infinity while one waits to be encoded."""

    def __call__(self, record: AdmissionRecord) -> Recorded:
        """Return the recorded members of a request's line."""
        request, served, cluster, decision = record.request, record.served, record.cluster, record.decision
        if request is None or served is None or cluster is None or decision is None or decision.refusal is not None:
            return _without_request(Unrecorded.MALFORMED)
        fields, view = self._names(served, cluster)
        if view is None:
            return _without_request(Unrecorded.VIEW)
        reduced = fields.reduce_request(request)
        if isinstance(reduced, Unrecorded):
            return _without_request(reduced)
        try:
            return Recorded({"fields": fields.name, "view": view}, orjson.dumps(reduced))
        except orjson.JSONEncodeError:  # nested too deeply, as no pod of an API server is
            return _without_request(Unrecorded.SIZE)

    def take_announced(self) -> Sequence[Announced]:
        """Return the fields and views that requests began to name since the last call."""
        with self._lock:
            taken, self._announced = self._announced, []
        return taken

    def allow_next_view(self, size: int, seconds: float, *, omitted: bool = False) -> None:
        """Allow another view after one of this size that took this long to encode. `omitted`: it was too large."""
        with self._lock:
            self._omitted = self._last if omitted else None
            self._next_view = self._clock() + max(size / VIEW_BYTES_PER_SECOND, seconds / VIEW_SHARE)

    def _names(self, served: ServedRules, cluster: Cluster) -> tuple[RecordedFields, str | None]:
        with self._lock:
            reads = self._reads
            if reads is None or reads.served is not served:
                reads = self._reads = _Reads.of(served)
                self._announced.append(reads.requests)
            fields = reads.requests
            last = self._last
            if last is not None and last.cluster is cluster and last.fields == reads.view:
                return fields, None if last is self._omitted else last.name
            if self._clock() < self._next_view:
                return fields, None
            self._next_view = inf
            self._count += 1
            self._last = NewView(f"{self._process}-{self._count}", cluster, reads.view)
            self._announced.append(self._last)
            return fields, self._last.name


def _without_request(reason: Unrecorded) -> Recorded:
    return Recorded({"unrecorded": reason.value})


class Headers:
    """Lines of fields and views, which are repeated in each new file. For the thread that writes the log."""

    def __init__(self, recorder: Recorder, max_line_bytes: int, clock: Callable[[], float] = monotonic) -> None:
        self._recorder = recorder
        self._max_line_bytes = max_line_bytes
        self._clock = clock
        self._fields: dict[str, list[bytes]] = {}
        """Lines by name of the newest fields."""
        self._view: tuple[str, list[bytes]] | None = None
        """Name and parts of the newest view."""
        self._written = ""
        """Name under which the parts of the newest view were written last."""
        self._file: tuple[int, int] | None = None
        self._bytes = 0
        self._since = clock()

    def take_announced(self) -> list[bytes]:
        """Return the lines of the fields and views that requests began to name since the last call."""
        return [line for announced in self._recorder.take_announced() for line in self.of(announced)]

    def of(self, announced: Announced) -> list[bytes]:
        """Return the lines of new fields or of a new view."""
        if isinstance(announced, RecordedFields):
            name = announced.name
            lines = self._lines({"record": "fields", "fields": name}, [orjson.dumps(announced.to_json())])
            self._fields.pop(name, None)
            while len(self._fields) >= REPEATED_FIELDS:
                del self._fields[next(iter(self._fields))]
            self._fields[name] = lines
            return lines
        begin = self._clock()
        try:
            parts = view_parts(announced.cluster, announced.fields, self._max_line_bytes - MARGIN_BYTES)
        except ValueError:  # an amount beyond all bounds, or a text that is not Unicode, in a cluster read from a file
            parts = None
        encoded = [b'{"omitted":true}'] if parts is None else [orjson.dumps(part) for part in parts]
        unchanged = self._view is not None and self._view[1] == encoded
        self._view = announced.name, encoded
        if unchanged:
            lines = [_encode_line({"record": "view", "view": announced.name, "same": self._written})]
        else:
            self._written = announced.name
            lines = self._lines({"record": "view", "view": announced.name}, encoded)
        self._recorder.allow_next_view(sum(map(len, lines)), self._clock() - begin, omitted=parts is None)
        return lines

    def count(self, size: int) -> None:
        """Count bytes of lines that were written."""
        self._bytes += size

    def lines_to_repeat(self, file: tuple[int, int], *, empty: bool) -> list[bytes]:
        """Return the lines to repeat in a file; none if they were written to it recently.

        `file`: its device and inode. `empty`: nothing was written to it yet.
        """
        now = self._clock()
        new = empty or file != self._file
        if not new and self._bytes < REPEAT_BYTES and now < self._since + REPEAT_SECONDS:
            return []
        self._file, self._bytes, self._since = file, 0, now
        lines = [line for fields in self._fields.values() for line in fields]
        if self._view is not None:
            self._written, parts = self._view
            lines += self._lines({"record": "view", "view": self._written}, parts)
        return lines

    def forget_file(self) -> None:
        """Repeat the lines with the next write: some of them may have been lost."""
        self._file = None

    def _lines(self, members: Mapping[str, object], parts: Sequence[bytes]) -> list[bytes]:
        lines = []
        for number, part in enumerate(parts, start=1):
            count = {"part": number, "parts": len(parts)} if "view" in members else {}
            line = _encode_line({**members, **count}, part)
            lines.append(line if len(line) <= self._max_line_bytes else _encode_line(members, b'{"omitted":true}'))
        return lines


def _encode_line(members: Mapping[str, object], part: bytes = b"{}") -> bytes:
    begin = orjson.dumps({**members, "time": datetime.now(UTC)}, option=orjson.OPT_UTC_Z)
    return begin[:-1] + (b"," if len(part) > len(b"{}") else b"") + part[1:] + b"\n"
