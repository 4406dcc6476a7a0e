"""Live pods are decided as they were submitted: turned back from the templates of their own controllers."""

from collections.abc import Sequence, Set
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules_engine.difference.reading import limit_ranges, live_input, usage
from rules_engine.difference.reading import views as views_module
from rules_engine.difference.reading.live_input import (
    DENIED,
    NO_CONTROLLER,
    OTHER_CONTAINERS,
    OTHER_RESOURCES,
    LiveInput,
)
from rules_engine.difference.reading.object_stream import ObjectFile
from rules_engine.difference.reading.views import ViewsWithout
from rules_engine.difference.values import Submitted
from rules_engine.evaluation import RuleSet, mutate
from rules_engine.evaluation.nodes.query import Offered
from rules_engine.kinds.ladder.value import WhenExhausted
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.cluster import Cluster
from rules_engine.model.kubernetes.pod_defaults import with_default_requests
from rules_engine.model.problems.problem import Problems
from rules_engine.model.rules.admission import AdmissionRequest
from tests.support.api import (
    api_object,
    controller,
    device,
    device_class,
    live,
    reference,
    resource_claim,
    resource_slice,
    template,
    write_list,
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
    node,
    pod,
    quantities,
    rung,
)

NODES = cluster({GPU: 4})
DOWN = ladder(MIG3, GPU)
EXHAUSTED = ladder(MIG3, GPU, when_exhausted=WhenExhausted.DENY)
INDEX = "batch.kubernetes.io/job-completion-index"
REPLICA_SET = ("ReplicaSet", "train-5d8")


def read(
    path: Path, items: Sequence[Any], rules: RuleSet, on: Cluster | None = NODES, usage: Set[str] | None = frozenset()
) -> list[Submitted]:
    """Return the live pods of a dump as they were submitted. `on`: None for the cluster of the dump itself."""
    problems = Problems()

    def old(request: AdmissionRequest, view: Cluster) -> Json:
        decision = mutate(rules, request, view)
        return decision.result if decision.allowed else None

    with ObjectFile(write_list(path / "dump.json", items)) as file:
        found = LiveInput()
        found.add(file, problems)
        found.read_slices(problems)
        found.report_left_out(problems)
        whole = found.usage.cluster if on is None else on
        assert whole is not None
        views = ViewsWithout(whole, found.usage.counted, usage, found.usage.claims)
        pods = [submitted for submitted, _ in found.pods(views, views, old, "", problems)]
    assert not problems.failed
    return pods


def admitted(submitted: Json, *rules: Any, on: Cluster = NODES) -> Any:
    return mutated(submitted, *rules, on=on).result


def _unchanged(request: AdmissionRequest, _view: Cluster) -> Json:
    return request.object


def given_amounts(submitted: Submitted) -> Any:
    found: Any = submitted.request.object
    return found["spec"]["containers"][0]["resources"]


def name(submitted: Submitted) -> str:
    return f"{submitted.workload.kind}/{submitted.workload.name}"


def test_a_pod_is_turned_back_from_its_own_replica_set(tmp_path: Path) -> None:
    first, second = asks({MIG3: 1}), asks({MIG1: 2})
    dump = [
        live(admitted(first, DOWN), REPLICA_SET),
        controller("Deployment", "train", second),
        controller("ReplicaSet", "train-9c1", second, owner=("Deployment", "train")),
        controller(*REPLICA_SET, first, owner=("Deployment", "train")),
    ]
    (submitted,) = read(tmp_path, dump, compiled(DOWN))
    assert given_amounts(submitted)["limits"] == {MIG3: "1"}
    assert not submitted.as_it_is
    assert name(submitted) == "Deployment/train"


