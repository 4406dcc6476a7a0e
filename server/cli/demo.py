"""`demo`: scenarios on a real server."""

import click

from rules_engine.cli import Command, help_examples


@click.command(
    cls=Command,
    short_help="Send scenarios to a real server over HTTPS.",
    epilog=help_examples("gpu-rules demo"),
)
def demo() -> None:
    """Send scenarios to a real server over HTTPS and print the results."""
    from server.demo.run import run_demo

    raise SystemExit(run_demo())
