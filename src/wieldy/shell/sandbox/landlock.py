"""Confines a process and its children with Landlock, by its three system calls."""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections.abc import Iterable, Iterator

from wieldy.console import print_error
from wieldy.shell.sandbox.policy import SandboxPolicy

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_PR_SET_NO_NEW_PRIVS = 38
_PATH_RULE, _PORT_RULE = 1, 2

READ_FILE = 1 << 2
WRITE_FILE = 1 << 1
FILE_RIGHTS = READ_FILE | WRITE_FILE | 1 << 14 | 1 << 0
"""The rights that make sense for a single file: execute, write, read, truncate."""
WRITES = WRITE_FILE | sum(1 << bit for bit in range(4, 13))
REFER, TRUNCATE = 1 << 13, 1 << 14
TCP, CONNECT_TCP = 0b11, 0b10
SCOPES = 0b11
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/shm", "/dev/ptmx", "/dev/pts")

START_CODE = "from wieldy.shell.sandbox.landlock import main; main(*sys.argv[1:])"


def abi() -> int:
    """The Landlock ABI version of this kernel; 0 without Landlock."""
    if not sys.platform.startswith("linux"):
        return 0
    version = _libc().syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(1))
    return max(int(version), 0)


def restrict(policy: SandboxPolicy) -> None:
    """Confine this process irrevocably. Raises OSError if the kernel refuses."""
    version = abi()
    if not version:
        raise OSError(38, "this kernel has no Landlock")
    writes = WRITES | (REFER if version >= 2 else 0) | (TRUNCATE if version >= 3 else 0)
    reads = READ_FILE if policy.unreadable else 0
    network = TCP if version >= 4 and not policy.network else 0
    ruleset = _create(version, writes | reads, network)
    for path in (*policy.writable, *policy.temporary, *DEVICES):
        _allow(ruleset, path, writes | reads)
    for path in readable_paths(policy.unreadable) if reads else ():
        _allow(ruleset, path, reads)
    if network and policy.proxy_port is not None:
        port = struct.pack("=QQ", CONNECT_TCP, policy.proxy_port)
        _check(_libc().syscall(_ADD_RULE, ruleset, ctypes.c_int(_PORT_RULE), port, ctypes.c_uint32(0)))
    libc = _libc()
    _check(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    _check(libc.syscall(_RESTRICT_SELF, ruleset, ctypes.c_uint32(0)))
    os.close(ruleset)


def readable_paths(unreadable: Iterable[str]) -> Iterator[str]:
    """Everything but the unreadable paths. Landlock can only allow, so this lists the siblings along the way to each."""
    forbidden = {os.path.realpath(path) for path in unreadable if os.path.lexists(path)}
    ancestors = {parent for path in forbidden for parent in _parents(path)} or {"/"}
    for folder in sorted(ancestors):
        try:
            entries = list(os.scandir(folder))
        except OSError:
            continue
        for entry in entries:
            real = os.path.realpath(entry.path) if entry.is_symlink() else entry.path
            if real not in ancestors and not any(real == bad or real.startswith(bad + "/") for bad in forbidden):
                yield entry.path


def main(policy: str, program: str, *arguments: str) -> None:
    """Confine this process, then exec the program. Exit code 125 means that it could not."""
    try:
        restrict(SandboxPolicy.from_json(policy))
    except OSError as problem:
        print_error(f"the sandbox could not be set up: {problem.strerror}")
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
    return _check(_libc().syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint32(0)))


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not os.path.isdir(path):
            rights &= FILE_RIGHTS
        rule = struct.pack("=Qi", rights, descriptor)
        _check(_libc().syscall(_ADD_RULE, ruleset, ctypes.c_int(_PATH_RULE), rule, ctypes.c_uint32(0)))
    finally:
        os.close(descriptor)


def _parents(path: str) -> Iterator[str]:
    while path != "/":
        path = os.path.dirname(path)
        yield path
