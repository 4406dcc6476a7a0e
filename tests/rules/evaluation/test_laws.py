"""Laws of decisions for any rules, cluster and pod."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from rules_engine.cluster.nodes import NodeFilter, NodeRequirement, Offered
from rules_engine.language.cel import Budget
from rules_engine.model.json.patch import Json, json_pointer
from rules_engine.model.kubernetes.cluster import Cluster, Node, Served
from rules_engine.model.kubernetes.quantity import Quantity
from rules_engine.model.rules.decision import Action, Decision
from rules_engine.model.rules.rule import Mode, Rule
from rules_engine.rules.evaluation import RuleSet
from rules_engine.rules.injection.value import InitContainers, OnConflict, ResourceInjection
from rules_engine.rules.ladder.value import Direction, FallbackLadder
from tests.support.evaluation import compiled, container, injection, ladder, mutated, pod, request, sound, validation
from tests.support.laws import (
    GPUS,
    RESOURCES,
    card_clusters,
    clusters,
    driver_clusters,
    first_pool_ladders,
    injections,
    jsons,
    ladder_sets,
    ladders,
    levelled_gpu_pods,
    levelled_pods,
    pods,
)
from tests.support.patching import same

HOSTILE: list[Json] = [
    "1e999999999",
    "1e-999999999",
    "-1",
    "1.5",
    "9" * 10_000,
    "\u0661",
    "1\n",
    float("inf"),
    -0.0,
    1e300,
    10**5_000,
    "Always",
    [None],
    {"": None},
]


@dataclass(frozen=True)
class ContainerCounts:
    """Requests of one container, read independently of the engine."""

    role: str
    counts: Mapping[str, int]


def counts_of(made: Any) -> list[ContainerCounts]:
    found = []
    for member, role in (("containers", "regular"), ("initContainers", "init")):
        for item in made["spec"].get(member, []):
            sections = item.get("resources", {})
            limits, requests = sections.get("limits", {}), sections.get("requests", {})
            counted = {
                name: whole({**requests, **limits}[name]) for name in {**requests, **limits} if name in RESOURCES
            }
            sidecar = item.get("restartPolicy") == "Always"
            found.append(ContainerCounts("sidecar" if sidecar else role, {name: n for name, n in counted.items() if n}))
    return found


def whole(text: str) -> int:
    found = Quantity.parse(text)
    assert found.is_whole
    return found.whole


def effective(made: Any, containers: Sequence[ContainerCounts], resource: str) -> int:
    """Effective request as Kubernetes defines it: the larger of running containers and the peak of init containers."""
    running = sum(c.counts.get(resource, 0) for c in containers if c.role != "init")
    peak = started = 0
    for item in containers:
        if item.role == "sidecar":
            started += item.counts.get(resource, 0)
        elif item.role == "init":
            peak = max(peak, started + item.counts.get(resource, 0))
    return max(running, peak) + whole(made["spec"].get("overhead", {}).get(resource, "0"))


def one_node_covers(cluster: Cluster, rule: FallbackLadder, demand: Mapping[str, int]) -> bool:
    def counts(node: Node) -> bool:
        if NodeRequirement.READY in rule.nodes.require and not node.ready:
            return False
        if NodeRequirement.SCHEDULABLE in rule.nodes.require and node.unschedulable:
            return False
        return not rule.nodes.selector or node.labels["pool"] == "a"

    def has(node: Node, resource: str) -> int:
        free = node.allocatable.get(resource, Quantity(0))
        if rule.offered is Offered.AVAILABLE:
            free -= node.used.get(resource, Quantity(0))
        return free.nanos // 10**9

    return any(counts(node) and all(has(node, name) >= n for name, n in demand.items()) for node in cluster.nodes)


def as_stored(made: Any) -> Json:
    """A pod as the API server sends it: limits copied to absent requests, canonical quantities."""
    stored = copy.deepcopy(made)
    for item in (*stored["spec"].get("containers", []), *stored["spec"].get("initContainers", [])):
        sections = item.get("resources", {})
        if "limits" in sections:
            sections["requests"] = {**sections["limits"], **sections.get("requests", {})}
        for amounts in sections.values():
            amounts.update({name: str(Quantity.parse(text)) for name, text in amounts.items()})
    level = stored["spec"].get("resources", {})
    if level.get("limits"):
        # pkg/apis/core/v1/defaults.go, defaultPodRequests
        together = {name: aggregate(stored, name) for name in ("cpu", "memory")}
        requested = {name: str(amount) for name, amount in together.items() if amount}
        level["requests"] = {**level["limits"], **requested, **level.get("requests", {})}
    return stored  # type: ignore[no-any-return]


def assert_settled(first: Decision, rules: Sequence[Rule], on: Cluster) -> None:
    """Assert that a rule set changes nothing in its own result, or in the pod that the API server makes of it."""
    for result in (first.result, as_stored(first.result)) if first.allowed else ():
        again = mutated(result, *rules, on=on)
        assert (again.patch, again.allowed) == ((), True)


@given(pods(), ladder_sets(), clusters())
def test_ladders_change_nothing_on_their_own_result(made: Json, rules: list[FallbackLadder], on: Cluster) -> None:
    assert_settled(mutated(made, *rules, on=on), rules, on)


@given(first_pool_ladders(), card_clusters(), st.integers(1, 2))
def test_ladders_with_pools_change_nothing_on_their_own_result(rule: FallbackLadder, on: Cluster, gpus: int) -> None:
    assert_settled(mutated(pod(container("c", {GPUS: gpus})), rule, on=on), [rule], on)


@given(pods(), ladder_sets(), driver_clusters())
def test_ladders_change_nothing_on_their_own_result_where_drivers_offer_devices(
    made: Json, rules: list[FallbackLadder], on: Cluster
) -> None:
    assert_settled(mutated(made, *rules, on=on), rules, on)


@given(pods(), ladders(), driver_clusters())
def test_devices_of_drivers_that_stay_fit_together(made: Json, rule: FallbackLadder, on: Cluster) -> None:
    (step,) = mutated(made, rule, on=on).trace
    staying = [each.resource for each in step.resources if each.reason == "offered" and each.to is None]
    served = frozenset[str]().union(*[node.service.resources for node in on.nodes if node.service])
    demand = {name: effective(made, counts_of(made), name) for name in staying if name in served}
    if len(demand) > 1:
        assert one_node_covers(on, rule, demand)
        free = rule.offered is Offered.AVAILABLE
        assert any(serves(node, demand, free=free) for node in on.nodes)


def serves(node: Node, demand: Mapping[str, int], *, free: bool) -> bool:
    counts = {name: count for name, count in demand.items() if node.service and name in node.service.resources}
    return node.service is None or not counts or node.service.serve(counts, Budget().spend, free=free) is Served.YES


@given(pods(shared=True), st.lists(injections(), max_size=2), clusters(), ladder_sets())
def test_injections_change_nothing_on_their_own_result(
    made: Json, rules: list[ResourceInjection], on: Cluster, several: list[FallbackLadder]
) -> None:
    named: list[Rule] = [replace(rule, name=f"i{index}") for index, rule in enumerate(rules)]
    for rule_set in (named, [*named, *several]):
        assert_settled(mutated(made, *rule_set, on=on), rule_set, on)


@given(pods(shared=True) | levelled_pods(), st.lists(injections(init_containers=InitContainers.INJECT), max_size=2))
def test_injections_into_init_containers_are_idempotent(made: Json, rules: list[ResourceInjection]) -> None:
    named = [replace(rule, name=f"i{index}") for index, rule in enumerate(rules)]
    # The API server completes the pod's own level before each call.
    assert_settled(mutated(as_stored(made), *named), named, Cluster())


@given(
    levelled_gpu_pods(),
    st.fixed_dictionaries({"cpu": st.integers(1, 4)}, optional={"memory": st.integers(1, 9)}),
    st.sampled_from([*OnConflict, OnConflict.OVERWRITE]),
    st.sampled_from(InitContainers),
)
def test_injections_are_idempotent_on_the_pods_own_level(
    made: Any, coefficients: Any, how: OnConflict, init: InitContainers
) -> None:
    rule = injection(coefficients, on_conflict=how, init_containers=init, gpu_type=None)
    assert_settled(mutated(as_stored(made), rule), [rule], Cluster())


@given(pods(shared=True) | levelled_pods(), injections(init_containers=InitContainers.IGNORE))
def test_gpus_of_ignored_init_containers_only_add_warnings(made: Json, rule: ResourceInjection) -> None:
    without = copy.deepcopy(made)
    ignored = take_away(rule.gpu_resource, without)
    decision, alone = mutated(made, rule), mutated(without, rule)
    result = copy.deepcopy(decision.result)
    take_away(rule.gpu_resource, result)
    assert (decision.allowed, result) == (alone.allowed, alone.result)
    if decision.trace[0].action in (Action.CHANGE, Action.KEEP) and rule.default:
        assert all(any(f" {name}," in text for text in decision.warnings) for name in ignored)


def take_away(resource: str, made: Any) -> list[str]:
    """Take a resource from the init containers and sidecars that request it; return their names."""
    names = []
    for item in made["spec"].get("initContainers", []):
        sections = item.get("resources", {}).values()
        amounts = [section.pop(resource, "0") for section in sections]
        if any(map(whole, amounts)):
            names.append(item["name"])
    return names


@given(levelled_pods(), injections(on_conflict=OnConflict.OVERWRITE) | injections(on_conflict=OnConflict.RAISE))
def test_an_injection_keeps_a_valid_pod_level_valid(made: Json, rule: ResourceInjection) -> None:
    stored: Any = as_stored(made)
    decision = mutated(stored, rule)
    if decision.allowed and decision.patch:
        for name in rule.default.coefficients:
            if sound_level(stored, name):
                assert sound_level(as_stored(decision.result), name)


def sound_level(made: Any, name: str) -> bool:
    """Return True if the API server accepts the amounts of a stored pod's own level for a resource."""
    level = made["spec"]["resources"]
    request, limit = (
        Quantity.parse(level[key][name]) if name in level.get(key, {}) else None for key in ("requests", "limits")
    )
    containers = made["spec"]["containers"]
    limits = [Quantity.parse(c["resources"]["limits"][name]) for c in containers if name in limits_of(c)]
    return not (
        (request is not None and request < aggregate(made, name))
        or (limit is not None and request is not None and limit < request)
        or (limit is not None and limits and limit < max(limits))
    )


