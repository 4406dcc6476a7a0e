"""Servers of tests."""

from collections.abc import Iterator

import pytest

from tests.support.apiserver import ApiServer, api_server
from tests.support.server import LADDER, Running, started


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Real server with the rules of `LADDER` and the packaged inventory."""
    folder = tmp_path_factory.mktemp("server")
    rules = folder / "rules.yaml"
    rules.write_text(LADDER)
    with started(folder, "--rules", rules) as running:
        yield running


@pytest.fixture
def api() -> Iterator[ApiServer]:
    """API server without objects."""
    with api_server() as server:
        yield server
