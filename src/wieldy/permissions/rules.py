"""One permission rule: `Tool` or `Tool(specifier)`, parsed, checked and printed."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal, TypeAlias

from msgspec import Struct, field

from wieldy.core.decision import Behavior
from wieldy.core.truncate import truncate
from wieldy.permissions.paths import key

Layer: TypeAlias = Literal["managed", "command line", "code", "local", "project", "user", "session"]


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
IN_SESSION = Origin("session")


Kind: TypeAlias = Literal["tool", "command", "path", "domain", "choice", "parameter"]

NAME = re.compile(r"[A-Za-z_*][A-Za-z0-9_*.-]*")
PARAMETER = re.compile(r"([A-Za-z_][A-Za-z0-9_-]+):(.+)", re.DOTALL)
LITERAL_SERVER = re.compile(r"mcp__[^*]*[^*_]__")

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
        raise RuleError("the rule is empty")
    if "\n" in text or "\r" in text or "\0" in text:
        raise RuleError("a rule is one line")
    name, opening, rest = text.partition("(")
    if opening and not rest.endswith(")"):
        raise RuleError(f"`{_shown(text)}` has no closing parenthesis at its end", _shown(text) + ")")
    if not NAME.fullmatch(name):
        raise RuleError(f"`{_shown(name)}` is not a tool name: a rule is `Tool` or `Tool(specifier)`")
    specifier = rest[:-1] if opening else None
    if specifier is not None and not specifier.strip():
        raise RuleError(f"the parentheses of `{text}` are empty", name)
    return name, specifier


def _check_name(name: str, specifier: str | None, behavior: Behavior) -> str | None:
    if "*" in name:
        if specifier not in (None, "*"):
            raise RuleError(f"`{name}` is a pattern over tool names and takes no specifier", name)
        if behavior == "allow" and not LITERAL_SERVER.match(name):
            raise RuleError(
                f"`{name}` would allow tools by pattern: an allow rule may use `*` only after `mcp__server__`"
            )
        return None
    from wieldy.permissions.risk_levels import likely_tool

    if name not in RENAMED and (meant := likely_tool(name)) is not None:
        return f"there is no built-in tool `{name}`, did you mean `{meant}`?"
    return None


def _classify(name: str, specifier: str, behavior: Behavior) -> tuple[Kind, str, str | None]:
    if _is_parameter_rule(name, specifier):
        if behavior == "allow":
            raise RuleError(f"`{name}({specifier})`: only deny and ask rules may look at a parameter", name)
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
        raise RuleError("WebSearch takes no specifier", "WebSearch")
    if PARAMETER.fullmatch(specifier):
        field_name = specifier.partition(":")[0]
        raise RuleError(f"`{field_name}` is what {name} is called for and has rules of its own kind", name)
    raise RuleError(f"`{name}` takes no specifier like `{_shown(specifier)}`: write `parameter:value`", name)


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
        raise RuleError(f"`Bash({specifier})` names no command", "Bash")
    if len(specifier) > 4096:
        raise RuleError("a command rule of more than 4096 characters matches nothing useful")
    return "command", "Bash", None


def _path_doubt(name: str, specifier: str) -> str | None:
    if specifier.startswith("!"):
        raise RuleError(f"`{name}({specifier})`: a rule cannot be negated with `!`", f"{name}({specifier[1:]})")
    if specifier.startswith("~") and specifier != "~" and not specifier.startswith("~/"):
        raise RuleError(f"`{specifier}` names another user's home: write it from the root, `//home/…`")
    if re.match(r"/(etc|home|usr|var|tmp|root|opt|Users|proc|dev)(/|$)", specifier):
        return f"`{specifier}` starts at the folder of its settings; for the whole file system write `/{specifier}`"
    return None


def _other_path(name: str, specifier: str, behavior: Behavior) -> tuple[Kind, str, str | None]:
    subject = PATH_RULES_OF[name]
    better = f"{subject}({specifier})"
    if behavior == "allow":
        raise RuleError(f"path rules for {name} are written for {subject}", better)
    _path_doubt(subject, specifier)
    # A deny that is merely ignored would be a hole, so it is taken for what it must mean.
    return "path", subject, f"path rules for {name} are written for {subject}: taken as `{better}`"


def _domain(specifier: str) -> tuple[Kind, str, str | None]:
    if specifier.startswith("domain:") and specifier[7:].strip():
        host = specifier[7:].strip()
        if "/" in host or ":" in host:
            bare = re.sub(r"^[a-z]+://", "", host).split("/")[0].split(":")[0]
            raise RuleError(f"`{host}` is not a host name", f"WebFetch(domain:{bare})")
        return "domain", "WebFetch", None
    bare = re.sub(r"^[a-z]+://", "", specifier).split("/")[0].split(":")[0] or "example.com"
    raise RuleError(f"`WebFetch({_shown(specifier)})` names no domain", f"WebFetch(domain:{bare})")


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
    return truncate(text, 60)


Shape: TypeAlias = Literal["exact", "prefix", "glob"]

_UNESCAPED_STAR = re.compile(r"(?<!\\)\*")
_BLANK = " \t\n"


class CommandPattern:
    """What a command rule matches. `\\*` is an asterisk, `*` anything, a last `:*` or ` *` any further words."""

    __slots__ = ("first_word", "literal", "needle", "open_end", "pieces", "shape")

    def __init__(self, specifier: str) -> None:
        self.open_end = specifier.endswith((":*", " *"))
        body = (specifier[:-2] if self.open_end else specifier).strip(" ")
        self.pieces = tuple(piece.replace(r"\*", "*") for piece in _UNESCAPED_STAR.split(body))
        single = len(self.pieces) == 1
        self.shape: Shape = "glob" if not single else "prefix" if self.open_end else "exact"
        self.literal = self.pieces[0]
        self.first_word = _fixed_first_word(self.pieces)
        self.needle = max(self.pieces, key=len)

    def matches(self, command: str) -> bool:
        """Whether the whole command text is covered. Linear in the command for any number of `*`."""
        if self.shape == "exact":
            return command == self.literal
        if not command.startswith(self.literal):
            return False
        if self.shape == "prefix":
            return _ends_word(command, len(self.literal))
        return _rest_matches(command, self.pieces, self.open_end)


def _rest_matches(command: str, pieces: Sequence[str], open_end: bool) -> bool:
    position = len(pieces[0])
    for piece in pieces[1:-1]:
        found = command.find(piece, position)
        if found < 0:
            return False
        position = found + len(piece)
    last = pieces[-1]
    if not open_end:
        return len(command) - len(last) >= position and command.endswith(last)
    found = command.find(last, position)
    while found >= 0:
        if _ends_word(command, found + len(last)):
            return True
        found = command.find(last, found + 1)
    return False


def _ends_word(command: str, at: int) -> bool:
    return at == len(command) or command[at] in _BLANK


def _fixed_first_word(pieces: Sequence[str]) -> str | None:
    word = re.split(r"[ \t]", pieces[0], maxsplit=1)[0]
    open_word = len(pieces) > 1 and len(word) == len(pieces[0])
    return None if open_word or not word else word


def wildcard(pattern: str, text: str) -> bool:
    """Whether a text matches a pattern in which `*` is any text and `\\*` an asterisk."""
    pieces = tuple(piece.replace(r"\*", "*") for piece in _UNESCAPED_STAR.split(pattern))
    if len(pieces) == 1:
        return text == pieces[0]
    return text.startswith(pieces[0]) and _rest_matches(text, pieces, open_end=False)


def escaped(command: str) -> str:
    """A command as a specifier that matches exactly it."""
    return command.replace("*", r"\*")


_MAGIC = re.compile(r"(?<!\\)[*?\[]")
_SPECIAL = re.compile(r"([\\*?\[\]!#])")


class PathPattern(Struct, frozen=True):
    """Everything below `folder` whose path from there matches. With no `rest`, `folder` itself and all below it.

    `floating` patterns match a name at any depth below the folder.
    """

    folder: str
    rest: str
    floating: bool = False

    @property
    def literal(self) -> str | None:
        """The one path this pattern names, where it names just one."""
        return self.folder if not self.rest else None

    @property
    def plain_name(self) -> str | None:
        """The name a floating pattern looks for, where that is a plain one."""
        return _unescape(self.rest) if self.floating and not _MAGIC.search(self.rest) else None

    @property
    def needle(self) -> str:
        """The longest piece of text in every path that matches."""
        runs = re.split(r"\[[^\]]*\]?|[*?/]+", self.rest)
        return max((_unescape(run) for run in runs), key=len, default="")

    def matches_below(self, relative: str, fold: bool = False) -> bool:
        """Whether the path from the folder to a file, with no slash in front, matches."""
        if not self.rest:
            return True
        return _compiled(self.rest, self.floating, fold).fullmatch(relative) is not None


def resolve(specifier: str, behavior: Behavior, *, cwd: str, home: str, folder: str | None) -> PathPattern:
    """The pattern a specifier stands for: `//p` from the root, `~/p` from home, `/p` from its settings' folder, `p` from cwd."""
    specifier = key(specifier)
    if specifier.startswith("//"):
        return _anchored("/", specifier.lstrip("/"))
    if specifier == "~" or specifier.startswith("~/"):
        return _anchored(home, specifier[2:])
    if specifier.startswith("/"):
        return _anchored(folder or cwd, specifier[1:])
    here = specifier.startswith("./")
    pattern, start = specifier.removeprefix("./"), cwd
    while pattern == ".." or pattern.startswith("../"):
        start, pattern, here = os.path.dirname(start), pattern[3:], True
    name = pattern.removesuffix("/")
    if behavior != "allow" and name.endswith("/**") and "/" not in name[:-3]:
        # `dir/**` forbids at any depth and allows only where it stands.
        return PathPattern(start, name, floating=True)
    if name not in ("", ".", "**") and "/" not in name and not (here and behavior == "allow"):
        return PathPattern(start, name, floating=True)
    return _anchored(start, pattern)


