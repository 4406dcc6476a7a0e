"""With the members that are kept, reports are the same as with whole objects.

`cluster` of tests/support/api.py keeps these members only, so that all tests of the built-in reasons and sections show
it as well.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from rules_engine.diagnosis.diagnostic import CompiledDiagnostic, Diagnostic, compile_diagnostics, fields_of_diagnostics
from rules_engine.diagnosis.doctor import diagnose
from rules_engine.diagnosis.reading.built_in_fields import BUILT_IN_FIELDS, fields_of_rules
from rules_engine.diagnosis.reading.files import read_objects
from rules_engine.diagnosis.scope import Scope
from rules_engine.diagnosis.values import Diagnosis
from rules_engine.documents.registry import load_documents
from rules_engine.evaluation import RuleSet
from rules_engine.model.kubernetes.cluster_objects import API_RESOURCES
from rules_engine.model.kubernetes.kept_fields import Kept, keeps_path, merge_by_kind
from tests.support.api import GPU, MIG1, MIG3, NOW, event, node, pod, volume_claim
from tests.support.documents import REPOSITORY
from tests.support.evaluation import compiled, ladder, rung
from tests.support.kept_fields import missing_paths

PACKAGED = REPOSITORY / "rules" / "diagnostics"

Object = dict[str, Any]


def recorded() -> Iterator[Any]:
    """Yield the objects of each test of the packaged Diagnostics."""
    for path in sorted(PACKAGED.glob("*.test.yaml")):
        for number, document in enumerate(yaml.safe_load_all(path.read_text())):
            spec = document["spec"]
            for cluster in (spec.get("cluster", {}), *spec.get("clusters", {}).values()):
                if "objects" in cluster:
                    yield pytest.param(cluster["objects"], id=f"{path.name}-{number}")


@pytest.fixture(scope="module")
def diagnostics() -> tuple[CompiledDiagnostic, ...]:
    files = [path for path in sorted(PACKAGED.glob("*.yaml")) if not path.name.endswith(".test.yaml")]
    made, problems = compile_diagnostics(load_documents(files).of(Diagnostic))
    assert problems == ()
    return made


def report(
    folder: Path,
    objects: list[Object],
    kept: dict[str, Kept],
    diagnostics: tuple[CompiledDiagnostic, ...] = (),
    rules: RuleSet | None = None,
) -> Diagnosis:
    dump = folder / "dump.json"
    dump.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}, default=str))
    reading = read_objects([dump], kept)
    assert (reading.problems, reading.objects is None) == ((), False)
    assert reading.objects is not None
    return diagnose(reading.objects, diagnostics, rules, Scope())


WHOLE: dict[str, Kept] = dict.fromkeys(API_RESOURCES)


@pytest.mark.parametrize("objects", [*recorded()])
def test_packaged_diagnostics_report_the_same(
    tmp_path: Path, objects: list[Object], diagnostics: tuple[CompiledDiagnostic, ...]
) -> None:
    kept = dict(merge_by_kind(BUILT_IN_FIELDS, fields_of_diagnostics(diagnostics)))
    whole = report(tmp_path, objects, WHOLE, diagnostics)
    assert report(tmp_path, objects, kept, diagnostics) == whole


FILLING: Object = {"image": "registry.example.com/a:1", "env": [{"name": "A", "value": "b"}], "command": ["a"]}


def filled(made: Object) -> Object:
    """Return an object with members that nothing reads."""
    spec = {**made.get("spec", {}), "filling": FILLING}
    if "containers" in spec:
        spec["containers"] = [{**container, **FILLING} for container in spec["containers"]]
    return {**made, "metadata": {**made["metadata"], "filling": FILLING}, "spec": spec}


def test_built_in_reasons_report_the_same(tmp_path: Path) -> None:
    waiting = pod("waiting", {MIG3: 1}, message="0/2 nodes are available: 2 Insufficient nvidia.com/mig-3g.20gb.")
    objects = [
        node("a", {GPU: 4}, taints=["nvidia.com/gpu=present:NoSchedule"]),
        node("b", {MIG1: 7}, ready=False),
        waiting,
        event(waiting, "FailedScheduling", "0/2 nodes are available"),
        pod("holder", {GPU: 4}, on="a"),
        pod("second", {GPU: 1}, volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]),
        volume_claim("data", "Pending"),
    ]
    whole = report(tmp_path, [*map(filled, objects)], WHOLE)
    assert report(tmp_path, [*map(filled, objects)], dict(BUILT_IN_FIELDS)) == whole
    assert len(whole.overview.pending) == 2
    assert whole.now == NOW.replace(hour=11, minute=50)


def test_active_ladders_read_what_their_expressions_need(tmp_path: Path) -> None:
    rules = compiled(
        ladder(
            MIG3,
            rung(GPU, assume=True),
            match_conditions={
                "image": "object.spec.containers.all(c, c.image.startsWith('registry.example.com/'))",
                "service-account": "object.spec.serviceAccountName == 'train'",
            },
        )
    )
    kept = fields_of_rules(rules)
    assert keeps_path(kept["Pod"], "spec", "containers", "image")
    assert keeps_path(kept["Pod"], "spec", "serviceAccountName")
    objects = [node("a", {GPU: 4}), filled(pod("waiting", {MIG3: 1}, serviceAccountName="train"))]
    whole = report(tmp_path, objects, WHOLE, rules=rules)
    assert report(tmp_path, objects, dict(merge_by_kind(BUILT_IN_FIELDS, kept)), rules=rules) == whole
    assert any(GPU in line for group in whole.findings for line in group.finding.evidence)
    assert "would give the pod" in str(whole.findings)


def test_ladders_without_expressions_keep_nothing_else() -> None:
    kept = fields_of_rules(compiled(ladder(MIG3, rung(GPU, assume=True))))
    assert [*missing_paths(BUILT_IN_FIELDS["Pod"], kept["Pod"])] == []
