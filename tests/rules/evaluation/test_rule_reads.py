"""Members of requests that expressions read: others change no result."""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest

from rules_engine.model.kubernetes.kept_fields import LAST_APPLIED, Kept
from rules_engine.model.rules.admission import AdmissionRequest, pod_request
from rules_engine.model.rules.decision import Decision
from rules_engine.rules.evaluation import RuleSet
from rules_engine.rules.evaluation.rule_reads import fields_read_by
from tests.support.evaluation import check, cluster, compiled, validation

READS: dict[str, list[str]] = {
    "object.spec.priority == 1": ["spec.priority"],
    "object.spec.containers[0].image == 'a'": ["spec.containers.image"],
    "object.spec.containers[0]['image'] == 'a'": ["spec.containers.image"],
    "object.spec.containers[0].?image.orValue('') == 'a'": ["spec.containers.image"],
    "has(object.spec.containers[0].command)": ["spec.containers.command"],
    "'command' in object.spec.containers[0]": ["spec.containers.command"],
    "params.member in object.spec.containers[0]": ["spec.containers.command"],
    "object.spec.containers[0][params.member] == []": ["spec.containers.command"],
    "object.spec.containers[0] == null": ["spec.containers?"],
    "object.spec.containers[?0].hasValue()": ["spec.containers?"],
    "'a' in object.spec.containers[0].args": ["spec.containers.args"],
    "object.spec.containers.first().value().image == 'a'": ["spec.containers.image"],
    "object.spec.containers.size() > 1": ["spec.containers?"],
    "object.spec.containers == null": ["spec.containers?"],
    "size(object.spec.containers) > 1": ["spec.containers?"],
    "optional.of(object.spec.containers).value()[0].image == 'a'": ["spec.containers.image"],
    "object.metadata.managedFields[0].fieldsV1.a == 'x'": ["metadata.managedFields.fieldsV1.a"],
    "variables.first.image == 'a'": ["spec.containers.image"],
    "cel.bind(c, object.spec.containers[0], c.image == 'a')": ["spec.containers.image"],
    "object.spec.?initContainers.optMap(l, l.all(c, c.image == 'a')).orValue(true)": ["spec.initContainers.image"],
    "(object.spec.priority == 1 ? object.spec.containers : []).all(c, c.image == 'a')": [
        "spec.containers.image",
        "spec.priority",
    ],
    "(object.spec.containers + object.spec.?initContainers.orValue([])).all(c, c.image == 'a')": [
        "spec.containers.image",
        "spec.initContainers.image",
    ],
    "[object.spec.containers[0]].all(c, c.image == 'a')": ["spec.containers.image"],
    "object.spec.containers.map(c, c.image)[0] == 'a'": ["spec.containers.image"],
    "object.spec.containers.map(c, c)[0].image == 'a'": ["spec.containers.image"],
    "object.spec.containers.filter(c, c.image == 'a').sortBy(c, c.name)[0].image == 'a'": [
        "spec.containers.image",
        "spec.containers.name",
    ],
    "object.spec.containers.all(i, c, c.image == 'a')": ["spec.containers.image"],
    "object.spec.containers.transformList(i, c, c.args != [], c.image) == ['a']": [
        "spec.containers.args",
        "spec.containers.image",
    ],
    "object.spec.all(k, v, k != 'a')": ["spec"],
    "object.spec.containers[0].env.size() > 1": ["spec.containers.env?"],
    "object.spec.containers[0].env.all(e, e.name != 'A')": ["spec.containers.env.name"],
    "variables.first == object.spec.containers[1]": ["spec.containers"],
    "object.spec.containers.all(c, c == object.spec.containers[0])": ["spec.containers"],
    "object.spec.containers.all(c, c.size() > 1)": ["spec.containers"],
    "object.spec.containers.all(c, c.all(k, k != 'args'))": ["spec.containers"],
    "object.spec.containers.all(c, c[object.spec.nodeName] == ['a'])": ["spec.containers", "spec.nodeName"],
    "object.spec.containers.all(c, c in object.spec.initContainers)": ["spec.containers", "spec.initContainers"],
    "[1, 2].all(i, object.spec.containers[i] != {})": ["spec.containers"],
    "sets.contains(object.spec.containers, object.spec.initContainers)": ["spec.containers", "spec.initContainers"],
    "object.spec.containers.transformMap(i, c, c)[0].image == 'a'": ["spec.containers"],
    "{'a': object.spec.containers[0]}.a == {}": ["spec.containers"],
    "object.spec == oldObject.spec": ["oldObject.spec", "spec"],
    "variables == {}": ["spec.containers"],
    "variables['first'].image == 'a'": ["spec.containers.image"],
    "object.spec.containers[0].env == object.spec.containers[1].env": ["spec.containers.env"],
    "object.spec.containers[0].env.all(e, e.value != 'a')": ["spec.containers.env.value"],
    "object.spec.containers[0].env.all(e, has(e.value))": ["spec.containers.env.value"],
    "object.spec.containers[0].env.all(e, e.size() > 1)": ["spec.containers.env"],
    "object.spec.containers[0].env.all(e, e.all(k, k != 'value'))": ["spec.containers.env"],
    "object.spec.containers[0].all(k, v, k != 'env' || v[0].value == 'a')": ["spec.containers"],
    "object.metadata.annotations['a'] == 'b'": ["metadata.annotations.a"],
    "object.metadata.annotations.size() > 1": ["metadata.annotations"],
    "object.metadata.annotations.exists(k, k == 'a')": ["metadata.annotations"],
    "has(object.metadata.annotations) && 'a' in object.metadata.annotations": ["metadata.annotations.a"],
    "has(object.metadata.labels) && object.spec.priority == 1 && has(object.metadata.labels.a)": [
        "metadata.labels.a",
        "spec.priority",
    ],
    "!has(object.metadata.labels) || !('a' in object.metadata.labels)": ["metadata.labels.a"],
    "has(object.metadata.labels) || 'a' in object.metadata.labels": ["metadata.labels.", "metadata.labels.a"],
    "!has(object.metadata.labels) && !('a' in object.metadata.labels)": ["metadata.labels.", "metadata.labels.a"],
    f"'{LAST_APPLIED}' in object.metadata.annotations": [f"metadata.annotations.{LAST_APPLIED}"],
    "object.metadata.all(k, v, v == null || v.size() > 1)": ["metadata"],
    "object.metadata == oldObject.metadata": ["metadata", "oldObject.metadata"],
    "object.metadata.annotations[object.spec.nodeName] == 'a'": ["metadata.annotations", "spec.nodeName"],
}
"""The members of pods that expressions read; "?" if only their presence, or the length of a list."""


