"""Behaviour of ladders that their model (tests/models) does not have: reasons, warnings, traces and rare inputs."""

from dataclasses import replace

import pytest

from rules_engine.cluster.nodes import NodeFilter, NodeRequirement, Offered, node_index_of
from rules_engine.model.kubernetes.cluster import Cluster, Freshness
from rules_engine.model.rules.decision import Action, Decision, ResourceDecision
from rules_engine.model.rules.rule import ConditionKind as Kind
from rules_engine.model.rules.rule import LabelRequirement, LabelSelector, Match, Mode
from rules_engine.rules.ladder.value import Counts, Direction, FallbackLadder, WhenExhausted
from tests.support.evaluation import (
    GPU,
    HCA,
    MIG1,
    MIG2,
    MIG3,
    annotations,
    asks,
    cluster,
    compiled,
    container,
    injection,
    ladder,
    mutated,
    node,
    pod,
    resources,
    rung,
)
from tests.support.webhooks import pod_defaults

FALLBACK, WEBHOOK = "gpurules.io/fallback", "gpu-webhook.k8s.io/fallback"
FULL = (MIG3, MIG2, MIG1, rung(GPU, assume=True))
WEIGHTED = (rung(MIG3, weight=3), rung(MIG2, weight=2), rung(MIG1, weight=1), rung(GPU, weight=7, assume=True))


def down(*rungs, **fields) -> FallbackLadder:  # type: ignore[no-untyped-def]
    return ladder(*(rungs or FULL), **fields)


def decided(decision: Decision, resource: str, step: int = 0) -> ResourceDecision:
    return next(item for item in decision.trace[step].resources if item.resource == resource)


def both(amounts: dict[str, str]) -> dict[str, dict[str, str]]:
    return {"limits": amounts, "requests": amounts}


class TestWhatItLooksAt:
    def test_no_ephemeral_containers(self) -> None:
        made = pod(container("main"), ephemeralContainers=[{"name": "debug", "resources": {"limits": {MIG2: "1"}}}])
        assert mutated(made, down()).patch == ()

    @pytest.mark.parametrize("zero", ["0", "0m", "0Ki", None])
    def test_zero_is_no_request(self, zero: str | None) -> None:
        decision = mutated(asks({MIG2: zero}), down(when_exhausted=WhenExhausted.DENY))
        assert decision.patch == ()
        assert [step.reason for step in decision.trace] == ["no-request"]

    @pytest.mark.parametrize(
        "amounts",
        [
            {"limits": {MIG2: 2}, "requests": {MIG2: 1}},
            {"limits": {MIG2: 1}, "requests": {MIG2: 0}},
            {"limits": {MIG2: 1}, "requests": {MIG2: None}},
            {"limits": {MIG2: -1}},
            {"requests": {MIG2: "-1"}},
            {"limits": {MIG2: "1500m"}},
            {"limits": {MIG2: "1n"}},
        ],
    )
    def test_nothing_moves_if_the_request_is_malformed(self, amounts: dict[str, dict[str, str]]) -> None:
        odd = container("odd", limits=amounts.get("limits"), requests=amounts.get("requests"))
        made = pod(odd, container("main", {MIG3: 1}))
        decision = mutated(made, down(when_exhausted=WhenExhausted.DENY))
        assert decision.allowed
        assert decision.patch == ()
        assert [(step.action, step.reason) for step in decision.trace] == [(Action.KEEP, "malformed")]
        assert len(decision.warnings) == 1
        assert "odd" in decision.warnings[0]
        assert MIG2 in decision.warnings[0]

    def test_nothing_moves_onto_a_malformed_target_of_an_earlier_ladder(self) -> None:
        made = pod(container("odd", limits={GPU: 2}, requests={GPU: 1}), container("main", {MIG3: 1}))
        decision = mutated(made, down(MIG2, GPU, name="a"), down(MIG3, GPU, name="b"))
        assert decision.patch == ()
        assert [step.reason for step in decision.trace] == ["malformed", "malformed"]

    def test_a_ladder_with_nothing_to_decide_repeats_no_warning(self) -> None:
        made = pod(container("odd", limits={GPU: 2}, requests={GPU: 1}))
        decision = mutated(made, down(MIG2, GPU, name="a"), down(MIG3, GPU, name="b"))
        assert [step.reason for step in decision.trace] == ["malformed", "already-decided"]
        assert len(decision.warnings) == 1

    @pytest.mark.parametrize(
        ("requested", "canonical"),
        [("2k", "2k"), ("2000", "2k"), ("1000m", "1"), ("1e0", "1"), ("1E3", "1k"), ("2048", "2048"), ("1Ki", "1024")],
    )
    def test_whole_numbers_in_every_notation_and_written_values_canonical(self, requested: str, canonical: str) -> None:
        decision = mutated(asks({MIG2: requested}), down())
        assert resources(decision) == both({GPU: canonical})

    def test_counts_of_any_size(self) -> None:
        decision = mutated(asks({MIG2: "1e50", GPU: "1"}), down())
        assert resources(decision) == both({GPU: "1" + "0" * 49 + "1"})


