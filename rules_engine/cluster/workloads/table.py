"""The table of workload kinds: the packaged rows in `kinds/`, a file for each API group, and those of the user."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from rules_engine.cluster.workloads.kind import WorkloadKind, read_workload_kind
from rules_engine.language.files import decode_source
from rules_engine.language.yaml.documents import read_documents
from rules_engine.language.yaml.nodes import MapNode
from rules_engine.model.json.patch import Json
from rules_engine.model.problems.problem import Problems

KINDS = Path(__file__).with_name("kinds")
"""The folder of the packaged rows."""

OWN_GROUPS = ("", "apps", "batch")
"""API groups of Kubernetes' own kinds, whose names differ: a manifest may lack its apiVersion."""

FindObject = Callable[[str, str], Json]
"""A function that returns an object of the same input by kind and name; None if there is none."""


@dataclass(frozen=True, slots=True)
class WorkloadTable:
    """The kinds of workloads that an input may have.

    `added`: kinds of the user, which win over packaged ones. `find` finds objects to which others refer.
    """

    added: Sequence[WorkloadKind] = ()
    find: FindObject = lambda _kind, _name: None

    def row(self, group: str, kind: str) -> WorkloadKind | None:
        """Return the row of a kind; None if the table has none. `group`: "" for Kubernetes' own."""
        added = [each for each in self.added if (each.group, each.kind) == (group, kind)]
        packaged = (read_group(each).get(kind) for each in ((group,) if group else OWN_GROUPS))
        return next(filter(None, (*added, *packaged)), None)


PACKAGED = WorkloadTable()


@cache
def read_group(group: str) -> Mapping[str, WorkloadKind]:
    """Return the packaged rows of an API group by kind."""
    file = KINDS / f"{group or 'core'}.yaml"
    if "/" in group or not file.is_file():
        return {}
    problems = Problems()
    source = decode_source(file, file.read_bytes(), problems)
    roots = [each.root for each in read_documents(source, problems)] if source is not None else []
    rows = [read_workload_kind(root, problems) for root in roots if isinstance(root, MapNode)]
    return {row.kind: row for row in rows}


@cache
def own_kinds() -> Mapping[str, WorkloadKind]:
    """Return Kubernetes' own kinds that have pod templates."""
    return {kind: row for group in OWN_GROUPS for kind, row in read_group(group).items() if row.templates}
