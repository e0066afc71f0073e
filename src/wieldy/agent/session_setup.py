"""Makes what a session needs once it has a model: its models, the loop, and the start of its subagents."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from wieldy.agent.loop import AgentLoop, RequestOptions, RequestPrefix, RunLimits
from wieldy.agent.models import SessionModels
from wieldy.agent.records import VERSION, HistoryReplaced, ModelChanged, SessionHeader, ToolsActivated
from wieldy.agent.session_hooks import SessionHooks
from wieldy.agent.side_requests import SideRequests
from wieldy.agent.transcript import Transcript
from wieldy.core.errors import ToolFailure
from wieldy.core.provider import SideModel
from wieldy.core.tool import Options, ToolContext
from wieldy.subagents.tasks import SubagentAccess
from wieldy.toolbox import Toolbox

if TYPE_CHECKING:
    from wieldy.agent.subagents import SubagentStarter
    from wieldy.subagents.tasks import SubagentHandle, SubagentTask


class SessionSetup:
    """Provides the workspace of a session with its models and subagents, and makes the loop."""

    def __init__(
        self,
        box: Toolbox,
        models: SessionModels,
        transcript: Transcript,
        prefix: RequestPrefix,
        *,
        limits: RunLimits,
        options: RequestOptions,
        forked_from: str | None,
    ) -> None:
        self._box = box
        self._models = models
        self._transcript = transcript
        self._prefix = prefix
        self._limits = limits
        self._options = options
        self._forked_from = forked_from
        self._side_requests = SideRequests(models, transcript)
        self._loop: AgentLoop | None = None
        self._subagents: SubagentStarter | None = None
        box.workspace.provide(SideModel(complete=self._side_requests.complete))
        box.workspace.provide(SubagentAccess(box.workspace, start=self._start_subagent))

    async def make_loop(self) -> AgentLoop:
        """Make the loop and record the header of the transcript. Raises `SessionError` where no model can be had."""
        box, provider, transcript = self._box, self._models.main, self._transcript
        conversation, record = transcript.conversation, transcript.append
        self._side_requests.install(box.workspace)
        await self._prefix.prepare(provider, conversation.activated, lambda names: record(ToolsActivated(names)))
        if self._forked_from is not None:
            messages = [message.as_dict() for message in conversation.settle()]
            record(HistoryReplaced(messages, "fork", ids=sorted(conversation.ids), prompts=[]))
        if conversation.header is None or self._forked_from is not None:
            root = box.workspace.root
            fork = 0 if conversation.header is None else conversation.header.fork + 1
            record(SessionHeader(VERSION, box.id, root, provider.model, time.time(), self._forked_from, fork))
        elif conversation.header.model != provider.model:
            record(ModelChanged(provider.model))
        hooks = SessionHooks(box.hooks, box.settings.get("messageIdleNotifThresholdMs") / 1000)
        self._loop = AgentLoop(
            box, provider, transcript, self._prefix, hooks, limits=self._limits, options=self._options
        )
        return self._loop

    def tool_options(self) -> Options:
        """What tools read as `ctx.options`, except the names of tools and commands."""
        header = self._transcript.conversation.header
        return Options(
            model=self._models.name or None,
            fork=0 if header is None else header.fork,
            thinking_budget=self._options.thinking_budget,
        )

    async def _start_subagent(self, task: SubagentTask, ctx: ToolContext) -> SubagentHandle:
        if self._loop is None:
            raise ToolFailure("The session has not begun, so there is no model for an agent. Send a prompt first.")
        if self._subagents is None:
            from wieldy.agent.subagents import SubagentStarter, session_context

            context = session_context(self._box, self._loop, self._models.name_and_url())
            self._subagents = SubagentStarter(context)
        return await self._subagents.start(task, ctx)