class TestTheWholePod:
    def test_containers_of_one_name_are_distinguished(self) -> None:
        decision = mutated(pod(container("twin", {MIG2: 1}), container("twin", {MIG2: 2})), down())
        result: dict = decision.result  # type: ignore[type-arg, assignment]
        assert [c["resources"]["limits"] for c in result["spec"]["containers"]] == [{GPU: "1"}, {GPU: "2"}]


class TestOffered:
    def test_a_target_must_be_on_one_node_with_the_target_of_an_earlier_ladder(self) -> None:
        made = pod(container("a", {MIG3: 1}), container("b", {MIG1: 1}))
        rules = (down(MIG1, name="a"), down(MIG3, MIG2, MIG1, GPU, name="b"))
        decision = mutated(made, *rules, on=cluster({MIG2: 1}, {MIG1: 1, GPU: 1}))
        assert decided(decision, MIG3, step=1).to == GPU

    def test_a_request_of_zero_needs_no_offer(self) -> None:
        assert mutated(asks({MIG2: 1}), down(), on=cluster({}, {MIG2: 1}, {})).patch == ()

    def test_cpu_and_memory_are_ignored(self) -> None:
        made = asks({MIG2: 1, "cpu": 64, "memory": "1Ti"})
        assert mutated(made, down(), on=cluster({MIG2: 1, "cpu": 1})).patch == ()


