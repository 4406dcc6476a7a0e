"""Releases of the chart on a real API server by two versions of helm: install, upgrade, rollback, test, uninstall.

The cluster has no kubelet: tests run the pod of `helm test` and the server as processes.
"""

import json
import os
import re
import shutil
import socket
import socketserver
import subprocess
import sys
import threading
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from tempfile import mkdtemp
from typing import Any
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner

from deploy import render
from rules_engine.exports.configuration import helm_values
from rules_engine.rules.sources.rule_files import DEFAULT_RULES, read_rules
from rules_engine.server.commands import main
from tests.support.authoring import ladder, write
from tests.support.chart import RULES, parent, set_options
from tests.support.git import git
from tests.support.operating import metrics_url
from tests.support.real import GPU, LOOPBACK, REAL, Kube, eventually, kubectl, kubernetes, together
from tests.support.real_load import Load, decided, gpu_pod, written
from tests.support.server import ROOT, Running, started
from tools.helm import LATER_PACKAGE, PACKAGE, HelmNotFoundError, run_helm, unpacked_helm

pytestmark = REAL

WEBHOOKS = ("mutatingwebhookconfiguration", "validatingwebhookconfiguration")
OTHER = next(name for name in render.rule_sets() if name not in RULES["sets"])
"""A packaged set other than the default."""
CA = b64encode(b"-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n").decode()


@dataclass(frozen=True, slots=True)
class Release:
    """A release in the namespace of its name, managed by one version of helm."""

    kube: Kube
    program: Path
    chart: Path

    @property
    def name(self) -> str:
        return self.kube.name

    def helm(self, command: str, *arguments: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
        line = (command, self.name, *arguments, "--namespace", self.name, "--kubeconfig", os.environ["KUBECONFIG"])
        done = run_helm(*line, program=self.program, check=False)
        assert not check or done.returncode == 0, done.stderr
        return done

    def read(self, kind: str, suffix: str = "") -> Any:
        line = ("get", kind, f"{self.name}{suffix}", "--namespace", self.name, "-o", "json")
        done = kubectl(*line)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def objects(self) -> set[str]:
        """Return kind and name of all objects of the cluster that have the release's name."""
        kinds = kubectl("api-resources", "--verbs=list,get", "-o", "name").stdout.split()
        shown = "{range .items[*]}{.kind} {.metadata.name}{'\\n'}{end}"
        listed = kubectl("get", ",".join(kinds), "--all-namespaces", "--ignore-not-found", "-o", f"jsonpath={shown}")
        lines = {line for line in listed.stdout.splitlines() if self.name in line}
        # Kept for an hour by the API server; made by controllers; not of the chart.
        return {line for line in lines if line.split()[0] not in {"Event", "Namespace", "Pod", "ReplicaSet"}}

    def ca_bundles(self) -> set[bytes]:
        webhooks = [webhook for kind in WEBHOOKS for webhook in self.read(kind)["webhooks"]]
        return {b64decode(webhook["clientConfig"].get("caBundle", "")) for webhook in webhooks}


def without_version(chart: Path, folder: Path) -> Path:
    """Copy a chart without its kubeVersion: an API server that was built from a checkout reports none."""
    shutil.copytree(chart, folder)
    text = (folder / "Chart.yaml").read_text()
    (folder / "Chart.yaml").write_text(re.sub(r"^kubeVersion: .*$", "", text, flags=re.MULTILINE))
    return folder


@pytest.fixture(params=[PACKAGE, LATER_PACKAGE])
def release(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Release]:
    try:
        program = unpacked_helm(request.param)
    except HelmNotFoundError as error:
        pytest.skip(str(error))
    # With failurePolicy Fail and no server, pods with GPUs are refused.
    with kubernetes(alone=True) as kube:
        made = Release(kube, program, without_version(render.CHART, tmp_path / "chart"))
        try:
            yield made
        finally:
            made.helm("uninstall", "--ignore-not-found", "--no-hooks")


def definition(group: str, kind: str) -> Any:
    """Return a CustomResourceDefinition that accepts any object of a kind."""
    plural = f"{kind.lower()}s"
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural},
            "versions": [version],
        },
    }


