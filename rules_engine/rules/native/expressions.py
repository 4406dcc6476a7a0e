"""Expressions of rules as a policy can have them: the text of the author, with other names of variables."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from rules_engine.language.cel import Program
from rules_engine.language.cel.check.checker import Checked
from rules_engine.language.cel.check.environment import VARIABLES
from rules_engine.language.cel.syntax.tree import (
    Binary,
    Bind,
    Call,
    Comprehension,
    Conditional,
    Expression,
    Fold,
    Has,
    ListLiteral,
    Literal,
    Logic,
    MapLiteral,
    Message,
    Name,
    Select,
    Unary,
    child_nodes,
)
from rules_engine.language.cel.values.types import STRING
from rules_engine.model.json.patch import Json
from rules_engine.model.rules.rule import SKIP_ANNOTATION, OptOut, Rule
from rules_engine.rules.native.cel_text import (
    MAX_NARROW_LENGTH,
    cel_list,
    cel_literal,
    glob_regex,
    grouped,
    match_conditions,
)
from rules_engine.rules.native.policy import StaysError, Variable
from rules_engine.rules.rule_set.compiled import CompiledRule
from rules_engine.rules.rule_set.globs import is_glob

NEWER_FUNCTIONS = frozenset({"mul", "div", "divInt", "existsOne", "includes", "reverse"})
"""Functions of rules that Kubernetes 1.36 lacks, at least for some types of arguments."""

NEWER_LIBRARIES = frozenset({"base64", "math"})

COMPARISONS = frozenset({"==", "!=", "<", "<=", ">", ">=", "in"})
TESTS = frozenset({Fold.ALL, Fold.EXISTS, Fold.EXISTS_ONE})

POLICY_NAMES = frozenset({"object", "oldObject", "request", "params"})
"""Names that match conditions read."""


class Expressions:
    """The expressions of one rule in a policy, where its variables have a prefix. Raises StaysError.

    The prefix gets capitals for the variables of the author: names that this package makes have none.
    `allocatable` and `total`: the resources of which they read amounts of all nodes.
    """

    def __init__(self, compiled: CompiledRule[Rule], prefix: str) -> None:
        self._compiled = compiled
        self._prefix = f"{prefix}VAR_"
        self._params = f"{prefix}params"
        self._names = {"params": f"variables.{self._params}"}
        for name in (variable.name for variable in compiled.variables.values()):
            self._names[f"{VARIABLES}.{name}"] = f"{VARIABLES}.{self._prefix}{name}"
        self.allocatable: set[str] = set()
        self.total: set[str] = set()

    def variables(self) -> Iterator[Variable]:
        """Yield the rule's params and variables, in order."""
        if self._compiled.rule.params:
            yield Variable(self._params, _json_text(dict(self._compiled.rule.params)))
        for variable in self._compiled.variables.values():
            yield Variable(self._prefix + variable.name, self.text(variable.program))

    def text(self, program: Program, names: Mapping[str, str] | None = None) -> str:
        """Return an expression's text with the policy's names; `names`: texts for variables, instead of these."""
        checked, source = program.checked, program.source.text
        changes = self._changes(checked, checked.expression, self._names if names is None else names)
        for start, end, text in sorted(changes, reverse=True):
            source = source[:start] + text + source[end:]
        return source.strip()

    def condition(self, program: Program, names: Mapping[str, str] | None = None) -> str:
        """Return a condition whose type the API server knows to be bool."""
        text = self.text(program, names)
        return text if _is_test(program.checked.expression) else f"{grouped(text)} == true"

    @cached_property
    def inlined(self) -> Mapping[str, str] | None:
        """The expressions of variables as `names`, for match conditions, which have no variables.

        None: they would be too long, or cost more than as variables, or an expression reads what these cannot.
        """
        names = {"params": _json_text(dict(self._compiled.rule.params))}
        reads = Counter(each for program in self._compiled.programs for each in program.checked.references.values())
        for variable in self._compiled.variables.values():
            text = grouped(self.text(variable.program, names))
            repeated = reads[f"{VARIABLES}.{variable.name}"] > 1 and _iterates(variable.program.checked.expression)
            if repeated or len(text) > MAX_NARROW_LENGTH:
                return None
            names[f"{VARIABLES}.{variable.name}"] = text
        readable = all(
            "namespaceObject" not in program.reads and _can_inline(program.checked, program.checked.expression)
            for program in self._compiled.programs
        )
        return names if readable else None

    def message(self, program: Program) -> str:
        """Return an expression of a message whose type the API server knows to be string."""
        text = self.text(program)
        return f"string({text}\n)" if program.result == STRING else text

    def conditions(self) -> Iterator[str]:
        """Yield the rule's match conditions as operands."""
        for condition in self._compiled.conditions:
            yield grouped(self.text(condition.program))

    def _changes(self, checked: Checked, node: Expression, names: Mapping[str, str]) -> Iterator[tuple[int, int, str]]:
        """Yield the places to change, with their new texts."""
        reference = checked.references.get(node)
        place = checked.source.at(node.span.start)
        match node:
            case Call(target=target, function=function, arguments=(Literal(value=str(name)),)) if (
                target is not None
                and checked.references.get(target) == "cluster"
                and function in ("allocatable", "total")
            ):
                (self.allocatable if function == "allocatable" else self.total).add(name)
                yield node.span.start, node.span.end, f"int(params.spec.{function}[{cel_literal(name)}])"
                return
            case Select(field=name) if reference == f"{VARIABLES}.{name}":
                yield node.span.start, node.span.end, names[reference]
                return
            case Name() if reference == "params":
                yield node.span.start, node.span.end, names[reference]
            case Name() if reference == "cluster":
                raise StaysError("an expression reads free amounts, or computes the name of a resource", place)
            case Name() if reference == VARIABLES:
                raise StaysError("an expression reads variables as a whole", place)
            case Call(function=function) if function in NEWER_FUNCTIONS or function.split(".")[0] in NEWER_LIBRARIES:
                of_strings = " of strings" if function == "reverse" else ""
                raise StaysError(f"{function}(){of_strings} is not in Kubernetes 1.36", place)
            case Call(target=Name(name=name)) if name in NEWER_LIBRARIES and node in checked.namespaced:
                raise StaysError(f"{name}.{node.function}() is not in Kubernetes 1.36", place)
            case Bind() | Message():
                raise StaysError("cel.bind and messages are not in Kubernetes 1.36", place)
            case Select() if checked.source.text[node.name_span.start] == "`":
                raise StaysError("names in backquotes are not in Kubernetes 1.36", place)
        for part in _parts_of_mixed_types(node):
            yield part.span.start, part.span.start, "dyn("
            yield part.span.end, part.span.end, ")"
        for child in child_nodes(node):
            yield from self._changes(checked, child, names)


