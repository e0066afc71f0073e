"""Prompts with a name: skills, command files and prompts of MCP servers, each sent by `/name`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from wieldy.core.errors import ToolFailure
from wieldy.core.project_text import read_project_bytes
from wieldy.core.state_dirs import config_home, user_home
from wieldy.core.text import truncate_line
from wieldy.core.threads import in_thread
from wieldy.policy.permissions.paths import is_below

if TYPE_CHECKING:
    from wieldy.core.workspace import Workspace
    from wieldy.faces.terminal.chat import Chat

COMMAND_FOLDERS = (".wieldy/commands", ".claude/commands")
MAX_FILES = 500
MAX_BYTES = 256 << 10
MCP_PREFIX = "mcp__"
_POSITIONAL = re.compile(r"\$([1-9])")


class CommandFile(Struct, frozen=True):
    """A Markdown file in a commands folder: `git/push.md` is `/git:push`."""

    name: str
    description: str
    body: str

    def render(self, arguments: str) -> str:
        """The text to send: `$ARGUMENTS` and `$1` … `$9` are filled in, or the arguments follow the text."""
        words = arguments.split()
        body = _POSITIONAL.sub(lambda match: (words[int(match[1]) - 1 :] or [""])[0], self.body)
        if "$ARGUMENTS" in body:
            return body.replace("$ARGUMENTS", arguments)
        return f"{body}\n\nArguments: {arguments}" if arguments and body == self.body else body


def find_command_files(workspace: Workspace) -> dict[str, CommandFile]:
    """Read the command files of the user, then those of the project; the user's win. Blocks on the disk."""
    home = user_home(workspace.env)
    own = (config_home(workspace.env) / "commands", home / ".claude" / "commands")
    files: dict[str, CommandFile] = {}
    project = Path(workspace.root)
    for folder, within in (*((each, each) for each in own), *((project / name, project) for name in COMMAND_FOLDERS)):
        for path in _markdown_files(folder):
            # A link of a project must not send the user's other files to a model.
            if not is_below(os.path.realpath(path), os.path.realpath(within)):
                continue
            name = ":".join(path.relative_to(folder).with_suffix("").parts)
            if (file := _read(path, name)) is not None:
                files.setdefault(name, file)
    return files


def _markdown_files(folder: Path) -> Iterator[Path]:
    if folder.is_dir():
        count = 0
        for parent, _, names in os.walk(folder):
            for name in sorted(names):
                if name.endswith(".md") and count < MAX_FILES:
                    count += 1
                    yield Path(parent, name)


def _read(path: Path, name: str) -> CommandFile | None:
    from wieldy.tools.skills import FrontMatterError, parse_markdown

    try:
        text = read_project_bytes(path, max_bytes=MAX_BYTES).decode("utf-8")
    except (OSError, ValueError):
        return None
    try:
        parsed = parse_markdown(text)
        description, body = str(parsed.fields.get("description") or ""), parsed.body
    except FrontMatterError:
        description, body = "", text
    about = description or next((line.strip("# ") for line in body.splitlines() if line.strip()), "")
    return CommandFile(name, truncate_line(about, 100), body.strip())


async def list_named_prompts(chat: Chat) -> dict[str, str]:
    """Every name that `/name` sends, with what it is for."""
    from wieldy.mcp.resources import list_prompts

    workspace = chat.session.box.workspace
    services = workspace.services
    names = {name: file.description for name, file in (await in_thread(find_command_files, workspace)).items()}
    await services.skills.refresh_in_thread()
    for name, skill in services.skills.definitions.items():
        names.setdefault(name, truncate_line(skill.description, 100))
    if chat.session.box.settings.get("mcpServers"):
        for prompt in (await list_prompts(services.mcp_servers)).values():
            names.setdefault(prompt.usage.lstrip("/"), truncate_line(prompt.description, 100))
    return names


async def send_named_prompt(chat: Chat, name: str, arguments: str) -> bool:
    """Send a command file, a skill or a prompt of a server; false where nothing has this name."""
    from wieldy.tools.skills import render_skill

    shown = f"/{name} {arguments}".rstrip()
    if name.startswith(MCP_PREFIX):
        return await _send_mcp_prompt(chat, name, arguments, shown)
    workspace = chat.session.box.workspace
    file = (await in_thread(find_command_files, workspace)).get(name)
    if file is not None:
        await chat.send(file.render(arguments), shown=shown)
        return True
    await workspace.services.skills.refresh_in_thread()
    skill = workspace.services.skills.definitions.get(name)
    if skill is not None:
        await chat.send(render_skill(skill, arguments), shown=shown)
    return skill is not None


async def _send_mcp_prompt(chat: Chat, name: str, arguments: str, shown: str) -> bool:
    from wieldy.mcp.resources import list_prompts, render_prompt

    servers = chat.session.box.workspace.services.mcp_servers
    await servers.wait_for_tool(name)
    prompt = (await list_prompts(servers)).get(name)
    if prompt is None:
        chat.say(f"there is no /{name}; /mcp lists the prompts", "red")
        return True
    try:
        text = await render_prompt(servers, prompt, arguments)
    except ToolFailure as failure:
        chat.say(failure.person, "red")
        return True
    await chat.send(text, shown=shown)
    return True
