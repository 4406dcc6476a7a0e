"""GPUOffers that `serve --offers` keeps current, over real HTTP, and the paths that leave exported rules out."""

import logging
from pathlib import Path
from typing import Any

import pytest
import yaml

from rules_engine.cluster.nodes import Offered
from rules_engine.exports.offers import build_offers
from rules_engine.exports.policies import NativeObjects
from rules_engine.exports.settings import Settings as WebhookSettings
from rules_engine.model.kubernetes.cluster import UNKNOWN_CLUSTER, Cluster, Freshness
from rules_engine.rules.evaluation import RuleSet
from rules_engine.rules.native.policy import translate_rules
from rules_engine.server.cluster.connection import Connection
from rules_engine.server.cluster.source import FixedCluster
from rules_engine.server.http.probes import readiness_page, rules_page
from rules_engine.server.offers import PERIOD_SECONDS, RESTORE_SECONDS, OffersWriter
from rules_engine.server.settings import ServerSettings
from rules_engine.server.state import ServedRules
from rules_engine.server.telemetry.metrics import Metrics
from rules_engine.server.timing import rfc3339
from tests.support.apiserver import ApiServer, Status, bound, node
from tests.support.authoring import ladder as ladder_text
from tests.support.cluster import Clock
from tests.support.evaluation import check, cluster, compiled, ladder, rung, validation
from tests.support.operating import METRICS, fetched, metrics_url, rules_report
from tests.support.server import encoded, review, started
from tests.support.states import state_of
from tests.support.telemetry import counted

GPU, MIG = "nvidia.com/gpu", "nvidia.com/mig-1g.10gb"
PATH = "/apis/gpurules.io/v1/gpuoffers/x"
RULES = compiled(ladder(rung(MIG), rung(GPU), name="mig"), validation(check(f"cluster.total('{GPU}') > 0"), name="v"))


class Replica:
    """A replica of the server, of which only the writer runs, step by step."""

    def __init__(self, api: ApiServer, on: Cluster, rule_set: RuleSet = RULES) -> None:
        def host(configuration: Any) -> None:
            configuration.host = api.url

        self.clock = Clock()
        self.state = state_of(ServedRules(rule_set=rule_set, digest="d"), on)
        self.writer = OffersWriter(Connection(host), "x", self.state, clock=self.clock)

    def see(self, on: Cluster) -> None:
        self.state.source = FixedCluster(on)

    def after(self, seconds: float) -> float:
        self.clock.now += seconds
        return self.writer.write()

    @property
    def problem(self) -> str | None:
        assert self.state.offers is not None
        return self.state.offers.problem


def stored(api: ApiServer) -> Any:
    return api.objects["gpuoffers"].get("/x")


def writes(api: ApiServer) -> int:
    return sum(each.collection == PATH for each in api.requests)


def test_offers_are_those_that_the_command_prints(api: ApiServer) -> None:
    on = cluster({GPU: 2})
    assert Replica(api, on).after(0) == PERIOD_SECONDS
    native = translate_rules(RULES)
    printed = NativeObjects(native, "d", WebhookSettings(name="x")).offers(build_offers(native, on))
    found = stored(api)
    del found["metadata"]["resourceVersion"]
    assert found == printed


def test_offers_are_written_when_an_answer_changes_and_else_only_restored(api: ApiServer) -> None:
    replica = Replica(api, cluster({GPU: 2}))
    replica.after(0)
    version = stored(api)["metadata"]["resourceVersion"]
    replica.after(PERIOD_SECONDS)
    replica.see(cluster({GPU: 1}, {GPU: 1}))  # the sum is the same, but not the largest amount
    replica.after(PERIOD_SECONDS)
    assert stored(api)["spec"]["ladders"] == {"mig": [{GPU: 1}]}
    replica.see(cluster({GPU: 1, "cpu": 9}, {GPU: 1}))  # no rule reads what changed
    replica.after(PERIOD_SECONDS)
    assert writes(api) == 2
    api.delete("gpuoffers", "x")
    replica.after(RESTORE_SECONDS)
    assert stored(api)["spec"]["ladders"] == {"mig": [{GPU: 1}]}
    assert stored(api)["metadata"]["resourceVersion"] != version
    # Others change nothing for longer.
    api.put("gpuoffers", {**stored(api), "spec": {"known": False}})
    replica.after(RESTORE_SECONDS)
    assert stored(api)["spec"]["known"] is True


