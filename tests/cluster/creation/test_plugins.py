"""The API server's own plugins change and refuse pods, with the texts of Kubernetes 1.36."""

from typing import Any

import pytest

from rules_engine.cluster.creation.plugins import ApiServer
from rules_engine.model.kubernetes.cluster_objects import ClusterObjects
from tests.support.api import api_object, node

PLUGIN = "ExtendedResourceToleration"


def cluster(*objects: Any, plugins: tuple[str, ...] = ()) -> ClusterObjects:
    kinds: dict[str, list[Any]] = {}
    for each in objects:
        kinds.setdefault(each["kind"], []).append(each)
    return ClusterObjects(kinds, plugins=frozenset(plugins))


def pod(resources: Any = None, **spec: Any) -> Any:
    container = {"name": "c", "image": "nginx:1", **({"resources": resources} if resources else {})}
    return {"metadata": {"name": "p"}, "spec": {"containers": [container], **spec}}


def created(submitted: Any, *objects: Any, plugins: tuple[str, ...] = ()) -> Any:
    server = ApiServer(cluster(*objects, plugins=plugins))
    mutated = server.mutate(submitted, "ml")
    return server.store(mutated, mutated.pod, "ml")


def spec_of(submitted: Any, *objects: Any, plugins: tuple[str, ...] = ()) -> Any:
    found = created(submitted, *objects, plugins=plugins)
    assert not found.refusal
    return found.pod["spec"]


def limit_range(name: str = "limits", kind: str = "Container", **members: Any) -> Any:
    return api_object("LimitRange", name, "ml", spec={"limits": [{"type": kind, **members}]})


# LimitRanger


def test_containers_get_the_amounts_that_they_lack() -> None:
    found = created(
        pod({"requests": {"cpu": "3"}}, initContainers=[{"name": "i", "image": "i"}]),
        limit_range(default={"cpu": "2", "memory": "1Gi"}, defaultRequest={"memory": "512Mi"}),
    )
    (container,), (first,) = found.pod["spec"]["containers"], found.pod["spec"]["initContainers"]
    assert container["resources"]["requests"] == {"cpu": "3", "memory": "512Mi"}
    assert first["resources"]["requests"] == {"cpu": "2", "memory": "512Mi"}
    assert container["resources"]["limits"] == first["resources"]["limits"] == {"cpu": "2", "memory": "1Gi"}
    parts = (
        "memory request for container c; cpu, memory limit for container c; "
        "cpu, memory request for init container i; cpu, memory limit for init container i"
    )
    assert found.pod["metadata"]["annotations"] == {"kubernetes.io/limit-ranger": f"LimitRanger plugin set: {parts}"}


def test_bounds_are_defaults_of_a_limit_range_that_names_none() -> None:
    resources = spec_of(pod(), limit_range(min={"memory": "1Mi"}, max={"cpu": "2"}, default={"memory": "1Gi"}))
    assert resources["containers"][0]["resources"] == {
        "requests": {"cpu": "2", "memory": "1Gi"},
        "limits": {"cpu": "2", "memory": "1Gi"},
    }


LOW = "minimum cpu usage per Container is 2, but request is 1"
HIGH = "maximum cpu usage per Container is 2, but limit is 3"
CPU = {"requests": {"cpu": "1"}, "limits": {"cpu": "3"}}


@pytest.mark.parametrize(
    ("resources", "bounds", "message"),
    [
        (CPU, {"max": {"cpu": "2"}}, HIGH),
        (CPU, {"min": {"cpu": "2"}}, LOW),
        (CPU, {"min": {"cpu": "1"}, "max": {"cpu": "3"}, "maxLimitRequestRatio": {"cpu": "3"}}, ""),
        (
            CPU,
            {"maxLimitRequestRatio": {"cpu": "2"}},
            "cpu max limit to request ratio per Container is 2, but provided ratio is 3.000000",
        ),
        (
            CPU,
            {"min": {"cpu": "2"}, "max": {"cpu": "2"}},
            f"[{LOW}, {HIGH}]",
        ),
        (
            None,
            {"maxLimitRequestRatio": {"cpu": "2"}},
            "cpu max limit to request ratio per Container is 2, but no request is specified or request is 0",
        ),
        (
            {"requests": {"cpu": "1"}},
            {"maxLimitRequestRatio": {"cpu": "2"}},
            "cpu max limit to request ratio per Container is 2, but no limit is specified or limit is 0",
        ),
    ],
)
def test_amounts_outside_of_the_bounds_of_containers_are_refused(resources: Any, bounds: Any, message: str) -> None:
    assert created(pod(resources), limit_range(**bounds)).refusal == message


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ({"max": {"cpu": "5"}}, "maximum cpu usage per Pod is 5, but limit is 6"),
        ({"max": {"cpu": "6"}, "min": {"cpu": "2"}}, ""),
        ({"min": {"cpu": "3"}}, "minimum cpu usage per Pod is 3, but request is 2"),
        ({"min": {"memory": "1Gi"}}, "minimum memory usage per Pod is 1Gi.  No request is specified"),
        ({"max": {"memory": "1Gi"}}, "maximum memory usage per Pod is 1Gi.  No limit is specified"),
    ],
)
def test_a_pod_is_bounded_as_a_whole(bounds: Any, message: str) -> None:
    two = [{"name": name, "resources": CPU} for name in "ab"]
    assert created(pod(containers=two), limit_range(kind="Pod", **bounds)).refusal == message


