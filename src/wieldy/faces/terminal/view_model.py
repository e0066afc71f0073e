"""What a session looks like: events go in, finished blocks and the live state come out, and the rows of both.

Pure: no input, no output, no clock but that of the events. A finished block never changes; the live state is what is still
running and is drawn again with every frame."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any, TypeAlias

from msgspec import Struct

from wieldy.agent.conversation import CallError
from wieldy.core.events import (
    AgentEvent,
    CallEvent,
    Compacted,
    Event,
    EventsDropped,
    ModelAnswered,
    ModelBlockDelta,
    ModelRequested,
    ModelTextDelta,
    Notice,
    PermissionAsked,
    PermissionDecided,
    Retried,
    RunEnded,
    Steered,
    ToolCancelled,
    ToolEnded,
    ToolFailed,
    ToolInputDelta,
    ToolProgress,
    ToolRequested,
    ToolStarted,
)
from wieldy.core.logs import log
from wieldy.core.outcome import Done, Failed, Outcome, Refused, Text, ToolResult
from wieldy.core.text import format_duration, plural, without_reminders
from wieldy.faces.terminal.calls import MAX_RAW_CHARS, Call, CallFormatter, CallState, CallSummary, FindTool, Lane
from wieldy.faces.terminal.markdown import MarkdownPiece, MarkdownStream, markdown_rows
from wieldy.faces.terminal.text import Row, TextSpan, clip_row, display_width, make_printable, to_line, wrap_spans

MAX_DIFF_ROWS = 40
MAX_WORD_DIFF_CHARS = 500
MAX_PAIRS = 200
MIN_SIMILARITY = 0.6  # lines that share less are shown as removed and added as a whole
_TOKENS = re.compile("[\\w\u200c\u200d]+|\\s+|[^\\w\\s]+")


def diff_rows(hunks: Sequence[Mapping[str, Any]], width: int) -> list[Row]:
    """Lay out the hunks of a structured patch; above a number of rows the rest is counted."""
    digits = len(str(max((_last_line(hunk) for hunk in hunks), default=1)))
    rows: list[Row] = []
    hidden = 0
    for number, hunk in enumerate(hunks):
        if number and len(rows) < MAX_DIFF_ROWS:
            rows.append((TextSpan(" " * digits + " ⋮", "dim"),))
        lines, room = hunk["lines"], max(MAX_DIFF_ROWS - len(rows), 0)
        rows += [clip_row(row, width) for row in _hunk_rows(hunk, lines[:room], digits)]
        hidden += max(len(lines) - room, 0)
    if hidden:
        rows.append((TextSpan(f"{' ' * digits} … {plural(hidden, 'more line')}", "dim"),))
    return rows


def change_rows(old: str, new: str) -> Iterator[Row]:
    """Lay out a replacement of one text by another, without line numbers."""
    before, after = old.split("\n"), new.split("\n")
    if not before[-1] and not after[-1]:
        before.pop()
        after.pop()
    for tag, old_start, old_end, new_start, new_end in SequenceMatcher(None, before, after).get_opcodes():
        if tag == "equal":
            yield from ((TextSpan(f"  {make_printable(line)}", "dim"),) for line in before[old_start:old_end])
            continue
        marked = mark_changed_words(before[old_start:old_end], after[new_start:new_end])
        yield from ((TextSpan("- ", "red"), *spans) for spans in marked[0])
        yield from ((TextSpan("+ ", "green"), *spans) for spans in marked[1])


def _last_line(hunk: Mapping[str, Any]) -> int:
    return int(max(hunk["oldStart"] + hunk["oldLines"], hunk["newStart"] + hunk["newLines"]))


def _hunk_rows(hunk: Mapping[str, Any], lines: Sequence[str], digits: int) -> Iterator[Row]:
    old, new = hunk["oldStart"], hunk["newStart"]
    for removed, added, kept in _changes(lines):
        if kept is not None:
            yield (TextSpan(f"{new:>{digits}}   {make_printable(kept)}", "dim"),)
            old, new = old + 1, new + 1
            continue
        marked = mark_changed_words(removed, added)
        for number, spans in enumerate(marked[0]):
            yield (TextSpan(f"{old + number:>{digits}} ", "dim"), TextSpan("- ", "red"), *spans)
        for number, spans in enumerate(marked[1]):
            yield (TextSpan(f"{new + number:>{digits}} ", "dim"), TextSpan("+ ", "green"), *spans)
        old, new = old + len(removed), new + len(added)


def _changes(lines: Sequence[str]) -> Iterator[tuple[list[str], list[str], str | None]]:
    """Group a hunk into runs of removed lines with the added lines that follow them, and single context lines."""
    removed: list[str] = []
    added: list[str] = []
    for line in lines:
        if line.startswith("-") and not added:
            removed.append(line[1:])
        elif line.startswith("+"):
            added.append(line[1:])
        elif not line.startswith("\\"):  # "\ No newline at end of file"
            if removed or added:
                yield removed, added, None
                removed, added = [], []
            if line.startswith("-"):
                removed.append(line[1:])
            else:
                yield [], [], line[1:]
    if removed or added:
        yield removed, added, None


def mark_changed_words(
    removed: Sequence[str], added: Sequence[str]
) -> tuple[list[list[TextSpan]], list[list[TextSpan]]]:
    """Style removed and added lines; where they pair up, mark the words that differ."""
    before = [[TextSpan(make_printable(line), "red")] for line in removed]
    after = [[TextSpan(make_printable(line), "green")] for line in added]
    start = 0
    if len(removed) * len(added) > MAX_PAIRS:
        return before, after
    for number, new in enumerate(added):
        for candidate in range(start, len(removed)):
            old = removed[candidate]
            if max(len(old), len(new)) > MAX_WORD_DIFF_CHARS:
                continue
            pair = _mark_pair(make_printable(old), make_printable(new))
            if pair is not None:
                before[candidate], after[number] = pair
                start = candidate + 1
                break
    return before, after


def _mark_pair(old: str, new: str) -> tuple[list[TextSpan], list[TextSpan]] | None:
    old_words, new_words = _TOKENS.findall(old), _TOKENS.findall(new)
    matcher = SequenceMatcher(None, old_words, new_words, autojunk=False)
    if matcher.ratio() < MIN_SIMILARITY:
        return None
    before: list[TextSpan] = []
    after: list[TextSpan] = []
    for tag, old_start, old_end, new_start, new_end in matcher.get_opcodes():
        mark = "" if tag == "equal" else " reverse"
        if old_end > old_start:
            before.append(TextSpan("".join(old_words[old_start:old_end]), f"red{mark}"))
        if new_end > new_start:
            after.append(TextSpan("".join(new_words[new_start:new_end]), f"green{mark}"))
    return before, after


MAX_PROMPT_LINES = 20
PROMPT_MARK = "› "
INDENT = "  "


class PromptBlock(Struct, frozen=True):
    """What the person said."""

    text: str


class AnswerBlock(Struct, frozen=True):
    """A piece of the model's answer."""

    piece: MarkdownPiece


