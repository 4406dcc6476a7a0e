"""Lines of a decision log are read in chunks, in bounded memory."""

from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules_engine.language import log_lines as module
from rules_engine.language.log_lines import log_lines


@pytest.mark.parametrize("content", [b"ab\ncdefghij\nk", b"abcdefghij", b"a\n", b""])
def test_long_lines_are_none(content: bytes) -> None:
    assert_lines(content, 3)


@given(st.lists(st.integers(0, 9), max_size=6), st.booleans(), st.integers(1, 12))
def test_chunks_give_the_lines_of_the_whole_file(lengths: list[int], ended: bool, chunk_bytes: int) -> None:
    assert_lines(b"\n".join(b"x" * length for length in lengths) + b"\n" * ended, chunk_bytes)


def assert_lines(content: bytes, chunk_bytes: int) -> None:
    whole = content.removesuffix(b"\n").split(b"\n") if content else []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CHUNK_BYTES", chunk_bytes)
        patch.setattr(module, "MAX_LINE_BYTES", 4)
        lines = list(log_lines(BytesIO(content)))
    assert lines == [line if len(line) <= 4 else None for line in whole]
