"""`Session`: a toolbox and a model in a loop, with a transcript from which it can be resumed."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, Unpack, overload

from msgspec.structs import replace

from wieldy.agent.deferred import Reply, install_deferral
from wieldy.agent.loop import AgentLoop, Prompt, RequestOptions, RunEnd, RunLimits, initial_history
from wieldy.agent.models import SessionModels, SideRequests
from wieldy.agent.records import (
    VERSION,
    ApprovalRequested,
    ModelChanged,
    QuestionDeferred,
    SessionHeader,
    TaskDelegated,
    ToolsActivated,
)
from wieldy.agent.resume import settle_lost
from wieldy.agent.rewind import Rewind
from wieldy.agent.runs import (
    AnswerType,
    EventStream,
    SessionRuns,
    TypedEventStream,
    Work,
    final_text,
    require_answer,
    send_prompt,
)
from wieldy.agent.session_hooks import SessionHooks
from wieldy.agent.store import EarlierSession, check_session_ids, require_new
from wieldy.agent.system_prompt import ROLE, RequestPrefix, instruction_scope
from wieldy.agent.transcript import Store, Transcript, open_transcript
from wieldy.core.call import ToolCall
from wieldy.core.errors import SessionError, ToolFailure
from wieldy.core.option_checks import require_count
from wieldy.core.outcome import Waiting
from wieldy.core.provider import Provider, ToolSpec
from wieldy.core.supervise import Abort
from wieldy.core.tool import Options, ToolContext
from wieldy.engine.services import Ask
from wieldy.engine.toolbox import Toolbox, ToolboxOptions
from wieldy.engine.workspace_services import HostServices

if TYPE_CHECKING:
    from wieldy.agent.conversation import Conversation
    from wieldy.agent.subagents import SubagentStarter
    from wieldy.models.catalog import DefaultModel
    from wieldy.tools.subagents import AgentDefinition, AgentType, SubagentHandle, SubagentTask

T = TypeVar("T")


class Session:
    """A conversation with a model that has tools. `model` is `provider/name`, `script:FILE`, or a `Provider`.

    With `ask="defer"` a run that needs a permission ends with `RunEnded(why="waiting")`: see `pending` and `answer`.
    `small_model` answers questions about web pages, `fallback_model` takes over while `model` is overloaded. `resume` continues
    an earlier session by its id, or the beginning of it; with `fork`, in a copy of it. `session_id` is the id of a
    new one. `max_cost` is in US dollars and counts from now on. `system_prompt` replaces ours (the guidance of the tools stays),
    `append_system` adds to it.
    `instructions=False` leaves out AGENTS.md and CLAUDE.md; with `settings` the user's own are left out anyway. `messages` is
    a history to start from, in the form of the Anthropic Messages API. `store` keeps the transcript in place of files. `env`
    replaces the environment of this process.
    `state_dir` replaces the user's state folder, `session_dir` that of this session alone. `options` are those of `Toolbox`.
    """

    transcript: Transcript
    _models: SessionModels
    _prefix: RequestPrefix

    def __init__(  # noqa: PLR0913 - every option is a keyword with a default
        self,
        root: str | os.PathLike[str] = ".",
        *,
        model: str | Provider | None = None,
        ask: Ask | Literal["defer"] | None = None,
        host: HostServices | None = None,
        agents: Sequence[AgentType] = (),
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
        **options: Unpack[ToolboxOptions],
    ) -> None:
        self._limits = RunLimits(max_turns, max_cost).checked()
        require_count("thinking_budget", thinking_budget, least=0)
        check_session_ids(session_id, resume, fork=fork)
        self._earlier = None if resume is None else EarlierSession(resume, store)
        resumed_id = None if self._earlier is None else self._earlier.id
        self._forked_from = resumed_id if fork else None
        options["tools"] = tuple(options.get("tools", ()))
        side_requests = SideRequests(lambda: self._models, lambda: self.transcript)
        host = host or HostServices()
        self._deferred, ask, host = install_deferral(
            ask,
            replace(
                host,
                summarizer=host.summarizer or side_requests.ask_about_page,
                search_service=host.search_service or side_requests.search_service,
                side_model=host.side_model or side_requests,
                start_subagent=self._start_subagent,
                on_activated=lambda names: self._prefix.on_activated(names),  # noqa: PLW0108 - made below
                agents=(*host.agents, *_agent_definitions(agents, options)),
            ),
            resumes=resume is not None,
            record=lambda one: self.transcript.append(one),  # noqa: PLW0108 - made below
        )
        self.box = Toolbox(
            root,
            ask=ask,
            host=host,
            on_question=lambda call_id: self.transcript.append(ApprovalRequested(call_id)),
            options=self._tool_options,
            session_id=session_id if fork or resumed_id is None else resumed_id,
            wait_for_servers=0,  # the model is told which are starting, and ToolSearch waits for them
            **options,
        )
        if session_id is not None and resumed_id is None:
            require_new(self.box.workspace.session_dir, session_id)
        self._resumed_header: SessionHeader | None = None
        self._models = SessionModels(
            self.box, model, small_model, base_url, header=lambda: self._resumed_header, fallback=fallback_model
        )
        self.transcript = open_transcript(store, self.box.workspace.session_dir, self.box.id, persist=persist)
        self._history = initial_history(messages, resumes=resume is not None)
        if self._history is not None:
            self.conversation.apply(self._history)
        reads_user_files = options.get("load_settings") or options.get("settings") is None
        scope = instruction_scope(instructions, reads_user_files=reads_user_files)
        self._request_options = RequestOptions(thinking_budget, tuple(server_tools), scope)
        self._prefix = RequestPrefix(
            self.box,
            append_system,
            ROLE if system_prompt is None else system_prompt,
            instruction_scope=scope,
            describes_environment=system_prompt is None,
            record_activated=lambda names: self.transcript.append(ToolsActivated(names)),
        )
        self._runs = SessionRuns(self.box, self.transcript, self._prepare)
        self.rewind = Rewind(self.box, self.transcript, lambda: self.running)
        self._loop: AgentLoop | None = None
        self._subagents: SubagentStarter | None = None
        self._start_context: tuple[str, ...] = ()

    async def __aenter__(self) -> Self:
        await self._load()
        await self.box.__aenter__()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.aclose()

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

    # Runs

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
        """Answer pending questions by their ids and continue: await it for the last text, or iterate over it for the events.

        With `returns`, as it was given to `ask`, the answer has a type and is checked.
        A reply is True, False, words for the model (a no), or an `Answer`. Questions of AskUser are answered with text, a list,
        or a dict by question. Questions that are not answered stay pending.
        """
        work = self._deferred.resume_with(replies, lambda: self.conversation, self._continue)
        if returns is None:
            return self._runs.stream(work, stream_deltas=stream_deltas)
        return self._runs.typed_stream(AnswerType(returns).check(work), stream_deltas=stream_deltas)

    async def delegate(self, agent_type: str, prompt: str) -> str:
        """Have a subagent do a task beside the conversation; returns its report. Raises `SessionError` where it fails.

        With `ask="defer"` it may have questions: then this is what it has said so far, and `answer` continues to its report.
        """
        self._runs.require_open()
        self._start_context += (await self._prepare())[1]
        call = ToolCall(f"delegated_{os.urandom(8).hex()}", "Agent", {"agent_type": agent_type, "prompt": prompt})
        self.transcript.append(TaskDelegated(call.id))
        [result] = await self.box.call_many([call])
        await self.transcript.flush()
        if isinstance(result.outcome, Waiting):
            agent = self.conversation.agents.get(call.id)
            handle = None if agent is None else self.box.workspace.services.subagent_registry.find(agent.id)
            return "" if handle is None else handle.current_report().text
        if result.is_error:
            raise SessionError(" ".join(result.text.split()))
        return str(result.data["result"]) if isinstance(result.data, Mapping) else result.text

    def steer(self, prompt: Prompt) -> None:
        """Say something while the model works: it is sent with the next request, instead of ending if there are no more calls.

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

    # What can be read at any time, and what can be changed between two requests

    @property
    def id(self) -> str:
        """The id to resume this session by."""
        return self.box.id

    @property
    def conversation(self) -> Conversation:
        return self.transcript.conversation

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The conversation in the form of the Anthropic Messages API."""
        return [message.as_dict() for message in self.conversation.copy().settle()]

    @property
    def pending(self) -> list[QuestionDeferred]:
        """The questions that are still to be answered, each with its `id` and `as_dict()`."""
        return self.conversation.open_questions() if self._earlier is None else self._earlier.pending()

    @property
    def running(self) -> bool:
        return self._runs.running

    @property
    def ready(self) -> bool:
        """Whether the session has a model and knows its tools."""
        return self._loop is not None

    @property
    def offered(self) -> list[str]:
        """The tools the model is offered, once the session is ready."""
        return [offer.name for offer in self._prefix.offers]

    @property
    def tool_specs(self) -> tuple[ToolSpec, ...]:
        """The definitions of the tools that the model is offered, once the session is ready."""
        return self._prefix.offers

    @property
    def system_prompt(self) -> tuple[str, ...]:
        """The parts of the system prompt, once the session is ready."""
        return self._prefix.system

    @property
    def mode(self) -> str:
        """The permission mode. Setting it counts from the next call on; an unknown or disabled one raises `ValueError`."""
        return self.box.mode

    @mode.setter
    def mode(self, name: str) -> None:
        self.box.mode = name

    @property
    def provider(self) -> Provider:
        """The model in use. Raises `SessionError` where none is available."""
        return self._models.main

    @property
    def model_choice(self) -> tuple[str | None, str | None]:
        """The model as it is configured, with its provider, and its base URL; None for a model object."""
        return self._models.name_and_url()

    @property
    def default_model(self) -> DefaultModel | None:
        """The model in use, where none was named and a key in the environment chose it."""
        return self._models.default

    @property
    def model_name(self) -> str:
        """The name of the model, as far as it is known."""
        return self._models.name

    def set_model(self, model: str | Provider | None) -> None:
        """Use another model from the next request on; None is the configured one. Raises `SessionError`."""
        provider = self._models.switch(model)
        if self._loop is not None:
            self._loop.switch(provider, ModelChanged(provider.model, *self._models.recorded_name_and_url()))

    # Made when they are first needed

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
        loop = self._loop = await self._make_loop()
        source = "resume" if self.conversation.turns else "startup"
        return loop, await loop.hooks.on_start(source, self.provider.model)

    async def _make_loop(self) -> AgentLoop:
        """Make the loop and record the header of the transcript. Raises `SessionError` where no model is available."""
        box, provider, conversation, record = self.box, self._models.main, self.conversation, self.transcript.append
        is_fork = self._forked_from is not None
        await self._prefix.prepare(provider, conversation.activated)
        await settle_lost(box, self.transcript, is_fork=is_fork)
        if is_fork:
            for each in conversation.as_records():
                record(each)
        name, url = self._models.recorded_name_and_url()
        if conversation.header is None or is_fork:
            fork = 0 if conversation.header is None else conversation.header.fork + 1
            root, now = box.workspace.root, time.time()
            header = SessionHeader(VERSION, box.id, root, provider.model, now, self._forked_from, fork)
            record(replace(header, configured=name, base_url=url))
            if self._history is not None:
                record(self._history)
        elif conversation.header.model != provider.model:
            record(ModelChanged(provider.model, name, url))
        return AgentLoop(
            box,
            provider,
            self.transcript,
            self._prefix,
            SessionHooks(box.hooks, box.settings.get("messageIdleNotifThresholdMs") / 1000),
            limits=self._limits,
            options=self._request_options,
            steering=self._runs.steering,
        )

    def _tool_options(self) -> Options:
        """What tools read as `ctx.options`, except the names of tools and commands."""
        header = self.conversation.header
        fork = 0 if header is None else header.fork
        thinking_budget = self._request_options.thinking_budget
        return Options(model=self._models.name or None, fork=fork, thinking_budget=thinking_budget)

    async def _start_subagent(self, task: SubagentTask, ctx: ToolContext) -> SubagentHandle:
        if self._loop is None:
            raise ToolFailure("The session has not begun, so there is no model for an agent.", "Send a prompt first.")
        return await self._starter(self._loop).start(task, ctx)

    def _starter(self, loop: AgentLoop) -> SubagentStarter:
        if self._subagents is None:
            from wieldy.agent.subagents import SubagentStarter, session_context

            self._subagents = SubagentStarter(session_context(self.box, loop, self._models.name_and_url()))
            loop.reports = self._subagents.reports
        return self._subagents

    def _continue(self, calls: set[str]) -> Work:
        """The work that follows when questions about these calls were answered.

        Tasks that the program delegated come first. The text of the run is their reports, and what the model says if calls of
        its own, or subagents in the background, continue too.
        """
        from wieldy.policy.permissions.paths import is_below

        workspace = self.box.workspace
        folder = next((question.cwd for question in self.conversation.open_questions() if not question.agent), "")
        if any(is_below(folder, root) for root in workspace.roots):
            workspace.cwd = folder  # the calls are about the folder that the first question was asked in

        async def work(loop: AgentLoop, context: tuple[str, ...], abort: Abort) -> RunEnd:
            conversation = self.conversation
            delegated, background = calls & conversation.delegated, calls & conversation.background_agents()
            handles, failures = await self._starter(loop).resume(sorted(delegated | background), abort)
            reports = [await handles[call].report() for call in sorted(delegated) if call in handles]
            end = RunEnd("done")
            if (conversation.waiting and (not calls or calls - delegated)) or (conversation.awaits_model and not calls):
                end = await loop.resume(context, abort)
            elif background:
                end = await loop.await_report(context, abort)
            else:
                self._start_context += context
            for call in sorted(delegated & failures.keys()):
                return RunEnd("error", failures[call])
            for report in reports:
                if not (report.done or report.waiting):
                    detail = report.detail or report.why
                    return RunEnd("error", f"the {report.agent_type} agent did not finish: {detail}")
            if any(report.waiting for report in reports) and end.why == "done":
                end = RunEnd("waiting", "questions of a subagent are to be answered", end.text)
            texts = [report.text for report in reports if report.done]
            return replace(end, text="\n\n".join(filter(None, [*texts, end.text])))

        return work


def _agent_definitions(agents: Sequence[AgentType], options: ToolboxOptions) -> list[AgentDefinition]:
    """The definitions of a program's agents. Raises `ValueError` or `TypeError` for one that cannot be used."""
    if not agents:
        return []
    from wieldy.tools import builtin_loaders
    from wieldy.tools.subagents import AgentType

    known = (*builtin_loaders(options.get("builtins", True)), *(tool.name for tool in options["tools"]))
    for agent in agents:
        if not isinstance(agent, AgentType):
            raise TypeError(f"{agent!r} is no agent: make it with AgentType(name, prompt)")
    return [agent.definition(known) for agent in agents]
