"""Our tools as an MCP client is shown them, and lists cut into pages."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from wieldy.core.content import Block, Image
from wieldy.core.outcome import ToolResult
from wieldy.core.threads import in_thread
from wieldy.core.tool import Tool
from wieldy.engine.results import to_json_value

if TYPE_CHECKING:
    import mcp_types as types

    from wieldy.skills.discovery import Skills
    from wieldy.toolbox import Toolbox


T = TypeVar("T")

PAGE = 100


class BadCursor(ValueError):
    """A client asked for a page that no answer of ours has named."""


async def shown_tools(box: Toolbox) -> list[types.Tool]:
    """Every tool that is offered, in the order of the pool."""
    workspace = box.workspace
    return [shown(entry.tool, await entry.tool.describe(workspace)) for entry in await box.offer() if entry.offered]


def shown(tool: Tool, description: str) -> types.Tool:
    """One tool: its words, its input, and hints for whoever decides how freely it may be called."""
    import mcp_types as types

    title = tool.title or None
    return types.Tool(
        name=tool.name,
        title=title,
        description="\n\n".join(part for part in (description.strip(), tool.prompt.strip()) if part),
        input_schema=tool.schema,
        annotations=types.ToolAnnotations(
            title=title,
            read_only_hint=tool.read_only,
            destructive_hint=not tool.read_only and _destroys(tool),
            idempotent_hint=tool.read_only,
        ),
    )


def _destroys(tool: Tool) -> bool:
    """Whether some call of a tool may do what undo cannot take back; one that needs its input to say so may."""
    try:
        return tool.destructive({})
    except (LookupError, TypeError, ValueError):
        return True


def page_of(items: Sequence[T], cursor: str | None) -> tuple[list[T], str | None]:
    """The items that a cursor stands for, and the cursor of those that follow."""
    if cursor is None:
        start = 0
    elif len(cursor) < 10 and cursor.isascii() and cursor.isdigit() and int(cursor) < len(items):
        start = int(cursor)
    else:
        raise BadCursor(f"there is no page `{cursor[:40]}`: list again from the start")
    end = start + PAGE
    return list(items[start:end]), str(end) if end < len(items) else None


MOST_STRUCTURED = 1_000_000
_HALF = re.compile("[\ud800-\udfff]")

Wire = dict[str, Any]


def as_wire(result: ToolResult, links: Sequence[Wire] = ()) -> Wire:
    """A `tools/call` result. Every failure is a result that the model reads, never an error of the protocol."""
    content = [*map(_block, result.content), *links]
    # Clients of the older revision are not sent the type: the SDK leaves out what a revision does not know.
    wire: Wire = {"resultType": "complete", "content": content, "isError": result.is_error}
    if result.data is not None and (structured := _structured(result.data)) is not None:
        wire["structuredContent"] = structured
    return wire


def whole(text: str) -> str:
    """The text without halves of characters, which no wire can carry; names of files that are no text hold them."""
    return text if text.isascii() else _HALF.sub("\ufffd", text)


def _block(block: Block) -> Wire:
    if isinstance(block, Image):
        return {"type": "image", "data": block.data, "mimeType": block.media_type}
    return {"type": "text", "text": whole(block.text)}


def _structured(data: Any) -> Wire | None:
    """The data as a JSON object; None where JSON cannot hold it, or where it would flood the client."""
    value = to_json_value(data)
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except ValueError:
        return None
    if len(text) > MOST_STRUCTURED:
        return None
    if (sound := whole(text)) != text:
        value = json.loads(sound)
    return value if isinstance(value, dict) else {"result": value}


SCHEME = "wieldy://results/"
TEMPLATE = SCHEME + "{name}"
MOST_BYTES = 32 * 1024 * 1024
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")


class NoSuchResult(LookupError):
    """The address is not that of a kept result."""


class Spilled:
    """The kept results of one toolbox."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._mention = re.compile(re.escape(f"{folder}{os.sep}") + f"({_NAME.pattern})")

    def links(self, text: str) -> list[Wire]:
        """Links to the kept results that a text speaks of."""
        if str(self.folder) not in text:
            return []
        names = dict.fromkeys(name.rstrip(".") for name in self._mention.findall(text))
        return [self._link(name) for name in names if self._is_kept(name)]

    def _link(self, name: str) -> Wire:
        size = (self.folder / name).stat().st_size
        return {"type": "resource_link", "uri": SCHEME + name, "name": name, "mimeType": "text/plain", "size": size}

    def _is_kept(self, name: str) -> bool:
        try:
            return stat.S_ISREG(os.lstat(self.folder / name).st_mode)
        except OSError:
            return False

    def listed(self) -> list[types.Resource]:
        """Every kept result, oldest name first."""
        import mcp_types as types

        try:
            names = sorted(name for name in os.listdir(self.folder) if _NAME.fullmatch(name) and self._is_kept(name))
        except FileNotFoundError:
            return []
        return [
            types.Resource(
                uri=SCHEME + name, name=name, mime_type="text/plain", size=(self.folder / name).stat().st_size
            )
            for name in names
        ]

    async def read(self, uri: str) -> str:
        """The text of a kept result. Raises `NoSuchResult`, which says what to do."""
        name = uri.removeprefix(SCHEME)
        if name == uri or not _NAME.fullmatch(name):
            raise NoSuchResult(f"{uri[:200]} is not the address of a kept result; resources/list names them")
        return await in_thread(self._text, name)

    def _text(self, name: str) -> str:
        path = self.folder / name
        try:
            # A link in the folder would lead out of it, and a pipe would never end.
            handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            raise _unknown(name) from None
        try:
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode):
                raise _unknown(name)
            if found.st_size > MOST_BYTES:
                raise NoSuchResult(
                    f"{name} is a kept result too big to be sent in one piece ({found.st_size:,} bytes). "
                    f"Read {path} in parts with Read."
                )
            with open(handle, "rb", closefd=False) as file:
                return file.read().decode("utf-8", errors="replace")
        finally:
            os.close(handle)


