"""Read one file as what it is: text of any size, encoding and line ending, page by page; image, PDF or notebook.

Only regular files are opened, so that nothing can hang. Anything else is named and refused.
"""

from __future__ import annotations

import codecs
import errno
import os
import stat as modes
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, islice
from stat import S_ISREG
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct

from wieldy.core.errors import ToolFailure
from wieldy.core.filesystem import LOCAL_FILES, FileSystem, RemoteFileSystem, stat_result
from wieldy.core.outcome import Content, Text
from wieldy.core.realpath import PathChanged, open_resolved, realpath
from wieldy.core.text import display_path, format_size
from wieldy.core.tool import Output
from wieldy.files.detection import (
    UTF8,
    Encoding,
    binary_kind,
    detect_encoding,
    keep_encoding,
    media_type_of,
    named_encoding,
)
from wieldy.files.reading import MAX_CHARS, MAX_LINES
from wieldy.files.search.format import HIDDEN_CONTROL, SHOWN_RETURN, describe_characters

if TYPE_CHECKING:
    from wieldy.files.editing.read_state import ReadState

HEAD = 256 * 1024
SECTOR = 512

_KINDS = (
    (modes.S_ISFIFO, "a named pipe (FIFO)"),
    (modes.S_ISSOCK, "a socket"),
    (modes.S_ISCHR, "a character device"),
    (modes.S_ISBLK, "a block device"),
)


