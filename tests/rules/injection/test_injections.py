"""Behaviour of injections that their model (tests/models) does not have: reasons, messages, traces and rare inputs."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from rules_engine.cluster.creation.limit_range import LIMIT_RANGER_ANNOTATION
from rules_engine.cluster.creation.plugins import ApiServer
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.cluster import Cluster, Freshness
from rules_engine.model.kubernetes.cluster_objects import ClusterObjects
from rules_engine.model.rules.decision import Action, Amount, Decision
from rules_engine.model.rules.rule import Match, Mode
from rules_engine.rules.injection.value import InitContainers, OnConflict, ResourceInjection
from tests.support.evaluation import (
    GPU,
    MIG2,
    Amounts,
    container,
    entry,
    injection,
    ladder,
    mutated,
    pod,
    resources,
    rung,
    validated,
)

TYPE = "task.bkbcs.tencent.com/gpu-type"
V100 = {TYPE: "V100"}


def typed(*containers: dict[str, Json], extra: Mapping[str, str] | None = None, **fields: Any) -> dict[str, Json]:
    """A pod annotated as V100."""
    return pod(*containers, annotations={**V100, **(extra or {})}, **fields)


def given(decision: Decision, name: str = "main") -> dict[str, str]:
    """Injected amounts of a container, equal in limits and requests."""
    sections = resources(decision, name)
    assert sections["limits"] == sections["requests"]
    return {key: value for key, value in sections["limits"].items() if key != GPU}


def message(decision: Decision) -> str:
    assert not decision.allowed
    assert decision.status is not None
    assert decision.status.code == 403
    return decision.status.message


class TestTrigger:
    @pytest.mark.parametrize("value", ["v100", "V100 ", " V100", "", "T4", None])
    def test_the_type_is_matched_exactly(self, value: str | None) -> None:
        made = typed(container("main", {GPU: 1}), extra={TYPE: value})  # type: ignore[dict-item]
        decision = mutated(made, injection({"cpu": 4}))
        assert decision.patch == ()
        assert [step.reason for step in decision.trace] == ["gpu-type"]

    def test_a_pod_without_gpus_is_allowed_unchanged(self) -> None:
        for amounts in ({}, {"cpu": 1}, {GPU: 0}):
            decision = mutated(typed(container("main", amounts)), injection({"cpu": 4}))
            assert (decision.allowed, decision.patch) == (True, ())
            assert decision.trace[0].reason == "no-request"

    def test_gpus_are_counted_after_the_ladders(self) -> None:
        rules = (ladder(MIG2, rung(GPU, assume=True)), injection({"cpu": 4}))
        assert given(mutated(typed(container("main", {MIG2: 2})), *rules)) == {"cpu": "8"}

    def test_the_cluster_need_not_be_known(self) -> None:
        on = Cluster(freshness=Freshness.NEVER)
        assert given(mutated(typed(container("main", {GPU: 1})), injection({"cpu": 4}), on=on)) == {"cpu": "4"}

    def test_an_excluded_namespace_is_skipped_before_anything_can_fail(self) -> None:
        rule = injection({"cpu": 1}, match=Match(exclude_namespaces=("ml",)), match_conditions={"bad": "1 / 0 == 1"})
        decision = mutated(typed(container("main", {GPU: 1}), container("big", {"cpu": 99})), rule)
        assert (decision.allowed, decision.patch) == (True, ())


class TestWhichEntry:
    def rule(self) -> ResourceInjection:
        namespaces = {"a": entry({"memory": "1Gi"}), "empty": entry(), "annotated": entry(annotations={"x/y": "z"})}
        return injection({"cpu": 4}, annotations={"d/e": "f"}, namespaces=namespaces)

    def decide(self, namespace: str) -> Decision:
        return mutated(typed(container("main", {GPU: 1})), self.rule(), namespace=namespace)

    def test_an_empty_entry_switches_injection_off(self) -> None:
        decision = self.decide("empty")
        assert (decision.allowed, decision.patch) == (True, ())
        assert (decision.trace[0].action, decision.trace[0].reason) == (Action.KEEP, "empty-entry")

    def test_names_are_exact(self) -> None:
        rule = injection({"cpu": 4}, namespaces={"a*": entry()})
        assert given(mutated(typed(container("main", {GPU: 1})), rule, namespace="ab")) == {"cpu": "4"}


class TestArithmetic:
    @pytest.mark.parametrize(
        ("coefficient", "gpus", "amount"),
        [
            ({"cpu": "4000m"}, 2, "8"),
            ({"memory": "8Gi"}, 2, "16Gi"),
            ({"cpu": "1500m"}, 3, "4500m"),
            ({"memory": "1024Mi"}, 1, "1Gi"),
            ({"nvidia.com/shm": "100"}, 10, "1k"),
            ({"cpu": "0.29"}, 100, "29"),
            ({"cpu": "0.5"}, 1, "500m"),
            ({"memory": "1Ei"}, 16, "16Ei"),
            ({"cpu": "0"}, 2, "0"),
        ],
    )
    def test_worked_examples_in_exact_decimals_of_any_size(self, coefficient: Amounts, gpus: int, amount: str) -> None:
        decision = mutated(typed(container("main", {GPU: gpus})), injection(coefficient))
        assert given(decision) == dict.fromkeys(coefficient, amount)

    def test_extended_resources_are_floored_after_multiplying(self) -> None:
        made = typed(container("a", {GPU: 1}), container("b", {GPU: 3}), container("plain", {"x.com/y": 5}))
        decision = mutated(made, injection({"x.com/y": "1.5"}))
        assert given(decision, "a") == {"x.com/y": "1"}
        assert given(decision, "b") == {"x.com/y": "4"}
        assert given(decision, "plain") == {"x.com/y": "5"}

    def test_a_shortfall_is_denied_and_one_message_names_all(self) -> None:
        made = typed(container("main", {GPU: 2}), container("plain", {"memory": "3Gi", "cpu": "9"}))
        decision = mutated(made, injection({"cpu": 4, "memory": "1Gi", "ephemeral-storage": 1}))
        assert decision.result == made
        assert message(decision) == (
            "ResourceInjection/injection: pod ml/job resource cpu, memory too large: "
            "other containers request 9 of 8 cpu for 2 GPUs; other containers request 3Gi of 2Gi memory for 2 GPUs"
        )

    @pytest.mark.parametrize("gpus", ["1500m", "-1"])
    def test_a_malformed_count_leaves_the_pod_unchanged_with_a_warning(self, gpus: str) -> None:
        decision = mutated(typed(container("main", {GPU: gpus})), injection({"cpu": 4}))
        assert (decision.allowed, decision.patch) == (True, ())
        assert "must be a whole number and not negative" in decision.warnings[0]


IGNORE, INJECT, DENY = InitContainers
SIDECAR = pytest.mark.parametrize("sidecar", [True, False], ids=["sidecar", "init"])


class TestInitContainersAndSidecars:
    @SIDECAR
    def test_one_that_requests_the_gpu_is_unchanged_with_a_warning(self, sidecar: bool) -> None:
        helper = container("helper", {GPU: 1, "nvidia.com/shm": 1}, sidecar=sidecar)
        decision = mutated(typed(container("main", {GPU: 1}), init=[helper]), injection({"cpu": 4}))
        assert given(decision, "helper") == {"nvidia.com/shm": "1"}
        assert given(decision) == {"cpu": "4"}
        role = "sidecar" if sidecar else "init container"
        where = f"the {role} helper, which requests {GPU}"
        assert decision.warnings == (
            f"ResourceInjection/injection injects nothing into {where} (initContainers: Ignore)",
        )

    @SIDECAR
    def test_they_alone_cause_a_warning_and_no_injection(self, sidecar: bool) -> None:
        made = typed(container("main"), init=[container("helper", {GPU: 1}, sidecar=sidecar)])
        decision = mutated(made, injection({"cpu": 4}, annotations={"a/b": "c"}))
        assert (decision.allowed, decision.patch) == (True, ())
        assert (decision.trace[0].action, decision.trace[0].reason) == (Action.KEEP, "init-containers")
        assert "helper" in decision.warnings[0]

    def test_alone_they_are_no_different_gpu_resource(self) -> None:
        rules = (injection({"cpu": 4}), injection({"cpu": 2}, name="mig", gpu_resource=MIG2))
        made = typed(container("main", {GPU: 1}), init=[container("helper", {MIG2: 1})])
        decision = mutated(made, *rules)
        assert given(decision) == {"cpu": "4"}
        assert [text.partition(" ")[0] for text in decision.warnings] == ["ResourceInjection/mig"]
        injecting = mutated(made, rules[0], replace(rules[1], init_containers=INJECT))
        assert "has different gpu resource" in message(injecting)

    @pytest.mark.parametrize("how", InitContainers)
    def test_an_empty_entry_neither_warns_nor_denies(self, how: InitContainers) -> None:
        made = typed(container("main", {GPU: 1}), init=[container("helper", {GPU: 1})])
        decision = mutated(made, injection({"cpu": 4}, namespaces={"ml": entry()}, init_containers=how))
        assert (decision.allowed, decision.patch, decision.warnings) == (True, (), ())

    @SIDECAR
    def test_deny_denies_the_pod_and_names_the_container(self, sidecar: bool) -> None:
        rule = injection({"cpu": 4}, init_containers=DENY)
        helper = container("helper", {GPU: 1}, sidecar=sidecar)
        role = "sidecar" if sidecar else "init container"
        for main in (container("main", {GPU: 1}), container("main")):
            assert message(mutated(typed(main, init=[helper]), rule)) == (
                f"ResourceInjection/injection: pod ml/job requests {GPU} in the {role} helper (initContainers: Deny)"
            )
        assert given(mutated(typed(container("main", {GPU: 1}), init=[container("i")]), rule)) == {"cpu": "4"}

    def test_inject_gives_an_init_container_amounts_for_its_own_gpus(self) -> None:
        init = [container("beside", {"cpu": 2}, sidecar=True), container("prepare", {GPU: 2, "cpu": 99})]
        made = typed(container("main", {GPU: 1}), init=init)
        decision = mutated(made, injection({"cpu": "4", "memory": "1.5"}, init_containers=INJECT))
        assert given(decision) == {"cpu": "2", "memory": "1"}
        assert given(decision, "prepare") == {"cpu": "8", "memory": "3"}
        assert decision.trace[0].message == f"1 × {GPU}, 2 in init containers"
        assert [amount.container for amount in decision.trace[0].amounts] == ["main", "prepare", "main", "prepare"]

    def test_inject_checks_the_count_of_a_sidecar_too(self) -> None:
        made = typed(container("main", {GPU: 1}), init=[container("helper", {GPU: "1500m"}, sidecar=True)])
        decision = mutated(made, injection({"cpu": 4}, init_containers=INJECT))
        assert (decision.allowed, decision.patch) == (True, ())
        assert "helper requests 1500m" in decision.warnings[0]
        assert given(mutated(made, injection({"cpu": 4}))) == {"cpu": "4"}

    def test_in_audit_mode_nobody_is_warned(self) -> None:
        made = typed(container("main", {GPU: 1}), init=[container("helper", {GPU: 1})])
        for how in InitContainers:
            decision = mutated(made, injection({"cpu": 4}, init_containers=how, mode=Mode.AUDIT))
            assert (decision.allowed, decision.patch, decision.warnings) == (True, (), ())


def levelled(limits: Amounts | None = None, requests: Amounts | None = None) -> dict[str, Json]:
    """The pod's own level."""
    made = container(limits=limits, requests=requests)["resources"]
    assert isinstance(made, dict)
    return made


