"""Interpreter: evaluation node by node, with exact costs and the place of every error.

Why it exists in addition to generated code: CEL's && and ||, and the macros made of them, absorb errors, and an error
names the sub-expression that failed. Generated code does neither: it gives up with an exception, and the interpreter
evaluates. So the interpreter defines an expression's value, and generated code must agree with it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rules_engine.language.cel.budget import Budget, CostExceeded, EvaluationError
from rules_engine.language.cel.check.checker import Checked, Constant
from rules_engine.language.cel.library.lists import check_list_length, sort_by
from rules_engine.language.cel.syntax import tree
from rules_engine.language.cel.values import members, operators
from rules_engine.language.cel.values.functions import no_overload
from rules_engine.language.cel.values.runtime_values import NONE, Optional, charge_key, is_map, make_map, type_of
from rules_engine.model.problems.source import MAX_EXCERPT

MAX_READ = 4 * MAX_EXCERPT
"""Characters of a sub-expression read for an error message: more than shown, since white space is collapsed.

A sub-expression may have thousands of characters, and fail thousands of times.
"""

FAILURE_COST = 20
"""Units of an error that another operand or round absorbs: raising it with its place takes about 10 µs."""


def interpret(checked: Checked, activation: Mapping[str, object], budget: Budget) -> object:
    """Return the value of an expression. Raises EvaluationError with its place."""
    return _Interpreter(checked, activation, budget).evaluate(checked.expression)


@dataclass(slots=True)
class _Thunk:
    """The value of a cel.bind, evaluated when its name is first used. `scope`: the names in scope at its place.

    cel-go does the same (interpreter/planner.go: the accumulator of a fold is initialized when it is first resolved).
    """

    expression: tree.Expression
    scope: dict[str, object]
    value: object = None
    error: EvaluationError | None = None
    evaluated: bool = False


class _Interpreter:
    """One evaluation. `_scope`: the variables of macros around the current node."""

    __slots__ = ("_activation", "_budget", "_checked", "_scope")

    def __init__(self, checked: Checked, activation: Mapping[str, object], budget: Budget) -> None:
        self._checked = checked
        self._activation = activation
        self._budget = budget
        self._scope: dict[str, object] = {}

    def evaluate(self, node: tree.Expression) -> Any:
        try:
            self._budget.spend(1)
            return _METHODS[type(node)](self, node)
        except EvaluationError as error:
            if error.location is None:
                raise self._locate_error(error, node) from None
            raise

    def _locate_error(self, error: EvaluationError, node: tree.Expression) -> EvaluationError:
        """Return the error with the text and the place of the sub-expression that failed."""
        source, span = self._checked.source, node.span
        shown = " ".join(source.text[span.start : min(span.end, span.start + MAX_READ)].split())
        if len(shown) > MAX_EXCERPT or (span.end - span.start > MAX_READ and shown):
            shown = f"{shown[: MAX_EXCERPT - 1]}…"
        offset = node.name_span.start if isinstance(node, tree.Select | tree.Call) else span.start
        return type(error)(f"{shown}: {error.message}", source.at(offset))

    # Names

    def literal(self, node: tree.Literal) -> object:
        return self._checked.patterns.get(node, node.value)

    def name(self, node: tree.Name) -> object:
        reference = self._checked.references.get(node)
        if reference is not None:
            return self._look_up(reference)
        if not node.absolute and node.name in self._scope:
            value = self._scope[node.name]
            return self._force(value) if type(value) is _Thunk else value
        raise EvaluationError(f"undeclared reference to '{node.name}'")

    def _look_up(self, reference: str | Constant) -> object:
        if isinstance(reference, Constant):
            return reference.value
        try:
            return self._activation[reference]
        except KeyError:
            raise EvaluationError(f"'{reference}' has no value") from None

    def select(self, node: tree.Select) -> object:
        reference = self._checked.references.get(node)
        if reference is not None:
            return self._look_up(reference)
        operand = self.evaluate(node.operand)
        if node.optional or type(operand) is Optional:
            return members.optional_member(operand, node.field, members.find_field)
        return members.required_field(operand, node.field)

    def has(self, node: tree.Has) -> bool:
        operand = self.evaluate(node.select.operand)
        if type(operand) is Optional:
            if not operand.present:
                return False
            operand = operand.value
            if type(operand) is Optional:
                return bool(operand.present)
        exists, _ = members.find_field(operand, node.select.field)
        return exists

    def index(self, node: tree.Index) -> object:
        operand = self.evaluate(node.operand)
        key = self.evaluate(node.key)
        if not isinstance(node.key, tree.Literal):
            charge_key(key, self._budget)
        if node.optional or type(operand) is Optional:
            return members.optional_member(operand, key, members.find_element)
        return members.required_element(operand, key)

    # Operators

    def unary(self, node: tree.Unary) -> object:
        value = self.evaluate(node.operand)
        if node.operator == "-":
            return operators.negate(value)
        if type(value) is bool:
            return not value
        raise no_overload("!", value)

    def binary(self, node: tree.Binary) -> object:
        left = self.evaluate(node.left)
        right = self.evaluate(node.right)
        return operators.BINARY[node.operator](left, right, self._budget)

    def logic(self, node: tree.Logic) -> bool:
        return self._absorb_errors(node, node.operator == "||", ((operand, None) for operand in node.operands))

    def _absorb_errors(
        self,
        node: tree.Logic | tree.Comprehension,
        decisive: bool,
        conditions: Iterable[tuple[tree.Expression, Mapping[str, object] | None]],
    ) -> bool:
        """Return `decisive` if one condition has that value: it absorbs the errors of all others, in any order.

        With each condition comes the scope of a macro's round, or None. Raises the first error that is not absorbed.
        """
        first_error: EvaluationError | None = None
        for condition, names in conditions:
            try:
                value = self.evaluate(condition) if names is None else self._evaluate_with(names, condition)
                if self._bool(node, value, condition) == decisive:
                    return decisive
            except CostExceeded:
                raise
            except EvaluationError as error:
                self._budget.spend(FAILURE_COST)
                first_error = first_error or error
        if first_error is not None:
            raise first_error
        return not decisive

    def _bool(self, node: tree.Logic | tree.Comprehension, value: object, part: tree.Expression) -> bool:
        """Return the value of a part of the node. Raises EvaluationError unless it is a bool."""
        if type(value) is bool:
            return value
        if isinstance(node, tree.Logic):
            error = no_overload(node.operator, value)
        else:
            error = EvaluationError(f"{node.fold.value}() needs a bool, not {type_of(value)}")
        raise self._locate_error(error, part)

    def conditional(self, node: tree.Conditional) -> object:
        condition = self.evaluate(node.condition)
        if type(condition) is not bool:
            raise no_overload("?:", condition)
        return self.evaluate(node.then if condition else node.otherwise)

    # Lists and maps

    def list_literal(self, node: tree.ListLiteral) -> list[object]:
        values = []
        for element in node.elements:
            value = self.evaluate(element.value)
            if element.optional:
                if not members.as_optional(value).present:
                    continue
                value = value.value
            values.append(value)
        return values

    def map_literal(self, node: tree.MapLiteral) -> object:
        entries = []
        for entry in node.entries:
            key = self.evaluate(entry.key)
            value = self.evaluate(entry.value)
            if entry.optional:
                if not members.as_optional(value).present:
                    continue
                value = value.value
            entries.append((key, value))
        return make_map(entries)

    def message(self, node: tree.Message) -> object:
        wrapper = self._checked.messages.get(node)
        if wrapper is None:
            raise EvaluationError(f"undeclared message type '{node.name}'")
        return wrapper.make({name: self.evaluate(value) for name, value in node.fields})

    # Calls

    def call(self, node: tree.Call) -> object:
        arguments = []
        if node.target is not None and node not in self._checked.namespaced:
            target = self.evaluate(node.target)
            if type(target) is Optional and node.function in ("or", "orValue") and len(node.arguments) == 1:
                return self._evaluate_alternative(node, target)
            arguments.append(target)
        arguments += [self.evaluate(argument) for argument in node.arguments]
        return self._checked.calls[node](self._budget, *arguments)

    def _evaluate_alternative(self, node: tree.Call, target: Optional) -> object:
        """Return the value of or() or orValue(), whose argument is evaluated only if needed (cel-go, library.go)."""
        if target.present:
            return target if node.function == "or" else target.value
        other = self.evaluate(node.arguments[0])
        return other if node.function == "orValue" else self._checked.calls[node](self._budget, target, other)

    # Macros

    def _evaluate_with(self, names: Mapping[str, object], body: tree.Expression) -> Any:
        """Return the value of a macro's body, with the macro's variables in scope."""
        outer = self._scope
        self._scope = {**outer, **names}
        try:
            return self.evaluate(body)
        finally:
            self._scope = outer

    def bind(self, node: tree.Bind) -> object:
        return self._evaluate_with({node.name: _Thunk(node.value, self._scope)}, node.body)

    def _force(self, thunk: _Thunk) -> object:
        """Return the value of a thunk, or raise its error, as often as it is used."""
        if not thunk.evaluated:
            outer, self._scope = self._scope, thunk.scope
            try:
                thunk.value = self.evaluate(thunk.expression)
            except EvaluationError as error:
                thunk.error = error
            finally:
                self._scope = outer
            thunk.evaluated = True
        if thunk.error is not None:
            # The instance is raised several times, and each raise would append to its traceback.
            raise thunk.error.with_traceback(None)
        return thunk.value

    def optional_map(self, node: tree.OptionalMap) -> object:
        target = members.as_optional(self.evaluate(node.target))
        if not target.present:
            return NONE
        value = self._evaluate_with({node.name: target.value}, node.body)
        return members.as_optional(value) if node.flat else Optional(True, value)

    def comprehension(self, node: tree.Comprehension) -> object:
        target = self.evaluate(node.target)
        return _FOLDS[node.fold](self, node, self._rounds(node, target))

    def _rounds(self, node: tree.Comprehension, target: Any) -> Iterator[dict[str, object]]:
        """Yield the variables of each round: an element or a key; if there are two, index or key, and the value."""
        items: Any
        if type(target) is list:
            items = enumerate(target)
        elif is_map(target):
            items = target.items()
        else:
            raise EvaluationError(f"{node.fold.value}() needs a list or a map, not {type_of(target)}")
        first, second = node.first, node.second
        only_key = type(target) is not list
        for key, value in items:
            self._budget.spend(1)
            if second is not None:
                yield {first: key, second: value}
            else:
                yield {first: key if only_key else value}

    def decide(self, node: tree.Comprehension, rounds: Iterator[dict[str, object]]) -> bool:
        """Return the value of all() or exists(): a chain of && or of ||."""
        return self._absorb_errors(node, node.fold is tree.Fold.EXISTS, ((node.body, names) for names in rounds))

    def exactly_one(self, node: tree.Comprehension, rounds: Iterator[dict[str, object]]) -> bool:
        count = 0
        for names in rounds:
            count += self._bool(node, self._evaluate_with(names, node.body), node.body)
        return count == 1

    def _is_kept(self, node: tree.Comprehension, names: dict[str, object]) -> bool:
        """Return the macro's condition for one round."""
        condition = node.condition
        return condition is None or self._bool(node, self._evaluate_with(names, condition), condition)

    def map_items(self, node: tree.Comprehension, rounds: Iterator[dict[str, object]]) -> list[object]:
        return check_list_length(
            [self._evaluate_with(names, node.body) for names in rounds if self._is_kept(node, names)]
        )

    def filter_items(self, node: tree.Comprehension, rounds: Iterator[dict[str, object]]) -> list[object]:
        return check_list_length(
            [
                names[node.first]
                for names in rounds
                if self._bool(node, self._evaluate_with(names, node.body), node.body)
            ]
        )

    def transform_map(self, node: tree.Comprehension, rounds: Iterator[dict[str, object]]) -> object:
        entries = [
            (names[node.first], self._evaluate_with(names, node.body)) for names in rounds if self._is_kept(node, names)
        ]
        return make_map(entries)

    def merge_entries(self, node: tree.Comprehension, rounds: Iterator[dict[str, object]]) -> object:
        merged: list[tuple[object, object]] = []
        for names in rounds:
            if self._is_kept(node, names):
                entry = self._evaluate_with(names, node.body)
                if not is_map(entry):
                    raise EvaluationError(f"transformMapEntry() needs a map, not {type_of(entry)}")
                merged.extend(entry.items())
        return make_map(merged)

    def sort_items(self, node: tree.Comprehension, rounds: Iterator[dict[str, object]]) -> object:
        items, keys = [], []
        for names in rounds:
            items.append(names[node.first])
            keys.append(self._evaluate_with(names, node.body))
        return sort_by(self._budget, items, keys)


