"""Pods in manifests."""

import sys
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest

from rules_engine.cluster.read.manifests import Manifest, find_manifests
from rules_engine.language.files import STDIN
from rules_engine.language.yaml.documents import Dialect
from rules_engine.model.problems.problem import Problems
from tests.support.loading import codes, documents, load_pods, read_pods

TEMPLATE = "{metadata: {labels: {a: b}}, spec: {containers: [{name: c}]}}"
POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c"}]}}


def pods(text: str) -> tuple[Manifest, ...]:
    manifests, problems, sources = read_pods(text)
    assert problems == ()
    assert ["".join(f"{line}\n" for line in lines[:-1]) for lines in sources.values()] == [text]
    return manifests


@pytest.mark.parametrize(
    ("kind", "spec", "path"),
    [
        ("Deployment", f"spec: {{template: {TEMPLATE}}}", "spec/template"),
        ("PodTemplate", f"template: {TEMPLATE}", "template"),
        ("Odd", f"a: [[{TEMPLATE}]]", "a/0/0"),
    ],
)
def test_a_pod_template_is_found_in_any_kind_of_object(kind: str, spec: str, path: str) -> None:
    ((found,), _, _) = read_pods(f"kind: {kind}\nmetadata: {{name: it, namespace: ml}}\n{spec}\n")
    assert (found.kind, found.name, found.namespace) == (kind, "it", "ml")
    assert "/".join(map(str, found.path)) == path
    assert found.pod == POD


def test_every_member_of_a_pod_is_kept() -> None:
    (found,) = pods(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: ml}\nspec: {containers: [{name: c}]}\n"
        "status: {phase: Running}\n"
    )
    assert (found.kind, found.name, found.namespace, found.path) == ("Pod", "p", "ml", ())
    assert found.pod == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "ml"},
        "spec": {"containers": [{"name": "c"}]},
        "status": {"phase": "Running"},
    }


def test_an_object_with_containers_and_no_kind_is_a_pod() -> None:
    (found,) = pods("spec: {containers: [{name: c}]}\n")
    assert (found.kind, found.name, found.namespace) == ("Pod", "", "")
    assert found.pod["metadata"] == {}


def test_a_template_supplies_the_namespace_that_its_owner_lacks() -> None:
    (found,) = pods("kind: Job\nspec: {template: {metadata: {namespace: ml}, spec: {containers: [{name: c}]}}}\n")
    assert found.namespace == "ml"


def test_every_pod_is_located_in_every_document_and_list() -> None:
    manifests = pods(
        "kind: Pod\nspec: {containers: [{name: c}]}\n---\n---\nkind: List\nitems:\n"
        "- kind: Pod\n  spec: {containers: [{name: c}]}\n"
        "- kind: Job\n  spec:\n    template:\n      spec: {containers: [{name: c}]}\n- 3\n"
        "---\nkind: PodList\nitems: [{spec: {containers: [{name: c}]}}]\n---\nkind: ConfigMap\n---\n- 3\n"
    )
    assert [(item.kind, item.location.line) for item in manifests] == [("Pod", 1), ("Pod", 7), ("Job", 12), ("Pod", 16)]


def test_quantities_keep_their_text() -> None:
    text = (
        "kind: Pod\nspec: {overhead: {cpu: 0.10}, priority: 3, containers: [{name: c, resources: "
        "{limits: {nvidia.com/gpu: 1, cpu: 1e3, memory: 8Gi, a/b: null, c/d: true}, requests: [1.0]}}], "
        "volumes: [{name: shm, emptyDir: {medium: Memory, sizeLimit: 1024}}]}\n"
    )
    (document,), _ = documents(text, Dialect.MANIFESTS)
    (found,) = find_manifests(document.root, Problems())
    assert found.pod["spec"] == {
        "overhead": {"cpu": "0.10"},
        "priority": 3,
        "containers": [
            {
                "name": "c",
                "resources": {
                    "limits": {"nvidia.com/gpu": "1", "cpu": "1e3", "memory": "8Gi", "a/b": None, "c/d": True},
                    "requests": [1.0],
                },
            }
        ],
        "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1024"}}],
    }


