"""`serve`: the admission server."""

import logging
from typing import Any

import click

from rules_engine.cli import Command, help_examples
from rules_engine.server.settings import SETTINGS, ServerSettings


@click.command(
    cls=Command,
    params=[setting.to_option() for setting in SETTINGS],
    epilog=help_examples(
        "gpu-rules serve",
        "gpu-rules serve --rules rules --cluster cluster.yaml",
        "GPU_RULES_CLUSTER=kubeconfig gpu-rules serve --rules rules",
    ),
)
def serve(**options: Any) -> None:
    """Serve admission decisions over HTTPS.

    Every option can also be given as an environment variable: GPU_RULES_ and its name, as in GPU_RULES_LISTEN.
    """
    settings = ServerSettings(**options)
    conflict = settings.conflict()
    if conflict is not None:
        raise click.UsageError(conflict)

    from rules_engine.server.serve import StartError, print_or_log
    from rules_engine.server.serve import serve as run

    try:
        run(settings)
    except (StartError, RuntimeError) as error:
        if type(error) is RuntimeError and "start new thread" not in str(error):  # Python has no other type for it
            raise
        print_or_log(str(error), logging.ERROR, settings)
        raise SystemExit(1) from None
