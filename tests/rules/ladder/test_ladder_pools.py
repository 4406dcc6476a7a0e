"""Ladders over node pools: the pool that a pod selects, its move, and everything that reads both."""

from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec import structs

from rules_engine.cluster.nodes import NodeFilter, NodeRequirement, Offered
from rules_engine.model.kubernetes.cluster import UNKNOWN_CLUSTER, Node, Taint
from rules_engine.model.kubernetes.placement import Placement, Toleration
from rules_engine.model.kubernetes.pod import Pod
from rules_engine.model.rules.admission import Endpoint
from rules_engine.model.rules.decision import Action, Decision, Step
from rules_engine.model.rules.rule import OptOut
from rules_engine.rules.ladder.analysis import analyse, analyse_on
from rules_engine.rules.ladder.effective import effective, parts
from rules_engine.rules.ladder.pools import PodPool
from rules_engine.rules.ladder.value import Counts, FallbackLadder, Rung, Unplaced, WhenExhausted
from tests.support.evaluation import asks, cluster, compiled, ladder, mutated, node, rung, rung_place
from tests.support.placing import lookups

GPU, MIG, CARD, SPOT = "nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "card", "spot"
FALLBACK = "gpurules.io/fallback"
MATCHES_POD = NodeFilter(require=frozenset({NodeRequirement.MATCHES_POD}))
DEDICATED = Toleration(key="dedicated", operator="Equal", value="a100", effect="NoSchedule")
RAW_DEDICATED = {"key": "dedicated", "operator": "Equal", "value": "a100", "effect": "NoSchedule"}


def on(name: str, resource: str = GPU, **fields: Any) -> Rung:
    """Return a rung on the pool of a card."""
    return rung(resource, name=name, pool=((CARD, name.lower()),), **fields)


def cards(*rungs: Rung, **fields: Any) -> FallbackLadder:
    return ladder(*(rungs or (on("H100"), on("A100"))), **fields)


def pool_node(card: str | None, count: int = 8, resource: str = GPU, **fields: Any) -> Node:
    return node(f"{card}-{resource}", {resource: count}, labels={CARD: card} if card else {}, **fields)


def selecting(card: str | None = "h100", count: int = 1, **spec: Any) -> Any:
    return asks({GPU: count}, **({"nodeSelector": {CARD: card}} if card else {}), **spec)


