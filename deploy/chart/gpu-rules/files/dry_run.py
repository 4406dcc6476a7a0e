"""`helm test`: send a pod to the API server as a dry run until gpu-rules answers. Uses the standard library only.

Arguments: namespace, resource and image of the pod, URL of the metrics ("" if they are disabled), seconds to try.
"""

import json
import os
import ssl
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def dry_run(pod: dict[str, Any], namespace: str) -> dict[str, Any]:
    """Return the pod as it would be stored, or the Status of a refusal."""
    server = f"https://{os.environ['KUBERNETES_SERVICE_HOST']}:{os.environ['KUBERNETES_SERVICE_PORT']}"
    headers = {
        "Authorization": f"Bearer {(ACCOUNT / 'token').read_text()}",
        "Content-Type": "application/json",
    }
    url = f"{server}/api/v1/namespaces/{namespace}/pods?dryRun=All"
    request = urllib.request.Request(url, json.dumps(pod).encode(), headers)  # noqa: S310
    trusted = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
    try:
        with urllib.request.urlopen(request, timeout=60, context=trusted) as response:  # noqa: S310
            return dict(json.load(response))
    except urllib.error.HTTPError as error:
        return dict(json.load(error))


def difference(sent: dict[str, Any], stored: dict[str, Any]) -> str:
    """Return what rules did to the pod; "" if nothing shows that they were evaluated."""
    if stored["kind"] == "Status":
        denied = [f'"{endpoint}.gpurules.io" denied' for endpoint in ("mutate", "validate")]
        return f"denied: {stored['message']}" if any(text in stored["message"] for text in denied) else ""
    (before,), (after,) = (each["spec"]["containers"] for each in (sent, stored))
    annotations = stored["metadata"].get("annotations", {})
    if before["resources"]["limits"] == after["resources"]["limits"] and "gpurules.io" not in str(annotations):
        return ""
    return f"changed: limits {json.dumps(after['resources']['limits'])}, annotations {json.dumps(annotations)}"


def dry_runs(url: str) -> tuple[str, float]:
    """Return the start time of the replica that answers, and its number of requests that were dry runs."""
    with urllib.request.urlopen(url, timeout=10) as response:  # noqa: S310 - the chart's URL
        samples = [line.rpartition(" ") for line in response.read().decode().splitlines()]
    (started,) = (value for name, _, value in samples if name == "process_start_time_seconds")
    counted = [float(value) for name, _, value in samples if name.startswith("gpu_rules_requests_total{")
               and 'dry_run="true"' in name]  # fmt: skip
    return started, sum(counted)


def main(namespace: str, resource: str, image: str, metrics: str, seconds: str) -> int:
    restricted = {
        "allowPrivilegeEscalation": False,
        "runAsNonRoot": True,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    container = {
        "name": "main",
        "image": image,
        "resources": {"limits": {resource: "1"}},
        "securityContext": restricted,
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "gpu-rules-test-"},
        "spec": {"containers": [container]},
    }
    end, counts, answer = time.monotonic() + float(seconds), dict[str, float](), ""
    while True:
        try:
            stored = dry_run(pod, namespace)
            answer = stored["message"] if stored["kind"] == "Status" else "the pod was admitted unchanged"
            if shown := difference(pod, stored):
                print(f"A pod with {resource} in namespace {namespace} was {shown}")
                return 0
            # Each connection may reach another replica. The first count of a replica may include earlier dry runs.
            replica, count = dry_runs(metrics) if metrics else ("", 0.0)
            if count > counts.setdefault(replica, count):
                print(f"gpu-rules answered for a pod with {resource} in namespace {namespace}: {answer}")
                return 0
        except (OSError, ValueError) as error:
            answer = str(error)
        if time.monotonic() > end:
            print(f"gpu-rules did not answer for a pod with {resource} in namespace {namespace}: {answer}")
            return 1
        time.sleep(0.5)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
