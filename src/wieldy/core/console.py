"""The only module that writes to stdout and stderr.

Text from anywhere (a model, a file, a server, a person) is shown, never obeyed: control characters are spelled out at the
last step before writing. Styles and terminal commands are values of their own (`StyledText`, `TerminalCommand`), never part of
a text. `tests/shape/test_console.py` checks that no other module writes.
"""

from __future__ import annotations

import codecs
import errno
import io
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Literal, NamedTuple, TextIO, TypeAlias, cast

from wieldy.core.text import CONTROL, escape_controls

Style: TypeAlias = Literal[
    "bold", "dim", "italic", "underline", "reverse", "strike", "red", "green", "yellow", "blue", "magenta", "cyan"
]
_SGR: Mapping[str, str] = {
    "bold": "1",
    "dim": "2",
    "italic": "3",
    "underline": "4",
    "reverse": "7",
    "strike": "9",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "magenta": "35",
    "cyan": "36",
}


class StyledText(NamedTuple):
    """Text in one style."""

    text: str
    styles: tuple[Style, ...] = ()


class TerminalCommand(NamedTuple):
    """A control sequence made by a function of this module. Its parameters never contain foreign control characters."""

    sequence: str


Fragment: TypeAlias = str | StyledText | TerminalCommand

BELL = TerminalCommand("\x07")
BEGIN_FRAME = TerminalCommand("\x1b[?2026h")
END_FRAME = TerminalCommand("\x1b[?2026l")
ERASE_LINE = TerminalCommand("\x1b[2K")
ERASE_TO_LINE_END = TerminalCommand("\x1b[K")
CARRIAGE_RETURN = TerminalCommand("\r")
SAVE_CURSOR = TerminalCommand("\x1b7")
RESTORE_CURSOR = TerminalCommand("\x1b8")
HIDE_CURSOR = TerminalCommand("\x1b[?25l")
SHOW_CURSOR = TerminalCommand("\x1b[?25h")
PASTE_MARKS_ON = TerminalCommand("\x1b[?2004h")
PASTE_MARKS_OFF = TerminalCommand("\x1b[?2004l")
MODIFIED_KEYS_ON = TerminalCommand("\x1b[>4;1m")  # xterm's modifyOtherKeys: Shift-Enter differs from Enter
MODIFIED_KEYS_OFF = TerminalCommand("\x1b[>4m")  # as it was configured
KITTY_KEYS_ON = TerminalCommand("\x1b[>1u")  # kitty's protocol, on a stack that the terminal keeps
KITTY_KEYS_OFF = TerminalCommand("\x1b[<u")
LINE_BREAK = TerminalCommand("\r\n")

MAX_CLIPBOARD_BYTES = 100_000
"""Terminals drop or cut longer OSC 52 sequences."""


def cursor_up(rows: int) -> TerminalCommand:
    """Move the cursor up; nothing for no rows."""
    return TerminalCommand(f"\x1b[{rows}A" if rows > 0 else "")


def cursor_down(rows: int) -> TerminalCommand:
    """Move the cursor down on the screen, without scrolling; nothing for no rows."""
    return TerminalCommand(f"\x1b[{rows}B" if rows > 0 else "")


def cursor_right(columns: int) -> TerminalCommand:
    """Move the cursor right; nothing for no columns."""
    return TerminalCommand(f"\x1b[{columns}C" if columns > 0 else "")


def set_clipboard(text: str) -> TerminalCommand | None:
    """Copy a text to the clipboard of the terminal (OSC 52); None if it is too long for that."""
    import base64

    data = base64.b64encode(text.encode("utf-8", "replace")).decode("ascii")
    return TerminalCommand(f"\x1b]52;c;{data}\x07") if len(data) <= MAX_CLIPBOARD_BYTES else None


def notify(title: str, text: str, *, protocol: Literal["osc9", "osc777"]) -> TerminalCommand:
    """Show a desktop notification. Semicolons would end a field, so they become commas."""
    title, text = (" ".join(escape_controls(part).split()).replace(";", ",")[:200] for part in (title, text))
    body = f"9;{title}: {text}" if protocol == "osc9" else f"777;notify;{title};{text}"
    return TerminalCommand(f"\x1b]{body}\x07")


