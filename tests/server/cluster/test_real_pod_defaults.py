"""Pods that a real API server stores with PodDefaults are the pods that `explain` shows.

    KUBECONFIG=… WEBHOOK_CLIENT_CA=… pytest -m cluster tests/server/cluster/test_real_pod_defaults.py

Priority, RuntimeClass, ServiceAccount and LimitRanger are on by default; start it with ExtendedResourceToleration.
"""

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from click.testing import CliRunner

from rules_engine import load_cluster, load_rules
from rules_engine.cluster.creation.node_constraints import EXTENDED_RESOURCE_TOLERATION
from rules_engine.cluster.creation.plugins import ApiServer
from rules_engine.cluster.devices.offers import cluster_view
from rules_engine.model.json.lenient import Object, as_mapping
from rules_engine.model.kubernetes.api_defaults import with_default_members
from rules_engine.model.rules.admission import pod_request
from rules_engine.server.commands import main
from tests.support.real import GPU, REAL, Kube, admitting, eventually, kubernetes, together

pytestmark = REAL

PODS = 60
GPU_CONTAINER = {"name": "main", "image": "app:1", "resources": {"limits": {GPU: "1"}}}
TOLERATION = {"key": "pool", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"}
SHARED_MEMORY = {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}
MOUNT = {"name": "shm", "mountPath": "/dev/shm"}


def rules(prefix: str) -> str:
    """Return PodDefaults that name the classes of a test run, and an injection after them."""
    gpus = {
        "match": {"resources": ["nvidia.com/*"]},
        "pod": {
            "metadata": {
                "labels": {"team-gpu": "true"},
                "annotationsExpression": {"gpus": f"string(requested('{GPU}'))"},
            },
            "spec": {
                "tolerations": [TOLERATION, {"key": GPU, "operator": "Exists", "effect": "NoSchedule"}],
                "nodeSelector": {"node-pool": "gpu"},
                "runtimeClassName": f"{prefix}nvidia",
                "priorityClassName": f"{prefix}gpu",
                "schedulerName": "volcano",
                "imagePullSecrets": [{"name": "registry"}],
                "volumes": [
                    {
                        "name": "shm",
                        "emptyDir": {
                            "medium": "Memory",
                            "sizeLimitExpression": f"string(requested('{GPU}') * 1024) + 'Mi'",
                        },
                    }
                ],
            },
        },
        "containers": [
            {
                "which": "Requesting",
                "env": [{"name": "NCCL_SOCKET_IFNAME", "value": "eth0"}],
                "volumeMounts": [MOUNT],
            },
            {"which": "NotRequesting", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]},
        ],
    }
    late = {
        "priority": -1,
        "onConflict": "Overwrite",
        "match": {"resources": ["nvidia.com/*"]},
        "pod": {
            "metadata": {"labels": {"app": "late", "team-gpu": "late"}},
            "spec": {"priorityClassName": f"{prefix}low"},
        },
        "containers": [{"which": "All", "env": [{"name": "NCCL_DEBUG", "value": "INFO"}]}],
    }
    injection = {"onConflict": "Keep", "coefficients": {"cpu": 32, "memory": "64Gi"}}
    documents = (("PodDefaults", "gpus", gpus), ("PodDefaults", "late", late), ("ResourceInjection", "cpu", injection))
    return yaml.safe_dump_all(
        [
            {"apiVersion": "gpurules.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}
            for kind, name, spec in documents
        ]
    )


def classes(prefix: str) -> Iterator[dict[str, Any]]:
    values: Mapping[str, dict[str, Any]] = {
        "base": {"value": 5, "globalDefault": True},
        "gpu": {"value": 1000, "preemptionPolicy": "Never"},
        "low": {"value": -7},
    }
    for name, members in values.items():
        yield {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": prefix + name},
            **members,
        }
    scheduling = {"nodeSelector": {"runtime": "nvidia"}, "tolerations": [{"key": "runtime", "operator": "Exists"}]}
    overhead = {"podFixed": {"cpu": "250m", "memory": "64Mi"}}
    for name, given in (("nvidia", {"scheduling": scheduling, "overhead": overhead}), ("other", {})):
        yield {
            "apiVersion": "node.k8s.io/v1",
            "kind": "RuntimeClass",
            "metadata": {"name": prefix + name},
            "handler": "runc",
            **given,
        }


@contextmanager
def set_up(kube: Kube) -> Iterator[None]:
    """Create the classes, a LimitRange, and the secret of the service account; delete the classes afterwards."""
    from kubernetes import client

    scheduling: Any = client.SchedulingV1Api()
    node: Any = client.NodeV1Api()
    made = [*classes(f"{kube.name}-")]
    kube.core.patch_namespaced_service_account("default", kube.name, {"imagePullSecrets": [{"name": "own"}]})
    limits = {"type": "Container", "default": {"cpu": "1"}, "defaultRequest": {"cpu": "500m"}}
    kube.core.create_namespaced_limit_range(kube.name, {"metadata": {"name": "all"}, "spec": {"limits": [limits]}})
    try:
        for each in made:
            if each["kind"] == "PriorityClass":
                scheduling.create_priority_class(each)
            else:
                node.create_runtime_class(each)
        yield
    finally:
        for each in made:
            name = each["metadata"]["name"]
            if each["kind"] == "PriorityClass":
                scheduling.delete_priority_class(name)
            else:
                node.delete_runtime_class(name)


def random_pod(draw: random.Random, name: str, prefix: str) -> dict[str, Any]:
    """Return a pod that has some of the members itself, equal or others."""

    def maybe(**members: Any) -> dict[str, Any]:
        return {name: draw.choice(values) for name, values in members.items() if draw.random() < 0.4}

    def one_container(name: str) -> dict[str, Any]:
        amounts = {} if draw.random() < 0.4 else {GPU: str(draw.randint(1, 4))}
        limits = {**amounts, **maybe(cpu=["1", "8"], memory=["1Gi", "4Gi"])}
        env = maybe(
            NCCL_SOCKET_IFNAME=[
                {"value": "eth0"},
                {"value": "ib0"},
                {"valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            ],
            NVIDIA_VISIBLE_DEVICES=[{"value": "all"}, {"value": "void"}],
            NCCL_DEBUG=[{"value": "WARN"}],
        )
        mounts = draw.choice([[], [], [MOUNT], [{"name": "own", "mountPath": "/dev/shm/"}]]) if volumes else []
        return {
            "name": name,
            "image": "app:1",
            **({"resources": {"limits": limits}} if limits else {}),
            **({"env": [{"name": key, **value} for key, value in env.items()]} if env else {}),
            **({"volumeMounts": mounts} if mounts else {}),
        }

    volumes = draw.choice([[], [], [SHARED_MEMORY, {"name": "own", "emptyDir": {}}]])
    init = [one_container("init")] if draw.random() < 0.3 else []
    if init and draw.random() < 0.5:
        init[0]["restartPolicy"] = "Always"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **maybe(labels=[{"app": "x"}, {"team-gpu": "no"}], annotations=[{"gpus": "0"}])},
        "spec": {
            "containers": [one_container(each) for each in ("main", "side")[: draw.randint(1, 2)]],
            **({"initContainers": init} if init else {}),
            **({"volumes": volumes} if volumes else {}),
            **maybe(
                tolerations=[[TOLERATION], [{**TOLERATION, "value": "x"}], [{"key": GPU, "operator": "Exists"}]],
                nodeSelector=[{"node-pool": "other"}, {"zone": "a"}],
                runtimeClassName=[f"{prefix}other", f"{prefix}nvidia"],
                priorityClassName=[f"{prefix}base", f"{prefix}low", f"{prefix}gpu"],
                schedulerName=["default-scheduler", "mine"],
                imagePullSecrets=[[{"name": "registry"}], [{"name": "mine"}]],
            ),
        },
    }


def comparable(pod: Any) -> Any:
    """Return a pod with the API server's defaults, without what is empty or random: the volume of its token."""
    pod = with_default_members({name: pod[name] for name in ("metadata", "spec")})
    spec = pod["spec"]
    token = [each for each in spec.get("volumes", []) if each["name"].startswith("kube-api-access")]
    spec["volumes"] = [each for each in spec.get("volumes", []) if each not in token]
    for each in (*spec["containers"], *spec.get("initContainers", [])):
        mounts = each.get("volumeMounts", [])
        each["volumeMounts"] = [mount for mount in mounts if not mount["name"].startswith("kube-api-access")]
    metadata = {name: pod["metadata"].get(name, {}) for name in ("labels", "annotations")}
    return pruned([metadata, spec])


def pruned(value: Any) -> Any:
    if isinstance(value, list):
        return [pruned(item) for item in value]
    if isinstance(value, dict):
        return {name: kept for name, item in value.items() if (kept := pruned(item)) not in ({}, [], "", None)}
    return value


def plugins_of(kube: Kube) -> frozenset[str]:
    """Return the optional plugins that are on: one adds a third toleration to a pod with GPUs."""
    body = {"metadata": {"name": "bare"}, "spec": {"containers": [GPU_CONTAINER]}}
    stored = kube.create(body, dry_run="All")
    return frozenset([EXTENDED_RESOURCE_TOLERATION] if len(stored.spec.tolerations) > 2 else [])


def test_pods_are_stored_as_explain_says(tmp_path: Path) -> None:
    seed = random.randrange(10**6)
    print("seed", seed)
    draw = random.Random(seed)
    with kubernetes(alone=True) as kube:
        prefix = f"{kube.name}-"
        with set_up(kube):
            plugins = plugins_of(kube)
            with admitting(kube, tmp_path, rules(prefix), "--cluster", "kubeconfig"):

                def admitted() -> bool:
                    body = {"metadata": {"name": "probe"}, "spec": {"containers": [GPU_CONTAINER]}}
                    stored = kube.create(body, dry_run="All")
                    secrets = [each.name for each in stored.spec.image_pull_secrets]
                    return bool(stored.spec.priority_class_name == f"{prefix}gpu" and secrets == ["own", "registry"])

                eventually(admitted)
                pods = [random_pod(draw, f"pod-{number}", prefix) for number in range(PODS)]
                check_pods(kube, pods, tmp_path, plugins, seed)


def check_pods(kube: Kube, pods: Sequence[Any], folder: Path, plugins: frozenset[str], seed: int) -> None:
    seen = CliRunner().invoke(main, ["capture"])
    assert seen.exit_code == 0, seen.output
    file, manifests, rule_file = folder / "cluster.json", folder / "pods.json", folder / "rules.yaml"
    file.write_text(seen.stdout)
    manifests.write_text(json.dumps(together(pods)))
    objects = load_cluster(file).with_objects({}, plugins=plugins)
    server, rule_set, view = ApiServer(objects), load_rules([rule_file]), cluster_view(objects)
    line = ["explain", "-f", manifests, "--rules", rule_file, "--cluster", file, "-n", kube.name]
    flags = [f"--admission={name}" for name in plugins]
    explained = CliRunner().invoke(main, [*map(str, line), *flags, "--output", "json"])
    verdicts = {each["verdict"] + each["message"] for each in json.loads(explained.stdout)["pods"]}
    assert (explained.exit_code, verdicts) == (0, {"Allowed"}), (seed, explained.stdout)
    for body in pods:
        created = server.mutate(body, kube.name)
        mutation = rule_set.mutate(pod_request({**created.pod}, namespace=kube.name), view)

        def again(pod: Object) -> Object:
            return as_mapping(rule_set.mutate(pod_request({**pod}, namespace=kube.name), view).result)

        said = server.store(created, as_mapping(mutation.result), kube.name, again)
        stored = kube.core.api_client.sanitize_for_serialization(kube.create(body))
        (stored_metadata, stored_spec), (metadata, spec) = comparable(stored), comparable(said.pod)
        assert stored_metadata == metadata, (seed, body)
        for member in {*stored_spec, *spec}:
            assert stored_spec.get(member) == spec.get(member), (seed, member, body)
