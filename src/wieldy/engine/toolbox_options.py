"""Checks the options of `Toolbox` and `Session`: a wrong one raises at construction."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from wieldy.core.backend import BACKEND_MEMBERS
from wieldy.core.catalog import Catalog
from wieldy.core.errors import SettingsError, ToolDefinitionError
from wieldy.core.option_checks import require_callable, require_count
from wieldy.core.threads import in_thread
from wieldy.core.tool import Tool
from wieldy.core.tool_names import RENAMED_TOOLS
from wieldy.core.workspace import Workspace


def check_toolbox_options(
    root: str | os.PathLike[str],
    *,
    ask: Any,
    hooks: Sequence[Any],
    env: Any,
    max_concurrency: int | None,
    backend: Any = None,
) -> None:
    """Raise `ValueError` or `TypeError` for an option that cannot be meant."""
    missing = [] if backend is None else sorted(name for name in BACKEND_MEMBERS if not hasattr(backend, name))
    if missing:
        raise TypeError(f"`backend` must have all of `wieldy.Backend`: {backend!r:.100} lacks {', '.join(missing)}")
    if backend is not None and not backend.has_host_programs:
        if not os.path.isabs(root):
            raise ValueError(f"`root` must be an absolute path on the backend, not {os.fspath(root)!r}")
    elif not os.path.isdir(root):
        raise ValueError(f"`root` must be a folder: {os.fspath(root)!r} is none")
    require_count("max_concurrency", max_concurrency)
    require_callable("ask", ask)
    if env is not None and not isinstance(env, Mapping):
        raise TypeError(f"`env` must be a mapping of variables, not {env!r:.200}")
    for name, value in (env or {}).items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise TypeError(f"`env` must be a mapping of texts: {name!r} is {value!r:.200}")
    if hooks:
        from wieldy.policy.hooks.config import require_hooks

        require_hooks(hooks)


def _check_rules(settings: Mapping[str, Any], catalog: Catalog) -> None:
    from wieldy.policy.permissions.rules import guess_tool

    permissions = settings.get("permissions")
    for behavior in ("deny", "ask", "allow"):
        for entry in permissions.get(behavior) or () if isinstance(permissions, Mapping) else ():
            text = str(entry.get("rule", "") if isinstance(entry, Mapping) else entry)
            name = text.partition("(")[0].strip()
            if name in catalog or name in RENAMED_TOOLS or "*" in name:
                continue
            if (likely_name := guess_tool(name)) is not None:
                raise SettingsError(
                    f"{behavior} rule `{text}`: there is no tool `{name}`; did you mean `{likely_name}`?"
                )


def check_explicit_settings(settings: Mapping[str, Any], catalog: Catalog) -> None:
    """Raise `SettingsError` for settings given in code that no tool or server can have, or rules with a misspelled tool."""
    _check_rules(settings, catalog)
    sections = settings.get("tools")
    for name, section in sections.items() if isinstance(sections, Mapping) else ():
        tool = catalog.find(name) if "cacheSeconds" in section else None
        if tool is not None and not tool.read_only:
            text = f"`tools.{name}.cacheSeconds`: {name} is not read-only, so its results must not be used again"
            raise SettingsError(text)
    servers = settings.get("mcpServers")
    if isinstance(servers, Mapping):
        from wieldy.mcp.config import InvalidServer, parse_server

        for name, entry in servers.items():
            try:
                parse_server(name, entry)
            except InvalidServer as error:
                raise SettingsError(f"`mcpServers.{name}`: {error}") from None


def require_deps(tool: Tool, deps: Any) -> None:
    """Raise `ToolDefinitionError` where a tool needs other dependencies than there are."""
    needed = tool.deps_type if isinstance(tool, Tool) else None
    if needed is None or getattr(needed, "_is_protocol", False) or isinstance(deps, needed):
        return
    found = "none were given" if deps is None else f"they are of type {type(deps).__name__}"
    raise ToolDefinitionError(
        f"tool `{tool.name}` needs deps of type {needed.__name__}, and {found}: pass deps=… to Toolbox or Session"
    )


async def check_backend_root(workspace: Workspace) -> None:
    """Raise `ValueError` where the root is no folder on its backend, or is reached there by a link."""
    backend, root = workspace.backend, workspace.root
    if backend is None:
        return
    try:
        real = await in_thread(backend.realpath, root)
        kind = (await in_thread(backend.stat, real)).kind
    except OSError as error:
        raise ValueError(f"`root` cannot be reached on {backend.id}: {error}") from None
    if kind != "folder":
        raise ValueError(f"`root` must be a folder: {root!r} is none on {backend.id}")
    if real != root:
        raise ValueError(f"`root` is {real!r} on {backend.id}, and {root!r} leads there by a link: give the first")
