"""Which connections are cut for threads that wait too long: what the kernel's coarse clock leaves to judgement."""

import pytest

from server.connections import CLOCK_SECONDS, _chosen, _Doubt, _doubt, _Suspect


def suspect(came: float, doubt: _Doubt = _Doubt.NONE, *, sent: int = 2000) -> _Suspect:
    return _Suspect(sent=sent, since=came, came=came, doubt=doubt)


@pytest.mark.parametrize("delay", [0.0, 0.001, 0.3, 1.5])
def test_requests_that_wait_for_a_thread_came_after_those_that_have_one(delay: float) -> None:
    came = {number: suspect(number * 0.002) for number in range(7)}
    begun = [number * 0.002 + delay for number in range(4)]
    assert _chosen(came, begun) == {0, 1, 2, 3}


def test_an_idle_connection_that_seems_to_wait_for_an_answer_comes_last() -> None:
    idle = suspect(10.0, _Doubt.SMALL)
    assert _chosen({1: idle, 2: suspect(10.004)}, [10.005]) == {2}
    answered = suspect(10.0, _Doubt.GREAT, sent=2300)
    assert _chosen({1: answered, 2: suspect(10.004, _Doubt.SMALL)}, [10.005]) == {2}
    assert _chosen({1: answered, 2: suspect(10.004, _Doubt.GREAT)}, [10.005]) == {2}


def test_only_what_was_sent_later_and_is_more_than_a_handshake_looks_like_an_answer() -> None:
    assert [_doubt(before, answered=False) for before in (-1, 0, 1)] == [_Doubt.NONE] * 3
    assert [_doubt(before, answered=True) for before in (-1, 0, 1)] == [_Doubt.NONE, _Doubt.SMALL, _Doubt.GREAT]


def test_what_came_long_before_or_after_a_request_was_taken_up_is_not_of_it() -> None:
    assert _chosen({1: suspect(0.0), 2: suspect(10.0)}, [10.1]) == {2}
    assert _chosen({1: suspect(9.99), 2: suspect(10.0 + 2 * CLOCK_SECONDS)}, [10.0]) == {1}


def test_no_more_are_cut_than_there_are() -> None:
    assert _chosen({1: suspect(0.0)}, [0.1, 0.2]) == {1}
    assert _chosen({}, [0.1]) == set()
