"""Hypothesis strategies of the laws."""

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from rules_engine.cluster.devices.offers import with_device_offers
from rules_engine.cluster.nodes import NodeFilter, NodeRequirement, Offered
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.cluster import Cluster, Node, Taint
from rules_engine.model.kubernetes.devices import DeviceClass, ResourceSlice
from rules_engine.model.kubernetes.placement import Toleration
from rules_engine.model.kubernetes.quantity import Quantity
from rules_engine.model.rules.rule import ConditionKind as Kind
from rules_engine.model.rules.rule import LabelRequirement, LabelSelector, Mode
from rules_engine.rules.injection.value import InitContainers, OnConflict, ResourceInjection
from rules_engine.rules.ladder.value import (
    Counts,
    Direction,
    FallbackLadder,
    Rung,
    Unplaced,
    WhenExhausted,
)
from tests.support.devices import device, devices_of, kind_class, on, part
from tests.support.evaluation import HERE, container, injection, ladder, pod, rung, rung_place

RESOURCES = ("nvidia.com/mig-4g", "nvidia.com/mig-3g", "amd.com/x~y", "nvidia.com/mig-1g", "nvidia.com/gpu")
GPUS = RESOURCES[-1]
INJECTED = ("cpu", "memory", "ephemeral-storage", "nvidia.com/shm")

_NOTATIONS = ("{}", "{}000m", "{}e0", "{}.0")


@st.composite
def counts(draw: st.DrawFn, least: int = 0, most: int = 4) -> str:
    """Generate a whole number in one of its notations."""
    return draw(st.sampled_from(_NOTATIONS)).format(draw(st.integers(least, most)))


def amounts() -> st.SearchStrategy[str]:
    """Return a strategy of quantities of cpu, memory and similar resources."""
    return st.builds("{}{}".format, st.integers(0, 9), st.sampled_from(["", "m", "00m", "Gi", "Mi", "M", ".5", "e3"]))


@st.composite
def containers(draw: st.DrawFn, name: str, *, init: bool, shared: bool = False) -> dict[str, Json]:
    """Generate a container with up to three resources, each in limits, in requests or in both."""
    sections: dict[str, dict[str, str]] = {"limits": {}, "requests": {}}
    for resource in draw(st.lists(st.sampled_from(RESOURCES), max_size=3, unique=True)):
        count = draw(counts())
        for section in draw(st.sampled_from([("limits",), ("requests",), ("limits", "requests")])):
            sections[section][resource] = count
    if shared:
        for resource in draw(st.lists(st.sampled_from(INJECTED), max_size=2, unique=True)):
            for section in draw(st.sampled_from([("limits",), ("requests",), ("limits", "requests")])):
                sections[section][resource] = draw(amounts())
    sidecar = init and draw(st.booleans())
    return container(name, limits=sections["limits"], requests=sections["requests"], sidecar=sidecar)


@st.composite
def pods(draw: st.DrawFn, *, shared: bool = False) -> dict[str, Json]:
    """Generate a pod of one to three containers and up to two init containers."""
    regular = [draw(containers(f"c{n}", init=False, shared=shared)) for n in range(draw(st.integers(1, 3)))]
    init = [draw(containers(f"i{n}", init=True, shared=shared)) for n in range(draw(st.integers(0, 2)))]
    given = draw(st.sampled_from([None, {}, {"gpu-webhook.k8s.io/fallback": "old->new", "a/b": "c"}]))
    made = pod(*regular, init=init, annotations=given)
    if draw(st.integers(0, 9)) == 0:
        made["spec"]["overhead"] = {draw(st.sampled_from(RESOURCES)): "1"}  # type: ignore[call-overload, index]
    return made


@st.composite
def levelled_pods(draw: st.DrawFn) -> dict[str, Json]:
    """Generate a pod with pod-level resources (spec.resources), which may be too low."""
    made: dict[str, Any] = draw(pods(shared=True))
    named = st.dictionaries(st.sampled_from(["cpu", "memory"]), amounts(), max_size=2)
    made["spec"]["resources"] = {name: draw(named) for name in ("limits", "requests")}
    return made


