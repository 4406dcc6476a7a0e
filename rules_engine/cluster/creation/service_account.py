"""ServiceAccount: the account of a pod, its token and its pull secrets.

Source: kubernetes/plugin/pkg/admission/serviceaccount/admission.go (Admit, mountServiceAccountToken).
"""

from rules_engine.cluster.creation.pod_creation import PodCreation
from rules_engine.model.json.lenient import Object, as_list, object_items, text_member
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.api_defaults import with_containers

DEFAULT = "default"
"""The account that a controller creates in each namespace."""

_VOLUME_PREFIX = "kube-api-access-"
_MOUNT_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
_NAMESPACE_FIELD: Json = {"apiVersion": "v1", "fieldPath": "metadata.namespace"}
_TOKEN_SOURCES: list[Json] = [
    {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
    {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
    {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": _NAMESPACE_FIELD}]}},
]


def mutate(creation: PodCreation) -> None:
    """Set the account, mount its token in each container, and add its pull secrets."""
    name = text_member(creation.spec, "serviceAccountName") or DEFAULT
    account: Object = {}
    # The default account may not exist yet in a namespace that is new.
    if name != DEFAULT or creation.objects.find("ServiceAccount", name, creation.namespace):
        message = f'error looking up service account {creation.namespace}/{name}: serviceaccount "{name}" not found'
        account = creation.find_named("ServiceAccount", name, message, creation.namespace)
    creation.add_to_spec(serviceAccountName=name, serviceAccount=name)
    secrets = as_list(account.get("imagePullSecrets"))
    if secrets and not creation.spec.get("imagePullSecrets"):
        creation.add_to_spec(imagePullSecrets=secrets)
    automount = creation.spec.get("automountServiceAccountToken", account.get("automountServiceAccountToken"))
    if automount is not False:
        _mount_token(creation)


def _mount_token(creation: PodCreation) -> None:
    volumes = [text_member(volume, "name") for volume in object_items(creation.spec.get("volumes"))]
    existing = next((name for name in volumes if name.startswith(_VOLUME_PREFIX)), "")
    name = existing or f"{_VOLUME_PREFIX}xxxxx"
    mount: Json = {"name": name, "readOnly": True, "mountPath": _MOUNT_PATH}

    def with_mount(_member: str, container: Object) -> Json:
        mounts = as_list(container.get("volumeMounts"))
        is_mounted = any(each.get("mountPath") == _MOUNT_PATH for each in object_items(mounts))
        return {**container} if is_mounted else {**container, "volumeMounts": [*mounts, mount]}

    spec = with_containers(creation.spec, with_mount)
    if spec != creation.spec and not existing:
        volume: Json = {"name": name, "projected": {"defaultMode": 420, "sources": _TOKEN_SOURCES}}
        spec["volumes"] = [*as_list(spec.get("volumes")), volume]
    creation.add_to_spec(**spec)
