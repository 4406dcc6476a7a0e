"""Live pods are decided as they were submitted: turned back from the templates of their own controllers."""

from collections.abc import Iterable, Set
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules_engine.cluster.devices.offers import cluster_view
from rules_engine.cluster.nodes.query import Offered
from rules_engine.cluster.read.inventory import node_object
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.api_defaults import with_default_requests
from rules_engine.model.kubernetes.cluster import Cluster
from rules_engine.model.kubernetes.cluster_objects import ClusterObjects
from rules_engine.model.kubernetes.removed_values import MARK, remove_values
from rules_engine.model.rules.admission import AdmissionRequest
from rules_engine.questions.diff.input.live_input import (
    DENIED,
    NO_CONTROLLER,
    OTHER_CONTAINERS,
    OTHER_RESOURCES,
    LivePods,
)
from rules_engine.questions.diff.input.views import ViewsWithout
from rules_engine.questions.diff.outcomes import Outcomes
from rules_engine.questions.diff.values import SubmittedPods
from rules_engine.rules.evaluation import RuleSet
from rules_engine.rules.ladder.value import WhenExhausted
from tests.support.api import (
    NOW,
    api_object,
    by_kind,
    controller,
    device,
    device_class,
    live,
    reference,
    resource_claim,
    resource_slice,
    template,
)
from tests.support.api import node as api_node
from tests.support.evaluation import (
    GPU,
    MIG1,
    MIG3,
    asks,
    cluster,
    compiled,
    container,
    injection,
    ladder,
    mutated,
    pod,
    pod_defaults,
    quantities,
    rung,
    validation,
)

NODES = cluster({GPU: 4})
DOWN = ladder(MIG3, GPU)
EXHAUSTED = ladder(MIG3, GPU, when_exhausted=WhenExhausted.DENY)
INDEX = "batch.kubernetes.io/job-completion-index"
REPLICA_SET = ("ReplicaSet", "train-5d8")


def read(
    items: Iterable[Any], rules: RuleSet, on: Cluster | None = NODES, usage: Set[str] | None = frozenset()
) -> list[SubmittedPods]:
    """Return the live pods of a cluster as they were submitted. `on`: its nodes; None: they are among its objects."""

    def old(request: AdmissionRequest, view: Cluster) -> Json:
        decision = rules.mutate(request, view)
        return decision.result if decision.allowed else None

    nodes = () if on is None else map(node_object, on.nodes)
    writes = {path for each in rules.rules for path in each.rule.interests.writes}
    return [submitted for submitted, _ in LivePods(objects(*items, *nodes)).submit(old, usage, writes)]


def objects(*items: Any) -> ClusterObjects:
    return ClusterObjects(by_kind(*deepcopy(items)), now=NOW)


def admitted(submitted: Json, *rules: Any, on: Cluster = NODES) -> Any:
    return mutated(submitted, *rules, on=on).result


def given_amounts(submitted: SubmittedPods) -> Any:
    found: Any = submitted.request.object
    return found["spec"]["containers"][0]["resources"]


def name(submitted: SubmittedPods) -> str:
    return f"{submitted.workload.kind}/{submitted.workload.name}"


def test_a_pod_is_turned_back_from_its_own_replica_set() -> None:
    first, second = asks({MIG3: 1}), asks({MIG1: 2})
    dump = [
        live(admitted(first, DOWN), REPLICA_SET),
        controller("Deployment", "train", second),
        controller("ReplicaSet", "train-9c1", second, owner=("Deployment", "train")),
        controller(*REPLICA_SET, first, owner=("Deployment", "train")),
    ]
    (submitted,) = read(dump, compiled(DOWN))
    assert given_amounts(submitted)["limits"] == {MIG3: "1"}
    assert not submitted.as_it_is
    assert name(submitted) == "Deployment/train"


def test_a_sidecar_counts_in_the_default_requests_of_the_whole_pod() -> None:
    side = {**container("side", requests={"cpu": 1}), "restartPolicy": "Always"}
    made: Any = pod(container("main", limits={GPU: 1, "cpu": 2}), init=[side], resources={"limits": {"cpu": "9"}})
    dump = [live(with_default_requests(made), REPLICA_SET), controller(*REPLICA_SET, made)]
    (submitted,) = read(dump, compiled(DOWN))
    found: Any = submitted.request.object
    assert found["spec"]["resources"]["requests"] == {"cpu": "3"}
    assert not submitted.as_it_is


