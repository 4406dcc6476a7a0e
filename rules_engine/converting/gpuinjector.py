"""gpuinjector's arithmetic with its rounding, to compare amounts of converted rules with."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rules_engine.model.kubernetes.quantity import NANOS, Quantity, QuantityError

SHARED = frozenset({"cpu", "memory", "ephemeral-storage"})
"""Resources whose total per pod gpuinjector rounds down, then divides among containers by their GPUs.

Any other resource is rounded down for each container."""

MOST_GPUS = 8
"""GPUs of the largest pods that amounts are compared for: as many as a node usually has."""

_MAX_INT64 = 2**63 - 1
_THOUSANDTH = NANOS // 1000


@dataclass(frozen=True, slots=True)
class Coefficient:
    """The amount of a resource per GPU: the text of a non-negative number, and a unit."""

    number: str
    unit: str

    def amounts(self, resource: str, gpus: Sequence[int], requested: Quantity) -> tuple[Quantity, ...] | None:
        """Return the amount for each container, by their GPUs; None if gpuinjector's 64-bit integers overflow.

        `requested`: the request of the containers without GPUs, at most the total: gpuinjector subtracts it.
        """
        try:
            if resource not in SHARED:
                return tuple([self._times(count) for count in gpus])
            total = self._times(sum(gpus))
            if total.nanos > _MAX_INT64 * _THOUSANDTH:
                return None
        except QuantityError:
            return None
        share = (total - requested).nanos // (sum(gpus) * _THOUSANDTH) * _THOUSANDTH
        return tuple([Quantity(share * count, total.format) for count in gpus])

    def _times(self, count: int) -> Quantity:
        """Return ⌊coefficient × count⌋ units, in binary floats. Raises QuantityError if it is too large."""
        whole = math.floor(float(self.number) * count)
        if whole > _MAX_INT64:
            raise QuantityError("more than a 64-bit integer holds")
        return Quantity.parse(f"{whole}{self.unit}")
