"""`Session`: a toolbox and a model in a loop, with a transcript one can go on from."""

from __future__ import annotations

import asyncio
import datetime
import os
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from wieldy.approval import Ask
from wieldy.core.abort import Abort
from wieldy.core.event import Event, RunEnded
from wieldy.core.failure import SessionError
from wieldy.core.places import state_home
from wieldy.core.provider import Provider, ProviderFailure, Request, ToolOffer
from wieldy.core.tool import Tool
from wieldy.engine.leash import Aborted
from wieldy.session.breaker import Breaker
from wieldy.session.conversation import Conversation, fold
from wieldy.session.exchange import Exchange, Exchanger
from wieldy.session.prompt import instructions, surroundings, system_prompt
from wieldy.session.transcript import VERSION, Transcript, records
from wieldy.toolbox import Toolbox


class Session:
    """A conversation with a model that has tools. `model` is `provider/name`, `script:FILE`, or a `Provider`."""

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
        base_url: str | None = None,
        max_turns: int | None = None,
        max_cost: float | None = None,
        system: str = "",
        resume: str | None = None,
        persist: bool = True,
    ) -> None:
        self.box = Toolbox(
            root, mode=mode, settings=settings, tools=tools, ask=ask, load_settings=load_settings, session_id=resume
        )
        self.max_turns = max_turns
        self.max_cost = max_cost
        self._model = model
        self._base_url = base_url
        self._system = system
        self._folder = self.box.workspace.session_dir
        self._transcript = Transcript(self._folder) if persist else None
        self._provider: Provider | None = None
        self._offers: tuple[ToolOffer, ...] | None = None
        self._prompt: tuple[str, ...] = ()
        self._breaker = Breaker()
        self._running = False
        self.conversation = self._resumed(resume) if resume else Conversation()

    @property
    def id(self) -> str:
        """What to resume this session by."""
        return self.box.id

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The conversation in the form of the Anthropic Messages API."""
        return [message.as_dict() for message in self.conversation.settled()]

    @property
    def provider(self) -> Provider:
        """The model in use."""
        if self._provider is None:
            self._provider = self._picked()
        return self._provider

    async def run(self, prompt: str | list[Mapping[str, Any]]) -> AsyncIterator[Event]:
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

    async def ask(self, prompt: str) -> str:
        """Say something and wait for the model's last words."""
        said = ""
        async for event in self.run(prompt):
            if isinstance(event, RunEnded):
                if event.is_error:
                    raise SessionError(event.detail or event.why)
                said = event.text
        return said

    def abort(self) -> None:
        """Interrupt the run: the stream ends, tools are stopped, every open call gets a result."""
        self.box.abort()

    async def _run(self, prompt: str | list[Mapping[str, Any]], abort: Abort) -> None:
        started = time.monotonic()
        turns = 0
        text = ""
        try:
            why, detail = "done", ""
            await self._prepare()
            content = (
                [{"type": "text", "text": prompt}] if isinstance(prompt, str) else [dict(block) for block in prompt]
            )
            self._record({"type": "user", "content": content})
            while True:
                if limit := self._limit(turns):
                    why, detail = limit
                    break
                turns += 1
                exchange = await self._exchanger().exchange(self._request(), turns, self.conversation.ids, abort)
                text = _words(exchange) or text
                if ended := _ended(exchange):
                    why, detail = ended
                    break
        except Aborted:
            why = "interrupted"
        except (ProviderFailure, SessionError) as failure:
            why, detail = "error", str(failure)
        except Exception as bug:
            why, detail = "error", f"{type(bug).__name__}: {bug}"
            raise
        finally:
            await self._flushed()
            self.box.events.emit(
                RunEnded(
                    why=why,
                    text=text,
                    turns=turns,
                    cost=self.conversation.cost,
                    seconds=time.monotonic() - started,
                    is_error=why not in ("done", "interrupted"),
                    detail=detail,
                )
            )

    def _limit(self, turns: int) -> tuple[str, str] | None:
        if self.max_turns is not None and turns >= self.max_turns:
            return "max_turns", f"stopped after {turns} turns"
        if self.max_cost is not None and self.conversation.cost >= self.max_cost:
            return "max_cost", f"stopped at a cost of ${self.conversation.cost:.4f}"
        return None

    async def _prepare(self) -> None:
        """What is the same for every request of the session: the tools offered, and the prompt."""
        if self._offers is not None:
            return
        offered = [entry.tool for entry in await self.box.offer() if entry.offered]
        self._offers = tuple(ToolOffer(tool.name, tool.description, tool.schema) for tool in offered)
        root = self.box.workspace.root
        stable = system_prompt(offered, mode=self.box.policy.mode, extra=self._system)
        today = datetime.date.today().isoformat()
        here = surroundings(self.box.workspace.cwd, root, today=today, model=self.provider.model)
        self._prompt = tuple(part for part in (stable, instructions(root), here) if part)
        if not self.conversation.header:
            self._record(
                {
                    "type": "session",
                    "v": VERSION,
                    "id": self.id,
                    "root": root,
                    "model": self.provider.model,
                    "at": time.time(),
                }
            )

    def _request(self) -> Request:
        return Request(
            system=self._prompt,
            messages=self.conversation.settled(),
            tools=self._offers or (),
            breaks=(len(self._offers or ()),),
        )

    def _exchanger(self) -> Exchanger:
        return Exchanger(self.box, self.provider, self._breaker, self._record)

    def _record(self, record: dict[str, Any]) -> None:
        self.conversation.take(record)
        if self._transcript is not None:
            self._transcript.append(record)

    async def _flushed(self) -> None:
        if self._transcript is not None:
            await self._transcript.flushed()

    def _picked(self) -> Provider:
        if self._model is not None and not isinstance(self._model, str):
            return self._model
        from wieldy.providers.pick import pick

        return pick(self._model or self.box.settings.get("model"), base_url=self._base_url, env=self.box.workspace.env)

    def _resumed(self, session_id: str) -> Conversation:
        if not (self._folder / "transcript.jsonl").exists():
            raise SessionError(f"there is no session {session_id}; `wieldy sessions` lists them")
        return fold(records(self._folder))

    async def aclose(self) -> None:
        """Stop, write the rest of the transcript, let go of everything."""
        await self.box.aclose()
        if self._transcript is not None:
            await self._transcript.aclose()
        if self._provider is not None:
            await self._provider.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def sessions_folder() -> Path:
    """Where sessions are kept."""
    return state_home() / "sessions"


def _words(exchange: Exchange) -> str:
    return "\n".join(block["text"] for block in exchange.answer.content() if block["type"] == "text")


def _ended(exchange: Exchange) -> tuple[str, str] | None:
    """Why the run is over, or None when the model is to be asked again."""
    if exchange.interrupted:
        return "interrupted", ""
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
