"""ServiceAccount: the account of a pod, its token and its pull secrets.

Source: kubernetes/plugin/pkg/admission/serviceaccount/admission.go (Admit, mountServiceAccountToken).
"""

from rules_engine.cluster.creation.pod_creation import PodCreation, RefusedError
from rules_engine.model.json.lenient import Object, as_list, as_mapping, object_items, text_member
from rules_engine.model.json.patch import Json

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
        account = _find_account(creation, name)
    creation.add_to_spec(serviceAccountName=name, serviceAccount=name)
    secrets = as_list(account.get("imagePullSecrets"))
    if secrets and not creation.spec.get("imagePullSecrets"):
        creation.add_to_spec(imagePullSecrets=secrets)
    automount = creation.spec.get("automountServiceAccountToken", account.get("automountServiceAccountToken"))
    if automount is not False:
        _mount_token(creation)


def _find_account(creation: PodCreation, name: str) -> Object:
    try:
        return creation.find_named("ServiceAccount", name, namespaced=True) or {}
    except RefusedError:
        place = f"{creation.namespace}/{name}"
        message = f'error looking up service account {place}: serviceaccount "{name}" not found'
        raise RefusedError(message) from None


def _mount_token(creation: PodCreation) -> None:
    volumes = object_items(creation.spec.get("volumes"))
    existing = [name for volume in volumes if (name := text_member(volume, "name")).startswith(_VOLUME_PREFIX)]
    name = existing[0] if existing else f"{_VOLUME_PREFIX}xxxxx"
    mount: Json = {"name": name, "readOnly": True, "mountPath": _MOUNT_PATH}
    needed = False
    for member in ("initContainers", "containers"):
        containers: list[Json] = []
        for container in object_items(creation.spec.get(member)):
            mounts = as_list(container.get("volumeMounts"))
            if any(as_mapping(each).get("mountPath") == _MOUNT_PATH for each in mounts):
                containers.append({**container})
            else:
                needed = True
                containers.append({**container, "volumeMounts": [*mounts, mount]})
        if containers:
            creation.add_to_spec(**{member: containers})
    if needed and not existing:
        volume: Json = {"name": name, "projected": {"defaultMode": 420, "sources": _TOKEN_SOURCES}}
        creation.add_to_spec(volumes=[*as_list(creation.spec.get("volumes")), volume])
