"""`OverlayBackend`: work on a folder of which nothing changes. Linux 5.11 or later; no privileges are needed.

A worker process lives in a mount namespace of its own, in which an overlay lies over the folder, under the same path. What is
changed goes into a second folder, `upper`. The rest of the machine is as it is.
"""

from __future__ import annotations

import os
import shutil
import socket
import stat as modes
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal, Self

from msgspec import Struct, convert

from wieldy.core.backend import FileInfo, FolderEntry
from wieldy.core.errors import WieldyError
from wieldy.core.programs import own_program, own_python
from wieldy.shell.backends.channel import Caller

TRIAL_SECONDS = 10.0
START_SECONDS = 30.0
END_SECONDS = 10.0


class OverlayError(WieldyError):
    """No overlay can be made here; the message says why."""


class OverlayMount(Struct, frozen=True):
    """Three folders of an overlay, and where it is mounted, which may be the lower one itself."""

    lower: str
    upper: str
    work: str
    target: str

    def command(self, command: list[str]) -> list[str]:
        """A command that mounts the overlay in a namespace of its own and runs another there, as the same user."""
        script = (
            'mount -t overlay overlay -o "lowerdir=$1,upperdir=$2,workdir=$3,userxattr" "$4" && uid=$5 gid=$6 && shift 6 && '
            'exec unshare --user --map-user="$uid" --map-group="$gid" -- "$@"'
        )
        enter = [own_program("unshare"), "--user", "--map-root-user", "--mount", "--", "/bin/sh", "-c", script, "sh"]
        folders = [_escape(self.lower), _escape(self.upper), _escape(self.work), self.target]
        return [*enter, *folders, str(os.getuid()), str(os.getgid()), *command]