def test_an_upper_bound_holds_for_requests_and_a_lower_one_for_limits() -> None:
    level = {"requests": {"cpu": "4"}, "limits": {"cpu": "4"}}
    whole = {**pod({"requests": {"cpu": "1"}})}
    whole["spec"]["resources"] = level
    found = created(whole, limit_range(kind="Pod", max={"cpu": "3"}))
    assert found.refusal == "maximum cpu usage per Pod is 3, but limit is 4"
    low = {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}
    assert created(pod(low), limit_range(min={"cpu": "2"})).refusal.endswith("is 2, but limit is 1")
    assert created(pod(low), limit_range(max={"cpu": "1"})).refusal.endswith("is 1, but request is 2")


def test_equal_errors_of_several_containers_are_one() -> None:
    containers = [{"name": name, "image": "i"} for name in "ab"]
    message = "cpu max limit to request ratio per Container is 2, but no request is specified or request is 0"
    assert created(pod(containers=containers), limit_range(maxLimitRequestRatio={"cpu": "2"})).refusal == message


# ServiceAccount


def account(name: str = "trainer", **members: Any) -> Any:
    return api_object("ServiceAccount", name, "ml", **members)


def test_a_pod_mounts_the_token_of_its_account() -> None:
    mounted = {"name": "own", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}
    containers = [{"name": "a"}, {"name": "b", "volumeMounts": [mounted]}]
    spec = spec_of(pod(containers=containers, initContainers=[{"name": "i"}]))
    assert spec["serviceAccountName"] == spec["serviceAccount"] == "default"
    (volume,) = spec["volumes"]
    assert [next(iter(source)) for source in volume["projected"]["sources"]] == [
        "serviceAccountToken",
        "configMap",
        "downwardAPI",
    ]
    mount = {**mounted, "name": volume["name"], "readOnly": True}
    assert [each["volumeMounts"] for each in spec["containers"]] == [[mount], [mounted]]
    assert spec["initContainers"][0]["volumeMounts"] == [mount]


@pytest.mark.parametrize(
    ("spec", "members", "mounted"),
    [
        ({}, {}, True),
        ({}, {"automountServiceAccountToken": False}, False),
        ({"automountServiceAccountToken": True}, {"automountServiceAccountToken": False}, True),
        ({"automountServiceAccountToken": False}, {}, False),
    ],
)
def test_a_pod_or_its_account_may_leave_out_the_token(spec: Any, members: Any, mounted: bool) -> None:
    found = spec_of(pod(serviceAccountName="trainer", **spec), account(**members))
    assert ("volumes" in found) is mounted


def test_a_pod_gets_the_pull_secrets_of_its_account() -> None:
    with_secrets = account(imagePullSecrets=[{"name": "registry"}])
    assert spec_of(pod(serviceAccountName="trainer"), with_secrets)["imagePullSecrets"] == [{"name": "registry"}]
    own = pod(serviceAccountName="trainer", imagePullSecrets=[{"name": "own"}])
    assert spec_of(own, with_secrets)["imagePullSecrets"] == [{"name": "own"}]


def test_a_pod_that_has_a_token_volume_keeps_it() -> None:
    volume = {"name": "kube-api-access-abcde", "projected": {"sources": []}}
    spec = spec_of(pod(volumes=[volume]))
    assert [each["name"] for each in spec["volumes"]] == ["kube-api-access-abcde"]
    assert spec["containers"][0]["volumeMounts"][0]["name"] == "kube-api-access-abcde"


# Tolerations, selectors, priority


