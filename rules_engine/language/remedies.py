"""Remedies: YAML that a message recommends in place of a mistaken value."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping

from rules_engine.language.yaml.nodes import ListNode, MapNode, ScalarNode, YamlNode, child_node, find_node
from rules_engine.language.yaml.scalars import resolve_scalar
from rules_engine.model.json.patch import Json
from rules_engine.model.json.strict import JsonPath
from rules_engine.model.problems.problem import did_you_mean
from rules_engine.model.problems.source import MAX_REMEDY

Accepts = Callable[[Json], bool]
"""A predicate: True for a value that the field accepts."""

_PLAIN = re.compile(r"[A-Za-z0-9_]+(?:[-./]+[A-Za-z0-9_]+)*")
"""Text that is a plain scalar in every context of YAML."""

_GLUED = re.compile(r"([A-Za-z]+):(\S.*)", re.DOTALL)
_PAIR = re.compile(r"\s*([A-Za-z0-9./_-]+)\s*=\s*([A-Za-z0-9._-]*)\s*")
_WHOLE = re.compile(r"[-+]?[1-9][0-9]{0,17}|0")
QUOTES = "“”„‘’‚«»\"'`"
"""Quotes, including the typographic ones of word processors."""

_TRUE, _FALSE = ("true", "yes", "on"), ("false", "no", "off")
_VERDICTS: Mapping[str, bool] = {
    **dict.fromkeys(("allow", "admit", "admitted", "accepted", "permitted"), True),
    **dict.fromkeys(("denied", "deny", "refused", "rejected", "forbidden"), False),
}
"""Words for a verdict, each with the value of `allowed` that `WORD: true` means."""

_NAMES = frozenset({"DNS name", "qualified name", "CEL identifier", "namespace name", "namespace name or glob"})
"""Titles of names in which capitals or separators are slips; in values that are compared with a pod's they are not."""


def yaml_scalar(text: str) -> str:
    """Return a text as YAML: plain if every reader takes it for text, else in double quotes."""
    plain = _PLAIN.fullmatch(text) and resolve_scalar(text) == (text, None)
    return text if plain else json.dumps(text, ensure_ascii=False)


def yaml_flow(value: Json) -> str:
    """Return a value as YAML on one line."""
    if isinstance(value, str):
        return yaml_scalar(value)
    if isinstance(value, list):
        return f"[{', '.join(map(yaml_flow, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{yaml_scalar(name)}: {yaml_flow(item)}' for name, item in value.items())}}}"
    return json.dumps(value)


def remedy_clause(remedy: str) -> str:
    """Return the clause of a message that recommends a remedy; empty for an empty or a long one."""
    return f": write {remedy}" if remedy and len(remedy) <= MAX_REMEDY else ""


def as_written(node: YamlNode) -> Json:
    """Return a value as JSON; a scalar that YAML parsers read differently is its text."""
    if isinstance(node, ScalarNode):
        return node.source.text if node.surprise else node.value
    if isinstance(node, ListNode):
        return [as_written(item) for item in node.items]
    return {name: as_written(value) for name, (_, value) in node.members.items()}


def for_missing_space(text: str, names: Iterable[str]) -> str:
    """Return `name: value` for a `name:value` without a space, if the name is one of `names`; else an empty string."""
    match = _GLUED.fullmatch(text)
    return f"{match[1]}: {match[2]}" if match and match[1] in set(names) else ""


def for_boolean(node: YamlNode) -> str:
    """Return the boolean that a text means, or an empty string."""
    text = node.source.text.lower() if isinstance(node, ScalarNode) else ""
    return "true" if text in _TRUE else "false" if text in _FALSE else ""


def for_number(node: YamlNode) -> str:
    """Return the whole number that a text means, or an empty string."""
    text = node.source.text if isinstance(node, ScalarNode) else ""
    return text if _WHOLE.fullmatch(text) else ""


def for_list(node: YamlNode, accepts: Accepts) -> str:
    """Return a list for a single item, for comma-separated items, or for a map of names to values; else ""."""
    value = as_written(node)
    candidates: list[Json] = [[value]]
    if isinstance(value, str):
        candidates.append([item.strip() for item in value.split(",")])
    if isinstance(value, dict):
        candidates.append([{"name": name, "expression": item} for name, item in value.items()])
    return _first_accepted(candidates, accepts)


def for_map(node: YamlNode, accepts: Accepts, fields: Iterable[str]) -> str:
    """Return a map for a bare value of its only field, for labels in another notation, or for a list; else ""."""
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
            by_name = {str(item["name"]): {k: part for k, part in item.items() if k != "name"} for item in maps}
            candidates.append({**by_name})
    return _first_accepted(candidates, accepts)


def for_verdict(name: str, value: Json, fields: Iterable[str]) -> str:
    """Return `allowed: …` for another word for it, or an empty string."""
    if "allowed" not in fields or not isinstance(value, bool) or name.lower() not in _VERDICTS:
        return ""
    return f"allowed: {yaml_flow(value is _VERDICTS[name.lower()])}"


def only_container(root: YamlNode, path: JsonPath) -> str:
    """Return the container's name in the nearest `pod` along the path that has exactly one; else an empty string."""
    for length in reversed(range(len(path))):
        pod = child_node(find_node(root, path[:length]), "pod")
        containers = find_node(pod, ("spec", "containers")) if pod else None
        if isinstance(containers, ListNode) and len(containers.items) == 1:
            name = child_node(containers.items[0], "name")
            return name.source.text if isinstance(name, ScalarNode) else ""
    return ""


def _first_accepted(candidates: Iterable[Json], accepts: Accepts) -> str:
    return next((yaml_flow(value) for value in candidates if value and accepts(value)), "")


def for_text(text: str, title: str, accepts: Accepts) -> str:
    """Return the corrected form of a malformed text, or an empty string."""
    candidates = [text.strip(), text.strip().strip(QUOTES)]
    if title in _NAMES:
        lower = text.strip().lower()
        candidates += [lower, re.sub("[ _]+", "-", lower), re.sub("[ -]+", "_", text.strip())]
    if "resource" in title:
        candidates += _likely_resources(text.strip())
    return next((yaml_scalar(candidate) for candidate in candidates if candidate != text and accepts(candidate)), "")


def _likely_resources(text: str) -> Iterator[str]:
    """Yield resource names that a text may mean; of vendors only NVIDIA's, which this project's examples use."""
    yield text.replace("+", ".")
    yield text.removeprefix("requests.")
    if text.lower() in ("gpu", "gpus", "nvidia", "nvidia.com.gpu", "nvidia-gpu", "nvidia.gpu"):
        yield "nvidia.com/gpu"
    if text.startswith("mig-"):
        yield f"nvidia.com/{text.replace('+', '.')}"
    names = ("cpu", "memory", "ephemeral-storage")
    yield from (name for name in names if name.startswith(text.lower()) or f"'{name}'" in did_you_mean(text, names))


def for_labels(node: MapNode, fields: Mapping[str, object]) -> str:
    """Return the selector for labels that stand in its place, or an empty string."""
    if any(name in fields or not isinstance(value, ScalarNode) for name, (_, value) in node.members.items()):
        return ""
    members = node.members.items()
    labels = {name: value.source.text for name, (_, value) in members if isinstance(value, ScalarNode)}
    return yaml_flow({"matchLabels": {**labels}})
