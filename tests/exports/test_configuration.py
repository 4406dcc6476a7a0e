"""Webhook configurations: they send every pod that a rule may apply to."""

import base64
import json
from fnmatch import fnmatchcase
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from rules_engine.cluster.nodes import Offered
from rules_engine.exports import configuration as webhooks
from rules_engine.exports.configuration import Calls, build_configurations, derive_calls
from rules_engine.exports.match_condition import COMPARED_AMOUNTS, COMPARED_CONTAINERS, LONG_NAME
from rules_engine.exports.settings import Service, Settings
from rules_engine.language.cel import Budget, compile_expression, types
from rules_engine.model.json.lenient import as_mapping
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.cluster import Cluster
from rules_engine.model.problems.problem import Severity
from rules_engine.model.rules.admission import Endpoint
from rules_engine.model.rules.decision import Action
from rules_engine.model.rules.rule import Match, Mode, Operation, Rule
from rules_engine.rules.evaluation import RuleSet
from rules_engine.rules.ladder.value import FallbackLadder, WhenExhausted
from rules_engine.rules.sources.rule_files import DEFAULT_RULES, read_rules
from rules_engine.rules.validation.value import ValidationAction
from tests.fuzz.cel_agreement import google
from tests.support.api_server_cost import COSTLIEST, COSTLIEST_WITHOUT_DEVICES, PER_CALL, WIDEST, Evaluation
from tests.support.authoring import cli, write
from tests.support.authoring import ladder as ladder_text
from tests.support.authoring import validation as validation_text
from tests.support.conditions import CONDITIONS, KUBERNETES, SELECTORS
from tests.support.evaluation import (
    GPU,
    HERE,
    MIG1,
    MIG2,
    asks,
    cel,
    compiled,
    container,
    injection,
    ladder,
    node,
    pod,
    request,
    validation,
)
from tests.support.laws import clusters, ladders
from tests.support.webhooks import (
    NAMESPACES,
    changing_rules,
    checking_rules,
    condition_texts,
    holds,
    labelled_pods,
    pod_defaults,
    relevant_rules,
    sent,
    unconditional,
)

SETTINGS = Settings(server=Service("gpu-rules", "gpu-system", 443), namespace="gpu-system")


@given(made=labelled_pods(), rules=changing_rules(), cluster=clusters(), namespace=NAMESPACES)
def test_every_rule_skips_a_pod_not_sent_to_mutate(
    made: dict[str, Json], rules: list[Rule], cluster: Cluster, namespace: str
) -> None:
    rule_set = compiled(*rules)
    if not sent(derive_calls(rule_set)[0], made, namespace=namespace):
        admission = request(made, namespace=namespace)
        # A rule that cannot be evaluated counts where it has something to do.
        without = relevant_rules(compiled(*map(unconditional, rules)).mutate(admission, cluster))
        assert relevant_rules(rule_set.mutate(admission, cluster)) & without == set()


@given(
    made=labelled_pods(), rules=checking_rules(), namespace=NAMESPACES, operation=st.sampled_from(["CREATE", "UPDATE"])
)
def test_every_rule_skips_a_pod_not_sent_to_validate(
    made: dict[str, Json], rules: list[Rule], namespace: str, operation: str
) -> None:
    rule_set = compiled(*rules)
    if not sent(derive_calls(rule_set)[1], made, namespace=namespace, operation=operation):
        admission = request(made, namespace=namespace, operation=operation)
        assert relevant_rules(rule_set.validate(admission, Cluster())) == set()


@given(made=labelled_pods(), rules=st.lists(ladders(), min_size=1, max_size=1), namespace=NAMESPACES)
def test_ladders_alone_send_exactly_the_pods_that_name_a_rung(
    made: dict[str, Any], rules: list[FallbackLadder], namespace: str
) -> None:
    members = (item for key in ("containers", "initContainers") for item in made["spec"].get(key, []))
    named = {name for item in members for amounts in item.get("resources", {}).values() for name in amounts}
    expected = bool(named & {rung.resource for rung in rules[0].rungs})

    assert sent(derive_calls(compiled(*rules))[0], made, namespace=namespace) == expected


@pytest.mark.parametrize(
    ("rule", "there", "elsewhere"),
    [
        (ladder(GPU, match=Match(object_selector=SELECTORS[2])), {"labels": {"team": "ml"}}, {"labels": {"team": "x"}}),
        (ladder(GPU, match=Match(object_selector=SELECTORS[3])), {}, {"labels": {"team": "ml"}}),
        (ladder(GPU, match=Match(object_selector=SELECTORS[5])), {}, {"labels": {"team": "ml"}}),
        (validation("true", match=Match(resources=("nvidia.com/g*",))), {}, {"gpus": "cpu"}),
        (
            validation("true", match=Match(resources=(GPU,), object_selector=SELECTORS[2])),
            {"labels": {"team": "ml"}},
            {},
        ),
        (ladder(GPU, match=Match(namespaces=("m*",))), {}, {"namespace": "x"}),
        (ladder(GPU, match=Match(namespaces=("*-batch", "a-?b*"))), {"namespace": "ml-batch"}, {"namespace": "batch"}),
        (ladder(GPU, match=Match(namespaces=("*-batch", "a-?b*"))), {"namespace": "a-xb"}, {"namespace": "a-xyb"}),
        (ladder(GPU, match=Match(exclude_namespaces=("x", "y?"))), {}, {"namespace": "yz"}),
        (ladder(GPU), {}, {"gpus": "cpu"}),
    ],
)
def test_match_criteria_of_a_rule_exclude_other_pods(
    rule: Rule, there: dict[str, Any], elsewhere: dict[str, Any]
) -> None:
    calls = next(calls for calls in derive_calls(compiled(rule)) if calls.operations)

    def is_sent(*, namespace: str = "ml", gpus: str = GPU, **fields: Any) -> bool:
        return sent(calls, asks({gpus: 1}, **fields), namespace=namespace)

    assert is_sent(**there)
    assert not is_sent(**elsewhere)


