"""Members of requests that decisions read: others change no decision."""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rules_engine.cel import Program
from rules_engine.evaluation import RuleSet, mutate, validate
from rules_engine.evaluation.fields_read import ALWAYS_READ_FIELDS, fields_read
from rules_engine.evaluation.fingerprint import Fingerprint
from rules_engine.model.kubernetes.cluster import Cluster
from rules_engine.model.kubernetes.kept_fields import LAST_APPLIED, NO_FIELDS, Kept
from rules_engine.model.rules.admission import AdmissionRequest, Endpoint, pod_request
from rules_engine.model.rules.decision import Decision
from tests.evaluation.test_decision_cache import accepted, requests, rule_sets
from tests.support.evaluation import check, compiled, validation
from tests.support.laws import clusters

READS: dict[str, list[str]] = {
    "object.spec.priority == 1": ["spec.priority"],
    "object.spec.containers[0].image == 'a'": ["spec.containers.image"],
    "object.spec.containers[0]['image'] == 'a'": ["spec.containers.image"],
    "object.spec.containers[0].?image.orValue('') == 'a'": ["spec.containers.image"],
    "has(object.spec.containers[0].command)": ["spec.containers.command"],
    "'command' in object.spec.containers[0]": ["spec.containers.command"],
    "params.member in object.spec.containers[0]": ["spec.containers.command"],
    "object.spec.containers[0][params.member] == []": ["spec.containers.command"],
    "object.spec.containers[0] == null": [],
    "object.spec.containers[?0].hasValue()": [],
    "'a' in object.spec.containers[0].args": ["spec.containers.args"],
    "object.spec.containers.first().value().image == 'a'": ["spec.containers.image"],
    "object.spec.containers.size() > 1": [],
    "object.spec.containers == null": [],
    "size(object.spec.containers) > 1": [],
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
    "object.spec.containers.filter(c, c.image == 'a').sortBy(c, c.name)[0].image == 'a'": ["spec.containers.image"],
    "object.spec.containers.all(i, c, c.image == 'a')": ["spec.containers.image"],
    "object.spec.containers.transformList(i, c, c.args != [], c.image) == ['a']": [
        "spec.containers.args",
        "spec.containers.image",
    ],
    "object.spec.all(k, v, k != 'a')": ["spec"],
    "object.spec.containers[0].env.size() > 1": ["spec.containers.env"],
    "object.spec.containers[0].env.all(e, e.name != 'A')": ["spec.containers.env.name"],
    "variables.first == object.spec.containers[1]": ["spec.containers"],
    "object.spec.containers.all(c, c == object.spec.containers[0])": ["spec.containers"],
    "object.spec.containers.all(c, c.size() > 1)": ["spec.containers"],
    "object.spec.containers.all(c, c.all(k, k != 'args'))": ["spec.containers"],
    "object.spec.containers.all(c, c[object.spec.nodeName] == ['a'])": ["spec.containers"],
    "object.spec.containers.all(c, c in object.spec.initContainers)": ["spec.containers", "spec.initContainers"],
    "[1, 2].all(i, object.spec.containers[i] != {})": ["spec.containers"],
    "sets.contains(object.spec.containers, object.spec.initContainers)": ["spec.containers", "spec.initContainers"],
    "object.spec.containers.transformMap(i, c, c)[0].image == 'a'": ["spec.containers"],
    "{'a': object.spec.containers[0]}.a == {}": ["spec.containers"],
    "object.spec == oldObject.spec": ["spec", "oldObject.spec"],
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
    f"'{LAST_APPLIED}' in object.metadata.annotations": [f"metadata.annotations.{LAST_APPLIED}"],
    "object.metadata.all(k, v, v == null || v.size() > 1)": ["metadata"],
    "object.metadata == oldObject.metadata": ["metadata", "oldObject.metadata"],
    "object.metadata.annotations[object.spec.nodeName] == 'a'": ["metadata.annotations"],
}
"""The members of pods that expressions read, beside those that every decision depends on."""


def missing_paths(kept: Kept, other: Kept) -> Iterator[tuple[str, ...]]:
    """Yield the paths that `other` keeps and `kept` does not."""
    if kept is None:
        return
    if other is None:
        yield ()
        return
    for name, below in sorted(other.items()):
        if name in kept or below:
            yield from ((name, *path) for path in missing_paths(kept.get(name, NO_FIELDS), below))
        else:
            yield (name,)


def rules(*expressions: str) -> Any:
    """Return rules with these expressions, which may read a variable and a param."""
    made = validation(
        *map(check, expressions), variables={"first": "object.spec.containers[0]"}, params={"member": "command"}
    )
    return compiled(made)


@pytest.mark.parametrize(("expression", "reads"), READS.items(), ids=READS)
def test_fields_read_are_those_that_an_expression_names(expression: str, reads: list[str]) -> None:
    found = missing_paths(ALWAYS_READ_FIELDS, fields_read(rules(expression).rules, messages=False))
    assert sorted(".".join(path).removeprefix("object.") for path in found) == sorted(reads)


def test_the_fingerprint_of_a_rule_that_reads_the_whole_request_has_all_of_it() -> None:
    key = Fingerprint(rules("request != {}").rules).key
    one, other = (pod_request({"metadata": {}, "spec": {}}, namespace="ml", user=user) for user in ("ada", "bob"))
    assert key(one) == key(one) != key(other)


def facts(decision: Decision) -> Any:
    return decision.refusal, [(step.rule, step.action, step.reason, step.fields) for step in decision.trace]


def unlisted(value: Any, kept: Kept) -> Iterator[tuple[Any, Any]]:
    """Yield the members of values, each with its parent, that are not kept."""
    for key in range(len(value)) if isinstance(value, list) else value:
        below = kept if isinstance(value, list) else (kept or {}).get(str(key), ...)
        if below is ...:
            yield value, key
        elif isinstance(value[key], dict | list) and below is not None:
            yield from unlisted(value[key], below)


@pytest.mark.parametrize("evaluate", [Program.evaluate, Program.interpret])
@given(st.data(), rule_sets(), requests(), clusters())
def test_a_member_that_is_not_listed_changes_nothing(
    evaluate: Any, data: st.DataObject, rule_set: RuleSet, raw: dict[str, Any], on: Cluster
) -> None:
    other = deepcopy(raw)
    parent, key = data.draw(st.sampled_from([*unlisted(other, fields_read(rule_set.rules, messages=True))]))
    if data.draw(st.booleans()):
        del parent[key]
    else:
        texts = isinstance(parent[key], str)  # in their place, the types of many names are checked
        parent[key] = data.draw(st.sampled_from(["a", "b", "1", ""] if texts else ["a", 1, True, [], {}]))
    assume(accepted(other))
    with patch.object(Program, "evaluate", evaluate):
        for decide, endpoint in ((mutate, Endpoint.MUTATE), (validate, Endpoint.VALIDATE)):
            one, two = (AdmissionRequest.parse(each) for each in (raw, other))
            found, again = (decide(rule_set, each, on) for each in (one, two))
            assert facts(found) == facts(again)
            assert found.patch == again.patch
            key_of = Fingerprint(rule_set.rules_at(endpoint)).key
            assert key_of(one) == key_of(two)
