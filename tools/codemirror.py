"""`make codemirror`: bundle the editor of the playground from the packages in deploy/codemirror/package-lock.json.

`python -m tools.codemirror` writes server/commands/playground/static/codemirror.js and its licences; needs npm.
"""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from tools.documents import REPOSITORY

SOURCES = REPOSITORY / "deploy" / "codemirror"
STATIC = REPOSITORY / "server" / "commands" / "playground" / "static"
NPM = shutil.which("npm")

BUNDLE, LICENCES = "codemirror.js", "codemirror.LICENSE.txt"

NOT_BUNDLED = frozenset({"esbuild", "axe-core"})
"""Packages that build and test the page."""


def install(folder: Path) -> None:
    """Install the packages into `node_modules` of a folder, with the sources of the bundle."""
    for file in SOURCES.iterdir():
        if file.is_file():
            shutil.copy(file, folder)
    run_npm(folder, "ci", "--no-audit", "--no-fund")


def build(folder: Path) -> dict[str, str]:
    """Return the bundle and its licences by file name; `folder` has the packages."""
    run_npm(folder, "run", "--silent", "build", "--", f"--outfile=out/{BUNDLE}", "--log-level=warning")
    return {BUNDLE: (folder / "out" / BUNDLE).read_text(encoding="utf-8"), LICENCES: "\n".join(_licences(folder))}


def run_npm(folder: Path, *arguments: str) -> None:
    done = subprocess.run([NPM or "npm", *arguments], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def _licences(folder: Path) -> Iterator[str]:
    modules = folder / "node_modules"
    for file in sorted(modules.glob("**/LICENSE")):
        name = str(file.parent.relative_to(modules))
        if name not in NOT_BUNDLED and not name.startswith("@esbuild/"):
            yield f"{name}\n\n{file.read_text(encoding='utf-8')}"


if __name__ == "__main__":
    with TemporaryDirectory() as name:
        install(Path(name))
        for file_name, text in build(Path(name)).items():
            (STATIC / file_name).write_text(text, encoding="utf-8")
