"""The table of settings: every key with its type, default and description. Code, checks, JSON Schema and docs all use it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache, partial
from typing import Any, Literal, TypeAlias

from msgspec import Struct

SettingKind: TypeAlias = Literal[
    "string", "boolean", "integer", "number", "strings", "rules", "string map", "patterns", "object", "any"
]
OBJECT_KINDS = frozenset({"string map", "patterns", "object", "any"})
_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "strings": (list, tuple),
    "rules": (list, tuple),
    "string map": (Mapping,),
    "patterns": (Mapping,),
    "object": (Mapping,),
    "any": (object,),
}


class SettingKey(Struct, frozen=True):
    """One setting. `*` in the name stands for any name. A default of None means that the setting has no value of its own.

    `project_may_set`: a project's file may set it without the user's consent. `restricts`: it may forbid what its default
    allows, so that work must not begin where its value cannot be read.
    """

    name: str
    kind: SettingKind
    default: Any
    description: str
    choices: tuple[str, ...] = ()
    project_may_set: bool = False
    restricts: bool = False

    def accepts(self, value: Any) -> bool:
        """Return whether a value is of the right type."""
        if isinstance(value, bool) and self.kind in ("integer", "number"):
            return False
        return isinstance(value, _TYPES[self.kind])


_open = partial(SettingKey, project_may_set=True)


_MODES = ("default", "manual", "acceptEdits", "plan", "bypassPermissions", "dontAsk")
_LEVELS = ("safe", "confirm", "dangerous", "forbidden")

KEYS: tuple[SettingKey, ...] = (
    _open("$schema", "string", None, "Where the schema of this file is, for editors."),
    SettingKey("permissions.allow", "rules", [], "Rules for calls that run without asking."),
    _open("permissions.ask", "rules", [], "Rules for calls that always ask.", restricts=True),
    _open("permissions.deny", "rules", [], "Rules for calls that never run.", restricts=True),
    SettingKey(
        "permissions.additionalDirectories", "strings", [], "Folders beside the project that tools may work in."
    ),
    SettingKey("permissions.defaultMode", "string", "default", "The mode a session starts in.", _MODES),
    SettingKey(
        "permissions.outside",
        "string",
        "ask",
        "What to do about files outside the allowed folders.",
        ("ask", "deny"),
        restricts=True,
    ),
    _open(
        "permissions.disableBypassPermissionsMode",
        "string",
        None,
        "`disable` takes bypassPermissions away.",
        ("disable",),
        restricts=True,
    ),
    _open(
        "allowManagedPermissionRulesOnly",
        "boolean",
        False,
        "In the managed file: only its own allow rules count.",
        restricts=True,
    ),
    SettingKey(
        "tools.*.level", "string", None, "The risk level of a tool, in place of its own.", _LEVELS, restricts=True
    ),
    SettingKey("tools.*.allowlist", "patterns", {}, "Patterns over parameters of calls that run without asking."),
    _open("tools.*.blocklist", "patterns", {}, "Patterns over parameters of calls that never run.", restricts=True),
    SettingKey("tools.*.timeout", "number", None, "Seconds a call may take, in place of the tool's own."),
    SettingKey(
        "tools.*.rateLimit.calls",
        "integer",
        None,
        "How many calls of the tool may be made in `seconds`.",
        restricts=True,
    ),
    SettingKey(
        "tools.*.rateLimit.seconds", "number", None, "The time that `rateLimit.calls` counts in.", restricts=True
    ),
    SettingKey("tools.*.rateLimit.wait", "boolean", False, "Whether a call too many waits instead of being refused."),
    SettingKey("tools.*.cacheSeconds", "number", None, "How long results of a read-only tool are cached."),
    SettingKey("env", "string map", {}, "Environment variables for commands and servers."),
    _open("editorMode", "string", "normal", "The keys of the input box: `vim` for vi keys.", ("normal", "vim")),
    SettingKey(
        "statusLine", "object", None, 'A command that prints the status line: {"type": "command", "command": "…"}.'
    ),
    SettingKey(
        "notifications",
        "string",
        "auto",
        "How to tell you that it is your turn after ten seconds: `auto` is a bell and, where known, a desktop notification.",
        ("auto", "bell", "off"),
    ),
    SettingKey("hooks", "object", {}, "Commands to run at events.", restricts=True),
    _open(
        "messageIdleNotifThresholdMs", "integer", 60_000, "Milliseconds without a prompt before Notification hooks run."
    ),
    SettingKey("disableAllHooks", "boolean", False, "Run no hooks at all."),
    SettingKey("mcpServers", "object", {}, "MCP servers, by name."),
    SettingKey("enableAllProjectMcpServers", "boolean", False, "Start every server of the project's .mcp.json."),
    SettingKey("enabledMcpjsonServers", "strings", [], "Servers of .mcp.json to start."),
    _open("disabledMcpjsonServers", "strings", [], "Servers of .mcp.json never to start.", restricts=True),
    SettingKey("mcp.sampling", "strings", [], "MCP servers that may use the model without asking you."),
    SettingKey("sandbox.enabled", "boolean", False, "Run commands in a sandbox.", restricts=True),
    SettingKey(
        "sandbox.autoAllow",
        "boolean",
        False,
        "Commands inside the sandbox run without asking, where it was tried and holds.",
    ),
    SettingKey(
        "sandbox.allowUnsandboxed",
        "boolean",
        True,
        "The model may ask to run a command outside the sandbox; you decide.",
        restricts=True,
    ),
    SettingKey("sandbox.mechanism", "string", "auto", "Which sandbox to use.", ("auto", "bubblewrap", "landlock")),
    SettingKey(
        "sandbox.failIfUnavailable", "boolean", False, "Refuse commands where no sandbox is available.", restricts=True
    ),
    SettingKey("sandbox.network", "boolean", False, "Whether commands in the sandbox reach the network."),
    SettingKey("sandbox.allowedDomains", "strings", [], "Hosts that commands in the sandbox may reach."),
    SettingKey("sandbox.allowWrite", "strings", [], "Further folders that commands in the sandbox may write to."),
    SettingKey("sandbox.allowRead", "strings", [], "Folders that the sandbox would hide, but commands may read."),
    _open("sandbox.denyRead", "strings", [], "Folders that commands in the sandbox do not see.", restricts=True),
    SettingKey(
        "sandbox.maxEntries",
        "integer",
        200_000,
        "Files and folders that are looked through for protected ones around a command; beyond it, sandboxed commands ask.",
    ),
    SettingKey("sandbox.excludedCommands", "strings", [], "Programs that run outside the sandbox."),
    SettingKey(
        "compat.claude", "boolean", False, "Use everything in .claude/settings*.json, not only deny and ask rules."
    ),
    SettingKey("model", "string", None, "The model of a session, as provider/name."),
    SettingKey(
        "contextWindow", "integer", None, "Tokens of the model's context, where wieldy does not know or is wrong."
    ),
    SettingKey(
        "smallModel", "string", None, "The model that answers WebFetch's questions from a page, as provider/name."
    ),
    SettingKey("baseUrl", "string", None, "The server of the model."),
    SettingKey(
        "prices",
        "object",
        {},
        "Dollars per million tokens of models, by name: `{input, output, cacheRead, cacheWrite}`; the cache costs as "
        "`input` unless given.",
    ),
    _open("defer", "string", "auto", "When tools are sent by name only.", ("auto", "always", "never")),
    SettingKey("features.*", "boolean", False, "Features that are off unless named here."),
    _open(
        "edit.tolerance", "any", "all", "How far an edit's text may differ from the file's: `all`, `exact`, or a list."
    ),
    _open(
        "edit.onExternalChange",
        "string",
        "merge",
        "What to do when a file changed since it was read.",
        ("merge", "error", "markers"),
    ),
    _open("edit.maxBytes", "integer", 50_000_000, "Bytes of the largest file that is edited."),
    SettingKey("edit.diagnostics", "any", False, "Report new errors after an edit: true, or the seconds it may take."),
    _open("read.unchangedStub", "boolean", True, "Answer a repeated read of an unchanged file in one line."),
    _open("bash.maxOutputChars", "integer", 30_000, "Characters of output that a command's result shows."),
    _open("bash.timeoutMs", "integer", 120_000, "Milliseconds a command may take when the call does not say."),
    SettingKey(
        "bash.backgroundOnTimeout", "boolean", False, "A command that takes too long goes on in the background."
    ),
    SettingKey("bash.snapshot", "boolean", True, "Record what a command changes, so that it can be undone."),
    SettingKey(
        "bash.snapshotSeconds",
        "number",
        0.4,
        "Seconds for a look at the project around a command, half as much more where one look is enough. "
        "Undo does not cover what it does not reach.",
    ),
    SettingKey("bash.keepEnv", "strings", [], "Variables that commands get although they look like secrets."),
    SettingKey(
        "bash.separateStderr", "boolean", False, "Capture stderr apart; the order of both streams is then approximate."
    ),
    SettingKey(
        "bash.maxMemoryMb",
        "integer",
        None,
        "Megabytes that each process of a command, and all together, may use if the command was proven harmless; 0: any. "
        "Default: 4096, at most half of the memory.",
    ),
    SettingKey(
        "bash.maxProcesses", "integer", 256, "How many processes a command that was proven harmless may have; 0: any."
    ),
    SettingKey("bash.maxFileMb", "integer", 4_096, "Megabytes of a file that a proven command may write; 0: any."),
    SettingKey("bash.maxBackground", "integer", 32, "How many commands may run in the background."),
    SettingKey("agents.maxDepth", "integer", 3, "How deep subagents may start further ones."),
    SettingKey("agents.maxTurns", "integer", 200, "Turns a subagent may take unless its file says otherwise."),
    SettingKey("agents.maxRunning", "integer", 20, "How many subagents may run at once."),
    _open("search.seconds", "number", 60.0, "Seconds a FileSearch may take."),
    SettingKey(
        "web.allowPrivateHosts", "strings", [], "Private hosts that WebFetch, the browser and the sandbox may reach."
    ),
    SettingKey("web.searxng", "string", None, "The address of a SearXNG server that WebSearch asks."),
    SettingKey(
        "web.providerSearch", "boolean", None, "Whether WebSearch uses the provider's search; default: if it has one."
    ),
    SettingKey("browser.sandbox", "boolean", True, "Let the browser build its own sandbox."),
    SettingKey("journal.enabled", "boolean", True, "Record changes, so that they can be undone."),
    SettingKey("journal.required", "boolean", True, "Refuse edits that could not be undone."),
    SettingKey("journal.maxAgeDays", "integer", 30, "Days that undo is kept."),
    SettingKey("journal.maxBytes", "integer", 1 << 30, "Bytes that undo may take."),
    _open("respectGitignore", "boolean", True, "Leave ignored files out of searches."),
    SettingKey(
        "cleanupPeriodDays", "integer", None, "Days that sessions are kept after their last use; default: for ever."
    ),
)


@cache
def key_tree() -> dict[str, Any]:
    """The table as nested sections; a leaf is a `SettingKey`."""
    root: dict[str, Any] = {}
    for key in KEYS:
        section = root
        *sections, last = key.name.split(".")
        for name in sections:
            section = section.setdefault(name, {})
        section[last] = key
    return root


@cache
def find_key(name: str) -> SettingKey | None:
    """Find the key of a dotted name, or the one that holds an object which the name is inside of."""
    here: Any = key_tree()
    for step in name.split("."):
        if isinstance(here, SettingKey):
            return here if here.kind in OBJECT_KINDS else None
        here = here.get(step, here.get("*"))
        if here is None:
            return None
    return here if isinstance(here, SettingKey) else None


BASH_TIMEOUT_VARIABLES = ("WIELDY_BASH_TIMEOUT_MS", "CLAUDE_BASH_TIMEOUT_MS")
"""Variables that take the place of `bash.timeoutMs`, the first before the second."""


def default_of(name: str) -> Any:
    key = find_key(name)
    return None if key is None else key.default


def to_camel_case(name: str) -> str:
    """Spell a name of older versions, such as `max_bytes`, as names are spelled now."""
    return re.sub(r"_([a-z])", lambda match: match[1].upper(), name)