def test_gpus_of_init_containers_and_of_requests_alone_count() -> None:
    (calls, _) = derive_calls(compiled(ladder(MIG2)))

    assert sent(calls, pod(container(), init=[container("i", requests={MIG2: 1})]))
    assert not sent(calls, pod(container(), init=[container("i", requests={MIG1: 1})]))


@pytest.mark.parametrize("spec", [{}, {"containers": None}, {"containers": [], "initContainers": []}])
def test_a_pod_without_containers_is_left_to_the_api_server(spec: dict[str, Json]) -> None:
    (calls, _) = derive_calls(compiled(ladder(GPU)))

    assert not sent(calls, {"metadata": {"name": "none"}, "spec": spec})


def test_the_packaged_rules_send_only_pods_with_gpus_to_mutate() -> None:
    calls, _ = derive_calls(read_rules([DEFAULT_RULES]).rule_set)

    assert not sent(calls, asks({"cpu": 1, "memory": "1Gi"}, annotations={"task.bkbcs.tencent.com/gpu-type": "T4"}))
    assert sent(calls, asks({GPU: 1}))
    assert sent(calls, asks({"nvidia.com/mig-2g.20gb": 1}))


def test_rules_of_the_same_pods_make_one_short_condition() -> None:
    few = derive_calls(compiled(ladder(GPU, MIG1)))[0].expression
    many = derive_calls(compiled(*(ladder(GPU, MIG1, name=f"l{n}") for n in range(200)), injection({"cpu": 1})))[
        0
    ].expression

    assert many == few


def test_a_rule_that_is_off_sends_nothing() -> None:
    calls, _ = derive_calls(compiled(ladder(GPU, mode=Mode.OFF)))

    assert calls.operations == ()


BECAUSE = (
    "every pod is sent to /validate because of Validation/validation: limit it by match.resources, match.namespaces or "
    "match.objectSelector [every-pod]"
)


def warnings(rule_set: RuleSet) -> list[str]:
    """Return the message and code of each warning; all are at the location of a rule."""
    found = list(webhooks.find_warnings(rule_set))
    assert all(problem.severity is Severity.WARNING and problem.location == HERE for problem in found)
    return [f"{problem.message} [{problem.code}]" for problem in found]


def test_too_many_conditions_are_left_out_with_a_warning() -> None:
    rules = [ladder(GPU, name=f"l{n}", match=Match(namespaces=(f"team-{n}",))) for n in range(200)]
    rule_set = compiled(*rules)
    calls, _ = derive_calls(rule_set)

    assert sent(calls, asks({GPU: 1}), namespace="nobody")
    assert not sent(calls, asks({"cpu": 1}), namespace="team-1")
    (warning,) = warnings(rule_set)
    assert warning == (
        "pods of all namespaces and labels that name a resource of a rule are sent to /mutate: the rules name too much "
        "for one match condition, FallbackLadder/l0 the most [simplified-condition]"
    )


def test_too_many_resources_send_every_pod_with_a_warning() -> None:
    rule_set = compiled(*(ladder(f"vendor.example/a-device-with-a-long-name-{n}", name=f"l{n}") for n in range(600)))
    calls, _ = derive_calls(rule_set)

    assert calls.expression is None
    (warning,) = warnings(rule_set)
    assert warning == (
        "every pod is sent to /mutate: the rules name too much for one match condition, FallbackLadder/l0 the most; "
        "use fewer names, and globs such as nvidia.com/* rather than *-gpu-* [every-pod]"
    )


def test_the_rule_with_the_most_names_is_reported() -> None:
    globs = ("*-gpu-*", "*-mig-*", "*-vf-*", "*-tpu-*")
    few, many = (validation("true", name=name, match=Match(resources=globs[:n])) for name, n in (("a", 1), ("b", 4)))

    (warning,) = warnings(compiled(few, many))
    assert "Validation/b the most" in warning


def test_names_in_expressions_are_names_of_their_rule() -> None:
    free = [f"cluster.available('a.b/{n}') > 0" for n in range(250)]
    reserving = validation(*free, name="b", match=Match(namespaces=("ml",)))

    (warning,) = warnings(compiled(validation("true", name="a", match=Match(resources=("x/*",))), reserving))
    assert "Validation/b the most" in warning


