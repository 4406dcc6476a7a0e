"""Sources of rules on a command line."""

from pathlib import Path
from typing import Any

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner, Result

from rules_engine.cli.options import sources_option
from rules_engine.rules.sources.rule_sources import RuleSource, read_sources
from rules_engine.server.commands.live import KubeconfigCluster
from tests.support.apiserver import api_server
from tests.support.loading import rule

INJECTION = rule("ResourceInjection", "{gpuType: V100, gpuTypeAnnotation: a/b, coefficients: {cpu: 4}}")


@click.command(context_settings={"obj": KubeconfigCluster()})
@sources_option("--old", "Rules before the change", required=True)
def command(old: tuple[RuleSource, ...]) -> None:
    """Print the sources, and the rules that they have."""
    files = read_sources(old)
    click.echo(" ".join([*map(str, old), *(str(found.location) for found in files.loaded.rules)]))


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command, arguments)


def test_sources_of_each_kind_are_repeatable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.yaml").write_text(INJECTION, encoding="utf-8")
    with api_server() as api:
        api.single["/api/v1/namespaces/gpu/configmaps/rules"] = {"data": {"b.yaml": INJECTION.replace("x", "second")}}
        monkeypatch.setenv("KUBECONFIG", str(api.kubeconfig(tmp_path)))
        done = run("--old", "a.yaml", "--old", "configmap:gpu/rules")
    assert done.output == "a.yaml configmap:gpu/rules a.yaml:3:18 configmap:gpu/rules/b.yaml:3:18\n"
    assert done.exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--old", "absent"), "'absent' is no file or folder, no packaged set, and does not begin with "),
        (("--old", "configmap:x"), "'configmap:x' is not configmap:NAMESPACE/NAME"),
        ((), "Missing option '--old'"),
    ],
)
def test_a_wrong_source_is_a_usage_error(arguments: tuple[str, ...], message: str) -> None:
    done = run(*arguments)
    assert done.exit_code == 2
    assert message in done.output


def test_shells_complete_packaged_sets_and_files() -> None:
    def completed(incomplete: str) -> list[tuple[Any, str]]:
        found = ShellComplete(command, {}, "command", "_COMPLETE").get_completions(["--old"], incomplete)
        return [(item.value, item.type) for item in found]

    assert completed("mig-h") == [
        *(
            (f"mig-{card}", "plain")
            for card in ("h100-80gb", "h100-94gb", "h100-96gb", "h20-141gb", "h20-96gb", "h200")
        ),
        ("mig-h", "file"),
    ]
    assert completed("x/") == [("x/", "file")]
