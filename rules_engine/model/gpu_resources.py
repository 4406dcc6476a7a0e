"""Names of GPU resources: whole cards, MIG devices and shared ones, of every vendor."""

_DOMAINS = ("nvidia.com", "amd.com", "gpu.intel.com", "habana.ai")


def is_gpu(resource: str) -> bool:
    """Return True for the name of a resource that GPUs are allocated by."""
    domain, slash, name = resource.partition("/")
    return bool(slash) and not is_rdma(resource) and (domain in _DOMAINS or "gpu" in name.lower())


def is_rdma(resource: str) -> bool:
    """Return True for the name of a resource of RDMA devices."""
    domain, slash, name = resource.partition("/")
    return bool(slash) and (domain in ("rdma", "mellanox.com") or "rdma" in name.lower() or "hca" in name.lower())


def is_mig(resource: str) -> bool:
    """Return True for the name of a MIG device's resource."""
    return resource.startswith("nvidia.com/mig-")
