"""Promises of the project: figures with a bound."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(slots=True)
class Promise:
    """A figure and its bound, which is a minimum if `least` is set."""

    what: str
    value: float
    bound: float
    least: bool = False
    unit: str = ""

    @property
    def kept(self) -> bool:
        return self.value >= self.bound if self.least else self.value <= self.bound

    def __str__(self) -> str:
        sign = "at least" if self.least else "at most"
        verdict = "" if self.kept else "   NOT KEPT"
        return f"{self.what:62} {self.value:8.2f}{self.unit}  ({sign} {self.bound:g}{self.unit}){verdict}"


def exit_code(promises: Sequence[Promise]) -> int:
    """Print all promises, and return the exit code of a benchmark: 1 if one is not kept."""
    print(*promises, sep="\n")
    return 0 if all(promise.kept for promise in promises) else 1