@pytest.mark.parametrize("text", [None, "variables.team == 'ml'", CONDITIONS[5]])
def test_a_validation_without_resources_widens_and_is_named(text: str | None) -> None:
    conditions = {"c": text} if text else {}
    wide = validation("true", variables={"team": "'ml'"}, match_conditions=conditions)
    narrow = validation("true", name="other", match=Match(resources=("*/*",)))
    rule_set = compiled(wide, narrow)

    assert derive_calls(rule_set)[1].expression is None
    assert warnings(rule_set) == [BECAUSE]


def test_a_validation_of_every_created_pod_is_named_beside_one_of_updates() -> None:
    update = validation("true", name="other", match=Match(resources=("*/*",), operations=(Operation.UPDATE,)))

    assert warnings(compiled(validation("true"), update)) == [BECAUSE]


@pytest.mark.parametrize(
    ("operations", "expected"),
    [
        ([(Operation.CREATE,)], ("CREATE",)),
        ([(Operation.UPDATE,)], ("UPDATE",)),
        ([(Operation.UPDATE,), (Operation.CREATE,)], ("CREATE", "UPDATE")),
        ([], ()),
    ],
)
def test_update_is_registered_only_if_a_validation_matches_it(
    operations: list[tuple[Operation, ...]], expected: tuple[str, ...]
) -> None:
    rules = [validation("true", name=f"v{n}", match=Match(operations=some)) for n, some in enumerate(operations)]

    assert derive_calls(compiled(ladder(GPU), *rules))[0].operations == ("CREATE",)
    assert derive_calls(compiled(ladder(GPU), *rules))[1].operations == expected


def test_pods_that_take_devices_of_a_ladder_are_sent_to_validate() -> None:
    """Reservations are made for these resources only, even for pods that the ladder does not match."""
    condition = "object.spec.containers.exists(c, 'nvidia.com/mig-2g.20gb' in c.?resources.limits.orValue({}))"
    free = ladder(
        MIG2,
        GPU,
        name="free",
        offered=Offered.AVAILABLE,
        when_exhausted=WhenExhausted.DENY,
        match=Match(namespaces=("ml",)),
        match_conditions={"c": condition},
    )
    rules = [free, ladder(MIG1, name="there")]
    mutating, validating = derive_calls(compiled(*rules))

    assert (validating.rules, validating.reserving, validating.denying) == ((), (free,), ())
    assert (mutating.reserving, mutating.denying) == ((), ("FallbackLadder/free",))
    assert validating.operations == ("CREATE",)
    for requests, expected in (({MIG2: 1}, True), ({GPU: 1}, True), ({MIG1: 1}, False), ({"cpu": 1}, False)):
        assert sent(validating, pod(container("c", requests)), namespace="other") is expected
    _, validating = derive_calls(compiled(*rules, validation("false", match=Match(operations=(Operation.UPDATE,)))))
    assert validating.operations == ("CREATE", "UPDATE")


def test_an_injection_that_reads_free_devices_has_them_reserved() -> None:
    read = "cluster.available('nvidia.com/gpu') > 0"
    free = injection({"cpu": 1}, match_conditions={"c": read})
    _, validating = derive_calls(compiled(free))
    assert validating.reserving == (free,)
    assert sent(validating, pod(container("c", {GPU: 1})), namespace="other")
    assert derive_calls(compiled(injection({"cpu": 1})))[1].operations == ()


@pytest.mark.parametrize(
    "fields",
    [
        {"match_conditions": {"c": f"cluster.available('{MIG1}') > 0"}},
        {"variables": {"free": f"cluster.available('{MIG1}')"}, "match_conditions": {"c": "variables.free > 0"}},
        {"variables": {"c": "cluster"}, "match_conditions": {"c": f"variables.c.available('{MIG1}') > 0"}},
    ],
)
@pytest.mark.parametrize("of_updates", [False, True])
def test_devices_that_only_an_expression_names_are_reserved(fields: dict[str, Any], *, of_updates: bool) -> None:
    operations = (Operation.UPDATE,) if of_updates else (Operation.CREATE,)
    checks = validation("true", match=Match(namespaces=("ml",), operations=operations), **fields)
    for rule, others in ((injection({"cpu": 1}, **fields), (GPU,)), (checks, ())):
        _, validating = derive_calls(compiled(rule))
        assert validating.reserving == (rule,)
        for resource in (MIG1, *others):
            assert sent(validating, pod(container("c", {resource: 1})), namespace="other")
        assert not sent(validating, pod(container("c", {MIG2: 1})), namespace="other")


@pytest.mark.parametrize("name", ["cpu", "nvidia.com/*", ""])
def test_names_that_are_no_extended_resources_reserve_nothing(name: str) -> None:
    rule = validation(f"cluster.available('{name}') > 0", match=Match(namespaces=("ml",)))
    _, validating = derive_calls(compiled(rule))
    assert validating.reserving == ()
    assert not sent(validating, pod(container("c", {"cpu": 1, GPU: 1})), namespace="other")