@pytest.mark.parametrize(
    ("head", "name", "expected"),
    [
        ("kind: ReplicaSet, metadata: {name: serve}", "", {"generateName": "serve-"}),
        ("kind: ReplicaSet, metadata: {name: serve}", "other", {"generateName": "other-"}),
        ("kind: Job, metadata: {generateName: train-}", "", {"generateName": "train-xxxxx-"}),
        ("kind: Job, metadata: {name: train, generateName: x-}", "", {"generateName": "train-"}),
        ("kind: StatefulSet, metadata: {name: web}", "", {"generateName": "web-", "name": "web-0"}),
        ("kind: StatefulSet", "", {}),
    ],
)
def test_a_controller_submits_its_pod_with_other_names_than_the_template(
    head: str, name: str, expected: dict[str, str]
) -> None:
    template = "{metadata: {name: ignored, labels: {a: b}}, spec: {containers: [{name: c}]}}"
    (found,) = pods(f"{{{head}, spec: {{template: {template}}}}}\n")
    submitted = found.submitted(name)
    metadata: Any = submitted["metadata"]
    assert {key: metadata[key] for key in metadata if key in ("name", "generateName")} == expected
    assert metadata["labels"]["a"] == "b"


@pytest.mark.parametrize(
    ("metadata", "name", "expected"),
    [
        ("{name: a}", "", {"name": "a"}),
        ("{name: a}", "a-1", {"name": "a-1"}),
        ("{generateName: a-}", "", {"generateName": "a-"}),
    ],
)
def test_a_pod_is_submitted_with_its_own_names_and_default_requests(
    metadata: str, name: str, expected: dict[str, str]
) -> None:
    container = "{name: c, resources: {limits: {cpu: 2, memory: 1Gi}, requests: {cpu: 1}}}"
    (found,) = pods(f"{{kind: Pod, metadata: {metadata}, spec: {{containers: [{container}]}}}}\n")
    submitted: Any = found.submitted(name)
    assert submitted["metadata"] == expected
    assert submitted["spec"]["containers"][0]["resources"] == {
        "limits": {"cpu": "2", "memory": "1Gi"},
        "requests": {"cpu": "1", "memory": "1Gi"},
    }


def test_json_from_standard_input_may_be_indented_by_tabs(monkeypatch: pytest.MonkeyPatch) -> None:
    text = b'{\n\t"kind": "Pod",\n\t"spec": {"containers": [{"name": "c"}]}\n}\n'
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(text)))
    (found,), problems, sources = load_pods(STDIN)
    assert (found.kind, found.location.file, problems, list(sources)) == ("Pod", "<stdin>", (), ["<stdin>"])


def test_closed_standard_input_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    manifests, (problem,), _ = load_pods(STDIN)
    assert (manifests, problem.code) == ((), "unreadable-file")


def warned(text: str) -> list[str]:
    """Line, column and message of each warning about a text that has pods, except for their number."""
    manifests, problems, _ = read_pods(text)
    problems = tuple(problem for problem in problems if problem.code != "unknown-pods")
    assert manifests
    assert {problem.severity.value for problem in problems} <= {"warning"}
    return [f"{problem.location.line}:{problem.location.column}: {problem.message}" for problem in problems]


@pytest.mark.parametrize("kind", ["Deployment", "CronJob"])
def test_a_template_of_kubernetes_own_objects_needs_no_containers(kind: str) -> None:
    template = "template: {spec: {container: [{name: c}]}}"
    spec = f"jobTemplate: {{spec: {{{template}}}}}" if kind == "CronJob" else template
    [warning] = warned(f"kind: {kind}\nspec:\n  {spec}\n")
    assert warning.startswith("3:")
    assert "PodSpec has no field 'container' (did you mean 'containers'?): Kubernetes drops it" in warning
    manifests, problems, _ = read_pods(f"kind: {kind}\nspec: {{template: 3, jobTemplate: [], replicas: 3}}\n")
    assert (manifests, codes(problems)) == ((), ["not-a-pod"])


