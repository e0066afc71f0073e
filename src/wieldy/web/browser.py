"""A browser for a model: starts one headless Chromium with one page, judges every connection, notes what happens on the page."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import secrets
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from wieldy.core.call import PlannedCall, ToolCall
from wieldy.core.decision import Decision, Judge
from wieldy.core.effects import NO_EFFECTS, Effects, Fetches
from wieldy.core.errors import ToolFailure
from wieldy.core.programs import own_program
from wieldy.core.text import plural
from wieldy.core.threads import in_thread
from wieldy.core.tool import Tool
from wieldy.core.workspace import Workspace
from wieldy.shell.running.guardian import Guardian
from wieldy.shell.running.launch import scrub_secrets
from wieldy.shell.running.process_tag import TAG_VARIABLE
from wieldy.shell.running.reaper import ProcessTree, end_tree
from wieldy.web.address_policy import HostRefused
from wieldy.web.fetch import Fetcher
from wieldy.web.http import Streams
from wieldy.web.proxy import REFUSED_HEADER, ForwardProxy
from wieldy.web.url import HttpUrl, InvalidUrl, parse_url

if TYPE_CHECKING:
    from playwright.async_api import (
        Browser,
        CDPSession,
        ConsoleMessage,
        Dialog,
        Error,
        Locator,
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
    return f"{head}\n[{plural(omitted, 'more line')}; BrowserSnapshot with the `ref` of a part shows that part]"


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
