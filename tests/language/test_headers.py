"""The head of a document: apiVersion and kind."""

from pathlib import Path

import pytest

from rules_engine import InputError, load_rules


@pytest.mark.parametrize("name", ["apiVersion", "kind"])
def test_apiversion_and_kind_must_be_text(tmp_path: Path, name: str) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(f"{name}: [v1]\n" + {"apiVersion": "kind: Validation", "kind": "apiVersion: gpurules.io/v1"}[name])
    with pytest.raises(InputError, match=rf"error: {name} must be text \[wrong-type\]"):
        load_rules(file)
