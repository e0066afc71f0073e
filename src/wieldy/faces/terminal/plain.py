"""The plain session for dumb terminals and screen readers: the same view model, printed line by line, nothing redrawn.

Lines are edited by the terminal itself. What was typed before a question appeared never answers it: it is discarded.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress

from wieldy.core.console import Fragment, write
from wieldy.faces.terminal.chat import Chat
from wieldy.faces.terminal.questions import GUARD_SECONDS, Inquiry, NoAnswer, Reply, ask_by_line, discard_typed_ahead
from wieldy.faces.terminal.text import row_fragments
from wieldy.faces.terminal.view_model import Block, PromptBlock, ViewModel, separated_rows

PROMPT = "> "
ANNOUNCE_SECONDS = 0.5  # a call that runs for longer is announced


class BlockPrinter:
    """Prints the finished blocks of a view as they come."""

    def __init__(self, view: ViewModel) -> None:
        self.view = view
        self._printed = 0
        self._previous: Block | None = None
        self.typed: str | None = None  # the prompt that the person has just typed

    def print_new(self, before: Callable[[], None] | None = None) -> None:
        """Print the blocks that were added; `before` is called before the first of them."""
        width = _columns()
        for block in self.view.blocks[self._printed :]:
            if isinstance(block, PromptBlock) and self.typed is not None and block.text.split() == self.typed.split():
                self.typed, self._previous = None, block  # it is on the screen already
                continue
            for row in separated_rows(block, self._previous, width):
                if before is not None:
                    before()
                write(*row_fragments(row), flush=True)
            self._previous = block
        self._printed = len(self.view.blocks)


class PlainSession:
    """Prints a chat and reads its lines."""

    def __init__(self, chat: Chat) -> None:
        self._chat = chat
        chat.surface = self
        self._printer = BlockPrinter(chat.view)
        self._announced: set[str] = set()
        self._answer: asyncio.Future[str] | None = None
        self._asked_at = 0.0
        self._asking = asyncio.Lock()
        self._partial = b""
        self._warned = False
        self._prompted = False
        self._exit_code: int | None = None
        self._done = asyncio.Event()

    async def run(self) -> int:
        """Read and handle lines until the person leaves. Returns the exit code."""
        loop = asyncio.get_running_loop()
        loop.add_reader(sys.stdin.fileno(), self._on_readable)
        loop.add_signal_handler(signal.SIGINT, self._on_interrupt)
        for number, code in ((signal.SIGTERM, 143), (signal.SIGHUP, 129)):
            loop.add_signal_handler(number, self._end, code)
        try:
            async with self._chat:
                self.refresh()
                await self._done.wait()
                with suppress(OSError):  # the terminal may be gone
                    self._leave_line()
        finally:
            loop.remove_reader(sys.stdin.fileno())
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                loop.remove_signal_handler(number)
        return self._exit_code or 0

    # Surface

    def refresh(self, *, at_once: bool = False) -> None:
        """Print what is finished; ask for a line where one is wanted."""
        if self._printer.view is not self._chat.view:
            self._printer = BlockPrinter(self._chat.view)
        self._printer.print_new(self._leave_line)
        for call in self._chat.view.calls.values():
            if call.state == "running" and call.id not in self._announced:
                self._announced.add(call.id)
                asyncio.get_running_loop().call_later(ANNOUNCE_SECONDS, self._announce, call.id)
        if not self._chat.busy and not self._prompted and self._answer is None:
            self._prompted = True
            if self._chat.queue:
                write(f"still queued: {self._chat.queue[0]} (Enter sends it)")
            write(PROMPT, end="", flush=True)

    async def ask(self, inquiry: Inquiry) -> Reply | None:
        async with self._asking:
            self.refresh()
            self._leave_line()
            return await ask_by_line(inquiry, self._read_answer)

    async def page(self, text: str) -> None:
        self._chat.say(text)

    def set_draft(self, text: str) -> None:
        self._chat.say(f"you can send again: {text}")

    def exit(self) -> None:
        self._end(0)

    # Inside

    def _print(self, *fragments: Fragment) -> None:
        self._leave_line()
        write(*fragments, flush=True)

    def _leave_line(self) -> None:
        """Begin a new line after the prompt, where the person may be typing."""
        if self._prompted:
            write("")
            self._prompted = False

    def _announce(self, call_id: str) -> None:
        view = self._chat.view
        call = view.calls.get(call_id)
        if call is not None and call.state == "running":
            self._print(f"● {view.format.label(call.name)} {view.format.subject(call)}")

    async def _read_answer(self, prompt: str) -> str:
        """Read a line that was typed after the question appeared. Raises `NoAnswer`."""
        self._leave_line()
        discard_typed_ahead()
        self._partial = b""
        write(prompt, end="", flush=True)
        self._asked_at = time.monotonic()
        self._answer = asyncio.get_running_loop().create_future()
        try:
            return await self._answer
        finally:
            self._answer = None

    def _on_readable(self) -> None:
        try:
            data = os.read(sys.stdin.fileno(), 65536)
        except OSError:
            data = b""
        if not data:
            self._on_end_of_input()
            return
        *lines, self._partial = (self._partial + data).split(b"\n")
        for line in lines:
            self._on_line(line.decode("utf-8", "replace").rstrip("\r"))

    def _on_line(self, line: str) -> None:
        self._warned = False
        self._prompted = False
        if self._answer is not None:
            if time.monotonic() - self._asked_at < GUARD_SECONDS:
                write("  that was too quick to be an answer; please answer again > ", end="", flush=True)
            elif not self._answer.done():
                self._answer.set_result(line)
        elif line.strip():
            queued = len(self._chat.queue)
            if not self._chat.busy:
                self._printer.typed = line
            self._chat.submit(line)
            if len(self._chat.queue) > queued:
                write(f"queued: {line}")
        elif not self._chat.send_queue():
            self.refresh()

    def _on_end_of_input(self) -> None:
        if not self._leave_question():
            self._end(0)

    def _on_interrupt(self) -> None:
        """Stop what runs; else a second Ctrl-C leaves."""
        if not self._leave_question() and not self._chat.stop():
            if self._warned:
                self._end(0)
                return
            self._warned = True
            self._print("press Ctrl-C again to exit")
            self.refresh()

    def _leave_question(self) -> bool:
        if self._answer is None or self._answer.done():
            return False
        self._chat.stop()
        self._answer.set_exception(NoAnswer())
        return True

    def _end(self, code: int) -> None:
        self._exit_code = code
        self._done.set()


def _columns() -> int:
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or 80
    except OSError:
        return 80
