"""Live pods of a cluster, as their controllers submitted them, and these controllers."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set

from rules_engine.cluster.creation import limit_range
from rules_engine.cluster.creation.pod_creation import PodCreation
from rules_engine.model.json.lenient import Object, as_mapping, controller_reference, text_member
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.cluster import Cluster
from rules_engine.model.kubernetes.cluster_objects import ApiObject, ClusterObjects, PodObject
from rules_engine.model.kubernetes.pod import is_finished
from rules_engine.model.problems.source import escape_controls
from rules_engine.model.rules.admission import AdmissionRequest, pod_request
from rules_engine.questions.diff.input import live_pods
from rules_engine.questions.diff.input.views import ViewsWithout
from rules_engine.questions.diff.values import SubmittedPods, WorkloadName

_GROUPS: Mapping[str, str] = {
    "DaemonSet": "apps",
    "Job": "batch",
    "ReplicaSet": "apps",
    "ReplicationController": "",
    "StatefulSet": "apps",
}
"""Kinds that create pods from a template, with their API groups."""

REVISION_LABEL = "controller-revision-hash"
"""The label of a pod with the revision of its StatefulSet or DaemonSet (apps/v1, ControllerRevisionHashLabelKey)."""


Owner = tuple[str, str]
"""Kind and name of the object that owns pods, such as the Deployment of a ReplicaSet."""


def _owner(reference: Object) -> Owner:
    return text_member(reference, "kind"), text_member(reference, "name")


def find_controller(pod: PodObject) -> tuple[Owner, Object] | None:
    """Return the outermost owner of a pod, and the template of its controller; None if not found.

    The template is that of the revision that created the pod, if it is known.
    """
    reference = controller_reference(pod)
    if reference is None or not is_builtin_controller(reference):
        return None
    owner = _owner(reference)
    controller = pod.cluster.find(*owner, pod.namespace)
    revision = text_member(as_mapping(pod.metadata.get("labels")), REVISION_LABEL)
    template: Object = {}
    if controller is not None and _is_same(controller.metadata, reference):
        owner = _owner(controller_reference(controller) or reference)
        template = as_mapping(controller.spec.get("template"))
    # A StatefulSet writes the whole name of the revision, a DaemonSet only the hash at the end of the name.
    for name in (revision, f"{text_member(reference, 'name')}-{revision}") if revision else ():
        template = _revised_template(pod.cluster.find("ControllerRevision", name, pod.namespace), reference) or template
    return (owner, template) if template else None


def _revised_template(revision: ApiObject | None, reference: Object) -> Object:
    """Return the template of a revision of the controller to which a pod refers; an empty one if it is none."""
    owner = None if revision is None else controller_reference(revision)
    if revision is None or owner is None or _owner(owner) != _owner(reference) or not _is_same(owner, reference):
        return {}
    return as_mapping(as_mapping(as_mapping(revision.get("data")).get("spec")).get("template"))


def _is_same(one: Object, other: Object) -> bool:
    """Return False if the uids are of two objects; an object of an inventory may have none."""
    uids = {text_member(one, "uid"), text_member(other, "uid")} - {""}
    return len(uids) < 2


def is_builtin_controller(reference: Object) -> bool:
    """Return True for a reference to a built-in controller: other groups have equal kinds."""
    kind = text_member(reference, "kind")
    version: Json = reference.get("apiVersion", "")
    return kind in _GROUPS and (not version or str(version).rpartition("/")[0] == _GROUPS[kind])


MutatePod = Callable[[AdmissionRequest, Cluster], Json]
"""A function that returns the pod of a request after the mutation by the old rules; None if they deny it."""

Paths = Collection[Sequence[str]]

NO_CONTROLLER = "no controller"
OTHER_CONTAINERS = "other containers than in its template"
DENIED = "the old rules deny the pod of its template"
OTHER_RESOURCES = "the old rules make other resources of its template"


class LivePods:
    """The live pods of a cluster, without finished and terminating ones. `name`: the name of the cluster."""

    def __init__(self, objects: ClusterObjects, name: str = "") -> None:
        self._objects = objects
        self._name = name
        self._pods = [pod for pod in objects.pods if not (is_finished(pod) or pod.metadata.get("deletionTimestamp"))]
        # In any order of the objects, the answer is the same.
        self._pods.sort(key=lambda pod: (pod.namespace, pod.name))

    def __len__(self) -> int:
        return len(self._pods)

    def submit(
        self, mutated: MutatePod, usage: Set[str] | None, writes: Paths = ()
    ) -> Iterator[tuple[SubmittedPods, Cluster]]:
        """Yield each pod as it was submitted, and the view of the cluster without it.

        `mutated` applies the old rules. `usage`: the resources whose usage rules of either side read; None: any.
        `writes`: paths of members, other than resources and annotations, that the old rules write.
        """
        views = ViewsWithout(self._objects, usage)
        for pod in self._pods:
            view = views.without(pod)
            yield self._restore_pod(pod, view, mutated, writes), view

    def _restore_pod(self, pod: PodObject, view: Cluster, mutated: MutatePod, writes: Paths) -> SubmittedPods:
        namespace, missing = pod.namespace, live_pods.missing_values(pod)
        owner, template = find_controller(pod) or (None, None)
        if owner is None:
            owner = _owner(_controller_reference(pod) or {"kind": "Pod", "name": pod.name})
        workload = WorkloadName.of(self._name, namespace, *owner)
        restored = None if template is None else live_pods.restore_from_template(pod, template, writes)
        if restored is None:
            reason = _missing_template_reason(pod) if template is None else OTHER_CONTAINERS
        else:
            request = pod_request(self._add_defaults(restored, namespace), namespace=namespace)
            made = mutated(request, view)
            if made is not None and live_pods.has_equal_resources(made, pod):
                return SubmittedPods(workload=workload, request=request, missing=missing)
            reason = DENIED if made is None else OTHER_RESOURCES
        request = pod_request(live_pods.strip_live_fields(pod), namespace=namespace)
        return SubmittedPods(workload=workload, request=request, missing=missing, as_it_is=reason)

    def _add_defaults(self, restored: dict[str, Json], namespace: str) -> dict[str, Json]:
        """Return a pod with the amounts that LimitRanger set: the defaults of the current LimitRanges."""
        annotations = as_mapping(as_mapping(restored["metadata"]).get("annotations"))
        if limit_range.LIMIT_RANGER_ANNOTATION not in annotations:
            return restored
        creation = PodCreation(pod=restored, namespace=namespace, objects=self._objects)
        limit_range.mutate(creation)
        return {**restored, "spec": {**creation.spec}}


def _missing_template_reason(pod: PodObject) -> str:
    reference = _controller_reference(pod)
    if reference is None:
        return NO_CONTROLLER
    reason = "controller not in the input" if is_builtin_controller(reference) else "controller of another kind"
    return f"{reason}: {escape_controls(text_member(reference, 'kind'))}"


def _controller_reference(pod: PodObject) -> Object | None:
    """Return the reference to the controller of a pod; None for a bare or a static pod."""
    return None if live_pods.is_static_pod(pod) else controller_reference(pod)