def test_replicas_with_the_same_rules_and_nodes_change_nothing_of_each_other(api: ApiServer) -> None:
    replicas = [Replica(api, cluster({GPU: 2})) for _ in range(2)]
    for each in replicas:
        each.after(0)
    version = stored(api)["metadata"]["resourceVersion"]
    for each in (*replicas, *replicas):
        each.after(RESTORE_SECONDS)
    assert writes(api) == 6
    assert stored(api)["metadata"]["resourceVersion"] == version


@pytest.mark.parametrize("old", [Cluster(freshness=Freshness.STALE), UNKNOWN_CLUSTER])
def test_a_replica_that_does_not_know_the_nodes_leaves_the_last_offers(api: ApiServer, old: Cluster) -> None:
    replica = Replica(api, cluster({GPU: 2}))
    replica.after(0)
    replica.see(old)
    replica.after(RESTORE_SECONDS)
    assert (writes(api), stored(api)["spec"]["known"]) == (1, True)


def test_offers_follow_changed_rules_if_these_read_any(api: ApiServer) -> None:
    on = cluster({GPU: 2})
    replica = Replica(api, on)
    replica.after(0)
    replica.state.served = ServedRules(rule_set=compiled(ladder(rung(GPU), name="other")), digest="e")
    replica.after(PERIOD_SECONDS)
    assert stored(api)["spec"]["ladders"] == {"other": [{GPU: 2}]}
    assert stored(api)["metadata"]["annotations"] == {"gpurules.io/rules-digest": "e"}

    replica.state.served = ServedRules(rule_set=compiled(validation("true")), digest="f")
    replica.after(RESTORE_SECONDS)
    assert (writes(api), replica.problem) == (2, None)
    replica.state.served = ServedRules(
        rule_set=compiled(ladder(rung(MIG), rung(GPU), offered=Offered.AVAILABLE)), digest="g"
    )
    replica.after(RESTORE_SECONDS)
    assert (writes(api), replica.problem) == (2, None)


def test_a_problem_is_shown_and_logged_once_until_a_write_succeeds(
    api: ApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "rules_engine.server.offers")
    missing = (
        "GPUOffers x cannot be written: 404: no such API: apply the output of gpu-rules native, which defines them"
    )
    forbidden = "GPUOffers x cannot be written: 403: no"
    replica = Replica(api, cluster({GPU: 2}))
    api.fail(PATH, Status(404, "no such API"), Status(404, "no such API"), Status(403, "no"))
    for problem in (missing, missing, forbidden):
        assert replica.after(PERIOD_SECONDS) == RESTORE_SECONDS
        assert replica.problem == problem
        assert readiness_page(replica.state)[1]["warnings"] == [problem]
    api.fail(PATH, Status(429, "later", {"Retry-After": "9"}))
    assert replica.after(PERIOD_SECONDS) == 9
    api.fail(PATH, Status(429, "later", {"Retry-After": "999999999"}))
    assert replica.after(PERIOD_SECONDS) == 30
    replica.after(PERIOD_SECONDS)
    assert replica.problem is None
    assert "warnings" not in readiness_page(replica.state)[1]
    throttled = "GPUOffers x cannot be written: 429: later"
    assert caplog.messages == [missing, forbidden, throttled, "GPUOffers x can be written again"]


