"""Turns a response into readable content: HTML as Markdown, text decoded, PDF and images as the Read tool shows them.

HTML is converted in a child process, so that a hostile page can neither block nor crash ours.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import hashlib
import html
import importlib.util
import re
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Protocol

from msgspec import Struct

from wieldy.core.errors import ToolFailure
from wieldy.core.outcome import Content, Text, text_of
from wieldy.core.programs import kill_process, own_python
from wieldy.core.state_dirs import make_private_folder, open_private
from wieldy.core.text import format_size
from wieldy.core.threads import in_thread
from wieldy.files.detection import BOMS, HEAD, binary_kind, decodes, detect_encoding, media_type_of
from wieldy.web.fetch import FetchedResponse
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


HTML_TYPES = frozenset({"text/html", "application/xhtml+xml"})
UNSPECIFIC_TYPES = frozenset({"", "application/octet-stream", "binary/octet-stream", "application/unknown"})
PDF_PAGES = 20
ERROR_EXCERPT = 500
CACHE_SECONDS = 15 * 60.0
CACHE_BYTES = 32 << 20
CACHE_PAGES = 200


class Summarizer(Protocol):
    async def __call__(self, question: str, page: str) -> str | None:
        """Answer a question from the text of a page alone; None where there is no model for it."""
        ...


class WebPage(Struct, frozen=True):
    """The readable content of a page; `remarks` say what is missing."""

    url: str
    title: str
    media_type: str
    content: Content
    bytes: int
    status: int = 200
    remarks: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return text_of(self.content)

    @property
    def memory(self) -> int:
        """Roughly how many bytes it takes in memory."""
        return sum(len(block.text if isinstance(block, Text) else block.data) for block in self.content) + 500


async def read_page(response: FetchedResponse, folder: Path) -> WebPage:
    """Convert a response; `folder` receives documents that are too long to show. Raises `ToolFailure`."""
    media_type, charset = _parse_content_type(response.headers.get("content-type", ""))
    if response.status >= 400:
        raise ToolFailure(_http_error(response, media_type, charset))
    head = response.body[:HEAD]
    if (image := media_type_of(head)) is not None:
        return await _read_image(response, image)
    if head.startswith(b"%PDF-"):
        return await _read_pdf(response, folder)
    if kind := binary_kind(head):
        raise ToolFailure(
            f"{response.url} is not text: {kind}, {format_size(len(response.body))}.",
            "Only web pages, text, PDF and images can be read; fetch other files with Bash if you need them.",
        )
    return await _read_text(response, media_type, charset)


async def _read_text(response: FetchedResponse, media_type: str, charset: str | None) -> WebPage:
    is_html = media_type in HTML_TYPES or (media_type in UNSPECIFIC_TYPES and _looks_like_html(response.body))
    text = await in_thread(decode_page, response.body, charset, markup=is_html or media_type.endswith("xml"))
    remarks = []
    if response.truncated:
        remarks.append(f"the page is longer than {format_size(len(response.body))}; the rest was not fetched")
    title = ""
    if is_html:
        if len(text) > MAX_CHARS and not response.truncated:
            remarks.append(f"only the first {format_size(MAX_CHARS)} of the page are shown")
        title = title_of(text)
        if (target := refresh_target(text, response.url)) is not None:
            remarks.append(f"the page leads on to {target}; to read that page, call WebFetch with this address")
        text = await html_to_markdown(text, str(response.url))
    if not response.body.strip():
        remarks.append("The answer is empty.")
    elif not text.strip() and not remarks:
        remarks.append(
            "The page has no text; scripts may build it. The browser tools show pages as a person sees them."
        )
    media_type = media_type or ("text/html" if is_html else "text/plain")
    return WebPage(
        str(response.url), title, media_type, (Text(text),), len(response.body), response.status, tuple(remarks)
    )


async def _read_image(response: FetchedResponse, media_type: str) -> WebPage:
    from wieldy.files.reading.media import prepare_image

    _require_complete(response)
    image = await in_thread(prepare_image, response.body, str(response.url))
    size = f"{image.original.width}×{image.original.height} pixels"
    return WebPage(str(response.url), "", media_type, (image.block,), len(response.body), response.status, (size,))


async def _read_pdf(response: FetchedResponse, folder: Path) -> WebPage:
    from wieldy.files.reading.media import read_pdf

    _require_complete(response)
    document = await in_thread(read_pdf, response.body, str(response.url), pages=f"1-{PDF_PAGES}")
    remarks: tuple[str, ...] = ()
    if document.count > PDF_PAGES or not any(document.texts):
        path = await in_thread(_save_pdf, folder, response.body)
        remarks = (f"{document.count} pages; all of them are in {path}: Read it with `pages` or `as_images`",)
    return WebPage(
        str(response.url), "", "application/pdf", document.content, len(response.body), response.status, remarks
    )


def _save_pdf(folder: Path, body: bytes) -> str:
    make_private_folder(folder)
    path = folder / f"{hashlib.sha256(body).hexdigest()[:16]}.pdf"
    with open(path, "wb", opener=open_private) as file:
        file.write(body)
    return str(path)


def _require_complete(response: FetchedResponse) -> None:
    if response.truncated:
        raise ToolFailure(
            f"{response.url} is larger than {format_size(len(response.body))} and was not fetched completely."
        )


def _http_error(response: FetchedResponse, media_type: str, charset: str | None) -> str:
    """The status, and the start of what the server says about it: its text, or the title of its page."""
    message = f"{response.url} answered {response.status} {response.reason}".rstrip() + "."
    if binary_kind(response.body[:HEAD]):
        return message
    text = decode_page(response.body[: ERROR_EXCERPT * 4], charset).strip()
    text = title_of(text) if media_type in HTML_TYPES or _looks_like_html(response.body) else text[:ERROR_EXCERPT]
    return f"{message} It said: {text}" if text else message


def _parse_content_type(header: str) -> tuple[str, str | None]:
    media_type, *parameters = header.split(";")
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset" and value.strip():
            return media_type.strip().lower(), value.strip().strip("\"'")
    return media_type.strip().lower(), None


def _looks_like_html(body: bytes) -> bool:
    head = body[:1024].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    return head.startswith((b"<!doctype html", b"<html", b"<head", b"<body", b"<title", b"<meta"))


CHARSET_IN_MARKUP = re.compile(
    rb"""<meta[^>]{0,200}?charset\s*=\s*["']?\s*([\w:.-]{1,40})|^<\?xml[^>]{0,100}?encoding=["']([\w:.-]{1,40})""",
    re.IGNORECASE,
)
CHARSET_WITHIN = 4096
# A declared charset is dropped if it fails for more than one character in this many.
CHARACTERS_PER_ERROR = 50
# The superset that browsers use for a charset label (WHATWG Encoding Standard).
SUPERSETS = {
    "ascii": "cp1252",
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
    "iso8859-11": "cp874",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    "big5": "big5hkscs",
}
# Python text codecs that no page may ask for.
UNSUITABLE_CODECS = frozenset(
    {"utf-7", "idna", "punycode", "unicode-escape", "raw-unicode-escape", "undefined", "mbcs", "oem"}
)
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def decode_page(body: bytes, header_charset: str | None, *, markup: bool = False) -> str:
    """Decode a page by its byte order mark, header or (with `markup`) own declaration, else by detection."""
    for bom, codec in BOMS:
        if body.startswith(bom):
            return body[len(bom) :].decode(codec, "replace")
    labels = [header_charset, _charset_in_markup(body) if markup else None]
    known = [codec for codec in map(_find_codec, labels) if codec]
    for codec in known:
        # A truncated page may end within a character.
        if decodes(body, codec, whole=False):
            return body.decode(codec, "replace")
    text = body.decode(known[0], "replace") if known else ""
    if text.count(REPLACEMENT) * CHARACTERS_PER_ERROR < len(text):
        return text
    encoding = detect_encoding(body)
    return body[len(encoding.bom) :].decode(encoding.name, "replace")


