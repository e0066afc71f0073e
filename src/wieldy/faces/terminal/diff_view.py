"""Edits as rows: line numbers, removed and added lines, and the changed words of a line marked."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any

from wieldy.faces.terminal.text import Row, TextSpan, clip_row, make_printable

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
