"""Files that a sandbox must keep from the programs in it, because rules deny them or because they are on PATH.

Outside a sandbox such files are judged where a command names them. Inside one, programs run unasked, so what they may not
touch is found on disk and taken away from them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from msgspec import Struct

from wieldy.policy.permissions.paths import PathResolver, is_below, path_key
from wieldy.policy.permissions.patterns import PathPattern
from wieldy.policy.permissions.protected import PACKAGES, ProtectedPaths
from wieldy.policy.permissions.ruleset import PathRules

MAX_ENTRIES = 100_000
MAX_FILES = 500


class GuardedFiles(Struct, frozen=True):
    """Absolute paths: `hidden` ones must not be read, `read_only` ones not be written. `problem`: why some may be missing."""

    hidden: tuple[str, ...] = ()
    read_only: tuple[str, ...] = ()
    problem: str = ""


class _NotAllFound(Exception):
    """Some files cannot be found, or not be kept from programs; the message says why."""


def find_guarded_files(
    rules: PathRules,
    protected: ProtectedPaths,
    paths: PathResolver,
    *,
    also_writable: Sequence[str] = (),
    max_entries: int = MAX_ENTRIES,
) -> GuardedFiles:
    """Look through all writable folders for what rules deny, and for programs on PATH. Blocks on the disk."""
    writable = (*paths.roots, *map(paths.real, also_writable))
    finder = _Finder(rules.denying("Read"), rules.denying("Edit"), protected, paths, writable, max_entries)
    try:
        finder.add_named()
        finder.add_programs()
        for folder in finder.folders if rules.denying("Read") or rules.denying("Edit") else ():
            if not any(is_below(folder, other) for other in finder.folders if other != folder):
                finder.walk(folder)
    except _NotAllFound as error:
        finder.problem = str(error)
    return GuardedFiles(tuple(sorted(finder.hidden)), tuple(sorted(finder.read_only - finder.hidden)), finder.problem)


class _Finder:
    """Collects files from a bounded number of folder entries."""

    def __init__(
        self,
        unreadable: Sequence[PathPattern],
        unwritable: Sequence[PathPattern],
        protected: ProtectedPaths,
        paths: PathResolver,
        writable: Sequence[str],
        max_entries: int,
    ) -> None:
        self.hidden: set[str] = set()
        self.read_only: set[str] = set()
        self.problem = ""
        # Nothing in the main repository of a work tree can be written, so there only denied reads matter.
        main = [paths.main_repository] if paths.main_repository and unreadable else []
        self.folders = (*writable, *main)
        self._writable = writable
        self._unreadable, self._unwritable = unreadable, unwritable
        self._protected = protected
        self._paths = paths
        self._entries_left = max_entries

    def add_named(self) -> None:
        """Add what rules name directly, and the folders outside the roots in which a pattern could match something."""
        for pattern in self._unreadable:
            holds_root = any(is_below(root, pattern.folder) for root in self.folders)
            in_root = any(is_below(pattern.folder, root) for root in self.folders)
            if pattern.rest and in_root:
                continue
            if holds_root or is_below(self._paths.home, pattern.folder):
                raise _NotAllFound(f"a rule is about files all over {pattern.folder}")
            self._add(self.hidden, pattern.folder)
        for pattern in self._unwritable:
            in_root = any(is_below(pattern.folder, root) for root in self._writable)
            holds_root = any(is_below(root, pattern.folder) for root in self._writable)
            if not in_root and not holds_root:
                # A sandbox lets nothing be written there.
                continue
            if pattern.rest not in ("", "**") or holds_root or not os.path.exists(pattern.folder):
                raise _NotAllFound("a rule is about writing a new file, which nothing on disk can prevent")
            self._add(self.read_only, pattern.folder)

    def add_programs(self) -> None:
        """Add the folders on PATH, with all of a virtual environment: what is in them also runs outside the sandbox."""
        for folder in self._protected.program_folders:
            if not os.path.isdir(folder):
                raise _NotAllFound(f"{folder} is on PATH and does not exist, so that a command could make it")
            environment = os.path.dirname(folder)
            is_environment = os.path.exists(os.path.join(environment, "pyvenv.cfg"))
            self._add(self.read_only, environment if is_environment else folder)

    def walk(self, root: str) -> None:
        """Add what the patterns match below a root."""
        folds_case = self._paths.resolve(root).folds_case
        pending = [root]
        while pending:
            for entry in self._scan(pending.pop()):
                path = entry.path
                if self._matches(self._unreadable, path, folds_case):
                    self._add(self.hidden, path)
                    continue
                if self._matches(self._unwritable, path, folds_case):
                    self._add(self.read_only, path)
                # What git keeps is no file of the project; what is installed matters only where rules may deny reading it.
                is_skipped = entry.name == ".git" or (entry.name in PACKAGES and not self._unreadable)
                if entry.is_dir(follow_symlinks=False) and not is_skipped:
                    pending.append(path)

    def _matches(self, patterns: Sequence[PathPattern], path: str, folds_case: bool) -> bool:
        return bool(patterns) and any(pattern.matches(path_key(path, folds_case), folds_case) for pattern in patterns)

    def _scan(self, folder: str) -> Iterator[os.DirEntry[str]]:
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    self._entries_left -= 1
                    if self._entries_left < 0:
                        raise _NotAllFound("there are too many files to find those that rules deny")
                    yield entry
        except OSError:
            # A program of the same user cannot list it either.
            return

    def _add(self, files: set[str], path: str) -> None:
        real = self._paths.real(path)
        if os.path.exists(real) and real not in self.folders:
            files.add(real)
        if len(files) > MAX_FILES:
            raise _NotAllFound(f"rules are about more than {MAX_FILES} files")
