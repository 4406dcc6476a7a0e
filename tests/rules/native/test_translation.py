"""Translations of rules: reasons to stay, and the objects of the rules that are exported."""

from pathlib import Path
from typing import Any

import pytest

from rules_engine.cluster.nodes import NodeFilter, NodeRequirement, Offered
from rules_engine.exports.offers import MAX_SHAPES, build_offers
from rules_engine.exports.policies import MAX_RULES, NativeObjects
from rules_engine.exports.settings import Settings
from rules_engine.model.kubernetes.cluster import UNKNOWN_CLUSTER
from rules_engine.model.rules.rule import SKIP_ANNOTATION, FailurePolicy, Match, Mode, Operation, OptOut, Rule
from rules_engine.rules.injection.value import InitContainers, OnConflict
from rules_engine.rules.ladder.native import MAX_RUNGS
from rules_engine.rules.ladder.value import FALLBACK_ANNOTATION, WhenExhausted
from rules_engine.rules.native.cel_text import ADDED_CONTAINERS, grouped
from rules_engine.rules.native.policy import translate_rules
from tests.support.evaluation import (
    GPU,
    HCA,
    MIG1,
    MIG2,
    MIG3,
    check,
    cluster,
    compiled,
    container,
    entry,
    injection,
    ladder,
    pod,
    rung,
    validation,
)
from tests.support.loading import load_view
from tests.support.native import admitted

IGNORE = FailurePolicy.IGNORE
POOL = "pool: what pods select nodes by is not translated"
NEWER = "cel.bind and messages are not in Kubernetes 1.36"
CONDITION = {"c": "object.metadata.name == 'a'"}


def reasons(*rules: Rule) -> dict[str, str]:
    """Return the reason of each rule that stays, by name."""
    return {each.rule.name: each.reason for each in translate_rules(compiled(*rules)).staying}


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        (ladder(rung(GPU, pool=(("a", "b"),), name="p"), name="x"), POOL),
        (ladder(GPU, offered=Offered.AVAILABLE, name="x"), "offered: Available: free devices change with every pod"),
        (
            ladder(GPU, nodes=NodeFilter(require=frozenset({NodeRequirement.MATCHES_POD})), name="x"),
            "MatchesPod: the nodes that count differ by pod",
        ),
        (ladder(GPU, mode=Mode.AUDIT, name="x"), "mode: Audit: policies that change pods have no such mode"),
        (
            ladder(
                GPU,
                when_exhausted=WhenExhausted.DENY,
                match_conditions={"c": "'a' in object.metadata.?annotations.orValue({})"},
                name="x",
            ),
            "whenExhausted: Deny is checked after all rules, and it matches or reads what rules change",
        ),
        (
            ladder(GPU, MIG1, when_exhausted=WhenExhausted.DENY, match=Match(resources=("amd.com/*", GPU)), name="x"),
            "whenExhausted: Deny is checked after all rules, and it matches or reads what rules change",
        ),
        (
            ladder(*(f"a.b/{index}" for index in range(MAX_RUNGS + 1)), name="x"),
            "a large pod would exceed the cost limits of the API server with more than 10 rungs",
        ),
        (
            injection({"hugepages-2Mi": "2Mi"}, on_conflict=OnConflict.KEEP, name="x"),
            "onConflict: Keep of huge pages depends on the pod level",
        ),
        (injection({"memory": "10Pi"}, name="x"), "coefficients.memory is too large or too fine for CEL's integers"),
        (injection({"a.b/c": "1u"}, name="x"), "coefficients.a.b/c is too large or too fine for CEL's integers"),
        (
            validation(f"cluster.available('{GPU}') > 1", name="x"),
            "an expression reads free amounts, or computes the name of a resource",
        ),
        (
            validation("cluster.total(object.metadata.name) > 1", name="x"),
            "an expression reads free amounts, or computes the name of a resource",
        ),
        (validation("[1].reverse() == [1]", name="x"), "reverse() of strings is not in Kubernetes 1.36"),
        (validation("math.abs(1) == 1", name="x"), "math.abs() is not in Kubernetes 1.36"),
        (validation("cel.bind(x, 1, x == 1)", name="x"), NEWER),
        (validation("google.protobuf.BoolValue{value: true} == true", name="x"), NEWER),
        (validation("{'a.b': 1}.`a.b` == 1", name="x"), "names in backquotes are not in Kubernetes 1.36"),
        (validation("variables.size() == 1", name="x", variables={"a": "1"}),
         "an expression reads variables as a whole"),
    ],
)  # fmt: skip
def test_a_rule_stays_for_a_reason(rule: Rule, reason: str) -> None:
    assert reasons(rule) == {"x": reason}


