"""Parts of a pod that expressions read: whatever of it is not recorded changes no decision."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules_engine.evaluation import validate
from rules_engine.model.admission import AdmissionRequest, pod_request
from rules_engine.model.cluster import Cluster
from rules_engine.model.decision import Decision
from rules_engine.recording.fields import RecordedFields, Unrecorded
from rules_engine.recording.pod_reads import LAST_APPLIED
from tests.support.evaluation import check, compiled, validation
from tests.support.laws import law

ALL = None
"""All members of containers."""

FIRST = "object.spec.containers[0]"
EACH = "object.spec.containers.all(c, {})"
APPLIED = f"'{LAST_APPLIED}'"

READS: dict[str, tuple[set[str] | None, bool, bool]] = {
    "object.spec.priority == 1": (set(), False, False),
    f"{FIRST}.image == 'a'": ({"image"}, False, False),
    f"{FIRST}['image'] == 'a'": ({"image"}, False, False),
    f"{FIRST}.?image.orValue('') == 'a'": ({"image"}, False, False),
    f"has({FIRST}.command)": ({"command"}, False, False),
    f"'command' in {FIRST}": ({"command"}, False, False),
    f"params.member in {FIRST}": ({"command"}, False, False),
    f"{FIRST}[params.member] == []": ({"command"}, False, False),
    f"{FIRST} == null": (set(), False, False),
    "object.spec.containers[?0].hasValue()": (set(), False, False),
    f"'a' in {FIRST}.args": ({"args"}, False, False),
    "object.spec.containers.first().value().image == 'a'": ({"image"}, False, False),
    "object.spec.containers.size() > 1": (set(), False, False),
    "object.spec.containers == null": (set(), False, False),
    "variables.first.image == 'a'": ({"image"}, False, False),
    "cel.bind(c, object.spec.containers[0], c.image == 'a')": ({"image"}, False, False),
    "object.spec.?initContainers.optMap(l, l.all(c, c.image == 'a')).orValue(true)": ({"image"}, False, False),
    "(object.spec.priority == 1 ? object.spec.containers : []).all(c, c.image == 'a')": ({"image"}, False, False),
    "(object.spec.containers + object.spec.?initContainers.orValue([])).all(c, c.image == 'a')": (
        {"image"},
        False,
        False,
    ),
    "[object.spec.containers[0]].all(c, c.image == 'a')": ({"image"}, False, False),
    "object.spec.containers.map(c, c.image)[0] == 'a'": ({"image"}, False, False),
    "object.spec.containers.map(c, c)[0].image == 'a'": ({"image"}, False, False),
    "object.spec.containers.filter(c, c.image == 'a').sortBy(c, c.name)[0].image == 'a'": (
        {"image", "name"},
        False,
        False,
    ),
    "object.spec.containers.all(i, c, c.image == 'a')": ({"image"}, False, False),
    "object.spec.containers.transformList(i, c, c.args != [], c.image) == ['a']": ({"args", "image"}, False, False),
    "object.spec.all(k, v, k != 'a')": (set(), False, False),
    f"{FIRST}.env.size() > 1": ({"env"}, False, False),
    f"{FIRST}.env.all(e, e.name != 'A')": ({"env"}, False, False),
    "variables.first == object.spec.containers[1]": (ALL, True, False),
    EACH.format("c == object.spec.containers[0]"): (ALL, True, False),
    EACH.format("c.size() > 1"): (ALL, False, False),
    EACH.format("c.all(k, k != 'args')"): (ALL, False, False),
    EACH.format("c[object.spec.nodeName] == ['a']"): (ALL, True, False),
    EACH.format("c in object.spec.initContainers"): (ALL, True, False),
    "[1, 2].all(i, object.spec.containers[i] != {})": (ALL, True, False),
    "sets.contains(object.spec.containers, object.spec.initContainers)": (ALL, True, False),
    "object.spec.containers.transformMap(i, c, c)[0].image == 'a'": ({"image"}, False, False),
    "{'a': object.spec.containers[0]}.a == {}": (ALL, True, True),
    "object.spec == oldObject.spec": (ALL, True, True),
    "variables == {}": (ALL, True, True),
    "variables['first'].image == 'a'": ({"first", "image"}, False, False),
    f"{FIRST}.env == object.spec.containers[1].env": ({"env"}, True, False),
    f"{FIRST}.env.all(e, e.value != 'a')": ({"env"}, True, False),
    f"{FIRST}.env.all(e, has(e.value))": ({"env"}, True, False),
    f"{FIRST}.env.all(e, e.size() > 1)": ({"env"}, True, False),
    f"{FIRST}.env.all(e, e.all(k, k != 'value'))": ({"env"}, True, False),
    f"{FIRST}.all(k, v, k != 'env' || v[0].value == 'a')": (ALL, True, False),
    "object.metadata.annotations['a'] == 'b'": (set(), False, False),
    "object.metadata.annotations.size() > 1": (set(), False, True),
    "object.metadata.annotations.exists(k, k == 'a')": (set(), False, True),
    f"{APPLIED} in object.metadata.annotations": (set(), False, True),
    "object.metadata.all(k, v, v == null || v.size() > 1)": (set(), False, True),
    "object.metadata == oldObject.metadata": (set(), False, True),
    "object.metadata.annotations[object.spec.nodeName] == 'a'": (set(), False, True),
}


def of(*expressions: str) -> RecordedFields:
    return RecordedFields.of(rules(*expressions).rules)


def rules(*expressions: str) -> Any:
    """Return rules with these expressions, which may read a variable and a param."""
    made = validation(
        *map(check, expressions), variables={"first": "object.spec.containers[0]"}, params={"member": "command"}
    )
    return compiled(made)


@pytest.mark.parametrize(("expression", "reads"), READS.items(), ids=READS)
def test_what_an_expression_reads_of_a_pod_is_known(expression: str, reads: tuple[set[str] | None, bool, bool]) -> None:
    fields = of(expression)
    assert (fields.members, fields.environment, fields.last_applied) == reads


@st.composite
def containers(draw: st.DrawFn) -> Any:
    value = st.sampled_from(["a", "b"])
    optional = {
        "image": value,
        "args": st.lists(value, max_size=2),
        "command": st.lists(value, max_size=1),
        "env": st.lists(st.fixed_dictionaries({"name": value}, optional={"value": value}), max_size=2),
    }
    return draw(st.fixed_dictionaries({"name": value}, optional=optional))


@st.composite
def made_pods(draw: st.DrawFn) -> Any:
    lists = {name: st.lists(containers(), min_size=1, max_size=2) for name in ("containers", "initContainers")}
    spec = st.fixed_dictionaries(
        {"containers": lists["containers"]},
        optional={
            "initContainers": lists["initContainers"],
            "nodeName": st.sampled_from(["image", "env", "a", "args", LAST_APPLIED]),
            "priority": st.sampled_from([0, 1]),
        },
    )
    annotations = st.dictionaries(st.sampled_from(["a", "b", LAST_APPLIED]), st.sampled_from(["a", "b"]), max_size=2)
    metadata = st.fixed_dictionaries({"name": st.just("p")}, optional={"annotations": annotations})
    return draw(st.fixed_dictionaries({"metadata": metadata, "spec": spec}))


def facts(decision: Decision) -> Any:
    return decision.refusal, [(step.rule, step.action, step.reason, step.fields) for step in decision.trace]


@pytest.mark.unmeasured
@law
@given(st.data(), made_pods(), made_pods())
def test_what_is_not_recorded_changes_no_decision(data: st.DataObject, made: Any, old: Any) -> None:
    expression = data.draw(st.sampled_from([*READS]))
    rule_set = rules(expression)
    asked = pod_request(made, namespace="ml", old_pod=data.draw(st.sampled_from([None, old])))
    found = RecordedFields.of(rule_set.rules).reduced(asked)
    text = orjson.dumps(None if found is Unrecorded.REDACTED else found)
    assert LAST_APPLIED not in text.decode() or made["spec"].get("nodeName") == LAST_APPLIED
    if isinstance(found, Unrecorded):
        return
    assert b'"value"' not in text
    again = AdmissionRequest.parse(orjson.loads(text))
    on = Cluster()
    assert facts(validate(rule_set, again, on)) == facts(validate(rule_set, asked, on))
