"""Prepare images for a model (with Pillow), and read PDF documents as text or images (with pypdfium2).

A PDF of a few kilobytes can make PDFium take all memory and abort, so each is read in a process with limits.
"""

from __future__ import annotations

import base64
import contextlib
import importlib.util
import io
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from wieldy.core.console import write_to_parent
from wieldy.core.errors import ToolFailure
from wieldy.core.outcome import Content, Image, Text
from wieldy.core.programs import own_python
from wieldy.files.detection import media_type_of

if TYPE_CHECKING:
    from PIL.Image import Image as Raster

LARGEST_IMAGE = 64 << 20
LARGEST_SENT = 3_750_000  # 5 MB once in base64
LONGEST_SENT = 2000
LONGEST_SHRUNK = 1568
MAX_PIXELS = 80_000_000
JPEG_QUALITIES = (85, 70, 50)
EXIF_ORIENTATION = 0x0112
# JPEG markers that start a frame and carry its size; C4, C8 and CC in that range mean other things.
_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_JPEG_WITHOUT_LENGTH = frozenset({0x01, *range(0xD0, 0xD9)})


class ImageHeader(Struct, frozen=True):
    """The type and size in pixels that an image's header states."""

    media_type: str
    width: int
    height: int

    @property
    def pixels(self) -> int:
        return self.width * self.height

    @property
    def long_side(self) -> int:
        return max(self.width, self.height)


class PreparedImage(Struct, frozen=True):
    """An image ready to be sent, and the header of the original."""

    media_type: str
    data: bytes
    width: int
    height: int
    original: ImageHeader

    @property
    def block(self) -> Image:
        return Image(self.media_type, base64.b64encode(self.data).decode("ascii"))

    @property
    def shrunk(self) -> bool:
        return self.width * self.height < self.original.pixels


def prepare_image(data: bytes, name: str) -> PreparedImage:
    """The image in `data`, changed only as far as needed; `name` is for error messages."""
    header = read_header(data)
    if header is None:
        raise ToolFailure(f"{name} is damaged: it starts like an image but its header cannot be read.")
    if header.pixels > MAX_PIXELS:
        raise ToolFailure(
            f"{name} is {header.width}×{header.height} pixels, too large to decode.",
            "Shrink or crop it first, with Bash.",
        )
    try:
        from PIL import Image as pillow
    except ImportError:
        return _send_unchanged(data, header, name)
    try:
        with pillow.open(io.BytesIO(data)) as raster:
            return _fit(raster, data, header)
    except Exception as error:  # a decoder that is given damaged bytes may raise anything
        raise ToolFailure(f"{name} is damaged and cannot be shown: {error}.") from None


def _send_unchanged(data: bytes, header: ImageHeader, name: str) -> PreparedImage:
    if not has_end(data, header.media_type):
        raise ToolFailure(f"{name} is damaged: its end is missing.")
    if not _within_limits(data, header):
        raise ToolFailure(
            f"{name} is {header.width}×{header.height} pixels and {len(data)} bytes, too large to be sent, and "
            "shrinking needs Pillow: pip install 'wieldy[docs]'."
        )
    return PreparedImage(header.media_type, data, header.width, header.height, header)


def _within_limits(data: bytes, header: ImageHeader) -> bool:
    return len(data) <= LARGEST_SENT and header.long_side <= LONGEST_SENT


def _fit(raster: Raster, data: bytes, header: ImageHeader) -> PreparedImage:
    rotated = raster.getexif().get(EXIF_ORIENTATION, 1) != 1
    animated = getattr(raster, "is_animated", False)
    if _within_limits(data, header) and not rotated and not animated:
        raster.load()
        return PreparedImage(header.media_type, data, header.width, header.height, header)
    raster.draft("RGB", (LONGEST_SHRUNK, LONGEST_SHRUNK))
    raster = _rotate_upright(raster)
    if not _within_limits(data, header):
        raster.thumbnail((LONGEST_SHRUNK, LONGEST_SHRUNK))
    media_type, encoded = _encode(raster, header.media_type)
    return PreparedImage(media_type, encoded, raster.width, raster.height, header)


