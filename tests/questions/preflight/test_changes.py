"""Changes that preflight proposes: each, applied to the manifest, starts what it promised."""

import json
from pathlib import Path

import pytest
import yaml

from rules_engine import load_manifests
from rules_engine.questions.preflight.reading import read_inputs
from rules_engine.questions.preflight.state import ClusterState
from tests.questions.preflight.test_command import (
    CLUSTER,
    HIGH,
    LARGE,
    MIDDLE,
    RULES,
    SMALL,
    cluster_text,
    deployment,
    job,
    pod,
    pod_spec,
    text,
    workload,
)
from tests.questions.preflight.test_state import whole_state
from tests.support.api import GPU, Object, cluster, device, device_class, node, resource_claim, resource_slice
from tests.support.api import pod as api_pod
from tests.support.authoring import write
from tests.support.changed_manifests import change_pod
from tests.support.simulation import NO_RULES

HOST = "topologyKey: kubernetes.io/hostname"
OWN = "labelSelector: {matchLabels: {a: b}}"
APART = f"{{podAntiAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: [{{{HOST}, {OWN}}}]}}}}"
NEAR = APART.replace("podAntiAffinity", "podAffinity").replace("a: b", "app: x")
SPREAD = f"[{{maxSkew: 1, minDomains: 5, {HOST}, whenUnsatisfiable: DoNotSchedule, {OWN}}}]"
SIDE = f"{{name: side, image: i, resources: {{limits: {{{MIDDLE}: 2}}}}}}"
TWO = pod(f"{MIDDLE}: 4").replace("containers: [", f"containers: [{SIDE}, ")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(write(tmp_path, {"cluster.yaml": CLUSTER, "rules.yaml": RULES}))


def hosts(on: str) -> str:
    """Return a cluster whose nodes have the label of their host."""
    labeled = yaml.safe_load(on)
    for each in labeled["spec"]["nodes"]:
        each.setdefault("labels", {})["kubernetes.io/hostname"] = each["name"]
    return json.dumps(labeled)


HOG = f"{{metadata: {{name: hog, namespace: ml-batch}}, spec: {pod_spec(f'{MIDDLE}: 8', nodeName='gpu-3')}}}"
FULL = cluster_text(HIGH, pods=f"    - {HOG}\n")
"""The cluster with a pod that leaves no device on gpu-3, which has a taint."""


@pytest.mark.parametrize(
    ("manifest", "on", "expected"),
    [
        pytest.param(pod("cpu: 40"), CLUSTER, ["with requests.cpu: 32 in container main"], id="cpu"),
        pytest.param(pod("memory: 900Gi"), CLUSTER, ["with requests.memory: 256Gi in container main"], id="memory"),
        pytest.param(
            deployment("cpu: 1", 5, affinity=APART),
            hosts(CLUSTER),
            ["with preferred instead of required pod anti-affinity", "with replicas: 3"],
            id="anti-affinity",
        ),
        pytest.param(
            pod("cpu: 20", affinity=NEAR),
            hosts(CLUSTER),
            ["with preferred instead of required pod affinity"],
            id="near",
        ),
        pytest.param(
            deployment("cpu: 1", 5, topologySpreadConstraints=SPREAD),
            hosts(CLUSTER),
            ["with whenUnsatisfiable: ScheduleAnyway", "with replicas: 3"],
            id="spread",
        ),
        pytest.param(
            pod(f"{MIDDLE}: 4", nodeSelector="{kubernetes.io/hostname: gpu-1}"),
            hosts(cluster_text(HIGH)),
            ["with nodeSelector kubernetes.io/hostname: gpu-2", "with priorityClassName: high"],
            id="class",
        ),
        pytest.param(
            pod(f"{MIDDLE}: 8", priorityClassName="high"),
            FULL,
            ["with a toleration of dedicated=infer:NoSchedule"],
            id="preemption on a tainted node",
        ),
        pytest.param(
            pod(f"{MIDDLE}: 8, cpu: 40"),
            CLUSTER,
            ["with a toleration of dedicated=infer:NoSchedule and with requests.cpu: 32 in container main"],
            id="two",
        ),
        pytest.param(TWO, CLUSTER, [f"with 3 {MIDDLE} (side: 1, main: 2)"], id="containers"),
    ],
)
def test_each_change_starts_what_it_promises(manifest: str, on: str, expected: list[str]) -> None:
    found = workload(manifest, on=on, code=1)
    changes = {change["text"]: change for change in found["wouldStart"]}
    assert {*expected} <= {*changes}, changes.keys()
    assert found["tried"] == []
    for change in changes.values():
        changed, state = yaml.safe_load(manifest), yaml.safe_load(on)
        if change["kind"] == "Replicas":
            changed["spec"]["replicas"] = change["pods"]
        elif change["kind"] == "Ends":
            pods = state["spec"]["pods"]
            gone = [each for each in pods if f"ml-batch/{each['metadata']['name']}" in change["ends"]]
            state["spec"]["pods"] = [each for each in pods if each not in gone]
        else:
            change_pod(changed["spec"].get("template", changed)["spec"], change["text"])
        after = workload(json.dumps(changed), on=json.dumps(state))
        assert (after["verdict"], after["started"], after["evicted"]) == (
            "Starts",
            change["pods"],
            change["evicted"],
        ), change


