"""`gpu-rules explain`: decisions for pods and workloads, with trace and changes."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from rules_engine.model.kubernetes.removed_values import remove_values
from tests.support.authoring import cli, injection, ladder, validation, write
from tests.support.cluster_files import CONTAINER, METADATA, SECRET
from tests.support.loading import rule
from tests.support.patching import apply_json

MIG = "nvidia.com/mig-2g.20gb"
LADDER = ladder("mig", MIG, "nvidia.com/mig-1g.10gb", "{resource: nvidia.com/gpu, assume: true}")
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: train}
spec:
  containers:
    - name: main
      image: cuda
      resources: {limits: {nvidia.com/mig-2g.20gb: 2}}
"""
NODE = "{name: node, allocatable: {nvidia.com/mig-1g.10gb: 1}}"
INVENTORY = rule("ClusterInventory", f"{{nodes: [{NODE}], namespaces: {{ml: {{team: ml}}}}}}", "inventory")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(write(tmp_path, {"rules/ladder.yaml": LADDER, "pod.yaml": POD, "cluster.yaml": INVENTORY}))
    return tmp_path


EXPLAINED = ("explain", "-f", "pod.yaml", "--rules", "rules", "--cluster", "cluster.yaml")


def test_each_container_that_requests_a_resource_is_named(folder: Path) -> None:
    side = "    - {name: side, resources: {requests: {nvidia.com/mig-2g.20gb: 1}}}\n    - {name: idle}\n"
    write(folder, {"pod.yaml": POD + side, "rules/more.yaml": injection("gpu")})
    out = cli(*EXPLAINED).stdout
    assert "├── main requests 2 of nvidia.com/mig-2g.20gb\n│   │   ├── side requests 1 of nvidia.com/mig-2g" in out
    assert "├── main requests 2 of nvidia.com/gpu\n│       ├── side requests 1 of nvidia.com/gpu\n" in out
    assert "idle requests" not in out
    trace = json.loads(cli(*EXPLAINED, "--output", "json").stdout)["pods"][0]["mutation"]["trace"]
    assert [step["requests"] for step in trace] == [
        [{"container": "main", "resource": name, "count": 2}, {"container": "side", "resource": name, "count": 1}]
        for name in (MIG, "nvidia.com/gpu")
    ]


def test_an_unchanged_pod_has_no_diff(folder: Path) -> None:
    write(folder, {"cluster.yaml": INVENTORY.replace("1g.10gb: 1", "2g.20gb: 2")})
    out = cli(*EXPLAINED).stdout
    assert "unchanged: nvidia.com/mig-2g.20gb is offered" in out
    assert "nvidia.com/mig-2g.20gb stays: offered" in out
    assert "@@" not in out
    assert out.endswith("\n\nallowed, unchanged\n")


def test_the_output_has_old_and_new_amounts_notes_and_annotations(folder: Path) -> None:
    rule = injection("gpu", gpuResource="x.y/gpu", coefficients="{cpu: 4, memory: 8Gi}", annotations="{net: eni}")
    pod = POD.replace(MIG, "x.y/gpu").replace("resources: {", "resources: {requests: {cpu: 1500m}, ")
    init = "  initContainers: [{name: init, resources: {limits: {x.y/gpu: 1}}}]\n"
    write(folder, {"rules/ladder.yaml": rule, "pod.yaml": pod + init})
    out = cli(*EXPLAINED).stdout
    assert "ResourceInjection/gpu  changed: 2 × x.y/gpu  rules/ladder.yaml:5:3 coefficients\n" in out
    assert "├── main  cpu: 1500m → 8\n" in out
    assert "├── main  memory: none → 16Gi\n" in out
    assert "├── annotation net: eni\n" in out
    ignored = "injects nothing into the init container init, which requests x.y/gpu (initContainers: Ignore)"
    assert f"└── warning: ResourceInjection/gpu {ignored}\n" in out
    level = "  resources: {limits: {cpu: 2}}\n"
    write(folder, {"rules/ladder.yaml": rule, "pod.yaml": pod + level})
    assert "├── spec.resources.limits  cpu: 2 → 8\n" in cli(*EXPLAINED).stdout
    write(folder, {"rules/ladder.yaml": f"{rule}  onConflict: Keep\n"})
    assert "└── note: the pod's own level (spec.resources) keeps its cpu: onConflict Keep\n" in cli(*EXPLAINED).stdout


