"""Parts of an injection that test cases cover: its default, and the entry of each namespace."""

from collections.abc import Iterator
from functools import partial

from rules_engine.kinds.injection.value import Entry, ResourceInjection
from rules_engine.model.rules.coverage import Part
from rules_engine.model.rules.decision import Step


def parts(injection: ResourceInjection) -> Iterator[Part]:
    """Yield each entry that is written: a pod to which the injection applies is in its namespace."""
    if injection.default:
        yield _part(injection, "default", injection.default)
    for namespace, entry in injection.namespaces.items():
        yield _part(injection, f"namespaces.{namespace}", entry)


def _part(injection: ResourceInjection, name: str, entry: Entry) -> Part:
    return Part(name=name, event="used", location=entry.location, reached=partial(_is_used, injection, entry))


def _is_used(injection: ResourceInjection, entry: Entry, step: Step, namespace: str) -> bool:
    return step.applies and injection.entry(namespace) is entry
