"""An admission request: the fields that decisions read."""

from enum import Enum

from msgspec import Struct, field

from rules_engine.model.json import lenient
from rules_engine.model.json.patch import Json
from rules_engine.model.json.strict import read_boolean, read_mapping, read_string
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
    def values_key(self) -> str:
        """The webhook's key below `webhook` in the chart's values."""
        return self.value.lower()


class AdmissionRequest(Struct, frozen=True, kw_only=True):
    """The request of an AdmissionReview v1 (k8s.io/api/admission/v1, AdmissionRequest).

    `raw` is the unchanged request, for CEL's `request`; `object` and `old_object` are None if they are absent or
    null. `namespace` is the request's: a pod that a controller creates has no namespace of its own yet.
    """

    uid: str
    operation: str = "CREATE"
    namespace: str = ""
    name: str = ""
    group: str = ""
    version: str = "v1"
    kind: str = "Pod"
    sub_resource: str = ""
    dry_run: bool = False
    object: Json = None
    old_object: Json = None
    raw: dict[str, Json] = field(default_factory=dict)

    @classmethod
    def parse(cls, raw: dict[str, Json]) -> "AdmissionRequest":
        """Read the request of an AdmissionReview; null counts as absent. Raises PodError.

        Members that only expressions read are checked for their type; the members inside these objects are not checked.
        """
        for member in _OBJECTS:
            read_mapping(raw.get(member), (member,))
        read_string(raw.get("requestSubResource"), ("requestSubResource",))
        kind = read_mapping(raw.get("kind"), ("kind",))
        return cls(
            uid=read_string(raw.get("uid"), ("uid",)),
            operation=read_string(raw.get("operation"), ("operation",)),
            namespace=read_string(raw.get("namespace"), ("namespace",)),
            name=read_string(raw.get("name"), ("name",)),
            group=read_string(kind.get("group"), ("kind", "group")),
            version=read_string(kind.get("version"), ("kind", "version")),
            kind=read_string(kind.get("kind"), ("kind", "kind")),
            sub_resource=read_string(raw.get("subResource"), ("subResource",)),
            dry_run=read_boolean(raw.get("dryRun"), ("dryRun",)),
            object=raw.get("object"),
            old_object=raw.get("oldObject"),
            raw=raw,
        )

    @property
    def is_pod(self) -> bool:
        """True if the request is for a pod itself, not for one of its sub-resources."""
        return self.kind == "Pod" and not self.group and not self.sub_resource

    @property
    def is_resize(self) -> bool:
        """True if the request changes cpu and memory of a running pod: `object` is then the whole pod (KEP-1287)."""
        return self.kind == "Pod" and not self.group and self.sub_resource == "resize" and self.operation == "UPDATE"

    @property
    def is_being_deleted(self) -> bool:
        """True if the request updates a pod that waits for its finalizers or the end of its grace period."""
        metadata = lenient.as_mapping(lenient.as_mapping(self.object).get("metadata"))
        return self.operation == "UPDATE" and metadata.get("deletionTimestamp") is not None


_OBJECTS = ("resource", "requestKind", "requestResource", "userInfo", "options")
"""Objects in a request that only expressions of rules read."""


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
