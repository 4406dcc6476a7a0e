"""Objects are read from kubectl's output in JSON and YAML, and from must-gather folders."""

import gc
import gzip
import json
import sys
import tracemalloc
from datetime import UTC, datetime
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest
import yaml

from rules_engine.diagnosis.reading import files
from rules_engine.diagnosis.reading.files import EXPECTED_INPUT, Reading, read_objects
from rules_engine.loading import STDIN, json_list
from rules_engine.loading.json_items import LenientItems, parse_lenient
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.cluster_objects import API_RESOURCES
from rules_engine.model.kubernetes.kept_fields import Kept
from rules_engine.model.problems.problem import Severity
from tests.support.documents import REPOSITORY

KEPT: dict[str, Kept] = {
    "Node": {"status": {"allocatable": None}},
    "Pod": {"spec": {"nodeName": None}},
    "Event": {"involvedObject": {"name": None}, "message": None, "count": None},
}

Item = dict[str, Any]


def item(kind: str, name: str = "a", version: str = "v1", **members: Any) -> Item:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": "ml"}, **members}


def listed(*items: Any, kind: str = "List", version: str = "v1", indent: Any = 4) -> str:
    """Return a list as kubectl writes it, with its kind after the items."""
    document = {"apiVersion": version, "items": items, "kind": kind, "metadata": {"resourceVersion": ""}}
    return json.dumps(document, indent=indent)


def read(path: Path, *texts: str | bytes, name: str = "dump.json", kept: dict[str, Kept] = KEPT) -> Reading:
    """Read files of these texts, the first of which has this name."""
    paths = []
    for number, text in enumerate(texts):
        file = path / (name if not number else f"{number}-{name}")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        paths.append(file)
    return read_objects(paths, kept)


def objects_by_kind(result: Reading) -> dict[str, list[Item]]:
    """Return what was read, by kind."""
    assert result.objects is not None, result.problems
    return {kind: [dict(each) for each in result.objects.of(kind)] for kind in API_RESOURCES if result.objects.of(kind)}


def messages(result: Reading, folder: Path) -> list[str]:
    return [str(problem).removeprefix(f"{folder}/") for problem in result.problems]


def error(result: Reading, folder: Path) -> str:
    """Return the only problem, which is an error."""
    assert result.objects is None
    (message,) = messages(result, folder)
    return message


POD = item("Pod", spec={"nodeName": "n1", "dnsPolicy": "Default", "containers": [{"image": "é\n}"}]})
NODE = item("Node", "n1", status={"allocatable": {"nvidia.com/gpu": "8"}, "images": ["{", "}"]})
READ = {
    "Node": [{"kind": "Node", "metadata": NODE["metadata"], "status": {"allocatable": {"nvidia.com/gpu": "8"}}}],
    "Pod": [{"kind": "Pod", "metadata": POD["metadata"], "spec": {"nodeName": "n1"}}],
}


@pytest.mark.parametrize("indent", [None, 0, 2, 4, 5, "\t"])
@pytest.mark.parametrize("chunk", [7, 1024 * 1024])
@pytest.mark.parametrize("mark", ["", "\ufeff", "\n \t"])
def test_a_list_in_json_is_read_however_it_is_indented(
    tmp_path: Path, indent: Any, chunk: int, mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_list, "CHUNK_BYTES", chunk)
    monkeypatch.setattr(files, "CHUNK_BYTES", max(chunk, 8))
    text = mark + listed(NODE, POD, item("Deployment", version="apps/v1"), indent=indent)
    assert objects_by_kind(read(tmp_path, text)) == READ


def test_an_item_that_only_seems_to_end_is_read_whole(tmp_path: Path) -> None:
    # A brace with the indentation of the item, inside of it.
    odd = '{\n    "kind": "List",\n    "items": [\n        {\n"kind": "Pod", "metadata": {"name": "a"},\n'
    odd += '"spec":\n{"x":{\n        },"nodeName": "n1"}\n}]}'
    assert [each["spec"] for each in objects_by_kind(read(tmp_path, odd))["Pod"]] == [{"nodeName": "n1"}]


