"""Resource injection: what N GPUs of a type bring to a pod.

What it keeps of the webhook that it replaces, and what it does better, is told in docs/injection.md.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from rules_engine.evaluation.applicability import applicability
from rules_engine.evaluation.compiled import CompiledInjection
from rules_engine.evaluation.counts import MAX_CONTAINERS, malformed, too_many_containers
from rules_engine.evaluation.steps import failed, skipped, stepped
from rules_engine.evaluation.subject import Subject
from rules_engine.model.decision import Action, Amount, Step
from rules_engine.model.edits import Edits, merged
from rules_engine.model.pod import ANNOTATIONS, Container, Pod, Role
from rules_engine.model.quantity import NANOS, Quantity
from rules_engine.model.reading import Path
from rules_engine.model.record import record
from rules_engine.model.rules import Entry, Mode, OnConflict, ResourceInjection

_NONE = Quantity(0)
_ONE = Quantity.of(1)

SHARED_UNITS = {"cpu": Quantity(NANOS // 1000), "memory": _ONE, "ephemeral-storage": _ONE}
"""Resources that the containers of a pod share, and the smallest amount of each that Kubernetes can tell apart."""


@record()
class _Triggered:
    """An injection whose entry applies to the pod: some regular container asks for its GPU resource."""

    rule: ResourceInjection
    entry: Entry
    warnings: tuple[str, ...]


def apply_injections(injections: Sequence[CompiledInjection], subject: Subject) -> tuple[tuple[Step, ...], Edits]:
    """All that apply: at most one per GPU resource enforces; those in audit mode are each asked on their own.

    What comes besides the steps is what they write into the pod.
    """
    steps: dict[int, Step] = {}
    enforced: dict[int, _Triggered] = {}
    audited: dict[int, _Triggered] = {}
    holders: dict[str, ResourceInjection] = {}
    for index, injection in enumerate(injections):
        rule = injection.rule
        found = _triggered(injection, subject)
        if isinstance(found, Step):
            steps[index] = found
        elif rule.gpu_resource in holders:
            winner = holders[rule.gpu_resource].id
            steps[index] = skipped(rule, "already-decided", f"{rule.gpu_resource} was decided by {winner}")
        elif rule.mode is Mode.AUDIT:
            audited[index] = found
        else:
            holders[rule.gpu_resource] = rule
            enforced[index] = found
    written: Edits = {}
    for index, triggered in audited.items():
        steps[index], _ = _inject(triggered, list(enforced.values()), subject)
    for index, triggered in enforced.items():
        steps[index], edits = _inject(triggered, list(enforced.values()), subject)
        written = merged(written, edits)
    return tuple([steps[index] for index in sorted(steps)]), written


def _triggered(injection: CompiledInjection, subject: Subject) -> _Triggered | Step:
    found = applicability(injection, subject)
    if isinstance(found, Step):
        return found
    rule = injection.rule
    gpu_type = subject.pod.annotations.get(rule.gpu_type_annotation)
    if rule.gpu_type is not None and gpu_type != rule.gpu_type:
        return skipped(rule, "gpu-type", f"the pod is not annotated {rule.gpu_type_annotation}: {rule.gpu_type}")
    pod, entry = subject.pod, rule.entry(subject.namespace)
    if rule.gpu_resource not in pod.resources or not any(item.requested(rule.gpu_resource) for item in pod.regular):
        return skipped(rule, "no-request", f"no container asks for {rule.gpu_resource}")
    if entry and len(pod.containers) > MAX_CONTAINERS:
        return failed(rule, too_many_containers(pod))
    return _Triggered(rule, entry, found.warnings)


def _inject(triggered: _Triggered, enforced: Sequence[_Triggered], subject: Subject) -> tuple[Step, Edits]:
    """What one injection does to the pod as the ladders left it, and the edits that do it."""
    rule, entry = triggered.rule, triggered.entry
    notes = tuple(islice(_left_alone(rule, subject.pod), MAX_CONTAINERS))
    if not entry:
        message = f"nothing is injected in the namespace {subject.namespace}"
        return stepped(rule, Action.KEEP, "empty-entry", message, warnings=triggered.warnings, notes=notes), {}
    rivals = {other.rule.gpu_resource for other in enforced if other.entry} | {rule.gpu_resource}
    if len(rivals) > 1:
        message = f"pod {subject.display} has different gpu resource {', '.join(sorted(rivals))}"
        return stepped(rule, Action.DENY, "conflict", message, warnings=triggered.warnings), {}
    wrong = [text for container in subject.pod.regular if (text := malformed(container, rule.gpu_resource))]
    if wrong:
        message = "; ".join(wrong)
        warnings = (*triggered.warnings, f"{rule.id} left the pod as it is: {message}")
        return stepped(rule, Action.KEEP, "malformed", message, warnings=warnings), {}
    return _Calculation(triggered, subject, notes).outcome()


def _left_alone(rule: ResourceInjection, pod: Pod) -> Iterator[str]:
    for container in pod.containers:
        if container.role is not Role.REGULAR and container.requested(rule.gpu_resource):
            yield f"the {container.role.value} {container.name} asks for {rule.gpu_resource} and is left alone"


class _Calculation:
    """The amounts that one entry brings to one pod."""

    def __init__(self, triggered: _Triggered, subject: Subject, notes: tuple[str, ...]) -> None:
        self._triggered = triggered
        self._rule = triggered.rule
        self._entry = triggered.entry
        self._subject = subject
        self._notes = notes
        self._gpus: list[tuple[Container, int]] = []
        """The GPU containers, each with its count."""
        self._others: list[Container] = []
        """What runs beside them: plain containers and sidecars."""
        for container in subject.pod.containers:
            count = container.requested(self._rule.gpu_resource)
            if container.role is Role.REGULAR and count:
                self._gpus.append((container, count.whole))
            elif container.role is not Role.INIT:
                self._others.append(container)

    def outcome(self) -> tuple[Step, Edits]:
        rule, triggered, coefficients = self._rule, self._triggered, self._entry.coefficients
        total = sum([count for _, count in self._gpus])
        left = {
            name: coefficient * total - self._beside(name)
            for name, coefficient in coefficients.items()
            if name in SHARED_UNITS
        }
        short = sorted([name for name, remaining in left.items() if remaining.nanos < 0])
        if short:
            why = "; ".join(
                f"other containers request {self._beside(name)} of {coefficients[name] * total} {name} for {total} GPUs"
                for name in short
            )
            message = f"pod {self._subject.display} resource {', '.join(short)} too large: {why}"
            return stepped(rule, Action.DENY, "too-large", message, warnings=triggered.warnings), {}
        amounts: list[Amount] = []
        edits: dict[Path, dict[str, str | None]] = {}
        for name, coefficient in coefficients.items():
            unit = SHARED_UNITS.get(name)
            for container, count in self._gpus:
                if unit is not None:
                    injected = left[name].share(total, unit) * count
                else:
                    injected = (coefficient * count).floored(_ONE)
                # As the coefficient is written, also where it is 0 and others request less than nothing.
                self._write(container, name, Quantity(injected.nanos, coefficient.format), amounts, edits)
        annotations = self._annotations()
        if annotations:
            edits[ANNOTATIONS] = dict(annotations)
        action = Action.CHANGE if amounts or annotations else Action.KEEP
        message = f"{total} × {rule.gpu_resource}"
        step = stepped(
            rule,
            action,
            "injected" if action is Action.CHANGE else "unchanged",
            message,
            warnings=triggered.warnings,
            amounts=tuple(amounts),
            annotations=annotations,
            notes=self._notes,
        )
        return step, edits

    def _beside(self, name: str) -> Quantity:
        """What the containers without GPUs request."""
        return sum((container.requested(name) or _NONE for container in self._others), _NONE)

    def _write(
        self,
        container: Container,
        name: str,
        injected: Quantity,
        amounts: list[Amount],
        edits: dict[Path, dict[str, str | None]],
    ) -> None:
        limit, request = container.limits.get(name), container.requested(name)
        if self._rule.on_conflict is not OnConflict.OVERWRITE:
            named = [amount for amount in (limit, request) if amount is not None]
            if named and self._rule.on_conflict is OnConflict.KEEP:
                self._notes += (f"the container {container.name} keeps its own {name}: onConflict Keep",)
                return
            if named and injected < max(named):
                self._notes += (f"the container {container.name} names more {name} than the {injected} injected",)
            injected = max([injected, *named])
        if limit == injected and container.requests.get(name) == injected:
            return
        text = str(injected)
        before = str(request) if request is not None else None
        amounts.append(Amount(container=container.name, resource=name, before=before, after=text))
        for path in (container.requests_path, container.limits_path):
            edits.setdefault(path, {})[name] = text

    def _annotations(self) -> Mapping[str, str]:
        """Those to write: where the rule does not overwrite, a key that is there stays."""
        present = self._subject.pod.annotations
        if self._rule.on_conflict is OnConflict.OVERWRITE:
            return {key: value for key, value in self._entry.annotations.items() if present.get(key) != value}
        kept = [key for key, value in self._entry.annotations.items() if present.get(key, value) != value]
        self._notes += tuple(f"the annotation {key} stays: onConflict {self._rule.on_conflict.value}" for key in kept)
        return {key: value for key, value in self._entry.annotations.items() if key not in present}
