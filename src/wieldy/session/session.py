"""`Session`: a toolbox and a model in a loop, with a transcript one can go on from."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from wieldy.approval import Ask
from wieldy.core.abort import Abort
from wieldy.core.event import Event, PermissionAsked, RunEnded
from wieldy.core.failure import SessionError
from wieldy.core.message import Message
from wieldy.core.provider import Provider, ProviderFailure, Request
from wieldy.core.threads import in_thread
from wieldy.core.tool import Tool
from wieldy.engine.clean import clean
from wieldy.engine.leash import Aborted
from wieldy.session.breaker import Breaker
from wieldy.session.conversation import Conversation, fold
from wieldy.session.exchange import Exchange, Exchanger
from wieldy.session.moments import Moments
from wieldy.session.outset import Outset
from wieldy.session.transcript import NAME, VERSION, Transcript, records
from wieldy.toolbox import Toolbox

if TYPE_CHECKING:
    from wieldy.hooks.configured import Hook
    from wieldy.session.relief import Relief

FULL = 0.85  # of the context window: compact before the next request

Prompt = str | Sequence[Mapping[str, Any]]


class Session:
    """A conversation with a model that has tools. `model` is `provider/name`, `script:FILE`, or a `Provider`.

    `resume` goes on with an earlier session by its id; `fork` with a copy of it. `max_cost` is in US dollars, and holds for what
    is spent from here on.
    """

    def __init__(  # noqa: PLR0913 - every option is a keyword with a default
        self,
        root: str | os.PathLike[str] = ".",
        *,
        model: str | Provider | None = None,
        mode: str | None = None,
        settings: Mapping[str, Any] | None = None,
        tools: Iterable[Tool] = (),
        ask: Ask | None = None,
        load_settings: bool | None = None,
        builtins: bool = True,
        hooks: Sequence[Hook] = (),
        base_url: str | None = None,
        max_turns: int | None = None,
        max_cost: float | None = None,
        thinking_budget: int | None = None,
        system: str = "",
        resume: str | None = None,
        fork: bool = False,
        persist: bool = True,
    ) -> None:
        self.conversation = Conversation()
        self._resumed_from = _existing(resume) if resume is not None else None
        self.box = Toolbox(
            root,
            mode=mode,
            settings=settings,
            tools=tools,
            ask=ask,
            load_settings=load_settings,
            builtins=builtins,
            hooks=hooks,
            session_id=None if fork else resume,
        )
        self.max_turns = max_turns
        self.max_cost = max_cost
        self._model = model
        self._base_url = base_url
        self._thinking_budget = thinking_budget
        self._moments = Moments(self.box.hooks)
        self._outset = Outset(self.box, system)
        self._breaker = Breaker()
        self._transcript = Transcript(self.box.workspace.session_dir) if persist else None
        self._copied_from = resume if fork else None
        self._provider: Provider | None = None
        self._exchanger: Exchanger | None = None
        self._relief: Relief | None = None
        self._spent_before = 0.0
        self._started = False
        self._running = False

    @property
    def id(self) -> str:
        """What to resume this session by."""
        return self.box.id

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The conversation in the form of the Anthropic Messages API."""
        return [message.as_dict() for message in self.conversation.copy().settled()]

    @property
    def provider(self) -> Provider:
        """The model in use."""
        if self._provider is None:
            self._provider = self._picked()
        return self._provider

    @property
    def model_name(self) -> str:
        """What the model is called, as far as that is known."""
        return self._provider.model if self._provider is not None else str(self._model or "")

    @property
    def running(self) -> bool:
        """Whether a run is under way."""
        return self._running

    @property
    def ready(self) -> bool:
        """Whether the first request could go out: there is a model, and the tools are known."""
        return self._started

    @property
    def offered(self) -> list[str]:
        """The tools the model is offered, once the session is ready."""
        return [offer.name for offer in self._outset.offers]

    async def run(self, prompt: Prompt) -> AsyncIterator[Event]:
        """Say something and follow what comes of it, until the model has nothing more to call.

        The last event is `RunEnded`. Leaving the loop early interrupts the run.
        """
        if self._running:
            raise SessionError("this session is already running; wait for it, or start another")
        self._running = True
        try:
            async with self.box.events.stream() as events:
                work = asyncio.get_running_loop().create_task(self._run(prompt, self.box.stop))
                try:
                    async for event in events:
                        if isinstance(event, PermissionAsked):
                            self._record({"type": "asked", "id": event.call_id})
                        yield event
                        if isinstance(event, RunEnded):
                            break
                    await work
                finally:
                    if not work.done():
                        self.box.abort()
                        await asyncio.wait((work,))
        finally:
            self._running = False

    async def ask(self, prompt: Prompt) -> str:
        """Say something and wait for the model's last words. Raises `SessionError` when the run ends otherwise."""
        said = ""
        async for event in self.run(prompt):
            if isinstance(event, RunEnded):
                if event.is_error:
                    raise SessionError(event.detail or event.why)
                said = event.text
        return said

    async def compact(self, wish: str = "") -> None:
        """Have the conversation summed up now. Raises `SessionError` or `ProviderFailure`."""
        if self._running:
            raise SessionError("this session is running; compact it when it has ended")
        await self._load()
        if self.conversation.messages:
            await self._prepared()
            await self._room().compact("manual", self.box.stop, wish)
            await self._flushed()

    def abort(self) -> None:
        """Interrupt the run: the stream ends, tools are stopped, every open call gets a result."""
        self.box.abort()

    async def _run(self, prompt: Prompt, abort: Abort) -> None:
        started = time.monotonic()
        before = self.conversation.turns
        why, detail, text = "error", "", ""
        try:
            why, detail, text = await self._conversed(prompt, abort)
        except Aborted as aborted:
            why, detail = "interrupted", aborted.reason
        except (ProviderFailure, SessionError) as failure:
            detail = str(failure)
        except Exception as bug:
            detail = f"{type(bug).__name__}: {bug}"
            raise
        finally:
            try:
                await self._flushed()
            except SessionError as failure:
                why, detail = "error", str(failure)
            self.box.events.emit(
                RunEnded(
                    why=why,
                    text=text,
                    turns=self.conversation.turns - before,
                    cost=self.conversation.cost,
                    seconds=time.monotonic() - started,
                    is_error=why not in ("done", "interrupted"),
                    detail=detail,
                )
            )

    async def _conversed(self, prompt: Prompt, abort: Abort) -> tuple[str, str, str]:
        """The whole run; returns why it ended, in a word and in a line, and the model's last words."""
        content = _content(prompt)
        await self._load()
        added = await self._prepared()
        added += await self._moments.prompted("\n".join(block["text"] for block in content if block["type"] == "text"))
        self._record({"type": "user", "content": [*content, *({"type": "text", "text": line} for line in added)]})
        turns, text = 0, ""
        while True:
            if abort.aborted:
                raise Aborted(abort.reason)
            if limit := self._limit(turns):
                return *limit, text
            turns += 1
            exchange = await self._answer(turns, abort)
            text = _words(exchange) or text
            if ended := _ended(exchange, abort):
                if ended[0] != "done" or (why := await self._moments.stopping(text)) is None:
                    return *ended, text
                self._record({"type": "user", "content": [{"type": "text", "text": why}]})

    async def _answer(self, number: int, abort: Abort) -> Exchange:
        """One exchange; a conversation that is too much for the provider is made to fit."""
        await self._outset.refresh()
        if self.conversation.tokens > FULL * self.provider.context_window:
            await self._room().compact("auto", abort)
        if self._exchanger is None:
            self._exchanger = Exchanger(self.box, self.provider, self._breaker, self._record)
        while True:
            try:
                exchange = await self._exchanger.exchange(self._request(), number, self.conversation.ids, abort)
            except ProviderFailure as failure:
                if not await self._room().after(failure, abort):
                    raise
            else:
                if self._relief is not None:
                    self._relief.tried = 0
                return exchange

    def _limit(self, turns: int) -> tuple[str, str] | None:
        if self.max_turns is not None and turns >= self.max_turns:
            return "max_turns", f"stopped after {turns} turns"
        spent = self.conversation.cost - self._spent_before
        if self.max_cost is not None and spent >= self.max_cost:
            return "max_cost", f"stopped at a cost of ${spent:.4f}"
        return None

    async def _load(self) -> None:
        """Read what an earlier session had come to, once."""
        if self._resumed_from is not None:
            folder, self._resumed_from = self._resumed_from, None
            self.conversation = await in_thread(_told_in, folder)
            self._spent_before = self.conversation.cost

    async def _prepared(self) -> tuple[str, ...]:
        """Begin, once: the header, the tools offered, the prompt, the start hooks. Returns what the hooks add."""
        if self._started:
            return ()
        await self._outset.prepare(self.provider, self.conversation.activated, self._activated)
        model = self.conversation.header.get("model")
        if self._copied_from is not None:
            self._copy_history()
        elif self.conversation.header and model != self.provider.model:
            self.conversation.restart(_without_thoughts(self.conversation.settled()))
        if not self.conversation.header or self._copied_from is not None:
            self._record(self._header())
        self._started = True
        return await self._moments.started("resume" if self.conversation.turns else "startup", self.provider.model)

    def _activated(self, names: list[str]) -> None:
        self._record({"type": "activated", "tools": names})

    def _copy_history(self) -> None:
        """A fork begins with the whole of the conversation it was made from."""
        messages = [message.as_dict() for message in self.conversation.settled()]
        self._record({"type": "compacted", "trigger": "fork", "messages": messages})

    def _header(self) -> dict[str, Any]:
        return {
            "type": "session",
            "v": VERSION,
            "id": self.id,
            "root": self.box.workspace.root,
            "model": self.provider.model,
            "at": time.time(),
            **({"fork_of": self._copied_from} if self._copied_from else {}),
        }

    def _request(self) -> Request:
        outset = self._outset
        return Request(
            system=outset.prompt,
            messages=self.conversation.settled(),
            tools=outset.offers,
            breaks=outset.breaks,
            thinking_budget=self._thinking_budget,
        )

    def _room(self) -> Relief:
        if self._relief is None:
            from wieldy.session.relief import Relief

            self._relief = Relief(self.box, self.provider, self.conversation, self._record, self._moments)
        return self._relief

    def _record(self, record: dict[str, Any]) -> None:
        if self._transcript is not None:
            self._transcript.append(record)
        self.conversation.take(record)

    async def _flushed(self) -> None:
        if self._transcript is not None:
            await self._transcript.flushed()

    def _picked(self) -> Provider:
        if self._model is not None and not isinstance(self._model, str):
            return self._model
        from wieldy.providers.pick import pick

        settings, env = self.box.settings, self.box.workspace.env
        model = self._model or env.get("WIELDY_MODEL") or settings.get("model")
        return pick(model, base_url=self._base_url or settings.get("baseUrl"), env=env)

    async def aclose(self) -> None:
        """Stop, tell the hooks, write the rest of the transcript, let go of everything."""
        self.box.abort("the session was closed")
        if self._started:
            self._started = False
            await self._moments.ended("other")
        await self.box.aclose()
        if self._transcript is not None:
            await self._transcript.aclose()
        if self._provider is not None:
            await self._provider.aclose()

    async def __aenter__(self) -> Self:
        await self._load()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def _existing(session_id: str) -> Path:
    from wieldy.session.store import session_folder

    folder = session_folder(session_id)
    if not (folder / NAME).exists():
        raise SessionError(f"there is no session {session_id}; `wieldy sessions` lists them")
    return folder


