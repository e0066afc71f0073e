"""The worker of an overlay: does the operations of a backend inside a namespace.

It ends when the other side of its socket does, and takes its processes with it.
"""

from __future__ import annotations

import errno
import os
import signal
import socket
from typing import Any, TypeAlias

import msgspec

from wieldy.core.threads import run_in_background, run_waiting
from wieldy.shell.backends.channel import Failure, FrameSocket
from wieldy.shell.backends.local import LocalBackend, LocalProcess
from wieldy.shell.running.reaper import ProcessTree, end_tree

Answer: TypeAlias = tuple[int, Any, Failure | None]

QUICK = frozenset({"stat", "realpath", "list_folder"})


class NamespaceWorker:
    """Answers requests; those that may take long, as waiting for a process does, in a thread of their own."""

    def __init__(self, connection: socket.socket) -> None:
        self._frames = FrameSocket(connection)
        self._backend = LocalBackend()
        self._processes: dict[str, LocalProcess] = {}  # those not yet waited for, by their tags

    def run(self) -> None:
        while (frame := self._frames.receive()) is not None:
            number, method, arguments = msgspec.msgpack.decode(frame[0])
            if method in QUICK:
                self._answer(number, method, arguments)
                continue
            run = run_waiting if method == "wait" else run_in_background
            try:
                run(self._answer, number, method, arguments)
            except RuntimeError as error:
                self._send((number, None, Failure.of(OSError(errno.EAGAIN, str(error)))))
        self._backend.close()

    def _answer(self, number: int, method: str, arguments: list[Any]) -> None:
        descriptors: tuple[int, ...] = ()
        try:
            result = getattr(self, f"do_{method}")(*arguments)
            if method == "spawn":
                result, descriptors = result
            answer: Answer = (number, result, None)
        except Exception as error:
            answer = (number, None, Failure.of(error))
        self._send(answer, descriptors)

    def _send(self, answer: Answer, descriptors: tuple[int, ...] = ()) -> None:
        try:
            self._frames.send(msgspec.msgpack.encode(answer), descriptors)
        except OSError:
            return  # the other side has closed
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
    ) -> tuple[tuple[str, int], tuple[int, ...]]:
        variables = {os.fsdecode(name): os.fsdecode(value) for name, value in env}
        process = self._backend.spawn(argv, cwd=os.fsdecode(cwd), env=variables, separate_stderr=separate_stderr)
        self._processes[process.tag] = process
        pipes = (process.stdout,) if process.stderr is None else (process.stdout, process.stderr)
        return (process.tag, process.pid), pipes

    def do_wait(self, tag: str) -> int:
        code = self._processes[tag].wait()
        del self._processes[tag]
        return code

    def do_end(self, tag: str) -> None:
        process = self._processes.get(tag)
        if process is None:  # it has ended, what it started perhaps not
            end_tree(ProcessTree(tag))
        else:
            process.end()


def main(arguments: list[str]) -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to the whole group
    os.chdir("/")
    connection = socket.socket(fileno=int(arguments[0]))
    connection.sendall(b"+")  # ready: the mount is made
    NamespaceWorker(connection).run()
    return 0