DEFINITIONS = [
    definition(group, kind)
    for group, kinds in {
        "cert-manager.io": ("Certificate", "Issuer"),
        "monitoring.coreos.com": ("ServiceMonitor", "PrometheusRule"),
    }.items()
    for kind in kinds
]


@contextmanager
def definitions() -> Iterator[None]:
    """Install the definitions of cert-manager and of the Prometheus Operator, unless the cluster has them."""
    there = kubectl("get", "crd", "-o", "name").stdout
    made = [each for each in DEFINITIONS if f"/{each['metadata']['name']}\n" not in there]
    try:
        if made:
            assert kubectl("create", "-f", "-", stdin=together(made)).returncode == 0
            names = [f"crd/{each['metadata']['name']}" for each in made]
            assert kubectl("wait", "--for=condition=Established", *names).returncode == 0
        yield
    finally:
        if made:
            kubectl("delete", "-f", "-", stdin=together(made))


FAIL: Mapping[str, Any] = {"failurePolicy": "Fail"}
CONFIGURATIONS: Mapping[str, Mapping[str, Any]] = {
    "bootstrap": {},
    "cert-manager": {
        "tls": {"mode": "certManager"},
        "metrics": {kind: {"enabled": True} for kind in ("serviceMonitor", "alerts", "dashboard")},
    },
    "existing secret": {
        "tls": {"mode": "existingSecret", "secretName": "own"},
        "webhook": {"caBundle": CA, "mutating": FAIL, "validating": FAIL},
        "commonLabels": {"team": "gpu"},
    },
    "host network": {
        "hostNetwork": True,
        "ports": {"https": 10260, "metrics": 10261},
        "rbac": {"pods": True, "namespaces": True},
        "server": {"events": True, "reserveFor": "all"},
        "doctor": {"enabled": True, "events": True},
    },
}


@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_a_release_is_upgraded_rolled_back_and_leaves_nothing(release: Release, configuration: str) -> None:
    values = {**CONFIGURATIONS[configuration], "rules": RULES}
    kubectl(
        "create", "secret", "generic", "own", "-n", release.name, "--from-literal=tls.crt=a", "--from-literal=tls.key=a"
    )
    with definitions():
        before = release.objects()
        release.helm("install", release.chart, *set_options(json.dumps(values)))
        installed, rules = release.objects(), release.read("configmap", "-rules")["data"]
        assert release.read("deployment")["spec"]["replicas"] == 2
        condition = release.read(WEBHOOKS[0])["webhooks"][0]["matchConditions"]

        changed = {**values, "replicas": 3, "rules": {"sets": [OTHER]}}
        release.helm("upgrade", release.chart, *set_options(json.dumps(changed)))
        assert release.read("deployment")["spec"]["replicas"] == 3
        files = {f"{OTHER}-{path.name}" for path in (render.CHART / "files" / "sets" / OTHER).iterdir()}
        assert release.read("configmap", "-rules")["data"].keys() == files
        assert release.read(WEBHOOKS[0])["webhooks"][0]["matchConditions"] != condition

        release.helm("rollback", "1")
        assert release.read("configmap", "-rules")["data"] == rules
        assert release.read(WEBHOOKS[0])["webhooks"][0]["matchConditions"] == condition
        secrets = {f"Secret sh.helm.release.v1.{release.name}.v{number}" for number in (2, 3)}
        assert release.objects() == installed | secrets

        release.helm("uninstall")
        assert eventually(lambda: release.objects() == before)


def test_a_parent_chart_with_two_servers_is_installed_and_leaves_nothing(release: Release, tmp_path: Path) -> None:
    values = {
        "global": {"commonLabels": {"team": "gpu"}},
        "blue": {"rules": RULES},
        "green": {"rules": {"sets": [OTHER]}},
    }
    chart = parent(tmp_path / "parent", values, "blue", "green", chart=release.chart)
    before = release.objects()
    release.helm("install", chart)
    assert {f"Deployment {release.name}-{alias}" for alias in ("blue", "green")} <= release.objects()
    assert release.read("configmap", "-blue-rules")["data"] != release.read("configmap", "-green-rules")["data"]
    release.helm("uninstall")
    assert eventually(lambda: release.objects() == before)


