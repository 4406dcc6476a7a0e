"""A second implementation of fallback ladders, from docs/reference/ladders.md alone.

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
    found: set[str] = set()
    before: list[Any] = []
    fixed: set[str] = set()
    given = {name for rule in rules if rule["mode"] == "Enforce" for name in resources(rule)}
    for plain_rule in sorted(rules, key=lambda rule: (-rule["priority"], rule["name"])):
        if plain_rule["mode"] != "Enforce" or skipped(plain_rule, pod, outcome):
            continue
        rule = {**plain_rule, "decided": {*decided}, "found": {*found}, "given": given}
        again = {**rule, "decided": set()}
        if keys_of(rule):
            decide_pools(rule, outcome, nodes, decided, found, fixed, before)
            before.append(again)
            continue
        undecided = [name for name in resources(rule) if name not in decided and requested(outcome.pod, name)]
        if undecided:
            taken = [name for name in resources(rule) if name in decided and requested(outcome.pod, name)]
            decide(rule, outcome, nodes, undecided, taken, found, before)
            decided |= {*undecided, *(target for name, _, target in outcome.moves if name == rule["name"])}
        before.append(again)
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
    outcome.warned |= skip is not None and applies(rule, outcome.pod)
    return False


def decide(
    rule: Any,
    outcome: Outcome,
    nodes: Sequence[Any] | None,
    undecided: list[str],
    taken: list[str],
    found: set[str],
    before: list[Any],
) -> None:
    """Choose rungs for the pod's resources, once more with what the pod gets where it is if a resource has no rung.

    `taken`: resources decided by the ladders `before`; `found`: resources that ladders found offered, which grows.
    """
    first, second = copy.deepcopy(outcome), copy.deepcopy(outcome)
    found_first, found_second = {*found}, {*found}
    left = decide_once(rule, first, nodes, undecided, taken, found_first, before)
    if left and "placed" in rule:
        second.pod = copy.deepcopy(outcome.pod)
        getting = {name: rule["placed"](first.pod)["spec"].get(name) for name in WHERE}
        second.pod["spec"] |= {name: value for name, value in getting.items() if value}
        if decide_once(rule, second, nodes, undecided, taken, found_second, before) < left:
            first, found_first = second, found_second
    vars(outcome).update(vars(first))
    found |= found_first


def decide_once(
    rule: Any,
    outcome: Outcome,
    nodes: Sequence[Any] | None,
    undecided: list[str],
    taken: list[str],
    found: set[str],
    before: list[Any],
) -> int:
    """Choose rungs. Return the number of resources that no rung can serve."""
    pod = outcome.pod
    if any(invalid(container, name) for container in all_containers(pod) for name in resources(rule)):
        outcome.warned = True
        return 0
    if nodes is None:
        outcome.warned |= any(not rungs(rule)[name]["assume"] for name in undecided)
        return 0
    now = copy.deepcopy(pod)
    moves: dict[str, str] = {}
    order = undecided if rule["direction"] == "Up" else undecided[::-1]
    staying: list[str] = []
    for name in order:
        if rungs(rule)[name]["assume"] or offered(rule, nodes, now, [name, *unassumed(rule, staying)]):
            staying.append(name)
    left = 0
    leaving = [name for name in order if name not in staying]
    settled = [*taken, *staying]
    found_before = {*found}
    found.update(unassumed(rule, staying))
    for name in leaving:
        for target in targets(rule, name, pod):
            after = moved(rule, now, pod, name, target)
            assumed = rungs(rule)[target]["assume"]
            if (assumed or offered(rule, nodes, after, [*settled, target])) and all(
                keeps(earlier, nodes, after)
                if keys_of(earlier)
                else keeps_rung(earlier, nodes, after, target, found_before)
                for earlier in before
                if target in resources(earlier)
            ):
                now, moves[name] = after, target
                settled.append(target)
                found.update(unassumed(rule, [target]))
                break
        else:
            settled.append(name)
            left += 1
            outcome.allowed &= rule["whenExhausted"] == "Keep"
    outcome.moves += [(rule["name"], name, target) for name, target in moves.items()]
    annotate(rule, pod, now, moves)
    outcome.pod = now
    return left


def targets(rule: Any, name: str, pod: Any) -> list[str]:
    """Return the rungs to try, in order; the assumed one is the last."""
    names = resources(rule)
    index = names.index(name)
    lower, higher = names[index + 1 :], names[:index][::-1]
    found = {"Down": lower, "Up": higher, "DownThenUp": lower + higher}[rule["direction"]]
    given = [target for target in found if EXPRESSIONS[rungs(rule)[target]["when"]](pod)]
    return sorted(given, key=lambda target: rungs(rule)[target]["assume"])


def unassumed(rule: Any, names: Sequence[str]) -> list[str]:
    return [name for name in names if not rungs(rule)[name]["assume"]]


def keeps_rung(rule: Any, nodes: Sequence[Any], pod: Any, target: str, found: set[str]) -> bool:
    """Return whether an earlier ladder would keep a rung, given what ladders found offered."""
    beside = [name for name in resources(rule) if name != target and name in found and requested(pod, name)]
    return rungs(rule)[target]["assume"] or offered(rule, nodes, pod, [target, *unassumed(rule, beside)])


def others(rule: Any, pod: Any) -> dict[str, Fraction]:
    """Return what the pod needs of other extended resources, without those that rules may still change."""
    names = {name for item in all_containers(pod) for section in item.get("resources", {}).values() for name in section}
    names |= pod["spec"].get("overhead", {}).keys()
    needs = {
        name: need(pod, name, ("requests", "limits"))
        for name in names - ({*resources(rule)} - rule["decided"])
        if "/" in name and (name not in rule["given"] or name in rule["found"])
    }
    return {name: amount for name, amount in needs.items() if amount > 0}


def offered(rule: Any, nodes: Sequence[Any], pod: Any, names: list[str]) -> bool:
    """Return whether one node has all of these resources and of the pod's others, as much as the whole pod requests."""
    needs = {**others(rule, pod), **{name: need(pod, name) for name in names}}
    return any(
        considers(rule, node, pod) and all(offer(rule, node, name) >= needs[name] for name in needs) for node in nodes
    )


