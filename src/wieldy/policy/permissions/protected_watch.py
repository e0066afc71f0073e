"""Compares protected files before and after a command, and puts aside what it made or changed without being asked.

What a command writes is judged by its text before it runs. Programs write more than the text says, so this is looked at
afterwards, whatever wrote it and by which name. A file is moved into a private folder, and what was there before comes back.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from wieldy.core.active_commands import active_files
from wieldy.core.effects import Writes
from wieldy.core.errors import Refusal
from wieldy.core.events import Notice
from wieldy.core.own_writes import is_own_write
from wieldy.core.realpath import PathChanged, open_resolved_folder, realpath
from wieldy.core.state_dirs import make_private_folder
from wieldy.core.text import escape_to_line
from wieldy.core.threads import in_thread, in_thread_uncancellable
from wieldy.core.user_questions import UserQuestion
from wieldy.policy.permissions.paths import ResolvedPath
from wieldy.policy.permissions.protected import (
    FILES,
    FOLDER_PAIRS,
    FOLDERS,
    NAMED_BY_COMMAND,
    ProtectedPaths,
    Protection,
)
from wieldy.policy.permissions.protected_scan import (
    CLOCK_TICK_NS,
    FileState,
    FindProtection,
    ProtectedScanner,
    ProtectedState,
)
from wieldy.shell.sandbox.repositories import GitJudge

if TYPE_CHECKING:
    from wieldy.core.workspace import Workspace
    from wieldy.shell.effects.analysis import Analysis

FOLDER_NAME = "put-aside"
MAX_NAMED = 5
MAX_SHOWN = 400
KEEP_OUT, TAKE_IN = "Leave them out", "Take them in"
Change = Literal["made", "changed", "removed"]


class PutAside(Struct, frozen=True):
    """A protected file that a command made, changed or removed. `copy`: where its content is now; `problem`: why it is not."""

    path: str
    change: Change
    protection: Protection
    copy: str = ""
    problem: str = ""
    restored: FileState | None = None


class ProtectedFiles:
    """The service `workspace.services.protected_files`: what of a workspace is protected, before and after commands."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._scanner = ProtectedScanner()
        self._lock = threading.Lock()  # subagents use the same service
        self._watches: list[ProtectedWatch] = []
        self._count = 0

    async def aclose(self) -> None:
        """Look after commands that ran until the end of the session."""
        for watch in list(self._watches):
            watch.outlive(None)
            await watch.finish()

    def scan(
        self,
        protection_of: FindProtection,
        folders: Sequence[str],
        *,
        sandboxed: bool,
        is_held: bool = False,
        git_only: Collection[str] = (),
        factor: int = 1,
    ) -> ProtectedState:
        """Find the protected files in some folders, and in the home folder unless nothing can be written there (`is_held`)."""
        workspace = self._workspace
        named = active_files(workspace.settings, workspace.root, workspace.home)
        also = [(path, NAMED_BY_COMMAND) for path in named]
        # Landlock leaves the temp folders writable, and a home folder may lie in one.
        if workspace.home and workspace.home not in workspace.roots and not is_held:
            also += home_files(workspace.home)
        with self._lock:
            return self._scanner.scan(
                folders,
                protection_of,
                max_entries=workspace.setting("sandbox.maxEntries") * factor,
                git_only=git_only,
                packages=sandboxed,
                also=also,
            )

    def state_of(self, path: str) -> FileState | None:
        with self._lock:
            return self._scanner.state_of(path)

    async def watch_command(self, judge: object, analysis: Analysis, *, sandboxed: bool) -> ProtectedWatch:
        """Look at the protected files before a command. `sandboxed`: it is to run in the sandbox of the settings."""
        workspace = self._workspace
        protection_of: FindProtection | None = getattr(judge, "protection_of", None)
        if protection_of is None:  # a policy of the program's own
            protected = ProtectedPaths(workspace.roots)

            def protection_of(path: str) -> Protection | None:
                return protected.find(ResolvedPath((path,), True))

        earlier = [note for each in list(self._watches) if each.has_leftovers for note in await each.finish(ask=True)]
        sandbox = workspace.services.sandbox
        mechanism = (await sandbox.wrapper()).mechanism if sandboxed else "none"
        sandboxed = mechanism != "none"
        folders, git_only = sandbox.watched_folders() if sandboxed else (sandbox.project_folders(), ())
        watch = await self.watch(
            protection_of,
            folders=tuple(map(os.path.realpath, folders)),
            sandboxed=sandboxed,
            is_held=mechanism == "bubblewrap",
            git_only=git_only,
            expected=_real_paths(effect.path for effect in analysis.effects if isinstance(effect, Writes)),
        )
        watch.notes = earlier
        if mechanism == "bubblewrap":
            watch.hold(map(os.path.realpath, watch.mounts))
        return watch

    async def watch(
        self,
        protection_of: FindProtection,
        *,
        folders: Sequence[str],
        sandboxed: bool = False,
        is_held: bool = False,
        git_only: Collection[str] = (),
        expected: Collection[str] = (),
    ) -> ProtectedWatch:
        """Look at what is protected before a command. `expected` are files that it was judged to write."""
        started = time.time_ns()
        scan = partial(self.scan, protection_of, folders, sandboxed=sandboxed, is_held=is_held, git_only=git_only)
        before = await in_thread(scan)
        reachable = tuple(folders) if is_held else ("/",)
        watch = ProtectedWatch(self._workspace, self, scan, reachable, tuple(git_only), before, started)
        watch.expected = tuple(expected)
        watch.judged = tuple(path for path in expected if protection_of(path))
        self._watches.append(watch)
        return watch

    def forget(self, watch: ProtectedWatch) -> None:
        with suppress(ValueError):
            self._watches.remove(watch)

    def accept(self, path: str, state: FileState | None, protection: Protection | None) -> None:
        """Take a file as it is now for what every running command found."""
        for watch in self._watches:
            watch.accept(path, state, protection)

    def new_folder(self) -> Path:
        """A new folder for what is put aside."""
        top = self._workspace.session_dir / FOLDER_NAME
        make_private_folder(top)
        while True:
            self._count += 1
            folder = top / str(self._count)
            with suppress(FileExistsError):
                folder.mkdir(mode=0o700)
                return folder


