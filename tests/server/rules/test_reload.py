"""Reload of rules, for every way in which files change, under load."""

import errno
import gc
import os
import re
import signal
import weakref
from base64 import b64decode
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from rules_engine.language.files import find_files
from rules_engine.model.kubernetes.cluster import Cluster
from rules_engine.model.problems.problem import Problems
from rules_engine.rules.evaluation import RuleSet
from rules_engine.rules.rule_set.rule_set import ClusterRequirements
from rules_engine.server.cluster.source import FixedCluster
from rules_engine.server.rules import folder_watch
from rules_engine.server.rules.folder_watch import MAX_ROUNDS, Watcher, files_signature
from rules_engine.server.rules.reload import MAX_REPORT, Reloader, read_stable_rules
from rules_engine.server.rules.sources import MAX_REFUSED, Rules, UnusableError, prepare_rules
from rules_engine.server.serve import _after_adoption
from rules_engine.server.signals import Signals
from rules_engine.server.state import ServedRules
from rules_engine.server.telemetry.observers import OverpromiseWarning
from tests.support.operating import METRICS, Load, Mounted, fetched, metrics_url, rules_report, saying, until
from tests.support.server import PATIENCE_SECONDS, ROOT, Running, encoded, review, started
from tests.support.states import state_of

MIG = "nvidia.com/mig-9g.90gb"

TEST = """\
apiVersion: gpurules.io/v1
kind: RuleTest
metadata: {name: t}
spec:
  cases:
    - name: says so
      pod: {apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: main, image: "a:1"}]}}
      expect: {allowed: false, message: WANTED}
"""


def message(running: Running) -> str:
    """Return the message of the active rules."""
    text: str = running.send("POST", "/validate", encoded(review())).response["status"]["message"]
    return text


def generation(running: Running) -> int:
    number: int = rules_report(running)["generation"]
    return number


def test_a_configmap_swap_under_load_fails_no_request(tmp_path: Path) -> None:
    mounted = Mounted(tmp_path / "rules", {"a.yaml": saying("set 1"), "b.yaml": saying("more").replace("told", "also")})
    with started(tmp_path, "--rules", mounted.folder, *METRICS) as running:
        load = Load(running.port, running.context())
        first = message(running)
        with load.running():
            load.wait_for(first)
            answers = [first]
            for number in range(2, 7):
                mounted.swap({"a.yaml": saying(f"set {number}"), "b.yaml": saying("more").replace("told", "also")})
                answers.append(first.replace("set 1", f"set {number}"))
                load.wait_for(answers[-1])
        assert not load.failures
        # Each response is by one whole set, and no caller gets an older set after a newer one.
        assert set(load.answers) == set(answers)
        for seen in load.kept:
            assert seen == sorted(seen)
        report = rules_report(running)
        assert report["generation"] == 6
        assert report["lastReload"]["successful"] is True
        assert "refused" not in running.logged()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rules")
    (folder / "rules.yaml").write_text(saying("first"))
    return folder