def considers(rule: Any, node: Any, moved_pod: Any) -> bool:
    """Return whether the ladder considers the node. `placed` of a rule: a function that adds what other rules will."""
    pod = rule.get("placed", lambda same: same)(moved_pod)
    wanted = pod["spec"].get("nodeSelector", {})
    terms = terms_of(pod)
    affine = not terms or any(all(holds(line, node) for line in term["matchExpressions"]) for term in terms)
    tolerations = pod["spec"].get("tolerations", [])
    return (
        node["labels"].items() >= rule["nodes"]["selector"].items()
        and ("Ready" not in rule["nodes"]["require"] or node["ready"])
        and ("Schedulable" not in rule["nodes"]["require"] or not node["unschedulable"])
        and (
            "MatchesPod" not in rule["nodes"]["require"]
            or (
                node["labels"].items() >= wanted.items()
                and affine
                and all(any(tolerates(line, key) for line in tolerations) for key in node["taints"])
            )
        )
    )


def tolerates(toleration: Any, key: str) -> bool:
    """Return whether a toleration covers a taint without a value that has the effect NoSchedule."""
    exists = toleration.get("operator") == "Exists"
    return (
        (toleration.get("key") == key or (exists and not toleration.get("key")))
        and (exists or not toleration.get("value"))
        and toleration.get("effect") in (None, "", "NoSchedule")
    )


def offer(rule: Any, node: Any, name: str) -> int:
    free: int = node["allocatable"].get(name, 0)
    return free - node["used"].get(name, 0) if rule["offered"] == "Available" else free


