"""Limits of the process that computes answers."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import pytest

from rules_engine.server.commands.playground.answer import CLUSTER_FILE, EXAMPLES, POD_FILE, RULES_FILE
from rules_engine.server.commands.playground.process import BUSY, FAILED, TOO_LONG, AnswerProcess
from tests.support.server import PATIENCE_SECONDS

START = EXAMPLES[0]["texts"]


@pytest.fixture(scope="module")
def patient() -> AnswerProcess:
    return AnswerProcess(seconds=PATIENCE_SECONDS)


ENDLESS: Mapping[str, str] = {
    POD_FILE: (
        "apiVersion: batch/v1\nkind: Job\nmetadata: {name: p}\nspec:\n"
        "  parallelism: 100000\n  completions: 100000\n"
        "  template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}\n"
    )
}
"""A Job with so many pods that simulating them takes a minute."""


def test_an_answer_that_takes_too_long_has_what_was_known_at_its_end() -> None:
    process = AnswerProcess(seconds=3)
    given = process.answer({**START, **ENDLESS})

    assert given["limit"] == TOO_LONG
    assert given["explain"]["verdict"] == "Allowed"
    assert "preflight" not in given
    assert "limit" not in process.answer(START)


def test_an_answer_does_not_wait_for_ever_for_others() -> None:
    process = AnswerProcess(seconds=2)
    with ThreadPoolExecutor(2) as threads:
        given = [*threads.map(process.answer, [{**START, **ENDLESS}] * 2)]

    assert {each["limit"] for each in given} == {TOO_LONG, BUSY}
    assert "limit" not in process.answer(START)


def test_an_answer_that_takes_too_much_memory_is_incomplete() -> None:
    process = AnswerProcess(seconds=PATIENCE_SECONDS, memory_bytes=1)

    large = {**START, RULES_FILE: f"{START[RULES_FILE]}\n#{'x' * 2**20}"}
    assert process.answer(large) == process.answer(large) == {"limit": FAILED}


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, "{a: " * 60_000, "a: &a [x]\n" + "".join(f"b{n}: [*a]\n" for n in range(20_000)), "\t", "\x00"],
)
@pytest.mark.parametrize("file", [RULES_FILE, POD_FILE, CLUSTER_FILE])
def test_hostile_yaml_is_a_problem(text: str, file: str, patient: AnswerProcess) -> None:
    given = patient.answer({**START, file: text})

    assert file in [problem["source"]["file"] for problem in given["problems"] if problem["severity"] == "error"]
    assert "limit" not in given


def test_answers_wait_for_each_other(patient: AnswerProcess) -> None:
    with ThreadPoolExecutor(8) as threads:
        answers = [*threads.map(patient.answer, [START] * 8)]

    assert all(answer == answers[0] and "limit" not in answer for answer in answers)
