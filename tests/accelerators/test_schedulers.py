"""Resources and annotations that only one scheduler understands."""

from typing import Any

import pytest

from rules_engine.accelerators.catalogue import catalogue
from rules_engine.accelerators.resources import is_gpu, requests_gpus_by_annotation, scheduler_for


@pytest.mark.parametrize(
    ("resource", "scheduler"),
    [
        *((f"nvidia.com/{name}", "hami-scheduler") for name in ("gpumem", "gpumem-percentage", "gpucores", "priority")),
        ("hygon.com/dcunum", "hami-scheduler"),
        ("koordinator.sh/gpu-core", "koord-scheduler"),
        ("koordinator.sh/gpu-memory-ratio", "koord-scheduler"),
        ("volcano.sh/vgpu-number", "volcano"),
        ("nvidia.com/gpu", ""),
        ("nvidia.com/mig-1g.5gb", ""),
        ("aliyun.com/gpu-mem", ""),
        ("NVIDIA.com/gpumem", ""),
        ("gpumem", ""),
    ],
)
def test_the_scheduler_that_alone_allocates_a_resource(resource: str, scheduler: str) -> None:
    found = scheduler_for(resource)
    assert (found.name if found else "") == scheduler
    assert found is None or found.webhook


FRACTION = {"gpu-fraction": "0.5"}


@pytest.mark.parametrize(
    ("scheduler", "annotations", "requested"),
    [
        ("kai-scheduler", FRACTION, FRACTION),
        ("runai-scheduler", {**FRACTION, "other": "1"}, FRACTION),
        ("kai-scheduler", {"gpu-memory": "2000"}, {"gpu-memory": "2000"}),
        ("kai-scheduler", {"gpu-fraction": 0.5}, {}),
        ("kai-scheduler", None, {}),
        ("default-scheduler", FRACTION, {}),
        (None, FRACTION, {}),
        (["kai-scheduler"], FRACTION, {}),
    ],
)
def test_annotations_by_which_a_pod_requests_gpus_of_its_scheduler(
    scheduler: Any, annotations: Any, requested: dict[str, str]
) -> None:
    pod = {"metadata": {"annotations": annotations}, "spec": {"schedulerName": scheduler}}
    assert requests_gpus_by_annotation(pod) == requested
    assert requests_gpus_by_annotation({"metadata": [], "spec": "x"}) == {}


def test_a_scheduler_is_asked_by_a_resource_or_by_an_annotation() -> None:
    assert all(each.resources or each.annotations for each in catalogue().schedulers)
    assert not any(map(is_gpu, ("nvidia.com/gpumem", "volcano.sh/vgpu-memory")))
