"""Base64 (cel-go, ext/encoders.go)."""

import base64

from rules_engine.cel.budget import EvaluationError
from rules_engine.cel.values.functions import Library
from rules_engine.cel.values.types import BYTES, STRING

LIBRARY = Library()


@LIBRARY.function("base64.encode", BYTES, gives=STRING)
def encode_base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


@LIBRARY.function("base64.decode", STRING, gives=BYTES)
def decode_base64(text: str) -> bytes:
    """Decode base64 with or without padding."""
    try:
        return base64.b64decode(text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4), validate=True)
    except ValueError:
        raise EvaluationError("the string is not base64") from None