def _rotate_upright(raster: Raster) -> Raster:
    from PIL import ImageOps

    upright = ImageOps.exif_transpose(raster)
    if upright.mode in {"RGB", "RGBA", "L"}:
        return upright
    if upright.mode.startswith("I"):
        return upright.point(lambda level: level / 256).convert("L")
    return upright.convert("RGBA" if upright.has_transparency_data else "RGB")


def _encode(raster: Raster, media_type: str) -> tuple[str, bytes]:
    if media_type != "image/jpeg":
        lossless = io.BytesIO()
        raster.save(lossless, "PNG")
        if lossless.tell() <= LARGEST_SENT:
            return "image/png", lossless.getvalue()
    plain = raster.convert("RGB")
    for quality in JPEG_QUALITIES:
        lossy = io.BytesIO()
        plain.save(lossy, "JPEG", quality=quality)
        if lossy.tell() <= LARGEST_SENT:
            break
    return "image/jpeg", lossy.getvalue()


def read_header(data: bytes) -> ImageHeader | None:
    """The header of an image, or None where it is damaged or of another type."""
    media_type = media_type_of(data)
    if media_type is None:
        return None
    size = _SIZES[media_type](data)
    return ImageHeader(media_type, *size) if size and min(size) > 0 else None


def has_end(data: bytes, media_type: str) -> bool:
    """Whether the image has its end: a cheap sign that it was not cut off."""
    if media_type == "image/png":
        return b"IEND" in data[-32:]
    if media_type == "image/jpeg":
        return b"\xff\xd9" in data[-64:]
    if media_type == "image/gif":
        return data.rstrip(b"\0").endswith(b";")
    return len(data) >= int.from_bytes(data[4:8], "little") + 8


def _png_size(data: bytes) -> tuple[int, int] | None:
    if data[12:16] != b"IHDR" or len(data) < 24:
        return None
    return int.from_bytes(data[16:20]), int.from_bytes(data[20:24])


def _gif_size(data: bytes) -> tuple[int, int] | None:
    if len(data) < 10:
        return None
    return int.from_bytes(data[6:8], "little"), int.from_bytes(data[8:10], "little")


def _jpeg_size(data: bytes) -> tuple[int, int] | None:
    at = 2
    while at + 9 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker == 0xFF:
            at += 1
        elif marker in _JPEG_FRAMES:
            return int.from_bytes(data[at + 7 : at + 9]), int.from_bytes(data[at + 5 : at + 7])
        elif marker in _JPEG_WITHOUT_LENGTH:
            at += 2
        else:
            at += 2 + max(int.from_bytes(data[at + 2 : at + 4]), 2)
    return None


def _webp_size(data: bytes) -> tuple[int, int] | None:
    if len(data) < 30:
        return None
    kind = data[12:16]
    if kind == b"VP8X":
        return 1 + int.from_bytes(data[24:27], "little"), 1 + int.from_bytes(data[27:30], "little")
    if kind == b"VP8 ":
        return int.from_bytes(data[26:28], "little") & 0x3FFF, int.from_bytes(data[28:30], "little") & 0x3FFF
    if kind == b"VP8L":
        bits = int.from_bytes(data[21:25], "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    return None


_SIZES = {"image/png": _png_size, "image/jpeg": _jpeg_size, "image/gif": _gif_size, "image/webp": _webp_size}


LARGEST_PDF = 128 << 20
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
_PROGRAM = "from wieldy.files.reading.media import main; main(*sys.argv[1:])"


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

    with closing(document[number - 1]) as page:
        scale = min(LONG_SIDE / max(*page.get_size(), 1), MAX_SCALE)
        with closing(page.render(scale=scale)) as bitmap:
            png = io.BytesIO()
            bitmap.to_pil().save(png, "PNG")
    return prepare_image(png.getvalue(), f"page {number} of {name}").block
