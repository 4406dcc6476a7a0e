"""Pods that a real API server admits through the server: updates, resizes, reservations, injected amounts.

    KUBECONFIG=… WEBHOOK_CLIENT_CA=… pytest -m cluster tests/server/cluster

WEBHOOK_CLIENT_CA is the CA, PEM, of the client certificate that the API server shows to every webhook.
"""

import json
import os
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client.exceptions import ApiException

from tests.support.certificates import certified
from tests.support.evaluation import container, pod
from tests.support.real import GPU, LABEL, MIG, REAL, Kube, admitting, eventually, kubernetes

pytestmark = REAL


@pytest.fixture
def kube() -> Iterator[Kube]:
    with kubernetes() as made:
        yield made


def refusal(kube: Kube, body: Any) -> str:
    """Return the body of the denial of a pod by the API server; "" if it is admitted. Nothing is stored."""
    try:
        kube.create(body, dry_run="All")
    except ApiException as error:
        return str(error.body)
    return ""


CAPPED = """\
apiVersion: gpurules.io/v1
kind: Validation
metadata: {name: capped}
spec:
  match: {operations: [CREATE, UPDATE]}
  validations:
    - expression: object.spec.containers.all(c, !quantity(c.resources.limits.cpu).isGreaterThan(quantity('4')))
      messageExpression: "'at most 4 cpu, at ' + request.operation + ' of ' + request.?subResource.orValue('a pod')"
"""


def test_a_validation_of_updates_holds_at_a_resize(kube: Kube, tmp_path: Path) -> None:
    with admitting(kube, tmp_path, CAPPED):
        eventually(lambda: "at most 4 cpu, at CREATE" in refusal(kube, pod(container("main", {"cpu": 8}))))
        kube.create(pod(container("main", {"cpu": 1})))

        def resized(cpu: int) -> Any:
            amounts = {"limits": {"cpu": str(cpu)}, "requests": {"cpu": str(cpu)}}
            body = {"spec": {"containers": [{"name": "main", "resources": amounts}]}}
            return kube.core.patch_namespaced_pod_resize("job", kube.name, body)

        with pytest.raises(ApiException, match="at most 4 cpu, at UPDATE of resize"):
            resized(8)
        assert resized(2).spec.containers[0].resources.limits == {"cpu": "2"}
        kube.core.patch_namespaced_pod("job", kube.name, {"metadata": {"labels": {"a": "b"}}})


MOVED = f"""\
apiVersion: gpurules.io/v1
kind: FallbackLadder
metadata: {{name: mig}}
spec: {{rungs: [{{resource: {MIG}}}, {{resource: {GPU}, assume: true}}]}}
---
apiVersion: gpurules.io/v1
kind: Validation
metadata: {{name: no-whole-cards}}
spec:
  match: {{resources: [{GPU}]}}
  validations: [{{expression: 'false', message: no whole cards}}]
"""


def test_a_pod_that_mutate_would_change_reaches_validate_in_audit(kube: Kube, tmp_path: Path) -> None:
    log, made = tmp_path / "decisions", pod(container("main", {MIG: 1}))

    def steps() -> list[tuple[str, str]]:
        assert refusal(kube, made) == ""
        lines = map(json.loads, log.read_text().splitlines())
        return [(line["endpoint"], step["action"]) for line in lines for step in line["trace"] if step["audit"]]

    with admitting(kube, tmp_path, MOVED, "--namespaces", kube.name, "--decision-log", log, audit=True):
        eventually(lambda: {*steps()} >= {("mutate", "change"), ("validate", "deny")})
    with admitting(kube, tmp_path, MOVED):
        eventually(lambda: "no whole cards" in refusal(kube, made))


FROZEN = """\
apiVersion: gpurules.io/v1
kind: Validation
metadata: {name: frozen}
spec:
  match: {operations: [UPDATE]}
  validations: [{expression: 'false', message: pods are frozen}]
"""