def _anchored(start: str, pattern: str) -> PathPattern:
    segments = [segment for segment in pattern.split("/") if segment not in ("", ".")]
    if ".." not in segments and "\\" not in pattern and not _MAGIC.search(pattern):
        return PathPattern("/".join((start.rstrip("/"), *segments)) or "/", "")
    folder = start
    while segments and not _MAGIC.search(segments[0]):
        name = _unescape(segments.pop(0))
        folder = os.path.dirname(folder) if name == ".." else os.path.join(folder, name)
    return PathPattern(folder, "/".join(segments))


@lru_cache(maxsize=4096)
def _compiled(rest: str, floating: bool, fold: bool) -> re.Pattern[str]:
    segments = rest.split("/")
    return re.compile(
        _translate(["**", *segments] if floating else segments), re.DOTALL | (re.IGNORECASE if fold else 0)
    )


def _translate(segments: list[str]) -> str:
    """The runs of segments between `**`, each found as early as it can be and never given back, which keeps it linear."""
    runs: list[list[str]] = [[]]
    for segment in segments:
        if segment == "**":
            runs.append([])
        else:
            runs[-1].append(_segment(segment))
    open_end = not runs[-1]
    texts = ["/".join(run) for run in runs if run]
    if not texts:
        return ".+"
    anchored = bool(runs[0])
    out = [f"{texts[0]}" if anchored else _somewhere(texts[0]), *(f"/{_somewhere(text)}" for text in texts[1:])]
    # What matches a folder matches all that is in it.
    return "".join(out) + ("/.+" if open_end else "(?:/.*)?")