def need(pod: Any, name: str, sections: Sequence[str] = ("limits", "requests")) -> Fraction:
    """Return the pod's request: of the running containers, or the most that an init container needs before."""
    started = peak = Fraction(0)
    for container in pod["spec"].get("initContainers", []):
        if container.get("restartPolicy") == "Always":
            started += first(container, name, sections)
        else:
            peak = max(peak, started + first(container, name, sections))
    running = sum((first(container, name, sections) for container in pod["spec"]["containers"]), started)
    return max(running, peak) + amount(pod["spec"].get("overhead", {}).get(name, "0"))


def moved(rule: Any, pod: Any, before: Any, name: str, target: str) -> Any:
    """Return the pod with the devices that were requested `before` on another rung; those that moved here stay."""
    after = copy.deepcopy(pod)
    for container, own in zip(all_containers(after), all_containers(before), strict=True):
        devices = count(own, name)
        if not devices:
            continue
        arrived_here = count(container, name) - devices
        if rule["counts"] == "Scale":
            devices = ceil(Fraction(devices * rungs(rule)[name]["weight"], rungs(rule)[target]["weight"]))
        text = write(Fraction(devices + count(container, target)), "decimal")
        sections = container["resources"]
        written = {"limits"} | {section for section in sections if {name, target} & sections[section].keys()}
        for section in sections:
            if name in sections[section] and arrived_here:
                sections[section][name] = write(Fraction(arrived_here), "decimal")
            else:
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
        key, old = history(rule, before)
        after["metadata"].setdefault("annotations", {})[key] = ",".join(dict.fromkeys([*old, *falls]))


def history(rule: Any, before: Any) -> tuple[str, list[str]]:
    """Return the annotation to append to, and its falls: of the two shared names, the one that the pod has."""
    annotations = before["metadata"].get("annotations", {})
    key, other = rule["annotation"], HISTORIES.get(rule["annotation"])
    if key not in annotations and other in annotations:
        key = other
    return key, [text for text in annotations.get(key, "").split(",") if text]


HISTORIES = {
    "gpurules.io/fallback": "gpu-webhook.k8s.io/fallback",
    "gpu-webhook.k8s.io/fallback": "gpurules.io/fallback",
}


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
    return int(first(container, name, ("limits", "requests")))


def first(container: Any, name: str, sections: Sequence[str]) -> Fraction:
    return amount(next(iter(named(container, name, sections)), "0"))


def named(container: Any, name: str, sections: Sequence[str] = ("limits", "requests")) -> list[str]:
    amounts = container.get("resources", {})
    return [amounts[key][name] for key in sections if name in amounts.get(key, {})]


def amount(text: str) -> Fraction:
    found = read(text)
    assert found
    return found.value


# Ladders whose rungs have pools.


def keys_of(rule: Any) -> set[str]:
    return {*rule["rungs"][0].get("pool", {})}


def terms_of(pod: Any) -> list[Any]:
    affinity = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    terms: list[Any] = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms", [])
    return terms


def holds(line: Any, node: Any) -> bool:
    """Return whether a node meets an expression of node affinity."""
    value = node["labels"].get(line["key"])
    return {
        "In": value is not None and value in line.get("values", ()),
        "NotIn": value not in line.get("values", ()),
        "Exists": value is not None,
        "DoesNotExist": value is None,
    }[line["operator"]]


def mentions_of(rule: Any, pod: Any) -> dict[str, str | None] | None:
    """Return the pod's value of each of the pools' keys that it mentions; None if it is not one value."""
    keys = keys_of(rule)
    terms = [term for term in terms_of(pod) if term["matchExpressions"]]
    if not any(line["key"] in keys for term in terms for line in term["matchExpressions"]):
        terms = [{}]
    found = []
    for term in terms:
        mentions: set[tuple[str, str | None]] = {
            (key, value) for key, value in pod["spec"].get("nodeSelector", {}).items() if key in keys
        }
        for line in term.get("matchExpressions", []):
            if line["key"] not in keys:
                continue
            if line["operator"] == "DoesNotExist":
                mentions.add((line["key"], None))
            elif line["operator"] == "In" and len({*line["values"]}) == 1:
                mentions.add((line["key"], line["values"][0]))
            else:
                return None
        if len(mentions) > len({key for key, _ in mentions}):
            return None
        found.append(dict(mentions))
    return found[0] if all(mentions == found[0] for mentions in found) else None