def test_credentials_are_read_again_once_they_are_refused(api: ApiServer) -> None:
    replica, urls = Replica(api, cluster({GPU: 2})), iter(["http://127.0.0.1:1", api.url])

    def host(configuration: Any) -> None:
        configuration.host = next(urls)

    replica.writer = OffersWriter(Connection(host), "x", replica.state, clock=replica.clock)
    replica.after(0)
    assert replica.problem is not None
    replica.after(RESTORE_SECONDS)
    assert stored(api)["spec"]["known"] is True


def test_what_offers_leave_out_is_shown_counted_and_alerts(api: ApiServer) -> None:
    replica = Replica(api, cluster({GPU: 2}, unread=frozenset([MIG])))
    assert rules_page(state_of(cluster=cluster({})))[1]["offers"] is None
    replica.after(0)
    offers = replica.state.offers
    assert offers is not None
    reason = f"it is not known what drivers offer of {MIG}"
    assert stored(api)["spec"]["omitted"] == {"FallbackLadder/mig": reason}
    assert rules_page(replica.state)[1]["offers"] == {
        "name": "x", "at": rfc3339(offers.at), "omitted": {"FallbackLadder/mig": reason}, "problem": None,
    }  # fmt: skip
    metrics = Metrics(replica.state, now=lambda: offers.at)
    assert counted(metrics, "gpu_rules_offers_omitted") == {"{rule=FallbackLadder/mig}": 1}
    assert counted(metrics, "gpu_rules_offers_age_seconds") == {"": 0}
    replica.see(cluster({GPU: 2}))
    replica.after(PERIOD_SECONDS)
    assert counted(metrics, "gpu_rules_offers_omitted") == {}
    assert "omitted" not in stored(api)["spec"]
    alerts = [
        alert["expr"]
        for group in yaml.safe_load(Path("deploy/prometheus-rules.yaml").read_text())["groups"]
        for alert in group["rules"]
    ]
    for name in ("gpu_rules_offers_omitted", "gpu_rules_offers_age_seconds"):
        assert any(name in expression for expression in alerts)


def test_offers_need_a_live_cluster() -> None:
    assert "--offers needs a live cluster" in (ServerSettings(offers="x").conflict() or "")


def test_a_server_follows_the_nodes_of_its_cluster(api: ApiServer, tmp_path: Path) -> None:
    api.put("nodes", node("a", {GPU: 4}))
    rules = tmp_path / "rules.yaml"
    rules.write_text(ladder_text("mig", MIG, GPU))
    line = ("--rules", rules, "--cluster", "kubeconfig", "--offers", "x", *METRICS)
    with started(tmp_path, *line, KUBECONFIG=str(api.kubeconfig(tmp_path))) as running:
        for amount in (1, 3):
            api.wait_for(lambda: stored(api))
            api.put("nodes", node("a", {MIG: amount}))
            api.wait_for(lambda: stored(api)["spec"]["ladders"] == {"mig": [{MIG: amount}]})  # noqa: B023
        assert rules_report(running)["offers"]["name"] == "x"
        assert "gpu_rules_offers_age_seconds " in fetched(f"{metrics_url(running)}/metrics")[1]


def test_native_paths_leave_out_the_rules_that_are_exported(tmp_path: Path) -> None:
    rules, inventory = tmp_path / "rules.yaml", Path("rules_engine/inventories/two-workers.yaml")
    rules.write_text(
        "---\n".join(
            [
                ladder_text("exported", MIG, GPU),
                ladder_text("stays", "a.b/c", "a.b/d", offered="Available", whenExhausted="Deny"),
            ]
        )
    )
    with started(tmp_path, "--rules", rules, "--cluster", inventory) as running:

        def answer(path: str, resource: str) -> Any:
            body = encoded(review(bound("p", "", {resource: 1})))
            return running.send("POST", path, body).response

        assert "patch" in answer("/mutate", MIG)
        assert "patch" not in answer("/mutate/native", MIG)
        assert [answer(path, "a.b/c")["allowed"] for path in ("/mutate", "/mutate/native")] == [False, False]
