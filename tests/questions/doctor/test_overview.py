"""Sections of the one-shot diagnosis: GPU nodes, device plugins, GPU pods and recent errors."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rules_engine.model.kubernetes.cluster_objects import ClusterObjects
from rules_engine.model.kubernetes.names import ObjectName
from rules_engine.questions.doctor.overview import device_plugins, device_pods, gpu_nodes, gpu_pods, plugin_pods
from rules_engine.questions.doctor.recent_errors import recent_errors
from rules_engine.questions.doctor.values import DevicePlugin, GpuNode, GpuPod, RecentError, UnreadyPod
from tests.support import api
from tests.support.api import GPU, NOW
from tests.support.reports import reported_amounts

PLUGIN = "nvidia-device-plugin-daemonset"


def everything(_name: ObjectName) -> bool:
    return True


def nodes(cluster: ClusterObjects) -> tuple[GpuNode, ...]:
    return gpu_nodes(cluster, everything)


def pods(cluster: ClusterObjects) -> tuple[GpuPod, ...]:
    return gpu_pods(device_pods(cluster), everything)


def errors(cluster: ClusterObjects, hours: int = 1) -> tuple[RecentError, ...]:
    pods, plugins = device_pods(cluster), plugin_pods(cluster)
    since = NOW - timedelta(hours=hours)
    return recent_errors(cluster, pods, plugins, everything, since, lambda _: None)


def first_object(error: RecentError) -> ObjectName:
    return error.affected[0].objects[0]


def daemon_set(name: str, desired: int, ready: int) -> dict[str, Any]:
    status = {"desiredNumberScheduled": desired, "numberReady": ready}
    return api.api_object("DaemonSet", name, "gpu-operator", status=status)


def plugin_pod(name: str, node: str = "a", *, ready: bool = False, **fields: Any) -> dict[str, Any]:
    owner = ("DaemonSet", PLUGIN)
    conditions = [{"type": "Ready", "status": str(ready)}]
    return api.pod(name, on=node, owner=owner, namespace="gpu-operator", status={"conditions": conditions}, **fields)


def test_a_node_has_its_amounts_of_each_device() -> None:
    cluster = api.cluster(
        api.node("a", {GPU: 7, "rdma/hca": "4"}, capacity={GPU: 8}, labels={"nvidia.com/gpu.product": "H100"}),
        api.pod("one", {GPU: 2}, on="a"),
        api.pod("two", {GPU: 3}, on="a"),
        api.pod("fabric", {"rdma/hca": 1}, on="a"),
        api.pod("done", {GPU: 8}, on="a", phase="Succeeded"),
        api.pod("waiting", {GPU: 8}),
    )

    (node,) = nodes(cluster)

    assert node == GpuNode(
        name="a",
        product="H100",
        ready=True,
        cordoned=False,
        resources={"nvidia.com/gpu": reported_amounts(8, 7, 5), "rdma/hca": reported_amounts(4, 4, 1)},
    )
    assert {resource: amounts.free for resource, amounts in node.resources.items()} == {
        "nvidia.com/gpu": 2,
        "rdma/hca": 3,
    }


def test_nodes_are_in_order_with_their_conditions() -> None:
    cluster = api.cluster(api.node("b", {GPU: 8}, ready=False), api.node("a", {GPU: 8}, unschedulable=True))

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
    cluster = api.cluster(api.api_object("Node", "a", metadata={"labels": labels}))

    assert [(node.name, node.product, node.resources) for node in nodes(cluster)] == [("a", product, {})]


@pytest.mark.parametrize("labels", [{}, {"nvidia.com/gpu.present": "false"}, {"nvidia.com/gpu.product": ""}])
def test_other_nodes_are_left_out(labels: dict[str, str]) -> None:
    assert nodes(api.cluster(api.api_object("Node", "a", metadata={"labels": labels}))) == ()


def test_what_is_allocated_is_not_known_without_pods() -> None:
    (node,) = nodes(api.cluster(api.node("a", {GPU: 8}), absent=["Pod"]))

    assert node.resources["nvidia.com/gpu"] == reported_amounts(8, 8, None)
    assert node.resources["nvidia.com/gpu"].free is None


def test_what_the_input_leaves_out_is_not_known() -> None:
    node = api.node("a", {GPU: 8})
    del node["status"]["capacity"]

    (found,) = nodes(api.cluster(node))

    assert found.resources["nvidia.com/gpu"] == reported_amounts(None, 8, 0)


def test_a_device_that_pods_hold_and_the_node_lost_is_shown() -> None:
    cluster = api.cluster(api.node("a", {GPU: 8}), api.pod("p", {"nvidia.com/mig-1g.5gb": 2}, on="a"))

    (node,) = nodes(cluster)

    assert node.resources["nvidia.com/mig-1g.5gb"] == reported_amounts(0, 0, 2)
    assert node.resources["nvidia.com/mig-1g.5gb"].free == -2


def test_malformed_amounts_are_left_out() -> None:
    cluster = api.cluster(api.node("a", {GPU: 8, "rdma/hca": "many"}))

    assert set(nodes(cluster)[0].resources) == {"nvidia.com/gpu"}


def test_gpu_pods_are_in_order_of_their_nodes() -> None:
    bound = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-11-22T00:00:00Z"}
    started = {"startTime": "2026-11-23T10:00:00Z", "conditions": []}
    cluster = api.cluster(
        api.pod("y", {GPU: 1}, on="b", status={"conditions": []}),
        api.pod("x", {GPU: 4}, on="b", status=started),
        api.pod("z", {GPU: 1}, on="a", status={"conditions": [bound]}),
        api.pod("waiting", {GPU: 1}),
        api.pod("done", {GPU: 1}, on="a", phase="Failed"),
        api.pod("fabric", {"rdma/hca": 1}, on="a"),
        api.pod("cpu only", on="a"),
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
        ({"status": {"initContainerStatuses": [{"state": {"waiting": {"reason": "ErrImagePull"}}}]}}, "ErrImagePull"),
    ],
)
def test_the_status_of_a_pod_equals_the_column_of_kubectl(fields: dict[str, Any], status: str) -> None:
    assert [pod.status for pod in pods(api.cluster(api.pod("p", {GPU: 1}, on="a", **fields)))] == [status]


def test_device_plugins_have_their_unready_pods() -> None:
    waiting = [{"name": "plugin", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]
    cluster = api.cluster(
        daemon_set("node-exporter", 3, 3),
        daemon_set(PLUGIN, 3, 1),
        daemon_set("gpu-feature-discovery", 3, 3),
        plugin_pod("ok", "a", ready=True),
        plugin_pod("down", "c", statuses=waiting),
        plugin_pod("bad", "b", statuses=waiting),
        api.pod("alone", {GPU: 1}, on="a"),
        api.pod("other", {GPU: 1}, on="a", owner=("DaemonSet", "node-exporter")),
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
    cluster = api.cluster(
        api.node("a", {GPU: 8}),
        api.api_object("Node", "cpu"),
        api.pod("train", {GPU: 1}, on="a"),
        api.pod("web", on="cpu"),
        api.event(api.node("a"), "NodeHasDiskPressure", "disk", lastTimestamp="2026-11-23T11:30:00Z", count=3),
        api.event(api.pod("train"), "FailedMount", "volume"),
        api.event(api.pod("web"), "BackOff", "unrelated"),
        api.event(api.pod("train"), "FailedScheduling", "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."),
        api.event(api.node("cpu"), "Rebooted", "unrelated"),
        api.event(api.api_object("Job", "gone", "ml"), "FailedCreate", "exceeded quota: requests.nvidia.com/gpu=8"),
        api.event(api.pod("train"), "Scheduled", "fine", type="Normal"),
    )

    assert [(str(first_object(error)), error.reason, error.count) for error in errors(cluster)] == [
        ("Job/ml/gone", "FailedCreate", 1),
        ("Pod/ml/train", "FailedMount", 1),
        ("Node/a", "NodeHasDiskPressure", 3),
    ]


def test_pods_with_gpus_by_annotation_have_errors_as_other_gpu_pods_have() -> None:
    annotated = {"annotations": {"gpu-fraction": "0.5"}}
    kai = api.pod("kai", on="a", schedulerName="kai-scheduler", metadata=annotated)
    other = api.pod("other", on="a", metadata=annotated)
    cluster = api.cluster(kai, other, *(api.event(pod, "FailedMount", "volume") for pod in (kai, other)))
    assert [str(first_object(error)) for error in errors(cluster)] == ["Pod/ml/kai"]
    assert pods(cluster) == ()


def test_events_of_a_node_count_whatever_namespace_they_name() -> None:
    disk_pressure = api.event(api.api_object("Node", "a", "default"), "NodeHasDiskPressure", "disk")
    cluster = api.cluster(api.node("a", {GPU: 8}), disk_pressure)
    assert [str(first_object(error)) for error in errors(cluster)] == ["Node/a"]
    assert len(cluster.events_about(cluster.nodes[0])) == 1


@pytest.mark.parametrize(
    ("times", "minute"),
    [
        ({"series": {"lastObservedTime": "2026-11-23T11:59:00.123456Z", "count": 7}, "count": 1}, 59),
        ({"lastTimestamp": None, "eventTime": "2026-11-23T11:58:00.000000Z"}, 58),
        ({"lastTimestamp": None, "metadata": {"creationTimestamp": "2026-11-23T11:56:00Z"}}, 56),
        ({"lastTimestamp": "2026-11-23T13:57:00+02:00", "eventTime": "2026-11-23T11:51:00Z"}, 57),
        ({"lastTimestamp": "yesterday"}, None),
        ({"lastTimestamp": "0001-01-01T00:00:00+23:59"}, None),
        ({"lastTimestamp": "9999-12-31T23:59:59-23:59"}, None),
    ],
)
def test_the_time_of_an_event_is_its_last_occurrence(times: dict[str, Any], minute: int | None) -> None:
    cluster = api.cluster(api.node("a", {GPU: 8}), api.event(api.node("a"), "R", "m", **times))

    (error,) = errors(cluster)

    assert (error.at.minute if error.at else None) == minute
    assert error.count == (7 if "series" in times else 1)


def test_older_errors_are_left_out() -> None:
    old = api.event(api.node("a"), "R", "m", lastTimestamp="2026-11-23T10:00:00Z")
    cluster = api.cluster(api.node("a", {GPU: 8}), old)

    assert errors(cluster, hours=1) == ()
    assert len(errors(cluster, hours=3)) == 1


def test_equal_errors_of_several_objects_are_one() -> None:
    uids = ["0b6cf7a4-0000-4000-8000-00000000000a", "0b6cf7a4-0000-4000-8000-00000000000b"]
    cluster = api.cluster(
        api.pod("p-1", {GPU: 1}, on="a"),
        api.pod("p-2", {GPU: 1}, on="a"),
        *[
            api.event(api.pod(name), "BackOff", f"Back-off restarting main in pod {name}_ml({uid})", count=2)
            for name, uid in zip(("p-2", "p-1"), uids, strict=True)
        ],
    )

    (error,) = errors(cluster)

    assert [name.name for name in error.affected[0].objects] == ["p-1", "p-2"]
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
    cluster = api.cluster(
        daemon_set(PLUGIN, 1, 0),
        plugin_pod("bad", statuses=[crashed]),
        api.pod("new", {GPU: 1}, on="a", statuses=[starting]),
        api.pod("image", {GPU: 1}, on="a", statuses=[refused]),
    )

    assert [(first_object(error).name, error.reason, error.message, error.count) for error in errors(cluster)] == [
        ("bad", "CrashLoopBackOff", "container plugin: back-off 5m0s", 12),
        ("bad", "Error", "container plugin ended with exit code 1", 12),
        ("image", "ErrImagePull", "container main", 1),
    ]


def test_the_end_of_a_containers_log_is_not_quoted() -> None:
    ended = {"reason": "Error", "exitCode": 1, "message": "TOKEN=hunter2", "finishedAt": "2026-11-23T11:50:00Z"}
    pod = api.pod("p", {GPU: 1}, on="a", statuses=[{"name": "main", "state": {"terminated": ended}}])

    assert "hunter2" not in str(errors(api.cluster(pod)))


def test_the_output_of_a_probe_is_not_quoted() -> None:
    failed = api.event(api.pod("p"), "Unhealthy", "Readiness probe failed: TOKEN=hunter2")
    (error,) = errors(api.cluster(api.pod("p", {GPU: 1}, on="a"), failed))

    assert (error.reason, error.message) == (
        "Unhealthy",
        "the message is left out, since it has the output of a program",
    )


def test_values_that_an_event_quotes_are_left_out() -> None:
    refused = 'Pod "p" is invalid: spec.containers[0].env[0].value: Invalid value: "hunter2": gpu'
    cluster = api.cluster(api.event(api.api_object("Job", "j", "ml"), "FailedCreate", refused))

    (error,) = errors(cluster)

    assert error.message == 'Pod "p" is invalid: spec.containers[0].env[0].value: Invalid value: gpu'


@pytest.mark.parametrize("count", [True, -3, 10**4000, "7", None])
def test_a_count_of_another_type_is_one(count: Any) -> None:
    status = {"name": "c", "restartCount": count, "state": {"waiting": {"reason": "ErrImagePull"}}}
    event = api.event(api.node("a"), "R", "m", count=count)
    cluster = api.cluster(api.node("a", {GPU: 8}), api.pod("image", {GPU: 1}, on="a", statuses=[status]), event)
    assert [(error.count, type(error.count)) for error in errors(cluster)] == [(1, int)] * 2
