"""After a tool has run: PostToolUse and PostToolUseFailure hooks may add to its result, or replace it."""

from __future__ import annotations

from typing import Any

from wieldy.core.call import PlannedCall
from wieldy.core.content import Text, text_of
from wieldy.core.outcome import Done, Failed, Interrupted, Outcome
from wieldy.hooks.hooks import Hooks
from wieldy.hooks.moment import PostToolUse, PostToolUseFailure


class Review:
    """The reviewer of a toolbox's outcomes."""

    def __init__(self, hooks: Hooks) -> None:
        self._hooks = hooks

    async def review(self, plan: PlannedCall, outcome: Outcome, seconds: float) -> Outcome:
        """The outcome, with what the hooks had to say about it."""
        about: dict[str, Any] = {
            **self._hooks.common(),
            "tool_name": plan.tool.name,
            "tool_input": plan.input,
            "tool_use_id": plan.call.id,
            "duration_ms": int(seconds * 1000),
        }
        if isinstance(outcome, Done) and not outcome.is_error:
            return await self._after_success(plan, outcome, about)
        if isinstance(outcome, Done | Failed | Interrupted):
            return await self._after_failure(plan, outcome, about)
        return outcome

    async def _after_success(self, plan: PlannedCall, outcome: Done, about: dict[str, Any]) -> Outcome:
        if not self._hooks.wanted("PostToolUse"):
            return outcome
        response = outcome.data if outcome.data is not None else text_of(outcome.content)
        said = await self._hooks.fire(PostToolUse(**about, tool_response=response), plan)
        content = outcome.content
        if said.updated_output is not None:
            content = (Text(said.updated_output if isinstance(said.updated_output, str) else str(said.updated_output)),)
        lines = [f"A hook objects: {said.blocked}"] if said.blocked else []
        return Done((*content, *map(Text, [*lines, *said.context])), outcome.data)

    async def _after_failure(
        self, plan: PlannedCall, outcome: Done | Failed | Interrupted, about: dict[str, Any]
    ) -> Outcome:
        if not self._hooks.wanted("PostToolUseFailure"):
            return outcome
        interrupted = isinstance(outcome, Interrupted)
        words = _words(outcome)
        said = await self._hooks.fire(PostToolUseFailure(**about, error=words, is_interrupt=interrupted), plan)
        lines = [*([said.blocked] if said.blocked else []), *said.context]
        if not lines:
            return outcome
        match outcome:
            case Done(content, data, is_error):
                return Done((*content, *map(Text, lines)), data, is_error)
            case Failed(message, data):
                return Failed("\n".join([message, *lines]), data)
        return outcome


def _words(outcome: Done | Failed | Interrupted) -> str:
    match outcome:
        case Done(content):
            return text_of(content)
        case Failed(message):
            return message
        case Interrupted(reason):
            return reason
