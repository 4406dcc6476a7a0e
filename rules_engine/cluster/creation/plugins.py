"""The API server's own admission of pods: its plugins in their order, before and after those of others.

Source: kubernetes/pkg/kubeapiserver/options/plugins.go (AllOrderedPlugins, DefaultOffAdmissionPlugins). After a webhook
has changed the pod, the mutating halves run once more (apiserver, plugin/webhook/mutating/reinvocation.go).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from rules_engine.cluster.creation import (
    defaults,
    limit_range,
    node_constraints,
    pod_security,
    policies,
    priority,
    service_account,
)
from rules_engine.cluster.creation.pod_creation import PodCreation, RefusedError
from rules_engine.model.json.lenient import Object
from rules_engine.model.json.strict import PodError
from rules_engine.model.kubernetes.cluster_objects import API_KINDS, ClusterObjects

Plugin = Callable[[PodCreation], None]
"""Changes or refuses a pod. Raises RefusedError."""

_MUTATING: Sequence[Plugin] = (
    defaults.set_defaults,
    limit_range.mutate,
    service_account.mutate,
    node_constraints.add_namespace_selector,
    priority.mutate,
    node_constraints.add_default_tolerations,
    node_constraints.add_resource_tolerations,
    node_constraints.add_runtime_class,
)
_VALIDATING: Sequence[Plugin] = (
    defaults.check_pod_level,
    limit_range.validate,
    pod_security.validate,
    node_constraints.check_runtime_class,
    policies.validate,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedPod:
    """A pod after plugins. `refusal`: the API server's message if it refuses the pod, else "".

    `unknown`: what could change the pod or refuse it, and is not in the input or not modelled.
    """

    pod: Object
    refusal: str = ""
    unknown: tuple[str, ...] = ()


NOTHING_READ = ClusterObjects({}, absent=frozenset(API_KINDS))
"""A cluster of which nothing is known."""


class ApiServer:
    """The admission of a cluster's API server; ResourceQuota is not among its plugins, since it counts earlier pods."""

    def __init__(self, objects: ClusterObjects) -> None:
        self._objects = objects

    @property
    def reads_names(self) -> bool:
        """True if a plugin may read the name of a pod."""
        return bool(self._objects.of(policies.VALIDATING) or self._objects.of(policies.MUTATING))

    def create(self, pod: Object, namespace: str) -> CreatedPod:
        """Return a pod as webhooks get it, if the API server accepts its workload. `pod`: without defaults."""
        return self._run((defaults.check_template, *_MUTATING), pod, namespace)

    def mutate(self, pod: Object, namespace: str) -> CreatedPod:
        """Return a pod as webhooks get it; also for a pod that they have changed."""
        return self._run(_MUTATING, pod, namespace)

    def store(
        self,
        created: CreatedPod,
        mutated: Object,
        namespace: str,
        reinvoke: Callable[[Object], Object] = lambda pod: pod,
    ) -> CreatedPod:
        """Return the pod that the API server stores, if it does.

        `mutated`: the created pod after webhooks. `reinvoke`: the webhooks, called again if plugins change that.
        """
        if created.refusal:
            return replace(created, pod=mutated)
        again = created if mutated == created.pod else self._run(_MUTATING, mutated, namespace)
        pod = again.pod if again.refusal or again.pod == mutated else reinvoke(again.pod)
        last = again if again.refusal else self._run(_VALIDATING, pod, namespace)
        unknown = tuple(dict.fromkeys((*created.unknown, *again.unknown, *last.unknown)))
        return CreatedPod(pod=pod, refusal=last.refusal, unknown=unknown)

    def _run(self, plugins: Sequence[Plugin], pod: Object, namespace: str) -> CreatedPod:
        creation, refusal = PodCreation(pod=pod, namespace=namespace, objects=self._objects), ""
        try:
            for plugin in plugins:
                plugin(creation)
        except (RefusedError, PodError) as error:
            refusal = str(error)
        return CreatedPod(pod=creation.pod, refusal=refusal, unknown=tuple(creation.unknown))
