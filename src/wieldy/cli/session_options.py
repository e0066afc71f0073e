"""Options of a session: the same for `wieldy -p` and the interactive session."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wieldy.cli.arguments import (
    add_mode,
    add_root,
    amount,
    count,
    folder,
    new_session_id,
    session_id,
    setting_layers,
    tool_names,
)
from wieldy.core.errors import WieldyError

if TYPE_CHECKING:
    from wieldy.core.decision import Behavior
    from wieldy.tools.subagents.definitions import AgentType

THINKING_TOKENS = 10_000  # for `--thinking` without a number


class UsageError(WieldyError):
    """The command line makes no sense; the message says why in one line."""


def add_session_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say with which model, rules, folders and servers a session works, and which one is resumed."""
    add = parser.add_argument
    add("--model", metavar="PROVIDER/NAME", help="the model, or script:FILE for a recorded one")
    add("--base-url", metavar="URL", help="the address of the model's API")
    add("--fallback-model", metavar="PROVIDER/NAME", help="the model that takes over while the other is overloaded")
    add("--max-turns", type=count, metavar="N", help="stop after this many model answers")
    add("--max-budget-usd", type=amount, metavar="USD", help="stop when this much is spent")
    add("--tools", type=tool_names, metavar="NAMES", help="the built-in tools to offer: names, default, or none at all")
    add("--allowed-tools", "--allowedTools", action="append", default=[], metavar="RULES", help="run without asking")
    add("--disallowed-tools", "--disallowedTools", action="append", default=[], metavar="RULES", help="never run")
    add_mode(parser, "--permission-mode")
    add("--dangerously-skip-permissions", action="store_true", help="the same as --permission-mode bypassPermissions")
    add("--system-prompt", metavar="TEXT", help="text in place of wieldy's own system prompt")
    add("--system-prompt-file", metavar="FILE", help="the same from a file")
    add("--append-system-prompt", default="", metavar="TEXT", help="text to append to the system prompt")
    add("--add-dir", type=folder, action="append", default=[], metavar="DIR", help="another folder to work in")
    add("--agents", metavar="JSON", help="types of subagents: a JSON object of names and definitions, or a file")
    add("--settings", metavar="FILE", help="a settings file, or its JSON, merged over the others")
    add("--mcp-config", action="append", default=[], metavar="FILE", help="MCP servers as in .mcp.json, or their JSON")
    add_root(parser)
    add("-c", "--continue", dest="resume_last", action="store_true", help="resume the last session of this folder")
    add("-r", "--resume", type=session_id, metavar="ID", help="resume this session")
    add("--fork-session", action="store_true", help="resume a copy of the session")
    add("--session-id", type=new_session_id, metavar="ID", help="the id of a new session (default: a random one)")
    add("--no-session-persistence", action="store_true", help="save no transcript")
    add("--setting-sources", type=setting_layers, metavar="LAYERS", help="settings files to read: user,project,local")
    add("--strict-mcp-config", action="store_true", help="start only the MCP servers of --mcp-config")
    add("--max-thinking-tokens", type=count, metavar="N", help="tokens for thinking")
    add("--thinking", choices=("enabled", "adaptive", "disabled"), help="whether the model thinks before it answers")


def check_session_options(options: argparse.Namespace) -> None:
    """Raise `UsageError` for options that exclude each other."""
    if options.fork_session and not (options.resume or options.resume_last):
        raise UsageError("--fork-session goes with --resume or --continue")
    if options.session_id and (options.resume or options.resume_last) and not options.fork_session:
        raise UsageError("--session-id names a new session; to resume one, leave it out")


