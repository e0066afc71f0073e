"""What a tree says to leave out: `.gitignore`, `.ignore`, `.rgignore`, git's own excludes, read the way `rg` does."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TypeAlias

from msgspec import Struct

Matches: TypeAlias = Callable[[str], object]

_MAGIC = frozenset("*?[{\\")
_NOT_A_SEPARATOR = "[^/\0]"
_PLAIN_ENDING = re.compile(r"\*\*/\*([\w.+-]+)")


class BadGlob(ValueError):
    """A pattern that cannot be read; the message says why."""


def compile_glob(glob: str) -> Matches:
    """A test of whole relative paths. A pattern without a slash means a name in any folder."""
    anchored = anchor(glob)
    if ending := _PLAIN_ENDING.fullmatch(anchored):
        suffix = ending[1]
        return lambda path: path.endswith(suffix)
    return re.compile(translate(anchored), re.DOTALL).fullmatch


def anchor(glob: str) -> str:
    """The pattern with its folders spelt out: a bare name is found anywhere, `/` or `./` in front means the top."""
    bare = glob
    while bare.startswith("./"):
        bare = bare[2:]
    if bare != glob or bare.startswith("/"):
        return bare.lstrip("/")
    return bare if "/" in bare.rstrip("/") else f"**/{bare}"


def compile_any(globs: Iterable[str]) -> Matches | None:
    """A test that holds when one of the patterns does; None when there are none."""
    tests = [compile_glob(glob) for glob in globs]
    if len(tests) < 2:
        return tests[0] if tests else None
    return lambda path: any(test(path) for test in tests)


def translate(glob: str) -> str:
    """The regular expression of a pattern, for whole paths relative to where the pattern belongs."""
    if glob == "**":
        return ".*"
    if glob.endswith("/**"):
        glob += "/*"
    return _Translation(glob).whole()


def split_globs(text: str) -> list[str]:
    """The patterns of a list separated by commas or blanks; these do not separate in braces or after a backslash."""
    found, current, depth, escaped = [], "", 0, False
    for char in text:
        if depth == 0 and not escaped and char in ", \t\n":
            found.append(current)
            current = ""
            continue
        depth += (char == "{") - (char == "}") if not escaped else 0
        escaped = char == "\\" and not escaped
        current += char
    return [glob for glob in (*found, current) if glob]


def literal_prefix(glob: str) -> tuple[str, str]:
    """The leading folders without wildcards, and the rest of the pattern."""
    parts = glob.split("/")
    plain = 0
    while plain < len(parts) - 1 and not _MAGIC & set(parts[plain]):
        plain += 1
    return "/".join(parts[:plain]), "/".join(parts[plain:])


class _Translation:
    """One pass over a pattern."""

    def __init__(self, glob: str) -> None:
        self.glob = glob
        self.at = 0

    def whole(self) -> str:
        regex = self.until(frozenset())
        if self.at < len(self.glob):
            raise BadGlob("a `}` without its `{`; write `\\}` for the character")
        return regex

    def until(self, stops: frozenset[str]) -> str:
        out = []
        while self.at < len(self.glob) and self.glob[self.at] not in (stops or "}"):
            out.append(self.token())
        return "".join(out)

    def token(self) -> str:
        char = self.glob[self.at]
        self.at += 1
        if char == "*":
            return self.stars()
        if char == "?":
            return _NOT_A_SEPARATOR
        if char == "[":
            return self.character_class()
        if char == "{":
            return self.alternatives()
        if char == "\\":
            if self.at == len(self.glob):
                raise BadGlob("a `\\` at the end escapes nothing; write `\\\\` for the character")
            char = self.glob[self.at]
            self.at += 1
        return re.escape(char)

    def stars(self) -> str:
        start = self.at - 1
        while self.glob.startswith("*", self.at):
            self.at += 1
        own_folder = self.at - start == 2 and (start == 0 or self.glob[start - 1] == "/")
        if own_folder and self.glob.startswith("/", self.at):
            self.at += 1
            return "(?:.*/)?"
        if own_folder and self.at == len(self.glob):
            return ".*"
        return _NOT_A_SEPARATOR + "*"

    def alternatives(self) -> str:
        options = [self.until(frozenset(",}"))]
        while self.at < len(self.glob) and self.glob[self.at] == ",":
            self.at += 1
            options.append(self.until(frozenset(",}")))
        if self.at == len(self.glob):
            raise BadGlob("a `{` without its `}`; write `\\{` for the character")
        self.at += 1
        return f"(?:{'|'.join(options)})"

    def character_class(self) -> str:
        start = self.at
        negated = self.glob[start : start + 1] in ("!", "^")
        body = start + negated
        end = self.glob.find("]", body + 1)
        if end < 0:
            raise BadGlob("a `[` without its `]`; write `\\[` for the character")
        self.at = end + 1
        members = "".join(_member(part) for part in re.findall(r".-.|.", self.glob[body:end], re.DOTALL))
        return f"(?!/)[{'^' if negated else ''}{members}]"


def _member(part: str) -> str:
    if len(part) == 3:
        if part[0] > part[2]:
            raise BadGlob(f"the range `{part}` runs backwards")
        return f"{re.escape(part[0])}-{re.escape(part[2])}"
    return re.escape(part)


# In order of precedence: what a kind says, at whatever depth, beats what a later kind says.
_KINDS = (".rgignore", ".ignore", ".gitignore", ".git")
_EXCLUDES_SETTING = re.compile(r"^\s*excludesfile\s*=\s*(.+?)\s*$", re.IGNORECASE | re.MULTILINE)


class Rule(Struct, frozen=True):
    """One line of an ignore file."""

    regex: re.Pattern[str]
    ignores: bool
    only_folders: bool


class RuleFile(Struct, frozen=True):
    """The rules of one ignore file, which speak of paths below `base`."""

    base: str
    rules: tuple[Rule, ...]
    any_rule: re.Pattern[str]

    def verdict(self, path: str, is_folder: bool) -> bool | None:
        """True to leave out, False to keep, None when no rule speaks of this path. The last rule that fits wins."""
        below = path[len(self.base) :]
        if not self.any_rule.fullmatch(below):
            return None
        for rule in reversed(self.rules):
            if (is_folder or not rule.only_folders) and rule.regex.fullmatch(below):
                return rule.ignores
        return None


class Rules(Struct, frozen=True):
    """All rules that hold in one folder: for each kind the files that speak, nearest first."""

    in_repository: bool
    everywhere: RuleFile | None = None
    chains: tuple[tuple[RuleFile, ...], ...] = ((),) * len(_KINDS)

    def ignored(self, path: str, is_folder: bool) -> bool:
        """Whether an entry of this folder, given by its absolute path, is left out."""
        for chain in self.chains:
            for rules in chain:
                verdict = rules.verdict(path, is_folder)
                if verdict is not None:
                    return verdict
        return bool(self.everywhere and self.everywhere.verdict(path, is_folder))

    def entering(self, folder: str, names: Collection[str]) -> Rules:
        """The rules that hold in a folder below, whose entries have these names."""
        if not any(kind in names for kind in _KINDS):
            return self
        # A repository's rules end at its root: those of git further up say nothing about it.
        ends_here = self.in_repository and ".git" in names
        chains = []
        for kind, chain in zip(_KINDS, self.chains, strict=True):
            inherited = () if ends_here and kind in (".gitignore", ".git") else chain
            own = _read_kind(folder, kind) if kind in names else None
            chains.append((own, *inherited) if own else inherited)
        return Rules(self.in_repository, self.everywhere, tuple(chains))


def inside_repository(folder: str) -> bool:
    """Whether an absolute folder belongs to a git repository. Elsewhere `.gitignore` files are obeyed all the same."""
    while not os.path.lexists(os.path.join(folder, ".git")):
        parent = os.path.dirname(folder)
        if parent == folder:
            return False
        folder = parent
    return True


def rules_above(folder: str, in_repository: bool, env: Mapping[str, str] = os.environ) -> Rules:
    """The rules that parent folders and the user's git settings impose on an absolute folder."""
    rules = Rules(in_repository, _everywhere(folder, env))
    parts = folder.split("/")
    for depth in range(1, len(parts)):
        parent = "/".join(parts[:depth]) or "/"
        if parent == folder:
            break
        rules = rules.entering(parent, {kind for kind in _KINDS if os.path.lexists(os.path.join(parent, kind))})
    return rules