class ThoughtBlock(Struct, frozen=True):
    """Thinking of the model, folded; `text` is its source."""

    seconds: float
    text: str


class CallBlock(Struct, frozen=True):
    """A call with its result."""

    summary: CallSummary


class TaskListBlock(Struct, frozen=True):
    """The model's task list: status and text of each task."""

    tasks: tuple[tuple[str, str], ...]


class LineBlock(Struct, frozen=True):
    """A text from wieldy itself, in one style; wrapped, not cut."""

    text: str
    style: str = ""
    gap: bool = False


class SpansBlock(Struct, frozen=True):
    """Rows that are styled already, such as those of the start screen."""

    rows: tuple[Row, ...]
    gap: bool = False


Block: TypeAlias = PromptBlock | AnswerBlock | ThoughtBlock | CallBlock | TaskListBlock | LineBlock | SpansBlock

STATE_MARKS: Mapping[CallState, TextSpan] = {
    "writing": TextSpan("○ ", "dim"),
    "waiting": TextSpan("○ ", "dim"),
    "asking": TextSpan("? ", "yellow bold"),
    "running": TextSpan("● ", "cyan"),
    "done": TextSpan("✓ ", "green"),
    "failed": TextSpan("✗ ", "red"),
    "refused": TextSpan("⊘ ", "yellow"),
    "interrupted": TextSpan("■ ", "yellow"),
}
TASK_MARKS: Mapping[str, TextSpan] = {
    "pending": TextSpan("☐ ", "dim"),
    "in_progress": TextSpan("▸ ", "cyan"),
    "completed": TextSpan("☑ ", "green"),
}


