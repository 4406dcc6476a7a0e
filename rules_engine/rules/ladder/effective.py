"""Settings of a ladder in explanations, its rungs and its filter of nodes, and the parts that tests cover."""

from collections.abc import Iterable, Iterator
from functools import partial

from rules_engine.model.json.patch import Json
from rules_engine.model.rules.decision import RulePart, Step
from rules_engine.model.rules.rule import Setting, field_setting
from rules_engine.rules.ladder.value import FallbackLadder
from rules_engine.rules.pod_members.value import FIELDS, Form, Member


def effective(ladder: FallbackLadder, _namespace: str) -> Iterator[Setting]:
    """Yield the rungs, from the highest down, and the filter of nodes; they are the same in every namespace."""
    for index, rung in enumerate(ladder.rungs):
        path = f"rungs[{index}]"
        yield field_setting(path, rung.resource, rung.location)
        if rung.pool:
            yield field_setting(f"{path}.name", rung.name, rung.origin.get("name"))
            yield field_setting(f"{path}.pool", dict(rung.pool), rung.origin.get("pool"))
        if rung.place:
            yield field_setting(f"{path}.place", _place_json(rung.place), rung.origin.get("place"))
        if rung.weight is not None:
            yield field_setting(f"{path}.weight", rung.weight, rung.origin.get("weight"))
        if rung.when is not None:
            yield field_setting(f"{path}.when", rung.when.text, rung.when.location)
        if rung.assume:
            yield field_setting(f"{path}.assume", rung.assume, rung.origin.get("assume"))
    if ladder.nodes.selector:
        yield field_setting("nodes.selector", str(ladder.nodes.selector), ladder.origin.get(("nodes", "selector")))
    if ladder.nodes.require:
        needs: list[Json] = [*sorted(need.value for need in ladder.nodes.require)]
        yield field_setting("nodes.require", needs, ladder.origin.get(("nodes", "require")))


def _place_json(place: Iterable[Member]) -> Json:
    values: dict[str, dict[str, Json]] = {}
    for each in place:
        values.setdefault(each.field.name, {})[each.name] = each.value
    forms = {Form.SCALAR: lambda named: named[""], Form.MAP: dict, Form.LIST: lambda named: [*named.values()]}
    return {name: forms[FIELDS[name].form](named) for name, named in values.items()}


_ASSIGNED_REASONS = frozenset({"moved", "offered", "assumed", "placed"})
"""Reasons of decisions by which the pod gets a rung: another rung, or the requested one."""

_DECIDED_REASONS = _ASSIGNED_REASONS | {"exhausted"}
"""Reasons of decisions about rungs; with other reasons the pod stays unchanged before any rung is tried."""


def parts(ladder: FallbackLadder) -> Iterator[RulePart]:
    """Yield two parts of each rung: a pod requests it, and a pod gets or keeps it."""
    for rung in ladder.rungs:
        for event, reached in (("requested", _is_requested), ("given", _is_assigned)):
            yield RulePart(name=rung.title, event=event, location=rung.location, reached=partial(reached, rung.title))


def _is_requested(title: str, step: Step, _namespace: str) -> bool:
    return any(decision.resource == title and decision.reason in _DECIDED_REASONS for decision in step.resources)


def _is_assigned(title: str, step: Step, _namespace: str) -> bool:
    return any(decision.given == title and decision.reason in _ASSIGNED_REASONS for decision in step.resources)
