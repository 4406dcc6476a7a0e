"""`schema`: JSON Schemas of rule files."""

from collections.abc import Mapping
from typing import Any

import click

from rules_engine.cli.options import KnownValue
from rules_engine.cli.program import Command, help_examples, print_json


class KindName(KnownValue[str]):
    """The kind of a document; letter case is ignored."""

    name = "KIND"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from rules_engine.documents.headers import DOCUMENT_KINDS
        from rules_engine.model.problems.problem import did_you_mean

        by_casefold = {kind.casefold(): kind for kind in DOCUMENT_KINDS}
        kind = by_casefold.get(str(value).casefold())
        if kind is None:
            names = ", ".join(DOCUMENT_KINDS)
            self.fail(
                f"unknown kind {value!r}{did_you_mean(str(value), DOCUMENT_KINDS)}: must be one of {names}", param, ctx
            )
        return kind

    def known(self) -> Mapping[str, None]:
        from rules_engine.documents.headers import DOCUMENT_KINDS

        return dict.fromkeys(DOCUMENT_KINDS)


@click.command(
    cls=Command,
    short_help="Print the JSON Schema of one kind or of all kinds.",
    epilog=help_examples(
        "gpu-rules schema FallbackLadder",
        "gpu-rules schema > gpu-rules.schema.json",
    ),
)
@click.argument("kind", type=KindName(), required=False)
def schema(kind: str | None) -> None:
    """Print the JSON Schema of one kind, or one schema for all kinds, for editors and other tools."""
    from rules_engine.loading import schema as kind_schema
    from rules_engine.starting.schemas import combine_schemas

    print_json(kind_schema(kind) if kind else combine_schemas())
