"""Pod Security: the level that a namespace enforces, by the checks of pod_security.yaml.

Source: k8s.io/pod-security-admission 1.36 (admission/admission.go; policy/registry.go; api/helpers.go).
Left out: exemptions and the default level, which are in the API server's configuration; and versions of levels before
v1.25, with which a namespace is unknown.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from rules_engine.cluster.creation.pod_creation import PodCreation, RefusedError
from rules_engine.language.cel import (
    Budget,
    Environment,
    EvaluationError,
    LazyScope,
    NamedProgram,
    Program,
    VariableCompiler,
    types,
)
from rules_engine.language.cel.values.functions import Library
from rules_engine.language.yaml.documents import read_data
from rules_engine.model.json.lenient import Object, object_items, text_member, without_nulls
from rules_engine.model.problems.source import SourceText

ENFORCE = "pod-security.kubernetes.io/enforce"
"""The label of a namespace with its level, and the start of the label with the version of the level."""

_FILE = Path(__file__).with_name("pod_security.yaml")
_OLDEST, _LATEST = 25, 10**9
_VERSION = re.compile(r"v1\.(0|[1-9][0-9]{0,8})")
_TEXTS = types.list_of(types.STRING)
_LIBRARY = Library()


@_LIBRARY.function("quoted", _TEXTS, gives=types.STRING)
def _quoted(items: Sequence[str]) -> str:
    return ", ".join(f'"{item}"' for item in items)


@_LIBRARY.function("named", types.STRING, _TEXTS, gives=types.STRING)
def _named(noun: str, names: Sequence[str]) -> str:
    return f"{noun if len(names) == 1 else f'{noun}s'} {_quoted(names)}"


@_LIBRARY.function("setters", _TEXTS, gives=types.STRING)
def _setters(names: Sequence[str]) -> str:
    """Return who sets values, such as `pod and containers "a", "b"`; names with a slash are of annotations."""
    containers = [name for name in names if name and "/" not in name]
    annotations = [name for name in names if "/" in name]
    parts = ["pod"] if "" in names else []
    parts += [_named("container", containers)] if containers else []
    parts += ["annotation" if len(annotations) == 1 else "annotations"] if annotations else []
    return " and ".join(parts)


def validate(creation: PodCreation) -> None:
    """Refuse a pod that violates the level of its namespace."""
    labels = creation.namespace_labels
    level, version = labels.get(ENFORCE, "privileged"), labels.get(f"{ENFORCE}-version", "latest")
    if level == "privileged":
        return
    level = level if level == "baseline" else "restricted"  # which an unknown level counts as
    parsed = _VERSION.fullmatch(version)
    minor = int(parsed[1]) if parsed else _LATEST
    if minor < _OLDEST:
        creation.unknown.append(f"PodSecurity, which is not evaluated for version {version}")
        return
    try:
        violations = _find_violations(creation.pod, level, minor)
    except EvaluationError as error:
        creation.unknown.append(f"PodSecurity, which is not evaluated: {error.message}")
        return
    if violations:
        name = f"{level}:{version if parsed else 'latest'}"
        raise RefusedError(f'violates PodSecurity "{name}": {", ".join(violations)}')


def _find_violations(pod: Object, level: str, minor: int) -> Sequence[str]:
    """Return the messages of violations in the order of checks. Raises EvaluationError."""
    variables, checks = _read_checks()
    scope = LazyScope(variables, Budget(), {"object": without_nulls({**pod}), "minor": minor})
    applied = [check for check in checks if check.level in ("baseline", level) and check.since <= minor]
    replaced = {check.replaces for check in applied}
    violations: dict[str, str] = {}
    for check in applied:
        if check.id not in replaced and check.id not in violations:
            found: Any = scope.value(check.found)
            items = object_items(found)
            scope["found"] = found
            scope["names"] = [*dict.fromkeys(text_member(item, "name") for item in items)]
            scope["values"] = sorted({str(item["value"]) for item in items if "value" in item})
            if items:
                violations[check.id] = str(scope.value(check.message))
    return [*violations.values()]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Check:
    """A check of a level, from a minor version on. `replaces`: the id of another check that it covers, else ""."""

    id: str
    level: str
    since: int = 0
    replaces: str = ""
    found: Program
    message: Program


@cache
def _read_checks() -> tuple[Mapping[str, NamedProgram], Sequence[_Check]]:
    root: Any = read_data(_FILE)
    names = {"object": types.DYN, "minor": types.INT, "found": types.DYN, "names": _TEXTS, "values": _TEXTS}
    compiler = VariableCompiler(Environment(names, libraries=(_LIBRARY,)))
    for name, text in root["variables"].items():
        compiler.compile(SourceText.inline(text), variable=name)
    return compiler.variables, [
        _Check(
            **{**row, **{name: compiler.compile(SourceText.inline(row[name])) for name in ("found", "message")}},
            level=level,
        )
        for level in ("baseline", "restricted")
        for row in root[level]
    ]
