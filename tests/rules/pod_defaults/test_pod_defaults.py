"""Behaviour of PodDefaults that their model (tests/models) does not have: reasons, notes, errors, order and bounds."""

from typing import Any

import pytest

from rules_engine.cluster.nodes import NodeFilter, NodeRequirement
from rules_engine.language.files import SourceFile
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.cluster import Classes, ClassScheduling, Cluster, Taint
from rules_engine.model.rules.decision import Action, Decision, Step
from rules_engine.model.rules.rule import FailurePolicy, Match, Mode, Rule
from rules_engine.rules.entries import effective_entry
from rules_engine.rules.kinds import compile_rules
from rules_engine.rules.ladder.value import Unplaced
from rules_engine.rules.native.policy import translate_rules
from rules_engine.rules.sources.load import load_texts
from tests.support.evaluation import (
    GPU,
    MIG2,
    cluster,
    compiled,
    container,
    injection,
    ladder,
    mutated,
    node,
    pod,
    pod_defaults,
    request,
    rung,
)
from tests.support.loading import codes

TOLERATES = "{pod: {spec: {tolerations: [{key: pool, operator: Exists}]}}}"
LABELS = "{pod: {metadata: {labels: {a: b}}}}"
SHARED_MEMORY = (
    "{pod: {spec: {volumes: [{name: shm, emptyDir: {}}]}},"
    " containers: [{which: %s, volumeMounts: [{name: shm, mountPath: /dev/shm}]}]}"
)
VOLUME = "pod: {spec: {volumes: [{name: v, %s}]}}"
STEERING = "steering-annotation"
NUMBER = "[1, 'a'][object.spec.containers.size() - 1]"
SET_X = "which: All, env: [{name: X, value: v}]"
RESOURCES = "match: {resources: ['nvidia.com/*']}"
MATCHES_POD = NodeFilter(require=frozenset({NodeRequirement.MATCHES_POD}))


def step_of(decision: Decision, kind: str = "PodDefaults") -> Step:
    return next(step for step in decision.trace if step.rule.startswith(kind))


def spec_of(decision: Decision) -> Any:
    result: Any = decision.result
    return result["spec"]


def env_of(decision: Decision, name: str = "main") -> Any:
    spec = spec_of(decision)
    every = [*spec["containers"], *spec.get("initContainers", [])]
    return next(each for each in every if each["name"] == name).get("env", [])


def classes(**default: bool) -> Cluster:
    return Cluster(classes=Classes(priority=default, runtime={}))


