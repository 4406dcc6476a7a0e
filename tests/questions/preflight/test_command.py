"""The command `preflight`."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from rules_engine.cluster.scheduling import cycle
from rules_engine.cluster.scheduling.filters import devices as filters
from tests.support.authoring import cli, injection, ladder, validation, write
from tests.support.programs import ROOT

LARGE, MIDDLE, SMALL = (f"nvidia.com/mig-{profile}" for profile in ("3g.40gb", "2g.20gb", "1g.10gb"))
NODE = "cpu: 32, memory: 256Gi, pods: 110"
CLUSTER = f"""\
apiVersion: gpurules.io/v1
kind: ClusterInventory
metadata: {{name: mig}}
spec:
  nodes:
    - {{name: gpu-1, allocatable: {{{NODE}, {MIDDLE}: 4, {SMALL}: 8}}}}
    - {{name: gpu-2, allocatable: {{{NODE}, {MIDDLE}: 4}}}}
    - name: gpu-3
      taints: [{{key: dedicated, value: infer, effect: NoSchedule}}]
      allocatable: {{{NODE}, {MIDDLE}: 8}}
    - {{name: cpu-1, allocatable: {{{NODE}}}}}
  pods:
    - metadata: {{name: eval-3, namespace: ml-batch}}
      spec: {{nodeName: gpu-1, containers: [{{name: main, resources: {{limits: {{{MIDDLE}: 2}}}}}}]}}
  namespaces: {{ml: {{}}}}
