"""What a model can call: one module and one prompt for each built-in tool, and the offer (`toolset`), skills, subagents, memory.

A tool's module is imported when the tool is first offered, called or named in a permission rule with a specifier. What a tool is
(read-only, family of rules, risk, …) it says itself: see `core.tool.Tool`. Other rooms use `builtin_loaders`, `builtin_tool` and
`toolset`. It imports `core`, `files`, `shell` and `web`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from functools import partial
from importlib import import_module

from wieldy.core.text import suggest_name
from wieldy.core.tool import Tool

_SPELLED = {"ls": "LS"}  # names that are no words in CamelCase


def _tool_name(module: str) -> str:
    return _SPELLED.get(module) or "".join(word.capitalize() for word in module.split("_"))


def _find_modules() -> dict[str, str]:
    stems = [file.removesuffix(".md") for file in os.listdir(os.path.dirname(__file__)) if file.endswith(".md")]
    return dict(sorted((_tool_name(stem), stem) for stem in stems))


# Name → module of each built-in tool: those with a prompt beside them, so that a new one is known by its files.
MODULES: Mapping[str, str] = _find_modules()


def builtin_loaders(chosen: bool | Collection[str] = True) -> dict[str, Callable[[], Tool]]:
    """Name → function that imports the tool: for all tools, none, or those named. Raises `ValueError` for a wrong name."""
    if isinstance(chosen, str):
        raise ValueError(f"`builtins` is True, False or several names: ({chosen!r},)")
    names = (MODULES if chosen else ()) if isinstance(chosen, bool) else chosen
    for name in names:
        if name not in MODULES:
            raise ValueError(f"there is no built-in tool `{name}`{suggest_name(str(name), MODULES)}")
    return {name: partial(_load, MODULES[name]) for name in names}


def builtin_tool(name: str) -> Tool | None:
    """The built-in tool of a name, imported now: for what must be known of one that may not be offered."""
    return _load(MODULES[name]) if name in MODULES else None


def _load(module: str) -> Tool:
    tool: Tool = getattr(import_module(f"wieldy.tools.{module}"), module)
    return tool