class TestSteps:
    def test_a_change_names_what_was_added(self) -> None:
        rule = pod_defaults(
            "{pod: {metadata: {labels: {a: b}}}, containers: [{which: All, env: [{name: X, value: v}]}]}"
        )
        step = step_of(mutated(pod(container("main")), rule))
        assert (step.action, step.reason, step.message) == (Action.CHANGE, "added", "adds env, labels")
        assert [(each.container, each.member) for each in step.members] == [("main", "env.X"), ("", "labels.a")]

    def test_a_replaced_value_is_not_recorded(self) -> None:
        rule = pod_defaults("{onConflict: Overwrite, containers: [{which: All, env: [{name: X, value: v}]}]}")
        made = pod({**container("main"), "env": [{"name": "X", "value": "secret"}]})
        step = step_of(mutated(made, rule))
        assert step.members[0].replaced
        assert "secret" not in str(step.to_json())

    @pytest.mark.parametrize(
        ("spec", "made", "note"),
        [
            (LABELS, pod(container("main"), labels={"a": "c"}), "labels.a stays: onConflict Keep"),
            (
                "{onConflict: Overwrite, pod: {spec: {runtimeClassName: nvidia}}}",
                pod(container("main"), runtimeClassName="other"),
                "runtimeClassName stays: the pod names the runtime class other, whose settings are merged already",
            ),
            (
                SHARED_MEMORY % "All",
                pod(container("main"), volumes=[{"name": "shm", "hostPath": {"path": "/x"}}]),
                "main.volumeMounts./dev/shm is not added: the pod does not get this volume shm",
            ),
            (
                SHARED_MEMORY % "{names: [x]}",
                pod(container("main")),
                "volumes.shm is not added: no container mounts it",
            ),
        ],
    )  # fmt: skip
    def test_what_stays_has_a_note(self, spec: str, made: Json, note: str) -> None:
        step = step_of(mutated(made, pod_defaults(spec)))
        assert (step.action, step.reason) == (Action.KEEP, "present")
        assert note in step.notes

    def test_an_empty_entry_adds_nothing(self) -> None:
        rule = pod_defaults("{pod: {metadata: {labels: {a: b}}}, namespaces: {ml: {}}}")
        assert step_of(mutated(pod(container("main")), rule)).reason == "empty-entry"

    def test_a_volume_that_another_rule_mounts_is_added(self) -> None:
        first = pod_defaults(f"{{priority: 1, {(SHARED_MEMORY % '{names: [x]}')[1:]}", "first")
        later = pod_defaults("{containers: [{which: All, volumeMounts: [{name: shm, mountPath: /dev/shm}]}]}", "later")
        decision = mutated(pod(container("main")), first, later)
        assert spec_of(decision)["volumes"] == [{"name": "shm", "emptyDir": {}}]
        assert spec_of(decision)["containers"][0]["volumeMounts"] == [{"name": "shm", "mountPath": "/dev/shm"}]
        alone = step_of(mutated(pod(container("main")), first))
        assert alone.notes == ("volumes.shm is not added: no container mounts it",)

    def test_a_scheduler_that_is_added_decides_which_containers_request(self) -> None:
        requesting = pod_defaults("{containers: [{which: Requesting, env: [{name: X, value: v}]}]}", "a")
        scheduler = pod_defaults("{pod: {spec: {schedulerName: kai-scheduler}}}", "b")
        made = pod(container("main"), annotations={"gpu-fraction": "0.5"})
        assert env_of(mutated(made, requesting, scheduler)) == [{"name": "X", "value": "v"}]
        assert not mutated(mutated(made, requesting, scheduler).result, requesting, scheduler).patch

    def test_the_last_variable_of_a_name_counts(self) -> None:
        rule = pod_defaults("{onConflict: Overwrite, containers: [{which: All, env: [{name: X, value: void}]}]}")
        void: Json = {"name": "X", "value": "void"}
        every: Json = {"name": "X", "value": "all"}
        assert env_of(mutated(pod({**container("main"), "env": [void, every]}), rule)) == [void, void]
        assert not mutated(pod({**container("main"), "env": [every, void]}), rule).patch

    def test_a_later_rule_names_the_one_that_decided(self) -> None:
        first = pod_defaults("{priority: 1, pod: {metadata: {labels: {a: b}}}}", "first")
        later = pod_defaults("{onConflict: Overwrite, pod: {metadata: {labels: {a: c}}}}", "later")
        decision = mutated(pod(container("main")), first, later)
        assert decision.trace[-1].notes == ("labels.a is decided by PodDefaults/first",)

    def test_the_settings_of_a_namespace_have_their_source(self) -> None:
        rule: Any = pod_defaults(
            "{pod: {spec: {nodeSelector: {a: b}, priorityClassNameExpression: params.x}}, params: {x: z},"
            " namespaces: {ml: {inherit: Merge, pod: {spec: {nodeSelector: {a: c}}}}}}"
        )
        settings = {each.name: (each.value, each.inherited) for each in effective_entry(rule, "ml")}
        assert settings["pod.spec.nodeSelector.a"] == ("c", False)
        assert settings["pod.spec.priorityClassName"] == ("=params.x", True)


class TestFilledIn:
    @pytest.mark.parametrize(
        ("own", "view", "expected"),
        [
            ({}, classes(), "gpu"),
            ({"priority": 0, "preemptionPolicy": "PreemptLowerPriority"}, classes(), "gpu"),
            ({"priorityClassName": "base", "priority": 5}, classes(base=True), "gpu"),
            ({"priorityClassName": "base", "priority": 5}, classes(base=False), "base"),
            ({"priorityClassName": "base"}, Cluster(), "base"),
        ],
    )
    def test_the_default_priority_class_counts_as_not_set(self, own: Any, view: Cluster, expected: str) -> None:
        rule = pod_defaults("{pod: {spec: {priorityClassName: gpu}}}")
        decision = mutated(pod(container("main"), **own), rule, on=view)
        assert spec_of(decision)["priorityClassName"] == expected
        changed = expected == "gpu"
        assert ("priority" in spec_of(decision)) == (not changed and "priority" in own)
        assert "preemptionPolicy" not in spec_of(decision)
        assert step_of(decision).cluster_unknown == (view == Cluster())

    def test_unread_classes_do_not_matter_where_the_class_is_overwritten(self) -> None:
        rule = pod_defaults("{onConflict: Overwrite, pod: {spec: {priorityClassName: gpu}}}")
        decision = mutated(pod(container("main"), priorityClassName="own"), rule, on=Cluster())
        assert spec_of(decision)["priorityClassName"] == "gpu"
        assert not step_of(decision).cluster_unknown

    def test_the_default_scheduler_counts_as_not_set(self) -> None:
        rule = pod_defaults("{pod: {spec: {schedulerName: volcano}}}")
        assert (
            spec_of(mutated(pod(container("main"), schedulerName="default-scheduler"), rule))["schedulerName"]
            == "volcano"
        )
        assert spec_of(mutated(pod(container("main"), schedulerName="mine"), rule))["schedulerName"] == "mine"


