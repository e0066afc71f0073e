"""Permission rules, `Tool` or `Tool(specifier)`: the class of each kind says how it is read, what it covers, which is offered.

To add a kind, write a subclass of `Rule` and add it to `KINDS`. Errors say what was probably meant.
"""

from __future__ import annotations

import os
import re
from collections.abc import Container, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, ClassVar, Literal, TypeAlias

from msgspec import Struct, field

from wieldy.core.call import PlannedCall
from wieldy.core.decision import Behavior
from wieldy.core.effects import Reads, Writes
from wieldy.core.text import MISSPELLED, nearest_name, truncate
from wieldy.core.tool import Tool
from wieldy.core.tool_names import RENAMED_TOOLS
from wieldy.policy.permissions.paths import PathResolver, ResolvedPath, is_below, normalize_path, path_key
from wieldy.policy.permissions.patterns import (
    CommandPattern,
    PathPattern,
    compile_command,
    domain_matches,
    escape_command,
    escape_path,
    host_of,
    resolve_path_pattern,
    wildcard,
)
from wieldy.tools import MODULES, builtin_tool

Layer: TypeAlias = Literal["managed", "command line", "code", "local", "project", "user", "session"]

# Path rules are written for these two; each covers every tool that reads or writes.
PATH_SUBJECTS = {"read": "Read", "edit": "Edit"}
# These have rules of their own kind, so that `path:x` is no parameter rule.
PRIMARY_FIELDS = frozenset({"command", "file_path", "path", "notebook_path", "url"})
MAX_COMMAND_CHARS = 4096
# Of the rules that answer one question, so many are saved, each this long.
MAX_RULES = 5
MAX_RULE_CHARS = 120

_TOOL_NAME = re.compile(r"[A-Za-z_*][A-Za-z0-9_*.-]*")
_PARAMETER = re.compile(r"([A-Za-z_][A-Za-z0-9_-]+):(.+)", re.DOTALL)
_NAMED_SERVER = re.compile(r"mcp__[^*]*[^*_]__")
_SYSTEM_FOLDER = re.compile(r"/(etc|home|usr|var|tmp|root|opt|Users|proc|dev)(/|$)")
# What may not follow the parenthesis that closes a specifier: a condition such as ` when cwd(x)`.
_CLAUSE = re.compile(r"\s+[A-Za-z_][\w\s]*\(")


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
    """A rule and where it is written. `subject` is the tool that it is about; `warning` is shown to the user.

    Without a specifier, or with `*` for one, every kind is about the tool as such.
    """

    kind: ClassVar[str] = "tool"
    # Whether such a rule can be about a part of a command, or about a file or host that one touches.
    reaches_commands: ClassVar[bool] = False

    text: str
    behavior: Behavior
    subject: str
    specifier: str | None = None
    origin: Origin = IN_CODE
    examples: Examples = field(default_factory=Examples)
    warning: str | None = None

    def __str__(self) -> str:
        return self.text

    @classmethod
    def claims(cls, name: str, tool: Tool | None, specifier: str | None) -> bool:
        """Whether a rule for a tool with this specifier is of this kind."""
        return True

    @classmethod
    def check(cls, name: str, specifier: str, behavior: Behavior) -> tuple[str, str | None]:
        """Return the tool that a rule with a specifier is about, and a warning. Raises `RuleError`."""
        if (tool := builtin_tool(name)) is not None and tool.rules == "bare":
            raise RuleError(f"{name} takes no specifier", name)
        if match := _PARAMETER.fullmatch(specifier):
            raise RuleError(f"`{match[1]}` is what {name} is called for and has rules of its own kind", name)
        raise RuleError(f"`{name}` takes no specifier like `{truncate(specifier, 60)}`: write `parameter:value`", name)

    @property
    def is_whole(self) -> bool:
        """Whether the rule is about a tool as such."""
        return self.specifier in (None, "*")

    def covers_tool(self, name: str) -> bool:
        """Whether the rule is about a tool as such. To forbid or ask, `Read` and `Edit` stand for all tools that read or edit."""
        if not self.is_whole:
            return False
        if name == self.subject or ("*" in self.subject and fnmatchcase(name, self.subject)):
            return True
        return (
            self.behavior != "allow" and self.subject in PATH_SUBJECTS.values() and path_subject(name) == self.subject
        )

    def covers_call(self, plan: PlannedCall) -> bool:
        """Whether the rule is about what a call is given."""
        return False

    def covers_host(self, host: str) -> bool:
        return False

    @property
    def command_pattern(self) -> CommandPattern | None:
        """What the rule covers of the commands in a command line."""
        return None

    def path_pattern(self, paths: PathResolver, home: str | None = None) -> PathPattern | None:
        """What the rule covers of the files of a workspace."""
        return None

    def matches_example(self, example: str, paths: PathResolver) -> bool:
        """Match one simple command, path, URL, tool name or parameter value, as the kind takes it."""
        return fnmatchcase(example, self.subject)

    @property
    def is_savable(self) -> bool:
        """Whether the rule, of a printable text that reads back, may be kept in a settings file."""
        return True

    @staticmethod
    def offer(name: str) -> str | None:
        """The rule to offer for a tool."""
        rule = parse_savable(name)
        return name if rule is not None and rule.covers_tool(name) else None


