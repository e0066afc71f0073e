"""The runs of a session: from the content of a prompt to the report of how it ended."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

from wieldy.agent.loop import RunEnd
from wieldy.agent.transcript import Transcript, clean_texts
from wieldy.core.abort import Abort
from wieldy.core.errors import SessionError
from wieldy.core.events import RunEnded
from wieldy.core.provider import ProviderFailure
from wieldy.engine.results import clean
from wieldy.engine.supervise import Aborted
from wieldy.toolbox import Toolbox

Prompt: TypeAlias = str | Sequence[Mapping[str, Any]]


def prompt_content(prompt: Prompt) -> list[dict[str, Any]]:
    """The content blocks of a prompt. Raises `SessionError` where there is nothing to send."""
    blocks = [{"type": "text", "text": clean(prompt)}] if isinstance(prompt, str) else clean_texts(list(prompt))
    content: list[dict[str, Any]] = blocks
    if not all(isinstance(block.get("type"), str) for block in content):
        raise SessionError("a prompt is text, or a list of content blocks, each with its `type`")
    if not any(block["type"] != "text" or block["text"].strip() for block in content):
        raise SessionError("the prompt is empty")
    return content


def run_end(error: Exception) -> RunEnd:
    """How a run ended that raised this."""
    match error:
        case Aborted():
            return RunEnd("interrupted", error.reason)
        case ProviderFailure():
            return RunEnd("error", str(error), failure=error.kind)
        case SessionError():
            return RunEnd("error", str(error))
        case _:
            return RunEnd("error", f"{type(error).__name__}: {error}")


class SessionRuns:
    """Runs the prompts of a session, one at a time. `run_loop` sends the content of one and returns how that ended.

    `load` reads the transcript of a session to resume, `on_ended` hears of every end before the events do.
    """

    def __init__(
        self,
        box: Toolbox,
        transcript: Transcript,
        *,
        load: Callable[[], Awaitable[None]],
        run_loop: Callable[[list[dict[str, Any]], Abort], Awaitable[RunEnd]],
        on_ended: Callable[[], None],
    ) -> None:
        self.active = False
        self._box = box
        self._transcript = transcript
        self._load = load
        self._run_loop = run_loop
        self._on_ended = on_ended

    @asynccontextmanager
    async def start(self, prompt: Prompt) -> AsyncIterator[asyncio.Task[RunEnded]]:
        """Run a prompt in a task; abort and await it when its consumer goes away."""
        if self.active:
            raise SessionError("this session is already running; wait for it, or start another")
        self.active = True
        work = asyncio.get_running_loop().create_task(self._run(prompt, self._box.services.abort))
        try:
            yield work
        finally:
            try:
                if not work.done():
                    self._box.abort()
                    await asyncio.wait((work,))
            finally:
                self.active = False

    async def _run(self, prompt: Prompt, abort: Abort) -> RunEnded:
        started, transcript = time.monotonic(), self._transcript
        turns_before, end = transcript.conversation.turns, RunEnd("error")
        try:
            content = prompt_content(prompt)
            await self._load()
            turns_before = transcript.conversation.turns
            end = await self._run_loop(content, abort)
        except (Aborted, ProviderFailure, SessionError) as error:
            end = run_end(error)
        except Exception as bug:
            end = run_end(bug)
            raise
        finally:
            try:
                await transcript.flush()
            except SessionError as failure:
                end = RunEnd("error", str(failure), end.text)
            ended = RunEnded(
                why=end.why,
                text=end.text,
                turns=transcript.conversation.turns - turns_before,
                cost=transcript.conversation.cost,
                seconds=time.monotonic() - started,
                is_error=end.why not in ("done", "interrupted"),
                detail=end.detail,
                failure=end.failure,
            )
            self._on_ended()
            if self._box.events.has_subscribers:
                self._box.events.emit(ended)
        return ended