def test_a_pod_that_the_old_rules_do_not_make_is_decided_as_it_is() -> None:
    dump = [live(asks({MIG1: 1}), REPLICA_SET), controller(*REPLICA_SET, asks({MIG3: 1}))]
    (submitted,) = read(dump, compiled(DOWN))
    assert given_amounts(submitted)["limits"] == {MIG1: "1"}
    assert submitted.as_it_is == OTHER_RESOURCES
    assert name(submitted) == "ReplicaSet/train-5d8"


def test_a_pod_that_the_old_rules_deny_is_decided_as_it_is() -> None:
    dump = [live(asks({MIG3: 1}), REPLICA_SET), controller(*REPLICA_SET, asks({MIG3: 1}))]
    (submitted,) = read(dump, compiled(ladder(MIG3, when_exhausted=WhenExhausted.DENY)))
    assert submitted.as_it_is == DENIED


@pytest.mark.parametrize("hashed", [("StatefulSet", "train-77"), ("DaemonSet", "77")], ids=["whole name", "hash"])
def test_the_revision_of_a_stateful_set_or_daemon_set_is_the_template(hashed: tuple[str, str]) -> None:
    kind, revision = hashed
    first, second = asks({MIG3: 1}), asks({MIG1: 2})
    labels = {"app": "train", "controller-revision-hash": revision}
    owned = {"ownerReferences": [reference(kind, "train")]}
    data = {"spec": {"template": {"$patch": "replace", **template(first)}}}
    dump = [
        controller(kind, "train", second, owner=("GpuService", "service")),
        api_object("ControllerRevision", "train-77", "ml", metadata=owned, data=data),
        live(admitted(first, DOWN), (kind, "train"), labels=labels),
    ]
    (submitted,) = read(dump, compiled(DOWN))
    assert given_amounts(submitted)["limits"] == {MIG3: "1"}
    assert name(submitted) == "GpuService/service"
    (submitted,) = read(dump[1:], compiled(DOWN))
    assert (name(submitted), submitted.as_it_is) == (f"{kind}/train", "")


@pytest.mark.parametrize(("present", "reason"), [({MIG3: 1}, ""), ({MIG1: 2}, OTHER_RESOURCES)])
def test_without_its_revision_the_present_template_counts_if_the_resources_agree(
    present: dict[str, int], reason: str
) -> None:
    labels = {"controller-revision-hash": "train-77"}
    pod_of_set = live(admitted(asks({MIG3: 1}), DOWN), ("StatefulSet", "train"), labels=labels)
    (submitted,) = read([controller("StatefulSet", "train", asks(present)), pod_of_set], compiled(DOWN))
    assert submitted.as_it_is == reason


def test_pods_of_a_job_are_grouped_under_its_cron_job() -> None:
    dump = [
        controller("Job", "train-1", asks({GPU: 1}), owner=("CronJob", "train")),
        live(asks({GPU: 1}), ("Job", "train-1")),
    ]
    (submitted,) = read(dump, compiled(DOWN))
    assert name(submitted) == "CronJob/train"
    assert not submitted.as_it_is


@pytest.mark.parametrize(
    ("owner", "expected", "reason"),
    [
        (None, "Pod/train-1", NO_CONTROLLER),
        (("Node", "worker"), "Pod/train-1", NO_CONTROLLER),
        (("Job", "t"), "Job/t", "controller not in the input: Job"),
        (("PyTorchJob", "t"), "PyTorchJob/t", "controller of another kind: PyTorchJob"),
    ],
)
def test_a_pod_whose_controller_has_no_template_is_decided_as_it_is(
    owner: tuple[str, str] | None, expected: str, reason: str
) -> None:
    (submitted,) = read([live(asks({GPU: 1}), owner)], compiled(DOWN))
    assert (name(submitted), submitted.as_it_is) == (expected, reason)