class McpRule(Rule, frozen=True):
    """A rule about the tools of an MCP server: `mcp__server`, or one tool or a pattern after it."""

    kind: ClassVar[str] = "mcp"

    @classmethod
    def claims(cls, name: str, tool: Tool | None, specifier: str | None) -> bool:
        return name.startswith("mcp__")

    def covers_tool(self, name: str) -> bool:
        # Where a server's name ends is not certain: an allow rule must not mean another tool than the one it names.
        servers = _server_names(name)
        named = servers[:1] if self.behavior == "allow" else servers
        return super().covers_tool(name) or (self.is_whole and self.subject in named)


def _server_names(name: str) -> list[str]:
    """For `mcp__a__b`, list the names that may stand for its whole server, shortest first."""
    names: list[str] = []
    end = name.find("__", 5) if name.startswith("mcp__") else -1
    while end > 0:
        names.append(name[:end])
        end = name.find("__", end + 1)
    return names


class ParameterRule(Rule, frozen=True):
    """`Tool(parameter:pattern)`: a parameter that a call of any tool is given, only to forbid or ask."""

    kind: ClassVar[str] = "parameter"

    @classmethod
    def claims(cls, name: str, tool: Tool | None, specifier: str | None) -> bool:
        match = _PARAMETER.fullmatch(specifier or "")
        if not match or match[1] in PRIMARY_FIELDS:
            return False
        if tool is None or tool.rules in (None, "bare"):
            return True
        if tool.rules == "choice":
            return tool.aliases.get(match[1], match[1]) != tool.main_field
        # Where the specifier has a meaning of its own, only names of parameters are read as such; `timeout:*` is a program.
        return match[1] in tool.schema["properties"] and not (tool.rules == "command" and match[2] == "*")

    @classmethod
    def check(cls, name: str, specifier: str, behavior: Behavior) -> tuple[str, str | None]:
        if behavior == "allow":
            raise RuleError(f"`{name}({specifier})`: only deny and ask rules may look at a parameter", name)
        return name, None

    def covers_call(self, plan: PlannedCall) -> bool:
        name, _, pattern = (self.specifier or "").partition(":")
        value = as_text(plan.input.get(name))
        return plan.tool.name == self.subject and value is not None and wildcard(pattern, value)

    def matches_example(self, example: str, paths: PathResolver) -> bool:
        name, _, pattern = (self.specifier or "").partition(":")
        return wildcard(pattern, example.removeprefix(f"{name}:"))


