"""`schema`: JSON Schemas of rule files, and of the answers of commands."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click

from rules_engine.cli.options import KnownName
from rules_engine.cli.program import Command, help_examples, print_json

ANSWERS: Mapping[str, str] = {
    "audit": "rules_engine.questions.audit:AuditAnswer",
    "check": "rules_engine.authoring.check.check:CheckAnswer",
    "diff": "rules_engine.questions.diff.answer:DifferenceAnswer",
    "doctor": "rules_engine.questions.doctor.values:Diagnosis",
    "explain": "rules_engine.questions.explain.explain:Explained",
    "explain-from-log": "rules_engine.questions.explain.recorded:LoggedDecisions",
    "list": "rules_engine.questions.explain.rule_list:RuleList",
    "native": "rules_engine.report.answer:ObjectList",
    "plan": "rules_engine.questions.plan.plan:PlanAnswer",
    "preflight": "rules_engine.questions.preflight.answer:PreflightAnswer",
    "sets-suggest": "rules_engine.rules.sources.card_sets:SetSuggestion",
    "simulate": "rules_engine.questions.simulate.answer:SimulationAnswer",
    "test": "rules_engine.authoring.test.rule_tests:TestAnswer",
    "webhook-config": "rules_engine.report.answer:ObjectList",
}
"""The type of each command's answer, which is imported when its schema is printed."""

_PREFIX = "answer/"


def load_schema(command: str) -> dict[str, Any]:
    """Return the JSON Schema of a command's answer."""
    from rules_engine.report.answer import answer_schema

    module, _, type_name = ANSWERS[command].partition(":")
    return answer_schema(getattr(import_module(module), type_name))


class SchemaName(KnownName):
    """The kind of a document, or answer/COMMAND."""

    name = "NAME"

    def known(self) -> Mapping[str, None]:
        from rules_engine.language.headers import DOCUMENT_KINDS

        return dict.fromkeys((*DOCUMENT_KINDS, *(f"{_PREFIX}{name}" for name in ANSWERS)))


@click.command(
    cls=Command,
    short_help="Print the JSON Schema of a kind, or of a command's answer.",
    epilog=help_examples(
        "gpu-rules schema FallbackLadder",
        "gpu-rules schema answer/doctor",
        "gpu-rules schema > gpu-rules.schema.json",
    ),
)
@click.argument("name", type=SchemaName(), required=False)
def schema(name: str | None) -> None:
    """Print the JSON Schema of a kind of document, of a command's --output json, or one schema for all kinds.

    NAME is a kind, such as FallbackLadder, or answer/COMMAND, such as answer/doctor. Without it: one schema for the
    documents of all kinds, for editors and other tools.
    """
    from rules_engine.language.schemas import schema as kind_schema
    from rules_engine.rules.sources.schemas import combine_schemas

    if name is None:
        print_json(combine_schemas())
    elif name.startswith(_PREFIX):
        print_json(load_schema(name.removeprefix(_PREFIX)))
    else:
        print_json(kind_schema(name))
