"""What the Linux kernel offers to confine a process: Landlock, seccomp and capabilities, by their system calls.

The processes that use it run without site-packages and must start fast, so it imports little.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_PATH_RULE, _PORT_RULE = 1, 2
_SET_SECCOMP, _SET_NO_NEW_PRIVS, _DROP_BOUNDING, _AMBIENT, _CLEAR_ALL = 22, 38, 24, 47, 4

WRITE_FILE, READ_FILE = 1 << 1, 1 << 2
FILE_RIGHTS = READ_FILE | WRITE_FILE | 1 << 15 | 1 << 14 | 1 << 0
"""The rights that make sense for a single file: execute, write, read, truncate, ioctl of a device."""
_WRITES = WRITE_FILE | sum(1 << bit for bit in range(4, 13))
_REFER, _TRUNCATE, _IOCTL = 1 << 13, 1 << 14, 1 << 15
TCP, CONNECT_TCP = 0b11, 0b10
SCOPES = 0b11


def abi() -> int:
    """The Landlock ABI version of this kernel; 0 without Landlock."""
    if not sys.platform.startswith("linux"):
        return 0
    version = _libc().syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(1))
    return max(int(version), 0)


def write_rights(version: int) -> int:
    """The rights to change files that this ABI version knows."""
    return _WRITES | (_REFER if version >= 2 else 0) | (_TRUNCATE if version >= 3 else 0)


def device_right(version: int) -> int:
    """The right to call ioctl on a device, where this ABI version knows it."""
    return _IOCTL if version >= 5 else 0


def create_ruleset(version: int, files: int = 0, network: int = 0, scopes: int = 0) -> int:
    """A descriptor of a Landlock ruleset that handles these rights, of which it grants none yet. Raises OSError."""
    fields = [files, network, scopes] if version >= 6 else [files, network] if version >= 4 else [files]
    attributes = struct.pack(f"={len(fields)}Q", *fields)
    return _check(_libc().syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint32(0)))


def grant(ruleset: int, path: str, rights: int) -> None:
    """Grant rights to a path and all that is below it; a path that is not there is left out."""
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


def grant_port(ruleset: int, port: int) -> None:
    """Grant connections to this TCP port."""
    rule = struct.pack("=QQ", CONNECT_TCP, port)
    _check(_libc().syscall(_ADD_RULE, ruleset, ctypes.c_int(_PORT_RULE), rule, ctypes.c_uint32(0)))


def gain_no_privileges() -> None:
    """Keep this process and its children from gaining rights by set-user-ID programs."""
    _check(_libc().prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0))


def restrict(ruleset: int) -> None:
    """Confine this process irrevocably by a ruleset."""
    _check(_libc().syscall(_RESTRICT_SELF, ruleset, ctypes.c_uint32(0)))


def readable_entries(unreadable: Iterable[str], folders: Sequence[str]) -> Iterator[str]:
    """Everything but the unreadable real paths, which lie below the folders: their other entries.

    Symlinks are left out: access is decided by where they lead.
    """
    left_out = {*unreadable, *folders}
    for folder in folders:
        try:
            entries = list(os.scandir(folder))
        except OSError:
            continue
        for entry in entries:
            if entry.path not in left_out and not entry.is_symlink():
                yield entry.path


def outermost(paths: Iterable[str]) -> list[str]:
    """Absolute paths without those that are below another one."""
    kept: list[str] = []
    for path in sorted(paths, key=lambda path: path.split("/")):
        if not kept or not f"{path}/".startswith(f"{kept[-1].rstrip('/')}/"):
            kept.append(path)
    return kept


def folders_above(paths: Iterable[str]) -> list[str]:
    """All folders above some absolute paths, from the root on; the root at least."""
    folders = {"/"}
    for path in paths:
        while (path := os.path.dirname(path)) not in folders:
            folders.add(path)
    return sorted(folders)


READING_CAPABILITIES = (1, 2, 34)
"""Those that only let root read what it could read before: files, folders and the kernel's log."""
SEEING_CAPABILITY = 19
"""Lets root look into other processes, and trace them where nothing else forbids it."""


def keep_capabilities(kept: Sequence[int]) -> None:
    """Take all other capabilities from the programs that this process will start; users but root have none."""
    libc = _libc()
    for capability in range(64):
        if capability not in kept:
            libc.prctl(_DROP_BOUNDING, capability, 0, 0, 0)
    libc.prctl(_AMBIENT, _CLEAR_ALL, 0, 0, 0)