def test_a_pod_stays_five_minutes_on_a_node_that_is_lost() -> None:
    def keys(*own: Any) -> list[str]:
        return [each.get("key", "") for each in spec_of(pod(tolerations=[*own]))["tolerations"]]

    lost = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]
    assert keys() == lost
    assert keys({"key": lost[0], "operator": "Exists"}) == lost
    assert keys({"key": lost[0], "operator": "Exists", "effect": "NoSchedule"}) == [lost[0], *lost]
    assert keys({"operator": "Exists"}) == [""]


def test_extended_resources_bring_tolerations_if_the_plugin_is_on() -> None:
    limits = {"nvidia.com/gpu": "1", "cpu": "1", "example.com/a": "1", "x.kubernetes.io/y": "1"}
    submitted = pod({"limits": limits, "requests": limits})
    keys = [each["key"] for each in spec_of(submitted, plugins=(PLUGIN,))["tolerations"]]
    assert keys[2:] == ["example.com/a", "nvidia.com/gpu"]
    assert len(spec_of(submitted)["tolerations"]) == 2


def test_a_namespace_may_have_a_node_selector() -> None:
    selector = {"annotations": {"scheduler.alpha.kubernetes.io/node-selector": "pool=gpu, zone=a"}}
    namespace = api_object("Namespace", "ml", metadata=selector)
    assert spec_of(pod(), namespace)["nodeSelector"] == {"pool": "gpu", "zone": "a"}
    conflicting = created(pod(nodeSelector={"pool": "cpu"}), namespace)
    assert conflicting.refusal == "pod node label selector conflicts with its namespace node label selector"


@pytest.mark.parametrize(("text", "part"), [("pool=gpu,", ""), ("pool", "pool"), ("a=b,pool=gpu=x", "pool gpu x")])
def test_an_invalid_node_selector_of_a_namespace_refuses_all_pods(text: str, part: str) -> None:
    annotations = {"scheduler.alpha.kubernetes.io/node-selector": text}
    namespace = api_object("Namespace", "ml", metadata={"annotations": annotations})
    assert created(pod(), namespace).refusal == f"invalid selector: [{part}]"


def test_a_pod_has_the_priority_of_its_class() -> None:
    high = api_object("PriorityClass", "high", value=7, preemptionPolicy="Never")
    usual = api_object("PriorityClass", "usual", value=3, globalDefault=True)
    assert spec_of(pod(priorityClassName="high"), high, usual)["priority"] == 7
    assert spec_of(pod(priorityClassName="high"), high)["preemptionPolicy"] == "Never"
    assert spec_of(pod(), high, usual)["priority"] == 3
    assert spec_of(pod(priority=5), high, usual)["priority"] == 5
    message = (
        "the integer value of priority (5) must not be provided in pod spec; "
        "priority admission controller computed 7 from the given PriorityClass name"
    )
    assert created(pod(priority=5, priorityClassName="high"), high).refusal == message


# RuntimeClass


def runtime_class(**members: Any) -> Any:
    return api_object("RuntimeClass", "kata", handler="kata", **members)


def test_a_runtime_class_adds_its_selector_overhead_and_tolerations() -> None:
    toleration = {"key": "kata", "operator": "Exists"}
    scheduling = {"nodeSelector": {"runtime": "kata"}, "tolerations": [toleration]}
    with_class = runtime_class(overhead={"podFixed": {"cpu": "250m"}}, scheduling=scheduling)
    spec = spec_of(pod(runtimeClassName="kata", nodeSelector={"pool": "a"}), with_class)
    assert (spec["nodeSelector"], spec["overhead"]) == ({"pool": "a", "runtime": "kata"}, {"cpu": "250m"})
    assert spec["tolerations"][-1] == toleration
    equal = pod(runtimeClassName="kata", overhead={"cpu": "0.25"})
    assert spec_of(equal, with_class)["overhead"] == {"cpu": "0.25"}


MISMATCH = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"
WITHOUT = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"


@pytest.mark.parametrize(
    ("spec", "members", "message"),
    [
        ({"overhead": {"cpu": "1"}}, None, WITHOUT),
        ({"overhead": {"cpu": "1"}, "runtimeClassName": "kata"}, {}, WITHOUT),
        ({"overhead": {"cpu": "1"}, "runtimeClassName": "kata"}, {"overhead": {"podFixed": {"cpu": "2"}}}, MISMATCH),
        ({"runtimeClassName": "kata"}, None, 'pod rejected: RuntimeClass "kata" not found'),
        (
            {"nodeSelector": {"pool": "a"}, "runtimeClassName": "kata"},
            {"scheduling": {"nodeSelector": {"pool": "b"}}},
            "conflict: runtimeClass.scheduling.nodeSelector[pool] = b; pod.spec.nodeSelector[pool] = a",
        ),
    ],
)
def test_what_contradicts_a_runtime_class_is_refused(spec: Any, members: Any, message: str) -> None:
    classes = [] if members is None else [runtime_class(**members)]
    assert created(pod(**spec), *classes).refusal == message


