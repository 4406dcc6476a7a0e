"""The packaged ladders of each card, against the profiles in NVIDIA's MIG user guide."""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import combinations, permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules_engine.accelerators.mig import device_resource
from rules_engine.rules.ladder.value import FallbackLadder
from rules_engine.rules.sources.card_files import card_sets
from rules_engine.rules.sources.rule_files import DEFAULT_RULES, RuleFiles, read_rules
from tests.support.evaluation import GPU, asks, cluster, request, resources
from tools.card_sets import all_files

RULES = DEFAULT_RULES.parent
WHOLE_AMD = "amd.com/gpu"
LEAST = "gpurules.io/least-gpu-memory-gb"
DEVICES: Mapping[str, Sequence[str]] = {
    "mig-a30": ["1g.6gb", "1g.6gb+me", "2g.12gb", "2g.12gb+me", "4g.24gb"],
    "mig-a100-40gb": ["1g.5gb", "1g.5gb+me", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"],
    "mig-a100-80gb": ["1g.10gb", "1g.10gb+me", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"],
    "mig-h100-80gb": ["1g.10gb", "1g.10gb+me", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"],
    "mig-h100-94gb": ["1g.12gb", "1g.12gb+me", "1g.24gb", "2g.24gb", "3g.47gb", "4g.47gb", "7g.94gb"],
    "mig-h200": ["1g.18gb", "1g.18gb+me", "1g.35gb", "2g.35gb", "3g.71gb", "4g.71gb", "7g.141gb"],
    "mig-b200": ["1g.23gb", "1g.23gb+me", "1g.45gb", "2g.45gb", "3g.90gb", "4g.90gb", "7g.180gb"],
    "mig-h100-96gb": ["1g.12gb", "1g.12gb+me", "1g.24gb", "2g.24gb", "3g.48gb", "4g.48gb", "7g.96gb"],
    "mig-gh200-96gb": ["1g.12gb", "1g.12gb+me", "1g.24gb", "2g.24gb", "3g.48gb", "4g.48gb", "7g.96gb"],
    "mig-h20-96gb": ["1g.12gb", "1g.12gb+me", "1g.24gb", "2g.24gb", "3g.48gb", "4g.48gb", "7g.96gb"],
    "mig-h20-141gb": ["1g.18gb", "1g.18gb+me", "1g.35gb", "2g.35gb", "3g.71gb", "4g.71gb", "7g.141gb"],
    "mig-gh200-144gb": ["1g.18gb", "1g.18gb+me", "1g.36gb", "2g.36gb", "3g.72gb", "4g.72gb", "7g.144gb"],
    "mig-gb200": ["1g.23gb", "1g.23gb+me", "1g.47gb", "2g.47gb", "3g.93gb", "4g.93gb", "7g.186gb"],
    "mig-b300": ["1g.34gb", "1g.34gb+me", "1g.67gb", "2g.67gb", "3g.135gb", "4g.135gb", "7g.269gb"],
    "mig-gb300": ["1g.35gb", "1g.35gb+me", "1g.70gb", "2g.70gb", "3g.139gb", "4g.139gb", "7g.278gb"],
    "mig-rtx-pro-6000": [
        *("1g.24gb", "1g.24gb+gfx", "1g.24gb+me", "1g.24gb+me.all", "1g.24gb-me"),
        *("2g.48gb", "2g.48gb+gfx", "2g.48gb+me.all", "2g.48gb-me", "4g.96gb+gfx", "4g.96gb"),
    ],
    "mig-rtx-pro-5000": [
        *("1g.24gb", "1g.24gb+gfx", "1g.24gb+me", "1g.24gb+me.all", "1g.24gb-me", "2g.48gb+gfx", "2g.48gb"),
    ],
    "mig-rtx-pro-4500": ["1g.16gb", "1g.16gb+gfx", "1g.16gb+me.all", "1g.16gb-me", "2g.32gb+gfx", "2g.32gb"],
}
"""The profiles of each card in the section Supported MIG Profiles, smallest first."""

by_card = pytest.mark.parametrize("name", DEVICES)


@cache
def files_of(*names: str) -> RuleFiles:
    return read_rules([RULES / name for name in names])


def ladders(name: str) -> Sequence[FallbackLadder]:
    return [rule for rule in files_of(name).loaded.rules if isinstance(rule, FallbackLadder)]


def extension(resource: str) -> str:
    return resource.partition("gb")[2]


def text_of(name: str) -> str:
    return (RULES / name / "ladders.yaml").read_text(encoding="utf-8")


def size(name: str, resource: str) -> tuple[int, int]:
    """Return the memory and the compute slices of a device; a whole card has those of the largest one."""
    profile = DEVICES[name][-1] if resource == GPU else resource.removeprefix("nvidia.com/mig-")
    slices, memory = re.findall(r"\d+", profile)[:2]
    return int(memory), int(slices)


def test_the_sets_of_cards_are_packaged() -> None:
    assert {folder.name for folder in RULES.glob("mig-*")} == DEVICES.keys()
    for name, devices in DEVICES.items():
        assert card_sets()[name].profiles.keys() == {*devices}


@by_card
def test_each_rung_is_a_device_of_the_card_and_each_device_has_a_rung(name: str) -> None:
    rungs = {rung.resource for ladder in ladders(name) for rung in ladder.rungs}
    assert rungs == {GPU, *map(device_resource, DEVICES[name])}
    for profile in card_sets()[name].aliases:
        assert f"{profile}, which has no rung here" in text_of(name)


@by_card
def test_each_rung_that_gives_less_memory_says_so(name: str) -> None:
    plain, *others, less = text_of(name).split("---\n")
    assumed = "- {resource: nvidia.com/gpu, assume: true}"
    assert re.search(f"# .*less memory than requested.*\n +#.*\n +{assumed}", plain)
    for each in others:
        assert re.search(f"# .*less memory.*\n +{assumed}|{assumed}    # as above", each)
    assert f"{assumed}    # as above" in less
    conditions = re.findall(
        r"mig-(\S+), when: variables.least <= (\d+)} +# (less|the same) memory (?:than|as) (\S+)", less
    )
    assert [row[0] for row in conditions] == [each for each in DEVICES[name][-2::-1] if each.endswith("gb")]
    for profile, least, relation, above in conditions:
        memory, _ = size(name, profile)
        assert int(least) == memory
        assert (memory < size(name, above)[0]) is (relation == "less"), profile


@given(st.data())
def test_a_pod_never_gets_less_memory_than_it_requests_or_says_it_needs(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from([*DEVICES]))
    devices = [device_resource(profile) for profile in DEVICES[name]]
    requested = data.draw(st.sampled_from([*devices, GPU]))
    offered = data.draw(st.sets(st.sampled_from([*devices, GPU])))
    memory = sorted({size(name, device)[0] for device in devices})
    least = data.draw(st.none() | st.sampled_from(memory))
    made = asks({requested: 1}, annotations={} if least is None else {LEAST: str(least)})
    decision = files_of(name).rule_set.mutate(request(made), cluster(*({device: 1} for device in offered)))
    (given_device,) = resources(decision)["limits"]
    before, after = size(name, requested), size(name, given_device)
    assert decision.warnings == ()
    if requested in offered:
        assert given_device == requested
    if least is None or extension(requested):
        assert all(new >= old for new, old in zip(after, before, strict=True))
    else:
        assert after[0] >= min(least, before[0])
    if requested != GPU and extension(requested):
        whole = after == size(name, GPU) and (given_device == GPU or ".me" in requested)
        assert extension(given_device) == extension(requested) or whole
    assert given_device in offered or given_device == GPU


PAIRS = [
    *combinations([name for name in DEVICES if name not in ("mig-gh200-96gb", "mig-h20-96gb", "mig-h20-141gb")], 2)
]
"""Without sets that have the devices of another one."""


@pytest.mark.parametrize("names", PAIRS)
def test_beside_the_set_of_another_card_no_pod_gets_less_memory_and_nothing_changes_twice(names: Sequence[str]) -> None:
    devices = sorted({device_resource(profile) for name in names for profile in DEVICES[name]})
    rules = files_of(*names).rule_set
    for requested, offered in permutations(devices, 2):
        on = cluster({offered: 1})
        decision = rules.mutate(request(asks({requested: 1})), on)
        (given_device,) = resources(decision)["limits"]
        assert given_device == GPU or memory_gb(given_device) >= memory_gb(requested)
        assert rules.mutate(request(decision.result), on).patch == ()


def memory_gb(resource: str) -> int:
    return int(resource.partition("g.")[2].partition("gb")[0])


@pytest.mark.parametrize("name", card_sets())
def test_sets_of_cards_are_those_of_the_catalogue(name: str) -> None:
    written = {file.name: file.read_text(encoding="utf-8") for file in (RULES / name).iterdir()}
    assert written == all_files(name, card_sets()[name])


@given(st.data())
def test_a_partition_is_never_replaced_with_a_smaller_one_or_one_of_another_memory_mode(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from([name for name in card_sets() if name.startswith("amd-")]))
    parts = card_sets()[name].partitions
    requested = data.draw(st.sampled_from([*parts, WHOLE_AMD]))
    offered = data.draw(st.sets(st.sampled_from([*parts, WHOLE_AMD])))
    decision = files_of(name).rule_set.mutate(
        request(asks({requested: 1})), cluster(*({device: 1} for device in offered))
    )
    (made,) = resources(decision)["limits"]
    sizes = {**parts, WHOLE_AMD: 1}
    assert made == requested if requested in offered else made in offered or made in (WHOLE_AMD, requested)
    assert sizes[made] < sizes[requested] or made == requested or {sizes[made], sizes[requested]} == {1}
    assert sizes[made] == 1 or made.rpartition("_")[2] == requested.rpartition("_")[2]
