"""The live cluster of commands that otherwise need none: their `--cluster kubeconfig`, and rules of ConfigMaps."""

import logging
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TextIO

import click

from rules_engine.cli.options import ClusterAccess, kubeconfig_options
from rules_engine.cli.program import end_without_answer
from rules_engine.cli.progress import progress_bar
from rules_engine.model.kubernetes.names import DEFAULT_NAMESPACE
from rules_engine.server.option_types import READ_SECONDS

if TYPE_CHECKING:
    from kubernetes.client import Configuration

    from rules_engine.model.kubernetes.cluster_objects import ClusterObjects
    from rules_engine.rules.sources.rule_sources import ParseSource
    from rules_engine.server.cluster.connection import Connection
    from rules_engine.server.cluster.listing import ListedObjects


class KubeconfigCluster(ClusterAccess):
    """The cluster of a kubeconfig, or of the service account in a pod without one."""

    def objects(self, context: click.Context, kinds: Sequence[str], *, whole: bool) -> "ClusterObjects":
        """Read kinds. Ends the command if they cannot be read."""
        listed = list_objects(context, kinds, whole=whole, needed=["Node"])
        # Older clusters lack the APIs of devices and of some policies.
        report_unread(context, listed, missing=False)
        return listed.objects

    def namespace(self, context: click.Context) -> str:
        """Return the namespace of the kubeconfig's context; "" if it has none."""
        from rules_engine.server.cluster.connection import context_namespace

        options = kubeconfig_options(context)
        return context_namespace(options.get("--kubeconfig", ""), options.get("--context"))

    def version(self, context: click.Context) -> tuple[int, int] | None:
        """Return major and minor version of the API server; its minor version may end with "+"."""
        with ending_if_unreadable():
            version = open_connection(context).object("/version")
        numbers = [re.match("[0-9]+", str(version.get(part))) for part in ("major", "minor")]
        major, minor = (int(number[0]) if number else None for number in numbers)
        return None if major is None or minor is None else (major, minor)

    def parsers(self, context: click.Context) -> "Mapping[str, ParseSource]":
        """Return the parser of `configmap:NAMESPACE/NAME`."""
        from rules_engine.server.cluster.config_map import PREFIX, config_map_parser

        return {PREFIX: config_map_parser(open_connection(context))}


def open_connection(context: click.Context) -> "Connection":
    """Return a connection as `--kubeconfig` and `--context` say, which may be parsed after this call."""
    from rules_engine.server.cluster.connection import Connection, as_kubectl

    def configure(configuration: "Configuration") -> None:
        options = kubeconfig_options(context)
        as_kubectl(file=options.get("--kubeconfig", ""), context=options.get("--context"))(configuration)

    return Connection(configure)


@contextmanager
def ending_if_unreadable() -> Iterator[None]:
    """Read a live cluster in the block. Ends the command, with the reason, if it cannot be read."""
    from rules_engine.server.cluster.connection import ApiError

    logging.disable(logging.WARNING)  # a failure ends the command, which prints it
    try:
        yield
    except ApiError as error:
        end_without_answer(str(error), "kubeconfig")
    finally:
        logging.disable(logging.NOTSET)


def list_objects(
    context: click.Context,
    kinds: Iterable[str],
    *,
    whole: bool = False,
    needed: Collection[str] = ("Node", "Pod"),
    namespace: str = "",
) -> "ListedObjects":
    """List the objects of the live cluster, and print its name and their numbers; the parameters are those of Listing.

    Kinds that may be listed in one namespace only are listed in `namespace`, else in `_own_namespace`. Ends the command
    if the cluster cannot be read.
    """
    from rules_engine.model.kubernetes.cluster_objects import API_KINDS
    from rules_engine.server.cluster.listing import Listing

    with ending_if_unreadable(), progress_bar("elapsed") as report:
        listing = Listing(
            open_connection(context),
            seconds=context.params.get("timeout", READ_SECONDS),
            progress=lambda collection, done: report(f"{collection}: {done:,}", 0, 0),
        )
        listed = listing.read(kinds, whole=whole, needed=needed, namespace=namespace or _own_namespace(context))
    counts = {kind: len(listed.objects.of(kind)) for kind in kinds if kind not in listed.objects.absent}
    shown = [kind for kind, count in counts.items() if count or kind in ("Node", "Pod")]
    amounts = ", ".join(f"{API_KINDS[kind].resource} {counts[kind]:,}" for kind in shown)
    name = kubeconfig_options(context).get("--context", "the current context")
    click.echo(
        f"cluster: {name} of the kubeconfig, read at {datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}: {amounts}", err=True
    )
    return listed


def _own_namespace(context: click.Context) -> str:
    """Return the namespace of `--namespace`, else of the kubeconfig's context; as kubectl, default otherwise."""
    given = context.params.get("namespace")
    if isinstance(given, str) and given:
        return given
    return KubeconfigCluster().namespace(context) or DEFAULT_NAMESPACE


def write_list(objects: "ClusterObjects", kinds: Iterable[str], stream: TextIO) -> None:
    """Write the objects of kinds as a List in JSON, each on a line of its own.

    A kind without objects has an empty list, which shows that it was read. The list has the time.
    """
    from rules_engine.model.kubernetes.cluster_objects import API_KINDS, plain_kind
    from rules_engine.model.kubernetes.removed_values import CAPTURED, PARTIAL
    from rules_engine.report.answer import answer_text

    annotations = {CAPTURED: f"{objects.now:%Y-%m-%dT%H:%M:%SZ}"}
    if objects.partial:
        annotations[PARTIAL] = " ".join((*{*objects.partial.values()}, *objects.partial))
    metadata = answer_text({"annotations": annotations}, stream.encoding or "", indent=0)
    stream.write(f'{{"apiVersion": "v1", "kind": "List", "metadata": {metadata}, "items": [')
    separator = "\n"
    for kind in kinds:
        if kind in objects.absent:
            continue
        for item in objects.of(kind) or ({"kind": f"{plain_kind(kind)}List", "items": []},):
            typed = {"apiVersion": API_KINDS[kind].api_version, **item}
            stream.write(f"{separator}{answer_text(typed, stream.encoding or '', indent=0)}")
            separator = ",\n"
    stream.write("\n]}\n")


def report_unread(context: click.Context, listed: "ListedObjects", *, missing: bool = True) -> None:
    """Print why kinds could not be read; `missing`: also kinds that the API server does not have."""
    for warning in listed.warnings(missing=missing):
        click.echo(f"gpu-rules {context.info_name}: warning: {warning}", err=True)