def test_plugins_run_once_more_on_a_pod_that_a_webhook_has_changed() -> None:
    server = ApiServer(cluster(runtime_class(overhead={"podFixed": {"cpu": "1"}})))
    first: Any = server.mutate(pod(), "ml")
    mutated = {**first.pod, "spec": {**first.pod["spec"], "runtimeClassName": "kata"}}
    stored: Any = server.store(first, mutated, "ml")
    assert stored.pod["spec"]["overhead"] == {"cpu": "1"}


def test_host_ports_default_on_the_nodes_network() -> None:
    containers = [{"name": "c", "ports": [{"containerPort": 80, "hostPort": 0}, {"containerPort": 81}]}, {"name": "d"}]
    (first, second) = spec_of(pod(hostNetwork=True, containers=containers))["containers"]
    assert first["ports"] == [{"hostPort": port, "containerPort": port, "protocol": "TCP"} for port in (80, 81)]
    assert "ports" not in second


def test_what_was_not_read_is_unknown_and_not_refused() -> None:
    kinds = ("RuntimeClass", "PriorityClass", "ServiceAccount")
    server = ApiServer(ClusterObjects({}, absent=frozenset(kinds)))
    named = pod(runtimeClassName="kata", priorityClassName="high", serviceAccountName="trainer", overhead={"cpu": "1"})
    mutated = server.mutate(named, "ml")
    found = server.store(mutated, mutated.pod, "ml")
    assert (found.refusal, [each.partition(",")[0] for each in found.unknown]) == (
        "",
        ["ServiceAccount ml/trainer", "PriorityClass high", "RuntimeClass kata"],
    )


def test_a_malformed_pod_is_refused() -> None:
    assert created(pod({"requests": {"cpu": "many"}}), limit_range(min={"cpu": "1"})).refusal


GPUS = {"limits": {"nvidia.com/gpu": "1"}, "requests": {"nvidia.com/gpu": "1"}}
ADDED = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}


def running(*tolerations: Any, template: Any = ()) -> list[Any]:
    """Return a StatefulSet, and a running pod of it."""
    spec = {"containers": [{"name": "c", "resources": GPUS}]}
    owner = api_object("StatefulSet", "web", "ml", spec={"template": {"spec": {**spec, "tolerations": [*template]}}})
    reference = {"kind": "StatefulSet", "name": "web", "controller": True}
    metadata = {"ownerReferences": [reference]}
    return [owner, api_object("Pod", "web-0", "ml", metadata=metadata, spec={**spec, "tolerations": [*tolerations]})]


@pytest.mark.parametrize(
    ("objects", "is_on"),
    [
        (running(ADDED), True),
        (running(), False),
        ([], None),
        (running(ADDED, template=[ADDED]), None),
        (running({"operator": "Exists"}, template=[{"operator": "Exists"}]), None),
        (running(ADDED)[1:], None),
    ],
)
def test_running_pods_show_whether_an_optional_plugin_is_on(objects: list[Any], is_on: bool | None) -> None:
    tainted = node("a", taints=["nvidia.com/gpu=present:NoSchedule"])
    found = created(pod(GPUS), *objects, tainted)
    assert (ADDED in found.pod["spec"]["tolerations"]) is bool(is_on)
    unknown = f"whether the admission plugin {PLUGIN} is on (--admission {PLUGIN})"
    assert found.unknown == ((unknown,) if is_on is None else ())


def test_an_optional_plugin_that_changes_nothing_is_not_asked_for() -> None:
    assert created(pod(GPUS), node("a", taints=["dedicated=ml:NoSchedule"])).unknown == ()
    tainted = node("a", taints=["nvidia.com/gpu=present:NoSchedule"])
    assert created(pod(GPUS, tolerations=[ADDED]), tainted).unknown == ()


def test_a_limit_range_with_too_many_amounts_is_unknown() -> None:
    def amounts(count: int) -> Any:
        return {f"example.com/{number}": "1" for number in range(count)}

    assert created(pod(), limit_range(default=amounts(900))).unknown == ()
    unknown = "LimitRange limits, which has more than 1,000 amounts"
    assert created(pod(), limit_range(max={"cpu": "1"}, default=amounts(1000))).unknown == (unknown,)