class TestPodLevel:
    MAIN = container("main", {GPU: 2, "cpu": 1})
    PLAIN = container("plain", requests={"cpu": 2}, limits={"cpu": 50})

    def lifted(self, decision: Decision) -> Any:
        result: Any = decision.result
        return result["spec"]["resources"]

    @pytest.mark.parametrize("how", [OnConflict.OVERWRITE, OnConflict.RAISE])
    def test_its_amounts_are_raised_to_the_sum_of_the_containers(self, how: OnConflict) -> None:
        level = levelled({"cpu": 3, "memory": "1Gi"}, {"cpu": "2500m"})
        decision = mutated(
            typed(self.MAIN, self.PLAIN, resources=level), injection({"cpu": 8, "memory": "4Gi"}, on_conflict=how)
        )
        assert given(decision) == {"cpu": "14", "memory": "8Gi"}
        assert self.lifted(decision) == {"limits": {"cpu": "16", "memory": "8Gi"}, "requests": {"cpu": "16"}}
        assert decision.trace[0].amounts[-3:] == (
            Amount(container="spec.resources.requests", resource="cpu", before="2500m", after="16"),
            Amount(container="spec.resources.limits", resource="cpu", before="3", after="16"),
            Amount(container="spec.resources.limits", resource="memory", before="1Gi", after="8Gi"),
        )

    def test_an_init_container_that_needs_more_than_the_gpus_give_is_too_large(self) -> None:
        beside = [container("beside", {"cpu": 3}, sidecar=True), container("prepare", {"cpu": 6})]
        for level in ({"cpu": 4}, {"cpu": 9}):
            made = typed(self.MAIN, init=beside, resources=levelled(level, level))
            assert message(mutated(made, injection({"cpu": 4}))).endswith(
                "too large: containers that spec.resources must cover request 9 of 8 cpu for 2 GPUs"
            )
        assert mutated(typed(self.MAIN, init=beside), injection({"cpu": 4})).allowed

    def test_an_init_container_with_gpus_raises_it_to_what_it_is_given(self) -> None:
        beside = [container("beside", {"cpu": 3}, sidecar=True), container("prepare", {GPU: 3})]
        made = typed(self.MAIN, init=beside, resources=levelled({"cpu": 4}, {"cpu": 4}))
        rule = injection({"cpu": 4}, init_containers=INJECT)
        decision = mutated(made, rule)
        assert self.lifted(decision) == levelled({"cpu": 15}, {"cpu": 15})
        assert mutated(decision.result, rule).patch == ()
        made = typed(self.MAIN, init=beside, resources=levelled({"cpu": 16}, {"cpu": 16}))
        assert message(mutated(made, rule)).endswith("spec.resources requests 16 of 15 cpu for 2 GPUs")

    def test_it_is_never_lowered_and_overhead_is_no_part_of_it(self) -> None:
        level = levelled({"cpu": 16}, {"cpu": 16})
        decision = mutated(typed(self.MAIN, self.PLAIN, resources=level, overhead={"cpu": "1"}), injection({"cpu": 8}))
        assert self.lifted(decision) == level
        assert [amount.container for amount in decision.trace[0].amounts] == ["main"]

    @pytest.mark.parametrize("level", [levelled({"cpu": 17}), levelled({"cpu": 99}, {"cpu": 17})])
    def test_more_than_the_amount_of_the_gpus_is_too_large_if_it_is_overwritten(self, level: dict[str, Json]) -> None:
        made = typed(self.MAIN, resources=level)
        decision = mutated(made, injection({"cpu": 8}))
        assert message(decision).endswith(
            "pod ml/job resource cpu too large: spec.resources requests 17 of 16 cpu for 2 GPUs"
        )
        for how in (OnConflict.KEEP, OnConflict.RAISE):
            assert mutated(made, injection({"cpu": 8}, on_conflict=how)).allowed
        assert mutated(typed(self.MAIN, resources=levelled({"cpu": 99}, {"cpu": 16})), injection({"cpu": 8})).allowed

    def test_huge_pages_are_raised_equally_in_both(self) -> None:
        level = levelled({"hugepages-2Mi": "2Mi"}, {"hugepages-2Mi": "2Mi"})
        decision = mutated(typed(self.MAIN, resources=level), injection({"hugepages-2Mi": "4Mi"}))
        assert self.lifted(decision) == levelled({"hugepages-2Mi": "8Mi"}, {"hugepages-2Mi": "8Mi"})

    @pytest.mark.parametrize("level", [levelled({"cpu": 8}), levelled(requests={"cpu": 8})])
    def test_keep_injects_nothing_that_it_names(self, level: dict[str, Json]) -> None:
        made = typed(container("main", {GPU: 1}), container("big", {"cpu": 99}), resources=level)
        decision = mutated(made, injection({"cpu": 4, "memory": "1Gi"}, on_conflict=OnConflict.KEEP))
        assert given(decision) == {"memory": "1Gi"}
        assert self.lifted(decision) == level
        assert decision.trace[0].notes == ("the pod's own level (spec.resources) keeps its cpu: onConflict Keep",)

    def test_keep_gives_huge_pages_only_beside_cpu_or_memory(self) -> None:
        rule = injection({"hugepages-2Mi": "2Mi", "cpu": 4, "memory": "1Gi"}, on_conflict=OnConflict.KEEP)
        bare, own = container("bare", {GPU: 1}), container("own", {GPU: 1, "cpu": 1})
        decision = mutated(typed(bare, own, resources=levelled({"cpu": 8, "memory": "8Gi"})), rule)
        assert (given(decision, "bare"), given(decision, "own")) == ({}, {"cpu": "1", "hugepages-2Mi": "2Mi"})
        assert "the container bare gets no hugepages-2Mi: it has neither cpu nor memory" in decision.trace[0].notes
        decision = mutated(typed(bare, resources=levelled({"cpu": 8})), rule)
        assert given(decision, "bare") == {"hugepages-2Mi": "2Mi", "memory": "1Gi"}

    @pytest.mark.parametrize(
        ("level", "message_start"),
        [
            ({"requests": {"cpu": "-1"}}, "/spec/resources/requests/cpu: must not be negative: -1"),
            ({"limits": {"hugepages-2Mi": "-1m"}}, "/spec/resources/limits/hugepages-2Mi: must not be negative"),
            ({"limits": {"cpu": "four"}}, "/spec/resources/limits/cpu: 'four' is not a quantity"),
            ({"requests": {"a/b": []}}, "/spec/resources/requests/a~1b: a quantity must be a string or a number"),
            ({"requests": "all"}, "/spec/resources/requests: must be an object, not a string"),
            ([], "/spec/resources: must be an object, not a list"),
        ],
    )
    def test_a_malformed_amount_is_denied_with_its_path(self, level: Any, message_start: str) -> None:
        for decide in (mutated, validated):
            status = decide(typed(self.MAIN, resources=level)).status
            assert status is not None
            assert status.code == 422
            assert status.message.startswith(f"the pod is malformed: {message_start}")


