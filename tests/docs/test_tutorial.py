"""docs/tutorial/first-evening.md: the server, which examples run in one process cannot start."""

import contextlib
import json
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.server import PATIENCE_SECONDS, command, environment, started
from tools.documents import REPOSITORY, blocks, is_excerpt

PAGE = REPOSITORY / "docs/tutorial/first-evening.md"


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_server_answers_and_logs_as_the_tutorial_says(tmp_path: Path) -> None:
    before, _, after = PAGE.read_text().partition("## Run the server\n")
    section = [*blocks(after.partition("\n## ")[0])]
    for block in (*blocks(before), *section):
        if block.language == "yaml":
            file = tmp_path / block.title
            file.parent.mkdir(exist_ok=True)
            file.write_text(block.text)
    serve, curl, explain = (shlex.split(block.text) for block in section if block.language == "sh")
    (response,) = (block.text for block in section if block.language == "json")
    (trace,) = (block.text for block in section if block.language == "text")

    def run(line: list[str]) -> str:
        done = subprocess.run(
            line, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True
        )
        return done.stdout

    with contextlib.chdir(tmp_path), started(tmp_path, *serve[2:]) as server:
        answer = run([part.replace(":8443", f":{server.port}") for part in curl])

    assert json.loads(answer)["response"]["allowed"]
    assert answer.startswith(response.partition("…")[0])
    assert is_excerpt(trace, run(command(*explain[1:])))
