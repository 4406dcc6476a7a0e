"""The real server over HTTPS, on a live cluster of a test API server."""

import json
import re
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, BrokenBarrierError
from typing import Any, cast

import pytest
from cryptography.x509.oid import ExtendedKeyUsageOID

from rules_engine.model.kubernetes.kept_fields import RESERVATION
from rules_engine.rules.ladder.value import FALLBACK_ANNOTATION
from rules_engine.server.http.probes import OVERPROMISES
from tests.support.apiserver import PATIENCE_SECONDS, ApiServer, Silence, bound, namespace, node
from tests.support.authoring import ladder
from tests.support.certificates import certified
from tests.support.loading import rule
from tests.support.operating import METRICS, fetched, metrics_url, until
from tests.support.patching import apply_as_api_server, apply_rfc_6902, operations
from tests.support.server import Running, encoded, review, started

MIG, GPU = "nvidia.com/mig-2g.20gb", "nvidia.com/gpu"


@pytest.fixture
def api(api: ApiServer) -> ApiServer:
    api.put("nodes", node("one", {MIG: 2}))
    api.put("namespaces", namespace("ml", team="ml"))
    return api


def rules(folder: Path, offered: str) -> Path:
    file = folder / "rules.yaml"
    match = "{namespaceSelector: {matchLabels: {team: ml}}}"
    file.write_text(ladder("mig", MIG, f"{{resource: {GPU}, assume: true}}", offered=offered, match=match))
    return file


def ready(running: Running) -> dict[str, Any]:
    answer = running.send("GET", "/readyz")
    return {**answer.body, "status": answer.status}


def eventually(running: Running, **wanted: Any) -> dict[str, Any]:
    """Wait until `/readyz` has these members."""
    end = time.monotonic() + PATIENCE_SECONDS
    while True:
        report = ready(running)
        if all(report.get(key) == value for key, value in wanted.items()):
            return report
        assert time.monotonic() < end, report


def unbound(number: int) -> dict[str, Any]:
    return bound(f"p{number}", "", {MIG: 1})


def ask(running: Running, path: str, number: int, **request: Any) -> dict[str, Any]:
    return running.send("POST", path, encoded(review(unbound(number), **request))).response


def test_successive_pods_get_the_remaining_devices(api: ApiServer, tmp_path: Path) -> None:
    config = api.kubeconfig(tmp_path)
    file = rules(tmp_path, "Available")
    variables = {"KUBECONFIG": str(config), "GPU_RULES_RESERVE_FOR": "all"}
    with started(tmp_path, "--rules", file, "--cluster", "kubeconfig", **variables) as running:
        assert "warnings" not in eventually(running, status=200, cluster="synced")
        ask(running, "/validate", 100, dryRun=True)
        assert fallbacks(running) == [False, False, True, True]
    assert OVERPROMISES not in running.logged()


def mutated(running: Running, made: dict[str, Any], **request: Any) -> dict[str, Any]:
    """Return a pod after a call of /mutate."""
    answer = running.send("POST", "/mutate", encoded(review(made, **request)))
    if "patch" not in answer.response:
        return made
    sent = json.loads(json.dumps(made))  # the builder shares parts
    changed = apply_as_api_server(sent, operations(answer.patch))
    assert apply_rfc_6902(sent, answer.patch) == changed
    return cast(dict[str, Any], changed)


def fallbacks(running: Running) -> list[bool]:
    """Admit four pods in a row with room for two; return which of them fall back."""
    found = []
    for number in range(4):
        made = mutated(running, unbound(number))
        found.append(GPU in made["spec"]["containers"][0]["resources"]["limits"])
        assert running.send("POST", "/validate", encoded(review(made))).response["allowed"]
    return found


POOLS = ladder(
    "cards",
    *(f"{{resource: {GPU}, name: {card}, pool: {{card: {card.lower()}}}}}" for card in ("H100", "A100", "L40S")),
    offered="Available",
)


