"""The chart as helm renders it."""

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import pytest
import yaml

from deploy import render

Object = dict[str, Any]

NAME = "gpu-rules"
NAMESPACE = "gpu-system"


def helm(*arguments: Any) -> tuple[int, str, str]:
    """Exit code, output and errors of helm; where there is none, the test is skipped."""
    try:
        ended = render.run(*arguments, check=False)
    except render.NoHelm as error:
        pytest.skip(str(error))
    return ended.returncode, ended.stdout, ended.stderr


def rendered(values: Mapping[str, Any] | None = None) -> list[Object]:
    """The objects of a release with these values."""
    return [dict(found) for found in _rendered(json.dumps(values or {}))]


@lru_cache
def _rendered(values: str) -> tuple[Object, ...]:
    code, output, errors = helm("template", NAME, render.CHART, "--namespace", NAMESPACE, *sets(values))
    assert code == 0, errors
    return tuple(found for found in yaml.safe_load_all(output) if found)


def sets(values: str) -> list[str]:
    """The values, each member of the top level by itself: helm takes JSON so."""
    return [f"--set-json={key}={json.dumps(value)}" for key, value in json.loads(values).items()]


def refused(values: Mapping[str, Any]) -> str:
    """What helm says of values that it does not take."""
    code, output, errors = helm("template", NAME, render.CHART, "--namespace", NAMESPACE, *sets(json.dumps(values)))
    assert code != 0, output
    return errors


def one(objects: list[Object], kind: str, name: str = NAME) -> Object:
    """The object of a kind and name; there must be just one."""
    (found,) = (item for item in objects if (item["kind"], item["metadata"]["name"]) == (kind, name))
    return found
