"""Reading of a Diagnostic from its document."""

from rules_engine.kinds.diagnostic.value import Diagnostic, ForEach, WrittenRemedy
from rules_engine.loading.diagnostics import Diagnostics
from rules_engine.loading.fields import items, section, sections, settings, source, text
from rules_engine.loading.rule_fields import declared_fields
from rules_engine.loading.yaml.nodes import MapNode, ScalarNode
from rules_engine.model.finding import FindingSeverity


def read(root: MapNode, diagnostics: Diagnostics) -> Diagnostic | None:
    """Read a Diagnostic; it is valid only if neither the schema nor `diagnostics` has an error.

    None: a required field is absent or invalid, so that its expressions cannot be checked either.
    """
    spec = section(root, "spec")
    declared = declared_fields(root, diagnostics)
    when, message = source(spec, "when"), source(spec, "messageExpression")
    for_each, severity = text(spec, "forEach"), text(spec, "severity")
    if when is None or message is None or not (for_each and severity):
        return None
    return Diagnostic(
        **declared | settings(spec, Diagnostic),
        for_each=ForEach(for_each),
        when=when,
        severity=FindingSeverity(severity),
        reason=text(spec, "reason"),
        message_expression=message,
        evidence=tuple(line.source for line in items(spec, "evidence") if isinstance(line, ScalarNode)),
        remedies=tuple(map(_remedy, sections(spec, "remedies"))),
    )


def _remedy(line: MapNode) -> WrittenRemedy:
    return WrittenRemedy(text=text(line, "text"), command=source(line, "command"), **settings(line, WrittenRemedy))
