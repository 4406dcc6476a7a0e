"""`capture`: the live cluster as a ClusterInventory."""

import logging

import click

from rules_engine.cli import Command, help_examples
from rules_engine.cli.options import live_options
from rules_engine.cli.program import UNUSABLE
from server.cli.live import open_connection
from server.option_types import timeout_option


@click.command(
    cls=Command,
    short_help="Print the live cluster as a ClusterInventory.",
    epilog=help_examples(
        "gpu-rules capture > cluster.yaml",
        "gpu-rules capture --output json > cluster.json",
    ),
)
@click.option(
    "-o",
    "--output",
    "form",
    type=click.Choice(["yaml", "json"]),
    default="yaml",
    show_default=True,
    help="YAML is for people. Use JSON for more than about 1,000 nodes: as YAML, they are too large to read back.",
)
@timeout_option
@live_options
@click.pass_context
def capture(context: click.Context, form: str, timeout: float) -> None:
    """Print the live cluster of KUBECONFIG as a ClusterInventory, reduced to what decisions on GPUs depend on.

    Exits with 2 if it cannot be read.
    """
    from server.cluster import capture as capturing

    logging.disable(logging.WARNING)  # a failure ends the command, which prints it
    try:
        document = capturing.capture_inventory(open_connection(context), timeout)
    except capturing.CaptureError as error:
        for problem in error.problems:
            click.echo(f"gpu-rules capture: {problem}", err=True)
        raise SystemExit(UNUSABLE) from None
    finally:
        logging.disable(logging.NOTSET)
    click.echo((capturing.as_json if form == "json" else capturing.as_yaml)(document), nl=False)
