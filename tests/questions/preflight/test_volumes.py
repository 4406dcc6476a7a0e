"""Pods with volume claims: they start where their volumes are, or may be bound or provisioned."""

from typing import Any

import pytest

from rules_engine import ClusterObjects, load_manifests, load_rules, preflight
from rules_engine.questions.preflight.answer import WorkloadAnswer
from tests.support.api import GPU, api_object, node, pod

ZONE = "topology.kubernetes.io/zone"
NODES = [node(zone, {GPU: 4}, labels={ZONE: zone}) for zone in "abc"]


def claim(name: str = "data", **members: Any) -> Any:
    made = api_object("PersistentVolumeClaim", name, "ml", spec={"volumeName": f"pv-{name}"}, status={"phase": "Bound"})
    return made | members


def volume(name: str = "data", *zones: str, **spec: Any) -> Any:
    terms = [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]} for zone in zones]
    affinity = {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}} if zones else {}
    owner = {"namespace": "ml", "name": name}
    return api_object("PersistentVolume", f"pv-{name}", spec={"claimRef": owner, **affinity, **spec})


def with_claims(*names: str, gpus: int = 1, **spec: Any) -> Any:
    volumes = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in names]
    return pod("p", {GPU: gpus}, volumes=volumes, **spec)


def answer(manifest: Any, *objects: Any, nodes: Any = NODES, absent: str = "") -> WorkloadAnswer:
    own = {name: value for name, value in manifest["metadata"].items() if name != "uid"}
    kinds: dict[str, list[Any]] = {"Node": nodes, "Pod": []}
    for each in objects:
        kinds.setdefault(each["kind"], []).append(each)
    cluster = ClusterObjects(kinds, absent=frozenset({absent} - {""}))
    found = preflight(load_rules(["set:gpu-allocation"]), load_manifests([manifest | {"metadata": own}]), cluster)
    return found.workloads[0]


def test_a_pod_starts_where_its_bound_volumes_are() -> None:
    objects = [claim(), volume("data", "b", "c"), claim("logs"), volume("logs", "a", "c"), claim("nfs"), volume("nfs")]
    found = answer(with_claims("data", "logs", "nfs"), *objects)
    assert (found.verdict, found.starts, found.equal_nodes, found.unknown) == ("Starts", {"c": 1}, (), ())
    assert found.notices == ("not modelled: limits of volumes",)
    # With its own selector and affinity, too.
    assert answer(with_claims("data", nodeSelector={ZONE: "c"}), *objects).starts == {"c": 1}
    assert answer(with_claims("data", nodeSelector={ZONE: "a"}), *objects).verdict == "Never"


def test_where_a_bound_volume_is_is_evidence() -> None:
    (stopped,) = answer(with_claims("data"), claim(), volume("data", "z")).stopped
    assert stopped.finding is not None
    assert "the volume of claim data is on no node of the cluster" in stopped.finding.evidence


def test_a_pod_whose_zone_has_no_room_waits() -> None:
    busy = pod("busy", {GPU: 3}, on="b")
    found = answer(with_claims("data", gpus=2), claim(), volume("data", "b"), busy)
    (stopped,) = found.stopped
    assert (found.verdict, found.unknown) == ("Waits", ())
    affine = "2 node(s) didn't match PersistentVolume's node affinity"
    assert stopped.message == f"0/3 nodes are available: 1 Insufficient {GPU}, {affine}."
    assert stopped.finding is not None
    assert stopped.finding.reason == "GPUsAllocated"
    assert "excluded by its volumes: a and c" in stopped.finding.evidence
    # No other placement of the pod helps.
    assert [each.text for each in found.would_start] == [f"with 1 {GPU}", "after Pod ml/busy ends"]


def test_a_pod_evicts_others_only_where_its_volume_is() -> None:
    busy = [pod(f"busy-{zone}", {GPU: 4}, on=zone, priority=0) for zone in "abc"]
    found = answer(with_claims("data", priority=9), claim(), volume("data", "b"), *busy)
    assert (found.verdict, found.starts, found.evicted) == ("Starts", {"b": 1}, ("ml/busy-b",))


