"""Texts by which programs report why GPUs fail, found in the Events and in the status of objects."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
from msgspec import Struct

from rules_engine.language.cel import Budget
from rules_engine.language.cel.values.regex import Pattern, compile_pattern
from rules_engine.language.yaml.documents import read_data
from rules_engine.model.json.lenient import Object, as_mapping, integer_member, object_items, text_member
from rules_engine.model.kubernetes.cluster_objects import ApiObject, PodObject
from rules_engine.model.problems.source import truncate

MAX_MESSAGE = 1_024
"""Characters of a message that are read: the API server's bound for the message of an Event."""

MESSAGE_COST, CHARACTER_COST = 1_000, 5
"""Cost of a message and of each of its characters: all patterns take 0.15 ms, and 0.4 µs for a character at most."""

MAX_WORDS = 200
"""Characters of the words that are quoted: some end with a path, or with names of devices."""

MAX_MESSAGES = 200
"""Messages about an object that are read: one object cannot use up the budget of a Diagnostic for all of them."""

MAX_CACHED = 1_024
"""Cached messages, of a kilobyte at most, and types of conditions: many objects have the same ones."""

_START_FAILED = frozenset({"StartError", "ContainerCannotRun"})
_START_FAILED_CODE = 128
"""Reasons and the exit code by which container runtimes report that a container's program did not start."""


class Text(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A text of a program with the reason and the case of its finding. The pattern matches each of the examples.

    `printed`: True for a text that counts in the output of a container's program, too; it has fixed words only.
    """

    reason: str
    case: str = ""
    printed: bool = False
    pattern: str
    examples: tuple[str, ...]


class Texts(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table of texts; the first that matches a message counts.

    `conditions`: those of nodes that health checks set: the `agent`, a pattern of the `type`, and the `bad` status.
    `gates`: who removes scheduling gates, by their names.
    """

    texts: tuple[Text, ...]
    conditions: tuple[Mapping[str, str], ...]
    gates: Mapping[str, str]


@cache
def read_texts() -> Texts:
    """Return the packaged table."""
    return msgspec.convert(read_data(Path(__file__).with_name("texts.yaml")), Texts)


class _Message(NamedTuple):
    """A message with its place. `printed`: True for what the program of a container printed last."""

    place: str
    message: str
    printed: bool = False


class _Found(NamedTuple):
    text: Text
    words: str
    place: str


def find_texts(about: ApiObject, reason: str, budget: Budget) -> list[dict[str, str]]:
    """Return the different texts of a reason in the messages about an object: the case, the words, and the place."""
    return [
        {"case": each.text.case, "words": each.words, "place": each.place}
        for each in _all_texts(about, budget)
        if each.text.reason == reason
    ]


_VIEW: Final = "texts"


def _all_texts(about: ApiObject, budget: Budget) -> Iterable[_Found]:
    """Return the texts of all reasons, found once for an object: several Diagnostics look for texts."""
    views, name = about.cluster.views, about.object_name
    known = views.get(_VIEW)
    if not isinstance(known, dict):
        known = views[_VIEW] = {}
    found: dict[_Found, None] | None = known.get(name)
    if found is None:
        found = {}  # in order, without repetitions
        for each in islice(_messages_of(about), MAX_MESSAGES):
            budget.spend(MESSAGE_COST + CHARACTER_COST * min(len(each.message), MAX_MESSAGE))
            text, words = find_text(each.message[:MAX_MESSAGE])
            if text is not None and (text.printed or not each.printed):
                found[_Found(text, words, each.place)] = None
        known[name] = found
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


def _messages_of(about: ApiObject) -> Iterator[_Message]:
    """Yield the messages about a pod that does not run or about a node.

    The Events of a pod count only while it is Pending: later, they may be about an earlier start. The message of a
    container that ended well does not count: it is what its program printed.
    """
    if isinstance(about, PodObject):
        yield from filter(lambda each: each.message, _container_messages(about))
    for each in bad_conditions(about):
        message = f"{text_member(each, 'reason')} {text_member(each, 'message')}"
        yield _Message(f"condition {text_member(each, 'type')}", message)
    if not isinstance(about, PodObject) or text_member(about.status, "phase") == "Pending":
        for event in about.cluster.events_about(about):
            yield _Message(f"event {text_member(event, 'reason')}".strip(), text_member(event, "message"))


def _container_messages(pod: PodObject) -> Iterator[_Message]:
    for each in (status for member in _STATUSES for status in object_items(pod.status.get(member))):
        state, place = as_mapping(each.get("state")), f"container {text_member(each, 'name')}"
        if each.get("ready") is not True and "running" not in state:
            yield _Message(place, text_member(as_mapping(state.get("waiting")), "message"))
            for ended in (as_mapping(parts.get("terminated")) for parts in (state, as_mapping(each.get("lastState")))):
                code = integer_member(ended, "exitCode")
                started = code != _START_FAILED_CODE and text_member(ended, "reason") not in _START_FAILED
                if code:
                    yield _Message(place, text_member(ended, "message"), printed=started)


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
