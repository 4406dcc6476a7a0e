"""Live pods without what is written after their admission, and with what is defaulted before it."""

from typing import Any

import pytest

from rules_engine.questions.diff.input.live_pods import has_equal_resources, restore_from_template, strip_live_fields
from tests.support.api import live, template
from tests.support.evaluation import GPU, MIG3, container, injection, mutated, pod

REGION, ZONE = "topology.kubernetes.io/region", "topology.kubernetes.io/zone"
REPLICA_SET = ("ReplicaSet", "train-5d8")
BY_HASH = {"key": "pod-template-hash", "operator": "In", "values": ["5d8"]}
OTHERS = {"key": "team", "operator": "NotIn", "values": ["b"]}


def back(running: Any, submitted: Any) -> Any:
    """Turn a live pod back from the template of a submitted one."""
    restored = restore_from_template(running, template(submitted))
    assert restored is not None
    return restored


@pytest.mark.parametrize(
    ("base", "name", "generated"),
    [
        ("train-", "train-x7k2p", True),
        ("train-", "train-0", False),
        ("train-", "train-11111", False),
        ("train-", "train-x7k2pq", False),
        ("train-", "other-x7k2p", False),
        ("n" * 60, "n" * 58 + "x7k2p", True),
        ("n" * 60, "n" * 60 + "x7k2p", False),
        ("", "x7k2p", False),
    ],
)
def test_a_name_that_the_api_server_has_generated_is_left_out(base: str, name: str, generated: bool) -> None:
    running = live(pod(container("main")), name=name, generateName=base)
    metadata: Any = strip_live_fields(running)["metadata"]
    assert metadata.get("name") == (None if generated else name)


def test_requests_default_to_limits() -> None:
    submitted: Any = pod(
        container("main", limits={GPU: 1, "cpu": 2}, requests={"cpu": 1}),
        container("other", requests={"cpu": 1}),
        container("idle"),
        init=[container("init", limits={"memory": "1Gi"})],
    )
    restored = back(live(submitted), submitted)["spec"]
    main, other, idle = (each.get("resources") for each in restored["containers"])
    assert main == {"limits": {GPU: "1", "cpu": "2"}, "requests": {GPU: "1", "cpu": "1"}}
    assert other == {"requests": {"cpu": "1"}}
    assert not idle
    assert restored["initContainers"][0]["resources"]["requests"] == {"memory": "1Gi"}


def test_requests_of_the_whole_pod_default_to_the_aggregate_or_to_its_limits() -> None:
    level = {"limits": {"cpu": "9", "memory": "8Gi", "hugepages-2Mi": "4Mi"}, "requests": {}}
    submitted: Any = pod(
        container("main", limits={GPU: 1, "cpu": 2}),
        init=[{**container("side", requests={"cpu": 1}), "restartPolicy": "Always"}],
        resources=level,
    )
    raised: Any = mutated(back(live(submitted), submitted), injection({"cpu": "6"}, gpu_type=None)).result
    assert raised["spec"]["resources"]["requests"]["cpu"] == "6"
    raised["spec"]["resources"]["requests"]["hugepages-2Mi"] = "4Mi"
    restored = back(live(raised), submitted)["spec"]["resources"]
    assert restored["limits"] == level["limits"]
    assert restored["requests"] == {"cpu": "3", "memory": "8Gi", "hugepages-2Mi": "4Mi"}


def test_pod_level_huge_pages_default_as_in_the_api_server() -> None:
    submitted: Any = pod(container("main", limits={"hugepages-2Mi": "4Mi"}), resources={"limits": {"cpu": "1"}})
    huge = {"hugepages-2Mi": "4Mi"}
    running = live(submitted)
    running["spec"]["resources"] = {"limits": {"cpu": "1", **huge}, "requests": {"cpu": "7", **huge}}
    restored = back(running, submitted)["spec"]["resources"]
    assert restored == {"limits": {"cpu": "1", **huge}, "requests": {"cpu": "1", **huge}}


