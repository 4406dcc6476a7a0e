"""Names of resources: cards, partitions and shares of cards of every vendor, and RDMA devices."""

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from fractions import Fraction
from functools import lru_cache

from rules_engine.accelerators.catalogue import MIG_RESOURCE, Catalogue, Scheduler, catalogue
from rules_engine.accelerators.mig import mig_share
from rules_engine.model.json.lenient import Object, as_mapping, as_string_map

CACHED_NAMES = 1_000
"""Names of resources that are cached: a cluster has some dozens of them, in each of its pods."""

WHOLE_GPU = "nvidia.com/gpu"
"""The resource of whole cards of NVIDIA; with the MIG strategy single, of MIG devices."""


def is_gpu(resource: str) -> bool:
    """Return True for the name of a resource of accelerators: cards, partitions or shares, not parts such as memory."""
    return card_share(resource) > 0


def gpu_globs() -> frozenset[str]:
    """Return names and globs that match the resources of accelerators, and few others."""
    vendors = catalogue().vendors
    domains = [f"{domain}/*" for each in vendors for domain in each.domains]
    named = {"*gpu*", *domains, *(name for each in vendors for name in (*each.resources, *each.shares))}
    return frozenset(name for name in named if not any(name != each and fnmatchcase(name, each) for each in named))


def is_rdma(resource: str) -> bool:
    """Return True for the name of a resource of RDMA devices."""
    domain, slash, name = resource.partition("/")
    return bool(slash) and any(
        domain in each.domains or re.search(each.words, name, re.IGNORECASE) for each in catalogue().networks
    )


def is_mig(resource: str) -> bool:
    """Return True for the name of a MIG device's resource."""
    return resource.startswith(MIG_RESOURCE)


def scheduler_for(resource: str) -> Scheduler | None:
    """Return the only scheduler that allocates a resource; None for a resource that any scheduler allocates."""
    return next(
        (each for each in catalogue().schedulers if any(fnmatchcase(resource, p) for p in each.resources)), None
    )


def requests_gpus_by_annotation(pod: Object) -> Mapping[str, str]:
    """Return the annotations by which a pod requests GPUs of the scheduler that it names, as gpu-fraction of KAI."""
    scheduler = as_mapping(pod.get("spec")).get("schedulerName")
    names = [name for each in catalogue().schedulers if each.name == scheduler for name in each.annotations]
    annotations = as_string_map(as_mapping(pod.get("metadata")).get("annotations")) if names else {}
    return {name: annotations[name] for name in names if name in annotations}


def short_name(resource: str) -> str:
    """Return a name without `nvidia.com/` and `mig-`; other vendors' names stay whole."""
    return resource.removeprefix(MIG_RESOURCE).removeprefix("nvidia.com/")


def card_share(resource: str) -> Fraction:
    """Return the share of a card that a device of a resource has; 1 for a whole card, 0 for no device.

    If cards are divided differently, the one with most parts counts. A device that is shared in time counts as the
    device itself.
    """
    return _find_share(resource, catalogue())


@lru_cache(CACHED_NAMES)
def _find_share(resource: str, known: Catalogue) -> Fraction:
    _, slash, name = resource.partition("/")
    if not slash or is_rdma(resource):
        return Fraction(0)
    if is_mig(resource):
        return mig_share(resource)
    share = next((share for pattern, share in known.shares if pattern.match(resource)), None)
    return share if share is not None else Fraction("gpu" in name.lower())
