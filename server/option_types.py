"""Types of the command line's values: each converts a text, or fails with a message that quotes it."""

import re
from collections.abc import Mapping
from datetime import timedelta
from math import isnan
from pathlib import Path
from typing import Any, NamedTuple

import click

from rules_engine.cli import LAST_PORT
from rules_engine.model.kubernetes.names import is_label, is_subdomain
from rules_engine.server.cluster.source import Live

_UNITS: Mapping[str, timedelta] = {
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
}


class Address(NamedTuple):
    """Address to listen on; port 0 takes a free one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class AddressType(click.ParamType[Address]):
    """`HOST:PORT`; an IPv6 address needs brackets, no host means all addresses."""

    name = "HOST:PORT"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Address:
        host, colon, port = str(value).rpartition(":")
        if not colon or not (port.isascii() and port.isdigit()) or int(port) > LAST_PORT:
            self.fail(f"{value!r} is not HOST:PORT with a port of 0 to {LAST_PORT}", param, ctx)
        bracketed = host.startswith("[") and host.endswith("]")
        if ":" in host and not bracketed:
            self.fail(f"{value!r}: an IPv6 address needs brackets, as in [::1]:8443", param, ctx)
        return Address((host[1:-1] if bracketed else host) or "0.0.0.0", int(port))  # noqa: S104 - no host means all


class Seconds(click.FloatRange):
    """A number of seconds in a range; not `nan`, which every range accepts."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        seconds: float = super().convert(value, param, ctx)
        if isnan(seconds):
            self.fail(f"{value!r} is not a number of seconds", param, ctx)
        return seconds


class DurationParamType(click.ParamType[timedelta]):
    """A duration as Prometheus and kubectl write it: a number and a unit."""

    name = "DURATION"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        if isinstance(value, timedelta):
            return value
        match = re.fullmatch(r"([0-9]{1,6})([smhd])", str(value))
        if match is None or not int(match[1]):
            self.fail(f"{value!r} is not a duration, such as 90s, 30m, 6h or 2d", param, ctx)
        return int(match[1]) * _UNITS[match[2]]


class NamespacedName(click.ParamType[tuple[str, str]]):
    """`NAMESPACE/NAME` of an object as a pair; `name`: the same in messages. In brackets, the namespace may be ""."""

    def __init__(self, name: str) -> None:
        self.name = name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        namespace, slash, name = str(value).rpartition("/")
        optional = self.name.startswith("[") and not slash
        if not is_subdomain(name) or not (optional or is_label(namespace)):
            self.fail(f"{value!r} is not {re.sub('[][]', '', self.name)}", param, ctx)
        return namespace, name


class RulesPath(click.Path):
    """A file or folder of rules, or `set:NAME` for the folder of a packaged set."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not str(value).startswith("set:"):
            return super().convert(value, param, ctx)
        from rules_engine.rules.sources.rule_files import DEFAULT_RULES
        from rules_engine.rules.sources.rule_sources import PackagedSource, SourceError

        try:
            return DEFAULT_RULES.parent / PackagedSource.parse(str(value).removeprefix("set:")).name
        except SourceError as error:
            self.fail(str(error), param, ctx)


class ClusterPlace(click.Path):
    """A file with a cluster's inventory, or one of the words for a live cluster."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value in [live.value for live in Live]:
            return Live(value)
        if not Path(value).exists():
            self.fail(f"{value!r} is neither in-cluster nor kubeconfig, and no such file exists", param, ctx)
        return super().convert(value, param, ctx)


READ_SECONDS = 300.0
"""Default timeout of reading a live cluster: 100,000 pods take 15 s from a server nearby; this is for a distant one."""

timeout_option = click.option(
    "--timeout",
    type=Seconds(1, 3600),
    default=READ_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="Maximum time to read the live cluster.",
)
"""The option of commands that read a live cluster once."""
