"""The match condition of a webhook: one CEL expression that selects the pods the API server sends.

It is of a fixed form, made of names: namespaces, labels, operations and resources. A pod that a rule matches is always
sent, and so are a few that no rule matches: a match condition that fails or costs too much would deny the pod, or keep
all rules from being evaluated. That is why it has no expression of a rule's author, and why it begins with a guard: a
pod with very many containers or amounts is sent without comparing its names.
"""

import re
from collections.abc import Collection, Hashable, Iterable, Iterator, Set
from dataclasses import dataclass, replace
from math import ceil

from rules_engine.accelerators.resources import gpu_globs
from rules_engine.language.cel.budget import MAX_EXPRESSION_LENGTH
from rules_engine.model.rules.rule import Operation, Rule
from rules_engine.rules.native.cel_text import cel_list, cel_literal, match_conditions
from rules_engine.rules.rule_set.globs import is_glob

COMPARED_CONTAINERS = 64
COMPARED_AMOUNTS = 32
"""Containers of a pod, init containers of a pod, and amounts in one map of a container, whose names are compared."""

COMPARED_AMOUNTS_FOR_GPUS = 8
"""Amounts whose names are compared with the globs for GPUs, which are many."""

LONG_NAME = 100
"""Characters of a resource name above which the pod is sent without comparing it with globs."""

MAX_WEIGHT = 220
"""Names of a match condition, with globs of resources weighed by `Selection.weight`. For the costliest pod that passes
the guard they cost less than half of the 1,000,000 units that an API server allows (k8s.io/apiserver, PerCallLimit)."""

GLOBS_WEIGHT, EDGE_WEIGHT, INNER_WEIGHT = 32, (8, 4), 48
"""Weights of globs: for reading all names once, for comparing the beginning or end of each name (and each ten
characters of it), and for searching each name for ten characters."""

_LISTS = "[object.spec.?containers, object.spec.?initContainers]"
_AMOUNTS = "[c.?resources.limits, c.?resources.requests]"

# The API server sends a null for the containers of a pod that has none, and refuses the pod later.
LARGE_POD_GUARD = (
    f"{_LISTS}.exists(list, list.orValue(null) != null && (list.value().size() > {COMPARED_CONTAINERS} || "
    f"list.value().exists(c, {_AMOUNTS}.exists(amounts, amounts.orValue({{}}).size() > {COMPARED_AMOUNTS}))))"
)
"""The guard: true for a pod that is too large for comparing its names."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Pods that a rule may apply to: all `conditions` hold, and one of `resources` (names and globs) is named, if any.

    `names`: the number of names in the conditions. `compared`: the amounts of a map whose names are compared with
    globs; pods with more are included.
    """

    conditions: frozenset[str]
    resources: frozenset[str]
    names: int = 0
    compared: int = COMPARED_AMOUNTS

    @property
    def everything(self) -> bool:
        """True for every pod."""
        return not self.conditions and not self.resources

    @property
    def weight(self) -> int:
        """The cost of the selection for the costliest pod, in comparisons with exact names."""
        globs = [resource for resource in self.resources if is_glob(resource)]
        total = GLOBS_WEIGHT if globs else 0
        for glob in globs:
            first, *between, last = _glob_texts(glob)
            total += sum(EDGE_WEIGHT[0] + EDGE_WEIGHT[1] * ceil(len(text) / 10) for text in (first, last) if text)
            total += sum(INNER_WEIGHT * ceil(len(text) / 10) for text in between)
        return 2 + self.names + len(self.resources) - len(globs) + ceil(total * self.compared / COMPARED_AMOUNTS)

    def covers(self, other: "Selection") -> bool:
        """Return True if all pods of the other are pods of this one."""
        narrower = bool(other.resources) and other.resources <= self.resources
        return self.conditions <= other.conditions and (not self.resources or narrower)

    @property
    def expression(self) -> str:
        """The condition in CEL, the cheapest parts first: CEL stops at the first that is false."""
        resource_conditions = [_resource_condition(self.resources, self.compared)] if self.resources else []
        return " && ".join([*sorted(self.conditions, key=lambda text: (len(text), text)), *resource_conditions])


@dataclass(frozen=True, slots=True)
class MatchCondition:
    """A match condition; None: every pod is sent. `simplified`: wider than the selections, whose names are too many."""

    expression: str | None
    simplified: bool = False


