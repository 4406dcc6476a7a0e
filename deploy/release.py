"""`make release`: build everything that a release publishes, from the last commit, into dist/, and install it.

python deploy/release.py [FOLDER]     wheel, sdist, image, chart, SBOM of the dependencies, notes, checksums

Nothing is published. try_release.py installs wheel, image and chart; exit code 1 if one of them failed.
The same commit gives the same bytes; BASE and PIP_CERT are read by image.sh.
"""

import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path
from venv import create

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from deploy.try_release import try_release  # noqa: E402 - needs the path when run as a program
from tools.helm import LATER_PACKAGE, run_helm, unpacked_helm  # noqa: E402 - needs the path when run as a program


def release_notes(changelog: str, version: str) -> str:
    """Return the section of a version, or the unreleased one."""
    sections = dict(re.findall(r"^## \[(.+?)\][^\n]*\n(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL))
    return str(sections.get(version, sections.get("Unreleased", ""))).strip() + "\n"


def build(folder: Path) -> None:
    """Write the files of the release, and SHA256SUMS of them."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": output("git", "log", "-1", "--format=%ct").decode().strip()}
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as work:
        source, tools = Path(work, "source"), Path(work, "tools")

        def run(*command: str | Path) -> None:
            subprocess.run(command, check=True, cwd=source, env=environment)

        # Files of the commit only, with its time, which helm copies.
        with tarfile.open(fileobj=io.BytesIO(output("git", "archive", "HEAD"))) as archive:
            archive.extractall(source, filter="tar")
        create(tools, with_pip=True)
        pins = ["--require-hashes", "--requirement", "deploy/release-requirements.txt"]
        run(tools / "bin/pip", "install", "--quiet", "--no-deps", "--only-binary=:all:", *pins)

        version = tomllib.loads((source / "pyproject.toml").read_text())["project"]["version"]
        run(tools / "bin/hatchling", "build", "--directory", folder)
        run("sh", "deploy/image.sh", folder / f"gpu-rules-{version}-image.tar")
        helm = unpacked_helm(LATER_PACKAGE)
        run_helm("package", source / "deploy/chart/gpu-rules", "--destination", folder, program=helm)
        sbom = ["--pyproject", "pyproject.toml", "--output-reproducible", "--output-file"]
        sbom += [str(folder / f"gpu-rules-{version}.cdx.json")]
        run(tools / "bin/cyclonedx-py", "requirements", "deploy/requirements.txt", *sbom)
        (folder / "NOTES.md").write_text(release_notes((source / "CHANGELOG.md").read_text(), version))
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(folder.iterdir())]
    (folder / "SHA256SUMS").write_text("".join(sums))


def output(*command: str) -> bytes:
    """Return what a command prints in this repository."""
    return subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.PIPE).stdout


if __name__ == "__main__":
    target = Path(sys.argv[1] if sys.argv[1:] else ROOT / "dist").resolve()
    build(target)
    sys.exit(try_release(target) > 0)
