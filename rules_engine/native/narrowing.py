"""Match conditions of policies: pods that a rule may change or deny, without variables.

For a match condition, the API server converts the pod once; for a policy that matches, several times. A condition is
true for every pod that its rule changes or denies, and false for most others.
"""

from collections.abc import Iterable, Sequence

from rules_engine.native.cel_text import cel_list, cel_literal, grouped

CONTAINERS = "(object.spec.containers + object.spec.?initContainers.orValue([]))"

ADDED_CONTAINERS = 16
"""Containers of a pod whose amounts are added up: beyond, a match condition might cost too much."""

LARGE_POD = f"{CONTAINERS}.size() > {ADDED_CONTAINERS}"

MAX_NARROW_LENGTH = 5_000
"""Length of the condition of one rule: those of a policy together cost less than an API server allows (1,000,000)."""

HAS_INIT_CONTAINERS = "has(object.spec.initContainers)"


def names_one_of(resources: Sequence[str]) -> str:
    """Return the condition that a container names a resource. By default, requests have the names of limits, too."""
    return f"{CONTAINERS}.exists(c, {cel_list(resources)}.exists(r, r in c.?resources.requests.orValue({{}})))"


def requested_float(resource: str) -> str:
    """Return what a container `c` requests, an expression of type double, which cannot overflow."""
    return f"quantity(c.?resources.requests[?{resource}].orValue('0')).asApproximateFloat()"


def unserved(ladder: str, resources: Sequence[str]) -> str:
    """Return the condition that no node offers a ladder as much of a resource as all containers request together."""
    offers = f"params.spec.ladders[{cel_literal(ladder)}]"
    return f"""params.spec.known == true && {cel_literal(ladder)} in params.spec.?ladders.orValue({{}}) &&
{cel_list(resources)}.exists(r, [{CONTAINERS}.map(c, {requested_float("r")}).sum()].exists(total,
  total > 0.0 && !{offers}.exists(n, double(n[?r].orValue(0)) >= total)))"""


def any_of(conditions: Iterable[str]) -> str:
    """Return the condition that one of them holds, each written once."""
    texts = [*dict.fromkeys(conditions)]
    return " ||\n".join(map(grouped, texts)) if len(texts) > 1 else (texts or ["false"])[0]
