"""Simulations: their arrivals, the workloads that arrive, events, and the files that they name."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules_engine.cluster.creation.plugins import ApiServer
from rules_engine.cluster.read.clusters import read_cluster
from rules_engine.language.schemas import schema
from rules_engine.model.problems.problem import Problem
from rules_engine.model.problems.source import Location
from rules_engine.model.rules.rule import ConditionKind, LabelRequirement, LabelSelector
from rules_engine.model.rules.simulation import (
    MAX_PODS,
    Distribution,
    NodeEvent,
    NodeState,
    PodGroup,
    SchedulerOptions,
    Simulation,
    Strategy,
)
from rules_engine.questions.simulate.play import play_simulation
from rules_engine.rules.sources.documents import DOCUMENTS, load_documents
from rules_engine.rules.sources.rule_files import read_rules
from rules_engine.rules.sources.simulations import load_simulations
from tests.support.loading import codes, load_text, rule

RULES = read_rules([]).rule_set

# The example of the design.
TEN_PODS = """\
apiVersion: gpurules.io/v1
kind: Simulation
metadata: {name: ten-pods}
spec:
  cluster: {file: two-workers.yaml}          # or inline
  seed: 1
  arrivals:
    - {at: 0s, every: 1s, count: 10, pod: {metadata: {name: gpu-test}, spec: {containers: [{name: c}]}}, runFor: 60s}
    - {at: 30s, workloadFile: job.yaml, runFor: {min: 10m, max: 2h}}  # drawn with the seed
  events: [{at: 45s, node: gpu-sim-cluster-worker, becomes: NotReady}]
  until: 2h                        # default: until nothing changes any more
"""

JOB = "{apiVersion: batch/v1, kind: Job, metadata: {name: t}, spec: {template: {spec: {containers: [{name: c}]}}}}"
CLUSTER = rule("ClusterInventory", "{nodes: [{name: gpu-sim-cluster-worker, cards: 4}]}")
POD = "{kind: Pod, metadata: {name: one}, spec: {containers: [{name: c}]}}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The files that TEN_PODS names."""
    (tmp_path / "two-workers.yaml").write_text(CLUSTER)
    (tmp_path / "job.yaml").write_text(f"kind: Service\nmetadata: {{name: t}}\n---\n{JOB}\n")
    return tmp_path


UNQUOTED = ("missing-file", "not-a-cluster", "unread-object")
"""Problems without an excerpt, also since a cluster's objects may have secrets."""


def read(folder: Path, text: str, cluster: str = "") -> tuple[Simulation | None, tuple[Problem, ...]]:
    path = folder / "scenario.yaml"
    path.write_text(text)
    simulations, problems, sources = load_simulations(path, [read_cluster([folder / cluster])] if cluster else [])
    shown = [problem for problem in problems if problem.location.file == str(path) or not cluster]
    assert all(problem.location.file in sources or problem.code in UNQUOTED for problem in shown)
    return simulations[0] if simulations else None, problems


def scenario(arrivals: str = "[]", more: str = "", cluster: str = "{nodes: [{name: w, count: 2}]}") -> str:
    return rule("Simulation", f"{{cluster: {cluster}, arrivals: {arrivals}{', ' if more else ''}{more}}}")


def sound(folder: Path, text: str, cluster: str = "") -> Simulation:
    simulation, problems = read(folder, text, cluster)
    assert problems == ()
    assert simulation is not None
    return simulation


def groups(folder: Path, workload: Any) -> tuple[PodGroup, ...]:
    """The pods of one workload."""
    simulation, problems = read(folder, scenario(f"[{{workload: {json.dumps(workload)}}}]"))
    assert {*codes(problems)} <= {"unknown-pods"}
    assert simulation is not None
    return simulation.arrivals[0].groups


def messages(folder: Path, text: str, cluster: str = "") -> list[str]:
    """The problems of a scenario that cannot be played."""
    simulation, problems = read(folder, text, cluster)
    assert simulation is None
    return [f"{p.location.line}:{p.location.column}: {p.message} [{p.code}]" for p in problems]


