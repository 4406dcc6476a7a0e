"""The table of workload kinds: the packaged rows in `kinds/`, a file for each API group, and those of the user."""

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from rules_engine.cluster.workloads.kind import WorkloadKind, read_workload_kind
from rules_engine.language.files import decode_source
from rules_engine.language.yaml.documents import read_documents
from rules_engine.language.yaml.nodes import MapNode
from rules_engine.model.problems.problem import Problems

KINDS = Path(__file__).with_name("kinds")
"""The folder of the packaged rows."""

WorkloadKinds = Sequence[WorkloadKind]
"""Kinds that a user adds. They win over packaged ones."""


def find_kind(group: str, kind: str, added: WorkloadKinds = ()) -> WorkloadKind | None:
    """Return the row of a kind, the user's first; None if the table has none. `group`: "" for Kubernetes' core."""
    own = next((each for each in added if (each.group, each.kind) == (group, kind)), None)
    return own or read_group(group or "core").get(kind)


@cache
def read_group(group: str) -> Mapping[str, WorkloadKind]:
    """Return the packaged rows of an API group by kind."""
    file = KINDS / f"{group}.yaml"
    if "/" in group or not file.is_file():
        return {}
    problems = Problems()
    source = decode_source(file, file.read_bytes(), problems)
    roots = [each.root for each in read_documents(source, problems)] if source is not None else []
    rows = [read_workload_kind(root, problems) for root in roots if isinstance(root, MapNode)]
    return {row.kind: row for row in rows}