def _somewhere(run: str) -> str:
    return f"(?>(?:[^/]+/)*?{run}(?=/|\\Z))"


def _segment(segment: str) -> str:
    pieces = [""]
    position = 0
    while position < len(segment):
        letter = segment[position]
        position += 1
        if letter == "*":
            pieces.append("")
        elif letter == "?":
            pieces[-1] += "[^/]"
        elif letter == "[":
            text, position = _character_class(segment, position)
            pieces[-1] += text
        elif letter == "\\" and position < len(segment):
            pieces[-1] += re.escape(segment[position])
            position += 1
        else:
            pieces[-1] += re.escape(letter)
    if len(pieces) == 1:
        return pieces[0]
    # Between two stars the leftmost match is always good enough; never giving it back keeps the search linear.
    between = "".join(f"(?>[^/]*?{piece})" for piece in pieces[1:-1] if piece)
    return f"{pieces[0]}{between}[^/]*{pieces[-1]}"


def _character_class(segment: str, start: int) -> tuple[str, int]:
    negated = segment[start : start + 1] in ("!", "^")
    end = segment.find("]", start + negated + 1)
    if end < 0:
        return r"\[", start
    inner = segment[start + negated : end].replace("\\", "\\\\").replace("[", "\\[").replace("^", "\\^")
    inner = inner.replace("&&", "&\\&").replace("~~", "~\\~").replace("||", "|\\|").replace("--", "-\\-")
    try:
        re.compile(f"[{inner}]")
    except re.error:
        return r"(?!)", end + 1
    return f"(?!/)[{'^' if negated else ''}{inner}]", end + 1


def _unescape(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)


def escaped_pattern(path: str) -> str:
    """A path as a pattern that matches it alone."""
    return _SPECIAL.sub(r"\\\1", path)


@lru_cache(maxsize=256)
def host_of(url: str) -> str | None:
    """The host a URL names, lower-case, ASCII and without a final dot; None where that cannot be told."""
    from urllib.parse import urlsplit

    if any(letter <= " " or letter == "\\" for letter in url.strip()):
        return None
    try:
        host = urlsplit(url.strip() if "//" in url else f"//{url.strip()}").hostname
        return host.rstrip(".").encode("idna").decode().lower() or None if host else None
    except ValueError:
        return None


@lru_cache(maxsize=1024)
def _labels(specifier: str) -> tuple[str, ...]:
    text = specifier.removeprefix("domain:").strip().rstrip(".").lower()
    if text.isascii():
        return tuple(text.split("."))
    return tuple(label if "*" in label else label.encode("idna").decode() for label in text.split("."))


def matches(specifier: str, host: str) -> bool:
    """Whether `domain:…` covers a host: `*.h` any depth of sub-domain but not `h`, any other `*` within one label."""
    try:
        wanted = _labels(specifier)
    except UnicodeError:
        return False
    labels = host.split(".")
    if wanted[0] == "*" and len(wanted) > 1:
        wanted = wanted[1:]
        if len(labels) <= len(wanted):
            return False
        labels = labels[-len(wanted) :]
    return len(labels) == len(wanted) and all(map(wildcard, wanted, labels))


WITH_VALUE = frozenset(
    {"-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path", "--config-env", "--super-prefix"}
)


def without_git_options(words: Sequence[str]) -> str | None:
    """`git -C x push` as `git push`; None where there is nothing to leave out."""
    if not words or words[0].rpartition("/")[2] != "git":
        return None
    at = 1
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in WITH_VALUE else 1
    return " ".join(["git", *words[at:]]) if at > 1 else None