def _can_inline(checked: Checked, node: Expression, *, repeated: bool = False) -> bool:
    """Return True unless an expression reads a variable for each element, or a name of its own hides another one."""
    own = {getattr(node, name, None) for name in ("first", "second", "name")} if not isinstance(node, Name) else set()
    if (own & POLICY_NAMES) or (repeated and str(checked.references.get(node)).startswith(f"{VARIABLES}.")):
        return False
    target = getattr(node, "target", None)
    return all(
        _can_inline(checked, child, repeated=repeated or (isinstance(node, Comprehension) and child is not target))
        for child in child_nodes(node)
    )


def _iterates(node: Expression) -> bool:
    return isinstance(node, Comprehension) or any(map(_iterates, child_nodes(node)))


def _parts_of_mixed_types(node: Expression) -> Iterator[Expression]:
    """Yield the elements, keys or values that may differ in type: the API server refuses lists and maps of such."""
    groups: list[list[Expression]] = []
    match node:
        case ListLiteral(elements=elements):
            groups = [[each.value for each in elements]]
        case MapLiteral(entries=entries):
            groups = [[each.key for each in entries], [each.value for each in entries]]
    for group in groups:
        if len({type(part.value) if isinstance(part, Literal) else part for part in group}) > 1:
            yield from group


def _is_test(node: Expression) -> bool:
    """Return True if an expression is of type bool without knowledge of the objects that it reads."""
    match node:
        case Logic() | Has() | Unary(operator="!") | Literal(value=bool()):
            return True
        case Binary(operator=operator):
            return operator in COMPARISONS
        case Comprehension(fold=fold):
            return fold in TESTS
        case Conditional(then=then, otherwise=otherwise):
            return _is_test(then) and _is_test(otherwise)
    return False


def _json_text(value: Json) -> str:
    """Return a constant in CEL. Members are dyn: the API server refuses literals of mixed types."""
    match value:
        case dict():
            return f"{{{', '.join(f'{cel_literal(key)}: dyn({_json_text(item)})' for key, item in value.items())}}}"
        case list():
            return f"[{', '.join(f'dyn({_json_text(item)})' for item in value)}]"
        case str():
            return cel_literal(value)
        case None:
            return "null"
        case bool():
            return str(value).lower()
    return str(value)


ALL_AMOUNTS = (
    "(object.spec.containers + object.spec.?initContainers.orValue([])).exists(c, "
    "[c.?resources.limits.orValue({{}}), c.?resources.requests.orValue({{}})].exists(amounts, {}))"
)
RECORDED_AMOUNTS = "variables.containers.exists(c, [c.limits, c.requests].exists(amounts, {}))"
"""Conditions that a container has amounts that meet a condition: in any policy, and in one with the variable."""


def match_operands(rule: Rule, among: str) -> list[str]:
    """Return the conditions of a rule's match but for operations and namespaceSelector; all must be true.

    `among` is one of the conditions on amounts.
    """
    operands = [*match_conditions(rule.match)]
    if rule.opt_out is OptOut.ALLOWED:
        operands.append(f"object.metadata.?annotations[?{cel_literal(SKIP_ANNOTATION)}].orValue('') != 'true'")
    if rule.match.resources:
        operands.append(among.format(_names_resource(rule.match.resources)))
    return operands


def _names_resource(patterns: Sequence[str]) -> str:
    """Return the condition that amounts have one of these resources and globs, whatever the amount."""
    exact = [name for name in patterns if not is_glob(name)]
    tests = [f"{cel_list(exact)}.exists(name, name in amounts)"] if exact else []
    globs = [f"name.matches({cel_literal(glob_regex(glob))})" for glob in patterns if is_glob(glob)]
    tests += [f"amounts.exists(name, {' || '.join(globs)})"] if globs else []
    return " || ".join(tests)