DEFAULTS = """\
apiVersion: gpurules.io/v1
kind: PodDefaults
metadata: {name: gpu-pods}
spec:
  onConflict: Overwrite
  pod:
    metadata: {labels: {team: ml}}
    spec:
      tolerations: [{key: gpu, operator: Exists, effect: NoExecute, tolerationSeconds: 60}]
      priorityClassName: gpu-low
      imagePullSecrets: [{name: registry}]
      volumes: [{name: shm, emptyDir: {medium: Memory, sizeLimitExpression: "'4Gi'"}}]
  containers:
    - which: All
      env: [{name: NCCL_DEBUG, value: INFO}, {name: IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}]
      volumeMounts: [{name: shm, mountPath: /dev/shm}]
"""


def test_members_have_a_line_each_and_containers_share_equal_ones(folder: Path) -> None:
    side = "    - {name: side, env: [{name: NCCL_DEBUG, value: WARN}]}\n"
    write(folder, {"rules/ladder.yaml": DEFAULTS, "pod.yaml": POD + side})
    out = cli(*EXPLAINED).stdout
    lines = [line.lstrip("│ ├└─") for line in out.partition("└── validate")[0].splitlines()]
    assert lines[3:] == [
        "main: env NCCL_DEBUG=INFO",
        'main, side: env IP={"valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}',
        'main, side: volumeMounts /dev/shm={"name": "shm"}',
        "side: env NCCL_DEBUG=INFO (replaced)",
        "labels team=ml",
        "tolerations gpu:NoExecute op=Exists for 60s",
        "priorityClassName gpu-low",
        "imagePullSecrets registry",
        'volumes shm={"emptyDir": {"medium": "Memory", "sizeLimit": "4Gi"}}',
    ]
    members = json.loads(cli(*EXPLAINED, "--output", "json").stdout)["pods"][0]["mutation"]["trace"][0]["members"]
    env = {"name": "NCCL_DEBUG", "value": "INFO"}
    assert members[0] == {"container": "main", "member": "env.NCCL_DEBUG", "value": env}
    assert members[3] == {"container": "main", "member": "env.NCCL_DEBUG", "value": env, "replaced": True} | {
        "container": "side"
    }
    assert members[-2] == {"member": "imagePullSecrets.registry", "value": {"name": "registry"}}


def test_an_unread_class_may_be_the_default_one(folder: Path) -> None:
    named = POD.replace("spec:\n", "spec:\n  priorityClassName: standard\n")
    write(folder, {"rules/ladder.yaml": DEFAULTS.replace("Overwrite", "Keep"), "pod.yaml": named})
    result = cli(*EXPLAINED)
    assert result.exit_code == 3
    assert "unknown: PodDefaults/gpu-pods reads cluster, which the input lacks\n" in result.stdout


def test_a_denial_is_exit_code_1_with_the_reason(folder: Path) -> None:
    rule = validation("no-name", '"!has(object.metadata.name)"') + "      message: names are too much\n"
    write(folder, {"rules/validation.yaml": rule})
    result = cli(*EXPLAINED)
    assert result.exit_code == 1
    assert (
        "Validation/no-name  denied: names are too much  rules/validation.yaml:6:20 validations[0].expression\n"
        in result.stdout
    )
    assert result.stdout.endswith("\ndenied: Validation/no-name: names are too much\n")


def test_a_pod_denied_at_mutate_is_neither_validated_nor_changed(folder: Path) -> None:
    write(folder, {"rules/ladder.yaml": ladder("mig", MIG, "nvidia.com/mig-3g.40gb", whenExhausted="Deny")})
    result = cli(*EXPLAINED)
    assert result.exit_code == 1
    assert "validate: skipped, since the pod is already denied" in result.stdout
    assert "nvidia.com/mig-2g.20gb stays: exhausted" in result.stdout
    assert "@@" not in result.stdout
    (pod,) = json.loads(cli(*EXPLAINED, "--output", "json").stdout)["pods"]
    assert (pod["verdict"], pod["validation"], "no rung can serve" in pod["message"]) == ("Denied", None, True)


