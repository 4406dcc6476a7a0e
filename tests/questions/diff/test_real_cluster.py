"""Pods that real controllers create, and a real API server admits under rules, are decided again as they were.

    KUBECONFIG=… WEBHOOK_CLIENT_CA=… pytest -m cluster tests/questions/diff

The API server must call webhooks of this machine. Of the controllers, those of Deployments, ReplicaSets,
ReplicationControllers, StatefulSets, DaemonSets, Jobs and ResourceQuotas must run, and the scheduler.
"""

import json
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rules_engine.cluster.read.clusters import read_cluster
from rules_engine.model.kubernetes.cluster import Cluster
from rules_engine.model.kubernetes.quantity import Quantity
from rules_engine.model.problems.problem import Problems
from rules_engine.questions.diff.comparison import WorkloadChanges
from rules_engine.questions.diff.input.inputs import DiffInputs
from rules_engine.questions.diff.outcomes import Outcomes
from rules_engine.questions.diff.values import Outcome, SubmittedPods
from rules_engine.rules.evaluation import RuleSet
from rules_engine.rules.sources.rule_files import read_rules
from tests.support.real import GPU, MIG, REAL, kubernetes, together
from tests.support.real_workloads import LONG, MIG3, ZONE, Group, Object, RealWorkloads
from tests.support.server import command, environment

pytestmark = REAL

OLD = f"""\
apiVersion: gpurules.io/v1
kind: FallbackLadder
metadata: {{name: mig}}
spec:
  nodes: {{require: [Ready, MatchesPod]}}
  rungs: [{{resource: {MIG}}}, {{resource: {GPU}, assume: true}}]
---
apiVersion: gpurules.io/v1
kind: ResourceInjection
metadata: {{name: cpu}}
spec:
  coefficients: {{cpu: "4"}}
  annotations: {{rules: old}}
---
apiVersion: gpurules.io/v1
kind: Validation
metadata: {{name: four}}
spec:
  validations:
    - expression: >-
        object.spec.containers.all(c, !quantity(string(c.?resources.?limits[?'{GPU}'].orValue('0')))
        .isGreaterThan(quantity('4')))
      message: at most 4 GPUs
"""

# Each rule reads something that is written after the admission, or defaulted before it.
NEW = f"""\
apiVersion: gpurules.io/v1
kind: FallbackLadder
metadata: {{name: mig}}
spec:
  offered: Available
  nodes: {{require: [Ready, MatchesPod]}}
  rungs:
    - {{resource: {MIG}}}
    - resource: {MIG3}
      when: object.spec.containers.exists(c, '{MIG}' in c.?resources.?requests.orValue({{}}))
    - {{resource: {GPU}, assume: true}}
---
apiVersion: gpurules.io/v1
kind: ResourceInjection
metadata: {{name: first}}
spec:
  matchConditions:
    - {{name: first, expression: "has(object.metadata.name) && object.metadata.name.endsWith('-0')"}}
  coefficients: {{memory: 7Gi}}
---
apiVersion: gpurules.io/v1
kind: ResourceInjection
metadata: {{name: spread}}
spec:
  matchConditions:
    - name: spread
      expression: >-
        object.spec.?topologySpreadConstraints.orValue([]).exists(c, !has(c.labelSelector.matchExpressions))
  coefficients: {{memory: 5Gi}}
---
apiVersion: gpurules.io/v1
kind: ResourceInjection
metadata: {{name: retried}}
spec:
  matchConditions:
    - name: counted
      expression: "'batch.kubernetes.io/job-index-failure-count' in object.metadata.?annotations.orValue({{}})"
  coefficients: {{cpu: "3"}}
---
apiVersion: gpurules.io/v1
kind: ResourceInjection
metadata: {{name: limited}}
spec:
  onConflict: Raise
  matchConditions:
    - name: limited
      expression: "'kubernetes.io/limit-ranger' in object.metadata.?annotations.orValue({{}})"
  coefficients: {{cpu: 125m}}
  annotations: {{limited: "true"}}
---
apiVersion: gpurules.io/v1
kind: Validation
metadata: {{name: two}}
spec:
  matchConditions:
    - {{name: unplaced, expression: "!has(object.spec.nodeName) || has(object.spec.nodeSelector)"}}
    - {{name: named, expression: "request.name == object.metadata.name && object.metadata.name != ''"}}
    - {{name: zone, expression: "!('{ZONE}' in object.metadata.?labels.orValue({{}}))"}}
  validations:
    - expression: >-
        object.spec.containers.all(c, !quantity(string(c.?resources.?limits[?'{GPU}'].orValue('0')))
        .isGreaterThan(quantity('2')))
      messageExpression: >-
        'at most 2 GPUs in ' + request.namespace.substring(request.namespace.lastIndexOf('-')) + ' of '
        + object.metadata.?generateName.orValue('')
"""