class TestComputedValues:
    def test_requested_is_the_effective_request_after_the_ladders(self) -> None:
        resources = {"gpus": GPU, "cpu": "cpu", "none": "x/z"}
        rule = pod_defaults(
            "{pod: {metadata: {annotationsExpression: {"
            + ", ".join(f"{name}: \"string(requested('{resource}'))\"" for name, resource in resources.items())
            + "}}}}"
        )
        made = pod(
            container("main", {MIG2: 2}, requests={"cpu": "1500m"}),
            container("side", {GPU: 1}),
            init=[container("init", {GPU: 9}), container("first", {GPU: 4}, sidecar=True)],
        )
        decision = mutated(made, ladder(MIG2, rung(GPU, assume=True)), rule, on=cluster({GPU: 20}))
        result: Any = decision.result
        given = {name: result["metadata"]["annotations"][name] for name in resources}
        assert given == {"gpus": "9", "cpu": "2", "none": "0"}

    @pytest.mark.parametrize(
        ("member", "problem"),
        [
            ("pod: {metadata: {labelsExpression: {a: \"'x y'\"}}}", "the value of labels.a is no label value"),
            (f"pod: {{metadata: {{labelsExpression: {{a: \"{NUMBER}\"}}}}}}", "labels.a is not of type string"),
            ("pod: {spec: {schedulerNameExpression: \"'A_b'\"}}", "is no name of an object (a DNS subdomain)"),
            (VOLUME % "emptyDir: {sizeLimitExpression: \"'1X'\"}", "volumes.v is no quantity"),
            (VOLUME % "secret: {secretName: s, optionalExpression: params.size}", "is not of type bool"),
        ],
    )  # fmt: skip
    @pytest.mark.parametrize("policy", FailurePolicy)
    def test_a_value_that_cannot_be_written_is_an_error_of_the_rule(
        self, member: str, problem: str, policy: FailurePolicy
    ) -> None:
        rule = pod_defaults(f"{{failurePolicy: {policy.value}, params: {{size: 1}}, {member}}}")
        decision = mutated(pod(container("main")), rule)
        assert problem in step_of(decision).message
        assert decision.allowed == (policy is FailurePolicy.IGNORE)
        assert decision.patch == ()

    def test_parts_of_lists_and_other_types_are_computed(self) -> None:
        rule = pod_defaults(
            "{pod: {spec: {tolerations: [{key: team, valueExpression: namespaceObject.metadata.name}],"
            " volumes: [{name: v, projected: {sources: [{secret: {nameExpression: \"'s-' + params.size\","
            " optionalExpression: 'true'}}]}}]}},"
            " params: {size: x}}"
        )
        spec = spec_of(mutated(pod(container("main")), rule))
        assert spec["tolerations"] == [{"key": "team", "value": "ml"}]
        assert spec["volumes"][0]["projected"] == {"sources": [{"secret": {"name": "s-x", "optional": True}}]}

    def test_quantities_are_written_as_the_api_server_stores_them(self) -> None:
        rule = pod_defaults("{pod: {spec: {volumes: [{name: shm, emptyDir: {sizeLimit: 1024Mi}}]}}}")
        assert spec_of(mutated(pod(container("main")), rule))["volumes"][0]["emptyDir"] == {"sizeLimit": "1Gi"}

    def test_a_malformed_quantity_of_a_pod_is_another_value(self) -> None:
        rule = pod_defaults(
            "{onConflict: Overwrite, pod: {spec: {volumes: [{name: shm, emptyDir: {sizeLimit: 1Gi}}]}}}"
        )
        made = pod(container("main"), volumes=[{"name": "shm", "emptyDir": {"sizeLimit": "one"}}])
        assert spec_of(mutated(made, rule))["volumes"][0]["emptyDir"] == {"sizeLimit": "1Gi"}

    def test_a_volume_that_only_another_rule_mounts_is_that_rules(self) -> None:
        other = "{pod: {spec: {volumes: [{name: shm, emptyDir: {medium: Memory}}]}}, containers: [%s]}"
        mounts = "{which: %s, volumeMounts: [{name: shm, mountPath: /dev/shm}]}"
        first = pod_defaults(other.replace("{medium: Memory}", "{}") % (mounts % "{names: [zz]}"), "a")
        second = pod_defaults(other % (mounts % "All"), "b")
        spec = spec_of(mutated(pod(container("main")), first, second))
        assert spec["volumes"] == [{"name": "shm", "emptyDir": {"medium": "Memory"}}]
        assert spec["containers"][0]["volumeMounts"] == [{"name": "shm", "mountPath": "/dev/shm"}]


