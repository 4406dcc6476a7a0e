"""Preflight of the pods that a cluster would create: with what controllers and the API server's plugins add."""

from pathlib import Path
from typing import Any

import pytest

from rules_engine import ClusterObjects, load_manifests, load_rules, preflight
from rules_engine.questions.preflight.answer import WorkloadAnswer
from rules_engine.questions.preflight.state import Verdict
from tests.support.api import GPU, api_object, node, pod

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
RULES = load_rules(["set:gpu-allocation"])
NODES = [node(name, {GPU: 4}, labels={ZONE: "z"}) for name in ("a", "b")]


def answer(manifest: Any, *objects: Any, nodes: list[Any] = NODES, absent: tuple[str, ...] = ()) -> WorkloadAnswer:
    kinds: dict[str, list[Any]] = {"Node": nodes, "Pod": []}
    for each in objects:
        kinds.setdefault(each["kind"], []).append(each)
    found = preflight(RULES, load_manifests([manifest]), ClusterObjects(kinds, absent=frozenset(absent)))
    return found.workloads[0]


def spec(limits: dict[str, Any] | None = None, **members: Any) -> Any:
    container = {"name": "main", "image": "i", "resources": {"limits": limits or {GPU: "1"}}}
    return {"containers": [container], **members}


def single(limits: dict[str, Any] | None = None, **members: Any) -> Any:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "ml"},
        "spec": spec(limits, **members),
    }


def workload(kind: str, count: int, template: Any, **members: Any) -> Any:
    group, field = ("batch/v1", "parallelism") if kind == "Job" else ("apps/v1", "replicas")
    made = {field: count, "template": template, **members} | ({"completions": count} if kind == "Job" else {})
    return {"apiVersion": group, "kind": kind, "metadata": {"name": "train", "namespace": "ml"}, "spec": made}


