"""Read PDF documents: the text of some pages, or images of them. Wraps pypdfium2.

A document of a few kilobytes can make PDFium take all memory and abort, so each is read in a process with limits.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import msgspec
from msgspec import Struct

from wieldy.core.console import write_to_parent
from wieldy.core.errors import ToolFailure
from wieldy.core.outcome import Content, Image, Text
from wieldy.core.own_python import own_python

LARGEST_FILE = 128 << 20
MAX_UNASKED_PAGES = 10
MAX_PAGES = 20
NO_TEXT = "There is no text on this page; ask for it with as_images=true."
LONG_SIDE = 1568
POINTS_PER_INCH = 72
MAX_SCALE = 200 / POINTS_PER_INCH

MAX_PAGE_CHARS = 500_000
MAX_SECONDS = 30
MAX_MEMORY = 1 << 30
"""For what a document needs beside its own bytes."""
_PROGRAM = "from wieldy.files.reading.pdf import main; main(*sys.argv[1:])"


class PdfPages(Struct, frozen=True, tag=True):
    """Some pages of a document: their numbers (from 1), and the text or the image of each."""

    count: int
    numbers: tuple[int, ...]
    texts: tuple[str, ...] = ()
    images: tuple[Image, ...] = ()

    @property
    def content(self) -> Content:
        if self.images:
            pairs = zip(self.numbers, self.images, strict=True)
            return tuple(block for n, image in pairs for block in (Text(f"Page {n} of {self.count}:"), image))
        pages = zip(self.numbers, self.texts, strict=True)
        return (Text("\n\n".join(f"<page {n} of {self.count}>\n{text or NO_TEXT}" for n, text in pages)),)


class PdfProblem(Struct, frozen=True, tag=True):
    """Why a document cannot be read, as the process that reads it says."""

    problem: str
    next_step: str


def read_pdf(data: bytes, name: str, *, pages: str | None = None, as_images: bool = False) -> PdfPages:
    """The pages asked for ("1-5,8"), or all where there are few; `name` is for error messages."""
    request = json.dumps({"name": name, "pages": pages, "as_images": as_images})
    command = own_python(_PROGRAM, request, str(len(data)), needs=("pypdfium2", "PIL"))
    if command is None or importlib.util.find_spec("pypdfium2") is None:
        raise ToolFailure(f"{name} is a PDF, and reading it needs pypdfium2: pip install 'wieldy[docs]'.")
    try:
        done = subprocess.run(command, input=data, capture_output=True, cwd="/", timeout=MAX_SECONDS, check=False)
        reply = msgspec.json.decode(done.stdout, type=PdfPages | PdfProblem)
    except (subprocess.TimeoutExpired, msgspec.DecodeError):
        raise ToolFailure(
            f"{name} cannot be read: it takes more than {MAX_SECONDS} s or {MAX_MEMORY >> 20} MB of memory.",
            "Ask for fewer pages with `pages`; it may also be damaged, or be made to exhaust its readers.",
        ) from None
    if isinstance(reply, PdfProblem):
        raise ToolFailure(reply.problem, reply.next_step)
    return reply


def main(request: str, size: str) -> None:
    """Read the document on stdin within limits, and print its pages or what is wrong."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        memory = MAX_MEMORY + 3 * int(size)
        resource.setrlimit(resource.RLIMIT_CPU, (MAX_SECONDS, MAX_SECONDS))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    reply: PdfPages | PdfProblem
    try:
        reply = _read(sys.stdin.buffer.read(), **json.loads(request))
    except ToolFailure as failure:
        reply = PdfProblem(failure.problem, failure.next_step)
    write_to_parent(msgspec.json.encode(reply))


def _read(data: bytes, name: str, pages: str | None, as_images: bool) -> PdfPages:
    with _open_document(data, name) as document:
        count = len(document)
        numbers = _select_pages(pages, count, name)
        if as_images:
            return PdfPages(count, numbers, images=tuple(_render_page(document, n, name) for n in numbers))
        return PdfPages(count, numbers, texts=tuple(_page_text(document, n) for n in numbers))


def parse_page_numbers(pages: str, count: int) -> tuple[int, ...]:
    """The page numbers that "1-5,8" names, in order and once each; raises ValueError with the reason."""
    numbers: dict[int, None] = {}
    for part in pages.replace(" ", "").split(","):
        start, dash, end = part.partition("-")
        if not start.isdecimal() or (dash and end and not end.isdecimal()):
            raise ValueError(f'`{part}` is no page or range of pages; write it like "1-5,8"')
        first = int(start)
        last = first if not dash else int(end) if end else count
        if not 1 <= first <= last:
            raise ValueError(f"`{part}` does not run from a lower page to a higher one, starting at 1")
        if first > count:
            raise ValueError(f"page {first} does not exist: there are {count}")
        if min(last, count) - first >= MAX_PAGES:
            raise ValueError(f"at most {MAX_PAGES} pages can be read at once")
        numbers.update(dict.fromkeys(range(first, min(last, count) + 1)))
    if len(numbers) > MAX_PAGES:
        raise ValueError(f"at most {MAX_PAGES} pages can be read at once")
    return tuple(numbers)


@contextmanager
def _open_document(data: bytes, name: str) -> Iterator[Any]:
    import pypdfium2  # type: ignore[import-untyped]

    try:
        document = pypdfium2.PdfDocument(data)
    except pypdfium2.PdfiumError as error:
        raise ToolFailure(_explain_open_error(name, str(error))) from None
    with closing(document):
        try:
            yield document
        except pypdfium2.PdfiumError as error:
            raise ToolFailure(f"{name} is damaged: {str(error).rstrip('.')}.") from None


def _explain_open_error(name: str, error: str) -> str:
    if "password" in error.lower():
        return f"{name} is protected by a password and cannot be read."
    return f"{name} is damaged or no PDF: {error.rstrip('.')}."


def _select_pages(pages: str | None, count: int, name: str) -> tuple[int, ...]:
    if pages:
        try:
            return parse_page_numbers(pages, count)
        except ValueError as error:
            raise ToolFailure(f"`pages`: {error}. {name} has {count} pages.") from None
    if count > MAX_UNASKED_PAGES:
        raise ToolFailure(
            f"{name} has {count} pages.",
            f'Say which to read with `pages`, for example "1-{MAX_UNASKED_PAGES}" (at most {MAX_PAGES} at once).',
        )
    return tuple(range(1, count + 1))


def _page_text(document: Any, number: int) -> str:
    with closing(document[number - 1]) as page, closing(page.get_textpage()) as text:
        count = text.count_chars()
        content: str = text.get_text_range(0, min(count, MAX_PAGE_CHARS)) if count else ""
        note = f"\n(cut: the page has {count} characters)" if count > MAX_PAGE_CHARS else ""
        return content.replace("\r\n", "\n").replace("\r", "\n").strip() + note


def _render_page(document: Any, number: int, name: str) -> Image:
    try:
        import PIL  # noqa: F401
    except ImportError:
        raise ToolFailure("Pictures of PDF pages need Pillow: pip install 'wieldy[docs]'.") from None
    from wieldy.files.reading.images import prepare_image

    with closing(document[number - 1]) as page:
        scale = min(LONG_SIDE / max(*page.get_size(), 1), MAX_SCALE)
        with closing(page.render(scale=scale)) as bitmap:
            png = io.BytesIO()
            bitmap.to_pil().save(png, "PNG")
    return prepare_image(png.getvalue(), f"page {number} of {name}").block