@pytest.mark.parametrize("answers", [True, False], ids=["answers", "is gone"])
def test_finalizers_can_be_removed_whatever_the_rules(kube: Kube, tmp_path: Path, answers: bool) -> None:
    finalized = pod(container("main"), name="finalized")
    finalized["metadata"]["finalizers"] = ["gpurules.io/test"]  # type: ignore[index, call-overload]
    unfinalized = {"metadata": {"finalizers": None}}
    kube.create(finalized)
    try:
        with admitting(kube, tmp_path, FROZEN) as running:

            def updated() -> str:
                try:
                    change = {"metadata": {"labels": {"a": "b"}}}
                    kube.core.patch_namespaced_pod("finalized", kube.name, change, dry_run="All")
                except ApiException as error:
                    return str(error.body)
                return ""

            eventually(lambda: "pods are frozen" in updated())
            if not answers:
                running.stop(signal.SIGKILL)
                assert "failed calling webhook" in updated()
            kube.delete_pod("finalized")
            assert kube.core.read_namespaced_pod("finalized", kube.name).metadata.deletion_timestamp
            kube.core.patch_namespaced_pod("finalized", kube.name, unfinalized)
            assert kube.core.list_namespaced_pod(kube.name).items == []
    finally:
        if kube.core.list_namespaced_pod(kube.name).items:
            kube.core.patch_namespaced_pod("finalized", kube.name, unfinalized)


AVAILABLE = f"""\
apiVersion: gpurules.io/v1
kind: FallbackLadder
metadata: {{name: mig}}
spec:
  offered: Available
  nodes: {{selector: {{matchLabels: {{{LABEL}: %s}}}}, require: [Ready]}}
  rungs:
    - {{resource: {MIG}}}
    - {{resource: {GPU}}}
"""

needs_client_ca = pytest.mark.skipif(
    not os.environ.get("WEBHOOK_CLIENT_CA"), reason="needs an API server that shows a certificate of WEBHOOK_CLIENT_CA"
)


@pytest.mark.parametrize("verified", [pytest.param(True, marks=needs_client_ca), False], ids=["verified", "anybody"])
def test_devices_are_reserved_for_a_verified_api_server(kube: Kube, tmp_path: Path, verified: bool) -> None:
    """The pods name a scheduler that does not exist, so only reservations take devices."""
    kube.node("mig", mig="2", gpu="4")
    client_ca = ("--client-ca", os.environ["WEBHOOK_CLIENT_CA"]) if verified else ()
    with admitting(kube, tmp_path, AVAILABLE % kube.name, "--cluster", "kubeconfig", *client_ca) as running:
        # Three at once fit only as whole GPUs, once the nodes are known.
        eventually(lambda: GPU in requested(kube.create(requesting("probe", 3), dry_run="All")))
        made = [kube.create(requesting(f"p{number}", 1, schedulerName="nobody")) for number in range(3)]
    assert [requested(one) for one in made] == [{MIG: "1"}, {MIG: "1"}, {GPU: "1"} if verified else {MIG: "1"}]
    assert ("no devices are reserved" in running.logged()) is not verified


@needs_client_ca
def test_an_api_server_of_another_ca_is_rejected(kube: Kube, tmp_path: Path) -> None:
    other, _ = certified("other").write(tmp_path)
    with admitting(kube, tmp_path, AVAILABLE % kube.name, "--cluster", "kubeconfig", "--client-ca", other) as running:
        eventually(lambda: "failed calling webhook" in refusal(kube, requesting("p", 1)))
        eventually(lambda: "TLS handshake failed: client-certificate-refused" in running.logged())


def requesting(name: str, count: int, **spec: Any) -> Any:
    return pod(container("main", limits={MIG: count}), name=name, **spec)


def requested(made: Any) -> dict[str, str]:
    limits: dict[str, str] = made.spec.containers[0].resources.limits
    return limits