def rows(block: Block, width: int) -> list[Row]:
    """Lay out a block for a terminal with `width` columns; one column stays free, only code may be wider."""
    room = max(width - 1, 10)
    match block:
        case AnswerBlock():
            return markdown_rows(block.piece, room)
        case PromptBlock():
            return _prompt_rows(block.text, room)
        case CallBlock():
            return _call_rows(block.summary, room)
        case ThoughtBlock():
            return [(TextSpan(f"thought for {format_duration(block.seconds)}", "dim italic"),)]
        case TaskListBlock():
            return [task_row(status, text, room) for status, text in block.tasks]
        case LineBlock():
            gap: list[Row] = [()] if block.gap else []
            lines = make_printable(block.text).split("\n")
            return gap + [row for line in lines for row in _wrapped_line(line, block.style, room)]
        case SpansBlock():
            return [*([()] if block.gap else []), *(clip_row(row, room) for row in block.rows)]


def separated_rows(block: Block, previous: Block | None, width: int) -> list[Row]:
    """Lay out a block below the one before it, with a blank row between them where they belong to different things.

    One that cannot be laid out becomes a line that says so: what comes after it is shown all the same.
    """
    try:
        laid_out = rows(block, width)
    except Exception as error:
        log.exception("a block could not be laid out")
        laid_out = [(TextSpan(to_line(f"this could not be shown: {type(error).__name__}: {error}", 300), "red"),)]
    return [(), *laid_out] if starts_group(block, previous) else laid_out


def starts_group(block: Block, previous: Block | None) -> bool:
    """Whether a blank row separates a block from the one before it."""
    if previous is None:
        return False
    if isinstance(block, AnswerBlock) and isinstance(previous, AnswerBlock):
        return block.piece.kind == "block" and not block.piece.gap  # the first piece of another answer
    if isinstance(block, CallBlock) and block.summary.by_person:
        return True
    return isinstance(block, PromptBlock | AnswerBlock | ThoughtBlock) or isinstance(
        previous, PromptBlock | AnswerBlock
    )


_TWO_COLUMNS = re.compile(r" *\S+(?: \S+)*? {2,}(?=\S)")


def _wrapped_line(line: str, style: str, width: int) -> list[Row]:
    """Wrap a line below its own indent; a line of two columns, such as a name and what it is for, below the second."""
    indent = line[: len(line) - len(line.lstrip(" "))]
    prefix = (TextSpan(indent),) if indent else ()
    columns = _TWO_COLUMNS.match(line)
    second = display_width(columns[0]) if columns is not None else 0
    rest = (TextSpan(" " * second),) if 0 < second <= width // 2 else prefix
    return wrap_spans([TextSpan(line.lstrip(" "), style)], width, first=prefix, rest=rest)


def _prompt_rows(text: str, width: int) -> list[Row]:
    lines = make_printable(text).strip("\n").split("\n")
    hidden = len(lines) - MAX_PROMPT_LINES
    if hidden > 0:
        lines = lines[:MAX_PROMPT_LINES]
    mark, indent = (TextSpan(PROMPT_MARK, "cyan bold"),), (TextSpan(INDENT),)
    laid_out: list[Row] = []
    for number, line in enumerate(lines):
        laid_out += wrap_spans([TextSpan(line, "bold")], width, first=indent if number else mark, rest=indent)
    if hidden > 0:
        laid_out.append((TextSpan(f"{INDENT}… {plural(hidden, 'more line')}", "dim"),))
    return laid_out


def call_row(name: str, subject: str, state: CallState, note: str, width: int) -> Row:
    """The line of a call: its state, the tool, what it is about, and a note at the end."""
    end = f"  {note}" if note else ""
    start: Row = (STATE_MARKS[state], TextSpan(name, "bold"), *((TextSpan(" "), TextSpan(subject)) if subject else ()))
    room = max(width - display_width(end), 20)
    shown_end = end if display_width(end) <= width // 2 else ""
    return (*clip_row(start, room), TextSpan(shown_end, "dim")) if end else clip_row(start, room)