def template(**labels: str) -> dict[str, Any]:
    metadata = {"metadata": {"labels": labels}} if labels else {}
    return {**metadata, "spec": {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": 1}}}]}}


def workload(kind: str, **spec: Any) -> dict[str, Any]:
    return {"kind": kind, "metadata": {"name": "x"}, "spec": {"template": template(), **spec}}


def test_the_example_of_the_design_is_read(folder: Path) -> None:
    simulation = sound(folder, TEN_PODS)
    file = str(folder / "scenario.yaml")
    assert (simulation.name, simulation.location, simulation.seed) == ("ten-pods", Location(file, 3, 18), 1)
    assert [node.name for node in simulation.cluster.nodes] == ["gpu-sim-cluster-worker"]
    assert [node.name for node in simulation.objects.nodes] == ["gpu-sim-cluster-worker"]
    pods, job = simulation.arrivals
    assert (pods.title, pods.namespace, pods.at, pods.every, pods.count, pods.run_for) == (
        "Pod/gpu-test",
        "default",
        0,
        Distribution(least=1000, most=1000),
        10,
        Distribution(least=60_000, most=60_000),
    )
    assert pods.groups == (
        PodGroup(
            name="gpu-test",
            pod={
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "gpu-test"},
                "spec": {"containers": [{"name": "c"}]},
            },
            controlled=False,
        ),
    )
    assert (job.title, job.at, job.every, job.count) == ("Job/t", 30_000, Distribution(), 1)
    assert job.run_for == Distribution(least=600_000, most=7_200_000)
    (group,) = job.groups
    made: Any = group.pod
    assert (group.name, made["metadata"]["generateName"], made["spec"]) == ("t", "t-", {"containers": [{"name": "c"}]})
    assert made["metadata"]["labels"]["job-name"] == "t"
    assert simulation.events == (NodeEvent(at=45_000, node="gpu-sim-cluster-worker", becomes=NodeState.NOT_READY),)
    assert (simulation.until, simulation.running_for, simulation.scheduler) == (7_200_000, None, SchedulerOptions())


def test_the_other_fields_are_read(folder: Path) -> None:
    more = (
        "runningFor: {mean: 1h}, scheduler: {scoring: MostAllocated, resources: {cpu: 1, nvidia.com/gpu: 3}, "
        "preemption: false}, events: [{at: '0', node: w-2, becomes: Drained}]"
    )
    arrival = "{pod: {spec: {containers: [{name: c}]}}, namespace: ml, priority: -5, runFor: {mean: 90s}}"
    simulation = sound(folder, scenario(f"[{arrival}]", more))
    assert simulation.running_for == Distribution(mean=3_600_000)
    assert simulation.scheduler == SchedulerOptions(
        scoring=Strategy.MOST_ALLOCATED, resources={"cpu": 1, "nvidia.com/gpu": 3}, preemption=False
    )
    (found,) = simulation.arrivals
    assert (found.namespace, found.run_for) == ("ml", Distribution(mean=90_000))
    assert found.groups[0].pod["spec"] == {"containers": [{"name": "c"}], "priority": -5}
    assert (found.title, found.groups[0].name) == ("Pod/arrival-1", "arrival-1")
    assert (simulation.seed, simulation.until) == (0, None)
    assert simulation.events[0].becomes is NodeState.DRAINED


def test_arrivals_may_be_empty(folder: Path) -> None:
    simulation = sound(folder, scenario("[]", "events: [{at: 1s, node: w-1, becomes: Cordoned}]"))
    assert simulation.arrivals == ()
    assert simulation == sound(folder, scenario("[]", "events: [{at: 1s, node: w-1, becomes: Cordoned}]"))


RAY_GROUPS = [
    {"groupName": name, "replicas": count, "template": template()}
    for name, count in (("small", 2), ("large", 4), ("large", 5))
]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"kind": "Pod", **template()}, [("arrival-1", 1, 1)]),
        ({"kind": "Pod", "metadata": {"generateName": "gpu-"}, **template()}, [("gpu", 1, 1)]),
        (workload("Job", parallelism=4, completions=8), [("x", 4, 8)]),
        (
            {
                "apiVersion": "ray.io/v1",
                **workload("RayCluster", headGroupSpec={"template": template()}, workerGroupSpecs=RAY_GROUPS),
            },
            [("x-head", 1, 1), ("x-small", 2, 2), ("x-large-3", 4, 4), ("x-large-4", 5, 5), ("x-pods", 1, 1)],
        ),
        (workload("Odd", helper={"template": template()}), [("x-pods", 1, 1), ("x-helper", 1, 1)]),
    ],
    ids=lambda value: value["kind"] if isinstance(value, dict) else "",
)
def test_the_pods_of_each_template_have_a_name_and_numbers(
    spec: dict[str, Any], expected: list[tuple[str, int, int]], folder: Path
) -> None:
    pod_groups = groups(folder, spec)
    assert [(group.name, group.parallel, group.total) for group in pod_groups] == expected
    assert {group.controlled for group in pod_groups} == {spec["kind"] != "Pod"}
    for group in pod_groups:
        metadata: Any = group.pod["metadata"]
        name = {"generateName": f"{group.name}-"} if group.controlled else {"name": group.name}
        assert metadata == {**metadata, **name}