class TestContainers:
    def test_without_resources_a_gpu_of_the_catalogue_is_requested(self) -> None:
        rule = pod_defaults("{containers: [{which: NotRequesting, env: [{name: VISIBLE, value: void}]}]}")
        made = pod(
            container("main", {"amd.com/gpu": 1}),
            container("zero", {GPU: 0}),
            container("nic", {"rdma/hca": 1}),
            init=[container("init"), container("side", requests={GPU: 1}, sidecar=True)],
        )
        decision = mutated(made, rule)
        void = [{"name": "VISIBLE", "value": "void"}]
        given = {name: env_of(decision, name) for name in ("main", "zero", "nic", "init", "side")}
        assert given == {"main": [], "zero": void, "nic": void, "init": void, "side": []}

    def test_the_first_group_decides_a_key(self) -> None:
        rule = pod_defaults(
            f"{{containers: [{{which: {{names: [main]}}, env: [{{name: X, value: a}}]}}, {{{SET_X}}}]}}"
        )
        decision = mutated(pod(container("main"), container("other")), rule)
        assert (env_of(decision)[0]["value"], env_of(decision, "other")[0]["value"]) == ("a", "v")

    def test_more_containers_than_a_rule_changes_are_an_error(self) -> None:
        rule = pod_defaults("{containers: [{which: All, env: [{name: X, value: a}]}]}")
        decision = mutated(pod(*(container(f"c{number}") for number in range(257))), rule)
        assert "257 containers and init containers, more than 256" in step_of(decision).message
        plain = pod_defaults("{pod: {metadata: {labels: {a: b}}}}")
        assert mutated(pod(*(container(f"c{number}") for number in range(257))), plain).allowed

    def test_large_lists_are_charged_to_the_budget(self) -> None:
        rule = pod_defaults(TOLERATES)
        made = pod(container("main"), tolerations=[{"key": f"k{number}"} for number in range(300_000)])
        assert "cost limit" in compiled(rule).mutate(request(made)).trace[0].message

    def test_lists_are_read_once_for_all_rules(self) -> None:
        rules = [
            pod_defaults(f"{{containers: [{{which: All, env: [{{name: X{number}, value: v}}]}}]}}", f"d{number}")
            for number in range(100)
        ]
        own: Json = [{"name": f"k{number}"} for number in range(2_000)]
        decision = mutated(pod({**container("main"), "env": own}), *rules)
        assert len(decision.patch) == 100

    def test_large_items_are_charged_to_the_budget(self) -> None:
        rule = pod_defaults("{pod: {spec: {volumes: [{name: v, emptyDir: {}}]}}}")
        large: Json = {"name": "v", "projected": {"sources": [{"secret": {"name": "s"}}] * 400_000}}
        assert "cost limit" in compiled(rule).mutate(request(pod(container("main"), volumes=[large]))).trace[0].message

    @pytest.mark.parametrize("value", ["x", {"a": 1}, 3])
    def test_a_malformed_list_is_refused(self, value: Json) -> None:
        decision = compiled(pod_defaults(TOLERATES)).mutate(request(pod(container("main"), tolerations=value)))
        assert decision.refusal is not None
        assert decision.refusal.code == 422