def test_other_projects_templates_may_have_extra_fields() -> None:
    knative = "kind: Service\nspec: {template: {spec: {containerConcurrency: 3, containers: [{name: c, imag: x}]}}}\n"
    assert warned(knative) == ["2:74: Container has no field 'imag' (did you mean 'image'?): Kubernetes drops it"]


POD_TEMPLATE = "{spec: {containers: [{name: c}]}}"


@pytest.mark.parametrize(
    ("text", "warnings"),
    [
        (
            "kind: Deploymnet\nspec: {template: T}",
            ["1:7: Kubernetes has no kind 'Deploymnet' (did you mean 'Deployment'?)"],
        ),
        (
            "kind: job\napiVersion: batch/v1\nspec: {template: T}",
            ["1:7: Kubernetes has no kind 'job' (did you mean 'Job'?)"],
        ),
        (
            "kind: Job\napiVersion: batch/v1\nmetadata: {nme: x}\nspec: {template: T}",
            ["3:12: ObjectMeta has no field 'nme' (did you mean 'name'?): Kubernetes drops it"],
        ),
        ("kind: Job\nspec: {templte: T}", ["2:8: Job has no field 'templte' here: Kubernetes expects 'template'"]),
        ("kind: Job\nspc: {template: T}", ["2:1: Job has no field 'spc' here: Kubernetes expects 'spec'"]),
        (
            "kind: CronJob\nspec: {job: {spec: {template: T}}}",
            ["2:8: CronJob has no field 'job' here: Kubernetes expects 'jobTemplate'"],
        ),
        ("kind: Job\nspec: [{template: T}]", []),
        ("kind: Job\nspec: {template: [T]}", []),
        ("kind: Job\napiVersion: batch.volcano.sh/v1\nmetadata: {nme: x}\nspec: {tasks: [{template: T}]}", []),
        ("kind: Deploymnet\napiVersion: x.y/v1\nspec: {template: T}", []),
        ("kind: Rollout\nspec: {template: T}", []),
        ("spec: {template: T}", []),
    ],
)
def test_a_mistyped_workload_is_a_warning(text: str, warnings: list[str]) -> None:
    assert warned(f"{text.replace('T}', POD_TEMPLATE + '}').replace('T]', POD_TEMPLATE + ']')}\n") == warnings


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind: Odd\nmetadata: {name: x}\nspec: {template: T}", "number of pods of Odd/x unknown: 1 assumed (Odd is"),
        ("spec: {template: T}", "number of pods of Pod/(no name) unknown: 1 assumed (it is"),
        ("kind: Job\nspec: [{template: T}]", "number of pods of Job/(no name) unknown: 1 assumed (its kind has"),
        ("kind: Odd\nspec: {gpus: {nvidia.com/gpu: 8}}", "pods of Odd/(no name) unknown: it names nvidia.com/gpu, and"),
        ("kind: Odd\nspec: {resource: amd.com/gpu}", "pods of Odd/(no name) unknown: it names amd.com/gpu, and Odd is"),
        ("kind: Node\nstatus: {capacity: {nvidia.com/gpu: 8}}", "Node is not a pod and has no pod template"),
        ("kind: Odd\nspec: {image: nvidia/cuda, label: gpu}", "Odd is not a pod and has no pod template"),
    ],
)
def test_pods_of_a_kind_in_no_table_are_a_warning(text: str, message: str) -> None:
    _, (problem,), _ = read_pods(f"{text.replace('T}', POD_TEMPLATE + '}')}\n")
    assert problem.message.startswith(message)
    assert problem.code == ("unknown-pods" if "unknown" in message else "not-a-pod")


