"""Default requests, as the API server sets them before webhooks are called."""

from typing import Any

import pytest

from rules_engine.model.kubernetes.pod_defaults import with_default_requests


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
