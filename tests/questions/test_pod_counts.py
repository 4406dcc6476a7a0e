"""Law: preflight, diff, simulate and plan count the same pods of a workload, whatever its kind."""

import json
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import event, example, given

from rules_engine import (
    InputError,
    Manifest,
    PlanError,
    RuleSet,
    diff,
    load_cluster,
    load_manifests,
    load_rules,
    load_simulation,
    plan,
    preflight,
    simulate,
)
from tests.support.authoring import write
from tests.support.loading import rule
from tests.support.workload_objects import OWN_KIND, template, workload_objects

RULE = rule("Validation", "{validations: [{expression: 'true', message: m}]}")
LOAD = "{cluster: {file: cluster.yaml}, arrivals: [{workloadFile: workload.yaml, runFor: 1s}]}"
FILES = {
    "rules.yaml": f"{RULE}---\n{OWN_KIND}",
    "cluster.yaml": rule("ClusterInventory", "{nodes: [{name: a, allocatable: {cpu: 999, nvidia.com/gpu: 999}}]}"),
    "load.yaml": rule("Simulation", LOAD),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("counts"), FILES)


def counts(folder: Path, rules: RuleSet, manifests: tuple[Manifest, ...]) -> Iterator[tuple[str, int]]:
    """Yield the number of all pods by each command, and of those at once."""
    cluster, load = load_cluster([folder / "cluster.yaml"]), load_simulation(folder / "load.yaml", rules.workload_kinds)
    yield "preflight at once", sum(each.pods for each in preflight(rules, manifests, cluster).workloads)
    yield "simulate at once", sum(group.parallel for each in load.arrivals for group in each.groups)
    answer = diff(rules, rules, manifests=[folder / "workload.yaml"]).answer
    assert answer is not None
    yield "diff", answer.clusters[0].pods
    yield "simulate", simulate(rules, load).results[0].totals.pods
    with suppress(PlanError):  # no pod has a GPU
        yield "plan", plan(rules, load, (8, "A100-40GB"), nodes=1).choices[0].pods


NONE_AT_ONCE = {
    "apiVersion": "kubeflow.org/v1beta1",
    "kind": "Experiment",
    "metadata": {"name": "x"},
    "spec": {
        "parallelTrialCount": 0,
        "maxTrialCount": 1,
        "trialTemplate": {"trialSpec": {"kind": "Pod", **template()}},
    },
}


@given(workload_objects())
@example([NONE_AT_ONCE])
def test_all_commands_count_the_same_pods(folder: Path, objects: list[dict[str, Any]]) -> None:
    (folder / "workload.yaml").write_text("\n---\n".join(map(json.dumps, objects)))
    rules = load_rules([folder / "rules.yaml"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        manifests = load_manifests(folder / "workload.yaml", rules.workload_kinds)
        try:
            load_simulation(folder / "load.yaml", rules.workload_kinds)
        except InputError:
            with pytest.raises(InputError):
                preflight(rules, manifests, load_cluster([folder / "cluster.yaml"]))
            return
        found = [*counts(folder, rules, manifests)]
    at_once, total = (sum(getattr(each.template, name) for each in manifests) for name in ("parallel", "total"))
    event(f"{objects[-1]['kind']}: {at_once} at once of {total}")
    assert found == [(name, at_once if name.endswith("at once") else total) for name, _ in found]
