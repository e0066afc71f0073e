"""What all requests of a conversation begin with: the prompt and the tools, encoded once for as long as they are the same."""

from __future__ import annotations

from collections.abc import Callable
from operator import is_

from wieldy.core.provider import Request


class Front:
    """Remembers the last one. `encode` gives what comes before the messages, and messages that come before the history."""

    def __init__(self, encode: Callable[[Request, str], tuple[bytes, list[bytes]]]) -> None:
        self._encode = encode
        self._told: tuple[object, ...] = ()
        self._encoded: tuple[bytes, list[bytes]] = (b"", [])

    def of(self, request: Request, model: str) -> tuple[bytes, list[bytes]]:
        """The front of a request to a model; the list is the caller's to change."""
        told = (
            model,
            request.system,
            request.tools,
            request.breaks,
            request.server_tools,
            request.max_tokens,
            request.thinking_budget,
            request.stop_sequences,
        )
        if not self._told or not all(map(is_, told, self._told)):
            self._told, self._encoded = told, self._encode(request, model)
        before, first = self._encoded
        return before, list(first)
