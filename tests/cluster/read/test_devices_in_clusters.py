"""Cluster files with drivers: their slices are read, and ladders fall where drivers serve nothing."""

import json
from pathlib import Path
from typing import Any

import pytest

from rules_engine.cluster.devices import offers
from rules_engine.cluster.read.clusters import load_inventory, read_cluster
from rules_engine.cluster.read.inventory import Inventory
from rules_engine.model.kubernetes.cluster import Cluster
from rules_engine.model.rules.decision import Decision
from tests.support.api import (
    DRIVER,
    claim_spec,
    claim_template,
    device,
    device_class,
    node,
    resource_claim,
    resource_slice,
    taint_rule,
)
from tests.support.authoring import cli, write
from tests.support.evaluation import GPU, MIG1, MIG2, MIG3, asks, compiled, ladder, mutated, resources, rung
from tests.support.loading import codes, load_text, load_view, rule

NODE = node("n1", {"cpu": 8})
MIG = ladder(MIG3, MIG2, MIG1, rung(GPU, assume=True))


CLASSES = [
    device_class(profile, resource, f"device.attributes['{DRIVER}'].profile == '{profile}'")
    for profile, resource in (("3g.40gb", MIG3), ("1g.10gb", MIG1))
]
ODD = device("odd")
"""A device without a profile, on which the selectors of CLASSES fail."""


def card() -> list[dict[str, Any]]:
    """Return the slices of a card with two halves of 3g.40gb or four parts of 1g.10gb."""

    def part(name: str, profile: str, *places: int) -> dict[str, Any]:
        uses = {f"place-{place}": 1 for place in places}
        return device(name, uses=uses, attributes={"profile": {"string": profile}})

    halves = [part(f"half-{half}", "3g.40gb", half * 2, half * 2 + 1) for half in range(2)]
    quarters = [part(f"part-{place}", "1g.10gb", place) for place in range(4)]
    return [
        resource_slice("n1", name="s0", card={f"place-{place}": 1 for place in range(4)}, count=2),
        resource_slice("n1", *halves, *quarters, name="s1", count=2),
    ]


def loaded(folder: Path, *objects: dict[str, Any], kind: str = "List") -> Inventory:
    """Return the cluster of a file without problems."""
    path = write(folder, {"c.json": json.dumps({"kind": kind, "items": list(objects)})}) / "c.json"
    inventory, problems, _ = load_inventory(path)
    assert inventory is not None
    assert problems == ()
    return inventory


def inventory(folder: Path, **spec: Any) -> Inventory:
    """Return a ClusterInventory without problems."""
    document = {"apiVersion": "gpurules.io/v1", "kind": "ClusterInventory", "metadata": {"name": "c"}, "spec": spec}
    found, problems, _ = load_inventory(write(folder, {"c.yaml": json.dumps(document)}) / "c.yaml")
    assert found is not None
    assert problems == ()
    return found


CARDS = {
    "nodes": [{"name": "n", "count": 2, "devices": [{"driver": DRIVER, "count": 1}]}],
    "deviceClasses": [{"name": "gpu", "extendedResourceName": GPU, "selectors": ["true"]}],
}


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1alpha3"])
@pytest.mark.parametrize("own", [False, True])
def test_taint_rules_of_each_version_apply(tmp_path: Path, version: str, own: bool) -> None:
    rule = {**taint_rule("r", pool="n1"), "apiVersion": f"resource.k8s.io/{version}"}
    objects = [*CLASSES, *card(), rule]
    if own:
        cluster = inventory(tmp_path, nodes=[{"name": "n1"}], objects=objects).cluster
    else:
        cluster = loaded(tmp_path, NODE, *objects).cluster
    assert MIG3 not in cluster.nodes[0].allocatable


def test_a_taint_rule_reaches_each_of_equal_nodes(tmp_path: Path) -> None:
    cluster = inventory(tmp_path, **CARDS, objects=[taint_rule("r", pool="n-2")]).cluster
    assert [GPU in each.allocatable for each in cluster.nodes] == [True, False]


