"""Shuts this process and all it starts off from every network but loopback, so that no peer can call home."""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
from pathlib import Path

NEW_USER, NEW_NET = 0x10000000, 0x40000000
GET_FLAGS, SET_FLAGS, UP = 0x8913, 0x8914, 0x1


def only_loopback() -> None:
    """Enter a network of our own. Must come before any thread. Raises `OSError` where the kernel does not allow it."""
    user, group, root = os.getuid(), os.getgid(), os.geteuid() == 0
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(NEW_NET if root else NEW_NET | NEW_USER):
        code = ctypes.get_errno()
        raise OSError(code, f"no network of our own: {os.strerror(code)}")
    if not root:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
        flags = struct.unpack_from("H", fcntl.ioctl(handle, GET_FLAGS, _request(0)), 16)[0]
        fcntl.ioctl(handle, SET_FLAGS, _request(flags | UP))


def _request(flags: int) -> bytes:
    return struct.pack("16sH22x", b"lo", flags)
