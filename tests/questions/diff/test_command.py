"""`gpu-rules diff`: usage, exit codes, problems of each side and of the input, outputs."""

import json
import os
import pty
import resource
import subprocess
import termios
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from rules_engine.questions.diff.values import Kind
from rules_engine.server.commands import main
from tests.support.api import live, node, write_list
from tests.support.apiserver import api_server
from tests.support.authoring import file_size_limit, ladder, validation, write
from tests.support.evaluation import GPU, MIG1, asks, cluster, container, pod
from tests.support.git import commit, repository
from tests.support.loading import rule
from tests.support.recorded import Call, recorded_log, recording
from tests.support.server import command, encoded, environment, review, started
from tests.support.terminals import shown_on

MIG, FULL = "nvidia.com/mig-1g.5gb", "nvidia.com/gpu"
KEEP = validation("keep", "'true'")
DENY = validation("deny", "object.metadata.name != 'ada'")
WARN = DENY.replace("spec:\n", "spec:\n  validationActions: [Warn]\n")
FALL = ladder("fall", MIG, "{resource: nvidia.com/gpu, assume: true}")
INVENTORY = rule("ClusterInventory", "{nodes: [{name: one, allocatable: {%s: 8}}]}", "i")


def pod_text(name: str = "ada", resource: str = MIG, namespace: str = "") -> str:
    metadata = f"{{name: {name}{f', namespace: {namespace}' if namespace else ''}}}"
    limits = f"{{limits: {{{resource}: 1}}}}"
    return f"kind: Pod\nmetadata: {metadata}\nspec: {{containers: [{{name: main, resources: {limits}}}]}}\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the current folder, with rules and manifests."""
    files = {
        "keep.yaml": KEEP,
        "deny.yaml": DENY,
        "warn.yaml": WARN,
        "fall.yaml": FALL,
        "ada.yaml": pod_text(),
        "bob.yaml": pod_text("bob"),
    }
    monkeypatch.chdir(write(tmp_path, files))
    return tmp_path


def diff(*arguments: str, old: str = "keep.yaml", new: str = "keep.yaml", stdin: str | None = None) -> Result:
    line = ["diff", "--old", old, "--new", new, *arguments]
    return CliRunner().invoke(main, line, input=stdin, catch_exceptions=False)


def document(*arguments: str, old: str = "keep.yaml", new: str = "keep.yaml") -> Any:
    result = diff("--output", "json", *arguments, old=old, new=new)
    assert result.exit_code in (0, 1), result.stderr
    report = json.loads(result.stdout)
    assert (report["verdict"] == "Changed") == bool(result.exit_code)
    return report


def error(*arguments: str, old: str = "keep.yaml", new: str = "keep.yaml") -> str:
    """Return the error of a command that has no answer."""
    result = diff(*arguments, old=old, new=new)
    assert (result.exit_code, result.stdout) == (2, "")
    return result.stderr


def test_nothing_changes_under_the_same_rules(folder: Path) -> None:
    result = diff("-f", "ada.yaml")
    assert (result.exit_code, result.stderr) == (0, "")
    assert document("-f", "ada.yaml")["sameRules"]


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        ("keep.yaml", "deny.yaml", "Denied"),
        ("deny.yaml", "keep.yaml", "Admitted"),
        ("keep.yaml", "warn.yaml", "Warnings"),
        ("keep.yaml", "fall.yaml", "Rung"),
    ],
)
def test_a_change_is_exit_code_1_unless_it_is_allowed(folder: Path, old: str, new: str, kind: str) -> None:
    result = diff("-f", "ada.yaml", old=old, new=new)
    assert result.exit_code == 1
    assert "\n    Pod default/ada     1\n" in result.stdout
    others = [f"--allow={other}" for other in Kind if other != kind]
    assert diff("-f", "ada.yaml", *others, old=old, new=new).exit_code == 1
    assert diff("-f", "ada.yaml", "--allow", kind, old=old, new=new).exit_code == 0
    assert diff("-f", "ada.yaml", "--allow", kind.upper(), *others, old=old, new=new).exit_code == 0


