"""Contents that git has: a tracked file that is as git's index knows it needs no copy.

The index is read here rather than by git, because it must be known before the command runs, within milliseconds and
without running anything that the project configures. Where git might not give back the very bytes of the file (filters,
line ending conversion, partial clones, other object formats), nothing is taken from it.
"""

from __future__ import annotations

import os
import re
import stat
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha1
from struct import Struct as BinaryStruct

from wieldy.core.programs import own_program
from wieldy.core.project_text import open_regular, read_project_text
from wieldy.files.journal.tree_manifest import CLOCK_TICK_NS, FileStamp
from wieldy.files.search.ignore import IgnoreFile, parse_ignore_file

# The index of some 250 000 files. A larger one takes too long to read.
MAX_INDEX_BYTES = 24 << 20
GIT_SECONDS = 10.0
_HEADER = BinaryStruct(">4sII")
_ENTRY = BinaryStruct(">10I20sH")
_WORD = 0xFFFFFFFF
_CONVERTING_CONFIG = r"^(core\.(autocrlf|attributesfile)|extensions\.(partialclone|objectformat)|remote\..*\.promisor)$"
_CONVERTING_ATTRIBUTE = re.compile(
    r"(?:^|\s)(?:filter|working-tree-encoding|ident|eol=crlf|text=crlf|crlf|\[attr\])", re.I
)


class GitIndex:
    """What the index of a repository knew at one moment about the files in its working tree."""

    def __init__(self, root: str, data: bytes, written: int) -> None:
        self.root = root
        self._data = data
        self._written = written
        self._positions: dict[bytes, int] | None = None
        self.converted: list[IgnoreFile] = []

    def object_id(self, path: str, stamp: FileStamp) -> bytes | None:
        """The id of the object that holds the bytes of a file in this state; None if that is not certain."""
        if self._positions is None:
            self._positions = dict(_entries(self._data))
        position = self._positions.get(os.fsencode(path[len(self.root.rstrip("/")) + 1 :]))
        if position is None:
            return None
        entry = _ENTRY.unpack_from(self._data, position)
        changed, changed_ns, modified, modified_ns, _, inode, mode, _, _, size, object_id, flags = entry
        known = modified * 10**9 + modified_ns, changed * 10**9 + changed_ns, size, inode
        if known != (stamp.modified, stamp.changed, stamp.size & _WORD, stamp.inode & _WORD):
            return None
        if flags & 0xF000 or not stat.S_ISREG(mode) or stamp.size > _WORD:
            return None  # assumed unchanged, extended, or in conflict
        if max(stamp.modified, stamp.changed) > self._written - CLOCK_TICK_NS:
            return None  # it may have changed after git read it, without a new time stamp
        if any(rules.verdict(path, False) for rules in self.converted):
            return None
        return bytes(object_id)


def load_index(root: str, env: Mapping[str, str], attribute_files: Iterable[str] = ()) -> GitIndex | None:
    """The index of the repository at `root`; None where git cannot be relied on to give files back byte by byte.

    `attribute_files` are the `.gitattributes` of its working tree.
    """
    git_folder = _git_folder(root)
    try:
        common = _common_folder(git_folder)
        if not _is_plain(root, env):
            return None
        with open(open_regular(f"{git_folder}/index"), "rb") as file:
            status = os.fstat(file.fileno())
            if status.st_size > MAX_INDEX_BYTES:
                return None
            data = file.read()
    except OSError:
        return None
    if (
        len(data) < _HEADER.size
        or _HEADER.unpack_from(data)[0] != b"DIRC"
        or _HEADER.unpack_from(data)[1] not in (2, 3)
    ):
        return None
    index = GitIndex(root, data, status.st_mtime_ns)
    for path in (*attribute_files, f"{common}/info/attributes"):
        base = root if path.endswith("/info/attributes") else os.path.dirname(path)
        if (patterns := _converted_patterns(path)) and (rules := parse_ignore_file("\n".join(patterns), base)):
            index.converted.append(rules)
    return index


