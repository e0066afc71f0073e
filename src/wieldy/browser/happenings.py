"""What happens on a page beside what was asked for: errors in its scripts, requests that failed, windows, dialogs."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import TYPE_CHECKING

from wieldy.browser.way_out import REFUSED_BY_US

if TYPE_CHECKING:
    from playwright.async_api import ConsoleMessage, Dialog, Error, Page, Request, Response

MOST = 20
LONGEST = 300
STILL = 0.15
# The one is a page changing its mind, or stopped; the other is a connection that was refused, with a reason.
TOLD_ELSEWHERE = ("ERR_ABORTED", "ERR_TUNNEL_CONNECTION_FAILED")


class Happenings:
    """Notes what happens on a page until somebody asks, and knows how many requests are under way."""

    def __init__(self) -> None:
        self._notes: deque[str] = deque(maxlen=MOST)
        self._left_out = 0
        self._under_way: set[object] = set()
        self._changed = asyncio.Event()
        self.crashed = False

    def watch(self, page: Page) -> None:
        """Listen to a page."""
        page.on("console", self._console)
        page.on("pageerror", self._script_error)
        page.on("dialog", self._dialog)
        page.on("crash", self._crash)
        page.on("request", self.begun)
        page.on("requestfinished", self.ended)
        page.on("requestfailed", self._failed)
        page.on("response", self._answered)

    def note(self, text: str) -> None:
        """Keep a line until somebody asks; the oldest make room."""
        line = " ".join(text.split())[:LONGEST]
        if line in self._notes:
            return
        self._left_out += len(self._notes) == MOST
        self._notes.append(line)

    def told(self) -> list[str]:
        """What has happened since the last time."""
        lines = list(self._notes)
        if self._left_out:
            lines.insert(0, f"({self._left_out} earlier ones are left out)")
        self._notes.clear()
        self._left_out = 0
        return lines

    async def quiet(self, most: float) -> None:
        """Wait until no request has been under way for a moment, but not longer than told."""
        try:
            async with asyncio.timeout(most):
                await asyncio.sleep(STILL)
                while self._under_way:
                    self._changed.clear()
                    await self._changed.wait()
                    if not self._under_way:
                        await asyncio.sleep(STILL)
        except TimeoutError:
            return

    def _console(self, message: ConsoleMessage) -> None:
        # That a request failed is noted already, with its reason.
        if message.type == "error" and not message.text.startswith("Failed to load resource"):
            self.note(f"console error: {message.text}")

    def _script_error(self, error: Error) -> None:
        self.note(f"script error: {error}")

    async def _dialog(self, dialog: Dialog) -> None:
        from playwright.async_api import Error

        # The page may be gone before it has its answer.
        with contextlib.suppress(Error):
            if dialog.type == "beforeunload":
                await dialog.accept()
                return
            self.note(f"the page showed a dialog ({dialog.type}), which was dismissed: {dialog.message}")
            await dialog.dismiss()

    def _crash(self, page: Page) -> None:
        self.crashed = True

    def begun(self, something: object) -> None:
        """The page is not quiet before this has ended."""
        self._under_way.add(something)

    def ended(self, something: object) -> None:
        """What had begun is over."""
        self._under_way.discard(something)
        self._changed.set()

    def _failed(self, request: Request) -> None:
        self.ended(request)
        if request.failure and not any(known in request.failure for known in TOLD_ELSEWHERE):
            self.note(f"request failed: {request.method} {request.url} ({request.failure})")

    def _answered(self, response: Response) -> None:
        if response.status >= 400 and REFUSED_BY_US not in response.headers:
            self.note(f"{response.status} {response.status_text}: {response.request.method} {response.url}")
