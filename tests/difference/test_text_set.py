"""A set of texts in arrays answers as a dict of numbers does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules_engine.difference.reading import text_set
from rules_engine.difference.reading.text_set import TextSet

ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=()), max_size=3)


@given(texts=st.lists(ANY_TEXT), others=st.lists(ANY_TEXT), most=st.integers(0, 20))
def test_a_set_of_texts_numbers_them_up_to_its_bound(texts: list[str], others: list[str], most: int) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(text_set, "_FIRST_SLOTS", 2)
        found = TextSet(most)
        expected: dict[str, int] = {}
        for text in texts:
            if text not in expected and len(expected) < most:
                expected[text] = len(expected)
            assert found.add(text) == expected.get(text)
    assert len(found) == len(expected)
    assert found.full == (len(set(texts)) > most)
    for text in (*texts, *others):
        assert found.number(text) == expected.get(text)
        assert (text in found) == (text in expected)


def test_texts_whose_hashes_begin_in_one_slot_are_different() -> None:
    found = TextSet(100_000)
    for number in range(20_000):
        assert found.add(f"pod-{number}") == number
    assert [found.number(f"pod-{number}") for number in range(20_000)] == [*range(20_000)]
    assert not any(f"job-{number}" in found for number in range(20_000))
    assert 5 not in found
