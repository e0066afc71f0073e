"""The one table of settings: every key, what it holds and what it is for. Checking, schema and documentation come from it."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeAlias

from msgspec import Struct

Kind: TypeAlias = Literal[
    "string", "boolean", "integer", "number", "strings", "rules", "string map", "patterns", "object", "any"
]


class SettingKey(Struct, frozen=True):
    """One setting. `*` in the name stands for any name; `project_may_set` ones need no consent."""

    name: str
    kind: Kind
    description: str
    choices: tuple[str, ...] = ()
    project_may_set: bool = False


OBJECT_KINDS = frozenset({"string map", "patterns", "object", "any"})
MODE_NAMES = ("default", "manual", "acceptEdits", "plan", "bypassPermissions", "dontAsk")

KEYS: tuple[SettingKey, ...] = (
    SettingKey("$schema", "string", "Where the schema of this file is, for editors.", project_may_set=True),
    SettingKey("permissions.allow", "rules", "Rules for calls that run without a question."),
    SettingKey("permissions.ask", "rules", "Rules for calls that always ask.", project_may_set=True),
    SettingKey("permissions.deny", "rules", "Rules for calls that never run.", project_may_set=True),
    SettingKey("permissions.additionalDirectories", "strings", "Folders beside the project that tools may work in."),
    SettingKey("permissions.defaultMode", "string", "The mode a session starts in.", MODE_NAMES),
    SettingKey("permissions.outside", "string", "What to do about files outside the allowed folders.", ("ask", "deny")),
    SettingKey(
        "permissions.disableBypassPermissionsMode",
        "string",
        "`disable` takes bypassPermissions away.",
        ("disable",),
        True,
    ),
    SettingKey(
        "allowManagedPermissionRulesOnly",
        "boolean",
        "In the managed file: only its own allow rules count.",
        project_may_set=True,
    ),
    SettingKey("tools.*.level", "string", "How much care a tool needs.", ("safe", "confirm", "dangerous", "forbidden")),
    SettingKey("tools.*.allowlist", "patterns", "Patterns over parameters of calls that need no question."),
    SettingKey(
        "tools.*.blocklist", "patterns", "Patterns over parameters of calls that never run.", project_may_set=True
    ),
    SettingKey("tools.*.timeout", "number", "Seconds a call may take."),
    SettingKey("tools.*.rateLimit", "any", "How often the tool may be called."),
    SettingKey("tools.*.cacheSeconds", "number", "How long results of a read-only tool are kept."),
    SettingKey("env", "string map", "Environment variables for commands and servers."),
    SettingKey("hooks", "object", "Commands run at certain moments, by event."),
    SettingKey(
        "messageIdleNotifThresholdMs",
        "integer",
        "Milliseconds without a prompt after which Notification hooks run.",
        project_may_set=True,
    ),
    SettingKey("disableAllHooks", "boolean", "Run no hooks at all."),
    SettingKey("mcpServers", "object", "MCP servers, by name."),
    SettingKey("enableAllProjectMcpServers", "boolean", "Start every server of the project's .mcp.json."),
    SettingKey("enabledMcpjsonServers", "strings", "Servers of .mcp.json to start."),
    SettingKey("disabledMcpjsonServers", "strings", "Servers of .mcp.json never to start.", project_may_set=True),
    SettingKey("mcp.sampling", "strings", "MCP servers that may ask the model without asking you."),
    SettingKey("sandbox.enabled", "boolean", "Run commands in a sandbox."),
    SettingKey("sandbox.autoAllow", "boolean", "Commands inside the sandbox run without a question."),
    SettingKey("sandbox.mechanism", "string", "Which sandbox to use.", ("auto", "bubblewrap", "landlock")),
    SettingKey("sandbox.failIfUnavailable", "boolean", "Refuse commands where no sandbox can be had."),
    SettingKey("sandbox.network", "boolean", "Whether commands in the sandbox reach the network."),
    SettingKey("sandbox.allowedDomains", "strings", "Hosts that commands in the sandbox may reach."),
    SettingKey("sandbox.allowWrite", "strings", "Further folders that commands in the sandbox may write to."),
    SettingKey(
        "sandbox.allowRead", "strings", "Folders that commands in the sandbox may read although a default hides them."
    ),
    SettingKey("sandbox.denyRead", "strings", "Folders that commands in the sandbox do not see.", project_may_set=True),
    SettingKey("sandbox.keepEnv", "strings", "Environment variables that are kept although they look like secrets."),
    SettingKey("sandbox.excludedCommands", "strings", "Programs that run outside the sandbox."),
    SettingKey("compat.claude", "boolean", "Read .claude/settings*.json too."),
    SettingKey("model", "string", "The model a session talks to, as provider/name."),
    SettingKey(
        "contextWindow", "integer", "Tokens the model can take at once, where wieldy does not know or knows wrong."
    ),
    SettingKey("smallModel", "string", "The model that answers WebFetch's questions from a page, as provider/name."),
    SettingKey("baseUrl", "string", "The server of the model."),
    SettingKey("defer", "string", "When tools are sent by name only.", ("auto", "always", "never"), True),
    SettingKey("features.*", "boolean", "Features that are off unless named here."),
    SettingKey("edit.tolerance", "any", "How far an edit's text may differ from the file's.", project_may_set=True),
    SettingKey(
        "edit.on_external_change",
        "string",
        "When a file changed since it was read.",
        ("merge", "error", "markers"),
        True,
    ),
    SettingKey("edit.max_bytes", "integer", "Bytes of the largest file that is edited.", project_may_set=True),
    SettingKey(
        "read.unchanged_stub", "boolean", "Answer a repeated read of an unchanged file in a line.", project_may_set=True
    ),
    SettingKey(
        "bash.max_output_chars", "integer", "Characters of output that a command's result shows.", project_may_set=True
    ),
    SettingKey(
        "bash.timeout_ms",
        "integer",
        "Milliseconds a command may take when the call does not say.",
        project_may_set=True,
    ),
    SettingKey("bash.background_on_timeout", "boolean", "A command that takes too long goes on in the background."),
    SettingKey("bash.snapshot", "boolean", "Note what a command changes, so that it can be undone."),
    SettingKey("bash.max_background", "integer", "How many commands may run in the background."),
    SettingKey("agents.maxDepth", "integer", "How far down subagents may send further ones."),
    SettingKey("agents.maxTurns", "integer", "Turns a subagent may take unless its file says otherwise."),
    SettingKey("agents.maxRunning", "integer", "How many subagents may be at work at once."),
    SettingKey("search.seconds", "number", "Seconds a search may take.", project_may_set=True),
    SettingKey(
        "web.allowPrivateHosts",
        "strings",
        "Private hosts that WebFetch, the browser and the sandbox may connect to.",
    ),
    SettingKey("web.searxng", "string", "The address of a SearXNG server that WebSearch asks."),
    SettingKey(
        "web.providerSearch",
        "boolean",
        "Whether WebSearch asks the provider's own search; by default where it has one.",
    ),
    SettingKey("browser.sandbox", "boolean", "Let the browser build its own sandbox."),
    SettingKey(
        "edit.diagnostics",
        "any",
        "Report new errors in a changed file with its edit: true, or the seconds it may take.",
    ),
    SettingKey("journal.enabled", "boolean", "Keep what is needed to undo."),
    SettingKey("journal.max_age_days", "integer", "Days that undo is kept."),
    SettingKey("journal.max_bytes", "integer", "Bytes that undo may take."),
    SettingKey("respectGitignore", "boolean", "Leave ignored files out of searches.", project_may_set=True),
    SettingKey("cleanupPeriodDays", "integer", "Days that sessions are kept."),
)


@cache
def key_tree() -> dict[str, Any]:
    """The table as nested sections; a leaf is a `Key`."""
    root: dict[str, Any] = {}
    for key in KEYS:
        section = root
        *sections, last = key.name.split(".")
        for name in sections:
            section = section.setdefault(name, {})
        section[last] = key
    return root


def find_key(name: str) -> SettingKey | None:
    """The key of a dotted name, or the one that holds an object which the name is inside of."""
    here: Any = key_tree()
    for step in name.split("."):
        if isinstance(here, SettingKey):
            return here if here.kind in OBJECT_KINDS else None
        here = here.get(step, here.get("*"))
        if here is None:
            return None
    return here if isinstance(here, SettingKey) else None


FILE = Path(__file__).with_name("settings.schema.json")

_STRINGS: dict[str, Any] = {"type": "array", "items": {"type": "string"}}
_RULE: dict[str, Any] = {
    "type": "object",
    "properties": {"rule": {"type": "string"}, "match": _STRINGS, "not_match": _STRINGS},
    "required": ["rule"],
    "additionalProperties": False,
}
_KINDS: dict[str, dict[str, Any]] = {
    "strings": _STRINGS,
    "rules": {"type": "array", "items": {"anyOf": [{"type": "string"}, _RULE]}},
    "string map": {"type": "object", "additionalProperties": {"type": "string"}},
    "patterns": {"type": "object", "additionalProperties": {"anyOf": [{"type": "string"}, _STRINGS]}},
    "object": {"type": "object"},
    "any": {},
}


_HOOK: dict[str, Any] = {
    "type": "object",
    "properties": {
        "type": {"const": "command"},
        "command": {"description": "What sh runs, or with `args` a program.", "type": "string", "minLength": 1},
        "args": _STRINGS,
        "timeout": {"description": "Seconds it may take.", "type": "number", "exclusiveMinimum": 0},
        "if": {"description": "One permission rule: only calls it covers.", "type": "string"},
        "on_error": {"description": "What its failure means.", "enum": ["block", "warn"]},
    },
    "required": ["command"],
}
_MATCHED_HOOKS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "matcher": {"description": "Names, a regular expression, or nothing for all.", "type": "string"},
        "hooks": {"type": "array", "items": _HOOK},
    },
    "required": ["hooks"],
}


def settings_schema() -> dict[str, Any]:
    """The schema as a plain value."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "wieldy settings",
        **_section(key_tree()),
        "$defs": {"matchedHooks": _MATCHED_HOOKS},
    }


def as_text() -> str:
    """The schema as the file that is shipped."""
    return json.dumps(settings_schema(), indent=2, ensure_ascii=False) + "\n"


def _section(table: dict[str, Any]) -> dict[str, Any]:
    named = {name: _entry(entry) for name, entry in table.items() if name != "*"}
    schema: dict[str, Any] = {"type": "object"}
    if named:
        schema["properties"] = named
    if "*" in table:
        schema["additionalProperties"] = _entry(table["*"])
    return schema


def _entry(entry: Any) -> dict[str, Any]:
    if not isinstance(entry, SettingKey):
        return _section(entry)
    schema = _hooks() if entry.name == "hooks" else dict(_KINDS.get(entry.kind, {"type": entry.kind}))
    if entry.choices:
        schema["enum"] = list(entry.choices)
    return {"description": entry.description, **schema}


def _hooks() -> dict[str, Any]:
    from wieldy.hooks.events import HOOK_EVENTS

    events = {event: {"type": "array", "items": {"$ref": "#/$defs/matchedHooks"}} for event in HOOK_EVENTS}
    return {"type": "object", "properties": events, "additionalProperties": False}


if __name__ == "__main__":
    FILE.write_text(as_text(), "utf-8")
