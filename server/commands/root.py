"""The root command: the offline commands, and commands that import the server's libraries when run."""

import click

from rules_engine.cli import COMMANDS, Root, help_examples
from rules_engine.server.commands.capture import capture
from rules_engine.server.commands.demo import demo
from rules_engine.server.commands.doctor.command import doctor
from rules_engine.server.commands.live import KubeconfigCluster
from rules_engine.server.commands.playground.command import playground
from rules_engine.server.commands.serve import serve


@click.group(
    cls=Root,
    context_settings={"help_option_names": ["-h", "--help"], "obj": KubeconfigCluster()},
    epilog=help_examples(
        "gpu-rules check rules",
        "gpu-rules explain -f pod.yaml --rules rules",
        "gpu-rules COMMAND --help",
    ),
)
@click.version_option(package_name="gpu-rules", prog_name="gpu-rules")
def main() -> None:
    """Declarative admission rules for GPUs on Kubernetes."""


for command in (*COMMANDS, capture, demo, doctor, playground, serve):
    main.add_command(command)

main.sections = {
    "Write rules": ("init", "check", "test", "eval", "schema", "sets", "convert", "playground"),
    "Understand decisions": ("explain", "list", "diff", "audit"),
    "Look at a cluster": ("preflight", "doctor", "capture", "simulate", "plan"),
    "Run the server": ("serve", "webhook-config", "native", "demo"),
}