class ProtectedWatch:
    """The protected files before one command. `expected` are those that it is to write."""

    def __init__(
        self,
        workspace: Workspace,
        service: ProtectedFiles,
        scan: Callable[..., ProtectedState],
        folders: tuple[str, ...],
        git_only: tuple[str, ...],
        before: ProtectedState,
        started: int,
    ) -> None:
        self.before = before
        self.incomplete = ""  # why some protected files may have been overlooked
        self.expected: tuple[str, ...] = ()
        self.notes: list[str] = []  # what to tell the model with the next report
        self.judged: tuple[str, ...] = ()  # of them, those that were known to be protected
        self._workspace = workspace
        self._service = service
        self._scan = scan
        self._folders = folders
        self._git_only = git_only
        self._known = dict(before.files)
        self._why = dict(before.why)
        self._checking = threading.Lock()
        self.files: list[PutAside] = []  # put aside and not yet reported
        self._is_open = True
        self._held: tuple[str, ...] = ()
        self._folders_above: dict[str, object] = {}
        self._still_running: Callable[[], Awaitable[object]] | None = None
        self._started = started

    @property
    def mounts(self) -> tuple[str, ...]:
        """What a sandbox mounts read-only: all that is there and that the command was not judged to write."""
        inside = [path for path in self.before.files if self.before.why[path] is NAMED_BY_COMMAND]
        left_out = (*self._git_only, *self.expected)
        mounts = (path for path in (*self.before.mounts, *inside) if not _is_at_or_below(path, left_out))
        return tuple(path for path in mounts if not any(_is_at_or_below(each, (path,)) for each in self.expected))

    def hold(self, paths: Iterable[str]) -> None:
        """Take it that the command cannot change these, because they are mounted read-only.

        It can move a folder above one away and make another, so this holds while the folders above are the same.
        """
        self._held = tuple(paths)
        self._folders_above = {folder: _identity(folder) for path in self._held for folder in _parents(path)}

    def _is_held(self, path: str) -> bool:
        mounts = (each for each in self._held if _is_at_or_below(path, (each,)))
        return any(
            all(_identity(folder) == self._folders_above[folder] for folder in _parents(each)) for each in mounts
        )

    @property
    def has_leftovers(self) -> bool:
        """Whether the command has ended and left processes behind."""
        return self._still_running is not None

    def outlive(self, still_running: Callable[[], Awaitable[object]] | None) -> None:
        """Look on after the command's end, until nothing is running any more that it has started."""
        self._still_running = still_running

    def accept(self, path: str, state: FileState | None, protection: Protection | None) -> None:
        if state is None:
            self._known.pop(path, None)
            return
        self._known[path] = state
        if protection is not None:
            self._why[path] = protection

    def drop(self) -> None:
        """The command will not run."""
        self._is_open = False
        self._service.forget(self)

    async def check(self) -> None:
        """Put aside what has been made or changed until now; the next report tells of it."""
        if self._is_open:
            self.files += await in_thread_uncancellable(self._check)

    async def finish(self, *, ask: bool = False) -> list[str]:
        """Look for the last time, unless processes are left; returns notes for the model.

        With `ask`, the person may take the files in.
        """
        if not self._is_open:
            return []
        if self._still_running is not None and await self._still_running():
            return await self.report(ask=ask)
        try:
            return await self.report(ask=ask)
        finally:
            self._is_open = False
            self._service.forget(self)

    async def report(self, *, ask: bool = False) -> list[str]:
        """Put aside what has been made or changed until now; returns notes for the model."""
        await self.check()
        files, self.files = self.files, []
        notes, self.notes = [*self.notes, *([self.incomplete] if self.incomplete else [])], []
        if not files:
            return notes
        text = describe(files, self._workspace.root)
        taken = ask and await self._ask(files, text)
        self._workspace.emit(Notice(text=f"protected files: {text}" + ("; you took them in" if taken else "")))
        if taken:
            return [*notes, f"protected files: {text}. The user took them in"]
        return [
            *notes,
            f"protected files: {text}. Do not try another way: continue without them, or tell the user why they are needed "
            "and which file to copy where",
        ]

    async def _ask(self, files: Sequence[PutAside], text: str) -> bool:
        questions = self._workspace.services.user_questions
        movable = [each for each in files if each.copy]
        if not movable or not questions.available:
            return False
        question = UserQuestion(f"{text}\n{_excerpts(movable)}\nShould they be taken in?", (KEEP_OUT, TAKE_IN))
        try:
            answers = await questions.answer((question,))
        except Refusal:
            return False
        if not answers or TAKE_IN not in answers[0].chosen:
            return False
        return await in_thread(lambda: all(list(map(self._take_in, movable))))

    def _check(self) -> list[PutAside]:
        with self._checking:
            now = self._scan(factor=1 if self.before.problem else 10)
            self.incomplete = now.problem or self.before.problem
            judge = GitJudge(
                [path for path in self.before.git if path in self._known],
                self._folders,
                self._workspace.env,
            )
            found: list[PutAside] = []
            paths = sorted({*now.files, *self._known})
            # All are judged before one is put aside, because what a `.git` file names is judged with it.
            changes = [(path, change) for path in paths if (change := self._change_of(path, now, judge))]
            folder = self._service.new_folder() if changes else Path()
            for path, change in changes:
                why = now.why.get(path) or self._why[path]
                after = now.files.get(path) or self._service.state_of(path)
                found.append(self._put_aside(path, change, why, after, folder))
            return found

    def _change_of(self, path: str, now: ProtectedState, judge: GitJudge) -> Change | None:
        """What a command did to a file that it should not have; None if that is all right."""
        before, after = self._known.get(path), now.files.get(path)
        if after is None and before is not None:
            after = self._service.state_of(path)  # a scan that was cut short did not see it
        if (before is None and after is None) or (before is not None and before.same(after)):
            return None
        if self._is_held(path) and not (before is not None and before.links):
            return None  # a process outside the sandbox changed it
        if self.before.problem and before is None and not _is_newer(path, self._started):
            return None
        is_git = path in now.git or path in self.before.git
        is_opened = (
            before is not None and after is not None and after.mode & ~before.mode & 0o022
        )  # for others to write
        if (
            _is_at_or_below(path, self.judged)
            or is_own_write(path)
            or (after is None and not os.path.isdir(os.path.dirname(path)))
            or (
                is_git
                and after is not None
                and not is_opened
                and judge.is_harmless(path, before.content if before else None)
            )
        ):
            self._service.accept(path, after, now.why.get(path))
            return None
        return "made" if before is None else "removed" if after is None else "changed"

    def _put_aside(self, path: str, change: Change, why: Protection, now: FileState | None, folder: Path) -> PutAside:
        before = self._known.get(path)
        copy = str(folder / f"{len(os.listdir(folder))}-{os.path.basename(path)}")
        if before is not None and before.content is None:
            self._service.accept(path, now, None)  # told once
            return PutAside(path, change, why, problem="what it was before is too large to be kept")
        parent = os.path.dirname(path)
        try:
            if before is not None and path not in self.before.git and not os.path.lexists(parent):
                os.makedirs(parent)  # what the command put in its place has been put aside
                now = None
            descriptor = open_resolved_folder(parent)
        except (OSError, PathChanged) as error:
            return PutAside(path, change, why, problem=error.strerror or "its folder cannot be opened")
        try:
            if now is not None:
                _move_out(descriptor, path, copy)
            if before is not None:
                _write_back(descriptor, os.path.basename(path), before)
        except OSError as error:
            return PutAside(path, change, why, problem=error.strerror or str(error))
        finally:
            os.close(descriptor)
        if before is None:
            _remove_emptied(os.path.dirname(path), self._folders)
        return PutAside(path, change, why, "" if now is None else copy, restored=before)

    def _take_in(self, file: PutAside) -> bool:
        """Put a file back to where the command had it, unless something was changed there since."""
        if self._service.state_of(file.path) != file.restored and file.restored is None:
            return False
        try:
            Path(file.path).parent.mkdir(parents=True, exist_ok=True)
            descriptor = open_resolved_folder(os.path.dirname(file.path))
            try:
                _move_in(descriptor, file.copy, os.path.basename(file.path))
            finally:
                os.close(descriptor)
        except OSError:
            return False
        self._service.accept(file.path, self._service.state_of(file.path), file.protection)
        return True


