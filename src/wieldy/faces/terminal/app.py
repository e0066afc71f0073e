"""The inline session: one prompt_toolkit application for keys and editing, frames drawn by `Screen`.

Frames: at most 15 a second while events come in, at once after a key, none when nothing changed. Questions are a state of
this application: see `inquiry`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from prompt_toolkit.application import Application
from prompt_toolkit.application.run_in_terminal import in_terminal
from prompt_toolkit.data_structures import Size
from prompt_toolkit.enums import EditingMode
from prompt_toolkit.filters import Condition, is_searching, vi_insert_mode, vi_navigation_mode
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.key_binding import KeyBindings, KeyPress, KeyPressEvent
from prompt_toolkit.key_binding.vi_state import InputMode
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import BufferControl, HSplit, Layout, Window
from prompt_toolkit.layout.controls import SearchBufferControl
from prompt_toolkit.output import DummyOutput, Output
from prompt_toolkit.renderer import Renderer
from prompt_toolkit.search import SearchState, stop_search
from prompt_toolkit.styles import DummyStyle

from wieldy.core.console import Fragment, redirect_errors, write
from wieldy.core.errors import SessionError
from wieldy.core.logs import log
from wieldy.core.threads import in_thread
from wieldy.faces.terminal.chat import Chat
from wieldy.faces.terminal.desktop import status_row
from wieldy.faces.terminal.input import BurstDetector, InputBox, create_completer, known_keys, open_history
from wieldy.faces.terminal.questions import Inquiry, Reply
from wieldy.faces.terminal.screen import Caret, Screen, key_protocol, rewraps_on_resize
from wieldy.faces.terminal.text import Row, TextSpan, clip_row, row_width, to_line
from wieldy.faces.terminal.view_model import INDENT, Block, separated_rows

FRAME_SECONDS = 1 / 15
SETTLE_SECONDS = 0.1  # after a resize nothing is drawn for so long
HOLD_ENTER_SECONDS = 0.03
LEAVE_SECONDS = 2.0
ESCAPE_SECONDS = 0.05  # how long an Esc may be the beginning of another key
NARROW_COLUMNS = 50  # the live rows fit the screen at this width, too
MAX_QUEUE_ROWS = 4


class BurstInput(Vt100Input):
    """Keys of the terminal; a burst of text arrives as a paste."""

    def __init__(self) -> None:
        super().__init__(sys.stdin)
        self.detector = BurstDetector()

    def read_keys(self) -> list[KeyPress]:
        return self.detector.convert(known_keys(super().read_keys()))


class SizeOutput(DummyOutput):
    """Knows the size of the terminal. Frames are written by `console`, nothing by prompt_toolkit."""

    def get_size(self) -> Size:
        try:
            columns, rows = os.get_terminal_size(sys.stdout.fileno())
        except OSError:
            columns, rows = 80, 24
        return Size(rows=rows or 24, columns=columns or 80)

    def fileno(self) -> int:
        return sys.stdout.fileno()


class FrameRenderer(Renderer):
    """Draws with our screen what prompt_toolkit would lay out in windows."""

    def __init__(self, output: Output, screen: Screen, draw: Callable[[bool], None]) -> None:
        self._draw = draw
        self._screen = screen
        super().__init__(DummyStyle(), output)

    def render(self, app: Application[Any], layout: Layout, is_done: bool = False) -> None:
        self._draw(is_done)

    def erase(self, leave_alternate_screen: bool = True) -> None:
        """Make room for another program, such as the pager or the shell."""
        self._screen.erase()
        self._screen.close()

    def clear(self) -> None:
        """Ctrl-L: nothing is cleared, the live rows are drawn again."""
        self._screen.erase()
        self._draw(False)

    def reset(self, _scroll: bool = False, leave_alternate_screen: bool = True) -> None:
        super().reset(leave_alternate_screen=leave_alternate_screen)
        self._screen.close()

    def request_absolute_cursor_position(self) -> None:
        return  # all movement is relative


class InlineApplication(Application[int]):
    """An application whose frames are drawn by `FrameRenderer`, and which waits until a resize has settled."""

    def __init__(self, on_resize: Callable[[], None], **options: Any) -> None:
        self._resized = on_resize
        super().__init__(**options)

    def _on_resize(self) -> None:
        self._resized()


class InlineSession:
    """Draws a chat inline and reads its keys."""

    def __init__(self, chat: Chat) -> None:
        self._chat = chat
        chat.surface = self
        self._output = SizeOutput()
        self._screen = Screen(self._write, rewraps=rewraps_on_resize(), keys=key_protocol())
        self._input = BurstInput()
        self._box = InputBox(create_completer(chat), open_history(str(chat.session.box.settings.root)))
        self._inquiries: deque[Inquiry] = deque()
        self._stashed_draft: str | None = None
        self._drawn_blocks = 0
        self._previous_block: Block | None = None
        self._view = chat.view
        self._last_frame = 0.0
        self._frame_timer: asyncio.TimerHandle | None = None
        self._clock: asyncio.TimerHandle | None = None
        self._settled_at = 0.0
        self._leave_until = 0.0
        self._escape_at = 0.0
        self._exit_code = 0
        self._failed_to_draw = False
        self._app = self._create_application()

    async def run(self) -> int:
        """Run until the person leaves. Returns the exit code."""
        self._loop = loop = asyncio.get_running_loop()
        ends = {signal.SIGTERM: 143, signal.SIGHUP: 129}
        for number, code in ends.items():
            loop.add_signal_handler(number, self._end, code)
        loop.set_exception_handler(self._on_error)
        try:
            async with self._chat:
                with redirect_errors(self._on_stderr):
                    await self._app.run_async(
                        pre_run=self._start_preload,
                        set_exception_handler=False,
                        slow_callback_duration=loop.slow_callback_duration,  # prompt_toolkit would raise it
                    )
        except EOFError:
            self._exit_code = 129  # the terminal is gone
        except Exception as error:
            if not self._failed_to_draw:
                raise
            reason = f"{type(error).__name__}: {error}"
            raise SessionError(f"the screen could not be drawn, so the session was closed ({reason})") from error
        finally:
            loop.set_exception_handler(None)
            for number in ends:
                loop.remove_signal_handler(number)
            if self._clock is not None:
                self._clock.cancel()
        return self._exit_code

    # Surface

    def refresh(self, *, at_once: bool = False) -> None:
        """Draw a frame soon: at most 15 a second, but for a rare one that is due at once."""
        if at_once and self._frame_timer is not None:
            self._frame_timer.cancel()
            self._frame_timer = None
        if self._frame_timer is not None or not self._app.is_running:
            return
        loop = asyncio.get_running_loop()
        now = time.monotonic()
        due = max(0.0 if at_once else self._last_frame + FRAME_SECONDS, self._settled_at)
        self._frame_timer = loop.call_later(max(due - now, 0), self._on_frame_due)

    async def page(self, text: str) -> None:
        from wieldy.faces.terminal.desktop import show_in_pager

        async with in_terminal():
            await show_in_pager(text)

    def set_draft(self, text: str) -> None:
        self._box.set_text(text)
        self.refresh()

    def exit(self) -> None:
        self._end(0)

    def _start_preload(self) -> None:
        """Begins after the first frame."""
        self._app.create_background_task(in_thread(preload))

    def _on_stderr(self, line: str) -> None:
        """Show a line that a library wrote to stderr, such as a warning. Called from any thread."""
        self._loop.call_soon_threadsafe(self._chat.say, line, "dim")

    # Frames

    def _write(self, frame: Sequence[Fragment]) -> None:
        try:
            write(*frame, end="", flush=True)
        except OSError:
            self._end(129)  # the terminal is gone

    def _on_frame_due(self) -> None:
        self._frame_timer = None
        self._app.invalidate()

    def _on_resize(self) -> None:
        """Wait until the size has settled: until then the places of the rows are unknown."""
        self._settled_at = time.monotonic() + SETTLE_SECONDS
        if self._frame_timer is not None:
            self._frame_timer.cancel()
            self._frame_timer = None
        self.refresh()

    def _draw(self, is_done: bool) -> None:
        """Draw a frame; the last one leaves the finished text alone."""
        now = time.monotonic()
        if is_done:
            size = self._output.get_size()
            self._screen.draw(self._finished_rows(size.columns), [], Caret(0, 0), size.columns, size.rows)
            return
        if now < self._settled_at:
            self.refresh()
            return
        self._failed_to_draw = True  # until it is drawn
        self._box.buffer.load_history_if_not_yet_loaded()  # each time the box was emptied
        size = self._output.get_size()
        finished = self._finished_rows(size.columns)
        live, caret = self._live_rows(size.columns, size.rows, now)
        self._screen.draw(finished, live, caret, size.columns, size.rows)
        self._last_frame = now
        self._failed_to_draw = False
        if self._inquiries:
            inquiry = self._inquiries[0]
            inquiry.on_shown(now)
            if (seconds := inquiry.seconds_to_focus(now)) > 0:
                asyncio.get_running_loop().call_later(seconds + 0.01, self.refresh)
        self._keep_time()

    def _keep_time(self) -> None:
        """While something runs, draw once a second for the seconds it shows."""
        if self._clock is not None:
            self._clock.cancel()
        busy = self._view.running or self._view.calls
        self._clock = asyncio.get_running_loop().call_later(1.0, self.refresh) if busy else None

    def _finished_rows(self, columns: int) -> list[Row]:
        if self._view is not self._chat.view:  # another session was resumed
            self._view, self._drawn_blocks = self._chat.view, 0
        rows: list[Row] = []
        blocks = self._view.blocks
        for block in blocks[self._drawn_blocks :]:
            rows += separated_rows(block, self._previous_block, columns)
            self._previous_block = block
        self._drawn_blocks = len(blocks)
        return rows

    def _live_rows(self, columns: int, lines: int, now: float) -> tuple[list[Row], Caret]:
        """Everything below the finished text: what runs, the queue, the question or the box, the status."""
        most = max(lines - 1, 2)
        draft = not self._box.is_empty
        inquiry = self._inquiries[0] if self._inquiries else None
        shows_box = inquiry is None or draft or inquiry.entering_words
        below = self._below_rows(columns, now) if most > 10 or inquiry is None else []
        box: list[Row] = []
        caret = Caret(0, 0)
        if shows_box:
            placeholder = "" if inquiry else self._placeholder()
            box, caret = self._box.rows(
                columns, max(most // 3, 1), placeholder=placeholder, search=self._history_search()
            )
        below = below[-max(most - len(box), 0) :] if most > len(box) else []
        question: list[Row] = []
        queue = self._queue_rows(columns)
        room = most - len(below) - len(box)
        if inquiry is not None:
            waiting_calls = sum(call.state == "waiting" for call in self._view.calls.values())
            inquiry.waiting = len(self._inquiries) - 1 + waiting_calls
            focused = inquiry.has_focus(now, draft=draft)
            gaps = 1 + bool(box) if room > 12 else 0
            for_queue = 1 if queue and 7 < room <= 12 else 0  # a small terminal shows the last queued message
            question = inquiry.rows(
                columns, room - gaps - for_queue, focused=focused, draft=draft and not inquiry.entering_words
            )
            question += [()] if box and gaps else []
        room -= len(question)
        queue = queue[: room - 1] if room > 1 else queue[-1:] if room == 1 else []
        room -= len(queue) + 1
        running = fit_narrow(self._view.live_rows(columns, time.time(), room), room) if room > 0 else []
        if running and running[0] and len(running) < room and self._view.needs_gap:
            running = [(), *running]
        above: list[Row] = [*running, *queue, *([()] if room >= 0 else []), *question]
        if box:
            caret = Caret(len(above) + caret.row, min(caret.column, columns - 1))
        elif inquiry is not None:
            caret = Caret(len(above) - len(question) + inquiry.caret_row, 1)
        return [*above, *box, *below], caret

    def _history_search(self) -> SearchState | None:
        """What the history is being searched for."""
        layout = self._app.layout
        target = layout.search_target_buffer_control
        if target is None or layout.current_buffer is None or not layout.current_buffer.text:
            return None
        state = target.search_state
        return SearchState(layout.current_buffer.text, state.direction, state.ignore_case)

    def _below_rows(self, columns: int, now: float) -> list[Row]:
        rows = self._box.menu_rows(columns)
        if self._app.layout.is_searching:
            query = to_line(self._app.layout.current_buffer.text if self._app.layout.current_buffer else "", 200)
            rows.append((TextSpan(f"{INDENT}history search: ", "dim"), TextSpan(query)))
        rows.append(status_row(self._chat.session, self._chat.status_command.line, self._hint(now), columns))
        return rows

    def _queue_rows(self, columns: int) -> list[Row]:
        queue = list(self._chat.queue)
        messages = [("handed in", text) for text in self._chat.steering]
        messages += [("queued", text) for text in queue[-MAX_QUEUE_ROWS:]]
        rows: list[Row] = [
            clip_row((TextSpan(f"{label} ", "dim"), TextSpan(to_line(text, 300), "dim italic")), max(columns - 1, 10))
            for label, text in messages
        ]
        if len(queue) > MAX_QUEUE_ROWS:
            rows.insert(0, (TextSpan(f"queued … {len(queue) - MAX_QUEUE_ROWS} more", "dim"),))
        return [(), *rows] if rows else []

    def _placeholder(self) -> str:
        if self._chat.queue and not self._chat.busy:
            return "Enter sends the queued message"
        if self._chat.busy:
            return "Enter queues a message, Ctrl-S hands it in after the running tool"
        return "Ask, or type / for commands, ! for a shell command"

    def _hint(self, now: float) -> str:
        if now < self._leave_until:
            return "Ctrl-C again to leave"
        if self._app.editing_mode == EditingMode.VI and self._app.vi_state.input_mode == InputMode.NAVIGATION:
            return "vi: i to insert"
        hints = []
        if self._chat.busy and not self._inquiries:
            hints.append("stopping…" if self._chat.stopping else "Esc stops")
        if self._chat.queue:
            hints.append("↑ takes the queued message back")
        return " · ".join(hints)

    # Questions

    async def ask(self, inquiry: Inquiry) -> Reply | None:
        self._inquiries.append(inquiry)
        self.refresh()
        try:
            return await inquiry.result
        finally:
            if inquiry in self._inquiries:
                self._inquiries.remove(inquiry)
            self._restore_draft()
            self.refresh()

    def _restore_draft(self) -> None:
        if self._stashed_draft is not None:
            self._box.set_text(self._stashed_draft)
            self._stashed_draft = None

    def _question_has_keys(self) -> bool:
        if not self._inquiries or self._inquiries[0].entering_words:
            return False
        return self._inquiries[0].has_focus(time.monotonic(), draft=not self._box.is_empty)

    def _choose(self, number: int | None = None) -> None:
        inquiry = self._inquiries[0]
        inquiry.choose(number)
        if inquiry.entering_words:
            self._stashed_draft = self._box.buffer.text
            self._box.set_text("")

    # Keys

    def _create_application(self) -> InlineApplication:
        search = SearchBufferControl(ignore_case=True)
        control = BufferControl(self._box.buffer, search_buffer_control=search)
        layout = Layout(HSplit([Window(control), Window(search, height=1)]), focused_element=control)
        vi = self._chat.session.box.settings.get("editorMode") == "vim"
        app = InlineApplication(
            self._on_resize,
            layout=layout,
            key_bindings=self._key_bindings(),
            input=self._input,
            output=self._output,
            editing_mode=EditingMode.VI if vi else EditingMode.EMACS,
            enable_page_navigation_bindings=False,
            include_default_pygments_style=False,
            paste_mode=False,
        )
        app.ttimeoutlen = ESCAPE_SECONDS
        app.timeoutlen = 0.01  # the second key of a pair comes with the first
        app.renderer = FrameRenderer(self._output, self._screen, self._draw)
        app.key_processor.after_key_press += self._after_key
        return app

    def _after_key(self, sender: object) -> None:
        now = time.monotonic()
        if self._inquiries and not self._question_has_keys():
            self._inquiries[0].on_key_elsewhere(now)
        if self._input.detector.held_enter:
            asyncio.get_running_loop().call_later(HOLD_ENTER_SECONDS, self._release_enter)

    def _release_enter(self) -> None:
        keys = self._input.detector.release()
        if keys and self._app.is_running:
            self._app.key_processor.feed_multiple(keys)
            self._app.key_processor.process_keys()

    def _key_bindings(self) -> KeyBindings:
        keys = KeyBindings()
        question = Condition(self._question_has_keys)
        editing = ~question & ~is_searching
        bind = keys.add

        bind("enter", filter=editing)(lambda event: self._on_enter())
        bind("c-j", filter=editing)(lambda event: self._box.buffer.insert_text("\n"))
        bind("escape", "enter", filter=editing)(lambda event: self._box.buffer.insert_text("\n"))
        bind("c-v", filter=editing & ~vi_navigation_mode)(lambda event: self._chat.paste_image(self._box.paste))
        bind(Keys.BracketedPaste, filter=editing)(lambda event: self._box.paste(event.data))
        bind("backspace", filter=editing)(lambda event: self._box.delete_backwards(event.arg))
        takes_back = Condition(lambda: self._box.is_empty and bool(self._chat.queue))
        bind("up", filter=editing & takes_back)(lambda event: self._box.set_text(self._chat.take_back() or ""))
        bind("c-s", filter=editing)(lambda event: self._on_steer())
        bind("tab", filter=editing)(self._on_tab)
        bind("s-tab", filter=editing)(self._on_back_tab)
        bind("escape", filter=editing & ~vi_insert_mode)(lambda event: self._on_escape())
        bind("c-c")(lambda event: self._on_ctrl_c())
        bind(Keys.SIGINT)(lambda event: self._on_ctrl_c())
        bind("c-d", filter=editing & Condition(lambda: self._box.is_empty))(lambda event: self._end(0))
        bind("c-z")(lambda event: event.app.suspend_to_background())
        bind("c-g", filter=editing)(lambda event: event.current_buffer.open_in_editor())
        bind("c-o")(lambda event: self._on_expand())

        self._bind_question_keys(keys, question)
        return keys

    def _bind_question_keys(self, keys: KeyBindings, question: Condition) -> None:
        bind = keys.add
        for key, distance in (("up", -1), ("down", 1), ("c-p", -1), ("c-n", 1)):
            bind(key, filter=question)(lambda event, d=distance: self._inquiries[0].move(d))
        for key, distance in (("left", -1), ("right", 1), ("tab", 1), ("s-tab", -1)):
            bind(key, filter=question)(lambda event, d=distance: self._inquiries[0].change_scope(d))
        for key, distance in (("pageup", -5), ("pagedown", 5), ("s-up", -1), ("s-down", 1)):
            bind(key, filter=question)(lambda event, d=distance: self._inquiries[0].scroll_by(d))
        for number in range(9):
            bind(str(number + 1), filter=question)(lambda event, n=number: self._choose(n))
        bind("enter", filter=question)(lambda event: self._choose())
        bind("space", filter=question)(lambda event: self._inquiries[0].toggle())
        bind("escape", filter=question)(lambda event: self._inquiries[0].leave())
        # Text is no answer: it becomes a draft, and the question waits for Tab.
        bind(Keys.Any, filter=question)(lambda event: self._on_text(event.data))
        bind(Keys.BracketedPaste, filter=question)(lambda event: self._box.paste(event.data))

    def _on_text(self, text: str) -> None:
        if text.isprintable():
            self._box.buffer.insert_text(text)

    def _on_enter(self) -> None:
        buffer = self._box.buffer
        if self._inquiries and self._inquiries[0].entering_words:
            words = self._box.expand(buffer.text)
            self._inquiries[0].finish(words)
            return
        if buffer.complete_state is not None and buffer.complete_state.current_completion is not None:
            buffer.apply_completion(buffer.complete_state.current_completion)
            return
        if buffer.document.text_before_cursor.endswith("\\"):
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
            return
        if not buffer.text.strip():
            self._chat.send_queue()
            return
        self._chat.submit(self._box.take())
        self._app.vi_state.input_mode = InputMode.INSERT

    def _on_steer(self) -> None:
        if self._box.buffer.text.strip():
            self._chat.steer(self._box.take())
        elif self._chat.queue:
            self._chat.steer(self._chat.take_back() or "")

    def _on_tab(self, event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if self._inquiries:
            self._inquiries[0].take_focus(time.monotonic())
        elif buffer.complete_state:
            buffer.complete_next()
        else:
            buffer.start_completion(insert_common_part=True)

    def _on_back_tab(self, event: KeyPressEvent) -> None:
        if event.current_buffer.complete_state:
            event.current_buffer.complete_previous()
        else:
            self._chat.cycle_mode()

    def _on_escape(self) -> None:
        """Go back one step: from words to the question, from a menu to the draft; else stop the run."""
        buffer = self._box.buffer
        if self._inquiries and self._inquiries[0].entering_words:
            self._inquiries[0].entering_words = False
            self._restore_draft()
        elif buffer.complete_state is not None:
            buffer.cancel_completion()
        elif not self._chat.stop():
            now = time.monotonic()
            if self._box.is_empty and now - self._escape_at < 1.0:
                self._chat.submit("/rewind")
            self._escape_at = now

    def _on_ctrl_c(self) -> None:
        """Stop the run; else clear the draft; on an empty box, a second one within two seconds leaves."""
        now = time.monotonic()
        if self._app.layout.is_searching:
            stop_search()
            return
        if now < self._leave_until:
            self._end(0)
            return
        if self._inquiries:
            self._inquiries[0].leave()
        elif not self._chat.stop() and not self._box.is_empty:
            self._box.buffer.append_to_history()
            self._box.buffer.reset()
            return
        self._leave_until = now + LEAVE_SECONDS
        asyncio.get_running_loop().call_later(LEAVE_SECONDS + 0.05, self.refresh)

    def _on_expand(self) -> None:
        call = self._view.last_call
        if call is None or call.result is None:
            self._chat.say("there is no result yet", "dim")
            return
        title = f"{self._view.format.label(call.name)} {self._view.format.subject(call)}"
        self._app.create_background_task(self.page(f"{title}\n\n{call.result.text}\n"))

    def _on_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Say that something went wrong in a task that is not awaited. A frame that cannot be drawn ends the session."""
        error = context.get("exception")
        log.error("%s", context.get("message"), exc_info=error)
        if self._failed_to_draw and self._app.is_running and not self._app.is_done:
            self._app.exit(exception=error or RuntimeError(str(context.get("message"))))
        elif error is not None:
            self._chat.say(f"internal error: {type(error).__name__}: {error}", "red")

    def _end(self, code: int) -> None:
        self._exit_code = code
        if self._app.is_running and not self._app.is_done:
            self._app.exit(result=code)


