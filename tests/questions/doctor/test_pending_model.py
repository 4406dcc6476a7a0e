"""The reasons of pending pods equal a naive implementation of docs/reference/diagnostics.md, on generated clusters."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from hypothesis import event as noted
from hypothesis import given
from hypothesis import strategies as st

from rules_engine.cluster.scheduling import scheduler_of
from rules_engine.model.rules.finding import Certainty
from rules_engine.questions.doctor.pending import pending_pods
from rules_engine.questions.doctor.reasons import PendingReason
from tests.support.api import GPU, MIG1, MIG3, Object, cluster, node, pod, volume_claim

LIFECYCLE = "node.kubernetes.io/"
STRATEGY = "nvidia.com/mig.strategy"
PRODUCT = "nvidia.com/gpu.product"
GPUS = (GPU, MIG1, MIG3)

Answer = tuple[PendingReason, Certainty]

_taints = ("gpu:NoSchedule", "spot=yes:NoExecute", "soft:PreferNoSchedule")
_zones = st.sampled_from(("a", "b"))


@st.composite
def nodes(draw: st.DrawFn, name: str) -> Object:
    labels = {"zone": draw(_zones)}
    if draw(st.booleans()):
        labels[STRATEGY] = draw(st.sampled_from(("single", "mixed", "none")))
        labels[PRODUCT] = draw(st.sampled_from(("A100", "A100-MIG-1g.5gb")))
        labels |= draw(st.sampled_from(({}, {"nvidia.com/mig.config": "all-1g.5gb"})))
        labels |= draw(st.sampled_from(({}, {"nvidia.com/mig.config.state": "success"})))
    ready = draw(st.integers(0, 3)) > 0
    taints = draw(st.lists(st.sampled_from(_taints), unique=True, max_size=1))
    if not ready and draw(st.booleans()):
        taints.append(draw(st.sampled_from((f"{LIFECYCLE}not-ready:NoSchedule", f"{LIFECYCLE}unreachable:NoExecute"))))
    made = node(
        name,
        {
            GPU: draw(st.integers(0, 4)),
            **draw(st.dictionaries(st.sampled_from(GPUS), st.integers(0, 4), max_size=1)),
            "pods": draw(st.sampled_from(("2", "110"))),
            "cpu": draw(st.sampled_from(("2", "8"))),
        },
        labels=labels,
        taints=taints,
        ready=ready,
    )
    if draw(st.integers(0, 4)) == 0:
        made["spec"]["unschedulable"] = True
    return made


def _port(number: int) -> list[Object]:
    return [{"containerPort": number, "hostPort": number}]


@st.composite
def pods(draw: st.DrawFn, name: str, on: str = "") -> Object:
    requests = draw(st.dictionaries(st.sampled_from((GPU, *GPUS)), st.integers(1, 3), min_size=1, max_size=2))
    spec: Object = {}
    if draw(st.integers(0, 2)) == 0:
        requests["cpu"] = draw(st.integers(1, 6))
    if draw(st.integers(0, 3)) == 0:
        spec["nodeSelector"] = {"zone": draw(_zones)}
    if draw(st.integers(0, 3)) == 0:
        expression = {"key": "zone", "operator": draw(st.sampled_from(("In", "NotIn"))), "values": [draw(_zones)]}
        required = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
        spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    keys = ("gpu", "spot", f"{LIFECYCLE}unschedulable", f"{LIFECYCLE}not-ready")
    chosen = draw(st.lists(st.sampled_from(keys), unique=True, max_size=2))
    spec["tolerations"] = [{"key": key, "operator": "Exists"} for key in chosen]
    if not on and draw(st.integers(0, 4)) == 0:
        spec["schedulingGates"] = [{"name": "queue"}]
    if not on and draw(st.integers(0, 4)) == 0:
        spec["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": draw(st.sampled_from("xyz"))}}]
    made = pod(name, requests, on=on, **spec)
    if draw(st.integers(0, 2)) == 0:
        made["spec"]["containers"][0]["ports"] = _port(draw(st.sampled_from((80, 81))))
    return made


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[Object], list[Object], list[Object]]:
    names = [f"node-{number}" for number in range(draw(st.integers(1, 4)))]
    bound = [draw(pods(f"bound-{number}", draw(st.sampled_from(names)))) for number in range(draw(st.integers(0, 4)))]
    return [draw(nodes(name)) for name in names], bound, [draw(pods(f"waiting-{number}")) for number in range(2)]


CLAIMS = (volume_claim("x", "Bound"), volume_claim("y", "Pending"))
"""The claim z does not exist."""


def amounts(of: Object) -> dict[str, int]:
    return {name: int(count) for name, count in of["spec"]["containers"][0]["resources"]["requests"].items()}


def tolerates(waiting: Object, taint: Object) -> bool:
    return taint["effect"] == "PreferNoSchedule" or any(
        toleration["key"] == taint["key"] for toleration in waiting["spec"]["tolerations"]
    )


def in_zone(waiting: Object, worker: Object) -> bool:
    zone, spec = worker["metadata"]["labels"]["zone"], waiting["spec"]
    if spec.get("nodeSelector", {}).get("zone", zone) != zone:
        return False
    if "affinity" not in spec:
        return True
    ((required,),) = ([*kind.values()] for kind in spec["affinity"].values())
    (term,) = required["nodeSelectorTerms"]
    (expression,) = term["matchExpressions"]
    return (zone in expression["values"]) is (expression["operator"] == "In")


def is_ready(worker: Object) -> bool:
    (condition,) = worker["status"]["conditions"]
    return bool(condition["status"] == "True")


class Model:
    """The table of docs/reference/diagnostics.md, node by node."""

    def __init__(self, nodes: Sequence[Object], bound: Sequence[Object]) -> None:
        self.nodes = nodes
        self.bound = bound

    def on(self, worker: Object) -> Iterator[Object]:
        return (held for held in self.bound if held["spec"]["nodeName"] == worker["metadata"]["name"])

    def allocatable(self, worker: Object, resource: str) -> int:
        return int(worker["status"]["allocatable"].get(resource, 0))

    def free(self, worker: Object, resource: str) -> int:
        used = sum(amounts(held).get(resource, 0) for held in self.on(worker))
        return max(self.allocatable(worker, resource) - used, 0)

    def answer(self, waiting: Object) -> Answer:
        requested = amounts(waiting)
        gpus = {name: count for name, count in requested.items() if name in GPUS}
        left = [worker for worker in self.nodes if all(self.allocatable(worker, name) >= gpus[name] for name in gpus)]
        if not left:
            return self.unoffered(gpus), Certainty.CERTAIN
        presumed = False
        for reason, passes in self.stages(waiting):
            excluded = [worker for worker in left if not passes(worker)]
            left = [worker for worker in left if passes(worker)]
            untainted = reason is PendingReason.NOT_READY and any(map(self.lacks_taint, excluded))
            if not left:
                return reason, Certainty.POSSIBLE if untainted else Certainty.CERTAIN
            presumed = presumed or untainted
        certainty = Certainty.POSSIBLE if presumed else Certainty.CERTAIN
        reason_of_room = self.room(waiting, left, gpus)
        if reason_of_room:
            return reason_of_room, certainty
        if waiting["spec"].get("schedulingGates"):
            return PendingReason.SCHEDULING_GATES, Certainty.CERTAIN
        for volume in waiting["spec"].get("volumes", []):
            name = volume["persistentVolumeClaim"]["claimName"]
            if name != "x":
                return PendingReason.VOLUME_CLAIMS, Certainty.CERTAIN if name == "z" else Certainty.POSSIBLE
        return PendingReason.NO_SCHEDULER_MESSAGE, Certainty.POSSIBLE

    def unoffered(self, gpus: dict[str, int]) -> PendingReason:
        missing = [name for name in gpus if not any(self.allocatable(worker, name) for worker in self.nodes)]
        if not missing:
            return PendingReason.ON_NO_SINGLE_NODE
        others = all(any(self.has_other_name(worker, name) for worker in self.nodes) for name in missing)
        return PendingReason.WRONG_MIG_STRATEGY if others else PendingReason.RESOURCE_ON_NO_NODE

    def has_other_name(self, worker: Object, resource: str) -> bool:
        labels = worker["metadata"]["labels"]
        strategy = labels.get(STRATEGY)
        if resource == GPU:
            return strategy == "mixed" and any(self.allocatable(worker, name) for name in (MIG1, MIG3))
        if resource == MIG3 or not self.allocatable(worker, GPU):
            return False
        if strategy == "single":
            return str(labels[PRODUCT]).endswith("-MIG-1g.5gb")
        applied = labels.get("nvidia.com/mig.config"), labels.get("nvidia.com/mig.config.state")
        return strategy == "none" and applied == ("all-1g.5gb", "success")

    def stages(self, waiting: Object) -> Iterator[tuple[PendingReason, Callable[[Object], bool]]]:
        def tolerated(worker: Object) -> bool:
            taints = [taint for taint in worker["spec"]["taints"] if not taint["key"].startswith(LIFECYCLE)]
            return all(tolerates(waiting, taint) for taint in taints)

        def uncordoned(worker: Object) -> bool:
            taint = {"key": f"{LIFECYCLE}unschedulable", "effect": "NoSchedule"}
            return not worker["spec"].get("unschedulable") or tolerates(waiting, taint)

        def ready(worker: Object) -> bool:
            taints = [taint for taint in worker["spec"]["taints"] if taint["key"].startswith(LIFECYCLE)]
            if self.lacks_taint(worker):
                taints.append({"key": f"{LIFECYCLE}not-ready", "effect": "NoSchedule"})
            return all(tolerates(waiting, taint) for taint in taints)

        yield PendingReason.TAINT, tolerated
        yield PendingReason.SELECTOR_OR_AFFINITY, lambda worker: in_zone(waiting, worker)
        yield PendingReason.CORDON, uncordoned
        yield PendingReason.NOT_READY, ready

    def lacks_taint(self, worker: Object) -> bool:
        keys = {taint["key"] for taint in worker["spec"]["taints"]}
        return not is_ready(worker) and not keys & {f"{LIFECYCLE}not-ready", f"{LIFECYCLE}unreachable"}

    def room(self, waiting: Object, left: Sequence[Object], gpus: dict[str, int]) -> PendingReason | None:
        free = [worker for worker in left if all(self.free(worker, name) >= gpus[name] for name in gpus)]
        if not free:
            sums = {name: sum(self.free(worker, name) for worker in left) for name in gpus}
            short = any(sums[name] < gpus[name] for name in gpus)
            return PendingReason.ALL_ALLOCATED if short else PendingReason.ON_NO_SINGLE_NODE
        cpu = amounts(waiting).get("cpu", 0)
        room = [
            worker
            for worker in free
            if self.free(worker, "cpu") >= cpu and len([*self.on(worker)]) < self.allocatable(worker, "pods")
        ]
        if not room:
            return PendingReason.OTHER_RESOURCES
        wanted = ports(waiting)
        if all(wanted & {port for held in self.on(worker) for port in ports(held)} for worker in room):
            return PendingReason.OTHER_FILTERS
        return None


def ports(of: Object) -> set[int]:
    return {port["hostPort"] for port in of["spec"]["containers"][0].get("ports", [])}


@given(clusters())
def test_the_reason_is_the_first_that_is_true(made: tuple[list[Object], list[Object], list[Object]]) -> None:
    offering, bound, waiting = made
    recorded = cluster(*offering, *bound, *waiting, *CLAIMS)
    model = Model(offering, bound)
    answers: dict[str, Any] = {}
    for entry in pending_pods(recorded, scheduler_of(recorded), None):
        finding = entry.finding
        answers[entry.finding.object.name] = finding.reason, finding.certainty
    for each in waiting:
        expected = model.answer(each)
        noted(expected[0])
        assert answers[each["metadata"]["name"]] == expected
