"""Loading of rule files: text → positioned YAML → JSON Schema → rules."""

from rules_engine.loading.files import STDIN
from rules_engine.loading.kubernetes.manifests import Manifest
from rules_engine.loading.kubernetes.pods import SLIPS
from rules_engine.loading.load import Inventory, Loaded, load, load_cluster, load_pods
from rules_engine.loading.schemas import KINDS, schema

__all__ = [
    "KINDS",
    "SLIPS",
    "STDIN",
    "Inventory",
    "Loaded",
    "Manifest",
    "load",
    "load_cluster",
    "load_pods",
    "schema",
]
