"""Ladders over node pools on a real control plane: pods run in the pool that the decision promised.

    KUBECONFIG=… WEBHOOK_CLIENT_CA=… pytest -m cluster tests/server/cluster/test_real_pools.py

It needs kube-scheduler. The API server calls the server, whose cluster is the live one.
"""

import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from rules_engine.rules.sources.rule_files import read_rules
from rules_engine.server.cluster.connection import Connection, load_kubeconfig
from rules_engine.server.cluster.live import LiveCluster
from tests.support.cluster import EVERYTHING
from tests.support.evaluation import container, pod, request
from tests.support.real import GPU, LABEL, PATIENCE_SECONDS, REAL, Kube, admitting, eventually, kubernetes
from tests.support.server import Running

pytestmark = REAL

Object = dict[str, Any]

PRODUCT, SPOT, FALLBACK = "nvidia.com/gpu.product", "cloud.google.com/gke-spot", "gpurules.io/fallback"

RULES = f"""\
apiVersion: gpurules.io/v1
kind: FallbackLadder
metadata: {{name: cards}}
spec:
  unplaced: %(unplaced)s
  offered: %(offered)s
  nodes: {{selector: {{matchLabels: {{{LABEL}: %(run)s}}}}, require: [Ready, Schedulable, MatchesPod]}}
  rungs:
    - {{resource: {GPU}, name: H100, pool: {{{PRODUCT}: H100, {SPOT}: null}}}}
    - resource: {GPU}
      name: H100-spot
      pool: {{{PRODUCT}: H100, {SPOT}: "true"}}
      place:
        tolerations: [{{key: {SPOT}, operator: Exists, effect: NoSchedule}}]
    - resource: {GPU}
      name: A100
      pool: {{{PRODUCT}: A100, {SPOT}: null}}
      place:
        tolerations: [{{key: dedicated, operator: Equal, value: a100, effect: NoSchedule}}]
        annotations: {{gpurules.io/gpu-type: A100}}
        runtimeClassName: %(run)s-nvidia
    - {{resource: {GPU}, name: L40S, pool: {{{PRODUCT}: L40S, {SPOT}: null}}}}
"""

SPOT_TAINT = {"key": SPOT, "value": "true", "effect": "NoSchedule"}
DEDICATED = {"key": "dedicated", "value": "a100", "effect": "NoSchedule"}
NODES: Mapping[str, tuple[Object, list[Object]]] = {
    "H100": ({PRODUCT: "H100"}, []),
    "H100-spot": ({PRODUCT: "H100", SPOT: "true"}, [SPOT_TAINT]),
    "A100": ({PRODUCT: "A100"}, [DEDICATED]),
    "L40S": ({PRODUCT: "L40S"}, []),
}
"""Labels and taints of a pool's nodes."""