class TestOnConflict:
    def test_overwrite_does_not_rewrite_the_same_value(self) -> None:
        made = typed(container("main", {GPU: 1, "cpu": "4000m"}))
        assert mutated(made, injection({"cpu": 4})).patch == ()

    def test_the_trace_notes_what_stays_and_why(self) -> None:
        main = container("main", {GPU: 1, "cpu": 9, "memory": "1Gi"})
        made = typed(main, extra={"a/b": "old", "same": "s"})
        entry_annotations = {"a/b": "new", "same": "s", "c": "d"}
        keep = injection({"cpu": 4, "memory": "8Gi"}, on_conflict=OnConflict.KEEP, annotations=entry_annotations)
        assert mutated(made, keep).trace[0].notes == (
            "the container main keeps its own cpu: onConflict Keep",
            "the container main keeps its own memory: onConflict Keep",
            "the annotation a/b stays: onConflict Keep",
        )
        larger = injection({"cpu": 4, "memory": "8Gi"}, on_conflict=OnConflict.RAISE, annotations=entry_annotations)
        assert mutated(made, larger).trace[0].notes == (
            "the container main names more cpu than the 4 injected",
            "the annotation a/b stays: onConflict Raise",
        )
        assert mutated(made, injection({"cpu": 4}, annotations=entry_annotations)).trace[0].notes == ()

    def test_the_trace_has_the_amounts_of_each_container(self) -> None:
        made = typed(container("main", {GPU: 2, "cpu": 1}))
        step = mutated(made, injection({"cpu": 4, "memory": "1Gi"}, annotations={"a": "b"})).trace[0]
        assert step.amounts == (
            Amount(container="main", resource="cpu", before="1", after="8"),
            Amount(container="main", resource="memory", before=None, after="2Gi"),
        )
        assert step.annotations == {"a": "b"}
        assert step.message == f"2 × {GPU}"


