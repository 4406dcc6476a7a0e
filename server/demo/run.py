"""`gpu-rules demo`: send the pods of each scenario to a real server over HTTPS, and show the results in tables.

The scheduling of the pods is simulated for a scenario with a load.
"""

import http.client
import json
import os
import signal
import ssl
import subprocess
import sys
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from types import FrameType
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rules_engine.kinds.ladder.value import WEBHOOK_ANNOTATION
from rules_engine.model.json.patch import Json
from rules_engine.model.rules.admission import pod_request
from rules_engine.sources.rule_files import DEFAULT_CLUSTER, DEFAULT_RULES
from server.demo.scenarios import SCENARIOS, Admission, Amounts, Load, Scenario
from server.demo.simulated import play_load
from server.http.review import API_VERSION, KIND

TIMEOUT_SECONDS = 30
"""Timeout of a server to start, to respond or to stop, on a busy machine."""


class DemoError(Exception):
    """A failure that ends the demo."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Result of one pod; `wrong` describes a difference from the expected result, None if there is none."""

    admission: Admission
    given: Mapping[str, Amounts]
    annotation: str | None
    milliseconds: float
    wrong: str | None = None


def run_demo(scenarios: Iterable[Scenario] = SCENARIOS) -> int:
    """Show every scenario. Return the exit code: 0 if all results are as expected."""
    before = signal.signal(signal.SIGTERM, _raise_interrupt)
    try:
        failures = _show_all(Console(), scenarios)
    except DemoError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("demo: interrupted; every server is stopped", file=sys.stderr)
        return 128 + signal.SIGINT
    finally:
        signal.signal(signal.SIGTERM, before)
    return 1 if failures else 0


def _raise_interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _show_all(console: Console, scenarios: Iterable[Scenario]) -> int:
    """Show the scenarios; return the number of unexpected results. Each inventory gets one server."""
    console.print("Each pod goes to a real server over HTTPS. Names are shown without nvidia.com/.")
    failures = 0
    with ExitStack() as stack:
        servers: dict[str, Server] = {}
        for scenario in scenarios:
            outcomes = []
            for admission in scenario.admissions:
                if admission.inventory not in servers:
                    servers[admission.inventory] = stack.enter_context(running_server(admission.inventory))
                outcomes.append(admit_pod(servers[admission.inventory], admission))
            show_table(console, scenario, outcomes)
            failures += sum(outcome.wrong is not None for outcome in outcomes)
            if scenario.load is not None:
                failures += show_load(console, scenario, scenario.load)
    if failures:
        console.print(f"\nUnexpected results: {failures}.", style="bold red")
    else:
        console.print("\nEvery pod has the expected result.", style="bold green")
    return failures


class Server:
    """Client of a server over one connection, which verifies its certificate with the CA that it wrote."""

    def __init__(self, url: str, ca: Path) -> None:
        address = urlsplit(url)
        context = ssl.create_default_context(cafile=str(ca))
        self._connection = http.client.HTTPSConnection(
            address.hostname or "", address.port, context=context, timeout=TIMEOUT_SECONDS
        )

    def close(self) -> None:
        self._connection.close()

    def review(self, path: str, namespace: str, pod: Json) -> tuple[dict[str, Any], float]:
        """Send a pod's AdmissionReview; return the response and its time in milliseconds. Raises DemoError."""
        uid = str(uuid4())
        request = pod_request(pod, uid=uid, user="demo", namespace=namespace)
        body = json.dumps({"apiVersion": API_VERSION, "kind": KIND, "request": request.raw})
        begin = perf_counter()
        status, answer = self._send(path, body)
        milliseconds = (perf_counter() - begin) * 1000
        if status != http.client.OK:
            raise DemoError(f"{path} answered {status}: {answer[:1000].decode(errors='replace')}")
        response: dict[str, Any] = json.loads(answer)["response"]
        if response["uid"] != uid:
            raise DemoError(f"{path} answered another request")
        return response, milliseconds

    def _send(self, path: str, body: str) -> tuple[int, bytes]:
        try:
            self._connection.request("POST", path, body, {"Content-Type": "application/json"})
            response = self._connection.getresponse()
            return response.status, response.read()
        except (OSError, http.client.HTTPException) as error:
            raise DemoError(f"the server did not answer: {error}") from None


@contextmanager
def running_server(inventory: str) -> Iterator[Server]:
    """Run `gpu-rules serve` with the packaged rules and one inventory until the block ends."""
    with TemporaryDirectory(prefix="gpu-rules-demo-") as folder, open_serve(inventory, Path(folder)) as url:
        server = Server(url, Path(folder) / "ca.crt")
        try:
            yield server
        finally:
            server.close()


@contextmanager
def open_serve(inventory: str, folder: Path) -> Iterator[str]:
    """Run the server's processes and yield the URL. Raises DemoError if the server does not start."""
    here = str(Path(__file__).parent.parent.parent)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GPU_RULES_")}
    # Without the current folder, which may have a module `server`; with ours, also if nothing is installed.
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (here, environment.get("PYTHONPATH"))))
    read_end, write_end = os.pipe()
    command = [sys.executable, "-P", "-m", "server", "serve", "--listen", "127.0.0.1:0", "--ready-fd", str(write_end)]
    command += ["--rules", str(DEFAULT_RULES), "--cluster", str(DEFAULT_CLUSTER.with_name(f"{inventory}.yaml"))]
    command += ["--tls-dir", str(folder)]
    log = folder / "log"
    process = None
    with os.fdopen(read_end, encoding="ascii") as readable:
        try:
            with log.open("wb") as stderr, _delay_signals():
                # In its own session: Ctrl-C interrupts only the demo, which then stops its servers.
                process = subprocess.Popen(  # noqa: S603 - our own command line
                    command,
                    env=environment,
                    pass_fds=[write_end],
                    stdin=subprocess.DEVNULL,
                    stdout=stderr,
                    stderr=stderr,
                    start_new_session=True,
                )
                os.close(write_end)
            url = readable.readline().strip()
            if not url:
                process.wait(TIMEOUT_SECONDS)
                raise DemoError(f"the server for {inventory} did not start:\n{log.read_text(errors='replace')}")
            yield url
        finally:
            if process is not None:
                with _delay_signals():
                    _end_process(process)