class TestLadders:
    TAINTED = cluster(
        node("plain", {MIG2: 4}), node("tainted", {GPU: 8}, taints=(Taint(key="pool", effect="NoSchedule"),))
    )

    def decided(self, *rules: Rule, on: Cluster | None = None, **spec: Any) -> Decision:
        return mutated(pod(container("main", {GPU: 1}), **spec), *rules, on=on or self.TAINTED)

    def test_a_toleration_that_will_be_added_counts(self) -> None:
        strict = ladder(GPU, MIG2, nodes=MATCHES_POD)
        assert step_of(self.decided(strict), "FallbackLadder").resources[0].to == MIG2
        assert step_of(self.decided(strict, pod_defaults(TOLERATES)), "FallbackLadder").resources[0].to is None
        audited = pod_defaults(f"{{mode: Audit, {TOLERATES[1:]}")
        assert step_of(self.decided(strict, audited), "FallbackLadder").resources[0].to == MIG2

    def test_what_is_added_depends_on_the_rung(self) -> None:
        strict = ladder(MIG2, GPU, nodes=MATCHES_POD)
        on = cluster(node("tainted", {GPU: 8}, taints=(Taint(key="pool", effect="NoSchedule"),)))
        for_gpus = pod_defaults(f"{{match: {{resources: ['{GPU}']}}, {TOLERATES[1:]}")
        decision = mutated(pod(container("main", {MIG2: 1})), strict, for_gpus, on=on)
        assert step_of(decision, "FallbackLadder").resources[0].to == GPU
        assert spec_of(decision)["tolerations"] == [{"key": "pool", "operator": "Exists"}]
        for_mig = pod_defaults(f"{{match: {{resources: ['{MIG2}']}}, {TOLERATES[1:]}")
        # On the rung where it is, the pod gets the toleration: a second admission would move it.
        moved = mutated(pod(container("main", {MIG2: 1})), strict, for_mig, on=on)
        assert step_of(moved, "FallbackLadder").resources[0].to == GPU
        assert spec_of(moved)["tolerations"] == [{"key": "pool", "operator": "Exists"}]
        assert mutated(moved.result, strict, for_mig, on=on).patch == ()
        full = cluster(node("other", {"amd.com/gpu": 8}))
        assert (
            step_of(mutated(pod(container("main", {MIG2: 1})), strict, for_mig, on=full), "FallbackLadder").reason
            == "exhausted"
        )

    def test_a_selector_and_the_scheduling_of_a_runtime_class_count(self) -> None:
        strict = ladder(GPU, MIG2, nodes=MATCHES_POD)
        on = cluster(node("a", {GPU: 8}, labels={"zone": "a"}), node("b", {MIG2: 8}, labels={"zone": "b"}))
        selects = pod_defaults("{pod: {spec: {nodeSelector: {zone: b}}}}")
        assert step_of(self.decided(strict, selects, on=on), "FallbackLadder").resources[0].to == MIG2
        named = pod_defaults("{pod: {spec: {runtimeClassName: nvidia}}}")
        scheduling = ClassScheduling({"zone": "b"}, ({"key": "x", "operator": "Exists"},))
        view = Cluster(nodes=on.nodes, classes=Classes(priority={}, runtime={"nvidia": scheduling}))
        decision = self.decided(strict, named, on=view)
        assert step_of(decision, "FallbackLadder").resources[0].to == MIG2
        # The API server adds what the class requires.
        assert "nodeSelector" not in spec_of(decision)

    def test_pools_are_decided_with_what_will_be_added(self) -> None:
        pools = ladder(
            rung(GPU, name="A", pool=(("card", "a"),)),
            rung(GPU, name="B", pool=(("card", "b"),)),
            nodes=MATCHES_POD,
            unplaced=Unplaced.FIRST,
        )
        on = cluster(
            node("a", {GPU: 8}, labels={"card": "a"}, taints=(Taint(key="pool", effect="NoSchedule"),)),
            node("b", {GPU: 8}, labels={"card": "b"}),
        )
        assert spec_of(self.decided(pools, on=on))["nodeSelector"] == {"card": "b"}
        assert spec_of(self.decided(pools, pod_defaults(TOLERATES), on=on))["nodeSelector"] == {"card": "a"}

    def test_a_rule_that_fails_is_not_foreseen(self) -> None:
        strict = ladder(GPU, MIG2, nodes=MATCHES_POD)
        fails = pod_defaults(
            "{failurePolicy: Ignore,"
            " pod: {spec: {tolerations: [{key: pool, valueExpression: object.metadata.annotations.none}]}}}"
        )
        assert step_of(self.decided(strict, fails), "FallbackLadder").resources[0].to == MIG2

    def test_a_ladder_fails_if_it_costs_too_much_to_foresee(self) -> None:
        strict = ladder(GPU, *(f"nvidia.com/x{number}" for number in range(150)), MIG2, nodes=MATCHES_POD)
        made = [{"key": f"k{number}"} for number in range(990)]
        on = cluster(node("tainted", {MIG2: 8}, taints=(Taint(key="pool", effect="NoSchedule"),)))
        step = step_of(self.decided(strict, pod_defaults(TOLERATES), on=on, tolerations=made), "FallbackLadder")
        assert step.action is Action.DENY
        assert "the cost limit" in step.message

    def test_injections_see_what_was_added(self) -> None:
        typed = pod_defaults("{pod: {metadata: {annotations: {example.com/type: A100}}}}")
        rule = injection({"cpu": 4}, gpu_type="A100", gpu_type_annotation="example.com/type")
        decision = mutated(pod(container("main", {GPU: 2})), typed, rule)
        assert spec_of(decision)["containers"][0]["resources"]["limits"]["cpu"] == "8"


