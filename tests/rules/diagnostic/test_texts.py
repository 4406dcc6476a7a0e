"""The table of texts: each row matches its examples first, and names an entry of the catalogue."""

import re

import pytest

from rules_engine.language.cel import Budget, CostExceeded
from rules_engine.language.cel.values.regex import compile_pattern, pattern_error
from rules_engine.rules.diagnostic.catalogue import read_catalogue
from rules_engine.rules.diagnostic.texts import (
    MAX_MESSAGE,
    MAX_WORDS,
    Text,
    bad_conditions,
    find_text,
    find_texts,
    read_texts,
)
from tests.support.api import api_object, cluster, event, node, pod

TABLE = read_texts()
EXAMPLES = [pytest.param(text, example, id=example[:60]) for text in TABLE.texts for example in text.examples]


@pytest.mark.parametrize(("text", "example"), EXAMPLES)
def test_an_example_matches_its_own_row_first(text: Text, example: str) -> None:
    found, words = find_text(example)
    assert found is text
    assert words
    assert words.rstrip("…") in example


@pytest.mark.parametrize("text", TABLE.texts, ids=lambda text: text.pattern[:40])
def test_a_row_has_examples_and_an_entry(text: Text) -> None:
    entry = read_catalogue()[text.reason]
    assert text.examples
    assert not text.case or text.case in entry.cases
    assert pattern_error(text.pattern) is None
    assert "(?P<" not in text.pattern


@pytest.mark.parametrize(
    "message",
    [
        "",
        'Back-off pulling image "nvcr.io/nvidia/cuda:12.8.0-base"',
        "Readiness probe failed: nvidia-smi took 80 seconds",
        'plugin type="calico" failed (add): connection is unauthorized',
        "the Xid of the request is a1b2",
        f"Xid ({'a' * MAX_WORDS}): 79",
        "resolved all CDI devices",
        'exec: "train": executable file not found in $PATH',
        "stat /data/model: no such file or directory",
    ],
)
def test_other_messages_match_no_row(message: str) -> None:
    assert find_text(message) == (None, "")


def test_the_beginning_of_a_message_is_read_and_quoted() -> None:
    budget = Budget()
    long = event(node("a"), "X", message="a" * MAX_MESSAGE + "Xid 79")
    objects = cluster(node("a"), long)
    assert find_texts(objects.nodes[0], "XidError", budget) == []
    devices = "unresolvable CDI devices " + "a" * 500
    _, words = find_text(devices)
    assert words == devices[:MAX_WORDS] + "…"


def test_a_hostile_message_costs_budget() -> None:
    objects = cluster(node("a"), *(event(node("a"), f"X{number}", message="xid (" * 1_000) for number in range(100)))
    with pytest.raises(CostExceeded):
        find_texts(objects.nodes[0], "XidError", Budget(100_000))


@pytest.mark.parametrize(
    ("ended", "reasons"),
    [
        ({"exitCode": 128}, ["ContainerToolkitFailed"]),
        ({"exitCode": 127, "reason": "ContainerCannotRun"}, ["ContainerToolkitFailed"]),
        ({"exitCode": 1, "reason": "Error"}, []),
        ({"exitCode": 0, "reason": "Completed"}, []),
    ],
)
def test_the_output_of_a_program_is_no_message_of_the_runtime(ended: dict[str, object], reasons: list[str]) -> None:
    message = "lstat /home/token-4711/nvidia0: no such file"
    status = {"name": "c", "ready": False, "state": {"terminated": {**ended, "message": message}}}
    failed = pod("p", on="a", phase="Failed", status={"containerStatuses": [status]})
    (about,) = cluster(node("a"), failed).pods
    found = {reason: find_texts(about, reason, Budget()) for reason in read_catalogue()}
    assert [reason for reason, texts in found.items() if texts] == reasons


@pytest.mark.parametrize(("code", "found"), [(1, True), (0, False)])
def test_a_program_that_fails_tells_that_the_driver_is_too_old(code: int, found: bool) -> None:
    ended = {"exitCode": code, "message": "CUDA driver version is insufficient for CUDA runtime version"}
    status = {"name": "c", "ready": False, "state": {}, "lastState": {"terminated": ended}}
    (about,) = cluster(node("a"), pod("p", on="a", status={"containerStatuses": [status]})).pods
    assert bool(find_texts(about, "CUDANeedsNewerDriver", Budget())) == found


def test_one_object_does_not_use_up_the_budget() -> None:
    many = (event(node("a"), f"X{number}", message=f"{number}" * 500) for number in range(10_000))
    budget = Budget(2_000_000)
    assert find_texts(cluster(node("a"), *many).nodes[0], "XidError", budget) == []
    assert budget.left > 0


def test_pods_without_messages_and_texts_that_are_known_cost_nothing() -> None:
    ended = {"name": "c", "ready": False, "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}
    succeeded = pod("p", on="a", phase="Succeeded", status={"containerStatuses": [ended]})
    objects = cluster(node("a"), succeeded, event(node("a"), "Xid", message="Xid 79"))
    assert find_texts(objects.pods[0], "XidError", Budget(0)) == []
    first = find_texts(objects.nodes[0], "XidError", Budget())
    assert find_texts(objects.nodes[0], "XidError", Budget(0)) == first != []


def test_a_text_is_found_once_at_its_place() -> None:
    events = (event(node("a"), "Xid", message=f"Xid 79, pid {number}") for number in range(3))
    (found,) = find_texts(cluster(node("a"), *events).nodes[0], "XidError", Budget())
    assert found["words"] == "Xid 79"


def test_words_come_with_their_place_and_only_of_pods_that_wait() -> None:
    waiting = pod("p", on="a", phase="Pending")
    started = pod("q", on="a")
    message = "CDI device injection failed: unresolvable CDI devices nvidia.com/gpu=0: unknown"
    objects = cluster(
        node("a"),
        waiting,
        started,
        event(waiting, "Failed", message=message),
        event(started, "Failed", message=message),
    )
    first, second = objects.pods
    assert find_texts(first, "ContainerToolkitFailed", Budget()) == [
        {"case": "CDIDeviceMissing", "words": "unresolvable CDI devices nvidia.com/gpu=0", "place": "event Failed"}
    ]
    assert find_texts(first, "XidError", Budget()) == []
    assert find_texts(second, "ContainerToolkitFailed", Budget()) == []


@pytest.mark.parametrize(
    ("kind", "status", "bad"),
    [
        ("AcceleratedHardwareReady", "False", True),
        ("AcceleratedHardwareReady", "True", False),
        ("GPUMissing", "True", True),
        ("GPUMissing", "False", False),
        ("GpuNvlinkWatch", "True", True),
        ("SysLogsXIDError", "True", True),
        ("GPUUnhealthy", "Unknown", False),
        ("NodeHasNvidiaXidError", "True", True),
        ("NvidiaSmiProblem", "True", True),
        ("InfiniBandDegradationCheck", "True", False),
        ("Ready", "False", False),
        ("NetworkingReady", "False", False),
        ("MemoryPressure", "True", False),
    ],
)
def test_conditions_of_health_checks_are_bad_in_one_status(kind: str, status: str, bad: bool) -> None:
    raw = api_object("Node", "a", status={"conditions": [{"type": kind, "status": status}]})
    assert bool(bad_conditions(cluster(raw).nodes[0])) == bad


def test_patterns_of_conditions_are_valid() -> None:
    for each in TABLE.conditions:
        assert each.keys() == {"agent", "type", "bad"}
        assert each["bad"] in ("True", "False")
        compile_pattern(each["type"])
        assert re.compile(each["type"])