def test_an_error_of_a_manifest_leaves_problems_alone_or_the_other_pods(folder: Path) -> None:
    write(folder, {"bad.yaml": "kind: Service\n"})
    alone = cli("explain", "-f", "bad.yaml", "-o", "json")
    assert (alone.exit_code, json.loads(alone.stdout).keys()) == (2, {"problems"})
    both = cli(*EXPLAINED, "-f", "bad.yaml", "-o", "json")
    answer = json.loads(both.stdout)
    verdicts = [pod["verdict"] for pod in answer["pods"]]
    assert (both.exit_code, answer["verdict"], verdicts) == (2, "Unknown", ["Allowed"])
    assert "\nallowed, changed\n" in cli(*EXPLAINED, "-f", "bad.yaml").stdout


def test_the_output_has_warnings_and_audited_steps(folder: Path) -> None:
    warn = validation("warned", "has(object.spec.runtimeClassName)", validationActions="[Warn]")
    audit = validation("audited", "has(object.spec.runtimeClassName)", mode="Audit")
    holds = validation("fine", "has(object.spec)")
    write(folder, {"rules/validation.yaml": f"{warn}---\n{audit}---\n{holds}"})
    result = cli(*EXPLAINED)
    assert result.exit_code == 0
    assert "Validation/warned  warned: failed expression: has(object.spec.runtimeClassName)" in result.stdout
    assert (
        "\nwarning: Validation/warned: failed expression: has(object.spec.runtimeClassName)\nallowed, changed\n"
        in result.stdout
    )
    assert "Validation/audited  denied (audit mode): failed expression" in result.stdout
    assert "Validation/fine  passed  rules/validation.yaml:" in result.stdout


def test_a_malformed_pod_is_reported_at_its_location(folder: Path) -> None:
    write(folder, {"pod.yaml": POD.replace(": 2}", ": two}")})
    result = cli(*EXPLAINED)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "pod.yaml:8:52: error: /spec/containers/0/resources/limits/nvidia.com~1" in result.stderr


def test_misspelt_fields_of_a_pod_are_warnings(folder: Path) -> None:
    write(folder, {"pod.yaml": POD.replace("resources", "resource")})
    result = cli(*EXPLAINED)
    assert result.exit_code == 0
    assert "Container has no field 'resource' (did you mean 'resources'?): Kubernetes drops it" in result.stderr
    assert result.stdout.startswith("Pod default/train\n")


@pytest.mark.parametrize("name", ["Foo Bar", "ML", "-a", "a" * 64])
def test_an_invalid_namespace_name_is_rejected(folder: Path, name: str) -> None:
    result = cli(*EXPLAINED, "-n", name)
    assert result.exit_code == 2
    assert "is not a valid namespace name: lower-case letters" in result.stderr


DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: ml}
spec:
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: main, image: cuda, resources: {limits: {nvidia.com/mig-2g.20gb: 2}}}]
"""
CRON_JOB = """\
apiVersion: batch/v1
kind: CronJob
metadata: {name: nightly}
spec: {jobTemplate: {spec: {template: {spec: {containers: [{name: main, image: cuda}]}}}}}
"""
PYTORCH_JOB = """\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: dist}
spec:
  pytorchReplicaSpecs:
    Master: {template: {spec: {containers: [{name: pytorch, image: x}]}}}
    Worker: {template: {spec: {containers: [{name: pytorch, image: x}]}}}
