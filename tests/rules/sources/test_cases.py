"""RuleTests: their cases and the files they name."""

import json
import os
from pathlib import Path

import pytest

from rules_engine.cluster.read.inventory import Inventory
from rules_engine.model.kubernetes.cluster import Classes, Cluster
from rules_engine.model.kubernetes.devices import Devices
from rules_engine.model.kubernetes.quantity import Quantity
from rules_engine.model.problems.source import Location
from rules_engine.model.rules.decision import Action
from rules_engine.model.rules.rule import RuleId
from rules_engine.model.rules.rule_test import ExpectedAudit, RuleTest
from rules_engine.rules.sources.documents import load_documents
from tests.support.loading import codes, load_text, rule

TEST = """\
apiVersion: gpurules.io/v1
kind: RuleTest
metadata: {name: mig-80gb}
spec:
  description: With every field.
  rules: [../ladders, ladder.yaml]
  cluster: {file: two-workers.yaml}
  cases:
    - name: falls to the whole card
      pod: {metadata: {namespace: own}, spec: {containers: [{name: c, resources: {limits: {a.b/c: 2}}}]}}
      oldPod: {kind: Pod, spec: {containers: [{name: c}]}}
      request: {namespace: ml, namespaceLabels: {team: ml}, dryRun: true, operation: UPDATE}
      expect:
        allowed: false
        containers: {main: {nvidia.com/gpu: 1, cpu: 0.5}, other: {}}
        requests: {main: {cpu: 0}}
        limits: {main: {cpu: 2}}
        podFile: pods/job.yaml
        annotations: {gpurules.io/fallback: 3g.40gb->gpu, gone: null}
        warnings: [slow]
        message: "no"
        decidedBy:
          - {rule: FallbackLadder/mig-80gb, rung: nvidia.com/gpu}
          - {rule: ResourceInjection/v100}
        audited:
          - {rule: FallbackLadder/new, action: change, rung: nvidia.com/gpu, message: moved}
          - {rule: ResourceInjection/t4, containers: {main: {cpu: 3}}, annotations: {net: eni}}
    - name: says little
      podFile: pods/job.yaml
      expect: {allowed: false, warnings: [], decidedBy: []}
"""


