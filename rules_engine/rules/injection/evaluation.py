"""Resource injection: a pod with N GPUs of a type gets amounts of other resources.

docs/how-to/migrate.md compares it with the webhook that it replaces.
"""

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from rules_engine.cluster.creation.limit_range import LIMIT_RANGER_ANNOTATION, amounts_set
from rules_engine.model.json.edits import Edits, merge_edits, patch_bytes
from rules_engine.model.json.strict import JsonPath
from rules_engine.model.kubernetes.pod import ANNOTATIONS, POD_LIMITS, POD_REQUESTS, Container, Role
from rules_engine.model.kubernetes.quantity import NANOS, Quantity
from rules_engine.model.rules.decision import Action, Amount, ContainerRequest, Step
from rules_engine.model.rules.rule import Mode
from rules_engine.rules.evaluation.applicability import (
    MAX_CONTAINERS,
    amount_problem,
    check_applicability,
    container_count_error,
)
from rules_engine.rules.evaluation.steps import Details, failure_step, patch_size_error, rule_step, skip_step
from rules_engine.rules.injection.value import InitContainers, InjectionEntry, OnConflict, ResourceInjection
from rules_engine.rules.rule_set.compiled import CompiledRule
from rules_engine.rules.rule_set.compiler import Compiler
from rules_engine.rules.rule_set.context import Context

_ZERO = Quantity(0)
_ONE = Quantity.of(1)