def test_a_pod_evicts_no_others_where_it_has_no_volume() -> None:
    busy = [pod(f"busy-{zone}", {GPU: 4}, on=zone, priority=0) for zone in "abc"]
    local = api_object("StorageClass", "local", provisioner="kubernetes.io/no-provisioner")
    local["volumeBindingMode"] = "WaitForFirstConsumer"
    unbound = claim(spec={"storageClassName": "local", "resources": {"requests": {"storage": "1Gi"}}}, status={})
    found = answer(with_claims("data", priority=9), unbound, local, *busy)
    assert (found.verdict, found.evicted) == ("Waits", ())
    assert found.stopped[0].message == f"0/3 nodes are available: 3 Insufficient {GPU}."


def test_a_claim_that_the_first_pod_binds_is_bound_for_the_others() -> None:
    local = api_object("StorageClass", "local", provisioner="kubernetes.io/no-provisioner")
    local["volumeBindingMode"] = "WaitForFirstConsumer"
    unbound = claim(spec={"storageClassName": "local", "resources": {"requests": {"storage": "1Gi"}}}, status={})
    free = volume("data", "b", claimRef=None, storageClassName="local", capacity={"storage": "1Gi"})
    free["status"] = {"phase": "Available"}
    template = {"spec": with_claims("data", gpus=4)["spec"]}
    job = api_object("Job", "train", "ml", spec={"parallelism": 2, "completions": 2, "template": template})
    found = answer(job, unbound, local, free)
    affine = "2 node(s) didn't match PersistentVolume's node affinity"
    assert (found.started, [each.message for each in found.stopped]) == (
        1,
        [f"0/3 nodes are available: 1 Insufficient {GPU}, {affine}."],
    )


def test_pods_of_the_cluster_wait_for_their_volumes() -> None:
    waiting = with_claims("data", gpus=4) | {"metadata": {"name": "old", "namespace": "ml"}}
    found = answer(pod("p", {GPU: 4}, nodeSelector={ZONE: "a"}), waiting, claim(), volume("data", "b"))
    assert (found.verdict, found.starts) == ("Starts", {"a": 1})


CLAIM_SPEC = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "10Gi"}}}
IMMEDIATE = "pod has unbound immediate PersistentVolumeClaims"
NO_VOLUME = "node(s) didn't find available persistent volumes to bind"
MANY_ZONES = "zone of volume claim ml/data, which is bound before the pod has a node"


def unbound(name: str = "data", storage_class: str | None = "local", **spec: Any) -> Any:
    own = {} if storage_class is None else {"storageClassName": storage_class}
    return api_object("PersistentVolumeClaim", name, "ml", spec=CLAIM_SPEC | own | spec, status={"phase": "Pending"})


def available(name: str, *zones: str, size: str = "10Gi", storage_class: str = "local", **members: Any) -> Any:
    made = volume(name, *zones, storageClassName=storage_class, capacity={"storage": size})
    spec = made["spec"] | {"accessModes": ["ReadWriteOnce"], "claimRef": None} | members.pop("spec", {})
    return made | {"spec": spec, "status": {"phase": "Available"}} | members


def storage_class(
    name: str, provisioner: str = "", *zones: str, mode: str = "WaitForFirstConsumer", **marks: str
) -> Any:
    topologies = [{"matchLabelExpressions": [{"key": ZONE, "values": [*zones]}]}] if zones else []
    annotations = {"storageclass.kubernetes.io/is-default-class": "true"} if "created" in marks else {}
    return api_object(
        "StorageClass",
        name,
        metadata={"annotations": annotations, "creationTimestamp": marks.get("created")},
        provisioner=provisioner or "kubernetes.io/no-provisioner",
        volumeBindingMode=mode,
        allowedTopologies=topologies,
    )