def read_objects(root: str, object_ids: Iterable[bytes], env: Mapping[str, str]) -> Iterator[tuple[bytes, bytes]]:
    """Ask git for objects; yields those that it has, verified. Nothing is fetched, and no hook or filter runs."""
    requests = b"".join(object_id.hex().encode() + b"\n" for object_id in dict.fromkeys(object_ids))
    if not requests:
        return
    arguments = ["-c", "core.fsmonitor=false", "cat-file", "--batch", "--buffer"]
    try:
        done = subprocess.run(
            [own_program("git", env), *arguments],
            cwd=root,
            env=_environment(env),
            input=requests,
            capture_output=True,
            timeout=GIT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return
    output, position = done.stdout, 0
    while (end := output.find(b"\n", position)) >= 0:
        fields = output[position:end].split()
        position = end + 1
        if len(fields) != 3 or not fields[2].isdigit():
            continue  # "<id> missing"
        size = int(fields[2])
        content = output[position : position + size]
        position += size + 1
        if fields[1] == b"blob" and sha1(b"blob %d\0%s" % (size, content), usedforsecurity=False).hexdigest() == (
            fields[0].decode()
        ):
            yield bytes.fromhex(fields[0].decode()), content


def _entries(data: bytes) -> Iterator[tuple[bytes, int]]:
    """Path and position of each entry."""
    _, _, count = _HEADER.unpack_from(data)
    position, fixed = _HEADER.size, _ENTRY.size
    for _ in range(count):
        start = position + fixed
        flags = data[start - 2 : start]
        if len(flags) < 2:
            return
        length = (flags[0] & 0x0F) << 8 | flags[1]
        if flags[0] & 0x40:
            start += 2
        if length == 0xFFF:
            length = data.index(b"\0", start) - start
        yield data[start : start + length], position
        position += (start - position + length + 8) & ~7


def _git_folder(root: str) -> str:
    dot_git = f"{root.rstrip('/')}/.git"
    if os.path.isdir(dot_git):
        return dot_git
    try:
        return os.path.join(root, read_project_text(dot_git).removeprefix("gitdir:").strip())
    except OSError:
        return dot_git


def _common_folder(git_folder: str) -> str:
    try:
        return os.path.join(git_folder, read_project_text(f"{git_folder}/commondir").strip())
    except OSError:
        return git_folder


def _is_plain(root: str, env: Mapping[str, str]) -> bool:
    """Whether no configuration makes files in the working tree differ from git's objects, or objects be missing."""
    try:
        done = subprocess.run(
            [own_program("git", env), "config", "--includes", "-z", "--get-regexp", _CONVERTING_CONFIG],
            cwd=root,
            env=_environment(env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=GIT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    settings = [setting for setting in done.stdout.split(b"\0") if setting]
    if done.returncode not in (0, 1) or any(setting.lower() != b"core.autocrlf\nfalse" for setting in settings):
        return False
    config = env.get("XDG_CONFIG_HOME") or f"{env.get('HOME', '')}/.config"
    return not any(_converted_patterns(path) for path in (f"{config}/git/attributes", "/etc/gitattributes"))


def _environment(env: Mapping[str, str]) -> dict[str, str]:
    """The environment of git commands that only look something up in the repository they are run in."""
    clean = {name: value for name, value in env.items() if not name.startswith("GIT_")}
    return clean | {
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_ALLOW_PROTOCOL": "none",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
    }


def _converted_patterns(path: str) -> list[str]:
    """The patterns of an attributes file whose files git converts."""
    patterns = []
    for line in _read_text(path).split("\n"):
        words = line.split(maxsplit=1)
        if line.startswith("[attr]"):
            return ["*"]  # it may mean anything
        if len(words) == 2 and not line.startswith("#") and _CONVERTING_ATTRIBUTE.search(words[1]):
            patterns.append("*" if words[0].startswith('"') else words[0])
    return patterns


def _read_text(path: str) -> str:
    try:
        return read_project_text(path)
    except FileNotFoundError:
        return ""
    except OSError:
        return "[attr]"  # it may say anything
