"""Install what `make release` built: the wheel, the image, and the chart, which also upgrades the previous one.

python deploy/try_release.py [FOLDER]     prints what was tried, and what was not; exit code 1 if something failed

With KUBECONFIG, the charts are installed into a new namespace of that cluster, which is removed at the end. Their
webhooks match pods of this namespace only.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4
from venv import create

import yaml

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tools.helm import LATER_PACKAGE, run_helm, unpacked_helm  # noqa: E402 - needs the path when run as a program

CHART = "deploy/chart/gpu-rules"
VALUES = ("--set-json", 'rules.sets=["gpu-allocation"]')
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "try"},
    "spec": {"containers": [{"name": "main", "image": "a", "resources": {"limits": {"nvidia.com/mig-1g.10gb": 1}}}]},
}


def run(*command: str | Path, stdin: str | None = None) -> str:
    """Return the output of a command. Raises CalledProcessError."""
    return subprocess.run(
        [*map(str, command)], input=stdin, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()


def try_wheel(folder: Path) -> Iterator[str]:
    """Install the wheel with its dependencies into a new environment, and decide a pod."""
    (wheel,) = folder.glob("*.whl")
    with tempfile.TemporaryDirectory() as work:
        create(work, with_pip=True)
        run(f"{work}/bin/pip", "install", "--quiet", "--disable-pip-version-check", wheel)
        yield f"installed {wheel.name}: {run(f'{work}/bin/gpu-rules', '--version')}"
        explain = (f"{work}/bin/gpu-rules", "explain", "-f", "-", "--rules", "set:gpu-allocation")
        yield f"explain: {run(*explain, stdin=json.dumps(POD)).splitlines()[-1]}"


def try_image(folder: Path) -> Iterator[str]:
    """Run the image by the first runtime that works on this machine."""
    (archive,) = folder.glob("*-image.tar")
    runtimes = [name for name in ("podman", "docker") if shutil.which(name) and not _code(name, "info")]
    if not runtimes:
        yield "not run: neither podman nor docker works on this machine"
        return
    runtime, image = runtimes[0], f"oci-archive:{archive}"
    if runtime == "docker":
        image = "gpu-rules:try-release"
        if shutil.which("skopeo"):
            run("skopeo", "copy", f"oci-archive:{archive}", f"docker-daemon:{image}")
        else:
            image = run("docker", "load", "--quiet", "--input", archive).split()[-1]
    yield f"run by {runtime}: {run(runtime, 'run', '--rm', image, '--version')}"


def try_chart(folder: Path) -> Iterator[str]:
    """Lint and install the chart, and upgrade the previous one, as templates or in the cluster of KUBECONFIG."""
    (chart,) = folder.glob("gpu-rules-*[0-9].tgz")
    program = unpacked_helm(LATER_PACKAGE)
    run_helm("lint", "--strict", chart, *VALUES, program=program)
    run_helm("install", "gpu-rules", chart, "--namespace=gpu-rules", "--dry-run=client", *VALUES, program=program)
    yield f"linted {chart.name}, and installed it as a dry run"
    commit = previous_chart()
    if not commit:
        yield "not upgraded: the repository has no earlier commit of the chart"
        return
    with tempfile.TemporaryDirectory() as work:
        packed = Path(work, "chart.zip")
        subprocess.run(["git", "archive", "--output", packed, commit, CHART], cwd=ROOT, check=True)
        shutil.unpack_archive(packed, work)
        previous = Path(work, CHART)
        # The values of the previous chart are valid for this one.
        old = objects(previous, program)
        new = objects(chart, program, "--values", previous / "values.yaml")
        kept = old.keys() & new.keys()
        for each in kept:
            if old[each].get("spec", {}).get("selector") != new[each].get("spec", {}).get("selector"):
                raise ValueError(f"{each}: the selector changed, which the API server refuses")
        changed = sum(old[each] != new[each] for each in kept)
        removed = ", ".join(sorted(old.keys() - kept)) or "none"
        yield (
            f"upgraded from {commit} as templates: {len(kept)} objects stay, {changed} of them changed; "
            f"{len(new.keys() - kept)} are new; removed: {removed}"
        )
        config = os.environ.get("KUBECONFIG")
        if config:
            yield from upgrade(previous, chart, config, program)
        else:
            yield "not installed in a cluster: KUBECONFIG is not set"


def upgrade(previous: Path, chart: Path, config: str, program: Path) -> Iterator[str]:
    """Install the previous chart in a namespace of its own, upgrade it, and remove both."""
    name = f"gpu-rules-release-{uuid4().hex[:8]}"
    only = json.dumps([{"name": "only", "expression": f"request.namespace == '{name}'"}])
    own = [f"webhook.{kind}.matchConditions={only}" for kind in ("mutating", "validating")]
    own.append('nodeSelector={"gpu-rules-release": "none"}')  # no registry has the image yet
    options = [*VALUES, *(part for each in own for part in ("--set-json", each))]
    release = ("--namespace", name, "--kubeconfig", config)
    try:
        for source in (previous, chart):
            run_helm("upgrade", "--install", name, source, "--create-namespace", *release, *options, program=program)
        status = json.loads(run_helm("status", name, *release, "--output=json", program=program).stdout)
        yield f"installed and upgraded in the cluster: revision {status['version']} is {status['info']['status']}"
    finally:
        run_helm("uninstall", name, *release, "--ignore-not-found", "--no-hooks", check=False, program=program)
        kubectl = unpacked_helm(LATER_PACKAGE, "kubectl")
        run(kubectl, "--kubeconfig", config, "delete", "namespace", name, "--ignore-not-found", "--timeout=90s")
    yield f"removed the namespace {name}"


def previous_chart() -> str:
    """Return the tag of the previous release, else the commit before the last change of the chart; "" if none."""
    tags = run("git", "tag", "--list", "v*", "--sort=-v:refname", "--merged=HEAD", "--no-contains=HEAD").split()
    commits = run("git", "log", "-2", "--format=%h", "--", CHART).split()
    return tags[0] if tags else commits[1] if len(commits) > 1 else ""


def objects(chart: Path, program: Path, *options: str | Path) -> Mapping[str, Any]:
    """Return the objects of a chart by kind and name."""
    text = run_helm("template", "gpu-rules", chart, "--namespace=gpu-rules", *options, *VALUES, program=program).stdout
    return {f"{each['kind']}/{each['metadata']['name']}": each for each in yaml.safe_load_all(text) if each}


def _code(*command: str) -> int:
    return subprocess.run(command, check=False, capture_output=True).returncode


def try_release(folder: Path) -> int:
    """Try all that a release has; return the number of failures."""
    failures = 0
    trials: Mapping[str, Callable[[Path], Iterator[str]]] = {"wheel": try_wheel, "image": try_image, "chart": try_chart}
    for name, trial in trials.items():
        try:
            for line in trial(folder):
                print(f"{name}: {line}", flush=True)
        except (subprocess.CalledProcessError, ValueError) as error:
            failures += 1
            print(f"{name}: FAILED: {getattr(error, 'stderr', None) or error}", flush=True)
    return failures


if __name__ == "__main__":
    sys.exit(try_release(Path(sys.argv[1] if sys.argv[1:] else ROOT / "dist").resolve()) > 0)
