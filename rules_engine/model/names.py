"""Names of Kubernetes objects (RFC 1123; apimachinery, pkg/util/validation)."""

import re

MAX_LABEL = 63
"""Longest name of a namespace or a Service (DNS1123LabelMaxLength)."""

MAX_SUBDOMAIN = 253
"""Longest name of most other objects (DNS1123SubdomainMaxLength)."""

LABEL = "[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
"""A DNS label, as a regular expression."""

_PART = "[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"
_SUBDOMAIN = re.compile(rf"{_PART}(?:\.{_PART})*")


def is_label(name: str) -> bool:
    """Return True for a DNS label: lower-case letters, digits and "-", with a letter or digit at each end."""
    return re.fullmatch(LABEL, name) is not None


def is_subdomain(name: str) -> bool:
    """Return True for a DNS subdomain: such parts, of any length, separated by dots."""
    return len(name) <= MAX_SUBDOMAIN and _SUBDOMAIN.fullmatch(name) is not None