def through_tmux(command: TerminalCommand) -> TerminalCommand:
    """Wrap a command so that tmux passes it on to the terminal around it."""
    return TerminalCommand("\x1bPtmux;" + command.sequence.replace("\x1b", "\x1b\x1b") + "\x1b\\")


def render(*fragments: Fragment, color: bool) -> str:
    """Return what is written for these fragments: text escaped, styles as SGR sequences if `color`, commands as they are."""
    return "".join([_render(fragment, color) for fragment in fragments])


def _render(fragment: Fragment, color: bool) -> str:
    if isinstance(fragment, TerminalCommand):
        return fragment.sequence
    if isinstance(fragment, str):
        return escape_controls(fragment)
    text = escape_controls(fragment.text)
    if not color or not fragment.styles or not text:
        return text
    return f"\x1b[{';'.join([_SGR[style] for style in fragment.styles])}m{text}\x1b[0m"


def uses_color(stream: TextIO | None = None, env: Mapping[str, str] = os.environ) -> bool:
    """Return whether styles are shown on a stream (stdout): on a terminal, unless `NO_COLOR` is set or it is dumb."""
    return (stream or sys.stdout).isatty() and not env.get("NO_COLOR") and env.get("TERM") != "dumb"


def write(*fragments: Fragment, end: str = "\n", flush: bool = False) -> None:
    """Write to stdout."""
    _write(sys.stdout, fragments, end, flush)


def write_error(*fragments: Fragment, end: str = "\n") -> None:
    """Write to stderr."""
    _write(sys.stderr, fragments, end, flush=True)


def print_error(text: object) -> None:
    """Write an error or a notice to stderr, with our name before it. Further lines are indented: they cannot pass for one."""
    write_error("wieldy: " + str(text).replace("\r\n", "\n").replace("\n", "\n  "))


def _write(stream: TextIO, fragments: tuple[Fragment, ...], end: str, flush: bool) -> None:
    stream = getattr(stream, "unguarded", stream)
    with _name_stream(stream):
        stream.write(render(*fragments, color=uses_color(stream)) + end)
        if flush:
            stream.flush()


@contextmanager
def _name_stream(stream: TextIO) -> Iterator[None]:
    """Make an error of a stream say which one cannot be written."""
    try:
        yield
    except OSError as error:
        if error.filename is None and not isinstance(stream, ClosedStdout):
            error.filename = "stderr" if stream is getattr(sys.stderr, "unguarded", sys.stderr) else "stdout"
        raise


def encode_json(value: Any, *, indent: int | None = None) -> str:
    """Encode JSON that is readable and safe to look at: control characters are escaped, other characters stay."""
    import json

    return escape_json(json.dumps(value, ensure_ascii=False, indent=indent, default=str))


def escape_json(encoded: str) -> str:
    r"""Escape control characters that JSON allows in strings (C1, bidirectional, surrogates) as `\uXXXX`."""
    import json

    return CONTROL.sub(lambda match: match[0] if match.lastgroup == "visible" else json.dumps(match[0])[1:-1], encoded)


def write_json(value: Any) -> None:
    """Write a value to stdout as indented JSON."""
    write_json_text(encode_json(value, indent=2) + "\n")


def write_json_text(encoded: str) -> None:
    """Write encoded JSON to stdout at once."""
    stream = getattr(sys.stdout, "unguarded", sys.stdout)
    with _name_stream(stream):
        stream.write(escape_json(encoded))
        stream.flush()


def flush_stdout() -> None:
    """Write what is buffered for stdout."""
    stream = getattr(sys.stdout, "unguarded", sys.stdout)
    with _name_stream(stream):
        stream.flush()


def write_to_parent(data: bytes) -> None:
    """Write bytes to stdout from a helper process, whose stdout is a pipe to the process that started it."""
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def read_line(prompt: str) -> str | None:
    """Write a prompt to stderr and read a line of stdin; None at its end."""
    write_error(prompt, end="")
    line = sys.stdin.readline()
    if not line:
        write_error("")
        return None
    return line


