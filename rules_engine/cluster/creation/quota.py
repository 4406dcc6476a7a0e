"""ResourceQuotas: the refusal of pods by the API server.

Sources: apiserver, pkg/admission/plugin/resourcequota (controller.go); pkg/quota/v1/evaluator/core (pods.go).
Only what a pod uses: not the amounts of other objects that its workload needs, such as claims of volumes.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from rules_engine.cluster.creation.pod_creation import aggregate, read_amounts
from rules_engine.cluster.scheduling.requirements import REQUIRED, read_selector
from rules_engine.model.json.lenient import Object, as_list, as_mapping, integer_member, object_items, text_member
from rules_engine.model.kubernetes.cluster_objects import ApiObject, PodObject
from rules_engine.model.kubernetes.pod import Pod, is_finished
from rules_engine.model.kubernetes.quantity import Quantity

_REQUIRED = ("cpu", "memory")
"""Resources of which each container has to have an amount if a quota limits them."""

_COMPUTE = (*_REQUIRED, "ephemeral-storage")
_HUGE_PAGES = "hugepages-"
_COUNT = "count/pods"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_ZERO = Quantity(0)

QuotaUsage = Mapping[str, Quantity]
"""Amounts by the name of a quota's resource, such as `requests.nvidia.com/gpu`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """The hard limits of a ResourceQuota, and the usage: what its controller recorded, and pods created since.

    `scopes`: the pods that it applies to, as ScopedResourceSelectorRequirements. `unchecked`: other limits.
    """

    name: str
    scopes: Sequence[Object]
    hard: QuotaUsage
    used: QuotaUsage
    unchecked: Sequence[str]

    @classmethod
    def read(cls, item: ApiObject, pods: Iterable[PodObject]) -> "Quota":
        """Read a quota. A hand-written one has no status: its usage is computed from the pods of the cluster."""
        hard = read_amounts(item.status.get("hard") or item.spec.get("hard"))
        recorded = read_amounts(item.status.get("used"))
        named = [{"scopeName": name, "operator": "Exists"} for name in as_list(item.spec.get("scopes"))]
        selected = object_items(as_mapping(item.spec.get("scopeSelector")).get("matchExpressions"))
        checked = {name: amount for name, amount in hard.items() if _is_checked(name)}
        quota = cls(
            name=item.name,
            scopes=(*named, *selected),
            hard=checked,
            used=recorded,
            unchecked=sorted(hard.keys() - checked.keys()),
        )
        if not recorded:
            for pod in pods:
                if pod.namespace == item.namespace and quota.applies(parsed := Pod.parse(dict(pod))):
                    quota = quota.with_usage({_COUNT: Quantity.of(1)} if is_finished(pod) else usage_of(parsed))
        return quota

    def applies(self, pod: Pod) -> bool:
        """Return True if the quota counts a pod."""
        return all(_is_in_scope(scope, pod) for scope in self.scopes)

    def with_usage(self, more: QuotaUsage) -> "Quota":
        added = {name: self.used.get(name, _ZERO) + amount for name, amount in more.items()}
        return replace(self, used={**self.used, **added})


def refusal(quotas: Sequence[Quota], pod: Pod) -> str:
    """Return why the quotas of a namespace refuse a pod, in the words of the API server; "" if they admit it."""
    quotas = [quota for quota in quotas if quota.applies(pod)]
    for quota in quotas:
        missing = {name: names for name in sorted(quota.hard) if (names := _containers_without(pod, name))}
        if missing:
            required = "; ".join(f"{name} for: {','.join(sorted(names))}" for name, names in missing.items())
            return f"failed quota: {quota.name}: must specify {required}"
    requested = usage_of(pod)
    for quota in quotas:
        used = {name: quota.used.get(name, _ZERO) for name in quota.hard}
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


def charge(quotas: Sequence[Quota], pod: Pod) -> Sequence[Quota]:
    """Return the quotas with the usage of an admitted pod."""
    usage = usage_of(pod)
    return [quota.with_usage(usage) if quota.applies(pod) else quota for quota in quotas]


def usage_of(pod: Pod) -> QuotaUsage:
    """Return what a pod adds to the usage of quotas."""
    usage = {"pods": Quantity.of(1), _COUNT: Quantity.of(1)}
    for resource, nanos in pod.effective_requests().items():
        amounts = (pod.requests.get(resource), *(container.requested(resource) for container in pod.containers))
        requested = Quantity(nanos, next(filter(None, amounts), _ZERO).format)
        usage[f"requests.{resource}"] = requested
        if resource in _COMPUTE or resource.startswith(_HUGE_PAGES):
            usage[resource] = requested
    for resource in _COMPUTE:
        limit = pod.limits.get(resource) or aggregate(pod, [each.limits.get(resource) for each in pod.containers])
        usage[f"limits.{resource}"] = limit + pod.overhead.get(resource, _ZERO) if limit else limit
    return usage


def _is_checked(name: str) -> bool:
    """Return True if pods use a resource of quotas (MatchingResources)."""
    resource = name.removeprefix("requests.")
    extended = name != resource and "/" in resource
    compute = resource in _COMPUTE or name.removeprefix("limits.") in _COMPUTE
    return name in ("pods", _COUNT) or extended or compute or resource.startswith(_HUGE_PAGES)


def _is_in_scope(scope: Object, pod: Pod) -> bool:
    """Return True if a pod has a scope (podMatchesScopeFunc)."""
    spec, name = as_mapping(pod.original.get("spec")), text_member(scope, "scopeName")
    match name.removeprefix("Not"):
        case "Terminating":
            found = integer_member(spec, "activeDeadlineSeconds", -1) >= 0
        case "BestEffort":
            levels = pod.containers if spec.get("resources") is None else (pod,)
            found = not any(
                amounts.get(key) for each in levels for amounts in (each.requests, each.limits) for key in _REQUIRED
            )
        case "PriorityClass":
            priority = text_member(spec, "priorityClassName")
            selector = read_selector({"matchExpressions": [{**scope, "key": name}]})
            found = selector is not None and selector.matches({name: priority} if priority else {})
        case "CrossNamespacePodAffinity":
            affinity = as_mapping(spec.get("affinity"))
            kinds = [as_mapping(affinity.get(kind)) for kind in ("podAffinity", "podAntiAffinity")]
            preferred = (item.get("podAffinityTerm") for each in kinds for item in object_items(each.get(_PREFERRED)))
            terms = [
                *(term for each in kinds for term in object_items(each.get(REQUIRED))),
                *map(as_mapping, preferred),
            ]
            found = any(each.get("namespaces") or each.get("namespaceSelector") is not None for each in terms)
        case _:
            return False
    return found is not name.startswith("Not")


def _containers_without(pod: Pod, name: str) -> Sequence[str]:
    """Return the containers without an amount that a quota of cpu or memory requires, unless the pod level has one."""
    resource = name.removeprefix("limits.").removeprefix("requests.")
    if resource not in _REQUIRED or pod.requests or pod.limits:
        return ()
    is_limit = name.startswith("limits.")
    return [
        container.name
        for container in pod.all_containers
        if (container.limits.get(resource) if is_limit else container.requested(resource)) is None
    ]