class Pools:
    """Nodes in pools, and the pods that the server admits onto them."""

    def __init__(self, kube: Kube) -> None:
        from kubernetes import client

        self.kube = kube
        self.pools: dict[str, str] = {}
        """The pool of each node."""
        self._runtime_classes: Any = client.NodeV1Api()

    def add(self, pool: str, *gpus: int) -> None:
        """Add a node for each number of GPUs."""
        labels, taints = NODES[pool]
        for number, count in enumerate(gpus):
            name = self.kube.node(f"{pool.lower()}-{number}", gpu=str(count))
            self.kube.core.patch_node(name, {"metadata": {"labels": labels}, "spec": {"taints": taints}})
            self.pools[name] = pool

    @contextmanager
    def runtime_classes(self) -> Iterator[None]:
        """Create the class of the pool A100, with an overhead, and another one."""
        names = [f"{self.kube.name}-{suffix}" for suffix in ("nvidia", "other")]
        for name in names:
            overhead = {"podFixed": {"cpu": "250m"}} if name.endswith("nvidia") else None
            self._runtime_classes.create_runtime_class(
                {"metadata": {"name": name}, "handler": "runc", "overhead": overhead}
            )
        try:
            yield
        finally:
            for name in names:
                self._runtime_classes.delete_runtime_class(name)

    @contextmanager
    def admission(
        self, folder: Path, *arguments: str | Path, offered: str, unplaced: str = "Ignore"
    ) -> Iterator[Running]:
        """Admit pods by the ladder, once the server has read the nodes."""
        rules = RULES % {"run": self.kube.name, "offered": offered, "unplaced": unplaced}
        with admitting(self.kube, folder, rules, "--cluster", "kubeconfig", *arguments) as running:
            # Only L40S has so many.
            probe = selecting(self.kube.name, "H100", 8)
            eventually(lambda: self.created(probe, dry_run="All")["spec"]["nodeSelector"][PRODUCT] == "L40S")
            yield running

    def created(self, body: Object, namespace: str = "", **options: Any) -> Object:
        """Return a pod as stored."""
        answer = self.kube.core.create_namespaced_pod(
            namespace or self.kube.name, body, _preload_content=False, **options
        )
        stored: Object = json.loads(answer.data)
        return stored

    def pool_of(self, name: str) -> str:
        """Wait for a pod to be bound; return its pool."""
        pool: str = eventually(lambda: self.bound()[name])
        return pool

    def bound(self) -> dict[str, str]:
        """Return the pool in which each pod runs; "" for a pod that is not bound."""
        found = self.kube.core.list_namespaced_pod(self.kube.name).items
        return {each.metadata.name: self.pools.get(each.spec.node_name or "", "") for each in found}


@pytest.fixture
def pools() -> Iterator[Pools]:
    with kubernetes() as kube:
        made = Pools(kube)
        with made.runtime_classes():
            yield made


def selecting(run: str, product: str, count: int = 1, name: str = "job") -> Object:
    return pod(container("main", limits={GPU: count}), name=name, nodeSelector={LABEL: run, PRODUCT: product})


