"""PodNodeSelector: the node selector of a namespace, by its annotation.

Source: kubernetes/plugin/pkg/admission/podnodeselector/admission.go (Admit). The plugin is optional: where a namespace
has its annotation, it counts as on. The selectors in the plugin's own file are not in the input.
"""

from rules_engine.cluster.creation.pod_creation import PodCreation, RefusedError
from rules_engine.model.json.lenient import as_mapping, text_member

_ANNOTATION = "scheduler.alpha.kubernetes.io/node-selector"


def mutate(creation: PodCreation) -> None:
    """Add the namespace's node selector to the pod's."""
    namespace = creation.objects.find("Namespace", creation.namespace)
    text = text_member(as_mapping(namespace.metadata.get("annotations")), _ANNOTATION) if namespace else ""
    selector = {
        key.strip(): value.strip() for key, equal, value in (part.partition("=") for part in text.split(",")) if equal
    }
    own = as_mapping(creation.spec.get("nodeSelector"))
    if any(own.get(key, value) != value for key, value in selector.items()):
        raise RefusedError("pod node label selector conflicts with its namespace node label selector")
    if selector:
        creation.add_to_spec(nodeSelector={**selector, **own})
