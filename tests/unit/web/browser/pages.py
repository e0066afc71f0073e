"""A toolbox with a real browser, whose connections are noted and never leave this machine."""

from __future__ import annotations

import os
import re
import ssl
from pathlib import Path
from typing import Any

from tests.needs import skip_untested
from tests.unit.web.loopback import Names

from wieldy import Toolbox
from wieldy.core.outcome import ToolResult
from wieldy.web.browser import missing_requirement
from wieldy.web.http import Streams, open_streams

LOCAL = {"web": {"allowPrivateHosts": ["127.0.0.1", "*.test"]}, "browser": {"sandbox": False}}


class OnlyLoopback:
    """Connects to loopback, and notes and refuses every other connection."""

    def __init__(self) -> None:
        self.attempts: list[tuple[str, str]] = []

    async def __call__(self, address: str, port: int, tls: ssl.SSLContext | None, name: str) -> Streams:
        self.attempts.append((name, address))
        if address != "127.0.0.1":
            raise ConnectionRefusedError(111, "noted, not connected")
        return await open_streams(address, port, tls, name)


def skip_without_browser() -> None:
    if missing := missing_requirement(os.environ):
        skip_untested(f"browser tools: {missing}")


def browsing(root: Path, names: Names | None = None, settings: dict[str, Any] | None = None, **options: Any) -> Toolbox:
    """A toolbox that may open pages of this machine. Skips where there is no browser."""
    skip_without_browser()
    options.setdefault("mode", "bypassPermissions")
    box = Toolbox(root, settings={"features": {"browser": True}, **LOCAL, **(settings or {})}, **options)
    fetcher = box.workspace.services.fetcher
    fetcher.client.connect, fetcher.resolver = OnlyLoopback(), names or Names()
    return box


def connections(box: Toolbox) -> list[tuple[str, str]]:
    """Name and address of every connection the browser was let make."""
    connect = box.workspace.services.fetcher.client.connect
    assert isinstance(connect, OnlyLoopback)
    return connect.attempts


def ref(seen: ToolResult, what: str) -> str:
    """The ref of the element that a snapshot describes with these words."""
    found = re.search(rf"{re.escape(what)}[^\n]*?\[ref=(\w+)\]", seen.text)
    assert found, seen.text
    return found[1]
