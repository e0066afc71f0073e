"""HTTP URLs in one canonical spelling, so that the URL that was authorized is the URL that is requested."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import SplitResult, quote, urljoin, urlsplit

from msgspec import Struct

from wieldy.core.effects import Effects, Fetches
from wieldy.core.errors import Refusal
from wieldy.core.text import truncate
from wieldy.core.workspace import Workspace

MAX_LENGTH = 8192
PORTS = {"http": 80, "https": 443}
HOST_NAME = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)(\.(?!-)[a-z0-9_-]{1,63}(?<!-))*")
HOST_AND_PORT = re.compile(r"(\[[^\[\]@]*\]|[^\[\]:@]+)(:[0-9]*)?")
NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
# IDNA 2003 and IDNA 2008 map these characters to different host names.
AMBIGUOUS_IN_IDNA = frozenset("ßẞς\u200c\u200d")
SAFE_IN_PATH = "/%:@!$&'()*+,;=~"
SAFE_IN_QUERY = SAFE_IN_PATH + "?[]|"


class InvalidUrl(ValueError):
    """Text that is not an unambiguous http or https URL; `next_step` says how to write it."""

    def __init__(self, problem: str, next_step: str = "") -> None:
        super().__init__(f"{problem} {next_step}".strip())
        self.problem = problem
        self.next_step = next_step


class HttpUrl(Struct, frozen=True):
    """A parsed URL. The host is lower-case ASCII, numeric hosts are normalized; there is no user info and no fragment."""

    scheme: str
    host: str
    port: int
    target: str = "/"

    @property
    def authority(self) -> str:
        """Host and port as in the `Host` header, without the scheme's default port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def secure(self) -> bool:
        return self.scheme == "https"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.target}"

    def join(self, reference: str) -> HttpUrl:
        """Resolve a relative reference. Raises `InvalidUrl`."""
        return parse_url(urljoin(str(self), reference.strip()))


def parse_url(text: str) -> HttpUrl:
    """Parse a URL. Raises `InvalidUrl`, also for one that different parsers read differently."""
    text = text.strip()
    if len(text) > MAX_LENGTH:
        raise InvalidUrl(f"The address has {len(text)} characters; at most {MAX_LENGTH} are possible.")
    if odd := next((letter for letter in text if letter <= " " or letter in "\\\x7f"), None):
        raise InvalidUrl(f"The address contains {odd!r}.", f"Write it as %{ord(odd):02X}, or leave it out.")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise InvalidUrl(f"`{truncate(text, 100)}` is not an address: {error}.") from None
    if parts.scheme not in PORTS or not parts.netloc:
        raise InvalidUrl(
            f"`{truncate(text, 100)}` is no web address.", "Send a full one that starts with https:// or http://."
        )
    if "@" in parts.netloc:
        raise InvalidUrl("The address contains a user name or password.", "Send it without.")
    if not HOST_AND_PORT.fullmatch(parts.netloc):
        raise InvalidUrl(f"`{truncate(parts.netloc, 100)}` is not a host with an optional port.")
    if port == 0:
        raise InvalidUrl("Port 0 cannot be connected to.")
    host = _parse_host(parts.hostname or "", bracketed="[" in parts.netloc)
    return HttpUrl(parts.scheme, host, port or PORTS[parts.scheme], _quote_target(parts))


def _parse_host(host: str, *, bracketed: bool) -> str:
    if bracketed or ":" in host or "%" in host:
        try:
            address = ipaddress.IPv6Address(host)
        except ValueError:
            raise InvalidUrl(f"`{truncate(host, 100)}` is not a host name or address.") from None
        if address.scope_id is not None:
            raise InvalidUrl(f"`{host}` names a network interface.", "Send the address without `%…`.")
        mapped = address.ipv4_mapped  # Python 3.13 and later spell these differently from browsers
        return address.compressed if mapped is None else f"::ffff:{int(mapped) >> 16:x}:{int(mapped) & 0xFFFF:x}"
    if AMBIGUOUS_IN_IDNA.intersection(host):
        raise InvalidUrl(f"`{truncate(host, 100)}` can mean two hosts.", "Write it in ASCII (`xn--…`).")
    try:
        name = host.encode("idna").decode().lower().removesuffix(".")
    except UnicodeError:
        name = ""
    if len(name) > 253 or not HOST_NAME.fullmatch(name):
        raise InvalidUrl(f"`{truncate(host, 100)}` is not a host name.")
    return _parse_ipv4(name) if NUMBER.fullmatch(name.rpartition(".")[2]) else name


def _parse_ipv4(name: str) -> str:
    """Normalize a host that ends in a number as browsers do: parts may be missing, octal or hexadecimal."""
    try:
        *high, last = [_parse_ipv4_part(part) for part in name.split(".")]
    except ValueError:
        raise InvalidUrl(f"`{name}` ends in a number but is no address.") from None
    if len(high) > 3 or any(part > 255 for part in high) or last >= 256 ** (4 - len(high)):
        raise InvalidUrl(f"`{name}` ends in a number but is no address.")
    return str(ipaddress.IPv4Address(sum(part << (24 - 8 * index) for index, part in enumerate(high)) + last))


def _parse_ipv4_part(text: str) -> int:
    if text.startswith("0x"):
        return int(text[2:] or "0", 16)
    return int(text, 8) if len(text) > 1 and text.startswith("0") else int(text)


def _quote_target(parts: SplitResult) -> str:
    path = quote(parts.path, safe=SAFE_IN_PATH) or "/"
    return f"{path}?{quote(parts.query, safe=SAFE_IN_QUERY)}" if parts.query else path


def canonical_url(input: dict[str, Any], workspace: Workspace) -> dict[str, Any]:
    """Normalize the `url` of a tool's input. Raises `Refusal`."""
    return {**input, "url": str(_parse_input(input["url"]))}


def canonical_page_url(input: dict[str, Any], workspace: Workspace) -> dict[str, Any]:
    """Normalize the `url` of a tool's input and keep its fragment, which single-page applications route by."""
    url = _parse_input(input["url"])
    fragment = quote(urlsplit(input["url"].strip()).fragment, safe=SAFE_IN_QUERY)
    return {**input, "url": f"{url}#{fragment}" if fragment else str(url)}


def fetches_url(input: Mapping[str, Any], workspace: Workspace) -> Effects:
    """The effects of a tool that requests its `url`."""
    return (Fetches(input["url"]),)


def _parse_input(url: str) -> HttpUrl:
    try:
        return parse_url(url)
    except InvalidUrl as problem:
        raise Refusal("normalize", problem.problem, problem.next_step) from None
