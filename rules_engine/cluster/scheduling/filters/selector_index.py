"""Index of label selectors by a label that they require."""

from collections.abc import Hashable, Iterator, Mapping
from typing import Generic, TypeVar

from rules_engine.language.cel import Budget
from rules_engine.model.rules.rule import ConditionKind, LabelSelector

V = TypeVar("V", bound=Hashable)


class SelectorIndex(Generic[V]):
    """Values, each with a selector that may be None and then matches nothing."""

    def __init__(self, budget: Budget | None = None) -> None:
        """Take a budget, of which each selector that is compared costs a unit; None: comparisons are not limited."""
        self._budget = budget
        # Values as keys, since a dictionary removes one at once and has an order.
        self._by_label: dict[tuple[str, str], dict[V, LabelSelector]] = {}
        self._others: dict[V, LabelSelector] = {}

    def add(self, selector: LabelSelector | None, value: V) -> None:
        if selector is not None:
            for group in self._groups(selector):
                group[value] = selector

    def remove(self, selector: LabelSelector | None, value: V) -> None:
        if selector is not None:
            for group in self._groups(selector):
                del group[value]
            for label in _labels_required(selector):
                if not self._by_label[label]:
                    del self._by_label[label]

    def matching(self, labels: Mapping[str, str]) -> Iterator[V]:
        """Yield the values whose selector matches the labels, each once. Raises CostExceeded."""
        for group in (self._others, *(self._by_label.get(label) for label in labels.items())):
            if not group:
                continue
            if self._budget is not None:
                self._budget.spend(len(group))
            for value, selector in group.items():
                if selector.matches(labels):
                    yield value

    def _groups(self, selector: LabelSelector) -> Iterator[dict[V, LabelSelector]]:
        labels = _labels_required(selector)
        for label in labels:
            yield self._by_label.setdefault(label, {})
        if not labels:
            yield self._others


def _labels_required(selector: LabelSelector) -> tuple[tuple[str, str], ...]:
    """Return labels of which a selector requires one; none if it requires none."""
    for requirement in selector.requirements:
        if requirement.operator is ConditionKind.IN:
            return tuple(dict.fromkeys((requirement.key, value) for value in requirement.values))
    return ()
