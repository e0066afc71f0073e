"""Servers as settings describe them, with `${VAR}` filled in; what cannot be used is said, one line a server."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

from msgspec import Struct, field

from wieldy.core.state_dirs import config_home
from wieldy.files.writing.locked_update import update_locked

Kind: TypeAlias = Literal["stdio", "http", "sse"]

CALL_SECONDS = 300.0
START_SECONDS = 30.0
KINDS: Mapping[str, Kind] = {
    "stdio": "stdio",
    "http": "http",
    "streamable-http": "http",
    "streamable_http": "http",
    "sse": "sse",
}

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


class ServerConfig(Struct, frozen=True):
    """How to reach one server. `timeout` bounds each call, `startup` each attempt to connect, in seconds."""

    name: str
    kind: Kind
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str | None = None
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout: float = CALL_SECONDS
    startup: float = START_SECONDS
    always_load: bool = False
    oauth: Mapping[str, Any] | None = None

    @property
    def where(self) -> str:
        """The command line or address, for people."""
        return self.url if self.url else " ".join((self.command, *self.args))


class Configured(Struct, frozen=True):
    """The servers that can be started, and what is wrong with the rest."""

    servers: tuple[ServerConfig, ...]
    problems: tuple[str, ...]


class Unusable(ValueError):
    """An entry that describes no server; the message says why."""


def configured(settings: Mapping[str, Any], env: Mapping[str, str]) -> Configured:
    """The servers of the settings' `mcpServers` but the disabled ones."""
    entries = settings.get("mcpServers")
    off = settings.get("disabledMcpjsonServers")
    disabled = set(off) if isinstance(off, list) else set()
    servers: list[ServerConfig] = []
    problems: list[str] = []
    for name, entry in entries.items() if isinstance(entries, Mapping) else ():
        if name in disabled or (isinstance(entry, Mapping) and entry.get("disabled") is True):
            continue
        unset: dict[str, None] = {}
        try:
            servers.append(server_of(str(name), expanded(entry, env, unset)))
        except Unusable as why:
            problems.append(f"MCP server `{name}` is left out: {why}")
        problems += [f"MCP server `{name}`: ${{{variable}}} is not set" for variable in unset]
    return Configured(tuple(servers), tuple(problems))


def server_of(name: str, entry: Any) -> ServerConfig:
    """One entry, read. Raises `Unusable`."""
    if not isinstance(entry, Mapping):
        raise Unusable("its entry is not an object")
    kind = _kind(entry)
    if kind == "stdio" and not _text(entry, "command"):
        raise Unusable("it has neither `command` nor `url`")
    if kind != "stdio" and not _text(entry, "url").startswith(("http://", "https://")):
        raise Unusable("its `url` must begin with http:// or https://")
    args = entry.get("args", ())
    if not isinstance(args, list | tuple) or not all(isinstance(arg, str) for arg in args):
        raise Unusable("`args` must be a list of strings")
    oauth = entry.get("oauth")
    return ServerConfig(
        name,
        kind,
        command=_text(entry, "command") if kind == "stdio" else "",
        args=tuple(args) if kind == "stdio" else (),
        env=_strings(entry, "env"),
        cwd=_text(entry, "cwd") or None,
        url=_text(entry, "url") if kind != "stdio" else "",
        headers=_strings(entry, "headers"),
        timeout=_milliseconds(entry, "timeout", CALL_SECONDS),
        startup=_milliseconds(entry, "startupTimeout", START_SECONDS),
        always_load=entry.get("alwaysLoad") is True,
        oauth=oauth if isinstance(oauth, Mapping) else None,
    )


def expanded(value: Any, env: Mapping[str, str], unset: dict[str, None]) -> Any:
    """The value with `${VAR}` and `${VAR:-default}` replaced; what is not set stays as it is written and is noted."""
    if isinstance(value, str):
        return _VARIABLE.sub(lambda found: _value(found, env, unset), value)
    if isinstance(value, Mapping):
        return {key: expanded(item, env, unset) for key, item in value.items()}
    return [expanded(item, env, unset) for item in value] if isinstance(value, list | tuple) else value


def _value(found: re.Match[str], env: Mapping[str, str], unset: dict[str, None]) -> str:
    name, default = found[1], found[2]
    if default is not None:
        return env.get(name) or default
    if name not in env:
        unset[name] = None
        return found[0]
    return env[name]


def _kind(entry: Mapping[str, Any]) -> Kind:
    said = entry.get("type", entry.get("transport"))
    if said is None:
        return "http" if "url" in entry and "command" not in entry else "stdio"
    kind = KINDS.get(said) if isinstance(said, str) else None
    if kind is None:
        raise Unusable(f"its type `{said}` is not known: use stdio, http or sse")
    return kind


def _text(entry: Mapping[str, Any], key: str) -> str:
    value = entry.get(key, "")
    if not isinstance(value, str) or "\0" in value:
        raise Unusable(f"`{key}` must be a string")
    return value


def _strings(entry: Mapping[str, Any], key: str) -> dict[str, str]:
    value = entry.get(key, {})
    if not isinstance(value, Mapping) or not all(isinstance(item, str) for item in value.values()):
        raise Unusable(f"`{key}` must be an object of strings")
    return {str(name): item for name, item in value.items()}


def _milliseconds(entry: Mapping[str, Any], key: str, default: float) -> float:
    value = entry.get(key)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        raise Unusable(f"`{key}` must be a number of milliseconds")
    return value / 1000


FILE_NAME = "mcp-pins.json"


class Pins:
    """Fingerprints by project, server and tool. All methods block on disk."""

    def __init__(self, root: str, file: Path | None = None, env: Mapping[str, str] = os.environ) -> None:
        self._root = os.path.realpath(root)
        self._file = config_home(env) / FILE_NAME if file is None else file

    def changed(self, server: str, digests: Mapping[str, str]) -> frozenset[str]:
        """The tools that differ from what is pinned; those never seen before are pinned now."""
        known = self._known(server)
        new = {tool: digest for tool, digest in digests.items() if tool not in known}
        if new:
            self.pin(server, new)
        return frozenset(tool for tool, digest in digests.items() if known.get(tool, digest) != digest)

    def pin(self, server: str, digests: Mapping[str, str]) -> None:
        """Record what the user has agreed to."""

        def update(text: str | None) -> str:
            records = _parsed(text)
            project = records.setdefault(self._root, {})
            held = project.get(server)
            project[server] = {**(held if isinstance(held, dict) else {}), **digests}
            return json.dumps(records, indent=1, sort_keys=True) + "\n"

        update_locked(self._file, update)

    def _known(self, server: str) -> Mapping[str, str]:
        try:
            text = self._file.read_text("utf-8")
        except (OSError, UnicodeDecodeError):
            return {}
        project = _parsed(text).get(self._root)
        found = project.get(server) if isinstance(project, dict) else None
        return found if isinstance(found, dict) else {}


def _parsed(text: str | None) -> dict[str, Any]:
    try:
        records = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    return records if isinstance(records, dict) else {}
