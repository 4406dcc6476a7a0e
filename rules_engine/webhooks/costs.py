"""Worst-case cost of a match condition in the API server.

The API server aborts an evaluation that costs more than PER_CALL: with failurePolicy Fail it refuses the pod, with
Ignore no rule is evaluated. So costs are bounded here by a sum: a cost per container, per name in its limits, per
character of an annotation. The largest number of each follows from its bytes in a stored pod. A product of two such
numbers, as of a loop over containers in a loop over containers, counts as unbounded.

Costs are those of cel-go (interpreter/runtimecost.go) and of k8s.io/apiserver (pkg/cel/library/cost.go), rounded up.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from typing import TypeAlias

from rules_engine.cel import Environment, compile_expression, types
from rules_engine.cel.syntax.tree import (
    Binary,
    Call,
    Comprehension,
    Conditional,
    Expression,
    Fold,
    Has,
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
from rules_engine.model.source import SourceText

PER_CALL = 1_000_000
"""The cost limit of one evaluation (k8s.io/apiserver, pkg/apis/cel: PerCallLimit)."""

STORED_BYTES = 1_572_864
"""The largest request that etcd accepts (--max-request-bytes, 1.5 MiB), and so the largest pod, in protobuf."""

ANNOTATION_BYTES = 262_144
"""Largest size of an object's annotations (k8s.io/apimachinery, TotalAnnotationSizeLimitB)."""

REQUEST_CHARACTERS = 253
"""Longest of the request's namespace, operation and similar members."""

VISITS = 20_000
"""Nodes that are visited, those of a loop over a literal list once per element. Each costs the API server 1."""

Path: TypeAlias = tuple[str, ...]

EACH = "*"
CHARACTERS = "#"

_CONTAINERS = [("object", "spec", name) for name in ("containers", "initContainers")]
_AMOUNTS = [(*path, EACH, "resources", name, EACH) for path in _CONTAINERS for name in ("limits", "requests")]

BYTES: Mapping[Path, int] = {
    **{(*path, EACH): 40 for path in _CONTAINERS},
    **dict.fromkeys(_AMOUNTS, 12),
    ("object", "metadata", "annotations", EACH): 3,
    ("object", "spec", "volumes", EACH): 10,
    ("object", "spec", "tolerations", EACH): 11,
}
"""The least that each of these takes in a stored pod: a container a name, an image of one character, pull policy Never;
an amount "a/b": "1", and three of its bytes are the name. Of annotations the API server counts keys and values only;
most keys of so many have three characters. Of everything else there may be one for every two bytes."""

LARGE_CONTAINERS, LARGE_AMOUNTS = 64, 32

LARGE = (
    "[object.spec.?containers, object.spec.?initContainers].exists(list, list.orValue(null) != null && "
    f"(list.value().size() > {LARGE_CONTAINERS} || list.value().exists(c, "
    f"[c.?resources.limits, c.?resources.requests].exists(amounts, amounts.orValue({{}}).size() > {LARGE_AMOUNTS}))))"
)
"""The condition that a pod is too large for costly conditions."""

SMALL: Mapping[Path, int] = {
    **{(*path, EACH): LARGE_CONTAINERS for path in _CONTAINERS},
    **dict.fromkeys(_AMOUNTS, LARGE_CONTAINERS * LARGE_AMOUNTS),
}
"""Largest number of each in a pod that is not LARGE."""

_ROUND = {Fold.ALL: 4, Fold.EXISTS: 4, Fold.EXISTS_ONE: 4, Fold.FILTER: 14, Fold.MAP: 13}
"""Cost of each iteration of a loop besides its body. The last two create a list of one, which costs 10."""


class UnboundedError(Exception):
    """The cost is not known, or grows faster than the pod."""


@dataclass(frozen=True, slots=True)
class _Value:
    """The size of a value: the paths of the pod that it consists of, and the size that the expression adds.

    `each`: paths of the elements, of a list that a loop created.
    """

    places: tuple[Path, ...] = ()
    items: tuple["_Value", ...] = ()
    each: tuple[Path, ...] = ()
    length: int = 0

    def __add__(self, other: "_Value") -> "_Value":
        return _Value(
            self.places + other.places, self.items + other.items, self.each + other.each, self.length + other.length
        )

    @property
    def written(self) -> bool:
        return not self.places and not self.each

    @property
    def elements(self) -> tuple[Path, ...]:
        return (*((*place, EACH) for place in self.places), *self.each)

    def member(self, name: str) -> "_Value":
        return _Value(tuple((*place, name) for place in self.places))


