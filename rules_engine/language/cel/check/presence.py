"""Members that are read without a test of their presence: the expression fails for objects without them.

A test (has(), `in`, `.?`, `[?…]`) proves that the path of a member exists, for the parts whose value matters only if
the test succeeds. A test whose outcome is not tracked, as in a comparison of an optional, counts as a proof: better no
warning than a wrong one.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TypeAlias

from rules_engine.language.cel.check.amounts import AmountRemedies
from rules_engine.language.cel.check.checker import Checked
from rules_engine.language.cel.syntax import tree
from rules_engine.language.cel.syntax.hints import remedy_clause, string_literal
from rules_engine.language.cel.values.types import AMOUNT
from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.problem import Problem, Severity

PresencePath: TypeAlias = tuple[object, ...]
"""A variable, or the node of another value, and the members selected from it; ITEM for any item of a list or map."""
Paths: TypeAlias = frozenset[PresencePath]
Chain: TypeAlias = tree.Select | tree.Index | tree.Has | tree.Binary
ITEM = object()

_NONE: Paths = frozenset()
_NO_READS: frozenset["Read"] = frozenset()
_DEFAULTS = {"bool": "false", "double": "0.0", "int": "0", "list": "[]", "map": "{}", "string": ""}
"""Values for the absence of a member, by its type; a string needs quotes."""


@dataclass(frozen=True, slots=True)
class Read:
    """A read of a member. `chain`: the longest chain of members around it, with has() or == null if they follow."""

    checked: Checked = field(compare=False)
    member: tree.Select | tree.Index
    chain: Chain
    path: PresencePath

    def problem(self) -> Problem:
        """Return the warning; its remedy is the chain in which any member may be absent."""
        text, chain, kind = self.checked.source.text, self.chain, self.checked.members.get(self.chain)
        remedies = AmountRemedies(text)
        if isinstance(chain, tree.Has):
            remedy = remedies.present(chain.select)
        elif isinstance(chain, tree.Binary):
            remedy = f"{'!' if chain.operator == '==' else ''}{remedies.present(chain.left)}"
        elif kind is not None and kind.name in _DEFAULTS:
            default = _DEFAULTS[kind.name] or string_literal("0" if kind is AMOUNT else "", text)
            remedy = f"{remedies.path(chain)[0]}.orValue({default})"
        else:
            remedy = f"{remedies.present(chain)} && …"
        message = f"fails if {text[self.member.span.start : self.member.span.end]} is absent{remedy_clause(remedy)}"
        return self.checked.problem(Code.CEL_ABSENT, message, chain.span, Severity.WARNING)


class Presence:
    """Reads and tests of an expression. `variables`: its document's variables. `absent`: paths that may be absent."""

    def __init__(self, checked: Checked, variables: Mapping[str, "Presence"], absent: Collection[PresencePath]) -> None:
        self.checked, self._variables, self._absent = checked, variables, absent
        self._sources: dict[tree.Expression, tree.Expression] = {}
        """The list or map that contains the item, by the item's name."""
        self._chains: dict[tree.Expression, Chain] = {}
        self._resolve(checked.expression, {})
        # Names and variables stand for the same node again and again.
        self.path, self.existing, self.reads = cache(self._path), cache(self._existing_paths), cache(self._reads)

    def _resolve(self, node: tree.Expression, names: Mapping[str, tree.Expression], chain: Chain | None = None) -> None:
        if isinstance(node, tree.Name) and node not in self.checked.references and node.name in names:
            self._sources[node] = names[node.name]
        inside: tree.Expression | None = None
        match node:
            case tree.Select(operand=inside) | tree.Index(operand=inside) | tree.Has(select=inside):
                self._chains[node] = chain = chain or node
            case tree.Binary(
                operator="==" | "!=", left=tree.Select() | tree.Index() as inside, right=tree.Literal(value=None)
            ):
                chain = node
        source = tree.part_outside_scope(node)
        inner = {name: item for name, item in names.items() if name not in tree.macro_variables(node)}
        if isinstance(node, tree.Comprehension):
            inner |= dict.fromkeys(tree.macro_variables(node), node.target)
        for part in tree.child_nodes(node):
            self._resolve(part, names if part is source else inner, chain if part is inside else None)

    def _value(self, node: tree.Expression) -> "tuple[Presence, tree.Expression] | None":
        """Return the expression that a variable stands for."""
        variable = self._variables.get(str(self.checked.references.get(node)))
        return None if variable is None else (variable, variable.checked.expression)

    def _path(self, node: tree.Expression) -> PresencePath:
        value = self._value(node)
        if value is not None:
            return value[0].path(value[1])
        if node in self._sources:
            return self.item(self._sources[node])
        match node:
            case _ if isinstance(reference := self.checked.references.get(node), str):
                return (reference,)
            case (
                tree.Select(operand=operand, field=key) | tree.Index(operand=operand, key=tree.Literal(value=str(key)))
            ):
                return (*self.path(operand), key)
            case tree.Index(operand=operand):
                return self.item(operand)
            case tree.Call(function="orValue" | "value", target=operand) if operand is not None:
                return self.path(operand)
        return (node,)

    def item(self, node: tree.Expression) -> PresencePath:
        """Return the path of each item of a list or map."""
        value = self._value(node)
        if value is not None:
            return value[0].item(value[1])
        if isinstance(node, tree.Comprehension) and node.fold is tree.Fold.FILTER:
            return self.item(node.target)
        return (*self.path(node), ITEM)

    def _existing_paths(self, node: tree.Expression, outcome: bool | None) -> Paths:
        """Return the paths that exist if a node has this value; None stands for any value."""
        value = self._value(node)
        if value is not None:
            return value[0].existing(value[1], outcome)
        tested, parts = _NONE, tree.child_nodes(node)
        match node:
            case tree.Unary(operator="!", operand=operand) if outcome is not None:
                return self.existing(operand, not outcome)
            case tree.Logic(operator=operator, operands=operands) if outcome is not None:
                each = [self.existing(operand, outcome) for operand in operands]
                return _NONE.union(*each) if (operator == "&&") == outcome else each[0].intersection(*each)
            case tree.Has(select=select):
                tested, parts = frozenset({self.path(select)}), (select.operand,)
            case tree.Binary(operator="in", left=left, right=right):
                tested = frozenset({(*self.path(right), left.value if isinstance(left, tree.Literal) else ITEM)})
            case tree.Select() | tree.Index() if (
                node not in self.checked.members and node not in self.checked.references
            ):
                tested, outcome = frozenset({self.path(node)}), None
        return (_NONE if outcome is False else tested).union(*(self.existing(part, None) for part in parts))

    def _reads(self, node: tree.Expression) -> frozenset[Read]:
        """Return the reads of a node that no test in it guards."""
        value = self._value(node)
        if value is not None:
            return value[0].reads(value[1])
        reads = _NO_READS.union(*(drop_proven_reads(self.reads(part), proven) for part, proven in self._parts(node)))
        if isinstance(node, tree.Select | tree.Index) and self._may_be_absent(node):
            own = [Read(self.checked, node, self._chains[node], self.path(node))]
            reads |= drop_proven_reads(own, self.existing(node.operand, None))
        return reads

    def _parts(self, node: tree.Expression) -> Iterator[tuple[tree.Expression, Paths]]:
        """Yield the parts of a node, each with the paths that exist whenever the part's value matters."""
        match node:
            case tree.Has(select=select):
                yield select.operand, _NONE
            case tree.Logic(operator=operator, operands=operands):
                # An operand that decides absorbs the errors of the others, so each operand is guarded by all others.
                each = [self.existing(part, operator == "&&") for part in operands]
                for index, part in enumerate(operands):
                    yield part, _NONE.union(*each[:index], *each[index + 1 :])
            case tree.Conditional(condition=condition, then=then, otherwise=otherwise):
                yield condition, _NONE
                yield then, self.existing(condition, True)
                yield otherwise, self.existing(condition, False)
            case tree.Comprehension(target=target, condition=condition, body=body):
                proven = self.existing(target, None)
                yield target, _NONE
                if condition is not None:
                    yield condition, proven
                    proven |= self.existing(condition, True)
                yield body, proven
            case tree.Bind():
                return  # The bind's name may stand for a test.
            case _ if node not in self.checked.references:
                yield from ((part, _NONE) for part in tree.child_nodes(node))

    def _may_be_absent(self, node: tree.Select | tree.Index) -> bool:
        """Return True for a field that objects may lack, and for a key of a map that is a literal or a parameter."""
        path = self.path(node)
        key = node.key if isinstance(node, tree.Index) else None
        computed = key is not None and not isinstance(key, tree.Literal) and self.path(key)[0] != "params"
        # Calls, and names of other macros, stand for values without a path.
        has_path = not isinstance(path[0], tree.Call | tree.ListLiteral | tree.MapLiteral | tree.Name)
        return path in self._absent or (node in self.checked.fallible and not computed and has_path)