class TestNative:
    def reasons(self, *rules: Rule) -> dict[str, str]:
        return {each.rule.name: each.reason for each in translate_rules(compiled(*rules)).staying}

    def test_pod_defaults_and_the_ladders_that_they_match_stay(self) -> None:
        rule = pod_defaults(TOLERATES)
        stays = "PodDefaults merge members by name, which is not translated"
        assert self.reasons(ladder(GPU, MIG2, name="l"), rule) == {
            "l": "it decides with the pod as PodDefaults/defaults, which stays with the webhook, will change it",
            "defaults": stays,
        }
        apart = pod_defaults(f"{{match: {{namespaces: [a]}}, {TOLERATES[1:]}")
        only = ladder(GPU, MIG2, name="l", match=Match(namespaces=("b",)))
        assert self.reasons(only, apart) == {"defaults": stays}


class TestWrittenAndRead:
    def messages(self, *rules: Rule) -> list[str]:
        _, problems = compile_rules(rules)
        return [problem.message.partition(" of pods")[0] for problem in problems if problem.code == "written-and-read"]

    @pytest.mark.parametrize(
        ("condition", "member"),
        [
            ("object.metadata.?labels.a.orValue('') == ''", "metadata.labels.a"),
            ("has(object.metadata.labels) && object.metadata.labels.b == 'c'", "metadata.labels.a"),
            ("object.metadata.?labels.b.orValue('') == ''", ""),
            ("object.spec.containers.all(c, !has(c.env))", "spec.containers.env"),
            ("object.spec.containers.all(c, !has(c.image))", ""),
            ("object.spec.?priority.orValue(0) == 0", "spec.priority"),
            ("object == oldObject", "metadata.labels.a"),
            ("request.namespace == 'x'", ""),
        ],
    )
    def test_own_conditions_must_not_read_what_is_written(self, condition: str, member: str) -> None:
        text = condition.replace('"', '\\"')
        spec = (
            f'{{matchConditions: [{{name: c, expression: "{text}"}}], pod: {{metadata: {{labels: {{a: b}}}},'
            " spec: {priorityClassName: x}}, containers: [{which: All, env: [{name: X, value: v}]}]}"
        )
        messages = self.messages(pod_defaults(spec))
        assert any(member and f"reads {member}" in message for message in messages) == bool(member), messages

    def test_rules_of_other_kinds_must_not_read_it(self) -> None:
        writes = pod_defaults("{pod: {metadata: {labels: {a: b}}, spec: {nodeSelector: {card: x}}}}")
        pools = ladder(rung(GPU, name="A", pool=(("card", "a"),)), rung(GPU, name="B", pool=(("card", "b"),)))
        assert "reads spec.nodeSelector.card" in self.messages(writes, pools)[0]
        apart = pod_defaults("{match: {namespaces: [x]}, pod: {spec: {nodeSelector: {card: x}}}}")
        elsewhere = ladder(*pools.rungs, match=Match(namespaces=("other",)))
        assert self.messages(apart, elsewhere) == []
        excluded = pod_defaults("{match: {excludeNamespaces: [other]}, pod: {spec: {nodeSelector: {card: x}}}}")
        assert self.messages(excluded, elsewhere) == []
        assert self.messages(writes, ladder(GPU, MIG2)) == []

    def test_an_annotation_of_an_injection_must_not_be_read(self) -> None:
        gives = injection({"cpu": "1"}, gpu_type=None, annotations={"card": "x"})
        reads = "{pod: {metadata: {labelsExpression: {a: \"object.metadata.?annotations[?'%s'].orValue('')\"}}}}"
        _, problems = compile_rules([pod_defaults(reads % "card"), gives])
        assert [each.message for each in problems if each.code == "written-and-read"] == [
            f"{gives.id} ({gives.location}) gives pods the annotation card after this rule has read it"
        ]
        assert self.messages(pod_defaults(reads % "other"), gives) == []

    def test_a_rule_must_not_count_what_an_injection_gives(self) -> None:
        gives = injection({"nvidia.com/shm": "1Gi"}, gpu_type=None)
        counts = "{pod: {metadata: {annotationsExpression: {a: \"string(requested('nvidia.com/shm'))\"}}}}"
        assert "changes this number" in self.messages(pod_defaults(counts), gives)[0]
        any_name = "{params: {r: x}, pod: {metadata: {annotationsExpression: {a: string(requested(params.r))}}}}"
        assert "changes this number" in self.messages(pod_defaults(any_name), gives)[0]
        reads = (
            '{matchConditions: [{name: c, expression: "object.spec.containers.all(c, %s)"}],'
            " pod: {metadata: {labels: {a: b}}}}"
        )
        for_given = pod_defaults(reads % "has(c.resources.limits) && 'nvidia.com/shm' in c.resources.limits")
        assert "gives pods nvidia.com/shm after" in self.messages(for_given, gives)[0]
        for_gpus = pod_defaults(reads % "has(c.resources.limits) && 'nvidia.com/gpu' in c.resources.limits")
        assert self.messages(for_gpus, gives) == []
        matches = pod_defaults("{match: {resources: [nvidia.com/shm]}, pod: {metadata: {labels: {a: b}}}}")
        assert "after this rule has matched them" in self.messages(matches, gives)[0]
        other = "{pod: {metadata: {annotationsExpression: {a: \"string(requested('nvidia.com/gpu'))\"}}}}"
        assert self.messages(pod_defaults(other), gives) == []
        # Pods that get it match already.
        both = pod_defaults(f"{{{RESOURCES}, pod: {{metadata: {{labels: {{a: b}}}}}}}}")
        assert self.messages(both, gives) == []