def test_fail_without_the_secret_of_the_certificate_is_refused(release: Release) -> None:
    values = {**CONFIGURATIONS["existing secret"], "rules": RULES}
    refused = release.helm("install", release.chart, *set_options(json.dumps(values)), check=False)
    assert f"Secret own not found in namespace {release.name}: with webhook.mutating.failurePolicy" in refused.stderr

    kubectl("create", "secret", "generic", "own", "-n", release.name, "--from-literal=tls.crt=a")
    refused = release.helm("install", release.chart, *set_options(json.dumps(values)), check=False)
    assert "Secret own has no tls.crt and tls.key" in refused.stderr
    assert not [line for line in release.objects() if line.startswith("Deployment")]


@pytest.fixture
def previous_chart(tmp_path: Path) -> Path:
    """Return the chart as it was before its last change. Skips the test in a copy without that commit."""
    chart = render.CHART.relative_to(ROOT)
    commits = git(ROOT, "log", "-2", "--format=%H", "--", str(chart)).split()
    if len(commits) < 2:
        pytest.skip("the repository has no earlier commit of the chart")
    folder = tmp_path / "previous"
    folder.mkdir()
    archive = tmp_path / "previous.tar"
    git(ROOT, "archive", f"--output={archive}", os.environ.get("PREVIOUS", commits[-1]), str(chart))
    subprocess.run(["tar", "-xf", archive, "-C", folder], check=True)
    return without_version(folder / chart, tmp_path / "previous-chart")


def test_an_upgrade_from_the_previous_chart_keeps_rules_and_certificates(
    release: Release, previous_chart: Path, tmp_path: Path
) -> None:
    """The server, with the rights of the chart, has written its CA into the webhook configurations."""
    files = {"own.yaml": ladder("own", "amd.com/gpu", offered="Available")}
    write(tmp_path / "rules", files)
    values = json.dumps(dict(helm_values(read_rules([tmp_path / "rules"]).rule_set, files)))
    release.helm("install", previous_chart, *set_options(values))
    service = f"{release.name}.{release.name}.svc"
    bootstrap = ("--tls-bootstrap", f"{release.name}/{release.name}-tls", "--tls-service", service)
    config = release.kube.service_account(tmp_path, release.name)
    with started(tmp_path, *bootstrap, "--webhook-name", release.name, KUBECONFIG=str(config)):
        certificate = release.read("secret", "-tls")["data"]
    assert release.ca_bundles() == {b64decode(certificate["ca.crt"])}
    rules = release.read("configmap", "-rules")["data"]
    webhooks = [webhook["matchConditions"] for kind in WEBHOOKS for webhook in release.read(kind)["webhooks"]]

    for command, source in (("upgrade", release.chart), ("rollback", "1"), ("upgrade", release.chart)):
        release.helm(command, source, *(set_options(values) if command == "upgrade" else ()))
        assert release.read("configmap", "-rules")["data"] == rules == files
        assert release.ca_bundles() == {b64decode(certificate["ca.crt"])}
        assert release.read("secret", "-tls")["data"] == certificate
        kept = [webhook["matchConditions"] for kind in WEBHOOKS for webhook in release.read(kind)["webhooks"]]
        assert kept == webhooks
    release.helm("upgrade", release.chart, *set_options("{}"))
    assert release.ca_bundles() == {b64decode(certificate["ca.crt"])}
    assert release.read("configmap", "-rules")["data"] != files


# helm test.


