"""Hypothesis strategy of objects of the kinds that have a row in the table of workload kinds, made from the rows."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hypothesis import strategies as st

from rules_engine.cluster.workloads.kind import EACH_ITEM, EACH_MEMBER, TemplateRow, WorkloadKind
from rules_engine.cluster.workloads.table import PACKAGED, read_group
from rules_engine.language.cel import Budget
from rules_engine.language.files import SourceFile
from rules_engine.rules.sources.load import COMMAND_KINDS, load_texts
from tests.support.loading import rule

OWN_KIND = rule(
    "WorkloadKind",
    "{group: x.y, kind: Own, templates: [{path: 'spec.workers[].template', "
    "pods: 'item.?count.orValue(1) * object.spec.?times.orValue(2)'}]}",
)
"""A kind of a user."""

_ROWS = [
    row
    for row in (
        *(row for group in PACKAGED for row in read_group(group).values()),
        *load_texts([SourceFile("own.yaml", OWN_KIND)], COMMAND_KINDS).of(WorkloadKind),
    )
    if row.templates and row.kind != "DaemonSet"
]
"""Rows of kinds with pods. A DaemonSet has one for each node, and does not arrive in simulations."""

_NUMBER = re.compile(r"\b(object|item|parent)((?:\.\??\w+)+)\.orValue\((?=\d|object\.|item\.)")
"""A field with a default that is a number, or perhaps one."""

_FIELD = re.compile(r"\bobject((?:\.\w+)+)")


def template() -> dict[str, Any]:
    limits = {"cpu": 1, "nvidia.com/gpu": 1}
    return {"spec": {"containers": [{"name": "c", "image": "i", "resources": {"limits": limits}}]}}


def _leaf(row: TemplateRow, expressions: str) -> dict[str, Any]:
    """Return what is at the path of a row: a Job, a template, or what pods are built from (a spec, a container…)."""
    if row.workload:
        return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {"template": template()}}
    image = {"repository": "i"} if "image.?repository" in expressions else "i"
    return {**template(), **template()["spec"], "image": image} if "pod" in row.programs else template()


def _steps(fields: str) -> list[str]:
    return fields.replace("?", "").strip(".").split(".")


def _set(value: Any, steps: Sequence[str], leaf: object) -> None:
    """Set a member, unless something else is at its place or above it."""
    *above, last = steps
    inner: Any = value
    for step in above:
        inner = inner.setdefault(step, {})
        if not isinstance(inner, dict):
            return
    inner.setdefault(last, leaf)


def _places(
    draw: st.DrawFn, value: Any, steps: Sequence[str], items: tuple[Any, ...]
) -> Iterator[tuple[Any, str, tuple[Any, ...]]]:
    """Make what is above a path; yield the owner and the name of its last member, and the elements above it."""
    step, rest = steps[0], steps[1:]
    if not rest and step not in (EACH_ITEM, EACH_MEMBER):
        yield value, step, items
    elif step == EACH_ITEM:
        names = [f"n{number}" for number in range(draw(st.integers(1, 2)))]
        value.extend({"name": name, "groupName": name} for name in names[len(value) :])
        for item in value:
            yield from _places(draw, item, rest, (item, *items))
    elif step == EACH_MEMBER:
        for name in ("Master", "Worker")[: draw(st.integers(1, 2))]:
            item = value.setdefault(name, {})
            yield from _places(draw, item, rest, (item, *items)) if rest else [(value, name, (item, *items))]
    elif isinstance(value, dict):
        yield from _places(draw, value.setdefault(step, [] if rest[0] == EACH_ITEM else {}), rest, items)


@st.composite
def workload_objects(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Generate an object of a kind, after the objects to which it refers."""
    row = draw(st.sampled_from(_ROWS))
    made: dict[str, Any] = {
        "apiVersion": f"{row.group}/v1" if row.group else "v1",
        "kind": row.kind,
        "metadata": {"name": "x"},
    }
    roots: dict[str, dict[str, Any]] = {"object": made}
    for variable, programs in row.references.items():
        for field in _FIELD.findall(programs["name"].source.text):
            _set(made, _steps(field), "r")
        kind, name = (programs[each].evaluate({"object": made}, Budget()) for each in ("kind", "name"))
        roots[variable] = {"apiVersion": made["apiVersion"], "kind": kind, "metadata": {"name": name}}
    # Deeper paths first: a template of built pods may be the object itself.
    for each in sorted(row.templates, key=lambda found: -len(found.path)):
        start = each.path[0] if each.path[0] in roots else "object"
        steps = each.path[1:] if start == each.path[0] else each.path
        text = " ".join(program.source.text for program in each.programs.values())
        numbers = sorted({*_NUMBER.findall(text)})
        for owner, member, items in _places(draw, roots[start], steps, ()):
            owner[member] = {**_leaf(each, text), **owner.get(member, {})}
            owners: Mapping[str, dict[str, Any]] = dict(zip(("item", "parent"), items, strict=False))
            for variable, field in numbers:
                if draw(st.integers(0, 3)):
                    _set(owners.get(variable, made), _steps(field), draw(st.integers(0, 3)))
    return [*(roots[name] for name in row.references), made]
