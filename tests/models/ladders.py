"""A second implementation of fallback ladders, from docs/ladders.md alone.

Rules, pods and nodes are plain JSON in the terms of the documents; no code of the engine is used. Expressions are
looked up in a table.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil
from typing import Any

from tests.models.quantities import read, write

EXPRESSIONS: Mapping[str, Callable[[Any], bool | None]] = {
    "true": lambda pod: True,
    "false": lambda pod: False,
    "size(object.spec.containers) > 1": lambda pod: len(pod["spec"]["containers"]) > 1,
    "'a/b' in object.metadata.annotations": lambda pod: (
        "a/b" in pod["metadata"]["annotations"] if "annotations" in pod["metadata"] else None
    ),
    "object.spec.containers.exists(c, 'nvidia.com/gpu' in c.?resources.limits.orValue({}))": lambda pod: any(
        "nvidia.com/gpu" in container.get("resources", {}).get("limits", {}) for container in pod["spec"]["containers"]
    ),
}
"""Expressions of generated rules, with their values; None is an error."""


@dataclass
class Outcome:
    """Result for a pod. `moves`: (rule, resource, target)."""

    pod: Any
    allowed: bool = True
    warned: bool = False
    moves: list[tuple[str, str, str]] = field(default_factory=list)


def mutate(pod: Any, rules: Sequence[Any], nodes: Sequence[Any] | None) -> Outcome:
    """Evaluate the ladders in order. `nodes`: None if the cluster is unknown."""
    outcome = Outcome(copy.deepcopy(pod))
    decided: set[str] = set()
    before: list[Any] = []
    for rule in sorted(rules, key=lambda rule: (-rule["priority"], rule["name"])):
        if rule["mode"] != "Enforce" or skipped(rule, pod, outcome):
            continue
        undecided = [name for name in resources(rule) if name not in decided and requested(outcome.pod, name)]
        if undecided:
            taken = [name for name in resources(rule) if name in decided and requested(outcome.pod, name)]
            decide(rule, outcome, nodes, undecided, taken, before)
            decided |= {*undecided, *(target for name, _, target in outcome.moves if name == rule["name"])}
        before.append(rule)
    return outcome


def skipped(rule: Any, pod: Any, outcome: Outcome) -> bool:
    """Return whether the rule skips the pod."""
    skip = pod["metadata"].get("annotations", {}).get("gpurules.io/skip")
    if skip == "true" and rule["optOut"] == "Allowed":
        return True
    holds = [EXPRESSIONS[text](outcome.pod) for text in rule["matchConditions"]]
    if False in holds:
        return True
    if None in holds:
        outcome.warned |= rule["failurePolicy"] == "Ignore"
        outcome.allowed &= rule["failurePolicy"] == "Ignore"
        return True
    outcome.warned |= skip is not None and any(requested(outcome.pod, name) for name in resources(rule))
    return False


def decide(
    rule: Any, outcome: Outcome, nodes: Sequence[Any] | None, undecided: list[str], taken: list[str], before: list[Any]
) -> None:
    """Choose rungs for the pod's resources. `taken`: resources decided by the ladders `before`."""
    pod = outcome.pod
    if any(invalid(container, name) for container in all_containers(pod) for name in resources(rule)):
        outcome.warned = True
        return
    if nodes is None:
        outcome.warned |= any(not rungs(rule)[name]["assume"] for name in undecided)
        return
    now = copy.deepcopy(pod)
    moves: dict[str, str] = {}
    staying = [name for name in undecided if offered(rule, nodes, now, [name])]
    leaving = [name for name in undecided if name not in staying]
    settled = [*taken, *staying]
    for name in leaving if rule["direction"] == "Up" else reversed(leaving):
        for target in targets(rule, name, pod):
            after = moved(rule, now, name, target)
            others = [earlier for earlier in before if target in resources(earlier)]
            assumed = rungs(rule)[target]["assume"]
            if (assumed or offered(rule, nodes, after, [*settled, target], assumption=False)) and all(
                offered(earlier, nodes, after, [target]) for earlier in others
            ):
                now, moves[name] = after, target
                settled.append(target)
                break
        else:
            settled.append(name)
            outcome.allowed &= rule["whenExhausted"] == "Keep"
    outcome.moves += [(rule["name"], name, target) for name, target in moves.items()]
    annotate(rule, pod, now, moves)
    outcome.pod = now


def targets(rule: Any, name: str, pod: Any) -> list[str]:
    """Return the rungs to try, in order; the assumed one is the last."""
    names = resources(rule)
    index = names.index(name)
    lower, higher = names[index + 1 :], names[:index][::-1]
    found = {"Down": lower, "Up": higher, "DownThenUp": lower + higher}[rule["direction"]]
    given = [target for target in found if EXPRESSIONS[rungs(rule)[target]["when"]](pod)]
    return sorted(given, key=lambda target: rungs(rule)[target]["assume"])