_METHODS: dict[type, Callable[[_Interpreter, Any], object]] = {
    tree.Literal: _Interpreter.literal,
    tree.Name: _Interpreter.name,
    tree.Select: _Interpreter.select,
    tree.Index: _Interpreter.index,
    tree.Call: _Interpreter.call,
    tree.Unary: _Interpreter.unary,
    tree.Binary: _Interpreter.binary,
    tree.Logic: _Interpreter.logic,
    tree.Conditional: _Interpreter.conditional,
    tree.ListLiteral: _Interpreter.list_literal,
    tree.MapLiteral: _Interpreter.map_literal,
    tree.Message: _Interpreter.message,
    tree.Has: _Interpreter.has,
    tree.Comprehension: _Interpreter.comprehension,
    tree.Bind: _Interpreter.bind,
    tree.OptionalMap: _Interpreter.optional_map,
}

_FOLDS: dict[tree.Fold, Callable[[_Interpreter, tree.Comprehension, Iterator[dict[str, object]]], object]] = {
    tree.Fold.ALL: _Interpreter.decide,
    tree.Fold.EXISTS: _Interpreter.decide,
    tree.Fold.EXISTS_ONE: _Interpreter.exactly_one,
    tree.Fold.MAP: _Interpreter.map_items,
    tree.Fold.TRANSFORM_LIST: _Interpreter.map_items,
    tree.Fold.FILTER: _Interpreter.filter_items,
    tree.Fold.TRANSFORM_MAP: _Interpreter.transform_map,
    tree.Fold.TRANSFORM_MAP_ENTRY: _Interpreter.merge_entries,
    tree.Fold.SORT_BY: _Interpreter.sort_items,
}