TYPE = "task.bkbcs.tencent.com/gpu-type"
ON_CONFLICT = ("Overwrite", "Raise", "Keep")
AMOUNTS = {"cpu": "4", "memory": "8Gi", "hugepages-2Mi": "64Mi", "example.com/nic": "1"}

INJECTIONS = "---\n".join(
    f"""\
apiVersion: gpurules.io/v1
kind: ResourceInjection
metadata: {{name: {on_conflict.lower()}}}
spec:
  gpuType: {on_conflict}
  gpuTypeAnnotation: task.bkbcs.tencent.com/gpu-type
  onConflict: {on_conflict}
  initContainers: Inject
  coefficients: {{cpu: 4, memory: 8Gi, hugepages-2Mi: 64Mi, example.com/nic: 1}}
"""
    for on_conflict in ON_CONFLICT
)

LEVELS: Mapping[str, Any] = {
    "nothing": None,
    "empty": {},
    "requests": {"requests": {"cpu": "1", "memory": "2Gi"}},
    "cpu only": {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}},
    "limits": {"limits": {"cpu": "2", "memory": "2Gi"}},
    "memory limit": {"requests": {"cpu": "1"}, "limits": {"memory": "2Gi"}},
    "fractions": {"requests": {"cpu": "1500m", "memory": "1500M"}, "limits": {"cpu": "1999m", "memory": "2e9"}},
    "much": {"requests": {"cpu": "50", "memory": "500Gi"}, "limits": {"cpu": "60", "memory": "600Gi"}},
    "huge pages": {"requests": {"cpu": "1", "hugepages-2Mi": "8Mi"}, "limits": {"hugepages-2Mi": "8Mi"}},
    "huge pages limit": {"limits": {"cpu": "2", "hugepages-2Mi": "8Mi"}},
}

CONTAINERS: Mapping[str, Any] = {
    "one": [container("a", limits={GPU: 1})],
    "two": [container("a", limits={GPU: 2}), container("b", {GPU: 1, "cpu": 1})],
    "plain": [container("a", limits={GPU: 1}), container("b", requests={"cpu": "500m", "memory": "1Gi"})],
    "limited": [container("a", limits={GPU: 1, "cpu": 2}), container("b", limits={"cpu": 1, "memory": "1Gi"})],
    "requesting": [container("a", limits={GPU: 1}, requests={"cpu": "250m"})],
    "burstable": [container("a", limits={GPU: 1, "memory": "2Gi"}, requests={"memory": "1Gi"})],
    "more": [container("a", limits={GPU: 1, "cpu": 2, "memory": "2Gi"}), container("b", requests={"cpu": 5})],
    "huge pages": [container("a", limits={GPU: 1, "cpu": 1, "hugepages-2Mi": "2Mi"}), container("b", {"cpu": "1m"})],
    "others' huge pages": [container("a", limits={GPU: 1}), container("b", {"cpu": "1m", "hugepages-2Mi": "4Mi"})],
}

INIT_CONTAINERS: Mapping[str, Any] = {
    "none": [],
    "init": [container("i", limits={GPU: 3})],
    "sidecar": [container("s", limits={GPU: 1}, sidecar=True)],
    "plain": [container("i", limits={"cpu": 2}), container("s", {"cpu": "100m", "memory": "64Mi"}, sidecar=True)],
    "all": [
        container("s", {GPU: 1, "cpu": "100m"}, sidecar=True),
        container("i", {GPU: 2, "memory": "1Gi"}),
        container("t", requests={"cpu": "300m"}, sidecar=True),
    ],
}


