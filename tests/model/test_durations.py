"""Durations: their syntax, which is the schema's."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rules_engine.language.schemas import schema
from rules_engine.model.durations import MAX_DURATION, MAX_DURATION_TEXT, DurationError, parse_duration

PATTERN = re.compile(schema("Simulation")["$defs"]["duration"]["pattern"].removesuffix("$") + r"\Z")


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("0", 0),
        ("0s", 0),
        ("90s", 90_000),
        ("2h", 7_200_000),
        ("1h30m", 5_400_000),
        ("250ms", 250),
        ("5m", 300_000),
        ("5m5ms", 300_005),
        ("2d", 172_800_000),
        ("1d2h3m4s5ms", 93_784_005),
        ("1.5h", 5_400_000),
        ("0.001s", 1),
        ("1.000ms", 1),
        ("3650d", MAX_DURATION),
    ],
)
def test_a_duration_is_whole_milliseconds(text: str, milliseconds: int) -> None:
    assert parse_duration(text) == milliseconds


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' is not a duration such as 90s"),
        ("90", "'90' is not a duration such as 90s"),
        ("-5s", "'-5s' is not a duration such as 90s"),
        ("30m1h", "'30m1h' is not a duration such as 90s"),
        ("1.5ms", "a duration is a whole number of milliseconds"),
        ("0.0001s", "a duration is a whole number of milliseconds"),
        ("3650d1ms", "a duration is at most 3650d, ten years"),
        ("999999999999d", "a duration is at most 3650d, ten years"),
    ],
)
def test_an_invalid_duration_has_a_message(text: str, message: str) -> None:
    with pytest.raises(DurationError) as raised:
        parse_duration(text)
    assert str(raised.value) == message


def test_the_longest_duration_equals_its_text() -> None:
    assert parse_duration(MAX_DURATION_TEXT) == MAX_DURATION


@given(st.text("0123456789.dhms-: \n", max_size=12))
@example("1m\n")
@example("0")
@example(".5s")
@example("1234567890123s")
def test_valid_durations_match_the_schema(text: str) -> None:
    try:
        parse_duration(text)
        has_form = True
    except DurationError as error:
        has_form = "such as" not in str(error)
    assert has_form == (PATTERN.match(text) is not None)


@given(st.integers(0, 400), st.integers(0, 23), st.integers(0, 59), st.integers(0, 59), st.integers(0, 999))
def test_the_units_add_up(days: int, hours: int, minutes: int, seconds: int, milliseconds: int) -> None:
    text = f"{days}d{hours}h{minutes}m{seconds}s{milliseconds}ms"
    assert parse_duration(text) == (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000 + milliseconds
