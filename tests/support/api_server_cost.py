"""Cost of a webhook's match condition in an API server, by a naive evaluator of the few constructs that ours has.

Costs are those of cel-go (interpreter/runtimecost.go), rounded up: 1 for each name, selection and call, 10 for a list,
30 for a map, and a tenth of a unit for each character that a function on strings reads.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import ceil
from typing import Any

from rules_engine.exports.match_condition import COMPARED_AMOUNTS, COMPARED_CONTAINERS, LONG_NAME, MAX_WEIGHT
from rules_engine.language.cel.syntax.parser import parse_expression
from rules_engine.language.cel.syntax.tree import (
    Binary,
    Call,
    Comprehension,
    Expression,
    Fold,
    Index,
    ListLiteral,
    Literal,
    Logic,
    MapLiteral,
    Name,
    OptionalMap,
    Select,
    Unary,
)
from rules_engine.model.rules.rule import Match, Rule
from tests.support.evaluation import cel, ladder, validation
from tests.support.webhooks import pod_defaults

PER_CALL = 1_000_000
"""The most that an API server spends on one match condition (k8s.io/apiserver, pkg/apis/cel: PerCallLimit)."""

_NONE = object()
"""An optional without a value."""


@dataclass(slots=True)
class Evaluation:
    """One evaluation: its value and its cost."""

    expression: str
    activation: Mapping[str, Any]
    cost: int = 0
    value: Any = field(init=False)

    def __post_init__(self) -> None:
        self.value = self._evaluate(parse_expression(cel(self.expression)), dict(self.activation))

    def _evaluate(self, node: Expression, names: dict[str, Any]) -> Any:
        match node:
            case Literal(value=value):
                return value
            case Name(name=name):
                self.cost += 1
                return names[name]
            case Select(operand=operand, field=name, optional=optional):
                return self._member(self._evaluate(operand, names), name, optional=optional)
            case Index(operand=operand, key=key, optional=optional):
                return self._member(self._evaluate(operand, names), self._evaluate(key, names), optional=optional)
            case ListLiteral(elements=elements):
                self.cost += 10
                return [self._evaluate(element.value, names) for element in elements]
            case MapLiteral(entries=()):
                self.cost += 30
                return {}
            case Logic(operator=operator, operands=operands):
                decides = operator == "||"
                return next((decides for each in operands if self._evaluate(each, names) is decides), not decides)
            case Unary(operator="!", operand=operand):
                self.cost += 1
                return not self._evaluate(operand, names)
            case Binary():
                return self._binary(node, names)
            case Call(function=function, target=target, arguments=arguments) if target is not None:
                values = [self._evaluate(each, names) for each in (target, *arguments)]
                return self._call(function, values)
            case Comprehension(fold=Fold.EXISTS, target=target, first=first, condition=None, body=body):
                return any(self._rounds(self._evaluate(target, names), first, body, names))
            case OptionalMap(target=target, name=name, body=body, flat=False):
                found = self._evaluate(target, names)
                self.cost += 4
                return _NONE if found is _NONE else self._evaluate(body, {**names, name: found})
        raise NotImplementedError(node)

    def _rounds(self, target: Any, first: str, body: Expression, names: dict[str, Any]) -> Iterator[bool]:
        self.cost += 1
        for item in target:
            # The condition of the loop (the accumulator, its negation and a call), and the accumulator in the step.
            self.cost += 4
            yield self._evaluate(body, {**names, first: item})

    def _member(self, value: Any, key: Any, *, optional: bool) -> Any:
        self.cost += 1
        assert optional or value is _NONE or key in value
        if value is _NONE:
            return _NONE
        # A selection after an optional one is optional as well.
        return value.get(key, _NONE)

    def _binary(self, node: Binary, names: dict[str, Any]) -> bool:
        left, right = self._evaluate(node.left, names), self._evaluate(node.right, names)
        match node.operator:
            case "in":
                self.cost += len(right) if isinstance(right, list) else 1
                return left in right
            case "==" | "!=":
                shorter = min(len(left), len(right)) if isinstance(left, str) and isinstance(right, str) else 1
                self.cost += max(1, ceil(shorter / 10))
                return (left == right) is (node.operator == "==")
            case ">":
                self.cost += 1
                return bool(left > right)
        raise NotImplementedError(node.operator)

    def _call(self, function: str, values: Sequence[Any]) -> Any:
        value, *rest = values
        if function in ("startsWith", "endsWith"):
            self.cost += max(1, ceil(len(rest[0]) / 10))
            return value.startswith(*rest) if function == "startsWith" else value.endswith(*rest)
        if function == "contains":
            self.cost += max(1, ceil(len(value) / 10) * ceil(len(rest[0]) / 10))
            return rest[0] in value
        if function == "matches":
            self.cost += ceil((1 + len(value)) / 10) * ceil(len(rest[0]) / 4)
            return False
        self.cost += 1
        match function:
            case "size":
                return len(value)
            case "hasValue":
                return value is not _NONE
            case "value":
                assert value is not _NONE
                return value
            case "orValue":
                return rest[0] if value is _NONE else value
        raise NotImplementedError(function)


def costliest_pod(containers: int, amounts: int, name_length: int, separator: str = "/") -> dict[str, Any]:
    """A pod of so many containers, and as many init containers, each with so many names of that length twice."""
    letters = "abcdefgh"
    prefixes = ["".join(found) for found in product(letters, repeat=3)][:amounts]
    limits = {f"{prefix}.example.com{separator}".ljust(name_length, "x"): "1" for prefix in prefixes}
    listed = [
        {"name": f"c{n}", "image": "x", "resources": {"limits": limits, "requests": limits}} for n in range(containers)
    ]
    return {"metadata": {"name": "costly"}, "spec": {"containers": listed, "initContainers": listed}}


COSTLIEST = costliest_pod(COMPARED_CONTAINERS, COMPARED_AMOUNTS, LONG_NAME)
"""The costliest pod that passes the guard."""

COSTLIEST_WITHOUT_DEVICES = costliest_pod(COMPARED_CONTAINERS, COMPARED_AMOUNTS, LONG_NAME, ".")


def _name(number: int) -> str:
    return f"n{number}.example.com/a-device"


WIDEST: Mapping[str, Sequence[Rule]] = {
    "names": [validation("true", name="v", match=Match(resources=tuple(map(_name, range(MAX_WEIGHT - 3)))))],
    "inner texts": [validation("true", match=Match(resources=("*/zz*", "*coy*")))],
    "edges": [validation("true", match=Match(resources=tuple(f"x{n}.example.com/*" for n in range(10))))],
    "long edges": [validation("true", match=Match(resources=(f"x{'x' * 200}*", f"*y{'x' * 200}")))],
    "globs apart": [
        validation("true", name=f"v{n}", match=Match(namespaces=("n*" + "n" * n,), resources=(f"*{n}",)))
        for n in range(4)
    ],
    "namespaces": [
        validation("true", name=f"v{n}", match=Match(namespaces=(f"team-{n}",), resources=(_name(n),)))
        for n in range(MAX_WEIGHT // 4)
    ],
    "namespaces of all": [
        validation(
            "true", match=Match(exclude_namespaces=tuple(f"{'n' * 60}{n}*" for n in range(100)), resources=("a/b",))
        )
    ],
}
"""Rules whose match conditions name as much as they may."""

_FEW = tuple(map(_name, range(MAX_WEIGHT - 100)))

WIDEST_WITH_OTHER_PODS: Mapping[str, Sequence[Rule]] = {
    "names": [pod_defaults(), ladder(*_FEW)],
    "namespaces": [pod_defaults(f"m{n}", match=Match(namespaces=(f"team-{n}",))) for n in range(40)],
    "excluded": [
        pod_defaults(match=Match(exclude_namespaces=tuple(f"{'n' * 60}{n}*" for n in range(50)))),
        ladder(*_FEW[:70]),
    ],
    "globs": [
        pod_defaults(),
        pod_defaults("globs", match=Match(namespaces=("*n",), resources=("x.example.com/*", "*y*"))),
    ],
}
"""Rules at /mutate with two webhooks, whose match conditions name as much as they may."""