HASH = "pod-template-hash"
TEAM = LabelSelector((LabelRequirement("team", ConditionKind.IN, ("ml",)),))


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (workload("ReplicaSet", selector={"matchLabels": {"team": "ml"}}), TEAM),
        (workload("StatefulSet", template=template(team="ml")), TEAM),
        (workload("ReplicationController", selector={"team": "ml"}), TEAM),
        (workload("ReplicationController", template=template(team="ml")), TEAM),
        (workload("ReplicaSet"), None),
        (workload("Job", selector={"matchLabels": {"team": "ml"}}), None),
        (workload("PyTorchJob", selector={"matchLabels": {"team": "ml"}}), None),
    ],
    ids=str,
)
def test_the_scheduler_spreads_pods_by_the_selector_of_some_controllers(
    spec: dict[str, Any], expected: LabelSelector | None, folder: Path
) -> None:
    (group,) = groups(folder, spec)
    assert group.selector == expected


def test_the_scheduler_spreads_pods_of_a_deployment_by_the_selector_of_its_replica_set(folder: Path) -> None:
    (group,) = groups(folder, workload("Deployment", selector={"matchLabels": {"team": "ml"}}))
    metadata: Any = group.pod["metadata"]
    revision = LabelRequirement(HASH, ConditionKind.IN, (metadata["labels"][HASH],))
    assert group.selector is not None
    assert {*group.selector.requirements} == {*TEAM.requirements, revision}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (workload("Deployment", replicas=0), "replicas is 0: no pod arrives"),
        (workload("Job", parallelism=0, completions=3), "parallelism is 0: no pod arrives"),
        (workload("Job", completions=0), "completions is 0: no pod arrives"),
    ],
    ids=str,
)
def test_a_workload_without_pods_is_left_out_with_a_warning(spec: dict[str, Any], message: str, folder: Path) -> None:
    simulation, problems = read(folder, scenario(f"[{{workload: {json.dumps(spec)}}}]"))
    assert simulation is not None
    assert simulation.arrivals == ()
    assert [(problem.message, problem.code, problem.severity.value) for problem in problems] == [
        (message, "ignored-field", "warning")
    ]


@pytest.mark.parametrize(
    ("spec", "messages"),
    [
        (workload("StatefulSet", replicas=2), ["x-0 1", "x-1 1"]),
        (workload("ReplicaSet", replicas=2), ["x-xxxxx 1", "x-xxxxx 1"]),
        ({"kind": "Pod", **template()}, ["arrival-1 1"]),
    ],
    ids=str,
)
def test_rules_read_the_names_and_the_default_requests_of_the_api_server(
    spec: dict[str, Any], messages: list[str], folder: Path
) -> None:
    read = "object.metadata.name + ' ' + object.spec.containers[0].resources.requests['nvidia.com/gpu']"
    validations = f'{{validations: [{{expression: "false", messageExpression: "{read}"}}]}}'
    (folder / "rule.yaml").write_text(rule("Validation", validations))
    kind = "pod" if spec["kind"] == "Pod" else "workload"
    simulation = sound(folder, scenario(f"[{{{kind}: {json.dumps(spec)}}}]"))
    record = play_simulation(simulation, read_rules([folder / "rule.yaml"]).rule_set, "")
    assert [found.admitted.message.partition(": ")[2] for found in record.pods] == messages


CLASSES = """\
{nodes: [{name: w}], objects: [
  {kind: PriorityClass, metadata: {name: high}, value: 1000, preemptionPolicy: Never},
  {kind: PriorityClass, metadata: {name: usual}, value: 5, globalDefault: true},
  {kind: PriorityClass, metadata: {name: other}, value: 7, globalDefault: true}]}"""


def created_spec(simulation: Simulation) -> Any:
    """Return the spec of the first pod as the API server creates it."""
    (arrival,) = simulation.arrivals
    return ApiServer(simulation.objects).mutate(arrival.groups[0].pod, arrival.namespace).pod["spec"]


@pytest.mark.parametrize(
    ("spec", "arrival", "expected"),
    [
        ("priorityClassName: high, ", "", ("high", 1000, "Never")),
        (
            "priorityClassName: high, preemptionPolicy: PreemptLowerPriority, ",
            "",
            ("high", 1000, "PreemptLowerPriority"),
        ),
        ("", "", ("usual", 5, "PreemptLowerPriority")),
        ("priorityClassName: other, ", "", ("other", 7, "PreemptLowerPriority")),
        (
            "priorityClassName: system-node-critical, ",
            "",
            ("system-node-critical", 2_000_001_000, "PreemptLowerPriority"),
        ),
        (
            "priorityClassName: system-cluster-critical, ",
            "",
            ("system-cluster-critical", 2_000_000_000, "PreemptLowerPriority"),
        ),
        ("", ", priority: 12", (None, 12, "PreemptLowerPriority")),
    ],
)
def test_priorities_come_from_priority_classes(
    spec: str, arrival: str, expected: tuple[str | None, int, str | None], folder: Path
) -> None:
    pod = f"{{pod: {{spec: {{{spec}containers: [{{name: c}}]}}}}{arrival}}}"
    pod_spec = created_spec(sound(folder, scenario(f"[{pod}]", cluster=CLASSES)))
    assert tuple(pod_spec.get(name) for name in ("priorityClassName", "priority", "preemptionPolicy")) == expected