class TestOtherResources:
    """One node must offer the pod's other extended resources, too."""

    def test_a_pod_moves_to_the_rung_whose_nodes_have_them(self) -> None:
        on = cluster({MIG3: 7}, {MIG1: 7}, {GPU: 8, HCA: 4})
        decision = mutated(asks({MIG3: 1, HCA: 2}), down(MIG3, MIG1, GPU), on=on)
        assert resources(decision)["limits"] == {GPU: "1", HCA: "2"}
        assert [(each.resource, each.reason) for each in decided(decision, MIG3).attempts] == [
            (MIG3, "requested, but no node offers 1 together with 2 of rdma/hca"),
            (MIG1, "no node offers 1 of nvidia.com/mig-1g.10gb together with 2 of rdma/hca"),
            (GPU, "offered"),
        ]

    def test_a_pod_is_not_moved_to_nodes_without_them(self) -> None:
        for on in (cluster({GPU: 8}), cluster({GPU: 8}, {HCA: 4}), cluster({GPU: 8, HCA: 1})):
            decision = mutated(asks({MIG3: 1, HCA: 2}), down(MIG3, GPU), on=on)
            assert decided(decision, MIG3).reason == "exhausted"
            denied = mutated(asks({MIG3: 1, HCA: 2}), down(MIG3, GPU, when_exhausted=WhenExhausted.DENY), on=on)
            assert not denied.allowed
        assert mutated(asks({MIG3: 1, HCA: 1}), down(MIG3, GPU), on=cluster({GPU: 8, HCA: 1})).patch

    def test_a_rung_without_nodes_has_no_other_reason(self) -> None:
        decision = mutated(asks({MIG3: 1, HCA: 2}), down(MIG3, GPU), on=cluster({HCA: 2}))
        assert [each.reason for each in decided(decision, MIG3).attempts] == [
            "requested, but no node offers 1",
            "no node offers 1 of nvidia.com/gpu",
        ]

    def test_several_that_only_different_nodes_have(self) -> None:
        made = asks({MIG3: 1, HCA: 1, "a.b/c": 1})
        decision = mutated(made, down(MIG3, GPU), on=cluster({GPU: 1, HCA: 1}, {GPU: 1, "a.b/c": 1}))
        assert decided(decision, MIG3).attempts[-1].reason == (
            "no node offers 1 of nvidia.com/gpu together with the pod's other resources"
        )

    def test_sidecars_init_containers_and_overhead_count(self) -> None:
        init = [container("s", {HCA: 1}, sidecar=True), container("i", {HCA: 3})]
        made = pod(container("c", {MIG3: 1, HCA: 2}), init=init, overhead={HCA: 1})
        assert mutated(made, down(MIG3, GPU), on=cluster({GPU: 8, HCA: 4})).patch == ()
        assert mutated(made, down(MIG3, GPU), on=cluster({GPU: 8, HCA: 5})).patch

    def test_free_devices_count_where_the_ladder_counts_free_ones(self) -> None:
        used = cluster(node("a", {GPU: 8, HCA: 2}, {HCA: 1}))
        for offered in Offered:
            decision = mutated(asks({MIG3: 1, HCA: 2}), down(MIG3, GPU, offered=offered), on=used)
            assert bool(decision.patch) == (offered is Offered.ALLOCATABLE)

    def test_other_resources_do_not(self) -> None:
        made = asks({MIG3: 1, "cpu": 1, "memory": "1Gi", "hugepages-2Mi": "2Mi", HCA: 0})
        assert mutated(made, down(MIG3, GPU), on=cluster({GPU: 8})).patch

    def test_the_assumed_rung_needs_none(self) -> None:
        assert mutated(asks({MIG3: 1, HCA: 1}), down(), on=cluster({GPU: 8})).patch

    def test_what_later_rules_may_change_does_not_count(self) -> None:
        made, on = asks({MIG3: 1, HCA: 1}), cluster({GPU: 8})
        for rule in (ladder(HCA, "rdma/roce", name="b"), injection({HCA: 2}, gpu_type=None)):
            assert resources(mutated(made, down(MIG3, GPU, name="a"), rule, on=on))["limits"][GPU] == "1"
            for other in (replace(rule, match=Match(namespaces=("x",))), replace(rule, mode=Mode.AUDIT)):
                assert not mutated(made, down(MIG3, GPU, name="a"), other, on=on).patch

    def test_what_an_earlier_ladder_found_offered_counts(self) -> None:
        later = ladder(HCA, "rdma/roce", name="b")
        on = cluster({MIG3: 1, "rdma/roce": 1}, {HCA: 1})
        decision = mutated(asks({MIG3: 1, HCA: 1}), down(MIG3, GPU, name="a"), later, on=on)
        assert resources(decision)["limits"] == {MIG3: "1", "rdma/roce": "1"}
        assert mutated(decision.result, down(MIG3, GPU, name="a"), later, on=on).patch == ()
        # Nothing offers the first request: the second one is decided as if it were alone.
        kept = mutated(asks({MIG2: 1, HCA: 1}), down(MIG2, name="a"), later, on=on)
        assert [step.reason for step in kept.trace] == ["exhausted", "offered"]

    def test_their_number_is_bounded(self) -> None:
        rule, on = down(MIG3, MIG2, MIG1, GPU), cluster(*({GPU: count} for count in range(1, 200)))
        few = {f"a.b/r{number}": 1 for number in range(20)}
        assert mutated(asks({MIG3: 1, **few}), rule, on=on).trace[0].reason == "exhausted"
        many = {f"a.b/r{number}": 1 for number in range(20_000)}
        assert mutated(asks({MIG3: 1, **many}), rule, on=on).trace[0].reason == "evaluation-error"
        capacities = node_index_of(on).capacities
        assert len(capacities) == 1, "pods must not choose which capacities are cached"


