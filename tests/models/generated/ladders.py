"""Ladders, clusters and pods for the model of ladders, and the comparison of its outcome with the engine's."""

from typing import Any

from hypothesis import strategies as st

from rules_engine.cluster.nodes import NodeFilter, NodeRequirement, Offered
from rules_engine.model.kubernetes.cluster import UNKNOWN_CLUSTER, Cluster, Node, Taint
from rules_engine.model.kubernetes.placement import Toleration
from rules_engine.model.kubernetes.quantity import Quantity
from rules_engine.model.rules.decision import Action
from rules_engine.model.rules.rule import ConditionKind, FailurePolicy, LabelRequirement, LabelSelector, Mode, OptOut
from rules_engine.rules.ladder.value import (
    Counts,
    Direction,
    FallbackLadder,
    Queued,
    Unplaced,
    WhenExhausted,
)
from rules_engine.rules.pod_members.value import Member
from tests.models import ladders as model
from tests.support.evaluation import container, ladder, mutated, pod, rung, rung_place
from tests.support.patching import same

RESOURCES = (
    "nvidia.com/mig-3g.40gb",
    "nvidia.com/mig-2g.20gb",
    "nvidia.com/mig-1g.10gb",
    "nvidia.com/gpu",
    "amd.com/mig-x",
)
OTHERS = ("rdma/hca", "example.com/x")
"""Resources of no ladder."""
COUNTS = ("1", "1", "1", "2", "3", "0", "2000m", "1e0", "1k", "999", "1500m", "-1")
FALLBACK, WEBHOOK = "gpurules.io/fallback", "gpu-webhook.k8s.io/fallback"


def cases() -> st.SearchStrategy[Any]:
    """Return a strategy of rules, a cluster and a pod; None is an unknown cluster."""
    clusters = st.lists(_nodes(), max_size=3) | st.lists(_nodes(), min_size=1, max_size=3)
    known_mostly = st.integers(0, 19).flatmap(lambda number: clusters if number else st.none())
    several = st.lists(rules(), min_size=1, max_size=3, unique_by=lambda rule: rule["name"])
    return st.fixed_dictionaries({"rules": several, "nodes": known_mostly, "pod": _pods()}) | _plain() | pool_cases()


def shared_cases() -> st.SearchStrategy[Any]:
    """Return cases with several ladders for the same resources, all of which a policy can have."""
    fixed = {"mode": "Enforce", "offered": "Allocatable", "failurePolicy": "Fail"}

    def exportable(rule: Any) -> Any:
        return {**rule, **fixed, "nodes": {**rule["nodes"], "require": []}}

    several = st.lists(rules().map(exportable), min_size=2, max_size=3, unique_by=lambda rule: rule["name"])
    nodes = st.lists(_nodes(), min_size=1, max_size=3)
    return st.fixed_dictionaries({"rules": several, "nodes": nodes, "pod": _pods()})


@st.composite
def pool_cases(draw: st.DrawFn) -> Any:
    """Generate cases with ladders over pools, most of them over the pools that the pod and the nodes have."""
    pools = draw(st.sampled_from([POOLS, PAIRS, SPOT]))
    nodes = st.lists(_pool_nodes(pools), min_size=1, max_size=3)
    others = draw(st.lists(_pool_rules(pools) | rules(), max_size=2, unique_by=lambda rule: rule["name"]))
    first = {**draw(_pool_rules(pools)), "name": draw(st.sampled_from("ad"))}
    return {
        "rules": [first, *(rule for rule in others if rule["name"] != first["name"])],
        "nodes": draw(nodes) if draw(st.integers(0, 19)) else None,
        "pod": draw(_pods_on_pools(pools)),
    }


def check(case: Any) -> None:
    """Compare the engine's decision with the model's."""
    rules = [rule_of(spec) for spec in case["rules"]]
    on = UNKNOWN_CLUSTER if case["nodes"] is None else Cluster(nodes=tuple(map(node_of, case["nodes"])))
    expected = model.mutate(case["pod"], case["rules"], case["nodes"])
    decision = mutated(case["pod"], *rules, on=on)
    if decision.allowed and any(rule.pool_keys for rule in rules):
        assert mutated(decision.result, *rules, on=on).patch == ()
    assert decision.allowed == expected.allowed
    if not expected.allowed:
        return
    moves = [
        (step.rule.removeprefix("FallbackLadder/"), found.resource, found.to)
        for step in decision.trace
        if step.action is Action.CHANGE and not step.audit
        for found in step.resources
        if found.to
    ]
    assert sorted(moves) == sorted(expected.moves)
    assert same(decision.result, expected.pod), (decision.result, expected.pod)
    assert bool(decision.warnings) == expected.warned, decision.warnings


