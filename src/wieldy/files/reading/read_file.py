"""Read one file as what it is: text, image, PDF or notebook. Anything else is named and refused."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from stat import S_ISREG
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from wieldy.core.errors import ToolFailure
from wieldy.core.filesystem import LOCAL_FILES, FileSystem
from wieldy.core.outcome import Content, Text
from wieldy.core.tool import Output
from wieldy.files.detection import Encoding, binary_kind, keep_encoding, media_type_of, named_encoding
from wieldy.files.reading.opening import OpenFile, open_file
from wieldy.files.reading.pages import Page, read_page
from wieldy.files.search.format import HIDDEN_CONTROL, SHOWN_RETURN, describe_characters, display_path, format_size

if TYPE_CHECKING:
    from wieldy.files.editing.read_state import ReadState

# Below this, handing a file to a thread takes longer than reading it.
SMALL_FILE = 256 * 1024


def open_small_file(path: str, real: str) -> OpenFile | None:
    """Open a regular file that is small enough to be read on the event loop."""
    try:
        stat = os.stat(real)
    except (OSError, ValueError):
        return None
    return OpenFile(path, real, stat) if S_ISREG(stat.st_mode) and 0 < stat.st_size < SMALL_FILE else None


def is_plain_text(file: OpenFile) -> bool:
    """Whether reading a small file takes no more than splitting UTF-8 into lines."""
    try:
        file.head.decode()
    except UnicodeDecodeError:
        return False
    return not file.path.endswith(".ipynb") and b"\0" not in file.head


class RecentReads:
    """The pages a workspace has shown. An unchanged page is withheld once; read again, it is shown."""

    def __init__(self) -> None:
        self._pages: set[tuple[str, int, int]] = set()

    def withhold(self, page: tuple[str, int, int], is_unchanged: Callable[[str, int, int], bool]) -> bool:
        """Whether a page (path, first and last line) was shown the last time and is still the same."""
        if page in self._pages and is_unchanged(*page):
            self._pages.discard(page)
            return True
        self._pages.add(page)
        return False


class Reader(Struct, frozen=True):
    """One read: the request, what is remembered from earlier ones, and whether it was `stopped` between two blocks."""

    first: int
    limit: int
    pages: str
    as_images: bool
    state: ReadState
    recent: RecentReads | None
    stopped: Callable[[], bool] = bool
    encoding: str | None = None
    files: FileSystem = LOCAL_FILES

    def read(self, path: str, real: str | None = None) -> Output:
        """Open and read a file."""
        return self.read_open(open_file(path, real, self.files))

    def read_open(self, file: OpenFile) -> Output:
        """Read an open file as what it is, and close it."""
        with file:
            if media_type_of(file.head):
                return self._read_image(file)
            if file.head.startswith(b"%PDF-"):
                return self._read_pdf(file)
            if kind := binary_kind(file.head):
                raise ToolFailure(
                    f"{display_path(file.path)} is not text: {kind}, {format_size(file.stat.st_size)}.",
                    "Only text, images (PNG, JPEG, GIF, WebP), PDF and notebooks can be shown; look into other files with "
                    "Bash.",
                )
            if file.path.endswith(".ipynb"):
                return self._read_notebook(file)
            return self._read_text(file)

    def _read_text(self, file: OpenFile) -> Output:
        known = self.state.reading(file.real)
        known_encoding = known.encoding if known is not None else None

        def encoding_of(data: bytes, whole: bool) -> Encoding:
            if self.encoding:
                return named_encoding(self.encoding, data, whole=whole)
            unchanged = self.state.is_current(file.real, data if whole else None, file.stat)
            return keep_encoding(data, known_encoding, unchanged=unchanged, whole=whole)

        page = read_page(file, first=self.first, limit=self.limit, stopped=self.stopped, encoding_of=encoding_of)
        name, key = display_path(file.path), (file.real, page.first, page.last)
        reads_alike = known_encoding in (None, page.encoding)
        is_unchanged = self.state.is_unchanged if reads_alike else lambda *_: False
        if page.lines and self.recent is not None and self.recent.withhold(key, is_unchanged):
            return Output(
                f"Unchanged since your last read: {name}, lines {page.first}-{page.last}. What you were shown then "
                "still holds; read once more if you no longer have it.",
                {"type": "file_unchanged", "file": {"filePath": name}},
            )
        self.state.record_read(
            file.real,
            data=page.data,
            stat=file.stat,
            first=page.first,
            last=page.last,
            complete=page.complete,
            encoding=page.encoding,
        )
        remarks = describe_page(page)
        reminder = f"<system-reminder>{remarks}</system-reminder>" if remarks else ""
        return Output("\n".join(filter(None, (page.numbered, reminder))), _page_data(name, page))

    def _read_image(self, file: OpenFile) -> Output:
        from wieldy.files.reading.images import LARGEST_FILE, prepare_image

        name = display_path(file.path)
        data = load_file(file, LARGEST_FILE)
        image = prepare_image(data, name)
        self._record_whole(file, data)
        original = image.original
        content: Content = (image.block,)
        if image.shrunk:
            size = f"{original.width}×{original.height}"
            content += (Text(f"Shown at {image.width}×{image.height} pixels; the file has {size}."),)
        about = {
            "filePath": name,
            "type": image.media_type,
            "originalSize": file.stat.st_size,
            "dimensions": {
                "originalWidth": original.width,
                "originalHeight": original.height,
                "displayWidth": image.width,
                "displayHeight": image.height,
            },
        }
        return Output(content, {"type": "image", "file": about})

    def _read_pdf(self, file: OpenFile) -> Output:
        from wieldy.files.reading.pdf import LARGEST_FILE, read_pdf

        name = display_path(file.path)
        data = load_file(file, LARGEST_FILE)
        pdf = read_pdf(data, name, pages=self.pages, as_images=self.as_images)
        self._record_whole(file, data)
        about = {"filePath": name, "originalSize": len(data), "pages": list(pdf.numbers), "count": pdf.count}
        return Output(pdf.content, {"type": "pdf", "file": about})

    def _read_notebook(self, file: OpenFile) -> Output:
        from wieldy.files.reading.notebooks import LARGEST_FILE, read_notebook, show_notebook

        try:
            data = load_file(file, LARGEST_FILE)
            notebook = read_notebook(data, display_path(file.path))
        except ToolFailure:
            # Shown as text, so that it can be repaired.
            with file.reopened() as text_file:
                return self._read_text(text_file)
        return show_notebook(file, data, notebook, self.state)

    def _record_whole(self, file: OpenFile, data: bytes) -> None:
        self.state.record_read(file.real, data=data, stat=file.stat, first=1, last=0, complete=True)


def load_file(file: OpenFile, most: int) -> bytes:
    """All of a file that is no larger than `most`."""
    data = file.read_all(most)
    if data is None:
        raise ToolFailure(f"{display_path(file.path)} is too large to be shown (more than {format_size(most)}).")
    return data


def _page_data(name: str, page: Page) -> dict[str, Any]:
    return {
        "type": "text",
        "file": {
            "filePath": name,
            "content": "\n".join(page.lines),
            "numLines": len(page.lines),
            "startLine": page.first,
            "totalLines": page.total if page.counted else None,
            "encoding": page.encoding.name,
        },
    }


def describe_page(page: Page) -> str:
    """Short sentences, or nothing where the page is a whole file in UTF-8 with plain line feeds."""
    endings = f"Line endings: {page.line_endings}." if page.line_endings in {"CRLF", "CR", "mixed"} else ""
    returns = f"{SHOWN_RETURN} stands for a lone carriage return, also in edits." if page.shows_returns else ""
    remarks = [_describe_extent(page), _describe_encoding(page.encoding), endings, returns, _describe_controls(page)]
    return " ".join(filter(None, remarks))


def _describe_controls(page: Page) -> str:
    """How many control characters the page has, which are left out of every result, and where."""
    if page.numbered.isascii() and page.numbered.replace("\n", "").replace("\t", "").isprintable():
        return ""
    counts = Counter(HIDDEN_CONTROL.findall(page.numbered))
    if not counts:
        return ""
    at = next(number for number, line in enumerate(page.lines, page.first) if HIDDEN_CONTROL.search(line))
    return f"Not shown: {describe_characters(counts)}, first in line {at}. A Write of the whole file would drop them."


def _describe_extent(page: Page) -> str:
    if not page.lines:
        if page.total == 0:
            return "The file exists but is empty."
        return f"Nothing to show: the file has {page.total} lines, so offset={page.first} is beyond its end."
    span = f"Lines {page.first}-{page.last}"
    if not page.counted:
        return f"{span} of more than {page.total} ({format_size(page.size)}). Read on with offset={page.last + 1}."
    if page.last < page.total:
        return f"{span} of {page.total}. Read on with offset={page.last + 1}."
    return f"{span} of {page.total}: the end of the file." if page.first > 1 else ""


def _describe_encoding(encoding: Encoding) -> str:
    if encoding.name == "utf-8":
        mark = "The file starts with a UTF-8 byte order mark." if encoding.bom else ""
        stray = "" if encoding.valid else "Some bytes are not valid UTF-8 and are shown as \N{REPLACEMENT CHARACTER}."
        return " ".join(filter(None, (mark, stray)))
    mark = " with byte order mark" if encoding.bom else ""
    stray = "" if encoding.valid else ", but some of it does not decode"
    doubt = " (a guess; read again with `encoding` if characters look wrong)" if encoding.doubtful else ""
    return f"Encoding: {encoding.name}{mark}{stray}{doubt}."