def test_objects_of_other_groups_and_without_a_template_are_no_controllers() -> None:
    other = controller("Job", "a", asks({GPU: 1}))
    revision = api_object("ControllerRevision", "d-1", "ml", data={"spec": {"template": template(asks({GPU: 1}))}})
    pods = [live(asks({GPU: 1}), ("Job", "a"))]
    pods[0]["metadata"]["ownerReferences"][0]["apiVersion"] = "batch.volcano.sh/v1alpha1"
    labels = {"controller-revision-hash": "1"}
    pods += [live(asks({GPU: 1}), (kind, "d"), name=kind, labels=labels) for kind in ("DaemonSet", "StatefulSet")]
    found = read([other, api_object("DaemonSet", "d", "ml"), revision, *pods], compiled(DOWN))
    reasons = {submitted.as_it_is for submitted in found}
    assert reasons == {
        "controller of another kind: Job",
        *(f"controller not in the input: {kind}" for kind in ("DaemonSet", "StatefulSet")),
    }


def test_fields_written_after_admission_are_left_out() -> None:
    asked = asks({GPU: 1}, annotations={"team": "ml"})
    labels = {"app": "train", "pod-template-hash": "5d8"}
    running = live(asked, REPLICA_SET, name="train-5d8-x7k2p", on="node-0", labels=labels)
    running["metadata"]["annotations"] |= {"cni.example.com/status": "ok", INDEX: "3"}
    running["spec"]["ephemeralContainers"] = [{"name": "debug"}]
    (submitted,) = read([running, controller(*REPLICA_SET, asked)], compiled(DOWN))
    assert submitted.request.object == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "annotations": {"team": "ml", INDEX: "3"},
            "generateName": "train-5d8-",
            "labels": {"app": "train", "pod-template-hash": "5d8"},
            "namespace": "ml",
            "ownerReferences": [reference(*REPLICA_SET)],
        },
        "spec": asked["spec"],
    }
    assert (submitted.request.namespace, submitted.request.name) == ("ml", "")


def test_a_static_pod_keeps_its_node() -> None:
    (submitted,) = read([live(asks({GPU: 1}), ("Node", "worker"), on="worker")], compiled(DOWN))
    found: Any = submitted.request.object
    assert found["spec"]["nodeName"] == "worker"


def test_finished_and_deleted_pods_are_left_out() -> None:
    finished = {**live(asks({GPU: 1})), "status": {"phase": "Succeeded"}}
    deleted = live(asks({GPU: 1}), deletionTimestamp="2026-01-01T00:00:00Z")
    assert read([finished, deleted], compiled(DOWN)) == []


def test_the_annotation_of_a_fallback_is_turned_back() -> None:
    running = live(admitted(asks({MIG3: 1}), DOWN), REPLICA_SET)
    assert running["metadata"]["annotations"]
    (submitted,) = read([running, controller(*REPLICA_SET, asks({MIG3: 1}))], compiled(DOWN))
    found: Any = submitted.request.object
    assert "annotations" not in found["metadata"]


MEMBERS = """{onConflict: Overwrite, pod: {metadata: {labels: {team: ml}}, spec: {
    tolerations: [{key: gpu, operator: Exists}], schedulerName: volcano, runtimeClassName: nvidia,
    priorityClassName: gpu-low,
    volumes: [{name: shm, emptyDir: {medium: Memory, sizeLimit: 1024Mi}}]}},
    containers: [{which: All, env: [{name: A, value: new}, {name: C, value: c}],
        volumeMounts: [{name: shm, mountPath: /dev/shm}]}]}"""


def test_members_that_rules_wrote_are_turned_back() -> None:
    rules = pod_defaults(MEMBERS)
    written: Any = pod(
        container("main", {GPU: 1}) | {"env": [{"name": "A", "value": "own"}]}, name="train", schedulerName="default"
    )
    created = {**written, "spec": {**written["spec"], "enableServiceLinks": True}}
    running = admitted(created, rules)
    running["spec"] |= {"overhead": {"cpu": "1"}, "priority": 10, "preemptionPolicy": "Never"}
    proxy = admitted(pod(container("proxy", {"cpu": 1})), rules)["spec"]["containers"]
    running["spec"]["containers"] += proxy
    (submitted,) = read([live(running, REPLICA_SET), controller(*REPLICA_SET, written)], compiled(rules))
    assert not submitted.as_it_is
    found: Any = submitted.request.object
    assert found["spec"] == {**created["spec"], "containers": [*created["spec"]["containers"], *proxy]}
    assert "labels" not in found["metadata"]


