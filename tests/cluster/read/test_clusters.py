"""A cluster is the same in each form of file, whatever a terminal added to it."""

import gzip
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules_engine.cluster.read import kubectl
from rules_engine.cluster.read.clusters import ClusterReading, load_inventory, read_cluster
from rules_engine.cluster.read.manifest_stream import stream_manifests
from rules_engine.language.files import read_bytes
from rules_engine.model.json.lenient import as_mapping
from rules_engine.model.kubernetes.cluster import Cluster
from rules_engine.model.kubernetes.cluster_objects import FINDINGS
from rules_engine.model.kubernetes.kept_fields import LAST_APPLIED
from rules_engine.model.kubernetes.removed_values import CAPTURED, MARK, remove_values, removed_values, without_mark
from rules_engine.model.problems.problem import Problems, render_problem
from rules_engine.rules.sources.documents import load_documents
from tests.support.cluster_files import (
    CONTAINER,
    ENCODINGS,
    FORMS,
    NODES,
    OBJECTS,
    OFFERS,
    PLANTED,
    SECRET,
    SPEC,
    Item,
    as_yaml,
    item,
    listed,
    pretty,
    with_secrets,
    written,
)
from tests.support.loading import rule


def sound(*paths: Path) -> ClusterReading:
    reading = read_cluster(paths)
    assert reading.problems == ()
    return reading


def view(reading: ClusterReading) -> Cluster:
    """Return the cluster as rules see it, in the order of names."""
    assert reading.cluster is not None
    found = reading.cluster
    return Cluster(nodes=tuple(sorted(found.nodes, key=lambda node: node.name)), namespaces=found.namespaces)


def names(reading: ClusterReading) -> set[tuple[str, str]]:
    assert reading.objects is not None
    kinds = ("Node", "Pod", "Namespace", "PriorityClass", "ResourceQuota", "Secret", "Event", "Job")
    return {(kind, each.name) for kind in kinds for each in reading.objects.of(kind)}


NAMES = {(each["kind"], each["metadata"]["name"]) for each in OBJECTS if each["kind"] != "Secret"}


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    found = view(sound(written(tmp_path_factory.mktemp("c"), "a list in JSON")))
    assert [(node.name, node.available("nvidia.com/gpu")) for node in found.nodes] == [
        (node.name, node.allocatable["nvidia.com/gpu"] - node.used["nvidia.com/gpu"]) for node in found.nodes
    ]
    assert [str(node.available("nvidia.com/gpu")) for node in found.nodes] == ["5", "6"]
    return found


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("form", FORMS)
def test_each_form_and_encoding_is_the_same_cluster(
    tmp_path: Path, form: str, encoding: str, expected: Cluster
) -> None:
    path = written(tmp_path, form)
    path.write_bytes(ENCODINGS[encoding](path.read_text(encoding="utf-8")))
    reading = sound(path)
    assert (view(reading), names(reading)) == (expected, NAMES)


