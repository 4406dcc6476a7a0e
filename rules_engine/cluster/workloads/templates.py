"""The pod templates of an object, with the number of pods that each makes: by the row of its kind, or as they look."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from rules_engine.accelerators.resources import is_gpu
from rules_engine.cluster.workloads.kind import EACH_ITEM, EACH_MEMBER, Programs, TemplateRow, WorkloadKind
from rules_engine.cluster.workloads.table import WorkloadTable
from rules_engine.language.cel import EvaluationError
from rules_engine.model.json.lenient import as_mapping, as_string_map, text_member, without_nulls
from rules_engine.model.json.patch import Json
from rules_engine.model.json.strict import JsonPath
from rules_engine.model.problems.source import truncate
from rules_engine.model.rules.rule import API_VERSION
from rules_engine.model.rules.simulation import Gang

MAX_TEXT = 300
"""Characters of an expression's text."""

_RESOURCE_NAME = re.compile(r"[a-z0-9-]+(?:\.[a-z0-9-]+)+/[a-z0-9._-]+")
"""A text that can be an extended resource, and not an image with a tag, or a path."""

_OUR_GROUP = API_VERSION.partition("/")[0]

_TYPES = {int: "an int", str: "a string", dict: "a map"}

Value = TypeVar("Value", int, str, dict[str, Json])


@dataclass(frozen=True, slots=True, kw_only=True)
class PodTemplate:
    """A pod template (PodTemplateSpec) at a path of an object, which makes `parallel` pods at once, `total` in all.

    `minimum`: of them, a gang needs. `role`: its name in the object, "" for none. `unknown`: why the numbers are not
    known, "" if they are. `built`: what is at the path is not the template itself.
    """

    path: JsonPath
    pod: dict[str, Json]
    role: str = ""
    parallel: int = 1
    total: int = 1
    minimum: int = 0
    unknown: str = ""
    built: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadFacts:
    """The pod templates of an object, and what is known of it as a whole.

    `decided_by`: what decides before the scheduler, such as a queue. `count_field`: the field by which a user changes
    the number of pods. `unknown`: why its pods are not known. All "" if there is none.
    """

    templates: Sequence[PodTemplate] = field(default=(), repr=False)
    gang: Gang | None = None
    decided_by: str = ""
    count_field: str = ""
    unknown: str = ""


def read_workload(value: dict[str, Json], table: WorkloadTable) -> WorkloadFacts:
    """Return the facts of an object: by the row of its kind, and by what looks like a pod template elsewhere in it."""
    group, kind = text_member(value, "apiVersion").rpartition("/")[0], text_member(value, "kind")
    row = table.row(group, kind)
    facts = WorkloadFacts() if row is None else _RowReader(row, value, table).facts()
    # A template that is made from the whole spec does not stand for those in it.
    known = [each.path for each in facts.templates if not (each.built and len(each.path) == 1)]
    above = {each[:length] for each in known for length in range(len(each) + 1)}
    whole = {*known}
    found = [
        (path, pod)
        for path, pod in (find_templates(value) if row is None or row.templates else ())
        if path not in above and whole.isdisjoint(path[:length] for length in range(len(path)))
    ]
    reason = (
        f"{truncate(kind) or 'it'} is no known kind of workload" if row is None else "its kind has templates elsewhere"
    )
    if group == _OUR_GROUP:  # a document such as a RuleTest, whose pods are examples
        reason = ""
    elif not (facts.templates or found or facts.unknown) and (row is None or row.templates):
        gpu = next(_gpu_names({key: part for key, part in value.items() if key != "metadata"}), "")
        facts = replace(facts, unknown=f"it names {truncate(gpu)}, and {reason}" if gpu else "")
    templates = (
        *(replace(each, unknown=each.unknown or facts.unknown) for each in facts.templates),
        *(
            PodTemplate(path=path, pod=pod, role=_path_role(value, path), unknown=reason if path else "")
            for path, pod in found
        ),
    )
    return replace(facts, templates=templates)


