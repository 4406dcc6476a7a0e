"""Catalogue of findings: by reason, the severity, the texts and the remedies, with slots for what a cluster shows.

The entries stand in the folder `findings`. A text has slots such as `{node}`; in a command, their values are quoted
for a shell. `{name}`, `{namespace}` and `{kind}` are those of the finding's object, the kind as kubectl writes it.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from pathlib import Path
from shlex import quote

import msgspec
from msgspec import Struct

from rules_engine.language.yaml.documents import read_data
from rules_engine.model.kubernetes.names import ObjectName
from rules_engine.model.rules.finding import Certainty, Finding, FindingSeverity, Remedy
from rules_engine.model.wording import join_names

FINDINGS = Path(__file__).with_name("findings")
"""The folder of the catalogue's files."""

Slots = Mapping[str, str | Sequence[str]]
"""Values of slots: a text, or several that are joined."""

OWN_SLOTS = frozenset({"name", "namespace", "kind"})
"""Slots that the object of a finding fills."""

_SLOT = re.compile(r"\{([a-z][A-Za-z]*)\}")


class Entry(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The entry of a reason, or of one case of it, with slots in `message`, `cause` and `remedies`.

    `for_each`: the kind of its objects, if Diagnostics find it. `summary`: the situation in general. `cases`: fields
    that differ, by the name of a case. A cause or a remedy is left out if a slot of its text is empty or absent; if a
    slot of a command is, only the command is left out.
    """

    severity: FindingSeverity
    for_each: str = ""
    summary: str
    message: str
    certainty: Certainty = Certainty.CERTAIN
    cause: str = ""
    caused_by: tuple[str, ...] = ()
    on_host: bool = False
    remedies: tuple[Remedy, ...] = ()
    cases: Mapping[str, Mapping[str, object]] = {}

    @property
    def slots(self) -> frozenset[str]:
        """The slots that a finder fills."""
        texts = (self.message, self.cause, *(text for each in self.remedies for text in (each.text, each.command)))
        return frozenset[str]().union(*map(slots_of, texts)) - OWN_SLOTS

    def case(self, name: str) -> "Entry":
        """Return the entry of a case; "" is the reason's own."""
        if not name:
            return self
        return msgspec.convert({**msgspec.to_builtins(self), **self.cases[name], "cases": {}}, Entry)

    def fill(self, about: ObjectName, slots: Slots) -> tuple[str, str, tuple[Remedy, ...]]:
        """Return the message, the cause and the remedies of a finding about an object."""
        values = {"name": about.name, "namespace": about.namespace, "kind": about.kind.lower(), **slots}
        remedies = (
            Remedy(
                text=_fill(each.text, values),
                command=_fill(each.command, values, quoted=True) if _has_all(each.command, values) else "",
                risk=each.risk,
            )
            for each in self.remedies
            if _has_all(each.text, values)
        )
        cause = _fill(self.cause, values) if _has_all(self.cause, values) else ""
        return _fill(self.message, values), cause, tuple(remedies)


def slots_of(text: str) -> frozenset[str]:
    """Return the slots of a text."""
    return frozenset(_SLOT.findall(text))


def _has_all(text: str, values: Slots) -> bool:
    return all(map(values.get, slots_of(text)))


def _fill(text: str, values: Slots, *, quoted: bool = False) -> str:
    def value(match: re.Match[str]) -> str:
        given = values[match[1]]
        words = [given] if isinstance(given, str) else given
        return " ".join(map(quote, words)) if quoted else join_names(words)

    return _SLOT.sub(value, text)


@cache
def read_catalogue() -> Mapping[str, Entry]:
    """Return the entries by reason."""
    files = (msgspec.convert(read_data(path), dict[str, Entry]) for path in sorted(FINDINGS.glob("*.yaml")))
    return {reason: entry for entries in files for reason, entry in entries.items()}


def new_finding(
    reason: str,
    about: ObjectName,
    *,
    case: str = "",
    slots: Slots | None = None,
    evidence: Sequence[str] = (),
    certainty: Certainty | None = None,
    since: datetime | None = None,
) -> Finding:
    """Return the finding of a reason about an object. `certainty`: None for that of the entry."""
    entry = read_catalogue()[reason].case(case)
    message, cause, remedies = entry.fill(about, slots or {})
    return Finding(
        reason=reason,
        severity=entry.severity,
        object=about,
        message=message,
        certainty=certainty or entry.certainty,
        cause=cause,
        evidence=tuple(evidence),
        remedies=remedies,
        on_host=entry.on_host,
        since=since,
    )
