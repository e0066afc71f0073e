"""Inside a sandbox with a loopback of its own: a port on it leads to the proxy outside. Then the program takes over."""

from __future__ import annotations

import contextlib
import os
import socket
import threading

START = (
    "import sys; sys.path.insert(0, sys.argv[1]); from wieldy.shell.sandbox.bridge import become; become(*sys.argv[2:])"
)


def become(door: str, port: str, program: str, *arguments: str) -> None:
    """Leave a process behind that carries connections to the door, and become the program."""
    server = socket.create_server(("127.0.0.1", int(port)))
    if os.fork() == 0:
        # A second fork: the program must not find a child it has not started.
        if os.fork() == 0:
            _carry(server, door)
        os._exit(0)
    os.wait()
    server.close()
    os.execv(program, [program, *arguments])


def _carry(server: socket.socket, door: str) -> None:
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    while True:
        near, _ = server.accept()
        far = socket.socket(socket.AF_UNIX)
        try:
            far.connect(door)
        except OSError:
            near.close()
            far.close()
            continue
        for one, other in ((near, far), (far, near)):
            threading.Thread(target=_pass_on, args=(one, other), daemon=True).start()


def _pass_on(one: socket.socket, other: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := one.recv(65536):
            other.sendall(data)
    with contextlib.suppress(OSError):
        other.shutdown(socket.SHUT_WR)
