"""What a person does by hand: tools, shell commands, notes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from wieldy.core.text import truncate_middle
from wieldy.core.threads import in_thread
from wieldy.faces.terminal.calls import parse_input, split_words

if TYPE_CHECKING:
    from wieldy.faces.terminal.chat import Chat

MAX_SHARED_CHARS = 10_000
NOTE_FILES = ("AGENTS.md", "CLAUDE.md")


async def call(chat: Chat, rest: str) -> None:
    """`/call`: run a tool."""
    name, _, fields = rest.partition(" ")
    if not name:
        chat.say("/call TOOL key=value …, for example /call Grep pattern=TODO")
        return
    await chat.call(name, parse_input(split_words(fields.strip()), chat.session.box.catalog.find(name)))


async def shell(chat: Chat, command: str) -> None:
    """`!command`: run it unasked. The model sees it with the next prompt."""
    if not command:
        chat.say("!command runs a shell command, for example !ls")
        return
    result = await chat.call("Bash", {"command": command})
    output = truncate_middle(result.text, MAX_SHARED_CHARS)
    chat.tell_model(f"The user ran this command themselves:\n$ {command}\n{output}")


async def remember(chat: Chat, note: str) -> None:
    """`#note`: add a line to the instructions of this project, or to the user's own."""
    if not note:
        chat.say("#note remembers a note for later sessions, for example #use tabs")
        return
    root = chat.session.box.settings.root
    project = next((name for name in NOTE_FILES if os.path.isfile(os.path.join(root, name))), NOTE_FILES[0])
    own = _own_file(chat)
    choice = await chat.surface.choose(
        "Where should this be remembered?",
        [note],
        [f"{project} (this project)", f"{own} (all your projects)", "nowhere"],
    )
    if choice not in (0, 1):
        chat.say("nothing was remembered", "dim")
        return
    path = os.path.join(root, project) if choice == 0 else str(own)
    before = await in_thread(_read, path)
    separator = "" if not before or before.endswith("\n") else "\n"
    if before:
        await chat.session.box.call("Read", {"file_path": path})
    result = await chat.call("Write", {"file_path": path, "content": f"{before}{separator}- {note}\n"})
    if not result.is_error:
        chat.tell_model(f"The user added this to {path}: {note}")


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def _own_file(chat: Chat) -> str:
    from wieldy.core.state_dirs import config_home

    return str(config_home(chat.session.box.workspace.env) / NOTE_FILES[0])