def pool_of(rule: Any, pod: Any) -> tuple[dict[str, str | None] | None, bool]:
    """Return the pool of the ladder that the pod is on, or None, and whether it selects none."""
    keys = keys_of(rule)
    mentions = mentions_of(rule, pod)
    if queued(rule, pod) or mentions is None:
        return None, False
    pool = {key: mentions.get(key) for key in keys}
    if any(rung["pool"] == pool for rung in rule["rungs"]):
        return pool, False
    if not mentions and rule["unplaced"] == "First":
        return rule["rungs"][0]["pool"], True
    return None, False


def queued(rule: Any, pod: Any) -> bool:
    return "kueue.x-k8s.io/queue-name" in pod["metadata"].get("labels", {}) and rule["queued"] == "Ignore"


def own_rungs(rule: Any, pod: Any) -> list[int]:
    """Return the rungs that the pod requests in its pool."""
    pool, _ = pool_of(rule, pod)
    return [
        index for index, rung in enumerate(rule["rungs"]) if rung["pool"] == pool and requested(pod, rung["resource"])
    ]


def applies(rule: Any, pod: Any) -> bool:
    if not keys_of(rule):
        return any(requested(pod, name) for name in resources(rule))
    return bool(own_rungs(rule, pod))


def keeps(rule: Any, nodes: Sequence[Any], pod: Any) -> bool:
    """Return whether a ladder, evaluated first, would leave the pod as it is."""
    if not keys_of(rule):
        names = unassumed(rule, [name for name in resources(rule) if requested(pod, name)])
        return not names or offered(rule, nodes, pod, names)
    own = own_rungs(rule, pod)
    return not own or (not pool_of(rule, pod)[1] and together(rule, nodes, pod, {index: index for index in own}, []))


def decide_pools(
    rule: Any,
    outcome: Outcome,
    nodes: Sequence[Any] | None,
    decided: set[str],
    found: set[str],
    fixed: set[str],
    before: list[Any],
) -> None:
    pod = outcome.pod
    unplaced = pool_of(rule, pod)[1]
    every = own_rungs(rule, pod)
    own = [index for index in every if rule["rungs"][index]["resource"] not in decided]
    undecided = any(requested(pod, name) for name in {*resources(rule)} - decided)
    if undecided and not queued(rule, pod) and mentions_of(rule, pod) is None:
        outcome.allowed &= rule["whenExhausted"] == "Keep" or rule["optOut"] == "Allowed"
    if not own:
        return
    names = [rule["rungs"][index]["resource"] for index in every]
    decided_before = {*decided}
    decided |= {rule["rungs"][index]["resource"] for index in own}
    fixed_before = {*fixed}
    fixed |= keys_of(rule)
    if any(invalid(container, name) for container in all_containers(pod) for name in resources(rule)):
        outcome.warned = True
        return
    if nodes is None and not all(rule["rungs"][index]["assume"] for index in own):
        outcome.warned = True
        return
    taken = [name for name in names if name not in {rule["rungs"][index]["resource"] for index in own}]
    order = own if rule["direction"] == "Up" else own[::-1]
    choice: dict[int, int] = {}
    for first in [order[0], *pool_targets(rule, order[0], pod)]:
        choice = {}
        for index in order:
            options = [index, *pool_targets(rule, index, pod)] if choice else [first]
            for option in options:
                attempt = {**choice, index: option}
                if rule["rungs"][option]["pool"] == rule["rungs"][first]["pool"] and fits(
                    rule, nodes or [], pod, attempt, taken, fixed_before, before
                ):
                    choice = attempt
                    break
            else:
                choice = {}
                break
        if choice:
            break
    if not choice:
        stay = {index: index for index in order}
        if unplaced and allowed(rule, nodes or [], pod, stay, fixed_before, before):
            choice, found_again = stay, {*found}
            again = Outcome(arrived(rule, pod, stay))
            if not skipped(rule, again.pod, again):
                decide_pools(rule, again, nodes, decided_before, found_again, fixed_before, before)
            if again.moves:
                found |= found_again
                outcome.pod = again.pod
                outcome.moves += again.moves
                decided |= decided_before
                return
        outcome.allowed &= rule["whenExhausted"] == "Keep"
    else:
        found |= {
            rule["rungs"][option]["resource"] for option in choice.values() if not rule["rungs"][option]["assume"]
        }
    moves = {index: option for index, option in choice.items() if index != option}
    decided |= {rule["rungs"][option]["resource"] for option in moves.values()}
    outcome.moves += [(rule["name"], title(rule, index), title(rule, option)) for index, option in moves.items()]
    outcome.pod = arrived(rule, pod, choice)
    falls = [
        f"{short(title(rule, index))}->{short(title(rule, moves[index]))}"
        for container in all_containers(pod)
        for index in sorted(moves)
        if count(container, rule["rungs"][index]["resource"])
    ]
    if rule["annotation"] and falls:
        key, old = history(rule, pod)
        outcome.pod["metadata"].setdefault("annotations", {})[key] = ",".join(dict.fromkeys([*old, *falls]))


