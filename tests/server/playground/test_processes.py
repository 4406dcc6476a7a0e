"""Limits of the processes that compute answers."""

import socket
import threading
from collections.abc import Mapping

import pytest

from server.playground.answer import CLUSTER_FILE, POD_FILE, RULES_FILE
from server.playground.examples import EXAMPLES
from server.playground.processes import FAILED, TOGETHER, TOO_LONG, AnswerProcesses, BusyError
from tests.support.server import PATIENCE_SECONDS

START = EXAMPLES[0]["texts"]


@pytest.fixture(scope="module")
def patient() -> AnswerProcesses:
    return AnswerProcesses(seconds=PATIENCE_SECONDS)


ENDLESS: Mapping[str, str] = {
    POD_FILE: (
        "apiVersion: batch/v1\nkind: Job\nmetadata: {name: p}\nspec:\n"
        "  parallelism: 1000000000\n  completions: 1000000000\n"
        "  template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}\n"
    )
}
"""A Job with so many pods that simulating them takes hours."""


def test_an_answer_that_takes_too_long_has_what_was_known_at_its_end() -> None:
    given = AnswerProcesses(seconds=3).answer({**START, **ENDLESS})

    assert given["limit"] == TOO_LONG
    assert given["explain"]["allowed"]
    assert "preflight" not in given


def test_an_answer_that_takes_too_much_memory_is_incomplete() -> None:
    given = AnswerProcesses(seconds=PATIENCE_SECONDS, memory_bytes=1).answer(START)

    assert given == {"limit": FAILED}


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, "{a: " * 60_000, "a: &a [x]\n" + "".join(f"b{n}: [*a]\n" for n in range(20_000)), "\t", "\x00"],
)
@pytest.mark.parametrize("file", [RULES_FILE, POD_FILE, CLUSTER_FILE])
def test_hostile_yaml_is_a_problem(text: str, file: str, patient: AnswerProcesses) -> None:
    given = patient.answer({**START, file: text})

    assert file in [problem["file"] for problem in given["problems"] if problem["severity"] == "error"]
    assert "limit" not in given


def test_more_answers_than_are_computed_together_are_refused(patient: AnswerProcesses) -> None:
    processes = AnswerProcesses(seconds=1, wait_seconds=0.01)
    outcomes: list[str] = []

    def ask() -> None:
        try:
            outcomes.append(processes.answer({**START, **ENDLESS})["limit"])
        except BusyError:
            outcomes.append("busy")

    threads = [threading.Thread(target=ask) for _ in range(TOGETHER + 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(outcomes) == sorted([TOO_LONG] * TOGETHER + ["busy"] * 3)
    assert "limit" not in patient.answer(START)


def test_answers_go_on_after_the_process_that_forks_has_ended(patient: AnswerProcesses) -> None:
    patient._control.shutdown(socket.SHUT_RDWR)

    assert patient.answer(START)["explain"]["allowed"]
