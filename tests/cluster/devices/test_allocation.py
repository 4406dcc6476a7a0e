"""The search for devices of a claim, against a search and a check written from kube-scheduler's."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import combinations, product
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from rules_engine.cluster.devices.allocation import (
    ClaimError,
    Count,
    DeviceClaim,
    DeviceRequest,
    NotModelledError,
    allocate,
    claim_of,
    consumption,
    count_devices,
    lacks_devices,
    resolve_claim,
)
from rules_engine.cluster.devices.offers import ANSWER_COST
from rules_engine.cluster.devices.pools import Pool
from rules_engine.cluster.devices.selectors import SelectorError
from rules_engine.language.cel import Budget, CostExceeded
from rules_engine.model.kubernetes.devices import (
    MAX_CLAIM_DEVICES,
    Alternative,
    ClaimSpec,
    Constraint,
    Device,
    DeviceClass,
    DeviceKey,
    DeviceToleration,
    RequestPolicy,
    Use,
)
from rules_engine.model.kubernetes.quantity import Quantity
from tests.support.api import DRIVER
from tests.support.devices import BAD, Consumption, counters, device, has_kind, in_use, kind_class, kind_of
from tests.support.naive_allocation import Outcome, available, naive_search

CARD, SLICE = kind_class("card"), kind_class("slice")


def pool(*devices: Device, name: str = "p", counts: Consumption | None = None, **fields: Any) -> Pool:
    return Pool(driver=DRIVER, name=name, devices=devices, counters=counters(counts or {}), **fields)


def keys(*names: str, pool: str = "p") -> tuple[DeviceKey, ...]:
    return tuple((DRIVER, pool, name) for name in names)


def found(
    pools: Sequence[Pool], requests: Sequence[DeviceRequest], allocated: Collection[DeviceKey] = (), steps: int = 10_000
) -> Outcome:
    """Return the outcome of a search."""
    try:
        found = allocate(pools, [claim_of(requests)], in_use(allocated), has_kind, Budget(steps).spend)
    except SelectorError as error:
        return str(error)
    return None if found is None else tuple(each.key for each in found[0])


def counted(
    pools: Sequence[Pool], device_class: DeviceClass, allocated: Collection[DeviceKey], steps: int = ANSWER_COST
) -> Count:
    """Return a count without its sums."""
    return replace(
        count_devices(pools, device_class, in_use(allocated), has_kind, Budget(steps).spend), least=0, room=0
    )


def cards(number: int) -> list[DeviceRequest]:
    return [DeviceRequest(CARD, number)]


def slices(number: int) -> list[DeviceRequest]:
    return [DeviceRequest(SLICE, number)]


HALVES = (device("a", "slice", {"g/a": 1}), device("b", "slice", {"g/b": 1}))


class TestSearch:
    def test_an_overcommitted_counter_keeps_back_all_devices_of_its_pool_that_consume_any(self) -> None:
        one = pool(
            device("used", "card", {"g/a": 2}),
            device("a", "slice", {"h/a": 1}),
            device("free", "slice"),
            counts={"g/a": 1, "h/a": 5},
        )
        assert found([one], slices(1)) == keys("a")
        assert found([one], slices(1), keys("used")) == keys("free")
        assert counted([one], SLICE, keys("used")) == Count(1, apart=False)

    def test_a_tainted_device_keeps_the_counters_that_it_was_tried_with(self) -> None:
        tainted = device("t", "slice", {"g/a": 1}, tainted=True)
        one = pool(tainted, *HALVES, counts={"g/a": 1, "g/b": 1})
        assert found([one], slices(1)) == keys("b")
        assert found([one], slices(2)) is None
        assert counted([one], SLICE, ()) == Count(1, apart=False)
        last = pool(*HALVES, tainted, counts={"g/a": 1, "g/b": 1})
        assert found([last], slices(2)) == keys("a", "b")
        assert counted([last], SLICE, ()) == Count(2, apart=False)

    def test_pools_of_one_name_and_two_drivers_have_their_own_counters(self) -> None:
        first = pool(device("a", "slice", {"g/a": 1}), counts={"g/a": 1})
        second = Pool(driver="other", name="p", devices=first.devices, counters=first.counters)
        assert found([first, second], slices(2)) == ((DRIVER, "p", "a"), ("other", "p", "a"))


def claim(*alternatives: Alternative, constraints: Sequence[Constraint] = ()) -> DeviceClaim:
    """Return a claim with one request for each alternative."""
    spec = ClaimSpec(requests=tuple((each,) for each in alternatives), constraints=tuple(constraints))
    return resolve_claim(spec, {"card": CARD, "slice": SLICE})


def wanted(count: int | None = 1, name: str = "r", **members: Any) -> Alternative:
    return Alternative(name=name, device_class="card", count=count, **members)


def allocated(
    pools: Sequence[Pool], *claims: DeviceClaim, used: Collection[DeviceKey] = (), steps: int = 10_000
) -> list[list[str]] | None:
    """Return the names of the devices of claims."""
    result = allocate(pools, claims, in_use(used), has_kind, Budget(steps).spend)
    return None if result is None else [[each.key[2] for each in devices] for devices in result]


class TestClaims:
    """Claims that claims.cases() does not generate: errors, limits and costs."""

    def test_what_is_not_supported_is_an_error_that_names_it(self) -> None:
        with pytest.raises(NotModelledError, match=r"^the allocationMode Some"):
            resolve_claim(ClaimSpec(unsupported="the allocationMode Some"), {})
        unlike = pool(device("a", "card", also={"links": None}))
        linked = claim(wanted(), constraints=[Constraint(attribute=f"{DRIVER}/links")])
        with pytest.raises(NotModelledError, match=f"^the list {DRIVER}/links in a constraint$"):
            allocated([unlike], linked)

    def test_a_class_that_does_not_exist_ends_the_attempt(self) -> None:
        with pytest.raises(ClaimError, match=r"^the DeviceClass card of the request r not found$"):
            resolve_claim(ClaimSpec(requests=((wanted(),),)), {})

    def test_the_selectors_of_a_request_select_among_those_of_its_class(self) -> None:
        made = claim(wanted(selectors=("true",)))
        (((request,),),) = (made.requests,)
        assert request.also == DeviceClass(name="", selectors=("true",))
        assert allocated([pool(device("a", "card"), device("b", ""))], made) is None, "b has the kind of the selectors"

    def test_no_claim_has_more_devices_than_fit(self) -> None:
        many = pool(*[device(f"d{number}", "card") for number in range(MAX_CLAIM_DEVICES + 8)])
        limit = f"exceeds the claim limit of {MAX_CLAIM_DEVICES}$"
        with pytest.raises(ClaimError, match=f"^number of requested devices 40 {limit}"):
            allocated([many], claim(wanted(None)))
        with pytest.raises(ClaimError, match=f"^number of requested devices 33 {limit}"):
            allocated([many], claim(wanted(30), wanted(3)))
        either = ClaimSpec(requests=((wanted(40, "r/s"), wanted(1, "r/t")),))
        assert allocated([many], resolve_claim(either, {"card": CARD})) == [["d0"]]
        late = ClaimSpec(requests=((wanted(20, "q"),), (wanted(20, "r/s"), wanted(1, "r/t"))))
        found = allocated([many], resolve_claim(late, {"card": CARD}))
        assert found == [[f"d{number}" for number in range(21)]]

    @pytest.mark.parametrize(("invalid", "state"), [(False, "being updated"), (True, "invalid")])
    def test_all_devices_are_unknown_while_a_pool_has_a_problem(self, invalid: bool, state: str) -> None:
        pools = [pool(device("a", "card")), Pool(driver=DRIVER, name="q", problem="x", invalid=invalid)]
        with pytest.raises(
            ClaimError, match=f"^asks for all devices, but resource pool {DRIVER}/q is currently {state}"
        ):
            allocated(pools, claim(wanted(None)))
        assert allocated(pools, claim(wanted(1))) == [["a"]]

    def test_admin_access_uses_devices_in_use_and_keeps_them_from_later_requests(self) -> None:
        one = [pool(device("a", "card"), device("b", "card", {"g/a": 1}), device("c", "card"), counts={"g/a": 1})]
        admin = wanted(2, "admin", admin=True)
        assert allocated(one, claim(admin), used=keys("a")) == [["a", "b"]]
        assert allocated(one, claim(admin), used=keys("b")) == [["a", "c"]], "counters count twice"
        assert allocated(one, claim(admin, wanted(1))) == [["a", "b", "c"]]
        assert allocated(one, claim(admin), claim(wanted(1)), used=keys("b", "c")) is None
        assert allocated(one, claim(wanted(1)), claim(admin)) == [["a"], ["a", "b"]]
        assert allocated(one, claim(wanted(1), admin)) == [["a", "b", "c"]], "a claim has a device once"
        shared = [pool(device("a", "card", shared=True))]
        assert allocated(shared, claim(wanted(1, "admin", admin=True)), used=keys("a")) == [["a"]]

    def test_constraints_hold_among_the_devices_of_their_requests(self) -> None:
        numbered = [
            pool(*[device(f"d{number}", "card", also={"n": number // 2}) for number in range(6)], device("x", "card"))
        ]
        match = Constraint(attribute=f"{DRIVER}/n")
        assert allocated(numbered, claim(wanted(2), constraints=[match]), used=keys("d0")) == [["d2", "d3"]]
        assert allocated(numbered, claim(wanted(3), constraints=[match])) is None
        distinct = Constraint(attribute=f"{DRIVER}/n", distinct=True, requests=frozenset(["p"]))
        assert allocated(numbered, claim(wanted(3, "p"), wanted(2, "q"), constraints=[distinct])) == [
            ["d0", "d2", "d4", "d1", "d3"]
        ]
        assert allocated(numbered, claim(wanted(4, "p"), constraints=[distinct])) is None
        message = f"^cannot add device {DRIVER}/p/d2 because a claim constraint would not be satisfied$"
        with pytest.raises(ClaimError, match=message):
            allocated(numbered, claim(wanted(None), constraints=[match]))

    def test_all_devices_are_given_or_none(self) -> None:
        one = [pool(device("a", "card"), device("b", "slice"), device("c", "card"))]
        assert allocated(one, claim(wanted(None))) == [["a", "c"]]
        assert allocated(one, claim(wanted(None)), used=keys("c")) is None
        assert allocated([pool(device("b", "slice"))], claim(wanted(None))) is None

    def test_a_pod_may_have_any_number_of_claims(self) -> None:
        many = pool(*[device(f"d{number}", "card") for number in range(400)])
        found = allocated([many], *[claim(wanted())] * 400, steps=10**6)
        assert found == [[f"d{number}"] for number in range(400)]
        assert allocated([many]) == []

    def test_each_step_is_charged(self) -> None:
        capacities = {DRIVER: {"memory": Quantity.of(4)}}
        many = pool(*[device(f"d{number}", "card", shared=True, capacity=capacities) for number in range(20)])
        numbered = pool(*[device(f"d{number}", "card", also={"n": number // 2}) for number in range(20)])
        distinct = claim(wanted(11), constraints=[Constraint(attribute=f"{DRIVER}/n", distinct=True)])
        for made in (claim(wanted(10)), claim(wanted(None))):
            assert allocated([many], made) is not None
            with pytest.raises(CostExceeded):
                allocated([many], made, steps=9)
        with pytest.raises(CostExceeded):
            allocated([numbered], distinct)

    def test_too_few_matching_devices_are_found_without_a_search(self) -> None:
        tainted = device("t", "card", tainted=True)
        one = [pool(*[device(f"d{number}", "card") for number in range(9)], tainted, device("s", "slice"))]

        def lacks(*claims: DeviceClaim, used: Collection[DeviceKey] = (), pools: Sequence[Pool] = one) -> bool:
            return lacks_devices(pools, claims, in_use(used), has_kind, Budget(1000).spend)

        tolerant = DeviceToleration(operator="Exists")
        assert lacks(claim(wanted(10)))
        assert lacks(claim(wanted(5, "p"), wanted(5, "q")))
        assert lacks(claim(wanted(9)), used=keys("d3"))
        assert not lacks(claim(wanted(9)))
        assert not lacks(claim(wanted(9)), claim(wanted(9))), "each claim is counted alone"
        assert not lacks(claim(wanted(10, tolerations=(tolerant,))))
        assert not lacks(claim(wanted(10, admin=True)))
        assert not lacks(claim(wanted(10), wanted(None, "q"))), "its devices may make the search give up"
        assert not lacks(claim(wanted(10)), pools=[*one, pool(device("x", BAD), name="q")])
        assert not lacks(claim(wanted(1, "p", tolerations=(tolerant,)), wanted(9, "q"))), "they accept other devices"
        shared = pool(device("x", "card", shared=True))
        assert not lacks(claim(wanted(1, "p"), wanted(1, "q")), pools=[shared])
        assert lacks(claim(wanted(1, "p")), pools=[pool(device("x", "slice"))])
        either = DeviceClaim(((*claim(wanted(10)).requests[0], *claim(wanted(1)).requests[0]),))
        assert not lacks(either)
        with pytest.raises(CostExceeded):
            lacks_devices(one, [claim(wanted(10))], {}, has_kind, Budget(5).spend)


class TestShares:
    capacity: Mapping[str, Mapping[str, Quantity]] = MappingProxyType({DRIVER: {"memory": Quantity(10)}})

    def shared(self, name: str = "a", **members: Any) -> Device:
        return device(name, "card", shared=True, capacity=self.capacity, **members)

    def uses(self, *amounts: int) -> list[Use]:
        return [Use(f"ml/{number}", True, (((DRIVER, "memory"), amount),)) for number, amount in enumerate(amounts)]

    def test_a_shared_device_is_free_until_its_capacity_is_consumed(self) -> None:
        third = {(DRIVER, "memory"): RequestPolicy(default=3)}
        one = self.shared(policies=third)
        for amounts, left in (((), True), ((3, 3), True), ((3, 3, 3), False), ((7,), True), ((8,), False)):
            assert (consumption(DRIVER, one, self.uses(*amounts)) is not None) == left
        assert consumption(DRIVER, one, [Use("ml/c", True)]) is None, "another claim has the whole device"
        assert consumption(DRIVER, device("a"), self.uses(1)) is None, "the device was shared before"
        assert consumption(DRIVER, self.shared(), self.uses(0)) == (((DRIVER, "memory"), 10),)

    def test_names_of_capacities_without_a_domain_are_in_that_of_the_driver(self) -> None:
        one = self.shared()
        assert consumption(DRIVER, one, (), [("memory", 4)]) == (((DRIVER, "memory"), 4),)
        for name in (f"{DRIVER}/memory", "other/memory", "cores"):
            assert consumption(DRIVER, one, (), [(name, 4)]) is None
        assert consumption(DRIVER, device("a", capacity=self.capacity), (), [("memory", 4)]) == ()
        assert consumption(DRIVER, device("a", capacity=self.capacity), (), [("memory", 11)]) is None

    def test_a_search_tries_others_in_place_of_a_shared_device_that_lacks_capacity(self) -> None:
        half = {(DRIVER, "memory"): RequestPolicy(default=5)}
        one = [pool(self.shared("a", policies=half, consumes={"g/a": 1}), device("b", "card"), counts={"g/a": 1})]
        assert allocated(one, *[claim(wanted())] * 3) == [["a"], ["a"], ["b"]]
        assert allocated(one, claim(wanted(capacity=(("memory", 11),)))) is None
        assert allocated(one, claim(wanted(None, capacity=(("memory", 6),)))) == [["a"]]

    def test_a_device_without_the_requested_capacity_keeps_no_counters(self) -> None:
        full = device("b", "card", {"g/a": 1}, capacity=self.capacity, also={"n": 2})
        one = pool(
            device("a", "card", {"g/a": 1}, also={"n": 1}), device("c", "card", also={"n": 1}), full, counts={"g/a": 1}
        )
        distinct = Constraint(attribute=f"{DRIVER}/n", distinct=True)
        made = claim(wanted(1, "p"), wanted(1, "q", capacity=(("memory", 1),)), constraints=[distinct])
        assert allocated([one], made) == [["c", "b"]]

    def test_the_counters_of_a_shared_device_are_consumed_once(self) -> None:
        policies = {(DRIVER, "memory"): RequestPolicy(default=1)}
        one = pool(
            self.shared("a", consumes={"g/a": 2}, policies=policies),
            device("b", "card", {"g/a": 1}),
            counts={"g/a": 2},
        )
        assert allocated([one], *[claim(wanted())] * 10) == [["a"]] * 10
        assert allocated([one], *[claim(wanted())] * 11) is None
        held = {(DRIVER, "p", "a"): self.uses(1)}
        result = allocate([one], [claim(wanted()), claim(wanted(2))], held, has_kind, Budget().spend)
        assert result is None
        for uses, most in (({}, 1), (held, 1), ({(DRIVER, "p", "a"): self.uses(10)}, 0)):
            assert count_devices([one], CARD, uses, has_kind, Budget().spend).most == most


class TestCounting:
    def test_no_more_are_counted_than_a_claim_may_have(self) -> None:
        many = [device(f"d{number}", "card") for number in range(MAX_CLAIM_DEVICES + 8)]
        assert counted([pool(*many)], CARD, ()) == Count(MAX_CLAIM_DEVICES)
        consuming = [device(each.name, "card", {"g/a": 1}) for each in many]
        assert counted([pool(*consuming, counts={"g/a": 99})], CARD, ()) == Count(MAX_CLAIM_DEVICES)
        tainted = device("t", "card", {"g/a": 1}, tainted=True)
        leaking = pool(tainted, *consuming, counts={"g/a": 99})
        assert counted([leaking], CARD, ()) == Count(MAX_CLAIM_DEVICES, apart=False)

    def test_small_parts_are_packed_first(self) -> None:
        one = pool(
            *[device(f"big{number}", "slice", {"g/a": 4}) for number in range(7)],
            *[device(f"small{number}", "slice", {"g/a": 1}) for number in range(7)],
            counts={"g/a": 12},
        )
        assert counted([one], SLICE, ()) == Count(8)

    def test_cards_are_packed_apart(self) -> None:
        devices = [
            device(f"{card}{number}", "slice", {f"{card}/a": number}) for card in "ghijkl" for number in (1, 1, 2, 3, 4)
        ]
        one = pool(*devices, counts={f"{card}/a": 4 for card in "ghijkl"})
        assert counted([one], SLICE, ()) == Count(18)

    def test_cards_that_one_device_joins_are_packed_together(self) -> None:
        one = pool(
            device("g", "slice", {"g/a": 1}),
            device("h", "slice", {"h/a": 1}),
            device("both", "slice", {"g/a": 1, "h/a": 1}),
            device("i", "slice", {"i/a": 1}),
            counts={"g/a": 1, "h/a": 1, "i/a": 1},
        )
        assert counted([one], SLICE, ()) == Count(3)

    def test_devices_after_a_failing_one_do_not_count(self) -> None:
        one = pool(device("a", "card"), device("x", "bad"), device("b", "card"))
        assert counted([one], CARD, ()) == Count(1, "card fails on x", apart=False)


class TestSteps:
    def test_a_search_of_too_many_steps_is_given_up(self) -> None:
        one = pool(*[device(f"d{number}", "card") for number in range(4)])
        assert found([one], cards(3), steps=3) == keys("d0", "d1", "d2")
        with pytest.raises(CostExceeded):
            found([one], cards(4), steps=3)

    @pytest.mark.parametrize("tainted", [False, True])
    def test_a_count_of_too_many_steps_is_not_exact(self, tainted: bool) -> None:
        devices = [
            *[device(f"d{number}", "slice", {"g/a": 1 + number % 3, "g/b": 1 + number % 2}) for number in range(9)],
            device("t", "slice", {"g/a": 1}, tainted=tainted),
        ]
        one = pool(*devices, counts={"g/a": 3, "g/b": 9})
        assert counted([one], SLICE, ()).exact
        assert counted([one], SLICE, (), 5) == Count(9 if tainted else 10, exact=False, apart=not tainted)

    def test_a_count_of_too_many_kinds_of_parts_is_not_exact(self) -> None:
        devices = [device(f"d{number}", "slice", {"g/a": 1000 + number}) for number in range(2000)]
        one = pool(*devices, counts={"g/a": 100_000})
        assert counted([one], SLICE, ()) == Count(MAX_CLAIM_DEVICES, exact=False)

    def test_the_parts_of_a_card_need_few_steps_and_hostile_counters_no_more_than_allowed(self) -> None:
        primes = (2, 3, 5, 11, 13)
        devices = [device(f"d{n}", "slice", {f"g/{prime}": 3 + n * prime % 7 for prime in primes}) for n in range(150)]
        hostile = pool(*devices, counts={f"g/{prime}": 90 for prime in primes})
        cuts = [(start, size) for size in (1, 2, 4, 8) for start in range(0, 8, size)]
        parts = [
            device(f"p{start}-{size}", "slice" if size == 1 else "card", {f"g/{start + n}": 1 for n in range(size)})
            for start, size in cuts
        ]
        card = pool(*parts, counts={f"g/{n}": 1 for n in range(8)})
        assert not counted([hostile], SLICE, ()).exact
        assert counted([card], SLICE, (), 100) == Count(8)
        assert counted([card], SLICE, keys("p2-2"), 100) == Count(6)

    def test_claims_that_people_make_need_few_steps(self) -> None:
        devices = []
        counts: dict[str, int] = {}
        for card in range(8):
            counts |= {f"g{card}/{part}": 1 for part in range(8)}
            devices.append(device(f"g{card}", "card", {f"g{card}/{part}": 1 for part in range(8)}))
            devices += [device(f"g{card}-{part}", "slice", {f"g{card}/{part}": 1}) for part in range(8)]
        node = pool(*devices, counts=counts)
        assert found([node], cards(8)) is not None
        assert found([node], [*cards(4), *slices(28)]) is not None
        assert counted([node], SLICE, ()) == Count(MAX_CLAIM_DEVICES)
        assert counted([node], CARD, ()) == Count(8)


# Laws


@st.composite
def generated_pools(draw: st.DrawFn, *, tainted: bool, bad: bool) -> list[Pool]:
    """Generate one or two pools of eight devices in all at most."""
    pools = []
    left = 8
    for name in "pq"[: draw(st.integers(1, 2))]:
        counts = {
            f"{counter_set}/{counter}": draw(st.integers(0, 5))
            for counter_set in "gh"[: draw(st.integers(1, 2))]
            for counter in "abc"[: draw(st.integers(1, 3))]
        }
        devices = []
        for number in range(draw(st.integers(0, left))):
            kinds = ["card", "slice", "slice", *(["bad"] if bad and draw(st.integers(0, 4)) == 0 else [])]
            consumed = draw(st.lists(st.sampled_from([*counts]), max_size=3, unique=True))
            devices.append(
                device(
                    f"{name}{number}",
                    draw(st.sampled_from(kinds)),
                    {counter: draw(st.integers(0, 3)) for counter in consumed},
                    tainted=tainted and draw(st.integers(0, 3)) == 0,
                )
            )
        left -= len(devices)
        apart = draw(st.integers(0, len(devices))) if draw(st.integers(0, 4)) == 0 else len(devices)
        remote = tuple(each for each in devices[apart:] if each.consumes)
        pools.append(pool(*devices[:apart], name=name, counts=counts, others=remote))
    return pools


@st.composite
def generated_uses(draw: st.DrawFn, pools: Sequence[Pool]) -> frozenset[DeviceKey]:
    """Generate devices of other claims; they may overcommit counters."""
    every = [each.key(item) for each in pools for item in (*each.devices, *each.others)]
    return frozenset(draw(st.lists(st.sampled_from(every), max_size=3))) if every else frozenset()


generated_requests = st.lists(st.builds(DeviceRequest, st.sampled_from([CARD, SLICE]), st.integers(1, 4)), max_size=3)


def acceptable(
    pools: Sequence[Pool],
    requests: Sequence[DeviceRequest],
    allocated: Collection[DeviceKey],
    result: Sequence[DeviceKey],
) -> bool:
    """Return whether devices are those of the requests, free, not tainted, and within all counters."""
    if len(result) != sum(each.count or 0 for each in requests) or len(set(result)) < len(result):
        return False
    wanted = [each.device_class.name for each in requests for _ in range(each.count or 0)]
    by_key = {(each.driver, each.name, item.name): (each, item) for each in pools for item in each.devices}
    consumed: dict[str, Counter[tuple[str, str]]] = {}
    for key, kind in zip(result, wanted, strict=True):
        each, item = by_key[key]
        if key in allocated or item.tainted or kind_of(item) != kind:
            return False
        if item.consumes:
            consumed.setdefault(each.name, Counter()).update(item.consumes)
    return all(
        amount >= consumed[each.name][counter]
        for each in pools
        if each.name in consumed
        for counter, amount in available(each, allocated).items()
    )


def choices(pools: Sequence[Pool], request: DeviceRequest) -> list[tuple[DeviceKey, ...]]:
    """Return all sets of devices of one request."""
    fitting = [
        (each.driver, each.name, item.name)
        for each in pools
        for item in each.devices
        if kind_of(item) == request.device_class.name
    ]
    return [*combinations(fitting, request.count or 0)]


@given(st.data())
def test_the_search_finds_what_the_scheduler_finds(data: st.DataObject) -> None:
    pools = data.draw(generated_pools(tainted=True, bad=True))
    allocated, requests = data.draw(generated_uses(pools)), data.draw(generated_requests)
    outcome = found(pools, requests, allocated)
    assert outcome == naive_search(pools, allocated, requests)
    if isinstance(outcome, tuple):
        assert acceptable(pools, requests, allocated, outcome)


@given(st.data())
def test_without_taints_nothing_is_found_only_if_nothing_fits(data: st.DataObject) -> None:
    pools = data.draw(generated_pools(tainted=False, bad=False))
    allocated, requests = data.draw(generated_uses(pools)), data.draw(generated_requests)
    assume(sum(each.count or 0 for each in requests) <= 6)
    every = product(*[choices(pools, each) for each in requests])
    fits = any(acceptable(pools, requests, allocated, [key for keys in each for key in keys]) for each in every)
    assert (found(pools, requests, allocated) is not None) == fits


@given(st.data(), st.sampled_from([CARD, SLICE]))
def test_as_many_devices_are_counted_as_a_search_finds(data: st.DataObject, device_class: Any) -> None:
    pools = data.draw(generated_pools(tainted=data.draw(st.booleans()), bad=True))
    allocated = data.draw(generated_uses(pools))
    count = counted(pools, device_class, allocated)
    assert count.exact
    outcomes = [naive_search(pools, allocated, [DeviceRequest(device_class, number)]) for number in range(1, 10)]
    found_numbers = [number for number, outcome in enumerate(outcomes, 1) if isinstance(outcome, tuple)]
    assert count.most == max(found_numbers, default=0)
    assert found_numbers == [*range(1, count.most + 1)]
    assert all(isinstance(outcome, str) == bool(count.failure) for outcome in outcomes[count.most :])
