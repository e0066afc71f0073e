"""The interactive session: when the prompt is ready, what a delta and a key cost, how soon a typed character is seen."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator, Sequence
from fcntl import ioctl
from pathlib import Path
from struct import pack

from bench.claim import Claim, best_of

from wieldy.core.events import ModelTextDelta
from wieldy.faces.terminal.view_model import ViewModel

ROUNDS = 7
DELTAS = 5_000
KEYS = 60
PARAGRAPH = "Some **words** about `code`, long enough to be wrapped more than once at eighty columns, I think. \n\n"
READY = b"\x1b[?2004h"
WIELDY = (sys.executable, "-m", "wieldy")
PROCESSOR_TIME_LOOP = Path(__file__).parents[1] / "tests" / "process" / "processor_time_loop.py"


class Terminal:
    """Our program on a pseudo-terminal of 80 columns."""

    def __init__(self, folder: Path, script: dict[str, object], program: Sequence[str] = WIELDY, **env: str) -> None:
        (folder / "script.json").write_text(json.dumps(script))
        (folder / "home").mkdir(exist_ok=True)
        (folder / "home" / "settings.json").write_text('{"sandbox": {"autoAllow": false}}')  # it is not offered
        self._master, child = pty.openpty()
        ioctl(self._master, termios.TIOCSWINSZ, pack("HHHH", 24, 80, 0, 0))
        self.process = subprocess.Popen(
            [*program, "--model", f"script:{folder / 'script.json'}"],
            cwd=folder,
            env={
                **os.environ,
                "WIELDY_HOME": str(folder / "home"),
                "HOME": str(folder),
                "TERM": "xterm-256color",
                **env,
            },
            stdin=child,
            stdout=child,
            stderr=child,
            start_new_session=True,
        )
        os.close(child)

    def read_until(self, words: bytes, seconds: float = 30.0) -> bytes:
        output = b""
        deadline = time.monotonic() + seconds
        while words not in output:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._master], [], [], left)[0]:
                raise TimeoutError(f"{words!r} never came: {output[-2000:]!r}")
            output += os.read(self._master, 65536)
        return output

    def drain(self, seconds: float) -> bytes:
        output = b""
        while select.select([self._master], [], [], seconds)[0]:
            output += os.read(self._master, 65536)
        return output

    def press(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._master)


def claims() -> Iterator[Claim]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        yield prompt_ready(folder)
        yield deltas()
        yield from bytes_per_key(folder)
        yield echo(folder)
        yield stop(folder)
        yield slowest_callback(folder)


def prompt_ready(folder: Path) -> Claim:
    """From the start of the process until keys are taken, beside the import of prompt_toolkit alone."""

    def start() -> None:
        terminal = Terminal(folder, {"turns": []})
        try:
            terminal.read_until(READY)
        finally:
            terminal.close()

    def bare() -> None:
        subprocess.run([sys.executable, "-c", "import prompt_toolkit"], check=True, cwd=folder)

    ready, imported = best_of(ROUNDS, start, bare)
    detail = f"{ready * 1e3:.0f} ms beside {imported * 1e3:.0f} ms"
    return Claim("the prompt is ready, beside import prompt_toolkit", ready / imported, 2.5, detail=detail)


def deltas() -> Claim:
    """Pieces of a streamed answer through the view model, with 15 frames a second."""
    text = PARAGRAPH * (DELTAS * 5 // len(PARAGRAPH) + 1)
    pieces = [text[start : start + 5] for start in range(0, DELTAS * 5, 5)]

    def play() -> None:
        view = ViewModel(lambda name: None, "/")
        view.start_run("go", 0.0)
        for number, piece in enumerate(pieces):
            view.apply(ModelTextDelta(text=piece))
            if number % (DELTAS // 15) == 0:
                view.live_rows(80, 0.0, 20)

    [best] = best_of(ROUNDS, play)
    return Claim("deltas through the view model in a second", DELTAS / best, 5_000, "", at_least=True)


def bytes_per_key(folder: Path) -> Iterator[Claim]:
    """Bytes written for a typed key, in a fresh session and in a long one."""
    sizes = []
    for paragraphs in (1, 400):
        terminal = Terminal(folder, {"turns": [[{"text": PARAGRAPH * paragraphs + "The end."}]]})
        try:
            terminal.read_until(READY)
            terminal.press("go")
            time.sleep(0.3)
            terminal.press("\r")
            terminal.read_until(b"The end.")
            terminal.drain(1.0)
            total = 0
            for _ in range(20):
                terminal.press("x")
                total += len(terminal.drain(0.15))
            sizes.append(total / 20)
        finally:
            terminal.close()
    yield Claim("bytes written per typed key", sizes[0], 200, " bytes")
    yield Claim("bytes per key in a long session, beside a fresh one", sizes[1] / sizes[0], 1.1)


def echo(folder: Path) -> Claim:
    """The 95th percentile of the time from a key to its echo: 500 deltas a second, and ten commands that report progress.

    While the keys are typed, one command prints 10 MB in short lines and then a line of 1 MB.
    """
    command = "for i in $(seq 400); do echo line $i; sleep 0.05; done"
    flood = "sleep 2; seq -f 'line %g of much output' 400000; printf '%01000000d' 0"
    commands = [f"{flood}; {command}", *[f"{command} # {number}" for number in range(1, 10)]]
    calls = [{"call": "Bash", "input": {"command": each}} for each in commands]
    text = PARAGRAPH * 200
    terminal = Terminal(folder, {"turns": [[*calls, {"text": text}]], "chunk": 5, "delay": 0.002})
    times = []
    try:
        terminal.read_until(READY)
        terminal.press("go")
        time.sleep(0.3)
        terminal.press("\r")
        terminal.drain(0.5)
        time.sleep(1.0)
        terminal.drain(0.02)
        typed = ""
        for number in range(KEYS):
            key = "qxzj"[number % 4]
            typed += key
            start = time.perf_counter()
            terminal.press(key)
            terminal.read_until(typed.encode(), 10)
            times.append(time.perf_counter() - start)
            end = time.monotonic() + 0.03
            while (left := end - time.monotonic()) > 0:
                terminal.drain(min(left, 0.005))
    finally:
        terminal.close()
    times.sort()
    worst = times[int(len(times) * 0.95)] * 1e3
    return Claim("a typed character is seen while the model and ten tools write (p95)", worst, 50, " ms")


def stop(folder: Path) -> Claim:
    """From Esc until the screen says that the run has ended, while a command runs."""
    times = []
    for _ in range(5):
        terminal = Terminal(folder, {"turns": [[{"call": "Bash", "input": {"command": "sleep 100"}}]]})
        try:
            terminal.read_until(READY)
            terminal.press("go")
            time.sleep(0.3)
            terminal.press("\r")
            terminal.read_until("●".encode())
            terminal.drain(0.5)
            start = time.perf_counter()
            terminal.press("\x1b")
            terminal.read_until("■ interrupted".encode())
            times.append(time.perf_counter() - start)
        finally:
            terminal.close()
    return Claim("Esc ends the run", min(times) * 1e3, 200, " ms")


def slowest_callback(folder: Path) -> Claim:
    """The longest time that asyncio's debug mode reports for a callback, in a session with an answer, reads and a command.

    It is the processor time of the loop's thread: on a busy machine a callback also waits for its turn.
    """
    (folder / "a.py").write_text("x = 1\n")
    calls = [
        {"call": "Read", "input": {"file_path": "a.py"}},
        {"call": "Grep", "input": {"pattern": "x"}},
        {"call": "Bash", "input": {"command": "ls -l"}},
    ]
    turns = [[{"text": PARAGRAPH * 50}, *calls], [{"text": "The end."}]]
    program = (sys.executable, str(PROCESSOR_TIME_LOOP))
    terminal = Terminal(folder, {"turns": turns}, program, PYTHONASYNCIODEBUG="1")
    try:
        output = terminal.read_until(READY)
        terminal.press("go")
        time.sleep(0.3)
        terminal.press("\r")
        output += terminal.read_until(b"The end.") + terminal.drain(1.0)
    finally:
        terminal.close()
    reported = re.findall(rb"took ([0-9.]+) seconds", output)
    slowest = max((float(seconds) for seconds in reported), default=0.0)
    return Claim("the slowest callback that asyncio's debug mode reports (above 100 ms)", slowest * 1e3, 100, " ms")