def parse(text: str, base: str) -> RuleFile | None:
    """The rules written in a text, for paths below `base`; a line that cannot be read is skipped."""
    rules = tuple(rule for line in text.split("\n") if (rule := _rule(line)) is not None)
    if not rules:
        return None
    together = re.compile("|".join(f"(?:{rule.regex.pattern})" for rule in rules), re.DOTALL)
    return RuleFile(base.rstrip("/") + "/", rules, together)


def _rule(line: str) -> Rule | None:
    if line.startswith("#"):
        return None
    if not line.endswith("\\ "):
        line = line.rstrip()
    ignores = not line.startswith("!")
    glob = line if ignores else line[1:]
    if ignores and line.startswith(("\\!", "\\#")):
        glob = line[1:]
    anchored = glob.startswith("/")
    only_folders = glob.endswith("/")
    glob = glob.removeprefix("/").removesuffix("/")
    if not glob:
        return None
    if not anchored and "/" not in glob and not glob.startswith("**/"):
        glob = f"**/{glob}"
    try:
        return Rule(re.compile(translate(glob), re.DOTALL), ignores, only_folders)
    except (BadGlob, re.error):
        return None


def _read_kind(folder: str, kind: str) -> RuleFile | None:
    path = os.path.join(folder, kind)
    return _read(os.path.join(_common_git_folder(path), "info", "exclude") if kind == ".git" else path, folder)