# Refused system calls with their numbers on x86_64 and aarch64. They change files through their metadata, act on other
# processes, on the kernel or on the system as a whole, reach what Landlock does not see, or are ways around a filter.
_REFUSED: Sequence[tuple[str, int | None, int | None]] = (
    ("chmod", 90, None), ("fchmod", 91, 52), ("fchmodat", 268, 53), ("fchmodat2", 452, 452), ("chown", 92, None),
    ("lchown", 94, None), ("fchown", 93, 55), ("fchownat", 260, 54), ("utime", 132, None), ("utimes", 235, None),
    ("futimesat", 261, None), ("utimensat", 280, 88), ("truncate", 76, 45), ("setxattr", 188, 5), ("lsetxattr", 189, 6),
    ("fsetxattr", 190, 7), ("removexattr", 197, 14), ("lremovexattr", 198, 15), ("fremovexattr", 199, 16),
    ("setxattrat", 463, 463), ("removexattrat", 466, 466),
    ("ptrace", 101, 117), ("process_vm_readv", 310, 270), ("process_vm_writev", 311, 271), ("process_madvise", 440, 440),
    ("pidfd_getfd", 438, 438), ("kcmp", 312, 272), ("io_uring_setup", 425, 425), ("io_uring_enter", 426, 426),
    ("io_uring_register", 427, 427), ("bpf", 321, 280), ("perf_event_open", 298, 241), ("userfaultfd", 323, 282),
    ("keyctl", 250, 219), ("add_key", 248, 217), ("request_key", 249, 218), ("open_by_handle_at", 304, 265),
    ("mount", 165, 40), ("umount2", 166, 39), ("pivot_root", 155, 41), ("chroot", 161, 51), ("move_mount", 429, 429),
    ("open_tree", 428, 428), ("open_tree_attr", 467, 467), ("fsopen", 430, 430), ("fsconfig", 431, 431),
    ("fsmount", 432, 432), ("fspick", 433, 433), ("mount_setattr", 442, 442), ("unshare", 272, 97), ("setns", 308, 268),
    ("swapon", 167, 224), ("swapoff", 168, 225), ("reboot", 169, 142), ("kexec_load", 246, 104),
    ("kexec_file_load", 320, 294), ("init_module", 175, 105), ("finit_module", 313, 273), ("delete_module", 176, 106),
    ("acct", 163, 89), ("quotactl", 179, 60), ("quotactl_fd", 443, 443), ("settimeofday", 164, 170),
    ("clock_settime", 227, 112), ("sethostname", 170, 161), ("setdomainname", 171, 162), ("iopl", 172, None),
    ("ioperm", 173, None), ("modify_ldt", 154, None), ("msgget", 68, 186), ("msgsnd", 69, 189), ("semget", 64, 190),
    ("semop", 65, 193), ("semtimedop", 220, 192), ("shmget", 29, 194), ("shmat", 30, 196), ("msgrcv", 70, 188),
    ("mq_open", 240, 180), ("mq_unlink", 241, 181), ("fanotify_init", 300, 262), ("vhangup", 153, 58),
)  # fmt: skip
_SIGNALS: Sequence[tuple[str, int | None, int | None]] = (
    ("kill", 62, 129), ("tkill", 200, 130), ("tgkill", 234, 131), ("rt_sigqueueinfo", 129, 138),
    ("rt_tgsigqueueinfo", 297, 240), ("pidfd_send_signal", 424, 424),
)  # fmt: skip
# A later system call is answered as by an older kernel. This also refuses the x32 calls, whose numbers begin at 1 << 30.
_LAST_KNOWN = 468
# FS_IOC_SETFLAGS, _32, FSSETXATTR, SETVERSION and ENABLE_VERITY work on files opened for reading; TIOCSTI and TIOCLINUX type.
_REFUSED_IOCTLS = (0x40086602, 0x40046602, 0x401C5820, 0x40087602, 0x40806685, 0x5412, 0x541C)
# System calls that may only show shared objects, read the log of the kernel, or act on the process that makes them: their
# numbers, an argument, and what of it must have one of these values.
_PERMITTED: Sequence[tuple[tuple[int, int], int, int, tuple[int, ...]]] = (
    ((31, 195), 1, 0xFF, (2, 3, 13, 14, 15)),  # shmctl
    ((71, 187), 1, 0xFF, (2, 3, 11, 12, 13)),  # msgctl
    ((66, 191), 2, 0xFF, (2, 3, 11, 12, 13, 14, 15, 18, 19, 20)),  # semctl
    ((103, 116), 0, 0, (0, 1, 3, 9, 10)),  # syslog
    *(
        ((302, 261), 0, 0, (0,)),
        ((141, 140), 1, 0, (0,)),
        ((251, 30), 1, 0, (0,)),
    ),  # prlimit64, setpriority, ioprio_set
    *(((203, 122), 0, 0, (0,)), ((144, 119), 0, 0, (0,))),  # sched_setaffinity, sched_setscheduler
    *(((142, 118), 0, 0, (0,)), ((314, 274), 0, 0, (0,))),  # sched_setparam, sched_setattr
)
_NEW_NAMESPACES = 0x7E020000
_AF_NETLINK = 16
_NETLINK_ANSWERS = (0, 4)  # NETLINK_ROUTE and NETLINK_SOCK_DIAG: without capabilities they only tell
_TYPE_MASK, _CONNECTED_TYPES = 0xF, (1, 5)  # a pair of datagram sockets could be connected to another one
_O_ACCESS_AND_TRUNCATE, _O_TRUNCATE = 0o1003, 0o1000
_ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
_SPECIAL: Mapping[str, tuple[int | None, int | None]] = {  # numbers on x86_64 and aarch64
    "socket": (41, 198), "socketpair": (53, 199), "clone": (56, 220), "clone3": (435, 435), "ioctl": (16, 29),
    "open": (2, None), "openat": (257, 56), "openat2": (437, 437), "seccomp": (317, 277),
}  # fmt: skip
_LOAD, _JUMP_EQUAL, _JUMP_GREATER, _AND, _RETURN = 0x20, 0x15, 0x25, 0x54, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_EPERM, _ENOSYS = 1, 38
_Instruction = tuple[int, int, int, int]


