"""IP addresses and networks."""

from __future__ import annotations

import ipaddress
import re
from typing import Any

from gangline.cel import costs
from gangline.cel.overloads import Overload
from gangline.cel.values import name_type, strict
from gangline.errors import ExpressionFailed

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_BITS = re.compile(r"0|[1-9][0-9]{0,2}")


class Ip:
    __slots__ = ("address", "cost_size")

    def __init__(self, address: _Address) -> None:
        self.address = address
        self.cost_size = address.max_prefixlen // 8

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ip) and self.address == other.address

    __hash__ = None  # type: ignore[assignment]


class Cidr:
    __slots__ = ("address", "bits", "cost_size")

    def __init__(self, address: _Address, bits: int) -> None:
        self.address = address
        self.bits = bits
        self.cost_size = -(-bits // 8)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Cidr) and self.address == other.address and self.bits == other.bits

    __hash__ = None  # type: ignore[assignment]

    def masked(self) -> Cidr:
        return Cidr(ipaddress.ip_network((self.address, self.bits), strict=False).network_address, self.bits)

    def contains(self, address: _Address) -> bool:
        if address.version != self.address.version:
            return False
        shift = self.address.max_prefixlen - self.bits
        return int(address) >> shift == int(self.address) >> shift


name_type(Ip, "net.IP")
strict(Ip)
name_type(Cidr, "net.CIDR")
strict(Cidr)


def _address(text: str) -> _Address:
    try:
        if not text.isascii() or "%" in text or "/" in text:
            raise ValueError(text)
        address = ipaddress.ip_address(text)
    except ValueError:
        raise ExpressionFailed(f"not an IP address: {text[:60]!r}") from None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        raise ExpressionFailed("an IPv4-mapped IPv6 address is not allowed")
    return address


def _ip(text: str) -> Ip:
    return Ip(_address(text))


def _cidr(text: str) -> Cidr:
    host, slash, bits = text.rpartition("/")
    if not slash or not _BITS.fullmatch(bits):
        raise ExpressionFailed(f"not a network: {text[:60]!r}")
    address = _address(host)
    if int(bits) > address.max_prefixlen:
        raise ExpressionFailed(f"not a network: {text[:60]!r}")
    return Cidr(address, int(bits))


def _is(read: Any) -> Any:
    def run(text: str) -> bool:
        try:
            read(text)
        except ExpressionFailed:
            return False
        return True

    return run


def _is_canonical(text: str) -> bool:
    return str(_address(text)) == text


def _is_global_unicast(ip: Ip) -> bool:
    address = ip.address
    if address.version == 4 and (int(address) in (0, 2**32 - 1)):
        return False
    return not (address.is_unspecified or address.is_loopback or address.is_multicast or _link_local(address))


def _link_local(address: _Address) -> bool:
    value = int(address)
    return value >> 16 == 0xA9FE if address.version == 4 else value >> 118 == 0xFE80 >> 6


def _link_local_multicast(ip: Ip) -> bool:
    value = int(ip.address)
    return value >> 8 == 0xE00000 if ip.address.version == 4 else value >> 112 & 0xFF0F == 0xFF02


def _contains_cidr(one: Cidr, other: Cidr) -> bool:
    return one.bits <= other.bits and one.contains(other.address)


OVERLOADS = [
    Overload("string_to_ip", "ip(string) IP", _ip, costs.traverses()),
    Overload("cidr_ip", "CIDR|ip() IP", lambda cidr: Ip(cidr.address)),
    Overload("ip_family", "IP|family() int", lambda ip: ip.address.version),
    Overload("ip_is_canonical", "ip.isCanonical(string) bool", _is_canonical, costs.traverses(2)),
    Overload("ip_is_unspecified", "IP|isUnspecified() bool", lambda ip: ip.address.is_unspecified),
    Overload("ip_is_loopback", "IP|isLoopback() bool", lambda ip: ip.address.is_loopback),
    Overload("ip_is_link_local_multicast", "IP|isLinkLocalMulticast() bool", _link_local_multicast),
    Overload("ip_is_link_local_unicast", "IP|isLinkLocalUnicast() bool", lambda ip: _link_local(ip.address)),
    Overload("ip_is_global_unicast", "IP|isGlobalUnicast() bool", _is_global_unicast),
    Overload("is_ip", "isIP(string) bool", _is(_ip), costs.traverses()),
    Overload("ip_to_string", "string(IP) string", lambda ip: str(ip.address)),
    Overload("string_to_cidr", "cidr(string) CIDR", _cidr, costs.traverses()),
    Overload("is_cidr", "isCIDR(string) bool", _is(_cidr), costs.traverses()),
    Overload("cidr_prefix_length", "CIDR|prefixLength() int", lambda cidr: cidr.bits),
    Overload("cidr_masked", "CIDR|masked() CIDR", Cidr.masked),
    Overload("cidr_to_string", "string(CIDR) string", lambda cidr: f"{cidr.address}/{cidr.bits}"),
    Overload(
        "cidr_contains_ip_string",
        "CIDR|containsIP(string) bool",
        lambda cidr, text: cidr.contains(_address(text)),
        costs.contains_address(True, False),
    ),
    Overload(
        "cidr_contains_ip_ip",
        "CIDR|containsIP(IP) bool",
        lambda cidr, ip: cidr.contains(ip.address),
        costs.contains_address(False, False),
    ),
    Overload(
        "cidr_contains_cidr_string",
        "CIDR|containsCIDR(string) bool",
        lambda cidr, text: _contains_cidr(cidr, _cidr(text)),
        costs.contains_address(True, True),
    ),
    Overload(
        "cidr_contains_cidr",
        "CIDR|containsCIDR(CIDR) bool",
        _contains_cidr,
        costs.contains_address(False, True),
    ),
]
