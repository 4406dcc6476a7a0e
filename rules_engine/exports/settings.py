"""Settings of webhook configurations that do not follow from the rules, with their defaults.

The command line imports this module for its help: it imports nothing at run time but the standard library.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rules_engine.model.rules.admission import Endpoint

IGNORE, FAIL = "Ignore", "Fail"
"""The failurePolicies: IGNORE, the default here and in the chart, admits the pod when the server does not answer."""

INSTALLATION = "gpu-rules"
"""Default name of all objects of an installation, and of its namespace."""


@dataclass(frozen=True, slots=True)
class Service:
    """The Service in front of the server."""

    name: str = INSTALLATION
    namespace: str = INSTALLATION
    port: int = 443


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of a configuration. `server` is a Service or a URL prefix; None: the Service in `namespace`."""

    name: str = INSTALLATION
    namespace: str = INSTALLATION
    server: Service | str | None = None
    ca_bundle: bytes | None = None
    failure_policies: Mapping["Endpoint", str] = field(default_factory=lambda: MappingProxyType({}))
    """Default: IGNORE."""
    timeout_seconds: int = 5
    native: bool = False
    """The API server evaluates other rules itself."""
    audit: bool = False
    """The server is in mode Audit."""
    namespaces: tuple[str, ...] = ()
    """The only namespaces whose pods are sent; none: all."""


DEFAULT_SETTINGS = Settings()
