"""The pod templates of an object, by the row of its kind, with the number of pods that each makes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rules_engine.cluster.workloads.kind import EACH_ITEM, EACH_MEMBER, Programs, TemplateRow, WorkloadKind
from rules_engine.cluster.workloads.table import FindObject
from rules_engine.language.cel import Budget, EvaluationError
from rules_engine.model.json.lenient import Object, as_mapping
from rules_engine.model.json.patch import Json
from rules_engine.model.json.strict import JsonPath

EXPRESSIONS_COST = 1_000_000
"""Cost units of the expressions of one object: the rows of an object with 100 templates take some 50,000."""

MAX_UNKNOWN = 300
"""Characters of an expression's reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodTemplate:
    """A pod template (PodTemplateSpec) at a path of an object, which makes `parallel` pods at once, `total` in all.

    `role`: its name in the object, "" for none. `unknown`: why the numbers are not known, "" if they are. `nested`: it
    is an object of its own, which is created `parallel` times. `built`: what is at the path is not the template itself.
    """

    path: JsonPath
    pod: Json
    role: str = ""
    parallel: int = 1
    total: int = 1
    unknown: str = ""
    nested: bool = False
    built: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Gang:
    """Pods that start together or not at all: `number` gangs, each of at least `minimum` pods."""

    minimum: int
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadFacts:
    """What the row of a kind says of an object as a whole.

    `decided_by`: what decides before the scheduler, such as a queue. `scheduler`: of pods whose template names none.
    `count_field`: the field by which a user changes the number of pods. `unknown`: why its pods are not known. All ""
    if there is none.
    """

    gang: Gang | None = None
    decided_by: str = ""
    scheduler: str = ""
    count_field: str = ""
    unknown: str = ""


class WorkloadObject:
    """An object of a kind that the table has. Its expressions share one budget."""

    def __init__(self, kind: WorkloadKind, value: Object, find: FindObject) -> None:
        self._kind = kind
        self._budget = Budget(EXPRESSIONS_COST, "the expressions of one object")
        self._variables: dict[str, Json] = {"object": _without_nulls({**value})}
        self._missing = ""
        for variable, programs in kind.references.items():
            found, missing = self._referred(programs, find)
            self._missing = self._missing or missing
            self._variables[variable] = _without_nulls(found)

    def _referred(self, programs: Programs, find: FindObject) -> tuple[Json, str]:
        """Return an object to which this one refers, or why there is none."""
        try:
            kind, name = (self._text(programs, each, self._variables) for each in ("kind", "name"))
        except EvaluationError as error:
            return None, _failed(self._kind, error)
        found = find(kind, name)
        return found, "" if found is not None else f"{kind} {name} is not in the input"

    def facts(self) -> WorkloadFacts:
        """Return the facts of the object as a whole."""
        texts = self._kind.programs
        if self._missing:
            return WorkloadFacts(unknown=self._missing)
        try:
            minimum, number = self._number(texts, "minimum", 0), self._number(texts, "number", 1)
            return WorkloadFacts(
                gang=Gang(minimum=minimum, number=number) if minimum > 1 and number > 0 else None,
                decided_by=self._text(texts, "decidedBy", self._variables),
                scheduler=self._text(texts, "scheduler", self._variables),
                count_field=self._text(texts, "countField", self._variables),
                unknown=self._text(texts, "unknown", self._variables),
            )
        except EvaluationError as error:
            return WorkloadFacts(unknown=_failed(self._kind, error))

    def templates(self) -> Iterator[PodTemplate]:
        """Yield the pod templates that the object has; none if an object that it refers to is missing."""
        if self._missing:
            return
        for row in self._kind.templates:
            start = row.path[0] if row.path[0] in self._variables else "object"
            steps = row.path[1:] if start == row.path[0] else row.path
            for path, variables in _walk(self._variables[start], steps, (), {"item": {}, "parent": {}, "key": ""}):
                whole = path if start == "object" else (start, *path)
                yield self._template(row, whole, {**self._variables, **variables})

    def _template(self, row: TemplateRow, path: JsonPath, variables: Mapping[str, Json]) -> PodTemplate:
        programs, pod, role, unknown = row.programs, variables["value"], "", ""
        parallel = total = 1
        try:
            role = self._text(programs, "name", variables)
            unknown = self._text(programs, "unknown", variables)
            if "pod" in programs:
                pod = as_mapping(_plain(programs["pod"].evaluate(variables, self._budget)))  # type: ignore[assignment]
            most = self._number(programs, "atMost", -1, variables)
            if most >= 0:
                parallel, unknown = most, unknown or f"at most {most} at once"
            elif not unknown:
                parallel = self._number(programs, "pods", 1, variables)
            total = self._number(programs, "total", parallel, variables)
        except EvaluationError as error:
            unknown = _failed(self._kind, error)
        return PodTemplate(
            path=path,
            pod=pod,
            role=role,
            parallel=max(0, parallel),
            total=max(0, total) if parallel > 0 else 0,
            unknown=unknown,
            nested=row.workload,
            built="pod" in programs or path[0] in self._kind.references,
        )

    def _number(self, programs: Programs, name: str, default: int, variables: Mapping[str, Json] | None = None) -> int:
        if name not in programs:
            return default
        value = programs[name].evaluate(self._variables if variables is None else variables, self._budget)
        if not isinstance(value, int) or isinstance(value, bool):
            raise EvaluationError(f"{name} is not an int")
        return value

    def _text(self, programs: Programs, name: str, variables: Mapping[str, Json]) -> str:
        value = programs[name].evaluate(variables, self._budget) if name in programs else ""
        if not isinstance(value, str):
            raise EvaluationError(f"{name} is not a string")
        return value[:MAX_UNKNOWN]


def _failed(kind: WorkloadKind, error: EvaluationError) -> str:
    return f"its row in the table, {kind.name}, fails: {error.message}"


def _walk(
    value: Json, steps: Sequence[str], path: JsonPath, variables: Mapping[str, Json]
) -> Iterator[tuple[JsonPath, Mapping[str, Json]]]:
    """Yield what is at a path of a value: its own path, and the variables of its expressions."""
    if not steps:
        yield path, {**variables, "value": value}
        return
    step, rest = steps[0], steps[1:]
    if step == EACH_ITEM and isinstance(value, list):
        for index, item in enumerate(value):
            yield from _walk(item, rest, (*path, index), {**variables, "item": item, "parent": variables["item"]})
    elif step == EACH_MEMBER and isinstance(value, dict):
        for key, item in value.items():
            inner = {**variables, "item": item, "parent": variables["item"], "key": key}
            yield from _walk(item, rest, (*path, key), inner)
    elif isinstance(value, dict) and step in value:
        yield from _walk(value[step], rest, (*path, step), variables)


def _without_nulls(value: Json) -> Json:
    """Return a value without members that are null, which the API server takes for absent ones."""
    if isinstance(value, dict):
        return {name: _without_nulls(member) for name, member in value.items() if member is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def _plain(value: object) -> Json:
    """Return a value of CEL as JSON."""
    if isinstance(value, Mapping):
        return {str(name): _plain(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if isinstance(value, bool | int | float | str) or value is None else str(value)
