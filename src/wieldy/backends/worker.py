"""The worker of an overlay: does the operations of a backend inside a namespace. `python -m wieldy.backends.worker FD`.

It ends when the other side of its socket does, and takes its processes with it.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from itertools import count
from typing import Any

import msgspec

from wieldy.backends.channel import Failure, FrameSocket
from wieldy.backends.local import LocalBackend, LocalProcess
from wieldy.core.threads import run_in_background

QUICK = frozenset({"stat", "realpath", "list_folder"})


class NamespaceWorker:
    """Answers requests; those that may take long, as waiting for a process does, in a thread of their own."""

    def __init__(self, connection: socket.socket) -> None:
        self._frames = FrameSocket(connection)
        self._backend = LocalBackend()
        self._processes: dict[int, LocalProcess] = {}
        self._numbers = count(1)

    def run(self) -> None:
        while (frame := self._frames.receive()) is not None:
            number, method, arguments = msgspec.msgpack.decode(frame[0])
            if method in QUICK:
                self._answer(number, method, arguments)
            elif method == "wait":  # for as long as the process runs
                threading.Thread(target=self._answer, args=(number, method, arguments), daemon=True).start()
            else:
                run_in_background(self._answer, number, method, arguments)
        self._backend.close()

    def _answer(self, number: int, method: str, arguments: list[Any]) -> None:
        descriptors: tuple[int, ...] = ()
        try:
            result = getattr(self, f"do_{method}")(*arguments)
            if method == "spawn":
                result, descriptors = result
            answer: tuple[int, Any, Failure | None] = (number, result, None)
        except Exception as error:
            answer = (number, None, Failure.of(error))
        try:
            self._frames.send(msgspec.msgpack.encode(answer), descriptors)
        except OSError:
            return  # nobody listens any more
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def do_stat(self, path: bytes, follow: bool) -> Any:
        return self._backend.stat(os.fsdecode(path), follow=follow)

    def do_realpath(self, path: bytes) -> bytes:
        return os.fsencode(self._backend.realpath(os.fsdecode(path)))

    def do_list_folder(self, path: bytes) -> list[tuple[bytes, str, bytes]]:
        entries = self._backend.list_folder(os.fsdecode(path))
        return [(os.fsencode(entry.name), entry.kind, os.fsencode(entry.target)) for entry in entries]

    def do_read(self, path: bytes, offset: int, size: int | None) -> bytes:
        return self._backend.read(os.fsdecode(path), offset, size)

    def do_write(self, path: bytes, content: bytes, expected: str | None, mode: int | None) -> Any:
        return self._backend.write(os.fsdecode(path), content, expected=expected, mode=mode)

    def do_delete(self, path: bytes, expected: str | None) -> None:
        self._backend.delete(os.fsdecode(path), expected=expected)

    def do_make_folder(self, path: bytes) -> None:
        self._backend.make_folder(os.fsdecode(path))

    def do_spawn(
        self, argv: list[bytes], cwd: bytes, env: list[tuple[bytes, bytes]], separate_stderr: bool
    ) -> tuple[tuple[int, int], tuple[int, ...]]:
        variables = {os.fsdecode(name): os.fsdecode(value) for name, value in env}
        process = self._backend.spawn(argv, cwd=os.fsdecode(cwd), env=variables, separate_stderr=separate_stderr)
        key = next(self._numbers)
        self._processes[key] = process
        pipes = (process.stdout,) if process.stderr is None else (process.stdout, process.stderr)
        return (key, process.pid), pipes

    def do_wait(self, key: int) -> int:
        return self._processes[key].wait()

    def do_end(self, key: int) -> None:
        self._processes[key].end()


def main(arguments: list[str]) -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to the whole group
    os.chdir("/")
    connection = socket.socket(fileno=int(arguments[0]))
    connection.sendall(b"+")  # ready: the mount is made
    NamespaceWorker(connection).run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