def test_a_rule_stays_if_one_before_it_stays_that_may_change_the_same_pods() -> None:
    first = ladder(GPU, offered=Offered.AVAILABLE, name="a", match=Match(namespaces=("a", "b")))
    apart = ladder(MIG1, name="b", match=Match(namespaces=("c",)))
    after = injection({"cpu": 1}, name="c")

    assert reasons(first, apart, after).keys() == {"a", "c"}
    assert reasons(first, apart, after)["c"] == "FallbackLadder/a is evaluated before it, and stays with the webhook"


def test_ladders_of_the_same_resource_stay_if_the_first_fails_or_matches_what_rules_change() -> None:
    def second(first: Rule, **fields: Any) -> str:
        return reasons(first, ladder(MIG3, GPU, name="b", **fields)).get("b", "")

    changes = "FallbackLadder/a decides the resources that they share, depending on what rules may change"
    fails = "FallbackLadder/a may fail and be ignored: only then, it does not decide the resources that they share"
    assert second(ladder(MIG2, GPU, name="a")) == ""
    assert second(ladder(MIG2, GPU, name="a"), when_exhausted=WhenExhausted.DENY) == ""
    assert second(ladder(MIG2, GPU, name="a"), failure_policy=IGNORE) == ""
    assert second(ladder(MIG2, GPU, name="a", failure_policy=IGNORE)) == fails
    assert second(ladder(MIG2, GPU, name="a", match=Match(resources=(GPU,)))) == changes
    condition = "object.metadata.?annotations[?'{}'].orValue('') == 'x'"
    named = ladder(MIG2, GPU, name="a", match_conditions={"c": condition.format("a/b")})
    assert second(named) == ""
    assert second(named, when_exhausted=WhenExhausted.DENY) == changes
    assert second(ladder(MIG2, GPU, name="a", match_conditions={"c": condition.format(FALLBACK_ANNOTATION)})) == changes
    failing = ladder(MIG2, GPU, name="a", match_conditions=CONDITION, failure_policy=IGNORE)
    assert second(failing, failure_policy=IGNORE) == fails


def test_injections_of_different_gpu_resources_stay() -> None:
    rules = [injection({"cpu": 1}, name=name, gpu_resource=name) for name in ("a.b/c", "a.b/d")]

    assert list(reasons(*rules).values()) == [
        "ResourceInjection/a.b/d injects for a.b/d: a pod that requests both is denied",
        "ResourceInjection/a.b/c is evaluated before it, and stays with the webhook",
    ]


def test_an_injection_stays_if_its_decision_depends_on_expressions_of_another_one() -> None:
    reading = {"c": "has(object.metadata.annotations)"}
    rules = [injection({"cpu": 1}, name=name, match_conditions=reading) for name in "ab"]
    failing = [injection({"cpu": 1}, name=name, match_conditions=CONDITION, failure_policy=IGNORE) for name in "ab"]

    assert reasons(*rules)["a"] == "it matches or reads what another injection for the same pods may change"
    assert reasons(*failing) == {"b": "expressions of ResourceInjection/a may fail, and then this injection decides"}


