"""`explain`, `effective` and `list` say which rules the API server evaluates itself, where that is known."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from jsonschema import Draft202012Validator

from rules_engine.documents import large_clusters
from rules_engine.documents.load import load_cluster
from rules_engine.model.kubernetes.native_objects import NATIVE_RESOURCES, RULES_ANNOTATION, STAMP_ANNOTATION, SWITCH
from rules_engine.native.policy import translate_rules
from rules_engine.sources.rule_files import RuleFiles, read_rules
from rules_engine.webhooks.policies import NativeObjects
from rules_engine.webhooks.settings import Settings
from server.cli import main
from tests.native.test_command import LADDER
from tests.support.api import pod
from tests.support.apiserver import api_server, node

SCHEMAS = Path("schemas/output")
NATIVE = "FallbackLadder/a"


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(each) for each in arguments])


def document(command: str, *arguments: str | Path) -> Any:
    """Run a command with --output json; return its document, which its schema describes."""
    result = run(command, *arguments, "--output", "json")
    shown = json.loads(result.stdout)
    schema = json.loads((SCHEMAS / f"{command}.json").read_text())
    assert [error.message for error in Draft202012Validator(schema).iter_errors(shown)] == []
    return shown


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with rules, of which one can be exported, a pod, and clusters."""
    path: Path = tmp_path_factory.mktemp("native")
    (path / "rules.yaml").write_text(LADDER)
    (path / "pod.json").write_text(json.dumps(pod("p", {"nvidia.com/mig-1g.10gb": 1})))
    policies = objects(read_rules([path / "rules.yaml"]))
    others = json.loads(json.dumps(policies).replace(digest(policies), "0" * 64))
    foreign = {"kind": SWITCH, "metadata": {"name": "of-another-tool"}, "spec": {}}
    checks = [foreign, *(each for each in policies if each["kind"].startswith("Validating"))]
    edited = json.loads(json.dumps(policies))
    edited[0]["spec"]["mutations"][0]["jsonPatch"]["expression"] = "[]"
    switched = json.loads(json.dumps(policies))
    next(each for each in switched if each["kind"] == SWITCH)["metadata"]["annotations"][RULES_ANNOTATION] = "0" * 64
    versions = json.loads(json.dumps(policies).replace(f'"{STAMP_ANNOTATION}": "', f'"{STAMP_ANNOTATION}": "1'))
    dumps = {
        "native": policies,
        "elsewhere": objects(read_rules([path / "rules.yaml"]), Settings(name="x-a", namespace="gpu-system")),
        "others": others,
        "none": [],
        "checks": checks,
        "edited": edited,
        "switched": switched,
        "versions": versions,
    }
    for name, items in dumps.items():
        dump = {"apiVersion": "v1", "kind": "List", "items": [node("n", {"nvidia.com/gpu": 4}), *items]}
        (path / f"{name}.json").write_text(json.dumps(dump))
    return path


def objects(files: RuleFiles, settings: Settings = Settings()) -> list[Any]:  # noqa: B008 - immutable
    native = NativeObjects(translate_rules(files.rule_set), files.loaded.digest, settings, "a")
    made = [*native.policies(), native.offers({"known": True})]
    return [each for each in made if each["kind"] in NATIVE_RESOURCES]


def digest(policies: list[Any]) -> str:
    return str(policies[0]["metadata"]["annotations"][RULES_ANNOTATION])


def commands(folder: Path, cluster: str | Path) -> Iterator[tuple[str, list[str | Path]]]:
    """Yield the commands with their arguments."""
    rules = folder / "rules.yaml"
    yield "explain", ["-f", folder / "pod.json", "--rules", rules, "--cluster", cluster]
    yield "effective", ["-n", "ml", "--rules", rules, "--cluster", cluster]
    yield "list", [rules, "--cluster", cluster]