def test_the_end_of_items_is_sought_in_vain_once() -> None:
    items = LenientItems(parse_lenient)
    assert items.scan('{\n\t"a": 1\n\t}, {', 0, 2) == ({"a": 1}, 12)
    assert not items.indented


@pytest.mark.parametrize("style", [None, False])
@pytest.mark.parametrize("indentation", ["", "  "])
def test_a_list_in_yaml_is_read(tmp_path: Path, style: bool | None, indentation: str) -> None:
    text = yaml.safe_dump(json.loads(listed(NODE, POD)), default_flow_style=style, allow_unicode=True)
    head, separator, tail = text.partition("items:\n")
    block, kind, end = tail.partition("kind: List")
    assert separator
    assert kind
    block = "".join(f"{indentation}{line}\n" for line in block.splitlines())
    assert (
        objects_by_kind(read(tmp_path, f"# of kubectl\n---\n{head}items:\n{block}kind: List{end}", name="d.yaml"))
        == READ
    )


def test_a_list_in_flow_style_and_single_objects_are_read_from_yaml(tmp_path: Path) -> None:
    flow = "{kind: NodeList, apiVersion: v1, items: [{metadata: {name: n1}}]}\n---\n"
    single = yaml.safe_dump(POD) + "---\n---\n# nothing\n"
    assert {kind: len(of) for kind, of in objects_by_kind(read(tmp_path, flow + single, name="d.yml")).items()} == {
        "Node": 1,
        "Pod": 1,
    }


@pytest.mark.parametrize("name", ["d.json", "d.yaml"])
def test_a_single_object_is_read(tmp_path: Path, name: str) -> None:
    assert objects_by_kind(read(tmp_path, json.dumps(POD), name=name)) == {"Pod": READ["Pod"]}


def bare(value: Item) -> Item:
    """Return an item as in the lists of the API, which have its kind."""
    return {name: member for name, member in value.items() if name not in ("kind", "apiVersion")}


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("name", ["d.json", "d.yaml"])
def test_items_without_a_kind_get_the_kind_of_their_list(tmp_path: Path, first: bool, name: str) -> None:
    head = {"apiVersion": "v1", "kind": "PodList"}
    items = {"items": [bare(POD)]}
    document = {**head, **items} if first else {**items, **head}
    assert objects_by_kind(read(tmp_path, json.dumps(document), name=name)) == {"Pod": READ["Pod"]}


def test_a_list_of_a_kind_is_not_absent_even_if_it_is_empty(tmp_path: Path) -> None:
    result = read(tmp_path, listed(NODE), listed(kind="PodList"), listed(kind="JobList", version="batch/v1"))
    assert result.objects is not None
    assert result.objects.absent == frozenset(API_RESOURCES) - {"Node", "Pod", "Job"}


@pytest.mark.parametrize(
    ("others", "partial"),
    [
        (["Namespace"], {"Pod"}),
        (["Namespace", "Pod"], set()),
        ([], set()),
    ],
    ids=["of one namespace", "of all namespaces", "unknown"],
)
def test_pods_of_one_namespace_are_not_all(tmp_path: Path, others: list[str], partial: set[str]) -> None:
    system = {"Namespace": item("Namespace", "kube-system"), "Pod": item("Pod", "dns")}
    system["Pod"]["metadata"]["namespace"] = "kube-system"
    result = read(tmp_path, listed(NODE, POD, *(system[kind] for kind in others)))
    assert result.objects is not None
    assert result.objects.partial == partial


@pytest.mark.parametrize("name", ["d.json", "d.yaml"])
def test_the_items_of_a_list_may_be_null(tmp_path: Path, name: str) -> None:
    result = read(tmp_path, '{"kind": "PodList", "apiVersion": "v1", "items": null}', name=name)
    assert result.objects is not None
    assert (result.objects.pods, "Pod" in result.objects.absent) == ((), False)