def affine(*terms: Any, **spec: Any) -> Any:
    required = {"nodeSelectorTerms": [{"matchExpressions": [*lines]} for lines in terms]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    return asks({GPU: 1}, affinity=affinity, **spec)


def line(operator: str, *values: str, key: str = CARD) -> Any:
    return {"key": key, "operator": operator, **({"values": [*values]} if values else {})}


def step_of(decision: Decision, index: int = 0) -> Step:
    return decision.trace[index]


def spec_of(decision: Decision) -> Any:
    result: Any = decision.result
    return result["spec"]


A100 = cluster(pool_node("a100"))
BOTH = cluster(pool_node("h100"), pool_node("a100"))


def test_a_pod_whose_pool_offers_nothing_moves_to_the_next_pool() -> None:
    decision = mutated(selecting(), cards(), on=A100)
    assert spec_of(decision)["nodeSelector"] == {CARD: "a100"}
    assert [(item.resource, item.to) for item in step_of(decision).resources] == [(f"{GPU}@H100", f"{GPU}@A100")]
    assert step_of(decision).annotations == {FALLBACK: "gpu@H100->gpu@A100"}
    assert [operation.path for operation in decision.patch] == ["/metadata/annotations", "/spec/nodeSelector/card"]
    assert mutated(decision.result, cards(), on=A100).patch == ()


def test_a_pod_whose_pool_offers_its_devices_stays() -> None:
    decision = mutated(selecting(), cards(), on=BOTH)
    assert (step_of(decision).action, step_of(decision).reason) == (Action.KEEP, "offered")


def test_an_exhausted_pod_stays_or_is_denied() -> None:
    decision = mutated(selecting(count=9), cards(), on=BOTH)
    assert step_of(decision).reason == "exhausted"
    assert [attempt.reason for attempt in step_of(decision).resources[0].attempts] == [
        f"requested, but no node of its pool offers 9 of {GPU}",
        f"no node of its pool offers 9 of {GPU}",
    ]
    denied = mutated(selecting(count=9), cards(when_exhausted=WhenExhausted.DENY), on=BOTH)
    assert step_of(denied).message == f"no rung can serve {GPU}@H100 for pod ml/job"


def test_a_value_of_required_node_affinity_is_replaced_where_it_is() -> None:
    decision = mutated(affine([line("In", "x", key="zone"), line("In", "h100")]), cards(), on=A100)
    assert [operation.to_json() for operation in decision.patch][1:] == [
        {
            "op": "replace",
            "path": "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0"
            "/matchExpressions/1/values/0",
            "value": "a100",
        }
    ]


def test_null_is_a_pool_without_the_label() -> None:
    rungs = rung(GPU, name="reserved", pool=((SPOT, None),)), rung(GPU, name="spot", pool=((SPOT, "true"),))
    spot = cluster(node("spot", {GPU: 8}, labels={SPOT: "true"}))
    assert spec_of(mutated(selecting(None), cards(*rungs), on=spot))["nodeSelector"] == {SPOT: "true"}
    back = cards(*rungs[::-1])
    reserved = cluster(node("reserved", {GPU: 8}))
    assert spec_of(mutated(asks({GPU: 1}, nodeSelector={SPOT: "true"}), back, on=reserved))["nodeSelector"] == {}
    moved = mutated(affine([line("In", "true", key=SPOT)]), back, on=reserved)
    assert spec_of(moved) == affine([line("DoesNotExist", key=SPOT)])["spec"]
    assert mutated(moved.result, back, on=reserved).patch == ()


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (selecting(None), "the pod does not select nodes by card (unplaced: Ignore)"),
        (selecting("l40s"), "the pod selects card=l40s, which is no pool of the ladder"),
        (affine([line("In", "h100")], [line("In", "a100")]), "the pod does not select exactly one value of card"),
        (affine([line("DoesNotExist")]), "the pod selects !card, which is no pool of the ladder"),
        (selecting(nodeName="n"), "the pod names its node"),
        (asks({GPU: 1}, nodeSelector={CARD: "h100"}, labels={"kueue.x-k8s.io/queue-name": "q"}),
         "the pod is in a queue of Kueue (queued: Ignore)"),
    ],
)  # fmt: skip
def test_other_pods_are_left_alone_with_the_reason(made: Any, reason: str) -> None:
    decision = mutated(made, cards(), on=A100)
    assert decision.patch == ()
    assert (step_of(decision).action, step_of(decision).reason) == (Action.SKIP, "pool")
    assert step_of(decision).message == reason


H100_LINE, A100_LINE = line("In", "h100"), line("In", "a100")
ZONE = line("In", "x", key="zone")


@pytest.mark.parametrize(
    ("made", "moved"),
    [
        (affine([line("In", "h100", "h100")]), affine([A100_LINE])),
        (affine([H100_LINE, H100_LINE]), affine([A100_LINE, A100_LINE])),
        (affine([H100_LINE], [H100_LINE]), affine([A100_LINE], [A100_LINE])),
        (affine([], [H100_LINE, ZONE], [], [ZONE, H100_LINE]), affine([], [A100_LINE, ZONE], [], [ZONE, A100_LINE])),
        (affine([H100_LINE], [ZONE], nodeSelector={CARD: "h100"}),
         affine([A100_LINE], [ZONE], nodeSelector={CARD: "a100"})),
    ],
)  # fmt: skip
def test_other_spellings_of_a_pool_are_read(made: Any, moved: Any) -> None:
    decision = mutated(made, cards(), on=A100)
    assert spec_of(decision) == moved["spec"]
    assert mutated(decision.result, cards(), on=A100).patch == ()


