"""A model that may be asked beside a conversation, by whoever needs words of one: `workspace.resident(Voice)`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from wieldy.core.message import Message
from wieldy.core.record import record

if TYPE_CHECKING:
    from wieldy.core.workspace import Workspace


@record
class Said:
    """What a model said to one request."""

    text: str
    model: str
    cut: bool = False


class Speak(Protocol):
    """Puts a request to a model."""

    async def __call__(self, system: str, messages: Sequence[Message], max_tokens: int) -> Said:
        """Its answer. Raises `WieldyError`."""
        ...


class Voice:
    """The model of one workspace, as others may ask it. Whoever has a model sets `speak`."""

    def __init__(self, workspace: Workspace) -> None:
        self.speak: Speak | None = None