def limits_of(item: Any) -> Mapping[str, str]:
    found: Mapping[str, str] = item.get("resources", {}).get("limits", {})
    return found


def aggregate(made: Any, name: str) -> Quantity:
    """Sum of the requests of a stored pod's containers."""
    running = started = peak = Quantity(0)
    for item in made["spec"]["containers"]:
        running += Quantity.parse(item.get("resources", {}).get("requests", {}).get(name, "0"))
    for item in made["spec"].get("initContainers", []):
        request = Quantity.parse(item.get("resources", {}).get("requests", {}).get(name, "0"))
        if item.get("restartPolicy") == "Always":
            started += request
        else:
            peak = max(peak, started + request)
    return max(running + started, peak)


@given(pods(shared=True), ladder_sets(), injections(), clusters())
def test_defaults_of_the_api_server_make_no_difference(
    made: Json, several: list[FallbackLadder], rule: ResourceInjection, on: Cluster
) -> None:
    bare, stored = mutated(made, *several, rule, on=on), mutated(as_stored(made), *several, rule, on=on)
    assert bare.allowed == stored.allowed
    assert same(as_stored(bare.result), as_stored(stored.result))


@given(pods(shared=True), ladder_sets(), st.lists(injections(), max_size=2), clusters())
def test_audit_mode_changes_nothing_warns_nobody_and_denies_nothing(
    made: Json, several: list[FallbackLadder], rules: list[ResourceInjection], on: Cluster
) -> None:
    everything: list[Any] = [replace(rule, mode=Mode.AUDIT, name=f"r{n}") for n, rule in enumerate([*several, *rules])]
    decision = mutated(made, *everything, on=on)
    assert (decision.allowed, decision.patch, decision.warnings) == (True, (), ())


