"""The committed editor equals what its packages are bundled to."""

from pathlib import Path

import pytest

from tools import codemirror


@pytest.mark.skipif(not codemirror.NPM, reason="npm is not installed")
def test_the_committed_bundle_is_built_from_the_locked_packages(tmp_path: Path) -> None:
    codemirror.install(tmp_path)

    for name, text in codemirror.build(tmp_path).items():
        assert (codemirror.STATIC / name).read_text(encoding="utf-8") == text, "make codemirror"
