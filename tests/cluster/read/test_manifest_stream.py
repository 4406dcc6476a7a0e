"""Large lists of pods are read object by object."""

import json
import sys
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest

from rules_engine.cluster.read import manifest_stream
from rules_engine.cluster.read.manifest_stream import PodPart, stream_manifests
from rules_engine.language.files import MAX_FILE_BYTES, STDIN
from tests.support.authoring import cli

SMALL = 1000
"""Bytes of a file that is read at once, in most tests."""


def bound(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Set the size of a file that is read at once."""
    monkeypatch.setattr(manifest_stream, "MAX_FILE_BYTES", size)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    bound(monkeypatch, SMALL)


def pod(name: str, **container: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "ml"}
    return {"kind": "Pod", "metadata": metadata, "spec": {"containers": [{"name": "é", **container}]}}


def listed(*items: Any, indent: int | None = 4, **members: Any) -> str:
    """Return a list as kubectl writes it, with its kind at the end."""
    return json.dumps(
        {"apiVersion": "v1", "items": list(items), "kind": "List", "metadata": {"x": "y" * 600}, **members},
        indent=indent,
        ensure_ascii=False,
    )


def parts(folder: Path, text: str | bytes) -> list[PodPart]:
    path = folder / "pods.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return list(stream_manifests([path]))


def problems(pod_parts: list[PodPart]) -> list[str]:
    return [
        str(problem)[str(problem).index("/pods.json") + 1 :] if "/pods.json" in str(problem) else str(problem)
        for part in pod_parts
        for problem in part.problems
    ]


@pytest.mark.parametrize("indent", [None, 4])
@pytest.mark.parametrize("mark", ["", "\ufeff", "\n \t"])
def test_each_object_of_a_list_is_a_part(tmp_path: Path, indent: int | None, mark: str) -> None:
    config = {"kind": "ConfigMap", "data": {"a": [1, 2.5, None, True]}}
    job = {"kind": "Job", "metadata": {"name": "j"}, "spec": {"template": {"spec": {"containers": [{"name": "c"}]}}}}
    pod_parts = parts(tmp_path, mark + listed(pod("a"), config, job, pod("b"), indent=indent))
    assert [[(made.kind, made.name) for made in part.pods] for part in pod_parts] == [
        [("Pod", "a")],
        [],
        [("Job", "j")],
        [("Pod", "b")],
        [],
    ]
    assert problems(pod_parts) == []
    assert pod_parts[0].pods[0].pod == {"apiVersion": "v1", **pod("a")}


def test_amounts_keep_their_text(tmp_path: Path) -> None:
    text = listed(pod("a", resources={"limits": {"cpu": "AMOUNT", "x.y/z": 2}})).replace('"AMOUNT"', "0.10")
    part, _ = parts(tmp_path, text)
    resources: Any = part.pods[0].pod["spec"]
    assert resources["containers"][0]["resources"] == {"limits": {"cpu": "0.10", "x.y/z": "2"}}


def test_problems_have_the_place_of_their_object_and_others_are_read(tmp_path: Path) -> None:
    wrong = pod("wrong", resources={"limits": {"cpu": "two"}})
    pod_parts = parts(tmp_path, listed(pod("a"), wrong, pod("b", resource={}), pod("c")))
    assert [[made.name for made in part.pods] for part in pod_parts] == [["a"], [], ["b"], ["c"], []]
    bad, misspelt = problems(pod_parts)
    assert bad.startswith("pods.json:18:9: error: /spec/containers/0/resources/limits/cpu: ")
    assert misspelt.startswith("pods.json:37:9: warning: Container has no field 'resource' (did you mean 'resources'?)")


def test_a_small_file_is_read_at_once_with_its_lines(tmp_path: Path) -> None:
    path = tmp_path / "pod.yaml"
    path.write_text("kind: Pod\nspec: {containers: [{name: c}]}\n")
    ((part),) = stream_manifests([path])
    assert part.problems == ()
    assert ([made.kind for made in part.pods], list(part.sources)) == (["Pod"], [str(path)])


def test_a_list_is_read_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(listed(pod("a"), pod("b")).encode())))
    assert [made.name for part in stream_manifests([STDIN]) for made in part.pods] == ["a", "b"]


DEEP = listed("DEEP", z="x" * 600).replace('"DEEP"', "[" * 100 + "]" * 100)
DEEPER = listed("DEEP").replace('"DEEP"', "[" * 50_000 + "]" * 50_000)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (listed(pod("a"), pod("b"), pod("c"), pod("d"))[:1050], "error: the text ends: is the file cut?"),
        (listed(pod("a"), z="x" * 300).rstrip("}\n"), "error: the text ends: is the file cut?"),
        (listed(pod("a")).replace('"kind"', "kind"), "error: the text is not JSON: expecting property name"),
        (listed(pod("a")).replace('"items":', '"items"'), "error: the text is not JSON: expecting ':' delimiter"),
        (
            listed({"kind": "ConfigMap"}, z="x" * 600),
            "error: no pod and no object with a pod template found [not-a-pod]",
        ),
        (listed(z="x" * 600), "error: no pod and no object with a pod template found [not-a-pod]"),
        (DEEP, "error: more than 64 levels of lists and maps [yaml-too-deep]"),
        (listed(pod("a")).encode().replace("é".encode(), b"\xff"), "byte 0xFF is not UTF-8: save the file as UTF-8"),
        ("# " * SMALL, "pods.json:1:1: error: the file is larger than"),
    ],
    ids=range(9),
)
def test_a_text_that_is_no_list_is_a_problem(tmp_path: Path, text: str | bytes, message: str) -> None:
    data = text if isinstance(text, bytes) else text.encode()
    assert message in problems(parts(tmp_path, data))[-1]


def test_a_text_too_deep_for_the_parser_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bound(monkeypatch, 200_000)
    text = DEEPER.replace("y" * 600, "y" * 190_000)
    assert problems(parts(tmp_path, text))[-1].endswith("levels of lists and maps [yaml-too-deep]")


def test_a_number_too_long_for_the_parser_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bound(monkeypatch, 5500)
    text = listed(pod("a")).replace('"é"', "9" * 5000)
    assert problems(parts(tmp_path, text))[-1].endswith("error: a number has too many digits [json-syntax]")


def test_a_decision_log_is_no_manifest(tmp_path: Path) -> None:
    line = json.dumps({"at": "now", "endpoint": "mutate", "outcome": "Allowed", "request": {"object": pod("a")}})
    (found,) = parts(tmp_path, f"{line}\n" * 20)
    assert found.pods == ()
    assert [problem.message for problem in found.problems] == [
        "this is a decision log: audit reads it, and explain and diff do by --from-log"
    ]


def test_files_that_cannot_be_read_are_problems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "cannot be read: " in problems(list(stream_manifests([tmp_path / ("x" * 300)])))[0]
    monkeypatch.setattr(sys, "stdin", None)
    assert "cannot be read: " in problems(list(stream_manifests([STDIN])))[0]


def test_explain_reads_a_list_larger_than_a_file_of_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bound(monkeypatch, MAX_FILE_BYTES)
    wrong = pod("wrong", resources={"limits": {"cpu": "two"}})
    path = tmp_path / "pods.json"
    path.write_text(listed(pod("a"), wrong, {"kind": "Secret", "data": {"x": "y" * (MAX_FILE_BYTES - 99)}}, pod("b")))
    result = cli("explain", "-f", path)
    assert result.exit_code == 2
    assert [line for line in result.stdout.splitlines() if line.startswith("Pod ")] == ["Pod ml/a", "Pod ml/b"]
    assert "pods.json:18:9: error: /spec/containers/0/resources/limits/cpu" in result.stderr
    document = json.loads(cli("explain", "-f", path, "--output", "json").stdout)
    assert ([made["name"] for made in document["pods"]], document["verdict"]) == (["a", "b"], "Unknown")
    other = cli("explain", "-f", path, "-n", "other")
    assert (other.exit_code, other.stdout) == (2, "")