@given(pods(shared=True), ladder_sets(), injections(), clusters())
def test_rules_in_audit_mode_make_no_difference_to_the_others(
    made: Json, several: list[FallbackLadder], rule: ResourceInjection, on: Cluster
) -> None:
    enforcing = [item for item in several if item.mode is Mode.ENFORCE]
    shadow = [replace(item, mode=Mode.AUDIT, name=f"s{n}", priority=9) for n, item in enumerate(several)]
    watched = mutated(made, *several, *shadow, rule, replace(rule, name="shadow", mode=Mode.AUDIT, priority=9), on=on)
    alone = mutated(made, *enforcing, rule, on=on)
    assert (watched.patch, watched.allowed) == (alone.patch, alone.allowed)


@given(pods(), ladders(), clusters())
def test_audit_mode_makes_the_same_decision_as_enforcing(made: Json, rule: FallbackLadder, on: Cluster) -> None:
    enforced, audited = (mutated(made, replace(rule, mode=mode), on=on) for mode in (Mode.ENFORCE, Mode.AUDIT))
    assert [structs.replace(step, audit=True) for step in enforced.trace] == list(audited.trace)
    if audited.trace[0].action is not Action.SKIP:
        assert len(audited.audit_annotations) == 1


RULES = compiled(
    ladder(*RESOURCES, direction=Direction.DOWN_THEN_UP, nodes=NodeFilter(require=frozenset(NodeRequirement))),
    injection({"cpu": 1, "memory": "1Gi", "nvidia.com/shm": 1}, annotations={"a/b": "c"}, gpu_type=None),
    validation("has(object.metadata.name)"),
)

