"""Manifests with a change that an answer of preflight proposes, made from its text as a user would edit them."""

import re
from collections.abc import Callable
from typing import Any

Object = dict[str, Any]

_REQUIRED, _PREFERRED = (
    "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution",
)


def change_pod(pod: Object, text: str) -> None:
    """Change the spec of a pod as a text says."""
    for part in re.split(r" and (?=with |without )", text):
        for pattern, change in _CHANGES.items():
            if found := re.fullmatch(pattern, part):
                change(pod, *found.groups())
                break
        else:
            raise AssertionError(part)


def _set_devices(pod: Object, count: str, resource: str, each: str | None) -> None:
    counts = dict(part.split(": ") for part in each.split(", ")) if each else {pod["containers"][0]["name"]: count}
    for container in pod["containers"]:
        if container["name"] in counts:
            amounts = container["resources"]["limits"]
            (before,) = [name for name in amounts if "/" in name]
            del amounts[before]
            amounts[resource] = counts[container["name"]]


def _set_request(pod: Object, resource: str, amount: str, name: str) -> None:
    (container,) = [each for each in pod["containers"] if each["name"] == name]
    container["resources"].setdefault("requests", {})[resource] = amount


def _set_class(pod: Object, name: str) -> None:
    pod["priorityClassName"] = name
    pod.pop("priority", None)


def _prefer(pod: Object, words: str) -> None:
    rules = pod["affinity"][{"pod anti-affinity": "podAntiAffinity", "pod affinity": "podAffinity"}[words]]
    terms = [{"weight": 100, "podAffinityTerm": term} for term in rules.pop(_REQUIRED)]
    rules[_PREFERRED] = [*rules.get(_PREFERRED, ()), *terms]


def _spread_anyway(pod: Object) -> None:
    for constraint in pod["topologySpreadConstraints"]:
        constraint["whenUnsatisfiable"] = "ScheduleAnyway"
        constraint.pop("minDomains", None)


def _add_placement(pod: Object, text: str) -> None:
    for part in text.split(" and "):
        if part.startswith("a toleration of "):
            taint, _, effect = part.removeprefix("a toleration of ").rpartition(":")
            key, _, value = taint.partition("=")
            pod.setdefault("tolerations", []).append({"key": key, "value": value, "effect": effect})
        else:
            key, value = re.fullmatch(r"nodeSelector (\S+): (\S+)", part).groups()  # type: ignore[union-attr]
            pod.setdefault("nodeSelector", {})[key] = value


def _remove_placement(pod: Object, text: str) -> None:
    for part in text.split(" and "):
        if part == "required node affinity":
            del pod["affinity"]["nodeAffinity"]
        else:
            del pod["nodeSelector"][part.removeprefix("nodeSelector ")]


_CHANGES: dict[str, Callable[..., None]] = {
    r"with (\d+) (\S+)(?: \((.*)\))?": _set_devices,
    r"with requests\.(\w+): (\S+) in container (\S+)": _set_request,
    r"with priorityClassName: (\S+)": _set_class,
    r"with preferred instead of required (.*)": _prefer,
    r"with whenUnsatisfiable: ScheduleAnyway": _spread_anyway,
    r"with (.*)": _add_placement,
    r"without (.*)": _remove_placement,
}