class TestSeveralInjections:
    def test_different_gpu_resources_deny_over_containers_and_within_one(self) -> None:
        rules = (injection({"cpu": 4}, name="a"), injection({"cpu": 2}, name="b", gpu_resource=MIG2))
        for made in (
            typed(container("main", {GPU: 1, MIG2: 1})),
            typed(container("main", {GPU: 1}), container("b", {MIG2: 1})),
        ):
            assert f"pod ml/job has different gpu resource {GPU}, {MIG2}" in message(mutated(made, *rules))

    def test_at_most_one_for_each_gpu_resource_by_priority_then_name(self) -> None:
        rules = [injection({"cpu": n}, name=name, priority=p) for n, name, p in ((1, "b", 0), (2, "a", 0), (3, "c", 1))]
        decision = mutated(typed(container("main", {GPU: 1})), *rules)
        assert given(decision) == {"cpu": "3"}
        assert [step.reason for step in decision.trace] == ["injected", "already-decided", "already-decided"]
        assert decision.trace[1].message == f"{GPU} was decided by ResourceInjection/c"
        assert given(mutated(typed(container("main", {GPU: 1})), *rules[:2])) == {"cpu": "2"}

    def test_one_in_audit_mode_records_its_decision_without_effect(self) -> None:
        rules = (injection({"cpu": 1}, name="a", mode=Mode.AUDIT), injection({"cpu": 2}, name="b"))
        decision = mutated(typed(container("main", {GPU: 1})), *rules)
        assert given(decision) == {"cpu": "2"}
        assert [(step.action, step.audit) for step in decision.trace] == [(Action.CHANGE, True), (Action.CHANGE, False)]
        assert decision.audit_annotations == {"resourceinjection.a": f"change: 1 × {GPU}"}

    def test_one_in_audit_mode_records_a_denial_and_denies_nothing(self) -> None:
        rule = injection({"cpu": 1}, mode=Mode.AUDIT)
        decision = mutated(typed(container("main", {GPU: 1}), container("big", {"cpu": 9})), rule)
        assert decision.allowed
        assert decision.trace[0].action is Action.DENY
        assert decision.audit_annotations["resourceinjection.injection"].startswith("deny: pod ml/job resource cpu")

    def test_one_in_audit_mode_records_a_conflict_of_its_own(self) -> None:
        rules = (injection({"cpu": 4}, name="a"), injection({}, name="b", gpu_resource=MIG2, mode=Mode.AUDIT))
        shadow = injection({"cpu": 2}, name="c", gpu_resource="amd.com/gpu", mode=Mode.AUDIT)
        decision = mutated(typed(container("main", {GPU: 1, MIG2: 1, "amd.com/gpu": 1})), *rules, shadow)
        assert decision.allowed
        assert [step.reason for step in decision.trace] == ["injected", "empty-entry", "conflict"]

    def test_one_that_does_not_match_leaves_the_resource_to_the_next(self) -> None:
        rules = (injection({"cpu": 1}, name="a", match_conditions={"no": "false"}), injection({"cpu": 2}, name="b"))
        assert given(mutated(typed(container("main", {GPU: 1})), *rules)) == {"cpu": "2"}


