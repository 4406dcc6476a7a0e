"""Folders of new files, which are never overwritten."""

import os
from collections.abc import Mapping
from errno import EEXIST
from pathlib import Path

import click

FOLDER = click.Path(file_okay=False, path_type=Path)
"""A folder that need not exist."""


def write_new_files(folder: Path, files: Mapping[str, str]) -> None:
    """Write files to a folder, which is made if needed, and print their paths. One that cannot be written is removed.

    Raises UsageError, and writes nothing, if one of them exists, and FileError if one cannot be written.
    """
    from rules_engine.model.problems.excerpt import visible
    from rules_engine.starting.new_files import create_file

    # A link to nowhere exists as well: no file can be made in its place.
    existing = next((folder / name for name in files if os.path.lexists(folder / name)), None)
    if existing:
        raise click.UsageError(visible(f"nothing is written, since {existing} exists"))
    for name, text in files.items():
        path = folder / name
        try:
            if not create_file(path, text):
                raise FileExistsError(EEXIST, os.strerror(EEXIST))
        except OSError as error:
            raise click.FileError(str(path), error.strerror) from None
    for name in files:
        click.echo(visible(str(folder / name)))