@pytest.mark.parametrize(("kind", "meant"), [("pod", "Pod"), ("Jbo", "Job"), ("StatefulSets", "StatefulSet")])
def test_a_mistyped_kind_of_an_object_without_pods_has_a_suggestion(kind: str, meant: str) -> None:
    _, (problem,), _ = read_pods(f"kind: {kind}\nspec: {{}}\n")
    assert problem.message == f"{kind} is not a pod and has no pod template (did you mean '{meant}'?)"


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ("image: y", '3:12: must be a string, not a boolean: write "y"'),
        ("image: 08", '3:12: must be a string, not a number: write "08"'),
        ("env: [{name: A, value: true}]", '3:28: must be a string, not a boolean: write "true"'),
        ("command: python x", "3:14: must be a list, not a string"),
        ("ports: {containerPort: 80}", "3:12: must be a list, not an object"),
        ("ports: [{containerPort: '80'}]", "3:30: must be a number, not a string"),
        ("tty: 'yes'", "3:11: must be a boolean, not a string"),
        ("securityContext: 1", "3:22: must be an object, not a number"),
        ("tty: yes, image: '1', env: , command: [a], ports: [{containerPort: 80}]", None),
    ],
)
def test_a_value_that_kubectl_sends_with_a_wrong_type_is_an_error(members: str, message: str | None) -> None:
    found, problems, _ = read_pods(f"kind: Pod\nspec: {{containers: [{{name: c,\n    {members}}}]}}\n")
    places = [f"{problem.location.line}:{problem.location.column}: {problem.message}" for problem in problems]
    assert (len(found), places) == ((1, []) if message is None else (0, [message]))


def test_fields_are_checked_in_lists_and_objects_not_in_open_maps() -> None:
    text = (
        "kind: Pod\nmetadata: {labels: {anything: x}, lables: {}}\nspec:\n  containers:\n"
        "  - {name: c, resources: {limits: {a.b/c: 1}}, env: [{name: x, valeu: z}]}\n"
    )
    assert [warning.split(":")[0] for warning in warned(text)] == ["2", "5"]


@pytest.mark.parametrize(
    ("spec", "warnings"),
    [
        ("{containers: []}", ["2:8: the pod has no containers: Kubernetes rejects it"]),
        ("{initContainers: [{name: a}]}", ["2:1: the pod has no containers: Kubernetes rejects it"]),
        ("", ["2:1: the pod has no containers: Kubernetes rejects it"]),
        (
            "{containers: [{name: a}, {name: b}, {name: a}], initContainers: [{name: b}, {image: x}, {name: null}]}",
            [
                "2:50: the container 'a' is already in line 2: Kubernetes rejects that",
                "2:79: the container 'b' is already in line 2: Kubernetes rejects that",
            ],
        ),
    ],
)
def test_a_pod_that_kubernetes_would_reject_has_a_warning(spec: str, warnings: list[str]) -> None:
    assert warned(f"kind: Pod\nspec: {spec}\n") == warnings
    assert warned("kind: Pod\n") == ["1:1: the pod has no containers: Kubernetes rejects it"]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "not-a-pod"),
        ("kind: Prometheus\nspec: {containers: [{name: c}]}\n", "not-a-pod"),
        ("kind: Pod\nkind: Pod\n", "yaml-duplicate-key"),
        ("kind: Pod\nspec: [\n", "yaml-syntax"),
        ("kind: Pod\nspec: {containers: {}}\n", "bad-pod"),
        ("#" * (4 * 2**20 + 1), "file-too-large"),
    ],
)
def test_a_text_without_pods_or_with_errors_gives_none(text: str, code: str) -> None:
    manifests, problems, _ = read_pods(text)
    assert (manifests, codes(problems)) == ((), [code])


def test_pods_are_read_from_files(tmp_path: Path) -> None:
    path = tmp_path / "pod.yaml"
    path.write_text("kind: Pod\nspec: {containers: [{name: c}]}\n")
    (found,), problems, sources = load_pods(path)
    assert (found.location.file, problems, list(sources)) == (str(path), (), [str(path)])
    assert codes(load_pods(tmp_path / "absent.yaml")[1]) == ["missing-file"]
    large = tmp_path / "large.json"
    large.write_text(" " * (4 * 2**20 + 1))
    assert codes(load_pods(large)[1]) == ["file-too-large"]