Cost: TypeAlias = Counter[Path]
"""Cost by the path of the elements that it is counted for, in hundredths; () counts once."""

_ONCE: Path = ()
_SCALE = 100


def affordable(text: str, *, small: bool = False) -> bool:
    """Return True if a condition is within the limit for the largest pod stored; `small`: that is not LARGE."""
    try:
        return worst(text, small=small) <= PER_CALL
    except UnboundedError:
        return False


def worst(text: str, *, small: bool = False) -> int:
    """Return the worst-case cost of a condition. Raises UnboundedError."""
    environment = Environment({"object": types.DYN, "request": types.DYN})
    program = compile_expression(SourceText.inline(text), environment, result=types.DYN)
    meter = _Meter()
    meter.value(program.checked.expression, {name: _Value(((name,),)) for name in ("object", "request")})
    return _total(meter.cost, SMALL if small else {})


def _total(cost: Cost, most: Mapping[Path, int]) -> int:
    """Return the cost of the worst pod: it consists of the costliest elements per byte; annotations count apart."""
    fixed, ratios, of_annotations = cost.pop(_ONCE, 0), [0.0], [0.0]
    for kind, amount in cost.items():
        if kind in most:
            fixed += amount * most[kind]
            continue
        share = amount / (1 if kind[-1] == CHARACTERS else BYTES.get(kind, 2))
        if (*kind, CHARACTERS) in cost and kind in _AMOUNTS:
            share += cost[(*kind, CHARACTERS)] * 3 / BYTES[kind]
        (of_annotations if kind[:3] == ("object", "metadata", "annotations") else ratios).append(share)
    return int((fixed + max(ratios) * STORED_BYTES + sum(of_annotations) * ANNOTATION_BYTES) / _SCALE) + 1