def test_pods_of_the_cluster_have_the_priorities_of_their_classes(folder: Path) -> None:
    specs = ["", "priorityClassName: high, ", "priorityClassName: high, priority: 3, ", "priorityClassName: gone, "]
    pods = [
        f"{{metadata: {{name: p{number}}}, spec: {{nodeName: w, {spec}containers: [{{name: c}}]}}}}"
        for number, spec in enumerate(specs)
    ]
    cluster = f"{CLASSES[:-1]}, pods: [{', '.join(pods)}]}}"
    cluster_objects = sound(folder, scenario(cluster=cluster)).objects
    assert [pod.spec.get("priority") for pod in cluster_objects.pods] == [5, 1000, 3, None]
    assert [node.name for node in cluster_objects.nodes] == ["w"]
    assert cluster_objects.pods[0].cluster is cluster_objects
    critical = pods[1].replace("high", "system-node-critical")
    (pod,) = sound(folder, scenario(cluster=f"{{nodes: [{{name: w}}], pods: [{critical}]}}")).objects.pods
    assert pod.spec["priority"] == 2_000_001_000


def test_pods_without_a_priority_class_stay_as_they_are(folder: Path) -> None:
    (found,) = sound(folder, scenario(f"[{{pod: {POD}}}]")).arrivals
    assert found.groups[0].pod["spec"] == {"containers": [{"name": "c"}]}


def test_the_cluster_may_be_the_output_of_kubectl(folder: Path) -> None:
    items = [
        {"kind": "Node", "metadata": {"name": "live"}},
        {"kind": "Pod", "metadata": {"name": "a", "namespace": "ml"}, "spec": {"containers": [{"name": "c"}]}},
        {"kind": "PriorityClass", "metadata": {"name": "high"}, "value": 3},
    ]
    (folder / "live.json").write_text(json.dumps({"kind": "List", "items": items}))
    pod = "{kind: Pod, spec: {priorityClassName: high, containers: [{name: c}]}}"
    simulation = sound(folder, scenario(f"[{{pod: {pod}}}]", cluster="{file: live.json}"))
    assert [node.name for node in simulation.objects.nodes] == ["live"]
    assert [pod.object_name.name for pod in simulation.objects.pods] == ["a"]
    assert created_spec(simulation)["priority"] == 3


def test_a_node_takes_as_many_pods_as_its_allocatable_says(folder: Path) -> None:
    arrivals = "[{count: 3, pod: {metadata: {name: p}, spec: {containers: [{name: c}]}}}]"

    record = play_simulation(
        sound(folder, scenario(arrivals, cluster="{nodes: [{name: w, allocatable: {pods: 2}}]}")), RULES, ""
    )

    assert [pod.node for pod in record.pods] == ["w", "w", ""]
    assert record.pods[2].message == "0/1 nodes are available: 1 Too many pods."


def test_the_cluster_argument_replaces_the_cluster_of_the_scenario(folder: Path) -> None:
    text = scenario("[]", "events: [{at: 1s, node: gpu-sim-cluster-worker, becomes: Cordoned}]", "{file: absent.yaml}")
    simulation = sound(folder, text, "two-workers.yaml")
    assert [node.name for node in simulation.cluster.nodes] == ["gpu-sim-cluster-worker"]
    without = rule("Simulation", "{arrivals: []}")
    assert sound(folder, without, "two-workers.yaml").objects.nodes
    assert messages(folder, without) == [
        "1:1: the simulation has no 'cluster': write one, or pass --cluster [missing-field]"
    ]


def test_a_node_that_joined_lists_have_twice_is_one_node(folder: Path) -> None:
    items = [{"kind": "Node", "metadata": {"name": name}} for name in ("a", "b", "a", "b")]
    (folder / "live.json").write_text(json.dumps({"kind": "List", "items": items}))
    made = sound(folder, scenario(cluster="{file: live.json}"))
    assert [node.name for node in made.cluster.nodes] == ["a", "b"]


