"""Names of Kubernetes objects (RFC 1123; apimachinery, pkg/util/validation)."""

import re

MAX_LABEL = 63
"""Longest DNS label (DNS1123LabelMaxLength): the name of a namespace or a Service, the name part of a resource."""

MAX_SUBDOMAIN = 253
"""Longest DNS subdomain (DNS1123SubdomainMaxLength): the name of most other objects, the prefix of a resource."""

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
