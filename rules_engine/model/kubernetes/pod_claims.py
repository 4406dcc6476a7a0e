"""The claims that a pod names in spec.resourceClaims."""

from collections.abc import Iterator

from msgspec import Struct

from rules_engine.model.json.lenient import Object, as_mapping, object_items, text_member


class PodClaim(Struct, frozen=True, kw_only=True):
    """An entry of a pod's resourceClaims. `claim`: the name of its ResourceClaim; "": not yet made from `template`."""

    name: str
    claim: str = ""
    template: str = ""


def read_pod_claims(pod: Object) -> Iterator[PodClaim]:
    """Yield the claims of a pod, without those that its status says are not needed."""
    made = {
        text_member(each, "name"): text_member(each, "resourceClaimName")
        for each in object_items(as_mapping(pod.get("status")).get("resourceClaimStatuses"))
    }
    for each in object_items(as_mapping(pod.get("spec")).get("resourceClaims")):
        name, claim = text_member(each, "name"), text_member(each, "resourceClaimName")
        if claim or made.get(name) != "":
            template = text_member(each, "resourceClaimTemplateName")
            yield PodClaim(name=name, claim=claim or made.get(name, ""), template=template)