FULL = pod(
    container("main", {RESOURCES[0]: 1, GPUS: 2, "cpu": 1}),
    container("beside", {"memory": "1Gi"}),
    init=[container("helper", {RESOURCES[1]: 1}, sidecar=True)],
    annotations={"a/b": "c"},
    labels={"team": "ml"},
    overhead={"cpu": "1m"},
    resources={"limits": {"cpu": "8"}, "requests": {"cpu": "4"}},
    nodeSelector={"pool": "a"},
    nodeName="",
    tolerations=[{"key": "gpu", "operator": "Exists", "effect": "NoSchedule", "value": ""}],
    affinity={
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {
                        "matchExpressions": [{"key": "pool", "operator": "In", "values": ["a"]}],
                        "matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n9"]}],
                    }
                ]
            }
        }
    },
)


def places(value: Json, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Paths of all values in a JSON value."""
    inner: list[tuple[str | int, Json]] = []
    if isinstance(value, dict):
        inner = list(value.items())
    elif isinstance(value, list):
        inner = list(enumerate(value))
    return [path, *(found for key, item in inner for found in places(item, (*path, key)))]


def replaced(value: Any, path: tuple[str | int, ...], new: Json) -> Json:
    if not path:
        return new
    key, *rest = path
    changed: Any = dict(value) if isinstance(value, dict) else list(value)
    changed[key] = replaced(value[key], tuple(rest), new)
    return changed  # type: ignore[no-any-return]


def assert_decided_or_refused(decision: Decision) -> None:
    if decision.refusal is not None:
        assert not decision.allowed
        assert decision.refusal.code == 422
        assert decision.refusal.message.startswith(("the pod is malformed: /", "the pod must be an object"))


@given(jsons())
def test_any_json_as_a_pod_is_decided_or_denied_with_its_path(made: Json) -> None:
    for endpoint in (RuleSet.mutate, RuleSet.validate):
        assert_decided_or_refused(sound(made, lambda: endpoint(RULES, request(made), Cluster())))  # noqa: B023


@given(st.sampled_from(places(FULL)), jsons(leaves=3) | st.sampled_from(HOSTILE), clusters())
def test_any_json_in_a_pod_is_decided_or_denied_with_its_path(
    place: tuple[str | int, ...], new: Json, on: Cluster
) -> None:
    made = replaced(FULL, place, new)
    for endpoint in (RuleSet.mutate, RuleSet.validate):
        assert_decided_or_refused(sound(made, lambda: endpoint(RULES, request(made), on)))  # noqa: B023


ALL_READING = ladder("nvidia.com/mig-3g", nodes=NodeFilter(require=frozenset({NodeRequirement.MATCHES_POD})))
"""Members of the placement, which is read only by rules that need it."""


def test_a_wrong_type_of_any_read_member_is_denied_with_its_path() -> None:
    unread = {"apiVersion", "kind", "image"}
    for place in places(FULL):
        if place and place[-1] not in unread:
            made = replaced(FULL, place, True)
            decision = mutated(made, ALL_READING)
            assert decision.status is not None, place
            assert (decision.status.code, decision.status.reason) == (422, "Invalid")
            assert decision.status.message.startswith(f"the pod is malformed: {json_pointer(*place)}: "), place


def test_null_counts_as_absent_wherever_it_stands() -> None:
    for place in places(FULL):
        if place and "operator" not in place and place[-2:-1] not in (("matchExpressions",), ("matchFields",)):
            assert mutated(replaced(FULL, place, None), ALL_READING).allowed, place
