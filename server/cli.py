"""The root command: the offline commands, and those that import the server's libraries when run."""

import logging
from pathlib import Path
from typing import Any

import click

from rules_engine.cli import COMMANDS, Command, Root, examples, more_rules_argument, rule_paths
from server.diff.command import diff
from server.doctor.command import doctor
from server.option_types import timeout_option
from server.settings import SETTINGS, Settings


@click.group(
    cls=Root,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=examples(
        "gpu-rules check rules",
        "gpu-rules explain -f pod.yaml --rules rules",
        "gpu-rules COMMAND --help",
    ),
)
@click.version_option(package_name="gpu-rules", prog_name="gpu-rules")
def main() -> None:
    """Declarative admission rules for GPUs on Kubernetes."""


for command in COMMANDS:
    main.add_command(command)
main.add_command(diff)
main.add_command(doctor)


@main.command(
    cls=Command,
    params=[setting.to_option() for setting in SETTINGS],
    epilog=examples(
        "gpu-rules serve",
        "gpu-rules serve --rules rules --cluster cluster.yaml",
        "GPU_RULES_CLUSTER=kubeconfig gpu-rules serve",
    ),
)
@more_rules_argument
def serve(rules: tuple[Path, ...], more_rules: tuple[Path, ...], **options: Any) -> None:
    """Serve admission decisions over HTTPS.

    Every option can also be given as an environment variable: GPU_RULES_ and its name, as in GPU_RULES_LISTEN.
    """
    settings = Settings(rules=rule_paths(rules, more_rules), **options)
    conflict = settings.conflict()
    if conflict is not None:
        raise click.UsageError(conflict)

    from server.serve import StartError, print_or_log
    from server.serve import serve as run

    try:
        run(settings)
    except StartError as error:
        print_or_log(str(error), logging.ERROR, settings)
        raise SystemExit(1) from None


@main.command(
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


@main.command(
    cls=Command,
    short_help="Send scenarios to a real server over HTTPS.",
    epilog=examples("gpu-rules demo"),
)
def demo() -> None:
    """Send scenarios to a real server over HTTPS and print the results."""
    from server.demo.run import run

    raise SystemExit(run())