def _call_rows(summary: CallSummary, width: int) -> list[Row]:
    seconds = format_duration(summary.seconds) if summary.seconds >= 1 else ""
    note = " · ".join(part for part in (summary.note, seconds) if part)
    laid_out = [call_row(summary.name, summary.subject, summary.state, note, width)]
    laid_out += [clip_row((TextSpan(INDENT), TextSpan(f"↳ {lane}", "dim")), width) for lane in summary.lanes]
    laid_out += _output_rows(summary, width)
    laid_out += [(TextSpan(INDENT), *row) for row in diff_rows(summary.hunks, width - 2)] if summary.hunks else []
    return laid_out


def _output_rows(summary: CallSummary, width: int) -> list[Row]:
    """The output of a call. Words to the person are wrapped, output is cut."""
    output = summary.output
    if summary.state == "refused" or (summary.state == "failed" and not summary.note):
        style = "" if summary.state == "refused" else "red"
        return [
            row
            for line in output.first
            for row in wrap_spans([TextSpan(line, style)], width, first=(TextSpan(INDENT),))
        ]
    lines = [*output.first, *([f"… {plural(output.hidden, 'more line')}"] if output.hidden else []), *output.last]
    return [clip_row((TextSpan(INDENT), TextSpan(line, "dim")), width) if line else () for line in lines]


def task_row(status: str, text: str, width: int) -> Row:
    style = {"completed": "dim", "in_progress": "bold"}.get(status, "")
    return clip_row((TASK_MARKS.get(status, TextSpan("  ")), TextSpan(text, style)), width)


LONG_RUN_SECONDS = 10
MAX_PROGRESS_ROWS = 3
MAX_TASK_ROWS = 6
MAX_LIVE_CALLS = 8


class Activity(Struct, frozen=True):
    """What the model is doing at the moment, and since when."""

    text: str
    since: float