class GuardedStream:
    """A text stream that escapes what is written to it: for warnings, tracebacks, logs and libraries that print."""

    def __init__(self, stream: TextIO) -> None:
        self.unguarded = stream

    def write(self, text: str) -> int:
        """Write the text with its control characters spelled out."""
        self.unguarded.write(escape_controls(text))
        return len(text)

    def writelines(self, lines: Any) -> None:
        """Write each line."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.unguarded, name)


class LineStream(io.TextIOBase):
    """A text stream that hands on whole lines, of any thread, to a function."""

    def __init__(self, on_line: Callable[[str], None]) -> None:
        self._on_line = on_line
        self._open = ""
        self._lock = threading.Lock()

    def write(self, text: str) -> int:
        with self._lock:
            *lines, self._open = (self._open + text).split("\n")
            on_line = self._on_line
        for line in lines:
            if line.strip():
                on_line(line.rstrip())
        return len(text)

    def forward_to(self, on_line: Callable[[str], None]) -> None:
        """Hand on to another function from now on, beginning with a line that has not ended."""
        with self._lock:
            self._on_line = on_line
        if self._open:
            self.write("\n")


@contextmanager
def redirect_errors(on_line: Callable[[str], None]) -> Iterator[None]:
    """Hand what is written to stderr (logs, warnings) to a function: in a session it would land inside the input line.

    Some keep the stream, such as log handlers and threads: what they write afterwards goes where it went before.
    """
    before = sys.stderr
    stream = LineStream(on_line)
    sys.stderr = cast(TextIO, stream)
    try:
        yield
    finally:
        sys.stderr = before
        with suppress(OSError, ValueError):  # the terminal is gone
            stream.forward_to(lambda line: _write(before, (line,), "\n", flush=True))


_ASCII: Mapping[str, str] = dict(zip("›●○✓✗⊘■·•…↳→▸◂↑↓│─–−×☑☐⏎⋮░█", ">*o+x-#--~>>><^v|---xxo~:.#", strict=True))


def _encode_similar(error: UnicodeError) -> tuple[str, int]:
    """Where the terminal's encoding lacks a character that we draw, write a similar one; a question mark for any other."""
    assert isinstance(error, UnicodeEncodeError)
    return "".join(_ASCII.get(each, "?") for each in error.object[error.start : error.end]), error.end


def guard_streams() -> None:
    """Replace `sys.stdout` and `sys.stderr` by guarded ones. The command line does; a library that is imported does not."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if not isinstance(stream, GuardedStream):
            if hasattr(stream, "reconfigure"):
                codecs.register_error("wieldy.similar", _encode_similar)
                stream.reconfigure(errors="wieldy.similar")
            setattr(sys, name, GuardedStream(stream))


def flush_streams() -> None:
    """Flush stdout and stderr; one that is closed, or whose reader is gone, is left as it is."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()


def discard_stdout() -> None:
    """Drop what is still buffered for a reader of stdout that is gone; flushing it at exit would fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class ClosedStdout(io.TextIOBase):
    """A stdout that was closed when the program started: what is written there would be lost, so writing fails."""

    def write(self, text: str) -> int:
        raise OSError(errno.EBADF, "stdout is closed")

    def fileno(self) -> int:
        return 1


def require_stdout() -> None:
    """Raise `OSError` where stdout is closed: before work whose result would be lost."""
    if isinstance(getattr(sys.stdout, "unguarded", sys.stdout), ClosedStdout):
        sys.stdout.write("")


def reopen_closed_streams() -> None:
    """Open /dev/null for closed standard streams, so that no file opened later gets descriptor 0, 1 or 2."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(fd, True)
    os.close(fd)
    if sys.stdin is None:
        sys.stdin = os.fdopen(0, closefd=False)
    if sys.stdout is None:
        sys.stdout = cast(TextIO, ClosedStdout())
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", closefd=False)