def test_mode_audit_records_and_changes_nothing() -> None:
    audited = pod_defaults(f"{{mode: Audit, {TOLERATES[1:]}", "audited")
    later = pod_defaults(f"{{priority: -1, {TOLERATES[1:]}", "later")
    decision = mutated(pod(container("main")), audited, later)
    assert decision.trace[0].members
    assert decision.trace[0].would_decide
    assert audited.mode is Mode.AUDIT
    assert [step.rule for step in decision.trace if step.decides] == ["PodDefaults/later"]


@pytest.mark.parametrize(
    ("limit", "volume", "which", "warned"),
    [
        ("4Gi", "medium: Memory, sizeLimit: 8Gi", "All", True),
        ("4Gi", "medium: Memory, sizeLimitExpression: \"'8Gi'\"", "All", True),
        ("4Gi", "medium: Memory, sizeLimit: 8Gi", "{names: [other]}", False),
        ("8192Mi", "medium: Memory, sizeLimit: 8Gi", "All", False),
        (None, "medium: Memory, sizeLimit: 8Gi", "All", False),
        ("4Gi", "medium: Memory", "All", False),
        ("4Gi", "sizeLimit: 8Gi", "All", False),
    ],
)
def test_a_volume_in_memory_counts_for_the_limit_of_its_container(
    limit: str | None, volume: str, which: str, warned: bool
) -> None:
    rule = pod_defaults((SHARED_MEMORY % which).replace("{}", f"{{{volume}}}"))
    made = pod(container("main", {GPU: 1}, limits={"memory": limit} if limit else {}), container("side"))
    warning = "PodDefaults/defaults: the volume shm may hold 8Gi in memory, which counts for main: its limit is 4Gi"
    assert mutated(made, rule).warnings == ((warning,) if warned else ())
    assert mutated(mutated(made, rule).result, rule).warnings == ((warning,) if warned else ())


def test_an_injection_may_raise_the_limit_of_memory() -> None:
    rule = pod_defaults((SHARED_MEMORY % "All").replace("{}", "{medium: Memory, sizeLimit: 8Gi}"))
    made = pod(container("main", {GPU: 1}, limits={"memory": "4Gi"}))
    assert mutated(made, rule, injection({"cpu": 4}, gpu_type=None)).warnings
    assert mutated(made, rule, injection({"memory": "64Gi"}, gpu_type=None)).warnings == ()


