"""What a person can type that is not for the model."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from wieldy.core.content import Image
from wieldy.core.errors import WieldyError
from wieldy.core.outcome import ToolResult
from wieldy.core.threads import in_thread
from wieldy.core.tool import Tool
from wieldy.engine.pipeline import nearest

if TYPE_CHECKING:
    from wieldy.terminal.chat import Chat


class Leave(Exception):
    """The person wants to go."""


class Command(Struct, frozen=True):
    """One slash command."""

    about: str
    run: Callable[[Chat, str], Awaitable[None]]


def first_sentence(text: str) -> str:
    """What a description says first."""
    return text.partition(". ")[0].rstrip(".")


async def _help(chat: Chat, rest: str) -> None:
    for name, command in COMMANDS.items():
        chat.say(f"  {name:<10} {command.about}")
    chat.say("  !command   run a shell command through the Bash tool")
    chat.say("  Ctrl-C     stop what is running; twice: leave")


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
    result = await box.call(name, input_of(words_of(fields.strip()), box.catalog.find(name)))
    chat.say(shown(result), *(["red"] if result.is_error else []))


async def _mcp(chat: Chat, rest: str) -> None:
    from wieldy.mcp.client.manager import McpServers
    from wieldy.mcp.client.prompts import list_prompts

    servers = chat.session.box.workspace.service(McpServers)
    for name, state in servers.states().items():
        entry = servers.servers.get(name)
        about = f"{len(entry.tools)} tools" if entry and state.name == "ready" else str(state)
        chat.say(f"  {name:<18} {about}")
    if not servers.states():
        chat.say("  no MCP server is configured; `wieldy mcp add --help` shows how")
    elif prompts := await list_prompts(servers):
        chat.say("  prompts:")
        for prompt in prompts.values():
            chat.say(f"  {prompt.usage}  {prompt.description}")


async def _agents(chat: Chat, rest: str) -> None:
    from wieldy.subagents.definitions import AgentTypes
    from wieldy.subagents.tasks import SubagentRegistry

    workspace = chat.session.box.workspace
    types = workspace.service(AgentTypes)
    for kind in (await in_thread(types.refresh)).values():
        where = "" if kind.origin == "built-in" else f" ({kind.origin})"
        chat.say(f"  {kind.name:<18} {first_sentence(kind.description)}{where}")
    sent = workspace.service(SubagentRegistry).all()
    chat.say("  sent in this session:" if sent else "  none was sent in this session")
    for one in sent:
        report = one.future.result() if not one.running else one.current_report()
        chat.say(f"  {report.why:<18} {one.task.title} [{report.summary()}]")
    for problem in types.problems:
        chat.say(f"  left out: {problem}", "yellow")


async def prompted(chat: Chat, name: str, rest: str) -> None:
    """Have a prompt of an MCP server told to the model."""
    from wieldy.core.errors import ToolFailure
    from wieldy.mcp.client.manager import McpServers
    from wieldy.mcp.client.prompts import list_prompts, render_prompt

    servers = chat.session.box.workspace.service(McpServers)
    await servers.wait_for_tool(name.removeprefix("/"))
    prompt = (await list_prompts(servers)).get(name.removeprefix("/"))
    if prompt is None:
        chat.say(f"there is no {name}; /mcp lists the prompts there are", "red")
        return
    try:
        text = await render_prompt(servers, prompt, rest)
    except ToolFailure as failure:
        chat.say(failure.message, "red")
        return
    await chat.told(text)


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
    servers = settings.get("mcpServers", {})
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
    chat.say("  /resume ID goes on with one of them" if sessions else "  there is no earlier session in this folder")


async def _exit(chat: Chat, rest: str) -> None:
    raise Leave


COMMANDS: Mapping[str, Command] = {
    "/help": Command("this list", _help),
    "/tools": Command("the tools, and why one is not offered", _tools),
    "/call": Command("run a tool by hand: /call Grep pattern=TODO", _call),
    "/mcp": Command("the MCP servers and their prompts; /mcp__SERVER__PROMPT tells one to the model", _mcp),
    "/agents": Command("the kinds of sub-agent, and those that were sent", _agents),
    "/undo": Command("take back the last change of this session, or those of a call", _undo),
    "/reload": Command("read the settings again", _reload),
    "/cost": Command("answers and dollars so far", _cost),
    "/resume": Command("earlier sessions; /resume ID goes on with one", _resume),
    "/exit": Command("leave", _exit),
}


class Unclear(WieldyError):
    """What was typed makes no input; one line says why."""


def words_of(line: str) -> list[str]:
    """The words of a line that was typed for a tool: JSON or a command as it stands, fields as a shell would part them."""
    import shlex

    if line.startswith(("{", "command=")):
        return [line]
    try:
        return shlex.split(line)
    except ValueError:
        raise Unclear("a quotation mark is not closed") from None


def input_of(words: list[str], tool: Tool | None) -> Mapping[str, Any] | str:
    """A tool's input from words: one JSON object, or fields. Raises `Unclear`."""
    if len(words) == 1 and words[0].lstrip().startswith("{"):
        return words[0]
    properties = tool.schema.get("properties", {}) if tool else {}
    names = [*properties, *(tool.parameters.aliases if tool else ())]
    fields: dict[str, Any] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise Unclear(f"`{word}` is not key=value; fields of this tool: {', '.join(properties) or 'none'}")
        if properties and key not in names and (near := nearest(key, names, most=1)):
            raise Unclear(f"{tool.name if tool else ''} takes no `{key}`; did you mean `{near[0]}`?")
        fields[key] = _value(value, properties.get(key, {}))
    return fields


def _value(text: str, schema: Any) -> Any:
    """Text stays text where the schema takes text; elsewhere it is JSON if it can be."""
    if not isinstance(schema, dict) or _takes_text(schema):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def _takes_text(schema: Mapping[str, Any]) -> bool:
    kind = schema.get("type")
    if kind is None and "anyOf" in schema:
        return any(_takes_text(option) for option in schema["anyOf"])
    return kind is None or kind == "string" or (isinstance(kind, list) and "string" in kind)


def shown(result: ToolResult) -> str:
    """A result for a person: text as it is, pictures by their size."""
    return "\n".join(
        f"[{block.media_type}, {len(block.data) * 3 // 4:,} bytes; --json prints it]"
        if isinstance(block, Image)
        else block.text
        for block in result.content
    )