class CommandRule(Rule, frozen=True):
    """`Bash(command)`: the simple commands in a command line."""

    kind: ClassVar[str] = "command"
    reaches_commands: ClassVar[bool] = True

    @classmethod
    def claims(cls, name: str, tool: Tool | None, specifier: str | None) -> bool:
        return tool is not None and tool.rules == "command"

    @classmethod
    def check(cls, name: str, specifier: str, behavior: Behavior) -> tuple[str, str | None]:
        if specifier.strip() in (":*", "**"):
            raise RuleError(f"`{name}({specifier})` names no command", name)
        if len(specifier) > MAX_COMMAND_CHARS:
            raise RuleError(f"a command rule of more than {MAX_COMMAND_CHARS} characters matches nothing useful")
        return name, None

    @property
    def command_pattern(self) -> CommandPattern | None:
        return None if self.is_whole else compile_command(self.specifier or "")

    def matches_example(self, example: str, paths: PathResolver) -> bool:
        return self.is_whole or CommandPattern(self.specifier or "").matches(example.strip())

    @property
    def is_savable(self) -> bool:
        from wieldy.shell.effects.programs.offers import SHELL_KEYWORDS

        return (self.specifier or "").split(" ")[0].removesuffix(":*") not in SHELL_KEYWORDS

    @staticmethod
    def offer_for(program: str | None, text: str, *, exact: bool = False) -> str | None:
        """The rule to offer for a simple command: its words up to the sub-command where that is safe, else just this command."""
        from wieldy.shell.effects.programs.offers import may_have_rule, safe_prefix

        # Of a page of text only the first words can make a rule.
        text = text[: 2 * MAX_RULE_CHARS]
        words = text.split(" ")
        if not may_have_rule(program, words):
            return None
        prefix = None if exact else safe_prefix(words)
        if prefix is not None:
            rule = f"Bash({prefix}:*)"
            return rule if len(rule) <= MAX_RULE_CHARS else None
        specifier = escape_command(text)
        rule = f"Bash({specifier})"
        return rule if parse_savable(rule) and CommandPattern(specifier).matches(text) else None


class PathRule(Rule, frozen=True):
    """`Read(path)` or `Edit(path)`: files, for every tool and command that reads or writes them."""

    kind: ClassVar[str] = "path"
    reaches_commands: ClassVar[bool] = True

    @classmethod
    def claims(cls, name: str, tool: Tool | None, specifier: str | None) -> bool:
        return tool is not None and tool.rules in PATH_SUBJECTS

    @classmethod
    def check(cls, name: str, specifier: str, behavior: Behavior) -> tuple[str, str | None]:
        subject = path_subject(name) or name
        if specifier.startswith("!"):
            text = f"`{subject}({specifier})`: a rule cannot be negated with `!`"
            raise RuleError(text, f"{subject}({specifier[1:]})")
        if specifier.startswith("~") and specifier != "~" and not specifier.startswith("~/"):
            raise RuleError(f"`{specifier}` names another user's home: write it from the root, `//home/…`")
        warning = None
        if _SYSTEM_FOLDER.match(specifier):
            warning = (
                f"`{specifier}` starts at the folder of its settings; for the whole file system write `/{specifier}`"
            )
        if name == subject:
            return name, warning
        better = f"{subject}({specifier})"
        if behavior == "allow":
            raise RuleError(f"path rules for {name} are written for {subject}", better)
        # To ignore a deny rule would leave a hole, so it is read as the rule it must mean.
        return subject, f"path rules for {name} are written for {subject}: taken as `{better}`"

    def path_pattern(self, paths: PathResolver, home: str | None = None) -> PathPattern | None:
        if self.is_whole:
            return None
        return resolve_path_pattern(
            self.specifier or "",
            self.behavior,
            cwd=paths.project,
            home=home or paths.home,
            settings_folder=self.origin.folder,
        )

    def matches_example(self, example: str, paths: PathResolver) -> bool:
        expanded = paths.home + example[1:] if example.startswith("~/") else example
        path = normalize_path(expanded if expanded.startswith("/") else f"{paths.project}/{expanded}")
        pattern = self.path_pattern(paths)
        return pattern is None or pattern.matches(path_key(path))

    @staticmethod
    def offer_for(effect: Reads | Writes, resolved: ResolvedPath, paths: PathResolver) -> str | None:
        """The rule to offer for this file, or for its folder if it is read outside the project; none for a symlink or a home."""
        if len(resolved.spellings) > 1:
            return None
        path = resolved.real
        if paths.is_folder(path):
            # A rule for a folder is one for all that is in it.
            if not _may_be_offered(path, paths):
                return None
        elif isinstance(effect, Reads) and not resolved.inside and _may_be_offered(os.path.dirname(path), paths):
            path = os.path.dirname(path)
        root = paths.project
        name = path[len(root) :].lstrip("/") if is_below(path, root) and path != root else path
        rule = parse_savable(f"{'Edit' if isinstance(effect, Writes) else 'Read'}(/{escape_path(name)})", root)
        literal = pattern.literal if rule is not None and (pattern := rule.path_pattern(paths)) is not None else None
        if literal is None or path_key(literal, resolved.folds_case) != path_key(path, resolved.folds_case):
            return None
        return str(rule)