def test_a_toleration_without_an_operator_is_equal() -> None:
    rule = pod_defaults("{pod: {spec: {tolerations: [{key: a, operator: Equal, value: b}]}}}")
    assert not mutated(pod(container(), tolerations=[{"key": "a", "value": "b", "effect": ""}]), rule).patch


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        ("{pod: {spec: {tolerations: [{effect: NoSchedule}]}}}", "missing-field"),
        ("{pod: {spec: {tolerations: [{key: a, operator: Exists, value: b}]}}}", "conflicting-fields"),
        ("{pod: {spec: {tolerations: [{key: a, tolerationSeconds: 3}]}}}", "missing-field"),
        ("{pod: {spec: {schedulerName: a, schedulerNameExpression: params.b}}, params: {b: c}}", "conflicting-fields"),
        ("{pod: {metadata: {labels: {a: b}, labelsExpression: {a: params.b}}}, params: {b: c}}", "conflicting-fields"),
        (
            "{containers: [{which: All, env: [{name: A, value: b, valueFrom: {fieldRef: {fieldPath: b}}}]}]}",
            "conflicting-fields",
        ),
        (
            "{pod: {metadata: {annotationsExpression: {gpurules.io/skip: params.b}}}, params: {b: c}}",
            "steering-annotation",
        ),
        ("{pod: {metadata: {labels: {a: [x]}}}}", "wrong-type"),
        ("{pod: {metadata: {labelsExpression: {a: [x]}}}}", "wrong-type"),
    ],
)
def test_what_the_api_server_refuses_is_a_load_error(spec: str, code: str) -> None:
    text = f"{{apiVersion: gpurules.io/v1, kind: PodDefaults, metadata: {{name: a}}, spec: {spec}}}"
    assert codes(load_texts([SourceFile("x.yaml", text)]).problems) == [code]


def test_an_expression_with_an_error_is_reported_once() -> None:
    _, problems = compile_rules([pod_defaults("{pod: {spec: {schedulerNameExpression: objct.x}}}")])
    assert codes(problems) == ["cel-undeclared"]


def test_a_patch_that_no_pod_may_have_is_an_error_of_the_rule() -> None:
    value = "x" * 900_000
    rule = pod_defaults(f"{{containers: [{{which: All, env: [{{name: X, value: {value}}}]}}]}}")
    decision = mutated(pod(container("a"), container("b")), rule)
    assert "the patch would take" in step_of(decision).message


def test_a_quantity_of_a_volume_may_be_spelled_differently() -> None:
    claim = "{ephemeral: {volumeClaimTemplate: {spec: {resources: {requests: {storage: %s}}}}}}"
    rule = pod_defaults("{pod: {spec: {volumes: [{name: v, " + claim[1:] % "1Gi" + "]}}}")
    spec = {"resources": {"requests": {"storage": "1024Mi"}}}
    made = pod(container("main"), volumes=[{"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": spec}}}])
    assert step_of(mutated(made, rule)).reason == "present"
    assert step_of(mutated(made, rule)).notes == ()


def test_a_malformed_quantity_of_the_pod_is_another_value() -> None:
    rule = pod_defaults("{pod: {spec: {volumes: [{name: shm, emptyDir: {sizeLimit: 1Gi}}]}}}")
    made = pod(container("main"), volumes=[{"name": "shm", "emptyDir": {"sizeLimit": "1Q"}}])
    assert step_of(mutated(made, rule)).notes == ("volumes.shm stays: onConflict Keep",)


def test_a_toleration_of_the_runtime_class_that_the_pod_has_is_not_added_twice() -> None:
    toleration = {"key": "pool", "operator": "Exists"}
    view = cluster(node("a", {GPU: 8}, taints=(Taint(key="pool", effect="NoSchedule"),)))
    view = Cluster(nodes=view.nodes, classes=Classes(priority={}, runtime={"x": ClassScheduling({}, (toleration,))}))
    rule = pod_defaults("{pod: {spec: {runtimeClassName: x}}}")
    made = pod(container("main", {GPU: 1}), tolerations=[toleration])
    assert (
        step_of(mutated(made, ladder(GPU, MIG2, nodes=MATCHES_POD), rule, on=view), "FallbackLadder").reason
        == "offered"
    )
