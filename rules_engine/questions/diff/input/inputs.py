"""Pods of manifests, live clusters and a decision log, with the clusters on which they are decided."""

from collections import Counter
from collections.abc import Iterator, Sequence, Set
from functools import partial
from pathlib import Path

from msgspec import structs

from rules_engine.cluster.creation.plugins import NOTHING_READ, ApiServer, CreatedPod
from rules_engine.cluster.devices.offers import cluster_view
from rules_engine.cluster.read.clusters import ClusterReading
from rules_engine.cluster.read.manifest_stream import stream_manifests
from rules_engine.cluster.read.manifests import Manifest
from rules_engine.cluster.read.workloads import DAEMON_SET, check_counts
from rules_engine.cluster.scheduling.daemon_pods import daemon_pods
from rules_engine.cluster.workloads.kind import WorkloadKind
from rules_engine.model.json.lenient import Object, as_mapping, text_member
from rules_engine.model.kubernetes.cluster import Cluster
from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.problem import Problems
from rules_engine.model.rules.admission import pod_request
from rules_engine.model.rules.rule import API_VERSION
from rules_engine.questions.diff.input.live_input import LivePods, MutatePod, Paths
from rules_engine.questions.diff.input.live_pods import missing_values
from rules_engine.questions.diff.input.recorded_input import RecordedInput
from rules_engine.questions.diff.values import SubmittedPods, WorkloadName

EXAMPLE = "pods of tests, inventories and simulations are no input"
LIVE_OBJECT = "this is a live object: give the file with --cluster"

_GROUP = API_VERSION.partition("/")[0]
"""The API group of tests, inventories and simulations."""


class DiffInputs:
    """The pods of manifests and of a decision log; without both, the live pods of the clusters.

    `default`: the cluster if there are no others. `columns`: the clusters by name, "" for a single one. `recorded`: the
    decision log. `kinds`: of workloads, in addition to the packaged ones.
    """

    def __init__(
        self,
        manifests: Sequence[Path],
        log: Path | None,
        clusters: Sequence[ClusterReading],
        default: Cluster,
        problems: Problems,
        kinds: Sequence[WorkloadKind] = (),
    ) -> None:
        self.recorded = None if log is None else RecordedInput(log, problems)
        self.sources: dict[str, Sequence[str]] = {}
        self._manifests = manifests
        self._kinds = kinds
        self._problems = problems
        for reading in clusters:
            problems.items += reading.problems
            self.sources.update(reading.sources)
        names = _column_names(clusters)
        read = {name: each.objects for name, each in zip(names, clusters, strict=True) if each.objects is not None}
        self.columns = {name: cluster_view(objects) for name, objects in read.items()} or {"": default}
        self._servers = {name: ApiServer(objects) for name, objects in read.items()} or {"": ApiServer(NOTHING_READ)}
        self._nodes = {name: objects.empty_nodes for name, objects in read.items()}
        self._live = [LivePods(objects, name) for name, objects in read.items() if not (manifests or log)]

    @property
    def live_pods(self) -> int:
        """The number of live pods, which are decided if there are no others."""
        return sum(map(len, self._live))

    def pods(
        self, mutated: MutatePod, namespace: str, usage: Set[str] | None, writes: Paths = ()
    ) -> Iterator[tuple[SubmittedPods, Cluster]]:
        """Yield pods as they were submitted, with the clusters on which they are decided.

        `mutated` applies the old rules. `namespace`: for manifests without a namespace. `usage`: the resources whose
        usage rules of either side read; None: any. `writes`: as for LivePods.
        """
        for live in self._live:
            yield from live.submit(mutated, usage, writes)
        for submitted in self._submitted(namespace):
            for name, cluster in self.columns.items():
                workload, count = structs.replace(submitted.workload, cluster=name), submitted.count
                created = self._servers[name].mutate(submitted.request.object, submitted.request.namespace)
                request = submitted.request.with_object({**created.pod})
                if submitted.each_node and (nodes := self._nodes.get(name)):
                    count = sum(1 for _ in daemon_pods(submitted.request.object, nodes))
                refusal = partial(self._refusal, self._servers[name], created, request.namespace)
                yield (
                    structs.replace(submitted, workload=workload, count=count, request=request, refusal=refusal),
                    cluster,
                )
        # After an error, the run has no answer.
        if self.recorded is not None and not self._problems.failed:
            for submitted in self.recorded.pods():
                for name, cluster in self.columns.items():
                    workload = structs.replace(submitted.workload, cluster=name)
                    yield structs.replace(submitted, workload=workload), cluster

    @staticmethod
    def _refusal(server: ApiServer, created: CreatedPod, namespace: str, mutated: Object) -> str:
        return server.store(created, mutated, namespace).refusal

    def _submitted(self, namespace: str) -> Iterator[SubmittedPods]:
        refused: set[str] = set()
        for part in stream_manifests(self._manifests, self._kinds):
            problems = Problems()
            problems.items += part.problems
            for manifest in part.pods:
                refusal, file = _refusal(manifest), manifest.location.file
                if not refusal:
                    yield submit_manifest(manifest, namespace, problems)
                # The examples of a folder are ignored.
                elif file not in refused and (refusal is LIVE_OBJECT or Path(file) in self._manifests):
                    refused.add(file)
                    problems.error(Code.NOT_A_POD, refusal, manifest.location)
            if problems.items:
                self.sources.update(part.sources)
                self._problems.items += problems.items


def _refusal(manifest: Manifest) -> str:
    """Return why a pod is not decided, or ""."""
    if manifest.group == _GROUP:
        return EXAMPLE
    return LIVE_OBJECT if text_member(as_mapping(manifest.object.get("metadata")), "uid") else ""


def submit_manifest(manifest: Manifest, default_namespace: str, problems: Problems) -> SubmittedPods:
    """Return the pods of a manifest, as its controller submits them.

    `default_namespace`: for an object without a namespace. A template without pods, such as that of a Deployment that
    is scaled to zero, is decided, too. A malformed number of pods is a problem.
    """
    namespace = manifest.namespace or default_namespace
    workload = WorkloadName.of("", namespace, manifest.kind, manifest.name)
    request = pod_request(manifest.submitted(), namespace=namespace)
    own = Problems()
    check_counts(manifest, own)
    problems.items += [problem for problem in own.items if problem.code is not Code.IGNORED_FIELD]
    return SubmittedPods(
        workload=workload,
        request=request,
        count=manifest.template.total,
        each_node=manifest.is_built_in and manifest.kind == DAEMON_SET,
        missing=missing_values(manifest.pod),
    )


def _column_names(clusters: Sequence[ClusterReading]) -> Sequence[str]:
    """Return the names of clusters: "" for a single cluster, else the names of their files."""
    if len(clusters) == 1:
        return [""]
    files = [Path(each.location.file) for each in clusters]
    stems = Counter(file.stem for file in files)
    return [file.stem if stems[file.stem] == 1 else str(file) for file in files]
