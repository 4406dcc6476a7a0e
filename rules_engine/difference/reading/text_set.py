"""Set of texts, such as the uids of all pods of a cluster, in memory that forked processes share."""

from array import array
from hashlib import blake2s

_FIRST_SLOTS = 4096
_KEY_BYTES = 16
"""Bytes of a hash: so many that no two texts have the same one."""


class TextSet:
    """A set of texts with their numbers, from 0 in the order in which they were added.

    It keeps their hashes, some 30 bytes for each, in arrays: reading an object would write its reference count, and
    forked processes do not share memory to which they write.

    `full`: there were more than `most`, and some were left out.
    """

    def __init__(self, most: int) -> None:
        self.full = False
        self._most = most
        self._keys = bytearray()
        self._slots = array("I", [0]) * _FIRST_SLOTS
        """A hash table with open addressing: numbers + 1, and 0 where it is free."""

    def __len__(self) -> int:
        return len(self._keys) // _KEY_BYTES

    def __contains__(self, text: object) -> bool:
        return isinstance(text, str) and self.number(text) is not None

    def number(self, text: str) -> int | None:
        """Return the number of a text; None if it is not in the set."""
        found = self._slots[self._slot(_key(text))]
        return found - 1 if found else None

    def add(self, text: str) -> int | None:
        """Add a text, unless it is in the set; return its number, or None if it is left out."""
        key = _key(text)
        slot = self._slot(key)
        if self._slots[slot]:
            return self._slots[slot] - 1
        if len(self) >= self._most:
            self.full = True
            return None
        self._keys += key
        self._slots[slot] = len(self)
        if 2 * len(self) > len(self._slots):
            self._grow()
        return len(self) - 1

    def _slot(self, key: bytes) -> int:
        """Return the slot of a key, or the free one in which it would be."""
        slots = self._slots
        slot = int.from_bytes(key, "big") % len(slots)
        while slots[slot] and self._key_of(slots[slot]) != key:
            slot = (slot + 1) % len(slots)
        return slot

    def _key_of(self, filled: int) -> bytearray:
        return self._keys[(filled - 1) * _KEY_BYTES : filled * _KEY_BYTES]

    def _grow(self) -> None:
        self._slots = array("I", [0]) * (2 * len(self._slots))
        for filled in range(1, len(self) + 1):
            self._slots[self._slot(bytes(self._key_of(filled)))] = filled


def _key(text: str) -> bytes:
    return blake2s(text.encode(errors="surrogatepass"), digest_size=_KEY_BYTES).digest()
