"""Values that are made for every request, and never changed.

A frozen dataclass sees to it at run time that nobody assigns to it, and takes three times as long to make. These are
frozen for mypy, which reads every line of ours, and ordinary at run time.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(*, kw_only: bool = False, order: bool = False) -> Callable[[type[T]], type[T]]:
    """A dataclass with slots, equality and a hash, whose members are assigned once."""
    return dataclass(slots=True, kw_only=kw_only, order=order, unsafe_hash=True)
