"""The calls of one answer of a model, in whatever form its API or SDK has them, and their results for that API."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from importlib import import_module
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, TypeAlias, cast

from msgspec.structs import replace

from wieldy.core.call import CallLike, PlannedCall, RawInput, ToolCall, as_mapping, as_tool_call
from wieldy.core.decision import Adviser
from wieldy.core.effects import Effects, is_lasting
from wieldy.core.errors import ClosedError, Refusal
from wieldy.core.messages import Message
from wieldy.core.outcome import ToolResult
from wieldy.core.provider import (
    BlockDelta,
    BlockEnded,
    BlockStarted,
    Delta,
    ProviderFailure,
    StopReason,
    ToolSpec,
    Usage,
    UsageReported,
)
from wieldy.core.text import suggest_name
from wieldy.core.tool import Replay

if TYPE_CHECKING:
    from wieldy.engine.services import CallServices

POLLING_TOOLS = frozenset({"BashOutput"})
# A command that waits before it looks again, such as `sleep 5 && curl localhost:8000`.
_WAITS = re.compile(rb"\bsleep [\d.$]")
REFUSE_AT = 3
STOP_AT = 5
MAX_CHANGES = 1_000


class LoopBreaker:
    """Counts the failures of the same call.

    Its success resets its count. A change that was not made before resets all counts: a command that runs the tests may fail
    many times while the model mends the code.
    """

    def __init__(self) -> None:
        self._failures: dict[bytes, int] = {}
        self._changes: dict[bytes, None] = {}

    def reset(self) -> None:
        """Forget everything: a person has spoken, and may have changed something."""
        self._failures.clear()
        self._changes.clear()

    def check(self, call: ToolCall) -> None:
        """Raise `Refusal` for a call that has failed too often to be run once more."""
        if not self._failures or _is_polling(call):
            return
        count = self._failures.get(_key(call.name, call.input), 0)
        if count >= REFUSE_AT - 1:
            raise Refusal(
                "loop",
                f"This exact call of {call.name} has failed {count} times with no change in between, and was not run again.",
                "The same input will "
                "fail the same way: change it, look at why it fails with another tool, or tell the user what is in the way.",
                person=f"the same call has failed {count} times before",
            )

    def record(self, call: ToolCall, *, failed: bool, changes: bool = False) -> bool:
        """Count the result of a call, which `changes` something or not; true when the turn must end."""
        if not failed and not self._failures:
            return False
        key = _key(call.name, call.input)
        if not failed:
            self._failures.pop(key, None)
            if changes and key not in self._changes:
                self._failures.clear()
                self._changes[key] = None
                if len(self._changes) > MAX_CHANGES:
                    del self._changes[next(iter(self._changes))]
            return False
        self._failures[key] = self._failures.get(key, 0) + 1
        return self._failures[key] >= STOP_AT and not _is_polling(call)


def _is_polling(call: ToolCall) -> bool:
    return call.name in POLLING_TOOLS or (call.name == "Bash" and _WAITS.search(_as_bytes(call.input)) is not None)


def _key(name: str, input: RawInput) -> bytes:
    """A digest: the input may be long, and is remembered for as long as the session lasts."""
    from hashlib import blake2b

    return blake2b(name.encode("utf-8", "surrogatepass") + b" " + _as_bytes(input), digest_size=16).digest()


def _as_bytes(input: RawInput) -> bytes:
    if isinstance(input, Mapping):
        input = json.dumps(input, sort_keys=True, default=str)
    return input.encode("utf-8", "surrogatepass") if isinstance(input, str) else bytes(input)


# Some servers send an empty object for arguments that are still to come.
_PLACEHOLDERS = re.compile(r"\A(\s*\{\s*\})+(?=\s*\{)")
_SURROGATE = re.compile("[\ud800-\udfff]")


class StreamedMessage:
    """A message of the model as far as it has arrived. Blocks keep the order in which the model began them.

    `used_ids` are the ids of earlier calls: an id that the model repeats is made unique.
    """

    __slots__ = ("_ids", "_undecided", "_used_ids", "blocks", "open", "stop_reason", "usage")

    def __init__(self, used_ids: Set[str] = frozenset()) -> None:
        self.blocks: dict[int, dict[str, Any]] = {}
        self.open: dict[int, OpenBlock] = {}
        self.usage = Usage()
        self.stop_reason: StopReason | None = None
        self._used_ids = used_ids
        self._ids: set[str] = set()
        self._undecided: ToolCall | None = None

    def add(self, delta: Delta) -> ToolCall | None:
        """Add a delta; returns the call that can start now. Raises `ProviderFailure` for an inconsistent stream."""
        match delta:
            case BlockDelta():
                if (block := self.open.get(delta.index)) is None:
                    raise _inconsistent(f"block {delta.index} grows without having begun")
                block.pieces.setdefault(delta.field, []).append(delta.piece)
            case BlockStarted():
                return self._start_block(delta.index, delta.block)
            case BlockEnded():
                if delta.index not in self.open:
                    raise _inconsistent(f"block {delta.index} ends without having begun")
                return self._close_block(delta.index)
            case UsageReported():
                self.usage = delta.usage
            case _:
                self.stop_reason = delta.reason
                return self.take_undecided(cut_off=delta.reason == "max_tokens")
        return None

    def content(self) -> tuple[dict[str, Any], ...]:
        """The closed blocks in order, without blank texts."""
        blocks = [block for _, block in sorted(self.blocks.items())]
        return tuple([block for block in blocks if block["type"] != "text" or block["text"].strip()])

    def text(self) -> str:
        return join_texts(self.content())

    def close_open_blocks(self) -> list[ToolCall]:
        """Close the blocks that the end of the message left open; returns their calls, which are incomplete."""
        calls = []
        for index in sorted(self.open):
            self._close_block(index, cut_off=True)
            block = self.blocks[index]
            if block["type"] == "tool_use":
                calls.append(ToolCall(block["id"], block["name"], {}, complete=False))
        return calls

    def take_undecided(self, *, cut_off: bool) -> ToolCall | None:
        """Return the last call if it had an empty input, now that it is known whether that was cut off."""
        call, self._undecided = self._undecided, None
        if call is None or not cut_off:
            return call
        return ToolCall(call.id, call.name, {}, complete=False)

    def _start_block(self, index: int, block: Mapping[str, Any]) -> ToolCall | None:
        if index in self.blocks or index in self.open:
            raise _inconsistent(f"block {index} begins twice")
        if not isinstance(block.get("type"), str):
            raise _inconsistent(f"block {index} has no type")
        self.open[index] = OpenBlock(self._with_unique_id(block) if block["type"] == "tool_use" else block)
        return self.take_undecided(cut_off=False)

    def _close_block(self, index: int, *, cut_off: bool = False) -> ToolCall | None:
        opened = self.open.pop(index)
        start = opened.start
        match start["type"]:
            case "tool_use":
                return self._close_call(index, opened, cut_off=cut_off)
            case "text":
                block = {**start, "text": start.get("text", "") + opened.text("text")}
                if citations := opened.pieces.get("citation"):
                    block["citations"] = [*start.get("citations", ()), *citations]
            case "thinking":
                block = {**start, "thinking": start.get("thinking", "") + opened.text("thinking")}
                if signature := opened.text("signature"):
                    block["signature"] = signature
                if items := opened.pieces.get("item"):
                    block["item"] = items[-1]
            case "server_tool_use":
                raw = opened.text("input")
                block = {**start, "input": _parse_input(raw)[0] if raw else start.get("input") or {}}
            case _:
                block = dict(start)
        self.blocks[index] = block
        return None

    def _close_call(self, index: int, opened: OpenBlock, *, cut_off: bool) -> ToolCall | None:
        start = opened.start
        raw = _PLACEHOLDERS.sub("", opened.text("input"), count=1)
        value, is_valid = _parse_input(raw) if raw else (start.get("input") or {}, True)
        self.blocks[index] = {**start, "input": value}
        call = ToolCall(start["id"], start["name"], value if is_valid else raw)
        if raw or value or cut_off:
            return call
        # An empty input is either complete or was cut off before it began: the next delta tells.
        previous = self.take_undecided(cut_off=False)
        self._undecided = call
        return previous

    def _with_unique_id(self, block: Mapping[str, Any]) -> Mapping[str, Any]:
        id = unique = block.get("id") or "call"
        count = 1
        while unique in self._used_ids or unique in self._ids:
            count += 1
            unique = f"{id}-{count}"
        self._ids.add(unique)
        if unique == block.get("id") and isinstance(block.get("name"), str):
            return block
        return {**block, "id": unique, "name": str(block.get("name") or "")}


class OpenBlock:
    """A block that is still arriving: the block as announced, and the pieces of its fields."""

    __slots__ = ("pieces", "start")

    def __init__(self, start: Mapping[str, Any]) -> None:
        self.start = start
        self.pieces: dict[str, list[Any]] = {}

    def text(self, field: str) -> str:
        text = "".join(self.pieces.get(field, ()))
        # The halves of a surrogate pair may come in two pieces; one that stays alone is replaced.
        if text.isascii() or not _SURROGATE.search(text):
            return text
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _parse_input(raw: str) -> tuple[dict[str, Any], bool]:
    """The input for the history, an object in any case, and whether the model wrote valid JSON."""
    from wieldy.core.schema.json_repair import UnreadableJson, read_object

    try:
        parsed = read_object(raw)
    except UnreadableJson:
        return {}, False
    return parsed.value, not parsed.notes


def join_texts(content: Sequence[Mapping[str, Any]]) -> str:
    return "\n".join([block["text"] for block in content if block["type"] == "text"])


def _inconsistent(what: str) -> ProviderFailure:
    return ProviderFailure("protocol", f"the stream makes no sense: {what}")


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
    """What is needed of a module of `models`."""

    def define_tool(self, tool: ToolSpec) -> dict[str, Any]: ...

    def user_messages(self, message: Message) -> list[dict[str, Any]]:
        """A message with tool results as this API takes it."""
        ...

    def event_parser(self) -> EventParser: ...


class EventParser(Protocol):
    """Parses the events of one streamed answer."""

    def feed_event(self, event: Mapping[str, Any]) -> Iterator[Delta]: ...

    def close(self) -> Iterator[Delta]: ...


def wire_module(wire: str) -> WireModule:
    """The module of `models` for a wire. Raises `ValueError` for an unknown one."""
    if wire not in WIRES:
        raise ValueError(f"there is no wire {wire!r}{suggest_name(str(wire), WIRES)}")
    return cast(WireModule, import_module(f"wieldy.models.{WIRES[wire]}"))


class TurnObserver:
    """Follows the turn of a session: what is recorded of it. This one does nothing.

    `used_ids` are the ids of the calls before this turn.
    """

    loop_breaker: LoopBreaker | None = None
    used_ids: Set[str] = frozenset()

    async def on_start(self, call_id: str, replay: Replay, lasts: bool) -> None:
        """A call is about to start that has lasting effects, or must not be made twice. Awaited before it starts."""

    def on_block(self, index: int, block: dict[str, Any]) -> None:
        """A block of the answer is complete. Called before the call in it starts."""

    def on_discarded(self) -> None:
        """The blocks so far do not count; those that do are reported again."""

    def on_result(self, result: ToolResult) -> None:
        """A call has its result."""


class Turn:
    """The calls of one answer of a model: each starts when it is complete, results come in the order of the requests.

    Use it as `async with box.turn() as turn`. Leaving the block with an error cancels what is still running.
    """

    def __init__(
        self,
        services: CallServices,
        message_id: str | None = None,
        *,
        new_id: Callable[[], str] = lambda: "call",
        observer: TurnObserver | None = None,
    ) -> None:
        self.message_id = message_id
        self.calls: list[ToolCall] = []
        self.call_ids: list[str] = []
        self.lasting_calls: set[str] = set()
        """The ids of calls that do something that lasts."""
        self.waiting: list[Effects] = []
        """The effects of calls whose questions are answered later."""
        self.observer = TurnObserver() if observer is None else observer
        self.message = StreamedMessage(self.observer.used_ids)
        self._services = services
        self._new_id = new_id
        self._tasks: list[asyncio.Task[ToolResult]] = []
        self._wire: Wire | None = None
        self._parser: EventParser | None = None
        self._observed_blocks = 0
        self._is_finished = False
        self._is_over = False

    def submit(self, call: CallLike) -> asyncio.Task[ToolResult]:
        """Start a call: a `tool_use` block, an OpenAI tool call or function call, a `ToolCall`, or a `(name, input)` pair.

        Blocks and calls may be objects of the SDKs or their dicts. Raises `TypeError` for something else, `ClosedError` after the
        block was left.
        """
        from wieldy.engine.pipeline import handle  # which imports this module

        if self._is_over:
            raise ClosedError("this turn is over; begin another one with `async with box.turn()`")
        call = as_tool_call(call, self._new_id)
        self.calls.append(call)
        self.call_ids.append(call.id)
        task = asyncio.get_running_loop().create_task(handle(call, self._services, self))
        task.add_done_callback(self._on_done)
        self._tasks.append(task)
        return task

    def feed(self, event: Any) -> ToolCall | None:
        """Take a stream event of the `anthropic` or `openai` SDK, or its dict; a call that is now complete starts at once.

        Returns that call. Raises `TypeError` for something that is no such event, `ProviderFailure` for an inconsistent stream.
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
        started = [call for delta in self._parser.feed_event(data) if (call := self.add(delta)) is not None]
        return started[-1] if started else None

    def add(self, delta: Delta) -> ToolCall | None:
        """Take the next delta of the answer; a call that is now complete starts at once. Raises `ProviderFailure`."""
        call = self.message.add(delta)
        if len(self.message.blocks) > self._observed_blocks:
            self._observe_blocks()
        if call is not None:
            self.submit(call)
        return call

    def finish(self) -> None:
        """Start the calls that only the end of the stream completes; those that it cut off are answered as such."""
        if self._is_finished:
            return
        self._is_finished = True
        is_cut_off = False
        try:
            for delta in self._parser.close() if self._parser is not None else ():
                self.add(delta)
        except ProviderFailure:
            is_cut_off = True
        calls = self.message.close_open_blocks()
        self._observe_blocks()
        for call in calls:
            self.submit(call)
        if (last := self.message.take_undecided(cut_off=is_cut_off)) is not None:
            self.submit(last)

    def break_off(self, *, is_broken: bool = False) -> None:
        """End an answer that was interrupted: keep text, which the user has seen, but no open thought or call.

        Where the stream `is_broken` and no call has started, calls that have not started are forgotten.
        """
        self._is_finished = True
        blocks, open_blocks = self.message.blocks, self.message.open
        unstarted = [index for index, block in blocks.items() if block["type"] == "tool_use"]
        if unstarted and is_broken and not self.calls:
            for index in unstarted:
                del blocks[index]
            self._observed_blocks = 0
            self.observer.on_discarded()
        for index, block in list(open_blocks.items()):
            if block.start["type"] != "text" or not block.text("text").strip():
                del open_blocks[index]
        self.message.close_open_blocks()
        self._observe_blocks()

    async def results(self) -> list[ToolResult]:
        """Every call's result, once all have one, in the order in which the model began the calls."""
        self.finish()
        begun = {block["id"]: place for place, block in sorted(self.message.blocks.items()) if "id" in block}
        return sorted([await task for task in self._tasks], key=lambda result: begun.get(result.call_id, len(begun)))

    async def messages(self, wire: Wire | None = None) -> list[Any]:
        """The messages with the results, to append after the assistant's message; none if there was no call.

        `wire` is the API they are for; without it, that of the events that were fed.
        """
        wire = self._wire if wire is None else wire
        if wire is None:
            raise ValueError(f"nothing was fed, so say which API the messages are for: {', '.join(map(repr, WIRES))}")
        module = wire_module(wire)
        blocks = tuple(result.as_wire() for result in await self.results())
        return list(module.user_messages(Message("user", blocks))) if blocks else []

    def add_adviser(self, adviser: Adviser) -> None:
        """Have the calls from now on judged with one more opinion."""
        self._services = replace(self._services, advisers=(*self._services.advisers, adviser))

    async def begin(self, plan: PlannedCall) -> None:
        """Note that a call is about to start."""
        lasts = any(map(is_lasting, plan.effects))
        if lasts:
            self.lasting_calls.add(plan.call.id)
        replay = plan.tool.replay_of(plan.effects)
        if lasts or replay != "safe":
            await self.observer.on_start(plan.call.id, replay, lasts)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.finish()
        self._is_over = True
        running = [task for task in self._tasks if not task.done()]
        if error is not None:
            for task in running:
                task.cancel()
        if running:
            await asyncio.wait(running)

    def _observe_blocks(self) -> None:
        for index, block in islice(self.message.blocks.items(), self._observed_blocks, None):
            self.observer.on_block(index, block)
        self._observed_blocks = len(self.message.blocks)

    def _on_done(self, task: asyncio.Task[ToolResult]) -> None:
        if not task.cancelled() and task.exception() is None:
            self.observer.on_result(task.result())


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
