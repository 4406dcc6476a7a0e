"""`gpu-rules demo`: send the pods of RuleTests to real servers over HTTPS, and show the results in tables.

The scheduling of the pods is simulated for a test with a Simulation of its name.
"""

import json
import os
import ssl
import subprocess
import sys
from base64 import b64decode
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, cast
from urllib.request import Request, urlopen

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rules_engine.authoring.test.mismatches import admission_mismatches
from rules_engine.model.json.edits import Edits, JsonText
from rules_engine.model.json.strict import JsonPath
from rules_engine.model.rules.admission import AdmissionRequest, pod_request
from rules_engine.model.rules.decision import Decision, HttpRefusal
from rules_engine.model.rules.rule_test import Case, RuleTest
from rules_engine.model.wording import format_duration
from rules_engine.questions.simulate.play import play_simulation
from rules_engine.questions.simulate.record import State
from rules_engine.rules.evaluation.admission import Admission, validation_request
from rules_engine.rules.ladder.value import WEBHOOK_ANNOTATION
from rules_engine.rules.sources.documents import load_documents
from rules_engine.rules.sources.rule_files import DEFAULT_CLUSTER, DEFAULT_RULES, read_rules
from rules_engine.rules.sources.simulations import load_simulations
from rules_engine.server.http.review import API_VERSION, KIND

SCENARIOS = DEFAULT_RULES.parent.parent / "scenarios" / "demo.test.yaml"

TIMEOUT_SECONDS = 30
"""Timeout of a response, on a busy machine."""


@dataclass(frozen=True, slots=True)
class Server:
    """A running server, whose certificate is verified with the CA that it wrote."""

    url: str
    tls: ssl.SSLContext

    def review(self, path: str, request: AdmissionRequest) -> Decision:
        """Send an AdmissionReview; return the decision of the response, without its trace."""
        body = json.dumps({"apiVersion": API_VERSION, "kind": KIND, "request": request.raw}).encode()
        post = Request(self.url + path, body, {"Content-Type": "application/json"})  # noqa: S310 - https
        with urlopen(post, context=self.tls, timeout=TIMEOUT_SECONDS) as answer:  # noqa: S310
            response = json.load(answer)["response"]
        edits = read_patch(json.loads(b64decode(response["patch"])) if "patch" in response else [])
        status = response.get("status", {})
        refusal = None if response["allowed"] else HttpRefusal(status["code"], status["reason"], status["message"])
        return Decision(object=request.object, edits=edits, refusal=refusal)


@dataclass(frozen=True, slots=True)
class ScenarioResult:
    """The result of a case on a cluster: the time of the mutation, and what differs from the expected result."""

    case: Case
    cluster: str
    admission: Admission
    milliseconds: float

    @property
    def wrong(self) -> list[str]:
        expectations = self.case.expectations(self.cluster)
        return [str(each) for expect in expectations for each in admission_mismatches(expect, self.admission)]


def read_patch(patch: Sequence[Mapping[str, Any]]) -> Edits:
    """Return the edits of a JSON Patch of a server: it sets or removes members of objects."""
    edits: dict[JsonPath, dict[str, str | None]] = {}
    for operation in patch:
        *above, name = [key.replace("~1", "/").replace("~0", "~") for key in operation["path"].split("/")[1:]]
        value = operation.get("value")
        members = edits.setdefault(tuple(int(key) if key.isdigit() else key for key in above), {})
        members[name] = value if value is None or isinstance(value, str) else JsonText.of(value)
    return edits


def run_demo(file: Path = SCENARIOS) -> int:
    """Show every test of a file; return the number of unexpected results. Each inventory gets one server."""
    console = Console()
    console.print(f"Each pod goes to a real server over HTTPS, with the packaged set {DEFAULT_RULES.name}.")
    console.print("Names are shown without nvidia.com/.")
    # In a wheel the tests are not valid: the rules that they name are not at these paths.
    tests = [each.value for each in load_documents([file]).documents if isinstance(each.value, RuleTest)]
    failures = 0
    with ExitStack() as stack:
        servers: dict[str, Server] = {}
        for test in tests:
            outcomes = []
            for case in test.cases:
                for cluster in case.clusters:
                    if cluster not in servers:
                        servers[cluster] = stack.enter_context(running_server(cluster))
                    outcomes.append(admit_case(servers[cluster], case, cluster))
            show_table(console, test, outcomes)
            failures += sum(bool(outcome.wrong) for outcome in outcomes)
            if (simulation := file.with_name(f"{test.name}.yaml")).exists():
                show_load(console, simulation)
    if failures:
        console.print(f"\nUnexpected results: {failures}.", style="bold red")
    else:
        console.print("\nEvery pod has the expected result.", style="bold green")
    return failures