def _read(path: str, base: str) -> RuleFile | None:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return parse(file.read().removeprefix("\ufeff"), base)
    except OSError:
        return None


def _common_git_folder(dot_git: str) -> str:
    """Where a `.git` keeps what all its worktrees share; in a worktree it is a file that says where to look."""
    if os.path.isdir(dot_git):
        return dot_git
    try:
        with open(dot_git, encoding="utf-8", errors="surrogateescape") as file:
            own = os.path.join(os.path.dirname(dot_git), file.read().removeprefix("gitdir:").strip())
        with open(os.path.join(own, "commondir"), encoding="utf-8", errors="surrogateescape") as file:
            return os.path.join(own, file.read().strip())
    except (OSError, ValueError):
        return dot_git


def _everywhere(folder: str, env: Mapping[str, str]) -> RuleFile | None:
    """The user's own excludes, which hold in every repository."""
    home = env.get("HOME", "")
    config = env.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")
    for settings in (os.path.join(home, ".gitconfig"), os.path.join(config, "git", "config")):
        try:
            with open(settings, encoding="utf-8", errors="surrogateescape") as file:
                named = _EXCLUDES_SETTING.search(file.read())
        except OSError:
            continue
        if named:
            path = named[1].strip('"')
            return _read(os.path.join(home, path[2:]) if path.startswith("~/") else path, folder)
    return _read(os.path.join(config, "git", "ignore"), folder)


# Where version control keeps its own files. Other hidden files are part of a project; these are not.
VERSION_CONTROL = (".git", ".hg", ".jj", ".svn")


def walk_files(
    root: str,
    rules: Rules | None,
    excluded: Matches | None = None,
    on_error: Callable[[OSError], None] = lambda error: None,
) -> Iterator[os.DirEntry[str]]:
    """Every regular file below an absolute root; `excluded` tests paths relative to it. Links are not followed."""
    below = len(root.rstrip("/")) + 1
    waiting = [(root, rules)]
    while waiting:
        folder, rules = waiting.pop()
        try:
            with os.scandir(folder) as opened:
                entries = list(opened)
        except OSError as error:
            on_error(error)
            continue
        rules = rules and rules.entering(folder, {entry.name for entry in entries})
        for entry in entries:
            kind = _kind(entry)
            if kind is None or (excluded and excluded(entry.path[below:])):
                continue
            if rules and rules.ignored(entry.path, kind == "folder"):
                continue
            if kind == "folder":
                waiting.append((entry.path, rules))
            else:
                yield entry


def _kind(entry: os.DirEntry[str]) -> str | None:
    try:
        if entry.is_dir(follow_symlinks=False):
            return "folder"
        return "file" if entry.is_file(follow_symlinks=False) else None
    except OSError:
        return None
