"""Layouts of cards, enumerated from what `nvidia-smi mig -lgipp` prints."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache

FOUR = "{a} {{0,1,2,3}}:1, {a}+me {{0,1,2,3}}:1, {b} {{0,2}}:2, {b}+me {{0,2}}:2, {c} {{0}}:4"
EIGHT = (
    "{a} {{0,1,2,3,4,5,6}}:1, {a}+me {{0,1,2,3,4,5,6}}:1, {b} {{0,2,4,6}}:2, {c} {{0,2,4}}:2, {d} {{0,4}}:4, "
    "{e} {{0}}:4, {f} {{0}}:8"
)
TWELVE = (
    "{a} {{0,3,6,9}}:3, {a}+me {{0,3,6,9}}:3, {a}+me.all {{0,3,6,9}}:3, {a}-me {{0,3,6,9}}:3, {a}+gfx {{0,3,6,9}}:3, "
    "{b} {{0,6}}:6, {b}+me.all {{0,6}}:6, {b}-me {{0,6}}:6, {b}+gfx {{0,6}}:6, {c} {{0}}:12, {c}+gfx {{0}}:12"
)
PRINTED = {
    "A30": FOUR.format(a="1g.6gb", b="2g.12gb", c="4g.24gb"),
    **{
        card: EIGHT.format(**dict(zip("abcdef", profiles.split(), strict=True)))
        for card, profiles in {
            "A100-40GB": "1g.5gb 1g.10gb 2g.10gb 3g.20gb 4g.20gb 7g.40gb",
            "A100-64GB": "1g.8gb 1g.16gb 2g.16gb 3g.32gb 4g.32gb 7g.64gb",
            "A100-80GB": "1g.10gb 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb",
            "H100-80GB": "1g.10gb 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb",
            "H100-94GB": "1g.12gb 1g.24gb 2g.24gb 3g.47gb 4g.47gb 7g.94gb",
            "H100-96GB": "1g.12gb 1g.24gb 2g.24gb 3g.48gb 4g.48gb 7g.96gb",
            "H200": "1g.18gb 1g.35gb 2g.35gb 3g.71gb 4g.71gb 7g.141gb",
            "B200": "1g.23gb 1g.45gb 2g.45gb 3g.90gb 4g.90gb 7g.180gb",
        }.items()
    },
    "RTX-PRO-6000": TWELVE.format(a="1g.24gb", b="2g.48gb", c="4g.96gb"),
}


Key = tuple[tuple[str, int], ...]


def key(devices: Iterable[str]) -> Key:
    return tuple(sorted(Counter(devices).items()))


@cache
def enumerate_layouts(card: str) -> frozenset[Key]:
    """Fill a card's memory slices one after the other, in every way."""
    printed = re.findall(r"(\S+) \{([\d,]+)\}:(\d+)", PRINTED[card])
    sizes = {name: int(size) for name, _, size in printed}
    starts = {name: {int(start) for start in starts.split(",")} for name, starts, _ in printed}

    def fill(slice_: int, devices: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        if slice_ >= 12:
            yield devices
            return
        yield from fill(slice_ + 1, devices)
        for name, size in sizes.items():
            media = "+me" in name and any("+me" in other for other in devices)
            if slice_ in starts[name] and not media:
                yield from fill(slice_ + size, (*devices, name))

    return frozenset(key(devices) for devices in fill(0, ()))


def largest_layouts(card: str, profiles: frozenset[str]) -> frozenset[Key]:
    """Return the layouts of some profiles that no other one contains."""
    every = [Counter(dict(each)) for each in enumerate_layouts(card) if profiles.issuperset(dict(each))]
    return frozenset(key(layout.elements()) for layout in every if not any(layout < other for other in every))
