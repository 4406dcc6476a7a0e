"""LabelSelectors of the Kubernetes API."""

from rules_engine.loading.fields import section, sections, strings, text, texts
from rules_engine.loading.yaml.nodes import MapNode
from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.problem import Problems
from rules_engine.model.rules.rule import ConditionKind, LabelRequirement, LabelSelector


def selector(node: MapNode, name: str, problems: Problems) -> LabelSelector:
    """Read the selector of a field; an absent selector matches everything."""
    field = section(node, name)
    labels = strings(field, "matchLabels")
    exact = (LabelRequirement(key, ConditionKind.IN, (value,)) for key, value in labels.items())
    return LabelSelector((*exact, *(_requirement(line, problems) for line in sections(field, "matchExpressions"))))


def _requirement(line: MapNode, problems: Problems) -> LabelRequirement:
    operator = ConditionKind(text(line, "operator", ConditionKind.EXISTS.value))
    values = texts(line, "values")
    place = line.key("values") or line.key("operator") or line
    compares = operator in (ConditionKind.IN, ConditionKind.NOT_IN)
    if compares and not values:
        problems.error(Code.BAD_SELECTOR, f"{operator.value} needs at least one value", place.location, place.length)
    if line.get("operator") and not compares and values:
        problems.error(Code.BAD_SELECTOR, f"{operator.value} takes no values", place.location, place.length)
    return LabelRequirement(text(line, "key"), operator, values)
