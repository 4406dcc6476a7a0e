"""Checks of a pod before a rule changes it."""

from rules_engine.cel import EvaluationError
from rules_engine.model.kubernetes.pod import Container, Pod

MAX_CONTAINERS = 256
"""Containers and init containers of a pod that a ladder or an injection changes: ten times what large pods have, since
each may be changed, recorded in the trace and logged."""


def too_many_containers(pod: Pod) -> EvaluationError:
    """Return the error of a rule that would change a pod with more than MAX_CONTAINERS."""
    count = len(pod.containers)
    return EvaluationError(f"/spec/containers: {count} containers and init containers, more than {MAX_CONTAINERS}")


def malformed(container: Container, resource: str) -> str | None:
    """Return the message for a container whose amounts of an extended resource the API server will refuse, else None.

    Source: k8s.io/kubernetes/pkg/apis/core/validation (ValidateResourceRequirements).
    """
    request, limit = container.requests.get(resource), container.limits.get(resource)
    if request is not None and limit is not None and request != limit:
        return f"{container.name} has the request {request} but the limit {limit} for {resource}"
    amount = container.limit_or_request(resource)
    if amount is not None and (amount.nanos < 0 or not amount.is_whole):
        return f"{container.name} requests {amount} of {resource}, which must be a whole number and not negative"
    return None