@cache
def overlay_problem() -> str | None:
    """Why no overlay can be mounted in a namespace here; None if it can. Tries once in a process."""
    try:
        own_program("unshare")
    except FileNotFoundError:
        return "the program `unshare` (util-linux) is missing"
    with tempfile.TemporaryDirectory() as folder:
        paths = [os.path.join(folder, name) for name in ("lower", "upper", "work", "target")]
        for path in paths:
            os.mkdir(path)
        mount = OverlayMount(*paths)
        try:
            done = subprocess.run(
                mount.command(["true"]),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=TRIAL_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"the trial failed ({error})"
    if done.returncode == 0:
        return None
    words = " ".join(done.stderr.decode("utf-8", "replace").split())[:200]
    return f"an unprivileged mount is not possible here ({words or f'exit code {done.returncode}'})"


class OverlayChange(Struct, frozen=True):
    """One path, relative to the folder, that differs from it. A folder that replaces another one is `changed`."""

    path: str
    what: Literal["created", "changed", "deleted"]


class OverlayProcess:
    """A process in the namespace, known there by its tag."""

    def __init__(self, caller: Caller, tag: str, pid: int, pipes: tuple[int, ...]) -> None:
        self.pid = pid
        self.stdout = pipes[0]
        self.stderr = pipes[1] if len(pipes) > 1 else None
        self._caller = caller
        self._tag = tag
        self._waiting = threading.Lock()
        self._code: int | None = None

    def wait(self) -> int:
        with self._waiting:  # the worker forgets a process that was waited for
            if self._code is None:
                self._code = int(self._caller.call("wait", self._tag)[0])
            return self._code

    def end(self) -> None:
        self._caller.call("end", self._tag)


class OverlayBackend:
    """The folder `root` with changes of its own: `Toolbox(root, backend=OverlayBackend(root))`.

    Starts at once, and ends everything when it is closed. The changes are below `upper`, and gone with it unless `scratch`
    names a folder for them, outside of `root`. Raises `OverlayError` where the system does not allow such a mount.
    """

    has_host_programs = True

    def __init__(self, root: str | os.PathLike[str], *, scratch: str | os.PathLike[str] | None = None) -> None:
        self.root = os.path.realpath(root)
        if not os.path.isdir(self.root):
            raise OverlayError(f"{self.root} is no folder, so no overlay can be made of it")
        self._owns_scratch = scratch is None
        self.scratch = os.path.realpath(tempfile.mkdtemp(prefix="wieldy-overlay-") if scratch is None else scratch)
        try:
            self._start()
        except BaseException:
            self._remove_scratch()
            raise

    def _start(self) -> None:
        if f"{self.scratch}/".startswith(f"{self.root.rstrip('/')}/"):
            raise OverlayError(f"the changes cannot be kept in {self.scratch}: that is inside of {self.root}")
        self.upper = os.path.join(self.scratch, "upper")
        work = os.path.join(self.scratch, "work")
        for folder in (self.upper, work):
            os.makedirs(folder, exist_ok=True)
        mount = OverlayMount(self.root, self.upper, work, self.root)
        code = "from wieldy.shell.backends.worker import main; sys.exit(main(sys.argv[1:]))"
        ours, theirs = socket.socketpair()
        command = own_python(code, str(theirs.fileno()))
        if command is None:
            raise OverlayError(f"no overlay of {self.root}: there is no Python interpreter to start")
        self._log = os.path.join(self.scratch, "worker.log")
        try:
            with theirs, open(self._log, "wb") as log:
                self._worker = subprocess.Popen(
                    mount.command(command),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=(theirs.fileno(),),
                    cwd="/",
                    start_new_session=True,
                )
        except OSError as error:
            ours.close()
            raise OverlayError(f"no overlay of {self.root}: {error}") from None
        ours.settimeout(START_SECONDS)
        try:
            is_ready = ours.recv(1) == b"+"
        except TimeoutError:
            is_ready = False
        if not is_ready:
            ours.close()
            self._worker.kill()
            self._worker.wait()
            raise OverlayError(f"no overlay of {self.root}: {self._log_text() or 'the worker did not start'}")
        ours.settimeout(None)
        self._caller = Caller(ours, describe_end=self._describe_end)
        self._closing = threading.Lock()
        self._is_closed = False

    @property
    def id(self) -> str:
        return f"overlay-{blake2b(os.fsencode(self.scratch), digest_size=5).hexdigest()}"

    @property
    def pid(self) -> int:
        """The worker. Its namespace can be entered with `nsenter`."""
        return self._worker.pid

    def stat(self, path: str, *, follow: bool = True) -> FileInfo:
        return convert(self._call("stat", os.fsencode(path), follow), FileInfo)

    def realpath(self, path: str) -> str:
        return os.fsdecode(self._call("realpath", os.fsencode(path)))

    def list_folder(self, path: str) -> Sequence[FolderEntry]:
        entries = self._call("list_folder", os.fsencode(path))
        return [FolderEntry(os.fsdecode(name), kind, os.fsdecode(target)) for name, kind, target in entries]

    def read(self, path: str, offset: int = 0, size: int | None = None) -> bytes:
        data: bytes = self._call("read", os.fsencode(path), offset, size)
        return data

    def write(self, path: str, content: bytes, *, expected: str | None, mode: int | None = None) -> FileInfo:
        return convert(self._call("write", os.fsencode(path), content, expected, mode), FileInfo)

    def delete(self, path: str, *, expected: str | None = None) -> None:
        self._call("delete", os.fsencode(path), expected)

    def make_folder(self, path: str) -> None:
        self._call("make_folder", os.fsencode(path))

    def spawn(
        self, argv: Sequence[str | bytes], *, cwd: str, env: Mapping[str, str], separate_stderr: bool = False
    ) -> OverlayProcess:
        words = [os.fsencode(word) for word in argv]
        variables = [(os.fsencode(name), os.fsencode(value)) for name, value in env.items()]
        (tag, pid), pipes = self._caller.call("spawn", words, os.fsencode(cwd), variables, separate_stderr)
        return OverlayProcess(self._caller, tag, pid, pipes)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End everything that still runs there."""
        with self._closing:
            if self._is_closed:
                return
            self._is_closed = True
        self._caller.close()
        try:
            self._worker.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._worker.kill()
            self._worker.wait()
        self._remove_scratch()

    def changes(self) -> list[OverlayChange]:
        """What differs from the folder, by path. A new folder is not named, the files in it are."""
        return sorted(self._changes_in(""), key=lambda change: change.path)

    def _changes_in(self, folder: str) -> Iterator[OverlayChange]:
        with os.scandir(os.path.join(self.upper, folder)) as entries:
            listing = list(entries)
        for entry in listing:
            path = os.path.join(folder, entry.name)
            lower = os.path.join(self.root, path)
            if _is_whiteout(entry):
                yield OverlayChange(path, "deleted")
            elif entry.is_dir(follow_symlinks=False):
                if os.path.isdir(lower) and _is_opaque(entry.path):
                    yield OverlayChange(path, "changed")
                yield from self._changes_in(path)
            else:
                yield OverlayChange(path, "changed" if os.path.lexists(lower) else "created")

    def _call(self, method: str, *arguments: Any) -> Any:
        return self._caller.call(method, *arguments)[0]

    def _describe_end(self) -> str:
        if self._is_closed:
            return "the overlay is closed"
        return f"the worker of the overlay has ended {self._log_text()}".rstrip()

    def _log_text(self) -> str:
        try:
            text = Path(self._log).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""
        lines = text.strip().splitlines()
        return f"({lines[-1][:200]})" if lines else ""

    def _remove_scratch(self) -> None:
        # The kernel makes the folder `work` its own: it cannot be listed, and its owner may remove it.
        inner = os.path.join(self.scratch, "work", "work")
        if os.path.isdir(inner):
            os.chmod(inner, 0o700)
        shutil.rmtree(self.scratch if self._owns_scratch else os.path.join(self.scratch, "work"), ignore_errors=True)


def _is_whiteout(entry: os.DirEntry[str]) -> bool:
    """Whether an entry stands for something that was deleted: a character device with the number 0."""
    stat = entry.stat(follow_symlinks=False)
    return modes.S_ISCHR(stat.st_mode) and stat.st_rdev == 0


def _is_opaque(folder: str) -> bool:
    """Whether a folder hides the one below it."""
    try:
        return os.getxattr(folder, "user.overlay.opaque") == b"y"
    except OSError:
        return False


def _escape(path: str) -> str:
    """A path in the options of an overlay mount."""
    return path.replace("\\", "\\\\").replace(",", "\\,").replace(":", "\\:")