@pytest.mark.parametrize("changed", [False, True])
def test_60_pods_at_once_fill_one_pool_after_the_other(api: ApiServer, tmp_path: Path, changed: bool) -> None:
    """Every pod is decided before any is known to be admitted; `changed` ones twice, after another webhook."""
    for number, card in enumerate(["h100"] * 5 + ["a100"] * 5 + ["l40s"] * 5):
        api.put("nodes", node(f"{card}-{number}", {GPU: 4}, labels={"card": card}))
    file = tmp_path / "rules.yaml"
    file.write_text(POOLS)
    decided = Barrier(60)

    def admit(number: int) -> str:
        try:
            return decide(number)
        except BaseException:
            decided.abort()
            raise

    def decide(number: int) -> str:
        made = bound(f"p{number}", "", {GPU: 1}, spec={"nodeSelector": {"card": "h100"}})
        named = made["metadata"]
        made["metadata"] = {"generateName": "p"}
        made = mutated(running, made, uid=f"first-{number}")
        if changed:
            made["spec"]["containers"].append({"name": "proxy", "image": "proxy:1"})
            assert "patch" not in running.send("POST", "/mutate", encoded(review(made, uid=f"again-{number}"))).response
        decided.wait(PATIENCE_SECONDS)
        made["metadata"] |= named
        assert running.send("POST", "/validate", encoded(review(made))).response["allowed"]
        card: str = made["spec"]["nodeSelector"]["card"]
        return card

    arguments = ("--rules", file, "--cluster", "kubeconfig", "--reserve-for", "all", *METRICS)
    with (
        started(tmp_path, *arguments, KUBECONFIG=str(api.kubeconfig(tmp_path))) as running,
        ThreadPoolExecutor(60) as callers,
    ):
        eventually(running, status=200, cluster="synced")
        calls = [callers.submit(admit, number) for number in range(60)]
        failures = [failure for each in calls if (failure := each.exception()) is not None]
        assert [each for each in failures if not isinstance(each, BrokenBarrierError)] == []
        assert Counter(each.result() for each in calls) == {"h100": 20, "a100": 20, "l40s": 20}
        assert "gpu_rules_cluster_reservations 60.0\n" in fetched(f"{metrics_url(running)}/metrics")[1]


def test_different_pods_of_one_generated_name_get_the_remaining_devices(api: ApiServer, tmp_path: Path) -> None:
    """Regression test: one of them was taken for another one that is sent again, whose devices counted as free."""
    arguments = ("--rules", rules(tmp_path, "Available"), "--cluster", "kubeconfig", "--reserve-for", "all")
    with started(tmp_path, *arguments, KUBECONFIG=str(api.kubeconfig(tmp_path))) as running:
        eventually(running, status=200, cluster="synced")
        found = []
        for number in range(4):
            made = unbound(number)
            made["metadata"] = {"generateName": "p-", "labels": {"number": str(number)}}
            found.append(GPU in mutated(running, made)["spec"]["containers"][0]["resources"]["limits"])
        assert found == [False, False, True, True]


def test_only_the_server_writes_the_id_of_a_reservation(api: ApiServer, tmp_path: Path) -> None:
    api.put("nodes", node("two", {GPU: 8}))
    log = tmp_path / "decisions"
    arguments = ("--rules", rules(tmp_path, "Available"), "--cluster", "kubeconfig", "--reserve-for", "all")
    more = ("--decision-log", log, "--decision-log-requests")
    with started(tmp_path, *arguments, *more, KUBECONFIG=str(api.kubeconfig(tmp_path))) as running:
        eventually(running, status=200, cluster="synced")

        def written(given: dict[str, str] | None = None, **request: Any) -> dict[str, str]:
            made = unbound(0)
            if given is not None:
                made["metadata"]["annotations"] = given
            return cast(dict[str, str], mutated(running, made, **request)["metadata"].get("annotations", {}))

        assert written(dryRun=True) == {}
        first = written()
        assert [*first] == [RESERVATION]
        assert written(first) == first, "the same pod again"
        assert written({**first, "a/b": "c"}, dryRun=True) == {**first, "a/b": "c"}
        others = [written({**first, "a/b": "c"}, userInfo={"username": "mallory"}), written({RESERVATION: "forged"})]
        assert [{**each, RESERVATION: ""} for each in others] == [
            {"a/b": "c", RESERVATION: ""},
            {FALLBACK_ANNOTATION: "2g.20gb->gpu", RESERVATION: ""},
        ]
        assert len({each[RESERVATION] for each in (first, *others)} | {"forged"}) == 4
        until(lambda: log.read_text().count('"endpoint":"mutate"') == 6, "the decisions")
    assert not any(each[RESERVATION] in log.read_text() for each in (first, *others))


@pytest.mark.parametrize("named", [True, False])
def test_a_pod_that_another_webhook_changed_is_decided_as_before(api: ApiServer, tmp_path: Path, named: bool) -> None:
    for card in ("h100", "a100", "l40s"):
        api.put("nodes", node(card, {GPU: 1}, labels={"card": card}))
    file = tmp_path / "rules.yaml"
    file.write_text(POOLS)
    arguments = ("--rules", file, "--cluster", "kubeconfig", "--reserve-for", "all")
    with started(tmp_path, *arguments, KUBECONFIG=str(api.kubeconfig(tmp_path))) as running:
        eventually(running, status=200, cluster="synced")
        for card in ("h100", "a100", "l40s"):
            made = bound("p", "", {GPU: 1}, spec={"nodeSelector": {"card": "h100"}})
            made["metadata"] = {"name": f"p-{card}"} if named else {"generateName": "p-"}
            made = mutated(running, made)
            assert made["spec"]["nodeSelector"] == {"card": card}
            made["spec"]["containers"].append({"name": "proxy", "image": "proxy:1"})
            assert "patch" not in running.send("POST", "/mutate", encoded(review(made))).response
            made["metadata"] |= {"name": f"p-{card}", "uid": card}
            running.send("POST", "/validate", encoded(review(made)))