class TestRequestsOfOneLadder:
    """Requests that stay must be offered together."""

    def test_by_one_node(self) -> None:
        on = cluster({MIG3: 1}, {MIG1: 7})
        decision = mutated(asks({MIG3: 1, MIG1: 1}), down(MIG3, MIG1), on=on)
        assert resources(decision)["limits"] == {MIG1: "2"}
        assert decided(decision, MIG3).attempts[0].reason == (
            "requested, but no node offers 1 together with the requests that stay"
        )
        assert mutated(asks({MIG3: 1, MIG1: 1}), down(MIG3, MIG1), on=cluster({MIG3: 1, MIG1: 1})).patch == ()

    def test_in_the_order_of_the_direction(self) -> None:
        on = cluster({MIG3: 2}, {MIG1: 7})
        decision = mutated(asks({MIG3: 1, MIG1: 1}), down(MIG3, MIG1, direction=Direction.UP), on=on)
        assert resources(decision)["limits"] == {MIG3: "2"}

    def test_a_resource_that_an_earlier_ladder_gave_is_one_of_them(self) -> None:
        rules = down(MIG3, GPU, name="a"), down(GPU, MIG1, MIG2, name="b")
        decision = mutated(asks({MIG3: 1, MIG1: 1}), *rules, on=cluster({GPU: 1, MIG2: 1}, {MIG1: 1}))
        assert resources(decision)["limits"] == {GPU: "1", MIG2: "1"}


class TestWhichNodesCount:
    def filtered(self, *require: NodeRequirement, **labels: str) -> FallbackLadder:
        wanted = tuple(LabelRequirement(key, Kind.IN, (value,)) for key, value in labels.items())
        return down(nodes=NodeFilter(LabelSelector(wanted), frozenset(require)))

    def stays(self, rule: FallbackLadder, on: Cluster, made=None) -> bool:  # type: ignore[no-untyped-def]
        return mutated(made or asks({MIG2: 1}), rule, on=on).patch == ()

    def test_matches_pod_not_by_preferred_affinity(self) -> None:
        rule = self.filtered(NodeRequirement.MATCHES_POD)
        term = {"weight": 1, "preference": {"matchExpressions": [{"key": "pool", "operator": "Exists"}]}}
        preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [term]}
        made = asks({MIG2: 1}, affinity={"nodeAffinity": preferred})
        assert self.stays(rule, cluster({MIG2: 1}), made)


class TestOrderAndDirection:
    @pytest.mark.parametrize("direction", Direction)
    def test_requests_that_stay_are_decided_first(self, direction: Direction) -> None:
        # No node has 3g beside 1g, and none has 2g.
        rungs = (GPU, MIG1, MIG2, MIG3) if direction is Direction.UP else (MIG3, MIG2, MIG1, GPU)
        made = pod(container("a", {MIG3: 1}), container("b", {MIG2: 1}))
        decision = mutated(made, down(*rungs, direction=direction), on=cluster({MIG3: 1, GPU: 4}, {MIG1: 7}))
        assert [item.resource for item in decision.trace[0].resources] == [MIG3, MIG2]
        assert (resources(decision, "a"), resources(decision, "b")) == (both({MIG3: "1"}), both({GPU: "1"}))

    def test_down_decides_from_the_last_rung_to_the_first(self) -> None:
        # From the first to the last, 3g would fall onto 2g (2 on one node), which could then not hold all three.
        made = pod(container("a", {MIG3: 1}), container("b", {MIG2: 3}))
        decision = mutated(made, down(), on=cluster({MIG2: 2, MIG1: 7}))
        assert [item.resource for item in decision.trace[0].resources] == [MIG2, MIG3]
        assert resources(decision, "b") == both({MIG1: "3"})
        assert resources(decision, "a") == both({MIG2: "1"})

    def test_up_decides_from_the_first_rung_to_the_last(self) -> None:
        made = pod(container("a", {MIG2: 3}), container("b", {MIG1: 1}))
        decision = mutated(made, down(MIG3, MIG2, MIG1, direction=Direction.UP), on=cluster({MIG3: 4, MIG2: 2}))
        assert [item.resource for item in decision.trace[0].resources] == [MIG2, MIG1]
        assert resources(decision, "a") == both({MIG3: "3"})
        assert resources(decision, "b") == both({MIG2: "1"})

    def test_down_then_up_tries_all_lower_rungs_then_all_higher_ones(self) -> None:
        rule = down(MIG3, MIG2, MIG1, GPU, direction=Direction.DOWN_THEN_UP)
        assert decided(mutated(asks({MIG2: 1}), rule, on=cluster({MIG3: 1, GPU: 1})), MIG2).to == GPU
        assert decided(mutated(asks({MIG1: 1}), rule, on=cluster({MIG3: 1, MIG2: 1})), MIG1).to == MIG2
        attempts = decided(mutated(asks({MIG2: 1}), rule), MIG2).attempts
        assert [attempt.resource for attempt in attempts] == [MIG2, MIG1, GPU, MIG3]

    def test_the_trace_has_the_reason_for_each_rung(self) -> None:
        attempts = decided(mutated(asks({MIG3: 2}), down(), on=cluster({MIG2: 1, MIG1: 2})), MIG3).attempts
        assert [(attempt.resource, attempt.taken) for attempt in attempts] == [
            (MIG3, False),
            (MIG2, False),
            (MIG1, True),
        ]
        assert attempts[1].reason == f"no node offers 2 of {MIG2}"
        assert attempts[2].reason == "offered"


