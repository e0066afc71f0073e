"""Undo, redo, rewind and the diff of a session."""

from __future__ import annotations

import difflib
import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from wieldy.core.text import plural, truncate_line
from wieldy.faces.terminal.blocks import SpansBlock
from wieldy.faces.terminal.text import Row, TextSpan

if TYPE_CHECKING:
    from wieldy.agent.rewind import Checkpoint
    from wieldy.faces.terminal.chat import Chat
    from wieldy.files.journal.undo import UndoPlan

MAX_DIFF_ROWS = 400
SHOWN_PROMPT_CHARS = 70
BOTH, FILES, CONVERSATION = "files and conversation", "files only", "conversation only"
UNDO_OPTIONS = ("--turn", "--all", "--merge")


async def undo(chat: Chat, rest: str) -> None:
    """`/undo`: take changes back, and tell the model."""
    words = rest.split()
    unknown = [word for word in words if word.startswith("-") and word not in UNDO_OPTIONS]
    calls = [word for word in words if not word.startswith("-")]
    if unknown or len(calls) > 1 or (calls and {"--turn", "--all"} & set(words)):
        chat.say("/undo takes the id of a call, --turn or --all, and --merge")
        return
    plan = await chat.session.box.undo(
        calls[0] if calls else None, turn="--turn" in words, everything="--all" in words, merge="--merge" in words
    )
    _report(chat, plan)


async def redo(chat: Chat, rest: str) -> None:
    """`/redo`: reverse the last rewind or undo."""
    from wieldy.files.journal.undo import CannotUndo

    merge = rest.strip() == "--merge"
    if rest and not merge:
        chat.say("/redo takes no argument but --merge")
        return
    try:
        result = await chat.session.rewind.redo(merge=merge)
    except CannotUndo:
        _report(chat, await chat.session.box.redo(merge=merge))
        return
    if result.files is not None:
        _report(chat, result.files)
    if result.conversation:
        chat.say("the conversation is as it was before the rewind", "dim")


async def rewind(chat: Chat, rest: str) -> None:
    """`/rewind`: let the person choose a prompt and what to restore. The prompt comes back into the input box."""
    checkpoints = await chat.session.rewind.checkpoints()
    if not checkpoints:
        chat.say("there is no prompt to go back to", "dim")
        return
    newest_first = checkpoints[::-1]
    choice = await chat.surface.choose(
        "Go back to before which prompt?", [], [_describe(each) for each in newest_first]
    )
    if choice is None:
        return
    checkpoint = newest_first[choice]
    options = [BOTH, FILES, CONVERSATION, "nothing"] if checkpoint.files else [CONVERSATION, "nothing"]
    what = await chat.surface.choose("Restore what?", _consequences(chat, checkpoint), options)
    if what is None or options[what] == "nothing":
        return
    await restore(chat, checkpoint, options[what])


async def restore(chat: Chat, checkpoint: Checkpoint, what: str) -> None:
    """Restore files, conversation or both to before a prompt."""
    result = await chat.session.rewind.restore(
        checkpoint.number, files=what != CONVERSATION, conversation=what != FILES
    )
    if result.conversation:
        chat.view.last_answer = ""
        chat.say(f"back to before: {truncate_line(checkpoint.text, SHOWN_PROMPT_CHARS)}", "dim")
        chat.surface.set_draft(checkpoint.text)
    if result.files is not None:
        _report(chat, result.files, tell_model=not result.conversation)
    chat.say("/redo reverses this", "dim")


async def diff(chat: Chat, rest: str) -> None:
    """`/diff`: all changes of this session that are in force, one diff a file."""
    from wieldy.files.journal.undo import CannotUndo, UndoSelector

    box = chat.session.box
    selector = UndoSelector(everything=True, session=box.id)
    try:
        plan = await box.workspace.services.journal.plan_undo(selector, merge=True)
    except CannotUndo:
        chat.say("this session has changed nothing", "dim")
        return
    rows: list[Row] = []
    for file in plan.files:
        name = os.path.relpath(file.path, box.workspace.root)
        rows += _diff_rows(name, file.then, file.now)
    hidden = len(rows) - MAX_DIFF_ROWS
    if hidden > 0:
        rows = [*rows[:MAX_DIFF_ROWS], (TextSpan(f"… {hidden} more lines", "dim"),)]
    chat.show(SpansBlock(tuple(rows)))


def _diff_rows(name: str, before: bytes | None, after: bytes | None) -> list[Row]:
    state = " (new)" if before is None else " (deleted)" if after is None else ""
    rows: list[Row] = [(TextSpan(f"{name}{state}", "bold"),)]
    old, new = ((data or b"").decode("utf-8", "replace").splitlines() for data in (before, after))
    for line in list(difflib.unified_diff(old, new, lineterm="", n=2))[2:]:
        style = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "dim")
        rows.append((TextSpan(f"  {line}", style),))
    return rows


def _describe(checkpoint: Checkpoint) -> str:
    when = time.strftime("%H:%M", time.localtime(checkpoint.time))
    count = len(checkpoint.files)
    changed = "no files changed since" if not count else f"{plural(count, 'file')} changed since"
    return f"{when}  {truncate_line(checkpoint.text, SHOWN_PROMPT_CHARS)}  ({changed})"


def _consequences(chat: Chat, checkpoint: Checkpoint) -> Sequence[str]:
    root = chat.session.box.workspace.root
    names = [os.path.relpath(path, root) for path in checkpoint.files]
    lines = [f"  {name}" for name in names[:10]] + ([f"  … {len(names) - 10} more"] if len(names) > 10 else [])
    return [*lines, *(f"  not restored: {line}" for line in checkpoint.uncovered[:5])]


def _report(chat: Chat, plan: UndoPlan, *, tell_model: bool = True) -> None:
    from wieldy.files.journal.undo import plan_lines

    text = "\n".join(plan_lines(plan))
    chat.say(chat.view.format.shorten_paths(text))
    if tell_model:
        verb = "took back changes" if plan.action == "undo" else "brought changes back"
        chat.tell_model(f"The user {verb} of yours. Read the files again before you edit them.\n{text}")
        chat.session.box.workspace.services.read_state.undone.clear()