def test_containers_that_other_webhooks_inject_are_kept() -> None:
    proxied = pod(container("main", {GPU: 1}), container("proxy", {"cpu": "100m"}), name="train")
    dump = [live(proxied, REPLICA_SET), controller(*REPLICA_SET, asks({GPU: 1}))]
    (submitted,) = read(dump, compiled(DOWN))
    found: Any = submitted.request.object
    assert found["spec"] == proxied["spec"]
    assert not submitted.as_it_is


def test_a_template_with_other_containers_is_not_used() -> None:
    renamed = pod(container("renamed", {GPU: 1}))
    (submitted,) = read([live(asks({GPU: 1}), REPLICA_SET), controller(*REPLICA_SET, renamed)], compiled(DOWN))
    assert submitted.as_it_is == OTHER_CONTAINERS


def test_malformed_amounts_match_no_template() -> None:
    running = live(asks({GPU: "many"}), REPLICA_SET, on="node")
    dump = [running, controller(*REPLICA_SET, asks({GPU: 1})), api_node("node", {GPU: "1", "cpu": "much"})]
    (submitted,) = read(dump, compiled(DOWN), None, None)
    assert submitted.as_it_is


def test_a_pod_is_decided_without_its_own_usage() -> None:
    free = ladder(MIG3, GPU, offered=Offered.AVAILABLE)
    dump = [
        api_node("node", {MIG3: "1", GPU: "2"}),
        api_object("Namespace", "ml", metadata={"labels": {"team": "a"}}),
        live(asks({MIG3: 1}), REPLICA_SET, on="node"),
        live(admitted(asks({MIG3: 1}), DOWN), REPLICA_SET, on="node", name="train-2"),
        controller(*REPLICA_SET, asks({MIG3: 1})),
    ]
    first, second = read(dump, compiled(free), None, None)
    assert not first.as_it_is
    assert not second.as_it_is  # MIG3 is in use by the first one
    first, _ = read(dump, compiled(free), None)
    assert first.as_it_is


class TestDevicesOfDrivers:
    """Devices of drivers in a dump count as the server counts them, without those of the pod itself."""

    parts = (
        device("whole", "card", {"parts": 2}),
        device("left", "half", {"parts": 1}),
        device("right", "half", {"parts": 1}),
    )

    def dump(self, *pods: Any) -> list[Any]:
        classes = [device_class("card", GPU, "card"), device_class("half", MIG3, "half")]
        slices = [
            resource_slice("node", name="s0", count=2, card={"parts": 2}),
            resource_slice("node", *self.parts, name="s1", count=2),
        ]
        claims = [self.claim(f"claim-{device}", device) for device in ("left", "right")]
        # Slices first: their attributes are read once the classes are known.
        return [*slices, api_node("node"), *pods, *classes, *claims, controller(*REPLICA_SET, asks({MIG3: 1}))]

    @staticmethod
    def claim(name: str, device: str) -> Any:
        return resource_claim(name, device, pool="node", extended=True)

    @staticmethod
    def pod(device: str) -> Any:
        made = live(asks({MIG3: 1}), REPLICA_SET, on="node", name=f"train-{device}")
        made["status"]["extendedResourceClaimStatus"] = {"resourceClaimName": f"claim-{device}"}
        return made

    def test_a_pod_is_decided_without_its_own_devices(self) -> None:
        dump = self.dump(self.pod("left"), self.pod("right"))
        free = ladder(MIG3, rung(GPU, assume=True), offered=Offered.AVAILABLE)
        assert [each.as_it_is for each in read(dump, compiled(free), None, None)] == ["", ""]
        held = [item for item in dump if item["kind"] != "ResourceClaim"]
        taken = [*held, self.claim("claim-left", "left"), self.claim("other", "right")]
        first, second = read(taken, compiled(free), None, None)
        assert (first.as_it_is, second.as_it_is) == ("", OTHER_RESOURCES)

    def test_what_drivers_offer_counts(self) -> None:
        dump = self.dump(self.pod("left"))
        assert [each.as_it_is for each in read(dump, compiled(DOWN), None)] == [""]
        (found,) = read([item for item in dump if item["kind"] != "ResourceSlice"], compiled(EXHAUSTED), None)
        assert found.as_it_is == DENIED


