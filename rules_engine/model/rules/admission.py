"""An admission request: the fields that decisions read."""

from collections.abc import Mapping
from enum import Enum
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, convert
from msgspec.structs import replace

from rules_engine.model.json import lenient
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.removed_values import without_mark


class Endpoint(Enum):
    """The endpoints of the server, each with its own webhook configuration, whose kind begins with the value."""

    MUTATE = "Mutating"
    VALIDATE = "Validating"

    @property
    def kind(self) -> str:
        return f"{self.value}WebhookConfiguration"

    @property
    def path(self) -> str:
        return f"/{self.name.lower()}"

    @property
    def native_path(self) -> str:
        """The path for pods that policies of the API server have decided: only the other rules are evaluated."""
        return f"{self.path}/native"

    @property
    def webhook(self) -> str:
        """The webhook's name; Kubernetes requires at least three labels."""
        return f"{self.name.lower()}.gpurules.io"

    @property
    def other_pods_webhook(self) -> str:
        """The name of the webhook for pods of rules without resources that request no GPUs."""
        return f"other-pods.{self.webhook}"

    @property
    def values_key(self) -> str:
        """The webhook's key below `webhook` in the chart's values."""
        return self.value.lower()


NonEmpty = Annotated[str, Meta(min_length=1)]

MAX_UID = 128
"""Characters of a request's uid, which the response repeats; an API server sends 36."""

Members = dict[str, Any] | None


class GroupVersionKind(Struct, frozen=True):
    """The type of an object (apimachinery, meta/v1, GroupVersionKind)."""

    version: NonEmpty
    kind: NonEmpty
    group: str | None = ""


class AdmissionRequest(Struct, frozen=True, kw_only=True, rename="camel"):
    """The request of an AdmissionReview v1 (k8s.io/api/admission/v1, AdmissionRequest).

    `raw` is the unchanged request, for CEL's `request`; `object` and `old_object` are JSON, None if they are absent or
    null. `namespace` is the request's: a pod that a controller creates has no namespace of its own yet. Members that
    only expressions read are checked for their type, but not what is in them.
    """

    uid: Annotated[str, Meta(min_length=1, max_length=MAX_UID)]
    operation: Literal["CONNECT", "CREATE", "DELETE", "UPDATE"]
    kind: GroupVersionKind
    namespace: str = ""
    name: str = ""
    sub_resource: str = ""
    dry_run: bool = False
    object: Any = None
    old_object: Any = None
    resource: Members = None
    request_kind: Members = None
    request_resource: Members = None
    request_sub_resource: str = ""
    user_info: Members = None
    options: Members = None
    raw: Any = None

    @classmethod
    def parse(cls, raw: Mapping[str, Json]) -> "AdmissionRequest":
        """Read the request of an AdmissionReview; null counts as absent. Raises msgspec.ValidationError."""
        return convert({**{name: value for name, value in raw.items() if value is not None}, "raw": raw}, cls)

    def with_object(self, pod: Json) -> "AdmissionRequest":
        """Return the request with another pod."""
        return replace(self, object=pod, raw={**(self.raw or {}), "object": pod})

    @property
    def _is_of_pod(self) -> bool:
        return self.kind.kind == "Pod" and not self.kind.group

    @property
    def is_pod(self) -> bool:
        """True if the request is for a pod itself, not for one of its sub-resources."""
        return self._is_of_pod and not self.sub_resource

    @property
    def is_resize(self) -> bool:
        """True if the request changes cpu and memory of a running pod: `object` is then the whole pod (KEP-1287)."""
        return self._is_of_pod and self.sub_resource == "resize" and self.operation == "UPDATE"

    @property
    def is_being_deleted(self) -> bool:
        """True if the request updates a pod that waits for its finalizers or the end of its grace period."""
        metadata = lenient.as_mapping(lenient.as_mapping(self.object).get("metadata"))
        return self.operation == "UPDATE" and metadata.get("deletionTimestamp") is not None


OFFLINE_UID = "00000000-0000-0000-0000-000000000000"
"""The uid of a request that no API server sent, recognizable as such."""

OFFLINE_USER = "gpu-rules:offline"


def pod_request(
    pod: Json,
    *,
    namespace: str,
    uid: str = OFFLINE_UID,
    user: str = OFFLINE_USER,
    operation: str = "CREATE",
    sub_resource: str = "",
    dry_run: bool = False,
    old_pod: Json = None,
) -> AdmissionRequest:
    """Return the request that the API server would make for a pod, without its mark; `raw` is its JSON."""
    kind: Json = {"group": "", "version": "v1", "kind": "Pod"}
    resource: Json = {"group": "", "version": "v1", "resource": "pods"}
    return AdmissionRequest.parse(
        {
            "uid": uid,
            "kind": kind,
            "resource": resource,
            "requestKind": kind,
            "requestResource": resource,
            **({"subResource": sub_resource, "requestSubResource": sub_resource} if sub_resource else {}),
            "name": lenient.text_member(lenient.as_mapping(lenient.as_mapping(pod).get("metadata")), "name"),
            "namespace": namespace,
            "operation": operation,
            "userInfo": {"username": user, "groups": ["system:authenticated"]},
            "object": without_mark(pod) if isinstance(pod, dict) else pod,
            "oldObject": old_pod,
            "dryRun": dry_run,
        }
    )
