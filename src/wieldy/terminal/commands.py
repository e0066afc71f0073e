"""Slash commands of the interactive session."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from wieldy.core.errors import ToolFailure
from wieldy.core.threads import in_thread
from wieldy.terminal.tool_input import parse_input, split_words

if TYPE_CHECKING:
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion
    from prompt_toolkit.document import Document

    from wieldy.terminal.chat import Chat


class ExitChat(Exception):
    """The user leaves the session."""


class Command(Struct, frozen=True):
    """A slash command. `while_running`: it does not wait for the end of a run."""

    about: str
    run: Callable[[Chat, str], Awaitable[None]]
    while_running: bool = False


def find_command(line: str) -> Command | None:
    """The command that a line calls, if any."""
    return COMMANDS.get(line.strip().partition(" ")[0]) if line.lstrip().startswith("/") else None


async def run_line(chat: Chat, line: str) -> None:
    """Handle a line of the person: a command, a shell command after `!`, or a prompt."""
    text = line.strip()
    if text.startswith("!"):
        await _shell(chat, text[1:].strip())
    elif text.startswith("/") and (name := text.partition(" ")[0]) and "/" not in name[1:]:
        rest = text[len(name) :].strip()
        command = find_command(text)
        if name.startswith("/mcp__"):
            await send_mcp_prompt(chat, name, rest)
        elif command is None:
            chat.say(f"there is no command {name}; /help lists them", "red")
        else:
            await command.run(chat, rest)
    elif text:
        await chat.send(line.strip("\n"))


async def _shell(chat: Chat, command: str) -> None:
    if command:
        await chat.call("Bash", {"command": command})


def first_sentence(text: str) -> str:
    return text.partition(". ")[0].rstrip(".")


async def _help(chat: Chat, rest: str) -> None:
    for name, command in COMMANDS.items():
        chat.say(f"  {name:<10} {command.about}")
    chat.say("  !command   run a shell command through the Bash tool")
    chat.say("  Esc        stop the run; Ctrl-C twice: exit")


async def _tools(chat: Chat, rest: str) -> None:
    for entry in await chat.session.box.offer():
        first = first_sentence(entry.tool.description)
        chat.say(f"  {entry.tool.name:<18} {first if entry.offered else f'not offered: {entry.reason}'}")


async def _call(chat: Chat, rest: str) -> None:
    name, _, fields = rest.partition(" ")
    if not name:
        chat.say("/call TOOL key=value …, for example /call Grep pattern=TODO", "yellow")
        return
    box = chat.session.box
    await chat.call(name, parse_input(split_words(fields.strip()), box.catalog.find(name)))


async def _mcp(chat: Chat, rest: str) -> None:
    from wieldy.mcp.client.prompts import list_prompts

    servers = chat.session.box.workspace.services.mcp_servers
    for name, state in servers.states().items():
        server = servers.servers.get(name)
        about = f"{len(server.tools)} tools" if server and state.name == "ready" else str(state)
        chat.say(f"  {name:<18} {about}")
    if not servers.states():
        chat.say("  no MCP server is configured; `wieldy mcp add --help` shows how")
    elif prompts := await list_prompts(servers):
        chat.say("  prompts:")
        for prompt in prompts.values():
            chat.say(f"  {prompt.usage}  {prompt.description}")


async def _agents(chat: Chat, rest: str) -> None:

    workspace = chat.session.box.workspace
    types = workspace.services.agent_types
    for kind in (await in_thread(types.refresh)).values():
        where = "" if kind.origin == "built-in" else f" ({kind.origin})"
        chat.say(f"  {kind.name:<18} {first_sentence(kind.description)}{where}")
    subagents = workspace.services.subagent_registry.all()
    chat.say("  started in this session:" if subagents else "  none was started in this session")
    for subagent in subagents:
        report = subagent.future.result() if not subagent.running else subagent.current_report()
        chat.say(f"  {report.why:<18} {subagent.task.title} [{report.summary()}]")
    for problem in types.problems:
        chat.say(f"  left out: {problem}", "yellow")


async def send_mcp_prompt(chat: Chat, name: str, rest: str) -> None:
    """Send a prompt of an MCP server to the model."""
    from wieldy.mcp.client.prompts import list_prompts, render_prompt

    servers = chat.session.box.workspace.services.mcp_servers
    await servers.wait_for_tool(name.removeprefix("/"))
    prompt = (await list_prompts(servers)).get(name.removeprefix("/"))
    if prompt is None:
        chat.say(f"there is no {name}; /mcp lists the prompts", "red")
        return
    try:
        text = await render_prompt(servers, prompt, rest)
    except ToolFailure as failure:
        chat.say(failure.message, "red")
        return
    await chat.send(text)


async def _undo(chat: Chat, rest: str) -> None:
    from wieldy.files.journal.undo import plan_lines

    plan = await chat.session.box.undo(rest or None)
    chat.say("\n".join(plan_lines(plan)))


async def _reload(chat: Chat, rest: str) -> None:
    box = chat.session.box
    settings = await box.reload()
    if settings.errors:
        chat.say("\n".join(f"  {error}" for error in settings.errors), "red")
        chat.say("  the settings stay as they were")
        return
    servers = settings.get("mcpServers")
    counts = f"{len(settings.rules.rules)} rules, {len(box.hooks.hooks)} hooks, {len(servers)} MCP servers"
    chat.say(f"  the settings were read again: {counts}")
    for problem in (*settings.warnings, *box.hook_problems):
        chat.say(f"  {problem}", "yellow")


async def _cost(chat: Chat, rest: str) -> None:
    conversation = chat.session.conversation
    chat.say(f"  {conversation.turns} answers, ${conversation.cost:.4f}")


async def _resume(chat: Chat, rest: str) -> None:
    from wieldy.agent.store import stored_sessions

    if rest:
        await chat.resume(rest)
        return
    sessions = await asyncio.to_thread(lambda: list(stored_sessions(chat.session.box.workspace.root))[:15])
    for session in sessions:
        chat.say(f"  {session.id}  {session.prompt[:80]}")
    chat.say("  /resume ID resumes one of them" if sessions else "  there is no earlier session in this folder")


async def _exit(chat: Chat, rest: str) -> None:
    raise ExitChat


COMMANDS: Mapping[str, Command] = {
    "/help": Command("this list", _help, while_running=True),
    "/tools": Command("list the tools, and why one is not offered", _tools, while_running=True),
    "/call": Command("run a tool by hand: /call Grep pattern=TODO", _call),
    "/mcp": Command("list MCP servers and their prompts; /mcp__SERVER__PROMPT sends one to the model", _mcp),
    "/agents": Command("list the subagent types, and the subagents of this session", _agents),
    "/undo": Command("undo the last change of this session, or the changes of a call", _undo),
    "/reload": Command("read the settings again", _reload),
    "/cost": Command("show the number of answers and the cost so far", _cost, while_running=True),
    "/resume": Command("list earlier sessions; /resume ID resumes one", _resume),
    "/exit": Command("end the session", _exit, while_running=True),
}


def create_completer(chat: Chat) -> Completer:
    """Complete the names of commands."""
    from prompt_toolkit.completion import Completer, Completion

    class CommandCompleter(Completer):
        def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
            text = document.text_before_cursor
            if text.startswith("/") and " " not in text:
                for name, command in COMMANDS.items():
                    if name.startswith(text):
                        yield Completion(name, start_position=-len(text), display_meta=command.about)

    return CommandCompleter()
