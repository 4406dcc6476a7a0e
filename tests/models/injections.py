"""A second implementation of resource injection, from docs/reference/injection.md alone.

Rules and pods are plain JSON in the terms of the documents; no code of the engine is used.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import floor
from typing import Any

from tests.models.quantities import read, write

UNITS = {"cpu": Fraction(1, 1000), "memory": Fraction(1), "ephemeral-storage": Fraction(1)}
"""Resources of the pod that are shared, with the unit to which a share is rounded down."""


BESIDE_HUGE_PAGES = ("cpu", "memory")
"""Resources of which a container with huge pages, even 0, must name one."""


@dataclass
class Outcome:
    """Result for a pod. `words`: names that the denial or the warnings must contain."""

    pod: Any
    allowed: bool = True
    words: list[str] = field(default_factory=list)
    warned: bool = False


def mutate(pod: Any, rules: Sequence[Any], namespace: str) -> Outcome:
    """Evaluate the injections in order. `namespace`: that of the request."""
    outcome = Outcome(copy.deepcopy(pod))
    where = pod["metadata"].get("namespace") or namespace
    first: dict[str, Any] = {}
    for rule in sorted(rules, key=lambda rule: (-rule["priority"], rule["name"])):
        gpu_type = pod["metadata"].get("annotations", {}).get(rule["gpuTypeAnnotation"])
        if rule["mode"] == "Enforce" and rule["gpuType"] in (None, gpu_type):
            first.setdefault(rule["gpuResource"], rule)
    applying = [
        rule
        for name, rule in first.items()
        if any(entry(rule, where)) and any(requests_gpu(c, name) for c in all_containers(pod))
    ]
    if len([rule for rule in applying if any(requests_gpu(c, rule["gpuResource"]) for c in injected(rule, pod))]) > 1:
        return Outcome(pod, allowed=False, words=["has different gpu resource"])
    for rule in applying:
        if outcome.allowed:
            inject(rule, *entry(rule, where), outcome)
    return outcome


def entry(rule: Any, namespace: str) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Return the coefficients and annotations that apply in the namespace."""
    default = rule["coefficients"], rule["annotations"]
    own = rule["namespaces"].get(namespace)
    if own is None:
        return default
    coefficients, annotations = own.get("coefficients", {}), own.get("annotations", {})
    if own.get("inherit") == "Merge":
        return {**default[0], **coefficients}, {**default[1], **annotations}
    return coefficients, annotations


def inject(rule: Any, coefficients: Mapping[str, str], annotations: Mapping[str, str], outcome: Outcome) -> None:
    pod, gpu = outcome.pod, rule["gpuResource"]
    init_names = [container["name"] for container in init_containers(pod) if requests_gpu(container, gpu)]
    if rule["initContainers"] == "Deny" and init_names:
        outcome.allowed, outcome.words = False, init_names
        return
    if rule["initContainers"] == "Ignore" and init_names:
        outcome.warned = True
        outcome.words += init_names
    if any(invalid(container, gpu) for container in injected(rule, pod)):
        outcome.warned = True
        return
    receiving = [container for container in injected(rule, pod) if count(container, gpu)]
    if not receiving:
        return
    sharing = [container for container in receiving if not is_init(container, pod)]
    others = [container for container in running(pod) if container not in sharing]
    devices = sum(count(container, gpu) for container in sharing)
    level = {name: level_amounts(pod, name) for name in coefficients}
    short = []
    written: list[tuple[Any, str, Fraction]] = []
    for name, text in coefficients.items():
        if rule["onConflict"] == "Keep" and level[name]:
            continue
        each = amount(text)
        unit = UNITS.get(name)
        rest = each * devices - sum(request(container, name) for container in others)
        if unit and devices and rest < 0:
            short.append(name)
        for container in receiving:
            n = count(container, gpu)
            if unit is None:
                share = Fraction(floor(each * n))
            elif container in sharing:
                share = floor(rest / devices / unit) * unit * n
            else:
                share = floor(each * n / unit) * unit
            written.append((container, name, share))
    keeps = rule["onConflict"] == "Keep" and any(level.get(name) for name in BESIDE_HUGE_PAGES)
    for container, name, share in sorted(written, key=lambda line: is_huge(line[1])):
        if not (keeps and is_huge(name) and not any(named(container, other) for other in BESIDE_HUGE_PAGES)):
            put(rule, container, name, share, coefficients[name])
    ending = [container for container in init_containers(pod) if is_init(container, pod) and container not in receiving]
    for name, sections in level.items():
        if rule["onConflict"] == "Overwrite" and sections and name in UNITS and devices:
            own = sections.get("requests", sections.get("limits", Fraction(0)))
            given = max(amount(coefficients[name]) * devices, pod_request(pod, name, without=ending))
            if max(own, pod_request(pod, name)) > given:
                short.append(name)
    if short:
        outcome.allowed, outcome.words = False, short
        return
    for name, sections in level.items():
        if rule["onConflict"] != "Keep" and sections:
            raise_level(pod, name, sections, receiving)
    for key, value in annotations.items():
        old = pod["metadata"].setdefault("annotations", {})
        if rule["onConflict"] == "Overwrite" or key not in old:
            old[key] = value


