"""DefaultTolerationSeconds and ExtendedResourceToleration: tolerations that each pod gets.

Sources: kubernetes/plugin/pkg/admission/defaulttolerationseconds/admission.go,
plugin/pkg/admission/extendedresourcetoleration/admission.go (Admit).
"""

from rules_engine.cluster.creation.pod_creation import PodCreation
from rules_engine.cluster.scheduling.requirements import NOT_READY, UNREACHABLE
from rules_engine.model.json.lenient import as_mapping, object_items, text_member
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.pod_defaults import CONTAINER_LISTS

_SECONDS = 300
_NO_EXECUTE = "NoExecute"


def add_default_tolerations(creation: PodCreation) -> None:
    """Let the pod stay on a node that is not ready or unreachable for five minutes."""
    tolerations = object_items(creation.spec.get("tolerations"))
    for key in (NOT_READY, UNREACHABLE):
        if not any(
            text_member(each, "key") in ("", key) and text_member(each, "effect") in ("", _NO_EXECUTE)
            for each in tolerations
        ):
            default: Json = {"key": key, "operator": "Exists", "effect": _NO_EXECUTE, "tolerationSeconds": _SECONDS}
            creation.add_tolerations([default])


def add_resource_tolerations(creation: PodCreation) -> None:
    """Let the pod tolerate taints that have the name of an extended resource that it requests."""
    resources = {
        name
        for member in CONTAINER_LISTS
        for container in object_items(creation.spec.get(member))
        for name in as_mapping(as_mapping(container.get("resources")).get("requests"))
        if is_extended(name)
    }
    creation.add_tolerations([resource_toleration(name) for name in sorted(resources)])


def resource_toleration(resource: str) -> dict[str, Json]:
    return {"key": resource, "operator": "Exists", "effect": "NoSchedule"}


def is_extended(resource: str) -> bool:
    """Return True for an extended resource (pkg/apis/core/helper, IsExtendedResourceName)."""
    return "/" in resource and "kubernetes.io/" not in resource and not resource.startswith("requests.")
