"""Objects with which the API server evaluates rules itself: their kinds, and their link to the rules."""

from collections.abc import Mapping, Sequence

from rules_engine.model.json.lenient import Object, as_mapping, text_member

GROUP = "gpurules.io"
ADMISSION = "admissionregistration.k8s.io"

RULES_ANNOTATION = f"{GROUP}/rules-digest"
"""Annotation of every object: the digest of the rules that it was generated from."""

STAMP_ANNOTATION = f"{GROUP}/rules"
"""Annotation of a pod: the stamp of the policies in a slot that decided it. The objects of the slot have it, too."""

STAMPED_DIGITS = 12
"""Digits of the digest of the rules with which a stamp begins, before a full stop."""

SLOT_LABEL = f"{GROUP}/slot"
"""Label of the objects of a slot, and of all that changes with it: the name of the installation and the slot."""

OFFERS = "GPUOffers"
SWITCH = "MutatingAdmissionPolicyBinding"
"""The kind whose object makes the policies of a slot active."""

NATIVE_RESOURCES: Mapping[str, str] = {
    SWITCH: "mutatingadmissionpolicybindings",
    "MutatingAdmissionPolicy": "mutatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    OFFERS: "gpuoffers",
}
"""The kinds with their resource names, as in `kubectl get`. Bindings come before policies, which they need."""


def annotation_of(value: Object, name: str) -> str:
    """Return an annotation of an object; "" if it has none."""
    return text_member(as_mapping(as_mapping(value.get("metadata")).get("annotations")), name)


def native_objects(by_kind: Mapping[str, Sequence[Object]]) -> tuple[Object, ...]:
    """Return the objects of all installations, each with its kind."""
    return tuple(
        {**each, "kind": kind}
        for kind in NATIVE_RESOURCES
        for each in by_kind.get(kind, ())
        if annotation_of(each, RULES_ANNOTATION)
    )
