"""JSON as Go reads it: the last of several members with one name counts, and lone surrogates are replaced."""

import json
import re
from typing import cast

from msgspec import MsgspecError, Raw
from msgspec.json import Decoder

from rules_engine.model.json.patch import Json

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
"""Half of a surrogate pair, which the escapes of JSON can have, and UTF-8 can not."""

_decode = Decoder(float_hook=str).decode  # quantities keep their text


def decode_lenient(text: str | bytes | Raw) -> Json:
    """Return the value of a text. Raises ValueError (json.JSONDecodeError is one) and RecursionError."""
    try:
        return cast(Json, _decode(text))
    except MsgspecError:  # halves of surrogate pairs
        return _replace_surrogates(json.loads(bytes(text) if isinstance(text, Raw) else text, parse_float=str))


def _replace_surrogates(value: Json) -> Json:
    """Return a value whose texts UTF-8 can encode."""
    if isinstance(value, dict):
        return {str(_replace_surrogates(name)): _replace_surrogates(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_replace_surrogates(item) for item in value]
    return _LONE_SURROGATE.sub("\ufffd", value) if isinstance(value, str) else value