def test_a_sidecar_counts_in_the_default_requests_of_the_whole_pod(tmp_path: Path) -> None:
    side = {**container("side", requests={"cpu": 1}), "restartPolicy": "Always"}
    made: Any = pod(container("main", limits={GPU: 1, "cpu": 2}), init=[side], resources={"limits": {"cpu": "9"}})
    dump = [live(with_default_requests(made), REPLICA_SET), controller(*REPLICA_SET, made)]
    (submitted,) = read(tmp_path, dump, compiled(DOWN))
    found: Any = submitted.request.object
    assert found["spec"]["resources"]["requests"] == {"cpu": "3"}
    assert not submitted.as_it_is


def test_a_pod_that_the_old_rules_do_not_make_is_decided_as_it_is(tmp_path: Path) -> None:
    dump = [live(asks({MIG1: 1}), REPLICA_SET), controller(*REPLICA_SET, asks({MIG3: 1}))]
    (submitted,) = read(tmp_path, dump, compiled(DOWN))
    assert given_amounts(submitted)["limits"] == {MIG1: "1"}
    assert submitted.as_it_is == OTHER_RESOURCES
    assert name(submitted) == "ReplicaSet/train-5d8"


def test_a_pod_that_the_old_rules_deny_is_decided_as_it_is(tmp_path: Path) -> None:
    dump = [live(asks({MIG3: 1}), REPLICA_SET), controller(*REPLICA_SET, asks({MIG3: 1}))]
    (submitted,) = read(tmp_path, dump, compiled(ladder(MIG3, when_exhausted=WhenExhausted.DENY)))
    assert submitted.as_it_is == DENIED


@pytest.mark.parametrize(
    "hashed",
    [("StatefulSet", "train-77"), ("DaemonSet", "77")],
    ids=["whole name", "hash"],
)
def test_the_revision_of_a_stateful_set_or_daemon_set_is_the_template(tmp_path: Path, hashed: tuple[str, str]) -> None:
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
    (submitted,) = read(tmp_path, dump, compiled(DOWN))
    assert given_amounts(submitted)["limits"] == {MIG3: "1"}
    assert name(submitted) == "GpuService/service"
    (submitted,) = read(tmp_path, dump[1:], compiled(DOWN))
    assert (name(submitted), submitted.as_it_is) == (f"{kind}/train", "")


@pytest.mark.parametrize(("present", "reason"), [({MIG3: 1}, ""), ({MIG1: 2}, OTHER_RESOURCES)])
def test_without_its_revision_the_present_template_counts_if_the_resources_agree(
    tmp_path: Path, present: dict[str, int], reason: str
) -> None:
    labels = {"controller-revision-hash": "train-77"}
    pod_of_set = live(admitted(asks({MIG3: 1}), DOWN), ("StatefulSet", "train"), labels=labels)
    (submitted,) = read(tmp_path, [controller("StatefulSet", "train", asks(present)), pod_of_set], compiled(DOWN))
    assert submitted.as_it_is == reason


def test_pods_of_a_job_are_grouped_under_its_cron_job(tmp_path: Path) -> None:
    dump = [
        controller("Job", "train-1", asks({GPU: 1}), owner=("CronJob", "train")),
        live(asks({GPU: 1}), ("Job", "train-1")),
    ]
    (submitted,) = read(tmp_path, dump, compiled(DOWN))
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
    tmp_path: Path, owner: tuple[str, str] | None, expected: str, reason: str
) -> None:
    (submitted,) = read(tmp_path, [live(asks({GPU: 1}), owner)], compiled(DOWN))
    assert (name(submitted), submitted.as_it_is) == (expected, reason)


def test_objects_of_other_groups_and_scaled_down_replica_sets_are_no_controllers(tmp_path: Path) -> None:
    other = {**controller("Job", "a", asks({GPU: 1})), "apiVersion": "batch.volcano.sh/v1alpha1"}
    down = controller("ReplicaSet", "b", asks({GPU: 1}), replicas=0)
    without_uid = controller("StatefulSet", "c", asks({GPU: 1}))
    del without_uid["metadata"]["uid"]
    empty, revision = api_object("DaemonSet", "e"), api_object("ControllerRevision", "d")
    pods = [live(asks({GPU: 1}), ("Job", "a")), live(asks({GPU: 1}), ("ReplicaSet", "b"), name="other")]
    found = read(tmp_path, [other, down, without_uid, empty, revision, *pods], compiled(DOWN))
    assert all(submitted.as_it_is for submitted in found)


