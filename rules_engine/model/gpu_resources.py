"""Names of GPU resources: whole cards, MIG devices and shared ones, of every vendor."""

import re
from functools import lru_cache

_GPU_DOMAINS = ("nvidia.com", "amd.com", "gpu.intel.com", "habana.ai")

_NO_DEVICES = ("nvidia.com/shm",)
"""Resources in these domains that are not devices: shared memory, an amount in bytes that rules inject."""

_RDMA_DOMAINS = ("rdma", "mellanox.com")

_RDMA_WORDS = re.compile(
    r"rdma|hostdev|sriov|mlnx|mlx|infiniband|resib|(?<![a-z])(?:hca|roce|efa)(?![a-z])", re.IGNORECASE
)
"""Parts of the names of network devices; in the domain nvidia.com, the Network Operator sets these names."""


CACHED_NAMES = 1_000
"""Names of resources that are cached: a cluster has some dozens of them, in each of its pods."""


@lru_cache(CACHED_NAMES)
def is_gpu(resource: str) -> bool:
    """Return True for the name of a resource of GPUs."""
    domain, slash, name = resource.partition("/")
    if not slash or is_rdma(resource) or resource in _NO_DEVICES:
        return False
    return domain in _GPU_DOMAINS or "gpu" in name.lower()


def is_rdma(resource: str) -> bool:
    """Return True for the name of a resource of RDMA devices."""
    domain, slash, name = resource.partition("/")
    return bool(slash) and (domain in _RDMA_DOMAINS or _RDMA_WORDS.search(name) is not None)


def is_mig(resource: str) -> bool:
    """Return True for the name of a MIG device's resource."""
    return resource.startswith("nvidia.com/mig-")


def short_name(resource: str) -> str:
    """Return a name without `nvidia.com/` and `mig-`; other vendors' names stay whole."""
    if not resource.startswith("nvidia.com/"):
        return resource
    return resource.removeprefix("nvidia.com/").removeprefix("mig-")