def own_jobs(member: str, key: str) -> Any:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"job-name": "train"}}}
    return {member: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def test_pods_of_a_job_keep_apart_by_its_name() -> None:
    found = answer(workload("Job", 3, {"spec": spec(affinity=own_jobs("podAntiAffinity", HOST))}))
    assert (found.verdict, found.started) == ("Waits", 2)


def test_pods_of_a_job_come_together_by_its_name() -> None:
    found = answer(workload("Job", 2, {"spec": spec(affinity=own_jobs("podAffinity", ZONE))}))
    assert (found.verdict, found.started) == ("Starts", 2)


def test_a_new_revision_spreads_apart_from_the_old_one() -> None:
    spread = {"topologyKey": HOST, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    spread |= {"labelSelector": {"matchLabels": {"app": "web"}}, "matchLabelKeys": ["pod-template-hash"]}
    old = [pod(f"old-{number}", on="a", labels={"app": "web", "pod-template-hash": "5d6f7"}) for number in range(3)]
    template = {"metadata": {"labels": {"app": "web"}}, "spec": spec(topologySpreadConstraints=[spread])}
    deployment = workload("Deployment", 2, template, selector={"matchLabels": {"app": "web"}})
    assert answer(deployment, *old).verdict == "Starts"


def test_a_new_revision_is_not_kept_from_nodes_of_the_old_one() -> None:
    # By default, kube-scheduler spreads the pods of a ReplicaSet; the other node has less free.
    old = [pod(f"old-{number}", on="a", labels={"app": "web", "pod-template-hash": "5d6f7"}) for number in range(2)]
    template = {"metadata": {"labels": {"app": "web"}}, "spec": spec()}
    deployment = workload("Deployment", 1, template, selector={"matchLabels": {"app": "web"}})
    assert answer(deployment, *old, pod("busy", {"cpu": 1, "memory": "4Gi"}, on="b")).starts == {"a": 1}


def runtime_class(**members: Any) -> Any:
    return api_object("RuntimeClass", "nvidia", handler="nvidia", **members)


@pytest.mark.parametrize(
    ("members", "verdict"),
    [
        ({}, "Starts"),
        ({"scheduling": {"nodeSelector": {"runtime": "nvidia"}}}, "Never"),
        ({"overhead": {"podFixed": {"cpu": "5"}}}, "Never"),
        ({"overhead": {"podFixed": {"cpu": "1"}}}, "Starts"),
    ],
)
def test_a_runtime_class_requires_nodes_and_amounts(members: Any, verdict: str) -> None:
    assert answer(single(runtimeClassName="nvidia"), runtime_class(**members)).verdict == verdict


def test_a_runtime_class_brings_tolerations() -> None:
    tainted = [node("a", {GPU: 4}, taints=["gpu=yes:NoSchedule"])]
    tolerations = [{"key": "gpu", "operator": "Exists"}]
    with_class = runtime_class(scheduling={"tolerations": tolerations})
    assert answer(single(runtimeClassName="nvidia"), with_class, nodes=tainted).verdict == "Starts"
    assert answer(single(runtimeClassName="nvidia"), runtime_class(), nodes=tainted).verdict == "Never"


NAMED = {
    "RuntimeClass": ("runtimeClassName", 'pod rejected: RuntimeClass "gold" not found', "RuntimeClass gold"),
    "PriorityClass": ("priorityClassName", "no PriorityClass with name gold was found", "PriorityClass gold"),
    "ServiceAccount": (
        "serviceAccountName",
        'error looking up service account ml/gold: serviceaccount "gold" not found',
        "ServiceAccount ml/gold",
    ),
}


@pytest.mark.parametrize("kind", NAMED)
def test_an_object_that_does_not_exist_is_refused_and_one_not_read_is_unknown(kind: str) -> None:
    member, message, title = NAMED[kind]
    members: dict[str, Any] = {member: "gold"}
    manifest = single(**members)
    refused = answer(manifest)
    assert [(each.verdict, each.message) for each in refused.stopped] == [("Refused", message)]
    unknown = answer(manifest, absent=(kind,))
    assert unknown.verdict == "Unknown"
    assert unknown.unknown[0].startswith(f"{title}, which was not read")


def quota(**hard: str) -> Any:
    return api_object("ResourceQuota", "all", "ml", spec={"hard": hard})


def limit_range(**members: Any) -> Any:
    return api_object("LimitRange", "limits", "ml", spec={"limits": [{"type": "Container", **members}]})


def test_a_default_limit_meets_a_quota_that_requires_one() -> None:
    quotas = quota(**{"limits.cpu": "10"})
    missing = "failed quota: all: must specify limits.cpu for: main"
    assert [each.message for each in answer(single(), quotas).stopped] == [missing]
    assert answer(single(), quotas, limit_range(default={"cpu": "1"})).verdict == "Starts"


def test_limit_ranges_that_set_different_amounts_make_the_answer_unknown() -> None:
    other = {**limit_range(default={"cpu": "9"}), "metadata": {"name": "other", "namespace": "ml"}}
    for amount, verdict in (("1", "Unknown"), ("9", "Never")):
        found = answer(single(), limit_range(default={"cpu": amount}), other)
        assert found.verdict == verdict
    found = answer(single(), limit_range(default={"cpu": "1"}), other)
    assert found.unknown[0] == "the LimitRange that sets limits.cpu of container main: 1 or 9"
    assert answer(single({"cpu": "1"}), limit_range(default={"cpu": "1"}), other).verdict == "Starts"


def test_an_amount_above_a_limit_range_is_refused() -> None:
    found = answer(single({"cpu": "3"}), limit_range(max={"cpu": "2"}))
    assert [each.message for each in found.stopped] == ["maximum cpu usage per Container is 2, but limit is 3"]


def test_a_request_of_the_pod_level_below_its_containers_is_refused() -> None:
    found = answer(single({"cpu": "2"}, resources={"requests": {"cpu": "1"}}))
    place = 'spec.resources.requests[cpu]: Invalid value: "1"'
    message = f"{place}: must be greater than or equal to aggregate container requests of 2"
    assert [each.message for each in found.stopped] == [message]


def test_a_request_of_the_pod_level_below_those_of_a_template_refuses_the_workload() -> None:
    annotations = {"scheduler.alpha.kubernetes.io/node-selector": "a,"}
    namespace = api_object("Namespace", "ml", metadata={"annotations": annotations})
    low = {"resources": {"requests": {"cpu": "1"}}}
    requests = {"containers": [{"name": "main", "image": "i", "resources": {"requests": {"cpu": "2"}}}], **low}
    place = 'spec.template.spec.resources.requests[cpu]: Invalid value: "1"'
    message = f"{place}: must be greater than or equal to aggregate container requests of 2"
    for kind in ("Job", "Deployment", "StatefulSet"):
        found = answer(workload(kind, 2, {"spec": requests}), namespace)
        assert [(each.message, each.pods) for each in found.stopped] == [(message, 2)]
        # Templates have no default requests, so the plugins of the API server come first.
        found = answer(workload(kind, 2, {"spec": spec({"cpu": "2"}, **low)}), namespace)
        assert [each.message for each in found.stopped] == ["invalid selector: [a]"]
    # The API server does not check templates of custom resources.
    custom = {**workload("PyTorchJob", 2, {}), "apiVersion": "kubeflow.org/v1"}
    custom["spec"] = {"pytorchReplicaSpecs": {"Worker": {"replicas": 2, "template": {"spec": requests}}}}
    assert [each.message for each in answer(custom, namespace).stopped] == ["invalid selector: [a]"]


def test_each_pod_that_is_refused_has_its_own_reason() -> None:
    found = answer(workload("Job", 3, {"spec": spec({GPU: "4"})}), quota(pods="2"), nodes=NODES[:1])
    reasons = {each.verdict: (each.pods, each.message) for each in found.stopped}
    assert reasons[Verdict.REFUSED] == (1, "exceeded quota: all, requested: pods=1, used: pods=2, limited: pods=2")
    assert reasons[Verdict.WAITS][0] == 1
    assert {each.verdict: each.finding is None for each in found.stopped} == {
        Verdict.REFUSED: True,
        Verdict.WAITS: False,
    }


PLUGIN = "ExtendedResourceToleration"
TAINTED = [node("tainted", {GPU: 4}, taints=[f"{GPU}=present:NoSchedule"])]


def test_an_optional_plugin_of_which_nothing_is_known_makes_the_answer_unknown() -> None:
    found = answer(single(), nodes=TAINTED)
    line = f"whether the admission plugin {PLUGIN} is on (--admission {PLUGIN}): never without it, starts with it"
    assert (found.verdict, found.unknown) == ("Unknown", (line,))
    found = answer(single({GPU: "9"}), nodes=TAINTED)  # where nothing helps
    assert (found.verdict, found.unknown) == ("Never", ())


def test_an_optional_plugin_may_change_only_numbers_or_nodes() -> None:
    line = f"not known: whether the admission plugin {PLUGIN} is on (--admission {PLUGIN}): "
    job = workload("Job", 3, {"spec": spec({GPU: "4"})})
    # The quota lets two pods be created.
    found = answer(job, quota(pods="2"), nodes=[NODES[0], *TAINTED])
    numbers = "1 of 3 pods start without it, 2 of 3 pods start with it"
    assert (found.verdict, found.unknown, found.notices) == ("Refused", (), (line + numbers,))
    found = answer(single(), nodes=[NODES[0], *TAINTED])
    nodes = "on a without it, on a, tainted with it"
    assert (found.verdict, found.unknown, found.notices) == ("Starts", (), (line + nodes,))


def test_an_optional_plugin_is_on_if_it_is_given() -> None:
    objects = ClusterObjects({"Node": TAINTED, "Pod": []}, plugins=frozenset({PLUGIN}))
    assert preflight(RULES, load_manifests([single()]), objects).verdict == "Starts"


DENYING = f"""\
apiVersion: gpurules.io/v1
kind: FallbackLadder
metadata: {{name: gpus}}
spec:
  rungs: [{{resource: {GPU}}}]
  nodes: {{require: [MatchesPod]}}
  whenExhausted: Deny
"""


def test_a_ladder_that_denies_is_asked_with_the_plugin_too(tmp_path: Path) -> None:
    (tmp_path / "ladder.yaml").write_text(DENYING)
    objects = ClusterObjects({"Node": TAINTED, "Pod": []})
    (found,) = preflight(load_rules([tmp_path / "ladder.yaml"]), load_manifests([single()]), objects).workloads
    assert found.verdict == "Unknown"
    assert found.unknown[0].endswith("denied without it, starts with it")


def test_pods_of_other_kinds_have_the_labels_of_their_controllers() -> None:
    apart = {"labelSelector": {"matchLabels": {"leaderworkerset.sigs.k8s.io/name": "llm"}}, "topologyKey": HOST}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}
    template = {"size": 3, "workerTemplate": {"spec": spec(affinity=affinity)}}
    leaders = {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet"}
    made = {**leaders, "metadata": {"name": "llm", "namespace": "ml"}, "spec": {"leaderWorkerTemplate": template}}
    assert answer(made).started == 2


def test_nobody_is_told_to_remove_the_affinity_of_a_daemon_set() -> None:
    template = {"metadata": {"labels": {"app": "agent"}}, "spec": spec({"cpu": "9"})}
    agents = workload("DaemonSet", 1, template, selector={"matchLabels": {"app": "agent"}})
    large = node("large", {"cpu": "99"})
    found = answer(agents, nodes=[*NODES, large])
    assert (found.verdict, found.started) == ("Never", 1)
    assert not [each.text for each in found.would_start if "affinity" in each.text]