def test_a_validation_gets_no_requests_of_other_operations() -> None:
    created = validation("true", match=Match(namespaces=("ml",)))
    updated = validation("true", name="other", match=Match(namespaces=("prod",), operations=(Operation.UPDATE,)))
    _, calls = derive_calls(compiled(created, updated))

    assert [
        sent(calls, asks({GPU: 1}), namespace=namespace, operation=operation.value)
        for namespace in ("ml", "prod")
        for operation in Operation
    ] == [True, False, False, True]


# The cost in the API server.


def cost(expression: str, made: Json = COSTLIEST, namespace: str = "n" * 63) -> int:
    """The cost of an expression that is false."""
    asked = {"operation": "CREATE", "namespace": namespace}
    evaluation = Evaluation(expression, {"object": made, "request": asked})
    assert evaluation.value is False
    return evaluation.cost


@pytest.mark.parametrize("rules", WIDEST.values(), ids=WIDEST.keys())
def test_the_costliest_pod_takes_half_of_the_limit_at_most(rules: list[Rule]) -> None:
    rule_set = compiled(*rules)
    _, calls = derive_calls(rule_set)
    assert calls.expression is not None
    assert calls.largest is None
    assert cost(calls.expression) < PER_CALL / 2


@pytest.mark.parametrize(
    "calls", derive_calls(read_rules([DEFAULT_RULES]).rule_set), ids=lambda calls: calls.endpoint.value
)
def test_the_conditions_of_the_default_rules_are_cheap(calls: Calls) -> None:
    assert calls.expression is not None
    assert cost(calls.expression, COSTLIEST_WITHOUT_DEVICES) < PER_CALL / 2


def test_the_guard_sends_larger_pods_without_a_look_at_their_names() -> None:
    _, calls = derive_calls(compiled(validation("true", match=Match(resources=("a/*", "b/x")))))
    assert sent(calls, asks({"a/x": 1}))
    assert not sent(calls, asks({"c/x": 1}))
    assert not sent(calls, COSTLIEST)
    assert not sent(calls, pod(*[container(f"c{n}") for n in range(COMPARED_CONTAINERS)]))
    assert sent(calls, pod(*[container(f"c{n}") for n in range(COMPARED_CONTAINERS + 1)]))
    assert sent(calls, asks({f"c/x{n}": 1 for n in range(COMPARED_AMOUNTS + 1)}))
    assert sent(calls, asks({f"c/{'x' * LONG_NAME}": 1}))


RESOURCE_GLOBS = st.lists(st.sampled_from(["a", "/", "b.c", "*", "?", "-", "mig"]), min_size=1, max_size=5)


@given(
    glob=RESOURCE_GLOBS.map("".join),
    resource=st.lists(st.sampled_from(["a", "/", "b.c", "-", "mig", "x"]), min_size=1, max_size=6).map("".join),
)
def test_a_glob_of_resources_keeps_no_matching_pod_away(glob: str, resource: str) -> None:
    rule = validation("false", match=Match(resources=(glob,)))
    rule_set = compiled(rule)
    asked = request({"metadata": {}, "spec": {"containers": [{"name": "c", "resources": {"limits": {resource: "0"}}}]}})
    step = rule_set.validate(asked, Cluster()).trace[0]
    assert (step.action is Action.DENY) == fnmatchcase(resource, glob)
    if step.action is not Action.SKIP:
        assert sent(derive_calls(rule_set)[1], asked.object)


AFFECTED = 13_000
RULE_SETS = 130


def test_no_affected_pod_of_thousands_is_kept_away(run_seed: int) -> None:
    """Pods that a rule changes, denies or warns of, drawn at random, and conditions of random rules.

    They are evaluated by our CEL, and by Google's where it is installed.
    """
    source, other = Random(run_seed), google("request")
    affected = narrow = 0
    while affected < AFFECTED:
        rule_set = compiled(*drawn_rules(source))
        endpoints = [*zip((RuleSet.mutate, RuleSet.validate), derive_calls(rule_set), strict=True)]
        goal = affected + AFFECTED // RULE_SETS
        for _ in range(1000):
            namespace, operation = source.choice(["ml", "x-ml", "prod"]), source.choice(["CREATE", "UPDATE"])
            asked = request(drawn_pod(source), namespace=namespace, operation=operation)
            for decide, calls in endpoints:
                if not relevant_rules(decide(rule_set, asked, NODES)):
                    continue
                affected += 1
                narrow += calls.expression is not None
                called = [sent(each, asked.object, namespace=namespace, operation=operation) for each in calls.webhooks]
                assert called.count(True) == 1
                if other is not None:
                    activation = {"object": asked.object, "request": {"operation": operation, "namespace": namespace}}
                    for text in (text for each in calls.webhooks for text in condition_texts(each)):
                        assert other(text, activation) == (True, holds(text, asked.object, namespace, operation))
            if affected >= goal:
                break
    assert narrow > AFFECTED / 2