def test_pod_level_requests_are_taken_from_the_template() -> None:
    submitted: Any = pod(container("main", limits={"cpu": 2}), resources={"requests": {"memory": "1Gi"}})
    running = live(submitted)
    running["spec"]["resources"] = {"requests": {"memory": "2Gi"}}
    assert back(running, submitted)["spec"]["resources"] == {"requests": {"memory": "1Gi"}}


def test_a_template_with_malformed_amounts_makes_no_pod() -> None:
    submitted: Any = pod(container("main", limits={"cpu": "many"}), resources={"limits": {"cpu": "1"}})
    restored = back(live(submitted), submitted)
    assert restored["spec"]["resources"] == {"limits": {"cpu": "1"}}
    assert not has_equal_resources(restored, live(submitted))


def test_labels_of_the_node_are_left_out() -> None:
    labels = {REGION: "r", ZONE: "z"}
    submitted: Any = pod(container("main"))
    own: Any = strip_live_fields(live(submitted, on="node", labels={"app": "train", **labels}))
    assert own["metadata"]["labels"] == {"app": "train"}
    alone: Any = strip_live_fields(live(submitted, on="node", labels=labels))
    assert "labels" not in alone["metadata"]
    unbound: Any = strip_live_fields(live(submitted, labels=labels))
    assert unbound["metadata"]["labels"] == labels


def test_topology_labels_of_a_template_replace_the_labels_of_the_node() -> None:
    submitted: Any = pod(container("main"), labels={ZONE: "mine"})
    running = live(submitted, on="node", labels={"app": "train", REGION: "r", ZONE: "z"})
    assert back(running, submitted)["metadata"]["labels"] == {"app": "train", ZONE: "mine"}


def test_a_pod_of_a_template_with_a_node_keeps_the_node_and_its_labels() -> None:
    submitted: Any = pod(container("main"), nodeName="node")
    restored = back(live(submitted, on="node", labels={"app": "train", ZONE: "z"}), submitted)
    assert restored["spec"]["nodeName"] == "node"
    assert restored["metadata"]["labels"] == {"app": "train", ZONE: "z"}


def test_match_label_keys_are_separated_from_selectors() -> None:
    merged = {
        "labelSelector": {"matchLabels": {"a": "b"}, "matchExpressions": [OTHERS, BY_HASH]},
        "matchLabelKeys": ["pod-template-hash"],
    }
    only = {"labelSelector": {"matchExpressions": [BY_HASH]}, "mismatchLabelKeys": ["pod-template-hash"]}
    plain = {"labelSelector": {"matchExpressions": [BY_HASH]}}
    separated = {**merged, "labelSelector": {"matchLabels": {"a": "b"}, "matchExpressions": [OTHERS]}}
    required, preferred = (f"{kind}DuringSchedulingIgnoredDuringExecution" for kind in ("required", "preferred"))

    def spec(of_hash: Any, without: Any) -> Any:
        return {
            "topologySpreadConstraints": [{"maxSkew": 1, **of_hash}, plain],
            "affinity": {
                "nodeAffinity": {required: {"nodeSelectorTerms": []}},
                "podAffinity": {required: [of_hash, without, plain]},
                "podAntiAffinity": {preferred: [{"weight": 3, "podAffinityTerm": without}]},
            },
        }

    running = live(pod(container("main"), **spec(merged, only)))
    found: Any = strip_live_fields(running)["spec"]
    expected = spec(separated, {**only, "labelSelector": {}})
    assert {name: found[name] for name in expected} == expected
    assert running["spec"]["affinity"]["podAffinity"][required][0] is merged


def test_annotations_of_the_controller_of_a_job_are_kept() -> None:
    names = ("job-completion-index", "job-index-failure-count", "job-index-ignored-failure-count")
    annotations = {f"batch.kubernetes.io/{name}": "1" for name in names}
    submitted: Any = pod(container("main", limits={MIG3: 1}))
    running = live(submitted, ("Job", "train"), annotations={**annotations, "other": "1"})
    assert back(running, submitted)["metadata"]["annotations"] == annotations