def test_an_archive_is_an_error(tmp_path: Path) -> None:
    message = "must-gather.tar.gz:1:1: error: the file is compressed: unpack it first [unreadable-file]"
    assert error(read(tmp_path, gzip.compress(b"a"), name="must-gather.tar.gz"), tmp_path) == message


def test_an_empty_list_of_any_kinds_is_an_error_only_if_nothing_else_is_read(tmp_path: Path) -> None:
    assert error(read(tmp_path, listed()), tmp_path) == (
        f"dump.json:1:1: error: no object found: expected {EXPECTED_INPUT} [not-a-cluster]"
    )
    assert objects_by_kind(read(tmp_path, listed(), listed(NODE))) == {"Node": READ["Node"]}
    assert "<stdin>:1:1: error: no object found" in str(read_objects([], KEPT).problems[0])


@pytest.mark.parametrize("order", [[0, 1], [1, 0]])
def test_the_latest_version_of_an_object_in_several_files_is_read(tmp_path: Path, order: list[int]) -> None:
    versions = [item("Pod", spec={"nodeName": str(version)}) for version in range(2)]
    for version, each in zip(("99", "100"), versions, strict=True):
        each["metadata"] = {**each["metadata"], "resourceVersion": version}
    texts = [listed(versions[0]), yaml.safe_dump(versions[1])]
    result = read(tmp_path, *[texts[index] for index in order], name="dump.yaml")
    assert [pod["spec"] for pod in objects_by_kind(result)["Pod"]] == [{"nodeName": "1"}]


@pytest.mark.parametrize("version", ["x", "9" * 30, None])
def test_a_version_that_is_not_a_number_is_the_oldest(tmp_path: Path, version: Json) -> None:
    old = item("Pod", spec={"nodeName": "old"}, metadata={"name": "a", "resourceVersion": version})
    new = item("Pod", spec={"nodeName": "new"}, metadata={"name": "a", "resourceVersion": "1"})
    assert [pod["spec"] for pod in objects_by_kind(read(tmp_path, listed(new, old)))["Pod"]] == [{"nodeName": "new"}]


def test_events_of_both_groups_are_one_object(tmp_path: Path) -> None:
    core = item("Event", involvedObject={"name": "p"}, message="m", count=3, lastTimestamp="2026-01-01T00:00:00Z")
    other = item("Event", version="events.k8s.io/v1", regarding={"name": "p", "uid": "u"}, note="m", deprecatedCount=3)
    other["deprecatedLastTimestamp"] = core["lastTimestamp"]
    (first,) = objects_by_kind(read(tmp_path, listed(core)))["Event"]
    assert objects_by_kind(read(tmp_path, listed(core), listed(other)))["Event"] == [first]
    assert first["involvedObject"] == {"name": "p"}
    whole = objects_by_kind(read(tmp_path, listed(other), kept={"Event": None}))["Event"][0]
    assert (whole["message"], whole["involvedObject"]["uid"]) == ("m", "u")


@pytest.mark.parametrize("name", ["d.json", "d.yaml"])
def test_kinds_of_other_api_groups_are_not_read(tmp_path: Path, name: str) -> None:
    foreign = item("Node", "cluster", "config.openshift.io/v1")
    assert objects_by_kind(read(tmp_path, listed(foreign, NODE), name=name)) == {"Node": READ["Node"]}
    assert error(read(tmp_path, listed(foreign), name=name), tmp_path).partition(": error: ")[2] == (
        f"Node of config.openshift.io/v1 is not read: expected {EXPECTED_INPUT} [not-a-cluster]"
    )


