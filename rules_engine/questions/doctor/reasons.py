"""Reasons of the catalogue of findings that code finds."""

from enum import StrEnum


class PendingReason(StrEnum):
    """Reasons why a GPU pod is not scheduled."""

    TOO_MANY_DEVICES = "TooManyDevicesInClaim"
    SELECTOR_FAILS = "DeviceSelectorFails"
    DEVICES_TAINTED = "DevicesTainted"
    POOL_UNUSABLE = "DevicePoolNotUsed"
    CLASS_SHADOWED = "DeviceClassShadowed"
    NO_DEVICE = "NoDeviceOfClass"
    NO_CLASS_NAMES_RESOURCE = "ExtendedResourceNameMissing"
    RESOURCE_ON_NO_NODE = "GPUResourceOnNoNode"
    OTHER_ON_NO_NODE = "ResourceOnNoNode"
    WRONG_MIG_STRATEGY = "WrongMIGStrategy"
    TAINT = "UntoleratedTaint"
    SELECTOR_OR_AFFINITY = "NodeSelectorOrAffinity"
    VOLUME_ELSEWHERE = "VolumeOnOtherNodes"
    CORDON = "NodesCordoned"
    NOT_READY = "NodesNotReady"
    UNDER_PRESSURE = "NodesUnderPressure"
    NOT_INITIALIZED = "NodesNotInitialized"
    BEING_REMOVED = "NodesBeingRemoved"
    COUNTERS_EXHAUSTED = "DeviceCountersExhausted"
    DEVICES_ALLOCATED = "DevicesAllocated"
    ALL_ALLOCATED = "GPUsAllocated"
    ON_NO_SINGLE_NODE = "GPUsOnNoSingleNode"
    OTHER_RESOURCES = "OtherResourcesExhausted"
    OTHER_FILTERS = "OtherSchedulerFilters"
    CLAIM_MISSING = "ResourceClaimMissing"
    CLAIM_ELSEWHERE = "ResourceClaimOnOtherNodes"
    SCHEDULING_GATES = "SchedulingGates"
    SCHEDULER_UNSET = "SchedulerNameMissing"
    VOLUME_CLAIMS = "UnboundVolumeClaims"
    CLAIM_IN_USE = "VolumeClaimInUse"
    SCHEDULER_MESSAGE = "SchedulerMessage"
    NO_SCHEDULER_MESSAGE = "NoSchedulerMessage"


class NeverCreatedReason(StrEnum):
    """Reasons why the pods of a workload were never created."""

    QUOTA = "QuotaExceeded"
    DENIED_BY_RULE = "DeniedByRule"
    DENIED_BY_WEBHOOK = "DeniedByWebhook"
    WEBHOOK_FAILED = "WebhookCallFailed"
    NOT_ADMITTED = "NotAdmittedByQueue"
    CLAIM_REFUSED = "ClaimRefusedByQueue"
    OTHER = "PodsNotCreated"


class RefusedReason(StrEnum):
    """Reasons why the kubelet of a node refused a pod that was scheduled to it."""

    SHARED_GPUS = "SharedGPUsRequested"
    TOPOLOGY = "TopologyNotAligned"
    DEVICES_UNAVAILABLE = "DevicesUnavailable"
    OTHER = "RefusedByNode"


class NativeReason(StrEnum):
    """Reasons of findings about objects with which the API server evaluates rules itself."""

    OFFERS_INCOMPLETE = "GPUOffersIncomplete"
