"""`Turn`: the tool calls of one answer of a model, in whatever form its API or SDK has them, and their results for that API."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, Literal, Protocol, TypeAlias, cast

from wieldy.core.call import CallLike, ToolCall, as_mapping, as_tool_call
from wieldy.core.messages import Message
from wieldy.core.outcome import ToolResult
from wieldy.core.provider import Delta, ProviderFailure, ToolSpec
from wieldy.core.tool_names import suggest_name
from wieldy.engine.call_turn import CallTurn, OnStart
from wieldy.engine.loop_breaker import LoopBreaker
from wieldy.engine.services import Services
from wieldy.engine.streamed_message import StreamedMessage

Wire: TypeAlias = Literal["anthropic", "openai", "responses"]

WIRES: Mapping[str, str] = {"anthropic": "anthropic", "openai": "openai_chat", "responses": "openai_responses"}
ANTHROPIC_EVENTS = frozenset(
    {
        "message_start",
        "message_delta",
        "message_stop",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "ping",
    }
)


class WireModule(Protocol):
    """What is needed of a module of `providers`."""

    def define_tool(self, tool: ToolSpec) -> dict[str, Any]:
        """The definition of a tool for `tools=`."""
        ...

    def user_messages(self, message: Message) -> list[dict[str, Any]]:
        """A message with tool results as this API takes it."""
        ...

    def event_parser(self) -> EventParser: ...


class EventParser(Protocol):
    """Parses the events of one streamed answer."""

    def feed_event(self, event: Mapping[str, Any]) -> Iterator[Delta]: ...

    def close(self) -> Iterator[Delta]: ...


def wire_module(wire: str) -> WireModule:
    """The module of `providers` for a wire. Raises `ValueError` for an unknown one."""
    if wire not in WIRES:
        raise ValueError(f"there is no wire {wire!r}{suggest_name(str(wire), WIRES)}")
    from importlib import import_module

    return cast(WireModule, import_module(f"wieldy.models.{WIRES[wire]}"))


class Turn(CallTurn):
    """The calls of one answer of a model: each starts when it is complete, results come in the order of the requests.

    Use it as `async with box.turn() as turn`. Leaving the block with an error cancels what is still running.
    """

    def __init__(
        self,
        services: Services,
        message_id: str | None = None,
        *,
        new_id: Callable[[], str],
        on_start: OnStart | None = None,
        loop_breaker: LoopBreaker | None = None,
    ) -> None:
        super().__init__(services, message_id, on_start=on_start, loop_breaker=loop_breaker)
        self._new_id = new_id
        self._wire: Wire | None = None
        self._parser: EventParser | None = None
        self._message = StreamedMessage()
        self._is_finished = False

    def submit(self, call: CallLike) -> asyncio.Task[ToolResult]:
        """Start a call: a `tool_use` block, an OpenAI tool call or function call, a `ToolCall`, or a `(name, input)` pair.

        Blocks and calls may be objects of the SDKs or their dicts. Raises `TypeError` for something else.
        """
        return super().submit(as_tool_call(call, self._new_id))

    def feed(self, event: Any) -> ToolCall | None:
        """Take a stream event of the `anthropic` or `openai` SDK, or its dict; a call that is now complete starts at once.

        Returns that call. Raises `TypeError` for something that is no such event, `ProviderFailure` for a stream that makes
        no sense.
        """
        if self._is_finished:
            raise RuntimeError("the results of this turn have been taken: begin another turn for the next answer")
        data = as_mapping(event)
        if data is not None and data.get("type") == "chunk":  # of the `openai` SDK's own stream helper
            data = as_mapping(data.get("chunk"))
        wire = None if data is None else _wire_of(data)
        if data is None or wire is None:
            if self._parser is not None or type(event).__module__.partition(".")[0] in ("anthropic", "openai"):
                return None  # an event that an SDK derives from others
            raise TypeError(f"feed takes stream events of the anthropic and openai SDKs, not {event!r:.200}")
        if self._parser is None:
            self._wire, self._parser = wire, wire_module(wire).event_parser()
        elif wire != self._wire:
            raise TypeError(f"this turn is fed with events of {self._wire}, not of {wire}")
        return self._add(self._parser.feed_event(data))

    async def results(self) -> list[ToolResult]:
        """Every call's result, once all have one, in the order in which the model began the calls."""
        self._finish_feeding()
        begun = {block["id"]: place for place, block in sorted(self._message.blocks.items()) if "id" in block}
        return sorted(await super().results(), key=lambda result: begun.get(result.call_id, len(begun)))

    async def messages(self, wire: Wire | None = None) -> list[Any]:
        """The messages with the results, to append after the assistant's message; none if there was no call.

        `wire` is the API they are for; without it, that of the events that were fed.
        """
        wire = self._wire if wire is None else wire
        if wire is None:
            raise ValueError(f"nothing was fed, so say which API the messages are for: {', '.join(map(repr, WIRES))}")
        module = wire_module(wire)
        results = await self.results()
        blocks = tuple(result.as_wire() for result in results)
        return module.user_messages(Message("user", blocks)) if blocks else []

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._finish_feeding()
        await super().__aexit__(kind, error, trace)

    def _add(self, deltas: Iterator[Delta]) -> ToolCall | None:
        started: ToolCall | None = None
        for delta in deltas:
            if (call := self._message.add(delta)) is not None:
                started = call
                super().submit(call)
        return started

    def _finish_feeding(self) -> None:
        """Start the calls that only the end of the stream completes; those that it cut off are answered as such."""
        self._is_finished = True
        if self._parser is None:
            return
        parser, self._parser = self._parser, None
        cut_off = False
        try:
            self._add(parser.close())
        except ProviderFailure:
            cut_off = True
        for call in self._message.close_open_blocks():
            super().submit(call)
        if (last := self._message.take_undecided(cut_off=cut_off)) is not None:
            super().submit(last)


def _wire_of(event: Mapping[str, Any]) -> Wire | None:
    kind = event.get("type")
    if isinstance(kind, str):
        if kind in ANTHROPIC_EVENTS:
            return "anthropic"
        if kind.startswith("response."):
            return "responses"
    if isinstance(event.get("choices"), list):
        return "openai"
    return None
