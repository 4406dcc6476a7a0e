"""Texts by which programs report why GPUs fail, found in the Events and in the status of objects."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path

import msgspec
from msgspec import Struct

from rules_engine.language.cel import Budget
from rules_engine.language.cel.values.regex import Pattern, compile_pattern
from rules_engine.language.yaml.documents import read_data
from rules_engine.model.json.lenient import Object, as_mapping, object_items, text_member
from rules_engine.model.kubernetes.cluster_objects import ApiObject, PodObject
from rules_engine.model.problems.source import truncate

MAX_MESSAGE = 1_024
"""Characters of a message that are read: the API server's bound for the message of an Event."""

MESSAGE_COST, CHARACTER_COST = 1_000, 5
"""Cost of a message and of each of its characters: all patterns take 0.15 ms, and 0.4 µs for a character at most."""

MAX_WORDS = 200
"""Characters of the words that are quoted: some end with a path, or with names of devices."""

MAX_CACHED = 1_024
"""Cached messages, of a kilobyte at most: several Diagnostics look for texts in the same ones."""


class Text(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A text of a program with the reason and the case of its finding. The pattern matches each of the examples."""

    reason: str
    case: str = ""
    pattern: str
    examples: tuple[str, ...]


class Texts(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table of texts; the first that matches a message counts.

    `conditions`: those of nodes that health checks set: the `agent`, a pattern of the `type`, and the `bad` status.
    """

    texts: tuple[Text, ...]
    conditions: tuple[Mapping[str, str], ...]


@cache
def read_texts() -> Texts:
    """Return the packaged table."""
    return msgspec.convert(read_data(Path(__file__).with_name("texts.yaml")), Texts)


def find_texts(about: ApiObject, reason: str, budget: Budget) -> list[dict[str, str]]:
    """Return the texts of a reason in the messages about an object: the case, the words, and the message's place."""
    found: list[dict[str, str]] = []
    for place, message in _messages_of(about):
        budget.spend(MESSAGE_COST + CHARACTER_COST * min(len(message), MAX_MESSAGE))
        text, words = find_text(message[:MAX_MESSAGE])
        if text is not None and text.reason == reason:
            found.append({"case": text.case, "words": words, "place": place})
    return found


@lru_cache(MAX_CACHED)
def find_text(message: str) -> tuple[Text | None, str]:
    """Return the first text whose pattern occurs in a message, and the words that match; None if no text does."""
    for text, pattern in _patterns():
        words = pattern.find_all(message, 1, Budget(10**9, ""))  # which find_texts charges
        if words:
            return text, truncate(words[0], MAX_WORDS)
    return None, ""


@cache
def _patterns() -> Sequence[tuple[Text, Pattern]]:
    return [(each, compile_pattern(each.pattern)) for each in read_texts().texts]


def _messages_of(about: ApiObject) -> Iterator[tuple[str, str]]:
    """Yield the messages about a pod that does not run or about a node, each with its place.

    The Events of a pod count only while it is Pending: later, they may be about an earlier start.
    """
    statuses = (each for member in _STATUSES for each in object_items(about.status.get(member)))
    for each in statuses if isinstance(about, PodObject) else ():
        state = as_mapping(each.get("state"))
        if each.get("ready") is not True and "running" not in state:
            ended = as_mapping(as_mapping(each.get("lastState")).get("terminated"))
            for part in (as_mapping(state.get("waiting")), as_mapping(state.get("terminated")), ended):
                yield f"container {text_member(each, 'name')}", text_member(part, "message")
    for each in bad_conditions(about):
        yield f"condition {text_member(each, 'type')}", f"{text_member(each, 'reason')} {text_member(each, 'message')}"
    if not isinstance(about, PodObject) or text_member(about.status, "phase") == "Pending":
        for event in about.cluster.events_about(about):
            yield f"event {text_member(event, 'reason')}".strip(), text_member(event, "message")


_STATUSES = "containerStatuses", "initContainerStatuses"


def bad_conditions(node: ApiObject) -> list[Object]:
    """Return the conditions of a node by which a health check reports a fault of its accelerators or their links."""
    conditions = object_items(node.status.get("conditions"))
    return [each for each in conditions if each.get("status") == _bad_status(text_member(each, "type"))]


@lru_cache(MAX_CACHED)
def _bad_status(kind: str) -> str | None:
    """Return the status of a fault for a type of conditions; None for those that no health check sets."""
    for each in read_texts().conditions:
        if compile_pattern(f"^(?:{each['type']})$").occurs_in(kind, Budget(10**9, "")):
            return each["bad"]
    return None