def session_arguments(options: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of `Session` that the options stand for, without the session to resume. Raises `UsageError`."""
    check_session_options(options)
    settings = build_settings(options)
    return {
        "root": options.root,
        "model": options.model,
        "base_url": options.base_url,
        "fallback_model": options.fallback_model,
        "builtins": True if options.tools is None else options.tools,
        "agents": _agents(options.agents),
        "mode": "bypassPermissions" if options.dangerously_skip_permissions else options.permission_mode,
        "settings": settings,
        "settings_file": _settings_file(options),
        "load_settings": True if options.setting_sources is None else options.setting_sources,
        "max_turns": options.max_turns,
        "max_cost": options.max_budget_usd,
        "thinking_budget": _thinking_budget(options),
        "append_system": options.append_system_prompt,
        "system_prompt": _system_prompt(options),
        "fork": options.fork_session,
        "session_id": options.session_id,
        "persist": not options.no_session_persistence,
        "servers": tuple(settings.get("mcpServers") or ()) if options.strict_mcp_config else True,
    }


def _agents(source: str | None) -> list[AgentType]:
    if source is None:
        return []
    from wieldy.faces.headless.host import parse_agents

    try:
        return parse_agents(_read_json(source, "agents"))
    except WieldyError as error:
        raise UsageError(str(error)) from None


def resumed_session(options: argparse.Namespace) -> str | None:
    """Return the id of the session to resume, if any. Raises `SessionError` where this folder has none."""
    from wieldy.agent.store import last_session

    if options.resume:
        named: str = options.resume
        return named
    return last_session(options.root) if options.resume_last else None


def build_settings(options: argparse.Namespace) -> dict[str, Any]:
    """Return the settings that the options stand for. Raises `UsageError`."""
    inline = options.settings and _is_inline(options.settings)
    settings = _read_json(options.settings, "settings") if inline else {}
    permissions = dict(settings.get("permissions") or {})
    for name, values in (
        ("allow", _split_rules(options.allowed_tools, "allow")),
        ("deny", _split_rules(options.disallowed_tools, "deny")),
        ("additionalDirectories", options.add_dir),
    ):
        if values:
            permissions[name] = [*permissions.get(name, ()), *values]
    servers = dict(settings.get("mcpServers") or {})
    for source in options.mcp_config:
        servers.update(_read_json(source, "MCP servers").get("mcpServers") or {})
    return {
        **settings,
        **({"permissions": permissions} if permissions else {}),
        **({"mcpServers": servers} if servers else {}),
    }


def _settings_file(options: argparse.Namespace) -> Path | None:
    if not options.settings or _is_inline(options.settings):
        return None
    from wieldy.policy.settings.sources import load_named_file

    file = Path(options.settings).absolute()
    if (problem := load_named_file(file).error) is not None:
        raise UsageError(f"the settings cannot be read: {problem}")
    return file


def _is_inline(source: str) -> bool:
    """Return whether settings are JSON text or come through a pipe, so that no file can be watched."""
    return _is_json(source) or (os.path.exists(source) and not os.path.isfile(source))


def _is_json(source: str) -> bool:
    return source.lstrip().startswith("{")


def _read_json(source: str, what: str) -> dict[str, Any]:
    try:
        value = json.loads(source if _is_json(source) else Path(source).read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"the {what} {source} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise UsageError(f"the {what} are not JSON: {error}") from None
    if not isinstance(value, dict):
        raise UsageError(f"the {what} are not a JSON object")
    return value


def answer_schema(source: str | None) -> dict[str, Any] | None:
    """Return the JSON Schema that answers must fit, from a file or its JSON. Raises `UsageError`."""
    if source is None:
        return None
    from wieldy.agent.typed_answers import AnswerType

    schema = _read_json(source, "schema of the answer")
    try:
        AnswerType(schema)
    except ValueError as error:
        raise UsageError(str(error)) from None
    return schema


def _split_rules(words: list[str], behavior: Behavior) -> list[str]:
    """Split rules at commas and blanks outside parentheses, and check them."""
    if not words:
        return []
    from wieldy.policy.permissions.rules import RuleError, parse, split_list

    rules = split_list(",".join(words))
    try:
        for rule in rules:
            parse(rule, behavior)
    except RuleError as problem:
        raise UsageError(str(problem)) from None
    return rules


def _system_prompt(options: argparse.Namespace) -> str | None:
    if options.system_prompt_file is None:
        text: str | None = options.system_prompt
        return text
    try:
        return Path(options.system_prompt_file).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"the system prompt {options.system_prompt_file} cannot be read: {reason}") from None


def _thinking_budget(options: argparse.Namespace) -> int | None:
    if options.thinking == "disabled":
        return None
    budget: int | None = options.max_thinking_tokens
    return budget or (THINKING_TOKENS if options.thinking else None)
