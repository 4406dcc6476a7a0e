"""Amounts that drivers serve on nodes: together, on one node, and never where the scheduler gives up the pod."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules_engine.cluster.devices import offers as offering
from rules_engine.cluster.devices.offers import with_device_offers
from rules_engine.cluster.nodes import NodeFilter, NodeRequirement, Offered, node_index_of
from rules_engine.cluster.nodes.offers import Offers, Reach, UnknownOfferError
from rules_engine.language.cel import Budget
from rules_engine.language.cel.budget import REQUEST_COST
from rules_engine.model.kubernetes.cluster import Cluster, Node
from rules_engine.model.kubernetes.devices import Device, DeviceKey, ResourceSlice
from rules_engine.model.kubernetes.pod import Pod
from rules_engine.model.kubernetes.quantity import NANOS
from rules_engine.model.rules.rule import ConditionKind, FailurePolicy, LabelRequirement, LabelSelector
from rules_engine.rules.ladder.value import FallbackLadder, WhenExhausted
from tests.support.api import DRIVER
from tests.support.budgets import units_spent
from tests.support.devices import device, devices_of, in_use, kind_class, on, part
from tests.support.evaluation import compiled, container, ladder, mutated, node, pod, request, rung

CARDS, SLICES, PLUGIN = "example.com/card", "example.com/slice", "example.com/plugin"
CLASSES = (kind_class("card", CARDS), kind_class("slice", SLICES))
BAD = Device(name="bad", attributes={"other": {"kind": "card"}})
"""A device with which the selectors of both classes fail."""


def cluster(*nodes: Node, slices: tuple[ResourceSlice, ...], used: tuple[DeviceKey, ...] = ()) -> Cluster:
    devices = devices_of(CLASSES, *slices, allocated=in_use(used))
    return with_device_offers(Cluster(nodes=nodes, devices=devices))


def own(name: str, *devices: Device) -> ResourceSlice:
    """Return the slice of devices of a node, in a pool of its own."""
    return part(f"slice-{name}", *devices, pool=name, nodes=on(name))


def split_card(name: str) -> tuple[ResourceSlice, ...]:
    """Return a card of a node that is offered whole and in halves."""
    devices = [
        device("whole", "card", {"g/a": 1, "g/b": 1}),
        device("left", "slice", {"g/a": 1}),
        device("right", "slice", {"g/b": 1}),
    ]
    return (
        part(f"counts-{name}", counts={"g/a": 1, "g/b": 1}, pool=name, nodes=on(name), slice_count=2),
        part(f"slice-{name}", *devices, pool=name, nodes=on(name), slice_count=2),
    )


def covers(
    cluster: Cluster,
    cards: int = 0,
    slices: int = 0,
    plugin: int = 0,
    *,
    offered: Offered = Offered.ALLOCATABLE,
    nodes: NodeFilter = NodeFilter(),  # noqa: B008 - immutable
    selecting: dict[str, str] | None = None,
) -> bool:
    """Return whether a ladder finds one node that offers these amounts."""
    rule = ladder(CARDS, SLICES, PLUGIN, offered=offered, nodes=nodes)
    wanted = Pod.parse(pod(nodeSelector=selecting or {}))
    demand = demand_of(cards, slices, plugin)
    offers = Offers(rule.query, Reach(wanted, cluster), cluster, Budget())
    covered = offers.cover(demand)
    assert not (covered and offers.failure(demand))
    return covered


def demand_of(cards: int = 0, slices: int = 0, plugin: int = 0) -> dict[str, int]:
    amounts = {CARDS: cards, SLICES: slices, PLUGIN: plugin}
    return {name: amount * NANOS for name, amount in amounts.items() if amount}


def failure(cluster: Cluster, cards: int = 0, slices: int = 0, *, nodes: NodeFilter = NodeFilter()) -> str:  # noqa: B008 - immutable
    """Return why the scheduler rejects a pod with these amounts on all nodes."""
    rule = ladder(CARDS, SLICES, PLUGIN, nodes=nodes)
    offers = Offers(rule.query, Reach(Pod.parse(pod()), cluster), cluster, Budget())
    return offers.failure(demand_of(cards, slices))


def test_devices_of_one_node_are_offered() -> None:
    found = cluster(node("a"), node("b"), slices=(own("a", device("x", "card"), device("y", "card")),))
    assert covers(found, cards=2)
    assert not covers(found, cards=3)
    assert not covers(found, slices=1)


def test_devices_that_are_no_longer_read_are_not_known() -> None:
    found = cluster(node("a", {PLUGIN: 1}), slices=(own("a", device("x", "card")),))
    unread = found.marked(found.freshness, frozenset([CARDS]), found.classes, found.devices)
    with pytest.raises(UnknownOfferError, match=f"what drivers offer of {CARDS}"):
        covers(unread, cards=1)
    assert covers(unread, plugin=1)
    assert covers(found, cards=1)
    assert unread.views is found.views


def test_a_card_and_a_part_of_it_are_not_offered_together() -> None:
    found = cluster(node("a"), slices=split_card("a"))
    assert covers(found, cards=1)
    assert covers(found, slices=2)
    assert not covers(found, cards=1, slices=1)


def test_amounts_of_two_nodes_do_not_add_up() -> None:
    found = cluster(node("a"), node("b"), slices=(own("a", device("x", "card")), own("b", device("y", "slice"))))
    assert not covers(found, cards=1, slices=1)


def test_devices_and_a_device_plugin_serve_a_pod_together() -> None:
    slices = (own("a", device("x", "card")), own("b", device("y", "card")))
    found = cluster(node("a"), node("b", {PLUGIN: 2}), slices=slices)
    assert covers(found, cards=1, plugin=2)
    assert not covers(found, cards=1, plugin=3)


def test_requests_of_drivers_and_of_a_device_plugin_stay_together() -> None:
    found = cluster(node("a", {PLUGIN: 1}), slices=(own("a", device("x", "card")),))
    decision = mutated(pod(container("main", {PLUGIN: 1, CARDS: 1})), ladder(CARDS, PLUGIN), on=found)
    assert [each.reason for step in decision.trace for each in step.resources] == ["offered", "offered"]


def test_an_assumed_rung_takes_no_devices_from_others() -> None:
    rule, found = ladder(SLICES, rung(CARDS, assume=True)), cluster(node("a"), slices=split_card("a"))
    decision = mutated(pod(container("main", {SLICES: 1, CARDS: 1})), rule, on=found)
    assert [each.reason for step in decision.trace for each in step.resources] == ["assumed", "offered"]


def test_a_device_plugin_may_offer_what_drivers_offer_elsewhere() -> None:
    found = cluster(node("a", {CARDS: 40, SLICES: 1}), node("b"), slices=split_card("b"))
    assert covers(found, cards=2, slices=1)
    assert not covers(found, cards=2, slices=2)


def test_used_devices_are_not_available() -> None:
    found = cluster(node("a"), slices=split_card("a"), used=((DRIVER, "a", "left"),))
    assert covers(found, cards=1)
    assert covers(found, slices=2)
    assert not covers(found, cards=1, offered=Offered.AVAILABLE)
    assert not covers(found, slices=2, offered=Offered.AVAILABLE)
    assert covers(found, slices=1, offered=Offered.AVAILABLE)


def test_a_claim_of_too_many_devices_is_given_up() -> None:
    devices = [*[device(f"c{n}", "card") for n in range(20)], *[device(f"s{n}", "slice") for n in range(20)]]
    found = cluster(node("a"), node("b"), slices=(own("a", *devices),))
    assert covers(found, cards=16, slices=16)
    assert failure(found, cards=16, slices=16) == ""
    assert not covers(found, cards=16, slices=17)
    assert failure(found, cards=16, slices=17) == "on node a, 33 devices are requested, and a claim has at most 32"
    assert failure(found, cards=33).endswith("33 devices are requested, and a claim has at most 32")


def test_a_device_plugin_with_more_does_not_save_the_pod() -> None:
    alone = cluster(node("a", {CARDS: 40}), slices=())
    assert covers(alone, cards=33)
    assert not covers(cluster(node("a", {CARDS: 40}), node("b"), slices=()), cards=33)


class TestFailingSelectors:
    """A node on which a selector fails makes the scheduler give up the pod, whatever other nodes offer."""

    slices = (own("a", device("x", "card"), device("y", "card")), own("b", BAD))
    in_a = NodeFilter(LabelSelector((LabelRequirement("zone", ConditionKind.IN, ("a",)),)))

    def test_the_pod_is_given_up(self) -> None:
        assert not covers(cluster(node("a"), node("b"), slices=self.slices), cards=1)

    def test_the_failure_names_node_class_device_and_attribute(self) -> None:
        found = cluster(node("a", labels={"zone": "a"}), node("b"), slices=self.slices)
        assert failure(found, cards=1) == (
            "on node b, a selector of DeviceClass card fails on device bad of gpu.nvidia.com: "
            "device.attributes['gpu.nvidia.com'].kind: no such key (.? and [?…] read what may be absent)"
        )
        assert "DeviceClass card fails" in failure(found, cards=1, slices=1)
        assert "DeviceClass slice fails" in failure(found, slices=1)
        by_pod = NodeFilter(require=frozenset({NodeRequirement.MATCHES_POD}))
        assert failure(found, cards=1, nodes=by_pod).startswith("on node b, ")
        assert failure(found, cards=1, nodes=self.in_a) == ""

    def test_nodes_that_do_not_count_have_no_say(self) -> None:
        found = cluster(node("a", labels={"zone": "a"}), node("b"), slices=self.slices)
        assert covers(found, cards=1, nodes=self.in_a)

    def test_nodes_on_which_the_pod_may_not_run_have_no_say(self) -> None:
        found = cluster(node("a", labels={"zone": "a"}), node("b"), slices=self.slices)
        by_pod = NodeFilter(require=frozenset({NodeRequirement.MATCHES_POD}))
        assert covers(found, cards=1, nodes=by_pod, selecting={"zone": "a"})
        assert not covers(found, cards=1, nodes=by_pod)

    def test_nodes_that_lack_another_amount_have_no_say(self) -> None:
        slices = self.slices
        assert covers(cluster(node("a", {PLUGIN: 1}), node("b"), slices=slices), cards=1, plugin=1)
        assert not covers(cluster(node("a", {PLUGIN: 1}), node("b", {PLUGIN: 1}), slices=slices), cards=1, plugin=1)

    def test_devices_before_the_failing_one_are_served(self) -> None:
        found = cluster(node("a"), slices=(own("a", device("x", "card"), BAD, device("y", "card")),))
        assert covers(found, cards=1)
        assert not covers(found, cards=2)


def spent(rule: FallbackLadder, limits: dict[str, int], on: Cluster) -> int:
    """Return the cost of a decision."""
    budget = Budget()
    [step] = compiled(rule).mutate(request(pod(container("main", limits))), on, budget=lambda: budget).trace
    assert step.reason != "evaluation-error"
    return units_spent(budget)


class TestCosts:
    """A ladder whose search for devices costs too much fails, as its failurePolicy says."""

    slices = (own("a", *[device(f"c{n}", "card") for n in range(4)], device("s", "slice"), device("t", "slice")),)
    pod = pod(container("main", {CARDS: 1, SLICES: 1}))

    @pytest.mark.parametrize("offered", Offered)
    @pytest.mark.parametrize("exhausted", WhenExhausted)
    @pytest.mark.parametrize("policy", FailurePolicy)
    def test_the_failure_policy_decides(
        self, offered: Offered, exhausted: WhenExhausted, policy: FailurePolicy
    ) -> None:
        rule = ladder(CARDS, SLICES, offered=offered, when_exhausted=exhausted, failure_policy=policy)
        on = cluster(node("a"), slices=self.slices)
        decision = compiled(rule).mutate(request(self.pod), on, budget=lambda: Budget(10))
        message = (
            f"it takes too long to say which devices fit together: 1 of {CARDS} and 1 of {SLICES}: "
            "the cost limit of 10 for one request is used up"
        )
        if policy is FailurePolicy.IGNORE:
            assert decision.warnings == (f"FallbackLadder/ladder was ignored: {message}",)
            assert decision.allowed
        else:
            assert decision.status is not None
            assert decision.status.message == f"FallbackLadder/ladder: could not be evaluated: {message}"
            assert not decision.allowed
        assert compiled(rule).mutate(request(self.pod), on).trace[0].reason == "offered"

    def test_equal_nodes_are_searched_once(self) -> None:
        halves = [device(f"s{number}", "slice", {"g/a": 1}) for number in range(3)]
        devices = [device("c", "card", {"g/a": 2}), *halves, device("t", "slice", {"g/a": 1, "h/a": 9})]
        names = [f"n{number}" for number in range(20)]
        slices = [
            made
            for name in names
            for made in (
                part(f"{name}-0", counts={"g/a": 4, "h/a": 9}, pool=name, nodes=on(name), slice_count=2),
                part(f"{name}-1", *devices, pool=name, nodes=on(name), slice_count=2),
            )
        ]
        one, many = (cluster(*map(node, some), slices=tuple(slices)) for some in (names[:1], names))
        assert covers(many, cards=1, slices=2)
        assert not covers(many, cards=1, slices=3)
        limits = {CARDS: 1, SLICES: 3}
        cold, of_one, of_many = (spent(ladder(CARDS, SLICES), limits, found) for found in (one, one, many))
        assert of_one < cold
        assert of_one < of_many < of_one + 20 * len(names)

    def test_each_node_and_device_has_a_cost(self) -> None:
        def cost(nodes: int, cards: int, *more: Device) -> int:
            names = [f"n{number}" for number in range(nodes)]
            devices = [device(f"c{number}", "card") for number in range(cards + 1)]
            slices = [own(name, *devices, device(f"s{name}", "slice"), *more) for name in names]
            on = cluster(*map(node, names), slices=tuple(slices), used=tuple((DRIVER, name, "c0") for name in names))
            rule = ladder(CARDS, SLICES, offered=Offered.AVAILABLE)
            return spent(rule, {CARDS: cards, SLICES: 1}, on)

        least = cost(1, 2)
        assert cost(30, 2) > 30
        assert cost(1, 20, BAD) > least + 20

    def test_ordinary_pods_cost_a_fraction_on_busy_nodes(self) -> None:
        """Each of 200 nodes has another use of its eight cards, of seven parts each."""
        random, kinds = Random(1), {"card": (7, 1), "slice": (3, 2), "part": (1, 7)}
        devices = [
            device(f"{kind}-{number}-{place}", kind, {f"g{number}/s": size})
            for kind, (size, count) in kinds.items()
            for number in range(8)
            for place in range(count)
        ]
        names = [f"n{number}" for number in range(200)]
        slices, used = [], []
        for name in names:
            slices.append(
                part(f"{name}-c", pool=name, nodes=on(name), counts={f"g{n}/s": 7 for n in range(8)}, slice_count=2)
            )
            slices.append(part(f"{name}-d", *devices, pool=name, nodes=on(name), slice_count=2))
            used += [(DRIVER, name, f"part-{n}-{place}") for n in range(8) for place in range(random.randint(0, 6))]
        classes = tuple(kind_class(kind, f"example.com/{kind}") for kind in kinds)
        made = devices_of(classes, *slices, allocated=in_use(used))
        on_them = with_device_offers(Cluster(nodes=tuple(map(node, names)), devices=made))
        rule = ladder(*(each.resource for each in classes), offered=Offered.AVAILABLE)
        for amounts in ((1, 2, 2), (0, 4, 8), (2, 4, 4), (0, 8, 8), (1, 8, 12)):
            limits = {each.resource: amount for each, amount in zip(classes, amounts, strict=True) if amount}
            assert spent(rule, limits, on_them) < REQUEST_COST // 10


class TestUnknown:
    @pytest.fixture(autouse=True)
    def little(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(offering, "ANSWER_COST", 30)

    costly = (
        part("counts", counts={"g/a": 5, "g/b": 4}, pool="a", nodes=on("a"), slice_count=2),
        part(
            "devices",
            *[device(f"s{n}", "slice", {"g/a": 1 + n % 3, "g/b": 1 + n % 2}) for n in range(9)],
            pool="a",
            nodes=on("a"),
            slice_count=2,
        ),
    )

    def test_what_was_not_published_is_an_error(self) -> None:
        with pytest.raises(
            UnknownOfferError, match=rf"^it takes too long to say which devices fit together: 9 of {SLICES}$"
        ):
            covers(cluster(node("a"), slices=self.costly), slices=9)

    @pytest.mark.parametrize("exhausted", WhenExhausted)
    def test_a_ladder_that_denies_denies_what_it_cannot_find_out(self, exhausted: WhenExhausted) -> None:
        on_it = cluster(node("a"), slices=self.costly)
        rule = ladder(SLICES, when_exhausted=exhausted)
        decision = compiled(rule).mutate(request(pod(container("main", {SLICES: 9}))), on_it)
        assert decision.allowed is (exhausted is WhenExhausted.KEEP)
        assert f"it takes too long to say which devices fit together: 9 of {SLICES}" in str(decision.trace)

    def test_another_node_that_offers_the_amounts_settles_it(self) -> None:
        assert covers(cluster(node("a"), node("b", {SLICES: 9}), slices=self.costly), slices=9)


def test_an_updated_index_answers_as_a_new_one() -> None:
    (old,) = cluster(node("a"), slices=()).nodes
    (failing,) = cluster(node("a"), slices=(own("a", device("x", "card"), BAD),)).nodes
    before = Cluster(nodes=(node("a"),))
    assert (node_index_of(before).served, node_index_of(before).uncertain) == (frozenset(), 0)
    after = before.changed((old,), [(node("a"), old)], {})
    index = node_index_of(after)
    assert (index.served, index.uncertain) == (node_index_of(Cluster(nodes=(old,))).served, 0)
    last = after.changed((failing,), [(old, failing)], {})
    assert node_index_of(last).uncertain == 1
    assert covers(last, cards=1)
    assert not covers(last, cards=2)
    assert node_index_of(last.changed((old,), [(failing, old)], {})).uncertain == 0


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 2), st.booleans()), max_size=3),
    st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 1)),
)
def test_a_demand_is_covered_if_one_node_serves_it_and_none_fails(
    shapes: list[tuple[int, int, int, bool]], demand: tuple[int, int, int]
) -> None:
    cards, parts, plugin = demand
    nodes, slices, answers = [], [], []
    for index, (own_cards, own_parts, own_plugin, failing) in enumerate(shapes):
        name = f"n{index}"
        nodes.append(node(name, {PLUGIN: own_plugin} if own_plugin else {}))
        kinds = ["card"] * own_cards + ["slice"] * own_parts
        devices = [device(f"{name}-{number}", kind) for number, kind in enumerate(kinds)]
        slices.append(own(name, *devices, *([BAD] if failing else [])))
        fits = cards <= own_cards and parts <= own_parts
        if plugin <= own_plugin:
            # The search tries the requests by name; one that has all of its devices does not meet the failing one.
            answers.append("yes" if fits else "fails" if failing and cards + parts else "no")
    expected = "yes" in answers and "fails" not in answers
    assert covers(cluster(*nodes, slices=tuple(slices)), cards, parts, plugin) == expected
