"""The wheel and the sdist as a release builds them, and the installed command beside modules of similar names.

The tools that build come from the package registry; the dependencies of the command are those of the tests, except
where a test installs the wheel as users do.
"""

import os
import re
import signal
import ssl
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen
from venv import create
from zipfile import ZipFile

import pytest

from deploy.try_release import try_wheel
from tests.support.server import MIG_POD, PATIENCE_SECONDS, encoded
from tools.documents import REPOSITORY

PACKAGE = REPOSITORY / "rules_engine"


def run(*command: str | Path, cwd: Path = REPOSITORY) -> str:
    done = subprocess.run(command, cwd=cwd, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of commands of an environment with pip and hatchling."""
    folder = tmp_path_factory.mktemp("tools")
    create(folder, with_pip=True)
    pins = REPOSITORY / "deploy" / "build-requirements.txt"
    options = ["--quiet", "--no-deps", "--only-binary=:all:", "--require-hashes"]
    run(folder / "bin" / "pip", "install", *options, "--requirement", pins)
    return folder / "bin"


@pytest.fixture(scope="module")
def built(tools: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the wheel and the sdist."""
    folder = tmp_path_factory.mktemp("built")
    run(tools / "hatchling", "build", "--directory", folder)
    return folder


def wheel_in(folder: Path) -> Path:
    (wheel,) = folder.glob("*.whl")
    return wheel


def contents(wheel: Path) -> dict[str, bytes]:
    with ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def own_files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the files below a folder of the repository, through links: the name in the package, and the file."""
    options = ["--cached", "--others", "--exclude-standard", "-z"]
    for name in filter(None, run("git", "ls-files", *options, ".", cwd=folder).split("\0")):
        path = folder / name
        if path.is_symlink():
            yield from ((f"{name}/{inner}", file) for inner, file in own_files(path.resolve()))
        elif path.exists():
            yield name, path


def test_the_trial_of_a_release_installs_the_wheel_and_decides_a_pod(built: Path) -> None:
    installed, explained = try_wheel(built)
    assert installed.startswith(f"installed {wheel_in(built).name}: gpu-rules, version ")
    assert explained == "explain: allowed, changed"


def test_the_wheel_has_one_package_with_all_files(built: Path) -> None:
    found = {name: data for name, data in contents(wheel_in(built)).items() if ".dist-info/" not in name}

    assert {name.partition("/")[0] for name in found} == {"rules_engine"}
    assert found == {f"rules_engine/{name}": file.read_bytes() for name, file in own_files(PACKAGE)}
    for name in (
        "server/commands/playground/static/playground.js",
        "schemas/RuleTest.json",
        "rule_sets/diagnostics/devices.yaml",
    ):
        assert f"rules_engine/{name}" in found


def test_the_sdist_builds_the_same_wheel(built: Path, tools: Path, tmp_path: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    run("tar", "-xf", sdist, "-C", tmp_path)
    (source,) = tmp_path.iterdir()
    run(tools / "hatchling", "build", "--target", "wheel", "--directory", tmp_path / "again", cwd=source)

    assert contents(wheel_in(tmp_path / "again")) == contents(wheel_in(built))


@pytest.fixture(scope="module")
def installed(built: Path, tools: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command `gpu-rules` of an environment into which the wheel is installed."""
    folder = tmp_path_factory.mktemp("installed")
    create(folder)
    python = folder / "bin" / "python"
    run(tools / "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index", wheel_in(built))
    paths = sysconfig.get_paths()
    (packages,) = folder.glob("lib/python*/site-packages")
    assert [path.name for path in packages.iterdir() if not path.match("gpu_rules-*.dist-info")] == ["rules_engine"]
    # The links of editable installations in these folders are not followed.
    (packages / "dependencies.pth").write_text(f"{paths['purelib']}\n{paths['platlib']}\n")
    return folder / "bin" / "gpu-rules"


PARTS = {path.stem for path in (*PACKAGE.iterdir(), *(PACKAGE / "server").iterdir()) if path.stem[0] not in "._"}
NAMES = sorted(PARTS - sys.stdlib_module_names)
"""Names of the parts of the package, such as server, rules and schemas."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with modules of these names, each of which leaves a file if it is imported."""
    for name in NAMES:
        (tmp_path / f"{name}.py").write_text(f"open('imported-{name}', 'w').close()\n")
    (tmp_path / "pod.json").write_bytes(encoded(MIG_POD))
    return tmp_path


def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GPU_RULES_", "PYTHON", "COV"))}
    return {**kept, "PYTHONPATH": "."}


def ask(installed: Path, folder: Path, *arguments: str) -> str:
    """Run the installed command in the folder; return what it prints."""
    done = subprocess.run(
        [installed, *arguments], cwd=folder, env=environment(), capture_output=True, text=True, timeout=PATIENCE_SECONDS
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(folder.glob("imported-*")) == []
    return done.stdout


@contextmanager
def started(
    installed: Path, folder: Path, *arguments: str, pass_fds: tuple[int, ...] = ()
) -> Iterator[subprocess.Popen[str]]:
    """Run the installed command in the folder until the end of the block, as until Ctrl-C."""
    process = subprocess.Popen(
        [installed, *arguments],
        cwd=folder,
        env={**environment(), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        text=True,
        pass_fds=pass_fds,
    )
    try:
        yield process
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_SECONDS)
    finally:
        process.kill()
        process.communicate()
    assert list(folder.glob("imported-*")) == []


def test_such_modules_are_found_by_others(installed: Path, folder: Path) -> None:
    run("env", "PYTHONPATH=.", installed.with_name("python"), "-c", "import server", cwd=folder)

    assert {"server", "rules", "schemas", "cluster", "cli"} <= set(NAMES)
    assert [path.name for path in folder.glob("imported-*")] == ["imported-server"]


def test_commands_import_nothing_of_the_folder(installed: Path, folder: Path) -> None:
    ask(installed, folder, "init", "mine")
    assert "no problems" in ask(installed, folder, "check", "mine/rules")
    assert "passed" in ask(installed, folder, "test", "mine/rules")
    assert "mig-to-gpu" in ask(installed, folder, "explain", "-f", "pod.json", "--rules", "set:gpu-allocation")
    assert "Usage: gpu-rules demo" in ask(installed, folder, "demo", "--help")


def test_the_server_answers(installed: Path, folder: Path) -> None:
    ready, theirs = os.pipe()
    options = ["--listen", "127.0.0.1:0", "--tls-dir", "tls", "--ready-fd", str(theirs)]
    with started(installed, folder, "serve", *options, pass_fds=(theirs,)), os.fdopen(ready) as readable:
        os.close(theirs)
        url = readable.readline().strip().replace("127.0.0.1", "localhost")
        context = ssl.create_default_context(cafile=str(folder / "tls" / "ca.crt"))
        with urlopen(f"{url}/healthz", context=context, timeout=PATIENCE_SECONDS) as response:
            assert response.status == 200


def test_the_playground_has_its_page_and_the_files_that_it_names(installed: Path, folder: Path) -> None:
    with started(installed, folder, "playground", "--no-open", "--listen", "127.0.0.1:0") as process:
        assert process.stdout is not None
        found = (re.search(r"http://127\.0\.0\.1:\d+/?", line) for line in process.stdout)
        url = next(match[0] for match in found if match).rstrip("/")
        page = urlopen(url, timeout=PATIENCE_SECONDS).read().decode()
        for name in re.findall(r'(?:href|src)="([\w./]+)"', page):
            assert urlopen(f"{url}/{name}", timeout=PATIENCE_SECONDS).status == 200
        assert "static/playground.js" in page
