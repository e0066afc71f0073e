"""HTML as Markdown. The native converter runs in a process of its own: hostile pages can neither block nor break ours."""

from __future__ import annotations

import asyncio
import html
import importlib.util
import re
import sys
from pathlib import Path

from wieldy.core.errors import ToolFailure

SOURCE = str(Path(__file__).parents[2])
SECONDS = 20.0
LARGEST = 5 << 20
START = "import sys; sys.path[:0] = sys.argv[1:3]; from wieldy.web.converter import main; main(*sys.argv[3:])"
TITLE = re.compile(r"<title[^>]{0,100}>([^<]{0,2000})", re.IGNORECASE)
MISSING = "Reading web pages needs html-to-markdown: pip install 'wieldy[web]'."


def converter_folder() -> str | None:
    """Where the converter is installed, or None."""
    spec = importlib.util.find_spec("html_to_markdown")
    return str(Path(spec.origin).parents[1]) if spec and spec.origin else None


def title_of(page: str) -> str:
    """The title an HTML page gives itself, or nothing."""
    found = TITLE.search(page[:LARGEST])
    return " ".join(html.unescape(found[1]).split()) if found else ""


async def to_markdown(page: str, url: str, *, seconds: float = SECONDS) -> str:
    """An HTML page as Markdown, its links resolved against `url`. Raises `ToolFailure`."""
    folder = converter_folder()
    if folder is None:
        raise ToolFailure(MISSING)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-c", START, SOURCE, folder, url),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(seconds):
            made, _ = await process.communicate(page[:LARGEST].encode("utf-8", "replace"))
    except TimeoutError:
        raise ToolFailure(f"{url} is built so that turning it into text takes over {seconds:g} s.") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise ToolFailure(f"{url} could not be turned into text: its HTML is too broken.")
    return made.decode("utf-8", "replace").strip()
