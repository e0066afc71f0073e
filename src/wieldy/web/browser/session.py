"""The browser of a workspace: started at first use, one page, one action at a time, each with a timeout."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from wieldy.core.decision import Judge
from wieldy.core.effects import NO_EFFECTS, Effects, Fetches
from wieldy.core.errors import ToolFailure
from wieldy.core.workspace import Workspace
from wieldy.web.address_policy import HostRefused
from wieldy.web.browser.chromium import Chromium, missing_requirement
from wieldy.web.browser.navigation import NavigationGuard, NavigationPolicy, RequestedHosts
from wieldy.web.browser.page_events import PageEvents
from wieldy.web.fetch import Fetcher
from wieldy.web.http import Streams
from wieldy.web.proxy import REFUSED_HEADER, ForwardProxy
from wieldy.web.url import HttpUrl, parse_url

if TYPE_CHECKING:
    from playwright.async_api import Locator, Page, Response

NAVIGATE_TIMEOUT = 30.0
ACTION_TIMEOUT = 10.0
SETTLE_TIMEOUT = 5.0
NEW_WINDOW_TIMEOUT = 2.0
NAVIGATE_ATTEMPTS = 3
MAX_SNAPSHOT_CHARS = 30_000
CRASHED = ("The page has crashed.", "Call BrowserNavigate to open it anew.")
NO_PAGE = ("No page is open.", "Call BrowserNavigate first.")


def browser_available(workspace: Workspace) -> bool | str:
    """Whether pages can be opened here; a string says what is missing."""
    return missing_requirement(workspace.env) or True


def page_effects(input: Mapping[str, Any], workspace: Workspace) -> Effects:
    """The effects of an action on the page: it talks to the page's host."""
    url = workspace.services.browser.url
    return (Fetches(url),) if url else NO_EFFECTS


async def snapshot(session: BrowserSession, judge: Judge, ref: str = "") -> str:
    """The accessibility tree of the page, or of one element. Raises `ToolFailure`."""
    async with session.act(judge, settle=False) as page:
        target = await session.element(page, ref) if ref else page
        tree = truncate_tree(await target.aria_snapshot(mode="ai"))
        if ref:
            # Refs belong to the last snapshot: one of the whole page keeps all of them usable.
            await page.aria_snapshot(mode="ai")
        title, url = await page.title(), page.url
    parts = [f"{title}\n<{url}>".strip(), tree or "(the page is empty)"]
    if notes := session.take_notes():
        parts.append("\n".join(("What else happened:", *(f"- {line}" for line in notes))))
    return "\n\n".join(parts)


def truncate_tree(tree: str, limit: int = MAX_SNAPSHOT_CHARS) -> str:
    """The first lines of a tree, and how many more there are."""
    if len(tree) <= limit:
        return tree
    head = tree[:limit].rpartition("\n")[0] or tree[:limit]
    omitted = tree.count("\n") - head.count("\n")
    return f"{head}\n[{omitted} more lines; BrowserSnapshot with the `ref` of a part shows that part]"


