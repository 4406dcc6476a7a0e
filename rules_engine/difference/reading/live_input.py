"""Live pods of a cluster, read in two passes: first the controllers and the cluster, then the pods."""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from rules_engine.difference.reading import limit_ranges, live_pods
from rules_engine.difference.reading.controllers import Controllers, Owner, is_builtin_controller
from rules_engine.difference.reading.object_stream import ObjectFile
from rules_engine.difference.reading.usage import MAX_DEVICES, MAX_ENTRIES, MAX_NODES, ClusterUsage
from rules_engine.difference.reading.views import ViewsWithout
from rules_engine.difference.values import Submitted, Workload
from rules_engine.loading.files import report_unreadable
from rules_engine.model.json.lenient import Object, as_mapping, controller_reference, text_member
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.cluster import Cluster
from rules_engine.model.kubernetes.device_objects import DeviceError, SliceReader
from rules_engine.model.kubernetes.pod import is_finished
from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.excerpt import escape_controls
from rules_engine.model.problems.problem import Problems
from rules_engine.model.problems.source import Location
from rules_engine.model.rules.admission import AdmissionRequest, pod_request
from rules_engine.model.wording import format_count

MutatePod = Callable[[AdmissionRequest, Cluster], Json]
"""A function that returns the pod of a request after the mutation by the old rules; None if they deny it."""

NO_CONTROLLER = "no controller"
OTHER_CONTAINERS = "other containers than in its template"
DENIED = "the old rules deny the pod of its template"
OTHER_RESOURCES = "the old rules make other resources of its template"