class _RowReader:
    """Reader of an object by the row of its kind."""

    def __init__(self, row: WorkloadKind, value: dict[str, Json], table: WorkloadTable) -> None:
        self._row = row
        self._table = table
        self._variables: dict[str, Json] = {"object": without_nulls(value)}
        self._unknown = ""
        """Why the pods are not known, once an expression has failed or an object is missing."""
        for variable, programs in row.references.items():
            kind, name = (self._evaluate(programs, each, "", self._variables) for each in ("kind", "name"))
            namespace = text_member(as_mapping(value.get("metadata")), "namespace")
            keys = ((kind, name, namespace), (kind, name, ""))
            found = None if self._unknown else table.find(row.group, keys[0]) or table.find(row.group, keys[1])
            if found is None:
                self._unknown = self._unknown or f"{kind} {name} is not in the input"
            self._variables[variable] = without_nulls(found)

    def facts(self) -> WorkloadFacts:
        """Return the facts of the object; without its templates if an object that it refers to is missing."""
        if self._unknown:
            return WorkloadFacts(unknown=self._unknown)
        programs, variables = self._row.programs, self._variables
        minimum, number = (self._evaluate(programs, name, 1, variables) for name in ("minimum", "number"))
        decided_by, count_field, unknown = (
            self._evaluate(programs, name, "", variables) for name in ("decidedBy", "countField", "unknown")
        )
        return WorkloadFacts(
            templates=[*self._templates(self._evaluate(programs, "scheduler", "", variables))],
            gang=Gang(minimum=minimum, number=number) if minimum > 1 and number > 0 else None,
            decided_by=decided_by,
            count_field=count_field,
            unknown=self._unknown or unknown,
        )

    def _templates(self, scheduler: str) -> Iterator[PodTemplate]:
        """Yield the pod templates that the object has. `scheduler`: of those that name none."""
        for row in self._row.templates:
            start, steps = (row.path[0], row.path[1:]) if row.path[0] in self._row.references else ("object", row.path)
            for path, variables in _walk(self._variables[start], steps, (), {"item": {}, "parent": {}, "key": ""}):
                if not (isinstance(variables["value"], dict) or "pod" in row.programs):
                    continue
                template = self._template(row, path if start == "object" else (start, *path), variables)
                if self._unknown and template.built:  # it may not have been built
                    continue
                spec = as_mapping(template.pod.get("spec"))
                if scheduler and not spec.get("schedulerName"):
                    template = replace(template, pod={**template.pod, "spec": {**spec, "schedulerName": scheduler}})
                yield from self._inner_templates(template) if row.workload else (template,)

    def _template(self, row: TemplateRow, path: JsonPath, own: Mapping[str, Json]) -> PodTemplate:
        programs, variables = row.programs, {**self._variables, **own}
        role, unknown = (self._evaluate(programs, name, "", variables) for name in ("name", "unknown"))
        most = self._evaluate(programs, "atMost", -1, variables)
        if most >= 0:
            parallel, unknown = most, unknown or f"at most {most} at once"
        else:
            parallel = 1 if unknown else self._evaluate(programs, "pods", 1, variables)
        return PodTemplate(
            path=path,
            pod=_with_labels(
                self._evaluate(programs, "pod", {**as_mapping(own["value"])}, variables),
                self._evaluate(programs, "labels", {}, variables),
            ),
            role=role,
            parallel=max(0, parallel),
            total=max(0, self._evaluate(programs, "total", parallel, variables)) if parallel > 0 else 0,
            minimum=self._evaluate(programs, "minimum", 0, variables),
            unknown=unknown,
            built="pod" in programs or path[0] in self._row.references,
        )

    def _inner_templates(self, outer: PodTemplate) -> Iterator[PodTemplate]:
        """Yield the templates of an object that this one creates, as its own."""
        facts = read_workload(outer.pod, self._table)
        kind = text_member(outer.pod, "kind")
        lost = f"{kind} in it starts its pods together" if facts.gang else ""
        lost = f"{kind} in it has a pod on each node" if kind == "DaemonSet" else lost
        if facts.unknown and not facts.templates:
            self._unknown = self._unknown or f"{kind} in it: {facts.unknown}"
        for inner in facts.templates:
            yield replace(
                inner,
                path=(*outer.path, *inner.path),
                role="/".join(filter(None, (outer.role, inner.role))),
                parallel=outer.parallel * inner.parallel,
                total=outer.total * inner.total,
                unknown=outer.unknown or inner.unknown or lost,
            )

    def _evaluate(self, programs: Programs, name: str, default: Value, variables: Mapping[str, Json]) -> Value:
        """Return the value of an expression; the default if there is none, or, with the reason, if it fails."""
        if name not in programs:
            return default
        try:
            value = _plain(programs[name].evaluate(variables, self._table.budget))
            if type(value) is not type(default):
                raise EvaluationError(f"{name} is not {_TYPES[type(default)]}")
        except EvaluationError as error:
            self._unknown = self._unknown or f"its row in the table, {self._row.name}, fails: {error.message}"
            return default
        return value[:MAX_TEXT] if isinstance(value, str) else value


def _with_labels(pod: dict[str, Json], labels: Mapping[str, Json]) -> dict[str, Json]:
    """Return a template with the labels that the controller adds."""
    metadata = as_mapping(pod.get("metadata"))
    return (
        {**pod, "metadata": {**metadata, "labels": {**as_mapping(metadata.get("labels")), **as_string_map({**labels})}}}
        if labels
        else pod
    )


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


def _plain(value: object) -> Json:
    """Return a value of CEL as JSON."""
    if isinstance(value, Mapping):
        return {str(name): _plain(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if isinstance(value, bool | int | float | str) or value is None else str(value)


def _gpu_names(value: Json) -> Iterator[str]:
    """Yield the names of GPU resources in a value, among keys and texts."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield from (key,) if is_gpu(key) else _gpu_names(part)
    elif isinstance(value, list):
        for part in value:
            yield from _gpu_names(part)
    elif isinstance(value, str) and is_gpu(value) and _RESOURCE_NAME.fullmatch(value):
        yield value


def _path_role(value: Json, path: JsonPath) -> str:
    """Return the name of a template in an object of an unknown kind: of its list's item, or of a member of its path."""
    role = ""
    for step in path:
        value = value[step]  # type: ignore[index]
        if isinstance(step, int):
            role = text_member(as_mapping(value), "name") or role
        elif step not in ("spec", "template", "jobTemplate"):
            role = step.lower()
    return role


def find_templates(value: Json, path: JsonPath = ()) -> Iterator[tuple[JsonPath, dict[str, Json]]]:
    """Yield all PodTemplateSpecs (a spec with a list of containers), under members of any name."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from find_templates(item, (*path, index))
    elif isinstance(value, dict):
        spec = value.get("spec")
        is_pod = isinstance(spec, dict) and isinstance(spec.get("containers"), list)
        if not path and "kind" in value:
            # Custom resources of some operators have a spec with containers, and are not pods.
            is_pod = value["kind"] == "Pod"
        if is_pod:
            yield path, value
        else:
            for name, member in value.items():
                yield from find_templates(member, (*path, name))