@pytest.mark.parametrize("name", ["native", "elsewhere"])
def test_rules_are_native_if_their_policies_are_in_the_cluster(folder: Path, name: str) -> None:
    texts = {}
    for command, arguments in commands(folder, folder / f"{name}.json"):
        assert document(command, *arguments)["native"] == [NATIVE]
        texts[command] = run(command, *arguments).stdout
    assert f"{NATIVE} (native)  changed" in texts["explain"]
    assert f"{NATIVE} (native)  {folder}" in texts["effective"]
    assert "FallbackLadder/b (native)" not in texts["explain"] + texts["effective"]
    rows = [line.split() for line in texts["list"].splitlines()]
    assert [rows[1][1], *rows[1][4:6]] == ["a", "API", "server"]
    assert [rows[2][1], rows[2][4]] == ["b", "webhook"]


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("edited", ["MutatingAdmissionPolicy gpu-rules-a: differs from these rules in mutations"]),
        (
            "checks",
            [
                f"{kind} gpu-rules{slot}: not found"
                for kind, slot in (("MutatingAdmissionPolicy", "-a"), (SWITCH, ""), ("GPUOffers", "-a"))
            ],
        ),
    ],
)
def test_missing_and_edited_policies_are_named(folder: Path, name: str, lines: list[str]) -> None:
    for command, arguments in commands(folder, folder / f"{name}.json"):
        assert "native" not in document(command, *arguments)
        first = "warning: native policies of these rules are missing or edited: rules may not be evaluated"
        assert "\n  ".join([first, *lines]) in run(command, *arguments).stderr


@pytest.mark.parametrize("name", ["others", "none", "switched", "versions"])
def test_nothing_is_said_of_other_clusters(folder: Path, name: str) -> None:
    for command, arguments in commands(folder, folder / f"{name}.json"):
        assert "native" not in document(command, *arguments)
        result = run(command, *arguments)
        assert "(native)" not in result.stdout
        assert "missing or edited" not in result.stderr
    assert "webhook" not in run("list", folder / "rules.yaml", "--cluster", folder / f"{name}.json").stdout


def test_problems_of_the_cluster_are_reported_by_list(folder: Path) -> None:
    result = run("list", folder / "rules.yaml", "--cluster", folder / "rules.yaml")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "FallbackLadder is not a cluster" in result.stderr


def test_policies_of_a_large_file_are_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known, _, _ = load_cluster(folder / "native.json")
    monkeypatch.setattr(large_clusters, "MAX_FILE_BYTES", 1)
    large, _, _ = load_cluster(folder / "native.json")
    assert known is not None
    assert large is not None
    assert large.native_objects == known.native_objects != ()


@pytest.mark.parametrize("allowed", [True, False])
def test_bindings_of_a_live_cluster_are_read_if_they_may_be(folder: Path, tmp_path: Path, allowed: bool) -> None:
    with api_server() as api:
        api.put("nodes", node("n", {"nvidia.com/gpu": 4}))
        for each in objects(read_rules([folder / "rules.yaml"])):
            api.put(NATIVE_RESOURCES[each["kind"]], each)
        if not allowed:
            api.forbidden = {*NATIVE_RESOURCES.values()}
        arguments = (folder / "rules.yaml", "--cluster", "kubeconfig", "--kubeconfig", api.kubeconfig(tmp_path))
        result = run("list", *arguments, "--output", "json")

    assert json.loads(result.stdout).get("native") == ([NATIVE] if allowed else None)
    assert "cannot list" not in result.stderr


def test_a_large_list_with_custom_resources_is_read(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Only their items have a type in lists. A large list is read strictly: no member may be set twice.
    monkeypatch.setattr(large_clusters, "MAX_FILE_BYTES", 1)
    with api_server() as api:
        api.put("nodes", {name: value for name, value in node("n").items() if name not in ("apiVersion", "kind")})
        for each in objects(read_rules([folder / "rules.yaml"])):
            api.put(NATIVE_RESOURCES[each["kind"]], each)
        access = ("--kubeconfig", api.kubeconfig(tmp_path))
        results = [run(command, *options, *access) for command, options in commands(folder, "kubeconfig")]

    assert [result.exit_code for result in results] == [0, 0, 0], results[0].output
