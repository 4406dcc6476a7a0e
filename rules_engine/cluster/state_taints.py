"""Taints that report a state of a node: the table state_taints.yaml."""

from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from pathlib import Path

import msgspec
from msgspec import Struct

from rules_engine.language.yaml.documents import read_data
from rules_engine.model.kubernetes.cluster import Node

TABLE = Path(__file__).with_name("state_taints.yaml")


class StateTaint(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A taint that reports a state of a node.

    `key`: a pattern with `*`. `state`: such as "has DiskPressure". `condition`: the type of the node's condition from
    which the taint follows, or "". `reason`: of the finding about pods that it keeps off.
    """

    key: str
    state: str
    condition: str = ""
    reason: str


@lru_cache  # of 128 keys: clusters have some dozens
def state_of(key: str) -> StateTaint | None:
    """Return the state that a taint with this key reports, or None."""
    return next((each for each in _read_table() if fnmatchcase(key, each.key)), None)


def without_state_taints(node: Node) -> Node:
    """Return a node in its best state: Ready, not cordoned, and without taints that report a state."""
    taints = tuple(taint for taint in node.taints if state_of(taint.key) is None)
    return replace(node, ready=True, unschedulable=False, taints=taints)


@cache
def _read_table() -> tuple[StateTaint, ...]:
    return msgspec.convert(read_data(TABLE), tuple[StateTaint, ...])
