"""Finds, starts and ends one headless Chromium with one page."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from wieldy.core.errors import ToolFailure
from wieldy.core.programs import own_program
from wieldy.core.threads import in_thread
from wieldy.core.workspace import Workspace
from wieldy.shell.running.guardian import Guardian
from wieldy.shell.running.launch import scrub_secrets
from wieldy.shell.running.process_tag import TAG_VARIABLE
from wieldy.shell.running.reaper import ProcessTree, end_tree

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page, Playwright

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge")
APPLICATIONS = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "/Applications/Microsoft Edge.app/Contents/MacOS/Microsoft Edge",
)
BROWSER_VARIABLE = "WIELDY_BROWSER"
START_TIMEOUT = 30.0
CLOSE_TIMEOUT = 5.0

NO_BACKGROUND_TRAFFIC = (
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-domain-reliability",
    "--disable-sync",
    "--dns-prefetch-disable",
    "--no-default-browser-check",
    "--no-first-run",
    "--no-pings",
    "--no-service-autorun",
    "--metrics-recording-only",
)
# Every name but the proxy's address fails to resolve, and nothing but HTTP is sent: the proxy is the only way out.
PROXY_ONLY = (
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--disable-quic",
)


def _find_program(name: str, env: Mapping[str, str]) -> str | None:
    try:
        path = own_program(name, env)
    except FileNotFoundError:
        return None
    return path if os.access(path, os.X_OK) else None


def find_browser(env: Mapping[str, str]) -> str | None:
    """The Chromium to run: the one `WIELDY_BROWSER` names, else the first on PATH or among the applications.

    A project cannot put a program of its own in its place.
    """
    if name := env.get(BROWSER_VARIABLE):
        return _find_program(name, env)
    for program in PROGRAMS:
        if path := _find_program(program, env):
            return path
    return next((path for path in APPLICATIONS if os.access(path, os.X_OK)), None)


def missing_requirement(env: Mapping[str, str]) -> str | None:
    """What must be installed before a page can be opened; None if nothing is missing."""
    if importlib.util.find_spec("playwright") is None:
        return "Playwright is not installed: pip install 'wieldy[browser]'"
    if find_browser(env) is not None:
        return None
    if name := env.get(BROWSER_VARIABLE):
        return f"{BROWSER_VARIABLE} names {name}, which cannot be run"
    return f"no Chromium was found: install one (such as `apt install chromium`), or name it in {BROWSER_VARIABLE}"


class Chromium:
    """A running browser. Its processes carry a tag, by which a guardian ends them if we are killed."""

    def __init__(self) -> None:
        self._tag = f"{secrets.token_hex(8)}.browser."
        self._guardian = Guardian(self._tag)
        self._playwright: Playwright | None = None
        self._browser: Browser | None = None
        self._page: Page | None = None

    @property
    def page(self) -> Page:
        assert self._page is not None
        return self._page

    @property
    def alive(self) -> bool:
        return self._browser is not None and self._browser.is_connected()

    async def start(self, workspace: Workspace, proxy: str) -> None:
        """Start a browser with an empty profile and open an empty page. Raises `ToolFailure`."""
        from playwright.async_api import Error, async_playwright

        try:
            async with asyncio.timeout(START_TIMEOUT):
                self._playwright = await async_playwright().start()
                self._guardian.ensure_running()
                self._browser = await self._launch(self._playwright, workspace, proxy)
                context = await self._browser.new_context(
                    accept_downloads=False, service_workers="block", viewport={"width": 1280, "height": 800}
                )
                self._page = await context.new_page()
        except TimeoutError:
            await self.aclose()
            raise ToolFailure(f"The browser did not start within {START_TIMEOUT:g} s.") from None
        except Error as error:
            await self.aclose()
            raise ToolFailure(f"The browser could not be started: {_start_error(error)}") from None
        except BaseException:
            await self.aclose()
            raise

    async def _launch(self, playwright: Playwright, workspace: Workspace, proxy: str) -> Browser:
        env, _ = scrub_secrets(workspace.env)
        outer = env.get(TAG_VARIABLE)
        tagged: dict[str, Any] = {**env, TAG_VARIABLE: f"{outer} {self._tag}" if outer else self._tag}
        return await playwright.chromium.launch(
            executable_path=find_browser(workspace.env),
            headless=True,
            # Chromium cannot use its own sandbox as root.
            chromium_sandbox=os.geteuid() != 0 and workspace.setting("browser.sandbox"),
            args=[*NO_BACKGROUND_TRAFFIC, *PROXY_ONLY],
            proxy={"server": proxy, "bypass": "<-loopback>"},
            env=tagged,
            handle_sigint=False,
            handle_sigterm=False,
            handle_sighup=False,
            timeout=START_TIMEOUT * 1000,
        )

    async def aclose(self) -> None:
        """End the browser and everything it started, whatever state it is in."""
        browser, playwright = self._browser, self._playwright
        self._browser = self._playwright = self._page = None
        for closing in (browser.close() if browser else None, playwright.stop() if playwright else None):
            if closing is not None:
                with contextlib.suppress(Exception):
                    await asyncio.wait_for(closing, CLOSE_TIMEOUT)
        await in_thread(end_tree, ProcessTree(self._tag))
        await in_thread(self._guardian.stop)


def _start_error(error: Exception) -> str:
    text = str(error)
    if "no usable sandbox" in text.lower():
        return "this system does not let it use its sandbox. Set `browser.sandbox` to false to run without one."
    return next((line.strip() for line in text.splitlines() if line.strip()), "no reason given")