@pytest.mark.parametrize(
    "made",
    [
        affine([H100_LINE], [A100_LINE]),
        affine([H100_LINE], [ZONE]),
        affine([H100_LINE, A100_LINE]),
        affine([line("In", "h100", "a100")]),
        affine([H100_LINE], nodeSelector={CARD: "a100"}),
        *(affine([line(operator, "1")]) for operator in ("NotIn", "Exists", "Gt", "Lt")),
    ],
)
def test_a_pod_that_selects_no_single_value_is_denied_where_the_ladder_must_hold(made: Any) -> None:
    must = {"when_exhausted": WhenExhausted.DENY, "opt_out": OptOut.FORBIDDEN}
    decision = mutated(made, cards(**must), on=A100)
    assert (step_of(decision).action, step_of(decision).reason) == (Action.DENY, "pool")
    reason = "the pod does not select exactly one value of card"
    assert step_of(decision).message == f"pod ml/job selects no pool of the ladder: {reason}"
    for name in must:
        assert mutated(made, cards(**{name: must[name]}), on=A100).allowed
    # Other ladders decide such a pod if they are first.
    assert mutated(made, ladder(GPU, name="first", priority=1), cards(**must), on=A100).allowed


@pytest.mark.parametrize(
    "made",
    [
        selecting(None),
        selecting("l40s"),
        asks({MIG: 1}, affinity=affine([line("Exists")])["spec"]["affinity"]),
        affine([line("Exists")], nodeName="n"),
        affine([line("Exists")], labels={"kueue.x-k8s.io/queue-name": "q"}),
        asks({GPU: 1}, affinity={"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 1, "preference": {"matchExpressions": [line("Exists")]}}]}}),
    ],
)  # fmt: skip
def test_other_pods_are_left_alone_though_the_ladder_must_hold(made: Any) -> None:
    rule = cards(when_exhausted=WhenExhausted.DENY, opt_out=OptOut.FORBIDDEN)
    decision = mutated(made, rule, on=A100)
    assert (decision.allowed, decision.patch) == (True, ())


def test_several_terms_without_the_keys_do_not_matter() -> None:
    other = [line("In", "x", key="zone")]
    decision = mutated(affine(other, other, nodeSelector={CARD: "h100"}), cards(), on=A100)
    assert spec_of(decision)["nodeSelector"] == {CARD: "a100"}


def test_an_unplaced_pod_gets_the_first_pool_or_falls_from_it() -> None:
    first = cards(on("H100", place=rung_place(annotations={"type": "h"})), on("A100"), unplaced=Unplaced.FIRST)
    placed = mutated(selecting(None), first, on=BOTH)
    assert spec_of(placed)["nodeSelector"] == {CARD: "h100"}
    assert (step_of(placed).reason, step_of(placed).annotations) == ("placed", {"type": "h"})
    assert mutated(placed.result, first, on=BOTH).patch == ()
    assert spec_of(mutated(selecting(None), first, on=A100))["nodeSelector"] == {CARD: "a100"}
    exhausted = mutated(selecting(None, 9), first, on=BOTH)
    assert (step_of(exhausted).action, step_of(exhausted).reason) == (Action.CHANGE, "exhausted")
    assert spec_of(exhausted)["nodeSelector"] == {CARD: "h100"}


@pytest.mark.parametrize("exhausted", WhenExhausted)
def test_an_unplaced_pod_moves_if_it_can_with_what_the_first_rung_gives_it(exhausted: WhenExhausted) -> None:
    place = rung_place(tolerations=(DEDICATED,), annotations={"type": "h"})
    fields: dict[str, Any] = {"unplaced": Unplaced.FIRST, "nodes": MATCHES_POD, "when_exhausted": exhausted}
    rule = cards(on("H100", place=place), on("A100"), **fields)
    tainted = cluster(pool_node("a100", taints=(Taint(key="dedicated", value="a100", effect="NoSchedule"),)))
    moved = mutated(selecting(None), rule, on=tainted)
    assert (spec_of(moved)["nodeSelector"], spec_of(moved)["tolerations"]) == ({CARD: "a100"}, [RAW_DEDICATED])
    assert step_of(moved).annotations == {"type": "h", FALLBACK: "gpu@H100->gpu@A100"}
    assert mutated(moved.result, rule, on=tainted).patch == ()
    # So does a condition that reads what the first rung gives.
    by_annotation = on("A100", when="object.metadata.?annotations[?'type'].orValue('') == 'h'")
    rule = cards(on("H100", place=place), by_annotation, **fields)
    assert spec_of(mutated(selecting(None), rule, on=tainted))["nodeSelector"] == {CARD: "a100"}
    # A rule that no longer matches the placed pod does not move it on.
    rule = cards(
        on("H100", place=place),
        on("A100"),
        match_conditions={"c": "!has(object.metadata.annotations)"},
        **{**fields, "when_exhausted": WhenExhausted.KEEP},
    )
    assert spec_of(mutated(selecting(None), rule, on=tainted))["nodeSelector"] == {CARD: "h100"}


def test_missing_tolerations_are_appended() -> None:
    target = on("A100", place=rung_place(tolerations=(DEDICATED,)))
    tainted = cluster(pool_node("a100", taints=(Taint(key="dedicated", value="a100", effect="NoSchedule"),)))
    rule = cards(on("H100"), target, nodes=MATCHES_POD)
    assert spec_of(mutated(selecting(), rule, on=tainted))["tolerations"] == [RAW_DEDICATED]
    other = {"key": "x", "operator": "Exists"}
    assert spec_of(mutated(selecting(tolerations=[other]), rule, on=tainted))["tolerations"] == [other, RAW_DEDICATED]
    implied = {key: text for key, text in RAW_DEDICATED.items() if key != "operator"}
    moved = mutated(selecting(tolerations=[implied]), rule, on=tainted)
    assert spec_of(moved)["tolerations"] == [implied]
    assert mutated(selecting(), cards(nodes=MATCHES_POD), on=tainted).patch == ()


def test_a_runtime_class_is_written_only_where_the_pod_names_none() -> None:
    rule = cards(on("H100"), on("A100", place=rung_place(runtime_class_name="nvidia")))
    assert spec_of(mutated(selecting(), rule, on=A100))["runtimeClassName"] == "nvidia"
    assert mutated(selecting(runtimeClassName="nvidia"), rule, on=A100).patch
    left = mutated(selecting(runtimeClassName="kata"), rule, on=A100)
    assert left.patch == ()
    assert step_of(left).resources[0].attempts[-1].reason == "the pod names the runtime class kata, not nvidia"


def test_counts_scale_between_cards() -> None:
    rule = cards(on("H100", weight=2), on("A100", weight=1), counts=Counts.SCALE)
    limits = spec_of(mutated(selecting(), rule, on=A100))["containers"][0]["resources"]["limits"]
    assert limits == {GPU: "2"}


def test_all_resources_move_to_one_pool_together() -> None:
    rule = cards(on("H100"), on("A100"), on("H100", MIG), on("A100", MIG))
    made = asks({GPU: 1, MIG: 1}, nodeSelector={CARD: "h100"})
    both = node("a", {GPU: 1, MIG: 1}, labels={CARD: "a100"})
    moved = step_of(mutated(made, rule, on=cluster(pool_node("h100"), both)))
    assert {item.resource: item.to for item in moved.resources} == {
        f"{GPU}@H100": f"{GPU}@A100",
        f"{MIG}@H100": f"{MIG}@A100",
    }
    apart = cluster(pool_node("h100"), pool_node("a100", 1), pool_node("a100", 1, MIG))
    assert step_of(mutated(made, rule, on=apart)).reason == "exhausted"


def test_a_request_without_a_rung_in_the_pod_s_pool_must_fit_in_the_next_one() -> None:
    rule = cards(on("H100"), on("A100"), on("A100", MIG))
    made = asks({GPU: 1, MIG: 1}, nodeSelector={CARD: "h100"})
    assert mutated(made, rule, on=A100).patch == ()
    assert mutated(made, rule, on=cluster(node("a", {GPU: 1, MIG: 1}, labels={CARD: "a100"}))).patch


def test_a_condition_and_the_assumed_rung_count() -> None:
    rule = cards(on("H100"), on("A100", when="false"), on("L40S", assume=True))
    decision = mutated(selecting(), rule, on=A100)
    assert spec_of(decision)["nodeSelector"] == {CARD: "l40s"}
    assert step_of(decision).resources[0].attempts[1].reason == "its condition is false"
    assert step_of(mutated(decision.result, rule, on=UNKNOWN_CLUSTER)).reason == "assumed"


def test_an_unknown_cluster_and_malformed_amounts_change_nothing() -> None:
    unknown = step_of(mutated(selecting(), cards(), on=UNKNOWN_CLUSTER))
    assert (unknown.reason, unknown.resources[0].resource) == ("cluster-unknown", f"{GPU}@H100")
    assert step_of(mutated(asks({GPU: "1500m"}, nodeSelector={CARD: "h100"}), cards(), on=A100)).reason == "malformed"


def test_the_first_ladder_that_decides_owns_its_keys() -> None:
    first = cards(name="a")
    other = rung(MIG, name="A100", pool=((CARD, "a100"),)), rung(MIG, name="H100", pool=((CARD, "h100"),))
    second = cards(*other, name="b")
    made = asks({GPU: 1, MIG: 1}, nodeSelector={CARD: "h100"})
    on_a100 = cluster(pool_node("a100"), pool_node("h100", 8, MIG))
    decision = mutated(made, first, second, on=on_a100)
    assert spec_of(decision)["nodeSelector"] == {CARD: "a100"}
    assert step_of(decision, 1).resources[0].attempts[-1].reason == "an earlier ladder decided card"


def test_a_move_that_an_earlier_ladder_would_change_is_not_made() -> None:
    ready = NodeFilter(require=MATCHES_POD.require | {NodeRequirement.READY})
    plain = ladder(MIG, "nvidia.com/mig-2g.20gb", name="a", nodes=ready)
    made = asks({GPU: 1, MIG: 1}, nodeSelector={CARD: "h100"})
    both = node("both", {GPU: 1, MIG: 1}, labels={CARD: "a100"}, ready=False)
    nodes = cluster(both, pool_node("h100", 8, MIG))
    decision = mutated(made, plain, cards(name="b"), on=nodes)
    assert decision.patch == ()
    assert step_of(decision, 1).resources[0].attempts[-1].reason == "FallbackLadder/a would move it on"
    anywhere = ladder(MIG, "nvidia.com/mig-2g.20gb", name="a")
    assert mutated(made, anywhere, cards(name="b"), on=nodes).patch


def test_a_plain_ladder_does_not_move_a_pod_onto_a_rung_that_an_earlier_ladder_leaves() -> None:
    plain = ladder(MIG, GPU, name="b")
    made = asks({MIG: 1}, nodeSelector={CARD: "h100"})
    decision = mutated(made, cards(name="a"), plain, on=A100)
    assert step_of(decision, 1).resources[0].attempts[-1].reason == "FallbackLadder/a would move it on"
    assert mutated(made, cards(name="a"), plain, on=cluster(pool_node("h100"))).patch
    queued = asks({MIG: 1}, nodeSelector={CARD: "h100"}, labels={"kueue.x-k8s.io/queue-name": "q"})
    assert mutated(queued, cards(name="a"), plain, on=A100).patch, "an earlier ladder leaves pods in queues alone"


def test_explanations_and_coverage_name_rungs_by_pool() -> None:
    place = rung_place(tolerations=(DEDICATED,), runtime_class_name="nvidia")
    rule = cards(on("H100"), on("A100", place=place))
    settings = {setting.name: setting.value for setting in effective(rule, "default")}
    assert settings["rungs[1].pool"] == {CARD: "a100"}
    assert settings["rungs[1].place"] == {"tolerations": [RAW_DEDICATED], "runtimeClassName": "nvidia"}
    assert rule.rung_names == (f"{GPU}@H100", f"{GPU}@A100")
    step = step_of(mutated(selecting(), rule, on=A100))
    reached = [(part.name, part.event) for part in parts(rule) if part.reached(step, "default")]
    assert reached == [(f"{GPU}@H100", "requested"), (f"{GPU}@A100", "given")]


def test_replacements_are_the_other_rungs_with_the_edits_that_select_them() -> None:
    (rule,) = compiled(cards(on("H100"), on("A100"), on("L40S"))).rules_at(Endpoint.MUTATE)
    others = rule.replacements(f"{GPU}@A100")
    assert [(other.title, other.pool) for other in others] == [
        (f"{GPU}@L40S", "card=l40s"),
        (f"{GPU}@H100", "card=h100"),
    ]
    pod = Pod.parse(selecting("a100"))
    assert others[0].place(pod) == {("spec", "nodeSelector"): {CARD: "l40s"}}
    # A resource does not identify a rung with a pool.
    assert rule.replacements(GPU) == ()


def test_pods_beyond_the_bounds_of_a_placement_cannot_be_evaluated() -> None:
    made = selecting(tolerations=[{"key": "x", "operator": "Exists"}] * 1001)
    assert step_of(mutated(made, cards(), on=A100)).reason == "evaluation-error"


def test_node_affinity_is_looked_up_once_for_all_pools() -> None:
    made = affine([line("In", "c0"), *[line("NotIn", "x", key=f"k{number}") for number in range(4000)]])

    def cost(pools: int) -> tuple[int, int]:
        rule = cards(*[on(f"C{number}") for number in range(pools)], nodes=MATCHES_POD)
        with patch.object(Placement, "parse", wraps=Placement.parse) as parsed, lookups() as counted:
            assert step_of(mutated(made, rule, on=A100)).reason == "exhausted"
        return parsed.call_count, counted[0]

    (_, of_one), (parsed, of_50) = cost(1), cost(50)
    assert parsed == 1
    assert 4000 <= of_50 <= of_one + 50 * 4


POOLS: st.SearchStrategy[Any] = st.dictionaries(
    st.sampled_from([CARD, SPOT]), st.sampled_from([None, "a", "b"]), min_size=1
).map(lambda labels: tuple(sorted(labels.items())))
TOLERATIONS = st.lists(
    st.builds(Toleration, key=st.sampled_from("xy"), operator=st.just("Equal"), value=st.just("v"), effect=st.just("")),
    max_size=2,
)
LINES = st.lists(
    st.one_of(
        st.builds(lambda key: line("DoesNotExist", key=key), st.sampled_from([CARD, SPOT])),
        st.builds(lambda key, value: line("In", value, key=key), st.sampled_from([CARD, SPOT]), st.sampled_from("ab")),
        st.just(line("Exists", key="zone")),
    ),
    max_size=3,
)


@given(st.dictionaries(st.sampled_from([CARD, SPOT, "zone"]), st.sampled_from("ab")), LINES, POOLS, TOLERATIONS)
def test_the_placement_on_a_pool_is_that_of_the_edited_pod(
    selected: dict[str, str], lines: list[Any], pool: Any, tolerations: list[Toleration]
) -> None:
    made = Pod.parse(affine(lines, nodeSelector=selected, tolerations=[{"key": "x", "value": "v"}]))
    rungs = [rung(GPU, name="to", pool=pool, place=rung_place(tolerations=tuple(tolerations)))]
    pod_pool = PodPool.of(made, made.placement, [key for key, _ in pool])
    assume(not pod_pool.problem)
    ours, edited = pod_pool.placement_on(rungs), made.edited(pod_pool.edits_to(rungs)).placement
    assert structs.replace(ours, tolerations=()) == structs.replace(edited, tolerations=())
    # A toleration that the pod has may be there twice, with its default operator.
    first, second = ({(each.key, each.value, each.effect) for each in placed.tolerations} for placed in (ours, edited))
    assert first == second


def test_warnings_know_pools() -> None:
    plain, pools = ladder(GPU, MIG, name="a"), cards(name="b")
    assert [problem.code.value for problem in analyse([plain, pools])] == ["unreachable-rung"]
    assert [*analyse([pools, ladder(GPU, MIG, name="c")])] == []
    assert [*analyse([cards(on("H100", "nvidia.com/mig-3g.40gb"), on("A30", "nvidia.com/mig-2g.12gb"))])] == []
    assert [problem.message for problem in analyse_on([pools], A100)] == [
        f"no node offers {GPU}@H100, since none has card=h100: each request for it must move"
    ]


def warnings_on(*nodes: Node, rule: FallbackLadder) -> list[str]:
    return [problem.message for problem in analyse_on([rule], cluster(*nodes))]


def test_a_label_that_no_node_has_is_named_with_the_nearest_one() -> None:
    rungs = [
        rung(GPU, name="typo", pool=((CARD, "a10"), (SPOT, None))),
        rung(GPU, name="key", pool=((CARD, "h100"), ("spott", "true"))),
        rung(GPU, name="null", pool=((CARD, "h100"), (SPOT, None))),
    ]
    nodes = (
        node("a", {GPU: 8}, labels={CARD: "a100", SPOT: "true"}),
        node("h", {MIG: 8}, labels={CARD: "h100", SPOT: "true"}),
    )
    assert [message.partition(":")[0] for message in warnings_on(*nodes, rule=ladder(*rungs))] == [
        f"no node offers {GPU}@typo, since none has card=a10 (did you mean 'card=a100'?)",
        f"no node offers {GPU}@key, since none has spott=true (did you mean 'spot=true'?)",
        f"no node offers {GPU}@null, since none is in its pool card=h100,!spot",
    ]
    (message,) = warnings_on(*nodes, rule=ladder(on("A100"), on("H100")))
    assert message == f"no node offers {GPU}@H100: nothing moves to this rung"


@pytest.mark.parametrize(
    ("toleration", "text"),
    [
        (DEDICATED, ""),
        (Toleration(key="", operator="Exists", value="", effect=""), ""),
        (Toleration(key="dedicated", operator="", value="a10", effect="NoSchedule"), "dedicated=a10:NoSchedule"),
        (Toleration(key="dedicated", operator="Exists", value="", effect="NoExecute"), "dedicated:NoExecute op=Exists"),
    ],
)
def test_a_toleration_of_no_taint_of_the_pool_is_reported(toleration: Toleration, text: str) -> None:
    place = rung_place(tolerations=(toleration,))
    rule = cards(on("H100"), on("A100", place=place, origin={"place": on("A100").location}))
    tainted = pool_node("a100", taints=(Taint(key="dedicated", value="a100", effect="NoSchedule"),))
    messages = [f"no node of the pool A100 has a taint that this tolerates: {text}"] if text else []
    reported = warnings_on(pool_node("h100"), tainted, rule=rule)
    assert [message for message in reported if "this tolerates" in message] == messages
    # Without nodes nothing is known of their taints.
    assert len(warnings_on(pool_node("h100"), rule=rule)) == 1


def test_a_taint_of_all_nodes_of_a_pool_needs_a_toleration() -> None:
    def tainted(name: str, *taints: Taint) -> Node:
        return node(name, {GPU: 8}, labels={CARD: "a100"}, taints=(*taints, Taint(key=GPU, effect="NoSchedule")))

    own = Taint(key="dedicated", value="a100", effect="NoSchedule")
    cordon = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
    leaving = Taint(key="karpenter.sh/disrupted", effect="NoSchedule")
    soft = Taint(key="slow", effect="PreferNoSchedule")
    plain, rule, others = pool_node("h100"), cards(), (cordon, leaving, soft)
    (message,) = warnings_on(plain, tainted("a", own, *others), tainted("b", own, *others), rule=rule)
    assert message == (
        "each node of the pool A100 has a taint that 'place' does not tolerate: dedicated=a100:NoSchedule"
    )
    assert warnings_on(plain, tainted("a", own), tainted("b"), rule=rule) == []
    place = rung_place(tolerations=(DEDICATED,))
    assert warnings_on(plain, tainted("a", own), rule=cards(on("H100"), on("A100", place=place))) == []
    # Nothing moves to the first rung.
    assert warnings_on(plain, tainted("a", own), rule=cards(on("A100"), on("H100"))) == []


def test_an_autoscaled_pool_needs_a_declared_node_if_free_devices_count() -> None:
    rule = cards(offered=Offered.AVAILABLE)
    created = node("h", {GPU: 8}, labels={CARD: "h100", "karpenter.sh/nodepool": "gpu"})
    declared = node("h-new", {GPU: 8}, labels={CARD: "h100"}, scalable=True)
    (message,) = warnings_on(created, pool_node("a100"), rule=rule)
    assert message.startswith("an autoscaler creates nodes of the pool H100, but only existing ones count")
    assert warnings_on(created, declared, pool_node("a100"), rule=rule) == []
    assert warnings_on(created, pool_node("a100"), rule=cards()) == []
