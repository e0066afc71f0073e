"""Calls of a backend's methods over a socket: requests and answers as MessagePack, descriptors of pipes beside them.

Each frame is its length, the number of descriptors that travel with it, and the message. Several requests may be under way.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
import threading
from collections import deque
from concurrent.futures import Future
from itertools import count
from typing import Any

import msgspec

from wieldy.core.errors import StaleFileError
from wieldy.core.logs import log

HEADER = struct.Struct(">QB")
RECEIVE_BYTES = 1 << 16
MAX_DESCRIPTORS = 8


class FrameSocket:
    """Sends and receives frames. Sending is safe for several threads; one thread receives."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._sending = threading.Lock()
        self._buffer = bytearray()
        self._descriptors: deque[tuple[int, ...]] = deque()  # of the frames that have any, in their order

    def send(self, message: bytes, descriptors: tuple[int, ...] = ()) -> None:
        header = HEADER.pack(len(message), len(descriptors))
        with self._sending:
            if descriptors:
                socket.send_fds(self._socket, [header], list(descriptors))
            else:
                self._socket.sendall(header)
            self._socket.sendall(message)

    def receive(self) -> tuple[bytes, tuple[int, ...] | None] | None:
        """The next frame and its descriptors, None where this process can open no more files; None at the end."""
        header = self._take(HEADER.size)
        if header is None:
            return None
        size, expected = HEADER.unpack(header)
        message = self._take(size)
        if message is None:
            return None
        descriptors = self._descriptors.popleft() if expected else ()
        if len(descriptors) == expected:
            return message, descriptors
        _close_all(descriptors)
        return message, None

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    # A header is sent at once, and what is received ends with the first bytes that have descriptors: these belong to one frame.
    def _take(self, size: int) -> bytes | None:
        while len(self._buffer) < size:
            try:
                data, descriptors, flags, _ = socket.recv_fds(self._socket, RECEIVE_BYTES, MAX_DESCRIPTORS)
            except OSError:
                return None
            for descriptor in descriptors:
                os.set_inheritable(descriptor, False)
            if descriptors or flags & socket.MSG_CTRUNC:  # the latter where the limit of open files is reached
                self._descriptors.append(tuple(descriptors))
            if not data:
                return None
            self._buffer += data
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken


def _close_all(descriptors: tuple[int, ...]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


class Failure(msgspec.Struct, frozen=True):
    """An exception of a method: an `OSError` by its number, or a `StaleFileError`, whose `text` is its reason."""

    kind: str
    text: str
    number: int = 0
    path: str = ""

    @staticmethod
    def of(error: BaseException) -> Failure:
        if isinstance(error, StaleFileError):
            return Failure("stale", error.reason, path=error.path)
        if isinstance(error, OSError):
            path = error.filename if isinstance(error.filename, str) else ""
            return Failure("os", error.strerror or str(error), error.errno or errno.EIO, path)
        return Failure("bug", f"{type(error).__name__}: {error}")

    def to_exception(self) -> Exception:
        if self.kind == "stale":
            return StaleFileError(self.path, self.text)
        if self.kind == "os":
            return OSError(self.number, self.text, self.path) if self.path else OSError(self.number, self.text)
        return RuntimeError(self.text)


class Caller:
    """The side that calls. A connection that ends fails all calls with `ConnectionResetError`."""

    def __init__(self, connection: socket.socket, *, describe_end: Any = lambda: "the connection has ended") -> None:
        self._frames = FrameSocket(connection)
        self._numbers = count(1)
        self._lock = threading.Lock()
        self._waiting: dict[int, Future[tuple[Any, tuple[int, ...]]]] = {}
        self._describe_end = describe_end
        self._has_ended = False
        self._reader = threading.Thread(target=self._read, name="wieldy-backend", daemon=True)
        self._reader.start()

    def call(self, method: str, *arguments: Any) -> tuple[Any, tuple[int, ...]]:
        """The result of a method, and the descriptors that came with it."""
        future: Future[tuple[Any, tuple[int, ...]]] = Future()
        number = next(self._numbers)
        with self._lock:
            if self._has_ended:
                raise self._lost()
            self._waiting[number] = future
        try:
            self._frames.send(msgspec.msgpack.encode((number, method, arguments)))
        except OSError:
            with self._lock:
                self._waiting.pop(number, None)
            raise self._lost() from None
        return future.result()

    def close(self) -> None:
        self._frames.close()
        self._reader.join()

    def _read(self) -> None:
        try:
            while (frame := self._frames.receive()) is not None:
                self._settle(*frame)
        except Exception:
            log.exception("an answer of the worker cannot be read")
        with self._lock:
            self._has_ended = True
            waiting, self._waiting = list(self._waiting.values()), {}
        for future in waiting:
            future.set_exception(self._lost())

    def _settle(self, message: bytes, descriptors: tuple[int, ...] | None) -> None:
        number, result, failure = msgspec.msgpack.decode(message)
        with self._lock:
            future = self._waiting.pop(number, None)
        if future is None:
            _close_all(descriptors or ())
        elif failure is not None:
            future.set_exception(msgspec.convert(failure, Failure).to_exception())
        elif descriptors is None:
            future.set_exception(OSError(errno.EMFILE, os.strerror(errno.EMFILE)))
        else:
            future.set_result((result, descriptors))

    def _lost(self) -> ConnectionResetError:
        return ConnectionResetError(errno.ECONNRESET, self._describe_end())
