"""Pods with volume claims: those of bound volumes start where the volumes are, others are unknown."""

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


def answer(manifest: Any, *objects: Any) -> WorkloadAnswer:
    del manifest["metadata"]["uid"]
    kinds: dict[str, list[Any]] = {"Node": NODES, "Pod": []}
    for each in objects:
        kinds.setdefault(each["kind"], []).append(each)
    found = preflight(load_rules(["set:gpu-allocation"]), load_manifests([manifest]), ClusterObjects(kinds))
    return found.workloads[0]


def test_a_pod_starts_where_its_bound_volumes_are() -> None:
    objects = [claim(), volume("data", "b", "c"), claim("logs"), volume("logs", "a", "c"), claim("nfs"), volume("nfs")]
    found = answer(with_claims("data", "logs", "nfs"), *objects)
    assert (found.verdict, found.starts, found.equal_nodes, found.unknown) == ("Starts", {"c": 1}, (), ())
    assert found.notices == ("not modelled: limits of volumes",)
    # With its own selector and affinity, too.
    assert answer(with_claims("data", nodeSelector={ZONE: "c"}), *objects).starts == {"c": 1}
    assert answer(with_claims("data", nodeSelector={ZONE: "a"}), *objects).verdict == "Never"


def test_a_pod_whose_zone_has_no_room_waits() -> None:
    busy = pod("busy", {GPU: 3}, on="b")
    found = answer(with_claims("data", gpus=2), claim(), volume("data", "b"), busy)
    (stopped,) = found.stopped
    assert (found.verdict, found.unknown) == ("Waits", ())
    affine = "2 node(s) didn't match PersistentVolume's node affinity"
    assert stopped.message == f"0/3 nodes are available: 1 Insufficient {GPU}, {affine}."
    assert stopped.finding is not None
    assert affine in stopped.finding.message
    # No other placement of the pod helps.
    assert [each.text for each in found.would_start] == [f"with 1 {GPU}", "after Pod ml/busy ends"]


def test_a_pod_evicts_others_only_where_its_volume_is() -> None:
    busy = [pod(f"busy-{zone}", {GPU: 4}, on=zone, priority=0) for zone in "abc"]
    found = answer(with_claims("data", priority=9), claim(), volume("data", "b"), *busy)
    assert (found.verdict, found.starts, found.evicted) == ("Starts", {"b": 1}, ("ml/busy-b",))


def test_pods_of_the_cluster_wait_for_their_volumes() -> None:
    waiting = with_claims("data", gpus=4) | {"metadata": {"name": "old", "namespace": "ml"}}
    found = answer(pod("p", {GPU: 4}, nodeSelector={ZONE: "a"}), waiting, claim(), volume("data", "b"))
    assert (found.verdict, found.starts) == ("Starts", {"a": 1})


@pytest.mark.parametrize(
    ("objects", "reason"),
    [
        ([], "volume claim ml/data, which was not read"),
        ([volume("data", "b")], "volume claim ml/data, which was not read"),
        ([claim(status={"phase": "Pending"}), volume("data", "b")], "volume claim ml/data, which is not bound"),
        ([claim(spec={}), volume("data", "b")], "volume claim ml/data, which is not bound"),
        ([claim(), volume("data", claimRef={"name": "x"})], "volume claim ml/data, which is not bound"),
        ([claim(metadata={"name": "data", "namespace": "ml", "deletionTimestamp": "2026-01-01T00:00:00Z"})],
         "volume claim ml/data, which is being deleted"),
        ([claim()], "volume of claim ml/data, which was not read"),
    ],
)  # fmt: skip
def test_a_claim_without_a_known_volume_is_unknown(objects: list[Any], reason: str) -> None:
    found = answer(with_claims("data", "logs"), *objects, claim("logs"), volume("logs", "a"))
    assert (found.verdict, found.starts, found.unknown) == ("Unknown", {"a": 1}, (reason,))
    assert answer(with_claims("data", gpus=9), *objects).verdict == "Never"


def test_claims_that_controllers_make_are_unknown() -> None:
    scratch = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}
    reason = "volume claim of the ephemeral volume scratch, which does not exist yet"
    assert answer(pod("p", volumes=[scratch])).unknown == (reason,)
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c"}]}}
    spec = {"replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    spec["volumeClaimTemplates"] = [{"metadata": {"name": "data"}}]
    found = answer(api_object("StatefulSet", "web", "ml", spec=spec))
    reason = "volume claim data of the StatefulSet, which does not exist yet"
    assert (found.verdict, found.started, found.unknown) == ("Unknown", 2, (reason,))
    assert answer(api_object("StatefulSet", "web", "ml", spec=spec | {"replicas": 0})).unknown == ()