class ViewModel:
    """The screen of one session. `blocks` only grows."""

    def __init__(self, find_tool: FindTool, root: str | os.PathLike[str]) -> None:
        self.format = CallFormatter(find_tool, root)
        self.blocks: list[Block] = []
        self.calls: dict[str, Call] = {}
        self.tasks: tuple[tuple[str, str], ...] = ()
        self.running = False
        self.activity: Activity | None = None
        self.last_call: Call | None = None
        self.last_answer = ""
        self._answer: list[str] = []
        self._markdown = MarkdownStream()
        self._thinking: list[str] = []
        self._thinking_since = 0.0
        self._tasks_changed = False

    def show(self, *blocks: Block) -> None:
        """Add blocks that come from no event, such as the output of a command."""
        self._end_text(0.0)
        self.blocks += blocks

    def start_run(self, prompt: str, now: float) -> None:
        """The person's prompt goes to the model."""
        self.show(PromptBlock(prompt))
        self.running = True
        self.activity = Activity("waiting for the model", now)

    def apply(self, event: Event) -> None:
        match event:
            case ModelTextDelta():
                self._add_text(event)
            case ToolInputDelta():
                self._end_text(event.at)
                call = self._call(event)
                if len(call.raw) < MAX_RAW_CHARS:
                    call.raw += event.piece
                self.activity = None
            case AgentEvent():
                self._apply_subagent(event)
            case CallEvent():
                self._apply_call(event)
            case ModelRequested():
                self.activity = Activity("waiting for the model", event.at)
            case ModelBlockDelta():
                if event.start is None and event.delta is None:
                    self._end_thinking(event.at)
            case ModelAnswered():
                self._end_text(event.at)
                self._complete_inputs(event)
                self.activity = None
            case _:
                self._apply_other(event)

    def _apply_other(self, event: Event) -> None:
        match event:
            case Notice():
                self._apply_notice(event)
            case Steered():
                self.show(PromptBlock(event.text))
            case Retried():
                self._end_text(event.at)
                self._drop_unstarted_calls()
                wait = f"retrying in {format_duration(event.seconds)} ({event.attempt} of {event.most})"
                self.blocks.append(LineBlock(f"{to_line(event.why, 300)}; {wait}"))
                self.activity = Activity("waiting to retry", event.at)
            case Compacted():
                text = f"the conversation was compacted: {event.tokens_before:,} → {event.tokens_after:,} tokens"
                self.blocks.append(LineBlock(text, "dim"))
            case EventsDropped():
                self.blocks.append(LineBlock(f"{event.count:,} events were too fast to be shown", "dim"))
            case RunEnded():
                self._end_run(event)

    # Text of the model

    def _add_text(self, event: ModelTextDelta) -> None:
        if event.thinking:
            if not self._thinking:
                self._end_answer()
                self._thinking_since = event.at
                self.activity = Activity("thinking", event.at)
            self._thinking.append(event.text)
            return
        self._end_thinking(event.at)
        self.activity = None
        self._answer.append(event.text)
        self.blocks += [AnswerBlock(piece) for piece in self._markdown.feed(event.text)]

    def _end_text(self, now: float) -> None:
        self._end_thinking(now)
        self._end_answer()

    def _end_answer(self) -> None:
        self.blocks += [AnswerBlock(piece) for piece in self._markdown.finish()]
        if self._answer:
            self.last_answer = "".join(self._answer)
            self._answer.clear()

    def _end_thinking(self, now: float) -> None:
        if self._thinking:
            text = "".join(self._thinking)
            self._thinking.clear()
            self.activity = None
            if text.strip():
                self.blocks.append(ThoughtBlock(max(now - self._thinking_since, 0.0), text))

    # Calls

    def _call(self, event: CallEvent | ToolInputDelta) -> Call:
        call = self.calls.get(event.call_id)
        if call is None:
            call = self.calls[event.call_id] = Call(event.call_id, event.name, started=event.at)
            call.by_person = not self.running
        return call

    def _apply_call(self, event: CallEvent) -> None:
        if isinstance(event, PermissionDecided) and event.call_id not in self.calls:
            return
        call = self._call(event)
        match event:
            case ToolRequested():
                call.state = "waiting"
            case PermissionAsked():
                call.state = "asking"
            case PermissionDecided():
                call.answer = event.answer
                call.state = "waiting"
            case ToolStarted():
                call.state, call.input, call.started = "running", event.input, event.at
            case ToolProgress():
                call.progress = event.text
            case ToolEnded():
                call.input = call.input if event.input is None else event.input
                self._end_call(call, event)

    def _end_call(self, call: Call, event: ToolEnded) -> None:
        self._end_text(event.at)
        ran = call.state == "running"
        call.result, call.seconds = event.result, max(event.at - call.started, 0.0) if ran else 0.0
        call.state = _end_state(event)
        self.calls.pop(call.id, None)
        self.last_call = call
        if call.name == "TodoWrite" and call.state == "done":
            return  # the notice of the list says it
        self.blocks.append(CallBlock(self.format.summarize(call)))
        if call.answer is not None and call.answer.allowed and call.answer.remember:
            self.blocks.append(LineBlock(f"{INDENT}from now on allowed: {', '.join(call.answer.remember)}", "dim"))

    def _complete_inputs(self, event: ModelAnswered) -> None:
        """Give calls that have not started their whole input."""
        for block in event.content:
            call = self.calls.get(str(block.get("id")))
            if call is not None and call.input is None and isinstance(block.get("input"), Mapping):
                call.input = block["input"]

    def _drop_unstarted_calls(self) -> None:
        for call in [call for call in self.calls.values() if call.state == "writing"]:
            del self.calls[call.id]

    def _apply_subagent(self, event: AgentEvent) -> None:
        """Show the latest call of a subagent in its lane, below the call that started it."""
        call = self.calls.get(event.call_id)
        inner = event.event
        if call is None:
            if isinstance(inner, Notice) and not inner.data:
                self.blocks.append(LineBlock(f"{INDENT}↳ {event.agent_type}: {to_line(inner.text)}", "dim"))
            return
        lane = call.lanes.setdefault(event.agent_id, Lane(event.agent_type))
        match inner:
            case ToolStarted():
                lane.calls += 1
                lane.activity = f"{self.format.label(inner.name)} {self.format.describe(inner.name, inner.input)}"
            case ToolFailed() if isinstance(inner.result.outcome, Refused):
                lane.refused += 1
                if inner.result.outcome.stage not in ("permission", "hook"):
                    return
                why = to_line(self.format.shorten_paths(inner.result.person_text))
                self.blocks.append(LineBlock(f"{INDENT}↳ {event.agent_type}: ⊘ {inner.name}: {why}"))
            case ModelTextDelta() if not inner.thinking:
                lane.activity = "writing"
            case ModelRequested():
                lane.activity = lane.activity or "waiting for the model"
            case RunEnded():
                lane.ended = True

    # Notices, tasks, the end of a run

    def _apply_notice(self, event: Notice) -> None:
        data = event.data
        todos = data.get("todos") if isinstance(data, Mapping) else None
        if isinstance(todos, list | tuple):
            self.tasks = tuple(_task(todo) for todo in todos if isinstance(todo, Mapping))
            self._tasks_changed = True
            self._end_text(event.at)
            self.blocks.append(LineBlock(f"☑ {to_line(event.text)}", "dim"))
            return
        self._end_text(event.at)
        self.blocks.append(LineBlock(to_line(self.format.shorten_paths(event.text)), "dim"))

    def _end_run(self, event: RunEnded) -> None:
        self._end_text(event.at)
        for call in list(self.calls.values()):
            if call.state != "writing":
                call.state = "interrupted"
                self.blocks.append(CallBlock(self.format.summarize(call)))
        self.calls.clear()
        self.running = False
        self.activity = None
        if self._tasks_changed and any(status != "completed" for status, _ in self.tasks):
            self.blocks.append(TaskListBlock(self.tasks))
        self._tasks_changed = False
        if event.is_error:
            self.blocks.append(LineBlock(f"✗ stopped: {to_line(event.detail or event.why)}", "red"))
        elif event.why == "interrupted":
            self.blocks.append(LineBlock("■ interrupted", "yellow"))
        elif event.seconds >= LONG_RUN_SECONDS:
            self.blocks.append(LineBlock(f"worked for {format_duration(event.seconds)}", "dim"))

    # The live state

    @property
    def needs_gap(self) -> bool:
        """Whether a blank row separates the live rows from the last finished block."""
        last = self.blocks[-1] if self.blocks else None
        if self._markdown.tail is not None:
            return last is not None and not isinstance(last, AnswerBlock)
        return isinstance(last, PromptBlock | AnswerBlock)

    def live_rows(self, width: int, now: float, most: int) -> list[Row]:
        """Lay out what is going on in at most `most` rows."""
        room = max(width - 1, 10)
        live: list[Row] = []
        tail = self._markdown.tail
        if tail is not None:
            live += _tail_rows(tail, width)
        progress = MAX_PROGRESS_ROWS if len(self.calls) < 3 else 1 if len(self.calls) < 5 else 0
        # Those that ask are on the screen as a question.
        calls = [call for call in self.calls.values() if call.state != "asking" and call.name != "AskUser"]
        for call in calls[:MAX_LIVE_CALLS]:
            live += self._live_call_rows(call, room, now, progress)
        if len(calls) > MAX_LIVE_CALLS:
            live.append((TextSpan(f"… {len(calls) - MAX_LIVE_CALLS} more calls", "dim"),))
        if self.running and self.activity is not None and not calls:
            seconds = now - self.activity.since
            note = f" {format_duration(int(seconds))}" if seconds >= 1 else ""
            live.append((TextSpan(f"{self.activity.text}…{note}", "dim italic"),))
        if self.running and self._tasks_changed:
            live += self._live_task_rows(room)
        if len(live) > most:
            hidden = len(live) - most + 1
            live = [(TextSpan(f"… {hidden} lines above", "dim"),), *live[hidden:]]
        return live

    def _live_call_rows(self, call: Call, width: int, now: float, progress: int) -> list[Row]:
        seconds = now - call.started
        elapsed = format_duration(int(seconds)) if call.state == "running" and seconds >= 1 else ""
        live = [call_row(self.format.label(call.name), self.format.subject(call), call.state, elapsed, width)]
        if call.lanes:
            for lane in call.lanes.values():
                text = f"↳ {lane.agent_type} · {plural(lane.calls, 'call')} · {'done' if lane.ended else lane.activity}"
                live.append(clip_row((TextSpan(INDENT), TextSpan(to_line(text), "dim")), width))
        elif call.progress and call.state == "running" and progress:
            lines = [line for line in call.progress[-4_000:].split("\n") if line.strip()]
            if call.name == "Bash":
                lines = lines[1:] if len(lines) > 1 else []  # the first says how long and how much
            live += [clip_row((TextSpan(INDENT), TextSpan(to_line(line), "dim")), width) for line in lines[-progress:]]
        return live

    def _live_task_rows(self, width: int) -> list[Row]:
        current = next((n for n, (status, _) in enumerate(self.tasks) if status == "in_progress"), 0)
        start = max(min(current - 1, len(self.tasks) - MAX_TASK_ROWS), 0)
        shown = self.tasks[start : start + MAX_TASK_ROWS]
        return [task_row(status, text, width) for status, text in shown]