class BrowserSession:
    """`workspace.services.browser`. The first navigation starts the browser."""

    def __init__(self, workspace: Workspace, fetcher: Fetcher) -> None:
        self._workspace = workspace
        self._fetcher = fetcher
        self._lock = asyncio.Lock()
        self._chromium: Chromium | None = None
        self._proxy: ForwardProxy | None = None
        self._events = PageEvents()
        self._requested_hosts = RequestedHosts()
        self._policy = NavigationPolicy()

    @property
    def url(self) -> str | None:
        """The URL of the page; None if none is open."""
        if self._chromium is None or not self._chromium.alive:
            return None
        url = self._chromium.page.url
        return None if url == "about:blank" or url.startswith("chrome-error:") else url

    async def navigate(self, text: str, judge: Judge) -> int | None:
        """Go to a page that was permitted; its HTTP status. Raises `ToolFailure`."""
        if missing := missing_requirement(self._workspace.env):
            raise ToolFailure(f"There is no browser to use: {missing}.")
        from playwright.async_api import Error, TimeoutError

        url = parse_url(text)
        async with self._lock:
            self._policy.judge = judge
            # Refuse here rather than by an error page, and before anything is started.
            await self._resolve(url)
            await self._start(judge)
            self._policy.allow(url)
            page = self._require_page()
            try:
                response = await self._go(page, text)
            except TimeoutError:
                raise ToolFailure(f"{url} did not load within {NAVIGATE_TIMEOUT:g} s.") from None
            except Error as error:
                notes = [line for line in self._events.take_notes() if not line.startswith("request failed")]
                raise ToolFailure(f"{url} was not opened: {'; '.join(notes) or _reason(error)}") from None
            if response is not None and REFUSED_HEADER in response.headers:
                self._events.take_notes()
                raise ToolFailure((await response.text()).strip())
            await self._events.wait_until_idle(SETTLE_TIMEOUT)
            return response.status if response else None

    @asynccontextmanager
    async def act(self, judge: Judge, *, settle: bool = True) -> AsyncIterator[Page]:
        """Lend the page for one action, then wait until it is idle. Raises `ToolFailure` if the action fails."""
        async with self._lock:
            self._policy.judge = judge
            page = self._require_page()
            from playwright.async_api import Error, TimeoutError

            try:
                yield page
                if settle:
                    await self._events.wait_until_idle(SETTLE_TIMEOUT)
            except TimeoutError as error:
                raise ToolFailure(f"The page did not let that happen in time: {_reason(error)}") from None
            except Error as error:
                if not self._chromium or not self._chromium.alive or "has been closed" in str(error):
                    raise ToolFailure(*CRASHED) from None
                raise ToolFailure(f"That did not work: {_reason(error)}") from None

    async def element(self, page: Page, ref: str) -> Locator:
        """The element with a ref of the last snapshot. Raises `ToolFailure` if it is gone."""
        locator = page.locator(f"aria-ref={ref}") if ref.isalnum() else None
        if locator is None or await locator.count() == 0:
            raise ToolFailure(
                f"There is no element `{ref}` on the page now.", "Take a BrowserSnapshot and use a ref of it."
            )
        return locator

    def take_notes(self) -> Sequence[str]:
        """What went wrong on the page since the last call."""
        return self._events.take_notes()

    async def close(self) -> bool:
        """End the browser; whether one was running."""
        async with self._lock:
            return await self._stop()

    async def aclose(self) -> None:
        await self._stop()

    def _require_page(self) -> Page:
        if self._chromium is None:
            raise ToolFailure(*NO_PAGE)
        if not self._chromium.alive or self._events.crashed:
            raise ToolFailure(*CRASHED)
        return self._chromium.page

    async def _start(self, judge: Judge) -> None:
        if self._chromium is not None and self._chromium.alive and not self._events.crashed:
            return
        await self._stop()
        self._events, self._policy, self._requested_hosts = PageEvents(), NavigationPolicy(), RequestedHosts()
        self._policy.judge = judge
        self._proxy = ForwardProxy(self._connect)
        port = await self._proxy.listen()
        self._chromium = chromium = Chromium()
        try:
            await chromium.start(self._workspace, f"http://127.0.0.1:{port}")
            page = chromium.page
            page.set_default_timeout(ACTION_TIMEOUT * 1000)
            self._events.watch(page)
            page.context.on("request", lambda request: self._requested_hosts.add(request.url))
            page.context.on("page", self._close_window)
            page.on("websocket", lambda socket: self._requested_hosts.add(socket.url))
            await NavigationGuard(self._policy.page_refusal, self._events.note).watch(page)
        except BaseException:
            await self._stop()
            raise

    async def _stop(self) -> bool:
        chromium, proxy = self._chromium, self._proxy
        self._chromium = self._proxy = None
        if chromium is not None:
            await chromium.aclose()
        if proxy is not None:
            await proxy.aclose()
        return chromium is not None

    async def _go(self, page: Page, url: str) -> Response | None:
        from playwright.async_api import Error

        for _ in range(NAVIGATE_ATTEMPTS - 1):
            try:
                return await page.goto(url, wait_until="domcontentloaded", timeout=NAVIGATE_TIMEOUT * 1000)
            except Error as error:
                if "interrupted by another navigation" not in str(error):
                    raise
            # A navigation of an earlier call, or its error page, came in between.
            await self._events.wait_until_idle(SETTLE_TIMEOUT)
        return await page.goto(url, wait_until="domcontentloaded", timeout=NAVIGATE_TIMEOUT * 1000)

    async def _resolve(self, url: HttpUrl) -> Sequence[str]:
        if (reason := self._policy.load_refusal(url)) is not None:
            raise HostRefused(f"{url.host} may not be connected to: {reason}.")
        return await self._fetcher.address_policy().resolve(url)

    async def _connect(self, url: HttpUrl) -> Streams:
        """Open a connection for the browser's proxy, and note why if it is refused."""
        if not await self._requested_hosts.wait_for(url.host):
            raise HostRefused("no page asked for this host")
        try:
            return await self._fetcher.connect_any(url, await self._resolve(url))
        except ToolFailure as error:
            self._events.note(f"not loaded: {url.authority}: {error}")
            raise

    async def _close_window(self, page: Page) -> None:
        """Close a window that the page opened, and note where it led."""
        from playwright.async_api import Error

        self._events.started(page)
        with contextlib.suppress(Error):
            await page.wait_for_url(
                lambda url: url != "about:blank", wait_until="commit", timeout=NEW_WINDOW_TIMEOUT * 1000
            )
        self._events.note(f"the page opened a new window, which was closed; BrowserNavigate goes there: {page.url}")
        with contextlib.suppress(Error):
            await page.close()
        self._events.finished(page)


def _reason(error: Exception) -> str:
    """The first line of Playwright's message, without the name of its own method."""
    line = next((line.strip() for line in str(error).splitlines() if line.strip()), "no reason given")
    return line.partition(": ")[2] or line
