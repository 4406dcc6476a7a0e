"""Documents: the rules, tests, simulations and inventories of files, with all their problems."""

from rules_engine.documents.load import (
    DOCUMENT_KINDS,
    Loaded,
    Sources,
    load,
    load_cluster,
    load_pods,
    load_rules,
    load_simulation,
)
from rules_engine.documents.manifest_stream import PodPart, stream_pods
from rules_engine.documents.workloads import pod_count

__all__ = [
    "DOCUMENT_KINDS",
    "Loaded",
    "PodPart",
    "Sources",
    "load",
    "load_cluster",
    "load_pods",
    "load_rules",
    "load_simulation",
    "pod_count",
    "stream_pods",
]
