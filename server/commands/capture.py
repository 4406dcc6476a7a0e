"""`capture`: the objects of the live cluster that commands read."""

import click

from rules_engine.cli import Command, help_examples
from rules_engine.cli.options import NAMESPACE_NAME, live_options
from rules_engine.cli.program import Target, write_answer
from rules_engine.server.commands.live import list_objects, report_unread, write_list
from rules_engine.server.option_types import timeout_option


def _refuse_output(_context: click.Context, _parameter: click.Parameter, value: str | None) -> None:
    if value is not None:
        raise click.UsageError("capture writes one form of file, for --cluster, to standard output: write > FILE")


@click.command(
    cls=Command,
    short_help="Print the live cluster as a file for --cluster.",
    epilog=help_examples(
        "gpu-rules capture > cluster.json",
        "gpu-rules capture --context prod > prod.json",
    ),
)
@click.option("-o", "--output", hidden=True, expose_value=False, callback=_refuse_output)
@click.option("-n", "--namespace", type=NAMESPACE_NAME, metavar="NAME", help="The one to list if you may not list all.")
@timeout_option
@live_options
@click.pass_context
def capture(context: click.Context, namespace: str | None, timeout: float) -> None:  # noqa: ARG001 - from the context
    """Print the live cluster of KUBECONFIG as a file that every --cluster takes: a List in JSON.

    It has all kinds that commands read; Secrets are none of them, and of ConfigMaps only the status of the
    cluster-autoscaler. It lacks values of environment variables, commands and arguments of containers, commands and
    values of headers of probes and lifecycle hooks, kubectl's last-applied-configuration, and managedFields. Other
    annotations and messages of Events and of ended containers stay. Kinds that cannot be listed are named and left
    out; of those that may be listed in one namespace only, it has the objects there.

    Exits with 2 if the cluster cannot be read.
    """
    from rules_engine.model.kubernetes.cluster_objects import API_KINDS

    listed = list_objects(context, API_KINDS, needed=())
    report_unread(context, listed)
    write_answer("capture", [Target("json", None)], lambda _, stream: write_list(listed.objects, API_KINDS, stream))