def run_test_pod(release: Release, folder: Path, metrics: str) -> str:
    """Run the pod of `helm test` as a process with the rights of its account, as a kubelet would; return its output."""
    name = f"{release.name}-test"
    pod = eventually(lambda: release.kube.core.read_namespaced_pod(name, release.name))
    config = json.loads(release.kube.service_account(folder, name).read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    (folder / "token").write_text(user["token"])
    (folder / "ca.crt").write_bytes(Path(cluster["certificate-authority"]).read_bytes())
    (container,) = pod.spec.containers
    *interpreter, script = container.command
    assert interpreter == ["python3", "-c"]
    arguments = [*container.args[:3], metrics, "3"]
    server = urlsplit(cluster["server"])
    done = subprocess.run(
        [sys.executable, "-I", "-c", re.sub(r"/var/run/secrets/[a-z./]+", str(folder), script), *arguments],
        env={"KUBERNETES_SERVICE_HOST": str(server.hostname), "KUBERNETES_SERVICE_PORT": str(server.port)},
        capture_output=True,
        text=True,
        check=False,
    )
    phase = "Failed" if done.returncode else "Succeeded"
    release.kube.core.patch_namespaced_pod_status(name, release.name, {"status": {"phase": phase}})
    return done.stdout + done.stderr


def helm_test(release: Release, folder: Path, metrics: str = "") -> tuple[int, str]:
    """Run `helm test`; return its exit code and the output of its pod."""
    with ThreadPoolExecutor() as threads:
        testing = threads.submit(release.helm, "test", check=False)
        output = run_test_pod(release, folder, metrics)
        return testing.result().returncode, output


@pytest.mark.parametrize(
    ("resource", "sentence"),
    [
        ("", 'nvidia.com/mig-3g.30gb in namespace default was changed: limits {"nvidia.com/gpu": "1"}'),
        ("nvidia.com/gpu", "gpu-rules answered for a pod with nvidia.com/gpu"),
    ],
)
def test_helm_test_shows_that_the_server_answers_and_cleans_up(
    release: Release, tmp_path: Path, resource: str, sentence: str
) -> None:
    if release.kube.host not in LOOPBACK:
        pytest.skip("the API server cannot call a webhook on this machine")
    values = {"rules": RULES, "helmTest": {"resource": resource}}
    release.helm("install", release.chart, *set_options(json.dumps(values)))
    before = release.objects()
    with started(tmp_path, "--rules", DEFAULT_RULES, "--metrics-listen", "127.0.0.1:0") as running:
        for kind, path in zip(WEBHOOKS, ("mutate", "validate"), strict=True):
            called = {"url": f"{running.url}/{path}", "caBundle": b64encode(running.ca.read_bytes()).decode()}
            change = [{"op": "replace", "path": "/webhooks/0/clientConfig", "value": called}]
            assert kubectl("patch", kind, release.name, "--type=json", "-p", json.dumps(change)).returncode == 0
        code, output = helm_test(release, tmp_path, f"{metrics_url(running)}/metrics")

    assert sentence in output
    assert code == 0
    assert release.objects() == before
    assert kubectl("get", "pod", f"{release.name}-test", "-n", release.name).returncode != 0


def test_helm_test_fails_and_cleans_up_if_nobody_answers(release: Release, tmp_path: Path) -> None:
    release.helm("install", release.chart, *set_options("{}"))
    before = release.objects()
    code, output = helm_test(release, tmp_path)

    assert "gpu-rules did not answer for a pod with nvidia.com/mig-3g.30gb in namespace default" in output
    assert code != 0
    assert release.objects() == before
    assert kubectl("get", "pod", f"{release.name}-test", "-n", release.name).returncode != 0


# Modes.

STAYING = """\
---
apiVersion: gpurules.io/v1
kind: Validation
metadata: {name: free}
spec:
  match: {resources: [amd.com/gpu]}
  validations: [{expression: "cluster.available('amd.com/gpu') > 1000", message: too few are free}]
"""
"""A rule that stays with the webhook."""

WARNING = """\
---
apiVersion: gpurules.io/v1
kind: Validation
metadata: {name: warned}
spec:
  match: {resources: [nvidia.com/gpu]}
  validationActions: [Warn]
  validations: [{expression: object.spec.containers.size() < 9}]
"""
"""A rule of an outcome that no other rule has."""


class Forwarder(socketserver.ThreadingTCPServer):
    """A port whose new connections lead to the server of `target`, as a Service does during a rollout."""

    daemon_threads = True
    block_on_close = False
    target = 0

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Forwarded)
        threading.Thread(target=self.serve_forever).start()

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.server_address[1]}"


