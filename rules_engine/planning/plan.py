"""Plan: the layouts of cards that serve a workload best, found by simulating it on many."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from rules_engine.evaluation import RuleSet
from rules_engine.model.gpu.mig import device_resource
from rules_engine.model.gpu.placements import PLACEMENTS, Layout, card_layouts
from rules_engine.model.gpu.resources import is_gpu
from rules_engine.model.kubernetes.cluster_objects import requests_of
from rules_engine.model.kubernetes.quantity import NANOS
from rules_engine.planning.cluster import WHOLE_CARD, Candidate, PlannedCluster, count_devices
from rules_engine.planning.demand import Bounds, Demand, possible_resources, read_demands
from rules_engine.planning.search import Search
from rules_engine.planning.space import Space
from rules_engine.simulation.figures import By, Figures, Key, compute_figures
from rules_engine.simulation.play import play_simulation
from rules_engine.simulation.record import Record
from rules_engine.simulation.words import pod_title

SHOWN = 5
"""The number of choices in a plan."""


class PlanError(Exception):
    """A workload that no layout serves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A candidate with the figures of its play."""

    candidate: Candidate
    figures: Figures


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The best choices, the best first.

    `simulated` of the `candidates` were simulated. `bound`: no candidate has a better key by the figure `by`.
    """

    cluster: PlannedCluster
    rules: str
    card: str
    cards: int
    by: By
    choices: Sequence[Choice]
    simulated: int
    candidates: int
    bound: Key
    interrupted: bool
    notices: Sequence[str]

    @property
    def gap(self) -> Key:
        """The most by which another candidate may be better, in each part of the key of `by`; () if none is better."""
        best = self.by.key(self.choices[0].figures)
        return tuple(one - other for one, other in zip(best, self.bound, strict=True)) if self.bound < best else ()


def make_plan(
    cluster: PlannedCluster,
    rule_set: RuleSet,
    rules: str,
    cards: tuple[int, str],
    by: By,
    *,
    expired: Callable[[], bool],
    progress: Callable[[int, int], None],
) -> Plan:
    """Return a plan for nodes with a number of cards each. Raises PlanError, and KeyboardInterrupt without any result.

    `expired` returns True once the search must end. `progress` is called during plays with the number of complete ones
    and the most that there may be; KeyboardInterrupt from it ends the search.
    """
    number, card = cards
    demands, kept = read_demands(cluster.base, rule_set), _kept_devices(cluster)
    layouts = _find_layouts(card, demands, cluster, rule_set)
    resources = kept.keys() | count_devices((tuple(layouts),)).keys()
    unserved = [each for each in demands if each.resources is not None and each.resources.isdisjoint(resources)]
    if not layouts or len(unserved) == len(demands):
        raise PlanError(_unserved(card, demands[0]) if demands else "no pod of the workload requests GPUs")
    notices = [_unserved(card, each) for each in unserved]
    if cluster.left_out:
        notices.append(f"pods with GPUs on planned nodes, which are left out: {cluster.left_out:,}")
    space, bounds = Space(cluster.nodes, number, layouts), Bounds(cluster.base, demands)
    figures: dict[Candidate, Figures] = {}

    def play(candidate: Candidate) -> Key:
        record = play_simulation(
            cluster.simulation_on(candidate), rule_set, rules, progress=lambda *_: progress(len(figures), space.size)
        )
        if record.interrupted:
            raise KeyboardInterrupt
        figures[candidate] = compute_figures(record)
        return by.key(figures[candidate])

    def bound(devices: Counter[str]) -> Key:
        return bounds.key(by, devices + kept)

    most = Counter({name: max(count_devices(((each,),))[name] for each in layouts) for name in resources})
    random = Random(cluster.base.seed)  # noqa: S311 - no secret
    search = Search(space, play, lambda candidate: bound(count_devices(candidate)), expired, random)
    limit = search.run(bound(Counter({name: each * number * len(cluster.nodes) for name, each in most.items()})))
    ranked = search.ranked
    if not ranked:
        raise KeyboardInterrupt
    _check_served(play_simulation(cluster.simulation_on(ranked[0]), rule_set, rules), card)
    return Plan(
        cluster=cluster,
        rules=rules,
        card=card,
        cards=number,
        by=by,
        choices=[Choice(candidate=each, figures=figures[each]) for each in ranked[:SHOWN]],
        simulated=len(ranked),
        candidates=space.size,
        bound=limit,
        interrupted=search.interrupted,
        notices=notices,
    )


def _find_layouts(card: str, demands: Sequence[Demand], cluster: PlannedCluster, rule_set: RuleSet) -> Sequence[Layout]:
    """Return the layouts of a card's devices that pods may get; of all its devices if rules read the cluster."""
    programs = (program for rule in rule_set.rules for program in (*rule.programs, *rule.messages))
    waiting = [requests_of(pod) for pod in cluster.base.objects.pods if not pod.node_name]
    wanted = [possible_resources(frozenset(filter(is_gpu, each)), rule_set) for each in waiting]
    wanted += [each.resources for each in demands]
    names = None
    if None not in wanted and not any("cluster" in program.reads for program in programs):
        names = frozenset[str]().union(*filter(None, wanted))
    profiles = frozenset(name for name in PLACEMENTS[card] if names is None or device_resource(name) in names)
    return [*card_layouts(card, profiles), *([()] if names is None or WHOLE_CARD in names else [])]


def _unserved(card: str, demand: Demand) -> str:
    return f"no layout of {card} serves {demand.title}: it needs {' or '.join(sorted(demand.resources or ()))}"


def _kept_devices(cluster: PlannedCluster) -> Counter[str]:
    """Return the numbers of devices of the nodes that stay as they are."""
    amounts = ((name, each) for node in cluster.base.cluster.nodes for name, each in node.allocatable.items())
    return sum((Counter({name: each.nanos // NANOS}) for name, each in amounts if is_gpu(name)), Counter[str]())


def _check_served(record: Record, card: str) -> None:
    """Raise PlanError if no pod that needs GPUs ran, with the reason of the first one."""
    pods = [pod for pod in record.pods if pod.arrival is not None and any(map(is_gpu, pod.admitted.requested))]
    if pods and all(pod.bound is None for pod in pods):
        reason = pods[0].message or pods[0].admitted.message
        raise PlanError(f"no layout of {card} serves {pod_title(pods[0])}: {reason}")