class _Meter:
    """Adds up the costs of an expression's nodes."""

    def __init__(self) -> None:
        self.cost: Cost = Counter()
        self._numbers = count()
        self._visits = count()
        self._elements: dict[str, Path] = {}
        """Values of the variables of loops."""

    def value(self, node: Expression, known: Mapping[str, _Value]) -> _Value:  # noqa: C901 - a line for each kind
        if next(self._visits) > VISITS:
            raise UnboundedError
        match node:
            case Literal(value=value):
                return _Value(length=len(value) if isinstance(value, str) else 1)
            case Name(name=name):
                self._pay()
                return known[name]
            case Select(operand=operand, field=field):
                self._pay()
                return self.value(operand, known).member(field)
            case Index(operand=operand, key=key):
                self._pay()
                self.value(key, known)
                member = key.value if isinstance(key, Literal) and isinstance(key.value, str) else EACH
                return self.value(operand, known).member(member)
            case Has(select=select):
                self.value(select, known)
                return _Value(length=1)
            case Unary(operand=operand):
                self._pay()
                self.value(operand, known)
                return _Value(length=1)
            case Logic(operands=operands):
                for operand in operands:
                    self.value(operand, known)
                return _Value(length=1)
            case Conditional(condition=condition, then=then, otherwise=otherwise):
                self.value(condition, known)
                return self.value(then, known) + self.value(otherwise, known)
            case ListLiteral(elements=elements):
                if not _constant(node):
                    self._pay(10)
                return _Value(items=tuple(self.value(element.value, known) for element in elements))
            case MapLiteral(entries=()):
                return _Value()
            case Binary():
                return self._operator(node, known)
            case Comprehension(second=None, condition=None):
                return self._loop(node, known)
            case OptionalMap(target=target, name=name, body=body):
                self._pay(3)
                return self.value(body, {**known, name: self.value(target, known)})
            case Call():
                return self._call(node, known)
            case _:
                raise UnboundedError

    def _pay(self, units: int = 1) -> None:
        self.cost[_ONCE] += units * _SCALE

    def _traverse(self, value: _Value, times: int = 1) -> None:
        """Add a tenth per character or element, plus rounding."""
        self._pay(times)
        self.cost[_ONCE] += (value.length + len(value.items)) * times * _SCALE // 10
        if value.each:
            raise UnboundedError
        for place in value.places:
            if place[0] == "request":
                self._pay(times * (REQUEST_CHARACTERS // 10 + 1))
            else:
                self.cost[(*place, CHARACTERS)] += times * _SCALE // 10

    def _operator(self, node: Binary, known: Mapping[str, _Value]) -> _Value:
        left, right = self.value(node.left, known), self.value(node.right, known)
        match node.operator:
            case "+":
                self._traverse(left)
                self._traverse(right)
                return left + right
            case "in" if _constant(node.right):
                pass  # cel-go made a set of it when it compiled the condition
            case "in":
                self._pay(1 + len(right.items))
                for element in right.elements:
                    if not self._is_map(element[:-1]):
                        self.cost[element] += _SCALE
            case _:
                # The shorter one is traversed, if that costs anything.
                self._traverse(left if left.written or not right.written else right)
        return _Value(length=1)

    def _call(self, node: Call, known: Mapping[str, _Value]) -> _Value:
        target = _Value() if node.target is None else self.value(node.target, known)
        arguments = [self.value(argument, known) for argument in node.arguments]
        match node.function:
            case "size" | "hasValue":
                self._pay()
                return _Value(length=1)
            case "value":
                self._pay()
                return target
            case "orValue":
                return target + arguments[0]
            case "startsWith" | "endsWith":
                self._traverse(target)
            case "contains" if arguments[0].written:
                self._traverse(target, times=1 + arguments[0].length // 10)
            case "matches" if arguments[0].written:
                self._traverse(target, times=1 + arguments[0].length // 4)
            case _:
                raise UnboundedError
        return _Value(length=1)

    def _loop(self, node: Comprehension, known: Mapping[str, _Value]) -> _Value:
        per_round = _ROUND.get(node.fold)
        if per_round is None:
            raise UnboundedError
        target = self.value(node.target, known)
        self._pay()
        made: list[Path] = []
        for item in target.items:
            self._pay(per_round)
            body = self.value(node.body, {**known, node.first: item})
            if node.fold is Fold.MAP and not body.written:
                raise UnboundedError
        for element in target.elements:
            made += self._rounds(node, known, element, per_round)
        match node.fold:
            case Fold.FILTER:
                return target
            case Fold.MAP:
                return _Value(each=tuple(made), items=target.items)
            case _:
                return _Value(length=1)

    def _rounds(
        self, node: Comprehension, known: Mapping[str, _Value], element: Path, per_round: int
    ) -> Iterator[Path]:
        """Yield from a loop over the elements at a path. An iteration's cost may depend on the element alone."""
        variable = f"${next(self._numbers)}"
        self._elements[variable] = element
        outside, self.cost = self.cost, Counter()
        self._pay(per_round)
        body = self.value(node.body, {**known, node.first: _Value(((variable,),))})
        inside, self.cost = self.cost, outside
        for kind, amount in inside.items():
            self.cost[self._moved(kind, variable, element)] += amount
        if node.fold is Fold.MAP:
            if body.items or body.each:
                raise UnboundedError
            yield from [self._moved(place, variable, element) for place in body.places or ((variable,),)]

    def _is_map(self, place: Path) -> bool:
        while place[0] in self._elements:
            place = self._elements[place[0]] + place[1:]
        found: types.Type | None = types.POD if place[0] == "object" else None
        for name in place[1:]:
            if isinstance(found, types.ObjectType):
                found = found.fields.get(name)
            else:
                found = found.parameters[-1] if found is not None and found.parameters else None
        return found is not None and found.name == "map"

    @staticmethod
    def _moved(kind: Path, variable: str, element: Path) -> Path:
        if kind == _ONCE:
            return element[: len(element) - element[::-1].index(EACH)]
        if kind[0] != variable:
            raise UnboundedError
        return element + kind[1:]


def _constant(node: Expression) -> bool:
    return isinstance(node, ListLiteral) and all(isinstance(element.value, Literal) for element in node.elements)