def _charset_in_markup(body: bytes) -> str | None:
    match = CHARSET_IN_MARKUP.search(body[:CHARSET_WITHIN])
    if match is None:
        return None
    name = (match[1] or match[2]).decode("ascii", "replace").lower()
    # A declaration that is readable as ASCII cannot be in a wide encoding.
    return "utf-8" if name.startswith(("utf-16", "utf-32")) else name


def _find_codec(label: str | None) -> str | None:
    """The Python codec of a charset label; None for an unknown or unsuitable one."""
    try:
        codec = codecs.lookup(label.strip().strip("\"'")) if label else None
    except (LookupError, ValueError):
        return None
    if codec is None or codec.name in UNSUITABLE_CODECS or not getattr(codec, "_is_text_encoding", True):
        return None
    return SUPERSETS.get(codec.name, codec.name)


class PageCache:
    """The pages a workspace has read: `workspace.services.page_cache`. Entries expire; the least recently used go first."""

    def __init__(self, *, clock: Callable[[], float] = monotonic, budget: int = CACHE_BYTES) -> None:
        self._clock = clock
        self._budget = budget
        self._pages: OrderedDict[str, tuple[float, WebPage]] = OrderedDict()
        self._memory = 0

    def get(self, url: str) -> WebPage | None:
        entry = self._pages.get(url)
        if entry is None:
            return None
        added, page = entry
        if self._clock() - added > CACHE_SECONDS:
            self._drop(url)
            return None
        self._pages.move_to_end(url)
        return page

    def put(self, url: str, page: WebPage) -> None:
        """Store a page under the URL it was requested by, unless it would take a large part of the budget."""
        self._drop(url)
        if page.memory > self._budget // 4:
            return
        self._pages[url] = (self._clock(), page)
        self._memory += page.memory
        while self._memory > self._budget or len(self._pages) > CACHE_PAGES:
            self._drop(next(iter(self._pages)))

    def _drop(self, url: str) -> None:
        if (entry := self._pages.pop(url, None)) is not None:
            self._memory -= entry[1].memory