@pytest.fixture(scope="module")
def running(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with started(tmp_path_factory.mktemp("server"), "--rules", files, *METRICS) as server:
        yield server


def test_a_plain_write_takes_effect(running: Running, files: Path) -> None:
    (files / "rules.yaml").write_text(saying("written"))
    until(lambda: "written" in message(running), "the write")


def test_an_editors_rename_takes_effect(running: Running, files: Path) -> None:
    (files / ".rules.yaml.swp").write_text(saying("renamed"))
    (files / ".rules.yaml.swp").rename(files / "rules.yaml")
    until(lambda: "renamed" in message(running), "the rename")


def test_rules_that_change_while_the_server_starts_take_effect(tmp_path: Path) -> None:
    rules, pipe = tmp_path / "a.yaml", tmp_path / "cluster.yaml"
    rules.write_text(saying("old"))
    os.mkfifo(pipe)

    def change() -> None:
        with pipe.open("w") as cluster:  # blocks until the server opens it, after it has read the rules
            rules.write_text(saying("new"))
            cluster.write(
                "apiVersion: gpurules.io/v1\nkind: ClusterInventory\nmetadata: {name: c}\nspec: {nodes: []}\n"
            )

    Thread(target=change, daemon=True).start()
    with started(tmp_path, "--rules", rules, "--cluster", pipe) as running:
        until(lambda: "told-apart: new" in message(running), "the change")


def test_changed_rules_of_every_kind_take_effect_together(tmp_path: Path) -> None:
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "main", "resources": {"limits": {MIG: "1"}}}]}}
    file = tmp_path / "rules.yaml"

    def rules(target: str, cpu: str) -> str:
        return (
            "apiVersion: gpurules.io/v1\nkind: FallbackLadder\nmetadata: {name: falls}\n"
            f"spec: {{rungs: [{{resource: {MIG}}}, {{resource: {target}, assume: true}}]}}\n---\n"
            "apiVersion: gpurules.io/v1\nkind: ResourceInjection\nmetadata: {name: brings}\n"
            f'spec: {{coefficients: {{cpu: "{cpu}"}}}}\n'
        )

    file.write_text(rules("amd.com/gpu", "4"))
    with started(tmp_path, "--rules", file) as running:

        def patch() -> str:
            response = running.send("POST", "/mutate", encoded(review(pod))).response
            return b64decode(response.get("patch", "")).decode()

        assert "amd.com~1gpu" in patch()
        file.write_text(rules("nvidia.com/gpu", "6"))
        until(lambda: "nvidia.com~1gpu" in patch(), "the ladder")
        assert '"6"' in patch()


def test_added_and_removed_files_and_folders_take_effect(running: Running, files: Path) -> None:
    (files / "more").mkdir()
    (files / "more" / "new.yaml").write_text(saying("from below").replace("told-apart", "another"))
    until(lambda: "from below" in message(running), "the new file")
    (files / "more" / "new.yaml").write_text(saying("changed below").replace("told-apart", "another"))
    until(lambda: "changed below" in message(running), "the change in the new folder")
    (files / "more" / "new.yaml").unlink()
    until(lambda: "below" not in message(running), "the removal")


def test_a_broken_set_is_refused_whole_and_logged_with_lines(running: Running, files: Path) -> None:
    (files / "rules.yaml").write_text(saying("good"))
    until(lambda: "good" in message(running), "the good set")
    before = rules_report(running)
    broken = files / "broken.yaml"
    (files / "rules.yaml").write_text(saying("good too"))
    broken.write_text(saying("bad").replace('"false"', "objct.metadata.name == 'x'"))
    until(lambda: (rules_report(running)["lastReload"] or {}).get("refused"), "the refusal")
    report = rules_report(running)
    assert (report["generation"], report["digest"]) == (before["generation"], before["digest"])
    [place, *_] = report["lastReload"]["refused"]
    assert re.fullmatch(rf"{re.escape(str(broken))}:\d+:\d+: error \[cel-undeclared\]", place)
    assert report["lastReload"]["successful"] is False
    # The log has the message and the line; /rules, which anybody may read, has nothing from the file.
    assert place.replace(" [cel-undeclared]", ": ") in running.logged()
    assert "objct.metadata.name == 'x'" in running.logged()
    assert message(running).endswith("good")
    assert running.send("GET", "/readyz").status == 200
    assert fetched(f"{metrics_url(running)}/readyz")[0] == 200
    broken.unlink()
    until(lambda: "good too" in message(running), "the set without the broken file")
    assert rules_report(running)["lastReload"]["successful"] is True


def test_a_folder_without_rules_is_refused(running: Running, files: Path) -> None:
    before = generation(running)
    text = (files / "rules.yaml").read_text()
    (files / "rules.yaml").unlink()
    # None before the first reload.
    until(lambda: (rules_report(running)["lastReload"] or {}).get("successful") is False, "the refusal")
    assert generation(running) == before
    (files / "rules.yaml").write_text(text)
    until(lambda: rules_report(running)["lastReload"]["successful"], "the same rules again")
    # The same text is the same set.
    assert generation(running) == before


