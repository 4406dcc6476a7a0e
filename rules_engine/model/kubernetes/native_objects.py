"""Objects with which the API server evaluates rules itself: their names, and their link to the rules."""

from rules_engine.model.json.lenient import Object, as_mapping, text_member

GROUP = "gpurules.io"

RULES_ANNOTATION = f"{GROUP}/rules-digest"
"""Annotation of every object: the digest of the rules that it was generated from."""

OFFERS, OFFERS_RESOURCE = "GPUOffers", "gpuoffers"
"""The kind of the parameter of policies, and its resource name, as in `kubectl get`."""


def annotation_of(value: Object, name: str) -> str:
    """Return an annotation of an object; "" if it has none."""
    return text_member(as_mapping(as_mapping(value.get("metadata")).get("annotations")), name)
