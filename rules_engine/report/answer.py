"""Answers of commands as JSON, and the JSON Schemas of answers: both are read off the types of the values."""

import json
import re
from fractions import Fraction
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from rules_engine.model.json.output import Output, SparseOutput
from rules_engine.model.problems.problem import Problem

_CONTROLS = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Control characters that JSON does not escape: DEL, C1 and marks that end lines or change their direction."""

_NOT_ASCII = re.compile("[^\x00-\x7e]")


class Answer(Output, frozen=True, kw_only=True):
    """The answer of a command: the whole of its `--output json`."""

    problems: Annotated[tuple[Problem, ...], Meta(description="Problems of the input, in file order.")] = ()


class ObjectList(Output, frozen=True, kw_only=True):
    """Kubernetes objects, as `kubectl apply` reads them."""

    api_version: Literal["v1"] = "v1"
    kind: Literal["List"] = "List"
    items: tuple[dict[str, Any], ...]


class NoAnswer(Output, frozen=True, kw_only=True):
    """The output of a command whose input has errors, and which therefore has no answer."""

    problems: Annotated[tuple[Problem, ...], Meta(description="Problems of the input, in file order.", min_length=1)]


def answer_text(answer: object, encoding: str = "utf-8", *, indent: int = 2) -> str:
    """Return an answer, or any value of JSON types, as JSON for a stream of an encoding; in one line without `indent`.

    Characters that the encoding may lack, or that a terminal would interpret, are escaped rather than replaced.

    >>> from rules_engine import answer_text
    >>> answer_text({"verdict": "Starts"}, indent=0)
    '{"verdict": "Starts"}'
    """
    try:
        text = msgspec.json.format(msgspec.json.encode(answer, enc_hook=_plain_value), indent=indent).decode()
    except UnicodeEncodeError:  # the name of a file that is not UTF-8
        text = json.dumps(msgspec.to_builtins(answer, enc_hook=_plain_value), indent=indent or None)
    escaped = _CONTROLS if encoding.lower().startswith("utf") else _NOT_ASCII
    return escaped.sub(lambda match: json.dumps(match[0])[1:-1] if match[0] != "\x7f" else "\\u007f", text)


def answer_schema(answer: type[Output]) -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of an answer, and of the problems alone that are printed if there is none."""
    types: tuple[Any, ...] = (answer, NoAnswer)
    refs, definitions = msgspec.json.schema_components(types, schema_hook=_plain_schema, ref_template="#/$defs/{name}")
    sparse = {each.__name__ for each in SparseOutput.__subclasses__()}
    for name, definition in definitions.items():
        if name in sparse:
            definition["additionalProperties"] = False
        elif "properties" in definition:  # a member with its default is printed, too
            definition["required"] = [*definition["properties"]]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "anyOf": [*refs], "$defs": definitions}


def _plain_value(value: object) -> Any:
    if isinstance(value, Fraction):
        return float(value)
    return dict(value)  # type: ignore[call-overload]  # a read-only Mapping


def _plain_schema(type_: type) -> dict[str, Any]:
    if type_ is Fraction:
        return {"type": "number"}
    raise NotImplementedError(type_)