class TestWhen:
    def test_a_target_whose_condition_is_false_is_rejected(self) -> None:
        rule = down(MIG3, rung(MIG2, when="object.metadata.name != 'job'"), MIG1)
        decision = mutated(asks({MIG3: 1}), rule, on=cluster({MIG2: 1, MIG1: 1}))
        assert resources(decision) == both({MIG1: "1"})
        assert decided(decision, MIG3).attempts[1].reason == "its condition is false"

    def test_it_is_never_evaluated_for_the_requested_rung(self) -> None:
        rule = down(rung(MIG3, when="1 / 0 == 1"), rung(MIG2, when="false"), MIG1)
        assert mutated(asks({MIG3: 1, MIG2: 1}), rule, on=cluster({MIG3: 1, MIG2: 1})).patch == ()

    def test_an_error_in_it_does_not_depend_on_what_the_cluster_offers(self) -> None:
        rule = down(MIG3, rung(MIG2, when="1 / 0 == 1"), MIG1)
        for on in (cluster(), cluster({MIG2: 1})):
            decision = mutated(asks({MIG3: 1}), rule, on=on)
            assert (decision.allowed, decision.trace[0].code) == (False, 500)

    def test_it_sees_variables_and_params(self) -> None:
        rule = down(
            MIG3,
            rung(MIG2, when="variables.team != params.team"),
            MIG1,
            params={"team": "batch"},
            variables={"team": "object.metadata.?labels.team.orValue('')"},
        )
        on = cluster({MIG2: 1, MIG1: 1})
        assert resources(mutated(asks({MIG3: 1}), rule, on=on)) == both({MIG2: "1"})
        assert resources(mutated(asks({MIG3: 1}, labels={"team": "batch"}), rule, on=on)) == both({MIG1: "1"})


class TestAssume:
    def test_it_is_taken_if_no_other_rung_in_the_direction_is_offered(self) -> None:
        decision = mutated(asks({MIG2: 1}), down(), on=cluster({MIG3: 1}))
        assert resources(decision) == both({GPU: "1"})
        assert "assumed" in decided(decision, MIG2).attempts[-1].reason

    def test_other_rungs_come_first_wherever_the_assumed_one_stands(self) -> None:
        rule = down(MIG3, rung(MIG2, assume=True), MIG1)
        assert resources(mutated(asks({MIG3: 1}), rule, on=cluster({MIG2: 1, MIG1: 1}))) == both({MIG1: "1"})
        rule = down(rung(GPU, assume=True), MIG3, MIG2, direction=Direction.DOWN_THEN_UP)
        assert resources(mutated(asks({MIG2: 1}), rule, on=cluster({MIG3: 1}))) == both({MIG3: "1"})
        assert resources(mutated(asks({MIG2: 1}), rule)) == both({GPU: "1"})

    def test_a_pod_that_requests_it_keeps_it(self) -> None:
        decision = mutated(asks({GPU: 8}), down(direction=Direction.DOWN_THEN_UP), on=cluster({MIG1: 8}))
        assert decision.patch == ()
        assert decided(decision, GPU).reason == "assumed"


