"""The answer of preflight is what happens when the workload is applied to a real control plane of Kubernetes 1.36.

    KUBECONFIG=… WEBHOOK_CLIENT_CA=… pytest -m cluster tests/questions/preflight

It needs kube-scheduler and kube-controller-manager, and no kubelets.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.support.authoring import cli
from tests.support.changed_manifests import change_pod
from tests.support.preflight_cases import FREE_DEVICES, Case, CaseGenerator
from tests.support.real import REAL
from tests.support.real_preflight import Outcome, RealPreflight, can_choose, real_preflight

Object = dict[str, Any]

pytestmark = REAL

CASES = 200
BATCH = 10
"""Cases of one test; a failure names its seed."""


ATTEMPTS = 3
"""Attempts to start a changed workload: kube-scheduler chooses among equal nodes, and some choices leave less room."""


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealPreflight]:
    with real_preflight(tmp_path_factory.mktemp("preflight")) as made:
        yield made


@pytest.mark.parametrize("first", range(0, CASES, BATCH))
def test_workloads_start_as_preflight_says(real: RealPreflight, first: int) -> None:
    wrong = [line for seed in range(first, first + BATCH) for line in Compared(real, seed).differences()]
    assert wrong == []


class Compared:
    """A case, for which the answer of preflight is compared with what happens."""

    def __init__(self, real: RealPreflight, seed: int) -> None:
        self._real = real
        self._seed = seed
        self.retries = 0
        # Nodes have names of their own: pods that a quota refused in the case before still hold devices on its nodes.
        nodes = f"{real.prefix}{seed}-n"
        generator = CaseGenerator(Random(seed), real.prefix, nodes, real.namespace, real.other)
        self.case: Case = generator.case()

    def differences(self) -> Iterator[str]:
        """Yield the differences between the answer and what happens, then those of the changes."""
        case = self.case
        with self._real.cluster(case) as cluster:
            self.answer = answer = self._preflight(cluster)
            self.outcome = self._apply(deepcopy(case.manifest), case.replicas)
            for line in self._compare(answer, self.outcome):
                yield f"seed {self._seed}: {line}"
            for change in answer["wouldStart"]:
                manifest, replicas = self._changed(change)
                assert replicas == change["pods"]
                for _ in range(ATTEMPTS):
                    if change["ends"]:
                        self._real.end(change["ends"])
                    outcome = self._apply(deepcopy(manifest), replicas)
                    if len(outcome.nodes) == replicas:
                        break
                    self.retries += 1
                else:
                    yield f"seed {self._seed}: {change['text']}: {outcome}"

    def _apply(self, manifest: Object, replicas: int) -> Outcome:
        pod = manifest["spec"].get("template", manifest)
        # A pod that preempts does not see yet that the victims of another one are gone.
        one_by_one = pod["metadata"]["labels"].get("ladder") in FREE_DEVICES or len(self.answer["evicted"]) > 1
        return self._real.applied(manifest, replicas, one_by_one=one_by_one)

    def _preflight(self, cluster: Path) -> Object:
        manifest = self._real.folder / "manifest.json"
        manifest.write_text(json.dumps(self.case.manifest))
        self._files = manifest, cluster
        ended = cli("preflight", "-f", manifest, "--rules", self._real.rules, "--cluster", cluster, "--output", "json")
        assert ended.exit_code in (0, 1, 3), ended.output  # no pods of kube-system were read
        document = json.loads(ended.stdout)
        assert document["startedBefore"] == {}
        (answer,) = document["workloads"]
        return dict(answer)

    def _compare(self, answer: Object, outcome: Outcome) -> Iterator[str]:
        counts: Counter[str] = Counter()
        for stopped in answer["stopped"]:
            counts[stopped["verdict"]] += stopped["pods"]
        predicted = (answer["started"], counts["Waits"] + counts["Never"], counts["Denied"] + counts["Refused"])
        happened = (len(outcome.nodes), len(outcome.waiting), outcome.refused)
        if predicted != happened:
            yield f"starts, waits, refused: predicted {predicted}, happened {happened}: {answer} {outcome}"
            return
        shown = {*answer["starts"], *answer["equalNodes"]}
        if not shown >= {*outcome.nodes.values()} and not can_choose(
            *self._files, [self._real.rules], self._real.namespace, outcome
        ):
            yield f"nodes {outcome.nodes}: {answer['starts']} {answer['equalNodes']}"
        if sorted(answer["evicted"]) != outcome.victims:
            yield f"victims: predicted {answer['evicted']}, happened {outcome.victims}"
        messages = [each["message"] for each in answer["stopped"] if each["verdict"] in ("Waits", "Never")]
        for message in {*outcome.waiting.values()}:
            if not any(message == each or message.startswith(f"{each} ") for each in messages):
                yield f"message: predicted {messages}, happened {message}"
        refusals = [each["message"] for each in answer["stopped"] if each["verdict"] in ("Denied", "Refused")]
        # The names of pods of a Deployment begin with a hash of their template.
        refusal = re.sub(r"/new-[0-9a-f]+-$", "/new-", outcome.refusal)
        if outcome.refusal and not any(refusal.endswith(each) for each in refusals):
            yield f"refusal: predicted {refusals}, happened {outcome.refusal}"
        for move in answer["moves"]:
            moved = sum(count for gpus, count in outcome.given.items() if gpus.endswith(f" {move['given']}"))
            if not outcome.refused and moved < move["pods"]:
                yield f"moves: predicted {answer['moves']}, happened {outcome.given}"

    def _changed(self, change: Object) -> tuple[Object, int]:
        """Return the manifest with a change that its text describes, as a user would edit it, and its replicas."""
        manifest, replicas, text = deepcopy(self.case.manifest), self.case.replicas, change["text"]
        spec = manifest["spec"]
        pod = spec["template"]["spec"] if "template" in spec else spec
        match change["kind"]:
            case "Replicas":
                field, count = re.fullmatch(r"with (\w+): (\d+)", text).groups()  # type: ignore[union-attr]
                assert field in spec, text
                spec[field] = replicas = int(count)
            case "Ends":
                pass
            case _:
                change_pod(pod, text)
        return manifest, replicas
