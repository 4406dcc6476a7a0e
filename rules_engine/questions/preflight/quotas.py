"""ResourceQuotas: the refusal of pods by the API server.

Sources: apiserver, pkg/admission/plugin/resourcequota (controller.go); pkg/quota/v1/evaluator/core (pods.go).
Only quotas without scopes, and of them pods, cpu, memory and extended resources.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rules_engine.model.json.lenient import Object, as_mapping
from rules_engine.model.kubernetes.cluster_objects import ApiObject, PodObject
from rules_engine.model.kubernetes.pod import Pod, is_finished
from rules_engine.model.kubernetes.quantity import Quantity, QuantityError

_COMPUTE = ("cpu", "memory")
_ZERO = Quantity(0)

QuotaUsage = Mapping[str, Quantity]
"""Amounts by the name of a quota's resource, such as `requests.nvidia.com/gpu`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """The hard limits of a ResourceQuota, and the usage that its controller recorded. `unchecked`: other limits."""

    name: str
    hard: QuotaUsage
    used: QuotaUsage
    unchecked: Sequence[str]

    @classmethod
    def read(cls, item: ApiObject, pods: Iterable[PodObject]) -> "Quota":
        """Read a quota. A hand-written one has no status: its usage is computed from the pods of the cluster."""
        hard = _read_amounts(as_mapping(item.status.get("hard")) or as_mapping(item.spec.get("hard")))
        recorded = as_mapping(item.status.get("used"))
        running = (pod for pod in pods if pod.namespace == item.namespace and not is_finished(pod))
        used: QuotaUsage = {}
        if recorded:
            used = _read_amounts(recorded)
        else:
            for pod in running:
                used = add_usage(used, usage_of(Pod.parse(dict(pod))))
        checked = {name: amount for name, amount in hard.items() if _is_checked(name)}
        return cls(name=item.name, hard=checked, used=used, unchecked=sorted(hard.keys() - checked.keys()))


def refusal(quotas: Sequence[Quota], pod: Pod, earlier: QuotaUsage) -> str:
    """Return why the quotas of a namespace refuse a pod, in the words of the API server; "" if they admit it.

    `earlier`: the usage of pods that were admitted since the recorded usage.
    """
    for quota in quotas:
        missing = {name: names for name in sorted(quota.hard) if (names := _containers_without(pod, name))}
        if missing:
            required = "; ".join(f"{name} for: {','.join(sorted(names))}" for name, names in missing.items())
            return f"failed quota: {quota.name}: must specify {required}"
    requested = usage_of(pod)
    for quota in quotas:
        used = add_usage({name: quota.used.get(name, _ZERO) for name in quota.hard}, earlier)
        exceeded = [
            name
            for name in sorted(quota.hard)
            if (more := requested.get(name)) and used[name] + more > quota.hard[name]
        ]
        if exceeded:
            amounts = (("requested", requested), ("used", used), ("limited", quota.hard))
            parts = [f"{word}: {','.join(f'{name}={usage[name]}' for name in exceeded)}" for word, usage in amounts]
            return f"exceeded quota: {quota.name}, {', '.join(parts)}"
    return ""


def add_usage(usage: QuotaUsage, more: QuotaUsage) -> QuotaUsage:
    return {**usage, **{name: usage.get(name, _ZERO) + amount for name, amount in more.items()}}


def usage_of(pod: Pod) -> QuotaUsage:
    """Return what a pod adds to the usage of quotas."""
    usage = {"pods": Quantity.of(1)}
    for resource, nanos in pod.effective_requests().items():
        amounts = [*filter(None, (container.requested(resource) for container in pod.containers))]
        usage[f"requests.{resource}"] = Quantity(nanos, pod.requests.get(resource, (*amounts, _ZERO)[0]).format)
    for resource in _COMPUTE:
        if (requested := usage.get(f"requests.{resource}")) is not None:
            usage[resource] = requested
        limits = [container.limits.get(resource, _ZERO) for container in pod.containers]
        level = pod.limits.get(resource)
        nanos = pod.aggregate([limit.nanos for limit in limits]) if level is None else level.nanos
        overhead = pod.overhead.get(resource, _ZERO).nanos if nanos else 0
        form = next(filter(None, (level, *limits)), _ZERO).format
        usage[f"limits.{resource}"] = Quantity(nanos + overhead, form)
    return usage


def _read_amounts(raw: Object) -> QuotaUsage:
    amounts = {}
    for name, amount in raw.items():
        try:
            amounts[name] = Quantity.parse(str(amount))
        except QuantityError:  # which the API server writes none of
            continue
    return amounts


def _is_checked(name: str) -> bool:
    resource = name.removeprefix("requests.")
    extended = name != resource and "/" in resource
    return name == "pods" or extended or resource in _COMPUTE or name.removeprefix("limits.") in _COMPUTE


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
