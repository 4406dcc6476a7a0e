"""The rules of docs/reference/command-line.md, for all commands."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result
from jsonschema import Draft202012Validator

from rules_engine.cli.options import OFFER_KINDS, POD_KINDS
from rules_engine.cli.program import AdvancedOption, SingleOption
from rules_engine.cli.schema import load_schema
from rules_engine.model.kubernetes.cluster_objects import API_KINDS
from rules_engine.server.cluster.connection import ApiError
from rules_engine.server.cluster.source import Live
from rules_engine.server.commands import main
from rules_engine.server.serve import _create_connection
from rules_engine.server.settings import ServerSettings
from tests.support.apiserver import ApiServer, Status, api_server
from tests.support.authoring import ladder, validation, write
from tests.support.loading import rule

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/reference/command-line.md").read_text()
GROUPS = {
    f"{name} {inner}": each
    for name, group in main.commands.items()
    if isinstance(group, click.Group)
    for inner, each in group.commands.items()
}
COMMANDS = {
    name: command for name, command in {**main.commands, **GROUPS}.items() if not isinstance(command, click.Group)
}
MIG = "nvidia.com/mig-3g.40gb"
SPEC = f"{{containers: [{{name: c, image: i, resources: {{limits: {{{MIG}: 1}}}}}}]}}"
POD = f"kind: Pod\nmetadata: {{name: p, namespace: ml}}\nspec: {SPEC}\n"
NODES = [{"name": "n1", "allocatable": {MIG: 2, "cpu": 8, "memory": "8Gi", "pods": 10}}]
LOAD = rule("Simulation", f"{{arrivals: [{{pod: {{metadata: {{namespace: ml, name: p}}, spec: {SPEC}}}}}]}}")
CASE = "{name: a, podFile: pod.yaml, expect: {allowed: true}}"
TEST = rule("RuleTest", f"{{rules: [rules.yaml], cluster: {{nodes: []}}, cases: [{CASE}]}}")


def options(command: click.Command) -> dict[str, click.Option]:
    return {name: each for each in command.params if isinstance(each, click.Option) for name in each.opts}


def run(*arguments: str | Path, stdin: str = "") -> Result:
    return CliRunner().invoke(main, [*map(str, arguments)], input=stdin, prog_name="gpu-rules")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    files = {"pod.yaml": POD, "rules.yaml": ladder("a", MIG, "nvidia.com/gpu"), "load.yaml": LOAD, "t.test.yaml": TEST}
    monkeypatch.chdir(write(tmp_path, files))
    return tmp_path


@pytest.fixture
def api(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    with api_server() as server:
        status = {
            "allocatable": {MIG: "1", "cpu": "8", "memory": "8Gi", "pods": "10"},
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        server.put("nodes", {"metadata": {"name": "live-1"}, "status": status})
        pod = {"containers": [{"name": "c", "image": "i"}]}
        server.put("pods", {"metadata": {"name": "lone", "namespace": "ml", "uid": "u"}, "spec": pod})
        server.put("namespaces", {"metadata": {"name": "ml", "labels": {"team": "ml"}}})
        monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig(folder)))
        yield server


# The same options everywhere


def test_the_help_groups_all_commands_but_the_one_for_pre_commit() -> None:
    grouped = [name for names in main.sections.values() for name in names]
    assert sorted(grouped) == sorted(main.commands.keys() - {"pre-commit"})
    assert main.commands["pre-commit"].hidden
    help_text = run("--help").stdout
    assert [title for title in main.sections if f"\n{title}:\n" in help_text] == [*main.sections]
    assert "pre-commit" not in help_text


@pytest.mark.parametrize("name", COMMANDS)
def test_options_of_one_name_are_one_option(name: str) -> None:
    known = options(COMMANDS[name])
    if "--output" in known:
        assert known.get("-o") is known["--output"]
    if "--filename" in known:
        assert known.get("-f") is known["--filename"]
        assert known["-f"].multiple
    if "--rules" in known and name != "serve":
        assert "SOURCE" in str(known["--rules"].metavar)
        assert known["--rules"].multiple
    if "--cluster" in known and name != "playground":  # whose texts end up in links
        assert known["--cluster"].metavar == ("in-cluster|kubeconfig|FILE" if name == "serve" else "kubeconfig|PATH")
        assert {"--context", "--kubeconfig"} <= known.keys()
    for single in ("--cluster", "--context", "--kubeconfig", "--from-log", "--declare"):
        if single in known and not (name in ("diff", "doctor", "simulate") and single == "--cluster"):
            assert isinstance(known[single], SingleOption), single


INPUTS = [
    (name, option)
    for name, command in COMMANDS.items()
    for option, each in options(command).items()
    if isinstance(each, SingleOption) and option.startswith("--")
]


@pytest.mark.parametrize(("name", "option"), INPUTS, ids=map(" ".join, INPUTS))
def test_an_input_that_takes_one_value_is_given_once(name: str, option: str, folder: Path) -> None:
    result = run(*name.split(), option, "pod.yaml", option, "rules.yaml")
    assert result.exit_code == 2
    assert "it is given twice, and takes one value" in result.stderr


def test_advanced_options_of_serve_are_at_the_end_of_its_help() -> None:
    text = run("serve", "--help").stdout
    _, _, advanced = text.partition("\nAdvanced:\n")
    names = [each.opts[0] for each in main.commands["serve"].params if isinstance(each, AdvancedOption)]
    assert len(names) > 5
    assert all(f"  {name} " in advanced for name in names)


@pytest.mark.parametrize("name", sorted({name.partition(" ")[0] for name in COMMANDS} - {"pre-commit"}))
def test_the_page_has_every_command_and_its_exit_codes(name: str) -> None:
    assert f"`{name}`" in PAGE.partition("## Exit codes\n")[2]


# Sources of rules, clusters, objects


@pytest.mark.parametrize("source", ["rules.yaml", ".", "set:mig-a100-80gb", "mig-a100-80gb"])
@pytest.mark.parametrize(
    "command",
    [
        "explain -f pod.yaml",
        "webhook-config",
        "simulate -f load.yaml --cluster cluster.yaml",
        "doctor --cluster cluster.yaml",
        "eval 1 -f pod.yaml --rule FallbackLadder/{}",
    ],
)
def test_rules_come_from_any_source(command: str, source: str, folder: Path) -> None:
    spec = {"nodes": NODES}
    (folder / "cluster.yaml").write_text(
        json.dumps(
            {"apiVersion": "gpurules.io/v1", "kind": "ClusterInventory", "metadata": {"name": "c"}, "spec": spec}
        )
    )
    if command.startswith("doctor"):
        node = {"kind": "Node", "metadata": {"name": "n1"}, "status": {}}
        (folder / "cluster.yaml").write_text(
            json.dumps(
                {
                    "kind": "List",
                    "apiVersion": "v1",
                    "items": [node, {"kind": "Pod", "metadata": {"name": "p", "namespace": "x"}}],
                }
            )
        )
    command = command.replace("{}", "mig-a100-80gb" if "mig" in source else "a")
    result = run(*command.split(), "--rules", source)
    assert result.exit_code == 0, result.output
    assert "rule_sets" not in result.output


def test_the_nearest_set_file_or_folder_is_proposed(folder: Path) -> None:
    (folder / "gpu-policies").mkdir()
    for name, near in (
        ("mig-a100-80gbb", "mig-a100-80gb"),
        ("rules.yam", "rules.yaml"),
        ("gpu-polices", "gpu-policies"),
    ):
        assert f"(did you mean '{near}'?)" in run("explain", "-f", "pod.yaml", "--rules", name).stderr
    assert "did you mean" not in run("explain", "-f", "pod.yaml", "--rules", "nothing.yaml").stderr
    assert "(did you mean 'mig-a100-80gb'?)" in run("explain", "-f", "pod.yaml", "--rules", "set:miga100-80gb").stderr


def test_objects_come_from_files_folders_and_standard_input(folder: Path) -> None:
    write(
        folder,
        {
            "pods/a.yaml": POD.replace("name: p,", "name: a,"),
            "pods/b/values.yaml": "x: 1\n",
            "pods/c.yaml": "kind: ConfigMap\n",
        },
    )
    result = run(
        "explain",
        "-f",
        "pods",
        "-f",
        "-",
        "-f",
        "pod.yaml",
        "--rules",
        "rules.yaml",
        stdin=POD.replace("name: p,", "name: b,"),
    )
    assert re.findall(r"^Pod ml/(\w+)$", result.stdout, re.MULTILINE) == ["a", "b", "p"]
    assert run("eval", "object.metadata.name", "-f", "pods", "-f", "pod.yaml").stdout.count(" : string") == 2
    empty = run("explain", "-f", write(folder, {"none/c.yaml": "kind: ConfigMap\n"}) / "none")
    assert (empty.exit_code, empty.stdout) == (2, "")
    assert "no pod and no object with a pod template found" in empty.stderr


LIVE = {
    "explain": "explain -f pod.yaml --rules rules.yaml",
    "eval": f"eval cluster.allocatable('{MIG}') -f pod.yaml",
    "list": "list -n ml rules.yaml",
    "check": "check rules.yaml",
    "simulate": "simulate -f load.yaml --rules rules.yaml",
    "plan": "plan -f load.yaml --rules rules.yaml --cards 1xA100-80GB",
    "diff": "diff --old rules.yaml --new rules.yaml",
    "preflight": "preflight -f pod.yaml --rules rules.yaml",
}
ANSWERS = {
    "explain": f"{MIG} is offered",
    "eval": "1 : int",
    "list": "namespace labels team=ml",
    "check": "1 file checked",
    "simulate": "live-1",
    "plan": "kubectl label node live-1 nvidia.com/mig.config=plan-1",
    "diff": "1 pod",
    "preflight": "starts: live-1",
}


@pytest.mark.parametrize("name", LIVE)
def test_a_live_cluster_is_read_and_its_age_is_printed(name: str, api: ApiServer) -> None:
    result = run(*LIVE[name].split(), "--cluster", "kubeconfig")
    assert result.exit_code == 0, result.output
    assert re.search(
        r"^cluster: the current context of the kubeconfig, read at 20\S+Z: nodes 1\b", result.stderr, re.MULTILINE
    )
    assert ANSWERS[name] in result.stdout


@pytest.mark.parametrize("name", [name for name in LIVE if name != "diff"])
def test_a_capture_is_read_as_the_live_cluster(name: str, api: ApiServer, folder: Path) -> None:
    captured = run("capture").stdout
    write(folder, {"cluster.json": captured, "dump/cluster.json": captured})
    live = run(*LIVE[name].split(), "--cluster", "kubeconfig").stdout
    for place in ("cluster.json", "dump", "-"):
        result = run(*LIVE[name].split(), "--cluster", place, stdin=captured)
        assert (result.exit_code, result.stderr) == (0, "")
        assert ANSWERS[name] in result.stdout
        assert len(result.stdout.splitlines()) == len(live.splitlines())


@pytest.mark.parametrize("name", LIVE)
def test_a_live_cluster_without_nodes_offers_nothing(name: str, api: ApiServer) -> None:
    api.delete("nodes", "live-1")
    result = run(*LIVE[name].split(), "--cluster", "kubeconfig")
    assert result.exit_code == (1 if name == "preflight" else 0), result.stderr  # 1: no pod starts
    assert ": nodes 0" in result.output


@pytest.mark.parametrize("name", [*LIVE, "doctor", "capture"])
def test_a_context_of_another_file_is_read(
    name: str, api: ApiServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere")
    config = str(api.kubeconfig(folder))
    cluster = ("--cluster", "kubeconfig") if name in LIVE and name != "preflight" else ()
    command = LIVE.get(name, name).split()
    missing = run(*command, *cluster, "--kubeconfig", config, "--context", "absent")
    assert missing.exit_code == 2
    assert "absent" in missing.stderr
    assert run(*command, *cluster, "--kubeconfig", config).exit_code == 0


@pytest.mark.parametrize("name", LIVE)
def test_a_cluster_that_cannot_be_read_is_exit_code_2(name: str, api: ApiServer) -> None:
    api.fail("nodes", Status(500, "etcd is down"))
    result = run(*LIVE[name].split(), "--cluster", "kubeconfig")
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"gpu-rules {name}: cannot list nodes: 500" in result.stderr


@pytest.mark.parametrize("command", [*(LIVE[name] for name in ("check", "simulate", "plan")), "sets suggest"])
def test_commands_whose_answer_depends_on_nodes_have_none_without(command: str, api: ApiServer) -> None:
    api.forbidden = {"nodes"}
    result = run(*command.split(), "--cluster", "kubeconfig")
    assert result.exit_code == 2
    assert "cannot list nodes: 403" in result.stderr
    assert "error: nodes were not read, and the answer depends on them" in result.output


@pytest.mark.parametrize("live", [True, False])
def test_without_nodes_what_does_not_depend_on_them_is_answered(api: ApiServer, folder: Path, live: bool) -> None:
    api.forbidden = {"nodes"}
    rules = {
        "ladder": ladder("a", MIG, "nvidia.com/gpu"),
        "total": validation("a", f"cluster.total('{MIG}') > 0"),
        "image": validation("a", "object.spec.containers.all(c, c.image == 'i')"),
        "deny": validation("a", "1 > 2"),
        "audit": validation("a", f"cluster.total('{MIG}') > 0", mode="Audit"),
    }
    write(folder, {f"{name}.yaml": text for name, text in rules.items()})
    cluster = "kubeconfig"
    if not live:
        cluster = "captured.json"
        (folder / cluster).write_text(run("capture").stdout)
    for name, kind in {"ladder": "FallbackLadder", "total": "Validation"}.items():
        explained = run("explain", "-f", "pod.yaml", "--rules", f"{name}.yaml", "--cluster", cluster)
        assert explained.exit_code == 3
        assert f"unknown: {kind}/a reads cluster, which the input lacks" in explained.stdout
        found = run("preflight", "-f", "pod.yaml", "--rules", f"{name}.yaml", "--cluster", cluster)
        assert (found.exit_code, "unknown: 0 of 1 pod starts now, 1 unknown" in found.stdout) == (3, True), found.output
        assert "    unknown: nodes were not read\n" in found.stdout
        assert f"    unknown: {kind}/a: " in found.stdout
        assert "nodes available" not in found.stdout
        changed = run("diff", "--old", f"{name}.yaml", "--new", "image.yaml", "-f", "pod.yaml", "--cluster", cluster)
        assert f"{kind}/a reads cluster" in changed.stdout
    for name, code in {"image": 0, "deny": 1, "audit": 0}.items():
        explained = run("explain", "-f", "pod.yaml", "--rules", f"{name}.yaml", "--cluster", cluster)
        assert explained.exit_code == code
        found = run("preflight", "-f", "pod.yaml", "--rules", f"{name}.yaml", "--cluster", cluster)
        assert found.exit_code == (code or 3)
    assert run("eval", "1 + 1", "-f", "pod.yaml", "--cluster", cluster).stdout == "2 : int\n"
    assert run("list", "-n", "ml", "rules.yaml", "--cluster", cluster).exit_code == 0
    assert run(*LIVE["simulate"].split(), "--cluster", cluster).exit_code == 2


def test_devices_of_drivers_are_read_from_a_live_cluster(api: ApiServer) -> None:
    api.put("nodes", {"metadata": {"name": "live-1"}, "status": {"allocatable": {"cpu": "8", "pods": "10"}}})
    command = (*LIVE["explain"].split(), "--cluster", "kubeconfig")
    assert f"{MIG} → nvidia.com/gpu" in run(*command).stdout or "exhausted" in run(*command).stdout
    api.put("deviceclasses", {"metadata": {"name": "c"}, "spec": {"extendedResourceName": MIG}})
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "d", "nodeName": "live-1", "pool": pool, "devices": [{"name": "a"}]}
    api.put("resourceslices", {"metadata": {"name": "s"}, "spec": spec})
    result = run(*command)
    assert f"{MIG} is offered" in result.stdout
    assert "deviceclasses 1, resourceslices 1" in result.stderr
    api.forbidden = {"deviceclasses"}
    assert "cannot list deviceclasses: 403" in run(*command).stderr
    api.forbidden = set()
    for collection in ("deviceclasses", "mutatingadmissionpolicies"):
        api.fail(collection, Status(404))
    assert "cannot list" not in run(*command).stderr


@pytest.mark.parametrize("command", ["explain", "preflight", "simulate", "plan", "diff"])
def test_commands_that_create_pods_read_what_the_api_server_reads_for_them(api: ApiServer, command: str) -> None:
    for kind in POD_KINDS[1:]:
        api.put(API_KINDS[kind].resource, {"metadata": {"name": "a", "namespace": "ml"}})
    read = run(*LIVE[command].split(), "--cluster", "kubeconfig").stderr
    assert [kind for kind in POD_KINDS if f" {API_KINDS[kind].resource} " not in read] == []


def test_check_reads_what_rules_name(api: ApiServer) -> None:
    kinds = (*OFFER_KINDS, "Namespace", "PriorityClass", "RuntimeClass", "ResourceQuota")
    for kind in kinds[1:]:
        api.put(API_KINDS[kind].resource, {"metadata": {"name": "a", "namespace": "ml"}})
    read = run(*LIVE["check"].split(), "--cluster", "kubeconfig").stderr
    assert [kind for kind in kinds if f" {API_KINDS[kind].resource} " not in read] == []
    api.forbidden = {"resourcequotas"}
    checked = run(*LIVE["check"].split(), "--cluster", "kubeconfig")
    assert "cannot list resourcequotas: 403" in checked.stderr
    assert checked.stdout.endswith(", resourcequotas were not read\n")


def test_preflight_reads_what_may_add_nodes(api: ApiServer, folder: Path) -> None:
    write(folder, {"pod.yaml": (folder / "pod.yaml").read_text().replace(MIG, "example.com/new")})
    api.put("nodepools.karpenter.sh", {"metadata": {"name": "gpu"}})
    api.put("configmaps", {"metadata": {"name": "cluster-autoscaler-status", "namespace": "kube-system"}})
    result = run(*LIVE["preflight"].split())
    assert result.exit_code == 3
    assert "unknown: an autoscaler may add such a node (NodePool gpu)" in result.stdout
    assert "unknown: an autoscaler may add such a node (cluster-autoscaler)" in result.stdout


@pytest.mark.parametrize(("own", "options"), [("ml", ["-n", "ml"]), ("team", []), ("default", [])])
def test_with_rights_in_one_namespace_its_objects_are_read(
    api: ApiServer, folder: Path, own: str, options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    api.forbidden = {"pods", "resourcequotas"}
    page = {"metadata": {"resourceVersion": "1"}, "items": [{"metadata": {"name": "p", "namespace": own}}]}
    api.single[f"/api/v1/namespaces/{own}/pods"] = page
    config = api.kubeconfig(folder)
    if own == "team":
        config.write_text(config.read_text().replace('"user": "me"}', '"user": "me", "namespace": "team"}'))
    monkeypatch.setenv("KUBECONFIG", str(config))
    write(folder, {"cpu.yaml": "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: m}]}}\n"})
    result = run("preflight", "-f", "cpu.yaml", "--rules", "rules.yaml", *options)
    assert result.exit_code == 3, result.output
    assert f"only pods of namespace {own} are read: 403" in result.stderr
    assert "warning: no ResourceQuota was read: quotas count as having room" in result.stderr
    assert "pods of other namespaces, which were not read" in result.stdout
    live = ("-f", "cpu.yaml", "--cluster", "kubeconfig", *options)
    assert f"Pod {own}/a" in result.stdout
    assert f"Pod {own}/a" in run("explain", "--rules", "rules.yaml", *live).stdout
    assert f'"{own}"' in run("eval", "request.namespace", *live).stdout


def test_a_context_that_a_kubeconfig_lacks_is_named(api: ApiServer, folder: Path) -> None:
    config = api.kubeconfig(folder)
    name = re.search(r"current-context: (\S+)", config.read_text())
    command = (*LIVE["explain"].split(), "--cluster", "kubeconfig", "--kubeconfig", str(config))
    missing = run(*command, "--context", "absent")
    assert (missing.exit_code, "no context 'absent'" in missing.stderr) == (2, True), name
    config.write_text("a table\n")
    assert "it is not a kubeconfig (" in run(*command).stderr


def test_options_of_the_kubeconfig_need_the_live_cluster(folder: Path) -> None:
    result = run("webhook-config", "--rules", "gpu-allocation", "--context", "a")
    assert (result.exit_code, "--context needs rules of configmap:" in result.stderr) == (2, True)
    result = run("serve", "--rules", ".", "--cluster", "in-cluster", "--context", "a")
    assert (result.exit_code, "--context need --cluster kubeconfig" in result.stderr) == (2, True)
    result = run("explain", "-f", "pod.yaml", "--context", "a")
    assert (result.exit_code, "--context needs --cluster kubeconfig" in result.stderr) == (2, True)
    result = run("doctor", "--cluster", "pod.yaml", "--context", "a")
    assert (result.exit_code, "--context needs --cluster kubeconfig" in result.stderr) == (2, True)


def test_serve_reads_the_kubeconfig_and_context_that_are_given(
    api: ApiServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere")
    settings = ServerSettings(cluster=Live.KUBECONFIG, kubeconfig=api.kubeconfig(folder))
    assert b"live-1" in _create_connection(settings).get("/api/v1/nodes", {})
    with pytest.raises(ApiError, match="absent"):
        _create_connection(replace(settings, context="absent")).get("/api/v1/nodes", {})


def test_rules_of_a_config_map_are_a_source_of_every_command(api: ApiServer) -> None:
    api.single["/api/v1/namespaces/gpu/configmaps/rules"] = {"data": {"a.yaml": ladder("a", MIG, "nvidia.com/gpu")}}
    result = run("explain", "-f", "pod.yaml", "--rules", "configmap:gpu/rules", "--all")
    assert "FallbackLadder/a" in result.stdout
    assert "configmap:gpu/rules/a.yaml:" in result.stdout


def test_pages_of_a_live_cluster_that_expire_are_read_again(api: ApiServer) -> None:
    api.put("pods", {"metadata": {"name": "p", "namespace": "ml"}, "spec": {"containers": []}})
    api.fail("pods", Status(410))
    assert run(*LIVE["explain"].split(), "--cluster", "kubeconfig").exit_code == 0


def test_the_kinds_for_kubectl_are_those_that_commands_read_and_stand_in_one_place() -> None:
    kinds = ",".join(each.resource for each in API_KINDS.values() if not each.optional)
    files = [path for folder in ("docs", "schemas", "rules_engine", "server") for path in (ROOT / folder).rglob("*.*")]
    texts = [path.read_text() for path in files if path.suffix in (".md", ".json", ".py")]
    (text,) = [text for text in texts if "nodes,pods" in text]
    assert f"kubectl get -A -o json \\\n  {kinds} \\\n  > cluster.json\n" in text


# JSON


DOCUMENTS = {
    "check": "check rules.yaml t.test.yaml",
    "test": "test t.test.yaml --coverage",
    "explain": "explain -f pod.yaml --rules rules.yaml",
    "list": "list rules.yaml",
    "list -n": "list rules.yaml -n ml",
    "sets-suggest": "sets suggest --cluster node.json",
    "native": "native --rules rules.yaml",
    "webhook-config": "webhook-config --rules rules.yaml",
    "doctor": "doctor --cluster node.json --rules rules.yaml",
    "diff": "diff --old rules.yaml --new rules.yaml -f pod.yaml",
    "simulate": "simulate -f load.yaml --rules rules.yaml --cluster node.json",
    "plan": "plan -f load.yaml --rules rules.yaml --cluster node.json --cards 1xA100-80GB",
    "preflight": "preflight -f pod.yaml --rules rules.yaml --cluster node.json",
}


@pytest.mark.parametrize("broken", [False, True])
@pytest.mark.parametrize("name", DOCUMENTS)
def test_documents_have_a_schema_and_the_problems_of_the_input(name: str, broken: bool, folder: Path) -> None:
    node = {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n1"}, "status": {"allocatable": {MIG: "1"}}}
    (folder / "node.json").write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": [node]}))
    if broken:
        (folder / "rules.yaml").write_text(ladder("a", MIG, "nvidia.com/gpu").replace("rungs", "rugs"))
        (folder / "node.json").write_text("{")
    result = run(*DOCUMENTS[name].split(), "-o", "json")
    document = json.loads(result.stdout)
    schema: Any = load_schema(name.partition(" ")[0])
    Draft202012Validator.check_schema(schema)
    Draft202012Validator(schema).validate(document)
    assert not Draft202012Validator(schema).is_valid({"problems": []})
    assert result.stderr == ""
    assert bool([each for each in document.get("problems", ()) if each["severity"] == "error"]) is broken
    assert result.exit_code == (0 if not broken else 1 if name == "check" else 2)
    if broken and name not in ("check", "test"):
        assert document.keys() == {"problems"}
    assert "source" not in document or document["source"].keys() == {"file", "line", "column"}


def test_no_place_is_in_the_package(folder: Path) -> None:
    for command in ("explain -f pod.yaml", "list -n ml"):
        for form in ("text", "json"):
            assert "rule_sets" not in run(*command.split(), "-o", form).output


# Text of kubectl for people


@pytest.mark.parametrize(
    "name",
    [
        "explain -f FILE",
        "eval 1 -f FILE",
        "doctor --cluster FILE",
        "explain -f pod.yaml --cluster FILE",
        "diff --old gpu-allocation --new gpu-allocation -f FILE",
    ],
)
@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "NAMESPACE   NAME  READY   STATUS   RESTARTS      AGE\nml          a     1/1     Running  0 (3d ago)  3d\n",
            "table",
        ),
        ("NAME     STATUS   ROLES    AGE    VERSION\nn1       Ready    <none>   3d     v1.36.0\n", "table"),
        ("Name:             train\nNamespace:        ml\nPriority:         0\n", "describe text"),
    ],
)
def test_a_table_of_kubectl_is_named(name: str, text: str, message: str, folder: Path) -> None:
    (folder / "text.yaml").write_text(text)
    result = run(*name.replace("FILE", "text.yaml").split())
    assert result.exit_code == 2
    assert f"text.yaml:1:1: error: this is kubectl's {message}: write it with kubectl get -o yaml" in result.stderr


# Documentation of fields


def test_explain_prints_the_documentation_of_a_field(folder: Path) -> None:
    result = run("explain", "FallbackLadder.spec.rungs")
    assert result.exit_code == 0
    assert result.stdout.startswith(
        "FallbackLadder.spec.rungs <list of rung, required>\n    The resources of the ladder"
    )
    assert "\n  resource <extended resource name, required>\n" in result.stdout
    assert "FallbackLadder.spec.rungs.when <CEL expression>" in run("explain", "fallbackladder.spec.rungs.when").stdout
    assert "default: " in run("explain", "Validation.spec.failurePolicy").stdout
    assert "one of: " in run("explain", "FallbackLadder.spec.offered").stdout


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("FallbackLader", "'FallbackLader' is no kind (did you mean 'FallbackLadder'?)"),
        ("FallbackLadder.spec.rugs", "FallbackLadder.spec has no field 'rugs' (did you mean 'rungs'?)"),
        ("FallbackLadder.kind.x", "FallbackLadder.kind has no field 'x'"),
        ("pod.yaml", "'pod.yaml' is a file: write -f or --rules before it"),
    ],
)
def test_a_wrong_field_is_a_usage_error(path: str, message: str, folder: Path) -> None:
    result = run("explain", path)
    assert (result.exit_code, message in result.stderr) == (2, True)
    both = run("explain", "FallbackLadder", "-f", "pod.yaml")
    assert "--filename cannot be used with the documentation of a field" in both.stderr