NAMED = ("namespace", "kind", "name")

WRITTEN = ("gpurules.io/fallback", "limited", "rules")
"""Annotations that the rules write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The same workloads under the old rules and the new ones.

    `requests`: those of the old pods, as the server got them. `denials`: messages under the new rules.
    """

    workloads: RealWorkloads
    old: Path
    new: Path
    requests: list[Any]
    denials: Mapping[Group, str]

    def pods(self, dump: Path) -> Iterator[tuple[Group, Object]]:
        """Yield the pods of controllers of the test run."""
        for item in json.loads(dump.read_text())["items"]:
            if item["kind"] == "Pod" and item["metadata"]["namespace"] in self.workloads.namespaces:
                yield self.group(item), item

    def group(self, pod: Any) -> Group:
        return self.workloads.group(pod["metadata"]["namespace"], pod)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with kubernetes(alone=True) as kube:
        made = RealWorkloads(kube, tmp_path_factory.mktemp("workloads"))
        try:
            made.start()
            with made.under(OLD, "old", "2g.20gb->gpu", "at most 4 GPUs") as recorder:
                made.create()
                old = made.dump("old.json")
                requests = [*recorder.requests]
            with made.under(NEW, "new", "2g.20gb->3g.40gb", "at most 2 GPUs"):
                denials = made.create_again()
                new = made.dump("new.json")
            yield World(workloads=made, old=old, new=new, requests=requests, denials=denials)
        finally:
            made.stop()


def loaded(folder: Path, text: str) -> RuleSet:
    path = folder / "rules.yaml"
    path.write_text(text)
    found = read_rules([path])
    assert not found.problems
    return found.rule_set


def decided(
    old: RuleSet, new: RuleSet, cluster: Path, *manifests: Path
) -> tuple[WorkloadChanges, list[tuple[SubmittedPods, Outcome, Outcome]]]:
    """Return the difference of two rule sets on the pods of manifests, else on those of a cluster."""
    diagnostics = Problems()
    before, after, grouping = Outcomes(old), Outcomes(new), WorkloadChanges()
    found = []
    inputs = DiffInputs(manifests, None, [read_cluster([cluster], whole=True)], Cluster(nodes=()), diagnostics)
    for submitted, view in inputs.pods(before.mutate_request, "default", None):
        outcomes = before.of(submitted, view), after.of(submitted, view)
        grouping.add(submitted, *outcomes)
        found.append((submitted, *outcomes))
    assert not diagnostics.items
    return grouping, found


def volume(pod: Any) -> str:
    """Return the name of the volume that ServiceAccount's admission makes up for each pod: it identifies the pod."""
    (name,) = (found["name"] for found in pod["spec"]["volumes"] if "projected" in found)
    return str(name)


