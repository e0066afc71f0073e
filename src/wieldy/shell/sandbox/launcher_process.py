"""The launcher process: it confines itself once, then starts the commands that were judged to read only.

Each command is a child of the process that asked for it, in a session of its own, and inherits the confinement.
"""

from __future__ import annotations

import array
import errno
import gc
import os
import resource
import signal
import socket
import struct
import time
from collections.abc import Sequence
from typing import NamedTuple

from wieldy.shell.sandbox import kernel

HEADER = struct.Struct("=5I")
"""Bytes of the request, and how many arguments, variables, limits and hidden paths it holds."""
REPLY = struct.Struct("=iI")
"""Pid, or 0, and the number of an error, or how many bytes of a message follow."""
MAX_DESCRIPTORS = 3
MAX_ENTRIES = 4_000
"""Entries of the folders above hidden paths; a path whose folders have more stays readable, and text alone decides on it."""
MAX_LAYERS = 8
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
# What was scanned in the same tick of the clock as it changed is scanned again.
_CLOCK_TICK_NS = 20_000_000


def main(temp: str) -> None:
    """Serve two sockets until they are closed: commands from descriptor 0 may write only to the folder `temp`.

    Those from descriptor 1 may look into other processes, which Landlock would hide: a second process serves them without it.
    """
    reading, seeing = socket.socket(fileno=os.dup(0)), socket.socket(fileno=os.dup(1))
    null = os.open("/dev/null", os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    gc.disable()
    try:
        version = kernel.abi()
        if not version:
            raise OSError(errno.ENOSYS, "this kernel has no Landlock")
        kernel.gain_no_privileges()
        sibling = kernel.fork_sibling()
        if sibling == 0:
            reading.close()
            kernel.keep_capabilities((*kernel.READING_CAPABILITIES, kernel.SEEING_CAPABILITY))
            kernel.install_filter(kernel.reading_filter(os.uname().machine, truncation=True, signals=True))
            _serve(seeing, Layers(0))
            _remove(temp)  # our owner may have been killed
            os._exit(0)
        seeing.close()
        _confine(version, temp)
    except (OSError, KeyError) as problem:
        message = str(problem).encode()
        reading.sendall(REPLY.pack(0, len(message)) + message)
        return
    reading.sendall(REPLY.pack(version, 0) + REPLY.pack(sibling, 0))
    _serve(reading, Layers(version))


def _confine(version: int, temp: str) -> None:
    """Confine this process irrevocably. Raises OSError, or KeyError on an unknown machine."""
    writes, device = kernel.write_rights(version), kernel.device_right(version)
    ruleset = kernel.create_ruleset(version, writes | device, kernel.TCP if version >= 4 else 0, kernel.SCOPES)
    kernel.grant(ruleset, temp, writes)
    for path in _DEVICES:
        kernel.grant(ruleset, path, writes | device)
    kernel.keep_capabilities(kernel.READING_CAPABILITIES)
    kernel.restrict(ruleset)
    os.close(ruleset)
    kernel.install_filter(kernel.reading_filter(os.uname().machine, truncation=version < 3))


def _remove(folder: str) -> None:
    for parent, folders, files in os.walk(folder, topdown=False):
        for name in files:
            os.unlink(os.path.join(parent, name))
        for name in folders:
            path = os.path.join(parent, name)
            os.unlink(path) if os.path.islink(path) else os.rmdir(path)
    os.rmdir(folder)


def _serve(server: socket.socket, layers: Layers) -> None:
    while request := _receive(server):
        server.sendall(REPLY.pack(*_start(*request, layers)))


class Layer(NamedTuple):
    """A Landlock ruleset, and the state of the folders that it was made from."""

    ruleset: int | None
    folders: Sequence[str]
    state: Sequence[object]


class Layers:
    """The Landlock layers of commands: each scopes signals to its command, and hides what that must not read.

    One is used again as long as no folder above a hidden path has changed.
    """

    def __init__(self, version: int) -> None:
        self._version = version
        self._layers: dict[tuple[str, ...], Layer] = {}

    def ruleset(self, hidden: tuple[str, ...]) -> int | None:
        """The ruleset of a command; None where there is nothing that it could do."""
        if not self._version:
            return None
        layer = self._layers.pop(hidden, None)
        if layer is None or layer.state != _state(layer.folders):
            self._close(layer)
            layer = self._make(hidden)
        self._layers[hidden] = layer
        if len(self._layers) > MAX_LAYERS:
            self._close(self._layers.pop(next(iter(self._layers))))
        return layer.ruleset

    def _make(self, hidden: tuple[str, ...]) -> Layer:
        watched = kernel.folders_above(hidden) if hidden else []
        before = _state(watched)  # before anything is looked at
        paths = kernel.outermost(os.path.realpath(path) for path in hidden if os.path.lexists(path))
        entries: list[str] = []
        while paths:
            folders = kernel.folders_above(paths)
            moved = [folder for folder in folders if folder not in watched]
            watched, before = watched + moved, before + _state(moved)
            entries = list(kernel.readable_entries(paths, folders))
            if len(entries) <= MAX_ENTRIES:
                break
            largest = max(folders, key=_size)
            paths = [path for path in paths if not path.startswith(f"{largest.rstrip('/')}/")]
        reads = kernel.READ_FILE if paths else 0
        scopes = kernel.SCOPES if self._version >= 6 else 0
        if not reads and not scopes:
            return Layer(None, watched, before)
        ruleset = kernel.create_ruleset(self._version, reads, 0, scopes)
        for path in entries if reads else ():
            kernel.grant(ruleset, path, reads)
        return Layer(ruleset, watched, before)

    def _close(self, layer: Layer | None) -> None:
        if layer is not None and layer.ruleset is not None:
            os.close(layer.ruleset)


def _state(folders: Sequence[str]) -> list[object]:
    """What changes with the entries of folders; never equal for one that has just changed."""
    states: list[object] = []
    for folder in folders:
        try:
            status = os.stat(folder)
        except OSError:
            states.append(None)
            continue
        is_fresh = abs(time.time_ns() - status.st_mtime_ns) < _CLOCK_TICK_NS
        states.append(object() if is_fresh else (status.st_dev, status.st_ino, status.st_mtime_ns))
    return states


def _size(folder: str) -> int:
    try:
        return len(os.listdir(folder))
    except OSError:
        return 0


def _receive(server: socket.socket) -> tuple[list[list[bytes]], list[int]] | None:
    """A request: its folder, arguments, variables, limits and hidden paths, and its descriptors. None at the end."""
    descriptors = array.array("i")
    space = socket.CMSG_SPACE(MAX_DESCRIPTORS * descriptors.itemsize)
    head, ancillary, _, _ = server.recvmsg(HEADER.size, space, socket.MSG_CMSG_CLOEXEC | socket.MSG_WAITALL)
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors.frombytes(data[: len(data) - len(data) % descriptors.itemsize])
    if len(head) < HEADER.size:
        return None
    length, *counts = HEADER.unpack(head)
    body = bytearray()
    while len(body) < length:
        piece = server.recv(length - len(body))
        if not piece:
            return None
        body += piece
    fields = bytes(body).split(b"\0")
    groups: list[list[bytes]] = [fields[:2]]
    start = 2
    for count in counts:
        groups.append(fields[start : start + count])
        start += count
    return groups, list(descriptors)


def _start(groups: list[list[bytes]], descriptors: list[int], layers: Layers) -> tuple[int, int]:
    """Start a command: its pid and 0, or 0 and the error."""
    reading, writing = os.pipe()
    try:
        (folder, program), arguments, variables, limits, hidden = groups
        environment = dict(variable.partition(b"=")[::2] for variable in variables)
        bounds = [_limit(*map(int, limit.split(b"="))) for limit in limits]
        ruleset = layers.ruleset(tuple(map(os.fsdecode, hidden)))
        pid = kernel.fork_sibling()
        if pid == 0:
            # Little is done in the child, because memory that it touches is copied.
            try:
                os.setsid()
                os.dup2(descriptors[0], 1)
                os.dup2(descriptors[-1], 2)
                os.chdir(folder)
                for kind, bound in bounds:
                    resource.setrlimit(kind, bound)
                if ruleset is not None:
                    kernel.restrict(ruleset)
                os.execve(program, arguments, environment)
            except BaseException as problem:
                os.write(writing, b"%d" % (getattr(problem, "errno", None) or errno.EINVAL))
            finally:
                os._exit(127)
        os.close(writing)
        writing = -1
        # Ends with the exec of the command, or brings the reason why there was none.
        error = os.read(reading, 16)
        return pid, int(error or 0)
    except OSError as problem:
        return 0, problem.errno or errno.EINVAL
    finally:
        for descriptor in (reading, writing, *descriptors):
            if descriptor >= 0:
                os.close(descriptor)


def _limit(kind: int, soft: int, is_final: int) -> tuple[int, tuple[int, int]]:
    """A limit within the one that is there already; a final one cannot be raised again."""
    hard = resource.getrlimit(kind)[1]
    soft = soft if hard == resource.RLIM_INFINITY else min(soft, hard)
    return kind, (soft, soft if is_final else hard)
