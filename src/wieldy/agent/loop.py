"""The loop: ask the model, let its tools run, ask again, until it has nothing more to call or a bound is reached."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from wieldy.agent.conversation import Conversation
from wieldy.agent.model_turn import Flush, ModelTurn, Record, TurnResult
from wieldy.agent.request_prefix import RequestPrefix
from wieldy.agent.session_hooks import SessionHooks
from wieldy.agent.toolbox_protocol import ToolboxProtocol
from wieldy.core.abort import Abort
from wieldy.core.provider import Provider, ProviderFailure, Request
from wieldy.engine.loop_breaker import LoopBreaker
from wieldy.engine.supervise import Aborted

if TYPE_CHECKING:
    from wieldy.agent.compaction import Compactor


FULL = 0.85  # of the context window: compact before the next request


class RunLimits(Struct, frozen=True):
    """What a run may not exceed: turns each, dollars from the beginning of the session object on."""

    turns: int | None = None
    cost: float | None = None

    def passed(self, turns: int, spent: float) -> tuple[str, str] | None:
        """Which of them is reached, in a word and in a line."""
        if self.turns is not None and turns >= self.turns:
            return "max_turns", f"stopped after {turns} turn{'s' if turns != 1 else ''}"
        if self.cost is not None and spent >= self.cost:
            return "max_cost", f"stopped at a cost of ${spent:.4f}"
        return None


class PendingReports(Protocol):
    """What comes in while a model works that it did not ask for in this turn: ends of agents that it sent off."""

    def ready(self) -> list[str]:
        """What has come in by now."""
        ...

    async def next(self) -> str | None:
        """Wait for what is still to come; None when there is nothing to wait for."""
        ...


class RequestOptions(Struct, frozen=True):
    """What every request asks of the model beside an answer: tokens for thinking, tools that its own server runs."""

    thinking_budget: int | None = None
    server_tools: tuple[Mapping[str, Any], ...] = ()


NO_WISHES = RequestOptions()


class RunEnd(Struct, frozen=True):
    """How a run ended, in a word and in a line, and the model's last words."""

    why: str
    detail: str = ""
    text: str = ""


class AgentLoop:
    """Runs the turns of one session. Everything that happens is a record; the conversation is what the records tell."""

    def __init__(  # noqa: PLR0913 - what a turn needs is what a loop is given
        self,
        box: ToolboxProtocol,
        provider: Provider,
        conversation: Conversation,
        record: Record,
        outset: RequestPrefix,
        moments: SessionHooks,
        bounds: RunLimits,
        wishes: RequestOptions = NO_WISHES,
        *,
        durable: Flush | None = None,
    ) -> None:
        self.box = box
        self.provider = provider
        self.conversation = conversation
        self.record = record
        self.outset = outset
        self.moments = moments
        self.bounds = bounds
        self.wishes = wishes
        self._spent_before = conversation.cost
        self._exchanger = ModelTurn(box, provider, LoopBreaker(), record, durable)
        self._relief: Compactor | None = None
        self.news: PendingReports | None = None

    async def follow(self, content: Sequence[dict[str, Any]], added: Sequence[str], abort: Abort) -> RunEnd:
        """Say something, with what hooks add to it, and go on until there is nothing more to do.

        Raises `Aborted`, `ProviderFailure` or `SessionError`.
        """
        prompt = "\n".join(block["text"] for block in content if block["type"] == "text")
        added = (*added, *await self.moments.prompted(prompt))
        self.record({"type": "user", "content": [*content, *map(_text, added)]})
        turns, text = 0, ""
        while True:
            if abort.aborted:
                raise Aborted(abort.reason)
            if (reached := self.passed(turns)) is not None:
                return RunEnd(*reached, text)
            for words in self.news.ready() if self.news is not None else ():
                self.record({"type": "user", "content": [_text(words)]})
            turns += 1
            exchange = await self._answer(turns, abort)
            await asyncio.sleep(0)  # a model and tools that never wait must not starve other tasks
            text = _words(exchange) or text
            if (end := _ended(exchange, abort, text)) is not None:
                if end.why != "done" or (why := await self._sent_on(text)) is None:
                    return end
                self.record({"type": "user", "content": [_text(why)]})

    def room(self) -> Compactor:
        """What makes room in the conversation, loaded when it is first needed."""
        if self._relief is None:
            from wieldy.agent.compaction import Compactor

            self._relief = Compactor(self.box, self.provider, self.conversation, self.record, self.moments)
        return self._relief

    async def _answer(self, number: int, abort: Abort) -> TurnResult:
        """One exchange; a conversation that is too much for the provider is made to fit."""
        if not self.outset.fresh:
            await self.outset.refresh()
        if self.conversation.tokens > FULL * self.provider.context_window:
            await self.room().compact("auto", abort)
        while True:
            try:
                exchange = await self._exchanger.exchange(self._request(), number, self.conversation.ids, abort)
            except ProviderFailure as failure:
                if not await self.room().after(failure, abort):
                    raise
            else:
                if self._relief is not None:
                    self._relief.tried = 0
                return exchange

    def _request(self) -> Request:
        outset = self.outset
        return Request(
            system=outset.prompt,
            messages=self.conversation.settled(),
            tools=outset.offers,
            breaks=outset.breaks,
            server_tools=self.wishes.server_tools,
            thinking_budget=self.wishes.thinking_budget,
        )

    def passed(self, turns: int = 0) -> tuple[str, str] | None:
        """Which bound is reached after so many turns of a run, in a word and in a line."""
        return self.bounds.passed(turns, self.conversation.cost - self._spent_before)

    async def _sent_on(self, text: str) -> str | None:
        """Why the model is to go on although it wants to stop: there is news to wait for, or a hook says so."""
        words = await self.news.next() if self.news is not None else None
        return await self.moments.stopping(text) if words is None else words


def _text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def _words(exchange: TurnResult) -> str:
    return "\n".join([block["text"] for block in exchange.content if block["type"] == "text"])


def _ended(exchange: TurnResult, abort: Abort, text: str) -> RunEnd | None:
    """How the run has ended, or None when the model is to be asked again."""
    if exchange.interrupted:
        return RunEnd("interrupted", abort.reason, text)
    if exchange.looping:
        return RunEnd("looping", "the model kept making the same failing call", text)
    if exchange.results or exchange.broken is not None:
        return None
    if exchange.answer.stop_reason == "pause_turn" and exchange.content:
        return None
    match exchange.answer.stop_reason:
        case "max_tokens":
            return RunEnd("max_tokens", "the answer was cut off at the length limit", text)
        case "refusal":
            return RunEnd("refusal", "the model refused", text)
    return RunEnd("done", "", text)