LIMITED = "kubernetes.io/limit-ranger"
SET = "LimitRanger plugin set: cpu, memory request for container main; memory limit for container main"


def limit_range(namespace: str = "ml", **limit: Any) -> Any:
    spec = {"limits": [{"type": "Pod", "max": {"cpu": "9"}}, {"type": "Container", **limit}]}
    return {"kind": "LimitRange", "metadata": {"name": "l", "namespace": namespace, "uid": "l"}, "spec": spec}


def limited(annotation: str = SET, *rules: Any) -> Any:
    """Return a live pod whose amounts LimitRanger set before rules."""
    asked: Any = asks({GPU: 1}, annotations={LIMITED: annotation})
    amounts = {"limits": {GPU: "1", "memory": "2Gi"}, "requests": {GPU: "1", "cpu": "250m", "memory": "1Gi"}}
    asked["spec"]["containers"][0]["resources"] = amounts
    return live(admitted(asked, *rules), REPLICA_SET)


DEFAULTS = limit_range(default={"memory": "2Gi"}, defaultRequest={"cpu": "250m", "memory": "1Gi"})


def test_amounts_set_by_limit_ranger_are_defaults_of_the_namespace() -> None:
    dump = [limited(SET, DOWN), controller(*REPLICA_SET, asks({GPU: 1})), limit_range("other", default={"cpu": "9"})]
    (submitted,) = read(dump, compiled(DOWN))
    assert submitted.as_it_is == OTHER_RESOURCES
    (submitted,) = read([*dump, DEFAULTS], compiled(DOWN))
    assert not submitted.as_it_is
    assert given_amounts(submitted) == {
        "limits": {GPU: "1", "memory": "2Gi"},
        "requests": {GPU: "1", "cpu": "250m", "memory": "1Gi"},
    }
    found: Any = submitted.request.object
    assert found["metadata"]["annotations"] == {LIMITED: SET}


CPU = injection({"cpu": "4"}, gpu_type=None)


@pytest.mark.parametrize("annotation", [SET, "LimitRanger plugin set: memory request for init container proxy"])
def test_an_amount_that_rules_overwrote_is_the_default_of_the_namespace(annotation: str) -> None:
    """LimitRanger is called again for a container of a webhook, and then records only its amounts."""
    dump = [limited(annotation, CPU), controller(*REPLICA_SET, asks({GPU: 1})), DEFAULTS]
    (submitted,) = read(dump, compiled(CPU))
    assert given_amounts(submitted)["requests"] == {GPU: "1", "cpu": "250m", "memory": "1Gi"}
    assert not submitted.as_it_is


def test_rules_may_need_the_amounts_that_limit_ranger_set() -> None:
    reads = "object.spec.containers.all(c, c.resources.limits.memory != '')"
    needs = injection({"cpu": "250m"}, gpu_type=None, match_conditions={"memory": reads})
    dump = [limited(SET, needs), controller(*REPLICA_SET, asks({GPU: 1})), DEFAULTS]
    assert not mutated(asks({GPU: 1}), needs).allowed
    (submitted,) = read(dump, compiled(needs))
    assert not submitted.as_it_is


AMOUNTS = st.dictionaries(st.sampled_from([MIG3, MIG1, GPU]), st.integers(0, 3), max_size=3)


@given(asked=AMOUNTS, offered=AMOUNTS, coefficient=st.integers(1, 4))
def test_a_pod_of_generated_rules_is_reconstructed_as_submitted(
    asked: dict[str, int], offered: dict[str, int], coefficient: int
) -> None:
    rules = (DOWN, ladder(MIG1, GPU, name="second"), injection({"cpu": str(coefficient)}, gpu_type=None))
    submitted = asks(asked)
    running = live(admitted(submitted, *rules, on=cluster(offered)), REPLICA_SET)
    dump = [running, controller(*REPLICA_SET, submitted)]
    (found,) = read(dump, compiled(*rules), cluster(offered))
    raw: Any = found.request.object
    assert raw["spec"] == submitted["spec"]
    assert "annotations" not in raw["metadata"]
    assert not found.as_it_is


