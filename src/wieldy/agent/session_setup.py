"""Makes what a session needs once it has a model: its models, the loop, and the start of its subagents."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from wieldy.agent.loop import AgentLoop, RequestOptions, RequestPrefix, RunEnd, RunLimits
from wieldy.agent.lost_calls import settle_lost
from wieldy.agent.models import SessionModels
from wieldy.agent.prompts import SteeringQueue
from wieldy.agent.records import (
    VERSION,
    CallsWaiting,
    FilesSeen,
    HistoryReplaced,
    ModelChanged,
    SessionHeader,
    SubagentEnded,
    TaskDelegated,
    ToolResultRecord,
    ToolsActivated,
)
from wieldy.agent.runs import Work
from wieldy.agent.session_hooks import SessionHooks
from wieldy.agent.side_requests import SideRequests
from wieldy.agent.system_prompt import ROLE
from wieldy.agent.transcript import Transcript
from wieldy.core.abort import Abort
from wieldy.core.errors import SessionError, ToolFailure
from wieldy.core.outcome import ToolResult
from wieldy.core.tool import Options, Tool, ToolContext
from wieldy.engine.toolbox import Toolbox
from wieldy.engine.workspace_services import HostServices

if TYPE_CHECKING:
    from wieldy.agent.subagents import SubagentStarter
    from wieldy.core.messages import Message
    from wieldy.core.provider import Completion
    from wieldy.tools.subagents.definitions import AgentType
    from wieldy.tools.subagents.tasks import SubagentHandle, SubagentTask
    from wieldy.web.search import SearchService


def session_host(host: HostServices, setup: Callable[[], SessionSetup]) -> HostServices:
    """What a session brings to the services of its toolbox; what the program brings comes first."""

    async def summarize(question: str, page: str) -> str | None:
        return await setup().side_requests.ask_about_page(question, page)

    async def complete(system: str, messages: Sequence[Message], max_tokens: int) -> Completion:
        return await setup().side_requests.complete(system, messages, max_tokens)

    async def start_subagent(task: SubagentTask, ctx: ToolContext) -> SubagentHandle:
        return await setup().start_subagent(task, ctx)

    def search_service() -> SearchService | None:
        return setup().side_requests.search_service()

    def on_activated(names: tuple[str, ...]) -> None:
        setup().prefix.on_activated(names)

    return replace(
        host,
        summarizer=host.summarizer or summarize,
        search_service=host.search_service or search_service,
        side_model=host.side_model or complete,
        start_subagent=start_subagent,
        on_activated=on_activated,
    )


def with_agents(
    host: HostServices, agents: Sequence[AgentType], builtins: bool | Collection[str], tools: Iterable[Tool]
) -> HostServices:
    """The host with the agents of a program. Raises `ValueError` or `TypeError` for one that cannot be used."""
    if not agents:
        return host
    from wieldy.tools import builtin_loaders
    from wieldy.tools.subagents.definitions import AgentType

    known = (*builtin_loaders(builtins), *(tool.name for tool in tools))
    for agent in agents:
        if not isinstance(agent, AgentType):
            raise TypeError(f"{agent!r} is no agent: make it with AgentType(name, prompt)")
    return replace(host, agents=(*host.agents, *(agent.definition(known) for agent in agents)))


def report_text(result: ToolResult) -> str:
    """The report of a subagent. Raises `SessionError` for one that failed or could not be started."""
    if result.is_error:
        raise SessionError(" ".join(result.text.split()))
    return str(result.data["result"]) if isinstance(result.data, Mapping) else result.text


class SessionSetup:
    """Makes the loop of a session, and what tools need of its models."""

    def __init__(  # noqa: PLR0913 - what a session was given, each by name
        self,
        box: Toolbox,
        models: SessionModels,
        transcript: Transcript,
        *,
        append_system: str,
        role: str,
        limits: RunLimits,
        options: RequestOptions,
        forked_from: str | None,
        steering: SteeringQueue,
        history: HistoryReplaced | None,
    ) -> None:
        self._box = box
        self._models = models
        self._transcript = transcript
        self.prefix = RequestPrefix(
            box,
            append_system,
            role,
            instruction_scope=options.instruction_scope,
            describes_environment=role is ROLE,
            record_activated=lambda names: transcript.append(ToolsActivated(names)),
        )
        self._limits = limits
        self._options = options
        self._forked_from = forked_from
        self._steering = steering
        self._history = history
        self.side_requests = SideRequests(models, transcript, box.workspace)
        self._loop: AgentLoop | None = None
        self._subagents: SubagentStarter | None = None

    async def make_loop(self) -> AgentLoop:
        """Make the loop and record the header of the transcript. Raises `SessionError` where no model can be had."""
        box, provider, transcript = self._box, self._models.main, self._transcript
        conversation, record = transcript.conversation, transcript.append
        await self.prefix.prepare(provider, conversation.activated)
        await settle_lost(box, transcript, is_fork=self._forked_from is not None)
        if self._forked_from is not None:
            self._record_copy()
        if conversation.header is None or self._forked_from is not None:
            root = box.workspace.root
            fork = 0 if conversation.header is None else conversation.header.fork + 1
            name, url = self._models.recorded_name_and_url()
            header = SessionHeader(VERSION, box.id, root, provider.model, time.time(), self._forked_from, fork)
            record(replace(header, configured=name, base_url=url))
            if self._history is not None:
                record(self._history)
        elif conversation.header.model != provider.model:
            record(ModelChanged(provider.model, *self._models.recorded_name_and_url()))
        hooks = SessionHooks(box.hooks, box.settings.get("messageIdleNotifThresholdMs") / 1000)
        self._loop = AgentLoop(
            box,
            provider,
            transcript,
            self.prefix,
            hooks,
            limits=self._limits,
            options=self._options,
            reports=lambda: None if self._subagents is None else self._subagents.reports,
            steering=self._steering,
        )
        return self._loop

    def _record_copy(self) -> None:
        """Record the conversation that a fork begins with, and its calls that wait for answers."""
        conversation, record = self._transcript.conversation, self._transcript.append
        waiting, questions, results = conversation.waiting, conversation.open_questions(), list(conversation.results)
        delegated, agents = sorted(conversation.delegated), list(conversation.agents.values())
        waiting_agents, seen = set(conversation.waiting_agents), list(conversation.seen.values())
        messages = [message.as_dict() for message in (conversation.messages if waiting else conversation.settle())]
        record(HistoryReplaced(messages, "fork", ids=sorted(conversation.ids), prompts=[]))
        if seen:
            record(FilesSeen(seen))
        for block in results if waiting else ():
            record(ToolResultRecord(dict(block)))
        for call in delegated:
            record(TaskDelegated(call))
        for agent in agents:
            record(agent)
            if agent.call in waiting_agents:
                record(SubagentEnded(agent.id, agent.call, "waiting"))
        for question in questions:
            record(question)
        if waiting:
            record(CallsWaiting(list(waiting)))

    def tool_options(self) -> Options:
        """What tools read as `ctx.options`, except the names of tools and commands."""
        header = self._transcript.conversation.header
        return Options(
            model=self._models.name or None,
            fork=0 if header is None else header.fork,
            thinking_budget=self._options.thinking_budget,
        )

    async def start_subagent(self, task: SubagentTask, ctx: ToolContext) -> SubagentHandle:
        if self._loop is None:
            raise ToolFailure("The session has not begun, so there is no model for an agent.", "Send a prompt first.")
        return await self._starter(self._loop).start(task, ctx)

    def _starter(self, loop: AgentLoop) -> SubagentStarter:
        if self._subagents is None:
            from wieldy.agent.subagents import SubagentStarter, session_context

            self._subagents = SubagentStarter(session_context(self._box, loop, self._models.name_and_url()))
        return self._subagents

    def go_on(self, calls: set[str], keep_context: Callable[[tuple[str, ...]], None]) -> Work:
        """The work of going on after questions about these calls were answered.

        Tasks that the program delegated come first. The text of the run is their reports, and what the model says if calls of
        its own, or subagents in the background, go on too. `keep_context` takes the context of hooks if the model says nothing.
        """

        async def work(loop: AgentLoop, context: tuple[str, ...], abort: Abort) -> RunEnd:
            conversation = self._transcript.conversation
            delegated, background = calls & conversation.delegated, calls & conversation.background_agents()
            handles, failures = await self._starter(loop).go_on(sorted(delegated | background), abort)
            reports = [await handles[call].report() for call in sorted(delegated) if call in handles]
            end = RunEnd("done")
            if (conversation.waiting and (not calls or calls - delegated)) or (conversation.awaits_model and not calls):
                end = await loop.resume(context, abort)
            elif background:
                end = await loop.await_report(context, abort)
            else:
                keep_context(context)
            for call in sorted(delegated & failures.keys()):
                return RunEnd("error", failures[call])
            for report in reports:
                if not (report.done or report.waiting):
                    return RunEnd(
                        "error", f"the {report.agent_type} agent did not finish: {report.detail or report.why}"
                    )
            if any(report.waiting for report in reports) and end.why == "done":
                end = RunEnd("waiting", "questions of a subagent are to be answered", end.text)
            texts = [report.text for report in reports if report.done]
            return replace(end, text="\n\n".join(filter(None, [*texts, end.text])))

        return work

    def text_so_far(self, call_id: str) -> str:
        """What the subagent of a call that waits has said."""
        agent = self._transcript.conversation.agents.get(call_id)
        handle = None if agent is None else self._box.workspace.services.subagent_registry.find(agent.id)
        return "" if handle is None else handle.current_report().text
