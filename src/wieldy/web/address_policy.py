"""Which IP addresses belong to the public internet, whatever form they come in."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from wieldy.core.errors import ToolFailure
from wieldy.core.threads import in_thread
from wieldy.web.address import WebAddress

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


Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]
"""The IP addresses of a host name. Raises `OSError`."""

INSIDE_NAMES = ("localhost", "local", "internal", "localdomain", "metadata")
# A name in the settings may lead to these; to any other inside address only the address itself may.
BY_NAME = frozenset({"loopback", "private"})


class OutOfReach(ToolFailure):
    """A host that is not to be talked to; says why, and what would change that."""


async def system_addresses(host: str, port: int) -> Sequence[str]:
    """The addresses the system knows for a name."""
    found = await in_thread(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class Reach:
    """The public internet, and the private hosts that the settings name (`host`, `host:port`, `*.host`)."""

    def __init__(self, private: Sequence[str] = (), resolve: Resolve = system_addresses) -> None:
        self._private = [str(entry).strip().lower() for entry in private]
        self._resolve = resolve

    async def addresses(self, where: WebAddress) -> tuple[str, ...]:
        """The addresses to connect to for this very request. Raises `OutOfReach`; one inside address spoils all."""
        named = self.is_named(where)
        if not named and _is_inside_name(where.host):
            raise OutOfReach(_refusal(where, "names a host inside a network"))
        found = await self._found(where)
        for address in found:
            kind = why_not_public(address)
            if kind is not None and not (named and (kind in BY_NAME or address == where.host)):
                leads = "is" if address == where.host else f"leads to {address},"
                raise OutOfReach(_refusal(where, f"{leads} a {kind} address"))
        return found

    def is_named(self, where: WebAddress) -> bool:
        """Whether the settings name this host as one that may be private."""
        for entry in self._private:
            for pattern in _patterns(entry, where.port):
                if where.host == pattern or (pattern.startswith("*.") and where.host.endswith(pattern[1:])):
                    return True
        return False

    async def _found(self, where: WebAddress) -> tuple[str, ...]:
        if where.host.replace(".", "").isdigit() or ":" in where.host:
            return (where.host,)
        try:
            found = tuple(await self._resolve(where.host, where.port))
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise OutOfReach(f"{where.host} cannot be found: {reason}. Check the spelling of the host.") from None
        if not found:
            raise OutOfReach(f"{where.host} has no address. Check the spelling of the host.")
        return found


def _patterns(entry: str, port: int) -> list[str]:
    """The host patterns an entry of the settings has for this port; an IPv6 address may stand in brackets."""
    bare = entry.removesuffix(f":{port}")
    return [pattern.removeprefix("[").removesuffix("]").removesuffix(".") for pattern in {entry, bare}]


def _is_inside_name(host: str) -> bool:
    return host.rpartition(".")[2] in INSIDE_NAMES


def _refusal(where: WebAddress, why: str) -> str:
    return (
        f"{where.host} {why}, and only the public internet is reached from here. If the user wants this, they can add "
        f'"{where.host}" to `web.allowPrivateHosts` in their settings.'
    )
