"""Sections of the one-shot diagnosis: GPU nodes, device plugins, GPU pods and recent errors."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rules_engine.diagnosis.sections import recent_errors
from rules_engine.diagnosis.sections.overview import device_plugins, device_pods, gpu_nodes, gpu_pods, plugin_pods
from rules_engine.diagnosis.values import Amounts, DevicePlugin, GpuNode, GpuPod, RecentError, UnreadyPod
from rules_engine.model.kubernetes.cluster_objects import ClusterObjects
from rules_engine.model.kubernetes.names import ObjectName
from tests.support.reported_objects import NOW, cluster_of, daemon_set, gpu_node, gpu_pod, warning_event

PLUGIN = "nvidia-device-plugin-daemonset"


def everything(_name: ObjectName) -> bool:
    return True


def nodes(cluster: ClusterObjects) -> tuple[GpuNode, ...]:
    return gpu_nodes(cluster, device_pods(cluster), everything)


def pods(cluster: ClusterObjects) -> tuple[GpuPod, ...]:
    return gpu_pods(device_pods(cluster), everything)


def errors(cluster: ClusterObjects, hours: int = 1) -> tuple[RecentError, ...]:
    since = NOW - timedelta(hours=hours)
    shown, _ = recent_errors.recent_errors(cluster, device_pods(cluster), plugin_pods(cluster), everything, since)
    return shown


def plugin_pod(name: str, node: str = "a", *, ready: bool = False, **fields: Any) -> dict[str, Any]:
    owner = {"kind": "DaemonSet", "name": PLUGIN}
    conditions = [{"type": "Ready", "status": str(ready)}]
    return gpu_pod(
        name, node, gpus=0, namespace="gpu-operator", owner=owner, status={"conditions": conditions}, **fields
    )


def test_a_node_has_its_amounts_of_each_device() -> None:
    cluster = cluster_of(
        nodes=[gpu_node("a", 8, allocatable=7, more={"rdma/hca": "4"}, labels={"nvidia.com/gpu.product": "H100"})],
        pods=[
            gpu_pod("one", "a", 2),
            gpu_pod("two", "a", 3),
            gpu_pod("fabric", "a", 1, resource="rdma/hca"),
            gpu_pod("done", "a", 8, phase="Succeeded"),
            gpu_pod("waiting", gpus=8),
        ],
    )

    (node,) = nodes(cluster)

    assert node == GpuNode(
        name="a",
        product="H100",
        ready=True,
        cordoned=False,
        resources={
            "nvidia.com/gpu": Amounts(capacity=8, allocatable=7, allocated=5),
            "rdma/hca": Amounts(capacity=4, allocatable=4, allocated=1),
        },
    )
    assert {resource: amounts.free for resource, amounts in node.resources.items()} == {
        "nvidia.com/gpu": 2,
        "rdma/hca": 3,
    }


def test_nodes_are_in_order_with_their_conditions() -> None:
    cluster = cluster_of(nodes=[gpu_node("b", ready=False), gpu_node("a", unschedulable=True)], pods=[])

    assert [(node.name, node.ready, node.cordoned) for node in nodes(cluster)] == [
        ("a", True, True),
        ("b", False, False),
    ]


@pytest.mark.parametrize(
    ("labels", "product"),
    [
        ({"nvidia.com/gpu.present": "true"}, ""),
        ({"feature.node.kubernetes.io/pci-10de.present": "true"}, ""),
        ({"cloud.google.com/gke-accelerator": "nvidia-tesla-t4"}, "nvidia-tesla-t4"),
    ],
)
def test_a_node_without_gpu_resources_is_a_gpu_node_by_its_labels(labels: dict[str, str], product: str) -> None:
    cluster = cluster_of(nodes=[{"metadata": {"name": "a", "labels": labels}}], pods=[])

    assert [(node.name, node.product, node.resources) for node in nodes(cluster)] == [("a", product, {})]


@pytest.mark.parametrize("labels", [{}, {"nvidia.com/gpu.present": "false"}, {"nvidia.com/gpu.product": ""}])
def test_other_nodes_are_left_out(labels: dict[str, str]) -> None:
    assert nodes(cluster_of(nodes=[{"metadata": {"name": "a", "labels": labels}}], pods=[])) == ()


def test_what_is_allocated_is_not_known_without_pods() -> None:
    (node,) = nodes(cluster_of(frozenset({"Pod"}), nodes=[gpu_node("a")]))

    assert node.resources["nvidia.com/gpu"] == Amounts(capacity=8, allocatable=8, allocated=None)
    assert node.resources["nvidia.com/gpu"].free is None


def test_a_device_that_pods_hold_and_the_node_lost_is_shown() -> None:
    cluster = cluster_of(nodes=[gpu_node("a")], pods=[gpu_pod("p", "a", 2, resource="nvidia.com/mig-1g.5gb")])

    (node,) = nodes(cluster)

    assert node.resources["nvidia.com/mig-1g.5gb"] == Amounts(capacity=0, allocatable=0, allocated=2)
    assert node.resources["nvidia.com/mig-1g.5gb"].free == -2


def test_malformed_amounts_are_left_out() -> None:
    cluster = cluster_of(nodes=[gpu_node("a", more={"rdma/hca": "many"})], pods=[])

    assert set(nodes(cluster)[0].resources) == {"nvidia.com/gpu"}


def test_gpu_pods_are_in_order_of_their_nodes() -> None:
    bound = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-11-22T00:00:00Z"}
    started = {"startTime": "2026-11-23T10:00:00Z"}
    cluster = cluster_of(
        nodes=[],
        pods=[
            gpu_pod("y", "b"),
            gpu_pod("x", "b", 4, status=started),
            gpu_pod("z", "a", status={"conditions": [bound]}),
            gpu_pod("waiting"),
            gpu_pod("done", "a", phase="Failed"),
            gpu_pod("fabric", "a", resource="rdma/hca"),
            gpu_pod("cpu only", "a", 0),
        ],
    )

    assert [(pod.node, pod.name.name, pod.since) for pod in pods(cluster)] == [
        ("a", "z", datetime(2026, 11, 22, tzinfo=UTC)),
        ("b", "x", datetime(2026, 11, 23, 10, tzinfo=UTC)),
        ("b", "y", None),
    ]
    assert pods(cluster)[1].amounts == {"nvidia.com/gpu": 4}


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({}, "Running"),
        ({"metadata": {"deletionTimestamp": "2026-11-23T11:00:00Z"}}, "Terminating"),
        ({"statuses": [{"state": {"waiting": {"reason": "CrashLoopBackOff"}}}]}, "CrashLoopBackOff"),
        ({"statuses": [{"state": {"terminated": {"reason": "OOMKilled", "exitCode": 137}}}]}, "OOMKilled"),
        ({"statuses": [{"state": {"terminated": {"reason": "Completed", "exitCode": 0}}}]}, "Running"),
        ({"statuses": [{"state": {"running": {}}}]}, "Running"),
        ({"status": {"reason": "NodeLost"}}, "NodeLost"),
        (
            {"status": {"initContainerStatuses": [{"state": {"waiting": {"reason": "ErrImagePull"}}}]}},
            "ErrImagePull",
        ),
    ],
)
def test_the_status_of_a_pod_equals_the_column_of_kubectl(fields: dict[str, Any], status: str) -> None:
    assert [pod.status for pod in pods(cluster_of(nodes=[], pods=[gpu_pod("p", "a", **fields)]))] == [status]


def test_device_plugins_have_their_unready_pods() -> None:
    waiting = [{"name": "plugin", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]
    cluster = cluster_of(
        nodes=[],
        daemonsets=[
            daemon_set("node-exporter", 3, 3),
            daemon_set(PLUGIN, 3, 1),
            daemon_set("gpu-feature-discovery", 3, 3),
        ],
        pods=[
            plugin_pod("ok", "a", ready=True),
            plugin_pod("down", "c", statuses=waiting),
            plugin_pod("bad", "b", statuses=waiting),
            gpu_pod("alone", "a"),
            gpu_pod("other", "a", owner={"kind": "DaemonSet", "name": "node-exporter"}),
        ],
    )

    assert device_plugins(cluster, plugin_pods(cluster)) == (
        DevicePlugin(
            name=ObjectName("DaemonSet", "gpu-feature-discovery", "gpu-operator"), desired=3, ready=3, unready=()
        ),
        DevicePlugin(
            name=ObjectName("DaemonSet", PLUGIN, "gpu-operator"),
            desired=3,
            ready=1,
            unready=(
                UnreadyPod(name=ObjectName("Pod", "bad", "gpu-operator"), node="b", status="CrashLoopBackOff"),
                UnreadyPod(name=ObjectName("Pod", "down", "gpu-operator"), node="c", status="CrashLoopBackOff"),
            ),
        ),
    )


def test_errors_of_gpu_objects_are_the_newest_first() -> None:
    cluster = cluster_of(
        nodes=[gpu_node("a"), {"metadata": {"name": "cpu"}}],
        pods=[gpu_pod("train", "a"), gpu_pod("web", "cpu", 0)],
        events=[
            warning_event("Node", "a", "NodeHasDiskPressure", "disk", lastTimestamp="2026-11-23T11:30:00Z", count=3),
            warning_event("Pod", "train", "FailedMount", "volume"),
            warning_event("Pod", "web", "BackOff", "unrelated"),
            warning_event(
                "Pod", "train", "FailedScheduling", "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
            ),
            warning_event("Node", "cpu", "Rebooted", "unrelated"),
            warning_event("Job", "gone", "FailedCreate", "exceeded quota: requests.nvidia.com/gpu=8"),
            warning_event("Pod", "train", "Scheduled", "fine", type="Normal"),
        ],
    )

    assert [(str(error.objects[0]), error.reason, error.count) for error in errors(cluster)] == [
        ("Job/ml/gone", "FailedCreate", 1),
        ("Pod/ml/train", "FailedMount", 1),
        ("Node/a", "NodeHasDiskPressure", 3),
    ]


def test_events_of_a_node_count_whatever_namespace_they_name() -> None:
    disk_pressure = warning_event("Node", "a", "NodeHasDiskPressure", "disk", namespace="default")
    cluster = cluster_of(nodes=[gpu_node("a")], events=[disk_pressure])
    assert [str(error.objects[0]) for error in errors(cluster)] == ["Node/a"]
    assert len(cluster.events_about(cluster.nodes[0])) == 1


@pytest.mark.parametrize(
    ("times", "minute"),
    [
        ({"series": {"lastObservedTime": "2026-11-23T11:59:00.123456Z", "count": 7}}, 59),
        ({"lastTimestamp": None, "eventTime": "2026-11-23T11:58:00.000000Z"}, 58),
        ({"lastTimestamp": None, "metadata": {"creationTimestamp": "2026-11-23T11:56:00Z"}}, 56),
        ({"lastTimestamp": "2026-11-23T13:57:00+02:00"}, 57),
        ({"lastTimestamp": "yesterday"}, None),
        ({"lastTimestamp": "0001-01-01T00:00:00+23:59"}, None),
        ({"lastTimestamp": "9999-12-31T23:59:59-23:59"}, None),
    ],
)
def test_the_time_of_an_event_is_its_last_occurrence(times: dict[str, Any], minute: int | None) -> None:
    cluster = cluster_of(nodes=[gpu_node("a")], pods=[], events=[warning_event("Node", "a", "R", "m", **times)])

    (error,) = errors(cluster)

    assert (error.at.minute if error.at else None) == minute
    assert error.count == (7 if "series" in times else 1)


def test_older_errors_are_left_out() -> None:
    old = warning_event("Node", "a", "R", "m", lastTimestamp="2026-11-23T10:00:00Z")
    cluster = cluster_of(nodes=[gpu_node("a")], pods=[], events=[old])

    assert errors(cluster, hours=1) == ()
    assert len(errors(cluster, hours=3)) == 1


def test_equal_errors_of_several_objects_are_one() -> None:
    uids = ["0b6cf7a4-0000-4000-8000-00000000000a", "0b6cf7a4-0000-4000-8000-00000000000b"]
    cluster = cluster_of(
        nodes=[],
        pods=[gpu_pod("p-1", "a"), gpu_pod("p-2", "a")],
        events=[
            warning_event("Pod", name, "BackOff", f"Back-off restarting main in pod {name}_ml({uid})", count=2)
            for name, uid in zip(("p-2", "p-1"), uids, strict=True)
        ],
    )

    (error,) = errors(cluster)

    assert [name.name for name in error.objects] == ["p-1", "p-2"]
    assert (error.count, error.message) == (4, f"Back-off restarting main in pod p-1_ml({uids[1]})")


def test_containers_that_do_not_run_are_errors() -> None:
    crashed = {
        "name": "plugin",
        "restartCount": 12,
        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m0s"}},
        "lastState": {"terminated": {"reason": "Error", "exitCode": 1, "finishedAt": "2026-11-23T11:50:00Z"}},
    }
    starting = {"name": "main", "restartCount": 0, "state": {"waiting": {"reason": "ContainerCreating"}}}
    refused = {"name": "main", "state": {"waiting": {"reason": "ErrImagePull"}}}
    cluster = cluster_of(
        nodes=[],
        daemonsets=[daemon_set(PLUGIN, 1, 0)],
        pods=[
            plugin_pod("bad", statuses=[crashed]),
            gpu_pod("new", "a", statuses=[starting]),
            gpu_pod("image", "a", statuses=[refused]),
        ],
    )

    assert [(error.objects[0].name, error.reason, error.message, error.count) for error in errors(cluster)] == [
        ("bad", "CrashLoopBackOff", "container plugin: back-off 5m0s", 12),
        ("bad", "Error", "container plugin ended with exit code 1", 12),
        ("image", "ErrImagePull", "container main", 1),
    ]


def test_the_end_of_a_containers_log_is_not_quoted() -> None:
    ended = {"reason": "Error", "exitCode": 1, "message": "TOKEN=hunter2", "finishedAt": "2026-11-23T11:50:00Z"}
    pod = gpu_pod("p", "a", statuses=[{"name": "main", "state": {"terminated": ended}}])

    assert "hunter2" not in str(errors(cluster_of(nodes=[], pods=[pod])))


def test_the_output_of_a_probe_is_not_quoted() -> None:
    failed = warning_event("Pod", "p", "Unhealthy", "Readiness probe failed: TOKEN=hunter2")
    (error,) = errors(cluster_of(nodes=[], pods=[gpu_pod("p", "a")], events=[failed]))

    assert (error.reason, error.message) == (
        "Unhealthy",
        "the message is left out, since it has the output of a program",
    )


def test_values_that_an_event_quotes_are_left_out() -> None:
    refused = 'Pod "p" is invalid: spec.containers[0].env[0].value: Invalid value: "hunter2": gpu'
    cluster = cluster_of(nodes=[], pods=[], events=[warning_event("Job", "j", "FailedCreate", refused)])

    (error,) = errors(cluster)

    assert error.message == 'Pod "p" is invalid: spec.containers[0].env[0].value: Invalid value: gpu'


def test_the_number_of_errors_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent_errors, "MAX_ERRORS", 2)
    cluster = cluster_of(
        nodes=[gpu_node("a")], pods=[], events=[warning_event("Node", "a", f"R{n}", "m") for n in range(5)]
    )

    shown, omitted = recent_errors.recent_errors(cluster, [], {}, everything, NOW - timedelta(hours=1))

    assert [error.reason for error in shown] == ["R0", "R1"]
    assert omitted == 3


@pytest.mark.parametrize("count", [True, -3, 10**4000, "7", None])
def test_a_count_of_another_type_is_one(count: Any) -> None:
    status = {"name": "c", "restartCount": count, "state": {"waiting": {"reason": "ErrImagePull"}}}
    event = warning_event("Node", "a", "R", "m", count=count)
    cluster = cluster_of(nodes=[gpu_node("a")], pods=[gpu_pod("image", "a", statuses=[status])], events=[event])
    assert [(error.count, type(error.count)) for error in errors(cluster)] == [(1, int)] * 2
