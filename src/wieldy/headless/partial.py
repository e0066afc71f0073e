"""An answer while it is being given: events in the form of the Messages API's own stream, whatever the model's API is."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from wieldy.core.event import Event, ModelAnswered, ModelBlock, ModelCalls, ModelSaid, Retried, RunEnded
from wieldy.headless.tally import usage_of
from wieldy.session.session import Session

Say = Callable[[Mapping[str, Any]], None]


class Partial:
    """Turns what a session tells of an answer into the events of a stream. Blocks are opened and closed as the model does."""

    def __init__(self, session: Session, say: Say) -> None:
        self._session = session
        self._say = say
        self._begun = False
        self.message = ""  # the id of the last one that began

    def take(self, event: Event) -> None:
        """Say what an event is in a stream, if anything."""
        match event:
            case ModelBlock(start=start) if start is not None:
                self._begin()
                self._say({"type": "content_block_start", "index": event.index, "content_block": dict(start)})
            case ModelBlock(grew=grew) if grew is not None:
                self._delta(event.index, grew)
            case ModelBlock():
                self._say({"type": "content_block_stop", "index": event.index})
            case ModelSaid():
                kind = "thinking" if event.thinking else "text"
                self._delta(event.index, {"type": f"{kind}_delta", kind: event.text})
            case ModelCalls() if event.piece:
                self._delta(event.index, {"type": "input_json_delta", "partial_json": event.piece})
            case ModelAnswered():
                self._end(event)
            case Retried() | RunEnded():
                self._begun = False  # what broke off is never ended: the next answer begins anew

    def _begin(self) -> None:
        if self._begun:
            return
        self._begun, self.message = True, message_id()
        message: dict[str, Any] = {
            "id": self.message,
            "type": "message",
            "role": "assistant",
            "model": self._session.provider.model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": usage_of(None),
        }
        self._say({"type": "message_start", "message": message})

    def _end(self, event: ModelAnswered) -> None:
        self._begin()
        self._begun = False
        delta = {"stop_reason": event.stop_reason, "stop_sequence": None}
        self._say({"type": "message_delta", "delta": delta, "usage": usage_of(event.usage)})
        self._say({"type": "message_stop"})

    def _delta(self, index: int, delta: Mapping[str, Any]) -> None:
        self._say({"type": "content_block_delta", "index": index, "delta": dict(delta)})


def message_id() -> str:
    """A new id for a message, like those of the Messages API."""
    return f"msg_{os.urandom(12).hex()}"