def test_a_replica_set_that_is_scaled_down_is_the_template_of_its_last_pods(tmp_path: Path) -> None:
    down = {**controller(*REPLICA_SET, asks({MIG3: 1}), replicas=0), "status": {"replicas": 1}}
    (submitted,) = read(tmp_path, [live(admitted(asks({MIG3: 1}), DOWN), REPLICA_SET), down], compiled(DOWN))
    assert given_amounts(submitted)["limits"] == {MIG3: "1"}


def test_fields_written_after_admission_are_left_out(tmp_path: Path) -> None:
    asked = asks({GPU: 1}, annotations={"team": "ml"})
    labels = {"app": "train", "pod-template-hash": "5d8"}
    running = live(asked, REPLICA_SET, name="train-5d8-x7k2p", on="node-0", labels=labels)
    running["metadata"]["annotations"] |= {"cni.example.com/status": "ok", INDEX: "3"}
    running["spec"]["ephemeralContainers"] = [{"name": "debug"}]
    (submitted,) = read(tmp_path, [running, controller(*REPLICA_SET, asked)], compiled(DOWN))
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


def test_a_static_pod_keeps_its_node(tmp_path: Path) -> None:
    (submitted,) = read(tmp_path, [live(asks({GPU: 1}), ("Node", "worker"), on="worker")], compiled(DOWN))
    found: Any = submitted.request.object
    assert found["spec"]["nodeName"] == "worker"


def test_finished_and_deleted_pods_are_left_out(tmp_path: Path) -> None:
    finished = {**live(asks({GPU: 1})), "status": {"phase": "Succeeded"}}
    deleted = live(asks({GPU: 1}), deletionTimestamp="2026-01-01T00:00:00Z")
    without_uid = live(asks({GPU: 1}), uid=None)
    assert read(tmp_path, [finished, deleted, without_uid], compiled(DOWN)) == []


def test_the_annotation_of_a_fallback_is_turned_back(tmp_path: Path) -> None:
    running = live(admitted(asks({MIG3: 1}), DOWN), REPLICA_SET)
    assert running["metadata"]["annotations"]
    (submitted,) = read(tmp_path, [running, controller(*REPLICA_SET, asks({MIG3: 1}))], compiled(DOWN))
    found: Any = submitted.request.object
    assert "annotations" not in found["metadata"]


def test_containers_that_other_webhooks_inject_are_kept(tmp_path: Path) -> None:
    proxied = pod(container("main", {GPU: 1}), container("proxy", {"cpu": "100m"}), name="train")
    dump = [live(proxied, REPLICA_SET), controller(*REPLICA_SET, asks({GPU: 1}))]
    (submitted,) = read(tmp_path, dump, compiled(DOWN))
    found: Any = submitted.request.object
    assert found["spec"] == proxied["spec"]
    assert not submitted.as_it_is


def test_a_template_with_other_containers_is_not_used(tmp_path: Path) -> None:
    renamed = pod(container("renamed", {GPU: 1}))
    (submitted,) = read(
        tmp_path, [live(asks({GPU: 1}), REPLICA_SET), controller(*REPLICA_SET, renamed)], compiled(DOWN)
    )
    assert submitted.as_it_is == OTHER_CONTAINERS


def test_malformed_amounts_match_no_template(tmp_path: Path) -> None:
    running = live(asks({GPU: "many"}), REPLICA_SET, on="node")
    dump = [running, controller(*REPLICA_SET, asks({GPU: 1})), api_node("node", {GPU: "1", "cpu": "much"})]
    (submitted,) = read(tmp_path, dump, compiled(DOWN), None, None)
    assert submitted.as_it_is