def put(rule: Any, container: Any, name: str, share: Fraction, coefficient: str) -> None:
    """Write an amount into limits and requests, if onConflict allows it."""
    own = [amount(text) for text in named(container, name)]
    if own and rule["onConflict"] == "Keep":
        return
    if rule["onConflict"] == "Raise":
        share = max(share, *own, Fraction(0)) if own else share
    written = read(coefficient)
    assert written
    for section in ("limits", "requests"):
        container.setdefault("resources", {}).setdefault(section, {})[name] = write(share, written.family)


def level_amounts(pod: Any, name: str) -> dict[str, Fraction]:
    """Return the pod-level amounts of a resource, by section."""
    level = pod["spec"].get("resources", {})
    return {section: amount(level[section][name]) for section in level if name in level[section]}


def raise_level(pod: Any, name: str, sections: Mapping[str, Fraction], receiving: Sequence[Any]) -> None:
    """Raise the pod-level amounts to the least that the API server accepts."""
    least = pod_request(pod, name)
    most = max([least, *(amount(container["resources"]["limits"][name]) for container in receiving)])
    for section, old in sections.items():
        wanted = least if section == "requests" else most
        if wanted > old:
            pod["spec"]["resources"][section][name] = write(wanted, "decimal")


def pod_request(pod: Any, name: str, without: Sequence[Any] = ()) -> Fraction:
    """Return the pod's request: of the running containers, or the most that an init container needs before."""
    peak = started = Fraction(0)
    for container in init_containers(pod):
        if container in without:
            continue
        if container.get("restartPolicy") == "Always":
            started += request(container, name)
        else:
            peak = max(peak, started + request(container, name))
    return max(peak, started + sum(request(container, name) for container in pod["spec"]["containers"]))


def injected(rule: Any, pod: Any) -> list[Any]:
    """Return the containers that the rule injects into."""
    return all_containers(pod) if rule["initContainers"] == "Inject" else list(pod["spec"]["containers"])


def running(pod: Any) -> list[Any]:
    """Return regular containers and sidecars."""
    return [container for container in all_containers(pod) if not is_init(container, pod)]


def is_init(container: Any, pod: Any) -> bool:
    return container in init_containers(pod) and container.get("restartPolicy") != "Always"


def init_containers(pod: Any) -> list[Any]:
    return list(pod["spec"].get("initContainers", []))


def all_containers(pod: Any) -> list[Any]:
    return [*pod["spec"]["containers"], *init_containers(pod)]


def requests_gpu(container: Any, gpu: str) -> bool:
    return any(amount(text) for text in named(container, gpu))


def is_huge(name: str) -> bool:
    return name.startswith("hugepages-")


def invalid(container: Any, name: str) -> bool:
    amounts = [amount(text) for text in named(container, name)]
    return len(set(amounts)) > 1 or any(value < 0 or value.denominator > 1 for value in amounts)


def count(container: Any, name: str) -> int:
    return int(amount(next(iter(named(container, name)), "0")))


def request(container: Any, name: str) -> Fraction:
    """Return the request, or the limit that the API server copies to it."""
    return amount(next(reversed(named(container, name)), "0"))


def named(container: Any, name: str) -> list[str]:
    sections = container.get("resources", {})
    return [sections[key][name] for key in ("limits", "requests") if name in sections.get(key, {})]


def amount(text: str) -> Fraction:
    found = read(text)
    assert found
    return found.value