def test_a_simulation_without_a_cluster_is_checked_as_far_as_possible(folder: Path) -> None:
    events = "events: [{at: 1s, node: any, becomes: Ready}]"
    pod = "{spec: {priorityClassName: any, containers: [{name: c}]}}"
    loaded = load_text(folder, rule("Simulation", f"{{arrivals: [{{pod: {pod}}}], {events}}}"))
    assert loaded.problems == ()
    assert len(loaded.of(Simulation)) == 1


UNITS = "write a number, then one of n, u, m, k, M, G, T, P, E, Ki, Mi, Gi, Ti, Pi, Ei or an exponent"

ARRIVAL_PROBLEMS = [
    ("{at: 90, pod: P}", "at must be text, not a number: write a duration such as 90s [wrong-type]"),
    ("{at: 1:30, pod: P}", "'1:30' is not a duration such as 1h30m [wrong-form]"),
    ("{at: soon, pod: P}", "'soon' is not a duration such as 1h30m [wrong-form]"),
    ("{at: -5s, pod: P}", "'-5s' is not a duration: it cannot be negative [wrong-form]"),
    ("{at: 9999d, pod: P}", "a duration is at most 3650d, ten years [wrong-value]"),
    ("{at: 0.5ms, pod: P}", "a duration is a whole number of milliseconds [wrong-value]"),
    ("{at: {mean: 1s}, pod: P}", "at must be text, not a map [wrong-type]"),
    ("{runFor: 90, pod: P}", "runFor must be text or a map, not a number: write a duration such as 90s [wrong-type]"),
    ("{runFor: -1h, pod: P}", "'-1h' is not a duration or distribution: it cannot be negative [wrong-form]"),
    ("{runFor: {}, pod: P}", "runFor must not be empty [wrong-count]"),
    ("{runFor: {min: 1h}, pod: P}", "runFor needs 'max' [missing-field]"),
    ("{runFor: {max: 1h}, pod: P}", "runFor needs 'min' [missing-field]"),
    ("{runFor: {min: 2h, max: 1h}, pod: P}", "max is shorter than min [wrong-value]"),
    ("{runFor: {min: 2h, max: x}, pod: P}", "'x' is not a duration such as 1h30m [wrong-form]"),
    ("{runFor: {mean: 0s}, pod: P}", "the mean must be longer than 0s [wrong-value]"),
    (
        "{runFor: {min: 1s, max: 1h, mean: 1m}, pod: P}",
        "'mean' cannot be used together with 'min' and 'max' [conflicting-fields]",
    ),
    ("{every: 1s, pod: P}", "'every' needs 'count', the number of arrivals [missing-field]"),
    ("{count: 0, pod: P}", "count cannot be less than 1 [wrong-value]"),
    ("{count: 1000001, pod: P}", "count cannot be more than 1000000 [wrong-value]"),
    ("{priority: 1000000001, pod: P}", "priority cannot be more than 1000000000 [wrong-value]"),
    ("{at: 1s}", "arrival needs 'pod' or 'podFile' or 'workload' or 'workloadFile' [missing-field]"),
    ("{pod: P, podFile: one.yaml}", "'pod' and 'podFile' cannot be used together [conflicting-fields]"),
    ("{podFile: one.yaml}", "file or folder 'FOLDER/one.yaml' not found [missing-file]"),
    ("{workloadFile: one.yaml}", "file or folder 'FOLDER/one.yaml' not found [missing-file]"),
    ("{podFile: two.yaml}", "'FOLDER/two.yaml' is not a manifest, or has errors [bad-reference]"),
    ("{workloadFile: empty.yaml}", "'FOLDER/empty.yaml' is not a manifest, or has errors [bad-reference]"),
    ("{workloadFile: two.yaml}", "expected one workload, not 2, such as a Deployment or a Job [not-a-workload]"),
    (
        "{workload: {kind: ConfigMap}}",
        "expected an object with a pod template, such as a Deployment or a Job [not-a-workload]",
    ),
    (
        "{workload: {kind: DaemonSet, spec: {template: T}}}",
        "pods of a DaemonSet do not arrive: write them in 'pods' of the cluster, on its nodes [not-a-workload]",
    ),
    ("{pod: {kind: Job, spec: {template: T}}}", "a Job is not a Pod: write it in 'workload' [not-a-pod]"),
    ("{pod: {}}", "expected a Pod (spec, with a list of containers) or something with a pod template [not-a-pod]"),
    ("{pod: {spec: {containers: []}}}", "the pod has no containers: Kubernetes rejects it [no-containers]"),
    ("{pod: {kind: Pod, spec: {}}}", "the pod has no containers: Kubernetes rejects it [no-containers]"),
    ("{pod: {kind: Pod}}", "the pod has no containers: Kubernetes rejects it [no-containers]"),
    ("{pod: {metadata: {name: A_b}, spec: {containers: [{name: c}]}}}", "'A_b' is not a name of Kubernetes [bad-pod]"),
    (
        "{workload: {kind: Job, metadata: {name: a.b, namespace: a.b}, spec: {template: T}}}",
        "'a.b' is not a namespace of Kubernetes [bad-pod]",
    ),
    ("{pod: {spec: {containers: [{name: 3}]}}}", "/spec/containers/0/name: must be a string, not a number [bad-pod]"),
    ("{pod: {spec: {tolerations: 3, containers: [{name: c}]}}}", "must be a list, not a number [bad-pod]"),
    (
        "{pod: {spec: {containers: [{name: c, resources: {limits: {cpu: -1}}}]}}}",
        "cpu cannot be negative: Kubernetes rejects the pod [bad-pod]",
    ),
    (
        "{pod: {spec: {containers: [{name: c, resources: {requests: {a.b/c: 0.5}}}]}}}",
        "a.b/c must be a whole number: Kubernetes rejects the pod [bad-pod]",
    ),
    (
        "{workload: {kind: Job, spec: {parallelism: many, template: T}}}",
        "parallelism must be a whole number, not a string [wrong-type]",
    ),
    (
        "{workload: {kind: Job, spec: {completions: -1, template: T}}}",
        "completions cannot be less than 0 [wrong-value]",
    ),
    (
        "{workload: {kind: Deployment, spec: {replicas: 1.5, template: T}}}",
        "replicas must be a whole number, not 1.5 [wrong-type]",
    ),
    ("{namespace: b, pod: NAMED}", "Pod/one has namespace a, not b [conflicting-fields]"),
    (
        "{pod: {spec: {priorityClassName: hihg, containers: [{name: c}]}}}",
        "PriorityClass 'hihg' not found (did you mean 'high'?) [unknown-priority-class]",
    ),
    (
        "{priority: 1, pod: {spec: {priorityClassName: high, containers: [{name: c}]}}}",
        "'priority' of the arrival and 'priorityClassName' of its pod cannot be used together [conflicting-fields]",
    ),
    ("{at: 3h, pod: P}", "this is after 'until', the end of the simulation [after-until]"),
]


