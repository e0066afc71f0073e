"""The lines of the control protocol: requests with ids in both directions, and their responses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias
from uuid import uuid4

from wieldy.agent.run_totals import encode_line
from wieldy.core.errors import WieldyError

Fields: TypeAlias = Mapping[str, Any]

HOST_GONE = "the program that started wieldy has closed its side"


class ControlFailure(WieldyError):
    """A control request was refused, or cannot be answered any more."""


class ControlChannel:
    """Sends requests to the host, matches its responses, and writes responses to the host's own requests."""

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write
        self._waiting: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._closed = False

    async def request(self, subtype: str, **fields: Any) -> dict[str, Any]:
        """Send a request and return its response; when cancelled, tell the host. Raises `ControlFailure`."""
        if self._closed:
            raise ControlFailure(HOST_GONE)
        id = str(uuid4())
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[id] = future
        try:
            self.write({"type": "control_request", "request_id": id, "request": {"subtype": subtype, **fields}})
            return await future
        except asyncio.CancelledError:
            if not self._closed:
                self.write({"type": "control_cancel_request", "request_id": id})
            raise
        finally:
            del self._waiting[id]

    def receive(self, response: Fields) -> None:
        """Take a response; one to an unknown request is ignored."""
        future = self._waiting.get(str(response.get("request_id")))
        if future is None or future.done():
            return
        if response.get("subtype") == "success":
            answer = response.get("response")
            future.set_result(dict(answer) if isinstance(answer, Mapping) else {})
        else:
            future.set_exception(ControlFailure(str(response.get("error") or "the host gave no reason")))

    def respond(self, request_id: Any, response: Fields) -> None:
        self._respond({"subtype": "success", "request_id": request_id, "response": dict(response)})

    def respond_error(self, request_id: Any, error: str) -> None:
        self._respond({"subtype": "error", "request_id": request_id, "error": error})

    def write(self, message: Fields) -> None:
        """Write one line."""
        self._write(encode_line(message))

    def close(self) -> None:
        """Fail every request that still waits: there will be no more responses."""
        self._closed = True
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(ControlFailure(HOST_GONE))

    def _respond(self, response: Fields) -> None:
        self.write({"type": "control_response", "response": response})
