"""Names and labels of Kubernetes objects (RFC 1123; apimachinery, pkg/util/validation)."""

import re
from typing import Annotated

from msgspec import Meta, Struct

DEFAULT_NAMESPACE = "default"
"""Namespace of objects that have none, as in kubectl."""

QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
"""The label that puts a Job, or a pod of its own, into a queue of Kueue."""

MAX_LABEL = 63
"""Longest DNS label (DNS1123LabelMaxLength): the name of a namespace or a Service, the name part of a resource."""

MAX_SUBDOMAIN = 253
"""Longest DNS subdomain (DNS1123SubdomainMaxLength): the name of most other objects, the prefix of a resource."""

LABEL = "[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
"""A DNS label, as a regular expression."""

_PART = "[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"
_SUBDOMAIN = re.compile(rf"{_PART}(?:\.{_PART})*")
_QUALIFIED_PART = re.compile(rf"(?=.{{1,{MAX_LABEL}}}\Z)[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?")


def is_label(name: str) -> bool:
    """Return True for a DNS label: lower-case letters, digits and "-", with a letter or digit at each end."""
    return re.fullmatch(LABEL, name) is not None


def is_subdomain(name: str) -> bool:
    """Return True for a DNS subdomain: parts like labels, of any length, separated by dots."""
    return len(name) <= MAX_SUBDOMAIN and _SUBDOMAIN.fullmatch(name) is not None


def is_label_key(key: str) -> bool:
    """Return True for the key of a label (IsQualifiedName): a name, with or without a DNS subdomain and "/" before."""
    prefix, slash, name = key.rpartition("/")
    return _QUALIFIED_PART.fullmatch(name) is not None and (not slash or is_subdomain(prefix))


def is_label_value(value: str) -> bool:
    """Return True for the value of a label (IsValidLabelValue): empty, or like the name in a key."""
    return not value or _QUALIFIED_PART.fullmatch(value) is not None


def object_title(kind: str, name: str, namespace: str = "") -> str:
    """Return the title of an object in messages: `Pod ml/train`, or `Node gpu-1` without a namespace."""
    return f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}"


class ObjectName(Struct, frozen=True, order=True, forbid_unknown_fields=True):
    """The name of an object."""

    kind: str
    name: str
    namespace: Annotated[str, Meta(description='"" for kinds without namespaces.')] = ""

    def __str__(self) -> str:
        """Kind/name or Kind/namespace/name, as in RuleTests and metrics."""
        return "/".join(filter(None, (self.kind, self.namespace, self.name)))

    @property
    def title(self) -> str:
        """The name in messages: `Pod ml/train`, `Node gpu-1`."""
        return object_title(self.kind, self.name, self.namespace)
