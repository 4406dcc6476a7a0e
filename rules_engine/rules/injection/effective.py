"""Settings of an injection in one namespace for explanations, and the entries that tests cover."""

from collections.abc import Iterator, Mapping
from functools import partial

from rules_engine.model.rules.decision import RulePart, Step
from rules_engine.model.rules.rule import Setting, field_setting
from rules_engine.rules.injection.value import Entry, ResourceInjection

_DEFAULT = "default"


def effective(injection: ResourceInjection, namespace: str) -> Iterator[Setting]:
    """Yield the entry that applies in a namespace, then its values, also default values that it inherits or removes."""
    default, entry = injection.default, injection.entry(namespace)
    base = Setting(name="entry", value=_DEFAULT, field="", location=default.location)
    if entry is default:
        yield base
    else:
        path = f"namespaces.{namespace}"
        overridden = base.overridden if default else None
        yield Setting(name="entry", value=path, field=path, location=entry.location, overrides=overridden)
    for field in ("coefficients", "annotations"):
        values, before = _entry_values(entry, field), _entry_values(default, field)
        for key in (*values, *(key for key in before if key not in values)):
            yield _entry_setting(injection, namespace, field, key)


def _entry_values(entry: Entry, field: str) -> Mapping[str, str]:
    if field == "annotations":
        return entry.annotations
    return {resource: str(amount) for resource, amount in entry.coefficients.items()}


def _entry_setting(injection: ResourceInjection, namespace: str, field: str, key: str) -> Setting:
    default, entry = injection.default, injection.entry(namespace)
    name = f"{field}.{key}"
    place = default.origin.get((field, key))
    base = None
    if place is not None:
        base = field_setting(name, _entry_values(default, field).get(key), place).overridden
    value, location = _entry_values(entry, field).get(key), entry.origin.get((field, key))
    if location is not None and location == place:
        return Setting(name=name, value=value, field=name, location=place, inherited=entry is not default)
    path = f"namespaces.{namespace}"
    if location is None:  # an entry that does not inherit removes the values that it does not name
        return Setting(name=name, value=None, field=path, location=entry.location, overrides=base)
    return Setting(name=name, value=value, field=f"{path}.{name}", location=location, overrides=base)


def parts(injection: ResourceInjection) -> Iterator[RulePart]:
    """Yield each entry in the spec: it is covered if the injection applies to a pod in its namespace."""
    if injection.default:
        yield _entry_part(injection, "default", injection.default)
    for namespace, entry in injection.namespaces.items():
        yield _entry_part(injection, f"namespaces.{namespace}", entry)


def _entry_part(injection: ResourceInjection, name: str, entry: Entry) -> RulePart:
    return RulePart(name=name, event="used", location=entry.location, reached=partial(_is_used, injection, entry))


def _is_used(injection: ResourceInjection, entry: Entry, step: Step, namespace: str) -> bool:
    return step.applies and injection.entry(namespace) is entry
