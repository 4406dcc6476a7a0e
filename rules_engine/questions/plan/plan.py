"""Plan: the layouts of cards that serve a workload best, found by simulating it on many."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import groupby, islice
from random import Random
from time import monotonic
from types import MappingProxyType
from typing import Annotated, Any

from msgspec import Meta, structs

from rules_engine.accelerators.mig import Layout, card_layouts, device_resource, placed_cards, placements
from rules_engine.accelerators.resources import WHOLE_GPU, is_gpu
from rules_engine.model.json.patch import Json
from rules_engine.model.json.strict import PodError
from rules_engine.model.kubernetes.cluster_objects import API_KINDS, requests_of
from rules_engine.model.kubernetes.pod import Pod
from rules_engine.model.kubernetes.quantity import Quantity
from rules_engine.model.rules.admission import Endpoint
from rules_engine.model.rules.rule import API_VERSION
from rules_engine.model.rules.simulation import Simulation
from rules_engine.questions.plan.space import (
    MAX_TRIED,
    Candidate,
    NodePlan,
    PlannedCluster,
    Space,
    count_devices,
    name_configs,
    plan_cluster,
    rank,
)
from rules_engine.questions.simulate.figures import By, FigureKey, Figures, best, compute_figures
from rules_engine.questions.simulate.play import play_simulation
from rules_engine.questions.simulate.words import arrival_title
from rules_engine.report.answer import Answer
from rules_engine.rules.evaluation import RuleSet

SHOWN = 5
"""The number of choices in a plan."""


class LostNodeError(ValueError):
    """An event of a node that the planned cluster does not have."""


class PlanError(Exception):
    """A workload that no layout serves."""


class Choice(Figures, frozen=True, kw_only=True):
    """A candidate with the figures of its simulation."""

    best: Annotated[bool, Meta(description="No choice is better; several choices tie.")]
    devices: Annotated[Mapping[str, Mapping[str, int]], Meta(description="By planned node and resource.")]
    configs: Annotated[Mapping[str, str], Meta(description="The label nvidia.com/mig.config of each planned node.")]
    mig_configs: Annotated[dict[str, Any], Meta(description="The configurations, for nvidia-mig-parted.")]


class PlanAnswer(Answer, frozen=True, kw_only=True):
    """The MIG layouts of cards that serve a workload best."""

    simulation: Annotated[str, Meta(description="The name of the Simulation.")]
    rules: Annotated[str, Meta(description='As in --rules; "" without rules.')]
    card: Annotated[str, Meta(description="The name of the cards, such as A100-80GB.")]
    cards: Annotated[int, Meta(description="The number of cards of each planned node.")]
    by: Annotated[By, Meta(description="The figure that decides which choice is best.")]
    simulated: Annotated[int, Meta(description="The number of candidates that were simulated.")]
    candidates: Annotated[int, Meta(description="The number of all candidates.")]
    complete: Annotated[bool, Meta(description="All candidates were simulated, so none is better.")]
    interrupted: Annotated[bool, Meta(description="True: ended by Ctrl-C.")]
    notices: Annotated[tuple[str, ...], Meta(description="What no layout serves, and what was left out.")]
    choices: Annotated[tuple[Choice, ...], Meta(description="The best candidates, at most five, the best first.")]
    inventory: Annotated[dict[str, Any], Meta(description="The cluster with the first choice, as a ClusterInventory.")]


def plan(
    rule_set: RuleSet,
    simulation: Simulation,
    cards: tuple[int, str],
    *,
    keep: Collection[str] = (),
    nodes: int = 0,
    amounts: Mapping[str, Quantity] = MappingProxyType({}),
    by: By = By.WAITING,
    rules: str = "rules",
    seconds: float = 60,
    progress: Callable[[int, int], None] = lambda _done, _most: None,
) -> PlanAnswer:
    """Return the MIG layouts with which a workload is served best. `cards`: of each node, such as (8, "A100-80GB").

    `keep`: names of nodes that stay as they are. `nodes`: new nodes in place of those with GPUs. `amounts`: of other
    resources of each planned node. `rules`: the name of the rules. `seconds`: time for the search. `progress` gets the
    number of layouts that are simulated so far, and the most there may be; KeyboardInterrupt from it ends the search.
    Raises PlanError, LostNodeError, and KeyboardInterrupt without any result.

    >>> from rules_engine import load_rules, load_simulation, plan
    >>> load = load_simulation("rules_engine/scenarios/ten-pods.yaml")
    >>> plan(load_rules(["set:gpu-allocation"]), load, (4, "A100-40GB")).interrupted
    False
    """
    number, card = cards
    if card not in placed_cards():
        raise ValueError(f"no MIG placements are published for {card!r}, only for {', '.join(placed_cards())}")
    cluster = plan_cluster(simulation, keep, nodes, amounts)
    names = {node.name for node in (*cluster.nodes, *cluster.base.cluster.nodes)}
    lost = next((event.node for event in simulation.events if event.node not in names), None)
    if lost is not None:
        raise LostNodeError(f"the Simulation has an event of node {lost!r}, which is not in the planned cluster")
    end = monotonic() + seconds
    demands = [*_read_demands(cluster.base, rule_set)]
    layouts = _find_layouts(card, demands, cluster, rule_set)
    kept = [item for node in cluster.base.cluster.nodes for item in node.allocatable.items()]
    resources = {name for name, each in kept if is_gpu(name) and each} | count_devices((tuple(layouts),)).keys()
    unserved = [each for each in demands if each[1].isdisjoint(resources)]
    if not layouts or len(unserved) == len(demands):
        raise PlanError(_unserved(card, *demands[0]) if demands else "no pod of the workload requests GPUs")
    notices = [_unserved(card, *each) for each in unserved]
    if cluster.left_out:
        notices.append(f"pods with GPUs on planned nodes, which are left out: {cluster.left_out:,}")
    space = Space(cluster.nodes, number, layouts)
    figures: dict[Candidate, Figures] = {}
    keys: dict[Candidate, FigureKey] = {}
    interrupted = False
    try:
        for candidate in islice(space.choose(keys, Random(cluster.base.seed)), MAX_TRIED):  # noqa: S311
            if keys and monotonic() > end:
                break
            record = play_simulation(
                cluster.simulation_on(candidate),
                rule_set,
                rules,
                progress=lambda *_: progress(len(keys), min(space.size, MAX_TRIED)),
            )
            if record.interrupted:
                raise KeyboardInterrupt
            figures[candidate] = compute_figures(record)
            keys[candidate] = by.key(figures[candidate])
    except KeyboardInterrupt:
        if not keys:
            raise
        interrupted = True
    ranked = rank(keys)
    best_record = play_simulation(cluster.simulation_on(ranked[0]), rule_set, rules)
    pods = [pod for pod in best_record.pods if pod.arrival is not None and any(map(is_gpu, pod.admitted.requested))]
    if pods and all(pod.bound is None for pod in pods):
        reason = pods[0].message or pods[0].admitted.message
        raise PlanError(f"no layout of {card} serves Pod {pods[0].namespace}/{pods[0].name}: {reason}")
    shown = ranked[:SHOWN]
    ties = best([(candidate, figures[candidate]) for candidate in shown], by)
    return PlanAnswer(
        simulation=cluster.base.name,
        rules=rules,
        card=card,
        cards=number,
        by=by,
        simulated=len(ranked),
        candidates=space.size,
        complete=len(ranked) == space.size,
        interrupted=interrupted,
        notices=tuple(notices),
        choices=tuple(_choice(cluster, each, figures[each], best=each in ties) for each in shown),
        inventory=_inventory(cluster, ranked[0]),
    )


def _choice(cluster: PlannedCluster, candidate: Candidate, figures: Figures, *, best: bool) -> Choice:
    names, plans = name_configs(candidate), [*zip(cluster.nodes, candidate, strict=True)]
    return Choice(
        **structs.asdict(figures),
        best=best,
        devices={node.name: dict(sorted(count_devices((plan,)).items())) for node, plan in plans},
        configs={node.name: names[plan] for node, plan in plans},
        mig_configs={"version": "v1", "mig-configs": {name: _config(plan) for plan, name in names.items()}},
    )


def _config(plan: NodePlan) -> list[Json]:
    """Return a node's configuration (github.com/NVIDIA/mig-parted, api/spec/v1/spec.go)."""
    entries: list[Json] = []
    for layout, numbers in groupby(range(len(plan)), key=plan.__getitem__):
        devices: dict[str, Json] = {"mig-devices": {**Counter(layout)}} if layout else {}
        entries.append({"devices": [*numbers], "mig-enabled": bool(layout), **devices})
    return entries


