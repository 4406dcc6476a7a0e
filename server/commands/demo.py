"""`demo`: scenarios on a real server."""

import signal

import click

from rules_engine.cli import Command, help_examples
from rules_engine.cli.program import fail_if


@click.command(
    cls=Command,
    short_help="Send scenarios to a real server over HTTPS.",
    epilog=help_examples("gpu-rules demo"),
)
def demo() -> None:
    """Send scenarios over HTTPS to a real server with the packaged set gpu-allocation, and print the results."""
    from rules_engine.server.commands.scenarios import run_demo

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # it ends the servers, too
    fail_if(bool(run_demo()))