NODES = Cluster(nodes=(node("a", {GPU: 4}), node("b", {MIG1: 7})))
NAMES = (GPU, MIG1, MIG2, "amd.com/gpu", "rdma/hca", "cpu", "memory")


def drawn_rules(source: Random) -> list[Rule]:
    def match(*, update: bool = False) -> Match:
        globs = ["*/*", "nvidia.com/*", "*gpu", "nvidia.com/mig-?g.*", *NAMES]
        return Match(
            namespaces=source.choice([("*",), ("*",), ("ml",), ("m?", "x-*")]),
            exclude_namespaces=source.choice([(), (), ("x-*",)]),
            object_selector=source.choice(SELECTORS),
            resources=tuple(source.sample(globs, source.randint(0, 3))) if update else (),
            operations=source.choice([(Operation.CREATE,), tuple(Operation)]) if update else (Operation.CREATE,),
        )

    rungs = [source.sample(NAMES[:5], 3) for _ in range(2)]
    wide = [pod_defaults(f"d{n}", match=match()) for n in range(source.randint(0, 2))]
    return [
        *wide,
        *(ladder(*names, name=f"l{n}", match=match()) for n, names in enumerate(rungs)),
        injection({"cpu": 2}, gpu_type=source.choice([None, "T4"]), gpu_type_annotation="a/b", match=match()),
        *(validation("false", name=f"v{n}", match=match(update=True)) for n in range(2)),
    ]


def drawn_pod(source: Random) -> dict[str, Json]:
    def some(label: str) -> dict[str, Json]:
        amounts = {source.choice(NAMES): source.choice(["0", "1", "2"]) for _ in range(source.randint(0, 3))}
        return container(label, **{source.choice(["both", "limits", "requests"]): amounts})  # type: ignore[arg-type]

    init = [some("i")] if source.random() < 0.3 else []
    labels = source.choice([None, {}, {"team": "ml"}, {"team": "", "x'\\/y": ""}])
    return pod(some("a"), some("b"), init=init, labels=labels, annotations=source.choice([None, {"a/b": "T4"}]))


# The configurations themselves.


def both(*rules: Rule, settings: Settings = SETTINGS) -> tuple[dict[str, Any], dict[str, Any]]:
    mutating, validating = build_configurations(compiled(*rules), settings)
    return mutating, validating


def test_a_configuration_has_all_that_the_api_server_needs() -> None:
    mutating, validating = both(ladder(GPU), validation("true"))

    (webhook,) = mutating["webhooks"]
    assert webhook["clientConfig"] == {
        "service": {"name": "gpu-rules", "namespace": "gpu-system", "port": 443, "path": "/mutate"}
    }
    assert webhook["reinvocationPolicy"] == "IfNeeded"
    assert webhook["sideEffects"] == "NoneOnDryRun"
    assert webhook["matchPolicy"] == "Equivalent"
    assert webhook["rules"][0]["resources"] == ["pods"]
    assert webhook["namespaceSelector"]["matchExpressions"][0]["values"] == ["gpu-system", "kube-system"]
    assert len(webhook["matchConditions"]) == 1
    (other,) = validating["webhooks"]
    assert "reinvocationPolicy" not in other
    assert other["clientConfig"]["service"]["path"] == "/validate"
    assert other["matchConditions"] == []


def test_a_validation_at_update_gets_resizes_but_no_deletions() -> None:
    updated = validation("true", match=Match(operations=tuple(Operation), namespaces=("ml",)))
    mutating, validating = both(ladder(GPU), updated)

    (webhook,) = validating["webhooks"]
    assert webhook["rules"][0]["resources"] == ["pods", "pods/resize"]
    assert [condition["name"] for condition in webhook["matchConditions"]] == [
        "not-being-deleted",
        "requests-a-resource-of-a-rule",
    ]
    assert mutating["webhooks"][0]["rules"][0]["resources"] == ["pods"]
    assert [condition["name"] for condition in mutating["webhooks"][0]["matchConditions"]] == [
        "requests-a-resource-of-a-rule"
    ]


@pytest.mark.parametrize(
    ("operation", "metadata", "expected"),
    [
        ("UPDATE", {}, True),
        ("UPDATE", {"deletionTimestamp": "2026-01-01T00:00:00Z"}, False),
        ("CREATE", {"deletionTimestamp": "2026-01-01T00:00:00Z"}, True),
    ],
)
def test_the_condition_on_deletion_is_about_updates_only(
    operation: str, metadata: dict[str, Json], *, expected: bool
) -> None:
    _, validating = both(validation("true", match=Match(operations=tuple(Operation))))
    (condition,) = validating["webhooks"][0]["matchConditions"]
    program = compile_expression(cel(condition["expression"]), KUBERNETES, result=types.BOOL)

    activation: dict[str, object] = {"object": {"metadata": metadata}, "request": {"operation": operation}}
    assert program.evaluate(activation, Budget()) is expected


def test_the_digest_differs_from_that_without_resizes() -> None:
    _, created = derive_calls(compiled(validation("true")))
    _, updated = derive_calls(compiled(validation("true", match=Match(operations=tuple(Operation)))))

    assert created.digest != updated.digest