def test_callers_without_a_certificate_reserve_nothing(api: ApiServer, tmp_path: Path) -> None:
    config = api.kubeconfig(tmp_path)
    file = rules(tmp_path, "Allocatable")
    arguments = ("--rules", file, "--cluster", "kubeconfig", "--events", *METRICS)
    with started(tmp_path, *arguments, KUBECONFIG=str(config)) as running:
        metrics = f"{metrics_url(running)}/metrics"
        assert "warnings" not in eventually(running, status=200, cluster="synced")
        assert "gpu_rules_cluster_overpromises 0.0\n" in fetched(metrics)[1]
        assert "no Kubernetes Events are sent: set --client-ca, or --reserve-for all" in running.logged()
        assert OVERPROMISES not in running.logged()
        rules(tmp_path, "Available")
        assert eventually(running, status=200, warnings=[OVERPROMISES])
        assert "gpu_rules_cluster_overpromises 1.0\n" in fetched(metrics)[1]
        assert fallbacks(running) == [False] * 4
        assert "gpu_rules_cluster_reservations 0.0\n" in fetched(metrics)[1]
        until(lambda: OVERPROMISES in running.logged(), "the warning")
    assert api.events == []


def test_callers_with_a_client_certificate_reserve_devices(api: ApiServer, tmp_path: Path) -> None:
    config = api.kubeconfig(tmp_path)
    file = rules(tmp_path, "Available")
    authority = certified("callers", ca=True)
    ca, _ = authority.write(tmp_path / "callers")
    client = certified("apiserver", authority, usage=ExtendedKeyUsageOID.CLIENT_AUTH).write(tmp_path / "callers")
    arguments = ("--rules", file, "--cluster", "kubeconfig", "--client-ca", ca)
    with started(tmp_path, *arguments, KUBECONFIG=str(config)) as running:
        running.client = client
        assert "warnings" not in eventually(running, status=200, cluster="synced")
        assert fallbacks(running) == [False, False, True, True]
    assert OVERPROMISES not in running.logged()


def test_a_server_stays_ready_when_a_class_comes_whose_slices_it_cannot_read(api: ApiServer, tmp_path: Path) -> None:
    config = api.kubeconfig(tmp_path)
    file = rules(tmp_path, "Allocatable")
    with started(tmp_path, "--rules", file, "--cluster", "kubeconfig", KUBECONFIG=str(config)) as running:
        assert "warnings" not in eventually(running, status=200, cluster="synced")
        api.forbidden = {"resourceslices"}
        api.put("deviceclasses", {"metadata": {"name": "gpus"}, "spec": {"extendedResourceName": "nvidia.com/gpu"}})
        api.wait_for(lambda: api.lists("resourceslices"))
        report = ready(running)
        assert (report["status"], report["cluster"]) == (200, "synced")
        until(lambda: "resourceslices is forbidden" in str(ready(running)["warnings"]), "the warning")
        assert "patch" not in ask(running, "/mutate", 0)


def test_a_request_stays_if_the_server_may_not_read_classes(api: ApiServer, tmp_path: Path) -> None:
    """Regression test: drivers counted as offering nothing, and requests that they serve fell back."""
    api.forbidden = {"deviceclasses"}
    api.put("nodes", node("one", {GPU: 2}))
    file = rules(tmp_path, "Allocatable")
    with started(
        tmp_path, "--rules", file, "--cluster", "kubeconfig", KUBECONFIG=str(api.kubeconfig(tmp_path))
    ) as running:
        assert "deviceclasses is forbidden" in str(eventually(running, status=200, cluster="synced")["warnings"])
        answer = ask(running, "/mutate", 0)
        assert "patch" not in answer
        assert answer["warnings"] == [
            f"FallbackLadder/mig left the pod as it is: it is not known what drivers offer of {MIG}"
        ]