@pytest.mark.parametrize(("arrival", "message"), ARRIVAL_PROBLEMS)
def test_an_arrival_that_cannot_be_simulated_is_a_problem(arrival: str, message: str, folder: Path) -> None:
    (folder / "two.yaml").write_text(f"{JOB}\n---\n{JOB}\n")
    (folder / "empty.yaml").write_text("---\n")
    named = "{metadata: {name: one, namespace: a}, spec: {containers: [{name: c}]}}"
    arrival = arrival.replace("NAMED", named).replace("P}", f"{POD}}}").replace("P,", f"{POD},")
    arrival = arrival.replace("T}", "{spec: {containers: [{name: c}]}}}")
    cluster = "{nodes: [{name: w}], objects: [{kind: PriorityClass, metadata: {name: high}, value: 3}]}"
    reported = messages(folder, scenario(f"[{arrival}]", "until: 2h", cluster))
    shown = [text.partition(": ")[2] for text in reported if not text.endswith("[unknown-pods]")]
    assert shown == [message.replace("FOLDER", str(folder))]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("events: [{at: 1s, node: w-3, becomes: Ready}]", "node 'w-3' not found (did you mean 'w-2'?) [unknown-node]"),
        (
            "events: [{at: 3h, node: w-1, becomes: Ready}]",
            "this is after 'until', the end of the simulation [after-until]",
        ),
        ("events: [{node: w-1, becomes: Ready}]", "event needs 'at' [missing-field]"),
        ("events: [{at: 1s, becomes: Ready}]", "event needs 'node' [missing-field]"),
        ("events: [{at: 1s, node: w-1}]", "event needs 'becomes' [missing-field]"),
        (
            "events: [{at: 1s, node: w-1, becomes: Broken}]",
            "'Broken' is not one of NotReady, Ready, Cordoned, Uncordoned, Drained [wrong-value]",
        ),
        ("seed: -1", "seed cannot be less than 0 [wrong-value]"),
        ("runningFor: {mean: 0s}", "the mean must be longer than 0s [wrong-value]"),
        ("scheduler: {resources: {}}", "resources must not be empty [wrong-count]"),
        ("scheduler: {resources: {cpu: 0}}", "cpu cannot be less than 1 [wrong-value]"),
        ("scheduler: {scoring: Best}", "'Best' is not one of LeastAllocated, MostAllocated [wrong-value]"),
    ],
)
def test_other_fields_that_cannot_be_simulated_are_problems(more: str, message: str, folder: Path) -> None:
    reported = messages(folder, scenario("[]", f"until: 2h, {more}"))
    assert [text.partition(": ")[2] for text in reported] == [message]


