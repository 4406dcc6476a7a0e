"""`make try-cluster KUBECONFIG=FILE`: try gpu-rules on a cluster with GPUs, and write a report that has no names.

It reads the cluster, and creates one namespace. The API server admits pods there as a dry run; a server on this machine
in mode Audit, which no webhook calls, decides them. The namespace is removed at the end, also after Ctrl-C.
Exit codes: 0 each step worked; 1 one did not, and the report says which; 2 there is no report.
"""

import json
import os
import re
import signal
import ssl
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any, NoReturn
from uuid import uuid4

import yaml

from rules_engine.accelerators.resources import is_gpu
from tools.helm import find_kubectl
from tools.try_cluster_report import Names, describe_node, refusal_reason, report_text, step_members

Object = dict[str, Any]

PODS = Path(__file__).with_name("try_cluster_pods.yaml")
PROGRAM = (sys.executable, "-P", "-m", "rules_engine.server")
AUDIT = ("--mode", "Audit", "--namespaces")
"""Options of the server before the name of the namespace."""

SECONDS = 13 * 60
"""Time of all steps; the removal of the namespace gets the rest of 15 minutes."""

MAX_RESOURCES = 8
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)


class FailedError(Exception):
    """A command failed."""


class StoppedError(Exception):
    """A signal, or the end of the time."""


def say(text: str) -> None:
    print(f"try-cluster: {text}", flush=True)


def run(*command: str | Path, stdin: Object | None = None, codes: Sequence[int] = (0,)) -> str:
    """Return the output of a command. Raises FailedError with its errors."""
    text = None if stdin is None else json.dumps(stdin)
    done = subprocess.run([*map(str, command)], input=text, capture_output=True, text=True, check=False)
    if done.returncode not in codes:
        raise FailedError(done.stderr.strip())
    return done.stdout


def read_cluster(file: Path, report: Object, names: Names) -> Mapping[str, int]:
    """Read the cluster into a file; return the resources of GPUs with the largest amount of a node."""
    file.write_text(run(*PROGRAM, "capture"))
    objects = [each for each in json.loads(file.read_text())["items"] if "items" not in each]
    for each in objects:
        if each["metadata"]["name"] != "default":
            names.word(each["kind"].lower(), each["metadata"]["name"])
    most: dict[str, int] = {}
    for node in (each for each in objects if each["kind"] == "Node"):
        amounts = node["status"].get("allocatable", {}).items()
        gpus = {name: int(amount) for name, amount in amounts if is_gpu(name) and amount.isdigit()}
        most |= {name: max(amount, most.get(name, 0)) for name, amount in gpus.items()}
        report["nodes"] += [describe_node(node, names)] if gpus else []
    version = run(find_kubectl(), "version", "--output=json")
    suggested = json.loads(run(*PROGRAM, "sets", "suggest", "--cluster", file, "--output", "json"))
    report["kubernetes"] = json.loads(version)["serverVersion"]["gitVersion"]
    report["objects"] = dict(sorted(Counter(each["kind"] for each in objects).items()))
    report |= {"cards": suggested["cards"], "sets": suggested["sets"]}
    return dict([*most.items()][:MAX_RESOURCES])


def dry_run(namespace: str, resource: str, manifest: Object) -> tuple[Object, Object]:
    """Return what is reported of a pod or workload, and its pod as the API server would store it, else as written."""
    name, kind = f"try-{uuid4().hex[:8]}", manifest["kind"]
    about = {"resource": resource, "kind": kind, "pod": manifest["metadata"]["name"], "apiServer": "accepted"}
    owner = {"apiVersion": manifest["apiVersion"], "kind": kind, "name": name, "uid": str(uuid4()), "controller": True}
    pod = manifest if kind == "Pod" else {"apiVersion": "v1", "kind": "Pod", **manifest["spec"]["template"]}
    pod["metadata"] = {**pod.get("metadata", {}), "name": name, "ownerReferences": [owner] if kind != "Pod" else []}
    options = ("--dry-run=server", "--output=json", f"--namespace={namespace}", "--filename=-")
    try:
        for each in (manifest, pod):
            stored = json.loads(run(find_kubectl(), "create", *options, stdin=each))
    except FailedError as error:
        return {**about, "apiServer": f"refused: {refusal_reason(str(error))}"}, pod
    return about, stored


@contextmanager
def server(folder: Path, namespace: str, sets: Sequence[str]) -> Iterator[HTTPSConnection]:
    """Run the server on the live cluster; yield a connection once it has read it."""
    ready, theirs = os.pipe()
    line = [*PROGRAM, "serve", "--cluster", "kubeconfig", "--rules", *(f"set:{each}" for each in sets)]
    line += ["--listen", "127.0.0.1:0", "--tls-dir", f"{folder}/tls", "--decision-log", f"{folder}/log"]
    line += ["--ready-fd", str(theirs), *AUDIT, *([namespace] if AUDIT else [])]
    with (folder / "errors").open("wb") as log, os.fdopen(ready) as readable:
        process = subprocess.Popen(line, pass_fds=[theirs], stdout=log, stderr=log)
        try:
            os.close(theirs)
            port = readable.readline().strip().rpartition(":")[2]
            if not port:
                raise FailedError((folder / "errors").read_text())
            context = ssl.create_default_context(cafile=folder / "tls" / "ca.crt")
            connection = HTTPSConnection("localhost", int(port), timeout=30, context=context)
            while send(connection, "GET", "/readyz")[0] != 200:
                time.sleep(0.5)
            yield connection
        finally:
            process.terminate()
            process.wait()


