"""The short form of drivers' devices in inventories: it becomes slices as drivers publish them."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules_engine.cluster.devices.pools import Pools
from rules_engine.cluster.read import drivers
from rules_engine.cluster.read.inventory import Inventory
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.devices import Devices
from tests.support.loading import codes, load_text, rule

CLASS = {"name": "gpu", "extendedResourceName": "nvidia.com/gpu", "selectors": ["device.driver == 'd.com'"]}
HALVES = {"name": "half", "consumes": {"cores": 2}, "placements": {"size": 2, "starts": [0, 2]}}
PART = {"name": "part", "count": 3, "consumes": {"cores": 1}}
PARTITIONS = {"counters": {"cores": 4}, "memorySlices": 4, "profiles": [HALVES]}


def inventory(folder: Path, *devices: Any, classes: Any = (CLASS,), **node: Any) -> Inventory:
    """Return the inventory of one entry of nodes, without problems."""
    spec = {"deviceClasses": [*classes], "nodes": [{"name": "n", "devices": [*devices], **node}]}
    loaded = load_text(folder, rule("ClusterInventory", json.dumps(spec)))
    assert loaded.problems == ()
    (read,) = loaded.of(Inventory)
    return read


def raw_slices(read: Inventory) -> list[Any]:
    return [dict(each) for each in read.objects().of("ResourceSlice")]


def problems_of(folder: Path, *devices: Any) -> list[tuple[str, str]]:
    spec = {"nodes": [{"name": "n", "devices": [*devices]}]}
    found = load_text(folder, rule("ClusterInventory", json.dumps(spec))).problems
    return [(problem.code, problem.message) for problem in found]


def test_whole_cards_are_one_slice_of_the_node(tmp_path: Path) -> None:
    attributes = {"type": "gpu", "index": 3, "nvlink": True, "cuda": {"version": "9.0.0"}, "k8s.io/root": "a"}
    read = inventory(
        tmp_path, {"driver": "d.com", "count": 2, "attributes": attributes, "capacity": {"memory": "80Gi"}}
    )
    own: dict[str, Json] = {
        "attributes": {
            "type": {"string": "gpu"},
            "index": {"int": 3},
            "nvlink": {"bool": True},
            "cuda": {"version": "9.0.0"},
            "k8s.io/root": {"string": "a"},
        },
        "capacity": {"memory": {"value": "80Gi"}},
    }
    assert raw_slices(read) == [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": "0-d.com-n"},
            "spec": {
                "driver": "d.com",
                "nodeName": "n",
                "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1},
                "devices": [{"name": "gpu-0", **own}, {"name": "gpu-1", **own}],
            },
        }
    ]
    (node,) = read.cluster.nodes
    assert str(node.allocatable["nvidia.com/gpu"]) == "2"


def test_partitioned_cards_are_a_slice_of_counters_and_one_for_each_card(tmp_path: Path) -> None:
    profile = {**HALVES, "attributes": {"type": "mig"}, "capacity": {"memory": "40Gi"}}
    card = {"driver": "d.com", "count": 2, "attributes": {"type": "gpu", "model": "x"}, "capacity": {"memory": "80Gi"}}
    read = inventory(tmp_path, {**card, "partitions": {**PARTITIONS, "profiles": [profile]}})
    counters, first, second = (each["spec"] for each in raw_slices(read))
    places = [{f"memory-slice-{number}": {"value": "1"} for number in numbers} for numbers in ((0, 1), (2, 3))]
    every = {"cores": {"value": "4"}, **places[0], **places[1]}
    assert counters["sharedCounters"] == [
        {"name": "gpu-0-counter-set", "counters": every},
        {"name": "gpu-1-counter-set", "counters": every},
    ]
    half = {
        "attributes": {"type": {"string": "mig"}, "model": {"string": "x"}},
        "capacity": {"memory": {"value": "40Gi"}},
    }
    assert first["devices"] == [
        {
            "name": "gpu-0",
            "attributes": {"type": {"string": "gpu"}, "model": {"string": "x"}},
            "capacity": {"memory": {"value": "80Gi"}},
            "consumesCounters": [{"counterSet": "gpu-0-counter-set", "counters": every}],
        },
        *(
            {
                "name": f"gpu-0-half-{start}",
                **half,
                "consumesCounters": [
                    {"counterSet": "gpu-0-counter-set", "counters": {"cores": {"value": "2"}, **place}}
                ],
            }
            for start, place in zip((0, 2), places, strict=True)
        ),
    ]
    assert [each["name"] for each in second["devices"]] == ["gpu-1", "gpu-1-half-0", "gpu-1-half-2"]
    assert {each["pool"]["resourceSliceCount"] for each in (counters, first, second)} == {3}


def test_partitions_without_places_are_counted(tmp_path: Path) -> None:
    partitions = {"counters": {"cores": 4}, "wholeCards": False, "profiles": [PART]}
    _, cards = raw_slices(inventory(tmp_path, {"driver": "d.com", "name": "card", "partitions": partitions}))
    assert [each["name"] for each in cards["spec"]["devices"]] == ["card-0-part-0", "card-0-part-1", "card-0-part-2"]


def test_a_second_group_of_a_name_continues_the_numbers(tmp_path: Path) -> None:
    groups = [{"driver": "d.com", "count": 2}, {"driver": "d.com", "name": "odd"}, {"driver": "d.com"}]
    (only,) = raw_slices(inventory(tmp_path, *groups))
    assert [each["name"] for each in only["spec"]["devices"]] == ["gpu-0", "gpu-1", "odd-0", "gpu-2"]


def test_each_driver_has_its_pool(tmp_path: Path) -> None:
    first, second = raw_slices(inventory(tmp_path, {"driver": "d.com"}, {"driver": "e.com"}))
    assert (first["spec"]["driver"], second["spec"]["driver"]) == ("d.com", "e.com")
    assert first["spec"]["pool"] == second["spec"]["pool"] == {"name": "n", "generation": 1, "resourceSliceCount": 1}


def test_slices_have_as_many_items_as_the_api_allows(tmp_path: Path) -> None:
    many = {"counters": {"cores": 100}, "profiles": [{"name": "core", "count": 100, "consumes": {"cores": 1}}]}
    read = inventory(
        tmp_path, {"driver": "d.com", "name": "x", "count": 200}, {"driver": "d.com", "count": 9, "partitions": many}
    )
    sizes = [
        (len(spec.get("sharedCounters", ())), len(spec.get("devices", ())))
        for spec in (each["spec"] for each in raw_slices(read))
    ]
    assert sizes == [(8, 0), (1, 0), (0, 128), (0, 72), *[(0, 64), (0, 37)] * 9]
    names = [each["metadata"]["name"] for each in raw_slices(read)]
    assert names == sorted(names)
    (node,) = read.cluster.nodes
    assert [pool.problem for pool in Pools(read.cluster.devices).reaching(node)] == [""]


def test_each_copy_of_a_node_has_its_own_pool(tmp_path: Path) -> None:
    read = inventory(tmp_path, {"driver": "d.com", "count": 4}, count=2, scalable=True)
    assert [str(node.allocatable["nvidia.com/gpu"]) for node in read.cluster.nodes] == ["4", "4", "4"]
    assert {each.pool for each in read.cluster.devices.slices} == {"n-1", "n-2", "n-new"}
    assert [each["spec"]["nodeName"] for each in raw_slices(read)] == ["n-1", "n-2"]
    assert [each.name for each in read.objects().of("DeviceClass")] == ["gpu"]


def test_an_entry_without_nodes_has_no_slices(tmp_path: Path) -> None:
    read = inventory(tmp_path, {"driver": "d.com"}, count=0)
    assert (read.cluster.devices.slices, raw_slices(read)) == ((), [])


@pytest.mark.parametrize(
    ("partitions", "expected"),
    [
        (
            {**PARTITIONS, "profiles": [{**HALVES, "consumes": {"core": 2}}]},
            ("impossible-partition", "the card has no counter 'core' (did you mean 'cores'?)"),
        ),
        (
            {**PARTITIONS, "profiles": [{**HALVES, "consumes": {"cores": 5}}]},
            ("impossible-partition", "the card has 4 of cores, not 5"),
        ),
        (
            {**PARTITIONS, "memorySlices": 3},
            ("impossible-partition", "a partition of 2 memory slices at 2 is beyond the 3 of the card"),
        ),
        ({**PARTITIONS, "profiles": [HALVES, HALVES]}, ("duplicate-name", "'half' is already used in line 4")),
        (
            {**PARTITIONS, "memorySlices": 32},
            ("wrong-count", "a card has at most 32 counters, memory slices included, not 33"),
        ),
        (
            {**PARTITIONS, "profiles": [{**HALVES, "consumes": {"cores": -1}}]},
            ("negative-quantity", "a quantity cannot be negative here"),
        ),
        (
            {**PARTITIONS, "profiles": [{"name": "half", "count": 2}]},
            (
                "impossible-partition",
                "the partition consumes no counter of the card, so that any number fits beside the whole card",
            ),
        ),
        ({**PARTITIONS, "profiles": [HALVES | {"consumes": {}}]}, ("wrong-count", "consumes must not be empty")),
        ({**PARTITIONS, "profiles": [{"name": "half"}]}, ("missing-field", "partition needs 'placements' or 'count'")),
        (
            {**PARTITIONS, "profiles": [{**HALVES, "count": 2}]},
            ("conflicting-fields", "'placements' and 'count' cannot be used together"),
        ),
    ],
)
def test_what_no_card_can_have_is_an_error(tmp_path: Path, partitions: Any, expected: tuple[str, str]) -> None:
    assert problems_of(tmp_path, {"driver": "d.com", "partitions": partitions}) == [expected]


def test_partitions_need_counters_or_memory_slices(tmp_path: Path) -> None:
    assert problems_of(tmp_path, {"driver": "d.com", "partitions": {"profiles": [PART]}}) == [
        ("missing-field", "partitions needs 'counters' or 'memorySlices'"),
        ("impossible-partition", "the card has no counter 'cores'"),
    ]


@pytest.mark.parametrize(
    "attribute", [1.5, None, {"versoin": "1.0.0"}, {"version": 1}, ["a"]], ids=["float", "null", "key", "int", "list"]
)
def test_an_attribute_has_a_value_of_the_api(tmp_path: Path, attribute: Any) -> None:
    (problem,) = problems_of(tmp_path, {"driver": "d.com", "attributes": {"type": attribute}})
    assert problem[0] in {"wrong-type", "unknown-field"}


def test_a_node_has_a_bounded_number_of_devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drivers, "MAX_NODE_DEVICES", 10)
    assert problems_of(tmp_path, {"driver": "d.com", "count": 10}) == []
    assert problems_of(tmp_path, {"driver": "d.com", "count": 5}, {"driver": "e.com", "count": 6}) == [
        ("wrong-count", "a node has at most 10 devices, with partitions")
    ]
    assert problems_of(tmp_path, {"driver": "d.com", "count": 4, "partitions": PARTITIONS}) == [
        ("wrong-count", "a node has at most 10 devices, with partitions")
    ]


def test_two_devices_of_one_name_make_the_pool_invalid(tmp_path: Path) -> None:
    partitions = {**PARTITIONS, "profiles": [{**PART, "name": "half"}]}
    groups = [{"driver": "d.com", "partitions": partitions}, {"driver": "d.com", "name": "gpu-0-half"}]
    spec = {"deviceClasses": [CLASS], "nodes": [{"name": "n", "devices": groups}]}
    (read,) = load_text(tmp_path, rule("ClusterInventory", json.dumps(spec))).of(Inventory)
    (pool,) = Pools(read.cluster.devices).reaching(read.cluster.nodes[0])
    assert pool.problem == "it has two devices gpu-0-half-0"


class TestSelectors:
    def test_a_selector_that_does_not_compile_gets_a_warning_at_its_place(self, tmp_path: Path) -> None:
        text = "{nodes: [{name: n1}], deviceClasses: [{name: c, selectors: [\"true && devic.driver == 'd'\"]}]}"
        result = load_text(tmp_path, rule("ClusterInventory", text))
        (problem,) = result.problems
        assert problem.code == "bad-device-selector"
        assert problem.message == (
            "a selector of DeviceClass c does not compile: undeclared reference to 'devic' (did you mean 'device'?)"
        )
        line = rule("ClusterInventory", text).splitlines()[problem.location.line - 1]
        assert line[problem.location.column - 1 :].startswith("devic.driver")
        assert result.of(Inventory)

    def test_selectors_of_objects_are_compiled(self, tmp_path: Path) -> None:
        selectors = "[{cel: {expression: device.driver}}, {cel: {}}, {cel: {expression: 'true'}}]"
        item = f"{{kind: DeviceClass, metadata: {{name: c}}, spec: {{selectors: {selectors}}}}}"
        problems = load_text(tmp_path, rule("ClusterInventory", f"{{objects: [{item}]}}")).problems
        assert codes(problems) == ["bad-device-selector"]
        assert problems[0].message.endswith("the expression must be bool, not string")


attributes = st.dictionaries(
    st.sampled_from(["type", "model", "x.com/root"]),
    st.one_of(st.sampled_from(["a", "b"]), st.integers(-5, 5), st.booleans(), st.just({"version": "1.0.0"})),
    max_size=3,
)
profiles = st.fixed_dictionaries(
    {"name": st.sampled_from(["a", "b", "c"]), "attributes": attributes, "consumes": st.just({"cores": 1})},
    optional={"capacity": st.just({"memory": "1Gi"})},
).flatmap(
    lambda profile: st.one_of(
        st.builds(lambda count: {**profile, "count": count}, st.integers(1, 40)),
        st.builds(lambda start: {**profile, "placements": {"size": 2, "starts": [start]}}, st.integers(0, 2)),
    )
)
groups = st.fixed_dictionaries(
    {"driver": st.sampled_from(["d.com", "e.com"]), "count": st.integers(1, 10), "attributes": attributes},
    optional={
        "name": st.sampled_from(["gpu", "card"]),
        "partitions": st.fixed_dictionaries(
            {
                "counters": st.just({"cores": 4}),
                "memorySlices": st.just(4),
                "profiles": st.lists(profiles, min_size=1, max_size=3, unique_by=lambda each: each["name"]),
            },
            optional={"wholeCards": st.booleans()},
        ),
    },
)


@given(st.lists(groups, max_size=3), st.integers(1, 3))
def test_the_short_form_reads_as_the_objects_that_it_stands_for(
    tmp_path_factory: pytest.TempPathFactory, groups: list[Any], count: int
) -> None:
    folder = tmp_path_factory.mktemp("forms")
    short = inventory(folder, *groups, count=count)
    objects = [dict(each) for kind in ("DeviceClass", "ResourceSlice") for each in short.objects().of(kind)]
    nodes = [{"name": node.name} for node in short.cluster.nodes]
    text = rule("ClusterInventory", json.dumps({"nodes": nodes, "objects": objects}))
    (long,) = load_text(folder, text, "long.yaml").of(Inventory)
    assert in_order(long.cluster.devices) == in_order(short.cluster.devices)
    assert [node.allocatable for node in long.cluster.nodes] == [node.allocatable for node in short.cluster.nodes]
    for each in short.cluster.devices.slices:
        assert 0 < len(each.devices) + len(each.counters) <= 128
    pools = Counter(each.pool_key for each in short.cluster.devices.slices)
    assert all(each.slice_count == pools[each.pool_key] for each in short.cluster.devices.slices)


def in_order(devices: Devices) -> tuple[Any, ...]:
    return devices.classes, sorted(devices.slices, key=lambda each: each.name)
