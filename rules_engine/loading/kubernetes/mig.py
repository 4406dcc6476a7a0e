"""MIG devices that fit on a card.

Source: NVIDIA Multi-Instance GPU User Guide, "Supported MIG Profiles": no card has more than 7 slices of compute and 8
of memory. The card's model is unknown here, so only devices that fit on no card are reported, by the placements of the
cards that have them if these are published.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from rules_engine.model.gpu.mig import CARD_SLICES
from rules_engine.model.gpu.placements import layout_error

MEMORY_SLICES = 8

_MEMORY = {1: 1, 2: 2, 3: 4, 4: 4, 7: 8}
"""Numbers of memory slices by number of compute slices."""

_OTHER_SIZES = {1: 2, 3: 3}
"""Other numbers of memory slices: 1g.20gb, on a card that also has 1g.10gb; 3g.30gb, of simulated clusters."""

_TOLERANCE = 1.1
"""Relative rounding of a profile's gigabytes: one card has 12, 24, 47 and 94 for 1, 2, 4 and 8 slices."""

_PROFILE = re.compile(r"(?:([0-9]+)c\.)?([0-9]+)g\.([0-9]+)gb")


@dataclass(frozen=True, slots=True)
class _Profile:
    """A profile by its slices; several `shared` profiles, such as 1c.3g.20gb, use one device."""

    name: str
    compute: int
    slices: int
    gigabytes: int
    shared: bool

    @classmethod
    def read(cls, name: str) -> "_Profile":
        match = _PROFILE.match(name)
        part, slices, gigabytes = match.groups() if match else (None, "0", "0")
        return cls(name, int(part or slices), int(slices), int(gigabytes), part is not None)

    def slice_sizes(self) -> tuple[float, ...]:
        """Possible sizes of one memory slice, in gigabytes."""
        usual = _MEMORY[self.slices]
        return self.gigabytes / usual, self.gigabytes / _OTHER_SIZES.get(self.slices, usual)


def split_error(names: Sequence[str]) -> str:
    """Return the reason why no card can be split into devices of these profiles; "" if one may be."""
    profiles = [_Profile.read(name) for name in names]
    for profile in profiles:
        if profile.slices not in _MEMORY:
            return f"no MIG device has {profile.slices} slices: {profile.name}"
        if not _same_slice_size(profiles[0], profile):
            return f"no card has both {profiles[0].name} and {profile.name}: their slices of memory differ in size"
    compute = sum(profile.compute for profile in profiles)
    memory = sum(_MEMORY[profile.slices] for profile in profiles if not profile.shared)
    for slices, most, what in ((compute, CARD_SLICES, "compute"), (memory, MEMORY_SLICES, "memory")):
        if slices > most:
            return f"these MIG devices take {slices} slices of {what} together, and no card has more than {most}"
    return layout_error(tuple(names))


def _same_slice_size(first: _Profile, second: _Profile) -> bool:
    pairs = product(first.slice_sizes(), second.slice_sizes())
    return any(max(pair) <= _TOLERANCE * min(pair) for pair in pairs)
