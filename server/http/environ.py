"""The WSGI environ (PEP 3333) of a request, and its members between the caller and the application."""

import sys
from collections.abc import Mapping
from typing import Any, TypeAlias

Environ: TypeAlias = dict[str, Any]
Headers: TypeAlias = tuple[tuple[bytes, bytes], ...]

DEADLINE = "gpu_rules.deadline"
"""The Deadline of the request."""

REFUSAL = "gpu_rules.refusal"
"""A ReviewError if the request is not to be decided; its body may be incomplete."""

CLIENT_VERIFIED = "SSL_CLIENT_VERIFY"
"""SUCCESS if the client presented a verified certificate (the name that Apache and nginx use)."""


def make_environ(scope: Mapping[str, Any], headers: Headers, length: int, server: tuple[str, int]) -> Environ:
    """Return the environ of an ASGI request with a body of `length` bytes, without the body."""
    environ: Environ = {
        "SCRIPT_NAME": "",
        "SERVER_NAME": server[0],
        "SERVER_PORT": str(server[1]),
        "wsgi.version": (1, 0),
        "wsgi.input_terminated": True,
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
        "REQUEST_METHOD": scope["method"],
        "PATH_INFO": scope["path"].encode().decode("latin-1"),
        "QUERY_STRING": scope["query_string"].decode("latin-1"),
        "SERVER_PROTOCOL": f"HTTP/{scope['http_version']}",
        "wsgi.url_scheme": scope["scheme"],
    }
    for name, value in headers:
        # "Content_Length" would be taken for Content-Length; the body is given without its transfer coding.
        if b"_" not in name and name not in (b"transfer-encoding", b"content-length"):
            key = name.decode("latin-1").upper().replace("-", "_")
            key = key if key == "CONTENT_TYPE" else f"HTTP_{key}"
            text = value.decode("latin-1").strip()
            environ[key] = f"{environ[key]},{text}" if key in environ else text
    return environ | {"CONTENT_LENGTH": str(length)}