def send(connection: HTTPSConnection, method: str, path: str, body: Object | None = None) -> tuple[int, Object]:
    connection.request(method, path, json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    return response.status, json.loads(response.read())


def review(namespace: str, pod: Object) -> Object:
    request: Object = {
        "uid": str(uuid4()),
        "operation": "CREATE",
        "namespace": namespace,
        "dryRun": True,
        "object": pod,
    }
    request["kind"] = {"group": "", "version": "v1", "kind": "Pod"}
    request["resource"] = {"group": "", "version": "v1", "resource": "pods"}
    request["userInfo"] = {"username": "try-cluster"}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def try_pods(folder: Path, namespace: str, amounts: Mapping[str, int], report: Object) -> None:
    """Create the namespace, admit pods as a dry run, and decide them by the suggested sets."""
    run(find_kubectl(), "create", "namespace", namespace)
    account = ("get", "serviceaccounts", "default", f"--namespace={namespace}", "--ignore-not-found")
    while not run(find_kubectl(), *account):  # pods need it, and a controller creates it
        time.sleep(0.5)
    say(f"creating pods and workloads for {', '.join(amounts) or 'no resource'}, as a dry run: none is stored")
    tried = []
    for resource, most in amounts.items():
        values = {"R:": f"{resource}:", "MOST": str(most), "MORE": str(most + 1)}
        text = re.sub(r"\b(R:|MOST|MORE)", lambda found: values[found[0]], PODS.read_text())  # noqa: B023 - called here
        tried += [dry_run(namespace, resource, manifest) for manifest in yaml.safe_load_all(text)]
    report["pods"] = [about for about, _ in tried]
    if not report["sets"]:
        say("no packaged set fits the cards: the server is not started")
        return
    say(f"starting the server in mode Audit with {', '.join(report['sets'])}, and sending it the {len(tried)} pods")
    with server(folder, namespace, report["sets"]) as connection:
        for about, pod in tried:
            for path in ("/mutate", "/validate"):
                status, answer = send(connection, "POST", path, review(namespace, pod))
                if status != 200 or not answer["response"]["allowed"]:
                    report["problems"].append(f"{path} answered {status} for a pod with {about['resource']}")
    decisions = [json.loads(line) for line in (folder / "log").read_text().splitlines()]
    for about, pod in tried:
        about["decisions"] = [
            {"endpoint": each["endpoint"], "outcome": each["outcome"]} | {"steps": [*map(step_members, each["trace"])]}
            for each in decisions
            if each["pod"] == pod["metadata"]["name"]
        ]


def diagnose(report: Object) -> None:
    diagnosis = json.loads(run(*PROGRAM, "doctor", "--output", "json", codes=(0, 1)))
    report["doctor"] = {key: diagnosis[key] for key in ("counts", "pendingPods", "notRead")}
    report["doctor"]["findings"] = [
        {key: found[key] for key in ("reason", "severity", "certainty")}
        | {"objects": sum(len(each["objects"]) for each in found["affected"])}
        for found in diagnosis["findings"]
    ]


def stop(number: int, _frame: object) -> NoReturn:
    raise StoppedError(f"{SECONDS} s are over" if number == signal.SIGALRM else signal.Signals(number).name)


def main(file: Path) -> int:
    for number in SIGNALS:
        signal.signal(number, stop)
    signal.alarm(SECONDS)
    namespace, names = f"gpu-rules-try-{uuid4().hex[:8]}", Names()
    report: Object = {"problems": [], "nodes": [], "pods": []}
    try:
        with tempfile.TemporaryDirectory() as folder:
            say("reading the cluster (gpu-rules capture)")
            report["gpuRules"] = run(*PROGRAM, "--version").split()[-1]
            amounts = read_cluster(Path(folder, "cluster.json"), report, names)
            say(f"creating the namespace {namespace}")
            try:
                try_pods(Path(folder), namespace, amounts, report)
                say("diagnosing the cluster (gpu-rules doctor)")
                diagnose(report)
            finally:
                for number in SIGNALS:  # a second Ctrl-C does not keep the namespace
                    signal.signal(number, signal.SIG_IGN)
                say(f"removing the namespace {namespace}")
                run(find_kubectl(), "delete", "namespace", namespace, "--ignore-not-found", "--timeout=90s")
    except (FailedError, StoppedError) as error:
        say(f"failed, without a report: {str(error)[-500:]}")
        return 2
    names.word("namespace", namespace)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(report_text(names.replace(report)))
    say(f"wrote {file}: read it, and send it in an issue of gpu-rules")
    return 1 if report["problems"] else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if sys.argv[1:] else "build/try-cluster.md")))