def test_a_change_that_evicts_pods_names_them() -> None:
    manifest = pod(f"{MIDDLE}: 8", priorityClassName="high")
    line = "would start: 1 of 1 with a toleration of dedicated=infer:NoSchedule, evicts ml-batch/hog"
    assert line in text(manifest, on=FULL, code=1)


def test_of_many_needs_those_come_first_on_which_the_most_pods_fit() -> None:
    nodes = [(f"a{number}", [f"a{number}"], 1) for number in range(5)] + [("b", ["b", "c"], 9)]
    on = yaml.safe_load(CLUSTER)
    for name, keys, devices in nodes:
        taints = [{"key": key, "effect": "NoSchedule"} for key in keys]
        allocatable = {"cpu": 32, "memory": "256Gi", "pods": 110, MIDDLE: devices}
        on["spec"]["nodes"].append({"name": name, "taints": taints, "allocatable": allocatable})
    found = workload(job(f"{MIDDLE}: 1", count=15), on=json.dumps(on), code=1)
    assert [change["text"] for change in found["wouldStart"] if change["kind"] == "Nodes"] == [
        "with a toleration of b:NoSchedule and a toleration of c:NoSchedule"
    ]


def test_where_nothing_helps_the_answer_says_what_was_tried() -> None:
    manifest = pod(f"{MIDDLE}: 4", nodeName="cpu-1")
    found = workload(manifest, on=cluster_text(HIGH), code=1)
    tried = [
        f"with 4 {SMALL}",
        f"with 4 {LARGE}",
        f"with 1 {MIDDLE}",
        "with priorityClassName: high",
        "3 pairs of these",
    ]
    assert (found["wouldStart"], found["tried"]) == ([], tried)
    line = f"    would start: with none of the changes that were tried: {'; '.join(tried)}\n"
    assert line in text(manifest, on=cluster_text(HIGH), code=1)


def holder(name: str, device: str, priority: int = 0) -> list[Object]:
    """Return a pod with a device of a driver on node a, and its claim."""
    status = {"extendedResourceClaimStatus": {"resourceClaimName": f"{name}-gpu"}}
    claim = resource_claim(f"{name}-gpu", device, reserved=name, extended=True)
    return [api_pod(name, {GPU: 1}, on="a", status=status, priority=priority), claim]


DRIVERS = [
    node("a"),
    device_class("gpu", GPU, "gpu"),
    resource_slice("a", *[device(f"gpu-{number}") for number in range(3)]),
    *holder("first", "gpu-0"),
    *holder("second", "gpu-1", priority=5),
    *holder("third", "gpu-2"),
    yaml.safe_load(HIGH),
]


def test_pods_that_hold_devices_of_drivers_may_end() -> None:
    manifest, on = pod(f"{GPU}: 1", priorityClassName="high"), {"kind": "List", "apiVersion": "v1", "items": DRIVERS}
    found = workload(manifest, on=json.dumps(on), code=1)
    assert [change["ends"] for change in found["wouldStart"]] == [["ml/third"]]
    left = [each for each in DRIVERS if each["metadata"]["name"] not in ("third", "third-gpu")]
    assert workload(manifest, on=json.dumps({**on, "items": left}))["verdict"] == "Starts"


def test_the_search_for_pods_to_end_leaves_no_trace() -> None:
    manifests = load_manifests([yaml.safe_load(pod(f"{GPU}: 2", priorityClassName="high"))])
    simulation, workloads, _ = read_inputs(manifests, cluster(*DRIVERS), name="cluster", namespace="")
    state = ClusterState(simulation, NO_RULES)
    before = whole_state(state)
    with state.simulated([workloads[0].arrival], ending=0) as plays:
        assert plays[0][0].victims == ("ml/first", "ml/third")
    assert whole_state(state) == before