@st.composite
def levelled_gpu_pods(draw: st.DrawFn) -> dict[str, Json]:
    """Generate a pod with GPUs, a sidecar and an init container; their few cpus may exceed those of its own level."""

    def few(gpus: int, most: int) -> dict[str, int]:
        return ({GPUS: gpus} if gpus else {}) | draw(st.sampled_from([{}, {"cpu": draw(st.integers(0, most))}]))

    sidecar = container("s", few(draw(st.integers(0, 1)), 2), sidecar=True)
    init = draw(st.permutations([sidecar, container("i", few(draw(st.integers(0, 2)), 9))]))
    level = st.dictionaries(st.sampled_from(["cpu", "cpu", "memory"]), st.integers(0, 4).map(str), min_size=1)
    resources = {name: draw(level) for name in ("limits", "requests")}
    main = container("c", few(draw(st.integers(1, 2)), 9))
    return pod(main, container("d", few(0, 2)), init=init, resources=resources)


@st.composite
def nodes(draw: st.DrawFn, name: str) -> Node:
    """Generate a node with some of the resources, some of them in use."""

    def some(most: int) -> dict[str, Quantity]:
        names = draw(st.lists(st.sampled_from(RESOURCES), max_size=3, unique=True))
        return {resource: Quantity.of(draw(st.integers(0, most))) for resource in names}

    return Node(
        name=name,
        labels={"pool": draw(st.sampled_from("ab"))},
        ready=draw(st.integers(0, 4)) > 0,
        unschedulable=draw(st.integers(0, 4)) == 0,
        allocatable=some(9),
        used=some(3),
    )


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    return Cluster(nodes=tuple(draw(nodes(f"n{index}")) for index in range(draw(st.integers(0, 3)))))


@st.composite
def driver_clusters(draw: st.DrawFn) -> Cluster:
    """Generate a cluster of `clusters` whose drivers offer some of the resources, also as parts of one card."""
    cluster = draw(clusters())
    classes = [DeviceClass(name=f"c{number}", resource=name) for number, name in enumerate(RESOURCES)]
    served = draw(st.lists(st.sampled_from(classes), min_size=2, unique_by=lambda each: each.name))
    classes = [kind_class(each.name, each.resource) for each in served]
    slices: list[ResourceSlice] = []
    for node in cluster.nodes:
        counts = {"card/parts": draw(st.integers(1, 4))}
        devices = [
            device(
                f"{each.name}-{number}", each.name, draw(st.sampled_from([{}, {"card/parts": 1}, {"card/parts": 2}]))
            )
            for each in classes
            for number in range(draw(st.integers(0, 3)))
        ]
        where: dict[str, Any] = {"pool": node.name, "nodes": on(node.name), "slice_count": 2}
        slices += [part(f"{node.name}-0", counts=counts, **where), part(f"{node.name}-1", *devices, **where)]
    return with_device_offers(replace(cluster, devices=devices_of(classes, *slices)))


_REQUIRE = (
    frozenset[NodeRequirement](),
    frozenset({NodeRequirement.READY}),
    frozenset({NodeRequirement.SCHEDULABLE, NodeRequirement.MATCHES_POD}),
)
_SELECTORS = (LabelSelector(), LabelSelector(), LabelSelector((LabelRequirement("pool", Kind.IN, ("a",)),)))


@st.composite
def ladders(draw: st.DrawFn, /, name: str = "ladder", **fields: Any) -> FallbackLadder:
    """Generate a ladder over some of the resources, with all options of ladders."""
    names = draw(st.lists(st.sampled_from(RESOURCES), min_size=1, unique=True))
    assumed = draw(st.sampled_from([None, *range(len(names))]))
    rungs = [
        Rung(resource=resource, location=HERE, weight=draw(st.integers(1, 7)), assume=index == assumed)
        for index, resource in enumerate(names)
    ]
    chosen = {
        "direction": draw(st.sampled_from(Direction)),
        "counts": draw(st.sampled_from(Counts)),
        "offered": draw(st.sampled_from(Offered)),
        "nodes": NodeFilter(draw(st.sampled_from(_SELECTORS)), draw(st.sampled_from(_REQUIRE))),
        "when_exhausted": draw(st.sampled_from([WhenExhausted.KEEP] * 4 + [WhenExhausted.DENY])),
        "annotation": draw(st.sampled_from(["gpurules.io/fallback", "gpu-webhook.k8s.io/fallback", "a/b", ""])),
    }
    return ladder(*rungs, name=name, **{**chosen, **fields})


