"""The last words of schedulers, queues and autoscalers about waiting pods, in Events and conditions."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache
from pathlib import Path

import msgspec

from rules_engine.accelerators.resources import requests_gpus_by_annotation
from rules_engine.cluster.scheduling.requirements import DEFAULT_SCHEDULER
from rules_engine.language.yaml.documents import read_data
from rules_engine.model.json.lenient import as_string_map, object_items, text_member
from rules_engine.model.kubernetes.cluster_objects import (
    POD_GROUPS,
    ApiObject,
    ClusterObjects,
    PodObject,
    component_of,
    once,
    owner_name,
)
from rules_engine.model.kubernetes.names import ObjectName
from rules_engine.questions.doctor.gpu_objects import LONG_AGO, controllers_of, is_named, last_seen, parse_timestamp
from rules_engine.questions.doctor.wording import quote_message

Words = tuple[datetime, str, str]
"""The last words of a component or of a condition: when, from where, and the words; the texts are quoted."""

MAX_WORDS = 8
"""The newest words about an object, or about a pod with all that it belongs to. Also the most groups of an owner."""


@cache
def read_deciders() -> Mapping[str, tuple[str, ...]]:
    """Return the packaged table, which explains its members."""
    return msgspec.convert(read_data(Path(__file__).with_suffix(".yaml")), dict[str, tuple[str, ...]])


def words_about(pod: PodObject) -> tuple[str, ...]:
    """Return the last words about a waiting pod, its controllers, Workload or PodGroup, the newest first.

    The message of the pod's own scheduler is left out: the finding about the pod has it.
    """
    own = quote_message(text_member(pod.condition("PodScheduled"), "message"))
    words = _newest(words for item in _around(pod) for words in last_words(item))
    return (*_state_lines(pod), *(f"{source}: {text}" for _, source, text in words if text != own))


def refused_by_autoscaler(pod: PodObject) -> bool:
    """Return True if the last Event about a pod of each autoscaler that sent one says that it adds no node.

    After a failure, an autoscaler tries again: its backoff is no refusal.
    """
    table = read_deciders()
    last = [
        f"{name}={text_member(event, 'reason')}{'?' if 'backoff' in text_member(event, 'message') else ''}"
        for name, event in _last_events(pod).items()
    ]
    said = [each for each in last if each.startswith(table["autoscalers"])]
    return bool(said) and all(each in table["refusals"] for each in said)


def last_words(item: ApiObject) -> Sequence[Words]:
    """Return the newest words about an object. They are found once: thousands of pods may have the same controller."""
    known, key = _known_words(item.cluster), (item.object_name, text_member(item.metadata, "uid"))
    if key not in known:
        known[key] = _newest(_find_words(item))
    return known[key]


@once
def _known_words(_: ClusterObjects) -> dict[tuple[ObjectName, str], Sequence[Words]]:
    return {}


def queue_of(group: ApiObject) -> str:
    """Return the queue of a Workload or a PodGroup; "" if it names none."""
    return quote_message(text_member(group.spec, "queueName") or text_member(group.spec, "queue"))


def is_over(group: ApiObject) -> bool:
    """Return True for a Workload that finished, or that is being deleted."""
    return group.condition("Finished").get("status") == "True" or group.metadata.get("deletionTimestamp") is not None


def _newest(words: Iterable[Words]) -> Sequence[Words]:
    """Return the newest words, each text once."""
    texts: dict[str, Words] = {}
    for each in sorted(words, reverse=True):
        texts.setdefault(each[2], each)
    return [*texts.values()][:MAX_WORDS]


def _state_lines(pod: PodObject) -> Iterator[str]:
    for name, value in requests_gpus_by_annotation(pod).items():
        yield f"the pod requests GPUs by the annotation {name}: {quote_message(value)}"
    node = quote_message(text_member(pod.status, "nominatedNodeName"))
    if any(each.metadata.get("deletionTimestamp") is not None for each in pod.cluster.pods_on(node)):
        yield f"the scheduler makes room on {node}: pods there are being evicted"
    elif node:
        yield f"the scheduler nominated {node} for the pod"


def _last_events(item: ApiObject) -> Mapping[str, ApiObject]:
    """Return the last Event about an object of each component that decides, without what its scheduler repeats."""
    deciders, own = read_deciders()["components"], "/"  # which no name begins with
    if isinstance(item, PodObject):
        own = text_member(item.spec, "schedulerName") or DEFAULT_SCHEDULER
    last: dict[str, ApiObject] = {}
    for event in item.cluster.events_about(item):
        name = component_of(event)
        repeats = name.startswith(own) and text_member(event, "reason") == "FailedScheduling"
        if name.startswith((own, *deciders)) and not repeats:
            last[name] = max(last.get(name, event), event, key=lambda each: last_seen(each) or LONG_AGO)
    return last


def _find_words(item: ApiObject) -> Iterator[Words]:
    """Yield the last words of each component about an object, and its conditions that say why it waits."""
    queue = queue_of(item)
    title = f"{item.object_name.title}{f' in queue {queue}' if queue else ''}"
    for component, event in _last_events(item).items():
        source = component if isinstance(item, PodObject) else f"{component} about {title}"
        yield last_seen(event) or LONG_AGO, quote_message(source), quote_message(text_member(event, "message"))
    members = ("conditions", "schedulingConditions", "admissionChecks")  # of all, of KAI, of Kueue
    for each in (each for member in members for each in object_items(item.status.get(member))):
        kind, state = text_member(each, "type"), text_member(each, "status") or text_member(each, "state")
        reasons = (text_member(reason, "message") for reason in object_items(each.get("reasons")))  # of KAI
        text = quote_message(text_member(each, "message") or "; ".join(reasons))
        if text and f"{kind}={state}" in read_deciders()["conditions"]:
            source = quote_message(f"{kind or text_member(each, 'name')} of {title}")
            yield parse_timestamp(each, "lastTransitionTime") or LONG_AGO, source, text


def _around(pod: PodObject) -> Iterator[ApiObject]:
    """Yield a pod, its controllers, and the Workloads and PodGroups of each."""
    groups = _groups_by_name(pod.cluster)
    for item in (pod, *controllers_of(pod)):
        yield item
        named = as_string_map(item.metadata.get("labels")) | as_string_map(item.metadata.get("annotations"))
        names = [named[key] for key in read_deciders()["groups"] if key in named]
        for name in (item.object_name, *(ObjectName("PodGroup", name, item.namespace) for name in names)):
            yield from (group for uid, group in groups.get(name, ()) if is_named(item, uid))


@once
def _groups_by_name(cluster: ClusterObjects) -> Mapping[ObjectName, Sequence[tuple[str, ApiObject]]]:
    """Return Workloads and PodGroups by their names and those of their owners, with the UIDs of these."""
    found: dict[ObjectName, list[tuple[str, ApiObject]]] = {}
    for group in (group for kind in ("Workload", *POD_GROUPS) for group in cluster.of(kind) if not is_over(group)):
        owners = object_items(group.metadata.get("ownerReferences"))
        for name, uid in ((group.object_name, ""), *((owner_name(o, group), text_member(o, "uid")) for o in owners)):
            groups = found.setdefault(name, [])
            groups += [(uid, group)][: MAX_WORDS - len(groups)]
    return found
