"""Pods sent to a real API server by several clients."""

import http.client
import json
import ssl
import threading
import time
from collections import Counter
from contextlib import closing
from http import HTTPStatus
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from kubernetes import client

from tests.support.real import MIG, PATIENCE_SECONDS, Kube

RULES = """\
apiVersion: gpurules.io/v1
kind: FallbackLadder
metadata: {name: mig}
spec:
  annotation: example.com/fallback
  rungs: [{resource: nvidia.com/mig-2g.20gb}, {resource: nvidia.com/gpu}]
---
apiVersion: gpurules.io/v1
kind: ResourceInjection
metadata: {name: cpu}
spec:
  gpuResource: nvidia.com/gpu
  onConflict: Keep
  coefficients: {cpu: CORES}
---
apiVersion: gpurules.io/v1
kind: Validation
metadata: {name: cores}
spec:
  match: {resources: [nvidia.com/gpu]}
  validations:
    - expression: "object.spec.containers.all(c, c.resources.requests['cpu'] == 'CORES')"
      message: not CORES
"""
"""Rules of which the validation knows the amount of the injection."""


def written(folder: Path, cores: int, more: str = "") -> Path:
    """Write rules whose versions differ in an amount."""
    path = folder / "rules.yaml"
    made = path.with_suffix(".new")
    made.write_text(RULES.replace("CORES", str(cores)) + more)
    made.replace(path)
    return path


def gpu_pod(resource: str = MIG, name: str = "", **metadata: Any) -> Any:
    container = {"name": "main", "image": "app:1", "resources": {"limits": {resource: "1"}}}
    named = {"name": name} if name else {"generateName": "p-"}
    return {"metadata": {**named, **metadata}, "spec": {"containers": [container], "nodeSelector": {"no": "node"}}}


class Pods:
    """A connection of its own that sends pods as dry runs, kept alive; the client of Kubernetes is slower."""

    def __init__(self, kube: Kube, namespace: str = "") -> None:
        configuration = client.Configuration.get_default_copy()
        context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
        if configuration.cert_file:
            context.load_cert_chain(configuration.cert_file, configuration.key_file)
        token = configuration.get_api_key_with_prefix("BearerToken")
        self._headers = {"Content-Type": "application/json", **({"Authorization": token} if token else {})}
        address = urlsplit(kube.api_server)
        self._connection = http.client.HTTPSConnection(address.hostname or "", address.port, context=context)
        self._path = f"/api/v1/namespaces/{namespace or kube.name}/pods?dryRun=All"

    def decided(self, made: Any) -> tuple[str, str, str]:
        """Return the refusal of a pod, or "" with its resource and its cpu as it would be stored."""
        self._connection.request("POST", self._path, json.dumps(made), self._headers)
        response = self._connection.getresponse()
        stored = json.loads(response.read())
        if response.status != HTTPStatus.CREATED:
            return f"refused: {stored['message']}", "", ""
        requests = stored["spec"]["containers"][0]["resources"].get("requests") or {}
        resource = next(name for name in requests if "/" in name)
        return "", resource, requests.get("cpu", "")

    def close(self) -> None:
        self._connection.close()


def decided(kube: Kube, made: Any, namespace: str = "") -> tuple[str, str, str]:
    with closing(Pods(kube, namespace)) as pods:
        return pods.decided(made)


class Load:
    """Pods sent at a rate by several clients."""

    def __init__(self, kube: Kube, rate: float, made: Any, *, namespace: str = "", clients: int = 8) -> None:
        self._made = made
        self._namespace = namespace
        self.results: Counter[tuple[str, str, str]] = Counter()
        self._kube = kube
        self._rate = rate
        self._end = threading.Event()
        self._changed = threading.Condition()
        self._numbers = count()
        self._threads = [threading.Thread(target=self._run) for _ in range(clients)]

    def __enter__(self) -> "Load":
        self._begin = time.monotonic()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join()
        total, seconds = self.results.total(), time.monotonic() - self._begin
        print(f"{total} pods in {seconds:.0f} s, {total / seconds:.0f} a second:", dict(self.results))

    def wait_for(self, pods: int) -> None:
        """Wait until so many more pods were decided."""
        with self._changed:
            total = self.results.total() + pods
            assert self._changed.wait_for(lambda: self.results.total() >= total, PATIENCE_SECONDS)

    def _run(self) -> None:
        with closing(Pods(self._kube, self._namespace)) as pods:
            while not self._end.wait(max(0.0, self._begin + next(self._numbers) / self._rate - time.monotonic())):
                result = pods.decided(self._made)
                with self._changed:
                    self.results[result] += 1
                    self._changed.notify_all()
