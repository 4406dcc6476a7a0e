"""Offers of nodes with drivers: amounts of extended resources, and whether several fit together."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace as replace_struct

from rules_engine.cluster.devices import offers as offering
from rules_engine.cluster.devices.allocation import DeviceRequest, allocate, claim_of, count_devices
from rules_engine.cluster.devices.offers import DeviceOffers, with_device_offers
from rules_engine.cluster.devices.pools import Pools
from rules_engine.cluster.devices.selectors import SelectorError
from rules_engine.language.cel import Budget, CostExceeded
from rules_engine.model.kubernetes.cluster import Cluster, DriverDevices, Node, Served
from rules_engine.model.kubernetes.devices import (
    IMPLICIT_PREFIX,
    Device,
    DeviceClass,
    DeviceKey,
    RequestPolicy,
    ResourceSlice,
    Use,
)
from rules_engine.model.kubernetes.quantity import Quantity
from tests.support.api import DRIVER
from tests.support.budgets import units_spent
from tests.support.devices import BAD, device, devices_of, in_use, kind_class, on, part
from tests.support.evaluation import Amounts, node
from tests.support.laws import clusters
from tests.support.naive_allocation import naive_search

CARDS, SLICES = "example.com/card", "example.com/slice"
CLASSES = (kind_class("card", CARDS), kind_class("slice", SLICES))


def offered(
    *slices: ResourceSlice,
    classes: tuple[DeviceClass, ...] = CLASSES,
    allocatable: Amounts | None = None,
    used: Amounts | None = None,
    allocated: Mapping[DeviceKey, tuple[Use, ...]] | None = None,
) -> Node:
    """Return the node "a" with what drivers offer on it."""
    made = node("a", allocatable, used)
    devices = devices_of(classes, *slices, allocated=allocated or {})
    (found,) = with_device_offers(Cluster(nodes=(made,), devices=devices)).nodes
    return found


def amounts(found: Node, resource: str) -> tuple[int, int]:
    """Return how many devices of a resource a node has, and how many of them are free."""
    return (int(str(found.allocatable.get(resource, Quantity(0)))), int(str(found.available(resource))))


def service(found: Node) -> DriverDevices:
    assert found.service is not None
    return found.service


def serve(found: Node, free: bool = True, budget: Budget | None = None, **counts: int) -> Served:
    """Return whether a node serves cards and slices together."""
    resources = {"cards": CARDS, "slices": SLICES}
    wanted = {resources[name]: number for name, number in counts.items()}
    return service(found).serve(wanted, (budget or Budget()).spend, free=free)


def keys(*names: str, pool: str = "p", extended: bool = True) -> dict[DeviceKey, tuple[Use, ...]]:
    return in_use([(DRIVER, pool, name) for name in names], extended=extended)


def plain(*devices: Device) -> ResourceSlice:
    return part("s", *devices)


def split_card() -> tuple[ResourceSlice, ResourceSlice]:
    """Return a card that is offered whole and in halves."""
    return (
        part("s0", counts={"g/a": 1, "g/b": 1}, slice_count=2),
        part(
            "s1",
            device("whole", "card", {"g/a": 1, "g/b": 1}),
            device("left", "slice", {"g/a": 1}),
            device("right", "slice", {"g/b": 1}),
            slice_count=2,
        ),
    )


class TestAmounts:
    def test_a_positive_amount_is_of_a_device_plugin(self) -> None:
        found = offered(plain(device("a", "card"), device("b", "slice")), allocatable={CARDS: 5, "cpu": 3})
        assert amounts(found, CARDS) == (5, 5)
        assert amounts(found, SLICES) == (1, 1)
        assert CARDS not in service(found).resources
        assert SLICES in service(found).resources
        assert str(found.allocatable["cpu"]) == "3"

    def test_an_amount_of_zero_is_of_no_device_plugin(self) -> None:
        assert amounts(offered(plain(device("a", "card")), allocatable={CARDS: 0}), CARDS) == (1, 1)

    def test_a_node_without_devices_has_no_amounts(self) -> None:
        found = offered(part("s", device("a", "card"), nodes=on("b")))
        assert found.allocatable == {}
        assert serve(found, cards=1) is Served.NO

    def test_a_node_on_which_device_plugins_serve_all_is_unchanged(self) -> None:
        made = {CARDS: 1, IMPLICIT_PREFIX + "card": 1}
        found = offered(plain(device("a", "card")), classes=CLASSES[:1], allocatable=made)
        assert found == node("a", made)

    @given(clusters())
    def test_without_classes_a_cluster_is_unchanged(self, cluster: Cluster) -> None:
        cluster = replace(cluster, devices=devices_of((), plain(device("a", "card"))))
        assert with_device_offers(cluster) == cluster


class TestClasses:
    def test_the_newest_class_of_a_resource_serves_it(self) -> None:
        old = kind_class("card", CARDS, created="2026-01-01T00:00:00Z")
        new = kind_class("slice", CARDS, created="2026-01-02T00:00:00Z")
        for classes in [(old, new), (new, old)]:
            assert amounts(offered(plain(device("a", "slice")), classes=classes), CARDS) == (1, 1)
            assert amounts(offered(plain(device("a", "card")), classes=classes), CARDS) == (0, 0)

    def test_of_equally_old_classes_the_first_by_name_serves_it(self) -> None:
        classes = tuple(kind_class(kind, CARDS, created="2026-01-01T00:00:00Z") for kind in ("slice", "card"))
        assert devices_of(classes).class_by_resource[CARDS].name == "card"
        assert devices_of(classes[::-1]).class_by_resource[CARDS].name == "card"

    def test_every_class_has_its_own_name_as_a_resource(self) -> None:
        found = offered(plain(device("a", "card")), classes=(kind_class("card"),))
        assert amounts(found, IMPLICIT_PREFIX + "card") == (1, 1)
        assert service(found).resources == {IMPLICIT_PREFIX + "card"}

    def test_a_class_without_selectors_has_the_devices_of_every_driver(self) -> None:
        slices = (plain(device("a", "card")), part("s2", device("b", "x"), driver="other"))
        assert amounts(offered(*slices, classes=(DeviceClass(name="any", resource=CARDS),)), CARDS) == (2, 2)


class TestUse:
    def test_devices_of_claims_are_used(self) -> None:
        cards = [device(name, "card") for name in "abc"]
        assert amounts(offered(plain(*cards), allocated=keys("b", "gone")), CARDS) == (3, 2)
        assert amounts(offered(plain(*cards), allocated=keys("b", extended=False)), CARDS) == (3, 2)

    def test_pods_without_claims_use_the_devices_that_they_request(self) -> None:
        cards = [device(name, "card") for name in "abc"]
        found = offered(plain(*cards), used={CARDS: 2})
        assert amounts(found, CARDS) == (3, 1)
        assert serve(found, cards=2) is Served.NO
        assert serve(found, cards=2, free=False) is Served.YES
        assert amounts(offered(*split_card(), used={SLICES: 1}), CARDS) == (1, 0)

    def test_pods_and_their_claims_are_counted_once(self) -> None:
        cards = [device(name, "card") for name in "abcde"]
        assert amounts(offered(plain(*cards), used={CARDS: 2}, allocated=keys("a", "b")), CARDS) == (5, 3)
        assert amounts(offered(plain(*cards), used={CARDS: 2}, allocated=keys("a")), CARDS) == (5, 3)

    def test_claims_of_people_are_not_those_of_pods_with_extended_resources(self) -> None:
        cards = [device(name, "card") for name in "abcde"]
        assert amounts(offered(plain(*cards), used={CARDS: 2}, allocated=keys("a", extended=False)), CARDS) == (5, 2)

    def test_pods_use_no_more_than_there_is(self) -> None:
        assert amounts(offered(plain(device("a", "card")), used={CARDS: 7}), CARDS) == (1, 0)

    def test_requests_stay_where_no_driver_offers_anything(self) -> None:
        found = offered(used={CARDS: 7, "cpu": 2})
        assert {name: str(amount) for name, amount in found.used.items()} == {CARDS: "7", "cpu": "2"}

    def test_where_selectors_fail_pods_without_claims_use_what_is_found_before(self) -> None:
        devices = [device("a", "card"), Device(name="x"), device("b", "card")]
        found = offered(plain(*devices), used={CARDS: 2})
        assert amounts(found, CARDS) == (1, 0)
        assert serve(found, cards=1) is Served.GIVEN_UP

    def test_a_failing_selector_hides_how_many_claims_pods_have(self) -> None:
        devices = [device("a", "card"), device("b", "card"), Device(name="x")]
        assert amounts(offered(plain(*devices), used={CARDS: 2}, allocated=keys("x")), CARDS) == (2, 2)

    def test_more_may_be_free_than_there_is_if_the_failing_device_is_used(self) -> None:
        devices = [device("a", "card"), Device(name="x"), device("b", "card")]
        assert amounts(offered(plain(*devices), allocated=keys("x")), CARDS) == (1, 2)
        assert amounts(offered(plain(*devices[1:]), allocated=keys("x")), CARDS) == (0, 1)


class TestJointRequests:
    def test_two_resources_fit_on_two_cards(self) -> None:
        found = offered(*split_card(), part("t", device("other", "card"), pool="q"))
        assert serve(found, cards=1, slices=2) is Served.YES
        assert serve(found, cards=2, slices=1) is Served.NO
        assert serve(found, cards=3, slices=1) is Served.NO

    def test_a_claim_of_too_many_devices_is_given_up_everywhere(self) -> None:
        cards = [device(f"c{number}", "card") for number in range(40)]
        found = offered(plain(*cards, *[device(f"s{number}", "slice") for number in range(40)]))
        assert amounts(found, CARDS) == (32, 32)
        assert serve(found, cards=32) is Served.YES
        assert serve(found, cards=33) is Served.GIVEN_UP
        assert serve(found, cards=16, slices=16) is Served.YES
        assert serve(found, cards=16, slices=17) is Served.GIVEN_UP
        assert serve(offered(), cards=33) is Served.GIVEN_UP


class TestFailingSelectors:
    bad = Device(name="x", attributes={"other": {"kind": "card"}})

    def test_a_pod_is_given_up_only_if_the_failing_device_is_tried(self) -> None:
        found = offered(plain(device("a", "card"), self.bad, device("b", "card")))
        assert serve(found, cards=1) is Served.YES
        assert serve(found, cards=2) is Served.GIVEN_UP
        assert not service(found).simple

    def test_joint_requests_skip_it_while_it_is_in_use(self) -> None:
        found = offered(plain(device("a", "card"), self.bad, device("b", "slice")), allocated=keys("x"))
        assert serve(found, cards=1, slices=1) is Served.YES
        assert serve(found, cards=1, slices=1, free=False) is Served.GIVEN_UP

    def test_the_first_of_two_requests_may_fail_before_a_selector_does(self) -> None:
        picky = DeviceClass(name="z", resource="example.com/z", selectors=("device.attributes['z'].z == 1",))
        found = offered(plain(device("a", "card"), device("b", "card")), classes=(*CLASSES, picky))
        assert service(found).serve({CARDS: 3, "example.com/z": 1}, Budget().spend, free=True) is Served.NO
        assert service(found).serve({CARDS: 1, "example.com/z": 1}, Budget().spend, free=True) is Served.GIVEN_UP

    def test_a_list_attribute_gives_up_pods(self) -> None:
        found = offered(plain(Device(name="x", attributes={DRIVER: {"kind": "card", "all": None}})))
        assert serve(found, cards=1) is Served.GIVEN_UP

    def test_a_selector_that_does_not_compile_gives_up_pods(self) -> None:
        broken = DeviceClass(name="broken", resource=CARDS, selectors=("device.",))
        assert serve(offered(plain(device("a", "card")), classes=(broken,)), cards=1) is Served.GIVEN_UP
        assert serve(offered(classes=(broken,)), cards=1) is Served.NO


class TestUnknown:
    @pytest.fixture(autouse=True)
    def little(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(offering, "ANSWER_COST", 40)

    def test_simple_amounts_need_no_search(self) -> None:
        found = offered(plain(*[device(f"c{number}", "card") for number in range(9)]))
        assert service(found).simple
        assert serve(found, cards=9) is Served.YES
        assert serve(found, cards=10) is Served.NO

    def test_what_takes_too_many_steps_is_unknown(self) -> None:
        parts = [device(f"d{number}", "slice", {"g/a": 1 + number % 3, "g/b": 1 + number % 2}) for number in range(9)]
        slices = (part("s0", counts={"g/a": 5, "g/b": 4}, slice_count=2), part("s1", *parts, slice_count=2))
        found = offered(*slices)
        assert not service(found).simple
        assert amounts(found, SLICES) == (9, 9)
        assert serve(found, slices=9) is Served.UNKNOWN
        assert serve(found, slices=10) is Served.NO

    def test_pods_without_claims_use_what_few_steps_find(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(offering, "ANSWER_COST", 6)
        cards = [device(f"c{number}", "card") for number in range(9)]
        assert amounts(
            offered(plain(*cards), classes=(DeviceClass(name="c", resource=CARDS),), used={CARDS: 8}), CARDS
        ) == (9, 3)


class TestCostlySelectors:
    costly = DeviceClass(name="costly", resource=CARDS, selectors=(f"{list(range(600))}.exists(n, n == 600) || true",))

    @pytest.fixture(autouse=True)
    def small_allowance(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(offering, "ANSWER_COST", 1000)

    def test_what_a_costly_selector_matches_is_unknown(self) -> None:
        found = offered(plain(*[device(f"d{number}", "card") for number in range(3)]), classes=(self.costly,))
        assert not service(found).simple
        assert amounts(found, CARDS) == (3, 3)
        assert serve(found, cards=1) is Served.UNKNOWN
        assert serve(found, cards=4) is Served.NO

    def test_usual_selectors_are_evaluated_beside_it(self) -> None:
        slices = kind_class("slice", SLICES)
        found = offered(plain(*[device(f"d{number}", "slice") for number in range(300)]), classes=(self.costly, slices))
        assert serve(found, slices=32) is Served.YES
        assert serve(found, cards=32) is Served.UNKNOWN
        assert serve(found, cards=1, slices=1) is Served.UNKNOWN

    def test_pods_and_claims_of_costly_classes_count_as_far_as_known(self) -> None:
        cards = [device(f"d{number}", "card") for number in range(3)]
        found = offered(plain(*cards), classes=(self.costly,), used={CARDS: 2}, allocated=keys("d2"))
        assert amounts(found, CARDS) == (3, 2)


class TestTogether:
    """Requests of several classes are searched at the cost of who asks."""

    def test_a_search_that_costs_too_much_ends(self) -> None:
        found = offered(plain(device("a", "card"), device("b", "slice")))
        assert serve(found, budget=Budget(0), cards=1) is Served.YES
        with pytest.raises(CostExceeded):
            serve(found, budget=Budget(3), cards=1, slices=1)
        assert serve(found, cards=1, slices=1) is Served.YES
        with pytest.raises(CostExceeded):
            serve(
                offered(plain(device("a", "card"), device("b", "slice"), Device(name="bad"))),
                budget=Budget(3),
                cards=1,
                slices=1,
            )

    def test_sums_of_counters_refuse_first(self) -> None:
        """71 sevenths of a card on a node with 56."""
        sizes = {"gpu": (7, 1), "mig3": (3, 2), "mig1": (1, 7)}
        devices = [
            device(f"{kind}-{card}-{number}", kind, {f"c{card}/s": size})
            for kind, (size, count) in sizes.items()
            for card in range(8)
            for number in range(count)
        ]
        counts = part("s0", counts={f"c{card}/s": 7 for card in range(8)}, slice_count=2)
        classes = tuple(kind_class(kind, f"example.com/{kind}") for kind in sizes)
        found = offered(counts, part("s1", *devices, slice_count=2), classes=classes)

        def served(gpu: int, mig3: int, mig1: int, budget: Budget) -> Served:
            wanted = {"example.com/gpu": gpu, "example.com/mig3": mig3, "example.com/mig1": mig1}
            return service(found).serve(wanted, budget.spend, free=True)

        assert served(4, 8, 19, Budget(0)) is Served.NO
        budget = Budget()
        assert served(3, 8, 11, budget) is Served.YES
        assert served(1, 14, 7, budget) is Served.YES
        assert served(1, 14, 8, budget) is Served.NO
        assert served(4, 5, 13, budget) is Served.YES
        assert served(5, 7, 0, budget) is Served.NO
        assert units_spent(budget) < 5_000

    def test_two_resources_of_one_class_share_its_devices(self) -> None:
        found = offered(plain(device("a", "card"), device("b", "card"), device("s", "slice")))
        second = f"{IMPLICIT_PREFIX}card"
        for cards, answer in ((1, Served.YES), (2, Served.NO)):
            assert service(found).serve({CARDS: cards, second: 1}, Budget().spend, free=True) is answer
            assert service(found).serve({CARDS: cards, second: 1, SLICES: 1}, Budget().spend, free=True) is answer

    def test_a_device_of_two_classes_is_allocated_once(self) -> None:
        every = DeviceClass(name="every", resource="example.com/every")
        found = offered(plain(device("a", "card"), device("b", "slice")), classes=(*CLASSES, every))
        for cards, rest, answer in ((1, 1, Served.YES), (1, 2, Served.NO)):
            assert service(found).serve({CARDS: cards, every.resource: rest}, Budget().spend, free=True) is answer

    def test_the_cache_of_choices_is_bounded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(offering, "MAX_CHOICES", 1)
        found = offered(*split_card())
        for _ in range(2):
            assert serve(found, cards=1, slices=1) is Served.NO
            assert serve(found, cards=0, slices=2) is Served.YES


class TestSeveralNodes:
    def test_devices_of_one_name_on_two_nodes_are_told_apart(self) -> None:
        slices = (
            part("s0", device("d", "card"), nodes=on("a"), slice_count=2),
            part("s1", device("d", "slice"), nodes=on("b"), slice_count=2),
        )
        cluster = Cluster(nodes=(node("a"), node("b")), devices=devices_of(CLASSES, *slices))
        one, two = with_device_offers(cluster).nodes
        assert (amounts(one, CARDS), amounts(one, SLICES)) == ((1, 1), (0, 0))
        assert (amounts(two, CARDS), amounts(two, SLICES)) == ((0, 0), (1, 1))

    def test_other_parts_of_the_cluster_stay(self) -> None:
        cluster = Cluster(nodes=(node("a"),), namespaces={"ml": {}}, devices=devices_of(CLASSES))
        assert replace(with_device_offers(cluster), nodes=cluster.nodes) == cluster


@given(st.lists(st.sampled_from(["card", "slice", "other"]), max_size=8), st.integers(0, 3), st.integers(0, 3))
def test_devices_without_counters_are_served_up_to_their_number(kinds: list[str], cards: int, slices: int) -> None:
    found = offered(plain(*[device(f"d{number}", kind) for number, kind in enumerate(kinds)]))
    fits = cards <= kinds.count("card") and slices <= kinds.count("slice")
    assert serve(found, cards=cards, slices=slices) is (Served.YES if fits else Served.NO)


MEMORY = (DRIVER, "memory")


@st.composite
def slices_of_cards(draw: st.DrawFn, *, shared: bool = False) -> tuple[ResourceSlice, ...]:
    """Generate a pool of eight devices at most with the counters of two cards; `shared`: some are for two claims."""
    names = ("g/a", "g/b", "h/a")
    devices = []
    for number in range(draw(st.integers(0, 8))):
        kind = draw(st.sampled_from(["card", "slice", "slice", "other", BAD]))
        consumed = {name: draw(st.integers(0, 2)) for name in draw(st.lists(st.sampled_from(names), unique=True))}
        fields: dict[str, Any] = {}
        if shared and draw(st.booleans()):
            fields = {"shared": True, "capacity": {DRIVER: {"memory": Quantity(2)}}}
            fields["policies"] = {MEMORY: RequestPolicy(default=1)}
        devices.append(device(f"d{number}", kind, consumed, tainted=draw(st.integers(0, 4)) == 0, **fields))
    counts = {name: draw(st.integers(0, 4)) for name in names}
    return part("s0", counts=counts, slice_count=2), part("s1", *devices, slice_count=2)


@given(
    slices_of_cards(shared=True),
    slices_of_cards(shared=True),
    st.sets(st.integers(0, 7), max_size=3),
    st.dictionaries(st.integers(0, 7), st.integers(1, 2), max_size=3),
    st.integers(1, 2),
)
def test_devices_of_cards_are_counted_as_all_together(
    one: tuple[ResourceSlice, ...],
    two: tuple[ResourceSlice, ...],
    used: set[int],
    shares: dict[int, int],
    number: int,
) -> None:
    others = [replace_struct(each, pool="q") for each in two]
    uses = keys(*[f"d{number}" for number in used])
    for index, count in shares.items():
        if any(item.name == f"d{index}" and item.shared for item in one[1].devices):
            uses[DRIVER, "p", f"d{index}"] = tuple([Use(f"ml/{n}", True, ((MEMORY, 1),)) for n in range(count)])
    offers = DeviceOffers(devices_of(CLASSES, *one, *others, allocated=uses))
    found = offers.node(node("a"))
    pools = offers.pools.reaching(found)
    for name, each in zip((CARDS, SLICES), CLASSES, strict=True):
        most, free = (
            count_devices(pools, each, taken, offers.matches, Budget().spend).most for taken in ({}, offers.allocated)
        )
        assert amounts(found, name) == (most, free)
    claim = claim_of([DeviceRequest(each, number) for each in CLASSES])
    try:
        fits = allocate(pools, [claim], offers.allocated, offers.matches, Budget().spend) is not None
        expected = Served.YES if fits else Served.NO
    except SelectorError:
        expected = Served.GIVEN_UP
    assert service(found).serve({CARDS: number, SLICES: number}, Budget().spend, free=True) is expected


@given(slices_of_cards(), st.sets(st.integers(0, 7), max_size=3), st.integers(0, 3), st.integers(0, 3), st.booleans())
@example((plain(device("d0", "card"), device("d1", BAD), device("d2", "slice")),), {1}, 1, 1, True)
def test_drivers_serve_what_the_scheduler_finds(
    slices: tuple[ResourceSlice, ...], used: set[int], cards: int, parts: int, free: bool
) -> None:
    allocated = keys(*[f"d{number}" for number in used])
    found = offered(*slices, allocated=allocated)
    pools = Pools(devices_of((), *slices)).reaching(found)
    requests = [DeviceRequest(each, number) for each, number in zip(CLASSES, (cards, parts), strict=True) if number]
    expected = naive_search(pools, allocated if free else {}, requests)
    counts = {name: number for name, number in ((CARDS, cards), (SLICES, parts)) if number}
    answer = Served.GIVEN_UP if isinstance(expected, str) else Served.NO if expected is None else Served.YES
    assert service(found).serve(counts, Budget().spend, free=free) is answer
