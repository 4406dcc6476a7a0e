"""The demo: real servers, every scenario, and mismatches."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from rules_engine.simulation.play import play_simulation
from rules_engine.sources.rule_files import DEFAULT_CLUSTER
from server.demo import simulated
from server.demo.run import DemoError, Server, admit_pod, apply_patch, run_demo, running_server, show_load
from server.demo.scenarios import SCENARIOS, Load, Scenario
from server.demo.simulated import PACKAGED, play_load
from tests.support.patching import apply_json, diff

FIRST = SCENARIOS[0].admissions[0]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server("two-workers") as started:
        yield started


def test_an_unexpected_result_is_printed_with_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    wrong = replace(FIRST, given={"cuda": {"nvidia.com/gpu": "2"}})
    assert run_demo([Scenario("wrong on purpose", (FIRST, wrong))]) == 1
    output = capsys.readouterr().out
    assert "WRONG: gpu-test: requests and limits must both be\ngpu: 2\n" in output
    assert "Unexpected results: 1." in output


def test_each_kind_of_unexpected_result_has_its_message(server: Server) -> None:
    def wrong(**members: Any) -> str | None:
        return admit_pod(server, replace(FIRST, **members)).wrong

    assert wrong() is None
    assert wrong(given={"cuda": {"nvidia.com/gpu": "2"}}) == "requests and limits must both be\ngpu: 2"
    assert wrong(fallback=None) == "the annotation must be absent"
    assert wrong(fallback="x->y") == "the annotation must be x->y"
    unreadable = wrong(requested={"cuda": {"nvidia.com/gpu": "many"}})
    assert unreadable is not None
    assert unreadable.startswith("denied: the pod is malformed: /spec/containers/0/resources/")
    half = wrong(requested={"cuda": {"nvidia.com/gpu": "500m"}})
    assert half is not None
    assert half.startswith("denied after the patch: Validation/")


TEN = SCENARIOS[1]


def load() -> Load:
    assert TEN.load is not None
    return TEN.load


def test_the_load_of_a_scenario_has_the_expected_result() -> None:
    result = play_load(TEN, load())
    assert result.wrong == ()
    assert result.running == {"gpu-sim-cluster-worker": 4, "gpu-sim-cluster-worker2": 4}
    assert [pod.name for pod in result.waiting] == ["gpu-test-9", "gpu-test-10"]


@pytest.mark.parametrize(
    ("scenario", "changed", "wrong"),
    [
        (replace(TEN, admissions=TEN.admissions[:9]), {}, "the pods of the Simulation must be those of the scenario"),
        (TEN, {"running": {"a": 8}}, "the running pods by node must be {'a': 8}, not {'gpu-sim-cluster-worker': 4, "),
        (TEN, {"waiting": ("gpu-test-1",)}, "gpu-test-1 must wait: 0/3 nodes are available"),
        (TEN, {"message": "why"}, "gpu-test-9, gpu-test-10 must wait: why; not {'gpu-test-9': '0/3 nodes"),
    ],
)
def test_each_unexpected_result_of_a_load_has_its_message(
    scenario: Scenario, changed: dict[str, Any], wrong: str, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = replace(load(), **changed)
    (found,) = play_load(scenario, expected).wrong
    assert found.startswith(wrong)
    assert show_load(Console(width=400), scenario, expected) == 1
    assert f"WRONG: ten-pods: {wrong}" in capsys.readouterr().out


def test_pods_that_never_run_are_unexpected(tmp_path: Path) -> None:
    text = (PACKAGED / "ten-pods.yaml").read_text().replace("      runFor: 1h\n", "")
    (tmp_path / "ten-pods.yaml").write_text(text.replace("../inventories", str(DEFAULT_CLUSTER.parent)))
    result = play_load(TEN, load(), tmp_path)
    assert len(result.wrong) == 1
    assert result.wrong[0].startswith("all pods must run in the end, but ")
    assert "gpu-test-9 never runs" in result.sentences()


def test_a_load_that_cannot_be_read_ends_the_demo(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"absent\.yaml cannot be simulated: "):
        play_load(TEN, replace(load(), simulation="absent"), tmp_path)
    with pytest.raises(DemoError, match=r"absent\.yaml cannot be simulated: "):
        show_load(Console(), TEN, replace(load(), simulation="absent"))


def test_a_server_that_fails_to_start_is_reported_with_output() -> None:
    with (
        pytest.raises(DemoError, match=r"(?s)did not start:\n.*no-such-inventory\.yaml"),
        running_server("no-such-inventory"),
    ):
        pass


def test_a_server_that_does_not_answer_a_review_is_reported(server: Server) -> None:
    with pytest.raises(DemoError, match="/nowhere answered 404: "):
        server.review("/nowhere", "default", {})
    with running_server("two-workers") as gone:
        pass
    with pytest.raises(DemoError, match="the server did not answer: "):
        gone.review("/mutate", "default", {})


def test_an_error_of_the_demo_is_one_message_and_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_demo([Scenario("nowhere", (replace(FIRST, inventory="no-such-inventory"),))]) == 1
    assert "demo: the server for no-such-inventory did not start:" in capsys.readouterr().err


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab~/", max_size=3), inner, max_size=3),
    max_leaves=12,
)


@given(before=st.dictionaries(st.text("ab~/", max_size=3), JSON, max_size=4), after=st.data())
def test_a_patch_is_applied_as_rfc_6902_says(before: Any, after: st.DataObject) -> None:
    target: Any = after.draw(st.dictionaries(st.text("ab~/", max_size=3), JSON, max_size=4))
    copy = json.loads(json.dumps(before))
    patch = [operation.to_json() for operation in diff(before, target)]
    assert apply_patch(before, patch) == target == apply_json(before, patch)
    assert before == copy


def test_a_patch_inserts_into_lists() -> None:
    document = {"a": [1, 3]}
    assert apply_patch(document, [{"op": "add", "path": "/a/1", "value": 2}]) == {"a": [1, 2, 3]}
    assert apply_patch(document, [{"op": "remove", "path": "/a/0"}]) == {"a": [3]}


def test_an_interrupted_simulation_interrupts_the_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*given: Any) -> Any:
        return replace(play_simulation(*given), interrupted=True)

    monkeypatch.setattr(simulated, "play_simulation", interrupted)
    with pytest.raises(KeyboardInterrupt):
        play_load(TEN, load())
