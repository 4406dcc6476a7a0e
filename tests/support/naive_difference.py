"""Second implementation of the difference of rules: from patched pods and traces, without caches and shared values."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.cluster import Cluster
from rules_engine.model.kubernetes.quantity import Quantity
from rules_engine.questions.diff.values import SubmittedPods
from rules_engine.rules.evaluation import RuleSet
from rules_engine.rules.evaluation.admission import Admission, admit_pod
from tests.support.laws import RESOURCES as GPUS
from tests.support.patching import apply_as_api_server


@dataclass(frozen=True)
class Seen:
    """The two admissions of a pod, and the pod that each makes."""

    submitted: SubmittedPods
    before: Admission
    after: Admission

    @property
    def kinds(self) -> frozenset[str]:
        old, new = self.before, self.after
        if old.allowed != new.allowed:
            return frozenset({"Admitted" if new.allowed else "Denied"})
        found = set()
        if old.message != new.message:
            found.add("Message")
        if sorted(old.warnings) != sorted(new.warnings):
            found.add("Warnings")
        if old.allowed:
            moves = _moves(old) ^ _moves(new)
            if moves:
                found.add("Rung")
            named = {name for move in moves for name in move}
            old_pod, new_pod = self.pods
            if _amounts(old_pod, named) != _amounts(new_pod, named):
                found.add("Resources")
            written = {
                key
                for step in (*old.trace, *new.trace)
                if not step.audit and any((found.resource, found.to) in moves for found in step.resources)
                for key in step.annotations
            }
            if _annotations(old_pod, written) != _annotations(new_pod, written):
                found.add("Annotations")
        if not found and _acting(old) != _acting(new):
            found.add("Rule")
        return frozenset(found)

    @property
    def pods(self) -> tuple[Any, Any]:
        """The pod after each mutation, by its JSON Patch."""
        made = self.submitted.request.object
        return apply_as_api_server(made, self.before.mutation.patch), apply_as_api_server(
            made, self.after.mutation.patch
        )


def look(submitted: SubmittedPods, old: RuleSet, new: RuleSet, cluster: Cluster) -> Seen:
    return Seen(submitted, admit_pod(old, submitted.request, cluster), admit_pod(new, submitted.request, cluster))


def counted(all_seen: Sequence[Seen]) -> dict[str, dict[str, int]]:
    """Return numbers of changed pods by kind of change and by namespace, and devices by resource of each side."""
    kinds, namespaces = Counter[str](), Counter[str]()
    sides = Counter[str](), Counter[str]()
    for seen in all_seen:
        for kind in seen.kinds:
            kinds[kind] += seen.submitted.count
        if seen.kinds:
            namespaces[seen.submitted.workload.namespace] += seen.submitted.count
        for side, admission, made in zip(sides, (seen.before, seen.after), seen.pods, strict=True):
            if admission.allowed:
                for name, nanos in _devices(made["spec"]).items():
                    side[name] += nanos * seen.submitted.count
    return {"kinds": kinds, "namespaces": namespaces, "before": +sides[0], "after": +sides[1]}


def _devices(spec: Any) -> dict[str, int]:
    """Return the most of each GPU resource that a pod uses at once: init containers run one after another (KEP-753)."""
    found = {}
    for name in GPUS:
        sidecars = most = 0
        for container in spec.get("initContainers", []):
            own = _requested(container, name)
            most = max(most, sidecars + own)
            if container.get("restartPolicy") == "Always":
                sidecars += own
        running = sidecars + sum(_requested(container, name) for container in spec["containers"])
        found[name] = max(most, running) + Quantity.parse(spec.get("overhead", {}).get(name, "0")).nanos
    return found


def _requested(container: Any, name: str) -> int:
    written = container.get("resources", {})
    amounts = {**written.get("limits", {}), **written.get("requests", {})}
    return Quantity.parse(amounts.get(name, "0")).nanos


def _moves(admission: Admission) -> set[tuple[str, str]]:
    return {
        (found.resource, found.to)
        for step in admission.trace
        if not step.audit
        for found in step.resources
        if found.to is not None
    }


def _acting(admission: Admission) -> set[str]:
    """Return the rules that changed the pod, denied it or warned."""
    return {
        step.rule for step in admission.trace if not step.audit and (step.action.value == "change" or step.warnings)
    } | {step.rule for step in admission.trace if step.denies}


def _amounts(made: Any, without: set[str]) -> Json:
    spec = made["spec"]
    found: dict[str, Any] = {}
    for member in ("containers", "initContainers"):
        for container in spec.get(member, []):
            written = container.get("resources", {})
            requests = {**written.get("limits", {}), **written.get("requests", {})}
            for section, amounts in (("limits", written.get("limits", {})), ("requests", requests)):
                for name, text in amounts.items():
                    if name not in without:
                        found[f"{container['name']}/{section}/{name}"] = _exact(text)
    for section, amounts in spec.get("resources", {}).items():
        for name, text in amounts.items():
            found[f"./{section}/{name}"] = _exact(text)
    return found


def _exact(text: str) -> Any:
    return Fraction(Quantity.parse(text).nanos)


def _annotations(made: Any, without: set[str]) -> dict[str, str]:
    return {key: text for key, text in made["metadata"].get("annotations", {}).items() if key not in without}