def only(folder: Path, text: str) -> RuleTest:
    loaded = load_text(folder, text, "set/test.yaml")
    assert loaded.problems == ()
    (found,) = loaded.tests
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The files that TEST names."""
    (tmp_path / "ladders").mkdir()
    here = tmp_path / "set"
    (here / "pods").mkdir(parents=True)
    (here / "ladder.yaml").touch()
    (here / "two-workers.yaml").write_text(rule("ClusterInventory", "{nodes: [{name: worker}]}"))
    (here / "pods" / "job.yaml").write_text(
        "---\nkind: Job\nmetadata: {namespace: jobs}\n"
        "spec: {template: {spec: {hostIPC: yes, containers: [{name: c}]}}}\n---\n"
    )
    return tmp_path


def test_every_field_of_a_test_is_read(folder: Path) -> None:
    test = only(folder, TEST)
    file = str(folder / "set" / "test.yaml")
    assert (test.name, test.location) == ("mig-80gb", Location(file, 3, 18))
    assert test.rules == (f"{folder}/set/../ladders", f"{folder}/set/ladder.yaml")
    assert [node.name for node in test.cluster.nodes] == ["worker"]
    case, _ = test.cases
    assert (case.name, case.location) == ("falls to the whole card", Location(file, 9, 13))
    assert case.pod == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": "own"},
        "spec": {"containers": [{"name": "c", "resources": {"limits": {"a.b/c": "2"}}}]},
    }
    assert case.old_pod == {"apiVersion": "v1", "kind": "Pod", "metadata": {}, "spec": {"containers": [{"name": "c"}]}}
    assert (case.namespace, case.namespace_labels, case.operation) == ("ml", {"team": "ml"}, "UPDATE")
    assert case.dry_run
    expect = case.expect
    assert (expect.location, expect.allowed) == (Location(file, 13, 7), False)
    assert expect.containers == {"main": {"nvidia.com/gpu": Quantity.of(1), "cpu": Quantity.parse("500m")}, "other": {}}
    assert expect.annotations == {"gpurules.io/fallback": "3g.40gb->gpu", "gone": None}
    assert (expect.warnings, expect.message) == (("slow",), "no")
    assert expect.decided_by is not None
    assert [(decider.rule, decider.rung, decider.location.line) for decider in expect.decided_by] == [
        (RuleId("FallbackLadder/mig-80gb"), "nvidia.com/gpu", 23),
        (RuleId("ResourceInjection/v100"), None, 24),
    ]
    assert (expect.requests, expect.limits) == ({"main": {"cpu": Quantity(0)}}, {"main": {"cpu": Quantity.of(2)}})
    assert expect.pod == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {},
        "spec": {"hostIPC": True, "containers": [{"name": "c"}]},
    }
    assert expect.audited == (
        ExpectedAudit(
            rule=RuleId("FallbackLadder/new"),
            location=Location(file, 26, 20),
            action=Action.CHANGE,
            message="moved",
            rung="nvidia.com/gpu",
        ),
        ExpectedAudit(
            rule=RuleId("ResourceInjection/t4"),
            location=Location(file, 27, 20),
            containers={"main": {"cpu": Quantity.of(3)}},
            annotations={"net": "eni"},
        ),
    )


def test_members_absent_from_a_case_are_not_compared(folder: Path) -> None:
    _, case = only(folder, TEST).cases
    assert (case.namespace, case.namespace_labels, case.operation, case.dry_run) == ("jobs", {}, "CREATE", False)
    assert case.old_pod is None
    expect = case.expect
    assert (expect.allowed, expect.containers, expect.annotations, expect.message) == (False, {}, {}, None)
    assert (expect.warnings, expect.decided_by) == ((), ())


def test_defaults_are_the_folder_and_a_cluster_without_nodes(folder: Path) -> None:
    case = "{name: a, pod: {spec: {containers: [{name: c}]}}, expect: {message: none}}"
    test = only(folder, rule("RuleTest", f"{{cases: [{case}]}}"))
    assert test.rules == (str(folder / "set"),)
    unread = {"resourceclaims": "", "resourceclaimtemplates": ""}
    assert test.cluster == Cluster(classes=Classes({}, {}), devices=Devices(unread=unread))
    (found,) = test.cases
    assert found.namespace == "default"
    assert (found.expect.allowed, found.expect.warnings, found.expect.decided_by) == (None, None, None)


def test_the_cluster_may_be_written_in_the_test(folder: Path) -> None:
    case = "{name: a, pod: {spec: {containers: [{name: c}]}}, expect: {allowed: true}}"
    spec = f"{{cluster: {{nodes: [{{name: a, cards: 2}}], namespaces: {{ml: {{}}}}}}, cases: [{case}]}}"
    test = only(folder, rule("RuleTest", spec))
    assert str(test.cluster.nodes[0].allocatable["nvidia.com/gpu"]) == "2"
    assert list(test.cluster.namespaces) == ["ml"]


def test_the_cluster_may_be_kubectl_output(folder: Path) -> None:
    printed = {"kind": "List", "items": [{"kind": "Node", "metadata": {"name": "live"}}]}
    (folder / "set" / "live.json").write_text(json.dumps(printed))
    test = only(folder, TEST.replace("two-workers.yaml", "live.json"))
    assert [node.name for node in test.cluster.nodes] == ["live"]


def test_problems_of_a_referenced_file_are_reported_once(folder: Path) -> None:
    (folder / "set" / "two-workers.yaml").write_text("kind: [")
    (folder / "set" / "pods" / "job.yaml").write_text("kind: [")
    again = TEST.replace("name: mig-80gb}", "name: again}")
    loaded = load_text(folder, f"{TEST}---\n{again}", "set/test.yaml")
    assert codes(loaded.problems) == ["bad-reference"] * 6 + ["yaml-syntax"] * 2
    assert {Path(name).name for name in loaded.sources} == {"test.yaml", "job.yaml"}
    assert loaded.tests == ()


@pytest.mark.parametrize("name", ["a" * 5000, "a/" * 5000, '"\\0"', "ladder.yaml/x"])
def test_an_impossible_file_name_is_a_missing_file(folder: Path, name: str) -> None:
    loaded = load_text(folder, TEST.replace("two-workers.yaml", name), "set/t.yaml")
    assert codes(loaded.problems) == ["missing-file"]
    assert len(loaded.problems[0].message) < 400


def test_a_file_that_cannot_be_read_is_no_manifest(folder: Path) -> None:
    (folder / "set" / "pods" / "job.yaml").unlink()
    (folder / "set" / "pods" / "job.yaml").mkdir()
    loaded = load_text(folder, TEST, "set/test.yaml")
    assert codes(loaded.problems) == ["bad-reference", "bad-reference", "unreadable-file"]


@pytest.mark.parametrize("name", ["pods/job.yaml", "two-workers.yaml"])
def test_referenced_files_must_be_regular_files(folder: Path, name: str) -> None:
    (folder / "set" / name).unlink()
    os.mkfifo(folder / "set" / name)
    loaded = load_text(folder, TEST, "set/test.yaml")
    assert set(codes(loaded.problems)) == {"bad-reference", "not-a-regular-file"}


def test_tests_load_from_folders_that_also_hold_their_pods(folder: Path) -> None:
    (folder / "set" / "test.yaml").write_text(TEST)
    (folder / "set" / "ladder.yaml").write_text(rule("FallbackLadder", "{rungs: [{resource: a.b/c}]}"))
    loaded = load_documents([folder / "set"])
    assert loaded.problems == ()
    assert (len(loaded.rules), len(loaded.tests), len(loaded.of(Inventory))) == (1, 1, 1)


SEVERAL = """\
apiVersion: gpurules.io/v1
kind: RuleTest
metadata: {name: sites}
spec:
  clusters:
    mig: {nodes: [{name: a, allocatable: {nvidia.com/mig-1g.10gb: 7}}]}
    cards: {file: two-workers.yaml}
  cases:
    - name: on both
      pod: {spec: {containers: [{name: c}]}}
      expect: {allowed: true}
      expectOn: {cards: {decidedBy: []}}
    - name: on one
      pod: {spec: {containers: [{name: c}]}}
      expectOn: {mig: {decidedBy: []}}
