"""Rules and Diagnostics of files as a table and as JSON."""

from collections.abc import Iterator

from rules_engine.authoring.rule_list import RuleList
from rules_engine.model.excerpt import visible
from rules_engine.model.json.patch import Json

_HEADER = ("KIND", "NAME", "MODE", "PRIORITY", "PLACE")


def rule_table(found: RuleList) -> Iterator[str]:
    """Yield a table of the rules and Diagnostics, and the digest of the rules."""
    rows = [
        _HEADER,
        *(
            (rule.kind, rule.name, rule.mode.value, str(rule.priority), visible(str(rule.location)))
            for rule in found.rules
        ),
        *(
            (diagnostic.kind, diagnostic.name, "-", "-", visible(str(diagnostic.location)))
            for diagnostic in found.diagnostics
        ),
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
    yield f"digest {found.digest}"


def rule_list_json(found: RuleList) -> Json:
    """Return the document of `list --output json`."""
    return {
        "digest": found.digest,
        "rules": [
            {
                "kind": rule.kind,
                "name": rule.name,
                "mode": rule.mode.value,
                "priority": rule.priority,
                "file": rule.location.file,
                "line": rule.location.line,
                "column": rule.location.column,
            }
            for rule in found.rules
        ],
        "diagnostics": [
            {
                "name": diagnostic.name,
                "forEach": diagnostic.for_each.value,
                "reason": diagnostic.reason,
                "severity": diagnostic.severity.value,
                "file": diagnostic.location.file,
                "line": diagnostic.location.line,
                "column": diagnostic.location.column,
            }
            for diagnostic in found.diagnostics
        ],
    }
