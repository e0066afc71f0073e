"""One file shown as what it is: text, image, PDF or notebook; whatever else it is gets a name and a refusal."""

from __future__ import annotations

import os
from collections.abc import Callable
from stat import S_ISREG
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from wieldy.core.content import Content, Text
from wieldy.core.errors import ToolFailure
from wieldy.core.tool import Output
from wieldy.files.encodings import Encoding, decodes
from wieldy.files.kinds import binary_kind
from wieldy.files.reading.images import media_type_of
from wieldy.files.reading.opening import OpenFile, shown
from wieldy.files.reading.pages import Page, read_page

if TYPE_CHECKING:
    from wieldy.core.workspace import Workspace
    from wieldy.files.editing.read_state import ReadState


def remarks(page: Page) -> str:
    """Short sentences, or nothing where the page is a whole file in UTF-8 with plain line feeds."""
    said = [_extent(page), _encoding(page.encoding), _breaks(page.breaks)]
    return " ".join(filter(None, said))


def size_of(count: int) -> str:
    """A number of bytes as a person says it."""
    if count < 1000:
        return f"{count} bytes"
    amount = float(count)
    for unit in ("KB", "MB", "GB"):
        amount /= 1000
        if amount < 999.5:
            return f"{amount:.3g} {unit}"
    return f"{amount / 1000:.3g} TB"


def _extent(page: Page) -> str:
    if not page.lines:
        if page.total == 0:
            return "The file exists but is empty."
        return f"Nothing to show: the file has {page.total} lines, so offset={page.first} is beyond its end."
    span = f"Lines {page.first}-{page.last}"
    if not page.counted:
        return f"{span} of more than {page.total} ({size_of(page.size)}). Read on with offset={page.last + 1}."
    if page.last < page.total:
        return f"{span} of {page.total}. Read on with offset={page.last + 1}."
    return f"{span} of {page.total}: the end of the file." if page.first > 1 else ""


def _encoding(encoding: Encoding) -> str:
    if encoding.name == "utf-8":
        mark = "The file starts with a UTF-8 byte order mark." if encoding.bom else ""
        stray = "" if encoding.sure else "Some bytes are not valid UTF-8 and are shown as \N{REPLACEMENT CHARACTER}."
        return " ".join(filter(None, (mark, stray)))
    return f"Encoding: {encoding.name}{' with byte order mark' if encoding.bom else ''}{_doubt(encoding)}."


def _doubt(encoding: Encoding) -> str:
    if encoding.sure:
        return ""
    return ", but some of it does not decode" if encoding.bom else " (a guess)"


def _breaks(name: str) -> str:
    return f"Line endings: {name}." if name in {"CRLF", "CR", "mixed"} else ""


class RecentReads:
    """The pages of one workspace. A page is held back once; whoever insists gets it again."""

    def __init__(self, workspace: Workspace | None = None) -> None:
        self._shown: set[tuple[str, int, int]] = set()

    def show(self, path: str, first: int, last: int) -> None:
        """These lines are shown now."""
        self._shown.add((path, first, last))

    def was_shown(self, path: str, first: int, last: int) -> bool:
        """Whether exactly these lines were shown the last time."""
        return (path, first, last) in self._shown

    def hold_back(self, path: str, first: int, last: int) -> bool:
        """Whether exactly these lines were shown the last time; true only once."""
        page = (path, first, last)
        was_shown = page in self._shown
        self._shown.discard(page)
        return was_shown


SMALL_FILE = 256 * 1024


def small(path: str, real: str) -> OpenFile | None:
    """The file, opened, if it is one that is read faster than a thread is reached."""
    try:
        stat = os.stat(real)
    except (OSError, ValueError):
        return None
    return OpenFile(path, real, stat) if S_ISREG(stat.st_mode) and 0 < stat.st_size < SMALL_FILE else None


def is_plain(file: OpenFile) -> bool:
    """Whether showing a small file takes no more than cutting UTF-8 into lines."""
    return not file.path.endswith(".ipynb") and b"\0" not in file.head and decodes(file.head, "utf-8")