def drop_proven_reads(reads: Iterable[Read], proven: Paths) -> frozenset[Read]:
    """Return the reads of paths that are not proven."""
    return frozenset(read for read in reads if proven.isdisjoint({read.path, (*read.path[:-1], ITEM)}))


def presence_warnings(
    variables: Mapping[str, Checked],
    guards: Sequence[Checked],
    guarded: Iterable[Checked],
    always: Paths,
    absent: Collection[PresencePath],
) -> Iterator[Problem]:
    """Yield a warning for each read that no test guards.

    `guarded`: expressions that are evaluated only if all `guards` are true. `variables`: variables that they may read;
    each may read earlier ones. `always`: paths that exist for every object. `absent`: further paths that may be absent.
    """
    presences: dict[str, Presence] = {}
    for name, checked in variables.items():
        presences[name] = Presence(checked, presences, absent)
    guard_presences = [Presence(guard, presences, absent) for guard in guards]
    tests = [guard.existing(guard.checked.expression, True) for guard in guard_presences]
    unproven_reads = set[Read]()
    for index, guard in enumerate(guard_presences):
        # A false condition absorbs the errors of the others, so each is guarded by all others.
        others = always.union(*tests[:index], *tests[index + 1 :])
        unproven_reads |= drop_proven_reads(guard.reads(guard.checked.expression), others)
    for checked in guarded:
        reads = Presence(checked, presences, absent).reads(checked.expression)
        unproven_reads |= drop_proven_reads(reads, always.union(*tests))
    # The innermost member of each chain comes last.
    yield from {read.chain: read.problem() for read in sorted(unproven_reads, key=lambda read: len(read.path))}.values()