def describe(files: Sequence[PutAside], root: str) -> str:
    """One line about what was put aside."""
    parts = []
    for each in files[:MAX_NAMED]:
        name = os.path.relpath(each.path, root) if _is_at_or_below(each.path, (root,)) else each.path
        if each.problem:
            end = f"it is still as the command left it: {each.problem}"
        elif each.change == "removed":
            end = "it was restored"
        else:
            end = f"{'it was restored, and ' if each.change == 'changed' else ''}what the command wrote is kept in {each.copy}"
        parts.append(f"the command {each.change} {name}, which is protected because {each.protection.why}; {end}")
    if len(files) > MAX_NAMED:
        parts.append(f"and {len(files) - MAX_NAMED} more")
    return escape_to_line("; ".join(parts))


def _excerpts(files: Iterable[PutAside]) -> str:
    shown = []
    for each in list(files)[:3]:
        with suppress(OSError):
            if not os.path.islink(each.copy):
                text = Path(each.copy).read_bytes()[:MAX_SHOWN].decode("utf-8", "replace")
                lines = "\n".join(f"    {escape_to_line(line)}" for line in text.splitlines()[:8])
                shown.append(f"  {escape_to_line(os.path.basename(each.path))}:\n{lines}")
    return "\n".join(shown)


def home_files(home: str) -> list[tuple[str, Protection]]:
    """The files of a home folder that start programs, name them, or let others in.

    What programs of other makers rewrite by themselves (tokens, caches, known hosts) is left out.
    """
    names = [(name, protection) for name, protection in FILES.items() if name != ".claude.json"]
    names += [("/".join(pair), FOLDER_PAIRS[pair]) for pair in ((".docker", "config.json"),)]
    found = [(os.path.join(home, name), protection) for name, protection in names]
    for folder, depth in (
        (".ssh", 1),
        (".config/git", 1),
        (".config/fish", 2),
        (".config/autostart", 1),
        (".config/systemd", 2),
    ):
        protection = FOLDERS.get(folder) or FOLDER_PAIRS[".config", os.path.basename(folder)]
        found += [(path, protection) for path in _files_in(os.path.join(home, folder), depth)]
    found += [
        (os.path.join(home, ".claude", name), FOLDERS[".claude"]) for name in ("settings.json", "settings.local.json")
    ]
    return found


