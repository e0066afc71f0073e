"""Who may talk to the HTTP server: the right host name, no foreign web page, and the token where there is one."""

from __future__ import annotations

import hmac
import ipaddress
import json
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import urlsplit

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

LOOPBACK = ("localhost", "127.0.0.1", "::1")
SHORTEST_TOKEN = 16


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def is_everywhere(self) -> bool:
        """Whether it stands for every address of the machine."""
        return self.host in ("0.0.0.0", "::")

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def address(text: str) -> Address:
    """`HOST:PORT`, `[::1]:PORT`, `:PORT` or `PORT`; without a host it is this machine alone."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") or "127.0.0.1"
    if not (len(port) < 6 and port.isascii() and port.isdigit() and int(port) < 65536):
        raise ValueError(f"`{text}` is not an address: write HOST:PORT, as in 127.0.0.1:8931")
    return Address(host, int(port))


class Guard:
    """Stands before the application: a name made to point here (DNS rebinding) and a page from elsewhere are turned away."""

    def __init__(self, app: App, where: Address, *, token: str | None = None, hosts: Iterable[str] = ()) -> None:
        self._app = app
        self._token = token
        self._names = frozenset(name.lower() for name in (*LOOPBACK, where.host, *hosts))
        # Where every address is listened on, the machine's names are not known; then the token alone keeps strangers out.
        self._any_name = where.is_everywhere and token is not None and not tuple(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request pass, or answer why not."""
        if scope["type"] == "http" and (refusal := self.refusal(_headers(scope))) is not None:
            await _answer(send, *refusal)
            return
        await self._app(scope, receive, send)

    def refusal(self, headers: dict[str, str]) -> tuple[int, str] | None:
        """The status and the reason with which a request is turned away; None for a welcome one."""
        if not self._any_name and _name(f"//{headers.get('host', '')}") not in self._names:
            return 403, "this host name is not served here; start the server with --allow-host to add one"
        origin = headers.get("origin")
        if origin is not None and _name(origin) not in self._names:
            return 403, "web pages of this origin may not call this server"
        if self._token is not None and not self._knows(headers.get("authorization", "")):
            return 401, "a bearer token is needed: send `Authorization: Bearer TOKEN`"
        return None

    def _knows(self, authorization: str) -> bool:
        kind, _, given = authorization.partition(" ")
        assert self._token is not None
        return kind.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), self._token.encode())


def _headers(scope: Scope) -> dict[str, str]:
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}


def _name(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


async def _answer(send: Send, status: int, text: str) -> None:
    body = json.dumps({"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": text}}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
