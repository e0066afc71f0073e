"""A web address in its one canonical spelling, so that what is judged is what is connected to."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import SplitResult, quote, urljoin, urlsplit

from msgspec import Struct

from wieldy.core.effects import Effects, Fetches
from wieldy.core.errors import Refusal
from wieldy.core.workspace import Workspace

LONGEST = 8192
PORTS = {"http": 80, "https": 443}
NAME = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)(\.(?!-)[a-z0-9_-]{1,63}(?<!-))*")
PLACE = re.compile(r"(\[[^\[\]@]*\]|[^\[\]:@]+)(:[0-9]*)?")
NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
# Letters for which the two standards of international names disagree.
TWO_MEANINGS = frozenset("ßẞς\u200c\u200d")
KEPT_IN_PATH = "/%:@!$&'()*+,;=~"
KEPT_IN_QUERY = KEPT_IN_PATH + "?[]|"


class BadAddress(ValueError):
    """What is wrong with an address, and how to write it."""


class WebAddress(Struct, frozen=True):
    """An http address: the host lower-case and ASCII, a numeric one as plain numbers; no user, no fragment."""

    scheme: str
    host: str
    port: int
    target: str = "/"

    @property
    def place(self) -> str:
        """Host and port, as the `Host` header has it: the usual port is left out."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        """The address as text."""
        return f"{self.scheme}://{self.place}{self.target}"

    @property
    def secure(self) -> bool:
        """Whether the connection is encrypted."""
        return self.scheme == "https"

    def __str__(self) -> str:
        return self.url

    def join(self, reference: str) -> WebAddress:
        """Where a reference on this page leads. Raises `BadAddress`."""
        return parse_address(urljoin(self.url, reference.strip()))


def parse_address(text: str) -> WebAddress:
    """Read an address. Raises `BadAddress` for one that two programs could read in two ways."""
    text = text.strip()
    if len(text) > LONGEST:
        raise BadAddress(f"The address has {len(text)} characters; at most {LONGEST} are possible.")
    if odd := next((letter for letter in text if letter <= " " or letter in "\\\x7f"), None):
        raise BadAddress(f"The address holds {odd!r}. Write it as %{ord(odd):02X}, or leave it out.")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise BadAddress(f"`{_short(text)}` is not an address: {error}.") from None
    if parts.scheme not in PORTS or not parts.netloc:
        raise BadAddress(f"`{_short(text)}` is no web address. Send a full one that starts with https:// or http://.")
    if "@" in parts.netloc:
        raise BadAddress("The address holds a user name or password. Send it without.")
    if not PLACE.fullmatch(parts.netloc):
        raise BadAddress(f"`{_short(parts.netloc)}` is not a host with an optional port.")
    if port == 0:
        raise BadAddress("Port 0 cannot be connected to.")
    return WebAddress(
        parts.scheme,
        _host(parts.hostname or "", bracketed="[" in parts.netloc),
        port or PORTS[parts.scheme],
        _target(parts),
    )


def _host(host: str, *, bracketed: bool) -> str:
    if bracketed or ":" in host or "%" in host:
        try:
            address = ipaddress.IPv6Address(host)
        except ValueError:
            raise BadAddress(f"`{_short(host)}` is not a host name or address.") from None
        if address.scope_id is not None:
            raise BadAddress(f"`{host}` names a network interface. Send the address without `%…`.")
        inner = address.ipv4_mapped  # from Python 3.13 on written in another way than browsers do
        return address.compressed if inner is None else f"::ffff:{int(inner) >> 16:x}:{int(inner) & 0xFFFF:x}"
    if TWO_MEANINGS.intersection(host):
        raise BadAddress(f"`{_short(host)}` can mean two hosts. Write it in ASCII (`xn--…`).")
    try:
        name = host.encode("idna").decode().lower().removesuffix(".")
    except UnicodeError:
        name = ""
    if len(name) > 253 or not NAME.fullmatch(name):
        raise BadAddress(f"`{_short(host)}` is not a host name.")
    return _number(name) if NUMBER.fullmatch(name.rpartition(".")[2]) else name


def _number(name: str) -> str:
    """The IPv4 address that a name ending in a number is for every browser: parts may be missing, octal or hexadecimal."""
    try:
        *high, last = [_part(part) for part in name.split(".")]
    except ValueError:
        raise BadAddress(f"`{name}` ends in a number but is no address.") from None
    if len(high) > 3 or any(part > 255 for part in high) or last >= 256 ** (4 - len(high)):
        raise BadAddress(f"`{name}` ends in a number but is no address.")
    return str(ipaddress.IPv4Address(sum(part << (24 - 8 * place) for place, part in enumerate(high)) + last))


def _part(text: str) -> int:
    if text.startswith("0x"):
        return int(text[2:] or "0", 16)
    return int(text, 8) if len(text) > 1 and text.startswith("0") else int(text)


def _target(parts: SplitResult) -> str:
    path = quote(parts.path, safe=KEPT_IN_PATH) or "/"
    return f"{path}?{quote(parts.query, safe=KEPT_IN_QUERY)}" if parts.query else path


def _short(text: str) -> str:
    return text if len(text) <= 100 else text[:97] + "…"


def canonical_url(input: dict[str, Any], workspace: Workspace) -> dict[str, Any]:
    """The input with its `url` in canonical form. Raises `Refusal` for what is no web address."""
    return {**input, "url": _parsed(input["url"]).url}


def canonical_page(input: dict[str, Any], workspace: Workspace) -> dict[str, Any]:
    """The same, but with the part after `#`: pages that are programs have their places there."""
    from urllib.parse import quote, urlsplit

    url = _parsed(input["url"]).url
    fragment = quote(urlsplit(input["url"].strip()).fragment, safe=KEPT_IN_QUERY)
    return {**input, "url": f"{url}#{fragment}" if fragment else url}


def fetches_url(input: Mapping[str, Any], workspace: Workspace) -> Effects:
    """Talks to the host of `url`."""
    return (Fetches(input["url"]),)


def _parsed(url: str) -> WebAddress:

    try:
        return parse_address(url)
    except BadAddress as problem:
        raise Refusal("normalize", str(problem)) from None