def test_an_injection_stays_if_another_one_writes_the_annotation_that_it_matches_by() -> None:
    first = injection({"cpu": 1}, name="a", annotations={injection().gpu_type_annotation: "T4"})
    second = injection({"cpu": 2}, name="b", gpu_type="T4")
    text = "writes an annotation by which the other one matches pods"

    assert reasons(first, second) == {
        "a": f"ResourceInjection/a or ResourceInjection/b {text}",
        "b": f"ResourceInjection/b or ResourceInjection/a {text}",
    }
    assert reasons(first) == {}


def test_a_ladder_that_denies_may_match_all_its_resources() -> None:
    match = Match(resources=("nvidia.com/*",))

    assert reasons(ladder(GPU, MIG1, when_exhausted=WhenExhausted.DENY, match=match)) == {}


def test_a_rule_that_ignores_errors_stays_beside_one_that_does_not_if_it_has_expressions() -> None:
    ignoring = ladder(GPU, name="a", failure_policy=IGNORE, match_conditions=CONDITION)
    failing = injection({"cpu": 1}, name="b")

    assert "failurePolicy: Ignore" in reasons(ignoring, failing)["a"]
    assert reasons(ignoring) == {}
    assert translate_rules(compiled(ignoring)).failure_policy is IGNORE


def objects(*rules: Rule) -> list[Any]:
    return [*NativeObjects(translate_rules(compiled(*rules)), "digest", Settings()).policies()]


def test_objects_have_the_digest_and_are_in_a_stable_order() -> None:
    rules = [
        ladder(MIG1, GPU, name="l"),
        validation("true", name="b"),
        validation("true", name="a"),
        injection({"cpu": 1}, name="i.x"),
        injection({"cpu": 2}, name="i-x"),
    ]
    made = objects(*rules)

    assert made == objects(*reversed(rules))
    assert [(each["kind"], each["metadata"]["name"]) for each in made] == [
        ("CustomResourceDefinition", "gpuoffers.gpurules.io"),
        ("MutatingAdmissionPolicy", "gpu-rules"),
        ("MutatingAdmissionPolicyBinding", "gpu-rules"),
        ("ValidatingAdmissionPolicy", "gpu-rules-warnings"),
        ("ValidatingAdmissionPolicyBinding", "gpu-rules-warnings"),
        ("ValidatingAdmissionPolicy", "gpu-rules-deny-fail"),
        ("ValidatingAdmissionPolicyBinding", "gpu-rules-deny-fail"),
    ]
    assert {each["metadata"]["annotations"]["gpurules.io/rules-digest"] for each in made} == {"digest"}
    names = [each["name"] for each in made[1]["spec"]["variables"]]
    assert len(set(names)) == len(names)
    assert "(// FallbackLadder/l\n" in made[1]["spec"]["mutations"][0]["jsonPatch"]["expression"]
    assert objects() == []


def test_a_ladder_without_offers_leaves_pods_as_they_are() -> None:
    made = pod(container("c0", {MIG2: 1}))
    for offers in ({"known": True}, {"known": False}, {"known": True, "ladders": {}}):
        outcome = admitted(objects(ladder(MIG2, GPU)), made, offers=offers)
        assert (outcome.pod, outcome.denied) == (made, [])


def test_expressions_of_validations_keep_their_text() -> None:
    text = "variables.n > 1 || object.spec.hostIPC"
    (policy, binding) = objects(validation(text, name="a", variables={"n": "size(object.spec.containers)"}))

    assert policy["spec"]["variables"] == [
        {"name": "validation_a_VAR_n", "expression": "size(object.spec.containers)"},
        {"name": "validation_a_applies", "expression": "true"},
    ]
    expected = text.replace("variables.n", "variables.validation_a_VAR_n")
    assert policy["spec"]["validations"][0]["expression"] == f"variables.validation_a_applies ? ({expected}) : true"
    assert binding["spec"] == {"policyName": "gpu-rules-deny-fail", "validationActions": ["Deny"]}