_CARDS = ("a", "b", "c")
_KEYS = st.sampled_from(["", "x", "xy"])
"""Keys of taints and tolerations, each a character."""


@st.composite
def first_pool_ladders(draw: st.DrawFn) -> FallbackLadder:
    """Generate a ladder over pools of cards whose rungs give pods tolerations or an annotation; unplaced: First."""
    rungs = [
        rung(
            GPUS,
            draw(st.sampled_from([None, None, "'a/b' in object.metadata.?annotations.orValue({})"])),
            name=card,
            pool=(("card", card),),
            place=rung_place(
                tolerations=tuple(Toleration(key=key, operator="Exists", value="", effect="") for key in draw(_KEYS)),
                annotations=draw(st.sampled_from([{}, {"a/b": card}])),
            ),
        )
        for card in draw(st.permutations(_CARDS))
    ]
    return ladder(
        *rungs,
        unplaced=Unplaced.FIRST,
        direction=draw(st.sampled_from([Direction.DOWN, *Direction])),
        when_exhausted=draw(st.sampled_from(WhenExhausted)),
        nodes=NodeFilter(require=frozenset({NodeRequirement.MATCHES_POD})),
    )


@st.composite
def card_clusters(draw: st.DrawFn) -> Cluster:
    """Generate a cluster with a tainted node of each card, most of them without GPUs."""
    taints = [tuple(Taint(key=key, effect="NoSchedule") for key in draw(_KEYS)) for _ in _CARDS]
    amounts = [Quantity.of(draw(st.sampled_from([0, 0, 2]))) for _ in _CARDS]
    return Cluster(
        nodes=tuple(
            Node(name=card, labels={"card": card}, taints=keys, allocatable={GPUS: amount})
            for card, keys, amount in zip(_CARDS, taints, amounts, strict=True)
        )
    )


@st.composite
def ladder_sets(draw: st.DrawFn) -> list[FallbackLadder]:
    """Generate up to three ladders that share resources, one in five in audit mode."""
    modes = st.sampled_from([Mode.ENFORCE] * 4 + [Mode.AUDIT])
    return [
        draw(ladders(f"l{index}", mode=draw(modes), priority=draw(st.integers(0, 1))))
        for index in range(draw(st.integers(1, 3)))
    ]


@st.composite
def injections(draw: st.DrawFn, /, name: str = "injection", **fields: Any) -> ResourceInjection:
    """Generate an injection for all pods that request its GPU resource."""
    names = draw(st.lists(st.sampled_from(INJECTED), max_size=3, unique=True))
    chosen = {
        "gpu_resource": draw(st.sampled_from([GPUS, GPUS, RESOURCES[0]])),
        "on_conflict": draw(st.sampled_from(OnConflict)),
        "init_containers": draw(st.sampled_from([*InitContainers, InitContainers.INJECT])),
        "annotations": draw(st.sampled_from([{}, {"a/b": "d"}, {"e": "f", "g~h/i": ""}])),
    }
    coefficients = {resource: draw(amounts()) for resource in names}
    return injection(coefficients, name=name, gpu_type=None, **{**chosen, **fields})


def jsons(*, leaves: int = 12) -> st.SearchStrategy[Json]:
    """Return a strategy of JSON values, with member names that JSON Pointers must escape."""
    names = st.sampled_from(["a", "", "~", "/", "~1", "a/b", "0", "é"]) | st.text(max_size=3)
    scalars = st.none() | st.booleans() | st.integers(-3, 3) | st.floats(allow_nan=False) | st.text(max_size=3)
    return st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4),
        max_leaves=leaves,
    )