def _unknown(name: str) -> NoSuchResult:
    return NoSuchResult(f"there is no kept result {name}; resources/list names them")


ARGUMENTS = "arguments"


class NoSuchPrompt(LookupError):
    """There is no skill of this name that may be told."""


class Prompts:
    """The skills of one toolbox, looked for anew with every request."""

    def __init__(self, box: Toolbox) -> None:
        self._box = box

    async def listed(self) -> list[types.Prompt]:
        """Every skill; also those that no model may load by itself, as here a person does."""
        import mcp_types as types

        given = types.PromptArgument(name=ARGUMENTS, description="What the skill is to be used on", required=False)
        skills = await self._skills()
        return [
            types.Prompt(name=skill.name, description=skill.description, arguments=[given])
            for skill in skills.found.values()
        ]

    async def told(self, name: str, arguments: Mapping[str, str]) -> types.GetPromptResult:
        """A skill as a message to the model, whatever its arguments are called. Raises `NoSuchPrompt`, which says what to do."""
        import mcp_types as types

        from wieldy.skills.skill import render_skill

        skills = await self._skills()
        skill = skills.found.get(name)
        if skill is None:
            raise NoSuchPrompt(f"there is no prompt `{name[:100]}`; prompts/list names them")
        decision = await self._box.explain("Read", file_path=skill.path)
        if decision.behavior == "deny":
            raise NoSuchPrompt(f"the prompt `{name}` may not be read: {decision.why}")
        text = types.TextContent(text=await in_thread(render_skill, skill, " ".join(filter(None, arguments.values()))))
        return types.GetPromptResult(
            description=skill.description, messages=[types.PromptMessage(role="user", content=text)]
        )

    async def _skills(self) -> Skills:
        from wieldy.skills.discovery import Skills

        skills = self._box.workspace.service(Skills)
        await in_thread(skills.refresh)
        skills.report()
        return skills