@pytest.mark.parametrize("condition", ["lastHeartbeatTime", "lastTransitionTime"])
def test_now_is_the_newest_time_of_a_change(tmp_path: Path, condition: str) -> None:
    def at(day: int) -> str:
        return f"2026-11-{day:02}T10:00:00Z"

    pod = item("Pod", metadata={"name": "a", "creationTimestamp": at(1), "deletionTimestamp": at(30)})
    node = item("Node", "n", status={"conditions": [{condition: at(3)}, {condition: "9"}, {condition: 9}]})
    event = item("Event", lastTimestamp=at(2), eventTime=None, firstTimestamp=at(29))

    def now(*items: Item) -> datetime:
        objects = read(tmp_path, listed(*items)).objects
        assert objects is not None
        return objects.now

    assert now(pod) == datetime(2026, 11, 1, 10, tzinfo=UTC)
    assert now(pod, event) == datetime(2026, 11, 2, 10, tzinfo=UTC)
    assert now(pod, node, event) == datetime(2026, 11, 3, 10, tzinfo=UTC)
    assert now(item("Pod")) == datetime(1970, 1, 1, tzinfo=UTC)


def test_standard_input_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    for text in (listed(NODE, POD), yaml.safe_dump_all([NODE, POD])):
        monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(text.encode())))
        assert objects_by_kind(read_objects([STDIN], KEPT)) == READ


def test_progress_counts_the_bytes_of_all_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_list, "CHUNK_BYTES", 100)
    monkeypatch.setattr(files, "CHUNK_BYTES", 100)
    texts = [listed(NODE), yaml.safe_dump(POD)]
    for number, text in enumerate(texts):
        (tmp_path / f"{number}.{'yaml' if number else 'json'}").write_text(text)
    seen: list[tuple[int, int]] = []
    read_objects([tmp_path], KEPT, lambda done, total: seen.append((done, total)))
    assert [total for _, total in seen] == [sum(map(len, texts))] * len(seen)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert (len(seen) > 5, seen[-1][0]) == (True, seen[-1][1])
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(texts[0].encode())))
    seen.clear()
    read_objects([STDIN], KEPT, lambda done, total: seen.append((done, total)))
    assert seen[-1] == (len(texts[0]), 0)


# Errors


LIST = listed(NODE, POD)
YAML = yaml.safe_dump(json.loads(LIST))
DEEP = item("Pod", spec={"nodeName": json.loads("[" * 99 + "]" * 99)})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (LIST[: LIST.index('"dnsPolicy"') + 3], "30:17: error: the text is not JSON, or it is cut [json-syntax]"),
        (LIST[: LIST.index("        {", 200)], "21:1: error: the text is not JSON, or it is cut"),
        (LIST[:-2], "error: expected ',', but the text ends: is the file cut? [json-syntax]"),
        (LIST + "{}", "error: the text continues after the end of the list [json-syntax]"),
        (LIST.replace('"nodeName": ', '"nodeName" '), "error: the text is not JSON [json-syntax]"),
        (LIST.replace('"kind": "List"', '5: "List"'), "error: the text is not JSON: the name of a member must be text"),
        (LIST.replace('"n1"', "9" * 5000), "error: a number has too many digits [json-syntax]"),
        (LIST.encode().replace(b"u00e9", b"\xff"), "byte 0xFF is not UTF-8: save the file as UTF-8 [not-utf-8]"),
        (
            listed(item("Pod", spec={"nodeName": "DEEP"})).replace('"DEEP"', "[" * 99 + "]" * 99),
            "4:9: error: more than 64 levels",
        ),
        (
            json.dumps(item("Pod", spec={"nodeName": "DEEP"})).replace('"DEEP"', "[" * 99 + "]" * 99),
            "1:91: error: more",
        ),
        ("{", "1:2: error: the text is not JSON, or it is cut"),
        ("{]", "error: "),
        ("", f"1:1: error: no object found: expected {EXPECTED_INPUT}"),
        ("plain text", f"1:1: error: a value that is not an object is not read: expected {EXPECTED_INPUT}"),
        ("[]", "1:1: error: a value that is not an object is not read"),
        ("{}", "1:1: error: an object without a kind is not read"),
        ('{"items": [{}]}', "error: an object without a kind is not read"),
        (listed(1, None), "4:9: error: a value that is not an object is not read"),
        (listed(item("Secret")), "4:9: error: Secret is not read"),
        (json.dumps({"kind": "Status", "message": "no"}), "1:1: error: Status is not read"),
        (json.dumps(item("K" * 999)), f"1:1: error: {'K' * 60}… is not read"),
    ],
    ids=range(21),
)
def test_a_file_that_cannot_be_read_is_an_error_with_its_place(tmp_path: Path, text: str | bytes, message: str) -> None:
    problem = error(read(tmp_path, text), tmp_path)
    assert problem.startswith("dump.json:")
    assert message in problem


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (YAML[: YAML.index("dnsPolicy")] + '"', "error: the quote is never closed [yaml-syntax]"),
        (YAML.replace("nodeName: n1", "nodeName: 'n1"), "error: "),
        (YAML.replace("spec:", "spec: ["), "error: "),
        ("kind: Secret\napiVersion: v1\n", "error: Secret is not read"),
        ("- 1\n", "error: a value that is not an object is not read"),
        (b"kind: \xff", "byte 0xFF is not UTF-8"),
        (yaml.safe_dump(DEEP), "more than 64"),
    ],
    ids=range(7),
)
def test_yaml_that_cannot_be_read_is_an_error_with_its_place(tmp_path: Path, text: str | bytes, message: str) -> None:
    result = read(tmp_path, text, name="dump.yaml")
    assert result.objects is None
    assert message in messages(result, tmp_path)[0]