def test_a_default_class_counts_as_not_set_once_the_server_may_read_classes(api: ApiServer, tmp_path: Path) -> None:
    api.forbidden = {"priorityclasses"}
    api.put("priorityclasses", {"metadata": {"name": "normal"}, "value": 1, "globalDefault": True})
    file = tmp_path / "rules.yaml"
    file.write_text(rule("PodDefaults", "{pod: {spec: {priorityClassName: gpu}}}"))
    made = unbound(1)
    made["spec"]["priorityClassName"] = "normal"
    config = api.kubeconfig(tmp_path)
    with started(tmp_path, "--rules", file, "--cluster", "kubeconfig", KUBECONFIG=str(config)) as running:
        assert "priorityclasses is forbidden" in str(eventually(running, status=200, cluster="synced")["warnings"])
        assert mutated(running, made) == made
        api.forbidden = set()
        until(lambda: mutated(running, made)["spec"]["priorityClassName"] == "gpu", "the class")
        assert "warnings" not in ready(running)


def test_a_server_without_cluster_starts_unready_and_recovers(api: ApiServer, tmp_path: Path) -> None:
    config = api.kubeconfig(tmp_path)
    api.stop()
    file = rules(tmp_path, "Allocatable")
    with started(tmp_path, "--rules", file, "--cluster", "kubeconfig", KUBECONFIG=str(config)) as running:
        # The message names namespaces if they are read first.
        reason = r"the cluster has not been read yet: cannot list and watch nodes: .*Connection refused.*"
        until(lambda: re.fullmatch(reason, eventually(running, status=503)["reason"]), "the reason")
        answer = ask(running, "/mutate", 1)
        assert answer["allowed"] or "not found" in answer["status"]["message"]
        assert "patch" not in answer
        api.start()
        eventually(running, status=200, cluster="synced")
    assert "nodes: current again" in running.logged()


def test_a_stale_view_moves_no_pod_and_stays_ready(api: ApiServer, tmp_path: Path) -> None:
    api.delete("nodes", "one")
    config = api.kubeconfig(tmp_path)
    file = rules(tmp_path, "Allocatable")
    arguments = ("--rules", file, "--cluster", "kubeconfig", "--max-staleness", "3")
    with started(tmp_path, *arguments, KUBECONFIG=str(config)) as running:
        eventually(running, status=200, cluster="synced")
        assert "patch" in ask(running, "/mutate", 1)
        api.fail("nodes", *[Silence()] * 100, watch=True)
        api.fail("nodes", *[Silence()] * 100)
        api.send("nodes", Silence())
        eventually(running, status=200, cluster="stale")
        answer = ask(running, "/mutate", 2)
        assert answer["allowed"]
        assert "patch" not in answer
        assert "the cluster is not known: its view is stale" in answer["warnings"][0]


def test_changed_rules_of_unreadable_collections_are_refused(api: ApiServer, tmp_path: Path) -> None:
    api.forbidden = {"pods"}
    config = api.kubeconfig(tmp_path)
    file = rules(tmp_path, "Allocatable")
    with started(tmp_path, "--rules", file, "--cluster", "kubeconfig", KUBECONFIG=str(config)) as running:
        eventually(running, status=200, cluster="synced")
        rules(tmp_path, "Available")
        api.wait_for(lambda: api.lists("pods"))
        assert ready(running)["status"] == 200
        assert "patch" not in ask(running, "/mutate", 1)


def test_declared_nodes_count_beside_the_live_ones(api: ApiServer, tmp_path: Path) -> None:
    api.delete("nodes", "one")
    config = api.kubeconfig(tmp_path)
    declared = tmp_path / "pool.yaml"
    declared.write_text(
        "apiVersion: gpurules.io/v1\nkind: ClusterInventory\nmetadata: {name: pool}\n"
        "spec: {nodes: [{name: pool-x, count: 0, scalable: true, allocatable: {nvidia.com/mig-2g.20gb: 4}}]}\n"
    )
    file = rules(tmp_path, "Available")
    arguments = ("--rules", file, "--cluster", "kubeconfig", "--declare", declared)
    with started(tmp_path, *arguments, KUBECONFIG=str(config)) as running:
        eventually(running, status=200, cluster="synced")
        assert "patch" not in ask(running, "/mutate", 1)


def test_enabled_events_reach_the_api_server(api: ApiServer, tmp_path: Path) -> None:
    api.delete("nodes", "one")
    config = api.kubeconfig(tmp_path)
    file = rules(tmp_path, "Allocatable")
    arguments = ("--rules", file, "--cluster", "kubeconfig", "--events", "--reserve-for", "all", *METRICS)
    with started(tmp_path, *arguments, KUBECONFIG=str(config)) as running:
        eventually(running, status=200, cluster="synced")
        assert "patch" in ask(running, "/mutate", 1)
        api.wait_for(lambda: api.events)
        sent = "gpu_rules_events_total 1.0\n"
        until(lambda: sent in fetched(f"{metrics_url(running)}/metrics")[1], "the Event in the metrics")
    [(place, event)] = api.events
    assert (place, event["kind"], event["reason"]) == ("ml", "Event", "GPUFallback")
    assert event["involvedObject"]["name"] == "p1"
