"""The image: its Dockerfile, which is not built here, and its build script, which is run. tests/slow builds it."""

import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

from deploy import render

DOCKERFILE = render.DEPLOY / "Dockerfile"
IGNORED = render.DEPLOY / "Dockerfile.dockerignore"
PINS = render.DEPLOY / "requirements.txt"
BUILD_PINS = render.DEPLOY / "build-requirements.txt"
RELEASE_PINS = render.DEPLOY / "release-requirements.txt"
INSTALL = render.DEPLOY / "install.sh"


def instructions() -> list[tuple[str, str]]:
    """Return each instruction with its arguments."""
    lines = [line for line in DOCKERFILE.read_text().splitlines() if line.strip() and not line.startswith("#")]
    text = "\n".join(lines).replace("\\\n", " ")
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in text.splitlines())]


def stages() -> list[list[tuple[str, str]]]:
    found: list[list[tuple[str, str]]] = []
    for name, rest in instructions():
        if name == "FROM":
            found.append([])
        if found:
            found[-1].append((name, rest))
    return found


def test_the_last_stage_builds_nothing_and_is_not_root() -> None:
    last = stages()[-1]

    assert [rest for name, rest in last if name == "FROM"] == ["scratch"]
    assert not {"RUN", "ADD"} & {name for name, _ in last}
    (user,) = (rest for name, rest in last if name == "USER")
    uid, gid = user.split(":")
    assert int(uid) > 0
    assert int(gid) > 0
    assert [rest for name, rest in last if name == "COPY"] == ["--from=build / /"]


def test_the_base_is_one_exact_version() -> None:
    (base,) = (rest for name, rest in instructions() if name == "ARG")

    assert re.fullmatch(r"BASE=python:3\.\d+\.\d+-slim-[a-z]+", base)
    assert stages()[0][0] == ("FROM", "${BASE} AS build")


def test_the_dockerfile_downloads_nothing() -> None:
    assert "ADD" not in {name for name, _ in instructions()}
    assert not re.search(r"curl|wget|apt-get", DOCKERFILE.read_text())


def test_the_server_runs_without_a_shell_and_receives_signals() -> None:
    last = dict(stages()[-1])

    assert json.loads(last["ENTRYPOINT"]) == ["/opt/gpu-rules/bin/gpu-rules"]
    assert json.loads(last["CMD"])[0] == "serve"


def installation() -> list[str]:
    """Return the command that installs: the script, its source and its target."""
    (line,) = (rest for name, rest in stages()[0] if name == "RUN" and "install.sh" in rest)
    return line.split()[-4:]


def test_the_server_runs_from_the_path_of_its_installation() -> None:
    """A virtual environment contains its own path, so it cannot be moved."""
    source, target = installation()[2:]
    (mount,) = re.findall(r"--mount=type=bind,target=(\S+)", dict(stages()[0][:2])["RUN"])

    assert installation()[:2] == ["sh", f"{source}/deploy/install.sh"]
    assert mount == source
    assert json.loads(dict(stages()[-1])["ENTRYPOINT"])[0] == f"{target}/bin/gpu-rules"


def test_the_default_command_listens_on_the_charts_ports() -> None:
    last = dict(stages()[-1])
    (listen,) = (found for found in json.loads(last["CMD"]) if ":" in found)
    ports = yaml.safe_load((render.CHART / "values.yaml").read_text())["ports"].values()

    assert last["EXPOSE"].split() == [*map(str, ports)]
    assert listen == f"0.0.0.0:{last['EXPOSE'].split()[0]}"


def kept_paths() -> set[str]:
    """Return the paths of the repository that docker sends to the build."""
    return {line.removeprefix("!") for line in IGNORED.read_text().splitlines() if line.startswith("!")}


def test_only_existing_files_are_sent() -> None:
    assert IGNORED.read_text().splitlines()[1] == "*"
    assert all((render.ROOT / path).exists() for path in kept_paths())
    assert {INSTALL, PINS, BUILD_PINS} <= {render.ROOT / path for path in kept_paths()}


def test_links_of_the_packages_point_to_sent_files() -> None:
    links = [path for package in ("rules_engine", "server") for path in (render.ROOT / package).iterdir()
             if path.is_symlink()]  # fmt: skip

    assert links
    for link in links:
        assert link.resolve().relative_to(render.ROOT).parts[0] in kept_paths()