def paths(kept: Kept) -> Iterator[tuple[str, ...]]:
    """Yield the paths of kept values, each ending in "?" if only its presence is kept."""
    for name, below in (kept or {}).items():
        if below:
            yield from ((name, *path) for path in paths(below))
        else:
            yield (name if below is None else f"{name}?",)


def rules(expression: str) -> RuleSet:
    """Return a rule with this expression, which may read a variable and a param."""
    variables = {"first": "object.spec.containers[0]"}
    return compiled(validation(check(expression), variables=variables, params={"member": "command"}))


def fields_read(rule_set: RuleSet) -> Kept:
    (rule,) = rule_set.rules
    return fields_read_by(rule, rule.own_programs)


@pytest.mark.parametrize(("expression", "reads"), READS.items(), ids=READS)
def test_fields_read_are_those_that_an_expression_names(expression: str, reads: list[str]) -> None:
    found = (".".join(path).removeprefix("object.") for path in paths(fields_read(rules(expression))))
    assert sorted(found) == sorted(reads)


def full_pod(name: str) -> dict[str, Any]:
    """Return a pod with the members that the expressions read, and others."""
    containers = [
        {"name": f"c{index}", "image": "a", "command": ["a"], "args": ["a"], "env": [{"name": "A", "value": "a"}] * 2}
        for index in range(2)
    ]
    return {
        "metadata": {
            "name": name,
            "uid": "1",
            "labels": {"a": "b"},
            "annotations": {"a": "b", "c": "d", LAST_APPLIED: "{}"},
            "managedFields": [{"manager": "a", "fieldsV1": {"a": "x", "b": {}}}],
        },
        "spec": {
            "priority": 1,
            "nodeName": "a",
            "hostname": "a",
            "containers": containers,
            "initContainers": deepcopy(containers[:1]),
        },
    }


def unread(value: Any, kept: Kept, *path: Any) -> Iterator[tuple[Any, ...]]:
    """Yield the paths of the members of values that are not kept."""
    for key in range(len(value)) if isinstance(value, list) else value:
        below = kept if isinstance(value, list) else (kept or {}).get(str(key), ...)
        if below is ...:
            yield (*path, key)
        elif isinstance(value[key], dict | list) and below is not None:
            yield from unread(value[key], below, *path, key)


def changes(raw: dict[str, Any], path: tuple[Any, ...]) -> Iterator[AdmissionRequest]:
    """Yield requests with another value or none at a path."""
    values: tuple[Any, ...] = (None, "b", 2, True, [], {}, {"a": "x"})
    for value in values:
        other = deepcopy(raw)
        parent: Any = other
        for key in path[:-1]:
            parent = parent[key]
        if value is None:
            del parent[path[-1]]
        else:
            parent[path[-1]] = value
        yield AdmissionRequest.parse(other)


def facts(decision: Decision) -> Any:
    return [(step.action, step.reason, step.fields) for step in decision.trace]


@pytest.mark.parametrize("expression", READS)
def test_a_member_that_is_not_read_changes_nothing(expression: str) -> None:
    rule_set, on = rules(expression), cluster()
    raw: Any = pod_request(full_pod("a"), namespace="ml", old_pod=full_pod("b")).raw
    found = rule_set.validate(AdmissionRequest.parse(raw), on)
    read: Any = fields_read(rule_set)
    for root in ("object", "oldObject"):
        for path in unread(raw[root], read.get(root, {}), root):
            for request in changes(raw, path):
                again = rule_set.validate(request, on)
                assert again.refusal is not None or facts(again) == facts(found), path
