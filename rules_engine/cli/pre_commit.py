"""`pre-commit`: `check` or `test` for the files that pre-commit passes."""

import os
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import cast

import click

from rules_engine.cli.program import Command, fail_if, help_examples

RULE_FOLDERS = frozenset({"rules", "gpu-rules"})
"""Names of folders that hold a rule set."""


@click.command(
    "pre-commit",
    cls=Command,
    hidden=True,
    short_help="Check or test the rule sets of changed files.",
    context_settings={"allow_interspersed_args": False},
    epilog=help_examples(
        "gpu-rules pre-commit check rules/ladder.yaml",
        "gpu-rules pre-commit test --coverage rules/ladder.yaml",
    ),
)
@click.argument("command", type=click.Choice(["check", "test"]))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[OPTIONS] FILE...")
@click.pass_context
def pre_commit(context: click.Context, command: str, arguments: tuple[str, ...]) -> None:
    """Run check or test on the rule set of each file, for pre-commit, which passes the files of a commit.

    A rule set is the outermost folder named rules or gpu-rules above the file, else the file's own folder. Each is
    checked whole, since a changed rule can conflict with others and has its tests in other files, and apart from the
    other sets, which may have rules of the same names. It takes the options of the command, with values as
    --option=value.
    """
    options, files = _split_options(arguments)
    if not files:
        raise click.UsageError("no files are given")
    for file in files:
        if not Path(file).is_file():
            raise click.UsageError(f"'{file}' is not a file; the value of an option is written --option=value")
    failed = False
    for folder in dict.fromkeys(map(rule_set_of, files)):
        failed |= _command_fails(context, command, [*options, "--", str(folder)])
    fail_if(failed)


def _split_options(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return options and files. All arguments after `--` are files.

    pre-commit writes no `--` between its `args` and the files of a commit, so before it a file is known by its
    existence: no name in a commit can become an option.
    """
    end = arguments.index("--") if "--" in arguments else len(arguments)
    mixed, files = arguments[:end], arguments[end + 1 :]
    options = [argument for argument in mixed if argument.startswith("-") and not Path(argument).is_file()]
    return options, [*(argument for argument in mixed if argument not in options), *files]


def rule_set_of(file: str) -> Path:
    """Return the folder of the rule set that a file belongs to."""
    path = PurePath(os.path.relpath(file))
    rule_folders = [folder for folder in path.parents if folder.name in RULE_FOLDERS]
    return Path(rule_folders[-1] if rule_folders else path.parent)


def _command_fails(context: click.Context, name: str, arguments: list[str]) -> bool:
    """Run another command of the same program; return True if its exit code is not 0."""
    root = context.find_root()
    command = cast(click.Group, root.command).commands[name]
    try:
        with command.make_context(name, arguments, parent=root) as inner:
            command.invoke(inner)
    except SystemExit as end:
        return bool(end.code)
    return False
