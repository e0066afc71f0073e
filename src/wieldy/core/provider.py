"""The interface of a model provider: a request goes out, deltas come in. Each API has one adapter."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal, Protocol, TypeAlias

from msgspec import Struct, field

from wieldy.core.errors import WieldyError
from wieldy.core.messages import ContentBlock, History, Message

Field: TypeAlias = Literal["text", "thinking", "signature", "input", "citation", "item"]
StopReason: TypeAlias = Literal["end_turn", "tool_use", "max_tokens", "stop_sequence", "refusal", "pause_turn"]


class BlockStarted(Struct, frozen=True):
    """A block begins; `block` is as the API announced it, without its text."""

    index: int
    block: ContentBlock


class BlockDelta(Struct, frozen=True):
    """The next piece of one field of a block; the input of a tool use arrives as pieces of JSON."""

    index: int
    field: Field
    piece: Any


class BlockEnded(Struct, frozen=True):
    """A block is complete: its tool may start now, while the model still streams."""

    index: int


class Usage(Struct, frozen=True):
    """Tokens of one request; a later report of the same request replaces what it names."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0


class UsageReported(Struct, frozen=True):
    """The tokens that the request has used so far."""

    usage: Usage


class Stopped(Struct, frozen=True):
    """The message is complete; `reason` says why it ended."""

    reason: StopReason


Delta: TypeAlias = BlockStarted | BlockDelta | BlockEnded | UsageReported | Stopped


class ToolSpec(Struct, frozen=True):
    """A tool definition as it is sent to a model; `encoded` caches its bytes by wire."""

    name: str
    description: str
    input_schema: Mapping[str, Any]
    encoded: dict[str, bytes] = field(default_factory=dict)


class Request(Struct, frozen=True):
    """What the model sees. Tool blocks are contiguous: `tools[:breaks[0]]`, `tools[breaks[0]:breaks[1]]`, … each cacheable."""

    system: tuple[str, ...]
    messages: History
    tools: tuple[ToolSpec, ...] = ()
    breaks: tuple[int, ...] = ()
    server_tools: tuple[Mapping[str, Any], ...] = ()
    max_tokens: int | None = None
    thinking_budget: int | None = None
    stop_sequences: tuple[str, ...] = ()
    temperature: float | None = None


FailureKind: TypeAlias = Literal[
    "auth", "model", "overflow", "too_large", "rate", "overloaded", "connection", "refused", "bad_request", "protocol"
]


class ProviderFailure(WieldyError):
    """A request failed. `transient` failures may be retried; the message is one line for the user."""

    def __init__(
        self, kind: FailureKind, message: str, *, status: int | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.kind: FailureKind = kind
        self.status = status
        self.retry_after = retry_after

    @property
    def transient(self) -> bool:
        """Whether the same request may succeed later."""
        return self.kind in ("rate", "overloaded", "connection", "refused")


class Provider(Protocol):
    """One model behind one API."""

    name: str
    model: str
    context_window: int

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[Delta]]:
        """Send a request and stream its deltas. Raises `ProviderFailure`; leaving early closes the connection."""
        ...

    async def aclose(self) -> None:
        """Close the connections."""
        ...


class Completion(Struct, frozen=True):
    """The text of one answer; `cut` says that it hit the token limit."""

    text: str
    model: str
    cut: bool = False


class CompletionFunction(Protocol):
    """Sends one request without tools to a model."""

    async def __call__(self, system: str, messages: Sequence[Message], max_tokens: int) -> Completion:
        """Return the answer. Raises `WieldyError`."""
        ...
