"""MCP servers as the settings describe them, with `${VAR}` expanded."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeAlias

from msgspec import Struct, field

from wieldy.core.text import did_you_mean

Kind: TypeAlias = Literal["stdio", "http", "sse", "sdk"]

CALL_SECONDS = 300.0
START_SECONDS = 30.0
KINDS: Mapping[str, Kind] = {
    "stdio": "stdio",
    "http": "http",
    "streamable-http": "http",
    "streamable_http": "http",
    "sse": "sse",
    "sdk": "sdk",
}

KEYS = frozenset(
    {
        *("type", "transport", "command", "args", "env", "cwd", "url", "headers", "timeout", "startupTimeout"),
        *("alwaysLoad", "disabled", "oauth", "trustHints"),
    }
)
OAUTH_KEYS = frozenset(
    {"clientId", "clientSecret", "scopes", "callbackPort", "clientMetadataUrl", "grantType", "issuer"}
)
# With another value than this for one of these, the server is not meant to start.
NOT_DISABLED = {"disable": False, "enable": True, "enabled": True}
# These describe a server, and need no effect.
DESCRIPTIONS = frozenset({"name", "description", "$comment"})

PROJECT_VARIABLE = "WIELDY_PROJECT_DIR"
"""Stands for the project's root in an entry: servers of the person's own settings do not start in it."""
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


class ServerConfig(Struct, frozen=True):
    """How to reach one server; one of kind `sdk` runs inside the program that started us.

    `timeout` bounds each call, `startup` each attempt to connect, in seconds. With `trust_hints` a call that the server calls
    read-only or idempotent may be made twice.
    """

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
    trust_hints: bool = False
    oauth: Mapping[str, Any] | None = None
    where: str = ""
    """The command line or URL as it is written in the settings, for people: a variable may hold a secret."""


class InvalidServer(ValueError):
    """An entry that describes no server; the message says why."""


def parse_servers(settings: Mapping[str, Any], env: Mapping[str, str]) -> tuple[list[ServerConfig], list[str]]:
    """Return the enabled servers of `mcpServers`, and the problems with the rest, one line each."""
    entries = settings.get("mcpServers")
    disabled_names = settings.get("disabledMcpjsonServers")
    disabled = set(disabled_names) if isinstance(disabled_names, list) else set()
    servers: list[ServerConfig] = []
    problems: list[str] = []
    for name, entry in entries.items() if isinstance(entries, Mapping) else ():
        if name in disabled or (isinstance(entry, Mapping) and entry.get("disabled") is True):
            continue
        unset: dict[str, None] = {}
        try:
            servers.append(parse_server(str(name), expand_variables(entry, env, unset), entry))
            problems += [f"MCP server `{name}`: {problem}" for problem in unknown_keys(entry)]
        except InvalidServer as error:
            problems.append(f"MCP server `{name}` is left out: {error}")
        problems += [f"MCP server `{name}`: ${{{variable}}} is not set" for variable in unset]
    return servers, problems


def parse_server(name: str, entry: Any, written: Any = None) -> ServerConfig:
    """Parse one entry, which is `written` so in the settings if variables were replaced. Raises `InvalidServer`."""
    if not isinstance(entry, Mapping):
        raise InvalidServer("its entry is not an object")
    oauth = _options(entry, "oauth")
    if oauth and (oauth.get("clientSecret") or oauth.get("grantType")) and not oauth.get("issuer"):
        raise InvalidServer(
            "`oauth.clientSecret` needs `oauth.issuer`, else the server chooses who receives the secret"
        )
    kind = _kind(entry)
    if kind == "stdio" and not _text(entry, "command"):
        raise InvalidServer("it has neither `command` nor `url`")
    if kind in ("http", "sse") and not _text(entry, "url").startswith(("http://", "https://")):
        raise InvalidServer("its `url` must begin with http:// or https://")
    args = entry.get("args", ())
    if not isinstance(args, list | tuple) or not all(isinstance(arg, str) for arg in args):
        raise InvalidServer("`args` must be a list of strings")
    for key, harmless in NOT_DISABLED.items():
        if entry.get(key, harmless) is not harmless:
            raise InvalidServer(f"`{key}` is no key of a server: did you mean `disabled`?")
    _flag(entry, "disabled")
    return ServerConfig(
        name,
        kind,
        command=_text(entry, "command") if kind == "stdio" else "",
        args=tuple(args) if kind == "stdio" else (),
        env=_strings(entry, "env"),
        cwd=_text(entry, "cwd") or None,
        url=_text(entry, "url") if kind in ("http", "sse") else "",
        headers=_strings(entry, "headers"),
        timeout=_milliseconds(entry, "timeout", CALL_SECONDS),
        startup=_milliseconds(entry, "startupTimeout", START_SECONDS),
        always_load=_flag(entry, "alwaysLoad"),
        trust_hints=_flag(entry, "trustHints"),
        oauth=oauth,
        where=_where(kind, written or entry),
    )


def unknown_keys(entry: Mapping[str, Any]) -> Iterator[str]:
    """Yield what to say about each key of an entry that means nothing here; other programs may know it."""
    own = [(key, key, KEYS) for key in entry if key not in DESCRIPTIONS]
    oauth = [(f"oauth.{key}", key, OAUTH_KEYS) for key in entry.get("oauth") or {}]
    for path, key, known in (*own, *oauth):
        if key not in known:
            yield f"`{path}` is not known here and has no effect{did_you_mean(key, known)}"


def expand_variables(value: Any, env: Mapping[str, str], unset: dict[str, None]) -> Any:
    """Replace `${VAR}` and `${VAR:-default}`; a variable without value stays as written and is added to `unset`."""
    if isinstance(value, str):
        return _VARIABLE.sub(lambda match: _variable_value(match, env, unset), value)
    if isinstance(value, Mapping):
        return {key: expand_variables(item, env, unset) for key, item in value.items()}
    return [expand_variables(item, env, unset) for item in value] if isinstance(value, list | tuple) else value


def _variable_value(match: re.Match[str], env: Mapping[str, str], unset: dict[str, None]) -> str:
    name, default = match[1], match[2]
    if default is not None:
        return env.get(name) or default
    if name not in env:
        unset[name] = None
        return match[0]
    return env[name]


def _kind(entry: Mapping[str, Any]) -> Kind:
    name = entry.get("type", entry.get("transport"))
    if name is None:
        return "http" if "url" in entry and "command" not in entry else "stdio"
    kind = KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise InvalidServer(f"its type `{name}` is not known: use stdio, http or sse")
    return kind


def _where(kind: Kind, entry: Mapping[str, Any]) -> str:
    return " ".join((entry["command"], *entry.get("args", ()))) if kind == "stdio" else _text(entry, "url")


def _text(entry: Mapping[str, Any], key: str) -> str:
    value = entry.get(key, "")
    if not isinstance(value, str) or "\0" in value:
        raise InvalidServer(f"`{key}` must be a string")
    return value


def _flag(entry: Mapping[str, Any], key: str) -> bool:
    value = entry.get(key, False)
    if not isinstance(value, bool):
        raise InvalidServer(f"`{key}` must be true or false")
    return value


def _options(entry: Mapping[str, Any], key: str) -> Mapping[str, Any] | None:
    value = entry.get(key)
    if value is not None and not isinstance(value, Mapping):
        raise InvalidServer(f"`{key}` must be an object")
    return value


def _strings(entry: Mapping[str, Any], key: str) -> dict[str, str]:
    value = entry.get(key, {})
    if not isinstance(value, Mapping) or not all(isinstance(item, str) for item in value.values()):
        raise InvalidServer(f"`{key}` must be an object of strings")
    return {str(name): item for name, item in value.items()}


def _milliseconds(entry: Mapping[str, Any], key: str, default: float) -> float:
    value = entry.get(key)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        raise InvalidServer(f"`{key}` must be a number of milliseconds")
    return value / 1000
