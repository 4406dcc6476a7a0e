"""Time of the command line (python -m bench.check): `--help`, and `check` of 50 and 500 files and of a large inventory.

Times include the process. Each folder of the files is a rule set of its own namespaces, as of one site: a ladder, an
injection, two validations and the tests of the ladder. Nodes of the inventory have ten labels and four resources. The
least of several runs counts, since all that disturbs a measurement adds to it. With --check, the exit code is 1 if a
target is missed.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

from bench.process import ROOT
from bench.promise import Promise, exit_code

HELP_SECONDS = 0.2
SECONDS = {50: 0.5, 500: 0.9}
"""Bounds of `check` by the number of files."""

NODES = 5_000
INVENTORY_SECONDS = 2.5
"""Bound of `check` for a ClusterInventory of as many nodes as the largest cluster that Kubernetes supports."""

FILES = {
    "ladder.yaml": """\
apiVersion: gpurules.io/v1
kind: FallbackLadder
metadata: {name: mig-SITE}
spec:
  match: {namespaces: ["SITE-*"]}
  variables:
    - {name: team, expression: "object.metadata.?labels.team.orValue('none')"}
  rungs:
    - {resource: nvidia.com/mig-3g.40gb, weight: 3}
    - {resource: nvidia.com/mig-1g.10gb, weight: 1, when: variables.team != 'training-SITE'}
    - {resource: nvidia.com/gpu, weight: 7, assume: true}
""",
    "injection.yaml": """\
apiVersion: gpurules.io/v1
kind: ResourceInjection
metadata: {name: v100-SITE}
spec:
  match: {namespaces: ["SITE-*"]}
  gpuType: V100
  gpuTypeAnnotation: task.bkbcs.tencent.com/gpu-type
  coefficients: {cpu: 4000m, memory: 8Gi}
  annotations: {example.com/networks: SITE}
  namespaces:
    SITE-training: {coefficients: {cpu: 6000m, memory: 12Gi}}
""",
    "images.yaml": """\
apiVersion: gpurules.io/v1
kind: Validation
metadata: {name: images-SITE}
spec:
  match: {namespaces: ["SITE-*"], resources: ["nvidia.com/*"]}
  validations:
    - expression: object.spec.containers.all(c, c.image.startsWith('registry.SITE.example.com/'))
      message: pods with GPUs use images of the site's registry
""",
    "team.yaml": """\
apiVersion: gpurules.io/v1
kind: Validation
metadata: {name: team-SITE}
spec:
  match: {namespaces: ["SITE-*"], resources: ["nvidia.com/*"]}
  validationActions: [Warn]
  validations:
    - expression: has(object.metadata.labels) && 'team' in object.metadata.labels
      message: pods with GPUs need the label team
""",
    "ladder.test.yaml": """\
apiVersion: gpurules.io/v1
kind: RuleTest
metadata: {name: mig-SITE}
spec:
  rules: [ladder.yaml]
  cluster: {nodes: [{name: worker, count: 2, allocatable: {nvidia.com/gpu: 4}}]}
  cases:
    - name: a slice that no node offers is replaced with a whole card
      pod: {spec: {containers: [{name: main, resources: {limits: {nvidia.com/mig-3g.40gb: 1}}}]}}
      request: {namespace: SITE-training}
      expect:
        containers: {main: {nvidia.com/gpu: 1}}
        decidedBy: [{rule: FallbackLadder/mig-SITE, rung: nvidia.com/gpu}]
""",
}
"""The files of a site, with SITE in place of its name."""


def write_files(folder: Path, number: int) -> None:
    """Write so many files, a folder for each site."""
    for index in range(number):
        site, of_site = divmod(index, len(FILES))
        name, text = list(FILES.items())[of_site]
        path = folder / f"site{site}" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("SITE", f"site{site}"))


def write_inventory(folder: Path, nodes: int) -> None:
    """Write a ClusterInventory in block style, as people write it."""
    lines = ["apiVersion: gpurules.io/v1", "kind: ClusterInventory", "metadata: {name: large}", "spec:", "  nodes:"]
    for node in range(nodes):
        lines += [f"    - name: gpu-{node:04}", "      labels:"]
        lines += [f"        example.com/label-{label}: value-{node % 7}" for label in range(10)]
        lines += ["      allocatable: {cpu: 64, memory: 256Gi, pods: 110, nvidia.com/gpu: 8}"]
    (folder / "cluster.yaml").write_text("\n".join(lines) + "\n")


def least_seconds(arguments: Sequence[str | Path], runs: int) -> float:
    """Return the time of the fastest run of a command, which must succeed and print something."""
    # As after an installation, modules are compiled once.
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment = {**kept, "PYTHONPATH": str(ROOT)}
    times = []
    for _ in range(runs):
        begin = perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", "rules_engine.server", *map(str, arguments)],
            capture_output=True,
            env=environment,
            check=False,
        )
        times.append(perf_counter() - begin)
        if done.returncode or not done.stdout:
            raise SystemExit((done.stdout + done.stderr).decode())
    return min(times)


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--runs", type=int, default=10)
    arguments.add_argument("--files", type=int, nargs="*", default=list(SECONDS), choices=list(SECONDS))
    arguments.add_argument("--nodes", type=int, default=NODES)
    arguments.add_argument("--check", action="store_true")
    given = arguments.parse_args()
    promises = [Promise("gpu-rules --help", least_seconds(["--help"], given.runs), HELP_SECONDS, unit=" s")]
    for number in given.files:
        with TemporaryDirectory() as folder:
            write_files(Path(folder), number)
            seconds = least_seconds(["check", folder], given.runs)
        promises.append(Promise(f"gpu-rules check of {number} files", seconds, SECONDS[number], unit=" s"))
    with TemporaryDirectory() as folder:
        write_inventory(Path(folder), given.nodes)
        seconds = least_seconds(["check", folder], given.runs)
    promises.append(Promise(f"gpu-rules check of {given.nodes:,} nodes", seconds, INVENTORY_SECONDS, unit=" s"))
    code = exit_code(promises)
    return code if given.check else 0


if __name__ == "__main__":
    raise SystemExit(main())
