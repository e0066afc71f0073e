"""What a resumed session knows: calls whose result was lost with the process, and the files that the model has seen."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from wieldy.agent.conversation import UNKNOWN, UNKNOWN_FOR_PERSON, lost_text
from wieldy.agent.records import CallStarted, FilesSeen, SeenFile, ToolResultRecord
from wieldy.agent.transcript import Transcript
from wieldy.core.call import PlannedCall, ToolCall
from wieldy.core.decision import Advice, Opinion
from wieldy.core.events import Notice
from wieldy.core.text import truncate_line
from wieldy.core.threads import in_thread
from wieldy.core.workspace import Workspace

if TYPE_CHECKING:
    from wieldy.agent.loop import AnyToolbox
    from wieldy.files.editing.read_state import ReadRecord, ReadState
    from wieldy.files.journal.entries import JournalEntry
    from wieldy.files.journal.journal import Journal


MADE = (
    "Done: the files were changed ({paths}); the process ended before the report of this call was kept. "
    "Read a file again before you change it again."
)
WHY_ASKED = "the process ended while this call ran; it may have happened already"
MAX_NOTICE_CHARS = 300


async def settle_lost(box: AnyToolbox, transcript: Transcript, *, is_fork: bool = False) -> None:
    """Record a result for each call whose own was lost, except for those that are made again: `calls_to_repeat`.

    A fork makes nothing again, for the session that it is a copy of may do so.
    """
    conversation = transcript.conversation
    repeats = set() if is_fork else {call.id for call in calls_to_repeat(transcript)}
    for id, call in list(conversation.lost.items()):
        if id in repeats:
            continue
        started = conversation.started.get(id)
        paths = None if started is None or started.replay != "journal" else await _journaled_paths(box, id)
        text = lost_text(started)
        if paths:
            text = MADE.format(paths=", ".join(paths))
        elif paths is not None:
            text = lost_text(None)
        is_unknown = text == UNKNOWN
        block = {"type": "tool_result", "tool_use_id": id, "content": [{"type": "text", "text": text}]}
        record = ToolResultRecord({**block, "is_error": not paths}, person=UNKNOWN_FOR_PERSON if is_unknown else "")
        if is_fork:  # its own transcript begins with what the conversation is then
            conversation.apply(record)
        else:
            transcript.append(record)
        if is_unknown:
            box.events.emit(Notice(text=f"{_describe_call(box, call)}: {UNKNOWN_FOR_PERSON}"))


def calls_to_repeat(transcript: Transcript) -> list[ToolCall]:
    """The lost calls that had started and that their tools declare safe to make again, or worth a question to the person."""
    conversation = transcript.conversation
    return [call for id, call in conversation.lost.items() if _is_repeatable(conversation.started.get(id))]


def _is_repeatable(started: CallStarted | None) -> bool:
    return started is not None and started.replay in ("safe", "ask")


class RepeatAdviser:
    """Has the person asked about calls that may have happened already."""

    def __init__(self, started: dict[str, CallStarted]) -> None:
        self._started = dict(started)

    def wants(self, plan: PlannedCall) -> bool:
        started = self._started.get(plan.call.id)
        return started is not None and started.replay != "safe"

    async def advise(self, plan: PlannedCall) -> Advice:
        return Advice((Opinion("resume", "ask", WHY_ASKED),))


def _describe_call(box: AnyToolbox, call: ToolCall) -> str:
    """The call in one line for a person."""
    tool, text = box.catalog.find(call.name), call.name
    if tool is not None and isinstance(call.input, dict):
        with suppress(Exception):  # whatever a tool of the program makes of an input that it never checked
            text = tool.show_use(call.input)
    return truncate_line(text, MAX_NOTICE_CHARS)


async def _journaled_paths(box: AnyToolbox, call_id: str) -> list[str] | None:
    """The files that a call has changed; None where the journal cannot tell."""
    journal = box.workspace.services.journal
    return await journal.run(_paths_in_journal, journal, call_id)


def _paths_in_journal(journal: Journal, call_id: str) -> list[str] | None:
    if not journal.enabled:
        return None
    journal.recover()
    with suppress(OSError):
        if journal.store.is_undecided(journal.session, call_id):
            return None
        entries = journal.store.find("edit", active_only=False, session=journal.session, call=call_id)
        return [path for entry in entries for path in entry.paths]
    return None


MAX_NAMED_FILES = 10
MAX_NAME_CHARS = 200
MAX_ENTRIES = 500  # of the journal, in which the cause of a change is looked up


def take_record(workspace: Workspace) -> FilesSeen | None:
    """A record of what the model has learned or lost of files since the last one; None for nothing."""
    state: ReadState | None = workspace.services.existing("read_state")
    files = [] if state is None else [_as_seen(key, reading) for key, reading in state.take_unsaved()]
    return FilesSeen(files) if files else None


def restore(workspace: Workspace, seen: Iterable[SeenFile]) -> None:
    """Restore what the model knew of files in an earlier process."""
    if files := list(seen):
        workspace.services.read_state.restore(map(_as_reading, files))


def _as_seen(key: str, reading: ReadRecord | None) -> SeenFile:
    if reading is None:
        return SeenFile(key, forgotten=True)
    return SeenFile(
        key,
        stamp=reading.stamp,
        seen_at=reading.seen_at,
        size=reading.size,
        digest=reading.digest,
        lines=list(reading.line_ranges),
        whole=reading.whole,
        written_by_us=reading.written_by_us,
        encoding=None if reading.encoding is None else msgspec.to_builtins(reading.encoding),
        told=reading.told,
    )


def _as_reading(seen: SeenFile) -> ReadRecord:
    from wieldy.files.detection import Encoding
    from wieldy.files.editing.read_state import ReadRecord

    encoding = None
    if seen.encoding is not None:
        with suppress(msgspec.ValidationError):
            encoding = msgspec.convert(seen.encoding, Encoding)
    return ReadRecord(
        seen.path,
        seen.stamp,
        seen.seen_at,
        seen.size,
        digest=seen.digest,
        line_ranges=tuple(seen.lines),
        whole=seen.whole,
        written_by_us=seen.written_by_us,
        encoding=encoding,
        told=seen.told,
    )


async def describe_changes(workspace: Workspace) -> tuple[str, ...]:
    """One line for the model about files that it knows and that others have changed since; nothing where there are none."""
    state: ReadState | None = workspace.services.existing("read_state")
    if state is None:
        return ()
    undone, state.undone = list(state.undone), {}
    changed = await in_thread(state.find_changed)
    causes = await _find_causes(workspace, changed)
    names = [f"{_name(path, workspace)} (by an undo)" for path in undone]
    names += [_describe_change(reading, causes.get(reading.path, ""), workspace) for reading in changed]
    if not names:
        return ()
    if len(names) > MAX_NAMED_FILES:
        names[MAX_NAMED_FILES:] = [f"{len(names) - MAX_NAMED_FILES} more"]
    advice = "Read a file again before you rely on what you know of it."
    return (f"<system-reminder>Changed on disk since you saw them: {', '.join(names)}. {advice}</system-reminder>",)


def _describe_change(reading: ReadRecord, cause: str, workspace: Workspace) -> str:
    from wieldy.files.editing.read_state import GONE

    about = " ".join(filter(None, ("deleted" if reading.told == GONE else "", cause)))
    return f"{_name(reading.path, workspace)}{f' ({about})' if about else ''}"


def _name(path: str, workspace: Workspace) -> str:
    from wieldy.core.text import printable_path

    root = workspace.root.rstrip("/") + "/"
    name = printable_path(path.removeprefix(root)).replace("<", "\\x3c")
    return f"`{truncate_line(name, MAX_NAME_CHARS)}`"


async def _find_causes(workspace: Workspace, changed: Iterable[ReadRecord]) -> dict[str, str]:
    """Who changed each file, as far as the journal knows."""
    readings = {reading.path: reading for reading in changed}
    if not readings:
        return {}
    journal = workspace.services.journal
    return await journal.run(_causes_in_journal, journal, readings)


def _causes_in_journal(journal: Journal, readings: dict[str, ReadRecord]) -> dict[str, str]:
    causes: dict[str, str] = {}
    since = min(reading.seen_at for reading in readings.values()) / 1e9
    entries: list[JournalEntry] = []
    with suppress(OSError):
        entries = journal.store.find(active_only=False, since=since, limit=MAX_ENTRIES)
    for entry in entries:  # the oldest first: the last change of a file counts
        for file in entry.files:
            reading = readings.get(file.real_path)
            if reading is not None and entry.time * 1e9 >= reading.seen_at:
                causes[file.real_path] = _cause(entry, journal.session)
    return causes


def _cause(entry: JournalEntry, session: str) -> str:
    if entry.kind in ("undo", "redo"):
        return f"by {'an' if entry.kind == 'undo' else 'a'} {entry.kind}"
    if entry.session != session:
        return "by another session"
    return "by a command" if entry.kind == "command" else "by a subagent"
