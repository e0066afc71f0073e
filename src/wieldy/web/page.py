"""An answer as something to read: HTML as Markdown, text as it is, PDF and pictures as they are shown from files."""

from __future__ import annotations

import codecs
import hashlib
import re
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from time import monotonic

from msgspec import Struct

from wieldy.core.content import Content, Text, text_of
from wieldy.core.errors import ToolFailure
from wieldy.core.threads import in_thread
from wieldy.core.workspace import Workspace
from wieldy.files.encodings import BOMS, decodes, detect_encoding
from wieldy.files.kinds import HEAD, binary_kind
from wieldy.files.reading.images import media_type_of
from wieldy.web.fetch import Fetched
from wieldy.web.markdown import LARGEST, title_of, to_markdown

DECLARED = re.compile(
    rb"""<meta[^>]{0,200}?charset\s*=\s*["']?\s*([\w:.-]{1,40})|^<\?xml[^>]{0,100}?encoding=["']([\w:.-]{1,40})""",
    re.IGNORECASE,
)
DECLARED_WITHIN = 4096
# A charset that fails for one character in so many, or more, is not the right one.
FEW = 50
# What these names stand for on the web is a larger relative of what they say.
LARGER = {
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
# Codecs that are no character sets of pages: decoding hostile bytes with them is at best nonsense.
NOT_FOR_PAGES = frozenset(
    {"utf-7", "idna", "punycode", "unicode-escape", "raw-unicode-escape", "undefined", "mbcs", "oem"}
)


def decode_page(body: bytes, declared: str | None, *, markup: bool = False) -> str:
    """The text of a page. `declared` is the charset of its header; with `markup` the page may name one itself."""
    marked = next(((bom, codec) for bom, codec in BOMS if body.startswith(bom)), None)
    if marked is not None:
        bom, codec = marked
        return body[len(bom) :].decode(codec, "replace")
    named = [declared, _named_inside(body) if markup else None]
    known = [codec for codec in map(_codec, named) if codec]
    for codec in known:
        # A page that was cut off may end within a character.
        if decodes(body, codec, whole=False):
            return body.decode(codec, "replace")
    as_said = body.decode(known[0], "replace") if known else ""
    if as_said.count(_LOST) * FEW < len(as_said):
        return as_said
    found = detect_encoding(body)
    return body[len(found.bom) :].decode(found.name, "replace")


def _named_inside(body: bytes) -> str | None:
    found = DECLARED.search(body[:DECLARED_WITHIN])
    if found is None:
        return None
    name = (found[1] or found[2]).decode("ascii", "replace").lower()
    # A page whose words can be read as bytes of ASCII is in none of the wide encodings, whatever it says.
    return "utf-8" if name.startswith(("utf-16", "utf-32")) else name


def _codec(name: str | None) -> str | None:
    """The Python codec of a charset label; None for one that is unknown or no character set."""
    try:
        found = codecs.lookup(name.strip().strip("\"'")) if name else None
    except (LookupError, ValueError):
        return None
    if found is None or found.name in NOT_FOR_PAGES or not getattr(found, "_is_text_encoding", True):
        return None
    return LARGER.get(found.name, found.name)


_LOST = "\N{REPLACEMENT CHARACTER}"


MARKUP = frozenset({"text/html", "application/xhtml+xml"})
UNTOLD = frozenset({"", "application/octet-stream", "binary/octet-stream", "application/unknown"})
PDF_PAGES = 20
EXCERPT = 500


class Page(Struct, frozen=True):
    """What a page says. `remarks` tell what is left out."""

    url: str
    title: str
    media_type: str
    content: Content
    bytes: int
    status: int = 200
    remarks: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The text of it."""
        return text_of(self.content)

    @property
    def weight(self) -> int:
        """Roughly how much memory it takes."""
        return sum(len(block.text if isinstance(block, Text) else block.data) for block in self.content) + 500


async def read_page(answer: Fetched, folder: Path) -> Page:
    """Turn an answer into a page; `folder` is where a document too long to be shown is kept. Raises `ToolFailure`."""
    media_type, charset = _declared(answer.headers.get("content-type", ""))
    if answer.status >= 400:
        raise ToolFailure(await _complaint(answer, media_type, charset))
    head = answer.body[:HEAD]
    if (image := media_type_of(head)) is not None:
        return await _image(answer, image)
    if head.startswith(b"%PDF-"):
        return await _pdf(answer, folder)
    if kind := binary_kind(head):
        raise ToolFailure(
            f"{answer.address} is not text: {kind}, {_size(len(answer.body))}. Only web pages, text, PDF and images can "
            "be read; fetch other files with Bash if you need them."
        )
    return await _text(answer, media_type, charset)


async def _text(answer: Fetched, media_type: str, charset: str | None) -> Page:
    markup = media_type in MARKUP or (media_type in UNTOLD and _looks_like_markup(answer.body))
    text = await in_thread(decode_page, answer.body, charset, markup=markup or media_type.endswith("xml"))
    remarks = [f"the page is longer than {_size(len(answer.body))}; the rest was not fetched"] if answer.cut else []
    title = ""
    if markup:
        if len(text) > LARGEST and not answer.cut:
            remarks.append(f"only the first {_size(LARGEST)} of the page are shown")
        title = title_of(text)
        text = await to_markdown(text, answer.address.url)
    if not text.strip():
        empty = "The page holds no text; it may be built by scripts. " if markup else "The answer is empty. "
        remarks.append(empty + "The browser tools show pages as a person sees them." if markup else empty.strip())
    shown = media_type or ("text/html" if markup else "text/plain")
    return Page(answer.address.url, title, shown, (Text(text),), len(answer.body), answer.status, tuple(remarks))


async def _image(answer: Fetched, media_type: str) -> Page:
    from wieldy.files.reading.images import picture

    _whole(answer)
    made = await in_thread(picture, answer.body, answer.address.url)
    size = f"{made.original.width}×{made.original.height} pixels"
    return Page(answer.address.url, "", media_type, (made.block,), len(answer.body), answer.status, (size,))


async def _pdf(answer: Fetched, folder: Path) -> Page:
    from wieldy.files.reading.pdf import read_pdf

    _whole(answer)
    found = await in_thread(read_pdf, answer.body, answer.address.url, pages=f"1-{PDF_PAGES}")
    remarks: tuple[str, ...] = ()
    if found.count > PDF_PAGES or not any(found.texts):
        path = await in_thread(_kept, folder, answer.body)
        remarks = (f"{found.count} pages; all of them are in {path}: Read it with `pages` or `as_images`",)
    return Page(answer.address.url, "", "application/pdf", found.content, len(answer.body), answer.status, remarks)


def _kept(folder: Path, body: bytes) -> str:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / f"{hashlib.sha256(body).hexdigest()[:16]}.pdf"
    path.write_bytes(body)
    return str(path)


def _whole(answer: Fetched) -> None:
    if answer.cut:
        raise ToolFailure(f"{answer.address} is larger than {_size(len(answer.body))} and was not fetched whole.")


async def _complaint(answer: Fetched, media_type: str, charset: str | None) -> str:
    """What an error page says, in short."""
    said = f"{answer.address} answered {answer.status} {answer.reason}".rstrip() + "."
    if media_type in MARKUP or not media_type.startswith("text/") or binary_kind(answer.body[:HEAD]):
        return said
    text = decode_page(answer.body[: EXCERPT * 4], charset)[:EXCERPT].strip()
    return f"{said} It said: {text}" if text else said


def _declared(content_type: str) -> tuple[str, str | None]:
    media_type, *parameters = content_type.split(";")
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset" and value.strip():
            return media_type.strip().lower(), value.strip().strip("\"'")
    return media_type.strip().lower(), None


def _looks_like_markup(body: bytes) -> bool:
    head = body[:1024].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    return head.startswith((b"<!doctype html", b"<html", b"<head", b"<body", b"<title", b"<meta"))


def _size(count: int) -> str:
    return f"{count / (1 << 20):.1f} MB" if count >= 1 << 20 else f"{max(count // 1024, 1)} KB"


SECONDS = 15 * 60.0
BUDGET = 32 << 20
MOST = 200


class PageCache:
    """The cache of a workspace: `workspace.service(PageCache)`."""

    def __init__(self, workspace: Workspace, *, clock: Callable[[], float] = monotonic, budget: int = BUDGET) -> None:
        self._clock = clock
        self._budget = budget
        self._pages: OrderedDict[str, tuple[float, Page]] = OrderedDict()
        self._weight = 0

    def find(self, url: str) -> Page | None:
        """The page of this address, if it was read a short time ago."""
        found = self._pages.get(url)
        if found is None:
            return None
        since, page = found
        if self._clock() - since > SECONDS:
            self._drop(url)
            return None
        self._pages.move_to_end(url)
        return page

    def keep(self, url: str, page: Page) -> None:
        """Keep a page under the address it was asked for by; those not looked at for longest make room."""
        self._drop(url)
        if page.weight > self._budget // 4:
            return
        self._pages[url] = (self._clock(), page)
        self._weight += page.weight
        while self._weight > self._budget or len(self._pages) > MOST:
            self._drop(next(iter(self._pages)))

    def _drop(self, url: str) -> None:
        if (found := self._pages.pop(url, None)) is not None:
            self._weight -= found[1].weight
