"""Undo plans and history as lines for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime

from wieldy.edit.space import size_words
from wieldy.journal.chronicle import Event
from wieldy.journal.undo import Restored, UndoPlan
from wieldy.search.shown import on_one_line, readable


def plan_lines(plan: UndoPlan) -> list[str]:
    """What an undo or redo would do, or has done once it has an entry."""
    verb = {"undo": ("take back", "took back"), "redo": ("bring back", "brought back")}[plan.action][
        plan.entry is not None
    ]
    calls = ", ".join(dict.fromkeys(f"{entry.tool} ({entry.call_id})" for entry in plan.changes))
    return [f"{verb} {calls}:", *(f"  {_file_line(file)}" for file in plan.files)]


def history_lines(events: Iterable[Event]) -> list[str]:
    """One line for each change: when, who, which call, which files, and whether it still stands."""
    return [_event_line(event) for event in events]


def _file_line(file: Restored) -> str:
    if file.problem is not None:
        return f"! {on_one_line(readable(file.problem))}"
    path = _named(file.path)
    merged = ", merged with later changes" if file.merged else ""
    if file.now == file.then:
        return f"= {path} (already so{merged})"
    if file.now is None:
        return f"+ {path} (comes back, {size_words(len(file.then or b''))})"
    if file.then is None:
        return f"- {path} (goes, {size_words(len(file.now))})"
    return f"~ {path} ({_difference(file.now, file.then)}{merged})"


def _named(path: str) -> str:
    """A path as it can be shown: what a name holds must not command the terminal."""
    return on_one_line(readable(path))


def _difference(now: bytes, then: bytes) -> str:
    if b"\0" in now or b"\0" in then:
        return f"{size_words(len(now))} → {size_words(len(then))}"
    old, new = Counter(now.splitlines()), Counter(then.splitlines())
    return f"+{(new - old).total()} −{(old - new).total()} lines"


def _event_line(event: Event) -> str:
    entry = event.entry
    when = datetime.fromtimestamp(entry.at).strftime("%Y-%m-%d %H:%M:%S")
    files = entry.paths
    shown = ", ".join(_named(path.path) for path in files[:3]) + (
        f" and {len(files) - 3} more" if len(files) > 3 else ""
    )
    state = "" if event.stands else "  [taken back]"
    return f"{when}  {entry.tool:<10} {entry.call_id}  {shown}{state}"
