"""`Session`: a toolbox and a model in a loop, with a transcript one can go on from."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from wieldy.agent.conversation import Conversation, fold
from wieldy.agent.loop import AgentLoop, RequestOptions, RunEnd, RunLimits
from wieldy.agent.models import SessionModels
from wieldy.agent.request_prefix import RequestPrefix
from wieldy.agent.session_hooks import SessionHooks
from wieldy.agent.side_requests import SideRequests
from wieldy.agent.transcript import NAME, VERSION, Transcript, cleaned, records
from wieldy.approval import Ask
from wieldy.core.abort import Abort
from wieldy.core.errors import SessionError
from wieldy.core.events import Event, RunEnded
from wieldy.core.provider import Provider, ProviderFailure, SideModel
from wieldy.core.threads import in_thread
from wieldy.core.tool import Tool, ToolContext
from wieldy.engine.supervise import Aborted
from wieldy.toolbox import Toolbox

if TYPE_CHECKING:
    from wieldy.agent.subagents import SubagentStarter
    from wieldy.hooks.config import Hook
    from wieldy.subagents.tasks import SubagentHandle, SubagentTask


Prompt = str | Sequence[Mapping[str, Any]]


class Session:
    """A conversation with a model that has tools. `model` is `provider/name`, `script:FILE`, or a `Provider`.

    `small_model` answers questions about web pages. `resume` goes on with an earlier session by its id; `fork` with a copy of it.
    `max_cost` is in US dollars, and holds for what is spent from here on.
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
        settings_file: str | os.PathLike[str] | None = None,
        load_settings: bool | None = None,
        builtins: bool = True,
        hooks: Sequence[Hook] = (),
        small_model: str | Provider | None = None,
        base_url: str | None = None,
        max_turns: int | None = None,
        max_cost: float | None = None,
        thinking_budget: int | None = None,
        server_tools: Sequence[Mapping[str, Any]] = (),
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
            settings_file=settings_file,
            tools=tools,
            ask=ask,
            load_settings=load_settings,
            builtins=builtins,
            hooks=hooks,
            session_id=None if fork else resume,
        )
        self.box.witness(self._asked)
        self._bounds = RunLimits(max_turns, max_cost)
        self._wishes = RequestOptions(thinking_budget, tuple(server_tools))
        self._partners = SessionModels(self.box, model, small_model, base_url)
        self._asides = SideRequests(self._partners, self._record)
        self.box.workspace.service(SideModel).complete = self._asides.complete
        self._outset = RequestPrefix(self.box, system)
        self._transcript = Transcript(self.box.workspace.session_dir) if persist else None
        self._copied_from = resume if fork else None
        self._loop: AgentLoop | None = None
        self._delegates: SubagentStarter | None = None
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
        return self._partners.large

    @property
    def model_name(self) -> str:
        """What the model is called, as far as that is known."""
        return self._partners.name

    @property
    def running(self) -> bool:
        """Whether a run is under way."""
        return self._running

    @property
    def ready(self) -> bool:
        """Whether the first request could go out: there is a model, and the tools are known."""
        return self._loop is not None

    @property
    def offered(self) -> list[str]:
        """The tools the model is offered, once the session is ready."""
        return [offer.name for offer in self._outset.offers]

    async def run(self, prompt: Prompt, *, stream_deltas: bool = True) -> AsyncIterator[Event]:
        """Say something and follow what comes of it, until the model has nothing more to call.

        The last event is `RunEnded`. Leaving the loop early interrupts the run. Unless `closely`, what the model says is told
        when it has said it, not piece by piece.
        """
        self._begin()
        try:
            async with self.box.events.stream(stream_deltas=stream_deltas) as events:
                work = asyncio.get_running_loop().create_task(self._run(prompt, self.box.stop))
                try:
                    async for event in events:
                        yield event
                        if isinstance(event, RunEnded):
                            break
                    await work
                finally:
                    await self._left(work)
        finally:
            self._running = False

    async def ask(self, prompt: Prompt) -> str:
        """Say something and wait for the model's last words. Raises `SessionError` when the run ends otherwise.

        Nobody listens to what happens meanwhile, so no event is made, unless the session has subscribers.
        """
        self._begin()
        try:
            work = asyncio.get_running_loop().create_task(self._run(prompt, self.box.stop))
            try:
                ended = await asyncio.shield(work)
            finally:
                await self._left(work)
        finally:
            self._running = False
        if ended.is_error:
            raise SessionError(ended.detail or ended.why)
        return ended.text

    async def compact(self, wish: str = "") -> None:
        """Have the conversation summed up now. Raises `SessionError` or `ProviderFailure`."""
        if self._running:
            raise SessionError("this session is running; compact it when it has ended")
        await self._load()
        if self.conversation.messages:
            loop, _ = await self._begun()
            await loop.room().compact("manual", self.box.stop, wish)
            await self._flushed()

    def abort(self) -> None:
        """Interrupt the run: the stream ends, tools are stopped, every open call gets a result."""
        self.box.abort()

    def _begin(self) -> None:
        if self._running:
            raise SessionError("this session is already running; wait for it, or start another")
        self._running = True

    async def _left(self, work: asyncio.Task[RunEnded]) -> None:
        """Whoever followed a run goes away: one that is not over is interrupted, and comes to its end."""
        if not work.done():
            self.box.abort()
            await asyncio.wait((work,))

    def _asked(self, call_id: str) -> None:
        self._record({"type": "asked", "id": call_id})

    async def _run(self, prompt: Prompt, abort: Abort) -> RunEnded:
        started = time.monotonic()
        before = self.conversation.turns
        end = RunEnd("error")
        try:
            content = _content(prompt)
            if self._loop is not None:
                await self._loop.moments.stop_idle_timer()
            await self._load()
            before = self.conversation.turns
            loop, added = await self._begun()
            end = await loop.follow(content, added, abort)
        except Aborted as aborted:
            end = RunEnd("interrupted", aborted.reason)
        except (ProviderFailure, SessionError) as failure:
            end = RunEnd("error", str(failure))
        except Exception as bug:
            end = RunEnd("error", f"{type(bug).__name__}: {bug}")
            raise
        finally:
            try:
                await self._flushed()
            except SessionError as failure:
                end = RunEnd("error", str(failure), end.text)
            ended = RunEnded(
                why=end.why,
                text=end.text,
                turns=self.conversation.turns - before,
                cost=self.conversation.cost,
                seconds=time.monotonic() - started,
                is_error=end.why not in ("done", "interrupted"),
                detail=end.detail,
            )
            if self._loop is not None:
                self._loop.moments.start_idle_timer()
            self.box.events.emit(ended)
        return ended

    async def _load(self) -> None:
        """Read what an earlier session had come to, once."""
        if self._resumed_from is not None:
            if self._transcript is not None and self._copied_from is None:
                self._transcript.claim()  # before it is read: nobody may add to it meanwhile
            self.conversation = await in_thread(_told_in, self._resumed_from)
            self._resumed_from = None

    async def _begun(self) -> tuple[AgentLoop, tuple[str, ...]]:
        """The loop; the first time with the header, the tools offered, the prompt, and what start hooks add to it."""
        if self._loop is not None:
            return self._loop, ()
        provider, told = self.provider, self.conversation
        self._asides.serve(self.box.workspace)
        self._may_send()
        await self._outset.prepare(provider, told.activated, self._activated)
        if self._copied_from is not None:
            self._copy_history()
        elif told.header and told.header.get("model") != provider.model:
            self._record({"type": "model", "model": provider.model})
        if not told.header or self._copied_from is not None:
            self._record(self._header())
        idle_ms = self.box.settings.get("messageIdleNotifThresholdMs", 60_000)
        moments = SessionHooks(self.box.hooks, idle_ms / 1000)
        durable = self._flushed if self._transcript is not None else None
        given = (self._outset, moments, self._bounds, self._wishes)
        self._loop = AgentLoop(self.box, provider, told, self._record, *given, durable=durable)
        return self._loop, await moments.started("resume" if told.turns else "startup", provider.model)

    def _may_send(self) -> None:
        from wieldy.subagents.tasks import SubagentAccess

        self.box.workspace.service(SubagentAccess).send = self._send

    async def _send(self, task: SubagentTask, ctx: ToolContext) -> SubagentHandle:
        """Set a sub-agent to work; what that takes is loaded with the first of them."""
        if self._delegates is None:
            from wieldy.agent.subagents import SubagentStarter, home_of

            assert self._loop is not None
            self._delegates = SubagentStarter(
                home_of(self.box, self._loop, self._partners.named(), persist=bool(self._transcript))
            )
        return await self._delegates.send(task, ctx)

    def _activated(self, names: list[str]) -> None:
        self._record({"type": "activated", "tools": names})

    def _copy_history(self) -> None:
        """A fork begins with the whole of the conversation it was made from, and knows every id that was used in it."""
        messages, ids = [message.as_dict() for message in self.conversation.settled()], sorted(self.conversation.ids)
        self._record({"type": "compacted", "trigger": "fork", "messages": messages, "ids": ids})

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

    def _record(self, record: dict[str, Any]) -> None:
        if self._transcript is not None:
            self._transcript.append(record)
        self.conversation.take(record)

    async def _flushed(self, *, results: bool = False) -> None:
        if self._transcript is not None:
            await self._transcript.flushed(results=results)

    async def aclose(self) -> None:
        """Stop, tell the hooks, write the rest of the transcript, let go of everything."""
        self.box.abort("the session was closed")
        if self._loop is not None:
            loop, self._loop = self._loop, None
            await loop.moments.ended("other")
        await self.box.aclose()
        if self._transcript is not None:
            await self._transcript.aclose()
        await self._partners.aclose()

    async def __aenter__(self) -> Self:
        await self._load()
        await self.box.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def _existing(session_id: str) -> Path:
    from wieldy.agent.store import session_folder

    folder = session_folder(session_id)
    if not (folder / NAME).exists():
        raise SessionError(f"there is no session {session_id}; `wieldy sessions` lists them")
    return folder


def _told_in(folder: Path) -> Conversation:
    return fold(records(folder))


def _content(prompt: Prompt) -> list[dict[str, Any]]:
    blocks = [{"type": "text", "text": prompt}] if isinstance(prompt, str) else list(prompt)
    content: list[dict[str, Any]] = [cleaned(block) for block in blocks]
    if not all(isinstance(block.get("type"), str) for block in content):
        raise SessionError("a prompt is text, or a list of content blocks, each with its `type`")
    if not any(block["type"] != "text" or block["text"].strip() for block in content):
        raise SessionError("the prompt is empty")
    return content
