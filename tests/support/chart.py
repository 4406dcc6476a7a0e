"""The chart, rendered by helm."""

import json
import shutil
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy import render
from rules_engine.rules.sources.rule_files import DEFAULT_RULES
from tools.helm import HelmNotFoundError, run_helm

Object = dict[str, Any]

NAME = "gpu-rules"
NAMESPACE = "gpu-system"
VERSION = "--kube-version=1.36"
"""Without it, charts are rendered for the Kubernetes of the helm in use."""

RULES: Mapping[str, Any] = {"sets": [DEFAULT_RULES.name]}
"""The chart's value `rules` of tests that give none."""


def helm(*arguments: Any) -> tuple[int, str, str]:
    """Run helm, and return its exit code, output and errors. Skips the test if helm is not found."""
    try:
        completed = run_helm(*arguments, check=False)
    except HelmNotFoundError as error:
        pytest.skip(str(error))
    return completed.returncode, completed.stdout, completed.stderr


def rendered(values: Mapping[str, Any] | None = None) -> list[Object]:
    """Return the objects of a release with these values."""
    return [dict(found) for found in _rendered(json.dumps(values or {}))]


@lru_cache
def _rendered(values: str) -> tuple[Object, ...]:
    code, output, errors = helm(
        "template", NAME, render.CHART, "--skip-tests", "--namespace", NAMESPACE, VERSION, *set_options(values)
    )
    assert code == 0, errors
    return tuple(found for found in yaml.safe_load_all(output) if found)


def set_options(values: str) -> list[str]:
    """Return an option of helm for each top-level member of a JSON object of values. Default of `rules`: RULES."""
    given = {"rules": RULES, **json.loads(values)}
    return [f"--set-json={key}={json.dumps(value)}" for key, value in given.items()]


def rejection(values: Mapping[str, Any], version: str = VERSION) -> str:
    """Return the error that helm reports for invalid values."""
    options = set_options(json.dumps(values))
    code, output, errors = helm("template", NAME, render.CHART, "--namespace", NAMESPACE, version, *options)
    assert code != 0, output
    return errors


def one(objects: list[Object], kind: str, name: str = NAME) -> Object:
    """Return the only object of this kind and name."""
    (found,) = (item for item in objects if (item["kind"], item["metadata"]["name"]) == (kind, name))
    return found


def parent(folder: Path, values: Mapping[str, Any], *aliases: str, chart: Path = render.CHART) -> Path:
    """Write a chart with our chart as dependency, once for each alias ("" for none)."""
    version = yaml.safe_load((chart / "Chart.yaml").read_text())["version"]
    dependencies = [{"name": NAME, "version": version, **({"alias": alias} if alias else {})} for alias in aliases]
    metadata = {"apiVersion": "v2", "name": "platform", "version": "1.0.0", "dependencies": dependencies}
    folder.mkdir(exist_ok=True)
    (folder / "Chart.yaml").write_text(json.dumps(metadata))
    (folder / "values.yaml").write_text(json.dumps(values))
    shutil.copytree(chart, folder / "charts" / NAME)
    return folder
