"""Where the browser may go: which pages may be shown, which hosts may be loaded from, and which a page asked for."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from wieldy.core.call import PlannedCall, ToolCall
from wieldy.core.decision import Decision, Judge
from wieldy.core.effects import Fetches
from wieldy.core.tool import Tool
from wieldy.web.url import HttpUrl, InvalidUrl, parse_url

if TYPE_CHECKING:
    from playwright.async_api import CDPSession, Page

REQUEST_EVENT_TIMEOUT = 2.0


class _NavigateTool(Tool):
    """Stands for BrowserNavigate when a page leads to another: both follow the same rules."""

    name = "BrowserNavigate"
    description = "Go to a page."


class NavigationPolicy:
    """Applies the permission rules to URLs, and remembers the hosts that were allowed by a call."""

    def __init__(self) -> None:
        self.judge: Judge | None = None
        self._allowed_hosts: set[str] = set()
        self._tool = _NavigateTool()

    def allow(self, url: HttpUrl) -> None:
        """Allow pages of this host while the browser is open."""
        self._allowed_hosts.add(url.host)

    def load_refusal(self, url: HttpUrl) -> str | None:
        """Why nothing may be loaded from a URL, not even an image of another page; None if it may."""
        decision = self._decide(url)
        return next((str(r) for r in decision.reasons if r.behavior == "deny" and r.kind != "mode"), None)

    def page_refusal(self, url: HttpUrl) -> str | None:
        """Why a page may not be shown; None if it may."""
        if (reason := self.load_refusal(url)) is not None:
            return reason
        decision = self._decide(url)
        return None if decision.behavior == "allow" or url.host in self._allowed_hosts else decision.why

    def _decide(self, url: HttpUrl) -> Decision:
        if self.judge is None:
            return Decision("ask", ())
        input = {"url": str(url)}
        call = ToolCall("", self._tool.name, input)
        return self.judge.decide(PlannedCall(call, self._tool, input, input, (Fetches(str(url)),)), ())


class NavigationGuard:
    """Stops navigations of a page that `refusal` gives a reason against, and notes them."""

    def __init__(self, refusal: Callable[[HttpUrl], str | None], note: Callable[[str], None]) -> None:
        self._refusal = refusal
        self._note = note
        self._embedded_frames: set[str] = set()
        self._cdp: CDPSession | None = None

    async def watch(self, page: Page) -> None:
        """Intercept the page's documents by the DevTools protocol; Playwright's routing does not see redirects."""
        self._cdp = cdp = await page.context.new_cdp_session(page)
        cdp.on("Page.frameAttached", self._on_frame_attached)
        cdp.on("Page.frameNavigated", self._on_frame_navigated)
        cdp.on("Fetch.requestPaused", self._on_request_paused)
        await cdp.send("Page.enable")
        await cdp.send("Fetch.enable", {"patterns": [{"urlPattern": "*", "resourceType": "Document"}]})

    def _on_frame_attached(self, event: dict[str, Any]) -> None:
        self._embedded_frames.add(event["frameId"])

    def _on_frame_navigated(self, event: dict[str, Any]) -> None:
        if "parentId" not in event["frame"]:
            self._embedded_frames.clear()

    async def _on_request_paused(self, event: dict[str, Any]) -> None:
        from playwright.async_api import Error

        assert self._cdp is not None
        reason = None if event["frameId"] in self._embedded_frames else self._check(event["request"]["url"])
        method, parameters = "Fetch.continueRequest", {"requestId": event["requestId"]}
        if reason is not None:
            self._note(reason)
            # "Aborted" leaves the page as it is; any other reason would replace it by an error page.
            method, parameters = "Fetch.failRequest", {**parameters, "errorReason": "Aborted"}
        # The page may be closed by now, and its request with it.
        with contextlib.suppress(Error):
            await self._cdp.send(method, parameters)

    def _check(self, text: str) -> str | None:
        try:
            url = parse_url(text)
        except InvalidUrl as problem:
            return f"the page tried to go to a place that is not followed: {problem}"
        reason = self._refusal(url)
        if reason is None:
            return None
        return f"the page tried to go to {url}, which was stopped ({reason}). BrowserNavigate asks for permission to go there"


class RequestedHosts:
    """The hosts that pages have requested. A connection may arrive before the request event, and then waits for it."""

    def __init__(self) -> None:
        self._hosts: set[str] = set()
        self._waiters: dict[str, list[asyncio.Future[None]]] = {}

    def add(self, url: str) -> None:
        """Note that a page has requested this URL."""
        try:
            host = urlsplit(url).hostname
        except ValueError:
            return
        if host and host not in self._hosts:
            self._hosts.add(host)
            for waiter in self._waiters.pop(host, ()):
                if not waiter.done():
                    waiter.set_result(None)

    async def wait_for(self, host: str, timeout: float = REQUEST_EVENT_TIMEOUT) -> bool:
        """Whether a page has requested this host, or does so before the timeout."""
        if host in self._hosts:
            return True
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(host, []).append(waiter)
        try:
            async with asyncio.timeout(timeout):
                await waiter
        except TimeoutError:
            return host in self._hosts
        return True
