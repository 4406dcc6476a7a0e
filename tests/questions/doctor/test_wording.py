"""Parts of the sentences of findings."""

from datetime import UTC, datetime

import pytest

from rules_engine.model.wording import format_amount, format_count, join_names
from rules_engine.questions.doctor.wording import quote_message, since_clause


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ("", ""),
        ("a", "a"),
        ("ab", "a and b"),
        ("abcde", "a, b, c, d and e"),
        ("abcdef", "a, b, c, d, e and 1 more"),
        ("abcdefg", "a, b, c, d, e and 2 more"),
    ],
)
def test_names_are_listed_and_the_others_counted(names: str, text: str) -> None:
    assert join_names([*names]) == text


def test_omitted_names_are_counted() -> None:
    assert join_names(["a", "b"], of=9) == "a, b and 7 more"


def test_counts_have_their_noun() -> None:
    assert [format_count(count, "node") for count in (0, 1, 2)] == ["0 nodes", "1 node", "2 nodes"]


@pytest.mark.parametrize(
    ("resource", "nanos", "text"),
    [
        ("cpu", 1_500_000_000, "1500m"),
        ("nvidia.com/gpu", 8 * 10**9, "8"),
        ("memory", (2**30 + 5) * 10**9, "1Gi"),
        ("memory", 5 * 10**9, "5"),
        ("hugepages-2Mi", 2**21 * 10**9, "2Mi"),
        ("cpu", -1, "0"),
    ],
)
def test_amounts_are_written_as_kubernetes_does(resource: str, nanos: int, text: str) -> None:
    assert format_amount(resource, nanos) == text


def test_an_unknown_time_is_omitted() -> None:
    assert since_clause(None) == ""
    assert since_clause(datetime(2026, 1, 2, 3, tzinfo=UTC)) == " since 2026-01-02T03:00:00Z"


def test_messages_are_quoted_on_one_line() -> None:
    assert quote_message("a\n  b\tc") == "a b c"