@contextmanager
def running_server(inventory: str) -> Iterator[Server]:
    """Run `gpu-rules serve` with the packaged rules and a packaged inventory. Raises ClickException."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GPU_RULES_")}
    read_end, write_end = os.pipe()
    with TemporaryDirectory(prefix="gpu-rules-demo-") as folder, os.fdopen(read_end) as ready:
        # Without the current folder, whose modules may have the names of libraries.
        command = [sys.executable, "-P", "-m", "rules_engine.server", "serve"]
        command += ["--listen", "127.0.0.1:0", "--tls-dir", folder]
        command += ["--rules", str(DEFAULT_RULES), "--cluster", str(DEFAULT_CLUSTER.with_name(f"{inventory}.yaml"))]
        command += ["--ready-fd", str(write_end)]
        log = Path(folder) / "log"
        with log.open("wb") as output:
            process = subprocess.Popen(command, env=environment, pass_fds=[write_end], stderr=output)  # noqa: S603
        try:
            os.close(write_end)
            url = ready.readline().strip()
            if not url:
                raise click.ClickException(f"the server for {inventory} did not start:\n{log.read_text()}")
            yield Server(url, ssl.create_default_context(cafile=f"{folder}/ca.crt"))
        finally:
            process.terminate()
            process.wait()


def admit_case(server: Server, case: Case, cluster: str) -> ScenarioResult:
    """Send a pod as the API server does: to /mutate, and the patched pod to /validate."""
    request = pod_request(case.pod, user="demo", namespace=case.namespace)
    begin = perf_counter()
    mutation = server.review("/mutate", request)
    milliseconds = (perf_counter() - begin) * 1000
    patched = validation_request(request, mutation.result)
    validation = server.review("/validate", patched) if mutation.allowed else None
    admission = Admission(request=request, mutation=mutation, validation=validation)
    return ScenarioResult(case, cluster, admission, milliseconds)


def _amounts_text(pod: Any) -> str:
    """Render one line for each limit, GPUs first, below the container's name if there are several."""
    lines = []
    several = len(pod["spec"]["containers"]) > 1
    for container in pod["spec"]["containers"]:
        lines += [f"{container['name']}:"] * several
        for resource, amount in sorted(container["resources"]["limits"].items(), key=lambda item: "/" not in item[0]):
            lines.append(f"{'  ' * several}{resource.removeprefix('nvidia.com/')}: {amount}")
    return "\n".join(lines)


def show_table(console: Console, test: RuleTest, outcomes: Sequence[ScenarioResult]) -> None:
    """Print the table of a test."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in ("pod", "requested", "given", "annotation"):
        table.add_column(name, overflow="fold")
    table.add_column("ms", justify="right")
    for outcome in outcomes:
        name, pod = outcome.case.name, cast(dict[str, Any], outcome.admission.result)
        table.add_row(
            f"{name}\n@ {outcome.cluster}" if len(test.clusters) > 1 else name,
            Text(_amounts_text(outcome.case.pod)),
            Text(_amounts_text(pod)),
            Text(pod["metadata"].get("annotations", {}).get(WEBHOOK_ANNOTATION, "-")),
            f"{outcome.milliseconds:.1f}",
            style="red" if outcome.wrong else None,
        )
    console.print(Text(f"\n{test.description}", style="bold"))
    console.print(table)
    for outcome in outcomes:
        for wrong in outcome.wrong:
            console.print(Text(f"WRONG: {outcome.case.name}: {wrong}", style="bold red"), soft_wrap=True)


def show_load(console: Console, file: Path) -> None:
    """Simulate the scheduling of the pods; print which of them run at its end, and how long the others wait."""
    (simulation,), _, _ = load_simulations(file, [])
    rule_set = read_rules([DEFAULT_RULES]).rule_set
    pods, last = (
        play_simulation(variant, rule_set, DEFAULT_RULES.name).pods
        for variant in (simulation, replace(simulation, until=None))
    )
    running = Counter(sorted(pod.node for pod in pods if pod.state is State.RUNNING))
    waiting = {pod.name: pod for pod in pods if pod.state is State.PENDING}
    sentences = [
        *(f"{node} runs {number} of the pods" for node, number in running.items()),
        *(f"{pod.name} waits: {pod.message}" for pod in waiting.values()),
        *(
            f"{pod.name} runs on {pod.node} after {format_duration(bound - pod.arrived)}, when another pod has ended"
            for pod in last
            if pod.name in waiting and (bound := pod.bound) is not None
        ),
    ]
    command = f"gpu-rules simulate -f {file.name} --rules set:{DEFAULT_RULES.name}"
    console.print(Text(f"Simulated, as by {command}:"), soft_wrap=True)
    for sentence in sentences:
        console.print(Text(f"  {sentence}"), soft_wrap=True)
