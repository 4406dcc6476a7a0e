"""Names of the pods for which a log has calls of /mutate.

Each call of a webhook has a uid of its own, and so only names tell which calls of /validate are for the same pods.
"""

from array import array
from collections.abc import Iterable
from hashlib import blake2s

MAX_NAMES = 4_000_000
"""Names that are remembered, some 16 bytes each: a log of 10 GB has as many decisions."""

_FIRST_SLOTS = 4096
_KEY_BYTES = 8


class RecordedCalls:
    """A set of names. It is an array of their hashes, which forked processes share: reading it changes nothing in it.

    `full`: there were more than MAX_NAMES, and some were left out.
    """

    def __init__(self) -> None:
        self.full = False
        self._count = 0
        self._slots = array("Q", bytes(_KEY_BYTES * _FIRST_SLOTS))

    def add(self, names: Iterable[str]) -> None:
        """Remember the names of a pod."""
        key = _key(names)
        slot = self._slot(key)
        if self._slots[slot]:
            return
        if self._count >= MAX_NAMES:
            self.full = True
            return
        self._slots[slot] = key
        self._count += 1
        if 2 * self._count > len(self._slots):
            self._grow()

    def __contains__(self, names: Iterable[str]) -> bool:
        return self._slots[self._slot(_key(names))] != 0

    def _slot(self, key: int) -> int:
        """Return the slot of a key, or the free one in which it would be."""
        slots = self._slots
        slot = key % len(slots)
        while slots[slot] not in (0, key):
            slot = (slot + 1) % len(slots)
        return slot

    def _grow(self) -> None:
        keys = self._slots
        self._slots = array("Q", bytes(2 * _KEY_BYTES * len(keys)))
        for key in keys:
            if key:
                self._slots[self._slot(key)] = key


def _key(names: Iterable[str]) -> int:
    """Return a number that is not zero, and different for different names."""
    digest = blake2s("\0".join(names).encode(errors="replace"), digest_size=_KEY_BYTES).digest()
    return int.from_bytes(digest, "big") or 1
