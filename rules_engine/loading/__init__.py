"""Loading of documents: text → positioned YAML → JSON Schema → fields."""

from rules_engine.loading.files import STDIN
from rules_engine.loading.kubernetes.manifests import Manifest
from rules_engine.loading.kubernetes.pods import SLIPS
from rules_engine.loading.schemas import schema

__all__ = ["SLIPS", "STDIN", "Manifest", "schema"]
