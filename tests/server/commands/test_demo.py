"""The demo: its tests, unexpected results, denials, and patches."""

from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules_engine.authoring.test.rule_tests import run_tests
from rules_engine.model.json.edits import apply_edits
from rules_engine.model.rules.admission import pod_request
from rules_engine.rules.sources.rule_files import DEFAULT_CLUSTER
from rules_engine.server.commands.scenarios import SCENARIOS, read_patch, run_demo, running_server
from tests.support.patching import apply_json, diff


def test_the_tests_pass_without_a_server_too() -> None:
    run = run_tests([SCENARIOS])
    assert run.answer.succeeded
    assert len(run.answer.cases) == 20


def test_unexpected_results_are_printed_and_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "wrong.test.yaml"
    first = SCENARIOS.read_text().partition("\n---\n")[0]
    file.write_text(first.replace("nvidia.com/gpu: 1", "nvidia.com/gpu: 2").replace("2g.20gb->gpu", "x"))
    assert run_demo(file) == 1
    output = capsys.readouterr().out
    for member in ("requests", "limits"):
        assert f"WRONG: gpu-test: {member}.cuda.nvidia.com/gpu: expected 2, actual 1\n" in output
    assert "WRONG: gpu-test: annotations.gpu-webhook.k8s.io/fallback: expected 'x', actual '2g.20gb->gpu'" in output
    assert "Unexpected results: 1." in output


def test_a_simulation_of_a_tests_name_is_shown_below_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    simulation = SCENARIOS.with_name("ten-pods.yaml").read_text()
    (tmp_path / "ten-pods.yaml").write_text(simulation.replace("../inventories", str(DEFAULT_CLUSTER.parent)))
    file = tmp_path / "demo.test.yaml"
    file.write_text(SCENARIOS.read_text().split("\n---\n")[1])
    assert run_demo(file) == 0
    output = capsys.readouterr().out
    assert "with the packaged set gpu-allocation.\n" in output
    command = "gpu-rules simulate -f ten-pods.yaml --rules set:gpu-allocation"
    assert f"Simulated, as by {command}:\n  gpu-sim-cluster-worker runs 4 of the pods\n" in output
    assert "gpu-test-10 runs on gpu-sim-cluster-worker2 after 52m, when another pod has ended\n" in output
    assert "Every pod has the expected result." in output


@pytest.mark.parametrize(
    ("path", "amount", "message"),
    [("/mutate", "many", "the pod is malformed: /spec/containers/0/resources/"), ("/validate", "500m", "Validation/")],
)
def test_a_denial_has_its_message(path: str, amount: str, message: str) -> None:
    container: Any = {"name": "cuda", "resources": {"limits": {"nvidia.com/gpu": amount}}}
    with running_server("two-workers") as server:
        decision = server.review(path, pod_request({"spec": {"containers": [container]}}, namespace="default"))
    assert not decision.allowed
    assert decision.status is not None
    assert decision.status.message.startswith(message)


def test_a_server_that_fails_to_start_is_reported_with_output() -> None:
    with (
        pytest.raises(click.ClickException, match=r"(?s)did not start:\n.*no-such-inventory\.yaml"),
        running_server("no-such-inventory"),
    ):
        pass


OBJECTS = st.recursive(
    st.dictionaries(st.text("ab~/", max_size=3), st.text(max_size=4), max_size=3),
    lambda inner: st.dictionaries(st.text("ab~/", max_size=3), inner | st.text(max_size=4), max_size=3),
    max_leaves=12,
)


@given(before=st.tuples(OBJECTS, OBJECTS), after=st.tuples(OBJECTS, OBJECTS))
def test_the_edits_of_a_patch_have_its_effect(before: Any, after: Any) -> None:
    pod: Any = {"spec": {"containers": [*before]}}
    target: Any = {"spec": {"containers": [*after]}}
    patch = [operation.to_json() for operation in diff(pod, target)]
    assert apply_edits(pod, read_patch(patch)) == apply_json(pod, patch) == target