def test_injected_resources_pass_api_server_validation(kube: Kube, tmp_path: Path) -> None:
    """Every pod is created twice, as a dry run: as it is, and annotated, so that an injection applies."""
    tried: dict[str, set[str]] = {on_conflict: set() for on_conflict in ON_CONFLICT}
    wrong = []
    with admitting(kube, tmp_path, INJECTIONS):
        probe = pod(container("main", limits={GPU: 1}), annotations={TYPE: "Overwrite"})
        eventually(lambda: requested(kube.create(probe, dry_run="All")) == {GPU: "1", **AMOUNTS})
        for level, resources in LEVELS.items():
            for shape, containers in CONTAINERS.items():
                for kind, init in INIT_CONTAINERS.items():
                    spec = {} if resources is None else {"resources": resources}
                    if refusal(kube, pod(*containers, init=init, **spec)):
                        continue
                    for on_conflict in ON_CONFLICT:
                        denial = refusal(kube, pod(*containers, init=init, annotations={TYPE: on_conflict}, **spec))
                        tried[on_conflict].add(level)
                        if denial and "too large" not in denial:
                            wrong.append((on_conflict, level, shape, kind, json.loads(denial)["message"]))
    assert wrong == []
    assert tried == {on_conflict: set(LEVELS) for on_conflict in ON_CONFLICT}


@pytest.mark.parametrize(
    ("on_conflict", "level", "expected", "main"),
    [
        ("Overwrite", "requests", {"requests": {"cpu": "8", "memory": "16Gi"}, "limits": {}}, {"cpu": "8"}),
        ("Raise", "limits", {"requests": {"cpu": "8", "memory": "16Gi"}, "limits": {"cpu": "8", "memory": "16Gi"}}, {}),
        ("Raise", "much", LEVELS["much"], {"cpu": "8", "memory": "16Gi"}),
        (
            "Keep",
            "cpu only",
            {"requests": {"cpu": "1", "memory": "16Gi"}, "limits": {"cpu": "2"}},
            {"cpu": None, "memory": "16Gi"},
        ),
        ("Keep", "limits", {"requests": LEVELS["limits"]["limits"], **LEVELS["limits"]}, {"cpu": None, "memory": None}),
    ],
)
def test_the_pods_own_level_is_stored_as_it_was_lifted(
    kube: Kube, tmp_path: Path, on_conflict: str, level: str, expected: Any, main: Mapping[str, str | None]
) -> None:
    with admitting(kube, tmp_path, INJECTIONS):
        probe = pod(container("main", limits={GPU: 2}), annotations={TYPE: on_conflict})
        eventually(lambda: "cpu" in requested(kube.create(probe, dry_run="All")))
        made = kube.create({**probe, "spec": {**probe["spec"], "resources": LEVELS[level]}})  # type: ignore[dict-item]
    own = {"requests": made.spec.resources.requests, "limits": made.spec.resources.limits}
    # The API server has filled in the huge pages of the containers.
    assert {
        key: {name: amounts[name] for name in ("cpu", "memory") if name in amounts} for key, amounts in own.items()
    } == expected
    assert {name: requested(made).get(name) for name in main} == dict(main)


def test_init_containers_and_sidecars_get_their_shares(kube: Kube, tmp_path: Path) -> None:
    init = [container("warm-up", limits={GPU: 1}), container("watch", limits={GPU: 1}, sidecar=True)]
    rest = [container("main", limits={GPU: 2}), container("metrics", requests={"cpu": "1500m"})]
    worker = pod(*rest, init=init, annotations={TYPE: "Overwrite"})
    with admitting(kube, tmp_path, INJECTIONS):
        eventually(lambda: "cpu" in requested(kube.create(worker, dry_run="All")))
        made = kube.create(worker)
    found = {one.name: one.resources for one in (*made.spec.init_containers, *made.spec.containers)}
    assert found["metrics"].limits is None
    assert [found[name].limits for name in ("warm-up", "watch", "main")] == [
        {GPU: "1", **AMOUNTS},
        {GPU: "1", **AMOUNTS, "cpu": "3500m"},
        {GPU: "2", "cpu": "7", "memory": "16Gi", "hugepages-2Mi": "128Mi", "example.com/nic": "2"},
    ]
    assert all(found[name].requests == found[name].limits for name in ("warm-up", "watch", "main"))
