"""Non-interactive sessions: one prompt or a stream of them in, one output format out, and an exit code."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, TypeAlias

from msgspec.structs import replace

from wieldy.agent.loop import Prompt
from wieldy.agent.run_totals import RunTotals, encode_line, summarize
from wieldy.agent.session import Session
from wieldy.core.console import print_error
from wieldy.core.events import Event, ModelAnswered, ModelRequested, Notice, Retried, RunEnded, ToolEnded
from wieldy.core.text import plural

DONE, ERROR, DENIED, LIMIT, INTERRUPTED = 0, 1, 3, 4, 130
WAITING_SECONDS = 30.0

Write: TypeAlias = Callable[[str], object]


async def converse(
    session: Session,
    prompts: AsyncIterator[Prompt],
    output_format: str,
    write: Write,
    *,
    partial: bool = False,
    hosted: bool = False,
    returns: Mapping[str, Any] | None = None,
    waiting_seconds: float = WAITING_SECONDS,
) -> int:
    """Run a session over prompts, write the output in one format, and return the exit code.

    A `hosted` session has a program at the other end: it decides what comes after a failure, which the result names.
    With `returns`, a JSON Schema, every answer is JSON that fits it.
    In text format, stderr says why a model is waited for, and every `waiting_seconds` that it still is.
    """
    totals = RunTotals()
    stream: StreamJsonWriter | None = None
    if output_format == "stream-json":
        from wieldy.faces.headless.stream_json import StreamJsonWriter

        stream = StreamJsonWriter(session, write, partial=partial)
    code = DONE
    waiting = WaitingNotices(waiting_seconds)
    async for prompt in prompts:
        start = time.monotonic()
        end: RunEnded | None = None
        calls = 0
        async for event in session.run(prompt, returns=returns, stream_deltas=partial):
            totals.add(event)
            if stream is not None:
                stream.write_event(event)
            if isinstance(event, RunEnded):
                end = event
            elif isinstance(event, ToolEnded):
                calls += 1
            elif output_format == "text":
                waiting.update(event)
                if isinstance(event, Notice) and not event.data:
                    print_error(event.text)
        waiting.stop()
        assert end is not None
        if not hosted and end.why == "done" and not end.text.strip() and end.data is None:
            end = _without_text(end, calls)
        if output_format == "text":
            _write_text(end, totals, write)
        else:
            write(encode_line(summarize(session, end, totals, time.monotonic() - start)))
        if hosted:
            code = ERROR if end.is_error else DONE
            continue
        code = exit_code(end, denied=bool(totals.denials))
        if code not in (DONE, DENIED):
            break
    return code


class WaitingNotices:
    """Says on stderr what a run waits for: the next attempt after a failure, or an answer that takes long."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._timer: asyncio.TimerHandle | None = None

    def update(self, event: Event) -> None:
        if isinstance(event, ModelRequested):
            self.stop()
            self._start(time.monotonic())
        elif isinstance(event, ModelAnswered | Retried):
            self.stop()
        if isinstance(event, Retried):
            attempt = f"attempt {event.attempt + 1} of {event.most}"
            print_error(f"{event.why}; trying again in {max(event.seconds, 1):.0f} s ({attempt})")

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _start(self, since: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self._remind, since)

    def _remind(self, since: float) -> None:
        print_error(f"waiting for the model's answer ({time.monotonic() - since:.0f} s)")
        self._start(since)


def exit_code(end: RunEnded, *, denied: bool) -> int:
    """Return the exit code of a run: 0 done, 1 error, 3 a call was denied, 4 limit reached, 130 interrupted."""
    match end.why:
        case "done":
            return DENIED if denied else DONE
        case "interrupted":
            return INTERRUPTED
        case "max_turns" | "max_cost" | "max_tokens":
            return LIMIT
    return ERROR


def _without_text(end: RunEnded, calls: int) -> RunEnded:
    """An answer without text is an error where nothing else was done; after calls it is only worth a line on stderr."""
    if not calls:
        return replace(end, why="error", is_error=True, detail="the model's answer has no text")
    print_error(f"the model made {plural(calls, 'call')} and ended without a text")
    return end


def _write_text(end: RunEnded, totals: RunTotals, write: Write) -> None:
    text = end.text if end.data is None else json.dumps(end.data, ensure_ascii=False)
    if text:
        write(text if text.endswith("\n") else text + "\n")
    if end.why != "done":
        print_error(end.detail or end.why)
    for line in totals.denial_lines():
        print_error(line)
