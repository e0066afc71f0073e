"""Path patterns as gitignore has them, and what a search leaves out: ignore files, version control folders, hidden paths.

The regular expressions of patterns (`*`, `?`, `[a-z]`, `**` and, where asked for, `{a,b}`) match in linear time: a run of
segments between two `**`, and a piece between two `*`, takes its first match and never backtracks. Ignore files are read as
`rg` does.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct

from wieldy.core.filesystem import LOCAL_FILES, FileSystem
from wieldy.core.project_text import read_project_text

# Tests a path relative to the folder a pattern belongs to.
PathTest: TypeAlias = Callable[[str], object]

MAX_ALTERNATIVES = 1_000
_WILDCARDS = frozenset("*?[{\\")
_ANY_WITH_SUFFIX = re.compile(r"\*\*/\*([\w.+-]+)")


class BadGlob(ValueError):
    """A pattern that cannot be read; the message says why."""


def compile_glob(glob: str) -> PathTest:
    """A test of whole relative paths. A pattern without a slash names files in any folder."""
    anchored = anchor_glob(glob)
    if match := _ANY_WITH_SUFFIX.fullmatch(anchored):
        suffix = match[1]
        return lambda path: path.endswith(suffix)
    return re.compile(translate_glob(anchored), re.DOTALL).fullmatch


def compile_globs(globs: Iterable[str]) -> PathTest | None:
    """A test that holds when one of the patterns matches; None when there are none."""
    tests = [compile_glob(glob) for glob in globs]
    if len(tests) < 2:
        return tests[0] if tests else None
    return lambda path: any(test(path) for test in tests)


def anchor_glob(glob: str) -> str:
    """The pattern with `**/` before a bare name; `/` or `./` in front anchors it at the top."""
    bare = glob
    while bare.startswith("./"):
        bare = bare[2:]
    if bare != glob or bare.startswith("/"):
        return bare.lstrip("/")
    return bare if "/" in bare.rstrip("/") else f"**/{bare}"


def split_globs(text: str) -> list[str]:
    """Split a list of patterns at commas and blanks, except in braces or after a backslash."""
    globs, current, depth, escaped = [], "", 0, False
    for char in text:
        if depth == 0 and not escaped and char in ", \t\n":
            globs.append(current)
            current = ""
            continue
        depth += (char == "{") - (char == "}") if not escaped else 0
        escaped = char == "\\" and not escaped
        current += char
    return [glob for glob in (*globs, current) if glob]


def literal_prefix(glob: str) -> tuple[str, str]:
    """The leading folders without wildcards, and the rest of the pattern."""
    parts = glob.split("/")
    count = 0
    while count < len(parts) - 1 and not _WILDCARDS & set(parts[count]):
        count += 1
    return "/".join(parts[:count]), "/".join(parts[count:])


def translate_glob(glob: str) -> str:
    """The regular expression of a pattern, for whole paths relative to where the pattern belongs. Raises `BadGlob`."""
    return "|".join(_join_segments(_split_segments(one), below=False) for one in _expand_braces(glob))


def translate_rule(pattern: str) -> str:
    """Like `translate_glob`, but the contents of a folder that matches also match, braces are literal, and so is what cannot
    be read: a rule always means something."""
    return _join_segments(
        [None if part == "**" else _segment(part, lenient=True) for part in pattern.split("/")], below=True
    )


def _join_segments(segments: list[str | None], *, below: bool) -> str:
    """Join translated segments; None stands for `**`."""
    runs: list[list[str]] = [[]]
    for segment in segments:
        if segment is None:
            runs.append([])
        else:
            runs[-1].append(segment)
    texts = ["/".join(run) for run in runs if run]
    if not texts:
        return ".+"
    open_end = not runs[-1]
    ending = "/.+" if open_end else "(?:/.*)?" if below else ""
    # A last run that must reach the end of the path is not the first one found, so it may backtrack.
    last = None if ending else len(texts) - 1
    out = ""
    for index, text in enumerate(texts):
        slash = "/" if index else ""
        if index == 0 and runs[0]:
            out += text
        elif index == last:
            out += f"{slash}(?:.*/)?{text}"
        else:
            out += f"{slash}(?>(?:[^/]+/)*?{text}(?=/|\\Z))"
    return out + ending


def _split_segments(glob: str) -> list[str | None]:
    """The translated segments of a pattern; a slash in a character class does not separate."""
    parts = [""]
    at = 0
    while at < len(glob):
        width = 1
        if glob[at] == "\\":
            if at + 1 == len(glob):
                raise BadGlob("a `\\` at the end escapes nothing; write `\\\\` for the character")
            width = 2
        elif glob[at] == "[":
            width = _class_end(glob, at) - at
        if glob[at : at + width] in ("/", "\\/"):
            parts.append("")
        else:
            parts[-1] += glob[at : at + width]
        at += width
    return [None if part == "**" else _segment(part) for part in parts]


def _segment(segment: str, *, lenient: bool = False) -> str:
    pieces = [""]
    at = 0
    while at < len(segment):
        char = segment[at]
        at += 1
        if char == "*":
            pieces.append("")
        elif char == "?":
            pieces[-1] += "[^/]"
        elif char == "[":
            end = _class_end(segment, at - 1, lenient=lenient)
            pieces[-1] += _character_class(segment[at : end - 1], lenient=lenient) if end > at else r"\["
            at = end
        elif char == "\\" and at < len(segment):
            pieces[-1] += re.escape(segment[at])
            at += 1
        else:
            pieces[-1] += re.escape(char)
    if len(pieces) == 1:
        return pieces[0]
    between = "".join(f"(?>[^/]*?{piece})" for piece in pieces[1:-1] if piece)
    return f"{pieces[0]}{between}[^/]*{pieces[-1]}"


def _class_end(glob: str, start: int, *, lenient: bool = False) -> int:
    """Where the character class that begins at `start` ends. A `]` right at its beginning is a member. An unclosed bracket
    is a character by itself if `lenient`."""
    negated = glob[start + 1 : start + 2] in ("!", "^")
    end = glob.find("]", start + 2 + negated)
    if end < 0 and not lenient:
        raise BadGlob("a `[` without its `]`; write `\\[` for the character")
    return end + 1 or start + 1


def _character_class(body: str, *, lenient: bool) -> str:
    """A class of a file glob may name the slash, as in ripgrep; one of a rule does not match it, as in git."""
    negated = body[:1] in ("!", "^")
    members = ""
    for part in re.findall(r".-.|.", body[negated:], re.DOTALL):
        if len(part) == 3 and part[0] > part[2]:
            if lenient:
                return "(?!)"
            raise BadGlob(f"the range `{part}` runs backwards")
        members += f"{re.escape(part[0])}-{re.escape(part[2])}" if len(part) == 3 else re.escape(part)
    no_slash = "(?!/)" if negated or lenient else ""
    return f"{no_slash}[{'^' if negated else ''}{members}]"


def _expand_braces(glob: str) -> list[str]:
    """The patterns without braces that a pattern stands for."""
    expanded, at = _alternatives(glob, 0, nested=False)
    if at < len(glob):
        raise BadGlob("a `}` without its `{`; write `\\}` for the character")
    return expanded


def _alternatives(glob: str, at: int, *, nested: bool) -> tuple[list[str], int]:
    """Expand up to the closing brace, or the end; in braces a comma separates."""
    closed: list[str] = []
    current = [""]
    while at < len(glob) and glob[at] != "}":
        if glob[at] == "{":
            inner, at = _alternatives(glob, at + 1, nested=True)
            if at == len(glob):
                raise BadGlob("a `{` without its `}`; write `\\{` for the character")
            at += 1
            current = [head + tail for head in current for tail in inner]
        elif glob[at] == "," and nested:
            closed, current, at = closed + current, [""], at + 1
        else:
            end = _class_end(glob, at) if glob[at] == "[" else at + 2 if glob[at] == "\\" else at + 1
            current, at = [head + glob[at:end] for head in current], min(end, len(glob))
        if len(closed) + len(current) > MAX_ALTERNATIVES:
            raise BadGlob(f"more than {MAX_ALTERNATIVES} alternatives in braces")
    return closed + current, at


# Where version control keeps its own files. Other hidden files are part of a project; these are not.
VERSION_CONTROL = (".git", ".hg", ".jj", ".svn")
# In order of precedence: what a kind of file says, at whatever depth, beats what a later kind says.
_KINDS = (".rgignore", ".ignore", ".gitignore", ".git")
_READ_BY_PROGRAMS = (".rgignore", ".ignore", ".gitignore", ".fdignore")
_EXCLUDES_SETTING = re.compile(r"^\s*excludesfile\s*=\s*(.+?)\s*$", re.IGNORECASE | re.MULTILINE)

# Tests an absolute path: true for one that must not be shown.
HiddenTest: TypeAlias = Callable[[str], bool]


def hidden_test(judge: object) -> HiddenTest | None:
    """The test for paths that permission rules hide, if they hide any."""
    hides: HiddenTest | None = getattr(judge, "hides", None)
    return hides if getattr(judge, "hides_anything", True) else None


class IgnoreRule(Struct, frozen=True):
    """One line of an ignore file."""

    regex: re.Pattern[str]
    ignores: bool
    only_folders: bool


class IgnoreFile(Struct, frozen=True):
    """The rules of one ignore file, for paths below `base`, which ends in a slash."""

    base: str
    rules: tuple[IgnoreRule, ...]
    any_rule: re.Pattern[str]

    def verdict(self, path: str, is_folder: bool) -> bool | None:
        """True to ignore, False to keep, None when no rule matches. The last rule that matches wins."""
        relative = path[len(self.base) :]
        if not self.any_rule.fullmatch(relative):
            return None
        for rule in reversed(self.rules):
            if (is_folder or not rule.only_folders) and rule.regex.fullmatch(relative):
                return rule.ignores
        return None


class IgnoreRules(Struct, frozen=True):
    """All rules in force in one folder: for each kind of ignore file those that apply, nearest first."""

    in_repository: bool
    user_excludes: IgnoreFile | None = None
    chains: tuple[tuple[IgnoreFile, ...], ...] = ((),) * len(_KINDS)
    files: FileSystem = LOCAL_FILES

    def ignores(self, path: str, is_folder: bool) -> bool:
        """Whether an entry of this folder, given by its absolute path, is ignored."""
        for chain in self.chains:
            for file in chain:
                verdict = file.verdict(path, is_folder)
                if verdict is not None:
                    return verdict
        return bool(self.user_excludes and self.user_excludes.verdict(path, is_folder))

    def enter(self, folder: str, names: Collection[str]) -> IgnoreRules:
        """The rules in force in a folder below, whose entries have these names."""
        if not any(kind in names for kind in _KINDS):
            return self
        # A repository's rules end at its root: those of git further up do not apply to it.
        ends_here = self.in_repository and ".git" in names
        chains = []
        for kind, chain in zip(_KINDS, self.chains, strict=True):
            inherited = () if ends_here and kind in (".gitignore", ".git") else chain
            own = _read_kind(folder, kind, self.files) if kind in names else None
            chains.append((own, *inherited) if own else inherited)
        return IgnoreRules(self.in_repository, self.user_excludes, tuple(chains), self.files)


def endless_ignore_file(folder: str) -> str | None:
    """An ignore file of a folder, or of one above it, that `rg` would wait on or read without end."""
    while True:
        for name in _READ_BY_PROGRAMS:
            path = os.path.join(folder, name)
            with contextlib.suppress(OSError):
                if not stat.S_ISREG(os.stat(path).st_mode) and not stat.S_ISDIR(os.stat(path).st_mode):
                    return path
        parent = os.path.dirname(folder)
        if parent == folder:
            return None
        folder = parent


def repository_of(folder: str, files: FileSystem = LOCAL_FILES) -> str:
    """The git repository that an absolute folder belongs to; empty where there is none."""
    while not files.exists(os.path.join(folder, ".git")):
        parent = os.path.dirname(folder)
        if parent == folder:
            return ""
        folder = parent
    return folder


def load_parent_rules(folder: str, env: Mapping[str, str] = os.environ, files: FileSystem = LOCAL_FILES) -> IgnoreRules:
    """The rules that parent folders and the user's git settings impose on an absolute folder.

    Outside of repositories `.gitignore` files are obeyed all the same.
    """
    excludes = _read_user_excludes(folder, env) if files is LOCAL_FILES else None
    rules = IgnoreRules(bool(repository_of(folder, files)), excludes, files=files)
    parts = folder.split("/")
    for depth in range(1, len(parts)):
        parent = "/".join(parts[:depth]) or "/"
        if parent == folder:
            break
        rules = rules.enter(parent, {kind for kind in _KINDS if files.exists(os.path.join(parent, kind))})
    return rules


def walk_files(root: str, rules: IgnoreRules | None, excluded: PathTest | None = None) -> Iterator[os.DirEntry[str]]:
    """Every regular file below an absolute root that is not ignored; `excluded` tests paths relative to it. Links are not
    followed, and folders that cannot be read are skipped."""
    prefix = len(root.rstrip("/")) + 1
    pending = [(root, rules)]
    while pending:
        folder, rules = pending.pop()
        try:
            with os.scandir(folder) as scan:
                entries = list(scan)
        except OSError:
            continue
        rules = rules and rules.enter(folder, {entry.name for entry in entries})
        for entry in entries:
            kind = _kind_of(entry)
            if kind is None or (excluded and excluded(entry.path[prefix:])):
                continue
            if rules and rules.ignores(entry.path, kind == "folder"):
                continue
            if kind == "folder":
                pending.append((entry.path, rules))
            else:
                yield entry


def _kind_of(entry: os.DirEntry[str]) -> str | None:
    try:
        if entry.is_dir(follow_symlinks=False):
            return "folder"
        return "file" if entry.is_file(follow_symlinks=False) else None
    except OSError:
        return None


def parse_ignore_file(text: str, base: str) -> IgnoreFile | None:
    """The rules in a text, for paths below `base`; a line that cannot be read is skipped."""
    rules = tuple(rule for line in text.split("\n") if (rule := _parse_rule(line)) is not None)
    if not rules:
        return None
    any_rule = re.compile("|".join(f"(?:{rule.regex.pattern})" for rule in rules), re.DOTALL)
    return IgnoreFile(base.rstrip("/") + "/", rules, any_rule)


def _parse_rule(line: str) -> IgnoreRule | None:
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
    if not anchored and "/" not in glob:
        glob = f"**/{glob}"
    try:
        return IgnoreRule(re.compile(translate_glob(glob), re.DOTALL), ignores, only_folders)
    except (BadGlob, re.error):
        return None


def _read_kind(folder: str, kind: str, files: FileSystem) -> IgnoreFile | None:
    path = os.path.join(folder, kind)
    if kind == ".git":
        common = git_folders(path, files)[1]
        return _read(os.path.join(common, "info", "exclude"), folder, files, [common]) if common else None
    return _read(path, folder, files, [folder])


def _read(
    path: str, base: str, files: FileSystem = LOCAL_FILES, folders: Sequence[str] | None = None
) -> IgnoreFile | None:
    """The rules of an ignore file. One that leads out of its folder counts as empty, as a symlink does for git."""
    try:
        # As in text mode, whatever ends the lines.
        text = files.read_text(path, folders).replace("\r\n", "\n").replace("\r", "\n")
        return parse_ignore_file(text.removeprefix("\ufeff"), base)
    except OSError:
        return None


def git_folders(dot_git: str, files: FileSystem = LOCAL_FILES) -> tuple[str, str]:
    """The git folder of a work tree, and the one that it shares with others, empty where that is not known.

    In a linked work tree `.git` is a file that says where to look.
    """
    if files.is_folder(dot_git):
        return dot_git, dot_git
    own = dot_git
    try:
        own = os.path.join(os.path.dirname(dot_git), files.read_text(dot_git).removeprefix("gitdir:").strip())
        return own, os.path.join(own, files.read_text(os.path.join(own, "commondir")).strip())
    except (OSError, ValueError):
        return own, ""


def _read_user_excludes(folder: str, env: Mapping[str, str]) -> IgnoreFile | None:
    """The user's global excludes, which git applies in every repository."""
    home = env.get("HOME", "")
    config = env.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")
    for settings in (os.path.join(home, ".gitconfig"), os.path.join(config, "git", "config")):
        try:
            setting = _EXCLUDES_SETTING.search(read_project_text(settings))
        except OSError:
            continue
        if setting:
            path = setting[1].strip('"')
            return _read(os.path.join(home, path[2:]) if path.startswith("~/") else path, folder)
    return _read(os.path.join(config, "git", "ignore"), folder)
