"""Rules that are kept in a ConfigMap, over real HTTP."""

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping
from gzip import compress, decompress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from rules_engine.model.kubernetes.cluster import Cluster
from rules_engine.server.cluster.connection import ApiError, Connection, as_kubectl
from rules_engine.server.http.probes import readiness_page
from rules_engine.server.rules.kept_rules import CURRENT_SECONDS, MAX_BYTES, MAX_TEXT_BYTES, KeptRules
from rules_engine.server.rules.sources import UnusableError, prepare_rules
from rules_engine.server.state import Reload, ServerState
from tests.support.apiserver import ApiServer, Status
from tests.support.cluster import Clock
from tests.support.failed_starts import failed_start
from tests.support.operating import METRICS, fetched, metrics_url, rules_report, saying, until
from tests.support.server import encoded, review, started
from tests.support.states import state_of

PATH = "/api/v1/namespaces/gpu/configmaps/kept"
DELAY_SECONDS = 120
"""The longest time after which the kubelet has updated a volume."""


def put(api: ApiServer, values: Mapping[str, bytes] | None = None) -> None:
    metadata = {"name": "kept", "namespace": "gpu", "resourceVersion": str(api.version), "labels": {"a": "b"}}
    api.single[PATH] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    if values is not None:
        api.single[PATH]["binaryData"] = {name: b64encode(value).decode() for name, value in values.items()}


def stored(api: ApiServer) -> list[str]:
    """Return the digests below which rules are stored."""
    return [*api.single[PATH].get("binaryData", {})]


class Replica:
    """A replica that has the files of a folder mounted."""

    def __init__(self, api: ApiServer, folder: Path, clock: Clock, rules: str = "") -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        connection = Connection(as_kubectl(file=str(api.kubeconfig(folder.parent))))
        self.kept = KeptRules(connection, "gpu", "kept", clock)
        self.state = state_of(cluster=Cluster())
        if rules:
            self.mount({"rules.yaml": rules})

    def mount(self, files: Mapping[str, str]) -> None:
        for name, text in files.items():
            (self.folder / name).write_text(text)
        self.state.served = prepare_rules([self.folder])

    @property
    def digest(self) -> str:
        return self.state.served.digest

    def keep(self) -> None:
        self.kept.keep(self.state)

    @property
    def warnings(self) -> Any:
        status, report = readiness_page(self.state)
        assert status == 200
        return report.get("warnings", [])


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def replica(api: ApiServer, tmp_path: Path, clock: Clock) -> Replica:
    put(api)
    return Replica(api, tmp_path / "rules", clock, saying("first"))


def test_the_texts_of_active_rules_are_kept(api: ApiServer, replica: Replica) -> None:
    rule = {"apiVersion": "gpurules.io/v1", "kind": "Validation", "metadata": {"name": "x"}}
    text = json.dumps({**rule, "spec": {"validations": [{"expression": "false"}]}}, indent="\t")
    replica.mount({"b.json": text, "c.yaml": "apiVersion: v1\nkind: ConfigMap\n"})
    replica.keep()

    (packed,) = api.single[PATH]["binaryData"].values()
    names = [str(replica.folder / name) for name in ("rules.yaml", "b.json")]
    assert json.loads(decompress(b64decode(packed))) == dict(zip(names, (saying("first"), text), strict=True))
    assert api.single[PATH]["metadata"]["labels"] == {"a": "b"}
    loaded = replica.kept.load()
    assert (loaded.digest, loaded.texts) == (replica.digest, replica.state.served.texts)


def test_rules_are_written_once(api: ApiServer, replica: Replica) -> None:
    replica.keep()
    version = api.version
    replica.keep()
    assert (api.version, stored(api)) == (version, [replica.digest])


def test_newer_rules_replace_the_ones_that_were_active_before(replica: Replica, api: ApiServer) -> None:
    for message in ("first", "second", "third"):
        replica.mount({"rules.yaml": saying(message)})
        replica.keep()
        assert stored(api) == [replica.digest]


