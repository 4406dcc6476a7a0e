"""The Flask application as a factory for any WSGI server, such as `flask run` and gunicorn."""

import logging
from pathlib import Path

from flask import Flask

from rules_engine.server.cluster.source import FixedCluster
from rules_engine.server.http.admission import AdmissionEndpoint
from rules_engine.server.http.app import create_app
from rules_engine.server.rules.sources import prepare_sources
from rules_engine.server.state import ServerState

_log = logging.getLogger(__name__)


def application(*rules: str, cluster: str | None = None) -> Flask:
    """Create the application from paths of rules and a file of the cluster; by default, the packaged ones.

    Rules are read once. Nothing is reserved, recorded or sent. Raises UnusableError.
    """
    prepared, report = prepare_sources([Path(path) for path in rules], None if cluster is None else Path(cluster))
    if report:
        _log.warning("%s", report)
    state = ServerState(prepared.rules, FixedCluster(prepared.cluster))
    return create_app(state, AdmissionEndpoint(state))
