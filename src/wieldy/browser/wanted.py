"""Which hosts pages have asked for. A browser has errands of its own (updates, accounts, statistics): those are not run."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

PATIENCE = 2.0


class Wanted:
    """Hosts by request. Who connects may be quicker than who tells of the request, and then waits a moment."""

    def __init__(self) -> None:
        self._hosts: set[str] = set()
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}

    def note(self, url: str) -> None:
        """A page has asked for this address."""
        try:
            host = urlsplit(url).hostname
        except ValueError:
            return
        if host and host not in self._hosts:
            self._hosts.add(host)
            for waiter in self._waiting.pop(host, ()):
                if not waiter.done():
                    waiter.set_result(None)

    async def has(self, host: str, patience: float = PATIENCE) -> bool:
        """Whether a page has asked for this host, or does so within a moment."""
        if host in self._hosts:
            return True
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(host, []).append(waiter)
        try:
            async with asyncio.timeout(patience):
                await waiter
        except TimeoutError:
            return host in self._hosts
        return True
