"""`Session`: a toolbox and a model in a loop, with a transcript from which it can be resumed."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, overload

from wieldy.agent.deferred import Reply, install_deferral
from wieldy.agent.event_stream import EventStream, TypedEventStream, final_text, require_answer
from wieldy.agent.loop import AgentLoop, RequestOptions, RunLimits
from wieldy.agent.models import SessionModels
from wieldy.agent.prompts import Prompt, initial_history
from wieldy.agent.records import ApprovalRequested, SessionHeader, TaskDelegated
from wieldy.agent.rewind import Rewind
from wieldy.agent.runs import SessionRuns, Work
from wieldy.agent.session_setup import SessionSetup, report_text, session_host, with_agents
from wieldy.agent.session_state import SessionState
from wieldy.agent.store import check_session_ids, require_new
from wieldy.agent.system_prompt import ROLE, instruction_scope
from wieldy.agent.transcript_store import EarlierSession, Store, open_transcript
from wieldy.agent.typed_answers import AnswerType, send_prompt
from wieldy.core.backend import Backend
from wieldy.core.call import ToolCall
from wieldy.core.errors import SessionError
from wieldy.core.option_checks import require_count
from wieldy.core.outcome import Waiting
from wieldy.core.provider import Provider
from wieldy.core.tool import Tool
from wieldy.engine.services import Ask
from wieldy.engine.toolbox import Toolbox
from wieldy.engine.workspace_services import HostServices

if TYPE_CHECKING:
    from wieldy.policy.hooks.config import Hook
    from wieldy.tools.subagents.definitions import AgentType

T = TypeVar("T")


class Session(SessionState):
    """A conversation with a model that has tools. `model` is `provider/name`, `script:FILE`, or a `Provider`.

    With `ask="defer"` a run that needs a permission ends with `RunEnded(why="waiting")`: see `pending` and `answer`.
    `small_model` answers questions about web pages, `fallback_model` takes over while `model` is overloaded. `resume` goes
    on with an earlier session by its id, or the beginning of it; with `fork`, in a copy of it. `session_id` is the id of a
    new one. `max_cost` is in US dollars and counts from now on. `system_prompt` replaces ours (the guidance of the tools stays),
    `append_system` adds to it.
    `instructions=False` leaves out AGENTS.md and CLAUDE.md; with `settings` the user's own are left out anyway. `messages` is
    a history to start from, in the form of the Anthropic Messages API. `store` keeps the transcript in place of files. `env`
    replaces the environment of this process.
    `state_dir` replaces the user's state folder, `session_dir` that of this session alone. Other options are those of
    `Toolbox`.
    """

    def __init__(  # noqa: PLR0913 - every option is a keyword with a default
        self,
        root: str | os.PathLike[str] = ".",
        *,
        model: str | Provider | None = None,
        mode: str | None = None,
        settings: Mapping[str, Any] | None = None,
        tools: Iterable[Tool] = (),
        ask: Ask | Literal["defer"] | None = None,
        deps: Any = None,
        settings_file: str | os.PathLike[str] | None = None,
        load_settings: bool | Collection[str] | None = None,
        builtins: bool | Collection[str] = True,
        hooks: Sequence[Hook] = (),
        agents: Sequence[AgentType] = (),
        servers: bool | Collection[str] = True,
        small_model: str | Provider | None = None,
        fallback_model: str | Provider | None = None,
        base_url: str | None = None,
        max_turns: int | None = None,
        max_cost: float | None = None,
        thinking_budget: int | None = None,
        server_tools: Sequence[Mapping[str, Any]] = (),
        system_prompt: str | None = None,
        append_system: str = "",
        instructions: bool = True,
        messages: Sequence[Mapping[str, Any]] = (),
        resume: str | None = None,
        fork: bool = False,
        session_id: str | None = None,
        persist: bool = True,
        store: Store | None = None,
        env: Mapping[str, str] | None = None,
        session_dir: str | os.PathLike[str] | None = None,
        state_dir: str | os.PathLike[str] | None = None,
        host: HostServices | None = None,
        backend: Backend | None = None,
    ) -> None:
        limits = RunLimits(max_turns, max_cost).checked()
        require_count("thinking_budget", thinking_budget, least=0)
        check_session_ids(session_id, resume, fork=fork)
        self._earlier = None if resume is None else EarlierSession(resume, store)
        resumed_id = None if self._earlier is None else self._earlier.id
        tools = tuple(tools)
        self._deferred, ask, host = install_deferral(
            ask,
            with_agents(host or HostServices(), agents, builtins, tools),
            resumes=resume is not None,
            record=lambda one: self.transcript.append(one),  # noqa: PLW0108 - made below
        )
        self.box = Toolbox(
            root,
            mode=mode,
            settings=settings,
            settings_file=settings_file,
            tools=tools,
            ask=ask,
            deps=deps,
            load_settings=load_settings,
            builtins=builtins,
            hooks=hooks,
            servers=servers,
            on_question=lambda call_id: self.transcript.append(ApprovalRequested(call_id)),
            options=lambda: self._setup.tool_options(),  # noqa: PLW0108 - the setup is made below
            host=session_host(host, lambda: self._setup),
            session_id=session_id if fork or resumed_id is None else resumed_id,
            env=env,
            session_dir=session_dir,
            state_dir=state_dir,
            backend=backend,
        )
        if session_id is not None and resumed_id is None:
            require_new(self.box.workspace.session_dir, session_id)
        self._resumed_header: SessionHeader | None = None
        self._models = SessionModels(
            self.box, model, small_model, base_url, header=lambda: self._resumed_header, fallback=fallback_model
        )
        self.transcript = open_transcript(store, self.box.workspace.session_dir, self.box.id, persist=persist)
        history = initial_history(messages, resumes=resume is not None)
        if history is not None:
            self.conversation.apply(history)
        scope = instruction_scope(instructions, reads_user_files=load_settings or settings is None)
        self._runs = SessionRuns(self.box, self.transcript, self._prepare)
        self.rewind = Rewind(self.box, self.transcript, lambda: self.running)
        self._setup = SessionSetup(
            self.box,
            self._models,
            self.transcript,
            append_system=append_system,
            role=ROLE if system_prompt is None else system_prompt,
            limits=limits,
            options=RequestOptions(thinking_budget, tuple(server_tools), scope),
            forked_from=resumed_id if fork else None,
            steering=self._runs.steering,
            history=history,
        )
        self._loop: AgentLoop | None = None
        self._start_context: tuple[str, ...] = ()

    def run(self, prompt: Prompt, *, returns: Any = None, stream_deltas: bool = True) -> EventStream:
        """Send a prompt and iterate over events until the model has nothing more to call. The last is `RunEnded`.

        Leaving the iteration early interrupts the run. With `stream_deltas`, text comes piece by piece as it is generated.
        With `returns`, the answer is checked as in `ask`; `RunEnded.data` has it as JSON.
        """
        return self._runs.stream(send_prompt(prompt, returns), stream_deltas=stream_deltas)

    @overload
    async def ask(self, prompt: Prompt) -> str: ...
    @overload
    async def ask(self, prompt: Prompt, *, returns: type[T]) -> T: ...
    @overload
    async def ask(self, prompt: Prompt, *, returns: Mapping[str, Any]) -> Any: ...

    async def ask(self, prompt: Prompt, *, returns: Any = None) -> Any:
        """Send a prompt and return the model's last text. Raises `SessionError` when the run ends otherwise.

        With `returns` the answer has a type: a dataclass, TypedDict, msgspec.Struct, pydantic model or whatever else a tool may
        take, such as `list[Plan]`; or a JSON Schema, for plain JSON. An answer that does not fit goes back to the model with the
        problems, a few times.
        """
        ended = await self._runs.finish(send_prompt(prompt, returns))
        if returns is None:
            return final_text(ended)
        require_answer(ended)
        return self._runs.last_value

    @overload
    def answer(self, replies: Mapping[str, Reply], *, stream_deltas: bool = True) -> EventStream: ...
    @overload
    def answer(
        self, replies: Mapping[str, Reply], *, returns: type[T], stream_deltas: bool = True
    ) -> TypedEventStream[T]: ...
    @overload
    def answer(
        self, replies: Mapping[str, Reply], *, returns: Mapping[str, Any], stream_deltas: bool = True
    ) -> TypedEventStream[Any]: ...

    def answer(
        self, replies: Mapping[str, Reply], *, returns: Any = None, stream_deltas: bool = True
    ) -> EventStream | TypedEventStream[Any]:
        """Answer pending questions by their ids and go on: await it for the last text, or iterate over it for the events.

        With `returns`, as it was given to `ask`, the answer has a type and is checked.
        A reply is True, False, words for the model (a no), or an `Answer`. Questions of AskUser are answered with text, a list,
        or a dict by question. Questions that are not answered stay pending.
        """
        work = self._deferred.resume_with(replies, lambda: self.conversation, self._go_on)
        if returns is None:
            return self._runs.stream(work, stream_deltas=stream_deltas)
        return self._runs.typed_stream(AnswerType(returns).check(work), stream_deltas=stream_deltas)

    async def delegate(self, agent_type: str, prompt: str) -> str:
        """Have a subagent do a task beside the conversation; returns its report. Raises `SessionError` where it fails.

        With `ask="defer"` it may have questions: then this is what it has said so far, and `answer` goes on to its report.
        """
        self._runs.require_open()
        self._start_context += (await self._prepare())[1]
        call = ToolCall(f"delegated_{os.urandom(8).hex()}", "Agent", {"agent_type": agent_type, "prompt": prompt})
        self.transcript.append(TaskDelegated(call.id))
        [result] = await self.box.call_many([call])
        await self.transcript.flush()
        return self._setup.text_so_far(call.id) if isinstance(result.outcome, Waiting) else report_text(result)

    def steer(self, prompt: Prompt) -> None:
        """Say something while the model works: it hears it with its next request, instead of ending if it has no more calls.

        Raises `SessionError` where nothing runs.
        """
        self._runs.steer(prompt)

    async def compact(self, instructions: str = "") -> None:
        """Replace the conversation by a summary. Raises `SessionError` or `ProviderFailure`."""
        self._runs.require_open()
        if self.running:
            raise SessionError("this session is running; compact it when it has ended")
        await self._load()
        if self.pending:
            raise SessionError("questions are waiting for an answer; compact the session when they are answered")
        if self.conversation.messages:
            loop, _ = await self._prepare()
            await loop.compactor().compact("manual", self.box.services.abort, instructions)
            await self.transcript.flush()

    def abort(self, reason: str = "interrupted by the user") -> None:
        """Interrupt the run: the stream ends, tools are stopped, every open call gets a result."""
        self.box.abort(reason)

    async def aclose(self) -> None:
        """Stop, fire the hooks, write the rest of the transcript, release everything."""
        if self._runs.is_closed:
            return
        async with AsyncExitStack() as stack:
            for close in (self._models.aclose, self.transcript.aclose, self.box.aclose):  # the last one first
                stack.push_async_callback(close)
            await self._runs.aclose()
            if self._loop is not None:
                loop, self._loop = self._loop, None
                await loop.hooks.on_end("other")

    async def __aenter__(self) -> Self:
        await self._load()
        await self.box.__aenter__()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.aclose()

    def _go_on(self, calls: set[str]) -> Work:
        from wieldy.policy.permissions.paths import is_below

        workspace = self.box.workspace
        folder = next((question.cwd for question in self.conversation.open_questions() if not question.agent), "")
        if any(is_below(folder, root) for root in workspace.roots):
            workspace.cwd = folder  # the calls are about the folder that the first question was asked in

        def keep(context: tuple[str, ...]) -> None:
            self._start_context += context

        return self._setup.go_on(calls, keep)

    async def _load(self) -> None:
        """Read the transcript of the session to resume, once."""
        if self._earlier is not None:
            await self._earlier.load(self.transcript)
            self._earlier = None
            self._resumed_header = self.conversation.header

    async def _prepare(self) -> tuple[AgentLoop, tuple[str, ...]]:
        """Return the loop, and what start hooks have added to the context that no prompt has carried yet."""
        await self._load()
        context, self._start_context = self._start_context, ()
        if self._loop is not None:
            return self._loop, context
        loop = self._loop = await self._setup.make_loop()
        source = "resume" if self.conversation.turns else "startup"
        return loop, await loop.hooks.on_start(source, self.provider.model)
