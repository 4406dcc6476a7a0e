"""The pods that preflight makes of workloads are those of a real control plane of Kubernetes 1.36.

    KUBECONFIG=… pytest -m cluster tests/questions/preflight/test_real_created_pods.py

It needs kube-scheduler and kube-controller-manager, and no kubelets. The optional plugins ExtendedResourceToleration
and PodNodeSelector count if the API server has them. Each run has new cases, by its seed.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import pytest

from tests.support.authoring import cli
from tests.support.created_pod_cases import PodCase, PodCaseGenerator
from tests.support.real import REAL
from tests.support.real_created_pods import PLUGINS, RealCreatedPods, real_created_pods
from tests.support.real_preflight import Outcome, can_choose

Object = dict[str, Any]

pytestmark = REAL

CASES = 200
BATCH = 10
"""Cases of one test; a failure names its seed."""

RULE = """\
apiVersion: gpurules.io/v1
kind: Validation
metadata: {name: none}
spec:
  match: {objectSelector: {matchLabels: {label: of-no-pod}}}
  validations: [{expression: 'false', message: none}]
"""
"""A rule that matches no pod: the control plane has no webhook."""

MAX_UNKNOWN = 5
"""Cases of one test whose answer may be unknown."""


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCreatedPods]:
    folder = tmp_path_factory.mktemp("created-pods")
    (folder / "rules.yaml").write_text(RULE)
    with real_created_pods(folder) as made:
        yield made


@pytest.mark.parametrize("first", range(0, CASES, BATCH))
def test_pods_are_created_and_start_as_preflight_says(real: RealCreatedPods, run_seed: int, first: int) -> None:
    results: Counter[str] = Counter()
    wrong = []
    for number in range(first, first + BATCH):
        seed = f"{run_seed}-{number}"
        real.name_namespaces(number)
        selects_nodes = PLUGINS[1] in real.plugins
        generator = PodCaseGenerator(Random(seed), real.prefix, real.namespace, real.other, selects_nodes=selects_nodes)
        answer, differences = compared(real, generator.case())
        wrong += [f"seed {seed}: {line}" for line in differences]
        verdict = "Unknown" if _is_unknown(answer) else str(answer["verdict"])
        results[f"different: {verdict}" if differences else verdict] += 1
        if verdict == "Unknown":
            print(f"seed {seed}: {answer['unknown']} {answer['notices']}")
    print("\n".join([f"cases {run_seed}-{first}…: {dict(results)}", *wrong]))
    assert wrong == []
    assert results["Unknown"] <= MAX_UNKNOWN


def compared(real: RealCreatedPods, case: PodCase) -> tuple[Object, Sequence[str]]:
    """Return the answer for a case, and its differences from what happens; () if the answer is unknown."""
    manifest = real.folder / "manifest.json"
    manifest.write_text(json.dumps(case.manifest))
    rules = real.folder / "rules.yaml"
    with real.cluster(case) as cluster:
        files = (manifest, cluster, [rules])
        options = ("--admission", PLUGINS[0]) if case.plugin and PLUGINS[0] in real.plugins else ()
        arguments = ("-f", manifest, "--rules", rules, "--cluster", cluster, "--output", "json")
        ended = cli("preflight", *arguments, *options)
        assert ended.exit_code in (0, 1, 3), ended.output
        (answer,) = json.loads(ended.stdout)["workloads"]
        if _is_unknown(answer):
            return answer, ()
        outcome = real.applied(case, one_by_one=len(answer["evicted"]) > 1 or _claims_volume(case.manifest))
        # Taints that only the plugin tolerates are in the scheduler's message; LimitRanges refuse in no order.
        unsaid = ["message"] if PLUGINS[0] in real.plugins and not options else []
        if sum(item["kind"] == "LimitRange" for item in case.objects) > 1:
            unsaid.append("refusal")
        differences = [line for line in _differences(answer, outcome) if line.partition(":")[0] not in unsaid]
        nodes = Counter(outcome.nodes.values())
        if not differences and nodes != answer["starts"]:
            plugins = {PLUGINS[0]} if options else set()
            shown = {*answer["starts"], *answer["equalNodes"]}
            same = {*nodes} <= shown if answer["evicted"] else can_choose(*files, real.namespace, outcome, plugins)
            if not same:
                differences.append(f"nodes {outcome.nodes}: {answer['starts']} {answer['equalNodes']}")
        if differences:
            differences.append(json.dumps(case.manifest))
        return answer, differences


def _claims_volume(manifest: Object) -> bool:
    """Return True if pods share a claim: kube-scheduler tries to bind it for each pod that is created meanwhile."""
    pod = manifest["spec"].get("template", manifest)
    return any("persistentVolumeClaim" in volume for volume in pod["spec"].get("volumes", ()))


def _is_unknown(answer: Object) -> bool:
    """Return True if the verdict, the number or the nodes are said to be unknown."""
    return answer["verdict"] == "Unknown" or any(PLUGINS[0] in each for each in answer["notices"])


def _differences(answer: Object, outcome: Outcome) -> Iterator[str]:
    counts: Counter[str] = Counter()
    for stopped in answer["stopped"]:
        counts[stopped["verdict"]] += stopped["pods"]
    predicted = (answer["started"], counts["Waits"] + counts["Never"], counts["Denied"] + counts["Refused"])
    happened = (len(outcome.nodes), len(outcome.waiting), outcome.refused)
    if predicted != happened:
        yield f"starts, waits, refused: predicted {predicted}, happened {happened}: {answer} {outcome}"
        return
    if sorted(answer["evicted"]) != outcome.victims:
        yield f"victims: predicted {answer['evicted']}, happened {outcome.victims}"
    messages = [each["message"] for each in answer["stopped"] if each["verdict"] in ("Waits", "Never")]
    for message in {*outcome.waiting.values()}:
        if not any(message == each or message.startswith(f"{each} ") for each in messages):
            yield f"message: predicted {messages}, happened {message}"
    refusals = [each["message"] for each in answer["stopped"] if each["verdict"] == "Refused"]
    refusal = re.sub(r"/new-[0-9a-f]+-$", "/new-", outcome.refusal)
    if outcome.refusal and not any(refusal.endswith(each) for each in refusals):
        yield f"refusal: predicted {refusals}, happened {outcome.refusal}"