def title(rule: Any, index: int) -> str:
    return f"{rule['rungs'][index]['resource']}@{rule['rungs'][index]['name']}"


def pool_targets(rule: Any, index: int, pod: Any) -> list[int]:
    """Return the other rungs, in the order in which they are tried, whose condition is true."""
    lower, higher = [*range(index + 1, len(rule["rungs"]))], [*range(index)][::-1]
    order = {"Down": lower, "Up": higher, "DownThenUp": lower + higher}[rule["direction"]]
    true = [target for target in order if EXPRESSIONS[rule["rungs"][target]["when"]](pod)]
    return sorted(true, key=lambda target: rule["rungs"][target]["assume"])


def fits(
    rule: Any, nodes: Sequence[Any], pod: Any, choice: dict[int, int], taken: list[str], fixed: set[str], before: Any
) -> bool:
    return together(rule, nodes, pod, choice, taken) and allowed(rule, nodes, pod, choice, fixed, before)


def together(rule: Any, nodes: Sequence[Any], pod: Any, choice: dict[int, int], taken: list[str]) -> bool:
    """Return whether one node of the pool has all devices of these rungs, except the assumed one."""
    pool = rule["rungs"][next(iter(choice.values()))]["pool"]
    whole = after = arrived(rule, pod, choice)
    for index in own_rungs(rule, pod):
        resource = rule["rungs"][index]["resource"]
        if index not in choice and resource not in {*taken}:
            # Not decided yet: it does not count, but what moves to its resource does.
            after = without(after, pod, resource)
    names = {
        rung["resource"]
        for rung in rule["rungs"]
        if rung["pool"] == pool
        and not rung["assume"]
        and any(count(item, rung["resource"]) for item in all_containers(after))
    }
    if not names:
        return True
    return any(
        considers(rule, node, whole)
        and all(node["labels"].get(key) == value for key, value in pool.items())
        and all(offer(rule, node, name) >= need(after, name) for name in {*names, *taken})
        and all(offer(rule, node, name) >= amount for name, amount in others(rule, pod).items())
        for node in nodes
    )


def without(after: Any, pod: Any, name: str) -> Any:
    """Return the pod without the devices of a resource that were requested before."""
    result = copy.deepcopy(after)
    for container, old in zip(all_containers(result), all_containers(pod), strict=True):
        left = count(container, name) - count(old, name)
        for section in container.get("resources", {}).values():
            if name in section:
                section[name] = str(left)
    return result