def test_a_pod_is_decided_without_its_own_usage(tmp_path: Path) -> None:
    free = ladder(MIG3, GPU, offered=Offered.AVAILABLE)
    dump = [
        api_node("node", {MIG3: "1", GPU: "2"}),
        api_object("Namespace", "ml", metadata={"labels": {"team": "a"}}),
        live(asks({MIG3: 1}), REPLICA_SET, on="node"),
        live(admitted(asks({MIG3: 1}), DOWN), REPLICA_SET, on="node", name="train-2"),
        controller(*REPLICA_SET, asks({MIG3: 1})),
    ]
    first, second = read(tmp_path, dump, compiled(free), None, None)
    assert not first.as_it_is
    assert not second.as_it_is  # MIG3 is in use by the first one
    first, _ = read(tmp_path, dump, compiled(free), None)
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

    def test_a_pod_is_decided_without_its_own_devices(self, tmp_path: Path) -> None:
        dump = self.dump(self.pod("left"), self.pod("right"))
        free = ladder(MIG3, rung(GPU, assume=True), offered=Offered.AVAILABLE)
        assert [each.as_it_is for each in read(tmp_path, dump, compiled(free), None, None)] == ["", ""]
        held = [item for item in dump if item["kind"] != "ResourceClaim"]
        taken = [*held, self.claim("claim-left", "left"), self.claim("other", "right")]
        first, second = read(tmp_path, taken, compiled(free), None, None)
        assert (first.as_it_is, second.as_it_is) == ("", OTHER_RESOURCES)

    def test_what_drivers_offer_counts(self, tmp_path: Path) -> None:
        dump = self.dump(self.pod("left"))
        assert [each.as_it_is for each in read(tmp_path, dump, compiled(DOWN), None)] == [""]
        (found,) = read(tmp_path, [item for item in dump if item["kind"] != "ResourceSlice"], compiled(EXHAUSTED), None)
        assert found.as_it_is == DENIED

    def problems(self, folder: Path, *items: Any) -> list[str]:
        problems = Problems()
        with ObjectFile(write_list(folder / "dump.json", items)) as file:
            found = LiveInput()
            found.add(file, problems)
            found.read_slices(problems)
            found.report_left_out(problems)
        return [problem.message for problem in problems.items]

    def test_slices_that_cannot_be_used_get_a_warning(self, tmp_path: Path) -> None:
        bad = resource_slice("bad", self.parts[0], self.parts[0])
        assert self.problems(tmp_path, *self.dump(), bad) == [
            "ResourceSlice bad is left out: it has two devices of one name"
        ]

    def test_devices_have_a_bound(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(usage, "MAX_DEVICES", 2)
        monkeypatch.setattr(live_input, "MAX_DEVICES", 2)
        assert self.problems(tmp_path, *self.dump()) == ["more than 2 devices of drivers: the others are left out"]

    def test_a_dump_without_the_classes_gets_a_warning(self, tmp_path: Path) -> None:
        older = [item for item in self.dump(self.pod("left")) if item["kind"] != "DeviceClass"]
        (message,) = self.problems(tmp_path, *older)
        assert message.startswith("pods have devices of drivers, but there is no DeviceClass: nodes seem not to offer")
        assert self.problems(tmp_path, *[item for item in older if item["kind"] != "Node"]) == []

    def test_a_file_that_gets_shorter_is_an_error(self, tmp_path: Path) -> None:
        path, problems = write_list(tmp_path / "dump.json", self.dump()), Problems()
        with ObjectFile(path) as file:
            found = LiveInput()
            found.add(file, problems)
            path.write_text("")
            found.read_slices(problems)
        assert [problem.code for problem in problems.items] == ["unreadable-file"]


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


def test_amounts_set_by_limit_ranger_are_read_from_the_pod(tmp_path: Path) -> None:
    dump = [limited(SET, DOWN), controller(*REPLICA_SET, asks({GPU: 1}))]
    (submitted,) = read(tmp_path, dump, compiled(DOWN))
    assert not submitted.as_it_is
    assert given_amounts(submitted) == {
        "limits": {GPU: "1", "memory": "2Gi"},
        "requests": {GPU: "1", "cpu": "250m", "memory": "1Gi"},
    }
    found: Any = submitted.request.object
    assert found["metadata"]["annotations"] == {LIMITED: SET}


CPU = injection({"cpu": "4"}, gpu_type=None)


def test_an_amount_that_rules_overwrote_is_the_default_of_the_namespace_or_left_out(tmp_path: Path) -> None:
    dump = [limited(SET, CPU), controller(*REPLICA_SET, asks({GPU: 1}))]
    (submitted,) = read(tmp_path, dump, compiled(CPU))
    assert given_amounts(submitted)["requests"] == {GPU: "1", "memory": "1Gi"}
    other = limit_range("other", defaultRequest={"cpu": "9"})
    own = limit_range(default={"memory": "4Gi"}, defaultRequest={"cpu": "300m"})
    (submitted,) = read(tmp_path, [*dump, other, own], compiled(CPU))
    assert given_amounts(submitted) == {
        "limits": {GPU: "1", "memory": "2Gi"},
        "requests": {GPU: "1", "cpu": "300m", "memory": "1Gi"},
    }
    assert not submitted.as_it_is


def test_defaults_count_if_limit_ranger_was_called_again_for_another_container(tmp_path: Path) -> None:
    again = "LimitRanger plugin set: memory request for init container proxy"
    defaults = limit_range(default={"memory": "2Gi"}, defaultRequest={"cpu": "250m", "memory": "1Gi"})
    dump = [limited(again, CPU), controller(*REPLICA_SET, asks({GPU: 1}))]
    (submitted,) = read(tmp_path, dump, compiled(CPU))
    assert submitted.as_it_is
    (submitted,) = read(tmp_path, [*dump, defaults], compiled(CPU))
    assert given_amounts(submitted)["requests"] == {GPU: "1", "cpu": "250m", "memory": "1Gi"}
    assert not submitted.as_it_is


@pytest.mark.parametrize("annotation", ["mine", "LimitRanger plugin set: all; cpu request for main"])
def test_another_text_of_the_annotation_sets_nothing(tmp_path: Path, annotation: str) -> None:
    dump = [limited(annotation), controller(*REPLICA_SET, asks({GPU: 1}))]
    (submitted,) = read(tmp_path, dump, compiled(DOWN))
    assert submitted.as_it_is


def test_a_malformed_amount_is_none_that_limit_ranger_set(tmp_path: Path) -> None:
    running = limited()
    running["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "much"
    (submitted,) = read(tmp_path, [running, controller(*REPLICA_SET, asks({GPU: 1}))], compiled(DOWN))
    assert submitted.as_it_is


def test_rules_may_need_the_amounts_that_limit_ranger_set(tmp_path: Path) -> None:
    reads = "object.spec.containers.all(c, c.resources.limits.memory != '')"
    needs = injection({"cpu": "250m"}, gpu_type=None, match_conditions={"memory": reads})
    dump = [limited(SET, needs), controller(*REPLICA_SET, asks({GPU: 1}))]
    assert not mutated(asks({GPU: 1}), needs).allowed
    (submitted,) = read(tmp_path, dump, compiled(needs))
    assert not submitted.as_it_is


AMOUNTS = st.dictionaries(st.sampled_from([MIG3, MIG1, GPU]), st.integers(0, 3), max_size=3)


@given(asked=AMOUNTS, offered=AMOUNTS, coefficient=st.integers(1, 4))
def test_a_pod_of_generated_rules_is_reconstructed_as_submitted(
    tmp_path_factory: pytest.TempPathFactory, asked: dict[str, int], offered: dict[str, int], coefficient: int
) -> None:
    rules = (DOWN, ladder(MIG1, GPU, name="second"), injection({"cpu": str(coefficient)}, gpu_type=None))
    submitted = asks(asked)
    running = live(admitted(submitted, *rules, on=cluster(offered)), REPLICA_SET)
    dump = [running, controller(*REPLICA_SET, submitted)]
    (found,) = read(tmp_path_factory.mktemp("dump"), dump, compiled(*rules), cluster(offered))
    raw: Any = found.request.object
    assert raw["spec"] == submitted["spec"]
    assert "annotations" not in raw["metadata"]
    assert not found.as_it_is


@pytest.mark.parametrize(("nodes", "entries", "expected"), [(1, 9, ("a", {"x"})), (9, 3, ("a", set())), (9, 0, None)])
def test_a_cluster_has_a_bound(monkeypatch: pytest.MonkeyPatch, nodes: int, entries: int, expected: object) -> None:
    monkeypatch.setattr(usage, "MAX_NODES", nodes)
    monkeypatch.setattr(usage, "MAX_ENTRIES", entries)
    found = usage.ClusterUsage()
    for name in "ab":
        found.take(api_object("Node", name, status={"allocatable": {GPU: "1", MIG1: "1"}}))
    for name in "xy":
        found.take({"kind": "Namespace", "metadata": {"name": name, "labels": {"a": "1", "b": "2"}}})
    assert found.too_many
    on = found.cluster
    assert (on if on is None else (on.nodes[0].name, {*on.namespaces})) == expected


def test_objects_beyond_the_bounds_are_left_out_with_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limit_ranges, "MAX_AMOUNTS", 1)
    dump = [limit_range(default={"cpu": "1", "memory": "1Gi"}), limit_range(default={"cpu": "2"})]
    dump += [controller("Job", each, asks({GPU: 1})) for each in "ab"]
    dump += [live(asks({GPU: 1}), ("Job", each), name=each, on="node") for each in "ab"]
    problems = Problems()
    with ObjectFile(write_list(tmp_path / "dump.json", dump)) as file:
        found = LiveInput()
        found.add(file, problems)
        found.report_left_out(problems)
        views = ViewsWithout(NODES, frozenset(), frozenset())
        pods = [submitted.as_it_is for submitted, _ in found.pods(views, views, _unchanged, "", problems)]
    assert [problem.message for problem in problems.items] == [
        "more than 1 amounts of LimitRanges: the others are left out",
    ]
    assert pods == ["", ""]


def test_usage_of_unread_resources_stays_in_the_views() -> None:
    full = cluster(node("a", {GPU: 4, "cpu": 8}, used={GPU: 3, "cpu": 5}))
    plain, with_gpu = (live(asks(amounts), name="1", on="a") for amounts in ({"cpu": 1}, {"cpu": 1, GPU: 1}))
    views = ViewsWithout(full, {"uid-1"}, {GPU})
    assert views.without(plain) is full
    assert dict(views.without(with_gpu).nodes[0].used) == quantities({GPU: 2, "cpu": 5})
    views = ViewsWithout(full, {"uid-1"}, None)
    assert dict(views.without(plain).nodes[0].used) == quantities({GPU: 3, "cpu": 4})


def test_few_views_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views_module, "MAX_VIEWS", 1)
    full = cluster(node("a", {GPU: 4}, used={GPU: 3}), node("b", {GPU: 4}, used={GPU: 1, MIG3: 1}))
    views = ViewsWithout(full, {"uid-1", "uid-2"}, None)
    on_a, on_b = (live(asks({GPU: 1}), name=name, on=on) for name, on in (("1", "a"), ("2", "b")))
    assert views.without(on_a) is views.without(on_a)
    assert [dict(each.used) for each in views.without(on_b).nodes] == [quantities({GPU: 3}), quantities({MIG3: 1})]
    assert [dict(each.used) for each in views.without(on_a).nodes] == [
        quantities({GPU: 2}),
        quantities({GPU: 1, MIG3: 1}),
    ]
    assert views.without(live(asks({GPU: 1}), name="3", on="a")) is full