def test_the_claims_of_an_inventory_have_their_devices(tmp_path: Path) -> None:
    claim = resource_claim("c", "gpu-0", pool="n-2", spec=claim_spec(1))
    del claim["metadata"]["namespace"]
    found = inventory(tmp_path, **CARDS, resourceClaims=[claim])
    assert [int(each.available(GPU).whole) for each in found.cluster.nodes] == [1, 0]
    for devices in (found.cluster.devices, found.objects().devices):
        assert [(name, each.allocated) for name, each in devices.claims.items()] == [("default/c", True)]
        assert devices.unread == {"resourceclaimtemplates": ""}


def test_an_inventory_has_templates_or_says_that_there_are_none(tmp_path: Path) -> None:
    for templates, names in (([claim_template("t", 2)], ["ml/t"]), ([], [])):
        found = inventory(tmp_path, **CARDS, resourceClaimTemplates=templates)
        objects = read_cluster([tmp_path / "c.yaml"]).objects
        assert objects is not None
        for devices in (found.cluster.devices, found.objects().devices, objects.devices):
            assert [*devices.templates] == names
            assert devices.unread == {"resourceclaims": ""}


def decided(cluster: Cluster, resource: str = MIG3, count: int = 1) -> Decision:
    return mutated(asks({resource: count}), MIG, on=cluster)


def granted(cluster: Cluster, resource: str = MIG3, count: int = 1) -> dict[str, str]:
    """Return what a pod that requests a resource gets."""
    return resources(decided(cluster, resource, count))["limits"]


