"""Options of `gpu-rules diff`: sources of rules."""

from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from rules_engine.cli.options import Decorator

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rules_engine.sources.rule_sources import Parse, RuleSource

# The modules of sources compile rules and reach an API server: they are imported once a source is named.


def _prefixes() -> "Mapping[str, Parse]":
    """Return the parsers of sources by prefix. ConfigMaps are read from the cluster that kubectl would use."""
    from rules_engine.sources.rule_sources import PREFIXES
    from server.cluster.connection import Connection, as_kubectl
    from server.diff.config_map import PREFIX, config_map_parser

    return {**PREFIXES, PREFIX: config_map_parser(Connection(as_kubectl()))}


class RuleSourceType(click.ParamType["RuleSource"]):
    """A source of rules: a path, a packaged set, or a source with a prefix."""

    name = "SOURCE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> "RuleSource":
        from rules_engine.sources.rule_sources import SourceError, rule_source

        try:
            return rule_source(str(value), _prefixes())
        except SourceError as error:
            self.fail(str(error), param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002 - click's signature
        from rules_engine.sources.packaged_sets import packaged_sets

        sets = [CompletionItem(name, help="packaged set") for name in packaged_sets() if name.startswith(incomplete)]
        return [*sets, CompletionItem(incomplete, type="file")]


def sources_option(name: str, whose: str) -> Decorator:
    """Return a required, repeatable option for the sources of a side; its help begins with `whose` rules they are."""
    return click.option(
        name,
        type=RuleSourceType(),
        multiple=True,
        required=True,
        help=f"{whose}: a file or folder, git:REF:PATH, a packaged set, or configmap:NAMESPACE/NAME. Repeatable.",
    )
