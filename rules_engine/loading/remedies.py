"""Remedies: YAML to write in place of a mistaken value, as messages quote it."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping

from rules_engine.loading.yaml.nodes import ListNode, MapNode, Node, Path, ScalarNode, child, find
from rules_engine.loading.yaml.scalars import resolve
from rules_engine.model.durations import durations_meant
from rules_engine.model.json.patch import Json
from rules_engine.model.problems.excerpt import MAX_REMEDY
from rules_engine.model.problems.problem import did_you_mean

Accepts = Callable[[Json], bool]
"""A test: True for a value that a field accepts."""

_PLAIN = re.compile(r"[A-Za-z0-9_]+(?:[-./]+[A-Za-z0-9_]+)*")
"""Text that no context of YAML reads in another way."""

_GLUED = re.compile(r"([A-Za-z]+):(\S.*)", re.DOTALL)
_PAIR = re.compile(r"\s*([A-Za-z0-9./_-]+)\s*=\s*([A-Za-z0-9._-]*)\s*")
_WHOLE = re.compile(r"[-+]?[1-9][0-9]{0,17}|0")
QUOTES = "“”„‘’‚«»\"'`"
"""Quotes, those of word processors included."""

_TRUE, _FALSE = ("true", "yes", "on"), ("false", "no", "off")
_VERDICTS: Mapping[str, bool] = {
    **dict.fromkeys(("allow", "admit", "admitted", "accepted", "permitted"), True),
    **dict.fromkeys(("denied", "deny", "refused", "rejected", "forbidden"), False),
}
"""Words for a verdict, each with the value of `allowed` if it is true."""

_NAMES = frozenset({"DNS name", "qualified name", "CEL identifier", "namespace name", "namespace name or glob"})
"""Titles of names in which capitals or separators are slips, unlike in values that are compared with those of pods."""


def scalar(text: str) -> str:
    """Return a text as YAML: plain if every reader takes it for text, else in double quotes."""
    plain = _PLAIN.fullmatch(text) and resolve(text) == (text, None)
    return text if plain else json.dumps(text, ensure_ascii=False)


def flow(value: Json) -> str:
    """Return a value as YAML on one line."""
    if isinstance(value, str):
        return scalar(value)
    if isinstance(value, list):
        return f"[{', '.join(map(flow, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{scalar(name)}: {flow(item)}' for name, item in value.items())}}}"
    return json.dumps(value)


def clause(written: str) -> str:
    """Return the clause of a message; empty for an empty or a long remedy."""
    return f": write {written}" if written and len(written) <= MAX_REMEDY else ""


def as_written(node: Node) -> Json:
    """Return a value as JSON in which a scalar that may be text is its text, if readers differ on it."""
    if isinstance(node, ScalarNode):
        return node.source.text if node.surprise else node.value
    if isinstance(node, ListNode):
        return [as_written(item) for item in node.items]
    return {name: as_written(value) for name, (_, value) in node.members.items()}


def glued(text: str, names: Iterable[str]) -> str:
    """Return `name: value` for a `name:value` without a space, if the name is one of `names`; else an empty string."""
    found = _GLUED.fullmatch(text)
    return f"{found[1]}: {found[2]}" if found and found[1] in set(names) else ""


def for_boolean(node: Node) -> str:
    """Return the boolean that a text means, or an empty string."""
    text = node.source.text.lower() if isinstance(node, ScalarNode) else ""
    return "true" if text in _TRUE else "false" if text in _FALSE else ""


def for_number(node: Node) -> str:
    """Return the whole number that a text means, or an empty string."""
    text = node.source.text if isinstance(node, ScalarNode) else ""
    return text if _WHOLE.fullmatch(text) else ""


def for_list(node: Node, accepts: Accepts) -> str:
    """Return a list for a single item, for items with commas, or for a map of names to values; else an empty string."""
    value = as_written(node)
    candidates: list[Json] = [[value]]
    if isinstance(value, str):
        candidates.append([item.strip() for item in value.split(",")])
    if isinstance(value, dict):
        candidates.append([{"name": name, "expression": item} for name, item in value.items()])
    return _first(candidates, accepts)


def for_map(node: Node, accepts: Accepts, fields: Iterable[str]) -> str:
    """Return a map for its only field's value, for labels in another notation, or for a list; else an empty string."""
    value = as_written(node)
    candidates: list[Json] = []
    if isinstance(value, str):
        pairs = [_PAIR.fullmatch(part) for part in value.split(",")]
        if all(pairs):
            labels: dict[str, Json] = {pair[1]: pair[2] for pair in pairs if pair}
            candidates += [{"matchLabels": labels}, labels]
        candidates += [{name: value} for name in fields]
    if isinstance(value, list) and all(isinstance(item, dict) for item in value):
        maps = [item for item in value if isinstance(item, dict)]
        candidates.append({name: part for item in maps for name, part in item.items()})
        if all("name" in item for item in maps):
            named = {str(item["name"]): {k: part for k, part in item.items() if k != "name"} for item in maps}
            candidates.append({**named})
    return _first(candidates, accepts)


