"""One browser with one page, from its start to its end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
from typing import TYPE_CHECKING, Any

from wieldy.browser.chromium import arguments, find_browser
from wieldy.core.failure import ToolFailure
from wieldy.core.threads import in_thread
from wieldy.core.workspace import Workspace
from wieldy.shell.environment import MARK, scrub_secrets
from wieldy.shell.guardian import Guardian
from wieldy.shell.reap import Tree, end

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page, Playwright

START_SECONDS = 30.0
END_SECONDS = 5.0


class Chromium:
    """A running browser. Its processes carry a mark, and a guardian ends them should we be killed."""

    def __init__(self) -> None:
        self._mark = f"{secrets.token_hex(8)}.browser."
        self._guardian = Guardian(self._mark)
        self._playwright: Playwright | None = None
        self._browser: Browser | None = None
        self._page: Page | None = None

    @property
    def page(self) -> Page:
        """Its one page."""
        assert self._page is not None
        return self._page

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self._browser is not None and self._browser.is_connected()

    async def start(self, workspace: Workspace, proxy: str) -> None:
        """Start a browser that knows nothing, and open an empty page. Raises `ToolFailure`."""
        from playwright.async_api import Error, async_playwright

        try:
            async with asyncio.timeout(START_SECONDS):
                self._playwright = await async_playwright().start()
                self._guardian.wake()
                self._browser = await self._launched(self._playwright, workspace, proxy)
                context = await self._browser.new_context(
                    accept_downloads=False, service_workers="block", viewport={"width": 1280, "height": 800}
                )
                self._page = await context.new_page()
        except TimeoutError:
            await self.aclose()
            raise ToolFailure(f"The browser did not start within {START_SECONDS:g} s.") from None
        except Error as error:
            await self.aclose()
            raise ToolFailure(f"The browser could not be started: {_first_line(error)}") from None
        except BaseException:
            await self.aclose()
            raise

    async def _launched(self, playwright: Playwright, workspace: Workspace, proxy: str) -> Browser:
        env, _ = scrub_secrets(workspace.env)
        outer = env.get(MARK)
        marked: dict[str, Any] = {**env, MARK: f"{outer} {self._mark}" if outer else self._mark}
        return await playwright.chromium.launch(
            executable_path=find_browser(workspace.env),
            headless=True,
            # Chromium refuses to build its own sandbox for root.
            chromium_sandbox=os.geteuid() != 0 and workspace.setting("browser.sandbox", True),
            args=arguments(),
            proxy={"server": proxy, "bypass": "<-loopback>"},
            env=marked,
            handle_sigint=False,
            handle_sigterm=False,
            handle_sighup=False,
            timeout=START_SECONDS * 1000,
        )

    async def aclose(self) -> None:
        """End it and everything it started, whatever state it is in."""
        browser, playwright = self._browser, self._playwright
        self._browser = self._playwright = self._page = None
        for closing in (browser.close() if browser else None, playwright.stop() if playwright else None):
            if closing is not None:
                with contextlib.suppress(Exception):
                    await asyncio.wait_for(closing, END_SECONDS)
        await in_thread(end, Tree(self._mark))
        await in_thread(self._guardian.dismiss)


def _first_line(error: Exception) -> str:
    """What is wrong in one line, and the advice that helps in the one case there is advice for."""
    text = str(error)
    if "sandbox" in text.lower() and "no usable sandbox" in text.lower():
        return "this system lets it build no sandbox. Set `browser.sandbox` to false to do without."
    return next((line.strip() for line in text.splitlines() if line.strip()), "no reason given")