@pytest.mark.parametrize("output", ["yaml", "helm-values"])
def test_without_any_rule_nothing_is_printed(tmp_path: Path, output: str) -> None:
    (tmp_path / "job.yaml").write_text("apiVersion: batch/v1\nkind: Job\nmetadata: {name: a}\n")
    result = cli("webhook-config", "--rules", tmp_path / "job.yaml", "--output", output)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "no rule found" in result.stderr


def test_an_endpoint_that_no_rule_needs_gets_no_webhook() -> None:
    mutating, validating = both(ladder(GPU))

    assert len(mutating["webhooks"]) == 1
    assert validating["webhooks"] == []


@pytest.mark.parametrize(
    ("operations", "what"), [((Operation.CREATE,), "created"), (tuple(Operation), "created or updated")]
)
def test_an_outage_that_blocks_every_pod_is_warned_of(operations: tuple[Operation, ...], what: str) -> None:
    wide = compiled(validation("true", match=Match(operations=operations)))
    fail = dict.fromkeys(Endpoint, "Fail")
    (warning,) = webhooks.fail_policy_warnings(wide, fail)
    assert warning == (
        "every pod is sent to /validate, whose failurePolicy is Fail: while the server does not answer, "
        f"no pod is {what}, except in the excluded namespaces"
    )
    assert webhooks.fail_policy_warnings(wide, {}) == ()
    assert webhooks.fail_policy_warnings(compiled(ladder(GPU)), fail) == ()


# The command.

COMMAND = ("webhook-config", "--rules", DEFAULT_RULES)


def test_the_command_prints_two_documents_and_warns_on_stderr() -> None:
    result = cli(*COMMAND, "--namespace", "gpu-system")

    mutating, validating = yaml.safe_load_all(result.stdout)
    assert (mutating["kind"], validating["kind"]) == ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
    assert mutating == both_of_default(Settings(server=SETTINGS.server, namespace="gpu-system"))[0]
    rule_set = read_rules([DEFAULT_RULES]).rule_set
    assert warnings(rule_set) == []
    assert result.stderr == "".join(f"warning: {text}\n" for text in webhooks.ignore_policy_warnings(rule_set, {}))


def test_check_and_webhook_config_print_the_same_warnings(tmp_path: Path) -> None:
    match = "{resources: ['*-gpu-*', '*-mig-*', '*-vf-*', '*-tpu-*']}"
    write(tmp_path, {"v.yaml": validation_text("v", "1 == 1", match=match)})

    checked, printed = cli("check", tmp_path), cli("webhook-config", "--rules", tmp_path)
    (line, *shown) = printed.stderr.splitlines()[:3]
    assert line.startswith(f"{tmp_path}/v.yaml:3:18: warning: every pod is sent to /validate: the rules name too much")
    assert line.endswith("[every-pod]")
    assert checked.stdout.splitlines()[:3] == [line, *shown]


def both_of_default(settings: Settings) -> tuple[dict[str, Json], ...]:
    return build_configurations(read_rules([DEFAULT_RULES]).rule_set, settings)


def test_json_output_is_a_list_of_both_configurations() -> None:
    made = json.loads(cli(*COMMAND, "--output", "json").stdout)

    assert made["kind"] == "List"
    assert [item["kind"] for item in made["items"]] == [
        "MutatingWebhookConfiguration",
        "ValidatingWebhookConfiguration",
    ]


@pytest.mark.parametrize(
    ("options", "policies"),
    [
        ([], ("Ignore", "Ignore")),
        (["--failure-policy", "Fail"], ("Fail", "Fail")),
        (["--validating-failure-policy", "Fail"], ("Ignore", "Fail")),
        (["--mutating-failure-policy", "Fail"], ("Fail", "Ignore")),
        (["--failure-policy", "Fail", "--mutating-failure-policy", "Ignore"], ("Ignore", "Fail")),
    ],
)
@pytest.mark.parametrize("output", ["yaml", "json", "helm-values"])
def test_each_endpoint_has_a_failure_policy_of_its_own(
    options: list[str], policies: tuple[str, str], output: str
) -> None:
    result = cli(*COMMAND, *options, "--output", output)
    if output == "helm-values":
        values = yaml.safe_load(result.stdout)["webhook"]
        found = tuple(values[key].get("failurePolicy") for key in ("mutating", "validating"))
        # What is not given here is left to the other values of a release.
        assert found == tuple(policy if options and set(options) & {flag, "--failure-policy"} else None
                              for policy, flag in zip(policies, BOTH_FLAGS, strict=True))  # fmt: skip
    else:
        made = json.loads(result.stdout)["items"] if output == "json" else list(yaml.safe_load_all(result.stdout))
        assert tuple(item["webhooks"][0]["failurePolicy"] for item in made) == policies
    assert ("unless other values set" in result.stderr) == (
        output == "helm-values" and "--failure-policy" not in options
    )
    for endpoint, policy in zip(("/mutate", "/validate"), policies, strict=True):
        assert (f"the failurePolicy of {endpoint} is Ignore" in result.stderr) == (policy == "Ignore")


