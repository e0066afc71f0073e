"""What a tree says to leave out: `.gitignore`, `.ignore`, `.rgignore`, git's own excludes, read the way `rg` does."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping

from wieldy.core.record import record
from wieldy.schema.pattern import pattern
from wieldy.search.globs import BadGlob, translate

# In order of precedence: what a kind says, at whatever depth, beats what a later kind says.
_KINDS = (".rgignore", ".ignore", ".gitignore", ".git")
_EXCLUDES_SETTING = pattern(r"^\s*excludesfile\s*=\s*(.+?)\s*$", re.IGNORECASE | re.MULTILINE)


@record
class Rule:
    """One line of an ignore file."""

    regex: re.Pattern[str]
    ignores: bool
    only_folders: bool


@record
class RuleFile:
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


@record
class Rules:
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
