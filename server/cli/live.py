"""The live cluster of commands that otherwise need none: their `--cluster kubeconfig`, and rules of ConfigMaps."""

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import click

from rules_engine.cli.options import KUBECONFIG, ClusterAccess, kubeconfig_options
from rules_engine.cli.program import end_unusable
from rules_engine.cli.progress import progress_bar
from server.option_types import READ_SECONDS

if TYPE_CHECKING:
    from kubernetes.client import Configuration

    from rules_engine.sources.rule_sources import ParseSource
    from server.cluster.connection import Connection

COLLECTION_KINDS: Mapping[str, str] = {
    "nodes": "Node",
    "pods": "Pod",
    "namespaces": "Namespace",
    "priorityclasses": "PriorityClass",
    "replicasets": "ReplicaSet",
    "statefulsets": "StatefulSet",
    "daemonsets": "DaemonSet",
    "jobs": "Job",
    "replicationcontrollers": "ReplicationController",
    "controllerrevisions": "ControllerRevision",
    "limitranges": "LimitRange",
    "resourcequotas": "ResourceQuota",
}
"""The kinds of the collections that commands read."""


class LiveCluster(ClusterAccess):
    """The cluster of a kubeconfig, or of the service account in a pod without one."""

    def file(self, context: click.Context, collections: Sequence[str]) -> Path:
        """Read collections to a file that exists until the command ends, as kubectl would write them."""
        from rules_engine.model.kubernetes.cluster_objects import DIAGNOSED_RESOURCES
        from rules_engine.model.kubernetes.device_objects import DEVICE_KINDS
        from server.doctor.listing import Listing

        folder = context.with_resource(TemporaryDirectory(prefix="gpu-rules-"))
        path = Path(folder) / f"{KUBECONFIG}.json"
        further = {kind: DIAGNOSED_RESOURCES[kind] for kind in DEVICE_KINDS if "nodes" in collections}
        if "resourcequotas" in collections:
            collections = (*collections, "limitranges")
        kinds = {**{COLLECTION_KINDS[collection]: collection for collection in collections}, **further}
        counts: dict[str, int] = {}

        with ending_if_unreadable(context), progress_bar("elapsed") as report, path.open("wb") as file:

            def progress(collection: str, done: int) -> None:
                counts[collection] = done
                report(f"{collection}: {done:,}", 0, 0)

            listing = Listing(open_connection(context), {}, seconds=READ_SECONDS, progress=progress)
            unread = listing.write(kinds, file)
        # Most clusters have no drivers, and older ones lack these APIs.
        report_unread(context, {kind: why for kind, why in unread.items() if not (kind in further and "404" in why)})
        shown = {name: count for name, count in counts.items() if name in collections or count}
        amounts = ", ".join(f"{collection} {count:,}" for collection, count in shown.items())
        name = kubeconfig_options(context).get("--context", "the current context")
        click.echo(
            f"cluster: {name} of the kubeconfig, read at {datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}: {amounts}", err=True
        )
        return path

    def version(self, context: click.Context) -> tuple[int, int] | None:
        """Return major and minor version of the API server; its minor version may end with "+"."""
        with ending_if_unreadable(context):
            version = open_connection(context).object("/version")
        numbers = [re.match("[0-9]+", str(version.get(part))) for part in ("major", "minor")]
        major, minor = (int(number[0]) if number else None for number in numbers)
        return None if major is None or minor is None else (major, minor)

    def parsers(self, context: click.Context) -> "Mapping[str, ParseSource]":
        """Return the parser of `configmap:NAMESPACE/NAME`."""
        from server.cluster.config_map import PREFIX, config_map_parser

        return {PREFIX: config_map_parser(open_connection(context))}


def open_connection(context: click.Context) -> "Connection":
    """Return a connection as `--kubeconfig` and `--context` say, which may be parsed after this call."""
    from server.cluster.connection import Connection, as_kubectl

    def configure(configuration: "Configuration") -> None:
        options = kubeconfig_options(context)
        as_kubectl(file=options.get("--kubeconfig", ""), context=options.get("--context"))(configuration)

    return Connection(configure)


@contextmanager
def ending_if_unreadable(context: click.Context) -> Iterator[None]:
    """Read a live cluster in the block. Ends the command, with the reason, if it cannot be read."""
    from server.cluster.connection import ApiError

    logging.disable(logging.WARNING)  # a failure ends the command, which prints it
    try:
        yield
    except ApiError as error:
        end_unusable(str(context.info_name), str(error))
    finally:
        logging.disable(logging.NOTSET)


def report_unread(context: click.Context, unread: Mapping[str, str]) -> None:
    """Print why kinds could not be read."""
    for message in unread.values():
        click.echo(f"gpu-rules {context.info_name}: warning: {message}", err=True)