def stateful_set(replicas: int = 2, storage_class: str | None = "local", **spec: Any) -> Any:
    container = {"name": "c", "resources": {"limits": {GPU: 1}}}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container], **spec}}
    claims = [{"metadata": {"name": "data"}, "spec": unbound("data", storage_class)["spec"]}]
    members = {"replicas": replicas, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    return api_object("StatefulSet", "web", "ml", spec=members | {"volumeClaimTemplates": claims})


LOCAL, FAST = storage_class("local"), storage_class("fast", "csi.example.com")
AT_ONCE = storage_class("fast", "csi.example.com", mode="Immediate")


@pytest.mark.parametrize(
    ("objects", "reason"),
    [
        ([claim(status={"phase": "Pending"}), volume("data", "b")], "volume claim ml/data, which is not bound"),
        (
            [claim(), volume("data", claimRef={"name": "x", "namespace": "ml"})],
            "volume claim ml/data, whose PersistentVolume pv-data has the claimRef ml/x",
        ),
        (
            [claim(), volume("data", claimRef=None)],
            "volume claim ml/data, whose PersistentVolume pv-data has no claimRef",
        ),
        ([claim()], "volume of claim ml/data, which was not read"),
        ([unbound(storage_class="fast"), AT_ONCE], MANY_ZONES),
        ([unbound(), available("v", "a"), available("w", "b")], MANY_ZONES),
    ],
)
def test_a_claim_without_a_known_volume_is_unknown(objects: list[Any], reason: str) -> None:
    found = answer(with_claims("data", "logs"), *objects, claim("logs"), volume("logs", "a"))
    assert (found.verdict, found.starts, found.unknown) == ("Unknown", {"a": 1}, (reason,))
    assert answer(with_claims("data", gpus=9), *objects).verdict == "Never"


@pytest.mark.parametrize(
    ("absent", "reason"),
    [
        (
            "PersistentVolumeClaim",
            "volume claim data of the StatefulSet, which may exist already: persistentvolumeclaims were not read",
        ),
        ("StorageClass", "StorageClass local of volume claim data of the StatefulSet, which was not read"),
        ("PersistentVolume", "PersistentVolumes for volume claim data of the StatefulSet, which were not read"),
    ],
)
def test_what_was_not_read_of_claims_is_named(absent: str, reason: str) -> None:
    objects = [] if absent == "StorageClass" else [LOCAL]
    found = answer(stateful_set(), *objects, absent=absent)
    assert (found.verdict, found.started, found.unknown) == ("Unknown", 2, (reason,))
    default = answer(stateful_set(storage_class=None), *objects, absent="StorageClass")
    assert default.unknown == ("default class of volume claim data of the StatefulSet, which was not read",)
    assert answer(with_claims("data"), absent="PersistentVolumeClaim").unknown == (
        "volume claim ml/data, which was not read",
    )
    assert answer(stateful_set(0), absent=absent).unknown == ()


DELETING = {"name": "data", "namespace": "ml", "deletionTimestamp": "2026-01-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("objects", "message"),
    [
        ([], 'persistentvolumeclaim "data" not found'),
        ([claim(metadata=DELETING), volume("data", "b")], 'persistentvolumeclaim "data" is being deleted'),
        ([unbound(), LOCAL], f"3 {NO_VOLUME}"),
        ([unbound(storage_class="none")], IMMEDIATE),
        ([unbound(storage_class=""), FAST], IMMEDIATE),
        ([unbound(storage_class=None), available("v")], IMMEDIATE),
        ([unbound(), storage_class("local", mode="Immediate")], IMMEDIATE),
    ],
)
def test_a_claim_that_nothing_can_be_bound_to_lets_its_pod_wait(objects: list[Any], message: str) -> None:
    found = answer(with_claims("data"), *objects)
    (stopped,) = found.stopped
    assert (found.verdict, found.unknown, found.notices, found.would_start) == ("Waits", (), (), ())
    assert stopped.message == f"0/3 nodes are available: {message}."
    assert stopped.finding is not None
    expected = (
        ("VolumeOnOtherNodes", f": {message}") if message.endswith(NO_VOLUME) else ("UnboundVolumeClaims", ": data")
    )
    assert (stopped.finding.reason, stopped.finding.message[-len(expected[1]) :]) == expected


def test_a_claim_that_does_not_exist_comes_before_claims_that_are_not_bound() -> None:
    found = answer(with_claims("logs", "data"), unbound("logs", storage_class=""))
    assert found.stopped[0].message == '0/3 nodes are available: persistentvolumeclaim "data" not found.'


def test_a_claim_that_a_class_provisions_does_not_keep_its_pod_waiting() -> None:
    found = answer(stateful_set(4, "fast"), FAST)
    assert (found.verdict, found.started, len(found.starts), found.unknown) == ("Starts", 4, 3, ())
    assert found.notices == ("not modelled: limits of volumes", "StorageClass fast has to provision volume data")
    # In the topologies of its class.
    found = answer(stateful_set(5, "fast"), storage_class("fast", "csi.example.com", "b"))
    (stopped,) = found.stopped
    assert (found.verdict, found.starts, stopped.pods) == ("Waits", {"b": 4}, 1)
    assert stopped.message == f"0/3 nodes are available: 1 Insufficient {GPU}, 2 {NO_VOLUME}."
    # Of default classes, the newest one counts.
    classes = [
        storage_class(name, f"{name}.io", created=f"202{name[-1]}-01-01T00:00:00Z") for name in ("x5", "x6", "x4")
    ]
    assert answer(stateful_set(1, None), *classes).notices[1:] == ("StorageClass x6 has to provision volume data",)
    scratch = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": unbound("", "fast")["spec"]}}}
    assert answer(pod("p", volumes=[scratch]), FAST).notices[1:] == (
        "StorageClass fast has to provision volume scratch",
    )


def test_a_volume_that_is_provisioned_before_its_pod_has_a_node_may_be_in_another_zone() -> None:
    one = [node(name, {GPU: 4}, labels={ZONE: "a"}) for name in "xy"]
    assert answer(stateful_set(1, "fast"), AT_ONCE, nodes=one).verdict == "Starts"
    assert answer(stateful_set(1, "fast"), AT_ONCE, nodes=[node("x", {GPU: 4})]).verdict == "Starts"
    found = answer(stateful_set(2, "fast"), AT_ONCE)
    reason = "zone of volume claim data of the StatefulSet, which is bound before the pod has a node"
    assert (found.verdict, found.unknown) == ("Unknown", (reason,))
    # So may the volume that the first of several pods gets.
    spec = {"replicas": 2, "selector": {"matchLabels": {"a": "b"}}}
    spec["template"] = {"metadata": {"labels": {"a": "b"}}, "spec": with_claims("data")["spec"]}
    deployment = api_object("Deployment", "web", "ml", spec=spec)
    found = answer(deployment, unbound(storage_class="fast"), FAST)
    reason = "zone of volume claim ml/data, which several pods have"
    assert (found.verdict, found.unknown) == ("Unknown", (reason,))
    assert answer(deployment, unbound(storage_class="fast"), FAST, nodes=one).verdict == "Starts"
    # A volume that exists has a known one.
    found = answer(deployment, unbound(), LOCAL, available("v", "c"))
    assert (found.verdict, found.starts) == ("Starts", {"c": 2})


def test_each_available_volume_is_bound_once() -> None:
    volumes = [available("v1", "a"), available("v2", "b", size="20Gi"), available("v3", "b", size="5Gi")]
    found = answer(stateful_set(3), LOCAL, *volumes)
    (stopped,) = found.stopped
    assert (found.verdict, found.starts, stopped.pods) == ("Waits", {"a": 1, "b": 1}, 1)
    assert stopped.message == f"0/3 nodes are available: 3 {NO_VOLUME}."
    assert [each.text for each in found.would_start] == ["with replicas: 2"]
    # Also before the pod has a node, and for claims of one pod: the smaller claim gets the smaller volume.
    manual = [available(f"v{number}", "c", storage_class="manual") for number in range(2)]
    found = answer(stateful_set(3, "manual"), *manual)
    assert (found.started, found.starts) == (2, {"c": 2})
    assert found.stopped[0].message == f"0/3 nodes are available: {IMMEDIATE}."
    assert answer(stateful_set(1, "manual", nodeSelector={ZONE: "a"}), *manual).stopped[0].message == (
        "0/3 nodes are available: 1 node(s) didn't match PersistentVolume's node affinity, "
        "2 node(s) didn't match Pod's node affinity/selector."
    )
    large = unbound("data", resources={"requests": {"storage": "15Gi"}})
    assert answer(with_claims("data", "logs"), large, unbound("logs"), LOCAL, *volumes).verdict == "Waits"
    both = [*volumes, available("v4", "b")]
    assert answer(with_claims("data", "logs"), large, unbound("logs"), LOCAL, *both).starts == {"b": 1}
    # Generic ephemeral volumes are claims of their own for each pod.
    scratch = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": unbound()["spec"]}}}
    spec = {"replicas": 3, "selector": {"matchLabels": {"a": "b"}}}
    spec["template"] = {"metadata": {"labels": {"a": "b"}}, "spec": pod("p", {GPU: 1}, volumes=[scratch])["spec"]}
    assert answer(api_object("Deployment", "web", "ml", spec=spec), LOCAL, *volumes).starts == {"a": 1, "b": 1}


@pytest.mark.parametrize(
    ("changed", "binds"),
    [
        ({}, True),
        ({"status": {"phase": "Released"}}, False),
        ({"metadata": {"name": "v", "deletionTimestamp": "2026-01-01T00:00:00Z"}}, False),
        ({"spec": {"claimRef": {"namespace": "ml", "name": "data"}}}, True),
        ({"spec": {"claimRef": {"namespace": "ml", "name": "other"}}}, False),
        ({"spec": {"storageClassName": "other"}}, False),
        ({"spec": {"volumeMode": "Filesystem"}}, True),
        ({"spec": {"volumeMode": "Block"}}, False),
        ({"spec": {"accessModes": ["ReadWriteMany"]}}, False),
        ({"spec": {"capacity": {"storage": "9Gi"}}}, False),
        ({"spec": {"capacity": {"storage": "much"}}}, False),
    ],
)
def test_a_volume_is_bound_to_a_claim_that_it_matches(changed: Any, binds: bool) -> None:
    found = answer(with_claims("data"), unbound(), LOCAL, available("v", **changed))
    assert found.verdict == ("Starts" if binds else "Waits")
    selected = unbound(selector={"matchLabels": {"disk": "ssd"}})
    labelled = available("v", metadata={"name": "v", "labels": {"disk": "ssd"}})
    assert answer(with_claims("data"), selected, LOCAL, labelled).verdict == "Starts"
    assert answer(with_claims("data"), selected, LOCAL, available("v")).verdict == "Waits"


def test_a_claim_that_exists_already_is_not_made_again() -> None:
    objects = [claim("data-web-0"), volume("data-web-0", "b"), available("v", "a")]
    found = answer(stateful_set(), LOCAL, *objects)
    assert (found.verdict, found.starts, found.unknown) == ("Starts", {"a": 1, "b": 1}, ())


def test_too_many_volumes_that_match_a_claim_are_not_looked_at() -> None:
    def found(count: int) -> WorkloadAnswer:
        volumes = [available(f"pv-{number}", "a") for number in range(count)]
        return answer(with_claims("data"), unbound(), storage_class("local"), *volumes)

    assert found(1000).verdict == "Starts"
    assert found(1001).unknown == ("volume claim ml/data, for which there are more than 1,000 volumes",)


def test_a_claim_for_one_pod_at_a_time_that_another_uses_is_unknown() -> None:
    user = pod("user", on="a", volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}])
    for mode, verdict in ("ReadWriteOncePod", "Unknown"), ("ReadWriteOnce", "Starts"):
        own = claim(spec={"volumeName": "pv-data", "accessModes": [mode]})
        found = answer(with_claims("data"), own, volume("data"), user)
        assert found.verdict == verdict
        text = "volume claim ml/data, which is for one pod at a time, and ml/user use it"
        assert (text in found.unknown) is (verdict == "Unknown")
