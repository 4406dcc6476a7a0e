"""`gpu-rules doctor` on files and on a stand-in API server: usage, exit codes, rules, outputs."""

import json
import os
import pty
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from rules_engine.cli.program import UNUSABLE
from rules_engine.model.kubernetes.names import ObjectName
from rules_engine.server.commands import main
from rules_engine.server.commands.doctor import preparation
from tests.support.apiserver import ApiServer, Status, bound, namespace, node
from tests.support.authoring import ladder
from tests.support.cluster_files import SECRET
from tests.support.diagnostics import document
from tests.support.doctor import CURIOUS, add_secrets
from tests.support.server import command, environment
from tests.support.terminals import shown_on

GPU, MIG = "nvidia.com/gpu", "nvidia.com/mig-1g.5gb"
PREPARE = cache(preparation.prepare_diagnosis)

LADDER = ladder("small", MIG, GPU)
DIAGNOSTIC = document("severity: %s\nreason: OurReason\nmessageExpression: \"'node ' + object.metadata.name\"", "%s")


@pytest.fixture(autouse=True)
def once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile the packaged Diagnostics once for all tests: with coverage, that takes two seconds."""
    monkeypatch.setattr(preparation, "prepare_diagnosis", lambda rules: PREPARE(tuple(rules)))


@pytest.fixture
def api(api: ApiServer) -> ApiServer:
    api.put("nodes", healthy("one"))
    api.put("namespaces", namespace("ml"))
    return api


def healthy(name: str, **more: Any) -> dict[str, Any]:
    """Build a node without GPUs."""
    return node(name, {"pods": 110}, **more)


def waiting(name: str = "train", **more: Any) -> dict[str, Any]:
    """Build a pod that requests a device that no node has."""
    return bound(name, "", {MIG: 1}, **more)


def doctor(*arguments: str | Path, config: Path | None = None, stdin: str | None = None, **variables: str) -> Result:
    variables |= {} if config is None else {"KUBECONFIG": str(config)}
    return CliRunner().invoke(main, ["doctor", *map(str, arguments)], input=stdin, env=variables)


def dump(folder: Path, *objects: dict[str, Any], name: str = "cluster.json") -> Path:
    path = folder / name
    path.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": list(objects)}))
    return path


def found(result: Result) -> list[tuple[str, str]]:
    """Return reason and first object of the findings in JSON."""
    findings = json.loads(result.stdout)["findings"]
    return [(each["reason"], str(ObjectName(**each["object"]))) for each in findings]


# A live cluster.


@pytest.mark.parametrize("named", [(), ("--cluster", "kubeconfig")])
def test_a_live_cluster_is_diagnosed(api: ApiServer, tmp_path: Path, named: tuple[str, ...]) -> None:
    api.put("pods", waiting())

    result = doctor("--output", "json", *named, config=api.kubeconfig(tmp_path))

    assert ("GPUResourceOnNoNode", "Pod/ml/train") in found(result)
    assert result.exit_code == 1
    assert re.fullmatch(r"cluster: the current context .*: nodes 1, pods 1, namespaces 1\n", result.stderr)
    assert json.loads(result.stdout)["pendingPods"] == 1


def test_a_collection_that_may_not_be_listed_is_named(api: ApiServer, tmp_path: Path) -> None:
    api.forbidden = {"runtimeclasses"}

    result = doctor("--output", "json", config=api.kubeconfig(tmp_path))

    assert result.exit_code == 0
    assert "gpu-rules doctor: warning: cannot list runtimeclasses: 403: runtimeclasses is forbidden" in result.stderr
    assert [absent["objects"] for absent in json.loads(result.stdout)["notRead"]] == ["runtimeclasses"]


@pytest.mark.parametrize("options", [("-n", "ml"), ("--pod", "ml/train")])
@pytest.mark.parametrize("nodes", [True, False])
def test_with_rights_in_one_namespace_its_pods_are_diagnosed(
    api: ApiServer, tmp_path: Path, options: tuple[str, ...], nodes: bool
) -> None:
    api.put("nodes", node("one", {MIG: 1, "pods": 110}))
    api.forbidden = {"pods", "jobs", "namespaces", *([] if nodes else ["nodes"])}
    api.single["/api/v1/namespaces/ml/pods"] = {"metadata": {"resourceVersion": "1"}, "items": [waiting()]}

    result = doctor(*options, "-o", "json", config=api.kubeconfig(tmp_path))

    assert result.exit_code == 1
    (warning,) = [line for line in result.stderr.splitlines() if "warning" in line]
    assert f"cannot list {'' if nodes else 'nodes, '}jobs, namespaces; only pods of namespace ml are read: " in warning
    answer = json.loads(result.stdout)
    not_read = {each["objects"] for each in answer["notRead"]}
    assert not_read == {"pods of other namespaces", "jobs", "namespaces"} | (set() if nodes else {"nodes"})
    (found,) = [each for each in answer["findings"] if each["object"]["kind"] == "Pod"]
    assert found["reason"] == "NoSchedulerMessage"
    assert found["evidence"][0] == f"not evaluated: {'pods of other namespaces' if nodes else 'nodes were not read'}"
    assert [each["resources"][MIG]["free"] for each in answer["nodes"]] == [None] * nodes


def test_an_api_server_that_refuses_is_unusable(api: ApiServer, tmp_path: Path) -> None:
    api.fail("nodes", Status(500, "etcd is down"))

    result = doctor(config=api.kubeconfig(tmp_path))

    assert (result.exit_code, result.stdout) == (UNUSABLE, "")
    assert result.stderr == "gpu-rules doctor: cannot list nodes: 500: etcd is down\n"
    api.fail("nodes", Status(500, "etcd is down"))
    in_json = doctor("-o", "json", config=api.kubeconfig(tmp_path))
    assert (in_json.exit_code, in_json.stderr) == (UNUSABLE, "")
    assert [each["code"] for each in json.loads(in_json.stdout)["problems"]] == ["no-answer"]


def test_a_missing_kubeconfig_is_unusable(tmp_path: Path) -> None:
    result = doctor(config=tmp_path / "none")

    assert result.exit_code == UNUSABLE
    assert f"kubeconfig {tmp_path / 'none'} not found" in result.stderr


# Files.


def test_files_are_diagnosed_together(tmp_path: Path) -> None:
    nodes, pods = dump(tmp_path, healthy("one")), dump(tmp_path, waiting(), name="pods.json")

    result = doctor("--cluster", nodes, "--cluster", pods, "--output", "json")

    assert found(result) == [("GPUResourceOnNoNode", "Pod/ml/train")]
    assert json.loads(result.stdout)["objects"] == {"nodes": 1, "pods": 1}
    assert result.exit_code == 1


def test_a_folder_and_standard_input_are_read(tmp_path: Path) -> None:
    dump(tmp_path, healthy("one"), waiting())
    text = (tmp_path / "cluster.json").read_text()

    assert found(doctor("--cluster", tmp_path, "--output", "json")) == [("GPUResourceOnNoNode", "Pod/ml/train")]
    assert found(doctor("--cluster", "-", "--output", "json", stdin=text)) == [("GPUResourceOnNoNode", "Pod/ml/train")]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"kind": "List", "items": [', "cluster.json:1:"),
        ("no: [json", "cluster.json:1:"),
        (
            '{"kind": "List", "apiVersion": "v1", "items": [{"kind": "Secret", "metadata": {"name": "s"}}]}',
            "kubectl get",
        ),
    ],
)
def test_files_that_cannot_be_read_are_unusable(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "cluster.json"
    path.write_text(content)

    result = doctor("--cluster", path)

    assert (result.exit_code, result.stdout) == (UNUSABLE, "")
    assert "error: " in result.stderr
    assert message in result.stderr


@pytest.mark.parametrize("live", [True, False])
def test_no_secret_is_in_a_report(api: ApiServer, tmp_path: Path, live: bool) -> None:
    plugin = {"kind": "DaemonSet", "apiVersion": "apps/v1", "metadata": {"name": "nvidia-device-plugin"}}
    plugin["metadata"] |= {"namespace": "gpu"}  # type: ignore[operator]
    objects = (healthy("one"), waiting(), {**plugin, "spec": {"template": {"spec": waiting()["spec"]}}})
    for each, collection in zip(map(add_secrets, objects), ("nodes", "pods", "daemonsets"), strict=True):
        api.put(collection, each)
    rules = tmp_path / "curious.yaml"
    rules.write_text(CURIOUS)
    files = () if live else ("--cluster", dump(tmp_path, *objects))

    for form in ("text", "json", "html"):
        result = doctor(*files, "--rules", rules, "--output", form, config=api.kubeconfig(tmp_path))
        assert result.exit_code == 1
        for shown in ("train", "Curious", "none", "object.spec.containers.args"):
            assert shown in result.stdout
        assert SECRET not in result.output
        assert "Wrong" not in result.output


# Scope.


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (("--pod", "ml/train"), ["Pod/ml/train"]),
        (("--pod", "other", "-n", "team"), ["Pod/team/other"]),
        (("-n", "team"), ["Pod/team/other"]),
        (("-n", "idle"), []),
        (("--node", "one"), []),
    ],
)
def test_the_scope_restricts_the_findings(tmp_path: Path, arguments: tuple[str, ...], names: list[str]) -> None:
    pods = waiting(), waiting("other", namespace="team")
    spaces = [namespace(name) for name in ("ml", "team", "idle")]
    path = dump(tmp_path, healthy("one"), *pods, *spaces)

    result = doctor("--cluster", path, "--output", "json", *arguments)

    assert [name for _, name in found(result)] == names
    assert result.exit_code == bool(names)


@pytest.mark.parametrize("arguments", [("--pod", "ml/train"), ("--pod", "train", "-n", "ml")])
def test_a_report_on_a_pod_has_its_node(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    cordoned = node("gpu", {GPU: 4}, unschedulable=True)
    cordoned["status"]["capacity"] = {GPU: "4"}
    path = dump(tmp_path, cordoned, bound("train", "gpu", {GPU: 1}), namespace("ml"))

    result = doctor("--cluster", path, "--output", "json", *arguments)

    assert ("GPUNodeCordoned", "Node/gpu") in found(result)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--pod", "ml/trian"), "Pod ml/trian not found (did you mean 'ml/train'?)"),
        (("--node", "onne"), "Node onne not found (did you mean 'one'?)"),
        (("-n", "lm"), "Namespace lm not found"),
    ],
)
def test_an_object_that_does_not_exist_is_unusable(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    path = dump(tmp_path, healthy("one"), waiting(), namespace("ml"))

    result = doctor("--cluster", path, *arguments)

    assert (result.exit_code, result.stdout) == (UNUSABLE, "")
    assert f"gpu-rules doctor: {message}" in result.stderr


# Rules.


def test_active_ladders_say_what_they_would_give(tmp_path: Path) -> None:
    path, rules = dump(tmp_path, node("one", {GPU: 4, "pods": 110}), waiting()), tmp_path / "rules"
    rules.mkdir()
    (rules / "ladder.yaml").write_text(LADDER)

    with_rules, without = (doctor("--cluster", path, *more, "--pod", "ml/train") for more in (("--rules", rules), ()))

    assert "FallbackLadder/small" in with_rules.stdout
    assert str(rules) in with_rules.stdout
    assert "FallbackLadder" not in without.stdout


def test_diagnostics_among_the_rules_are_added_to_the_packaged_ones(tmp_path: Path) -> None:
    path, rules = dump(tmp_path, healthy("one"), waiting()), tmp_path / "ours.yaml"
    rules.write_text(DIAGNOSTIC % ("ours", "Warning"))

    result = doctor("--cluster", path, "--rules", rules, "--output", "json")

    assert found(result) == [("GPUResourceOnNoNode", "Pod/ml/train"), ("OurReason", "Node/one")]


def test_rules_with_errors_are_unusable(tmp_path: Path) -> None:
    path, rules = dump(tmp_path, healthy("one")), tmp_path / "ours.yaml"
    rules.write_text((DIAGNOSTIC % ("ours", "Error")).replace("object.metadata", "objct.metadata"))

    result = doctor("--cluster", path, "--rules", rules)

    assert (result.exit_code, result.stdout) == (UNUSABLE, "")
    assert "undeclared reference to 'objct'" in result.stderr
    assert f"{rules}:9:" in result.stderr


# Exit codes and outputs.


@pytest.mark.parametrize(
    ("severity", "least", "code"),
    [
        ("Error", "Error", 1),
        ("Error", "error", 1),
        ("Warning", "Error", 0),
        ("Warning", "Warning", 1),
        ("Info", "Warning", 0),
        ("Info", "Info", 1),
    ],
)
def test_the_exit_code_follows_the_least_severity(tmp_path: Path, severity: str, least: str, code: int) -> None:
    path, rules = dump(tmp_path, healthy("one")), tmp_path / "ours.yaml"
    rules.write_text(DIAGNOSTIC % ("ours", severity))

    result = doctor("--cluster", path, "--rules", rules, "--fail-on", least, "--output", "json")

    assert found(result) == [("OurReason", "Node/one")]
    assert result.exit_code == code


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"schedulerName": "gang"}, "NoSchedulerMessage"),
        ({"schedulingGates": [{"name": "queue"}]}, "SchedulingGates"),
        ({"nodeSelector": {"a": "b"}}, "NodeSelectorOrAffinity"),
        ({"nodeName": "gone"}, "NodeNotFound"),
    ],
)
def test_a_waiting_pod_never_exits_with_0(tmp_path: Path, spec: dict[str, Any], reason: str) -> None:
    """Whatever the severity of its finding."""
    pod = bound("train", "", {GPU: 1})
    pod["spec"] |= spec
    pod["status"] = {"phase": "Pending"}
    path = dump(tmp_path, node("one", {GPU: 4, "pods": 110}), pod)

    result = doctor("--cluster", path, "--pod", "ml/train", "--output", "json")

    assert (found(result), result.exit_code) == ([(reason, "Pod/ml/train")], 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--output", "xml"), "'xml' is not one of text, json, html"),
        (("--fail-on", "Fatal"), "'Fatal' is not one of"),
        (("--since", "soon"), "'soon' is not a duration, such as 90s, 30m, 6h or 2d"),
        (("--since", "0h"), "'0h' is not a duration"),
        (("--pod", "train"), "--pod train needs its namespace: write --pod NAMESPACE/train, or add -n"),
        (("--pod", "a/b/c"), "'a/b/c' is not NAMESPACE/POD"),
        (("--pod", "a/b", "-n", "c"), "--pod a/b is not in the namespace of -n, c"),
        (("--pod", "a/b", "--node", "c"), "--pod and --node exclude each other: a report on a pod has its node"),
        (("--node", "A"), "'A' is not a valid object name"),
        (("-n", "A"), "'A' is not a valid namespace name"),
        (("--cluster", "nowhere"), "'nowhere' does not exist"),
        (("--cluster", "kubeconfig", "--cluster", "."), "--cluster kubeconfig cannot be used with files"),
        (("-f", "cluster.json", "pods.json"), "write --cluster FILE"),
        (("--rules", "nowhere"), "'nowhere' is no file or folder"),
        (("--interval", "60"), "--interval needs --watch"),
        (("--events",), "--events needs --watch"),
        (("--metrics-listen", "127.0.0.1:0"), "--metrics-listen needs --watch"),
        (("--log-format", "json"), "--log-format needs --watch"),
        (("--watch",), "--watch needs --metrics-listen"),
        (("--watch", "--cluster", "."), "--cluster cannot be used with --watch"),
        (("--watch", "--pod", "a/b"), "--pod cannot be used with --watch"),
        (("--watch", "--node", "a"), "--node cannot be used with --watch"),
        (("--watch", "--output", "json"), "--output cannot be used with --watch"),
        (("--watch", "--fail-on", "Info"), "--fail-on cannot be used with --watch"),
        (("stray.json",), "unexpected argument stray.json: write --cluster for a cluster"),
    ],
)
def test_wrong_usage_exits_with_2(arguments: tuple[str, ...], message: str) -> None:
    result = doctor(*arguments)

    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr


def test_help_imports_no_library_of_the_server(tmp_path: Path) -> None:
    line = [*command("doctor", "--help")]
    output = subprocess.run(
        [line[0], "-X", "importtime", *line[1:]], env=environment(), capture_output=True, text=True, check=True
    )

    assert "--metrics-listen" in output.stdout
    for library in ("flask", "kubernetes", "jinja2", "yaml", "lark", "prometheus_client"):
        assert f" {library}\n" not in output.stderr


def test_progress_is_shown_on_a_terminal_only(api: ApiServer, tmp_path: Path) -> None:
    for number in range(60):
        api.put("pods", bound(f"p{number}", "one"))
    ours, theirs = pty.openpty()
    variables = environment(KUBECONFIG=str(api.kubeconfig(tmp_path)), TERM="xterm", COLUMNS="100")
    with subprocess.Popen(command("doctor"), env=variables, stdout=subprocess.PIPE, stderr=theirs) as process:
        os.close(theirs)
        shown = shown_on(ours)
        assert process.stdout is not None
        report = process.stdout.read()
    os.close(ours)

    assert process.returncode == 0, shown
    assert b"gpuoffers: 0" in shown
    assert b"namespaces: 1" not in report
