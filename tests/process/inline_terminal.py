"""A terminal emulator around the real program: a pseudo-terminal whose bytes go through pyte."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Sequence
from pathlib import Path

import pyte

SECONDS = 30.0
WIELDY = (sys.executable, "-m", "wieldy")


class InlineTerminal:
    """Our program on a terminal of a given size. `output` is every byte it wrote."""

    def __init__(
        self,
        argv: list[str],
        cwd: Path,
        env: dict[str, str],
        columns: int = 80,
        lines: int = 24,
        program: Sequence[str] = WIELDY,
    ) -> None:
        self._master, child = pty.openpty()
        self.screen = pyte.HistoryScreen(columns, lines, history=10_000, ratio=0.001)
        self._stream = pyte.ByteStream(self.screen)
        self.output = b""
        self._resize(columns, lines)
        self.modes_before = termios.tcgetattr(child)
        self._child = child
        self.process = subprocess.Popen(
            [*program, *argv],
            cwd=cwd,
            env={"TERM": "xterm-256color", **env},
            stdin=child,
            stdout=child,
            stderr=child,
            start_new_session=True,
        )

    def _resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def modes(self) -> list[object]:
        """The modes of the terminal line, to compare with those before."""
        return termios.tcgetattr(self._child)

    def read(self, seconds: float = 0.05) -> None:
        """Take in what is written within the time."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            if not select.select([self._master], [], [], left)[0]:
                return
            data = os.read(self._master, 65536)
            self.output += data
            self._stream.feed(data)

    def rows(self) -> list[str]:
        """The rows of the screen, without those below the last that has text."""
        rows = [row.rstrip() for row in self.screen.display]
        while rows and not rows[-1]:
            rows.pop()
        return rows

    def history(self) -> list[str]:
        """The rows that have scrolled off, and the screen."""
        above = [
            "".join(row[column].data for column in range(self.screen.columns)).rstrip()
            for row in self.screen.history.top
        ]
        return above + self.rows()

    def wait_for(self, words: str, seconds: float = SECONDS) -> None:
        """Read until the words stand on the screen or above it."""
        deadline = time.monotonic() + seconds
        while not any(words in row for row in self.history()):
            shown = "\n".join(self.history())
            assert time.monotonic() < deadline, f"`{words}` never came; there is:\n{shown}"
            assert self.process.poll() is None or select.select([self._master], [], [], 0)[0], f"it ended:\n{shown}"
            self.read(0.1)

    def wait_until_shown(self, words: str, seconds: float = SECONDS) -> None:
        """Read until the words are on the screen."""
        deadline = time.monotonic() + seconds
        while not any(words in row for row in self.rows()):
            assert time.monotonic() < deadline, f"`{words}` is not on the screen:\n" + "\n".join(self.rows())
            self.read(0.1)

    def wait_until_gone(self, words: str, seconds: float = SECONDS) -> None:
        """Read until the words are no longer on the screen."""
        deadline = time.monotonic() + seconds
        while any(words in row for row in self.rows()):
            assert time.monotonic() < deadline, f"`{words}` stays:\n" + "\n".join(self.rows())
            self.read(0.1)

    def press(self, keys: str | bytes) -> None:
        """Send keys in one write."""
        os.write(self._master, keys.encode() if isinstance(keys, str) else keys)

    def type(self, text: str) -> None:
        """Type one key after the other, as a person does."""
        for key in text:
            self.press(key)
            self.read(0.02)

    def answer(self, key: str) -> None:
        """Press a key as a person does who has read the question."""
        self.read(0.8)
        self.press(key)

    def send(self, text: str) -> None:
        """Type a line and send it."""
        self.type(text)
        self.press("\r")

    def wait_for_exit(self, seconds: float = SECONDS) -> int:
        """Read until the program has ended; returns its exit code."""
        deadline = time.monotonic() + seconds
        while self.process.poll() is None:
            assert time.monotonic() < deadline, "it does not end:\n" + "\n".join(self.rows())
            self.read(0.05)
        self.read(0.1)
        return self.process.returncode

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def hang_up(self) -> None:
        """Take the terminal away."""
        for descriptor in (self._child, self._master):
            os.close(descriptor)
        self._child = self._master = -1

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        if self._master >= 0:
            self.hang_up()