def _tail_rows(tail: MarkdownPiece, width: int) -> list[Row]:
    """The open block of an answer. A table is held back: each new row can change all its columns."""
    if tail.kind == "table":
        lines = TextSpan(f"table, {tail.source.count(chr(10))} lines…", "dim italic")
        return [*([()] if tail.gap else []), (lines,)]
    if tail.kind == "code":
        tail = MarkdownPiece(tail.source[:width], "code", gap=tail.gap)
    return [clip_row(row, width - 1) for row in rows(AnswerBlock(tail), width)]


def _task(todo: Mapping[str, object]) -> tuple[str, str]:
    status = str(todo.get("status", "pending"))
    text = todo.get("activeForm") if status == "in_progress" else ""
    return status, to_line(str(text or todo.get("content", "")), 300)


def _end_state(event: ToolEnded) -> CallState:
    result: ToolResult = event.result
    if isinstance(event, ToolCancelled):
        return "interrupted"
    if isinstance(result.outcome, Refused):
        return "refused"
    return "failed" if result.is_error or isinstance(event, ToolFailed) else "done"


MAX_MESSAGES = 200


def conversation_blocks(
    messages: Sequence[Mapping[str, Any]], formatter: CallFormatter, errors: Mapping[str, CallError]
) -> Iterator[Block]:
    """Yield the blocks of messages in the form of the Anthropic API; of a long conversation, the end."""
    if len(messages) > MAX_MESSAGES:
        yield LineBlock(f"… {len(messages) - MAX_MESSAGES:,} earlier messages", "dim")
    results = {
        block["tool_use_id"]: block
        for message in messages
        for block in _message_blocks(message)
        if block.get("type") == "tool_result"
    }
    for message in messages[-MAX_MESSAGES:]:
        for block in _message_blocks(message):
            match block.get("type"):
                case "text" if message["role"] == "user":
                    if text := without_reminders(str(block["text"])).strip():
                        yield PromptBlock(text)
                case "text":
                    yield from _answer_blocks(str(block["text"]))
                case "tool_use":
                    yield CallBlock(
                        formatter.summarize(_replayed_call(block, results.get(block["id"]), errors.get(block["id"])))
                    )
                case "image":
                    yield LineBlock("an image", "dim")


def _message_blocks(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    content = message.get("content", [])
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)


def _answer_blocks(text: str) -> Iterator[Block]:
    stream = MarkdownStream()
    for piece in (*stream.feed(text), *stream.finish()):
        yield AnswerBlock(piece)


def _replayed_call(block: Mapping[str, Any], result: Mapping[str, Any] | None, error: CallError | None) -> Call:
    call = Call(str(block["id"]), str(block["name"]), "interrupted", input=block.get("input"))
    if result is not None:
        parts = result.get("content") or []
        texts = [parts] if isinstance(parts, str) else [str(part.get("text", "")) for part in parts]
        content = (Text(without_reminders("\n".join(texts))),)
        is_error = bool(result.get("is_error"))
        person = error.person if error is not None else ""
        outcome: Outcome = Failed(content[0].text, person=person) if is_error else Done(content)
        call.state = "failed" if is_error else "done"
        if error is not None and error.refused is not None:
            call.state, outcome = "refused", Refused("permission", content[0].text, person=person)
        call.result = ToolResult(call.id, call.name, content, None, is_error, outcome)
    return call
