"""`init`: the files that a repository of rules starts with."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from rules_engine.rules.sources.schemas import SCHEMA_FILE, combine_schemas

_TEMPLATES = Path(__file__).parent / "starter_files"

_FOLDERS = MappingProxyType({"rules": ("ladder.yaml", "ladder.test.yaml"), "workloads": ("train.yaml",)})
"""Templates, by the folder that gets all or none of them: the rule's test would fail with other rules."""

_FILES = MappingProxyType(
    {
        "cluster.yaml": "cluster.yaml",
        ".pre-commit-config.yaml": "pre-commit-config.yaml",
        ".vscode/settings.json": "vscode-settings.json",
        ".vscode/extensions.json": "vscode-extensions.json",
    }
)
"""Templates, by the path that each is written to."""

_CI_FILES = MappingProxyType(
    {
        "github": (".github/workflows/gpu-rules.yaml", "github-workflow.yaml"),
        "gitlab": (".gitlab-ci.yml", "gitlab-ci.yml"),
    }
)
"""Path and template, by CI system."""


@dataclass(frozen=True, slots=True)
class StarterFile:
    """A file, or a folder of rules or workloads; `written` is False if it existed."""

    path: Path
    written: bool


class NotWrittenError(Exception):
    """A file cannot be written; the message has the reason."""


def write_starter_files(folder: Path, ci: str) -> Iterator[StarterFile]:
    """Write the files one by one into a folder, which is created if needed; yield each. Raises NotWrittenError.

    An existing file is left unchanged, and nothing is written to a folder of rules or workloads that is not empty. `ci`
    is github or gitlab.
    """
    for subfolder, names in _FOLDERS.items():
        if _is_used(folder / subfolder):
            yield StarterFile(folder / subfolder, written=False)
        else:
            for name in names:
                yield _create_starter_file(folder / subfolder / name, _read_template(name))
    yield _create_starter_file(folder / SCHEMA_FILE, json.dumps(combine_schemas(), indent=2) + "\n")
    for name, template in (*_FILES.items(), _CI_FILES[ci]):
        yield _create_starter_file(folder / name, _read_template(template))


def _read_template(name: str) -> str:
    return (_TEMPLATES / name).read_text(encoding="utf-8")


def _is_used(folder: Path) -> bool:
    try:
        return any(folder.iterdir())
    except FileNotFoundError:
        return False
    except OSError as error:
        raise NotWrittenError(f"{folder} cannot be read: {error.strerror}") from None


def _create_starter_file(path: Path, text: str) -> StarterFile:
    try:
        return StarterFile(path, written=create_file(path, text))
    except OSError as error:
        raise NotWrittenError(f"{path} cannot be written: {error.strerror}") from None


def create_file(path: Path, text: str) -> bool:
    """Create a file and its folders; return False if the file exists.

    Raises OSError if it cannot be written, and deletes an incomplete file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        file = path.open("x", encoding="utf-8")
    except FileExistsError:
        return False
    try:
        with file:
            file.write(text)
    except BaseException:
        path.unlink()
        raise
    return True
