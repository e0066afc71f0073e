"""Runs inside a sandbox with its own loopback: forwards a port to the proxy outside, then becomes the program."""

from __future__ import annotations

import contextlib
import os
import socket
import threading

START_CODE = "from wieldy.shell.sandbox.bridge import main; main(*sys.argv[1:])"


def main(proxy_socket: str, port: str, program: str, *arguments: str) -> None:
    """Leave a process that forwards connections to the proxy, and exec the program."""
    server = socket.create_server(("127.0.0.1", int(port)))
    if os.fork() == 0:
        # Fork twice, so that the program has no child that it did not start.
        if os.fork() == 0:
            _forward(server, proxy_socket)
        os._exit(0)
    os.wait()
    server.close()
    os.execv(program, [program, *arguments])


def _forward(server: socket.socket, proxy_socket: str) -> None:
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    while True:
        client, _ = server.accept()
        upstream = socket.socket(socket.AF_UNIX)
        try:
            upstream.connect(proxy_socket)
        except OSError:
            client.close()
            upstream.close()
            continue
        for source, target in ((client, upstream), (upstream, client)):
            threading.Thread(target=_copy, args=(source, target), daemon=True).start()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)
