"""Tools, results and skills of a toolbox in the form an MCP client sees them."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import mcp_types as types

from wieldy.core.json_values import to_json
from wieldy.core.outcome import Block, Image, ToolResult
from wieldy.core.threads import in_thread
from wieldy.core.tool import Tool
from wieldy.engine.toolbox import Toolbox
from wieldy.tools.skills import Skills, render_skill

MAX_STRUCTURED_CHARS = 1_000_000
MAX_RESULT_BYTES = 32 * 1024 * 1024
RESULT_SCHEME = "wieldy://results/"
RESULT_TEMPLATE = RESULT_SCHEME + "{name}"
_FILE_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")
_SURROGATE = re.compile("[\ud800-\udfff]")

JsonObject: TypeAlias = dict[str, Any]


async def list_tools(box: Toolbox) -> list[types.Tool]:
    """Return every offered tool, in the order a model sees them."""
    workspace = box.workspace
    return [
        convert_tool(entry.tool, await entry.tool.describe(workspace)) for entry in await box.offer() if entry.offered
    ]


def convert_tool(tool: Tool, description: str) -> types.Tool:
    """Describe one tool: its prompt, its input, and hints for clients that decide how freely it may be called."""
    title = tool.title or None
    return types.Tool(
        name=tool.name,
        title=title,
        description="\n\n".join(part for part in (description.strip(), tool.prompt.strip()) if part),
        input_schema=tool.schema,
        annotations=types.ToolAnnotations(
            title=title,
            read_only_hint=tool.read_only,
            destructive_hint=not tool.read_only and _may_be_destructive(tool),
            idempotent_hint=tool.read_only,
        ),
    )


def _may_be_destructive(tool: Tool) -> bool:
    """Return whether a call may do what undo cannot revert; a tool that needs its input to decide may."""
    try:
        return tool.destructive({})
    except (LookupError, TypeError, ValueError):
        return True


def convert_result(result: ToolResult, links: Sequence[JsonObject] = ()) -> JsonObject:
    """Return a `tools/call` result. Every failure is a result that the model reads, never a protocol error."""
    content = [*map(_convert_block, result.content), *links]
    # The SDK removes the type for clients of protocol versions that do not have it.
    converted: JsonObject = {"resultType": "complete", "content": content, "isError": result.is_error}
    if result.data is not None and (structured := _structured_content(result.data)) is not None:
        converted["structuredContent"] = structured
    return converted


def _convert_block(block: Block) -> JsonObject:
    if isinstance(block, Image):
        return {"type": "image", "data": block.data, "mimeType": block.media_type}
    return {"type": "text", "text": replace_surrogates(block.text)}


def _structured_content(data: Any) -> JsonObject | None:
    """Return the data as a JSON object; None where JSON cannot hold it, or it would flood the client."""
    value = to_json(data)
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except ValueError:
        return None
    if len(text) > MAX_STRUCTURED_CHARS:
        return None
    if (valid := replace_surrogates(text)) != text:
        value = json.loads(valid)
    return value if isinstance(value, dict) else {"result": value}


def replace_surrogates(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot encode; file names that are not UTF-8 contain them."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


class NoSuchResult(LookupError):
    """The URI is not that of a spilled result; the message says what to do."""


class SpilledResults:
    """Results of one toolbox that were too long and were saved to files, as MCP resources."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._path = re.compile(re.escape(f"{folder}{os.sep}") + f"({_FILE_NAME.pattern})")

    def links(self, text: str) -> list[JsonObject]:
        """Return resource links for the files that a text mentions."""
        if str(self.folder) not in text:
            return []
        names = dict.fromkeys(name.rstrip(".") for name in self._path.findall(text))
        return [
            {
                "type": "resource_link",
                "uri": RESULT_SCHEME + name,
                "name": name,
                "mimeType": "text/plain",
                "size": (self.folder / name).stat().st_size,
            }
            for name in names
            if self._is_regular(name)
        ]

    def list_resources(self) -> list[types.Resource]:
        """Return every spilled result, sorted by name."""
        try:
            names = sorted(filter(_FILE_NAME.fullmatch, os.listdir(self.folder)))
        except FileNotFoundError:
            return []
        return [
            types.Resource(
                uri=RESULT_SCHEME + name,
                name=name,
                mime_type="text/plain",
                size=(self.folder / name).stat().st_size,
            )
            for name in names
            if self._is_regular(name)
        ]

    def read(self, uri: str) -> str:
        """Return the text of a spilled result. Raises `NoSuchResult`."""
        name = uri.removeprefix(RESULT_SCHEME)
        if name == uri or not _FILE_NAME.fullmatch(name):
            raise NoSuchResult(f"{uri[:200]} is not the address of a kept result; resources/list names them")
        path = self.folder / name
        try:
            # A symlink could leave the folder, and reading a pipe would block.
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            raise _no_such_result(name) from None
        try:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                raise _no_such_result(name)
            if status.st_size > MAX_RESULT_BYTES:
                raise NoSuchResult(
                    f"{name} is a kept result too big to be sent in one piece ({status.st_size:,} bytes). "
                    f"Read {path} in parts with Read."
                )
            with open(fd, "rb", closefd=False) as file:
                return file.read().decode("utf-8", errors="replace")
        finally:
            os.close(fd)

    def _is_regular(self, name: str) -> bool:
        try:
            return stat.S_ISREG(os.lstat(self.folder / name).st_mode)
        except OSError:
            return False


def _no_such_result(name: str) -> NoSuchResult:
    return NoSuchResult(f"there is no kept result {name}; resources/list names them")


class NoSuchPrompt(LookupError):
    """There is no skill of this name that may be read; the message says what to do."""


class SkillPrompts:
    """Skills of one toolbox as MCP prompts, discovered again for every request."""

    def __init__(self, box: Toolbox) -> None:
        self._box = box

    async def list_prompts(self) -> list[types.Prompt]:
        """Return every skill, also those that only a person may invoke: prompts are invoked by people."""
        argument = types.PromptArgument(name="arguments", description="What the skill is to be used on", required=False)
        skills = await self._skills()
        return [
            types.Prompt(name=skill.name, description=skill.description, arguments=[argument])
            for skill in skills.definitions.values()
        ]

    async def render(self, name: str, arguments: Mapping[str, str]) -> types.GetPromptResult:
        """Return a skill as a message; the names of arguments do not matter. Raises `NoSuchPrompt`."""
        skills = await self._skills()
        skill = skills.definitions.get(name)
        if skill is None:
            raise NoSuchPrompt(f"there is no prompt `{name[:100]}`; prompts/list names them")
        decision = await self._box.explain("Read", file_path=skill.path)
        if decision.behavior == "deny":
            raise NoSuchPrompt(f"the prompt `{name}` may not be read: {decision.why}")
        text = await in_thread(render_skill, skill, " ".join(filter(None, arguments.values())))
        message = types.PromptMessage(role="user", content=types.TextContent(text=text))
        return types.GetPromptResult(description=skill.description, messages=[message])

    async def _skills(self) -> Skills:
        skills = self._box.workspace.services.skills
        await in_thread(skills.refresh)
        skills.report_problems()
        return skills
