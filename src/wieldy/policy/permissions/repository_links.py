"""What git reads outside a repository because of links and names in its folder, which may have come with an archive.

Symlinks among the files of git's folder, the folders that `.git`, `commondir` and `alternates` name, and the files that its
settings name. Loose objects and work tree files are not among them: their names are hashes, or are judged on their own.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from msgspec import Struct

from wieldy.core.filesystem import LOCAL_FILES, FileSystem
from wieldy.policy.permissions.paths import is_below
from wieldy.shell.effects.sweeps import UncertainNames

MAX_PLACES = 2_000
MAX_POINTER_SIZE = 1_000_000
MAX_CACHED = 64
# In these every file may be read, at any depth; the others are read by name.
_WALKED = ("info", "refs", "logs", "objects/info", "rebase-merge", "rebase-apply", "sequencer", "worktrees", "reftable")
_LISTED = ("", "objects", "objects/pack")
# Of a settings file whose lines end with \n. Where none of these fits, git reads no further and fails.
_SETTINGS_TOKEN = re.compile(
    r"""[ \t\n\r]+ | [\#;][^\n]*
    | \[(?:[a-z0-9.-]+|(?=[ \t\r]))(?:[ \t\r]+"(?:[^"\\\n]|\\[^\n])*")?\]
    | (?P<key>[a-z][a-z0-9-]*)[ \t]*(?:
        =(?P<value>(?:[^"\\\n\#;]|\\(?:[tbn"\\\n]|\Z)|"(?:[^"\\\n]|\\[tbn"\\\n])*")*)(?=[\#;\n]|\Z)
        | (?=\n|\Z))""",
    re.IGNORECASE | re.ASCII | re.VERBOSE,
)
_VALUE_TOKEN = re.compile(r"""(?P<quote>")|\\(?P<escaped>.|\Z)|(?P<blanks>[ \t\r]+)|[^" \t\r\\]+""", re.DOTALL)
_ESCAPED = {"t": "\t", "b": "\b", "n": "\n", "\n": ""}
_NAMES_FILE = re.compile(r"path|skiplist|.*file", re.IGNORECASE)


class _Finding(Struct, frozen=True):
    """Links and named paths of one git folder, why there may be more, and the state of all that was looked at to find them."""

    looked_at: dict[str, tuple[int, int, int]]
    links: tuple[str, ...]
    named: tuple[str, ...]
    uncertain: str


_cache: dict[tuple[str, str], _Finding] = {}


def outside_reads(cwd: str, files: FileSystem = LOCAL_FILES) -> Iterator[str]:
    """Yield the paths outside git's own folders that git may read in a folder.

    Raises `UncertainNames` where there may be more; those that are known come first, so that a rule that denies them holds.
    """
    root = files.realpath(cwd)
    while not files.exists(os.path.join(root, ".git")):
        if root == (root := os.path.dirname(root)):
            return
    git_dir = _git_dir(root, files)
    common = _pointed(git_dir, "commondir", files) or git_dir
    own = [folder for folder in dict.fromkeys((git_dir, common)) if _belongs(folder, root, git_dir, common, files)]
    outside = [folder for folder in (git_dir, common) if folder not in own]
    if files.is_link(os.path.join(root, ".git")):
        outside.append(files.realpath(os.path.join(root, ".git")))
    findings = [_look(folder, root, files) for folder in own]
    paths = [files.realpath(path) for found in findings for path in (*found.links, *found.named)]
    outside += [path for path in paths if not any(is_below(path, one) for one in own)]
    yield from dict.fromkeys(outside)
    for found in findings:
        if found.uncertain:
            raise UncertainNames(found.uncertain)


def _git_dir(root: str, files: FileSystem) -> str:
    path = os.path.join(root, ".git")
    if files.is_folder(path):
        return files.realpath(path)
    text = _read(path, files).rstrip("\r\n")  # blanks belong to the name
    return files.realpath(os.path.join(root, text.removeprefix("gitdir: "))) if text else path


def _pointed(folder: str, name: str, files: FileSystem) -> str | None:
    """The path in a file of git's folder that names another one."""
    text = _read(os.path.join(folder, name), files).rstrip("\r\n")
    return files.realpath(os.path.join(folder, text)) if text else None


def _belongs(folder: str, root: str, git_dir: str, common: str, files: FileSystem) -> bool:
    """Whether one of git's folders is in the work tree, or of a repository that has this work tree.

    A work tree or submodule can name any repository: what counts is that the repository names it in turn.
    """
    if is_below(folder, root):
        return True
    if is_below(git_dir, root):
        return False
    if os.path.dirname(git_dir) == os.path.join(common, "worktrees"):
        return _pointed(git_dir, "gitdir", files) == os.path.join(root, ".git")
    if folder != git_dir:
        return False  # git made no submodule that shares another repository's folder
    config = os.path.join(git_dir, "config")
    settings = parse_settings(_read(config, files), config)
    work_trees = [values for key, values in settings if key == "worktree"]
    return bool(work_trees) and all(files.realpath(os.path.join(git_dir, value)) == root for value in work_trees[-1])


def _look(git_dir: str, root: str, files: FileSystem) -> _Finding:
    """The links and names in one of git's folders, from memory while nothing there has changed."""
    known = _cache.get((git_dir, root)) if files is LOCAL_FILES else None
    if known is not None and all(_state(path, files) == state for path, state in known.looked_at.items()):
        return known
    finder = _Finder(root, files)
    uncertain = ""
    try:
        finder.find(git_dir)
    except UncertainNames as error:
        uncertain = str(error)
    finding = _Finding(finder.looked_at, tuple(finder.links), tuple(finder.named), uncertain)
    if files is LOCAL_FILES:
        if len(_cache) >= MAX_CACHED:
            _cache.clear()
        _cache[git_dir, root] = finding
    return finding


class _Finder:
    def __init__(self, root: str, files: FileSystem) -> None:
        self.looked_at: dict[str, tuple[int, int, int]] = {}
        self.links: list[str] = []
        self.named: list[str] = []
        self._root = root
        self._files = files

    def find(self, git_dir: str) -> None:
        """Add the links and names of one of git's folders."""
        for name in _LISTED:
            self.list_folder(os.path.join(git_dir, name))
        for name in _WALKED:
            self.walk(os.path.join(git_dir, name))
        self.add_alternates(os.path.join(git_dir, "objects"))
        for name in ("config", "config.worktree"):
            self.add_settings(os.path.join(git_dir, name), git_dir)

    def list_folder(self, path: str) -> list[str]:
        """Note the links in a folder; its own folders."""
        self._note(path)
        try:
            entries = self._files.list_folder(path)
        except OSError:
            return []  # git cannot list it either
        # Reading commands run no hooks.
        self.links += [entry.path for entry in entries if entry.is_symlink() and entry.name != "hooks"]
        return [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]

    def walk(self, path: str) -> None:
        pending = [path]
        while pending:
            pending += self.list_folder(pending.pop())

    def add_alternates(self, objects: str) -> None:
        path = os.path.join(objects, "info", "alternates")
        for line in self._read_once(path).split("\n"):
            if line and not line.startswith("#"):
                if line.startswith('"') and "\\" in line:
                    raise UncertainNames(f"{path} names a folder with escaped characters")
                folder = self._files.realpath(os.path.join(objects, line.strip('"')))
                self.named.append(folder)
                self.add_alternates(folder)

    def add_settings(self, path: str, git_dir: str) -> None:
        """Add what a settings file, and what it includes, names; what lies in the work tree is judged as well."""
        settings = parse_settings(self._read_once(path), path)
        for key, value in [(key, value) for key, values in settings if _NAMES_FILE.fullmatch(key) for value in values]:
            if not value:
                continue
            if value.startswith(("%(", ":(")):
                raise UncertainNames(f"{path} names a file by {value!r}, which depends on how git was built")
            includes = key == "path"
            for start in (os.path.dirname(path),) if includes else (git_dir, self._root):
                target = os.path.join(start, os.path.expanduser(value))
                if self._files.exists(target):
                    self.named.append(target)
                    if includes:
                        self.add_settings(target, git_dir)

    def _note(self, path: str) -> None:
        self.looked_at[path] = _state(path, self._files)
        if len(self.looked_at) > MAX_PLACES:
            raise UncertainNames(f"{path} is one of too many places of git to see whether they lead out of it")

    def _read_once(self, path: str) -> str:
        if path in self.looked_at:
            return ""
        self._note(path)
        return _read(path, self._files)


def parse_settings(text: str, path: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The keys of a settings file without their sections, in lower case, and their values as git reads them.

    There are two values where versions of git differ. Raises `UncertainNames` for a file that git cannot read.
    """
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    at = 0
    while at < len(text):
        token = _SETTINGS_TOKEN.match(text, at)
        if token is None:
            raise UncertainNames(f"{path} has a line that is no setting of git, so that what git reads cannot be told")
        at = token.end()
        if token["value"] is not None:
            yield token["key"].lower(), _read_value(token["value"])


def _read_value(source: str) -> tuple[str, ...]:
    """A value without its quotes and escapes. Before version 2.45 git reads a tab outside quotes as a blank."""
    value = older = gap = ""
    is_quoted = False
    for token in _VALUE_TOKEN.finditer(source):
        if token["blanks"] and not is_quoted:
            gap += token["blanks"] if value else ""
            continue
        if token["quote"]:
            text, is_quoted = "", not is_quoted
        else:
            text = token[0] if token["escaped"] is None else _ESCAPED.get(token["escaped"], token["escaped"])
        value, older, gap = value + gap + text, older + " " * len(gap) + text, ""
    return tuple(dict.fromkeys((value.partition("\0")[0], older.partition("\0")[0])))


def _state(path: str, files: FileSystem) -> tuple[int, int, int]:
    try:
        status = files.stat(path)
    except (OSError, ValueError):
        return (0, 0, 0)
    return (status.st_ino, status.st_mtime_ns, status.st_size)


def _read(path: str, files: FileSystem) -> str:
    """The text of a regular file; nothing of any other. Raises `UncertainNames` for one that is too large."""
    try:
        data = files.read_start(path, MAX_POINTER_SIZE) if files.is_file(path) else b""
    except OSError:
        return ""
    if len(data) == MAX_POINTER_SIZE:
        raise UncertainNames(f"{path} is too large to see what git reads because of it")
    return data.decode("utf-8", "surrogateescape")