def test_a_workload_without_pods_is_a_change_of_0_pods(folder: Path) -> None:
    spec = (
        "{replicas: 0, template: {spec: {containers: [{name: main, resources: {limits: {nvidia.com/mig-1g.5gb: 1}}}]}}}"
    )
    write(folder, {"ada.yaml": f"{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: ada}}, spec: {spec}}}\n"})
    assert diff("-f", "ada.yaml").exit_code == 0
    found = document("-f", "ada.yaml", new="fall.yaml")
    assert (found["verdict"], found["clusters"][0]["pods"], found["clusters"][0]["namespaces"]) == ("Changed", 0, {})
    assert "\n    Deployment default/ada     0\n" in diff("-f", "ada.yaml", new="fall.yaml").stdout
    assert diff("-f", "ada.yaml", "--allow=Rung", new="fall.yaml").exit_code == 0


def test_all_kinds_of_a_pod_must_be_allowed(folder: Path) -> None:
    write(folder, {"new/a.yaml": WARN, "new/b.yaml": FALL})
    assert diff("-f", "ada.yaml", "--allow=Warnings", new="new").exit_code == 1
    assert diff("-f", "ada.yaml", "--allow=Rung", new="new").exit_code == 1
    assert diff("-f", "ada.yaml", "--allow=Rung", "--allow=Warnings", new="new").exit_code == 0


def test_several_sources_are_one_side(folder: Path) -> None:
    result = diff("-f", "ada.yaml", "--old", "fall.yaml", "--new", "deny.yaml")
    assert result.exit_code == 1
    assert "  keep.yaml fall.yaml → keep.yaml deny.yaml\n" in result.stdout


def test_a_change_of_a_repository(folder: Path) -> None:
    repository(folder, {"rules/a.yaml": KEEP})
    commit(folder, {"rules/a.yaml": DENY})
    report = document("-f", ".", old="git:HEAD~1:rules", new="git:HEAD:rules")
    assert (report["old"], report["clusters"][0]["pods"], report["clusters"][0]["kinds"]) == (
        "git:HEAD~1:rules",
        2,
        {"Denied": 1},
    )


def test_the_first_rules_of_a_repository(folder: Path) -> None:
    repository(folder, {"README": ""})
    write(folder, {"rules/a.yaml": DENY})
    result = diff("-f", "ada.yaml", old="git:HEAD:rules", new="rules")
    assert result.exit_code == 1
    assert result.stderr == (
        "--old git:HEAD:rules:\n"
        "git:HEAD:rules:1:1: warning: file or folder not found: no rules before the change [missing-file]\n"
    )
    assert result.stdout.endswith("\n  the old side has no rules: it admits every pod as it is\n")
    assert document("-f", "ada.yaml", old="git:HEAD:rules", new="rules")["withoutRules"] == ["old"]


def test_problems_of_both_sides_have_headings(folder: Path) -> None:
    write(folder, {"old.yaml": KEEP.replace("spec", "spc"), "new.yaml": KEEP.replace("'true'", "'tru'")})
    report = error("-f", "ada.yaml", old="old.yaml", new="new.yaml").splitlines()
    assert report[0] == "--old old.yaml:"
    assert "--new new.yaml:" in report
    at = report.index("--new new.yaml:")
    assert all(line.startswith(("old.yaml:", " ")) for line in report[1:at])
    assert report[at + 1].startswith("new.yaml:6:20: error: undeclared reference to 'tru'")
    assert next(line for line in report if line.endswith("]")).startswith("old.yaml:")


def test_a_new_side_without_rules_is_an_error(folder: Path) -> None:
    (folder / "none").mkdir()
    assert "[no-files]" in error("-f", "ada.yaml", new="none")
    assert diff("-f", "ada.yaml", old="none", new="deny.yaml").exit_code == 1