def _files_in(folder: str, depth: int) -> list[str]:
    names: list[str] = []
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                names += _files_in(entry.path, depth - 1) if depth > 1 else []
            elif not entry.name.startswith("known_hosts"):
                names.append(entry.path)
    return names[:500]


def _is_newer(path: str, moment: int) -> bool:
    try:
        return os.lstat(path).st_ctime_ns >= moment - CLOCK_TICK_NS
    except OSError:
        return False


def _parents(path: str) -> Iterator[str]:
    while path != (path := os.path.dirname(path)):
        yield path


def _identity(folder: str) -> object:
    try:
        status = os.lstat(folder)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _is_at_or_below(path: str, places: Iterable[str]) -> bool:
    return any(path == place or path.startswith(place.rstrip("/") + "/") for place in places)


def _move_out(folder: int, path: str, copy: str) -> None:
    """Move an entry of an open folder into our own folder, whatever it is."""
    name = os.path.basename(path)
    try:
        os.rename(name, copy, src_dir_fd=folder)
    except OSError:
        state = os.stat(name, dir_fd=folder, follow_symlinks=False)
        _copy(name, copy, source_folder=folder)
        os.unlink(name, dir_fd=folder)
        with suppress(OSError):
            os.chmod(copy, state.st_mode & 0o700, follow_symlinks=False)