LIMIT_RANGE: dict[str, Json] = {
    "kind": "LimitRange",
    "metadata": {"name": "defaults", "namespace": "default"},
    "spec": {"limits": [{"type": "Container", "default": {"cpu": "1"}, "defaultRequest": {"cpu": "500m"}}]},
}


class TestLimitRanger:
    """Amounts that the API server's LimitRanger has set count as not set."""

    @pytest.mark.parametrize("conflict", OnConflict)
    @pytest.mark.parametrize("own", [{}, {"cpu": "2"}, {"cpu": "9"}])
    def test_a_pod_that_it_has_changed_gets_the_same(self, conflict: OnConflict, own: dict[str, str]) -> None:
        rule = injection({"cpu": 4}, on_conflict=conflict, gpu_type=None)
        made = pod(container("main", {GPU: 1, **own}), init=[container("init", {GPU: 1}, sidecar=True)])
        rule = replace(rule, init_containers=InitContainers.INJECT)
        server = ApiServer(ClusterObjects({"LimitRange": [LIMIT_RANGE]}))
        changed = server.mutate(made, "default").pod
        assert own or LIMIT_RANGER_ANNOTATION in changed["metadata"]["annotations"]  # type: ignore[operator,index,call-overload]
        for name in ("main", "init"):
            assert given(mutated({**changed}, rule), name) == given(mutated(made, rule), name)

    def test_a_large_annotation_is_charged_to_the_budget(self) -> None:
        made = typed(container("main", {GPU: 1}), extra={LIMIT_RANGER_ANNOTATION: "; " * 10_000_000})
        assert "cost limit" in mutated(made, injection({"cpu": 4})).trace[0].message


def test_an_injection_can_deny_if_it_injects() -> None:
    assert injection({"cpu": 1}).can_deny
    assert not injection({}).can_deny
    assert not injection({"cpu": 1}, mode=Mode.AUDIT).can_deny
