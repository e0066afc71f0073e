"""Parses one permission rule, `Tool` or `Tool(specifier)`; errors say what was probably meant."""

from __future__ import annotations

import re
from collections.abc import Container
from functools import lru_cache
from typing import Literal, TypeAlias

from msgspec import Struct, field

from wieldy.core.decision import Behavior
from wieldy.core.text import MISSPELLED, nearest_name, truncate
from wieldy.core.tool import Tool
from wieldy.core.tool_names import RENAMED_TOOLS
from wieldy.tools import MODULES, builtin_tool

Layer: TypeAlias = Literal["managed", "command line", "code", "local", "project", "user", "session"]
Kind: TypeAlias = Literal["tool", "command", "path", "domain", "choice", "parameter"]

# Path rules are written for these two; each covers every tool that reads or writes.
PATH_SUBJECTS = {"read": "Read", "edit": "Edit"}
# These have rules of their own kind, so that `path:x` is no parameter rule.
PRIMARY_FIELDS = frozenset({"command", "file_path", "path", "notebook_path", "url"})
MAX_COMMAND_CHARS = 4096

_TOOL_NAME = re.compile(r"[A-Za-z_*][A-Za-z0-9_*.-]*")
_PARAMETER = re.compile(r"([A-Za-z_][A-Za-z0-9_-]+):(.+)", re.DOTALL)
_NAMED_SERVER = re.compile(r"mcp__[^*]*[^*_]__")
_SYSTEM_FOLDER = re.compile(r"/(etc|home|usr|var|tmp|root|opt|Users|proc|dev)(/|$)")


class Origin(Struct, frozen=True):
    """A place in the settings. `folder` is where a path rule that begins with `/` starts."""

    layer: Layer = "code"
    file: str | None = None
    line: int | None = None
    folder: str | None = None

    def __str__(self) -> str:
        if self.file is None:
            return self.layer
        return f"{self.file}:{self.line}" if self.line else self.file


IN_CODE = Origin()


class RuleError(ValueError):
    """A rule that cannot be used: what is wrong with it, and what was probably meant."""

    def __init__(self, message: str, suggestion: str | None = None) -> None:
        super().__init__(message + (f"; did you mean `{suggestion}`?" if suggestion else ""))
        self.suggestion = suggestion


class Examples(Struct, frozen=True):
    """What a rule's author expects it to match and not to match."""

    match: tuple[str, ...] = ()
    not_match: tuple[str, ...] = ()


class Rule(Struct, frozen=True):
    """A rule and where it is written. `subject` is the tool its specifier is about; `warning` is shown to the user."""

    text: str
    behavior: Behavior
    kind: Kind
    subject: str
    specifier: str | None = None
    origin: Origin = IN_CODE
    examples: Examples = field(default_factory=Examples)
    warning: str | None = None

    def __str__(self) -> str:
        return self.text


def parse(text: str, behavior: Behavior, origin: Origin = IN_CODE, examples: Examples | None = None) -> Rule:
    """Parse one rule. Raises `RuleError` for one that could not do what it seems to say."""
    text = text.strip()
    name, specifier = _split(text)
    _check_name(name, specifier, behavior)
    warning: str | None = None
    subject = RENAMED_TOOLS.get(name, name)
    kind: Kind = "tool"
    if specifier is not None and specifier != "*":
        try:
            kind, subject, warning = _classify(subject, specifier, behavior)
        except RuleError:
            likely_name = guess_tool(name)
            if likely_name is None:
                raise
            raise RuleError(f"there is no tool `{name}`", f"{likely_name}({specifier})") from None
    return Rule(text, behavior, kind, subject, specifier, origin, examples or Examples(), warning)


def split_list(text: str) -> list[str]:
    """Split a command-line list such as `Bash(gh:*),Bash(cat a b) Read`; separators inside parentheses are text."""
    rules = [""]
    depth = 0
    for letter in text:
        if depth == 0 and letter in ", \t\n":
            rules.append("")
            continue
        depth = max(0, depth + (letter == "(") - (letter == ")"))
        rules[-1] += letter
    return [rule for rule in rules if rule]


def _split(text: str) -> tuple[str, str | None]:
    if not text:
        raise RuleError("the rule is empty")
    if "\n" in text or "\r" in text or "\0" in text:
        raise RuleError("a rule is one line")
    name, opening, rest = text.partition("(")
    if opening and not rest.endswith(")"):
        raise RuleError(f"`{truncate(text, 60)}` has no closing parenthesis at its end", truncate(text, 60) + ")")
    if not _TOOL_NAME.fullmatch(name):
        raise RuleError(f"`{truncate(name, 60)}` is not a tool name: a rule is `Tool` or `Tool(specifier)`")
    specifier = rest[:-1] if opening else None
    if specifier is not None and not specifier.strip():
        raise RuleError(f"the parentheses of `{text}` are empty", name)
    return name, specifier


def _check_name(name: str, specifier: str | None, behavior: Behavior) -> None:
    if "*" in name:
        if specifier not in (None, "*"):
            raise RuleError(f"`{name}` is a pattern over tool names and takes no specifier", name)
        if behavior == "allow" and not _NAMED_SERVER.match(name):
            raise RuleError(
                f"`{name}` would allow tools by pattern: an allow rule may use `*` only after `mcp__server__`"
            )


