"""Finished blocks of the session and their rows. Pure: the same block and width give the same rows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any, TypeAlias

from msgspec import Struct

from wieldy.core.logs import log
from wieldy.core.text import format_duration
from wieldy.faces.terminal.calls import CallState, CallSummary
from wieldy.faces.terminal.markdown import MarkdownPiece, markdown_rows
from wieldy.faces.terminal.text import Row, TextSpan, clip_row, display_width, make_printable, to_line, wrap_spans

MAX_DIFF_ROWS = 40
MAX_WORD_DIFF_CHARS = 500
MAX_PAIRS = 200
MIN_SIMILARITY = 0.6  # lines that share less are shown as removed and added as a whole
_TOKENS = re.compile("[\\w\u200c\u200d]+|\\s+|[^\\w\\s]+")


def diff_rows(hunks: Sequence[Mapping[str, Any]], width: int, *, limit: int | None = MAX_DIFF_ROWS) -> list[Row]:
    """Lay out the hunks of a structured patch; above `limit` rows the rest is counted."""
    digits = len(str(max((_last_line(hunk) for hunk in hunks), default=1)))
    rows: list[Row] = []
    hidden = 0
    for number, hunk in enumerate(hunks):
        if number and (limit is None or len(rows) < limit):
            rows.append((TextSpan(" " * digits + " ⋮", "dim"),))
        lines = hunk["lines"]
        room = None if limit is None else max(limit - len(rows), 0)
        rows += [clip_row(row, width) for row in _hunk_rows(hunk, lines[:room], digits)]
        hidden += 0 if room is None else max(len(lines) - room, 0)
    if hidden:
        rows.append((TextSpan(f"{' ' * digits} … {hidden} more lines", "dim"),))
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
    lines = [*output.first, *([f"… {output.hidden:,} more lines"] if output.hidden else []), *output.last]
    return [clip_row((TextSpan(INDENT), TextSpan(line, "dim")), width) if line else () for line in lines]


def task_row(status: str, text: str, width: int) -> Row:
    style = {"completed": "dim", "in_progress": "bold"}.get(status, "")
    return clip_row((TASK_MARKS.get(status, TextSpan("  ")), TextSpan(text, style)), width)
