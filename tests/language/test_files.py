"""Files of a run, and their order."""

import json
import os
from pathlib import Path
from threading import Thread

import pytest

from rules_engine.language.files import MAX_FILE_BYTES
from rules_engine.model.rules.rule import API_VERSION
from rules_engine.rules.sources.documents import load_documents
from tests.support.loading import codes, load_pods, load_text, load_view, rule

LADDER = "{rungs: [{resource: a.b/c}]}"


def write(path: Path, name: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(rule("FallbackLadder", LADDER, name), encoding="utf-8")
    return path


def names(*paths: Path) -> list[str]:
    loaded = load_documents(paths)
    assert loaded.problems == ()
    return [item.name for item in loaded.rules]


def test_a_folder_is_read_with_all_below_it_in_order_of_name(tmp_path: Path) -> None:
    write(tmp_path / "b.yaml", "b")
    write(tmp_path / "a" / "z.yml", "a-z")
    write(tmp_path / "a" / "deeper" / "x.yaml", "a-deeper-x")
    write(tmp_path / "c.json", "c")
    (tmp_path / "c.json").write_text(
        json.dumps(
            {
                "apiVersion": "gpurules.io/v1",
                "kind": "FallbackLadder",
                "metadata": {"name": "c"},
                "spec": {"rungs": [{"resource": "a.b/c"}]},
            },
            indent="\t",
        )
    )
    assert names(tmp_path) == ["a-deeper-x", "a-z", "b", "c"]


def test_files_are_listed_and_their_lines_kept(tmp_path: Path) -> None:
    path = write(tmp_path / "a.yaml", "a")
    loaded = load_documents([tmp_path])
    assert loaded.files == (str(path),)
    assert loaded.sources[str(path)][1] == "kind: FallbackLadder"


def test_other_files_and_hidden_ones_are_ignored(tmp_path: Path) -> None:
    write(tmp_path / "a.yaml", "a")
    for name in ("README.md", ".hidden.yaml", ".git/b.yaml", "a.yaml~", "b.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("[")
    assert names(tmp_path) == ["a"]


def test_a_mounted_config_map_is_read_once(tmp_path: Path) -> None:
    write(tmp_path / "..2026_01_01" / "ladder.yaml", "a")
    (tmp_path / "..data").symlink_to("..2026_01_01")
    (tmp_path / "ladder.yaml").symlink_to("..data/ladder.yaml")
    assert names(tmp_path) == ["a"]
    assert load_documents([tmp_path]).files == (str(tmp_path / "ladder.yaml"),)


def test_a_file_is_read_once_by_whatever_ways_it_is_reached(tmp_path: Path) -> None:
    path = write(tmp_path / "rules" / "a.yaml", "a")
    (tmp_path / "rules" / "b.yaml").symlink_to("a.yaml")
    (tmp_path / "again").symlink_to("rules")
    assert names(path, tmp_path / "rules", tmp_path, tmp_path / "again") == ["a"]


def test_folders_that_link_to_each_other_end(tmp_path: Path) -> None:
    write(tmp_path / "a.yaml", "a")
    (tmp_path / "loop").symlink_to(".")
    assert names(tmp_path) == ["a"]


def test_a_link_to_itself_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").symlink_to("a.yaml")
    assert codes(load_documents([tmp_path]).problems) == ["unreadable-file"]


def test_an_impossible_file_name_is_a_problem(tmp_path: Path) -> None:
    assert codes(load_documents([tmp_path / ("a" * 5000)]).problems) == ["unreadable-file"]


def test_a_folder_that_cannot_be_listed_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Path) -> None:
        raise PermissionError(13, "Permission denied")

    # The tests may run as root, to whom every folder is open.
    monkeypatch.setattr(Path, "iterdir", refuse)
    assert codes(load_documents([tmp_path]).problems) == ["unreadable-file"]


def test_a_file_passed_directly_may_have_any_suffix(tmp_path: Path) -> None:
    assert names(write(tmp_path / "rules.txt", "a"), write(tmp_path / ".hidden.yaml", "b")) == ["a", "b"]


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + rule("FallbackLadder", LADDER).encode())
    loaded = load_documents([path])
    assert loaded.problems == ()
    assert loaded.rules[0].location.column == 18


def test_pipes_and_devices_in_a_folder_are_ignored(tmp_path: Path) -> None:
    write(tmp_path / "a.yaml", "a")
    os.mkfifo(tmp_path / "pipe.yaml")
    assert names(tmp_path) == ["a"]


@pytest.mark.parametrize("device", ["/dev/zero", "/proc/self/environ", "/sys/kernel/notes", "pipe"])
def test_a_rule_path_that_is_a_pipe_or_device_is_a_problem(tmp_path: Path, device: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    link = tmp_path / "rules.yaml"
    link.symlink_to(tmp_path / device)
    for paths in ([link], [tmp_path / device]):
        (problem,) = load_documents(paths).problems
        assert problem.code == "not-a-regular-file"
        assert str(problem.location) == f"{paths[0]}:1:1"


def test_a_cluster_or_a_manifest_may_be_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for text, read in (("kind: Pod\nspec: {containers: [{name: c}]}\n", load_pods), ("{}", load_view)):
        writer = Thread(target=pipe.write_text, args=(text,), daemon=True)
        writer.start()
        assert "not-a-regular-file" not in codes(read(pipe)[1])
        writer.join()


def test_links_in_a_circle_are_problems(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").symlink_to("b.yaml")
    (tmp_path / "b.yaml").symlink_to("a.yaml")
    assert set(codes(load_documents([tmp_path]).problems)) == {"unreadable-file"}


def test_problems_are_in_the_order_of_the_paths(tmp_path: Path) -> None:
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text("3")
    loaded = load_documents([tmp_path / "b.yaml", tmp_path / "c.yaml", tmp_path / "a.yaml"])
    assert [Path(problem.location.file).name for problem in loaded.problems] == ["b.yaml", "c.yaml", "a.yaml"]


OTHER_TOOLS = {
    "kustomization.yaml": "resources: [a.yaml]\nconfigMapGenerator: [{name: a, files: [a.yaml], literals: [x=1]}]\n",
    "with-version/kustomization.yml": "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n",
    "chart/Chart.yaml": "apiVersion: v2\nname: rules\nversion: 010\n",
    "chart/values.yaml": "replicas: yes\n",
    "chart/values-prod.yaml": "[",
    "chart/prod.values.yml": "a: 1\n---\nb: 2\n",
    "chart/values.schema.json": '{"type": "object"}',
    "gpu-rules.schema.json": '{"$schema": "https://json-schema.org/draft/2020-12/schema"}',
    "map.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: rules}\n",
    "number.yaml": "apiVersion: 2\n",
    "kyverno.yaml": "apiVersion: cli.kyverno.io/v1alpha1\nkind: Test\nspec: {a: 1}\n---\napiVersion: v1\nkind: Pod\n",
    "pod.json": '{"apiVersion": "v1", "kind": "Pod", "spec": {"hostNetwork": true}}',
    "job.yaml": "kind: Job\nspec: {template: {spec: {containers: [{name: c}]}}}\n---\n",
}


@pytest.mark.parametrize("name", OTHER_TOOLS)
def test_a_file_of_another_tool_is_ignored_passed_directly_or_by_folder(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(OTHER_TOOLS[name])
    for paths in ([path], [tmp_path]):
        loaded = load_documents(paths)
        assert (loaded.problems, loaded.passed_over, loaded.files) == ((), (str(path),), (str(path),))
    write(tmp_path / "a.yaml", "a")
    assert names(tmp_path, path) == ["a"]


def test_a_rule_among_documents_of_other_tools_is_read(tmp_path: Path) -> None:
    path = write(tmp_path / "values.yaml", "a")
    path.write_text(f"a: 1\n---\n{path.read_text()}")
    loaded = load_documents([tmp_path])
    assert (codes(loaded.problems), loaded.passed_over) == (["missing-field"] * 2, ())
    path.write_text(path.read_text().replace("a: 1\n", "apiVersion: v1\nkind: ConfigMap\ndata: {a: yes}\n"))
    assert names(path) == ["a"]


def test_rules_in_a_list_of_kubectl_are_read_at_their_places(tmp_path: Path) -> None:
    documents = [rule("FallbackLadder", LADDER, "a"), "kind: ConfigMap\nmetadata: {name: on}\napiVersion: v1\n"]
    documents.append(rule("FallbackLadder", LADDER, "b"))
    (tmp_path / "stream.yaml").write_text("---\n".join(documents))
    items = "".join(f"- {document}".replace("\n", "\n  ").rstrip(" ") for document in documents)
    (tmp_path / "list.yaml").write_text(f"apiVersion: v1\nitems:\n{items}kind: List\n")
    stream, listed = (load_documents([tmp_path / name]) for name in ("stream.yaml", "list.yaml"))
    assert [item.name for item in listed.rules] == ["a", "b"]
    assert listed.digest == stream.digest

    (tmp_path / "list.yaml").write_text(f"items:\n{items.replace('name: b', 'name: no')}kind: List\n")
    broken = load_documents([tmp_path / "list.yaml"])
    assert codes(broken.problems) == ["yaml-boolean"]
    assert [item.name for item in broken.rules] == ["a"]
    assert (tmp_path / "list.yaml").read_text().splitlines()[broken.problems[0].location.line - 1].endswith("name: no}")


def test_a_file_with_a_syntax_error_is_not_ignored(tmp_path: Path) -> None:
    (tmp_path / "map.yaml").write_text("apiVersion: v1\nkind: ConfigMap\n---\n{{ .Values }}\n[")
    loaded = load_documents([tmp_path])
    assert (codes(loaded.problems), loaded.passed_over) == (["yaml-syntax"], ())


def test_an_incomplete_rule_is_not_ignored(tmp_path: Path) -> None:
    start = f"apiVersion: {API_VERSION}\nkind: ResourceInjection\n"
    for length in range(len("apiVersion:"), len(start)):
        loaded = load_text(tmp_path, start[:length])
        assert loaded.problems, start[:length]
        assert loaded.passed_over == ()


def test_clusters_and_manifests_of_tests_are_not_ignored(tmp_path: Path) -> None:
    (tmp_path / "nodes.yaml").write_text("apiVersion: v1\nkind: List\nitems: [{kind: Node, metadata: {name: a}}]\n")
    (tmp_path / "pod.yaml").write_text("apiVersion: v1\nkind: Pod\nspec: {containers: [{name: c}]}\n")
    case = "{name: c, podFile: pod.yaml, expect: {allowed: true}}"
    (tmp_path / "t.yaml").write_text(rule("RuleTest", f"{{cluster: {{file: nodes.yaml}}, cases: [{case}]}}"))
    loaded = load_documents([tmp_path])
    assert (loaded.problems, loaded.passed_over) == ((), ())


def test_manifests_among_rules_are_ignored(tmp_path: Path) -> None:
    write(tmp_path / "a.yaml", "a")
    (tmp_path / "pod.yaml").write_text("apiVersion: v1\nkind: Pod\nspec: {hostNetwork: yes}\n")
    (tmp_path / "job.yaml").write_text("kind: Job\nspec: {template: {spec: {containers: [{name: c}]}}}\n")
    assert names(tmp_path) == ["a"]
    assert names(tmp_path / "a.yaml", tmp_path / "pod.yaml", tmp_path / "job.yaml") == ["a"]


def test_a_misspelt_kind_is_never_ignored(tmp_path: Path) -> None:
    pod = "{cases: [{name: a, pod: {spec: {containers: [{name: c}]}}, expect: {allowed: true}}]}"
    (tmp_path / "a.yaml").write_text(rule("RuleTests", pod))
    (tmp_path / "b.yaml").write_text(rule("Cases", pod))
    (tmp_path / "c.yaml").write_text(rule("RuleTest", pod).replace("gpurules", "rules"))
    (tmp_path / "d.yaml").write_text("kind: Cases\n")
    (tmp_path / "e.yaml").write_text("apiVersion: gpu-rules.io/v1\nkind: Ruletests\n")
    (tmp_path / "f.yaml").write_text("apiVersion: v1\nkind: RuleTests\n")
    (tmp_path / "g.yaml").write_text("apiVersion: v1\nspec: {rungs: []}\n")
    (tmp_path / "h.yaml").write_text("rungs: []\n")
    loaded = load_documents([tmp_path])
    assert codes(loaded.problems) == [
        *("unknown-kind", "unknown-kind", "unknown-api-version", "unknown-kind"),
        *("unknown-api-version", "unknown-kind"),
        *("unknown-api-version", "unknown-kind"),
        *("missing-field", "unknown-api-version"),
        *("missing-field", "missing-field"),
    ]
    assert loaded.passed_over == ()


def test_large_json_is_rejected_unless_it_belongs_to_another_tool(tmp_path: Path) -> None:
    own = json.dumps({"apiVersion": API_VERSION, "kind": "x" * MAX_FILE_BYTES})
    assert codes(load_text(tmp_path, own, name="a.json").problems) == ["file-too-large"]
    other = load_text(tmp_path, json.dumps({"kind": "List", "items": ["x" * MAX_FILE_BYTES]}), name="b.json")
    assert (other.problems, other.passed_over) == ((), (str(tmp_path / "b.json"),))


@pytest.mark.parametrize("text", ["{", "[" * 100_000, '{"a": 1' + "0" * 5000 + "}", "{} {}"])
def test_invalid_json_is_reported_as_yaml(tmp_path: Path, text: str) -> None:
    assert load_text(tmp_path, text, name="a.json").problems
