"""What hooks are told of a sub-agent: its start and its stop in place of a session's, and who it is at every other moment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wieldy.core.workspace import Workspace
from wieldy.hooks.hooks import Hooks
from wieldy.permissions.covers import Coverage
from wieldy.session.delegate_judge import Narrowed
from wieldy.session.moments import MOST_STOPS, Moments


class AgentHooks(Hooks):
    """The hooks of the session, which hold inside a sub-agent as outside. They are told which one it is."""

    def __init__(
        self,
        above: Hooks,
        workspace: Workspace,
        judge: Narrowed,
        halt: Callable[[str], None],
        *,
        agent_id: str,
        agent_type: str,
    ) -> None:
        super().__init__(
            above.hooks,
            workspace,
            mode=lambda: judge.mode,
            applies=Coverage(judge.standing()),
            halt=halt,
        )
        self._above = above
        self._agent = {"agent_id": agent_id, "agent_type": agent_type}

    def common(self) -> dict[str, Any]:
        """What every moment is told: the session's own, but where this agent stands, and who it is."""
        here = {"cwd": self._workspace.cwd, "permission_mode": self._mode()}
        return {**self._above.common(), **here, **self._agent}


class AgentMoments(Moments):
    """A sub-agent's moments. Its task is no prompt of the person's, so that no hook is told of one."""

    def __init__(self, hooks: Hooks, transcript: str) -> None:
        super().__init__(hooks)
        self._transcript = transcript

    async def started(self, source: str, model: str) -> tuple[str, ...]:
        """Tell of the start; returns what hooks add to what the agent knows."""
        if not self.hooks.wanted("SubagentStart"):
            return ()
        from wieldy.hooks.moment import SubagentStart

        return (await self.hooks.fire(SubagentStart(**self._common()))).context

    async def prompted(self, prompt: str) -> tuple[str, ...]:
        """Nothing: the task comes from an agent."""
        self.sent_on = 0
        return ()

    async def stopping(self, last_words: str) -> str | None:
        """Tell that the agent wants to stop; returns why it is to go on, or None."""
        if not self.hooks.wanted("SubagentStop") or self.sent_on >= MOST_STOPS:
            return None
        from wieldy.hooks.moment import SubagentStop

        said = await self.hooks.fire(
            SubagentStop(
                **self._common(),
                agent_transcript_path=self._transcript,
                stop_hook_active=self.sent_on > 0,
                last_assistant_message=last_words,
            )
        )
        if said.blocked is None or said.halt is not None:
            return None
        self.sent_on += 1
        return said.blocked