"""


def test_each_pod_template_of_each_document_is_explained(folder: Path) -> None:
    write(folder, {"pod.yaml": f"{DEPLOYMENT}---\n{CRON_JOB}---\n{PYTORCH_JOB}---\n{POD}"})
    out = cli(*EXPLAINED).stdout
    assert [before for before, line in pairwise(out.splitlines()) if line == "├── mutate"] == [
        "Deployment ml/web",
        "CronJob default/nightly spec.jobTemplate.spec.template",
        "PyTorchJob default/dist spec.pytorchReplicaSpecs.Master.template",
        "PyTorchJob default/dist spec.pytorchReplicaSpecs.Worker.template",
        "Pod default/train",
    ]


def test_one_denied_pod_of_several_is_exit_code_1(folder: Path) -> None:
    rule = validation("labelled", "object.metadata.?labels['job-name'] == optional.none()")
    write(folder, {"rules/validation.yaml": rule, "pod.yaml": f"{DEPLOYMENT}---\n{CRON_JOB}"})
    result = cli(*EXPLAINED)
    assert result.stdout.count("\nallowed, ") == 1
    assert result.stdout.count("\ndenied: ") == 1
    assert result.exit_code == 1


def test_a_manifest_may_come_from_standard_input(folder: Path) -> None:
    as_json = {"kind": "Pod", "metadata": {"name": "j"}, "spec": {"containers": []}}
    for stdin in (POD, json.dumps(as_json), "\ufeff" + POD):
        result = cli("explain", "-f", "-", "--rules", "rules", stdin=stdin)
        assert result.exit_code == 0
        assert "\n\nPod " in result.stdout


@pytest.mark.parametrize(
    ("stdin", "message"),
    [
        ("", "no pod and no object"),
        ("kind: ConfigMap", "1:7: error: ConfigMap is not a pod and has no pod template [not-a-pod]"),
        ("- 3", "no pod and no object"),
        ("kind: Validation", "Validation is not a pod and has no pod template: pass rules with --rules"),
        ("a: [", "<stdin>:1:"),
        (b"\xff", "byte 0xFF is not UTF-8"),
    ],
)
def test_an_invalid_manifest_is_reported_on_standard_error(folder: Path, stdin: str | bytes, message: str) -> None:
    result = cli("explain", "-f", "-", "--rules", "rules", stdin=stdin)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr


def test_rules_with_errors_are_reported_on_standard_error(folder: Path) -> None:
    write(folder, {"rules/ladder.yaml": LADDER.replace("rungs", "rugns")})
    result = cli(*EXPLAINED)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "rules/ladder.yaml:5:3: error: FallbackLadder spec has no field 'rugns'" in result.stderr
    assert "    5 |   rugns:" in result.stderr


def test_a_folder_without_rules_is_an_error_not_an_allowed_pod(folder: Path) -> None:
    result = cli("explain", "-f", "pod.yaml", "--rules", "cluster.yaml")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "cluster.yaml:1:1: error: no rule found [no-rules]" in result.stderr


def test_a_forbidden_opt_out_is_in_the_trace(folder: Path) -> None:
    pod = POD.replace("{name: train}", '{name: train, annotations: {gpurules.io/skip: "true"}}')
    write(folder, {"pod.yaml": pod, "rules/validation.yaml": validation("v", "has(object.spec)")})
    out = cli(*EXPLAINED).stdout
    assert "FallbackLadder/mig  skipped: the pod is annotated gpurules.io/skip" in out
    assert "└── warning: Validation/v cannot be skipped by the annotation gpurules.io/skip\n" in out


def test_a_cluster_with_errors_is_reported_on_standard_error(folder: Path) -> None:
    write(folder, {"cluster.yaml": INVENTORY.replace("allocatable", "alocatable")})
    result = cli(*EXPLAINED)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "cluster.yaml:4:" in result.stderr


def test_warnings_about_rules_do_not_stop_it(folder: Path) -> None:
    write(folder, {"rules/more.yaml": injection("v", coefficients="{memory: 8}")})
    result = cli(*EXPLAINED)
    assert result.exit_code == 0
    assert "warning: " in result.stderr
    assert result.stdout.endswith("allowed, changed\n")


def test_the_namespace_is_the_options_the_manifests_or_default(folder: Path) -> None:
    write(folder, {"rules/ladder.yaml": ladder("mig", MIG, "nvidia.com/gpu", match="{namespaces: [ml]}")})
    assert "skipped: not for the namespace default" in cli(*EXPLAINED).stdout
    assert "skipped" not in cli(*EXPLAINED, "-n", "ml").stdout
    write(folder, {"pod.yaml": DEPLOYMENT})
    assert "skipped" not in cli(*EXPLAINED).stdout
    assert cli(*EXPLAINED, "-n", "ml").exit_code == 0
    other = cli(*EXPLAINED, "-n", "other")
    assert (other.exit_code, other.stdout) == (2, "")
    assert "Deployment/web has namespace ml, not other" in other.stderr


def test_labels_of_namespaces_come_from_the_cluster(folder: Path) -> None:
    selector = "{namespaceSelector: {matchLabels: {team: ml}}}"
    write(folder, {"rules/ladder.yaml": ladder("mig", MIG, "nvidia.com/gpu", match=selector)})
    assert "skipped" not in cli(*EXPLAINED, "-n", "ml").stdout
    assert "skipped: the labels of the namespace other do not match" in cli(*EXPLAINED, "-n", "other").stdout


def test_an_update_is_evaluated_by_validations_that_match_it(folder: Path) -> None:
    rule = validation("u", "oldObject.metadata.name == 'x'", match="{operations: [UPDATE]}")
    write(folder, {"rules/validation.yaml": rule})
    assert cli(*EXPLAINED).exit_code == 0
    result = cli(*EXPLAINED, "--operation", "UPDATE")
    assert result.exit_code == 1
    assert "mutate\n│   └── no rule was evaluated\n" in result.stdout


def test_rules_can_read_that_a_request_is_a_dry_run(folder: Path) -> None:
    write(folder, {"rules/validation.yaml": validation("d", "request.dryRun")})
    assert cli(*EXPLAINED).exit_code == 1
    assert cli(*EXPLAINED, "--dry-run").exit_code == 0


def test_rules_see_a_request_as_the_api_server_makes_it(folder: Path) -> None:
    seen = (
        "request.kind.kind == 'Pod' && request.resource.resource == 'pods' && request.operation == 'CREATE' && "
        "request.namespace == 'default' && request.name == 'train' && 'system:authenticated' in request.userInfo.groups"
    )
    write(folder, {"rules/validation.yaml": validation("r", f'"{seen}"')})
    assert cli(*EXPLAINED).exit_code == 0


def test_a_packaged_set_is_named_without_its_folder(folder: Path) -> None:
    write(folder, {"pod.yaml": POD.replace(": 2}", ": 1}")})
    out = cli("explain", "-f", "pod.yaml", "--rules", "set:gpu-allocation").stdout
    assert "FallbackLadder/mig-to-gpu  changed: nvidia.com/mig-2g.20gb → nvidia.com/gpu" in out
    assert " gpu-allocation/ladder.yaml:" in out
    assert "rule_sets" not in out


def test_the_location_is_of_the_entry_or_expression_that_decided(folder: Path) -> None:
    namespaces = "{team-b: {inherit: Merge, coefficients: {memory: 8Gi}}}"
    several = validation("v", "1 > 2") + "    - expression: 3 > 4\n"
    steps = f"{LADDER.replace('1g.10gb}', '1g.10gb, when: 1 > 2}')}---\n{injection('gpu', namespaces=namespaces)}"
    write(folder, {"rules/ladder.yaml": f"{steps}---\n{several}"})
    out = cli(*EXPLAINED, "-n", "team-b").stdout
    assert "→ nvidia.com/gpu  rules/ladder.yaml:8:18 rungs[2]\n" in out
    rejected = "✗ nvidia.com/mig-1g.10gb: its condition is false  rules/ladder.yaml:7:48 rungs[1].when\n"
    assert rejected in out
    assert "ResourceInjection/gpu  changed: 2 × nvidia.com/gpu  rules/ladder.yaml:15:16 namespaces.team-b\n" in out
    assert "├── main  cpu: none → 8  rules/ladder.yaml:14:18 coefficients.cpu\n" in out
    assert "└── main  memory: none → 16Gi\n" in out
    first, second = (
        "rules/ladder.yaml:22:19 validations[0].expression",
        "rules/ladder.yaml:23:19 validations[1].expression",
    )
    assert f"failed expression: 3 > 4  {first}, {second}\n" in out


def test_no_rules_and_the_default_cluster_are_reported(folder: Path) -> None:
    rules = "Without --rules SOURCE, no rules are applied to pods.\n"
    cluster = "cluster: the packaged inventory two-workers (use --cluster for another one)\n"
    assert cli("explain", "-f", "pod.yaml").stdout.startswith(f"{rules}{cluster}\nPod default/train")
    assert cli(*EXPLAINED[:5]).stdout.startswith(f"{cluster}\nPod default/train")
    assert cli(*EXPLAINED[:3], *EXPLAINED[5:]).stdout.startswith(f"{rules}\nPod default/train")
    document = json.loads(cli(*EXPLAINED, "--output", "json").stdout)
    assert (document["rules"], document["cluster"]) == (["rules"], "cluster.yaml")
    assumed = json.loads(cli("explain", "-f", "pod.yaml", "--output", "json").stdout)
    assert (assumed["rules"], assumed["cluster"]) == ([], "two-workers")


def test_several_skipped_rules_are_one_line_without_all(folder: Path) -> None:
    elsewhere = ladder("other", MIG, "nvidia.com/gpu", match="{namespaces: [other]}")
    write(folder, {"rules/more.yaml": f"{elsewhere}---\n{injection('a')}---\n{injection('b')}"})
    folded = "│   └── 3 rules skipped: 2 for other resources, 1 for other namespaces (--all shows each)\n"
    each = [
        "FallbackLadder/other  skipped: not for the namespace default",
        "ResourceInjection/a  skipped: no container requests nvidia.com/gpu",
        "ResourceInjection/b  skipped: no container requests nvidia.com/gpu",
    ]
    write(folder, {"cluster.yaml": INVENTORY.replace("1g.10gb: 1", "2g.20gb: 2")})
    short, whole = cli(*EXPLAINED).stdout, cli(*EXPLAINED, "--all").stdout
    assert folded in short
    assert "skipped: n" not in short
    assert folded not in whole
    assert all(line in whole for line in each)
    assert len(json.loads(cli(*EXPLAINED, "--output", "json").stdout)["pods"][0]["mutation"]["trace"]) == 4


def test_a_single_skipped_rule_is_shown(folder: Path) -> None:
    write(folder, {"rules/more.yaml": ladder("other", MIG, "nvidia.com/gpu", match="{namespaces: [other]}")})
    assert "FallbackLadder/other  skipped: not for the namespace default" in cli(*EXPLAINED).stdout


def test_several_paths_may_follow_rules(folder: Path) -> None:
    write(folder, {"more.yaml": injection("v")})
    assert "ResourceInjection/v" in cli("explain", "-f", "pod.yaml", "--rules", "rules", "more.yaml").stdout
    result = cli("explain", "-f", "pod.yaml", "more.yaml")
    assert result.exit_code == 2
    assert "'more.yaml' is a file: write -f or --rules before it" in result.stderr


def test_the_patch_in_json_leads_to_the_pod(folder: Path) -> None:
    (pod,) = json.loads(cli(*EXPLAINED, "--output", "json").stdout)["pods"]
    submitted = yaml.safe_load(POD.replace(": 2}", ': "2"}, requests: {nvidia.com/mig-2g.20gb: "2"}'))
    assert apply_json(submitted, pod["mutation"]["patch"]) == pod["pod"]
    assert pod["pod"]["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "2"}


WORKLOAD = """\
apiVersion: apps/v1
kind: {kind}
metadata: {{name: serve, namespace: ml}}
spec:
  template:
    metadata: {{name: ignored}}
    spec: {{containers: [{{name: main, resources: {{limits: {{cpu: 2, memory: 1Gi}}, requests: {{cpu: 1}}}}}}]}}
