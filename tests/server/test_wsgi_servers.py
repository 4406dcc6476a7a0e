"""The application in other WSGI servers, as docs/contributing/internals.md starts them."""

import http.client
import json
import logging
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rules_engine.server.http.limits import BODY_BYTES
from rules_engine.server.rules.sources import UnusableError
from rules_engine.server.wsgi import application
from tests.support.evaluation import limited
from tests.support.server import LADDER, MIG_POD, PATIENCE_SECONDS, Answer, encoded, environment, review

LATEST_POD = limited({}) | {"spec": {"containers": [{"name": "main", "image": "cuda:latest"}]}}


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "rules.yaml"
    path.write_text(LADDER)
    return path


@contextmanager
def started(*arguments: str) -> Iterator[int]:
    """Run a module that prints the URL of its server; yield its port, and end it afterwards."""
    with subprocess.Popen(
        [sys.executable, "-m", *arguments], env=environment(), stderr=subprocess.STDOUT, stdout=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout is not None
            found = (re.search(rb"http://127\.0\.0\.1:(\d+)", line) for line in process.stdout)
            yield next(int(url[1]) for url in found if url)
            process.send_signal(signal.SIGINT)
            process.wait(PATIENCE_SECONDS)
        finally:
            process.kill()


def send(port: int, method: str, path: str, body: bytes = b"", length: int = 0) -> Answer:
    """Send a request with the length of its body, or with another one."""
    headers = {"Content-Type": "application/json", "Content-Length": str(length or len(body))}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_SECONDS)
    try:
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        return Answer(response.status, {}, json.loads(response.read()))
    finally:
        connection.close()


@pytest.mark.parametrize(
    "server",
    [
        ("flask", "--app", "APPLICATION", "run", "--port", "0"),
        ("gunicorn", "--bind", "127.0.0.1:0", "--no-control-socket", "APPLICATION"),
    ],
    ids=lambda server: server[0],
)
def test_another_server_serves_the_application(server: tuple[str, ...], rules: Path) -> None:
    factory = f'rules_engine.server.wsgi:application("{rules}")'

    with started(*(each.replace("APPLICATION", factory) for each in server)) as port:
        healthy = send(port, "GET", "/healthz")
        changed = send(port, "POST", "/mutate", encoded(review(MIG_POD)))
        denied = send(port, "POST", "/validate", encoded(review(LATEST_POD)))
        # Answered before the body, so that it need not be sent.
        too_large = send(port, "POST", "/mutate", length=2 * BODY_BYTES)

    assert (healthy.status, healthy.body) == (200, {"status": "ok"})
    assert changed.patch
    assert denied.response["status"]["message"] == "Validation/no-latest: an image must have a tag"
    assert (too_large.status, too_large.body["reason"]) == (413, "RequestEntityTooLarge")


INJECTION = """\
apiVersion: gpurules.io/v1
kind: ResourceInjection
metadata: {name: idle-inherit}
spec: {namespaces: {team: {inherit: Merge, coefficients: {cpu: 4}}}}
"""


def test_the_factory_logs_warnings(rules: Path, caplog: pytest.LogCaptureFixture) -> None:
    rules.write_text(INJECTION)

    with caplog.at_level(logging.WARNING):
        application(str(rules))

    assert "[nothing-to-inherit]" in caplog.text


def test_the_factory_raises_the_problems_of_rules(rules: Path) -> None:
    rules.write_text("spec: {}")

    with pytest.raises(UnusableError, match=r"rules\.yaml:1:1: error"):
        application(str(rules))
