"""Diagnostics and WorkloadKinds among the rules of a server: they are neither compiled nor active."""

from pathlib import Path

import pytest

from rules_engine.server.rules.sources import UnusableError, prepare_rules
from tests.support.authoring import ladder, write
from tests.support.diagnostics import document
from tests.support.loading import rule

WORKLOAD_KIND = rule("WorkloadKind", "{group: x.y, kind: T, templates: [{path: spec, pods: objct.nothing}]}")
OTHERS = pytest.mark.parametrize("other", [document("when: object.nothing"), WORKLOAD_KIND])


@OTHERS
def test_other_documents_do_not_change_the_active_rules(other: str, tmp_path: Path) -> None:
    folder = write(tmp_path, {"ladder.yaml": ladder("one", "nvidia.com/gpu")})
    before = prepare_rules([folder])
    write(folder, {"other.yaml": other})
    after = prepare_rules([folder])
    assert (after.digest, after.listed, after.diagnostics) == (before.digest, before.listed, "")


@OTHERS
def test_other_documents_alone_are_no_rules(other: str, tmp_path: Path) -> None:
    with pytest.raises(UnusableError, match="no rules in"):
        prepare_rules([write(tmp_path, {"other.yaml": other})])