def test_a_problem_of_an_item_in_yaml_has_its_line(tmp_path: Path) -> None:
    text = YAML.replace("nodeName: n1", "nodeName: *x")
    line = text[: text.index("*x")].count("\n") + 1
    result = read(tmp_path, text, name="dump.yaml")
    assert messages(result, tmp_path) == [
        f"dump.yaml:{line}:15: error: no anchor 'x' precedes this alias: write \"*x\" for the text [yaml-alias]"
    ]
    (name,) = result.sources
    assert "*x" in result.sources[name][line - 1]


@pytest.mark.parametrize("name", ["d.json", "d.yaml"])
def test_an_object_without_a_name_is_left_out_with_a_warning(tmp_path: Path, name: str) -> None:
    result = read(tmp_path, listed({"kind": "Pod"}, NODE), name=name)
    assert objects_by_kind(result) == {"Node": READ["Node"]}
    (problem,) = result.problems
    assert (problem.severity, problem.message) == (Severity.WARNING, "a Pod without a name is left out")


@pytest.mark.parametrize(
    "members",
    [
        {"metadata": {"name": "a; reboot", "namespace": "ml"}},
        {"metadata": {"name": "a", "namespace": "$(reboot)"}},
        {"metadata": {"name": "a", "namespace": "ml.team"}},
        {"spec": {"nodeName": "b\nreboot"}},
        {"spec": {"containers": [{"name": "ok"}, {"name": "`reboot`"}]}},
        {"spec": {"initContainers": [{"name": "a b"}]}},
    ],
)
def test_objects_with_names_that_a_shell_would_run_are_left_out(tmp_path: Path, members: Item) -> None:
    kept: dict[str, Kept] = {"Pod": {"spec": {"nodeName": None, "containers": None, "initContainers": None}}}
    good = item("Pod", "b", spec={"nodeName": "c.d", "containers": [{"name": "e"}]})
    result = read(tmp_path, listed(*[item("Pod", **members)] * 2, good), kept=kept)
    assert [pod["metadata"]["name"] for pod in objects_by_kind(result)["Pod"]] == ["b"]
    (problem,) = result.problems
    assert (problem.severity, problem.message) == (Severity.WARNING, "a Pod with an invalid name is left out")


