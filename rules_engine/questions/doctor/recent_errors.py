"""Recent errors of GPU nodes, GPU pods and device plugins: their Events, and containers that do not run."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial

from msgspec.structs import replace

from rules_engine.accelerators.resources import is_gpu
from rules_engine.cluster.gpu_nodes import gpus_of
from rules_engine.model.json.lenient import as_mapping, integer_member, text_member
from rules_engine.model.kubernetes.cluster_objects import ClusterObjects, PodObject, involved_object
from rules_engine.model.kubernetes.names import ObjectName
from rules_engine.questions.doctor.gpu_objects import container_statuses, last_seen, parse_timestamp
from rules_engine.questions.doctor.overview import DevicePods, InScope
from rules_engine.questions.doctor.values import Affected, OwnerOf, RecentError, affected_by_owner
from rules_engine.questions.doctor.wording import quote_message, without_names

_GPU_WORDS = re.compile(r"gpu|nvidia|\bxid\b|\bmig\b|mig-|nvlink|\brdma\b", re.IGNORECASE)
"""Words about GPUs in the Events of other objects, such as controllers and pods that no longer exist."""

_NOT_SCHEDULED = "FailedScheduling"
"""Reason of the Events of pods that are pending, which have their own section, or that were scheduled since."""

_OUTPUT_REASONS = frozenset({"Unhealthy", "ProbeWarning", "FailedPostStartHook", "FailedPreStopHook"})
"""Reasons of Events whose messages quote a program's output, which may have values of its environment (kubelet)."""

_OMITTED_MESSAGE = "the message is left out, since it has the output of a program"

_STARTING = frozenset({"ContainerCreating", "PodInitializing"})
"""Reasons of a waiting container that is about to start."""


def recent_errors(
    cluster: ClusterObjects,
    pods: DevicePods,
    plugins: Mapping[ObjectName, Sequence[PodObject]],
    in_scope: InScope,
    since: datetime,
    owner_of: OwnerOf,
) -> tuple[RecentError, ...]:
    """Return the errors since a time, the newest first."""
    watched = [pod for pod, devices in pods if any(map(is_gpu, devices)) or not devices]
    watched += [pod for pods_of in plugins.values() for pod in pods_of]
    related = {pod.object_name for pod in watched} | set(plugins)
    related.update(node.object_name for node in cluster.nodes if gpus_of(node))
    groups: dict[tuple[str, str, str], list[RecentError]] = {}
    for error in (*_event_errors(cluster, related), *_container_errors(watched)):
        about = _first_object(error)
        if in_scope(about) and (error.at is None or error.at >= since):
            key = about.kind, error.reason, without_names(error.message, about)
            groups.setdefault(key, []).append(error)
    merged = [
        replace(
            min(group, key=lambda each: (_first_object(each), each.message)),
            affected=affected_by_owner(map(_first_object, group), owner_of),
            count=sum(each.count for each in group),
            at=max((each.at for each in group if each.at), default=None),
        )
        for group in groups.values()
    ]
    merged.sort(key=lambda each: (_first_object(each), each.reason, each.message))
    return tuple(sorted(merged, key=lambda each: -each.at.timestamp() if each.at else 0.0))


def _first_object(error: RecentError) -> ObjectName:
    return error.affected[0].objects[0]


def _event_errors(cluster: ClusterObjects, related: Collection[ObjectName]) -> Iterator[RecentError]:
    for event in cluster.events:
        if text_member(event, "type") != "Warning" or text_member(event, "reason") == _NOT_SCHEDULED:
            continue
        about = involved_object(event)
        message = text_member(event, "message")
        if about.kind and (about in related or _GPU_WORDS.search(message)):
            yield RecentError(
                affected=(Affected(owner=None, objects=(about,)),),
                reason=text_member(event, "reason"),
                message=_OMITTED_MESSAGE if text_member(event, "reason") in _OUTPUT_REASONS else quote_message(message),
                count=max(
                    integer_member(as_mapping(event.get("series")), "count") or integer_member(event, "count"), 1
                ),
                at=last_seen(event),
            )


def _container_errors(pods: Iterable[PodObject]) -> Iterator[RecentError]:
    """Yield the errors of containers that wait after an error or that ended with an exit code other than 0.

    The message of a container that ended is omitted: it may be the end of its log, with values of its environment.
    """
    for pod in pods:
        affected = (Affected(owner=None, objects=(pod.object_name,)),)
        for status in container_statuses(pod):
            state, container = as_mapping(status.get("state")), text_member(status, "name")
            count = max(integer_member(status, "restartCount"), 1)
            last = as_mapping(as_mapping(status.get("lastState")).get("terminated"))
            ended, waiting = as_mapping(state.get("terminated")) or last, as_mapping(state.get("waiting"))
            error = partial(RecentError, affected=affected, count=count, at=parse_timestamp(ended, "finishedAt"))
            if code := integer_member(ended, "exitCode"):
                message = f"container {container} ended with exit code {code}"
                yield error(reason=text_member(ended, "reason"), message=message)
            reason = text_member(waiting, "reason")
            if reason and reason not in _STARTING:
                message = quote_message(f"container {container}: {text_member(waiting, 'message')}".removesuffix(": "))
                yield error(reason=reason, message=message)