def fit_narrow(rows: list[Row], lines: int) -> list[Row]:
    """Drop rows at the top that would not fit the screen if it became narrow: nothing could erase them there."""
    used = 0
    for position in range(len(rows) - 1, -1, -1):
        used += max(-(-row_width(rows[position]) // NARROW_COLUMNS), 1)
        if used > lines:
            hidden = position + 2
            return [(TextSpan(f"… {hidden} lines above", "dim"),), *rows[hidden:]] if hidden < len(rows) else rows[-1:]
    return rows


# Behind the commands, and behind the tools that nearly every session uses.
PRELOADED = (
    "wieldy.faces.terminal.commands",
    "wieldy.faces.terminal.view_model",
    "wieldy.files.apply_edit",
    "wieldy.files.reading.read_file",
    "wieldy.files.search.grep",
    "wieldy.shell.running.session",
)


def preload() -> None:
    """Load Markdown, commands, tools, schemas and the analysis of shell commands. Meant for a thread."""
    from wieldy.core.schema.check import SchemaValidator
    from wieldy.faces.terminal.markdown import render_markdown
    from wieldy.shell.effects.analysis import classify
    from wieldy.tools import builtin_loaders

    render_markdown("text", 80)
    classify("true")
    SchemaValidator({}).problems({})
    for load in builtin_loaders().values():
        load()
    for name in PRELOADED:
        import_module(name)
