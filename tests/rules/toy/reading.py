"""Reading of a Mark from its document."""

from rules_engine.language.document_fields import common_fields
from rules_engine.language.fields import map_field, string_field
from rules_engine.language.yaml.nodes import MapNode
from rules_engine.model.problems.problem import Problems
from tests.rules.toy.value import Mark


def read(root: MapNode, diagnostics: Problems) -> Mark:
    """Read a Mark; it is valid only if neither the schema nor `diagnostics` has an error."""
    return Mark(**common_fields(root, diagnostics), resource=string_field(map_field(root, "spec"), "resource"))
