"""Messages between a driver and its worker processes: one JSON object a line, over a socket pair.

The socket is also the lifeline: whoever sees its end knows that the other side is dead, however it died.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import TypeAlias

import msgspec
from msgspec import Struct

from wieldy.faces.batch.attempt import AttemptProgress, Job
from wieldy.faces.batch.rates import RateReport
from wieldy.faces.batch.results import AttemptResult

MAX_MESSAGE_BYTES = 256 * 1024 * 1024


class WorkerMessage(Struct, frozen=True, tag_field="type", omit_defaults=True):
    """Anything that is sent between a driver and a worker."""


class StartJob(WorkerMessage, frozen=True, tag="start"):
    """Driver → worker: make an attempt."""

    job: Job


class CancelJob(WorkerMessage, frozen=True, tag="cancel"):
    """Driver → worker: give an attempt up; no result follows."""

    key: str


class RateGranted(WorkerMessage, frozen=True, tag="granted"):
    """Driver → worker: the request with this number may be sent."""

    number: int


class JobEnded(WorkerMessage, frozen=True, tag="ended"):
    """Worker → driver: an attempt has its result."""

    key: str
    result: AttemptResult


class JobProgress(WorkerMessage, frozen=True, tag="progress"):
    """Worker → driver: what an attempt does now."""

    key: str
    progress: AttemptProgress


class RateRequested(WorkerMessage, frozen=True, tag="acquire"):
    """Worker → driver: a request to a provider waits for its turn."""

    number: int
    key: str


class RateReported(WorkerMessage, frozen=True, tag="rate"):
    """Worker → driver: how a request to a provider went."""

    key: str
    report: RateReport


ToWorker: TypeAlias = StartJob | CancelJob | RateGranted
ToDriver: TypeAlias = JobEnded | JobProgress | RateRequested | RateReported

_decoder = msgspec.json.Decoder(ToWorker | ToDriver)


class Channel:
    """One end of a socket pair."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, end: socket.socket) -> Channel:
        end.setblocking(False)
        return cls(*await asyncio.open_connection(sock=end, limit=MAX_MESSAGE_BYTES))

    def send(self, message: WorkerMessage) -> None:
        """Send a message; nothing happens if the other side is gone, which `messages` shows."""
        if not self._writer.is_closing():
            self._writer.write(msgspec.json.encode(message) + b"\n")

    async def messages(self) -> AsyncIterator[ToWorker | ToDriver]:
        """Every message until the other side is gone."""
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while line := await self._reader.readline():
                if line.endswith(b"\n"):
                    yield _decoder.decode(line)

    async def drain(self) -> None:
        with contextlib.suppress(ConnectionError):
            await self._writer.drain()

    async def aclose(self) -> None:
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()