def test_sighup_without_changes_has_no_effect(running: Running) -> None:
    before = rules_report(running)
    running.process.send_signal(signal.SIGHUP)
    assert message(running)
    assert rules_report(running) == before


def test_rules_beside_a_document_with_a_syntax_error_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(f"{saying('a')}---\nkind: [\n---\n{saying('b').replace('told', 'also')}")
    with pytest.raises(UnusableError, match="yaml-syntax"):
        prepare_rules([tmp_path])


def test_with_test_on_reload_rules_whose_cases_fail_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "rules"
    folder.mkdir()
    rules, cases = folder / "rules.yaml", folder / "rules.test.yaml"
    rules.write_text(saying("one"))
    cases.write_text(TEST.replace("WANTED", '"told-apart: one"'))
    with started(tmp_path, "--rules", folder, "--test-on-reload", *METRICS) as running:
        rules.write_text(saying("two"))
        until(lambda: rules_report(running)["lastReload"], "the refusal")
        report = rules_report(running)
        assert (report["generation"], report["lastReload"]["successful"]) == (1, False)
        assert report["lastReload"]["refused"] == ["RuleTests failed (exit code 1)"]
        assert "says so" in running.logged()
        assert message(running).endswith("one")
        cases.write_text(TEST.replace("WANTED", '"told-apart: two"'))
        until(lambda: message(running).endswith("two"), "rules that pass their cases")


def test_rule_tests_run_only_with_test_on_reload(running: Running, files: Path) -> None:
    (files / "rules.test.yaml").write_text(TEST.replace("WANTED", "never"))
    (files / "rules.yaml").write_text(saying("as no case wants it"))
    until(lambda: "as no case" in message(running), "the rules")
    (files / "rules.test.yaml").unlink()


def test_the_cases_of_every_path_are_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    one, other = tmp_path / "one", tmp_path / "other"
    for folder in (one, other):
        folder.mkdir()
    (one / "rules.yaml").write_text(saying("one"))
    cases = other / "rules.test.yaml"
    cases.write_text(TEST.replace("spec:", "spec:\n  rules: [../one/rules.yaml]", 1).replace("WANTED", "never"))
    for paths in ([one, other], [other, one]):
        with pytest.raises(UnusableError, match="says so"):
            read_stable_rules(paths, test=True)
    cases.write_text(cases.read_text().replace("never", '"told-apart: one"'))
    assert read_stable_rules([one, other], test=True).tests == 1


def test_rule_tests_that_time_out_have_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rules_engine.server.rules.reload.TEST_SECONDS", 0.001)
    (tmp_path / "rules.yaml").write_text(saying("one"))
    (tmp_path / "rules.test.yaml").write_text(TEST.replace("WANTED", '"told-apart: one"'))
    with pytest.raises(UnusableError, match=r"did not end within 0\.001 seconds"):
        read_stable_rules([tmp_path], test=True)


