"""Pods with ResourceClaims start as preflight says on a real control plane of Kubernetes 1.36, without drivers.

    KUBECONFIG=… SEED=1 pytest -s -m cluster tests/questions/preflight/test_real_claims.py

It needs kube-scheduler and kube-controller-manager with the feature gate DRADeviceTaintRules, with which kube-scheduler
panics up to 1.36.2. A difference names the files of the pod and its cluster; the table counts what the pods used.
"""

import json
import os
import re
import secrets
from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from rules_engine.cluster.scheduling.scheduling import FAILURE_START
from tests.support.authoring import cli
from tests.support.claim_clusters import ClaimGenerator
from tests.support.real import REAL
from tests.support.real_claims import RealClaims, real_claims
from tests.support.real_scheduler import Attempt

Object = dict[str, Any]

pytestmark = REAL

SEED = int(os.environ.get("SEED") or secrets.randbelow(10**6))
CLUSTERS = int(os.environ.get("CLUSTERS", "6"))
PODS = 50
"""Pods of a cluster, created one after another."""

ENDING = 10
"""Pods after which half of the bound ones end."""

OTHER_NAMESPACES = "pods of other namespaces, which were not read"
"""Since there are none, not even in kube-system."""

USES = {
    "template": "resourceClaimTemplateName",
    "claim by name": "resourceClaimName",
    "several claims": '"name": "r1"',
    "several requests": '{"name": "q"',
    "firstAvailable": "firstAvailable",
    "All": '"All"',
    "several devices": '"count": 2',
    "selectors": "selectors",
    "tolerations": "tolerations",
    "adminAccess": "adminAccess",
    "capacity.requests": '"capacity"',
    "matchAttribute": "matchAttribute",
    "distinctAttribute": "distinctAttribute",
    "extended resource": "nvidia.com/gpu",
    "no such claim or template": 'missing"}',
    "no such class": "-missing",
}
"""Parts of the JSON of a pod and its claims, by what they show."""


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealClaims]:
    with real_claims(tmp_path_factory.mktemp("claims")) as made:
        yield made


@pytest.fixture(scope="module")
def counted() -> Iterator[Counter[tuple[str, bool]]]:
    """Count pods by what they use and whether they are bound; at the end, print the counts."""
    counts: Counter[tuple[str, bool]] = Counter()
    yield counts
    print(f"\nSEED={SEED}\n{'':28}{'bound':>6}{'not':>6}")
    for what in dict.fromkeys(key for key, _ in counts):
        print(f"{what:28}{counts[what, True]:6}{counts[what, False]:6}")


@pytest.mark.parametrize("number", range(CLUSTERS))
def test_pods_with_claims_start_as_preflight_says(
    real: RealClaims, counted: Counter[tuple[str, bool]], number: int
) -> None:
    name = f"s{SEED + number}"
    random = Random(SEED + number)
    made = ClaimGenerator(random, f"{real.namespace}-{name}-")
    bound: list[str] = []
    wrong = []
    with real.cluster(made, name):
        for created in range(PODS):
            if created % ENDING == ENDING - 1:
                random.shuffle(bound)
                ending = [bound.pop() for _ in range(len(bound) // 2)]
                real.end(ending, f"{name}-{created}")
            pod = made.pod(f"{name}-p{created}")
            pod["metadata"]["namespace"] = real.namespace
            files = real.write(pod, pod["metadata"]["name"])
            ended = cli("preflight", "-f", files[0], "--cluster", files[1], "--output", "json")
            assert ended.exit_code in (0, 1, 3), ended.output
            (answer,) = json.loads(ended.stdout)["workloads"]
            attempt = real.attempt(pod, exists="missing" not in json.dumps(pod))
            if attempt.node:
                bound.append(pod["metadata"]["name"])
            _count(counted, real, made, pod, attempt)
            wrong += [f"{' '.join(map(str, files))}: {each}" for each in _differences(answer, attempt)]
    assert not wrong, "\n".join(wrong)


def _differences(answer: Object, attempt: Attempt) -> Iterator[str]:
    unknown = [each for each in answer["unknown"] if each != OTHER_NAMESPACES]
    if unknown or answer["started"] != bool(attempt.node):
        yield f"{answer['verdict']} {unknown}, happened {attempt.node or attempt.message}"
    elif attempt.node:
        shown = {*answer["starts"], *answer["equalNodes"]}
        if attempt.node not in shown:
            yield f"node {attempt.node}, not one of {sorted(shown)}"
    else:
        (stopped,) = answer["stopped"]
        # A failure of the real scheduler names the claim, whose name is generated.
        happened = re.sub(r"claim \S+, request \S+: ", "", attempt.message)
        failed = FAILURE_START in happened and FAILURE_START in stopped["message"]  # nodes are tried in any order
        if happened and not failed and not f"{happened} ".startswith(f"{stopped['message']} "):
            yield f"message {stopped['message']}, happened {attempt.message}"


def _count(
    counts: Counter[tuple[str, bool]], real: RealClaims, made: ClaimGenerator, pod: Object, attempt: Attempt
) -> None:
    bound = bool(attempt.node)
    spec = pod["spec"]
    text = json.dumps([spec["containers"], spec.get("resourceClaims"), made.specs(pod)])
    counts["pods", bound] += 1
    counts.update((what, bound) for what, part in USES.items() if part in text)
    if bound:
        kinds = {device.partition("-")[0] for device in real.devices_of(pod["metadata"]["name"])}
        counts.update((f"device {kind}", True) for kind in kinds)
