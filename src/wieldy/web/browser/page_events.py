"""Collects what goes wrong on a page between two calls, and knows when the page is idle."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import TYPE_CHECKING

from wieldy.web.proxy import REFUSED_HEADER

if TYPE_CHECKING:
    from playwright.async_api import ConsoleMessage, Dialog, Error, Page, Request, Response

MAX_NOTES = 20
MAX_NOTE_CHARS = 300
IDLE_SECONDS = 0.15
# The first is a navigation that was replaced or stopped; the second a connection that our proxy refused with a note.
NOTED_ELSEWHERE = ("ERR_ABORTED", "ERR_TUNNEL_CONNECTION_FAILED")


class PageEvents:
    """Notes the events of a page until they are taken, and counts its requests in flight."""

    def __init__(self) -> None:
        self._notes: deque[str] = deque(maxlen=MAX_NOTES)
        self._dropped = 0
        self._pending: set[object] = set()
        self._changed = asyncio.Event()
        self.crashed = False

    def watch(self, page: Page) -> None:
        """Subscribe to the events of a page."""
        page.on("console", self._on_console)
        page.on("pageerror", self._on_script_error)
        page.on("dialog", self._on_dialog)
        page.on("crash", self._on_crash)
        page.on("request", self.started)
        page.on("requestfinished", self.finished)
        page.on("requestfailed", self._on_request_failed)
        page.on("response", self._on_response)

    def note(self, text: str) -> None:
        """Add a line; the oldest are dropped."""
        line = " ".join(text.split())[:MAX_NOTE_CHARS]
        if line in self._notes:
            return
        self._dropped += len(self._notes) == MAX_NOTES
        self._notes.append(line)

    def take_notes(self) -> list[str]:
        """The notes since the last call."""
        lines = list(self._notes)
        if self._dropped:
            lines.insert(0, f"({self._dropped} earlier ones are left out)")
        self._notes.clear()
        self._dropped = 0
        return lines

    async def wait_until_idle(self, timeout: float) -> None:
        """Wait until no request has been in flight for a moment, or until the timeout."""
        try:
            async with asyncio.timeout(timeout):
                await asyncio.sleep(IDLE_SECONDS)
                while self._pending:
                    self._changed.clear()
                    await self._changed.wait()
                    if not self._pending:
                        await asyncio.sleep(IDLE_SECONDS)
        except TimeoutError:
            return

    def started(self, activity: object) -> None:
        """The page is not idle until this activity has finished."""
        self._pending.add(activity)

    def finished(self, activity: object) -> None:
        self._pending.discard(activity)
        self._changed.set()

    def _on_console(self, message: ConsoleMessage) -> None:
        # A failed request has a note already, with its reason.
        if message.type == "error" and not message.text.startswith("Failed to load resource"):
            self.note(f"console error: {message.text}")

    def _on_script_error(self, error: Error) -> None:
        self.note(f"script error: {error}")

    async def _on_dialog(self, dialog: Dialog) -> None:
        from playwright.async_api import Error

        # The page may be closed before it has its answer.
        with contextlib.suppress(Error):
            if dialog.type == "beforeunload":
                await dialog.accept()
                return
            self.note(f"the page showed a dialog ({dialog.type}), which was dismissed: {dialog.message}")
            await dialog.dismiss()

    def _on_crash(self, page: Page) -> None:
        self.crashed = True

    def _on_request_failed(self, request: Request) -> None:
        self.finished(request)
        if request.failure and not any(known in request.failure for known in NOTED_ELSEWHERE):
            self.note(f"request failed: {request.method} {request.url} ({request.failure})")

    def _on_response(self, response: Response) -> None:
        if response.status >= 400 and REFUSED_HEADER not in response.headers:
            self.note(f"{response.status} {response.status_text}: {response.request.method} {response.url}")