def unknown_tool(rule: Rule, others: Container[str] = ()) -> str | None:
    """What to tell the author of a rule for a tool that is neither built in nor one of `others`; None for any other rule."""
    name = rule.text.partition("(")[0]
    if "*" in name or _is_known(name) or name in others:
        return None
    likely_name = guess_tool(name)
    question = f"did you mean `{likely_name}`?" if likely_name else "it does nothing unless a program adds such a tool"
    return f"there is no built-in tool `{name}`, {question}"


def _is_known(name: str) -> bool:
    return name in MODULES or name in RENAMED_TOOLS or name.startswith("mcp__")


@lru_cache(maxsize=512)
def guess_tool(name: str) -> str | None:
    """Return the built-in tool that a misspelled name was probably meant to be."""
    if _is_known(name):
        return None
    return nearest_name(name, MODULES, cutoff=MISSPELLED)


def _classify(name: str, specifier: str, behavior: Behavior) -> tuple[Kind, str, str | None]:
    """Return the kind of a rule, the tool it is about, and a warning."""
    tool = builtin_tool(name)
    if _is_parameter_rule(tool, specifier):
        if behavior == "allow":
            raise RuleError(f"`{name}({specifier})`: only deny and ask rules may look at a parameter", name)
        return "parameter", name, None
    match tool.rules if tool is not None else None:
        case "command":
            if specifier.strip() in (":*", "**"):
                raise RuleError(f"`{name}({specifier})` names no command", name)
            if len(specifier) > MAX_COMMAND_CHARS:
                raise RuleError(f"a command rule of more than {MAX_COMMAND_CHARS} characters matches nothing useful")
            return "command", name, None
        case "read" | "edit" as family:
            return _classify_path(name, PATH_SUBJECTS[family], specifier, behavior)
        case "domain":
            _check_domain(specifier)
            return "domain", name, None
        case "choice":
            return "choice", name, None
        case "bare":
            raise RuleError(f"{name} takes no specifier", name)
    if _PARAMETER.fullmatch(specifier):
        field_name = specifier.partition(":")[0]
        raise RuleError(f"`{field_name}` is what {name} is called for and has rules of its own kind", name)
    raise RuleError(f"`{name}` takes no specifier like `{truncate(specifier, 60)}`: write `parameter:value`", name)


def path_subject(tool: str) -> str | None:
    """The tool for which path rules about a built-in tool are written: `Read`, `Edit`, or none."""
    found = builtin_tool(tool)
    return None if found is None else PATH_SUBJECTS.get(found.rules or "")


def main_fields(tool: str) -> list[str]:
    """The field that a pattern for a built-in tool is matched with, and its other names."""
    found = builtin_tool(tool)
    if found is None:
        return []
    return [found.main_field, *(alias for alias, field_name in found.aliases.items() if field_name == found.main_field)]


def _is_parameter_rule(tool: Tool | None, specifier: str) -> bool:
    match = _PARAMETER.fullmatch(specifier)
    if not match or match[1] in PRIMARY_FIELDS:
        return False
    if tool is None or tool.rules in (None, "bare"):
        return True
    if tool.rules == "choice":
        return tool.aliases.get(match[1], match[1]) != tool.main_field
    # Where the specifier has a meaning of its own, only names of parameters are read as such; `timeout:*` is a program.
    return match[1] in tool.schema["properties"] and not (tool.rules == "command" and match[2] == "*")


def _classify_path(name: str, subject: str, specifier: str, behavior: Behavior) -> tuple[Kind, str, str | None]:
    warning = _check_path(subject, specifier)
    if name == subject:
        return "path", name, warning
    better = f"{subject}({specifier})"
    if behavior == "allow":
        raise RuleError(f"path rules for {name} are written for {subject}", better)
    # To ignore a deny rule would leave a hole, so it is read as the rule it must mean.
    return "path", subject, f"path rules for {name} are written for {subject}: taken as `{better}`"


def _check_path(name: str, specifier: str) -> str | None:
    if specifier.startswith("!"):
        raise RuleError(f"`{name}({specifier})`: a rule cannot be negated with `!`", f"{name}({specifier[1:]})")
    if specifier.startswith("~") and specifier != "~" and not specifier.startswith("~/"):
        raise RuleError(f"`{specifier}` names another user's home: write it from the root, `//home/…`")
    if _SYSTEM_FOLDER.match(specifier):
        return f"`{specifier}` starts at the folder of its settings; for the whole file system write `/{specifier}`"
    return None


def _check_domain(specifier: str) -> None:
    is_domain = specifier.startswith("domain:") and bool(specifier[7:].strip())
    host = specifier[7:].strip() if is_domain else specifier
    if is_domain and "/" not in host and ":" not in host:
        return
    bare = re.sub(r"^[a-z]+://", "", host).split("/")[0].split(":")[0]
    if is_domain:
        raise RuleError(f"`{host}` is not a host name", f"WebFetch(domain:{bare})")
    raise RuleError(
        f"`WebFetch({truncate(specifier, 60)})` names no domain", f"WebFetch(domain:{bare or 'example.com'})"
    )
