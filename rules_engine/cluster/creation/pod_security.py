"""Pod Security: the level that a namespace enforces, by the checks of pod_security.yaml.

Source: k8s.io/pod-security-admission 1.36 (admission/admission.go; policy/registry.go; api/helpers.go).
Left out: exemptions and the default level, which are in the API server's configuration; annotations of seccomp, which
only levels before v1.19 check; and the fields that the API server copies from annotations of AppArmor, which it names,
too.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import cast

from rules_engine.cluster.creation.pod_creation import PodCreation, RefusedError
from rules_engine.language.cel import (
    Budget,
    Environment,
    EvaluationError,
    LazyScope,
    NamedProgram,
    Program,
    Type,
    compile_expression,
    types,
)
from rules_engine.language.cel.check.environment import VARIABLES
from rules_engine.language.cel.scope import with_variables
from rules_engine.language.cel.values.functions import Library
from rules_engine.language.files import SourceFile
from rules_engine.language.yaml.documents import read_documents
from rules_engine.model.json.lenient import (
    Object,
    as_mapping,
    as_string_map,
    integer_member,
    object_items,
    text_member,
    without_nulls,
)
from rules_engine.model.json.patch import Json
from rules_engine.model.problems.problem import Problems
from rules_engine.model.problems.source import SourceText

ENFORCE = "pod-security.kubernetes.io/enforce"
"""The label of a namespace with its level, and the start of the label with the version of the level."""

_FILE = Path(__file__).with_name("pod_security.yaml")
_LATEST = 10**9
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
    try:
        violations = _find_violations(creation.pod, level, int(parsed[1]) if parsed else _LATEST)
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
        if check.id in replaced or check.id in violations:
            continue
        scope["found"] = scope.value(check.found)
        items = object_items(cast(Json, scope["found"]))
        if items:
            scope["names"] = [*dict.fromkeys(text_member(item, "name") for item in items)]
            scope["values"] = sorted({str(item["value"]) for item in items if "value" in item})
            violations[check.id] = str(scope.value(check.message))
    return [*violations.values()]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Check:
    """A check of a level, from a minor version on. `replaces`: the id of another check that it covers, else ""."""

    id: str
    level: str
    since: int
    replaces: str
    found: Program
    message: Program


@cache
def _read_checks() -> tuple[Mapping[str, NamedProgram], Sequence[_Check]]:
    """Return the variables and the checks."""
    (document,) = read_documents(SourceFile(_FILE.name, _FILE.read_text()), Problems())
    root = as_mapping(document.root.json())
    environment = Environment({"object": types.DYN, "minor": types.INT}, libraries=(_LIBRARY,))
    variables: dict[str, NamedProgram] = {}
    declared: dict[str, Type] = {}
    for name, text in as_string_map(root["variables"]).items():
        program = _compile(text, with_variables(environment, declared))
        variables[f"{VARIABLES}.{name}"] = NamedProgram(name, program)
        declared[name] = program.result
    environment = with_variables(environment, declared)
    of_message = environment.with_variables(found=types.DYN, names=_TEXTS, values=_TEXTS)
    return variables, [
        _Check(
            id=text_member(row, "id"),
            level=level,
            since=integer_member(row, "since"),
            replaces=text_member(row, "replaces"),
            found=_compile(text_member(row, "found"), environment),
            message=_compile(text_member(row, "message"), of_message),
        )
        for level in ("baseline", "restricted")
        for row in object_items(root[level])
    ]


def _compile(text: str, environment: Environment) -> Program:
    return compile_expression(SourceText.inline(text), environment)
