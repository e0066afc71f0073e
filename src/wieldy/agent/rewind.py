"""Rewind: list the prompts of a session with the files changed since each, go back to before one of them, and redo that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from wieldy.agent.conversation import Conversation, fold
from wieldy.agent.records import HistoryReplaced, SentPrompt, TranscriptRecord, UserMessage
from wieldy.agent.transcript import Transcript, records
from wieldy.core.errors import SessionError
from wieldy.core.threads import in_thread
from wieldy.engine.toolbox import Toolbox

if TYPE_CHECKING:
    from wieldy.files.journal.undo import UndoPlan


class Checkpoint(Struct, frozen=True):
    """A prompt, counted from 1, and the files that edits and shell commands have changed since it was sent.

    `uncovered` says what commands changed, or may have changed, that undo cannot restore.
    """

    number: int
    text: str
    time: float
    files: tuple[str, ...] = ()
    uncovered: tuple[str, ...] = ()


class RewindResult(Struct, frozen=True):
    """What was restored: the plan of the files (None if none had changed), and whether the conversation went back."""

    files: UndoPlan | None
    conversation: bool


class Rewind:
    """`session.rewind`. Nothing is lost by a rewind: `redo` brings files and conversation back."""

    def __init__(self, box: Toolbox, transcript: Transcript, is_running: Callable[[], bool]) -> None:
        self._box = box
        self._transcript = transcript
        self._is_running = is_running
        self._undone: tuple[list[Any], list[SentPrompt], int] | None = None
        self._last = RewindResult(None, False)

    async def checkpoints(self) -> list[Checkpoint]:
        """The prompts of this session, oldest first."""
        prompts = self._prompts
        changes = await self._box.changes_since([prompt.at for prompt in prompts])
        return [
            Checkpoint(number, prompt.text, prompt.at, tuple(change.files), tuple(change.uncovered))
            for number, (prompt, change) in enumerate(zip(prompts, changes, strict=True), start=1)
        ]

    async def restore(
        self, number: int, *, files: bool = True, conversation: bool = True, merge: bool = False
    ) -> RewindResult:
        """Bring files, conversation or both to the state before the prompt with this number.

        Raises `CannotUndo`, with nothing touched, when a file has changed since by other hands and `merge` is off, and
        `SessionError` for a prompt that does not exist or a session that is running.
        """
        if self._is_running():
            raise SessionError("this session is running; rewind it when it has ended")
        if not 1 <= number <= len(self._prompts):
            raise SessionError(f"there is no prompt {number}: this session has {len(self._prompts)}")
        prompt = self._prompts[number - 1]
        earlier = await self._conversation_before(prompt) if conversation else None
        plan = await self._restore_files(prompt, merge) if files else None
        if earlier is not None:
            now = self._transcript.conversation
            self._undone = [message.as_dict() for message in now.settle()], list(now.prompts), number - 1
            self._replace(earlier.messages, self._prompts[: number - 1])
            await self._transcript.flush()
        self._last = RewindResult(plan, earlier is not None)
        return self._last

    async def redo(self, *, merge: bool = False) -> RewindResult:
        """Reverse the last rewind, as far as it went. Raises `CannotUndo` or `SessionError`."""
        from wieldy.files.journal.undo import CannotUndo

        last, undone = self._last, self._undone
        if self._is_running():
            raise SessionError("this session is running; redo when it has ended")
        if last.files is None and not last.conversation:
            raise CannotUndo("There is no rewind to redo.")
        if last.conversation and undone is not None and len(self._prompts) != undone[2]:
            raise SessionError("the conversation has gone on since the rewind, so it cannot be brought back")
        plan = await self._box.redo(merge=merge) if last.files is not None else None
        if last.conversation and undone is not None:
            self._replace(undone[0], undone[1])
            await self._transcript.flush()
        self._last, self._undone = RewindResult(None, False), None
        return RewindResult(plan, last.conversation)

    @property
    def _prompts(self) -> list[SentPrompt]:
        return self._transcript.conversation.prompts

    async def _conversation_before(self, prompt: SentPrompt) -> Conversation:
        """The conversation as it was when the prompt was sent, also where it has been compacted since."""
        if self._transcript.path is None:
            raise SessionError("the conversation of a session without a transcript cannot be rewound")
        folder = self._transcript.path.parent

        found = False

        def is_earlier(record: TranscriptRecord) -> bool:
            nonlocal found
            found = isinstance(record, UserMessage) and record.at == prompt.at
            return not found

        conversation = await in_thread(lambda: fold(takewhile(is_earlier, records(folder))))
        if not found:
            raise SessionError("the transcript no longer has this prompt, so the conversation cannot be rewound")
        return conversation

    async def _restore_files(self, prompt: SentPrompt, merge: bool) -> UndoPlan | None:
        [changes] = await self._box.changes_since([prompt.at])
        return await self._box.undo(since=prompt.at, merge=merge) if changes.entries else None

    def _replace(self, messages: Sequence[Any], prompts: Sequence[SentPrompt]) -> None:
        plain = [message if isinstance(message, dict) else message.as_dict() for message in messages]
        self._transcript.append(HistoryReplaced(plain, "rewind", prompts=list(prompts)))