"""


def test_a_case_runs_on_the_clusters_with_an_expectation(folder: Path) -> None:
    test = only(folder, SEVERAL)
    assert [node.name for name in ("mig", "cards") for node in test.clusters[name].nodes] == ["a", "worker"]
    both, one = test.cases
    assert (both.clusters, one.clusters) == (("mig", "cards"), ("mig",))
    assert [len(both.expectations(name)) for name in both.clusters] == [1, 2]
    assert [expect.decided_by for expect in one.expectations("mig")] == [None, ()]


@pytest.mark.parametrize(
    ("old", "new", "code", "place", "message"),
    [
        (
            "mig: {decidedBy",
            "migs: {decidedBy",
            "unknown-cluster",
            (15, 18),
            "cluster 'migs' not found (did you mean 'mig'?)",
        ),
        (
            "expectOn: {mig: {decidedBy: []}}",
            "request: {}",
            "missing-field",
            (13, 7),
            "case needs 'expect' or 'expectOn'",
        ),
        (
            "  cases:",
            "  cluster: {}\n  cases:",
            "conflicting-fields",
            (5, 3),
            "'cluster' and 'clusters' cannot be used together",
        ),
        (
            "{allowed: true}",
            "{allowed: true, message: nope}",
            "conflicting-fields",
            (11, 31),
            "message is that of a denial: with allowed: true there is none",
        ),
        (
            "{allowed: true}",
            "{pod: {spec: {containers: [{name: c}]}}, podFile: pods/job.yaml}",
            "conflicting-fields",
            (11, 56),
            "'pod' and 'podFile' cannot be used together",
        ),
    ],
)
def test_combinations_that_are_impossible_are_problems_at_their_place(
    folder: Path, old: str, new: str, code: str, place: tuple[int, int], message: str
) -> None:
    (problem,) = load_text(folder, SEVERAL.replace(old, new, 1), "set/test.yaml").problems
    assert (problem.code, problem.message) == (code, message)
    assert (problem.location.line, problem.location.column) == place


def test_an_expectation_on_a_cluster_needs_clusters(folder: Path) -> None:
    start, end = SEVERAL.index("  clusters:"), SEVERAL.index("  cases:")
    loaded = load_text(folder, SEVERAL[:start] + SEVERAL[end:], "set/test.yaml")
    assert [(p.code, p.location.line, p.message) for p in loaded.problems] == [
        ("missing-field", line, "expectOn needs 'clusters', which the test does not have") for line in (9, 12)
    ]


def test_a_cluster_without_an_expectation_is_a_warning(folder: Path) -> None:
    start = SEVERAL.index("    - name: on both")
    text = SEVERAL[:start] + SEVERAL[SEVERAL.index("    - name: on one") :]
    (problem,) = load_text(folder, text, "set/test.yaml").problems
    assert (problem.code, problem.location.line, problem.message) == (
        "ignored-field",
        7,
        "no case is run on the cluster 'cards': none has an expectation on it",
    )


GROUPS = (
    "{kind: Cluster, spec: {head: {template: T}, groups: [{name: small, template: T}, {name: large, template: T}]}}"
)
ONE_POD = "expected one pod, not 3: podFile: {file: FILE, template: NAME} takes one of head, large, small"
TWO_PODS = "expected one pod, not 2"
NO_NAME = "expected no name: the pod template has none"


@pytest.mark.parametrize(
    ("pod_file", "manifest", "problem"),
    [
        ("{file: it.yaml, template: head}", GROUPS, ""),
        ("{file: it.yaml, template: Large}", GROUPS, ""),
        ("{file: it.yaml, template: medium}", GROUPS, "6:52: expected one of the names head, large, small"),
        ("{file: it.yaml, template: a}", "{kind: Job, spec: {template: T}}", f"6:52: {NO_NAME}"),
        ("it.yaml", GROUPS, f"6:26: {ONE_POD}"),
        ("it.yaml", "{kind: List, items: [{kind: Job, spec: {template: T}}, {template: T}]}", f"6:26: {TWO_PODS}"),
        ("{file: it.yaml}", "{kind: Job, spec: {template: T}}", ""),
        ("{template: a}", GROUPS, "6:17: file name needs 'file'"),
    ],
)  # fmt: skip
def test_a_case_takes_one_of_several_templates(pod_file: str, manifest: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / "it.yaml").write_text(manifest.replace("T}", "{spec: {containers: [{name: c}]}}}"))
    head = "apiVersion: gpurules.io/v1\nkind: RuleTest\nmetadata: {name: t}\nspec:\n  cases:\n"
    loaded = load_text(tmp_path, f"{head}    - {{name: a, podFile: {pod_file}, expect: {{allowed: true}}}}\n")
    assert [f"{p.location.line}:{p.location.column}: {p.message}" for p in loaded.problems] == (
        [problem] if problem else []
    )
