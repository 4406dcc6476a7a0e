"""Files of manifests and of live objects, and the clusters on which their pods are decided."""

import codecs
import os
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from resource import RLIM_INFINITY, RLIMIT_NOFILE, getrlimit, setrlimit
from typing import Any, Self

from msgspec import structs

from rules_engine.difference.reading.live_input import LiveInput, MutatePod
from rules_engine.difference.reading.object_stream import ObjectFile, Progress
from rules_engine.difference.reading.recorded_input import RecordedInput
from rules_engine.difference.reading.views import NO_CLAIMS, Claims, ViewsWithout
from rules_engine.difference.values import Submitted, Workload
from rules_engine.documents.clusters import load_inventory
from rules_engine.documents.manifest_stream import stream_pods
from rules_engine.documents.workloads import pod_count
from rules_engine.loading.files import OTHER_TOOLS, find_files, is_folder, report_unreadable
from rules_engine.loading.kubernetes.manifests import Manifest, manifest_json
from rules_engine.model.json.lenient import as_mapping, text_member
from rules_engine.model.kubernetes.cluster import Cluster
from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.problem import Problem, Problems, Severity
from rules_engine.model.problems.source import Location
from rules_engine.model.rules.admission import pod_request
from rules_engine.model.rules.rule import API_VERSION

MAX_PROBLEMS = 1_000
"""Problems of each severity that are kept; nobody reads more."""

HEAD_BYTES = 4096
"""Bytes of the beginning of a file by which JSON is recognized."""

RESERVED_FILES = 256
"""Open files besides the inputs: temporary files, and files of Python."""

EXAMPLE = "pods of tests, inventories and simulations are no input"
LIVE_YAML = "live objects are read in JSON only: write them with -o json"

