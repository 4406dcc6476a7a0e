"""Examples in README.md and docs/, run to regenerate their output.

The word after the language of a fenced block defines its use:

    yaml NAME           a file in the folder of the document, for the commands after it
    console             commands after `$ `, each with its output, run in that folder in order;
                        `...` in an output stands for lines that are left out
    json METHOD PATH    a request to a server with the packaged rules and cluster
    json STATUS         its response; json patch: the patch in it, decoded

`python -m tools.documents` updates outputs and responses.
"""

import contextlib
import json
import os
import re
import shlex
import subprocess
import sys
from base64 import b64decode
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from click.testing import CliRunner

from rules_engine.server.commands import main
from rules_engine.server.wsgi import application

REPOSITORY = Path(__file__).parents[1]
DOCUMENTS = (REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md")))

_FENCED = re.compile(r"^(```(\w+)(?: ([^\n]+))?\n)(.*?)^(```)$", re.DOTALL | re.MULTILINE)

_SHELL = re.compile(r"[|;&<>$`]")
"""Characters in the documents' commands that only a shell interprets."""


_GIT = {f"GIT_{role}_{field}": "example" for role in ("AUTHOR", "COMMITTER") for field in ("NAME", "EMAIL")}
"""Author of the documents' commits, on machines where git has none."""

_TIMEOUT_SECONDS = 300
"""Timeout of a command, far longer than any takes on a busy machine."""


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: its language, the rest of that line, and its text."""

    language: str
    title: str
    text: str


def blocks(text: str) -> Iterator[Block]:
    for found in _FENCED.finditer(text):
        yield Block(found[2], found[3] or "", found[4])


def is_excerpt(shown: str, output: str) -> bool:
    """Return True if text is the output with `...` in place of one or more lines."""
    parts = re.split(r"^\.\.\.\n", shown, flags=re.MULTILINE)
    return len(parts) > 1 and bool(re.fullmatch("(?:.*\n)+?".join(map(re.escape, parts)), output))


def fill_marked(text: str, mark: str, content: Callable[[str], str]) -> str:
    """Return the document with content between each comment that matches mark, which has one group, and the end."""
    parts = re.compile(rf"(<!-- {mark} -->\n).*?(<!-- end -->)", re.DOTALL)
    return parts.sub(lambda match: f"{match[1]}{content(match[2])}{match[3]}", text)


def renewed(text: str) -> str:
    """Return the document with current outputs and responses."""
    with TemporaryDirectory() as name:
        return Renewal(Path(name)).of(text)


class Renewal:
    """One pass through a document, in order: commands use the files and effects of those before them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._answer: dict[str, Any] = {}
        self._client: Any = None

    def of(self, text: str) -> str:
        return _FENCED.sub(lambda found: f"{found[1]}{self._block(found[2], found[3] or '', found[4])}{found[5]}", text)

    def _block(self, language: str, title: str, text: str) -> str:
        if language == "console":
            return "".join(
                self._console(*part.split("\n", 1)) for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]
            )
        if language == "yaml" and title:
            file = self._folder / "work" / title
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        if language != "json" or not title:
            return text
        if title == "patch":
            return _pretty(json.loads(b64decode(self._answer["response"]["patch"])))
        if title.isdecimal():
            return _pretty(self._answer)
        method, path = title.split()
        response = self._server().open(path, method=method, data=text, content_type="application/json")
        self._answer = response.json
        return text

    def _console(self, command: str, shown: str) -> str:
        output = self._output(command)
        return f"$ {command}\n{shown if is_excerpt(shown, output) else output}"

    def _output(self, command: str) -> str:
        """Return the output and errors of a command, run as if gpu-rules were installed."""
        work = self._folder / "work"
        work.mkdir(exist_ok=True)
        # What needs no shell runs in this process: starting one takes longer than most commands.
        in_process = command.startswith("gpu-rules ") and not _SHELL.search(command)
        written = self.called(command, work) if in_process else self._run(command, work)
        return "".join(f"{line.rstrip()}\n" for line in written.splitlines())

    def called(self, command: str, work: Path) -> str:
        """Return the output and errors of a command, run in this process."""
        with contextlib.chdir(work):
            done = CliRunner().invoke(main, shlex.split(command)[1:], prog_name="gpu-rules", catch_exceptions=False)
        return done.output

    def _run(self, command: str, work: Path) -> str:
        commands = self._folder / "bin"
        commands.mkdir(exist_ok=True)
        entry = commands / "gpu-rules"
        entry.write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m rules_engine.server "$@"\n')
        entry.chmod(0o755)
        run = subprocess.run(
            ["/bin/sh", "-c", command],
            cwd=work,
            env={
                **{name: value for name, value in os.environ.items() if not name.startswith("GPU_RULES_")},
                "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}",
                "PYTHONPATH": str(REPOSITORY),
                "LC_ALL": "C.UTF-8",
                **_GIT,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )
        return run.stdout.decode()

    def _server(self) -> Any:
        if self._client is None:
            self._client = application().test_client()
        return self._client


def _pretty(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    for document in DOCUMENTS:
        document.write_text(renewed(document.read_text()))
