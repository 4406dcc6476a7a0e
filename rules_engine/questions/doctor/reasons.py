"""Built-in reasons of findings, in the order of their evaluation: the first reason that is true is the finding.

docs/reference/diagnostics.md is generated from the docstrings of the members.
"""

from enum import StrEnum


class PendingReason(StrEnum):
    """Reasons why a GPU pod is not scheduled."""

    TOO_MANY_DEVICES = "TooManyDevicesInClaim"
    """A node would serve more than 32 devices in one ResourceClaim, for which the scheduler gives up the pod."""
    SELECTOR_FAILS = "DeviceSelectorFails"
    """A selector of a DeviceClass fails on a device, for which the scheduler gives up the pod."""
    DEVICES_TAINTED = "DevicesTainted"
    """A DeviceClass serves the resource, but its devices are tainted."""
    POOL_UNUSABLE = "DevicePoolNotUsed"
    """A DeviceClass serves the resource, but its devices are in pools with missing, old or invalid slices."""
    CLASS_SHADOWED = "DeviceClassShadowed"
    """A DeviceClass serves the resource, but its devices match an older class of that `extendedResourceName`."""
    NO_DEVICE = "NoDeviceOfClass"
    """A DeviceClass serves the resource, but no device matches it; *possible* if no ResourceSlice was read."""
    RESOURCE_ON_NO_NODE = "GPUResourceOnNoNode"
    """No node and no DeviceClass offers the resource, such as a MIG profile."""
    WRONG_MIG_STRATEGY = "WrongMIGStrategy"
    """Nodes offer the devices under the names of another MIG strategy."""
    TAINT = "UntoleratedTaint"
    """All nodes that offer the resource have taints that the pod does not tolerate."""
    SELECTOR_OR_AFFINITY = "NodeSelectorOrAffinity"
    """The node selector or the required affinity excludes all nodes that are left."""
    CORDON = "NodesCordoned"
    """All nodes that are left are cordoned."""
    NOT_READY = "NodesNotReady"
    """All nodes that are left are not Ready; *possible*, like the reasons below, until they are tainted."""
    COUNTERS_EXHAUSTED = "DeviceCountersExhausted"
    """Free devices of drivers lack counters, such as memory, which other partitions of their cards use."""
    DEVICES_ALLOCATED = "DevicesAllocated"
    """Too few devices of drivers are free: which claims hold them, and for which pods."""
    ALL_ALLOCATED = "GPUsAllocated"
    """Too few devices are free: which pods hold them, and since when."""
    ON_NO_SINGLE_NODE = "GPUsOnNoSingleNode"
    """Enough devices are free in sum, but on no single node. Precedes the taints if no node has enough without pods."""
    OTHER_RESOURCES = "OtherResourcesExhausted"
    """GPUs are free, but cpu, memory or another resource beside them is not."""
    OTHER_FILTERS = "OtherSchedulerFilters"
    """Another filter excludes the nodes with free GPUs: spread constraints, affinity between pods, or ports."""
    CLAIM_MISSING = "ResourceClaimMissing"
    """A ResourceClaim of the pod does not exist, is being deleted, or was not created from its template."""
    CLAIM_ELSEWHERE = "ResourceClaimOnOtherNodes"
    """A ResourceClaim of the pod is allocated on nodes that lack other resources."""
    SCHEDULING_GATES = "SchedulingGates"
    """The pod has scheduling gates, so that the scheduler does not look at it."""
    VOLUME_CLAIMS = "UnboundVolumeClaims"
    """A volume claim of the pod is not bound; *possible* if its storage class may bind it once the pod has a node."""
    SCHEDULER_MESSAGE = "SchedulerMessage"
    """No other reason is known: the finding is the scheduler's message; *possible* if the cluster has changed."""
    NO_SCHEDULER_MESSAGE = "NoSchedulerMessage"
    """No other reason and no message is known: the pod is new, or its scheduler does not run. Always *possible*."""


class NeverCreatedReason(StrEnum):
    """Reasons why the pods of a workload were never created."""

    QUOTA = "QuotaExceeded"
    """A ResourceQuota of the namespace is exhausted."""
    DENIED_BY_RULE = "DeniedByRule"
    """A rule of gpu-rules denied the pod."""
    DENIED_BY_WEBHOOK = "DeniedByWebhook"
    """Another admission webhook denied the pod."""
    WEBHOOK_FAILED = "WebhookCallFailed"
    """An admission webhook did not answer."""
    OTHER = "PodsNotCreated"
    """Anything else; the event has the message."""


class RefusedReason(StrEnum):
    """Reasons why the kubelet of a node refused a pod that was scheduled to it."""

    SHARED_GPUS = "SharedGPUsRequested"
    """The pod requests several shared GPUs, which the configuration of time-slicing forbids."""
    TOPOLOGY = "TopologyNotAligned"
    """The topology manager found no aligned set of cpus and devices."""
    DEVICES_UNAVAILABLE = "DevicesUnavailable"
    """The node had fewer healthy devices than the scheduler assumed."""
    OTHER = "RefusedByNode"
    """Anything else; the status of the pod has the message."""


class NativeReason(StrEnum):
    """Reasons of findings about objects with which the API server evaluates rules itself."""

    OFFERS_INCOMPLETE = "GPUOffersIncomplete"
    """GPUOffers leave out a rule: a ladder changes no pod, and checks that read amounts fail."""
