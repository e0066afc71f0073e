"""Many replies → one: decisions and context in the order of the configuration, whatever order they came in. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from wieldy.core.decision import STRICTNESS, Advice, Opinion
from wieldy.core.record import record
from wieldy.hooks.reply import Reply


@record
class Said:
    """What all hooks of a moment said together. `blocked` is the first reason among the strictest."""

    blocked: str | None = None
    behavior: str | None = None
    reason: str = ""
    updated_input: Mapping[str, Any] | None = None
    updated_output: Any = None
    context: tuple[str, ...] = ()
    messages: tuple[str, ...] = ()
    halt: str | None = None


def fold(replies: Sequence[Reply]) -> Said:
    """One answer out of several, given in the order of the configuration: the strictest decides, the last rewrite stands."""
    decided = [reply for reply in replies if reply.behavior is not None]
    strictest = max(decided, key=lambda reply: STRICTNESS[reply.behavior or "allow"], default=None)
    blocked = next((f"{reply.hook}: {reply.reason}" for reply in decided if reply.blocked), None)
    updated = [reply.updated_input for reply in replies if reply.updated_input is not None]
    outputs = [reply.updated_output for reply in replies if reply.updated_output is not None]
    return Said(
        blocked=blocked,
        behavior=strictest.behavior if strictest else None,
        reason=strictest.reason if strictest else "",
        updated_input=updated[-1] if updated else None,
        updated_output=outputs[-1] if outputs else None,
        context=tuple(line for reply in replies for line in reply.context),
        messages=tuple(f"{reply.hook}: {reply.message}" for reply in replies if reply.message),
        halt=next((reply.halt for reply in replies if reply.halt is not None), None),
    )


def advice(replies: Sequence[Reply]) -> Advice:
    """What PreToolUse hooks have to say about a call."""
    said = fold(replies)
    opinions = tuple(
        Opinion(f"hook {reply.hook}", reply.behavior, reply.reason) for reply in replies if reply.behavior is not None
    )
    if said.halt is not None:
        opinions = (*opinions, Opinion("hook", "deny", said.halt))
    return Advice(opinions, said.updated_input, said.context)
