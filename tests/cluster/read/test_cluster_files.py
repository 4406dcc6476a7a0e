"""Files of a cluster's objects: what is read of them, what is left out, and what is an error."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from rules_engine.cluster.read import clusters
from rules_engine.cluster.read.clusters import ClusterReading, read_cluster
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.cluster_objects import API_KINDS, API_RESOURCES, AUTOSCALER_STATUS, ClusterObjects
from rules_engine.model.problems.problem import Severity
from tests.support import authoring, cluster_files
from tests.support.cluster_files import Item, pretty


def item(kind: str, name: str = "a", version: str = "v1", **members: Any) -> Item:
    return cluster_files.item(kind, name, "ml", version, **members)


def listed(*items: Any, kind: str = "List", version: str = "v1") -> str:
    return pretty({**cluster_files.listed(items), "kind": kind, "apiVersion": version})


def as_yaml(text: str) -> str:
    return "---\n" + cluster_files.as_yaml(json.loads(text))


def write(folder: Path, **files: str) -> Path:
    names = {name: name.replace("__", "/").replace("_yaml", ".yaml").replace("_json", ".json") for name in files}
    return authoring.write(folder, {names[name]: text for name, text in files.items()})


def read(folder: Path, *texts: str, name: str = "dump.json") -> ClusterReading:
    """Read files of these texts."""
    paths = [folder / f"{number}-{name}" for number in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        path.write_text(text)
    return read_cluster(paths, nodes=False)


def objects_of(reading: ClusterReading) -> ClusterObjects:
    assert reading.objects is not None, reading.problems
    return reading.objects


def names(reading: ClusterReading) -> dict[str, list[str]]:
    """Return the names of the objects that were read, by kind."""
    objects = objects_of(reading)
    return {kind: [each.name for each in objects.of(kind)] for kind in API_RESOURCES if objects.of(kind)}


def error(reading: ClusterReading) -> str:
    """Return the only problem, which is an error."""
    assert reading.objects is None
    (problem,) = reading.problems
    return str(problem)


def absent(reading: ClusterReading) -> set[str]:
    return {*objects_of(reading).absent} & API_RESOURCES.keys()


POD = item("Pod", spec={"nodeName": "n1", "dnsPolicy": "Default"})
NODE = item("Node", "n1", status={"allocatable": {"nvidia.com/gpu": "8"}})
FORMS = pytest.mark.parametrize("form", [str, as_yaml], ids=["json", "yaml"])


@FORMS
def test_a_list_of_a_kind_is_not_absent_even_if_it_is_empty(tmp_path: Path, form: Any) -> None:
    lists = listed(kind="PodList"), listed(kind="JobList", version="batch/v1"), listed(NODE)
    assert absent(read(tmp_path, *map(form, lists), name="d.yaml")) == API_RESOURCES.keys() - {"Node", "Pod", "Job"}
    null = form('{"apiVersion": "v1", "items": null, "kind": "PodList"}')
    assert absent(read(tmp_path, null, name="d.yaml")) == API_RESOURCES.keys() - {"Pod"}


@pytest.mark.parametrize(
    ("others", "partial"),
    [(["Namespace"], {"Pod"}), (["Namespace", "Pod"], set()), ([], set())],
    ids=["of one namespace", "of all namespaces", "unknown"],
)
def test_pods_of_one_namespace_are_not_all(tmp_path: Path, others: list[str], partial: set[str]) -> None:
    system = {"Namespace": item("Namespace", "kube-system"), "Pod": item("Pod", "dns")}
    system["Pod"]["metadata"]["namespace"] = "kube-system"
    assert objects_of(read(tmp_path, listed(NODE, POD, *(system[kind] for kind in others)))).partial.keys() == partial


def test_an_empty_list_of_any_kinds_is_an_error_only_if_nothing_else_is_read(tmp_path: Path) -> None:
    assert "no object found" in error(read(tmp_path, listed()))
    assert names(read(tmp_path, listed(), listed(NODE))) == {"Node": ["n1"]}


@pytest.mark.parametrize("order", [[0, 1], [1, 0]])
def test_the_latest_version_of_an_object_in_several_files_is_read(tmp_path: Path, order: Sequence[int]) -> None:
    pods = [item("Pod", metadata={"name": "a", "resourceVersion": version}) for version in ("99", "100")]
    texts = [listed(pods[0]), as_yaml(json.dumps(pods[1]))]
    (pod,) = objects_of(read(tmp_path, *[texts[index] for index in order], name="d.yaml")).pods
    assert pod.metadata["resourceVersion"] == "100"


@pytest.mark.parametrize("version", ["x", "9" * 30, None])
def test_a_version_that_is_not_a_number_is_the_oldest(tmp_path: Path, version: Json) -> None:
    pods = [item("Pod", metadata={"name": "a", "resourceVersion": each}) for each in ("1", version)]
    (pod,) = objects_of(read(tmp_path, listed(*pods))).pods
    assert pod.metadata["resourceVersion"] == "1"


def test_events_of_both_groups_are_one_object(tmp_path: Path) -> None:
    core = item("Event", involvedObject={"name": "p"}, message="m", count=3, lastTimestamp="2026-01-01T00:00:00Z")
    other = item("Event", version="events.k8s.io/v1", regarding={"name": "p", "uid": "u"}, note="m", deprecatedCount=3)
    other["deprecatedLastTimestamp"] = core["lastTimestamp"]
    for order in ((core, other), (other, core)):
        (event,) = objects_of(read(tmp_path, *map(listed, order))).events
        assert (event["involvedObject"]["name"], event["message"], event["count"]) == ("p", "m", 3)  # type: ignore[index, call-overload]
        assert event["lastTimestamp"] == core["lastTimestamp"]
        assert "regarding" not in event


@FORMS
def test_kinds_of_other_api_groups_are_not_read(tmp_path: Path, form: Any) -> None:
    foreign = item("Node", "cluster", "config.openshift.io/v1")
    assert names(read(tmp_path, form(listed(foreign, NODE)), name="d.yaml")) == {"Node": ["n1"]}
    assert "Node of config.openshift.io/v1 is not read: expected " in error(read(tmp_path, listed(foreign)))


@pytest.mark.parametrize("condition", ["lastHeartbeatTime", "lastTransitionTime"])
def test_now_is_the_newest_time_of_a_change(tmp_path: Path, condition: str) -> None:
    def at(day: int) -> str:
        return f"2026-11-{day:02}T10:00:00Z"

    pod = item("Pod", metadata={"name": "a", "creationTimestamp": at(1), "deletionTimestamp": at(30)})
    node = item("Node", "n", status={"conditions": [{condition: at(3)}, {condition: "9"}, {condition: 9}]})
    event = item("Event", lastTimestamp=at(2), eventTime=None, firstTimestamp=at(29))

    def now(*items: Item) -> datetime:
        return objects_of(read(tmp_path, listed(*items))).now

    assert now(pod) == datetime(2026, 11, 1, 10, tzinfo=UTC)
    assert now(pod, event) == datetime(2026, 11, 2, 10, tzinfo=UTC)
    assert now(pod, node, event) == datetime(2026, 11, 3, 10, tzinfo=UTC)
    assert now(item("Pod")) == datetime(1970, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    "change",
    [
        {"metadata": {"name": "$(reboot)"}},
        {"metadata": {"name": "a", "namespace": "a;b"}},
        {"spec": {"nodeName": "`reboot`"}},
        {"spec": {"containers": [{"name": "a b"}]}},
        {"spec": {"initContainers": [{"name": "A"}]}},
        {"metadata": {}},
        {"metadata": {"name": 5}},
    ],
)
def test_objects_without_a_valid_name_are_left_out(tmp_path: Path, change: Item) -> None:
    """Commands of remedies contain names."""
    reading = read(tmp_path, listed(NODE, item("Pod", "good"), {**POD, **change}, {**POD, **change}))
    assert names(reading)["Pod"] == ["good"]
    (problem,) = reading.problems
    assert problem.severity is Severity.WARNING
    assert problem.message in ("a Pod with an invalid name is left out", "a Pod without a name is left out")


def test_events_may_have_any_name(tmp_path: Path) -> None:
    assert names(read(tmp_path, listed(NODE, item("Event", "a:b")))) == {"Node": ["n1"], "Event": ["a:b"]}


# Folders


@FORMS
def test_a_file_that_is_cut_is_an_error_beside_others(tmp_path: Path, form: Any) -> None:
    text = form(listed(NODE, POD))
    write(tmp_path, nodes_json=listed(NODE), cut_yaml=text[: text.index("dnsPolicy") + 8])
    assert read_cluster([tmp_path]).objects is None


def test_a_must_gather_folder_of_openshift_is_read(tmp_path: Path) -> None:
    folder = write(
        tmp_path,
        **{
            "image__cluster-scoped-resources__core__nodes__n_yaml": as_yaml(json.dumps(NODE)),
            "image__cluster-scoped-resources__config.openshift.io__nodes_yaml": as_yaml(
                listed(kind="NodeList", version="config.openshift.io/v1")
            ),
            "image__namespaces__ml__core__pods_yaml": as_yaml(listed(POD, kind="PodList")),
            "image__namespaces__ml__core__events_yaml": "---\napiVersion: v1\nitems: []\nkind: EventList\n",
            "image__namespaces__ml__core__secrets_yaml": "kind: Secret\nmetadata: {name: s}\nbroken: [\n",
            "image__namespaces__ml__pods__a__a_yaml": as_yaml(json.dumps(POD)),
            "image__etcd_info__endpoint_json": '[{"a": 1}]\n{"b": 2}',
            "image__monitoring__rules_json": '{"status": "success"}\n{"status": "success"}',
            "image__namespaces__all__logs_json": '{"kind": "Log"}',
            "image__empty_yaml": "",
            "image__timestamp": "2026-11-01 not read",
        },
    )
    reading = read_cluster([folder])
    assert reading.problems == ()
    assert names(reading) == {"Node": ["n1"], "Pod": ["a"]}
    assert absent(reading) == API_RESOURCES.keys() - {"Node", "Pod", "Event"}


def test_a_must_gather_folder_of_the_gpu_operator_is_read(tmp_path: Path) -> None:
    daemon_set = item("DaemonSet", "nvidia-device-plugin-daemonset", "apps/v1")
    folder = write(
        tmp_path,
        **{
            "gpu_operand_pods_yaml": as_yaml(listed(POD)),
            "gpu_operand_ds_yaml": as_yaml(listed(daemon_set)),
            "cluster_policy_yaml": as_yaml(json.dumps(item("ClusterPolicy", version="nvidia.com/v1"))),
            "gpu_nodes.labels": "n\n- a=b\n",
            "cluster_policy.missing": "",
            "must-gather.log": "+ kubectl get\n",
        },
    )
    reading = read_cluster([folder], nodes=False)
    assert [*names(reading)] == ["Pod", "DaemonSet"]
    assert "Node" in absent(reading)


STATUS = cluster_files.autoscaler_status("ready")
POD_GROUP = {"volcano": "scheduling.volcano.sh/v1beta1", "kai": "scheduling.run.ai/v2alpha2"}


@FORMS
def test_objects_of_schedulers_are_read_in_any_version_and_only_of_their_groups(tmp_path: Path, form: Any) -> None:
    texts = listed(
        NODE,
        item("Workload", "a", "kueue.x-k8s.io/v1beta1"),
        item("Workload", "b", "kueue.x-k8s.io/v1"),
        item("Workload", "c", "scheduling.k8s.io/v1alpha1"),
        *(item("PodGroup", "g", version) for version in (*POD_GROUP.values(), "scheduling.k8s.io/v1alpha1", "v1")),
        item("NodePool", "p", "karpenter.sh/v1"),
        item("NodePool", "q", "hypershift.openshift.io/v1beta1"),
        STATUS,
        item("ConfigMap", "cluster-autoscaler-status"),
    )
    objects = objects_of(read(tmp_path, form(texts), name="d.yaml"))
    found = {kind: [each.name for each in objects.of(kind)] for kind, each in API_KINDS.items() if each.optional}
    assert {kind: names for kind, names in found.items() if names} == {
        "Workload": ["a", "b"],
        "PodGroup.scheduling.volcano.sh": ["g"],
        "PodGroup.scheduling.run.ai": ["g"],
        "NodePool": ["p"],
        AUTOSCALER_STATUS: ["cluster-autoscaler-status"],
    }
    for version in POD_GROUP.values():
        (group,) = objects.of(f"PodGroup.{version.partition('/')[0]}")
        assert (group["apiVersion"], group["kind"], group.object_name.kind) == (version, "PodGroup", "PodGroup")
    (status,) = objects.of(AUTOSCALER_STATUS)
    assert status["data"] == {"status": "ready"}


def test_an_inventory_has_objects_of_schedulers(tmp_path: Path) -> None:
    groups = [item("PodGroup", "g", version) for version in POD_GROUP.values()]
    text = pretty(cluster_files.inventory([item("Node"), *groups, STATUS]))
    objects = objects_of(read(tmp_path, text))
    assert [objects.of(f"PodGroup.{version.partition('/')[0]}")[0].name for version in POD_GROUP.values()] == ["g", "g"]
    assert len(objects.of(AUTOSCALER_STATUS)) == 1
    other = pretty(cluster_files.inventory([item("PodGroup", "g", "scheduling.k8s.io/v1alpha1")]))
    assert "no object of the kind 'PodGroup' is read" in error(read(tmp_path, other))


def test_kinds_that_only_some_clusters_have_are_never_missing(tmp_path: Path) -> None:
    objects = objects_of(read(tmp_path, listed(NODE)))
    assert objects.absent == {kind for kind, each in API_KINDS.items() if not each.optional} - {"Node"}


def test_other_config_maps_of_a_folder_are_not_parsed(tmp_path: Path) -> None:
    broken = "kind: ConfigMap\nmetadata: {name: a}\nbroken: [\n"
    folder = write(tmp_path, a_yaml=broken, b_yaml=as_yaml(json.dumps(STATUS)), c_json=listed(NODE))
    reading = read_cluster([folder])
    assert reading.problems == ()
    assert [each.name for each in objects_of(reading).of(AUTOSCALER_STATUS)] == ["cluster-autoscaler-status"]


def test_a_file_of_other_config_maps_is_refused(tmp_path: Path) -> None:
    assert "ConfigMap is not read" in error(read(tmp_path, listed(item("ConfigMap", "a"))))


def test_a_folder_without_objects_is_an_error(tmp_path: Path) -> None:
    assert "no .yaml, .yml or .json file in this folder" in error(read_cluster([tmp_path], nodes=False))
    write(tmp_path, a_json=listed(item("Secret")))
    assert "no object found" in error(read_cluster([tmp_path], nodes=False))


def test_a_file_that_is_named_and_in_a_folder_is_read_once(tmp_path: Path) -> None:
    folder = write(tmp_path, a_json=listed(NODE, POD))
    seen: list[tuple[int, int]] = []
    reading = read_cluster([folder, folder / "a.json", folder], progress=lambda *each: seen.append(each))
    assert names(reading) == {"Node": ["n1"], "Pod": ["a"]}
    assert seen[-1] == (len(listed(NODE, POD)),) * 2


def test_the_number_of_files_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "MAX_DUMP_FILES", 1)
    write(tmp_path, a_json=listed(NODE), b_json=listed(NODE))
    assert "more than 1 files: is this the right folder?" in error(read_cluster([tmp_path]))
