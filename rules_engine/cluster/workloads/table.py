"""The table of workload kinds: the packaged rows in `kinds/`, a file for each API group, and those of the user."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from rules_engine.cluster.workloads.kind import WorkloadKind, read_workload_kind
from rules_engine.language.cel import Budget
from rules_engine.language.files import decode_source
from rules_engine.language.yaml.documents import read_documents
from rules_engine.language.yaml.nodes import MapNode
from rules_engine.model.json.patch import Json
from rules_engine.model.problems.problem import Problems

OWN_GROUPS = ("", "apps", "batch")
"""API groups of Kubernetes' own kinds, whose names differ: a manifest may lack its apiVersion."""

PACKAGED = {
    file.stem if file.stem != "core" else "": file for file in sorted(Path(__file__).with_name("kinds").glob("*.yaml"))
}
"""The files of packaged rows by API group."""

ObjectKey = tuple[str, str, str]
"""Kind, name and namespace."""

INPUT_COST = 2_000_000
"""Cost units of all expressions for one input, some seconds: an object with 100 templates takes some 50,000."""


@dataclass(frozen=True, slots=True)
class WorkloadTable:
    """The kinds of workloads that an input may have.

    `added`: kinds of the user, which win over packaged ones. `find` returns an object to which others refer by its API
    group and key, or None. `budget`: of all expressions for the input.
    """

    added: Sequence[WorkloadKind] = ()
    find: Callable[[str, ObjectKey], Json] = lambda _group, _key: None
    budget: Budget = field(default_factory=lambda: Budget(INPUT_COST, "the workload kinds of one input"))

    def row(self, group: str, kind: str) -> WorkloadKind | None:
        """Return the row of a kind; None if the table has none. `group`: "" for Kubernetes' own."""
        added = [each for each in self.added if (each.group, each.kind) == (group, kind)]
        packaged = (read_group(each).get(kind) for each in ((group,) if group else OWN_GROUPS))
        return next(filter(None, (*added, *packaged)), None)


@cache
def read_group(group: str) -> Mapping[str, WorkloadKind]:
    """Return the packaged rows of an API group by kind."""
    file = PACKAGED.get(group)
    problems = Problems()
    source = None if file is None else decode_source(file, file.read_bytes(), problems)
    roots = [each.root for each in read_documents(source, problems)] if source is not None else []
    rows = [read_workload_kind(root, problems) for root in roots if isinstance(root, MapNode)]
    return {row.kind: row for row in rows}


@cache
def own_kinds() -> Mapping[str, WorkloadKind]:
    """Return Kubernetes' own kinds that have pod templates."""
    return {kind: row for group in OWN_GROUPS for kind, row in read_group(group).items() if row.templates}