def offered(rule: Any, nodes: Sequence[Any], pod: Any, names: list[str], *, assumption: bool = True) -> bool:
    """Return whether one node has all of these resources, as much as the whole pod requests."""
    if assumption and len(names) == 1 and rungs(rule)[names[0]]["assume"]:
        return True
    needs = {name: need(pod, name) for name in names}
    return any(
        considers(rule, node, pod) and all(offer(rule, node, name) >= needs[name] for name in names) for node in nodes
    )


def considers(rule: Any, node: Any, pod: Any) -> bool:
    """Return whether the ladder considers the node."""
    wanted = pod["spec"].get("nodeSelector", {})
    tolerated = {toleration["key"] for toleration in pod["spec"].get("tolerations", [])}
    return (
        node["labels"].items() >= rule["nodes"]["selector"].items()
        and ("Ready" not in rule["nodes"]["require"] or node["ready"])
        and ("Schedulable" not in rule["nodes"]["require"] or not node["unschedulable"])
        and (
            "MatchesPod" not in rule["nodes"]["require"]
            or (node["labels"].items() >= wanted.items() and set(node["taints"]) <= tolerated)
        )
    )


def offer(rule: Any, node: Any, name: str) -> int:
    free: int = node["allocatable"].get(name, 0)
    return free - node["used"].get(name, 0) if rule["offered"] == "Available" else free


def need(pod: Any, name: str) -> int:
    """Return the pod's request: of the running containers, or the most that an init container needs before."""
    started = peak = 0
    for container in pod["spec"].get("initContainers", []):
        if container.get("restartPolicy") == "Always":
            started += count(container, name)
        else:
            peak = max(peak, started + count(container, name))
    running = started + sum(count(container, name) for container in pod["spec"]["containers"])
    return max(running, peak) + int(amount(pod["spec"].get("overhead", {}).get(name, "0")))


def moved(rule: Any, pod: Any, name: str, target: str) -> Any:
    after = copy.deepcopy(pod)
    for container in all_containers(after):
        if not count(container, name):
            continue
        devices = count(container, name)
        if rule["counts"] == "Scale":
            devices = ceil(Fraction(devices * rungs(rule)[name]["weight"], rungs(rule)[target]["weight"]))
        text = write(Fraction(devices + count(container, target)), "decimal")
        sections = container["resources"]
        written = {"limits"} | {section for section in sections if {name, target} & sections[section].keys()}
        for section in sections:
            sections[section].pop(name, None)
        for section in written:
            sections.setdefault(section, {})[target] = text
    return after


def annotate(rule: Any, before: Any, after: Any, moves: Mapping[str, str]) -> None:
    falls = [
        f"{short(name)}->{short(moves[name])}"
        for container in all_containers(before)
        for name in resources(rule)
        if name in moves and count(container, name)
    ]
    if rule["annotation"] and falls:
        annotations = after["metadata"].setdefault("annotations", {})
        old = [text for text in annotations.get(rule["annotation"], "").split(",") if text]
        annotations[rule["annotation"]] = ",".join(dict.fromkeys([*old, *falls]))


def short(name: str) -> str:
    return name.removeprefix("nvidia.com/").removeprefix("mig-") if name.startswith("nvidia.com/") else name


def resources(rule: Any) -> list[str]:
    return [rung["resource"] for rung in rule["rungs"]]


def rungs(rule: Any) -> dict[str, Any]:
    return {rung["resource"]: rung for rung in rule["rungs"]}


def all_containers(pod: Any) -> list[Any]:
    return [*pod["spec"]["containers"], *pod["spec"].get("initContainers", [])]


def requested(pod: Any, name: str) -> bool:
    """Return whether a container requests an amount of the resource other than zero."""
    return any(amount(text) for container in all_containers(pod) for text in named(container, name))


def invalid(container: Any, name: str) -> bool:
    """Return whether limit and request differ, or the count is negative or fractional."""
    amounts = [amount(text) for text in named(container, name)]
    return len(set(amounts)) > 1 or any(value < 0 or value.denominator > 1 for value in amounts)


def count(container: Any, name: str) -> int:
    """Return the container's limit, else its request."""
    return int(amount(next(iter(named(container, name)), "0")))


def named(container: Any, name: str) -> list[str]:
    sections = container.get("resources", {})
    return [sections[key][name] for key in ("limits", "requests") if name in sections.get(key, {})]


def amount(text: str) -> Fraction:
    found = read(text)
    assert found
    return found.value