def generated(random: Random, name: str, run: str) -> Object:
    """Generate a pod: most are on a rung."""
    made: Object = pod(container("main", limits={GPU: random.choice([1, 2, 3, 3, 4, 5, 8, 9])}), name=name)
    spec = made["spec"]
    # Nodes of other tests have the same labels.
    spec["nodeSelector"] = {LABEL: run}
    if random.random() < 0.2:
        spec["initContainers"] = [container("warm-up", limits={GPU: random.choice([1, 6])})]
    product = random.choice(["H100"] * 6 + ["A100", "L40S", "L4"])
    spot = random.random() < 0.3
    lines: list[Object] = [
        {"key": PRODUCT, "operator": "In", "values": [product]},
        {"key": SPOT, "operator": "In", "values": ["true"]} if spot else {"key": SPOT, "operator": "DoesNotExist"},
    ]
    where = random.choice(["selector"] * 3 + ["affinity"] * 3 + ["both", "mixed", "none", "none", "terms", "many"])
    if where in ("selector", "both", "mixed"):
        spec["nodeSelector"] |= {PRODUCT: product, **({SPOT: "true"} if spot else {})}
    if where == "mixed":
        spec["nodeSelector"].pop(SPOT, None)
        lines = lines[1:]
    if where == "many":
        lines[0]["values"].append("V100")
    if where in ("affinity", "both", "mixed", "terms", "many"):
        lines.append({"key": LABEL, "operator": "In", "values": [run]})
        terms = [{"matchExpressions": random.sample(lines, len(lines))}]
        if where == "terms":
            terms.append({"matchExpressions": [{"key": LABEL, "operator": "Exists"}]})
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        spec["affinity"] = {"nodeAffinity": required}
    # A pod that tolerates the taint of the spot nodes may run there, whatever the pool without the label promises.
    tolerates = spot and where != "none"
    if tolerates or random.random() < 0.2:
        spec["tolerations"] = [{"key": SPOT if tolerates else "other", "operator": "Exists", "effect": "NoSchedule"}]
    if random.random() < 0.2:
        spec["runtimeClassName"] = f"{run}-{random.choice(['nvidia', 'other'])}"
    if random.random() < 0.1:
        made["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "queue"}
    if random.random() < 0.1:
        made["metadata"]["annotations"] = {"gpurules.io/gpu-type": "H100", "own": "1"}
    return made


def compared(stored: Object) -> Object:
    """Return a stored pod without what the API server generates."""
    drawn = ("uid", "creationTimestamp", "managedFields", "resourceVersion", "namespace", "generation")
    metadata = {key: value for key, value in stored["metadata"].items() if key not in drawn}
    # The admission plugin ServiceAccount adds a volume with a random name.
    spec: Object = json.loads(re.sub(r"kube-api-access-\w{5}", "kube-api-access", json.dumps(stored["spec"])))
    return {"metadata": metadata, "spec": spec}


def promised(stored: Object) -> str:
    """Return the pool to which the annotation of a pod says that it was moved; "" if it was not."""
    falls: str = stored["metadata"].get("annotations", {}).get(FALLBACK, "")
    return falls.rpartition("->gpu@")[2]


def test_pods_are_stored_as_decided_and_run_in_the_pool_promised(pools: Pools, tmp_path: Path) -> None:
    """A pod is compared with the result for what the API server makes of it in a namespace without rules."""
    for pool, gpus in {"H100": (2,), "H100-spot": (3,), "A100": (4, 4), "L40S": (8, 8)}.items():
        pools.add(pool, *gpus)
    moves = Counter[str]()
    wrong = []
    with pools.admission(tmp_path, offered="Allocatable", unplaced="First"):
        rule_set = read_rules([tmp_path / "rules.yaml"]).rule_set
        live = LiveCluster(Connection(load_kubeconfig), EVERYTHING)
        live.start()
        try:
            assert live.wait_until(lambda cluster: cluster.known, PATIENCE_SECONDS)
            cluster = live.current()
        finally:
            live.stop()
        for seed in range(80):
            name = f"p{seed}"
            body = generated(Random(seed), name, pools.kube.name)
            complete = pools.created(body, "default", dry_run="All")
            decision = rule_set.mutate(request(complete, namespace=pools.kube.name), cluster)
            result: Any = decision.result
            expected = pools.created({**result, **compared(result)}, "default", dry_run="All")
            stored = pools.created(body)
            if compared(stored) != compared(expected):
                wrong.append((name, compared(stored), compared(expected)))
            step = decision.trace[0]
            moves[step.reason] += 1
            if step.reason in ("moved", "placed", "offered"):
                target = step.resources[0].given.partition("@")[2]
                moves[target] += 1
                assert promised(stored) == (target if step.reason == "moved" else "")
                assert pools.pool_of(name) == target
            pools.kube.delete_pod(name)
    assert wrong == []
    assert set(moves) == {*NODES, "moved", "placed", "offered", "pool", "exhausted"}


needs_client_ca = pytest.mark.skipif(
    not os.environ.get("WEBHOOK_CLIENT_CA"), reason="needs an API server that shows a certificate of WEBHOOK_CLIENT_CA"
)


@needs_client_ca
@pytest.mark.parametrize("generated_names", [False, True], ids=["named", "generateName"])
def test_60_pods_at_once_fill_one_pool_after_the_other(pools: Pools, tmp_path: Path, generated_names: bool) -> None:
    """They select the first pool, which has 20 devices, as has the next one."""
    room = {"H100": (4,) * 5, "H100-spot": (4,) * 5, "L40S": (8,) * 3}
    for pool, gpus in room.items():
        pools.add(pool, *gpus)

    def create(number: int) -> Object:
        body = selecting(pools.kube.name, "H100", name=f"p{number}")
        if generated_names:
            body["metadata"] = {"generateName": "p-"}
        return pools.created(body)

    client_ca = os.environ["WEBHOOK_CLIENT_CA"]
    with pools.admission(tmp_path, "--client-ca", client_ca, offered="Available"), ThreadPoolExecutor(60) as callers:
        stored = [*callers.map(create, range(60))]
        expected = {each["metadata"]["name"]: promised(each) or "H100" for each in stored}
        assert Counter(expected.values()) == {"H100": 20, "H100-spot": 20, "L40S": 20}
        assert eventually(lambda: all(pools.bound().values()) and pools.bound()) == expected