def test_all_problems_of_the_input_are_printed(folder: Path) -> None:
    write(folder, {"bad.yaml": "{kind: Pod", "more.yaml": "a: b"})
    cut = write_list(folder / "cut.json", [live(asks({GPU: 1}))])
    cut.write_text(cut.read_text()[:-9])
    report = error(*(f"-f{name}" for name in ("bad.yaml", "ada.yaml", "cut.json", "more.yaml")))
    assert [line.split(":")[0] for line in report.splitlines() if line.endswith("]")] == [
        "bad.yaml",
        "cut.json",
        "more.yaml",
    ]
    assert "    1 | {kind: Pod\n" in report


def test_input_without_pods_is_an_error(folder: Path) -> None:
    write(folder, {"services/s.yaml": "apiVersion: v1\nkind: Service\nmetadata: {name: s}\n"})
    assert error("-f", "services") == (
        "services:1:1: error: no pod and no object with a pod template found [not-a-pod]\n"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Missing option '-f', '--cluster' or '--from-log': the pods to decide."),
        (["ada.yaml"], "unexpected argument ada.yaml: write -f for manifests, --cluster for a cluster"),
        (["-f", "absent.yaml"], "'absent.yaml' does not exist"),
        (["-f", "ada.yaml", "--cluster", "absent.yaml"], "'absent.yaml' does not exist"),
        (["--from-log", "."], "'.' is a directory"),
        (
            ["-f", "ada.yaml", "--allow", "Deny"],
            "unknown kind 'Deny' (did you mean 'Denied'?): must be one of Denied, Admitted, Rung, Resources",
        ),
        (["-f", "ada.yaml", "--namespace", "A"], "'A' is not a valid namespace name"),
        (["-f", "ada.yaml", "--output", "csv"], "'csv' is not one of text, json, markdown, html"),
        (["-f", "ada.yaml", "--output", "html=absent/a.html"], "Could not open file 'absent/a.html': "),
        (["-f", "ada.yaml", "--old", "gpu-alocation"], "(did you mean 'gpu-allocation'?)"),
    ],
)
def test_usage(arguments: list[str], message: str, folder: Path) -> None:
    assert message in error(*arguments)