class OpenFile:
    """An open file with its first bytes; to be closed. It is read once, forwards. Raises OSError like any file.

    `real` is where the path led when permissions were checked: that file is opened, or none. `before` is its earlier status.
    """

    __slots__ = ("_descriptor", "head", "path", "real", "stat")

    def __init__(self, path: str, real: str | None = None, before: os.stat_result | None = None) -> None:
        self.path = path
        try:
            self.real = real or realpath(path)
            # Checked before opening too: opening some devices already has an effect.
            _refuse_special(path, before or os.stat(path))
            self._descriptor = open_resolved(self.real, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
        except ValueError as error:
            raise OSError(errno.EINVAL, str(error)) from None
        try:
            self.stat = os.fstat(self._descriptor)
            _refuse_special(path, self.stat)
            size = self.stat.st_size
            self.head = os.read(self._descriptor, min(size + 1, HEAD) if size else HEAD)
        except BaseException:
            os.close(self._descriptor)
            raise

    def __enter__(self) -> OpenFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._close()

    @property
    def sized(self) -> bool:
        """Whether the file has a size; what the kernel generates as it is read (`/proc`) has none."""
        return self.stat.st_size > 0 or not self.head

    def read_all(self, most: int) -> bytes | None:
        """All bytes, or None if there are more than `most`. Only once, and not after `read_blocks`."""
        if self.stat.st_size > most:
            return None
        # Where the head holds everything, only the end of the file remains to be seen: no large buffer for that.
        step = SECTOR if len(self.head) == self.stat.st_size else HEAD
        data, left = [self.head], most + 1 - len(self.head)
        while left > 0 and (more := self._read(min(left, step))):
            data.append(more)
            left -= len(more)
            step = HEAD
        if left > 0:
            return b"".join(data) if len(data) > 1 else self.head
        self.head = b"".join(data)
        return None

    def read_blocks(self, size: int) -> Iterator[bytes]:
        """The bytes in pieces, none held longer than the caller holds it."""
        yield self.head
        while block := self._read(size):
            yield block

    def reopened(self) -> OpenFile:
        """The same file from its start."""
        return OpenFile(self.path, self.real)

    def _read(self, size: int) -> bytes:
        return os.read(self._descriptor, size)

    def _close(self) -> None:
        os.close(self._descriptor)


class RemoteFile(OpenFile):
    """The same for a file of a backend, read piece by piece. What was replaced meanwhile is not read on: `PathChanged`."""

    __slots__ = ("_files", "_offset", "_version")

    def __init__(self, path: str, files: RemoteFileSystem, real: str | None = None) -> None:
        self.path = path
        self._files = files
        self.real = real or files.realpath(path)
        info = files.info(self.real, follow=False)
        if info.kind == "link":
            raise PathChanged(path)
        self.stat = stat_result(info)
        _refuse_special(path, self.stat)
        self._offset, self._version = 0, info.version
        self.head = self._read(HEAD)

    def reopened(self) -> OpenFile:
        return RemoteFile(self.path, self._files, self.real)

    def _read(self, size: int) -> bytes:
        if self._offset >= self.stat.st_size > 0:
            return b""
        if self._offset and self._files.info(self.real, follow=False).version != self._version:
            raise PathChanged(self.path)
        data = self._files.backend.read(self.real, self._offset, size)
        self._offset += len(data)
        return data

    def _close(self) -> None:
        return


def open_file(path: str, real: str | None = None, files: FileSystem = LOCAL_FILES) -> OpenFile:
    """Open a file of this machine or of a backend."""
    if isinstance(files, RemoteFileSystem) and not files.is_on_host(real or path):
        return RemoteFile(path, files, real)
    return OpenFile(path, real)


def _refuse_special(path: str, stat: os.stat_result) -> None:
    if modes.S_ISREG(stat.st_mode):
        return
    if modes.S_ISDIR(stat.st_mode):
        raise ToolFailure(f"{display_path(path)} is a directory, not a file.", "Use LS or Glob to see what is in it.")
    kind = next((name for test, name in _KINDS if test(stat.st_mode)), "no regular file")
    raise ToolFailure(f"{display_path(path)} is {kind}; only regular files can be read.")


MAX_LINE_CHARS = 2000
LOADED = 16 << 20
BLOCK = 256 * 1024
# How many bytes beyond the page are read only to count lines.
COUNTED_AHEAD = 64 << 20
# Shown with its number, even an empty line takes a digit, a tab and a line break.
SHORTEST_LINE = 3


# The encoding of some bytes: all of a file, or (False) only its head.
EncodingOf: TypeAlias = Callable[[bytes, bool], Encoding]


def _detect(data: bytes, whole: bool) -> Encoding:
    return detect_encoding(data, whole=whole)


class Page(Struct, frozen=True):
    """Some lines of a file, plain and `numbered` as a model reads them.

    `last` is the number of its last line, before `first` when the page is empty. `total` is the number of lines in the
    file, or at least that many where not all were `counted`; a `complete` page holds all of them.
    `shows_returns` says that lone carriage returns are shown in it. `data` is the whole file where it was small enough to
    be loaded.
    """

    lines: list[str]
    numbered: str
    first: int
    last: int
    total: int
    counted: bool
    complete: bool
    size: int
    encoding: Encoding
    line_endings: str
    data: bytes | None
    shows_returns: bool = False


def read_page(
    file: OpenFile,
    *,
    first: int = 1,
    limit: int = MAX_LINES,
    chars: int = MAX_CHARS,
    loaded: int = LOADED,
    block: int = BLOCK,
    stopped: Callable[[], bool] = lambda: False,
    encoding_of: EncodingOf = _detect,
) -> Page:
    """Lines `first` to `first + limit - 1`, fewer if they would take more than `chars` characters.

    Files up to `loaded` bytes are held whole, larger ones pass in blocks. `stopped` is asked between blocks.
    """
    data = file.read_all(loaded)
    encoding = encoding_of(file.head, False) if data is None else encoding_of(data, True)
    if data is not None and first == 1 and encoding == UTF8 and (page := _whole_page(data, limit, chars)) is not None:
        return page
    if data is None and not file.sized:
        name = display_path(file.path)
        raise ToolFailure(f"{name} gives data without end.", "Use Bash with `head -c` to see its beginning.")

    source = _TextSource(file, data, encoding, block, stopped)
    window = source.window(max(first, 1), limit, chars)
    lines, numbered = _number_lines(window.lines, window.first, chars)
    return Page(
        lines=lines,
        numbered=numbered,
        first=window.first,
        last=window.first + len(lines) - 1,
        total=window.total,
        counted=window.ended,
        complete=window.first == 1 and window.ended and len(lines) == window.total,
        size=file.stat.st_size if data is None else len(data),
        encoding=source.encoding,
        line_endings=source.line_endings.name,
        data=data,
        shows_returns=window.shows_returns,
    )


def _whole_page(data: bytes, limit: int, chars: int) -> Page | None:
    """The page of a small UTF-8 file with plain line feeds, which most files are; None for any other."""
    if len(data) >= chars or b"\r" in data:
        return None
    lines = data.decode().split("\n")
    if not lines[-1]:
        lines.pop()
    if not lines or len(lines) > limit or max(map(len, lines)) > MAX_LINE_CHARS:
        return None
    numbered = "\n".join([f"{number}\t{line}" for number, line in enumerate(lines, 1)])
    if len(numbered) >= chars:
        return None
    return Page(
        lines, numbered, 1, len(lines), len(lines), True, True, len(data), UTF8, "LF" if b"\n" in data else "", data
    )


def _number_lines(lines: list[str], first: int, chars: int) -> tuple[list[str], str]:
    """As many of the lines as fit in so many characters when numbered, but at least one; and their numbered text."""
    numbered = [f"{number}\t{line}" for number, line in enumerate(lines, first)]
    text = "\n".join(numbered)
    if len(text) <= chars:
        return lines, text
    ends = accumulate(len(line) + 1 for line in numbered)
    fitting = max(sum(end <= chars + 1 for end in ends), 1)
    return lines[:fitting], "\n".join(numbered[:fitting])


@dataclass(slots=True)
class LineEndings:
    """The kinds of line ending met so far."""

    lf: bool = False
    crlf: bool = False
    cr: bool = False

    @property
    def name(self) -> str:
        """`LF`, `CRLF`, `CR`, `mixed`, or empty where there was none."""
        kinds = [name for name, seen in (("LF", self.lf), ("CRLF", self.crlf), ("CR", self.cr)) if seen]
        return "mixed" if len(kinds) > 1 else "".join(kinds)


def count_breaks(pieces: Iterable[bytes], endings: LineEndings, lone_ends: bool = True) -> Iterator[tuple[bytes, int]]:
    """The pieces of a text, each with its number of line breaks, cut so that no pair of CR and LF is torn. A lone CR is a
    line break if `lone_ends`."""
    carriage_return = b""
    for chunk in pieces:
        piece = carriage_return + chunk if carriage_return else chunk
        carriage_return = b"\r" if piece.endswith(b"\r") else b""
        piece = piece.removesuffix(carriage_return)
        feeds, returns, pairs = piece.count(b"\n"), 0, 0
        if b"\r" in piece:
            returns, pairs = piece.count(b"\r"), piece.count(b"\r\n")
        endings.crlf |= pairs > 0
        endings.lf |= feeds > pairs
        endings.cr |= lone_ends and returns > pairs
        if piece:
            yield piece, feeds + (returns - pairs if lone_ends else 0)
    if carriage_return:
        endings.cr |= lone_ends
        yield (b"\n", 1) if lone_ends else (b"\r", 0)


def normalize_breaks(piece: bytes, lone_ends: bool = True) -> bytes:
    """The piece with every line break as a line feed."""
    if b"\r" not in piece:
        return piece
    piece = piece.replace(b"\r\n", b"\n")
    return piece.replace(b"\r", b"\n") if lone_ends else piece


class _TextSource:
    """The text of a file in pieces of bytes in which a line feed is one byte: wide encodings are recoded as UTF-8."""

    def __init__(
        self, file: OpenFile, data: bytes | None, encoding: Encoding, block: int, stopped: Callable[[], bool]
    ) -> None:
        self.encoding = encoding
        self.line_endings = LineEndings()
        self._size = file.stat.st_size
        self._passed = 0
        self._stopped = stopped
        if data is None:
            # A head of plain ASCII leaves the encoding open until the lines shown say more.
            self._encoding_known = not file.head.isascii() or encoding != UTF8
            self._pieces = self._watch(file.read_blocks(block))
            self._lone_ends = not self._has_line_feed((file.head,)) and not self._has_line_feed(_blocks(file, block))
        else:
            self._encoding_known = True
            self._pieces = iter((data,))
            self._lone_ends = b"\r" not in data or not self._has_line_feed((data,))

    def window(self, first: int, limit: int, chars: int) -> _LineWindow:
        """At most `limit` lines from the `first` on, fewer if they take more than `chars`."""
        window = _LineWindow(first, max(min(limit, chars // SHORTEST_LINE), 1), self._decode, chars, self._lone_ends)
        pieces = self._narrow(self._pieces_without_bom())
        window.fill(count_breaks(pieces, self.line_endings, self._lone_ends), self._worth_counting)
        return window

    def _has_line_feed(self, blocks: Iterable[bytes]) -> bool:
        """Whether there is one in the blocks, which are searched up to it."""
        return any(b"\n" in block for block in self._narrow(blocks))

    def _narrow(self, blocks: Iterable[bytes]) -> Iterator[bytes]:
        if self.encoding.unit == 1:
            yield from blocks
            return
        decoder = codecs.getincrementaldecoder(self.encoding.name)("replace")
        for block in blocks:
            yield decoder.decode(block).encode()
        yield decoder.decode(b"", True).encode()

    def _worth_counting(self) -> bool:
        # A file that grows as it is read is not followed beyond the size it had.
        return self._passed <= self._size <= self._passed + COUNTED_AHEAD

    def _watch(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        for block in blocks:
            if self._stopped():
                raise ToolFailure("The read was stopped.")
            self._passed += len(block)
            yield block

    def _pieces_without_bom(self) -> Iterator[bytes]:
        bom = self.encoding.bom
        for piece in self._pieces:
            yield piece[len(bom) :] if bom else piece
            bom = b""

    def _decode(self, piece: bytes, final: bool) -> str:
        if not self._encoding_known:
            if piece.isascii():
                return piece.decode("ascii")
            self._encoding_known = True
            encoding = detect_encoding(piece, whole=False)
            self.encoding = encoding if encoding.unit == 1 and not encoding.bom else UTF8
        return self._decoder.decode(piece, final)

    @cached_property
    def _decoder(self) -> codecs.IncrementalDecoder:
        name = self.encoding.name if self.encoding.unit == 1 else "utf-8"
        return codecs.getincrementaldecoder(name)("replace")


@dataclass(slots=True)
class _LineWindow:
    """The lines `first` to `first + limit - 1`, long ones cut; collection ends early above `chars`.

    `decode(piece, final)` turns a piece into text. `total` counts the lines passed, and is all of them when `ended`.
    """

    first: int
    limit: int
    decode: Callable[[bytes, bool], str]
    chars: int
    lone_ends: bool = True
    lines: list[str] = field(default_factory=list)
    total: int = 0
    ended: bool = False
    _breaks: int = 0
    _open_line: str = ""
    shows_returns: bool = False
    _cut_chars: int = 0
    _used_chars: int = 0
    _full: bool = False

    def fill(self, pieces: Iterable[tuple[bytes, int]], go_on: Callable[[], bool]) -> None:
        """Read pieces with their number of breaks until the window is full, then count on while `go_on` says so."""
        open_end = False
        for piece, breaks in pieces:
            if not self._full and self._breaks + breaks >= self.first - 1:
                self._take(normalize_breaks(piece, self.lone_ends), breaks)
            self._breaks += breaks
            open_end = not piece.endswith((b"\n", b"\r") if self.lone_ends else b"\n")
            if self._full and not go_on():
                break
        else:
            self.ended = True
            if not self._full:
                self._add(self.decode(b"", True))
                if self._open_line:
                    self.lines.append(self._close_line())
        self.total = self._breaks + open_end

    def _take(self, piece: bytes, breaks: int) -> None:
        before = max(self.first - 1 - self._breaks, 0)
        missing = self.limit - len(self.lines)
        start = _skip_breaks(piece, before, 0)
        if breaks - before >= missing:
            piece = piece[start : _skip_breaks(piece, missing, start)]
            self._full = True
        elif start:
            piece = piece[start:]
        self._add(self.decode(piece, self._full))
        self._full = self._full or self._used_chars > self.chars

    def _add(self, text: str) -> None:
        if "\r" in text:
            self.shows_returns = True
            text = text.replace("\r", SHOWN_RETURN)
        *closed, rest = text.split("\n")
        if closed:
            self._extend_line(closed[0])
            closed[0] = self._close_line()
            closed[1:] = [_cut(line[:MAX_LINE_CHARS], len(line) - MAX_LINE_CHARS) for line in closed[1:]]
            self.lines += closed
            self._used_chars += sum(map(len, closed)) + SHORTEST_LINE * len(closed)
        self._extend_line(rest)

    def _extend_line(self, text: str) -> None:
        room = MAX_LINE_CHARS - len(self._open_line)
        self._open_line += text[:room]
        self._cut_chars += max(len(text) - room, 0)

    def _close_line(self) -> str:
        line = _cut(self._open_line, self._cut_chars)
        self._open_line, self._cut_chars = "", 0
        return line


def _blocks(file: OpenFile, block: int) -> Iterator[bytes]:
    with file.reopened() as again:
        yield from islice(again.read_blocks(block), COUNTED_AHEAD // block + 1)


def _cut(line: str, beyond: int) -> str:
    return f"{line}… [{beyond} more characters in this line]" if beyond > 0 else line


def _skip_breaks(piece: bytes, breaks: int, start: int) -> int:
    """The position just behind so many line breaks counted from `start`; there must be as many."""
    if breaks == 0:
        return start
    low, high = start, len(piece)
    while high - low > 4096:
        middle = (low + high) // 2
        count = piece.count(b"\n", low, middle)
        if count < breaks:
            breaks -= count
            low = middle
        else:
            high = middle
    for _ in range(breaks):
        low = piece.find(b"\n", low) + 1
    return low


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
        from wieldy.files.reading.media import LARGEST_IMAGE, prepare_image

        name = display_path(file.path)
        data = load_file(file, LARGEST_IMAGE)
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
        from wieldy.files.reading.media import LARGEST_PDF, read_pdf

        name = display_path(file.path)
        data = load_file(file, LARGEST_PDF)
        pdf = read_pdf(data, name, pages=self.pages, as_images=self.as_images)
        self._record_whole(file, data)
        about = {"filePath": name, "originalSize": len(data), "pages": list(pdf.numbers), "count": pdf.count}
        return Output(pdf.content, {"type": "pdf", "file": about})

    def _read_notebook(self, file: OpenFile) -> Output:
        from wieldy.files.notebooks import LARGEST_FILE, read_notebook, show_notebook

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
