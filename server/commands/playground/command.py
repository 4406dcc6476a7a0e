"""`playground`: rules, a pod and a cluster in the browser."""

import os
import socket
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rules_engine.cli import Command, help_examples
from rules_engine.cli.options import sources_option
from rules_engine.cli.program import SingleOption
from rules_engine.server.option_types import Address, AddressType

if TYPE_CHECKING:
    from rules_engine.rules.sources.rule_sources import RuleSource


@click.command(
    cls=Command,
    short_help="Try rules on a pod and a cluster in the browser.",
    epilog=help_examples(
        "gpu-rules playground",
        "gpu-rules playground --rules rules --cluster cluster.yaml",
        "gpu-rules playground --listen localhost:8080 --no-open",
    ),
)
@sources_option("--rules", "Rules", several=True, default=" Default: an example's rules.")
@click.option(
    "--cluster",
    cls=SingleOption,
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A ClusterInventory, or the output of gpu-rules capture or of kubectl. Default: an example's cluster.",
)
@click.option(
    "--listen",
    type=AddressType(),
    default="127.0.0.1:8377",
    show_default=True,
    help="Loopback address of the page, and of links to it; port 0 takes a free one.",
)
@click.option("--no-open", is_flag=True, help="Do not open the browser.")
def playground(rules: "tuple[RuleSource, ...]", cluster: Path | None, listen: Address, no_open: bool) -> None:
    """Try rules on a pod and a cluster in the browser: the decision, and where the pod starts, while you type.

    Nothing that is typed leaves this host, and no file is written. Ends with Ctrl-C.
    """
    from rules_engine.server.commands.playground.answer import EXAMPLES
    from rules_engine.server.commands.playground.app import MAX_TEXT_BYTES
    from rules_engine.server.commands.playground.serve import serve_playground

    if not _is_loopback(listen.host):
        raise click.BadParameter(f"{listen.host} is not a loopback address", param_hint="--listen")
    start = _read_texts(rules, cluster)
    if sum(len(text.encode()) for text in start.values()) > MAX_TEXT_BYTES:
        raise click.UsageError(f"the rules and the cluster have more than {MAX_TEXT_BYTES // 1024} KiB")
    try:
        family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
        bound = socket.create_server(listen, family=family)
    except OSError as error:
        raise click.ClickException(f"cannot listen on {listen}: {os.strerror(error.errno or 0)}") from None
    named = " ".join(map(str, rules)) or f"the example {EXAMPLES[0]['title']!r}"
    serve_playground(
        bound, start, browser=not no_open, announce=lambda url: click.echo(f"{url} (rules: {named}; Ctrl-C ends it)")
    )


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _read_texts(rules: "tuple[RuleSource, ...]", cluster: Path | None) -> dict[str, str]:
    """Return the texts of files by their name in the playground. Raises UsageError."""
    from rules_engine.language.files import MAX_FILE_BYTES, decode_source, read_bytes
    from rules_engine.model.problems.problem import Problems
    from rules_engine.server.commands.playground.answer import CLUSTER_FILE, RULES_FILE

    problems, texts = Problems(), {}
    files = [file for source in rules for file in source.files(problems)]
    if problems.items:
        raise click.UsageError(str(problems.items[0]))
    if files:
        texts[RULES_FILE] = "---\n".join(file.text if file.text.endswith("\n") else f"{file.text}\n" for file in files)
    if cluster is not None:
        data = read_bytes(cluster, MAX_FILE_BYTES, problems)
        source = None if data is None else decode_source(cluster, data, problems)
        if source is None:
            raise click.UsageError(str(problems.items[0]))
        texts[CLUSTER_FILE] = source.text
    return texts