def test_usage_of_unread_resources_stays_in_the_views() -> None:
    plain, with_gpu = (live(asks(amounts), name="1", on="a") for amounts in ({"cpu": 1}, {"cpu": 1, GPU: 1}))
    others = live(asks({GPU: 2, "cpu": 4}), name="2", on="a")

    def used(pod: Any, usage: Set[str] | None) -> Any:
        on = objects(api_node("a", {GPU: "4", "cpu": "8"}), others, pod, live(asks({GPU: 1}), name="3", on="b"))
        _, second, elsewhere = on.pods
        views = ViewsWithout(on, usage)
        assert views.without(elsewhere) is cluster_view(on)
        return dict(views.without(second).nodes[0].used)

    assert used(plain, {GPU}) == quantities({GPU: 2, "cpu": 5})
    assert used(with_gpu, {GPU}) == quantities({GPU: 2, "cpu": 5})
    assert used(with_gpu, None) == quantities({GPU: 2, "cpu": 4})


# Objects without a uid, and values that a capture removed


@pytest.mark.parametrize("kind", ["Node", "Namespace", "Pod", "ReplicaSet"])
def test_objects_without_a_uid_count(kind: str) -> None:
    dump = [
        api_node("node", {MIG3: "1", GPU: "2"}),
        api_object("Namespace", "ml", metadata={"labels": {"team": "a"}}),
        live(asks({MIG3: 1}), REPLICA_SET, on="node"),
        controller(*REPLICA_SET, asks({MIG3: 1})),
    ]
    without = deepcopy(dump)
    for item in without:
        if item["kind"] == kind:
            del item["metadata"]["uid"]
    selects = validation("namespaceObject.metadata.labels.team == 'a'")
    rules = compiled(EXHAUSTED, selects)
    (expected,), (found,) = (read(each, rules, None) for each in (dump, without))
    assert (found.request, found.as_it_is) == (expected.request, expected.as_it_is) == (expected.request, "")


def test_another_controller_of_the_name_is_not_that_of_the_pod() -> None:
    other = controller(*REPLICA_SET, asks({MIG3: 1}))
    other["metadata"]["uid"] = "other"
    (submitted,) = read([live(admitted(asks({MIG3: 1}), DOWN), REPLICA_SET), other], compiled(DOWN))
    assert submitted.as_it_is == "controller not in the input: ReplicaSet"


@given(st.data())
def test_the_order_of_objects_changes_no_pod(data: st.DataObject) -> None:
    dump = [
        *(limited(SET, CPU) | {"metadata": limited(SET, CPU)["metadata"] | {"name": f"train-{n}"}} for n in range(3)),
        *(controller(*REPLICA_SET, asks({GPU: 1})), controller("Job", "j", asks({MIG3: 1}))),
        *(live(admitted(asks({MIG3: 1}), DOWN), ("Job", "j"), name="j-1", on="a"), live(asks({GPU: 1}), name="bare")),
        *(api_node(each, {GPU: "4"}) for each in "ab"),
        *(
            limit_range(defaultRequest={"cpu": amount}) | {"metadata": {"name": amount, "namespace": "ml"}}
            for amount in "12"
        ),
    ]
    rules = compiled(DOWN, CPU)
    assert read(data.draw(st.permutations(dump)), rules, None, None) == read(dump, rules, None, None)


@pytest.mark.parametrize("owner", [None, REPLICA_SET])
def test_a_pod_without_its_removed_values_is_unknown_for_rules_that_read_one(owner: tuple[str, str] | None) -> None:
    made: Any = asks({GPU: 1})
    made["spec"]["containers"][0] |= {"env": [{"name": "A", "value": "secret"}], "args": ["secret"]}
    items = [live(made, owner, managedFields=[{"manager": "kubectl"}]), controller(*REPLICA_SET, made)]
    (whole,), (captured,) = (read(each, compiled()) for each in (items, [remove_values(i, i["kind"]) for i in items]))
    assert MARK not in str(captured.request.raw)
    env, args = (
        validation(f"object.spec.containers.all(c, !has(c.{member}))", name=member.partition(")")[0])
        for member in ("env) || c.env.all(e, has(e.value)", "args")
    )
    for rule in (env, args):
        assert Outcomes(compiled(rule)).of(whole, NODES).unknown == ""
        assert rule.id in Outcomes(compiled(rule)).of(captured, NODES).unknown
    plain = validation("object.spec.containers[0].name == 'main' && object.metadata.size() > 0")
    assert Outcomes(compiled(plain)).of(captured, NODES).unknown == ""