def _inventory(cluster: PlannedCluster, candidate: Candidate) -> dict[str, Any]:
    """Return the cluster of a candidate as a ClusterInventory."""
    objects = cluster.simulation_on(candidate).objects
    return {
        "apiVersion": API_VERSION,
        "kind": "ClusterInventory",
        "metadata": {"name": "plan"},
        "spec": {"objects": [dict(each) for kind in API_KINDS for each in objects.of(kind)]},
    }


def _read_demands(simulation: Simulation, rule_set: RuleSet) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield, for each template whose pods need GPUs, its title and the resources of which each pod needs one."""
    for arrival in simulation.arrivals:
        for group in arrival.groups:
            try:
                requests = Pod.parse(dict(group.pod)).effective_requests()
            except PodError:  # which no play admits
                continue
            resources = possible_resources(frozenset(name for name, nanos in requests.items() if nanos), rule_set)
            if resources:
                yield arrival_title(arrival.title, arrival.namespace), resources


def possible_resources(requested: frozenset[str], rule_set: RuleSet) -> frozenset[str]:
    """Return the requested GPU resources, and the GPU resources that rules may give instead."""
    rules = [compiled.rule.interests for compiled in rule_set.rules_at(Endpoint.MUTATE)]
    resources = frozenset(filter(is_gpu, requested))
    while True:
        matching = [each for each in rules if each.resources is None or not resources.isdisjoint(each.resources)]
        reachable = resources.union(*(filter(is_gpu, each.gives) for each in matching))
        if reachable == resources:
            return resources
        resources = reachable


def _find_layouts(
    card: str, demands: Sequence[tuple[str, frozenset[str]]], cluster: PlannedCluster, rule_set: RuleSet
) -> Sequence[Layout]:
    """Return the layouts of a card's devices that pods may get; of all its devices if rules read the cluster."""
    programs = (program for rule in rule_set.rules for program in (*rule.programs, *rule.messages))
    waiting = [requests_of(pod) for pod in cluster.base.objects.pods if not pod.node_name]
    wanted = [possible_resources(frozenset(each), rule_set) for each in waiting]
    wanted += [resources for _, resources in demands]
    reads = any("cluster" in program.reads for program in programs)
    names = None if reads else frozenset[str]().union(*wanted)
    profiles = frozenset(name for name in placements(card) if names is None or device_resource(name) in names)
    return [*card_layouts(card, profiles), *([()] if names is None or WHOLE_GPU in names else [])]


def _unserved(card: str, title: str, resources: frozenset[str]) -> str:
    return f"no layout of {card} serves {title}: it needs {' or '.join(sorted(resources))}"