SHARED_UNITS = {"cpu": Quantity(NANOS // 1000), "memory": _ONE, "ephemeral-storage": _ONE}
"""Resources that the containers of a pod share, and the smallest unit of each that Kubernetes distinguishes."""

_HUGE_PAGES = "hugepages-"
_BESIDE_HUGE_PAGES = frozenset({"cpu", "memory"})
"""Resources of which a container with huge pages must name one, regardless of spec.resources.

Source: k8s.io/kubernetes/pkg/apis/core/validation."""


class _ApplicableInjection(Struct, frozen=True, kw_only=True):
    """An injection that applies to the pod: at least one container requests its GPU resource.

    `served` are the containers that get amounts, `passed_over` the sidecars and init containers that do not.
    """

    rule: ResourceInjection
    entry: InjectionEntry
    warnings: tuple[str, ...]
    served: tuple[Container, ...]
    passed_over: tuple[Container, ...]

    @property
    def injects(self) -> bool:
        """True if any container gets an amount."""
        return bool(self.entry and self.served)

    @property
    def requests(self) -> tuple[ContainerRequest, ...]:
        """The GPU requests of the containers that get amounts."""
        resource = self.rule.gpu_resource
        return tuple(ContainerRequest(item.name, resource, _gpu_count(item, resource)) for item in self.served)


def compile_injection(rule: ResourceInjection, compiler: Compiler) -> CompiledRule[ResourceInjection]:
    """Return the rule; an injection has no expressions of its own."""
    return CompiledRule(rule=rule, variables=compiler.variables, conditions=compiler.conditions)


def apply_injections(
    injections: Sequence[CompiledRule[ResourceInjection]], context: Context
) -> tuple[tuple[Step, ...], Edits]:
    """Evaluate all injections that apply. At most one per GPU resource enforces; audited injections are independent.

    Return their steps, and the edits of the enforcing injections.
    """
    steps: dict[int, Step] = {}
    enforced: dict[int, _ApplicableInjection] = {}
    audited: dict[int, _ApplicableInjection] = {}
    holders: dict[str, ResourceInjection] = {}
    for index, injection in enumerate(injections):
        rule = injection.rule
        applicable = _find_applicable(injection, context)
        if isinstance(applicable, Step):
            steps[index] = applicable
        elif rule.gpu_resource in holders:
            winner = holders[rule.gpu_resource].id
            message = f"{rule.gpu_resource} was decided by {winner}"
            steps[index] = skip_step(rule, "already-decided", message, rule.fields.get("gpuResource", ()))
        elif rule.mode is Mode.AUDIT:
            audited[index] = applicable
        else:
            holders[rule.gpu_resource] = rule
            enforced[index] = applicable
    all_edits: Edits = {}
    # An audited injection can conflict with enforced ones, but not with another audited one.
    for index, triggered in audited.items():
        steps[index], _ = _inject_within_bounds(triggered, list(enforced.values()), context)
    for index, triggered in enforced.items():
        steps[index], edits = _inject_within_bounds(triggered, list(enforced.values()), context)
        all_edits = merge_edits(all_edits, edits)
    return tuple(steps[index] for index in sorted(steps)), all_edits


def _find_applicable(injection: CompiledRule[ResourceInjection], context: Context) -> _ApplicableInjection | Step:
    applies = check_applicability(injection, context)
    if isinstance(applies, Step):
        return applies
    rule = injection.rule
    gpu_type = context.pod.annotations.get(rule.gpu_type_annotation)
    if rule.gpu_type is not None and gpu_type != rule.gpu_type:
        message = f"the pod is not annotated {rule.gpu_type_annotation}: {rule.gpu_type}"
        return skip_step(rule, "gpu-type", message, rule.fields.get("gpuType", ()))
    pod, entry = context.pod, rule.entry(context.namespace)
    requested = rule.gpu_resource in pod.resources
    if requested and entry and len(pod.containers) > MAX_CONTAINERS:
        return failure_step(rule, container_count_error(pod))
    gpu_containers = [item for item in pod.containers if item.requested(rule.gpu_resource)] if requested else []
    if not gpu_containers:
        message = f"no container requests {rule.gpu_resource}"
        return skip_step(rule, "no-request", message, rule.fields.get("gpuResource", ()))
    return _ApplicableInjection(
        rule=rule,
        entry=entry,
        warnings=applies.warnings,
        served=tuple(container for container in gpu_containers if _may_serve(rule, container)),
        passed_over=tuple(container for container in gpu_containers if not _may_serve(rule, container)),
    )


def _gpu_count(container: Container, gpu_resource: str) -> int:
    requested = container.requested(gpu_resource)
    return requested.whole if requested else 0


def _may_serve(rule: ResourceInjection, container: Container) -> bool:
    return container.role is Role.REGULAR or rule.init_containers is InitContainers.INJECT


def _inject_within_bounds(
    triggered: _ApplicableInjection, enforced: Sequence[_ApplicableInjection], context: Context
) -> tuple[Step, Edits]:
    """Return the step and edits of one injection, which fails if its patch would get too large."""
    try:
        step, edits = _inject(triggered, enforced, context)
    except Exception as error:
        return failure_step(triggered.rule, error), {}
    excess = patch_size_error(edits, patch_bytes(context.pod.edits)) if edits else None
    return (step, edits) if excess is None else (failure_step(triggered.rule, excess), {})


def _inject(
    triggered: _ApplicableInjection, enforced: Sequence[_ApplicableInjection], context: Context
) -> tuple[Step, Edits]:
    """Return the step of one injection on the result of the ladders, and its edits."""
    rule, entry, warnings = triggered.rule, triggered.entry, triggered.warnings
    if not entry:
        message = f"nothing is injected in the namespace {context.namespace}"
        return rule_step(rule, Action.KEEP, "empty-entry", message, warnings=warnings, fields=entry.fields), {}
    rivals = {other.rule.gpu_resource for other in enforced if other.injects} | {rule.gpu_resource}
    if triggered.served and len(rivals) > 1:
        message = f"pod {context.display} has different gpu resource {', '.join(sorted(rivals))}"
        common: Details = {"warnings": warnings, "requests": triggered.requests, "fields": entry.fields}
        return rule_step(rule, Action.DENY, "conflict", message, **common), {}
    passed_over = [f"the {container.role.value} {container.name}" for container in triggered.passed_over]
    if passed_over and rule.init_containers is InitContainers.DENY:
        message = (
            f"pod {context.display} requests {rule.gpu_resource} in {', '.join(passed_over)} (initContainers: Deny)"
        )
        fields = rule.fields.get("initContainers", ())
        return rule_step(rule, Action.DENY, "init-containers", message, warnings=warnings, fields=fields), {}
    warnings += tuple(
        f"{rule.id} injects nothing into {container}, which requests {rule.gpu_resource} (initContainers: Ignore)"
        for container in passed_over
    )
    if not triggered.served:
        message = f"no regular container requests {rule.gpu_resource}"
        fields = rule.fields.get("initContainers", ())
        return rule_step(rule, Action.KEEP, "init-containers", message, warnings=warnings, fields=fields), {}
    eligible = [container for container in context.pod.containers if _may_serve(rule, container)]
    errors = [text for container in eligible if (text := amount_problem(container, rule.gpu_resource))]
    if errors:
        message = "; ".join(errors)
        warnings += (f"{rule.id} left the pod as it is: {message}",)
        return rule_step(rule, Action.KEEP, "malformed", message, warnings=warnings, fields=entry.fields), {}
    return _Calculation(triggered, context, warnings).outcome()


class _Calculation:
    """The amounts that one entry injects into one pod."""

    def __init__(self, triggered: _ApplicableInjection, context: Context, warnings: tuple[str, ...]) -> None:
        self._rule = triggered.rule
        self._entry = triggered.entry
        self._context = context
        self._warnings = warnings
        self._notes: tuple[str, ...] = ()
        self._served = triggered.served
        self._requests = triggered.requests
        self._served_paths = {container.path for container in triggered.served}
        self._others = [
            container
            for container in context.pod.containers
            if container.role is not Role.INIT and container.path not in self._served_paths
        ]
        """Regular containers and sidecars without GPUs."""
        context.budget_of(self._rule).spend(len(context.pod.annotations.get(LIMIT_RANGER_ANNOTATION, "")))
        self._set_by_cluster = amounts_set(context.pod.annotations)
        self._kept: frozenset[str] = frozenset()
        self._coefficients = self._applicable_coefficients()
        self._total = sum(self._count(container) for container in self._served if container.role is not Role.INIT)
        # GPU containers that keep running share the total amount, less the requests of the other containers.
        self._left = {
            name: coefficient * self._total - self._other_requests(name)
            for name, coefficient in self._coefficients.items()
            if name in SHARED_UNITS and self._total
        }

    def outcome(self) -> tuple[Step, Edits]:
        rule, total = self._rule, self._total
        common: Details = {"warnings": self._warnings, "requests": self._requests, "fields": self._entry.fields}
        # All shortfalls in one message, so that a user does not find them one by one.
        short = {
            name: f"{owner} {amount} of {most} {name} for {total} GPUs"
            for name in sorted(self._left)
            for owner, amount, most in self._demands(name)
            if amount > most
        }
        if short:
            reason = "; ".join(short.values())
            message = f"pod {self._context.display} resource {', '.join(short)} too large: {reason}"
            return rule_step(rule, Action.DENY, "too-large", message, **common), {}
        amounts: list[Amount] = []
        edits: dict[JsonPath, dict[str, str | None]] = {}
        for name in self._coefficients:
            for container in self._served:
                self._write(container, name, amounts, edits)
        self._lift_pod_level(amounts, edits)
        annotations = self._annotations()
        if annotations:
            edits[ANNOTATIONS] = dict(annotations)
        action = Action.CHANGE if amounts or annotations else Action.KEEP
        started = sum(self._count(container) for container in self._served if container.role is Role.INIT)
        step = rule_step(
            rule,
            action,
            "injected" if action is Action.CHANGE else "unchanged",
            f"{total} × {rule.gpu_resource}" + (f", {started} in init containers" if started else ""),
            warnings=self._warnings,
            requests=self._requests,
            amounts=tuple(amounts),
            annotations=annotations,
            notes=self._notes,
            fields=self._entry.fields,
        )
        return step, edits

    def _demands(self, name: str) -> Iterator[tuple[str, Quantity, Quantity]]:
        """Yield the requests that may not exceed an amount: the owner in words, the request, and the amount."""
        pod, most = self._context.pod, self._coefficients[name] * self._total
        level = pod.requests.get(name, pod.limits.get(name))
        if level is not None and self._rule.on_conflict is OnConflict.OVERWRITE:
            # Init containers with GPUs may need more than the total: the rule denies nothing that it gives itself.
            given = max(most, self._aggregate(name, [*self._served, *self._others]))
            yield "spec.resources requests", level, given
            yield "containers that spec.resources must cover request", self._aggregate(name, pod.containers), given
        yield "other containers request", self._other_requests(name), most

    def _aggregate(self, name: str, counted: Sequence[Container]) -> Quantity:
        """Return the least that the pod level must request for some containers after the injection.

        Source: k8s.io/kubernetes/pkg/apis/core/validation (validatePodResourceConsistency): a request of the pod is at
        least the aggregate of its containers' requests, a limit at least its request and the limit of each container.
        Injected amounts are both request and limit of their container, so that the aggregate is enough for both.
        """
        paths = {container.path for container in counted}
        containers = self._context.pod.containers
        requested = [self._after(item, name).nanos if item.path in paths else 0 for item in containers]
        return Quantity(self._context.pod.aggregate(requested), self._coefficients[name].format)

    def _after(self, container: Container, name: str) -> Quantity:
        """Return the request of a container after the injection, unless onConflict is Keep."""
        if container.path not in self._served_paths:
            return container.requested(name) or _ZERO
        own = self._own_amounts(container, name) if self._rule.on_conflict is OnConflict.RAISE else ()
        return max([self._injected(container, name), *own])

    def _own_amounts(self, container: Container, name: str) -> Sequence[Quantity]:
        """Return the container's limit and request without those that LimitRanger has set: they count as not set."""
        place = f"{container.path[1]}/{container.name}"
        sections = (("limits", container.limits), ("requests", container.requests))
        return [
            amounts[name]
            for kind, amounts in sections
            if name in amounts and (place, kind, name) not in self._set_by_cluster
        ]

    def _injected(self, container: Container, name: str) -> Quantity:
        coefficient, count = self._coefficients[name], self._count(container)
        unit = SHARED_UNITS.get(name, _ONE)
        if name in self._left and container.role is not Role.INIT:
            injected = self._left[name].share(self._total, unit) * count
        else:
            injected = (coefficient * count).floor_to(unit)
        # In the coefficient's format, even if it is 0 and the others request a negative amount.
        return Quantity(injected.nanos, coefficient.format)

    def _applicable_coefficients(self) -> Mapping[str, Quantity]:
        """Return the coefficients; with onConflict Keep, without the resources in the pod's spec.resources."""
        pod, coefficients = self._context.pod, self._entry.coefficients
        if self._rule.on_conflict is not OnConflict.KEEP:
            return coefficients
        kept = [name for name in coefficients if name in pod.requests or name in pod.limits]
        self._notes += tuple(f"the pod's own level (spec.resources) keeps its {name}: onConflict Keep" for name in kept)
        self._kept = frozenset(kept)
        # Huge pages come last, after the cpu or memory that they require is written.
        names = [name for name in coefficients if name not in kept]
        return {name: coefficients[name] for name in sorted(names, key=lambda name: name.startswith(_HUGE_PAGES))}

    def _count(self, container: Container) -> int:
        """Return the number of GPUs that a container requests."""
        return _gpu_count(container, self._rule.gpu_resource)

    def _other_requests(self, name: str) -> Quantity:
        """Return the amount that the containers without GPUs request."""
        return sum((container.requested(name) or _ZERO for container in self._others), _ZERO)

    def _write(
        self,
        container: Container,
        name: str,
        amounts: list[Amount],
        edits: dict[JsonPath, dict[str, str | None]],
    ) -> None:
        limit, request = container.limits.get(name), container.requested(name)
        if name.startswith(_HUGE_PAGES) and self._kept & _BESIDE_HUGE_PAGES:
            present = {*container.limits, *container.requests, *edits.get(container.limits_path, ())}
            if not present & _BESIDE_HUGE_PAGES:
                self._notes += (f"the container {container.name} gets no {name}: it has neither cpu nor memory",)
                return
        injected = self._injected(container, name)
        if self._rule.on_conflict is OnConflict.KEEP and self._own_amounts(container, name):
            self._notes += (f"the container {container.name} keeps its own {name}: onConflict Keep",)
            return
        after = self._after(container, name)
        if injected < after:
            self._notes += (f"the container {container.name} names more {name} than the {injected} injected",)
        if limit == after and container.requests.get(name) == after:
            return
        text = str(after)
        before = str(request) if request is not None else None
        field = self._entry.inherited.get(name)
        amounts.append(Amount(container=container.name, resource=name, before=before, after=text, field=field))
        for path in (container.requests_path, container.limits_path):
            edits.setdefault(path, {})[name] = text

    def _lift_pod_level(self, amounts: list[Amount], edits: dict[JsonPath, dict[str, str | None]]) -> None:
        """Raise the amounts of spec.resources to the least that the API server accepts with the injected amounts."""
        pod = self._context.pod
        for name in self._coefficients:
            if name not in pod.requests and name not in pod.limits:
                continue
            least = self._aggregate(name, pod.containers)
            for path, level_amounts in ((POD_REQUESTS, pod.requests), (POD_LIMITS, pod.limits)):
                before = level_amounts.get(name)
                if before is not None and before < least:
                    text = str(least)
                    level, field = ".".join(map(str, path)), self._entry.inherited.get(name)
                    amounts.append(Amount(container=level, resource=name, before=str(before), after=text, field=field))
                    edits.setdefault(path, {})[name] = text

    def _annotations(self) -> Mapping[str, str]:
        """Return the annotations to write: unless the rule overwrites, existing values stay."""
        present = self._context.pod.annotations
        if self._rule.on_conflict is OnConflict.OVERWRITE:
            return {key: value for key, value in self._entry.annotations.items() if present.get(key) != value}
        kept = [key for key, value in self._entry.annotations.items() if present.get(key, value) != value]
        self._notes += tuple(f"the annotation {key} stays: onConflict {self._rule.on_conflict.value}" for key in kept)
        return {key: value for key, value in self._entry.annotations.items() if key not in present}