def test_a_list_in_yaml_that_is_cut_before_its_kind_is_an_error(tmp_path: Path) -> None:
    text = yaml.safe_dump({"apiVersion": "v1", "items": [NODE, item("Pod")], "kind": "List"})
    cut = text[: text.index("kind: List")]
    assert messages(read(tmp_path, cut, name="dump.yaml"), tmp_path) == [
        "dump.yaml:1:1: error: the list has no kind: is the file cut? [not-a-cluster]"
    ]


def test_a_file_that_does_not_exist_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = read_objects([tmp_path / "no.json"], KEPT)
    assert error(result, tmp_path) == "no.json:1:1: error: file or folder not found [missing-file]"
    (tmp_path / "loop.json").symlink_to("loop.json")
    assert "cannot be read: " in error(read_objects([tmp_path / "loop.json"], KEPT), tmp_path)
    monkeypatch.setattr(sys, "stdin", None)
    assert "<stdin>:1:1: error: cannot be read: " in error(read_objects([STDIN], KEPT), tmp_path)


def test_sizes_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_list, "MAX_ITEM_BYTES", 500)
    monkeypatch.setattr(json_list, "CHUNK_BYTES", 100)
    monkeypatch.setattr(files, "CHUNK_BYTES", 100)
    large = item("Pod", spec={"x": ["x" * 9] * 100})
    assert "error: an object of the list is larger than 0 MiB" in error(read(tmp_path, listed(large)), tmp_path)
    split = json.dumps({**item("Pod"), **{f"member-{number}": "x" * 99 for number in range(9)}})
    assert "error: an object that is not a list is larger than 0 MiB" in error(read(tmp_path, split), tmp_path)
    monkeypatch.setattr(files, "MAX_DUMP_BYTES", 300)
    assert "error: the file is larger than 0 MiB" in error(read(tmp_path, LIST), tmp_path)
    monkeypatch.setattr(files, "MAX_YAML_BYTES", 300)
    message = "a file in YAML is larger than 128 MiB: write it with -o json"
    assert message in error(read(tmp_path, YAML, name="d.yaml"), tmp_path)


def test_memory_does_not_grow_with_dropped_members(tmp_path: Path) -> None:
    path = tmp_path / "dump.json"
    path.write_text(listed(*[item("Pod", f"p{number}", spec={"args": ["x"] * 500}) for number in range(3000)]))
    tracemalloc.start()
    result = read_objects([path], KEPT)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(objects_by_kind(result)["Pod"]) == 3000
    assert most < path.stat().st_size / 3


@pytest.mark.parametrize("enabled", [True, False])
def test_the_garbage_collector_is_as_it_was(tmp_path: Path, enabled: bool) -> None:
    (gc.enable if enabled else gc.disable)()
    try:
        read(tmp_path, LIST)
        assert gc.isenabled() == enabled
    finally:
        gc.enable()


def test_the_documentation_has_the_bounds_of_the_reader() -> None:
    text = " ".join((REPOSITORY / "docs/how-to/diagnose.md").read_text().split())
    assert (
        f"at most {files.MAX_DUMP_BYTES // 2**30} GiB of JSON and {files.MAX_YAML_BYTES // 2**20} MiB of YAML "
        f"in one file, {json_list.MAX_ITEM_BYTES // 2**20} MiB in one object, {files.MAX_DUMP_FILES:,} files in a "
        "folder."
    ) in text


