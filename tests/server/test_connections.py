"""Which connections are cut for threads that wait too long: what the kernel's coarse clock leaves to judgement."""

import pytest

from server.connections import CLOCK_SECONDS, _chosen, _Suspect


def suspect(came: float, *, doubtful: bool = False) -> _Suspect:
    return _Suspect(sent=2000, since=came, came=came, doubtful=doubtful)


@pytest.mark.parametrize("delay", [0.0, 0.001, 0.3, 1.5])
def test_requests_that_wait_for_a_thread_came_after_those_that_have_one(delay: float) -> None:
    came = {number: suspect(number * 0.002) for number in range(7)}
    begun = [number * 0.002 + delay for number in range(4)]
    assert _chosen(came, begun) == {0, 1, 2, 3}


def test_an_idle_connection_that_was_answered_within_the_same_tick_comes_last() -> None:
    idle, slow = suspect(10.0, doubtful=True), suspect(10.004)
    assert _chosen({1: idle, 2: slow}, [10.005]) == {2}


def test_what_came_long_before_or_after_a_request_was_taken_up_is_not_of_it() -> None:
    assert _chosen({1: suspect(0.0), 2: suspect(10.0)}, [10.1]) == {2}
    assert _chosen({1: suspect(9.99), 2: suspect(10.0 + 2 * CLOCK_SECONDS)}, [10.0]) == {1}


def test_no_more_are_cut_than_there_are() -> None:
    assert _chosen({1: suspect(0.0)}, [0.1, 0.2]) == {1}
    assert _chosen({}, [0.1]) == set()