def without_proxy(pod: Any) -> Object:
    """Return a pod without the container that another webhook injects, and what follows from that."""
    spec = {**pod["spec"], "containers": [item for item in pod["spec"]["containers"] if item["name"] != "proxy"]}
    annotations = dict(pod["metadata"].get("annotations", {}))
    if "proxy" in pod["metadata"].get("labels", {}):
        # LimitRanger is called again for the container.
        annotations.pop("kubernetes.io/limit-ranger", None)
    # managedFields and the empty status, which requests have, are of no interest to rules.
    metadata = {**pod["metadata"], "annotations": annotations}
    metadata.pop("managedFields", None)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def test_pods_of_controllers_are_turned_back_exactly(world: World, tmp_path: Path) -> None:
    requested = {volume(request["object"]): request for request in world.requests}
    _, found = decided(loaded(tmp_path, OLD), loaded(tmp_path, OLD), world.old)
    compared = set()
    for submitted, _, _ in found:
        pod: Any = submitted.request.object
        group = world.group(pod)
        if group.namespace not in ("plain", "limited"):
            continue
        request = requested[volume(pod)]
        if submitted.as_it_is:
            assert not group.app, "it has a controller"
            assert submitted.workload.kind == "Pod"
        else:
            assert without_proxy(pod) == without_proxy(request["object"]), group
        assert submitted.request.name == request.get("name", "")
        compared.add(group)
    assert compared == {group for group, _ in world.pods(world.old)}


def test_the_same_rules_change_nothing(world: World, tmp_path: Path) -> None:
    for rules, dump in ((OLD, world.old), (NEW, world.new)):
        same = loaded(tmp_path, rules)
        grouping, found = decided(same, same, dump)
        assert grouping.changes == {}
        assert grouping.totals[""].pods == len(found)
        assert grouping.totals[""].as_it_is.total() == len([group for group, _ in world.pods(dump) if not group.app])
        assert_made(world, dump, by_group(world, [(one, before) for one, before, _ in found]))


def test_new_rules_do_what_was_predicted(world: World, tmp_path: Path) -> None:
    _, found = decided(loaded(tmp_path, OLD), loaded(tmp_path, NEW), world.old)
    predicted = by_group(world, [(submitted, after) for submitted, _, after in found])
    # The pods of its first version are not created again.
    del predicted[Group("plain", "stale", "1")]
    messages = {
        group: outcome.message for group, outcomes in predicted.items() for outcome in outcomes if not outcome.allowed
    }
    assert messages == world.denials
    assert {group.app for group in messages} == {"roll", LONG, "large", "single", "huge"}
    assert_made(world, world.new, predicted)


def difference(folder: Path, old: str, new: str, *inputs: str | Path) -> Any:
    """Return the answer of the command."""
    sides = []
    for name, text in (("old.yaml", old), ("new.yaml", new)):
        sides.append(folder / name)
        sides[-1].write_text(text)
    arguments = command("diff", "--old", sides[0], "--new", sides[1], *inputs, "--output", "json")
    ended = subprocess.run(arguments, env=environment(), capture_output=True, text=True, check=False)
    assert ended.stderr == ""
    found = json.loads(ended.stdout)
    assert ended.returncode == (found["verdict"] == "Changed")
    return found


def test_the_command_finds_the_same_changes(world: World, tmp_path: Path) -> None:
    assert difference(tmp_path, OLD, OLD, "--cluster", world.old)["changes"] == []
    grouping, _ = decided(loaded(tmp_path, OLD), loaded(tmp_path, NEW), world.old)
    found = difference(tmp_path, OLD, NEW, "--cluster", world.old)
    assert found["verdict"] == "Changed"
    lines = [
        (*(getattr(workload, name) for name in NAMED), pods)
        for _, counts in grouping.changes.values()
        for workload, pods in counts.items()
    ]
    shown = [
        (*(each[name] for name in NAMED), each["pods"]) for change in found["changes"] for each in change["workloads"]
    ]
    assert sorted(shown) == sorted(lines)


