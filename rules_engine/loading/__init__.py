"""Files → positioned YAML → JSON Schema → rules."""

from rules_engine.loading.load import Loaded, load
from rules_engine.loading.schemas import KINDS, schema

__all__ = ["KINDS", "Loaded", "load", "schema"]