def test_a_replica_with_an_old_volume_does_not_replace_newer_rules(
    api: ApiServer, replica: Replica, tmp_path: Path, clock: Clock
) -> None:
    running = Replica(api, tmp_path / "running", clock, saying("first"))
    running.keep()
    clock.now += CURRENT_SECONDS
    replica.keep()
    replica.mount({"rules.yaml": saying("second")})
    replica.keep()
    begun = Replica(api, tmp_path / "begun", clock, saying("first"))

    for old in (running, begun):
        old.keep()
        assert stored(api) == [replica.digest]
    clock.now += DELAY_SECONDS
    for old in (running, begun):
        old.keep()
        old.mount({"rules.yaml": saying("second")})
        old.keep()
    assert stored(api) == [replica.digest]


def test_rules_that_changed_while_no_replica_ran_are_kept_once_they_are_current(
    api: ApiServer, replica: Replica, tmp_path: Path, clock: Clock
) -> None:
    replica.keep()
    other = Replica(api, tmp_path / "other", clock, saying("second"))
    other.keep()
    clock.now += CURRENT_SECONDS - 1
    other.keep()
    assert stored(api) == [replica.digest]
    clock.now += 1
    other.keep()
    assert stored(api) == [other.digest]


@pytest.mark.parametrize("seed", [2, 4, 7])
def test_kept_rules_are_never_replaced_by_older_ones(
    api: ApiServer, replica: Replica, tmp_path: Path, clock: Clock, seed: int
) -> None:
    """Replicas restart at any time, with any volume that the kubelet may give them."""
    random = Random(seed)
    versions = {replica.digest: 0}
    current: list[tuple[float, str]] = [(clock.now, saying("0"))]
    replicas = [Replica(api, tmp_path / f"{number}", clock, saying("0")) for number in range(3)]
    mounted = [0, 0, 0]
    versions = {replicas[0].digest: 0}
    last = 0
    for step in range(60):
        clock.now += random.choice([1, 20, 110, 400])
        if random.random() < 0.4:
            current.append((clock.now, saying(str(len(current)))))
        # A volume has at least the version that was current when the kubelet last had to have updated it.
        oldest = max(number for number, (at, _) in enumerate(current) if at <= clock.now - DELAY_SECONDS or not number)
        for number in range(3):
            begins = random.random() < 0.1
            version = random.randint(oldest if begins else max(oldest, mounted[number]), len(current) - 1)
            if begins:
                replicas[number] = Replica(api, tmp_path / f"{number}-{step}", clock)
            if begins or version != mounted[number]:
                replicas[number].mount({"rules.yaml": current[version][1]})
                mounted[number] = version
                versions[replicas[number].digest] = version
        for each in random.sample(replicas, random.randint(0, 3)):
            each.keep()
            (digest,) = stored(api)
            assert versions[digest] >= last
            last = versions[digest]
    clock.now += CURRENT_SECONDS
    for number in range(3):
        replicas[number].mount({"rules.yaml": current[-1][1]})
    replicas[0].keep()
    clock.now += CURRENT_SECONDS
    replicas[0].keep()
    assert stored(api) == [replicas[0].digest]


def test_an_emptied_config_map_is_written_again(api: ApiServer, replica: Replica) -> None:
    replica.keep()
    put(api)
    replica.keep()
    assert stored(api) == [replica.digest]


def test_a_failure_is_a_warning_until_the_rules_are_kept(api: ApiServer, replica: Replica) -> None:
    api.fail(PATH, Status(403, "no"), Status(409), Status(500, "later"))
    task = replica.kept.follow(replica.state)
    task.start()
    until(lambda: replica.warnings, "the warning")
    assert "the rules cannot be kept in ConfigMap gpu/kept for the next start: 403: no" in replica.warnings
    task.wake()  # a conflict, which is no problem, then another failure
    until(lambda: "500: later" in str(replica.warnings), "the other warning")
    task.wake()
    until(lambda: not replica.warnings, "the end of the warning")
    assert stored(api) == [replica.digest]
    task.stop()


