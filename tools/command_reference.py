"""The help of all commands, in docs/reference/commands.md. `python -m tools.command_reference` updates it."""

from collections.abc import Iterator

import click
from click.testing import CliRunner

from rules_engine.server.commands import main
from tools.documents import REPOSITORY, fill_marked

DOCUMENT = REPOSITORY / "docs/reference/commands.md"

_COLUMNS = 80


def _sections() -> Iterator[str]:
    for title, names in main.sections.items():
        yield f"## {title}\n\n"
        for name in names:
            command = main.commands[name]
            inner = command.commands if isinstance(command, click.Group) else {}
            texts = (_help(name), *(_help(name, each) for each in inner))
            yield f"### {name}\n\n" + "".join(f"```text\n{text}```\n\n" for text in texts)


def _help(*names: str) -> str:
    run = CliRunner().invoke(main, [*names, "--help"], prog_name="gpu-rules", terminal_width=_COLUMNS)
    return run.stdout


def renewed(text: str) -> str:
    """Return the document with the current help."""
    return fill_marked(text, "(commands)", lambda _: "".join(_sections()))


if __name__ == "__main__":
    DOCUMENT.write_text(renewed(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
