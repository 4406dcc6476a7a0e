"""LabelSelectors in plain JSON, as the scheduler reads them (meta/v1, LabelSelectorAsSelector)."""

from collections.abc import Iterator

from rules_engine.model.json.lenient import Object, items, mapping, objects, strings, text
from rules_engine.model.json.patch import Json
from rules_engine.model.rules.rule import ConditionKind, LabelRequirement, LabelSelector

_OPERATORS = {kind.value: kind for kind in ConditionKind}


def selector_of(raw: Json) -> LabelSelector | None:
    """Read a selector. None, of an absent one, matches nothing, and an empty one everything."""
    return LabelSelector((*_equal(raw), *_expressions(mapping(raw)))) if isinstance(raw, dict) else None


def _equal(raw: Json) -> Iterator[LabelRequirement]:
    for key, value in strings(mapping(raw).get("matchLabels")).items():
        yield LabelRequirement(key, ConditionKind.IN, (value,))


def _expressions(raw: Object) -> Iterator[LabelRequirement]:
    for expression in objects(raw.get("matchExpressions")):
        operator = _OPERATORS.get(text(expression, "operator"))
        if operator:
            values = tuple(value for value in items(expression.get("values")) if isinstance(value, str))
            yield LabelRequirement(text(expression, "key"), operator, values)
