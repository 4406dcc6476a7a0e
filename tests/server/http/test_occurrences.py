"""Counters of exceeded limits and failed handshakes."""

import logging

import pytest

from rules_engine.server.http.limits import LOG_SECONDS, Limit
from rules_engine.server.http.occurrences import HandshakeFailure, Occurrences


def test_a_limit_is_logged_once_a_minute_with_its_count(caplog: pytest.LogCaptureFixture) -> None:
    exceeded = Occurrences(Limit, "test listener: limit %s exceeded (%d in all%s)")
    exceeded.log(0.0)
    lines = []
    for now in (0.0, 1.0, LOG_SECONDS - 0.1, LOG_SECONDS, LOG_SECONDS + 1.0, 2 * LOG_SECONDS, 3 * LOG_SECONDS):
        if now != 3 * LOG_SECONDS:
            exceeded.count(Limit.BODY_TIME)
        exceeded.log(now)
        lines.append([record.getMessage() for record in caplog.records])
        caplog.clear()
    text = "test listener: limit body-time exceeded ({} in all)"
    assert lines == [[text.format(1)], [], [], [text.format(4)], [], [text.format(6)], []]
    assert exceeded.by_name["body-time"] == 6


def test_limits_are_logged_independently_with_the_last_peer(caplog: pytest.LogCaptureFixture) -> None:
    exceeded = Occurrences(Limit, "limit %s exceeded (%d in all%s)")
    exceeded.count(Limit.BODY_TIME, "10.0.0.1")
    exceeded.log(0.0)
    exceeded.count(Limit.FILES)
    exceeded.log(0.0)
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [
        (logging.WARNING, "limit body-time exceeded (1 in all, last by 10.0.0.1)"),
        (logging.WARNING, "limit files exceeded (1 in all)"),
    ]


@pytest.mark.parametrize("kind", [Limit.HANDSHAKE_TIME, HandshakeFailure.GIVEN_UP])
def test_callers_that_gave_up_are_explained(kind: Limit | HandshakeFailure, caplog: pytest.LogCaptureFixture) -> None:
    seen = Occurrences(type(kind), "%s (%d in all%s)")
    seen.count(kind)
    seen.log(0.0)
    assert "the failurePolicy of the webhook decided" in caplog.text


def test_every_limit_has_a_name_of_its_own() -> None:
    assert len({limit.value for limit in Limit}) == len(Limit)