def _told_in(folder: Path) -> Conversation:
    return fold(records(folder))


def _content(prompt: Prompt) -> list[dict[str, Any]]:
    blocks = [{"type": "text", "text": prompt}] if isinstance(prompt, str) else [dict(block) for block in prompt]
    content = [{**b, "text": clean(b["text"])} if isinstance(b.get("text"), str) else b for b in blocks]
    if not any(block.get("type") != "text" or block["text"].strip() for block in content):
        raise SessionError("the prompt is empty")
    return content


def _without_thoughts(history: Sequence[Message]) -> list[Message]:
    """For another model: thoughts are signed by the one that had them."""
    kinds = ("thinking", "redacted_thinking")
    return [Message(m.role, tuple(b for b in m.content if b["type"] not in kinds)) for m in history]


def _words(exchange: Exchange) -> str:
    return "\n".join(block["text"] for block in exchange.answer.content() if block["type"] == "text")


def _ended(exchange: Exchange, abort: Abort) -> tuple[str, str] | None:
    """Why the run is over, or None when the model is to be asked again."""
    if exchange.interrupted:
        return "interrupted", abort.reason
    if exchange.looping:
        return "looping", "the model kept making the same failing call"
    if exchange.results or exchange.broken is not None or exchange.answer.stop_reason == "pause_turn":
        return None
    match exchange.answer.stop_reason:
        case "max_tokens":
            return "max_tokens", "the answer was cut off at the length limit"
        case "refusal":
            return "refusal", "the model refused"
    return "done", ""
