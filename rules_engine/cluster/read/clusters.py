"""Clusters in files: a ClusterInventory, kubectl's output in any form, or a must-gather folder → ClusterObjects."""

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rules_engine.cluster.devices.offers import cluster_view, keep_view
from rules_engine.cluster.read.inventory import Inventory
from rules_engine.cluster.read.loader import CLUSTER, load
from rules_engine.cluster.read.objects import ObjectReader
from rules_engine.cluster.read.references import Sources
from rules_engine.language.files import (
    MAX_CLUSTER_BYTES,
    MAX_FILE_BYTES,
    decode_source,
    each_of,
    find_files,
    is_folder,
    read_bytes,
    without_garbage_collection,
)
from rules_engine.language.log_lines import DECISION_LOG, is_decision_log
from rules_engine.model.kubernetes.cluster import Cluster
from rules_engine.model.kubernetes.cluster_objects import ClusterObjects
from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.problem import Problem, Problems, sort_problems, warn_of
from rules_engine.model.problems.source import Location

MAX_DUMP_FILES = 100_000
"""Files of a folder: a must-gather folder has one for each node and for each pod of some namespaces."""

EXPECTED = "a ClusterInventory, or a file of gpu-rules capture or of kubectl get, with a node"

_ASSUMED = {"Pod": "all that nodes have counts as free", "ResourceQuota": "quotas count as having room"}
"""Kinds without which an answer is still given, and what it then assumes."""

ReadProgress = Callable[[int, int], None]
"""A function that gets the number of bytes read so far, and of all bytes, or 0 if it is unknown."""

