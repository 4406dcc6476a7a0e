"""Rules and Diagnostics of files as a table and as JSON."""

from typing import Any

from rules_engine.report.documents import members, place
from rules_engine.report.values import Table
from rules_engine.sources.rule_list import RuleList


def rule_table(found: RuleList) -> Table:
    """Return a table of the rules and Diagnostics."""
    rules = [(rule.kind, rule.name, rule.mode.value, str(rule.priority), str(rule.location)) for rule in found.rules]
    others = [(each.kind, each.name, "-", "-", str(each.location)) for each in found.diagnostics]
    return Table(heads=("kind", "name", "mode", "priority", "place"), rows=[*rules, *others])


def rule_list_json(found: RuleList) -> dict[str, Any]:
    """Return the document of `list --output json`."""
    return {
        "digest": found.digest,
        "rules": [{**members(rule, "kind name mode priority"), **place(rule.location)} for rule in found.rules],
        "diagnostics": [
            {**members(each, "name for_each reason severity"), **place(each.location)} for each in found.diagnostics
        ],
    }
