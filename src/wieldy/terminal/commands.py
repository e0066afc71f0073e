"""What a person can type that is not for the model."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from wieldy.core.record import record

if TYPE_CHECKING:
    from wieldy.terminal.chat import Chat


class Leave(Exception):
    """The person wants to go."""


@record
class Command:
    """One slash command."""

    about: str
    run: Callable[[Chat, str], Awaitable[None]]


async def _help(chat: Chat, rest: str) -> None:
    for name, command in COMMANDS.items():
        chat.say(f"  {name:<10} {command.about}")
    chat.say("  !command   run a shell command through the Bash tool")
    chat.say("  Ctrl-C     stop what is running; twice: leave")


async def _tools(chat: Chat, rest: str) -> None:
    for entry in await chat.session.box.offer():
        first = entry.tool.description.split(". ")[0]
        chat.say(f"  {entry.tool.name:<18} {first if entry.offered else f'not offered: {entry.reason}'}")


async def _call(chat: Chat, rest: str) -> None:
    import shlex

    from wieldy.terminal.byhand import input_of, shown

    name, _, fields = rest.partition(" ")
    if not name:
        chat.say("/call TOOL key=value …, for example /call Grep pattern=TODO", "yellow")
        return
    box = chat.session.box
    words = [fields] if fields.startswith(("{", "command=")) else shlex.split(fields)
    result = await box.call(name, input_of([word for word in words if word], box.catalog.find(name)))
    chat.say(shown(result), *(["red"] if result.is_error else []))


async def _undo(chat: Chat, rest: str) -> None:
    from wieldy.journal.render import plan_lines

    plan = await chat.session.box.undo(rest or None)
    chat.say("\n".join(plan_lines(plan)))


async def _cost(chat: Chat, rest: str) -> None:
    conversation = chat.session.conversation
    chat.say(f"  {conversation.turns} answers, ${conversation.cost:.4f}")


async def _resume(chat: Chat, rest: str) -> None:
    from wieldy.session.store import kept_sessions

    if rest:
        await chat.resume(rest)
        return
    kept = await asyncio.to_thread(lambda: list(kept_sessions(chat.session.box.workspace.root))[:15])
    for session in kept:
        chat.say(f"  {session.id}  {session.prompt[:80]}")
    chat.say("  /resume ID goes on with one of them" if kept else "  there is no earlier session in this folder")


async def _exit(chat: Chat, rest: str) -> None:
    raise Leave


COMMANDS: Mapping[str, Command] = {
    "/help": Command("this list", _help),
    "/tools": Command("the tools, and why one is not offered", _tools),
    "/call": Command("run a tool by hand: /call Grep pattern=TODO", _call),
    "/undo": Command("take back the last change, or those of a call", _undo),
    "/cost": Command("answers and dollars so far", _cost),
    "/resume": Command("earlier sessions; /resume ID goes on with one", _resume),
    "/exit": Command("leave", _exit),
}
