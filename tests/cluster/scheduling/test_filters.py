"""Each filter of the scheduler's model, its reasons, and the order in which filters decide."""

from typing import Any

import pytest

from rules_engine.cluster.scheduling import Filter
from rules_engine.model.json.strict import PodError, TooLargeError
from rules_engine.model.kubernetes.placement import MAX_TERMS
from tests.support.api import GPU, node, pod
from tests.support.scheduling import REQUIRED, scheduled, scheduler

CONTROL_PLANE = "node-role.kubernetes.io/control-plane:NoSchedule"
HOSTNAME = "kubernetes.io/hostname"


def affinity(kind: str, *terms: dict[str, Any]) -> dict[str, Any]:
    required = {"nodeSelectorTerms": [*terms]} if kind == "nodeAffinity" else [*terms]
    return {"affinity": {kind: {REQUIRED: required}}}


def by_name(*names: str) -> dict[str, Any]:
    return {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]} for name in names]}


def app(name: str, **members: Any) -> dict[str, Any]:
    return {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"app": name}}, **members}


def spread(key: str = HOSTNAME, **members: Any) -> dict[str, Any]:
    constraint = {"topologyKey": key, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    return {"topologySpreadConstraints": [constraint | {"labelSelector": {"matchLabels": {"app": "a"}}} | members]}


def test_two_gpus_are_missing_behind_a_tainted_control_plane() -> None:
    nodes = [node("cp", taints=[CONTROL_PLANE]), node("a", {GPU: "1"}), node("b")]
    answer = scheduled(pod(requests={GPU: "2"}), nodes)
    assert answer.message() == (
        "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient nvidia.com/gpu."
    )
    assert answer.names(answer.nodes_by_reason[f"Insufficient {GPU}"]) == ("a", "b")
    assert answer.waiting_for == (GPU,)
    assert answer.feasible == 0


def test_a_pod_that_fits_has_no_message() -> None:
    answer = scheduled(pod(requests={"cpu": "4"}), [node("a"), node("b", unschedulable=True)])
    assert (answer.feasible, answer.feasible_nodes) == (1, ("a",))
    assert (answer.message(), answer.waiting_for) == ("", ())
    assert answer.reasons == {"node(s) were unschedulable": 1}


def test_the_first_filter_that_excludes_a_node_gives_its_reason() -> None:
    nodes = [node("a", taints=["t:NoSchedule"], unschedulable=True)]
    answer = scheduled(pod(requests={GPU: "1"}, nodeSelector={"x": "y"}, nodeName="b"), nodes)
    assert answer.reasons == {"node(s) were unschedulable": 1}
    assert [*answer.failing] == [Filter.NODE_UNSCHEDULABLE]
    assert [*answer.excluded] == [
        Filter.NODE_UNSCHEDULABLE,
        Filter.NODE_NAME,
        Filter.TAINT_TOLERATION,
        Filter.NODE_AFFINITY,
        Filter.NODE_RESOURCES_FIT,
    ]


def test_a_pod_that_names_its_node_is_only_compared_with_that_node() -> None:
    answer = scheduled(pod(nodeName="b"), [node("a"), node("b")])
    assert answer.reasons == {"node(s) didn't match the requested node name": 1}
    assert answer.feasible_nodes == ("b",)


def test_affinity_to_named_nodes_leaves_the_others_out() -> None:
    nodes = [node("a"), node("b", taints=["t:NoSchedule"]), node("c", taints=["t:NoSchedule"])]
    answer = scheduled(pod(requests={GPU: "1"}, **affinity("nodeAffinity", by_name("a"), by_name("nowhere"))), nodes)
    assert answer.message() == (
        "0/3 nodes are available: 1 Insufficient nvidia.com/gpu, 2 node(s) didn't satisfy plugin(s) [NodeAffinity]."
    )
    # A term without a name allows all nodes, even an empty one, which matches none.
    answer = scheduled(pod(**affinity("nodeAffinity", by_name("nowhere"), {})), nodes)
    assert answer.reasons == {
        "node(s) didn't match Pod's node affinity/selector": 1,
        "node(s) had untolerated taint(s)": 2,
    }


def test_affinity_to_two_names_at_once_rejects_the_pod() -> None:
    answer = scheduled(pod(**affinity("nodeAffinity", by_name("a", "b"))), [node("a"), node("b")])
    assert answer.message() == "0/2 nodes are available: pod affinity terms conflict."
    assert (answer.feasible, answer.reasons, answer.failing) == (0, {}, {})


def test_pods_on_the_nodes_network_use_the_ports_of_their_containers() -> None:
    answer = scheduled(
        pod(ports=[{"containerPort": 80}], hostNetwork=True), [node("a")], [pod("b", on="a", ports=[{"hostPort": 80}])]
    )
    assert answer.feasible == 0


@pytest.mark.parametrize(("policy", "feasible"), [({}, 1), ({"restartPolicy": "Always"}, 0)])
def test_of_init_containers_only_sidecars_use_ports(policy: dict[str, Any], feasible: int) -> None:
    port = [{"hostPort": 80}]
    init = {"name": "i", "ports": port, **policy}
    assert scheduled(pod(initContainers=[init]), [node("a")], [pod("b", on="a", ports=port)]).feasible == feasible


def test_amounts_in_use_are_rounded_up_for_each_pod() -> None:
    used = [pod(f"u{index}", {"cpu": "1999999u"}, on="a") for index in range(2)]
    assert scheduled(pod(requests={"cpu": "1m"}), [node("a")], used).reasons == {"Insufficient cpu": 1}
    assert scheduled(pod(requests={"cpu": "1m"}), [node("a")], used[:1]).feasible == 1


def test_finished_pods_and_pods_on_unknown_nodes_use_nothing() -> None:
    ended = pod("u", {"cpu": "4"}, on="a") | {"status": {"phase": "Succeeded"}}
    elsewhere = pod("v", {"cpu": "4"}, on="nowhere")
    assert scheduled(pod(requests={"cpu": "4"}), [node("a")], [ended, elsewhere]).feasible == 1


def test_requests_of_zero_and_names_that_are_no_resources_are_ignored() -> None:
    full = [pod("u", {GPU: "2"}, on="a")]
    answer = scheduled(pod(requests={GPU: "0", "storage": "1"}), [node("a", {GPU: "1"})], full)
    assert answer.feasible == 1


def test_only_a_node_without_any_amount_is_full_if_it_has_no_limit_of_pods() -> None:
    unlimited, empty = node("a", {"pods": None}), node("b")
    empty["status"] = {}
    answer = scheduled(pod(), [unlimited, empty])
    assert answer.reasons == {"Too many pods": 1}
    assert answer.feasible_nodes == ("a",)


def test_malformed_amounts_of_nodes_and_pods_are_left_out() -> None:
    answer = scheduled(
        pod(requests={"cpu": "1"}),
        [node("a"), node("b", {"cpu": "many"})],
        [pod("u", {"cpu": "4", "memory": "x"}, on="a")],
    )
    assert answer.feasible_nodes == ("a",)


def test_a_pod_waits_for_the_resources_that_keep_it_from_all_other_allowed_nodes() -> None:
    nodes = [node("a", {GPU: "1"}), node("b"), node("c", {GPU: "8"}, labels={"pool": "x"})]
    request: dict[str, Any] = {"requests": {"cpu": "5", GPU: "1"}}
    # Node a lacks cpu, node b both: cpu alone keeps the pod away.
    assert scheduled(pod(**request), nodes[:2]).waiting_for == ("cpu",)
    # Neither alone does where one node lacks cpu and another one GPUs.
    roomy = node("d", {"cpu": "8"})
    assert scheduled(pod(**request), [nodes[0], roomy]).waiting_for == ("cpu", GPU)
    # Nodes that another filter excludes do not matter.
    answer = scheduled(pod(requests={GPU: "2"}, nodeSelector={"pool": "x"}), nodes, [pod("u", {GPU: "7"}, on="c")])
    assert answer.waiting_for == (GPU,)
    assert scheduled(pod(requests={GPU: "9"}, nodeSelector={"pool": "y"}), nodes).waiting_for == ()
    assert scheduled(pod(), [node("a", {"pods": "0"})]).waiting_for == ("pods",)


def test_domains_of_nodes_that_the_pod_cannot_use_count_by_policy() -> None:
    nodes = [node("a"), node("b", taints=["t:NoSchedule"]), node("c", labels={"pool": "x"})]
    bound = [pod("x", labels={"app": "a"}, on="a")]
    only: dict[str, Any] = {"nodeSelector": {HOSTNAME: "a"}, "labels": {"app": "a"}}
    assert scheduled(pod(**only, **spread()), nodes, bound).feasible == 1
    assert scheduled(pod(**only, **spread(nodeAffinityPolicy="Ignore")), nodes, bound).feasible == 0
    nodes = nodes[:2]
    assert scheduled(pod(labels={"app": "a"}, **spread()), nodes, bound).feasible == 0
    assert scheduled(pod(labels={"app": "a"}, **spread(nodeTaintsPolicy="Honor")), nodes, bound).feasible == 1


def test_constraints_compare_the_labels_that_they_name() -> None:
    nodes, bound = [node("a"), node("b")], [pod("x", labels={"app": "a", "version": "1"}, on="a")]
    keyed = spread(matchLabelKeys=["version", "missing"])
    assert scheduled(pod(labels={"app": "a", "version": "1"}, **keyed), nodes, bound).feasible_nodes == ("b",)
    assert scheduled(pod(labels={"app": "a", "version": "2"}, **keyed), nodes, bound).feasible == 2
    # An expression that is malformed is left out.
    odd = {"matchExpressions": [{"key": "app", "operator": "Like"}, {"key": "app", "operator": "Exists"}]}
    assert scheduled(pod(labels={"app": "b"}, **spread(labelSelector=odd)), nodes, bound).feasible_nodes == ("b",)
    # A constraint without a selector, or one that only advises, excludes no node that has the label.
    assert scheduled(pod(**spread(labelSelector=None)), nodes, bound).feasible == 2
    assert scheduled(pod(**spread("missing", whenUnsatisfiable="ScheduleAnyway")), nodes, bound).feasible == 2


def test_terms_of_affinity_compare_the_labels_that_they_name() -> None:
    nodes = [node("a"), node("b")]
    bound = [
        pod("x", labels={"app": "a", "version": "1"}, on="a"),
        pod("y", labels={"app": "a", "version": "2"}, on="b"),
    ]

    def nodes_of(version: str, **members: Any) -> tuple[str, ...]:
        terms = affinity("podAntiAffinity", app("a", **members))
        return scheduled(pod(labels={"version": version}, **terms), nodes, bound).feasible_nodes

    assert nodes_of("1", matchLabelKeys=["version", "missing"]) == ("b",)
    assert nodes_of("1", mismatchLabelKeys=["version", "missing"]) == ("a",)
    assert nodes_of("3", matchLabelKeys=["version"]) == ("a", "b")
    # The terms of bound pods, too.
    term = affinity("podAntiAffinity", app("b", matchLabelKeys=["version"]))
    repelling = [pod("x", labels={"version": "1"}, on="a", **term)]
    assert scheduled(pod(labels={"app": "b", "version": "1"}), nodes, repelling).feasible_nodes == ("b",)
    assert scheduled(pod(labels={"app": "b", "version": "2"}), nodes, repelling).feasible == 2


def test_affinity_wants_a_domain_with_a_pod_that_all_terms_match() -> None:
    nodes = [
        node("a", labels={"zone": "1"}),
        node("b", labels={"zone": "1"}),
        node("c", labels={"zone": "2"}),
        node("d"),
    ]
    bound = [pod("x", labels={"app": "a"}, on="a")]
    answer = scheduled(pod(**affinity("podAffinity", app("a", topologyKey="zone"))), nodes, bound)
    assert answer.feasible_nodes == ("a", "b")
    assert answer.reasons == {"node(s) didn't match pod affinity rules": 2}
    both = affinity("podAffinity", app("a", topologyKey="zone"), app("b"))
    assert scheduled(pod(**both), nodes, [*bound, pod("y", labels={"app": "b"}, on="a")]).feasible == 0


def test_the_namespace_of_the_pod_exists_even_if_it_was_not_read() -> None:
    own = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ml"}}}
    answer = scheduled(pod(labels={"app": "a"}, **affinity("podAffinity", app("a", **own))), [node("a")])
    assert answer.feasible_nodes == ("a",)


def test_anti_affinity_works_in_both_directions() -> None:
    nodes = [node("a"), node("b")]
    apart = affinity("podAntiAffinity", app("a"))
    answer = scheduled(pod(**apart), nodes, [pod("x", labels={"app": "a"}, on="a")])
    assert answer.reasons == {"node(s) didn't match pod anti-affinity rules": 1}
    answer = scheduled(pod(labels={"app": "a"}), nodes, [pod("x", on="a", **apart)])
    assert answer.reasons == {"node(s) didn't satisfy existing pods anti-affinity rules": 1}
    assert scheduled(pod(labels={"app": "b"}), nodes, [pod("x", on="a", **apart)]).feasible == 2


@pytest.mark.parametrize(
    ("members", "feasible"),
    [
        ({}, 1),
        ({"namespaces": ["other"]}, 0),
        ({"namespaceSelector": {}}, 0),
        ({"namespaceSelector": {"matchLabels": {"team": "x"}}}, 0),
        ({"namespaceSelector": {"matchLabels": {"team": "y"}}}, 1),
        ({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "other"}}}, 0),
        ({"labelSelector": None, "namespaceSelector": {}}, 1),
    ],
)
@pytest.mark.parametrize("existing", [False, True])
def test_terms_select_namespaces(members: dict[str, Any], feasible: int, existing: bool) -> None:
    namespaces: list[dict[str, Any]] = [
        {"metadata": {"name": "other", "labels": {"team": "x"}}},
        {"metadata": {"name": "ml"}},
    ]
    apart = affinity("podAntiAffinity", app("a", **members))
    labels = {"app": "a"}
    if existing:
        subject, bound = pod(labels=labels, namespace="other"), [pod("x", on="a", **apart)]
    else:
        subject, bound = pod(**apart), [pod("x", labels=labels, namespace="other", on="a")]
    assert scheduler([node("a")], bound, namespaces).explain(subject).feasible == feasible


def test_a_cluster_without_nodes_has_a_message_of_its_own() -> None:
    answer = scheduled(pod(), [])
    assert (answer.message(), answer.feasible) == ("no nodes available to schedule pods", 0)


def test_malformed_and_too_large_pods_are_errors() -> None:
    with pytest.raises(PodError, match="/spec/containers/0/resources/requests/cpu"):
        scheduled(pod(requests={"cpu": "x"}), [node("a")])
    with pytest.raises(TooLargeError, match="more than"):
        scheduled(pod(**affinity("nodeAffinity", *[by_name("a")] * (MAX_TERMS + 1))), [node("a")])
    with pytest.raises(TooLargeError, match="101 constraints of topology spread and terms of pod affinity"):
        scheduled(pod(**affinity("podAffinity", *[app("a")] * 101)), [node("a")])
