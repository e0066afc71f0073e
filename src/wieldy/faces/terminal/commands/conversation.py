"""Commands about the conversation: model, mode, compaction, other sessions, copies and exports."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wieldy.core.text import truncate_line, without_reminders
from wieldy.core.threads import in_thread
from wieldy.faces.terminal.commands.command import ExitChat

if TYPE_CHECKING:
    from wieldy.faces.terminal.chat import Chat

SHOWN_SESSIONS = 15
_CODE_BLOCK = re.compile(r"^(`{3,}|~{3,})[^\n]*\n(.*?)^\1[ \t]*$", re.MULTILINE | re.DOTALL)


def mode_names(chat: Chat) -> Sequence[str]:
    """The permission modes."""
    from wieldy.policy.permissions.modes import MODES

    return list(MODES)


async def mode(chat: Chat, rest: str) -> None:
    """`/mode`: show or change the permission mode."""
    if rest:
        try:
            chat.session.mode = rest
        except ValueError as error:
            chat.say(str(error), "red")
            return
    chat.say(f"the mode is {chat.session.mode}" + ("" if rest else f"; /mode takes {', '.join(mode_names(chat))}"))


async def model(chat: Chat, rest: str) -> None:
    """`/model`: show or change the model."""
    from wieldy.models.catalog import with_provider

    if rest:
        chat.session.set_model(with_provider(rest))  # an error is shown, and the model stays
    if not chat.has_model:
        chat.say("there is no model; /model NAME sets one, for example /model claude-sonnet-5-5")
        return
    window = chat.session.provider.context_window
    chat.say(f"the model is {chat.session.model_name} ({window:,} tokens)")


async def compact(chat: Chat, rest: str) -> None:
    """`/compact`: replace the conversation by a summary."""
    if not chat.session.conversation.messages:
        chat.say("there is nothing to compact", "dim")
        return
    await chat.session.compact(rest)


async def clear(chat: Chat, rest: str) -> None:
    """`/clear`: go on in a new session."""
    before = chat.session.id if chat.session.messages else ""
    await chat.resume(None)
    chat.say("a new session" + (f"; /resume {before} goes back to the last one" if before else ""), "dim")


async def resume(chat: Chat, rest: str) -> None:
    """`/resume`: choose an earlier session, or name it by its id or by a part of its first prompt."""
    from wieldy.agent.store import stored_sessions

    root = chat.session.box.workspace.root
    sessions = [each for each in await in_thread(lambda: list(stored_sessions(root))) if each.id != chat.session.id]
    if rest and not any(each.id.startswith(rest) for each in sessions):
        sessions = [each for each in sessions if rest.casefold() in each.prompt.casefold()]
        if not sessions:
            chat.say(f"no session of this folder has the id or the words `{rest}`", "red")
            return
    elif rest:
        await chat.resume(rest)
        return
    if not sessions:
        chat.say("there is no earlier session in this folder", "dim")
        return
    sessions = sessions[:SHOWN_SESSIONS]
    names = [
        f"{each.id}  {time.strftime('%Y-%m-%d %H:%M', time.localtime(each.changed))}  {truncate_line(each.prompt, 60)}"
        for each in sessions
    ]
    choice = await chat.surface.choose("Resume which session?", [], names)
    if choice is not None:
        await chat.resume(sessions[choice].id)


async def copy(chat: Chat, rest: str) -> None:
    """`/copy`: the last answer, or one of its code blocks, to the clipboard."""
    from wieldy.faces.terminal.desktop import copy_text

    answer = chat.view.last_answer or _last_answer(chat.session.messages)
    if not answer.strip():
        chat.say("there is no answer to copy", "dim")
        return
    blocks = [match[2] for match in _CODE_BLOCK.finditer(answer)]
    if rest:
        if not rest.isdigit() or not 1 <= int(rest) <= len(blocks):
            chat.say(f"the last answer has {len(blocks)} code blocks; /copy N copies one")
            return
        what, text = f"code block {rest}", blocks[int(rest) - 1]
    else:
        what, text = "the last answer", answer
    chat.say(await copy_text(text, what, chat.session.box.workspace.env))


async def export(chat: Chat, rest: str) -> None:
    """`/export`: the conversation as Markdown."""
    messages = chat.session.messages
    if not messages:
        chat.say("there is nothing to export", "dim")
        return
    name = rest or f"wieldy-{chat.session.id[:8]}.md"
    path = Path(chat.session.box.workspace.root, os.path.expanduser(name))
    if path.exists():
        chat.say(f"{path} exists; /export FILE takes another name")
        return
    await in_thread(path.write_text, conversation_markdown(messages), "utf-8")
    chat.say(f"the conversation is in {path}")


async def exit_chat(chat: Chat, rest: str) -> None:
    """`/exit`: leave."""
    raise ExitChat


def conversation_markdown(messages: Sequence[Mapping[str, Any]]) -> str:
    """A conversation as Markdown: prompts as headings, answers as they are, calls and results folded to code blocks."""
    parts: list[str] = []
    for message in messages:
        for block in message["content"]:
            match block["type"]:
                case "text" if message["role"] == "user":
                    text = without_reminders(block["text"]).strip()
                    parts.append(f"## {text}" if text else "")
                case "text":
                    parts.append(block["text"].strip())
                case "tool_use":
                    fields = "\n".join(f"{name}: {value}" for name, value in block["input"].items())
                    parts.append(f"**{block['name']}**\n\n{_fenced(fields)}")
                case "tool_result":
                    content = block.get("content") or ""
                    text = content if isinstance(content, str) else "\n".join(each.get("text", "") for each in content)
                    parts.append(_fenced(text))
    return "\n\n".join(part for part in parts if part) + "\n"


def _fenced(text: str) -> str:
    fence = "`" * max(3, *(len(run) + 1 for run in re.findall(r"`{3,}", text)), 3)
    return f"{fence}\n{text.rstrip()}\n{fence}"


def _last_answer(messages: Sequence[Mapping[str, Any]]) -> str:
    for message in reversed(messages):
        texts = [block["text"] for block in message["content"] if block["type"] == "text"]
        if message["role"] == "assistant" and texts:
            return "\n".join(texts)
    return ""
