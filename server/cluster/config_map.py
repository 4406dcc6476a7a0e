"""Rules of a ConfigMap, as a pod that mounts it sees them."""

from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rules_engine.language.files import SUFFIXES, SourceFile, decode_source, report_no_files
from rules_engine.model.json.lenient import as_string_map
from rules_engine.model.kubernetes.names import is_label, is_subdomain
from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.problem import Problems
from rules_engine.model.problems.source import Location, truncate
from rules_engine.rules.sources.rule_sources import ParseSource, SourceError
from rules_engine.server.cluster.connection import ApiError, Cause, Connection, api_path

PREFIX = "configmap"
"""Prefix of a ConfigMap among sources of rules."""


@dataclass(frozen=True, slots=True)
class ConfigMapSource:
    """A ConfigMap of the cluster that a connection reaches."""

    namespace: str
    name: str
    connection: Connection

    def __str__(self) -> str:
        return f"{PREFIX}:{self.namespace}/{self.name}"

    def files(self, problems: Problems) -> Iterable[SourceFile]:
        """Read the entries that would be rule files in a mounted folder; their names are `configmap:NS/NAME/KEY`."""
        try:
            config_map = self.connection.object(api_path("configmaps", namespace=self.namespace, name=self.name))
        except ApiError as error:
            if error.cause is Cause.MISSING:
                problems.error(Code.MISSING_FILE, "ConfigMap not found", Location(str(self), 1, 1))
            else:
                problems.error(Code.UNREADABLE_FILE, f"cannot be read: {error}", Location(str(self), 1, 1))
            return []
        texts = {key: text.encode() for key, text in as_string_map(config_map.get("data")).items()}
        for key, text in as_string_map(config_map.get("binaryData")).items():
            try:
                texts[key] = b64decode(text, validate=True)
            except Base64Error:
                message = f"cannot be read: the value of '{truncate(key)}' is not base64"
                problems.error(Code.UNREADABLE_FILE, message, Location(str(self), 1, 1))
        names = sorted(key for key in texts if not key.startswith(".") and Path(key).suffix in SUFFIXES)
        if not names:
            report_no_files(str(self), problems)
        files = (decode_source(Path(f"{self}/{key}"), texts[key], problems) for key in names)
        return [file for file in files if file is not None]


def config_map_parser(connection: Connection) -> ParseSource:
    """Return the parser of sources `configmap:NAMESPACE/NAME`, read over a connection."""

    def parse(text: str) -> ConfigMapSource:
        namespace, _, name = text.partition("/")
        if not (is_label(namespace) and is_subdomain(name)):
            raise SourceError(f"'{PREFIX}:{truncate(text)}' is not {PREFIX}:NAMESPACE/NAME")
        return ConfigMapSource(namespace, name, connection)

    return parse
