"""Stops a page before it goes where it may not: every document of the main frame is judged, each hop of a redirect too."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from wieldy.web.address import BadAddress, WebAddress, parse_address

if TYPE_CHECKING:
    from playwright.async_api import CDPSession, Page


class Documents:
    """The check on where a page goes. `refused` says why a page may not be shown, or None."""

    def __init__(self, refused: Callable[[WebAddress], str | None], note: Callable[[str], None]) -> None:
        self._refused = refused
        self._note = note
        self._embedded: set[str] = set()
        self._protocol: CDPSession | None = None

    async def watch(self, page: Page) -> None:
        """Begin to check a page. Playwright's own routing does not see the hops of a redirect; the protocol does."""
        self._protocol = protocol = await page.context.new_cdp_session(page)
        protocol.on("Page.frameAttached", self._attached)
        protocol.on("Page.frameNavigated", self._navigated)
        protocol.on("Fetch.requestPaused", self._paused)
        await protocol.send("Page.enable")
        await protocol.send("Fetch.enable", {"patterns": [{"urlPattern": "*", "resourceType": "Document"}]})

    def _attached(self, event: dict[str, Any]) -> None:
        self._embedded.add(event["frameId"])

    def _navigated(self, event: dict[str, Any]) -> None:
        if "parentId" not in event["frame"]:
            self._embedded.clear()

    async def _paused(self, event: dict[str, Any]) -> None:
        from playwright.async_api import Error

        assert self._protocol is not None
        why = None if event["frameId"] in self._embedded else self._against(event["request"]["url"])
        method, reply = "Fetch.continueRequest", {"requestId": event["requestId"]}
        if why is not None:
            self._note(why)
            # "Aborted" leaves the page as it is; any other reason would put an error page in its place.
            method, reply = "Fetch.failRequest", {**reply, "errorReason": "Aborted"}
        # The page may be gone by now, and its request with it.
        with contextlib.suppress(Error):
            await self._protocol.send(method, reply)

    def _against(self, url: str) -> str | None:
        try:
            where = parse_address(url)
        except BadAddress as problem:
            return f"the page wanted to go to a place that is not followed: {problem}"
        why = self._refused(where)
        if why is None:
            return None
        return f"the page wanted to go to {where}, which was stopped ({why}). BrowserNavigate asks for permission to go there"
