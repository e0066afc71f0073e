"""How a server is doing, in a word and a reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

from wieldy.core.event import Event

Word: TypeAlias = Literal["connecting", "ready", "failed", "needs approval", "closed"]


@dataclass(frozen=True, slots=True)
class State:
    """Where a server stands now, and why."""

    word: Word
    why: str = ""

    def __str__(self) -> str:
        return f"{self.word}: {self.why}" if self.why else self.word


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerChanged(Event):
    """A server's state changed."""

    kind: ClassVar[str] = "mcp.server"
    server: str
    state: str
    why: str = ""
    tools: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSaid(Event):
    """A server logged something."""

    kind: ClassVar[str] = "mcp.log"
    server: str
    level: str
    text: str
