"""The tools of a toolbox by name. Built-in tools are loaded when first needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from msgspec import Struct

from wieldy.core.effects import Effects
from wieldy.core.errors import ToolDefinitionError
from wieldy.core.supervise import Abort, Aborted, Supervisor
from wieldy.core.text import suggest_name
from wieldy.core.tool import Tool, maybe_await, why_disabled
from wieldy.core.tool_names import name_problem
from wieldy.core.workspace import Workspace

ENABLED_CHECK_SECONDS = 5.0


class Catalog:
    """Name → tool, in order of registration. A loader stands for a tool until it is needed."""

    def __init__(self, loaders: Mapping[str, Callable[[], Tool]] | None = None) -> None:
        self._tools: dict[str, Tool | Callable[[], Tool]] = dict(loaders or {})
        self.wrap: Callable[[Tool], Tool] = lambda tool: tool  # applied to every tool that is added from now on
        self.changes = 0  # incremented when a tool is added or removed, so that others can tell whether to list again

    def __iter__(self) -> Iterator[str]:
        return iter(self._tools)

    def __len__(self) -> int:
        return len(self._tools)

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def offered_names(self) -> list[str]:
        """The names that a model may be told."""
        return list(self)

    def why_closed(self, name: str) -> str | None:
        """Why no tool of this name can be called now, or None."""
        return None

    def find(self, name: str) -> Tool | None:
        """Return the tool of exactly this name, loading it if needed."""
        entry = self._tools.get(name)
        if entry is not None and not isinstance(entry, Tool):
            entry = self._tools[name] = entry()
        return entry

    def add(self, tool: Tool) -> None:
        """Add a tool. Raises `ToolDefinitionError` for one that no model could call."""
        if not isinstance(tool, Tool):
            raise ToolDefinitionError(
                f"{tool!r} is not a tool: decorate the function with @tool, or use Tool.from_schema"
            )
        if reason := definition_problem(tool):
            raise ToolDefinitionError(reason)
        if tool.name in self._tools:
            raise ToolDefinitionError(f"a tool named `{tool.name}` is already registered: give this one another name")
        self._tools[tool.name] = self.wrap(tool)
        self.changes += 1

    def replace(self, tool: Tool) -> None:
        """Put a tool in the place of the one of its name. Raises `ToolDefinitionError`."""
        if not isinstance(tool, Tool) or tool.name not in self._tools:
            name = tool.name if isinstance(tool, Tool) else repr(tool)
            raise ToolDefinitionError(f"there is no tool `{name}` to replace{suggest_name(name, self._tools)}")
        if reason := definition_problem(tool):
            raise ToolDefinitionError(reason)
        self._tools[tool.name] = self.wrap(tool)
        self.changes += 1

    def adapt(self, name: str, change: Callable[[Tool], Tool]) -> None:
        """Replace a tool by a changed one; a loader is changed so that it loads the changed tool."""
        entry = self._tools.get(name)
        if isinstance(entry, Tool):
            self._tools[name] = change(entry)
        elif entry is not None:
            load = entry
            self._tools[name] = lambda: change(load())

    def invalidate(self, effects: Effects) -> None:
        """Have the tools that cache results forget those that depend on what these effects change."""
        for tool in self._tools.values():
            if isinstance(tool, Tool) and tool.caches_results:
                tool.invalidate(effects)

    def remove(self, name: str) -> None:
        self._tools.pop(name, None)
        self.changes += 1


def definition_problem(tool: Tool) -> str | None:
    """Why a definition cannot be offered to a model, or None."""
    if not tool.name:
        return f"{type(tool).__name__} has no name"
    if problem := name_problem(tool.name):
        return problem
    if not tool.description.strip():
        return f"tool `{tool.name}` has no description: write a docstring that says what it does and when to use it"
    from wieldy.core.schema.check import SchemaError, UnsupportedAnnotation
    from wieldy.core.schema.parameters import object_schema_problem

    try:
        schema = tool.schema
        if tool.input_schema is not None:
            tool.parameters.compile()
    except (TypeError, SchemaError, UnsupportedAnnotation) as error:
        return f"tool `{tool.name}` has no usable input: {error}"
    if problem := object_schema_problem(schema):
        return f"the input schema of tool `{tool.name}` is not an object schema: {problem}"
    return None


class ToolAvailability(Struct, frozen=True):
    """Whether a model is offered a tool, and why or why not."""

    tool: Tool
    offered: bool
    reason: str


async def ask_enabled(tool: Tool, workspace: Workspace, supervisor: Supervisor, abort: Abort) -> str | None:
    """Run the tool's own check: why the tool can be neither offered nor called now, or None. Raises `Aborted`."""

    async def ask() -> bool | str:
        return await maybe_await(tool.enabled(workspace))  # type: ignore[no-any-return]

    try:
        return why_disabled(await supervisor.run(ask(), abort, ENABLED_CHECK_SECONDS))
    except Aborted:
        raise
    except Exception as error:
        return why_disabled(error)
