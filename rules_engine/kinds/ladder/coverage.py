"""Parts of a ladder that test cases cover: each rung, as requested and as given."""

from collections.abc import Iterator
from functools import partial

from rules_engine.kinds.ladder.value import FallbackLadder
from rules_engine.model.rules.coverage import Part
from rules_engine.model.rules.decision import Step

_GIVEN = frozenset({"moved", "offered", "assumed"})
"""Reasons of decisions that give the pod a rung: another one, or the one that it requests."""

_DECIDED = _GIVEN | {"exhausted"}
"""Reasons of decisions; the others leave the pod as it is before a rung is tried."""


def parts(ladder: FallbackLadder) -> Iterator[Part]:
    """Yield two parts of each rung: a pod requests it, and a pod gets or keeps it."""
    for rung in ladder.rungs:
        for event, reached in (("requested", _is_requested), ("given", _is_given)):
            yield Part(name=rung.resource, event=event, location=rung.location, reached=partial(reached, rung.resource))


def _is_requested(resource: str, step: Step, _namespace: str) -> bool:
    return any(decision.resource == resource and decision.reason in _DECIDED for decision in step.resources)


def _is_given(resource: str, step: Step, _namespace: str) -> bool:
    return any(decision.given == resource and decision.reason in _GIVEN for decision in step.resources)
