"""A session without anybody watching: one prompt or a stream of them in, one format out, and an exit code that says it all."""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

from wieldy.agent.session import Prompt, Session
from wieldy.core.events import Notice, RunEnded
from wieldy.headless.summary import Tally, line, summary

if TYPE_CHECKING:
    from wieldy.headless.stream_json import Lines

DONE, ERROR, DENIED, LIMIT, INTERRUPTED = 0, 1, 3, 4, 130

Write = Callable[[str], object]


async def converse(
    session: Session, prompts: AsyncIterator[Prompt], form: str, write: Write, *, partial: bool = False
) -> int:
    """Run a session over some prompts, write what comes of it in one form, and return the exit code."""
    tally, lines = Tally(), _lines(session, write, partial) if form == "stream-json" else None
    code, begun = DONE, False
    async for prompt in prompts:
        started = time.monotonic()
        last: RunEnded | None = None
        async for event in session.run(prompt, stream_deltas=partial):
            tally.take(event)
            if lines is not None:
                if not begun and session.ready:
                    lines.begin()
                    begun = True
                lines.take(event)
            if isinstance(event, RunEnded):
                last = event
            elif form == "text" and isinstance(event, Notice) and not event.data:
                print(f"wieldy: {event.text}", file=sys.stderr)
        assert last is not None
        _report(session, last, tally, lines, form, write, time.monotonic() - started)
        code = exit_code(last, denied=bool(tally.denials))
        if code not in (DONE, DENIED):
            break
    return code


def _lines(session: Session, write: Write, partial: bool) -> Lines:
    from wieldy.headless.stream_json import Lines

    return Lines(session, write, partial=partial)


def exit_code(last: RunEnded, *, denied: bool) -> int:
    """What a run is to a shell: 0 done, 1 error, 3 something was denied, 4 limit reached, 130 interrupted."""
    match last.why:
        case "done":
            return DENIED if denied else DONE
        case "interrupted":
            return INTERRUPTED
        case "max_turns" | "max_cost" | "max_tokens":
            return LIMIT
    return ERROR


def _report(
    session: Session, last: RunEnded, tally: Tally, lines: Lines | None, form: str, write: Write, seconds: float
) -> None:
    if form == "text":
        if last.text:
            write(last.text if last.text.endswith("\n") else last.text + "\n")
        if last.why != "done":
            print(f"wieldy: {last.detail or last.why}", file=sys.stderr)
        for denial in tally.denied():
            print(f"wieldy: {denial['tool_name']} was not permitted", file=sys.stderr)
        return
    result = summary(session, last, tally, seconds)
    if lines is None:
        write(line(result))
    else:
        lines.end(result)
