"""The browser of a workspace: started when first needed, one page, one action at a time, each bounded in time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from wieldy.browser.launch import Chromium, Documents, Happenings, what_is_missing
from wieldy.browser.network import REFUSED_BY_US, Visits, Wanted, WayOut
from wieldy.core.decision import Judge
from wieldy.core.effects import NOTHING, Effects, Fetches
from wieldy.core.errors import ToolFailure
from wieldy.core.workspace import Workspace
from wieldy.web.address import WebAddress, parse_address
from wieldy.web.address_policy import OutOfReach
from wieldy.web.fetch import Fetcher, Streams

if TYPE_CHECKING:
    from playwright.async_api import Locator, Page, Response


NAVIGATE_SECONDS = 30.0
ACT_SECONDS = 10.0
SETTLE_SECONDS = 5.0
WINDOW_SECONDS = 2.0
ATTEMPTS = 3
CRASHED = "The page has crashed. Call BrowserNavigate to open it anew."
NO_PAGE = "No page is open. Call BrowserNavigate first."


class BrowserSession:
    """`workspace.service(BrowserSession)`. Nothing is started before the first page is opened."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._fetcher = workspace.service(Fetcher)
        self._alone = asyncio.Lock()
        self._chromium: Chromium | None = None
        self._way_out: WayOut | None = None
        self._happenings = Happenings()
        self._wanted = Wanted()
        self.visits = Visits()

    @property
    def url(self) -> str | None:
        """Where the page is; None where none is open."""
        if self._chromium is None or not self._chromium.alive:
            return None
        url = self._chromium.page.url
        return None if url == "about:blank" or url.startswith("chrome-error:") else url

    async def navigate(self, url: str, judge: Judge) -> int | None:
        """Go to a page that somebody permitted; its HTTP status. Raises `ToolFailure`."""
        if missing := what_is_missing(self._workspace.env):
            raise ToolFailure(f"There is no browser to use: {missing}.")
        from playwright.async_api import Error, TimeoutError

        where = parse_address(url)
        async with self._alone:
            self.visits.judge = judge
            # Said here rather than by an error page, and before anything is started.
            await self._addresses(where)
            await self._started(judge)
            self.visits.permit(where)
            page = self._page()
            try:
                response = await self._gone(page, url)
            except TimeoutError:
                raise ToolFailure(f"{where} did not load within {NAVIGATE_SECONDS:g} s.") from None
            except Error as error:
                raise ToolFailure(self._why_not(where, error)) from None
            if response is not None and REFUSED_BY_US in response.headers:
                self._happenings.told()
                raise ToolFailure(await response.text())
            await self._happenings.quiet(SETTLE_SECONDS)
            return response.status if response else None

    @asynccontextmanager
    async def act(self, judge: Judge, *, settle: bool = True) -> AsyncIterator[Page]:
        """The page, for one action; afterwards it has come to rest. Raises `ToolFailure` for what went wrong with it."""
        async with self._alone:
            self.visits.judge = judge
            page = self._page()
            from playwright.async_api import Error, TimeoutError

            try:
                yield page
                if settle:
                    await self._happenings.quiet(SETTLE_SECONDS)
            except TimeoutError as error:
                raise ToolFailure(f"The page did not let that happen in time: {_reason(error)}") from None
            except Error as error:
                if not self._chromium or not self._chromium.alive or "has been closed" in str(error):
                    raise ToolFailure(CRASHED) from None
                raise ToolFailure(f"That did not work: {_reason(error)}") from None

    async def element(self, page: Page, ref: str) -> Locator:
        """The element of a snapshot. Raises `ToolFailure` for one that is not there (any more)."""
        found = page.locator(f"aria-ref={ref}") if ref.isalnum() else None
        if found is None or await found.count() == 0:
            raise ToolFailure(
                f"There is no element `{ref}` on the page now. Take a BrowserSnapshot and use a ref of it."
            )
        return found

    def happenings(self) -> Sequence[str]:
        """What went wrong on the page since the last time."""
        return self._happenings.told()

    async def close(self) -> bool:
        """End the browser; whether there was one."""
        async with self._alone:
            return await self._discarded()

    async def aclose(self) -> None:
        """End the browser with the workspace."""
        await self._discarded()

    def _page(self) -> Page:
        if self._chromium is None:
            raise ToolFailure(NO_PAGE)
        if not self._chromium.alive or self._happenings.crashed:
            raise ToolFailure(CRASHED)
        return self._chromium.page

    async def _started(self, judge: Judge) -> None:
        if self._chromium is not None and self._chromium.alive and not self._happenings.crashed:
            return
        await self._discarded()
        self._happenings, self.visits, self._wanted = Happenings(), Visits(), Wanted()
        self.visits.judge = judge
        self._way_out = WayOut(self._reached)
        proxy = await self._way_out.open()
        self._chromium = chromium = Chromium()
        try:
            await chromium.start(self._workspace, proxy)
            page = chromium.page
            page.set_default_timeout(ACT_SECONDS * 1000)
            self._happenings.watch(page)
            page.context.on("request", lambda request: self._wanted.note(request.url))
            page.context.on("page", self._another_window)
            page.on("websocket", lambda socket: self._wanted.note(socket.url))
            await Documents(self.visits.refused, self._happenings.note).watch(page)
        except BaseException:
            await self._discarded()
            raise

    async def _discarded(self) -> bool:
        chromium, way_out = self._chromium, self._way_out
        self._chromium = self._way_out = None
        if chromium is not None:
            await chromium.aclose()
        if way_out is not None:
            await way_out.aclose()
        return chromium is not None

    async def _gone(self, page: Page, url: str) -> Response | None:
        from playwright.async_api import Error

        for _ in range(ATTEMPTS - 1):
            try:
                return await page.goto(url, wait_until="domcontentloaded", timeout=NAVIGATE_SECONDS * 1000)
            except Error as error:
                if "interrupted by another navigation" not in str(error):
                    raise
            # What an earlier call had begun, or its error page, came in between.
            await self._happenings.quiet(SETTLE_SECONDS)
        return await page.goto(url, wait_until="domcontentloaded", timeout=NAVIGATE_SECONDS * 1000)

    async def _addresses(self, where: WebAddress) -> Sequence[str]:
        if (why := self.visits.forbidden(where)) is not None:
            raise OutOfReach(f"{where.host} is not to be talked to: {why}.")
        return await self._fetcher.reach().addresses(where)

    async def _reached(self, where: WebAddress) -> Streams:
        """A connection for the browser; where a page gets none, that is told."""
        if not await self._wanted.has(where.host):
            raise OutOfReach("no page asked for this host")
        try:
            return await self._fetcher.connected(where, await self._addresses(where))
        except ToolFailure as no:
            self._happenings.note(f"not loaded: {where.place}: {no}")
            raise

    def _why_not(self, where: WebAddress, error: Exception) -> str:
        told = [line for line in self._happenings.told() if not line.startswith("request failed")]
        return f"{where} was not opened: {'; '.join(told) or _reason(error)}"

    async def _another_window(self, page: Page) -> None:
        """There is one page: others are closed, and where they would have led is told."""
        from playwright.async_api import Error

        self._happenings.begun(page)
        with contextlib.suppress(Error):
            await page.wait_for_url(
                lambda url: url != "about:blank", wait_until="commit", timeout=WINDOW_SECONDS * 1000
            )
        self._happenings.note(f"the page opened a new window, which was closed; BrowserNavigate goes there: {page.url}")
        with contextlib.suppress(Error):
            await page.close()
        self._happenings.ended(page)


