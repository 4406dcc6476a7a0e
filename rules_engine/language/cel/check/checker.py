"""Checker: names, functions and types of an expression, before any evaluation."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from rules_engine.language.cel.budget import MAX_NESTING, Budget, EvaluationError
from rules_engine.language.cel.check.amounts import AmountRemedies
from rules_engine.language.cel.check.environment import REFUSED, Environment
from rules_engine.language.cel.check.inference import Inference
from rules_engine.language.cel.library.wrappers import WRAPPERS, Wrapper
from rules_engine.language.cel.syntax import hints, tree
from rules_engine.language.cel.syntax.tree import evaluation_depth
from rules_engine.language.cel.values import regex, types
from rules_engine.language.cel.values.functions import KUBERNETES, Dispatch, Functions, Overload
from rules_engine.language.cel.values.operators import SIGNATURES
from rules_engine.language.cel.values.runtime_values import type_of
from rules_engine.language.cel.values.types import DYN, ObjectType, Type, list_of, map_of, optional_of
from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.problem import Problem, Severity, did_you_mean
from rules_engine.model.problems.source import SourceText

NAMED_VALUES: Mapping[str, object] = {
    "google.protobuf.NullValue.NULL_VALUE": None,
    **{kind.name: kind.plain for kind in types.NAMED},
}
"""Names of constant values: the types that type() returns, and protobuf's null."""

KEY_TYPES = frozenset({types.BOOL, types.INT, types.UINT, types.STRING})
"""Types of a map's keys."""

PATTERNS = frozenset({"matches", "find", "findAll"})
"""Functions whose first argument after the text is a regular expression."""

CONVERSIONS = frozenset(
    {"bool", "cidr", "double", "duration", "int", "ip", "quantity", "semver", "timestamp", "uint", "url"}
)
"""Functions that fail on invalid text: a literal argument is checked at load."""

MAX_SHOWN = 4
"""Overloads of a function listed in a message."""

RELATIONS = frozenset({"<", "<=", ">", ">="})
"""Operators of order, which do not chain."""

_REQUEST = "AdmissionRequest"
"""Type of `request`. The object is a field of it in an AdmissionReview, and a variable of its own in policies."""

PREDICATES = frozenset({tree.Fold.ALL, tree.Fold.EXISTS, tree.Fold.EXISTS_ONE, tree.Fold.FILTER})
"""Macros whose body is a condition."""


@dataclass(frozen=True, slots=True)
class Constant:
    """Value of a name, constant from load on."""

    value: object


@dataclass(frozen=True, slots=True)
class Checked:
    """A checked expression and the facts about its nodes.

    `references`: the full name of the variable, or the constant, for names and for selections that spell a dotted name;
    any other name is a variable of a macro, and `locals` has its type. `members`: the types of fields and elements,
    except for optionals; `fallible`: members whose absence is an error. `calls`: the overloads of each call.
    `namespaced`: calls whose target is part of the function's name. `patterns`: compiled literal patterns.
    """

    source: SourceText
    expression: tree.Expression
    result: Type
    references: Mapping[tree.Expression, str | Constant]
    locals: Mapping[tree.Name, Type]
    members: Mapping[tree.Expression, Type]
    fallible: frozenset[tree.Expression]
    calls: Mapping[tree.Call, Dispatch]
    namespaced: frozenset[tree.Call]
    messages: Mapping[tree.Message, Wrapper]
    patterns: Mapping[tree.Expression, regex.Pattern]
    reads: frozenset[str]
    problems: tuple[Problem, ...]
    warnings: tuple[Problem, ...]

    def problem(self, code: Code, message: str, span: tree.SourceSpan, severity: Severity = Severity.ERROR) -> Problem:
        """Return a problem with the place of a part of the expression."""
        return _problem_at(self.source, code, message, span, severity)


