"""WorkloadKind: where an object of a kind has its pod templates, and how many pods its controller makes, as CEL."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from rules_engine.language import fields
from rules_engine.language.cel import CelProblems, Environment, Program, Type, compile_expression, types
from rules_engine.language.document_fields import document_name
from rules_engine.language.yaml.nodes import MapNode
from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.problem import Problem, Problems
from rules_engine.model.problems.source import Location

EACH_ITEM, EACH_MEMBER = "[]", "{}"
"""Steps of a path: each item of a list, each member of a map."""

OBJECT = {"object": types.DYN}
"""The variable of every expression: the object as it is written, without nulls."""

_TEMPLATE = {"item": types.DYN, "parent": types.DYN, "key": types.STRING, "value": types.DYN}
"""Further variables of a template's expressions: the element of the last [] or {} of its path and of the one before,
the name of the member of {}, and what is at the path."""

_TAKEN = frozenset({*OBJECT, *_TEMPLATE, "spec", "metadata", "status"})
"""Names that no reference may have: of variables, and of members with which a path may begin."""

_COUNTS = ("pods", "total", "atMost", "minimum")
_RESULTS: Mapping[str, Type] = {
    **dict.fromkeys((*_COUNTS, "number"), types.INT),
    "labels": types.map_of(types.STRING, types.DYN),
    **dict.fromkeys(("name", "unknown", "decidedBy", "scheduler", "countField", "kind"), types.STRING),
}
"""The types of expressions, by field; others are of any type."""

Programs = Mapping[str, Program]
"""Compiled expressions by the field that has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateRow:
    """Pod templates at a path. `workload`: what is there is an object of its own, such as a Job."""

    path: tuple[str, ...]
    programs: Programs = field(repr=False)
    workload: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadKind:
    """A kind of workload. A kind without templates makes no pods.

    `programs`: `unknown`, `decidedBy`, `scheduler`, `countField`, and `minimum` and `number` of its gang. `references`:
    the expressions of the kind and the name of other objects, by the variable that such an object is.
    """

    name: str
    location: Location
    group: str
    kind: str
    templates: tuple[TemplateRow, ...]
    programs: Programs = field(repr=False)
    references: Mapping[str, Programs] = field(repr=False)


def read_workload_kind(root: MapNode, problems: Problems) -> WorkloadKind:
    """Read and compile a validated document; report expressions with errors and leave them out."""
    spec = fields.map_field(root, "spec")
    name, location, _ = document_name(root)
    referred = fields.map_members(spec, "references")
    for key in (key for key, _ in referred if key.source.text in _TAKEN):
        problems.error(Code.WRONG_VALUE, f"'{key.source.text}' has a meaning of its own here: choose another name", key)
    whole = Environment({**OBJECT, **{key.source.text: types.DYN for key, _ in referred}})
    each = whole.with_variables(**_TEMPLATE)
    return WorkloadKind(
        name=name,
        location=location,
        group=fields.string_field(spec, "group"),
        kind=fields.string_field(spec, "kind"),
        templates=tuple(
            TemplateRow(
                path=path_steps(fields.string_field(line, "path")),
                programs=_compile(line, each, problems, "name", *_COUNTS, "unknown", "pod", "labels"),
                workload=fields.bool_field(line, "workload"),
            )
            for line in fields.map_items(spec, "templates")
        ),
        programs={
            **_compile(spec, whole, problems, "unknown", "decidedBy", "scheduler", "countField"),
            **_compile(fields.map_field(spec, "gang"), whole, problems, "minimum", "number"),
        },
        references={
            key.source.text: _compile(line, Environment(OBJECT), problems, "kind", "name") for key, line in referred
        },
    )


def repeated_kinds(kinds: Sequence[WorkloadKind]) -> Iterator[Problem]:
    """Yield a problem for each kind that another one has defined before."""
    first: dict[tuple[str, str], WorkloadKind] = {}
    for each in kinds:
        other = first.setdefault((each.group, each.kind), each)
        if other is not each:
            message = f"{each.kind} of the API group '{each.group}' is already defined in {other.location}"
            code, length = Code.DUPLICATE_DOCUMENT, len(each.name)
            yield Problem(code=code, message=message, location=each.location, length=length)


def path_steps(path: str) -> tuple[str, ...]:
    """Return the steps of a path such as `spec.groups[].template`."""
    return tuple(path.replace(EACH_ITEM, f".{EACH_ITEM}").replace(EACH_MEMBER, f".{EACH_MEMBER}").split("."))


def _compile(node: MapNode, environment: Environment, problems: Problems, *names: str) -> Programs:
    programs = {}
    for name in names:
        source = fields.source_field(node, name)
        if source is not None:
            try:
                program = compile_expression(source, environment, result=_RESULTS.get(name, types.DYN), generated=False)
            except CelProblems as error:
                problems.items.extend(error.problems)
            else:
                problems.items.extend(program.warnings)
                programs[name] = program
    return programs