@pytest.mark.parametrize("form", ["JSON lines", "JSON without line ends", "outputs appended in JSON"])
def test_values_in_a_row_need_no_second_parser(
    tmp_path: Path, form: str, expected: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would read all that follows for each value."""
    monkeypatch.setattr(kubectl, "_raw_decode", None)
    assert view(sound(written(tmp_path, form))) == expected


def test_several_files_are_one_cluster(tmp_path: Path, expected: Cluster) -> None:
    parts = {"a list in JSON": OBJECTS[:4], "a stream": OBJECTS[3:], "an inventory in JSON": OBJECTS[:1]}
    paths = []
    for number, (form, items) in enumerate(parts.items()):
        (tmp_path / str(number)).mkdir()
        paths.append(written(tmp_path / str(number), form, items))
    reading = sound(*paths)
    assert (view(reading), names(reading)) == (expected, NAMES)


@given(st.permutations(OBJECTS), st.sampled_from([*FORMS]))
def test_the_order_of_objects_does_not_matter(
    tmp_path_factory: pytest.TempPathFactory, expected: Cluster, items: list[Item], form: str
) -> None:
    reading = sound(written(tmp_path_factory.mktemp("c"), form, items))
    assert (view(reading), names(reading)) == (expected, NAMES)


@pytest.mark.parametrize("form", [form for form in FORMS if "inventory" not in form])
def test_an_object_of_our_own_api_may_be_the_first(tmp_path: Path, form: str, expected: Cluster) -> None:
    reading = sound(written(tmp_path, form, [OFFERS, *OBJECTS]))
    assert (view(reading), names(reading)) == (expected, NAMES)


def test_files_in_a_folder_may_be_compressed(tmp_path: Path, expected: Cluster) -> None:
    (tmp_path / "nodes.json").write_text(pretty(listed(OBJECTS[:3])))
    (tmp_path / "others.yaml.gz").write_bytes(gzip.compress(as_yaml(listed(OBJECTS[3:])).encode()))
    assert view(sound(tmp_path)) == expected


@pytest.mark.parametrize("kind", ["Node", '"Node"', "'Node'"])
@pytest.mark.parametrize("blank", ["", " "])
def test_a_folder_has_all_nodes_however_their_kind_is_written(tmp_path: Path, kind: str, blank: str) -> None:
    (tmp_path / "a.yaml").write_text(f"kind{blank}: {kind}\nmetadata: {{name: a}}\n")
    assert [node.name for node in view(sound(tmp_path)).nodes] == ["a"]


JSON, YAML = pretty(listed(OBJECTS)), as_yaml(listed(OBJECTS))
FENCED = f"```yaml\n{YAML}```\n"


@pytest.mark.parametrize(
    ("name", "text", "quoted"),
    [
        ("c.json", f"Warning: v1 ComponentStatus is deprecated\n{JSON}", ["Warning: v1 ComponentStatus is deprecated"]),
        ("c.json", f"[root@host ~]$ kubectl get nodes -o json\n{JSON}", ["[root@host ~]$ kubectl get nodes -o json"]),
        ("c.json", f"stdout: {JSON}", ["stdout:"]),
        ("c.json", f"{JSON}Error from server (NotFound): a\n", ["Error from server (NotFound): a"]),
        ("c.json", f"{JSON}W0112 10:00:00.0 1 x.go:1] y\n{pretty(listed([]))}", ["W0112 10:00:00.0 1 x.go:1] y"]),
        ("c.yaml", f"user@host:~$ kubectl get nodes -o yaml\n{YAML}", ["user@host:~$ kubectl get nodes -o yaml"]),
        ("c.yaml", f"I0112 10:00:00.0 1 x.go:1] y\n{YAML}", ["I0112 10:00:00.0 1 x.go:1] y"]),
        ("c.yaml", FENCED, ["```yaml", "```"]),
        ("c.yaml", f"{YAML}Error from server (Forbidden): b\n$ \n", ["Error from server (Forbidden): b", "$ "]),
        ("c.yaml", f"{YAML}PS C:\\Users\\me> \n", ["PS C:\\Users\\me> "]),
        ("c.yaml", f"# taken on Monday\n\n{YAML}", []),
    ],
)
def test_what_a_terminal_adds_is_skipped_with_a_warning_that_quotes_it(
    tmp_path: Path, name: str, text: str, quoted: list[str], expected: Cluster
) -> None:
    (tmp_path / name).write_text(text)
    reading = read_cluster([tmp_path / name])
    assert view(reading) == expected
    found = [problem.message for problem in reading.problems]
    assert found == [f"this text is skipped: {line}" for line in quoted]


@pytest.mark.parametrize(
    ("name", "text", "error"),
    [
        ("c.json", JSON[: len(JSON) // 2], "json-syntax"),
        ("c.json", JSON[:-2], "json-syntax"),
        ("c.json", JSON + JSON[:200], "json-syntax"),
        ("c.json", JSON.replace('"kind"', "kind", 1), "json-syntax"),
        ("c.yaml", YAML.replace("kind: Node", "kind: [Node", 1), "yaml-syntax"),
        ("c.yaml", YAML[: len(YAML) // 2].rpartition("\n")[0] + "\n", "not-a-cluster"),
        ("c.yaml", f"{YAML}hello: [\n", "yaml-syntax"),
        ("c.json", "[" * 100_000, "yaml-too-deep"),
        ("c.json", '{"kind": "List", "items": [' + "9" * 5000 + "]}", "json-syntax"),
        ("c.json", "", "not-a-cluster"),
        ("c.yaml", as_yaml(OBJECTS[-1]), "not-a-cluster"),
        ("c.yaml", as_yaml(listed(OBJECTS[2:])), "not-a-cluster"),
        ("c.yaml", "NAME   STATUS   ROLES\na      Ready    <none>\n", "yaml-syntax"),
    ],
)
def test_all_else_is_an_error(tmp_path: Path, name: str, text: str, error: str) -> None:
    (tmp_path / name).write_text(text)
    reading = read_cluster([tmp_path / name])
    assert reading.objects is None
    assert reading.cluster is None
    assert error in [problem.code for problem in reading.problems]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("c.json", f"{JSON}---\n{YAML}"),
        ("c.json", f"{JSON}{YAML}"),
        ("c.json", ",".join(map(json.dumps, OBJECTS))),
        ("c.json", " and ".join(map(json.dumps, OBJECTS))),
        ("c.json", JSON[JSON.index('"apiVersion"', 60) :]),
        ("c.json", JSON + "{}x\n" * 1000),
        ("c.yaml", YAML + "$ \n" * 1000),
    ],
)
def test_no_part_of_an_output_is_taken_for_what_a_terminal_adds(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    reading = read_cluster([tmp_path / name])
    assert reading.objects is None
    assert len(reading.problems) < 200


@pytest.mark.parametrize("text", [f"{YAML}a@{'a' * 100_000}\n", f"{YAML}a@{'a ' * 50_000}\n"])
def test_long_lines_that_resemble_a_prompt_take_no_time(tmp_path: Path, text: str) -> None:
    (tmp_path / "c.yaml").write_text(text)
    assert read_cluster([tmp_path / "c.yaml"]).objects is None


LEAKING = {
    "invalid name": json.dumps({**PLANTED[1], "metadata": {"name": "Bad_Name"}}) + "\n" + JSON,
    "JSON": f'{JSON}{{"kind": "Secret", "data": {{"a": "{SECRET}"}} "x"}}\n',
    "noise": f'{JSON},{{"kind": "Secret", "data": {{"a": "{SECRET}"}}}}\n',
    "text": f'{YAML}---\nkind: Secret\ndata:\n  a: "{SECRET}" x\n',
    "key": f"{YAML}---\nkind: Secret\ndata: {{a: {SECRET}}}\ndata: {{a: {SECRET}}}\n",
    "cut": json.dumps(PLANTED[3])[:-9],
}


@pytest.mark.parametrize("case", LEAKING)
def test_no_problem_quotes_what_may_be_secret(tmp_path: Path, case: str) -> None:
    (tmp_path / "c.json").write_text(LEAKING[case])
    reading = read_cluster([tmp_path / "c.json"])
    assert reading.problems
    shown = "".join(render_problem(problem, reading.sources) for problem in reading.problems)
    assert SECRET not in shown


def test_a_captured_list_has_all_pods_and_its_time(tmp_path: Path) -> None:
    items = [*OBJECTS, item("Namespace", "kube-system")]
    partial = sound(written(tmp_path, "a list in JSON", items))
    captured = {**listed(items), "metadata": {"annotations": {CAPTURED: "2026-11-28T12:00:00Z"}}}
    for text in (pretty(captured), as_yaml(captured), pretty([captured])):
        (tmp_path / "captured").write_text(text)
        whole = sound(tmp_path / "captured")
        assert partial.objects is not None
        assert whole.objects is not None
        assert (partial.objects.partial, whole.objects.partial) == ({"Pod": ""}, {})
        assert whole.objects.now == datetime(2026, 11, 28, 12, tzinfo=UTC)


def test_other_objects_of_one_version_are_a_warning(tmp_path: Path) -> None:
    other = {**NODES[0], "status": {"allocatable": {"nvidia.com/gpu": "4"}}}
    (tmp_path / "c.json").write_text(pretty(listed([NODES[0], other])))
    assert [problem.message for problem in read_cluster([tmp_path / "c.json"]).problems] == [
        "another Node a of the same version is left out"
    ]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"kind": "List", "items": ["\xff"]}', "byte 0xFF is not UTF-8: save the file as UTF-8"),
        (b"kind: \xff\n", "byte 0xFF is not UTF-8: save the file as UTF-8"),
        (b"\xff\xfea", "the file is not UTF-16: truncated data"),
        (gzip.compress(b"a" * 99)[:20], "cannot be read: the compressed data is damaged: "),
        (gzip.compress(b"a" * 257 + b"ustar\0"), "the file is an archive: unpack it first"),
    ],
    ids=["JSON", "YAML", "UTF-16", "damaged", "archive"],
)
def test_bytes_that_are_no_text_are_an_error(tmp_path: Path, data: bytes, message: str) -> None:
    (tmp_path / "c.json").write_bytes(data)
    (problem,) = [each for each in read_cluster([tmp_path / "c.json"]).problems if each.code != "not-a-cluster"]
    assert problem.message.startswith(message)


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_file_larger_than_the_limit_is_an_error(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    (tmp_path / "c.json").write_bytes(pack(JSON.encode()))
    problems = Problems()
    assert read_bytes(tmp_path / "c.json", 200, problems) is None
    assert [problem.code for problem in problems.items] == ["file-too-large"]


@pytest.mark.parametrize("form", ["a list in JSON", "JSON lines", "an array"])
def test_halves_of_surrogate_pairs_are_replaced(tmp_path: Path, form: str) -> None:
    path = written(tmp_path, form, [*NODES, {**OBJECTS[2], "x": ["half"]}])
    path.write_text(path.read_text().replace("half", "\\ud800"))
    reading = sound(path)
    assert reading.objects is not None
    assert reading.objects.of("Namespace")[0]["x"] == ["\ufffd"]


def test_an_object_whose_items_are_no_list_is_one_object(tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text('{"kind": "Other", "items": {"a": 1}}\n' + JSON)
    assert names(sound(tmp_path / "c.json")) == NAMES


def test_events_of_findings_are_not_read(tmp_path: Path) -> None:
    events = [item("Event", name, "ml", source={"component": name}) for name in ("kubelet", FINDINGS)]
    assert ("Event", FINDINGS) not in names(sound(written(tmp_path, "a list in JSON", [*OBJECTS, *events])))


def test_manifests_and_rules_may_be_utf_16(tmp_path: Path) -> None:
    text = f"{rule('FallbackLadder', '{rungs: [{resource: nvidia.com/gpu}]}', 'e')}# é\n---\n{as_yaml(OBJECTS[3])}"
    (tmp_path / "x.yaml").write_bytes(text.encode("utf-16"))
    loaded = load_documents([tmp_path])
    assert ([each.name for each in loaded.rules], loaded.problems) == (["e"], ())
    assert [pod.name for part in stream_manifests([tmp_path / "x.yaml"]) for pod in part.pods] == ["one"]


def test_an_inventory_does_not_say_what_else_the_cluster_has(tmp_path: Path) -> None:
    reading = sound(written(tmp_path, "an inventory"))
    assert reading.objects is not None
    assert not reading.objects.absent & {"Node", "Pod", "Namespace", "ResourceSlice", "PriorityClass"}
    assert reading.objects.absent >= {"Event", "DaemonSet", "ResourceClaim", "ResourceClaimTemplate"}


def test_other_nodes_of_the_same_name_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text(pretty(listed([NODES[0], {**NODES[0], "metadata": {"name": "a", "uid": "2"}}])))
    (problem,) = read_cluster([tmp_path / "c.json"]).problems
    assert (problem.code, problem.location.line) == ("duplicate-node", 25)


def test_nodes_without_a_uid_are_read(tmp_path: Path, expected: Cluster) -> None:
    bare = [{**each, "metadata": {**each["metadata"]}} for each in OBJECTS]
    for each in bare:
        each["metadata"].pop("uid", None)
    assert view(sound(written(tmp_path, "a list in JSON", bare))) == expected


def test_the_cluster_of_a_document_may_have_any_form(tmp_path: Path, expected: Cluster) -> None:
    found, problems, _ = load_inventory(written(tmp_path, "outputs appended in YAML"))
    assert found is not None
    assert (problems, found.name, {node.name for node in found.cluster.nodes}) == ((), "c", {"a", "b"})


@pytest.mark.parametrize("form", [form for form in FORMS if "inventory" not in form])
def test_values_that_may_be_secret_are_not_kept(tmp_path: Path, form: str) -> None:
    reading = sound(written(tmp_path, form, PLANTED))
    assert reading.objects is not None
    kinds = {each["kind"] for each in PLANTED} - {"ConfigMap", "Secret"}
    kept: dict[str, Any] = {kind: dict(reading.objects.of(kind)[0]) for kind in kinds}
    assert SECRET not in json.dumps(kept)
    assert kept["Pod"]["spec"]["containers"][0]["env"] == [{"name": "PASSWORD"}, CONTAINER["env"][1]]
    assert kept["Pod"]["metadata"]["annotations"]["kept"] == "yes"
    assert kept["GPUOffers"]["spec"] == {"omitted": 3}
    assert {*removed_values(kept["Pod"])} >= {"spec.containers.env.value", "spec.containers.command"}
    # What is written and read again is still known to lack them.
    again = sound(written(tmp_path, form, [kept["Pod"], *NODES]))
    assert again.objects is not None
    assert removed_values(again.objects.pods[0]) == removed_values(kept["Pod"])


def test_templates_say_what_they_lost(tmp_path: Path) -> None:
    reading = sound(written(tmp_path, "a list in JSON", PLANTED))
    assert reading.objects is not None
    expected = {*removed_values(reading.objects.pods[0])}
    for kind in ("Job", "StatefulSet", "ReplicaSet", "DaemonSet", "ReplicationController"):
        assert {*removed_values(as_mapping(reading.objects.of(kind)[0].spec["template"]))} == expected
    data = as_mapping(reading.objects.of("ControllerRevision")[0]["data"])
    assert {*removed_values(as_mapping(as_mapping(data["spec"])["template"]))} == expected


OTHER = {"workerTemplate": {"spec": {"containers": [{"name": "c", "env": [{"name": "A", "value": SECRET}]}]}}}


@pytest.mark.parametrize("other", [OTHER, [OTHER], SECRET], ids=["object", "list", "text"])
def test_a_revision_of_another_controller_keeps_nothing_of_its_data(other: Any) -> None:
    kept = remove_values(item("ControllerRevision", "r", version="apps/v1", data={"spec": other}), "ControllerRevision")
    assert (SECRET in json.dumps(kept), kept["data"]) == (False, {"spec": {}})


def test_presence_of_annotations_is_kept(tmp_path: Path) -> None:
    applied: Item = {**OBJECTS[3], "metadata": {"name": "one", "annotations": {LAST_APPLIED: "{}"}}}
    assert without_mark(remove_values(applied, "Pod"))["metadata"] == {"name": "one", "annotations": {}}
    assert without_mark(remove_values(with_secrets("Pod", spec=SPEC), "Pod")).get("metadata") is not None
    bare: Item = {"metadata": {"name": "one"}, "spec": {"containers": [{"command": [SECRET]}]}}
    assert without_mark(remove_values(bare, "Pod"))["metadata"] == {"name": "one"}


def test_a_pod_without_such_values_is_not_marked(tmp_path: Path) -> None:
    reading = sound(written(tmp_path, "a list in JSON"))
    assert reading.objects is not None
    assert [MARK in str(each) for each in reading.objects.pods] == [False, False]


def test_whole_objects_keep_their_values(tmp_path: Path) -> None:
    reading = read_cluster([written(tmp_path, "a list in JSON", PLANTED)], whole=True)
    assert reading.objects is not None
    assert reading.objects.pods[0].spec == SPEC
