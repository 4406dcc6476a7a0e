"""Diagnostics among the rules of a server: they are neither compiled nor active."""

from pathlib import Path

import pytest

from rules_engine.server.rules.sources import UnusableError, prepare_rules
from tests.support.authoring import ladder, write
from tests.support.diagnostics import document


def test_diagnostics_do_not_change_the_active_rules(tmp_path: Path) -> None:
    folder = write(tmp_path, {"ladder.yaml": ladder("one", "nvidia.com/gpu")})
    before = prepare_rules([folder])
    write(folder, {"diagnostic.yaml": document("when: object.nothing")})
    after = prepare_rules([folder])
    assert (after.digest, after.listed, after.diagnostics) == (before.digest, before.listed, "")


def test_diagnostics_alone_are_no_rules(tmp_path: Path) -> None:
    with pytest.raises(UnusableError, match="no rules in"):
        prepare_rules([write(tmp_path, {"diagnostic.yaml": document("when: 'true'")})])
