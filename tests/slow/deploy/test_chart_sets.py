"""The packaged sets in the chart: several together have the conditions and rights that the command derives."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy import render
from rules_engine.exports.configuration import derive_calls, helm_values
from rules_engine.exports.drift import find_drift
from rules_engine.rules.sources.packaged_sets import list_packaged_sets
from rules_engine.rules.sources.rule_files import read_rules
from tests.support.authoring import cli, ladder, write
from tests.support.chart import NAME, one, rejection, rendered

SETS = [*render.rule_sets()]
CHOICES = [*([name] for name in SETS), *([*pair] for pair in pairwise(SETS)), SETS]


@pytest.mark.parametrize("sets", CHOICES, ids="+".join)
def test_sets_have_the_conditions_and_rights_that_the_command_derives(sets: Sequence[str]) -> None:
    rules = read_rules([file for name in sets for file in list_packaged_sets()[name].files]).rule_set
    expected: Any = helm_values(rules, {})
    objects = rendered({"rules": {"sets": sets}})

    for endpoint, values in expected["webhook"].items():
        configuration = one(objects, f"{endpoint.title()}WebhookConfiguration")
        assert configuration["metadata"]["annotations"] == {"gpurules.io/webhook-digest": values["digest"]}
        calls = [
            (webhook["rules"][0]["operations"], webhook["matchConditions"]) for webhook in configuration["webhooks"]
        ]
        assert calls == ([(values["operations"], values["matchConditions"])] if values["operations"] else [])
    role = one(objects, "ClusterRole", f"{NAME}-cluster")
    read = {resource for rule in role["rules"] for resource in rule["resources"]}
    read = {"classes" if name == "runtimeclasses" else name for name in read} & expected["rbac"].keys()
    assert read == {collection for collection, needed in expected["rbac"].items() if needed}


@pytest.mark.parametrize("sets", [[name] for name in SETS], ids="+".join)
def test_the_installed_files_are_the_packaged_ones(sets: Sequence[str], tmp_path: Path) -> None:
    write(tmp_path, one(rendered({"rules": {"sets": sets}}), "ConfigMap", f"{NAME}-rules")["data"])
    installed = read_rules([tmp_path])

    assert not installed.failed
    packaged = [file for name in sets for file in list_packaged_sets()[name].files]
    assert installed.loaded.digest == read_rules(packaged).loaded.digest


@pytest.mark.parametrize(
    ("rules", "sentence"),
    [
        ({"sets": []}, "no rules are chosen: set rules.sets, or your own rules (docs/how-to/deploy.md)"),
        ({"sets": ["mig-7g"]}, "rules.sets has mig-7g, but the packaged sets are "),
        (
            {"sets": SETS[:1], "a.yaml": "x"},
            f"rules.sets has {SETS[0]}, but the webhook values were generated for rule files without sets: ",
        ),
    ],
)
def test_an_install_without_a_valid_choice_is_refused(rules: Mapping[str, Any], sentence: str) -> None:
    errors = rejection({"rules": rules})

    assert sentence in errors
    if "a.yaml" not in rules:
        assert f"{', '.join(sorted(SETS))}; gpu-rules sets suggest --cluster kubeconfig names" in errors


def test_sets_are_installed_with_own_rules(tmp_path: Path) -> None:
    file = write(tmp_path, {"own.yaml": ladder("own", "amd.com/gpu")}) / "own.yaml"
    sources: tuple[str | Path, ...] = (
        "--rules",
        file,
        *(part for name in SETS[:2] for part in ("--rules", f"set:{name}")),
    )
    values: Any = yaml.safe_load(cli("webhook-config", *sources, "--output", "helm-values").stdout)
    assert values["rules"] == {"sets": SETS[:2], "own.yaml": file.read_text()}
    packaged = [path for name in SETS[:2] for path in list_packaged_sets()[name].files]
    together = read_rules([file, *packaged])

    objects = rendered(values)
    installed = one(objects, "ConfigMap", f"{NAME}-rules")["data"]
    assert installed["own.yaml"] == file.read_text()
    assert read_rules([write(tmp_path / "installed", installed)]).loaded.digest == together.loaded.digest
    for calls in derive_calls(together.rule_set):
        assert find_drift(calls, NAME, one(objects, calls.endpoint.kind)) == ()
    for other in (SETS[:1], SETS[:3], []):
        errors = rejection({**values, "rules": {**values["rules"], "sets": other}})
        named = f"rules.sets has {', '.join(sorted(other)) or 'no sets'}, but the webhook values were generated for "
        assert f"{named}{', '.join(sorted(SETS[:2]))}: generate both" in errors
    assert rendered({**values, "rules": {**values["rules"], "sets": SETS[1::-1]}})
    clash = f"{SETS[0]}-{list_packaged_sets()[SETS[0]].files[0].name}"
    errors = rejection({**values, "rules": {**values["rules"], clash: "x"}})
    assert f"rules has a file {clash}, and so has the set {SETS[0]}: rename yours" in errors


def test_generated_values_of_sets_alone_are_those_of_the_chart() -> None:
    values: Any = yaml.safe_load(cli("webhook-config", "--rules", f"set:{SETS[0]}", "-o", "helm-values").stdout)

    assert values["rules"] == {"sets": SETS[:1]}
    assert rendered(values) == rendered({"rules": {"sets": SETS[:1]}})
    assert "rules.sets has" in rejection({**values, "rules": {"sets": SETS[:2]}})


def test_the_rules_of_a_set_can_be_exported() -> None:
    line = ("webhook-config", "--native", "--rules", f"set:{SETS[0]}", "-o", "helm-values")
    values: Any = yaml.safe_load(cli(*line).stdout)

    assert one(rendered(values), "MutatingWebhookConfiguration")["metadata"]["annotations"]["gpurules.io/native"]


def test_sets_without_rules_are_not_offered() -> None:
    assert SETS
    assert "diagnostics" not in SETS
