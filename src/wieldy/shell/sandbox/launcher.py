"""Our handle on the launcher: a small process that has confined itself and starts the commands that only read."""

from __future__ import annotations

import array
import contextlib
import errno
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Sequence

from msgspec import Struct

from wieldy.core.programs import own_python
from wieldy.shell.running.guardian import LOADER_VARIABLES
from wieldy.shell.running.launch import Limit, Program
from wieldy.shell.sandbox import kernel
from wieldy.shell.sandbox.launcher_process import HEADER, REPLY

START_CODE = "from wieldy.shell.sandbox.launcher_process import main; main(*sys.argv[1:])"
ANSWER_SECONDS = 10.0


class Reading(Struct, frozen=True):
    """What a command that only reads must not read, and whether it looks into other processes."""

    hidden: tuple[str, ...] = ()
    sees_processes: bool = False


class SiblingProcess:
    """A process that the launcher started as our child."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.peak_mb = 0
        """The memory that the largest process of it used, once it has ended."""
        self._code: int | None = None

    def wait(self) -> int:
        if self._code is None:
            _, status, usage = os.wait4(self.pid, 0)
            self._code, self.peak_mb = os.waitstatus_to_exitcode(status), usage.ru_maxrss >> 10
        return self._code

    def end(self) -> None:
        """Kill it."""
        with contextlib.suppress(OSError):
            os.kill(self.pid, signal.SIGKILL)
            self.wait()


class Launcher:
    """The launcher of this process. It is started once, serves all workspaces, and ends with the last of them."""

    def __init__(self) -> None:
        self.problem = ""
        """Why it does not work here; empty if it does, as far as is known."""
        self._forget()

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._users: set[object] = set()
        self._clear()

    def _clear(self) -> None:
        self.is_ready = False
        self.temp = ""
        """The only folder in which its commands may write."""
        self.version = 0
        """The Landlock version."""
        self._process: subprocess.Popen[bytes] | None = None
        self._sibling: SiblingProcess | None = None
        self._sockets: tuple[socket.socket, ...] = ()

    @property
    def may_work(self) -> bool:
        """Whether nothing is known that it fails by."""
        return self.is_ready or (not self.problem and kernel.can_filter() and kernel.abi() > 0)

    def warm_up(self, user: object) -> None:
        """Start it for one more user without waiting until it serves. This takes about a millisecond."""
        with self._lock:
            self._users.add(user)
            if self._process is None and not self.problem:
                self._start()

    def works(self, user: object) -> bool:
        """Whether it serves, which is waited for."""
        self.warm_up(user)
        with self._lock:
            return self._await_ready()

    def start(
        self,
        program: Program,
        *,
        hidden: Sequence[str] = (),
        limits: Sequence[Limit] = (),
        sees_processes: bool = False,
    ) -> SiblingProcess:
        """Start a program that can change nothing, reach no network and read everything but the hidden paths. Raises OSError.

        One that sees processes is kept only from sockets, signals and system calls that change something.
        """
        variables = [f"{name}={value}" for name, value in program.env.items()]
        numbers = [f"{limit.kind}={limit.value}={int(limit.is_final)}" for limit in limits]
        groups = (program.arguments, variables, numbers, hidden)
        fields = (program.cwd, program.file, *(field for group in groups for field in group))
        body = b"\0".join(map(os.fsencode, fields))
        message = HEADER.pack(len(body), *map(len, groups)) + body
        with self._lock:
            try:
                pid, error = self._request(message, program.outputs, sees_processes)
            except OSError:
                self._end()
                self._start()  # once more: something may have ended it
                pid, error = self._request(message, program.outputs, sees_processes)
        if error:
            if pid:
                os.waitpid(pid, 0)
            raise OSError(error, os.strerror(error))
        return SiblingProcess(pid)

    def leave(self, user: object) -> None:
        """One user fewer. It ends with the last one."""
        with self._lock:
            self._users.discard(user)
            if not self._users:
                self._end()

    def reset_after_fork(self) -> None:
        """Forget everything: it serves our parent."""
        for each in self._sockets:
            each.close()
        if self._process is not None:
            self._process.returncode = 0  # not our child: never wait for it
        self._forget()

    def _request(self, message: bytes, outputs: Sequence[int], sees_processes: bool) -> tuple[int, int]:
        if not self._await_ready():
            raise OSError(errno.EPERM, f"the confined launcher does not work: {self.problem}")
        server = self._sockets[sees_processes]
        sent = server.sendmsg([message], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", outputs))])
        server.sendall(message[sent:])
        return _read_reply(server)

    def _start(self) -> None:
        if not kernel.can_filter():
            self.problem = "the system is no Linux on x86_64 or aarch64"
            return
        pairs = [socket.socketpair(), socket.socketpair()]
        ours, theirs = zip(*pairs, strict=True)
        folder = ""
        try:
            folder = os.path.realpath(tempfile.mkdtemp(prefix="wieldy-reading-"))
            command = own_python(START_CODE, folder, installed=False)
            if command is None:
                raise OSError(errno.ENOENT, "there is no Python interpreter to start")
            self._process = subprocess.Popen(
                command,
                stdin=theirs[0].fileno(),
                stdout=theirs[1].fileno(),
                stderr=subprocess.DEVNULL,
                cwd="/",
                env={name: os.environ[name] for name in LOADER_VARIABLES if name in os.environ},
                start_new_session=True,
            )
        except OSError as error:
            for each in ours:
                each.close()
            if folder:
                os.rmdir(folder)
            self.problem = error.strerror or str(error)
            return
        finally:
            for each in theirs:
                each.close()
        for each in ours:
            each.settimeout(ANSWER_SECONDS)
        self._sockets, self.temp = ours, folder

    def _await_ready(self) -> bool:
        if self.is_ready or self._process is None:
            return self.is_ready
        try:
            self.version, length = _read_reply(self._sockets[0])
            if length:
                self.problem = self._sockets[0].recv(length).decode(errors="replace")
            else:
                self._sibling = SiblingProcess(_read_reply(self._sockets[0])[0])
        except OSError as error:
            self.problem = str(error)
        self.is_ready = not self.problem
        if self.problem:
            self._end()
        return self.is_ready

    def _end(self) -> None:
        for each in self._sockets:
            each.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        if self._sibling is not None:
            self._sibling.end()
        if self.temp:
            shutil.rmtree(self.temp, ignore_errors=True)
        self._clear()


def _read_reply(server: socket.socket) -> tuple[int, int]:
    data = b""
    while len(data) < REPLY.size:
        piece = server.recv(REPLY.size - len(data))
        if not piece:
            raise OSError(errno.EPIPE, "it has ended")
        data += piece
    first, second = REPLY.unpack(data)
    return first, second


LAUNCHER = Launcher()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=LAUNCHER.reset_after_fork)
