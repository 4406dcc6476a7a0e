"""Warnings about PodDefaults: members that the API server refuses, that no pod gets, or that the cluster lacks."""

from pathlib import Path

import pytest

from rules_engine.authoring.check.check import check_files
from rules_engine.cluster.read.clusters import read_cluster
from tests.support.authoring import write
from tests.support.loading import rule

SHM = "{name: shm, emptyDir: {medium: Memory}}"
NODE = "{name: a, labels: {node-pool: gpu}, taints: [{key: gpu, effect: NoSchedule}]}"


def defaults(name: str, spec: str) -> str:
    if "match" not in spec:
        spec = f"match: {{resources: [nvidia.com/gpu]}}, {spec}"
    return rule("PodDefaults", f"{{{spec}}}", name)


def found(tmp_path: Path, *documents: str, cluster: str = "") -> list[str]:
    """The line of the spec and the text of each problem, with its code."""
    write(tmp_path, {"rules.yaml": "---\n".join(documents)})
    write(tmp_path / "cluster", {"cluster.yaml": rule("ClusterInventory", cluster)} if cluster else {})
    reading = read_cluster([tmp_path / "cluster" / "cluster.yaml"]) if cluster else None
    problems = check_files([tmp_path / "rules.yaml"], reading).answer.problems
    return [f"{each.location.line}: {each.message} [{each.code}]".replace(f"{tmp_path}/", "") for each in problems]


SCHEDULED = "the pods are not scheduled [unmatched-selector]"
REFUSED = "the API server refuses the pods"


def unmounted(line: int, volume: str = "shm") -> str:
    return (
        f"{line}: no rule adds the volume '{volume}': the API server refuses pods without one of this name "
        "[mount-without-volume]"
    )


MOUNT = "containers: [{which: Requesting, volumeMounts: [{name: shm, mountPath: /dev/shm}]}]"
ADDS = f"pod: {{spec: {{volumes: [{SHM}]}}}}"


@pytest.mark.parametrize(
    ("spec", "others", "expected"),
    [
        (MOUNT, [], [unmounted(4)]),
        (MOUNT.replace("shm,", "Shm,"), [], [unmounted(4, "Shm")]),
        (f"{ADDS}, {MOUNT}", [], []),
        (MOUNT, [ADDS], []),
        (MOUNT, [f"match: {{namespaces: [ml]}}, {ADDS}"], []),
        (f"match: {{namespaces: [web]}}, {MOUNT}", [f"match: {{namespaces: [ml]}}, {ADDS}"], [unmounted(4)]),
        (f"{MOUNT}, namespaces: {{ml: {{{ADDS}}}}}", [], [unmounted(4)]),
        (f"{ADDS}, namespaces: {{ml: {{inherit: Merge, {MOUNT}}}}}", [], []),
        (f"{ADDS}, namespaces: {{ml: {{{MOUNT}}}}}", [], [unmounted(4)]),
    ],
)
def test_a_mount_needs_a_volume_of_the_pod(tmp_path: Path, spec: str, others: list[str], expected: list[str]) -> None:
    others = [defaults(f"b{index}", other) for index, other in enumerate(others)]
    assert found(tmp_path, defaults("a", spec), *others) == expected


def test_the_queue_of_kueue_is_a_label_of_jobs(tmp_path: Path) -> None:
    labels = "pod: {metadata: {labels: {kueue.x-k8s.io/queue-name: gpus}}}"
    inherits = "namespaces: {ml: {inherit: Merge, pod: {metadata: {labels: {team: ml}}}}}"
    (warning,) = found(tmp_path, defaults("a", f"{labels}, {inherits}"))
    assert warning == (
        "4: Kueue reads this label of a Job: it ignores that of a pod whose controller it manages, and queues other "
        "pods one by one [queue-on-pods]"
    )
    computed = labels.replace("labels", "labelsExpression").replace("gpus", "\"'gpus'\"")
    assert len(found(tmp_path, defaults("a", computed))) == 1
    assert found(tmp_path, defaults("a", labels.replace("labels", "annotations"))) == []


def unreachable(titles: str, *, first: str = "a (rules.yaml:3:18)", basis: str = "name", line: int = 9) -> list[str]:
    decided = f"decided by PodDefaults/{first} instead, which comes first by {basis} [unreachable-member]"
    return [f"{line}: {titles}: {decided}"]


CLASS = "pod: {spec: {priorityClassName: low}}"
TOLERATES = "pod: {spec: {tolerations: [{key: pool, %s}]}}"
ENV = "containers: [{which: %s, env: [{name: A, value: b}]}]"