"""
READS = "object.metadata.name + ' ' + request.name + ' ' + object.spec.containers[0].resources.requests.memory"


@pytest.mark.parametrize(
    ("kind", "operation", "name"),
    [
        ("ReplicaSet", "CREATE", "serve-xxxxx"),
        ("ReplicaSet", "UPDATE", "serve-xxxxx"),
        ("StatefulSet", "CREATE", "serve-0"),
    ],
)
def test_validations_read_the_generated_name_and_the_default_requests(
    folder: Path, kind: str, operation: str, name: str
) -> None:
    expression = f'"false"\n      messageExpression: "{READS}"'
    rule = validation("never", expression, match="{operations: [CREATE, UPDATE]}")
    write(folder, {"rules/ladder.yaml": rule, "pod.yaml": WORKLOAD.format(kind=kind)})
    result = cli(*EXPLAINED, "--operation", operation)
    assert result.stdout.endswith(f"\ndenied: Validation/never: {name} {name} 1Gi\n")


def test_default_requests_and_names_are_not_changes(folder: Path) -> None:
    write(folder, {"pod.yaml": WORKLOAD.format(kind="StatefulSet")})
    result = cli(*EXPLAINED)
    assert result.stdout.endswith("\n\nallowed, unchanged\n")
    assert "submitted" not in result.stdout


def test_text_from_a_pod_cannot_act_on_a_terminal(folder: Path) -> None:
    rule = validation("v", "has(object.spec.hostIPC)") + "      messageExpression: object.metadata.annotations.a\n"
    annotated = POD.replace("{name: train}", '{name: train, annotations: {a: "\\e[31mred\\a"}}')
    write(folder, {"rules/validation.yaml": rule, "pod.yaml": annotated})
    result = cli(*EXPLAINED)
    assert "\x1b" not in result.stdout
    assert "\\x1b[31mred\\x07" in result.stdout


@pytest.mark.parametrize("output", ["text", "json"])
def test_no_value_that_may_be_secret_is_shown(tmp_path: Path, output: str) -> None:
    container = {**CONTAINER, "resources": {"limits": {"nvidia.com/mig-3g.40gb": 1}}}
    pod = {"kind": "Pod", "metadata": {"name": "p", **METADATA}, "spec": {"containers": [container]}}
    rules = ladder("fall", "nvidia.com/mig-3g.40gb", "nvidia.com/gpu")
    write(tmp_path, {"pod.json": json.dumps(pod), "rules.yaml": rules})
    result = cli("explain", "-f", tmp_path / "pod.json", "--rules", tmp_path / "rules.yaml", "-o", output)
    assert result.exit_code == 0
    assert "nvidia.com/gpu" in result.stdout
    assert SECRET not in result.output


QUIET = "\"!has(object.metadata.annotations) || !('gpurules.io/removed-values' in object.metadata.annotations)\""


@pytest.mark.parametrize("removed", [True, False])
def test_a_rule_that_reads_a_removed_value_makes_the_answer_unknown(tmp_path: Path, removed: bool) -> None:
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "ml"},
        "spec": {"containers": [{"name": "main", "env": [{"name": "MODE", "value": "small"}]}]},
    }
    reads = "object.spec.containers.all(c, c.?env.orValue([]).all(e, e.?value.orValue('') == 'small'))"
    files = {
        "pod.json": json.dumps(remove_values(pod, "Pod") if removed else pod),
        "rules.yaml": f"{validation('reads', reads)}---\n{validation('other', QUIET)}",
        "other.yaml": validation("unmarked", QUIET),
    }
    write(tmp_path, files)
    result = cli("explain", "-f", tmp_path / "pod.json", "--rules", tmp_path / "rules.yaml")
    document = json.loads(
        cli("explain", "-f", tmp_path / "pod.json", "--rules", tmp_path / "rules.yaml", "-o", "json").stdout
    )
    outcome = result.stdout.splitlines()[-1]
    if removed:
        reason = "Validation/reads reads object.spec.containers.env.value, which the input lacks"
        assert (result.exit_code, outcome) == (3, f"unknown: {reason}")
        unknown = [{"rule": "Validation/reads", "reads": ["object.spec.containers.env.value"]}]
        assert (document["verdict"], document["pods"][0]["unknown"]) == ("Unknown", unknown)
    else:
        assert (result.exit_code, outcome) == (0, "allowed, unchanged")
        assert document["pods"][0]["unknown"] == []
    # Rules do not see the mark, and others are as firm as before.
    other = cli("explain", "-f", tmp_path / "pod.json", "--rules", tmp_path / "other.yaml")
    assert (other.exit_code, other.stdout.splitlines()[-1]) == (0, "allowed, unchanged")
