"""Scenarios of `gpu-rules demo`, with their expected results.

The first six are the tests of the GPU allocation webhook that this project replaces; the seventh shows resource
injection. They are written for the packaged set `gpu-allocation` and the packaged inventories.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from rules_engine.kinds.injection.value import GPU_TYPE_ANNOTATION
from rules_engine.model.json.patch import EMPTY, Json

Amounts = Mapping[str, str]
"""Resource name to canonical quantity."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """One pod sent to a server with one inventory, and the expected amounts of each container, by name.

    Requests and limits have the same amounts. `fallback` is the expected value of the annotation, or None.
    """

    pod: str
    inventory: str
    requested: Mapping[str, Amounts]
    given: Mapping[str, Amounts]
    fallback: str | None = None
    namespace: str = "default"
    annotations: Mapping[str, str] = field(default_factory=lambda: EMPTY)

    def manifest(self) -> dict[str, Json]:
        """Return the Pod as the API server sends it: with requests equal to limits."""
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": self.pod, "namespace": self.namespace, "annotations": dict(self.annotations)},
            "spec": {
                "restartPolicy": "Never",
                "containers": [
                    {
                        "name": name,
                        "image": "registry.example/cuda-sample:12.4",
                        "resources": {"requests": dict(amounts), "limits": dict(amounts)},
                    }
                    for name, amounts in self.requested.items()
                ],
            },
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The pods of a scenario as the packaged Simulation of this name, and the expected result at its end.

    `running`: number of running pods by node. `waiting`: names of the pods that wait, each with the scheduler's
    `message`, until others have ended.
    """

    simulation: str
    running: Mapping[str, int]
    waiting: tuple[str, ...]
    message: str


@dataclass(frozen=True, slots=True)
class Scenario:
    """A heading and the pods under it; `load`: the expected scheduling of these pods, which is simulated."""

    title: str
    admissions: tuple[Admission, ...]
    load: Load | None = None


WHOLE = "nvidia.com/gpu"
MIG_1G = "nvidia.com/mig-1g.10gb"
MIG_2G = "nvidia.com/mig-2g.20gb"
MIG_3G = "nvidia.com/mig-3g.30gb"


def _ladder_admission(pod: str, inventory: str, requested: str, given: str, fallback: str | None) -> Admission:
    return Admission(
        pod=pod,
        inventory=inventory,
        requested={"cuda": {requested: "1"}},
        given={"cuda": {given: "1"}},
        fallback=fallback,
    )


def _v100_admission(
    pod: str, given: Mapping[str, Amounts], *, namespace: str = "default", beside: Amounts | None = None
) -> Admission:
    requested: dict[str, Amounts] = {"train": {WHOLE: "2"}}
    if beside is not None:
        requested["log-shipper"] = beside
    return Admission(
        pod=pod,
        inventory="two-workers",
        namespace=namespace,
        annotations={GPU_TYPE_ANNOTATION: "V100"},
        requested=requested,
        given=given,
    )


SCENARIOS = (
    Scenario(
        "1  No MIG anywhere: the pod gets a whole GPU",
        (_ladder_admission("gpu-test", "two-workers", MIG_2G, WHOLE, "2g.20gb->gpu"),),
    ),
    Scenario(
        "2  Ten such pods: all are admitted with a whole GPU; eight run, two wait until others end",
        tuple(_ladder_admission(f"gpu-test-{n}", "two-workers", MIG_2G, WHOLE, "2g.20gb->gpu") for n in range(1, 11)),
        Load(
            simulation="ten-pods",
            running={"gpu-sim-cluster-worker": 4, "gpu-sim-cluster-worker2": 4},
            waiting=("gpu-test-9", "gpu-test-10"),
            message="0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient nvidia.com/gpu.",
        ),
    ),
    Scenario(
        "3  No 2g.20gb but 1g.10gb: one rung down",
        (_ladder_admission("gpu-test", "mig-1g", MIG_2G, MIG_1G, "2g.20gb->1g.10gb"),),
    ),
    Scenario(
        "4  The requested resource is offered: nothing changes",
        (_ladder_admission("gpu-test", "mig-3g-2g", MIG_2G, MIG_2G, None),),
    ),
    Scenario(
        "5  No 1g.10gb but 2g.20gb: one rung up",
        (_ladder_admission("gpu-test", "mig-2g", MIG_1G, MIG_2G, "1g.10gb->2g.20gb"),),
    ),
    Scenario(
        "6  One pod, three sites: with 3g.30gb, with 2g.20gb and 1g.10gb, without MIG",
        (
            _ladder_admission("train", "mig-3g-2g", MIG_3G, MIG_3G, None),
            _ladder_admission("train", "mig-2g-1g", MIG_3G, MIG_2G, "3g.30gb->2g.20gb"),
            _ladder_admission("train", "two-workers", MIG_3G, WHOLE, "3g.30gb->gpu"),
        ),
    ),
    Scenario(
        "7  V100: cpu and memory in proportion to the GPUs (4000m and 8Gi each)",
        (
            _v100_admission("two-gpus", {"train": {WHOLE: "2", "cpu": "8", "memory": "16Gi"}}),
            _v100_admission(
                "two-containers",
                {"train": {WHOLE: "2", "cpu": "7", "memory": "14Gi"}, "log-shipper": {"cpu": "1000m", "memory": "2Gi"}},
                beside={"cpu": "1000m", "memory": "2Gi"},
            ),
            _v100_admission(
                "in-gpu-training", {"train": {WHOLE: "2", "cpu": "12", "memory": "24Gi"}}, namespace="gpu-training"
            ),
        ),
    ),
)
