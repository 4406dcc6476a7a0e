"""Members of the WSGI environ between the caller and the application, besides those of PEP 3333."""

from server.http.limits import BODY_BYTES, MIB
from server.http.review import ReviewError, StatusReason

DEADLINE = "gpu_rules.deadline"
"""The Deadline of the request."""

REFUSAL = "gpu_rules.refusal"
"""A ReviewError if the request is not to be decided; its body may be incomplete."""

CLIENT_VERIFIED = "SSL_CLIENT_VERIFY"
"""SUCCESS if the client presented a verified certificate (the name that Apache and nginx use)."""


def body_too_large() -> ReviewError:
    """Return the refusal of a body larger than BODY_BYTES."""
    return ReviewError(StatusReason.TOO_LARGE, f"the body is larger than {BODY_BYTES // MIB} MiB")
