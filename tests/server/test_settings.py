"""The table of settings: options, environment variables and defaults."""

import os
from typing import Any

import click
import pytest

from rules_engine.server.commands import main
from rules_engine.server.settings import SETTINGS, ServeOption, ServerSettings

SERVE = main.commands["serve"]

TEXTS = {
    "--rules": __file__,
    "--cluster": "kubeconfig",
    "--declare": __file__,
    "--listen": "[::1]:1",
    "--metrics-listen": ":2",
    "--keep-rules": "gpu/kept",
    "--tls-bootstrap": "gpu/tls",
    "--offers": "gpu-rules",
    "--tls-service": "gpu-rules.gpu.svc",
    "--webhook-name": "gpu-rules",
    "--kubeconfig": __file__,
    "--context": "gpu",
    "--namespaces": "ml",
}
"""Values of options that are no files, choices or flags."""


def text(setting: ServeOption) -> str:
    """Return a value other than the default."""
    match setting.attributes.get("type"):
        case click.Choice() as choice:
            return next(str(it) for it in choice.choices if it != setting.default)
        case click.IntRange() | click.FloatRange() as bounds:
            return str(bounds.min)
        case click.Path() if setting.option not in TEXTS:
            return "a-file"
        case None:
            return "true"
    return TEXTS[setting.option]


def given(*arguments: str) -> dict[str, Any]:
    return SERVE.make_context("serve", [*arguments]).params


@pytest.fixture(autouse=True)
def _no_variable_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("GPU_RULES_"):
            monkeypatch.delenv(name)


@pytest.mark.parametrize("setting", [it for it in SETTINGS if it.variable], ids=lambda it: it.option)
def test_an_option_and_its_variable_mean_the_same(setting: ServeOption, monkeypatch: pytest.MonkeyPatch) -> None:
    is_switch = bool(setting.attributes.get("is_flag"))
    parsed = given(setting.option, *([] if is_switch else [text(setting)]))
    monkeypatch.setenv(f"GPU_RULES_{setting.option.strip('-').upper().replace('-', '_')}", text(setting))

    assert given() == parsed
    assert parsed[setting.name] != setting.default


def test_a_hidden_option_has_no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPU_RULES_READY_FD", "3")

    assert given()["ready_fd"] is None


def test_without_options_the_settings_are_the_defaults() -> None:
    params = given()

    assert ServerSettings(**params) == ServerSettings()