class LiveInput:
    """The live objects of files of one cluster.

    `usage`: the cluster. `files`: the files with live objects, which have a uid.
    """

    def __init__(self) -> None:
        self.usage = ClusterUsage()
        self.files: list[ObjectFile] = []
        self._controllers = Controllers()
        self._limit_ranges = limit_ranges.LimitRanges()
        self._repeated: list[array[int]] = []
        """Numbers of the pods, by file, that repeat an earlier object."""

    def add(self, file: ObjectFile, problems: Problems) -> bool:
        """Read the first pass over a file; return True if it has live objects. Raises OSError."""
        live, manifests = False, 0
        repeated = array("Q")
        for number, item in enumerate(file.objects(problems)):
            if text_member(as_mapping(item.get("metadata")), "uid"):
                live = True
                self._controllers.take(item)
                self._limit_ranges.take(item)
                if not self.usage.take(item):
                    repeated.append(number)
            elif text_member(item, "kind") == "Pod" or "template" in as_mapping(item.get("spec")):
                manifests += 1
        if live:
            if manifests:
                message = (
                    f"{format_count(manifests, 'manifest')} among live objects left out: write them to another file"
                )
                problems.warning(Code.UNREAD_OBJECT, message, Location(file.name, 1, 1))
            self.files.append(file)
            self._repeated.append(repeated)
            node = self.usage.duplicate_node
            if node:
                message = f"there is another node {escape_controls(node)}: name the file of each cluster with --cluster"
                problems.error(Code.DUPLICATE_NODE, message, Location(file.name, 1, 1))
        return live

    def read_slices(self, problems: Problems) -> None:
        """Read the devices of drivers in another pass: the DeviceClasses say which of their attributes are kept.

        Warns of slices that cannot be used.
        """
        reader = self.usage.slice_reader()
        if reader is None:
            return
        for file in self.files:
            try:
                for item in file.objects(Problems()):
                    if text_member(item, "kind") == "ResourceSlice":
                        self._read_slice(item, reader, file.name, problems)
            except OSError as error:
                report_unreadable(Path(file.name), error, problems)

    def _read_slice(self, item: Object, reader: SliceReader, file: str, problems: Problems) -> None:
        try:
            self.usage.add_slice(reader.slice(item))
        except DeviceError as error:
            name = escape_controls(text_member(as_mapping(item.get("metadata")), "name"))
            problems.warning(Code.UNREAD_OBJECT, f"ResourceSlice {name} is left out: {error}", Location(file, 1, 1))

    def report_left_out(self, problems: Problems) -> None:
        """Warn of objects that exceed a bound."""
        for full, bound in (
            (self._limit_ranges.full, f"{limit_ranges.MAX_AMOUNTS:,} amounts of LimitRanges"),
            (self.usage.too_many_devices, f"{MAX_DEVICES:,} devices of drivers"),
            (self.usage.too_many, f"{MAX_NODES:,} nodes or namespaces, or {MAX_ENTRIES:,} labels and amounts of them"),
        ):
            if full:
                message = f"more than {bound}: the others are left out"
                problems.warning(Code.UNREAD_OBJECT, message, Location(self.files[-1].name, 1, 1))
        if self.usage.lacks_classes:
            message = (
                "pods have devices of drivers, but there is no DeviceClass: nodes seem not to offer them. Add "
                "deviceclasses,resourceslices,resourceclaims to the kinds of kubectl get"
            )
            problems.warning(Code.UNREAD_OBJECT, message, Location(self.files[-1].name, 1, 1))

    def pods(
        self,
        views: ViewsWithout,
        home: ViewsWithout,
        mutated: MutatePod,
        cluster_name: str,
        problems: Problems,
    ) -> Iterator[tuple[Submitted, Cluster]]:
        """Read the second pass: yield each live pod as it was submitted, and the view without it.

        `home`: views of the cluster that admitted the pods. Finished and terminating pods are left out.
        """
        for file, repeated in zip(self.files, self._repeated, strict=True):
            try:
                for number, item in enumerate(file.objects(problems)):
                    metadata = as_mapping(item.get("metadata"))
                    if (
                        text_member(item, "kind") == "Pod"
                        and text_member(metadata, "uid")
                        and not _is_terminating(item)
                        and not _contains_number(repeated, number)
                    ):
                        yield self._restore_pod(item, home.without(item), mutated, cluster_name), views.without(item)
            except OSError as error:
                report_unreadable(Path(file.name), error, problems)

    def _restore_pod(self, pod: dict[str, Json], view: Cluster, mutated: MutatePod, cluster_name: str) -> Submitted:
        metadata = as_mapping(pod.get("metadata"))
        namespace = text_member(metadata, "namespace")
        found_controller = self._controllers.of(pod)
        owner = found_controller.owner if found_controller is not None else _owner_of(pod)
        workload = Workload.of(cluster_name, namespace, owner.kind, owner.name)
        restored = (
            live_pods.restore_from_template(pod, found_controller.template) if found_controller is not None else None
        )
        if restored is None:
            reason = _missing_template_reason(pod) if found_controller is None else OTHER_CONTAINERS
        else:
            request = pod_request(self._add_defaults(restored, pod, namespace, view, mutated), namespace=namespace)
            made = mutated(request, view)
            if made is not None and live_pods.has_equal_resources(made, pod):
                return Submitted(workload=workload, request=request)
            reason = DENIED if made is None else OTHER_RESOURCES
        request = pod_request(live_pods.strip_live_fields(pod), namespace=namespace)
        return Submitted(workload=workload, request=request, as_it_is=reason)

    def _add_defaults(
        self, restored: dict[str, Json], pod: dict[str, Json], namespace: str, view: Cluster, mutated: MutatePod
    ) -> dict[str, Json]:
        """Return a pod with the amounts that LimitRanger set, as observed.

        An amount that rules have overwritten since is the default of the namespace's current LimitRanges; without these
        objects, it is left out.
        """
        annotation = text_member(
            as_mapping(as_mapping(pod.get("metadata")).get("annotations")), limit_ranges.LIMIT_RANGER_ANNOTATION
        )
        if not annotation:
            return restored
        # LimitRanger is called again if a webhook injects a container, and then records only the amounts of that one.
        defaults = self._limit_ranges.defaults(restored, pod, namespace)
        with_defaults = limit_ranges.add_amounts(restored, defaults)
        made = mutated(pod_request(with_defaults, namespace=namespace), view)
        places = limit_ranges.parse_set_amounts(annotation) | defaults.keys()
        return limit_ranges.add_amounts(
            with_defaults, limit_ranges.differing_amounts(with_defaults if made is None else made, pod, places)
        )


def _missing_template_reason(pod: dict[str, Json]) -> str:
    """Return the reason why a pod has no template."""
    reference = _controller_reference(pod)
    if reference is None:
        return NO_CONTROLLER
    kind = text_member(reference, "kind")
    reason = "controller not in the input" if is_builtin_controller(reference, kind) else "controller of another kind"
    return f"{reason}: {escape_controls(kind)}"


def _owner_of(pod: dict[str, Json]) -> Owner:
    """Return the controller that a pod refers to, or the pod itself."""
    reference = _controller_reference(pod)
    if reference is None:
        return Owner("Pod", text_member(as_mapping(pod.get("metadata")), "name"))
    return Owner(text_member(reference, "kind"), text_member(reference, "name"))


def _controller_reference(pod: dict[str, Json]) -> Object | None:
    """Return the reference to the controller of a pod; None for a bare or a static pod."""
    return None if live_pods.is_static_pod(pod) else controller_reference(pod)


def _contains_number(ordered: Sequence[int], number: int) -> bool:
    """Return True if a number is among sorted numbers."""
    position = bisect_left(ordered, number)
    return position < len(ordered) and ordered[position] == number


def _is_terminating(pod: dict[str, Json]) -> bool:
    return is_finished(pod) or as_mapping(pod.get("metadata")).get("deletionTimestamp") is not None