_GROUP = API_VERSION.partition("/")[0]
"""The API group of tests, inventories and simulations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterColumn:
    """A cluster with its name, "" for a single cluster.

    `counted`: the uids of the pods in its usage; the set is shared, since there may be a million. `claims`: the devices
    of claims, by namespace and name. `file`: the real path of its file; "" if there is none.
    """

    name: str = ""
    cluster: Cluster
    counted: Container[str] = ()
    claims: Claims = field(default_factory=lambda: NO_CLAIMS)
    file: str = ""


@dataclass(slots=True)
class Excerpt(Sequence[str]):
    """The lines of a file that have problems; the others are not kept, since many large files may have problems."""

    length: int
    kept: dict[int, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: Any) -> Any:
        return self.kept[index]


class Inputs:
    """The pods of files with the clusters on which they are decided. A context manager; `read` is called first.

    Each file of `clusters` holds the live objects of a cluster of its own. The live objects of all other files form one
    cluster; manifests and pods of `log` are decided on it, too, if `clusters` is empty. `default`: the cluster if no
    file has a node. `columns`, `files` (the names of the files that are read) and `recorded` (the decision log) are
    complete after `read`.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        clusters: Sequence[Path],
        default: Cluster,
        problems: Problems,
        progress: Progress = lambda _read: None,
        log: Path | None = None,
    ) -> None:
        self.columns: tuple[ClusterColumn, ...] = ()
        self.files: list[str] = []
        self.unreported = 0
        self.recorded: RecordedInput | None = None
        self._paths = paths
        self._log = log
        self._clusters = tuple(dict.fromkeys(clusters))
        self._real_clusters = frozenset(map(os.path.realpath, clusters))
        self._default = default
        self._problems = problems
        self._progress = progress
        self._stack = ExitStack()
        self._unlisted_column: ClusterColumn | None = None
        """The cluster of the files that are not in `clusters`; None without a node."""
        self._problem_counts: Counter[Severity] = Counter()
        self._excerpts: dict[str, Excerpt] = {}
        self._cluster_sources: dict[str, Sequence[str]] = {}
        self._manifests: list[tuple[Path, ObjectFile, bool]] = []
        """Each with True if the user named the file itself: in a folder, files without pods are ignored."""
        self._live: dict[str, LiveInput] = {}
        """By the real path of the file in `clusters`; "" for all other files."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._stack.close()

    def read(self) -> None:
        """Read the first pass over all files, and the clusters."""
        real_files: dict[str, tuple[Path, bool]] = {}
        for path in self._paths:
            for file in find_files([path], self._problems):
                real_files.setdefault(os.path.realpath(file), (file, not is_folder(path)))
        _raise_file_limit(len(real_files))
        for file, is_named in real_files.values():
            self.files.append(str(file))
            with self._reporting(file):
                self._open(file, is_named=is_named)
        if self._log is not None:
            self.files.append(str(self._log))
            with self._reporting(self._log):
                log = self._stack.enter_context(ObjectFile(self._log, self._progress))
                self.recorded = RecordedInput(log, self._problems)
        for live_input in self._live.values():
            live_input.read_slices(self._problems)
            live_input.report_left_out(self._problems)
        self._unlisted_column = _live_column(self._live[""], "", "") if "" in self._live else None
        names = _cluster_names(self._clusters)
        columns = [self._column(path, name) for path, name in names.items()]
        self.columns = tuple(column for column in columns if column is not None)

    def report_missing_namespaces(self) -> None:
        """Warn of clusters without namespaces, whose labels rules read."""
        unlisted = self._unlisted_column
        for column in self.columns or ([] if unlisted is None else [unlisted]):
            if not column.cluster.namespaces_complete:
                file = column.file or self._live[""].files[0].name
                message = "no Namespace found: rules that read labels of namespaces fail"
                self._problems.warning(Code.UNREAD_OBJECT, message, Location(file, 1, 1))

    @property
    def sources(self) -> Mapping[str, Sequence[str]]:
        """The lines of files that have problems, by the names of the files."""
        return {**self._excerpts, **self._cluster_sources}

    @property
    def column_names(self) -> list[str]:
        """The names of all columns."""
        return [column.name for column in self.columns] or [""]

    @property
    def assumes_default(self) -> bool:
        """True if some pods are decided on the default cluster."""
        decided = self.live or self._manifests or self.recorded
        return not self.columns and self._unlisted_column is None and bool(decided)

    @property
    def live(self) -> bool:
        """True if some files have live objects."""
        return any(live_input.files for live_input in self._live.values())

    @property
    def file_bytes(self) -> int:
        """The number of bytes of the files without standard input and pipes, for the progress of `read`."""
        total = 0
        for file in [*find_files(self._paths, Problems()), *([self._log] if self._log else [])]:
            with suppress(OSError):  # reported by read
                total += file.stat().st_size
        return total

    @property
    def size(self) -> int:
        """The number of bytes that the second pass reads, for its progress."""
        live = [(file.size, self._columns_of(real)) for real, dump in self._live.items() for file in dump.files]
        files = [file for _, file, _ in self._manifests] + ([self.recorded.file] if self.recorded else [])
        return sum(size * len(columns) for size, columns in live) + sum(file.size for file in files)

    def pods(self, mutated: MutatePod, namespace: str, usage: Set[str] | None) -> Iterator[tuple[Submitted, Cluster]]:
        """Read the second pass: yield pods as they were submitted, with the clusters on which they are decided.

        `mutated` applies the old rules. `namespace`: for manifests without a namespace. `usage`: the resources whose
        usage rules of either side read; None: any.
        """
        for path, file, is_named in self._manifests:
            with self._reporting(path):
                yield from self._read_manifests(path, file, namespace, is_named=is_named)
        # After an error, the run has no answer.
        for real, live_input in self._live.items() if not self._problems.failed else ():
            home_column = self._unlisted_column if self.columns and not real else None
            for column in self._columns_of(real):
                views = ViewsWithout(column.cluster, column.counted, usage, column.claims)
                home = views
                if home_column is not None:
                    home = ViewsWithout(home_column.cluster, home_column.counted, usage, home_column.claims)
                yield from live_input.pods(views, home, mutated, column.name, self._problems)
        for submitted in self.recorded.pods(self._problems) if self.recorded and not self._problems.failed else ():
            for column in self._columns_of(""):
                workload = structs.replace(submitted.workload, cluster=column.name)
                yield structs.replace(submitted, workload=workload), column.cluster

    def _open(self, path: Path, *, is_named: bool) -> None:
        file = self._stack.enter_context(ObjectFile(path, self._progress))
        if _is_json(file):
            real = os.path.realpath(path)
            key = real if real in self._real_clusters else ""
            if key not in self._live:
                self._live[key] = LiveInput()
            file_problems = Problems()
            if self._live[key].add(file, file_problems):
                self._problems.items += file_problems.items
                return
        # A file that is not JSON, or is cut before the first live object, is reported with the manifests.
        self._manifests.append((path, file, is_named))

    def _read_manifests(
        self, path: Path, file: ObjectFile, namespace: str, *, is_named: bool
    ) -> Iterator[tuple[Submitted, Cluster]]:
        if not is_named and OTHER_TOOLS.fullmatch(path.name):
            return
        file.rewind()
        for part in stream_pods(path):
            problems = [problem for problem in part.problems if is_named or problem.code is not Code.NOT_A_POD]
            self._keep(problems, part.sources)
            for manifest in part.pods:
                root = as_mapping(manifest_json(manifest.root))
                is_example = text_member(root, "apiVersion").partition("/")[0] == _GROUP
                if is_example and not is_named:
                    continue
                if is_example or text_member(as_mapping(root.get("metadata")), "uid"):
                    refusal = Problems()
                    refusal.error(Code.NOT_A_POD, EXAMPLE if is_example else LIVE_YAML, manifest.location)
                    self._keep(refusal.items, part.sources)
                    return
                for column in self._columns_of(""):
                    pod_problems = Problems()
                    yield submit_manifest(manifest, namespace, column.name, pod_problems), column.cluster
                    self._keep(pod_problems.items, part.sources)

    def _keep(self, problems: Sequence[Problem], sources: Mapping[str, Sequence[str]]) -> None:
        """Keep problems of a file with their lines, up to MAX_PROBLEMS of each severity: warnings hide no error."""
        for problem in problems:
            if self._problem_counts[problem.severity] >= MAX_PROBLEMS:
                self.unreported += 1
                continue
            self._problem_counts[problem.severity] += 1
            self._problems.items.append(problem)
            name, number = problem.location.file, problem.location.line
            lines = sources.get(name, ())
            if number <= len(lines):
                self._excerpts.setdefault(name, Excerpt(len(lines))).kept[number - 1] = lines[number - 1]

    def _columns_of(self, real: str) -> Sequence[ClusterColumn]:
        if real:
            return [column for column in self.columns if column.file == real]
        if self.columns:
            return self.columns
        return [self._unlisted_column or ClusterColumn(cluster=self._default)]

    def _column(self, path: Path, name: str) -> ClusterColumn | None:
        """Return the cluster of a dump, which may be an input as well, or of an inventory; None with a problem."""
        real = os.path.realpath(path)
        column = _live_column(self._live[real], name, real) if real in self._live else self._of_dump(path, name, real)
        if column is not None:
            return column
        inventory, problems, sources = load_inventory(path)
        self._problems.items += problems
        self._cluster_sources |= sources
        return ClusterColumn(name=name, cluster=inventory.cluster, file=real) if inventory is not None else None

    def _of_dump(self, path: Path, name: str, real: str) -> ClusterColumn | None:
        # load_inventory reports a file that is unreadable or cut.
        with suppress(OSError), ObjectFile(path) as file:
            dump, dump_problems = LiveInput(), Problems()
            if _is_json(file) and dump.add(file, dump_problems) and not dump_problems.failed:
                dump.read_slices(self._problems)
                dump.report_left_out(self._problems)
                return _live_column(dump, name, real)
        return None

    @contextmanager
    def _reporting(self, path: Path) -> Iterator[None]:
        """Report a file that cannot be read."""
        try:
            yield
        except FileNotFoundError:
            self._problems.error(Code.MISSING_FILE, "file or folder not found", Location(str(path), 1, 1))
        except OSError as error:
            report_unreadable(path, error, self._problems)


def _raise_file_limit(files: int) -> None:
    """Raise the limit of open files as far as possible: a folder may have more files than the default limit."""
    soft_limit, hard_limit = getrlimit(RLIMIT_NOFILE)
    needed = files + RESERVED_FILES
    if soft_limit < needed:
        with suppress(OSError, ValueError):  # reported with the files that cannot be opened
            setrlimit(RLIMIT_NOFILE, (needed if hard_limit == RLIM_INFINITY else min(needed, hard_limit), hard_limit))


def _is_json(file: ObjectFile) -> bool:
    file.rewind()
    return file.read(HEAD_BYTES).removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"{")


def submit_manifest(manifest: Manifest, default_namespace: str, cluster_name: str, problems: Problems) -> Submitted:
    """Return the pods of a manifest, as its controller submits them.

    `default_namespace`: for an object without a namespace. A workload that is scaled to zero counts as one pod, or
    its changes would not count. A malformed number of pods is a problem.
    """
    namespace = manifest.namespace or default_namespace
    workload = Workload.of(cluster_name, namespace, manifest.kind, manifest.name)
    request = pod_request(manifest.submitted(), namespace=namespace)
    return Submitted(workload=workload, request=request, count=max(1, pod_count(manifest, problems)))


def _live_column(live_input: LiveInput, name: str, real: str) -> ClusterColumn | None:
    """Return the cluster of live objects; None if they have no node."""
    cluster = live_input.usage.cluster
    if cluster is None:
        return None
    usage = live_input.usage
    return ClusterColumn(name=name, cluster=cluster, counted=usage.counted, claims=usage.claims, file=real)


def _cluster_names(clusters: Sequence[Path]) -> Mapping[Path, str]:
    """Return the names of clusters: "" for a single cluster, else the names of their files."""
    if len(clusters) == 1:
        return {clusters[0]: ""}
    stems = Counter(path.stem for path in clusters)
    return {path: path.stem if stems[path.stem] == 1 else str(path) for path in clusters}