def _may_be_offered(folder: str, paths: PathResolver) -> bool:
    """Whether a folder is small enough in meaning: not a home, nothing that holds one, nothing hidden in one, no top folder."""
    if folder.count("/") < 2 or is_below(paths.home, folder) or is_below(paths.root, folder):
        return False
    is_hidden = any(name.startswith(".") for name in folder.split("/"))
    return not is_hidden and os.path.dirname(folder) not in ("/home", "/Users")


class HostRule(Rule, frozen=True):
    """`WebFetch(domain:host)`: a host, for every tool and command that talks to it."""

    kind: ClassVar[str] = "domain"
    reaches_commands: ClassVar[bool] = True

    @classmethod
    def claims(cls, name: str, tool: Tool | None, specifier: str | None) -> bool:
        return tool is not None and tool.rules == "domain"

    @classmethod
    def check(cls, name: str, specifier: str, behavior: Behavior) -> tuple[str, str | None]:
        is_domain = specifier.startswith("domain:") and bool(specifier[7:].strip())
        host = specifier[7:].strip() if is_domain else specifier
        if is_domain and "/" not in host and ":" not in host:
            return name, None
        bare = re.sub(r"^[a-z]+://", "", host).split("/")[0].split(":")[0]
        if is_domain:
            raise RuleError(f"`{host}` is not a host name", f"WebFetch(domain:{bare})")
        text = f"`WebFetch({truncate(specifier, 60)})` names no domain"
        raise RuleError(text, f"WebFetch(domain:{bare or 'example.com'})")

    def covers_host(self, host: str) -> bool:
        return not self.is_whole and domain_matches(self.specifier or "", host)

    def matches_example(self, example: str, paths: PathResolver) -> bool:
        host = host_of(example)
        return self.is_whole or (host is not None and self.covers_host(host))

    @staticmethod
    def offer_for(host: str | None) -> str | None:
        """The rule to offer for a host."""
        rule = parse_savable(f"WebFetch(domain:{host})") if host else None
        return str(rule) if rule is not None and rule.covers_host(host or "") else None


class ChoiceRule(Rule, frozen=True):
    """`Agent(explore)`, `Skill(pdf *)`: what a call of the tool picks."""

    kind: ClassVar[str] = "choice"

    @classmethod
    def claims(cls, name: str, tool: Tool | None, specifier: str | None) -> bool:
        return tool is not None and tool.rules == "choice"

    @classmethod
    def check(cls, name: str, specifier: str, behavior: Behavior) -> tuple[str, str | None]:
        return name, None

    def covers_call(self, plan: PlannedCall) -> bool:
        tool = builtin_tool(self.subject)
        if tool is None or plan.tool.name != self.subject or self.is_whole:
            return False
        names = (tool.main_field, *(alias for alias, name in tool.aliases.items() if name == tool.main_field))
        values = (as_text(plan.input.get(name)) for name in names)
        covers = compile_command(self.specifier or "").matches
        return any(value is not None and covers(value) for value in values)

    def matches_example(self, example: str, paths: PathResolver) -> bool:
        return self.is_whole or CommandPattern(self.specifier or "").matches(example)


# In the order in which they are asked whether a rule is theirs.
KINDS: tuple[type[Rule], ...] = (ParameterRule, CommandRule, PathRule, HostRule, ChoiceRule, McpRule, Rule)


def parse(text: str, behavior: Behavior, origin: Origin = IN_CODE, examples: Examples | None = None) -> Rule:
    """Parse one rule. Raises `RuleError` for one that could not do what it seems to say."""
    text = text.strip()
    name, specifier = split_rule(text)
    _check_name(name, specifier, behavior)
    subject, warning = RENAMED_TOOLS.get(name, name), None
    tool = builtin_tool(subject) if specifier is not None else None
    kind = next(kind for kind in KINDS if kind.claims(subject, tool, specifier))
    if specifier is not None and specifier != "*":
        try:
            subject, warning = kind.check(subject, specifier, behavior)
        except RuleError:
            likely_name = guess_tool(name)
            if likely_name is None:
                raise
            raise RuleError(f"there is no tool `{name}`", f"{likely_name}({specifier})") from None
    return kind(text, behavior, subject, specifier, origin, examples or Examples(), warning)