def _end_process(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGINT)
    try:
        process.wait(TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextmanager
def _delay_signals() -> Iterator[None]:
    """Delay signals to the end of the block: one during the start of a process would leave it running."""
    delayed: list[int] = []
    before = {number: signal.signal(number, lambda *_: delayed.append(1)) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if delayed:
        raise KeyboardInterrupt


def admit_pod(server: Server, admission: Admission) -> Outcome:
    """Send a pod as the API server does: to /mutate, and the patched pod to /validate."""
    manifest = admission.manifest()
    mutated, milliseconds = server.review("/mutate", admission.namespace, manifest)
    patch = json.loads(b64decode(mutated["patch"])) if "patch" in mutated else []
    pod = apply_patch(manifest, patch)
    outcome = Outcome(
        admission=admission,
        given=_container_amounts(pod, "limits"),
        annotation=pod["metadata"].get("annotations", {}).get(WEBHOOK_ANNOTATION),
        milliseconds=milliseconds,
    )
    if not mutated["allowed"]:
        return replace(outcome, wrong=f"denied: {mutated['status']['message']}")
    validated, _ = server.review("/validate", admission.namespace, pod)
    if not validated["allowed"]:
        return replace(outcome, wrong=f"denied after the patch: {validated['status']['message']}")
    return replace(outcome, wrong=_describe_difference(admission, outcome, _container_amounts(pod, "requests")))


def _describe_difference(admission: Admission, outcome: Outcome, requests: Mapping[str, Amounts]) -> str | None:
    if outcome.given != admission.given or requests != admission.given:
        return f"requests and limits must both be\n{_amounts_text(admission.given)}"
    if outcome.annotation != admission.fallback:
        return f"the annotation must be {admission.fallback or 'absent'}"
    return None


def apply_patch(document: Any, patch: list[dict[str, Any]]) -> Any:
    """Return a copy of the document with a JSON Patch of `add`, `replace` and `remove` applied."""
    result = json.loads(json.dumps(document))
    for operation in patch:
        *parents, last = [
            token.replace("~1", "/").replace("~0", "~") for token in operation["path"].removeprefix("/").split("/")
        ]
        node = result
        for token in parents:
            node = node[int(token)] if isinstance(node, list) else node[token]
        key = int(last) if isinstance(node, list) else last
        match operation["op"]:
            case "add" if isinstance(node, list):
                node.insert(key, operation["value"])
            case "remove":
                del node[key]
            case _:
                node[key] = operation["value"]
    return result


def _container_amounts(pod: dict[str, Any], member: str) -> dict[str, Amounts]:
    return {
        container["name"]: container.get("resources", {}).get(member, {}) for container in pod["spec"]["containers"]
    }


def _amounts_text(containers: Mapping[str, Amounts]) -> str:
    """Render one line for each amount, GPUs first, below the container's name if there are several."""
    lines = []
    for name, amounts in containers.items():
        indent = ""
        if len(containers) > 1:
            lines.append(f"{name}:")
            indent = "  "
        for resource, amount in sorted(amounts.items(), key=_gpus_first):
            lines.append(f"{indent}{resource.removeprefix('nvidia.com/')}: {amount}")
    return "\n".join(lines)


def _gpus_first(item: tuple[str, str]) -> tuple[bool, str]:
    return "/" not in item[0], item[0]


def show_table(console: Console, scenario: Scenario, outcomes: list[Outcome]) -> None:
    """Print a scenario's table."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    several = len({admission.inventory for admission in scenario.admissions}) > 1
    for name in ("pod", "requested", "given", "annotation"):
        table.add_column(name, overflow="fold")
    table.add_column("ms", justify="right")
    for outcome in outcomes:
        admission = outcome.admission
        table.add_row(
            f"{admission.pod}\n@ {admission.inventory}" if several else admission.pod,
            Text(_amounts_text(admission.requested)),
            Text(_amounts_text(outcome.given)),
            Text(outcome.annotation or "-"),
            f"{outcome.milliseconds:.1f}",
            style="red" if outcome.wrong else None,
        )
    console.print(Text(f"\n{scenario.title}", style="bold"))
    console.print(table)
    for outcome in outcomes:
        if outcome.wrong:
            console.print(Text(f"WRONG: {outcome.admission.pod}: {outcome.wrong}", style="bold red"), soft_wrap=True)


def show_load(console: Console, scenario: Scenario, load: Load) -> int:
    """Simulate and print the scheduling of the pods; return the number of unexpected results. Raises DemoError."""
    try:
        result = play_load(scenario, load)
    except ValueError as error:
        raise DemoError(str(error)) from None
    console.print(Text(f"Simulated, as by gpu-rules simulate -f {load.simulation}.yaml:"), soft_wrap=True)
    for sentence in result.sentences():
        console.print(Text(f"  {sentence}"), soft_wrap=True)
    for wrong in result.wrong:
        console.print(Text(f"WRONG: {load.simulation}: {wrong}", style="bold red"), soft_wrap=True)
    return len(result.wrong)
