"""Repositories of git."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

_ENVIRONMENT = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}


def git(folder: Path, *arguments: str) -> str:
    """Run git in a folder; return its output."""
    line = ["git", "-c", "user.name=test", "-c", "user.email=test@example.com", *arguments]
    done = subprocess.run(
        line, cwd=folder, env={**os.environ, **_ENVIRONMENT}, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def repository(folder: Path, files: Mapping[str, str], links: Mapping[str, str] | None = None) -> Path:
    """Make a repository with one commit of these files and links on branch `main`."""
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "--quiet", "--initial-branch=main")
    commit(folder, files, links)
    return folder


def commit(folder: Path, files: Mapping[str, str], links: Mapping[str, str] | None = None) -> None:
    """Commit these files and links."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    for name, target in (links or {}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).symlink_to(target)
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message=change")