def _move_in(folder: int, copy: str, name: str) -> None:
    try:
        os.rename(copy, name, dst_dir_fd=folder)
    except OSError:
        temporary = f".{name}.wieldy-new"
        _copy(copy, temporary, target_folder=folder)
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        os.unlink(copy)


def _copy(source: str, target: str, *, source_folder: int | None = None, target_folder: int | None = None) -> None:
    """Copy a file or symlink into another file system."""
    import shutil
    import stat

    status = os.stat(source, dir_fd=source_folder, follow_symlinks=False)
    if stat.S_ISLNK(status.st_mode):
        os.symlink(os.readlink(source, dir_fd=source_folder), target, dir_fd=target_folder)
        return
    if not stat.S_ISREG(status.st_mode):
        return  # a pipe or socket holds nothing
    flags = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    opened = os.open(source, flags | os.O_RDONLY, dir_fd=source_folder)
    made = os.open(target, flags | os.O_WRONLY | os.O_CREAT | os.O_EXCL, status.st_mode & 0o777, dir_fd=target_folder)
    with os.fdopen(opened, "rb") as reader, os.fdopen(made, "wb") as writer:
        shutil.copyfileobj(reader, writer)


def _write_back(folder: int, name: str, state: FileState) -> None:
    """Put what was there before in its place again."""
    assert state.content is not None
    temporary = f".{name}.wieldy-restored"
    with suppress(FileNotFoundError):
        os.unlink(temporary, dir_fd=folder)
    if state.kind == "symlink":
        os.symlink(os.fsdecode(state.content), temporary, dir_fd=folder)
    else:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        with os.fdopen(os.open(temporary, flags, 0o600, dir_fd=folder), "wb") as file:
            file.write(state.content)
            os.fchmod(file.fileno(), state.mode)
    os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)


def _remove_emptied(folder: str, tops: Collection[str]) -> None:
    """Remove folders that held nothing but what was put aside; git's own stay."""
    while folder not in tops and "/.git" not in folder and os.path.basename(folder) in FOLDERS:
        try:
            os.rmdir(folder)
        except OSError:
            return
        folder = os.path.dirname(folder)


def _real_paths(paths: Iterable[str]) -> tuple[str, ...]:
    """The real paths of files that a command was judged to write."""
    paths = list(paths)
    real = [os.path.join(realpath(os.path.dirname(path)), os.path.basename(path)) for path in paths]
    return tuple(dict.fromkeys((*real, *map(realpath, paths))))
