"""A server that every test of a module shares."""

from collections.abc import Iterator

import pytest

from tests.support.server import LADDER, Running, started


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """The real server with the rules of `LADDER` and the packaged inventory."""
    folder = tmp_path_factory.mktemp("server")
    rules = folder / "rules.yaml"
    rules.write_text(LADDER)
    with started(folder, "--rules", rules) as running:
        yield running
