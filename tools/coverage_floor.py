"""Fails when a package's branch coverage is below its floor. Run after pytest --cov, from the repository's root."""

import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path, PurePosixPath

FLOORS = {
    "rules_engine/accelerators": 100.0,
    "rules_engine/model": 100.0,
    "rules_engine/language": 100.0,
    "rules_engine/cluster/nodes": 100.0,
    "rules_engine/rules/ladder": 100.0,
    "rules_engine/rules/injection": 100.0,
    "rules_engine/rules/validation": 100.0,
    "rules_engine/rules/pod_defaults": 100.0,
    "rules_engine/rules/pod_members": 100.0,
    "rules_engine/rules/rule_set": 100.0,
    "rules_engine/rules/evaluation": 100.0,
    "rules_engine": 95.0,
    "server": 95.0,
}
"""A file counts for the first folder that it is in. rules_engine/server is a link; its files are named by `server`."""


def package(file: str) -> str:
    """The package with a floor that a file counts for."""
    path = PurePosixPath(file)
    return next(name for name in FLOORS if path.is_relative_to(name))


def main() -> int:
    coverage = [sys.executable, "-m", "coverage"]
    # What processes wrote that ended after pytest; usually nothing.
    subprocess.run([*coverage, "combine", "--append", "--quiet"], check=False, capture_output=True)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "coverage.json"
        subprocess.run([*coverage, "json", "--quiet", "-o", str(report)], check=True)
        files = json.loads(report.read_text())["files"]
    subprocess.run([*coverage, "report"], check=True)
    done: dict[str, int] = defaultdict(int)
    wanted: dict[str, int] = defaultdict(int)
    for file, entry in files.items():
        summary = entry["summary"]
        done[package(file)] += summary["covered_lines"] + summary["covered_branches"]
        wanted[package(file)] += summary["num_statements"] + summary["num_branches"]
    failed = False
    for name, floor in FLOORS.items():
        percent = 100.0 * done[name] / wanted[name] if wanted[name] else 0.0
        low = percent < floor
        failed |= low
        print(f"{name:30} {percent:6.2f} % (floor {floor:.0f} %){'  TOO LOW' if low else ''}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
