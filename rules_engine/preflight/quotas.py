"""Refusals of the API server before a pod exists: by a ResourceQuota, or for an unknown PriorityClass.

Sources: apiserver, pkg/admission/plugin/resourcequota (controller.go); pkg/quota/v1/evaluator/core (pods.go);
plugin/pkg/admission/priority. Only quotas without scopes, and of them pods, cpu, memory and extended resources.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rules_engine.model.json.lenient import Object, as_mapping
from rules_engine.model.kubernetes.cluster_objects import ApiObject, PodObject
from rules_engine.model.kubernetes.pod import Pod, is_finished
from rules_engine.model.kubernetes.quantity import Format, Quantity, QuantityError

_COMPUTE = ("cpu", "memory")

Usage = Mapping[str, Quantity]
"""Amounts by the name of a quota's resource, such as `requests.nvidia.com/gpu`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """The hard limits of a ResourceQuota, and the usage that its controller recorded."""

    name: str
    hard: Usage
    used: Usage

    def refusal(self, pod: Pod, requested: Usage, earlier: Usage) -> str:
        """Return why the quota refuses a pod, in the words of the API server; "" if it admits the pod.

        `earlier`: the usage of pods that were admitted since `used` was recorded.
        """
        missing = {resource: names for resource in sorted(self.hard) if (names := _containers_without(pod, resource))}
        if missing:
            required = "; ".join(f"{resource} for: {','.join(names)}" for resource, names in missing.items())
            return f"failed quota: {self.name}: must specify {required}"
        used = {name: self.used.get(name, Quantity(0)) + earlier.get(name, Quantity(0)) for name in self.hard}
        exceeded = [
            name
            for name in sorted(self.hard)
            if (amount := requested.get(name)) and used[name] + amount > self.hard[name]
        ]
        if not exceeded:
            return ""
        amounts = (("requested", requested), ("used", used), ("limited", self.hard))
        parts = [f"{word}: {','.join(f'{name}={usage[name]}' for name in exceeded)}" for word, usage in amounts]
        return f"exceeded quota: {self.name}, {', '.join(parts)}"


def read_quotas(
    items: Sequence[ApiObject], pods: Iterable[PodObject]
) -> tuple[Mapping[str, Sequence[Quota]], Mapping[str, Sequence[str]]]:
    """Return the quotas by namespace, and by namespace the names of ResourceQuotas with scopes, which are not checked.

    Of a hand-written quota, without a status, the usage is computed from `pods`.
    """
    quotas: dict[str, list[Quota]] = {}
    scoped: dict[str, list[str]] = {}
    for item in sorted(items, key=lambda item: item.name):
        if item.spec.get("scopes") or item.spec.get("scopeSelector"):
            scoped.setdefault(item.namespace, []).append(item.name)
            continue
        hard = _read_amounts(as_mapping(item.status.get("hard")) or as_mapping(item.spec.get("hard")))
        recorded = as_mapping(item.status.get("used"))
        used = _read_amounts(recorded) if recorded else _total_usage(pods, item.namespace)
        quotas.setdefault(item.namespace, []).append(Quota(name=item.name, hard=hard, used=used))
    return quotas, scoped


def _read_amounts(raw: Object) -> Usage:
    amounts = {}
    for name, amount in raw.items():
        try:
            amounts[name] = Quantity.parse(str(amount))
        except QuantityError:  # which the API server writes none of
            continue
    return amounts


def _total_usage(pods: Iterable[PodObject], namespace: str) -> Usage:
    total: dict[str, Quantity] = {}
    for pod in pods:
        if pod.namespace == namespace and not is_finished(pod):
            for name, amount in usage_of(Pod.parse(dict(pod))).items():
                total[name] = total.get(name, Quantity(0)) + amount
    return total


def usage_of(pod: Pod) -> Usage:
    """Return what a pod adds to the usage of quotas."""
    usage = {"pods": Quantity.of(1), "count/pods": Quantity.of(1)}
    for resource, nanos in pod.effective_requests().items():
        amount = Quantity(nanos, Format.BINARY_SI if resource == "memory" else Format.DECIMAL_SI)
        usage[f"requests.{resource}"] = amount
        if resource in _COMPUTE:
            usage[resource] = amount
    for resource in _COMPUTE:
        limits = [container.limits.get(resource, Quantity(0)) for container in pod.containers]
        nanos = pod.effective(resource, [limit.nanos for limit in limits])
        usage[f"limits.{resource}"] = Quantity(nanos, max(limits, default=Quantity(0)).format)
    return usage


def _containers_without(pod: Pod, name: str) -> Sequence[str]:
    """Return the containers without an amount that a quota of cpu or memory requires, unless the pod level has one."""
    resource = name.removeprefix("limits.").removeprefix("requests.")
    if resource not in _COMPUTE or pod.requests or pod.limits:
        return ()
    is_limit = name.startswith("limits.")
    return [
        container.name
        for container in pod.all_containers
        if (container.limits.get(resource) if is_limit else container.requested(resource)) is None
    ]
