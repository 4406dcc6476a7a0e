"""The search for devices of a claim, against a search and a check written from kube-scheduler's."""

from collections import Counter
from collections.abc import Collection, Sequence
from itertools import combinations, product
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from rules_engine.cluster.devices.allocation import Count, DeviceRequest, allocate, count_devices
from rules_engine.cluster.devices.offers import ANSWER_COST
from rules_engine.cluster.devices.pools import Pool
from rules_engine.cluster.devices.selectors import SelectorError
from rules_engine.language.cel import Budget, CostExceeded
from rules_engine.model.kubernetes.devices import MAX_CLAIM_DEVICES, Device, DeviceClass, DeviceKey
from tests.support.api import DRIVER
from tests.support.devices import Consumption, counters, device, has_kind, kind_class, kind_of
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
        return allocate(pools, requests, allocated, has_kind, Budget(steps).spend)
    except SelectorError as error:
        return str(error)


def counted(
    pools: Sequence[Pool], device_class: DeviceClass, allocated: Collection[DeviceKey], steps: int = ANSWER_COST
) -> Count:
    """Return a count without its sums."""
    return replace(count_devices(pools, device_class, allocated, has_kind, Budget(steps).spend), least=0, room=0)


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
def in_use(draw: st.DrawFn, pools: Sequence[Pool]) -> frozenset[DeviceKey]:
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
    if len(result) != sum(each.count for each in requests) or len(set(result)) < len(result):
        return False
    wanted = [each.device_class.name for each in requests for _ in range(each.count)]
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
    return [*combinations(fitting, request.count)]


@given(st.data())
def test_the_search_finds_what_the_scheduler_finds(data: st.DataObject) -> None:
    pools = data.draw(generated_pools(tainted=True, bad=True))
    allocated, requests = data.draw(in_use(pools)), data.draw(generated_requests)
    outcome = found(pools, requests, allocated)
    assert outcome == naive_search(pools, allocated, requests)
    if isinstance(outcome, tuple):
        assert acceptable(pools, requests, allocated, outcome)


@given(st.data())
def test_without_taints_nothing_is_found_only_if_nothing_fits(data: st.DataObject) -> None:
    pools = data.draw(generated_pools(tainted=False, bad=False))
    allocated, requests = data.draw(in_use(pools)), data.draw(generated_requests)
    assume(sum(each.count for each in requests) <= 6)
    every = product(*[choices(pools, each) for each in requests])
    fits = any(acceptable(pools, requests, allocated, [key for keys in each for key in keys]) for each in every)
    assert (found(pools, requests, allocated) is not None) == fits


@given(st.data(), st.sampled_from([CARD, SLICE]))
def test_as_many_devices_are_counted_as_a_search_finds(data: st.DataObject, device_class: Any) -> None:
    pools = data.draw(generated_pools(tainted=data.draw(st.booleans()), bad=True))
    allocated = data.draw(in_use(pools))
    count = counted(pools, device_class, allocated)
    assert count.exact
    outcomes = [naive_search(pools, allocated, [DeviceRequest(device_class, number)]) for number in range(1, 10)]
    found_numbers = [number for number, outcome in enumerate(outcomes, 1) if isinstance(outcome, tuple)]
    assert count.most == max(found_numbers, default=0)
    assert found_numbers == [*range(1, count.most + 1)]
    assert all(isinstance(outcome, str) == bool(count.failure) for outcome in outcomes[count.most :])