def test_all_problems_are_reported_in_one_run_in_file_order(folder: Path) -> None:
    (folder / "pods.yaml").write_text("kind: Pod\nkind: Pod\n")
    text = """\
apiVersion: gpurules.io/v1
kind: Simulation
metadata: {name: wrong}
spec:
  cluster: {nodes: [{name: w, allocatable: {nvidia.com/gpu: many}}]}
  arrivals:
    - {at: 1m 5s, runFor: -3s, pod: {spec: {containers: []}}}
    - {podFile: pods.yaml, priority: high}
  events: [{at: 1s, node: x, becomes: Ready}]
  until: 1
"""
    assert messages(folder, text) == [
        f"5:61: 'many' is not a quantity: {UNITS} [bad-quantity]",
        "7:12: '1m 5s' is not a duration such as 1h30m [wrong-form]",
        "7:27: '-3s' is not a duration or distribution: it cannot be negative [wrong-form]",
        "7:45: the pod has no containers: Kubernetes rejects it [no-containers]",
        f"8:17: '{folder}/pods.yaml' is not a manifest, or has errors [bad-reference]",
        "8:38: priority must be a whole number, not text [wrong-type]",
        "9:27: node 'x' not found [unknown-node]",
        "10:10: until must be text, not a number: write a duration such as 90s [wrong-type]",
        "2:1: 'kind' is already set in line 1 [yaml-duplicate-key]",
    ]


@pytest.mark.parametrize(
    ("first", "second", "name"),
    [
        ("pod: {metadata: {name: a}, T}", "pod: {metadata: {name: a}, T}", "a"),
        ("count: 3, pod: {metadata: {name: a}, T}", "pod: {metadata: {name: a-3}, T}", "a-3"),
        ("pod: {metadata: {name: a-3}, T}", "count: 3, pod: {metadata: {name: a}, T}", "a-3"),
        ("count: 2, pod: {metadata: {name: a}, T}", "count: 3, pod: {metadata: {name: a}, T}", "a-1"),
        ("pod: {metadata: {name: a}, T}", "name: a, pod: {metadata: {name: b}, T}", "a"),
    ],
)
def test_two_pods_cannot_have_one_name(first: str, second: str, name: str, folder: Path) -> None:
    arrivals = f"[{{{first}}}, {{{second}}}]".replace("T", "spec: {containers: [{name: c}]}")
    (found,) = messages(folder, scenario(arrivals))
    message = f"Pod '{name}' is in line 4 already: write 'name' for another one [duplicate-name]"
    assert found.partition(": ")[2] == message


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("count: 3, pod: {metadata: {name: a}, T}", "pod: {metadata: {name: a-4}, T}"),
        ("count: 3, pod: {metadata: {name: a}, T}", "count: 3, pod: {metadata: {name: a-1}, T}"),
        ("pod: {metadata: {name: a-4}, T}", "count: 3, pod: {metadata: {name: a}, T}"),
        ("namespace: b, pod: {metadata: {name: a}, T}", "pod: {metadata: {name: a}, T}"),
        ("name: b, pod: {metadata: {name: a}, T}", "pod: {metadata: {name: a}, T}"),
    ],
)
def test_pods_with_other_names_arrive_beside_each_other(first: str, second: str, folder: Path) -> None:
    arrivals = f"[{{{first}}}, {{{second}}}]".replace("T", "spec: {containers: [{name: c}]}")
    assert len(sound(folder, scenario(arrivals)).arrivals) == 2


@given(arrivals=st.lists(st.tuples(st.sampled_from(["a", "a-1", "a-2", "a-10", "b"]), st.integers(1, 3)), max_size=5))
def test_names_are_reported_if_and_only_if_two_pods_have_one(arrivals: list[tuple[str, int]], tmp_path: Path) -> None:
    lines = [f"{{name: {name}, count: {count}, pod: {POD}}}" for name, count in arrivals]
    _, problems = read(tmp_path, scenario(f"[{', '.join(lines)}]"))
    names = [name if count == 1 else f"{name}-{number}" for name, count in arrivals for number in range(1, count + 1)]
    assert set(codes(problems)) == ({"duplicate-name"} if len(set(names)) < len(names) else set())


def test_an_arrival_cannot_take_the_name_of_a_cluster_pod(folder: Path) -> None:
    there = "{metadata: {name: one}, spec: {nodeName: w, containers: [{name: c}]}}"
    cluster = f"{{nodes: [{{name: w}}], pods: [{there}]}}"
    (found,) = messages(folder, scenario(f"[{{pod: {POD}}}]", cluster=cluster))
    assert found.endswith(": Pod 'one' is in the cluster already: write 'name' for another one [duplicate-name]")


