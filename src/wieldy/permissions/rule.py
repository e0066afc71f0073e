"""One permission rule: `Tool` or `Tool(specifier)`, parsed, checked and printed."""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

from wieldy.core.decision import Behavior
from wieldy.core.record import field, record
from wieldy.permissions.origin import IN_CODE, Origin
from wieldy.schema.pattern import pattern

Kind: TypeAlias = Literal["tool", "command", "path", "domain", "choice", "parameter"]

NAME = pattern(r"[A-Za-z_*][A-Za-z0-9_*.-]*")
PARAMETER = pattern(r"([A-Za-z_][A-Za-z0-9_-]+):(.+)", re.DOTALL)
LITERAL_SERVER = pattern(r"mcp__[^*]*[^*_]__")

# Path rules are written for Read and Edit; each covers every tool that reads or writes.
PATH_RULES_OF = {
    "Write": "Edit",
    "MultiEdit": "Edit",
    "NotebookEdit": "Edit",
    "Glob": "Read",
    "Grep": "Read",
    "LS": "Read",
    "NotebookRead": "Read",
}
PRIMARY_FIELDS = frozenset({"command", "file_path", "path", "notebook_path", "url"})
# For tools whose specifier has a meaning of its own, only these names are read as parameters.
OWN_PARAMETERS = {
    "Bash": frozenset({"description", "timeout", "run_in_background"}),
    "Read": frozenset({"offset", "limit", "pages"}),
    "Edit": frozenset({"old_string", "new_string", "replace_all"}),
    "WebFetch": frozenset({"prompt"}),
}
# Tools that pick one of several things: the specifier is a pattern over the name picked.
CHOICES = {"Agent": ("agent_type", "subagent_type", "type"), "Skill": ("skill", "name")}
RENAMED = {"Task": "Agent", "Monitor": "Bash"}


class RuleProblem(ValueError):
    """A rule that cannot be used: what is wrong with it, and what was probably meant."""

    def __init__(self, message: str, suggestion: str | None = None) -> None:
        super().__init__(message + (f"; did you mean `{suggestion}`?" if suggestion else ""))
        self.suggestion = suggestion


@record
class Examples:
    """What a rule's author expects it to match and not to match."""

    match: tuple[str, ...] = ()
    not_match: tuple[str, ...] = ()


@record
class Rule:
    """A rule and where it is written. `subject` is the tool name its specifier is about."""

    text: str
    behavior: Behavior
    kind: Kind
    subject: str
    specifier: str | None = None
    origin: Origin = IN_CODE
    examples: Examples = field(default_factory=Examples)
    doubt: str | None = None

    def __str__(self) -> str:
        return self.text

    @property
    def whole(self) -> bool:
        """Whether the rule is about a tool as such."""
        return self.kind == "tool"


def parse(text: str, behavior: Behavior, origin: Origin = IN_CODE, examples: Examples | None = None) -> Rule:
    """Read one rule. Raises `RuleProblem` for one that could not do what it seems to say."""
    text = text.strip()
    name, specifier = _halves(text)
    doubt = _check_name(name, specifier, behavior)
    subject = RENAMED.get(name, name)
    if specifier is None or specifier == "*":
        kind: Kind = "tool"
    else:
        kind, subject, spoken = _classify(subject, specifier, behavior)
        doubt = spoken or doubt
    return Rule(text, behavior, kind, subject, specifier, origin, examples or Examples(), doubt)


def _halves(text: str) -> tuple[str, str | None]:
    if not text:
        raise RuleProblem("the rule is empty")
    if "\n" in text or "\r" in text or "\0" in text:
        raise RuleProblem("a rule is one line")
    name, opening, rest = text.partition("(")
    if opening and not rest.endswith(")"):
        raise RuleProblem(f"`{_shown(text)}` has no closing parenthesis at its end", _shown(text) + ")")
    if not NAME.fullmatch(name):
        raise RuleProblem(f"`{_shown(name)}` is not a tool name: a rule is `Tool` or `Tool(specifier)`")
    specifier = rest[:-1] if opening else None
    if specifier is not None and not specifier.strip():
        raise RuleProblem(f"the parentheses of `{text}` are empty", name)
    return name, specifier


def _check_name(name: str, specifier: str | None, behavior: Behavior) -> str | None:
    if "*" in name:
        if specifier not in (None, "*"):
            raise RuleProblem(f"`{name}` is a pattern over tool names and takes no specifier", name)
        if behavior == "allow" and not LITERAL_SERVER.match(name):
            raise RuleProblem(
                f"`{name}` would allow tools by pattern: an allow rule may use `*` only after `mcp__server__`"
            )
        return None
    from wieldy.permissions.levels import likely_tool

    if name not in RENAMED and (meant := likely_tool(name)) is not None:
        return f"there is no built-in tool `{name}`, did you mean `{meant}`?"
    return None


