"""Calls whose result was lost with the process: what is known of them, what is made again, and what the model is told."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from wieldy.agent.records import CallStarted, ToolResultRecord
from wieldy.agent.toolbox_protocol import ToolboxProtocol
from wieldy.agent.transcript import UNKNOWN, UNKNOWN_FOR_PERSON, Transcript, lost_text
from wieldy.core.call import PlannedCall, ToolCall
from wieldy.core.decision import Advice, Opinion
from wieldy.core.events import Notice
from wieldy.core.text import truncate_line

if TYPE_CHECKING:
    from wieldy.files.journal.journal import Journal

MADE = (
    "Done: the files were changed ({paths}); the process ended before the report of this call was kept. "
    "Read a file again before you change it again."
)
WHY_ASKED = "the process ended while this call ran; it may have happened already"
MAX_NOTICE_CHARS = 300


async def settle_lost(box: ToolboxProtocol, transcript: Transcript, *, is_fork: bool = False) -> None:
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
            box.events.emit(Notice(text=f"{_describe(box, call)}: {UNKNOWN_FOR_PERSON}"))


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


def _describe(box: ToolboxProtocol, call: ToolCall) -> str:
    """The call in one line for a person."""
    tool, text = box.catalog.find(call.name), call.name
    if tool is not None and isinstance(call.input, dict):
        with suppress(Exception):  # whatever a tool of the program makes of an input that it never checked
            text = tool.show_use(call.input)
    return truncate_line(text, MAX_NOTICE_CHARS)


async def _journaled_paths(box: ToolboxProtocol, call_id: str) -> list[str] | None:
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