BOTH_FLAGS = ("--mutating-failure-policy", "--validating-failure-policy")


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (validation("true"), "Validation/validation"),
        (validation("true", validation_actions=frozenset({ValidationAction.WARN})), None),
        (validation("true", mode=Mode.AUDIT), None),
        (validation("true", mode=Mode.OFF), None),
        (ladder(GPU), None),
        (ladder(GPU, when_exhausted=WhenExhausted.DENY), "FallbackLadder/ladder"),
        (ladder(GPU, when_exhausted=WhenExhausted.DENY, mode=Mode.AUDIT), None),
        (injection({"cpu": 1}), "ResourceInjection/injection"),
        (injection({}), None),
        (injection({"cpu": 1}, mode=Mode.AUDIT), None),
    ],
)
def test_rules_that_can_deny_are_named_where_nothing_enforces_them(rule: Rule, expected: str | None) -> None:
    rule_set = compiled(rule)
    found = webhooks.ignore_policy_warnings(rule_set, {})

    assert [text.partition(" can deny a pod")[0] for text in found] == ([expected] if expected else [])
    assert webhooks.ignore_policy_warnings(rule_set, dict.fromkeys(Endpoint, "Fail")) == ()
    values: Any = webhooks.helm_values(rule_set, {})["webhook"]
    assert values["mutating"]["denies"] + values["validating"]["denies"] == ([expected] if expected else [])


def test_pods_of_a_namespace_that_administrators_label_are_not_sent() -> None:
    for made in both_of_default(SETTINGS):
        listed: Any = made["webhooks"]
        expressions = listed[0]["namespaceSelector"]["matchExpressions"]
        assert {"key": "gpurules.io/admission", "operator": "NotIn", "values": ["disabled"]} in expressions


def test_the_chart_gets_the_conditions_and_the_digests() -> None:
    values = yaml.safe_load(cli(*COMMAND, "--output", "helm-values").stdout)["webhook"]
    mutating = both_of_default(SETTINGS)[0]

    metadata: Any = mutating["metadata"]
    listed: Any = mutating["webhooks"]
    assert values["mutating"]["digest"] == metadata["annotations"]["gpurules.io/webhook-digest"]
    assert values["mutating"]["matchConditions"] == listed[0]["matchConditions"]
    assert values["validating"]["operations"] == ["CREATE"]


def test_options_without_effect_on_helm_values_cause_a_warning() -> None:
    options = ["--timeout-seconds", "5", "--name", "mine"]
    text = "warning: {} has no effect with --output helm-values: set it in the chart's values\n"
    expected = cli(*COMMAND, *options, "--output", "helm-values").stderr
    assert all(text.format(option) in expected for option in ("--timeout-seconds", "--name"))
    assert text.format("--namespace") not in expected
    assert "has no effect" not in cli(*COMMAND, *options).stderr


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (ladder(GPU), {"nodes"}),
        (ladder(GPU, offered=Offered.AVAILABLE), {"nodes", "pods"}),
        (injection({"cpu": 1}, match=Match(namespace_selector=SELECTORS[2])), {"namespaces"}),
    ],
)
def test_the_chart_gets_what_the_server_must_be_allowed_to_read(rule: Rule, expected: set[str]) -> None:
    rights = {name: name in expected for name in ("nodes", "pods", "namespaces", "classes")}
    assert webhooks.helm_values(compiled(rule), {})["rbac"] == rights


def test_the_chart_gets_the_rules_each_file_under_a_name_of_its_own(tmp_path: Path) -> None:
    folder = write(tmp_path, {
        "a/ladder.yaml": ladder_text("one", GPU), "b/ladder.yaml": f"# é \n{ladder_text('two', GPU)}\n\n",
        "b/nodes.yaml": "apiVersion: gpurules.io/v1\nkind: ClusterInventory\nmetadata: {name: x}\nspec: {nodes: []}\n",
        "c/my rules.yaml": validation_text("v", "object.spec.containers.size() > 0"),
    })  # fmt: skip
    result = cli("webhook-config", "--rules", folder, "--output", "helm-values")
    rules = yaml.safe_load(result.stdout)["rules"]

    assert rules == {
        "ladder.yaml": (folder / "a" / "ladder.yaml").read_text(),
        "2-ladder.yaml": (folder / "b" / "ladder.yaml").read_text(),
        "my-rules.yaml": (folder / "c" / "my rules.yaml").read_text(),
    }


@given(
    made=labelled_pods(),
    changing=changing_rules(),
    defaults=st.lists(st.just(pod_defaults()), max_size=1),
    checking=checking_rules(),
    cluster=clusters(),
    namespace=NAMESPACES,
)
def test_in_audit_the_pods_that_validate_would_get_after_mutate_are_sent(
    made: dict[str, Json],
    changing: list[Rule],
    defaults: list[Rule],
    checking: list[Rule],
    cluster: Cluster,
    namespace: str,
) -> None:
    reading = validation("true", name="moved", match=Match(resources=(GPU, MIG1)))
    rule_set = compiled(*changing, *defaults, *checking, reading)
    mutate, validate = derive_calls(rule_set)
    changed = made
    if any(sent(calls, made, namespace=namespace) for calls in mutate.webhooks):
        changed = as_mapping(rule_set.mutate(request(made, namespace=namespace), cluster).result)  # type: ignore[assignment]
    if sent(validate, changed, namespace=namespace):
        _, audited = derive_calls(rule_set, audit=True)
        assert sent(audited, made, namespace=namespace)
        assert audited.digest == validate.digest