class TestScale:
    @pytest.mark.parametrize(
        ("requested", "target", "given"),
        [(1, MIG2, "2"), (2, MIG2, "3"), (4, MIG2, "6"), (1, MIG1, "3"), (5, MIG1, "15")],
    )
    def test_per_container_the_count_by_the_weights_rounded_up(self, requested: int, target: str, given: str) -> None:
        decision = mutated(asks({MIG3: requested}), down(*WEIGHTED, counts=Counts.SCALE), on=cluster({target: 99}))
        assert resources(decision) == both({target: given})

    def test_weights_are_1_unless_they_are_given(self) -> None:
        rule = down(rung(MIG3, weight=3), rung(MIG1), counts=Counts.SCALE)
        assert resources(mutated(asks({MIG3: 2}), rule, on=cluster({MIG1: 6}))) == both({MIG1: "6"})
        rule = down(MIG3, rung(MIG2, weight=2), counts=Counts.SCALE)
        assert resources(mutated(asks({MIG3: 3}), rule, on=cluster({MIG2: 2}))) == both({MIG2: "2"})


class TestWhatIsWritten:
    def test_only_limits_are_written_if_the_container_has_only_limits(self) -> None:
        made = pod(container(limits={MIG2: 1}, requests={"cpu": 1}))
        assert resources(mutated(made, down())) == {"limits": {GPU: "1"}, "requests": {"cpu": "1"}}

    @pytest.mark.parametrize("source", ["limits", "requests", "both"])
    @pytest.mark.parametrize("target", ["limits", "requests", "both"])
    def test_limits_and_requests_of_the_target_never_differ(self, source: str, target: str) -> None:
        sections: dict[str, dict[str, int]] = {"limits": {}, "requests": {}}
        for where, name, count in ((source, MIG2, 1), (target, GPU, 2)):
            for section in ("limits", "requests") if where == "both" else (where,):
                sections[section][name] = count
        made = pod(container(limits=sections["limits"], requests=sections["requests"]))
        expected = {"limits": {GPU: "3"}, **({"requests": {GPU: "3"}} if sections["requests"] else {})}
        assert resources(mutated(made, down())) == expected

    def test_missing_parents_are_created_and_null_ones_too(self) -> None:
        made = asks({MIG2: 1})
        made["metadata"] = {"name": "x", "annotations": None}
        assert annotations(mutated(made, down())) == {FALLBACK: "2g.20gb->gpu"}
        made["metadata"] = None
        assert annotations(mutated(made, down())) == {FALLBACK: "2g.20gb->gpu"}
        made["spec"] = {"containers": [{"name": "a", "resources": {"requests": {MIG2: "1"}, "limits": None}}]}
        assert resources(mutated(made, down()), "a") == both({GPU: "1"})

    def test_names_with_tilde_and_slash_are_escaped(self) -> None:
        decision = mutated(asks({"a/b~1": 1}), down("a/b~1", rung("c~/d~0/e", assume=True)))
        assert resources(decision) == both({"c~/d~0/e": "1"})


class TestAnnotation:
    def test_mig_is_only_taken_off_as_a_prefix(self) -> None:
        decision = mutated(asks({"nvidia.com/a-mig-b": 1}), down("nvidia.com/a-mig-b", rung(GPU, assume=True)))
        assert annotations(decision) == {FALLBACK: "a-mig-b->gpu"}

    def test_a_fall_in_an_existing_value_is_not_repeated(self) -> None:
        made = asks({MIG2: 1}, annotations={FALLBACK: "2g.20gb->gpu"})
        assert annotations(mutated(made, down())) == {FALLBACK: "2g.20gb->gpu"}
        made = asks({MIG2: 1}, annotations={FALLBACK: "2g.20gb->gpu.shared"})
        assert annotations(mutated(made, down())) == {FALLBACK: "2g.20gb->gpu.shared,2g.20gb->gpu"}

    @pytest.mark.parametrize("empty", ["", None])
    def test_an_empty_value_is_no_value(self, empty: str | None) -> None:
        made = asks({MIG2: 1}, annotations={FALLBACK: empty})
        assert annotations(mutated(made, down())) == {FALLBACK: "2g.20gb->gpu"}

    @pytest.mark.parametrize("own", [FALLBACK, WEBHOOK])
    def test_the_history_continues_under_the_name_that_the_pod_has(self, own: str) -> None:
        for name in (FALLBACK, WEBHOOK):
            made = asks({MIG2: 1}, annotations={name: "4g.40gb->2g.20gb"})
            decision = mutated(made, down(annotation=own))
            assert annotations(decision) == {name: "4g.40gb->2g.20gb,2g.20gb->gpu"}
            assert mutated(decision.result, down(annotation=own)).patch == ()

    def test_an_empty_key_writes_none(self) -> None:
        decision = mutated(asks({MIG2: 1}), down(annotation=""))
        assert resources(decision) == both({GPU: "1"})
        assert annotations(decision) == {}