def test_both_sides_are_needed(folder: Path) -> None:
    result = CliRunner().invoke(main, ["diff", "-f", "ada.yaml", "--old", "keep.yaml"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Missing option '--new'" in result.stderr


def test_a_namespace_for_manifests_that_name_none(folder: Path) -> None:
    write(folder, {"cy.yaml": pod_text("ada", namespace="web")})
    report = document("-f", "ada.yaml", "-f", "cy.yaml", "-n", "ml", new="deny.yaml")
    assert report["clusters"][0]["namespaces"] == {"ml": 1, "web": 1}


def test_standard_input(folder: Path) -> None:
    result = diff("-f", "-", new="deny.yaml", stdin=pod_text())
    assert (result.exit_code, result.stderr) == (1, "")


def test_the_log_of_a_server_is_decided_on_each_cluster(folder: Path) -> None:
    write(folder, {"mig.yaml": INVENTORY % MIG, "full.yaml": INVENTORY % FULL})
    made: Any = pod(container("main", limits={MIG: "1"}), name="ada")
    made["spec"]["containers"][0] |= {"args": ["secret"], "env": [{"name": "A", "value": "secret"}]}
    options = ("--rules", "keep.yaml", "--cluster", "mig.yaml", "--decision-log", "log", "--decision-log-requests")
    with started(folder, *options) as server:
        for path in ("/mutate", "/validate"):
            server.send("POST", path, encoded(review(made, namespace="ml")))
    assert "secret" not in Path("log").read_text()
    reads = validation("args", "object.spec.containers.all(c, !has(c.args))")
    write(folder, {"new/a.yaml": FALL, "new/b.yaml": reads})
    clusters = ("--cluster", "mig.yaml", "--cluster", "full.yaml")
    for new, kinds in (("fall.yaml", [{}, {"Rung": 1}]), ("new", [{"Unknown": 1}] * 2)):
        report = document("--from-log", "log", *clusters, new=new)
        assert [(each["name"], each["pods"], each["kinds"]) for each in report["clusters"]] == [
            ("mig", 1, kinds[0]),
            ("full", 1, kinds[1]),
        ]
        assert report["recorded"] == {
            "lines": 2,
            "admissions": 2,
            "replayed": 1,
            "laterCalls": 1,
            "notReplayable": {},
            "unreadable": {},
        }
    assert report["clusters"][0]["unknown"] == {"Validation/args reads object.spec.containers.args": 1}
    result = diff("--from-log", "-", *clusters[:2], new="deny.yaml", stdin=Path("log").read_text())
    assert (result.exit_code, result.stderr) == (1, "")
    assert "Recorded admissions\n  2 recorded admissions in 2 lines: 1 decided again\n" in result.stdout


@pytest.mark.parametrize("size", [1, 5_000])
@pytest.mark.parametrize("option", ["-f", "--cluster"])
def test_a_log_as_another_input_names_its_option(folder: Path, option: str, size: int) -> None:
    """Its requests have pods: large ones, in JSON lines, would be read as manifests."""
    calls: list[Call] = [("/mutate", asks({MIG: 1}))]
    line = recorded_log(folder / "log.json", recording(on=cluster()), calls).read_text()
    (folder / "log.json").write_text("started\n" + line * size)
    message = "log.json:1:1: error: this is a decision log: audit reads it, and explain and diff do by --from-log ["
    assert error(option, "log.json").startswith(message)
    assert "--from-log" not in error(option, "keep.yaml")


def test_several_clusters_have_columns(folder: Path) -> None:
    write(folder, {"mig.yaml": INVENTORY % MIG, "full.yaml": INVENTORY % FULL})
    east = write_list(folder / "east.json", [live(asks({GPU: 1}), name="eve"), node("n", {GPU: "4"})])
    clusters = ("--cluster", "mig.yaml", "--cluster", "full.yaml", "--cluster", str(east))
    report = document("-f", "ada.yaml", "-f", "bob.yaml", *clusters, "--cluster", "mig.yaml", new="fall.yaml")
    assert [(each["name"], each["pods"], each["kinds"]) for each in report["clusters"]] == [
        ("mig", 2, {}),
        ("full", 2, {"Rung": 2}),
        ("east", 2, {"Rung": 2}),
    ]
    west = write_list(
        folder / "west.json", [live(asks({MIG: 1}), name=name) for name in "ab"] + [node("n", {GPU: "4"})]
    )
    report = document("--cluster", str(east), "--cluster", str(west), new="fall.yaml")
    assert [(each["pods"], each["kinds"]) for each in report["clusters"]] == [(1, {}), (2, {"Rung": 2})]
    result = diff("-f", "ada.yaml", "--cluster", "mig.yaml", new="fall.yaml")
    assert (result.exit_code, result.stderr) == (0, "")


def test_the_packaged_cluster_is_named_where_it_matters(folder: Path) -> None:
    write(folder, {"mig.yaml": INVENTORY % MIG})
    shown = "\n  cluster: the packaged inventory two-workers (use --cluster for another one)\n"
    assert diff("-f", "ada.yaml", new="fall.yaml").stdout.endswith(shown)
    assert "cluster:" not in diff("-f", "ada.yaml", new="deny.yaml").stdout
    assert "cluster:" not in diff("-f", "ada.yaml", "--cluster", "mig.yaml", new="fall.yaml").stdout
    assert document("-f", "ada.yaml", new="fall.yaml")["assumedCluster"] == "two-workers"


def test_a_file_that_is_not_a_cluster_is_an_error(folder: Path) -> None:
    assert "[not-a-cluster]" in error("-f", "ada.yaml", "--cluster", "bob.yaml")


def test_each_format_goes_to_its_file(folder: Path) -> None:
    outputs = [f"--output={form}={form}.out" for form in ("text", "json", "markdown", "html")]
    result = diff("-f", "ada.yaml", "--output", "text", *outputs, new="deny.yaml")
    assert result.exit_code == 1
    text, report, markdown, page = (
        (folder / f"{form}.out").read_text() for form in ("text", "json", "markdown", "html")
    )
    assert text == result.stdout
    assert json.loads(report)["verdict"] == "Changed"
    assert "Pod default/ada" in markdown
    assert page.startswith("<!doctype html>")
    assert page.endswith("\n")
    assert markdown.endswith("\n")


@pytest.mark.parametrize("form", ["json", "html"])
def test_output_that_is_lost_is_an_error(folder: Path, form: str) -> None:
    write(folder, {"many.yaml": "---\n".join(pod_text(f"ada-{number}") for number in range(500))})
    arguments = ["--old", "keep.yaml", "--new", "fall.yaml", "-f", "many.yaml", "--output", f"{form}=out"]
    with file_size_limit(4096):
        result = CliRunner().invoke(main, ["diff", *arguments], catch_exceptions=False)
    assert result.exit_code == 2
    assert result.stderr.endswith("Could not open file 'out': File too large\n")


# The interpreter reports a generator that cannot even be closed.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_too_little_memory_is_an_error(folder: Path) -> None:
    write(folder, {"many.yaml": "---\n".join(pod_text(f"ada-{number}") for number in range(20_000))})
    assert diff("-f", "ada.yaml", new="deny.yaml").exit_code == 1  # imports all modules
    limits = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 2**24, limits[1]))  # enough to begin
    try:
        result = diff("-f", "many.yaml", new="deny.yaml")
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", "gpu-rules diff: too little memory\n")


