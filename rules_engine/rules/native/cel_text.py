"""CEL text of names, literals, matches and requests, for match conditions of webhooks and for policies."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence

from rules_engine.model.rules.rule import ConditionKind, LabelRequirement, Match
from rules_engine.rules.rule_set.globs import is_glob


def match_conditions(match: Match) -> Iterator[str]:
    """Yield the conditions of a match, without namespaceSelector: match conditions cannot read a namespace's labels."""
    yield from namespace_conditions(match)
    yield from map(label_condition, match.object_selector.requirements)


def namespace_conditions(match: Match) -> Iterator[str]:
    """Yield the conditions that a match has for the name of the namespace."""
    if "*" not in match.namespaces:
        yield namespace_condition(match.namespaces)
    if match.exclude_namespaces:
        yield f"!({namespace_condition(match.exclude_namespaces)})"


def namespace_condition(patterns: Sequence[str]) -> str:
    """Return the condition that the namespace matches one of these names and globs."""
    exact = sorted({pattern for pattern in patterns if not is_glob(pattern)})
    globs = sorted(set(patterns) - set(exact))
    tests = [f"request.namespace in {cel_list(exact)}"] if exact or not globs else []
    tests += [f"request.namespace.matches({cel_literal(glob_regex(glob))})" for glob in globs]
    return tests[0] if len(tests) == 1 else f"({' || '.join(tests)})"


def glob_regex(glob: str) -> str:
    """Return a glob as an RE2 expression for the whole name."""
    parts = ({"*": ".*", "?": "."}.get(character) or re.escape(character) for character in glob)
    # A dash is not escaped here, and most names have one.
    return f"^{''.join(parts)}$".replace(r"\-", "-")


def label_condition(requirement: LabelRequirement, owner: str = "object") -> str:
    """Return the condition that the labels of an object meet a requirement."""
    labels = f"{owner}.metadata.?labels.orValue({{}})"
    key, values = cel_literal(requirement.key), cel_list(requirement.values)
    among = f"{owner}.metadata.?labels[?{key}].optMap(value, value in {values}).orValue(false)"
    match requirement.operator:
        case ConditionKind.IN:
            return among
        case ConditionKind.NOT_IN:
            return f"!{among}"
        case ConditionKind.EXISTS:
            return f"{key} in {labels}"
        case _:
            return f"!({key} in {labels})"


def cel_list(texts: Iterable[str]) -> str:
    return f"[{', '.join(map(cel_literal, texts))}]"


def cel_literal(text: str) -> str:
    """Return a CEL string literal. JSON's escapes are valid in CEL as well."""
    plain = text.isprintable() and not set(text) & {"'", "\\"}
    return f"'{text}'" if plain else json.dumps(text, ensure_ascii=False)


def grouped(text: str) -> str:
    """Return an expression as an operand; a comment may end it."""
    return f"({text}\n)" if "//" in text else f"({text})"


CONTAINERS = "(object.spec.containers + object.spec.?initContainers.orValue([]))"

ADDED_CONTAINERS = 16
"""Containers of a pod whose amounts are added up: beyond, a match condition might cost too much."""

LARGE_POD = f"{CONTAINERS}.size() > {ADDED_CONTAINERS}"

MAX_NARROW_LENGTH = 5_000
"""Length of one rule's condition: all of a policy together cost less than an API server allows (1,000,000)."""

HAS_INIT_CONTAINERS = "has(object.spec.initContainers)"


def names_one_of(resources: Sequence[str]) -> str:
    """Return the condition that a container names a resource. By default, requests have the names of limits, too."""
    return f"{CONTAINERS}.exists(c, {cel_list(resources)}.exists(r, r in c.?resources.requests.orValue({{}})))"


def requested_float(resource: str) -> str:
    """Return what a container `c` requests, an expression of type double, which cannot overflow."""
    return f"quantity(c.?resources.requests[?{resource}].orValue('0')).asApproximateFloat()"


def unserved(ladder: str, resources: Sequence[str]) -> str:
    """Return the condition that no node offers the ladder as much of a resource as all containers together request."""
    offers = f"params.spec.ladders[{cel_literal(ladder)}]"
    return f"""params.spec.known == true && {cel_literal(ladder)} in params.spec.?ladders.orValue({{}}) &&
{cel_list(resources)}.exists(r, [{CONTAINERS}.map(c, {requested_float("r")}).sum()].exists(total,
  total > 0.0 && !{offers}.exists(n, double(n[?r].orValue(0)) >= total)))"""


def any_of(conditions: Iterable[str]) -> str:
    """Return the condition that one of them holds, each written once."""
    texts = [*dict.fromkeys(conditions)]
    return " ||\n".join(map(grouped, texts)) if len(texts) > 1 else (texts or ["false"])[0]
