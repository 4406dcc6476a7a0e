"""The claims that pods name."""

from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.pod_claims import PodClaim, read_pod_claims


def test_claims_of_a_pod_are_read() -> None:
    pod: dict[str, Json] = {
        "spec": {
            "resourceClaims": [
                {"name": "one", "resourceClaimName": "shared"},
                {"name": "two", "resourceClaimTemplateName": "card"},
                {"name": "three", "resourceClaimTemplateName": "card"},
                {"name": "four", "resourceClaimTemplateName": "none"},
            ]
        },
        "status": {
            "resourceClaimStatuses": [{"name": "two", "resourceClaimName": "pod-two-x2b4k"}, {"name": "four"}],
        },
    }
    assert [*read_pod_claims(pod)] == [
        PodClaim(name="one", claim="shared"),
        PodClaim(name="two", claim="pod-two-x2b4k", template="card"),
        PodClaim(name="three", template="card"),
    ]


def test_malformed_claims_are_left_out() -> None:
    assert [*read_pod_claims({"spec": {"resourceClaims": "all"}, "status": []})] == []
