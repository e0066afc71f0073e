"""Converts HTML to Markdown in a child process, so that a hostile page can neither block nor crash ours."""

from __future__ import annotations

import asyncio
import contextlib
import html
import importlib.util
import re

from wieldy.core.errors import ToolFailure
from wieldy.core.programs import kill_process, own_python
from wieldy.web.url import HttpUrl, InvalidUrl

TIMEOUT = 20.0
MAX_CHARS = 5 << 20
CHILD_CODE = "from wieldy.web.converter import main; main(*sys.argv[1:])"
HEAD_CHARS = 20_000
META = re.compile(r"<meta[^>]{0,4000}>", re.IGNORECASE)
REFRESH = re.compile(r"http-equiv\s*=\s*[\"']?refresh\b", re.IGNORECASE)
REFRESH_URL = re.compile(r"content\s*=\s*[\"']?\s*[\d.]+\s*[;,]\s*url\s*=\s*[\"']?([^\"'>\s]+)", re.IGNORECASE)
TITLE = re.compile(r"<title[^>]{0,100}>([^<]{0,2000})", re.IGNORECASE)


def title_of(page: str) -> str:
    """The title of an HTML page, or an empty string."""
    match = TITLE.search(page[:MAX_CHARS])
    return " ".join(html.unescape(match[1]).split()) if match else ""


def refresh_target(page: str, url: HttpUrl) -> HttpUrl | None:
    """Where a page sends its readers by `<meta http-equiv="refresh">`."""
    for tag in META.findall(page[:HEAD_CHARS]):
        match = REFRESH_URL.search(html.unescape(tag)) if REFRESH.search(tag) else None
        if match is not None:
            with contextlib.suppress(InvalidUrl):
                target = url.join(match[1])
                return target if target != url else None  # a page that only reloads itself
    return None


async def html_to_markdown(page: str, url: str, *, timeout: float = TIMEOUT) -> str:
    """Convert a page, its links resolved against `url`. Raises `ToolFailure`."""
    command = own_python(CHILD_CODE, url, needs=("html_to_markdown",))
    if command is None or importlib.util.find_spec("html_to_markdown") is None:
        raise ToolFailure("Reading web pages needs html-to-markdown: pip install 'wieldy[web]'.")
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd="/",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(timeout):
            markdown, _ = await process.communicate(page[:MAX_CHARS].encode("utf-8", "replace"))
    except TimeoutError:
        raise ToolFailure(f"Converting {url} to text took more than {timeout:g} s.") from None
    finally:
        if process.returncode is None:
            kill_process(process)
            await process.wait()
    if process.returncode:
        raise ToolFailure(f"{url} could not be converted to text: its HTML is too broken.")
    return markdown.decode("utf-8", "replace").strip()