class TestSeveralLadders:
    def test_a_ladder_decides_a_resource_even_if_it_keeps_it(self) -> None:
        decision = mutated(asks({MIG2: 1}), down(MIG2, MIG1, name="a"), down(MIG2, GPU, name="b"), on=cluster({GPU: 1}))
        assert decision.patch == ()
        assert [(step.action, step.reason) for step in decision.trace] == [
            (Action.KEEP, "exhausted"),
            (Action.SKIP, "already-decided"),
        ]

    def test_its_target_stays_even_if_the_later_ladder_would_move_it(self) -> None:
        pool = NodeFilter(LabelSelector((LabelRequirement("pool", Kind.IN, ("a",)),)))
        decision = mutated(
            asks({MIG2: 1}), down(MIG2, MIG1, name="a"), down(MIG1, GPU, name="b", nodes=pool), on=cluster({MIG1: 1})
        )
        assert resources(decision) == both({MIG1: "1"})
        assert decision.trace[1].reason == "already-decided"

    def test_the_trace_names_the_ladder_that_decided(self) -> None:
        decision = mutated(asks({MIG2: 1}), down(name="a"), down(name="b"))
        assert decision.trace[1].message == f"{GPU} was decided by FallbackLadder/a"
        both_asked = mutated(asks({MIG2: 1, "amd.com/x": 1}), down(name="a"), down("amd.com/x", MIG2, GPU, name="b"))
        assert both_asked.trace[1].notes == (f"{GPU} was decided by FallbackLadder/a",)

    def test_a_ladder_that_does_not_match_does_not_decide(self) -> None:
        decision = mutated(asks({MIG2: 1}), down(MIG2, name="a", match_conditions={"no": "false"}), down(name="b"))
        assert resources(decision) == both({GPU: "1"})

    def test_a_ladder_in_audit_mode_does_not_decide(self) -> None:
        decision = mutated(asks({MIG2: 1}), down(MIG2, MIG1, name="a", mode=Mode.AUDIT), down(name="b"))
        assert resources(decision) == both({GPU: "1"})

    def test_a_later_ladder_takes_no_rung_that_an_earlier_one_would_move(self) -> None:
        # Once it comes back (reinvocation), the first ladder is evaluated for 1g, which no node of its pool has.
        pool = NodeFilter(LabelSelector((LabelRequirement("pool", Kind.IN, ("a",)),)))
        rules = (down(MIG1, rung(GPU, assume=True), name="a", nodes=pool), down(MIG2, MIG1, name="b"))
        decision = mutated(asks({MIG2: 1}), *rules, on=cluster({MIG1: 1}))
        assert decision.patch == ()
        assert "FallbackLadder/a would move it on" in decided(decision, MIG2, step=1).attempts[1].reason
        on = cluster(node("n", {MIG1: 1}, labels={"pool": "a"}))
        assert resources(mutated(asks({MIG2: 1}), *rules, on=on)) == both({MIG1: "1"})


