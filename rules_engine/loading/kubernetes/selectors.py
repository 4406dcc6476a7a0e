"""LabelSelectors of the Kubernetes API."""

from rules_engine.loading.fields import map_field, map_items, string_field, string_items, string_map
from rules_engine.loading.yaml.nodes import MapNode
from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.problem import Problems
from rules_engine.model.rules.rule import ConditionKind, LabelRequirement, LabelSelector


def read_selector(node: MapNode, name: str, problems: Problems) -> LabelSelector:
    """Read the selector of a field; an absent selector matches everything."""
    field = map_field(node, name)
    labels = string_map(field, "matchLabels")
    exact = (LabelRequirement(key, ConditionKind.IN, (value,)) for key, value in labels.items())
    return LabelSelector(
        (*exact, *(_read_requirement(line, problems) for line in map_items(field, "matchExpressions")))
    )


def _read_requirement(line: MapNode, problems: Problems) -> LabelRequirement:
    operator = ConditionKind(string_field(line, "operator", ConditionKind.EXISTS.value))
    values = string_items(line, "values")
    place = line.key("values") or line.key("operator") or line
    compares = operator in (ConditionKind.IN, ConditionKind.NOT_IN)
    if compares and not values:
        problems.error(Code.BAD_SELECTOR, f"{operator.value} needs at least one value", place.location, place.length)
    if line.get("operator") and not compares and values:
        problems.error(Code.BAD_SELECTOR, f"{operator.value} takes no values", place.location, place.length)
    return LabelRequirement(string_field(line, "key"), operator, values)
