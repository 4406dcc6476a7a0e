"""Rules that are exported, with every feature of policies."""

from collections.abc import Sequence

from rules_engine.model.rules.rule import ConditionKind as Kind
from rules_engine.model.rules.rule import (
    FailurePolicy,
    LabelRequirement,
    LabelSelector,
    Match,
    Mode,
    Operation,
    OptOut,
    Rule,
)
from rules_engine.rules.injection.value import InitContainers, OnConflict
from rules_engine.rules.ladder.value import FALLBACK_ANNOTATION, Counts, Direction
from rules_engine.rules.validation.value import ValidationAction
from tests.support.evaluation import GPU, MIG1, MIG2, MIG3, check, entry, injection, ladder, rung, validation

VALIDATIONS: Sequence[Rule] = (
    validation(
        check("object.spec.containers.size() < 3", message_expression="'too many: ' + object.metadata.name"),
        name="few",
        match=Match(resources=("nvidia.com/*", "amd.com/mig-?"), exclude_namespaces=("kube-*",)),
    ),
    validation(
        check("variables.amounts.all(a, a <= params.most)", message="too many devices"),
        name="most",
        params={"most": 2, "names": [GPU, MIG2], "mixed": [1, "a", None, {"b": True}]},
        variables={
            "amounts": "object.spec.containers.map(c, params.names.map(n, "
            "quantity(c.?resources.limits[?n].orValue('0')).asInteger())).flatten()"
        },
    ),
    validation(
        check(f"cluster.allocatable('{GPU}') + cluster.total('{MIG1}') > 2", message="a small cluster"), name="cluster"
    ),
    validation(
        check("object.metadata.annotations['a/b'] == 'c'", message="a/b"),
        check(
            "object.spec.?hostIPC.orValue(false) || object.spec.containers[0].name == 'c0'",
            message_expression="object.metadata.name",
        ),
        name="failing",
        failure_policy=FailurePolicy.IGNORE,
    ),
    validation(
        check("object.spec.hostIPC", message="host"),
        name="bare",
        match=Match(object_selector=LabelSelector((LabelRequirement("app", Kind.NOT_IN, ("b",)),))),
        match_conditions={"c": "has(object.spec.hostIPC)", "d": "variables.x > 1"},
        variables={"x": "object.spec.containers.size()"},
    ),
    validation(
        check(
            "['a', object.metadata.name].size() > 2 || {'a': 1, 'b': size('a') > 0, 'c': [[1], ['a']]}.size() == 2",
            message_expression="'pod %s has %d'.format([object.metadata.name, size(object.spec.containers)])",
        ),
        name="mixed",
    ),
    validation("false", name="audited", mode=Mode.AUDIT),
    validation("false // never\n", name="warning", validation_actions=frozenset({ValidationAction.WARN})),
    validation(
        check("'a/b' in object.metadata.?annotations.orValue({})"),
        name="selected",
        match=Match(
            namespace_selector=LabelSelector((LabelRequirement("kubernetes.io/metadata.name", Kind.EXISTS),)),
            operations=(Operation.CREATE, Operation.UPDATE),
        ),
    ),
)  # fmt: skip

AMOUNTS = {"cpu": "1500m", "memory": "1Gi", "nvidia.com/shm": "100M"}
NAMESPACES = {"ml": entry(AMOUNTS, {"a/b": "ml", "c": "d"}), "other": entry()}

MUTATIONS: Sequence[Sequence[Rule]] = (
    *(
        [
            ladder(
                rung(MIG3, "params.up", weight=3), rung(MIG2, weight=2), rung(MIG1, weight=1),
                counts=Counts.SCALE, direction=direction, params={"up": True}, annotation=annotation,
            )
        ]
        for direction in Direction
        for annotation in ("", "a/b", FALLBACK_ANNOTATION)
    ),
    [ladder(MIG3, rung(MIG2, "size(object.spec.containers) > 1 // more"), rung(GPU, assume=True)), *VALIDATIONS[:2]],
    [validation("object.spec.?hostIPC.hasValue() ? true : has(object.spec.hostPID)", name="conditional")],
    *(
        [
            injection(
                {"cpu": "2", "memory": "2Gi"}, gpu_type=kind, on_conflict=conflict, init_containers=init,
                namespaces=NAMESPACES,
            )
        ]
        for conflict in OnConflict
        for init in InitContainers
        for kind in (None, "V100")
    ),
    [
        injection({"cpu": "1"}, name="a"),
        injection({"memory": "1Gi"}, name="b", gpu_type=None),
        injection({"memory": "1Gi"}, name="c", gpu_type="T4"),
    ],
    # Names of variables that a policy has, too.
    [
        ladder(MIG3, MIG1, name="a", variables={"nodes": "1", "params": "2", "b_x": "3", "b_nodes": "4"},
               params={"a": 10},
               match_conditions={"c": "variables.nodes + variables.params + variables.b_nodes + params.a == 17"}),
        ladder(MIG2, GPU, name="a-b", variables={"x": "4"}, match_conditions={"c": "variables.x == 4"}),
        validation(
            "variables.checks == 'a'", "variables.matches == 'b'", name="a",
            variables={"checks": "params.a", "matches": "'b'"}, params={"a": "a"},
            match=Match(namespaces=("m*",), resources=("nvidia.com/*",)), failure_policy=FailurePolicy.IGNORE,
            match_conditions={
                "match-1": "variables.matches == 'b'", "resources": "true", "rule-match-1": "true",
            },
        ),
        validation(
            "object.spec.containers[0].name == 'c1'", name="b", match=Match(namespaces=("m*",), resources=("*/*",)),
            match_conditions={"match-1": "true", "resources": "true", "opt-out": "true"}, opt_out=OptOut.ALLOWED,
        ),
    ],
)  # fmt: skip
"""Sets of rules that change pods, or only check them."""
