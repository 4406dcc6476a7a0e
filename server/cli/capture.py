"""`capture`: the objects of the live cluster that commands read."""

import click

from rules_engine.cli import Command, help_examples
from rules_engine.cli.options import Target, live_options
from rules_engine.cli.program import write_answer
from server.cli.live import list_objects, report_unread, write_list
from server.option_types import timeout_option


@click.command(
    cls=Command,
    short_help="Print the live cluster as a file for --cluster.",
    epilog=help_examples(
        "gpu-rules capture > cluster.json",
        "gpu-rules capture --context prod > prod.json",
    ),
)
@timeout_option
@live_options
@click.pass_context
def capture(context: click.Context, timeout: float) -> None:  # noqa: ARG001 - read from the context
    """Print the live cluster of KUBECONFIG as a file that every --cluster takes: a List in JSON.

    It has all kinds that commands read, without what may be secret: values of environment variables, commands and
    arguments of containers, headers of probes, and kubectl's last-applied-configuration. Kinds that cannot be listed
    are named and left out.

    Exits with 2 if the cluster cannot be read.
    """
    from rules_engine.model.kubernetes.cluster_objects import API_KINDS

    listed = list_objects(context, API_KINDS, needed=())
    report_unread(context, listed.unread.values())
    write_answer("capture", [Target("json", None)], lambda _, stream: write_list(listed.objects, API_KINDS, stream))