def logical_lines(path: Path) -> list[str]:
    """Return the lines without comments, with continued lines joined."""
    lines = [line for line in path.read_text().splitlines() if not line.lstrip().startswith("#")]
    return "\n".join(lines).replace("\\\n", " ").splitlines()


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(path: Path) -> dict[str, str]:
    found = dict(line.split()[0].split("==") for line in logical_lines(path))
    return {canonical(name): version for name, version in found.items()}


def pyproject() -> Any:
    return tomllib.loads((render.ROOT / "pyproject.toml").read_text())


@pytest.mark.parametrize("path", [PINS, BUILD_PINS, RELEASE_PINS], ids=["run", "build", "release"])
class TestPins:
    def test_every_pin_has_hashes(self, path: Path) -> None:
        for line in logical_lines(path):
            assert re.fullmatch(r"[\w.-]+==[\w.]+( +--hash=sha256:[0-9a-f]{64})+", line), line

    def test_pins_are_for_the_python_version_of_the_image(self, path: Path) -> None:
        (base,) = (rest for name, rest in instructions() if name == "ARG")
        found = re.search(r"python:(3\.\d+)\.", base)

        assert found is not None
        assert f"--python-version {found[1]} " in path.read_text().splitlines()[1]

    def test_every_dependency_is_pinned_within_its_range(self, path: Path) -> None:
        declared = pyproject()
        wanted = declared["project"]["dependencies"] if path == PINS else declared["build-system"]["requires"]

        for requirement in map(Requirement, wanted):
            version = pins(path).get(canonical(requirement.name))
            assert version is not None, f"{requirement.name} is not in {path}"
            assert requirement.specifier.contains(version), requirement

    def test_transitive_dependencies_are_pinned(self, path: Path) -> None:
        for name in pins(path):
            try:
                needed = importlib.metadata.requires(name) or []
            except importlib.metadata.PackageNotFoundError:
                continue  # for another Python version or platform
            for requirement in map(Requirement, needed):
                if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                    assert canonical(requirement.name) in pins(path), f"{name} needs {requirement}"


def test_downloads_are_verified_by_hash() -> None:
    commands = [line for line in logical_lines(INSTALL) if re.match(r"\$\w*pip (install|wheel)", line)]

    assert [("--require-hashes" in line, "--no-index" in line) for line in commands] == [
        (True, False),
        (True, False),
        (False, True),
        (False, True),
    ]


def test_the_release_builds_with_the_tools_of_the_image() -> None:
    assert pins(BUILD_PINS).items() <= pins(RELEASE_PINS).items()


def test_only_pinned_wheels_are_installed_and_without_pip() -> None:
    lines = logical_lines(INSTALL)
    (options,) = (line for line in lines if line.startswith("options="))
    installing = [line for line in lines if re.match(r"\$\w*pip (install|wheel)", line)]

    assert {"--no-deps", "--only-binary=:all:"} <= set(options.strip('"').split())
    assert all(line.split()[2] == "$options" for line in installing)
    assert lines.index("$pip check") > lines.index(installing[-1])
    assert 'python3 -m venv --without-pip "$target"' in lines


def test_the_build_script_is_a_posix_shell_script() -> None:
    subprocess.run(["sh", "-n", INSTALL], check=True)
    assert "set -eu" in INSTALL.read_text()


@pytest.mark.skipif("CI" not in os.environ, reason="downloads every dependency: runs only if CI is set")
def test_the_build_script_installs_a_working_server(tmp_path: Path) -> None:
    target = tmp_path / "gpu-rules"
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    subprocess.run(["sh", INSTALL, render.ROOT, target], check=True, env=environment, capture_output=True)

    run = subprocess.run([target / "bin" / "gpu-rules", "schema"], check=True, capture_output=True, cwd=tmp_path)
    assert json.loads(run.stdout)
    assert not (target / "bin" / "pip").exists()


def test_without_a_commit_nothing_is_built(tmp_path: Path) -> None:
    for path in (render.DEPLOY / "image.sh", render.ROOT / "pyproject.toml"):
        copy = tmp_path / "source" / path.relative_to(render.ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    builder = tmp_path / "bin" / "buildah"
    builder.parent.mkdir()
    builder.write_text("#!/bin/sh\necho built\n")
    builder.chmod(0o755)
    environment = {
        "PATH": f"{builder.parent}:{os.environ['PATH']}",
        "GIT_CEILING_DIRECTORIES": str(tmp_path),
        "BASE": "x",
    }
    command = ["sh", str(tmp_path / "source" / "deploy" / "image.sh"), str(tmp_path / "image.tar")]

    run = subprocess.run(command, env=environment, capture_output=True, text=True)

    assert (run.returncode != 0, run.stdout) == (True, "")
    assert "not a git repository" in run.stderr
