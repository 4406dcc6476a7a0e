"""Defaults, as the API server sets them before webhooks are called."""

from typing import Any

import pytest

from rules_engine.model.kubernetes.api_defaults import with_default_members, with_default_requests


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (
            {
                "containers": [
                    {"name": "a", "resources": {"limits": {"x/y": 1, "cpu": "2"}, "requests": {"cpu": "1"}}}
                ],
                "initContainers": [{"name": "b", "resources": {"limits": {"memory": "1Gi"}}}],
                "resources": {"limits": {"cpu": "4", "memory": "2Gi"}},
            },
            {
                "containers": [
                    {"name": "a", "resources": {"limits": {"x/y": 1, "cpu": "2"}, "requests": {"x/y": 1, "cpu": "1"}}}
                ],
                "initContainers": [
                    {"name": "b", "resources": {"limits": {"memory": "1Gi"}, "requests": {"memory": "1Gi"}}}
                ],
                "resources": {"limits": {"cpu": "4", "memory": "2Gi"}, "requests": {"cpu": "1", "memory": "1Gi"}},
            },
        ),
        ({"containers": [{"name": "a"}, {"name": "b", "resources": {"limits": {}}}]}, None),
        ({"containers": [1, {"resources": 1}, {"resources": {"limits": [1]}}], "initContainers": {}}, None),
        ({"containers": [{"resources": {"limits": {"cpu": "1"}, "requests": [1]}}]}, None),
        ({"resources": {"limits": {"cpu": "1"}, "requests": [1]}}, None),
        ({"containers": 1, "resources": {"limits": {"cpu": "1"}}}, None),
        ({"resources": 1}, None),
        (1, None),
    ],
)
def test_requests_have_the_defaults_of_the_api_server(spec: Any, expected: Any) -> None:
    assert with_default_requests({"kind": "Pod", "spec": spec}) == {
        "kind": "Pod",
        "spec": spec if expected is None else expected,
    }


def test_members_have_the_defaults_of_the_api_server() -> None:
    container: Any = {
        "image": "r:5000/x",
        "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}, {"name": "B"}],
        "lifecycle": {"preStop": {"httpGet": {"port": 1}}},
        "livenessProbe": {"httpGet": {"port": 80, "path": "/live"}, "periodSeconds": 3},
        "ports": [{"containerPort": 1}],
    }
    spec: Any = {
        "containers": [container],
        "dnsPolicy": "",
        "enableServiceLinks": False,
        "volumes": [
            {"name": "v", "secret": {"secretName": "s"}},
            {"name": "w", "hostPath": {"path": "/"}},
            {"name": "e"},
            {"name": "i", "image": {"reference": "r/x:1"}},
            {"name": "c", "ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"]}}}},
        ],
    }
    assert with_default_members({"spec": spec}) == {
        "spec": {
            "containers": [
                {
                    "image": "r:5000/x",
                    "imagePullPolicy": "Always",
                    "env": [
                        {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name", "apiVersion": "v1"}}},
                        {"name": "B"},
                    ],
                    "lifecycle": {"preStop": {"httpGet": {"port": 1, "path": "/", "scheme": "HTTP"}}},
                    "livenessProbe": {
                        "httpGet": {"port": 80, "path": "/live", "scheme": "HTTP"},
                        "timeoutSeconds": 1,
                        "periodSeconds": 3,
                        "successThreshold": 1,
                        "failureThreshold": 3,
                    },
                    "ports": [{"containerPort": 1, "protocol": "TCP"}],
                    "resources": {},
                    "terminationMessagePath": "/dev/termination-log",
                    "terminationMessagePolicy": "File",
                }
            ],
            "dnsPolicy": "ClusterFirst",
            "enableServiceLinks": False,
            "restartPolicy": "Always",
            "schedulerName": "default-scheduler",
            "securityContext": {},
            "terminationGracePeriodSeconds": 30,
            "volumes": [
                {"name": "v", "secret": {"secretName": "s", "defaultMode": 420}},
                {"name": "w", "hostPath": {"path": "/", "type": ""}},
                {"name": "e", "emptyDir": {}},
                {"name": "i", "image": {"reference": "r/x:1", "pullPolicy": "IfNotPresent"}},
                {
                    "name": "c",
                    "ephemeral": {
                        "volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem"}}
                    },
                },
            ],
        },
    }
    malformed: Any = {"spec": 1, "status": {}}
    assert with_default_members(malformed) == malformed


@pytest.mark.parametrize(
    ("image", "expected"),
    [("x", "Always"), ("r:5000/x:latest@sha256:a", "Always"), ("x@sha256:a", "IfNotPresent"), ("x:1", "IfNotPresent")],
)
def test_images_of_fixed_versions_are_pulled_once(image: str, expected: str) -> None:
    found: Any = with_default_members({"spec": {"containers": [{"image": image}]}})
    assert found["spec"]["containers"][0]["imagePullPolicy"] == expected
