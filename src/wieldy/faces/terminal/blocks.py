"""Finished blocks of the session and their rows. Pure: the same block and width give the same rows."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeAlias

from msgspec import Struct

from wieldy.core.logs import log
from wieldy.faces.terminal.calls import CallState, CallSummary
from wieldy.faces.terminal.diff_view import diff_rows
from wieldy.faces.terminal.markdown import MarkdownPiece, markdown_rows
from wieldy.faces.terminal.text import Row, TextSpan, clip_row, display_width, make_printable, to_line, wrap_spans

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
            return [(TextSpan(f"thought for {format_seconds(block.seconds)}", "dim italic"),)]
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
        laid_out.append((TextSpan(f"{INDENT}… {hidden:,} more lines", "dim"),))
    return laid_out


def call_row(name: str, subject: str, state: CallState, note: str, width: int) -> Row:
    """The line of a call: its state, the tool, what it is about, and a note at the end."""
    end = f"  {note}" if note else ""
    start: Row = (STATE_MARKS[state], TextSpan(name, "bold"), *((TextSpan(" "), TextSpan(subject)) if subject else ()))
    room = max(width - display_width(end), 20)
    return (*clip_row(start, room), TextSpan(clip_text_end(end, width), "dim")) if end else clip_row(start, room)


def clip_text_end(text: str, width: int) -> str:
    return text if display_width(text) <= width // 2 else ""


def _call_rows(summary: CallSummary, width: int) -> list[Row]:
    seconds = format_seconds(summary.seconds) if summary.seconds >= 1 else ""
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
    lines = [*output.first, *([f"… {output.hidden:,} more lines"] if output.hidden else []), *output.last]
    return [clip_row((TextSpan(INDENT), TextSpan(line, "dim")), width) if line else () for line in lines]


def task_row(status: str, text: str, width: int) -> Row:
    style = {"completed": "dim", "in_progress": "bold"}.get(status, "")
    return clip_row((TASK_MARKS.get(status, TextSpan("  ")), TextSpan(text, style)), width)


def format_seconds(seconds: float) -> str:
    if seconds < 9.95:
        return f"{seconds:.1f} s" if seconds < 1 else f"{seconds:.0f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