def test_rules_of_every_pod_have_no_condition_in_audit() -> None:
    every = pod_defaults()
    (_, narrow) = derive_calls(compiled(ladder(GPU), validation("true", match=Match(resources=(MIG1,)))), audit=True)
    assert "nvidia.com/gpu" in condition_texts(narrow)[0]
    (_, wide) = derive_calls(compiled(every, validation("true", match=Match(resources=(MIG1,)))), audit=True)
    assert wide.match_conditions == []
    (_, none) = derive_calls(compiled(every), audit=True)
    assert not none.operations


def test_the_mode_and_the_namespaces_of_the_server_are_in_the_webhooks() -> None:
    options = ("--mode", "Audit", "--namespaces", "ml", "nlp", "--failure-policy", "Ignore")
    result = cli("webhook-config", "--rules", "set:gpu-allocation", *options)
    assert result.stderr == ""
    for configuration in yaml.safe_load_all(result.stdout):
        for webhook in configuration["webhooks"]:
            assert webhook["failurePolicy"] == "Ignore"
            first, *others = webhook["namespaceSelector"]["matchExpressions"]
            assert first == {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["ml", "nlp"]}
            assert [each["operator"] for each in others] == ["NotIn", "NotIn"]


def test_the_server_may_be_at_a_url_with_its_ca(tmp_path: Path) -> None:
    pem = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n"
    write(tmp_path, {"ca.crt": pem})
    result = cli(
        *COMMAND, "--url", "https://127.0.0.1:8443/", "--ca-bundle", tmp_path / "ca.crt",
        "--failure-policy", "Fail", "--timeout-seconds", "3", "--name", "mine",
    )  # fmt: skip
    mutating = next(yaml.safe_load_all(result.stdout))

    client = {"url": "https://127.0.0.1:8443/mutate", "caBundle": base64.b64encode(pem.encode()).decode()}
    assert mutating["webhooks"][0]["clientConfig"] == client
    assert mutating["webhooks"][0]["failurePolicy"] == "Fail"
    assert mutating["webhooks"][0]["timeoutSeconds"] == 3
    assert mutating["metadata"]["name"] == "mine"


@pytest.mark.parametrize(("text", "port"), [("web/sys", 443), ("web/sys/8443", 8443)])
def test_the_server_may_be_behind_any_service(text: str, port: int) -> None:
    mutating = next(yaml.safe_load_all(cli(*COMMAND, "--service", text).stdout))

    service = {"name": "web", "namespace": "sys", "port": port, "path": "/mutate"}
    assert mutating["webhooks"][0]["clientConfig"]["service"] == service


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--url", "http://x"], "must begin with https://"),
        (["--url", "https://x", "--service", "a/b"], "cannot be used together"),
        (["--mode", "Audit", "--validating-failure-policy", "Fail"], "with --mode Audit, every failure policy is"),
        (["--native", "--mode", "Audit"], "not with --mode Audit or --namespaces"),
        (["--native", "--namespaces", "ml"], "not with --mode Audit or --namespaces"),
        (["--namespaces", "m*"], "'m*' is not a valid namespace name"),
        (["--service", "a"], "is not NAME/NAMESPACE"),
        (["--service", "-a/b"], "is not NAME/NAMESPACE"),
        (["--name", "Foo Bar"], "'Foo Bar' is not a valid object name: lower-case letters"),
        (["--name", "a..b"], "'a..b' is not a valid object name"),
        (["--name", "a" * 254], "is not a valid object name"),
        (["--name", "a\n"], "is not a valid object name"),
        (["--namespace", "a.b"], "'a.b' is not a valid namespace name: lower-case letters"),
        (["--namespace", ""], "'' is not a valid namespace name"),
        (["--namespace", "a" * 64], "is not a valid namespace name"),
        (["--service", "a/b/0"], "is not NAME/NAMESPACE"),
        (["--service", "a/b/65536"], "is not NAME/NAMESPACE"),
        (["--ca-bundle", str(DEFAULT_RULES / "t4.yaml")], "must hold PEM certificates"),
        (["--url", "https://x", "a"], "Got unexpected extra argument"),
    ],
)
def test_a_usage_error_is_reported(arguments: list[str], expected: str) -> None:
    result = cli(*COMMAND, *arguments)

    assert result.exit_code == 2
    assert expected in result.stderr


def test_rules_with_errors_give_no_configuration(tmp_path: Path) -> None:
    write(tmp_path, {"a.yaml": validation_text("v", "nothing == 1")})
    result = cli("webhook-config", "--rules", tmp_path)

    assert result.exit_code == 2
    assert result.stdout == ""
    assert "cel-undeclared" in result.stderr