"""
RULES = ladder("a100", LARGE, MIDDLE, SMALL)


def pod_spec(limits: str, **fields: str) -> str:
    members = "".join(f"{name}: {value}, " for name, value in fields.items())
    return f"{{{members}containers: [{{name: main, image: i, resources: {{limits: {{{limits}}}}}}}]}}"


def pod(limits: str, name: str = "one", **fields: str) -> str:
    metadata = f"{{name: {name}, namespace: ml}}"
    return f"{{apiVersion: v1, kind: Pod, metadata: {metadata}, spec: {pod_spec(limits, **fields)}}}\n"


def job(limits: str, count: int = 8, labels: str = "{}", **fields: str) -> str:
    spec = f"{{parallelism: {count}, completions: {count}, template: {{spec: {pod_spec(limits, **fields)}}}}}"
    metadata = f"{{name: train, namespace: ml, labels: {labels}}}"
    return f"{{apiVersion: batch/v1, kind: Job, metadata: {metadata}, spec: {spec}}}\n"


def deployment(limits: str, count: int = 2, **fields: str) -> str:
    template = f"{{metadata: {{labels: {{a: b}}}}, spec: {pod_spec(limits, **fields)}}}"
    spec = f"{{replicas: {count}, selector: {{matchLabels: {{a: b}}}}, template: {template}}}"
    return f"{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: web, namespace: ml}}, spec: {spec}}}\n"


def cluster_text(*objects: str, pods: str = "") -> str:
    """Return the cluster with further objects."""
    lines = "".join(f"    - {each}\n" for each in objects)
    text = CLUSTER.replace("  namespaces:", f"{pods}  namespaces:")
    return f"{text}  objects:\n{lines}" if objects else text


def quota(name: str = "gpus", hard: str = f"{{requests.{MIDDLE}: 6}}", **status: str) -> str:
    lines = "".join(f", status: {{{', '.join(f'{key}: {value}' for key, value in status.items())}}}" if status else "")
    return f"{{kind: ResourceQuota, metadata: {{name: {name}, namespace: ml}}, spec: {{hard: {hard}}}{lines}}}"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(write(tmp_path, {"cluster.yaml": CLUSTER, "rules.yaml": RULES}))
    return tmp_path


def answer(manifest: str, *arguments: str, on: str = CLUSTER, rules: str = RULES, code: int = 0) -> Any:
    """Return the JSON for a manifest."""
    write(Path(), {"manifest.yaml": manifest, "cluster.yaml": on, "rules.yaml": rules})
    line = ("-f", "manifest.yaml", "--cluster", "cluster.yaml", "--rules", "rules.yaml", "-o", "json", *arguments)
    result = cli("preflight", *line)
    assert (result.exit_code, result.stderr) == (code, ""), result.stdout
    return json.loads(result.stdout)


def workload(manifest: str, *arguments: str, **fields: Any) -> Any:
    (only,) = answer(manifest, *arguments, **fields)["workloads"]
    return only


def text(manifest: str, *arguments: str, on: str = CLUSTER, code: int = 0) -> str:
    write(Path(), {"manifest.yaml": manifest, "cluster.yaml": on})
    line = ("-f", "manifest.yaml", "--cluster", "cluster.yaml", "--rules", "rules.yaml", *arguments)
    result = cli("preflight", *line)
    assert (result.exit_code, result.stderr) == (code, "")
    return result.stdout


def test_pods_that_all_start() -> None:
    assert text(pod(f"{MIDDLE}: 1")).splitlines()[5:] == [
        "  Pod ml/one  starts: 1 of 1 pod starts now",
        "    starts: gpu-1 (or equal nodes: gpu-2)",
    ]
    found = workload(deployment("cpu: 1", count=3))
    assert (found["verdict"], found["started"], found["stopped"], found["wouldStart"]) == ("Starts", 3, [], [])


def test_preemption_names_who_is_evicted() -> None:
    high = "{kind: PriorityClass, metadata: {name: high}, value: 1000}"
    found = workload(job(f"{MIDDLE}: 1", priorityClassName="high"), on=cluster_text(high))
    assert (found["verdict"], found["started"], found["evicted"]) == ("Starts", 8, ["ml-batch/eval-3"])
    assert "    evicts: 1 pod: ml-batch/eval-3\n" in text(
        job(f"{MIDDLE}: 1", priorityClassName="high"), on=cluster_text(high)
    )


def test_pods_that_no_node_could_hold_never_start() -> None:
    found = workload(pod(f"{MIDDLE}: 9"), "--fail-on", "never", code=1)
    (stopped,) = found["stopped"]
    assert (found["verdict"], stopped["verdict"]) == ("Never", "Never")
    assert [change["text"] for change in found["wouldStart"]] == ["with 4 nvidia.com/mig-2g.20gb"]
    assert "never: 1 pod: no node that exists could hold it: 0/4" in text(pod(f"{MIDDLE}: 9"), code=1)


STATES = (
    "unschedulable: true",
    "ready: false",
    *(
        f"taints: [{{key: {key}, effect: {effect}}}]"
        for key, effect in (
            ("node.kubernetes.io/disk-pressure", "NoSchedule"),
            ("ToBeDeletedByClusterAutoscaler", "NoSchedule"),
            ("ebs.csi.aws.com/agent-not-ready", "NoExecute"),
        )
    ),
)


@pytest.mark.parametrize("state", STATES)
def test_nodes_in_a_state_that_ends_could_hold_pods(state: str) -> None:
    on = CLUSTER.replace("{name: gpu-2,", f"{{name: gpu-2, {state},").replace(
        "{name: gpu-1,", f"{{name: gpu-1, {state},"
    )
    found = workload(pod(f"{MIDDLE}: 1"), on=on, code=1)
    assert found["verdict"] == "Waits"
    # A toleration of the state of a node is never proposed.
    assert [change["text"] for change in found["wouldStart"]] == ["with a toleration of dedicated=infer:NoSchedule"]
    assert answer(pod(f"{MIDDLE}: 1"), "--fail-on", "never", on=on)["workloads"][0]["verdict"] == "Waits"


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
NEAR_X = "{topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: x}}}"
NEAR = f"{{podAffinity: {{{REQUIRED}: [{NEAR_X}]}}}}"
VOLUME_A = "[{name: data, persistentVolumeClaim: {claimName: a}}]"


def test_pods_with_affinity_wait_for_other_pods() -> None:
    assert workload(pod("cpu: 1", affinity=NEAR), code=1)["verdict"] == "Waits"


def declared(allocatable: str) -> str:
    """Return the cluster with a node that an autoscaler may add."""
    pool = f"    - {{name: pool, count: 0, scalable: true, allocatable: {{{NODE}, {allocatable}}}}}\n  pods:"
    return CLUSTER.replace("  pods:", pool)


MAY_DECLARE = "an autoscaler may add such a node (declared nodes): the input does not limit their number"


def test_whether_declared_nodes_are_added_is_unknown() -> None:
    keep = validation("keep", "'true'")
    found = workload(pod(f"{LARGE}: 1"), on=declared(f"{LARGE}: 4"), rules=keep, code=3)
    assert (found["verdict"], found["unknown"], found["started"]) == ("Unknown", [MAY_DECLARE], 0)
    assert found["stopped"][0]["message"].startswith("0/4 nodes are available: ")
    # A declared node that could not hold the pod starts nothing, whether a node that exists could hold it or not.
    assert workload(pod(f"{LARGE}: 5"), on=declared(f"{LARGE}: 4"), rules=keep, code=1)["verdict"] == "Never"
    assert workload(job(f"{MIDDLE}: 4", count=2), on=declared(f"{MIDDLE}: 2"), rules=keep, code=1)["verdict"] == "Waits"


NODE_POOL = "{kind: NodePool, apiVersion: karpenter.sh/v1, metadata: {name: gpu}}"
MAY_ADD = (
    "an autoscaler may add such a node (NodePool gpu): NodeClasses and the instance types of the cloud were not read"
)


@pytest.mark.parametrize(
    ("limits", "changes"),
    [
        (f"{MIDDLE}: 4", {"Rung", "Nodes", "Devices", "Ends"}),
        (f"{MIDDLE}: 9", {"Devices"}),
        ("nvidia.com/gpu: 1", set()),
    ],
)
def test_what_a_new_node_would_cure_is_unknown(limits: str, changes: set[str]) -> None:
    taken = f"    - metadata: {{name: hog, namespace: ml}}\n      spec: {pod_spec(f'{MIDDLE}: 4', nodeName='gpu-2')}\n"
    found = workload(pod(limits), on=cluster_text(NODE_POOL, pods=taken), code=3)
    assert (found["verdict"], found["unknown"]) == ("Unknown", [MAY_ADD])
    (stopped,) = found["stopped"]
    assert (stopped["verdict"], stopped["message"][:25]) == ("Unknown", "0/4 nodes are available: ")
    assert stopped["finding"]["reason"]
    assert {change["kind"] for change in found["wouldStart"]} == changes
    lines = text(pod(limits), on=cluster_text(NODE_POOL, pods=taken), code=3).splitlines()
    assert "  Pod ml/one  unknown: 0 of 1 pod starts now, 1 unknown" in lines
    assert f"    unknown: {MAY_ADD}" in lines
    assert any(line.startswith("    else: 1 pod: 0/4 nodes are available: ") for line in lines)
    assert any(line.startswith("    would start: ") for line in lines) is bool(found["wouldStart"] or found["tried"])


def test_what_is_unknown_is_no_evidence_again() -> None:
    shown = text(pod(f"{LARGE}: 9"), on=cluster_text(NODE_POOL), code=3)
    assert shown.count(MAY_ADD) == 1


def test_a_pod_whose_scheduler_a_webhook_may_set_is_unknown() -> None:
    found = workload(pod("nvidia.com/gpumem: 1"), code=3)
    assert (found["verdict"], found["unknown"]) == ("Unknown", ["whether a webhook sets schedulerName: hami-scheduler"])
    assert found["stopped"][0]["finding"]["reason"] == "SchedulerNameMissing"


ON_CPU_1 = "{nodeSelectorTerms: [{matchFields: [{key: metadata.name, operator: In, values: [cpu-1]}]}]}"


@pytest.mark.parametrize(
    ("manifest", "verdict"),
    [
        (pod("cpu: 1", volumes=VOLUME_A), "Waits"),  # the claim does not exist
        (pod("cpu: 1", affinity=NEAR), "Waits"),
        (pod("cpu: 99", affinity=f"{{nodeAffinity: {{{REQUIRED}: {ON_CPU_1}}}}}"), "Never"),
        (pod("cpu: 1", "quota"), "Refused"),
    ],
)
def test_what_no_new_node_would_cure_stays(manifest: str, verdict: str) -> None:
    objects = [NODE_POOL, "{kind: PersistentVolumeClaim, metadata: {name: other, namespace: ml}}"]
    objects += [quota(hard="{pods: 0}")] if verdict == "Refused" else []
    found = workload(manifest, on=cluster_text(*objects), code=1)
    assert (found["verdict"], found["unknown"]) == (verdict, [])


def test_pods_that_compare_too_much_are_not_left_to_an_autoscaler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cycle, "COMPARISONS", 0)
    assert workload(pod("cpu: 1", affinity=NEAR), on=cluster_text(NODE_POOL), code=1)["verdict"] == "Waits"


def test_the_same_workload_without_nodes_may_get_one() -> None:
    on = f"{CLUSTER[: CLUSTER.index('  nodes:')]}  nodes: []\n  namespaces: {{ml: {{}}}}\n  objects: [{NODE_POOL}]\n"
    assert workload(pod("cpu: 1"), on=on, code=3)["unknown"] == [MAY_ADD]


def test_denied_pods_name_the_rule() -> None:
    rules = validation("none", "object.metadata.name != 'one'", optOut="Forbidden")
    found = workload(pod(f"{MIDDLE}: 1"), "--fail-on", "never", rules=rules, code=1)
    (stopped,) = found["stopped"]
    assert (found["verdict"], stopped["pods"], stopped["finding"]) == ("Denied", 1, None)
    assert "Validation/none" in stopped["message"]
    rules = validation("few", f"string(object.spec.containers[0].resources.limits['{MIDDLE}']) != '4'")
    assert workload(pod(f"{MIDDLE}: 4"), rules=rules, code=1)["wouldStart"] == []


def test_an_unknown_priority_class_is_refused() -> None:
    high = "{kind: PriorityClass, metadata: {name: high}, value: 1000}"
    found = workload(pod("cpu: 1", priorityClassName="gold"), on=cluster_text(high), code=1)
    (stopped,) = found["stopped"]
    assert (stopped["verdict"], stopped["pods"], stopped["finding"]) == ("Refused", 1, None)
    assert stopped["message"] == "no PriorityClass with name gold was found"
    assert found["notices"] == []
    # A cluster without any was not read for them.
    unread = workload(pod("cpu: 1", priorityClassName="gold"), code=3)
    reason = "PriorityClass gold, which was not read: the pods count with priority 0"
    assert (unread["verdict"], unread["unknown"]) == ("Unknown", [reason])


def test_a_quota_refuses_the_pods_beyond_it() -> None:
    on = cluster_text(quota(hard=f"{{requests.{MIDDLE}: 6}}", used=f"{{requests.{MIDDLE}: 3}}"))
    found = workload(job(f"{MIDDLE}: 1", count=5), on=on, code=1)
    (stopped,) = found["stopped"]
    assert (found["started"], stopped["verdict"], stopped["pods"]) == (3, "Refused", 2)
    assert stopped["message"] == (
        f"exceeded quota: gpus, requested: requests.{MIDDLE}=1, used: requests.{MIDDLE}=6, limited: requests.{MIDDLE}=6"
    )
    assert [(change["kind"], change["pods"]) for change in found["wouldStart"]] == [("Rung", 5), ("Replicas", 3)]
    shown = text(job(f"{MIDDLE}: 1", count=5), on=on, code=1)
    assert (
        "refused: the API server creates the Job and refuses 2 pods of its controller: exceeded quota: gpus," in shown
    )


def test_a_workload_is_refused_for_its_template() -> None:
    below = job("cpu: 2}, requests: {cpu: 2", resources="{requests: {cpu: 1}}")
    assert "refused: the API server refuses the Job: spec.template.spec.resources.requests[cpu]:" in text(below, code=1)


def test_what_is_not_checked_is_named() -> None:
    found = workload(pod("cpu: 1"), on=cluster_text(quota(hard="{services: 1, pods: 9}")))
    assert found["notices"] == ["not checked: services of ResourceQuota gpus"]


@pytest.mark.parametrize(
    ("manifest", "condition"),
    [
        (pod("cpu: 1", schedulingGates="[{name: example.com/g}]"), "scheduling gate example.com/g is removed"),
        (job("cpu: 1").replace("spec: {", "spec: {suspend: true, ", 1), "it is resumed (suspend: true)"),
        (
            job("cpu: 1", labels="{kueue.x-k8s.io/queue-name: a}"),
            "Kueue admits it (label kueue.x-k8s.io/queue-name: a)",
        ),
        (
            job("cpu: 1", labels="{kai.scheduler/queue: a}").replace(
                "template: {", "template: {metadata: {labels: {kai.scheduler/queue: b}}, "
            ),
            "KAI Scheduler admits it (label kai.scheduler/queue: a)",
        ),
    ],
)
def test_what_is_known_to_decide_first_is_a_condition(manifest: str, condition: str) -> None:
    found = workload(manifest)
    assert (found["once"], found["verdict"]) == ([condition], "Starts")
    shown = text(manifest)
    assert f"starts, once {condition}: " in shown
    assert "then\n" in shown


CLAIMS = "[{name: gpu, resourceClaimTemplateName: a}]"
VOLUMES = "[{name: data, persistentVolumeClaim: {claimName: a}}]"


@pytest.mark.parametrize(
    ("manifest", "reason"),
    [
        (pod("cpu: 1", schedulerName="volcano"), "scheduler volcano"),
        (pod("cpu: 1", resourceClaims=CLAIMS), "resourceclaimtemplate ml/a, which was not read"),
        (pod("cpu: 1", schedulingGroup="{podGroupName: a}"), "scheduling groups"),
        (pod("cpu: 1", volumes=VOLUMES), "volume claim ml/a, which was not read"),
        (
            f"{{apiVersion: x.io/v1, kind: Foo, metadata: {{name: x}}, spec: {{a: {{spec: {pod_spec('cpu: 1')}}}}}}}\n",
            "the number of pods: 1 assumed (Foo is no known kind of workload)",
        ),
    ],
)
def test_what_could_prevent_the_start_makes_the_verdict_unknown(manifest: str, reason: str) -> None:
    found = answer(manifest, code=3)
    assert (found["verdict"], found["workloads"][0]["unknown"]) == ("Unknown", [reason])
    write(Path(), {"manifest.yaml": manifest})
    shown = cli("preflight", "-f", "manifest.yaml", "--cluster", "cluster.yaml").stdout
    assert "unknown: 1 of 1 pod starts now\n" in shown
    assert f"    unknown: {reason}\n" in shown
    # A pod that cannot start is saved by another scheduler only; of several workloads, the worst decides.
    large, other = manifest.replace("cpu: 1", "cpu: 99"), reason == "scheduler volcano"
    assert answer(large, code=3 if other else 1)["verdict"] == ("Unknown" if other else "Never")
    assert answer(f"{manifest}---\n{pod('cpu: 99', 'large')}", code=1)["verdict"] == "Never"


@pytest.mark.parametrize("beside", ["", pod("cpu: 1")])
def test_an_object_that_names_gpus_and_has_no_pods_makes_the_verdict_unknown(beside: str) -> None:
    lone = (
        "{apiVersion: x.io/v1, kind: Foo, metadata: {name: x, namespace: ml}, spec: {resources: {nvidia.com/gpu: 1}}}\n"
    )
    found = answer(f"{beside}---\n{lone}" if beside else lone, code=3)
    message = "pods of Foo/x unknown: it names nvidia.com/gpu, and Foo is no known kind of workload"
    assert (found["verdict"], found["problems"][-1]["message"]) == ("Unknown", message)
    assert [problem["code"] for problem in found["problems"]] == ["unknown-pods"]
    assert answer(f"{pod('cpu: 99')}---\n{lone}", code=1)["verdict"] == "Never"


POLICY = (
    "{kind: ValidatingAdmissionPolicy, metadata: {name: p}, spec: {validations: [{expression: request.options != 1}]}}",
    "{kind: ValidatingAdmissionPolicyBinding, metadata: {name: b}, spec: {policyName: p, validationActions: [Deny]}}",
)
PINNED = (
    "{kind: Namespace, metadata: {name: old, labels: {pod-security.kubernetes.io/enforce: baseline, "
    "pod-security.kubernetes.io/enforce-version: v1.24}}}"
)
EXISTING = "{kind: Job, metadata: {name: train, namespace: ml}}"
TERM = "{topologyKey: kubernetes.io/hostname, namespaceSelector: {matchLabels: {a: b}}}"
APART = f"{{podAntiAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: [{TERM}]}}}}"
FOO_SPEC = f"{{a: {{spec: {pod_spec('cpu: 1')}}}}}"
FOO = f"{{apiVersion: x.io/v1, kind: Foo, metadata: {{name: x, namespace: ml}}, spec: {FOO_SPEC}}}\n"
NO_POD = (
    "{apiVersion: x.io/v1, kind: Foo, metadata: {name: y, namespace: ml}, spec: {resources: {nvidia.com/gpu: 1}}}\n"
)
RAY = (
    "{apiVersion: ray.io/v1, kind: RayCluster, metadata: {name: r, namespace: ml}, "
    "spec: {enableInTreeAutoscaling: true, "
    f"headGroupSpec: {{template: {{spec: {pod_spec('cpu: 1')}}}}}, "
    f"workerGroupSpecs: [{{groupName: w, maxReplicas: 9, template: {{spec: {pod_spec('cpu: 1')}}}}}]}}}}\n"
)
TRAIN_JOB = (
    "{apiVersion: trainer.kubeflow.org/v1alpha1, kind: TrainJob, metadata: {name: t, namespace: ml}, "
    "spec: {runtimeRef: {name: torch}}}\n"
)
NODES_ONLY = f"{{kind: List, items: [{{kind: Node, metadata: {{name: lone}}, status: {{allocatable: {{{NODE}}}}}}}]}}\n"
CAPTURE = "{annotations: {gpurules.io/captured: '2026-11-28T12:00:00Z'}}"
NO_NODES = f"{{kind: List, metadata: {CAPTURE}, items: [{{kind: PodList, items: []}}]}}\n"
BOUND = (
    "{kind: PersistentVolumeClaim, metadata: {name: a, namespace: ml}, spec: {volumeName: v}, status: {phase: Bound}}",
    "{kind: PersistentVolume, metadata: {name: v}, spec: {claimRef: {name: a, namespace: ml}}}",
)
TAINTED_NODE = (
    "{kind: Node, metadata: {name: gke}, spec: {taints: [{key: nvidia.com/gpu, effect: NoSchedule}]}, "
    f"status: {{conditions: [{{type: Ready, status: 'True'}}], allocatable: {{{NODE}, nvidia.com/gpu: 1}}}}}}"
)
OPEN_NODE = TAINTED_NODE.replace("name: gke", "name: open").replace("[{key: nvidia.com/gpu, effect: NoSchedule}]", "[]")
LIMIT_RANGES = tuple(
    f"{{kind: LimitRange, metadata: {{name: {name}, namespace: ml}}, "
    f"spec: {{limits: [{{type: Container, default: {{memory: {amount}}}}}]}}}}"
    for name, amount in (("one", "1Gi"), ("two", "2Gi"))
)
PROVISIONED = (
    "{kind: PersistentVolumeClaim, metadata: {name: a, namespace: ml}, spec: {storageClassName: fast}}",
    "{kind: StorageClass, metadata: {name: fast}, provisioner: csi.example.com}",
)
CONFIGURED = """\
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: a, namespace: ml}
spec: {spec: {devices: {requests: [], config: [{opaque: {driver: gpu.nvidia.com, parameters: {}}}]}}}
"""
FACTS = {
    "a pod template in a kind that": (FOO, ()),
    "an object without pod templates": (NO_POD, ()),
    "a number of pods that the object": (RAY, ()),
    "an object that a workload refers to": (TRAIN_JOB, ()),
    "a scheduler other than": (pod("cpu: 1", schedulerName="volcano"), ()),
    "whether a webhook sets": (pod("nvidia.com/gpumem: 1"), ()),
    "a volume claim, its StorageClass": (pod("cpu: 1", volumes=VOLUMES), ()),
    "a volume claim whose volume exists": (pod("cpu: 1", volumes=VOLUMES), BOUND),
    "a volume claim whose volume a": (pod("cpu: 1", volumes=VOLUMES), PROVISIONED),
    "a claim, or its template": (pod("cpu: 1", resourceClaims=CLAIMS), ()),
    "what a driver decides": (f"{CONFIGURED}---\n{pod('cpu: 1', resourceClaims=CLAIMS)}", ()),
    "a scheduling group": (pod("cpu: 1", schedulingGroup="{podGroupName: a}"), ()),
    "a PriorityClass, RuntimeClass": (pod("cpu: 1", priorityClassName="gold"), ()),
    "whether the admission plugin": (pod("nvidia.com/gpu: 1"), (TAINTED_NODE,)),
    "whether that plugin is on": (pod("nvidia.com/gpu: 1"), (TAINTED_NODE, OPEN_NODE)),
    "an amount that several LimitRanges": (pod("cpu: 1"), LIMIT_RANGES),
    "a `namespaceSelector`": (pod("cpu: 1", affinity=APART), ("no namespaces",)),
    "nodes that were not read": (pod("cpu: 1"), ("no nodes",)),
    "features that nodes declare": (pod("cpu: 1", hostUsers="false", hostNetwork="true"), ()),
    "a label of Kueue": (job("cpu: 1", labels="{kueue.x-k8s.io/queue-name: a}"), ()),
    "a scheduling gate": (pod("cpu: 1", schedulingGates="[{name: example.com/g}]"), ()),
    "`suspend: true`": (job("cpu: 1").replace("spec: {", "spec: {suspend: true, ", 1), ()),
    "another controller in": (RAY.replace("enableInTreeAutoscaling: true", "managedBy: x.io/other"), ()),
    "a ValidatingAdmissionPolicy that": (pod("cpu: 1"), POLICY),
    "Pod Security pinned": (pod("cpu: 1").replace("namespace: ml", "namespace: old"), (PINNED,)),
    "a MutatingAdmissionPolicy that": (pod("cpu: 1"), tuple(text.replace("Validating", "Mutating") for text in POLICY)),
    "an amount of a ResourceQuota": (pod("cpu: 1"), (quota("q", "{persistentvolumeclaims: 1}"),)),
    "`spec.nodeName`": (pod("cpu: 1", nodeName="cpu-1"), ()),
    "limits of volumes": (pod("cpu: 1", volumes="[{name: v, csi: {driver: d}}]"), ()),
    "a workload of this name": (job("cpu: 1"), (EXISTING,)),
    "a namespace that the cluster": (pod("cpu: 1").replace("namespace: ml", "namespace: nope"), ()),
    "webhooks of others": (pod("cpu: 1"), ()),
    "nodes that an autoscaler may add": (pod(f"{LARGE}: 9"), (NODE_POOL,)),
    "a pod that never starts": (pod("cpu: 99", resourceClaims=CLAIMS), ()),
}
"""A manifest, and objects of its cluster, for each row of the table of docs/reference/unknown.md."""


def test_the_table_of_what_is_unknown_is_true_row_by_row() -> None:
    page = (ROOT / "docs/reference/unknown.md").read_text()
    rows = dict(re.findall(r"^\| (.+?) \| (unknown|starts, once|a line|nothing) \|$", page, re.MULTILINE))
    assert len(rows) == len(FACTS)
    for fact, effect in rows.items():
        ((manifest, objects),) = [case for start, case in FACTS.items() if fact.startswith(start)]
        on = {"no namespaces": NODES_ONLY, "no nodes": NO_NODES}.get("".join(objects)) or cluster_text(*objects)
        never = "cpu: 99" in manifest
        found = answer(manifest, on=on, code=1 if never else 3 if effect == "unknown" else 0)
        one = found["workloads"][0] if found["workloads"] else {"notices": [], "once": []}
        assert (found["verdict"] == "Unknown") is (effect == "unknown"), fact
        assert bool(one["once"]) is (effect == "starts, once"), fact
        assert bool(one["notices"]) is (effect == "a line"), fact


def task(count: int, limits: str, members: str = "name: w", **fields: str) -> str:
    return f"{{{members}, replicas: {count}, template: {{spec: {pod_spec(limits, **fields)}}}}}"


def volcano(count: int, minimum: int, limits: str = f"{MIDDLE}: 1", **fields: str) -> str:
    return volcano_job(minimum, task(count, limits, **fields))


def volcano_job(minimum: int, *tasks: str) -> str:
    metadata = "{name: train, namespace: ml}"
    spec = f"{{minAvailable: {minimum}, tasks: [{', '.join(tasks)}]}}"
    return f"{{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, metadata: {metadata}, spec: {spec}}}\n"


@pytest.mark.parametrize(
    ("manifest", "verdict", "started", "message"),
    [
        (volcano(6, 6), "Unknown", 6, ""),
        (volcano(7, 7), "Unknown", 0, "needs 7 pods at once, 6 could start now: they wait together"),
        (volcano(20, 20), "Unknown", 0, "needs 20 pods at once, the cluster could hold 8 without other pods"),
        (
            volcano(5, 5, f"{MIDDLE}: 3"),
            "Unknown",
            0,
            "needs 5 pods at once, the cluster could hold 2 without other pods",
        ),
        (volcano(5, 6), "Never", 0, "needs 6 pods at once, and has 5: never together"),
        # A part that is large enough starts.
        (volcano(8, 4), "Unknown", 6, "0/4 nodes are available"),
    ],
)
def test_a_gang_starts_together_or_not_at_all(manifest: str, verdict: str, started: int, message: str) -> None:
    found = workload(manifest, code=3 if verdict == "Unknown" else 1)
    assert (found["verdict"], found["started"], sum(found["starts"].values())) == (verdict, started, started)
    assert message in "".join(each["message"] for each in found["stopped"])
    assert not {"Replicas"}.intersection(change["kind"] for change in found["wouldStart"])


def lws(count: int, size: int, leader: str, worker: str) -> str:
    templates = (
        f"{name}Template: {{spec: {pod_spec(limits, schedulerName='volcano')}}}"
        for name, limits in (("leader", leader), ("worker", worker))
    )
    spec = f"{{replicas: {count}, leaderWorkerTemplate: {{size: {size}, {', '.join(templates)}}}}}"
    metadata = "{name: serve, namespace: ml}"
    return f"{{apiVersion: leaderworkerset.x-k8s.io/v1, kind: LeaderWorkerSet, metadata: {metadata}, spec: {spec}}}\n"


@pytest.mark.parametrize(
    ("manifest", "started", "waiting"),
    [
        (lws(3, 4, "cpu: 1", f"{MIDDLE}: 6"), 0, [12]),
        (lws(3, 4, "cpu: 1", f"{MIDDLE}: 1"), 8, [4]),
        (lws(1, 4, "cpu: 1", f"{MIDDLE}: 1"), 4, []),
    ],
)
def test_each_of_several_gangs_has_to_fit(manifest: str, started: int, waiting: list[int]) -> None:
    found = workload(manifest, code=3)
    assert (found["verdict"], found["started"]) == ("Unknown", started)
    assert [each["pods"] for each in found["stopped"]] == waiting


HIGH = "{kind: PriorityClass, metadata: {name: high}, value: 1000}"


@pytest.mark.parametrize(
    "gang",
    [volcano(7, 7), volcano(20, 20), volcano(14, 14, priorityClassName="high"), lws(1, 9, "cpu: 1", f"{MIDDLE}: 1")],
)
def test_a_gang_that_does_not_start_holds_nothing(gang: str) -> None:
    first, last = pod(f"{MIDDLE}: 1", "first"), pod(f"{MIDDLE}: 3", "last")
    before, stopped, after = answer("---\n".join((first, gang, last)), on=cluster_text(HIGH), code=3)["workloads"]
    assert (stopped["started"], stopped["starts"], stopped["evicted"]) == (0, {}, [])
    alone = answer("---\n".join((first, last)), on=cluster_text(HIGH))["workloads"]
    assert [{**each, "source": {}} for each in (before, after)] == [{**each, "source": {}} for each in alone]


def test_a_gang_that_loses_a_pod_to_a_later_workload_waits_as_a_whole() -> None:
    both = "---\n".join((volcano(6, 6), pod(f"{MIDDLE}: 2", priorityClassName="high")))
    gang, high = answer(both, on=cluster_text(HIGH), code=3)["workloads"]
    assert (gang["verdict"], gang["started"], high["verdict"], high["evicted"]) == ("Unknown", 0, "Starts", [])


def test_a_gang_loses_nothing_to_a_later_gang_that_does_not_start() -> None:
    later = volcano(14, 14, priorityClassName="high").replace("name: train", "name: later")
    first, second = answer("---\n".join((volcano(6, 6), later)), on=cluster_text(HIGH), code=3)["workloads"]
    assert (first["started"], second["started"], len(second["stopped"])) == (6, 0, 1)


@pytest.mark.parametrize("other", ["web", "w"])
def test_a_gang_near_other_pods_waits_for_them(other: str) -> None:
    term = f"{{topologyKey: kubernetes.io/hostname, labelSelector: {{matchLabels: {{app: {other}}}}}}}"
    near = f"{{podAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: [{term}]}}}}"
    (stopped,) = workload(volcano(2, 2, affinity=near), code=3)["stopped"]
    assert stopped["message"] == "needs 2 pods at once, 0 could start now: they wait together"


def test_a_gang_of_one_pod_a_node_never_starts_on_too_few_nodes() -> None:
    labels = "template: {metadata: {labels: {app: w}},"
    term = "{topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: w}}}"
    apart = f"{{podAntiAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: [{term}]}}}}"
    on = re.sub(r"name: (\w+-\d), alloc", r"name: \1, labels: {kubernetes.io/hostname: \1}, alloc", CLUSTER)
    found = workload(volcano(5, 5, "cpu: 1", affinity=apart).replace("template: {", labels), on=on, code=3)
    message = "needs 5 pods at once, the cluster could hold 3 without other pods"
    assert found["stopped"][0]["message"] == message


def test_pods_of_a_gang_before_it_end_for_a_workload() -> None:
    ending = answer("---\n".join((lws(3, 2, f"{MIDDLE}: 1", f"{MIDDLE}: 1"), pod(f"{MIDDLE}: 4"))), code=1)
    changes = [each for each in ending["workloads"][1]["wouldStart"] if each["kind"] == "Ends"]
    assert "ml/serve" in [name.partition("-")[0] for each in changes for name in each["ends"]]


def test_of_a_gang_some_of_whose_pods_are_refused_the_others_wait() -> None:
    on = cluster_text(quota(hard=f"{{requests.{MIDDLE}: 4}}", used=f"{{requests.{MIDDLE}: 0}}"))
    found = workload(volcano(6, 6), on=on, code=1)
    assert (found["verdict"], found["started"]) == ("Refused", 0)
    waiting, refused = found["stopped"]
    assert (waiting["message"], waiting["pods"]) == ("needs 6 pods at once, 4 could start now: they wait together", 4)
    assert (refused["verdict"], refused["pods"], refused["together"]) == ("Refused", 2, False)


@pytest.mark.parametrize(
    ("minimum", "started", "message"),
    [
        (5, 7, "0/4 nodes are available"),  # less than the sum of the minima, which Volcano then ignores
        (6, 0, "needs 2 pods of train-ps at once, 1 could start now: they wait together"),
        (8, 0, "needs 8 pods at once, 7 could start now: they wait together"),
    ],
)
def test_a_gang_needs_the_minimum_of_each_of_its_tasks(minimum: int, started: int, message: str) -> None:
    servers = task(2, "cpu: 12", "name: ps, minAvailable: 2", nodeSelector="{zone: cpu}")
    manifest = volcano_job(minimum, task(6, f"{MIDDLE}: 1", "name: worker, minAvailable: 4"), servers)
    hog = f"    - metadata: {{name: hog, namespace: ml-batch}}\n      spec: {pod_spec('cpu: 12', nodeName='cpu-1')}\n"
    found = workload(
        manifest, on=cluster_text(pods=hog).replace("{name: cpu-1,", "{name: cpu-1, labels: {zone: cpu},"), code=3
    )
    (stopped,) = found["stopped"]
    assert found["started"] == started
    assert stopped["message"].startswith(message)


@pytest.mark.parametrize("state", STATES)
def test_a_gang_waits_for_nodes_in_a_state_that_ends(state: str) -> None:
    on = CLUSTER.replace("{name: gpu-2,", f"{{name: gpu-2, {state},")
    assert workload(pytorch(6), on=on, code=1)["verdict"] == "Waits"


def pytorch(count: int, limits: str = f"{MIDDLE}: 1", minimum: int | None = None) -> str:
    """Return a gang of kube-scheduler: of a PodGroup for its plugin of coscheduling."""
    policy = f"{{schedulingPolicy: {{minAvailable: {minimum or count}}}}}"
    workers = f"{{Worker: {{replicas: {count}, template: {{spec: {pod_spec(limits)}}}}}}}"
    return (
        "{apiVersion: kubeflow.org/v1, kind: PyTorchJob, metadata: {name: fit, namespace: ml}, "
        f"spec: {{runPolicy: {policy}, pytorchReplicaSpecs: {workers}}}}}\n"
    )


@pytest.mark.parametrize(
    ("manifest", "verdict", "with_pool"),
    [
        (pytorch(7), "Waits", "Unknown"),
        (pytorch(20), "Never", "Unknown"),
        (pytorch(5, f"{MIDDLE}: 3"), "Never", "Unknown"),
        (pytorch(5, minimum=6), "Never", "Never"),
        (pytorch(8, minimum=4), "Waits", "Unknown"),
    ],
)
def test_a_gang_may_get_the_nodes_that_an_autoscaler_may_add(manifest: str, verdict: str, with_pool: str) -> None:
    assert workload(manifest, code=1)["verdict"] == verdict
    found = workload(manifest, on=cluster_text(NODE_POOL), code=3 if with_pool == "Unknown" else 1)
    assert (found["verdict"], found["unknown"]) == (with_pool, [MAY_ADD] if with_pool == "Unknown" else [])


def test_a_gang_may_get_declared_nodes_that_could_hold_its_pods() -> None:
    found = workload(pytorch(20), on=declared(f"{MIDDLE}: 4"), code=3)
    assert (found["verdict"], found["unknown"], found["started"]) == ("Unknown", [MAY_DECLARE], 0)
    assert workload(pytorch(9, f"{MIDDLE}: 2"), on=declared(f"{MIDDLE}: 1"), code=1)["verdict"] == "Never"


def test_no_new_node_helps_a_gang_whose_other_pods_are_refused() -> None:
    on = cluster_text(NODE_POOL, quota(hard=f"{{requests.{MIDDLE}: 7}}", used=f"{{requests.{MIDDLE}: 0}}"))
    found = workload(pytorch(8), on=on, code=1)
    assert (found["verdict"], [each["verdict"] for each in found["stopped"]]) == ("Refused", ["Waits", "Refused"])
    assert found["unknown"] == []


def test_a_gang_whose_number_is_not_known_is_unknown() -> None:
    kind = (
        "{apiVersion: gpurules.io/v1, kind: WorkloadKind, metadata: {name: foo}, spec: {group: x.io, kind: Foo, "
        "templates: [{path: spec.b}], gang: {minimum: '5'}}}\n"
    )
    found = workload(FOO, rules=f"{RULES}---\n{kind}", code=3)
    assert (found["verdict"], found["started"]) == ("Unknown", 1)


def test_the_number_of_pods_is_bounded() -> None:
    found = answer(deployment("cpu: 1", count=10**18), code=2)
    assert [each["message"] for each in found["problems"]] == ["more than 100,000 pods start at once"]


def test_waiting_pods_that_are_unknown_in_another_way_pass_no_gate() -> None:
    assert (
        workload(pod("cpu: 1", affinity=NEAR, resourceClaims=CLAIMS), "--fail-on", "never", code=3)["verdict"]
        == "Waits"
    )


def test_a_workload_is_not_told_to_wait_for_its_own_pods() -> None:
    alone = CLUSTER.replace(CLUSTER[CLUSTER.index("  pods:") : CLUSTER.index("  namespaces:")], "")
    found = workload(deployment(f"{MIDDLE}: 4", count=3), on=alone, code=1)
    assert (found["started"], [each["kind"] for each in found["wouldStart"] if each["kind"] == "Ends"]) == (2, [])


def test_a_daemon_set_has_a_pod_on_each_node_that_it_selects_and_tolerates() -> None:
    manifest = deployment("cpu: 1").replace("Deployment", "DaemonSet").replace("replicas: 2, ", "")
    cordoned = CLUSTER.replace("{name: gpu-2,", "{name: gpu-2, unschedulable: true,")
    found = workload(manifest, on=cordoned)
    assert found["starts"] == {"cpu-1": 1, "gpu-1": 1, "gpu-2": 1}
    tolerant = manifest.replace("containers:", "tolerations: [{operator: Exists}], hostNetwork: true, containers:")
    assert workload(tolerant)["started"] == 4
    terms = "{nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [gpu-1]}]}]}"
    required = f"{{nodeAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: {terms}}}}}"
    named = CLUSTER.replace("{name: gpu-1,", "{name: gpu-1, labels: {kubernetes.io/hostname: gpu-1},")
    found = workload(manifest.replace("containers:", f"affinity: {required}, containers:"), on=named)
    assert found["starts"] == {"gpu-1": 1}
    found = workload(manifest.replace("cpu: 1", "cpu: 40"), code=1)
    assert (found["verdict"], found["stopped"][0]["pods"]) == ("Never", 3)


def test_pods_that_wait_and_can_run_go_first() -> None:
    node = f"{{kind: Node, metadata: {{name: gpu-1}}, status: {{allocatable: {{{NODE}, {MIDDLE}: 4}}}}}}"
    old = f"{{kind: Pod, metadata: {{name: old, namespace: ml}}, spec: {pod_spec(f'{MIDDLE}: 4')}}}"
    on = f"{{kind: List, items: [{node}, {old}, {{kind: Namespace, metadata: {{name: ml}}}}, "
    on += "{kind: ResourceQuotaList, items: []}]}\n"
    found = answer(pod(f"{MIDDLE}: 4"), on=on, code=1)
    assert found["startedBefore"] == {"ml/old": "gpu-1"}
    assert found["workloads"][0]["verdict"] == "Waits"
    # The reason counts it on its node.
    assert "0 are free" in " ".join(found["workloads"][0]["stopped"][0]["finding"]["evidence"])
    assert "pods that wait and can run go first: ml/old on gpu-1" in text(pod(f"{MIDDLE}: 4"), on=on, code=1)


def test_selectors_of_free_nodes_are_proposed() -> None:
    on = CLUSTER.replace("{name: gpu-2,", "{name: gpu-2, labels: {zone: b},").replace(
        "{name: gpu-1,", "{name: gpu-1, labels: {zone: a},"
    )
    found = workload(pod(f"{MIDDLE}: 3", nodeSelector="{zone: a}"), on=on, code=1)
    texts = [change["text"] for change in found["wouldStart"]]
    assert "with nodeSelector zone: b" in texts
    assert "with a toleration of dedicated=infer:NoSchedule and without nodeSelector zone" in texts
    terms = "[{matchExpressions: [{key: zone, operator: In, values: [a]}]}]"
    required = f"{{nodeAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: {{nodeSelectorTerms: {terms}}}}}}}"
    found = workload(pod(f"{MIDDLE}: 3", affinity=required), on=on, code=1)
    assert "without required node affinity" in [change["text"] for change in found["wouldStart"]]


def test_tolerations_are_added_to_those_of_the_pod() -> None:
    on = CLUSTER.replace("effect: NoSchedule}]", "effect: NoSchedule}, {key: spot, effect: NoSchedule}]")
    found = workload(pod(f"{MIDDLE}: 8", tolerations="[{key: spot, operator: Exists}]"), on=on, code=1)
    assert "with a toleration of dedicated=infer:NoSchedule" in [change["text"] for change in found["wouldStart"]]


def test_of_equal_changes_that_for_the_most_nodes_comes_first() -> None:
    node = f"taints: [{{key: spot, effect: NoSchedule}}], allocatable: {{{NODE}, {MIDDLE}: 8}}}}"
    on = CLUSTER.replace("    - {name: cpu-1", f"    - {{name: spot, count: 2, {node}\n    - {{name: cpu-1")
    found = workload(pod(f"{MIDDLE}: 8"), on=on, code=1)
    assert [change["text"] for change in found["wouldStart"] if change["kind"] == "Nodes"] == [
        "with a toleration of spot:NoSchedule",
        "with a toleration of dedicated=infer:NoSchedule",
    ]


def test_the_smallest_change_comes_first() -> None:
    found = workload(job(f"{MIDDLE}: 4", count=2), code=1)
    assert [(change["kind"], change["text"], change["pods"], change["ends"]) for change in found["wouldStart"]] == [
        ("Rung", "with 4 nvidia.com/mig-1g.10gb", 2, []),
        ("Nodes", "with a toleration of dedicated=infer:NoSchedule", 2, []),
        ("Replicas", "with parallelism: 1", 1, []),
        ("Devices", "with 2 nvidia.com/mig-2g.20gb", 2, []),
        ("Ends", "after Pod ml-batch/eval-3 ends", 2, ["ml-batch/eval-3"]),
    ]


def test_scaled_ladders_scale_the_number_of_devices() -> None:
    rungs = (f"{{resource: {LARGE}, weight: 3}}", f"{{resource: {SMALL}, weight: 1}}")
    found = workload(pod(f"{LARGE}: 2"), rules=ladder("a100", *rungs, counts="Scale", direction="Up"), code=1)
    assert [change["text"] for change in found["wouldStart"]] == ["with 6 nvidia.com/mig-1g.10gb"]


def test_fewer_devices_are_proposed_down_to_one() -> None:
    found = workload(pod(f"{MIDDLE}: 2"), on=CLUSTER.replace(f"{MIDDLE}: 4", f"{MIDDLE}: 1"), code=1)
    assert f"with 1 {MIDDLE}" in [change["text"] for change in found["wouldStart"]]


def test_several_workloads_arrive_in_order() -> None:
    found = answer(
        "---\n".join((deployment(f"{MIDDLE}: 3", count=1), pod(f"{MIDDLE}: 4"), pod(f"{MIDDLE}: 1", "two"))), code=1
    )
    assert [each["verdict"] for each in found["workloads"]] == ["Starts", "Waits", "Starts"]


NO_OPERATOR = (
    "{nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: "
    "{nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Equals}]}]}}}"
)


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        ("{kind: ConfigMap, apiVersion: v1, metadata: {name: a}}\n", "pod"),
        ("- 1\n", "pod"),
        ("{\n", ""),
        (pod("cpu: -1"), "cannot be negative"),
        (deployment("cpu: 1", affinity=NO_OPERATOR).replace("Deployment", "DaemonSet"), "operator: must be one of"),
    ],
)
def test_manifests_without_usable_pods_are_errors(manifest: str, message: str) -> None:
    write(Path(), {"manifest.yaml": manifest})
    result = cli("preflight", "-f", "manifest.yaml", "--cluster", "cluster.yaml", "--rules", "rules.yaml")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "manifest.yaml:" in result.stderr
    assert message in result.stderr


def test_a_slip_of_a_manifest_is_one_warning() -> None:
    (problem,) = answer(job("cpu: 1", nodeNam="a"))["problems"]
    assert problem["message"] == "PodSpec has no field 'nodeNam' (did you mean 'nodeName'?): Kubernetes drops it"


def test_another_namespace_than_that_of_a_manifest_is_an_error() -> None:
    write(Path(), {"manifest.yaml": pod("cpu: 1")})
    result = cli("preflight", "-f", "manifest.yaml", "--cluster", "cluster.yaml", "-n", "other")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Pod one has namespace ml, not other" in result.stderr


def test_views_say_what_they_lack() -> None:
    on = "".join(f"---\nkind: {kind}List\nitems: []\n" for kind in ("Node", "Pod", "ResourceQuota"))
    shown = text(pod("cpu: 1"), on=on, code=1)
    assert "the cluster's view has no pods: all nodes count as empty" in shown
    assert "the cluster's view has no namespaces: their labels are unknown" in shown
    assert "no nodes available to schedule pods" in shown


def test_kinds_that_were_not_read_are_a_warning() -> None:
    write(Path(), {"manifest.yaml": pod("cpu: 1"), "nodes.yaml": "kind: Node\nmetadata: {name: a}\n"})
    result = cli("preflight", "-f", "manifest.yaml", "--cluster", "nodes.yaml")
    assert result.stderr.count("warning: ") == 1
    assert "warning: no ResourceQuota was read: quotas count as having room" in result.stderr
    assert "the cluster's view has no pods: all nodes count as empty" in result.stdout


def test_a_workload_that_exists_is_named() -> None:
    existing = f"    - metadata: {{name: one, namespace: ml}}\n      spec: {pod_spec('cpu: 1', nodeName='cpu-1')}\n"
    found = workload(pod("cpu: 1"), on=cluster_text(pods=existing))
    assert found["notices"] == ["Pod ml/one already exists; these pods are counted in addition"]


def test_pods_that_wait_start_where_preemption_makes_room() -> None:
    # The victim of the second workload leaves more room than it needs.
    on = cluster_text("{kind: PriorityClass, metadata: {name: high}, value: 1000}").replace(
        f"{MIDDLE}: 2}}}}", f"{MIDDLE}: 4}}}}"
    )
    on = on.replace(f"{{{NODE}, {MIDDLE}: 4}}", f"{{{NODE}}}")
    first, second = answer(
        "---\n".join((job(f"{MIDDLE}: 1", count=2), pod(f"{MIDDLE}: 1", priorityClassName="high"))), on=on
    )["workloads"]
    assert (first["verdict"], first["started"], second["evicted"]) == ("Starts", 2, ["ml-batch/eval-3"])


def test_of_pods_that_wait_the_highest_priority_starts_first() -> None:
    values = {"low": -9, "middle": -5, "high": 9}
    policies = {"low": "Never", "middle": "Never", "high": "PreemptLowerPriority"}
    on = cluster_text(
        *(f"{{kind: PriorityClass, metadata: {{name: {name}}}, value: {value}}}" for name, value in values.items())
    )
    on = on.replace(f"{MIDDLE}: 2}}}}", f"{MIDDLE}: 4}}}}").replace(f"{{{NODE}, {MIDDLE}: 4}}", f"{{{NODE}}}")
    pods = [
        pod(f"{MIDDLE}: {1 if name == 'high' else 3}", name, priorityClassName=name, preemptionPolicy=policy)
        for name, policy in policies.items()
    ]
    found = answer("---\n".join(pods), on=on, code=1)
    assert [each["verdict"] for each in found["workloads"]] == ["Waits", "Starts", "Starts"]


def test_pods_of_the_manifest_may_be_evicted() -> None:
    on = cluster_text("{kind: PriorityClass, metadata: {name: high}, value: 1000}")
    on = on.replace("spec: {nodeName: gpu-1,", "spec: {nodeName: gpu-1, priority: 1000,")
    both = "---\n".join((pod(f"{MIDDLE}: 4"), pod(f"{MIDDLE}: 4", "two", priorityClassName="high")))
    low, high = answer(both, on=on, code=1)["workloads"]
    assert (low["verdict"], low["starts"], low["equalNodes"]) == ("Waits", {}, [])
    assert "Insufficient" in low["stopped"][0]["message"]
    assert (high["verdict"], high["evicted"]) == ("Starts", ["ml/one"])


@pytest.mark.parametrize(
    ("status", "evicted"), [("{disruptionsAllowed: 0}", "two"), ("{disruptionsAllowed: 1}", "one"), ("", "two")]
)
def test_a_pod_of_a_budget_without_disruptions_is_evicted_only_if_no_other_helps(status: str, evicted: str) -> None:
    node = f"{{kind: Node, metadata: {{name: gpu-1}}, status: {{allocatable: {{{NODE}, {MIDDLE}: 4}}}}}}"
    pods = [
        f"{{kind: Pod, metadata: {{name: {name}, namespace: ml, labels: {{app: {name}}}}}, "
        f"spec: {pod_spec(f'{MIDDLE}: 2', nodeName='gpu-1', priority=priority)}, status: {{phase: Running}}}}"
        for name, priority in (("one", "1"), ("two", "2"))
    ]
    spec = "{minAvailable: 1, selector: {matchLabels: {app: one}}}"
    metadata = "{name: b, namespace: ml}"
    protected = f"{{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {metadata}, spec: {spec}"
    protected += f", status: {status}}}" if status else "}"
    high = "{kind: PriorityClass, metadata: {name: high}, value: 9}"
    items = ", ".join((node, *pods, protected, high, "{kind: Namespace, metadata: {name: ml}}"))
    assert workload(pod(f"{MIDDLE}: 2", priorityClassName="high"), on=f"{{kind: List, items: [{items}]}}\n")[
        "evicted"
    ] == [f"ml/{evicted}"]


@pytest.mark.parametrize("field", ["schedulingGates: [{name: g}]", "schedulerName: volcano"])
def test_waiting_pods_that_the_scheduler_does_not_try_hold_nothing(field: str) -> None:
    node = f"{{kind: Node, metadata: {{name: gpu-1}}, status: {{allocatable: {{{NODE}, {MIDDLE}: 4}}}}}}"
    name, _, value = field.partition(": ")
    old = f"{{kind: Pod, metadata: {{name: old, namespace: ml}}, spec: {pod_spec(f'{MIDDLE}: 4', **{name: value})}}}"
    on = f"{{kind: List, items: [{node}, {old}, {{kind: Namespace, metadata: {{name: ml}}}}]}}\n"
    found = answer(pod(f"{MIDDLE}: 4"), on=on)
    assert (found["startedBefore"], found["workloads"][0]["verdict"]) == ({}, "Starts")


@pytest.mark.parametrize("fields", [{"mode": "Audit"}, {"match": "{namespaces: [other]}"}])
def test_ladders_that_do_not_apply_propose_nothing(fields: dict[str, str]) -> None:
    found = workload(job(f"{MIDDLE}: 1"), rules=ladder("a100", LARGE, MIDDLE, SMALL, **fields), code=1)
    assert "Rung" not in [change["kind"] for change in found["wouldStart"]]


def test_rungs_that_rules_move_on_are_not_proposed() -> None:
    rules = ladder("a100", LARGE, MIDDLE, SMALL, direction="DownThenUp")
    found = workload(job(f"{MIDDLE}: 1"), rules=rules, code=1)
    assert [change["text"] for change in found["wouldStart"] if change["kind"] == "Rung"] == [f"with 1 {SMALL}"]


def test_pods_of_a_higher_priority_are_never_to_end() -> None:
    on = cluster_text("{kind: PriorityClass, metadata: {name: high}, value: 1000}")
    on = on.replace("spec: {nodeName: gpu-1,", "spec: {nodeName: gpu-1, priority: 1000,")
    found = workload(job(f"{MIDDLE}: 1"), on=on, code=1)
    assert "Ends" not in [change["kind"] for change in found["wouldStart"]]


def test_only_pods_in_the_way_of_the_workload_are_to_end() -> None:
    hog = f"    - metadata: {{name: hog, namespace: ml-batch}}\n      spec: {pod_spec('cpu: 32', nodeName='cpu-1')}\n"
    both = "---\n".join((pod("cpu: 32", nodeSelector="{kubernetes.io/hostname: cpu-1}"), job(f"{MIDDLE}: 1")))
    on = cluster_text(pods=hog).replace("{name: cpu-1,", "{name: cpu-1, labels: {kubernetes.io/hostname: cpu-1},")
    _, found = answer(both, on=on, code=1)["workloads"]
    assert [change["ends"] for change in found["wouldStart"] if change["kind"] == "Ends"] == [["ml-batch/eval-3"]]


def test_quotas_count_what_rules_give() -> None:
    on = cluster_text(quota(hard=f"{{requests.{MIDDLE}: 0}}", used=f"{{requests.{MIDDLE}: 0}}"))
    assert workload(pod(f"{LARGE}: 1"), on=on, code=1)["verdict"] == "Refused"
    rules = validation("none", "object.metadata.name != 'one'", optOut="Forbidden")
    assert workload(pod(f"{LARGE}: 1"), on=on, rules=rules, code=1)["verdict"] == "Denied"


def test_an_answer_has_six_changes_at_most() -> None:
    rungs = [f"nvidia.com/mig-1g.{size}gb" for size in range(10, 18)]
    nodes = "".join(
        f"    - {{name: n-{size}, allocatable: {{{NODE}, nvidia.com/mig-1g.{size}gb: 9}}}}\n" for size in range(11, 18)
    )
    on = CLUSTER.replace("  pods:", f"    - {{name: n-10, allocatable: {{{NODE}, {rungs[0]}: 1}}}}\n{nodes}  pods:")
    found = workload(job(f"{rungs[0]}: 9", count=1), on=on, rules=ladder("a", *rungs, direction="Up"), code=1)
    assert len(found["wouldStart"]) == 6


def test_templates_of_one_object_are_named() -> None:
    replicas = ", ".join(
        f"{name}: {{replicas: {count}, template: {{spec: {pod_spec(limits)}}}}}"
        for name, count, limits in (("Master", 1, "cpu: 1"), ("Worker", 3, f"{MIDDLE}: 3"))
    )
    metadata = "metadata: {name: t, namespace: ml}"
    spec = f"{{pytorchReplicaSpecs: {{{replicas}}}}}"
    manifest = f"{{apiVersion: kubeflow.org/v1, kind: PyTorchJob, {metadata}, spec: {spec}}}\n"
    found = workload(manifest, code=1)
    texts = {change["kind"]: change["text"] for change in found["wouldStart"]}
    assert texts["Replicas"] == "with fewer pods at once: t-master: 1, t-worker: 1"
    assert texts["Devices"].endswith(" in t-worker")


def test_pods_that_name_their_node_are_noted() -> None:
    found = workload(pod("cpu: 1", nodeName="cpu-1"))
    assert found["notices"] == ["not modelled: spec.nodeName, with which a pod bypasses the scheduler"]
    assert workload(pod("cpu: 99", nodeName="cpu-1"), code=1)["stopped"][0]["finding"] is None


def test_a_namespace_that_the_cluster_lacks_is_noted() -> None:
    assert workload(pod("cpu: 1").replace("namespace: ml", "namespace: nope"))["notices"] == [
        "the cluster's view has no namespace nope"
    ]


def test_a_manifest_given_twice_is_an_error() -> None:
    write(Path(), {"manifest.yaml": pod("cpu: 1")})
    result = cli("preflight", "-f", "manifest.yaml", "-f", "manifest.yaml", "--cluster", "cluster.yaml", "-o", "json")
    assert result.exit_code == 2
    assert json.loads(result.stdout)["problems"][0]["message"] == "Pod ml/one is already in manifest.yaml:1:2"


def test_two_nodes_of_one_name_are_an_error() -> None:
    nodes = "{metadata: {name: a, uid: one}}, {metadata: {name: a, uid: other}}"
    files = {"manifest.yaml": pod("cpu: 1"), "cluster.yaml": f"{{kind: NodeList, items: [{nodes}]}}\n"}
    write(Path(), files)
    result = cli("preflight", "-f", "manifest.yaml", "--cluster", "cluster.yaml")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "there is another node a: are these files of one cluster?" in result.stderr


def test_without_pods_the_answer_says_so() -> None:
    write(Path(), {"manifest.yaml": job("cpu: 1", count=0)})
    result = cli("preflight", "-f", "manifest.yaml", "--cluster", "cluster.yaml")
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (0, "  Job ml/train  has no pods")


def test_other_rules_have_no_rungs() -> None:
    rules = f"{RULES}---\n{injection('more', gpuResource=MIDDLE)}"
    found = workload(job(f"{MIDDLE}: 1"), rules=rules, code=1)
    assert [change["text"] for change in found["wouldStart"] if change["kind"] == "Rung"] == [f"with 1 {SMALL}"]


def test_a_claim_that_takes_many_steps_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filters, "MAX_STEPS", 0)
    request = re.sub(r"requests: .*\}\]", "requests: [{name: r, exactly: {deviceClassName: any}}]", CONFIGURED)
    pool = "driver: d, allNodes: true, pool: {name: p, generation: 1, resourceSliceCount: 1}"
    on = cluster_text(
        "{kind: DeviceClass, metadata: {name: any}, spec: {}}",
        f"{{kind: ResourceSlice, metadata: {{name: s}}, spec: {{{pool}, devices: [{{name: a}}]}}}}",
    )
    found = workload(f"{request}---\n{pod('cpu: 1', resourceClaims=CLAIMS)}", on=on, code=3)
    assert found["unknown"] == ["requests for devices that take many steps to allocate"]
