"""Groups of nodes: equal whether stored as lists or as sets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules_engine.cluster.nodes.groups import SMALL_GROUP, Groups, node_set, numbers_of

KEYS = "abc"
MOST = 40

members = st.dictionaries(st.integers(0, MOST), st.sampled_from(KEYS), max_size=MOST)


def grouped(by_number: dict[int, str]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for number, key in sorted(by_number.items()):
        found.setdefault(key, []).append(number)
    return found


@given(members, st.lists(st.tuples(st.integers(0, MOST), st.none() | st.sampled_from(KEYS)), max_size=60))
def test_updated_groups_equal_new_ones(start: dict[int, str], moves: list[tuple[int, str | None]]) -> None:
    check_updated(start, moves)


@pytest.mark.parametrize(("size", "left"), [(SMALL_GROUP, ()), (SMALL_GROUP + 1, (3, 4))], ids=["to-set", "to-list"])
def test_a_group_changes_its_form(size: int, left: tuple[int, ...]) -> None:
    check_updated(dict.fromkeys(range(size), "a"), [(20, "a"), *((number, None) for number in left)])


def check_updated(start: dict[int, str], moves: list[tuple[int, str | None]]) -> None:
    now = dict(start)
    changed = []
    for number, key in moves:
        old = now.pop(number, None)
        if key is not None:
            now[number] = key
        changed.append((number, () if old is None else (old,), () if key is None else (key,)))
    expected = grouped(now)
    for groups in (Groups.of(grouped(start)).after(changed), Groups.of(expected)):
        assert {key: list(numbers_of(groups[key])) for key in groups.members} == expected
        assert dict(groups.counts()) == {key: len(numbers) for key, numbers in expected.items()}
        for nodes in groups.members.values():
            assert nodes.bit_count() > SMALL_GROUP if isinstance(nodes, int) else len(nodes) <= SMALL_GROUP


@given(st.sets(st.integers(0, 200)))
def test_a_set_has_the_numbers_it_was_made_of(numbers: set[int]) -> None:
    assert numbers_of(node_set(sorted(numbers))) == tuple(sorted(numbers))
    assert node_set([*numbers]) == sum(1 << number for number in numbers)
