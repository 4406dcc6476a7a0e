"""Entries of a rule: its default, and one for each namespace that has its own; `inherit: Merge` is resolved."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Generic, TypeVar

from rules_engine.language.yaml.nodes import MapNode
from rules_engine.model.json.patch import Json
from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.problem import Problem, Problems, warning
from rules_engine.model.problems.source import Field, Location
from rules_engine.model.rules.decision import RulePart, Step
from rules_engine.model.rules.rule import Rule, Setting, field_setting
from rules_engine.rules.overlap import may_match
from rules_engine.rules.rule_set.globs import is_glob


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry(ABC):
    """The settings of a rule in some namespaces.

    `fields` has the field of the entry; none if the spec has no default. `inherits`: values of the default are merged.
    """

    location: Location
    fields: tuple[Field, ...] = field(default=(), repr=False, compare=False)
    inherits: bool = field(default=False, repr=False, compare=False)

    @property
    @abstractmethod
    def settings(self) -> Mapping[str, tuple[Json, Location]]:
        """Each value of the entry with its location, by its field; an inherited one has its location in the default."""

    @abstractmethod
    def __bool__(self) -> bool:
        """Return True if the entry has a value."""


E_co = TypeVar("E_co", bound=Entry, covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleWithEntries(Rule, Generic[E_co]):
    """A rule with a default entry and entries of namespaces, by their exact names."""

    default: E_co
    namespaces: Mapping[str, E_co] = field(default_factory=lambda: MappingProxyType({}))

    def entry(self, namespace: str) -> E_co:
        """Return the entry that applies in a namespace: its own, or else the default."""
        return self.namespaces.get(namespace, self.default)

    @property
    def entries(self) -> tuple[E_co, ...]:
        return (self.default, *self.namespaces.values())

    def may_apply(self, namespace: str | None) -> bool:
        """Return True if the rule may match pods of a namespace; None: of any namespace without an entry of its own."""
        if namespace is not None:
            return may_match(self.match, namespace)
        return any(is_glob(name) or name not in self.namespaces for name in self.match.namespaces)


def report_nothing_to_inherit(default: Entry, node: MapNode, problems: Problems) -> None:
    key = node.key("inherit")
    if not default and key is not None:
        message = "nothing to inherit: the rule has no values for all namespaces"
        problems.warning(Code.NOTHING_TO_INHERIT, message, key.location, key.length)


def warn_of_entries(rule: RuleWithEntries[Entry]) -> Iterator[Problem]:
    """Warn of entries of namespaces that the rule does not match, and of a default that no namespace uses."""
    for namespace, entry in rule.namespaces.items():
        if not may_match(rule.match, namespace):
            message = f"this entry is never used: {rule.id} does not match the namespace '{namespace}'"
            yield warning(Code.UNUSED_ENTRY, message, entry.location, namespace)
    if rule.default and not rule.may_apply(None) and not any(entry.inherits for entry in rule.namespaces.values()):
        name = next(iter(rule.default.settings)).partition(".")[0]
        place = rule.origin.get(("spec", name), rule.location)
        message = f"these {name} are never used: each namespace that {rule.id} matches has an entry of its own"
        yield warning(Code.UNUSED_DEFAULT, message, place, name)


_DEFAULT = "default"


def effective_entry(rule: RuleWithEntries[Entry], namespace: str) -> Iterator[Setting]:
    """Yield the entry that applies in a namespace, then its values, also default values that it inherits or removes."""
    default, entry = rule.default, rule.entry(namespace)
    base = Setting(name="entry", value=_DEFAULT, field="", location=default.location)
    if entry is default:
        yield base
    else:
        path = f"namespaces.{namespace}"
        overridden = base.overridden if default else None
        yield Setting(name="entry", value=path, field=path, location=entry.location, overrides=overridden)
    for name in dict.fromkeys((*entry.settings, *default.settings)):
        yield _entry_setting(rule, namespace, name)


def _entry_setting(rule: RuleWithEntries[Entry], namespace: str, name: str) -> Setting:
    default, entry = rule.default, rule.entry(namespace)
    base_value, place = default.settings.get(name, (None, None))
    base = field_setting(name, base_value, place).overridden if place is not None else None
    value, location = entry.settings.get(name, (None, None))
    if location is not None and location == place:
        return Setting(name=name, value=value, field=name, location=place, inherited=entry is not default)
    path = f"namespaces.{namespace}"
    if location is None:  # an entry that does not inherit removes the values that it does not name
        return Setting(name=name, value=None, field=path, location=entry.location, overrides=base)
    return Setting(name=name, value=value, field=f"{path}.{name}", location=location, overrides=base)


def entry_parts(rule: RuleWithEntries[Entry]) -> Iterator[RulePart]:
    """Yield each entry in the spec: it is covered if the rule applies to a pod in its namespace."""
    if rule.default:
        yield _entry_part(rule, _DEFAULT, rule.default)
    for namespace, entry in rule.namespaces.items():
        yield _entry_part(rule, f"namespaces.{namespace}", entry)


def _entry_part(rule: RuleWithEntries[Entry], name: str, entry: Entry) -> RulePart:
    return RulePart(name=name, event="used", location=entry.location, reached=partial(_is_used, rule, entry))


def _is_used(rule: RuleWithEntries[Entry], entry: Entry, step: Step, namespace: str) -> bool:
    return step.applies and rule.entry(namespace) is entry