@pytest.mark.parametrize(("count", "replicas"), [(1_000_000, 2), (2, 500_001)])
def test_the_number_of_pods_is_bounded(count: int, replicas: int, folder: Path) -> None:
    deployment = json.dumps(workload("Deployment", replicas=replicas))
    (message,) = messages(folder, scenario(f"[{{count: {count}, workload: {deployment}}}]"))
    assert message.endswith(": more than 1,000,000 pods arrive [too-many-pods]")


def test_too_many_pods_in_all_are_one_problem(folder: Path) -> None:
    arrivals = [f"{{count: {MAX_PODS // 2}, name: n{number}, pod: {POD}}}" for number in range(4)]
    (message,) = messages(folder, scenario(f"[{', '.join(arrivals)}]"))
    assert message.endswith(": more than 1,000,000 pods arrive [too-many-pods]")


def test_schema_bounds_equal_value_type_bounds() -> None:
    spec = schema("Simulation")["properties"]["spec"]["properties"]
    assert spec["arrivals"]["items"]["properties"]["count"]["maximum"] == MAX_PODS
    assert spec["events"]["items"]["properties"]["becomes"]["enum"] == [state.value for state in NodeState]
    assert spec["scheduler"]["properties"]["scoring"]["enum"] == [strategy.value for strategy in Strategy]


def test_a_scenario_is_one_simulation(folder: Path) -> None:
    assert messages(folder, CLUSTER) == [
        "2:7: ClusterInventory is not a Simulation: expected a Simulation [not-a-simulation]"
    ]
    twice = f"{scenario()}---\n{scenario().replace('name: x', 'name: z')}"
    assert messages(folder, twice) == ["8:18: expected one Simulation, not 2 [not-a-simulation]"]
    assert messages(folder, "kind: Pod\n") == ["1:7: Pod is not a Simulation: expected a Simulation [not-a-simulation]"]
    assert codes(load_simulations(folder / "absent.yaml", [])[1]) == ["missing-file"]


def test_a_scenario_may_be_beside_its_cluster_and_rules(folder: Path) -> None:
    assert sound(folder, f"{CLUSTER}---\n{scenario()}---\n{rule('FallbackLadder', '{rungs: [broken]}')}").name == "x"


def test_a_given_cluster_with_errors_is_a_problem(folder: Path) -> None:
    (folder / "broken.yaml").write_text("kind: Pod\n")
    events = "events: [{at: 1s, node: other, becomes: Ready}]"
    message, unnamed = messages(folder, scenario("[]", events), "broken.yaml")
    assert unnamed.startswith("1:1: a Pod without a name is left out")
    assert message.startswith("1:1: no node found: expected a ClusterInventory, or a file of ")


def test_the_cluster_of_a_file_with_errors_is_a_problem(folder: Path) -> None:
    (folder / "broken.yaml").write_text("kind: Pod\n")
    reported = messages(folder, scenario("[]", cluster="{file: broken.yaml}"))
    assert reported[0] == f"4:24: '{folder}/broken.yaml' is not a cluster, or has errors [bad-reference]"


def test_an_error_of_a_simulation_leaves_the_rules_as_they_are(folder: Path) -> None:
    ladder = rule("FallbackLadder", "{rungs: [{resource: nvidia.com/gpu}]}")
    (folder / "a.yaml").write_text(ladder)
    (folder / "b.yaml").write_text(scenario("[{at: never}]"))
    (folder / "c.yaml").write_text("kind: Simulation\nspec: [\n")
    files = read_rules([folder / name for name in ("a.yaml", "b.yaml", "c.yaml")], DOCUMENTS)
    assert files.failed
    assert files.rule_problems == ()
    assert len(files.loaded.rules) == 1
    assert files.loaded.of(Simulation) == ()


def test_a_manifest_is_read_once(folder: Path) -> None:
    (folder / "broken.yaml").write_text("kind: [")
    reported = messages(folder, scenario("[{podFile: broken.yaml}, {podFile: broken.yaml, name: b}]"))
    assert [text.rpartition("[")[2] for text in reported] == ["bad-reference]", "bad-reference]", "yaml-syntax]"]
    arrivals = sound(folder, scenario("[{workloadFile: job.yaml}, {workloadFile: job.yaml, name: b}]")).arrivals
    assert [arrival.title for arrival in arrivals] == ["Job/t", "Job/b"]


def test_files_that_a_simulation_refers_to_are_references(folder: Path) -> None:
    loaded = load_text(folder, TEN_PODS)
    assert loaded.problems == ()
    assert [path.name for path in loaded.references] == ["two-workers.yaml", "job.yaml"]
    assert load_documents([folder]).passed_over == ()