class Reader(Struct, frozen=True):
    """One read: what was asked for, and what is remembered from earlier ones. One that is `stopped` ends between two blocks."""

    first: int
    limit: int
    pages: str
    as_images: bool
    seen: ReadState
    repeats: RecentReads | None
    stopped: Callable[[], bool] = bool

    def read(self, path: str, real: str | None = None) -> Output:
        """Open and show a file."""
        return self.show(OpenFile(path, real))

    def show(self, file: OpenFile) -> Output:
        """The file as what it is. Closes it."""
        with file:
            if media_type_of(file.head):
                return self._image(file)
            if file.head.startswith(b"%PDF-"):
                return self._pdf(file)
            if kind := binary_kind(file.head):
                raise ToolFailure(
                    f"{shown(file.path)} is not text: {kind}, {size_of(file.stat.st_size)}. Only text, images (PNG, "
                    "JPEG, GIF, WebP), PDF and notebooks can be shown; look into other files with Bash."
                )
            if file.path.endswith(".ipynb"):
                return self._notebook(file)
            return self._text(file)

    def _text(self, file: OpenFile) -> Output:
        page = read_page(file, first=self.first, limit=self.limit, stopped=self.stopped)
        if self._known(file, page):
            name = shown(file.path)
            return Output(
                f"Unchanged since your last read: {name}, lines {page.first}-{page.last}. What you were shown then "
                "still holds; read once more if you no longer have it.",
                {"type": "file_unchanged", "file": {"filePath": name}},
            )
        self.seen.record_read(
            file.real,
            data=page.data,
            stat=file.stat,
            first=page.first,
            last=page.last,
            complete=page.complete,
        )
        said = remarks(page)
        reminder = f"<system-reminder>{said}</system-reminder>" if said else ""
        return Output("\n".join(filter(None, (page.numbered, reminder))), _text_data(file.path, page))

    def _known(self, file: OpenFile, page: Page) -> bool:
        if self.repeats is None or not page.lines:
            return False
        lines = file.real, page.first, page.last
        if self.repeats.was_shown(*lines) and self.seen.is_unchanged(*lines) and self.repeats.hold_back(*lines):
            return True
        self.repeats.show(*lines)
        return False

    def _image(self, file: OpenFile) -> Output:
        from wieldy.files.reading.images import LARGEST_FILE, picture

        data = loaded(file, LARGEST_FILE)
        image = picture(data, shown(file.path))
        self._saw_whole(file, data)
        original = image.original
        content: Content = (image.block,)
        if image.shrunk:
            size = f"{original.width}×{original.height}"
            content += (Text(f"Shown at {image.width}×{image.height} pixels; the file has {size}."),)
        about = {
            "filePath": shown(file.path),
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

    def _pdf(self, file: OpenFile) -> Output:
        from wieldy.files.reading.pdf import LARGEST_FILE, read_pdf

        name = shown(file.path)
        data = loaded(file, LARGEST_FILE)
        found = read_pdf(data, name, pages=self.pages, as_images=self.as_images)
        self._saw_whole(file, data)
        about = {"filePath": name, "originalSize": len(data), "pages": list(found.numbers), "count": found.count}
        return Output(found.content, {"type": "pdf", "file": about})

    def _notebook(self, file: OpenFile) -> Output:
        from wieldy.files.reading.notebooks import LARGEST_FILE, read_notebook, show_notebook

        try:
            data = loaded(file, LARGEST_FILE)
            notebook = read_notebook(data, shown(file.path))
        except ToolFailure:
            # Shown as the text it is, so that it can be mended.
            with OpenFile(file.path, file.real) as plain:
                return self._text(plain)
        return show_notebook(file, data, notebook, self.seen)

    def _saw_whole(self, file: OpenFile, data: bytes) -> None:
        self.seen.record_read(file.real, data=data, stat=file.stat, first=1, last=0, complete=True)


def loaded(file: OpenFile, most: int) -> bytes:
    """All of a file that is no larger than `most`."""
    data = file.whole(most)
    if data is None:
        raise ToolFailure(f"{shown(file.path)} is too large to be shown (more than {size_of(most)}).")
    return data


def _text_data(path: str, page: Page) -> dict[str, Any]:
    return {
        "type": "text",
        "file": {
            "filePath": shown(path),
            "content": "\n".join(page.lines),
            "numLines": len(page.lines),
            "startLine": page.first,
            "totalLines": page.total if page.counted else None,
            "encoding": page.encoding.name,
        },
    }