@pytest.mark.parametrize(
    ("text", "native"),
    [
        ("[1, 2].size() == 2", "[1, 2].size() == 2"),
        ("[object.metadata.name].size() == 1", "[object.metadata.name].size() == 1"),
        ("[1, object.metadata.name].size() == 2", "[dyn(1), dyn(object.metadata.name)].size() == 2"),
        ("[(1), params.a // a\n].size() == 2", "[dyn((1)), dyn(variables.validation_a_params.a) // a\n].size() == 2"),
        ("[1, ?optional.of([1, 'a'])].size() == 2", "[dyn(1), ?dyn(optional.of([dyn(1), dyn('a')]))].size() == 2"),
        ("{'a': 1, 'b': true}.size() == 2", "{'a': dyn(1), 'b': dyn(true)}.size() == 2"),
        ("{'a': 1, 2: 3}.size() == 2", "{dyn('a'): 1, dyn(2): 3}.size() == 2"),
    ],
)
def test_members_of_literals_are_dyn_if_their_types_may_differ(text: str, native: str) -> None:
    policy, _ = objects(validation(text, name="a", params={"a": 1}))

    assert (
        policy["spec"]["validations"][0]["expression"] == f"variables.validation_a_applies ? {grouped(native)} : true"
    )


def test_offers_have_the_largest_shapes_of_nodes() -> None:
    native = translate_rules(compiled(ladder(MIG2, GPU, name="l"), validation(f"cluster.total('{GPU}') > 1")))
    on = cluster({GPU: 4}, {GPU: 2}, {GPU: 4}, {MIG2: 3, GPU: 1}, {MIG1: 7})

    assert build_offers(native, on) == {
        "known": True,
        "ladders": {"l": [{MIG2: 3, GPU: 1}, {GPU: 4}]},
        "allocatable": {},
        "total": {GPU: 11},
    }
    unknown = build_offers(native, UNKNOWN_CLUSTER)
    assert unknown == {"known": False, "ladders": {}, "allocatable": {}, "total": {}}


def test_offers_leave_out_ladders_whose_nodes_are_too_different_or_have_drivers() -> None:
    native = translate_rules(compiled(ladder(MIG2, GPU, name="l")))
    different = cluster(*({GPU: index, MIG2: MAX_SHAPES - index} for index in range(MAX_SHAPES + 1)))

    too_many = f"its nodes have more than {MAX_SHAPES} shapes"
    assert build_offers(native, different)["omitted"] == {"FallbackLadder/l": too_many}
    served, problems, _ = load_view(Path("rules_engine/inventories/dra-h100.yaml"))
    assert served is not None
    assert not problems
    assert build_offers(native, served)["omitted"] == {"FallbackLadder/l": f"drivers serve {MIG2}"}


def test_offers_leave_out_resources_of_which_it_is_not_known_what_drivers_offer() -> None:
    checks = validation(f"cluster.total('{GPU}') + cluster.allocatable('{MIG1}') > 1")
    native = translate_rules(compiled(ladder(MIG2, GPU, name="l"), ladder(MIG1, name="m"), checks))
    on = cluster({GPU: 4, MIG1: 7}, unread=frozenset([GPU]))

    assert build_offers(native, on) == {
        "known": True,
        "ladders": {"m": [{MIG1: 7}]},
        "allocatable": {MIG1: 7},
        "total": {},
        "omitted": dict.fromkeys(
            ("FallbackLadder/l", "Validation/validation"), f"it is not known what drivers offer of {GPU}"
        ),
    }


def test_pods_with_too_many_containers_are_refused_or_left_alone_as_by_the_webhook() -> None:
    large = pod(*(container(f"c{index}", {MIG1: 1}) for index in range(257)))
    failing, ignoring = ladder(MIG1, GPU, name="a"), ladder(MIG1, GPU, name="a", failure_policy=IGNORE)
    offers = build_offers(translate_rules(compiled(failing)), cluster({GPU: 999}))

    (message,) = admitted(objects(failing), large, offers=offers).denied
    assert "containers and …: the string is not an int" in message
    for rules in ([ignoring], [ignoring, injection({"cpu": 1}, gpu_resource="a.b/c")]):
        outcome = admitted(objects(*rules), large, offers=offers)
        assert (outcome.denied, outcome.pod) == ([], large)


