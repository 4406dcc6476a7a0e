"""The demo: real servers, every scenario, and mismatches."""

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from rules_engine.authoring.rule_files import DEFAULT_CLUSTER
from rules_engine.simulation.play import play
from server.demo import simulated
from server.demo.run import DemoError, Server, admit, patched, run, running, show_load
from server.demo.scenarios import SCENARIOS, Load, Scenario
from server.demo.simulated import PACKAGED, played
from tests.support.patching import apply_json, diff
from tests.support.server import PATIENCE_SECONDS, command, environment


def processes_that_name(text: str) -> list[str]:
    """Return the command lines of running processes that contain `text`."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if text in line:
            found.append(line)
    return found


def test_every_scenario_has_its_result_and_all_servers_stop(tmp_path: Path) -> None:
    done = subprocess.run(
        command("demo"),
        # A setting of the user's own server must not leak into the demo's.
        env=environment(TMPDIR=str(tmp_path), GPU_RULES_RULES="/nowhere", COLUMNS="100"),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=4 * PATIENCE_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    headings = [line[0] for line in lines if re.match(r"\d \w", line)]
    assert headings == ["1", "2", "3", "4", "5", "6", "7"]
    rows = [re.sub(r" [0-9]+\.[0-9]$", " ms", line) for line in lines if re.search(r" [0-9]+\.[0-9]$", line)]
    assert rows == [
        "gpu-test mig-2g.20gb: 1 gpu: 1 2g.20gb->gpu ms",
        *(f"gpu-test-{n} mig-2g.20gb: 1 gpu: 1 2g.20gb->gpu ms" for n in range(1, 11)),
        "gpu-test mig-2g.20gb: 1 mig-1g.10gb: 1 2g.20gb->1g.10gb ms",
        "gpu-test mig-2g.20gb: 1 mig-2g.20gb: 1 - ms",
        "gpu-test mig-1g.10gb: 1 mig-2g.20gb: 1 1g.10gb->2g.20gb ms",
        "train mig-3g.30gb: 1 mig-3g.30gb: 1 - ms",
        "train mig-3g.30gb: 1 mig-2g.20gb: 1 3g.30gb->2g.20gb ms",
        "train mig-3g.30gb: 1 gpu: 1 3g.30gb->gpu ms",
        "two-gpus gpu: 2 gpu: 2 - ms",
        "two-containers train: train: - ms",
        "in-gpu-training gpu: 2 gpu: 2 - ms",
    ]
    for amount in ("cpu: 8", "memory: 16Gi", "cpu: 7", "memory: 14Gi", "cpu: 12", "memory: 24Gi"):
        assert amount in done.stdout
    why = "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient nvidia.com/gpu."
    begin = lines.index("Simulated, as by gpu-rules simulate -f ten-pods.yaml:")
    assert lines[begin + 1 : begin + 8] == [
        "gpu-sim-cluster-worker runs 4 of the pods",
        "gpu-sim-cluster-worker2 runs 4 of the pods",
        f"gpu-test-9 waits: {why}",
        f"gpu-test-10 waits: {why}",
        "gpu-test-9 runs on gpu-sim-cluster-worker2 after 52m, when another pod has ended",
        "gpu-test-10 runs on gpu-sim-cluster-worker2 after 52m, when another pod has ended",
        "",
    ]
    assert lines[-1] == "Every pod has the expected result."
    assert processes_that_name(str(tmp_path)) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_while_a_server_starts_or_ends_leaves_none(
    tmp_path: Path, number: signal.Signals, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    begun: list[int] = []

    class Interrupted(subprocess.Popen[bytes]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            begun.append(self.pid)
            os.kill(os.getpid(), number)

        def send_signal(self, sig: int) -> None:
            super().send_signal(sig)
            os.kill(os.getpid(), number)

    monkeypatch.setattr("subprocess.Popen", Interrupted)
    assert run() == 130
    assert len(begun) == 1
    assert processes_that_name(str(tmp_path)) == []
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr().err == "demo: interrupted; every server is stopped\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupting_the_demo_leaves_nothing_behind(tmp_path: Path, number: int) -> None:
    process = subprocess.Popen(
        command("demo"),
        env=environment(TMPDIR=str(tmp_path), PYTHONUNBUFFERED="1"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        assert any(line.startswith("1  ") for line in process.stdout)
        assert processes_that_name(str(tmp_path))
        # To the whole group, as a terminal does.
        os.killpg(process.pid, number)
        _, errors = process.communicate(timeout=PATIENCE_SECONDS)
        assert (process.returncode, errors) == (130, "demo: interrupted; every server is stopped\n")
        assert processes_that_name(str(tmp_path)) == []
        assert list(tmp_path.iterdir()) == []
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_the_servers_and_restores_the_handler(
    capsys: pytest.CaptureFixture[str], number: int
) -> None:
    before = signal.getsignal(signal.SIGTERM)

    def interrupted() -> Iterator[Scenario]:
        yield SCENARIOS[0]
        signal.raise_signal(number)
        yield SCENARIOS[1]

    assert run(interrupted()) == 130
    output, errors = capsys.readouterr()
    assert errors == "demo: interrupted; every server is stopped\n"
    assert "gpu-test-1 " not in output
    assert signal.getsignal(signal.SIGTERM) == before


FIRST = SCENARIOS[0].admissions[0]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running("two-workers") as started:
        yield started


def test_an_unexpected_result_is_printed_with_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    wrong = replace(FIRST, given={"cuda": {"nvidia.com/gpu": "2"}})
    assert run([Scenario("wrong on purpose", (FIRST, wrong))]) == 1
    output = capsys.readouterr().out
    assert "WRONG: gpu-test: requests and limits must both be\ngpu: 2\n" in output
    assert "Unexpected results: 1." in output


def test_each_kind_of_unexpected_result_has_its_message(server: Server) -> None:
    def wrong(**members: Any) -> str | None:
        return admit(server, replace(FIRST, **members)).wrong

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
    result = played(TEN, load())
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
    (found,) = played(scenario, expected).wrong
    assert found.startswith(wrong)
    assert show_load(Console(width=400), scenario, expected) == 1
    assert f"WRONG: ten-pods: {wrong}" in capsys.readouterr().out


def test_pods_that_never_run_are_unexpected(tmp_path: Path) -> None:
    text = (PACKAGED / "ten-pods.yaml").read_text().replace("      runFor: 1h\n", "")
    (tmp_path / "ten-pods.yaml").write_text(text.replace("../inventories", str(DEFAULT_CLUSTER.parent)))
    result = played(TEN, load(), tmp_path)
    assert len(result.wrong) == 1
    assert result.wrong[0].startswith("all pods must run in the end, but ")
    assert "gpu-test-9 never runs" in result.sentences()


def test_a_load_that_cannot_be_read_ends_the_demo(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"absent\.yaml cannot be simulated: "):
        played(TEN, replace(load(), simulation="absent"), tmp_path)
    with pytest.raises(DemoError, match=r"absent\.yaml cannot be simulated: "):
        show_load(Console(), TEN, replace(load(), simulation="absent"))


def test_a_server_that_fails_to_start_is_reported_with_output() -> None:
    with pytest.raises(DemoError, match=r"(?s)did not start:\n.*no-such-inventory\.yaml"), running("no-such-inventory"):
        pass


def test_a_server_that_does_not_answer_a_review_is_reported(server: Server) -> None:
    with pytest.raises(DemoError, match="/nowhere answered 404: "):
        server.review("/nowhere", "default", {})
    with running("two-workers") as gone:
        pass
    with pytest.raises(DemoError, match="the server did not answer: "):
        gone.ready()


def test_an_error_of_the_demo_is_one_message_and_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([Scenario("nowhere", (replace(FIRST, inventory="no-such-inventory"),))]) == 1
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
    assert patched(before, patch) == target == apply_json(before, patch)
    assert before == copy


def test_a_patch_inserts_into_lists_and_may_be_impossible() -> None:
    document = {"a": [1, 3]}
    assert patched(document, [{"op": "add", "path": "/a/1", "value": 2}]) == {"a": [1, 2, 3]}
    assert patched(document, [{"op": "remove", "path": "/a/0"}]) == {"a": [3]}
    with pytest.raises(KeyError):
        patched(document, [{"op": "add", "path": "/b/c", "value": 1}])
    with pytest.raises(KeyError):
        patched(document, [{"op": "replace", "path": "/b", "value": 1}])
    with pytest.raises(ValueError, match="unknown operation: move"):
        patched(document, [{"op": "move", "path": "/a", "from": "/b"}])


def test_an_interrupted_simulation_interrupts_the_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*given: Any) -> Any:
        return replace(play(*given), interrupted=True)

    monkeypatch.setattr(simulated, "play", interrupted)
    with pytest.raises(KeyboardInterrupt):
        played(TEN, load())
