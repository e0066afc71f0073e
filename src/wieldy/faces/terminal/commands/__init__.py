"""Slash commands of the interactive session, and what the first character of a line means."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from wieldy.faces.terminal.commands import by_hand, changes, conversation, information, prompts
from wieldy.faces.terminal.commands.command import Command, ExitChat

if TYPE_CHECKING:
    from wieldy.faces.terminal.chat import Chat

__all__ = ["COMMANDS", "Command", "ExitChat", "find_command", "run_line"]


async def _help(chat: Chat, rest: str) -> None:
    if rest:
        name = rest if rest.startswith("/") else f"/{rest}"
        _explain(chat, name) if name in COMMANDS else _say_unknown(chat, name)
        return
    rows = {f"{name} {command.usage}".strip(): command.about for name, command in COMMANDS.items()}
    rows |= {f"/{name}": about for name, about in (await prompts.list_named_prompts(chat)).items()}
    rows |= {
        "!command": "run a shell command; the model sees its output with your next prompt",
        "#note": "remember a note for later sessions",
        "@path": "name a file, with completion",
        "Esc, Ctrl-C": "stop the run; Ctrl-C twice: exit",
    }
    chat.say("\n".join(_help_row(usage, about) for usage, about in rows.items()))


def _help_row(usage: str, about: str) -> str:
    """Lay out a row of the help: a long usage has a line of its own, so that the descriptions stay in one column."""
    return f"  {usage:<24} {about}" if len(usage) <= 24 else f"  {usage}\n{'':<27}{about}"


def _explain(chat: Chat, name: str) -> None:
    command = COMMANDS[name]
    chat.say(f"  {name} {command.usage}".rstrip() + f"\n  {command.about}")


def _say_unknown(chat: Chat, name: str) -> None:
    from wieldy.core.text import nearest_name

    near = nearest_name(name[1:], [each[1:] for each in COMMANDS])
    hint = f"did you mean /{near}?" if near else "/help lists them"
    chat.say(f"there is no command {name}; {hint}", "red")


COMMANDS: Mapping[str, Command] = {
    "/help": Command("list the commands", _help, while_running=True, usage="[COMMAND]"),
    "/tools": Command("list the tools, and why one is not offered", information.tools, while_running=True),
    "/call": Command("run a tool by hand: /call Grep pattern=TODO", by_hand.call, usage="TOOL key=value …"),
    "/permissions": Command(
        "list the rules; allow, deny, ask or remove one",
        information.permissions,
        while_running=True,
        usage="[allow|deny|ask|remove RULE]",
    ),
    "/mode": Command(
        "show or change the permission mode",
        conversation.mode,
        while_running=True,
        usage="[MODE]",
        complete=conversation.mode_names,
    ),
    "/model": Command("show or change the model", conversation.model, usage="[NAME]"),
    "/undo": Command(
        "take back the last change; the changes of a call, of the last turn, or all of this session",
        changes.undo,
        usage="[CALL|--turn|--all] [--merge]",
    ),
    "/redo": Command("bring back what the last undo or rewind took back", changes.redo, usage="[--merge]"),
    "/rewind": Command("go back to before a prompt: files, conversation or both", changes.rewind),
    "/diff": Command("show what this session has changed", changes.diff, while_running=True),
    "/mcp": Command(
        "list MCP servers and their prompts, or connect to one again", information.mcp, usage="[reconnect NAME]"
    ),
    "/agents": Command("list the subagent types, and the subagents of this session", information.agents),
    "/tasks": Command("list background shells and subagents; stop one", information.tasks, while_running=True),
    "/cost": Command("show answers, tokens and cost so far", information.cost, while_running=True),
    "/context": Command("show what fills the context window", information.context, while_running=True),
    "/compact": Command("replace the conversation by a summary", conversation.compact, usage="[WHAT TO KEEP]"),
    "/clear": Command("start a new session in this folder", conversation.clear),
    "/resume": Command("choose an earlier session of this folder", conversation.resume, usage="[ID]"),
    "/copy": Command(
        "copy the last answer, or its code block N, to the clipboard",
        conversation.copy,
        while_running=True,
        usage="[N]",
    ),
    "/export": Command(
        "write the conversation to a Markdown file", conversation.export, while_running=True, usage="[FILE]"
    ),
    "/reload": Command("read the settings again", information.reload),
    "/exit": Command("end the session", conversation.exit_chat, while_running=True),
}


def find_command(line: str) -> Command | None:
    """The command that a line calls, if any."""
    return COMMANDS.get(line.strip().partition(" ")[0]) if line.lstrip().startswith("/") else None


async def run_line(chat: Chat, line: str) -> None:
    """Handle a line of the person: a command, a shell command after `!`, a note after `#`, or a prompt."""
    text = line.strip()
    if text.startswith("!"):
        await by_hand.shell(chat, text[1:].strip())
    elif text.startswith("#") and not text.startswith("##") and "\n" not in text:
        await by_hand.remember(chat, text[1:].strip())
    elif text.startswith("/") and (name := text.split(maxsplit=1)[0]) and "/" not in name[1:]:
        rest = text[len(name) :].strip()
        command = find_command(name)
        if command is not None and rest in ("--help", "-h"):
            _explain(chat, name)
        elif command is not None and rest and not command.usage:
            chat.say(f"{name} takes no argument", "red")
        elif command is not None:
            await command.run(chat, rest)
        elif not await prompts.send_named_prompt(chat, name[1:], rest):
            _say_unknown(chat, name)
    elif text:
        await chat.send(line.strip("\n"))