def test_a_refusal_is_logged_and_counted_once_despite_retries(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rules, state = tmp_path / "rules.yaml", state_of()
    reloader = Reloader([rules], state, test=False)
    for count, broken in enumerate(("kind: nonsense", "kind: others"), 1):
        rules.write_text(broken)
        assert [reloader.reload() for _ in range(3)] == [False] * 3
        assert state.reloads_refused == caplog.text.count("changed rules refused") == count
    rules.write_text(saying("good"))
    assert reloader.reload()
    rules.write_text("kind: others")
    assert not reloader.reload()
    assert state.reloads_refused == caplog.text.count("changed rules refused") == 3


def test_what_is_told_of_changed_rules_is_said_of_them(tmp_path: Path) -> None:
    rules, state = tmp_path / "rules.yaml", state_of()
    reloader = Reloader([rules], state, test=False)
    found = []
    for text in (saying("one"), f"{saying('two')}---\n{saying('more').replace('told-apart', 'other')}"):
        rules.write_text(text)
        assert reloader.reload()
        found.append(state.served)
    first, second = found
    assert [served.generation for served in found] == [2, 3]
    assert [dict(served.rules_by_kind) for served in found] == [{"Validation": 1}, {"Validation": 2}]
    assert first.since < second.since
    assert first.digest != second.digest


def test_rules_are_the_same_wherever_they_are_mounted(tmp_path: Path) -> None:
    digests = []
    for folder, name, text in (("a", "rules", "one"), ("b", "more", "one"), ("c", "rules", "two")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"{name}.yaml").write_text(saying(text))
        digests.append(prepare_rules([tmp_path / folder]).digest)
    assert digests[0] == digests[1] != digests[2]


def test_unchanged_rules_get_their_new_locations_and_no_new_generation(tmp_path: Path) -> None:
    rules, state = tmp_path / "rules.yaml", state_of()
    reloader = Reloader([rules], state, test=False)
    found = []
    for text in (saying("one"), f"# A comment.\n{saying('one')}"):
        rules.write_text(text)
        assert reloader.reload()
        found.append(state.served)
    first, second = found
    assert (first.generation, first.digest, first.since) == (second.generation, second.digest, second.since)
    assert [served.rule_set.rules[0].rule.location.line for served in found] == [3, 4]


def test_rules_that_need_unreadable_collections_are_refused(tmp_path: Path) -> None:
    served_then: list[ServedRules] = []

    class Unreadable(FixedCluster):
        problems = ("pods: forbidden",)

        def need(self, needs: ClusterRequirements) -> bool:
            served_then.append(state.served)
            return False

    rules, before = tmp_path / "rules.yaml", ServedRules(rule_set=RuleSet(), digest="before")
    rules.write_text(saying("one"))
    state = state_of(before)
    state.source = Unreadable(Cluster())
    assert not Reloader([rules], state, test=False).reload()
    assert [state.served, *served_then] == [before, before]
    assert state.last_reload is not None
    expected = "the cluster data that these rules need cannot be read: pods: forbidden"
    assert state.last_reload.refused == (expected,)


def test_the_report_of_a_refusal_is_bounded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rules, state = tmp_path / "rules.yaml", state_of()
    rules.write_text("---\n".join(["kind: nonsense\n"] * 2000))
    assert not Reloader([rules], state, test=False).reload()
    assert state.last_reload is not None
    assert state.last_reload.refused is not None
    assert len(state.last_reload.refused) == MAX_REFUSED
    assert MAX_REPORT < len(caplog.messages[0]) < MAX_REPORT + 100


def test_files_that_change_while_they_are_read_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, texts = tmp_path / "a.yaml", [saying("new")]
    file.write_text(saying("old"))

    def changing(paths: Sequence[Path]) -> Rules:
        rules = prepare_rules(paths)
        if texts:
            file.write_text(texts.pop())
        return rules

    monkeypatch.setattr("rules_engine.server.rules.reload.prepare_rules", changing)
    assert read_stable_rules([file]).digest == prepare_rules([file]).digest
    assert file.read_text() == saying("new")


def test_rules_in_a_pipe_are_refused_without_blocking(tmp_path: Path) -> None:
    pipe, state = tmp_path / "rules.yaml", state_of()
    os.mkfifo(pipe)
    assert not Reloader([pipe], state, test=False).reload()
    assert state.last_reload is not None
    assert state.last_reload.refused == (f"{pipe}:1:1: error [not-a-regular-file]",)


def test_a_check_detects_changes_without_reading(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("a")
    first = files_signature([tmp_path])
    assert files_signature([tmp_path]) == first
    stamp = path.stat().st_mtime_ns
    path.write_text("b")
    os.utime(path, ns=(stamp, stamp + 1))
    assert files_signature([tmp_path]) != first
    assert files_signature([tmp_path / "none.yaml"]) != files_signature([tmp_path / "a.yaml"])


def test_a_check_detects_changes_with_equal_times(tmp_path: Path) -> None:
    """Times stay equal after cp -p, from archives, and on file systems that count in seconds."""
    path, other = tmp_path / "a.yaml", tmp_path / "other"
    path.write_text("a")
    stamp = path.stat().st_mtime_ns
    first = files_signature([path])
    path.write_text("aa")
    os.utime(path, ns=(stamp, stamp))
    second = files_signature([path])
    assert second != first
    other.write_text("bb")
    os.utime(other, ns=(stamp, stamp))
    other.rename(path)
    assert files_signature([path]) not in (first, second)


class Seen:
    """Changes reported by a watcher: each time the contents of all files, joined in order."""

    def __init__(self, *paths: Path) -> None:
        self.texts: list[str] = []
        self._paths = paths
        self.watcher = Watcher(paths, files_signature(paths), self._changed, name="test")

    def _changed(self) -> bool:
        self.texts.append(" ".join(path.read_text() for path in find_files(self._paths, Problems())))
        return True

    def wait_for(self, text: str) -> None:
        until(lambda: self.texts[-1:] == [text], f"the change to {text}")


def test_polling_finds_every_kind_of_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rules_engine.server.rules.folder_watch.POLL_SECONDS", 0.05)
    folder, elsewhere = tmp_path / "folder", tmp_path / "elsewhere"
    for made in (folder, elsewhere, unwatched := tmp_path / "unwatched"):
        made.mkdir()
    (elsewhere / "file").write_text("far")
    (tmp_path / "link.yaml").symlink_to(elsewhere / "file")
    (folder / "a.yaml").write_text("near")
    mounted = Mounted(tmp_path / "mounted", {"c.yaml": "swapped"})
    seen = Seen(folder, tmp_path / "link.yaml", mounted.folder)
    seen.watcher.start()
    try:
        (folder / "a.yaml").write_text("written")
        seen.wait_for("written far swapped")
        (folder / ".a.yaml.swp").write_text("renamed")
        (folder / ".a.yaml.swp").rename(folder / "a.yaml")
        seen.wait_for("renamed far swapped")
        mounted.swap({"c.yaml": "again"})
        seen.wait_for("renamed far again")
        mounted.swap({"c.yaml": "and again"})
        seen.wait_for("renamed far and again")
        (elsewhere / "file").write_text("behind-a-link")
        seen.wait_for("renamed behind-a-link and again")
        (folder / "b.yaml").write_text("new")
        seen.wait_for("renamed new behind-a-link and again")
        (folder / "b.yaml").unlink()
        seen.wait_for("renamed behind-a-link and again")
        (unwatched / "file").write_text("moved-here")
        (unwatched / "file").rename(folder / "a.yaml")
        seen.wait_for("moved-here behind-a-link and again")
    finally:
        seen.watcher.stop()


def test_an_unexpected_error_does_not_end_the_watch(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("a")
    seen: list[str] = []

    def changed() -> bool:
        seen.append(path.read_text())
        if len(seen) == 1:
            raise RuntimeError("ours")
        return True

    watcher = Watcher([path], files_signature([path]), changed, name="test")
    watcher.start()
    path.write_text("bb")
    until(lambda: seen == ["bb"], "the first change")
    path.write_text("ccc")
    until(lambda: seen == ["bb", "ccc"], "the second change")
    watcher.stop()
    assert "unexpected error while a change was processed" in caplog.text


@pytest.fixture
def refusing(tmp_path: Path) -> Iterator[tuple[Watcher, list[bool], Path]]:
    """Watcher whose changes are refused until the list ends with True; each call appends to the list."""
    path = tmp_path / "a.yaml"
    path.write_text("a")
    answers = [False]

    def changed() -> bool:
        answers.append(answers[-1])
        return answers[-1]

    watcher = Watcher([path], files_signature([path]), changed, name="test")
    watcher.start()
    yield watcher, answers, path
    watcher.stop()


def test_refused_changes_are_retried_until_accepted(
    refusing: tuple[Watcher, list[bool], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rules_engine.server.rules.folder_watch.RETRY_SECONDS", 0.05)
    monkeypatch.setattr("rules_engine.server.rules.folder_watch.LONGEST_RETRY_SECONDS", 0.05)
    watcher, answers, path = refusing
    path.write_text("bb")
    until(lambda: len(answers) > 3, "three more tries")
    answers.append(True)
    tries = len(answers)
    until(lambda: len(answers) > tries, "the last try")
    tries = len(answers)
    watcher.check()
    watcher.stop()
    assert len(answers) == tries


@pytest.fixture
def never_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rules_engine.server.rules.folder_watch.RETRY_SECONDS", 100 * PATIENCE_SECONDS)


@pytest.mark.usefixtures("never_by_itself")
def test_a_check_retries_refused_changes_at_once(refusing: tuple[Watcher, list[bool], Path]) -> None:
    watcher, answers, path = refusing
    path.write_text("bb")
    until(lambda: len(answers) == 2, "the refusal")
    watcher.check()
    until(lambda: len(answers) == 3, "another try")


@pytest.fixture
def signals_restored() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
    signal.set_wakeup_fd(-1)


@pytest.mark.usefixtures("never_by_itself", "signals_restored")
def test_sighup_retries_refused_rules(refusing: tuple[Watcher, list[bool], Path]) -> None:
    watcher, answers, path = refusing
    path.write_text("bb")
    until(lambda: len(answers) == 2, "the refusal")
    signals = Signals(on_hangup=[watcher])
    for number in (signal.SIGHUP, signal.SIGTERM):
        signal.raise_signal(number)
    assert signals.wait(PATIENCE_SECONDS) == signal.SIGTERM
    until(lambda: len(answers) == 3, "another try")


def test_a_check_does_not_shorten_the_wait_for_partial_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("a")
    seen: list[str] = []
    pieces = [*("half " * length for length in range(1, MAX_ROUNDS - 1)), "whole"]

    def changed() -> bool:
        seen.append(path.read_text())
        return True

    def write_next(_seconds: float) -> None:
        if pieces:
            path.write_text(pieces.pop(0))
            watcher.check()

    monkeypatch.setattr(folder_watch, "sleep", write_next)
    watcher = Watcher([path], files_signature([path]), changed, name="test")
    watcher.start()
    path.write_text("begun")
    until(lambda: seen, "the change")
    watcher.stop()
    assert seen == ["whole"]


def test_a_failing_file_system_does_not_end_the_watch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("rules_engine.server.rules.folder_watch.POLL_SECONDS", 0.05)
    path = tmp_path / "a.yaml"
    path.write_text("a")
    seen = files_signature([path])
    failing, changes = [True], []

    def stale(*arguments: Any) -> Any:
        if failing:
            raise PermissionError(errno.EACCES, "no")
        return find_files(*arguments)

    def changed() -> bool:
        changes.append(path.read_text())
        return True

    monkeypatch.setattr("rules_engine.server.rules.folder_watch.find_files", stale)
    watcher = Watcher([path], seen, changed, name="test")
    watcher.start()
    path.write_text("bb")
    until(lambda: "unexpected error" in caplog.text, "the failure")
    failing.clear()
    until(lambda: changes, "the change")
    watcher.stop()


def test_former_rules_are_freed_although_the_collector_is_frozen() -> None:
    class Loaded:
        itself: object = None

    old = Loaded()
    old.itself = old
    forgotten = weakref.ref(old)
    gc.freeze()
    try:
        del old
        gc.collect()
        assert forgotten() is not None
        _after_adoption(None, OverpromiseWarning(state_of()))
        assert forgotten() is None
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()
