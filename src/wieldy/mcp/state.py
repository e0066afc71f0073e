"""How a server is doing, in a word and a reason."""

from __future__ import annotations

from typing import ClassVar, Literal, TypeAlias

from wieldy.core.event import Event
from wieldy.core.record import keyword_record, record

Word: TypeAlias = Literal["connecting", "ready", "failed", "needs approval", "closed"]


@record
class State:
    """Where a server stands now, and why."""

    word: Word
    why: str = ""

    def __str__(self) -> str:
        return f"{self.word}: {self.why}" if self.why else self.word


@keyword_record
class ServerChanged(Event):
    """A server's state changed."""

    kind: ClassVar[str] = "mcp.server"
    server: str
    state: str
    why: str = ""
    tools: int = 0


@keyword_record
class ServerSaid(Event):
    """A server logged something."""

    kind: ClassVar[str] = "mcp.log"
    server: str
    level: str
    text: str