_OWN = re.compile(
    rb"""^apiVersion:[ \t]*["']?gpu-?rules(?!.*\nkind: *["']?GPUOffers)"""
    rb"""|^kind:[ \t]*["']?ClusterInventory\b"""
    rb"""|\A\s*\{\s*"?apiVersion"?:\s*["']?gpu-?rules[^,]*,\s*"?kind"?:(?!\s*["']?GPUOffers)""",
    re.MULTILINE,
)
"""The beginning of a document of gpu-rules. GPUOffers are objects of the API; in kubectl's lists, they are indented."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterReading:
    """The cluster of files; `objects` are None if a problem is an error. `name`: of the inventory, or of the file."""

    objects: ClusterObjects | None
    name: str
    location: Location
    problems: tuple[Problem, ...]
    sources: Sources

    def with_assumptions(self, kinds: Collection[str], *, nodes: bool = True) -> "ClusterReading":
        """Return the reading with warnings of what is assumed without these kinds; `nodes`: without nodes, an error."""
        problems = Problems()
        if nodes and self.objects is not None and "Node" in self.objects.absent:
            problems.error(Code.NOT_A_CLUSTER, "nodes were not read, and the answer depends on them", self.location)
        for kind, meaning in _ASSUMED.items():
            if self.objects is None or kind not in kinds or not (unread := self.objects.unread(kind)):
                continue
            what = f"no {kind} was read" if kind in self.objects.absent else f"{unread} were not read"
            problems.warning(Code.UNREAD_OBJECT, f"{what}: {meaning}", self.location)
        objects = None if problems.failed else self.objects
        return replace(self, objects=objects, problems=(*self.problems, *problems.items))

    @property
    def cluster(self) -> Cluster | None:
        """The cluster as rules see it."""
        return None if self.objects is None else cluster_view(self.objects)

    @property
    def inventory(self) -> Inventory | None:
        """The cluster as documents refer to it."""
        objects = self.objects
        if objects is None:
            return None
        return Inventory(name=self.name, location=self.location, cluster=cluster_view(objects), objects=lambda: objects)


def read_cluster(
    paths: Sequence[Path],
    *,
    whole: bool = False,
    regular: bool = False,
    nodes: bool = True,
    progress: ReadProgress = lambda _read, _all: None,
) -> ClusterReading:
    """Read the objects of one cluster in files, in folders and on standard input (STDIN).

    An object that is in several files is read once, in its latest version. Files of other objects are skipped in a
    folder. No line of kubectl's output is quoted, since it may hold a secret. `whole`: no values are removed.
    `regular`: as for `read_file`. `nodes`: no node is an error, except in a capture.
    """
    problems = Problems()
    files: dict[Path, bool] = {}
    for path in paths:
        files |= dict.fromkeys(find_files([path], problems, MAX_DUMP_FILES, packed=True), not is_folder(path))
    reader = ObjectReader(problems, whole=whole)
    inventories: list[Inventory] = []
    sources: dict[str, Sequence[str]] = {}
    total, done = sum(map(_file_size, files)), 0
    with without_garbage_collection():
        for path, required in files.items():
            data = read_bytes(path, MAX_CLUSTER_BYTES, problems, regular=regular)
            if data is None:
                continue
            if is_decision_log(data):
                problems.error(Code.NOT_A_CLUSTER, DECISION_LOG, Location(str(path), 1, 1))
            elif _OWN.search(data, 0, MAX_FILE_BYTES):
                inventories += _read_inventory(path, data, problems, sources, required=required)
            else:
                reader.read(path, data, EXPECTED, required=required)
            done += _file_size(path)
            progress(done, total)
        first = str(paths[0]) if paths else ""
        for inventory in inventories:
            reader.add_inventory(inventory.objects(), inventory.location)
        location = inventories[0].location if inventories else Location(first, 1, 1)
        if not problems.failed and (not reader.seen or (nodes and not reader.captured and "Node" not in reader.seen)):
            missing = "node" if nodes else "object"
            problems.error(Code.NOT_A_CLUSTER, f"no {missing} found: expected {EXPECTED}", location)
        objects = None if problems.failed else reader.objects()
        if objects is not None and inventories and len(files) == 1:
            keep_view(objects, inventories[0].cluster)  # whose objects have been checked
        elif objects is not None and nodes:
            reported = {problem.message for problem in problems.items}  # of inventories
            for message in (*objects.malformed, *objects.unusable_slices):
                if message not in reported:
                    problems.warning(Code.UNREAD_OBJECT, message, location)
    return ClusterReading(
        objects=objects,
        name=inventories[0].name if inventories else Path(first).stem,
        location=location,
        problems=sort_problems(problems.items, [*map(str, files)]),
        sources=sources,
    )


def load_cluster(files: str | Path | Iterable[str | Path]) -> ClusterObjects:
    """Load the objects of one cluster from files and folders: a ClusterInventory, or the output of kubectl get.

    Warnings are issued as UserWarning. Raises InputError.

    >>> from rules_engine import load_cluster
    >>> cluster = load_cluster(["rules_engine/inventories/two-workers.yaml"])
    >>> [node.name for node in cluster.view.nodes]
    ['gpu-sim-cluster-control-plane', 'gpu-sim-cluster-worker', 'gpu-sim-cluster-worker2']
    """
    reading = read_cluster([Path(file) for file in each_of(files)])
    warn_of(reading.problems)
    assert reading.objects is not None  # noqa: S101 - else there was an error
    return reading.objects


def reading_of(cluster: ClusterReading | ClusterObjects, name: str = "cluster") -> ClusterReading:
    """Return objects that were not read from a file as a reading, under a name."""
    if isinstance(cluster, ClusterReading):
        return cluster
    return ClusterReading(objects=cluster, name=name, location=Location(name, 1, 1), problems=(), sources={})


def load_inventory(path: Path) -> tuple[Inventory | None, tuple[Problem, ...], Sources]:
    """Load the cluster of a file to which a document refers; None if it has errors."""
    reading = read_cluster([path], regular=True).with_assumptions(())
    return reading.inventory, reading.problems, reading.sources


def _read_inventory(
    path: Path, data: bytes, problems: Problems, sources: dict[str, Sequence[str]], *, required: bool
) -> Sequence[Inventory]:
    """Return the inventory of a file, which may have other documents."""
    own = Problems()
    source = decode_source(path, data, own)
    loaded = load([] if source is None else [source], (CLUSTER,), load_inventory, own, single=True)
    if not (required or loaded.documents):
        return ()
    loaded = loaded.require_one(Code.NOT_A_CLUSTER, "a cluster", EXPECTED)
    problems.items += loaded.problems
    sources |= loaded.sources
    return loaded.of(Inventory)


def _file_size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