# Folders


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_yaml", ".yaml").replace("_json", ".json")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_a_must_gather_folder_of_openshift_is_read(tmp_path: Path) -> None:
    folder = write(
        tmp_path,
        **{
            "image__cluster-scoped-resources__core__nodes__n_yaml": "---\n" + yaml.safe_dump(NODE),
            "image__cluster-scoped-resources__config.openshift.io__nodes_yaml": yaml.safe_dump(
                {"kind": "NodeList", "apiVersion": "config.openshift.io/v1", "items": []}
            ),
            "image__namespaces__ml__core__pods_yaml": "---\n"
            + yaml.safe_dump({"apiVersion": "v1", "items": [POD], "kind": "PodList"}),
            "image__namespaces__ml__core__events_yaml": "---\napiVersion: v1\nitems: []\nkind: EventList\n",
            "image__namespaces__ml__core__secrets_yaml": "kind: Secret\nmetadata: {name: s}\nbroken: [\n",
            "image__namespaces__ml__pods__a__a_yaml": "---\n" + yaml.safe_dump(POD),
            "image__etcd_info__endpoint_json": '[{"a": 1}]\n{"b": 2}',
            "image__monitoring__rules_json": '{"status": "success"}\n{"status": "success"}',
            "image__namespaces__all__logs_json": '{"kind": "Log"}',
            "image__empty_yaml": "",
            "image__timestamp": "2026-11-01 not read",
        },
    )
    result = read_objects([folder], KEPT)
    assert result.problems == ()
    assert objects_by_kind(result) == READ
    assert result.objects is not None
    assert result.objects.absent == frozenset(API_RESOURCES) - {"Node", "Pod", "Event"}


def test_a_must_gather_folder_of_the_gpu_operator_is_read(tmp_path: Path) -> None:
    daemon_set = item("DaemonSet", "nvidia-device-plugin-daemonset", "apps/v1")
    folder = write(
        tmp_path,
        **{
            "gpu_operand_pods_yaml": yaml.safe_dump(json.loads(listed(POD))),
            "gpu_operand_ds_yaml": yaml.safe_dump(json.loads(listed(daemon_set))),
            "cluster_policy_yaml": yaml.safe_dump(item("ClusterPolicy", version="nvidia.com/v1")),
            "gpu_nodes.labels": "n\n- a=b\n",
            "gpu_operand_pods.status": "NAME READY\n",
            "cluster_policy.missing": "",
            "must-gather.log": "+ kubectl get\n",
        },
    )
    result = read_objects([folder], KEPT)
    assert [*objects_by_kind(result)] == ["Pod", "DaemonSet"]
    assert result.objects is not None
    assert "Node" in result.objects.absent


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pods_yaml", YAML[: YAML.index("dnsPolicy")] + '"'),
        ("pods_json", LIST[:-40]),
        ("pods_json", listed(POD)[:120]),
        ("deployments_json", listed(*[item("Deployment")] * 9, POD)[:-40]),
    ],
)
def test_a_cut_file_of_a_folder_is_an_error_if_its_objects_would_be_read(tmp_path: Path, name: str, text: str) -> None:
    folder = write(tmp_path, nodes_json=listed(NODE), **{name: text})
    assert read_objects([folder], KEPT).objects is None


def test_a_folder_without_objects_is_an_error(tmp_path: Path) -> None:
    assert "no .yaml, .yml or .json file in this folder" in error(read_objects([tmp_path], KEPT), tmp_path)
    write(tmp_path, a_json=listed(item("Secret")))
    assert error(read_objects([tmp_path], KEPT), tmp_path) == (
        f"{tmp_path}:1:1: error: no object found: expected {EXPECTED_INPUT} [not-a-cluster]"
    )


def test_a_file_that_is_named_and_in_a_folder_is_read_once(tmp_path: Path) -> None:
    folder = write(tmp_path, a_json=LIST)
    seen: list[int] = []
    result = read_objects([folder, folder / "a.json", folder], KEPT, lambda done, _total: seen.append(done))
    assert objects_by_kind(result) == READ
    assert seen[-1] == len(LIST)


def test_the_number_of_files_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_DUMP_FILES", 1)
    write(tmp_path, a_json=LIST, b_json=LIST)
    assert "more than 1 files: is this the right folder?" in error(read_objects([tmp_path], KEPT), tmp_path)
