"""Which IP addresses belong to the public internet, whatever form they come in."""

from __future__ import annotations

import ipaddress
from typing import TypeAlias

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

TRANSLATED = ipaddress.IPv6Network("64:ff9b::/96")
TRANSLATED_LOCALLY = ipaddress.IPv6Network("64:ff9b:1::/48")
ASSIGNED_BY_PROTOCOL = ipaddress.IPv4Network("192.0.0.0/24")


def why_not_public(text: str) -> str | None:
    """What kind of inside address this is ("loopback", "link-local" …); None for a public one."""
    try:
        address: Address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return "malformed"
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return _kind(address.ipv4_mapped)
        if address in TRANSLATED:
            # Networks without IPv4 reach the whole IPv4 internet in this form.
            return _kind(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
        if address.sixtofour is not None or address.teredo is not None or address in TRANSLATED_LOCALLY:
            return "tunnel"
        if address.is_site_local:
            return "private"
    return _kind(address)


def _kind(address: Address) -> str | None:
    if address.is_unspecified:
        return "unspecified"
    if address.is_loopback:
        return "loopback"
    if address.is_link_local:
        return "link-local"
    if address.is_multicast:
        return "multicast"
    if address == ipaddress.IPv4Address("255.255.255.255"):
        return "broadcast"
    if address.is_reserved or (address.version == 4 and address in ASSIGNED_BY_PROTOCOL):
        return "reserved"
    return None if address.is_global else "private"