def _rarely(usual: Any, *others: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from([usual] * 5 * len(others) + [*others])


@st.composite
def _plain(draw: st.DrawFn) -> Any:
    """Return a ladder without conditions, a pod that requests one device of several rungs each, and small nodes."""
    names = draw(st.permutations(RESOURCES))
    rule = {
        "name": "a",
        "priority": 0,
        "mode": "Enforce",
        "matchConditions": [],
        "failurePolicy": "Fail",
        "optOut": "Allowed",
        "offered": "Allocatable",
        "nodes": {"selector": {}, "require": []},
        "counts": "Keep",
        "direction": draw(st.sampled_from(["Down", "Up", "DownThenUp"])),
        "rungs": [{"resource": name, "weight": 1, "when": "true", "assume": False} for name in names],
        "whenExhausted": "Keep",
        "annotation": FALLBACK,
    }
    offered = st.lists(st.sampled_from(RESOURCES), min_size=1, max_size=2, unique=True)
    plain = {"labels": {}, "taints": [], "ready": True, "unschedulable": False, "used": {}}
    nodes = [
        {**plain, "allocatable": dict.fromkeys([*draw(offered), *draw(st.sampled_from([(), OTHERS[:1]]))], 3)}
        for _ in range(2)
    ]
    requested = draw(st.lists(st.sampled_from([*RESOURCES, OTHERS[0]]), min_size=2, max_size=3, unique=True))
    made = pod(*(container(f"c{index}", {name: 1}) for index, name in enumerate(requested)))
    return {"rules": [rule], "nodes": nodes, "pod": made}


@st.composite
def rules(draw: st.DrawFn) -> Any:
    names = draw(st.lists(st.sampled_from(RESOURCES), min_size=1, max_size=4, unique=True))
    assumed = draw(st.integers(0, 2 * len(names)))
    whens = _rarely("true", *model.EXPRESSIONS.keys() - {"'a/b' in object.metadata.annotations"})
    return {
        "name": draw(st.sampled_from("abc")),
        "priority": draw(st.integers(0, 1)),
        "mode": draw(_rarely("Enforce", "Audit", "Off")),
        "matchConditions": draw(_rarely([], *([text] for text in model.EXPRESSIONS))),
        "failurePolicy": draw(st.sampled_from(["Fail", "Ignore"])),
        "optOut": draw(_rarely("Allowed", "Forbidden")),
        "offered": draw(st.sampled_from(["Allocatable", "Available"])),
        "nodes": {
            "selector": draw(_rarely({}, {"pool": "a"})),
            "require": draw(_rarely([], ["Ready"], ["Schedulable"], ["MatchesPod"], ["Ready", "MatchesPod"])),
        },
        "direction": draw(st.sampled_from(["Down", "Up", "DownThenUp"])),
        "counts": draw(st.sampled_from(["Keep", "Scale"])),
        "rungs": [
            {"resource": name, "weight": draw(st.integers(1, 7)), "when": draw(whens), "assume": index == assumed}
            for index, name in enumerate(names)
        ],
        "whenExhausted": draw(_rarely("Keep", "Deny")),
        "annotation": draw(_rarely(FALLBACK, WEBHOOK, "a/b", "")),
    }


POOLED = RESOURCES[2:4]
"""Resources of pools in generated ladders."""

POOLS = [{"card": "a"}, {"card": "b"}, {"card": None}]
PAIRS = [{"card": card, "spot": spot} for card in ("a", "b") for spot in ("true", None)]
SPOT = [{"spot": None}, {"spot": "true"}]
PLACES = (
    {"tolerations": [{"key": "gpu", "operator": "Exists"}]},
    {"tolerations": [{"key": "spot", "operator": "Exists"}, {"key": "gpu", "operator": "Exists"}]},
    {"annotations": {"type": "a"}},
    {"annotations": {"type": "b", "a/b": "d"}, "runtimeClassName": "nvidia"},
    {"runtimeClassName": "kata"},
)


@st.composite
def _pool_rules(draw: st.DrawFn, usual: Any) -> Any:
    rule = draw(rules())
    pools = draw(_rarely(usual, POOLS, PAIRS, SPOT))
    identities = st.tuples(st.sampled_from(POOLED), st.sampled_from(range(len(pools))))
    chosen = draw(st.lists(identities, min_size=2, max_size=6, unique=True))
    assumed = draw(st.integers(0, 3 * len(chosen)))
    return {
        **rule,
        "rungs": [
            {
                "resource": resource,
                "name": f"p{pool}",
                "pool": pools[pool],
                "place": draw(_rarely({}, *PLACES)),
                "weight": draw(st.integers(1, 3)),
                "when": draw(_rarely("true", "false", "size(object.spec.containers) > 1")),
                "assume": index == assumed,
            }
            for index, (resource, pool) in enumerate(chosen)
        ],
        "unplaced": draw(st.sampled_from(["Ignore", "First"])),
        "queued": draw(_rarely("Ignore", "Move")),
    }


@st.composite
def _pool_nodes(draw: st.DrawFn, pools: Any) -> Any:
    labels = draw(st.sampled_from(pools))
    return {
        **draw(_nodes()),
        "labels": {"pool": draw(st.sampled_from("ab")), **{key: value for key, value in labels.items() if value}},
        "allocatable": {
            **draw(st.dictionaries(st.sampled_from(POOLED), st.sampled_from([1, 2, 3, 7]), min_size=1)),
            **draw(st.dictionaries(st.sampled_from(OTHERS), st.sampled_from([1, 2]))),
        },
    }


@st.composite
def _pods_on_pools(draw: st.DrawFn, pools: Any) -> Any:
    made: Any = draw(_pods()) if draw(st.integers(0, 4)) == 0 else pod(container("c0"), container("c1"))
    if draw(st.integers(0, 5)):
        wanted = draw(st.lists(st.sampled_from(POOLED), min_size=1, max_size=2, unique=True))
        wanted += draw(_rarely([], OTHERS[:1], OTHERS))
        made["spec"]["containers"][0] = container("c0", {name: draw(st.sampled_from(["1", "2"])) for name in wanted})
    chosen = draw(st.sampled_from([*pools, *pools, {"card": "c"}, {"spot": "true"}]))
    pool = {key: value for key, value in chosen.items() if value}
    where = draw(st.sampled_from(["selector"] * 6 + ["affinity"] * 3 + ["both", "none", "none", "terms", "odd"]))
    lines: list[Any] = [{"key": key, "operator": "In", "values": [value]} for key, value in pool.items()]
    if where in ("selector", "both") and pool:
        made["spec"]["nodeSelector"] = {**made["spec"].get("nodeSelector", {}), **pool}
    if where == "odd":
        lines = [
            draw(
                st.sampled_from(
                    [
                        {"key": "card", "operator": "In", "values": ["a", "b"]},
                        {"key": "card", "operator": "Exists"},
                        {"key": "card", "operator": "DoesNotExist"},
                        {"key": "spot", "operator": "DoesNotExist"},
                        {"key": "card", "operator": "NotIn", "values": ["a"]},
                    ]
                )
            ),
            *lines[:1],
        ]
    for line in lines:
        if "values" in line and draw(st.integers(0, 5)) == 0:
            line["values"] = [*line["values"], line["values"][0]]
    other = {"key": "pool", "operator": "In", "values": ["a", "b"]}
    if where in ("affinity", "both", "terms", "odd") and lines:
        terms = [{"matchExpressions": [*draw(_rarely([], [other])), *lines]}]
        if where == "terms":
            terms.append({"matchExpressions": [other, *draw(st.sampled_from([[], lines]))]})
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        made["spec"]["affinity"] = {"nodeAffinity": required}
    if draw(_rarely(False, True)):
        made["spec"]["runtimeClassName"] = draw(st.sampled_from(["nvidia", "kata"]))
    if draw(_rarely(False, False, False, True)):
        made["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "q"}
    return made


def rule_of(spec: Any) -> FallbackLadder:
    required = (LabelRequirement(key, ConditionKind.IN, (value,)) for key, value in spec["nodes"]["selector"].items())
    return ladder(
        *(
            rung(
                item["resource"],
                item["when"],
                weight=item["weight"],
                assume=item["assume"],
                name=item.get("name", ""),
                pool=tuple(sorted(item.get("pool", {}).items())),
                place=_place(item.get("place", {})),
            )
            for item in spec["rungs"]
        ),
        name=spec["name"],
        priority=spec["priority"],
        mode=Mode(spec["mode"]),
        match_conditions={f"c{index}": text for index, text in enumerate(spec["matchConditions"])},
        failure_policy=FailurePolicy(spec["failurePolicy"]),
        opt_out=OptOut(spec["optOut"]),
        offered=Offered(spec["offered"]),
        nodes=NodeFilter(LabelSelector(tuple(required)), frozenset(map(NodeRequirement, spec["nodes"]["require"]))),
        direction=Direction(spec["direction"]),
        counts=Counts(spec["counts"]),
        when_exhausted=WhenExhausted(spec["whenExhausted"]),
        annotation=spec["annotation"],
        unplaced=Unplaced(spec.get("unplaced", "Ignore")),
        queued=Queued(spec.get("queued", "Ignore")),
    )


def _place(spec: Any) -> tuple[Member, ...]:
    return rung_place(
        tolerations=tuple(Toleration(**{"value": "", "effect": "", **item}) for item in spec.get("tolerations", [])),
        annotations=spec.get("annotations", {}),
        runtime_class_name=spec.get("runtimeClassName", ""),
    )


def _nodes() -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(
        {
            "labels": st.sampled_from([{"pool": "a"}, {"pool": "b"}]),
            "taints": _rarely([], ["gpu"]),
            "ready": _rarely(True, False),
            "unschedulable": _rarely(False, True),
            "allocatable": st.dictionaries(
                st.sampled_from([*RESOURCES, *OTHERS]), st.sampled_from([0, 1, 2, 3, 7, 2000])
            ),
            "used": st.dictionaries(st.sampled_from(RESOURCES), st.integers(0, 2), max_size=2),
        }
    )


def node_of(spec: Any) -> Node:
    return Node(
        name="node",
        labels=spec["labels"],
        taints=tuple(Taint(key=key, effect="NoSchedule") for key in spec["taints"]),
        ready=spec["ready"],
        unschedulable=spec["unschedulable"],
        allocatable={name: Quantity.of(count) for name, count in spec["allocatable"].items()},
        used={name: Quantity.of(count) for name, count in spec["used"].items()},
    )


@st.composite
def _containers(draw: st.DrawFn, name: str, init: bool) -> Any:
    sections: dict[str, dict[str, str]] = {"limits": {}, "requests": {}}
    for resource in draw(st.lists(st.sampled_from(RESOURCES), max_size=3, unique=True)):
        count = draw(st.sampled_from(COUNTS[:4]) if draw(st.integers(0, 3)) else st.sampled_from(COUNTS))
        for section in draw(st.sampled_from([("limits", "requests"), ("limits",), ("requests",)])):
            sections[section][resource] = count
        if draw(st.integers(0, 29)) == 29:
            sections["requests"][resource] = draw(st.sampled_from(COUNTS))
    for resource in draw(_rarely([], OTHERS[:1], OTHERS)):
        sections["limits"][resource] = sections["requests"][resource] = draw(st.sampled_from(["1", "2", "0"]))
    return container(name, **sections, sidecar=init and draw(st.booleans()))


@st.composite
def _pods(draw: st.DrawFn) -> Any:
    annotations = [
        {},
        {FALLBACK: "old->new"},
        {FALLBACK: "3g.40gb->gpu"},
        {FALLBACK: ""},
        {WEBHOOK: "old->new"},
        {FALLBACK: "new->newer", WEBHOOK: "old->new"},
        {"a/b": "c"},
        {"gpurules.io/skip": "true"},
        {"gpurules.io/skip": "True"},
    ]
    made: Any = pod(
        *[draw(_containers(f"c{index}", False)) for index in range(draw(st.integers(1, 3)))],
        init=[draw(_containers(f"i{index}", True)) for index in range(draw(_rarely(0, 1, 2)))],
        annotations=draw(_rarely(None, *annotations)),
    )
    extra: list[dict[str, Any]] = [
        {"overhead": {"nvidia.com/gpu": "1"}},
        {"nodeSelector": {"pool": "a"}},
        {"tolerations": [{"key": "gpu", "operator": "Exists"}]},
    ]
    made["spec"] |= draw(_rarely({}, *extra))
    return made
