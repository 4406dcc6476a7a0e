"""Law of recorded admissions: decided again under the same rules, each gets the recorded outcome and patch.

A thousand pods are admitted in every run; GPU_RULES_ADMISSIONS sets another number.
"""

import json
import os
import random
import signal
import subprocess
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rules_engine.evaluation import RuleSet, mutate, validate
from rules_engine.model.kubernetes.cluster import Cluster
from rules_engine.model.rules.admission import AdmissionRequest
from rules_engine.recording.views import read_view
from rules_engine.sources.rule_files import read_rules
from tests.support.patching import apply_json
from tests.support.server import ROOT, Running, command, encoded, environment, review, started

ADMISSIONS = int(os.environ.get("GPU_RULES_ADMISSIONS", "1000"))
CALLS = 50
"""Pods of one workload, as its controller creates them."""

RULES = """
apiVersion: gpurules.io/v1
kind: FallbackLadder
metadata: {name: mig}
spec:
  match: {excludeNamespaces: [kube-system]}
  offered: Available
  nodes: {require: [Ready, MatchesPod]}
  rungs:
    - resource: nvidia.com/mig-2g.20gb
    - resource: nvidia.com/mig-3g.40gb
    - resource: nvidia.com/gpu
      when: "!has(object.metadata.labels.tier) || object.metadata.labels.tier != 'free'"
  whenExhausted: Deny
---
apiVersion: gpurules.io/v1
kind: ResourceInjection
metadata: {name: memory}
spec:
  gpuResource: nvidia.com/gpu
  matchConditions:
    - {name: privileged, expression: "object.spec.containers.all(c, c.?image.orValue('') != 'plain')"}
  coefficients: {cpu: "4", memory: 8Gi}
  annotations: {example.com/injected: "yes"}
---
apiVersion: gpurules.io/v1
kind: Validation
metadata: {name: images}
spec:
  match: {operations: [CREATE, UPDATE]}
  variables:
    - name: all
      expression: object.spec.containers + object.spec.?initContainers.orValue([])
  validations:
    - expression: variables.all.all(c, !c.?image.orValue('').startsWith('evil/'))
      messageExpression: "'no image of ' + object.metadata.?generateName.orValue('')"
    - expression: variables.all.all(c, c.?env.orValue([]).size() < 3)
    - expression: request.operation != 'UPDATE' || object.spec.containers.size() == oldObject.spec.containers.size()
    - expression: "!has(object.spec.priority) || object.spec.priority < 3 || cluster.available('nvidia.com/gpu') > 0"
---
apiVersion: gpurules.io/v1
kind: Validation
metadata: {name: team}
spec:
  validationActions: [Warn]
  validations:
    - expression: object.metadata.?labels[?'team'].orValue('') != ''
      message: a pod needs a team
"""

INVENTORY = """
apiVersion: gpurules.io/v1
kind: ClusterInventory
metadata: {name: two}
spec:
  nodes:
    - {name: big, count: 3, allocatable: {nvidia.com/gpu: 8, nvidia.com/mig-3g.40gb: 2}, labels: {pool: a}}
    - {name: small, count: 5, allocatable: {nvidia.com/mig-2g.20gb: 4}, labels: {pool: b}}
    - name: tainted
      allocatable: {nvidia.com/gpu: 4}
      taints: [{key: gpu, value: reserved, effect: NoSchedule}]
"""


