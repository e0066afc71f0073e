"""Which IP addresses may be connected to: public ones, and private hosts that the settings name."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from wieldy.core.errors import ToolFailure
from wieldy.core.threads import in_thread
from wieldy.web.url import HttpUrl

IPAddress: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolver: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]
"""Looks up the IP addresses of a host name. Raises `OSError`."""

NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
LOCAL_NAT64 = ipaddress.IPv6Network("64:ff9b:1::/48")
AZURE_HOST = ipaddress.IPv4Address("168.63.129.16")
"""Azure's machines reach the host that they run on, with its keys, at this public address."""
IETF_ASSIGNMENTS = ipaddress.IPv4Network("192.0.0.0/24")

INTERNAL_NAMES = ("localhost", "local", "internal", "localdomain", "metadata")
# A host name in the settings may resolve to these; any other internal address must be named itself.
ALLOWED_BY_NAME = frozenset({"loopback", "private"})


LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
LOOKUP_SECONDS_BEFORE_PROXY = 15.0
"""Longer than the system's resolver tries where no name server answers, which is usual behind a proxy: 10 s."""


class HostRefused(ToolFailure):
    """A host that may not be connected to; says why and what would change that."""


class HostNotFound(HostRefused):
    """A name that the resolver of this machine does not know."""


async def resolve_host(host: str, port: int) -> Sequence[str]:
    """Resolve a host name with the system's resolver."""
    entries = await in_thread(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in entries))


class AddressPolicy:
    """Allows public addresses and `private_hosts` (`host`, `host:port` or `*.host`)."""

    def __init__(
        self,
        private_hosts: Sequence[str] = (),
        resolver: Resolver = resolve_host,
        lookup_seconds: float = LOOKUP_SECONDS_BEFORE_PROXY,
    ) -> None:
        self._private_hosts = [str(entry).strip().lower() for entry in private_hosts]
        self._resolver = resolver
        self._lookup_seconds = lookup_seconds

    async def resolve(self, url: HttpUrl) -> tuple[str, ...]:
        """The addresses to connect to for this request. Raises `HostRefused` if any address is not allowed."""
        private_allowed = self._allows_private(url)
        if not private_allowed and url.host.rpartition(".")[2] in INTERNAL_NAMES:
            raise _refusal(url, "names a host inside a network")
        addresses = await self._look_up(url)
        for address in addresses:
            kind = non_public_kind(address)
            if kind is not None and not (private_allowed and (kind in ALLOWED_BY_NAME or address == url.host)):
                verb = "is" if address == url.host else f"leads to {address},"
                raise _refusal(url, f"{verb} a {kind} address")
        return addresses

    async def check_for_proxy(self, url: HttpUrl) -> None:
        """Check a host that a proxy connects to, which resolves its name itself. Raises `HostRefused`.

        A name that this machine resolves must lead to allowed addresses here, too. One that it does not know, as is usual
        behind such a proxy, is left to the proxy if it is a whole domain name. One whose look-up does not end may be slow
        on purpose, to lead the proxy inside the network.
        """
        try:
            async with asyncio.timeout(self._lookup_seconds):
                await self.resolve(url)
        except HostNotFound:
            if "." not in url.host and not self._allows_private(url):
                raise _refusal(url, "names a host inside a network") from None
        except TimeoutError:
            if not self._allows_private(url):
                raise _refusal(url, f"was not looked up within {self._lookup_seconds:g} s") from None

    def _allows_private(self, url: HttpUrl) -> bool:
        for entry in self._private_hosts:
            for text in {entry, entry.removesuffix(f":{url.port}")}:
                pattern = text.removeprefix("[").removesuffix("]").removesuffix(".")
                if url.host == pattern or (pattern.startswith("*.") and url.host.endswith(pattern[1:])):
                    return True
        return False

    async def _look_up(self, url: HttpUrl) -> tuple[str, ...]:
        if url.host.replace(".", "").isdigit() or ":" in url.host:
            return (url.host,)
        try:
            addresses = tuple(await self._resolver(url.host, url.port))
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise HostNotFound(f"{url.host} cannot be found: {reason}.", "Check the spelling of the host.") from None
        if not addresses:
            raise HostNotFound(f"{url.host} has no address.", "Check the spelling of the host.")
        return addresses


def non_public_kind(text: str) -> str | None:
    """What kind of internal address this is ("loopback", "link-local" …); None for a public one."""
    try:
        address: IPAddress = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return "malformed"
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return _kind(address.ipv4_mapped)
        if address in NAT64:
            # IPv6-only networks reach the whole IPv4 internet by this prefix.
            return _kind(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
        if address.sixtofour is not None or address.teredo is not None or address in LOCAL_NAT64:
            return "tunnel"
        if address.is_site_local:
            return "private"
    return _kind(address)


def is_loopback(host: str) -> bool:
    """Whether a host means this machine, whatever a resolver says."""
    return host == "localhost" or non_public_kind(host) == "loopback"


def _kind(address: IPAddress) -> str | None:
    if address.is_unspecified:
        return "unspecified"
    if address.is_loopback:
        return "loopback"
    if address.is_link_local:
        return "link-local"
    if address.is_multicast:
        return "multicast"
    if address == AZURE_HOST:
        return "metadata"
    if address == ipaddress.IPv4Address("255.255.255.255"):
        return "broadcast"
    if address.is_reserved or (address.version == 4 and address in IETF_ASSIGNMENTS):
        return "reserved"
    return None if address.is_global else "private"


def _refusal(url: HttpUrl, why: str) -> HostRefused:
    problem = f"{url.host} {why}, and only the public internet is reached from here."
    setting = f'"{url.host}" to `web.allowPrivateHosts` in'
    next_step = f"If the user wants this, they can add {setting} their settings."
    return HostRefused(problem, next_step, person=f"{problem} To allow it, add {setting} your settings.")
