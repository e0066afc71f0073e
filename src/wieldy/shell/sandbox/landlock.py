"""Landlock by three system calls: a process gives up, for itself and its children, what is not within its bounds."""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections.abc import Iterable, Iterator

from wieldy.shell.sandbox.policy import Bounds

_CREATE, _ADD, _RESTRICT = 444, 445, 446
_NO_NEW_PRIVILEGES = 38
_PATH, _PORT = 1, 2

READ_FILE = 1 << 2
WRITE_FILE = 1 << 1
FILE_RIGHTS = READ_FILE | WRITE_FILE | 1 << 14 | 1 << 0
"""The rights that make sense for a single file: execute, write, read, truncate."""
WRITES = WRITE_FILE | sum(1 << bit for bit in range(4, 13))
REFER, TRUNCATE = 1 << 13, 1 << 14
TCP, CONNECT_TCP = 0b11, 0b10
SCOPES = 0b11
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/shm", "/dev/ptmx", "/dev/pts")

START = "import sys; sys.path.insert(0, sys.argv[1]); from wieldy.shell.sandbox.landlock import become; become(*sys.argv[2:])"


def abi() -> int:
    """The version of Landlock this kernel speaks; 0 where there is none."""
    if not sys.platform.startswith("linux"):
        return 0
    version = _libc().syscall(_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(1))
    return max(int(version), 0)


def restrict(bounds: Bounds) -> None:
    """Confine this process for good. Raises OSError where the kernel refuses."""
    version = abi()
    if not version:
        raise OSError(38, "this kernel has no Landlock")
    writes = WRITES | (REFER if version >= 2 else 0) | (TRUNCATE if version >= 3 else 0)
    reads = READ_FILE if bounds.unreadable else 0
    network = TCP if version >= 4 and not bounds.network else 0
    ruleset = _create(version, writes | reads, network)
    for path in (*bounds.writable, *DEVICES):
        _allow(ruleset, path, writes | reads)
    for path in readable_paths(bounds.unreadable) if reads else ():
        _allow(ruleset, path, reads)
    if network and bounds.proxy_port is not None:
        port = struct.pack("=QQ", CONNECT_TCP, bounds.proxy_port)
        _check(_libc().syscall(_ADD, ruleset, ctypes.c_int(_PORT), port, ctypes.c_uint32(0)))
    libc = _libc()
    _check(libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0))
    _check(libc.syscall(_RESTRICT, ruleset, ctypes.c_uint32(0)))
    os.close(ruleset)


def readable_paths(unreadable: Iterable[str]) -> Iterator[str]:
    """Landlock can only allow: every path beside the way to a forbidden one, and nothing that leads to it."""
    forbidden = {os.path.realpath(path) for path in unreadable if os.path.lexists(path)}
    on_the_way = {parent for path in forbidden for parent in _parents(path)} or {"/"}
    for folder in sorted(on_the_way):
        try:
            entries = list(os.scandir(folder))
        except OSError:
            continue
        for entry in entries:
            real = os.path.realpath(entry.path) if entry.is_symlink() else entry.path
            if real not in on_the_way and not any(real == bad or real.startswith(bad + "/") for bad in forbidden):
                yield entry.path


def become(bounds: str, program: str, *arguments: str) -> None:
    """The life of the launcher: confine itself, then become the program. Exit 125 means that it could not."""
    try:
        restrict(Bounds.from_json(bounds))
    except OSError as problem:
        print(f"wieldy: the sandbox could not be set up: {problem.strerror}", file=sys.stderr)
        sys.exit(125)
    os.execv(program, [program, *arguments])


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _check(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def _create(version: int, files: int, network: int) -> int:
    fields = [files, network, SCOPES] if version >= 6 else [files, network] if version >= 4 else [files]
    attributes = struct.pack(f"={len(fields)}Q", *fields)
    return _check(_libc().syscall(_CREATE, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint32(0)))


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not os.path.isdir(path):
            rights &= FILE_RIGHTS
        rule = struct.pack("=Qi", rights, descriptor)
        _check(_libc().syscall(_ADD, ruleset, ctypes.c_int(_PATH), rule, ctypes.c_uint32(0)))
    finally:
        os.close(descriptor)


def _parents(path: str) -> Iterator[str]:
    while path != "/":
        path = os.path.dirname(path)
        yield path