def _classify(name: str, specifier: str, behavior: Behavior) -> tuple[Kind, str, str | None]:
    if _is_parameter_rule(name, specifier):
        if behavior == "allow":
            raise RuleProblem(f"`{name}({specifier})`: only deny and ask rules may look at a parameter", name)
        return "parameter", name, None
    if name == "Bash":
        return _command(specifier)
    if name in ("Read", "Edit"):
        return "path", name, _path_doubt(name, specifier)
    if name in PATH_RULES_OF:
        return _other_path(name, specifier, behavior)
    if name == "WebFetch":
        return _domain(specifier)
    if name in CHOICES:
        return "choice", name, None
    if name == "WebSearch":
        raise RuleProblem("WebSearch takes no specifier", "WebSearch")
    if PARAMETER.fullmatch(specifier):
        field_name = specifier.partition(":")[0]
        raise RuleProblem(f"`{field_name}` is what {name} is called for and has rules of its own kind", name)
    raise RuleProblem(f"`{name}` takes no specifier like `{_shown(specifier)}`: write `parameter:value`", name)


def _is_parameter_rule(name: str, specifier: str) -> bool:
    found = PARAMETER.fullmatch(specifier)
    if not found or found[1] in PRIMARY_FIELDS:
        return False
    if name in CHOICES:
        return found[1] not in CHOICES[name]
    if name == "Bash" and found[2] == "*":
        return False  # `timeout:*` is the program of that name
    own = OWN_PARAMETERS.get(name)
    return found[1] in own if own is not None else True


def _command(specifier: str) -> tuple[Kind, str, str | None]:
    if specifier.strip() in (":*", "**"):
        raise RuleProblem(f"`Bash({specifier})` names no command", "Bash")
    if len(specifier) > 4096:
        raise RuleProblem("a command rule of more than 4096 characters matches nothing useful")
    return "command", "Bash", None


def _path_doubt(name: str, specifier: str) -> str | None:
    if specifier.startswith("!"):
        raise RuleProblem(f"`{name}({specifier})`: a rule cannot be negated with `!`", f"{name}({specifier[1:]})")
    if specifier.startswith("~") and specifier != "~" and not specifier.startswith("~/"):
        raise RuleProblem(f"`{specifier}` names another user's home: write it from the root, `//home/…`")
    if re.match(r"/(etc|home|usr|var|tmp|root|opt|Users|proc|dev)(/|$)", specifier):
        return f"`{specifier}` starts at the folder of its settings; for the whole file system write `/{specifier}`"
    return None


def _other_path(name: str, specifier: str, behavior: Behavior) -> tuple[Kind, str, str | None]:
    subject = PATH_RULES_OF[name]
    better = f"{subject}({specifier})"
    if behavior == "allow":
        raise RuleProblem(f"path rules for {name} are written for {subject}", better)
    _path_doubt(subject, specifier)
    # A deny that is merely ignored would be a hole, so it is taken for what it must mean.
    return "path", subject, f"path rules for {name} are written for {subject}: taken as `{better}`"


def _domain(specifier: str) -> tuple[Kind, str, str | None]:
    if specifier.startswith("domain:") and specifier[7:].strip():
        host = specifier[7:].strip()
        if "/" in host or ":" in host:
            bare = re.sub(r"^[a-z]+://", "", host).split("/")[0].split(":")[0]
            raise RuleProblem(f"`{host}` is not a host name", f"WebFetch(domain:{bare})")
        return "domain", "WebFetch", None
    bare = re.sub(r"^[a-z]+://", "", specifier).split("/")[0].split(":")[0] or "example.com"
    raise RuleProblem(f"`WebFetch({_shown(specifier)})` names no domain", f"WebFetch(domain:{bare})")


def split_list(text: str) -> list[str]:
    """The rules of a command-line list such as `Bash(gh:*),Bash(cat a b) Read`; a comma inside parentheses is text."""
    rules: list[str] = []
    position = 0
    while position < len(text):
        if text[position] in ", \t\n":
            position += 1
            continue
        end = _end_of_rule(text, position)
        rules.append(text[position:end])
        position = end
    return rules


def _end_of_rule(text: str, start: int) -> int:
    depth = 0
    for index in range(start, len(text)):
        letter = text[index]
        if letter == "(":
            depth += 1
        elif letter == ")":
            depth = max(0, depth - 1)
        elif depth == 0 and letter in ", \t\n":
            return index
    return len(text)


def _shown(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "…"