class TestLadders:
    def test_a_request_stays_where_drivers_serve_it(self, tmp_path: Path) -> None:
        cluster = loaded(tmp_path, NODE, *CLASSES, *card()).cluster
        assert granted(cluster, count=2) == {MIG3: "2"}
        assert decided(cluster, count=2).patch == ()

    def test_a_request_falls_to_what_drivers_serve(self, tmp_path: Path) -> None:
        cluster = loaded(tmp_path, NODE, *CLASSES, *card()).cluster
        assert granted(cluster, MIG2) == {MIG1: "1"}
        assert granted(cluster, count=3) == {MIG1: "3"}
        assert granted(cluster, count=5) == {GPU: "5"}

    def test_requests_stay_only_if_they_fit_together(self, tmp_path: Path) -> None:
        cluster = loaded(tmp_path, NODE, *CLASSES, *card()).cluster
        # Half a card and two quarters fit, half a card and three do not: the larger falls, to what is left.
        assert resources(mutated(asks({MIG3: 1, MIG1: 2}), MIG, on=cluster))["limits"] == {MIG3: "1", MIG1: "2"}
        fallen = mutated(asks({MIG3: 1, MIG1: 3}), MIG, on=cluster)
        assert resources(fallen)["limits"] == {MIG1: "4"}
        (_, moved) = fallen.trace[0].resources
        assert moved.attempts[0].reason == "requested, but no node offers 1 together with the requests that stay"
        assert resources(mutated(asks({MIG3: 2, MIG1: 3}), MIG, on=cluster))["limits"] == {MIG1: "3", GPU: "2"}

    def test_a_later_ladder_keeps_what_an_earlier_one_decided(self, tmp_path: Path) -> None:
        cluster = loaded(tmp_path, NODE, *CLASSES, *card()).cluster
        first, second = ladder(MIG3, MIG1, name="a"), ladder(MIG2, MIG1, GPU, name="b")
        # Two halves stay. A quarter is offered, but beside them the first ladder would move one of both.
        assert resources(mutated(asks({MIG3: 2, MIG2: 1}), first, second, on=cluster))["limits"] == {
            MIG3: "2",
            MIG2: "1",
        }
        assert resources(mutated(asks({MIG3: 1, MIG2: 1}), first, second, on=cluster))["limits"] == {
            MIG3: "1",
            MIG1: "1",
        }

    def test_a_request_falls_where_drivers_do_not_serve_it(self, tmp_path: Path) -> None:
        assert granted(loaded(tmp_path, NODE, *CLASSES).cluster) == {GPU: "1"}
        assert granted(loaded(tmp_path, NODE, *card()).cluster) == {GPU: "1"}
        assert granted(loaded(tmp_path, NODE, *CLASSES, card()[1]).cluster) == {GPU: "1"}

    def test_a_request_falls_if_the_selector_of_its_class_fails(self, tmp_path: Path) -> None:
        failing = resource_slice("q", ODD, nodeName="n1")
        first = resource_slice("a", ODD, nodeName="n1")
        slices = card()
        assert granted(loaded(tmp_path, NODE, *CLASSES, *slices, failing).cluster) == {MIG3: "1"}
        assert granted(loaded(tmp_path, NODE, *CLASSES, *slices, first).cluster) == {GPU: "1"}

    def test_one_failing_node_makes_requests_fall_everywhere(self, tmp_path: Path) -> None:
        other = resource_slice("n2", ODD)
        nodes = NODE, node("n2", {"cpu": 8})
        assert granted(loaded(tmp_path, *nodes, *CLASSES, *card()).cluster) == {MIG3: "1"}
        assert granted(loaded(tmp_path, *nodes, *CLASSES, *card(), other).cluster) == {GPU: "1"}

    def test_a_pod_is_left_as_it_is_when_it_takes_too_long_to_say(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(offers, "ANSWER_COST", 2)
        decision = decided(loaded(tmp_path, NODE, *CLASSES, *card()).cluster)
        assert (decision.allowed, decision.patch) == (True, ())
        (step,) = decision.trace
        assert (step.reason, step.cluster_unknown) == ("cluster-unknown", True)
        (warning,) = decision.warnings
        assert warning.endswith("it takes too long to say which devices fit together: 1 of nvidia.com/mig-3g.40gb")

    def test_devices_of_claims_are_not_available(self, tmp_path: Path) -> None:
        claim = resource_claim("c", "half-0", pool="n1", extended=True)
        cluster = loaded(tmp_path, NODE, *CLASSES, *card(), claim).cluster
        (found,) = cluster.nodes
        assert {name: str(found.available(name)) for name in (MIG3, MIG1)} == {MIG3: "1", MIG1: "2"}

    def test_cel_reads_the_amounts(self, tmp_path: Path) -> None:
        cluster = loaded(tmp_path, NODE, *CLASSES, *card()).cluster
        first = ladder(MIG2, rung(MIG3, when=f"cluster.allocatable('{MIG3}') == 2"))
        compiled(first)
        assert resources(mutated(asks({MIG3: 1}), first, on=cluster))["limits"] == {MIG3: "1"}


class TestFiles:
    def test_an_inventory_reads_the_objects_of_drivers(self, tmp_path: Path) -> None:
        objects = json.dumps([*CLASSES, *card(), resource_claim("c")])
        result = load_text(tmp_path, rule("ClusterInventory", f"{{nodes: [{{name: n1}}], objects: {objects}}}"))
        assert result.problems == ()
        (inventory,) = result.of(Inventory)
        assert granted(inventory.cluster, count=2) == {MIG3: "2"}

    def test_what_drivers_serve_is_no_allocatable_of_the_nodes_object(self, tmp_path: Path) -> None:
        objects = json.dumps([*CLASSES, *card()])
        text = rule("ClusterInventory", f"{{nodes: [{{name: n1, allocatable: {{cpu: 8}}}}], objects: {objects}}}")
        (inventory,) = load_text(tmp_path, text).of(Inventory)
        (raw,) = inventory.objects().of("Node")
        assert raw.status["allocatable"] == {"cpu": "8"}
        assert len(inventory.cluster.nodes[0].allocatable) > 1

    def test_objects_that_cannot_be_used_get_a_warning_at_their_place(self, tmp_path: Path) -> None:
        text = rule(
            "ClusterInventory",
            "\n  nodes: [{name: n1}]\n  objects:\n  - {kind: ResourceSlice, metadata: {name: s}, spec: {}}\n",
        )
        (problem,) = load_text(tmp_path, text).problems
        assert (problem.code, problem.location.line, problem.location.column) == ("unread-object", 7, 5)
        assert problem.message == "ResourceSlice s is left out: it has no driver"

    def test_objects_of_kubectl_that_cannot_be_used_get_a_warning(self, tmp_path: Path) -> None:
        path = tmp_path / "c.json"
        bad = resource_slice("n1", device("d"), device("d"), name="bad")
        path.write_text(json.dumps({"kind": "List", "items": [NODE, bad, *CLASSES, *card()]}))
        inventory, problems, _ = load_view(path)
        assert inventory is not None
        assert codes(problems) == ["unread-object"]
        assert problems[0].message == "ResourceSlice bad is left out: it has two devices of one name"
        assert granted(inventory) == {MIG3: "1"}

    def test_a_cluster_without_classes_has_no_services(self, tmp_path: Path) -> None:
        (found,) = loaded(tmp_path, NODE, *card()).cluster.nodes
        assert found.service is None


def test_explain_shows_what_drivers_offer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rungs = f"{{rungs: [{{resource: {MIG3}}}, {{resource: {MIG1}}}]}}"
    pod = asks({MIG3: 3})
    files = {
        "rules/mig.yaml": rule("FallbackLadder", rungs, "mig"),
        "pod.yaml": json.dumps(pod),
        "c.json": json.dumps({"kind": "List", "items": [NODE, *CLASSES, *card()]}),
    }
    monkeypatch.chdir(write(tmp_path, files))
    result = cli("explain", "-f", "pod.yaml", "--rules", "rules", "--cluster", "c.json")
    assert (result.exit_code, "no Pod was read: all that nodes have counts as free" in result.stderr) == (0, True)
    assert f"changed: {MIG3} → {MIG1}" in result.stdout
    assert f"✗ {MIG3}: requested, but no node offers 3" in result.stdout


def test_explain_says_why_the_scheduler_rejects_a_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rungs = f"{{rungs: [{{resource: {MIG3}}}, {{resource: {MIG1}}}]}}"
    failing = resource_slice("a", ODD, nodeName="n1")
    files = {
        "rules/mig.yaml": rule("FallbackLadder", rungs, "mig"),
        "pod.yaml": json.dumps(asks({MIG3: 1})),
        "many.yaml": json.dumps(asks({MIG3: 33})),
        "c.json": json.dumps({"kind": "List", "items": [NODE, *CLASSES, *card(), failing]}),
    }
    monkeypatch.chdir(write(tmp_path, files))
    result = cli("explain", "-f", "pod.yaml", "--rules", "rules", "--cluster", "c.json")
    words = " ".join(result.stdout.replace("│", " ").split())
    everywhere = "the scheduler rejects the pod on all nodes, since on node n1,"
    assert (
        f"✗ {MIG3}: requested, but no node offers 1: {everywhere} a selector of DeviceClass 3g.40gb fails "
        f"on device odd of {DRIVER}: device.attributes['{DRIVER}'].profile: no such key"
    ) in words
    assert f"✗ {MIG1}: no node offers 1 of {MIG1}: {everywhere} a selector of DeviceClass 1g.10gb fails" in words
    result = cli("explain", "-f", "many.yaml", "--rules", "rules", "--cluster", "c.json")
    words = " ".join(result.stdout.replace("│", " ").split())
    assert f"no node offers 33: {everywhere} 33 devices are requested, and a claim has at most 32" in words


@pytest.mark.parametrize("file", sorted(Path("rules_engine/inventories").glob("*.yaml")), ids=lambda file: file.stem)
def test_the_cluster_of_an_inventory_is_that_of_its_objects(file: Path) -> None:
    reading = read_cluster([file])
    assert reading.objects is not None
    assert reading.cluster is not None
    again = offers.cluster_view(reading.objects.with_objects({}))

    def amounts(cluster: Cluster) -> dict[str, Any]:
        return {node.name: (node.labels, node.taints, node.allocatable, node.used) for node in cluster.nodes}

    assert amounts(reading.cluster) == amounts(again)
    assert reading.cluster.namespaces == again.namespaces
