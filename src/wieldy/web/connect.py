"""Opens one connection to an address that was judged; the certificate is checked against the name that was asked for."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

from wieldy.core.failure import ToolFailure

Streams: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect: TypeAlias = Callable[[str, int, ssl.SSLContext | None, str], Awaitable[Streams]]
"""Connects to (address, port); with a TLS context the certificate must be for the name, the last argument."""


async def open_streams(address: str, port: int, tls: ssl.SSLContext | None, name: str) -> Streams:
    """A connection of the system."""
    if tls is None:
        return await asyncio.open_connection(address, port)
    return await asyncio.open_connection(address, port, ssl=tls, server_hostname=name)


def tls_context(env: Mapping[str, str]) -> ssl.SSLContext:
    """The authorities of the system, and those of `WIELDY_CA_FILE` or `SSL_CERT_FILE`. Reads files: not for the loop."""
    context = ssl.create_default_context()
    if extra := env.get("WIELDY_CA_FILE") or env.get("SSL_CERT_FILE"):
        try:
            context.load_verify_locations(extra)
        except (OSError, ssl.SSLError) as error:
            raise ToolFailure(f"The certificates in {extra} cannot be read: {error}.") from None
    return context