def split_rule(text: str) -> tuple[str, str | None]:
    """Split a rule into the name of its tool and its specifier. Raises `RuleError` for text before, between or after them."""
    if not text:
        raise RuleError("the rule is empty")
    if "\n" in text or "\r" in text or "\0" in text:
        raise RuleError("a rule is one line")
    name, opening, rest = text.partition("(")
    end = _closing_parenthesis(rest) if opening else len(rest)
    if end < len(rest) and (_CLAUSE.match(rest, end + 1) or not rest.endswith(")")):
        after = truncate(rest[end + 1 :].strip(), 40)
        raise RuleError(
            f"`{after}` follows the rule `{name}({truncate(rest[:end], 60)})`: put a comma between two rules"
        )
    if opening and not rest.endswith(")"):
        raise RuleError(f"`{truncate(text, 60)}` has no closing parenthesis at its end", truncate(text, 60) + ")")
    if not _TOOL_NAME.fullmatch(name):
        raise RuleError(f"`{truncate(name, 60)}` is not a tool name: a rule is `Tool` or `Tool(specifier)`")
    specifier = rest[:-1] if opening else None
    if specifier is not None and not specifier.strip():
        raise RuleError(f"the parentheses of `{text}` are empty", name)
    return name, specifier


def _closing_parenthesis(text: str) -> int:
    """The place of the parenthesis that closes one before the text; the end of the text if none does."""
    depth = 1
    for index, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if not depth:
            return index
    return len(text)


def split_list(text: str) -> list[str]:
    """Split a command-line list such as `Bash(gh:*),Bash(cat a b) Read`; separators inside parentheses are text.

    A blank separates rules only where the name of a tool follows: else a condition after a rule would be cut off it.
    """
    rules = [""]
    depth = 0
    for index, letter in enumerate(text):
        if depth == 0 and (letter == "," or (letter.isspace() and _begins_rule(text[index:]))):
            rules.append("")
            continue
        depth = max(0, depth + (letter == "(") - (letter == ")"))
        rules[-1] += letter
    return [rule.strip() for rule in rules if rule.strip()]


def _begins_rule(text: str) -> bool:
    match = _TOOL_NAME.match(text.lstrip())
    return match is not None and ("*" in match[0] or _is_known(match[0]))


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
    name = split_rule(rule.text)[0]
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


def path_subject(tool: str) -> str | None:
    """The tool for which path rules about a built-in tool are written: `Read`, `Edit`, or none."""
    found = builtin_tool(tool)
    return None if found is None else PATH_SUBJECTS.get(found.rules or "")


def as_text(value: Any) -> str | None:
    """Spell a scalar input as rules write it; None for lists and objects."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int | float) else None


def parse_savable(text: str, root: str | None = None) -> Rule | None:
    """Parse a rule fit for a settings file: short, one line, readable again, and not itself a piece of script."""
    if len(text) > MAX_RULE_CHARS or "<<" in text or not text.isprintable():
        return None
    try:
        rule = parse(text, "allow", Origin("session", folder=root))
    except RuleError:
        return None
    return rule if rule.is_savable and rule.text == text else None


class SavableRules(Struct, frozen=True):
    """Rules to save, and a line about each that is not worth saving."""

    rules: tuple[Rule, ...]
    refused: tuple[str, ...] = ()


def select_savable_rules(texts: Sequence[str], root: str) -> SavableRules:
    """Pick the rules to save after a "don't ask again", at most five."""
    rules: list[Rule] = []
    refused: list[str] = []
    for text in dict.fromkeys(texts):
        rule = parse_savable(text, root)
        if rule is None:
            refused.append(f"`{truncate(text, 60)}` would make no useful rule: it was not saved")
        elif len(rules) == MAX_RULES:
            refused.append(f"more than {MAX_RULES} rules for one call: `{text}` was not saved")
        else:
            rules.append(rule)
    return SavableRules(tuple(rules), tuple(refused))