def test_recorded_admissions_are_decided_again(world: World, tmp_path: Path) -> None:
    for name, rules in (("old", OLD), ("new", NEW)):
        found = difference(tmp_path, rules, rules, "--from-log", world.workloads.folder / f"{name}.log")
        assert found["changes"] == []
        recorded = found["recorded"]
        assert recorded["replayed"] > 0
        assert recorded["replayed"] + recorded["laterCalls"] == recorded["admissions"]
        assert (recorded["notReplayable"], recorded["unreadable"]) == ({}, {})


FROM_MANIFESTS = ("spread", "pinned", "zoned", LONG, "whole", "asked", "former", "large", "single")
"""Workloads whose pods get nothing from their controllers that rules read."""


def test_manifests_are_decided_as_the_pods_that_they_make(world: World, tmp_path: Path) -> None:
    manifests = [item for item in world.workloads.manifests if item["metadata"]["name"] in FROM_MANIFESTS]
    path = tmp_path / "manifests.json"
    path.write_text(json.dumps(together(manifests)))
    new = loaded(tmp_path, NEW)
    _, found = decided(new, new, world.new, path)
    predicted = {
        world.workloads.group(submitted.request.namespace, submitted.request.object): after
        for submitted, after, _ in found
    }
    for group, outcome in predicted.items():
        assert outcome.allowed == (group not in world.denials), group
    assert len(predicted) == len(FROM_MANIFESTS)
    made = {group: amounts(pod) for group, pod in world.pods(world.new) if group in predicted}
    assert made == {group: amounts_of(outcome) for group, outcome in predicted.items() if outcome.allowed}


def by_group(world: World, outcomes: Iterable[tuple[SubmittedPods, Outcome]]) -> dict[Group, list[Outcome]]:
    """Return the outcomes of the pods of each controller of the test run."""
    found: dict[Group, list[Outcome]] = {}
    for submitted, outcome in outcomes:
        if submitted.request.namespace in world.workloads.namespaces and not submitted.as_it_is:
            found.setdefault(world.group(submitted.request.object), []).append(outcome)
    return found


def assert_made(world: World, dump: Path, predicted: Mapping[Group, Sequence[Outcome]]) -> None:
    """Check the amounts and annotations of the pods of controllers."""
    allowed = {
        group: sorted(sorted_amounts(amounts_of(outcome), outcome.annotations) for outcome in outcomes)
        for group, outcomes in predicted.items()
        if all(outcome.allowed for outcome in outcomes)
    }
    made: dict[Group, list[Any]] = {group: [] for group in allowed}
    for group, pod in world.pods(dump):
        if group in predicted:
            annotations = pod["metadata"]["annotations"]
            written = {name: annotations[name] for name in WRITTEN if name in annotations}
            made[group].append(sorted_amounts(amounts(pod), written))
    assert {group: sorted(found) for group, found in made.items()} == allowed


Amounts = dict[tuple[str, str], tuple[Quantity | None, Quantity | None]]


def sorted_amounts(found: Amounts, annotations: Mapping[str, Any]) -> tuple[Any, ...]:
    texts = ((*place, str(request), str(limit)) for place, (request, limit) in found.items())
    return (sorted(texts), sorted(annotations.items()))


def amounts_of(outcome: Outcome) -> Amounts:
    return {(amount.container, amount.resource): amount.quantities for amount in outcome.resources}


def amounts(pod: Any) -> Amounts:
    """Return requests and limits by container and resource."""
    spec = pod["spec"]
    found: Amounts = {}
    for container in ({**spec, "name": "spec.resources"}, *spec["containers"], *spec.get("initContainers", ())):
        resources = container.get("resources", {})
        requests, limits = (
            {name: Quantity.parse(amount) for name, amount in resources.get(kind, {}).items()}
            for kind in ("requests", "limits")
        )
        for resource in requests | limits:
            found[container["name"], resource] = requests.get(resource), limits.get(resource)
    return found