def test_rules_that_do_not_fit_are_not_kept(api: ApiServer, replica: Replica) -> None:
    replica.keep()
    before = stored(api)
    noise = "".join(f"# {Random(number).getrandbits(400):x}\n" for number in range(30_000))
    replica.mount({"rules.yaml": noise + saying("second")})
    with pytest.raises(ApiError, match=re.escape(f"bytes, compressed, are more than {MAX_BYTES:,}")):
        replica.keep()
    assert stored(api) == before


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        (None, "no rules are kept in ConfigMap gpu/kept yet"),
        ({"a": b"no gzip"}, "no rules can be read from ConfigMap gpu/kept: Error -3"),
        ({"a": compress(b"no JSON")}, "no rules can be read from ConfigMap gpu/kept"),
        ({"a": compress(b" " * (MAX_TEXT_BYTES + 10) + b"{}")}, "no rules can be read from ConfigMap gpu/kept"),
        ({"a": compress(b"{}")}, "no rules in ConfigMap gpu/kept"),
        ({"a": compress(json.dumps({"a.yaml": "kind: Validation"}).encode())}, "a.yaml:1:1: error"),
    ],
)
def test_unusable_kept_rules_are_one_problem(
    api: ApiServer, replica: Replica, values: Mapping[str, bytes] | None, problem: str
) -> None:
    put(api, values)
    with pytest.raises(UnusableError) as caught:
        replica.kept.load()
    assert problem in caught.value.diagnostics


def test_refused_files_are_a_warning_of_readiness(replica: Replica) -> None:
    state: ServerState = replica.state
    since = state.served.since
    state.last_reload = Reload(at=since, refused=("a.yaml:1:1: error [yaml-syntax]",))
    (warning,) = replica.warnings
    assert warning.startswith("rule files refused at ")
    assert warning.endswith("Z: a.yaml:1:1: error [yaml-syntax]")
    state.last_reload = Reload(at=since, refused=("a.yaml:1:1: error [yaml-syntax]", "b", "c"))
    assert replica.warnings[0].endswith("[yaml-syntax] and 2 more")
    state.last_reload = Reload(at=since, digest="d")
    assert replica.warnings == []


def test_a_start_with_broken_files_serves_the_kept_rules(tmp_path: Path, api: ApiServer) -> None:
    put(api)
    rules = tmp_path / "rules.yaml"
    rules.write_text(saying("good"))
    line = ("--rules", rules, "--keep-rules", "gpu/kept", *METRICS)
    variables = {"KUBECONFIG": str(api.kubeconfig(tmp_path))}
    with started(tmp_path, *line, **variables) as running:
        digest = rules_report(running)["digest"]
        api.wait_for(lambda: stored(api) == [digest])
        assert "gpu_rules_rules_kept 0.0" in fetched(f"{metrics_url(running)}/metrics")[1]
    rules.write_text(saying("broken").replace('"false"', '"objct"'))
    with started(tmp_path, *line, "--mode", "Audit", "--namespaces", "ml", **variables) as running:
        report = rules_report(running)
        assert (report["mode"], report["namespaces"]) == ("Audit", ["ml"])
        kept = {"validation.told-apart": "deny: good"}
        for namespace, annotations in ("ml", kept), ("other", None):
            response = running.send("POST", "/validate", encoded(review(namespace=namespace))).response
            assert (response["allowed"], response.get("auditAnnotations")) == (True, annotations)
        assert (report["digest"], report["lastReload"]["successful"]) == (digest, False)
        status, body = fetched(f"{metrics_url(running)}/readyz")
        (warning,) = json.loads(body)["warnings"]
        assert (status, f"; the rules kept before the start are active: {rules}:4:" in warning) == (200, True)
        metrics = fetched(f"{metrics_url(running)}/metrics")[1]
        assert "gpu_rules_rules_kept 1.0" in metrics
        assert "gpu_rules_rules_last_reload_successful 0.0" in metrics
        assert f"1 Validation from kept rules in place of {rules}" in running.logged()
        assert "undeclared reference to 'objct'" in running.logged()
        rules.write_text(saying("mended"))
        until(lambda: rules_report(running)["generation"] == 2, "the mended rules")
        assert "warnings" not in json.loads(fetched(f"{metrics_url(running)}/readyz")[1])
        assert "gpu_rules_rules_kept 0.0" in fetched(f"{metrics_url(running)}/metrics")[1]


def test_a_start_without_any_rules_names_both_problems(tmp_path: Path, api: ApiServer) -> None:
    api.forbidden.add(PATH)
    rules = tmp_path / "rules.yaml"
    rules.write_text("kind: Validation\n")
    shown = failed_start("--rules", rules, "--keep-rules", "gpu/kept", KUBECONFIG=str(api.kubeconfig(tmp_path)))
    assert f"{rules}:1:1: error" in shown
    assert "no rules can be read from ConfigMap gpu/kept: 403" in shown
