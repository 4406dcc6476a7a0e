"""Pods that real controllers and a real API server created equal ours, but for random parts.

`recorded_pods.json`: manifests, other objects, and the pods that they became; its `source` names the versions.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from rules_engine import load_manifests
from rules_engine.cluster.creation.controllers import with_ordinal
from rules_engine.cluster.creation.plugins import ApiServer
from rules_engine.model.kubernetes.cluster_objects import ClusterObjects

RECORDED = json.loads((Path(__file__).parent / "recorded_pods.json").read_text())
NAMES = {
    "db-0": ("StatefulSet", "db-0"),
    "db-1": ("StatefulSet", "db-1"),
    "lone": ("Pod", ""),
    "nightly": ("CronJob", ""),
    "old": ("ReplicaSet", ""),
    "older": ("ReplicationController", ""),
    "shards-0": ("Job", "shards-0"),
    "shards-1": ("Job", "shards-1"),
    "train": ("Job", ""),
    "web": ("Deployment", ""),
}
"""The kind of the manifest of each pod by the beginning of its name, and the pod's name with its ordinal."""

RANDOM = re.compile(
    r"(?<=kube-api-access-)\w{5}|(?<=web-)[bcdfghjklmnpqrstvwxz2456789]{9,10}|(?<=nightly-)[0-9]{8}|(?<=db-)\w{9,10}"
    r"|^[0-9a-f-]{36}$|^[bcdfghjklmnpqrstvwxz2456789]{9,10}$"
)


def without_random(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_random(member) for name, member in value.items() if name != "uid"}
    if isinstance(value, list):
        return [without_random(item) for item in value]
    return RANDOM.sub("*", value) if isinstance(value, str) else value


@pytest.mark.parametrize("start", NAMES)
def test_a_real_pod_equals_ours(start: str) -> None:
    (real,) = [pod for pod in RECORDED["pods"] if re.match(rf"{start}(-|$)", pod["metadata"]["name"])]
    kind, ordinal = NAMES[start]
    name = start.partition("-")[0]
    (raw,) = [each for each in RECORDED["manifests"] if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    (manifest,) = load_manifests([raw])
    kinds: dict[str, list[Any]] = {}
    for each in RECORDED["cluster"]:
        kinds.setdefault(each["kind"], []).append(each)
    submitted = manifest.submitted()
    server = ApiServer(ClusterObjects(kinds))
    mutated = server.mutate(with_ordinal(submitted, ordinal) if ordinal else submitted, "ml")
    stored = server.store(mutated, mutated.pod, "ml")
    assert (stored.refusal, stored.unknown) == ("", ())
    made: Any = without_random(stored.pod)
    expected = without_random(real)
    for metadata in (made["metadata"], expected["metadata"]):
        # Names that the API server generates, the request's namespace, and what kubectl adds.
        for member in ("name", "namespace", *(() if ordinal else ("generateName",))):
            metadata.pop(member, None)
        metadata.get("annotations", {}).pop("kubectl.kubernetes.io/last-applied-configuration", None)
    assert made == expected
