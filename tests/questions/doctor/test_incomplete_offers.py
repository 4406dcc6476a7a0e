"""The finding about rules that GPUOffers leave out."""

import json
from pathlib import Path
from typing import Any

import pytest

from rules_engine.cluster.read.clusters import read_cluster
from rules_engine.exports.offers import build_offers
from rules_engine.exports.policies import NativeObjects
from rules_engine.exports.settings import Settings
from rules_engine.model.wording import MAX_JOINED
from rules_engine.questions.doctor.doctor import doctor
from rules_engine.questions.doctor.incomplete_offers import find_incomplete_offers
from rules_engine.questions.doctor.report import diagnosis_report
from rules_engine.questions.doctor.scope import Scope
from rules_engine.questions.doctor.values import Diagnosis
from rules_engine.questions.doctor.wording import MAX_QUOTED
from rules_engine.rules.native.policy import translate_rules
from tests.support.api import GPU, MIG1, Object, ago, cluster, node
from tests.support.evaluation import cluster as nodes
from tests.support.evaluation import compiled, ladder
from tests.support.remedies import has_its_risk

NATIVE = translate_rules(compiled(ladder(MIG1, GPU, name="mig")))


def offers(unread: frozenset[str] = frozenset()) -> Object:
    return dict(NativeObjects(NATIVE, "d", Settings()).offers(build_offers(NATIVE, nodes({GPU: 4}, unread=unread))))


def diagnosed(folder: Path, *items: Any, scope: Scope = Scope()) -> Diagnosis:  # noqa: B008 - immutable
    """Return the diagnosis of a dump, with one node and one Event."""
    path, event = folder / "dump.json", {"kind": "Event", "metadata": {"name": "e"}, "lastTimestamp": ago()}
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [node("n", {GPU: 4}), event, *items]}))
    objects = read_cluster([path]).objects
    assert objects is not None
    return doctor(objects, (), None, scope)


def test_rules_that_offers_leave_out_are_found_with_the_reason() -> None:
    (finding,) = find_incomplete_offers(cluster(offers(frozenset([GPU]))))
    assert (finding.reason, finding.object.title) == ("GPUOffersIncomplete", "GPUOffers gpu-rules")
    assert finding.message == "the API server has no offers for 1 rule"
    assert finding.evidence == (f"FallbackLadder/mig: it is not known what drivers offer of {GPU}",)
    assert finding.cause
    assert all(map(has_its_risk, finding.remedies))
    assert [*find_incomplete_offers(cluster(offers()))] == []


@pytest.mark.parametrize("omitted", [{f"\x1b{index}" * 1000: "x" * 9999 for index in range(99)}, {"a": {"b": 7}}, []])
def test_a_hostile_dump_is_reported_within_bounds(tmp_path: Path, omitted: Any) -> None:
    report = diagnosed(tmp_path, {**offers(), "spec": {"omitted": omitted}})
    assert [group.reason for group in report.findings] == ["GPUOffersIncomplete"] * bool(omitted)
    for group in report.findings:
        assert len(group.evidence) <= MAX_JOINED
        assert max(map(len, group.evidence)) <= MAX_QUOTED + 1
    assert report.objects["gpuoffers"] == 1
    assert diagnosis_report(report)


def test_offers_are_not_missing_from_a_dump_and_concern_neither_a_node_nor_a_namespace(tmp_path: Path) -> None:
    assert "gpuoffers" not in {each.objects for each in diagnosed(tmp_path).not_read}
    incomplete = offers(frozenset([GPU]))
    assert diagnosed(tmp_path, incomplete).findings
    for scope in (Scope(node="n"), Scope(namespace="ml")):
        assert diagnosed(tmp_path, incomplete, scope=scope).findings == ()
