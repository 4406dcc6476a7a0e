"""Reading of a Diagnostic from its document."""

from typing import Any

from msgspec import structs

from rules_engine.language import fields
from rules_engine.language.document_fields import expression_fields
from rules_engine.language.yaml.nodes import MapNode, ScalarNode
from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.problem import Problems, did_you_mean
from rules_engine.model.problems.source import SourceText
from rules_engine.model.rules.finding import FindingSeverity
from rules_engine.rules.diagnostic.catalogue import Entry, read_catalogue
from rules_engine.rules.diagnostic.value import Diagnostic, DiagnosticCode, ForEach, WrittenRemedy


def read_diagnostic(root: MapNode, problems: Problems) -> Diagnostic | None:
    """Read a Diagnostic; it is valid only if neither the schema nor `problems` has an error.

    None: without `forEach`, the type of `object` in expressions is unknown. Other required fields that are absent or
    invalid get a value, so that the rest of the Diagnostic can be checked.
    """
    spec = fields.map_field(root, "spec")
    declared = expression_fields(root, problems)
    when, for_each = fields.source_field(spec, "when"), fields.string_field(spec, "forEach")
    if not for_each:
        return None
    reason, remedies = fields.string_field(spec, "reason"), fields.map_items(spec, "remedies")
    entry = _entry_for(reason, spec)
    commands = (
        *(line.get("command") for line in remedies),
        *(each.command for each in (entry.remedies if entry else ())),
    )
    if fields.bool_field(spec, "onHost") and not any(commands):
        key = spec.key("onHost") or spec
        problems.warning(DiagnosticCode.MISSING_COMMAND, "no remedy has a command that looks on the node", key)
    slots = {name: node.source for name, node in fields.scalar_members(spec, "slots")}
    _check_slots(reason, entry, slots, spec, problems)
    own = fields.scalar_arguments(spec, Diagnostic)
    if severity := fields.string_field(spec, "severity"):
        own["severity"] = FindingSeverity(severity)
    if spec.get("causedBy") is not None:
        own["caused_by"] = fields.string_items(spec, "causedBy")
    return Diagnostic(
        **_inherited(entry) | declared | own,
        entry=entry,
        case=fields.source_field(spec, "case"),
        slots=slots,
        for_each=ForEach(for_each),
        when=when or SourceText.inline("true"),
        reason=reason,
        message_expression=fields.source_field(spec, "messageExpression"),
        evidence=tuple(line.source for line in fields.list_items(spec, "evidence") if isinstance(line, ScalarNode)),
        remedies=tuple(
            WrittenRemedy(
                text=fields.string_field(line, "text"),
                command=fields.source_field(line, "command"),
                **fields.scalar_arguments(line, WrittenRemedy),
            )
            for line in remedies
        ),
    )


def _entry_for(reason: str, spec: MapNode) -> Entry | None:
    """Return the entry of a reason, without the texts that the Diagnostic replaces."""
    entry = read_catalogue().get(reason)
    if entry is None:
        return None
    own: dict[str, Any] = {
        name: empty for name, empty in (("cause", ""), ("remedies", ())) if spec.get(name) is not None
    }
    if spec.get("message") or spec.get("messageExpression"):
        own["message"] = ""
    cases = {name: {key: text for key, text in case.items() if key not in own} for name, case in entry.cases.items()}
    return structs.replace(entry, **own, cases=cases)


def _inherited(entry: Entry | None) -> dict[str, Any]:
    """Return the fields of a Diagnostic that an entry gives. Without one, an absent severity is reported."""
    if entry is None:
        return {"severity": FindingSeverity.ERROR}
    same = {name: getattr(entry, name) for name in ("severity", "certainty", "caused_by", "on_host")}
    return {"description": entry.summary, **same}


def _check_slots(
    reason: str, entry: Entry | None, slots: dict[str, SourceText], spec: MapNode, problems: Problems
) -> None:
    """Report fields and slots that a Diagnostic needs, and slots that the entry of its reason does not have.

    A Diagnostic with a message of its own needs no slots: texts whose slots it lacks are left out.
    """
    place = spec.get("reason") or spec
    for_each = fields.string_field(spec, "forEach")
    if entry is not None and entry.for_each not in ("", for_each) and entry.remedies:
        message = f"the remedies of {reason} are for each {entry.for_each}, not {for_each}: write remedies of your own"
        problems.error(DiagnosticCode.FINDING_SLOTS, message, place)
    if entry is None:
        texts = spec.get("message") or spec.get("messageExpression")
        missing = [name for name, node in (("severity", spec.get("severity")), ("message", texts)) if node is None]
        if missing and reason and not problems.failed:  # an invalid field looks as if it were absent
            hint = did_you_mean(reason, read_catalogue())
            message = f"the catalogue of findings has no {reason}{hint}: the Diagnostic needs {' and '.join(missing)}"
            problems.error(Code.MISSING_FIELD, message, place)
            return
    for name in sorted(entry.slots - slots.keys()) if entry is not None and entry.message else ():
        problems.error(DiagnosticCode.FINDING_SLOTS, f"the finding {reason} needs the slot '{name}'", place)
    known = frozenset[str]() if entry is None else read_catalogue()[reason].slots
    for key, _ in fields.map_field(spec, "slots"):
        if key.value not in known:
            problems.error(DiagnosticCode.FINDING_SLOTS, f"the finding {reason} has no slot '{key.value}'", key)
