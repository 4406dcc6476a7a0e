"""`capture`: the live cluster as a ClusterInventory."""

import logging

import click

from rules_engine.cli import Command, examples
from server.option_types import timeout_option


@click.command(
    cls=Command,
    short_help="Print the live cluster as a ClusterInventory.",
    epilog=examples(
        "gpu-rules capture > cluster.yaml",
        "gpu-rules capture --output json > cluster.json",
    ),
)
@click.option(
    "--output",
    "form",
    type=click.Choice(["yaml", "json"]),
    default="yaml",
    show_default=True,
    help="YAML is for people. Use JSON for more than about 1,000 nodes: as YAML, they are too large to read back.",
)
@timeout_option
def capture(form: str, timeout: float) -> None:
    """Print the live cluster of KUBECONFIG as a ClusterInventory, reduced to what decisions on GPUs depend on."""
    from server.cluster import capture as capturing
    from server.cluster.connection import Connection, kubeconfig

    logging.disable(logging.WARNING)  # a failure ends the command, which prints it
    try:
        document = capturing.capture(Connection(kubeconfig), timeout)
    except capturing.CaptureError as error:
        for problem in error.problems:
            click.echo(f"gpu-rules capture: {problem}", err=True)
        raise SystemExit(1) from None
    finally:
        logging.disable(logging.NOTSET)
    click.echo((capturing.as_json if form == "json" else capturing.as_yaml)(document), nl=False)
