"""Log of a real kube-scheduler, given by KUBE_SCHEDULER_LOG: the scores of the nodes that a pod could run on."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

VARIABLE = "KUBE_SCHEDULER_LOG"
"""The file into which kube-scheduler writes; it must run with --vmodule=schedule_one=10."""

_LINE = re.compile(
    r'(?:"About to try and schedule pod"|"Plugin scored node for pod"|"Calculated node\'s final score for pod")'
    r' pod="(?P<pod>[^"]+)"(?: plugin="(?P<plugin>[^"]+)")?(?: node="(?P<node>[^"]+)" score=(?P<score>-?[0-9]+))?'
)


@dataclass(frozen=True, slots=True)
class Scores:
    """Scores of the feasible nodes by name, weighted; empty if there were fewer than two such nodes."""

    totals: Mapping[str, int]
    by_plugin: Mapping[str, Mapping[str, int]]


@dataclass(slots=True)
class SchedulerLog:
    """The part of the log that is written after this value is made."""

    path: Path
    _offset: int = field(init=False)
    _rest: bytes = b""

    def __post_init__(self) -> None:
        self._offset = self.path.stat().st_size

    @classmethod
    def given(cls) -> "SchedulerLog | None":
        path = os.environ.get(VARIABLE)
        return cls(Path(path)) if path else None

    def scores(self, pod: str) -> Scores:
        """Read on, and return the scores of the last attempt to schedule a pod, which is over."""
        totals: dict[str, int] = {}
        by_plugin: dict[str, dict[str, int]] = {}
        for found in _LINE.finditer(self._read()):
            if found["pod"] != pod:
                continue
            if not found["node"]:
                totals, by_plugin = {}, {}
            elif found["plugin"]:
                by_plugin.setdefault(found["plugin"], {})[found["node"]] = int(found["score"])
            else:
                totals[found["node"]] = int(found["score"])
        return Scores(totals, by_plugin)

    def _read(self) -> str:
        with self.path.open("rb") as file:
            file.seek(self._offset)
            read = self._rest + file.read()
            self._offset = file.tell()
        whole, _, self._rest = read.rpartition(b"\n")
        return whole.decode()