def selection_of_rule(rule: Rule, operations: Set[Operation]) -> Selection:
    """Return the pods that a rule may apply to; `operations`: all operations at which the endpoint is called.

    Pods that opt out are included, so that traces and metrics count them.
    """
    match = rule.match
    labels = match.object_selector.requirements
    names = [*match.namespaces, *match.exclude_namespaces, *labels, *(text for each in labels for text in each.values)]
    return Selection(
        frozenset({*match_conditions(match), *_operation_conditions({*match.operations}, operations)}),
        rule.interests.resources or frozenset(match.resources),
        len(names),
    )


def selection_of_holders(resources: Iterable[str], operations: Set[Operation]) -> Selection:
    """Return the pods that hold devices of these resources from their creation on."""
    return Selection(frozenset(_operation_conditions({Operation.CREATE}, operations)), frozenset(resources))


def selection_of_gpus(selections: Collection[Selection]) -> Selection:
    """Return the pods of selections without resources that name a resource of GPUs."""
    gpus = Selection(frozenset(), gpu_globs(), compared=COMPARED_AMOUNTS_FOR_GPUS)
    expression = match_condition(selections).expression
    if expression is None:
        return gpus
    # Equal selections of several rules are one.
    return replace(gpus, conditions=frozenset({f"({expression})"}), names=sum(each.weight for each in {*selections}))


def match_condition(selections: Collection[Selection]) -> MatchCondition:
    """Return the condition that a pod is in one of the selections, as narrow as the API server can evaluate."""
    if not selections or any(selected.everything for selected in selections):
        return MatchCondition(None)
    exact = _join_selections(selections)
    if exact is not None:
        return MatchCondition(exact)
    by_resources = [
        replace(selected, conditions=frozenset(), names=0) if selected.resources else selected
        for selected in selections
    ]
    return MatchCondition(_join_selections(by_resources), simplified=True)


def _join_selections(selections: Iterable[Selection]) -> str | None:
    """Return one expression that is true if a selection has the pod; None if it is too large."""
    by_conditions: dict[Hashable, Selection] = {}
    for selected in selections:
        key = selected.conditions, bool(selected.resources), selected.compared
        joined = by_conditions.get(key, selected)
        by_conditions[key] = replace(selected, resources=joined.resources | selected.resources)
    merged = list(by_conditions.values())
    kept = [
        selected for selected in merged if not any(other != selected and other.covers(selected) for other in merged)
    ]
    texts = sorted(selected.expression for selected in kept)
    guard = [LARGE_POD_GUARD] if any(selected.resources for selected in kept) else []
    expression = " || ".join([*guard, *(texts if len(texts) == 1 else map("({})".format, texts))])
    return (
        expression
        if sum(selected.weight for selected in kept) <= MAX_WEIGHT and len(expression) <= MAX_EXPRESSION_LENGTH
        else None
    )


def _operation_conditions(matched: Set[Operation], called: Set[Operation]) -> Iterator[str]:
    """Yield the condition that excludes the other operations of the endpoint."""
    if called - matched:
        yield f"request.operation in {cel_list(sorted(operation.value for operation in matched))}"


def _resource_condition(resources: Iterable[str], compared: int) -> str:
    """Return the condition that some container or init container names one of these names and globs."""
    exact = sorted(name for name in resources if not is_glob(name))
    globs = sorted(name for name in resources if is_glob(name))
    tests = [f"{cel_list(exact)}.exists(name, amounts[?name].hasValue())"] if exact else []
    if globs:
        matching = " || ".join([f"name.size() > {LONG_NAME}", *map(glob_condition, globs)])
        tests += [f"amounts.orValue({{}}).size() > {compared}"] if compared < COMPARED_AMOUNTS else []
        tests.append(f"amounts.orValue({{}}).exists(name, {matching})")
    return (
        f"{_LISTS}.exists(list, list.orValue(null) != null && "
        f"list.value().exists(c, {_AMOUNTS}.exists(amounts, {' || '.join(tests)})))"
    )


def glob_condition(glob: str) -> str:
    """Return a condition that is true for every name that the glob matches, and for few others.

    The texts between wildcards are compared, not their order: a regular expression would cost several times as much.
    """
    first, *between, last = _glob_texts(glob)
    tests = [f"name.startsWith({cel_literal(first)})"] if first else []
    tests += [f"name.contains({cel_literal(text)})" for text in between]
    tests += [f"name.endsWith({cel_literal(last)})"] if last else []
    return f"({' && '.join(tests)})" if len(tests) > 1 else (tests or ["true"])[0]


def _glob_texts(glob: str) -> list[str]:
    """Return the texts before, between and after the wildcards of a glob."""
    return re.split(r"[*?]+", glob)
