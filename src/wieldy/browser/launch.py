"""One browser with one page, from its start to its end."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import secrets
import shutil
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from wieldy.browser.network import REFUSED_BY_US
from wieldy.core.errors import ToolFailure
from wieldy.core.threads import in_thread
from wieldy.core.workspace import Workspace
from wieldy.shell.running.guardian import Guardian
from wieldy.shell.running.launch import MARK, scrub_secrets
from wieldy.shell.running.reaper import Tree, end
from wieldy.web.address import BadAddress, WebAddress, parse_address

if TYPE_CHECKING:
    from playwright.async_api import (
        Browser,
        CDPSession,
        ConsoleMessage,
        Dialog,
        Error,
        Page,
        Playwright,
        Request,
        Response,
    )


PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge")
APPLICATIONS = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "/Applications/Microsoft Edge.app/Contents/MacOS/Microsoft Edge",
)
NAMED_BY = "WIELDY_BROWSER"
QUIET = (
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
# All names fail but for the proxy's own address, and what is not HTTP goes nowhere: the proxy is the only way out.
ONE_WAY_OUT = (
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--disable-quic",
)


def find_browser(env: Mapping[str, str]) -> str | None:
    """The program of an installed Chromium: the one that `WIELDY_BROWSER` names, else what PATH or the system has."""
    if named := env.get(NAMED_BY):
        return shutil.which(named, path=env.get("PATH"))
    for program in PROGRAMS:
        if found := shutil.which(program, path=env.get("PATH")):
            return found
    return next((path for path in APPLICATIONS if os.access(path, os.X_OK)), None)


def what_is_missing(env: Mapping[str, str]) -> str | None:
    """What has to be installed before a page can be opened; None when all is there."""
    if importlib.util.find_spec("playwright") is None:
        return "Playwright is not installed: pip install 'wieldy[browser]'"
    if find_browser(env) is not None:
        return None
    if named := env.get(NAMED_BY):
        return f"{NAMED_BY} names {named}, which cannot be run"
    return f"no Chromium was found: install one (such as `apt install chromium`), or name it in {NAMED_BY}"


def arguments() -> list[str]:
    """What the browser is told when it starts."""
    return [*QUIET, *ONE_WAY_OUT]


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