def test_the_final_pod_is_denied_with_the_message_of_the_rule() -> None:
    denying = ladder(MIG1, MIG2, name="l", when_exhausted=WhenExhausted.DENY, opt_out=OptOut.FORBIDDEN)
    made = pod(container("c", {MIG1: 1, MIG2: 5}))
    offers = build_offers(translate_rules(compiled(denying)), cluster({MIG2: 4}))
    assert admitted(objects(denying), made, offers=offers).denied == [
        f"no rung can serve {MIG2}, {MIG1} for pod ml/job"
    ]

    rule = injection(
        {"cpu": "1500u", "memory": "1G"},
        gpu_type=None,
        init_containers=InitContainers.DENY,
        namespaces={"other": entry({"cpu": 1})},
    )
    init = container("i", {GPU: 1})
    denied = admitted(objects(rule), pod(container("c", {GPU: 1}), init=[init])).denied
    assert denied == [f"pod ml/job requests {GPU} in the init container i (initContainers: Deny)"]
    greedy = pod(container("c", {GPU: 1}), container("d", {"memory": "2G", "cpu": "2m"}))
    assert admitted(objects(rule), greedy).denied == ["pod ml/job resource cpu, memory too large"]


def test_a_message_is_that_of_the_check_where_its_expression_fails() -> None:
    failing = validation(check("false", message_expression="object.metadata.labels['a']", message="static"))
    bare = validation(check("false", message_expression="object.metadata.name"))

    assert admitted(objects(failing), pod(container())).denied == ["Validation/validation: static"]
    assert admitted(objects(bare), pod(container())).denied == ["Validation/validation: job"]


def test_warnings_are_shown_by_a_policy_of_their_own() -> None:
    skipping = {SKIP_ANNOTATION: "yes"}
    rules = [ladder(MIG1, GPU, name="l"), injection({"cpu": 1}, name="i", gpu_type=None, opt_out=OptOut.FORBIDDEN)]
    unknown = build_offers(translate_rules(compiled(*rules)), UNKNOWN_CLUSTER)
    known = build_offers(translate_rules(compiled(*rules)), cluster({GPU: 2, MIG1: 1}))
    init = [container("i", {GPU: 1}), container("s", {GPU: 1}, sidecar=True)]

    def warned(offers: Any, other: str = "cpu", **fields: Any) -> list[str]:
        made = pod(container("c", {GPU: 1, MIG1: 1, other: 1}), **fields)
        return admitted(objects(*rules), made, offers=offers).warned

    assert warned(known) == []
    assert warned(known, HCA) == ["FallbackLadder/l left the pod as it is: it requests other extended resources"]
    assert warned(unknown) == ["FallbackLadder/l left the pod as it is: the nodes of the cluster are not known"]
    assert warned(known, annotations={SKIP_ANNOTATION: "true"}) == [
        "ResourceInjection/i cannot be skipped by the annotation gpurules.io/skip"
    ]
    assert (
        warned(known, annotations=skipping)
        == ['the annotation gpurules.io/skip has no effect: its value must be "true"'] * 2
    )
    (text,) = warned(known, init=init)
    assert text.startswith(
        "ResourceInjection/i injects nothing into the init container i, the sidecar s, which requests"
    )


def matched(rule: Rule, made: Any, **values: Any) -> bool:
    """Return True if the last policy of a rule evaluates its checks or mutations for a pod."""
    policy = [each for each in objects(rule) if each["kind"].endswith("Policy")][-1]
    # A failing check shows that the match conditions hold.
    policy["spec"]["validations"] = [{"expression": "false", "message": "matched"}]
    binding = {"kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "b"}, "spec": {
        "policyName": policy["metadata"]["name"], "validationActions": ["Deny"]}}  # fmt: skip
    return bool(admitted([{**policy, "kind": "ValidatingAdmissionPolicy"}, binding], made, **values).denied)