def reading_filter(machine: str, *, truncation: bool = False, signals: bool = False) -> bytes:
    """The seccomp program for commands that only read: no sockets, no namespaces, no change of anything but file contents.

    It refuses signals, and to truncate files that are opened for reading, where Landlock does not decide on them.
    """
    architecture, column = _ARCHITECTURES[machine]
    refuse, allow, unknown = (_give(_ERRNO | _EPERM), _give(_ALLOW), _give(_ERRNO | _ENOSYS))

    def block(call: str | int, *body: _Instruction) -> list[_Instruction]:
        number = call if isinstance(call, int) else _SPECIAL[call][column]
        return [(_JUMP_EQUAL, 0, len(body), number), *body] if number is not None else []

    def answer(
        argument: int, values: Sequence[int], yes: _Instruction, no: _Instruction, mask: int = 0
    ) -> list[_Instruction]:
        masked = [(_AND, 0, 0, mask)] if mask else []
        tests = [(_JUMP_EQUAL, len(values) - index, 0, value) for index, value in enumerate(values)]
        return [(_LOAD, 0, 0, 16 + 8 * argument), *masked, *tests, no, yes]

    netlink = answer(2, _NETLINK_ANSWERS, allow, refuse)
    truncating = [] if not truncation else [
        *block("open", *answer(1, (_O_TRUNCATE,), refuse, allow, _O_ACCESS_AND_TRUNCATE)),
        *block("openat", *answer(2, (_O_TRUNCATE,), refuse, allow, _O_ACCESS_AND_TRUNCATE)),
        *block("openat2", unknown),
    ]  # fmt: skip
    numbers = (entry[1:][column] for entry in (*_REFUSED, *(_SIGNALS if signals else ())))
    refused = [number for number in numbers if number is not None]
    program: list[_Instruction] = [
        (_LOAD, 0, 0, 4),
        (_JUMP_EQUAL, 1, 0, architecture),
        refuse,
        (_LOAD, 0, 0, 0),
        (_JUMP_GREATER, 0, 1, _LAST_KNOWN),
        unknown,
        *block(
            "socket",
            (_LOAD, 0, 0, 16),
            (_JUMP_EQUAL, 1, 0, _AF_NETLINK),
            refuse,
            *netlink,
        ),
        *block("socketpair", *answer(1, _CONNECTED_TYPES, allow, refuse, _TYPE_MASK)),
        *block("clone", *answer(0, (0,), allow, refuse, _NEW_NAMESPACES)),
        *block("clone3", unknown),  # its flags are out of reach; the C library falls back on clone
        *block("ioctl", *answer(1, _REFUSED_IOCTLS, refuse, allow)),
        *(
            line
            for call, argument, mask, values in _PERMITTED
            for line in block(call[column], *answer(argument, values, allow, refuse, mask))
        ),
        *truncating,
        *((_JUMP_EQUAL, len(refused) - index, 0, number) for index, number in enumerate(refused)),
        allow,
        refuse,
    ]
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)


def install_filter(program: bytes) -> None:
    """Put a seccomp program in force, irrevocably. Raises OSError."""
    number = _number("seccomp")
    code = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("@HP", len(program) // 8, ctypes.addressof(code))
    # SECCOMP_SET_MODE_FILTER; older kernels would also make it slower without the flag SPEC_ALLOW.
    _check(_libc().syscall(ctypes.c_long(number), ctypes.c_uint(1), ctypes.c_uint(4), header))


def can_filter() -> bool:
    """Whether the filter knows the numbers of this machine's system calls."""
    return sys.platform.startswith("linux") and os.uname().machine in _ARCHITECTURES and sys.maxsize > 1 << 32


def fork_sibling() -> int:
    """Fork a child whose parent is ours, who then can wait for it as for any child. In the child it returns 0."""
    # The C library has no function for it. PyDLL keeps Python's lock, so that the child owns it.
    number = _number("clone")
    parent_and_sigchld = 0x8000 | 17
    zero = ctypes.c_ulong(0)
    return _check(
        _libc_with_lock().syscall(ctypes.c_long(number), ctypes.c_ulong(parent_and_sigchld), zero, zero, zero, zero)
    )


def _number(name: str) -> int:
    number = _SPECIAL[name][_ARCHITECTURES[os.uname().machine][1]]
    assert number is not None
    return number


def _give(value: int) -> _Instruction:
    return (_RETURN, 0, 0, value)


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


@cache
def _libc_with_lock() -> ctypes.PyDLL:
    return ctypes.PyDLL(None, use_errno=True)


def _check(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
