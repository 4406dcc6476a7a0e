"""Views of the cluster in decision logs, by name."""

from collections.abc import Callable, Sequence
from hashlib import blake2s

from msgspec import Struct, field
from msgspec.json import decode, encode

from rules_engine.model.json.lenient import Object, as_mapping, integer_member, text_member
from rules_engine.model.kubernetes.cluster import Cluster
from rules_engine.model.kubernetes.quantity import QuantityError
from rules_engine.recording.fields import LINE_ERRORS
from rules_engine.recording.views import MAX_LABELS, MAX_NODES, MAX_VIEW_BYTES, ViewFields, ViewSizeError, read_view

MAX_VIEWS = 256
"""Views that are kept: the decisions of a server refer to its last few views, and a log may have many servers."""

MAX_VIEWS_BYTES = 32 * 1024 * 1024
"""Bytes of the lines of all views that are kept: a view of 5,000 nodes takes 300 kB."""

MAX_LINES_BYTES = 2 * MAX_VIEW_BYTES
"""Bytes of the lines of one view: a server omits a view of more than MAX_VIEW_BYTES."""

MAX_CLUSTERS = 4
"""Views that are kept decoded: a view of 5,000 nodes takes some 10 MB, and more once rules have read it."""

NOT_FOUND = "the view of the cluster was not found in the log"
OMITTED = "the view of the cluster was too large to be recorded"
TOO_LARGE = f"the view of the cluster has more than {MAX_NODES:,} nodes or {MAX_LABELS:,} labels of nodes"
UNREADABLE = "the view of the cluster cannot be read"

_LINE_MEMBERS = frozenset({"record", "view", "part", "time"})
"""Members of a view's lines that do not belong to the view."""


class RecordedView(Struct, frozen=True):
    """A view. `omitted`: keys of node labels that were not recorded."""

    cluster: Cluster
    omitted: frozenset[str]


class _Lines(Struct):
    """The lines of a view by the number of the part; `parts` is the number of all parts.

    `same`: the name of an equal view. The parts may follow: a server repeats them at the beginning of a file.
    """

    by_part: dict[int, bytes] = field(default_factory=dict)
    parts: int = 0
    size: int = 0
    same: str = ""
    omitted: bool = False

    @property
    def complete(self) -> bool:
        return self.omitted or 0 < self.parts == len(self.by_part)


class RecordedViews:
    """The last views of logs. Their lines are decoded when a decision first refers to them.

    `rejection_reason`: a function that returns why a view with these fields cannot be used, or "".
    """

    def __init__(self, rejection_reason: Callable[[ViewFields], str]) -> None:
        self._rejection_reason = rejection_reason
        self._lines: dict[str, _Lines] = {}
        self._size = 0
        self._decoded: dict[bytes, RecordedView | str] = {}
        """By the digest of the content: servers name equal views differently."""
        self._digests: dict[str, bytes] = {}
        """Digests of the contents of the views in `_lines`, by name."""

    def take(self, line: bytes, members: Object) -> None:
        """Keep a line of a view. The lines of a view that is complete repeat it."""
        name = text_member(members, "view")
        lines = self._lines.pop(name, None) or _Lines()
        self._lines[name] = lines
        if not lines.complete:
            lines.same = text_member(members, "same") or lines.same
            lines.omitted = members.get("omitted") is True
            lines.parts = integer_member(members, "parts")
            number = integer_member(members, "part")
            if 1 <= number <= lines.parts and number not in lines.by_part and not lines.complete:
                lines.by_part[number] = line
                lines.size += len(line)
                self._size += len(line)
                lines.omitted = lines.size > MAX_LINES_BYTES
        if lines.same in self._lines:
            self._lines[lines.same] = self._lines.pop(lines.same)  # no older than the views that equal it
        while len(self._lines) > MAX_VIEWS or self._size > MAX_VIEWS_BYTES:
            oldest = next(iter(self._lines))
            self._size -= self._lines.pop(oldest).size
            self._digests.pop(oldest, None)

    def of(self, name: str) -> RecordedView | str:
        """Return the view of a name, or the reason why there is none."""
        lines = self._lines.get(name)
        if lines is not None and lines.same and not lines.complete:
            name = lines.same
            lines = self._lines.get(name)
        if lines is None or not lines.complete:
            return NOT_FOUND
        if lines.omitted:
            return OMITTED
        digest = self._digests.get(name)
        decoded = None if digest is None else self._decoded.get(digest)
        if decoded is not None:
            return decoded
        try:
            return self._decode(name, [as_mapping(decode(lines.by_part[number])) for number in sorted(lines.by_part)])
        except (QuantityError, *LINE_ERRORS):
            return UNREADABLE
        except ViewSizeError:
            return TOO_LARGE

    def _decode(self, name: str, parts: Sequence[Object]) -> RecordedView | str:
        content = [{key: value for key, value in part.items() if key not in _LINE_MEMBERS} for part in parts]
        digest = self._digests[name] = blake2s(encode(content)).digest()
        view = self._decoded.get(digest)
        if view is None:
            fields = ViewFields.parse(parts[0])
            view = self._rejection_reason(fields) or RecordedView(read_view(parts), fields.omitted)
            if len(self._decoded) >= MAX_CLUSTERS:
                del self._decoded[next(iter(self._decoded))]
            self._decoded[digest] = view
        return view