class Pods:
    """Generator of pods as controllers submit them, and of their containers."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._count = 0

    def chance(self, share: float) -> bool:
        return self._random.random() < share

    def workload(self) -> dict[str, Any]:
        """Return the pod of a new workload, or a pod without one."""
        self._count += 1
        name = f"work-{self._count}"
        names: dict[str, Any] = {"name": name}
        if self.chance(0.7):
            owner = {"kind": self._random.choice(["ReplicaSet", "Job"]), "name": name, "controller": True}
            names = {"generateName": f"{name}-", "ownerReferences": [owner]}
        pool: dict[str, Any] = {"nodeSelector": {"pool": self._random.choice("abc")}} if self.chance(0.3) else {}
        if self.chance(0.2):
            pool["tolerations"] = [{"key": "gpu", "operator": "Exists"}]
        if self.chance(0.3):
            pool["priority"] = self._random.randrange(5)
        spec = {"containers": [self._container(f"c{n}") for n in range(self._random.randint(1, 3))], **pool}
        if self.chance(0.3):
            spec["initContainers"] = [self._container("init")]
        labels = {key: self._random.choice("ab") for key in ("team", "app") if self.chance(0.6)}
        labels |= {"tier": self._random.choice(["free", "paid"])} if self.chance(0.5) else {}
        annotations = {"example.com/note": name} if self.chance(0.3) else {}
        annotations |= {"gpurules.io/skip": "true"} if self.chance(0.05) else {}
        return {"metadata": {**names, "labels": labels, "annotations": annotations}, "spec": spec}

    def _container(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = {"name": name, "command": ["run"], "volumeMounts": [{"name": "v", "mountPath": "/v"}]}
        if self.chance(0.9):
            found["image"] = self._random.choice(["app:1", "app:2", "plain", "evil/app"])
        if self.chance(0.5):
            found["env"] = [{"name": f"E{n}", "value": "secret"} for n in range(self._random.randrange(4))]
        resource = self._random.choice(["nvidia.com/mig-2g.20gb", "nvidia.com/mig-3g.40gb", "nvidia.com/gpu", "cpu"])
        amount = {resource: str(self._random.randint(1, 4))}
        found["resources"] = {"limits": amount, "requests": dict(amount)} if self.chance(0.5) else {"limits": amount}
        return found


def admissions(server: Running, count: int, seed: int) -> Iterator[str]:
    """Admit so many pods as the API server does; yield the path of each call."""
    connection, pods = server.connect(), Pods(seed)

    def call(path: str, made: Any, **members: Any) -> dict[str, Any]:
        body = encoded(review(made, uid=str(random.random()), namespace="ml", **members))
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        response: dict[str, Any] = json.loads(connection.getresponse().read())["response"]
        return response

    made = pods.workload()
    for number in range(count):
        made = made if number % CALLS and "generateName" in made["metadata"] and pods.chance(0.9) else pods.workload()
        admitted: Any = made
        if pods.chance(0.9):
            response = call("/mutate", made)
            yield "/mutate"
            if not response["allowed"]:
                continue
            admitted = apply_json(made, operations(response))
        else:
            admitted = pods.workload()
        named = {**admitted["metadata"], "name": f"p{number}"} if "generateName" in admitted["metadata"] else None
        if call("/validate", {**admitted, "metadata": named or admitted["metadata"]})["allowed"] and pods.chance(0.1):
            call("/validate", admitted, operation="UPDATE", oldObject=pods.workload())
            yield "/validate"
        yield "/validate"
    connection.close()


def operations(response: dict[str, Any]) -> Any:
    return json.loads(b64decode(response["patch"])) if "patch" in response else []


def decided_alike(path: Path, rule_set: RuleSet) -> int:
    """Decide every line again at its own endpoint; return the number of lines that were recorded."""
    views: dict[str, Cluster] = {}
    count = 0
    with path.open("rb") as file:
        for text in file:
            line = json.loads(text)
            if line.get("record") == "view":
                assert line["parts"] == 1
                views[line["view"]] = read_view([line])
            elif "request" in line:
                count += 1
                decide = mutate if line["endpoint"] == "mutate" else validate
                decision = decide(rule_set, AdmissionRequest.parse(line["request"]), views[line["view"]], indexed=True)
                assert decision.outcome == line["outcome"], line
                assert [operation.to_json() for operation in decision.patch] == line.get("patch", []), line
    return count


def test_the_log_of_a_server_is_decided_alike(tmp_path: Path, run_seed: int) -> None:
    rules, inventory, log = tmp_path / "rules.yaml", tmp_path / "cluster.yaml", tmp_path / "decisions"
    rules.write_text(RULES)
    inventory.write_text(INVENTORY)
    options = ("--rules", rules, "--cluster", inventory, "--decision-log", log, "--decision-log-requests")
    with started(tmp_path, *options) as server:
        calls = [*admissions(server, ADMISSIONS, run_seed)]
        assert server.stop(signal.SIGTERM) == 0
    assert decided_alike(log, read_rules([rules]).rule_set) == len(calls)
    line = command("diff", "--old", rules, "--new", rules, log, "--output", "json")
    done = subprocess.run(line, env=environment(), cwd=ROOT, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    recorded = json.loads(done.stdout)["recorded"]
    assert recorded["admissions"] == len(calls)
    assert recorded["replayed"] + recorded["laterCalls"] == len(calls)
    assert recorded["replayed"] >= calls.count("/mutate") + ADMISSIONS // 20
    assert not {name: found for name, found in recorded.items() if name in FAULTS and found}


FAULTS = ("differing", "otherRules", "notReplayable", "unreadable")
