"""Generated simulations for laws of the engine: a few nodes, pods that are there and pods that arrive."""

from random import Random
from typing import Any

from rules_engine.cluster.nodes import Offered
from rules_engine.cluster.scheduling.requirements import read_selector
from rules_engine.model.rules.simulation import (
    Arrival,
    Distribution,
    NodeEvent,
    NodeState,
    SchedulerOptions,
    Simulation,
    Strategy,
)
from rules_engine.rules.evaluation import RuleSet
from tests.support.api import GPU, budget, node, pod
from tests.support.clusters import MIG, Generator
from tests.support.evaluation import check, compiled, ladder, validation
from tests.support.simulation import NO_RULES, at, load, simulation

Object = dict[str, Any]
_OWNERS = ("ReplicaSet", "Job", "DaemonSet", "StatefulSet")
_TOLERATION = {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}

RULE_SETS: tuple[RuleSet, ...] = (
    NO_RULES,
    compiled(
        ladder(MIG, GPU), validation("!has(object.metadata.labels) || object.metadata.labels.?app != optional.of('y')")
    ),
    compiled(ladder(MIG, GPU, offered=Offered.AVAILABLE)),
    compiled(validation(check("cluster.available('nvidia.com/gpu') > 0", "no GPU is free"))),
)


class SimulationGenerator:
    """Simulations drawn from a source of random numbers."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._objects = Generator(random, most_nodes=5)
        self.nodes = self._objects.nodes()
        for found in self.nodes:
            if self._chance(0.1):
                found["status"]["conditions"] = [{"type": "Ready", "status": "False"}]

    def draw(self, *, pods: bool = True) -> Simulation:
        """Draw a simulation; without `pods` the cluster is empty at the beginning."""
        draw = self._random
        existing = [*self._existing()] if pods else []
        arrivals = [self._arrival(number) for number in range(draw.randint(1, 5))]
        events = [self._event() for _ in range(draw.choice((0, 1, 3)))]
        return simulation(
            self.nodes,
            *arrivals,
            pods=existing,
            namespaces=self._objects.namespace_objects(),
            events=events,
            seed=draw.randint(0, 3),
            running_for=self._times() if self._chance(0.7) else None,
            until=draw.randint(0, 40) * 1000 if self._chance(0.3) else None,
            scheduler=SchedulerOptions(scoring=draw.choice([*Strategy]), preemption=self._chance(0.8)),
        )

    def rules(self) -> RuleSet:
        return self._random.choice(RULE_SETS)

    def _existing(self) -> list[Object]:
        found = self._objects.bound(self.nodes)
        for number in range(self._random.randint(0, 3)):
            made = self._objects.pending(self.nodes)
            made["metadata"]["name"] = f"w{number}"
            found.append(made)
        for made in found:
            made["spec"] |= self._further()
            if self._chance(0.5):
                made["metadata"]["ownerReferences"] = [
                    {"kind": self._random.choice(_OWNERS), "name": "owner", "controller": True}
                ]
        return found

    def _arrival(self, number: int) -> Arrival:
        draw = self._random
        pod = self._objects.pending(self.nodes)
        namespace = pod["metadata"].pop("namespace")
        del pod["status"], pod["metadata"]["name"]
        pod["spec"] |= self._further()
        controlled, parallel = self._chance(0.6), draw.randint(1, 3)
        selector = read_selector({"matchLabels": pod["metadata"]["labels"]}) if self._chance(0.3) else None
        return load(
            draw.choice(("a", "a-1", f"p{number}")),
            pod=pod,
            namespace=namespace,
            controlled=controlled,
            stateful=controlled and self._chance(0.3),
            parallel=parallel if controlled else 1,
            total=draw.randint(parallel, 4) if controlled else 1,
            at=draw.randint(0, 20) * 1000,
            every=self._times(),
            count=draw.randint(1, 4),
            run_for=self._times() if self._chance(0.8) else None,
            selector=selector,
        )

    def _further(self) -> Object:
        found: Object = {}
        if self._chance(0.4):
            found["priority"] = self._random.choice((-1, 5, 10))
        if self._chance(0.15):
            found["preemptionPolicy"] = "Never"
        if self._chance(0.3):
            seconds = {"tolerationSeconds": self._random.choice((0, 1, 5))} if self._chance(0.8) else {}
            found["tolerations"] = [{**_TOLERATION, **seconds}]
        return found

    def _times(self) -> Distribution:
        draw = self._random
        least = draw.choice((0, 1000, 5000))
        return draw.choice(
            (Distribution(least=least, most=least), Distribution(least=least, most=10_000), Distribution(mean=5000))
        )

    def _event(self) -> NodeEvent:
        name = self._random.choice(self.nodes)["metadata"]["name"]
        return at(self._random.randint(0, 30) * 1000, name, self._random.choice([*NodeState]))

    def _chance(self, probability: float) -> bool:
        return self._random.random() < probability


def full_cluster(random: Random) -> Simulation:
    """Draw a simulation of full nodes, on which pods with budgets are preempted again and again."""
    nodes = [node(f"n{number}", {GPU: random.choice(("2", "3"))}) for number in range(random.randint(1, 4))]

    def draw_pod(name: str, most: int) -> Object:
        labels = {key: random.choice(("x", "y")) for key in ("app", "tier") if random.random() < 0.7}
        namespace = random.choice(("ml", "ml", "other"))
        priority = random.choice((0, 0, 1, 2, 5)[:most])
        return pod(name, {GPU: str(random.choice((1, 1, 2)))}, labels=labels, namespace=namespace, priority=priority)

    def draw_budget(number: int) -> Object:
        spec: Object = {random.choice(("minAvailable", "maxUnavailable")): random.choice((0, 1, 1, 2, "30%", "60%"))}
        return budget(random.choice(({}, {"app": "x"}, {"tier": "x"}, {"app": "y"})), spec, f"b{number}")

    existing = []
    for number in range(random.randint(2, 9)):
        made = draw_pod(f"e{number}", 3)
        made["spec"]["nodeName"] = random.choice((*(each["metadata"]["name"] for each in nodes), ""))
        if random.random() < 0.8:
            owner = random.choice(("ReplicaSet", "ReplicaSet", "StatefulSet", "Job"))
            made["metadata"]["ownerReferences"] = [{"kind": owner, "name": "owner", "controller": True}]
        if random.random() < 0.1:
            made["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        existing.append(made)
    arrivals = []
    for number in range(random.randint(1, 5)):
        made = draw_pod("p", 5)
        namespace = made["metadata"].pop("namespace")
        controlled, parallel = random.random() < 0.8, random.randint(1, 3)
        arrivals.append(
            load(
                f"a{number}",
                pod=made,
                namespace=namespace,
                controlled=controlled,
                parallel=parallel if controlled else 1,
                at=random.randint(0, 5) * 1000,
                run_for=random.choice((None, 1000, 3000)),
                selector=read_selector({"matchLabels": {"app": "x"}}) if random.random() < 0.7 else None,
            )
        )
    budgets = [draw_budget(number) for number in range(random.randint(1, 2))]
    running_for = Distribution(least=0, most=9000) if random.random() < 0.5 else None
    return simulation(nodes, *arrivals, pods=existing, budgets=budgets, seed=1, running_for=running_for)