@pytest.mark.parametrize(
    ("earlier", "later", "titles"),
    [
        (CLASS, CLASS.replace("low", "high"), "priorityClassName"),
        (CLASS, "pod: {spec: {schedulerName: x, priorityClassName: z}}", "priorityClassName"),
        (CLASS, "pod: {spec: {schedulerName: x}}", ""),
        (
            "pod: {metadata: {labels: {a: b, c: d}}}",
            "pod: {metadata: {labelsExpression: {a: \"'x'\", c: \"'y'\"}}}",
            "labels.a, labels.c",
        ),
        (TOLERATES % "value: a", TOLERATES % "value: a", "tolerations.pool=a"),
        (TOLERATES % "value: a", TOLERATES % "value: b", ""),
        (TOLERATES % "valueExpression: \"'a'\"", TOLERATES % "valueExpression: \"'b'\"", ""),
        (ENV % "All", ENV % "Requesting", "env.A"),
        (ENV % "All", ENV % "{names: [main]}", "env.A"),
        (ENV % "Requesting", ENV % "Requesting", "env.A"),
        (ENV % "Requesting", ENV % "All", ""),
        (ENV % "{names: [main]}", ENV % "{names: [main]}", "env.A"),
        (f"match: {{}}, {CLASS}", CLASS, "priorityClassName"),
        (CLASS, f"match: {{resources: ['nvidia.com/*']}}, {CLASS}", ""),
        (f"match: {{resources: ['nvidia.com/*']}}, {CLASS}", CLASS, "priorityClassName"),
        (f"match: {{resources: ['nvidia.com/*']}}, {ENV % 'Requesting'}", ENV % "Requesting", ""),
        (f"match: {{resources: ['nvidia.com/*']}}, {ENV % 'All'}", ENV % "Requesting", "env.A"),
        (f"mode: Audit, {CLASS}", CLASS, ""),
        (f"matchConditions: [{{name: c, expression: 'object.spec.enableServiceLinks'}}], {CLASS}", CLASS, ""),
        (f"namespaces: {{ml: {{}}}}, {CLASS}", CLASS, ""),
        (f"namespaces: {{ml: {CLASS.replace('pod', '{pod')}}}}}, {CLASS}", CLASS, "priorityClassName"),
        (CLASS, f"{CLASS}, namespaces: {{ml: {CLASS.replace('pod', '{pod')}}}}}", "priorityClassName"),
        (f"namespaces: {{ml: {{{CLASS}}}}}", f"namespaces: {{ml: {{{CLASS}}}}}", "priorityClassName"),
        (f"namespaces: {{ml: {{{CLASS}}}}}", f"{CLASS}, namespaces: {{ml: {{{CLASS}}}}}", ""),
    ],
)
def test_a_member_that_an_earlier_rule_always_decides_is_one_warning(
    tmp_path: Path, earlier: str, later: str, titles: str
) -> None:
    problems = found(tmp_path, defaults("a", earlier), defaults("b", later))
    assert [each for each in problems if "every-pod" not in each] == (unreachable(titles) if titles else [])


def test_priorities_decide_first(tmp_path: Path) -> None:
    documents = defaults("a", CLASS), defaults("b", f"priority: 1, {CLASS}")
    first = "b (rules.yaml:8:18)"
    assert found(tmp_path, *documents) == unreachable("priorityClassName", first=first, basis="priority", line=4)


CLASSES = """objects: [{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: normal}, value: 1},
    {apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: nvidia}, handler: nvidia,
    scheduling: {nodeSelector: {node-pool: gpu}}}]"""


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("priorityClassName: normal, runtimeClassName: nvidia, nodeSelector: {node-pool: gpu}", []),
        (
            "priorityClassName: norml",
            [f"the cluster has no PriorityClass 'norml' (did you mean 'normal'?): {REFUSED} [unknown-class]"],
        ),
        (
            "runtimeClassName: gvisor",
            [f"the cluster has no RuntimeClass 'gvisor': {REFUSED} [unknown-class]"],
        ),
        ("priorityClassNameExpression: \"'norml'\"", []),
        ("schedulerName: norml", []),
        (
            "nodeSelector: {node-pool: gpus}",
            [f"no node has node-pool=gpus (did you mean 'node-pool=gpu'?): {SCHEDULED}"],
        ),
        ("nodeSelector: {zone: a}", [f"no node has zone=a: {SCHEDULED}"]),
        ("nodeSelectorExpression: {zone: \"'a'\"}", []),
        (
            "tolerations: [{key: gpus, operator: Exists}, {key: gpu, operator: Exists, effect: NoSchedule}]",
            ["no node has a taint that this tolerates: gpus op=Exists [useless-toleration]"],
        ),
        ("tolerations: [{key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute}]", []),
        ("tolerations: [{operator: Exists}]", []),
        (
            "runtimeClassName: nvidia, nodeSelector: {node-pool: gpus}",
            [
                f"the RuntimeClass 'nvidia' selects node-pool=gpu: {REFUSED} [selector-conflict]",
                f"no node has node-pool=gpus (did you mean 'node-pool=gpu'?): {SCHEDULED}",
            ],
        ),
    ],
)
def test_a_cluster_has_what_pods_get(tmp_path: Path, spec: str, expected: list[str]) -> None:
    document = defaults("a", f"pod: {{spec: {{{spec}}}}}")
    assert found(tmp_path, document, cluster=f"{{nodes: [{NODE}], {CLASSES}}}") == [f"4: {each}" for each in expected]


def test_classes_and_nodes_that_were_not_read_are_not_missing(tmp_path: Path) -> None:
    spec = "priorityClassName: a, runtimeClassName: b, nodeSelector: {c: d}, tolerations: [{key: e, operator: Exists}]"
    assert found(tmp_path, defaults("a", f"pod: {{spec: {{{spec}}}}}"), cluster="{nodes: []}") == []