def allowed(rule: Any, nodes: Sequence[Any], pod: Any, choice: dict[int, int], fixed: set[str], before: Any) -> bool:
    """Return whether the pod may get these rungs, whatever the nodes of the pool offer."""
    unplaced = pool_of(rule, pod)[1]
    if not unplaced and all(index == option for index, option in choice.items()):
        return True
    after = arrived(rule, pod, choice)
    if any(selected(after, key) != selected(pod, key) for key in keys_of(rule) & fixed):
        return False
    classes = {rule["rungs"][to]["place"].get("runtimeClassName") for of, to in choice.items() if unplaced or of != to}
    if len({*classes, pod["spec"].get("runtimeClassName")} - {None}) > 1:
        return False
    moved_pod = any(after["spec"].get(key) != pod["spec"].get(key) for key in WHERE)
    named = {rule["rungs"][option]["resource"] for option in choice.values()}
    return all(
        keeps(earlier, nodes, after)
        for earlier in before
        if keys_of(earlier)
        or named & {*resources(earlier)}
        or (moved_pod and "MatchesPod" in earlier["nodes"]["require"])
    )


WHERE = ("nodeSelector", "affinity", "tolerations", "runtimeClassName")
"""Members of a spec by which ladders move a pod."""


def selected(pod: Any, key: str) -> Any:
    lines = [line for term in terms_of(pod) for line in term["matchExpressions"] if line["key"] == key]
    return pod["spec"].get("nodeSelector", {}).get(key) or next((line.get("values", [None])[0] for line in lines), None)


def arrived(rule: Any, pod: Any, choice: dict[int, int]) -> Any:
    """Return the pod on these rungs: resources, pool and place."""
    unplaced = pool_of(rule, pod)[1]
    after = copy.deepcopy(pod)
    moves = {of: to for of, to in choice.items() if of != to}
    for container, old in zip(all_containers(after), all_containers(pod), strict=True):
        counts: dict[str, int] = {}
        sources = [of for of in moves if count(old, rule["rungs"][of]["resource"])]
        for of in sources:
            source, target = rule["rungs"][of], rule["rungs"][moves[of]]
            devices = count(old, source["resource"])
            if rule["counts"] == "Scale":
                devices = ceil(Fraction(devices * source["weight"], target["weight"]))
            counts[target["resource"]] = counts.get(target["resource"], 0) + devices
        left = {rule["rungs"][of]["resource"] for of in sources}
        for name in counts.keys() - left:
            counts[name] += count(old, name)
        if not counts:
            continue
        sections = container["resources"]
        for of in sources:
            target = rule["rungs"][moves[of]]["resource"]
            both = {rule["rungs"][of]["resource"], target}
            if len(both) == 1 and counts[target] == count(old, target):
                continue
            written = {"limits"} | {name for name in sections if both & old["resources"].get(name, {}).keys()}
            for name in written:
                sections.setdefault(name, {})[target] = write(Fraction(counts[target]), "decimal")
        for name in left - counts.keys():
            for section in sections.values():
                section.pop(name, None)
    chosen = [rule["rungs"][to] for of, to in choice.items() if unplaced or of != to]
    for rung in chosen[:1]:
        for key, value in rung["pool"].items():
            set_label(after, key, value)
    for rung in chosen:
        place = rung["place"]
        for toleration in place.get("tolerations", []):
            if toleration not in after["spec"].get("tolerations", []):
                after["spec"].setdefault("tolerations", []).append(toleration)
        if "runtimeClassName" in place:
            after["spec"]["runtimeClassName"] = place["runtimeClassName"]
        if place.get("annotations"):
            after["metadata"].setdefault("annotations", {}).update(place["annotations"])
    return after


def set_label(pod: Any, key: str, value: str | None) -> None:
    """Let the pod select nodes by a value of a label, where it had the label."""
    lines = [line for term in terms_of(pod) for line in term["matchExpressions"] if line["key"] == key]
    if selected(pod, key) == value:
        return
    for line in lines:
        line.pop("values", None)
        line["operator"] = "DoesNotExist" if value is None else "In"
        if value is not None:
            line["values"] = [value]
    selector = pod["spec"].get("nodeSelector", {})
    if value is None:
        selector.pop(key, None)
    elif key in selector or not lines:
        pod["spec"].setdefault("nodeSelector", {})[key] = value