def test_policies_match_only_pods_that_a_rule_may_change_or_deny() -> None:
    denying = ladder(MIG1, MIG2, name="l", when_exhausted=WhenExhausted.DENY, opt_out=OptOut.FORBIDDEN)
    offers = build_offers(translate_rules(compiled(denying)), cluster({MIG1: 4}))
    assert not matched(denying, pod(container("c", {MIG1: 4})), offers=offers)
    assert matched(denying, pod(container("c", {MIG1: 3}), container("d", {MIG1: 2})), offers=offers)
    assert not matched(denying, pod(container("c", {"cpu": 1})), offers=offers)

    rule = injection({"cpu": 2}, gpu_type=None)
    assert not matched(rule, pod(container("c", {GPU: 1}), container("d", {"cpu": 1})))
    assert matched(rule, pod(container("c", {GPU: 1}), container("d", {"cpu": 2})))
    reading = injection({"cpu": 2}, gpu_type=None, match_conditions=CONDITION)
    assert matched(reading, pod(container("c", {GPU: 1})))

    few = validation("variables.n < params.most", name="a", variables={"n": "object.spec.containers.size()"},
                     params={"most": 2}, match_conditions=CONDITION)  # fmt: skip
    one, two = pod(container("c"), name="a"), pod(container("c"), container("d"), name="a")
    assert not matched(few, one)
    assert matched(few, two)
    assert not matched(few, pod(container("c"), container("d"), name="b"))


@pytest.mark.parametrize(
    "expression",
    [
        "namespaceObject.metadata.name == 'ml'",
        "[1].all(object, variables.a == 1)",
        "variables.l.size() == 1 && variables.l[0] == 1",
        "optional.of(1).optMap(object, variables.a).orValue(1) == 1",
        "object.spec.containers.all(c, variables.a == 1)",
        "variables.z == 1",
    ],
)
def test_checks_that_match_conditions_cannot_read_are_checked_for_every_pod(expression: str) -> None:
    variables = {
        "a": "object.spec.containers.size()",
        "l": "object.spec.containers.map(c, 1)",
        "z": f"{[1] * 2000}.size()",
    }

    assert matched(validation(expression, name="a", variables=variables), pod(container("c")))


def test_a_large_pod_is_matched_by_every_policy() -> None:
    made = pod(*(container(f"c{index}") for index in range(ADDED_CONTAINERS + 1)))
    assert matched(validation("object.spec.containers.size() > 1"), made)


def test_rules_of_one_outcome_share_policies_of_limited_size() -> None:
    both, updates = (Operation.CREATE, Operation.UPDATE), (Operation.UPDATE,)
    rules = [
        *(validation("true", name=f"v{index:02}") for index in range(MAX_RULES + 1)),
        validation(f"cluster.total('{GPU}') > 1", name="w"),
        validation("true", name="x", match=Match(operations=both)),
        validation("true", name="z", match=Match(operations=both[::-1])),
        *(validation("true", name=name, failure_policy=IGNORE) for name in "pq"),
        validation("true", name="y", match=Match(operations=updates), failure_policy=IGNORE, mode=Mode.AUDIT),
        ladder(GPU, name="l", when_exhausted=WhenExhausted.DENY),
    ]
    policies = [each for each in objects(*rules) if each["kind"] == "ValidatingAdmissionPolicy"]

    assert {each["metadata"]["name"]: len(each["spec"]["validations"]) for each in policies} == {
        "gpu-rules-warnings": 3,
        "gpu-rules-deny-fail-offers-ladder": 1,
        "gpu-rules-deny-fail": MAX_RULES,
        "gpu-rules-deny-ignore": 1,
        "gpu-rules-deny-ignore-2": 1,
        "gpu-rules-deny-fail-2": 1,
        "gpu-rules-deny-fail-offers": 1,
        "gpu-rules-deny-fail-create-update": 2,
        "gpu-rules-audit-ignore-update": 1,
    }
