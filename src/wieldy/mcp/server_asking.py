"""Who is asked on behalf of a client's calls: its user, by the door of the very call that wants to know."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from wieldy.core.decision import Answer, Question
from wieldy.core.failure import Refusal
from wieldy.core.inquiry import Inquiry, Person, Reply
from wieldy.mcp import server_form, server_inquiry
from wieldy.mcp.server_door import Door, Shut, Unreachable, asks_users

if TYPE_CHECKING:
    from wieldy.core.workspace import Workspace
    from wieldy.mcp.server_door import Context

LISTS_SINCE = "2025-11-25"

# A tool that asks does so in a task that its call started, so the call's door goes along with the context.
_door: ContextVar[Door | None] = ContextVar("door", default=None)


class Asking:
    """Permission questions and the tools' own, each by the door of its call."""

    def __init__(self) -> None:
        self._doors: dict[str, Door] = {}
        self._lists = False

    def meet(self, ctx: Context, workspace: Workspace) -> None:
        """Learn from a request whether its client has a user who can be asked; tools that ask are offered only then."""
        self._lists = ctx.protocol_version >= LISTS_SINCE
        asked = asks_users(ctx.session.client_capabilities)
        workspace.resident(Person).asker = self if asked else None

    @contextmanager
    def through(self, call_id: str, door: Door) -> Iterator[None]:
        """For as long as a call lasts, its questions go through this door."""
        self._doors[call_id] = door
        before = _door.set(door)
        try:
            yield
        finally:
            _door.reset(before)
            del self._doors[call_id]

    async def ask(self, question: Question) -> Answer:
        """Put a permission question. Raises `Refusal` where nobody can be reached."""
        door = self._doors.get(question.plan.call.id, SHUT)
        try:
            filled = await door.fill(server_form.form_of(question))
        except Unreachable as why:
            raise _unasked(question, str(why)) from None
        return server_form.answer(question, filled.action, filled.content)

    async def answer(self, inquiries: Sequence[Inquiry]) -> Sequence[Reply] | None:
        """Put questions of substance. Raises `Refusal` where nobody can be reached."""
        door = _door.get() or SHUT
        try:
            filled = await door.fill(server_inquiry.form_of(inquiries, lists=self._lists))
        except Unreachable as why:
            raise Refusal(
                "permission", f"Nobody can answer: {why}. Choose what is safest, go on, and say what you assumed."
            ) from None
        return server_inquiry.replies(inquiries, filled.action, filled.content)


SHUT = Shut()


def _unasked(question: Question, why: str) -> Refusal:
    decision, name = question.decision, question.plan.tool.name
    rule = f" The user can allow it with the rule `{decision.suggestions[0]}`." if decision.suggestions else ""
    return Refusal(
        "permission",
        f"Permission denied for {name}: {decision.why}, and {why}.{rule} Go on without it, or say what you would need.",
        data=decision,
    )
