"""An admission request: the fields that decisions read."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType

from rules_engine.model.json.patch import Json


class Endpoint(Enum):
    """The endpoints of the server, each with a webhook configuration of its own, whose kind begins with the value."""

    MUTATE = "Mutating"
    VALIDATE = "Validating"

    @property
    def kind(self) -> str:
        return f"{self.value}WebhookConfiguration"

    @property
    def path(self) -> str:
        return f"/{self.name.lower()}"

    @property
    def webhook(self) -> str:
        """The webhook's name; Kubernetes wants three labels at least."""
        return f"{self.name.lower()}.gpurules.io"

    @property
    def values_key(self) -> str:
        """Below `webhook` in the chart's values."""
        return self.value.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionRequest:
    """The request of an AdmissionReview v1 (k8s.io/api/admission/v1, AdmissionRequest).

    `raw` is the unchanged request, for CEL's `request`; `object` and `old_object` are None if they are absent or
    null. `namespace` is the request's: a pod made by a controller has none of its own yet.
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
    raw: Mapping[str, Json] = field(default_factory=lambda: MappingProxyType({}))

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
        metadata = self.object.get("metadata") if isinstance(self.object, dict) else None
        deletion = metadata.get("deletionTimestamp") if isinstance(metadata, dict) else None
        return self.operation == "UPDATE" and deletion is not None
