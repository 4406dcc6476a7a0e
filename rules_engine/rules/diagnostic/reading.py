"""Reading of a Diagnostic from its document."""

from rules_engine.language import fields
from rules_engine.language.document_fields import expression_fields
from rules_engine.language.yaml.nodes import MapNode, ScalarNode
from rules_engine.model.problems.problem import Problems
from rules_engine.model.problems.source import SourceText
from rules_engine.model.rules.finding import FindingSeverity
from rules_engine.rules.diagnostic.value import Diagnostic, DiagnosticCode, ForEach, WrittenRemedy


def read_diagnostic(root: MapNode, problems: Problems) -> Diagnostic | None:
    """Read a Diagnostic; it is valid only if neither the schema nor `problems` has an error.

    None: without `forEach`, the type of `object` in expressions is unknown. Other required fields that are absent or
    invalid get a value, so that the rest of the Diagnostic can be checked.
    """
    spec = fields.map_field(root, "spec")
    declared = expression_fields(root, problems)
    when = fields.source_field(spec, "when")
    for_each, severity = fields.string_field(spec, "forEach"), fields.string_field(spec, "severity")
    if not for_each:
        return None
    remedies = fields.map_items(spec, "remedies")
    if fields.bool_field(spec, "onHost") and all(line.get("command") is None for line in remedies):
        key = spec.key("onHost") or spec
        message = "no remedy has a command that looks on the node"
        problems.warning(DiagnosticCode.MISSING_COMMAND, message, key.location, key.length)
    return Diagnostic(
        **declared | fields.scalar_arguments(spec, Diagnostic),
        for_each=ForEach(for_each),
        when=when or SourceText.inline("true"),
        severity=FindingSeverity(severity) if severity else FindingSeverity.ERROR,
        reason=fields.string_field(spec, "reason"),
        message_expression=fields.source_field(spec, "messageExpression"),
        caused_by=fields.string_items(spec, "causedBy"),
        evidence=tuple(line.source for line in fields.list_items(spec, "evidence") if isinstance(line, ScalarNode)),
        remedies=tuple(map(_read_remedy, remedies)),
    )


def _read_remedy(line: MapNode) -> WrittenRemedy:
    return WrittenRemedy(
        text=fields.string_field(line, "text"),
        command=fields.source_field(line, "command"),
        **fields.scalar_arguments(line, WrittenRemedy),
    )