class _Forwarded(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        assert isinstance(self.server, Forwarder)
        with socket.create_connection(("127.0.0.1", self.server.target)) as other:
            back = threading.Thread(target=_forward, args=(other, self.request))
            back.start()
            _forward(self.request, other)
            back.join()


def _forward(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


ALL = {"/mutate": True, "/validate": True}
NARROWED = {"/validate/native": False}
PROBED = "kube-public"
"""A namespace whose pods only policies decide."""


def test_switching_from_webhooks_to_policies_and_back_loses_no_pod(release: Release, tmp_path: Path) -> None:
    """Servers run as processes with the rights of the chart."""
    kube, name = release.kube, release.name
    if kube.host not in LOOPBACK:
        pytest.skip("the API server cannot call a webhook on this machine")
    kube.node("a", gpu="4")
    kubectl("create", "secret", "generic", "own", "-n", name, "--from-literal=tls.crt=a", "--from-literal=tls.key=a")

    def upgrade(*options: str) -> Mapping[str, bool]:
        """Upgrade by the current rules; return the paths of webhooks, and whether each gets pods of exported rules."""
        line = ("webhook-config", "--rules", str(rules), "--failure-policy", "Fail", "-o", "helm-values", *options)
        values = tmp_path / "values.yaml"
        values.write_text(CliRunner().invoke(main, line).stdout)
        release.helm("upgrade", release.chart, "--install", "-f", values, "-f", own)
        webhooks = [webhook for kind in WEBHOOKS for webhook in release.read(kind).get("webhooks", ())]
        called = {webhook["clientConfig"]["url"]: str(webhook["matchConditions"]) for webhook in webhooks}
        return {url.removeprefix(forwarder.url): "nvidia" in condition for url, condition in called.items()}

    def serve(*options: str) -> Running:
        """Start a server, and send new connections to it."""
        folder = Path(mkdtemp(dir=tmp_path))
        line = ("--rules", str(rules), "--cluster", "kubeconfig", "--tls-dir", str(tmp_path / "tls"), *options)
        server = stack.enter_context(started(folder, *line, KUBECONFIG=str(kube.service_account(folder, name))))
        server.ca = tmp_path / "tls" / "ca.crt"
        eventually(lambda: server.send("GET", "/readyz").status == HTTPStatus.OK)
        forwarder.target = server.port
        return server

    def pod() -> tuple[str, str, str]:
        return decided(kube, gpu_pod(GPU), "default")

    with ExitStack() as stack:
        forwarder = stack.enter_context(Forwarder())
        stack.callback(forwarder.shutdown)
        template = release.chart / "templates" / "webhooks.yaml"
        by_url = rf'url: "{forwarder.url}\1"'
        template.write_text(re.sub(r"service: .*path: (.*)}$", by_url, template.read_text(), flags=re.MULTILINE))
        rules = written(tmp_path, 2, STAYING + WARNING)
        with started(tmp_path, "--rules", rules) as any_server:
            bundle = b64encode(any_server.ca.read_bytes()).decode()
        patience = {"timeoutSeconds": 30}  # for slow machines
        excluded = {"excludeNamespaces": [PROBED]}
        webhook = {"caBundle": bundle, "mutating": patience, "validating": patience, **excluded}
        tls = {"mode": "existingSecret", "secretName": "own"}
        own = tmp_path / "own.yaml"
        own.write_text(json.dumps({"tls": tls, "webhook": webhook}))
        upgrade()
        serve("--offers", name)
        eventually(lambda: pod()[1:] == (GPU, "2"))
        printed = ("native", "--rules", str(rules), "--name", name, "--namespace", name, "--cluster", "kubeconfig")
        policies = json.loads(CliRunner().invoke(main, [*printed, "-o", "json"]).stdout)
        stack.callback(kubectl, "delete", "--ignore-not-found", "--wait=false", "-f", "-", stdin=policies)
        with (
            Load(kube, 30, gpu_pod(GPU), namespace="default") as exported,
            Load(kube, 10, gpu_pod("amd.com/gpu"), namespace="default", clients=2) as staying,
        ):
            eventually(lambda: kubectl("apply", "-f", "-", stdin=policies).returncode == 0)
            eventually(lambda: decided(kube, gpu_pod(GPU), PROBED)[2] == "2", 120)
            assert upgrade("--native") == NARROWED
            exported.wait_for(100)  # nothing tells when the API server has the webhooks
            assert upgrade() == ALL
            exported.wait_for(100)
            kubectl("delete", "--wait=false", "-f", "-", stdin=policies)
            eventually(lambda: decided(kube, gpu_pod(GPU), PROBED)[2] == "")
            exported.wait_for(100)
    assert {key[1:] for key in exported.results} == {(GPU, "2")}, exported.results
    (denied,) = staying.results
    assert "too few are free" in denied[0]