def test_a_full_device_is_an_error(folder: Path) -> None:
    line = command("diff", "--old", "keep.yaml", "--new", "deny.yaml", "-f", "ada.yaml")
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(line, env=environment(), stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "gpu-rules diff: cannot write the output: No space left on device\n")


def test_rules_of_a_config_map(folder: Path) -> None:
    with api_server() as api:
        api.single["/api/v1/namespaces/ml/configmaps/rules"] = {"data": {"a.yaml": DENY}}
        line = ["diff", "--old", "configmap:ml/rules", "--new", "keep.yaml", "-f", "ada.yaml"]
        variables = {"KUBECONFIG": str(api.kubeconfig(folder))}
        result = CliRunner().invoke(main, line, env=variables, catch_exceptions=False)
        assert result.exit_code == 1
        assert "configmap:ml/rules/a.yaml:" in result.stdout
        line[2] = "configmap:ml/absent"
        result = CliRunner().invoke(main, line, env=variables, catch_exceptions=False)
        assert (result.exit_code, result.stdout) == (2, "")
        assert "configmap:ml/absent:1:1: error: ConfigMap not found [missing-file]" in result.stderr


def test_progress_is_shown_on_a_terminal(folder: Path) -> None:
    many = write_list(
        folder / "many.json", [live(asks({MIG1: 1}), name=f"p{number}") for number in range(2_000)] + [node()]
    )
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (25, 100))
    line = command("diff", "--old", "keep.yaml", "--new", "fall.yaml", "--cluster", str(many))
    variables = environment(TERM="xterm-256color")
    with subprocess.Popen(line, env=variables, stdout=subprocess.PIPE, stderr=theirs) as running:
        os.close(theirs)
        shown = shown_on(ours)
        assert running.stdout is not None
        answer = running.stdout.read()
    os.close(ours)
    assert running.returncode == 0, shown
    assert b"deciding" in shown
    assert b"0:00:00" in shown
    assert b"deciding" not in answer


def test_a_pod_that_the_api_server_refuses_is_refused_on_both_sides(folder: Path) -> None:
    limits = "{kind: LimitRange, metadata: {name: a, namespace: default}, spec: {limits: [{type: Pod, max: {cpu: 1}}]}}"
    text = rule("ClusterInventory", f"{{nodes: [{{name: one, allocatable: {{{FULL}: 8}}}}], objects: [{limits}]}}", "i")
    write(folder, {"inventory.yaml": text})
    result = diff("-f", "ada.yaml", "--cluster", "inventory.yaml", "-o", "json", new="deny.yaml")
    assert result.exit_code == 0, result.output
