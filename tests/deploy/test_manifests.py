"""The plain manifests are the chart rendered by helm."""

import yaml

from deploy import render
from tests.support.chart import helm


def test_the_plain_manifests_are_current() -> None:
    helm("version")
    expected = render.manifests()

    assert {path: path.read_text() for path in expected if path.exists()} == expected, "run make manifests"
    assert set(render.MANIFESTS.iterdir()) == expected.keys()


def test_the_plain_manifests_begin_with_their_namespace() -> None:
    for path in render.MANIFESTS.iterdir():
        first, *rest = (item for item in yaml.safe_load_all(path.read_text()) if item)
        assert (first["kind"], first["metadata"]["name"]) == ("Namespace", "gpu-rules")
        assert first["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
        assert {item["metadata"].get("namespace", "gpu-rules") for item in rest} == {"gpu-rules"}


def test_each_plain_manifest_has_another_tls_mode() -> None:
    kinds = {}
    for path in render.MANIFESTS.iterdir():
        objects = [item for item in yaml.safe_load_all(path.read_text()) if item]
        kinds[path.name] = {item["kind"] for item in objects} & {"Certificate", "Secret"}
        for item in objects:
            assert not {"app.kubernetes.io/managed-by", "helm.sh/chart"} & item["metadata"].get("labels", {}).keys()

    assert kinds == {"gpu-rules.yaml": {"Secret"}, "gpu-rules-cert-manager.yaml": {"Certificate"}}