def _reason(error: Exception) -> str:
    """The first line of what Playwright says, without its own name for what it was doing."""
    line = next((line.strip() for line in str(error).splitlines() if line.strip()), "no reason given")
    return line.partition(": ")[2] or line


MOST_CHARS = 30_000


async def view(session: BrowserSession, judge: Judge, ref: str = "") -> str:
    """The page as it is now, or one element of it. Raises `ToolFailure`."""
    async with session.act(judge, settle=False) as page:
        seen = await session.element(page, ref) if ref else page
        tree = shortened(await seen.aria_snapshot(mode="ai"))
        if ref:
            # Refs are those of the last snapshot taken: with one of the whole page all stay usable.
            await page.aria_snapshot(mode="ai")
        title, url = await page.title(), page.url
    parts = [f"{title}\n<{url}>".strip(), tree or "(the page is empty)"]
    if problems := session.happenings():
        parts.append("\n".join(("What else happened:", *(f"- {line}" for line in problems))))
    return "\n\n".join(parts)


def shortened(tree: str, most: int = MOST_CHARS) -> str:
    """The first lines of a tree, and how many more there are."""
    if len(tree) <= most:
        return tree
    kept = tree[:most].rpartition("\n")[0] or tree[:most]
    left = tree.count("\n") - kept.count("\n")
    return f"{kept}\n[{left} more lines; BrowserSnapshot with the `ref` of a part shows that part]"


def usable(workspace: Workspace) -> bool | str:
    """Whether pages can be opened here; a string says what is missing."""
    from wieldy.browser.launch import what_is_missing

    return what_is_missing(workspace.env) or True


def talks_to_page(input: Mapping[str, Any], workspace: Workspace) -> Effects:
    """What is done on a page reaches whoever the page belongs to."""

    url = workspace.service(BrowserSession).url
    return (Fetches(url),) if url else NOTHING