class TestExhausted:
    def test_keep_leaves_the_request_as_it_is(self) -> None:
        decision = mutated(asks({MIG2: 1}), down(MIG2, MIG1))
        assert (decision.allowed, decision.patch) == (True, ())
        assert decision.trace[0].reason == "exhausted"

    def test_deny_denies_and_names_pod_and_resource(self) -> None:
        decision = mutated(asks({MIG2: 1}), down(MIG2, MIG1, when_exhausted=WhenExhausted.DENY))
        assert not decision.allowed
        assert decision.status is not None
        assert (decision.status.code, decision.status.reason) == (403, "Forbidden")
        assert decision.status.message == f"FallbackLadder/ladder: no rung can serve {MIG2} for pod ml/job"

    def test_deny_moves_nothing_else_either(self) -> None:
        rule = down("amd.com/x", MIG2, MIG1, when_exhausted=WhenExhausted.DENY)
        made = pod(container("a", {"amd.com/x": 1}), container("b", {MIG1: 9}))
        decision = mutated(made, rule, on=cluster({MIG2: 1}))
        assert (decision.allowed, decision.patch, decision.result) == (False, (), made)

    def test_a_pod_without_a_name_yet_is_named_by_its_generate_name(self) -> None:
        made = asks({MIG2: 1})
        made["metadata"] = {"generateName": "job-"}
        decision = mutated(made, down(MIG2, when_exhausted=WhenExhausted.DENY))
        assert decision.status is not None
        assert decision.status.message.endswith("for pod ml/job-")


class TestWithoutClusterKnowledge:
    @pytest.mark.parametrize("freshness", [Freshness.NEVER, Freshness.STALE])
    def test_the_pod_is_unchanged_with_a_warning_and_counted(self, freshness: Freshness) -> None:
        for exhausted in WhenExhausted:
            on = cluster({MIG1: 1}, freshness=freshness)
            decision = mutated(asks({MIG2: 1}), down(when_exhausted=exhausted), on=on)
            assert (decision.allowed, decision.patch) == (True, ())
            assert len(decision.warnings) == 1
            assert "the cluster is not known: " in decision.warnings[0]
            assert [step.cluster_unknown for step in decision.trace] == [True]
            assert [step.reason for step in decision.trace] == ["cluster-unknown"]

    def test_a_pod_without_its_resources_gets_no_warning(self) -> None:
        decision = mutated(asks({"cpu": 1}), down(), on=cluster(freshness=Freshness.NEVER))
        assert decision.warnings == ()
        assert not decision.trace[0].cluster_unknown

    def test_an_assumed_rung_needs_no_cluster(self) -> None:
        decision = mutated(asks({GPU: 1}), down(), on=cluster(freshness=Freshness.NEVER))
        assert decision.warnings == ()
        assert decided(decision, GPU).reason == "assumed"

    @pytest.mark.parametrize("unread", [{""}, {MIG2}])
    def test_a_request_that_drivers_may_serve_stays_if_their_devices_are_not_read(self, unread: set[str]) -> None:
        on = cluster({MIG1: 1}, unread=frozenset(unread))
        for exhausted in WhenExhausted:
            decision = mutated(asks({MIG2: 1}), down(when_exhausted=exhausted), on=on)
            assert (decision.allowed, decision.patch) == (True, ())
            assert [step.cluster_unknown for step in decision.trace] == [True]
            (warning,) = decision.warnings
            assert warning.endswith(f"it is not known what drivers offer of {MIG2}")

    def test_devices_that_are_not_read_concern_only_their_resources(self) -> None:
        on = cluster({MIG1: 1}, unread=frozenset([MIG2]))
        assert mutated(asks({MIG1: 1}), down(), on=on).warnings == ()
        assert resources(mutated(asks({MIG3: 1}), ladder(MIG3, MIG1), on=on))["limits"] == {MIG1: "1"}
        assert mutated(asks({MIG3: 1}), ladder(MIG3, MIG2), on=on).patch == ()
        # A device plugin offers it, whatever drivers do.
        offered = mutated(asks({MIG1: 1}), down(), on=cluster({MIG1: 1}, unread=frozenset([""])))
        assert (offered.patch, offered.warnings) == ((), ())

    def test_a_later_ladder_does_not_move_it_either(self) -> None:
        on = cluster({MIG1: 1}, freshness=Freshness.STALE)
        decision = mutated(asks({MIG2: 1}), down(name="a"), down(name="b"), on=on)
        assert decision.patch == ()
        assert [step.reason for step in decision.trace] == ["cluster-unknown", "already-decided"]


def test_a_ladder_without_annotation_reads_none() -> None:
    assert compiled(pod_defaults(), ladder(GPU, annotation="")).rules
