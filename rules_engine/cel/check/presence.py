"""Members that are read without a test of their presence: the expression fails for objects that lack them.

A test (has(), `in`, `.?`, `[?…]`) proves the path of a member for the parts of the expression that count only if it
succeeds. A test whose outcome is not followed, as in a comparison of an optional, proves its path in any case: a missing
warning is better than a wrong one.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TypeAlias

from rules_engine.cel.check.amounts import Amounts
from rules_engine.cel.check.checker import Checked
from rules_engine.cel.syntax.hints import clause, quoted
from rules_engine.cel.syntax.tree import (
    Binary,
    Bind,
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
    children,
    outside,
    own_names,
)
from rules_engine.cel.values.types import AMOUNT
from rules_engine.model.problem_codes import Code
from rules_engine.model.problems import Problem, Severity

Path: TypeAlias = tuple[object, ...]
"""A variable, or the node of another value, and the members that are selected from it; ITEM for any of a list or map."""
Paths: TypeAlias = frozenset[Path]

ITEM = object()

_NONE: Paths = frozenset()
_DEFAULTS = {"bool": "false", "double": "0.0", "int": "0", "list": "[]", "map": "{}"}


@dataclass(frozen=True, slots=True)
class Read:
    """A chain of members, or a has() of one, and the paths in it that may be absent."""

    checked: Checked = field(compare=False)
    node: Select | Index | Has
    paths: Paths

    def problem(self) -> Problem:
        """Return the warning, with the chain in which all members may be absent."""
        text, members = self.checked.source.text, Amounts(self.checked.source.text)
        node = self.node.select if isinstance(self.node, Has) else self.node
        found = self.checked.members.get(node)
        default = _DEFAULTS.get(found.name) if found else None
        if found and found.name == "string":
            default = quoted("0" if found is AMOUNT else "", text)
        remedy = f"{members.path(node)[0]}.orValue({default})" if default else members.present(node)
        shown, span = node.operand.span if isinstance(self.node, Has) else node.span, self.node.span
        more = "" if default or isinstance(self.node, Has) else " && …"
        return Problem(
            code=Code.CEL_ABSENT,
            message=f"fails if {text[shown.start : shown.end]} is absent{clause(f'{remedy}{more}')}",
            location=self.checked.source.at(span.start),
            length=max(1, span.end - span.start),
            severity=Severity.WARNING,
        )


class Presence:
    """Reads and tests of one expression. `variables`: those of its document. `absent`: further paths that may be absent."""

    def __init__(self, checked: Checked, variables: Mapping[str, "Presence"], absent: Collection[Path] = ()) -> None:
        self._checked = checked
        self._variables = variables
        self._absent = absent
        self._sources: dict[Expression, tuple[Expression, bool]] = {}
        """The value of each name of a macro, or (with True) the list or map of which it is an item."""
        self._resolve(checked.expression, {})
        # Without, names that stand for values with names would take exponential time.
        self._reads_of, self._proven_by = cache(self._reads), cache(self._proven)

    @property
    def reads(self) -> frozenset[Read]:
        """The reads that nothing in the expression guards."""
        return self._reads_of(self._checked.expression)

    def proven(self, outcome: bool) -> Paths:
        """Return the paths that exist if the expression has this value."""
        return self._proven_by(self._checked.expression, outcome)

    def _resolve(self, node: Expression, names: Mapping[str, tuple[Expression, bool]]) -> None:
        if isinstance(node, Name) and node not in self._checked.references and node.name in names:
            self._sources[node] = names[node.name]
        source = outside(node)
        inner = dict(names)
        if source is not None:
            inner |= dict.fromkeys(own_names(node), (source, isinstance(node, Comprehension)))
        for part in children(node):
            self._resolve(part, names if part is source else inner)

    def _value(self, node: Expression) -> tuple["Presence", Expression] | None:
        """Return the expression that a variable of the document, or a name, stands for."""
        variable = self._variables.get(str(self._checked.references.get(node)))
        if variable is not None:
            return variable, variable._checked.expression
        source, item = self._sources.get(node, (node, True))
        return None if item else (self, source)

    def _path(self, node: Expression) -> Path:
        value = self._value(node)
        if value is not None:
            return value[0]._path(value[1])
        match node:
            case Name() if node in self._sources:
                return self._items(self._sources[node][0])[0]
            case _ if isinstance(reference := self._checked.references.get(node), str):
                return (reference,)
            case Select(operand=operand, field=key) | Index(operand=operand, key=Literal(value=str(key))):
                return (*self._path(operand), key)
            case Index(operand=operand):
                return self._items(operand)[0]
            case Call(function="orValue" | "value", target=operand) if operand is not None:
                return self._path(operand)
            case Call(function=name, target=operand, arguments=()) if operand and node not in self._checked.namespaced:
                return (*self._path(operand), f"{name}()")
        return (node,)

    def _items(self, node: Expression) -> tuple[Path, Paths]:
        """Return the path of each item of a list or map, and the paths that exist for each."""
        value = self._value(node)
        if value is not None:
            return value[0]._items(value[1])
        match node:
            case Comprehension(fold=Fold.FILTER, target=target, body=body):
                path, proven = self._items(target)
                return path, proven | self._proven_by(body, True)
            case Comprehension(fold=Fold.MAP, target=target, body=body):
                return self._path(body), self._items(target)[1]
        path = (*self._path(node), ITEM)
        return path, frozenset({path})

    def _proven(self, node: Expression, outcome: bool | None) -> Paths:
        """Return the paths that exist if a node has this value, or (with None) is evaluated."""
        value = self._value(node)
        if value is not None:
            return value[0]._proven_by(value[1], outcome)
        proven, parts = _NONE, children(node)
        match node:
            case Has(select=select):
                proven, parts = self._tested(self._path(select), outcome), (select.operand,)
            case Binary(operator="in", left=left, right=right):
                key = left.value if isinstance(left, Literal) else ITEM
                proven = self._tested((*self._path(right), key), outcome)
            case Select() | Index() if node not in self._checked.members and node not in self._checked.references:
                proven = frozenset({self._path(node)})
            case Unary(operator="!", operand=operand) if outcome is not None:
                return self._proven_by(operand, not outcome)
            case Logic(operator=operator, operands=operands) if outcome is not None:
                found = [self._proven_by(operand, outcome) for operand in operands]
                return _NONE.union(*found) if (operator == "&&") == outcome else found[0].intersection(*found)
            case Conditional(condition=condition, then=then, otherwise=otherwise) if outcome is not None:
                found = [
                    self._proven_by(condition, chosen) | self._proven_by(branch, outcome)
                    for chosen, branch in ((True, then), (False, otherwise))
                    if not isinstance(branch, Literal) or branch.value is outcome
                ]
                return found[0].intersection(*found) if found else _NONE
            case Comprehension(fold=fold, target=target, body=body):
                parts = (target,)
                inside = [part for part in children(node) if part is not target]
                item = self._items(target)[0]
                if outcome is not None and fold is (Fold.ALL if outcome else Fold.EXISTS):
                    proven = self._proven_by(body, outcome)
                else:  # One item proves nothing about others.
                    tested = _NONE.union(*(self._proven_by(part, None) for part in inside))
                    proven = frozenset(p for p in tested if p[: len(item)] != item)
            case Bind(body=body):
                return self._proven_by(body, outcome)
        return proven.union(*(self._proven_by(part, None) for part in parts))

    @staticmethod
    def _tested(path: Path, outcome: bool | None) -> Paths:
        return _NONE if outcome is False else frozenset({path})

    def _reads(self, node: Expression) -> frozenset[Read]:
        """Return the reads in a node that nothing in it guards."""
        value = self._value(node)
        if value is not None:
            return value[0]._reads_of(value[1])
        match node:
            case Select() | Index() | Has() if node not in self._checked.references:
                return self._chain(node)
            case Logic(operator=operator, operands=operands):
                return conjunction(
                    [(self._reads_of(part), self._proven_by(part, operator == "&&")) for part in operands]
                )
            case Conditional(condition=condition, then=then, otherwise=otherwise):
                branches = [
                    unproven(self._reads_of(part), with_prefixes(self._proven_by(condition, chosen)))
                    for chosen, part in ((True, then), (False, otherwise))
                ]
                return self._reads_of(condition).union(*branches)
            case Comprehension(target=target, condition=condition, body=body):
                found = self._reads_of(body)
                if condition is not None:
                    proven = with_prefixes(self._proven_by(condition, True))
                    found = self._reads_of(condition) | unproven(found, proven)
                return self._reads_of(target) | unproven(found, with_prefixes(self._items(target)[1]))
            case OptionalMap(target=target, body=body):
                proven = with_prefixes(self._proven_by(target, None))
                return self._reads_of(target) | unproven(self._reads_of(body), proven)
            case Bind(body=body):
                return self._reads_of(body)
            case Name():
                return frozenset()
        return frozenset[Read]().union(*map(self._reads_of, children(node)))

    def _chain(self, node: Select | Index | Has) -> frozenset[Read]:
        part = node.select.operand if isinstance(node, Has) else node
        paths, proven = set[Path](), set[Path]()
        others = frozenset[Read]()
        while isinstance(part, Select | Index) and part not in self._checked.references:
            if self._may_be_absent(part):
                paths.add(self._path(part))
            if isinstance(part, Index):
                others |= self._reads_of(part.key)
                if isinstance(part.key, Literal) and not isinstance(part.key.value, str):
                    proven |= self._items(part.operand)[1]
            part = part.operand
        read = Read(self._checked, node, frozenset(paths))
        return others | self._reads_of(part) | unproven({read}, with_prefixes(proven))

    def _may_be_absent(self, node: Select | Index) -> bool:
        """Return True for a field that objects may lack, and for a key of a map that is no literal itself.

        A key that depends on the object is not followed.
        """
        path = self._path(node)
        if isinstance(node, Index) and not isinstance(node.key, Literal):
            key = self._path(node.key)[0]
            if key != "params" and not isinstance(key, ListLiteral):
                return False
        literal = isinstance(path[0], ListLiteral | MapLiteral)
        return (node in self._checked.fallible and not literal) or path in self._absent


def conjunction(operands: Sequence[tuple[frozenset[Read], Paths]]) -> frozenset[Read]:
    """Return the unguarded reads of operands with what each proves: an error in one counts if all others hold."""
    found = frozenset[Read]()
    before = _NONE
    for index, (reads, proven) in enumerate(operands):
        after = _NONE.union(*(later for _, later in operands[index + 1 :]))
        found |= unproven(reads, before | after)
        # Evaluated without error, so the operands of its tests exist, too.
        before |= with_prefixes(proven)
    return found


def unproven(reads: Iterable[Read], proven: Paths) -> frozenset[Read]:
    """Return the reads of paths that are not proven."""
    left = (
        replace(read, paths=frozenset(p for p in read.paths if not {p, (*p[:-1], ITEM)} & proven)) for read in reads
    )
    return frozenset(read for read in left if read.paths)


def with_prefixes(paths: Iterable[Path]) -> Paths:
    """Return the paths, and those of the values that they are members of."""
    return frozenset(path[:end] for path in paths for end in range(1, len(path) + 1))
