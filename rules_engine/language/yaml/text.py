"""JSON values as readable YAML, unambiguous in all YAML versions.

Every text that YAML versions read differently is quoted. PyYAML's writer follows YAML 1.1 only, so it does not quote
`1e3`, which is a number in YAML 1.2.
"""

import json
import re
from collections.abc import Iterator

from rules_engine.model.json.patch import Json

_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9_./-]*|[0-9]+(?:\.[0-9]+)?(?:[numkMGTP]|[KMGTPE]i)")
"""Texts without quotes: words, names, paths and quantities with a suffix."""

_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
"""Words that some version of YAML does not read as strings, in any letter case."""


def dump_yaml(document: dict[str, Json]) -> str:
    """Return the object as one YAML document in block style, ending with a line end."""
    return "".join(f"{line}\n" for line in _yaml_lines(document))


def _yaml_lines(value: Json) -> Iterator[str]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _lines_after_head(f"{_yaml_text(key)}:", inner, under_list=False)
    elif isinstance(value, list) and value:
        for inner in value:
            yield from _lines_after_head("-", inner, under_list=True)
    else:
        yield from _scalar_lines(value)


def _lines_after_head(head: str, value: Json, *, under_list: bool) -> Iterator[str]:
    """Yield a value after its key or dash: in the same line, or indented below a key."""
    lines = list(_yaml_lines(value))
    nested = isinstance(value, dict | list) and bool(value)
    if nested and not under_list:
        yield head
        yield from (f"  {line}" for line in lines)
    else:
        yield f"{head} {lines[0]}"
        yield from (f"  {line}" if line else "" for line in lines[1:])


def _scalar_lines(value: Json) -> list[str]:
    match value:
        case None:
            return ["null"]
        case bool():
            return ["true" if value else "false"]
        case str():
            return _block_lines(value) or [_yaml_text(value)]
        case _:  # a number, or an empty list or object
            return [json.dumps(value)]


def _yaml_text(text: str) -> str:
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    return '"' + "".join(map(_escape_character, text)) + '"'


def _escape_character(character: str) -> str:
    if character in '"\\' or character < " ":
        return json.dumps(character)[1:-1]
    if character.isprintable():
        return character
    code = ord(character)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _block_lines(text: str) -> list[str] | None:
    """Return the lines of a literal block; None if a block cannot represent exactly this text."""
    body = text.removesuffix("\n")
    lines = body.split("\n")
    plain = all(line.isprintable() and line == line.rstrip() for line in lines)
    if "\n" not in text or not plain or not lines[0] or lines[0].startswith(" ") or not lines[-1]:
        return None
    return ["|" if text.endswith("\n") else "|-", *lines]