def check_expression(source: SourceText, expression: tree.Expression, environment: Environment) -> Checked:
    """Resolve the names and types of an expression; the result includes its problems."""
    checker = _Checker(source, environment, environment.functions, AmountRemedies(source.text))
    result = checker.inference.settle(checker.type(expression))
    if checker.binds and evaluation_depth(expression, checker.references) > MAX_NESTING:
        message = f"with its cel.bind the expression is nested more than {MAX_NESTING} levels deep"
        checker.problem(Code.CEL_TOO_DEEP, message, expression.span)
    return Checked(
        source=source,
        expression=expression,
        result=result,
        references=checker.references,
        locals={name: checker.inference.settle(kind) for name, kind in checker.local_types.items()},
        members=checker.members,
        fallible=frozenset(checker.fallible),
        calls=checker.calls,
        namespaced=frozenset(checker.namespaced),
        messages=checker.messages,
        patterns=checker.patterns,
        reads=frozenset(checker.reads),
        problems=tuple(sorted(checker.problems, key=lambda problem: (problem.location, problem.message))),
        warnings=tuple(sorted(checker.warnings, key=lambda problem: problem.location)),
    )


@dataclass(slots=True)
class _Checker:
    source: SourceText
    environment: Environment
    functions: Functions
    amounts: AmountRemedies
    inference: Inference = field(default_factory=Inference)
    references: dict[tree.Expression, str | Constant] = field(default_factory=dict)
    members: dict[tree.Expression, Type] = field(default_factory=dict)
    fallible: set[tree.Expression] = field(default_factory=set)
    calls: dict[tree.Call, Dispatch] = field(default_factory=dict)
    namespaced: set[tree.Call] = field(default_factory=set)
    messages: dict[tree.Message, Wrapper] = field(default_factory=dict)
    patterns: dict[tree.Expression, regex.Pattern] = field(default_factory=dict)
    reads: set[str] = field(default_factory=set)
    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
    locals: dict[str, Type] = field(default_factory=dict)
    local_types: dict[tree.Name, Type] = field(default_factory=dict)
    binds: bool = False
    compared: set[tree.Expression] = field(default_factory=set)
    """Operands of a comparison: an undeclared name there may be a string without quotes."""

    def type(self, node: tree.Expression) -> Type:
        method: Any = getattr(self, f"_type_{type(node).__name__.lower()}")
        kind: Type = method(node)
        if kind is types.AMOUNT:
            self.amounts.add(node)
        return self.inference.resolve(kind)

    def problem(self, code: Code, message: str, span: tree.SourceSpan) -> Type:
        """Record a problem and return dyn, so that one mistake is reported once."""
        self.problems.append(_problem_at(self.source, code, message, span, Severity.ERROR))
        return DYN

    def warn(self, code: Code, message: str, span: tree.SourceSpan) -> None:
        """Record a warning, unless the message is empty."""
        if message:
            self.warnings.append(_problem_at(self.source, code, message, span, Severity.WARNING))

    def type_text(self, kind: Type) -> str:
        return str(self.inference.settle(kind))

    # Names

    def _type_literal(self, node: tree.Literal) -> Type:
        return type_of(node.value)

    def _type_name(self, node: tree.Name) -> Type:
        if not node.absolute and node.name in self.locals:
            self.local_types[node] = self.locals[node.name]
            return self.locals[node.name]
        kind = self._resolve_name(node, node.name, absolute=node.absolute)
        if kind is not None:
            return kind
        if node.name in REFUSED:
            return self.problem(Code.CEL_UNDECLARED, REFUSED[node.name], node.span)
        names = {*self.environment.variables, *self.locals}
        subject = self.environment.variables.get("object")
        fields = subject.fields if isinstance(subject, ObjectType) else ()
        hint = hints.name_hint(node.name, names, fields) or did_you_mean(node.name, names)
        if not hint and node in self.compared:
            hint = hints.remedy_clause(hints.string_literal(node.name, self.source.text))
        spelling = f".{node.name}" if node.absolute else node.name
        return self.problem(Code.CEL_UNDECLARED, f"undeclared reference to '{spelling}'{hint}", node.span)

    def _resolve_name(self, node: tree.Expression, name: str, *, absolute: bool) -> Type | None:
        """Return the type of the variable or constant with a dotted name, or None."""
        candidates = self.environment.candidates(name, absolute=absolute)
        for candidate in candidates:
            if candidate in self.environment.variables:
                self.references[node] = candidate
                self.reads.add(candidate)
                return self.environment.variables[candidate]
        for candidate in candidates:
            if candidate in NAMED_VALUES:
                self.references[node] = Constant(NAMED_VALUES[candidate])
                return type_of(NAMED_VALUES[candidate])
        return None

    def _type_select(self, node: tree.Select) -> Type:
        name = tree.as_qualified_name(node)
        if name is not None and (name.startswith(".") or name.split(".")[0] not in self.locals):
            kind = self._resolve_name(node, name.lstrip("."), absolute=name.startswith("."))
            if kind is not None:
                return kind
        operand = self.type(node.operand)
        inner, optional = _unwrap_optional(operand)
        if inner.name == _REQUEST and node.field in self.environment.variables:
            hint = hints.remedy_clause(node.field)
            return self.problem(Code.CEL_FIELD, f"{inner.name} has no field '{node.field}'{hint}", node.span)
        return self._member_type(node, inner, self._field_type(inner, node), optional=optional, key=node.field)

    def _member_type(
        self, node: tree.Select | tree.Index, operand: Type, kind: Type, *, optional: bool, key: object
    ) -> Type:
        """Return the type of a member, and record whether it may be absent. `optional`: the operand is an optional."""
        if optional or node.optional:
            return optional_of(kind)
        self.members[node] = kind
        present = operand.present if isinstance(operand, ObjectType) else None
        if operand.name == "map" or (present is not None and key not in present):
            self.fallible.add(node)
        return kind

    def _field_type(self, operand: Type, node: tree.Select) -> Type:
        """Return the type of a field of an object or map. `operand`: the type inside, if it is an optional."""
        if isinstance(operand, ObjectType):
            return self._object_field_type(operand, node.field, node.name_span)
        if operand.name == "map":
            if not self.inference.fits_all([operand.parameters[0]], [types.STRING]):
                return self.problem(Code.CEL_TYPE, f"{self.type_text(operand)} has no string keys", node.name_span)
            return operand.parameters[1]
        if self.inference.settle(operand) == DYN:
            return DYN
        key = self._report_dotted_key(node)
        if key is not None:
            return key
        message = f"{self.type_text(operand)} has no fields{self._no_field_hint(operand, node.field)}"
        return self.problem(Code.CEL_TYPE, message, node.name_span)

    def _no_field_hint(self, operand: Type, name: str) -> str:
        """Return the hint for a field of a value without fields: a method, or a field of a list's items."""
        overloads = self.functions.named(name, method=True)
        if overloads:
            return hints.member_hint(name, arguments=all(len(overload.parameters) > 1 for overload in overloads))
        items = operand.parameters[0] if operand.name == "list" else operand
        if isinstance(items, ObjectType) and name in items.fields:
            return hints.remedy_clause(f"….all(x, x.{name} …) or ….exists(x, x.{name} …)")
        return hints.function_hint(name)

    def _report_dotted_key(self, node: tree.Expression) -> Type | None:
        """Report a label or annotation key that is written like fields, as in labels.example.com/team."""
        first = node
        while isinstance(first, tree.Binary):
            first = first.left
        selections: list[tree.Select] = []
        while isinstance(first, tree.Select):
            selections.append(first)
            first = first.operand
        before = len(self.problems)
        for selection in reversed(selections) if isinstance(first, tree.Name) and self._is_declared(first) else ():
            operand = self.type(selection.operand)
            if operand.name == "map" and self.inference.settle(operand.parameters[1]) == types.STRING:
                start = selection.name_span.start
                key = hints.read_key(self.source.text, start)
                if len(self.problems) > before or start + len(key) <= selection.name_span.end:
                    break
                message = (
                    f"'{key}' is not a name{hints.remedy_clause(f'[{hints.string_literal(key, self.source.text)}]')}"
                )
                # Other problems of this text would suggest to keep it.
                return self.problem(Code.CEL_TYPE, message, tree.SourceSpan(start - 1, start + len(key)))
        del self.problems[before:]
        return None

    def _is_declared(self, node: tree.Name) -> bool:
        candidates = self.environment.candidates(node.name, absolute=node.absolute)
        return node.name in self.locals or any(name in self.environment.variables for name in candidates)

    def _object_field_type(self, operand: ObjectType, name: str, span: tree.SourceSpan) -> Type:
        kind = operand.fields.get(name)
        if kind is None:
            hint = did_you_mean(name, operand.fields)
            return self.problem(Code.CEL_FIELD, f"{operand.name} has no field '{name}'{hint}", span)
        return kind

    def _type_has(self, node: tree.Has) -> Type:
        inner, _ = _unwrap_optional(self.type(node.select.operand))
        self._field_type(inner, node.select)
        return types.BOOL

    # Calls

    def _type_call(self, node: tree.Call) -> Type:
        # Set first, so that a call with a problem has an entry, too.
        self.calls[node] = Dispatch(node.function, ())
        overloads = self._find_namespaced(node)
        kinds: list[Type] = []
        if not overloads and node.target is not None:
            if self._is_namespace(node.target):
                return self._report_unknown_member(node, str(tree.as_qualified_name(node.target)))
            before = len(self.problems)
            kinds.append(self.type(node.target))
            overloads = self.functions.named(node.function, method=True)
            if not overloads and len(self.problems) > before:
                return DYN  # One mistake is reported once.
        if not overloads:
            return self._report_unknown_function(node)
        kinds += [self.type(argument) for argument in node.arguments]
        fitting = tuple(overload for overload in overloads if len(overload.parameters) == len(kinds))
        self.calls[node] = Dispatch(node.function, fitting)
        if not fitting:
            return self._report_argument_count(node, overloads)
        result, chosen = self._resolve_overload(fitting, kinds)
        if result is None:
            return self._report_no_overload(node, fitting, kinds)
        if chosen is not None:
            # The chosen overload comes first, since a list of ints looks like a list of durations at run time.
            others = (overload for overload in fitting if overload is not chosen)
            self.calls[node] = Dispatch(node.function, (chosen, *others))
        if all(overload.newer for overload in fitting):
            self.warn(Code.CEL_NEWER, f"{node.function}() is newer than Kubernetes {KUBERNETES}", node.name_span)
        self.warn(Code.CEL_AMOUNT, self.amounts.conversion(node, kinds), node.span)
        self._check_literals(node)
        return result

    def _find_namespaced(self, node: tree.Call) -> tuple[Overload, ...]:
        """Return the overloads of a call without a receiver: f(…), or a.b.f(…) where a.b is part of the name."""
        if node.target is None:
            return self._find_function(node.function, node.absolute)
        prefix = tree.as_qualified_name(node.target)
        # A macro's variable hides functions whose names begin with it.
        if prefix is None or prefix.lstrip(".").split(".")[0] in self.locals:
            return ()
        overloads = self._find_function(f"{prefix.lstrip('.')}.{node.function}", prefix.startswith("."))
        if overloads:
            self.namespaced.add(node)
        return overloads

    def _is_namespace(self, target: tree.Expression) -> bool:
        """Return True for the first part of functions' names, such as math, rather than a value."""
        prefix = tree.as_qualified_name(target)
        if prefix is None or prefix.split(".")[0] in {*self.locals, *self.environment.variables}:
            return False
        return prefix == "cel" or any(name.startswith(f"{prefix}.") for name in self.functions.names(method=False))

    def _report_unknown_member(self, node: tree.Call, prefix: str) -> Type:
        if prefix == "cel" and node.function == "bind":
            return self._report_unknown_function(node)
        names = {"cel.bind", *self.functions.names(method=False)}
        near = did_you_mean(
            node.function, {name.removeprefix(f"{prefix}.") for name in names if name.startswith(prefix)}
        )
        hint = near.replace("'", f"'{prefix}.", 1)
        for argument in node.arguments:
            self.type(argument)
        message = f"undeclared function '{prefix}.{node.function}'{hint}"
        return self.problem(Code.CEL_NO_SUCH_FUNCTION, message, node.name_span)

    def _check_literals(self, node: tree.Call) -> None:
        """Report literals that are invalid as patterns or arguments of conversions, as Kubernetes does for some."""
        literals = [argument.value for argument in node.arguments if isinstance(argument, tree.Literal)]
        if node.function in PATTERNS:
            pattern = node.arguments[1 if node.target is None else 0]
            if isinstance(pattern, tree.Literal) and type(pattern.value) is str:
                self._check_pattern(pattern, pattern.value)
        elif node.function in CONVERSIONS and node.target is None and len(literals) == len(node.arguments):
            # The function itself knows which literals are valid.
            try:
                self.calls[node](Budget(), *literals)
            except EvaluationError as error:
                self.problem(Code.CEL_CONSTANT, error.message, node.arguments[0].span)

    def _check_pattern(self, node: tree.Literal, pattern: str) -> None:
        try:
            self.patterns[node] = regex.compile_pattern(pattern)
        except EvaluationError as error:
            reason = regex.pattern_error(pattern)
            message = f"{error.message}: {reason}" if reason else error.message
            # A glob, such as *-prod.
            hint = (
                hints.remedy_clause(hints.string_literal(f".{pattern}", self.source.text))
                if pattern.startswith("*")
                else ""
            )
            self.problem(Code.CEL_CONSTANT, f"{message}{hint}", node.span)

    def _resolve_overload(
        self, overloads: tuple[Overload, ...], kinds: list[Type]
    ) -> tuple[Type | None, Overload | None]:
        """Return the result of the overloads that fit, dyn where they differ, and the overload if only one fits."""
        results: list[Type] = []
        mark = self.inference.mark()
        for overload in overloads:
            # Each overload starts from the types inferred before the call.
            self.inference.undo(mark)
            wanted, result = self.inference.instantiate(overload)
            if self.inference.fits_all(wanted, kinds):
                results.append(self.inference.resolve(result))
                fitting = overload
        self.inference.undo(mark)
        if not results:
            return None, None
        if len(results) > 1:
            return (results[0] if all(result == results[0] for result in results) else DYN), None
        # What the only possible overload infers holds for the rest of the expression.
        wanted, result = self.inference.instantiate(fitting)
        self.inference.fits_all(wanted, kinds)
        return self.inference.resolve(result), fitting

    def _find_function(self, name: str, absolute: bool) -> tuple[Overload, ...]:
        for candidate in self.environment.candidates(name, absolute=absolute):
            overloads = self.functions.named(candidate, method=False)
            if overloads:
                return overloads
        return ()

    def _report_unknown_function(self, node: tree.Call) -> Type:
        name, method = node.function, node.target is not None
        if name in tree.MACRO_ARGUMENTS and method == (name != "has"):
            message = f"{name}() takes {tree.MACRO_ARGUMENTS[name]} arguments, not {len(node.arguments)}"
            return self.problem(Code.CEL_ARGUMENTS, message.replace(" 1 arguments", " 1 argument"), node.name_span)
        names = self.functions.names(method=method) | (tree.MACRO_ARGUMENTS.keys() - {"has"} if method else set())
        foreign = hints.function_hint(name)
        hint = foreign or did_you_mean(name, names)
        if self.functions.named(name, method=not method) or name in tree.MACRO_ARGUMENTS:
            hint = f" (write {name}(…))" if method else f" (write ….{name}())"
        if not foreign and hint.removeprefix(" (did you mean '").removesuffix("'?)") not in tree.MACRO_ARGUMENTS:
            # For a misspelled macro, its variable would be reported as undeclared.
            for argument in node.arguments:
                self.type(argument)
        return self.problem(Code.CEL_NO_SUCH_FUNCTION, f"undeclared function '{name}'{hint}", node.name_span)

    def _report_argument_count(self, node: tree.Call, overloads: tuple[Overload, ...]) -> Type:
        counts = sorted({len(overload.parameters) - overload.method for overload in overloads})
        if counts == list(range(counts[0], counts[-1] + 1)) and len(counts) > 2:
            wanted = f"{counts[0]} to {counts[-1]}"
        else:
            wanted = " or ".join(str(count) for count in counts)
        plural = "s" if counts != [1] else ""
        message = f"{overloads[0].name}() takes {wanted} argument{plural}, not {len(node.arguments)}"
        return self.problem(Code.CEL_ARGUMENTS, message, node.name_span)

    def _report_no_overload(self, node: tree.Call, overloads: tuple[Overload, ...], kinds: list[Type]) -> Type:
        shown = [self.type_text(kind) for kind in kinds]
        if node.function == "contains" and node.target is not None and kinds[0].name in ("list", "map"):
            path, optional = self.amounts.path(node.target)
            default = f".orValue({'[]' if kinds[0].name == 'list' else '{}'})" if optional else ""
            hint = hints.remedy_clause(f"{self._source_of(node.arguments[0])} in {path}{default}")
            return self.problem(Code.CEL_TYPE, f"{shown[0]} has no contains(){hint}", node.span)
        if overloads[0].method:
            call = f"{shown[0]}.{overloads[0].name}({', '.join(shown[1:])})"
        else:
            call = f"{overloads[0].name}({', '.join(shown)})"
        signatures = list(dict.fromkeys(str(overload) for overload in overloads))
        if len(signatures) > MAX_SHOWN:
            signatures[MAX_SHOWN:] = ["…"]
        hint = self.amounts.call(node, overloads, kinds)
        return self.problem(Code.CEL_TYPE, f"there is no {call}, only {', '.join(signatures)}{hint}", node.name_span)

    # Operators and the rest

    def _type_index(self, node: tree.Index) -> Type:
        operand = self.type(node.operand)
        inner, optional = _unwrap_optional(operand)
        if (
            isinstance(node.key, tree.Name)
            and not self._is_declared(node.key)
            and (inner.name == "map" or isinstance(inner, ObjectType))
        ):
            hint = hints.remedy_clause(hints.string_literal(node.key.name, self.source.text))
            key = self.problem(Code.CEL_UNDECLARED, f"undeclared reference to '{node.key.name}'{hint}", node.key.span)
        else:
            key = self.type(node.key)
        literal = node.key.value if isinstance(node.key, tree.Literal) else None
        return self._member_type(node, inner, self._element_type(inner, key, node), optional=optional, key=literal)

    def _element_type(self, operand: Type, key: Type, node: tree.Index) -> Type:
        if isinstance(operand, ObjectType):
            if isinstance(node.key, tree.Literal) and isinstance(node.key.value, str):
                return self._object_field_type(operand, node.key.value, node.key.span)
            operand = types.MAP
        if operand.name not in ("list", "map"):
            if self.inference.settle(operand) == DYN:
                return DYN
            return self.problem(Code.CEL_TYPE, f"{self.type_text(operand)} cannot be indexed", node.span)
        wanted = types.INT if operand.name == "list" else operand.parameters[0]
        if not self.inference.fits_all([wanted], [key]):
            message = f"{self.type_text(operand)} has no index of type {self.type_text(key)}"
            return self.problem(Code.CEL_TYPE, message, node.key.span)
        return operand.parameters[-1]

    def _type_unary(self, node: tree.Unary) -> Type:
        operand = self.type(node.operand)
        wanted = (types.BOOL,) if node.operator == "!" else (types.INT, types.DOUBLE)
        if operand in wanted:
            return operand
        if self.inference.settle(operand) == DYN:
            return types.BOOL if node.operator == "!" else DYN
        return self._report_operator(node.operator, [operand], node.span)

    def _report_operator(self, operator: str, kinds: list[Type], span: tree.SourceSpan, hint: str = "") -> Type:
        shown = " and ".join(self.type_text(kind) for kind in kinds)
        return self.problem(Code.CEL_TYPE, f"operator {operator} cannot be applied to {shown}{hint}", span)

    def _type_binary(self, node: tree.Binary) -> Type:
        key = self._report_dotted_key(node) if node.operator in ("/", "-") else None
        if key is not None:
            return key
        if node.operator in ("==", "!=", "in"):
            self.compared.update((node.left, node.right))
        kinds = [self.type(node.left), self.type(node.right)]
        if isinstance(kinds[1], ObjectType) and node.operator == "in":
            kinds[1] = types.MAP
        result, _ = self._resolve_overload(SIGNATURES[node.operator], kinds)
        if result is not None:
            self.warn(Code.CEL_AMOUNT, self.amounts.as_text(node, kinds), node.span)
            return result
        chained = node.operator in RELATIONS and isinstance(node.left, tree.Binary) and node.left.operator in RELATIONS
        rewritten = self.amounts.operator(node, kinds) or self._rewrite_hint(node, kinds)
        hint = " (write a < b && b < c)" if chained else rewritten
        method = next((side for side in (node.left, node.right) if self._is_size(side)), None)
        if method is not None:
            message = f"a map has no field 'size'{hints.member_hint('size', arguments=False)}"
            return self.problem(Code.CEL_TYPE, message, method.name_span)
        return self._report_operator(node.operator, kinds, node.span, hint)

    def _is_size(self, node: tree.Expression) -> TypeGuard[tree.Select]:
        return isinstance(node, tree.Select) and node.field == "size" and self.type(node.operand).name == "map"

    def _rewrite_hint(self, node: tree.Binary, kinds: list[Type]) -> str:
        """Return the hint for an operator that cannot be applied: the operation that the author may mean."""
        left, right = self._source_of(node.left), self._source_of(node.right)
        if node.operator in ("==", "!=") and types.NULL in kinds:
            field = node.left if kinds[1] == types.NULL else node.right
            absent = "!" if node.operator == "==" else ""
            present = self.amounts.present(field) if isinstance(field, tree.Select | tree.Index) else ""
            return hints.remedy_clause(f"{absent}{present}") if present else ""
        if node.operator == "in" and kinds == [types.STRING, types.STRING] and not isinstance(node.right, tree.Binary):
            return hints.remedy_clause(f"{right}.contains({left})")
        if types.INT in kinds and types.STRING in kinds:
            for literal, other in ((node.left, right), (node.right, left)):
                if isinstance(literal, tree.Literal) and isinstance(literal.value, str) and literal.value.isdecimal():
                    pair = (literal.value, other) if literal is node.left else (other, literal.value)
                    return hints.remedy_clause(f" {node.operator} ".join(pair))
        return ""

    def _source_of(self, node: tree.Expression) -> str:
        return self.source.text[node.span.start : node.span.end]

    def _check_bool(self, node: tree.Expression, where: str) -> None:
        kind = self.type(node)
        if not self.inference.fits_all([types.BOOL], [kind]):
            self.problem(Code.CEL_TYPE, f"{where} must be bool, not {self.type_text(kind)}", node.span)

    def _type_logic(self, node: tree.Logic) -> Type:
        for operand in node.operands:
            self._check_bool(operand, f"an operand of {node.operator}")
        return types.BOOL

    def _type_conditional(self, node: tree.Conditional) -> Type:
        self._check_bool(node.condition, "the condition before ?")
        then, otherwise = self.type(node.then), self.type(node.otherwise)
        if not self.inference.fits_all([then], [otherwise]):
            shown = f"{self.type_text(then)} and {self.type_text(otherwise)}"
            message = f"the values before and after : are of different types, {shown}"
            return self.problem(Code.CEL_TYPE, message, node.span)
        return self.inference.join([then, otherwise])

    def _optional_inner(self, node: tree.Expression, kind: Type, where: str) -> Type:
        """Return the type inside an optional, and report any other type."""
        inner = self.inference.new_variable()
        if self.inference.fits_all([optional_of(inner)], [kind]):
            return self.inference.resolve(inner) if self.inference.settle(kind) != DYN else DYN
        return self.problem(Code.CEL_TYPE, f"{where} must be an optional, not {self.type_text(kind)}", node.span)

    def _type_listliteral(self, node: tree.ListLiteral) -> Type:
        kinds = []
        for element in node.elements:
            kind = self.type(element.value)
            kinds.append(self._optional_inner(element.value, kind, "a value after ?") if element.optional else kind)
        return list_of(self.inference.join(kinds))

    def _type_mapliteral(self, node: tree.MapLiteral) -> Type:
        keys, values = [], []
        for entry in node.entries:
            keys.append(self._check_key(entry.key))
            kind = self.type(entry.value)
            values.append(self._optional_inner(entry.value, kind, "a value after ?") if entry.optional else kind)
        return map_of(self.inference.join(keys), self.inference.join(values))

    def _check_key(self, node: tree.Expression) -> Type:
        kind = self.type(node)
        if self.inference.settle(kind) == DYN or kind in KEY_TYPES:
            return kind
        return self.problem(Code.CEL_TYPE, f"a map cannot have keys of type {self.type_text(kind)}", node.span)

    def _type_message(self, node: tree.Message) -> Type:
        fields = [(name, value, self.type(value)) for name, value in node.fields]
        for candidate in self.environment.candidates(node.name.lstrip("."), absolute=node.name.startswith(".")):
            wrapper = WRAPPERS.get(candidate)
            if wrapper is not None:
                self.messages[node] = wrapper
                for name, value, kind in fields:
                    wanted = wrapper.fields.get(name)
                    if wanted is None:
                        self.problem(Code.CEL_FIELD, f"{candidate} has no field '{name}'", node.span)
                    elif not self.inference.fits_all([wanted], [kind]):
                        message = f"the field {name} must be {wanted}, not {self.type_text(kind)}"
                        self.problem(Code.CEL_TYPE, message, value.span)
                return wrapper.result
        return self.problem(Code.CEL_UNDECLARED, f"undeclared message type '{node.name}'", node.span)

    # Macros

    def _types_in_scope(self, names: dict[str, Type], *bodies: tree.Expression) -> list[Type]:
        outer = self.locals
        self.locals = {**outer, **names}
        kinds = [self.type(body) for body in bodies]
        self.locals = outer
        return kinds

    def _variable_types(self, node: tree.Comprehension) -> tuple[Type, Type, Type]:
        """Return the types of a macro's variables: index or key, element or value, and a single variable."""
        target = self.type(node.target)
        if isinstance(target, ObjectType):
            target = types.MAP
        if target.name == "list":
            return types.INT, target.parameters[0], target.parameters[0]
        if target.name == "map":
            return target.parameters[0], target.parameters[1], target.parameters[0]
        if self.inference.settle(target) != DYN:
            message = f"{node.fold.value}() needs a list or a map, not {self.type_text(target)}"
            self.problem(Code.CEL_TYPE, message, node.target.span)
        return DYN, DYN, DYN

    def _type_comprehension(self, node: tree.Comprehension) -> Type:
        first, second, single = self._variable_types(node)
        names = {node.first: single} if node.second is None else {node.first: first, node.second: second}
        predicate = node.body if node.fold in PREDICATES else node.condition
        if predicate is not None:
            kind = self._types_in_scope(names, predicate)[0]
            if not self.inference.fits_all([types.BOOL], [kind]):
                message = f"the condition of {node.fold.value}() must be bool, not {self.type_text(kind)}"
                self.problem(Code.CEL_TYPE, message, predicate.span)
        if node.fold is tree.Fold.FILTER:
            return list_of(single)
        if node.fold in PREDICATES:
            return types.BOOL
        body = self._types_in_scope(names, node.body)[0]
        if node.fold is tree.Fold.SORT_BY:
            return list_of(single)
        if node.fold is tree.Fold.TRANSFORM_MAP:
            return map_of(first, body)
        if node.fold is tree.Fold.TRANSFORM_MAP_ENTRY:
            return body if body.name == "map" else map_of(DYN, DYN)
        return list_of(body)

    def _type_bind(self, node: tree.Bind) -> Type:
        kind = self._types_in_scope({node.name: self.type(node.value)}, node.body)[0]
        self.binds = True
        return kind

    def _type_optionalmap(self, node: tree.OptionalMap) -> Type:
        name = "optFlatMap" if node.flat else "optMap"
        inner = self._optional_inner(node.target, self.type(node.target), f"the receiver of {name}()")
        body = self._types_in_scope({node.name: inner}, node.body)[0]
        if not node.flat:
            return optional_of(body)
        return optional_of(self._optional_inner(node.body, body, "the result of optFlatMap()"))


def _problem_at(source: SourceText, code: Code, message: str, span: tree.SourceSpan, severity: Severity) -> Problem:
    location, length = source.at(span.start), max(1, span.end - span.start)
    return Problem(code=code, message=message, location=location, length=length, severity=severity)


def _unwrap_optional(kind: Type) -> tuple[Type, bool]:
    """Return the type inside an optional and True, or any other type and False."""
    if kind.name == types.OPTIONAL.name and kind.parameters:
        return kind.parameters[0], True
    return kind, False
