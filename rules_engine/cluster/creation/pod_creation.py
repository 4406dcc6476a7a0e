"""The creation of a pod, on which admission plugins work."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from rules_engine.model.json.lenient import Object, as_list, as_mapping, as_string_map
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.cluster_objects import ApiObject, ClusterObjects
from rules_engine.model.kubernetes.pod import Pod
from rules_engine.model.kubernetes.quantity import Format, Quantity, QuantityError


class RefusedError(Exception):
    """The API server refuses a pod, with its message."""


def read_amounts(raw: Json) -> dict[str, Quantity]:
    """Return amounts by resource, without those that the API server would not store."""
    amounts = {}
    for name, amount in as_mapping(raw).items():
        with suppress(QuantityError):
            amounts[name] = Quantity.parse(str(amount))
    return amounts


def aggregate(pod: Pod, amounts: Sequence[Quantity | None]) -> Quantity:
    """Return the aggregate of an amount of each of a pod's containers, in the format of the first."""
    nanos = pod.aggregate([amount.nanos if amount else 0 for amount in amounts])
    return Quantity(nanos, next((amount.format for amount in amounts if amount), Format.DECIMAL_SI))


@dataclass(slots=True, kw_only=True)
class PodCreation:
    """A pod that is created in a namespace of a cluster; plugins replace `pod`, and never change it in place.

    `unknown`: what could change the pod or refuse it, and is not in the input or not modelled.
    """

    pod: Object
    namespace: str
    objects: ClusterObjects
    unknown: list[str] = field(default_factory=list)

    @property
    def metadata(self) -> Object:
        return as_mapping(self.pod.get("metadata"))

    @property
    def spec(self) -> Object:
        return as_mapping(self.pod.get("spec"))

    @property
    def namespace_labels(self) -> dict[str, str]:
        found = self.objects.find("Namespace", self.namespace)
        return as_string_map(found.metadata.get("labels")) if found else {}

    def add_to_spec(self, **members: Json) -> None:
        """Set members of the pod's spec."""
        self.pod = {**self.pod, "spec": {**self.spec, **members}}

    def add_tolerations(self, tolerations: Sequence[Json]) -> None:
        """Add the tolerations that the pod lacks."""
        own = as_list(self.spec.get("tolerations"))
        lacking = [each for each in tolerations if each not in own]
        if lacking:
            self.add_to_spec(tolerations=[*own, *lacking])

    def in_namespace(self, kind: str) -> Sequence[ApiObject]:
        """Return the objects of a kind in the pod's namespace, by name."""
        found = [item for item in self.objects.of(kind) if item.namespace == self.namespace]
        return sorted(found, key=lambda item: item.name)

    def find_named(self, kind: str, name: str, refusal: str, namespace: str = "") -> Object:
        """Return an object that the pod names; nothing, noted as unknown, if it may exist and was not read.

        Raises RefusedError, with the refusal, if there is no such object.
        """
        found = self.objects.find(kind, name, namespace)
        if found is None:
            if not self.objects.unread(kind, namespace):
                raise RefusedError(refusal)
            self.unknown.append(f"{kind} {f'{namespace}/' if namespace else ''}{name}, which was not read")
        return found or {}