def verdict(name: str, value: Json, fields: Iterable[str]) -> str:
    """Return the field of an expected verdict for another word for it, or an empty string."""
    if "allowed" not in fields or not isinstance(value, bool) or name.lower() not in _VERDICTS:
        return ""
    return f"allowed: {flow(value is _VERDICTS[name.lower()])}"


def only_container(root: Node, path: Path) -> str:
    """Return the name of the only container of the pod that is beside a part of the path, or an empty string."""
    for length in reversed(range(len(path))):
        pod = child(find(root, path[:length]), "pod")
        containers = find(pod, ("spec", "containers")) if pod else None
        if isinstance(containers, ListNode) and len(containers.items) == 1:
            name = child(containers.items[0], "name")
            return name.source.text if isinstance(name, ScalarNode) else ""
    return ""


def _first(candidates: Iterable[Json], accepts: Accepts) -> str:
    return next((flow(value) for value in candidates if value and accepts(value)), "")


def for_text(text: str, title: str, accepts: Accepts) -> str:
    """Return the text that is meant by one of a wrong form, or an empty string."""
    candidates = [text.strip(), text.strip().strip(QUOTES)]
    if title in _NAMES:
        lower = text.strip().lower()
        candidates += [lower, re.sub("[ _]+", "-", lower), re.sub("[ -]+", "_", text.strip())]
    if title.startswith("duration"):
        return for_duration(text)
    if "resource" in title:
        candidates += _resources(text.strip())
    return next((scalar(candidate) for candidate in candidates if candidate != text and accepts(candidate)), "")


def for_duration(text: str) -> str:
    """Return the durations that a text means, or an empty string."""
    return " or ".join(durations_meant(text))


def _resources(text: str) -> Iterator[str]:
    """Yield names of resources that a text may mean; NVIDIA's are those of all examples and tools of this project."""
    yield text.replace("+", ".")
    yield text.removeprefix("requests.")
    if text.lower() in ("gpu", "gpus", "nvidia", "nvidia.com.gpu", "nvidia-gpu", "nvidia.gpu"):
        yield "nvidia.com/gpu"
    if text.startswith("mig-"):
        yield f"nvidia.com/{text.replace('+', '.')}"
    known = ("cpu", "memory", "ephemeral-storage")
    yield from (name for name in known if name.startswith(text.lower()) or f"'{name}'" in did_you_mean(text, known))


def labels(node: MapNode, known: Mapping[str, object]) -> str:
    """Return the selector that is meant by labels in its place, or an empty string."""
    if any(name in known or not isinstance(value, ScalarNode) for name, (_, value) in node.members.items()):
        return ""
    return flow({"matchLabels": {name: value.source.text for name, value in _scalars(node)}})


def _scalars(node: MapNode) -> Iterator[tuple[str, ScalarNode]]:
    return ((name, value) for name, (_, value) in node.members.items() if isinstance(value, ScalarNode))
