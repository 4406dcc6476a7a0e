"""IP addresses and networks (k8s.io/apiserver/pkg/cel/library/ip.go and cidr.go), as Go's net/netip reads them."""

import ipaddress
from dataclasses import dataclass
from operator import attrgetter
from typing import ClassVar, TypeAlias

from rules_engine.language.cel.budget import EvaluationError
from rules_engine.language.cel.values.functions import Library, parse_test
from rules_engine.language.cel.values.types import BOOL, CIDR, INT, IP, STRING, Type

LIBRARY = Library()

IPAddress: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

MAX_TEXT = 100
"""Characters in an address: the longest has 45, a network four more."""

PARSE_COST = 15
"""Units of parsing an address: ipaddress takes up to 15 µs."""

NETWORK_COST = 15
"""Units of making a network to compare addresses with, and of writing an address."""


@dataclass(frozen=True, slots=True)
class Ip:
    """An address. An IPv4 address mapped into IPv6 equals the IPv4 address (netip's Unmap, as in Kubernetes)."""

    cel_type: ClassVar[Type] = IP
    address: IPAddress

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ip) and _unmap_ipv4(self.address) == _unmap_ipv4(other.address)

    def __hash__(self) -> int:
        return hash(_unmap_ipv4(self.address))


@dataclass(frozen=True, slots=True)
class Cidr:
    """An address with the length of its network's prefix; the bits after the prefix are kept."""

    cel_type: ClassVar[Type] = CIDR
    address: IPAddress
    prefix: int

    @property
    def network(self) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
        if isinstance(self.address, ipaddress.IPv4Address):
            return ipaddress.IPv4Network((int(self.address), self.prefix), strict=False)
        return ipaddress.IPv6Network((int(self.address), self.prefix), strict=False)


def _unmap_ipv4(address: IPAddress) -> IPAddress:
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def parse_ip(text: str) -> Ip:
    """Parse an address. Raises EvaluationError, also for a zone and for IPv4 mapped into IPv6 with dots."""
    if "%" in text:
        raise EvaluationError("an IP address with a zone is not allowed")
    try:
        address = ipaddress.ip_address(text[: MAX_TEXT + 1])
    except ValueError:
        raise EvaluationError("the string is not an IP address") from None
    if "." in text and ":" in text and _unmap_ipv4(address) is not address:
        raise EvaluationError("an IPv4 address mapped into IPv6 is not allowed")
    return Ip(address)


def parse_cidr(text: str) -> Cidr:
    """Parse an address, a slash and a prefix length without sign or leading zero. Raises EvaluationError."""
    address_text, slash, length = text.rpartition("/")
    digits = length.isascii() and length.isdigit() and len(length) <= 3
    if not slash or not digits or length != str(int(length)):
        raise EvaluationError("the string is not a CIDR")
    try:
        address = parse_ip(address_text).address
    except EvaluationError as error:
        raise EvaluationError(f"the string is not a CIDR: {error.message}") from None
    if int(length) > address.max_prefixlen:
        raise EvaluationError("the string is not a CIDR: the prefix is too long")
    return Cidr(address, int(length))


LIBRARY.function("ip", STRING, gives=IP, cost=PARSE_COST)(parse_ip)
LIBRARY.function("cidr", STRING, gives=CIDR, cost=PARSE_COST)(parse_cidr)
LIBRARY.function("isIP", STRING, gives=BOOL, cost=PARSE_COST)(parse_test(parse_ip))
LIBRARY.function("isCIDR", STRING, gives=BOOL, cost=PARSE_COST)(parse_test(parse_cidr))


@LIBRARY.function("string", IP, gives=STRING, constant=True, cost=NETWORK_COST)
def ip_text(value: Ip) -> str:
    return str(value.address)


@LIBRARY.function("string", CIDR, gives=STRING, constant=True, cost=NETWORK_COST)
def cidr_text(value: Cidr) -> str:
    return f"{value.address}/{value.prefix}"


@LIBRARY.function("ip.isCanonical", STRING, gives=BOOL, cost=PARSE_COST + NETWORK_COST)
def is_canonical(text: str) -> bool:
    return ip_text(parse_ip(text)) == text


LIBRARY.method("family", IP, gives=INT, constant=True)(attrgetter("address.version"))
LIBRARY.method("isUnspecified", IP, gives=BOOL, constant=True, cost=NETWORK_COST)(attrgetter("address.is_unspecified"))


@LIBRARY.method("isLoopback", IP, gives=BOOL, constant=True, cost=NETWORK_COST)
def is_loopback(value: Ip) -> bool:
    return _unmap_ipv4(value.address).is_loopback


# As in Go's net/netip; Python's ipaddress defines some of these differently.
_LINK_LOCAL_MULTICAST = (ipaddress.IPv4Network("224.0.0.0/24"), ipaddress.IPv6Network("ff02::/16"))
_LINK_LOCAL_UNICAST = (ipaddress.IPv4Network("169.254.0.0/16"), ipaddress.IPv6Network("fe80::/10"))
_BROADCAST = ipaddress.IPv4Address("255.255.255.255")


@LIBRARY.method("isLinkLocalMulticast", IP, gives=BOOL, constant=True, cost=NETWORK_COST)
def is_link_local_multicast(value: Ip) -> bool:
    address = _unmap_ipv4(value.address)
    return any(address in network for network in _LINK_LOCAL_MULTICAST)


@LIBRARY.method("isLinkLocalUnicast", IP, gives=BOOL, constant=True, cost=NETWORK_COST)
def is_link_local_unicast(value: Ip) -> bool:
    address = _unmap_ipv4(value.address)
    return any(address in network for network in _LINK_LOCAL_UNICAST)


@LIBRARY.method("isGlobalUnicast", IP, gives=BOOL, constant=True, cost=NETWORK_COST)
def is_global_unicast(value: Ip) -> bool:
    address = _unmap_ipv4(value.address)
    return not (
        address == _BROADCAST
        or address.is_unspecified
        or address.is_loopback
        or address.is_multicast
        or is_link_local_unicast(value)
    )


@LIBRARY.method("containsIP", CIDR, IP, gives=BOOL, constant=True, cost=NETWORK_COST)
@LIBRARY.method("containsIP", CIDR, STRING, gives=BOOL, cost=PARSE_COST + NETWORK_COST)
def contains_ip(value: Cidr, inner: Ip | str) -> bool:
    address = (parse_ip(inner) if isinstance(inner, str) else inner).address
    return address in value.network


@LIBRARY.method("containsCIDR", CIDR, CIDR, gives=BOOL, constant=True, cost=2 * NETWORK_COST)
@LIBRARY.method("containsCIDR", CIDR, STRING, gives=BOOL, cost=PARSE_COST + 2 * NETWORK_COST)
def contains_cidr(value: Cidr, inner: Cidr | str) -> bool:
    other = parse_cidr(inner) if isinstance(inner, str) else inner
    return other.prefix >= value.prefix and other.network.network_address in value.network


LIBRARY.method("ip", CIDR, gives=IP, constant=True)(lambda value: Ip(value.address))


@LIBRARY.method("masked", CIDR, gives=CIDR, constant=True, cost=NETWORK_COST)
def mask_cidr(value: Cidr) -> Cidr:
    return Cidr(value.network.network_address, value.prefix)


LIBRARY.method("prefixLength", CIDR, gives=INT, constant=True)(attrgetter("prefix"))
